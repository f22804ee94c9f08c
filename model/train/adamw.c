/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates the state of AdamW on the device and updates the buckets of a
 * layout with it.
 */
#include "model/train/adamw.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xray/numerics.h>

#include "core/base/str.h"

/* `scalars` and `squares` share one allocation of device memory. */
#define SQUARES_OFFSET 32u
#define SMALL_BYTES (SQUARES_OFFSET + XRAY_SQUARES_WORDS * sizeof(uint64_t))

xm_range xm_adamw_range(const xm_layout *layout, uint32_t bucket,
                        uint32_t all_elements)
{
    if (bucket < layout->frozen)
        return (xm_range){ 0, 0 };
    return all_elements ? (xm_range){ 0, layout->bucket_sizes[bucket] }
                        : xm_bucket_share(layout, bucket);
}

uint64_t xm_adamw_state_bytes(const xm_layout *layout, uint32_t all_elements)
{
    uint64_t elements = 0;
    for (uint32_t b = 0; b < layout->bucket_count; b++)
        elements += xm_adamw_range(layout, b, all_elements).count;
    return 2 * elements * sizeof(float);
}

uint64_t xm_adamw_bytes(const xm_layout *layout, uint32_t all_elements)
{
    return xm_adamw_state_bytes(layout, all_elements) + SMALL_BYTES;
}

/* True if `param`, whose elements start at `offset`, follows the end of the run
 * closely enough to join it. The elements between the two are padding: their
 * weights, gradients and moments are zero and stay zero. */
static int extends_run(const xm_adamw_run *run, const xm_param *param,
                       uint64_t offset)
{
    return run->bucket == param->bucket && run->decay == param->decay &&
           offset >= run->offset + run->count &&
           offset - run->offset - run->count < 16;
}

static xray_status make_runs(xm_adamw *adamw, xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    adamw->runs = xr_calloc(layout->param_count, sizeof(*adamw->runs));
    if (!adamw->runs)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for the optimizer");
    for (uint32_t i = 0; i < layout->param_count; i++) {
        const xm_param *param = &layout->params[i];
        xm_adamw_run *last = adamw->runs + adamw->run_count;
        xm_range range =
            xm_adamw_range(layout, param->bucket, adamw->options.all_elements);
        xm_range own = xm_param_in(param, range);
        uint64_t offset = param->offset + own.first - range.first;
        if (own.count == 0)
            continue;
        if (adamw->run_count && extends_run(last - 1, param, offset)) {
            last[-1].count = offset + own.count - last[-1].offset;
            continue;
        }
        *last = (xm_adamw_run){ .offset = offset,
                                .count = own.count,
                                .bucket = param->bucket,
                                .decay = param->decay };
        adamw->run_count++;
    }
    return XRAY_OK;
}

static xray_status alloc_state(xm_adamw *adamw, const char *owner,
                               uint64_t bytes, void **out, xr_err *err)
{
    xray_status status = adamw->device->alloc(adamw->device_self, owner,
                                              XRAY_TAG_OPTIMIZER, bytes, out);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status,
                         "%s: no %" PRIu64 " bytes for the optimizer", owner,
                         bytes);
}

/* Opens the memory of streamed moments, and returns where it is. */
static xray_status open_stream(xm_adamw *adamw, const char *owner, float **out,
                               xr_err *err)
{
    uint64_t bytes =
        xm_adamw_state_bytes(adamw->layout, adamw->options.all_elements);
    xray_status status = xm_moments_open(&adamw->stream, adamw->device,
                                         adamw->device_self, bytes, owner, err);
    *out = adamw->stream.host;
    return status;
}

static xray_status open_senders(xm_adamw *adamw, const char *owner, xr_err *err)
{
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    xray_status status = adamw->device->info(adamw->device_self, &info);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: the device gives no information about itself",
                       owner);
    for (uint32_t i = 0;
         !info.host_memory && i < XM_ADAMW_SENDERS && status == XRAY_OK; i++)
        status = xm_staging_open(&adamw->senders[i], adamw->device,
                                 adamw->device_self, owner,
                                 sizeof(adamw->host_scalars), err);
    return status;
}

static xray_status alloc_moments(xm_adamw *adamw, const char *owner,
                                 xr_err *err)
{
    const xm_layout *layout = adamw->layout;
    adamw->m = xr_calloc(layout->bucket_count, sizeof(float *));
    adamw->v = xr_calloc(layout->bucket_count, sizeof(float *));
    if (!adamw->m || !adamw->v)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for the optimizer");
    void *memory = NULL;
    xray_status status = alloc_state(adamw, owner, SMALL_BYTES, &memory, err);
    if (status != XRAY_OK)
        return status;
    adamw->scalars = memory;
    adamw->squares = (uint64_t *)(void *)((char *)memory + SQUARES_OFFSET);
    float *given = adamw->options.memory;
    if (adamw->options.streamed)
        status = open_stream(adamw, owner, &given, err);
    if (status != XRAY_OK)
        return status;
    for (uint32_t b = 0; b < 2 * layout->bucket_count; b++) {
        uint32_t bucket = b / 2;
        uint64_t count =
            xm_adamw_range(layout, bucket, adamw->options.all_elements).count;
        if (count == 0)
            continue;
        memory = given;
        if (given)
            given += count;
        else
            status =
                alloc_state(adamw, owner, count * sizeof(float), &memory, err);
        if (status != XRAY_OK)
            return status;
        *(b % 2 ? &adamw->v[bucket] : &adamw->m[bucket]) = memory;
    }
    return make_runs(adamw, err);
}

xray_status xm_adamw_create(const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const xm_adamw_options *options, const char *owner,
                            xr_err *err, xm_adamw **out)
{
    xm_adamw *adamw = calloc(1, sizeof(*adamw));
    if (!adamw)
        return xr_fail(err, XRAY_E_NOMEM, "no memory for the optimizer");
    adamw->device = device;
    adamw->device_self = device_self;
    adamw->layout = layout;
    adamw->options = *options;
    xm_adamw_set_steps(adamw, 0);
    xray_status status = alloc_moments(adamw, owner, err);
    if (status == XRAY_OK)
        status = open_senders(adamw, owner, err);
    if (status != XRAY_OK) {
        xm_adamw_destroy(adamw);
        return status;
    }
    *out = adamw;
    return XRAY_OK;
}

void xm_adamw_destroy(xm_adamw *adamw)
{
    if (!adamw)
        return;
    int own = !adamw->options.memory && !adamw->options.streamed;
    for (uint32_t b = 0; own && b < adamw->layout->bucket_count; b++) {
        if (adamw->m)
            adamw->device->free(adamw->device_self, adamw->m[b]);
        if (adamw->v)
            adamw->device->free(adamw->device_self, adamw->v[b]);
    }
    xm_moments_close(&adamw->stream);
    for (uint32_t i = 0; i < XM_ADAMW_SENDERS; i++)
        xm_staging_close(&adamw->senders[i]);
    adamw->device->free(adamw->device_self, adamw->scalars);
    free(adamw->m);
    free(adamw->v);
    free(adamw->runs);
    free(adamw);
}

void xm_adamw_set_steps(xm_adamw *adamw, uint64_t steps)
{
    adamw->steps = steps;
    adamw->power1 = 1.0;
    adamw->power2 = 1.0;
    for (uint64_t i = 0; i < steps; i++) {
        adamw->power1 *= adamw->options.beta1;
        adamw->power2 *= adamw->options.beta2;
    }
}

static xray_status update_run(xm_adamw *adamw, const xm_adamw_run *run,
                              float *const *weights, float *const *grads)
{
    const xm_adamw_options *options = &adamw->options;
    xray_adamw call = {
        .header = XRAY_HEADER(xray_adamw),
        .count = run->count,
        .p = weights[run->bucket] + run->offset,
        .g = grads[run->bucket] + run->offset,
        .m = adamw->m[run->bucket] + run->offset,
        .v = adamw->v[run->bucket] + run->offset,
        .scalars = adamw->scalars,
        .beta1 = (float)options->beta1,
        .beta2 = (float)options->beta2,
        .eps = (float)options->eps,
        .weight_decay = run->decay ? (float)options->weight_decay : 0.0f,
        .out_dtype = XRAY_F32,
    };
    return options->streamed
               ? xm_moments_update(&adamw->stream, &call)
               : adamw->device->adamw(adamw->device_self, NULL, &call);
}

static xray_status send_scalars(xm_adamw *adamw, xr_err *err)
{
    xm_staging *sender = &adamw->senders[adamw->sent++ % XM_ADAMW_SENDERS];
    const float *from = adamw->host_scalars;
    xray_status status = xm_staging_begin(sender, 1, err);
    if (status != XRAY_OK)
        return status;
    if (sender->memory.data)
        from = memcpy(sender->memory.data, from, sizeof(adamw->host_scalars));
    status =
        adamw->device->copy(adamw->device_self, NULL, adamw->scalars, from,
                            sizeof(adamw->host_scalars), XRAY_COPY_TO_DEVICE);
    return status == XRAY_OK ? xm_staging_end(sender, err) : status;
}

xray_status xm_adamw_step(xm_adamw *adamw, float *const *weights,
                          float *const *grads, double lr, double clip,
                          xr_err *err)
{
    double power1 = adamw->power1 * adamw->options.beta1;
    double power2 = adamw->power2 * adamw->options.beta2;
    adamw->host_scalars[0] = (float)lr;
    adamw->host_scalars[1] = (float)clip;
    adamw->host_scalars[2] = (float)(1.0 - power1);
    adamw->host_scalars[3] = (float)(1.0 - power2);
    xray_status status = send_scalars(adamw, err);
    for (uint32_t i = 0; status == XRAY_OK && i < adamw->run_count; i++) {
        if (xr_stop_check(adamw->calls, err) != XRAY_OK)
            return XRAY_E_CANCELED;
        status = update_run(adamw, &adamw->runs[i], weights, grads);
    }
    if (status == XRAY_OK && adamw->options.streamed)
        status = xm_moments_join(&adamw->stream);
    if (status != XRAY_OK)
        return xr_fail(err, status, "the optimizer's update failed");
    adamw->steps++;
    adamw->power1 = power1;
    adamw->power2 = power2;
    return XRAY_OK;
}
