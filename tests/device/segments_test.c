/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests products whose sums are cut into segments against float64 and, bit by
 * bit, against plain loops: with every number of segments, on every device, for
 * any cut of the tokens, with matrices side by side, and from slices.
 */
#include <xray/comm.h>

#include "tests/device/bench.h"

/* With `parts`, matrices of these depths lie side by side. */
typedef struct shape {
    size_t tokens, depth, out;
    uint32_t parts;
    size_t part[3];
} shape;

/* Segments shorter and longer than a block, odd ones, several row blocks, more
 * outputs than partial sums are kept for, and rows a power of two apart. */
static const shape shapes[] = {
    { 1, 8, 1, 0, { 0 } },
    { 1, 512, 300, 0, { 0 } },
    { 1, 2088, 130, 0, { 0 } },
    { 3, 24, 17, 0, { 0 } },
    { 5, 1040, 33, 0, { 0 } },
    { 14, 768, 70, 0, { 0 } },
    { 15, 520, 65, 0, { 0 } },
    { 16, 512, 257, 0, { 0 } },
    { 29, 2184, 17, 0, { 0 } },
    { 171, 1000, 9, 0, { 0 } },
    { 100, 24, 900, 0, { 0 } },
    { 2, 40, 20, 3, { 24, 8, 8 } },
    { 30, 672, 50, 3, { 512, 80, 80 } },
    { 16, 5440, 7, 2, { 2720, 2720 } },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* The terms that are added to the sum. */
#define END_NONE 0
#define END_BIAS 1
#define END_RESIDUAL 2
#define END_Y 3 /* the residual is y */
#define END_BOTH 4
#define ENDS 5

typedef struct product {
    shape s;
    uint32_t kind;
    int end;
    float *w, *x, *y, *bias, *residual;
    uint16_t *narrow; /* the matrix in bf16, whose values w has */
    size_t x_stride, y_stride;
} product;

static product make_product(shape s, uint32_t kind, int end)
{
    product p = { .s = s, .kind = kind, .end = end };
    p.x_stride = s.depth == 512 ? 512 : s.depth + 3;
    p.y_stride = s.out + 1;
    p.w = random_floats(s.depth * s.out, 1);
    p.x = random_floats(s.tokens * p.x_stride, 1);
    p.y = random_floats(s.tokens * p.y_stride, 1);
    p.bias = random_floats(s.out, 1);
    p.residual = random_floats(s.tokens * p.y_stride, 1);
    p.narrow = calloc(s.depth * s.out, sizeof(*p.narrow));
    assert_non_null(p.narrow);
    for (size_t i = 0; i < s.depth * s.out; i++) {
        p.narrow[i] = cpu_to_bf16(p.w[i]);
        p.w[i] = cpu_from_bf16(p.narrow[i]);
    }
    return p;
}

static void free_product(product *p)
{
    free(p->w);
    free(p->x);
    free(p->y);
    free(p->bias);
    free(p->residual);
    free(p->narrow);
}

/* ---- reference ---------------------------------------------------------- */

static float join_tree(const float *sums, uint32_t n)
{
    if (n == 1)
        return sums[0];
    uint32_t left = xray_comm_left(n);
    return join_tree(sums, left) + join_tree(sums + left, n - left);
}

static float weight_at(const product *p, size_t j, size_t k)
{
    return p->w[p->kind == XRAY_NT ? j * p->s.depth + k : k * p->s.out + j];
}

static float multiply_add(const product *p, size_t t, size_t j, size_t k,
                          float sum)
{
    return fmaf(p->x[t * p->x_stride + k], weight_at(p, j, k), sum);
}

static float sum_segment(const product *p, size_t t, size_t j, uint32_t s,
                         uint32_t segments)
{
    uint32_t parts = p->s.parts ? p->s.parts : 1;
    float sum = 0;
    size_t first = 0;
    for (uint32_t i = 0; i < parts; i++) {
        size_t part = p->s.parts ? p->s.part[i] : p->s.depth;
        size_t length = part / segments;
        for (size_t k = 0; k < length; k++)
            sum = multiply_add(p, t, j, first + s * length + k, sum);
        first += part;
    }
    return sum;
}

/* One segment is the chain of the contract, which starts from bias or
 * residual. */
static float compute_output(const product *p, size_t t, size_t j,
                            uint32_t segments)
{
    size_t at = t * p->y_stride + j;
    float bias = p->end == END_BIAS || p->end == END_BOTH ? p->bias[j] : 0;
    float residual = p->end == END_Y ? p->y[at] : p->residual[at];
    if (segments == 1) {
        int from = p->end == END_RESIDUAL || p->end == END_Y;
        float c = from ? residual : bias;
        for (size_t k = 0; k < p->s.depth; k++)
            c = multiply_add(p, t, j, k, c);
        return p->end == END_BOTH ? residual + c : c;
    }
    float sums[8];
    for (uint32_t s = 0; s < segments; s++)
        sums[s] = sum_segment(p, t, j, s, segments);
    float c = join_tree(sums, segments);
    if (p->end == END_BIAS || p->end == END_BOTH)
        c = c + bias;
    return p->end >= END_RESIDUAL ? residual + c : c;
}

static double compute_exactly(const product *p, size_t t, size_t j)
{
    size_t at = t * p->y_stride + j;
    double sum = p->end == END_BIAS || p->end == END_BOTH ? p->bias[j] : 0;
    for (size_t k = 0; k < p->s.depth; k++)
        sum += (double)p->x[t * p->x_stride + k] * (double)weight_at(p, j, k);
    if (p->end >= END_RESIDUAL)
        sum += p->end == END_Y ? p->y[at] : p->residual[at];
    return sum;
}

static float *compute_product(const product *p, uint32_t segments)
{
    float *y = copy_floats(p->y, p->s.tokens * p->y_stride);
    for (size_t t = 0; t < p->s.tokens; t++)
        for (size_t j = 0; j < p->s.out; j++) {
            float got = compute_output(p, t, j, segments);
            y[t * p->y_stride + j] = got;
            if (t % 8 == 0)
                assert_near(got, compute_exactly(p, t, j), 2e-5, "segments");
        }
    return y;
}

/* ---- products ----------------------------------------------------------- */

static void run_product(const dev *d, const product *p, const xray_weight *w,
                        uint32_t segments, const size_t tokens[2], float *y)
{
    size_t at = tokens[0] * p->y_stride;
    int bias = p->end == END_BIAS || p->end == END_BOTH;
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { tokens[1], NULL },
                       .x = p->x + tokens[0] * p->x_stride,
                       .y = y + at,
                       .x_stride = p->x_stride,
                       .y_stride = p->y_stride,
                       .bias = bias ? p->bias : NULL,
                       .residual_stride = p->y_stride,
                       .kind = p->kind,
                       .segments = segments,
                       .part = { p->s.part[0], p->s.part[1], p->s.part[2] } };
    if (p->end >= END_RESIDUAL)
        op.residual = p->end == END_Y ? y + at : p->residual + at;
    must(d->ops->matmul(d->self, NULL, &op));
}

static xray_weight *create_matrix(const dev *d, const product *p, int narrow)
{
    int nt = p->kind == XRAY_NT;
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = narrow ? (void *)p->narrow : (void *)p->w,
                              .rows = nt ? p->s.out : p->s.depth,
                              .cols = nt ? p->s.depth : p->s.out,
                              .dtype = narrow ? XRAY_BF16 : XRAY_F32,
                              .uses = nt ? XRAY_USE_NT : XRAY_USE_NN };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

/* All tokens at once, and then two thirds and the rest. */
static void check_device(const dev *d, const product *p, uint32_t segments,
                         const float *want)
{
    size_t n = p->s.tokens * p->y_stride;
    size_t cut = p->s.tokens * 2 / 3;
    char what[64];
    (void)snprintf(what, sizeof(what), "%zu x %zu x %zu in %u segments",
                   p->s.tokens, p->s.depth, p->s.out, segments);
    for (int narrow = 0; narrow < 2; narrow++) {
        xray_weight *w = create_matrix(d, p, narrow);
        float *y = copy_floats(p->y, n);
        run_product(d, p, w, segments, (size_t[]){ 0, p->s.tokens }, y);
        assert_same_bits(y, want, n, what, d->name);
        memcpy(y, p->y, n * sizeof(*y));
        run_product(d, p, w, segments, (size_t[]){ 0, cut }, y);
        run_product(d, p, w, segments, (size_t[]){ cut, p->s.tokens - cut }, y);
        assert_same_bits(y, want, n, what, d->name);
        free(y);
        d->ops->weight_destroy(d->self, w);
    }
}

static void segments_are_chains_that_a_tree_joins(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    /* The ends and the kinds take turns. */
    for (size_t i = 0; i < 4 * SHAPES; i++) {
        if ((i + i / 4) % TEST_STEP)
            continue;
        shape s = shapes[i / 4];
        uint32_t segments = 1u << i % 4;
        uint32_t kind = s.parts || i / ENDS % 2 ? XRAY_NN : XRAY_NT;
        product p = make_product(s, kind, (int)(i % ENDS));
        float *want = compute_product(&p, segments);
        for (int d = 0; d < b.count; d++)
            check_device(&b.dev[d], &p, segments, want);
        free(want);
        free_product(&p);
    }
    close_devices(&b);
}

/* ---- slices ------------------------------------------------------------- */

/* The terms of slice `i` of `n`, in which every part has its share. */
static product take_slice(const product *p, uint32_t i, uint32_t n)
{
    shape s = p->s;
    s.depth /= n;
    for (uint32_t k = 0; k < s.parts; k++)
        s.part[k] /= n;
    product slice = make_product(s, p->kind, END_NONE);
    size_t at = 0;
    size_t first = 0;
    for (uint32_t part = 0; part < (s.parts ? s.parts : 1); part++) {
        size_t own = s.parts ? s.part[part] : s.depth;
        for (size_t k = first + i * own; k < first + (i + 1) * own; k++, at++) {
            for (size_t t = 0; t < s.tokens; t++)
                slice.x[t * slice.x_stride + at] = p->x[t * p->x_stride + k];
            for (size_t j = 0; j < s.out; j++)
                slice
                    .w[p->kind == XRAY_NT ? j * s.depth + at : at * s.out + j] =
                    weight_at(p, j, k);
        }
        first += n * own;
    }
    return slice;
}

/* Adds the results of slices first .. first + count - 1 of `n` as a tree. */
static float *join_slices(const dev *d, const product *p, uint32_t first,
                          uint32_t count, uint32_t n)
{
    if (count == 1) {
        product slice = take_slice(p, first, n);
        xray_weight *w = create_matrix(d, &slice, 0);
        float *y = copy_floats(p->y, p->s.tokens * p->y_stride);
        run_product(d, &slice, w, XRAY_SEGMENTS / n,
                    (size_t[]){ 0, p->s.tokens }, y);
        d->ops->weight_destroy(d->self, w);
        free_product(&slice);
        return y;
    }
    float *a = join_slices(d, p, first, count / 2, n);
    float *b = join_slices(d, p, first + count / 2, count / 2, n);
    for (size_t t = 0; t < p->s.tokens; t++)
        for (size_t j = 0; j < p->s.out; j++)
            a[t * p->y_stride + j] =
                a[t * p->y_stride + j] + b[t * p->y_stride + j];
    free(b);
    return a;
}

static void
slices_of_neighbouring_segments_give_their_part_of_the_tree(void **state)
{
    (void)state;
    static const shape cut[] = { { 5, 1040, 33, 0, { 0 } },
                                 { 17, 320, 50, 3, { 160, 80, 80 } } };
    bench b;
    open_devices(&b);
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t kind = cut[i % 2].parts ? XRAY_NN : XRAY_NT;
        product p = make_product(cut[i % 2], kind, END_NONE);
        float *want = compute_product(&p, XRAY_SEGMENTS);
        uint32_t n = 2u << i / 2;
        for (int d = 0; d < b.count; d++) {
            float *y = join_slices(&b.dev[d], &p, 0, n, n);
            assert_same_bits(y, want, p.s.tokens * p.y_stride, "slices",
                             b.dev[d].name);
            free(y);
        }
        free(want);
        free_product(&p);
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(segments_are_chains_that_a_tree_joins),
        cmocka_unit_test(
            slices_of_neighbouring_segments_give_their_part_of_the_tree),
    };
    return cmocka_run_group_tests_name("device.segments", tests, NULL, NULL);
}
