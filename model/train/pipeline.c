/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the micro-batches of a call through this rank's stage, forward and
 * backward.
 */
#include <inttypes.h>
#include <string.h>

#include "model/train/pipe.h"

/* The outputs that a loss is given: log-probabilities unless it reads only
 * values, and values whenever the model has a value head. */
static uint32_t loss_outputs(const xm_trainer *self, const xray_loss *loss)
{
    uint32_t outputs = loss->outputs & XM_PIPE_OUTPUTS;
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
    uint32_t last;      /* the last micro-batch */
    uint32_t backward;  /* 1: this stage has gradients, or one before it has */
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

static void begin_flight(walk *w, const xray_batch *batch, xm_flight *flight)
{
    flight->packed = (xm_packed){ 0 };
    flight->heads = (xm_token_outputs){ 0 };
    if (w->status == XRAY_OK || keeps_rows(w->self))
        note_failure(w, xm_pipe_pack(flight, batch, w->outputs, err_of(w)), 0);
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
                     xm_pipe_collect(flight, batch->tokens, w->outputs, &show,
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

/* Finds the gradient of the chunk's hidden states: the one that ends the model
 * computes it from the loss, the others have received it. */
static xray_status find_hidden_grad(walk *w, const xray_batch *batch,
                                    xm_flight *flight, uint32_t chunk,
                                    const float **out)
{
    xm_trainer *self = w->self;
    xm_output_grads grads = { 0 };
    *out = xm_space_hidden_grad(flight->space);
    if (!xm_pipe_ends(self, chunk))
        return XRAY_OK;
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

static void fly_backward(walk *w, const xray_batch *batch, xm_flight *flight,
                         uint32_t chunk)
{
    xm_trainer *self = w->self;
    const float *dhidden = NULL;
    if (!xm_trainer_runs_back(&self->model, chunk, self->from_layer))
        return;
    note_failure(w, find_hidden_grad(w, batch, flight, chunk, &dhidden), 1);
    if (!w->broken)
        note_failure(w,
                     xm_backward(self->decoder, flight->space,
                                 &flight->packed.pack, dhidden, self->grads,
                                 err_of(w)),
                     1);
}

/* Gradients go to a chunk that runs backward from the one after it. */
static xray_status receive_grad(const xm_trainer *self, const xm_flight *flight,
                                uint32_t chunk)
{
    if (!xm_trainer_runs_back(&self->model, chunk, self->from_layer))
        return XRAY_OK;
    return xm_pipe_receive(self, xm_space_hidden_grad(flight->space),
                           xm_pipe_bytes(self, flight, sizeof(float)),
                           xm_pipe_after(self));
}

static xray_status send_grad(const xm_trainer *self, const xm_flight *flight,
                             uint32_t chunk)
{
    if (!xm_trainer_sends_back(&self->model, chunk, self->from_layer))
        return XRAY_OK;
    return xm_pipe_send(self, xm_space_input_grad(flight->space),
                        xm_pipe_bytes(self, flight, sizeof(float)),
                        xm_pipe_before(self));
}

xray_status xm_trainer_run_empty_batch(xm_trainer *self, xr_err *err)
{
    xm_flight *flight = &self->flights[0];
    const xm_output_grads none = { 0 };
    const float *dhidden = NULL;
    flight->packed = (xm_packed){ 0 };
    xray_status status = xm_pipe_forward(self, flight, 0, err);
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

/* Runs a chunk forward or backward. A rank alone with a stage ends a segment by
 * a pass of its own, which must not come between those of a micro-batch. */
static void take_turn(walk *w, const xm_flow_step *step, uint32_t index)
{
    xm_trainer *self = w->self;
    const xray_batch *batch = w->batches[index];
    xm_flight *flight = &self->flights[step->flight];
    int backward = step->what == XM_FLOW_BACKWARD;
    if (backward == (self->stages.size > 1))
        reach_segment(w, batch);
    self->ends = self->overlap && w->backward && backward && index == w->last;
    if (w->broken)
        return;
    if (backward) {
        fly_backward(w, batch, flight, step->chunk);
        return;
    }
    if (xm_pipe_begins(self, step->chunk))
        begin_flight(w, batch, flight);
    note_failure(w, xm_pipe_forward(self, flight, step->chunk, err_of(w)), 1);
}

static void take_step(walk *w, const xm_flow_step *step, uint32_t index)
{
    xm_trainer *self = w->self;
    xm_flight *flight = &self->flights[step->flight];
    switch (step->what) {
    case XM_FLOW_RECEIVE:
        begin_flight(w, w->batches[index], flight);
        note_failure(w, xm_pipe_receive_hidden(self, flight), 1);
        return;
    case XM_FLOW_SEND:
        note_failure(w, xm_pipe_send_hidden(self, flight), 1);
        return;
    case XM_FLOW_RECEIVE_GRAD:
        note_failure(w, receive_grad(self, flight, step->chunk), 1);
        return;
    case XM_FLOW_SEND_GRAD:
        note_failure(w, send_grad(self, flight, step->chunk), 1);
        return;
    default:
        take_turn(w, step, index);
    }
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose loss fails does not leave the others waiting, who also have rows
 * of the same micro-batch where they are slices or stages of one model. */
static void walk_steps(walk *w)
{
    const xm_trainer *self = w->self;
    for (uint32_t i = 0; i < self->flow.count && !w->broken; i++) {
        const xm_flow_step *step = &self->flow.steps[i];
        uint32_t index = xm_pipe_batch(self, step);
        if (index == XM_PIPE_ABSENT)
            continue;
        take_step(w, step, index);
        if (step->what == XM_FLOW_BACKWARD && w->status != XRAY_OK &&
            self->group.size < 2)
            return;
    }
}

xray_status xm_trainer_walk(xm_trainer *self, const xray_batch *const *batches,
                            uint32_t count, const xray_loss *loss, xr_err *err)
{
    walk w = { .self = self,
               .batches = batches,
               .loss = loss,
               .outputs = loss_outputs(self, loss),
               .last = count - 1,
               .backward = xm_trainer_runs_back(&self->model, self->chunks - 1,
                                                self->from_layer),
               .err = err };
    note_failure(&w, xm_folds_check(self, batches, count, err), 0);
    if (w.status == XRAY_OK)
        note_failure(&w, xm_trainer_resume_full_grads(self, err), 0);
    else
        count = 0;
    note_failure(&w, xm_pipe_plan(self, batches, count, 0, err_of(&w)), 1);
    walk_steps(&w);
    reach_segment(&w, NULL);
    if (self->ends && !w.broken)
        note_failure(&w, xm_trainer_sum_tied_bucket(self, err_of(&w)), 1);
    note_failure(&w, xm_group_wait_collectives(&self->group), 1);
    self->reduced = self->ends && w.status == XRAY_OK;
    self->ends = 0;
    return w.status;
}
