/* SPDX-License-Identifier: Apache-2.0
 *
 * The support of a token's distribution: the tokens that min_p, top_k and top_p
 * leave to be sampled.
 */
#ifndef CPU_SUPPORT_H
#define CPU_SUPPORT_H

#include "plugins/device-cpu/kernels.h"

#define CPU_SUPPORT_ROWS 2 /* rows of n floats that cpu_support_floor uses */

/* Returns the smallest of the n logits z that stays, so that its ties stay too;
 * -inf where nothing is cut. `max` is the largest z. `work` has
 * CPU_SUPPORT_ROWS rows of n floats, each rounded up to a multiple of 16. */
float cpu_support_floor(const cpu_kernels *k, const float *z, size_t n,
                        const xray_draw *draw, float max, float *work);

#endif
