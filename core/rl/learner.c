/* SPDX-License-Identifier: Apache-2.0
 *
 * Packs scored samples into batches, computes log-probs, values and advantages,
 * and decides which models are updated.
 */
#include "core/rl/learner.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_results.h"
#include "core/roles/publish.h"
#include "core/roles/ratios.h"

static xray_status allocate_arrays(xr_learner *learner, uint64_t rows,
                                   uint64_t tokens, xr_err *err)
{
    size_t names = (size_t)learner->names + learner->ratios + 1;
    learner->context_cap = 4096;
    learner->logp = xr_calloc((size_t)tokens, sizeof(*learner->logp));
    learner->scratch = xr_calloc((size_t)(tokens > rows ? tokens : rows),
                                 sizeof(*learner->scratch));
    learner->order = xr_calloc((size_t)rows, sizeof(*learner->order));
    learner->keep = xr_calloc((size_t)rows, sizeof(*learner->keep));
    learner->context = xr_calloc((size_t)learner->context_cap, 1);
    learner->sums = xr_calloc(names, sizeof(*learner->sums));
    learner->weights = xr_calloc(names, sizeof(*learner->weights));
    size_t rewards = learner->roles->run->reward_count;
    learner->scores =
        xr_calloc((size_t)rows * rewards + 1, sizeof(*learner->scores));
    learner->weights_of_scores =
        xr_calloc(rewards + 1, sizeof(*learner->scores));
    if (XRAY_HAS(xray_algo_ops, xr_algo(learner->roles->run), accept))
        learner->kept =
            xr_calloc((size_t)rows * rewards + 1, sizeof(*learner->kept));
    for (size_t k = 0; learner->weights_of_scores && k < rewards; k++)
        learner->weights_of_scores[k] =
            (float)learner->roles->run->rewards[k].weight;
    int greedy = (learner->roles->run->needs & XRAY_NEED_GREEDY) != 0;
    if (greedy)
        learner->baseline = xr_calloc((size_t)rows, sizeof(*learner->baseline));
    if (!learner->logp || !learner->scratch || !learner->order ||
        !learner->keep || !learner->context || !learner->sums ||
        !learner->weights || !learner->scores || !learner->weights_of_scores ||
        (XRAY_HAS(xray_algo_ops, xr_algo(learner->roles->run), accept) &&
         !learner->kept) ||
        (greedy && !learner->baseline))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu rows",
                       (unsigned long long)rows);
    return XRAY_OK;
}

/* Says in the log which comparison of log-probs holds in this run. */
static void log_comparison(const xr_roles *roles)
{
    const xr_run *run = roles->run;
    const xr_log_sink *sink = &run->sink;
    long long every = run->ini.actor.recompute_old_logp;
    const char *train = xr_run_numerics(run, XRAY_ROLE_ACTOR);
    const char *infer = xr_run_numerics(run, XRAY_ROLE_ROLLOUT);
    const char *device = xr_run_device_numerics(run);
    char how[160];
    char text[512];
    if (!sink->write || sink->level < XRAY_LOG_INFO)
        return;
    if (!run->exact)
        (void)snprintf(
            how, sizeof(how),
            "the trainer computes log-probs again in every step, and "
            "probabilities may differ by at most %g ([actor] "
            "rollout_probs_diff_max)",
            run->ini.actor.rollout_probs_diff_max);
    else if (every > 0)
        (void)snprintf(how, sizeof(how),
                       "log-probs are compared bit for bit every %lld steps",
                       every);
    else
        (void)snprintf(how, sizeof(how),
                       "log-probs are the same bits and are not compared "
                       "([actor] recompute_old_logp = 0)");
    (void)snprintf(text, sizeof(text),
                   "numerics: %s keeps %s, %s keeps %s%s%s: %s",
                   roles->actor.part->instance, train ? train : "no contract",
                   roles->engine.part->instance, infer ? infer : "no contract",
                   device ? ", but for products and attention, which are those "
                            "of "
                          : "",
                   device ? device : "", how);
    sink->write(sink->ctx, XRAY_LOG_INFO, "run", text);
}

xray_status xr_learner_init(xr_learner *learner, xr_roles *roles,
                            xr_metrics *metrics, xr_err *err)
{
    const xr_run_config *ini = &roles->run->ini;
    uint64_t rows = xr_step_rows(ini);
    uint64_t tokens = rows * (uint64_t)(ini->data.max_prompt_length +
                                        ini->data.max_response_length);
    *learner = (xr_learner){ .roles = roles, .metrics = metrics };
    learner->actor.role = XRAY_ROLE_ACTOR;
    learner->critic.role = XRAY_ROLE_CRITIC;
    xray_status status = xr_check_metric_names(
        roles->algo.part, xr_algo(roles->run)->metric_names(roles->algo.self),
        err, &learner->names);
    learner->ratios = xr_metrics_histograms(metrics) ? XR_RATIO_BUCKETS : 0;
    if (status == XRAY_OK)
        status = allocate_arrays(learner, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_rows_init(&learner->fresh, rows, tokens, err);
    if (status == XRAY_OK &&
        XRAY_HAS(xray_algo_ops, xr_algo(roles->run), accept))
        status = xr_rows_init(&learner->rows, rows, tokens, err);
    if (status == XRAY_OK &&
        (ini->actor.shuffle || ini->critic.shuffle || ini->run.layout_segments))
        status = xr_rows_init(&learner->ordered, rows, tokens, err);
    if (status == XRAY_OK)
        status = xr_segments_init(&learner->segments,
                                  (uint64_t)ini->run.layout_segments, rows,
                                  learner->names + learner->ratios, err);
    if (status == XRAY_OK)
        status = xr_views_init(&learner->views, rows, err);
    if (status == XRAY_OK)
        status = xr_views_init(&learner->mini_batch, rows, err);
    if (status != XRAY_OK)
        xr_learner_free(learner);
    else
        log_comparison(roles);
    return status;
}

void xr_learner_free(xr_learner *learner)
{
    xr_rows_free(&learner->fresh);
    xr_rows_free(&learner->rows);
    xr_rows_free(&learner->ordered);
    xr_segments_free(&learner->segments);
    xr_views_free(&learner->views);
    xr_views_free(&learner->mini_batch);
    free(learner->logp);
    free(learner->scratch);
    free(learner->order);
    free(learner->keep);
    free(learner->context);
    free(learner->sums);
    free(learner->weights);
    free(learner->baseline);
    free(learner->scores);
    free(learner->kept);
    free(learner->weights_of_scores);
    free(learner->observed_names);
    free(learner->observed_values);
    *learner = (xr_learner){ .names = 0 };
}

/* Writes the token scores to the rewards of a row, and adds the sample's score
 * to its last token. */
static void store_row_rewards(xr_rows *to, uint32_t r,
                              const xr_samples *samples, uint32_t i)
{
    size_t first = (size_t)to->row_start[r] + (size_t)to->prompt_len[r];
    size_t last = (size_t)to->row_start[r + 1];
    if (first == last)
        return;
    for (size_t t = first; t < last; t++)
        to->batch.reward[t] = samples->score_rows[i][t - first];
    to->batch.reward[last - 1] += (float)samples->scores[i].score;
}

xray_status xr_learner_pack(xr_learner *learner, const xr_samples *samples,
                            const xr_row *const *rows, uint64_t step,
                            xr_err *err)
{
    float temperature = (float)learner->roles->run->ini.rollout.temperature;
    xr_rows_clear(&learner->fresh);
    for (uint32_t i = 0; i < samples->count; i++) {
        const xr_row *row = rows[i / samples->n];
        size_t at = (size_t)i * samples->max_tokens;
        xr_row_in in = {
            .prompt = row->ids,
            .prompt_count = row->prompt_count,
            .response = samples->tokens + at,
            .response_count = samples->sizes[i],
            .logp = samples->logp + at,
            .row_id = step * samples->cap + i,
            .prompt_id = row->id,
            .version = samples->versions[i],
            .group = (int32_t)(i / samples->n),
            .temperature = temperature > 0 ? temperature : 1.0f,
            .baseline =
                learner->baseline ? learner->baseline[i / samples->n] : 0,
        };
        xray_status status = xr_rows_add(&learner->fresh, &in, err);
        if (status != XRAY_OK)
            return status;
        store_row_rewards(&learner->fresh, i, samples, i);
        for (size_t k = 0; k < learner->roles->run->reward_count; k++)
            learner->scores[i * learner->roles->run->reward_count + k] =
                (float)samples->scores[i].parts[k];
    }
    return XRAY_OK;
}

/* Copies the scores of row r of the rollout to the row that was copied to the
 * batch last. */
static void keep_row_scores(xr_learner *learner, uint32_t r)
{
    size_t rewards = learner->roles->run->reward_count;
    size_t last = learner->rows.batch.rows - 1;
    memcpy(learner->kept + last * rewards, learner->scores + r * rewards,
           rewards * sizeof(*learner->kept));
}

xray_status xr_learner_accept(xr_learner *learner, uint32_t want,
                              uint32_t *out_groups, xr_err *err)
{
    const xr_roles *roles = learner->roles;
    uint32_t groups = *out_groups;
    uint32_t fresh =
        learner->fresh.batch.rows
            ? (uint32_t)learner->fresh.group[learner->fresh.batch.rows - 1] + 1
            : 0;
    for (uint32_t g = 0; g < fresh; g++)
        learner->keep[g] = 1;
    xray_status status =
        XR_CALL(roles->algo.part, "accept",
                xr_algo(roles->run)
                    ->accept(roles->algo.self, &learner->fresh.batch, fresh,
                             learner->keep));
    if (status != XRAY_OK)
        return xr_host_error(roles->algo.part->host, status, "accept", err);
    uint32_t r = 0;
    while (r < learner->fresh.batch.rows && groups < want) {
        int32_t g = learner->fresh.group[r];
        int32_t to = learner->keep[g] ? (int32_t)groups++ : -1;
        for (; r < learner->fresh.batch.rows && learner->fresh.group[r] == g;
             r++) {
            status = to < 0 ? XRAY_OK
                            : xr_rows_copy(&learner->rows, &learner->fresh, r,
                                           to, err);
            if (status != XRAY_OK)
                return status;
            if (to >= 0)
                keep_row_scores(learner, r);
        }
    }
    *out_groups = groups;
    return XRAY_OK;
}

/* ---- log-probs ---------------------------------------------------------- */

/* Computes one output of all rows into `to` [tokens]. */
static xray_status forward_all_rows(xr_learner *learner, uint32_t role,
                                    const xr_rows *rows, uint32_t output,
                                    float *to, xr_err *err)
{
    int value = output == XRAY_OUTPUT_VALUE;
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs) };
    *(value ? &out.value : &out.logp) = to;
    const xr_cut cut = { .count = rows->batch.rows,
                         .budget =
                             xr_run_workload(learner->roles->run, role).tokens,
                         .prompts = XR_PROMPTS_SHARED };
    xray_status status = xr_views_cut(&learner->views, rows, &cut, err);
    if (status != XRAY_OK)
        return status;
    status = xr_role_forward(learner->roles, role, &learner->views, output,
                             &out, err);
    if (status == XRAY_OK &&
        xr_nonfinite_token(xr_roles_at(learner->roles, role)->part->instance,
                           value ? "value" : "log-prob", &rows->batch, to,
                           &learner->fault))
        status = xr_nonfinite(learner->roles, err, "%s", learner->fault.text);
    return status;
}

/* Trainer and engine run the same kernels, so any difference is a fault. It
 * stops the run rather than biasing it. */
static xray_status expect_exact_logp(const xr_rows *rows, const float *logp,
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

static float subtract_probs(const xr_learner *learner, const xr_rows *rows,
                            int32_t t)
{
    return fabsf(expf(learner->logp[t]) - expf(rows->batch.rollout_logp[t]));
}

static void put_probs_difference(xr_learner *learner, const xr_rows *rows)
{
    size_t n = 0;
    for (uint32_t t = 0; t < rows->batch.tokens; t++)
        if (rows->loss_mask[t] != 0)
            learner->scratch[n++] = subtract_probs(learner, rows, (int32_t)t);
    xr_metrics_stats(learner->metrics, "training/rollout_probs_diff",
                     learner->scratch, n);
}

/* Contracts differ, so bits do, too, but only up to the user's bound. */
static xray_status expect_near_probs(const xr_learner *learner,
                                     const xr_rows *rows, xr_err *err)
{
    double most = learner->roles->run->ini.actor.rollout_probs_diff_max;
    for (uint32_t r = 0; r < rows->batch.rows; r++)
        for (int32_t t = rows->row_start[r]; t < rows->row_start[r + 1]; t++)
            if (rows->loss_mask[t] != 0 &&
                (double)subtract_probs(learner, rows, t) > most)
                return xr_fail_key(
                    err, XRAY_E_NUMERIC, "actor", "rollout_probs_diff_max",
                    " is %g, but the trainer gives token %d of row %llu the "
                    "probability %.6g and the engine %.6g",
                    most, t - rows->row_start[r],
                    (unsigned long long)rows->row_id[r],
                    exp((double)learner->logp[t]),
                    exp((double)rows->batch.rollout_logp[t]));
    return XRAY_OK;
}

static xray_status compute_old_logp(xr_learner *learner, const xr_rows *rows,
                                    uint64_t step, xr_err *err)
{
    const xr_roles *roles = learner->roles;
    int64_t every = roles->run->ini.actor.recompute_old_logp;
    if (roles->run->exact && (every <= 0 || (step - 1) % (uint64_t)every != 0))
        return XRAY_OK;
    xray_status status = forward_all_rows(learner, XRAY_ROLE_ACTOR, rows,
                                          XRAY_OUTPUT_LOGP, learner->logp, err);
    if (status != XRAY_OK)
        return status;
    put_probs_difference(learner, rows);
    if (roles->run->exact)
        return expect_exact_logp(rows, learner->logp, err);
    status = expect_near_probs(learner, rows, err);
    if (status != XRAY_OK)
        return status;
    memcpy(rows->batch.old_logp, learner->logp,
           rows->batch.tokens * sizeof(*learner->logp));
    return XRAY_OK;
}

/* ---- a step ------------------------------------------------------------- */

static void metric_sink_put(void *ctx, const char *name, double value)
{
    xr_learner *learner = ctx;
    learner->nameless_metrics += !name || !*name;
    if (name && *name)
        xr_metrics_put(learner->metrics, name, value);
}

/* Puts the results of a model's updates into the metrics. */
static void put_update_metrics(xr_learner *learner, const xr_updates *u,
                               const char *who)
{
    char name[64];
    if (u->updates) {
        (void)snprintf(name, sizeof(name), "%s/grad_norm", who);
        xr_metrics_put(learner->metrics, name,
                       u->grad_norm / (double)u->updates);
    }
    (void)snprintf(name, sizeof(name), "%s/lr", who);
    xr_metrics_put(learner->metrics, name, u->lr);
    (void)snprintf(name, sizeof(name), "%s/skipped_updates", who);
    if (u->skipped)
        xr_metrics_put(learner->metrics, name, (double)u->skipped);
}

static void put_loss_metrics(xr_learner *learner)
{
    const char *const *names =
        xr_algo(learner->roles->run)->metric_names(learner->roles->algo.self);
    for (uint64_t i = 0; i < learner->names; i++)
        if (learner->weights[i] > 0)
            xr_metrics_put(learner->metrics, names[i],
                           learner->sums[i] / learner->weights[i]);
    if (learner->ratios)
        xr_histograms_add_counts(
            xr_metrics_histograms(learner->metrics), "actor/ratio",
            xr_ratio_edges, learner->sums + learner->names, XR_RATIO_BUCKETS);
}

static double put_elapsed_time(xr_learner *learner, const char *name,
                               double start)
{
    double now = xr_now();
    xr_metrics_put(learner->metrics, name, now - start);
    return now;
}

/* Computes log-probs of the policy and of the reference, and values. */
static xray_status compute_model_outputs(xr_learner *learner,
                                         const xr_rows *rows, uint64_t step,
                                         xr_err *err)
{
    xr_roles *roles = learner->roles;
    uint32_t values = roles->critic.self ? XRAY_ROLE_CRITIC : XRAY_ROLE_ACTOR;
    double now = xr_now();
    xray_status status = compute_old_logp(learner, rows, step, err);
    now = put_elapsed_time(learner, "timing_s/old_log_prob", now);
    if (status == XRAY_OK && roles->reference.self) {
        status = forward_all_rows(learner, XRAY_ROLE_REFERENCE, rows,
                                  XRAY_OUTPUT_LOGP, rows->batch.ref_logp, err);
        now = put_elapsed_time(learner, "timing_s/ref", now);
    }
    if (status == XRAY_OK && learner->has_values) {
        status = forward_all_rows(learner, values, rows, XRAY_OUTPUT_VALUE,
                                  rows->batch.value, err);
        (void)put_elapsed_time(learner, "timing_s/values", now);
    }
    return status;
}

/* Calls the algorithm to turn scores into advantages. */
static xray_status prepare_advantages(xr_learner *learner, const xr_rows *rows,
                                      xr_err *err)
{
    xr_roles *roles = learner->roles;
    xray_batch batch = rows->batch;
    xray_metric_sink sink = { .header = XRAY_HEADER(xray_metric_sink),
                              .ctx = learner,
                              .put = metric_sink_put };
    if (!roles->reference.self)
        batch.ref_logp = NULL;
    if (!learner->baseline)
        batch.baseline = NULL;
    if (!learner->has_values)
        batch.value = NULL;
    batch.scores = rows == &learner->rows ? learner->kept : learner->scores;
    batch.score_weight = learner->weights_of_scores;
    batch.score_count = (uint32_t)roles->run->reward_count;
    learner->nameless_metrics = 0;
    xray_status status =
        XR_CALL(roles->algo.part, "prepare",
                xr_algo(roles->run)->prepare(roles->algo.self, &batch, &sink));
    if (status != XRAY_OK)
        return xr_host_error(roles->algo.part->host, status, "prepare", err);
    if (learner->nameless_metrics)
        return xr_fail(err, XRAY_E_BUG,
                       "%s: prepare put a metric without a name",
                       roles->algo.part->instance);
    if (xr_nonfinite_token(roles->algo.part->instance, "advantage", &batch,
                           batch.advantage, &learner->fault) ||
        (learner->has_values &&
         xr_nonfinite_token(roles->algo.part->instance, "return", &batch,
                            batch.returns, &learner->fault)))
        return xr_nonfinite(roles, err, "%s", learner->fault.text);
    return XRAY_OK;
}

static uint32_t choose_prompt_sharing(int shared)
{
    return shared ? XR_PROMPTS_PER_GROUP : XR_PROMPTS_APART;
}

/* Sets how the rows of each model are divided in this step. */
static void configure_updates(xr_learner *learner, const xr_rates *rates)
{
    const xr_run *run = learner->roles->run;
    const xr_run_config *ini = &run->ini;
    const xr_actor_section *actor = &ini->actor;
    const xr_critic_section *critic = &ini->critic;
    uint32_t outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY;
    if (run->needs & XRAY_NEED_VALUE_HEAD)
        outputs |= XRAY_OUTPUT_VALUE;
    learner->actor = (xr_updates){
        .role = learner->actor.role,
        .outputs = outputs,
        .lr = rates->actor,
        .grad_clip = actor->grad_clip,
        .micro_tokens = xr_run_workload(run, XRAY_ROLE_ACTOR).tokens,
        .mini = actor->ppo_mini_batch_size,
        .epochs = actor->ppo_epochs,
        .shuffle = actor->shuffle != 0,
        .prompts = choose_prompt_sharing(actor->share_prompts != 0)
    };
    learner->critic = (xr_updates){
        .role = learner->critic.role,
        .outputs = XRAY_OUTPUT_VALUE,
        .lr = rates->critic,
        .grad_clip = critic->grad_clip,
        .micro_tokens = xr_run_workload(run, XRAY_ROLE_CRITIC).tokens,
        .mini = critic->ppo_mini_batch_size,
        .epochs = critic->ppo_epochs,
        .shuffle = critic->shuffle != 0,
        .prompts = choose_prompt_sharing(critic->share_prompts != 0),
        .critic = 1
    };
}

/* The critic is updated first, as in verl. The policy follows unless the critic
 * is still being warmed up. */
static xray_status update_models(xr_learner *learner, const xr_rows *rows,
                                 uint64_t step, xr_err *err)
{
    xr_roles *roles = learner->roles;
    double now = xr_now();
    xray_status status = XRAY_OK;
    if (roles->critic.self) {
        status = xr_learner_update(learner, &learner->critic, rows, step, err);
        now = put_elapsed_time(learner, "timing_s/update_critic", now);
        put_update_metrics(learner, &learner->critic, "critic");
    }
    if (status != XRAY_OK ||
        (int64_t)step < roles->run->ini.trainer.critic_warmup)
        return status;
    status = xr_learner_update(learner, &learner->actor, rows, step, err);
    (void)put_elapsed_time(learner, "timing_s/update_actor", now);
    put_update_metrics(learner, &learner->actor, "actor");
    return status == XRAY_OK ? xr_publish_later(roles, err) : status;
}

xray_status xr_learner_step(xr_learner *learner, const xr_rows *rows,
                            uint64_t step, const xr_rates *rates, xr_err *err)
{
    size_t sums = (size_t)learner->names + learner->ratios;
    memset(learner->sums, 0, sums * sizeof(*learner->sums));
    memset(learner->weights, 0, sums * sizeof(*learner->weights));
    learner->has_values = learner->roles->critic.self ||
                          (learner->roles->run->needs & XRAY_NEED_VALUE_HEAD);
    configure_updates(learner, rates);
    xray_status status = compute_model_outputs(learner, rows, step, err);
    if (status != XRAY_OK)
        return status;
    double now = xr_now();
    status = prepare_advantages(learner, rows, err);
    (void)put_elapsed_time(learner, "timing_s/adv", now);
    if (status != XRAY_OK)
        return status;
    status = update_models(learner, rows, step, err);
    put_loss_metrics(learner);
    return status;
}

xray_status xr_learner_observe(xr_learner *learner, xr_err *err)
{
    const xr_roles *roles = learner->roles;
    size_t count = xr_metrics_count(learner->metrics);
    if (!XRAY_HAS(xray_algo_ops, xr_algo(roles->run), observe))
        return XRAY_OK;
    if (count > learner->observed_cap) {
        free(learner->observed_names);
        free(learner->observed_values);
        size_t cap =
            2 * count + 64; /* a step with validation has more metrics */
        learner->observed_names =
            xr_calloc(cap, sizeof(*learner->observed_names));
        learner->observed_values =
            xr_calloc(cap, sizeof(*learner->observed_values));
        learner->observed_cap =
            learner->observed_names && learner->observed_values ? cap : 0;
        if (!learner->observed_cap)
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    }
    for (size_t i = 0; i < count; i++) {
        learner->observed_names[i] = xr_metrics_name(learner->metrics, i);
        learner->observed_values[i] = xr_metrics_value(learner->metrics, i);
    }
    xray_status status =
        XR_CALL(roles->algo.part, "observe",
                xr_algo(roles->run)
                    ->observe(roles->algo.self, learner->observed_names,
                              learner->observed_values, count));
    return status == XRAY_OK
               ? XRAY_OK
               : xr_host_error(roles->algo.part->host, status, "observe", err);
}
