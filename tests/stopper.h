/* SPDX-License-Identifier: Apache-2.0
 *
 * A host's service of calls that counts how often a call asks whether it shall
 * end, measures the processor time between two questions, and ends the call at
 * a chosen one.
 */
#ifndef TEST_STOPPER_H
#define TEST_STOPPER_H

#include <stdint.h>
#include <string.h>
#include <time.h>

#include <xray/services.h>

/* Seconds of the processor for which a long call may not ask. Instrumented
 * builds are many times slower. */
#if defined(__SANITIZE_THREAD__)
#define STOPPER_LIMIT 5.0
#elif defined(__SANITIZE_ADDRESS__)
#define STOPPER_LIMIT 2.0
#else
#define STOPPER_LIMIT 0.2
#endif

typedef struct stopper {
    xray_call_service service;
    uint32_t asked;
    uint32_t stop_at; /* the number of the question that is answered with yes,
                       * as all later ones are; 0: none */
    double last;      /* processor time of the last question */
    double longest;   /* between two questions, or one and the end */
} stopper;

/* Time of this thread, which other programs on the machine do not lengthen. */
static inline double stopper_clock(void)
{
    struct timespec t = { 0, 0 };
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline void stopper_mark(stopper *s)
{
    double now = stopper_clock();
    s->longest = now - s->last > s->longest ? now - s->last : s->longest;
    s->last = now;
}

static inline uint32_t stopper_ask(const xray_call_service *service)
{
    stopper *s = service->host_data;
    stopper_mark(s);
    s->asked++;
    return s->stop_at && s->asked >= s->stop_at;
}

static inline uint32_t stopper_control(const xray_call_service *service)
{
    (void)service;
    return 1;
}

/* Begins to count for one call. */
static inline void stopper_begin(stopper *s, uint32_t stop_at)
{
    *s = (stopper){ .service = { .header = XRAY_HEADER(xray_call_service),
                                 .host_data = s,
                                 .stopping = stopper_ask,
                                 .on_control = stopper_control },
                    .stop_at = stop_at,
                    .last = stopper_clock() };
}

#endif
