/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports the values of weights from another published table: all of the
 * boxes that it has of each parameter.
 */
#include "core/base/box.h"
#include "model/nn/weights_internal.h"

typedef struct remote_source {
    xm_stage from;
    const float *data;
} remote_source;

static xray_status read_remote_values(void *ctx, uint64_t first, uint64_t count,
                                      float *out, xr_err *err)
{
    const remote_source *r = ctx;
    xray_status status = xm_stage_copy_floats(&r->from, out, r->data + first,
                                              count, XRAY_COPY_TO_HOST);
    if (status != XRAY_OK)
        return xr_fail(err, status, "copy from the source's device failed");
    return XRAY_OK;
}

/* Finds the source's first box; NULL for a value head that the source lacks. */
static xray_status find_source_tensor(const xm_param *param,
                                      const xray_weights *table, xr_err *err,
                                      const xray_tensor **out)
{
    *out = NULL;
    if (param->slot == XM_VALUE && !xm_find_tensor(table, param->name))
        return XRAY_OK;
    return xm_find_param_tensor(table, param, err, out);
}

/* Checks the type and the place of one box of the source. */
static xray_status check_source_box(const xm_weights *w, const xm_param *param,
                                    const xray_weights *table,
                                    const xray_tensor *box, xr_err *err)
{
    int narrow = box->dtype == XRAY_BF16 && param->cols;
    if ((box->dtype != XRAY_F32 && !narrow) ||
        (!box->data && xray_box_count(box)))
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: its published element type is %u, expected "
                       "fp32 (or bf16 for a matrix)",
                       param->name, box->dtype);
    if (table->device_self == w->device_self)
        return XRAY_OK;
    if (box->dtype != XRAY_F32)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: only fp32 can be imported from another device",
                       param->name);
    return xray_box_is_plain(box)
               ? XRAY_OK
               : xr_fail(err, XRAY_E_UNSUPPORTED,
                         "%s: only all of it in one piece can be imported from "
                         "another device",
                         param->name);
}

/* Copies or casts what two boxes have in common, in memories of one device. */
static xray_status import_box(const xm_weights *w, const xray_tensor *own,
                              const xray_tensor *box)
{
    xr_box_device device = { w->device, w->device_self };
    xray_tensor from;
    xray_tensor to;
    if (xray_box_cut(box, own, &from) == 0)
        return XRAY_OK;
    (void)xray_box_cut(own, box, &to);
    xray_status status =
        from.dtype == to.dtype
            ? xr_box_copy(device, &to, &from, XRAY_COPY_ON_DEVICE)
            : xr_box_cast(device, &to, &from);
    return status == XRAY_OK ? w->device->sync(w->device_self, NULL) : status;
}

static xray_status import_parameter(const xm_weights *w, const xm_param *param,
                                    const xray_weights *table, xm_stage *s,
                                    xr_err *err)
{
    const xray_tensor *own = xm_param_held(w, param)->boxes;
    const xray_tensor *box = NULL;
    xray_status status = find_source_tensor(param, table, err, &box);
    if (status != XRAY_OK || !box)
        return status;
    if (table->device_self != w->device_self) {
        remote_source r = { .from = { .device = table->device,
                                      .device_self = table->device_self },
                            .data = box->data };
        return xm_stage_fill(w, param, s, read_remote_values, &r, err);
    }
    for (; box && status == XRAY_OK; box = xm_next_box(table, box))
        for (uint32_t p = 0; p < param->piece_count && status == XRAY_OK; p++)
            status = import_box(w, &own[p], box);
    return status == XRAY_OK
               ? status
               : xr_fail(err, status, "%s: copy failed", param->name);
}

/* Parameters that the table has; all parameters if `came` is NULL. */
static int is_param_wanted(const xm_weights *w, uint32_t i,
                           const xray_weights *from, const uint64_t *came)
{
    return !came || xm_find_tensor(from, w->layout->params[i].name);
}

/* Elements of a parameter that the table has. */
static uint64_t count_source_elements(const xm_weights *w,
                                      const xm_param *param,
                                      const xray_weights *table)
{
    const xray_tensor *own = xm_param_held(w, param)->boxes;
    xray_tensor part;
    uint64_t count = 0;
    for (const xray_tensor *box = xm_find_tensor(table, param->name); box;
         box = xm_next_box(table, box))
        for (uint32_t p = 0; p < param->piece_count; p++)
            count += xray_box_cut(box, &own[p], &part);
    return count;
}

/* Checks the boxes of a parameter and adds up their elements; all of them must
 * be there unless parts may come. */
static xray_status check_source_param(const xm_weights *w,
                                      const xm_param *param,
                                      const xray_weights *table, int parts,
                                      xr_err *err)
{
    const xray_tensor *box = NULL;
    uint64_t found = count_source_elements(w, param, table);
    xray_status status = find_source_tensor(param, table, err, &box);
    if (status != XRAY_OK || !box)
        return status;
    for (; box && status == XRAY_OK; box = xm_next_box(table, box))
        status = check_source_box(w, param, table, box, err);
    if (status != XRAY_OK || parts || found == param->count)
        return status;
    return xr_fail(err, XRAY_E_UNSUPPORTED,
                   "tensor %s: %llu of its %llu elements are published, but "
                   "all are needed",
                   param->name, (unsigned long long)found,
                   (unsigned long long)param->count);
}

/* Checks all tensors before the first value is imported. */
static xray_status check_source_tensors(const xm_weights *w,
                                        const xray_weights *table,
                                        const uint64_t *came, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        if (is_param_wanted(w, i, table, came))
            status = check_source_param(w, &w->layout->params[i], table,
                                        came != NULL, err);
    return status;
}

static xray_status import_parameters(xm_weights *w, const xray_weights *from,
                                     uint64_t *came, xr_err *err)
{
    xm_stage s = { 0 };
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK)
        status = check_source_tensors(w, from, came, err);
    if (status == XRAY_OK)
        status = xm_stage_open(w, err, &s);
    s.serial = 1;
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &w->layout->params[i];
        if (!is_param_wanted(w, i, from, came))
            continue;
        status = xr_stop_check(w->calls, err);
        if (status == XRAY_OK)
            status = import_parameter(w, param, from, &s, err);
        if (came)
            came[i] += count_source_elements(w, param, from);
    }
    xm_stage_close(&s);
    return status;
}

xray_status xm_weights_import(xm_weights *w, const xray_weights *from,
                              xr_err *err)
{
    xray_status status = import_parameters(w, from, NULL, err);
    if (status != XRAY_OK)
        return status;
    uint64_t version = from->version ? from->version(from->owner) : w->version;
    return xm_weights_changed(w, version, err);
}

xray_status xm_weights_import_part(xm_weights *w, const xray_weights *from,
                                   uint64_t *came, xr_err *err)
{
    xray_status status = import_parameters(w, from, came, err);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}
