/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds the batches and the loss of the training tests.
 */
#include "tests/train/rows.h"

#include <math.h>
#include <string.h>

#include <xray/numerics.h>

static void fill_batch(rows *r, uint32_t count)
{
    r->batch = (xray_batch){ .header = XRAY_HEADER(xray_batch),
                             .rows = count,
                             .tokens = (uint32_t)r->row_start[count],
                             .ids = r->ids,
                             .row_start = r->row_start,
                             .loss_mask = r->mask };
    rows_cut(r, 1);
}

void rows_draw(rows *r, uint32_t count, uint32_t longest, uint32_t vocab,
               uint64_t seed)
{
    int32_t at = 0;
    memset(r, 0, sizeof(*r));
    for (uint32_t row = 0; row < count; row++) {
        xray_philox_out bits = xray_philox(seed, row, 1, 0, 0);
        int32_t length = 1 + (int32_t)(bits.w[0] % longest);
        for (int32_t i = 0; i < length; i++) {
            bits = xray_philox(seed, row, 2, (uint32_t)i, 0);
            r->ids[at + i] = (int32_t)(bits.w[0] % vocab);
            r->mask[at + i] = i > length / 3 && row % 7 != 3;
        }
        r->temperature[row] = 0.5f + 0.25f * (float)(row % 4);
        at += length;
        r->row_start[row + 1] = at;
    }
    fill_batch(r, count);
}

void rows_full(rows *r, uint32_t count, uint32_t length, uint32_t vocab)
{
    memset(r, 0, sizeof(*r));
    for (uint32_t i = 0; i < count * length; i++) {
        r->ids[i] = (int32_t)(xray_philox(7, i, 3, 0, 0).w[0] % vocab);
        r->mask[i] = 1;
    }
    for (uint32_t row = 0; row <= count; row++)
        r->row_start[row] = (int32_t)(row * length);
    fill_batch(r, count);
}

void rows_one(rows *r, const int32_t *ids, uint32_t count)
{
    memset(r, 0, sizeof(*r));
    for (uint32_t i = 0; i < count; i++) {
        r->ids[i] = ids[i];
        r->mask[i] = 1;
    }
    r->temperature[0] = 1;
    r->row_start[1] = (int32_t)count;
    fill_batch(r, 1);
}

/* Makes micro-batch p of the rows [first, last). */
static void cut_part(rows *r, uint32_t p, uint32_t first, uint32_t last)
{
    int32_t token = r->row_start[first];
    for (uint32_t i = first; i <= last; i++)
        r->part_start[p][i - first] = r->row_start[i] - token;
    r->parts[p] = (xray_batch){
        .header = XRAY_HEADER(xray_batch),
        .rows = last - first,
        .tokens = (uint32_t)(r->row_start[last] - token),
        .ids = r->ids + token,
        .row_start = r->part_start[p],
        .loss_mask = r->mask + token,
        .temperature = r->batch.temperature ? r->temperature + first : NULL,
        .row_index = r->row_index + first,
        .prompt_len = r->batch.prompt_len ? r->prompt_len + first : NULL,
        .group = r->batch.group ? r->group + first : NULL,
        .share_prompts = r->batch.share_prompts,
    };
    r->pointers[p] = &r->parts[p];
}

void rows_cut(rows *r, uint32_t parts)
{
    for (uint32_t row = 0; row < ROWS_MAX; row++)
        r->row_index[row] = row;
    for (uint32_t p = 0; p < parts; p++)
        cut_part(r, p, r->batch.rows * p / parts,
                 r->batch.rows * (p + 1) / parts);
}

/* Appends the rows [first, last) of `from`. */
static void append_rows(rows *to, const rows *from, uint32_t first,
                        uint32_t last)
{
    uint32_t row = to->batch.rows;
    int32_t shift = to->row_start[row] - from->row_start[first];
    for (int32_t t = from->row_start[first]; t < from->row_start[last]; t++) {
        to->ids[t + shift] = from->ids[t];
        to->mask[t + shift] = from->mask[t];
    }
    for (uint32_t r = first; r < last; r++, row++) {
        to->row_start[row + 1] = from->row_start[r + 1] + shift;
        to->temperature[row] = from->temperature[r];
    }
    to->batch.rows = row;
    to->batch.tokens = (uint32_t)to->row_start[row];
}

static void begin_rows(rows *to, const rows *from)
{
    memset(to, 0, sizeof(*to));
    to->batch = from->batch;
    to->batch.rows = to->batch.tokens = 0;
    to->batch.ids = to->ids;
    to->batch.row_start = to->row_start;
    to->batch.loss_mask = to->mask;
    to->batch.temperature = to->temperature;
}

void rows_take(rows *to, const rows *from, uint32_t first, uint32_t last)
{
    begin_rows(to, from);
    append_rows(to, from, first, last);
}

uint32_t rows_take_segments(rows *to, const rows *from, const rows_deal *deal)
{
    uint32_t parts = 0;
    uint32_t own = deal->segments / deal->ranks;
    begin_rows(to, from);
    for (uint32_t row = 0; row < ROWS_MAX; row++)
        to->row_index[row] = row;
    for (uint32_t j = 0; j < own; j++) {
        uint32_t s =
            deal->in_turn ? j * deal->ranks + deal->rank : deal->rank * own + j;
        uint32_t first = to->batch.rows;
        append_rows(to, from, from->batch.rows * s / deal->segments,
                    from->batch.rows * (s + 1) / deal->segments);
        uint32_t count = to->batch.rows - first;
        for (uint32_t p = 0; p < deal->cuts && count; p++, parts++) {
            cut_part(to, parts, first + count * p / deal->cuts,
                     first + count * (p + 1) / deal->cuts);
            to->parts[parts].segment = s;
        }
        if (deal->hollow)
            cut_part(to, parts++, to->batch.rows, to->batch.rows);
    }
    return parts;
}

void rows_begin_alike(rows *r, int tell)
{
    const int32_t *start = r->row_start;
    for (uint32_t i = 0; i < r->batch.rows; i++) {
        uint32_t other = i ^ 1u;
        int32_t own = start[i + 1] - start[i];
        int32_t its =
            other < r->batch.rows ? start[other + 1] - start[other] : own;
        r->prompt_len[i] = (own < its ? own : its) / 3 + 1;
        r->group[i] = (int32_t)(i / 2);
        if (i % 2)
            memcpy(r->ids + start[i], r->ids + start[other],
                   (size_t)r->prompt_len[i] * sizeof(int32_t));
    }
    if (!tell)
        return;
    r->batch.prompt_len = r->prompt_len;
    r->batch.group = r->group;
    r->batch.share_prompts = 1;
}

uint64_t rows_inputs(const xray_batch *batch, uint64_t *out_items)
{
    uint64_t inputs = 0;
    uint64_t before = 0; /* of the row before */
    *out_items = 0;
    for (uint32_t row = 0; row < batch->rows; row++) {
        int32_t first = batch->row_start[row];
        uint64_t own = 0;
        for (int32_t t = first + 1; t < batch->row_start[row + 1]; t++)
            if (batch->loss_mask[t] != 0) {
                own = (uint64_t)(t - first);
                ++*out_items;
            }
        inputs += own;
        if (batch->share_prompts && row > 0 && own && before &&
            batch->group[row] == batch->group[row - 1])
            inputs -= (uint64_t)batch->prompt_len[row] - 1;
        before = own;
    }
    return inputs;
}

/* Returns which rank has token `at` of a row of `length` tokens, of which those
 * that are left over begin with rank `turn`. */
static uint32_t find_owner(uint32_t length, uint32_t ranks, uint32_t turn,
                           uint32_t at)
{
    uint32_t end[2 * 8]; /* tokens of each run, then of those before it too */
    uint32_t run = 0;
    for (uint32_t i = 0; i < 2 * ranks; i++)
        end[i] = length / (2 * ranks);
    for (uint32_t i = 0; i < length % (2 * ranks); i++) {
        uint32_t rank = (turn + i) % ranks;
        end[i < ranks ? rank : 2 * ranks - 1 - rank]++;
    }
    for (uint32_t i = 1; i < 2 * ranks; i++)
        end[i] += end[i - 1];
    while (at >= end[run])
        run++;
    return run < ranks ? run : 2 * ranks - 1 - run;
}

uint64_t rows_part(const xray_batch *batch, uint32_t ranks, uint32_t rank,
                   uint64_t *out_items)
{
    uint64_t inputs = 0;
    uint32_t turn = 0;
    *out_items = 0;
    for (uint32_t row = 0; row < batch->rows; row++) {
        const float *mask = batch->loss_mask + batch->row_start[row];
        uint32_t length =
            (uint32_t)(batch->row_start[row + 1] - batch->row_start[row]);
        while (length > 0 && (length == 1 || mask[length - 1] == 0))
            length--;
        length -= length > 0;
        for (uint32_t t = 0; t < length; t++) {
            uint32_t mine = find_owner(length, ranks, turn, t) == rank;
            inputs += mine;
            *out_items += mine && mask[t + 1] != 0;
        }
        turn += length;
    }
    return inputs;
}

uint64_t rows_most_items(const xray_batch *batch, uint32_t ranks)
{
    uint64_t most = 0;
    uint64_t items = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        (void)rows_part(batch, ranks, rank, &items);
        most = items > most ? items : most;
    }
    return most;
}

static xray_status rows_loss_call(void *ptr, const xray_loss_call *call)
{
    rows_loss *ctx = ptr;
    const xray_batch *batch = call->batch;
    for (uint32_t row = 0; row < batch->rows; row++)
        if (batch->row_index[row] != ctx->next_row + row)
            return XRAY_E_BUG;
    ctx->next_row += batch->rows;
    ctx->calls++;
    for (uint32_t row = 0; row < batch->rows; row++) {
        int32_t first = batch->row_start[row];
        for (int32_t t = first + 1; t < batch->row_start[row + 1]; t++) {
            if (batch->loss_mask[t] == 0)
                continue;
            ctx->nll -= (double)(ctx->critic ? call->value : call->logp)[t] /
                        ctx->tokens;
            call->dlogp[t] = ctx->critic ? 0 : (float)(-1 / ctx->tokens);
            if (call->dentropy)
                call->dentropy[t] = (float)(-ctx->entropy_weight / ctx->tokens);
            if (call->dvalue)
                call->dvalue[t] =
                    (float)(ctx->value_weight * ((double)call->value[t] - 1) /
                            ctx->tokens);
        }
    }
    if (ctx->poison_token >= 0 && ctx->calls == 1)
        call->dlogp[ctx->poison_token] = NAN;
    return XRAY_OK;
}

xray_loss rows_loss_of(rows_loss *ctx, const rows *r)
{
    ctx->tokens = 0;
    ctx->nll = 0;
    ctx->calls = 0;
    ctx->next_row = 0;
    ctx->poison_token = -1;
    for (uint32_t row = 0; row < r->batch.rows; row++)
        for (int32_t t = r->row_start[row] + 1; t < r->row_start[row + 1]; t++)
            ctx->tokens += (double)r->mask[t];
    return (xray_loss){ .header = XRAY_HEADER(xray_loss),
                        .ctx = ctx,
                        .fn = rows_loss_call,
                        .outputs = ctx->critic ? XRAY_OUTPUT_VALUE
                                   : ctx->entropy_weight != 0
                                       ? XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY
                                       : XRAY_OUTPUT_LOGP };
}
