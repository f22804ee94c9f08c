/* SPDX-License-Identifier: Apache-2.0
 *
 * Stages 2 and 3: the full gradients of a block exist only while it is
 * computed. Right after that they are summed over ranks, and each rank adds its
 * share of the sum to its gradients. Blocks alternate between two slots, so
 * that one is summed while the next is computed.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "plugins/backend-zero3/zero3.h"

#define WIDTH 2u

/* With segments sums arrive where they stay. */
static uint64_t count_part(const xm_layout *layout, uint32_t segments)
{
    uint64_t most = 0;
    for (uint32_t b = layout->frozen; !segments && b < layout->bucket_count;
         b++)
        if (xm_bucket_share(layout, b).count > most)
            most = xm_bucket_share(layout, b).count;
    return most;
}

/* With segments the look-ups of a tied embedding have a share of their own. */
static uint64_t count_lookups(const xm_layout *layout, const xm_config *model,
                              uint32_t segments)
{
    return segments && xm_aside_of(model, layout).lookup
               ? xm_bucket_share(layout, 0).count
               : 0;
}

static xray_status create_slot_table(const xm_layout *layout,
                                     const xm_config *model, xr_err *err,
                                     z3_slot_table *out)
{
    return z3_slot_table_create(layout, WIDTH, layout->frozen, model->tied != 0,
                                err, out);
}

uint64_t z3_reduce_bytes(const xm_layout *layout, const xm_config *model,
                         uint32_t segments)
{
    z3_slot_table table = { 0 };
    uint64_t count =
        count_part(layout, segments) + count_lookups(layout, model, segments) +
        xm_aside_of(model, layout).count +
        xm_folds_elements(model, layout, XRAY_SEGMENTS_IN_TURN, segments);
    if (create_slot_table(layout, model, NULL, &table) != XRAY_OK)
        return 0;
    for (uint32_t s = 0; s < table.slots; s++)
        count += table.capacity[s];
    for (uint32_t b = layout->frozen; b < layout->bucket_count; b++)
        count += xm_bucket_share(layout, b).count;
    z3_slot_table_free(&table);
    return count * sizeof(float);
}

/* ---- creating ----------------------------------------------------------- */

static xray_status alloc_grads(z3 *self, xr_err *err)
{
    z3_reduce *r = &self->reduce;
    const xm_layout *layout = self->base.layout;
    xray_status status = xm_trainer_alloc_floats(
        &self->base, XRAY_TAG_GRADS,
        count_part(layout, self->base.load.segments), err, &r->part);
    for (uint32_t s = 0; status == XRAY_OK && s < r->table.slots; s++) {
        status =
            xm_trainer_alloc_floats(&self->base, XRAY_TAG_GRADS,
                                    r->table.capacity[s], err, &r->slots[s]);
        if (status == XRAY_OK &&
            self->base.device->event_create(self->base.device_self,
                                            &r->ready[s]) != XRAY_OK)
            status =
                xr_fail(err, XRAY_E_NOMEM, "%s: the device created no event",
                        self->base.owner);
    }
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++)
        status = xm_trainer_alloc_floats(&self->base, XRAY_TAG_GRADS,
                                         xm_bucket_share(layout, b).count, err,
                                         &r->shares[b]);
    if (status == XRAY_OK)
        status = xm_trainer_alloc_floats(
            &self->base, XRAY_TAG_GRADS,
            count_lookups(layout, &self->base.model, self->base.load.segments),
            err, &r->shares[xm_folds_lookups(layout)]);
    if (status == XRAY_OK)
        status = xm_trainer_alloc_floats(&self->base, XRAY_TAG_GRADS,
                                         self->base.grads->aside.count, err,
                                         &self->base.grads->aside.data);
    return status;
}

static xray_status open_grads(xm_trainer *base, xr_err *err)
{
    z3 *self = (z3 *)base;
    z3_reduce *r = &self->reduce;
    const xm_layout *layout = self->base.layout;
    xray_status status =
        create_slot_table(layout, &self->base.model, err, &r->table);
    if (status != XRAY_OK)
        return status;
    r->slots = xr_calloc(r->table.slots, sizeof(float *));
    r->ready = xr_calloc(r->table.slots, sizeof(xray_event *));
    r->shares = xr_calloc(layout->bucket_count + 1, sizeof(float *));
    self->base.grad_shares = r->shares;
    r->has_sum = xr_calloc(layout->bucket_count, 1);
    self->base.grads = xr_calloc(1, sizeof(*self->base.grads));
    if (self->base.grads) {
        *self->base.grads =
            (xm_grads){ .device = self->base.device,
                        .device_self = self->base.device_self,
                        .layout = layout,
                        .aside = xm_aside_of(&self->base.model, layout) };
        self->base.grads->buckets =
            xr_calloc(layout->bucket_count, sizeof(float *));
    }
    if (!r->slots || !r->ready || !r->shares || !r->has_sum ||
        !self->base.grads || !self->base.grads->buckets)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory",
                       self->base.owner);
    return alloc_grads(self, err);
}

static void close_grads(xm_trainer *base)
{
    z3 *self = (z3 *)base;
    z3_reduce *r = &self->reduce;
    const xray_device_ops *device = self->base.device;
    for (uint32_t s = 0; r->slots && s < r->table.slots; s++)
        device->free(self->base.device_self, r->slots[s]);
    for (uint32_t s = 0; r->ready && s < r->table.slots; s++)
        if (r->ready[s])
            device->event_destroy(self->base.device_self, r->ready[s]);
    for (uint32_t b = 0; r->shares && b <= self->base.layout->bucket_count; b++)
        device->free(self->base.device_self, r->shares[b]);
    device->free(self->base.device_self, r->part);
    if (self->base.grads) {
        device->free(self->base.device_self, self->base.grads->aside.data);
        free(self->base.grads->buckets);
        free(self->base.grads);
    }
    self->base.grads = NULL;
    z3_slot_table_free(&r->table);
    free(r->slots);
    free(r->ready);
    free(r->shares);
    free(r->has_sum);
    *r = (z3_reduce){ 0 };
}

/* ---- a pass ------------------------------------------------------------- */

static xray_status clear_elements(const z3 *self, float *data, uint64_t count)
{
    return self->base.device->zero(self->base.device_self, NULL, data,
                                   count * sizeof(float));
}

static xray_status begin_bucket(void *ctx, uint32_t bucket, xr_err *err)
{
    z3 *self = ctx;
    z3_reduce *r = &self->reduce;
    uint32_t slot = r->table.slot_of[bucket];
    xray_status status = self->base.device->event_wait(self->base.device_self,
                                                       NULL, r->ready[slot]);
    if (status == XRAY_OK)
        status = clear_elements(self, r->slots[slot],
                                xm_bucket_capacity(self->base.layout, bucket));
    if (status == XRAY_OK && bucket == 0 && self->base.folds.count &&
        self->base.grads->aside.lookup)
        status = clear_elements(self, self->base.grads->aside.data,
                                self->base.grads->aside.lookup);
    self->base.grads->buckets[bucket] = r->slots[slot];
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "the device could not clear gradients");
}

/* Adds a sum to a bucket's share. */
static xray_status add_to_share(const z3 *self, uint32_t bucket,
                                const float *sum)
{
    xray_axpby add = { XRAY_HEADER(xray_axpby),
                       .count =
                           xm_bucket_share(self->base.layout, bucket).count,
                       .x = sum,
                       .y = self->reduce.shares[bucket],
                       .alpha = 1.0f,
                       .beta = 1.0f };
    return self->base.device->axpby(self->base.device_self,
                                    self->base.group.stream, &add);
}

/* Sums a bucket over ranks and adds the sum to the share. The first sum
 * replaces the share instead, since 0 + x is not x for x = -0. */
static xray_status scatter_bucket(z3 *self, uint32_t bucket)
{
    z3_reduce *r = &self->reduce;
    const xm_group *g = &self->base.group;
    int more = r->has_sum[bucket];
    xray_status status = g->comm->reduce_scatter(
        g->group, g->stream, self->base.grads->buckets[bucket],
        more ? r->part : r->shares[bucket],
        xm_bucket_share(self->base.layout, bucket).count, XRAY_F32);
    if (status == XRAY_OK && more)
        status = add_to_share(self, bucket, r->part);
    r->has_sum[bucket] = 1;
    return status;
}

/* Sums a bucket of a segment, or its look-ups, over ranks. The sum takes up the
 * branches before it where it waits. */
static xray_status scatter_segment(z3 *self, uint32_t bucket, const float *from)
{
    const xm_group *g = &self->base.group;
    const xm_layout *layout = self->base.layout;
    uint32_t like = bucket == xm_folds_lookups(layout) ? 0 : bucket;
    float *spare = xm_folds_spare(&self->base, bucket);
    float *to = spare ? spare : self->reduce.shares[bucket];
    xray_status status =
        g->comm->reduce_scatter(g->group, g->stream, from, to,
                                xm_bucket_share(layout, like).count, XRAY_F32);
    return status == XRAY_OK
               ? xm_folds_add_spares(&self->base, g->stream, bucket, to)
               : status;
}

/* After the last segment the look-ups are added to the head's gradients. */
static xray_status scatter_lookups(z3 *self)
{
    const xm_grads *grads = self->base.grads;
    uint32_t lookups = xm_folds_lookups(self->base.layout);
    if (!grads->aside.lookup)
        return XRAY_OK;
    xray_status status = scatter_segment(self, lookups, grads->aside.data);
    return status == XRAY_OK && !xm_folds_spare(&self->base, lookups)
               ? add_to_share(self, 0, self->reduce.shares[lookups])
               : status;
}

static xray_status scatter_done_bucket(void *ctx, uint32_t bucket, xr_err *err)
{
    z3 *self = ctx;
    z3_reduce *r = &self->reduce;
    uint32_t segments = self->base.folds.count;
    xray_status status = XRAY_OK;
    if (bucket > 0 || !segments)
        status = xm_grads_finish_bucket(self->base.grads, bucket, err);
    if (status == XRAY_OK)
        status = xm_group_wait_compute(&self->base.group);
    if (status != XRAY_OK)
        return status;
    status = segments ? scatter_segment(self, bucket,
                                        self->base.grads->buckets[bucket])
                      : scatter_bucket(self, bucket);
    if (status == XRAY_OK && segments && bucket == 0)
        status = scatter_lookups(self);
    if (status != XRAY_OK)
        return status;
    return self->base.device->event_record(self->base.device_self,
                                           self->base.group.stream,
                                           r->ready[r->table.slot_of[bucket]]);
}

static xray_status zero_grads(xm_trainer *base, xr_err *err)
{
    z3 *self = (z3 *)base;
    const xm_layout *layout = self->base.layout;
    xray_status status = XRAY_OK;
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++) {
        self->reduce.has_sum[b] = 0;
        status = clear_elements(self, self->reduce.shares[b],
                                xm_bucket_share(layout, b).count);
    }
    if (status == XRAY_OK && self->base.grads->aside.data)
        status = clear_elements(self, self->base.grads->aside.data,
                                self->base.grads->aside.count);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "the device could not clear gradients");
}

void z3_reduce_visit(const z3 *self, xm_block_visit *visit)
{
    const z3_reduce *r = &self->reduce;
    if (!r->slots)
        return;
    xm_visit_block(visit, r->part,
                   count_part(self->base.layout, self->base.load.segments), 0);
    xm_visit_block(visit, r->shares[xm_folds_lookups(self->base.layout)],
                   count_lookups(self->base.layout, &self->base.model,
                                 self->base.load.segments),
                   0);
    for (uint32_t s = 0; s < r->table.slots; s++)
        xm_visit_block(visit, r->slots[s], r->table.capacity[s], 0);
}

void z3_reduce_hook(z3 *self)
{
    xm_trainer_hooks *hooks = &self->base.hooks;
    hooks->open_grads = open_grads;
    hooks->close_grads = close_grads;
    hooks->zero_grads = zero_grads;
    hooks->watch.begin = begin_bucket;
    hooks->watch.done = scatter_done_bucket;
}
