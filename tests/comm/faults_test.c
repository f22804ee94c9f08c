/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for ranks that are late, in another call, stopped, killed or gone that
 * the others are told which and in time, and that nothing is left behind.
 */
#define _GNU_SOURCE
#include "tests/comm/faults.h"

#include "tests/testing.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>

static float *alloc_floats(ranks_env *e, uint64_t count)
{
    return ranks_alloc(e, count * sizeof(float));
}

static void other_call(ranks_env *e)
{
    float *a = alloc_floats(e, 64);
    float *b = alloc_floats(e, 64 * e->size);
    uint64_t start = ranks_ms();
    xray_status status =
        e->rank == 1 ? e->comm->all_gather(e->world, NULL, a, b, 64, XRAY_F32)
                     : e->comm->all_reduce(e->world, NULL, a, 64, XRAY_F32);
    faults_ended(e, status, start, "the ranks are in different calls",
                 "in all_gather of 256 bytes in group 0");
    ranks_meet(e);
}

static void other_size(ranks_env *e)
{
    float *a = alloc_floats(e, 128);
    uint64_t start = ranks_ms();
    xray_status status =
        e->comm->all_reduce(e->world, NULL, a, 64 + e->rank, XRAY_F32);
    /* 256, 260 and 264 bytes: the first two ranks to arrive disagree. */
    faults_ended(e, status, start, "the ranks are in different calls",
                 "all_reduce of 26");
    ranks_meet(e);
}

static void other_type(ranks_env *e)
{
    float *a = alloc_floats(e, 128);
    uint64_t start = ranks_ms();
    xray_status status =
        e->rank ? e->comm->all_reduce(e->world, NULL, a, 64, XRAY_F32)
                : e->comm->all_reduce(e->world, NULL, a, 128, XRAY_BF16);
    faults_ended(e, status, start, "all_reduce of 256 bytes of bf16",
                 "all_reduce of 256 bytes of f32");
    ranks_meet(e);
}

static void other_root(ranks_env *e)
{
    float *a = alloc_floats(e, 128);
    uint64_t start = ranks_ms();
    xray_status status = e->comm->broadcast(e->world, NULL, a, 12, e->rank);
    faults_ended(e, status, start, "broadcast of 12 bytes from rank 0",
                 "broadcast of 12 bytes from rank 1");
    ranks_meet(e);
}

/* The number of the group that the last report begins with. */
static uint64_t read_group(const ranks_env *e)
{
    const char *at = strstr(e->text, " in group ");
    return at ? strtoull(at + 10, NULL, 10) : UINT64_MAX;
}

/* Ranks are named by their numbers in the world, not in the group, and groups
 * by numbers that all their ranks give them. */
static void roots_of_a_group(ranks_env *e)
{
    uint32_t two[2] = { 1, 2 };
    char *a = ranks_alloc(e, 128);
    xray_comm_group *first = NULL;
    xray_comm_group *again = NULL;
    if (e->rank) {
        CHECK_OK(e, e->comm->group(e->comm_self, two, 2, &first));
        CHECK_OK(e, e->comm->group(e->comm_self, two, 2, &again));
        uint64_t start = ranks_ms();
        xray_status status =
            e->comm->broadcast(first, NULL, a, 12, e->rank - 1);
        faults_told(e, status, start, "broadcast of 12 bytes from rank 1");
        CHECK(e, ranks_said(e, "broadcast of 12 bytes from rank 2"));
        e->all->notes[e->rank][0] = read_group(e);
        e->text[0] = '\0';
        status = e->comm->send(again, NULL, a, 100, 2 - e->rank);
        faults_told(e, status, start, "send of 100 bytes to rank 1");
        CHECK(e, ranks_said(e, "send of 100 bytes to rank 2"));
        e->all->notes[e->rank][1] = read_group(e);
    }
    ranks_meet(e);
    CHECK(e, e->all->notes[1][0] != 0 && e->all->notes[1][1] != 0);
    CHECK(e, e->all->notes[1][0] != e->all->notes[1][1]);
    CHECK(e, e->all->notes[1][0] == e->all->notes[2][0]);
    CHECK(e, e->all->notes[1][1] == e->all->notes[2][1]);
}

/* Rank 0 waits for rank 1 in the group of all, and rank 1 for rank 0 in the
 * pair. */
static void other_group(ranks_env *e)
{
    uint32_t two[2] = { 0, 1 };
    xray_comm_group *pair = NULL;
    if (e->rank < 2)
        CHECK_OK(e, e->comm->group(e->comm_self, two, 2, &pair));
    uint64_t start = ranks_ms();
    xray_status status = ranks_barrier(e, e->rank == 1 ? pair : e->world);
    faults_told(e, status, start, "the ranks are in different calls");
    ranks_meet(e);
}

static void both_send(ranks_env *e)
{
    char *a = ranks_alloc(e, 128);
    uint64_t start = ranks_ms();
    xray_status status = e->comm->send(e->world, NULL, a, 100, 1 - e->rank);
    faults_told(e, status, start, "send of 100 bytes to rank 0");
    CHECK(e, ranks_said(e, "send of 100 bytes to rank 1"));
    ranks_meet(e);
}

/* One rank sends while the other makes a call of the group. */
static void send_alone(ranks_env *e)
{
    char *a = ranks_alloc(e, 128);
    uint64_t start = ranks_ms();
    xray_status status = e->rank ? e->comm->send(e->world, NULL, a, 100, 0)
                                 : ranks_barrier(e, e->world);
    faults_told(e, status, start, "the ranks are in different calls");
    ranks_meet(e);
}

/* Rank 1 makes a call of the group while rank 0 is in an exchange with it. */
static void exchange_alone(ranks_env *e)
{
    uint64_t start = ranks_ms();
    xray_status status =
        e->rank ? ranks_barrier(e, e->world) : faults_exchange(e, 1, 1);
    faults_told(e, status, start, "the ranks are in different calls");
    CHECK(e, ranks_said(e, "in exchange of 100 bytes to rank 1 and 60 bytes "
                           "from rank 1 in group 0"));
    ranks_meet(e);
}

/* The ranks turn their data around a ring, in which rank 0 is missing: what the
 * others say of each other names both neighbours of an exchange. */
static void broken_turn(ranks_env *e)
{
    char made[100];
    char words[120];
    char *at = ranks_alloc(e, 200);
    const uint32_t next = (e->rank + 1) % e->size;
    const uint32_t before = (e->rank + e->size - 1) % e->size;
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = at,
                                   .in_bytes = 100,
                                   .out = at + 100,
                                   .out_bytes = 100,
                                   .to = next,
                                   .from = before };
    if (!e->rank)
        ranks_meet(e); /* arrives when the others have given up */
    uint64_t start = ranks_ms();
    faults_told(e, e->comm->exchange(e->world, NULL, &x), start,
                "not all ranks arrived");
    (void)snprintf(made, sizeof(made),
                   "exchange of 100 bytes to rank %u and 100 bytes from rank "
                   "%u in group 0",
                   next, before);
    (void)snprintf(words, sizeof(words), "rank %u waits in %s", e->rank, made);
    CHECK(e, strstr(e->text, made) == e->text);
    CHECK(e, !e->rank || ranks_said(e, words));
    /* A plugin may know the half only that this rank waits for. */
    CHECK(e, e->rank ||
                 ranks_said(e, "rank 1 gave up in exchange of 100 bytes to "
                               "rank 2 and 100 bytes from rank 0 in group 0") ||
                 ranks_said(e, "rank 1 gave up in the exchange's recv of 100 "
                               "bytes from rank 0 in group 0"));
    if (e->rank)
        ranks_meet(e);
    ranks_meet(e);
}

/* Each sends 100 bytes, but the other expects 60. */
static void exchange_other_size(ranks_env *e)
{
    uint64_t start = ranks_ms();
    xray_status status = faults_exchange(e, 1 - e->rank, 1 - e->rank);
    faults_told(e, status, start, "the ranks are in different calls");
    ranks_meet(e);
}

static void all_to_all_other_size(ranks_env *e)
{
    float *in = alloc_floats(e, 64);
    float *out = alloc_floats(e, 64);
    uint64_t start = ranks_ms();
    xray_status status =
        e->comm->all_to_all(e->world, NULL, in, out, 4 + e->rank, XRAY_F32);
    faults_ended(e, status, start, "the ranks are in different calls",
                 "all_to_all of 2");
    ranks_meet(e);
}

static xray_status pass_on(ranks_env *e, char *messages)
{
    const xray_comm_exchange x = { .header = XRAY_HEADER(xray_comm_exchange),
                                   .in = messages,
                                   .in_bytes = 32,
                                   .out = messages + 64,
                                   .out_bytes = 32,
                                   .to = (e->rank + 1) % e->size,
                                   .from = (e->rank + e->size - 1) % e->size };
    return e->comm->exchange(e->world, NULL, &x);
}

/* In a ring whose last rank is dead its neighbours are told, and then theirs,
 * whose messages to each other would arrive. */
static void killed_in_ring(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    if (e->rank == 3)
        (void)raise(SIGKILL);
    uint64_t start = ranks_ms();
    char *messages = ranks_alloc(e, 128);
    xray_status status = pass_on(e, messages);
    if (e->rank == 1 && status == XRAY_OK)
        status = pass_on(e, messages);
    CHECK(e, e->rank == 1 || ranks_said(e, "rank 3 (pid "));
    faults_told(e, status, start, "a rank is dead");
}

/* A rank that stops is named by all others, also by the one whose messages
 * neither come from it nor go to it. */
static void aborted_in_ring(ranks_env *e)
{
    char *messages = ranks_alloc(e, 128);
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank == 3)
        e->comm->abort(e->comm_self);
    uint64_t start = ranks_ms();
    xray_status status = pass_on(e, messages);
    if (e->rank == 1 && status == XRAY_OK)
        status = pass_on(e, messages);
    faults_told(e, status, start, "rank 3 was told to stop");
    ranks_meet(e);
}

static void killed_in_work(ranks_env *e)
{
    faults_killed(e, 1 << 20, 30);
}

static void *kill_after_delay(void *arg)
{
    ranks_sleep_ms(100);
    (void)raise(SIGKILL);
    return arg;
}

/* The rank is killed while it waits itself. */
static void killed_in_wait(ranks_env *e)
{
    pthread_t id;
    if (e->rank == 1)
        CHECK(e, pthread_create(&id, NULL, kill_after_delay, NULL) == 0);
    if (e->rank == 0)
        ranks_sleep_ms(300);
    uint64_t start = ranks_ms();
    xray_status status = ranks_barrier(e, e->world);
    /* Its part may have been on its way to the others already. */
    if (e->sends_copies && status == XRAY_OK)
        status = ranks_barrier(e, e->world);
    faults_told(e, status, start,
                e->sends_copies ? ") is dead, after all_reduce of 4 bytes"
                                : ") is dead, in all_reduce of 4 bytes");
}

/* The last call of a dead rank is told with its root's number in the world. */
static void killed_after_broadcast(ranks_env *e)
{
    uint32_t two[2] = { 1, 2 };
    char *a = ranks_alloc(e, 12);
    xray_comm_group *pair = NULL;
    if (!e->rank)
        return;
    CHECK_OK(e, e->comm->group(e->comm_self, two, 2, &pair));
    CHECK_OK(e, e->comm->broadcast(pair, NULL, a, 12, 0));
    if (e->rank == 2)
        (void)raise(SIGKILL);
    uint64_t start = ranks_ms();
    faults_told(e, ranks_barrier(e, pair), start, "a rank is dead");
    CHECK(e, ranks_said(e, "rank 2 (pid "));
    CHECK(e, ranks_said(e, ") is dead, after broadcast of 12 bytes from rank "
                           "1 in group "));
}

static void wait_for_rank_that_left(ranks_env *e)
{
    if (e->rank == 1)
        return;
    uint64_t start = ranks_ms();
    CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
    CHECK(e, ranks_ms() - start < AT_ONCE);
    CHECK(e, ranks_said(e, "rank 1 has ended its part") ||
                 ranks_said(e, ") is dead"));
}

/* Memory from malloc is not the device's, which matters where other ranks read
 * it. */
static void refuse_memory(ranks_env *e, int is_input, const char *words)
{
    float *good = alloc_floats(e, 64);
    float *bad = calloc(256, sizeof(float));
    CHECK(e, bad);
    float *mine = e->rank ? good : bad;
    uint64_t start = ranks_ms();
    xray_status status =
        e->comm->reduce_scatter(e->world, NULL, is_input ? mine : good,
                                is_input ? good : mine, 8, XRAY_F32);
    CHECK(e, ranks_ms() - start < AT_ONCE);
    if (e->sends_copies) {
        CHECK_OK(e, status);
    } else if (e->rank == 0) {
        CHECK(e, status == XRAY_E_ARG);
        CHECK(e, ranks_said(e, words));
        CHECK(e, ranks_said(e, "is not in memory that this device can share"));
    } else {
        CHECK(e, status == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "rank 0 failed in the call"));
    }
    free(bad);
    ranks_meet(e);
}

static void not_shareable(ranks_env *e)
{
    refuse_memory(e, 1, "in (");
}

static void not_shareable_result(ranks_env *e)
{
    refuse_memory(e, 0, "out (");
}

/* ---- timing -------------------------------------------------------------- */

/* A clock that a test can advance on its own; at 0 it is the machine's. The
 * linker redirects all readings of the clock in this program to it. */
static _Thread_local uint64_t own_clock;
#define TICK 10000000u /* ns per reading */

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    if (!own_clock)
        return __real_clock_gettime(id, out);
    own_clock += TICK;
    out->tv_sec = (time_t)(own_clock / 1000000000u);
    out->tv_nsec = (long)(own_clock % 1000000000u);
    return 0;
}

/* The wait ends with the timeout of 500 ms, not before it and at most one slice
 * (10 ms) and a few readings after it, whatever else the machine does. */
static void time_out_punctually(ranks_env *e)
{
    float *a = alloc_floats(e, 64);
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank) {
        const uint64_t begin = 1000000000000u;
        own_clock = begin;
        xray_status status =
            e->comm->all_reduce(e->world, NULL, a, 64, XRAY_F32);
        uint64_t took = own_clock - begin;
        own_clock = 0;
        CHECK(e, status == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "not all ranks arrived within 0.5 s"));
        CHECK(e, took >= 500000000u && took <= 600000000u);
    }
    ranks_meet(e);
}

/* ---- leaks -------------------------------------------------------------- */

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

static uint64_t count_mappings(void)
{
    char line[512];
    uint64_t n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof(line), f))
        n += strchr(line, '\n') != NULL;
    if (f)
        (void)fclose(f);
    return n;
}

static uint64_t resident_pages(void)
{
    unsigned long long all = 0;
    unsigned long long mine = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f && fscanf(f, "%llu %llu", &all, &mine) != 2)
        mine = 0;
    if (f)
        (void)fclose(f);
    return mine * 4096u;
}

/* Makes many calls on new blocks of all sizes. */
static void make_many_calls(ranks_env *e, uint64_t turns)
{
    for (uint64_t i = 0; i < turns; i++) {
        uint64_t count = (i * 2654435761u) % 60000 + 1;
        float *a = alloc_floats(e, count);
        float *b = alloc_floats(e, count * e->size);
        CHECK_OK(e, e->comm->all_reduce(e->world, NULL, a, count, XRAY_F32));
        CHECK_OK(e, e->comm->all_gather(e->world, NULL, a, b, count, XRAY_F32));
        CHECK_OK(
            e, e->comm->reduce_scatter(e->world, NULL, b, a, count, XRAY_F32));
        for (uint64_t k = 0; k < count; k += 97)
            CHECK(e,
                  a[k] == 0.0f); /* must be zeroed, whatever it held before */
        memset(b, 0x55, count * sizeof(float));
        e->dev->free(e->dev_self, a);
        e->dev->free(e->dev_self, b);
    }
}

static void count_leaks(ranks_env *e)
{
    make_many_calls(e, 60);
    uint64_t before[3] = { count_descriptors(), count_mappings(),
                           resident_pages() };
    make_many_calls(e, 340);
    uint64_t after[3] = { count_descriptors(), count_mappings(),
                          resident_pages() };
    ranks_meet(e); /* what leads to a rank is closed when that ends */
    CHECK(e, after[0] == before[0]);
    CHECK(e, after[1] <= before[1] + 2);
    CHECK(e, after[2] < before[2] + (8u << 20));
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    CHECK_OK(e, e->dev->memory(e->dev_self, &stats));
    CHECK(e, stats.high[XRAY_TAG_WORKSPACE] < (8u << 20));
}

const scenario ranks_scenarios[] = {
    { "other_call", other_call, 60000 },
    { "other_size", other_size, 60000 },
    { "other_type", other_type, 60000 },
    { "other_root", other_root, 60000 },
    { "roots_of_a_group", roots_of_a_group, 60000 },
    { "other_group", other_group, 60000 },
    { "both_send", both_send, 60000 },
    { "send_alone", send_alone, 60000 },
    { "exchange_alone", exchange_alone, 60000 },
    { "exchange_other_size", exchange_other_size, 60000 },
    { "all_to_all_other_size", all_to_all_other_size, 60000 },
    { "killed_in_ring", killed_in_ring, 60000 },
    { "late", faults_late, 300 },
    { "punctual", time_out_punctually, 500 },
    { "lonely_exchange", faults_lonely_exchange, 300 },
    { "broken_turn", broken_turn, 300 },
    { "lonely_all_to_all", faults_lonely_all_to_all, 300 },
    { "traces", faults_traces, 60000 },
    { "killed_in_work", killed_in_work, 60000 },
    { "killed_in_wait", killed_in_wait, 60000 },
    { "killed_after_broadcast", killed_after_broadcast, 60000 },
    { "stopped", faults_stopped, 500 },
    { "left", wait_for_rank_that_left, 60000 },
    { "aborted", faults_aborted, 60000 },
    { "aborted_in_ring", aborted_in_ring, 60000 },
    { "canceled", faults_canceled, 60000 },
    { "not_shareable", not_shareable, 60000 },
    { "not_shareable_result", not_shareable_result, 60000 },
    { "arguments", faults_arguments, 60000 },
    { "leaks", count_leaks, 60000 },
    { NULL, NULL, 0 },
};

static void ranks_in_different_calls_are_told(void **state)
{
    (void)state;
    ranks_run("other_call", 2, NULL);
    ranks_run("other_call", 4, NULL);
    ranks_run("other_size", 3, NULL);
    ranks_run("other_type", 2, NULL);
    ranks_run("other_root", 2, NULL);
    ranks_run("roots_of_a_group", 3, NULL);
    ranks_run("other_group", 3, NULL);
    ranks_run("both_send", 2, NULL);
    ranks_run("send_alone", 2, NULL);
    ranks_run("exchange_alone", 2, NULL);
    ranks_run("exchange_other_size", 2, NULL);
    ranks_run("all_to_all_other_size", 3, NULL);
    ranks_run("not_shareable", 3, NULL);
    ranks_run("not_shareable_result", 3, NULL);
    ranks_run("arguments", 2, NULL);
}

static void canceled_waits_end_on_all_ranks(void **state)
{
    (void)state;
    ranks_run("canceled", 2, NULL);
    ranks_run("canceled", 4, NULL);
    ranks_run("aborted_in_ring", 4, NULL);
}

static void late_ranks_are_named(void **state)
{
    (void)state;
    faults_run_late();
    ranks_run("punctual", 2, NULL);
    ranks_run("broken_turn", 3, NULL);
}

static void dead_ranks_are_named(void **state)
{
    (void)state;
    ranks_run("killed_in_work", 2, ".k");
    ranks_run("killed_in_work", 4, ".k..");
    ranks_run("killed_in_wait", 3, ".k.");
    ranks_run("killed_in_ring", 4, "...k");
    ranks_run("killed_after_broadcast", 3, "..k");
    ranks_run("left", 3, NULL);
}

static void nothing_is_left_behind(void **state)
{
    (void)state;
    ranks_run("leaks", 2, NULL);
    ranks_run("leaks", 3, NULL);
}

static void faults_are_the_same_among_threads(void **state)
{
    (void)state;
    ranks_run_threads("other_call", 3);
    ranks_run_threads("late", 3);
    ranks_run_threads("aborted", 3);
    ranks_run_threads("canceled", 3);
    ranks_run_threads("other_group", 3);
    ranks_run_threads("exchange_alone", 2);
    ranks_run_threads("exchange_other_size", 2);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_are_the_same_among_threads),
        cmocka_unit_test(dead_ranks_are_named), /* a comm may have a thread */
        cmocka_unit_test(ranks_in_different_calls_are_told),
        cmocka_unit_test(canceled_waits_end_on_all_ranks),
        cmocka_unit_test(late_ranks_are_named),
        cmocka_unit_test(nothing_is_left_behind),
    };
    const struct CMUnitTest threads[] = { tests[0], tests[1] };
    return SEES_THREADS_ONLY
               ? cmocka_run_group_tests_name("comm.faults", threads, NULL, NULL)
               : cmocka_run_group_tests_name("comm.faults", tests, NULL, NULL);
}
