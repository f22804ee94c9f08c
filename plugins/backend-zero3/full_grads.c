/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages 0 and 1: accumulates the gradients of all micro-batches in full
 * buckets, and sums those over ranks once per step, when the sums are first
 * needed.
 */
#include "plugins/backend-zero3/zero3.h"

/* Stage 0 needs the sums of all elements on every rank, stage 1 only those of
 * the rank's share. */
static xray_status sum_bucket(z3 *self, uint32_t bucket)
{
    const z3_group *g = &self->group;
    xm_range share = xm_bucket_share(self->layout, bucket);
    float *data = self->grads->buckets[bucket];
    if (self->sharding.all_moments)
        return g->comm->all_reduce(g->group, g->stream, data,
                                   xm_bucket_capacity(self->layout, bucket),
                                   XRAY_F32);
    return g->comm->reduce_scatter(g->group, g->stream, data,
                                   data + share.first, share.count, XRAY_F32);
}

xray_status z3_sum_full_grads(z3 *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    if (self->sharding.scatters)
        return XRAY_OK;
    xray_status status = xm_grads_finish(self->grads, err);
    if (self->group.size < 2 || self->reduced || status != XRAY_OK)
        return status;
    status = z3_group_wait_compute(&self->group);
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++)
        status = sum_bucket(self, b);
    if (status == XRAY_OK)
        status = z3_group_wait_collectives(&self->group);
    self->reduced = status == XRAY_OK;
    return status;
}

static xray_status clear_elements(const z3 *self, float *data, uint64_t count)
{
    return count ? self->device->zero(self->device_self, NULL, data,
                                      count * sizeof(float))
                 : XRAY_OK;
}

/* Keeps each element of a sum on one rank, where further gradients are added to
 * it, and clears it on all others, so that the next sum over ranks counts it
 * once. */
xray_status z3_resume_full_grads(z3 *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    xray_status status = XRAY_OK;
    if (!self->reduced)
        return XRAY_OK;
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++) {
        xm_range share = xm_bucket_share(layout, b);
        uint64_t end = share.first + share.count;
        float *data = self->grads->buckets[b];
        status = clear_elements(self, data, share.first);
        if (status == XRAY_OK)
            status = clear_elements(self, data + end,
                                    xm_bucket_capacity(layout, b) - end);
    }
    self->reduced = 0;
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "the device could not clear gradients");
}

xray_status z3_zero_grads(z3 *self, xr_err *err)
{
    self->reduced = 0;
    self->has_grads = 0;
    return self->sharding.scatters ? z3_reduce_zero(self, err)
                                   : xm_grads_zero(self->grads, err);
}
