/* SPDX-License-Identifier: Apache-2.0 */
#include "core/data/data.h"
#include "tests/testing.h"

/* One part of `count` rows, drawn as they are. */
static xray_status start(xr_sampler *s, uint64_t count, uint64_t seed,
                         int shuffle, xr_err *err)
{
    xr_share share = { 0, count, (double)count };
    return xr_sampler_init(s, &share, 1, seed, shuffle, err);
}

static void permutes_every_epoch(void **state)
{
    (void)state;
    enum { N = 37 };
    xr_sampler s;
    uint32_t first[N];
    int same = 0;
    int in_place = 0;
    assert_int_equal(start(&s, N, 5, 1, NULL), XRAY_OK);
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

static void seed_decides(void **state)
{
    (void)state;
    xr_sampler a;
    xr_sampler b;
    xr_sampler c;
    int differ = 0;
    assert_int_equal(start(&a, 100, 1, 1, NULL), XRAY_OK);
    assert_int_equal(start(&b, 100, 1, 1, NULL), XRAY_OK);
    assert_int_equal(start(&c, 100, 2, 1, NULL), XRAY_OK);
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

/* Two numbers are the whole state: a resumed run draws what it would have. */
static void resumes_anywhere(void **state)
{
    (void)state;
    for (int cut = 0; cut < 45; cut++) {
        xr_sampler a;
        xr_sampler b;
        assert_int_equal(start(&a, 20, 9, 1, NULL), XRAY_OK);
        assert_int_equal(start(&b, 20, 9, 1, NULL), XRAY_OK);
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

static void file_order_and_bounds(void **state)
{
    (void)state;
    xr_sampler s;
    xr_err err = { "" };
    assert_int_equal(start(&s, 3, 0, 0, &err), XRAY_OK);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(xr_sampler_next(&s), i % 3);
    assert_int_equal(xr_sampler_steps(&s, 2), 1);
    assert_int_equal(xr_sampler_steps(&s, 3), 1);
    assert_int_equal(xr_sampler_steps(&s, 8), 1);
    assert_int_equal(xr_sampler_steps(&s, 1), 3);
    xr_sampler_free(&s);
    assert_int_equal(start(&s, 0, 0, 0, &err), XRAY_E_RANGE);
    assert_true(err.text[0] != '\0');
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutes_every_epoch),
        cmocka_unit_test(seed_decides),
        cmocka_unit_test(resumes_anywhere),
        cmocka_unit_test(file_order_and_bounds),
    };
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
