/* SPDX-License-Identifier: Apache-2.0
 *
 * Updates of a model from a step's rows: epochs, mini-batches, micro-batches.
 */
#include <math.h>
#include <stdlib.h>

#include <xray/numerics.h>

#include "core/rl/learner.h"
#include "core/roles/given.h"
#include "core/roles/nonfinite.h"

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

static xray_status ask_context(xr_learner *l, const xray_batch *mini,
                               const xray_totals *totals)
{
    const xr_roles *s = l->roles;
    l->context_size = 0;
    return XR_CALL(s->algo.part, "context",
                   xr_algo(s->run)->context(s->algo.self, mini, totals,
                                            l->context, l->context_cap,
                                            &l->context_size));
}

static xray_status make_context(xr_learner *l, const xray_batch *mini,
                                const xray_totals *totals, xr_err *err)
{
    const xr_part *algo = l->roles->algo.part;
    xray_status status = ask_context(l, mini, totals);
    if (status == XRAY_E_RANGE && l->context_size > l->context_cap) {
        /* Why it did not fit is of no interest any more. */
        (void)xr_host_error(algo->host, status, "context", NULL);
        status = xr_given_wish(algo, "context", l->context_size, err);
        if (status != XRAY_OK)
            return status;
        free(l->context);
        l->context = xr_calloc((size_t)l->context_size, 1);
        l->context_cap = l->context ? l->context_size : 0;
        if (!l->context)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for the loss");
        status = ask_context(l, mini, totals);
    }
    if (status != XRAY_OK)
        return xr_host_error(algo->host, status, "context", err);
    return xr_given_size(algo, "context", l->context_size, l->context_cap, err);
}

/* Estimators that pick tokens across the mini-batch see current log-probs. */
static xray_status select_tokens(xr_learner *l, const xray_batch *mini,
                                 xr_err *err)
{
    const xr_roles *s = l->roles;
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = l->logp };
    if (!(s->run->needs & XRAY_NEED_MINI_FORWARD) ||
        !XRAY_HAS(xray_algo_ops, xr_algo(s->run), select))
        return XRAY_OK;
    xray_status status = xr_role_forward(l->roles, XRAY_ROLE_ACTOR, &l->views,
                                         XRAY_OUTPUT_LOGP, &out, err);
    if (status == XRAY_OK &&
        xr_nonfinite_token(s->actor.part->instance, "log-prob", mini, l->logp,
                           &l->fault))
        status = xr_nonfinite(l->roles, err, "%s", l->fault.text);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(s->algo.part, "select",
                     xr_algo(s->run)->select(s->algo.self, mini, l->logp,
                                             l->context, l->context_size));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(s->algo.part->host, status, "select", err);
}

/* Gradients of the views and the optimizer's step. */
static xray_status apply(xr_learner *l, xr_updates *u, xr_err *err)
{
    xr_roles *s = l->roles;
    const char *who = xr_roles_at(s, u->role)->part->instance;
    xray_step_result result;
    int skipped = 0;
    xr_loss_spec spec = { .kind = u->critic ? XR_LOSS_CRITIC : XR_LOSS_POLICY,
                          .outputs = u->outputs,
                          .context = l->context,
                          .context_size = l->context_size,
                          .sums = l->sums,
                          .weights = l->weights,
                          .names = l->names };
    xray_status status =
        xr_role_gradients(s, u->role, &l->views, &spec, &l->fault, err);
    if (*l->fault.text) {
        u->skipped++;
        return xr_nonfinite_fault(s, who, &l->fault, status, err);
    }
    if (status != XRAY_OK)
        return status;
    status = xr_role_step(s, u->role, u->lr, u->grad_clip, &result, err);
    if (status == XRAY_OK)
        status = xr_nonfinite_update(s, who, &result, &skipped, err);
    if (status != XRAY_OK)
        return status;
    u->updates += !skipped;
    u->skipped += (uint64_t)skipped;
    u->grad_norm += skipped ? 0 : result.grad_norm;
    return XRAY_OK;
}

static xray_status update(xr_learner *l, xr_updates *u, const xr_rows *rows,
                          const uint32_t range[2], xr_err *err)
{
    xr_roles *s = l->roles;
    uint32_t first = range[0];
    uint32_t count = range[1];
    const xr_cut whole = { first, count, .budget = UINT64_MAX };
    const xr_cut parts = { first, count, .budget = u->micro_tokens,
                           .prompts = u->prompts };
    xray_totals totals = { .header = XRAY_HEADER(xray_totals),
                           .max_response =
                               (uint64_t)s->run->ini.data.max_response_length };
    count_totals(rows, first, count, &totals);
    xray_status status = xr_views_cut(&l->whole, rows, &whole, err);
    if (status != XRAY_OK || !count)
        return status;
    const xray_batch *mini = l->whole.pointers[0];
    status = make_context(l, mini, &totals, err);
    if (status == XRAY_OK)
        status = xr_views_cut(&l->views, rows, &parts, err);
    if (status == XRAY_OK && !u->critic)
        status = select_tokens(l, mini, err);
    if (status != XRAY_OK)
        return status;
    return apply(l, u, err);
}

/* Fisher-Yates by Philox of (seed, step, epoch): the same order in a rerun, and
 * another one for the critic. */
static xray_status shuffle(xr_learner *l, const xr_rows *rows, uint64_t step,
                           uint64_t epoch, uint32_t critic, xr_err *err)
{
    uint32_t n = rows->batch.rows;
    uint64_t key = xray_philox_key((uint64_t)l->roles->run->ini.run.seed, step,
                                   0x6d696e6962617463u);
    for (uint32_t i = 0; i < n; i++)
        l->order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t bits = xray_philox(key, i, (uint32_t)epoch, critic, 0).w[0];
        uint32_t j = (uint32_t)(((uint64_t)bits * i) >> 32);
        uint32_t other = l->order[j];
        l->order[j] = l->order[i - 1];
        l->order[i - 1] = other;
    }
    xr_rows_clear(&l->shuffled);
    for (uint32_t i = 0; i < n; i++) {
        xray_status status = xr_rows_copy(&l->shuffled, rows, l->order[i],
                                          rows->group[l->order[i]], err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_learner_update(xr_learner *l, xr_updates *u, const xr_rows *rows,
                              uint64_t step, xr_err *err)
{
    uint32_t total = rows->batch.rows;
    uint32_t mini = (uint32_t)(u->mini * l->roles->run->ini.rollout.n);
    if (!mini)
        mini = total;
    for (int64_t epoch = 0; epoch < u->epochs; epoch++) {
        const xr_rows *source = rows;
        xray_status status = XRAY_OK;
        if (u->shuffle) {
            status = shuffle(l, rows, step, (uint64_t)epoch,
                             (uint32_t)u->critic, err);
            source = &l->shuffled;
        }
        for (uint32_t at = 0; at < total && status == XRAY_OK; at += mini) {
            uint32_t range[] = { at, total - at < mini ? total - at : mini };
            status = update(l, u, source, range, err);
        }
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}
