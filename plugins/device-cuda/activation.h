/* SPDX-License-Identifier: Apache-2.0
 *
 * The activation of one value, for the operator and for products that activate
 * what they compute.
 */
#ifndef CUDA_ACTIVATION_H
#define CUDA_ACTIVATION_H

#include <xray/operators.h>

#include "plugins/device-cuda/fmath.h"

#define GELU_A 0x1.988454p-1f /* sqrt(2 / pi) */
#define GELU_B 0x1.6e4e26p-5f /* 0.044715 */

/* For the gate g: the factor f with act = g f. */
template <int Silu> CU_FN float act_factor(float g)
{
    if (Silu)
        return 1.0f / (1.0f + cu_exp(-g));
    float cube = (g * g) * g;
    float u = GELU_A * fmaf(GELU_B, cube, g);
    return fmaf(0.5f, cu_tanh(u), 0.5f);
}

/* act(gate) for `act`, which is XRAY_ACT_*. */
CU_FN float act_value(float gate, uint32_t act)
{
    return gate *
           (act == XRAY_ACT_SILU ? act_factor<1>(gate) : act_factor<0>(gate));
}

#endif
