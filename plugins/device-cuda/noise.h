/* SPDX-License-Identifier: Apache-2.0
 *
 * The noise of a draw, from random words, and bounds of it that cost less.
 */
#ifndef CUDA_NOISE_H
#define CUDA_NOISE_H

#include <xray/numerics.h>

#include "plugins/device-cuda/fmath.h"

/* log(-log u) of the word's u: the noise with its sign turned. */
CU_FN float noise_below(uint32_t word)
{
    return cu_log(-0.0f - cu_log(xray_unit(word)));
}

/* Above log 2 by so much that 1 to 24 of it bound noise with the errors of two
 * cu_log, of which each is 1.01 ulp: 2.2e-6 where the noise is largest. */
#define NOISE_STEP 0.693148f
#define NOISE_MOST (24.0f * NOISE_STEP) /* of any word: 16.6356 */

/* The noise of this word, and of every smaller one, is at most this. 1 - u is
 * (2 n + 1) 2^-24 with n = ~word >> 9, and so at least 2^-(1 + zeros), where
 * zeros are those in front of ~word, but at most 23. The noise -log(-log u) is
 * at most -log(1 - u). */
CU_FN float noise_bound(uint32_t word)
{
    return (float)(1 + __clz((int)(~word | 0x1ffu))) * NOISE_STEP;
}

#endif
