/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the calling thread on its way through a collective: it does not sleep,
 * it comes out of whatever it is stuck in when the group cannot go on, and
 * nobody else is in the communicator meanwhile.
 */
#include "tests/comm/faults.h"
#include "tests/nccl/parts.h"

#include "tests/testing.h"

#include <signal.h>
#include <time.h>

nccl_config parts_config = { .scratch = 65536,
                             .library = FAKE_NCCL,
                             .driver = FAKE_NCCL };

static _Thread_local unsigned sleeps;

int __real_nanosleep(const struct timespec *t, struct timespec *left);
__attribute__((visibility("default"))) int
__wrap_nanosleep(const struct timespec *t, struct timespec *left);

int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    sleeps++;
    return __real_nanosleep(t, left);
}

/* ---- the usual way ------------------------------------------------------- */

#define LOOKS 100
#define ROUNDS 20

static void post_all_kinds(ranks_env *e, float *a, float *b)
{
    uint32_t peer = 1 - e->rank;
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = a,
                                   .in_bytes = 400,
                                   .out = b,
                                   .out_bytes = 400,
                                   .to = peer,
                                   .from = peer };
    CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 100, XRAY_F32));
    CHECK_OK(e, e->comm->all_reduce_max(e->world, NULL, a, 100, XRAY_F32));
    CHECK_OK(e, e->comm->all_gather(e->world, NULL, a, b, 50, XRAY_F32));
    CHECK_OK(e, e->comm->broadcast(e->world, NULL, a, 400, 1));
    CHECK_OK(e, e->comm->exchange(e->world, NULL, &x));
    CHECK_OK(e, e->rank ? e->comm->send(e->world, NULL, a, 400, 0)
                        : e->comm->recv(e->world, NULL, b, 400, 1));
}

/* NCCL puts an operation on its stream in the background, and says for a while
 * that it is in progress. A rank goes on as soon as it has done so, without a
 * sleep; only where it takes long does the thread leave the core to others. */
static void post_without_sleep(ranks_env *e)
{
    float *a = ranks_alloc(e, 400);
    float *b = ranks_alloc(e, 400);
    CHECK_OK(e, ranks_barrier(e, e->world));
    fake_fail(FAKE_SLOW, LOOKS);
    unsigned asked = fake_asked();
    sleeps = 0;
    for (int i = 0; i < ROUNDS; i++)
        post_all_kinds(e, a, b);
    CHECK(e, sleeps == 0);
    CHECK(e, fake_asked() - asked >= ROUNDS * 6 * LOOKS);
    ranks_meet(e);
    fake_fail(FAKE_SLOW, 2500);
    CHECK_OK(e, e->comm->broadcast(e->world, NULL, a, 400, 0));
    CHECK(e, sleeps > 0);
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    ranks_meet(e);
    fake_fail(FAKE_SLOW, 0);
    ranks_meet(e);
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    ranks_meet(e);
}

/* ms, far below the timeout of 60 s; a loaded machine takes long for the looks
 * after which a thread counts as stuck. */
#define SOON 20000

/* ---- a thread that is stuck ---------------------------------------------- */

/* All ranks have completed a call, and rank 0 is about to be in `kind`. */
static char *data; /* of a broadcast */

static void begin_stuck(ranks_env *e, int kind, int code)
{
    data = ranks_alloc(e, 4096);
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    ranks_meet(e);
    if (e->rank == 0)
        fake_fail(kind, code);
}

static void end_stuck(ranks_env *e, xray_status want, const char *words)
{
    e->text[0] = '\0';
    CHECK(e, e->comm->broadcast(e->world, NULL, data, 4096, 0) == want);
    CHECK(e, ranks_said(e, words));
    CHECK(e, fake_aborted() == 1);
    for (int i = 0; i < FAKE_KINDS; i++)
        fake_fail(i, 0);
}

static xray_status broadcast_stuck(ranks_env *e)
{
    uint64_t start = ranks_ms();
    xray_status status = e->comm->broadcast(e->world, NULL, data, 4096, 0);
    CHECK(e, ranks_ms() - start < SOON);
    return status;
}

/* A function of NCCL that does not return although its communicator does not
 * block, the last of them within a group. */
static void stuck_late(ranks_env *e)
{
    begin_stuck(e, FAKE_STUCK, 1);
    if (e->rank == 0) {
        CHECK(e, broadcast_stuck(e) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.3 s"));
        CHECK(e, ranks_said(e, "broadcast of 4096 bytes from rank 0"));
        CHECK(e, ranks_said(e, "rank 1 is outside any collective"));
        CHECK(e, fake_interrupted() == 1);
        end_stuck(e, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
    }
    ranks_meet(e);
    if (e->rank)
        CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
    ranks_meet(e);
}

static void stuck_group(ranks_env *e)
{
    begin_stuck(e, FAKE_STUCK, 1);
    if (e->rank == 0) {
        CHECK(e, faults_exchange(e, 1, 1) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.3 s"));
        end_stuck(e, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
    }
    ranks_meet(e);
}

static void stuck_killed(ranks_env *e)
{
    begin_stuck(e, FAKE_STUCK, 1);
    if (e->rank == 1) {
        ranks_sleep_ms(100);
        (void)raise(SIGKILL);
    }
    CHECK(e, broadcast_stuck(e) == XRAY_E_PEER);
    CHECK(e, ranks_said(e, "a rank is dead"));
    end_stuck(e, XRAY_E_PEER, "a rank is dead");
}

static void stuck_canceled(ranks_env *e)
{
    begin_stuck(e, FAKE_STUCK, 1);
    if (e->rank == 0) {
        e->stop_ms = ranks_ms() + 100;
        CHECK(e, broadcast_stuck(e) == XRAY_E_CANCELED);
        CHECK(e, ranks_said(e, "the run is stopped"));
        end_stuck(e, XRAY_E_CANCELED, "the run is stopped");
    }
    ranks_meet(e);
}

/* A function of NCCL that takes its time is not stuck: the communicator is
 * aborted when the thread has left it. */
static void long_canceled(ranks_env *e)
{
    begin_stuck(e, FAKE_LONG, 300);
    if (e->rank == 0) {
        e->stop_ms = ranks_ms() + 20;
        CHECK(e, broadcast_stuck(e) == XRAY_E_CANCELED);
        CHECK(e, fake_interrupted() == 0);
        end_stuck(e, XRAY_E_CANCELED, "the run is stopped");
    }
    ranks_meet(e);
}

/* Operations that stay in progress: the thread looks again and again, and is
 * out of NCCL before the communicator is aborted. */
static void slow_late(ranks_env *e)
{
    begin_stuck(e, FAKE_SLOW, 2000000000);
    if (e->rank == 0) {
        CHECK(e, broadcast_stuck(e) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.3 s"));
        CHECK(e, fake_interrupted() == 0);
        end_stuck(e, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
    }
    ranks_meet(e);
}

/* A stream takes only so much work, and whoever adds to it waits, as in the
 * CUDA driver. Here nothing before it can complete. */
static void full_stream(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    xray_status status = XRAY_OK;
    begin_stuck(e, FAKE_QUEUE, 40);
    uint64_t start = ranks_ms();
    for (int i = 0; e->rank == 0 && status == XRAY_OK && i < 100; i++)
        status = e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32);
    if (e->rank == 0) {
        CHECK(e, status == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.3 s"));
        CHECK(e, ranks_said(e, "all_reduce of 4096 bytes"));
        CHECK(e, ranks_ms() - start < SOON);
        end_stuck(e, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
    }
    ranks_meet(e);
}

static _Atomic int held;

static void hold_stream(void *arg)
{
    (void)arg;
    while (atomic_load(&held))
        ranks_sleep_ms(1);
}

/* A function of NCCL that does not return while the caller's stream has yet to
 * come to the call: no event tells of the call, but the cause is the same. */
static void stuck_before(ranks_env *e)
{
    xray_stream *mine = NULL;
    CHECK_OK(e, e->dev->stream_create(e->dev_self, &mine));
    begin_stuck(e, FAKE_STUCK, 1);
    if (e->rank == 0) {
        atomic_store(&held, 1);
        fake_stream_call(mine, hold_stream, mine, 1);
        uint64_t start = ranks_ms();
        CHECK(e,
              e->comm->broadcast(e->world, mine, data, 4096, 0) == XRAY_E_PEER);
        CHECK(e, ranks_ms() - start < SOON);
        CHECK(e, ranks_said(e, "broadcast of 4096 bytes from rank 0 in group 0:"
                               " not all ranks arrived within 0.3 s"));
        end_stuck(e, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
        atomic_store(&held, 0);
    }
    ranks_meet(e);
    e->dev->stream_destroy(e->dev_self, mine);
}

static void *release_stream(void *arg)
{
    ranks_sleep_ms(50);
    atomic_store(&held, 0);
    return arg;
}

/* The first member never invites to a group, and the call before the invitation
 * is still on its way: its end is not taken for that of the invitation. */
static void group_behind(ranks_env *e)
{
    const uint32_t both[2] = { 0, 1 };
    float *a = ranks_alloc(e, 4096);
    xray_comm_group *g = NULL;
    xray_stream *mine = NULL;
    pthread_t id;
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK_OK(e, e->dev->stream_create(e->dev_self, &mine));
    if (e->rank == 1) {
        atomic_store(&held, 1);
        fake_stream_call(mine, hold_stream, mine, 1);
    }
    CHECK_OK(e, e->comm->all_reduce(e->world, mine, a, 1024, XRAY_F32));
    if (e->rank == 1) {
        e->stop_ms = ranks_ms() + 200;
        CHECK(e, pthread_create(&id, NULL, release_stream, NULL) == 0);
        CHECK(e, e->comm->group(e->comm_self, both, 2, &g) == XRAY_E_CANCELED);
        CHECK(e, ranks_said(e, "recv of "));
        CHECK(e, ranks_said(e, "the run is stopped"));
        (void)pthread_join(id, NULL);
    }
    ranks_meet(e);
    e->dev->stream_destroy(e->dev_self, mine);
}

/* A call that NCCL refuses is over, and those of other groups go on. */
static void refused_call(ranks_env *e)
{
    uint32_t both[2] = { 0, 1 };
    xray_comm_group *other = NULL;
    char *a = ranks_alloc(e, 100);
    CHECK_OK(e, e->comm->group(e->comm_self, both, 2, &other));
    CHECK_OK(e, ranks_barrier(e, other));
    ranks_meet(e);
    fake_fail(FAKE_CALL, 5);
    CHECK(e, e->comm->broadcast(e->world, NULL, a, 100, 1) == XRAY_E_PEER);
    fake_fail(FAKE_CALL, 0);
    ranks_meet(e);
    CHECK_OK(e, ranks_barrier(e, other));
    ranks_meet(e);
}

/* ---- the caller's stream ------------------------------------------------- */

/* The caller's stream fails before it comes to the call: its device reports an
 * error for the event that the call waits for, and the call never begins. */
static void ready_error(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    xray_stream *mine = NULL;
    CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    CHECK_OK(e, e->dev->stream_create(e->dev_self, &mine));
    ranks_meet(e);
    if (e->rank == 0) {
        atomic_store(&held, 1);
        fake_stream_call(mine, hold_stream, a, 1);
        fake_stream_fail(mine, 700);
        /* It fails already, or the next one does. */
        (void)e->comm->all_reduce(e->world, mine, a, 1024, XRAY_F32);
        uint64_t start = ranks_ms();
        while (fake_aborted() == 0 && ranks_ms() - start < SOON)
            ranks_sleep_ms(1); /* in which the watcher asks for the event */
        CHECK(e, fake_aborted() == 1);
        CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "all_reduce of 4096 bytes of f32 in group 0"));
        CHECK(e, ranks_said(e, "NCCL failed: an illegal memory access"));
        fake_stream_fail(NULL, 0);
        atomic_store(&held, 0);
    }
    ranks_meet(e);
    e->dev->stream_destroy(e->dev_self, mine);
}

const scenario ranks_scenarios[] = {
    { "without_sleep", post_without_sleep, 60000 },
    { "stuck_late", stuck_late, 300 },
    { "stuck_group", stuck_group, 300 },
    { "stuck_killed", stuck_killed, 60000 },
    { "stuck_canceled", stuck_canceled, 60000 },
    { "long_canceled", long_canceled, 60000 },
    { "slow_late", slow_late, 300 },
    { "stuck_before", stuck_before, 300 },
    { "full_stream", full_stream, 300 },
    { "group_behind", group_behind, 60000 },
    { "refused_call", refused_call, 60000 },
    { "ready_error", ready_error, 60000 },
    { NULL, NULL, 0 },
};

static void calls_do_not_sleep(void **state)
{
    (void)state;
    ranks_run("without_sleep", 2, NULL);
    if (SEES_THREADS_ONLY)
        ranks_run_threads("without_sleep", 2);
}

static void stuck_threads_are_freed(void **state)
{
    (void)state;
    ranks_run("stuck_late", 2, NULL);
    ranks_run("stuck_group", 2, NULL);
    ranks_run("stuck_killed", 2, ".k");
    ranks_run("stuck_canceled", 2, NULL);
    ranks_run("long_canceled", 2, NULL);
    ranks_run("slow_late", 2, NULL);
    ranks_run("stuck_before", 2, NULL);
    ranks_run("group_behind", 2, NULL);
    ranks_run("full_stream", 2, NULL);
}

static void failures_are_over(void **state)
{
    (void)state;
    ranks_run("refused_call", 2, NULL);
    ranks_run("ready_error", 2, NULL);
}

int main(int argc, char **argv)
{
    parts_config.wait = argc == 6 && strcmp(argv[2], "refused_call") == 0;
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_do_not_sleep),
        cmocka_unit_test(stuck_threads_are_freed),
        cmocka_unit_test(failures_are_over),
    };
    return cmocka_run_group_tests_name("nccl.calls", tests, NULL, NULL);
}
