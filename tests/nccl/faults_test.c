/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for ranks that are late, stopped, killed, gone or told to stop, and
 * for failures of NCCL, of CUDA or of their libraries, that each is one message
 * on every surviving rank, in time, and that nothing is left behind.
 */
#include "tests/comm/faults.h"
#include "tests/growth.h"
#include "tests/nccl/parts.h"

#include "tests/testing.h"

#include <signal.h>

nccl_config parts_config = {
    .scratch = 65536, .wait = 1, .library = FAKE_NCCL, .driver = FAKE_NCCL
};

static void arrive_late(ranks_env *e)
{
    faults_late(e);
    CHECK(e, e->rank == 0 || fake_aborted() == 1);
}

static void die_in_a_call(ranks_env *e)
{
    faults_killed(e, 100000, 5);
}

/* Calls that do not wait are reported by the next call; the stream becomes
 * free. */
static void async_killed(ranks_env *e)
{
    float *a = ranks_alloc(e, 400000);
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank != 1)
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 100000, XRAY_F32));
    ranks_meet(e);
    if (e->rank == 1)
        (void)raise(SIGKILL);
    uint64_t start = ranks_ms();
    for (int i = 0; i < 2; i++)
        (void)e->comm->all_reduce(e->world, NULL, a, 100000, XRAY_F32);
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    CHECK(e, ranks_ms() - start < AT_ONCE);
    faults_ended(e, ranks_barrier(e, e->world), start, "a rank is dead",
                 "all_reduce of 400000 bytes");
}

/* A failure that no call has reported yet is reported by a call of another
 * group. */
static void async_other_group(ranks_env *e)
{
    uint32_t ranks[3] = { 0, 1, 2 };
    xray_comm_group *again;
    float *a = ranks_alloc(e, 4096);
    CHECK_OK(e, e->comm->group(e->comm_self, ranks, 3, &again));
    CHECK_OK(e, ranks_barrier(e, again));
    if (e->rank != 2)
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32));
    ranks_meet(e);
    if (e->rank == 2)
        (void)raise(SIGKILL);
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    CHECK(e, ranks_barrier(e, again) == XRAY_E_PEER);
    CHECK(e, ranks_said(e, "all_reduce of 4096 bytes of f32 in group 0"));
    CHECK(e, ranks_said(e, "rank 2 (pid "));
}

/* And by one that needs no other rank. */
static void async_alone(ranks_env *e)
{
    xray_comm_group *alone = NULL;
    float *a = ranks_alloc(e, 4096);
    CHECK_OK(e, e->comm->group(e->comm_self, &e->rank, 1, &alone));
    CHECK_OK(e, ranks_barrier(e, alone));
    if (e->rank != 2)
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32));
    ranks_meet(e);
    if (e->rank == 2)
        (void)raise(SIGKILL);
    CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
    CHECK(e, ranks_barrier(e, alone) == XRAY_E_PEER);
    CHECK(e, ranks_said(e, "all_reduce of 4096 bytes of f32 in group 0"));
    CHECK_OK(e, ranks_barrier(e, alone)); /* it is told once */
}

/* A call that did not wait keeps its stream busy until the host stops it. */
static void async_canceled(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank)
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, 1024, XRAY_F32));
    ranks_meet(e);
    if (e->rank) {
        uint64_t start = ranks_ms();
        e->stop_ms = start + 100;
        CHECK_OK(e, e->dev->sync(e->dev_self, NULL));
        CHECK(e, ranks_ms() - start < AT_ONCE);
        CHECK(e, ranks_barrier(e, e->world) == XRAY_E_CANCELED);
        CHECK(e, ranks_said(e, "all_reduce of 4096 bytes of f32 in group 0"));
    }
    ranks_meet(e);
}

/* A rank that waits for the first member of a new group, and the end of an
 * instance whose peer has given up. */
static void cancel_elsewhere(ranks_env *e)
{
    uint32_t ranks[2] = { 0, 1 };
    xray_comm_setup setup = ranks_setup(e, 60000);
    xray_comm_group *g = NULL;
    void *self = NULL;
    unsigned aborted = fake_aborted();
    CHECK_OK(e, e->comm->create(&setup, &parts_config, &self));
    CHECK_OK(e, e->comm->group(self, ranks, 2, &g));
    e->stop_ms = ranks_ms() + 100;
    if (e->rank)
        CHECK(e, e->comm->group(self, ranks, 2, &g) == XRAY_E_CANCELED);
    ranks_meet(e);
    e->stop_ms = 1;
    e->comm->destroy(
        self); /* does not wait for the peer to complete its part */
    CHECK(e, fake_live() == 1 && fake_aborted() == aborted + 1);
    ranks_meet(e);
}

static void wait_for_rank_that_left(ranks_env *e)
{
    if (e->rank == 1)
        return;
    uint64_t start = ranks_ms();
    faults_ended(e, ranks_barrier(e, e->world), start,
                 "a rank has ended its part", "rank 1 has ended its part");
}

/* ---- failures of NCCL and CUDA
 * ---------------------------------------------- */

/* Rank 0 waits while NCCL notices that the network is gone. */
static void async_error(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(
        e); /* rank 1 may still be in the barrier when rank 0 has left it */
    if (e->rank == 0) {
        fake_fail(FAKE_ASYNC, 6);
        uint64_t start = ranks_ms();
        faults_ended(
            e, e->comm->broadcast(e->world, NULL, a, 4096, 1), start,
            "NCCL failed: ",
            "remote process exited or there was a network error: socket "
            "closed by peer");
    }
    ranks_meet(e);
    if (e->rank)
        faults_ended(e, e->comm->broadcast(e->world, NULL, a, 4096, 1),
                     ranks_ms(), "rank 0 failed in the call",
                     "broadcast of 4096 bytes from rank 1 in group 0");
    ranks_meet(e);
}

static void call_error(ranks_env *e)
{
    char *a = ranks_alloc(e, 100);
    if (e->rank == 1)
        fake_fail(FAKE_CALL, 5);
    uint64_t start = ranks_ms();
    faults_ended(e, e->comm->broadcast(e->world, NULL, a, 100, 1), start,
                 e->rank == 1 ? "NCCL failed: ncclBroadcast: invalid usage"
                              : "rank 1 failed in the call",
                 "in group 0");
    fake_fail(FAKE_CALL, 0);
    ranks_meet(e);
}

/* One message of several that NCCL takes together. */
static void message_error(ranks_env *e)
{
    const uint32_t other = 1 - e->rank;
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = ranks_alloc(e, 100),
                                   .in_bytes = 100,
                                   .out = ranks_alloc(e, 100),
                                   .out_bytes = 100,
                                   .to = other,
                                   .from = other };
    if (e->rank == 1)
        fake_fail(FAKE_SEND, 5);
    uint64_t start = ranks_ms();
    faults_ended(e, e->comm->exchange(e->world, NULL, &x), start,
                 e->rank == 1 ? "NCCL failed: ncclSend, ncclRecv: invalid usage"
                              : "rank 1 failed in the call",
                 "in group 0");
    fake_fail(FAKE_SEND, 0);
    ranks_meet(e);
}

static void event_error(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank == 1)
        fake_fail(FAKE_EVENT, 700);
    else /* its work may have been complete before */
        (void)ranks_barrier(e, e->world);
    uint64_t start = ranks_ms();
    faults_ended(e, ranks_barrier(e, e->world), start,
                 e->rank == 1 ? "an illegal memory access was encountered"
                              : "rank 1 failed in the call",
                 "all_reduce of 4 bytes of f32 in group 0");
    fake_fail(FAKE_EVENT, 0);
    ranks_meet(e);
}

/* The driver refuses what puts a call between the work of the streams. */
static void post_error(ranks_env *e, int kind)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    if (e->rank == 1)
        fake_fail(kind, 700);
    uint64_t start = ranks_ms();
    faults_ended(e, ranks_barrier(e, e->world), start,
                 e->rank == 1
                     ? "NCCL failed: an illegal memory access was encountered"
                     : "rank 1 failed in the call",
                 "all_reduce of 4 bytes of f32 in group 0");
    fake_fail(kind, 0);
    ranks_meet(e);
}

static void record_error(ranks_env *e)
{
    post_error(e, FAKE_RECORD);
}

static void wait_error(ranks_env *e)
{
    post_error(e, FAKE_WAIT);
}

/* ---- failures of create
 * ---------------------------------------------------- */

static void try_setup(ranks_env *e, xray_comm_setup setup,
                      const nccl_config *config, xray_status want,
                      const char *words)
{
    void *self = NULL;
    uint64_t start = ranks_ms();
    unsigned live = fake_live();
    e->text[0] = '\0';
    CHECK(e, e->comm->create(&setup, config, &self) == want);
    CHECK(e, !self && ranks_said(e, words));
    CHECK(e, ranks_ms() - start < AT_ONCE);
    CHECK(e, fake_live() == live && fake_contexts() == 1);
    ranks_meet(e);
    for (int i = 0; i < FAKE_KINDS; i++)
        fake_fail(i, 0);
    ranks_meet(e);
}

static void try_to_begin(ranks_env *e, const nccl_config *config,
                         xray_status want, const char *words)
{
    try_setup(e, ranks_setup(e, 300), config, want, words);
}

/* Rank 1 was told of as many ranks as there may be. */
static void try_other_size(ranks_env *e)
{
    char words[80];
    const uint32_t sizes[2] = { 2, NCCL_MAX_RANKS };
    xray_comm_setup setup = ranks_setup(e, 300);
    setup.size = sizes[e->rank];
    (void)snprintf(words, sizeof(words),
                   "rank %u was created for %u ranks, but this one for %u",
                   1 - e->rank, sizes[1 - e->rank], sizes[e->rank]);
    try_setup(e, setup, &parts_config, XRAY_E_PEER, words);
    setup.size = NCCL_MAX_RANKS + 1;
    try_setup(e, setup, &parts_config, XRAY_E_RANGE, " are possible");
}

static void try_wrong_setups(ranks_env *e)
{
    static const char lacks[] = "the setup lacks a device, ranks or the gather";
    const xray_comm_setup usual = ranks_setup(e, 300);
    char words[80];
    xray_comm_setup s = usual;
    s.device = NULL;
    try_setup(e, s, &parts_config, XRAY_E_ARG, lacks);
    s = usual;
    s.gather = NULL;
    try_setup(e, s, &parts_config, XRAY_E_ARG, lacks);
    for (int way = 0; way < LACK_WAYS; way++) { /* such as the cpu's */
        xray_device_ops dev = *e->dev;
        LACK_MEMBER(xray_device_ops, dev, extension, way);
        s = usual;
        s.device = &dev;
        try_setup(e, s, &parts_config, XRAY_E_UNSUPPORTED,
                  "the device does not give its CUDA streams (xray.cuda/0)");
    }
    s = usual;
    s.rank = s.size;
    try_setup(e, s, &parts_config, XRAY_E_ARG, lacks);
    s.rank = s.size = 0;
    try_setup(e, s, &parts_config, XRAY_E_ARG, lacks);
    s = usual;
    s.trace_stride = sizeof(*s.traces) - 1;
    (void)snprintf(words, sizeof(words),
                   "traces of %zu bytes, but %zu are needed",
                   sizeof(*s.traces) - 1, sizeof(*s.traces));
    try_setup(e, s, &parts_config, XRAY_E_ARG, words);
    s = usual;
    s.header.size = 8;
    try_setup(e, s, &parts_config, XRAY_E_ABI, "");
}

static void fail_to_begin(ranks_env *e)
{
    const nccl_config *usual = &parts_config;
    int mine = e->rank == 1;
    try_other_size(e);
    try_wrong_setups(e);
    fake_fail(FAKE_INIT, mine ? 2 : 0);
    try_to_begin(
        e, usual, XRAY_E_PEER,
        mine ? "NCCL failed: unhandled system error: socket closed by peer"
             : "rank 1 failed in the call");
    fake_fail(FAKE_ABSENT, mine);
    try_to_begin(e, usual, XRAY_E_PEER, "not all ranks arrived within 0.3 s");
    e->stop_ms = ranks_ms() + 100;
    fake_fail(FAKE_ABSENT, mine);
    try_to_begin(e, usual, XRAY_E_CANCELED, "the run is stopped");
    e->stop_ms = 0;
    fake_fail(FAKE_VERSION, 21799);
    try_to_begin(
        e, usual, XRAY_E_DEVICE,
        "NCCL's version number is 21799; 2.18 (21800) or later is needed");
    fake_fail(FAKE_VERSION, 21800); /* which serves */
    fake_fail(FAKE_UNIQUE, 2);      /* by which rank 0 alone is asked */
    try_to_begin(e, usual, mine ? XRAY_E_PEER : XRAY_E_DEVICE,
                 mine ? "rank 0 (pid "
                      : "NCCL gave no id for the ranks to connect: unhandled "
                        "system error: ");
    fake_fail(FAKE_VERSION, mine ? 22000 : 22100);
    try_to_begin(e, usual, XRAY_E_PEER,
                 "rank 0 has NCCL 22100, but rank 1 has 22000");
    fake_fail(FAKE_DEVICE, mine ? 100 : 0);
    try_to_begin(e, usual, mine ? XRAY_E_DEVICE : XRAY_E_PEER,
                 mine ? "no CUDA-capable device is detected" : "rank 1 (pid ");
    if (mine) /* longer than any address */
        (void)setenv("XRAY_FAKE_DOMAIN", "0000000000000000000000000000", 1);
    try_to_begin(e, usual, mine ? XRAY_E_DEVICE : XRAY_E_PEER,
                 mine ? "comm nccl: the CUDA driver says: an error without a "
                        "name"
                      : "rank 1 (pid ");
    (void)unsetenv("XRAY_FAKE_DOMAIN");
    fake_fail(FAKE_BUS, 1);
    try_to_begin(e, usual, XRAY_E_PEER,
                 "ranks 0 and 1 are both on the device 0000:00:00.0");
    nccl_config other = parts_config;
    other.library = "/nowhere/libnccl.so.2";
    try_to_begin(
        e, &other, XRAY_E_DEVICE,
        "this machine cannot run it: /nowhere/libnccl.so.2: cannot open");
    other.driver = "libm.so.6";
    try_to_begin(e, &other, XRAY_E_DEVICE, "libm.so.6 has no cuInit");
}

/* A member never arrives at the group. */
static void lonely_group(ranks_env *e)
{
    uint32_t ranks[2] = { 0, 1 };
    xray_comm_group *g = NULL;
    if (e->rank == 1) {
        CHECK(e, e->comm->group(e->comm_self, ranks, 2, &g) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.3 s"));
        CHECK(e, ranks_said(e, "from rank 0 in group 0"));
    }
    ranks_meet(e);
}

/* Too little scratch memory is reported when the group is formed. */
static void small_scratch(ranks_env *e)
{
    nccl_config small = parts_config;
    uint32_t ranks[2] = { 0, 1 };
    xray_comm_setup setup = ranks_setup(e, 60000);
    xray_comm_group *g;
    void *self = NULL;
    small.scratch = 100;
    CHECK_OK(e, e->comm->create(&setup, &small, &self));
    CHECK(e, e->comm->group(self, ranks, 2, &g) == XRAY_E_CONFIG);
    CHECK(e, ranks_said(e, "100 bytes are too few for sums of 2 ranks"));
    e->comm->destroy(self);
}

/* Instances come and go, and their events, communicators and memory with
 * them. Of the calls of an earlier one nothing is told. */
static void create_repeatedly(ranks_env *e)
{
    xray_comm_setup setup = ranks_setup(e, 60000);
    uint32_t ranks[2] = { 0, 1 };
    float *a = ranks_alloc(e, 4096);
    for (int i = 0; i < 5; i++) {
        xray_comm_group *g;
        xray_comm_group *base;
        void *self = NULL;
        CHECK_OK(e, e->comm->create(&setup, &parts_config, &self));
        CHECK(e, e->all->traces[e->rank].own.calls == 0);
        CHECK_OK(e, e->comm->group(self, ranks, 2, &base));
        CHECK_OK(e, e->comm->group(self, ranks, 2, &g));
        CHECK(e, g != base);
        CHECK_OK(e, e->comm->all_reduce(g, NULL, a, 1024, XRAY_F32));
        e->comm->destroy(self);
        CHECK(e, fake_live() == 1);
        ranks_meet(e);
    }
}

const scenario ranks_scenarios[] = {
    { "late", arrive_late, 300 },
    { "lonely_exchange", faults_lonely_exchange, 300 },
    { "lonely_all_to_all", faults_lonely_all_to_all, 300 },
    { "traces", faults_traces, 60000 },
    { "killed", die_in_a_call, 60000 },
    { "async_killed", async_killed, 60000 },
    { "async_other_group", async_other_group, 60000 },
    { "stopped", faults_stopped, 500 },
    { "left", wait_for_rank_that_left, 60000 },
    { "aborted", faults_aborted, 60000 },
    { "canceled", faults_canceled, 60000 },
    { "async_canceled", async_canceled, 60000 },
    { "cancel_elsewhere", cancel_elsewhere, 60000 },
    { "arguments", faults_arguments, 60000 },
    { "async_error", async_error, 60000 },
    { "call_error", call_error, 60000 },
    { "message_error", message_error, 60000 },
    { "event_error", event_error, 60000 },
    { "record_error", record_error, 60000 },
    { "wait_error", wait_error, 60000 },
    { "async_alone", async_alone, 60000 },
    { "beginnings", fail_to_begin, 60000 },
    { "lonely_group", lonely_group, 300 },
    { "small_scratch", small_scratch, 60000 },
    { "again", create_repeatedly, 60000 },
    { NULL, NULL, 0 },
};

static void late_ranks_are_named(void **state)
{
    (void)state;
    faults_run_late();
    ranks_run("lonely_group", 3, NULL);
}

static void canceled_waits_end_on_all_ranks(void **state)
{
    (void)state;
    ranks_run("canceled", 2, NULL);
    ranks_run("canceled", 4, NULL);
    ranks_run("async_canceled", 3, NULL);
    ranks_run("cancel_elsewhere", 2, NULL);
}

static void dead_ranks_are_named(void **state)
{
    (void)state;
    ranks_run("killed", 2, ".k");
    ranks_run("killed", 4, ".k..");
    ranks_run("async_killed", 3, ".k.");
    ranks_run("async_other_group", 3, "..k");
    ranks_run("async_alone", 3, "..k");
    ranks_run("left", 3, NULL);
}

static void failures_are_named(void **state)
{
    (void)state;
    ranks_run("async_error", 2, NULL);
    ranks_run("call_error", 2, NULL);
    ranks_run("message_error", 2, NULL);
    ranks_run("event_error", 2, NULL);
    ranks_run("record_error", 2, NULL);
    ranks_run("wait_error", 2, NULL);
    ranks_run("beginnings", 2, NULL);
    ranks_run("small_scratch", 2, NULL);
    ranks_run("arguments", 2, NULL);
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    ranks_run("again", 2, NULL);
}

int main(int argc, char **argv)
{
    parts_config.wait = !(argc == 6 && strncmp(argv[2], "async_", 6) == 0 &&
                          strcmp(argv[2], "async_error") != 0);
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(late_ranks_are_named),
        cmocka_unit_test(canceled_waits_end_on_all_ranks),
        cmocka_unit_test(dead_ranks_are_named),
        cmocka_unit_test(failures_are_named),
        cmocka_unit_test(nothing_is_left_behind),
    };
    return cmocka_run_group_tests_name("nccl.faults", tests, NULL, NULL);
}
