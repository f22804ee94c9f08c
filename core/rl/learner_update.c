/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates one model from the rows of a step: epochs, mini-batches,
 * micro-batches.
 */
#include <math.h>
#include <stdlib.h>

#include <xray/numerics.h>

#include "core/rl/learner.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"

static void count_totals(const xr_rows *rows, uint32_t first, uint32_t count,
                         xray_totals *out)
{
    for (uint32_t r = first; r < first + count; r++) {
        double tokens = 0;
        for (int32_t t = rows->row_start[r]; t < rows->row_start[r + 1]; t++)
            tokens += (double)rows->loss_mask[t];
        out->tokens += tokens;
        out->rows += tokens > 0;
    }
}

static xray_status call_algo_context(xr_learner *learner,
                                     const xray_batch *mini,
                                     const xray_totals *totals)
{
    const xr_roles *roles = learner->roles;
    learner->context_size = 0;
    return XR_CALL(roles->algo.part, "context",
                   xr_algo(roles->run)
                       ->context(roles->algo.self, mini, totals,
                                 learner->context, learner->context_cap,
                                 &learner->context_size));
}

static xray_status make_loss_context(xr_learner *learner,
                                     const xray_batch *mini,
                                     const xray_totals *totals, xr_err *err)
{
    const xr_part *algo = learner->roles->algo.part;
    xray_status status = call_algo_context(learner, mini, totals);
    if (status == XRAY_E_RANGE &&
        learner->context_size > learner->context_cap) {
        /* Discards the sentence on the first attempt, which the second one
         * makes irrelevant. */
        (void)xr_host_error(algo->host, status, "context", NULL);
        status =
            xr_check_wanted_size(algo, "context", learner->context_size, err);
        if (status != XRAY_OK)
            return status;
        free(learner->context);
        learner->context = xr_calloc((size_t)learner->context_size, 1);
        learner->context_cap = learner->context ? learner->context_size : 0;
        if (!learner->context)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for the loss");
        status = call_algo_context(learner, mini, totals);
    }
    if (status != XRAY_OK)
        return xr_host_error(algo->host, status, "context", err);
    return xr_check_written_size(algo, "context", learner->context_size,
                                 learner->context_cap, err);
}

/* Estimators that choose tokens across the mini-batch need its current
 * log-probs. */
static xray_status select_tokens(xr_learner *learner, const xray_batch *mini,
                                 xr_err *err)
{
    const xr_roles *roles = learner->roles;
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs),
                         .logp = learner->logp };
    if (!(roles->run->needs & XRAY_NEED_MINI_FORWARD) ||
        !XRAY_HAS(xray_algo_ops, xr_algo(roles->run), select))
        return XRAY_OK;
    xray_status status =
        xr_role_forward(learner->roles, XRAY_ROLE_ACTOR, &learner->views,
                        XRAY_OUTPUT_LOGP, &out, err);
    if (status == XRAY_OK &&
        xr_nonfinite_token(roles->actor.part->instance, "log-prob", mini,
                           learner->logp, &learner->fault))
        status = xr_nonfinite(learner->roles, err, "%s", learner->fault.text);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(roles->algo.part, "select",
                     xr_algo(roles->run)
                         ->select(roles->algo.self, mini, learner->logp,
                                  learner->context, learner->context_size));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->algo.part->host, status, "select", err);
}

/* Computes the gradients of all micro-batches and takes the optimizer's step.
 */
static xray_status apply_update(xr_learner *learner, xr_updates *u, xr_err *err)
{
    xr_roles *roles = learner->roles;
    const char *who = xr_roles_at(roles, u->role)->part->instance;
    xray_step_result result;
    int skipped = 0;
    xr_loss_spec spec = { .kind = u->critic ? XR_LOSS_CRITIC : XR_LOSS_POLICY,
                          .outputs = u->outputs,
                          .context = learner->context,
                          .context_size = learner->context_size,
                          .sums = learner->sums,
                          .weights = learner->weights,
                          .names = learner->names + learner->ratios,
                          .ratios = learner->ratios };
    xray_status status =
        xr_segments_gradients(&learner->segments, roles, u->role,
                              &learner->views, &spec, &learner->fault, err);
    if (*learner->fault.text) {
        u->skipped++;
        return xr_nonfinite_fault(roles, who, &learner->fault, status, err);
    }
    if (status != XRAY_OK)
        return status;
    status = xr_role_step(roles, u->role, u->lr, u->grad_clip, &result, err);
    if (status == XRAY_OK)
        status = xr_nonfinite_update(roles, who, &result, &skipped, err);
    if (status != XRAY_OK)
        return status;
    u->updates += !skipped;
    u->skipped += (uint64_t)skipped;
    u->grad_norm += skipped ? 0 : result.grad_norm;
    return XRAY_OK;
}

static xray_status update_on_mini_batch(xr_learner *learner, xr_updates *u,
                                        const xr_rows *rows,
                                        const uint32_t range[2], xr_err *err)
{
    xr_roles *roles = learner->roles;
    uint32_t first = range[0];
    uint32_t count = range[1];
    const xr_cut undivided = { first, count, .budget = UINT64_MAX };
    const xr_cut parts = {
        first, count, .budget = u->micro_tokens, .prompts = u->prompts,
        .segment = learner->segments.count ? learner->segments.of + first : NULL
    };
    xray_totals totals = {
        .header = XRAY_HEADER(xray_totals),
        .max_response = (uint64_t)roles->run->ini.data.max_response_length
    };
    count_totals(rows, first, count, &totals);
    xray_status status =
        xr_views_cut(&learner->mini_batch, rows, &undivided, err);
    if (status != XRAY_OK || !count)
        return status;
    const xray_batch *mini = learner->mini_batch.pointers[0];
    status = make_loss_context(learner, mini, &totals, err);
    if (status == XRAY_OK)
        status = xr_views_cut(&learner->views, rows, &parts, err);
    if (status == XRAY_OK && !u->critic)
        status = select_tokens(learner, mini, err);
    if (status != XRAY_OK)
        return status;
    return apply_update(learner, u, err);
}

/* Shuffles with Fisher-Yates, driven by Philox of (seed, step, epoch): the
 * order is the same in a rerun, and a different one for the critic. */
static void shuffle_order(xr_learner *learner, uint32_t n, uint64_t step,
                          uint64_t epoch, uint32_t critic)
{
    uint64_t key = xray_philox_key((uint64_t)learner->roles->run->ini.run.seed,
                                   step, 0x6d696e6962617463u);
    for (uint32_t i = n; i > 1; i--) {
        uint32_t bits = xray_philox(key, i, (uint32_t)epoch, critic, 0).w[0];
        uint32_t j = (uint32_t)(((uint64_t)bits * i) >> 32);
        uint32_t other = learner->order[j];
        learner->order[j] = learner->order[i - 1];
        learner->order[i - 1] = other;
    }
}

/* Copies the rows in the order of an epoch: shuffled, and within a mini-batch
 * by segments. */
static xray_status order_rows(xr_learner *learner, const xr_updates *u,
                              const xr_rows *rows, uint32_t mini, uint64_t step,
                              uint64_t epoch, xr_err *err)
{
    uint32_t n = rows->batch.rows;
    for (uint32_t i = 0; i < n; i++)
        learner->order[i] = i;
    if (u->shuffle)
        shuffle_order(learner, n, step, epoch, (uint32_t)u->critic);
    for (uint32_t at = 0; at < n && learner->segments.count; at += mini) {
        const uint32_t range[] = { at, n - at < mini ? n - at : mini };
        xr_segments_order(&learner->segments, rows, range, u->shuffle,
                          learner->order);
    }
    xr_rows_clear(&learner->ordered);
    for (uint32_t i = 0; i < n; i++) {
        xray_status status =
            xr_rows_copy(&learner->ordered, rows, learner->order[i],
                         rows->group[learner->order[i]], err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_learner_update(xr_learner *learner, xr_updates *u,
                              const xr_rows *rows, uint64_t step, xr_err *err)
{
    uint32_t total = rows->batch.rows;
    uint32_t mini = (uint32_t)(u->mini * learner->roles->run->ini.rollout.n);
    if (!mini)
        mini = total;
    for (int64_t epoch = 0; epoch < u->epochs; epoch++) {
        const xr_rows *source = rows;
        xray_status status = XRAY_OK;
        if (u->shuffle || learner->segments.count) {
            status =
                order_rows(learner, u, rows, mini, step, (uint64_t)epoch, err);
            source = &learner->ordered;
        }
        for (uint32_t at = 0; at < total && status == XRAY_OK; at += mini) {
            uint32_t range[] = { at, total - at < mini ? total - at : mini };
            status = update_on_mini_batch(learner, u, source, range, err);
        }
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}
