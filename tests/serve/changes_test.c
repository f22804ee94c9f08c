/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what the scheduler asks of a draw: its settings, which ids it may have,
 * and what begins anew where a sample is extended.
 */
#include "tests/testing.h"

#include <xray/numerics.h>

#include "model/serve/sched.h"
#include "tests/serve/test_request.h"

enum { VOCAB = 97, ROW = 40, BUDGET = 16 };

static const int32_t ids[4] = { 1, 2, 3, 4 };

static xm_sched *make_sched(uint32_t slots, uint32_t vocab)
{
    const xm_sched_limits limits = { slots, BUDGET, { vocab, ROW } };
    xr_err err = { "" };
    xm_sched *s = NULL;
    assert_int_equal(xm_sched_create(&limits, &err, &s), XRAY_OK);
    return s;
}

/* Begins a step with the tokens of all samples. */
static void begin_step(xm_sched *s)
{
    static int32_t room[4][BUDGET];
    xm_sched_step step = {
        .ids = room[0], .seq = room[1], .positions = room[2], .last = room[3]
    };
    xm_sched_begin(s, &step);
}

/* Whether a draw may be an id; a set has so many words. */
static int may_draw(const xm_changes *changes, uint32_t words, uint32_t draw,
                    uint32_t id)
{
    int32_t set = changes->allowed_set[draw];
    const uint32_t *allowed = changes->allowed + (size_t)set * words;
    return set < 0 || (allowed[id / 32] >> id % 32 & 1);
}

/* Sets lie side by side, each of as many words as the vocabulary needs. Draw i
 * may be id i or the last one; one without a list may be any. */
static void sets_lie_side_by_side(void **state)
{
    static const uint32_t vocabs[] = { 31, 32, 33, 64, 96, 97 };
    enum { DRAWS = 3, PLAIN = 1 };
    (void)state;
    for (size_t v = 0; v < sizeof(vocabs) / sizeof(vocabs[0]); v++) {
        uint32_t words = (vocabs[v] + 31) / 32;
        int32_t start[XM_LOGIT_DRAWS + 1], sets[XM_LOGIT_DRAWS];
        uint32_t allowed[XM_LOGIT_DRAWS * 4];
        xm_changes changes = { .edit_start = start,
                               .allowed = allowed,
                               .allowed_set = sets };
        xm_sched *s = make_sched(DRAWS, vocabs[v]);
        xr_err err = { "" };
        xray_draw draws[DRAWS];
        int32_t index[DRAWS];
        int run = 0;
        for (uint32_t i = 0; i < DRAWS; i++) {
            const int32_t list[] = { (int32_t)i, (int32_t)vocabs[v] - 1 };
            const int32_t wanted[] = { 1 };
            xray_request q = make_test_request(i, ids, 4);
            q.allowed_ids = i == PLAIN ? NULL : list;
            q.allowed_count = i == PLAIN ? 0 : 2;
            q.logp_ids = wanted; /* so that it needs logits, too */
            q.logp_id_count = 1;
            assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
        }
        begin_step(s);
        assert_int_equal(xm_sched_draws(s, DRAWS, draws, index, &run), DRAWS);
        assert_int_equal(xm_sched_changes(s, &changes), 1);
        assert_int_equal(changes.set_count, DRAWS - 1);
        for (uint32_t i = 0; i < DRAWS; i++)
            for (uint32_t id = 0; id < vocabs[v]; id++)
                assert_int_equal(may_draw(&changes, words, i, id),
                                 i == PLAIN || id == i || id == vocabs[v] - 1);
        xm_sched_destroy(s);
    }
}

/* Lists of banned ids and min_tokens begin anew where a sample is extended.
 * Those of the first round are 7, all others are 9; the lists are 9 after 9,
 * and 8 after 9, 9. */
static void bans_and_minima_are_those_of_a_round(void **state)
{
    enum { STOP = 5, WORDS = (VOCAB + 31) / 32 };
    static const int32_t nines[] = { 9, 9, 9, 8 };
    static const xray_id_list banned[] = { { .ids = nines, .count = 2 },
                                           { .ids = nines + 1, .count = 3 } };
    static const struct {
        int stop, nine, eight;
    } want[] = { { 0, 1, 1 }, { 0, 0, 1 }, { 1, 0, 0 } };
    static const int32_t stops[] = { STOP, -1, VOCAB };
    static const float logp = 0;
    int32_t start[XM_LOGIT_DRAWS + 1], sets[XM_LOGIT_DRAWS], index;
    uint32_t allowed[XM_LOGIT_DRAWS * WORDS];
    xm_changes changes = { .edit_start = start,
                           .allowed = allowed,
                           .allowed_set = sets };
    xm_sched *s = make_sched(1, VOCAB);
    xray_request q = make_test_request(1, ids, 4);
    xr_err err = { "" };
    (void)state;
    q.hold = 1;
    q.min_tokens = 2;
    q.stop_ids = stops;
    q.stop_count = 3;
    q.banned_lists = banned;
    q.banned_list_count = 2;
    q.banned_list_stride = sizeof(banned[0]);
    assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
    for (uint32_t round = 0; round < 3; round++) {
        const int32_t token = round ? 9 : 7;
        for (uint32_t i = 0; i < 3; i++) {
            xray_draw draw;
            int run = 0;
            begin_step(s);
            assert_int_equal(xm_sched_draws(s, 1, &draw, &index, &run), 1);
            assert_int_equal(xm_sched_changes(s, &changes), 1);
            assert_int_equal(may_draw(&changes, WORDS, 0, STOP), want[i].stop);
            assert_int_equal(may_draw(&changes, WORDS, 0, 9),
                             !round || want[i].nine);
            assert_int_equal(may_draw(&changes, WORDS, 0, 8),
                             !round || want[i].eight);
            assert_true(may_draw(&changes, WORDS, 0, VOCAB - 1));
            assert_true(may_draw(&changes, WORDS, 0, 0));
            xm_sched_results(s, &token, &logp, &logp);
            xm_sched_end(s);
        }
        xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
        assert_int_equal(xm_sched_poll(s, &out), XRAY_OK);
        assert_int_equal(out.finish, XRAY_FINISH_LENGTH);
        assert_int_equal(out.first, 0);
        assert_int_equal(out.token_count, 3);
        assert_int_equal(xm_sched_extend(s, 1, 0, nines, round + 1, &err),
                         XRAY_OK);
    }
    xm_sched_destroy(s);
}

/* A forced token is all that a draw may be, and its logits are not edited. The
 * tokens behind it have the edits of all those drawn, forced ones too. */
static void forced_draws_have_no_edits(void **state)
{
    enum { DRAWS = 2, FORCED = 2, WORDS = (VOCAB + 31) / 32 };
    static const int32_t tokens[3][DRAWS] = { { 9, 7 }, { 4, 7 } };
    static const int32_t forced[FORCED] = { 9, 4 };
    static const int32_t edited[3][DRAWS][4] = { { { 0 }, { 5 } },
                                                 { { 0 }, { 5, 7 } },
                                                 { { 5, 9, 4 }, { 5, 7 } } };
    static const xray_bias bias = { 5, 1 };
    static const float logp[DRAWS] = { 0 };
    const xm_limits limits = { VOCAB, ROW };
    int32_t start[XM_LOGIT_DRAWS + 1], sets[XM_LOGIT_DRAWS], index[DRAWS];
    uint32_t allowed[XM_LOGIT_DRAWS * WORDS];
    xm_changes changes = { .edit_start = start,
                           .allowed = allowed,
                           .allowed_set = sets };
    xm_sched *s = make_sched(DRAWS, VOCAB);
    xr_err err = { "" };
    xray_draw draws[DRAWS];
    int run = 0;
    (void)state;
    changes.edits = calloc(xm_sched_edits(&limits), sizeof(*changes.edits));
    assert_non_null(changes.edits);
    for (uint32_t i = 0; i < DRAWS; i++) {
        xray_request q = make_test_request(i, ids, 4);
        q.biases = &bias;
        q.bias_stride = sizeof(bias);
        q.bias_count = 1;
        q.presence_penalty = 1;
        q.forced_ids = i ? NULL : forced;
        q.forced_count = i ? 0 : FORCED;
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
    }
    for (uint32_t round = 0; round < 3; round++) {
        begin_step(s);
        assert_int_equal(xm_sched_draws(s, DRAWS, draws, index, &run), DRAWS);
        assert_int_equal(xm_sched_changes(s, &changes), 1);
        for (int32_t id = 0; id < VOCAB; id++) {
            assert_int_equal(may_draw(&changes, WORDS, 0, (uint32_t)id),
                             round >= FORCED || id == forced[round]);
            assert_true(may_draw(&changes, WORDS, 1, (uint32_t)id));
        }
        for (uint32_t i = 0; i < DRAWS; i++) {
            const int32_t *want = edited[round][i];
            int32_t at = start[i];
            for (; *want; want++, at++) {
                assert_true(at < start[i + 1]);
                assert_int_equal(changes.edits[at].id, *want);
                assert_true(changes.edits[at].add == (*want == 5 ? 1 : -1));
            }
            assert_int_equal(at, start[i + 1]);
        }
        xm_sched_results(s, tokens[round], logp, logp);
        xm_sched_end(s);
    }
    free(changes.edits);
    xm_sched_destroy(s);
}

/* A draw has the settings of its request, and the position of its token. */
static void draws_have_the_settings_of_their_request(void **state)
{
    enum { DRAWS = 3 };
    xm_sched *s = make_sched(DRAWS, VOCAB);
    xr_err err = { "" };
    xray_draw draws[DRAWS];
    int32_t index[DRAWS];
    static const int32_t tokens[DRAWS] = { 9, 9, 9 };
    static const float logp[DRAWS] = { 0 };
    int run = 0;
    (void)state;
    for (uint32_t i = 0; i < DRAWS; i++) {
        xray_request q = make_test_request(i, ids, 4);
        q.id_count = 1 + i;
        q.first_sample = 10 * i;
        q.seed = 5 + i;
        q.step = 6 + i;
        q.prompt_id = 7 + i;
        q.temperature = 0.5f + (float)i;
        q.top_p = 1 - 0.1f * (float)i;
        q.min_p = 0.1f * (float)i;
        q.top_k = (int32_t)(3 * i);
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
    }
    for (uint32_t round = 0; round < 2; round++) {
        begin_step(s);
        memset(draws, 0xff, sizeof(draws));
        assert_int_equal(xm_sched_draws(s, DRAWS, draws, index, &run), DRAWS);
        for (uint32_t i = 0; i < DRAWS; i++) {
            const xray_draw *d = &draws[i];
            assert_true(d->key == xray_philox_key(5 + i, 6 + i, 7 + i));
            assert_int_equal(d->sample, 10 * i);
            assert_int_equal(d->position, 1 + i + round);
            assert_true(d->temperature == 0.5f + (float)i);
            assert_true(d->top_p == 1 - 0.1f * (float)i);
            assert_true(d->min_p == 0.1f * (float)i);
            assert_int_equal(d->top_k, 3 * i);
        }
        xm_sched_results(s, tokens, logp, logp);
        xm_sched_end(s);
    }
    xm_sched_destroy(s);
}

/* Of draws that are made together each has the ids and the likeliest ones that
 * its own request asks for, out of rows that are as wide as the most. */
static void log_probs_of_ids_lie_side_by_side(void **state)
{
    enum { DRAWS = 3, WIDE = 3 };
    static const int32_t wanted[WIDE] = { 7, 8, 9 };
    static const int32_t rows[DRAWS * WIDE] = { 7, 8, -1, -1, -1, -1, 7, 8, 9 };
    static const int32_t tokens[DRAWS] = { 11, 12, 13 };
    static const int32_t top_ids[DRAWS * 2] = { 20, 21, 22, 23, 24, 25 };
    static const float top[DRAWS * 2] = { 1, 2, 3, 4, 5, 6 };
    static const float given[DRAWS * WIDE] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    static const float logp[DRAWS] = { 0 };
    const xm_limits limits = { VOCAB, ROW };
    int32_t start[XM_LOGIT_DRAWS + 1], sets[XM_LOGIT_DRAWS], index[DRAWS];
    uint32_t allowed[XM_LOGIT_DRAWS * ((VOCAB + 31) / 32)];
    int32_t got[DRAWS * WIDE];
    xm_changes changes = { .edit_start = start,
                           .allowed = allowed,
                           .allowed_set = sets };
    xm_sched *s = make_sched(DRAWS, VOCAB);
    xr_err err = { "" };
    xray_draw draws[DRAWS];
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    int run = 0;
    (void)state;
    changes.edits = calloc(xm_sched_edits(&limits), sizeof(*changes.edits));
    assert_non_null(changes.edits);
    for (uint32_t i = 0; i < DRAWS; i++) {
        xray_request q = make_test_request(i, ids, 4);
        q.max_tokens = 1;
        q.logp_ids = wanted;
        q.logp_id_count = i == 0 ? 2 : i == 1 ? 0 : WIDE;
        q.top_count = i;
        assert_int_equal(xm_sched_submit(s, &q, &err), XRAY_OK);
    }
    begin_step(s);
    assert_int_equal(xm_sched_draws(s, DRAWS, draws, index, &run), DRAWS);
    assert_int_equal(xm_sched_changes(s, &changes), 1);
    assert_int_equal(changes.logp_id_count, WIDE);
    assert_int_equal(changes.top_count, 2);
    assert_int_equal(start[DRAWS], 0);
    xm_sched_logp_ids(s, WIDE, got);
    assert_memory_equal(got, rows, sizeof(rows));
    xm_sched_take_top(s, 2, top_ids, top);
    xm_sched_take_logp(s, WIDE, given);
    xm_sched_results(s, tokens, logp, logp);
    xm_sched_end(s);
    for (uint32_t i = 0; i < DRAWS; i++) {
        assert_int_equal(xm_sched_poll(s, &out), XRAY_OK);
        assert_int_equal(out.id, i);
        assert_int_equal(out.top_count, i);
        if (i) {
            assert_memory_equal(out.top_ids, top_ids + i * 2,
                                i * sizeof(int32_t));
            assert_memory_equal(out.top_logp, top + i * 2, i * sizeof(float));
        }
        if (i != 1)
            assert_memory_equal(out.logp_of_ids, given + i * WIDE,
                                (i ? WIDE : 2) * sizeof(float));
    }
    free(changes.edits);
    xm_sched_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_lie_side_by_side),
        cmocka_unit_test(draws_have_the_settings_of_their_request),
        cmocka_unit_test(forced_draws_have_no_edits),
        cmocka_unit_test(log_probs_of_ids_lie_side_by_side),
        cmocka_unit_test(bans_and_minima_are_those_of_a_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
