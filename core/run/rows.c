/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills batches row by row and cuts them into views.
 */
#include "core/run/rows.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

#define TOKEN_FLOATS 7

static size_t round_up_to_line(size_t bytes)
{
    return (bytes + 63) & ~(size_t)63;
}

/* Takes `bytes` from the block. Without a block, only adds up what is needed.
 */
static void *carve_array(char *base, size_t *used, size_t bytes)
{
    void *at = base ? base + *used : NULL;
    *used += round_up_to_line(bytes);
    return at;
}

static size_t lay_out_rows(xr_rows *r, char *base)
{
    size_t used = 0;
    size_t rows = r->row_cap;
    size_t tokens = r->token_cap;
    float **floats[TOKEN_FLOATS] = {
        &r->batch.rollout_logp, &r->batch.old_logp, &r->batch.ref_logp,
        &r->batch.value,        &r->batch.reward,   &r->batch.advantage,
        &r->batch.returns,
    };
    r->ids = carve_array(base, &used, tokens * sizeof(int32_t));
    r->loss_mask = carve_array(base, &used, tokens * sizeof(float));
    for (size_t i = 0; i < TOKEN_FLOATS; i++)
        *floats[i] = carve_array(base, &used, tokens * sizeof(float));
    r->row_start = carve_array(base, &used, (rows + 1) * sizeof(int32_t));
    r->prompt_len = carve_array(base, &used, rows * sizeof(int32_t));
    r->group = carve_array(base, &used, rows * sizeof(int32_t));
    r->temperature = carve_array(base, &used, rows * sizeof(float));
    r->batch.baseline = carve_array(base, &used, rows * sizeof(float));
    r->row_id = carve_array(base, &used, rows * sizeof(uint64_t));
    r->prompt_id = carve_array(base, &used, rows * sizeof(uint64_t));
    r->spans = carve_array(base, &used, r->span_cap * sizeof(xray_span));
    return used;
}

uint64_t xr_rows_bytes(uint64_t row_cap, uint64_t token_cap, uint64_t span_cap)
{
    xr_rows rows = { .row_cap = 0 };
    if (row_cap > INT32_MAX - 1 || token_cap > INT32_MAX ||
        span_cap > UINT32_MAX)
        return UINT64_MAX;
    rows.row_cap = (uint32_t)row_cap;
    rows.token_cap = (uint32_t)token_cap;
    rows.span_cap = (uint32_t)span_cap;
    return lay_out_rows(&rows, NULL);
}

xray_status xr_rows_init(xr_rows *r, uint64_t row_cap, uint64_t token_cap,
                         xr_err *err)
{
    *r = (xr_rows){ .batch = { .header = XRAY_HEADER(xray_batch) } };
    if (row_cap > INT32_MAX - 1 || token_cap > INT32_MAX)
        return xr_fail(err, XRAY_E_CONFIG,
                       "a step of %llu rows and %llu tokens is too large, "
                       "expected less than 2^31 of each",
                       (unsigned long long)row_cap,
                       (unsigned long long)token_cap);
    r->row_cap = (uint32_t)row_cap;
    r->token_cap = (uint32_t)token_cap;
    r->span_cap = (uint32_t)row_cap;
    void *memory = xr_calloc(lay_out_rows(r, NULL), 1);
    if (!memory)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu tokens",
                       (unsigned long long)token_cap);
    xr_rows_attach(r, r->row_cap, r->token_cap, r->span_cap, memory);
    r->memory = memory;
    return XRAY_OK;
}

void xr_rows_attach(xr_rows *r, uint32_t row_cap, uint32_t token_cap,
                    uint32_t span_cap, void *memory)
{
    *r = (xr_rows){ .batch = { .header = XRAY_HEADER(xray_batch) },
                    .row_cap = row_cap,
                    .token_cap = token_cap,
                    .span_cap = span_cap };
    (void)lay_out_rows(r, memory);
    r->batch.ids = r->ids;
    r->batch.row_start = r->row_start;
    r->batch.prompt_len = r->prompt_len;
    r->batch.loss_mask = r->loss_mask;
    r->batch.row_id = r->row_id;
    r->batch.prompt_id = r->prompt_id;
    r->batch.group = r->group;
    r->batch.temperature = r->temperature;
    r->batch.spans = r->spans;
    r->batch.span_stride = sizeof(xray_span);
}

void xr_rows_free(xr_rows *r)
{
    free(r->memory);
    free(r->grown);
    *r = (xr_rows){ .row_cap = 0 };
}

xray_status xr_rows_reserve_spans(xr_rows *r, uint64_t count, xr_err *err)
{
    if (count <= r->span_cap)
        return XRAY_OK;
    if (!r->memory || count > UINT32_MAX / 2)
        return xr_fail(err, XRAY_E_BUG,
                       "a batch with space for %u spans got %llu", r->span_cap,
                       (unsigned long long)count);
    count += count / 2; /* so that single rows rarely make it grow */
    xray_span *spans = xr_calloc((size_t)count, sizeof(*spans));
    if (!spans)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu spans",
                       (unsigned long long)count);
    memcpy(spans, r->spans, r->batch.span_count * sizeof(*spans));
    free(r->grown);
    r->batch.spans = r->spans = r->grown = spans;
    r->span_cap = (uint32_t)count;
    return XRAY_OK;
}

void xr_rows_clear(xr_rows *r)
{
    r->batch.rows = 0;
    r->batch.tokens = 0;
    r->batch.span_count = 0;
}

/* Makes sure that one more row fits. */
static xray_status reserve_row(xr_rows *r, uint64_t tokens, uint32_t spans,
                               xr_err *err)
{
    if (r->batch.rows < r->row_cap && tokens <= r->token_cap - r->batch.tokens)
        return xr_rows_reserve_spans(r, (uint64_t)r->batch.span_count + spans,
                                     err);
    return xr_fail(
        err, XRAY_E_BUG,
        "a batch of %u rows and %u tokens has no space for %llu more tokens",
        r->batch.rows, r->batch.tokens, (unsigned long long)tokens);
}

/* Ends a row, which has these spans. */
static void end_row(xr_rows *r, uint32_t tokens, const xray_span *spans,
                    uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        xray_span *to = &r->spans[r->batch.span_count++];
        *to = spans[i];
        to->row = r->batch.rows;
    }
    r->batch.rows++;
    r->batch.tokens += tokens;
    r->row_start[r->batch.rows] = (int32_t)r->batch.tokens;
}

/* Spans that are given are an engine's, so they are not trusted. */
static xray_status check_spans(const xr_row_in *row, const xray_span *spans,
                               uint32_t count, xr_err *err)
{
    uint32_t end = row->prompt_count + row->response_count;
    uint32_t at = row->prompt_count;
    for (uint32_t i = 0; i < count; at = spans[i++].last)
        if (spans[i].first < at || spans[i].last < spans[i].first ||
            spans[i].last > end)
            return xr_fail(err, XRAY_E_BUG,
                           "tokens %u to %u of a row are said to be sampled, "
                           "expected some of %u to %u",
                           spans[i].first, spans[i].last, at, end);
    return count ? XRAY_OK
                 : xr_fail(err, XRAY_E_BUG, "a row has an array of no spans");
}

/* Stores what is known about the tokens of a span. */
static void fill_span(xr_rows *r, const xr_row_in *row, const xray_span *span)
{
    size_t at = r->batch.tokens;
    for (uint32_t t = span->first; t < span->last; t++) {
        if (!row->mask)
            r->loss_mask[at + t] = t > 0 ? 1.0f : 0.0f;
        if (!row->logp)
            continue;
        r->batch.rollout_logp[at + t] = row->logp[t - row->prompt_count];
        r->batch.old_logp[at + t] = row->logp[t - row->prompt_count];
    }
}

static int is_learnt_anyway(const xr_row_in *row, uint32_t t)
{
    if (row->mask)
        return row->mask[t];
    return t < row->prompt_count && row->train_on_prompt;
}

xray_status xr_rows_add(xr_rows *r, const xr_row_in *row, xr_err *err)
{
    uint32_t count = row->prompt_count + row->response_count;
    uint32_t n = r->batch.rows;
    size_t at = r->batch.tokens;
    const xray_span response = { .first = row->prompt_count,
                                 .last = count,
                                 .version = row->version };
    const xray_span *spans = row->spans ? row->spans : &response;
    const uint32_t span_count = row->spans ? row->span_count : 1;
    xray_status status = check_spans(row, spans, span_count, err);
    if (status == XRAY_OK)
        status = reserve_row(r, count, span_count, err);
    if (status != XRAY_OK)
        return status;
    float *floats[] = { r->batch.rollout_logp, r->batch.old_logp,
                        r->batch.ref_logp,     r->batch.value,
                        r->batch.reward,       r->batch.advantage,
                        r->batch.returns };
    for (size_t i = 0; i < TOKEN_FLOATS; i++)
        memset(floats[i] + at, 0, count * sizeof(float));
    memcpy(r->ids + at, row->prompt, row->prompt_count * sizeof(int32_t));
    if (row->response_count)
        memcpy(r->ids + at + row->prompt_count, row->response,
               row->response_count * sizeof(int32_t));
    for (uint32_t t = 0; t < count; t++)
        r->loss_mask[at + t] = t > 0 && is_learnt_anyway(row, t) ? 1.0f : 0.0f;
    for (uint32_t i = 0; i < span_count; i++)
        fill_span(r, row, &spans[i]);
    r->prompt_len[n] = (int32_t)row->prompt_count;
    r->row_id[n] = row->row_id;
    r->prompt_id[n] = row->prompt_id;
    r->group[n] = row->group;
    r->temperature[n] = row->temperature;
    r->batch.baseline[n] = row->baseline;
    end_row(r, count, spans, span_count);
    return XRAY_OK;
}

static void copy_token_floats(const xr_rows *r, const xray_batch *from,
                              size_t at, size_t first, size_t count)
{
    float *to[] = { r->batch.rollout_logp, r->batch.old_logp,
                    r->batch.ref_logp,     r->batch.value,
                    r->batch.reward,       r->batch.advantage,
                    r->batch.returns };
    const float *values[] = { from->rollout_logp, from->old_logp,
                              from->ref_logp,     from->value,
                              from->reward,       from->advantage,
                              from->returns };
    for (size_t i = 0; i < TOKEN_FLOATS; i++)
        if (values[i])
            memcpy(to[i] + at, values[i] + first, count * sizeof(float));
        else
            memset(to[i] + at, 0, count * sizeof(float));
}

uint32_t xr_rows_find_span(const xray_batch *b, uint32_t row)
{
    uint32_t low = 0;
    uint32_t high = b->span_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (b->spans[middle].row - b->spans[0].row < row)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

xray_status xr_rows_copy_from(xr_rows *r, const xray_batch *from, uint32_t row,
                              xr_err *err)
{
    size_t first = (size_t)from->row_start[row];
    uint32_t count = (uint32_t)(from->row_start[row + 1] - (int32_t)first);
    uint32_t n = r->batch.rows;
    size_t at = r->batch.tokens;
    uint32_t span = xr_rows_find_span(from, row);
    uint32_t spans = xr_rows_find_span(from, row + 1) - span;
    xray_status status = reserve_row(r, count, spans, err);
    if (status != XRAY_OK)
        return status;
    copy_token_floats(r, from, at, first, count);
    memcpy(r->ids + at, from->ids + first, count * sizeof(int32_t));
    memcpy(r->loss_mask + at, from->loss_mask + first, count * sizeof(float));
    r->prompt_len[n] = from->prompt_len[row];
    r->row_id[n] = from->row_id[row];
    r->prompt_id[n] = from->prompt_id[row];
    r->group[n] = from->group[row];
    r->temperature[n] = from->temperature ? from->temperature[row] : 1.0f;
    r->batch.baseline[n] = from->baseline ? from->baseline[row] : 0.0f;
    end_row(r, count, from->spans + span, spans);
    return XRAY_OK;
}

xray_status xr_rows_copy(xr_rows *r, const xr_rows *from, uint32_t row,
                         int32_t group, xr_err *err)
{
    xray_status status = xr_rows_copy_from(r, &from->batch, row, err);
    if (status == XRAY_OK)
        r->group[r->batch.rows - 1] = group;
    return status;
}

xray_status xr_views_init(xr_views *v, uint64_t row_cap, xr_err *err)
{
    size_t cap = (size_t)row_cap + 1;
    *v = (xr_views){ .cap = (uint32_t)cap, .starts_cap = (uint32_t)(2 * cap) };
    v->batches = xr_calloc(cap, sizeof(*v->batches));
    v->pointers = xr_calloc(cap, sizeof(*v->pointers));
    v->row_index = xr_calloc(cap, sizeof(*v->row_index));
    v->starts = xr_calloc(2 * cap, sizeof(*v->starts));
    if (!v->batches || !v->pointers || !v->row_index || !v->starts) {
        xr_views_free(v);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu rows",
                       (unsigned long long)row_cap);
    }
    for (uint32_t r = 0; r < v->cap; r++)
        v->row_index[r] = r;
    return XRAY_OK;
}

void xr_views_free(xr_views *v)
{
    free(v->batches);
    free(v->pointers);
    free(v->row_index);
    free(v->starts);
    *v = (xr_views){ .cap = 0 };
}

xray_batch *xr_views_add(xr_views *v, const xr_rows *rows, uint32_t first,
                         uint32_t count)
{
    xray_batch *b = &v->batches[v->count];
    size_t token = (size_t)rows->row_start[first];
    int32_t *starts = v->starts + v->starts_used;
    *b = rows->batch;
    for (uint32_t r = 0; r <= count; r++)
        starts[r] = rows->row_start[first + r] - (int32_t)token;
    v->starts_used += count + 1;
    b->rows = count;
    b->tokens = (uint32_t)starts[count];
    b->row_start = starts;
    b->ids += token;
    b->loss_mask += token;
    b->rollout_logp += token;
    b->old_logp += token;
    b->ref_logp += token;
    b->value += token;
    b->reward += token;
    b->advantage += token;
    b->returns += token;
    b->prompt_len += first;
    b->row_id += first;
    b->prompt_id += first;
    b->group += first;
    b->temperature += first;
    b->baseline += first;
    uint32_t span = xr_rows_find_span(&rows->batch, first);
    b->spans += span;
    b->span_count = xr_rows_find_span(&rows->batch, first + count) - span;
    v->pointers[v->count] = b;
    v->count++;
    return b;
}

uint32_t xr_rows_unit(const int32_t *group, uint32_t row, uint32_t end,
                      uint32_t prompts)
{
    uint32_t n = 1;
    while (prompts == XR_PROMPTS_PER_GROUP && row + n < end &&
           group[row + n] == group[row])
        n++;
    return n;
}

static uint32_t segment_of(const xr_cut *cut, uint32_t row)
{
    return cut->segment ? cut->segment[row - cut->first] : 0;
}

xray_status xr_views_cut(xr_views *v, const xr_rows *rows, const xr_cut *cut,
                         xr_err *err)
{
    uint32_t last = cut->first + cut->count;
    v->count = 0;
    v->starts_used = 0;
    v->prompts = cut->prompts;
    for (uint32_t at = cut->first, end = at; at < last; at = end) {
        int64_t base = rows->row_start[at];
        while (end < last) {
            uint32_t next =
                end + xr_rows_unit(rows->group, end, last, cut->prompts);
            if (end > at &&
                ((uint64_t)(rows->row_start[next] - base) > cut->budget ||
                 segment_of(cut, end) != segment_of(cut, at)))
                break;
            end = next;
        }
        if (v->count == v->cap)
            return xr_fail(err, XRAY_E_BUG, "no room for %u rows in views",
                           cut->count);
        xray_batch *view = xr_views_add(v, rows, at, end - at);
        view->share_prompts = cut->prompts != XR_PROMPTS_APART;
        view->row_index = (cut->row_index ? cut->row_index : v->row_index) +
                          (at - cut->first);
        view->segment = segment_of(cut, at);
    }
    return XRAY_OK;
}
