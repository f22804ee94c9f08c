/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of the scheduler share.
 */
#ifndef XM_SCHED_INNER_H
#define XM_SCHED_INNER_H

#include "model/serve/sched.h"

#define XM_QUEUE_WAITING 1u   /* prompt not started */
#define XM_QUEUE_BRANCHING 2u /* prompt computed, samples wait for a slot */

typedef struct xm_queue {
    xm_request *head;
    xm_request *tail;
    uint32_t name;
    uint32_t count;
} xm_queue;

typedef struct xm_slot {
    xm_request *request; /* NULL: free */
    xm_sample *sample;   /* NULL: the prompt is being computed */
    const int32_t *feed; /* tokens still to compute */
    uint32_t feed_count;
    uint32_t position; /* of the first of them */
    uint32_t listed;   /* 1: in `busy` */
    uint32_t reserved;
} xm_slot;

struct xm_sched {
    xm_sched_limits limits;
    xm_pool pool;
    xm_queue waiting;
    xm_queue branching;
    xm_slot *slots;   /* [slots] */
    uint32_t *unused; /* stack of free slots */
    uint32_t *busy;   /* slots with tokens to compute, longest there first */
    uint32_t *drawn;  /* [slots] slot behind each entry of the round's `last` */
    xm_slot_copy *copies;
    xm_sample *out_head; /* finished, to be polled */
    xm_sample *out_tail;
    xm_request *polled; /* its memory was given out by the last poll */
    uint64_t version;
    uint64_t prompt_tokens;
    uint64_t generation_tokens;
    uint64_t saved_tokens;
    uint64_t steps;
    uint32_t unused_count;
    uint32_t busy_count;
    uint32_t drawn_count;
    uint32_t live; /* requests with samples that are not done */
    /* Next draw to give out, and next to get: entry of `drawn`, sample. */
    uint32_t give_at, give_sample;
    uint32_t take_at, take_sample;
    uint32_t given; /* draws given out and not yet answered */
};

void xm_queue_push(xm_queue *queue, xm_request *request);
void xm_queue_remove(xm_queue *queue, xm_request *request);

void xm_ready_push(xm_request *request, xm_sample *sample);
xm_sample *xm_ready_pop(xm_request *request);
void xm_ready_remove(xm_request *request, xm_sample *sample);

/* Puts a sample with a computed prompt into a slot that holds it. */
void xm_slot_start(xm_sched *sched, uint32_t slot, xm_sample *sample);
/* The sequence in it has ended: the request's next sample or nobody has it. */
void xm_slot_vacate(xm_sched *sched, uint32_t slot);
/* Drops the slots from `busy` that have nothing to compute. */
void xm_sched_compact(xm_sched *sched);
/* Hands a finished sample to poll. */
void xm_sample_publish(xm_sched *sched, xm_sample *sample, uint32_t finish);
/* Nothing more will come of the sample. */
void xm_sample_close(xm_sched *sched, xm_sample *sample);
/* Returns the request's memory when nobody can look at it any more. */
void xm_request_settle(xm_sched *sched, xm_request *request);

#endif
