/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the kernels for AVX-512.
 */
#define VEC_ISA VEC_AVX512
#define KERNELS cpu_kernels_avx512
#define KERNELS_NAME "AVX-512"
#include "plugins/device-cpu/k_table.h"
