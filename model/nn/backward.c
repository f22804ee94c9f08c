/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward pass, block by block from the last. Every parameter's gradient
 * is one chain over tokens that starts from what the bucket holds, so cutting a
 * batch elsewhere changes no bit. Normed inputs and activations are cheap and
 * are made again rather than kept.
 */
#include "model/nn/internal.h"

static float *grad_of(const xm_run *run, uint32_t slot)
{
    const xm_bound *bound = &run->decoder->layers[run->layer].p[slot];
    return run->grads->buckets[run->layer + 1] + bound->offset;
}

/* dx += gradient through the norm in front of a half block; dy is in h. */
static void norm_back(xm_run *run, uint32_t slot, const float *rstd, float *x)
{
    xm_space *s = run->space;
    uint64_t dim = run->decoder->config.hidden;
    xm_norm_back call = { .weight =
                              run->decoder->layers[run->layer].p[slot].data,
                          .rstd = rstd,
                          .dy = s->h,
                          .dweight = grad_of(run, slot),
                          .dim = dim,
                          .accumulate = 1 };
    xm_run_norm_back(run, &call, xm_rows_of(x, dim), xm_rows_of(s->dx, dim));
}

static void glu_back(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    xray_glu_grad call = {
        XRAY_HEAD(xray_glu_grad), .tokens = run->tokens,
        .x = block->gate_up,      .dy = run->space->act,
        .dx = block->gate_up,     .dim = run->decoder->config.ffn,
        .act = XRAY_ACT_SILU
    };
    xm_run_note(run, run->device->glu_grad(run->self, NULL, &call),
                "the gradient of an activation");
}

static void mlp_back(xm_run *run, const xm_block *block)
{
    xm_space *s = run->space;
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows dx = xm_rows_of(s->dx, d.hidden);
    xm_rows act = xm_rows_of(s->act, d.ffn);
    xm_rows gate_up = xm_rows_of(block->gate_up, 2 * d.ffn);
    xm_rows h = xm_rows_of(s->h, d.hidden);

    xm_run_glu(run, block);
    xm_run_fold(run, dx, act, grad_of(run, XM_DOWN), NULL);
    xm_run_product_back(run, layer->p[XM_DOWN].weight, dx, act, 0);
    glu_back(run, block);
    xm_run_norm(run, layer->p[XM_NORM2].data, d.hidden,
                xm_rows_of(block->mid, d.hidden), h, block->rstd2);
    xm_run_fold(run, gate_up, h, grad_of(run, XM_GATE), NULL);
    xm_run_product_back(run, layer->p[XM_GATE].weight, gate_up, h, 0);
    norm_back(run, XM_NORM2, block->rstd2, block->mid);
}

static void attention_back(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    xm_space *s = run->space;
    xm_dims d = xm_dims_of(&run->decoder->config);
    xray_attention forward = xm_attention_of(run, block);
    xray_attention_grad call = { XRAY_HEAD(xray_attention_grad),
                                 .forward = &forward,
                                 .d_o = s->d_o,
                                 .dq = s->dqkv,
                                 .dk = s->dqkv + d.q,
                                 .dv = s->dqkv + d.q + d.kv,
                                 .dq_stride = d.qkv,
                                 .dk_stride = d.qkv,
                                 .dv_stride = d.qkv };
    xm_run_note(run, run->device->attention_grad(run->self, NULL, &call),
                "the gradient of attention");
}

/* Back through the norm of the heads of q or of k, in place. */
static void heads_back(xm_run *run, uint32_t slot, const float *rstd, xm_rows x,
                       xm_rows dx)
{
    xm_norm_back call = { .weight =
                              run->decoder->layers[run->layer].p[slot].data,
                          .rstd = rstd,
                          .dy = dx.data,
                          .dweight = grad_of(run, slot),
                          .dim = run->decoder->config.head_dim };
    xm_run_norm_back(run, &call, x, dx);
}

static void norm_heads_back(xm_run *run, const xm_block *block)
{
    if (!run->decoder->config.qk_norm)
        return;
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows q = { block->qkv, d.qkv, d.q };
    xm_rows dq = { run->space->dqkv, d.qkv, d.q };
    heads_back(run, XM_Q_NORM, block->rstd_q, q, dq);
    xm_rows k = { block->qkv + d.q, d.qkv, d.kv };
    xm_rows dk = { run->space->dqkv + d.q, d.qkv, d.kv };
    heads_back(run, XM_K_NORM, block->rstd_k, k, dk);
}

static void attend_back(xm_run *run, const xm_block *block, float *x)
{
    xm_space *s = run->space;
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows dx = xm_rows_of(s->dx, d.hidden);
    xm_rows h = xm_rows_of(s->h, d.hidden);
    xm_rows dqkv = xm_rows_of(s->dqkv, d.qkv);
    xm_rows dqk = { s->dqkv, d.qkv, d.q + d.kv };

    xm_run_fold(run, dx, xm_rows_of(block->o, d.q), grad_of(run, XM_O), NULL);
    xm_run_product_back(run, layer->p[XM_O].weight, dx, xm_rows_of(s->d_o, d.q),
                        0);
    attention_back(run, block);
    xm_run_rope(run, dqk, 1);
    norm_heads_back(run, block);
    xm_run_norm(run, layer->p[XM_NORM1].data, d.hidden, xm_rows_of(x, d.hidden),
                h, block->rstd1);
    float *dbias =
        run->decoder->config.qkv_bias ? grad_of(run, XM_Q_BIAS) : NULL;
    xm_run_fold(run, dqkv, h, grad_of(run, XM_Q), dbias);
    xm_run_product_back(run, layer->p[XM_Q].weight, dqkv, h, 0);
    norm_back(run, XM_NORM1, block->rstd1, x);
}

static void final_norm_back(xm_run *run, const float *dhidden)
{
    const xm_decoder *decoder = run->decoder;
    xm_space *s = run->space;
    uint64_t dim = decoder->config.hidden;
    const xm_bound *norm = xm_outer(decoder, XM_NORM);
    xm_norm_back call = { .weight = norm->data,
                          .rstd = s->rstd,
                          .dy = dhidden,
                          .dweight =
                              run->grads->buckets[s->layers + 1] + norm->offset,
                          .dim = dim };
    xm_run_norm_back(run, &call, xm_rows_of(s->x[s->layers], dim),
                     xm_rows_of(s->dx, dim));
}

static void embed_back(xm_run *run)
{
    if (run->status != XRAY_OK)
        return;
    const xm_config *config = &run->decoder->config;
    const xm_bound *embed = xm_outer(run->decoder, XM_EMBED);
    float *own = run->grads->buckets[0] + embed->offset;
    xray_embedding_grad call = { XRAY_HEAD(xray_embedding_grad),
                                 .tokens = run->tokens,
                                 .ids = run->pack->ids,
                                 .dy = run->space->dx,
                                 .dtable =
                                     config->tied ? run->grads->lookup : own,
                                 .vocab = config->vocab,
                                 .dim = config->hidden,
                                 .scale = 1.0f };
    xm_run_note(run, run->device->embedding_grad(run->self, NULL, &call),
                "the gradient of the embedding");
}

static xray_status check(const xm_decoder *decoder, const xm_space *space,
                         const xm_pack *pack, const xm_grads *grads,
                         xr_err *err)
{
    if (!(space->flags & XM_SPACE_TRAIN))
        return xr_fail(err, XRAY_E_STATE,
                       "the space of this forward keeps nothing for a "
                       "backward pass");
    if (space->live != pack->tokens)
        return xr_fail(err, XRAY_E_STATE,
                       "a backward of %u tokens, but the last forward kept "
                       "%llu (a backward uses them up)",
                       pack->tokens, (unsigned long long)space->live);
    return xm_grads_check(grads, decoder, err);
}

xray_status xm_backward(xm_decoder *decoder, xm_space *space,
                        const xm_pack *pack, const float *dhidden,
                        xm_grads *grads, xr_err *err)
{
    xray_status status = check(decoder, space, pack, grads, err);
    if (status != XRAY_OK || pack->tokens == 0)
        return status;
    space->live = 0;
    xm_run run = xm_run_start(decoder, space, pack->tokens, err);
    run.pack = pack;
    run.grads = grads;
    final_norm_back(&run, dhidden);
    for (uint32_t l = space->layers; l-- > 0;) {
        const xm_block *block = &space->blocks[l];
        run.layer = l;
        if (space->flags & XM_SPACE_RECOMPUTE) {
            xm_block_attend(&run, block, space->x[l]);
            xm_block_gate_up(&run, block);
        }
        mlp_back(&run, block);
        attend_back(&run, block, space->x[l]);
    }
    run.layer = XM_NO_LAYER;
    embed_back(&run);
    return run.status;
}
