/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies micro-batches to add rows of padding, and takes the padding away from
 * what a backend gives back.
 */
#include "core/run/padding.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"

static const int32_t no_start[1];
static const xray_batch no_rows = { .header = XRAY_HEADER(xray_batch),
                                    .span_stride = sizeof(xray_span),
                                    .row_start = no_start };

void xr_padding_free(xr_padding *p)
{
    free(p->pointers);
    xr_rows_free(&p->rows);
    xr_views_free(&p->views);
    for (int i = 0; i < 3; i++)
        free(p->out[i]);
    *p = (xr_padding){ .count = 0 };
}

/* ---- filling up --------------------------------------------------------- */

/* Rounds a number of micro-batches up to the multiple. */
static uint32_t round_up_count(const xr_micro *m, uint32_t count)
{
    const uint64_t multiple = m->micro_multiple ? m->micro_multiple : 1;
    return (uint32_t)((count + multiple - 1) / multiple * multiple);
}

static uint32_t count_due(const xr_micro *m)
{
    const uint32_t most = m->count > m->least ? m->count : m->least;
    return round_up_count(m, most);
}

/* Rows of padding are at most this long. */
static uint64_t longest_row(const xr_micro *m)
{
    return m->row_tokens ? m->row_tokens : m->token_multiple;
}

static uint64_t count_missing(const xr_micro *m, uint32_t i)
{
    const uint64_t over =
        m->token_multiple > 1 ? m->batches[i]->tokens % m->token_multiple : 0;
    return over ? m->token_multiple - over : 0;
}

/* Reserves what any later call needs, so that steps do not allocate. */
static xray_status reserve_pointers(xr_padding *p, const xr_micro *m,
                                    xr_err *err)
{
    const uint32_t due = count_due(m);
    const uint32_t most = round_up_count(m, m->most);
    const uint32_t count = due > most ? due : most;
    if (due <= p->cap)
        return XRAY_OK;
    free(p->pointers);
    p->pointers = xr_calloc(count, sizeof(*p->pointers));
    p->cap = p->pointers ? count : 0;
    return p->pointers ? XRAY_OK
                       : xr_fail(err, XRAY_E_NOMEM,
                                 "out of memory for %u micro-batches", count);
}

/* Makes room for the rows of all micro-batches with their padding. */
static xray_status reserve_rows(xr_padding *p, const xr_micro *m, xr_err *err)
{
    uint64_t rows = 0;
    uint64_t tokens = 0;
    uint64_t spans = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        const uint64_t missing = count_missing(m, i);
        const uint64_t added = missing / longest_row(m) + 1;
        rows += m->batches[i]->rows + added;
        tokens += m->batches[i]->tokens + missing;
        spans += m->batches[i]->span_count + added;
    }
    xr_rows_clear(&p->rows);
    p->views.count = p->views.starts_used = 0;
    if (rows <= p->rows.row_cap && tokens <= p->rows.token_cap)
        return xr_rows_reserve_spans(&p->rows, spans, err);
    xr_rows_free(&p->rows);
    xr_views_free(&p->views);
    rows += rows / 2; /* later calls may have more */
    tokens += tokens / 2;
    xray_status status = xr_rows_init(&p->rows, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_rows_reserve_spans(&p->rows, spans, err);
    return status == XRAY_OK ? xr_views_init(&p->views, rows, err) : status;
}

/* Copies row r under its own index. */
static xray_status copy_row(xr_padding *p, const xray_batch *from, uint32_t r,
                            xr_err *err)
{
    const uint32_t n = p->rows.batch.rows;
    xray_status status = xr_rows_copy_from(&p->rows, from, r, err);
    if (status != XRAY_OK)
        return status;
    p->views.row_index[n] = from->row_index[r];
    return XRAY_OK;
}

/* Adds a row that belongs to no sample and to no group. */
static xray_status add_padding_row(xr_padding *p, uint32_t tokens,
                                   int32_t group, xr_err *err)
{
    const uint32_t n = p->rows.batch.rows;
    int32_t *ids = p->rows.ids + p->rows.batch.tokens;
    const xr_row_in row = { .prompt = ids,
                            .prompt_count = tokens,
                            .row_id = UINT64_MAX,
                            .prompt_id = UINT64_MAX,
                            .group = group,
                            .temperature = 1 };
    memset(ids, 0, tokens * sizeof(*ids));
    xray_status status = xr_rows_add(&p->rows, &row, err);
    if (status == XRAY_OK)
        p->views.row_index[n] = XRAY_NO_ROW;
    return status;
}

static xray_status pad_micro_batch(xr_padding *p, const xr_micro *m, uint32_t i,
                                   xr_err *err)
{
    const xray_batch *from = m->batches[i];
    const uint32_t first = p->rows.batch.rows;
    uint64_t missing = count_missing(m, i);
    xray_status status = XRAY_OK;
    for (uint32_t r = 0; r < from->rows && status == XRAY_OK; r++)
        status = copy_row(p, from, r, err);
    for (int32_t more = 1; missing && status == XRAY_OK; more++) {
        const uint64_t tokens =
            missing < longest_row(m) ? missing : longest_row(m);
        status = add_padding_row(p, (uint32_t)tokens,
                                 from->group[from->rows - 1] + more, err);
        missing -= tokens;
    }
    if (status != XRAY_OK)
        return status;
    xray_batch *view =
        xr_views_add(&p->views, &p->rows, first, p->rows.batch.rows - first);
    view->row_index = p->views.row_index + first;
    view->share_prompts = from->share_prompts;
    view->segment = from->segment;
    p->pointers[i] = view;
    return XRAY_OK;
}

static int needs_padding(const xr_micro *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (count_missing(m, i))
            return 1;
    return 0;
}

xray_status xr_padding_fill(xr_padding *p, const xr_micro *m, xr_err *err)
{
    const uint32_t due = count_due(m);
    p->padded = needs_padding(m) ? 1 : 0;
    p->batches = m->batches;
    p->count = m->count;
    if (!p->padded && due == m->count)
        return XRAY_OK;
    xray_status status = reserve_pointers(p, m, err);
    if (status == XRAY_OK && p->padded)
        status = reserve_rows(p, m, err);
    for (uint32_t i = 0; i < due && status == XRAY_OK; i++) {
        p->pointers[i] = i < m->count ? m->batches[i] : &no_rows;
        if (p->padded && i < m->count && m->batches[i]->rows)
            status = pad_micro_batch(p, m, i, err);
    }
    p->batches = p->pointers;
    p->count = due;
    return status;
}

/* ---- results ------------------------------------------------------------ */

xray_batch xr_padding_strip(const xray_batch *batch)
{
    xray_batch own = *batch;
    while (own.rows && own.row_index &&
           own.row_index[own.rows - 1] == XRAY_NO_ROW)
        own.rows--;
    if (own.rows < batch->rows) {
        own.tokens = (uint32_t)own.row_start[own.rows];
        own.span_count = xr_rows_find_span(batch, own.rows);
    }
    return own;
}

xray_status xr_padding_outputs(xr_padding *p, const xray_outputs *out,
                               xr_err *err, xray_outputs *to)
{
    float **const wanted[] = { &to->logp, &to->entropy, &to->value };
    const uint32_t tokens = p->rows.token_cap;
    *to = *out;
    to->header = (xray_header)XRAY_HEADER(xray_outputs);
    if (!p->padded)
        return XRAY_OK;
    for (int i = 0; i < 3; i++) {
        if (tokens > p->out_cap) {
            free(p->out[i]);
            p->out[i] = xr_calloc(tokens, sizeof(float));
        }
        if (!p->out[i]) {
            p->out_cap = 0;
            return xr_fail(err, XRAY_E_NOMEM,
                           "out of memory for outputs of %u tokens", tokens);
        }
        if (*wanted[i])
            *wanted[i] = p->out[i];
    }
    p->out_cap = tokens > p->out_cap ? tokens : p->out_cap;
    return XRAY_OK;
}

void xr_padding_drop(const xr_padding *p, const xray_outputs *from,
                     const xray_outputs *out)
{
    const float *const source[] = { from->logp, from->entropy, from->value };
    float *const to[] = { out->logp, out->entropy, out->value };
    size_t first = 0;
    size_t at = 0;
    for (uint32_t i = 0; p->padded && i < p->count; i++) {
        const size_t tokens = xr_padding_strip(p->batches[i]).tokens;
        for (int k = 0; k < 3; k++)
            if (to[k])
                memcpy(to[k] + at, source[k] + first, tokens * sizeof(float));
        at += tokens;
        first += p->batches[i]->tokens;
    }
}
