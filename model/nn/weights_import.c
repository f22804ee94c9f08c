/* SPDX-License-Identifier: Apache-2.0
 *
 * Imports the values of weights from another published table.
 */
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

/* Finds the source's tensor; NULL for a value head that the source lacks. */
static xray_status find_source_tensor(const xm_param *param,
                                      const xray_weights *table, xr_err *err,
                                      const xray_tensor **out)
{
    *out = NULL;
    if (param->slot == XM_VALUE && !xm_find_tensor(table, param->name))
        return XRAY_OK;
    return xm_tensor_find(table, param, err, out);
}

/* Copies or casts between memories of one device. */
static xray_status import_on_device(const xm_weights *w, const xm_param *param,
                                    const xm_stage *s, const xray_tensor *from)
{
    const xray_tensor *to = xm_param_tensor(w, param);
    if (from->dtype == to->dtype)
        return xm_stage_copy_bytes(
            s, to->data, from->data,
            param->count * (to->dtype == XRAY_BF16 ? 2 : sizeof(float)),
            XRAY_COPY_ON_DEVICE);
    xray_cast call = { .header = XRAY_HEADER(xray_cast),
                       .count = param->count,
                       .x = from->data,
                       .y = to->data,
                       .x_dtype = from->dtype,
                       .y_dtype = to->dtype };
    xray_status status = w->device->cast(w->device_self, NULL, &call);
    return status == XRAY_OK ? w->device->sync(w->device_self, NULL) : status;
}

static xray_status import_parameter(const xm_weights *w, const xm_param *param,
                                    const xray_weights *table,
                                    const xm_stage *s, xr_err *err)
{
    const xray_tensor *tensor = NULL;
    xray_status status = find_source_tensor(param, table, err, &tensor);
    if (status != XRAY_OK || !tensor)
        return status;
    if (table->device_self == w->device_self) {
        status = import_on_device(w, param, s, tensor);
        return status == XRAY_OK
                   ? status
                   : xr_fail(err, status, "%s: copy failed", param->name);
    }
    if (tensor->dtype != XRAY_F32)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "%s: only fp32 can be imported from another device",
                       param->name);
    remote_source r = { .from = { .device = table->device,
                                  .device_self = table->device_self },
                        .data = tensor->data };
    return xm_stage_fill(w, param, s, read_remote_values, &r, err);
}

/* Parameters that the table has; all parameters if `came` is NULL. */
static int is_param_wanted(const xm_weights *w, uint32_t i,
                           const xray_weights *from, const unsigned char *came)
{
    return !came || xm_find_tensor(from, w->layout->params[i].name);
}

/* Checks all tensors before the first value is imported. */
static xray_status check_source_tensors(const xm_weights *w,
                                        const xray_weights *table,
                                        const unsigned char *came, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xray_tensor *tensor = NULL;
        if (is_param_wanted(w, i, table, came))
            status =
                find_source_tensor(&w->layout->params[i], table, err, &tensor);
    }
    return status;
}

static xray_status import_parameters(xm_weights *w, const xray_weights *from,
                                     unsigned char *came, xr_err *err)
{
    xm_stage s = { 0 };
    xray_status status = xm_weights_check_unleased(w, err);
    if (status == XRAY_OK)
        status = check_source_tensors(w, from, came, err);
    if (status == XRAY_OK)
        status = xm_stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        if (!is_param_wanted(w, i, from, came))
            continue;
        status = import_parameter(w, &w->layout->params[i], from, &s, err);
        if (came)
            came[i] = 1;
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
                                   unsigned char *came, xr_err *err)
{
    xray_status status = import_parameters(w, from, came, err);
    return status == XRAY_OK ? xm_weights_changed(w, w->version, err) : status;
}
