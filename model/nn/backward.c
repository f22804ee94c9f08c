/* SPDX-License-Identifier: Apache-2.0
 *
 * The backward pass, block by block from the last. Every parameter's gradient
 * is one chain over tokens that starts from what the bucket holds, so cutting a
 * batch elsewhere changes no bit. Normed inputs and activations are cheap and
 * are made again rather than kept.
 */
#include "model/nn/internal.h"

/* dx += gradient through the norm in front of half a block; dy is in h. */
static void norm_back(xm_run *run, uint32_t slot, const float *stat, float *x)
{
    xm_space *s = run->space;
    uint64_t dim = run->decoder->config.hidden;
    xm_stream_back call = {
        .stat = stat, .dy = s->h, .slot = slot, .accumulate = 1
    };
    xm_stream_norm_back(run, &call, xm_rows_of(x, dim), xm_rows_of(s->dx, dim));
}

/* Through what was added to the stream, to the input of its product. */
static void half_back(xm_run *run, const xm_half *half, float *d_in)
{
    xm_space *s = run->space;
    xm_rows dy = xm_rows_of(s->dx, run->decoder->config.hidden);
    if (run->decoder->config.post_norms) {
        xm_stream_back call = { .stat = half->post,
                                .dy = s->dx,
                                .slot = half->norm };
        dy.data = s->h;
        xm_stream_norm_back(run, &call, xm_rows_of(half->out, dy.dim), dy);
    }
    xm_run_fold(run, dy, half->x, xm_run_grad(run, half->weight),
                xm_run_grad_if(run, half->bias));
    xm_run_product_back(run, xm_run_bound(run, half->weight)->weight, dy,
                        xm_rows_of(d_in, half->x.dim), 0);
}

static void glu_back(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    const xm_config *config = &run->decoder->config;
    xray_glu_grad call = {
        XRAY_HEADER(xray_glu_grad), .tokens = run->tokens,  .x = block->gate_up,
        .dy = run->space->act,      .dx = block->gate_up,   .dim = config->ffn,
        .act = xm_act_of(config),   .plain = !config->gated
    };
    xm_run_note(run, run->device->glu_grad(run->self, NULL, &call),
                "the gradient of an activation");
}

static void mlp_back(xm_run *run, const xm_block *block)
{
    xm_space *s = run->space;
    const xm_layer *layer = &run->decoder->layers[run->layer];
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    xm_rows gate_up = xm_rows_of(block->gate_up, d.up);
    xm_rows h = xm_rows_of(s->h, d.hidden);
    xm_half half = xm_mlp_half(run, block);
    uint32_t weight = config->gated ? XM_GATE : XM_UP;
    uint32_t bias = config->gated ? XM_GATE_BIAS : XM_UP_BIAS;

    xm_run_glu(run, block);
    /* Computing again, the block's end is missing still. */
    if (config->post_norms && s->flags & XM_SPACE_RECOMPUTE)
        xm_half_apart(run, &half);
    half_back(run, &half, s->act);
    glu_back(run, block);
    xm_stream_norm(run, XM_NORM2, xm_rows_of(block->mid, d.hidden), h,
                   block->stat2);
    xm_run_fold(run, gate_up, h, xm_run_grad(run, weight),
                xm_run_grad_if(run, bias));
    xm_run_product_back(run, layer->p[weight].weight, gate_up, h, 0);
    norm_back(run, XM_NORM2, block->stat2, block->mid);
}

static void attention_back(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    xm_space *s = run->space;
    xm_dims d = xm_dims_of(&run->decoder->config);
    xray_attention forward = xm_attention_of(run, block);
    xray_attention_grad call = { XRAY_HEADER(xray_attention_grad),
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
    xm_norm_back call = { .weight = xm_run_bound(run, slot)->data,
                          .stat = rstd,
                          .dy = dx.data,
                          .dweight = xm_run_grad(run, slot),
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
    xm_rows h = xm_rows_of(s->h, d.hidden);
    xm_rows dqkv = xm_rows_of(s->dqkv, d.qkv);
    xm_rows dqk = { s->dqkv, d.qkv, d.q + d.kv };
    xm_half half = xm_attention_half(run, block);

    half_back(run, &half, s->d_o);
    attention_back(run, block);
    xm_run_rope(run, dqk, 1);
    norm_heads_back(run, block);
    xm_stream_norm(run, XM_NORM1, xm_rows_of(x, d.hidden), h, block->stat1);
    xm_run_fold(run, dqkv, h, xm_run_grad(run, XM_Q),
                xm_run_grad_if(run, XM_Q_BIAS));
    xm_run_product_back(run, layer->p[XM_Q].weight, dqkv, h, 0);
    norm_back(run, XM_NORM1, block->stat1, x);
}

static void block_back(xm_run *run, uint32_t layer)
{
    xm_space *s = run->space;
    const xm_block *block = &s->blocks[layer];
    run->layer = layer;
    if (s->flags & XM_SPACE_RECOMPUTE) {
        xm_block_attend(run, block, s->x[layer]);
        xm_block_gate_up(run, block);
    }
    mlp_back(run, block);
    attend_back(run, block, s->x[layer]);
}

static void final_norm_back(xm_run *run, const float *dhidden)
{
    xm_space *s = run->space;
    uint64_t dim = run->decoder->config.hidden;
    xm_stream_back call = { .stat = s->stat, .dy = dhidden, .slot = XM_NORM };
    xm_stream_norm_back(run, &call, xm_rows_of(s->x[s->layers], dim),
                        xm_rows_of(s->dx, dim));
}

static void fold_rows(xm_run *run, xray_embedding_grad *call, const char *what)
{
    if (run->status != XRAY_OK)
        return;
    call->tokens = run->tokens;
    call->dy = run->space->dx;
    call->dim = run->decoder->config.hidden;
    xm_run_note(run, run->device->embedding_grad(run->self, NULL, call), what);
}

static void embed_back(xm_run *run)
{
    const xm_config *config = &run->decoder->config;
    xray_embedding_grad tokens = {
        XRAY_HEADER(xray_embedding_grad), .ids = run->pack->ids,
        .dtable =
            config->tied ? run->grads->lookup : xm_run_grad(run, XM_EMBED),
        .vocab = config->vocab, .scale = (float)config->embed_scale
    };
    fold_rows(run, &tokens, "the gradient of the embedding");
    if (!config->learned_positions)
        return;
    xray_embedding_grad places = { XRAY_HEADER(xray_embedding_grad),
                                   .ids = xm_run_positions(run),
                                   .dtable = xm_run_grad(run, XM_POSITIONS),
                                   .vocab = config->max_positions,
                                   .scale = 1.0f };
    fold_rows(run, &places, "the gradient of positions");
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
    if (status != XRAY_OK)
        return status;
    space->live = 0;
    xm_run run = xm_run_start(decoder, space, pack->tokens, err);
    run.pack = pack;
    run.grads = grads;
    uint32_t last = space->layers + 1;
    uint32_t frozen = grads->layout->frozen;
    xm_run_need(&run, last, 1);
    if (pack->tokens)
        final_norm_back(&run, dhidden);
    xm_run_done(&run, last);
    for (uint32_t b = last; --b > 0 && b >= frozen;) {
        xm_run_need(&run, b, 1);
        xm_run_begin(&run, b);
        if (pack->tokens)
            block_back(&run, b - 1);
        xm_run_done(&run, b);
    }
    run.layer = XM_NO_LAYER;
    if (frozen)
        return run.status;
    if (!decoder->config.tied)
        xm_run_begin(&run, 0);
    if (pack->tokens)
        embed_back(&run);
    xm_run_done(&run, 0);
    return run.status;
}
