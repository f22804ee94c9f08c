/* SPDX-License-Identifier: Apache-2.0
 *
 * xray train: the loop of reinforcement learning. Each step takes prompts,
 * samples responses, scores them, computes advantages and updates the models.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/monitor/metrics.h"
#include "core/rl/job.h"
#include "core/rl/learner.h"
#include "core/rl/schedule.h"
#include "core/roles/nonfinite.h"
#include "core/roles/publish.h"

/* The most rollouts that dynamic sampling makes for one step. */
#define MAX_GENERATIONS 10

typedef struct trainer {
    xr_job job;
    xr_learner learner;
    xr_samples samples;
    /* One per prompt, if the algorithm needs a greedy baseline. */
    xr_samples greedy;
    /* Named values of the rewards: means over the latest rollout. */
    xr_metrics *values;
    const xr_row **prompts; /* [train_batch_size] */
    uint32_t prompt_count;
    uint32_t filters_groups; /* 1: with dynamic sampling */
} trainer;

static const char *const watched_metrics[] = { "critic/score/mean",
                                               "actor/grad_norm",
                                               "response_length/mean", NULL };

static int64_t train_batch(const xr_run_config *ini)
{
    return ini->data.train_batch_size;
}

static int64_t train_steps(const xr_run_config *ini)
{
    return ini->trainer.total_training_steps;
}

static const xr_job_plan train_plan = {
    .with = XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_INFER | XR_WITH_ALGO |
            XR_WITH_REWARD | XR_WITH_TOKENIZER | XR_WITH_TRACKER,
    .data_kind = XR_DATA_PROMPTS,
    .batch = train_batch,
    .steps = train_steps,
    .watch = watched_metrics,
};

static void add_reward_value(void *ctx, size_t sample, const char *instance,
                             const char *name, double value)
{
    trainer *t = (trainer *)ctx;
    char full[256];
    (void)sample;
    (void)snprintf(full, sizeof(full), "%s/%s", instance, name);
    double sum = xr_metrics_get(t->values, full);
    xr_metrics_put(t->values, full,
                   (isnan(sum) ? 0 : sum) + value / t->samples.count);
}

/* Scores the samples and puts the rewards' named values into the metrics. Like
 * critic/score, these describe the latest rollout, not earlier ones that
 * dynamic sampling discarded. */
static xray_status score_samples(trainer *t, xr_err *err)
{
    xr_metrics_clear(t->values);
    xray_status status = xr_samples_score(t->job.roles, &t->samples, t->prompts,
                                          add_reward_value, t, err);
    for (size_t i = 0; i < xr_metrics_count(t->values); i++)
        xr_metrics_put(t->job.metrics, xr_metrics_name(t->values, i),
                       xr_metrics_value(t->values, i));
    if (status == XRAY_OK && xr_metrics_failed(t->values))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    return status;
}

static xray_status write_samples_file(trainer *t, xr_err *err)
{
    const char *dir = t->job.run->ini.trainer.rollout_data_dir;
    uint64_t step = t->job.progress.step + 1;
    xr_str out = { 0 };
    if (!dir || !*dir)
        return XRAY_OK;
    for (uint32_t i = 0; i < t->samples.count; i++)
        xr_samples_append_line(&t->samples, t->prompts, i, step, "", &out);
    xray_status status = xr_samples_write(dir, step, &out, err);
    xr_str_free(&out);
    return status;
}

/* Samples one greedy response per prompt. Its score, including token scores, is
 * the baseline of the prompt. */
static xray_status sample_baselines(trainer *t, uint64_t step, xr_err *err)
{
    xr_roles *roles = t->job.roles;
    xr_samples *greedy = &t->greedy;
    double start = xr_now();
    xr_sampling how = {
        .n = 1,
        .max_tokens = (uint32_t)roles->run->ini.data.max_response_length,
        .temperature = 0,
        .top_p = 1,
        .seed = (uint64_t)roles->run->ini.run.seed,
        .step = step,
        .ignore_eos = roles->run->ini.rollout.ignore_eos,
    };
    if (!t->learner.baseline)
        return XRAY_OK;
    xray_status status = xr_samples_generate(roles, greedy, t->prompts,
                                             t->prompt_count, &how, err);
    if (status == XRAY_OK)
        status = xr_samples_score(roles, greedy, t->prompts, NULL, NULL, err);
    if (status != XRAY_OK)
        return status;
    for (uint32_t i = 0; i < t->prompt_count; i++) {
        double score = greedy->scores[i].score;
        for (uint32_t k = 0; k < greedy->sizes[i]; k++)
            score += (double)greedy->score_rows[i][k];
        t->learner.baseline[i] = (float)score;
    }
    xr_metrics_put(t->job.metrics, "timing_s/gen_max", xr_now() - start);
    xr_metrics_stats(t->job.metrics, "critic/baseline", t->learner.baseline,
                     t->prompt_count);
    return XRAY_OK;
}

/* Makes one rollout: takes prompts, samples responses, scores them and packs
 * them into the fresh batch. */
static xray_status make_rollout(trainer *t, uint64_t step, uint32_t round,
                                xr_err *err)
{
    xr_roles *roles = t->job.roles;
    const xr_run_config *ini = &roles->run->ini;
    double start = xr_now();
    xr_sampling how = {
        .n = (uint32_t)ini->rollout.n,
        .max_tokens = (uint32_t)ini->data.max_response_length,
        .temperature = ini->rollout.temperature,
        .top_p = ini->rollout.top_p,
        .min_p = ini->rollout.min_p,
        .top_k = ini->rollout.top_k,
        .seed = (uint64_t)ini->run.seed,
        .step = step + ((uint64_t)round << 40),
        .ignore_eos = ini->rollout.ignore_eos,
    };
    for (uint32_t i = 0; i < t->prompt_count; i++)
        t->prompts[i] =
            xr_dataset_row(t->job.train, xr_sampler_next(&t->job.sampler));
    xray_status status = xr_samples_generate(roles, &t->samples, t->prompts,
                                             t->prompt_count, &how, err);
    double now = xr_now();
    xr_metrics_put(t->job.metrics, "timing_s/gen", now - start);
    if (status != XRAY_OK)
        return status;
    if (t->samples.beside > 0)
        xr_metrics_put(t->job.metrics, "timing_s/reward_beside",
                       t->samples.beside);
    start = now;
    status = score_samples(t, err);
    xr_metrics_put(t->job.metrics, "timing_s/reward", xr_now() - start);
    if (status != XRAY_OK)
        return status;
    status = write_samples_file(t, err);
    if (status != XRAY_OK)
        return status;
    status = sample_baselines(t, step, err);
    if (status != XRAY_OK)
        return status;
    return xr_learner_pack(&t->learner, &t->samples, t->prompts, step, err);
}

/* Makes the batch of a step. With dynamic sampling, rollouts are repeated until
 * enough groups are worth training on. */
static xray_status make_step_batch(trainer *t, uint64_t step,
                                   const xr_rows **out, xr_err *err)
{
    uint32_t groups = 0;
    if (!t->filters_groups) {
        *out = &t->learner.fresh;
        return make_rollout(t, step, 0, err);
    }
    xr_rows_clear(&t->learner.rows);
    for (uint32_t round = 0; round < MAX_GENERATIONS; round++) {
        xray_status status = make_rollout(t, step, round, err);
        if (status == XRAY_OK)
            status =
                xr_learner_accept(&t->learner, t->prompt_count, &groups, err);
        if (status != XRAY_OK)
            return status;
        if (groups == t->prompt_count)
            break;
    }
    xr_metrics_put(t->job.metrics, "training/kept_groups", groups);
    *out = &t->learner.rows;
    return XRAY_OK;
}

/* Puts the metrics that every line has, even that of a skipped step. */
static void put_step_position(trainer *t, double seconds)
{
    xr_metrics *m = t->job.metrics;
    const xr_published *sync = &t->job.roles->published;
    xr_metrics_put(m, "timing_s/step", seconds);
    xr_metrics_put(m, "perf/time_per_step", seconds);
    xr_metrics_put(m, "timing_s/update_weights", sync->seconds);
    xr_metrics_put(m, "perf/update_weights_bytes", (double)sync->bytes);
    xr_metrics_put(m, "training/global_step", (double)t->job.progress.step);
    xr_metrics_put(m, "training/epoch", (double)t->job.sampler.epoch);
}

static void put_step_metrics(trainer *t, const xr_rows *rows, double seconds)
{
    xr_metrics *m = t->job.metrics;
    double tokens = (double)rows->batch.tokens;
    t->job.tokens_done += rows->batch.tokens;
    xr_learner_stats(&t->learner, rows, &t->samples);
    xr_metrics_put(m, "perf/total_num_tokens", tokens);
    xr_metrics_put(m, "perf/throughput", seconds > 0 ? tokens / seconds : 0);
    put_step_position(t, seconds);
}

static int is_due(int64_t every, uint64_t step)
{
    return every > 0 && step % (uint64_t)every == 0;
}

/* Ends a step with a NaN or Inf in it: returns XRAY_OK if the run continues
 * without the step. Updates of mini-batches before the bad one stay, so the
 * engine receives the weights. */
static xray_status leave_step_out(trainer *t, uint64_t step, xray_status status,
                                  xr_err *err)
{
    xr_roles *roles = t->job.roles;
    if (roles->nonfinite)
        (void)xr_fail_in(err, status, "step %llu", (unsigned long long)step);
    if (!xr_nonfinite_skips(roles, status))
        return status;
    xr_nonfinite_warn(roles, err);
    err->text[0] = '\0';
    t->job.progress.step = step;
    xr_metrics_put(t->job.metrics, "training/skipped_steps", 1);
    return xr_publish_later(roles, err);
}

/* Returns the learning rates of a step. The policy's schedule begins with its
 * first update. */
static xr_rates find_learning_rates(const xr_job *job, uint64_t step)
{
    const xr_run_config *ini = &job->run->ini;
    uint64_t first = (uint64_t)ini->trainer.critic_warmup;
    uint64_t at = step - (first > 1 ? first : 1);
    return (xr_rates){
        .actor = step < first
                     ? 0
                     : xr_schedule(&ini->actor_optim, at, job->total_steps),
        .critic = xr_schedule(&ini->critic_optim, step - 1, job->total_steps),
    };
}

static xray_status run_train_step(trainer *t, xr_err *err)
{
    xr_job *job = &t->job;
    const xr_run_config *ini = &job->run->ini;
    uint64_t step = job->progress.step + 1;
    const xr_rows *rows = NULL;
    xr_rates rates = find_learning_rates(job, step);
    double start = xr_now();
    job->roles->published.seconds = 0;
    job->roles->published.bytes = 0;
    xray_status status = make_step_batch(t, step, &rows, err);
    if (status == XRAY_OK)
        status = xr_learner_step(&t->learner, rows, step, &rates, err);
    if (status == XRAY_OK) {
        job->progress.step = step;
        put_step_metrics(t, rows, xr_now() - start);
        xr_trackers_show(&job->trackers, &t->samples, t->prompts);
        status = xr_learner_observe(&t->learner, err);
    } else {
        status = leave_step_out(t, step, status, err);
        put_step_position(t, xr_now() - start);
    }
    if (status != XRAY_OK)
        return status;
    int last = step == job->total_steps;
    if (is_due(ini->trainer.test_freq, step) ||
        (last && ini->trainer.val_after_train))
        status = xr_job_validate(job, err);
    if (status != XRAY_OK)
        return status;
    return xr_job_step_done(job, last || xr_job_stopped(job), err);
}

static xray_status open_trainer(trainer *t, const xr_run_args *args,
                                xr_run_result *out, xr_err *err)
{
    xray_status status =
        xr_job_open(&t->job, args, "train", &train_plan, out, err);
    if (status != XRAY_OK)
        return status;
    xr_roles *roles = t->job.roles;
    const xr_run_config *ini = &roles->run->ini;
    t->prompt_count = (uint32_t)ini->data.train_batch_size;
    t->filters_groups =
        XRAY_HAS(xray_algo_ops, xr_algo(roles->run), accept) ? 1 : 0;
    t->prompts = xr_calloc(t->prompt_count, sizeof(*t->prompts));
    t->values = xr_metrics_new();
    if (!t->prompts || !t->values)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for prompts");
    status = xr_learner_init(&t->learner, roles, t->job.metrics, err);
    if (status != XRAY_OK)
        return status;
    status = xr_samples_init(&t->samples, xr_step_rows(ini),
                             (uint64_t)ini->data.max_response_length, err);
    if (status != XRAY_OK || !t->learner.baseline)
        return status;
    return xr_samples_init(&t->greedy, t->prompt_count,
                           (uint64_t)ini->data.max_response_length, err);
}

static void close_trainer(trainer *t)
{
    xr_learner_free(&t->learner);
    xr_job_close(&t->job); /* rewards may read samples until they end */
    xr_samples_free(&t->samples);
    xr_samples_free(&t->greedy);
    xr_metrics_free(t->values);
    free(t->prompts);
}

static xray_status run_train_steps(trainer *t, xr_err *err)
{
    xr_job *job = &t->job;
    xray_status status = XRAY_OK;
    if (job->run->ini.trainer.val_only)
        return xr_job_validate(job, err);
    if (job->progress.step == 0 && job->run->ini.trainer.val_before_train) {
        status = xr_job_validate(job, err);
        if (status == XRAY_OK)
            status = xr_job_step_done(job, 0, err);
    }
    while (status == XRAY_OK && job->progress.step < job->total_steps &&
           !xr_job_stopped(job))
        status = run_train_step(t, err);
    /* A stop before the first step leaves a checkpoint to resume from, too. */
    if (status == XRAY_OK && xr_job_stopped(job))
        status = xr_job_step_done(job, 1, err);
    return status;
}

static xray_status attempt_training(const xr_run_args *args, xr_err *err,
                                    xr_run_result *out)
{
    trainer t = { .filters_groups = 0 };
    xray_status status = open_trainer(&t, args, out, err);
    if (status == XRAY_OK)
        status = run_train_steps(&t, err);
    if (t.job.kind)
        xr_job_finish(&t.job);
    close_trainer(&t);
    return status;
}

xray_status xr_train_run(const xr_run_args *args, xr_err *err,
                         xr_run_result *out)
{
    return xr_job_attempts(args, attempt_training, err, out);
}
