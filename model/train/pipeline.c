/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the micro-batches of a call through this rank's stage, forward or
 * forward and backward. A trainer without stages is the only stage of its
 * pipeline. Every stage packs every batch itself, so all of them know all
 * shapes, and only hidden states and their gradients go from stage to stage.
 *
 * A message is done when it was received, so the stages must agree on the order
 * of those between two neighbours: between warm-up and the end a stage receives
 * the gradient that is due before it sends its newest hidden states, which the
 * next stage takes after it has sent that gradient.
 */
#include <inttypes.h>
#include <string.h>

#include "model/train/schedule.h"
#include "model/train/trainer_internal.h"

#define ALL_OUTPUTS (XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE)

/* ---- messages ------------------------------------------------------------ */

static uint64_t hidden_bytes(const xm_trainer *self, const xm_flight *flight,
                             uint64_t size)
{
    return (uint64_t)flight->packed.pack.tokens * self->model.hidden * size;
}

/* Sends to the stage `to`; nothing of a pass without tokens. */
static xray_status send_rows(const xm_trainer *self, const void *rows,
                             uint64_t bytes, uint32_t to)
{
    return bytes ? self->group.comm->send(self->stages.group, NULL, rows, bytes,
                                          to)
                 : XRAY_OK;
}

static xray_status receive_rows(const xm_trainer *self, void *rows,
                                uint64_t bytes, uint32_t from)
{
    return bytes ? self->group.comm->recv(self->stages.group, NULL, rows, bytes,
                                          from)
                 : XRAY_OK;
}

static xray_status receive_hidden(const xm_trainer *self, xm_flight *flight)
{
    void *rows = xm_space_hidden(flight->space);
    if (xm_config_is_first(&self->model))
        return XRAY_OK;
    flight->packed.pack.in = rows;
    return receive_rows(
        self, rows,
        hidden_bytes(self, flight, xm_config_act_bytes(&self->model)),
        self->stages.rank - 1);
}

static xray_status send_hidden(const xm_trainer *self, const xm_flight *flight)
{
    if (xm_config_is_last(&self->model))
        return XRAY_OK;
    return send_rows(
        self, xm_space_hidden(flight->space),
        hidden_bytes(self, flight, xm_config_act_bytes(&self->model)),
        self->stages.rank + 1);
}

/* ---- a pass -------------------------------------------------------------- */

/* Packs a batch. Zero rows in `packed` mean that no output of the batch is
 * wanted. If values are the only output, as a critic asks for, the product with
 * the vocabulary is left out. */
static xray_status pack_batch(xm_flight *flight, const xray_batch *batch,
                              uint32_t outputs, xr_err *err)
{
    int value = (outputs & XRAY_OUTPUT_VALUE) != 0;
    xm_packed *packed = &flight->packed;
    xray_status status =
        xm_packer_fill(flight->packer, batch, value, err, packed);
    if (status != XRAY_OK)
        *packed = (xm_packed){ 0 };
    else if (packed->pack.rows && (outputs & ALL_OUTPUTS) == XRAY_OUTPUT_VALUE)
        packed->items.target = NULL;
    return status;
}

/* Runs the packed rows up to the outputs, which the last stage has. Without
 * rows it only takes part in the collectives of the other ranks' passes. */
static xray_status run_forward(xm_trainer *self, xm_flight *flight, xr_err *err)
{
    const xm_packed *packed = &flight->packed;
    xray_status status = receive_hidden(self, flight);
    if (status == XRAY_OK)
        status = xm_forward(self->decoder, flight->space, &packed->pack, err);
    if (status != XRAY_OK || packed->pack.rows == 0 ||
        !xm_config_is_last(&self->model))
        return status;
    return xm_outputs(self->decoder, flight->space, &packed->items,
                      &flight->heads, err);
}

/* Fills an array over all tokens with one output, and with 0 where it is not
 * wanted. */
static xray_status collect_output(const xm_flight *flight, uint32_t tokens,
                                  const float *items, float *to, xr_err *err)
{
    memset(to, 0, tokens * sizeof(float));
    return flight->packed.pack.rows
               ? xm_packer_collect(flight->packer, items, to, err)
               : XRAY_OK;
}

static xray_status collect_outputs(const xm_flight *flight, uint32_t tokens,
                                   uint32_t outputs, const xray_outputs *out,
                                   xr_err *err)
{
    const xm_token_outputs *heads = &flight->heads;
    xray_status status = XRAY_OK;
    if (outputs & XRAY_OUTPUT_LOGP)
        status = collect_output(flight, tokens, heads->logp, out->logp, err);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_ENTROPY))
        status =
            collect_output(flight, tokens, heads->entropy, out->entropy, err);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_VALUE))
        status = collect_output(flight, tokens, heads->value, out->value, err);
    return status;
}

/* ---- forward ------------------------------------------------------------- */

xray_status xm_trainer_check_outputs(const xm_trainer *self, uint32_t outputs,
                                     const xray_outputs *out, xr_err *err)
{
    if ((outputs & XRAY_OUTPUT_VALUE) && !self->value_head)
        return xr_fail(
            err, XRAY_E_ARG,
            "values are requested of %s, which was created without a "
            "value head",
            self->owner);
    if (!out)
        return XRAY_OK;
    if (((outputs & XRAY_OUTPUT_LOGP) && !out->logp) ||
        ((outputs & XRAY_OUTPUT_ENTROPY) && !out->entropy) ||
        ((outputs & XRAY_OUTPUT_VALUE) && !out->value))
        return xr_fail(err, XRAY_E_ARG,
                       "a requested output has no array to go to");
    return XRAY_OK;
}

static xray_status run_batch_forward(xm_trainer *self, const xray_batch *batch,
                                     uint32_t outputs, const xray_outputs *out,
                                     xr_err *err)
{
    xm_flight *flight = &self->flights[0];
    xr_err later = { "" };
    xray_status refused = xm_trainer_check_outputs(self, outputs, out, err);
    flight->packed = (xm_packed){ 0 };
    if (refused == XRAY_OK)
        refused = pack_batch(flight, batch, outputs, err);
    /* The other ranks have begun the pass and wait for its collectives. */
    xray_status status =
        run_forward(self, flight, refused == XRAY_OK ? err : &later);
    if (status == XRAY_OK)
        status = send_hidden(self, flight);
    if (refused != XRAY_OK || status != XRAY_OK)
        return refused != XRAY_OK ? refused : status;
    if (!xm_config_is_last(&self->model))
        return XRAY_OK;
    return collect_outputs(flight, batch->tokens, outputs, out, err);
}

/* Returns the outputs from token `first` on. */
static xray_outputs skip_outputs(const xray_outputs *out, size_t first)
{
    return (xray_outputs){ XRAY_HEADER(xray_outputs),
                           out->logp ? out->logp + first : NULL,
                           out->entropy ? out->entropy + first : NULL,
                           out->value ? out->value + first : NULL };
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose batch is refused does not leave the others waiting. If the host
 * stops, they are told as well. */
xray_status xm_trainer_score(xm_trainer *self, const xray_batch *const *batches,
                             uint32_t count, uint32_t outputs,
                             const xray_outputs *out, xr_err *err)
{
    size_t token = 0;
    xr_err later = { "" };
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < count; i++) {
        xray_outputs part = skip_outputs(out, token);
        xray_status one = run_batch_forward(self, batches[i], outputs, &part,
                                            status == XRAY_OK ? err : &later);
        status = status == XRAY_OK ? one : status;
        if (status == XRAY_E_CANCELED ||
            (status != XRAY_OK && self->group.size < 2))
            break;
        token += batches[i]->tokens;
    }
    return status;
}

/* ---- gradients ----------------------------------------------------------- */

/* The outputs that a loss is given: log-probabilities unless it reads only
 * values, and values whenever the model has a value head. */
static uint32_t loss_outputs(const xm_trainer *self, const xray_loss *loss)
{
    uint32_t outputs = loss->outputs & ALL_OUTPUTS;
    if (outputs != XRAY_OUTPUT_VALUE)
        outputs |= XRAY_OUTPUT_LOGP;
    return self->value_head ? outputs | XRAY_OUTPUT_VALUE : outputs;
}

/* Calls the loss on one micro-batch. A loss that fails has reported its own
 * sentence. */
static xray_status call_loss(xm_trainer *self, const xray_batch *batch,
                             const xray_loss *loss, xr_err *err)
{
    const xm_trainer_tokens *t = &self->tokens;
    int entropy = (loss->outputs & XRAY_OUTPUT_ENTROPY) != 0;
    size_t bytes = batch->tokens * sizeof(float);
    memset(t->dlogp, 0, bytes);
    memset(t->dentropy, 0, bytes);
    memset(t->dvalue, 0, bytes);
    xray_loss_call call = {
        .header = XRAY_HEADER(xray_loss_call),
        .batch = batch,
        .logp = t->logp,
        .entropy = entropy ? t->entropy : NULL,
        .value = self->value_head ? t->value : NULL,
        .dlogp = t->dlogp,
        .dentropy = entropy ? t->dentropy : NULL,
        .dvalue = self->value_head ? t->dvalue : NULL,
    };
    xray_status status = loss->fn(loss->ctx, &call);
    if (status == XRAY_OK)
        return XRAY_OK;
    return xr_fail(err, status < 0 ? status : XRAY_E_BUG,
                   "the loss failed on the micro-batch from row %" PRIu32,
                   batch->rows && batch->row_index ? batch->row_index[0] : 0);
}

/* Gives the device what the loss computed. */
static xray_status spread_gradients(const xm_trainer *self,
                                    const xm_flight *flight, uint32_t outputs,
                                    xr_err *err, xm_output_grads *out)
{
    xm_packer *packer = flight->packer;
    const xm_trainer_tokens *t = &self->tokens;
    xray_status status = XRAY_OK;
    *out = (xm_output_grads){ 0 };
    if (outputs & XRAY_OUTPUT_LOGP)
        status =
            xm_packer_spread(packer, t->dlogp, 0, "dL/dlogp", err, &out->dlogp);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_ENTROPY))
        status = xm_packer_spread(packer, t->dentropy, 1, "dL/dentropy", err,
                                  &out->dentropy);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_VALUE))
        status = xm_packer_spread(packer, t->dvalue, 2, "dL/dvalue", err,
                                  &out->dvalue);
    return status;
}

/* A call in progress. After a failure the other ranks still wait for this one's
 * passes, which then add no gradients. */
typedef struct walk {
    xm_trainer *self;
    const xray_batch *const *batches;
    const xray_loss *loss;
    uint32_t outputs;
    uint32_t backward;  /* 1: this stage has gradients, or one before it has */
    xm_flight *unsent;  /* hidden states that the next stage waits for */
    xray_status status; /* the first failure */
    int broken; /* a pass itself failed, so that going on is of no use */
    xr_err *err;
    xr_err later; /* sentences of further failures */
} walk;

static xr_err *err_of(walk *w)
{
    return w->status == XRAY_OK ? w->err : &w->later;
}

static void note_failure(walk *w, xray_status status, int broken)
{
    if (status == XRAY_OK)
        return;
    if (w->status == XRAY_OK)
        w->status = status;
    w->broken |= broken;
}

/* 1: after a failure this rank's passes have rows, whose gradients are 0, since
 * slices and stages of the same model compute them. */
static int keeps_rows(const xm_trainer *self)
{
    return self->tensor.size > 1 || self->context.size > 1 ||
           self->stages.size > 1;
}

static void send_unsent(walk *w)
{
    if (w->unsent && !w->broken)
        note_failure(w, send_hidden(w->self, w->unsent), 1);
    w->unsent = NULL;
}

static void fly_forward(walk *w, const xray_batch *batch, xm_flight *flight)
{
    flight->packed = (xm_packed){ 0 };
    flight->heads = (xm_token_outputs){ 0 };
    send_unsent(w);
    if (w->status == XRAY_OK || keeps_rows(w->self))
        note_failure(w, pack_batch(flight, batch, w->outputs, err_of(w)), 0);
    if (!w->broken)
        note_failure(w, run_forward(w->self, flight, err_of(w)), 1);
    w->unsent = flight;
}

/* Collects the outputs for the loss; a rank of a context does so after a
 * failure too, since the others gather its part. */
static void show_outputs(walk *w, const xray_batch *batch,
                         const xm_flight *flight)
{
    const xm_trainer_tokens *t = &w->self->tokens;
    const xray_outputs show = { XRAY_HEADER(xray_outputs), t->logp, t->entropy,
                                t->value };
    if (w->status == XRAY_OK || flight->packed.pack.rows)
        note_failure(w,
                     collect_outputs(flight, batch->tokens, w->outputs, &show,
                                     err_of(w)),
                     0);
}

/* Calls the loss, and gives its gradients to the device. */
static xray_status take_loss(walk *w, const xray_batch *batch,
                             const xm_flight *flight, xm_output_grads *out)
{
    xm_trainer *self = w->self;
    xray_status status = call_loss(self, batch, w->loss, w->err);
    if (status == XRAY_OK && flight->packed.pack.rows)
        status = spread_gradients(self, flight, w->outputs, w->err, out);
    return status;
}

/* Gives the device gradients of 0, or makes the pass one without rows. */
static xray_status take_zeros(walk *w, xm_flight *flight, xm_output_grads *out)
{
    xm_trainer *self = w->self;
    size_t bytes = self->load.tokens * sizeof(float);
    *out = (xm_output_grads){ 0 };
    if (!keeps_rows(self)) {
        xm_space_forget(flight->space);
        flight->packed = (xm_packed){ 0 };
    }
    if (flight->packed.pack.rows == 0)
        return XRAY_OK;
    memset(self->tokens.dlogp, 0, bytes);
    memset(self->tokens.dentropy, 0, bytes);
    memset(self->tokens.dvalue, 0, bytes);
    return spread_gradients(self, flight, w->outputs, &w->later, out);
}

/* Finds the gradient of the stage's hidden states: the last one computes it
 * from the loss, the others receive it. */
static xray_status find_hidden_grad(walk *w, const xray_batch *batch,
                                    xm_flight *flight, const float **out)
{
    xm_trainer *self = w->self;
    xm_output_grads grads = { 0 };
    *out = xm_space_hidden_grad(flight->space);
    if (!xm_config_is_last(&self->model))
        return receive_rows(self, xm_space_hidden_grad(flight->space),
                            hidden_bytes(self, flight, sizeof(float)),
                            self->stages.rank + 1);
    show_outputs(w, batch, flight);
    if (w->status == XRAY_OK)
        note_failure(w, take_loss(w, batch, flight, &grads), 0);
    xray_status status =
        w->status == XRAY_OK ? XRAY_OK : take_zeros(w, flight, &grads);
    return status == XRAY_OK
               ? xm_outputs_backward(self->decoder, flight->space,
                                     &flight->packed.items, &grads, self->grads,
                                     out, err_of(w))
               : status;
}

static void fly_backward(walk *w, const xray_batch *batch, xm_flight *flight)
{
    xm_trainer *self = w->self;
    const float *dhidden = NULL;
    if (w->broken)
        return;
    if (!w->backward) {
        send_unsent(w);
        return;
    }
    xray_status status = find_hidden_grad(w, batch, flight, &dhidden);
    note_failure(w, status, 1);
    send_unsent(w);
    if (!w->broken)
        note_failure(w,
                     xm_backward(self->decoder, flight->space,
                                 &flight->packed.pack, dhidden, self->grads,
                                 err_of(w)),
                     1);
    if (w->broken || !xm_trainer_sends_back(&self->model, self->from_layer))
        return;
    note_failure(w,
                 send_rows(self, xm_space_input_grad(flight->space),
                           hidden_bytes(self, flight, sizeof(float)),
                           self->stages.rank - 1),
                 1);
}

xray_status xm_trainer_run_empty_batch(xm_trainer *self, xr_err *err)
{
    xm_flight *flight = &self->flights[0];
    const xm_output_grads none = { 0 };
    const float *dhidden = NULL;
    flight->packed = (xm_packed){ 0 };
    xray_status status = run_forward(self, flight, err);
    if (status == XRAY_OK)
        status = xm_outputs_backward(self->decoder, flight->space,
                                     &flight->packed.items, &none, self->grads,
                                     &dhidden, err);
    return status == XRAY_OK
               ? xm_backward(self->decoder, flight->space, &flight->packed.pack,
                             dhidden, self->grads, err)
               : status;
}

/* Ends the segments before the one of a micro-batch whose gradients are next,
 * or all. */
static void reach_segment(walk *w, const xray_batch *batch)
{
    if (w->backward && !w->broken)
        note_failure(w, xm_folds_reach(w->self, batch, err_of(w)), 1);
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose loss fails does not leave the others waiting, who also have rows
 * of the same micro-batch where they are slices or stages of one model. */
static void walk_schedule(walk *w, const xm_schedule *schedule)
{
    xm_trainer *self = w->self;
    uint32_t warm_up = xm_schedule_warm_up(schedule);
    for (uint32_t i = 0; i < 2 * schedule->batches && !w->broken; i++) {
        xm_turn turn = xm_schedule_turn(schedule, i);
        const xray_batch *batch = w->batches[turn.batch];
        xm_flight *flight = &self->flights[turn.batch % self->flight_count];
        if (self->folds.count && !batch->rows)
            continue;
        /* A rank alone with a stage ends a segment by a pass of its own, which
         * must not come between those of a micro-batch. */
        if (turn.backward == (self->stages.size > 1))
            reach_segment(w, batch);
        self->ends = self->overlap && w->backward && turn.backward &&
                     turn.batch + 1 == schedule->batches;
        if (turn.backward)
            fly_backward(w, batch, flight);
        else
            fly_forward(w, batch, flight);
        if (i < warm_up)
            send_unsent(w);
        if (turn.backward && w->status != XRAY_OK && self->group.size < 2)
            return;
    }
}

xray_status xm_trainer_walk(xm_trainer *self, const xray_batch *const *batches,
                            uint32_t count, const xray_loss *loss, xr_err *err)
{
    xm_schedule schedule = { .stages = self->stages.size,
                             .stage = self->stages.rank,
                             .batches = count };
    walk w = { .self = self,
               .batches = batches,
               .loss = loss,
               .outputs = loss_outputs(self, loss),
               .backward = xm_trainer_runs_back(&self->model, self->from_layer),
               .err = err };
    note_failure(&w, xm_folds_check(self, batches, count, err), 0);
    if (w.status != XRAY_OK)
        schedule.batches = 0;
    else
        note_failure(&w, xm_trainer_resume_full_grads(self, err), 0);
    walk_schedule(&w, &schedule);
    reach_segment(&w, NULL);
    if (self->ends && !w.broken)
        note_failure(&w, xm_trainer_sum_tied_bucket(self, err_of(&w)), 1);
    note_failure(&w, xm_group_wait_collectives(&self->group), 1);
    self->reduced = self->ends && w.status == XRAY_OK;
    self->ends = 0;
    return w.status;
}
