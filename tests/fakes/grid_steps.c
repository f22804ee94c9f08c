/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes outputs and gradients of two tables that are cut over the ranks of a
 * replica, and takes steps of gradient descent.
 */
#include <math.h>
#include <string.h>

#include "tests/fakes/grid_trainer.h"

#define UNIT 0x1p40 /* gradients are integers of 1 / UNIT */

/* ---- forward ------------------------------------------------------------- */

static double temperature_of(const xray_batch *batch, uint32_t row)
{
    return batch->temperature ? (double)batch->temperature[row] : 1.0;
}

static int is_wanted(const xray_batch *batch, uint32_t row, int32_t t)
{
    return t > batch->row_start[row] &&
           (!batch->loss_mask || batch->loss_mask[t] != 0);
}

/* Sends from one stage to the next or back, and waits for the device. */
static xray_status pass_along(trainer *self, void *buffer, uint64_t bytes,
                              uint32_t from)
{
    const grid_world *w = &self->world;
    if (w->pp.size == 1)
        return XRAY_OK;
    xray_status status =
        w->pp.rank == from
            ? w->comm->send(w->pp.group, NULL, buffer, bytes, 1 - from)
            : w->comm->recv(w->pp.group, NULL, buffer, bytes, from);
    return status == XRAY_OK ? w->device->sync(w->device_self, NULL) : status;
}

/* The hidden state of a token is that of the token before it. A rank knows the
 * rows of its half; the other half's are 0 and are added. */
static xray_status compute_hidden(trainer *self, const xray_batch *batch)
{
    const grid_world *w = &self->world;
    const uint64_t count = (uint64_t)batch->tokens * HIDDEN;
    xray_status status = XRAY_OK;
    if (!batch->tokens)
        return XRAY_OK;
    if (holds_stage(self, EMBED)) {
        const grid_rows held = self->held[EMBED];
        memset(self->hidden, 0, count * sizeof(float));
        for (uint32_t t = 1; t < batch->tokens; t++) {
            uint32_t id = (uint32_t)batch->ids[t - 1];
            if (id >= held.first && id < held.end)
                memcpy(self->hidden + (size_t)t * HIDDEN,
                       row_of(self, EMBED, id), HIDDEN * sizeof(float));
        }
        if (w->tp.size > 1)
            status = w->comm->all_reduce(w->tp.group, NULL, self->hidden, count,
                                         XRAY_F32);
        if (status == XRAY_OK)
            status = w->device->sync(w->device_self, NULL);
    }
    return status == XRAY_OK
               ? pass_along(self, self->hidden, count * sizeof(float), 0)
               : status;
}

static void compute_logits(trainer *self, uint32_t half, int32_t t)
{
    const grid_rows rows = grid_half(self->vocab, half);
    for (uint32_t v = rows.first; v < rows.end; v++)
        self->logits[v - rows.first] = grid_logit(
            self->hidden + (size_t)t * HIDDEN, row_of(self, HEAD, v));
}

/* Computes the parts of the halves that this rank holds, and takes the other
 * from its neighbour. */
static xray_status compute_parts(trainer *self, const xray_batch *batch)
{
    const uint64_t bytes = batch->tokens * sizeof(grid_part);
    if (!batch->tokens || !holds_stage(self, HEAD))
        return XRAY_OK;
    for (uint32_t half = 0; half < HALVES; half++)
        for (uint32_t r = 0; holds_part(self, HEAD, half) && r < batch->rows;
             r++)
            for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
                 t++) {
                if (!is_wanted(batch, r, t))
                    continue;
                compute_logits(self, half, t);
                self->parts[half * batch->tokens + (uint32_t)t] =
                    grid_summarize(self->logits, grid_half(self->vocab, half),
                                   temperature_of(batch, r),
                                   (uint32_t)batch->ids[t]);
            }
    if (self->world.tp.size == 1)
        return XRAY_OK;
    return grid_gather(&self->world, &self->world.tp,
                       self->parts + self->world.tp.rank * batch->tokens,
                       self->parts, bytes);
}

static grid_joined join_token(const trainer *self, const xray_batch *batch,
                              int32_t t)
{
    return grid_join(&self->parts[t],
                     &self->parts[batch->tokens + (uint32_t)t]);
}

static xray_status forward_batch(trainer *self, const xray_batch *batch,
                                 float *logp, float *entropy)
{
    if (batch->tokens > self->tokens)
        return refuse_call(self, XRAY_E_RANGE, __func__,
                           "a micro-batch is over the bound");
    xray_status status = compute_hidden(self, batch);
    if (status == XRAY_OK)
        status = compute_parts(self, batch);
    if (status != XRAY_OK || !holds_stage(self, HEAD))
        return status;
    for (uint32_t r = 0; r < batch->rows; r++)
        for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
             t++) {
            grid_joined token = { 0 };
            if (is_wanted(batch, r, t))
                token = join_token(self, batch, t);
            if (logp)
                logp[t] = (float)token.logp;
            if (entropy)
                entropy[t] = (float)token.entropy;
        }
    return XRAY_OK;
}

/* Refuses micro-batches that are not filled up as it was planned. */
static xray_status check_batches(const trainer *self,
                                 const xray_batch *const *batches,
                                 uint32_t count)
{
    if (count % self->micro_multiple)
        return refuse_call(self, XRAY_E_BUG, __func__,
                           "a micro-batch is missing");
    for (uint32_t i = 0; i < count; i++) {
        const xray_batch *b = batches[i];
        if (b->tokens % self->token_multiple)
            return refuse_call(self, XRAY_E_BUG, __func__,
                               "a micro-batch is not padded");
        for (uint32_t r = 0; r < b->rows; r++)
            if ((uint64_t)(b->row_start[r + 1] - b->row_start[r]) >
                self->row_tokens)
                return refuse_call(self, XRAY_E_BUG, __func__,
                                   "a row is longer than the longest");
    }
    return XRAY_OK;
}

xray_status grid_forward(void *ptr, const xray_batch *const *batches,
                         uint32_t count, uint32_t outputs, xray_outputs *out)
{
    trainer *self = ptr;
    xray_status status = check_batches(self, batches, count);
    size_t at = 0;
    if (outputs & XRAY_OUTPUT_VALUE)
        return refuse_call(self, XRAY_E_UNSUPPORTED, __func__,
                           "two tables have no value head");
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++) {
        status = forward_batch(
            self, batches[i],
            outputs & XRAY_OUTPUT_LOGP ? out->logp + at : NULL,
            outputs & XRAY_OUTPUT_ENTROPY ? out->entropy + at : NULL);
        at += batches[i]->tokens;
    }
    return status;
}

/* ---- gradients ----------------------------------------------------------- */

static void add_slope(trainer *self, uint32_t stage, uint32_t row, uint32_t k,
                      double slope)
{
    int64_t *grad = self->grad[stage];
    if (isfinite(slope))
        grad[(size_t)row * HIDDEN + k] += (int64_t)llrint(slope * UNIT);
    else
        grad[table_size(self)]++;
}

/* dz_v = (dlogp (1[v = token] - p_v) - dH p_v (log p_v + H)) / temperature, for
 * the rows of one half. */
static void back_token(trainer *self, const xray_batch *batch, uint32_t r,
                       int32_t t, uint32_t half)
{
    const grid_rows rows = grid_half(self->vocab, half);
    const grid_joined token = join_token(self, batch, t);
    const double temperature = temperature_of(batch, r);
    const double dlogp = (double)self->values[2][t];
    const double dentropy = (double)self->values[3][t];
    const float *hidden = self->hidden + (size_t)t * HIDDEN;
    double *slopes = self->both_slopes +
                     (half * batch->tokens + (size_t)(uint32_t)t) * HIDDEN;
    compute_logits(self, half, t);
    for (uint32_t v = rows.first; v < rows.end; v++) {
        double logp =
            (double)self->logits[v - rows.first] / temperature - token.log_sum;
        double p = exp(logp);
        double hit = (int32_t)v == batch->ids[t];
        double slope =
            (dlogp * (hit - p) - dentropy * p * (logp + token.entropy)) /
            temperature;
        for (uint32_t k = 0; k < HIDDEN; k++) {
            add_slope(self, HEAD, v, k, slope * (double)hidden[k]);
            slopes[k] += slope * (double)row_of(self, HEAD, v)[k];
        }
    }
}

/* The last stage: gradients of `head`, and those of the hidden states. */
static xray_status back_head(trainer *self, const xray_batch *batch)
{
    const uint64_t count = (uint64_t)batch->tokens * HIDDEN;
    double *both = self->both_slopes;
    memset(both, 0, HALVES * count * sizeof(double));
    for (uint32_t half = 0; half < HALVES; half++)
        for (uint32_t r = 0; holds_part(self, HEAD, half) && r < batch->rows;
             r++)
            for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
                 t++)
                if (is_wanted(batch, r, t))
                    back_token(self, batch, r, t, half);
    xray_status status = XRAY_OK;
    if (self->world.tp.size > 1)
        status = grid_gather(&self->world, &self->world.tp,
                             both + self->world.tp.rank * count, both,
                             count * sizeof(double));
    for (uint64_t i = 0; i < count; i++)
        self->slopes[i] = both[i] + both[count + i];
    return status;
}

static void back_embed(trainer *self, const xray_batch *batch)
{
    const grid_rows held = self->held[EMBED];
    for (uint32_t r = 0; r < batch->rows; r++)
        for (int32_t t = batch->row_start[r] + 1; t < batch->row_start[r + 1];
             t++) {
            uint32_t id = (uint32_t)batch->ids[t - 1];
            if (id < held.first || id >= held.end)
                continue;
            for (uint32_t k = 0; k < HIDDEN; k++)
                add_slope(self, EMBED, id, k,
                          self->slopes[(size_t)t * HIDDEN + k]);
        }
}

static xray_status call_loss(trainer *self, const xray_batch *batch,
                             const xray_loss *loss)
{
    const size_t bytes = batch->tokens * sizeof(float);
    memset(self->values[2], 0, bytes);
    memset(self->values[3], 0, bytes);
    xray_loss_call call = { .header = XRAY_HEADER(xray_loss_call),
                            .batch = batch,
                            .logp = self->values[0],
                            .entropy = self->values[1],
                            .dlogp = self->values[2],
                            .dentropy = self->values[3] };
    return loss->fn(loss->ctx, &call);
}

/* The last stage calls the loss. It sends the loss's status behind the
 * gradients, since the first stage waits for them in any case. */
static xray_status back_batch(trainer *self, const xray_batch *batch,
                              const xray_loss *loss)
{
    const uint64_t count = (uint64_t)batch->tokens * HIDDEN;
    xray_status said = XRAY_OK;
    xray_status status =
        forward_batch(self, batch, self->values[0], self->values[1]);
    if (status != XRAY_OK)
        return status;
    if (holds_stage(self, HEAD)) {
        said = call_loss(self, batch, loss);
        if (said == XRAY_OK)
            status = back_head(self, batch);
        self->slopes[count] = said;
    }
    if (status == XRAY_OK)
        status =
            pass_along(self, self->slopes, (count + 1) * sizeof(double), 1);
    if (status != XRAY_OK)
        return status;
    said = (xray_status)self->slopes[count];
    if (said == XRAY_OK && holds_stage(self, EMBED))
        back_embed(self, batch);
    return said == XRAY_OK || holds_stage(self, HEAD)
               ? said
               : refuse_call(self, said, __func__,
                             "the loss failed on the last stage");
}

static void clear_gradients(trainer *self)
{
    for (uint32_t stage = 0; stage < STAGES; stage++)
        memset(self->grad[stage], 0, (table_size(self) + 1) * sizeof(int64_t));
}

xray_status grid_discard(void *self)
{
    clear_gradients(self);
    return XRAY_OK;
}

xray_status grid_backward(void *ptr, const xray_batch *const *batches,
                          uint32_t count, const xray_loss *loss)
{
    trainer *self = ptr;
    xray_status status = check_batches(self, batches, count);
    for (uint32_t i = 0; i < count && status == XRAY_OK; i++)
        status = back_batch(self, batches[i], loss);
    if (status != XRAY_OK)
        clear_gradients(self);
    return status;
}

/* ---- steps --------------------------------------------------------------- */

/* Adds the gradients of all replicas. */
static xray_status add_replicas(trainer *self, uint32_t stage)
{
    const uint64_t count = table_size(self) + 1;
    const uint32_t replicas = self->world.data.size;
    int64_t *grad = self->grad[stage];
    xray_status status = grid_gather(&self->world, &self->world.data, grad,
                                     self->all_grads, count * sizeof(int64_t));
    memset(grad, 0, count * sizeof(int64_t));
    for (uint64_t i = 0; i < replicas * count; i++)
        grad[i % count] += self->all_grads[i];
    return status;
}

static double square_part(const trainer *self, uint32_t stage, uint32_t half)
{
    const grid_rows rows = grid_half(self->vocab, half);
    const int64_t *grad = self->grad[stage];
    double sum = grad[table_size(self)] ? (double)NAN : 0;
    for (uint64_t i = rows.first * HIDDEN; i < rows.end * HIDDEN; i++) {
        double g = (double)grad[i] / UNIT;
        sum += g * g;
    }
    return sum;
}

/* The square of the norm: each part's by a rank that holds it, all added in one
 * order. */
static xray_status square_gradients(trainer *self, double *out)
{
    const uint32_t parts = STAGES * HALVES;
    double sums[STAGES * HALVES] = { 0 };
    for (uint32_t i = 0; i < parts; i++)
        self->squares[i] = holds_part(self, i / HALVES, i % HALVES)
                               ? square_part(self, i / HALVES, i % HALVES)
                               : 0;
    xray_status status =
        grid_gather(&self->world, &self->world.replica, self->squares,
                    self->all_squares, parts * sizeof(double));
    for (uint32_t i = 0; i < self->world.replica.size * parts; i++)
        sums[i % parts] += self->all_squares[i];
    *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return status;
}

static void update_tables(trainer *self, double rate)
{
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        const grid_rows held = self->held[stage];
        for (uint64_t i = held.first * HIDDEN; i < held.end * HIDDEN; i++) {
            float *w = self->table[stage] + (i - held.first * HIDDEN);
            *w = (float)((double)*w -
                         rate * ((double)self->grad[stage][i] / UNIT));
        }
    }
    self->version++;
}

xray_status grid_step(void *ptr, double lr, double max_norm,
                      xray_step_result *out)
{
    trainer *self = ptr;
    double square = 0;
    xray_status status = XRAY_OK;
    if (self->leases)
        return refuse_call(self, XRAY_E_STATE, __func__,
                           "the weights are leased");
    for (uint32_t stage = 0; stage < STAGES && status == XRAY_OK; stage++)
        if (holds_stage(self, stage))
            status = add_replicas(self, stage);
    if (status == XRAY_OK)
        status = square_gradients(self, &square);
    if (status != XRAY_OK)
        return status;
    xray_step_result own = { .header = XRAY_HEADER(xray_step_result),
                             .grad_norm = sqrt(square),
                             .skipped = isfinite(square) ? 0u : 1u };
    if (!own.skipped)
        update_tables(self, lr * (max_norm > 0 && own.grad_norm > max_norm
                                      ? max_norm / own.grad_norm
                                      : 1.0));
    clear_gradients(self);
    own.version = self->version;
    xray_fill(out, &own);
    return XRAY_OK;
}
