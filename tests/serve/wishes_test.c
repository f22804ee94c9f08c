/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what a request may ask for: ends at a list of ids or at a repetition,
 * a sentence for what cannot be served, and structs of other versions of the
 * interface.
 */
#include "tests/growth.h"
#include "tests/serve/engine.h"

#include <math.h>

typedef struct stage {
    rig *r;
    model *m;
    void *engine;
    results *plain; /* of a request that asks for nothing */
    results *out;
} stage;

static const int32_t prompt[10] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };

static int set_up(void **state)
{
    static const engine_size size = {
        .rows = 3,
        .row_tokens = 40,
        .config = { .max_num_batched_tokens = 8 },
    };
    stage *s = calloc(1, sizeof(*s));
    assert_non_null(s);
    s->plain = calloc(1, sizeof(*s->plain));
    s->out = calloc(1, sizeof(*s->out));
    assert_true(s->plain && s->out);
    s->r = rig_open(1);
    s->m = model_open(s->r, MODEL_LLAMA);
    s->engine = engine_open(s->r, s->m, &size);
    *state = s;
    return 0;
}

static int tear_down(void **state)
{
    stage *s = *state;
    s->r->ops->destroy(s->engine);
    model_close(s->m);
    rig_close(s->r);
    free(s->plain);
    free(s->out);
    free(s);
    return 0;
}

static void expect_error(const stage *s, xray_status got, xray_status code,
                         const char *says)
{
    assert_int_equal(got, code);
    assert_string_equal(s->r->said, says);
}

static xray_request make_request(uint64_t id, uint32_t count, uint32_t most)
{
    xray_request q = request_make(id, prompt, 6, most);
    q.count = count;
    return q;
}

static void run_plainly(stage *s, const xray_request *q)
{
    engine_submit(s->r, s->engine, q);
    engine_run(s->r, s->engine, s->plain);
}

/* ---- ends --------------------------------------------------------------- */

/* The number of tokens up to the first end of `list` or the first `times`
 * repetitions of at most `size` tokens. */
static uint32_t find_end(const result *r, const int32_t *list, uint32_t n,
                         uint32_t size, uint32_t times)
{
    for (uint32_t end = 1; end < r->count; end++) {
        if (n && end >= n &&
            memcmp(r->tokens + end - n, list, n * sizeof(*list)) == 0)
            return end;
        for (uint32_t k = 1; k <= size && k * times <= end; k++) {
            uint32_t i = end - k * times + k;
            while (i < end && r->tokens[i] == r->tokens[i - k])
                i++;
            if (i == end)
                return end;
        }
    }
    return r->count;
}

static void lists_end_a_sample(void **state)
{
    stage *s = *state;
    xray_request q = make_request(1, 1, 30);
    run_plainly(s, &q);
    const result *plain = &s->plain->r[0];
    /* as a struct of a later version would be, with members behind */
    struct {
        xray_id_list list;
        uint64_t more;
    } lists[2] = { { .list = { .ids = prompt, .count = 10 } } };
    q.stop_lists = &lists[0].list;
    q.stop_list_stride = sizeof(lists[0]);
    q.stop_list_count = 2;
    for (uint32_t n = 1; n <= 3; n++) {
        lists[1].list = (xray_id_list){ plain->tokens + 12, n, 0 };
        uint32_t end = find_end(plain, plain->tokens + 12, n, 0, 0);
        s->out->count = 0;
        engine_submit(s->r, s->engine, &q);
        engine_run(s->r, s->engine, s->out);
        assert_int_equal(s->out->r[0].finish, XRAY_FINISH_STOP);
        assert_int_equal(s->out->r[0].count, end);
        assert_memory_equal(s->out->r[0].tokens, plain->tokens,
                            end * sizeof(int32_t));
    }
    lists[1].list.count = 0;
    expect_error(s, s->r->ops->submit(s->engine, &q), XRAY_E_ARG,
                 "request 1: stop list 1 is empty, at least one id was "
                 "expected");
    q.stop_list_stride = 20;
    expect_error(s, s->r->ops->submit(s->engine, &q), XRAY_E_ARG,
                 "request 1: 2 stop_lists of 20 bytes, an array of at least 16 "
                 "bytes each was expected");
    q.stop_list_stride = 12;
    expect_error(s, s->r->ops->submit(s->engine, &q), XRAY_E_ARG,
                 "request 1: 2 stop_lists of 12 bytes, an array of at least 16 "
                 "bytes each was expected");
}

/* Two of few ids repeat themselves soon. */
static void repetitions_end_a_sample(void **state)
{
    stage *s = *state;
    uint32_t early = 0;
    xray_request q = make_request(1, 8, 30);
    q.top_k = 2;
    q.temperature = 2;
    run_plainly(s, &q);
    for (uint32_t size = 1; size <= 4; size++)
        for (uint32_t times = 2; times <= 3; times++) {
            q.repeat_size = size;
            q.repeat_count = times;
            s->out->count = 0;
            engine_submit(s->r, s->engine, &q);
            engine_run(s->r, s->engine, s->out);
            for (uint32_t i = 0; i < 8; i++) {
                const result *plain = result_find(s->plain, 1, i);
                const result *got = result_find(s->out, 1, i);
                uint32_t end = find_end(plain, NULL, 0, size, times);
                assert_int_equal(got->count, end);
                if (end < plain->count)
                    assert_int_equal(got->finish, XRAY_FINISH_REPEAT);
                early += end < plain->count;
            }
        }
    assert_true(early > 8);
    q.repeat_count = 1;
    expect_error(s, s->r->ops->submit(s->engine, &q), XRAY_E_ARG,
                 "request 1: repeat_size 4 and repeat_count 1, at least 1 and "
                 "2 (or both 0) were expected");
    q.repeat_size = 0;
    assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_ARG);
}

/* ---- what cannot be ------------------------------------------------------ */

static const xray_id_list no_list = { prompt, 0, 0 };
static const int32_t outside[] = { 100, 101 };
static const xray_id_list outside_list = { outside, 2, 0 };
static const xray_bias outside_bias = { -1, 1 };
static const xray_bias bad_bias = { 7, INFINITY };

static void wishes_that_cannot_be_served_are_refused(void **state)
{
    const stage *s = *state;
    const xray_request good = make_request(1, 1, 1);
#define REFUSED(says, ...)                                              \
    do {                                                                \
        xray_request q = good;                                          \
        __VA_ARGS__;                                                    \
        assert_int_equal(s->r->ops->submit(s->engine, &q), XRAY_E_ARG); \
        assert_string_equal(s->r->said, "request 1: " says);            \
    } while (0)
    REFUSED("repetition_penalty -1.5, a finite number above 0, or 0 (off), was "
            "expected",
            q.repetition_penalty = -1.5f);
    REFUSED("repetition_penalty inf, a finite number above 0, or 0 (off), was "
            "expected",
            q.repetition_penalty = INFINITY);
    REFUSED("frequency_penalty 0 and presence_penalty nan, finite numbers were "
            "expected",
            q.presence_penalty = NAN);
    REFUSED("frequency_penalty inf and presence_penalty 0, finite numbers were "
            "expected",
            q.frequency_penalty = INFINITY);
    REFUSED("2 biases of 0 bytes, an array of at least 8 bytes each was "
            "expected",
            (q.biases = &bad_bias, q.bias_count = 2));
    REFUSED("1 biases of 10 bytes, an array of at least 8 bytes each was "
            "expected",
            (q.biases = &bad_bias, q.bias_count = 1, q.bias_stride = 10));
    REFUSED("bias_count 1025, at most 1024 was expected",
            (q.biases = &bad_bias, q.bias_count = 1025, q.bias_stride = 8));
    REFUSED("id -1 of biases is outside the vocabulary of 101",
            (q.biases = &outside_bias, q.bias_count = 1, q.bias_stride = 8));
    REFUSED("the bias of id 7 is inf, a finite number was expected",
            (q.biases = &bad_bias, q.bias_count = 1, q.bias_stride = 8));
    REFUSED("there are 3 allowed_ids, but they are not set",
            q.allowed_count = 3);
    REFUSED("id 101 of allowed_ids is outside the vocabulary of 101",
            (q.allowed_ids = outside, q.allowed_count = 2));
    REFUSED("1 banned_lists of 0 bytes, an array of at least 16 bytes each was "
            "expected",
            (q.banned_lists = &no_list, q.banned_list_count = 1));
    REFUSED("banned list 0 is empty, at least one id was expected",
            (q.banned_lists = &no_list, q.banned_list_count = 1,
             q.banned_list_stride = 16));
    REFUSED("id 101 of banned_lists is outside the vocabulary of 101",
            (q.banned_lists = &outside_list, q.banned_list_count = 1,
             q.banned_list_stride = 16));
    REFUSED("id 101 of forced_ids is outside the vocabulary of 101",
            (q.forced_ids = outside, q.forced_count = 2));
    REFUSED("top_count 102, at most 101 was expected", q.top_count = 102);
    REFUSED("logp_id_count 257, at most 256 was expected",
            (q.logp_ids = prompt, q.logp_id_count = 257));
    REFUSED("id 101 of logp_ids is outside the vocabulary of 101",
            (q.logp_ids = outside, q.logp_id_count = 2));
#undef REFUSED
}

/* ---- other versions of the structs -------------------------------------- */

/* A request of a later version is served if it sets nothing unknown, and one of
 * an earlier version has no more than it had. */
static void requests_of_other_versions(void **state)
{
    stage *s = *state;
    struct {
        xray_request q;
        uint64_t later;
    } next = { .q = make_request(1, 1, 3) };
    run_plainly(s, &next.q);
    next.q.header.size = sizeof(next);
    next.later = UINT64_C(1) << 63;
    assert_int_equal(s->r->ops->submit(s->engine, &next.q), XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(s->r->said, "it sets a member that this engine"));
    next.later = 0;
    engine_submit(s->r, s->engine, &next.q);
    engine_run(s->r, s->engine, s->out);
    results_equal(s->plain, s->out);
    xray_request old = next.q;
    old.header.size = offsetof(xray_request, stream);
    memset((unsigned char *)&old + old.header.size, 0xff,
           sizeof(old) - old.header.size);
    s->out->count = 0;
    engine_submit(s->r, s->engine, &old);
    engine_run(s->r, s->engine, s->out);
    results_equal(s->plain, s->out);
}

/* Lists of structs of a later version have larger strides. The biases leave
 * ids 7 and 8, of which 7 is not drawn twice in sequence. */
static void lists_of_later_callers_are_read(void **state)
{
    stage *s = *state;
    static const int32_t ids[3][3] = { { 9 }, { 7, 7 }, { 8, 7, 8 } };
    struct {
        xray_bias bias;
        uint64_t later;
    } biases[] = { { { 6, 1 }, ~UINT64_C(0) },
                   { { 7, 60 }, ~UINT64_C(0) },
                   { { 8, 50 }, ~UINT64_C(0) } };
    struct {
        xray_id_list list;
        uint64_t later;
    } lists[] = { { { ids[0], 1 }, ~UINT64_C(0) },
                  { { ids[1], 2 }, ~UINT64_C(0) },
                  { { ids[0], 1 }, ~UINT64_C(0) },
                  { { ids[2], 3 }, ~UINT64_C(0) } };
    xray_request q = make_request(1, 1, 10);
    q.temperature = 0;
    q.biases = &biases[0].bias;
    q.bias_count = 3;
    q.bias_stride = sizeof(biases[0]);
    q.banned_lists = &lists[0].list;
    q.stop_lists = &lists[2].list;
    q.banned_list_count = q.stop_list_count = 2;
    q.banned_list_stride = q.stop_list_stride = sizeof(lists[0]);
    run_plainly(s, &q);
    const int32_t want[] = { 7, 8, 7, 8 };
    const result *r = &s->plain->r[0];
    assert_int_equal(r->finish, XRAY_FINISH_STOP);
    assert_int_equal(r->count, 4);
    assert_memory_equal(r->tokens, want, sizeof(want));
}

/* A caller that was compiled against an older version. */
static void structs_of_older_callers_are_filled(void **state)
{
    stage *s = *state;
    xray_sample_out out;
    xray_infer_stats stats;
    xray_request q = make_request(1, sizeof(out) / 8, 2);
    engine_submit(s->r, s->engine, &q);
    while (s->r->ops->step(s->engine) == XRAY_OK)
        ;
    EXPECT_FILLED_IN_REACH(xray_sample_out, out, spans,
                           s->r->ops->poll(s->engine, &out));
    assert_int_equal(s->r->ops->poll(s->engine, &out), XRAY_END);
    EXPECT_FILLED_IN_REACH(xray_infer_stats, stats, generation_tokens,
                           s->r->ops->stats(s->engine, &stats));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lists_end_a_sample),
        TEST(repetitions_end_a_sample),
        TEST(wishes_that_cannot_be_served_are_refused),
        TEST(requests_of_other_versions),
        TEST(lists_of_later_callers_are_read),
        TEST(structs_of_older_callers_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
