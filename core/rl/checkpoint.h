/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of a run: <default_local_dir>/global_step_N/, written beside it
 * and renamed when whole. In it: actor/ (a Hugging Face model folder with the
 * optimizer's state beside the weights), critic/ (the same of the critic, where
 * there is one), state.json (step, data position,
 * algorithm), run.ini (the resolved configuration), history.json (which run it
 * is of), manifest.json (sizes and checksums of all of it).
 * latest_checkpointed_iteration.txt names the newest and is written last.
 */
#ifndef XR_CHECKPOINT_H
#define XR_CHECKPOINT_H

#include "core/data/data.h"
#include "core/rl/history.h"
#include "core/roles/roles.h"

/* What a resume needs beside the models. */
typedef struct xr_progress {
    const char *kind; /* "train" or "sft"; static */
    uint64_t step;    /* steps done */
    uint64_t seed;
    uint64_t rows; /* of the data set: it must not change */
    uint64_t sampler_epoch;
    uint64_t sampler_position;
    double score_before; /* NaN: not measured */
    double score_now;    /* last validation; NaN */
} xr_progress;

/* Writes the checkpoint of progress->step and drops old ones of the same run
 * beyond `max_actor_ckpt_to_keep`; one of another run that stands in its place
 * is set aside. Its path goes to out_path (XR_PATH_CAP bytes). */
xray_status xr_checkpoint_save(xr_roles *roles, const xr_progress *progress,
                               const xr_history *history, char *out_path,
                               xr_err *err);

/* The checkpoint to go on from, by [trainer] resume_mode and resume_from_path:
 * its path in `out_path`, "" if there is none. Where checkpoints stand and the
 * file that names the newest is lost, it is the newest that is whole. */
xray_status xr_checkpoint_find(const xr_run *run, char *out_path, xr_err *err);
/* 1 if that file is lost: what was found is to be told with `out_file`, its
 * path (XR_PATH_CAP bytes). */
int xr_checkpoint_latest_is_lost(const xr_run *run, char *out_file);

/* Compares the checkpoint with its manifest. The error names the file that is
 * wrong, and the newest older checkpoint that is whole. */
xray_status xr_checkpoint_verify(const xr_run *run, const char *path,
                                 xr_err *err);

/* Removes what a killed run left half-done in default_local_dir: a checkpoint
 * that was being written, one that was being removed. */
xray_status xr_checkpoint_tidy(const xr_run *run, xr_err *err);

/* Reads state.json and checks it against `expect`: kind, seed, and rows unless
 * they are 0, not known yet. */
xray_status xr_checkpoint_read(const char *path, const xr_progress *expect,
                               xr_progress *out, xr_err *err);

/* Gives actor, critic and, unless it is another one now, the algorithm their
 * state back. */
xray_status xr_checkpoint_restore(xr_roles *roles, const char *path,
                                  int with_algo, xr_err *err);

#endif
