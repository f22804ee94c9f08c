/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning rates: constant, linear and cosine decay behind a linear warm-up
 * (verl's and transformers' formulas).
 */
#ifndef XR_SCHEDULE_H
#define XR_SCHEDULE_H

#include "core/config/sections.h"

/* The rate of step `step` (from 0) of `total`. During warm-up of w steps it is
 * lr * step / w; then, with progress in [0, 1], cosine gives max(min_ratio,
 * cos(2 pi num_cycles progress) (1 - min_ratio)/2 + (1 + min_ratio)/2), linear
 * falls to min_ratio. */
double xr_schedule(const xr_optim_section *optim, uint64_t step,
                   uint64_t total);

#endif
