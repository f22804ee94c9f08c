/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes logits where something comes between the LM head and the draw: they
 * are edited, or log-probs of further ids are read from them. Draws without
 * wishes do not come here, unless ranks share the vocabulary, and have the same
 * bits either way.
 */
#include "model/serve/engine_internal.h"

/* The products are those of the LM head within log-probabilities. */
static xray_status compute_logits(xm_engine *self, const void *x,
                                  uint32_t count)
{
    uint64_t stride = 0;
    float *own = xm_engine_own_logits(self, count, &stride);
    const xray_matmul product = {
        .header = XRAY_HEADER(xray_matmul),
        .weight = xm_decoder_lm_head(self->decoder),
        .tokens = { .bound = count },
        .x = x,
        .y = own,
        .x_stride = self->model.hidden,
        .y_stride = stride,
        .kind = XRAY_NT,
        .x_dtype = self->model.dtype,
    };
    xray_status status =
        self->device->matmul(self->device_self, NULL, &product);
    return status == XRAY_OK ? xm_engine_gather_logits(self, count) : status;
}

/* Finds the log-probs of `picks` ids of each item, which are then in the host's
 * arrays: of given ids there, or of the likeliest ones. */
static xray_status pick_logp(xm_engine *self, uint32_t count, uint32_t picks,
                             uint32_t given)
{
    const xm_engine_arrays *d = &self->device_arrays;
    const xm_engine_arrays *h = &self->host_arrays;
    size_t bytes = (size_t)count * picks * sizeof(int32_t);
    const xray_pick_logp call = {
        .header = XRAY_HEADER(xray_pick_logp),
        .items = { .bound = count },
        .logits = self->logits,
        .stride = self->bounds.logits,
        .vocab = xm_config_vocab(&self->model),
        .ids = d->pick_ids,
        .logp = d->pick_logp,
        .count = picks,
        .given = given,
        .softcap = (float)self->model.logit_softcap,
        .segment = xm_vocab_segment(&self->model),
    };
    xray_status status = XRAY_OK;
    if (given)
        status = xm_engine_upload(self, d->pick_ids, h->pick_ids, bytes);
    if (status == XRAY_OK)
        status = self->device->pick_logp(self->device_self, NULL, &call);
    if (status == XRAY_OK && !given)
        status = xm_engine_download(self, h->pick_ids, d->pick_ids, bytes);
    if (status == XRAY_OK)
        status = xm_engine_download(self, h->pick_logp, d->pick_logp, bytes);
    if (status == XRAY_OK)
        status = self->device->sync(self->device_self, NULL);
    return status;
}

xray_status xm_engine_score_prompts(xm_engine *self, const void *hidden)
{
    const xm_engine_arrays *h = &self->host_arrays;
    xray_status status = XRAY_OK;
    int in_order = 0;
    uint32_t count;
    while (status == XRAY_OK &&
           (count = xm_sched_scores(self->sched, h->index, h->pick_ids,
                                    &in_order))) {
        const void *x = NULL;
        status = xm_engine_gather(self, hidden, count, in_order, &x);
        if (status == XRAY_OK)
            status = compute_logits(self, x, count);
        if (status == XRAY_OK)
            status = pick_logp(self, count, 1, 1);
        if (status == XRAY_OK)
            xm_sched_take_scores(self->sched, h->pick_logp);
    }
    return status;
}

/* ---- changes ------------------------------------------------------------ */

static xray_status upload_changes(xm_engine *self, uint32_t count,
                                  const xm_changes *changes)
{
    const xm_engine_arrays *d = &self->device_arrays;
    const xm_engine_arrays *h = &self->host_arrays;
    size_t edits = (size_t)h->edit_start[count];
    size_t words = (size_t)changes->set_count * self->bounds.words;
    xray_status status = xm_engine_upload(self, d->edit_start, h->edit_start,
                                          (count + 1) * sizeof(int32_t));
    if (status == XRAY_OK)
        status = xm_engine_upload(self, d->allowed_set, h->allowed_set,
                                  count * sizeof(int32_t));
    if (status == XRAY_OK && edits)
        status = xm_engine_upload(self, d->edits, h->edits,
                                  edits * sizeof(xray_logit_edit));
    if (status == XRAY_OK && words)
        status = xm_engine_upload(self, d->allowed, h->allowed,
                                  words * sizeof(uint32_t));
    return status;
}

static xray_status change_logits(xm_engine *self, uint32_t count,
                                 const xm_changes *changes)
{
    const xm_engine_arrays *d = &self->device_arrays;
    const xray_edit_logits call = {
        .header = XRAY_HEADER(xray_edit_logits),
        .items = { .bound = count },
        .logits = self->logits,
        .changed = self->changed,
        .stride = self->bounds.logits,
        .vocab = xm_config_vocab(&self->model),
        .edit_start = d->edit_start,
        .edits = d->edits,
        .allowed = d->allowed,
        .allowed_set = d->allowed_set,
        .softcap = (float)self->model.logit_softcap,
        .edit_stride = sizeof(xray_logit_edit),
    };
    xray_status status = upload_changes(self, count, changes);
    if (status != XRAY_OK)
        return status;
    return self->device->edit_logits(self->device_self, NULL, &call);
}

static xray_status take_picks(xm_engine *self, uint32_t count,
                              const xm_changes *changes)
{
    const xm_engine_arrays *h = &self->host_arrays;
    uint32_t top = changes->top_count;
    uint32_t given = changes->logp_id_count;
    xray_status status = XRAY_OK;
    if (top)
        status = pick_logp(self, count, top, 0);
    if (status == XRAY_OK && top)
        xm_sched_take_top(self->sched, top, h->pick_ids, h->pick_logp);
    if (status != XRAY_OK || !given)
        return status;
    xm_sched_logp_ids(self->sched, given, h->pick_ids);
    status = pick_logp(self, count, given, 1);
    if (status == XRAY_OK)
        xm_sched_take_logp(self->sched, given, h->pick_logp);
    return status;
}

xray_status xm_engine_prepare_logits(xm_engine *self, const float *x,
                                     uint32_t count, xray_sample *call)
{
    const xm_engine_arrays *h = &self->host_arrays;
    xm_changes changes = {
        .edit_start = h->edit_start,
        .edits = h->edits,
        .allowed = h->allowed,
        .allowed_set = h->allowed_set,
    };
    int changed = xm_sched_changes(self->sched, &changes);
    if (!changed && self->bounds.ranks < 2)
        return XRAY_OK;
    call->weight = NULL;
    call->x = NULL;
    call->logits = self->logits;
    call->logits_stride = self->bounds.logits;
    call->vocab = xm_config_vocab(&self->model);
    xray_status status = compute_logits(self, x, count);
    if (!changed)
        return status;
    if (status == XRAY_OK)
        status = take_picks(self, count, &changes);
    if (status != XRAY_OK || (!h->edit_start[count] && !changes.set_count))
        return status;
    call->changed = self->changed;
    return change_logits(self, count, &changes);
}
