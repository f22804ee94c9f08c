/* SPDX-License-Identifier: Apache-2.0
 *
 * The global gradient norm, and what clipping makes of it.
 */
#ifndef XM_TRAIN_NORM_H
#define XM_TRAIN_NORM_H

#include "model/nn/decoder.h"

/* Gradients of the rank's shares of what is not frozen. Of each bucket, `data`
 * points at the first element of the share. */
typedef struct xm_grad_share {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float *const *data; /* [bucket_count] */
    double *scratch;    /* [dev] [2] */
} xm_grad_share;

/* Sum of squares bucket by bucket in order, so its bits depend on gradients and
 * cut alone; NaN if an element is NaN or Inf. Waits for the device. */
xray_status xm_grad_squares(const xm_grad_share *grads, xr_err *err,
                            double *out_sum);
/* The first parameter, in layout order, whose elements here have a sum of
 * squares that is not finite; NULL: none. */
xray_status xm_grad_first_bad(const xm_grad_share *grads, xr_err *err,
                              const xm_param **out_bad);

/* What gradients are multiplied by: max_norm / (norm + 1e-6) where that is
 * below 1 (torch's clip_grad_norm_), else 1. max_norm <= 0: no clipping. */
double xm_clip_coefficient(double norm, double max_norm);

#endif
