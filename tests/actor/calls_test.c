/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls, futures and regions over the local runtime.
 */
#include <signal.h>
#include <time.h>

#include "core/actor/local.h"
#include "tests/actor/rig.h"
#include "tests/growth.h"

#define SIZE ((uint64_t)1 << 20)

static void every_letter_arrives(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 1);
    static const char bytes[] = "a\0b\xff";
    uint32_t u = 0;
    int32_t i = 0;
    uint64_t U = 0;
    int64_t I = 0;
    double d = 0;
    xr_str s = { 0 };
    xr_str b = { 0 };
    xr_str_puts(&s, "this text is replaced");
    for (int sign = 0; sign < 2; sign++) {
        uint32_t in_u = sign ? UINT32_MAX : 0;
        int32_t in_i = sign ? INT32_MIN : INT32_MAX;
        uint64_t in_U = sign ? UINT64_MAX : 1;
        int64_t in_I = sign ? INT64_MIN : INT64_MAX;
        double in_d = sign ? -1e-300 : 0.1;
        RIG_OK(xr_actor_ask(actor, "echo", 10000, &err, in_u, in_i, in_U, in_I,
                            in_d, sign ? "" : "\xc3\xa4\n", bytes,
                            sign ? UINT64_C(0) : (uint64_t)sizeof(bytes), &u,
                            &i, &U, &I, &d, &s, &b));
        assert_true(u == in_u && i == in_i && U == in_U && I == in_I);
        assert_memory_equal(&d, &in_d, sizeof(d));
        assert_string_equal(xr_str_text(&s), sign ? "" : "\xc3\xa4\n");
        assert_int_equal(b.size, sign ? 0 : sizeof(bytes));
        if (!sign)
            assert_memory_equal(b.data, bytes, sizeof(bytes));
    }
    /* Outs may be NULL. */
    RIG_OK(xr_actor_ask(actor, "echo", 10000, &err, 1u, 1, UINT64_C(1),
                        INT64_C(1), 1.0, "", "", UINT64_C(0), NULL, NULL, NULL,
                        NULL, NULL, NULL, NULL));
    /* More bytes than a message may have are not looked at. */
    assert_int_equal(xr_actor_ask(actor, "echo", 10000, &err, 1u, 1,
                                  UINT64_C(1), INT64_C(1), 1.0, "", "",
                                  UINT64_C(1) << 32, NULL, NULL, NULL, NULL,
                                  NULL, NULL, NULL),
                     XRAY_E_RANGE);
    rig_says(err.text, "actor workhorse 1 (",
             "method echo: a message cannot carry 4294967296 bytes", NULL);
    /* There are more arguments than registers. */
    RIG_OK(xr_actor_ask(actor, "wide", 10000, &err, 1u, 2.0, INT64_C(-3), 4u,
                        5.0, -6, 7.0, UINT64_C(8), 9.0, 10.0, 11.0, 12.0, 13.0,
                        &d));
    assert_true(d == 1 + 4 - 9 + 16 + 25 - 36 + 49 + 64 + 81 + 100 + 121 + 144 +
                         169);
    xr_str_free(&s);
    xr_str_free(&b);
    xr_actors_free(actors);
}

static void calls_run_in_order(void **state)
{
    (void)state;
    enum { MANY = 1000 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    static xr_future *futures[MANY];
    static uint32_t got[MANY];
    for (uint32_t i = 0; i < MANY; i++)
        RIG_OK(xr_actor_call(actor, "count", &err, &futures[i], i, &got[i]));
    /* The futures are waited for backwards; each has its own outs. */
    for (uint32_t i = MANY; i-- > 0;)
        RIG_OK(xr_future_wait(futures[i], 20000, &err));
    for (uint32_t i = 0; i < MANY; i++)
        assert_int_equal(got[i], i);
    /* The method detects a call out of order. */
    assert_int_equal(xr_actor_ask(actor, "count", 10000, &err, 5u, got),
                     XRAY_E_STATE);
    rig_says(err.text, "call 5 came as number 1000", NULL);
    xr_actors_free(actors);
}

/* Regions that are announced after queued messages arrive with their own
 * memory.
 */
static void regions_pass_a_backlog(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    enum { MANY = 24 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    xr_future *futures[2 * MANY];
    xray_region *regions[MANY];
    uint64_t sums[MANY];
    xr_future *sleeper = NULL;
    char *bytes = calloc(1, (size_t)SIZE);
    assert_non_null(bytes);
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &sleeper, 300u));
    for (uint32_t i = 0; i < MANY; i++) {
        RIG_OK(xr_region_get(actors, 4096, &err, &regions[i]));
        memset(regions[i]->data, (int)i + 1, 4096);
        RIG_OK(xr_actor_call(actor, "echo", &err, &futures[2 * i], 0u, 0,
                             UINT64_C(0), INT64_C(0), 0.0, "", bytes,
                             i % 3 ? SIZE / 16 : UINT64_C(0), NULL, NULL, NULL,
                             NULL, NULL, NULL, NULL));
        RIG_OK(xr_actor_call(actor, "add_one", &err, &futures[2 * i + 1],
                             regions[i], UINT64_C(4096), &sums[i]));
    }
    for (uint32_t i = 0; i < 2 * MANY; i++)
        RIG_OK(xr_future_wait(futures[i], 20000, &err));
    RIG_OK(xr_future_wait(sleeper, 20000, &err));
    for (uint32_t i = 0; i < MANY; i++) {
        assert_int_equal(sums[i], 4096 * (i + 1));
        assert_int_equal(*(unsigned char *)regions[i]->data, i + 2);
    }
    free(bytes);
    xr_actors_free(actors);
}

/* Messages that the socket of a busy actor does not take do not block the
 * caller and are not lost. */
static void large_messages_do_not_block(void **state)
{
    (void)state;
    enum { MANY = 12 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    xr_future *sleeper = NULL;
    xr_future *futures[MANY];
    xr_str out[MANY] = { { 0 } };
    char *bytes = malloc((size_t)SIZE);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < SIZE; i++)
        bytes[i] = (char)(i * 31 >> 3);
    uint64_t begin = rig_ms();
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &sleeper, 1000u));
    for (uint32_t i = 0; i < MANY; i++)
        RIG_OK(xr_actor_call(actor, "echo", &err, &futures[i], 0u, 0,
                             UINT64_C(0), INT64_C(0), 0.0, "", bytes, SIZE - i,
                             NULL, NULL, NULL, NULL, NULL, NULL, &out[i]));
    /* Copies between hosts may take long on a busy machine. */
    assert_true(rig_on_hosts() || rig_ms() - begin < 900);
    RIG_OK(xr_future_wait(sleeper, 10000, &err));
    for (uint32_t i = 0; i < MANY; i++) {
        RIG_OK(xr_future_wait(futures[i], 20000, &err));
        assert_int_equal(out[i].size, SIZE - i);
        assert_memory_equal(out[i].data, bytes, out[i].size);
        xr_str_free(&out[i]);
    }
    free(bytes);
    xr_actors_free(actors);
}

static void wait_any_finds_the_first_answer(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *slow = rig_spawn(actors, 0);
    xr_actor *quick = rig_spawn(actors, 1);
    xr_future *futures[3] = { NULL };
    size_t index = 9;
    assert_int_equal(xr_future_wait_any(futures, 3, 10, &err, &index),
                     XRAY_E_ARG);
    RIG_OK(xr_actor_call(slow, "pass_time", &err, &futures[0], 800u));
    RIG_OK(xr_actor_call(quick, "pass_time", &err, &futures[2], 100u));
    assert_int_equal(xr_future_wait_any(futures, 3, 0, &err, &index),
                     XRAY_AGAIN);
    RIG_OK(xr_future_wait_any(futures, 3, 10000, &err, &index));
    assert_int_equal(index, 2);
    RIG_OK(xr_future_wait(futures[2], 0, &err));
    futures[2] = NULL;
    assert_int_equal(xr_future_wait_any(futures, 3, 50, &err, &index),
                     XRAY_AGAIN);
    RIG_OK(xr_future_wait_any(futures, 3, 10000, &err, &index));
    assert_int_equal(index, 0);
    RIG_OK(xr_future_wait(futures[0], 0, &err));
    xr_actors_free(actors);
}

/* Polling without waiting finds the answer once it has arrived. */
static void polling_finds_an_answer(void **state)
{
    (void)state;
    const struct timespec pause = { 0, 5000000 };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    xr_future *future = NULL;
    size_t index = 9;
    uint32_t got = 7;
    RIG_OK(xr_actor_call(actor, "count", &err, &future, 0u, &got));
    const uint64_t begin = rig_ms();
    xray_status status = XRAY_AGAIN;
    while (status == XRAY_AGAIN && rig_ms() - begin < 10000) {
        (void)nanosleep(&pause, NULL);
        status = xr_future_wait_any(&future, 1, 0, &err, &index);
    }
    assert_int_equal(status, XRAY_OK);
    assert_int_equal(index, 0);
    RIG_OK(xr_future_wait(future, 0, &err));
    assert_int_equal(got, 0);
    xr_actors_free(actors);
}

static void missed_deadline_keeps_the_future(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 2);
    xr_future *future = NULL;
    uint32_t now = 7;
    uint64_t begin = rig_ms();
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &future, 1500u));
    assert_int_equal(xr_future_wait(future, 300, &err), XRAY_E_PEER);
    assert_true(rig_ms() - begin >= 300 && rig_ms() - begin < 1400);
    rig_says(err.text, "actor workhorse 2 (rank 2, pid ",
             "method pass_time: no answer within 0.3 s, in phase "
             "\"forward of block 3\"",
             NULL);
    /* It is still there, and can be waited for again. */
    RIG_OK(xr_future_wait(future, 10000, &err));
    /* The answer to a dropped future is ignored. */
    RIG_OK(xr_actor_call(actor, "count", &err, &future, 0u, &now));
    xr_future_drop(future);
    RIG_OK(xr_actor_ask(actor, "count", 10000, &err, 1u, NULL));
    assert_int_equal(now, 7);
    /* Once it is answered, its memory is reused: one of the next two calls has
     * it, the other one has that of the call in between. */
    xr_future *next[2] = { NULL, NULL };
    for (int i = 0; i < 2; i++)
        RIG_OK(xr_actor_call(actor, "count", &err, &next[i], 2u + (uint32_t)i,
                             &now));
    assert_true(next[0] == future || next[1] == future);
    for (int i = 0; i < 2; i++)
        RIG_OK(xr_future_wait(next[i], 10000, &err));
    xr_actors_free(actors);
}

static void remote_errors_reach_the_caller(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 3);
    uint32_t out = 1;
    char expected[200];
    assert_int_equal(xr_actor_ask(actor, "fails", 10000, &err, XRAY_E_NUMERIC,
                                  "loss is NaN in row 3", &out),
                     XRAY_E_NUMERIC);
    (void)snprintf(expected, sizeof(expected),
                   "actor workhorse 3 (rank 3, pid %llu): method fails: loss "
                   "is NaN in row 3",
                   (unsigned long long)xr_actor_pid(actor));
    assert_string_equal(err.text, expected);
    assert_int_equal(out, 1); /* untouched */
    assert_int_equal(
        xr_actor_ask(actor, "fails", 10000, &err, XRAY_E_IO, "", &out),
        XRAY_E_IO);
    rig_says(err.text, "failed with status -301", NULL);
    /* "Not yet" is no error and brings its outs. */
    assert_int_equal(
        xr_actor_ask(actor, "fails", 10000, &err, XRAY_AGAIN, "", &out),
        XRAY_AGAIN);
    assert_int_equal(out, 5);
    assert_int_equal(xr_actor_ask(actor, "none", 10000, &err), XRAY_E_ARG);
    rig_says(err.text, "class rig has no method none", NULL);
    xr_actors_free(actors);
}

/* The caller's table of methods differs from the actor's. */
static void differing_signatures_are_refused(void **state)
{
    (void)state;
    static const xr_actor_method methods[] = {
        { "count", "s->u", NULL },
        { "pass_time", "uu->", NULL },
        { "look", "->sss", NULL },
        { "nothing", "->", NULL },
    };
    static const xr_actor_class other = { "rig", methods, 4, NULL, NULL };
    static const xr_actor_class unknown = { "ghost", methods, 4, NULL, NULL };
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = NULL;
    xr_actor_spawn_spec spec = { &other, rig_argv, "odd", "", 0, 1 };
    xr_str text = { 0 };
    RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
    RIG_OK(xr_actor_ready(actor, 30000, &err));
    assert_int_equal(xr_actor_ask(actor, "count", 10000, &err, "x", NULL),
                     XRAY_E_ARG);
    rig_says(err.text, "method count",
             "value 1 of the message is not of type 'u'", NULL);
    assert_int_equal(xr_actor_ask(actor, "pass_time", 10000, &err, 1u, 2u),
                     XRAY_E_ARG);
    rig_says(err.text, "left over", NULL);
    assert_int_equal(
        xr_actor_ask(actor, "look", 10000, &err, &text, &text, &text),
        XRAY_E_PEER);
    rig_says(err.text, "its answer", NULL);
    assert_int_equal(xr_actor_ask(actor, "nothing", 10000, &err), XRAY_E_ARG);
    rig_says(err.text, "no such method", NULL);
    RIG_OK(xr_actor_stop(actor, 10000, &err));
    spec.class_ = &unknown;
    RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor));
    assert_int_equal(xr_actor_ready(actor, 30000, &err), XRAY_E_ARG);
    rig_says(err.text, "no class ghost", NULL);
    xr_actors_free(actors);
}

static void regions_are_shared(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    xray_region *region = NULL;
    uint64_t sum = 0;
    RIG_OK(xr_region_get(actors, SIZE, &err, &region));
    memset(region->data, 3, (size_t)SIZE);
    RIG_OK(xr_actor_ask(actor, "add_one", 10000, &err, region, SIZE, &sum));
    assert_true(sum == 3 * SIZE);
    const unsigned char *bytes = region->data; /* what the actor wrote */
    assert_int_equal(bytes[0], 4);
    assert_int_equal(bytes[SIZE - 1], 4);
    /* A region may be NULL; this method then fails. */
    assert_int_equal(
        xr_actor_ask(actor, "add_one", 10000, &err, NULL, UINT64_C(0), &sum),
        XRAY_E_ARG);
    /* It comes back as the caller's own. */
    xray_region *back = NULL;
    RIG_OK(xr_actor_ask(actor, "same", 10000, &err, region, &back));
    assert_ptr_equal(back, region);
    xr_region_put(actors, back);
    /* Regions of the actor; the same memory returns once it is put back. */
    void *first = NULL;
    for (int i = 0; i < 20; i++) {
        xray_region *made = NULL;
        RIG_OK(xr_actor_ask(actor, "make", 10000, &err, SIZE, 9u + (uint32_t)i,
                            &made));
        bytes = made->data;
        assert_int_equal(bytes[SIZE - 1], 9 + i);
        if (i)
            assert_ptr_equal(made->data, first);
        first = made->data;
        /* It can be passed to its owner. */
        RIG_OK(xr_actor_ask(actor, "add_one", 10000, &err, made, SIZE, &sum));
        assert_int_equal(bytes[5], 10 + i);
        xr_region_put(actors, made);
    }
    RIG_OK(xr_actor_ask(actor, "make", 10000, &err, UINT64_C(0), 0u, &back));
    assert_null(back);
    /* A result that is not wanted, or of a failed call, is given back there. */
    RIG_OK(xr_actor_ask(actor, "make", 10000, &err, SIZE, 1u, NULL));
    assert_int_equal(
        xr_actor_ask(actor, "make", 10000, &err, SIZE, 255u, &back),
        XRAY_E_ARG);
    RIG_OK(xr_actor_ask(actor, "make", 10000, &err, SIZE, 1u, &back));
    assert_ptr_equal(back->data, first);
    /* A region that the caller holds is not reused. */
    xray_region *second = NULL;
    RIG_OK(xr_actor_ask(actor, "make", 10000, &err, SIZE, 2u, &second));
    assert_ptr_not_equal(second->data, back->data);
    bytes = back->data;
    assert_int_equal(bytes[0], 1);
    xr_region_put(actors, region);
    xr_actors_free(actors);
    assert_int_equal(rig_maps(), 0);
}

static void regions_are_reused(void **state)
{
    RIG_LOCAL_ONLY();
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor = rig_spawn(actors, 0);
    const uint32_t fds = rig_fds();
    xray_region *region = NULL;
    uint64_t sum;
    /* A loop makes one region, which is announced once. */
    for (int i = 0; i < 50; i++) {
        RIG_OK(xr_region_get(actors, SIZE - (uint64_t)i * 100, &err, &region));
        RIG_OK(xr_actor_ask(actor, "add_one", 10000, &err, region, SIZE / 2,
                            &sum));
        xr_region_put(actors, region);
    }
    assert_int_equal(xr_region_count(actors), 1);
    assert_int_equal(rig_fds(), fds + 1);
    const uint32_t maps = rig_maps_of(xr_actor_pid(actor));
    /* Growing ones replace it, here and there. */
    for (uint64_t i = 2; i < 40; i++) {
        RIG_OK(xr_region_get(actors, SIZE * i, &err, &region));
        RIG_OK(xr_actor_ask(actor, "add_one", 10000, &err, region, SIZE / 8,
                            &sum));
        xr_region_put(actors, region);
    }
    assert_int_equal(xr_region_count(actors), 1);
    assert_int_equal(rig_fds(), fds + 1);
    assert_int_equal(rig_maps_of(xr_actor_pid(actor)), maps);
    /* The region of an unanswered call is not reused. */
    xr_future *future = NULL;
    xr_future *sleeper = NULL;
    xray_region *other = NULL;
    RIG_OK(xr_actor_call(actor, "pass_time", &err, &sleeper, 300u));
    RIG_OK(xr_region_get(actors, SIZE, &err, &region));
    RIG_OK(xr_actor_call(actor, "add_one", &err, &future, region, SIZE, &sum));
    xr_region_put(actors, region);
    RIG_OK(xr_region_get(actors, SIZE, &err, &other));
    assert_ptr_not_equal(other, region);
    RIG_OK(xr_future_wait(future, 10000, &err));
    RIG_OK(xr_future_wait(sleeper, 10000, &err));
    assert_int_equal(xr_region_get(actors, 0, &err, &region), XRAY_E_RANGE);
    assert_int_equal(xr_region_get(actors, UINT64_C(1) << 61, &err, &region),
                     XRAY_E_NOMEM);
    rig_says(err.text, "a shared region of", NULL);
    xr_actors_free(actors);
}

static void actors_start_together(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *actor[4];
    const xr_actor_spawn_spec bad = { &rig_class, rig_argv, "two", "",
                                      1,          4,        NULL,  0 };
    for (uint32_t i = 0; i < 4; i++) {
        xr_actor_spawn_spec spec = { &rig_class, rig_argv, "one", "",
                                     i,          4,        NULL,  0 };
        RIG_OK(xr_actor_spawn(actors, &spec, &err, &actor[i]));
    }
    for (uint32_t i = 0; i < 4; i++)
        RIG_OK(xr_actor_ready(actor[i], 30000, &err));
    RIG_OK(xr_actor_ready(actor[0], 0, &err));
    assert_int_equal(xr_actor_spawn(actors, &bad, &err, &actor[0]), XRAY_E_ARG);
    rig_says(err.text, "index 1 of 4", NULL);
    uint32_t fds = 0;
    uint32_t index = 0;
    uint32_t count = 0;
    xr_str name = { 0 };
    RIG_OK(xr_actor_ask(actor[3], "look", 10000, &err, &fds, &index, &count,
                        &name));
    assert_int_equal(index, 3);
    assert_int_equal(count, 4);
    assert_string_equal(xr_str_text(&name), "one");
    /* 0 to 2, the socket, the records and the eventfd of the heartbeat. */
    assert_true(fds <= 6);
    xr_str_free(&name);
    for (uint32_t i = 0; i < 4; i++)
        RIG_OK(xr_actor_stop(actor[i], 10000, &err));
    RIG_OK(xr_actors_check(actors, &err));
    xr_actors_free(actors);
}

/* Those that were told end without being waited for, and none is missed. */
static void told_actors_end_side_by_side(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_actors *actors = rig_actors(NULL);
    xr_actor *first = rig_spawn(actors, 0);
    xr_actor *second = rig_spawn(actors, 1);
    const uint64_t pid = xr_actor_pid(second);
    const struct timespec step = { .tv_nsec = 10000000 };
    xr_actor_leave(NULL);
    xr_actor_leave(first);
    xr_actor_leave(second);
    xr_actor_leave(second);
    RIG_OK(xr_actor_stop(first, 30000, &err));
    for (int i = 0; i < 3000 && rig_alive(pid); i++)
        (void)nanosleep(&step, NULL);
    assert_false(rig_alive(pid));
    RIG_OK(xr_actors_check(actors, &err));
    RIG_OK(xr_actor_stop(second, 10000, &err));
    xr_actors_free(actors);
}

/* A caller that was compiled against an older version of the event. */
static xray_status poll_as_older(void *self, int64_t timeout_ms,
                                 xray_runtime_event *out)
{
    const uint32_t size = offsetof(xray_runtime_event, reason);
    xray_runtime_event older;
    growth_cut(&older, sizeof(older), size);
    xray_status status = xr_local_runtime.poll(self, timeout_ms, &older);
    growth_check(&older, sizeof(older), size);
    xray_fill(out, &older);
    return status;
}

static void events_of_older_callers_are_filled(void **state)
{
    xray_runtime_ops runtime = xr_local_runtime;
    const xr_actors_setup setup = { .ops = &runtime, .actors = 1 };
    xr_err err = { "" };
    (void)state;
    runtime.poll = poll_as_older;
    xr_actors *actors = rig_actors(&setup);
    xr_actor *actor = rig_spawn(actors, 0);
    RIG_OK(xr_actor_ask(actor, "count", 10000, &err, 0u, NULL));
    xr_actors_free(actors);
}

static const xray_host *failing_host;

static xray_status create_failing(const xray_runtime_setup *setup,
                                  const void *config, void **out_self)
{
    failing_host = setup->host;
    return xr_local_runtime.create(setup, config, out_self);
}

static xray_status fail_send(void *self, xray_peer *peer, const void *data,
                             uint64_t size, xray_region *const *regions,
                             uint32_t region_count)
{
    (void)self;
    (void)peer;
    (void)data;
    (void)size;
    (void)regions;
    (void)region_count;
    return (failing_host->fail)(failing_host, XRAY_E_PEER, "send",
                                "the wire to the host is cut");
}

static xray_status fail_poll(void *self, int64_t timeout_ms,
                             xray_runtime_event *out)
{
    (void)self;
    (void)timeout_ms;
    (void)out;
    return XRAY_E_IO;
}

/* How the actor ended says more than that a send failed; while nobody knows,
 * the reason of the send must not be lost. */
static void failed_sends_keep_their_reason(void **state)
{
    xray_runtime_ops runtime = xr_local_runtime;
    const xr_actors_setup setup = { .ops = &runtime, .actors = 1 };
    xr_err err = { "" };
    xr_future *future = NULL;
    (void)state;
    runtime.create = create_failing;
    xr_actors *actors = rig_actors(&setup);
    xr_actor *actor = rig_spawn(actors, 0);
    RIG_OK(xr_actor_ask(actor, "count", 10000, &err, 0u, NULL));
    runtime.send = fail_send;
    runtime.poll = fail_poll;
    assert_int_equal(xr_actor_call(actor, "count", &err, &future, 0u),
                     XRAY_E_PEER);
    rig_says(err.text, "count", "the wire to the host is cut", NULL);
    runtime.poll = xr_local_runtime.poll;
    assert_int_equal(kill((pid_t)xr_actor_pid(actor), SIGKILL), 0);
    assert_int_equal(xr_actor_call(actor, "count", &err, &future, 0u),
                     XRAY_E_PEER);
    rig_says(err.text, "count", "was killed by signal 9", NULL);
    xr_actors_free(actors);
}

int main(int argc, char **argv)
{
    int code = 0;
    if (rig_child(argc, argv, &code))
        return code;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_letter_arrives),
        cmocka_unit_test(calls_run_in_order),
        cmocka_unit_test(large_messages_do_not_block),
        cmocka_unit_test(regions_pass_a_backlog),
        cmocka_unit_test(wait_any_finds_the_first_answer),
        cmocka_unit_test(polling_finds_an_answer),
        cmocka_unit_test(events_of_older_callers_are_filled),
        cmocka_unit_test(missed_deadline_keeps_the_future),
        cmocka_unit_test(remote_errors_reach_the_caller),
        cmocka_unit_test(differing_signatures_are_refused),
        cmocka_unit_test(regions_are_shared),
        cmocka_unit_test(regions_are_reused),
        cmocka_unit_test(actors_start_together),
        cmocka_unit_test(told_actors_end_side_by_side),
        cmocka_unit_test(failed_sends_keep_their_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
