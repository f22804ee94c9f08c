/* SPDX-License-Identifier: Apache-2.0
 *
 * The support of a draw: which tokens min_p, top_k and top_p leave.
 */
#ifndef CPU_SUPPORT_H
#define CPU_SUPPORT_H

#include "plugins/device-cpu/kernels.h"

#define CPU_SUPPORT_ROWS 2 /* rows of n floats that cpu_support_floor uses */

/* The smallest z of the n that stays, so that ties with it stay too; -inf where
 * nothing is cut. `max` is the largest z. `work` is rounded up to 16 a row. */
float cpu_support_floor(const cpu_kernels *k, const float *z, size_t n,
                        const xray_draw *draw, float max, float *work);

#endif
