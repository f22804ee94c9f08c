/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the spare shares of segments, and says when a segment ends.
 */
#include "model/train/folds.h"

#include <inttypes.h>
#include <stdlib.h>

#include "core/base/str.h"
#include "model/train/trainer_internal.h"

/* The ranks of a context share the segments of their replica. */
static uint32_t count_sharers(const xm_config *model)
{
    return model->context_ranks ? model->context_ranks : 1;
}

/* Returns the elements of a bucket, or of the look-ups, that a sum over
 * segments has on a rank: all, or its share of what the ranks have added up
 * already. */
static uint64_t count_elements(const xm_layout *layout, uint32_t mode,
                               uint32_t bucket)
{
    if (bucket == xm_folds_lookups(layout))
        bucket = 0;
    return mode == XRAY_SEGMENTS_IN_TURN ? xm_bucket_share(layout, bucket).count
                                         : xm_bucket_capacity(layout, bucket);
}

/* Returns the elements of a spare share; in first[], unless that is NULL, where
 * each bucket's begin. */
static uint64_t count_stride(const xm_config *model, const xm_layout *layout,
                             uint32_t mode, uint64_t *first)
{
    uint32_t end =
        layout->bucket_count + (xm_aside_of(model, layout).lookup > 0);
    uint64_t count = 0;
    for (uint32_t b = layout->frozen; b < end; b++) {
        if (first)
            first[b] = count;
        count += count_elements(layout, mode, b);
    }
    return count;
}

uint64_t xm_folds_elements(const xm_config *model, const xm_layout *layout,
                           uint32_t mode, uint32_t segments)
{
    uint64_t levels = 0;
    while (segments * count_sharers(model) / layout->ranks >> (levels + 1))
        levels++;
    return levels * count_stride(model, layout, mode, NULL);
}

xray_status xm_folds_open(xm_trainer *self, xr_err *err)
{
    xm_folds *s = &self->folds;
    const xm_layout *layout = self->layout;
    uint32_t all = self->load.segments;
    uint32_t replicas = layout->ranks / count_sharers(&self->model);
    if (!all)
        return XRAY_OK;
    if ((all & (all - 1)) || all % replicas)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: %" PRIu32 " segments for %" PRIu32
                       " replicas, expected a power of two that they divide",
                       self->owner, all, replicas);
    s->mode = self->grad_shares ? XRAY_SEGMENTS_IN_TURN : XRAY_SEGMENTS_IN_RUNS;
    s->count = all / replicas;
    s->first = xr_calloc(layout->bucket_count + 1, sizeof(*s->first));
    if (!s->first)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    s->stride = count_stride(&self->model, layout, s->mode, s->first);
    return xm_trainer_alloc_floats(
        self, XRAY_TAG_GRADS,
        xm_folds_elements(&self->model, layout, s->mode, all), err, &s->spares);
}

void xm_folds_close(xm_trainer *self)
{
    if (self->folds.spares)
        self->device->free(self->device_self, self->folds.spares);
    free(self->folds.first);
    self->folds = (xm_folds){ 0 };
}

/* ---- the tree ----------------------------------------------------------- */

float *xm_folds_spare(const xm_trainer *self, uint32_t bucket)
{
    const xm_folds *s = &self->folds;
    uint64_t level = 0;
    while (s->done >> level & 1)
        level++;
    return s->done + 1 < s->count
               ? s->spares + level * s->stride + s->first[bucket]
               : NULL;
}

xray_status xm_folds_add_spares(const xm_trainer *self, xray_stream *stream,
                                uint32_t bucket, float *data)
{
    const xm_folds *s = &self->folds;
    xray_status status = XRAY_OK;
    for (uint64_t level = 0; status == XRAY_OK && (s->done >> level & 1);
         level++) {
        xray_axpby add = { XRAY_HEADER(xray_axpby),
                           .count =
                               count_elements(self->layout, s->mode, bucket),
                           .x =
                               s->spares + level * s->stride + s->first[bucket],
                           .y = data,
                           .alpha = 1.0f,
                           .beta = 1.0f };
        status = self->device->axpby(self->device_self, stream, &add);
    }
    return status;
}

/* ---- the order of segments ---------------------------------------------- */

/* Returns the place of a segment among those of this rank, or UINT32_MAX if
 * another rank has it. */
static uint32_t find_place(const xm_trainer *self, uint32_t segment)
{
    const xm_folds *s = &self->folds;
    uint32_t sharers = count_sharers(&self->model);
    uint32_t ranks = self->layout->ranks / sharers;
    uint32_t rank = self->layout->rank / sharers;
    if (s->mode == XRAY_SEGMENTS_IN_TURN)
        return segment % ranks == rank && segment / ranks < s->count
                   ? segment / ranks
                   : UINT32_MAX;
    return segment / s->count == rank ? segment % s->count : UINT32_MAX;
}

static xray_status check_place(const xm_trainer *self, uint32_t segment,
                               int64_t last, xr_err *err)
{
    uint32_t place = find_place(self, segment);
    if (place == UINT32_MAX || place < last)
        return xr_fail(err, XRAY_E_ARG,
                       "a micro-batch is of segment %" PRIu32
                       ", which is not one of this rank that follows",
                       segment);
    if (place == last && self->folds.mode == XRAY_SEGMENTS_IN_TURN)
        return xr_fail(err, XRAY_E_RANGE,
                       "segment %" PRIu32 " has more than the %" PRIu64
                       " tokens of a micro-batch, expected that each fits one",
                       segment, self->load.tokens);
    return XRAY_OK;
}

xray_status xm_folds_check(const xm_trainer *self,
                           const xray_batch *const *batches, uint32_t count,
                           xr_err *err)
{
    xray_status status = XRAY_OK;
    int64_t last = -1;
    if (!self->folds.count)
        return XRAY_OK;
    if (self->has_grads)
        return xr_fail(err, XRAY_E_STATE,
                       "%s adds up segments of a mini-batch, whose "
                       "micro-batches come in one call",
                       self->owner);
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++) {
        if (!batches[i]->rows)
            continue;
        status = check_place(self, batches[i]->segment, last, err);
        last = find_place(self, batches[i]->segment);
    }
    return status;
}

/* Ends the present segment. One that the ranks add up pass by pass needs a pass
 * of this rank, even if it has no rows. */
static xray_status end_segment(xm_trainer *self, xr_err *err)
{
    xm_folds *s = &self->folds;
    xray_status status = XRAY_OK;
    if (s->mode == XRAY_SEGMENTS_IN_RUNS)
        status = xm_trainer_fold_full_grads(self, err);
    else if (!s->begun)
        status = xm_trainer_run_empty_batch(self, err);
    s->begun = 0;
    s->done++;
    return status;
}

xray_status xm_folds_reach(xm_trainer *self, const xray_batch *batch,
                           xr_err *err)
{
    xm_folds *s = &self->folds;
    uint32_t place =
        batch && s->count ? find_place(self, batch->segment) : s->count;
    xray_status status = XRAY_OK;
    while (s->done < place && status == XRAY_OK)
        status = end_segment(self, err);
    s->begun = 1;
    return status;
}
