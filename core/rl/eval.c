/* SPDX-License-Identifier: Apache-2.0
 *
 * xray eval: validates a model without training it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file.h"
#include "core/plugin/cancel.h"
#include "core/rl/job.h"
#include "core/run/run_setup.h"

static xray_status open_and_validate(xr_job *job, xr_err *err)
{
    const xr_data_section *data = &job->run->ini.data;
    const xr_data_want want = { .part = XR_DATA_VAL,
                                .kind = XR_DATA_PROMPTS,
                                .tokenizer = job->run->tokenizer,
                                .chat = job->run->chat,
                                .calls = &xr_cancel_service };
    xray_status status = xr_dataset_open(data, &want, err, &job->val);
    if (status != XRAY_OK) {
        xr_run_locate(job->run, err);
        return status;
    }
    if (xr_dataset_note(job->val))
        (void)fprintf(stderr, "xray: %s\n", xr_dataset_note(job->val));
    status = xr_job_lock(job, 1, err);
    if (status != XRAY_OK)
        return status;
    status = xr_roles_start(job->run, err, &job->roles);
    if (status != XRAY_OK)
        return status;
    status = xr_validation_init(&job->validation, job->roles, job->val, err);
    if (status != XRAY_OK)
        return status;
    return xr_job_validate(job, err);
}

xray_status xr_eval_run(const xr_run_args *args, xr_err *err,
                        xr_run_result *out)
{
    xr_job job = { .args = args, .kind = "eval", .result = out };
    xray_status status = XRAY_E_CONFIG;
    *out = (xr_run_result){ .score_before = NAN, .score_after = NAN };
    job.progress.score_before = NAN;
    job.progress.score_now = NAN;
    job.started = xr_now();
    job.run = xr_run_new(args->config, args->plugin_path,
                         XR_WITH_INFER | XR_WITH_REWARD | XR_WITH_TOKENIZER,
                         args->errors);
    if (job.run)
        xr_run_say_found(job.run);
    job.metrics = job.run ? xr_metrics_new() : NULL;
    if (job.metrics)
        status = open_and_validate(&job, err);
    else if (job.run)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    if (status == XRAY_OK)
        xr_job_finish(&job);
    xr_job_close(&job);
    return xr_job_final_status(args, status, out);
}
