/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves how the rows of a mini-batch are dealt to segments, and that views
 * keep to them.
 */
#include "tests/testing.h"

#include <xray/numerics.h>

#include "core/rl/segments.h"
#include "core/roles/role_calls.h"

#define ROWS 96
#define LONGEST 20
#define SAMPLES 3

typedef struct fixture {
    xr_rows rows;
    xr_segments segments;
    xr_views views;
    uint32_t order[ROWS];
} fixture;

/* Makes rows of drawn lengths, `SAMPLES` of them to a group. */
static void begin_rows(fixture *f, uint32_t count, uint64_t segments,
                       uint64_t seed)
{
    static const int32_t ids[LONGEST];
    xr_err err = { "" };
    assert_int_equal(xr_rows_init(&f->rows, ROWS, ROWS * LONGEST, &err), 0);
    assert_int_equal(xr_views_init(&f->views, ROWS, &err), 0);
    assert_int_equal(xr_segments_init(&f->segments, segments, ROWS, 1, &err),
                     0);
    for (uint32_t r = 0; r < count; r++) {
        const uint32_t bits = xray_philox(seed, r, 0, 0, 0).w[0];
        xr_row_in in = { .prompt = ids,
                         .prompt_count = 1,
                         .response = ids,
                         .response_count = 1 + bits % (LONGEST - 1),
                         .row_id = r,
                         .group = (int32_t)(r / SAMPLES) };
        assert_int_equal(xr_rows_add(&f->rows, &in, &err), 0);
        f->order[r] = r;
    }
}

static void end_rows(fixture *f)
{
    xr_rows_free(&f->rows);
    xr_views_free(&f->views);
    xr_segments_free(&f->segments);
}

static uint32_t count_row_tokens(const fixture *f, uint32_t row)
{
    return (uint32_t)(f->rows.row_start[row + 1] - f->rows.row_start[row]);
}

/* Expects the rows [first, first + count) in the order of their segments, the
 * groups undivided, and no segment with more rows of full length than an equal
 * share of the units, rounded up, has. */
static void expect_order(const fixture *f, const uint32_t range[2], int apart)
{
    uint32_t segment_of_group[ROWS];
    uint32_t tokens[64] = { 0 };
    uint64_t seen = 0;
    const uint32_t units = apart ? range[1] : range[1] / SAMPLES;
    const uint32_t parts = f->segments.count;
    const uint32_t most = (units + parts - 1) / parts * (apart ? 1 : SAMPLES);
    memset(segment_of_group, 0xff, sizeof(segment_of_group));
    for (uint32_t i = range[0]; i < range[0] + range[1]; i++) {
        const uint32_t segment = f->segments.of[i];
        uint32_t *group = &segment_of_group[f->order[i] / SAMPLES];
        const int first = i == range[0];
        assert_in_range(f->order[i], range[0], range[0] + range[1] - 1);
        assert_true(segment < parts);
        assert_true(first || segment >= f->segments.of[i - 1]);
        assert_true(first || segment > f->segments.of[i - 1] ||
                    f->order[i] > f->order[i - 1]);
        assert_true(apart || *group == UINT32_MAX || *group == segment);
        *group = segment;
        tokens[segment] += count_row_tokens(f, f->order[i]);
        assert_true(tokens[segment] <= most * LONGEST);
        seen += f->order[i];
    }
    assert_true(seen == (2 * (uint64_t)range[0] + range[1] - 1) * range[1] / 2);
}

static void segments_are_whole_groups_of_about_one_length(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 50; seed++) {
        const uint32_t range[] = { SAMPLES * (seed % 4), 60 };
        fixture f = { .order = { 0 } };
        begin_rows(&f, ROWS, 1u << (seed % 7), seed);
        xr_segments_order(&f.segments, &f.rows, range, seed & 1, f.order);
        expect_order(&f, range, seed & 1);
        end_rows(&f);
    }
}

/* Three groups of equal length and four segments: the last one is empty. */
static void segments_without_a_group_are_the_last(void **state)
{
    (void)state;
    const uint32_t range[] = { 0, 9 };
    fixture f = { .order = { 0 } };
    begin_rows(&f, 9, 4, 1);
    xr_segments_order(&f.segments, &f.rows, range, 0, f.order);
    for (uint32_t i = 0; i < 9; i++) {
        assert_int_equal(f.order[i], i);
        assert_int_equal(f.segments.of[i], i / SAMPLES);
    }
    end_rows(&f);
}

static void no_view_has_rows_of_two_segments(void **state)
{
    (void)state;
    static const uint32_t of[] = { 0, 0, 0, 1, 3, 3 };
    const xr_cut cut = {
        .first = 2, .count = 6, .budget = (uint64_t)2 * LONGEST, .segment = of
    };
    static const uint32_t want[][2] = {
        { 2, 0 }, { 1, 0 }, { 1, 1 }, { 2, 3 }
    };
    fixture f = { .order = { 0 } };
    xr_err err = { "" };
    begin_rows(&f, 9, 4, 1);
    for (uint32_t r = 0; r <= 9; r++)
        f.rows.row_start[r] = (int32_t)(r * LONGEST);
    assert_int_equal(xr_views_cut(&f.views, &f.rows, &cut, &err), 0);
    assert_int_equal(f.views.count, 4);
    for (uint32_t v = 0; v < 4; v++) {
        assert_int_equal(f.views.pointers[v]->rows, want[v][0]);
        assert_int_equal(f.views.pointers[v]->segment, want[v][1]);
    }
    end_rows(&f);
}

/* ---- sums ---------------------------------------------------------------- */

/* Gives sum k of segment i 100 * (i + 1) + k, and a thousandth of it as its
 * weight; notes how it was asked. */
static uint32_t asked_segments;

static xray_status fill_sums(xr_roles *roles, uint32_t role,
                             const xr_views *views, const xr_loss_spec *spec,
                             xr_err *fault, xr_err *err)
{
    const uint32_t parts = spec->segments ? spec->segments : 1;
    (void)roles;
    (void)views;
    (void)fault;
    (void)err;
    assert_int_equal(role, XRAY_ROLE_CRITIC);
    assert_int_equal(spec->names, 2);
    asked_segments = spec->segments;
    for (uint32_t i = 0; i < parts; i++)
        for (uint32_t k = 0; k < 2; k++) {
            const double value = 100 * (i + 1) + k;
            spec->sums[2 * i + k] += value;
            if (spec->weights)
                spec->weights[2 * i + k] += value / 1000;
        }
    return XRAY_E_RANGE;
}

/* The sums of a call are those of its segments, added to what the caller has;
 * none of them is left from an earlier call. */
static void sums_of_segments_are_added_up(void **state)
{
    static const xr_role_ops calls = { .gradients = fill_sums };
    xr_run run = { .config = NULL };
    xr_roles roles = { .run = &run, .calls = &calls };
    xr_segments segments;
    xr_views views = { .count = 0 };
    xr_err err = { "" };
    (void)state;
    for (uint64_t count = 0; count <= 4; count += 2)
        for (int weighted = 0; weighted < 2; weighted++) {
            double sums[] = { 0.5, 0.25 };
            double weights[] = { 3, 4 };
            const uint64_t parts = count ? count : 1;
            const xr_loss_spec spec = { .names = 2,
                                        .sums = sums,
                                        .weights = weighted ? weights : NULL };
            assert_int_equal(xr_segments_init(&segments, count, 6, 2, &err), 0);
            for (uint64_t time = 1; time <= 2; time++) {
                const double all =
                    (double)(time * 100 * parts * (parts + 1) / 2);
                const double ones = (double)(time * parts);
                assert_int_equal(xr_segments_gradients(&segments, &roles,
                                                       XRAY_ROLE_CRITIC, &views,
                                                       &spec, &err, &err),
                                 XRAY_E_RANGE);
                assert_int_equal(asked_segments, count);
                assert_true(sums[0] == all + 0.5);
                assert_true(sums[1] == all + ones + 0.25);
                assert_true(weights[0] - 3 - weighted * all / 1000 < 1e-9);
                assert_true(weights[1] - 4 - weighted * (all + ones) / 1000 <
                            1e-9);
                assert_true(weights[1] > 4 || !weighted);
            }
            xr_segments_free(&segments);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_whole_groups_of_about_one_length),
        cmocka_unit_test(segments_without_a_group_are_the_last),
        cmocka_unit_test(no_view_has_rows_of_two_segments),
        cmocka_unit_test(sums_of_segments_are_added_up),
    };
    return cmocka_run_group_tests_name("rl.segment_order", tests, NULL, NULL);
}
