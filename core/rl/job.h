/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts that xray train and xray sft have in common: roles, data and its
 * order, metrics, checkpoints and validation.
 */
#ifndef XR_JOB_H
#define XR_JOB_H

#include "core/base/lock.h"
#include "core/monitor/monitor.h"
#include "core/rl/checkpoint.h"
#include "core/rl/run_loop.h"
#include "core/rl/trackers.h"
#include "core/rl/validate.h"

#define XR_JOB_LOCKS 3 /* folders that a job writes to */

typedef struct xr_job {
    const xr_run_args *args;
    const char *kind; /* "train", "sft" or "eval" */
    xr_run *run;
    xr_roles *roles; /* NULL until the roles are started */
    xr_dataset *train;
    xr_dataset *val;
    xr_sampler sampler;
    xr_validation validation;
    xr_metrics *metrics;
    xr_monitor *monitor;
    xr_trackers trackers;
    xr_progress progress;
    xr_history history;             /* of this run */
    char resumed_from[XR_PATH_CAP]; /* path of the checkpoint that the job
                                     * resumes from;
                                     * "": none */
    int resets_algo;    /* 1: the checkpoint's algorithm state is of another
                         * algorithm and is not read */
    int scores_changed; /* 1: scores in the checkpoint do not compare with those
                         * of this job */
    uint64_t total_steps;
    uint64_t first_step;  /* step of the checkpoint that the job resumed from */
    uint64_t saved_step;  /* step of the last checkpoint; UINT64_MAX: none */
    uint64_t tokens_done; /* prompt and response tokens that this process
                           * trained on */
    double started;
    int first_token_reported; /* 1: the time of the first sampled token was
                               * reported */
    double *curve; /* [total_steps] watch[0] of the steps of this process; NULL:
                    * the job only validates */
    uint64_t curve_count;
    const char *curve_name;
    xr_run_result *result;
    xr_lock locks[XR_JOB_LOCKS];
    int lock_settled[XR_JOB_LOCKS]; /* 1: the lock was taken, or is not needed
                                     */
} xr_job;

/* Locks the folders that the job writes to: those that exist or, with `make`,
 * all of them, which are then created. The error names the process that holds a
 * lock. xr_job_close releases the locks. */
xray_status xr_job_lock(xr_job *job, int make, xr_err *err);
void xr_job_unlock(xr_job *job);

/* How a kind of job differs from the others. */
typedef struct xr_job_plan {
    uint32_t with; /* XR_WITH_* and XR_TRAINABLE */
    int data_kind; /* XR_DATA_* of the training set */
    /* Training rows per step. */
    int64_t (*batch)(const xr_run_config *ini);
    /* Steps of the job; 0: as many as total_epochs take. */
    int64_t (*steps)(const xr_run_config *ini);
    const char *const *watch; /* metrics to show; ends with NULL */
} xr_job_plan;

/* Opens everything that a job needs and restores its checkpoint, if any. */
xray_status xr_job_open(xr_job *job, const xr_run_args *args, const char *kind,
                        const xr_job_plan *plan, xr_run_result *result,
                        xr_err *err);
void xr_job_close(xr_job *job);

/* Cuts or sets aside what older processes wrote, and opens monitor and
 * trackers. */
xray_status xr_job_open_metrics(xr_job *job, const xr_job_plan *plan,
                                xr_err *err);
/* Writes the metrics of a step, if it has any, and forgets them. */
xray_status xr_job_write_metrics(xr_job *job, xr_err *err);
/* 1 if [trainer] logger lists the name. */
int xr_job_has_logger(const xr_trainer_section *trainer, const char *name);

/* Runs a job. After the loss of a Workhorse the job is run again from its last
 * checkpoint, at most [run] max_restarts times, with a warning for each
 * restart. */
typedef xray_status xr_job_attempt(const xr_run_args *args, xr_err *err,
                                   xr_run_result *out);
xray_status xr_job_attempts(const xr_run_args *args, xr_job_attempt *attempt,
                            xr_err *err, xr_run_result *out);

/* Notes in the result whether the user interrupted the job, and returns the
 * status of a job that ended with `status`: XRAY_E_CANCELED whatever failed, if
 * it was to stop at once, since calls then end in any order. */
xray_status xr_job_final_status(const xr_run_args *args, xray_status status,
                                xr_run_result *out);

/* Validates if there is a validation set: adds metrics and keeps the score in
 * job->progress. */
xray_status xr_job_validate(xr_job *job, xr_err *err);
/* Ends a step: writes its line of metrics, then a checkpoint if `save_freq`
 * asks for one or `force` is set. */
xray_status xr_job_step_done(xr_job *job, int force, xr_err *err);
/* Returns 1 if the stop flag is set. */
int xr_job_stopped(const xr_job *job);
/* Fills in the figures and the report of the result. */
void xr_job_finish(xr_job *job);

#endif
