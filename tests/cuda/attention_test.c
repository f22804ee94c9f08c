/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention in bfloat16: near float64 over rounded operands, and the same bits
 * for a query whatever is around it: as a packed row, in chunks, token by
 * token, paged or not. On a GPU this also shows that a row's result of a
 * tensor-core product does not depend on which row of the fragment it is.
 */
#include "tests/cuda/attention_run.h"

static const form forms[] = {
    { 1, 1, 8, 0, 0.0f, { 1, 2, 5 }, 0.0f },
    { 4, 4, 16, 0, 0.0f, { 14, 3, 17 }, 0.0f },
    { 4, 2, 20, 0, 2.0f, { 14, 33 }, 0.0f },
    { 7, 1, 64, 0, 0.0f, { 70, 9 }, 0.0f },
    { 2, 1, 40, 0, 0.0f, { 270, 64 }, 0.0f },
    { 4, 2, 128, 0, 0.0f, { 66, 20 }, 0.0f },
    { 4, 2, 16, 5, 0.0f, { 1, 40, 90 }, 0.0f },
    { 4, 1, 80, 1, 0.0f, { 30, 1 }, 0.0f },
    { 2, 2, 96, 20, 0.0f, { 45, 20, 19, 21 }, 0.0f },
    { 3, 1, 32, 64, 0.0f, { 63, 64, 65, 140 }, 0.0f },
    { 1, 1, 32, 100, 0.0f, { 330 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70, 12 }, 0.0f },
    { 1, 1, 256, 0, 50.0f, { 80, 5 }, 0.0625f },
    { 20, 1, 24, 0, 30.0f, { 50 }, 1.0f },
    { 70, 1, 8, 0, 0.0f, { 3, 18 }, 0.0f },
};
#define FORMS (sizeof(forms) / sizeof(*forms))

static rows rounded_rows(form f)
{
    rows r = rows_make(f);
    round_all(r.qkv, r.tokens * r.stride);
    return r;
}

/* p is rounded to 8 bits for the values, not for its sum: half a unit of the
 * last bit is 2^-8 of it. */
static void forward_is_near_float64(void **state)
{
    (void)state;
    dev d = attend_open(CUDA_BFLOAT16);
    double p[MOST_KEYS];
    double slope[MOST_KEYS];
    double o[256];
    double size[256];
    for (size_t f = 0; f < FORMS; f++) {
        rows r = rounded_rows(forms[f]);
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (size_t row = 0; row < r.count; row++)
            for (size_t i = 0; i < (size_t)r.f.lengths[row]; i++)
                for (size_t h = 0; h < r.f.heads; h++) {
                    seen q = seen_of(&r, row, i, h);
                    size_t t = q.start + i;
                    double lse = seen_probs(&q, p, slope);
                    near(r.lse[t * r.f.heads + h], lse, 3e-6, "lse");
                    seen_values(&q, p, o, size);
                    for (size_t e = 0; e < r.f.dim; e++)
                        within(r.o[t * r.q_width + h * r.f.dim + e], o[e],
                               size[e], 0x1.02p-8, "o", e);
                }
        rows_free(&r);
    }
    d.ops->destroy(d.self);
}

/* Sums of rounded p and ds; what o has lost is in every ds as well. */
static void gradient_is_near_float64(void **state)
{
    (void)state;
    dev d = attend_open(CUDA_BFLOAT16);
    for (size_t f = 0; f < FORMS; f++) {
        rows r = rounded_rows(forms[f]);
        size_t n = r.tokens * r.stride;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        round_all(d_o, r.tokens * r.q_width);
        float *got = random_floats(n, 1);
        double *want = calloc(2 * n, sizeof(*want));
        assert_non_null(want);
        run_rows(&d, &r, r.o, r.lse, d_o, got);
        for (size_t row = 0; row < r.count; row++)
            for (size_t i = 0; i < (size_t)r.f.lengths[row]; i++)
                for (size_t h = 0; h < r.f.heads; h++) {
                    seen q = seen_of(&r, row, i, h);
                    seen_grad(&q, d_o + (q.start + i) * r.q_width + h * r.f.dim,
                              want, want + n);
                }
        for (size_t e = 0; e < n; e++)
            within(got[e], want[e], want[n + e], 0x1.1p-8, "gradient", e);
        free(want);
        free(got);
        free(d_o);
        rows_free(&r);
    }
    d.ops->destroy(d.self);
}

static void a_row_does_not_see_its_batch(void **state)
{
    (void)state;
    dev d = attend_open(CUDA_BFLOAT16);
    for (size_t f = 1; f < FORMS; f += 2) {
        rows r = rounded_rows(forms[f]);
        size_t n = r.tokens * r.stride;
        float *d_o = random_floats(r.tokens * r.q_width, 1);
        float *all = floats(n);
        run_rows(&d, &r, r.o, r.lse, d_o, all);
        for (size_t row = 0; row < r.count; row++) {
            size_t start = (size_t)r.start[row];
            rows one = r;
            one.count = 1;
            one.tokens = one.longest = (size_t)r.f.lengths[row];
            one.start[0] = 0;
            one.start[1] = r.f.lengths[row];
            one.qkv = r.qkv + start * r.stride;
            float *o = floats(one.tokens * r.q_width);
            float *lse = floats(one.tokens * r.f.heads);
            float *grad = floats(one.tokens * r.stride);
            run_rows(&d, &one, o, lse, d_o + start * r.q_width, grad);
            same_bits(o, r.o + start * r.q_width, one.tokens * r.q_width, "o",
                      "a row alone");
            same_bits(lse, r.lse + start * r.f.heads, one.tokens * r.f.heads,
                      "lse", "a row alone");
            same_bits(grad, all + start * r.stride, one.tokens * r.stride,
                      "gradient", "a row alone");
            free(o);
            free(lse);
            free(grad);
        }
        free(all);
        free(d_o);
        rows_free(&r);
    }
    d.ops->destroy(d.self);
}

static void the_engine_gives_the_trainers_bits(void **state)
{
    (void)state;
    dev d = attend_open(CUDA_BFLOAT16);
    static const way ways[] = {
        { 16, 512, 0, 0, 0, 0 },
        { 48, 29, 0, 1, 0, XRAY_BF16 },
        { 16, 100, 13, 1, 5, 0 },
    };
    for (size_t f = 0; f < FORMS; f++) {
        rows r = rows_make(forms[f]); /* rounding is the device's affair */
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (size_t w = 0; w < sizeof(ways) / sizeof(*ways); w++) {
            float *o = floats(r.tokens * r.q_width);
            run_way(&d, &r, ways[w], o);
            same_bits(o, r.o, r.tokens * r.q_width, "attention_kv", "chunks");
            free(o);
        }
        if (r.longest < 100) {
            float *o = floats(r.tokens * r.q_width);
            run_way(&d, &r, (way){ 16, 1, 0, 1, 2, 0 }, o);
            same_bits(o, r.o, r.tokens * r.q_width, "attention_kv", "decode");
            free(o);
        }
        rows_free(&r);
    }
    d.ops->destroy(d.self);
}

/* Rows over several splits: a prompt, then tokens one by one near and across
 * their borders. */
static void decode_of_long_rows_gives_the_trainers_bits(void **state)
{
    (void)state;
    dev d = attend_open(CUDA_BFLOAT16);
    static const form longer[] = {
        { 7, 1, 64, 0, 0.0f, { 517 }, 0.0f },
        { 2, 1, 32, 300, 0.0f, { 771, 260 }, 0.0f },
        { 2, 1, 128, 0, 20.0f, { 258, 25 }, 0.0f },
    };
    for (size_t f = 0; f < sizeof(longer) / sizeof(*longer); f++) {
        rows r = rows_make(longer[f]);
        run_rows(&d, &r, r.o, r.lse, NULL, NULL);
        for (int paged = 0; paged < 2; paged++) {
            float *o = floats(r.tokens * r.q_width);
            way w = { paged ? 16 : 64, 1, r.longest - 5, paged, 0, 0 };
            run_way(&d, &r, w, o);
            same_bits(o, r.o, r.tokens * r.q_width, "attention_kv",
                      paged ? "paged" : "contiguous");
            free(o);
        }
        rows_free(&r);
    }
    d.ops->destroy(d.self);
}

static void what_is_not_offered_is_refused(void **state)
{
    (void)state;
    static const int64_t precisions[] = { CUDA_FLOAT32, CUDA_BFLOAT16 };
    for (size_t p = 0; p < 2; p++) {
        dev d = attend_open(precisions[p]);
        xray_kv kv = { .head = XRAY_HEAD(xray_kv),
                       .block_tokens = 32,
                       .kv_heads = 2,
                       .head_dim = 20,
                       .dtype = XRAY_F32 };
        uint64_t wide = precisions[p] == CUDA_FLOAT32 ? 20 * 4 : 24 * 2;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 2 * 2 * 32 * wide);
        kv.dtype = XRAY_BF16;
        assert_true((d.ops->kv_block_bytes(d.self, &kv) != 0) ==
                    (precisions[p] == CUDA_BFLOAT16));
        kv.dtype = XRAY_F16;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 0);
        kv.dtype = XRAY_F32;
        kv.block_tokens = 20;
        assert_true(d.ops->kv_block_bytes(d.self, &kv) == 0);
        rows r = rows_make(forms[1]);
        xray_attention op = rows_op(&r, r.o, r.lse);
        op.kv_heads = 3;
        assert_int_equal(d.ops->attention(d.self, NULL, &op), XRAY_E_ARG);
        op.kv_heads = 4;
        op.q_stride = 3;
        assert_int_equal(d.ops->attention(d.self, NULL, &op), XRAY_E_ARG);
        op.q_stride = op.k_stride = op.v_stride = op.o_stride = 4096;
        op.head_dim = 264;
        assert_int_equal(d.ops->attention(d.self, NULL, &op),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(last_failure, "256"));
        rows_free(&r);
        d.ops->destroy(d.self);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forward_is_near_float64),
        cmocka_unit_test(gradient_is_near_float64),
        cmocka_unit_test(a_row_does_not_see_its_batch),
        cmocka_unit_test(the_engine_gives_the_trainers_bits),
        cmocka_unit_test(decode_of_long_rows_gives_the_trainers_bits),
        cmocka_unit_test(what_is_not_offered_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
