/* SPDX-License-Identifier: Apache-2.0
 *
 * Batches that own their arrays (xr_rows), and views of consecutive rows as
 * batches of their own (xr_views).
 */
#ifndef XR_ROWS_H
#define XR_ROWS_H

#include <xray/batch.h>

#include "core/base/err.h"

/* A batch with capacity for `row_cap` rows and `token_cap` tokens. `batch`
 * points to the arrays. */
typedef struct xr_rows {
    xray_batch batch;
    uint32_t row_cap;
    uint32_t token_cap;
    uint32_t span_cap;
    uint32_t reserved;
    int32_t *ids;
    int32_t *row_start;
    int32_t *prompt_len;
    float *loss_mask;
    uint64_t *row_id;
    uint64_t *prompt_id;
    int32_t *group;
    float *temperature;
    xray_span *spans; /* [span_cap] at least one per row, in their order */
    void *memory;     /* holds all arrays; NULL: the caller's memory */
    xray_span *grown; /* `spans` where they outgrew `memory`, or NULL */
} xr_rows;

/* There is room for one span per row at first, and it grows as needed. */
xray_status xr_rows_init(xr_rows *rows, uint64_t row_cap, uint64_t token_cap,
                         xr_err *err);
/* Does the same in memory of the caller, of xr_rows_bytes bytes, that may
 * already hold rows: processes that share the memory see the same batch. Must
 * not be freed, and does not grow. */
void xr_rows_attach(xr_rows *rows, uint32_t row_cap, uint32_t token_cap,
                    uint32_t span_cap, void *memory);
/* Returns the bytes of a batch; UINT64_MAX if it is too large. */
uint64_t xr_rows_bytes(uint64_t row_cap, uint64_t token_cap, uint64_t span_cap);
void xr_rows_free(xr_rows *rows);
void xr_rows_clear(xr_rows *rows);

/* Makes room for so many spans in all, so that rows which are added later do
 * not move them. */
xray_status xr_rows_reserve_spans(xr_rows *rows, uint64_t count, xr_err *err);

/* A row to append: the tokens of the prompt, then those of the response. */
typedef struct xr_row_in {
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t response_count;
    const int32_t *response;
    const float *logp;   /* [response_count] read for sampled tokens only, or
                          * NULL: zeros */
    const uint8_t *mask; /* [prompt_count + response_count] 1: in the loss;
                          * NULL: what was sampled is */
    uint64_t row_id;
    uint64_t prompt_id;
    uint64_t version;
    /* Which tokens of the response were sampled: the spans of the sample's
     * turns one after the other, as the engine gives them, whatever `row` they
     * name. The others are observations, which have no log-prob and, without a
     * mask, are not in the loss. NULL: all of it was sampled from `version`. */
    const xray_span *spans;
    uint32_t span_count;
    int32_t group;
    float temperature;
    /* 1: without a mask, the prompt is in the loss, too */
    uint32_t train_on_prompt;
    float baseline;
} xr_row_in;

/* Appends a row. XRAY_E_BUG if it does not fit, since capacities follow from
 * the configured lengths. */
xray_status xr_rows_add(xr_rows *rows, const xr_row_in *row, xr_err *err);
/* Returns the index of the first span of row r of a batch. */
uint32_t xr_rows_find_span(const xray_batch *batch, uint32_t r);
/* Copies row r of `from` with all its arrays, under another group number. */
xray_status xr_rows_copy(xr_rows *rows, const xr_rows *from, uint32_t r,
                         int32_t group, xr_err *err);
/* Copies row r of a batch, with all arrays that the batch has. */
xray_status xr_rows_copy_from(xr_rows *rows, const xray_batch *from, uint32_t r,
                              xr_err *err);

/* How the prompt that the rows of a group share is computed. */
enum {
    XR_PROMPTS_APART,  /* for each row separately */
    XR_PROMPTS_SHARED, /* outputs only: once for the rows of a group in one view
                        */
    XR_PROMPTS_PER_GROUP /* once per group, which is never divided between views
                          */
};

/* Consecutive rows as batches of their own. The arrays are those of the
 * original batch; only row_start starts at 0 again. Group numbers, and rows
 * named by spans, are those of the original batch. Spans must not grow while
 * there are views. */
typedef struct xr_views {
    xray_batch *batches;
    const xray_batch **pointers; /* [count] addresses in `batches` */
    /* [cap] index of each row among those that were cut, for row_index. */
    uint32_t *row_index;
    uint32_t count;
    uint32_t cap;
    uint32_t prompts; /* XR_PROMPTS_* of the last cut */
    uint32_t reserved;
    int32_t *starts; /* row_start arrays of all views */
    uint32_t starts_cap;
    uint32_t starts_used;
} xr_views;

xray_status xr_views_init(xr_views *views, uint64_t row_cap, xr_err *err);
void xr_views_free(xr_views *views);
/* Which rows to cut, and how. */
typedef struct xr_cut {
    uint32_t first;
    uint32_t count;   /* number of rows */
    uint64_t budget;  /* most tokens per view */
    uint32_t prompts; /* XR_PROMPTS_* */
    uint32_t reserved;
    /* [count] index of each row in its mini-batch, ascending, which must live
     * as long as the views; NULL: the rows are the mini-batch. */
    const uint32_t *row_index;
    /* [count] segment of each row, ascending: no view has rows of two; NULL:
     * the mini-batch is not divided. */
    const uint32_t *segment;
} xr_cut;
/* Cuts rows [first, first + count) into consecutive views of at most `budget`
 * tokens. A row, or with XR_PROMPTS_PER_GROUP a group, that is longer becomes a
 * view of its own. */
xray_status xr_views_cut(xr_views *views, const xr_rows *rows,
                         const xr_cut *cut, xr_err *err);
/* Appends rows [first, first + count) as a view, without row_index. The views
 * must have room for it. */
xray_batch *xr_views_add(xr_views *views, const xr_rows *rows, uint32_t first,
                         uint32_t count);
/* Returns how many rows from `row` on must not be divided: one, or the rest of
 * its group before `end`. */
uint32_t xr_rows_unit(const int32_t *group, uint32_t row, uint32_t end,
                      uint32_t prompts);

#endif
