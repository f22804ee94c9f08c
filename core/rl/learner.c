/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/philox.h"
#include "core/rl/nonfinite.h"

static uint64_t step_rows(const xr_run_config *run)
{
    return (uint64_t)run->data.train_batch_size * (uint64_t)run->rollout.n;
}

static uint64_t name_count(const char *const *names)
{
    uint64_t count = 0;
    while (names[count])
        count++;
    return count;
}

static xray_status take_memory(xr_learner *l, uint64_t rows, uint64_t tokens,
                               xr_err *err)
{
    size_t names = (size_t)l->names + 1;
    l->context_cap = 4096;
    l->logp = xr_calloc((size_t)tokens, sizeof(*l->logp));
    l->scratch =
        xr_calloc((size_t)(tokens > rows ? tokens : rows), sizeof(*l->scratch));
    l->order = xr_calloc((size_t)rows, sizeof(*l->order));
    l->keep = xr_calloc((size_t)rows, sizeof(*l->keep));
    l->context = xr_calloc((size_t)l->context_cap, 1);
    l->sums = xr_calloc(names, sizeof(*l->sums));
    l->weights = xr_calloc(names, sizeof(*l->weights));
    int greedy = (l->session->needs & XRAY_NEED_GREEDY) != 0;
    if (greedy)
        l->baseline = xr_calloc((size_t)rows, sizeof(*l->baseline));
    if (!l->logp || !l->scratch || !l->order || !l->keep || !l->context ||
        !l->sums || !l->weights || (greedy && !l->baseline))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu rows",
                       (unsigned long long)rows);
    return XRAY_OK;
}

xray_status xr_learner_init(xr_learner *l, xr_session *session,
                            xr_metrics *metrics, xr_err *err)
{
    const xr_run_config *run = &session->run;
    uint64_t rows = step_rows(run);
    uint64_t tokens = rows * (uint64_t)(run->data.max_prompt_length +
                                        run->data.max_response_length);
    *l = (xr_learner){ .session = session, .metrics = metrics };
    l->actor = xr_role_actor(session);
    l->reference = xr_role_reference(session);
    l->names = name_count(xr_algo(session)->metric_names());
    xray_status status = take_memory(l, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_rows_init(&l->fresh, rows, tokens, err);
    if (status == XRAY_OK && XRAY_HAS(xray_algo_ops, xr_algo(session), accept))
        status = xr_rows_init(&l->rows, rows, tokens, err);
    if (status == XRAY_OK && run->actor.shuffle)
        status = xr_rows_init(&l->shuffled, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_views_init(&l->views, rows, err);
    if (status == XRAY_OK)
        status = xr_views_init(&l->whole, rows, err);
    if (status != XRAY_OK)
        xr_learner_free(l);
    return status;
}

void xr_learner_free(xr_learner *l)
{
    xr_rows_free(&l->fresh);
    xr_rows_free(&l->rows);
    xr_rows_free(&l->shuffled);
    xr_views_free(&l->views);
    xr_views_free(&l->whole);
    free(l->logp);
    free(l->scratch);
    free(l->order);
    free(l->keep);
    free(l->context);
    free(l->sums);
    free(l->weights);
    free(l->baseline);
    *l = (xr_learner){ .names = 0 };
}

/* Token scores, and the sample's score on its last token. */
static void place_reward(xr_rows *to, uint32_t r, const xr_samples *s,
                         uint32_t i)
{
    size_t first = (size_t)to->row_start[r] + (size_t)to->prompt_len[r];
    size_t last = (size_t)to->row_start[r + 1];
    if (first == last)
        return;
    for (size_t t = first; t < last; t++)
        to->batch.reward[t] = s->score_rows[i][t - first];
    to->batch.reward[last - 1] += (float)s->scores[i].score;
}

xray_status xr_learner_pack(xr_learner *l, const xr_samples *s,
                            const xr_row *const *rows, uint64_t step,
                            xr_err *err)
{
    float temperature = (float)l->session->run.rollout.temperature;
    xr_rows_clear(&l->fresh);
    for (uint32_t i = 0; i < s->count; i++) {
        const xr_row *row = rows[i / s->n];
        size_t at = (size_t)i * s->max_tokens;
        xr_row_in in = {
            .prompt = row->ids,
            .prompt_count = row->prompt_count,
            .response = s->tokens + at,
            .response_count = s->sizes[i],
            .logp = s->logp + at,
            .row_id = step * s->cap + i,
            .prompt_id = row->id,
            .version = s->versions[i],
            .group = (int32_t)(i / s->n),
            .temperature = temperature > 0 ? temperature : 1.0f,
            .baseline = l->baseline ? l->baseline[i / s->n] : 0,
        };
        xray_status status = xr_rows_add(&l->fresh, &in, err);
        if (status != XRAY_OK)
            return status;
        place_reward(&l->fresh, i, s, i);
    }
    return XRAY_OK;
}

xray_status xr_learner_accept(xr_learner *l, uint32_t want,
                              uint32_t *out_groups, xr_err *err)
{
    const xr_session *s = l->session;
    uint32_t groups = *out_groups;
    uint32_t fresh = l->fresh.batch.rows
                         ? (uint32_t)l->fresh.group[l->fresh.batch.rows - 1] + 1
                         : 0;
    for (uint32_t g = 0; g < fresh; g++)
        l->keep[g] = 1;
    xray_status status = XR_CALL(
        &s->algo, "accept",
        xr_algo(s)->accept(s->algo.self, &l->fresh.batch, fresh, l->keep));
    if (status != XRAY_OK)
        return xr_host_error(s->algo.host, status, "accept", err);
    uint32_t r = 0;
    while (r < l->fresh.batch.rows && groups < want) {
        int32_t g = l->fresh.group[r];
        int32_t to = l->keep[g] ? (int32_t)groups++ : -1;
        for (; r < l->fresh.batch.rows && l->fresh.group[r] == g; r++) {
            status = to < 0 ? XRAY_OK
                            : xr_rows_copy(&l->rows, &l->fresh, r, to, err);
            if (status != XRAY_OK)
                return status;
        }
    }
    *out_groups = groups;
    return XRAY_OK;
}

/* ---- log-probs ---------------------------------------------------------- */

static xray_status forward_all(xr_learner *l, const xr_role *role,
                               const xr_rows *rows, float *logp, xr_err *err)
{
    xr_future future;
    xray_outputs out = { .head = XRAY_HEAD(xray_outputs), .logp = logp };
    xray_status status = xr_views_cut(&l->views, rows, 0, rows->batch.rows,
                                      l->session->train_load.tokens, err);
    if (status != XRAY_OK)
        return status;
    xr_role_forward(role, &l->views, XRAY_HEAD_LOGP, &out, &future);
    status = xr_wait(&future, err);
    if (status == XRAY_OK &&
        xr_nonfinite_token(role->part->instance, "log-prob", &rows->batch, logp,
                           &l->fault))
        status = xr_nonfinite(l->session, err, "%s", l->fault.text);
    return status;
}

/* Same kernels on both sides: any difference is a fault, and it stops the run
 * rather than biasing it. */
static xray_status compare_exact(const xr_rows *rows, const float *logp,
                                 xr_err *err)
{
    for (uint32_t r = 0; r < rows->batch.rows; r++)
        for (int32_t t = rows->row_start[r]; t < rows->row_start[r + 1]; t++)
            if (rows->loss_mask[t] != 0 &&
                memcmp(&logp[t], &rows->batch.rollout_logp[t], sizeof(float)) !=
                    0)
                return xr_fail(
                    err, XRAY_E_NUMERIC,
                    "row %llu token %d: the trainer's log-prob is %.9g, the "
                    "rollout's %.9g; they must be equal bit for bit",
                    (unsigned long long)rows->row_id[r], t - rows->row_start[r],
                    (double)logp[t], (double)rows->batch.rollout_logp[t]);
    return XRAY_OK;
}

static void put_difference(xr_learner *l, const xr_rows *rows)
{
    size_t n = 0;
    for (uint32_t t = 0; t < rows->batch.tokens; t++)
        if (rows->loss_mask[t] != 0)
            l->scratch[n++] =
                fabsf(expf(l->logp[t]) - expf(rows->batch.rollout_logp[t]));
    xr_metrics_stats(l->metrics, "training/rollout_probs_diff", l->scratch, n);
}

static xray_status old_logp(xr_learner *l, const xr_rows *rows, uint64_t step,
                            xr_err *err)
{
    const xr_session *s = l->session;
    int64_t every = s->run.actor.recompute_old_logp;
    if (s->exact && (every <= 0 || (step - 1) % (uint64_t)every != 0))
        return XRAY_OK;
    xray_status status = forward_all(l, &l->actor, rows, l->logp, err);
    if (status != XRAY_OK)
        return status;
    put_difference(l, rows);
    if (s->exact)
        return compare_exact(rows, l->logp, err);
    memcpy(rows->batch.old_logp, l->logp,
           rows->batch.tokens * sizeof(*l->logp));
    return XRAY_OK;
}

/* ---- updates ------------------------------------------------------------ */

static xray_status call_loss(xr_learner *l, const xray_loss_call *call,
                             xray_metric_sums *sums)
{
    const xr_part *algo = &l->session->algo;
    if (xr_nonfinite_token(l->session->train.instance, "log-prob", call->batch,
                           call->logp, &l->fault))
        return xr_nonfinite_loss(l->session);
    xray_status status = XR_CALL(
        algo, "loss",
        xr_algo(l->session)->loss(l->context, l->context_size, call, sums));
    if (status != XRAY_OK)
        return status;
    if (xr_nonfinite_token(algo->instance, "gradient of the log-prob",
                           call->batch, call->dlogp, &l->fault) ||
        (call->dentropy &&
         xr_nonfinite_token(algo->instance, "gradient of the entropy",
                            call->batch, call->dentropy, &l->fault)))
        return xr_nonfinite_loss(l->session);
    return XRAY_OK;
}

static xray_status loss(void *ctx, const xray_loss_call *call)
{
    xr_learner *l = (xr_learner *)ctx;
    xray_metric_sums sums = { .head = XRAY_HEAD(xray_metric_sums),
                              .sum = l->sums,
                              .weight = l->weights,
                              .count = l->names };
    return call_loss(l, call, &sums);
}

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

static xray_status make_context(xr_learner *l, const xray_batch *mini,
                                const xray_totals *totals, xr_err *err)
{
    const xr_session *s = l->session;
    xray_status status =
        XR_CALL(&s->algo, "context",
                xr_algo(s)->context(s->algo.self, mini, totals, l->context,
                                    l->context_cap, &l->context_size));
    if (status == XRAY_E_RANGE && l->context_size > l->context_cap) {
        free(l->context);
        l->context = xr_calloc((size_t)l->context_size, 1);
        l->context_cap = l->context ? l->context_size : 0;
        if (!l->context)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for the loss");
        status =
            XR_CALL(&s->algo, "context",
                    xr_algo(s)->context(s->algo.self, mini, totals, l->context,
                                        l->context_cap, &l->context_size));
    }
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(s->algo.host, status, "context", err);
}

/* Estimators that pick tokens across the mini-batch see current log-probs. */
static xray_status select_tokens(xr_learner *l, const xray_batch *mini,
                                 xr_err *err)
{
    const xr_session *s = l->session;
    xr_future future;
    xray_outputs out = { .head = XRAY_HEAD(xray_outputs), .logp = l->logp };
    if (!(s->needs & XRAY_NEED_MINI_FORWARD) ||
        !XRAY_HAS(xray_algo_ops, xr_algo(s), select))
        return XRAY_OK;
    xr_role_forward(&l->actor, &l->views, XRAY_HEAD_LOGP, &out, &future);
    xray_status status = xr_wait(&future, err);
    if (status == XRAY_OK && xr_nonfinite_token(s->train.instance, "log-prob",
                                                mini, l->logp, &l->fault))
        status = xr_nonfinite(l->session, err, "%s", l->fault.text);
    if (status != XRAY_OK)
        return status;
    status = XR_CALL(&s->algo, "select",
                     xr_algo(s)->select(s->algo.self, mini, l->logp, l->context,
                                        l->context_size));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(s->algo.host, status, "select", err);
}

/* Gradients of the views and the optimizer's step. */
static xray_status apply(xr_learner *l, double lr, xr_err *err)
{
    xr_session *s = l->session;
    xr_future future;
    xray_step_result result;
    int skipped = 0;
    xray_loss call = { .head = XRAY_HEAD(xray_loss),
                       .ctx = l,
                       .fn = loss,
                       .outputs = XRAY_HEAD_LOGP | XRAY_HEAD_ENTROPY };
    l->fault.text[0] = '\0';
    xr_role_gradients(&l->actor, &l->views, &call, &future);
    xray_status status = xr_wait(&future, err);
    if (*l->fault.text) {
        l->skipped++;
        return xr_nonfinite_fault(s, &l->fault, status, err);
    }
    if (status != XRAY_OK)
        return status;
    xr_role_step(&l->actor, lr, s->run.actor.grad_clip, &result, &future);
    status = xr_wait(&future, err);
    if (status == XRAY_OK)
        status = xr_nonfinite_update(s, &result, &skipped, err);
    if (status != XRAY_OK)
        return status;
    l->updates += !skipped;
    l->skipped += (uint64_t)skipped;
    l->grad_norm += skipped ? 0 : result.grad_norm;
    return XRAY_OK;
}

static xray_status update(xr_learner *l, const xr_rows *rows, uint32_t first,
                          uint32_t count, double lr, xr_err *err)
{
    xr_session *s = l->session;
    xray_totals totals = { .head = XRAY_HEAD(xray_totals),
                           .max_response =
                               (uint64_t)s->run.data.max_response_length };
    count_totals(rows, first, count, &totals);
    xray_status status =
        xr_views_cut(&l->whole, rows, first, count, UINT64_MAX, err);
    if (status != XRAY_OK || !count)
        return status;
    const xray_batch *mini = l->whole.pointers[0];
    status = make_context(l, mini, &totals, err);
    if (status == XRAY_OK)
        status = xr_views_cut(&l->views, rows, first, count,
                              s->train_load.tokens, err);
    if (status == XRAY_OK)
        status = select_tokens(l, mini, err);
    if (status != XRAY_OK)
        return status;
    return apply(l, lr, err);
}

/* Fisher-Yates by Philox of (seed, step, epoch): the same order in a rerun. */
static xray_status shuffle(xr_learner *l, const xr_rows *rows, uint64_t step,
                           uint64_t epoch, xr_err *err)
{
    uint32_t n = rows->batch.rows;
    uint64_t key = xr_philox_key((uint64_t)l->session->run.run.seed, step,
                                 0x6d696e6962617463u);
    for (uint32_t i = 0; i < n; i++)
        l->order[i] = i;
    for (uint32_t i = n; i > 1; i--) {
        uint32_t bits = xr_philox(key, i, (uint32_t)epoch, 0, 0).w[0];
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

static xray_status updates(xr_learner *l, const xr_rows *rows, uint64_t step,
                           double lr, xr_err *err)
{
    const xr_run_config *run = &l->session->run;
    uint32_t total = rows->batch.rows;
    uint32_t mini = (uint32_t)(run->actor.ppo_mini_batch_size * run->rollout.n);
    if (!mini)
        mini = total;
    for (int64_t epoch = 0; epoch < run->actor.ppo_epochs; epoch++) {
        const xr_rows *source = rows;
        xray_status status = XRAY_OK;
        if (run->actor.shuffle) {
            status = shuffle(l, rows, step, (uint64_t)epoch, err);
            source = &l->shuffled;
        }
        for (uint32_t at = 0; at < total && status == XRAY_OK; at += mini)
            status = update(l, source, at,
                            total - at < mini ? total - at : mini, lr, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static void put_metric(void *ctx, const char *name, double value)
{
    xr_metrics_put((xr_metrics *)ctx, name, value);
}

static void put_loss_metrics(xr_learner *l, double lr)
{
    const char *const *names = xr_algo(l->session)->metric_names();
    for (uint64_t i = 0; i < l->names; i++)
        if (l->weights[i] > 0)
            xr_metrics_put(l->metrics, names[i], l->sums[i] / l->weights[i]);
    if (l->updates)
        xr_metrics_put(l->metrics, "actor/grad_norm",
                       l->grad_norm / (double)l->updates);
    xr_metrics_put(l->metrics, "actor/lr", lr);
    if (l->skipped)
        xr_metrics_put(l->metrics, "actor/skipped_updates", (double)l->skipped);
}

xray_status xr_learner_step(xr_learner *l, const xr_rows *rows, uint64_t step,
                            double lr, xr_err *err)
{
    xr_session *s = l->session;
    xray_batch batch = rows->batch;
    xray_metric_sink sink = { .head = XRAY_HEAD(xray_metric_sink),
                              .ctx = l->metrics,
                              .put = put_metric };
    double start = xr_now();
    memset(l->sums, 0, (size_t)l->names * sizeof(*l->sums));
    memset(l->weights, 0, (size_t)l->names * sizeof(*l->weights));
    l->updates = l->skipped = 0;
    l->grad_norm = 0;
    xray_status status = old_logp(l, rows, step, err);
    double now = xr_now();
    xr_metrics_put(l->metrics, "timing_s/old_log_prob", now - start);
    if (status == XRAY_OK && s->reference.self) {
        start = now;
        status = forward_all(l, &l->reference, rows, rows->batch.ref_logp, err);
        now = xr_now();
        xr_metrics_put(l->metrics, "timing_s/ref", now - start);
    }
    if (status != XRAY_OK)
        return status;
    if (!s->reference.self)
        batch.ref_logp = NULL;
    if (!l->baseline)
        batch.baseline = NULL;
    batch.value = NULL;
    start = now;
    status = XR_CALL(&s->algo, "prepare",
                     xr_algo(s)->prepare(s->algo.self, &batch, &sink));
    if (status != XRAY_OK)
        return xr_host_error(s->algo.host, status, "prepare", err);
    if (xr_nonfinite_token(s->algo.instance, "advantage", &batch,
                           batch.advantage, &l->fault))
        return xr_nonfinite(s, err, "%s", l->fault.text);
    now = xr_now();
    xr_metrics_put(l->metrics, "timing_s/adv", now - start);
    start = now;
    status = updates(l, rows, step, lr, err);
    if (status == XRAY_OK)
        status = xr_publish(s, err);
    xr_metrics_put(l->metrics, "timing_s/update_actor", xr_now() - start);
    put_loss_metrics(l, lr);
    return status;
}
