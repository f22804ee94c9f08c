/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, replaces and removes the folders of checkpoints under
 * default_local_dir; used by core/rl/checkpoint.c.
 */
#ifndef XR_CHECKPOINT_FOLDER_H
#define XR_CHECKPOINT_FOLDER_H

#include "core/run/run.h"

/* Writes ROOT/<prefix>global_step_N to `out`, at most XR_PATH_CAP bytes. */
xray_status xr_step_path(const char *root, const char *prefix, uint64_t step,
                         char *out, xr_err *err);
/* Renames the finished folder `from` to the checkpoint of `step` and names it
 * the newest. An existing checkpoint of that step stays complete until then. If
 * it belongs to another run, it is kept as global_step_N.1, .2 and so on. */
xray_status xr_step_install(const char *root, const char *from, uint64_t step,
                            xr_err *err);
/* Removes the run's oldest checkpoints beyond max_actor_ckpt_to_keep. Only
 * steps up to `newest` count: later ones are left from an abandoned
 * continuation of the run, and are overwritten when this run reaches them. */
xray_status xr_steps_prune(const xr_run *run, const char *run_id,
                           uint64_t newest, xr_err *err);

#endif
