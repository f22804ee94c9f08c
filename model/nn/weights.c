/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights on a device: memory, handles, the published table.
 */
#include "model/nn/weights.h"

#include <stdlib.h>

#include "core/base/str.h"

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

static xray_status take_buckets(xm_weights *w, const char *owner, xr_err *err)
{
    for (uint32_t i = 0; i < w->layout->bucket_count; i++) {
        uint64_t bytes = w->layout->bucket_sizes[i] * sizeof(float);
        void *data = NULL;
        xray_status status =
            w->device->alloc(w->device_self, owner, XRAY_TAG_WEIGHTS,
                             bytes ? bytes : sizeof(float), &data);
        if (status != XRAY_OK)
            return xr_fail(err, status,
                           "%s: no device memory for weight bucket %u (%llu "
                           "bytes)",
                           owner, i, (unsigned long long)bytes);
        w->buckets[i] = data;
    }
    return XRAY_OK;
}

static xray_status make_handles(xm_weights *w, int trainable, xr_err *err)
{
    for (uint32_t i = 0; i < w->layout->matrix_count; i++) {
        const xm_matrix *matrix = &w->layout->matrices[i];
        xray_weight_desc desc = { XRAY_HEAD(xray_weight_desc),
                                  .data = w->buckets[matrix->bucket] +
                                          matrix->offset,
                                  .rows = matrix->rows,
                                  .cols = matrix->cols,
                                  .dtype = XRAY_F32,
                                  .trainable = trainable != 0 };
        xray_status status =
            w->device->weight_create(w->device_self, &desc, &w->handles[i]);
        if (status != XRAY_OK)
            return xr_fail(err, status,
                           "the device made no handle for matrix %u [%llu, "
                           "%llu]",
                           i, (unsigned long long)matrix->rows,
                           (unsigned long long)matrix->cols);
    }
    return XRAY_OK;
}

static void publish(xm_weights *w)
{
    for (uint32_t i = 0; i < w->layout->param_count; i++) {
        const xm_param *param = &w->layout->params[i];
        xray_tensor *tensor = &w->tensors[i];
        tensor->name = param->name;
        tensor->dtype = XRAY_F32;
        tensor->dims = param->cols ? 2 : 1;
        tensor->shape[0] = param->rows;
        tensor->shape[1] = param->cols;
        tensor->count = param->count;
        tensor->data = w->buckets[param->bucket] + param->offset;
        if (param->matrix >= 0) {
            tensor->weight = w->handles[param->matrix];
            tensor->weight_row = param->matrix_row;
        }
    }
    w->table = (xray_weights){ XRAY_HEAD(xray_weights),
                               .tensor_count = w->layout->param_count,
                               .tensor_stride = sizeof(xray_tensor),
                               .tensors = w->tensors,
                               .device = w->device,
                               .device_self = w->device_self,
                               .owner = w,
                               .version = table_version,
                               .lease = table_lease,
                               .release = table_release };
}

static xray_status fill(xm_weights *w, const char *owner, int trainable,
                        xr_err *err)
{
    const xm_layout *layout = w->layout;
    w->buckets = xr_calloc(layout->bucket_count, sizeof(float *));
    w->handles = xr_calloc(layout->matrix_count + 1u, sizeof(xray_weight *));
    w->tensors = xr_calloc(layout->param_count, sizeof(xray_tensor));
    if (!w->buckets || !w->handles || !w->tensors)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    xray_status status = take_buckets(w, owner, err);
    if (status == XRAY_OK)
        status = make_handles(w, trainable, err);
    if (status == XRAY_OK)
        publish(w);
    return status;
}

xray_status xm_weights_create(const xm_layout *layout,
                              const xray_device_ops *device, void *device_self,
                              const char *owner, int trainable, xr_err *err,
                              xm_weights **out)
{
    xm_weights *w = xr_calloc(1, sizeof *w);
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    w->layout = layout;
    w->device = device;
    w->device_self = device_self;
    xray_status status = fill(w, owner, trainable, err);
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
    free(w);
}

xray_status xm_weights_changed(xm_weights *w, uint64_t version, xr_err *err)
{
    if (w->leases > 0)
        return xr_fail(err, XRAY_E_STATE,
                       "the weights changed under %u lease%s: their readers "
                       "must finish first",
                       w->leases, w->leases == 1 ? "" : "s");
    for (uint32_t i = 0; i < w->layout->matrix_count; i++) {
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
