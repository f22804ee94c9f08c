/* SPDX-License-Identifier: Apache-2.0
 *
 * Opens, runs and closes a job of training: the parts of xray train and xray
 * sft that do not depend on the loss.
 */
#include "core/rl/job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/plugin/cancel.h"
#include "core/rl/changes.h"
#include "core/rl/check.h"
#include "core/roles/nonfinite.h"
#include "core/roles/publish.h"
#include "core/roles/role_calls.h"
#include "core/run/run_setup.h"

static xray_status open_datasets(xr_job *job, const xr_job_plan *plan,
                                 xr_err *err)
{
    const xr_data_section *data = &job->run->ini.data;
    xr_data_want want = { .part = XR_DATA_TRAIN,
                          .kind = plan->data_kind,
                          .tokenizer = job->run->tokenizer,
                          .chat = job->run->chat,
                          .calls = &xr_cancel_service };
    xray_status status = xr_dataset_open(data, &want, err, &job->train);
    if (status != XRAY_OK)
        return status;
    status = xr_check_rows(job->run, job->train, err);
    if (status != XRAY_OK)
        return status;
    if (!xr_data_has_val(data))
        return XRAY_OK;
    want.part = XR_DATA_VAL;
    want.kind = XR_DATA_PROMPTS;
    status = xr_dataset_open(data, &want, err, &job->val);
    if (status == XRAY_OK)
        status =
            xr_validation_init(&job->validation, job->roles, job->val, err);
    return status;
}

static xray_status init_data_order(xr_job *job, const xr_job_plan *plan,
                                   xr_err *err)
{
    const xr_run_config *ini = &job->run->ini;
    uint64_t batch = (uint64_t)plan->batch(ini);
    uint64_t rows = xr_dataset_count(job->train);
    size_t parts = 0;
    const xr_share *part = xr_dataset_shares(job->train, &parts);
    uint64_t seed =
        (uint64_t)(ini->data.seed >= 0 ? ini->data.seed : ini->run.seed);
    xray_status status = xr_sampler_init(&job->sampler, part, parts, seed,
                                         ini->data.shuffle != 0, err);
    int64_t steps = plan->steps(ini);
    job->total_steps = steps > 0 ? (uint64_t)steps
                                 : (uint64_t)ini->trainer.total_epochs *
                                       xr_sampler_steps(&job->sampler, batch);
    job->curve_name = plan->watch[0];
    if (!ini->trainer.val_only)
        job->curve = xr_calloc((size_t)job->total_steps + 1, sizeof(double));
    if (status == XRAY_OK && !job->curve && !ini->trainer.val_only)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for %llu steps",
                         (unsigned long long)job->total_steps);
    job->progress = (xr_progress){ .kind = job->kind,
                                   .seed = (uint64_t)ini->run.seed,
                                   .rows = rows,
                                   .score_before = NAN,
                                   .score_now = NAN };
    return status;
}

static void announce_rows(const xr_job *job)
{
    char line[256];
    const xr_dataset *const sets[] = { job->train, job->val };
    for (int i = 0; i < 2; i++)
        if (sets[i] && xr_dataset_note(sets[i]))
            xr_monitor_say(job->monitor, xr_dataset_note(sets[i]));
    size_t filtered = xr_dataset_filtered(job->train);
    size_t cut = xr_dataset_truncated(job->train);
    size_t unwanted = xr_dataset_unwanted(job->train);
    if (unwanted) {
        (void)snprintf(line, sizeof(line),
                       "%zu rows left out by [data] filters", unwanted);
        xr_monitor_say(job->monitor, line);
    }
    if (filtered + cut == 0)
        return;
    (void)snprintf(line, sizeof(line),
                   "%zu of %zu prompts left out and %zu cut for their length",
                   filtered, filtered + xr_dataset_count(job->train), cut);
    xr_monitor_say(job->monitor, line);
}

/* Only a run that begins has a new value head; a checkpoint holds its own. An
 * algorithm needs one at most, so this is a single line. */
static void announce_new_head(const xr_job *job)
{
    xr_str text = { 0 };
    xr_run_report_new_heads(job->run, &text);
    if (text.size) {
        text.data[strcspn(text.data, "\n")] = '\0';
        xr_monitor_say(job->monitor, text.data);
    }
    xr_str_free(&text);
}

static xray_status resume_from_checkpoint(xr_job *job, xr_err *err)
{
    char line[XR_PATH_CAP + 64];
    if (!*job->resumed_from) {
        announce_new_head(job);
        return XRAY_OK;
    }
    xray_status status = xr_checkpoint_restore(job->roles, job->resumed_from,
                                               !job->resets_algo, err);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "resume from %s", job->resumed_from);
    job->sampler.epoch = job->progress.sampler_epoch;
    job->sampler.position = job->progress.sampler_position;
    job->saved_step = job->first_step = job->progress.step;
    (void)snprintf(job->result->checkpoint, XR_PATH_CAP, "%s",
                   job->resumed_from);
    (void)snprintf(line, sizeof(line), "resumed from %s", job->resumed_from);
    xr_monitor_say(job->monitor, line);
    return job->roles->engine.self ? xr_publish_later(job->roles, err)
                                   : XRAY_OK;
}

/* Reports the changes since the checkpoint, and refuses those that change the
 * meaning of scores unless the user accepts them. */
static xray_status judge_changes(xr_job *job, const xr_history *then,
                                 xr_err *err)
{
    xr_changes changes;
    xray_status status = xr_changes_find(job->run, job->resumed_from,
                                         &job->history, then, err, &changes);
    xr_errors *refused = &changes.meaning;
    /* A validation may be of other rows, sampling or rewards. */
    int accepts = job->args->accept_changes || job->run->ini.trainer.val_only;
    if (status == XRAY_OK && refused->count && !accepts) {
        xr_changes_refuse(job->run, job->resumed_from, &changes,
                          job->args->errors);
        status = XRAY_E_CONFIG;
    }
    for (size_t i = 0; status == XRAY_OK && i < changes.harmless.count; i++)
        (void)fprintf(stderr, "xray: changed: %s\n", changes.harmless.items[i]);
    for (size_t i = 0; status == XRAY_OK && i < refused->count; i++)
        (void)fprintf(stderr, "xray: warning: changed: %s\n",
                      refused->items[i]);
    job->resets_algo = changes.algorithm;
    job->scores_changed = refused->count > 0;
    xr_changes_free(&changes);
    return status;
}

/* Verifies the checkpoint and compares it with this run. */
static xray_status compare_with_checkpoint(xr_job *job, xr_err *err)
{
    xr_history then;
    xr_progress expect = { .kind = job->kind,
                           .seed = (uint64_t)job->run->ini.run.seed };
    xray_status status = xr_checkpoint_verify(job->run, job->resumed_from, err);
    if (status == XRAY_OK)
        status = xr_checkpoint_read(job->resumed_from, &expect, &expect, err);
    if (status == XRAY_OK)
        status = xr_history_read(job->resumed_from, err, &then);
    if (status != XRAY_OK)
        return xr_fail_in(err, status, "resume from %s", job->resumed_from);
    status = judge_changes(job, &then, err);
    job->history.has_lines = then.has_lines;
    job->history.lines = then.lines;
    /* Checkpoints of an older xray do not name their run, so this run keeps its
     * new id and removes none of them. */
    if (*then.run)
        memcpy(job->history.run, then.run, sizeof(then.run));
    else if (status == XRAY_OK)
        (void)fprintf(
            stderr,
            "xray: warning: %s was written by an older xray: neither the files "
            "it read nor metrics.jsonl can be compared with it\n",
            job->resumed_from);
    xr_history_free(&then);
    return status;
}

static xray_status choose_checkpoint(xr_job *job, xr_err *err)
{
    const xr_run *run = job->run;
    char lost[XR_PATH_CAP];
    xray_status status = xr_history_begin(err, &job->history);
    if (status != XRAY_OK)
        return status;
    status = xr_changes_add_inputs(run, &job->history, err);
    if (status != XRAY_OK)
        return status;
    status = xr_checkpoint_tidy(run, err);
    if (status != XRAY_OK)
        return status;
    status = xr_checkpoint_find(run, job->resumed_from, err);
    if (status != XRAY_OK || !*job->resumed_from)
        return status;
    if (xr_checkpoint_latest_is_lost(run, lost))
        (void)fprintf(stderr,
                      "xray: warning: %s is missing; the run resumes from the "
                      "newest complete checkpoint there, %s\n",
                      lost, job->resumed_from);
    return compare_with_checkpoint(job, err);
}

/* Starts everything that a checkpoint is restored into. */
static xray_status start_job(xr_job *job, const xr_job_plan *plan, xr_err *err)
{
    /* Folders that exist are locked before anything big is started. Missing
     * ones are created later, once the run is known to fit on the disk. */
    xray_status status = xr_job_lock(job, 0, err);
    if (status != XRAY_OK)
        return status;
    status = choose_checkpoint(job, err);
    if (status != XRAY_OK)
        return status;
    status = xr_roles_start(job->run, err, &job->roles);
    if (status != XRAY_OK)
        return status;
    return open_datasets(job, plan, err);
}

static xray_status begin_or_resume(xr_job *job, const xr_job_plan *plan,
                                   xr_err *err)
{
    xray_status status = init_data_order(job, plan, err);
    if (status != XRAY_OK)
        return status;
    status = xr_job_open_metrics(job, plan, err);
    if (status != XRAY_OK)
        return status;
    announce_rows(job);
    return resume_from_checkpoint(job, err);
}

xray_status xr_job_open(xr_job *job, const xr_run_args *args, const char *kind,
                        const xr_job_plan *plan, xr_run_result *result,
                        xr_err *err)
{
    *job = (xr_job){
        .args = args, .kind = kind, .saved_step = UINT64_MAX, .result = result
    };
    *result = (xr_run_result){ .score_before = NAN, .score_after = NAN };
    job->run =
        xr_run_new(args->config, args->plugin_path, plan->with, args->errors);
    if (!job->run)
        return XRAY_E_CONFIG;
    job->run->restarts = args->restarts;
    xr_run_say_found(job->run);
    if (args->resume_from) /* whatever resume_mode is */
        job->run->ini.trainer.resume_from_path = args->resume_from;
    job->metrics = xr_metrics_new();
    if (!job->metrics)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    xray_status status = start_job(job, plan, err);
    if (status != XRAY_OK)
        xr_run_locate(job->run, err);
    else
        status = begin_or_resume(job, plan, err);
    job->started = xr_now();
    return status;
}

static int64_t max_restarts(const xr_config *config)
{
    const char *text = xr_config_get(config, "run", "max_restarts");
    int64_t most = 0;
    return text && xr_parse_int(text, &most) == 0 ? most : 0;
}

xray_status xr_job_final_status(const xr_run_args *args, xray_status status,
                                xr_run_result *out)
{
    out->interrupted = args->stop && *args->stop > 0;
    return status != XRAY_OK && xr_canceled() ? XRAY_E_CANCELED : status;
}

xray_status xr_job_attempts(const xr_run_args *args, xr_job_attempt *attempt,
                            xr_err *err, xr_run_result *out)
{
    char path[XR_PATH_CAP];
    xr_run_args again = *args;
    uint32_t restarts = 0;
    for (;;) {
        xray_status status = attempt(&again, err, out);
        status = xr_job_final_status(args, status, out);
        out->restarts = restarts;
        if (status != XRAY_E_PEER || restarts >= max_restarts(args->config) ||
            (args->stop && *args->stop))
            return status;
        restarts++;
        (void)fprintf(stderr, "xray: warning: %s; restart %u of %lld from %s\n",
                      err->text, restarts,
                      (long long)max_restarts(args->config),
                      *out->checkpoint ? out->checkpoint : "the beginning");
        (void)snprintf(path, sizeof(path), "%s", out->checkpoint);
        again.restarts = restarts;
        again.resume_from = *path ? path : args->resume_from;
        err->text[0] = '\0';
        xr_str_free(&out->report);
    }
}

void xr_job_close(xr_job *job)
{
    xr_trackers_close(&job->trackers);
    xr_monitor_close(job->monitor);
    xr_metrics_free(job->metrics);
    xr_roles_free(job->roles); /* rewards may still read samples and rows */
    xr_validation_free(&job->validation);
    xr_sampler_free(&job->sampler);
    xr_dataset_close(job->val);
    xr_dataset_close(job->train);
    xr_run_free(job->run);
    free(job->curve);
    xr_history_free(&job->history);
    xr_job_unlock(job);
    *job = (xr_job){ .kind = NULL };
}

int xr_job_stopped(const xr_job *job)
{
    return job->args->stop && *job->args->stop > 0;
}

static xray_status save_checkpoint(xr_job *job, xr_err *err)
{
    double start = xr_now();
    job->progress.sampler_epoch = job->sampler.epoch;
    job->progress.sampler_position = job->sampler.position;
    xr_history *history = &job->history;
    const xr_trainer_section *trainer = &job->run->ini.trainer;
    history->has_lines = xr_job_has_logger(trainer, "jsonl");
    xray_status status = xr_monitor_mark(job->monitor, &history->lines, err);
    xr_trackers_flush(&job->trackers);
    if (status == XRAY_OK)
        status = xr_checkpoint_save(job->roles, &job->progress, history,
                                    job->result->checkpoint, err);
    if (status == XRAY_OK)
        job->saved_step = job->progress.step;
    xr_metrics_put(job->metrics, "timing_s/save_checkpoint", xr_now() - start);
    return status;
}

xray_status xr_job_step_done(xr_job *job, int force, xr_err *err)
{
    int64_t every = job->run->ini.trainer.save_freq;
    uint64_t step = job->progress.step;
    int due = every > 0 && step % (uint64_t)every == 0;
    xray_status status = XRAY_OK;
    /* The metrics of a saved step were written before its checkpoint. A second
     * line would make this run differ from an uninterrupted one. */
    if (job->saved_step == step) {
        xr_metrics_clear(job->metrics);
        xr_sample_texts_clear(&job->trackers.texts);
        return XRAY_OK;
    }
    /* Metrics are written first: after a kill between the two, the line belongs
     * to a step that the resumed run repeats, and is cut off then. */
    double value = xr_metrics_get(job->metrics, job->curve_name);
    if (!isnan(value) && job->curve_count < job->total_steps)
        job->curve[job->curve_count++] = value;
    status = xr_job_write_metrics(job, err);
    if (status == XRAY_OK && (due || force))
        status = save_checkpoint(job, err);
    return status;
}

/* Writes the summary that the user reads at the end. */
static void write_report(const xr_job *job, xr_run_result *r)
{
    if (job->curve_count > 1)
        xr_plot(job->curve, (size_t)job->curve_count, 64, 10, job->curve_name,
                &r->report);
    xr_str_printf(&r->report, "%llu steps in %.1f s, %.0f tokens/s",
                  (unsigned long long)(r->steps - job->first_step), r->seconds,
                  r->tokens_per_second);
    if (job->first_step)
        xr_str_printf(&r->report, "; %llu including those before the resume",
                      (unsigned long long)r->steps);
    xr_str_puts(&r->report, "\n");
    if (!isnan(r->score_after))
        xr_str_printf(&r->report, "validation %.4f -> %.4f\n", r->score_before,
                      r->score_after);
    if (*r->checkpoint)
        xr_str_printf(&r->report, "checkpoint %s\n", r->checkpoint);
}

/* The report of a job that only validates, which has no curve. */
static void list_metrics(const xr_job *job, xr_run_result *r)
{
    for (size_t i = 0; job->metrics && i < xr_metrics_count(job->metrics); i++)
        xr_str_printf(&r->report, "%s %.6g\n", xr_metrics_name(job->metrics, i),
                      xr_metrics_value(job->metrics, i));
}

void xr_job_finish(xr_job *job)
{
    xr_run_result *r = job->result;
    r->seconds = xr_now() - job->started;
    r->steps = job->progress.step;
    r->score_before = job->progress.score_before;
    r->score_after = job->progress.score_now;
    r->tokens_per_second =
        r->seconds > 0 ? (double)job->tokens_done / r->seconds : 0;
    if (job->curve)
        write_report(job, r);
    else
        list_metrics(job, r);
}
