/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and norms by their place.
 */
#include "model/nn/internal.h"

const xm_bound *xm_run_bound(const xm_run *run, uint32_t slot)
{
    return slot < XM_BLOCK_SLOTS ? &run->decoder->layers[run->layer].p[slot]
                                 : xm_outer(run->decoder, slot);
}

float *xm_run_grad(const xm_run *run, uint32_t slot)
{
    uint32_t bucket = run->decoder->config.layers + 1;
    if (slot < XM_BLOCK_SLOTS)
        bucket = run->layer + 1;
    else if (slot == XM_EMBED || slot == XM_POSITIONS)
        bucket = 0;
    return run->grads->buckets[bucket] + xm_run_bound(run, slot)->offset;
}

float *xm_run_grad_if(const xm_run *run, uint32_t slot)
{
    return xm_run_bound(run, slot)->data ? xm_run_grad(run, slot) : NULL;
}

/* The bias of a LayerNorm; XM_SLOTS: this norm has none. */
static uint32_t bias_slot(uint32_t slot)
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

void xm_stream_norm(xm_run *run, uint32_t slot, xm_rows x, xm_rows y,
                    float *stat)
{
    const float *weight = xm_run_bound(run, slot)->data;
    uint32_t bias = bias_slot(slot);
    if (run->decoder->config.layer_norm)
        xm_run_layernorm(run, weight,
                         bias < XM_SLOTS ? xm_run_bound(run, bias)->data : NULL,
                         x, y, stat);
    else
        xm_run_norm(run, weight, x.dim, x, y, stat);
}

void xm_stream_norm_back(xm_run *run, const xm_stream_back *back, xm_rows x,
                         xm_rows dx)
{
    uint32_t bias = bias_slot(back->slot);
    xm_norm_back call = { .weight = xm_run_bound(run, back->slot)->data,
                          .stat = back->stat,
                          .dy = back->dy,
                          .dweight = xm_run_grad(run, back->slot),
                          .dim = x.dim,
                          .accumulate = back->accumulate };
    if (!run->decoder->config.layer_norm) {
        xm_run_norm_back(run, &call, x, dx);
        return;
    }
    call.dbias = bias < XM_SLOTS ? xm_run_grad_if(run, bias) : NULL;
    xm_run_layernorm_back(run, &call, x, dx);
}
