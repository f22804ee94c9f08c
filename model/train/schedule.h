/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a stage of a pipeline runs the micro-batches of a call
 * forward and backward: one forward, one backward (1F1B). A stage first runs
 * as many forward as there are stages after it, so that those have work, then
 * one backward after each one forward, and at last the rest backward. One stage
 * alone thus runs each micro-batch forward and backward before the next one.
 */
#ifndef XM_TRAIN_SCHEDULE_H
#define XM_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef struct xm_schedule {
    uint32_t stages;
    uint32_t stage;   /* this one's number */
    uint32_t batches; /* micro-batches of the call */
} xm_schedule;

typedef struct xm_turn {
    uint32_t batch;
    uint32_t backward; /* 0: forward */
} xm_turn;

/* Returns how many turns the stage runs forward before the first backward one
 * is as good as due: it has that many in flight when it begins another. */
static inline uint32_t xm_schedule_warm_up(const xm_schedule *s)
{
    uint32_t after = s->stages - s->stage - 1;
    return after < s->batches ? after : s->batches;
}

/* Returns turn `at` of 2 * batches. */
static inline xm_turn xm_schedule_turn(const xm_schedule *s, uint32_t at)
{
    uint32_t first = xm_schedule_warm_up(s);
    if (at < first)
        return (xm_turn){ at, 0 };
    if (at >= 2 * s->batches - first)
        return (xm_turn){ at - s->batches, 1 };
    return (xm_turn){ (at - first) / 2 + ((at - first) % 2 ? 0 : first),
                      (at - first) % 2 };
}

/* Returns the most micro-batches of any call that the stage has run forward
 * and not yet backward. */
static inline uint32_t xm_schedule_in_flight(uint32_t stages, uint32_t stage)
{
    return stages - stage;
}

#endif
