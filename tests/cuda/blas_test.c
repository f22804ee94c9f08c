/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of how device-cuda chooses an algorithm of cuBLASLt: by the bits of its
 * rows. The algorithms are functions of this file.
 */
#include "tests/cuda/products.h"

#include "plugins/device-cuda/blas_choose.h"

#define TOKENS 320u
#define USED 5u /* elements of a row that count, of ROW */
#define ROW 8u

/* An algorithm has one of these faults. */
enum { GOOD, BITS_AT_FEW, LAST_ROW, REFUSES_100, BITS_BELOW_MOST, FAILS };

typedef struct trial {
    const int *kinds;
    uint16_t *y;
    uint32_t runs;
    uint32_t last; /* candidate that ran last */
} trial;

static uint16_t compute_element(int kind, uint32_t row, uint32_t col,
                                uint32_t tokens)
{
    uint16_t bits = (uint16_t)(row % BLAS_PERIOD * 100 + col);
    if (kind == BITS_AT_FEW && tokens <= 64 && col == USED - 1)
        return bits ^ 1u;
    if (kind == BITS_BELOW_MOST && tokens < TOKENS)
        return bits ^ 1u;
    if (kind == LAST_ROW && tokens == 300 && row == 299 && col == 0)
        return bits ^ 1u;
    return bits;
}

static xray_status run_trial(void *self, uint32_t candidate, uint32_t tokens)
{
    trial *t = self;
    int kind = t->kinds[candidate];
    t->runs++;
    t->last = candidate;
    if (kind == FAILS)
        return XRAY_E_DEVICE;
    if (kind == REFUSES_100 && tokens == 100)
        return XRAY_E_UNSUPPORTED;
    for (uint32_t row = 0; row < tokens; row++)
        for (uint32_t col = 0; col < ROW; col++)
            t->y[row * ROW + col] =
                col < USED ? compute_element(kind, row, col, tokens)
                           : (uint16_t)(t->runs + row); /* not compared */
    return XRAY_OK;
}

static xray_status choose(const int *kinds, uint32_t count, uint16_t *kept,
                          int given, uint32_t *out, blas_verdict *why)
{
    static uint16_t y[TOKENS * ROW];
    uint32_t differ = 0;
    trial t = { .kinds = kinds, .y = y };
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    const blas_probe p = { .d = d,
                           .stream = d->stream,
                           .self = &t,
                           .run = run_trial,
                           .y = y,
                           .kept = kept,
                           .differ = &differ,
                           .row = ROW,
                           .used = USED,
                           .tokens = TOKENS,
                           .candidates = count,
                           .given = given };
    xray_status status = blas_choose(&p, out, why);
    destroy_cuda(d);
    return status;
}

static void check_choice(const int *kinds, uint32_t count, uint32_t expected,
                         uint32_t tokens, int refused)
{
    uint16_t kept[BLAS_PERIOD * ROW];
    uint32_t at = 99;
    blas_verdict why;
    assert_int_equal(choose(kinds, count, kept, 0, &at, &why), XRAY_OK);
    assert_int_equal(at, expected);
    assert_int_equal(why.holds, expected < count);
    if (expected < count)
        return;
    assert_int_equal(why.tokens, tokens);
    assert_int_equal(why.refused, refused);
}

static void first_that_holds_is_taken(void **state)
{
    static const int good[] = { GOOD, GOOD };
    static const int few[] = { BITS_AT_FEW, GOOD };
    static const int most[] = { BITS_BELOW_MOST, LAST_ROW, REFUSES_100, GOOD };
    (void)state;
    check_choice(good, 2, 0, 0, 0);
    check_choice(few, 2, 1, 0, 0);
    check_choice(most, 4, 3, 0, 0);
}

static void none_is_taken_if_none_holds(void **state)
{
    static const int few[] = { BITS_AT_FEW, LAST_ROW };
    static const int place[] = { LAST_ROW };
    static const int refuses[] = { REFUSES_100, BITS_AT_FEW };
    (void)state;
    check_choice(few, 2, 2, 1, 0);
    check_choice(place, 1, 1, 300, 0);
    check_choice(refuses, 2, 2, 100, 1);
    check_choice(NULL, 0, 0, 0, 0);
}

/* Rows that are given, of another shape, are those that a candidate needs. */
static void given_rows_are_required(void **state)
{
    static const int good[] = { GOOD };
    uint16_t kept[BLAS_PERIOD * ROW] = { 0 };
    uint32_t at = 99;
    blas_verdict why;
    (void)state;
    for (uint32_t row = 0; row < BLAS_PERIOD; row++)
        for (uint32_t col = 0; col < USED; col++)
            kept[row * ROW + col] = compute_element(GOOD, row, col, TOKENS);
    assert_int_equal(choose(good, 1, kept, 1, &at, &why), XRAY_OK);
    assert_int_equal(at, 0);
    kept[3 * ROW + 2] ^= 1u;
    assert_int_equal(choose(good, 1, kept, 1, &at, &why), XRAY_OK);
    assert_int_equal(at, 1);
    assert_int_equal(why.tokens, TOKENS);
}

static void errors_end_the_choice(void **state)
{
    static const int kinds[] = { BITS_AT_FEW, FAILS, GOOD };
    uint16_t kept[BLAS_PERIOD * ROW];
    uint32_t at = 99;
    blas_verdict why;
    (void)state;
    assert_int_equal(choose(kinds, 3, kept, 0, &at, &why), XRAY_E_DEVICE);
}

/* Rows of probe values repeat, also in bf16, and differ within a period. */
static void values_repeat(void **state)
{
    enum { ROWS = 37, WIDTH = 300, STRIDE = 304 };
    static float wide[ROWS * STRIDE];
    static uint16_t low[ROWS * STRIDE];
    static uint16_t rounded[ROWS * STRIDE];
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    const blas_values v = { wide, STRIDE, ROWS, WIDTH, BLAS_PERIOD, 1, 0, 0 };
    const blas_values h = { low, STRIDE, ROWS, WIDTH, BLAS_PERIOD, 1, 1, 0 };
    (void)state;
    must(blas_fill(d, d->stream, &v));
    must(blas_fill(d, d->stream, &h));
    must(blas_round(d, d->stream, wide, STRIDE, rounded, STRIDE, ROWS, WIDTH));
    double sum = 0;
    for (size_t row = 0; row < ROWS; row++)
        for (size_t col = 0; col < STRIDE; col++) {
            float x = wide[row * STRIDE + col];
            sum += (double)x;
            assert_true(x >= -1.0f && x < 1.0f);
            assert_true(col < WIDTH || x == 0.0f);
            assert_true(x == wide[row % BLAS_PERIOD * STRIDE + col]);
            assert_int_equal(low[row * STRIDE + col], to_bf16(x));
            assert_int_equal(rounded[row * STRIDE + col], to_bf16(x));
        }
    assert_true(sum > -0.05 * ROWS * WIDTH && sum < 0.05 * ROWS * WIDTH);
    for (size_t row = 1; row < BLAS_PERIOD; row++)
        assert_memory_not_equal(wide, wide + row * STRIDE,
                                WIDTH * sizeof(*wide));
    destroy_cuda(d);
}

/* Sums of a probe show their order, also in bf16. */
static void sums_show_their_order(void **state)
{
    enum { K = 200, N = 48, M = BLAS_PERIOD };
    static float x[M * K];
    static float nt[N * K];
    static float nn[K * N];
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    const blas_values vx = { x, K, M, K, BLAS_PERIOD, 1, 0, BLAS_X };
    const blas_values vt = { nt, K, N, K, UINT32_MAX, 0, 0, BLAS_W_NT };
    const blas_values vn = { nn, N, K, N, UINT32_MAX, 0, 0, BLAS_W_NN };
    (void)state;
    must(blas_fill(d, d->stream, &vx));
    must(blas_fill(d, d->stream, &vt));
    must(blas_fill(d, d->stream, &vn));
    for (int form = 0; form < 2; form++) {
        uint32_t differ = 0;
        for (uint32_t i = 0; i < M * N; i++) {
            float once = 0.0f;
            float half[2] = { 0.0f, 0.0f };
            double exact = 0;
            for (uint32_t k = 0; k < K; k++) {
                uint32_t n = i % N;
                float w = round_to_bf16(form ? nn[k * N + n] : nt[n * K + k]);
                float term = round_to_bf16(x[i / N * K + k]) * w;
                once += term;
                half[k >= K / 2] += term;
                exact += (double)term;
            }
            assert_true(exact > -100 && exact < 100);
            differ += to_bf16(once) != to_bf16(half[0] + half[1]);
        }
        assert_true(differ > M * N / 4);
    }
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_that_holds_is_taken),
        cmocka_unit_test(none_is_taken_if_none_holds),
        cmocka_unit_test(given_rows_are_required),
        cmocka_unit_test(errors_end_the_choice),
        cmocka_unit_test(values_repeat),
        cmocka_unit_test(sums_show_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
