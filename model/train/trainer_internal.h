/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the functions that the files of a trainer share.
 */
#ifndef XM_TRAIN_TRAINER_INTERNAL_H
#define XM_TRAIN_TRAINER_INTERNAL_H

#include "model/train/trainer.h"

#define XM_TRAINER_TOKEN_ARRAYS 6u

uint32_t xm_trainer_space_flags(const xm_trainer_options *options,
                                const xm_config *model,
                                const xray_workload *load);
/* The micro-batches of a call between whose passes others run. */
uint32_t xm_trainer_flights(const xm_trainer_options *options,
                            const xm_config *model, const xray_workload *load);
/* The model, or the slice, that a stage is part of; a model that is none
 * itself. Its bits for sliding layers stay the stage's. */
xm_config xm_trainer_whole(const xm_config *model);
xm_pack_limits xm_trainer_pack_limits(const xm_config *model,
                                      const xray_workload *load);

/* 1: a chunk of a stage runs backward passes where blocks are trained from
 * layer `from` of the model on, and 1: it gives gradients to the one before it.
 * Pure.
 */
uint32_t xm_trainer_runs_back(const xm_config *model, uint32_t chunk,
                              uint32_t from);
uint32_t xm_trainer_sends_back(const xm_config *model, uint32_t chunk,
                               uint32_t from);

/* Refuses outputs that the instance does not have, and those without an array
 * in `out`, unless that is NULL. */
xray_status xm_trainer_check_outputs(const xm_trainer *self, uint32_t outputs,
                                     const xray_outputs *out, xr_err *err);
/* Runs all batches forward, or forward and backward. The outputs are those of
 * the last stage. [collective] */
xray_status xm_trainer_score(xm_trainer *self, const xray_batch *const *batches,
                             uint32_t count, uint32_t outputs,
                             const xray_outputs *out, xr_err *err);
xray_status xm_trainer_walk(xm_trainer *self, const xray_batch *const *batches,
                            uint32_t count, const xray_loss *loss, xr_err *err);

/* Sums the full gradients over ranks where that is still to be done.
 * [collective] */
xray_status xm_trainer_sum_full_grads(xm_trainer *self, xr_err *err);
/* The `done` of a decoder's watch: where the pass is the last one, sums the
 * bucket over ranks beside the computation. [collective] */
xray_status xm_trainer_sum_done_bucket(void *ctx, uint32_t bucket, xr_err *err);
/* After the last pass: sums the bucket of an embedding that two stages have,
 * whose gradient neither has before the other is there too. [collective] */
xray_status xm_trainer_sum_tied_bucket(xm_trainer *self, xr_err *err);
xray_status xm_trainer_zero_grads(xm_trainer *self, xr_err *err);
/* Ends a segment: its gradients take up the branches before them, and wait for
 * the one beside them, if there is one. */
xray_status xm_trainer_fold_full_grads(xm_trainer *self, xr_err *err);
/* Runs a pass without rows forward and backward, since other ranks' passes wait
 * for its collectives. */
xray_status xm_trainer_run_empty_batch(xm_trainer *self, xr_err *err);
/* Prepares the gradients for another micro-batch to be added. */
xray_status xm_trainer_resume_full_grads(xm_trainer *self, xr_err *err);
/* Allocates what the segments of the workload need; nothing without them. */
xray_status xm_folds_open(xm_trainer *self, xr_err *err);
void xm_folds_close(xm_trainer *self);
/* Refuses micro-batches that are not in the order of this rank's segments. */
xray_status xm_folds_check(const xm_trainer *self,
                           const xray_batch *const *batches, uint32_t count,
                           xr_err *err);
/* Ends all segments before that of the micro-batch; all for NULL. */
xray_status xm_folds_reach(xm_trainer *self, const xray_batch *batch,
                           xr_err *err);

/* Tells the hooks that values changed. */
void xm_trainer_forget(xm_trainer *self);

/* Returns XRAY_E_STATE if one of the tags (bits) is offloaded. */
xray_status xm_trainer_check_resident(const xm_trainer *self, uint32_t tags,
                                      xr_err *err);
void xm_trainer_drop_copies(xm_trainer *self);

#endif
