/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulates the gradients of all micro-batches in full buckets, and sums
 * those over ranks once: when the sums are first needed, or bucket by bucket in
 * the last pass.
 */
#include "model/hf/param_slots.h"
#include "model/train/trainer_internal.h"

/* 1: the first and the last of several stages have this bucket's embedding,
 * with the look-ups' gradient and the LM head's. */
static int is_tied_bucket(const xm_trainer *self, uint32_t bucket)
{
    const xm_config *model = &self->model;
    return bucket == 0 && model->tied && self->stages.size > 1 &&
           (xm_config_is_first(model) || xm_config_is_last(model));
}

/* Sums all elements over the ranks, or those that are this rank's part:
 * *inout_part, of which it becomes the rank's share of them. */
static xray_status sum_among(const xm_trainer *self, const xray_subgroup *among,
                             int all, float *data, xm_range *inout_part)
{
    const xm_group *g = &self->group;
    xm_range part = *inout_part;
    float *from = data + part.first;
    if (among->size < 2 || part.count == 0)
        return XRAY_OK;
    if (all)
        return g->comm->all_reduce(among->group, g->stream, from, part.count,
                                   XRAY_F32);
    part.count /= among->size;
    part.first += among->rank * part.count;
    *inout_part = part;
    return g->comm->reduce_scatter(among->group, g->stream, from,
                                   data + part.first, part.count, XRAY_F32);
}

/* Sums a bucket, or look-ups, over replicas, and then over a context, so that
 * the sums over segments and replicas are the same for any number of replicas.
 * Where every rank has all moments, each needs the sums of all elements,
 * otherwise only those of its share. Two stages whose shares differ exchange
 * all elements of an embedding. */
static xray_status sum_bucket(xm_trainer *self, uint32_t bucket, float *data)
{
    xm_range part = { 0, xm_bucket_capacity(self->layout, bucket) };
    int all = self->all_moments ||
              (self->folds.count && is_tied_bucket(self, bucket));
    xray_status status = sum_among(self, &self->replicas, all, data, &part);
    return status == XRAY_OK ? sum_among(self, &self->context, all, data, &part)
                             : status;
}

/* Adds up both parts of a tied embedding's gradient as one stage does: the
 * first stage takes the last one's, adds its own to it and gives the sum back.
 */
static xray_status finish_tied_bucket(xm_trainer *self, xr_err *err)
{
    const xray_comm_ops *comm = self->group.comm;
    xray_comm_group *group = self->stages.group;
    const xm_param *embed = xm_layout_at(self->layout, 0, XM_EMBED);
    float *grad = self->grads->buckets[0] + embed->offset;
    uint64_t bytes = embed->count * sizeof(float);
    uint32_t last = self->stages.size - 1;
    xray_status status;
    if (self->stages.rank == last) {
        status = comm->send(group, NULL, grad, bytes, 0);
        return status == XRAY_OK ? comm->recv(group, NULL, grad, bytes, 0)
                                 : status;
    }
    status = comm->recv(group, NULL, grad, bytes, last);
    if (status == XRAY_OK)
        status = xm_grads_finish_bucket(self->grads, 0, err);
    return status == XRAY_OK ? comm->send(group, NULL, grad, bytes, last)
                             : status;
}

/* Adds what was summed apart, and what other ranks have of the same KV heads.
 */
static xray_status finish_bucket(xm_trainer *self, uint32_t bucket, xr_err *err)
{
    if (is_tied_bucket(self, bucket))
        return finish_tied_bucket(self, err);
    xray_status status = xm_grads_finish_bucket(self->grads, bucket, err);
    if (status != XRAY_OK || self->kv.size < 2)
        return status;
    xm_join join = self->join;
    join.group = self->kv.group;
    return xm_join_kv_grads(&join, self->layout, bucket,
                            self->grads->buckets[bucket]);
}

/* Folds a bucket's `count` elements, or those of the look-ups. */
static xray_status fold_elements(xm_trainer *self, uint32_t bucket, float *data,
                                 uint64_t count, xr_err *err)
{
    float *spare = xm_folds_spare(self, bucket);
    uint64_t bytes = count * sizeof(float);
    if (bytes == 0)
        return XRAY_OK;
    xray_status status = xm_folds_add_spares(self, NULL, bucket, data);
    if (status == XRAY_OK && spare)
        status = self->device->copy(self->device_self, NULL, spare, data, bytes,
                                    XRAY_COPY_ON_DEVICE);
    if (status == XRAY_OK && spare)
        status = self->device->zero(self->device_self, NULL, data, bytes);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "the device could not add up segments");
}

xray_status xm_trainer_fold_full_grads(xm_trainer *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    const xm_grads *grads = self->grads;
    xray_status status = XRAY_OK;
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++) {
        status = b > 0 ? finish_bucket(self, b, err) : XRAY_OK;
        if (status == XRAY_OK)
            status = fold_elements(self, b, grads->buckets[b],
                                   xm_bucket_capacity(layout, b), err);
    }
    return status == XRAY_OK
               ? fold_elements(self, xm_folds_lookups(layout),
                               grads->aside.data, grads->aside.lookup, err)
               : status;
}

/* The gradients of segments are finished one by one. */
static xray_status finish_buckets(xm_trainer *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    xray_status status = XRAY_OK;
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && !self->folds.count && b < layout->bucket_count;
         b++)
        status = finish_bucket(self, b, err);
    return status;
}

/* Sums the look-ups of segments over ranks, and joins them with the head's
 * gradients, which are sums over ranks already. */
static xray_status finish_folded_lookups(xm_trainer *self, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (!self->folds.count || self->layout->frozen)
        return XRAY_OK;
    if (self->grads->aside.lookup)
        status = sum_bucket(self, 0, self->grads->aside.data);
    if (status == XRAY_OK)
        status = xm_group_wait_collectives(&self->group);
    return status == XRAY_OK ? finish_bucket(self, 0, err) : status;
}

xray_status xm_trainer_sum_full_grads(xm_trainer *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    if (self->grad_shares || self->reduced)
        return XRAY_OK;
    xray_status status = finish_buckets(self, err);
    if (status == XRAY_OK)
        status = xm_group_wait_compute(&self->group);
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++)
        status = sum_bucket(self, b, self->grads->buckets[b]);
    if (status == XRAY_OK)
        status = finish_folded_lookups(self, err);
    if (status == XRAY_OK)
        status = xm_group_wait_collectives(&self->group);
    self->reduced = status == XRAY_OK;
    return status;
}

static xray_status finish_and_sum_bucket(xm_trainer *self, uint32_t bucket,
                                         xr_err *err)
{
    xray_status status = finish_bucket(self, bucket, err);
    if (status == XRAY_OK)
        status = xm_group_wait_compute(&self->group);
    return status == XRAY_OK
               ? sum_bucket(self, bucket, self->grads->buckets[bucket])
               : status;
}

xray_status xm_trainer_sum_done_bucket(void *ctx, uint32_t bucket, xr_err *err)
{
    xm_trainer *self = ctx;
    return self->ends && !is_tied_bucket(self, bucket)
               ? finish_and_sum_bucket(self, bucket, err)
               : XRAY_OK;
}

xray_status xm_trainer_sum_tied_bucket(xm_trainer *self, xr_err *err)
{
    return is_tied_bucket(self, 0) && self->layout->frozen == 0
               ? finish_and_sum_bucket(self, 0, err)
               : XRAY_OK;
}

static xray_status clear_elements(const xm_trainer *self, float *data,
                                  uint64_t count)
{
    return count ? self->device->zero(self->device_self, NULL, data,
                                      count * sizeof(float))
                 : XRAY_OK;
}

/* Clears the sums of KV heads that another rank has first. */
static xray_status clear_copies(const xm_trainer *self)
{
    const xm_layout *layout = self->layout;
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < layout->param_count && status == XRAY_OK; i++) {
        const xm_param *param = &layout->params[i];
        if (param->bucket >= layout->frozen && param->own == param->shared)
            status = clear_elements(self,
                                    self->grads->buckets[param->bucket] +
                                        param->offset + param->shared,
                                    param->count - param->shared);
    }
    return status;
}

/* Keeps each element of a sum on one rank, where further gradients are added to
 * it, and clears it on all others, so that the next sum over ranks counts it
 * once. */
xray_status xm_trainer_resume_full_grads(xm_trainer *self, xr_err *err)
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
    if (status == XRAY_OK)
        status = clear_copies(self);
    self->reduced = 0;
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "the device could not clear gradients");
}

xray_status xm_trainer_zero_grads(xm_trainer *self, xr_err *err)
{
    self->reduced = 0;
    self->has_grads = 0;
    self->folds.done = self->folds.begun = 0;
    return self->hooks.zero_grads ? self->hooks.zero_grads(self, err)
                                  : xm_grads_zero(self->grads, err);
}
