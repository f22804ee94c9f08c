/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that attention in bfloat16 runs on GPUs whose blocks have less shared
 * memory than Hopper's, with the same bits.
 */
#include "tests/cuda/attention_run.h"

#include "tests/cuda/emulate_runtime.h"

static const form forms[] = {
    { 2, 1, 64, 0, 0.0f, { 300, 5 }, 0.0f },
    { 4, 2, 96, 20, 0.0f, { 45, 280 }, 0.0f },
    { 2, 1, 128, 0, 0.0f, { 270, 66 }, 0.0f },
    { 20, 1, 128, 0, 0.0f, { 90 }, 0.0f },
    { 2, 1, 256, 33, 0.0f, { 70, 12 }, 0.0f },
    { 2, 1, 256, 0, 0.0f, { 300 }, 0.0f },
};

/* A GPU computes this of the rows of a form. */
typedef struct results {
    float *o, *lse, *prompt, *decoded, *grad;
} results;

static float *copy_values(const float *x, size_t n)
{
    float *y = alloc_floats(n);
    memcpy(y, x, n * sizeof(*y));
    return y;
}

static void decode(const dev *d, const rows *r, size_t chunk, float *o)
{
    cache_run w = { 16, chunk, chunk == 1 ? r->longest - 3 : 0, 1, 0, 0 };
    run_over_cache(d, r, w, o);
}

static results compute(int capability, const rows *r, const float *d_o,
                       int gradient)
{
    emulate_devices(1, capability, 8ull << 30);
    dev d = open_attention(CUDA_BFLOAT16);
    size_t outputs = r->tokens * r->q_width;
    results x = { alloc_floats(outputs), alloc_floats(r->tokens * r->f.heads),
                  alloc_floats(outputs), alloc_floats(outputs),
                  copy_values(r->qkv, r->tokens * r->stride) };
    run_rows(&d, r, x.o, x.lse, gradient ? d_o : NULL,
             gradient ? x.grad : NULL);
    decode(&d, r, 40, x.prompt);
    decode(&d, r, 1, x.decoded);
    d.ops->destroy(d.self);
    emulate_devices(1, 90, 8ull << 30);
    return x;
}

static void free_results(results *x)
{
    free(x->o);
    free(x->lse);
    free(x->prompt);
    free(x->decoded);
    free(x->grad);
}

static void compare(const form *f, int capability, int gradient)
{
    rows r = make_rows(*f);
    size_t outputs = r.tokens * r.q_width;
    float *d_o = random_floats(outputs, 1);
    results want = compute(90, &r, d_o, gradient);
    results got = compute(capability, &r, d_o, gradient);
    assert_same_bits(got.o, want.o, outputs, "o", "a smaller GPU");
    assert_same_bits(got.lse, want.lse, r.tokens * f->heads, "lse",
                     "a smaller GPU");
    assert_same_bits(got.prompt, want.o, outputs, "o", "prompts");
    assert_same_bits(got.decoded, want.o, outputs, "o", "decoding");
    assert_same_bits(got.grad, want.grad, r.tokens * r.stride, "gradient",
                     "a smaller GPU");
    free_results(&want);
    free_results(&got);
    free(d_o);
    free_rows(&r);
}

static void attention_fits_smaller_gpus(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(forms) / sizeof(*forms); i++) {
        compare(&forms[i], 80, 1);
        compare(&forms[i], 89, forms[i].dim <= 128);
    }
}

static void a_gradient_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    rows r = make_rows(forms[4]);
    emulate_devices(1, 89, 8ull << 30);
    dev d = open_attention(CUDA_BFLOAT16);
    run_rows(&d, &r, r.o, r.lse, NULL, NULL);
    int32_t starts[] = { 0, r.f.lengths[0], r.f.lengths[0] + r.f.lengths[1] };
    float *grad = copy_values(r.qkv, r.tokens * r.stride);
    xray_attention op = make_attention(&r, r.o, r.lse);
    op.row_start = starts;
    op.q = r.qkv;
    op.k = r.qkv + r.q_width;
    op.v = r.qkv + r.q_width + r.kv_width;
    xray_attention_grad back = make_attention_grad(&r, &op, r.o, grad);
    assert_int_equal(d.ops->attention_grad(d.self, NULL, &back),
                     XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(last_failure,
                           "attention_grad: a block needs 135168 bytes of "
                           "shared memory, but has at most 101376 on this "
                           "GPU"));
    d.ops->destroy(d.self);
    emulate_devices(1, 90, 8ull << 30);
    free(grad);
    free_rows(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(attention_fits_smaller_gpus),
        cmocka_unit_test(a_gradient_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests_name("cuda.smaller_gpu", tests, NULL, NULL);
}
