/* SPDX-License-Identifier: Apache-2.0
 *
 * The losses a backend is driven with, described by data, so that a description
 * made in one process is carried out in others.
 */
#ifndef XR_LOSSES_H
#define XR_LOSSES_H

#include "core/roles/roles.h"

enum {
    XR_LOSS_POLICY, /* the algorithm's `loss` */
    XR_LOSS_CRITIC, /* its `critic_loss` */
    XR_LOSS_SFT,    /* mean negative log-likelihood; the context is a double,
                     * the tokens of the step, and sums[0] takes the sum */
};

typedef struct xr_loss_spec {
    uint32_t kind;    /* XR_LOSS_* */
    uint32_t outputs; /* XRAY_HEAD_* the loss reads */
    const void *context;
    uint64_t context_size;
    double *sums; /* [names] */
    double *weights;
    uint64_t names;
} xr_loss_spec;

/* A loss while one model's gradients are taken. */
typedef struct xr_loss_run {
    xr_roles *roles;
    const char *who; /* the instance whose outputs are shown */
    const xr_loss_spec *spec;
    /* [rows] each row's number in the mini-batch, ascending; NULL: its place in
     * what the model was given. */
    const uint32_t *index;
    /* 1: a bad value is noted and stands for no gradient, because other ranks
     * wait in a collective; 0: the loss fails. */
    uint32_t goes_on;
    uint32_t reserved;
    xr_err fault;       /* the first value that is not finite; "" */
    xray_status failed; /* the algorithm's, and its sentence */
    xr_err why;
} xr_loss_run;

/* xray_loss.fn; ctx is an xr_loss_run. */
xray_status xr_loss_call(void *ctx, const xray_loss_call *call);

/* What forward_backward of `backend` came to: a loss that failed is told as its
 * own failure, whatever the backend made of it. */
xray_status xr_loss_result(const xr_loss_run *run, const xr_part *backend,
                           xray_status status, xr_err *err);

#endif
