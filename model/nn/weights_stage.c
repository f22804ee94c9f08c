/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies values to a device, through a buffer where the host cannot access its
 * memory or values must be rounded to bf16.
 */
#include "model/nn/weights_internal.h"

#include <stdlib.h>
#include <string.h>

#include "model/hf/safetensors.h"

/* Floats in the buffer, and those between two looks at the stop. */
#define STAGE_COUNT ((uint64_t)1 << 18)

xray_status xm_stage_open(const xm_weights *w, xr_err *err, xm_stage *out)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = w->device->info(w->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device could not describe itself");
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

xray_status xm_stage_copy_bytes(const xm_stage *s, void *to, const void *from,
                                uint64_t bytes, uint32_t kind)
{
    xray_status status =
        s->device->copy(s->device_self, NULL, to, from, bytes, kind);
    return status == XRAY_OK ? s->device->sync(s->device_self, NULL) : status;
}

xray_status xm_stage_copy_floats(const xm_stage *s, void *to, const void *from,
                                 uint64_t count, uint32_t kind)
{
    return xm_stage_copy_bytes(s, to, from, count * sizeof(float), kind);
}

/* Rounds in place, which is safe: each write lies before all values still to be
 * read. */
static void round_to_bf16(float *values, uint64_t count)
{
    unsigned char *to = (unsigned char *)values;
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half = xm_f32_to_bf16(values[i]);
        memcpy(to + 2 * i, &half, sizeof half);
    }
}

/* Produces elements [first, first + count) of what weights have of a parameter.
 */
static xray_status produce_values(const xm_param *param, xm_source from,
                                  void *ctx, uint64_t first, uint64_t count,
                                  float *out, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint64_t done = 0; done < count && status == XRAY_OK;) {
        uint64_t at = 0;
        uint64_t run = xm_param_run(param, first + done, &at);
        if (run > count - done)
            run = count - done;
        status = from(ctx, at, run, out + done, err);
        done += run;
    }
    return status;
}

xray_status xm_stage_fill(const xm_weights *w, const xm_param *param,
                          const xm_stage *s, xm_source from, void *ctx,
                          xr_err *err)
{
    const xm_held *held = xm_param_held(w, param);
    int narrow = held->dtype == XRAY_BF16;
    uint64_t size = narrow ? 2 : sizeof(float);
    if (held->count == 0)
        return XRAY_OK;
    for (uint64_t first = 0; first < held->count; first += STAGE_COUNT) {
        uint64_t left = held->count - first;
        uint64_t count = left < STAGE_COUNT ? left : STAGE_COUNT;
        int direct = s->direct && !narrow;
        float *to = direct ? (float *)held->data + first : s->buffer;
        xray_status status = xr_stop_check(w->calls, err);
        if (status == XRAY_OK)
            status = produce_values(param, from, ctx, held->first + first,
                                    count, to, err);
        if (status != XRAY_OK)
            return status;
        if (direct)
            continue;
        if (narrow)
            round_to_bf16(s->buffer, count);
        status =
            xm_stage_copy_bytes(s, (unsigned char *)held->data + first * size,
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
