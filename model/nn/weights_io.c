/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of values to a device, and values out of another table.
 */
#include "model/nn/weights_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Values pass through here on their way to a device whose memory the host
 * cannot reach. A multiple of 4, so that random draws are never cut. */
#define STAGE_COUNT ((uint64_t)1 << 20)

xray_status xm_stage_open(const xm_weights *w, xr_err *err, xm_stage *out)
{
    xray_device_info info = { .head = XRAY_HEAD(xray_device_info) };
    xray_status status = w->device->info(w->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device tells nothing about itself");
    *out = (xm_stage){ .device = w->device,
                       .device_self = w->device_self,
                       .direct = info.host_memory != 0 };
    if (out->direct)
        return XRAY_OK;
    out->buffer = malloc(STAGE_COUNT * sizeof(float));
    if (!out->buffer)
        return xr_fail(err, XRAY_E_NOMEM, "weights: out of memory");
    return XRAY_OK;
}

void xm_stage_close(xm_stage *s)
{
    free(s->buffer);
    s->buffer = NULL;
}

xray_status xm_stage_move(const xm_stage *s, void *to, const void *from,
                          uint64_t count, uint32_t kind)
{
    xray_status status = s->device->copy(s->device_self, NULL, to, from,
                                         count * sizeof(float), kind);
    return status == XRAY_OK ? s->device->sync(s->device_self, NULL) : status;
}

xray_status xm_stage_fill(const xm_weights *w, const xm_param *param,
                          const xm_stage *s, xm_source from, void *ctx,
                          xr_err *err)
{
    float *data = xm_param_data(w, param);
    if (s->direct)
        return from(ctx, 0, param->count, data, err);
    for (uint64_t first = 0; first < param->count; first += STAGE_COUNT) {
        uint64_t left = param->count - first;
        uint64_t count = left < STAGE_COUNT ? left : STAGE_COUNT;
        xray_status status = from(ctx, first, count, s->buffer, err);
        if (status != XRAY_OK)
            return status;
        status = xm_stage_move(s, data + first, s->buffer, count,
                               XRAY_COPY_TO_DEVICE);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copy to the device failed",
                           param->name);
    }
    return XRAY_OK;
}

xray_status xm_weights_free_to_change(const xm_weights *w, xr_err *err)
{
    if (w->leases == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_STATE,
                   "the weights cannot change while %u reader%s hold%s them",
                   w->leases, w->leases == 1 ? "" : "s",
                   w->leases == 1 ? "s" : "");
}

/* "[3, 4]" */
static void shape_text(const uint64_t *shape, uint32_t dims, char *out,
                       size_t cap)
{
    size_t used = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < dims && used < cap; i++) {
        int n = snprintf(out + used, cap - used, "%s%llu", i ? ", " : "[",
                         (unsigned long long)shape[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < cap)
        (void)snprintf(out + used, cap - used, dims ? "]" : "[]");
}

xray_status xm_param_check_shape(const xm_param *param, int on_disk,
                                 const uint64_t *shape, uint32_t dims,
                                 const char *where, xr_err *err)
{
    uint32_t want_dims = param->cols ? 2 : 1;
    int turned = on_disk && param->transposed;
    uint64_t want[2] = { turned ? param->cols : param->rows,
                         turned ? param->rows : param->cols };
    if (dims == want_dims && shape[0] == want[0] &&
        (dims == 1 || shape[1] == want[1]))
        return XRAY_OK;
    char got_text[128];
    char want_text[64];
    shape_text(shape, dims, got_text, sizeof got_text);
    shape_text(want, want_dims, want_text, sizeof want_text);
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: tensor %s has shape %s, the model's config says %s",
                   where, param->name, got_text, want_text);
}

static const xray_tensor *find_tensor(const xray_weights *table,
                                      const char *name)
{
    const char *at = (const char *)table->tensors;
    for (uint32_t i = 0; i < table->tensor_count; i++) {
        const xray_tensor *tensor =
            (const void *)(at + (uint64_t)i * table->tensor_stride);
        if (strcmp(tensor->name, name) == 0)
            return tensor;
    }
    return NULL;
}

xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out)
{
    const xray_tensor *tensor = find_tensor(table, param->name);
    if (!tensor)
        return xr_fail(err, XRAY_E_CONFIG,
                       "tensor %s is not among the published weights",
                       param->name);
    xray_status status = xm_param_check_shape(
        param, 0, tensor->shape, tensor->dims, "published weights", err);
    if (status != XRAY_OK)
        return status;
    if (tensor->first != 0 || tensor->count != param->count)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: only elements [%llu, %llu) of it are "
                       "published, the whole is needed",
                       param->name, (unsigned long long)tensor->first,
                       (unsigned long long)(tensor->first + tensor->count));
    if (tensor->dtype != XRAY_F32 || !tensor->data)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: element type %u is published, fp32 is "
                       "needed",
                       param->name, tensor->dtype);
    *out = tensor;
    return XRAY_OK;
}

typedef struct remote {
    xm_stage from;
    const float *data;
} remote;

static xray_status from_remote(void *ctx, uint64_t first, uint64_t count,
                               float *out, xr_err *err)
{
    const remote *r = ctx;
    xray_status status =
        xm_stage_move(&r->from, out, r->data + first, count, XRAY_COPY_TO_HOST);
    if (status != XRAY_OK)
        return xr_fail(err, status, "copy from the source's device failed");
    return XRAY_OK;
}

/* The source's tensor; NULL for a value head that it does not have. */
static xray_status find_source(const xm_param *param, const xray_weights *table,
                               xr_err *err, const xray_tensor **out)
{
    *out = NULL;
    if (param->slot == XM_VALUE && !find_tensor(table, param->name))
        return XRAY_OK;
    return xm_tensor_find(table, param, err, out);
}

static xray_status import_param(const xm_weights *w, const xm_param *param,
                                const xray_weights *table, const xm_stage *s,
                                xr_err *err)
{
    const xray_tensor *tensor = NULL;
    xray_status status = find_source(param, table, err, &tensor);
    if (status != XRAY_OK || !tensor)
        return status;
    if (table->device_self == w->device_self) {
        status = xm_stage_move(s, xm_param_data(w, param), tensor->data,
                               param->count, XRAY_COPY_ON_DEVICE);
        return status == XRAY_OK
                   ? status
                   : xr_fail(err, status, "%s: copy failed", param->name);
    }
    remote r = { .from = { .device = table->device,
                           .device_self = table->device_self },
                 .data = tensor->data };
    return xm_stage_fill(w, param, s, from_remote, &r, err);
}

static xray_status check_source(const xm_weights *w, const xray_weights *table,
                                xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++) {
        const xray_tensor *tensor = NULL;
        status = find_source(&w->layout->params[i], table, err, &tensor);
    }
    return status;
}

xray_status xm_weights_import(xm_weights *w, const xray_weights *from,
                              xr_err *err)
{
    xm_stage s = { 0 };
    xray_status status = xm_weights_free_to_change(w, err);
    if (status == XRAY_OK)
        status = check_source(w, from, err);
    if (status == XRAY_OK)
        status = xm_stage_open(w, err, &s);
    for (uint32_t i = 0; i < w->layout->param_count && status == XRAY_OK; i++)
        status = import_param(w, &w->layout->params[i], from, &s, err);
    xm_stage_close(&s);
    if (status != XRAY_OK)
        return status;
    uint64_t version = from->version ? from->version(from->owner) : w->version;
    return xm_weights_changed(w, version, err);
}
