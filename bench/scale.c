/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures what many actors cost the process that drives them:
 * bench-scale [ACTORS [INTERFACE]]. It prints how long all of them take to
 * start, the processor time of the driver while it waits for them for a few
 * seconds (their signs of life), and that of one call to each with its answer.
 * With an interface every actor has a connection over TCP and shares no memory,
 * as on another host. docs/scale.md rests on these figures.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/actor/actor.h"

#define IDLE_S 3
#define ROUNDS 50
#define READY_MS 120000

static xray_status create_no_object(const xr_actor_context *context,
                                    const char *text, xr_err *err,
                                    void **out_self)
{
    (void)context;
    (void)text;
    (void)err;
    *out_self = NULL;
    return XRAY_OK;
}

static xray_status answer_number(void *self, uint32_t in, uint32_t *out,
                                 xr_err *err)
{
    (void)self;
    (void)err;
    *out = in;
    return XRAY_OK;
}

static xray_status sleep_seconds(void *self, uint32_t seconds, xr_err *err)
{
    const struct timespec pause = { .tv_sec = (time_t)seconds };
    (void)self;
    (void)err;
    (void)nanosleep(&pause, NULL);
    return XRAY_OK;
}

static const xr_actor_method methods[] = {
    { "answer", "u -> u", XR_METHOD(answer_number) },
    { "sleep", "u ->", XR_METHOD(sleep_seconds) },
};
static const xr_actor_class bench_class = { "bench", methods, 2,
                                            create_no_object, NULL };

static double read_clock(clockid_t which)
{
    struct timespec t;
    (void)clock_gettime(which, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct many {
    xr_actors *actors;
    xr_actor **actor;   /* [count] */
    xr_future **future; /* [count] */
    uint32_t *answer;   /* [count] */
    uint32_t count;
} many;

static xray_status start_actors(many *m, xr_err *err)
{
    static const char *const argv[] = { "/proc/self/exe", "--actor", NULL };
    const double begin = read_clock(CLOCK_MONOTONIC);
    const double cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < m->count && !status; i++) {
        const xr_actor_spawn_spec spec = { .class_ = &bench_class,
                                           .argv = argv,
                                           .name = "bench",
                                           .text = "",
                                           .index = i,
                                           .count = m->count };
        status = xr_actor_spawn(m->actors, &spec, err, &m->actor[i]);
    }
    for (uint32_t i = 0; i < m->count && !status; i++)
        status = xr_actor_ready(m->actor[i], READY_MS, err);
    if (!status)
        (void)printf("start of %u actors: %.2f s, %.0f us of the driver each\n",
                     m->count, read_clock(CLOCK_MONOTONIC) - begin,
                     1e6 * (read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) /
                         m->count);
    return status;
}

/* The driver waits for one of them, as for the slowest rank of a call. */
static xray_status time_waiting(const many *m, xr_err *err)
{
    const double cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    const double begin = read_clock(CLOCK_MONOTONIC);
    xray_status status =
        xr_actor_ask(m->actor[0], "sleep", READY_MS, err, (uint32_t)IDLE_S);
    const double passed = read_clock(CLOCK_MONOTONIC) - begin;
    if (!status)
        (void)printf("waiting for them: %.2f %% of a core\n",
                     100 * (read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) /
                         passed);
    return status;
}

static xray_status call_all(const many *m, uint32_t round, xr_err *err)
{
    xray_status status = XRAY_OK;
    for (uint32_t i = 0; i < m->count && !status; i++)
        status = xr_actor_call(m->actor[i], "answer", err, &m->future[i], round,
                               &m->answer[i]);
    for (uint32_t i = 0; i < m->count && !status; i++)
        status = xr_future_wait(m->future[i], READY_MS, err);
    for (uint32_t i = 0; i < m->count && !status; i++)
        if (m->answer[i] != round)
            status = xr_fail(err, XRAY_E_BUG, "another number came back");
    return status;
}

static xray_status time_calls(const many *m, xr_err *err)
{
    xray_status status = call_all(m, 0, err);
    const double cpu = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    const double begin = read_clock(CLOCK_MONOTONIC);
    for (uint32_t i = 1; i <= ROUNDS && !status; i++)
        status = call_all(m, i, err);
    const double passed = read_clock(CLOCK_MONOTONIC) - begin;
    if (!status)
        (void)printf("a call to each: %.2f ms, %.1f us of the driver each\n",
                     1e3 * passed / ROUNDS,
                     1e6 * (read_clock(CLOCK_PROCESS_CPUTIME_ID) - cpu) /
                         ROUNDS / m->count);
    return status;
}

static xray_status measure_actors(many *m, const xr_hosts_config *hosts,
                                  xr_err *err)
{
    const xr_actors_setup setup = { .ops = hosts ? &xr_hosts_runtime : NULL,
                                    .config = hosts,
                                    .actors = m->count,
                                    .extra = 64 };
    m->actor = calloc(m->count, sizeof(*m->actor));
    m->future = calloc(m->count, sizeof(*m->future));
    m->answer = calloc(m->count, sizeof(*m->answer));
    xray_status status = m->actor && m->future && m->answer
                             ? xr_actors_new(&setup, err, &m->actors)
                             : xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (!status)
        status = start_actors(m, err);
    if (!status)
        status = time_waiting(m, err);
    if (!status)
        status = time_calls(m, err);
    xr_actors_free(m->actors);
    free(m->actor);
    free(m->future);
    free(m->answer);
    return status;
}

int main(int argc, char **argv)
{
    static const xr_actor_class *const classes[] = { &bench_class };
    const xr_hosts_config hosts = { argc > 2 ? argv[2] : NULL, NULL, 0, 1 };
    many m = { .count = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64 };
    xr_err err = { "" };
    xray_status status;
    if (argc == 3 && !strcmp(argv[1], "--actor"))
        status = xr_actor_serve(
            classes, 1,
            strncmp(argv[2], "tcp:", 4) == 0 ? &xr_hosts_runtime : NULL, NULL,
            argv[2], &err);
    else
        status = measure_actors(&m, argc > 2 ? &hosts : NULL, &err);
    if (status < 0)
        (void)fprintf(stderr, "bench-scale: %s\n", err.text);
    return status < 0;
}
