/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention over complete rows, whose tokens several ranks may divide. A rank
 * then has two runs of each row. It gathers the keys and values of all tokens
 * and puts them into the order of the rows, so its queries see the keys that
 * they see on one rank, in the same order. In the backward pass the gradients
 * that its queries give to all keys and values are summed over the ranks, each
 * of which takes those of its own tokens.
 */
#include "model/nn/internal.h"

/* ---- how rows are divided ----------------------------------------------- */

static uint32_t find_rank(uint32_t ranks, uint32_t run)
{
    return run < ranks ? run : 2 * ranks - 1 - run;
}

/* Tokens of a run. The runs of a row are equal but for the tokens that are left
 * over: these go round the ranks, on from rank `turn`, and a rank's second one
 * goes to its second run. */
static int32_t count_run(int32_t length, uint32_t ranks, uint32_t turn,
                         uint32_t run)
{
    uint32_t runs = 2 * ranks;
    uint32_t left = (uint32_t)length % runs;
    uint32_t before = (find_rank(ranks, run) + ranks - turn) % ranks;
    uint32_t extra = left > before ? (left - before - 1) / ranks + 1 : 0;
    return (int32_t)((uint32_t)length / runs + (extra > run / ranks));
}

static uint32_t next_turn(int32_t length, uint32_t ranks, uint32_t turn)
{
    return (turn + (uint32_t)length % (2 * ranks)) % ranks;
}

uint32_t xm_context_divide(const int32_t *row_start, uint32_t rows,
                           uint32_t ranks, uint32_t rank,
                           const xm_context_arrays *out)
{
    int32_t at[2][XM_CONTEXT_RANKS] = { { 0 } };
    int32_t each = (int32_t)xm_context_each((uint64_t)row_start[rows], ranks);
    uint32_t turn = 0;
    for (uint32_t r = 0; r < rows; r++) {
        int32_t length = row_start[r + 1] - row_start[r];
        for (uint32_t k = 0; k < ranks; k++)
            at[1][k] += count_run(length, ranks, turn, k);
        turn = next_turn(length, ranks, turn);
    }
    turn = 0;
    out->start[0][0] = 0;
    out->start[1][0] = at[1][rank];
    for (uint32_t r = 0; r < rows; r++) {
        int32_t length = row_start[r + 1] - row_start[r];
        int32_t token = row_start[r];
        for (uint32_t run = 0; run < 2 * ranks; run++) {
            uint32_t k = find_rank(ranks, run);
            uint32_t half = run / ranks;
            int32_t count = count_run(length, ranks, turn, run);
            if (k == rank)
                out->first[half][r] = token - row_start[r];
            for (int32_t i = 0; i < count; i++)
                out->order[token++] = (int32_t)k * each + at[half][k]++;
        }
        for (uint32_t half = 0; half < 2; half++)
            out->start[half][r + 1] = at[half][rank];
        turn = next_turn(length, ranks, turn);
    }
    return (uint32_t)at[1][rank];
}

/* ---- exchanges ---------------------------------------------------------- */

/* The ranks that divide the rows of a pass; 1: none do. */
static uint32_t count_ranks(const xm_pass *pass)
{
    return pass->pack->context.tokens ? pass->decoder->config.context_ranks : 1;
}

/* Rows of the keys and values of a token, or of their fp32 gradients. */
static xm_rows key_rows(const xm_pass *pass, void *data, int grads)
{
    uint64_t dim = 2 * xm_dims_of(&pass->decoder->config).kv;
    return grads ? xm_rows_of(data, dim) : xm_acts_of(pass, data, dim);
}

/* The rank's own rows among those of all ranks. */
static xm_rows own_keys(const xm_pass *pass, xm_rows all)
{
    const xm_config *config = &pass->decoder->config;
    uint64_t size = all.dtype == XRAY_BF16 ? 2 : sizeof(float);
    uint64_t each =
        xm_context_each(pass->pack->context.tokens, config->context_ranks);
    all.data = (char *)all.data + config->context_rank * each * all.dim * size;
    return all;
}

/* Copies rows of one type, which may have gaps. */
static void copy_columns(xm_pass *pass, xm_rows from, xm_rows to)
{
    uint64_t size = to.dtype == XRAY_BF16 ? 2 : sizeof(float);
    const xray_copy_rows call = { XRAY_HEADER(xray_copy_rows),
                                  .to = to.data,
                                  .from = from.data,
                                  .rows = pass->tokens.bound,
                                  .bytes = to.dim * size,
                                  .to_pitch = to.stride * size,
                                  .from_pitch = from.stride * size,
                                  .kind = XRAY_COPY_ON_DEVICE };
    if (xm_pass_idles(pass))
        return;
    xm_pass_keep_status(pass, pass->device->copy_rows(pass->self, NULL, &call),
                        "a copy");
}

static void exchange_keys(xm_pass *pass, uint32_t what, xm_rows in, xm_rows out)
{
    const xm_watch *watch = &pass->decoder->watch;
    const xm_parts call = { .what = what,
                            .dtype = in.dtype,
                            .in = in.data,
                            .out = out.data,
                            .tokens = xm_context_each(
                                pass->pack->context.tokens, count_ranks(pass)),
                            .dim = in.dim };
    if (pass->status == XRAY_OK)
        pass->status = watch->context(watch->ctx, &call, pass->err);
}

/* Moves rows between the order of the ranks and that of the rows. */
static void order_keys(xm_pass *pass, xm_rows from, xm_rows to, int gather)
{
    const xm_context *context = &pass->pack->context;
    const xray_rows call = { XRAY_HEADER(xray_rows),
                             .count = { .bound = context->tokens },
                             .index = context->order,
                             .x = from.data,
                             .y = to.data,
                             .dim = from.dim,
                             .dtype = from.dtype };
    xm_pass_move_rows(pass, &call, gather);
}

void xm_pass_gather_keys(xm_pass *pass, const xm_block *block)
{
    xm_space *s = pass->space;
    xm_dims d = xm_dims_of(&pass->decoder->config);
    if (count_ranks(pass) < 2)
        return;
    xm_rows parts = key_rows(pass, s->kv_parts, 0);
    xm_rows own = own_keys(pass, parts);
    copy_columns(pass, xm_rows_part(xm_qk_of(pass, block), d.q, d.kv),
                 xm_rows_part(own, 0, d.kv));
    copy_columns(pass, xm_rows_part(xm_qkv_of(pass, block), d.q + d.kv, d.kv),
                 xm_rows_part(own, d.kv, d.kv));
    exchange_keys(pass, XM_PARTS_GATHER, own, parts);
    order_keys(pass, parts, key_rows(pass, s->kv, 0), 1);
}

/* ---- attention ---------------------------------------------------------- */

uint32_t xm_pass_window(const xm_pass *pass)
{
    const xm_config *config = &pass->decoder->config;
    return xm_config_slides(config, pass->layer) ? config->window : 0;
}

/* The arguments of a block's attention: over all queries of the rows or, where
 * ranks divide them, those of a run of each row. */
static xray_attention attention_call(const xm_pass *pass, const xm_block *block,
                                     uint32_t run)
{
    const xm_config *config = &pass->decoder->config;
    const xm_pack *pack = pass->pack;
    xm_dims d = xm_dims_of(config);
    xm_rows qk = xm_qk_of(pass, block);
    xm_rows k = xm_rows_part(qk, d.q, d.kv);
    xm_rows v = xm_rows_part(xm_qkv_of(pass, block), d.q + d.kv, d.kv);
    xray_attention call = { XRAY_HEADER(xray_attention),
                            .tokens = pass->tokens,
                            .row_start = pack->row_start,
                            .rows = pack->rows,
                            .row_bound = pack->row_bound,
                            .q = qk.data,
                            .o = block->o,
                            .lse = block->lse,
                            .q_stride = qk.stride,
                            .o_stride = d.q,
                            .heads = config->heads,
                            .kv_heads = config->kv_heads,
                            .head_dim = config->head_dim,
                            .window = xm_pass_window(pass),
                            .scale = (float)config->attn_scale,
                            .softcap = (float)config->attn_softcap,
                            .parent = pack->parent,
                            .dtype = config->dtype };
    if (count_ranks(pass) > 1) {
        k = key_rows(pass, pass->space->kv, 0);
        v = xm_rows_part(k, d.kv, d.kv);
        call.queries = call.tokens;
        call.tokens = (xray_extent){ .bound = pack->context.tokens };
        call.query_start = pack->context.start[run];
        call.query_first = pack->context.first[run];
    }
    call.k = k.data;
    call.v = v.data;
    call.k_stride = k.stride;
    call.v_stride = v.stride;
    return call;
}

void xm_pass_attend_rows(xm_pass *pass, const xm_block *block)
{
    uint32_t runs = count_ranks(pass) > 1 ? 2 : 1;
    for (uint32_t run = 0; run < runs && !xm_pass_idles(pass); run++) {
        xray_attention call = attention_call(pass, block, run);
        xm_pass_keep_status(pass,
                            pass->device->attention(pass->self, NULL, &call),
                            "attention");
    }
}

/* The gradients of a run's queries go to space->dqkv, and those of keys and
 * values to dkv. */
static void backprop_run(xm_pass *pass, const xm_block *block, uint32_t run,
                         xm_rows dkv)
{
    xm_space *s = pass->space;
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xray_attention forward = attention_call(pass, block, run);
    float *dk = dkv.data;
    xray_attention_grad call = { XRAY_HEADER(xray_attention_grad),
                                 .forward = &forward,
                                 .d_o = s->d_o,
                                 .dq = s->dqkv,
                                 .dk = dk,
                                 .dv = dk + d.kv,
                                 .dq_stride = d.qkv,
                                 .dk_stride = dkv.stride,
                                 .dv_stride = dkv.stride };
    if (pass->status == XRAY_OK)
        xm_pass_keep_status(
            pass, pass->device->attention_grad(pass->self, NULL, &call),
            "the gradient of attention");
}

/* Adds the gradients that both runs give to all keys and values. */
static void add_runs(xm_pass *pass, xm_rows from, xm_rows to)
{
    xray_axpby call = {
        XRAY_HEADER(xray_axpby), .count = pass->pack->context.tokens * to.dim,
        .x = from.data,          .y = to.data,
        .alpha = 1.0f,           .beta = 1.0f
    };
    if (pass->status == XRAY_OK)
        xm_pass_keep_status(pass, pass->device->axpby(pass->self, NULL, &call),
                            "a sum");
}

void xm_pass_backprop_rows(xm_pass *pass, const xm_block *block)
{
    xm_space *s = pass->space;
    xm_dims d = xm_dims_of(&pass->decoder->config);
    xm_rows own = xm_rows_part(xm_rows_of(s->dqkv, d.qkv), d.q, 2 * d.kv);
    if (count_ranks(pass) < 2) {
        backprop_run(pass, block, 0, own);
        return;
    }
    xm_rows all = key_rows(pass, s->dkv, 1);
    xm_rows parts = key_rows(pass, s->kv_parts, 1);
    xm_rows sums = own_keys(pass, parts);
    uint64_t ranks = count_ranks(pass);
    backprop_run(pass, block, 0, all);
    backprop_run(pass, block, 1, parts);
    add_runs(pass, parts, all);
    /* Some ranks have one token less than there is room for. */
    xm_pass_zero(
        pass, parts.data,
        ranks * xm_context_each(pass->pack->context.tokens, (uint32_t)ranks) *
            parts.dim);
    order_keys(pass, all, parts, 0);
    exchange_keys(pass, XM_PARTS_SUM, parts, sums);
    copy_columns(pass, sums, own);
}
