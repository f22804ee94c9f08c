/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves for ranks on two hosts that the bits are those of comm-shm wherever
 * each rank is, also over a line that delays and loses what is sent; that a
 * line which is cut, or of which one end is gone, is noticed in time with the
 * rank's name, and one that is only late is not; and that between hosts go the
 * bytes of one rank of each. The hosts are network namespaces; where the system
 * makes none, the ranks are on one host and the lines are not tested.
 */
#define _GNU_SOURCE
#include "tests/comm/both.h"
#include "tests/tcp/hosts.h"

#include "tests/testing.h"

#include <signal.h>

#include <xray/numerics.h>

#include "plugins/comm-tcp/tcp.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_comm_tcp(uint32_t host_abi);

#define SOON 6000 /* ms: the heartbeat of 1 s, and 5 s */

static xray_device_ops device;

/* As in parts.c. Ranks are processes here. */
static xray_status create_device(const xray_host *host, const void *config,
                                 uint32_t threads, void **out_self)
{
    const xray_device_ops *cpu =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
    xray_status status = cpu->create(host, config, threads, out_self);
    return status == XRAY_OK ? cpu->shareable(*out_self, 1) : status;
}

/* A heartbeat of 1 s, or what XRAY_TEST_HEARTBEAT says in s. */
void ranks_parts(ranks_env *e)
{
    static tcp_config config = { .interface = "" };
    const char *seconds = getenv("XRAY_TEST_HEARTBEAT");
    config.heartbeat =
        (int64_t)(seconds ? strtoul(seconds, NULL, 10) : 1) * 1000000000;
    device = *(const xray_device_ops *)xray_plugin_query_device_cpu(XRAY_ABI)
                  ->components[0]
                  ->ops;
    device.create = create_device;
    e->dev = &device;
    e->comm = xray_plugin_query_comm_tcp(XRAY_ABI)->components[0]->ops;
    e->comm_config = &config;
    hosts_enter(e);
}

/* ---- bytes between hosts --------------------------------------------------
 */

#define CROSSING                                                      \
    (5u << 19) /* elements of f32: a slice of 4 ranks has more pieces \
                * than may wait */

/* Slices of an all-reduce that each host sends to the other: of the sums of
 * its blocks those that the other one holds, and once all that it holds. */
static const struct crossing {
    const char *places;
    uint32_t dtype;
    uint32_t sends[2];
} crossings[] = {
    { "aabb", XRAY_F32, { 2 + 2, 2 + 2 } },
    { "aaab", XRAY_F32, { 2 * 1 + 3, 3 + 1 } },
    { "abab", XRAY_F32, { 2 * 2 + 2, 2 * 2 + 2 } },
    { "aaaabbbb", XRAY_F32, { 4 + 4, 4 + 4 } },
    /* Sums of bf16 are fp32 on their way. */
    { "aaaabbbb", XRAY_BF16, { 2 * 4 + 4, 2 * 4 + 4 } },
    { "aabb", XRAY_BF16, { 2 * 2 + 2, 2 * 2 + 2 } },
};

/* Bytes that an interface of this rank's host has sent: the ninth number of its
 * line. */
static uint64_t read_sent(ranks_env *e, const char *interface)
{
    char line[512];
    char *at = NULL;
    uint64_t sent = 0;
    FILE *f = fopen("/proc/self/net/dev", "re");
    CHECK(e, f != NULL);
    while (!at && fgets(line, sizeof(line), f))
        at = strstr(line, interface);
    (void)fclose(f);
    CHECK(e, at != NULL);
    at += strlen(interface) + 1;
    for (int i = 0; i < 9; i++)
        sent = strtoull(at, &at, 10);
    return sent;
}

static void count_crossing(ranks_env *e, both *b, const struct crossing *c)
{
    uint32_t host = c->places[e->rank] == 'b';
    uint64_t count = c->dtype == XRAY_F32 ? CROSSING : 2 * CROSSING;
    uint64_t expected = b->bytes / e->size * c->sends[host];
    both_fill(b->in, b->bytes, e->rank);
    memcpy(b->own_out, b->in, b->bytes);
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    uint64_t wire = read_sent(e, "wire");
    uint64_t loop = read_sent(e, "lo");
    ranks_meet(e);
    CHECK_OK(e,
             e->comm->all_reduce(e->world, NULL, b->own_out, count, c->dtype));
    ranks_meet(e);
    wire = read_sent(e, "wire") - wire;
    loop = read_sent(e, "lo") - loop;
    memcpy(b->shm_out, b->in, b->bytes);
    CHECK_OK(e,
             b->shm->all_reduce(b->group, NULL, b->shm_out, count, c->dtype));
    CHECK(e, memcmp(b->own_out, b->shm_out, b->bytes) == 0);
    /* Headers, acknowledgements and what is sent again come on top. */
    if (wire < expected || wire > expected + expected / 10 ||
        loop > b->bytes / 10)
        (void)fprintf(stderr,
                      "host %c of %s sent %llu bytes, and %llu to itself; %llu "
                      "and few are expected\n",
                      'a' + (char)host, c->places, (unsigned long long)wire,
                      (unsigned long long)loop, (unsigned long long)expected);
    CHECK(e, wire >= expected && wire <= expected + expected / 10);
    CHECK(e, loop <= b->bytes / 10);
}

static void cross_once(ranks_env *e)
{
    const char *places = getenv("XRAY_TEST_PLACES");
    both b = both_begin(e);
    CHECK(e, places != NULL);
    b.bytes = CROSSING * sizeof(float);
    b.in = ranks_alloc(e, b.bytes);
    b.own_out = ranks_alloc(e, b.bytes);
    b.shm_out = ranks_alloc(e, b.bytes);
    for (size_t i = 0; i < sizeof(crossings) / sizeof(*crossings); i++)
        if (strcmp(crossings[i].places, places) == 0)
            count_crossing(e, &b, &crossings[i]);
    b.shm->destroy(b.shm_self);
}

/* ---- lines ----------------------------------------------------------------
 */

static void expect_silence(ranks_env *e, uint64_t start, xray_status status,
                           const char *words)
{
    CHECK(e, status == XRAY_E_PEER);
    CHECK(e, ranks_ms() - start < SOON);
    CHECK(e, ranks_said(e, "the host of a rank has been silent for 1.0 s"));
    CHECK(e, ranks_said(e, words));
    CHECK(e, ranks_said(e, " is silent, after all_reduce of 4 bytes"));
}

/* The line is cut while rank 0 waits for rank 1. The ranks on both sides learn
 * it. */
static void cut_line(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    uint64_t start = ranks_ms();
    if (e->rank == 1) {
        CHECK(e, hosts_cut());
        ranks_sleep_ms(300);
    }
    xray_status status = ranks_barrier(e, e->world);
    if (e->rank == 1 && status == XRAY_OK) /* rank 0 was earlier than the cut */
        status = ranks_barrier(e, e->world);
    expect_silence(e, start, status,
                   e->rank == 1 ? "rank 0 (pid " : "rank 1 (pid ");
    e->text[0] = '\0';
    start = ranks_ms();
    CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
    CHECK(e, ranks_ms() - start < 500); /* it does not wait again */
    CHECK(e, ranks_said(e, "has been silent for 1.0 s"));
    ranks_meet(e);
    if (e->rank == 1)
        CHECK(e, hosts_mend());
    ranks_meet(e);
}

/* The same while much is on the line. */
static void cut_line_in_work(ranks_env *e)
{
    const uint64_t count = 4u << 20;
    float *a = ranks_alloc(e, count * sizeof(*a));
    uint64_t start = 0;
    xray_status status = XRAY_OK;
    memset(a, 0, count * sizeof(*a));
    for (int turn = 0; status == XRAY_OK && turn < 1000; turn++) {
        if (e->rank == 1 && turn == 3)
            CHECK(e, hosts_cut());
        start = ranks_ms();
        status = e->comm->all_reduce(e->world, NULL, a, count, XRAY_F32);
    }
    CHECK(e, status == XRAY_E_PEER && ranks_ms() - start < SOON + 2000);
    CHECK(e, ranks_said(e, "has been silent for 1.0 s"));
    ranks_meet(e);
    if (e->rank == 1)
        CHECK(e, hosts_mend());
    ranks_meet(e);
}

/* Rank 1 ends while its line is cut, so that rank 0 does not hear it; then the
 * line is there again, but nobody is at its other end. */
static void end_unheard(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    if (e->rank == 1) {
        CHECK(e, hosts_cut());
        ranks_meet(e);
        (void)raise(SIGKILL);
    }
    ranks_meet(e);
    uint64_t start = ranks_ms();
    ranks_sleep_ms(50);
    CHECK(e, hosts_mend());
    xray_status status = ranks_barrier(e, e->world);
    CHECK(e, status == XRAY_E_PEER && ranks_ms() - start < SOON);
    CHECK(e, ranks_said(e, "rank 1 (pid "));
    CHECK(e, ranks_said(e, "is dead") || ranks_said(e, "is silent"));
}

/* A process that is stopped for longer than the heartbeat is not silent. */
static void stop_and_go_on(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    atomic_store(&e->all->notes[e->rank][0], (uint64_t)getpid());
    ranks_meet(e);
    if (e->rank == 0) {
        pid_t other = (pid_t)atomic_load(&e->all->notes[1][0]);
        CHECK(e, kill(other, SIGSTOP) == 0);
        ranks_sleep_ms(2500);
        CHECK(e, kill(other, SIGCONT) == 0);
    }
    CHECK_OK(e, ranks_barrier(e, e->world));
}

/* Segments that TCP of this rank's host has sent again: the twelfth number of
 * the second line that begins so. */
static uint64_t read_sent_again(ranks_env *e)
{
    char line[512];
    uint64_t again = 0;
    int lines = 0;
    FILE *f = fopen("/proc/self/net/snmp", "re");
    CHECK(e, f != NULL);
    while (lines < 2 && fgets(line, sizeof(line), f))
        lines += strncmp(line, "Tcp: ", 5) == 0;
    (void)fclose(f);
    CHECK(e, lines == 2);
    char *at = line + 5;
    for (int i = 0; i < 12; i++)
        again = strtoull(at, &at, 10);
    return again;
}

/* A line that loses and delays what is sent only takes longer. */
static void go_through_losses(ranks_env *e)
{
    uint64_t again = read_sent_again(e);
    uint64_t start = ranks_ms();
    for (int i = 0; i < 20; i++)
        CHECK_OK(e, ranks_barrier(e, e->world));
    CHECK(e, ranks_ms() - start >= 20); /* the least delay is 1 ms */
    both_compare(e);
    CHECK(e, read_sent_again(e) > again);
}

/* While ranks compute, the line falls silent for less than the heartbeat. The
 * last answer to a probe is from before that, when the lines were made. */
static void fall_silent(ranks_env *e)
{
    CHECK_OK(e, ranks_barrier(e, e->world));
    if (e->rank == 0) {
        ranks_sleep_ms(800);
        CHECK(e, hosts_cut());
        ranks_sleep_ms(2700);
        CHECK(e, hosts_mend());
    }
    ranks_meet(e);
    CHECK_OK(e, ranks_barrier(e, e->world));
}

const scenario ranks_scenarios[] = {
    { "bits", both_compare, 60000 },
    { "crossing", cross_once, 60000 },
    { "cut", cut_line, 60000 },
    { "cut_in_work", cut_line_in_work, 60000 },
    { "unheard", end_unheard, 60000 },
    { "stop", stop_and_go_on, 60000 },
    { "losses", go_through_losses, 60000 },
    { "silent", fall_silent, 60000 },
    { NULL, NULL, 0 },
};

static void skip_without_hosts(void)
{
    if (!hosts_are_there())
        skip();
}

static void bits_are_those_of_shm_wherever_ranks_are(void **state)
{
    static const char *const placements[] = { "ab",      "aab",     "aaab",
                                              "abba",    "babab",   "aabbab",
                                              "bbabaab", "aaaabbbb" };
    (void)state;
    for (size_t i = 0; i < sizeof(placements) / sizeof(*placements); i++) {
        uint32_t size = (uint32_t)strlen(placements[i]);
        hosts_place(hosts_are_there() ? placements[i] : NULL);
        ranks_run("bits", size, NULL);
    }
}

static void between_hosts_go_the_bytes_of_one_rank(void **state)
{
    static const char *const placements[] = { "aabb", "aaab", "abab",
                                              "aaaabbbb" };
    (void)state;
    skip_without_hosts();
    for (size_t i = 0; i < sizeof(placements) / sizeof(*placements); i++) {
        hosts_place(placements[i]);
        ranks_run("crossing", (uint32_t)strlen(placements[i]), NULL);
    }
}

static void cut_lines_are_noticed(void **state)
{
    (void)state;
    skip_without_hosts();
    hosts_place("ab");
    ranks_run("cut", 2, NULL);
    ranks_run("cut_in_work", 2, NULL);
    ranks_run("unheard", 2, ".k");
}

static void stopped_processes_are_waited_for(void **state)
{
    (void)state;
    hosts_place(hosts_are_there() ? "ab" : NULL);
    ranks_run("stop", 2, NULL);
}

static void skip_without_cable(const char *arguments)
{
    skip_without_hosts();
    if (!hosts_cable(arguments))
        skip();
}

static void losses_change_no_bits(void **state)
{
    (void)state;
    skip_without_cable("7 3 2 20");
    hosts_place("abab");
    (void)setenv("XRAY_TEST_HEARTBEAT", "3", 1);
    ranks_run("losses", 4, NULL);
}

static void
a_line_that_is_silent_for_less_than_the_heartbeat_is_kept(void **state)
{
    (void)state;
    skip_without_cable("8 0 0 0");
    hosts_place("ab");
    (void)setenv("XRAY_TEST_HEARTBEAT", "3", 1);
    ranks_run("silent", 2, NULL);
}

static void lines_that_seem_connected_are_noticed(void **state)
{
    (void)state;
    skip_without_cable("9 0 0 0");
    hosts_place("ab");
    ranks_run("cut", 2, NULL);
}

static int take_usual_heartbeat(void **state)
{
    (void)state;
    return unsetenv("XRAY_TEST_HEARTBEAT");
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const char *why = hosts_make();
    if (why)
        print_message("without hosts: %s\n", why);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_those_of_shm_wherever_ranks_are),
        cmocka_unit_test(between_hosts_go_the_bytes_of_one_rank),
        cmocka_unit_test(cut_lines_are_noticed),
        cmocka_unit_test(stopped_processes_are_waited_for),
        /* From here on there is a cable. */
        cmocka_unit_test_teardown(losses_change_no_bits, take_usual_heartbeat),
        cmocka_unit_test_teardown(
            a_line_that_is_silent_for_less_than_the_heartbeat_is_kept,
            take_usual_heartbeat),
        cmocka_unit_test(lines_that_seem_connected_are_noticed),
    };
    int failed = cmocka_run_group_tests_name("tcp.hosts", tests, NULL, NULL);
    if (!why)
        hosts_remove();
    return failed;
}
