/* SPDX-License-Identifier: Apache-2.0
 *
 * Assigns each parameter its bucket and offset.
 */
#include "model/nn/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

/* Tells whether the parameter at `slot` forms one matrix or vector with the one
 * before it. */
static int can_join_previous(uint32_t slot, uint32_t before)
{
    switch (slot) {
    case XM_K:
        return before == XM_Q;
    case XM_V:
        return before == XM_K;
    case XM_K_BIAS:
        return before == XM_Q_BIAS;
    case XM_V_BIAS:
        return before == XM_K_BIAS;
    case XM_UP:
        return before == XM_GATE;
    case XM_UP_BIAS:
        return before == XM_GATE_BIAS;
    default:
        return 0;
    }
}

typedef struct layout_builder {
    xm_layout *layout;
    const xm_config *config;
    uint32_t cap;
    xr_err *err;
} layout_builder;

static xray_status count_param(void *ctx, const xm_param_info *info)
{
    (void)info;
    ((layout_builder *)ctx)->cap++;
    return XRAY_OK;
}

static uint32_t find_param_bucket(const layout_builder *b,
                                  const xm_param_info *info)
{
    if (info->layer < XM_MAX_LAYERS)
        return info->layer + 1;
    int first = info->slot == XM_EMBED || info->slot == XM_POSITIONS;
    return first ? 0 : b->config->layers + 1;
}

void xm_param_make_whole(xm_param *param)
{
    param->all_rows = param->rows;
    param->all_cols = param->cols;
    param->pieces[0] = (xm_row_piece){ .rows = param->rows };
    param->piece_count = 1;
    param->own = param->count;
    param->shared = param->count;
}

/* Takes the rank's part of the rows of several matrices, one after another in
 * the tensor, whose parts have the sizes of `pieces`. Those from number `kv` on
 * are of k and v. */
static void cut_rows(xm_param *param, const xm_slice *slice, uint32_t kv)
{
    uint64_t before = 0;
    uint64_t own = 0;
    for (uint32_t i = 0; i < param->piece_count; i++) {
        uint32_t each = i < kv ? 1 : slice->kv_ranks;
        uint64_t rows = param->pieces[i].rows;
        param->pieces[i].first = before + slice->rank / each * rows;
        before += slice->ranks / each * rows;
        own += each == 1 ? rows : 0;
    }
    param->all_rows = before;
    param->shared = own * (param->cols ? param->cols : 1);
    if (slice->rank % slice->kv_ranks)
        param->own = param->shared;
}

/* Sets which part of its tensor a parameter of a slice is. */
static void place_in_tensor(xm_param *param, const xm_config *config)
{
    const xm_slice *slice = &config->slice;
    xm_dims d = xm_dims_of(config);
    uint32_t kv = XM_PIECES;
    xm_param_make_whole(param);
    /* The first stage has the embedding first. */
    if (param->slot == XM_EMBED && !xm_config_is_first(config))
        param->own = 0;
    if (slice->ranks < 2)
        return;
    switch (param->slot) {
    case XM_EMBED:
    case XM_LM_HEAD:
        param->pieces[0].first = slice->vocab_first;
        param->all_rows = slice->vocab;
        return;
    case XM_O:
    case XM_DOWN:
        param->all_cols = slice->ranks * param->cols;
        param->col_first = slice->rank * param->cols;
        return;
    case XM_Q:
    case XM_Q_BIAS:
        if (param->rows > d.q) {
            param->pieces[0].rows = d.q;
            param->pieces[1].rows = param->pieces[2].rows = d.kv;
            param->piece_count = 3;
            kv = 1;
        }
        break;
    case XM_GATE:
    case XM_GATE_BIAS:
        if (param->rows > d.ffn) {
            param->pieces[0].rows = param->pieces[1].rows = d.ffn;
            param->piece_count = 2;
        }
        break;
    case XM_K:
    case XM_V:
    case XM_K_BIAS:
    case XM_V_BIAS:
        kv = 0;
        break;
    case XM_UP:
    case XM_UP_BIAS:
        break;
    default: /* all ranks have it */
        param->own = slice->rank ? 0 : param->count;
        return;
    }
    cut_rows(param, slice, kv);
}

static xray_status add_param(void *ctx, const xm_param_info *info)
{
    layout_builder *b = ctx;
    xm_param *param = &b->layout->params[b->layout->param_count];
    int n = snprintf(param->name, sizeof param->name, "%s", info->name);
    if (n < 0 || (size_t)n >= sizeof param->name)
        return xr_fail(b->err, XRAY_E_BUG, "%s: the name is too long",
                       info->name);
    param->bucket = find_param_bucket(b, info);
    param->slot = info->slot;
    param->rows = info->rows;
    param->cols = info->cols;
    param->count = info->cols ? info->rows * info->cols : info->rows;
    param->transposed = info->transposed;
    param->decay = info->cols != 0;
    place_in_tensor(param, b->config);
    b->layout->param_count++;
    return XRAY_OK;
}

static int compare_param_order(const void *a, const void *b)
{
    const xm_param *x = a;
    const xm_param *y = b;
    if (x->bucket != y->bucket)
        return x->bucket < y->bucket ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* An embedding table that no product reads needs no handle. */
static int needs_matrix_handle(const layout_builder *b, const xm_param *param)
{
    return param->cols != 0 && param->slot != XM_POSITIONS &&
           (param->slot != XM_EMBED ||
            (b->config->tied && xm_config_is_last(b->config)));
}

/* Values are not rounded, so that a critic's head keeps its small steps. */
static uint32_t choose_product_dtype(const xm_config *config,
                                     const xm_param *param)
{
    return param->slot == XM_VALUE ? 0 : config->dtype;
}

static void add_matrix_rows(const xm_config *config, xm_layout *layout,
                            xm_param *param, xm_matrix *joined)
{
    if (joined) {
        param->matrix = (int32_t)(joined - layout->matrices);
        param->matrix_row = joined->rows;
        joined->rows += param->rows;
        return;
    }
    param->matrix = (int32_t)layout->matrix_count;
    xm_matrix *matrix = &layout->matrices[layout->matrix_count++];
    matrix->rows = param->rows;
    matrix->cols = param->cols;
    matrix->offset = param->offset;
    matrix->bucket = param->bucket;
    matrix->product_dtype = choose_product_dtype(config, param);
}

static void assign_offsets(layout_builder *b)
{
    xm_layout *layout = b->layout;
    qsort(layout->params, layout->param_count, sizeof *layout->params,
          compare_param_order);
    for (uint32_t i = 0; i < layout->param_count; i++) {
        xm_param *param = &layout->params[i];
        uint64_t *used = &layout->bucket_sizes[param->bucket];
        param->joined =
            i > 0 && layout->params[i - 1].bucket == param->bucket &&
            can_join_previous(param->slot, layout->params[i - 1].slot);
        param->offset = param->joined ? *used : xm_round16(*used);
        param->matrix = -1;
        *used = param->offset + param->count;
        if (needs_matrix_handle(b, param))
            add_matrix_rows(b->config, layout, param,
                            param->joined
                                ? &layout->matrices[layout->matrix_count - 1]
                                : NULL);
    }
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        layout->bucket_sizes[i] = xm_round16(layout->bucket_sizes[i]);
}

static xray_status fill_layout(const xm_config *config, int value_head,
                               layout_builder *b)
{
    xray_status status = xm_config_params(config, add_param, b);
    if (status == XRAY_OK && value_head && xm_config_is_last(config))
        status = add_param(b, &(xm_param_info){ .name = XM_VALUE_HEAD,
                                                .rows = 1,
                                                .cols = config->hidden,
                                                .layer = XM_MAX_LAYERS,
                                                .slot = XM_VALUE });
    if (status == XRAY_OK)
        assign_offsets(b);
    return status;
}

xray_status xm_layout_create(const xm_config *config, int value_head,
                             xr_err *err, xm_layout **out)
{
    layout_builder b = { .config = config, .err = err };
    (void)xm_config_params(config, count_param, &b);
    b.cap += value_head ? 1 : 0;

    xm_layout *layout = xr_calloc(1, sizeof *layout);
    if (!layout)
        return xr_fail(err, XRAY_E_NOMEM, "layout: out of memory");
    layout->bucket_count = config->layers + 2;
    layout->stage = config->slice.layers != 0;
    layout->sliced = config->slice.ranks > 1;
    layout->params = xr_calloc(b.cap, sizeof *layout->params);
    layout->matrices = xr_calloc(b.cap, sizeof *layout->matrices);
    layout->bucket_sizes =
        xr_calloc(layout->bucket_count, sizeof *layout->bucket_sizes);
    b.layout = layout;
    xray_status status = XRAY_E_NOMEM;
    if (layout->params && layout->matrices && layout->bucket_sizes)
        status = fill_layout(config, value_head, &b);
    else
        (void)xr_fail(err, XRAY_E_NOMEM, "layout: out of memory");
    if (status != XRAY_OK) {
        xm_layout_destroy(layout);
        return status;
    }
    *out = layout;
    return XRAY_OK;
}

void xm_layout_destroy(xm_layout *layout)
{
    if (!layout)
        return;
    free(layout->params);
    free(layout->matrices);
    free(layout->bucket_sizes);
    free(layout);
}

uint64_t xm_param_rows(const xm_param *param, uint64_t row, uint64_t *out)
{
    const xm_row_piece *piece = param->pieces;
    while (row >= piece->rows)
        row -= (piece++)->rows;
    *out = piece->first + row;
    return piece->rows - row;
}

uint64_t xm_param_run(const xm_param *param, uint64_t first, uint64_t *out)
{
    uint64_t cols = param->cols ? param->cols : 1;
    uint64_t all_cols = param->cols ? param->all_cols : 1;
    uint64_t col = first % cols;
    uint64_t row = 0;
    uint64_t rows = xm_param_rows(param, first / cols, &row);
    *out = row * all_cols + param->col_first + col;
    return (cols == all_cols ? rows * cols : cols) - col;
}

const xm_param *xm_layout_find(const xm_layout *layout, const char *name)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        if (strcmp(layout->params[i].name, name) == 0)
            return &layout->params[i];
    }
    return NULL;
}

const xm_param *xm_layout_at(const xm_layout *layout, uint32_t bucket,
                             uint32_t slot)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        if (param->bucket == bucket && param->slot == slot)
            return param;
    }
    return NULL;
}

uint64_t xm_layout_bytes(const xm_layout *layout)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        count += layout->bucket_sizes[i];
    return count * sizeof(float);
}

uint32_t xm_layout_uses(const xm_layout *layout, uint32_t matrix, int trainable)
{
    uint32_t bucket = layout->matrices[matrix].bucket;
    if (trainable && bucket >= layout->frozen)
        return XRAY_USE_NT | XRAY_USE_NN | XRAY_USE_TN;
    /* The embedding has a handle only where it is the lm_head, too. */
    return trainable && bucket == 0 ? XRAY_USE_NT | XRAY_USE_NN : XRAY_USE_NT;
}
