/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that products whose inputs and outputs are bf16 give the bits of the
 * fp32 operator on the widened inputs, rounded once: for each type of each
 * operand, with every epilogue, in segments, on every device, from addresses
 * that are not aligned, and in any cut of the tokens.
 */
#include "tests/device/typed.h"

typedef struct shape {
    size_t tokens, rows, cols;
} shape;

/* More tokens, inputs and outputs than a block has; rows a power of two
 * apart. */
static const shape shapes[] = {
    { 1, 2, 1 },     { 1, 96, 64 },   { 3, 34, 33 },    { 5, 1100, 8 },
    { 16, 64, 512 }, { 29, 50, 530 }, { 171, 616, 16 }, { 15, 48, 4000 },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

#define NONE 0
#define APART 1
#define SAME 2 /* the residual is y */

typedef struct epilogue {
    uint32_t kind;
    float alpha;
    int bias;
    int residual;
    uint32_t act;
    uint32_t plain;
    uint32_t segments;
} epilogue;

#define SILU XRAY_ACT_SILU
#define GELU XRAY_ACT_GELU_TANH

static const epilogue epilogues[] = {
    { XRAY_NT, 0, 0, NONE, 0, 0, 0 },
    { XRAY_NN, -0.37f, 0, NONE, 0, 0, 0 },
    { XRAY_NT, 1.7f, 1, NONE, 0, 0, 0 },
    { XRAY_NT, 0, 0, APART, 0, 0, 0 },
    { XRAY_NN, 1.7f, 0, SAME, 0, 0, 0 },
    { XRAY_NT, 0, 1, APART, 0, 0, 0 },
    { XRAY_NT, 0.6f, 1, SAME, 0, 0, 0 },
    { XRAY_NT, 0, 0, NONE, SILU, 0, 0 },
    { XRAY_NT, 0.6f, 1, NONE, GELU, 0, 0 },
    { XRAY_NT, 0, 1, NONE, SILU, 1, 0 },
    { XRAY_NT, 0, 0, NONE, 0, 0, 2 },
    { XRAY_NN, 0, 1, SAME, 0, 0, 2 },
    { XRAY_NT, 0, 1, APART, 0, 0, 4 },
    { XRAY_NT, 0.6f, 0, APART, 0, 0, 8 },
};
#define EPILOGUES (sizeof(epilogues) / sizeof(*epilogues))

/* The matrix is fp32, bf16, or fp32 that products round. */
#define WIDE 0
#define NARROW 1
#define ROUNDED 2
#define FORMS 3

typedef struct product {
    shape s;
    epilogue e;
    size_t in, out, kept;
    size_t x_stride, y_stride, r_stride;
    float *raw;    /* the matrix before it is rounded, */
    float *w;      /* its values, */
    uint16_t *w16; /* and those in bf16 */
    float *x, *y, *residual, *bias;
} product;

static product make_product(shape s, epilogue e)
{
    product p = { .s = s, .e = e };
    size_t n = s.rows * s.cols;
    p.in = e.kind == XRAY_NT ? s.cols : s.rows;
    p.out = e.kind == XRAY_NT ? s.rows : s.cols;
    p.kept = e.act && !e.plain ? p.out / 2 : p.out;
    p.x_stride = p.in == 512 ? 512 : p.in + 3;
    p.y_stride = p.kept + 1;
    p.r_stride = e.residual == SAME ? p.y_stride : p.out + 5;
    p.raw = keep_array(random_floats(n, 1));
    p.w = keep_array(alloc_floats(n));
    p.w16 = keep_array(calloc(n ? n : 1, sizeof(*p.w16)));
    for (size_t i = 0; i < n; i++) {
        p.w16[i] = cpu_to_bf16(p.raw[i]);
        p.w[i] = cpu_from_bf16(p.w16[i]);
    }
    p.x = make_values(s.tokens * p.x_stride, 1);
    p.y = make_values(s.tokens * p.y_stride, 1);
    p.residual = make_values(s.tokens * p.r_stride, 1);
    p.bias = keep_array(random_floats(p.out, 1));
    return p;
}

static xray_weight *create_matrix(const dev *d, const product *p, int form)
{
    void *const data[FORMS] = { p->w, p->w16, p->raw };
    xray_weight_desc desc = {
        .header = XRAY_HEADER(xray_weight_desc),
        .data = data[form],
        .rows = p->s.rows,
        .cols = p->s.cols,
        .dtype = form == NARROW ? XRAY_BF16 : XRAY_F32,
        .uses = p->e.kind == XRAY_NT ? XRAY_USE_NT : XRAY_USE_NN,
        .product_dtype = form == ROUNDED ? XRAY_BF16 : 0
    };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

/* The types of x, y and residual, and the arrays. */
typedef struct typed {
    uint32_t x_type, y_type, r_type;
    void *x, *y, *residual;
} typed;

static void run_product(const dev *d, const product *p, const xray_weight *w,
                        const typed *t, size_t first, size_t count)
{
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { count, NULL },
                       .x = typed_at(t->x, t->x_type, first * p->x_stride),
                       .y = typed_at(t->y, t->y_type, first * p->y_stride),
                       .x_stride = p->x_stride,
                       .y_stride = p->y_stride,
                       .bias = p->e.bias ? p->bias : NULL,
                       .kind = p->e.kind,
                       .alpha = p->e.alpha,
                       .act = p->e.act,
                       .plain = p->e.plain,
                       .segments = p->e.segments,
                       .x_dtype = t->x_type,
                       .y_dtype = t->y_type };
    if (p->e.residual != NONE) {
        op.residual = p->e.residual == SAME ? op.y
                                            : typed_at(t->residual, t->r_type,
                                                       first * p->r_stride);
        op.residual_stride = p->r_stride;
        op.residual_dtype = t->r_type;
    }
    must(d->ops->matmul(d->self, NULL, &op));
}

/* ---- reference ---------------------------------------------------------- */

/* Gates and up projections in bf16 are rounded before they are activated. */
static void activate_rounded(const dev *d, const product *p,
                             const xray_weight *w, const typed *t)
{
    product sums = *p;
    size_t n = p->s.tokens * p->out;
    float *y = keep_array(alloc_floats(p->s.tokens * p->kept));
    typed outputs = *t;
    sums.e.act = 0;
    sums.e.plain = 0;
    sums.y_stride = p->out;
    outputs.y = keep_array(alloc_floats(n));
    run_product(d, &sums, w, &outputs, 0, p->s.tokens);
    float *c = outputs.y;
    for (size_t i = 0; i < n; i++)
        c[i] = cpu_from_bf16(cpu_to_bf16(c[i]));
    xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                     .tokens = { p->s.tokens, NULL },
                     .x = c,
                     .y = y,
                     .dim = (uint32_t)p->kept,
                     .act = p->e.act,
                     .plain = p->e.plain };
    must(d->ops->glu(d->self, NULL, &glu));
    float *to = t->y;
    for (size_t i = 0; i < p->s.tokens; i++)
        memcpy(to + i * p->y_stride, y + i * p->kept, p->kept * sizeof(*y));
}

/* The outputs before they are rounded: those of the fp32 operator, of which
 * other suites prove that it is right. */
static float *find_outputs(const dev *d, const product *p, int narrow)
{
    float *y = keep_array(copy_floats(p->y, p->s.tokens * p->y_stride));
    typed t = { XRAY_F32, XRAY_F32, XRAY_F32, p->x, y, p->residual };
    xray_weight *w = create_matrix(d, p, WIDE);
    if (p->e.act && narrow)
        activate_rounded(d, p, w, &t);
    else
        run_product(d, p, w, &t, 0, p->s.tokens);
    d->ops->weight_destroy(d->self, w);
    return y;
}

REFERENCE static double sum_exactly(const product *p, size_t t, size_t j)
{
    double alpha = p->e.alpha == 0 ? 1 : (double)p->e.alpha;
    double sum = p->e.bias ? (double)p->bias[j] : 0;
    if (p->e.residual != NONE)
        sum += p->e.residual == SAME ? (double)p->y[t * p->y_stride + j]
                                     : (double)p->residual[t * p->r_stride + j];
    for (size_t k = 0; k < p->in; k++)
        sum += alpha * (double)p->x[t * p->x_stride + k] *
               (double)p->w[p->e.kind == XRAY_NT ? j * p->s.cols + k
                                                 : k * p->s.cols + j];
    return sum;
}

/* Half a step of bf16 is at most 2^-8 of the smaller neighbour. */
static void check_values(const product *p, const float *y)
{
    for (size_t t = 0; !p->e.act && t < p->s.tokens; t += 7)
        for (size_t j = 0; j < p->out; j++) {
            double want = sum_exactly(p, t, j);
            float got = cpu_from_bf16(cpu_to_bf16(y[t * p->y_stride + j]));
            if (fabs((double)got - want) >
                0x1p-8 * fabs(want) + 1e-4 * (1 + fabs(want)))
                fail_msg("token %zu, output %zu is %g, not %g", t, j,
                         (double)got, want);
        }
}

/* ---- cases -------------------------------------------------------------- */

static void check_device(const dev *d, const product *p, const typed *types,
                         int form, const float *want)
{
    const size_t n = p->s.tokens * p->y_stride;
    const size_t cut = p->s.tokens * 2 / 3;
    size_t before = kept_count;
    char what[128];
    (void)snprintf(what, sizeof(what),
                   "%zu x %zu x %zu, act %u, residual %d, segments %u, types "
                   "%u %u %u, matrix %d",
                   p->s.tokens, p->s.rows, p->s.cols, p->e.act, p->e.residual,
                   p->e.segments, types->x_type, types->y_type, types->r_type,
                   form);
    typed t = *types;
    xray_weight *w = create_matrix(d, p, form);
    t.y = make_typed(p->y, n, t.y_type);
    run_product(d, p, w, &t, 0, p->s.tokens);
    check_typed(t.y, t.y_type, want, n, what, d->name);
    t.y = make_typed(p->y, n, t.y_type);
    run_product(d, p, w, &t, 0, cut);
    run_product(d, p, w, &t, cut, p->s.tokens - cut);
    check_typed(t.y, t.y_type, want, n, what, d->name);
    d->ops->weight_destroy(d->self, w);
    while (kept_count > before)
        free(kept_arrays[--kept_count]);
}

/* Every second set of types, which take turns, and so do the matrices. */
static void check_product(const bench *b, const product *p, size_t turn)
{
    const size_t n = p->s.tokens;
    const float *want[2] = { find_outputs(&b->dev[0], p, 0),
                             find_outputs(&b->dev[0], p, 1) };
    if (!b->dev[0].on_cuda)
        check_values(p, want[1]);
    for (size_t i = 2 - turn % 2; i < 8; i += 2) {
        typed t = { .x_type = i & 1 ? XRAY_BF16 : XRAY_F32,
                    .y_type = i & 2 ? XRAY_BF16 : 0,
                    .r_type = i & 4 ? XRAY_BF16 : XRAY_F32 };
        if ((p->e.residual == NONE && i & 4) ||
            (p->e.residual == SAME && !(i & 2) != !(i & 4)))
            continue;
        t.x = make_typed(p->x, n * p->x_stride, t.x_type);
        t.residual = make_typed(p->residual, n * p->r_stride, t.r_type);
        /* The largest products are slow on the emulator. */
        int large = p->s.tokens * p->s.rows * p->s.cols > 1000000;
        for (int d = 0; d < b->count; d++)
            if (!large || !b->dev[d].on_cuda)
                check_device(&b->dev[d], p, &t, (int)((turn + i) % FORMS),
                             want[t.y_type == XRAY_BF16]);
    }
}

static void check_products(const bench *b, size_t shape_count)
{
    for (size_t i = 0; i < shape_count * EPILOGUES; i++) {
        if ((i + i / EPILOGUES) % TEST_STEP)
            continue;
        const epilogue *e = &epilogues[i % EPILOGUES];
        shape s = shapes[i / EPILOGUES];
        size_t in = e->kind == XRAY_NT ? s.cols : s.rows;
        if (e->segments && in % e->segments)
            continue;
        product p = make_product(s, *e);
        check_product(b, &p, i / EPILOGUES + i % EPILOGUES);
        release();
    }
}

static void products_round_each_output_once(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    check_products(&b, SHAPES);
    close_devices(&b);
}

#ifdef BENCH_CUDA
/* In bfloat16 the device is its own reference; how close its sums are to
 * float64 is tested elsewhere, and the two largest shapes are for the CPU. */
static void tensor_cores_round_each_output_once(void **state)
{
    (void)state;
    bench b = { .dev = { open_cuda(CUDA_BFLOAT16, "cuda, bfloat16") },
                .count = 1 };
    check_products(&b, SHAPES - 2);
    close_devices(&b);
}
#endif

/* ---- gradient of the matrix --------------------------------------------- */

static void add_grad(const dev *d, shape s, const float *dy, const void *x,
                     uint32_t x_type, const size_t tokens[2], float *dw)
{
    xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                            .tokens = { tokens[1], NULL },
                            .dy = dy + tokens[0] * s.rows,
                            .x = typed_at(x, x_type, tokens[0] * (s.cols + 1)),
                            .dy_stride = s.rows,
                            .x_stride = s.cols + 1,
                            .rows = s.rows,
                            .cols = s.cols,
                            .dw = dw,
                            .x_dtype = x_type };
    must(d->ops->matmul_grad(d->self, NULL, &op));
}

static void gradients_have_the_bits_of_widened_inputs(void **state)
{
    (void)state;
    static const shape grid[] = { { 1, 3, 5 },     { 20, 64, 96 },
                                  { 257, 33, 17 }, { 300, 4, 200 },
                                  { 530, 16, 65 }, { 63, 340, 31 } };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i++) {
        shape s = grid[i];
        const size_t n = s.rows * s.cols;
        const size_t all[2] = { 0, s.tokens };
        const size_t cut[2][2] = { { 0, s.tokens / 3 },
                                   { s.tokens / 3, s.tokens - s.tokens / 3 } };
        float *dy = keep_array(random_floats(s.tokens * s.rows, 1));
        float *x = make_values(s.tokens * (s.cols + 1), 1);
        float *start = keep_array(random_floats(n, 1));
        float *want = keep_array(copy_floats(start, n));
        void *narrow = make_typed(x, s.tokens * (s.cols + 1), XRAY_BF16);
        add_grad(&b.dev[0], s, dy, x, XRAY_F32, all, want);
        for (int d = 0; d < b.count; d++) {
            const dev *v = &b.dev[d];
            float *dw = copy_floats(start, n);
            add_grad(v, s, dy, narrow, XRAY_BF16, all, dw);
            assert_same_bits(dw, want, n, "dw of bf16", v->name);
            memcpy(dw, start, n * sizeof(*dw));
            add_grad(v, s, dy, narrow, XRAY_BF16, cut[0], dw);
            add_grad(v, s, dy, narrow, XRAY_BF16, cut[1], dw);
            assert_same_bits(dw, want, n, "dw of bf16 by parts", v->name);
            free(dw);
        }
        release();
    }
    close_devices(&b);
}

/* ---- matrices that products round --------------------------------------- */

/* Computes y with a matrix of `dtype`, once more after it has changed. */
static void multiply_twice(const dev *d, xray_weight_desc desc,
                           const void *next, const float *x, float *y)
{
    xray_weight *w = NULL;
    desc.header = (xray_header)XRAY_HEADER(xray_weight_desc);
    desc.uses = XRAY_USE_NT;
    must(d->ops->weight_create(d->self, &desc, &w));
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 2, NULL },
                       .x = x,
                       .y = y,
                       .x_stride = desc.cols,
                       .y_stride = desc.rows,
                       .kind = XRAY_NT };
    must(d->ops->matmul(d->self, NULL, &op));
    size_t bytes = desc.dtype == XRAY_F32 ? 4 : 2;
    memcpy(desc.data, next, desc.rows * desc.cols * bytes);
    must(d->ops->weight_changed(d->self, w));
    op.y = y + 2 * desc.rows;
    must(d->ops->matmul(d->self, NULL, &op));
    d->ops->weight_destroy(d->self, w);
}

/* Matrices of any type that products round to bf16 have the bits of a bf16
 * matrix, and are rounded again when they change. */
static void matrices_are_rounded_for_products(void **state)
{
    (void)state;
    enum { ROWS = 37, COLS = 300, N = ROWS * COLS };
    bench b;
    open_devices(&b);
    float *x = keep_array(random_floats((size_t)2 * COLS, 1));
    float *wide = keep_array(random_floats((size_t)2 * N, 1));
    uint16_t *half = keep_array(calloc((size_t)2 * N, 2));
    uint16_t *f16 = keep_array(calloc((size_t)2 * N, 2));
    for (size_t i = 0; i < (size_t)2 * N; i++) {
        f16[i] = cpu_to_f16(wide[i]);
        wide[i] = cpu_from_f16(f16[i]);
        half[i] = cpu_to_bf16(wide[i]);
    }
    void *const data[] = { half, wide, f16 };
    static const uint32_t types[] = { XRAY_BF16, XRAY_F32, XRAY_F16 };
    float want[4 * ROWS];
    for (int d = 0; d < b.count; d++)
        for (int i = 0; i < 3; i++) {
            size_t bytes = (size_t)N * (types[i] == XRAY_F32 ? 4 : 2);
            float y[4 * ROWS];
            xray_weight_desc desc = { .data = malloc(bytes),
                                      .rows = ROWS,
                                      .cols = COLS,
                                      .dtype = types[i],
                                      .product_dtype = i ? XRAY_BF16 : 0 };
            assert_non_null(desc.data);
            memcpy(desc.data, data[i], bytes);
            multiply_twice(&b.dev[d], desc, (char *)data[i] + bytes, x,
                           d + i ? y : want);
            if (d + i)
                assert_same_bits(y, want, (size_t)4 * ROWS, "rounded matrix",
                                 b.dev[d].name);
            free(desc.data);
        }
    release();
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_round_each_output_once),
#ifdef BENCH_CUDA
        cmocka_unit_test(tensor_cores_round_each_output_once),
#endif
        cmocka_unit_test(gradients_have_the_bits_of_widened_inputs),
        cmocka_unit_test(matrices_are_rounded_for_products),
    };
    return cmocka_run_group_tests_name("device.matmul_bf16", tests, NULL, NULL);
}
