/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that exp, log and tanh stay within their error bounds, are exact at the
 * edges and give equal bits on every instruction set; also Philox and the
 * rotary table.
 */
#include "tests/device/bench.h"

#include <xray/numerics.h>

static const cpu_kernels *get_kernels(const dev *d)
{
    return ((const cpu_device *)d->self)->k;
}

/* The distance from `want` in units in the last place of a float near it. */
static double count_ulps(float got, double want)
{
    int e;
    (void)frexp(want, &e);
    e = e < -125 ? -125 : e;
    return fabs((double)got - want) / ldexp(1.0, e - 24);
}

typedef struct scan {
    uint32_t which;
    double (*exact)(double);
    double from, to, step; /* step: a factor if above 1, otherwise a summand */
    double bound;
} scan;

#define SCAN_BLOCK 1000

static void run_scan(const bench *b, const scan *s)
{
    float x[SCAN_BLOCK];
    float y[SCAN_BLOCK];
    float first[SCAN_BLOCK];
    double worst = 0;
    double at = 0;
    for (double v = s->from; v < s->to;) {
        size_t n = 0;
        for (; n < SCAN_BLOCK && v < s->to; n++) {
            x[n] = (float)v;
            v = s->step > 1 ? v * s->step : v + s->step;
        }
        get_kernels(&b->dev[0])->map(s->which, first, x, n);
        for (size_t i = 0; i < n; i++) {
            double e = count_ulps(first[i], s->exact((double)x[i]));
            if (e > worst) {
                worst = e;
                at = (double)x[i];
            }
        }
        for (int d = 1; d < b->count; d++) {
            get_kernels(&b->dev[d])->map(s->which, y, x, n);
            assert_same_bits(y, first, n, "function", b->dev[d].name);
        }
    }
    print_message("function %u on [%g, %g): %.3f ulp at %a\n", s->which,
                  s->from, s->to, worst, at);
    assert_true(worst <= s->bound);
}

static void functions_are_within_their_bounds(void **state)
{
    (void)state;
    static const scan scans[] = {
        { CPU_MAP_EXP, exp, -103.9, 88.7, 0.000317, 1.01 },
        { CPU_MAP_EXP, exp, -1.0, 1.0, 0.0000031, 1.01 },
        { CPU_MAP_LOG, log, 1e-44, 3e38, 1.00013, 1.01 },
        { CPU_MAP_LOG, log, 0.5, 2.0, 0.0000029, 1.01 },
        { CPU_MAP_TANH, tanh, -12.0, 12.0, 0.000031, 2.0 },
        { CPU_MAP_TANH, tanh, 1e-30, 1.0, 1.0003, 2.0 },
    };
    bench b;
    open_cpu_devices(&b);
    for (size_t i = 0; i < sizeof(scans) / sizeof(*scans); i++)
        run_scan(&b, &scans[i]);
    close_devices(&b);
}

static void edges_are_exact(void **state)
{
    (void)state;
    bench b;
    open_cpu_devices(&b);
    for (int d = 0; d < b.count; d++) {
        const cpu_kernels *k = get_kernels(&b.dev[d]);
        float x[6] = { -INFINITY, -1e30f, 0.0f, 89.0f, INFINITY, NAN };
        float y[6];
        k->map(CPU_MAP_EXP, y, x, 6);
        assert_true(y[0] == 0.0f && y[1] == 0.0f && y[2] == 1.0f);
        assert_true(isinf(y[3]) && isinf(y[4]) && isnan(y[5]));
        float z[6] = { 0.0f, 1.0f, -1.0f, INFINITY, NAN, 1e-45f };
        k->map(CPU_MAP_LOG, y, z, 6);
        assert_true(isinf(y[0]) && y[0] < 0 && y[1] == 0.0f && isnan(y[2]));
        assert_true(isinf(y[3]) && isnan(y[4]));
        assert_near(y[5], log(0x1p-149), 1e-6, "log of the smallest float");
        k->map(CPU_MAP_TANH, y, x, 6);
        assert_true(y[0] == -1.0f && y[2] == 0.0f && y[4] == 1.0f);
        assert_true(isnan(y[5]));
    }
    close_devices(&b);
}

static void philox_gives_the_published_words(void **state)
{
    (void)state;
    xray_philox_out r = xray_philox(0, 0, 0, 0, 0);
    assert_true(r.w[0] == 0x6627e8d5 && r.w[1] == 0xe169c58d);
    assert_true(r.w[2] == 0xbc57ac4c && r.w[3] == 0x9b00dbd8);
    r = xray_philox(UINT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    assert_true(r.w[0] == 0x408f276d && r.w[1] == 0x41c83b0e);
    assert_true(r.w[2] == 0xa20bc7c6 && r.w[3] == 0x6d5451fd);
    r = xray_philox(0x299f31d0a4093822u, 0x243f6a88, 0x85a308d3, 0x13198a2e,
                    0x03707344);
    assert_true(r.w[0] == 0xd16cfe09 && r.w[1] == 0x94fdcceb);
    assert_true(r.w[2] == 0x5001e420 && r.w[3] == 0x24126ea1);
    assert_true(xray_unit(0) > 0.0f && xray_unit(UINT32_MAX) < 1.0f);
}

static void rope_tables_are_correct_to_the_last_bit_but_one(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    enum { HALF = 5, POSITIONS = 3000 };
    double freq[HALF] = { 1.0, 0.3162277660168379, 1e-4, 0.0, 61.7 };
    float *first = alloc_floats((size_t)POSITIONS * HALF * 2);
    float *table = alloc_floats((size_t)POSITIONS * HALF * 2);
    xray_rope_table op = { .header = XRAY_HEADER(xray_rope_table),
                           .inv_freq = freq,
                           .table = first,
                           .positions = POSITIONS,
                           .half = HALF,
                           .scale = 1.25f };
    must(b.dev[0].ops->rope_table(b.dev[0].self, NULL, &op));
    for (size_t p = 0; p < POSITIONS; p++)
        for (size_t i = 0; i < HALF; i++) {
            double a = (double)p * freq[i];
            const float *t = first + (p * HALF + i) * 2;
            assert_true(count_ulps(t[0], cos(a) * 1.25) <= 0.5001);
            assert_true(count_ulps(t[1], sin(a) * 1.25) <= 0.5001);
        }
    op.table = table;
    must(
        b.dev[b.count - 1].ops->rope_table(b.dev[b.count - 1].self, NULL, &op));
    assert_same_bits(table, first, (size_t)POSITIONS * HALF * 2, "table",
                     "threads");
    freq[1] = -1;
    assert_int_equal(b.dev[0].ops->rope_table(b.dev[0].self, NULL, &op),
                     XRAY_E_RANGE);
    free(first);
    free(table);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_within_their_bounds),
        cmocka_unit_test(edges_are_exact),
        cmocka_unit_test(philox_gives_the_published_words),
        cmocka_unit_test(rope_tables_are_correct_to_the_last_bit_but_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
