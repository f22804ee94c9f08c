/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests requests at the limits of their fields, lists that lose items at any
 * position, many requests at once, and the scheduler's statistics computed by
 * hand.
 */
#include "tests/testing.h"

#include <math.h>

#include "model/serve/sched.h"
#include "model/serve/sched_internal.h"
#include "tests/serve/test_request.h"

enum { VOCAB = 97, ROW = 40 };

static const int32_t ids[ROW + 1] = { 1, 2, 3, 4, 5 };

/* `says` NULL: the request is accepted. */
static void expect_verdict(const xray_request *q, const char *says)
{
    static const xm_limits limits = { VOCAB, ROW };
    xr_err err = { "" };
    assert_int_equal(xm_request_check(q, &limits, &err),
                     says ? XRAY_E_ARG : XRAY_OK);
    assert_string_equal(err.text, says ? says : "");
}

static void counts_have_bounds(void **state)
{
    xray_request q = make_test_request(9, ids, 4);
    (void)state;
    q.count = XM_MAX_SAMPLES;
    expect_verdict(&q, NULL);
    q.count++;
    expect_verdict(
        &q, "request 9: count 1048577, 1 to 1048576 samples were expected");
    q = make_test_request(9, ids, 4);
    q.first_sample = UINT32_MAX - 1;
    expect_verdict(&q, NULL);
    q.first_sample++;
    expect_verdict(
        &q, "request 9: first_sample 4294967295 and count 1 do not fit 32 "
            "bits");
    q.count = 3;
    q.first_sample = UINT32_MAX - 3;
    expect_verdict(&q, NULL);
    q.first_sample++;
    expect_verdict(
        &q, "request 9: first_sample 4294967293 and count 3 do not fit 32 "
            "bits");
    q = make_test_request(9, ids, 4);
    q.max_tokens = 1;
    expect_verdict(&q, NULL);
    q.max_tokens = UINT32_MAX;
    expect_verdict(&q, NULL);
    q.id_count = ROW - 1;
    expect_verdict(&q, NULL);
    q.id_count = ROW;
    expect_verdict(&q,
                   "request 9: the prompt has 40 tokens, fewer than 40 (the "
                   "longest row) were expected");
    q.ids = NULL;
    expect_verdict(
        &q, "request 9: the prompt is empty, at least one id was expected");
    static const int32_t last[] = { 0, VOCAB - 1 };
    q = make_test_request(9, ids, 4);
    q.ids = last;
    q.id_count = 2;
    expect_verdict(&q, NULL);
}

/* Every id of every list is checked, the first and the last one, too. */
static void each_id_of_each_list_is_checked(void **state)
{
    static const int32_t odd[] = { -1, VOCAB };
    static const char *const names[] = { "allowed_ids", "forced_ids",
                                         "logp_ids", "banned_lists" };
    (void)state;
    for (uint32_t bad = 0; bad < 2; bad++)
        for (uint32_t at = 0; at < 3; at++) {
            int32_t list[] = { 0, 5, VOCAB - 1 };
            xray_bias biases[] = { { 0, 1 }, { 5, 1 }, { VOCAB - 1, 1 } };
            const xray_id_list banned[] = { { .ids = ids, .count = 2 },
                                            { .ids = list, .count = 3 } };
            char want[80];
            xray_request q = make_test_request(9, ids, 4);
            q.ids = list;
            q.id_count = 3;
            expect_verdict(&q, NULL);
            list[at] = odd[bad];
            (void)snprintf(want, sizeof(want),
                           "request 9: prompt id %d at position %u is outside "
                           "the vocabulary of 97",
                           odd[bad], at);
            expect_verdict(&q, want);
            for (uint32_t i = 0; i < 4; i++) {
                q = make_test_request(9, ids, 4);
                q.allowed_ids = i == 0 ? list : NULL;
                q.forced_ids = i == 1 ? list : NULL;
                q.logp_ids = i == 2 ? list : NULL;
                q.banned_lists = i == 3 ? banned : NULL;
                q.allowed_count = i == 0 ? 3 : 0;
                q.forced_count = i == 1 ? 3 : 0;
                q.logp_id_count = i == 2 ? 3 : 0;
                q.banned_list_count = i == 3 ? 2 : 0;
                q.banned_list_stride = sizeof(banned[0]);
                (void)snprintf(want, sizeof(want),
                               "request 9: id %d of %s is outside the "
                               "vocabulary of 97",
                               odd[bad], names[i]);
                expect_verdict(&q, want);
            }
            q = make_test_request(9, ids, 4);
            q.biases = biases;
            q.bias_count = 3;
            q.bias_stride = sizeof(biases[0]);
            expect_verdict(&q, NULL);
            biases[at].id = odd[bad];
            (void)snprintf(want, sizeof(want),
                           "request 9: id %d of biases is outside the "
                           "vocabulary of 97",
                           odd[bad]);
            expect_verdict(&q, want);
            biases[at] = (xray_bias){ 7, NAN };
            expect_verdict(&q, "request 9: the bias of id 7 is nan, a finite "
                               "number was expected");
        }
}

static void samplings_have_bounds(void **state)
{
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
        const char *says;
    } cases[] = {
        { 0, 1, 0, 0, NULL },
        { XRAY_MIN_TEMPERATURE, 1e-6f, 1, INT32_MAX, NULL },
        { 0.9e-5f, 1, 0, 0,
          "request 9: temperature 9e-06, 0 (greedy) or a finite number of at "
          "least 1e-05 was expected" },
        { 1, 1.01f, 0, 0,
          "request 9: top_p 1.01, more than 0 and at most 1 was expected" },
        { 1, -0.5f, 0, 0,
          "request 9: top_p -0.5, more than 0 and at most 1 was expected" },
        { 1, (float)NAN, 0, 0,
          "request 9: top_p nan, more than 0 and at most 1 was expected" },
        { 1, 1, -0.01f, 0, "request 9: min_p -0.01, 0 to 1 was expected" },
        { 1, 1, 1.01f, 0, "request 9: min_p 1.01, 0 to 1 was expected" },
        { 1, 1, (float)NAN, 0, "request 9: min_p nan, 0 to 1 was expected" },
        { 1, 1, 0, -1, "request 9: top_k -1, 0 (off) or more was expected" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xray_request q = make_test_request(9, ids, 4);
        q.temperature = cases[i].temperature;
        q.top_p = cases[i].top_p;
        q.min_p = cases[i].min_p;
        q.top_k = cases[i].top_k;
        expect_verdict(&q, cases[i].says);
    }
}

/* A sample ends by its end ids first, then by its own count since it was
 * extended, then by the length of the row. */
static void verdicts_follow_the_rules(void **state)
{
    int32_t stops[] = { 7, 8 };
    int32_t tokens[] = { 1, 8, 3 };
    xm_request r = { .stop_ids = stops, .stop_count = 2, .max_tokens = 3 };
    xm_sample s = { .request = &r, .tokens = tokens };
    (void)state;
    s.token_count = 1;
    s.row_count = 5;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_NONE);
    s.token_count = 2;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_STOP);
    r.stop_count = 1;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_NONE);
    s.token_count = 3;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_LENGTH);
    s.round_start = 1;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_NONE);
    s.row_count = ROW - 1;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_NONE);
    s.row_count = ROW;
    assert_int_equal(xm_sample_finish_reason(&s, ROW), XRAY_FINISH_LENGTH);
}

/* Lists end a sample, and so do repeats, by the tokens since it was extended;
 * those before count for neither. */
static void rounds_have_their_own_ends(void **state)
{
    static int32_t list[] = { 5, 6 };
    static const struct {
        int32_t tokens[8];
        uint32_t count;
        uint32_t start;
        uint32_t want;
    } cases[] = {
        { { 1, 5, 6 }, 3, 0, XRAY_FINISH_STOP },
        { { 1, 5, 6 }, 3, 1, XRAY_FINISH_STOP },
        { { 1, 5, 6 }, 3, 2, XRAY_FINISH_NONE },
        { { 5, 6, 1, 2 }, 4, 2, XRAY_FINISH_NONE },
        { { 5, 6, 5, 6 }, 4, 2, XRAY_FINISH_STOP },
        { { 1, 9, 9, 9 }, 4, 0, XRAY_FINISH_REPEAT },
        { { 1, 9, 9, 9 }, 4, 1, XRAY_FINISH_REPEAT },
        { { 1, 9, 9, 9 }, 4, 2, XRAY_FINISH_NONE },
        { { 9, 9, 9, 1, 2, 3 }, 6, 3, XRAY_FINISH_NONE },
        { { 1, 2, 3, 9, 9, 9 }, 6, 3, XRAY_FINISH_REPEAT },
    };
    xray_id_list lists[] = { { .ids = list, .count = 2 } };
    xm_request r = { .stop_lists = lists,
                     .stop_list_count = 1,
                     .repeat_size = 1,
                     .repeat_count = 3,
                     .max_tokens = 99 };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int32_t tokens[8];
        memcpy(tokens, cases[i].tokens, sizeof(tokens));
        xm_sample s = { .request = &r,
                        .tokens = tokens,
                        .token_count = cases[i].count,
                        .round_start = cases[i].start };
        uint32_t got = xm_sample_finish_reason(&s, ROW);
        if (got != cases[i].want)
            fail_msg("case %zu: %u, expected %u", i, got, cases[i].want);
    }
}

/* ---- lists -------------------------------------------------------------- */

/* Samples that wait for a slot may leave from any position, and new ones follow
 * the last that is left. */
static void waiting_samples_leave_from_anywhere(void **state)
{
    (void)state;
    for (uint32_t gone = 0; gone < 3; gone++) {
        xm_request r = { .id = 1 };
        xm_sample s[4] = {
            { .number = 0 }, { .number = 1 }, { .number = 2 }, { .number = 3 }
        };
        for (int i = 0; i < 3; i++)
            xm_ready_push(&r, &s[i]);
        xm_ready_remove(&r, &s[gone]);
        xm_ready_push(&r, &s[3]);
        for (uint32_t i = 0; i < 4; i++)
            if (i != gone)
                assert_ptr_equal(xm_ready_pop(&r), &s[i]);
        assert_null(xm_ready_pop(&r));
        /* The only one may leave, too. */
        xm_ready_push(&r, &s[0]);
        xm_ready_remove(&r, &s[0]);
        xm_ready_push(&r, &s[1]);
        assert_ptr_equal(xm_ready_pop(&r), &s[1]);
        assert_null(xm_ready_pop(&r));
    }
}

static void queues_lose_requests_from_anywhere(void **state)
{
    (void)state;
    for (uint32_t gone = 0; gone < 3; gone++) {
        xm_queue queue = { .name = XM_QUEUE_WAITING };
        xm_request r[3] = { { .id = 0 }, { .id = 1 }, { .id = 2 } };
        for (int i = 0; i < 3; i++)
            xm_queue_push(&queue, &r[i]);
        assert_int_equal(queue.count, 3);
        assert_int_equal(r[gone].queued, XM_QUEUE_WAITING);
        xm_queue_remove(&queue, &r[gone]);
        assert_int_equal(r[gone].queued, 0);
        assert_int_equal(queue.count, 2);
        xm_queue_push(&queue, &r[gone]);
        const xm_request *at = queue.first;
        for (uint32_t i = 0; i < 3; i++)
            if (i != gone) {
                assert_int_equal(at->id, i);
                at = at->next;
            }
        assert_ptr_equal(at, &r[gone]);
        assert_ptr_equal(at, queue.last);
        assert_null(at->next);
    }
}

/* ---- the scheduler ------------------------------------------------------ */

static xm_sched *make_sched(uint32_t slots, uint32_t step_tokens)
{
    const xm_sched_limits limits = { slots, step_tokens, { VOCAB, ROW } };
    xr_err err = { "" };
    xm_sched *s = NULL;
    assert_int_equal(xm_sched_create(&limits, &err, &s), XRAY_OK);
    return s;
}

static void a_scheduler_needs_a_token_per_slot(void **state)
{
    xr_err err = { "" };
    xm_sched *s = NULL;
    xm_sched_limits limits = { 3, 2, { VOCAB, ROW } };
    (void)state;
    xm_sched_destroy(NULL);
    assert_int_equal(xm_sched_create(&limits, &err, &s), XRAY_E_ARG);
    assert_string_equal(err.text, "2 tokens per step for 3 slots: at least one "
                                  "slot and one token per slot were expected");
    limits.slots = 0;
    assert_int_equal(xm_sched_create(&limits, &err, &s), XRAY_E_ARG);
    limits.slots = 2;
    assert_int_equal(xm_sched_create(&limits, &err, &s), XRAY_OK);
    xm_sched_destroy(s);
}

/* More requests than buckets: each is found by its id, and one that has ended
 * is not. */
static void many_requests_are_told_apart(void **state)
{
    enum { MANY = 500 };
    xm_sched *s = make_sched(2, 8);
    xr_err err = { "" };
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    (void)state;
    for (uint64_t i = 0; i < MANY; i++) {
        xray_request q = make_test_request(i * 1000003, ids, 4);
        q.first_sample = 10;
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_E_ARG);
    }
    assert_int_equal(xm_sched_live(s), MANY);
    xm_sched_stats(s, &stats);
    assert_int_equal(stats.requests_waiting, MANY);
    assert_int_equal(stats.requests_running, 0);
    for (uint64_t i = 0; i < MANY; i++) {
        uint64_t id = i * 7 % MANY * 1000003;
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        assert_int_equal(xm_sched_abort(s, id, XRAY_ALL_SAMPLES, &err),
                         XRAY_OK);
        assert_int_equal(xm_sched_poll(s, &out), XRAY_OK);
        assert_int_equal(out.id, id);
        assert_int_equal(out.sample, 10);
        assert_int_equal(out.finish, XRAY_FINISH_ABORT);
        assert_int_equal(out.token_count, 0);
        assert_int_equal(out.span_count, 0);
        assert_int_equal(xm_sched_poll(s, &out),
                         i + 1 < MANY ? XRAY_AGAIN : XRAY_END);
        assert_int_equal(xm_sched_abort(s, id, XRAY_ALL_SAMPLES, &err),
                         XRAY_E_ARG);
        assert_int_equal(xm_sched_live(s), MANY - 1 - i);
    }
    char want[80];
    (void)snprintf(want, sizeof(want),
                   "request %u: no request with this id is running",
                   (MANY - 7) * 1000003);
    assert_string_equal(err.text, want);
    xm_sched_destroy(s);
}

static void run_sched_step(xm_sched *s, uint32_t *out_tokens)
{
    int32_t room[4][64];
    xm_sched_step round = {
        .ids = room[0], .seq = room[1], .positions = room[2], .last = room[3]
    };
    xray_draw draws[16];
    int32_t index[16];
    static const int32_t tokens[16] = { 9, 9, 9, 9, 9, 9, 9, 9 };
    static const float logp[16] = { 0 };
    int run = 0;
    xm_sched_begin(s, &round);
    while (xm_sched_draws(s, 16, draws, index, &run))
        xm_sched_results(s, tokens, logp, logp);
    xm_sched_end(s);
    *out_tokens = round.tokens;
}

/* Each of several lists ends a sample, and so does each of several end ids;
 * all tokens are 9. */
static void any_of_several_ends_counts(void **state)
{
    static const int32_t nines[] = { 9, 9, 9 };
    static const int32_t stops[] = { 8, 7, 9 };
    (void)state;
    for (uint32_t right = 0; right < 3; right++)
        for (uint32_t length = 1; length <= 3; length++) {
            xm_sched *s = make_sched(1, 8);
            xray_request q = make_test_request(1, ids, 4);
            xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
            xray_id_list lists[3];
            uint32_t tokens = 0;
            xr_err err = { "" };
            for (uint32_t i = 0; i < 3; i++)
                lists[i] = (xray_id_list){ .ids = ids, .count = 1 + i };
            lists[right] = (xray_id_list){ .ids = nines, .count = length };
            q.max_tokens = 9;
            q.stop_lists = lists;
            q.stop_list_count = 3;
            q.stop_list_stride = sizeof(lists[0]);
            q.stop_ids = stops + right;
            q.stop_count = length == 3 ? 3 - right : 0;
            assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
            while (xm_sched_has_work(s))
                run_sched_step(s, &tokens);
            assert_int_equal(xm_sched_poll(s, &out), XRAY_OK);
            assert_int_equal(out.finish, XRAY_FINISH_STOP);
            assert_int_equal(out.token_count, q.stop_count ? 1 : length);
            xm_sched_destroy(s);
        }
}

/* Two requests on two slots and one that waits, step by step: prompts of 4
 * tokens with 3 samples of 3 tokens, with 1 of 2, and with 1 of 1. */
static void the_numbers_of_a_run(void **state)
{
    static const struct {
        uint32_t running, waiting, prompt, made, kv, saved, tokens;
    } want[] = {
        { 0, 3, 0, 0, 0, 0, 0 },
        { 2, 1, 8, 4, 8, 8, 8 }, /* both prompts, then one token per sample */
        { 1, 1, 8, 6, 5, 8, 2 }, /* the short one has ended */
        { 1, 1, 8, 8, 9, 8,
          2 }, /* the third sample took over the slot of the first */
    };
    static const uint32_t count[] = { 3, 1, 1 };
    static const uint32_t most[] = { 3, 2, 1 };
    xm_sched *s = make_sched(2, 16);
    xr_err err = { "" };
    uint32_t tokens = 7;
    (void)state;
    run_sched_step(s, &tokens); /* a step without work does not count */
    assert_int_equal(tokens, 0);
    for (uint64_t i = 0; i < 3; i++) {
        xray_request q = make_test_request(i, ids, 4);
        q.count = count[i];
        q.max_tokens = most[i];
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
    }
    for (uint32_t i = 0; i < 4; i++) {
        xray_infer_stats n = { .header = XRAY_HEADER(xray_infer_stats),
                               .preemptions = 9 };
        if (i)
            run_sched_step(s, &tokens);
        xm_sched_stats(s, &n);
        char got[160];
        char expected[160];
        (void)snprintf(got, sizeof(got), "%u: %u %u %u %u %u %u %u", i,
                       (unsigned)n.requests_running,
                       (unsigned)n.requests_waiting, (unsigned)n.prompt_tokens,
                       (unsigned)n.generation_tokens, (unsigned)n.kv_tokens,
                       (unsigned)n.prefix_tokens_saved, tokens);
        (void)snprintf(expected, sizeof(expected), "%u: %u %u %u %u %u %u %u",
                       i, want[i].running, want[i].waiting, want[i].prompt,
                       want[i].made, want[i].kv, want[i].saved, want[i].tokens);
        assert_string_equal(got, expected);
        assert_int_equal(n.steps, i);
        assert_int_equal(n.kv_capacity, 2 * ROW);
        assert_int_equal(n.preemptions, 0);
    }
    xm_sched_destroy(s);
}

/* A prompt that was never computed has the log-prob of its first id, 0, and
 * neither tokens nor versions. */
static void an_aborted_prompt_has_its_first_log_prob(void **state)
{
    xm_sched *s = make_sched(1, 8);
    xray_request q = make_test_request(3, ids, 4);
    xr_err err = { "" };
    (void)state;
    for (uint32_t wanted = 0; wanted < 2; wanted++) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        q.prompt_logp = wanted;
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
        assert_int_equal(xm_sched_abort(s, 3, 0, &err), XRAY_OK);
        assert_int_equal(xm_sched_poll(s, &out), XRAY_OK);
        assert_int_equal(out.prompt_count, wanted);
        assert_true(!out.prompt_logp == !wanted);
        assert_true(!wanted || out.prompt_logp[0] == 0);
        assert_int_equal(out.token_count, 0);
        assert_int_equal(out.span_count, 0);
    }
    xm_sched_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_bounds),
        cmocka_unit_test(each_id_of_each_list_is_checked),
        cmocka_unit_test(samplings_have_bounds),
        cmocka_unit_test(verdicts_follow_the_rules),
        cmocka_unit_test(rounds_have_their_own_ends),
        cmocka_unit_test(waiting_samples_leave_from_anywhere),
        cmocka_unit_test(queues_lose_requests_from_anywhere),
        cmocka_unit_test(a_scheduler_needs_a_token_per_slot),
        cmocka_unit_test(many_requests_are_told_apart),
        cmocka_unit_test(any_of_several_ends_counts),
        cmocka_unit_test(the_numbers_of_a_run),
        cmocka_unit_test(an_aborted_prompt_has_its_first_log_prob),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
