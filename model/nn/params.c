/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the parameters and gradients of a pass by slot, and applies the norms
 * of the residual stream.
 */
#include "model/nn/internal.h"

const xm_bound_param *xm_pass_param(const xm_pass *pass, uint32_t slot)
{
    return slot < XM_BLOCK_SLOTS ? &pass->decoder->layers[pass->layer].p[slot]
                                 : xm_outer(pass->decoder, slot);
}

float *xm_pass_grad(const xm_pass *pass, uint32_t slot)
{
    uint32_t bucket = pass->decoder->config.layers + 1;
    if (slot < XM_BLOCK_SLOTS)
        bucket = pass->layer + 1;
    else if (slot == XM_EMBED || slot == XM_POSITIONS)
        bucket = 0;
    return pass->grads->buckets[bucket] + xm_pass_param(pass, slot)->offset;
}

float *xm_pass_grad_or_null(const xm_pass *pass, uint32_t slot)
{
    return xm_pass_param(pass, slot)->data ? xm_pass_grad(pass, slot) : NULL;
}

float *xm_pass_head_norm_grad(const xm_pass *pass, uint32_t slot,
                              uint32_t *segments)
{
    float *apart = xm_grads_head_norm(pass->grads, pass->layer + 1, slot);
    *segments = apart ? pass->grads->aside.segments : 1;
    return apart ? apart : xm_pass_grad(pass, slot);
}

/* The slot of a norm's bias, or XM_SLOTS if it has none. */
static uint32_t norm_bias_slot(uint32_t slot)
{
    switch (slot) {
    case XM_NORM1:
        return XM_NORM1_BIAS;
    case XM_NORM2:
        return XM_NORM2_BIAS;
    case XM_NORM:
        return XM_NORM_BIAS;
    default:
        return XM_SLOTS;
    }
}

void xm_residual_norm(xm_pass *pass, uint32_t slot, xm_rows x, xm_rows y,
                      float *stat)
{
    const float *weight = xm_pass_param(pass, slot)->data;
    uint32_t bias = norm_bias_slot(slot);
    xm_pass_compute_own(pass);
    if (pass->decoder->config.layer_norm)
        xm_pass_layernorm(pass, weight,
                          bias < XM_SLOTS ? xm_pass_param(pass, bias)->data
                                          : NULL,
                          x, y, stat);
    else
        xm_pass_norm(pass, weight, x.dim, x, y, stat);
    xm_pass_compute_all(pass);
}

void xm_residual_norm_grad(xm_pass *pass,
                           const xm_residual_norm_grad_call *back, xm_rows x,
                           xm_rows dx)
{
    uint32_t bias = pass->decoder->config.layer_norm
                        ? norm_bias_slot(back->slot)
                        : XM_SLOTS;
    xm_norm_grad_call call = { .weight = xm_pass_param(pass, back->slot)->data,
                               .stat = back->stat,
                               .dy = back->dy,
                               .dweight = xm_pass_grad(pass, back->slot),
                               .dim = x.dim,
                               .accumulate = back->accumulate };
    call.dbias = bias < XM_SLOTS ? xm_pass_grad_or_null(pass, bias) : NULL;
    /* The bias follows the weight in its bucket. */
    uint64_t count =
        x.dim + (call.dbias ? (uint64_t)(call.dbias - call.dweight) : 0);
    xm_pass_continue_chain(pass, call.dweight, count);
    xm_pass_compute_own(pass);
    if (pass->decoder->config.layer_norm)
        xm_pass_layernorm_grad(pass, &call, x, dx);
    else
        xm_pass_norm_grad(pass, &call, x, dx);
    xm_pass_compute_all(pass);
    xm_pass_hand_on_chain(pass, call.dweight, count);
}
