/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the scheduler alone: whatever the slots, the budget, the order and the
 * portions, every sample has the oracle's tokens.
 */
#include "tests/serve/sched_rig.h"

enum { ROW = 40 };

static rig *make_rig(uint32_t slots, uint32_t step_tokens, uint32_t draw_cap)
{
    const xm_sched_limits limits = { slots, step_tokens, { VOCAB, ROW } };
    return rig_new(&limits, draw_cap);
}

enum { SHAPES = 9 };
static xray_request make_shape(uint64_t i)
{
    static const uint32_t prompt[SHAPES] = { 1, 4, 39, 17, 8, 2, 30, 5, 16 };
    static const uint32_t count[SHAPES] = { 3, 1, 2, 7, 20, 1, 4, 1, 2 };
    static const uint32_t most[SHAPES] = { 4, 9, 50, 6, 1, 30, 99, 2, 12 };
    xray_request q = make_test_request(i, prompt[i], count[i], most[i]);
    q.first_sample = i % 3 == 1 ? 5 : 0;
    return q;
}

static void any_slots_budget_and_portion(void **state)
{
    (void)state;
    static const uint32_t slots[] = { 1, 2, 3, 5, 12 };
    static const uint32_t extra[] = { 0, 3, 40, 400 };
    static const uint32_t caps[] = { 1, 4, 64 };
    for (uint32_t c = 0; c < 5 * 4 * 3; c++) {
        uint32_t n = slots[c % 5];
        rig *r = make_rig(n, n + extra[c / 5 % 4], caps[c / 20]);
        r->hurries = c % 3 == 0;
        uint32_t wanted = 0;
        for (uint64_t i = 0; i < SHAPES; i++) {
            xray_request q = make_shape(c % 2 ? i : SHAPES - 1 - i);
            wanted += q.count;
            rig_submit(r, &q);
        }
        rig_run(r);
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        while (xm_sched_poll(r->sched, &out) == XRAY_OK) {
            xray_request q = make_shape(out.id);
            check_result(r, &q, &out);
            wanted--;
        }
        assert_int_equal(wanted, 0);
        assert_int_equal(xm_sched_live(r->sched), 0);
        rig_free(r);
    }
}

/* A stop id counts even where nothing may follow it: as the last of max_tokens,
 * and at the last position of a row. */
static void a_stop_id_may_come_last(void **state)
{
    (void)state;
    static oracle row;
    uint32_t at_most = 0;
    uint32_t at_end = 0;
    for (uint64_t id = 1; !at_most || !at_end; id++) {
        rig *r = make_rig(1, 64, 64);
        xray_request q = make_test_request(id, 3, 1, 2 * ROW);
        uint32_t made = 0;
        oracle_begin(r, q.ids, q.id_count, &row);
        uint32_t finish = oracle_sample(r, &q, 0, &row, &made);
        uint32_t *seen = row.count == ROW ? &at_end : &at_most;
        if (finish == XRAY_FINISH_STOP && !*seen) {
            if (row.count < ROW)
                q.max_tokens = made;
            rig_submit(r, &q);
            rig_run(r);
            xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
            assert_int_equal(out.finish, XRAY_FINISH_STOP);
            assert_int_equal(out.token_count, made);
            assert_int_equal(out.tokens[made - 1], STOP_ID);
            *seen = 1;
        }
        rig_free(r);
    }
}

static void prompt_is_computed_once(void **state)
{
    (void)state;
    rig *r = make_rig(3, 64, 64);
    xray_request q = make_test_request(1, 20, 9, 5);
    q.stop_count = 0;
    rig_submit(r, &q);
    rig_run(r);
    xray_infer_stats stats = rig_stats(r);
    assert_int_equal(stats.prompt_tokens, 20);
    assert_int_equal(stats.prefix_tokens_saved, 8 * 20);
    assert_int_equal(stats.generation_tokens, 9 * 5);
    assert_int_equal(stats.kv_tokens, 0);
    /* Two slots were copied from the first; later samples took slots over. */
    assert_int_equal(r->copies, 2);
    /* prompt and 9 first tokens, then 3 x 4 tokens three times */
    assert_int_equal(stats.steps, 1 + 3 * 4);
    rig_free(r);
}

/* A prompt that new weights compute again is not copied to those that start
 * meanwhile. */
static void prompts_of_old_weights_are_not_copied(void **state)
{
    (void)state;
    for (uint64_t version = 0; version < 2; version++) {
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        rig *r = make_rig(2, 64, 64);
        xray_request q = make_test_request(1, 20, 2, 4);
        q.stop_count = 0;
        rig_submit(r, &q);
        rig_step(r);
        r->version += version;
        rig_run(r);
        assert_int_equal(r->copies, version ? 0 : 1);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
            assert_int_equal(out.token_count, 4);
            assert_int_equal(out.span_count, 1 + version);
        }
        rig_free(r);
    }
}

static void running_samples_go_before_prompts(void **state)
{
    (void)state;
    rig *r = make_rig(4, 8, 64);
    xray_request q = make_test_request(1, 2, 1, 30);
    q.stop_count = 0;
    rig_submit(r, &q);
    rig_step(r);
    xray_request long_one = make_test_request(2, 30, 1, 2);
    rig_submit(r, &long_one);
    for (uint32_t i = 0; i < 4; i++) {
        rig_step(r);
        xray_infer_stats stats = rig_stats(r);
        assert_int_equal(stats.generation_tokens, i + 2); /* one per step */
        assert_int_equal(stats.prompt_tokens, 2 + (i + 1) * 7);
        /* Of the sample, and of the part of the prompt that was computed. */
        assert_int_equal(stats.kv_tokens, i + 3 + (i + 1) * 7);
    }
    assert_int_equal(r->most_tokens, 8);
    rig_run(r);
    rig_free(r);
}

/* A waiting row gets a free slot in the next step, which is thus not made
 * ahead. While a pause keeps it waiting, steps are. */
static void a_step_is_made_ahead_unless_another_row_may_start(void **state)
{
    (void)state;
    for (uint32_t paused = 0; paused < 2; paused++) {
        rig *r = make_rig(2, 64, 64);
        xr_err err = { "" };
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        xray_request q[2];
        int32_t ids[2][4];
        r->hurries = 1;
        for (uint32_t i = 0; i < 2; i++) {
            q[i] = make_test_request(i + 1, 4, 1, 20);
            q[i].stop_count = 0;
            fill_text(i + 1, 4, ids[i]);
            q[i].ids = ids[i];
        }
        rig_submit(r, &q[0]);
        rig_step(r); /* the prompt */
        rig_step(r); /* a token, and the next one ahead */
        if (paused)
            assert_int_equal(xm_sched_pause(r->sched, XRAY_PAUSE_WAIT, &err),
                             XRAY_OK);
        rig_submit(r, &q[1]);
        for (uint32_t i = 0; i < 4; i++)
            rig_step(r);
        assert_int_equal(r->hurried, paused ? 4 : 2);
        assert_int_equal(rig_stats(r).prompt_tokens, paused ? 4 : 8);
        xm_sched_resume(r->sched);
        rig_run(r);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
            check_result(r, &q[i], &out);
        }
        rig_free(r);
    }
}

/* ---- abort, hold, extend ------------------------------------------------ */

static void abort_gives_what_was_made(void **state)
{
    (void)state;
    rig *r = make_rig(2, 16, 64);
    xr_err err = { "" };
    xray_request a =
        make_test_request(1, 4, 4, 30); /* 1 runs, 3 have a first token */
    xray_request b =
        make_test_request(2, 30, 1, 9); /* its prompt is half computed */
    xray_request c = make_test_request(3, 4, 2, 30); /* waits */
    a.stop_count = b.stop_count = c.stop_count = 0;
    rig_submit(r, &a);
    rig_submit(r, &b);
    rig_submit(r, &c);
    for (int i = 0; i < 2; i++)
        rig_step(r);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(xm_sched_abort(r->sched, id, XRAY_ALL_SAMPLES, &err),
                         XRAY_OK);
    assert_int_equal(xm_sched_live(r->sched), 0);
    assert_false(xm_sched_has_work(r->sched));
    uint32_t tokens[4] = { 0 };
    uint32_t outs[4] = { 0 };
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    while (xm_sched_poll(r->sched, &out) == XRAY_OK) {
        assert_int_equal(out.finish, XRAY_FINISH_ABORT);
        tokens[out.id] += out.token_count;
        outs[out.id]++;
        assert_int_equal(out.span_count, out.token_count ? 1 : 0);
    }
    assert_int_equal(outs[1], 4);
    assert_int_equal(outs[2], 1);
    assert_int_equal(outs[3], 2);
    assert_int_equal(tokens[1], 2 + 3);
    assert_int_equal(tokens[2] + tokens[3], 0);
    assert_int_equal(xm_sched_abort(r->sched, 1, XRAY_ALL_SAMPLES, &err),
                     XRAY_E_ARG);
    assert_string_equal(err.text,
                        "request 1: no request with this id is running");
    /* Both slots are free again: two samples run side by side, then one. */
    xray_infer_stats before = rig_stats(r);
    assert_int_equal(before.kv_tokens, 0);
    xray_request d = make_test_request(3, 4, 3, 6);
    d.stop_count = 0;
    rig_submit(r, &d);
    rig_run(r);
    xray_infer_stats stats = rig_stats(r);
    assert_int_equal(stats.steps - before.steps, 1 + 5 + 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
        check_result(r, &d, &out);
    }
    assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_END);
    rig_free(r);
}

/* After an observation a finished sample continues as if the row had been the
 * prompt from the start, with the positions of its draws counted on. */
static void hold_and_extend(void **state)
{
    (void)state;
    static const int32_t observed[] = { 60, 61, 62, 63, 64 };
    xr_err err = { "" };
    for (uint32_t slots = 1; slots <= 3; slots++) {
        rig *r = make_rig(slots, slots + 2, 64);
        xray_request q = make_test_request(1, 6, slots + 1, 4);
        q.hold = 1;
        rig_submit(r, &q);
        rig_run(r);
        static oracle rows[4];
        uint32_t turns[4] = { 0 };
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        uint32_t polled = 0;
        uint32_t released = 0;
        while (released < q.count) {
            while (xm_sched_poll(r->sched, &out) == XRAY_OK) {
                uint32_t s = out.sample;
                if (turns[s] == 0)
                    oracle_begin(r, q.ids, q.id_count, &rows[s]);
                uint32_t before = rows[s].count;
                uint32_t made = 0;
                uint32_t finish = oracle_sample(r, &q, s, &rows[s], &made);
                assert_int_equal(out.finish, finish);
                assert_int_equal(out.token_count, made);
                assert_memory_equal(out.tokens, rows[s].ids + before,
                                    made * sizeof(int32_t));
                assert_int_equal(out.spans[0].first, before);
                polled++;
                if (turns[s]++ == 0) {
                    oracle_add(r, observed, 5, &rows[s]);
                    assert_int_equal(
                        xm_sched_extend(r->sched, 1, s, observed, 5, &err),
                        XRAY_OK);
                } else {
                    assert_int_equal(xm_sched_release(r->sched, 1, s, &err),
                                     XRAY_OK);
                    released++;
                }
            }
            rig_run(r);
        }
        assert_int_equal(polled, 2 * q.count);
        assert_int_equal(xm_sched_live(r->sched), 0);
        rig_free(r);
    }
}

static void extend_says_what_is_wrong(void **state)
{
    (void)state;
    rig *r = make_rig(2, 64, 64);
    xr_err err = { "" };
    static const int32_t tokens[ROW] = { 1, 2, 200 };
    xray_request q = make_test_request(1, 6, 2, 1);
    q.hold = 1;
    rig_submit(r, &q);
    assert_int_equal(xm_sched_extend(r->sched, 1, 0, tokens, 2, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "sample 0 is not held"));
    rig_run(r);
    assert_int_equal(xm_sched_extend(r->sched, 1, 0, tokens, 2, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "has not been polled yet"));
    assert_int_equal(xm_sched_extend(r->sched, 1, 1, NULL, 0, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "sample 1 has a result that has not"));
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    while (xm_sched_poll(r->sched, &out) == XRAY_OK)
        assert_int_equal(out.token_count, 1);
    assert_int_equal(xm_sched_extend(r->sched, 1, 2, tokens, 2, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "no sample 2"));
    assert_int_equal(xm_sched_extend(r->sched, 1, 0, tokens, 3, &err),
                     XRAY_E_ARG);
    assert_non_null(strstr(err.text, "appended id 200"));
    static const int32_t odd[][3] = { { VOCAB, 1, 1 }, { 1, 1, -1 } };
    for (int i = 0; i < 2; i++)
        assert_int_equal(xm_sched_extend(r->sched, 1, 0, odd[i], 3, &err),
                         XRAY_E_ARG);
    assert_int_equal(xm_sched_extend(r->sched, 1, 0, tokens, ROW - 7, &err),
                     XRAY_E_RANGE);
    assert_non_null(strstr(err.text, "leave no space in a row of 40"));
    /* Both slots are held: another request waits, and the engine is idle. */
    xray_request other = make_test_request(2, 6, 1, 1);
    rig_submit(r, &other);
    assert_false(xm_sched_has_work(r->sched));
    assert_int_equal(xm_sched_release(r->sched, 1, 0, &err), XRAY_OK);
    assert_int_equal(xm_sched_release(r->sched, 1, 0, &err), XRAY_E_ARG);
    rig_run(r);
    assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
    check_result(r, &other, &out);
    assert_int_equal(xm_sched_live(r->sched), 1);
    assert_int_equal(xm_sched_abort(r->sched, 1, XRAY_ALL_SAMPLES, &err),
                     XRAY_OK);
    assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_END);
    assert_int_equal(xm_sched_live(r->sched), 0);
    rig_free(r);
}

/* A held sample whose first token was its last waits for a slot like any other.
 * It may be released or aborted there, and nobody gets a slot in its place. */
static void finished_samples_leave_while_they_wait(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    for (uint32_t gone = 1; gone < 1u << COUNT; gone++) {
        xr_err err = { "" };
        uint32_t polled = 0;
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        rig *r = make_rig(1, 8, 64);
        xray_request q = make_test_request(1, 6, COUNT, 1);
        q.hold = 1;
        rig_submit(r, &q);
        rig_run(r);
        while (xm_sched_poll(r->sched, &out) == XRAY_OK)
            polled++;
        assert_int_equal(polled, COUNT);
        for (uint32_t i = 0; i < COUNT; i++)
            if (gone >> i & 1)
                assert_int_equal(gone & 2
                                     ? xm_sched_release(r->sched, 1, i, &err)
                                     : xm_sched_abort(r->sched, 1, i, &err),
                                 XRAY_OK);
        /* Those that are left get their turn one after the other. */
        for (uint32_t i = 0; i < COUNT; i++) {
            static oracle row;
            uint32_t made = 0;
            if (gone >> i & 1)
                continue;
            oracle_begin(r, q.ids, q.id_count, &row);
            (void)oracle_sample(r, &q, i, &row, &made);
            (void)oracle_sample(r, &q, i, &row, &made);
            assert_int_equal(xm_sched_extend(r->sched, 1, i, NULL, 0, &err),
                             XRAY_OK);
            rig_run(r);
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
            assert_int_equal(out.sample, i);
            assert_int_equal(out.token_count, 1);
            assert_int_equal(out.tokens[0], row.ids[row.count - 1]);
            assert_int_equal(xm_sched_release(r->sched, 1, i, &err), XRAY_OK);
        }
        assert_int_equal(xm_sched_live(r->sched), 0);
        xray_request next = make_test_request(2, 6, 2, 3);
        rig_submit(r, &next);
        rig_run(r);
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
            check_result(r, &next, &out);
        }
        rig_free(r);
    }
}

/* ---- requests ----------------------------------------------------------- */

static void expect_refused(rig *r, const xray_request *q, const char *sentence)
{
    xr_err err = { "" };
    assert_int_equal(xm_sched_submit(r->sched, q, &err), XRAY_E_ARG);
    assert_string_equal(err.text, sentence);
}

static void bad_requests_are_named(void **state)
{
    (void)state;
    rig *r = make_rig(2, 64, 64);
    xray_request good = make_test_request(9, 4, 1, 3);
    xray_request q = good;
    q.id_count = 0;
    expect_refused(
        r, &q, "request 9: the prompt is empty, at least one id was expected");
    q.id_count = ROW;
    expect_refused(r, &q,
                   "request 9: the prompt has 40 tokens, fewer than 40 (the "
                   "longest row) were expected");
    int32_t ids[] = { 1, VOCAB, 2 };
    q = good;
    q.ids = ids;
    q.id_count = 3;
    expect_refused(r, &q,
                   "request 9: prompt id 97 at position 1 is outside the "
                   "vocabulary of 97");
    ids[1] = -1;
    expect_refused(r, &q,
                   "request 9: prompt id -1 at position 1 is outside the "
                   "vocabulary of 97");
    q = good;
    q.count = 0;
    expect_refused(r, &q,
                   "request 9: count 0, 1 to 1048576 samples were expected");
    q = good;
    q.max_tokens = 0;
    expect_refused(r, &q,
                   "request 9: max_tokens is 0, at least 1 was expected");
    static const float bad_t[] = { -1, 1e-9f };
    static const char *const names[] = { "-1", "1e-09" };
    for (int i = 0; i < 2; i++) {
        char text[200];
        q = good;
        q.temperature = bad_t[i];
        (void)snprintf(text, sizeof(text),
                       "request 9: temperature %s, 0 (greedy) or a finite "
                       "number of at least 1e-05 was expected",
                       names[i]);
        expect_refused(r, &q, text);
    }
    xr_err err = { "" };
    q = good;
    q.temperature = strtof("nan", NULL);
    assert_int_equal(xm_sched_submit(r->sched, &q, &err), XRAY_E_ARG);
    q.temperature = strtof("inf", NULL);
    assert_int_equal(xm_sched_submit(r->sched, &q, &err), XRAY_E_ARG);
    q = good;
    q.top_p = 0;
    expect_refused(
        r, &q, "request 9: top_p 0, more than 0 and at most 1 was expected");
    q = good;
    q.min_p = 1.5f;
    expect_refused(r, &q, "request 9: min_p 1.5, 0 to 1 was expected");
    q = good;
    q.top_k = -1;
    expect_refused(r, &q, "request 9: top_k -1, 0 (off) or more was expected");
    q = good;
    q.stop_ids = NULL;
    expect_refused(r, &q, "request 9: stop_count is 1 but stop_ids is not set");
    rig_submit(r, &good);
    expect_refused(r, &good, "request 9: a request of this id is running");
    rig_free(r);
}

/* An id may be used again once every result was polled; its memory as well. */
static void memory_is_used_again(void **state)
{
    (void)state;
    rig *r = make_rig(4, 64, 64);
    uint64_t grown = 0;
    for (int round = 0; round < 5; round++) {
        uint32_t wanted = 0;
        for (uint64_t i = 0; i < SHAPES; i++) {
            xray_request q = make_shape((i * 4 + (uint64_t)round) % SHAPES);
            wanted += q.count;
            rig_submit(r, &q);
        }
        uint64_t before = xm_sched_grown(r->sched);
        rig_run(r);
        assert_int_equal(xm_sched_grown(r->sched), before);
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        while (wanted--) /* once without a poll after the last one */
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
        if (round > 0)
            assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_END);
        if (round == 1)
            grown = xm_sched_grown(r->sched);
    }
    assert_int_equal(xm_sched_grown(r->sched), grown);
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_slots_budget_and_portion),
        cmocka_unit_test(a_stop_id_may_come_last),
        cmocka_unit_test(prompt_is_computed_once),
        cmocka_unit_test(prompts_of_old_weights_are_not_copied),
        cmocka_unit_test(running_samples_go_before_prompts),
        cmocka_unit_test(a_step_is_made_ahead_unless_another_row_may_start),
        cmocka_unit_test(abort_gives_what_was_made),
        cmocka_unit_test(hold_and_extend),
        cmocka_unit_test(extend_says_what_is_wrong),
        cmocka_unit_test(finished_samples_leave_while_they_wait),
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(memory_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
