/* SPDX-License-Identifier: Apache-2.0
 *
 * What checkpoint.c needs of the folder that holds a run's checkpoints: names,
 * places, what is dropped.
 */
#ifndef XR_CHECKPOINT_FOLDER_H
#define XR_CHECKPOINT_FOLDER_H

#include "core/run/run.h"

/* ROOT/<prefix>global_step_N, at most XR_PATH_CAP bytes. */
xray_status xr_step_path(const char *root, const char *prefix, uint64_t step,
                         char *out, xr_err *err);
/* Puts a finished folder in the place of a step and names it the newest. One of
 * that step that is there stays whole until then; one of another run stays, as
 * global_step_N.1 and on. */
xray_status xr_step_install(const char *root, const char *from, uint64_t step,
                            xr_err *err);
/* Drops the run's oldest checkpoints beyond max_actor_ckpt_to_keep. Only steps
 * up to `newest` count: those behind it are of a run that was given up, and go
 * when this one gets there. */
xray_status xr_steps_prune(const xr_run *run, const char *run_id,
                           uint64_t newest, xr_err *err);

#endif
