/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the cost of a call to an actor, and the rate at which bulk data
 * reaches it: bench-actor [calls [INTERFACE [HOST LAUNCH]]]. It prints the
 * round trip of a call with 1 KB in and out (p50, p99), the rate of calls while
 * 64 are in flight, and how fast 64 MB reach an actor in a region, written by
 * the caller and read by the actor, beside a memcpy of the same size. With an
 * interface the runtime is that of several hosts, and with another host the
 * rate of a stream of regions is printed; bench/hosts.sh compares it with that
 * of the network.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/actor/actor.h"

#define BULK ((uint64_t)64 << 20)
#define ROUNDS 20

/* ---- The actor ---------------------------------------------------------- */

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

static xray_status echo_bytes(void *self, const void *in, uint64_t size,
                              xr_str *out, xr_err *err)
{
    (void)self;
    (void)err;
    xr_str_append(out, in, (size_t)size);
    return XRAY_OK;
}

/* Uses four sums, so that memory is the limit. */
static uint64_t sum_words(const xray_region *region)
{
    const uint64_t *words = region->data;
    uint64_t sum[4] = { 0 };
    for (uint64_t i = 0; i < BULK / 8; i += 4)
        for (uint64_t k = 0; k < 4; k++)
            sum[k] += words[i + k];
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static xray_status read_region(void *self, xray_region *region,
                               uint64_t *out_sum, xr_err *err)
{
    (void)self;
    (void)err;
    *out_sum = sum_words(region);
    return XRAY_OK;
}

static xray_status accept_region(void *self, xray_region *region, xr_err *err)
{
    (void)self;
    (void)region;
    (void)err;
    return XRAY_OK;
}

static const xr_actor_method methods[] = {
    { "echo", "b -> b", XR_METHOD(echo_bytes) },
    { "read_all", "m -> U", XR_METHOD(read_region) },
    { "pass", "m ->", XR_METHOD(accept_region) },
};
static const xr_actor_class bench_class = { "bench", methods, 3,
                                            create_no_object, NULL };

/* ---- The caller --------------------------------------------------------- */

static double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static xray_status time_round_trips(xr_actor *actor, size_t calls, xr_err *err)
{
    char in[1024] = { 1 };
    xr_str out = { 0 };
    xray_status status = XRAY_OK;
    double *times = calloc(calls, sizeof(*times));
    if (!times)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t i = 0; i < calls + 200 && !status; i++) {
        double begin = read_clock();
        status = xr_actor_ask(actor, "echo", 10000, err, in,
                              (uint64_t)sizeof(in), &out);
        if (i >= 200)
            times[i - 200] = read_clock() - begin;
    }
    qsort(times, calls, sizeof(*times), compare_doubles);
    if (!status)
        (void)printf("call, 1 KB and back: p50 %.1f us, p99 %.1f us (%zu)\n",
                     1e6 * times[calls / 2], 1e6 * times[calls * 99 / 100],
                     calls);
    free(times);
    xr_str_free(&out);
    return status;
}

static xray_status time_pipelined_calls(xr_actor *actor, size_t calls,
                                        xr_err *err)
{
    enum { DEEP = 64 };
    char in[1024] = { 1 };
    xr_future *futures[DEEP] = { NULL };
    xray_status status = XRAY_OK;
    double begin = read_clock();
    for (size_t i = 0; i < calls + DEEP && !status; i++) {
        if (i >= DEEP)
            status = xr_future_wait(futures[i % DEEP], 10000, err);
        if (!status && i < calls)
            status = xr_actor_call(actor, "echo", err, &futures[i % DEEP], in,
                                   (uint64_t)sizeof(in), NULL);
    }
    if (!status)
        (void)printf("64 calls under way: %.0f k/s\n",
                     1e-3 * (double)calls / (read_clock() - begin));
    return status;
}

static double shorter_time(double a, double b)
{
    return a == 0 || b < a ? b : a;
}

static double gigabytes_per_second(double seconds)
{
    return (double)BULK * 1e-9 / seconds;
}

static xray_status time_bulk_data(xr_actors *actors, xr_actor *actor,
                                  xr_err *err)
{
    xray_region *region = NULL;
    xray_status status = XRAY_OK;
    double t[4] = { 0 };
    char *from = malloc((size_t)BULK);
    char *to = malloc((size_t)BULK);
    if (!from || !to)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    if (!status)
        memset(from, 1, (size_t)BULK);
    for (int i = 0; i < ROUNDS && !status; i++) {
        uint64_t sum = 0;
        double begin = read_clock();
        memcpy(to, from, (size_t)BULK);
        double copied = read_clock();
        /* A transfer is one write of the data and one call. */
        status = xr_region_get(actors, BULK, err, &region);
        if (status)
            break;
        memcpy(region->data, from, (size_t)BULK);
        status = xr_actor_ask(actor, "pass", 10000, err, region);
        double passed = read_clock();
        if (!status)
            status = xr_actor_ask(actor, "read_all", 10000, err, region, &sum);
        double read = read_clock();
        uint64_t here = sum_words(region);
        if (!status && sum != here)
            status = xr_fail(err, XRAY_E_BUG, "other bytes arrived");
        xr_region_put(actors, region);
        if (i < 2) /* the first rounds also fault the pages in */
            continue;
        t[0] = shorter_time(t[0], copied - begin);
        t[1] = shorter_time(t[1], passed - copied);
        t[2] = shorter_time(t[2], read - passed);
        t[3] = shorter_time(t[3], read_clock() - read);
    }
    if (!status)
        (void)printf("64 MB: memcpy %.1f GB/s; written to a region and passed "
                     "%.1f GB/s; read there %.1f GB/s, here %.1f GB/s "
                     "(best of %d)\n",
                     gigabytes_per_second(t[0]), gigabytes_per_second(t[1]),
                     gigabytes_per_second(t[2]), gigabytes_per_second(t[3]),
                     ROUNDS - 2);
    free(from);
    free(to);
    return status;
}

/* Regions follow each other, so that the network never waits for a call. */
static xray_status time_stream(xr_actors *actors, xr_actor *actor, xr_err *err)
{
    enum { DEEP = 3, COUNT = 96 };
    xray_region *regions[DEEP] = { NULL };
    xr_future *futures[DEEP] = { NULL };
    xray_status status = XRAY_OK;
    double begin = 0;
    for (int i = 0; i < DEEP && !status; i++) {
        status = xr_region_get(actors, BULK, err, &regions[i]);
        if (!status)
            memset(regions[i]->data, i, (size_t)BULK);
    }
    for (int i = 0; i < COUNT + 2 * DEEP && !status; i++) {
        if (i >= DEEP) /* after the first ones there are pages on both sides */
            status = xr_future_wait(futures[i % DEEP], 10000, err);
        if (i == 2 * DEEP - 1)
            begin = read_clock();
        if (!status && i < COUNT + DEEP)
            status = xr_actor_call(actor, "pass", err, &futures[i % DEEP],
                                   regions[i % DEEP]);
    }
    if (!status)
        (void)printf("a stream of regions: %.2f GB/s\n",
                     COUNT * gigabytes_per_second(read_clock() - begin));
    for (int i = 0; i < DEEP; i++)
        xr_region_put(actors, regions[i]);
    return status;
}

static xray_status run_benchmark(size_t calls, const xr_hosts_config *hosts,
                                 const char *host, xr_err *err)
{
    static const char *const argv[] = { "/proc/self/exe", "--actor", NULL };
    const xr_actors_setup setup = { .ops = hosts ? &xr_hosts_runtime : NULL,
                                    .config = hosts,
                                    .actors = 1 };
    const xr_actor_spawn_spec spec = { .class_ = &bench_class,
                                       .argv = argv,
                                       .name = "bench",
                                       .text = "",
                                       .count = 1,
                                       .host = host };
    xr_actors *actors = NULL;
    xr_actor *actor = NULL;
    double begin = read_clock();
    xray_status status = xr_actors_new(&setup, err, &actors);
    if (!status)
        status = xr_actor_spawn(actors, &spec, err, &actor);
    if (!status)
        status = xr_actor_ready(actor, 10000, err);
    if (!status)
        (void)printf("start of an actor: %.1f ms\n",
                     1e3 * (read_clock() - begin));
    if (!status)
        status = time_round_trips(actor, calls, err);
    if (!status)
        status = time_pipelined_calls(actor, calls, err);
    if (!status)
        status = time_bulk_data(actors, actor, err);
    if (!status && host) /* where memory is shared, no bytes move */
        status = time_stream(actors, actor, err);
    if (!status)
        status = xr_actor_stop(actor, 10000, err);
    xr_actors_free(actors);
    return status;
}

int main(int argc, char **argv)
{
    static const xr_actor_class *const classes[] = { &bench_class };
    const char *interface = argc > 2 ? argv[2] : "";
    const uint32_t tls = strncmp(interface, "tls:", 4) == 0;
    const xr_hosts_config hosts = { interface + (tls ? 4 : 0),
                                    argc > 4 ? argv[4] : NULL, tls, 0 };
    xr_err err = { "" };
    xray_status status;
    if (argc == 3 && !strcmp(argv[1], "--actor"))
        status = xr_actor_serve(classes, 1,
                                strncmp(argv[2], "tcp:", 4) == 0 ||
                                        strncmp(argv[2], "tls:", 4) == 0
                                    ? &xr_hosts_runtime
                                    : NULL,
                                NULL, argv[2], &err);
    else
        status = run_benchmark(argc > 1 ? strtoul(argv[1], NULL, 10) : 20000,
                               argc > 2 ? &hosts : NULL,
                               argc > 4 ? argv[3] : NULL, &err);
    if (status < 0)
        (void)fprintf(stderr, "bench-actor: %s\n", err.text);
    return status < 0;
}
