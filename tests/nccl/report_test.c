/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which cause comm-nccl finds in the records of the other ranks, and
 * what it says of each: no rank runs, and no NCCL is there.
 */
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugins/comm-nccl/instance.h"
#include "tests/testing.h"

extern char **environ;

#define RANKS 8
#define SUM "all_reduce of 64 bytes in group 3"
#define HOUR 3600000000000u /* ns */

/* Rank 0, and what all have written. */
static struct {
    nccl_comm comm;
    nccl_peer peers[RANKS];
    xray_comm_trace traces[RANKS];
    uint32_t ranks[RANKS];
    xray_comm_group group;
} rig;

static int open_rig(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof(rig));
    rig.comm = (nccl_comm){ .size = RANKS,
                            .timeout = 500000000u,
                            .traces = rig.traces,
                            .trace_stride = sizeof(rig.traces[0]),
                            .peers = rig.peers };
    for (uint32_t r = 0; r < RANKS; r++) {
        rig.ranks[r] = r;
        rig.peers[r] = (nccl_peer){ .pid = (uint32_t)getpid(), .pidfd = -1 };
    }
    rig.group = (xray_comm_group){
        .comm = &rig.comm, .ranks = rig.ranks, .count = RANKS, .number = 3
    };
    return 0;
}

/* Writes what a rank tells of a call over 64 bytes of group 3. */
static void set_state(uint32_t rank, uint64_t calls, uint32_t call,
                      uint32_t state)
{
    rig.traces[rank].calls = calls;
    rig.traces[rank].bytes = 64;
    rig.traces[rank].since = nccl_clock();
    rig.traces[rank].group = 3;
    rig.traces[rank].call = call;
    rig.traces[rank].state = state;
}

/* No process has this number. */
static void bury_process(uint32_t rank)
{
    rig.peers[rank].near = 1;
    rig.peers[rank].pid = 2000000000u + rank;
}

/* The times that ranks have been in their calls are not compared. */
static void drop_times(char *at)
{
    while ((at = strstr(at, " for "))) {
        char *end = at + 5 + strspn(at + 5, "0123456789.");
        memmove(at + 5, end, strlen(end) + 1);
        at += 5;
    }
}

/* ---- reports --------------------------------------------------------------
 */

static void a_report_tells_of_every_rank(void **state)
{
    const nccl_slot slot = { .group = &rig.group,
                             .call = XRAY_COMM_ALL_REDUCE,
                             .dtype = XRAY_F32,
                             .bytes = 64 };
    (void)state;
    set_state(0, 10, XRAY_COMM_ALL_REDUCE, NCCL_WAITS);
    set_state(1, 10, XRAY_COMM_BROADCAST, NCCL_GAVE_UP | NCCL_DEAD << 8);
    set_state(2, 9, XRAY_COMM_ALL_GATHER, NCCL_OUTSIDE);
    set_state(3, 0, 0, NCCL_OUTSIDE);
    set_state(4, 0, 0, NCCL_GAVE_UP);
    set_state(5, 10, XRAY_COMM_ALL_REDUCE, NCCL_WAITS);
    set_state(6, 9, XRAY_COMM_ALL_GATHER, NCCL_OUTSIDE);
    set_state(7, 10, XRAY_COMM_ALL_REDUCE, NCCL_ENDED);
    bury_process(5);
    bury_process(6);
    bury_process(7); /* that it has ended its part is why */
    nccl_write_report(&rig.group, &slot, NCCL_LATE, NULL);
    drop_times(rig.group.text);
    assert_string_equal(rig.group.where,
                        "all_reduce of 64 bytes of f32 in group 3");
    assert_string_equal(
        rig.group.text,
        "not all ranks arrived within 0.5 s: rank 0 waits in all_reduce of 64 "
        "bytes in group 3 for  s; rank 1 gave up in broadcast of 64 bytes in "
        "group 3; rank 2 is outside any collective, after all_gather of 64 "
        "bytes in group 3; rank 3 is outside any collective; rank 4 gave up; "
        "rank 5 (pid 2000000005) is dead, in all_reduce of 64 bytes in group "
        "3; rank 6 (pid 2000000006) is dead, after all_gather of 64 bytes in "
        "group 3; rank 7 has ended its part");
}

static pid_t start_stopped_process(void)
{
    char name[] = "sleep";
    char seconds[] = "100";
    char *const argv[] = { name, seconds, NULL };
    pid_t pid = 0;
    int status = 0;
    assert_int_equal(posix_spawnp(&pid, name, NULL, NULL, argv, environ), 0);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    return pid;
}

/* The number of a process of another host is that of another process here. */
static void processes_of_this_host_are_looked_at(void **state)
{
    char want[400];
    (void)state;
    const pid_t pid = start_stopped_process();
    rig.group.count = 5;
    for (uint32_t r = 0; r < rig.group.count; r++)
        set_state(r, 10, XRAY_COMM_ALL_REDUCE, NCCL_WAITS);
    for (uint32_t r = 1; r < 3; r++) {
        bury_process(r);
        rig.peers[r + 2].pid = (uint32_t)pid;
        rig.peers[r].near = rig.peers[r + 2].near = r == 1;
    }
    nccl_write_report(&rig.group, NULL, NCCL_LATE, NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    drop_times(rig.group.text);
    (void)snprintf(
        want, sizeof(want),
        "not all ranks arrived within 0.5 s: rank 0 waits in %s for  s; rank 1 "
        "(pid 2000000001) is dead, in %s; rank 2 waits in %s for  s; rank 3 "
        "(pid %d) is stopped, in %s; rank 4 waits in %s for  s",
        SUM, SUM, SUM, (int)pid, SUM, SUM);
    assert_string_equal(rig.group.text, want);
}

static void causes_are_told(void **state)
{
    static const struct {
        uint32_t cause;
        const char *detail;
        const char *said;
    } cases[] = {
        { NCCL_LATE, NULL, "not all ranks arrived within 0.5 s" },
        { NCCL_DEAD, NULL, "a rank is dead" },
        { NCCL_ABORTED, NULL, "rank 5 was told to stop" },
        { NCCL_FAILED, NULL, "rank 5 failed in the call" },
        { NCCL_FAILED, "no way", "NCCL failed: no way" },
        { NCCL_LEFT, NULL, "a rank has ended its part" },
        { NCCL_CANCELED, NULL, "the run is stopped" },
    };
    (void)state;
    rig.comm.traces = NULL; /* what the others do is not known */
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        nccl_write_report(&rig.group, NULL, cases[i].cause | 6u << 8,
                          cases[i].detail);
        assert_string_equal(rig.group.where, "group 3");
        assert_string_equal(rig.group.text, cases[i].said);
    }
}

/* ---- causes ---------------------------------------------------------------
 */

#define GAVE_UP(cause, rank) \
    (NCCL_GAVE_UP | ((cause) | ((uint32_t)(rank) + 1) << 8) << 8)

static void causes_are_found_in_the_records(void **state)
{
    static const struct {
        uint32_t first, second; /* states of ranks 1 and 2 */
        uint64_t group;         /* of their calls */
        int dies;               /* rank that is dead, or 0 */
        int since;              /* 1: a rank has long left */
        uint32_t during;        /* cause for a call in progress */
        uint32_t before;        /* and for one that has not begun */
    } cases[] = {
        { NCCL_OUTSIDE, NCCL_WAITS, 3, 0, 0, 0, 0 },
        { GAVE_UP(NCCL_LATE, 1), NCCL_WAITS, 3, 0, 0, NCCL_LATE | 2 << 8,
          NCCL_LATE | 2 << 8 },
        /* In another group; but who was told to stop is so in all. */
        { GAVE_UP(NCCL_LATE, 1), NCCL_WAITS, 4, 0, 0, 0, 0 },
        { GAVE_UP(NCCL_ABORTED, 1), NCCL_WAITS, 4, 0, 0, NCCL_ABORTED | 2 << 8,
          NCCL_ABORTED | 2 << 8 },
        { GAVE_UP(NCCL_ABORTED, 2), NCCL_WAITS, 4, 0, 0, 0, 0 },
        /* Before a call there is no death to be looked for. */
        { NCCL_WAITS, NCCL_WAITS, 3, 2, 0, NCCL_DEAD, 0 },
        /* A call that a rank began before it left may yet be completed. */
        { NCCL_ENDED, NCCL_WAITS, 3, 0, 0, 0, NCCL_LEFT },
        { NCCL_ENDED, NCCL_WAITS, 3, 0, 1, NCCL_LEFT, NCCL_LEFT },
        /* It may have left because another one died. */
        { NCCL_ENDED, NCCL_WAITS, 3, 2, 0, NCCL_DEAD, NCCL_DEAD },
        { NCCL_ENDED, NCCL_WAITS, 3, 2, 1, NCCL_DEAD, NCCL_DEAD },
        { NCCL_ENDED, NCCL_WAITS, 3, 1, 1, NCCL_LEFT, NCCL_LEFT },
        { NCCL_ENDED, GAVE_UP(NCCL_DEAD, 2), 3, 0, 1, NCCL_DEAD | 3 << 8,
          NCCL_DEAD | 3 << 8 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)open_rig(state);
        set_state(1, 10, XRAY_COMM_ALL_REDUCE, cases[i].first);
        set_state(2, 10, XRAY_COMM_ALL_REDUCE, cases[i].second);
        rig.traces[1].group = rig.traces[2].group = cases[i].group;
        if (cases[i].dies)
            bury_process((uint32_t)cases[i].dies);
        rig.group.left_since = cases[i].since ? 1 : 0;
        rig.comm.timeout = 0;
        const uint32_t during =
            nccl_find_cause(&rig.comm, &rig.group, nccl_clock());
        const uint32_t before = nccl_find_departed(&rig.group);
        if (during != cases[i].during || before != cases[i].before)
            fail_msg("case %zu: %x, %x", i, during, before);
    }
}

/* A group that waits for a rank which has left says nothing of another one,
 * whose own rank leaves later. */
static void each_group_waits_for_those_who_have_left_it(void **state)
{
    static uint32_t two[2][2] = { { 0, 1 }, { 0, 2 } };
    xray_comm_group groups[2] = { rig.group, rig.group };
    (void)state;
    rig.comm.timeout = 0;
    for (uint32_t i = 0; i < 2; i++) {
        groups[i].count = 2;
        groups[i].ranks = two[i];
    }
    groups[0].left_since = 1;
    set_state(1, 10, XRAY_COMM_ALL_REDUCE, NCCL_ENDED);
    set_state(2, 10, XRAY_COMM_ALL_REDUCE, NCCL_ENDED);
    assert_int_equal(nccl_find_cause(&rig.comm, &groups[0], nccl_clock()),
                     NCCL_LEFT);
    rig.comm.last_check = 0;
    assert_int_equal(nccl_find_cause(&rig.comm, &groups[1], nccl_clock()), 0);
    assert_int_not_equal(groups[1].left_since, 0);
}

/* A call is late by its own time, however often the others are looked at. */
static void a_call_is_late_after_the_timeout(void **state)
{
    (void)state;
    rig.comm.timeout = HOUR;
    const uint64_t now = nccl_clock();
    assert_int_equal(nccl_find_cause(&rig.comm, &rig.group, now), 0);
    assert_int_equal(nccl_find_cause(&rig.comm, &rig.group, now - HOUR),
                     NCCL_LATE);
    rig.comm.timeout = 0; /* there is none */
    assert_int_equal(nccl_find_cause(&rig.comm, &rig.group, now - HOUR), 0);
}

static uint32_t aborts;

static int count_abort(void *native)
{
    (void)native;
    aborts++;
    return NCCL_SUCCESS;
}

/* A communicator is aborted once, whoever closes it and however often; one in
 * which a thread is only by force. */
static void communicators_are_closed_once(void **state)
{
    static const struct {
        uint64_t gate;
        int force;
        uint32_t aborts;
    } cases[] = {
        { NCCL_OPEN, 0, 1 },  { NCCL_OPEN, 1, 1 },   { NCCL_ASKED, 0, 0 },
        { NCCL_ASKED, 1, 1 }, { NCCL_CLOSED, 0, 0 }, { NCCL_CLOSED, 1, 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)open_rig(state);
        rig.comm.api.abort = count_abort;
        aborts = 0;
        atomic_store(&rig.group.gate, cases[i].gate);
        for (int turn = 0; turn < 2; turn++) {
            nccl_close(&rig.group, cases[i].force);
            nccl_abort_closed(&rig.group);
            assert_int_equal(aborts, cases[i].aborts);
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, open_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_report_tells_of_every_rank),
        CASE(processes_of_this_host_are_looked_at),
        CASE(causes_are_told),
        CASE(causes_are_found_in_the_records),
        CASE(each_group_waits_for_those_who_have_left_it),
        CASE(a_call_is_late_after_the_timeout),
        CASE(communicators_are_closed_once),
    };
    return cmocka_run_group_tests_name("nccl.report", tests, NULL, NULL);
}
