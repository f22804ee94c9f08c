/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs forward and backward passes over batches, and performs the optimizer's
 * update.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/train/norm.h"
#include "model/train/trainer_internal.h"

#define ALL_OUTPUTS (XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY | XRAY_OUTPUT_VALUE)

/* Packs a batch. Zero rows in `packed` mean that no output of the batch is
 * wanted. If values are the only output, as a critic asks for, the product with
 * the vocabulary is left out. */
static xray_status pack_batch(xm_trainer *self, const xray_batch *batch,
                              uint32_t outputs, xm_packed *packed, xr_err *err)
{
    int value = (outputs & XRAY_OUTPUT_VALUE) != 0;
    xray_status status =
        xm_packer_fill(self->packer, batch, value, err, packed);
    if (status == XRAY_OK && packed->pack.rows &&
        (outputs & ALL_OUTPUTS) == XRAY_OUTPUT_VALUE)
        packed->items.target = NULL;
    return status;
}

/* Runs the packed rows up to the outputs. Without rows it only takes part in
 * the collectives of the other ranks' passes. */
static xray_status run_forward(xm_trainer *self, const xm_packed *packed,
                               xm_token_outputs *heads, xr_err *err)
{
    xray_status status =
        xm_forward(self->decoder, self->space, &packed->pack, err);
    if (status != XRAY_OK || packed->pack.rows == 0)
        return status;
    return xm_outputs(self->decoder, self->space, &packed->items, heads, err);
}

/* Fills an array over all tokens with one output, and with 0 where it is not
 * wanted. */
static xray_status collect_output(xm_trainer *self, const xm_packed *packed,
                                  uint32_t tokens, const float *items,
                                  float *to, xr_err *err)
{
    memset(to, 0, tokens * sizeof(float));
    return packed->pack.rows ? xm_packer_collect(self->packer, items, to, err)
                             : XRAY_OK;
}

static xray_status collect_outputs(xm_trainer *self, const xm_packed *packed,
                                   const xm_token_outputs *heads,
                                   uint32_t tokens, uint32_t outputs,
                                   const xray_outputs *out, xr_err *err)
{
    xray_status status = XRAY_OK;
    if (outputs & XRAY_OUTPUT_LOGP)
        status =
            collect_output(self, packed, tokens, heads->logp, out->logp, err);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_ENTROPY))
        status = collect_output(self, packed, tokens, heads->entropy,
                                out->entropy, err);
    if (status == XRAY_OK && (outputs & XRAY_OUTPUT_VALUE))
        status =
            collect_output(self, packed, tokens, heads->value, out->value, err);
    return status;
}

/* ---- forward ------------------------------------------------------------ */

static xray_status check_outputs(const xm_trainer *self, uint32_t outputs,
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
    xm_packed packed = { 0 };
    xm_token_outputs heads = { 0 };
    xr_err later = { "" };
    xray_status status = check_outputs(self, outputs, out, err);
    if (status == XRAY_OK)
        status = pack_batch(self, batch, outputs, &packed, err);
    if (status != XRAY_OK) {
        /* The other ranks have begun the pass and wait for its collectives. */
        packed = (xm_packed){ 0 };
        (void)run_forward(self, &packed, &heads, &later);
        return status;
    }
    status = run_forward(self, &packed, &heads, err);
    if (status != XRAY_OK)
        return status;
    return collect_outputs(self, &packed, &heads, batch->tokens, outputs, out,
                           err);
}

/* Returns the outputs from token `first` on. */
static xray_outputs skip_outputs(const xray_outputs *out, size_t first)
{
    return (xray_outputs){ XRAY_HEADER(xray_outputs),
                           out->logp ? out->logp + first : NULL,
                           out->entropy ? out->entropy + first : NULL,
                           out->value ? out->value + first : NULL };
}

/* Ends the segments before a micro-batch, or all. Returns 1 if that fails, so
 * that going on is of no use, and keeps the first failure. */
static int reach_segment(xm_trainer *self, const xray_batch *batch,
                         xray_status *status, xr_err *err)
{
    xr_err later = { "" };
    xray_status reached =
        xm_folds_reach(self, batch, *status == XRAY_OK ? err : &later);
    *status = *status == XRAY_OK ? reached : *status;
    return reached != XRAY_OK;
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose batch is refused does not leave the others waiting. If the host
 * stops, they are told as well. */
static xray_status run_forward_batches(xm_trainer *self,
                                       const xray_batch *const *batches,
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

xray_status xm_trainer_forward(void *ptr, const xray_batch *const *batches,
                               uint32_t count, uint32_t outputs,
                               xray_outputs *out)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_trainer_check_resident(self, XM_TRAINER_BITS_FORWARD, &err);
    if (status == XRAY_OK)
        status = run_forward_batches(self, batches, count, outputs, out, &err);
    return xm_trainer_report(self->host, status, "forward", &err);
}

/* ---- gradients ---------------------------------------------------------- */

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
static xray_status spread_gradients(const xm_trainer *self, uint32_t outputs,
                                    xr_err *err, xm_output_grads *out)
{
    xm_packer *packer = self->packer;
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

static xray_status run_backward(xm_trainer *self, const xm_packed *packed,
                                const xm_output_grads *grads, xr_err *err)
{
    const float *dhidden = NULL;
    xray_status status =
        xm_outputs_backward(self->decoder, self->space, &packed->items, grads,
                            self->grads, &dhidden, err);
    return status == XRAY_OK
               ? xm_backward(self->decoder, self->space, &packed->pack, dhidden,
                             self->grads, err)
               : status;
}

xray_status xm_trainer_run_empty_batch(xm_trainer *self, xr_err *err)
{
    const xm_packed packed = { 0 };
    const xm_output_grads grads = { 0 };
    xm_token_outputs heads = { 0 };
    xray_status status = run_forward(self, &packed, &heads, err);
    return status == XRAY_OK ? run_backward(self, &packed, &grads, err)
                             : status;
}

/* 1: other ranks compute the same rows. */
static int shares_rows(const xm_trainer *self)
{
    return self->tensor.size > 1 || self->context.size > 1;
}

/* Ends the pass of a micro-batch for which this rank has no gradients: without
 * rows, or with rows whose gradients are 0 where other ranks compute the same
 * rows and join theirs. */
static xray_status run_rest(xm_trainer *self, const xm_packed *packed,
                            uint32_t outputs, xr_err *err)
{
    const xm_packed none = { 0 };
    xm_output_grads grads = { 0 };
    if (shares_rows(self)) {
        size_t bytes = self->load.tokens * sizeof(float);
        memset(self->tokens.dlogp, 0, bytes);
        memset(self->tokens.dentropy, 0, bytes);
        memset(self->tokens.dvalue, 0, bytes);
        xray_status status = spread_gradients(self, outputs, err, &grads);
        return status == XRAY_OK ? run_backward(self, packed, &grads, err)
                                 : status;
    }
    xm_space_forget(self->space);
    return run_backward(self, &none, &grads, err);
}

/* Computes the gradients of one micro-batch; `before` is what went wrong before
 * it. After a failure the rest of the pass adds no gradients. *out_broken is
 * set if the pass itself failed, so that going on is of no use. */
static xray_status run_micro_batch(xm_trainer *self, const xray_batch *batch,
                                   const xray_loss *loss, xray_status before,
                                   int *out_broken, xr_err *err)
{
    const xm_trainer_tokens *t = &self->tokens;
    const xray_outputs show = { XRAY_HEADER(xray_outputs), t->logp, t->entropy,
                                t->value };
    uint32_t outputs = loss_outputs(self, loss);
    xm_packed packed = { 0 };
    xm_token_outputs heads = { 0 };
    xm_output_grads grads;
    xr_err later = { "" };
    xray_status status = pack_batch(self, batch, outputs, &packed, err);
    if (status != XRAY_OK) {
        *out_broken = xm_trainer_run_empty_batch(self, &later) != XRAY_OK;
        return status;
    }
    status = run_forward(self, &packed, &heads, err);
    *out_broken = status != XRAY_OK;
    if (status == XRAY_OK)
        status = collect_outputs(self, &packed, &heads, batch->tokens, outputs,
                                 &show, err);
    if (status == XRAY_OK)
        status = before == XRAY_OK ? call_loss(self, batch, loss, err) : before;
    if (*out_broken)
        return status;
    outputs = packed.pack.rows ? outputs : 0;
    if (status == XRAY_OK)
        status = spread_gradients(self, outputs, err, &grads);
    if (status == XRAY_OK) {
        status = run_backward(self, &packed, &grads, err);
        *out_broken = status != XRAY_OK;
        return status;
    }
    *out_broken = run_rest(self, &packed, outputs, &later) != XRAY_OK;
    return status;
}

/* With several ranks every micro-batch is passed through to the end, so that a
 * rank whose loss fails does not leave the others waiting, who also have rows
 * of the same micro-batch where they are slices of one model. */
static xray_status run_micro_batches(xm_trainer *self,
                                     const xray_batch *const *batches,
                                     uint32_t count, const xray_loss *loss,
                                     xr_err *err)
{
    int broken = 0;
    xr_err later = { "" };
    xray_status status = xm_folds_check(self, batches, count, err);
    count = status == XRAY_OK || !self->folds.count ? count : 0;
    if (status == XRAY_OK)
        status = xm_trainer_resume_full_grads(self, err);
    for (uint32_t i = 0; i < count && !broken; i++) {
        self->ends = self->overlap && i + 1 == count;
        if (self->folds.count && !batches[i]->rows)
            continue;
        broken = reach_segment(self, batches[i], &status, err);
        if (broken)
            break;
        if (status == XRAY_OK)
            status =
                run_micro_batch(self, batches[i], loss, status, &broken, err);
        else if (shares_rows(self))
            (void)run_micro_batch(self, batches[i], loss, status, &broken,
                                  &later);
        else
            broken = self->group.size < 2 ||
                     xm_trainer_run_empty_batch(self, &later) != XRAY_OK;
    }
    if (!broken)
        (void)reach_segment(self, NULL, &status, err);
    xray_status joined = xm_group_wait_collectives(&self->group);
    status = status == XRAY_OK ? joined : status;
    self->reduced = self->ends && status == XRAY_OK;
    self->ends = 0;
    return status;
}

xray_status xm_trainer_forward_backward(void *ptr,
                                        const xray_batch *const *batches,
                                        uint32_t count, const xray_loss *loss)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = check_outputs(self, loss->outputs, NULL, &err);
    if (status == XRAY_OK && !self->trainable)
        status = xr_fail(
            &err, XRAY_E_STATE,
            "%s was created for forward passes only, so it has no gradients",
            self->owner);
    if (status == XRAY_OK)
        status = xm_trainer_check_resident(
            self, XM_TRAINER_BITS_FORWARD | XM_TRAINER_BIT_GRADS, &err);
    if (status != XRAY_OK && (self->offloaded & XM_TRAINER_BIT_GRADS))
        return xm_trainer_report(self->host, status, "forward_backward", &err);
    if (status == XRAY_OK)
        status = run_micro_batches(self, batches, count, loss, &err);
    self->has_grads = 1;
    /* Part of a mini-batch must not get into the next update. */
    if (status != XRAY_OK && self->trainable)
        (void)xm_trainer_zero_grads(self, NULL);
    return xm_trainer_report(self->host, status, "forward_backward", &err);
}

/* ---- the update --------------------------------------------------------- */

static xray_status check_step(const xm_trainer *self, double lr, xr_err *err)
{
    if (!self->trainable)
        return xr_fail(
            err, XRAY_E_STATE,
            "%s was created for forward passes only, so it has no optimizer",
            self->owner);
    if (self->weights->leases)
        return xr_fail(err, XRAY_E_STATE,
                       "the weights of %s are held by %" PRIu32
                       " lease(s): an update must wait for the engine",
                       self->owner, self->weights->leases);
    if (!isfinite(lr) || lr < 0)
        return xr_fail(err, XRAY_E_ARG, "learning rate %g is not 0 or more",
                       lr);
    return XRAY_OK;
}

static void note_skip(xm_trainer *self, double norm, const xm_param *bad,
                      xray_step_result *out)
{
    char text[256];
    self->skipped++;
    out->skipped = 1;
    out->bad_tensor = bad ? bad->name : NULL;
    (void)snprintf(text, sizeof(text),
                   "%s: step skipped, the gradient norm is %g (first in %s); "
                   "%" PRIu64 " skipped so far",
                   self->owner, norm, bad ? bad->name : "no single tensor",
                   self->skipped);
    self->host->log(self->host, XRAY_LOG_WARN, text);
}

static xm_grad_share shares_of_grads(const xm_trainer *self, float **at)
{
    const xm_layout *layout = self->layout;
    for (uint32_t b = 0; b < layout->bucket_count; b++) {
        at[b] = self->update_data[1][b];
        /* The norm is computed from shares, even where every rank has all sums.
         */
        if (self->all_moments && at[b])
            at[b] += xm_bucket_share(layout, b).first;
    }
    return (xm_grad_share){ .device = self->device,
                            .device_self = self->device_self,
                            .layout = layout,
                            .data = at,
                            .squares = self->adamw->squares,
                            .calls = self->calls };
}

/* Adds up the ranks' sums of squares. Every element is in one share, so the
 * result has the same bits on any number of ranks. */
static double add_squares(const xm_group *g)
{
    uint64_t sum[XRAY_SQUARES_WORDS] = { 0 };
    for (uint32_t r = 0; r < g->size; r++)
        for (size_t i = 0; i < XRAY_SQUARES_WORDS; i++)
            sum[i] += g->all[r].squares[i];
    xray_squares_carry(sum);
    return xray_squares_value(sum);
}

/* Computes the global norm, of which every rank has the same bits. */
static xray_status compute_grad_norm(xm_trainer *self, xr_err *err,
                                     double *out_norm, const xm_param **out_bad)
{
    const xm_group *g = &self->group;
    xm_grad_share grads = shares_of_grads(self, self->norm_data);
    xm_group_record mine = { .first = UINT32_MAX };
    *out_bad = NULL;
    xray_status status = xm_grad_squares(&grads, err, mine.squares);
    if (status == XRAY_OK)
        status = xm_group_exchange(g, &mine);
    if (status != XRAY_OK)
        return status;
    *out_norm = sqrt(add_squares(g));
    if (isfinite(*out_norm))
        return XRAY_OK;
    status = xm_grad_first_bad(&grads, err, out_bad);
    if (status != XRAY_OK)
        return status;
    if (*out_bad)
        mine.first = (uint32_t)(*out_bad - self->layout->params);
    status = xm_group_exchange(g, &mine);
    uint32_t first = UINT32_MAX;
    for (uint32_t r = 0; status == XRAY_OK && r < g->size; r++)
        if (g->all[r].first < first)
            first = g->all[r].first;
    *out_bad = first == UINT32_MAX ? NULL : &self->layout->params[first];
    return status;
}

/* Gathers the updated shares of the weights from all ranks. */
static xray_status gather_weights(xm_trainer *self)
{
    const xm_group *g = &self->group;
    const xm_layout *layout = self->layout;
    if (self->data.size < 2 || self->all_moments || self->hooks.open_weights)
        return XRAY_OK;
    xray_status status = xm_group_wait_compute(g);
    for (uint32_t b = layout->frozen;
         status == XRAY_OK && b < layout->bucket_count; b++) {
        xm_range share = xm_bucket_share(layout, b);
        float *data = self->weights->buckets[b];
        status =
            g->comm->all_gather(self->data.group, g->stream, data + share.first,
                                data, share.count, XRAY_F32);
    }
    return status == XRAY_OK ? xm_group_wait_collectives(g) : status;
}

void xm_trainer_forget(xm_trainer *self)
{
    if (self->hooks.forget)
        self->hooks.forget(self);
}

static xray_status update_weights(xm_trainer *self, double lr, double clip,
                                  xr_err *err)
{
    xray_status status = xm_adamw_step(self->adamw, self->update_data[0],
                                       self->update_data[1], lr, clip, err);
    if (status == XRAY_OK)
        status = gather_weights(self);
    xm_trainer_forget(self);
    return status == XRAY_OK
               ? xm_weights_changed(self->weights, self->weights->version + 1,
                                    err)
               : status;
}

static xray_status run_optimizer_step(xm_trainer *self, double lr,
                                      double max_norm, xray_step_result *out,
                                      xr_err *err)
{
    double norm = 0;
    const xm_param *bad = NULL;
    xray_status status = xm_trainer_sum_full_grads(self, err);
    if (status == XRAY_OK)
        status = compute_grad_norm(self, err, &norm, &bad);
    if (status != XRAY_OK)
        return status;
    xray_step_result own = { .header = XRAY_HEADER(xray_step_result),
                             .grad_norm = norm };
    if (isfinite(norm))
        status =
            update_weights(self, lr, xm_clip_coefficient(norm, max_norm), err);
    else
        note_skip(self, norm, bad, &own);
    own.version = self->weights->version;
    xray_fill(out, &own);
    return status == XRAY_OK ? xm_trainer_zero_grads(self, err) : status;
}

xray_status xm_trainer_optimizer_step(void *ptr, double lr, double max_norm,
                                      xray_step_result *out)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status = check_step(self, lr, &err);
    if (status == XRAY_OK)
        status = xm_trainer_check_resident(self,
                                           XM_TRAINER_BIT_WEIGHTS |
                                               XM_TRAINER_BIT_GRADS |
                                               XM_TRAINER_BIT_MOMENTS,
                                           &err);
    if (status == XRAY_OK)
        status = run_optimizer_step(self, lr, max_norm, out, &err);
    return xm_trainer_report(self->host, status, "optimizer_step", &err);
}

xray_status xm_trainer_discard(void *ptr)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_trainer_check_resident(self, XM_TRAINER_BIT_GRADS, &err);
    if (status == XRAY_OK && self->trainable)
        status = xm_trainer_zero_grads(self, &err);
    return xm_trainer_report(self->host, status, "discard", &err);
}
