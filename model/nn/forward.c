/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass. Trainer and engine run the same sequence of operators, so
 * their bits agree: both add to the residual stream by products that start
 * from it, or, where a bias or a norm comes between, by a sum of two rows.
 */
#include "model/nn/internal.h"

static uint32_t window_of(const xm_run *run)
{
    const xm_config *config = &run->decoder->config;
    return xm_config_slides(config, run->layer) ? config->window : 0;
}

xray_attention xm_attention_of(const xm_run *run, const xm_block *block)
{
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention){ XRAY_HEADER(xray_attention),
                             .tokens = run->tokens,
                             .row_start = run->pack->row_start,
                             .rows = run->pack->rows,
                             .row_bound = run->pack->row_bound,
                             .q = block->qk,
                             .k = block->qk + d.q,
                             .v = block->qkv + d.q + d.kv,
                             .o = block->o,
                             .lse = block->lse,
                             .q_stride = block->qk_stride,
                             .k_stride = block->qk_stride,
                             .v_stride = d.qkv,
                             .o_stride = d.q,
                             .heads = config->heads,
                             .kv_heads = config->kv_heads,
                             .head_dim = config->head_dim,
                             .window = window_of(run),
                             .scale = (float)config->attn_scale,
                             .softcap = (float)config->attn_softcap,
                             .parent = run->pack->parent };
}

static xray_attention_kv attention_kv_of(const xm_run *run,
                                         const xm_block *block)
{
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention_kv){ XRAY_HEADER(xray_attention_kv),
                                .tokens = run->tokens,
                                .kv = &run->step->kv[run->layer],
                                .seq = run->step->seq,
                                .positions = run->step->positions,
                                .q = block->qk,
                                .k = block->qk + d.q,
                                .v = block->qkv + d.q + d.kv,
                                .o = block->o,
                                .q_stride = block->qk_stride,
                                .k_stride = block->qk_stride,
                                .v_stride = d.qkv,
                                .o_stride = d.q,
                                .position_bound = run->step->position_bound,
                                .heads = config->heads,
                                .window = window_of(run),
                                .scale = (float)config->attn_scale,
                                .softcap = (float)config->attn_softcap };
}

static void attention(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    if (run->pack) {
        xray_attention call = xm_attention_of(run, block);
        xm_run_note(run, run->device->attention(run->self, NULL, &call),
                    "attention");
        return;
    }
    xray_attention_kv call = attention_kv_of(run, block);
    xm_run_note(run, run->device->attention_kv(run->self, NULL, &call),
                "attention over the cache");
}

/* Norm of each head of q and of k. */
static void norm_heads(xm_run *run, const xm_layer *layer,
                       const xm_block *block)
{
    const xm_config *config = &run->decoder->config;
    if (!config->qk_norm)
        return;
    xm_dims d = xm_dims_of(config);
    xm_rows q = { block->qkv, d.qkv, d.q };
    xm_rows q_out = { block->qk, block->qk_stride, d.q };
    xm_run_norm(run, layer->p[XM_Q_NORM].data, config->head_dim, q, q_out,
                block->rstd_q);
    xm_rows k = { block->qkv + d.q, d.qkv, d.kv };
    xm_rows k_out = { block->qk + d.q, block->qk_stride, d.kv };
    xm_run_norm(run, layer->p[XM_K_NORM].data, config->head_dim, k, k_out,
                block->rstd_k);
}

/* ---- the end of half a block -------------------------------------------- */

xm_half xm_attention_half(const xm_run *run, const xm_block *block)
{
    return (xm_half){ .weight = XM_O,
                      .bias = XM_O_BIAS,
                      .norm = XM_POST_NORM1,
                      .x = xm_rows_of(block->o,
                                      xm_dims_of(&run->decoder->config).q),
                      .out = block->out1,
                      .post = block->post1 };
}

xm_half xm_mlp_half(const xm_run *run, const xm_block *block)
{
    return (xm_half){ .weight = XM_DOWN,
                      .bias = XM_DOWN_BIAS,
                      .norm = XM_POST_NORM2,
                      .x =
                          xm_rows_of(run->space->act, run->decoder->config.ffn),
                      .out = block->out2,
                      .post = block->post2 };
}

void xm_half_apart(xm_run *run, const xm_half *half)
{
    xm_rows h = xm_rows_of(run->space->h, run->decoder->config.hidden);
    xm_rows out = half->out ? xm_rows_of(half->out, h.dim) : h;
    xm_run_product(run, xm_run_bound(run, half->weight)->weight,
                   xm_run_bound(run, half->bias)->data, half->x, out);
    if (run->decoder->config.post_norms)
        xm_stream_norm(run, half->norm, out, h, half->post);
}

/* to = from + the half's product; both may be the same. */
static void add_half(xm_run *run, const xm_half *half, const float *from,
                     float *to)
{
    uint64_t dim = run->decoder->config.hidden;
    uint64_t count = run->tokens.bound * dim;
    xm_run_copy(run, from, to, count);
    if (!run->decoder->config.post_norms &&
        !xm_run_bound(run, half->bias)->data) {
        xm_run_product_add(run, xm_run_bound(run, half->weight)->weight,
                           half->x, xm_rows_of(to, dim));
        return;
    }
    xm_half_apart(run, half);
    xm_run_add(run, run->space->h, to, count);
}

/* ---- blocks ------------------------------------------------------------- */

void xm_block_attend(xm_run *run, const xm_block *block, float *x)
{
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows h = xm_rows_of(run->space->h, d.hidden);
    xm_stream_norm(run, XM_NORM1, xm_rows_of(x, d.hidden), h, block->stat1);
    xm_run_product(run, layer->p[XM_Q].weight, layer->p[XM_Q_BIAS].data, h,
                   xm_rows_of(block->qkv, d.qkv));
    norm_heads(run, layer, block);
    xm_rows qk = { block->qk, block->qk_stride, d.q + d.kv };
    xm_run_rope(run, qk, 0);
    attention(run, block);
    xm_half half = xm_attention_half(run, block);
    add_half(run, &half, x, block->mid);
}

void xm_block_gate_up(xm_run *run, const xm_block *block)
{
    const xm_layer *layer = &run->decoder->layers[run->layer];
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    xm_rows h = xm_rows_of(run->space->h, d.hidden);
    uint32_t weight = config->gated ? XM_GATE : XM_UP;
    uint32_t bias = config->gated ? XM_GATE_BIAS : XM_UP_BIAS;
    xm_stream_norm(run, XM_NORM2, xm_rows_of(block->mid, d.hidden), h,
                   block->stat2);
    xm_run_product(run, layer->p[weight].weight, layer->p[bias].data, h,
                   xm_rows_of(block->gate_up, d.up));
}

void xm_run_glu(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    const xm_config *config = &run->decoder->config;
    xray_glu call = { XRAY_HEADER(xray_glu),  .tokens = run->tokens,
                      .x = block->gate_up,    .y = run->space->act,
                      .dim = config->ffn,     .act = xm_act_of(config),
                      .plain = !config->gated };
    xm_run_note(run, run->device->glu(run->self, NULL, &call), "an activation");
}

static void block_down(xm_run *run, const xm_block *block, float *out)
{
    xm_half half = xm_mlp_half(run, block);
    xm_run_glu(run, block);
    add_half(run, &half, block->mid, out);
}

static void look_up(xm_run *run, xray_embedding *call, const char *what)
{
    if (run->status != XRAY_OK)
        return;
    call->tokens = run->tokens;
    call->dim = run->decoder->config.hidden;
    xm_run_note(run, run->device->embedding(run->self, NULL, call), what);
}

static void embed(xm_run *run, const int32_t *ids)
{
    const xm_config *config = &run->decoder->config;
    xm_space *s = run->space;
    xray_embedding tokens = { XRAY_HEADER(xray_embedding),
                              .ids = ids,
                              .table = xm_outer(run->decoder, XM_EMBED)->data,
                              .table_dtype =
                                  xm_outer(run->decoder, XM_EMBED)->dtype,
                              .y = s->x[0],
                              .vocab = config->vocab,
                              .scale = (float)config->embed_scale };
    look_up(run, &tokens, "the embedding");
    if (!config->learned_positions)
        return;
    xray_embedding places = { XRAY_HEADER(xray_embedding),
                              .ids = xm_run_positions(run),
                              .table =
                                  xm_outer(run->decoder, XM_POSITIONS)->data,
                              .table_dtype =
                                  xm_outer(run->decoder, XM_POSITIONS)->dtype,
                              .y = s->h,
                              .vocab = config->max_positions,
                              .scale = 1.0f };
    look_up(run, &places, "the embedding of positions");
    xm_run_add(run, s->h, s->x[0], run->tokens.bound * config->hidden);
}

void xm_blocks(xm_run *run, const int32_t *ids)
{
    xm_space *s = run->space;
    run->layer = XM_NO_LAYER;
    if (run->pack)
        xm_run_need(run, 0, 0);
    embed(run, ids);
    for (uint32_t l = 0; l < s->layers; l++) {
        run->layer = l;
        if (run->pack)
            xm_run_need(run, l + 1, 0);
        xm_block_attend(run, &s->blocks[l], s->x[l]);
        xm_block_gate_up(run, &s->blocks[l]);
        block_down(run, &s->blocks[l], s->x[l + 1]);
    }
    run->layer = XM_NO_LAYER;
}

void xm_final_norm(xm_run *run, float *x, float *stat)
{
    uint64_t dim = run->decoder->config.hidden;
    xm_stream_norm(run, XM_NORM, xm_rows_of(x, dim),
                   xm_rows_of(run->space->hidden, dim), stat);
}

xm_run xm_run_start(const xm_decoder *decoder, xm_space *space, uint64_t tokens,
                    xr_err *err)
{
    return (xm_run){ .decoder = decoder,
                     .device = decoder->device,
                     .self = decoder->device_self,
                     .space = space,
                     .err = err,
                     .tokens = { .bound = tokens },
                     .layer = XM_NO_LAYER };
}

static xray_status check_pack(const xm_decoder *decoder, const xm_space *space,
                              const xm_pack *pack, xr_err *err)
{
    if (pack->tokens > space->tokens || pack->rows > space->rows)
        return xr_fail(err, XRAY_E_RANGE,
                       "%u tokens in %u rows do not fit a space of %llu tokens "
                       "in %llu rows",
                       pack->tokens, pack->rows,
                       (unsigned long long)space->tokens,
                       (unsigned long long)space->rows);
    if (pack->row_bound > decoder->positions)
        return xr_fail(err, XRAY_E_RANGE,
                       "a row of %llu tokens is longer than the %llu positions "
                       "of the model",
                       (unsigned long long)pack->row_bound,
                       (unsigned long long)decoder->positions);
    return XRAY_OK;
}

xray_status xm_forward(xm_decoder *decoder, xm_space *space,
                       const xm_pack *pack, xr_err *err)
{
    space->live = 0;
    space->kept = 0;
    xray_status status = check_pack(decoder, space, pack, err);
    if (status != XRAY_OK)
        return status;
    xm_run run = xm_run_start(decoder, space, pack->tokens, err);
    if (pack->tokens == 0) {
        for (uint32_t b = 0; b < space->layers + 2; b++)
            xm_run_need(&run, b, 0);
        return run.status;
    }
    run.pack = pack;
    xm_blocks(&run, pack->ids);
    xm_run_need(&run, space->layers + 1, 0);
    xm_final_norm(&run, space->x[space->layers], space->stat);
    if (run.status == XRAY_OK)
        space->live = pack->tokens;
    return run.status;
}
