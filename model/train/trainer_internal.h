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
xm_pack_limits xm_trainer_pack_limits(const xm_config *model,
                                      const xray_workload *load);

/* Sums the full gradients over ranks where that is still to be done.
 * [collective] */
xray_status xm_trainer_sum_full_grads(xm_trainer *self, xr_err *err);
/* The `done` of a decoder's watch: where the pass is the last one, sums the
 * bucket over ranks beside the computation. [collective] */
xray_status xm_trainer_sum_done_bucket(void *ctx, uint32_t bucket, xr_err *err);
xray_status xm_trainer_zero_grads(xm_trainer *self, xr_err *err);
/* Prepares the gradients for another micro-batch to be added. */
xray_status xm_trainer_resume_full_grads(xm_trainer *self, xr_err *err);
/* Tells the hooks that values changed. */
void xm_trainer_forget(xm_trainer *self);

/* Returns XRAY_E_STATE if one of the tags (bits) is offloaded. */
xray_status xm_trainer_check_resident(const xm_trainer *self, uint32_t tags,
                                      xr_err *err);
void xm_trainer_drop_copies(xm_trainer *self);

#endif
