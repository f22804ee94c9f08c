/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what an instance of comm-shm does at its end and when its device
 * fails: it returns all descriptors and mappings, ranks that leave are named
 * although their processes live on, and a failure of the device reaches all
 * ranks. It also proves that calls which go through host memory wait for the
 * device.
 */
#define _GNU_SOURCE
#include "plugins/comm-shm/shm.h"
#include "tests/comm/faults.h"

#include "tests/testing.h"

#include <dirent.h>

/* ---- a device of which the host cannot read the memory ------------------ */

#define QUEUE 4096

/* Copies wait until the device is waited for, as those of a GPU may. */
static _Thread_local struct {
    const xray_device_ops *real;
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
        uint32_t kind;
    } queue[QUEUE];
    uint32_t waiting;
    uint32_t fails;        /* kind of the copies that fail + 1; 0: none */
    uint32_t attach_fails; /* 1: nothing can be attached */
    uint32_t refuses;      /* 1: the device shares no memory */
    ranks_env *brings;     /* rank to which it brings copies late, or NULL */
} far;

/* Lets another rank go on, and waits for it; notes 0 and 1 are of its way. */
static void meet_rank_that_gives_up(ranks_env *e)
{
    uint64_t start = ranks_ms();
    atomic_store(&e->all->notes[0][0], 1);
    while (!atomic_load(&e->all->notes[0][1])) {
        CHECK(e, ranks_ms() - start < RANKS_LIMIT_MS);
        ranks_sleep_ms(1);
    }
}

static xray_status far_info(void *self, xray_device_info *out)
{
    xray_status status = far.real->info(self, out);
    out->host_memory = 0;
    return status;
}

static xray_status far_copy(void *self, xray_stream *stream, void *to,
                            const void *from, uint64_t bytes, uint32_t kind)
{
    (void)self;
    (void)stream;
    if (far.fails == kind + 1 || far.waiting == QUEUE)
        return XRAY_E_DEVICE;
    far.queue[far.waiting].to = to;
    far.queue[far.waiting].from = from;
    far.queue[far.waiting].kind = kind;
    far.queue[far.waiting++].bytes = bytes;
    return XRAY_OK;
}

static xray_status far_sync(void *self, xray_stream *stream)
{
    ranks_env *e = far.brings;
    for (uint32_t i = 0; e && i < far.waiting; i++)
        if (far.queue[i].kind == XRAY_COPY_TO_DEVICE)
            meet_rank_that_gives_up(e);
    for (uint32_t i = 0; i < far.waiting; i++)
        memcpy(far.queue[i].to, far.queue[i].from, far.queue[i].bytes);
    far.waiting = 0;
    return far.real->sync(self, stream);
}

static xray_status far_attach(void *self, const uint8_t *handle, uint64_t bytes,
                              void **out)
{
    return far.attach_fails ? XRAY_E_DEVICE
                            : far.real->attach(self, handle, bytes, out);
}

static xray_status far_shareable(void *self, uint32_t on)
{
    return far.refuses ? XRAY_E_CONFIG : far.real->shareable(self, on);
}

/* A second instance of this rank, with the group of all ranks. */
typedef struct second {
    xray_device_ops device;
    void *self;
    xray_comm_group *all;
} second;

static void fill_device(ranks_env *e, second *s, int apart)
{
    memset(&far, 0, sizeof(far));
    far.real = e->dev;
    s->device = *e->dev;
    s->device.attach = far_attach;
    s->device.shareable = far_shareable;
    if (apart) {
        s->device.info = far_info;
        s->device.copy = far_copy;
        s->device.sync = far_sync;
    }
}

static void open_second(ranks_env *e, second *s, int apart)
{
    uint32_t ranks[MOST_RANKS];
    xray_comm_setup setup = ranks_setup(e, 60000);
    fill_device(e, s, apart);
    setup.device = &s->device;
    CHECK_OK(e, e->comm->create(&setup, e->comm_config, &s->self));
    for (uint32_t r = 0; r < e->size; r++)
        ranks[r] = r;
    CHECK_OK(e, e->comm->group(s->self, ranks, e->size, &s->all));
}

/* ---- nothing is left ---------------------------------------------------- */

static uint64_t count_descriptors(void)
{
    uint64_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        (void)closedir(dir);
    return n;
}

/* Counts the mappings of files that exist only in memory. */
static uint64_t count_memory_files(void)
{
    char line[512];
    uint64_t n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f))
        n += strstr(line, "/memfd:") != NULL;
    if (f)
        (void)fclose(f);
    return n;
}

/* Makes a call of each form, so that every peer's memory has been mapped. */
static void use_second(ranks_env *e, const second *s)
{
    float *a = ranks_alloc(e, 64 * sizeof(*a));
    float *b = ranks_alloc(e, 64 * sizeof(*b) * e->size);
    uint32_t peer = (e->rank + 1) % e->size;
    for (uint32_t i = 0; i < 64; i++)
        a[i] = (float)(e->rank + 1);
    CHECK_OK(e, e->comm->all_reduce(s->all, NULL, a, 64, XRAY_F32));
    CHECK(e, a[63] == (float)(e->size * (e->size + 1) / 2));
    CHECK_OK(e, e->comm->all_gather(s->all, NULL, a, b, 64, XRAY_F32));
    if (e->size == 2)
        CHECK_OK(e, e->rank ? e->comm->recv(s->all, NULL, b, 64, peer)
                            : e->comm->send(s->all, NULL, b, 64, peer));
    e->dev->free(e->dev_self, a);
    e->dev->free(e->dev_self, b);
}

static void open_and_close(ranks_env *e, int apart)
{
    /* The system's own files of a process may be opened on first use. */
    for (int turn = 0; turn < 3; turn++) {
        uint64_t descriptors = count_descriptors();
        uint64_t mappings = count_memory_files();
        second s;
        open_second(e, &s, apart);
        use_second(e, &s);
        ranks_meet(e);
        e->comm->destroy(s.self);
        CHECK(e, turn == 0 || count_descriptors() == descriptors);
        CHECK(e, count_memory_files() == mappings);
        ranks_meet(e);
    }
}

static void leave_nothing(ranks_env *e)
{
    open_and_close(e, 0);
}

static void leave_nothing_staged(ranks_env *e)
{
    open_and_close(e, 1);
}

/* ---- ranks that leave --------------------------------------------------- */

/* Rank 1 ends its instance while its process goes on. */
static void leave_alone(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank == 1) {
        e->comm->destroy(e->comm_self);
        e->comm_self = NULL;
    } else {
        uint64_t start = ranks_ms();
        xray_status status = ranks_barrier(e, e->world);
        faults_ended(e, status, start, "a rank has ended its part",
                     "rank 1 has ended its part");
    }
    ranks_meet(e);
}

/* ---- messages of other ranks -------------------------------------------- */

/* Rank `sender` waits in a send to the other rank, which waits in a call of the
 * group: it does not matter which of the two has the lower number. */
static void cross_with_send(ranks_env *e, uint32_t sender)
{
    char *a = ranks_alloc(e, 128);
    uint64_t start = ranks_ms();
    xray_status status = e->rank == sender
                             ? e->comm->send(e->world, NULL, a, 100, 1 - sender)
                             : ranks_barrier(e, e->world);
    faults_told(e, status, start, "the ranks are in different calls");
    ranks_meet(e);
}

static void first_sends(ranks_env *e)
{
    cross_with_send(e, 0);
}

static void last_sends(ranks_env *e)
{
    cross_with_send(e, 1);
}

/* Rank 0 waits in a call of the group while the others exchange a message among
 * themselves, and come afterwards. */
static void wait_for_message_of_others(ranks_env *e)
{
    const volatile xray_comm_trace *first = &e->all->traces[0].own;
    char *a = ranks_alloc(e, 128);
    if (e->rank == 1)
        CHECK_OK(e, e->comm->send(e->world, NULL, a, 100, 2));
    if (e->rank == 2) {
        uint64_t start = ranks_ms();
        while (first->state != 1 && ranks_ms() - start < AT_ONCE)
            ranks_sleep_ms(1);
        ranks_sleep_ms(50); /* in which rank 0 checks the others repeatedly */
        CHECK_OK(e, e->comm->recv(e->world, NULL, a, 100, 1));
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Rank 0 sends to rank 1 and receives from rank 2, and its device is busy with
 * what came from rank 2 when rank 1 has received all and gives up in its next
 * call: that call is broken, but the exchange is complete. */
static void receive_and_give_up(ranks_env *e)
{
    const volatile xray_comm_trace *first = &e->all->traces[0].own;
    char *a = ranks_alloc(e, 256);
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = a,
                                   .in_bytes = 100,
                                   .out = a + 100,
                                   .out_bytes = 60,
                                   .to = 1,
                                   .from = 2 };
    second s;
    open_second(e, &s, 1);
    memset(a, 'a' + (int)e->rank, 256);
    uint64_t start = ranks_ms();
    if (e->rank == 0) {
        far.brings = e;
        CHECK_OK(e, e->comm->exchange(s.all, NULL, &x));
        far.brings = NULL;
        CHECK(e, a[100] == 'c' && a[159] == 'c' && a[160] == 'a');
    } else if (e->rank == 1) {
        while (!atomic_load(&e->all->notes[0][0]))
            ranks_sleep_ms(1);
        CHECK_OK(e, e->comm->recv(s.all, NULL, a, 100, 0));
        CHECK(e, a[0] == 'a' && a[99] == 'a' && a[100] == 'b');
        e->comm->abort(s.self);
        CHECK(e, e->comm->recv(s.all, NULL, a, 100, 0) == XRAY_E_PEER);
        atomic_store(&e->all->notes[0][1], 1);
    } else {
        while (first->state != 1 && ranks_ms() - start < AT_ONCE)
            ranks_sleep_ms(1);
        ranks_sleep_ms(50); /* in which rank 0 looks at both messages */
        CHECK_OK(e, e->comm->send(s.all, NULL, a, 60, 0));
    }
    ranks_meet(e);
    e->comm->destroy(s.self);
}

/* ---- a device that fails ------------------------------------------------ */

/* The rank whose device fails gets the device's status, and the others are told
 * at once which rank failed. */
static void expect_failure_of_rank_0(ranks_env *e, xray_status status,
                                     uint64_t start)
{
    if (e->rank == 0)
        CHECK(e, status == XRAY_E_DEVICE);
    else
        faults_told(e, status, start, "rank 0 failed in the call");
}

/* The others may have done all the work before rank 0 begins, so that its call
 * or theirs may succeed; but once it has failed, no call waits for it. */
static void fail_to_attach(ranks_env *e)
{
    float *a = ranks_alloc(e, 1 << 20);
    uint64_t failed = 0;
    second s;
    open_second(e, &s, 0);
    far.attach_fails = e->rank == 0;
    for (int turn = 0; turn < 20 && !failed; turn++) {
        uint64_t start = ranks_ms();
        xray_status status =
            e->comm->all_reduce(s.all, NULL, a, 1 << 18, XRAY_F32);
        if (status != XRAY_OK)
            expect_failure_of_rank_0(e, status, start);
        atomic_store(&e->all->notes[e->rank][0], status != XRAY_OK);
        ranks_meet(e);
        failed = atomic_load(&e->all->notes[0][0]);
        ranks_meet(e);
    }
    if (failed) {
        uint64_t start = ranks_ms();
        xray_status status = ranks_barrier(e, s.all);
        faults_told(e, status, start, "rank 0 failed in the call");
    }
    ranks_meet(e);
    e->comm->destroy(s.self);
}

static void fail_to_copy_out(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    second s;
    open_second(e, &s, 1);
    far.fails = e->rank ? 0 : XRAY_COPY_TO_HOST + 1;
    uint64_t start = ranks_ms();
    expect_failure_of_rank_0(
        e, e->comm->all_reduce(s.all, NULL, a, 1024, XRAY_F32), start);
    ranks_meet(e);
    e->comm->destroy(s.self);
}

/* The sum is complete on all ranks, but rank 0 cannot have it. */
static void fail_to_copy_back(ranks_env *e)
{
    float *a = ranks_alloc(e, 4096);
    second s;
    open_second(e, &s, 1);
    far.fails = e->rank ? 0 : XRAY_COPY_TO_DEVICE + 1;
    CHECK(e, e->comm->all_reduce(s.all, NULL, a, 1024, XRAY_F32) ==
                 (e->rank ? XRAY_OK : XRAY_E_DEVICE));
    ranks_meet(e);
    e->comm->destroy(s.self);
}

/* A device that refuses to share its memory is not gone on with by any rank,
 * and its own rank gets the reason. */
static void refuse_to_share(ranks_env *e)
{
    xray_comm_setup setup = ranks_setup(e, 60000);
    second s = { .self = NULL };
    fill_device(e, &s, 0);
    far.refuses = e->rank == 0;
    setup.device = &s.device;
    CHECK(e, e->comm->create(&setup, e->comm_config, &s.self) ==
                 (e->rank ? XRAY_E_PEER : XRAY_E_CONFIG));
    CHECK(e, e->rank == 0 || ranks_said(e, "rank 0 (pid "));
    CHECK(e, s.self == NULL);
}

/* ---- a device that is late ---------------------------------------------- */

/* When a call returns, its result has reached the device's memory; a call reads
 * what was enqueued before it. Larger buffers than one piece are divided. */
static void move_through_host_memory(ranks_env *e)
{
    const uint64_t count = 300001;
    second s;
    open_second(e, &s, 1);
    float *a = ranks_alloc(e, count * sizeof(*a));
    float *from = ranks_alloc(e, count * sizeof(*a) * e->size);
    for (uint64_t i = 0; i < count * e->size; i++)
        from[i] = (float)(i % 1000 + e->rank);
    CHECK_OK(e, far_copy(e->dev_self, NULL, a, from, count * sizeof(*a),
                         XRAY_COPY_ON_DEVICE));
    CHECK_OK(e, e->comm->all_reduce(s.all, NULL, a, count, XRAY_F32));
    float ranks = (float)(e->size * (e->size - 1) / 2);
    for (uint64_t i = 0; i < count; i++)
        CHECK(e, a[i] == (float)(i % 1000) * (float)e->size + ranks);
    CHECK_OK(e, e->comm->reduce_scatter(s.all, NULL, from, a, count, XRAY_F32));
    for (uint64_t i = 0; i < count; i++)
        CHECK(e,
              a[i] == (float)((e->rank * count + i) % 1000) * (float)e->size +
                          ranks);
    for (uint64_t i = 0; i < count; i++)
        a[i] = (float)(i % 1000 + e->rank);
    CHECK_OK(e, e->comm->all_gather(s.all, NULL, a, from, count, XRAY_F32));
    for (uint64_t i = 0; i < count * e->size; i++)
        CHECK(e, from[i] == (float)(i % count % 1000 + i / count));
    CHECK_OK(e, e->comm->broadcast(s.all, NULL, a, count * sizeof(*a), 1));
    for (uint64_t i = 0; i < count; i++)
        CHECK(e, a[i] == (float)(i % 1000 + 1));
    e->comm->destroy(s.self);
}

/* Nor does a group of one rank return before the copy is done. */
static void move_alone(ranks_env *e)
{
    second s;
    open_second(e, &s, 1);
    float *a = ranks_alloc(e, 256);
    float *b = ranks_alloc(e, 256);
    for (uint32_t i = 0; i < 64; i++)
        a[i] = (float)i;
    CHECK_OK(e, e->comm->all_gather(s.all, NULL, a, b, 64, XRAY_F32));
    CHECK(e, memcmp(a, b, 256) == 0 && a[63] == 63);
    far.fails = XRAY_COPY_ON_DEVICE + 1;
    CHECK(e, e->comm->all_gather(s.all, NULL, a, b, 64, XRAY_F32) ==
                 XRAY_E_DEVICE);
    e->comm->destroy(s.self);
}

/* A group too many is refused, and those before it still work. */
static void run_out_of_groups(ranks_env *e)
{
    const uint32_t both[2] = { 0, 1 };
    xray_comm_group *last = e->world;
    xray_status status = XRAY_OK;
    uint32_t count = 1;
    for (; status == XRAY_OK && count <= SHM_MAX_CHANNELS; count++)
        status = e->comm->group(e->comm_self, both, 2, &last);
    CHECK(e, status == XRAY_E_NOMEM && count == SHM_MAX_CHANNELS + 1);
    CHECK(e, ranks_said(e, "group: no memory for a group, or more than 512 "
                           "groups and ways of messages from one rank"));
    CHECK_OK(e, ranks_barrier(e, last));
    CHECK_OK(e, ranks_barrier(e, e->world));
    char a[4] = { 0 };
    CHECK(e, e->comm->send(e->world, NULL, a, 4, 1 - e->rank) == XRAY_E_NOMEM);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

const scenario ranks_scenarios[] = {
    { "run_out_of_groups", run_out_of_groups, 60000 },
    { "leave_nothing", leave_nothing, 60000 },
    { "leave_nothing_staged", leave_nothing_staged, 60000 },
    { "leave_alone", leave_alone, 60000 },
    { "first_sends", first_sends, 60000 },
    { "last_sends", last_sends, 60000 },
    { "message_of_others", wait_for_message_of_others, 60000 },
    { "receive_and_give_up", receive_and_give_up, 60000 },
    { "fail_to_attach", fail_to_attach, 60000 },
    { "fail_to_copy_out", fail_to_copy_out, 60000 },
    { "fail_to_copy_back", fail_to_copy_back, 60000 },
    { "refuse_to_share", refuse_to_share, 60000 },
    { "move", move_through_host_memory, 60000 },
    { "move_alone", move_alone, 60000 },
    { NULL, NULL, 0 },
};

static void instances_return_what_they_took(void **state)
{
    (void)state;
    ranks_run("leave_nothing", 2, NULL);
    ranks_run("leave_nothing", 3, NULL);
    ranks_run("leave_nothing_staged", 2, NULL);
}

static void ranks_that_leave_are_named(void **state)
{
    (void)state;
    ranks_run("leave_alone", 3, NULL);
    ranks_run_threads("leave_alone", 2);
}

static void groups_are_limited(void **state)
{
    (void)state;
    ranks_run("run_out_of_groups", 2, NULL);
}

static void messages_concern_their_two_ranks(void **state)
{
    (void)state;
    ranks_run("first_sends", 2, NULL);
    ranks_run("last_sends", 2, NULL);
    ranks_run("message_of_others", 3, NULL);
    ranks_run("receive_and_give_up", 3, NULL);
}

static void failures_of_a_device_reach_all_ranks(void **state)
{
    (void)state;
    ranks_run("fail_to_attach", 2, NULL);
    ranks_run("fail_to_copy_out", 3, NULL);
    ranks_run("fail_to_copy_back", 2, NULL);
    ranks_run("refuse_to_share", 2, NULL);
}

static void calls_wait_for_the_device(void **state)
{
    (void)state;
    ranks_run("move", 2, NULL);
    ranks_run("move", 3, NULL);
    ranks_run("move_alone", 1, NULL);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instances_return_what_they_took),
        cmocka_unit_test(ranks_that_leave_are_named),
        cmocka_unit_test(groups_are_limited),
        cmocka_unit_test(messages_concern_their_two_ranks),
        cmocka_unit_test(failures_of_a_device_reach_all_ranks),
        cmocka_unit_test(calls_wait_for_the_device),
    };
    return cmocka_run_group_tests_name("comm.ends", tests, NULL, NULL);
}
