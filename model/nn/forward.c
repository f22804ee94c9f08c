/* SPDX-License-Identifier: Apache-2.0
 *
 * The forward pass. Trainer and engine run the same sequence of operators, so
 * their bits agree: both add to the residual stream by products that start
 * from it.
 */
#include <math.h>

#include "model/nn/internal.h"

xray_attention xm_attention_of(const xm_run *run, const xm_block *block)
{
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention){ XRAY_HEAD(xray_attention),
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
                             .scale = 1.0f / sqrtf((float)config->head_dim) };
}

static xray_attention_kv attention_kv_of(const xm_run *run,
                                         const xm_block *block)
{
    const xm_config *config = &run->decoder->config;
    xm_dims d = xm_dims_of(config);
    return (xray_attention_kv){ XRAY_HEAD(xray_attention_kv),
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
                                .scale =
                                    1.0f / sqrtf((float)config->head_dim) };
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

void xm_block_attend(xm_run *run, const xm_block *block, float *x)
{
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows h = xm_rows_of(run->space->h, d.hidden);
    xm_run_norm(run, layer->p[XM_NORM1].data, d.hidden, xm_rows_of(x, d.hidden),
                h, block->rstd1);
    xm_run_product(run, layer->p[XM_Q].weight, layer->p[XM_Q_BIAS].data, h,
                   xm_rows_of(block->qkv, d.qkv));
    norm_heads(run, layer, block);
    xm_rows qk = { block->qk, block->qk_stride, d.q + d.kv };
    xm_run_rope(run, qk, 0);
    attention(run, block);
    xm_run_copy(run, x, block->mid, run->tokens.bound * d.hidden);
    xm_run_product_add(run, layer->p[XM_O].weight, xm_rows_of(block->o, d.q),
                       xm_rows_of(block->mid, d.hidden));
}

void xm_block_gate_up(xm_run *run, const xm_block *block)
{
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_rows h = xm_rows_of(run->space->h, d.hidden);
    xm_run_norm(run, layer->p[XM_NORM2].data, d.hidden,
                xm_rows_of(block->mid, d.hidden), h, block->rstd2);
    xm_run_product(run, layer->p[XM_GATE].weight, NULL, h,
                   xm_rows_of(block->gate_up, 2 * d.ffn));
}

void xm_run_glu(xm_run *run, const xm_block *block)
{
    if (run->status != XRAY_OK)
        return;
    xray_glu call = { XRAY_HEAD(xray_glu),
                      .tokens = run->tokens,
                      .x = block->gate_up,
                      .y = run->space->act,
                      .dim = run->decoder->config.ffn,
                      .act = XRAY_ACT_SILU };
    xm_run_note(run, run->device->glu(run->self, NULL, &call), "an activation");
}

static void block_down(xm_run *run, const xm_block *block, float *out)
{
    const xm_layer *layer = &run->decoder->layers[run->layer];
    xm_dims d = xm_dims_of(&run->decoder->config);
    xm_run_glu(run, block);
    xm_run_copy(run, block->mid, out, run->tokens.bound * d.hidden);
    xm_run_product_add(run, layer->p[XM_DOWN].weight,
                       xm_rows_of(run->space->act, d.ffn),
                       xm_rows_of(out, d.hidden));
}

static void embed(xm_run *run, const int32_t *ids)
{
    const xm_config *config = &run->decoder->config;
    xray_embedding call = { XRAY_HEAD(xray_embedding),
                            .tokens = run->tokens,
                            .ids = ids,
                            .table = xm_outer(run->decoder, XM_EMBED)->data,
                            .y = run->space->x[0],
                            .vocab = config->vocab,
                            .dim = config->hidden,
                            .scale = 1.0f };
    xm_run_note(run, run->device->embedding(run->self, NULL, &call),
                "the embedding");
}

void xm_blocks(xm_run *run, const int32_t *ids)
{
    xm_space *s = run->space;
    run->layer = XM_NO_LAYER;
    embed(run, ids);
    for (uint32_t l = 0; l < s->layers; l++) {
        run->layer = l;
        xm_block_attend(run, &s->blocks[l], s->x[l]);
        xm_block_gate_up(run, &s->blocks[l]);
        block_down(run, &s->blocks[l], s->x[l + 1]);
    }
    run->layer = XM_NO_LAYER;
}

void xm_final_norm(xm_run *run, float *x, float *rstd)
{
    uint64_t dim = run->decoder->config.hidden;
    xm_run_norm(run, xm_outer(run->decoder, XM_NORM)->data, dim,
                xm_rows_of(x, dim), xm_rows_of(run->space->hidden, dim), rstd);
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
    xray_status status = check_pack(decoder, space, pack, err);
    if (status != XRAY_OK || pack->tokens == 0)
        return status;
    xm_run run = xm_run_start(decoder, space, pack->tokens, err);
    run.pack = pack;
    xm_blocks(&run, pack->ids);
    xm_final_norm(&run, space->x[space->layers], space->rstd);
    if (run.status == XRAY_OK)
        space->live = pack->tokens;
    return run.status;
}
