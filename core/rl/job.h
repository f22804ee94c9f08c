/* SPDX-License-Identifier: Apache-2.0
 *
 * What xray train and xray sft share: roles, data, order, metrics,
 * checkpoints, validation.
 */
#ifndef XR_JOB_H
#define XR_JOB_H

#include "core/base/lock.h"
#include "core/monitor/monitor.h"
#include "core/rl/checkpoint.h"
#include "core/rl/run_loop.h"
#include "core/rl/validate.h"

#define XR_JOB_LOCKS 3 /* folders that a job writes */

typedef struct xr_job {
    const xr_run_args *args;
    const char *kind; /* "train" or "sft" */
    xr_run *run;
    xr_roles *roles; /* NULL until they are started */
    xr_dataset *train;
    xr_dataset *val;
    xr_sampler sampler;
    xr_validation validation;
    xr_metrics *metrics;
    xr_monitor *monitor;
    xr_progress progress;
    xr_history history;     /* of this run */
    char from[XR_PATH_CAP]; /* the checkpoint it goes on from; "": none */
    int fresh_algo;   /* the state in it is of another algorithm: unread */
    int other_scores; /* those of the checkpoint do not compare with its own */
    uint64_t total_steps;
    uint64_t first_step;  /* of the checkpoint it went on from */
    uint64_t saved_step;  /* of the last checkpoint; UINT64_MAX: none */
    uint64_t tokens_done; /* prompt and response tokens of this process */
    double started;
    int told_first; /* the first sampled token is in the metrics */
    double *curve;  /* [total_steps] watch[0] of this process's steps */
    uint64_t curve_count;
    const char *curve_name;
    xr_run_result *result;
    xr_lock locks[XR_JOB_LOCKS];
    int asked[XR_JOB_LOCKS]; /* the lock was taken, or need not be */
} xr_job;

/* Locks the folders that the job writes: those that are there, with `make` all
 * of them. The error names who has one. xr_job_close lets them go. */
xray_status xr_job_lock(xr_job *job, int make, xr_err *err);
void xr_job_unlock(xr_job *job);

/* Opens everything; `with`: XR_WITH_*; `data_kind`: XR_DATA_*; `batch`: rows of
 * the train set a step takes; `steps`: 0 for `epochs` epochs; `micro_tokens`:
 * of a micro-batch. Then a checkpoint is looked for and restored. */
typedef struct xr_job_plan {
    uint32_t with;
    int data_kind;
    int64_t (*batch)(const xr_run_config *ini);
    int64_t (*steps)(const xr_run_config *ini);
    int64_t (*micro_tokens)(const xr_run_config *ini);
    const char *const *watch; /* of the progress line */
} xr_job_plan;
xray_status xr_job_open(xr_job *job, const xr_run_args *args, const char *kind,
                        const xr_job_plan *plan, xr_run_result *result,
                        xr_err *err);
void xr_job_close(xr_job *job);

/* Runs a job; after the loss of a Workhorse it goes on from the last
 * checkpoint, at most [run] max_restarts times. A warning tells of each. */
typedef xray_status xr_job_attempt(const xr_run_args *args, xr_err *err,
                                   xr_run_result *out);
xray_status xr_job_attempts(const xr_run_args *args, xr_job_attempt *attempt,
                            xr_err *err, xr_run_result *out);

/* What a run that ended with `status` returns: one that was stopped, at once
 * even, is interrupted, not wrong. */
xray_status xr_job_final_status(const xr_run_args *args, xray_status status,
                                xr_run_result *out);

/* Validates, if there is a validation set; adds metrics; keeps the score. */
xray_status xr_job_validate(xr_job *job, xr_err *err);
/* Closes a step: metrics out, then a checkpoint where `save_freq` says so or
 * `force` is set. */
xray_status xr_job_step_done(xr_job *job, int force, xr_err *err);
/* 1: the stop flag is set. */
int xr_job_stopped(const xr_job *job);
/* Fills the result's figures and its report. */
void xr_job_finish(xr_job *job);

#endif
