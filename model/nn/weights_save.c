/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves weights to a model directory.
 */
#include <stdlib.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "model/hf/safetensors.h"
#include "model/nn/weights_internal.h"

/* Tiles keep both sides of a transposition from being accessed in long strides.
 */
#define TILE 16

/* Copies one tensor at a time from the device and transposes it where files
 * store it the other way round. */
typedef struct tensor_writer {
    const xm_weights *weights;
    xm_stage stage;
    float *copy;   /* holds the largest parameter; NULL: no copy is needed */
    float *turned; /* holds the largest transposed parameter, or NULL */
} tensor_writer;

static void transpose_tile(const xm_param *param, uint64_t row, uint64_t col,
                           const float *from, float *to)
{
    uint64_t rows = param->rows;
    uint64_t cols = param->cols;
    for (uint64_t c = col; c < cols && c < col + TILE; c++)
        for (uint64_t r = row; r < rows && r < row + TILE; r++)
            to[c * rows + r] = from[r * cols + c];
}

static void transpose_matrix(const xm_param *param, const float *from,
                             float *to)
{
    for (uint64_t row = 0; row < param->rows; row += TILE)
        for (uint64_t col = 0; col < param->cols; col += TILE)
            transpose_tile(param, row, col, from, to);
}

static xray_status feed_param_values(void *ctx, size_t i, xr_err *err,
                                     const void **out)
{
    const tensor_writer *w = ctx;
    const xm_param *param = &w->weights->layout->params[i];
    const float *data = xm_param_held(w->weights, param)->data;
    if (!w->stage.direct) {
        xray_status status = xm_stage_copy_floats(
            &w->stage, w->copy, data, param->count, XRAY_COPY_TO_HOST);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copy from the device failed",
                           param->name);
        data = w->copy;
    }
    if (param->transposed) {
        transpose_matrix(param, data, w->turned);
        data = w->turned;
    }
    *out = data;
    return XRAY_OK;
}

/* Allocates the copies for the largest parameters that need them. */
static xray_status allocate_copies(tensor_writer *w, xr_err *err)
{
    const xm_layout *layout = w->weights->layout;
    uint64_t copy = 0;
    uint64_t turned = 0;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        if (!w->stage.direct && param->count > copy)
            copy = param->count;
        if (param->transposed && param->count > turned)
            turned = param->count;
    }
    w->copy = copy ? xr_calloc(copy, sizeof(float)) : NULL;
    w->turned = turned ? xr_calloc(turned, sizeof(float)) : NULL;
    if ((copy && !w->copy) || (turned && !w->turned))
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    return XRAY_OK;
}

void xm_layout_items(const xm_layout *layout, xm_st_item *items)
{
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        int turned = param->transposed != 0;
        items[i] = (xm_st_item){ .name = param->name,
                                 .dtype = XM_ST_F32,
                                 .dims = param->cols ? 2 : 1 };
        items[i].shape[turned] = param->all_rows;
        items[i].shape[!turned] = param->all_cols;
    }
}

static xray_status write_model_files(tensor_writer *w, const char *dir,
                                     uint64_t max_shard, xr_err *err)
{
    const xm_layout *layout = w->weights->layout;
    xm_st_item *items = xr_calloc(layout->param_count, sizeof *items);
    if (!items)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    xm_layout_items(layout, items);
    const xm_st_feed feed = { feed_param_values, w, w->weights->calls };
    xray_status status = xm_st_write_model(dir, items, layout->param_count,
                                           max_shard, &feed, err);
    free(items);
    return status;
}

/* Earlier work on the device may still change the weights. */
static xray_status wait_for_device(const xm_weights *weights, const char *dir,
                                   xr_err *err)
{
    xray_status status = weights->device->sync(weights->device_self, NULL);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: waiting for the device failed", dir);
}

xray_status xm_weights_save(const xm_weights *weights, const char *dir,
                            uint64_t max_shard, xr_err *err)
{
    tensor_writer w = { .weights = weights };
    if (weights->flags & XM_WEIGHTS_BF16)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: weights kept as bf16 cannot be saved", dir);
    if (weights->layout->sliced || weights->layout->stage)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: a slice of a model cannot be saved by itself", dir);
    xray_status status = xr_dir_make(dir, err);
    if (status == XRAY_OK)
        status = xm_stage_open(weights, err, &w.stage);
    if (status == XRAY_OK)
        status = allocate_copies(&w, err);
    if (status == XRAY_OK)
        status = wait_for_device(weights, dir, err);
    if (status == XRAY_OK)
        status = write_model_files(&w, dir, max_shard, err);
    free(w.copy);
    free(w.turned);
    xm_stage_close(&w.stage);
    return status;
}
