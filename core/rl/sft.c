/* SPDX-License-Identifier: Apache-2.0
 *
 * xray sft: supervised fine-tuning, that is maximum likelihood of given
 * responses. It ends early once greedy validation reaches [sft] stop_at.
 */
#include <math.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "core/rl/job.h"
#include "core/rl/schedule.h"
#include "core/rl/segments.h"
#include "core/roles/nonfinite.h"
#include "core/roles/publish.h"
#include "core/roles/role_calls.h"

typedef struct tuner {
    xr_job job;
    xr_rows rows;
    xr_views views;
    xr_segments segments;
    xr_rows ordered; /* rows by segments */
    uint32_t *order; /* [rows] */
    double tokens;   /* tokens in the loss of this step */
    double nll;      /* sum of their negative log-likelihoods */
    xr_err fault;    /* the first log-prob that is not finite */
} tuner;

static const char *const watched_metrics[] = { "train/loss", "train/grad_norm",
                                               NULL };

static int64_t sft_batch(const xr_run_config *ini)
{
    return ini->sft.train_batch_size;
}

static int64_t sft_steps(const xr_run_config *ini)
{
    return ini->sft.total_steps;
}

static xray_status fill_sft_batch(tuner *t, xr_err *err)
{
    const xr_sft_section *sft = &t->job.run->ini.sft;
    xr_rows_clear(&t->rows);
    t->tokens = 0;
    for (int64_t i = 0; i < sft->train_batch_size; i++) {
        const xr_row *row =
            xr_dataset_row(t->job.train, xr_sampler_next(&t->job.sampler));
        xr_row_in in = {
            .prompt = row->ids,
            .prompt_count = row->prompt_count,
            .response = row->ids + row->prompt_count,
            .response_count = row->id_count - row->prompt_count,
            .row_id = (uint64_t)i,
            .prompt_id = row->id,
            .group = (int32_t)i,
            .temperature = 1,
            .mask = row->mask,
            .train_on_prompt = sft->train_on_prompt,
        };
        xray_status status = xr_rows_add(&t->rows, &in, err);
        if (status != XRAY_OK)
            return status;
    }
    for (uint32_t i = 0; i < t->rows.batch.tokens; i++)
        t->tokens += (double)t->rows.loss_mask[i];
    return t->tokens > 0
               ? XRAY_OK
               : xr_fail(err, XRAY_E_NUMERIC,
                         "step %llu has no response token to learn from",
                         (unsigned long long)t->job.progress.step + 1);
}

/* Cuts the rows into micro-batches, by segments if there are any. */
static xray_status cut_batch(tuner *t, xr_err *err)
{
    const uint32_t range[] = { 0, t->rows.batch.rows };
    xr_cut cut = { .count = range[1],
                   .budget =
                       xr_run_workload(t->job.run, XRAY_ROLE_ACTOR).tokens };
    if (!t->segments.count)
        return xr_views_cut(&t->views, &t->rows, &cut, err);
    xr_rows_clear(&t->ordered);
    for (uint32_t i = 0; i < range[1]; i++)
        t->order[i] = i;
    xr_segments_order(&t->segments, &t->rows, range, 0, t->order);
    for (uint32_t i = 0; i < range[1]; i++) {
        xray_status status =
            xr_rows_copy(&t->ordered, &t->rows, t->order[i], (int32_t)i, err);
        if (status != XRAY_OK)
            return status;
    }
    cut.segment = t->segments.of;
    return xr_views_cut(&t->views, &t->ordered, &cut, err);
}

static xray_status update_on_batch(tuner *t, double lr, xr_err *err)
{
    xr_roles *roles = t->job.roles;
    xray_step_result result;
    xr_loss_spec spec = { .kind = XR_LOSS_SFT,
                          .outputs = XRAY_OUTPUT_LOGP,
                          .context = &t->tokens,
                          .context_size = sizeof(t->tokens),
                          .sums = &t->nll,
                          .names = 1 };
    int skipped = 0;
    t->nll = 0;
    xray_status status = cut_batch(t, err);
    if (status != XRAY_OK)
        return status;
    status = xr_segments_gradients(&t->segments, roles, XRAY_ROLE_ACTOR,
                                   &t->views, &spec, &t->fault, err);
    if (*t->fault.text) {
        xr_metrics_put(t->job.metrics, "train/skipped_updates", 1);
        return xr_nonfinite_fault(roles, roles->actor.part->instance, &t->fault,
                                  status, err);
    }
    if (status != XRAY_OK)
        return status;
    status = xr_role_step(roles, XRAY_ROLE_ACTOR, lr,
                          roles->run->ini.sft.grad_clip, &result, err);
    if (status == XRAY_OK)
        status = xr_nonfinite_update(roles, roles->actor.part->instance,
                                     &result, &skipped, err);
    xr_metrics_put(t->job.metrics, "train/lr", lr);
    if (skipped) {
        xr_metrics_put(t->job.metrics, "train/skipped_updates", 1);
        return status;
    }
    xr_metrics_put(t->job.metrics, "train/loss", t->nll / t->tokens);
    xr_metrics_put(t->job.metrics, "train/grad_norm", result.grad_norm);
    return status;
}

static xray_status update_and_publish(tuner *t, double lr, xr_err *err)
{
    xr_roles *roles = t->job.roles;
    xray_status status = fill_sft_batch(t, err);
    if (status != XRAY_OK)
        return status;
    status = update_on_batch(t, lr, err);
    if (status != XRAY_OK || !roles->engine.self)
        return status;
    return xr_publish_later(roles, err);
}

static xray_status run_sft_step(tuner *t, int *out_reached, xr_err *err)
{
    xr_job *job = &t->job;
    xr_roles *roles = job->roles;
    const xr_sft_section *sft = &roles->run->ini.sft;
    uint64_t step = job->progress.step + 1;
    double start = xr_now();
    double lr =
        xr_schedule(&roles->run->ini.sft_optim, step - 1, job->total_steps);
    xray_status status = update_and_publish(t, lr, err);
    if (status != XRAY_OK && roles->nonfinite)
        return xr_fail_in(err, status, "step %llu", (unsigned long long)step);
    if (status != XRAY_OK)
        return status;
    job->progress.step = step;
    job->tokens_done += t->rows.batch.tokens;
    xr_metrics_put(job->metrics, "timing_s/step", xr_now() - start);
    xr_metrics_put(job->metrics, "training/epoch", (double)job->sampler.epoch);
    int last = step == job->total_steps;
    int test = sft->test_freq > 0 && step % (uint64_t)sft->test_freq == 0;
    if (test || last) {
        status = xr_job_validate(job, err);
        *out_reached =
            sft->stop_at > 0 && job->progress.score_now >= sft->stop_at;
    }
    if (status == XRAY_OK)
        status = xr_job_step_done(
            job, last || *out_reached || xr_job_stopped(job), err);
    return status;
}

static xray_status open_tuner(tuner *t, const xr_run_args *args,
                              xr_run_result *out, xr_err *err)
{
    xr_job_plan plan = {
        .with =
            XR_WITH_TRAIN | XR_TRAINABLE | XR_WITH_TOKENIZER | XR_WITH_TRACKER,
        .data_kind = XR_DATA_SFT,
        .batch = sft_batch,
        .steps = sft_steps,
        .watch = watched_metrics,
    };
    /* Engine and rewards are needed for validation only. */
    if (xr_config_get(args->config, "data", "val_files") ||
        xr_config_get(args->config, "data", "val_split"))
        plan.with |= XR_WITH_INFER | XR_WITH_REWARD;
    xray_status status = xr_job_open(&t->job, args, "sft", &plan, out, err);
    if (status != XRAY_OK)
        return status;
    const xr_run_config *ini = &t->job.run->ini;
    uint64_t rows = (uint64_t)ini->sft.train_batch_size;
    uint64_t row =
        (uint64_t)(ini->data.max_prompt_length + ini->data.max_response_length);
    status = xr_rows_init(&t->rows, rows, rows * row, err);
    if (status == XRAY_OK)
        status = xr_views_init(&t->views, rows, err);
    if (status == XRAY_OK)
        status = xr_segments_init(
            &t->segments, (uint64_t)ini->run.layout_segments, rows, 1, err);
    if (status != XRAY_OK || !t->segments.count)
        return status;
    t->order = xr_calloc((size_t)rows, sizeof(*t->order));
    return t->order ? xr_rows_init(&t->ordered, rows, rows * row, err)
                    : xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu rows",
                              (unsigned long long)rows);
}

static xray_status run_sft_steps(tuner *t, xr_err *err)
{
    xr_job *job = &t->job;
    double stop_at = job->run->ini.sft.stop_at;
    int reached = stop_at > 0 && job->progress.score_now >= stop_at;
    xray_status status = XRAY_OK;
    if (job->run->ini.trainer.val_only)
        return xr_job_validate(job, err);
    while (status == XRAY_OK && !reached &&
           job->progress.step < job->total_steps && !xr_job_stopped(job))
        status = run_sft_step(t, &reached, err);
    if (status == XRAY_OK && xr_job_stopped(job))
        status = xr_job_step_done(job, 1, err);
    return status;
}

static xray_status attempt_sft(const xr_run_args *args, xr_err *err,
                               xr_run_result *out)
{
    tuner t = { .tokens = 0 };
    xray_status status = open_tuner(&t, args, out, err);
    if (status == XRAY_OK)
        status = run_sft_steps(&t, err);
    if (t.job.kind)
        xr_job_finish(&t.job);
    xr_rows_free(&t.rows);
    xr_rows_free(&t.ordered);
    xr_views_free(&t.views);
    xr_segments_free(&t.segments);
    free(t.order);
    xr_job_close(&t.job);
    return status;
}

xray_status xr_sft_run(const xr_run_args *args, xr_err *err, xr_run_result *out)
{
    return xr_job_attempts(args, attempt_sft, err, out);
}
