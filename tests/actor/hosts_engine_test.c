/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors that the launcher of an engine starts, which here is a fake: what they
 * say, how they end, and what the launcher fails to do.
 */
#define _GNU_SOURCE
#include <signal.h>

#include "tests/actor/hosts_rig.h"
#include "tests/fakes/launcher.h"

static fake_launcher fake;
static uint32_t failures; /* of `next`, since it fails; 0: it does not */
static uint32_t strays;   /* events about nobody that come first */

static xray_status next_or_stray(void *at, xray_launch_event *out)
{
    const xray_launch_event stray = { .header = XRAY_HEADER(xray_launch_event),
                                      .kind = XRAY_LAUNCH_ENDED,
                                      .index = strays == 1 ? 77 : 1,
                                      .text = "is gone" };
    if (failures) {
        failures++;
        return XRAY_E_IO;
    }
    if (!strays)
        return fake_next(at, out);
    strays--;
    xray_fill(out, &stray);
    return XRAY_OK;
}

static const xray_launcher_ops fake_ops = {
    .header = XRAY_HEADER(xray_launcher_ops),
    .host_of = fake_host_of,
    .start = fake_start,
    .stop = fake_stop,
    .events = fake_events,
    .next = next_or_stray,
};

static xray_status ignore_reason(const xray_host *from, xray_status status,
                                 const char *where, const char *text)
{
    (void)from;
    (void)where;
    (void)text;
    return status;
}

static const xray_host quiet = { .header = XRAY_HEADER(xray_host),
                                 .fail = ignore_reason };

static int open_engine(void **state)
{
    assert_int_equal(fake_launcher_open(&fake, &quiet), 0);
    launcher = &fake_ops;
    launcher_self = &fake;
    strays = 0;
    failures = 0;
    return count_files(state);
}

static int start_on_engine(void **state)
{
    return open_engine(state) || start_actors(state);
}

static int close_engine(void **state)
{
    int failed = end_actors(state);
    fake_launcher_close(&fake);
    return failed;
}

static void signal_place(uint32_t index, int number)
{
    assert_true(fake.place[index].pid > 0);
    assert_int_equal(kill(fake.place[index].pid, number), 0);
}

static void actors_answer_and_end(void **state)
{
    (void)state;
    await_both();
    assert_int_equal(ops->pid(self, peers[0]), 0);
    send_text(peers[0], "quit", NULL);
    expect_loss(peers[0], "exited with status 0", 1);
    /* Its last message comes before its loss. */
    send_text(peers[1], "A", NULL);
    send_text(peers[1], "x3", NULL);
    expect_text(peers[1], "A");
    expect_loss(peers[1], "exited with status 3", 0);
}

static void killed_actor_is_named(void **state)
{
    (void)state;
    await_both();
    fake.late = 50; /* the connection closes first */
    signal_place(0, SIGKILL);
    expect_loss(peers[0], "was killed by signal 9 (Killed)", 0);
    assert_int_equal(fake.late, 0);
    assert_int_equal(ops->send(self, peers[0], "A", 1, NULL, 0), XRAY_E_PEER);
}

/* Ends that the launcher reports of others, and of nobody, harm no actor. */
static void events_about_others_are_ignored(void **state)
{
    (void)state;
    await_both();
    ops->kill(self, peers[1]);
    assert_int_equal(fake.place[1].pid, 0);
    strays = 2;
    signal_place(0, SIGTERM);
    expect_loss(peers[0], "was killed by signal 15 (Terminated)", 0);
    assert_int_equal(strays, 0);
    /* A place is used again. */
    ops->kill(self, peers[0]);
    peers[0] = spawn_program(argv_of_actor, 0);
    send_text(peers[0], "A", NULL);
    expect_text(peers[0], "A");
}

static const char *const saying[] = {
    "/bin/sh", "-c", "echo first >&2; echo no module >&2; exit 3", NULL
};
static const char *const dying[] = { "/bin/sh", "-c",
                                     "echo going >&2; kill -KILL $$", NULL };
static const char *const mute[] = { "/bin/sh", "-c", "exit 0", NULL };

static void early_ends_say_why(void **state)
{
    (void)state;
    create_with(20000, 20000);
    xray_peer *peer = spawn_program(saying, 0);
    expect_loss(
        peer, "did not start: its process exited with status 3: no module", 0);
    ops->kill(self, peer);
    peer = spawn_program(dying, 0);
    expect_loss(peer,
                "did not start: its process was killed by signal 9 (Killed): "
                "going",
                0);
    ops->kill(self, peer);
    peer = spawn_program(mute, 0);
    expect_loss(peer, "did not start: its process exited with status 0", 0);
    assert_string_equal(event.reason,
                        "did not start: its process exited with status 0");
}

/* Words that a process said before it greeted the run are no reason of its end.
 */
static void later_ends_say_nothing_of_the_start(void **state)
{
    char program[512] = "";
    const char *const argv[] = {
        "/bin/sh", "-c",      "echo a warning >&2; exec \"$0\" \"$@\"",
        program,   "--actor", NULL
    };
    (void)state;
    assert_true(readlink("/proc/self/exe", program, sizeof(program) - 1) > 0);
    create_with(20000, 20000);
    xray_peer *peer = spawn_program(argv, 0);
    send_text(peer, "A", NULL);
    expect_text(peer, "A");
    signal_place(0, SIGKILL);
    expect_loss(peer, "was killed by signal 9 (Killed)", 0);
    assert_string_equal(event.reason, "was killed by signal 9 (Killed)");
}

static void failed_start_is_an_error(void **state)
{
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = argv_of_actor,
                                   .host = "node7" };
    xray_peer *peer = NULL;
    (void)state;
    create_with(20000, 20000);
    fake.refuses = 1;
    assert_int_equal(ops->spawn(self, &spec, &peer), XRAY_E_IO);
    assert_string_equal(said, "actor it: its engine did not start it");
    fake.refuses = 0;
    assert_int_equal(ops->spawn(self, &spec, &peer), XRAY_OK);
    send_text(peer, "A", NULL);
    expect_text(peer, "A");
}

/* The launcher cannot tell whether a process is stopped. */
static void silent_actors_are_killed(void **state)
{
    static const char *const sleeping[] = { "/bin/sh", "-c", "exec sleep 60",
                                            NULL };
    (void)state;
    create_with(1000, 20000);
    xray_peer *peer = spawn_program(argv_of_actor, 0);
    send_text(peer, "A", NULL);
    expect_text(peer, "A");
    signal_place(0, SIGSTOP);
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
    assert_non_null(strstr(event.reason, "hangs: no sign of life for 1."));
    assert_non_null(strstr(
        event.reason, "s, its host or the network to it may be down (killed)"));
    assert_int_equal(fake.place[0].pid, 0);
    ops->destroy(self);
    create_with(1000, 300);
    peer = spawn_program(sleeping, 0);
    expect_loss(peer, "did not start within 0.3 s (killed)", 0);
    assert_int_equal(fake.place[0].pid, 0);
}

/* A launcher that reports nothing leaves what the connection shows. */
static void launcher_may_be_mute(void **state)
{
    (void)state;
    fake.mute = 1;
    create_with(20000, 20000);
    xray_peer *peer = spawn_program(argv_of_actor, 0);
    send_text(peer, "A", NULL);
    expect_text(peer, "A");
    signal_place(0, SIGKILL);
    expect_loss(peer, "closed its connection to the parent", 0);
    assert_int_equal(fake.place[0].pid, 0);
}

/* A launcher without its engine is not asked again and again. */
static void launcher_may_fail(void **state)
{
    (void)state;
    create_with(20000, 20000);
    xray_peer *peer = spawn_program(argv_of_actor, 0);
    send_text(peer, "A", NULL);
    expect_text(peer, "A");
    failures = 1;
    signal_place(0, SIGKILL);
    expect_loss(peer, "closed its connection to the parent", 0);
    assert_in_range(failures, 2, 6);
    assert_int_equal(fake.place[0].pid, 0);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return run_actor(argv[2]);
#define STARTED(name) \
    cmocka_unit_test_setup_teardown(name, start_on_engine, close_engine)
#define OPENED(name) \
    cmocka_unit_test_setup_teardown(name, open_engine, close_engine)
    const struct CMUnitTest tests[] = {
        STARTED(actors_answer_and_end),
        STARTED(killed_actor_is_named),
        STARTED(events_about_others_are_ignored),
        OPENED(early_ends_say_why),
        OPENED(later_ends_say_nothing_of_the_start),
        OPENED(failed_start_is_an_error),
        OPENED(silent_actors_are_killed),
        OPENED(launcher_may_be_mute),
        OPENED(launcher_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
