/* SPDX-License-Identifier: Apache-2.0
 *
 * Allocates, clears and finishes the gradient buckets of a decoder.
 */
#include <stdlib.h>

#include "core/base/str.h"
#include "model/nn/internal.h"

/* The first bucket of a block that has gradients. */
static uint32_t find_first_block(const xm_layout *layout)
{
    return layout->frozen ? layout->frozen : 1;
}

xm_aside xm_aside_of(const xm_config *config, const xm_layout *layout)
{
    xm_aside aside = { .head_dim = config->head_dim };
    uint32_t segments = xm_segments(config);
    if (config->qk_norm && (segments > 1 || config->slice.ranks > 1))
        aside.segments = segments;
    if (config->tied && xm_config_is_first(config) && !layout->frozen)
        aside.lookup = xm_bucket_capacity(layout, 0);
    aside.count = aside.lookup;
    for (uint32_t b = find_first_block(layout);
         aside.segments && b + 1 < layout->bucket_count; b++)
        aside.count += 2 * (uint64_t)aside.segments * aside.head_dim;
    return aside;
}

float *xm_grads_head_norm(const xm_grads *g, uint32_t bucket, uint32_t slot)
{
    const xm_aside *aside = &g->aside;
    uint64_t size = (uint64_t)aside->segments * aside->head_dim;
    uint64_t block = bucket - find_first_block(g->layout);
    if (aside->segments == 0)
        return NULL;
    return aside->data + aside->lookup +
           (2 * block + (slot == XM_K_NORM)) * size;
}

uint64_t xm_grads_bytes(const xm_config *config, const xm_layout *layout)
{
    uint64_t count = xm_aside_of(config, layout).count;
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        count += xm_bucket_capacity(layout, b);
    return count * sizeof(float);
}

static xray_status allocate_gradient(const xm_grads *g, const char *owner,
                                     uint64_t count, xr_err *err, float **out)
{
    void *data = NULL;
    uint64_t bytes = count * sizeof(float);
    if (count == 0)
        return XRAY_OK;
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
    if (status == XRAY_OK)
        status =
            allocate_gradient(g, owner, g->aside.count, err, &g->aside.data);
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
    g->aside = xm_aside_of(config, layout);
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
    g->device->free(g->device_self, g->aside.data);
    free(g->buckets);
    free(g);
}

static xray_status clear_gradient(const xm_grads *g, float *data,
                                  uint64_t count, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (count)
        status =
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
    if (status == XRAY_OK)
        status = clear_gradient(g, g->aside.data, g->aside.count, err);
    return status;
}

/* to += from. */
static xray_status add_gradient(const xm_grads *g, const float *from, float *to,
                                uint64_t count, xr_err *err)
{
    xray_axpby call = {
        XRAY_HEADER(xray_axpby), .count = count, .x = from, .y = to,
        .alpha = 1.0f,           .beta = 1.0f
    };
    xray_status status = g->device->axpby(g->device_self, NULL, &call);
    if (status != XRAY_OK)
        return xr_fail(err, status,
                       "the device could not add gradients that were summed "
                       "apart");
    return XRAY_OK;
}

static float *find_gradient(const xm_grads *g, uint32_t bucket, uint32_t slot)
{
    return g->buckets[bucket] + xm_layout_at(g->layout, bucket, slot)->offset;
}

static xray_status finish_lookup(const xm_grads *g, xr_err *err)
{
    if (g->aside.lookup == 0)
        return XRAY_OK;
    xray_status status =
        add_gradient(g, g->aside.data, g->buckets[0], g->aside.lookup, err);
    return status == XRAY_OK
               ? clear_gradient(g, g->aside.data, g->aside.lookup, err)
               : status;
}

/* Adds the segments as a balanced tree, of which a slice has a branch, and
 * their sum to the bucket. */
static xray_status finish_head_norm(const xm_grads *g, uint32_t bucket,
                                    uint32_t slot, xr_err *err)
{
    float *sums = xm_grads_head_norm(g, bucket, slot);
    uint64_t dim = g->aside.head_dim;
    uint32_t segments = g->aside.segments;
    xray_status status = XRAY_OK;
    for (uint32_t half = 1; half < segments; half *= 2)
        for (uint32_t i = 0; i < segments && status == XRAY_OK; i += 2 * half)
            status = add_gradient(g, sums + (i + half) * dim, sums + i * dim,
                                  dim, err);
    if (status == XRAY_OK && g->join)
        status = g->join(g->join_ctx, XM_JOIN_INPUT_GRADS, sums, 1, dim, err);
    if (status == XRAY_OK)
        status =
            add_gradient(g, sums, find_gradient(g, bucket, slot), dim, err);
    return status == XRAY_OK ? clear_gradient(g, sums, segments * dim, err)
                             : status;
}

xray_status xm_grads_finish_bucket(xm_grads *g, uint32_t bucket, xr_err *err)
{
    if (bucket == 0)
        return finish_lookup(g, err);
    if (g->aside.segments == 0 || bucket + 1 >= g->layout->bucket_count)
        return XRAY_OK;
    xray_status status = finish_head_norm(g, bucket, XM_Q_NORM, err);
    return status == XRAY_OK ? finish_head_norm(g, bucket, XM_K_NORM, err)
                             : status;
}

xray_status xm_grads_finish(xm_grads *g, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t b = g->layout->frozen;
         b < g->layout->bucket_count && status == XRAY_OK; b++)
        status = xm_grads_finish_bucket(g, b, err);
    return status;
}

xray_status xm_grads_check(const xm_grads *g, const xm_decoder *decoder,
                           xr_err *err)
{
    const xm_layout *mine = decoder->layout;
    int same = g->layout->bucket_count == mine->bucket_count &&
               g->aside.count == xm_aside_of(&decoder->config, g->layout).count;
    /* The last bucket may or may not end with a value head, so it is not
     * compared. */
    for (uint32_t i = 0; same && i + 1 < mine->bucket_count; i++)
        same = g->layout->bucket_sizes[i] == mine->bucket_sizes[i];
    if (!same)
        return xr_fail(err, XRAY_E_ARG,
                       "the gradients are laid out for another model");
    return XRAY_OK;
}
