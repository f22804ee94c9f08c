/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates a model's weights on a device, creates matrix handles and publishes
 * the table.
 */
#include "model/nn/weights.h"

#include <stdlib.h>

#include "core/base/str.h"
#include "model/hf/param_slots.h"

static uint64_t table_version(void *owner)
{
    return ((const xm_weights *)owner)->version;
}

static xray_status table_lease(void *owner)
{
    ((xm_weights *)owner)->leases++;
    return XRAY_OK;
}

static void table_release(void *owner)
{
    xm_weights *weights = owner;
    if (weights->leases > 0)
        weights->leases--;
}

static int is_kept_as_bf16(const xm_param *param, int flags)
{
    return (flags & XM_WEIGHTS_BF16) && param->cols && param->slot != XM_VALUE;
}

/* Returns the bytes of a bucket. `offsets`, if not NULL, receives where its
 * parameters start. */
static uint64_t lay_out_bucket(const xm_layout *layout, uint32_t bucket,
                               int flags, uint64_t *offsets)
{
    uint64_t end = 0;
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        uint64_t size = is_kept_as_bf16(param, flags) ? 2 : sizeof(float);
        if (param->bucket != bucket)
            continue;
        if (!param->joined)
            end = (end + 63u) & ~(uint64_t)63u;
        if (offsets)
            offsets[i] = end;
        end += param->count * size;
    }
    return (end + 63u) & ~(uint64_t)63u;
}

/* The same, padded for equal shares of fp32 where the layout is partitioned. */
static uint64_t count_bucket_bytes(const xm_layout *layout, uint32_t bucket,
                                   int flags)
{
    if (layout->ranks > 1)
        return xm_bucket_capacity(layout, bucket) * sizeof(float);
    return lay_out_bucket(layout, bucket, flags, NULL);
}

static xray_weight_desc describe_matrix(const xm_layout *layout,
                                        const xm_param *first, int flags)
{
    const xm_matrix *matrix = &layout->matrices[first->matrix];
    return (xray_weight_desc){
        XRAY_HEADER(xray_weight_desc),
        .rows = matrix->rows,
        .cols = matrix->cols,
        .dtype = is_kept_as_bf16(first, flags) ? XRAY_BF16 : XRAY_F32,
        .uses = xm_layout_uses(layout, (uint32_t)first->matrix,
                               flags & XM_WEIGHTS_TRAINABLE),
        .product_dtype = matrix->product_dtype
    };
}

uint64_t xm_packed_bytes(const xm_layout *layout, int flags,
                         const xray_workload *load)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; load->device && i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        if (param->matrix < 0 || param->matrix_row != 0)
            continue;
        xray_weight_desc desc = describe_matrix(layout, param, flags);
        bytes += load->device->plan_weight(load->device_config, &desc);
    }
    return bytes;
}

uint64_t xm_weights_bytes(const xm_layout *layout, int flags,
                          const xray_workload *load)
{
    uint64_t bytes = xm_packed_bytes(layout, flags, load);
    for (uint32_t i = 0; i < layout->bucket_count; i++)
        bytes += count_bucket_bytes(layout, i, flags);
    return bytes;
}

static xray_status allocate_buckets(xm_weights *w, const char *owner,
                                    xr_err *err)
{
    for (uint32_t i = 0; i < w->layout->bucket_count; i++) {
        uint64_t bytes = count_bucket_bytes(w->layout, i, w->flags);
        void *data = NULL;
        if (bytes == 0)
            continue;
        xray_status status = w->device->alloc(w->device_self, owner,
                                              XRAY_TAG_WEIGHTS, bytes, &data);
        if (status != XRAY_OK)
            return xr_fail(err, status,
                           "%s: no device memory for weight bucket %u (%llu "
                           "bytes)",
                           owner, i, (unsigned long long)bytes);
        w->buckets[i] = data;
    }
    return XRAY_OK;
}

static xray_status create_matrix_handle(xm_weights *w, const xray_tensor *first,
                                        const xm_param *param, xr_err *err)
{
    xray_weight_desc desc = describe_matrix(w->layout, param, w->flags);
    desc.data = first->data;
    xray_status status = w->device->weight_create(w->device_self, &desc,
                                                  &w->handles[param->matrix]);
    if (status == XRAY_OK)
        return XRAY_OK;
    return xr_fail(
        err, status,
        "the device could not make a handle for matrix %d [%llu, %llu]",
        param->matrix, (unsigned long long)desc.rows,
        (unsigned long long)desc.cols);
}

/* Adds the boxes of a parameter to the table and returns the first. */
static xray_tensor *describe_tensor(xm_weights *w, uint32_t i, uint64_t offset)
{
    const xm_param *param = &w->layout->params[i];
    xray_tensor *boxes = &w->tensors[w->table.tensor_count];
    unsigned char *data = (unsigned char *)w->buckets[param->bucket] + offset;
    uint32_t dtype = is_kept_as_bf16(param, w->flags) ? XRAY_BF16 : XRAY_F32;
    uint64_t cols = param->cols ? param->cols : 1;
    w->held[i] = (xm_held){
        .count = param->count, .data = data, .boxes = boxes, .dtype = dtype
    };
    for (uint32_t p = 0; p < param->piece_count; p++) {
        const xm_row_piece *piece = &param->pieces[p];
        boxes[p] = (xray_tensor){ .name = param->name,
                                  .dtype = dtype,
                                  .dims = param->cols ? 2 : 1,
                                  .shape = { param->all_rows, param->all_cols },
                                  .lo = { piece->first, param->col_first },
                                  .extent = { piece->rows, param->cols },
                                  .stride = { cols, param->cols ? 1 : 0 },
                                  .data = data };
        data += piece->rows * cols * xray_dtype_bytes(dtype);
    }
    w->table.tensor_count += param->piece_count;
    return boxes;
}

/* Fills the table, and creates the handle of each matrix at its first
 * parameter. */
static xray_status publish_tensors(xm_weights *w, const uint64_t *offsets,
                                   xr_err *err)
{
    for (uint32_t i = 0; i < w->layout->param_count; i++) {
        const xm_param *param = &w->layout->params[i];
        uint64_t row = param->matrix_row;
        xray_status status = XRAY_OK;
        xray_tensor *boxes = describe_tensor(w, i, offsets[i]);
        if (param->matrix < 0)
            continue;
        if (row == 0)
            status = create_matrix_handle(w, boxes, param, err);
        if (status != XRAY_OK)
            return status;
        for (uint32_t p = 0; p < param->piece_count; p++) {
            boxes[p].weight = w->handles[param->matrix];
            boxes[p].weight_row = row;
            row += param->pieces[p].rows;
        }
    }
    return XRAY_OK;
}

static xray_status lay_out_tensors(xm_weights *w, const char *owner,
                                   xr_err *err)
{
    uint64_t *offsets = xr_calloc(w->layout->param_count, sizeof *offsets);
    if (!offsets)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    for (uint32_t i = 0; i < w->layout->bucket_count; i++)
        (void)lay_out_bucket(w->layout, i, w->flags, offsets);
    xray_status status = publish_tensors(w, offsets, err);
    free(offsets);
    return status;
}

static xray_status fill_weights(xm_weights *w, const char *owner, xr_err *err)
{
    const xm_layout *layout = w->layout;
    w->buckets = xr_calloc(layout->bucket_count, sizeof(float *));
    w->handles = xr_calloc(layout->matrix_count + 1u, sizeof(xray_weight *));
    w->tensors =
        xr_calloc((size_t)layout->param_count * XM_PIECES, sizeof(xray_tensor));
    w->held = xr_calloc(layout->param_count, sizeof(xm_held));
    if (!w->buckets || !w->handles || !w->tensors || !w->held)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    w->table = (xray_weights){
        XRAY_HEADER(xray_weights),     .tensor_stride = sizeof(xray_tensor),
        .tensors = w->tensors,         .device = w->device,
        .device_self = w->device_self, .owner = w,
        .version = table_version,      .lease = table_lease,
        .release = table_release
    };
    xray_status status = allocate_buckets(w, owner, err);
    return status == XRAY_OK ? lay_out_tensors(w, owner, err) : status;
}

xray_status xm_weights_create(const xm_layout *layout,
                              const xray_device_ops *device, void *device_self,
                              const char *owner, int flags, xr_err *err,
                              xm_weights **out)
{
    xm_weights *w = xr_calloc(1, sizeof *w);
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    w->layout = layout;
    w->device = device;
    w->device_self = device_self;
    w->flags = flags;
    xray_status status = fill_weights(w, owner, err);
    if (status != XRAY_OK) {
        xm_weights_destroy(w);
        return status;
    }
    *out = w;
    return XRAY_OK;
}

void xm_weights_destroy(xm_weights *w)
{
    if (!w)
        return;
    for (uint32_t i = 0; w->handles && i < w->layout->matrix_count; i++) {
        if (w->handles[i])
            w->device->weight_destroy(w->device_self, w->handles[i]);
    }
    for (uint32_t i = 0; w->buckets && i < w->layout->bucket_count; i++)
        w->device->free(w->device_self, w->buckets[i]);
    free(w->handles);
    free(w->buckets);
    free(w->tensors);
    free(w->held);
    free(w);
}

xray_status xm_weights_changed(xm_weights *w, uint64_t version, xr_err *err)
{
    if (w->leases > 0)
        return xr_fail(err, XRAY_E_STATE,
                       "the weights changed while %u lease%s held them: "
                       "readers must finish first",
                       w->leases, w->leases == 1 ? "" : "s");
    for (uint32_t i = 0; i < w->layout->matrix_count; i++) {
        if (!w->handles[i])
            continue;
        xray_status status =
            w->device->weight_changed(w->device_self, w->handles[i]);
        if (status != XRAY_OK)
            return xr_fail(err, status,
                           "the device could not renew its copies of matrix "
                           "%u",
                           i);
    }
    w->version = version;
    return XRAY_OK;
}

xray_status xm_weights_evict(xm_weights *w)
{
    const xray_device_ops *device = w->device;
    if (!XRAY_HAS(xray_device_ops, device, evict) ||
        !XRAY_HAS(xray_device_ops, device, weight_evict))
        return XRAY_E_UNSUPPORTED;
    xray_status status = device->sync(w->device_self, NULL);
    for (uint32_t i = 0; status == XRAY_OK && i < w->layout->matrix_count; i++)
        if (w->handles[i])
            status = device->weight_evict(w->device_self, w->handles[i]);
    for (uint32_t b = 0; status == XRAY_OK && b < w->layout->bucket_count; b++)
        status = device->evict(w->device_self, w->buckets[b]);
    return status;
}

xray_status xm_weights_restore(xm_weights *w)
{
    xray_status status = XRAY_OK;
    for (uint32_t b = 0; status == XRAY_OK && b < w->layout->bucket_count; b++)
        status = w->device->restore(w->device_self, w->buckets[b]);
    return status;
}
