/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/learner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/roles/given.h"
#include "core/roles/nonfinite.h"
#include "core/roles/publish.h"

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
    size_t rewards = l->roles->run->reward_count;
    l->scores = xr_calloc((size_t)rows * rewards + 1, sizeof(*l->scores));
    l->weights_of_scores = xr_calloc(rewards + 1, sizeof(*l->scores));
    if (XRAY_HAS(xray_algo_ops, xr_algo(l->roles->run), accept))
        l->kept = xr_calloc((size_t)rows * rewards + 1, sizeof(*l->kept));
    for (size_t k = 0; l->weights_of_scores && k < rewards; k++)
        l->weights_of_scores[k] = (float)l->roles->run->rewards[k].weight;
    int greedy = (l->roles->run->needs & XRAY_NEED_GREEDY) != 0;
    if (greedy)
        l->baseline = xr_calloc((size_t)rows, sizeof(*l->baseline));
    if (!l->logp || !l->scratch || !l->order || !l->keep || !l->context ||
        !l->sums || !l->weights || !l->scores || !l->weights_of_scores ||
        (XRAY_HAS(xray_algo_ops, xr_algo(l->roles->run), accept) && !l->kept) ||
        (greedy && !l->baseline))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu rows",
                       (unsigned long long)rows);
    return XRAY_OK;
}

xray_status xr_learner_init(xr_learner *l, xr_roles *roles, xr_metrics *metrics,
                            xr_err *err)
{
    const xr_run_config *run = &roles->run->ini;
    uint64_t rows = xr_step_rows(run);
    uint64_t tokens = rows * (uint64_t)(run->data.max_prompt_length +
                                        run->data.max_response_length);
    *l = (xr_learner){ .roles = roles, .metrics = metrics };
    l->actor.role = XRAY_ROLE_ACTOR;
    l->critic.role = XRAY_ROLE_CRITIC;
    xray_status status = xr_given_names(
        roles->algo.part, xr_algo(roles->run)->metric_names(), err, &l->names);
    if (status == XRAY_OK)
        status = take_memory(l, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_rows_init(&l->fresh, rows, tokens, err);
    if (status == XRAY_OK &&
        XRAY_HAS(xray_algo_ops, xr_algo(roles->run), accept))
        status = xr_rows_init(&l->rows, rows, tokens, err);
    if (status == XRAY_OK && (run->actor.shuffle || run->critic.shuffle))
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
    free(l->scores);
    free(l->kept);
    free(l->weights_of_scores);
    free(l->told_names);
    free(l->told_values);
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
    float temperature = (float)l->roles->run->ini.rollout.temperature;
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
        for (size_t k = 0; k < l->roles->run->reward_count; k++)
            l->scores[i * l->roles->run->reward_count + k] =
                (float)s->scores[i].parts[k];
    }
    return XRAY_OK;
}

/* Scores of fresh row r go with the row that was copied last. */
static void keep_scores(xr_learner *l, uint32_t r)
{
    size_t rewards = l->roles->run->reward_count;
    size_t last = l->rows.batch.rows - 1;
    memcpy(l->kept + last * rewards, l->scores + r * rewards,
           rewards * sizeof(*l->kept));
}

xray_status xr_learner_accept(xr_learner *l, uint32_t want,
                              uint32_t *out_groups, xr_err *err)
{
    const xr_roles *s = l->roles;
    uint32_t groups = *out_groups;
    uint32_t fresh = l->fresh.batch.rows
                         ? (uint32_t)l->fresh.group[l->fresh.batch.rows - 1] + 1
                         : 0;
    for (uint32_t g = 0; g < fresh; g++)
        l->keep[g] = 1;
    xray_status status = XR_CALL(
        s->algo.part, "accept",
        xr_algo(s->run)->accept(s->algo.self, &l->fresh.batch, fresh, l->keep));
    if (status != XRAY_OK)
        return xr_host_error(s->algo.part->host, status, "accept", err);
    uint32_t r = 0;
    while (r < l->fresh.batch.rows && groups < want) {
        int32_t g = l->fresh.group[r];
        int32_t to = l->keep[g] ? (int32_t)groups++ : -1;
        for (; r < l->fresh.batch.rows && l->fresh.group[r] == g; r++) {
            status = to < 0 ? XRAY_OK
                            : xr_rows_copy(&l->rows, &l->fresh, r, to, err);
            if (status != XRAY_OK)
                return status;
            if (to >= 0)
                keep_scores(l, r);
        }
    }
    *out_groups = groups;
    return XRAY_OK;
}

/* ---- log-probs ---------------------------------------------------------- */

/* One output of all rows, to `to` [tokens]. */
static xray_status forward_all(xr_learner *l, uint32_t role,
                               const xr_rows *rows, uint32_t output, float *to,
                               xr_err *err)
{
    int value = output == XRAY_OUTPUT_VALUE;
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs) };
    *(value ? &out.value : &out.logp) = to;
    const xr_cut cut = { .count = rows->batch.rows,
                         .budget = xr_run_load(l->roles->run, role).tokens,
                         .prompts = XR_PROMPTS_SHARED };
    xray_status status = xr_views_cut(&l->views, rows, &cut, err);
    if (status != XRAY_OK)
        return status;
    status = xr_role_forward(l->roles, role, &l->views, output, &out, err);
    if (status == XRAY_OK &&
        xr_nonfinite_token(xr_roles_at(l->roles, role)->part->instance,
                           value ? "value" : "log-prob", &rows->batch, to,
                           &l->fault))
        status = xr_nonfinite(l->roles, err, "%s", l->fault.text);
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
    const xr_roles *s = l->roles;
    int64_t every = s->run->ini.actor.recompute_old_logp;
    if (s->exact && (every <= 0 || (step - 1) % (uint64_t)every != 0))
        return XRAY_OK;
    xray_status status =
        forward_all(l, XRAY_ROLE_ACTOR, rows, XRAY_OUTPUT_LOGP, l->logp, err);
    if (status != XRAY_OK)
        return status;
    put_difference(l, rows);
    if (s->exact)
        return compare_exact(rows, l->logp, err);
    memcpy(rows->batch.old_logp, l->logp,
           rows->batch.tokens * sizeof(*l->logp));
    return XRAY_OK;
}

/* ---- a step ------------------------------------------------------------- */

static void put_metric(void *ctx, const char *name, double value)
{
    xr_learner *l = ctx;
    l->unnamed += !name || !*name;
    if (name && *name)
        xr_metrics_put(l->metrics, name, value);
}

/* What a model's updates came to. */
static void put_updates(xr_learner *l, const xr_updates *u, const char *who)
{
    char name[64];
    if (u->updates) {
        (void)snprintf(name, sizeof(name), "%s/grad_norm", who);
        xr_metrics_put(l->metrics, name, u->grad_norm / (double)u->updates);
    }
    (void)snprintf(name, sizeof(name), "%s/lr", who);
    xr_metrics_put(l->metrics, name, u->lr);
    (void)snprintf(name, sizeof(name), "%s/skipped_updates", who);
    if (u->skipped)
        xr_metrics_put(l->metrics, name, (double)u->skipped);
}

static void put_loss_metrics(xr_learner *l)
{
    const char *const *names = xr_algo(l->roles->run)->metric_names();
    for (uint64_t i = 0; i < l->names; i++)
        if (l->weights[i] > 0)
            xr_metrics_put(l->metrics, names[i], l->sums[i] / l->weights[i]);
}

static double put_time(xr_learner *l, const char *name, double start)
{
    double now = xr_now();
    xr_metrics_put(l->metrics, name, now - start);
    return now;
}

/* Log-probs of the policy and of the reference, and values. */
static xray_status outputs(xr_learner *l, const xr_rows *rows, uint64_t step,
                           xr_err *err)
{
    xr_roles *s = l->roles;
    uint32_t values = s->critic.self ? XRAY_ROLE_CRITIC : XRAY_ROLE_ACTOR;
    double now = xr_now();
    xray_status status = old_logp(l, rows, step, err);
    now = put_time(l, "timing_s/old_log_prob", now);
    if (status == XRAY_OK && s->reference.self) {
        status = forward_all(l, XRAY_ROLE_REFERENCE, rows, XRAY_OUTPUT_LOGP,
                             rows->batch.ref_logp, err);
        now = put_time(l, "timing_s/ref", now);
    }
    if (status == XRAY_OK && l->has_values) {
        status = forward_all(l, values, rows, XRAY_OUTPUT_VALUE,
                             rows->batch.value, err);
        (void)put_time(l, "timing_s/values", now);
    }
    return status;
}

/* The algorithm's half of a step: score to advantage. */
static xray_status prepare(xr_learner *l, const xr_rows *rows, xr_err *err)
{
    xr_roles *s = l->roles;
    xray_batch batch = rows->batch;
    xray_metric_sink sink = { .header = XRAY_HEADER(xray_metric_sink),
                              .ctx = l,
                              .put = put_metric };
    if (!s->reference.self)
        batch.ref_logp = NULL;
    if (!l->baseline)
        batch.baseline = NULL;
    if (!l->has_values)
        batch.value = NULL;
    batch.scores = rows == &l->rows ? l->kept : l->scores;
    batch.score_weight = l->weights_of_scores;
    batch.score_count = (uint32_t)s->run->reward_count;
    l->unnamed = 0;
    xray_status status =
        XR_CALL(s->algo.part, "prepare",
                xr_algo(s->run)->prepare(s->algo.self, &batch, &sink));
    if (status != XRAY_OK)
        return xr_host_error(s->algo.part->host, status, "prepare", err);
    if (l->unnamed)
        return xr_fail(err, XRAY_E_BUG,
                       "%s: prepare put a metric without a name",
                       s->algo.part->instance);
    if (xr_nonfinite_token(s->algo.part->instance, "advantage", &batch,
                           batch.advantage, &l->fault) ||
        (l->has_values && xr_nonfinite_token(s->algo.part->instance, "return",
                                             &batch, batch.returns, &l->fault)))
        return xr_nonfinite(s, err, "%s", l->fault.text);
    return XRAY_OK;
}

static uint32_t prompts_of(int shared)
{
    return shared ? XR_PROMPTS_WHOLE : XR_PROMPTS_APART;
}

/* How each model's rows are dealt in this step. */
static void set_updates(xr_learner *l, const xr_rates *rates)
{
    const xr_run_config *run = &l->roles->run->ini;
    const xr_actor_section *actor = &run->actor;
    const xr_critic_section *critic = &run->critic;
    uint32_t heads = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY;
    if (l->roles->run->needs & XRAY_NEED_VALUE_HEAD)
        heads |= XRAY_OUTPUT_VALUE;
    l->actor = (xr_updates){ .role = l->actor.role,
                             .outputs = heads,
                             .lr = rates->actor,
                             .grad_clip = actor->grad_clip,
                             .micro_tokens = l->roles->run->actor.load.tokens,
                             .mini = actor->ppo_mini_batch_size,
                             .epochs = actor->ppo_epochs,
                             .shuffle = actor->shuffle != 0,
                             .prompts = prompts_of(actor->share_prompts != 0) };
    l->critic = (xr_updates){ .role = l->critic.role,
                              .outputs = XRAY_OUTPUT_VALUE,
                              .lr = rates->critic,
                              .grad_clip = critic->grad_clip,
                              .micro_tokens = l->roles->run->critic.load.tokens,
                              .mini = critic->ppo_mini_batch_size,
                              .epochs = critic->ppo_epochs,
                              .shuffle = critic->shuffle != 0,
                              .prompts = prompts_of(critic->share_prompts != 0),
                              .critic = 1 };
}

/* The critic first, as in verl; the policy unless the critic is being warmed
 * up. */
static xray_status update_all(xr_learner *l, const xr_rows *rows, uint64_t step,
                              xr_err *err)
{
    xr_roles *s = l->roles;
    double now = xr_now();
    xray_status status = XRAY_OK;
    if (s->critic.self) {
        status = xr_learner_update(l, &l->critic, rows, step, err);
        now = put_time(l, "timing_s/update_critic", now);
        put_updates(l, &l->critic, "critic");
    }
    if (status != XRAY_OK || (int64_t)step < s->run->ini.trainer.critic_warmup)
        return status;
    status = xr_learner_update(l, &l->actor, rows, step, err);
    if (status == XRAY_OK)
        status = xr_publish_later(s, err);
    (void)put_time(l, "timing_s/update_actor", now);
    put_updates(l, &l->actor, "actor");
    return status;
}

xray_status xr_learner_step(xr_learner *l, const xr_rows *rows, uint64_t step,
                            const xr_rates *rates, xr_err *err)
{
    memset(l->sums, 0, (size_t)l->names * sizeof(*l->sums));
    memset(l->weights, 0, (size_t)l->names * sizeof(*l->weights));
    l->has_values =
        l->roles->critic.self || (l->roles->run->needs & XRAY_NEED_VALUE_HEAD);
    set_updates(l, rates);
    xray_status status = outputs(l, rows, step, err);
    double now = xr_now();
    if (status == XRAY_OK) {
        status = prepare(l, rows, err);
        (void)put_time(l, "timing_s/adv", now);
    }
    if (status == XRAY_OK) {
        status = update_all(l, rows, step, err);
        put_loss_metrics(l);
    }
    return status;
}

xray_status xr_learner_observe(xr_learner *l, xr_err *err)
{
    const xr_roles *s = l->roles;
    size_t count = xr_metrics_count(l->metrics);
    if (!XRAY_HAS(xray_algo_ops, xr_algo(s->run), observe))
        return XRAY_OK;
    if (count > l->told_cap) {
        free(l->told_names);
        free(l->told_values);
        size_t cap = 2 * count + 64; /* validation has more */
        l->told_names = xr_calloc(cap, sizeof(*l->told_names));
        l->told_values = xr_calloc(cap, sizeof(*l->told_values));
        l->told_cap = l->told_names && l->told_values ? cap : 0;
        if (!l->told_cap)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    }
    for (size_t i = 0; i < count; i++) {
        l->told_names[i] = xr_metrics_name(l->metrics, i);
        l->told_values[i] = xr_metrics_value(l->metrics, i);
    }
    xray_status status =
        XR_CALL(s->algo.part, "observe",
                xr_algo(s->run)->observe(s->algo.self, l->told_names,
                                         l->told_values, count));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(s->algo.part->host, status, "observe", err);
}
