/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that micro-batches are filled up as a backend planned it, and that the
 * padding leaves nothing in what the backend gives back.
 */
#include "tests/testing.h"

#include "core/run/padding.h"

#define FLOATS 7

static xr_rows rows;
static xr_views views;
static xr_padding padding;
static xr_err err;

static float *find_float_array(const xray_batch *b, uint32_t i)
{
    float *const all[FLOATS] = { b->rollout_logp, b->old_logp, b->ref_logp,
                                 b->value,        b->reward,   b->advantage,
                                 b->returns };
    return all[i];
}

/* Adds a row of `count` tokens, every value of which tells row and token. Every
 * other one has a span for each of its last tokens. */
static void add_test_row(uint32_t count)
{
    int32_t ids[16];
    const uint32_t k = rows.batch.rows;
    const uint32_t at = rows.batch.tokens;
    xray_span spans[16];
    for (uint32_t t = 0; t < count; t++) {
        ids[t] = (int32_t)(100 * (k + 1) + t);
        spans[t] =
            (xray_span){ .first = t + 1, .last = t + 2, .version = 70 + k + t };
    }
    const xr_row_in in = { .prompt = ids,
                           .prompt_count = 1,
                           .response = ids + 1,
                           .response_count = count - 1,
                           .row_id = 50 + k,
                           .prompt_id = 60 + k,
                           .version = 70 + k,
                           .spans = k % 2 ? spans : NULL,
                           .span_count = count - 1,
                           .group = (int32_t)(k / 2),
                           .temperature = 0.5f + (float)k,
                           .baseline = 0.25f + (float)k };
    assert_int_equal(xr_rows_add(&rows, &in, &err), XRAY_OK);
    for (uint32_t i = 0; i < FLOATS; i++)
        for (uint32_t t = at; t < at + count; t++)
            find_float_array(&rows.batch, i)[t] = (float)(1000 * i + t);
}

/* Five rows of 3, 4, 2, 6 and 5 tokens in views of 7, 2 + 6 and 5. */
static int begin_test(void **state)
{
    static const uint32_t counts[] = { 3, 4, 2, 6, 5 };
    (void)state;
    assert_int_equal(xr_rows_init(&rows, 5, 20, &err), XRAY_OK);
    assert_int_equal(xr_views_init(&views, 5, &err), XRAY_OK);
    for (size_t i = 0; i < 5; i++)
        add_test_row(counts[i]);
    const xr_cut cut = { .count = 5,
                         .budget = 8,
                         .prompts = XR_PROMPTS_SHARED };
    assert_int_equal(xr_views_cut(&views, &rows, &cut, &err), XRAY_OK);
    assert_int_equal(views.count, 3);
    return 0;
}

static int end_test(void **state)
{
    (void)state;
    xr_padding_free(&padding);
    xr_views_free(&views);
    xr_rows_free(&rows);
    return 0;
}

static void fill_up(uint64_t micro_multiple, uint64_t token_multiple,
                    uint64_t row_tokens, uint32_t least)
{
    const xr_micro micro = { .batches = views.pointers,
                             .count = views.count,
                             .least = least,
                             .most = 7,
                             .micro_multiple = micro_multiple,
                             .token_multiple = token_multiple,
                             .row_tokens = row_tokens };
    assert_int_equal(xr_padding_fill(&padding, &micro, &err), XRAY_OK);
}

/* Where nothing is to be filled up, the backend gets the views themselves. */
static void views_pass_unchanged_without_multiples(void **state)
{
    (void)state;
    for (uint64_t multiple = 0; multiple < 2; multiple++) {
        fill_up(multiple, multiple, 10, 0);
        assert_int_equal(padding.count, 3);
        assert_int_equal(padding.padded, 0);
        for (uint32_t i = 0; i < 3; i++)
            assert_ptr_equal(padding.batches[i], views.pointers[i]);
    }
    fill_up(3, 1, 10, 2);
    assert_int_equal(padding.count, 3);
    assert_null(padding.rows.memory);
    assert_null(padding.pointers);
}

static void missing_micro_batches_are_empty(void **state)
{
    (void)state;
    static const struct {
        uint64_t multiple;
        uint32_t least;
        uint32_t want;
    } cases[] = { { 2, 0, 4 }, { 5, 0, 5 }, { 1, 6, 6 },
                  { 4, 5, 8 }, { 0, 4, 4 }, { 2, 2, 4 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        fill_up(cases[i].multiple, 0, 10, cases[i].least);
        assert_int_equal(padding.count, cases[i].want);
        for (uint32_t k = 0; k < padding.count; k++)
            assert_int_equal(padding.batches[k]->rows,
                             k < 3 ? views.pointers[k]->rows : 0);
        const xray_batch *last = padding.batches[padding.count - 1];
        assert_true(last->tokens == 0 && last->row_start[0] == 0);
    }
    assert_int_equal(padding.cap, 8); /* 7, rounded up to the first multiple */
    views.count = 0;                  /* a replica without rows */
    fill_up(1, 8, 10, 2);
    assert_int_equal(padding.count, 2);
    assert_int_equal(padding.batches[1]->rows, 0);
}

/* Expects the rows of a view at the beginning of a batch, in every array. */
static void expect_same_rows(const xray_batch *got, const xray_batch *want)
{
    for (uint32_t i = 0; i < FLOATS; i++)
        assert_memory_equal(find_float_array(got, i), find_float_array(want, i),
                            want->tokens * sizeof(float));
    assert_memory_equal(got->ids, want->ids, want->tokens * sizeof(int32_t));
    assert_memory_equal(got->loss_mask, want->loss_mask,
                        want->tokens * sizeof(float));
    assert_memory_equal(got->row_start, want->row_start,
                        (want->rows + 1) * sizeof(int32_t));
    for (uint32_t r = 0; r < want->rows; r++) {
        assert_int_equal(got->row_id[r], want->row_id[r]);
        assert_int_equal(got->prompt_id[r], want->prompt_id[r]);
        assert_int_equal(got->prompt_len[r], want->prompt_len[r]);
        assert_int_equal(got->group[r], want->group[r]);
        assert_int_equal(got->row_index[r], want->row_index[r]);
        assert_true(got->temperature[r] == want->temperature[r]);
        assert_true(got->baseline[r] == want->baseline[r]);
    }
    for (uint32_t i = 0; i < want->span_count; i++) {
        xray_span span = got->spans[i];
        assert_int_equal(span.row - got->spans[0].row,
                         want->spans[i].row - want->spans[0].row);
        span.row = want->spans[i].row;
        assert_memory_equal(&span, &want->spans[i], sizeof(span));
    }
    assert_int_equal(xr_rows_find_span(got, want->rows), want->span_count);
    assert_int_equal(got->share_prompts, want->share_prompts);
}

static void expect_padding_row(const xray_batch *b, uint32_t r, uint32_t tokens)
{
    const int32_t at = b->row_start[r];
    assert_int_equal(b->row_start[r + 1] - at, tokens);
    assert_int_equal(b->row_index[r], XRAY_NO_ROW);
    assert_int_equal(b->prompt_len[r], tokens);
    assert_true(b->group[r] > b->group[r - 1]);
    assert_true(b->temperature[r] == 1);
    for (uint32_t t = 0; t < tokens; t++) {
        assert_int_equal(b->ids[at + (int32_t)t], 0);
        assert_true(b->loss_mask[at + (int32_t)t] == 0);
        for (uint32_t i = 0; i < FLOATS; i++)
            assert_true(find_float_array(b, i)[at + (int32_t)t] == 0);
    }
}

static void tokens_are_filled_up_by_rows_of_padding(void **state)
{
    (void)state;
    /* 7, 8 and 5 tokens; a second call finds the memory of the first. */
    for (int round = 0; round < 2; round++) {
        fill_up(2, 8, 10, 0);
        assert_int_equal(padding.count, 4);
        const xray_batch *const *got = padding.batches;
        assert_int_equal(got[0]->tokens, 8);
        assert_int_equal(got[0]->rows, 3);
        expect_same_rows(got[0], views.pointers[0]);
        expect_padding_row(got[0], 2, 1);
        assert_int_equal(got[1]->tokens, 8);
        assert_int_equal(got[1]->rows, 2);
        expect_same_rows(got[1], views.pointers[1]);
        assert_int_equal(got[2]->tokens, 8);
        assert_int_equal(got[2]->rows, 2);
        expect_same_rows(got[2], views.pointers[2]);
        expect_padding_row(got[2], 1, 3);
        assert_int_equal(got[3]->tokens, 0);
    }
    /* No row is longer than the longest that the backend is ready for. */
    fill_up(1, 20, 6, 0);
    assert_int_equal(padding.batches[0]->tokens, 20);
    assert_int_equal(padding.batches[0]->rows, 5);
    expect_padding_row(padding.batches[0], 2, 6);
    expect_padding_row(padding.batches[0], 3, 6);
    expect_padding_row(padding.batches[0], 4, 1);
    assert_int_equal(padding.batches[2]->rows, 4);
}

static void a_batch_without_its_padding_is_the_view(void **state)
{
    (void)state;
    fill_up(1, 20, 6, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const xray_batch own = xr_padding_strip(padding.batches[i]);
        assert_int_equal(own.rows, views.pointers[i]->rows);
        assert_int_equal(own.tokens, views.pointers[i]->tokens);
        assert_int_equal(own.span_count, views.pointers[i]->span_count);
        expect_same_rows(&own, views.pointers[i]);
        const xray_batch same = xr_padding_strip(views.pointers[i]);
        assert_memory_equal(&same, views.pointers[i], sizeof(same));
    }
    /* A batch that names no rows is left as it is. */
    xray_batch bare = *padding.batches[0];
    bare.row_index = NULL;
    assert_int_equal(xr_padding_strip(&bare).rows, bare.rows);
}

/* Outputs of the padding are dropped, and the others close the gaps. */
static void outputs_of_the_padding_are_dropped(void **state)
{
    (void)state;
    float logp[20];
    float value[20];
    const xray_outputs out = { .logp = logp, .value = value };
    for (uint64_t multiple = 1; multiple <= 16; multiple *= 2) {
        xray_outputs own;
        size_t at = 0;
        memset(logp, 0, sizeof(logp));
        memset(value, 0, sizeof(value));
        fill_up(2, multiple, 10, 0);
        assert_int_equal(xr_padding_outputs(&padding, &out, &err, &own),
                         XRAY_OK);
        assert_null(own.entropy);
        /* A view that is full needs no padding, but its outputs move, too. */
        for (uint32_t i = 0; i < padding.count; i++) {
            const xray_batch *b = padding.batches[i];
            for (uint32_t t = 0; t < b->tokens; t++, at++) {
                own.logp[at] = (float)b->ids[t];
                own.value[at] = (float)(2 * b->ids[t]);
            }
        }
        xr_padding_drop(&padding, &own, &out);
        for (uint32_t t = 0; t < 20; t++) {
            assert_true(logp[t] == (float)rows.ids[t]);
            assert_true(value[t] == (float)(2 * rows.ids[t]));
        }
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_test, end_test)
    const struct CMUnitTest tests[] = {
        CASE(views_pass_unchanged_without_multiples),
        CASE(missing_micro_batches_are_empty),
        CASE(tokens_are_filled_up_by_rows_of_padding),
        CASE(a_batch_without_its_padding_is_the_view),
        CASE(outputs_of_the_padding_are_dropped),
    };
    return cmocka_run_group_tests_name("rl.padding", tests, NULL, NULL);
}
