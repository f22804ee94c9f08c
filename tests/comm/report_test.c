/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what comm-shm says of each rank, and of the cause, when a call ends:
 * the states of the ranks are written to their shared memory, and no rank runs.
 */
#define _GNU_SOURCE
#include <unistd.h>

#include "plugins/comm-shm/shm.h"
#include "tests/testing.h"

#define RANKS 8
#define NUMBER 10 /* of the call that ends */

/* Rank 0 and what the others have written. */
static struct {
    xray_host host;
    shm_comm comm;
    shm_peer peers[RANKS];
    shm_channel channel;
    shm_offer offer;
    uint32_t ranks[RANKS];
    char said[2048];
} rig;

static xray_status record_failure(const xray_host *host, xray_status code,
                                  const char *where, const char *text)
{
    (void)host;
    (void)snprintf(rig.said, sizeof(rig.said), "%s: %s", where, text);
    return code;
}

static int open_rig(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof(rig));
    rig.host =
        (xray_host){ .header = XRAY_HEADER(xray_host), .fail = record_failure };
    rig.comm = (shm_comm){ .host = &rig.host,
                           .size = RANKS,
                           .timeout = 500000000u,
                           .peers = rig.peers };
    if (!shm_control_create(&rig.comm.control, RANKS, &rig.offer))
        return -1;
    for (uint32_t r = 0; r < RANKS; r++) {
        rig.ranks[r] = r;
        rig.peers[r].pid = (uint32_t)getpid();
        rig.peers[r].pidfd = -1;
    }
    rig.channel =
        (shm_channel){ .comm = &rig.comm,
                       .number = shm_channel_claim(&rig.comm.control, 7, 0),
                       .group = 3,
                       .count = RANKS,
                       .ranks = rig.ranks,
                       .calls = NUMBER - 1 };
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    shm_control_leave(&rig.comm.control);
    return close(rig.offer.fd);
}

static const shm_call reduce = { .call = XRAY_COMM_ALL_REDUCE,
                                 .dtype = XRAY_F32,
                                 .call_bytes = 64 };

/* Writes that a rank is in its call number `calls` of group 3, over 64 bytes.
 */
static shm_rank_state *set_state(uint32_t rank, uint64_t calls, uint32_t call,
                                 uint32_t state)
{
    shm_rank_state *area = shm_rank_state_of(&rig.comm.control, rank);
    area->calls = calls;
    area->bytes = 64;
    area->since = shm_clock();
    area->group = 3;
    area->call = call;
    area->dtype = XRAY_F32;
    area->root = 5;
    area->state = state;
    return area;
}

/* No process has this number. */
static void bury_process(uint32_t rank)
{
    rig.peers[rank].pid = 2000000000u + rank;
}

/* The times that ranks have been in their calls are not compared. */
static void drop_times(void)
{
    char *at = rig.said;
    while ((at = strstr(at, " for "))) {
        char *end = at + 5 + strspn(at + 5, "0123456789.");
        memmove(at + 5, end, strlen(end) + 1);
        at += 5;
    }
}

static void a_report_tells_of_every_rank(void **state)
{
    (void)state;
    (void)set_state(0, NUMBER, XRAY_COMM_ALL_REDUCE, SHM_WORKS);
    (void)set_state(1, NUMBER, XRAY_COMM_ALL_REDUCE, SHM_WAITS);
    (void)set_state(2, NUMBER - 1, XRAY_COMM_ALL_GATHER, SHM_OUTSIDE);
    (void)set_state(3, 0, 0, SHM_OUTSIDE);
    (void)set_state(4, NUMBER, XRAY_COMM_BROADCAST, SHM_GAVE_UP);
    (void)set_state(5, NUMBER, XRAY_COMM_ALL_REDUCE, SHM_WAITS);
    (void)set_state(6, NUMBER - 1, XRAY_COMM_ALL_GATHER, SHM_OUTSIDE);
    set_state(7, NUMBER, XRAY_COMM_ALL_REDUCE, SHM_WAITS)->left = 1;
    bury_process(5);
    bury_process(6);
    bury_process(7); /* that it has ended its part is why */
    assert_int_equal(shm_report_ranks(&rig.channel, &reduce, SHM_LATE),
                     XRAY_E_PEER);
    drop_times();
    assert_string_equal(
        rig.said,
        "all_reduce of 64 bytes of f32 in group 3: not all ranks arrived "
        "within 0.5 s: rank 0 works in all_reduce of 64 bytes of f32 in group "
        "3 for  s; rank 1 waits in all_reduce of 64 bytes of f32 in group 3 "
        "for  s; rank 2 is outside any collective, after all_gather of 64 "
        "bytes in group 3; rank 3 is outside any collective; rank 4 gave up in "
        "broadcast of 64 bytes from rank 5 in group 3; rank 5 (pid 2000000005) "
        "is dead, in all_reduce of 64 bytes of f32 in group 3; rank 6 (pid "
        "2000000006) is dead, after all_gather of 64 bytes in group 3; rank 7 "
        "has ended its part");
}

/* A rank that was in the call, and is elsewhere now, gave up in it. */
static void who_has_left_the_call_gave_up_in_it(void **state)
{
    static const struct {
        shm_call_desc desc; /* of rank 6 */
        const char *said;
    } cases[] = {
        { { .call = XRAY_COMM_SEND, .call_bytes = 100 },
          "rank 6 gave up in send of 100 bytes to rank 2 in group 3" },
        { { .call = XRAY_COMM_RECV, .call_bytes = 100, .half = 1 },
          "rank 6 gave up in the exchange's recv of 100 bytes from rank 2 in "
          "group 3" },
        { { .call = XRAY_COMM_BROADCAST, .call_bytes = 100, .root = 1 },
          "rank 6 gave up in broadcast of 100 bytes from rank 6 in group 3" },
        { { .call = XRAY_COMM_ALL_REDUCE,
            .call_bytes = 100,
            .dtype = XRAY_BF16 },
          "rank 6 gave up in all_reduce of 100 bytes of bf16 in group 3" },
    };
    static const uint32_t two[2] = { 2, 6 };
    const uint64_t tag = shm_call_tag(rig.channel.number, NUMBER);
    shm_rank_state *area =
        set_state(6, NUMBER, XRAY_COMM_ALL_REDUCE, SHM_WAITS);
    shm_member *member = shm_member_of(
        shm_round_of(&rig.comm.control, rig.channel.number, NUMBER & 1), 1);
    (void)state;
    rig.comm.rank = 2;
    rig.channel.ranks = two;
    rig.channel.count = 2;
    member->arrived = NUMBER;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        member->desc = cases[i].desc;
        area->now[0] = area->now[1] = shm_call_tag(77, NUMBER);
        (void)shm_report_ranks(&rig.channel, &reduce, SHM_DIFFERENT);
        if (!strstr(rig.said, cases[i].said))
            fail_msg("no \"%s\" in: %s", cases[i].said, rig.said);
        /* In either half of an exchange it is still there. */
        for (uint32_t half = 0; half < 2; half++) {
            area->now[half] = tag;
            area->now[1 - half] = shm_call_tag(77, NUMBER);
            (void)shm_report_ranks(&rig.channel, &reduce, SHM_DIFFERENT);
            assert_non_null(strstr(rig.said, "rank 6 waits in all_reduce of"));
        }
    }
    member->arrived = NUMBER - 2; /* nor was it in this one */
    area->now[0] = area->now[1] = 0;
    (void)shm_report_ranks(&rig.channel, &reduce, SHM_DIFFERENT);
    assert_non_null(strstr(rig.said, "rank 6 waits in all_reduce of"));
}

static void causes_are_told(void **state)
{
    static const struct {
        uint32_t cause;
        const char *said;
    } cases[] = {
        { SHM_LATE, "group 3: not all ranks arrived within 0.5 s: " },
        { SHM_DEAD, "group 3: a rank is dead: " },
        { SHM_DIFFERENT, "group 3: the ranks are in different calls: " },
        { SHM_ABORTED, "group 3: rank 5 was told to stop: " },
        { SHM_FAILED, "group 3: rank 5 failed in the call: " },
        { SHM_LEFT, "group 3: a rank has ended its part: " },
        { SHM_CANCELED, "group 3: the run is stopped: " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            shm_report_ranks(&rig.channel, &reduce, cases[i].cause + 256 * 5),
            cases[i].cause == SHM_CANCELED ? XRAY_E_CANCELED : XRAY_E_PEER);
        if (!strstr(rig.said, cases[i].said))
            fail_msg("no \"%s\" in: %s", cases[i].said, rig.said);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_report_tells_of_every_rank),
        CASE(who_has_left_the_call_gave_up_in_it),
        CASE(causes_are_told),
    };
    return cmocka_run_group_tests_name("comm.report", tests, NULL, NULL);
}
