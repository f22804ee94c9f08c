/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs micro-batches forward through the chunks of this rank's stage, and
 * exchanges hidden states with other stages. A trainer without stages is the
 * only stage of its pipeline. Every stage packs every batch itself, so all of
 * them know all shapes, and only hidden states and their gradients go from
 * stage to stage, in the order of model/train/flow.h.
 */
#include <inttypes.h>
#include <string.h>

#include "core/base/str.h"
#include "model/train/pipe.h"

/* ---- messages ------------------------------------------------------------ */

uint64_t xm_pipe_bytes(const xm_trainer *self, const xm_flight *flight,
                       uint64_t size)
{
    return (uint64_t)flight->packed.pack.tokens * self->model.hidden * size;
}

/* Sends to the stage `to`; nothing of a pass without tokens. */
xray_status xm_pipe_send(const xm_trainer *self, const void *rows,
                         uint64_t bytes, uint32_t to)
{
    return bytes ? self->group.comm->send(self->stages.group, NULL, rows, bytes,
                                          to)
                 : XRAY_OK;
}

xray_status xm_pipe_receive(const xm_trainer *self, void *rows, uint64_t bytes,
                            uint32_t from)
{
    return bytes ? self->group.comm->recv(self->stages.group, NULL, rows, bytes,
                                          from)
                 : XRAY_OK;
}

uint32_t xm_pipe_before(const xm_trainer *self)
{
    uint32_t rank = self->stages.rank;
    return (rank ? rank : self->stages.size) - 1;
}

uint32_t xm_pipe_after(const xm_trainer *self)
{
    return (self->stages.rank + 1) % self->stages.size;
}

xray_status xm_pipe_receive_hidden(const xm_trainer *self, xm_flight *flight)
{
    void *rows = xm_space_hidden(flight->space);
    flight->packed.pack.in = rows;
    return xm_pipe_receive(
        self, rows,
        xm_pipe_bytes(self, flight, xm_config_act_bytes(&self->model)),
        xm_pipe_before(self));
}

xray_status xm_pipe_send_hidden(const xm_trainer *self, const xm_flight *flight)
{
    return xm_pipe_send(
        self, xm_space_hidden(flight->space),
        xm_pipe_bytes(self, flight, xm_config_act_bytes(&self->model)),
        xm_pipe_after(self));
}

/* ---- the order ----------------------------------------------------------- */

/* 1: a chunk begins, or ends, the model. */
int xm_pipe_begins(const xm_trainer *self, uint32_t chunk)
{
    return chunk == 0 && xm_config_is_first(&self->model);
}

int xm_pipe_ends(const xm_trainer *self, uint32_t chunk)
{
    return chunk + 1 == self->chunks && xm_config_is_last(&self->model);
}

/* Fills the places of the schedule with micro-batches. With chunks a group has
 * as many as there are stages, and a segment whole groups, so that its backward
 * passes end before those of the next one; places without a micro-batch are
 * left out by all stages alike. */
static uint32_t fill_places(xm_trainer *self, const xray_batch *const *batches,
                            uint32_t count)
{
    uint32_t group = self->chunks > 1 ? self->stages.size : 1;
    uint32_t places = 0;
    uint32_t segment = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (self->folds.count && !batches[i]->rows)
            continue;
        if (self->folds.count && batches[i]->segment != segment)
            while (places % group)
                self->places[places++] = XM_PIPE_ABSENT;
        segment = batches[i]->segment;
        self->places[places++] = i;
    }
    while (places % group)
        self->places[places++] = XM_PIPE_ABSENT;
    return places;
}

/* Works out the steps of a call. */
xray_status xm_pipe_plan(xm_trainer *self, const xray_batch *const *batches,
                         uint32_t count, int forward, xr_err *err)
{
    size_t cap = count * (size_t)(self->chunks > 1 ? self->stages.size : 1);
    xm_schedule schedule = { .stages = self->stages.size,
                             .stage = self->stages.rank,
                             .chunks = self->chunks,
                             .forward = forward != 0 };
    if (xm_flow_reserve(&self->places, &self->place_cap, cap))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->owner);
    schedule.batches = fill_places(self, batches, count);
    return xm_flow_make(&schedule, err, &self->flow);
}

/* Returns the micro-batch of a step, or XM_PIPE_ABSENT. */
uint32_t xm_pipe_batch(const xm_trainer *self, const xm_flow_step *step)
{
    return self->places[step->batch];
}

/* ---- a pass -------------------------------------------------------------- */

/* Packs a batch. Zero rows in `packed` mean that no output of the batch is
 * wanted. If values are the only output, as a critic asks for, the product with
 * the vocabulary is left out. */
xray_status xm_pipe_pack(xm_flight *flight, const xray_batch *batch,
                         uint32_t outputs, xr_err *err)
{
    int value = (outputs & XRAY_OUTPUT_VALUE) != 0;
    xm_packed *packed = &flight->packed;
    xray_status status =
        xm_packer_fill(flight->packer, batch, value, err, packed);
    if (status != XRAY_OK)
        *packed = (xm_packed){ 0 };
    else if (packed->pack.rows &&
             (outputs & XM_PIPE_OUTPUTS) == XRAY_OUTPUT_VALUE)
        packed->items.target = NULL;
    return status;
}

/* Runs the packed rows through a chunk, and up to the outputs where it ends the
 * model. Without rows it only takes part in the collectives of the other ranks'
 * passes. */
xray_status xm_pipe_forward(xm_trainer *self, xm_flight *flight, uint32_t chunk,
                            xr_err *err)
{
    const xm_packed *packed = &flight->packed;
    xm_space_set_chunk(flight->space, chunk);
    xray_status status =
        xm_forward(self->decoder, flight->space, &packed->pack, err);
    if (status != XRAY_OK || packed->pack.rows == 0 ||
        !xm_pipe_ends(self, chunk))
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

xray_status xm_pipe_collect(const xm_flight *flight, uint32_t tokens,
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

/* Returns the outputs from token `first` on. */
static xray_outputs skip_outputs(const xray_outputs *out, size_t first)
{
    return (xray_outputs){ XRAY_HEADER(xray_outputs),
                           out->logp ? out->logp + first : NULL,
                           out->entropy ? out->entropy + first : NULL,
                           out->value ? out->value + first : NULL };
}

/* A call for outputs in progress. */
typedef struct scoring {
    xm_trainer *self;
    const xray_batch *const *batches;
    const xray_outputs *out;
    uint32_t outputs;
    uint32_t next; /* the micro-batch whose outputs begin at `token` */
    size_t token;
    xray_status refused; /* by this rank, whose passes then have no rows */
    xray_status status;  /* the first failure */
    xr_err *err;
    xr_err later; /* sentences of further failures */
} scoring;

static void note_result(scoring *s, xray_status status)
{
    if (s->status == XRAY_OK)
        s->status = status;
}

static xr_err *sentence_of(scoring *s)
{
    return s->status == XRAY_OK ? s->err : &s->later;
}

static void begin_scoring(scoring *s, const xray_batch *batch,
                          xm_flight *flight)
{
    flight->packed = (xm_packed){ 0 };
    if (s->refused == XRAY_OK)
        note_result(s, xm_pipe_pack(flight, batch, s->outputs, sentence_of(s)));
}

/* Collects the outputs of a micro-batch, which come in their order. */
static xray_status collect_next(scoring *s, uint32_t index,
                                const xm_flight *flight)
{
    for (; s->next < index; s->next++)
        s->token += s->batches[s->next]->tokens;
    xray_outputs part = skip_outputs(s->out, s->token);
    return xm_pipe_collect(flight, s->batches[index]->tokens, s->outputs, &part,
                           sentence_of(s));
}

/* The other ranks have begun the pass and wait for its collectives. */
static void take_scoring_step(scoring *s, const xm_flow_step *step,
                              uint32_t index)
{
    xm_trainer *self = s->self;
    xm_flight *flight = &self->flights[step->flight];
    if (step->what == XM_FLOW_RECEIVE ||
        (step->what == XM_FLOW_FORWARD && xm_pipe_begins(self, step->chunk)))
        begin_scoring(s, s->batches[index], flight);
    if (step->what == XM_FLOW_RECEIVE) {
        note_result(s, xm_pipe_receive_hidden(self, flight));
    } else if (step->what == XM_FLOW_SEND) {
        note_result(s, xm_pipe_send_hidden(self, flight));
    } else {
        xray_status status =
            xm_pipe_forward(self, flight, step->chunk, sentence_of(s));
        note_result(s, status);
        if (status == XRAY_OK && xm_pipe_ends(self, step->chunk) &&
            s->refused == XRAY_OK)
            note_result(s, collect_next(s, index, flight));
    }
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose batch is refused does not leave the others waiting. If the host
 * stops, they are told as well. */
xray_status xm_trainer_score(xm_trainer *self, const xray_batch *const *batches,
                             uint32_t count, uint32_t outputs,
                             const xray_outputs *out, xr_err *err)
{
    scoring s = { .self = self,
                  .batches = batches,
                  .out = out,
                  .outputs = outputs,
                  .err = err };
    xray_status status = xm_pipe_plan(self, batches, count, 1, err);
    if (status != XRAY_OK)
        return status;
    s.status = s.refused = xm_trainer_check_outputs(self, outputs, out, err);
    for (uint32_t i = 0; i < self->flow.count; i++) {
        const xm_flow_step *step = &self->flow.steps[i];
        uint32_t index = xm_pipe_batch(self, step);
        if (index != XM_PIPE_ABSENT)
            take_scoring_step(&s, step, index);
        if (s.status == XRAY_E_CANCELED ||
            (s.status != XRAY_OK && self->group.size < 2))
            break;
    }
    return s.status;
}
