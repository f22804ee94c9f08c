/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that every array of a batch is filled from a row, and kept when rows
 * are copied, cut or read in another process.
 */
#include "tests/testing.h"

#include "core/run/rows.h"

#define FLOATS 7

/* Returns array i of one float per token, in the order of the ABI. */
static float **find_float_array(xray_batch *b, uint32_t i)
{
    float **all[FLOATS] = { &b->rollout_logp, &b->old_logp, &b->ref_logp,
                            &b->value,        &b->reward,   &b->advantage,
                            &b->returns };
    return all[i];
}

/* Adds row `k` of the tests: k + 2 tokens of prompt and k of response. Every
 * value in it identifies its row, array and token. */
static void add_test_row(xr_rows *rows, uint32_t k)
{
    int32_t ids[16];
    float logp[16];
    xr_err err = { "" };
    uint32_t at = rows->batch.tokens;
    for (uint32_t t = 0; t < 16; t++) {
        ids[t] = (int32_t)(1000 * k + t);
        logp[t] = -(float)(100 * k + t);
    }
    xr_row_in in = { .prompt = ids,
                     .prompt_count = k + 2,
                     .response = ids + k + 2,
                     .response_count = k,
                     .logp = logp,
                     .row_id = 50 + k,
                     .prompt_id = 60 + k,
                     .version = 70 + k,
                     .group = (int32_t)(k / 2),
                     .temperature = 0.25f * (float)(k + 1),
                     .baseline = 0.125f * (float)(k + 1) };
    assert_int_equal(xr_rows_add(rows, &in, &err), XRAY_OK);
    for (uint32_t t = at; t < rows->batch.tokens; t++)
        for (uint32_t i = 0; i < FLOATS; i++)
            (*find_float_array(&rows->batch, i))[t] =
                (float)(1000 * (i + 1) + 100 * k + (t - at));
}

/* Expects row r of the batch to be row k of the tests, in every array. */
static void expect_test_row(const xray_batch *b, uint32_t r, uint32_t k,
                            int32_t group)
{
    xray_batch copy = *b;
    int32_t at = b->row_start[r];
    assert_int_equal(b->row_start[r + 1] - at, 2 * k + 2);
    assert_int_equal(b->prompt_len[r], k + 2);
    assert_int_equal(b->row_id[r], 50 + k);
    assert_int_equal(b->prompt_id[r], 60 + k);
    assert_int_equal(b->group[r], group);
    assert_true(b->temperature[r] == 0.25f * (float)(k + 1));
    assert_true(b->baseline[r] == 0.125f * (float)(k + 1));
    assert_int_equal(b->spans[r].first, k + 2);
    assert_int_equal(b->spans[r].last, 2 * k + 2);
    assert_int_equal(b->spans[r].version, 70 + k);
    for (uint32_t t = 0; t < 2 * k + 2; t++) {
        assert_int_equal(b->ids[at + (int32_t)t], 1000 * k + t);
        assert_true(b->loss_mask[at + (int32_t)t] == (t >= k + 2 ? 1 : 0));
        for (uint32_t i = 0; i < FLOATS; i++)
            assert_true((*find_float_array(&copy, i))[at + (int32_t)t] ==
                        (float)(1000 * (i + 1) + 100 * k + t));
    }
}

/* Capacities are used up to the last element, so an array that overlaps the
 * next one corrupts it. */
static void arrays_do_not_overlap(void **state)
{
    xr_rows rows;
    xr_rows other;
    xr_err err = { "" };
    (void)state;
    /* 17 arrays, each of a multiple of 64 bytes. */
    assert_int_equal(xr_rows_bytes(1, 1, 1), 17 * 64);
    assert_int_equal(xr_rows_bytes(1, 16, 1), 17 * 64);
    assert_int_equal(xr_rows_bytes(1, 17, 1), (17 + 9) * 64);
    assert_int_equal(xr_rows_bytes(8, 16, 1), 17 * 64);
    assert_int_equal(xr_rows_bytes(8, 16, 8), (17 + 2) * 64); /* spans: 192 */
    /* 16 rows have 17 starts, 64 + 64 bytes of numbers and 6 * 64 of spans. */
    assert_int_equal(xr_rows_bytes(16, 16, 16), (17 + 1 + 2 + 5) * 64);
    assert_int_equal(xr_rows_init(&rows, 19, 142, &err), XRAY_OK);
    assert_int_equal(rows.row_cap, 19);
    assert_int_equal(rows.token_cap, 142);
    for (int round = 0; round < 2; round++) {
        xr_rows_clear(&rows);
        for (uint32_t k = 0; k < 19; k++)
            add_test_row(&rows, k % 7); /* 2 + 4 + ... + 14 tokens */
        assert_int_equal(rows.batch.rows, 19);
        assert_int_equal(rows.batch.span_count, 19);
        assert_int_equal(rows.batch.span_stride, sizeof(xray_span));
        assert_int_equal(rows.batch.tokens, 56 + 56 + 30);
        for (uint32_t k = 0; k < 19; k++) {
            expect_test_row(&rows.batch, k, k % 7, (int32_t)(k % 7 / 2));
            assert_int_equal(rows.batch.spans[k].row, k);
        }
    }
    /* Another batch attached to the memory reads the same rows. */
    xr_rows_attach(&other, 19, 142, 19, rows.memory);
    assert_int_equal(other.row_cap, 19);
    assert_int_equal(other.token_cap, 142);
    other.batch.rows = 19;
    for (uint32_t k = 0; k < 19; k++)
        expect_test_row(&other.batch, k, k % 7, (int32_t)(k % 7 / 2));
    assert_int_equal(other.batch.span_stride, sizeof(xray_span));
    assert_null(other.memory);
    xr_rows_free(&rows);
    assert_int_equal(rows.row_cap, 0);
}

/* Numbers of rows and tokens are 32-bit, and there is one more row offset than
 * rows. */
static void too_large_a_step_is_refused(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_bytes(INT32_MAX, 1, 1), UINT64_MAX);
    assert_int_equal(xr_rows_bytes(1, (uint64_t)INT32_MAX + 1, 1), UINT64_MAX);
    assert_int_equal(xr_rows_bytes(1, 1, 1ull << 32), UINT64_MAX);
    assert_true(xr_rows_bytes(INT32_MAX - 1, INT32_MAX, UINT32_MAX) <
                UINT64_MAX);
    assert_int_equal(xr_rows_init(&rows, INT32_MAX, 1, &err), XRAY_E_CONFIG);
    assert_string_equal(err.text, "a step of 2147483647 rows and 1 tokens is "
                                  "too large, expected less than 2^31 of each");
    assert_null(rows.memory);
    assert_int_equal(xr_rows_init(&rows, 1, 1ull << 31, &err), XRAY_E_CONFIG);
    assert_string_equal(err.text, "a step of 1 rows and 2147483648 tokens is "
                                  "too large, expected less than 2^31 of each");
}

/* A batch holds rows up to its capacities and no more. */
static void a_batch_takes_what_fits(void **state)
{
    static const struct {
        uint32_t rows;
        uint32_t tokens;
        xray_status status;
    } cases[] = {
        { 2, 10, XRAY_OK },
        { 1, 10, XRAY_E_BUG },
        { 2, 9, XRAY_E_BUG },
    };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        xr_rows rows;
        xr_err err = { "" };
        int32_t ids[5] = { 0 };
        char want[96];
        xr_row_in in = { .prompt = ids, .prompt_count = 5, .temperature = 1 };
        assert_int_equal(
            xr_rows_init(&rows, cases[i].rows, cases[i].tokens, &err), XRAY_OK);
        assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
        assert_int_equal(xr_rows_add(&rows, &in, &err), cases[i].status);
        (void)snprintf(want, sizeof(want), "%s",
                       cases[i].status == XRAY_OK
                           ? ""
                           : "a batch of 1 rows and 5 tokens has no space for "
                             "5 more tokens");
        assert_string_equal(err.text, want);
        assert_int_equal(rows.batch.rows, cases[i].status == XRAY_OK ? 2 : 1);
        xr_rows_free(&rows);
    }
}

/* Which tokens of a row of 3 + 2 tokens are in the loss; never the first, which
 * nothing precedes. Without log-probs the batch holds zeros, whatever it held
 * before. */
static void masks_select_the_tokens_in_the_loss(void **state)
{
    static const uint8_t given[] = { 1, 1, 0, 0, 1 };
    static const struct {
        const uint8_t *mask;
        uint32_t on_prompt;
        float want[5];
    } cases[] = {
        { NULL, 0, { 0, 0, 0, 1, 1 } },
        { NULL, 1, { 0, 1, 1, 1, 1 } },
        { given, 0, { 0, 1, 0, 0, 1 } },
        { given, 1, { 0, 1, 0, 0, 1 } },
    };
    static const int32_t ids[] = { 5, 6, 7, 8, 9 };
    static const float logp[] = { -1, -2 };
    xr_rows rows;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 1, 5, &err), XRAY_OK);
    for (size_t i = 0; i < 4; i++) {
        xr_row_in in = { .prompt = ids,
                         .prompt_count = 3,
                         .response = ids + 3,
                         .response_count = 2,
                         .logp = i % 2 ? NULL : logp,
                         .mask = cases[i].mask,
                         .train_on_prompt = cases[i].on_prompt };
        xr_rows_clear(&rows);
        assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
        assert_memory_equal(rows.loss_mask, cases[i].want, sizeof(float[5]));
        assert_memory_equal(rows.ids, ids, sizeof(ids));
        for (uint32_t f = 0; f < FLOATS; f++)
            for (int t = 0; t < 5; t++) {
                float *at = *find_float_array(&rows.batch, f) + t;
                float want = f < 2 && t > 2 && !(i % 2) ? (float)(2 - t) : 0;
                assert_true(*at == want);
                *at = 9; /* to be cleared by the next row */
            }
    }
    xr_rows_free(&rows);
}

/* Copies have every array of the row, and another group number on request. */
static void copies_have_every_array(void **state)
{
    xr_rows rows;
    xr_rows to;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 4, 30, &err), XRAY_OK);
    assert_int_equal(xr_rows_init(&to, 4, 30, &err), XRAY_OK);
    for (uint32_t k = 1; k < 5; k++)
        add_test_row(&rows, k);
    assert_int_equal(xr_rows_copy(&to, &rows, 2, 9, &err), XRAY_OK);
    assert_int_equal(xr_rows_copy_from(&to, &rows.batch, 0, &err), XRAY_OK);
    assert_int_equal(to.batch.rows, 2);
    assert_int_equal(to.batch.tokens, 12);
    expect_test_row(&to.batch, 0, 3, 9);
    expect_test_row(&to.batch, 1, 1, 0);
    assert_int_equal(to.batch.spans[0].row, 0);
    assert_int_equal(to.batch.spans[1].row, 1);
    /* Arrays that a batch lacks become neutral values. */
    xray_batch bare = rows.batch;
    for (uint32_t i = 0; i < FLOATS; i++)
        *find_float_array(&bare, i) = NULL;
    bare.temperature = NULL;
    bare.baseline = NULL;
    assert_int_equal(xr_rows_copy_from(&to, &bare, 1, &err), XRAY_OK);
    assert_true(to.temperature[2] == 1.0f && to.batch.baseline[2] == 0.0f);
    for (uint32_t i = 0; i < FLOATS; i++)
        for (int t = 12; t < 18; t++)
            assert_true((*find_float_array(&to.batch, i))[t] == 0);
    assert_int_equal(to.ids[12], 2000);
    /* A row that does not fit leaves the batch unchanged. */
    assert_int_equal(xr_rows_copy(&to, &rows, 3, 7, &err), XRAY_OK);
    assert_int_equal(xr_rows_copy(&to, &rows, 0, 8, &err), XRAY_E_BUG);
    assert_int_equal(to.batch.rows, 4);
    assert_int_equal(to.group[3], 7);
    xr_rows_free(&to);
    xr_rows_free(&rows);
}

/* ---- several spans a row --------------------------------------------------
 */

/* Row k has 2 tokens of prompt and k % 4 + 1 turns: one token that was sampled
 * from version 10 * k + turn, then one that was observed. */
static void add_turns(xr_rows *rows, uint32_t k)
{
    static const int32_t ids[10] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    static const float logp[8] = { -1, -2, -3, -4, -5, -6, -7, -8 };
    xray_span spans[4];
    xr_err err = { "" };
    uint32_t turns = k % 4 + 1;
    for (uint32_t i = 0; i < turns; i++)
        spans[i] = (xray_span){ .row = 99, /* the engine's, of no meaning */
                                .first = 2 + 2 * i,
                                .last = 3 + 2 * i,
                                .version = 10 * k + i };
    xr_row_in in = { .prompt = ids,
                     .prompt_count = 2,
                     .response = ids + 2,
                     .response_count = 2 * turns,
                     .logp = logp,
                     .spans = spans,
                     .span_count = turns,
                     .temperature = 1 };
    if (xr_rows_add(rows, &in, &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* Expects row r of the batch, the `row`th that its spans name, to be row k. */
static void expect_turns(const xray_batch *b, uint32_t r, uint32_t row,
                         uint32_t k)
{
    uint32_t at = (uint32_t)b->row_start[r];
    uint32_t turns = k % 4 + 1;
    uint32_t span = xr_rows_find_span(b, r);
    assert_int_equal(xr_rows_find_span(b, r + 1), span + turns);
    assert_int_equal((uint32_t)b->row_start[r + 1] - at, 2 + 2 * turns);
    for (uint32_t t = 0; t < 2 + 2 * turns; t++) {
        float want = t > 1 && t % 2 == 0 ? -(float)(t - 1) : 0;
        assert_true(b->rollout_logp[at + t] == want);
        assert_true(b->old_logp[at + t] == want);
        assert_true(b->loss_mask[at + t] == (want < 0 ? 1 : 0));
        assert_int_equal(b->ids[at + t], t + 1);
    }
    for (uint32_t i = 0; i < turns; i++) {
        assert_int_equal(b->spans[span + i].row, row);
        assert_int_equal(b->spans[span + i].first, 2 + 2 * i);
        assert_int_equal(b->spans[span + i].last, 3 + 2 * i);
        assert_int_equal(b->spans[span + i].version, 10 * k + i);
    }
}

/* A row may have any number of spans; what none of them has was observed. */
static void turns_are_spans_of_a_row(void **state)
{
    enum { ROWS = 11, SPANS = 27, TOKENS = ROWS * 2 + 2 * SPANS };
    xr_rows rows;
    xr_rows to;
    xr_views views;
    xr_err err = { "" };
    const xr_cut cut = { .first = 1, .count = ROWS - 1, .budget = 20 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, ROWS, TOKENS, &err), XRAY_OK);
    assert_int_equal(xr_rows_init(&to, ROWS, TOKENS, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, ROWS, &err), XRAY_OK);
    for (int round = 0; round < 2; round++) {
        xr_rows_clear(&rows);
        for (uint32_t k = 0; k < ROWS; k++)
            add_turns(&rows, k);
        assert_int_equal(rows.batch.span_count, 26);
        for (uint32_t k = 0; k < ROWS; k++)
            expect_turns(&rows.batch, k, k, k);
    }
    /* Views have the spans of their rows, and copies of these count anew. */
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_true(views.count > 2 && views.count < ROWS - 1);
    for (uint32_t v = 0, k = 1; v < views.count; v++) {
        const xray_batch *b = &views.batches[v];
        assert_int_equal(xr_rows_find_span(b, b->rows), b->span_count);
        for (uint32_t r = 0; r < b->rows; r++, k++) {
            expect_turns(b, r, k, k);
            assert_int_equal(xr_rows_copy_from(&to, b, r, &err), XRAY_OK);
        }
    }
    for (uint32_t k = 1; k < ROWS; k++)
        expect_turns(&to.batch, k - 1, k - 1, k);
    assert_int_equal(xr_rows_copy(&to, &rows, 0, 5, &err), XRAY_OK);
    expect_turns(&to.batch, ROWS - 1, ROWS - 1, 0);
    xr_views_free(&views);
    xr_rows_free(&to);
    xr_rows_free(&rows);
}

/* Memory of the caller has the spans that it was made for. */
static void spans_of_attached_rows_do_not_grow(void **state)
{
    xr_rows rows;
    xr_err err = { "" };
    uint64_t size = xr_rows_bytes(3, 30, 5);
    void *memory = malloc(size);
    (void)state;
    assert_non_null(memory);
    xr_rows_attach(&rows, 3, 30, 5, memory);
    rows.row_start[0] = 0;
    add_turns(&rows, 1);
    add_turns(&rows, 2);
    expect_turns(&rows.batch, 0, 0, 1);
    expect_turns(&rows.batch, 1, 1, 2);
    const xr_row_in more = { .prompt = rows.ids, .prompt_count = 1 };
    assert_int_equal(xr_rows_add(&rows, &more, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "a batch with space for 5 spans got 6");
    assert_int_equal(rows.batch.rows, 2);
    assert_int_equal(rows.batch.span_count, 5);
    free(memory);
}

static void spans_of_no_sample_are_refused(void **state)
{
    static const int32_t ids[6] = { 0 };
    static const struct {
        xray_span spans[2];
        uint32_t count;
        const char *says;
    } cases[] = {
        { { { .first = 2, .last = 6 } }, 1, NULL },
        { { { .first = 3, .last = 3 }, { .first = 3, .last = 5 } }, 2, NULL },
        { { { .first = 1, .last = 6 } },
          1,
          "tokens 1 to 6 of a row are said to be sampled, expected some of 2 "
          "to 6" },
        { { { .first = 2, .last = 7 } },
          1,
          "tokens 2 to 7 of a row are said to be sampled, expected some of 2 "
          "to 6" },
        { { { .first = 5, .last = 4 } },
          1,
          "tokens 5 to 4 of a row are said to be sampled, expected some of 2 "
          "to 6" },
        { { { .first = 2, .last = 4 }, { .first = 3, .last = 6 } },
          2,
          "tokens 3 to 6 of a row are said to be sampled, expected some of 4 "
          "to 6" },
        { { { 0 } }, 0, "a row has an array of no spans" },
    };
    xr_rows rows;
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xr_err err = { "" };
        xr_row_in in = { .prompt = ids,
                         .prompt_count = 2,
                         .response = ids,
                         .response_count = 4,
                         .spans = cases[i].spans,
                         .span_count = cases[i].count };
        assert_int_equal(xr_rows_init(&rows, 1, 6, &err), XRAY_OK);
        assert_int_equal(xr_rows_add(&rows, &in, &err),
                         cases[i].says ? XRAY_E_BUG : XRAY_OK);
        assert_string_equal(err.text, cases[i].says ? cases[i].says : "");
        assert_int_equal(rows.batch.rows, cases[i].says ? 0 : 1);
        xr_rows_free(&rows);
    }
}

/* Each view has all arrays of its rows. */
static void views_have_every_array(void **state)
{
    xr_rows rows;
    xr_views views;
    xr_err err = { "" };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 5, 40, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 5, &err), XRAY_OK);
    for (uint32_t k = 1; k < 5; k++)
        add_test_row(&rows, k); /* 4, 6, 8 and 10 tokens; groups 0, 1, 1, 2 */
    /* 4 + 6 tokens just fit the budget. */
    xr_cut cut = { .count = 4, .budget = 10, .prompts = XR_PROMPTS_SHARED };
    for (int round = 0; round < 2; round++) {
        assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
        assert_int_equal(views.count, 3);
        assert_int_equal(views.prompts, XR_PROMPTS_SHARED);
        assert_int_equal(views.batches[0].rows, 2);
        expect_test_row(&views.batches[0], 0, 1, 0);
        expect_test_row(&views.batches[0], 1, 2, 1);
        expect_test_row(&views.batches[1], 0, 3, 1);
        expect_test_row(&views.batches[2], 0, 4, 2);
        for (uint32_t v = 0; v < 3; v++) {
            assert_ptr_equal(views.pointers[v], &views.batches[v]);
            assert_int_equal(views.batches[v].span_count,
                             views.batches[v].rows);
            assert_int_equal(views.batches[v].row_start[0], 0);
            assert_int_equal(views.batches[v].row_index[0], v ? v + 1 : 0);
        }
    }
    /* In a cut that begins within the rows, offsets count from there. */
    cut.first = 1;
    cut.count = 2;
    cut.budget = 9;
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 2);
    assert_int_equal(views.batches[1].row_index[0], 1);
    expect_test_row(&views.batches[1], 0, 3, 1);
    /* As many rows as there are views, each in a view of its own. */
    add_test_row(&rows, 1);
    cut = (xr_cut){ .count = 5, .budget = 1 };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 5);
    xr_views_free(&views);
    assert_int_equal(xr_views_init(&views, 3, &err), XRAY_OK);
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_E_BUG);
    assert_string_equal(err.text, "no room for 5 rows in views");
    xr_views_free(&views);
    xr_rows_free(&rows);
}

/* Rows that must not be divided: those of the same group, up to the end. */
static void groups_are_units(void **state)
{
    static const int32_t group[] = { 0, 0, 1, 1, 1, 2 };
    (void)state;
    assert_int_equal(xr_rows_unit(group, 0, 6, XR_PROMPTS_PER_GROUP), 2);
    assert_int_equal(xr_rows_unit(group, 2, 6, XR_PROMPTS_PER_GROUP), 3);
    assert_int_equal(xr_rows_unit(group, 3, 4, XR_PROMPTS_PER_GROUP), 1);
    assert_int_equal(xr_rows_unit(group, 5, 6, XR_PROMPTS_PER_GROUP), 1);
    assert_int_equal(xr_rows_unit(group, 2, 6, XR_PROMPTS_SHARED), 1);
    assert_int_equal(xr_rows_unit(group, 2, 6, XR_PROMPTS_APART), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_do_not_overlap),
        cmocka_unit_test(too_large_a_step_is_refused),
        cmocka_unit_test(a_batch_takes_what_fits),
        cmocka_unit_test(masks_select_the_tokens_in_the_loss),
        cmocka_unit_test(copies_have_every_array),
        cmocka_unit_test(turns_are_spans_of_a_row),
        cmocka_unit_test(spans_of_attached_rows_do_not_grow),
        cmocka_unit_test(spans_of_no_sample_are_refused),
        cmocka_unit_test(views_have_every_array),
        cmocka_unit_test(groups_are_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
