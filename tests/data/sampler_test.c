/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the order of rows: permutations, shares, bounds, and resuming from two
 * numbers.
 */
#include "core/data/data.h"
#include "tests/testing.h"

/* One share with all of `count` rows. */
static xray_status init_single_share(xr_sampler *s, uint64_t count,
                                     uint64_t seed, int shuffle, xr_err *err)
{
    xr_share share = { 0, count, (double)count };
    return xr_sampler_init(s, &share, 1, seed, shuffle, err);
}

static void every_epoch_is_a_permutation(void **state)
{
    (void)state;
    enum { N = 37 };
    xr_sampler s;
    uint32_t first[N];
    int same = 0;
    int in_place = 0;
    assert_int_equal(init_single_share(&s, N, 5, 1, NULL), XRAY_OK);
    for (int epoch = 0; epoch < 3; epoch++) {
        int seen[N] = { 0 };
        for (uint32_t i = 0; i < N; i++) {
            uint32_t row = xr_sampler_next(&s);
            assert_true(row < N);
            seen[row]++;
            if (epoch == 0)
                first[i] = row;
            else
                same += first[i] == row;
            in_place += row == i;
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(seen[i], 1);
        assert_int_equal(s.epoch, epoch);
    }
    assert_true(same < N);
    assert_true(in_place < N);
    xr_sampler_free(&s);
}

static void seed_determines_the_order(void **state)
{
    (void)state;
    xr_sampler a;
    xr_sampler b;
    xr_sampler c;
    int differ = 0;
    assert_int_equal(init_single_share(&a, 100, 1, 1, NULL), XRAY_OK);
    assert_int_equal(init_single_share(&b, 100, 1, 1, NULL), XRAY_OK);
    assert_int_equal(init_single_share(&c, 100, 2, 1, NULL), XRAY_OK);
    for (int i = 0; i < 250; i++) {
        uint32_t row = xr_sampler_next(&a);
        assert_int_equal(row, xr_sampler_next(&b));
        differ += row != xr_sampler_next(&c);
    }
    assert_true(differ > 200);
    xr_sampler_free(&a);
    xr_sampler_free(&b);
    xr_sampler_free(&c);
}

/* Two numbers are the complete state: a resumed run visits the same rows as an
 * uninterrupted one. */
static void order_resumes_anywhere(void **state)
{
    (void)state;
    for (int cut = 0; cut < 45; cut++) {
        xr_sampler a;
        xr_sampler b;
        assert_int_equal(init_single_share(&a, 20, 9, 1, NULL), XRAY_OK);
        assert_int_equal(init_single_share(&b, 20, 9, 1, NULL), XRAY_OK);
        for (int i = 0; i < cut; i++)
            (void)xr_sampler_next(&a);
        b.epoch = a.epoch;
        b.position = a.position;
        for (int i = 0; i < 50; i++)
            assert_int_equal(xr_sampler_next(&a), xr_sampler_next(&b));
        xr_sampler_free(&a);
        xr_sampler_free(&b);
    }
}

static void file_order_is_kept_without_shuffle(void **state)
{
    (void)state;
    xr_sampler s;
    xr_err err = { "" };
    assert_int_equal(init_single_share(&s, 3, 0, 0, &err), XRAY_OK);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(xr_sampler_next(&s), i % 3);
    assert_int_equal(xr_sampler_steps(&s, 2), 1);
    assert_int_equal(xr_sampler_steps(&s, 3), 1);
    assert_int_equal(xr_sampler_steps(&s, 8), 1);
    assert_int_equal(xr_sampler_steps(&s, 1), 3);
    xr_sampler_free(&s);
    assert_int_equal(init_single_share(&s, 0, 0, 0, &err), XRAY_E_RANGE);
    assert_true(err.text[0] != '\0');
}

/* Pins the orders themselves: a repeated run visits the same rows also with the
 * next version. Computed by a second implementation of Philox, mix and
 * shuffle. */
static void orders_stay_the_same(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed;
        uint32_t rows[3][8];
    } cases[] = {
        { 0,
          { { 2, 0, 5, 6, 3, 4, 7, 1 },
            { 0, 5, 3, 1, 7, 4, 2, 6 },
            { 4, 7, 6, 3, 5, 1, 0, 2 } } },
        { 42,
          { { 7, 1, 0, 5, 4, 2, 3, 6 },
            { 5, 6, 7, 1, 4, 0, 2, 3 },
            { 1, 2, 3, 5, 6, 4, 7, 0 } } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_sampler s;
        assert_int_equal(init_single_share(&s, 8, cases[i].seed, 1, NULL),
                         XRAY_OK);
        for (uint32_t k = 0; k < 24; k++) {
            assert_int_equal(xr_sampler_next(&s), cases[i].rows[k / 8][k % 8]);
            assert_int_equal(s.epoch, k / 8);
            assert_int_equal(s.position, k % 8 + 1);
        }
        xr_sampler_free(&s);
    }
}

/* Three parts of equal weight with 2, 3 and 5 rows: they get 4, 3 and 3
 * positions, and the odd one goes to the first. A part's passes continue across
 * epochs. */
static void orders_with_shares_stay_the_same(void **state)
{
    (void)state;
    static const xr_share parts[] = { { 0, 2, 1 }, { 2, 3, 1 }, { 5, 5, 1 } };
    static const uint32_t rows[2][3][10] = {
        { { 0, 2, 5, 1, 3, 6, 0, 4, 7, 1 },
          { 0, 2, 8, 1, 3, 9, 0, 4, 5, 1 },
          { 0, 2, 6, 1, 3, 7, 0, 4, 8, 1 } },
        { { 9, 1, 3, 0, 1, 2, 5, 8, 0, 4 },
          { 1, 1, 5, 2, 7, 0, 0, 6, 3, 4 },
          { 7, 2, 0, 3, 4, 1, 8, 9, 0, 1 } },
    };
    static const uint64_t picks[] = { 4, 3, 3 };
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        xr_sampler s;
        assert_int_equal(xr_sampler_init(&s, parts, 3, 7, shuffle, NULL),
                         XRAY_OK);
        assert_memory_equal(s.picks, picks, sizeof picks);
        for (uint32_t k = 0; k < 30; k++)
            assert_int_equal(xr_sampler_next(&s),
                             rows[shuffle][k / 10][k % 10]);
        assert_int_equal(xr_sampler_steps(&s, 4), 2);
        xr_sampler_free(&s);
    }
}

/* An epoch has as many positions as there are rows, whatever the weights. */
static void positions_go_by_largest_remainder(void **state)
{
    (void)state;
    static const struct {
        xr_share parts[3];
        uint64_t picks[3];
    } cases[] = {
        /* 10 positions by 1 : 2 : 4 are 1.43, 2.86 and 5.71 */
        { { { 0, 4, 1 }, { 4, 3, 2 }, { 7, 3, 4 } }, { 1, 3, 6 } },
        /* 10 positions by 1 : 1 : 98: the small shares get none */
        { { { 0, 4, 1 }, { 4, 3, 1 }, { 7, 3, 98 } }, { 0, 0, 10 } },
        /* 10 positions by 6 : 3 : 1 divide evenly */
        { { { 0, 4, 6 }, { 4, 3, 3 }, { 7, 3, 1 } }, { 6, 3, 1 } },
        /* half a position each goes to the first ones */
        { { { 0, 4, 3 }, { 4, 4, 3 }, { 8, 1, 3 } }, { 3, 3, 3 } },
        { { { 0, 4, 1.5 }, { 4, 5, 1.5 }, { 9, 1, 7 } }, { 2, 1, 7 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        xr_sampler s;
        assert_int_equal(xr_sampler_init(&s, cases[i].parts, 3, 1, 1, NULL),
                         XRAY_OK);
        assert_memory_equal(s.picks, cases[i].picks, sizeof s.picks[0] * 3);
        uint64_t visited[3] = { 0 };
        for (uint64_t k = 0; k < s.count; k++) {
            uint32_t row = xr_sampler_next(&s);
            visited[row < s.parts[1].first   ? 0
                    : row < s.parts[2].first ? 1
                                             : 2]++;
        }
        assert_memory_equal(visited, cases[i].picks, sizeof visited);
        xr_sampler_free(&s);
    }
}

static void row_counts_are_bounded(void **state)
{
    (void)state;
    static const xr_share many[] = { { 0, UINT32_MAX, 1 },
                                     { UINT32_MAX, 1, 1 } };
    static const xr_share none[] = { { 0, 0, 1 } };
    xr_sampler s;
    xr_err err = { "" };
    assert_int_equal(xr_sampler_init(&s, many, 2, 0, 0, &err), XRAY_E_RANGE);
    assert_string_equal(err.text,
                        "a sampler takes 1 to 2^32 - 1 rows, not 4294967296");
    xr_sampler_free(&s);
    assert_int_equal(xr_sampler_init(&s, none, 1, 0, 0, &err), XRAY_E_RANGE);
    assert_string_equal(err.text, "a sampler takes 1 to 2^32 - 1 rows, not 0");
    xr_sampler_free(&s);
    assert_int_equal(init_single_share(&s, 1, 3, 1, &err), XRAY_OK);
    for (uint64_t i = 0; i < 3; i++) {
        assert_int_equal(xr_sampler_next(&s), 0);
        assert_int_equal(s.epoch, i);
    }
    assert_int_equal(xr_sampler_steps(&s, 0), 1);
    xr_sampler_free(&s);
    assert_int_equal(init_single_share(&s, 12, 3, 1, &err), XRAY_OK);
    assert_int_equal(xr_sampler_steps(&s, 4), 3);
    assert_int_equal(xr_sampler_steps(&s, 5), 2);
    assert_int_equal(xr_sampler_steps(&s, 12), 1);
    assert_int_equal(xr_sampler_steps(&s, 13), 1);
    xr_sampler_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(seed_determines_the_order),
        cmocka_unit_test(order_resumes_anywhere),
        cmocka_unit_test(file_order_is_kept_without_shuffle),
        cmocka_unit_test(orders_stay_the_same),
        cmocka_unit_test(orders_with_shares_stay_the_same),
        cmocka_unit_test(positions_go_by_largest_remainder),
        cmocka_unit_test(row_counts_are_bounded),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
