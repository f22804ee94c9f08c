/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests the scheduler alone, driven by a model that is a hash: the memory of a
 * slot holds the ids fed to it, and a drawn token is a function of the row so
 * far and of the draw's key. Every sample thus has a single right answer, which
 * an oracle computes without slots or steps.
 */
#include "tests/testing.h"

#include <xray/numerics.h>

#include "model/serve/sched.h"

enum { VOCAB = 97, ROW = 40, MAX_SLOTS = 12, MAX_STEP = 512, STOP_ID = 5 };

typedef struct rig {
    xm_sched *sched;
    xm_sched_limits limits;
    int32_t memory[MAX_SLOTS][ROW];
    int32_t ids[MAX_STEP], seq[MAX_STEP], positions[MAX_STEP];
    int32_t last[MAX_SLOTS];
    uint32_t draw_cap;
    uint64_t copies;
    uint32_t most_tokens;
} rig;

static rig *rig_new(uint32_t slots, uint32_t step_tokens, uint32_t draw_cap)
{
    rig *r = calloc(1, sizeof(*r));
    xr_err err = { "" };
    assert_non_null(r);
    r->limits = (xm_sched_limits){ slots, step_tokens, { VOCAB, ROW } };
    r->draw_cap = draw_cap;
    assert_int_equal(xm_sched_create(&r->limits, &err, &r->sched), XRAY_OK);
    return r;
}

static void rig_free(rig *r)
{
    xm_sched_destroy(r->sched);
    free(r);
}

static uint64_t hash_row(const int32_t *row, uint32_t count)
{
    uint64_t h = 1;
    for (uint32_t i = 0; i < count; i++)
        h = xray_mix64(h, (uint64_t)(uint32_t)row[i]);
    return h;
}

static void answer_draw(uint64_t row, const xray_draw *draw, int32_t *token,
                        float *raw, float *logp)
{
    uint64_t h = xray_mix64(xray_mix64(row, draw->key), draw->sample);
    h = xray_mix64(h, draw->position);
    *token = (int32_t)(h % VOCAB);
    *raw = -(float)(h >> 40);
    *logp = *raw * draw->temperature;
}

static void answer_draws(rig *r, const xm_sched_step *round)
{
    xray_draw draws[64];
    int32_t index[64], token[64];
    float raw[64], logp[64];
    int run = 0;
    uint32_t n;
    while ((n = xm_sched_draws(r->sched, r->draw_cap, draws, index, &run))) {
        for (uint32_t i = 0; i < n; i++) {
            if (run)
                assert_int_equal(index[i], index[0] + (int32_t)i);
            int32_t at = r->last[index[i]];
            assert_true(at >= 0 && (uint32_t)at < round->tokens);
            const int32_t *row = r->memory[r->seq[at]];
            answer_draw(hash_row(row, (uint32_t)r->positions[at] + 1),
                        &draws[i], &token[i], &raw[i], &logp[i]);
        }
        xm_sched_results(r->sched, token, raw, logp);
    }
}

static void rig_step(rig *r)
{
    xm_sched_step round = {
        .ids = r->ids, .seq = r->seq, .positions = r->positions, .last = r->last
    };
    xr_err err = { "" };
    assert_int_equal(xm_sched_set_version(r->sched, 7, &err), XRAY_OK);
    xm_sched_begin(r->sched, &round);
    for (uint32_t i = 0; i < round.copy_count; i++) {
        const xm_slot_copy *c = &round.copies[i];
        assert_int_not_equal(c->from, c->to);
        memcpy(r->memory[c->to], r->memory[c->from],
               c->positions * sizeof(int32_t));
        for (uint32_t p = c->positions; p < ROW; p++)
            r->memory[c->to][p] = -9; /* earlier contents must not be read */
        r->copies++;
    }
    assert_true(round.tokens <= r->limits.step_tokens);
    if (round.tokens > r->most_tokens)
        r->most_tokens = round.tokens;
    for (uint32_t i = 0; i < round.tokens; i++) {
        assert_true(r->positions[i] < (int32_t)round.position_bound);
        r->memory[r->seq[i]][r->positions[i]] = r->ids[i];
    }
    for (uint32_t i = 1; i < round.last_count; i++)
        assert_true(r->last[i] > r->last[i - 1]);
    answer_draws(r, &round);
    xm_sched_end(r->sched);
}

static void rig_run(rig *r)
{
    int steps = 0;
    while (xm_sched_has_work(r->sched)) {
        rig_step(r);
        assert_true(++steps < 100000);
    }
}

/* ---- requests and their right answers
 * -------------------------------------- */

static const int32_t stops[] = { STOP_ID };
static int32_t prompt_ids[ROW];

static xray_request make_test_request(uint64_t id, uint32_t prompt,
                                      uint32_t count, uint32_t max_tokens)
{
    for (uint32_t i = 0; i < ROW; i++)
        prompt_ids[i] = (int32_t)((id * 31 + i * 7 + 3) % VOCAB);
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .id = id,
                           .ids = prompt_ids,
                           .id_count = prompt,
                           .count = count,
                           .max_tokens = max_tokens,
                           .seed = 11,
                           .step = 3,
                           .prompt_id = id + 100,
                           .temperature = 0.5f,
                           .top_p = 1,
                           .stop_ids = stops,
                           .stop_count = 1 };
}

/* Samples from `row`, which grows, until a rule ends it; returns the finish
 * reason. */
static uint32_t sample_by_oracle(const xray_request *q, uint32_t sample,
                                 int32_t *row, uint32_t *row_count,
                                 uint32_t *made)
{
    uint64_t key = xray_philox_key(q->seed, q->step, q->prompt_id);
    *made = 0;
    for (;;) {
        float raw, logp;
        xray_draw draw = { .key = key,
                           .sample = sample,
                           .position = *row_count,
                           .temperature = q->temperature };
        answer_draw(hash_row(row, *row_count), &draw, &row[*row_count], &raw,
                    &logp);
        int32_t token = row[(*row_count)++];
        ++*made;
        if (token == STOP_ID)
            return XRAY_FINISH_STOP;
        if (*made == q->max_tokens || *row_count == ROW)
            return XRAY_FINISH_LENGTH;
    }
}

static void check_result(const xray_request *q, const xray_sample_out *out)
{
    int32_t row[ROW];
    for (uint32_t i = 0; i < ROW; i++)
        row[i] = (int32_t)((q->id * 31 + i * 7 + 3) % VOCAB);
    uint32_t count = q->id_count;
    uint32_t made = 0;
    uint32_t finish = sample_by_oracle(q, out->sample, row, &count, &made);
    assert_int_equal(out->finish, finish);
    assert_int_equal(out->token_count, made);
    assert_memory_equal(out->tokens, row + q->id_count, made * sizeof(*row));
    assert_int_equal(out->span_count, 1);
    assert_int_equal(out->spans[0].first, q->id_count);
    assert_int_equal(out->spans[0].last, count);
    assert_int_equal(out->spans[0].version, 7);
}

static void submit_request(rig *r, const xray_request *q)
{
    xr_err err = { "" };
    xray_status status = xm_sched_submit(r->sched, q, &err);
    if (status != XRAY_OK)
        fail_msg("%s", err.text);
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
        rig *r = rig_new(n, n + extra[c / 5 % 4], caps[c / 20]);
        uint32_t wanted = 0;
        for (uint64_t i = 0; i < SHAPES; i++) {
            xray_request q = make_shape(c % 2 ? i : SHAPES - 1 - i);
            wanted += q.count;
            submit_request(r, &q);
        }
        rig_run(r);
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        while (xm_sched_poll(r->sched, &out) == XRAY_OK) {
            xray_request q = make_shape(out.id);
            check_result(&q, &out);
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
    uint32_t at_most = 0;
    uint32_t at_end = 0;
    for (uint64_t id = 1; !at_most || !at_end; id++) {
        xray_request q = make_test_request(id, 3, 1, 2 * ROW);
        int32_t row[ROW];
        uint32_t count = q.id_count;
        uint32_t made = 0;
        memcpy(row, prompt_ids, sizeof(row));
        if (sample_by_oracle(&q, 0, row, &count, &made) != XRAY_FINISH_STOP ||
            (count == ROW ? at_end : at_most))
            continue;
        if (count < ROW)
            q.max_tokens = made;
        rig *r = rig_new(1, 64, 64);
        submit_request(r, &q);
        rig_run(r);
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
        assert_int_equal(out.finish, XRAY_FINISH_STOP);
        assert_int_equal(out.token_count, made);
        assert_int_equal(out.tokens[made - 1], STOP_ID);
        rig_free(r);
        *(count == ROW ? &at_end : &at_most) = 1;
    }
}

static void prompt_is_computed_once(void **state)
{
    (void)state;
    rig *r = rig_new(3, 64, 64);
    xray_request q = make_test_request(1, 20, 9, 5);
    q.stop_count = 0;
    submit_request(r, &q);
    rig_run(r);
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xm_sched_stats(r->sched, &stats);
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

static void running_samples_go_before_prompts(void **state)
{
    (void)state;
    rig *r = rig_new(4, 8, 64);
    xray_request q = make_test_request(1, 2, 1, 30);
    q.stop_count = 0;
    submit_request(r, &q);
    rig_step(r);
    xray_request long_one = make_test_request(2, 30, 1, 2);
    submit_request(r, &long_one);
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    for (uint32_t i = 0; i < 4; i++) {
        rig_step(r);
        xm_sched_stats(r->sched, &stats);
        assert_int_equal(stats.generation_tokens, i + 2); /* one per step */
        assert_int_equal(stats.prompt_tokens, 2 + (i + 1) * 7);
        /* Of the sample, and of the part of the prompt that was computed. */
        assert_int_equal(stats.kv_tokens, i + 3 + (i + 1) * 7);
    }
    assert_int_equal(r->most_tokens, 8);
    rig_run(r);
    rig_free(r);
}

/* ---- abort, hold, extend ------------------------------------------------ */

static void abort_gives_what_was_made(void **state)
{
    (void)state;
    rig *r = rig_new(2, 16, 64);
    xr_err err = { "" };
    xray_request a =
        make_test_request(1, 4, 4, 30); /* 1 runs, 3 have a first token */
    xray_request b =
        make_test_request(2, 30, 1, 9); /* its prompt is half computed */
    xray_request c = make_test_request(3, 4, 2, 30); /* waits */
    a.stop_count = b.stop_count = c.stop_count = 0;
    submit_request(r, &a);
    submit_request(r, &b);
    submit_request(r, &c);
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
    xray_infer_stats before = { .header = XRAY_HEADER(xray_infer_stats) };
    xray_infer_stats stats = { .header = XRAY_HEADER(xray_infer_stats) };
    xm_sched_stats(r->sched, &before);
    assert_int_equal(before.kv_tokens, 0);
    xray_request d = make_test_request(3, 4, 3, 6);
    d.stop_count = 0;
    submit_request(r, &d);
    rig_run(r);
    xm_sched_stats(r->sched, &stats);
    assert_int_equal(stats.steps - before.steps, 1 + 5 + 5);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
        check_result(&d, &out);
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
        rig *r = rig_new(slots, slots + 2, 64);
        xray_request q = make_test_request(1, 6, slots + 1, 4);
        q.hold = 1;
        submit_request(r, &q);
        rig_run(r);
        int32_t rows[4][ROW];
        uint32_t counts[4] = { 0 };
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        uint32_t polled = 0;
        uint32_t released = 0;
        while (released < q.count) {
            while (xm_sched_poll(r->sched, &out) == XRAY_OK) {
                uint32_t s = out.sample;
                if (!counts[s]) {
                    memcpy(rows[s], prompt_ids, 6 * sizeof(int32_t));
                    counts[s] = 6;
                }
                uint32_t before = counts[s];
                uint32_t made = 0;
                uint32_t finish =
                    sample_by_oracle(&q, s, rows[s], &counts[s], &made);
                assert_int_equal(out.finish, finish);
                assert_int_equal(out.token_count, made);
                assert_memory_equal(out.tokens, rows[s] + before,
                                    made * sizeof(int32_t));
                assert_int_equal(out.spans[0].first, before);
                polled++;
                if (before == 6) {
                    memcpy(rows[s] + counts[s], observed, sizeof(observed));
                    counts[s] += 5;
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
    rig *r = rig_new(2, 64, 64);
    xr_err err = { "" };
    static const int32_t tokens[ROW] = { 1, 2, 200 };
    xray_request q = make_test_request(1, 6, 2, 1);
    q.hold = 1;
    submit_request(r, &q);
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
    assert_int_equal(xm_sched_extend(r->sched, 1, 0, tokens, ROW - 7, &err),
                     XRAY_E_RANGE);
    assert_non_null(strstr(err.text, "leave no space in a row of 40"));
    /* Both slots are held: another request waits, and the engine is idle. */
    xray_request other = make_test_request(2, 6, 1, 1);
    submit_request(r, &other);
    assert_false(xm_sched_has_work(r->sched));
    assert_int_equal(xm_sched_release(r->sched, 1, 0, &err), XRAY_OK);
    assert_int_equal(xm_sched_release(r->sched, 1, 0, &err), XRAY_E_ARG);
    rig_run(r);
    assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_OK);
    check_result(&other, &out);
    assert_int_equal(xm_sched_live(r->sched), 1);
    assert_int_equal(xm_sched_abort(r->sched, 1, XRAY_ALL_SAMPLES, &err),
                     XRAY_OK);
    assert_int_equal(xm_sched_poll(r->sched, &out), XRAY_END);
    assert_int_equal(xm_sched_live(r->sched), 0);
    rig_free(r);
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
    rig *r = rig_new(2, 64, 64);
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
    submit_request(r, &good);
    expect_refused(r, &good, "request 9: a request of this id is running");
    rig_free(r);
}

/* An id may be used again once every result was polled; its memory as well. */
static void memory_is_used_again(void **state)
{
    (void)state;
    rig *r = rig_new(4, 64, 64);
    uint64_t grown = 0;
    for (int round = 0; round < 5; round++) {
        uint32_t wanted = 0;
        for (uint64_t i = 0; i < SHAPES; i++) {
            xray_request q = make_shape((i * 4 + (uint64_t)round) % SHAPES);
            wanted += q.count;
            submit_request(r, &q);
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
        cmocka_unit_test(running_samples_go_before_prompts),
        cmocka_unit_test(abort_gives_what_was_made),
        cmocka_unit_test(hold_and_extend),
        cmocka_unit_test(extend_says_what_is_wrong),
        cmocka_unit_test(bad_requests_are_named),
        cmocka_unit_test(memory_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
