/* SPDX-License-Identifier: Apache-2.0
 *
 * The way of values to a device, and values out of another table.
 */
#include "model/nn/weights_io.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/hf/safetensors.h"

/* Values pass through here on their way to a device whose memory the host
 * cannot reach, and to be rounded. */
#define STAGE_COUNT ((uint64_t)1 << 20)

xray_status xm_stage_open(const xm_weights *w, xr_err *err, xm_stage *out)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = w->device->info(w->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device tells nothing about itself");
    *out = (xm_stage){ .device = w->device,
                       .device_self = w->device_self,
                       .direct = info.host_memory != 0 };
    if (out->direct && !(w->flags & XM_WEIGHTS_BF16))
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

static xray_status copy_and_sync(const xm_stage *s, void *to, const void *from,
                                 uint64_t bytes, uint32_t kind)
{
    xray_status status =
        s->device->copy(s->device_self, NULL, to, from, bytes, kind);
    return status == XRAY_OK ? s->device->sync(s->device_self, NULL) : status;
}

xray_status xm_stage_move(const xm_stage *s, void *to, const void *from,
                          uint64_t count, uint32_t kind)
{
    return copy_and_sync(s, to, from, count * sizeof(float), kind);
}

/* In place: what is written lies before what is still to be read. */
static void round_to_bf16(float *values, uint64_t count)
{
    unsigned char *to = (unsigned char *)values;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half = xm_f32_to_bf16(values[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

xray_status xm_stage_fill(const xm_weights *w, const xm_param *param,
                          const xm_stage *s, xm_source from, void *ctx,
                          xr_err *err)
{
    const xray_tensor *tensor = xm_param_tensor(w, param);
    int narrow = tensor->dtype == XRAY_BF16;
    uint64_t size = narrow ? 2 : sizeof(float);
    if (tensor->count == 0)
        return XRAY_OK;
    if (s->direct && !narrow)
        return from(ctx, tensor->first, tensor->count, tensor->data, err);
    for (uint64_t first = 0; first < tensor->count; first += STAGE_COUNT) {
        uint64_t left = tensor->count - first;
        uint64_t count = left < STAGE_COUNT ? left : STAGE_COUNT;
        xray_status status =
            from(ctx, tensor->first + first, count, s->buffer, err);
        if (status != XRAY_OK)
            return status;
        if (narrow)
            round_to_bf16(s->buffer, count);
        status = copy_and_sync(s, (unsigned char *)tensor->data + first * size,
                               s->buffer, count * size, XRAY_COPY_TO_DEVICE);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copy to the device failed",
                           param->name);
    }
    return XRAY_OK;
}

xray_status xm_weights_check_unleased(const xm_weights *w, xr_err *err)
{
    if (w->leases == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_STATE,
                   "the weights cannot change while %u reader%s hold%s them",
                   w->leases, w->leases == 1 ? "" : "s",
                   w->leases == 1 ? "s" : "");
}

/* "[3, 4]" */
static void format_shape(const uint64_t *shape, uint32_t dims, char *out,
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
    format_shape(shape, dims, got_text, sizeof got_text);
    format_shape(want, want_dims, want_text, sizeof want_text);
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: tensor %s has shape %s, the model's config says %s",
                   where, param->name, got_text, want_text);
}

const xray_tensor *xm_tensor_named(const xray_weights *table, const char *name)
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

xray_status xm_tensor_shaped(const xray_weights *table, const xm_param *param,
                             xr_err *err, const xray_tensor **out)
{
    *out = xm_tensor_named(table, param->name);
    if (!*out)
        return xr_fail(err, XRAY_E_CONFIG,
                       "tensor %s is not among the published weights",
                       param->name);
    return xm_param_check_shape(param, 0, (*out)->shape, (*out)->dims,
                                "published weights", err);
}

xray_status xm_tensor_find(const xray_weights *table, const xm_param *param,
                           xr_err *err, const xray_tensor **out)
{
    const xray_tensor *tensor = NULL;
    xray_status status = xm_tensor_shaped(table, param, err, &tensor);
    if (status != XRAY_OK)
        return status;
    if (tensor->first != 0 || tensor->count != param->count)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: only elements [%llu, %llu) of it are "
                       "published, the whole is needed",
                       param->name, (unsigned long long)tensor->first,
                       (unsigned long long)(tensor->first + tensor->count));
    int narrow = tensor->dtype == XRAY_BF16 && param->cols;
    if ((tensor->dtype != XRAY_F32 && !narrow) || !tensor->data)
        return xr_fail(err, XRAY_E_UNSUPPORTED,
                       "tensor %s: element type %u is published, fp32 (or "
                       "bf16 of a matrix) is needed",
                       param->name, tensor->dtype);
    *out = tensor;
    return XRAY_OK;
}

typedef struct remote_source {
    xm_stage from;
    const float *data;
} remote_source;

static xray_status read_remote_values(void *ctx, uint64_t first, uint64_t count,
                                      float *out, xr_err *err)
{
    const remote_source *r = ctx;
    xray_status status =
        xm_stage_move(&r->from, out, r->data + first, count, XRAY_COPY_TO_HOST);
    if (status != XRAY_OK)
        return xr_fail(err, status, "copy from the source's device failed");
    return XRAY_OK;
}

/* The source's tensor; NULL for a value head that it does not have. */
static xray_status find_source_tensor(const xm_param *param,
                                      const xray_weights *table, xr_err *err,
                                      const xray_tensor **out)
{
    *out = NULL;
    if (param->slot == XM_VALUE && !xm_tensor_named(table, param->name))
        return XRAY_OK;
    return xm_tensor_find(table, param, err, out);
}

/* Between memories of one device. */
static xray_status import_on_device(const xm_weights *w, const xm_param *param,
                                    const xm_stage *s, const xray_tensor *from)
{
    const xray_tensor *to = xm_param_tensor(w, param);
    if (from->dtype == to->dtype)
        return copy_and_sync(s, to->data, from->data,
                             param->count *
                                 (to->dtype == XRAY_BF16 ? 2 : sizeof(float)),
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
                       "%s: only fp32 is taken from another device",
                       param->name);
    remote_source r = { .from = { .device = table->device,
                                  .device_self = table->device_self },
                        .data = tensor->data };
    return xm_stage_fill(w, param, s, read_remote_values, &r, err);
}

/* Parameters that the table has, or, without `came`, all. */
static int is_param_wanted(const xm_weights *w, uint32_t i,
                           const xray_weights *from, const unsigned char *came)
{
    return !came || xm_tensor_named(from, w->layout->params[i].name);
}

/* All is checked before the first value is taken. */
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
