/* SPDX-License-Identifier: Apache-2.0
 *
 * The three jobs that run for long: train (reinforcement learning), sft, eval.
 */
#ifndef XR_RUN_LOOP_H
#define XR_RUN_LOOP_H

#include <signal.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/config/config.h"
#include "core/run/run.h"

typedef struct xr_run_args {
    xr_config *config;       /* read, not yet decoded */
    const char *plugin_path; /* or NULL */
    /* Set by a signal handler: 1 finishes the step and writes a checkpoint, 2
     * stops at once. */
    const volatile sig_atomic_t *stop;
    const char *resume_from; /* a checkpoint, whatever [trainer] says; or NULL
                              */
    int accept_changes;      /* go on although what scores mean has changed */
    /* Errors of the configuration go here; the job then returns
     * XRAY_E_CONFIG with an empty err. */
    xr_errors *errors;
} xr_run_args;

/* Figures a caller may print. NaN where there is none. */
typedef struct xr_run_result {
    int interrupted;     /* the stop flag ended it */
    uint32_t restarts;   /* after the loss of a Workhorse */
    uint64_t steps;      /* done in all, with those before a resume */
    double score_before; /* greedy validation before and after */
    double score_after;
    double seconds;
    double tokens_per_second;     /* prompt and response tokens of all steps */
    char checkpoint[XR_PATH_CAP]; /* last one written, "" if none */
    xr_str report; /* lines for stdout; xr_str_free. eval: "name value"; train
                    * and sft: a plot, speed, "validation A -> B", checkpoint */
} xr_run_result;

xray_status xr_train_run(const xr_run_args *args, xr_err *err,
                         xr_run_result *out);
xray_status xr_sft_run(const xr_run_args *args, xr_err *err,
                       xr_run_result *out);
/* Validation only: greedy, and sampled mean@n where [rollout.val] n asks. */
xray_status xr_eval_run(const xr_run_args *args, xr_err *err,
                        xr_run_result *out);

#endif
