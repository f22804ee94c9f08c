/* SPDX-License-Identifier: Apache-2.0
 *
 * The global gradient norm, and what clipping makes of it.
 */
#ifndef XM_TRAIN_NORM_H
#define XM_TRAIN_NORM_H

#include "model/nn/decoder.h"

/* sqrt of the sum of squares of all gradients, bucket by bucket in order, so
 * its bits depend on the gradients alone. `scratch` [dev] holds 2 doubles. If a
 * gradient is NaN or Inf, or the sum overflows, the norm is not finite and
 * *out_bad is the first parameter (in layout order) to blame; else NULL. Waits
 * for the device. */
xray_status xm_grad_norm(const xm_grads *grads, double *scratch, xr_err *err,
                         double *out_norm, const xm_param **out_bad);

/* What gradients are multiplied by: max_norm / (norm + 1e-6) where that is
 * below 1 (torch's clip_grad_norm_), else 1. max_norm <= 0: no clipping. */
double xm_clip_coefficient(double norm, double max_norm);

#endif
