/* SPDX-License-Identifier: Apache-2.0
 *
 * What a stage of a pipeline does in a call, in its order: the turns of the
 * schedule, and the messages between them.
 */
#ifndef XM_TRAIN_FLOW_H
#define XM_TRAIN_FLOW_H

#include "core/base/err.h"
#include "model/train/schedule.h"

#define XM_FLOW_RECEIVE 0u /* hidden states, from the stage before */
#define XM_FLOW_FORWARD 1u
#define XM_FLOW_SEND 2u         /* them, to the stage after */
#define XM_FLOW_RECEIVE_GRAD 3u /* their gradient, from the stage after */
#define XM_FLOW_BACKWARD 4u
#define XM_FLOW_SEND_GRAD 5u /* it, to the stage before */

typedef struct xm_flow_step {
    uint32_t what;
    uint32_t batch;
    uint32_t chunk;
    uint32_t flight; /* below xm_schedule_in_flight */
} xm_flow_step;

/* A message is done when it was received, so the stages agree on the order of
 * all messages of a call. Each stage works out the turns of all, one after
 * another as if each took the same time: before the turns of a time come first
 * the gradients that the time before gave, then the hidden states that the
 * turns of this time need, the last stage's first. */
typedef struct xm_flow {
    xm_flow_step *steps;
    uint32_t count;
    uint32_t cap;
    uint32_t *memory; /* [memory_cap] of xm_flow_make, kept for the next call */
    size_t memory_cap;
} xm_flow;

/* Writes the steps to *flow, whose memory is used again. XRAY_E_NOMEM. */
xray_status xm_flow_make(const xm_schedule *schedule, xr_err *err,
                         xm_flow *flow);
void xm_flow_free(xm_flow *flow);
/* Makes room for `count` numbers, and more than that if there was not enough.
 * Returns 0, or -1 when out of memory. */
int xm_flow_reserve(uint32_t **memory, size_t *cap, size_t count);

#endif
