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

/* ---- forward ------------------------------------------------------------ */

/* The ranks of a replica must run as many micro-batches. One that runs more
 * waits for others that wait in other groups for ranks of other replicas, which
 * only a time-out would end, so all ranks compare their numbers first.
 * [collective] */
static xray_status compare_counts(const xm_trainer *self, uint32_t count,
                                  xr_err *err)
{
    const xm_group *g = &self->group;
    const xm_group_record own = { .squares = { count } };
    uint32_t width = self->replicas.size ? g->size / self->replicas.size : 1;
    xray_status status = width > 1 ? xm_group_exchange(g, &own) : XRAY_OK;
    for (uint32_t r = 0; status == XRAY_OK && width > 1 && r < g->size; r++) {
        uint32_t first = r - r % width;
        if (g->all[r].squares[0] != g->all[first].squares[0])
            return xr_fail(err, XRAY_E_ARG,
                           "rank %" PRIu32 " of %" PRIu32 " was given %" PRIu64
                           " micro-batches, but rank %" PRIu32
                           " of the same replica %" PRIu64 ", expected as many",
                           r, g->size, g->all[r].squares[0], first,
                           g->all[first].squares[0]);
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
        status = compare_counts(self, count, &err);
    if (status == XRAY_OK)
        status = xm_trainer_score(self, batches, count, outputs, out, &err);
    return xm_trainer_report(self->host, status, "forward", &err);
}

/* ---- gradients ---------------------------------------------------------- */

xray_status xm_trainer_forward_backward(void *ptr,
                                        const xray_batch *const *batches,
                                        uint32_t count, const xray_loss *loss)
{
    xm_trainer *self = ptr;
    xr_err err = { "" };
    xray_status status =
        xm_trainer_check_outputs(self, loss->outputs, NULL, &err);
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
        status = compare_counts(self, count, &err);
    if (status == XRAY_OK)
        status = xm_trainer_walk(self, batches, count, loss, &err);
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
        mine.first = (uint32_t)(xm_layout_find(self->whole, (*out_bad)->name) -
                                self->whole->params);
    status = xm_group_exchange(g, &mine);
    uint32_t first = UINT32_MAX;
    for (uint32_t r = 0; status == XRAY_OK && r < g->size; r++)
        if (g->all[r].first < first)
            first = g->all[r].first;
    *out_bad = first == UINT32_MAX ? NULL : &self->whole->params[first];
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
        if (share.count == 0)
            continue;
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
