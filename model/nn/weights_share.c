/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates weights that hold only a rank's shares of the buckets, and imports
 * values into them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "model/hf/param_slots.h"
#include "model/nn/weights_internal.h"

static uint64_t share_version(void *owner)
{
    return ((const xm_weights *)owner)->version;
}

static xray_status share_lease(void *owner)
{
    ((xm_weights *)owner)->leases++;
    return XRAY_OK;
}

static void share_release(void *owner)
{
    xm_weights *weights = owner;
    if (weights->leases > 0)
        weights->leases--;
}

static void describe_share(xm_weights *w, uint32_t i)
{
    const xm_param *param = &w->layout->params[i];
    xm_range share = xm_bucket_share(w->layout, param->bucket);
    xm_range own = xm_param_in(param, share);
    float *data = w->buckets[param->bucket];
    if (own.count)
        data += param->offset + own.first - share.first;
    w->tensors[i] = (xray_tensor){ .name = param->name,
                                   .dtype = XRAY_F32,
                                   .dims = param->cols ? 2 : 1,
                                   .shape = { param->rows, param->cols },
                                   .first = own.first,
                                   .count = own.count,
                                   .data = data };
}

xray_status xm_weights_create_share(const xm_layout *layout,
                                    const xray_device_ops *device,
                                    void *device_self, float *const *memory,
                                    xr_err *err, xm_weights **out)
{
    xm_weights *w = xr_calloc(1, sizeof *w);
    if (!w)
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    *w = (xm_weights){ .layout = layout,
                       .device = device,
                       .device_self = device_self };
    w->buckets = xr_calloc(layout->bucket_count, sizeof(float *));
    w->handles = xr_calloc(layout->matrix_count + 1u, sizeof(xray_weight *));
    w->tensors = xr_calloc(layout->param_count, sizeof(xray_tensor));
    if (!w->buckets || !w->handles || !w->tensors) {
        xm_weights_destroy_share(w);
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    }
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        w->buckets[b] = memory[b];
    for (uint32_t i = 0; i < layout->param_count; i++)
        describe_share(w, i);
    w->table = (xray_weights){ XRAY_HEADER(xray_weights),
                               .tensor_count = layout->param_count,
                               .tensor_stride = sizeof(xray_tensor),
                               .tensors = w->tensors,
                               .device = device,
                               .device_self = device_self,
                               .owner = w,
                               .version = share_version,
                               .lease = share_lease,
                               .release = share_release };
    *out = w;
    return XRAY_OK;
}

void xm_weights_destroy_share(xm_weights *w)
{
    if (!w)
        return;
    free(w->handles);
    free(w->buckets);
    free(w->tensors);
    free(w);
}

/* ---- import from another table ------------------------------------------ */

/* Finds the source's tensor; NULL for a value head that the source lacks. */
static xray_status find_source_tensor(const xm_weights *w, uint32_t i,
                                      const xray_weights *from, xr_err *err,
                                      const xray_tensor **out)
{
    const xm_param *param = &w->layout->params[i];
    const xray_tensor *to = &w->tensors[i];
    *out = NULL;
    if (param->slot == XM_VALUE && !xm_find_tensor(from, param->name))
        return XRAY_OK;
    xray_status status = xm_find_param_tensor(from, param, err, out);
    if (status != XRAY_OK)
        return status;
    const xray_tensor *tensor = *out;
    if (tensor->dtype != XRAY_F32)
        return xr_fail(
            err, XRAY_E_UNSUPPORTED,
            "tensor %s: its published element type is %u, expected fp32",
            param->name, tensor->dtype);
    if (to->count && (tensor->first > to->first ||
                      tensor->first + tensor->count < to->first + to->count))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: elements [%llu, %llu) are published, but "
                       "[%llu, %llu) are needed",
                       param->name, (unsigned long long)tensor->first,
                       (unsigned long long)(tensor->first + tensor->count),
                       (unsigned long long)to->first,
                       (unsigned long long)(to->first + to->count));
    return XRAY_OK;
}

xray_status xm_weights_import_share(xm_weights *w, const xray_weights *from,
                                    xr_err *err)
{
    const xray_tensor *tensor = NULL;
    xm_stage stage = { .device = w->device, .device_self = w->device_self };
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK && from->device_self != w->device_self)
        status = xr_fail(
            err, XRAY_E_UNSUPPORTED,
            "shares of weights can be imported from the same device only");
    /* Everything is checked before the first value is imported. */
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = find_source_tensor(w, i, from, err, &tensor);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xray_tensor *to = &w->tensors[i];
        status = find_source_tensor(w, i, from, err, &tensor);
        if (status != XRAY_OK || !tensor || to->count == 0)
            continue;
        const float *data = tensor->data;
        status = xm_stage_copy_floats(&stage, to->data,
                                      data + to->first - tensor->first,
                                      to->count, XRAY_COPY_ON_DEVICE);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copy failed", to->name);
    }
    if (status == XRAY_OK)
        w->version = from->version ? from->version(from->owner) : w->version;
    return status;
}
