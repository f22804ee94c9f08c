/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates, clears and finishes the gradient buckets of a decoder.
 */
#include <stdlib.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

static uint64_t count_lookup_elements(const xm_config *config,
                                      const xm_layout *layout)
{
    return config->tied && !layout->frozen
               ? (uint64_t)config->vocab * config->hidden
               : 0;
}

uint64_t xm_grads_bytes(const xm_config *config, const xm_layout *layout)
{
    uint64_t count = count_lookup_elements(config, layout);
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        count += xm_bucket_capacity(layout, b);
    return count * sizeof(float);
}

static xray_status allocate_gradient(const xm_grads *g, const char *owner,
                                     uint64_t count, xr_err *err, float **out)
{
    void *data = NULL;
    uint64_t bytes = (count ? count : 1) * sizeof(float);
    xray_status status =
        g->device->alloc(g->device_self, owner, XRAY_TAG_GRADS, bytes, &data);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "%s: no device memory for gradients (%llu bytes)", owner,
                       (unsigned long long)bytes);
    *out = data;
    return XRAY_OK;
}

static xray_status allocate_buckets(xm_grads *g, const char *owner, xr_err *err)
{
    g->buckets = xr_calloc(g->layout->bucket_count, sizeof *g->buckets);
    if (!g->buckets)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    xray_status status = XRAY_OK;
    const xm_layout *layout = g->layout;
    for (uint32_t i = layout->frozen;
         i < layout->bucket_count && status == XRAY_OK; i++)
        status = allocate_gradient(g, owner, xm_bucket_capacity(layout, i), err,
                                   &g->buckets[i]);
    if (status == XRAY_OK && g->lookup_count)
        status = allocate_gradient(g, owner, g->lookup_count, err, &g->lookup);
    return status;
}

xray_status xm_grads_create(const xm_config *config, const xm_layout *layout,
                            const xray_device_ops *device, void *device_self,
                            const char *owner, xr_err *err, xm_grads **out)
{
    xm_grads *g = xr_calloc(1, sizeof *g);
    if (!g)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", owner);
    g->device = device;
    g->device_self = device_self;
    g->layout = layout;
    g->lookup_count = count_lookup_elements(config, layout);
    xray_status status = allocate_buckets(g, owner, err);
    if (status != XRAY_OK) {
        xm_grads_destroy(g);
        return status;
    }
    *out = g;
    return XRAY_OK;
}

void xm_grads_destroy(xm_grads *g)
{
    if (!g)
        return;
    for (uint32_t i = 0; g->buckets && i < g->layout->bucket_count; i++)
        g->device->free(g->device_self, g->buckets[i]);
    g->device->free(g->device_self, g->lookup);
    free(g->buckets);
    free(g);
}

static xray_status clear_gradient(const xm_grads *g, float *data,
                                  uint64_t count, xr_err *err)
{
    xray_status status =
        g->device->zero(g->device_self, NULL, data, count * sizeof(float));
    if (status != XRAY_OK)
        return xr_fail(err, status, "the device could not clear gradients");
    return XRAY_OK;
}

xray_status xm_grads_zero(xm_grads *g, xr_err *err)
{
    xray_status status = XRAY_OK;
    const xm_layout *layout = g->layout;
    for (uint32_t i = layout->frozen;
         i < layout->bucket_count && status == XRAY_OK; i++)
        status = clear_gradient(g, g->buckets[i], xm_bucket_capacity(layout, i),
                                err);
    if (status == XRAY_OK && g->lookup)
        status = clear_gradient(g, g->lookup, g->lookup_count, err);
    return status;
}

xray_status xm_grads_finish(xm_grads *g, xr_err *err)
{
    if (!g->lookup)
        return XRAY_OK;
    const xm_param *embed = xm_layout_at(g->layout, 0, XM_EMBED);
    xray_axpby call = {
        XRAY_HEADER(xray_axpby), .count = g->lookup_count,
        .x = g->lookup,          .y = g->buckets[embed->bucket] + embed->offset,
        .alpha = 1.0f,           .beta = 1.0f
    };
    xray_status status = g->device->axpby(g->device_self, NULL, &call);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device could not add the gradients of the "
                       "embedding");
    return clear_gradient(g, g->lookup, g->lookup_count, err);
}

xray_status xm_grads_check(const xm_grads *g, const xm_decoder *decoder,
                           xr_err *err)
{
    const xm_layout *mine = decoder->layout;
    int same =
        g->layout->bucket_count == mine->bucket_count &&
        (g->lookup != NULL) == (decoder->config.tied && !g->layout->frozen);
    /* The last bucket may or may not end with a value head, so it is not
     * compared. */
    for (uint32_t i = 0; same && i + 1 < mine->bucket_count; i++)
        same = g->layout->bucket_sizes[i] == mine->bucket_sizes[i];
    if (!same)
        return xr_fail(err, XRAY_E_ARG,
                       "the gradients are laid out for another model");
    return XRAY_OK;
}
