/* SPDX-License-Identifier: Apache-2.0
 *
 * One round of work: what the scheduler decided, done by the device.
 */
#include "plugins/infer-dsinf/dsinf.h"

/* Copies to or from the device where host and device memory differ. */
static xray_status move(dsinf *self, void *to, const void *from, size_t bytes,
                        uint32_t kind)
{
    if (self->host_memory)
        return XRAY_OK;
    return self->device->copy(self->device_self, NULL, to, from, bytes, kind);
}

static xray_status upload(dsinf *self, void *to, const void *from, size_t bytes)
{
    return move(self, to, from, bytes, XRAY_COPY_TO_DEVICE);
}

static xray_status download(dsinf *self, void *to, const void *from,
                            size_t bytes)
{
    return move(self, to, from, bytes, XRAY_COPY_TO_HOST);
}

uint64_t dsinf_version(const dsinf *self)
{
    return self->own ? self->version
                     : self->shared->version(self->shared->owner);
}

static xray_status compute(dsinf *self, const xm_round *round,
                           const float **out_hidden, xr_err *err)
{
    const dsinf_arrays *d = &self->d;
    const dsinf_arrays *h = &self->h;
    size_t bytes = round->tokens * sizeof(int32_t);
    xray_status status = upload(self, d->ids, h->ids, bytes);
    if (status == XRAY_OK)
        status = upload(self, d->seq, h->seq, bytes);
    if (status == XRAY_OK)
        status = upload(self, d->positions, h->positions, bytes);
    if (status == XRAY_OK)
        status =
            upload(self, d->last, h->last, round->last_count * sizeof(int32_t));
    if (status != XRAY_OK)
        return xr_fail(err, status, "dsinf: a copy to the device failed");
    xm_decode_batch step = {
        .tokens = round->tokens,
        .position_bound = round->position_bound,
        .ids = d->ids,
        .seq = d->seq,
        .positions = d->positions,
        .kv = self->kv,
        .last = d->last,
        .last_count = round->last_count,
    };
    return xm_decode(self->decoder, self->space, &step, out_hidden, err);
}

/* The hidden states of `count` draws behind one another. Where they already
 * lie so, they are read in place. */
static xray_status line_up(dsinf *self, const float *hidden, uint32_t count,
                           int in_order, const float **out)
{
    uint64_t dim = self->model.hidden;
    if (in_order) {
        *out = hidden + (uint64_t)self->h.index[0] * dim;
        return XRAY_OK;
    }
    xray_status status =
        upload(self, self->d.index, self->h.index, count * sizeof(int32_t));
    if (status != XRAY_OK)
        return status;
    xray_rows rows = {
        .header = XRAY_HEADER(xray_rows),
        .count = { .bound = count },
        .index = self->d.index,
        .x = hidden,
        .y = self->gathered,
        .dim = dim,
    };
    *out = self->gathered;
    return self->device->gather(self->device_self, NULL, &rows);
}

static xray_status draw(dsinf *self, const float *x, uint32_t count)
{
    const dsinf_arrays *d = &self->d;
    xray_status status =
        upload(self, d->draws, self->h.draws, count * sizeof(xray_draw));
    if (status != XRAY_OK)
        return status;
    xray_sample call = {
        .header = XRAY_HEADER(xray_sample),
        .items = { .bound = count },
        .weight = xm_decoder_lm_head(self->decoder),
        .x = x,
        .draws = d->draws,
        .token = d->token,
        .raw_logp = d->raw_logp,
        .logp = d->logp,
        .softcap = (float)self->model.logit_softcap,
        .draw_stride = sizeof(xray_draw),
    };
    status = self->device->sample(self->device_self, NULL, &call);
    if (status == XRAY_OK)
        status =
            download(self, self->h.token, d->token, count * sizeof(int32_t));
    if (status == XRAY_OK)
        status = download(self, self->h.raw_logp, d->raw_logp,
                          count * sizeof(float));
    if (status == XRAY_OK)
        status = download(self, self->h.logp, d->logp, count * sizeof(float));
    if (status == XRAY_OK)
        status = self->device->sync(self->device_self, NULL);
    return status;
}

static xray_status draw_all(dsinf *self, const float *hidden, xr_err *err)
{
    const dsinf_arrays *h = &self->h;
    for (;;) {
        int in_order = 0;
        uint32_t count = xm_sched_draws(self->sched, self->bounds.draws,
                                        h->draws, h->index, &in_order);
        if (count == 0)
            return XRAY_OK;
        const float *x = NULL;
        xray_status status = line_up(self, hidden, count, in_order, &x);
        if (status == XRAY_OK)
            status = draw(self, x, count);
        if (status != XRAY_OK)
            return xr_fail(err, status, "dsinf: sampling failed");
        xm_sched_results(self->sched, h->token, h->raw_logp, h->logp);
    }
}

static xray_status work(dsinf *self, xr_err *err)
{
    xm_round round = {
        .ids = self->h.ids,
        .seq = self->h.seq,
        .positions = self->h.positions,
        .last = self->h.last,
    };
    xm_sched_begin(self->sched, dsinf_version(self), &round);
    for (uint32_t i = 0; i < round.copy_count; i++) {
        xray_status status = dsinf_copy_slot(self, &round.copies[i]);
        if (status != XRAY_OK)
            return xr_fail(err, status, "dsinf: copying a prompt failed");
    }
    const float *hidden = NULL;
    xray_status status = XRAY_OK;
    if (round.tokens)
        status = compute(self, &round, &hidden, err);
    if (status == XRAY_OK)
        status = draw_all(self, hidden, err);
    if (status == XRAY_OK)
        xm_sched_end(self->sched);
    return status;
}

xray_status dsinf_step(void *ptr)
{
    dsinf *self = ptr;
    xr_err err = { "" };
    if (self->broken)
        return self->host->fail(self->host, XRAY_E_STATE, "step",
                                "dsinf: an earlier step failed; the engine "
                                "can only be destroyed");
    if (self->paused || !xm_sched_has_work(self->sched))
        return XRAY_OK;
    xray_status status = work(self, &err);
    if (status != XRAY_OK) {
        self->broken = 1;
        return dsinf_fail(self->host, status, "step", &err);
    }
    dsinf_settle(self);
    return xm_sched_has_work(self->sched) ? XRAY_AGAIN : XRAY_OK;
}
