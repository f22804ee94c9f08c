/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs one rank of a scenario, however it was started.
 */
#include "tests/comm/ranks.h"

#include "tests/testing.h"

#include <time.h>

uint64_t ranks_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000u + (uint64_t)t.tv_nsec / 1000000u;
}

void ranks_sleep_ms(uint64_t ms)
{
    struct timespec t = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };
    (void)nanosleep(&t, NULL);
}

void ranks_die(const ranks_env *e, const char *file, int line, const char *text)
{
    (void)fprintf(stderr, "%s:%d: rank %u of %u: %s (last error: %s)\n", file,
                  line, e->rank, e->size, text, e->text);
    _exit(3);
}

int ranks_said(const ranks_env *e, const char *part)
{
    return strstr(e->text, part) != NULL;
}

/* ---- one rank ----------------------------------------------------------- */

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *msg)
{
    ranks_env *e = host->host_data;
    char inner[2048];
    (void)snprintf(inner, sizeof(inner), "%.2000s", e->text);
    (void)snprintf(e->text, sizeof(e->text), "%s: %.1000s%s%s", where, msg,
                   *inner ? " <- " : "", inner);
    return code;
}

void ranks_meet(ranks_env *e)
{
    uint32_t round = atomic_load(&e->all->round);
    if (atomic_fetch_add(&e->all->arrived, 1) + 1 == e->size) {
        atomic_store(&e->all->arrived, 0);
        atomic_fetch_add(&e->all->round, 1);
        return;
    }
    uint64_t start_rank = ranks_ms();
    while (atomic_load(&e->all->round) == round) {
        ranks_sleep_ms(1);
        CHECK(e, ranks_ms() - start_rank < RANKS_LIMIT_MS);
    }
}

static xray_status gather_offers(void *ctx, const void *mine, uint64_t size,
                                 void *all)
{
    ranks_env *e = ctx;
    CHECK(e, size <= sizeof(e->all->offers[0]));
    memcpy(e->all->offers[e->rank], mine, size);
    ranks_meet(e);
    for (uint32_t r = 0; r < e->size; r++)
        memcpy((char *)all + r * size, e->all->offers[r], size);
    ranks_meet(e);
    return XRAY_OK;
}

xray_comm_setup ranks_setup(ranks_env *e, uint64_t timeout_ms)
{
    xray_comm_setup setup = { .header = XRAY_HEADER(xray_comm_setup),
                              .host = &e->host,
                              .device = e->dev,
                              .device_self = e->dev_self,
                              .rank = e->rank,
                              .size = e->size,
                              .timeout_ms = timeout_ms,
                              .trace = &e->all->traces[e->rank].own,
                              .traces = &e->all->traces[0].own,
                              .trace_stride = sizeof(e->all->traces[0]),
                              .gather_ctx = e,
                              .gather = gather_offers };
    return setup;
}

static uint32_t ask_stopping(const xray_call_service *service)
{
    const ranks_env *e = service->host_data;
    return e->stop_ms && ranks_ms() >= e->stop_ms;
}

static const void *find_service(const xray_host *host, const char *id)
{
    const ranks_env *e = host->host_data;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? &e->calls : NULL;
}

static void open_rank(ranks_env *e, uint64_t timeout_ms)
{
    static const xray_host plain = { .header = XRAY_HEADER(xray_host),
                                     .fail = record_failure,
                                     .service = find_service };
    uint32_t ranks[MOST_RANKS];
    e->host = plain;
    e->host.host_data = e;
    e->calls = (xray_call_service){ .header = XRAY_HEADER(xray_call_service),
                                    .host_data = e,
                                    .stopping = ask_stopping };
    ranks_parts(e);
    CHECK_OK(e, e->dev->create(&e->host, NULL, 1, &e->dev_self));
    xray_comm_setup setup = ranks_setup(e, timeout_ms);
    CHECK_OK(e, e->comm->create(&setup, e->comm_config, &e->comm_self));
    for (uint32_t r = 0; r < e->size; r++)
        ranks[r] = r;
    CHECK_OK(e, e->comm->group(e->comm_self, ranks, e->size, &e->world));
}

void ranks_play(ranks_env *e, const char *name)
{
    const scenario *s = ranks_scenarios;
    size_t length = strcspn(name, ":");
    while (s->name && (strncmp(s->name, name, length) != 0 || s->name[length]))
        s++;
    CHECK(e, s->name);
    e->argument = name[length] ? strtoull(name + length + 1, NULL, 10) : 0;
    open_rank(e, s->timeout_ms);
    s->run(e);
}

void ranks_close(ranks_env *e)
{
    e->comm->destroy(e->comm_self);
    e->dev->destroy(e->dev_self);
}

void *ranks_alloc(ranks_env *e, uint64_t bytes)
{
    void *p = NULL;
    CHECK_OK(e,
             e->dev->alloc(e->dev_self, "test", XRAY_TAG_WORKSPACE, bytes, &p));
    return p;
}

xray_status ranks_barrier(ranks_env *e, xray_comm_group *group)
{
    if (!e->one)
        e->one = ranks_alloc(e, sizeof(*e->one));
    *e->one = 0;
    xray_status status = e->comm->all_reduce(group, NULL, e->one, 1, XRAY_F32);
    return status == XRAY_OK ? e->dev->sync(e->dev_self, NULL) : status;
}
