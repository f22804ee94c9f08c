/* SPDX-License-Identifier: Apache-2.0
 *
 * Losses described by data, so that a description made in one process can be
 * carried out in others.
 */
#ifndef XR_LOSSES_H
#define XR_LOSSES_H

#include "core/roles/roles.h"

enum {
    XR_LOSS_POLICY, /* the algorithm's `loss` */
    XR_LOSS_CRITIC, /* the algorithm's `critic_loss` */
    XR_LOSS_SFT, /* mean negative log-likelihood; the context is one double, the
                  * number of tokens of the step, and sums[0] receives the sum
                  */
};

typedef struct xr_loss_spec {
    uint32_t kind;    /* XR_LOSS_* */
    uint32_t outputs; /* XRAY_OUTPUT_* that the loss reads */
    const void *context;
    uint64_t context_size;
    double *sums; /* [slots, names] sums of the loss's metrics */
    double *weights;
    uint64_t names;
    /* XR_RATIO_BUCKETS: so many of the names, the last ones, are no metrics of
     * the loss, but count the policy's ratios; 0: none. */
    uint32_t ratios;
    /* Of the mini-batch: each has a slot of sums of its own, so that the
     * replicas change no bit of them; 0: one slot. */
    uint32_t segments;
} xr_loss_spec;

static inline uint64_t xr_loss_slots(uint32_t segments)
{
    return segments ? segments : 1;
}

/* The state of a loss while the gradients of one model are computed. */
typedef struct xr_loss_run {
    xr_roles *roles;
    const char *who; /* name of the instance whose outputs the loss reads */
    const xr_loss_spec *spec;
    /* 1: after a bad value the loss goes on with zero gradients, because other
     * ranks wait in a collective; 0: the loss fails. */
    uint32_t continues;
    uint32_t reserved;
    xr_err fault; /* the first value that is not finite; "" if there is none */
    xray_status failed; /* status of a failed loss of the algorithm, with its
                         * sentence in `why` */
    xr_err why;
} xr_loss_run;

/* The callback xray_loss.fn; ctx is an xr_loss_run. */
xray_status xr_loss_call(void *ctx, const xray_loss_call *call);

/* Returns the result of forward_backward of `backend`. A failure of the loss is
 * reported as such, whatever the backend returned. */
xray_status xr_loss_result(const xr_loss_run *run, const xr_part *backend,
                           xray_status status, xr_err *err);

#endif
