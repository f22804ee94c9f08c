/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one step: the device computes the tokens that the scheduler chose and
 * samples from the results.
 */
#include "model/serve/engine_internal.h"

/* Copies to or from the device where host and device memory differ. */
static xray_status copy_array(xm_engine *self, void *to, const void *from,
                              size_t bytes, uint32_t kind)
{
    if (self->host_memory)
        return XRAY_OK;
    return self->device->copy(self->device_self, NULL, to, from, bytes, kind);
}

xray_status xm_engine_upload(xm_engine *self, void *to, const void *from,
                             size_t bytes)
{
    return copy_array(self, to, from, bytes, XRAY_COPY_TO_DEVICE);
}

xray_status xm_engine_download(xm_engine *self, void *to, const void *from,
                               size_t bytes)
{
    return copy_array(self, to, from, bytes, XRAY_COPY_TO_HOST);
}

xray_status xm_engine_mark_uploads(xm_engine *self)
{
    return self->host_memory ? XRAY_OK
                             : self->device->event_record(self->device_self,
                                                          NULL, self->uploaded);
}

/* Waits until the device has read the step arrays, which the scheduler is about
 * to write. The copies may be queued behind a step whose results nobody has
 * waited for, as of a prompt's chunk. */
static xray_status wait_for_uploads(xm_engine *self, xr_err *err)
{
    xray_status status =
        self->host_memory
            ? XRAY_OK
            : self->device->event_sync(self->device_self, self->uploaded);
    return status == XRAY_OK
               ? XRAY_OK
               : xr_fail(err, status, "%s: a copy to the device failed",
                         self->name);
}

uint64_t xm_engine_version(const xm_engine *self)
{
    return self->own ? self->version
                     : self->shared->version(self->shared->owner);
}

static xray_status upload_tokens(xm_engine *self, const xm_sched_step *step)
{
    const xm_engine_arrays *d = &self->device_arrays;
    const xm_engine_arrays *h = &self->host_arrays;
    size_t bytes = step->tokens * sizeof(int32_t);
    xray_status status = xm_engine_upload(self, d->ids, h->ids, bytes);
    if (status == XRAY_OK)
        status = xm_engine_upload(self, d->seq, h->seq, bytes);
    if (status == XRAY_OK)
        status = xm_engine_upload(self, d->positions, h->positions, bytes);
    if (status == XRAY_OK)
        status = xm_engine_upload(self, d->last, h->last,
                                  step->last_count * sizeof(int32_t));
    *h->rows = (int32_t)step->rows;
    if (status == XRAY_OK)
        status = xm_engine_upload(self, d->rows, h->rows, sizeof(int32_t));
    return status;
}

xray_status xm_engine_upload_table(xm_engine *self)
{
    const xm_engine_bounds *b = &self->bounds;
    if (!b->blocks)
        return XRAY_OK;
    return xm_engine_upload(
        self, self->device_arrays.table, self->host_arrays.table,
        (size_t)b->slots * b->slot_blocks * sizeof(int32_t));
}

xray_status xm_engine_compute(xm_engine *self, const xm_sched_step *step,
                              const int32_t *live, const void **out_hidden,
                              xr_err *err)
{
    const xm_engine_arrays *d = &self->device_arrays;
    xm_decode_batch inputs = {
        .tokens = step->tokens,
        .live = live,
        .position_bound = step->position_bound,
        .ids = d->ids,
        .seq = d->seq,
        .positions = d->positions,
        .kv = self->kv,
        .last = d->last,
        .last_count = step->last_count,
    };
    return xm_decode(self->decoder, self->space, &inputs, out_hidden, err);
}

xray_status xm_engine_gather(xm_engine *self, const void *hidden,
                             uint32_t count, int in_order, const void **out)
{
    uint64_t dim = self->model.hidden;
    if (in_order) {
        uint64_t first = (uint64_t)self->host_arrays.index[0] * dim;
        *out = (const char *)hidden + first * xm_config_act_bytes(&self->model);
        return XRAY_OK;
    }
    xray_status status =
        xm_engine_upload(self, self->device_arrays.index,
                         self->host_arrays.index, count * sizeof(int32_t));
    if (status != XRAY_OK)
        return status;
    xray_rows rows = {
        .header = XRAY_HEADER(xray_rows),
        .count = { .bound = count },
        .index = self->device_arrays.index,
        .x = hidden,
        .y = self->gathered,
        .dim = dim,
        .dtype = self->model.dtype,
    };
    *out = self->gathered;
    return self->device->gather(self->device_self, NULL, &rows);
}

xray_status xm_engine_draw(xm_engine *self, const void *x, xray_extent count,
                           uint32_t turn, int issued)
{
    const xm_engine_drawn *d = &self->device_arrays.drawn[turn];
    const xm_engine_drawn *h = &self->host_arrays.drawn[turn];
    xray_sample call = {
        .header = XRAY_HEADER(xray_sample),
        .items = count,
        .weight = xm_decoder_lm_head(self->decoder),
        .x = x,
        .draws = self->device_arrays.draws,
        .token = d->token,
        .raw_logp = d->raw_logp,
        .logp = d->logp,
        .softcap = (float)self->model.logit_softcap,
        .draw_stride = sizeof(xray_draw),
        .segment = xm_vocab_segment(&self->model),
        .x_dtype = self->model.dtype,
    };
    xray_status status = XRAY_OK;
    if (issued)
        status =
            xm_engine_prepare_logits(self, x, (uint32_t)count.bound, &call);
    if (status == XRAY_OK)
        status = self->device->sample(self->device_self, NULL, &call);
    if (status == XRAY_OK)
        status = xm_engine_download(self, h->token, d->token,
                                    count.bound * sizeof(int32_t));
    if (status == XRAY_OK)
        status = xm_engine_download(self, h->raw_logp, d->raw_logp,
                                    count.bound * sizeof(float));
    if (status == XRAY_OK)
        status = xm_engine_download(self, h->logp, d->logp,
                                    count.bound * sizeof(float));
    return status;
}

/* ---- steps ahead --------------------------------------------------------- */

/* Takes the results of the draws that were enqueued last. While they are not
 * there, the device is given the next step rather than nothing. */
static xray_status take_results(xm_engine *self, const xm_sched_step *step,
                                xr_err *err)
{
    const xm_engine_drawn *h = &self->host_arrays.drawn[self->turn];
    xray_event *done = self->done[self->turn];
    xray_status status = self->device->event_query(self->device_self, done);
    if (status == XRAY_AGAIN) {
        status = wait_for_uploads(self, err);
        if (status != XRAY_OK)
            return status;
        /* Ranks must make the same steps, so none follows the clock. */
        if (self->bounds.ranks < 2 &&
            xm_sched_follow(self->sched, step, &self->ahead)) {
            status = xm_engine_make_ahead(self, err);
            if (status != XRAY_OK)
                return status;
        }
        status = self->device->event_sync(self->device_self, done);
    }
    if (status != XRAY_OK)
        return xr_fail(err, status, "%s: sampling failed", self->name);
    xm_sched_results(self->sched, h->token, h->raw_logp, h->logp);
    return XRAY_OK;
}

static int take_ahead(xm_engine *self, xm_sched_step *step)
{
    if (!self->going)
        return 0;
    self->going = 0;
    *step = self->ahead;
    if (!xm_sched_take_ahead(self->sched, step))
        return 0;
    self->turn ^= 1;
    return 1;
}

/* ---- the step ------------------------------------------------------------ */

static xray_status sample_all(xm_engine *self, const xm_sched_step *step,
                              const void *hidden, xr_err *err)
{
    const xm_engine_arrays *h = &self->host_arrays;
    xray_status scored = xm_engine_score_prompts(self, hidden);
    if (scored != XRAY_OK)
        return xr_fail(err, scored, "%s: the log-probs of a prompt failed",
                       self->name);
    for (;;) {
        int in_order = 0;
        uint32_t count = xm_sched_draws(self->sched, self->bounds.draws,
                                        h->draws, h->index, &in_order);
        if (count == 0)
            return XRAY_OK;
        const void *x = NULL;
        xray_status status =
            xm_engine_gather(self, hidden, count, in_order, &x);
        if (status == XRAY_OK)
            status = xm_engine_upload(self, self->device_arrays.draws, h->draws,
                                      count * sizeof(xray_draw));
        if (status == XRAY_OK)
            status = xm_engine_draw(self, x, (xray_extent){ .bound = count },
                                    self->turn, 1);
        if (status == XRAY_OK)
            status = self->device->event_record(self->device_self, NULL,
                                                self->done[self->turn]);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: sampling failed", self->name);
        status = take_results(self, step, err);
        if (status != XRAY_OK)
            return status;
    }
}

static xray_status make_step(xm_engine *self, xm_sched_step *step, xr_err *err)
{
    xray_status read = wait_for_uploads(self, err);
    if (read != XRAY_OK)
        return read;
    xm_sched_begin(self->sched, step);
    for (uint32_t i = 0; i < step->copy_count; i++) {
        xray_status status = xm_engine_copy_slot(self, &step->copies[i]);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: copying a prompt failed",
                           self->name);
    }
    const void *hidden = NULL;
    xray_status status = XRAY_OK;
    if (step->tokens) {
        status = upload_tokens(self, step);
        if (status == XRAY_OK)
            status = xm_engine_upload_table(self);
        if (status == XRAY_OK)
            status = xm_engine_mark_uploads(self);
        if (status != XRAY_OK)
            return xr_fail(err, status, "%s: a copy to the device failed",
                           self->name);
        status = xm_engine_compute(self, step, NULL, &hidden, err);
    }
    if (status == XRAY_OK)
        status = sample_all(self, step, hidden, err);
    return status;
}

static xray_status run_step(xm_engine *self, xr_err *err)
{
    xm_sched_step step = {
        .ids = self->host_arrays.ids,
        .seq = self->host_arrays.seq,
        .positions = self->host_arrays.positions,
        .last = self->host_arrays.last,
    };
    xray_status status = take_ahead(self, &step)
                             ? take_results(self, &step, err)
                             : make_step(self, &step, err);
    if (status != XRAY_OK)
        return status;
    xm_sched_end(self->sched);
    xr_err lost = { "" };
    if (self->trace && xm_trace_flush(self->trace, &lost) != XRAY_OK)
        xm_engine_lose_trace(self, &lost);
    xm_engine_measure_step(self, step.rows);
    return XRAY_OK;
}

xray_status xm_engine_step(void *ptr)
{
    xm_engine *self = ptr;
    xr_err err = { "" };
    if (self->broken)
        return xm_engine_fail(self, XRAY_E_STATE, "step",
                              "an earlier step failed; the engine "
                              "can only be destroyed");
    if (!xm_sched_has_work(self->sched))
        return XRAY_END;
    xray_status status = xm_engine_check_weights(self, "step");
    if (status != XRAY_OK)
        return status;
    status = xr_stop_check(self->calls, &err);
    if (status == XRAY_OK)
        status =
            xm_sched_set_version(self->sched, xm_engine_version(self), &err);
    if (status != XRAY_OK)
        return xr_host_tell(self->host, status, "step", &err);
    status = xm_engine_agree(self, &err);
    if (status == XRAY_OK)
        status = run_step(self, &err);
    if (status != XRAY_OK) {
        self->broken = 1;
        return xr_host_tell(self->host, status, "step", &err);
    }
    xm_engine_drop_lease(self);
    return xm_sched_has_work(self->sched) ? XRAY_OK : XRAY_END;
}
