/* SPDX-License-Identifier: Apache-2.0
 *
 * The order in which a stage of a pipeline runs the micro-batches of a call
 * forward and backward: one forward, one backward (1F1B). A stage first runs
 * as many forward as keep the stages after it busy, then one backward after
 * each one forward, and at last the rest backward. One stage alone thus runs
 * each micro-batch forward and backward before the next one.
 *
 * A stage may have several chunks of layers, through which a micro-batch goes
 * in turn, from the last stage back to the first one (Narayanan et al. 2021,
 * arXiv 2104.04473, section 2.2). It runs as many micro-batches as there are
 * stages through one chunk before the next chunk, and back through the chunks
 * in the reverse order.
 */
#ifndef XM_TRAIN_SCHEDULE_H
#define XM_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef struct xm_schedule {
    uint32_t stages;
    uint32_t stage;   /* this one's number */
    uint32_t chunks;  /* of each stage; one unless there are several stages */
    uint32_t batches; /* micro-batches of the call; with several chunks a
                       * multiple of `stages` */
    uint32_t forward; /* 1: the call has no backward passes */
} xm_schedule;

typedef struct xm_turn {
    uint32_t batch;
    uint32_t chunk;
    uint32_t backward; /* 0: forward */
} xm_turn;

/* Returns how many turns the stage runs forward before the first backward one
 * is as good as due, if the call has so many: it has that many in flight when
 * it begins another. */
static inline uint32_t xm_schedule_first_turns(const xm_schedule *s)
{
    uint32_t after = s->stages - s->stage - 1;
    return s->chunks > 1 ? 2 * after + (s->chunks - 1) * s->stages : after;
}
static inline uint32_t xm_schedule_warm_up(const xm_schedule *s)
{
    uint32_t all = s->batches * s->chunks;
    uint32_t first = xm_schedule_first_turns(s);
    return first < all ? first : all;
}

/* Returns the number of turns. */
static inline uint32_t xm_schedule_turns(const xm_schedule *s)
{
    return (s->forward ? 1 : 2) * s->batches * s->chunks;
}

/* Returns turn `at` of those of one direction. */
static inline xm_turn xm_schedule_turn_of(const xm_schedule *s, uint32_t at,
                                          uint32_t backward)
{
    uint32_t group = s->stages * s->chunks;
    uint32_t chunk = at % group / s->stages;
    if (s->chunks < 2)
        return (xm_turn){ at, 0, backward };
    return (xm_turn){ at / group * s->stages + at % s->stages,
                      backward ? s->chunks - 1 - chunk : chunk, backward };
}

/* Returns turn `at` of all. */
static inline xm_turn xm_schedule_turn(const xm_schedule *s, uint32_t at)
{
    uint32_t all = s->batches * s->chunks;
    uint32_t first = xm_schedule_warm_up(s);
    if (at < first || s->forward)
        return xm_schedule_turn_of(s, at, 0);
    if (at >= 2 * all - first)
        return xm_schedule_turn_of(s, at - all, 1);
    return xm_schedule_turn_of(
        s, (at - first) / 2 + ((at - first) % 2 ? 0 : first), (at - first) % 2);
}

/* Returns the most turns of any call that the stage has run forward and not yet
 * backward. In a call without backward passes the last of several stages with
 * chunks sends one on while it receives the next. */
static inline uint32_t xm_schedule_in_flight(const xm_schedule *s)
{
    if (s->forward)
        return s->chunks > 1 && s->stage + 1 == s->stages ? 2 : 1;
    return xm_schedule_first_turns(s) + 1;
}

#endif
