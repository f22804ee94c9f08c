/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the fault scenarios that all comm plugins share.
 */
#include "tests/comm/faults.h"

#include "tests/testing.h"

#include <signal.h>

void faults_told(ranks_env *e, xray_status status, uint64_t start,
                 const char *words)
{
    CHECK(e, status == XRAY_E_PEER);
    CHECK(e, ranks_ms() - start < AT_ONCE);
    CHECK(e, ranks_said(e, words));
}

void faults_ended(ranks_env *e, xray_status status, uint64_t start,
                  const char *words, const char *more)
{
    faults_told(e, status, start, words);
    CHECK(e, ranks_said(e, more));
    e->text[0] = '\0';
    CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
    CHECK(e, ranks_said(e, words));
}

void faults_late(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank) {
        uint64_t start = ranks_ms();
        xray_status status =
            e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32);
        CHECK(e, e->size > 2 || ranks_ms() - start + 1 >= 300);
        CHECK(e, ranks_said(e, "all_reduce of 4096 bytes of f32 in group 0"));
        faults_ended(e, status, start, "not all ranks arrived within 0.3 s",
                     "rank 0 is outside any collective, after all_reduce of 4 "
                     "bytes");
    }
    ranks_meet(e);
    if (!e->rank) {
        uint64_t start = ranks_ms();
        faults_ended(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32),
                     start, "not all ranks arrived",
                     "gave up in all_reduce of 4096 bytes");
    }
    ranks_meet(e);
}

xray_status faults_exchange(ranks_env *e, uint32_t to, uint32_t from)
{
    char *in = ranks_alloc(e, 100);
    char *out = ranks_alloc(e, 100);
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = in,
                                   .in_bytes = 100,
                                   .out = out,
                                   .out_bytes = 60,
                                   .to = to,
                                   .from = from };
    return e->comm->exchange(e->world, NULL, &x);
}

/* Waits until the trace of rank 1 says that it waits. */
static const volatile xray_comm_trace *watch_rank_1(ranks_env *e)
{
    const volatile xray_comm_trace *t = &e->all->traces[1].own;
    uint64_t start = ranks_ms();
    while (t->state != 1 && ranks_ms() - start < AT_ONCE)
        ranks_sleep_ms(1);
    CHECK(e, t->state == 1);
    return t;
}

void faults_lonely_exchange(ranks_env *e)
{
    if (e->rank) {
        uint64_t start = ranks_ms();
        xray_status status = faults_exchange(e, 0, 0);
        faults_told(e, status, start, "not all ranks arrived within 0.3 s");
        CHECK(e, ranks_said(e, "exchange of 100 bytes to rank 0 and 60 bytes "
                               "from rank 0 in group 0: "));
        CHECK(e, ranks_said(e, "rank 0 is outside any collective"));
        e->text[0] = '\0';
        start = ranks_ms();
        CHECK(e, faults_exchange(e, 0, 0) == XRAY_E_PEER);
        CHECK(e, ranks_ms() - start < 200); /* it does not wait again */
    } else {
        const volatile xray_comm_trace *t = watch_rank_1(e);
        CHECK(e, t->call == XRAY_COMM_EXCHANGE && t->bytes == 160);
    }
    ranks_meet(e);
    if (!e->rank)
        faults_told(e, faults_exchange(e, 1, 1), ranks_ms(),
                    "not all ranks arrived");
    CHECK(e, e->rank || ranks_said(e, "rank 1 gave up in "));
    ranks_meet(e);
}

void faults_lonely_all_to_all(ranks_env *e)
{
    float *in = ranks_alloc(e, 16 * e->size);
    float *out = ranks_alloc(e, 16 * e->size);
    if (e->rank) {
        uint64_t start = ranks_ms();
        xray_status status =
            e->comm->all_to_all(e->world, NULL, in, out, 4, XRAY_F32);
        faults_ended(e, status, start, "not all ranks arrived within 0.3 s",
                     "all_to_all of 16 bytes in group 0: ");
    } else {
        const volatile xray_comm_trace *t = watch_rank_1(e);
        CHECK(e, t->call == XRAY_COMM_ALL_TO_ALL && t->bytes == 16);
    }
    ranks_meet(e);
}

void faults_traces(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    if (e->rank) {
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32));
        CHECK(e, e->all->traces[e->rank].own.state == 0);
        return;
    }
    const volatile xray_comm_trace *t = watch_rank_1(e);
    CHECK(e, t->calls == 1 && t->bytes == 4096);
    CHECK(e, t->call == XRAY_COMM_ALL_REDUCE && t->group == 0 && t->pid != 0);
    CHECK(e, t->since / 1000000u + AT_ONCE > ranks_ms());
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32));
}

void faults_killed(ranks_env *e, uint64_t count, int turn)
{
    char last[80];
    float *a = ranks_alloc(e, count * sizeof(*a));
    xray_status status = XRAY_OK;
    uint64_t start = 0;
    for (int i = 0; status == XRAY_OK; i++) {
        if (e->rank == 1 && i == turn)
            (void)raise(SIGKILL);
        start = ranks_ms();
        status = e->comm->all_reduce(e->world, NULL, a, count, XRAY_F32);
    }
    (void)snprintf(last, sizeof(last),
                   ") is dead, after all_reduce of %llu bytes",
                   (unsigned long long)(count * sizeof(*a)));
    CHECK(e, ranks_said(e, "rank 1 (pid "));
    faults_ended(e, status, start, "a rank is dead", last);
}

void faults_stopped(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank == 1)
        (void)raise(SIGSTOP);
    uint64_t start = ranks_ms();
    faults_ended(e, ranks_barrier(e, e->world), start, "not all ranks arrived",
                 ") is stopped, after all_reduce of 4 bytes");
}

static void *abort_after_delay(void *arg)
{
    ranks_env *e = arg;
    ranks_sleep_ms(100);
    e->comm->abort(e->comm_self);
    return NULL;
}

void faults_aborted(ranks_env *e)
{
    pthread_t id;
    if (e->rank == 1)
        CHECK(e, pthread_create(&id, NULL, abort_after_delay, e) == 0);
    if (e->rank == 2)
        ranks_meet(e); /* arrives when all is over */
    uint64_t start = ranks_ms();
    faults_ended(e, ranks_barrier(e, e->world), start,
                 "rank 1 was told to stop", "in group 0");
    if (e->rank == 1)
        (void)pthread_join(id, NULL);
    if (e->rank != 2)
        ranks_meet(e);
    ranks_meet(e);
}

void faults_arguments(ranks_env *e)
{
    float *a = ranks_alloc(e, 256);
    uint32_t both[2] = { 0, 1 };
    uint32_t wrong[2] = { 1, 0 };
    xray_comm_group *g;
    const xray_comm_ops *c = e->comm;
    CHECK(e, c->all_reduce(e->world, NULL, NULL, 4, XRAY_F32) == XRAY_E_ARG);
    CHECK(e,
          c->all_reduce(e->world, NULL, a, 4, XRAY_F16) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->all_reduce(e->world, NULL, a, UINT64_MAX / 2, XRAY_F32) ==
                 XRAY_E_RANGE);
    CHECK(e, c->all_gather(e->world, NULL, a, a, 4, 9) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->broadcast(e->world, NULL, a, 4, e->size) == XRAY_E_ARG);
    CHECK(e, c->send(e->world, NULL, NULL, 4, 1 - e->rank) == XRAY_E_ARG);
    CHECK(e, c->recv(e->world, NULL, NULL, 4, 1 - e->rank) == XRAY_E_ARG);
    CHECK(e, c->send(e->world, NULL, a, 4, e->rank) == XRAY_E_ARG);
    CHECK(e, c->recv(e->world, NULL, a, 4, 77) == XRAY_E_ARG);
    CHECK(e, faults_exchange(e, e->rank, 1 - e->rank) == XRAY_E_ARG);
    CHECK(e, ranks_said(e, "exchange: peer "));
    CHECK(e, faults_exchange(e, 1 - e->rank, 77) == XRAY_E_ARG);
    CHECK(e, c->all_to_all(e->world, NULL, a, a, 4, 9) == XRAY_E_UNSUPPORTED);
    CHECK(e, c->all_to_all(e->world, NULL, a, NULL, 4, 1) == XRAY_E_ARG);
    CHECK(e, c->group(e->comm_self, wrong, 2, &g) == XRAY_E_ARG);
    CHECK(e, c->group(e->comm_self, both, 0, &g) == XRAY_E_ARG);
    CHECK_OK(e, c->all_reduce(e->world, NULL, a, 4, XRAY_F32));
}

void faults_canceled(ranks_env *e)
{
    if (e->rank == 0)
        ranks_meet(e); /* arrives when all is over */
    uint64_t start = ranks_ms();
    e->stop_ms = e->rank == 1 ? start + 100 : 0;
    xray_status status = ranks_barrier(e, e->world);
    CHECK(e, status == XRAY_E_CANCELED);
    CHECK(e, ranks_said(e, "the run is stopped"));
    CHECK(e, ranks_ms() - start < 5000); /* not the timeout of 60 s */
    CHECK(e, ranks_barrier(e, e->world) == XRAY_E_CANCELED);
    if (e->rank != 0)
        ranks_meet(e);
    ranks_meet(e);
}

void faults_run_late(void)
{
    ranks_run("late", 2, NULL);
    ranks_run("late", 3, NULL);
    ranks_run("lonely_exchange", 2, NULL);
    ranks_run("lonely_all_to_all", 3, NULL);
    ranks_run("traces", 2, NULL);
    ranks_run("stopped", 3, ".s.");
    ranks_run("aborted", 3, NULL);
}
