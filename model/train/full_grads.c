/* SPDX-License-Identifier: Apache-2.0
 *
 * Accumulates the gradients of all micro-batches in full buckets, and sums
 * those over ranks once: when the sums are first needed, or bucket by bucket in
 * the last pass.
 */
#include "model/hf/param_slots.h"
#include "model/train/trainer_internal.h"

/* Where every rank has all moments, each needs the sums of all elements,
 * otherwise only those of its share. */
static xray_status sum_bucket(xm_trainer *self, uint32_t bucket)
{
    const xm_group *g = &self->group;
    xray_comm_group *among = self->data.group;
    xm_range share = xm_bucket_share(self->layout, bucket);
    float *data = self->grads->buckets[bucket];
    if (share.count == 0)
        return XRAY_OK;
    if (self->all_moments)
        return g->comm->all_reduce(among, g->stream, data,
                                   xm_bucket_capacity(self->layout, bucket),
                                   XRAY_F32);
    return g->comm->reduce_scatter(among, g->stream, data, data + share.first,
                                   share.count, XRAY_F32);
}

/* 1: the first and the last of several stages have this bucket's embedding,
 * with the look-ups' gradient and the LM head's. */
static int is_tied_bucket(const xm_trainer *self, uint32_t bucket)
{
    const xm_config *model = &self->model;
    return bucket == 0 && model->tied && self->stages.size > 1 &&
           (xm_config_is_first(model) || xm_config_is_last(model));
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

static xray_status fold_bucket(xm_trainer *self, uint32_t bucket, xr_err *err)
{
    float *data = self->grads->buckets[bucket];
    float *spare = xm_folds_spare(self, bucket);
    uint64_t bytes = xm_bucket_capacity(self->layout, bucket) * sizeof(float);
    xray_status status = finish_bucket(self, bucket, err);
    if (status != XRAY_OK || bytes == 0)
        return status;
    status = xm_folds_add_spares(self, NULL, bucket, data);
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
    xray_status status = XRAY_OK;
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++)
        status = fold_bucket(self, b, err);
    return status;
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

xray_status xm_trainer_sum_full_grads(xm_trainer *self, xr_err *err)
{
    const xm_layout *layout = self->layout;
    if (self->grad_shares || self->reduced)
        return XRAY_OK;
    xray_status status = finish_buckets(self, err);
    if (status == XRAY_OK)
        status = xm_group_wait_compute(&self->group);
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && self->data.size > 1 && b < layout->bucket_count;
         b++)
        status = sum_bucket(self, b);
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
    return status == XRAY_OK ? sum_bucket(self, bucket) : status;
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
