/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the kernels for AVX2.
 */
#define VEC_ISA VEC_AVX2
#define KERNELS cpu_kernels_avx2
#define KERNELS_NAME "AVX2"
#include "plugins/device-cpu/k_table.h"
