/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that device-cuda sums pieces of segments in bfloat16 as products of
 * their own, added in order, and joins segments by a tree: in every tile, for
 * pieces of any length, and in slices.
 */
#include "tests/cuda/mma_reference.h"
#include "tests/cuda/products.h"

/* A product in segments over one or more parts. */
typedef struct cut {
    uint32_t form, m, n, parts;
    uint32_t piece[3];
    uint32_t segments;
    uint32_t missing; /* terms that the last piece lacks */
} cut;

/* Pieces that the tensor cores' steps and the copies of eight fit, and pieces
 * that they do not. */
static const cut cuts[] = {
    { PRODUCT_NT, 1, 8, 1, { 16 }, 8 },
    { PRODUCT_NT, 5, 33, 1, { 24 }, 4 },
    { PRODUCT_NT, 40, 70, 1, { 43 }, 4 },
    { PRODUCT_NT, 130, 66, 1, { 200 }, 2 },
    { PRODUCT_NN, 3, 40, 1, { 136 }, 8 },
    { PRODUCT_NN, 66, 20, 2, { 21, 21 }, 8 },
    { PRODUCT_NN, 9, 65, 3, { 112, 16, 16 }, 2 },
    { PRODUCT_NN, 131, 257, 3, { 8, 3, 3 }, 4 },
    { PRODUCT_NT, 2, 12, 3, { 12, 8, 16 }, 2 },
    { PRODUCT_NT, 2, 12, 3, { 8, 12, 16 }, 2 },
    { PRODUCT_NT, 2, 12, 3, { 8, 16, 12 }, 2 },
    { PRODUCT_NN, 2, 12, 3, { 8, 16, 12 }, 2 },
    /* The stages of each group of warps are filled more than once. */
    { PRODUCT_NT, 3, 17, 1, { 1000 }, 2 },
    { PRODUCT_NT, 18, 9, 1, { 531 }, 4 },
    { PRODUCT_NT, 67, 66, 2, { 104, 75 }, 2, 74 },
    { PRODUCT_NT, 33, 34, 3, { 300, 130, 9 }, 8, 5 },
    { PRODUCT_NN, 17, 33, 1, { 256 }, 3, 131 },
};

typedef struct operands {
    cut c;
    uint32_t k;
    uint16_t *a, *b;
    float *bias, *residual;
} operands;

static uint16_t *random_bf16(size_t rows, size_t cols)
{
    size_t row = product_row(cols);
    float *x = random_floats(rows * cols, 1);
    uint16_t *low = aligned_alloc(16, (rows * row * 2 + 15) / 16 * 16);
    assert_non_null(low);
    memset(low, 0, rows * row * 2);
    for (size_t i = 0; i < rows * cols; i++)
        low[i / cols * row + i % cols] = to_bf16(x[i]);
    free(x);
    return low;
}

static operands make_operands(const cut *c)
{
    operands o = { .c = *c };
    for (uint32_t p = 0; p < c->parts; p++)
        o.k += c->piece[p] * c->segments;
    o.k -= c->missing;
    int nt = c->form == PRODUCT_NT;
    o.a = random_bf16(c->m, o.k);
    o.b = random_bf16(nt ? c->n : o.k, nt ? o.k : c->n);
    o.bias = random_floats(c->n, 1);
    o.residual = random_floats((size_t)c->m * c->n, 1);
    return o;
}

static void free_operands(operands *o)
{
    free(o->a);
    free(o->b);
    free(o->bias);
    free(o->residual);
}

static product_gemm make_gemm(const operands *o)
{
    int nt = o->c.form == PRODUCT_NT;
    return (product_gemm){ .a = o->a,
                           .b = o->b,
                           .a_row = product_row(o->k),
                           .b_row = product_row(nt ? o->k : o->c.n),
                           .c_row = o->c.n,
                           .from_row = o->c.n,
                           .form = (uint8_t)o->c.form,
                           .m = o->c.m,
                           .n = o->c.n,
                           .k = o->k };
}

/* The number of terms of a piece of part p, padded to steps. */
static uint32_t count_padded(const cut *c, uint32_t p)
{
    return (c->piece[p] + 15) / 16 * 16;
}

/* The terms of piece `segment` of part p of an operand whose summed index runs
 * along its columns or, with `of_rows`, its rows, padded with zeros to complete
 * steps. */
static uint16_t *copy_piece(const uint16_t *x, size_t rows, size_t cols,
                            const cut *c, uint32_t p, uint32_t segment,
                            int of_rows)
{
    size_t padded = count_padded(c, p);
    size_t to_rows = of_rows ? padded : rows;
    size_t to_row = product_row(of_rows ? cols : padded);
    uint16_t *y = calloc(to_rows * to_row, sizeof(*y));
    assert_non_null(y);
    size_t from = segment * c->piece[p];
    size_t k = of_rows ? rows : cols;
    for (uint32_t before = 0; before < p; before++)
        from += c->piece[before] * c->segments;
    for (size_t t = 0; t < c->piece[p] && from + t < k; t++)
        for (size_t i = 0; i < (of_rows ? cols : rows); i++)
            y[of_rows ? t * to_row + i : i * to_row + t] =
                x[of_rows ? (from + t) * product_row(cols) + i
                          : i * product_row(cols) + from + t];
    return y;
}

/* Asserts that sums of a product over complete steps are chains of them. */
REFERENCE static void check_chains(const product_gemm *g)
{
    const uint16_t *a = g->a;
    const uint16_t *b = g->b;
    int nt = g->form == PRODUCT_NT;
    for (size_t m = 0; m < g->m; m++)
        for (size_t n = 0; n < g->n; n++) {
            float c = 0.0f;
            for (size_t at = 0; at < g->k; at += 16) {
                float x[16];
                float y[16];
                for (size_t t = 0; t < 16; t++) {
                    size_t k = at + t;
                    x[t] = from_bf16(a[m * g->a_row + k]);
                    y[t] =
                        from_bf16(b[nt ? n * g->b_row + k : k * g->b_row + n]);
                }
                c = mma_reference(x, y, c);
            }
            assert_same_bits((float *)g->c + m * g->c_row + n, &c, 1, "a piece",
                             "the model");
        }
}

/* The sums of a piece as a product of its own. */
static void sum_piece(cuda_device *d, const operands *o, uint32_t p,
                      uint32_t segment, float *sums)
{
    int nt = o->c.form == PRODUCT_NT;
    product_gemm g = make_gemm(o);
    uint16_t *a = copy_piece(o->a, o->c.m, o->k, &o->c, p, segment, 0);
    uint16_t *b = copy_piece(o->b, nt ? o->c.n : o->k, nt ? o->k : o->c.n,
                             &o->c, p, segment, !nt);
    g.a = a;
    g.b = b;
    g.k = count_padded(&o->c, p);
    g.a_row = product_row(g.k);
    g.b_row = product_row(nt ? g.k : o->c.n);
    g.c = sums;
    must(product_tensor(d, NULL, "test", &g, PRODUCT_AUTO));
    check_chains(&g);
    free(a);
    free(b);
}

/* The sums of a segment: those of its pieces, in order. */
static void sum_segment(cuda_device *d, const operands *o, uint32_t segment,
                        float *sums)
{
    size_t outputs = (size_t)o->c.m * o->c.n;
    float *piece = alloc_floats(outputs);
    sum_piece(d, o, 0, segment, sums);
    for (uint32_t p = 1; p < o->c.parts; p++) {
        sum_piece(d, o, p, segment, piece);
        for (size_t i = 0; i < outputs; i++)
            sums[i] = sums[i] + piece[i];
    }
    free(piece);
}

/* The sums of the segments that there are of n, a power of two, from `first`
 * on, joined by a tree. */
static float *join_segments(cuda_device *d, const operands *o, uint32_t first,
                            uint32_t n)
{
    size_t outputs = (size_t)o->c.m * o->c.n;
    if (n > 1) {
        float *left = join_segments(d, o, first, n / 2);
        if (first + n / 2 >= o->c.segments)
            return left;
        float *right = join_segments(d, o, first + n / 2, n / 2);
        for (size_t i = 0; i < outputs; i++)
            left[i] = left[i] + right[i];
        free(right);
        return left;
    }
    float *sums = alloc_floats(outputs);
    sum_segment(d, o, first, sums);
    return sums;
}

/* The sums end so: these are added in this order, then they are stored. */
typedef struct ends {
    int bias;
    int residual;
    int narrow; /* the residual and the outputs are bf16 */
    int live;   /* rows are cut, and those from there on must not change */
} ends;

static const ends all_ends[] = {
    { 0, 0, 0, 0 }, { 1, 0, 0, 1 }, { 1, 1, 0, 0 },
    { 1, 1, 1, 1 }, { 0, 1, 0, 1 }, { 0, 0, 1, 0 },
};

/* The outputs of a cut, of which `rows` rows exist. */
static float *end_sums(const operands *o, const ends *e, const float *sums,
                       const uint16_t *low, size_t rows)
{
    size_t outputs = (size_t)o->c.m * o->c.n;
    float *want = alloc_floats(outputs);
    for (size_t i = 0; i < rows * o->c.n; i++) {
        float y = sums[i];
        if (e->bias)
            y = y + o->bias[i % o->c.n];
        if (e->residual)
            y = (e->narrow ? from_bf16(low[i]) : o->residual[i]) + y;
        if (e->narrow)
            ((uint16_t *)want)[i] = to_bf16(y);
        else
            want[i] = y;
    }
    return want;
}

static void check_tiles(cuda_device *d, const operands *o, const ends *e,
                        const float *sums)
{
    size_t outputs = (size_t)o->c.m * o->c.n;
    uint16_t *low = random_bf16(1, outputs);
    product_gemm g = make_gemm(o);
    int32_t live = (int32_t)(o->c.m * 2 / 3 + 5);
    g.segments = (uint8_t)o->c.segments;
    memcpy(g.piece, o->c.piece, sizeof(g.piece));
    g.bias = e->bias ? o->bias : NULL;
    if (e->residual)
        g.add = e->narrow ? (void *)low : (void *)o->residual;
    g.narrow = e->narrow ? PRODUCT_NARROW_FROM | PRODUCT_NARROW_C : 0;
    g.live = e->live ? &live : NULL;
    g.live_from = e->live ? 5 : 0;
    float *want = end_sums(o, e, sums, low, e->live ? o->c.m * 2 / 3 : o->c.m);
    for (int t = -1; t < PRODUCT_TENSOR_TILES; t++) {
        float *y = alloc_floats(outputs);
        g.c = y;
        xray_status s = product_tensor(d, NULL, "test", &g, t);
        if (has_tile(o->c.form, o->c.segments, o->c.parts, t)) {
            must(s);
            assert_same_bits(y, want, outputs, "segments", "a tile");
        } else {
            assert_int_equal(s, XRAY_E_UNSUPPORTED);
        }
        free(y);
    }
    free(low);
    free(want);
}

#define ENDS (sizeof(all_ends) / sizeof(*all_ends))

/* Checks a cut with the first `count` of all ends. */
static void check_cut(cuda_device *d, const cut *c, size_t count)
{
    operands o = make_operands(c);
    float *sums = join_segments(d, &o, 0, XRAY_SEGMENTS);
    for (size_t e = 0; e < count; e++)
        check_tiles(d, &o, &all_ends[e], sums);
    free(sums);
    free_operands(&o);
}

static void tiles_join_the_products_of_segments(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    for (size_t i = 0; i < sizeof(cuts) / sizeof(*cuts); i++)
        check_cut(d, &cuts[i], ENDS);
    destroy_cuda(d);
}

/* Sums over any number of segments, also one that is no power of two, as the
 * LM head's gradient has it; the shared memory is that of compute capability
 * 8.0. */
static void any_number_of_segments_is_joined(void **state)
{
    (void)state;
    cuda_device *d = create_cuda(CUDA_BFLOAT16);
    d->shared_most = 163 << 10;
    for (uint32_t segments = 1; segments <= XRAY_SEGMENTS; segments++)
        for (uint32_t form = PRODUCT_NT; form <= PRODUCT_NN; form++) {
            cut even = { form, 5, 19, 1, { 160 }, segments, 0 };
            cut odd = { form, 19, 10, 1, { 77 }, segments, 12 * form + 1 };
            check_cut(d, &even, 2);
            check_cut(d, &odd, 2);
        }
    destroy_cuda(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tiles_join_the_products_of_segments),
        cmocka_unit_test(any_number_of_segments_is_joined),
    };
    return cmocka_run_group_tests_name("cuda.segments", tests, NULL, NULL);
}
