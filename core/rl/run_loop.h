/* SPDX-License-Identifier: Apache-2.0
 *
 * Entry points of the three long-running jobs: train (reinforcement learning),
 * sft and eval.
 */
#ifndef XR_RUN_LOOP_H
#define XR_RUN_LOOP_H

#include <signal.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/config/config.h"
#include "core/run/run.h"

typedef struct xr_run_args {
    xr_config *config;       /* read but not yet decoded */
    const char *plugin_path; /* or NULL */
    /* Set by a signal handler, if not 0: finish the step, write a checkpoint
     * and end. To stop at once, the handler calls xr_cancel. */
    const volatile sig_atomic_t *stop;
    const char *resume_from; /* checkpoint to resume from, overriding [trainer];
                              * or NULL */
    uint32_t restarts;       /* so far, after the loss of a Workhorse */
    int accept_changes; /* resume even if the meaning of scores has changed */
    /* Faults of the configuration are added here. The job then returns
     * XRAY_E_CONFIG with an empty err. */
    xr_errors *errors;
} xr_run_args;

/* Figures of a finished job for the caller to print; NaN where a figure does
 * not exist. */
typedef struct xr_run_result {
    int interrupted;     /* 1: the stop flag ended the job */
    uint32_t restarts;   /* restarts after the loss of a Workhorse */
    uint64_t steps;      /* completed steps, including those before a resume */
    double score_before; /* greedy validation before the first step and after
                          * the last */
    double score_after;
    double seconds;
    double tokens_per_second; /* prompt and response tokens per second, over all
                               * steps */
    char checkpoint[XR_PATH_CAP]; /* path of the last one written, "" if none */
    xr_str report; /* lines for stdout; free with xr_str_free. eval: "name
                    * value"; train and sft: a plot, speed, "validation A -> B",
                    * checkpoint */
} xr_run_result;

xray_status xr_train_run(const xr_run_args *args, xr_err *err,
                         xr_run_result *out);
xray_status xr_sft_run(const xr_run_args *args, xr_err *err,
                       xr_run_result *out);
/* Runs validation only: greedy decoding, and sampled mean@n if [rollout.val] n
 * is set. */
xray_status xr_eval_run(const xr_run_args *args, xr_err *err,
                        xr_run_result *out);

#endif
