/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles the kernels without vector instructions, one lane at a time.
 */
#define VEC_ISA VEC_SCALAR
#define KERNELS cpu_kernels_scalar
#define KERNELS_NAME "scalar"
#include "plugins/device-cpu/k_table.h"
