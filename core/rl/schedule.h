/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates per step: constant, linear or cosine decay after a linear
 * warm-up, by the formulas of verl and transformers.
 */
#ifndef XR_SCHEDULE_H
#define XR_SCHEDULE_H

#include "core/config/sections.h"

/* Returns the learning rate of step `step` (from 0) of `total`. During w
 * warm-up steps it is lr * step / w, hence 0 in step 0; w is lr_warmup_steps
 * or, if that is negative, lr_warmup_steps_ratio of `total`. After that, with
 * progress in [0, 1], cosine gives lr * max(min_ratio, cos(2 pi num_cycles
 * progress) (1 - min_ratio)/2 + (1 + min_ratio)/2), and linear falls from lr to
 * lr * min_ratio. */
double xr_schedule(const xr_optim_section *optim, uint64_t step,
                   uint64_t total);

#endif
