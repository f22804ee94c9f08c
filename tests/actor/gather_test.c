/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors of the local runtime gather bytes, show their records, are heard in
 * turn, run on this host only, and may start slowly.
 */
#include <sched.h>
#include <unistd.h>

#include "core/actor/local.h"
#include "tests/actor/rig.h"

/* Calls `gather` on the first `count` actors, with the rank in each's bytes. */
static void call_gather(xr_actor *const *actors, uint32_t count, uint64_t ms,
                        xr_future **futures, xr_str *out)
{
    xr_err err = { "" };
    for (uint32_t i = 0; i < count; i++) {
        const char mine[3] = { (char)('a' + i), 'x', (char)('0' + i) };
        RIG_OK(xr_actor_call(actors[i], "gather", &err, &futures[i], mine,
                             UINT64_C(3), ms, &out[i]));
    }
}

static void actors_gather_their_bytes(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *four[4];
    xr_future *futures[4];
    xr_str out[4] = { { 0 } };
    for (uint32_t i = 0; i < 4; i++)
        four[3 - i] = rig_spawn(actors, 3 - i);
    for (int round = 0; round < 50; round++) {
        call_gather(four, 4, 10000, futures, out);
        for (uint32_t i = 4; i-- > 0;) {
            RIG_OK(xr_future_wait(futures[i], 20000, &err));
            assert_string_equal(xr_str_text(&out[i]), "ax0bx1cx2dx3");
        }
    }
    /* Two of four ranks arrive. What is sent to them meanwhile is kept. */
    call_gather(four, 2, 300, futures, out);
    uint32_t index = 0;
    RIG_OK(
        xr_actor_ask(four[1], "look", 10000, &err, NULL, &index, NULL, NULL));
    assert_int_equal(index, 1);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(xr_future_wait(futures[i], 20000, &err), XRAY_E_PEER);
        rig_says(err.text, "method gather",
                 "gather of 3 bytes among 4 ranks: rank 2, 3 did not arrive "
                 "within 0.3 s (this is rank ",
                 NULL);
    }
    /* They are in step again. */
    call_gather(four, 4, 10000, futures, out);
    for (uint32_t i = 0; i < 4; i++) {
        RIG_OK(xr_future_wait(futures[i], 20000, &err));
        xr_str_free(&out[i]);
    }
    xr_actors_free(actors);
}

static void gathers_that_cannot_end_are_refused(void **state)
{
    (void)state;
    xr_err err = { "" };
    const xr_actors_setup setup = { .actors = 4, .extra = RIG_EXTRA };
    xr_actors *actors = rig_actors(&setup);
    xr_actor *four[4];
    xr_future *futures[4];
    for (uint32_t i = 0; i < 4; i++)
        four[i] = rig_spawn(actors, i);
    for (uint32_t i = 0; i < 4; i++)
        RIG_OK(xr_actor_call(four[i], "gather", &err, &futures[i], "abcd",
                             UINT64_C(1) + (i == 2), UINT64_C(0), NULL));
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(xr_future_wait(futures[i], 20000, &err), XRAY_E_PEER);
        rig_says(err.text, "gather: rank ", " bytes, but rank ", "rank 2 has 2",
                 NULL);
    }
    /* Without a time limit, the loss of an actor ends it. */
    for (uint32_t i = 0; i < 3; i++)
        RIG_OK(xr_actor_call(four[i], "gather", &err, &futures[i], "",
                             UINT64_C(0), UINT64_C(0), NULL));
    assert_int_equal(xr_actor_ask(four[3], "die", 10000, &err, 9), XRAY_E_PEER);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(xr_future_wait(futures[i], 20000, &err), XRAY_E_PEER);
        rig_says(err.text, "gather of 0 bytes among 4 ranks: rank 3 is gone",
                 NULL);
    }
    xr_actors_free(actors);
}

/* The caller reads an actor's bytes at any time, and other actors do. */
static void actors_show_their_records(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    xr_err err = { "" };
    xr_str before = { 0 };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *four[4];
    for (uint32_t i = 0; i < 4; i++)
        four[i] = rig_spawn(actors, i);
    assert_int_equal((uintptr_t)xr_actor_extra_of(four[1]) % 64, 0);
    RIG_OK(xr_actor_ask(four[2], "mark", 10000, &err, "collective 7", &before));
    assert_string_equal(xr_str_text(&before), "");
    assert_string_equal(xr_actor_extra_of(four[2]), "collective 7");
    assert_string_equal(xr_actor_extra_of(four[3]), "");
    RIG_OK(xr_actor_ask(four[3], "mark", 10000, &err, "collective 8", &before));
    assert_string_equal(xr_str_text(&before), "collective 7");
    const char *none = NULL; /* as "" */
    RIG_OK(xr_actor_ask(four[2], "mark", 10000, &err, none, &before));
    assert_string_equal(xr_actor_extra_of(four[2]), "");
    xr_str_free(&before);
    xr_actors_free(actors);
}

#define ANSWERS 20

static const xray_peer *heard[4 * ANSWERS];
static uint32_t heard_count;

static xray_status poll_and_note(void *self, int64_t timeout_ms,
                                 xray_runtime_event *out)
{
    xray_status status = xr_local_runtime.poll(self, timeout_ms, out);
    if (status == XRAY_OK && heard_count < 4 * ANSWERS)
        heard[heard_count++] = out->peer;
    return status;
}

/* However much one has sent, the other is heard next. */
static void actors_are_heard_in_turn(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    xr_err err = { "" };
    xray_runtime_ops runtime = xr_local_runtime;
    const xr_actors_setup setup = { .ops = &runtime,
                                    .actors = 2,
                                    .extra = RIG_EXTRA };
    xr_actor *two[2];
    xr_future *futures[2][ANSWERS + 1];
    xr_actors *actors = rig_actors(&setup);
    for (uint32_t i = 0; i < 2; i++)
        two[i] = rig_spawn(actors, i);
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < ANSWERS; k++)
            RIG_OK(
                xr_actor_call(two[i], "count", &err, &futures[i][k], k, NULL));
        RIG_OK(xr_actor_call(two[i], "mark", &err, &futures[i][ANSWERS], "done",
                             NULL));
    }
    for (uint32_t i = 0; i < 2; i++)
        while (strcmp(xr_actor_extra_of(two[i]), "done") != 0)
            (void)sched_yield();
    runtime.poll = poll_and_note;
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t k = 0; k <= ANSWERS; k++)
            RIG_OK(xr_future_wait(futures[i][k], 20000, &err));
    assert_true(heard_count >= 2 * ANSWERS);
    for (uint32_t n = 1; n < 2 * ANSWERS; n++)
        assert_ptr_not_equal(heard[n], heard[n - 1]);
    xr_actors_free(actors);
}

static void actors_of_another_host_are_refused(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    xr_err err = { "" };
    char own[256] = "";
    (void)gethostname(own, sizeof(own) - 1);
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = NULL;
    xr_actor_spawn_spec spec = { .class_ = &rig_class,
                                 .argv = rig_argv,
                                 .name = "one",
                                 .count = 4,
                                 .host = "far.example" };
    assert_int_equal(xr_actor_spawn(actors, &spec, &err, &actor),
                     XRAY_E_UNSUPPORTED);
    assert_string_equal(err.text,
                        "actor one shall run on host far.example, but the "
                        "local runtime starts actors on its own host only");
    const char *const here[] = { "localhost", own };
    for (uint32_t i = 0; i < 2; i++) {
        spec.host = here[i];
        spec.index = i;
        RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
        RIG_OK(xr_actor_ready(actor, 30000, &err));
    }
    xr_actors_free(actors);
}

/* A program may take longer to start than an actor may be silent. */
static void programs_have_their_own_time_to_start(void **state)
{
    (void)state;
    char program[4096];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    assert_true(size > 0);
    program[size] = 0;
    const xr_actors_setup setup = { .actors = 1, .hang_ms = 1000 };
    const char *const argv[] = { "/bin/sh", "-c",
                                 "sleep 1.5; exec \"$0\" --actor \"$@\"",
                                 program, NULL };
    const xr_actor_spawn_spec spec = { &rig_class, argv, "slow", NULL,
                                       0,          1,    NULL,   0 };
    xr_err err = { "" };
    xr_actor *actor = NULL;
    xr_actors *actors = rig_actors(&setup);
    RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
    RIG_OK(xr_actor_ready(actor, 30000, &err));
    xr_actors_free(actors);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (rig_child(argc, argv, &code))
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(actors_gather_their_bytes),
        cmocka_unit_test(gathers_that_cannot_end_are_refused),
        cmocka_unit_test(actors_show_their_records),
        cmocka_unit_test(actors_are_heard_in_turn),
        cmocka_unit_test(actors_of_another_host_are_refused),
        cmocka_unit_test(programs_have_their_own_time_to_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
