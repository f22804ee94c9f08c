/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that product_cut, which computes segments as products of their own, has
 * the bits of the kernels that join them in registers.
 */
#include "tests/cuda/products.h"

typedef struct cut {
    uint32_t form, m, n;
    uint32_t piece[3];
    uint32_t segments;
    uint32_t lacks; /* terms that the last segment lacks */
    uint32_t spare; /* elements between two rows of the outputs */
} cut;

static const cut cuts[] = {
    { PRODUCT_NT, 5, 33, { 24 }, 8, 0, 0 },
    { PRODUCT_NT, 300, 70, { 24 }, 4, 0, 6 },
    { PRODUCT_NT, 130, 1028, { 16 }, 8, 0, 4 },
    { PRODUCT_NN, 131, 257, { 40 }, 2, 0, 3 },
    { PRODUCT_NN, 66, 64, { 128 }, 3, 84, 0 },
    { PRODUCT_NT, 1, 8, { 8 }, 7, 5, 8 },
    { PRODUCT_NN, 130, 40, { 24, 24 }, 4, 0, 0 },
    { PRODUCT_NN, 9, 72, { 40, 8, 8 }, 2, 0, 1 },
};

/* The sums end so: this is added to them, and outputs are stored like this. */
typedef struct ends {
    int bias, add;
    uint8_t narrow;
    int live; /* 1: some tokens are not live */
} ends;

static const ends all_ends[] = {
    { 0, 0, 0, 0 },
    { 1, 0, 0, 1 },
    { 0, 1, PRODUCT_NARROW_C, 0 },
    { 1, 1, PRODUCT_NARROW_FROM, 1 },
    { 1, 1, PRODUCT_NARROW_FROM | PRODUCT_NARROW_C, 0 },
};

static uint16_t *random_bf16(size_t count)
{
    float *x = random_floats(count, 1);
    uint16_t *low = aligned_alloc(16, (count * 2 + 15) / 16 * 16);
    assert_non_null(low);
    for (size_t i = 0; i < count; i++)
        low[i] = to_bf16(x[i]);
    free(x);
    return low;
}

/* The operands of a case; `x` is what is added, of either type. */
typedef struct operands {
    uint16_t *a, *b;
    float *bias, *x;
    int32_t live;
} operands;

static product_gemm make_gemm(const cut *c, const ends *e, operands *o)
{
    int nt = c->form == PRODUCT_NT;
    uint32_t k =
        (c->piece[0] + c->piece[1] + c->piece[2]) * c->segments - c->lacks;
    size_t row = c->n + c->spare;
    size_t b_row = product_row(nt ? k : c->n);
    *o = (operands){ random_bf16(c->m * product_row(k)),
                     random_bf16((nt ? c->n : k) * b_row),
                     random_floats(c->n, 1), random_floats(c->m * row, 1),
                     (int32_t)(c->m - c->m / 3) };
    for (uint32_t i = 0; i < c->m; i++) /* rows are padded with zeros */
        for (size_t j = k; j < product_row(k); j++)
            o->a[i * product_row(k) + j] = 0;
    for (uint32_t i = 0; nt && i < c->n; i++)
        for (size_t j = k; j < b_row; j++)
            o->b[i * b_row + j] = 0;
    return (product_gemm){ .a = o->a,
                           .b = o->b,
                           .bias = e->bias ? o->bias : NULL,
                           .add = e->add ? o->x : NULL,
                           .live = e->live ? &o->live : NULL,
                           .a_row = product_row(k),
                           .b_row = b_row,
                           .c_row = row,
                           .from_row = row,
                           .m = c->m,
                           .n = c->n,
                           .k = k,
                           .live_from = e->live ? 1 : 0,
                           .piece = { c->piece[0], c->piece[1], c->piece[2] },
                           .form = (uint8_t)c->form,
                           .segments = (uint8_t)c->segments,
                           .narrow = e->narrow };
}

static void compare(cuda_device *d, const cut *c, const ends *e)
{
    operands o;
    product_gemm g = make_gemm(c, e, &o);
    size_t count = c->m * g.c_row;
    float *want = random_floats(count, 1);
    float *got = copy_floats(want, count);
    g.c = want;
    must(product_tensor(d, NULL, "test", &g, PRODUCT_AUTO));
    g.c = got;
    must(product_cut(d, NULL, "test", &g));
    assert_same_bits(got, want, count, "product_cut", "product_tensor");
    free(want);
    free(got);
    free(o.a);
    free(o.b);
    free(o.bias);
    free(o.x);
}

static void cut_products_have_the_bits_of_segments(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
        for (size_t e = 0; e < sizeof(all_ends) / sizeof(*all_ends); e++)
            compare(d, &cuts[i], &all_ends[e]);
    destroy_cuda(d);
}

/* Rows are computed in as many pieces as what was reserved holds. */
static void reserved_scratch_cuts_the_rows(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    const cut *c = &cuts[1];
    void *sums;
    must(cuda_scratch(d, CUDA_SCRATCH_STAGE, 130ull * c->segments * c->n * 4,
                      &sums));
    d->frozen = 1;
    for (size_t e = 0; e < sizeof(all_ends) / sizeof(*all_ends); e++)
        compare(d, c, &all_ends[e]);
    destroy_cuda(d);
}

static void what_cannot_be_cut_is_left_to_others(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    operands o;
    product_gemm g = make_gemm(&cuts[1], &all_ends[0], &o);
    float *c = alloc_floats(cuts[1].m * g.c_row);
    g.c = c;
    product_gemm parts = g;
    parts.piece[0] = 16;
    parts.piece[1] = 4;
    parts.piece[2] = 4;
    product_gemm odd = g;
    odd.piece[0] = 23;
    product_gemm whole = g;
    whole.segments = 0;
    const product_gemm *all[] = { &parts, &odd, &whole };
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(product_cut(d, NULL, "test", all[i]),
                         XRAY_E_UNSUPPORTED);
    d->frozen = 1; /* without scratch */
    assert_int_equal(product_cut(d, NULL, "test", &g), XRAY_E_UNSUPPORTED);
    free(c);
    free(o.a);
    free(o.b);
    free(o.bias);
    free(o.x);
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_products_have_the_bits_of_segments),
        cmocka_unit_test(reserved_scratch_cuts_the_rows),
        cmocka_unit_test(what_cannot_be_cut_is_left_to_others),
    };
    return cmocka_run_group_tests_name("cuda.cut", tests, NULL, NULL);
}
