/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of actors on other hosts by itself: with actors that share memory
 * with their parent, with those that do not, and over TLS.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "tests/actor/hosts_rig.h"

static size_t size_of_echo(size_t i)
{
    return 1 + i * i * 37 % 90000;
}

/* Messages are sent to both before they have started. */
static void messages_keep_their_order(void **state)
{
    enum { MANY = 300 };
    static unsigned char data[90000];
    size_t next[2] = { 0, 0 };
    (void)state;
    for (size_t i = 0; i < (size_t)2 * MANY; i++) {
        memset(data, 'A' + (int)(i / 2 % 20), size_of_echo(i / 2));
        assert_int_equal(
            ops->send(self, peers[i % 2], data, size_of_echo(i / 2), NULL, 0),
            XRAY_OK);
    }
    while (next[0] < MANY || next[1] < MANY) {
        assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
        size_t *i = &next[event.peer == peers[1]];
        const unsigned char *bytes = event.data;
        assert_int_equal(event.size, size_of_echo(*i));
        assert_int_equal(bytes[0], 'A' + *i % 20);
        assert_int_equal(bytes[event.size - 1], 'A' + *i % 20);
        ++*i;
    }
    assert_int_equal(ops->poll(self, 0, &event), XRAY_AGAIN);
}

static void regions_carry_parts(void **state)
{
    xray_region *region = NULL;
    char text[32];
    (void)state;
    assert_int_equal(ops->region_create(self, 2 * PAGE, &region), XRAY_OK);
    assert_ptr_equal(ops->region_find(self, NULL, region->id), region);
    (void)snprintf(text, sizeof(text), "r%llu", (unsigned long long)region->id);
    const unsigned char *bytes = fill_bytes(region, 3);
    region->first = 100;
    region->count = 50;
    send_text(peers[0], text, region);
    (void)fill_bytes(region, 50);
    expect_text(peers[0], "sum 150");
    /* The actor's copy has zeros around the part, and answers the second half.
     */
    assert_int_equal(bytes[2 * PAGE - 1], 1);
    assert_int_equal(bytes[PAGE], 1);
    assert_int_equal(bytes[PAGE - 1], 50);
    region->first = PAGE;
    region->count = 0;
    send_text(peers[0], text, region);
    expect_text(peers[0], "sum 8342"); /* the first half of the last turn */
    assert_int_equal(bytes[PAGE], 2);
    assert_int_equal(bytes[99], 50);
    ops->region_destroy(self, region);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
}

static void parts_may_be_of_any_length(void **state)
{
    static const uint64_t lengths[] = { 1, 2, 3, 4, 7, 8, 9, 31, 32, 33, 128 };
    (void)state;
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        xray_region *region = NULL;
        char text[32];
        assert_int_equal(ops->region_create(self, PAGE, &region), XRAY_OK);
        (void)snprintf(text, sizeof(text), "r%llu",
                       (unsigned long long)region->id);
        (void)fill_bytes(region, 7);
        region->first = 3;
        region->count = lengths[i];
        send_text(peers[0], text, region);
        (void)snprintf(text, sizeof(text), "sum %llu",
                       (unsigned long long)(7 * lengths[i]));
        expect_text(peers[0], text);
        ops->region_destroy(self, region);
    }
}

static void actors_create_regions(void **state)
{
    (void)state;
    send_text(peers[0], "m", NULL);
    expect_text(peers[0], "region");
    xray_region *region = ops->region_find(self, peers[0], 1);
    assert_non_null(region);
    assert_ptr_equal(region->peer, peers[0]);
    assert_int_equal(region->size, 2 * PAGE);
    assert_int_equal((uintptr_t)region->data % PAGE, 0);
    assert_int_equal(((char *)region->data)[5], 'm');
    assert_null(ops->region_find(self, peers[1], 1));
    assert_null(ops->region_find(self, NULL, 1));
    send_text(peers[0], "o", NULL);
    expect_text(peers[0], "region");
    assert_int_equal(((char *)region->data)[5], 'o');
    assert_int_equal(ops->send(self, peers[1], "A", 1, &region, 1), XRAY_E_ARG);
    region->first = 2 * PAGE;
    region->count = 1;
    assert_int_equal(ops->send(self, peers[0], "A", 1, &region, 1), XRAY_E_ARG);
    send_text(peers[0], "d", NULL);
    expect_text(peers[0], "destroyed");
    assert_null(ops->region_find(self, peers[0], 1));
}

/* Both sides send more than a socket holds, and neither waits for the other. */
static void large_regions_pass_both_ways(void **state)
{
    xray_region *regions[2];
    char text[32];
    (void)state;
    for (uint32_t i = 0; i < 2; i++) { /* both have started */
        send_text(peers[i], "A", NULL);
        expect_text(peers[i], "A");
    }
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(ops->region_create(self, LARGE, &regions[i]), XRAY_OK);
        (void)snprintf(text, sizeof(text), "r%llu",
                       (unsigned long long)regions[i]->id);
        (void)fill_bytes(regions[i], 1);
        send_text(peers[0], text, regions[i]);
    }
    for (uint32_t i = 0; i < 2; i++) {
        const unsigned char *bytes = regions[i]->data;
        expect_text(peers[0], "sum 33554432");
        assert_int_equal(bytes[LARGE / 2], 2);
        assert_int_equal(bytes[LARGE - 1], 2);
        assert_int_equal(bytes[0], copies ? 1 : 2);
    }
    /* One that is gone when its bytes come back takes none. The message before
     * it shows a thread sanitizer that the actor has done with the region. */
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    send_text(peers[0], text, regions[1]);
    ops->region_destroy(self, regions[1]);
    expect_text(peers[0], copies ? "sum 50331648" : "sum 67108864");
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    ops->region_destroy(self, regions[0]);
}

/* The parent reads the record and gives a word while the actor computes. */
static void records_and_words_pass_a_busy_actor(void **state)
{
    char first[32] = "0";
    char later[32] = "0";
    uint64_t stride = 1;
    (void)state;
    assert_null(ops->records(self, &stride));
    assert_null(ops->notice(self));
    send_text(peers[0], "c", NULL);
    while (strcmp(first, "0") == 0) {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], first, sizeof(first));
    }
    do {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], later, sizeof(later));
    } while (strcmp(first, later) == 0);
    assert_int_equal((uintptr_t)ops->record(self, peers[1]) % 64, 0);
    ops->notify(self, peers[0], 7);
    expect_text(peers[0], "word 7");
    /* One that is given before the actor has started arrives as well. */
    ops->kill(self, peers[0]);
    peers[0] = spawn_program(argv_of_actor, 0);
    say_word_of_record(peers[0], later, sizeof(later));
    assert_string_equal(later, "0");
    ops->notify(self, peers[0], 9);
    send_text(peers[0], "c", NULL);
    expect_text(peers[0], "word 9");
}

/* An actor's record holds its own bytes alone, whichever of the actors writes.
 */
static void each_actor_has_its_own_record(void **state)
{
    (void)state;
    char idle[32] = "0";
    char busy[32] = "0";
    for (uint32_t i = 2; i-- > 0;) {
        say_word_of_record(peers[i], busy, sizeof(busy));
        assert_string_equal(busy, "0");
        send_text(peers[i], "c", NULL);
        for (int n = 0; n < 3000 && strcmp(busy, "0") == 0; n++) {
            assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
            say_word_of_record(peers[i], busy, sizeof(busy));
            say_word_of_record(peers[0], idle, sizeof(idle));
        }
        assert_string_not_equal(busy, "0");
        if (i)
            assert_string_equal(idle, "0");
        ops->notify(self, peers[i], 7 + i);
        expect_text(peers[i], i ? "word 8" : "word 7");
    }
}

static void ends_are_reported(void **state)
{
    char text[32] = "0";
    (void)state;
    send_text(peers[0], "c", NULL);
    while (strcmp(text, "0") == 0) {
        assert_int_equal(ops->poll(self, 10, &event), XRAY_AGAIN);
        say_word_of_record(peers[0], text, sizeof(text));
    }
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGKILL), 0);
    expect_loss(peers[0], "was killed by signal 9 (Killed)", 0);
    say_word_of_record(peers[0], text, sizeof(text));
    assert_string_not_equal(text, "0");
    assert_int_equal(ops->send(self, peers[0], "A", 1, NULL, 0), XRAY_E_PEER);
    assert_int_equal(ops->pid(self, peers[0]), 0);
    /* Its last message comes before its loss. */
    send_text(peers[1], "A", NULL);
    send_text(peers[1], "x3", NULL);
    expect_text(peers[1], "A");
    expect_loss(peers[1], "exited with status 3", 0);
    ops->kill(self, peers[1]);
    peers[1] = spawn_program(argv_of_actor, 1);
    send_text(peers[1], "quit", NULL);
    expect_loss(peers[1], "exited with status 0", 1);
    ops->kill(self, peers[1]);
    peers[1] = spawn_program(argv_of_actor, 1);
    send_text(peers[1], "gggggggggggggggggggggggggggggggggggggggggggg", NULL);
    expect_loss(peers[1],
                over_tls() ? "sent bytes that arrived damaged"
                           : "sent bytes that are no frame",
                0);
}

/* Waits until all that a process sent before its end is here. */
static void await_end(const xray_peer *peer)
{
    struct pollfd ready = { .fd = peer->conn.fd, .events = POLLRDHUP };
    assert_int_equal(poll(&ready, 1, -1), 1);
}

/* Waits until a message of this size is here. */
static void await_bytes(const xray_peer *peer, int size)
{
    int have = 0;
    while (have < size)
        assert_int_equal(ioctl(peer->conn.fd, FIONREAD, &have), 0);
}

/* Actors whose messages have arrived take turns, but the loss of one and its
 * messages before it come first. */
static void events_have_an_order(void **state)
{
    char text[200];
    (void)state;
    memset(text, 'A', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    await_both();
    send_text(peers[0], text, NULL);
    await_bytes(peers[0], sizeof(text));
    send_text(peers[1], "B", NULL);
    send_text(peers[1], "quit", NULL);
    await_end(peers[1]);
    expect_text(peers[1], "B");
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_ptr_equal(event.peer, peers[1]);
    assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
    expect_text(peers[0], text);
    ops->kill(self, peers[1]);
    peers[1] = spawn_program(argv_of_actor, 1);
    await_both();
    for (uint32_t i = 0; i < 2; i++) {
        send_text(peers[i], "A", NULL);
        send_text(peers[i], "B", NULL);
        send_text(peers[i], "quit", NULL);
    }
    await_end(peers[0]);
    await_end(peers[1]);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
        assert_ptr_equal(event.peer, peers[i % 2]);
        assert_string_equal(event.data, i < 2 ? "A" : "B");
    }
}

static void silent_actors_are_killed(void **state)
{
    static const char *const sleeps[] = { "/bin/sh", "-c", "exec sleep 60",
                                          NULL };
    static const char *const ends[] = { "/bin/true", NULL };
    (void)state;
    create_with(1000, 20000);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGSTOP), 0);
    expect_loss(peers[0], "hangs: no sign of life for 1.", 0);
    assert_non_null(strstr(event.reason, ", its process is stopped"));
    ops->destroy(self);
    create_with(1000, 200);
    peers[0] = spawn_program(sleeps, 0);
    expect_loss(peers[0], "did not start within 0.2 s", 0);
    peers[1] = spawn_program(ends, 1);
    send_text(peers[1], "A", NULL);
    expect_loss(peers[1], "exited with status 0", 1);
}

/* An actor ends when the standard input that its launcher gave it does, though
 * its connection is still there. */
static void the_end_of_its_input_ends_an_actor(void **state)
{
    (void)state;
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    assert_int_equal(close(peers[0]->leash), 0);
    peers[0]->leash = -1;
    expect_loss(peers[0], "exited with status 1", 0);
    send_text(peers[1], "A", NULL);
    expect_text(peers[1], "A");
}

/* A command of `launch` may be a shell that waits for what it started. */
static void what_a_launched_shell_started_is_killed(void **state)
{
    static const char *const shell[] = { "/bin/sh", "-c", "sleep 5; exit",
                                         NULL };
    int status = 0;
    (void)state;
    /* Whoever loses its parent becomes a child of this process. */
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
    create_with(1000, 500);
    peers[0] = spawn_program(shell, 0);
    const pid_t group = (pid_t)ops->pid(self, peers[0]);
    expect_loss(peers[0], "did not start within 0.5 s", 0);
    while (waitpid(-group, &status, 0) > 0)
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* Sending to a stopped actor ends when that is found to hang. */
static void stopped_actor_delays_a_send(void **state)
{
    xray_region *region = NULL;
    (void)state;
    create_with(1000, 20000);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
    assert_int_equal(ops->region_create(self, LARGE, &region), XRAY_OK);
    assert_int_equal(kill((pid_t)ops->pid(self, peers[0]), SIGSTOP), 0);
    assert_int_equal(ops->send(self, peers[0], "A", 1, &region, 1),
                     XRAY_E_PEER);
    expect_loss(peers[0], "hangs: no sign of life for 1.", 0);
}

static void messages_carry_up_to_64_regions(void **state)
{
    xray_region *regions[65];
    (void)state;
    for (size_t i = 0; i < 65; i++)
        assert_int_equal(ops->region_create(self, PAGE, &regions[i]), XRAY_OK);
    assert_int_equal(ops->send(self, peers[0], "A", 2, regions, 64), XRAY_OK);
    expect_text(peers[0], "A");
    assert_int_equal(ops->send(self, peers[0], "A", 2, regions, 65),
                     XRAY_E_ARG);
    assert_string_equal(said, "a message of 2 bytes and 65 regions is larger "
                              "than 2147483648 bytes and 64 regions");
}

static void other_hosts_are_refused(void **state)
{
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = argv_of_actor,
                                   .host = "elsewhere",
                                   .index = 0 };
    const xray_actor_spec taken = { .header = XRAY_HEADER(xray_actor_spec),
                                    .name = "it",
                                    .argv = argv_of_actor,
                                    .index = 1 };
    xray_peer *peer = NULL;
    (void)state;
    ops->kill(self, peers[0]);
    assert_int_equal(ops->spawn(self, &spec, &peer), XRAY_E_UNSUPPORTED);
    assert_string_equal(said, "actor it: host \"elsewhere\" cannot be reached "
                              "without a launcher");
    assert_int_equal(ops->spawn(self, &taken, &peer), XRAY_E_ARG);
    static const char *const none[] = { "/no/such/program", NULL };
    const xray_actor_spec missing = { .header = XRAY_HEADER(xray_actor_spec),
                                      .name = "it",
                                      .argv = none };
    assert_int_equal(ops->spawn(self, &missing, &peer), XRAY_E_IO);
    assert_string_equal(said, "actor it: starting /no/such/program: No such "
                              "file or directory");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return run_actor(argv[2]);
    if (over_tls() && !xr_tls_is_there()) {
        print_message("skipped: " XR_TLS_MISSING "\n");
        return 77;
    }
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, start_actors, end_actors)
    const struct CMUnitTest both[] = {
        CASE(messages_keep_their_order),
        CASE(actors_create_regions),
        CASE(large_regions_pass_both_ways),
        CASE(records_and_words_pass_a_busy_actor),
        CASE(each_actor_has_its_own_record),
        CASE(ends_are_reported),
        CASE(events_have_an_order),
        cmocka_unit_test_setup_teardown(silent_actors_are_killed, count_files,
                                        end_actors),
    };
    const struct CMUnitTest copied[] = {
        CASE(regions_carry_parts),
        CASE(parts_may_be_of_any_length),
        CASE(messages_carry_up_to_64_regions),
        CASE(other_hosts_are_refused),
        CASE(the_end_of_its_input_ends_an_actor),
        cmocka_unit_test_setup_teardown(what_a_launched_shell_started_is_killed,
                                        count_files, end_actors),
        cmocka_unit_test_setup_teardown(stopped_actor_delays_a_send,
                                        count_files, end_actors),
    };
    int failed = over_tls() ? 0 : cmocka_run_group_tests(both, NULL, NULL);
    copies = 1;
    failed += cmocka_run_group_tests(both, NULL, NULL);
    return failed + cmocka_run_group_tests(copied, NULL, NULL);
}
