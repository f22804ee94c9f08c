/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors of the parent's own host share its memory; others of the same run, and
 * those that cannot, have copies.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "tests/actor/hosts_rig.h"

/* Has this process map no shared memory: 0, or -1 where that cannot be had. */
static int refuse_shared_memory(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof(rules) / sizeof(rules[0]),
                                        rules };
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
                   prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)
               ? -1
               : 0;
}

static xray_region *make_filled(uint64_t size, int byte, char *text, size_t cap)
{
    xray_region *region = NULL;
    assert_int_equal(ops->region_create(self, size, &region), XRAY_OK);
    (void)fill_bytes(region, byte);
    (void)snprintf(text, cap, "r%llu", (unsigned long long)region->id);
    return region;
}

/* Bytes that the actor has received. */
static uint64_t ask_total(xray_peer *peer)
{
    send_text(peer, "t", NULL);
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_int_equal(event.kind, XRAY_RUNTIME_MESSAGE);
    return strtoull(event.data, NULL, 10);
}

/* A large region passes both ways, and only its name by the socket. */
static void memory_is_shared_within_a_host(void **state)
{
    char text[32];
    (void)state;
    await_both();
    xray_region *region = make_filled(LARGE, 1, text, sizeof(text));
    const unsigned char *bytes = region->data;
    const uint64_t before[2] = { peers[0]->conn.total, ask_total(peers[0]) };
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 33554432");
    assert_int_equal(bytes[0], 2);
    send_text(peers[1], text, region); /* and a second actor maps it, too */
    expect_text(peers[1], "sum 67108864");
    assert_int_equal(bytes[LARGE - 1], 3);
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 100663296");
    assert_true(ask_total(peers[0]) - before[1] < 10000);
    assert_true(peers[0]->conn.total - before[0] < 100000);
    assert_int_equal(notes, 0);
    /* An actor sees bytes that are written to its region. */
    send_text(peers[0], "m", NULL);
    expect_text(peers[0], "region");
    xray_region *theirs = ops->region_find(self, peers[0], 1);
    assert_non_null(theirs);
    send_text(peers[0], "o", theirs);
    expect_text(peers[0], "region");
    assert_int_equal(((char *)theirs->data)[5], 'o');
    assert_int_equal(count_maps(), 2);
    send_text(peers[0], "d", NULL);
    expect_text(peers[0], "destroyed");
    assert_int_equal(count_maps(), 1);
    ops->region_destroy(self, region);
    assert_int_equal(count_maps(), 0);
}

/* The memory outlives the descriptor of its creator, and a new actor in the
 * place of a killed one is given it again. */
static void memory_ends_with_those_who_map_it(void **state)
{
    char text[32];
    (void)state;
    await_both();
    xray_region *region = make_filled(PAGE, 1, text, sizeof(text));
    send_text(peers[0], "m", NULL);
    expect_text(peers[0], "region");
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 4096");
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGKILL), 0);
    expect_loss(peers[0], "was killed by signal 9 (Killed)", 0);
    assert_int_equal(count_maps(), 2);
    ops->kill(self, peers[0]);
    assert_int_equal(count_maps(), 1);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 8192");
    const unsigned char *bytes = region->data;
    assert_int_equal(bytes[0], 3);
    send_text(peers[0], text, region);
    ops->region_destroy(self, region);
    expect_text(peers[0], "sum 12288");
}

/* The other actor takes the long way, by an address that the Unix socket does
 * not know, as one of another host does: the same region is shared with the
 * first and copied to the second. */
static void shared_and_copied_regions_mix(void **state)
{
    static const xray_actor_spec far = { .header = XRAY_HEADER(xray_actor_spec),
                                         .name = "far",
                                         .argv = argv_of_actor,
                                         .host = "far",
                                         .index = 1 };
    char text[32];
    (void)state;
    await_both();
    ops->kill(self, peers[1]);
    assert_int_equal(ops->spawn(self, &far, &peers[1]), XRAY_OK);
    await_both();
    xray_region *region = make_filled(2 * PAGE, 1, text, sizeof(text));
    const unsigned char *bytes = region->data;
    for (int turn = 1; turn < 3; turn++) {
        send_text(peers[1], text, region);
        expect_text(peers[1], turn == 1 ? "sum 8192" : "sum 20480");
        assert_int_equal(bytes[0], turn); /* it carries the second half */
        assert_int_equal(bytes[2 * PAGE - 1], 2 * turn);
        send_text(peers[0], text, region);
        expect_text(peers[0], turn == 1 ? "sum 12288" : "sum 24576");
        assert_int_equal(bytes[0], turn + 1);
    }
    assert_int_equal(notes, 1);
    assert_string_equal(noted,
                        "actor far is on this host, but shares no memory "
                        "with the run, so its regions are copied: it "
                        "came over TCP");
}

/* A process that may not map the memory gets copies of it. */
static void memory_that_cannot_be_mapped_is_copied(void **state)
{
    static const char *const barred[] = { "/proc/self/exe", "--barred", NULL };
    char text[32];
    (void)state;
    await_both();
    ops->kill(self, peers[0]);
    peers[0] = spawn_program(barred, 0);
    send_text(peers[0], "A", NULL);
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    if (event.kind == XRAY_RUNTIME_LOST &&
        strcmp(event.reason, "exited with status 77") == 0)
        skip();
    assert_string_equal(event.data, "A");
    assert_int_equal(notes, 1);
    assert_string_equal(noted, "actor it is on this host, but shares no memory "
                               "with the run, so its regions are copied: it "
                               "cannot map it");
    xray_region *region = make_filled(2 * PAGE, 1, text, sizeof(text));
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 8192");
    const unsigned char *bytes = region->data;
    assert_int_equal(bytes[0], 1);
    assert_int_equal(bytes[2 * PAGE - 1], 2);
    send_text(peers[0], "m", NULL);
    expect_text(peers[0], "region");
}

/* A region has one memory, and none has the number 0. */
static void memory_is_passed_once(void **state)
{
    (void)state;
    await_both();
    send_text(peers[0], "f7", NULL);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    const xray_region *region = ops->region_find(self, peers[0], 7);
    assert_non_null(region);
    assert_int_equal(region->size, PAGE);
    send_text(peers[0], "f7", NULL);
    send_text(peers[1], "f0", NULL);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
        assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
        assert_string_equal(
            event.reason,
            "sent bytes that are no frame of this program (killed)");
    }
}

int main(int argc, char **argv)
{
    static char mapped[400];
    char *program = realpath(argv[0], NULL);
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return run_actor(argv[2]);
    if (argc == 3 && strcmp(argv[1], "--barred") == 0)
        return refuse_shared_memory() ? 77 : run_actor(argv[2]);
    /* An IPv6 form of the address, by which TCP reaches it as well. */
    (void)snprintf(mapped, sizeof(mapped),
                   "sh -c 'a={address}; exec %s --actor tcp:::ffff:${a#tcp:}'",
                   program);
    free(program);
    launch = mapped;
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, start_actors, end_actors)
        CASE(memory_is_shared_within_a_host),
        CASE(memory_ends_with_those_who_map_it),
        CASE(memory_is_passed_once),
        CASE(shared_and_copied_regions_mix),
        CASE(memory_that_cannot_be_mapped_is_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
