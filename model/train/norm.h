/* SPDX-License-Identifier: Apache-2.0
 *
 * The global norm of the gradients, and the coefficient that clips them to a
 * maximum norm.
 */
#ifndef XM_TRAIN_NORM_H
#define XM_TRAIN_NORM_H

#include <xray/numerics.h>

#include "model/nn/decoder.h"

/* Gradients of the rank's shares of all trained parameters. For each bucket,
 * `data` points at the first element of the share. */
typedef struct xm_grad_share {
    const xray_device_ops *device;
    void *device_self;
    const xm_layout *layout;
    float *const *data;             /* [bucket_count] */
    uint64_t *squares;              /* [dev] [XRAY_SQUARES_WORDS] */
    const xray_call_service *calls; /* or NULL */
} xm_grad_share;

/* Sums the squares exactly, copies left out (xm_param.own): the words of ranks,
 * and of slices, may be added, and their sum depends on the gradients alone.
 * Waits for the device. */
xray_status xm_grad_squares(const xm_grad_share *grads, xr_err *err,
                            uint64_t out_squares[XRAY_SQUARES_WORDS]);
/* Finds the first parameter, in layout order, of whose elements on this rank
 * one is NaN or Inf; NULL if there is none. */
xray_status xm_grad_first_bad(const xm_grad_share *grads, xr_err *err,
                              const xm_param **out_bad);

/* The factor for the gradients: max_norm / (norm + 1e-6) where that is below 1
 * (as in torch's clip_grad_norm_), else 1. A max_norm of 0 or less means no
 * clipping. */
double xm_clip_coefficient(double norm, double max_norm);

#endif
