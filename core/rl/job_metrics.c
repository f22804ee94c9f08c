/* SPDX-License-Identifier: Apache-2.0
 *
 * The metrics of a job: where they continue after a resume, what a step has of
 * them, and the validations that are a part of them.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/process.h"
#include "core/base/system_error.h"
#include "core/rl/job.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_metrics.h"

int xr_job_has_logger(const xr_trainer_section *trainer, const char *name)
{
    for (uint64_t i = 0; i < trainer->logger.count; i++)
        if (strcmp(trainer->logger.items[i], name) == 0)
            return 1;
    return 0;
}

/* Metrics of an older run in the same folder are renamed, not lost. */
static xray_status set_metrics_aside(const char *file, xr_err *err)
{
    char old[XR_PATH_CAP + 16];
    if (!xr_path_exists(file))
        return XRAY_OK;
    for (int i = 1; i < 10000; i++) {
        (void)snprintf(old, sizeof(old), "%s.%d", file, i);
        if (xr_path_exists(old))
            continue;
        return rename(file, old) == 0
                   ? XRAY_OK
                   : xr_fail(err, XRAY_E_IO, "cannot rename %s to %s: %s", file,
                             old, XR_SYSTEM_ERROR(errno));
    }
    return xr_fail(err, XRAY_E_IO, "too many old files beside %s", file);
}

/* Decides where the metrics of a resumed run continue. *out_keep is the step up
 * to which lines are kept; -1 keeps all lines that are left. */
static xray_status resume_metrics(xr_job *job, const char *file,
                                  int64_t *out_keep, xr_err *err)
{
    xr_err why = { "" };
    *out_keep = (int64_t)job->progress.step;
    /* A checkpoint from another folder has its metrics in that folder. */
    if (!xr_path_is_in(job->resumed_from,
                       job->run->ini.trainer.default_local_dir))
        return XRAY_OK;
    if (!job->history.has_lines) {
        if (xr_path_exists(file))
            (void)fprintf(stderr,
                          "xray: warning: %s does not say what %s held; its "
                          "lines are kept as they are\n",
                          job->resumed_from, file);
        return XRAY_OK;
    }
    *out_keep = -1;
    xray_status status = xr_metrics_cut(file, &job->history.lines, &why);
    if (status != XRAY_E_CONFIG)
        return status == XRAY_OK ? status
                                 : xr_fail(err, status, "%s", why.text);
    if (job->args->accept_changes) {
        (void)fprintf(stderr, "xray: warning: %s; a new file is started\n",
                      why.text);
        return set_metrics_aside(file, err);
    }
    return xr_fail(err, XRAY_E_IO,
                   "resume from %s: %s; put the file back as it was, or begin "
                   "a new one and set this one aside with --accept-changes",
                   job->resumed_from, why.text);
}

/* A run that only validates writes no metrics, and has no trackers. */
static xray_status open_trackers(xr_job *job, xr_err *err)
{
    const xr_tracked_run about = { .kind = job->kind,
                                   .run = job->history.run,
                                   .step = job->progress.step,
                                   .resumed = *job->resumed_from != '\0' };
    xr_trackers_open(&job->trackers, job->run, &about, job->monitor);
    if (job->trackers.live && xr_metrics_keep_histograms(job->metrics))
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for histograms");
    return XRAY_OK;
}

xray_status xr_job_open_metrics(xr_job *job, const xr_job_plan *plan,
                                xr_err *err)
{
    const xr_trainer_section *trainer = &job->run->ini.trainer;
    char file[XR_PATH_CAP];
    int64_t keep = -1;
    /* A run that only validates leaves the metrics of others as they are. */
    int jsonl = xr_job_has_logger(trainer, "jsonl") && !trainer->val_only;
    xray_status status = xr_job_lock(job, 1, err);
    if (status == XRAY_OK)
        status = xr_path_join(trainer->default_local_dir, "metrics.jsonl", file,
                              sizeof(file), err);
    if (status == XRAY_OK && *job->resumed_from) {
        status = xr_checkpoint_read(job->resumed_from, &job->progress,
                                    &job->progress, err);
        if (status != XRAY_OK)
            (void)xr_fail_in(err, status, "resume from %s", job->resumed_from);
        if (job->scores_changed)
            job->progress.score_before = job->progress.score_now = NAN;
    }
    if (status == XRAY_OK && jsonl)
        status = *job->resumed_from ? resume_metrics(job, file, &keep, err)
                                    : set_metrics_aside(file, err);
    if (status == XRAY_OK)
        status = xr_monitor_open(jsonl ? file : NULL, keep,
                                 xr_job_has_logger(trainer, "console"),
                                 plan->watch, err, &job->monitor);
    if (status == XRAY_OK && !trainer->val_only)
        status = open_trackers(job, err);
    return status;
}

/* Shows the table of samples, which is empty unless it is asked for. */
static void show_samples(const xr_job *job)
{
    const xr_str *table = &job->validation.table;
    const char *end;
    for (const char *line = table->data; line && *line; line = end + 1) {
        end = strchr(line, '\n');
        if (!end)
            return;
        char text[4096];
        (void)snprintf(text, sizeof(text), "%.*s", (int)(end - line), line);
        if (job->monitor)
            xr_monitor_say(job->monitor, text);
        else
            (void)fprintf(stderr, "%s\n", text);
    }
}

xray_status xr_job_validate(xr_job *job, xr_err *err)
{
    double start = xr_now();
    if (!job->val)
        return XRAY_OK;
    double score = NAN;
    const xr_trainer_section *trainer = &job->run->ini.trainer;
    job->validation.step = job->progress.step;
    job->validation.shown = (uint64_t)trainer->log_val_generations;
    job->validation.prints = xr_job_has_logger(trainer, "console");
    job->validation.texts = job->trackers.live ? &job->trackers.texts : NULL;
    xray_status status =
        xr_validation_run(&job->validation, job->metrics, &score, err);
    if (status != XRAY_OK && job->roles->nonfinite)
        (void)xr_fail_in(err, status, "validation at step %llu",
                         (unsigned long long)job->progress.step);
    if (xr_nonfinite_skips(job->roles, status)) {
        xr_nonfinite_warn(job->roles, err);
        err->text[0] = '\0';
        xr_metrics_put(job->metrics, "training/skipped_validations", 1);
        return XRAY_OK;
    }
    if (status == XRAY_OK)
        job->progress.score_now = score;
    if (status == XRAY_OK && isnan(job->progress.score_before))
        job->progress.score_before = job->progress.score_now;
    xr_metrics_put(job->metrics, "timing_s/testing", xr_now() - start);
    if (status == XRAY_OK && job->monitor) /* xray eval has no monitor */
        xr_monitor_validation(job->monitor, job->progress.step,
                              job->total_steps, score);
    show_samples(job);
    return status;
}

/* Puts the seconds from the start of the process to the first sampled token
 * into the first line of metrics that follows it. */
static void put_first_token_time(xr_job *job)
{
    double at = job->roles->first_token;
    if (job->first_token_reported || at <= 0)
        return;
    job->first_token_reported = 1;
    double age = xr_process_age();
    if (!isnan(age))
        xr_metrics_put(job->metrics, "timing_s/first_token",
                       age - (xr_now() - at));
}

static void put_plugin_metric(void *ctx, const char *name, double value)
{
    xr_metrics_put(ctx, name, value);
}

xray_status xr_job_write_metrics(xr_job *job, xr_err *err)
{
    const uint64_t step = job->progress.step;
    xray_status status = XRAY_OK;
    if (xr_metrics_count(job->metrics)) {
        put_first_token_time(job);
        status =
            xr_plugin_metrics(job->roles, put_plugin_metric, job->metrics, err);
        if (status == XRAY_OK)
            status = xr_monitor_step(job->monitor, step, job->total_steps,
                                     job->metrics, err);
        if (status == XRAY_OK)
            xr_trackers_submit(&job->trackers, step, job->metrics);
    }
    xr_metrics_clear(job->metrics);
    xr_sample_texts_clear(&job->trackers.texts);
    return status;
}
