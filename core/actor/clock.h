/* SPDX-License-Identifier: Apache-2.0
 *
 * Deadlines on the monotonic clock, for waits with a time limit.
 */
#ifndef XR_ACTOR_CLOCK_H
#define XR_ACTOR_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t xr_clock_ns(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

typedef struct xr_deadline {
    uint64_t from;
    int64_t ms; /* negative: no limit */
} xr_deadline;

static inline xr_deadline xr_deadline_in(int64_t ms)
{
    return (xr_deadline){ xr_clock_ns(), ms };
}

/* The milliseconds that are left: 0 once it is over, -1 without a limit. */
static inline int64_t xr_deadline_rest(const xr_deadline *deadline)
{
    if (deadline->ms < 0)
        return -1;
    int64_t rest =
        deadline->ms - (int64_t)((xr_clock_ns() - deadline->from) / 1000000u);
    return rest > 0 ? rest : 0;
}

#endif
