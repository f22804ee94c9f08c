/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the sum of squares is exact on every device, whatever the floats
 * and however they are cut, and that it is rounded once.
 */
#include <float.h>

#include "tests/device/bench.h"
#include "tests/squares.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))
#define BYTES (XRAY_SQUARES_WORDS * sizeof(uint64_t))

static void add_on(const dev *d, const float *x, size_t n, uint64_t *words)
{
    xray_sumsq op = {
        .header = XRAY_HEADER(xray_sumsq), .count = n, .x = x, .result = words
    };
    RUN(d, sumsq, &op);
}

/* ---- floats of every kind ------------------------------------------------ */

typedef float draw_fn(uint64_t i);

static uint32_t draw_bits(uint64_t i)
{
    return xray_philox(7, (uint32_t)i, 0, 0, 0).w[0];
}

static float float_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* About as large as one another, as gradients of one matrix are. */
static float draw_like(uint64_t i)
{
    return xray_unit(draw_bits(i)) - 0.5f;
}

/* Every exponent, NaN and Inf among them. */
static float draw_any(uint64_t i)
{
    return float_of(draw_bits(i));
}

/* The rows of a head: a few large, most tiny, many 0. */
static float draw_rows(uint64_t i)
{
    uint32_t row = draw_bits(1u << 20 | i / 64);
    float scale = ldexpf(1, -(int)(row % 90));
    return row % 3 ? draw_like(i) * scale : 0.0f;
}

static float draw_subnormal(uint64_t i)
{
    return float_of(draw_bits(i) & 0x807FFFFFu);
}

static float draw_largest(uint64_t i)
{
    return i % 2 ? -FLT_MAX : FLT_MAX;
}

static float draw_extreme(uint64_t i)
{
    static const float of[] = { 0.0f, -0.0f, FLT_MAX, FLT_TRUE_MIN, FLT_MIN };
    return of[draw_bits(i) % 5];
}

/* Most are finite, as in gradients of which a few have overflowed. */
static float draw_overflown(uint64_t i)
{
    uint32_t bits = draw_bits(i);
    if (bits % 100 >= 2)
        return draw_like(i);
    return bits % 100 ? -INFINITY : INFINITY;
}

static draw_fn *const kinds[] = { draw_like,      draw_any,     draw_rows,
                                  draw_subnormal, draw_largest, draw_extreme,
                                  draw_overflown };
#define KINDS (sizeof(kinds) / sizeof(*kinds))

static float *draw_floats(size_t kind, size_t n)
{
    float *x = alloc_floats(n + 1);
    for (size_t i = 0; i < n; i++)
        x[i] = kinds[kind](i);
    return x;
}

/* Adds to a sum that is not 0 at first, from a pointer that is not aligned. */
static void sums_are_exact(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 15, 17, 1024, 1025, 5003, 40001 };
    bench b;
    open_devices(&b);
    for (size_t kind = 0; kind < KINDS; kind++)
        for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++) {
            size_t n = sizes[s];
            float *x = draw_floats(kind, n + 1);
            uint64_t start[XRAY_SQUARES_WORDS] = { 3, 0xFFFFFFFFu };
            uint64_t want[XRAY_SQUARES_WORDS];
            memcpy(want, start, BYTES);
            for (size_t i = 0; i < n; i++)
                squares_add(want, x[i + 1]);
            for (int d = 0; d < b.count; d++) {
                uint64_t words[XRAY_SQUARES_WORDS];
                memcpy(words, start, BYTES);
                add_on(&b.dev[d], x + 1, n, words);
                if (memcmp(words, want, BYTES) != 0)
                    fail_msg("kind %zu of %zu floats differs on %s", kind, n,
                             b.dev[d].name);
            }
            free(x);
        }
    close_devices(&b);
}

/* Sums of the parts, in an order of their own, added word by word. */
static void cuts_and_orders_change_nothing(void **state)
{
    (void)state;
    static const size_t cuts[] = { 0, 1, 700, 1024, 4097, 20000, 60000 };
    enum { PARTS = sizeof(cuts) / sizeof(*cuts) - 1 };
    bench b;
    open_devices(&b);
    for (size_t kind = 0; kind < 3; kind++) {
        float *x = draw_floats(kind, cuts[PARTS]);
        uint64_t want[XRAY_SQUARES_WORDS] = { 0 };
        add_on(&b.dev[0], x, cuts[PARTS], want);
        for (int d = 0; d < b.count; d++) {
            uint64_t sum[XRAY_SQUARES_WORDS] = { 0 };
            for (size_t p = 0; p < PARTS; p++) {
                size_t part = (p * 5 + 2) % PARTS;
                uint64_t words[XRAY_SQUARES_WORDS] = { 0 };
                add_on(&b.dev[d], x + cuts[part], cuts[part + 1] - cuts[part],
                       words);
                for (size_t i = 0; i < XRAY_SQUARES_WORDS; i++)
                    sum[i] += words[i];
            }
            xray_squares_carry(sum);
            assert_memory_equal(sum, want, BYTES);
        }
        free(x);
    }
    close_devices(&b);
}

/* ---- values -------------------------------------------------------------- */

/* The sum of powers 2^at of the unit, ended by 0. */
static double value_of(const uint32_t *at)
{
    uint64_t words[XRAY_SQUARES_WORDS] = { 0 };
    for (; *at; at++)
        squares_add_bit(words, *at);
    return xray_squares_value(words);
}

static void values_are_rounded_once(void **state)
{
    (void)state;
    static const struct {
        uint32_t at[5];
        double want;
    } cases[] = {
        { { 0 }, 0.0 },
        { { 298 }, 1.0 },
        { { 298, 298 }, 2.0 },
        { { 298, 246 }, 1.0 + 0x1p-52 },
        { { 298, 245 }, 1.0 }, /* the middle: to even */
        { { 298, 245, 1 }, 1.0 + 0x1p-52 },
        { { 298, 246, 245 }, 1.0 + 0x1p-51 },
        { { 298, 244, 243, 1 }, 1.0 },
        { { 607, 554 }, 0x1p309 },
        { { 607, 554, 300 }, 0x1p309 + 0x1p257 },
        { { 20, 10 }, 0x1p-278 + 0x1p-288 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
        assert_true(value_of(cases[i].at) == cases[i].want);
    for (uint64_t i = 0; i < 100; i++) { /* one square: exact in double */
        uint64_t words[XRAY_SQUARES_WORDS] = { 0 };
        float x = i % 2 ? draw_subnormal(i) : draw_like(i);
        squares_add(words, x);
        assert_true(xray_squares_value(words) == (double)x * (double)x);
    }
    uint64_t words[XRAY_SQUARES_WORDS] = { 0 };
    squares_add(words, 1.0f);
    squares_add(words, -INFINITY);
    assert_true(isnan(xray_squares_value(words)));
}

/* Words below 0 borrow from those above. */
static void words_are_carried(void **state)
{
    (void)state;
    uint64_t words[XRAY_SQUARES_WORDS] = {
        5, UINT64_MAX, 0, 1, 1ull << 40, 0, 7
    };
    const uint64_t want[XRAY_SQUARES_WORDS] = { 5, 0xFFFFFFFFu, 0xFFFFFFFFu,
                                                0, 0,           256,
                                                7 };
    xray_squares_carry(words);
    assert_memory_equal(words, want, BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_exact),
        cmocka_unit_test(cuts_and_orders_change_nothing),
        cmocka_unit_test(values_are_rounded_once),
        cmocka_unit_test(words_are_carried),
    };
    return cmocka_run_group_tests_name("device.squares", tests, NULL, NULL);
}
