/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors that die, hang, fail or send malformed bytes are named with the
 * reason, and actors of a killed parent end.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>

#include "core/actor/local.h"
#include "core/plugin/cancel.h"
#include "tests/actor/rig.h"

extern char **environ;

/* No child is left, nothing is mapped and no fd is open that was not. */
static void expect_nothing_left(uint32_t fds)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    assert_int_equal(rig_maps(), 0);
    assert_int_equal(rig_fds(), fds);
}

static void send_signal(uint64_t pid, int number)
{
    assert_int_equal(kill((pid_t)pid, number), 0);
}

static void killed_actor_is_named(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 1);
    xr_actor *other = rig_spawn(actors, 2);
    xr_future *running = NULL;
    xr_future *queued = NULL;
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &running, 60000u));
    RIG_OK(xr_actor_call(actor, "count", &err, &queued, 0u, NULL));
    assert_int_equal(xr_future_wait(running, 300, &err), XRAY_E_PEER);
    RIG_OK(xr_actors_check(actors, &err));
    send_signal(xr_actor_pid(actor), SIGKILL);
    assert_int_equal(xr_future_wait(running, 60000, &err), XRAY_E_PEER);
    rig_says(err.text, "actor workhorse 1 (rank 1, pid ",
             "method pass_time: was killed by signal 9 (Killed), in phase "
             "\"forward of block 3\"",
             NULL);
    assert_int_equal(xr_future_wait(queued, 0, &err), XRAY_E_PEER);
    rig_says(err.text, "method count: was killed by signal 9", NULL);
    assert_int_equal(xr_actor_ask(actor, "count", 100, &err, 0u, NULL),
                     XRAY_E_PEER);
    assert_int_equal(xr_actors_check(actors, &err), XRAY_E_PEER);
    rig_says(err.text, "actor workhorse 1", "method pass_time: was killed",
             NULL);
    assert_int_equal(xr_actor_pid(actor), 0);
    /* The others still work, and its index can be used again. */
    RIG_OK(xr_actor_ask(other, "count", 10000, &err, 0u, NULL));
    xr_actor_kill(actor);
    RIG_OK(xr_actors_check(actors, &err));
    actor = rig_spawn(actors, 1);
    RIG_OK(xr_actor_ask(actor, "count", 10000, &err, 0u, NULL));
    xr_actors_free(actors);
    expect_nothing_left(fds);
}

static void stopped_actor_is_killed(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    const uint64_t pid = xr_actor_pid(actor);
    xr_future *future = NULL;
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &future, 60000u));
    assert_int_equal(xr_future_wait(future, 300, &err), XRAY_E_PEER);
    send_signal(pid, SIGSTOP);
    assert_int_equal(xr_future_wait(future, 60000, &err), XRAY_E_PEER);
    const char *seconds = rig_after(err.text, "hangs: no sign of life for ");
    assert_in_range(strtoul(seconds, NULL, 10), 3, 30);
    rig_says(seconds, " s, its process is stopped (killed)",
             "\"forward of block 3\"", NULL);
    assert_true(rig_gone(pid, 1000));
    xr_actors_free(actors);
    expect_nothing_left(fds);
}

/* A method may take longer than the limit of silence. */
static void long_methods_are_no_hang(void **state)
{
    (void)state;
    const xr_actors_setup setup = { .actors = 1, .hang_ms = 400 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(&setup);
    xr_actor *actor = rig_spawn(actors, 0);
    RIG_OK(xr_actor_ask(actor, "pass_time", 30000, &err, 1500u));
    /* A parent that did not poll for longer than the limit blames nobody. The
     * call takes a while, so that the parent checks during its wait. */
    const struct timespec t = { 1, 0 };
    (void)nanosleep(&t, NULL);
    RIG_OK(xr_actor_ask(actor, "pass_time", 30000, &err, 300u));
    xr_actors_free(actors);
}

/* Nor does a parent that was stopped together with all its processes, or that
 * has no limit of silence. */
static void stopped_actors_may_be_waited_for(void **state)
{
    (void)state;
    static const uint32_t limits[] = { 2000, UINT32_MAX };
    for (size_t i = 0; i < 2; i++) {
        const xr_actors_setup setup = { .actors = 1, .hang_ms = limits[i] };
        /* It counts as half a second of silence. */
        const struct timespec gap = { i ? 0 : 2, i ? 0 : 500000000 };
        xr_err err = { "" };
        xr_actors *actors = rig_actors(&setup);
        xr_actor *actor = rig_spawn(actors, 0);
        xr_future *future = NULL;
        send_signal(xr_actor_pid(actor), SIGSTOP);
        RIG_OK(xr_actor_call(actor, "count", &err, &future, 0u, NULL));
        /* The parent sees the last sign of life before the gap. */
        assert_int_equal(xr_future_wait(future, 100, &err), XRAY_E_PEER);
        (void)nanosleep(&gap, NULL);
        assert_int_equal(xr_future_wait(future, 100, &err), XRAY_E_PEER);
        rig_says(err.text, "method count: no answer within 0.1 s", NULL);
        RIG_OK(xr_actors_check(actors, &err));
        send_signal(xr_actor_pid(actor), SIGCONT);
        RIG_OK(xr_future_wait(future, 30000, &err));
        xr_actors_free(actors);
    }
}

static void exits_are_reported(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    static const struct {
        int32_t how;
        const char *says;
    } ends[] = { { 3, "method die: exited with status 3" },
                 { 0, "method die: exited with status 0" },
                 { -SIGUSR1, "method die: was killed by signal 10" } };
    xr_err err = { "" };
    const uint32_t fds = rig_fds();
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        xr_actors *actors = rig_actors(NULL);
        xr_actor *actor = rig_spawn(actors, 0);
        xray_status status =
            xr_actor_ask(actor, "die", 60000, &err, ends[i].how);
        assert_int_equal(status, XRAY_E_PEER);
        rig_says(err.text, ends[i].says, "in phase \"die\"", NULL);
        xr_actors_free(actors);
    }
    expect_nothing_left(fds);
}

/* Signals that this process ignores or blocks reach an actor all the same. */
static void actors_start_with_default_signals(void **state)
{
    (void)state;
    sigset_t blocked;
    sigset_t before;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGUSR2);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &blocked, &before), 0);
    void (*handler)(int) = signal(SIGUSR1, SIG_IGN);
    xr_actor *first = rig_spawn(actors, 0);
    xr_actor *second = rig_spawn(actors, 1);
    (void)signal(SIGUSR1, handler);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    assert_int_equal(xr_actor_ask(first, "die", 60000, &err, -SIGUSR1),
                     XRAY_E_PEER);
    rig_says(err.text, "method die: was killed by signal 10", NULL);
    assert_int_equal(xr_actor_ask(second, "die", 60000, &err, -SIGUSR2),
                     XRAY_E_PEER);
    rig_says(err.text, "method die: was killed by signal 12", NULL);
    xr_actors_free(actors);
}

static void one_loss_ends_all_waits(void **state)
{
    (void)state;
    const xr_actors_setup setup = { .actors = 2, .fail_together = 1 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(&setup);
    xr_actor *first = rig_spawn(actors, 0);
    xr_actor *second = rig_spawn(actors, 1);
    xr_future *futures[2];
    size_t index;
    RIG_OK(xr_actor_call(first, "pass_time", &err, &futures[0], 60000u));
    RIG_OK(xr_actor_call(second, "pass_time", &err, &futures[1], 60000u));
    assert_int_equal(xr_future_wait(futures[0], 200, &err), XRAY_E_PEER);
    send_signal(xr_actor_pid(second), SIGKILL);
    assert_int_equal(xr_future_wait(futures[0], 60000, &err), XRAY_E_PEER);
    rig_says(err.text, "actor workhorse 1", "killed by signal 9", NULL);
    RIG_OK(xr_future_wait_any(futures, 2, 1000, &err, &index));
    assert_int_equal(index, 1);
    assert_int_equal(xr_future_wait_any(futures, 1, 1000, &err, &index),
                     XRAY_E_PEER);
    /* After a cancel the others may still be ending: they have their time. */
    xr_cancel();
    assert_int_equal(xr_future_wait(futures[0], 60000, &err), XRAY_E_CANCELED);
    xr_cancel_reset();
    xr_actors_free(actors);
}

static xray_status start_actor(xr_actors *actors, const char *program,
                               const char *text, int64_t timeout_ms,
                               xr_err *err)
{
    const char *const argv[] = { program, "--actor", NULL };
    const xr_actor_spawn_spec spec = { &rig_class, argv, "workhorse 0",
                                       text,       0,    1 };
    xr_actor *actor = NULL;
    xray_status status = xr_actor_spawn(actors, &spec, err, &actor);
    if (status)
        return status;
    status = xr_actor_ready(actor, timeout_ms, err);
    xr_err other = { "" };
    if (!status || timeout_ms < 1000)
        xr_actor_kill(actor);
    else /* later calls fail with the same reason, or with its end */
        assert_int_equal(xr_actor_stop(actor, 10000, &other), XRAY_E_PEER);
    return status;
}

static void failed_starts_are_explained(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    const xr_actors_setup setup = { .actors = 1, .start_ms = 500 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    static const char *const self = "/proc/self/exe";
    assert_int_equal(start_actor(actors, "/no/such/program", "", 1000, &err),
                     XRAY_E_IO);
    rig_says(err.text, "actor workhorse 0: starting /no/such/program: No such",
             NULL);
    assert_int_equal(start_actor(actors, self, "fail", 30000, &err),
                     XRAY_E_CONFIG);
    rig_says(err.text, "method create: the text says so", NULL);
    assert_int_equal(start_actor(actors, self, "exit", 30000, &err),
                     XRAY_E_PEER);
    rig_says(err.text, "method create: exited with status 7", NULL);
    assert_int_equal(start_actor(actors, self, "sleep", 500, &err),
                     XRAY_E_PEER);
    rig_says(err.text, "method create: no answer within 0.5 s", NULL);
    assert_int_equal(start_actor(actors, "/bin/true", "", 30000, &err),
                     XRAY_E_PEER);
    rig_says(err.text, "method create: exited with status", NULL);
    xr_actors_free(actors);
    /* A program that is not an actor and does not end. */
    actors = rig_actors(&setup);
    const char *const argv[] = { "/bin/sh", "-c", "exec sleep 60", NULL };
    const xr_actor_spawn_spec spec = { &rig_class, argv, "sh", "", 0, 1 };
    xr_actor *actor = NULL;
    RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
    assert_int_equal(xr_actor_ready(actor, 30000, &err), XRAY_E_PEER);
    rig_says(err.text, "did not start within 0.5 s", NULL);
    xr_actors_free(actors);
    expect_nothing_left(fds);
}

/* The second of two actors refuses to be created while the slow first one is
 * waited for. The status is that of the refusal. */
static void refusal_of_another_is_reported(void **state)
{
    (void)state;
    const xr_actors_setup setup = { .actors = 2, .fail_together = 1 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(&setup);
    const char *const texts[] = { "sleep", "fail" };
    xr_actor *made[2];
    for (uint32_t i = 0; i < 2; i++) {
        const xr_actor_spawn_spec spec = { &rig_class, rig_argv, "workhorse",
                                           texts[i],   i,        1,
                                           NULL,       0 };
        RIG_OK(xr_actor_spawn(actors, &spec, &err, &made[i]));
    }
    assert_int_equal(xr_actor_ready(made[0], 30000, &err), XRAY_E_CONFIG);
    rig_says(err.text, "rank 1", "it was not created", "the text says so",
             NULL);
    xr_actors_free(actors);
}

static void malformed_bytes_end_an_actor(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    /* An unknown frame; one of 2^60 bytes; a region without memory; a hello; a
     * malformed message; an answer to no call, and a malformed message after
     * it: the first reason stays. */
    static const struct {
        const char *bytes;
        size_t size;
        const char *says;
    } frames[] = {
        { "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", 32, "no frame" },
        { "\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
          32, "no frame" },
        { "\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0",
          32, "sent a region that cannot be mapped" },
        { "\2\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0",
          32, "no frame" },
        { "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
          32, "cannot be mapped" },
        { "\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0zzz",
          35, "sent a malformed message" },
        { "\1\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"
          "\2\x77\xa1\0\0"
          "\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0zzz",
          72, "answered call 119, which is not the call in turn" },
    };
    const uint32_t fds = rig_fds();
    for (size_t i = 0; i < sizeof(frames) / sizeof(frames[0]); i++) {
        xr_err err = { "" };
        xr_actors *actors = rig_actors(NULL);
        xr_actor *actor = rig_spawn(actors, 0);
        xr_actor *other = rig_spawn(actors, 1);
        xray_status status =
            xr_actor_ask(actor, "garbage", 20000, &err, frames[i].bytes,
                         (uint64_t)frames[i].size);
        assert_int_equal(status, XRAY_E_PEER);
        rig_says(err.text, "method garbage", frames[i].says, NULL);
        /* Its further bytes are taken while another one is waited for. */
        RIG_OK(xr_actor_ask(other, "pass_time", 20000, &err, 100u));
        status = xr_actor_ask(actor, "garbage", 20000, &err, "", UINT64_C(0));
        assert_int_equal(status, XRAY_E_PEER);
        rig_says(err.text, "method garbage", frames[i].says, NULL);
        xr_actors_free(actors);
    }
    expect_nothing_left(fds);
}

/* ---- a runtime that returns wrong values ---- */

static xray_runtime_event ill_event;

static void *give_no_record(void *self, xray_peer *peer)
{
    (void)self;
    (void)peer;
    return NULL;
}

static xray_status give_ill_event(void *self, int64_t timeout_ms,
                                  xray_runtime_event *out)
{
    (void)self;
    (void)timeout_ms;
    *out = ill_event;
    return XRAY_OK;
}

static xray_status give_no_peer(void *self, const xray_actor_spec *spec,
                                xray_peer **out)
{
    (void)self;
    (void)spec;
    (void)out;
    return XRAY_OK;
}

static xray_status give_small_region(void *self, uint64_t size,
                                     xray_region **out)
{
    xray_status status = xr_local_runtime.region_create(self, size, out);
    if (status == XRAY_OK)
        (*out)->size = 1;
    return status;
}

static xray_status give_no_region(void *self, uint64_t size, xray_region **out)
{
    (void)self;
    (void)size;
    (void)out;
    return XRAY_OK;
}

static void expect_check_fails(xr_actors *actors, xray_status status,
                               const char *says)
{
    xr_err err = { "" };
    assert_int_equal(xr_actors_check(actors, &err), status);
    rig_says(err.text, says, NULL);
}

static void faults_of_a_runtime_are_named(void **state)
{
    xray_runtime_ops sick = xr_local_runtime;
    const xr_actors_setup setup = { .ops = &sick, .actors = 2 };
    const xr_actor_spawn_spec spec = { &rig_class, rig_argv, "x",  "",
                                       0,          1,        NULL, 0 };
    xr_actor *actor = NULL;
    xray_region *region = NULL;
    xr_actors *actors = NULL;
    xr_err err = { "" };
    (void)state;
    const uint32_t fds = rig_fds();
    actors = rig_actors(&setup);
    sick.record = give_no_record;
    assert_int_equal(xr_actor_spawn(actors, &spec, &err, &actor), XRAY_E_BUG);
    rig_says(err.text, "the runtime's record returned no memory", NULL);
    sick.spawn = give_no_peer;
    assert_int_equal(xr_actor_spawn(actors, &spec, &err, &actor), XRAY_E_BUG);
    rig_says(err.text, "spawn returned neither a peer nor an error", NULL);
    sick.region_create = give_no_region;
    assert_int_equal(xr_region_get(actors, 4096, &err, &region), XRAY_E_BUG);
    rig_says(err.text, "region_create returned no region of 4096 bytes", NULL);
    sick.region_create = give_small_region;
    assert_int_equal(xr_region_get(actors, 4096, &err, &region), XRAY_E_BUG);
    rig_says(err.text, "region_create returned no region of 4096 bytes", NULL);
    sick.poll = give_ill_event;
    ill_event = (xray_runtime_event){ .kind = 9 };
    expect_check_fails(actors, XRAY_E_BUG,
                       "an event of kind 9, which does not exist");
    ill_event = (xray_runtime_event){ .kind = XRAY_RUNTIME_LOST };
    expect_check_fails(actors, XRAY_E_BUG, "a loss without its reason");
    ill_event = (xray_runtime_event){ .kind = XRAY_RUNTIME_MESSAGE, .size = 4 };
    expect_check_fails(actors, XRAY_E_BUG,
                       "a message of 4 bytes without its data");
    xr_actors_free(actors);
    expect_nothing_left(fds);
}

static void many_actors_leave_nothing(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    enum { CYCLES = 200 };
    xr_err err = { "" };
    const uint32_t outside = rig_fds();
    xr_actors *actors = rig_actors(NULL);
    const uint32_t fds = rig_fds();
    for (uint32_t i = 0; i < CYCLES; i++) {
        const xr_actor_spawn_spec spec = { &rig_class, rig_argv, "workhorse",
                                           "",         i % 4,    1,
                                           NULL,       0 };
        xr_actor *actor = NULL;
        xray_region *region = NULL;
        uint64_t sum;
        RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
        if (i % 4 == 0) { /* at once */
            xr_actor_kill(actor);
            continue;
        }
        RIG_OK(xr_region_get(actors, 8192, &err, &region));
        if (i % 4 == 1) { /* with a call under way */
            xr_future *future = NULL;
            RIG_OK(xr_actor_call(actor, "add_one", &err, &future, region,
                                 UINT64_C(8192), &sum));
            xr_region_put(actors, region);
            xr_actor_kill(actor);
            continue;
        }
        RIG_OK(xr_actor_ask(actor, "add_one", 30000, &err, region,
                            UINT64_C(8192), &sum));
        xr_region_put(actors, region);
        RIG_OK(xr_actor_ask(actor, "make", 30000, &err, UINT64_C(8192), 1u,
                            &region));
        if (i % 4 == 2) { /* in order */
            xr_region_put(actors, region);
            RIG_OK(xr_actor_stop(actor, 30000, &err));
        } else { /* with a region of it in hand */
            xr_actor_kill(actor);
        }
    }
    assert_int_equal(xr_region_count(actors), 1);
    assert_int_equal(rig_fds(), fds + 1);
    xr_actors_free(actors);
    expect_nothing_left(outside);
}

/* ---- A parent that is killed ---- */

/* Prints the pids of its actors and waits for a method that does not end. */
static int run_parent(void)
{
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor[2] = { rig_spawn(actors, 0), rig_spawn(actors, 1) };
    xr_future *future = NULL;
    RIG_OK(xr_actor_call(actor[0], "pass_time", &err, &future, 60000u));
    const uint64_t pids[2] = { xr_actor_pid(actor[0]), xr_actor_pid(actor[1]) };
    if (write(1, pids, sizeof(pids)) != (ssize_t)sizeof(pids))
        return 1;
    (void)xr_future_wait(future, 60000, &err);
    return 1;
}

static void actors_end_with_their_parent(void **state)
{
    (void)state;
    int ends[2];
    posix_spawn_file_actions_t actions;
    char program[] = "/proc/self/exe";
    char word[] = "--parent";
    char *argv[] = { program, word, NULL };
    pid_t parent = 0;
    uint64_t pids[2] = { 0 };
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    assert_int_equal(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), 0);
    assert_int_equal(
        posix_spawn(&parent, program, &actions, NULL, argv, environ), 0);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    assert_int_equal(read(ends[0], pids, sizeof(pids)), sizeof(pids));
    assert_true(rig_alive(pids[0]) && rig_alive(pids[1]));
    send_signal((uint64_t)parent, SIGKILL);
    assert_int_equal(waitpid(parent, NULL, 0), parent);
    assert_true(rig_gone(pids[0], 2000));
    assert_true(rig_gone(pids[1], 2000));
    (void)close(ends[0]);
}

static void slow_end_is_no_hang(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    RIG_OK(xr_actor_ask(actor, "leave_late", 10000, &err));
    RIG_OK(xr_actor_stop(actor, 30000, &err));
    xr_actors_free(actors);
}

/* xr_actor_stop reports a process that did not end in order. */
static void bad_end_is_reported(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    RIG_OK(xr_actor_ask(actor, "leave_badly", 10000, &err));
    assert_int_equal(xr_actor_stop(actor, 10000, &err), XRAY_E_PEER);
    rig_says(err.text, "actor workhorse 0 (rank 0, pid ",
             "method stop: exited with status 3", NULL);
    RIG_OK(xr_actors_check(actors, &err));
    xr_actors_free(actors);
}

/* Ctrl-C reaches the process group, but a parent decides on its actors. */
static void terminal_signals_are_ignored(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    for (size_t i = 0; i < 3; i++)
        send_signal(xr_actor_pid(actor),
                    ((int[]){ SIGINT, SIGTERM, SIGHUP })[i]);
    RIG_OK(xr_actor_ask(actor, "count", 10000, &err, 0u, NULL));
    RIG_OK(xr_actor_stop(actor, 10000, &err));
    /* An actor that is busy is killed after the timeout. */
    xr_future *future = NULL;
    actor = rig_spawn(actors, 0);
    const uint64_t pid = xr_actor_pid(actor);
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &future, 60000u));
    assert_int_equal(xr_actor_stop(actor, 300, &err), XRAY_E_PEER);
    rig_says(err.text, "method stop: no answer within 0.", NULL);
    assert_false(rig_alive(pid));
    xr_actors_free(actors);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (rig_child(argc, argv, &code))
        return code;
    if (argc == 2 && !strcmp(argv[1], "--parent"))
        return run_parent();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_actor_is_named),
        cmocka_unit_test(stopped_actor_is_killed),
        cmocka_unit_test(long_methods_are_no_hang),
        cmocka_unit_test(stopped_actors_may_be_waited_for),
        cmocka_unit_test(exits_are_reported),
        cmocka_unit_test(actors_start_with_default_signals),
        cmocka_unit_test(one_loss_ends_all_waits),
        cmocka_unit_test(failed_starts_are_explained),
        cmocka_unit_test(refusal_of_another_is_reported),
        cmocka_unit_test(malformed_bytes_end_an_actor),
        cmocka_unit_test(faults_of_a_runtime_are_named),
        cmocka_unit_test(many_actors_leave_nothing),
        cmocka_unit_test(actors_end_with_their_parent),
        cmocka_unit_test(slow_end_is_no_hang),
        cmocka_unit_test(bad_end_is_reported),
        cmocka_unit_test(terminal_signals_are_ignored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
