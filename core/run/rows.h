/* SPDX-License-Identifier: Apache-2.0
 *
 * A batch that owns its arrays, and views of runs of its rows.
 */
#ifndef XR_ROWS_H
#define XR_ROWS_H

#include <xray/batch.h>

#include "core/base/err.h"

/* Room for `row_cap` rows and `token_cap` tokens; `batch` points into it. */
typedef struct xr_rows {
    xray_batch batch;
    uint32_t row_cap;
    uint32_t token_cap;
    int32_t *ids;
    int32_t *row_start;
    int32_t *prompt_len;
    float *loss_mask;
    uint64_t *row_id;
    uint64_t *prompt_id;
    int32_t *group;
    float *temperature;
    xray_span *spans; /* one a row */
    void *memory;     /* of all arrays */
} xr_rows;

xray_status xr_rows_init(xr_rows *rows, uint64_t row_cap, uint64_t token_cap,
                         xr_err *err);
/* The same over memory of the caller, xr_rows_bytes of it, that may hold rows
 * already: two processes that share it see one batch. Not to be freed. */
void xr_rows_attach(xr_rows *rows, uint32_t row_cap, uint32_t token_cap,
                    void *memory);
/* What that takes; UINT64_MAX where the room is refused. */
uint64_t xr_rows_bytes(uint64_t row_cap, uint64_t token_cap);
void xr_rows_free(xr_rows *rows);
void xr_rows_clear(xr_rows *rows);

/* A row to append: the prompt's tokens, then the response's. */
typedef struct xr_row_in {
    const int32_t *prompt;
    uint32_t prompt_count;
    uint32_t response_count;
    const int32_t *response;
    const float *logp;   /* [response_count], or NULL: 0 */
    const uint8_t *mask; /* [prompt_count + response_count] tokens to learn, or
                          * NULL: the response */
    uint64_t row_id;
    uint64_t prompt_id;
    uint64_t version;
    int32_t group;
    float temperature;
    uint32_t train_on_prompt; /* 1: without a mask, the prompt is learnt too */
    float baseline;
} xr_row_in;

/* XRAY_E_BUG when it does not fit: capacities follow from the run's lengths. */
xray_status xr_rows_add(xr_rows *rows, const xr_row_in *row, xr_err *err);
/* Copies row r of `from`, all arrays, with another group number. */
xray_status xr_rows_copy(xr_rows *rows, const xr_rows *from, uint32_t r,
                         int32_t group, xr_err *err);
/* Copies row r of a batch, all arrays that it has. */
xray_status xr_rows_copy_from(xr_rows *rows, const xray_batch *from, uint32_t r,
                              xr_err *err);

/* How the prompt that rows of a group share is computed. */
enum {
    XR_PROMPTS_APART,  /* each row's by itself */
    XR_PROMPTS_SHARED, /* outputs only: once for what a view has of a group */
    XR_PROMPTS_WHOLE   /* once for a group, which no two views have a part of */
};

/* Runs of rows as batches of their own: the arrays are the store's, only
 * row_start is rebased. Group numbers and the rows that spans name stay those
 * of the store. */
typedef struct xr_views {
    xray_batch *batches;
    const xray_batch **pointers; /* [count] of `batches` */
    uint32_t *first_row;         /* [count] in the run that was cut */
    uint32_t count;
    uint32_t cap;
    uint32_t prompts; /* XR_PROMPTS_* of the last cut */
    uint32_t reserved;
    int32_t *starts; /* row_start of all views */
    uint32_t starts_cap;
    uint32_t starts_used;
} xr_views;

xray_status xr_views_init(xr_views *views, uint64_t row_cap, xr_err *err);
void xr_views_free(xr_views *views);
/* What to cut, and into what. */
typedef struct xr_cut {
    uint32_t first;
    uint32_t count;   /* rows */
    uint64_t budget;  /* tokens of a view */
    uint32_t prompts; /* XR_PROMPTS_* */
    uint32_t reserved;
} xr_cut;
/* Cuts rows [first, first + count) into runs of at most `budget` tokens, in
 * order; a row, or with XR_PROMPTS_WHOLE a group, that is longer is a run of
 * its own. */
xray_status xr_views_cut(xr_views *views, const xr_rows *rows,
                         const xr_cut *cut, xr_err *err);
/* The rows from `row` < `end` on that are not to be parted: one, or all that
 * follow it in its group. */
uint32_t xr_rows_unit(const int32_t *group, uint32_t row, uint32_t end,
                      uint32_t prompts);

#endif
