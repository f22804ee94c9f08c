/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes and restores checkpoints: <default_local_dir>/global_step_N/, written
 * under a temporary name and renamed once complete. A checkpoint holds actor/
 * (a Hugging Face model folder with the optimizer's state beside the weights),
 * critic/ (the same for the critic, if the run has one), state.json (step,
 * position in the data, state of the algorithm), run.ini (the resolved
 * configuration), history.json (the run that wrote it) and manifest.json (sizes
 * and checksums of all files). latest_checkpointed_iteration.txt names the
 * newest checkpoint and is written last.
 */
#ifndef XR_CHECKPOINT_H
#define XR_CHECKPOINT_H

#include "core/data/data.h"
#include "core/rl/history.h"
#include "core/roles/roles.h"

/* The state of a job that a resume needs besides the models. */
typedef struct xr_progress {
    const char *kind; /* "train" or "sft"; a string literal */
    uint64_t step;    /* completed steps */
    uint64_t seed;
    uint64_t rows; /* rows of the training set; must be the same at a resume */
    uint64_t sampler_epoch;
    uint64_t sampler_position;
    double score_before; /* first validation score; NaN: not measured */
    double score_now;    /* latest validation score; NaN: not measured */
} xr_progress;

/* Writes the checkpoint of progress->step and removes old checkpoints of the
 * same run beyond `max_actor_ckpt_to_keep`. A checkpoint of another run under
 * the same name is renamed, not removed. The path of the new checkpoint goes to
 * out_path (XR_PATH_CAP bytes). */
xray_status xr_checkpoint_save(xr_roles *roles, const xr_progress *progress,
                               const xr_history *history, char *out_path,
                               xr_err *err);

/* Finds the checkpoint to resume from, by [trainer] resume_mode and
 * resume_from_path, and writes its path to `out_path`, or "" if there is none.
 * If checkpoints exist but the file that names the newest is missing, the
 * newest complete one is chosen. */
xray_status xr_checkpoint_find(const xr_run *run, char *out_path, xr_err *err);
/* Returns 1 if that file is missing. The caller then warns the user, naming
 * `out_file`, the path of the missing file (XR_PATH_CAP bytes). */
int xr_checkpoint_latest_is_lost(const xr_run *run, char *out_file);

/* Compares the checkpoint with its manifest. The error names the damaged file
 * and the newest older checkpoint that is complete. */
xray_status xr_checkpoint_verify(const xr_run *run, const char *path,
                                 xr_err *err);

/* Removes what a killed run left unfinished in default_local_dir: checkpoints
 * in the middle of being written or removed. */
xray_status xr_checkpoint_tidy(const xr_run *run, xr_err *err);

/* Reads state.json and compares it with `expect`: kind, seed, and the number of
 * data rows unless expect->rows is 0 (not yet known). */
xray_status xr_checkpoint_read(const char *path, const xr_progress *expect,
                               xr_progress *out, xr_err *err);

/* Restores the state of actor and critic and, with `with_algo`, of the
 * algorithm. */
xray_status xr_checkpoint_restore(xr_roles *roles, const char *path,
                                  int with_algo, xr_err *err);

#endif
