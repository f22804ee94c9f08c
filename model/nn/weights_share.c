/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates weights that hold only a rank's shares of the buckets, and imports
 * values into them.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/box.h"
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

/* A box of a parameter's tensor: rows [row, row + rows), columns [col, col +
 * cols). */
static xray_tensor make_box(const xm_param *param, uint64_t row, uint64_t rows,
                            uint64_t col, uint64_t cols)
{
    uint32_t dims = param->cols ? 2 : 1;
    return (xray_tensor){ .name = param->name,
                          .dtype = XRAY_F32,
                          .dims = dims,
                          .shape = { param->all_rows, param->all_cols },
                          .lo = { row, col },
                          .extent = { rows, cols },
                          .stride = { dims == 2 ? param->cols : 1, dims - 1 } };
}

uint32_t xm_range_boxes(const xm_param *param, xm_range own, float *data,
                        xray_tensor *out)
{
    uint64_t cols = param->cols ? param->cols : 1;
    uint64_t col = own.first % cols;
    uint64_t left = own.count;
    uint64_t row = own.first / cols;
    uint32_t used = 0;
    if (left == 0)
        out[used++] = make_box(param, 0, 0, 0, 0);
    while (left > 0) {
        uint64_t first = 0;
        uint64_t rows = xm_param_rows(param, row, &first);
        uint64_t wide = left < cols - col ? left : cols - col;
        if (wide < cols)
            rows = 1;
        else if (left / cols < rows)
            rows = left / cols;
        out[used] = make_box(param, first, rows,
                             param->cols ? param->col_first + col : 0,
                             param->cols ? wide : 0);
        out[used++].data = data + (own.count - left);
        left -= rows * wide;
        row += rows;
        col = 0;
    }
    return used;
}

/* Adds the boxes of a parameter to the table. */
static void describe_share(xm_weights *w, uint32_t i)
{
    const xm_param *param = &w->layout->params[i];
    xm_range share = xm_bucket_share(w->layout, param->bucket);
    xm_range own = xm_param_in(param, share);
    float *data = w->buckets[param->bucket];
    if (own.count)
        data += param->offset + own.first - share.first;
    w->held[i] = (xm_held){
        .first = own.first, .count = own.count, .data = data, .dtype = XRAY_F32
    };
    w->table.tensor_count +=
        xm_range_boxes(param, own, data, &w->tensors[w->table.tensor_count]);
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
    w->tensors = xr_calloc((size_t)layout->param_count * XM_SHARE_BOXES,
                           sizeof(xray_tensor));
    w->held = xr_calloc(layout->param_count, sizeof(xm_held));
    if (!w->buckets || !w->handles || !w->tensors || !w->held) {
        xm_weights_destroy_share(w);
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    }
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        w->buckets[b] = memory[b];
    w->table = (xray_weights){
        XRAY_HEADER(xray_weights),  .tensor_stride = sizeof(xray_tensor),
        .tensors = w->tensors,      .device = device,
        .device_self = device_self, .owner = w,
        .version = share_version,   .lease = share_lease,
        .release = share_release
    };
    for (uint32_t i = 0; i < layout->param_count; i++)
        describe_share(w, i);
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
    free(w->held);
    free(w);
}

/* ---- import from another table ------------------------------------------ */

/* Checks that the source has all elements of box `to`, in boxes of type fp32.
 * A value head may be missing. */
static xray_status check_source(const xm_weights *w, const xray_weights *from,
                                const xray_tensor *to, xr_err *err)
{
    const xm_param *param = xm_layout_find(w->layout, to->name);
    const xray_tensor *box = xm_find_tensor(from, to->name);
    uint64_t found = 0;
    if (!box && param->slot == XM_VALUE)
        return XRAY_OK;
    xray_status status = xm_find_param_tensor(from, param, err, &box);
    if (status != XRAY_OK)
        return status;
    for (; box; box = xm_next_box(from, box)) {
        xray_tensor part;
        if (box->dtype != XRAY_F32)
            return xr_fail(
                err, XRAY_E_UNSUPPORTED,
                "tensor %s: its published element type is %u, expected fp32",
                to->name, box->dtype);
        found += xray_box_cut(box, to, &part);
    }
    return found == xray_box_count(to)
               ? XRAY_OK
               : xr_fail(err, XRAY_E_UNSUPPORTED,
                         "tensor %s: %llu of %llu elements that are needed are "
                         "published",
                         to->name, (unsigned long long)found,
                         (unsigned long long)xray_box_count(to));
}

/* Copies what the source has of box `to`. */
static xray_status import_box(const xm_weights *w, const xray_weights *from,
                              const xray_tensor *to, xr_err *err)
{
    xr_box_device device = { w->device, w->device_self };
    xray_status status = XRAY_OK;
    for (const xray_tensor *box = xm_find_tensor(from, to->name);
         box && status == XRAY_OK; box = xm_next_box(from, box)) {
        xray_tensor source;
        xray_tensor target;
        if (xray_box_cut(box, to, &source) == 0)
            continue;
        (void)xray_box_cut(to, box, &target);
        status = xr_box_copy(device, &target, &source, XRAY_COPY_ON_DEVICE);
        if (status == XRAY_OK)
            status = w->device->sync(w->device_self, NULL);
    }
    return status == XRAY_OK
               ? status
               : xr_fail(err, status, "%s: copy failed", to->name);
}

xray_status xm_weights_import_share(xm_weights *w, const xray_weights *from,
                                    xr_err *err)
{
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK && from->device_self != w->device_self)
        status = xr_fail(
            err, XRAY_E_UNSUPPORTED,
            "shares of weights can be imported from the same device only");
    /* Everything is checked before the first value is imported. */
    for (uint32_t i = 0; i < w->table.tensor_count && status == XRAY_OK; i++)
        status = check_source(w, from, &w->tensors[i], err);
    for (uint32_t i = 0; i < w->table.tensor_count && status == XRAY_OK; i++)
        status = import_box(w, from, &w->tensors[i], err);
    if (status == XRAY_OK)
        w->version = from->version ? from->version(from->owner) : w->version;
    return status;
}
