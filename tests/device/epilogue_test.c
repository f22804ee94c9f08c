/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests what a matrix product does besides summing: alpha, bias, residual and
 * activation, in all combinations, against float64 and against the bits of
 * separate operators; and the products of a low-rank adapter on a frozen
 * matrix.
 */
#include "tests/device/bench.h"

typedef struct shape {
    size_t tokens, rows, cols;
} shape;

/* Halves that end within a panel of 16, or are longer than a block of outputs;
 * more tokens and inputs than a block has; rows a power of two apart. */
static const shape shapes[] = {
    { 1, 2, 1 },     { 1, 96, 64 },   { 3, 34, 33 },    { 7, 1100, 5 },
    { 16, 64, 512 }, { 29, 50, 530 }, { 180, 42, 300 }, { 20, 600, 40 },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

#define RESIDUAL_NONE 0
#define RESIDUAL_APART 1
#define RESIDUAL_Y 2

typedef struct epilogue {
    uint32_t kind;
    float alpha;
    int bias;
    int residual;
    uint32_t act;
    uint32_t plain;
} epilogue;

#define SILU XRAY_ACT_SILU
#define GELU XRAY_ACT_GELU_TANH

static const epilogue epilogues[] = {
    { XRAY_NT, 1.0f, 0, RESIDUAL_NONE, 0, 0 },
    { XRAY_NT, -0.37f, 0, RESIDUAL_NONE, 0, 0 },
    { XRAY_NN, -0.37f, 0, RESIDUAL_NONE, 0, 0 },
    { XRAY_NT, 1.7f, 1, RESIDUAL_NONE, 0, 0 },
    { XRAY_NT, 0, 0, RESIDUAL_APART, 0, 0 },
    { XRAY_NN, 0, 0, RESIDUAL_APART, 0, 0 },
    { XRAY_NT, 1.7f, 0, RESIDUAL_APART, 0, 0 },
    { XRAY_NT, 1.7f, 0, RESIDUAL_Y, 0, 0 },
    { XRAY_NN, 1.7f, 0, RESIDUAL_Y, 0, 0 },
    { XRAY_NT, 0, 1, RESIDUAL_APART, 0, 0 },
    { XRAY_NT, 0, 1, RESIDUAL_Y, 0, 0 },
    { XRAY_NT, 0.6f, 1, RESIDUAL_APART, 0, 0 },
    { XRAY_NN, 0, 1, RESIDUAL_Y, 0, 0 },
    { XRAY_NT, 0, 0, RESIDUAL_NONE, SILU, 0 },
    { XRAY_NT, 0, 1, RESIDUAL_NONE, GELU, 0 },
    { XRAY_NT, 0.6f, 1, RESIDUAL_NONE, SILU, 0 },
    { XRAY_NT, 0, 0, RESIDUAL_NONE, GELU, 1 },
    { XRAY_NT, 0.6f, 1, RESIDUAL_NONE, SILU, 1 },
};
#define EPILOGUES (sizeof(epilogues) / sizeof(*epilogues))

typedef struct product {
    shape s;
    epilogue e;
    size_t in, out, kept; /* of the outputs, `kept` are columns of y */
    size_t x_stride, y_stride, r_stride;
    float *w, *x, *y, *bias, *residual;
    uint16_t *narrow; /* the matrix in bf16, whose values w has; or NULL */
} product;

static product make_product(shape s, epilogue e, int narrow)
{
    product p = { .s = s, .e = e };
    p.in = e.kind == XRAY_NT ? s.cols : s.rows;
    p.out = e.kind == XRAY_NT ? s.rows : s.cols;
    p.kept = e.act && !e.plain ? p.out / 2 : p.out;
    p.x_stride = p.in == 512 ? 512 : p.in + 3;
    p.y_stride = p.kept + 1;
    p.r_stride = e.residual == RESIDUAL_Y ? p.y_stride : p.out + 5;
    p.w = random_floats(s.rows * s.cols, 1);
    p.x = random_floats(s.tokens * p.x_stride, 1);
    p.y = random_floats(s.tokens * p.y_stride, 1);
    p.bias = random_floats(p.out, 1);
    p.residual = random_floats(s.tokens * p.r_stride, 1);
    if (!narrow)
        return p;
    p.narrow = calloc(s.rows * s.cols, sizeof(*p.narrow));
    assert_non_null(p.narrow);
    for (size_t i = 0; i < s.rows * s.cols; i++) {
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

static xray_weight *create_matrix(const dev *d, const product *p)
{
    xray_weight_desc desc = {
        .header = XRAY_HEADER(xray_weight_desc),
        .data = p->narrow ? (void *)p->narrow : (void *)p->w,
        .rows = p->s.rows,
        .cols = p->s.cols,
        .dtype = p->narrow ? XRAY_BF16 : XRAY_F32,
        .uses = p->e.kind == XRAY_NT ? XRAY_USE_NT : XRAY_USE_NN
    };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

/* Computes tokens [first, first + count), of which `live` are real. */
static void run_product(const dev *d, const product *p, const xray_weight *w,
                        const size_t tokens[2], const int32_t *live, float *y)
{
    size_t first = tokens[0];
    float *to = y + first * p->y_stride;
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { tokens[1], live },
                       .x = p->x + first * p->x_stride,
                       .y = to,
                       .x_stride = p->x_stride,
                       .y_stride = p->y_stride,
                       .bias = p->e.bias ? p->bias : NULL,
                       .kind = p->e.kind,
                       .alpha = p->e.alpha,
                       .act = p->e.act,
                       .plain = p->e.plain };
    if (p->e.residual != RESIDUAL_NONE) {
        op.residual = p->e.residual == RESIDUAL_Y
                          ? to
                          : p->residual + first * p->r_stride;
        op.residual_stride = p->r_stride;
    }
    must(d->ops->matmul(d->self, NULL, &op));
}

/* ---- reference ---------------------------------------------------------- */

static double activate(uint32_t act, double g)
{
    if (act == SILU)
        return g / (1 + exp(-g));
    double u = 0.7978845608028654 * (g + 0.044715 * g * g * g);
    return 0.5 * g * (1 + tanh(u));
}

/* Output j of token t before the activation: in float64, and as the chain of
 * the contract. */
REFERENCE static double sum_output(const product *p, size_t t, size_t j,
                                   float *chain)
{
    float alpha = p->e.alpha == 0 ? 1.0f : p->e.alpha;
    const float *residual = p->e.residual == RESIDUAL_NONE ? NULL
                            : p->e.residual == RESIDUAL_Y  ? p->y
                                                           : p->residual;
    float from = residual ? residual[t * p->r_stride + j] : 0.0f;
    float c = p->e.bias ? p->bias[j] : from;
    double sum = (double)c;
    for (size_t k = 0; k < p->in; k++) {
        float x = p->x[t * p->x_stride + k];
        float w = p->e.kind == XRAY_NT ? p->w[j * p->s.cols + k]
                                       : p->w[k * p->s.cols + j];
        sum += (double)alpha * (double)x * (double)w;
        c = fmaf(alpha * x, w, c);
    }
    *chain = residual && p->e.bias ? from + c : c;
    return residual && p->e.bias ? sum + (double)from : sum;
}

/* The chains of all outputs, activated by the device's own operator. */
static void find_bits(const dev *d, const product *p, float *want)
{
    float *sums = alloc_floats(p->s.tokens * p->out);
    float *y = alloc_floats(p->s.tokens * p->kept);
    for (size_t t = 0; t < p->s.tokens; t++)
        for (size_t j = 0; j < p->out; j++)
            (void)sum_output(p, t, j, sums + t * p->out + j);
    if (p->e.act) {
        xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                         .tokens = { p->s.tokens, NULL },
                         .x = sums,
                         .y = y,
                         .dim = (uint32_t)p->kept,
                         .act = p->e.act,
                         .plain = p->e.plain };
        must(d->ops->glu(d->self, NULL, &glu));
    }
    for (size_t t = 0; t < p->s.tokens; t++)
        memcpy(want + t * p->y_stride, (p->e.act ? y : sums) + t * p->kept,
               p->kept * sizeof(*want));
    free(sums);
    free(y);
}

static void check_values(const product *p, const float *y)
{
    for (size_t t = 0; t < p->s.tokens; t++)
        for (size_t j = 0; j < p->kept; j++) {
            float chain;
            double want = sum_output(p, t, j, &chain);
            if (p->e.act)
                want = activate(p->e.act, want);
            if (p->e.act && !p->e.plain)
                want *= sum_output(p, t, p->kept + j, &chain);
            assert_near(y[t * p->y_stride + j], want, 1e-4, "epilogue");
        }
}

/* ---- cases -------------------------------------------------------------- */

/* Every device gives the bits of the chains and of glu, at once, in parts, and
 * for a live count, and leaves other elements as they are. */
static void check_product(const bench *b, const product *p)
{
    size_t n = p->s.tokens * p->y_stride;
    float *want = copy_floats(p->y, n);
    find_bits(&b->dev[0], p, want);
    check_values(p, want);
    for (int i = 0; i < b->count; i++) {
        const dev *d = &b->dev[i];
        xray_weight *w = create_matrix(d, p);
        const size_t all[2] = { 0, p->s.tokens };
        float *y = copy_floats(p->y, n);
        run_product(d, p, w, all, NULL, y);
        assert_same_bits(y, want, n, "epilogue", d->name);
        free(y);
        y = copy_floats(p->y, n);
        size_t half = p->s.tokens / 2;
        const size_t parts[3][2] = { { 0, half },
                                     { half, 1 },
                                     { half + 1, p->s.tokens - half - 1 } };
        for (int k = 0; k < 3; k++)
            run_product(d, p, w, parts[k], NULL, y);
        assert_same_bits(y, want, n, "epilogue by parts", d->name);
        free(y);
        y = copy_floats(p->y, n);
        int32_t live = (int32_t)half;
        run_product(d, p, w, all, &live, y);
        assert_same_bits(y, want, half * p->y_stride, "live rows", d->name);
        assert_same_bits(y + half * p->y_stride, p->y + half * p->y_stride,
                         n - half * p->y_stride, "other rows", d->name);
        free(y);
        d->ops->weight_destroy(d->self, w);
    }
    free(want);
}

static void epilogues_match_on_every_device(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < SHAPES * EPILOGUES; i++)
        for (int narrow = 0; narrow < 2; narrow++) {
            if ((2 * i + i / EPILOGUES + (size_t)narrow) % TEST_STEP)
                continue;
            product p = make_product(shapes[i / EPILOGUES],
                                     epilogues[i % EPILOGUES], narrow);
            check_product(&b, &p);
            free_product(&p);
        }
    close_devices(&b);
}

/* Rows of a large matrix are computed in one task, even if they are more than a
 * block has. */
static void many_rows_have_the_bits_of_few(void **state)
{
    (void)state;
    static const size_t all[2] = { 0, 175 };
    static const size_t parts[2][2] = { { 0, 100 }, { 100, 75 } };
    const shape s = { 175, 400, 352 };
    const epilogue e = { XRAY_NT, 0, 0, RESIDUAL_NONE, SILU, 0 };
    bench b;
    open_cpu_devices(&b);
    product p = make_product(s, e, 0);
    for (int i = 0; i < b.count; i++) {
        const dev *d = &b.dev[i];
        size_t n = s.tokens * p.y_stride;
        float *want = copy_floats(p.y, n);
        float *y = copy_floats(p.y, n);
        xray_weight *w = create_matrix(d, &p);
        run_product(d, &p, w, all, NULL, y);
        for (int k = 0; k < 2; k++)
            run_product(d, &p, w, parts[k], NULL, want);
        assert_same_bits(y, want, n, "many rows", d->name);
        d->ops->weight_destroy(d->self, w);
        free(want);
        free(y);
    }
    free_product(&p);
    close_devices(&b);
}

/* ---- an adapter of low rank --------------------------------------------- */

enum { TOKENS = 21, IN = 70, OUT = 48, RANK = 4 };
#define SCALE 1.5f

/* y = x W^T + s (x A^T) B^T, with the gradients of A, B and x for dy. */
typedef struct adapter {
    float *w, *a, *b, *x, *dy;        /* inputs */
    float *h, *y, *dh, *dx, *da, *db; /* results */
} adapter;

static adapter make_adapter(void)
{
    return (adapter){ .w = random_floats((size_t)OUT * IN, 1),
                      .a = random_floats((size_t)RANK * IN, 1),
                      .b = random_floats((size_t)OUT * RANK, 1),
                      .x = random_floats((size_t)TOKENS * IN, 1),
                      .dy = random_floats((size_t)TOKENS * OUT, 1),
                      .h = alloc_floats((size_t)TOKENS * RANK),
                      .y = alloc_floats((size_t)TOKENS * OUT),
                      .dh = alloc_floats((size_t)TOKENS * RANK),
                      .dx = alloc_floats((size_t)TOKENS * IN),
                      .da = alloc_floats((size_t)RANK * IN),
                      .db = alloc_floats((size_t)OUT * RANK) };
}

static void free_adapter(adapter *p)
{
    float *const all[] = { p->w, p->a,  p->b,  p->x,  p->dy, p->h,
                           p->y, p->dh, p->dx, p->da, p->db };
    for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

/* y = from + alpha x W^T, or with XRAY_NN x W. */
static void multiply(const dev *d, const xray_weight *w, xray_matmul op)
{
    op.header = (xray_header)XRAY_HEADER(xray_matmul);
    op.weight = w;
    op.tokens.bound = TOKENS;
    op.residual_stride = op.y_stride;
    must(d->ops->matmul(d->self, NULL, &op));
}

static void add_grad(const dev *d, xray_matmul_grad op)
{
    op.header = (xray_header)XRAY_HEADER(xray_matmul_grad);
    op.tokens.bound = TOKENS;
    op.dy_stride = op.rows;
    op.x_stride = op.cols;
    must(d->ops->matmul_grad(d->self, NULL, &op));
}

static xray_weight *create_used(const dev *d, float *data, size_t rows,
                                size_t cols, uint32_t uses)
{
    xray_weight_desc desc = { .header = XRAY_HEADER(xray_weight_desc),
                              .data = data,
                              .rows = rows,
                              .cols = cols,
                              .dtype = XRAY_F32,
                              .uses = uses };
    xray_weight *w = NULL;
    must(d->ops->weight_create(d->self, &desc, &w));
    return w;
}

/* The frozen matrix is differentiated through, but has no gradient itself. */
static void run_adapter(const dev *d, adapter *p)
{
    const uint32_t through = XRAY_USE_NT | XRAY_USE_NN;
    xray_weight *w = create_used(d, p->w, OUT, IN, through);
    xray_weight *a = create_used(d, p->a, RANK, IN, through | XRAY_USE_TN);
    xray_weight *b = create_used(d, p->b, OUT, RANK, through | XRAY_USE_TN);
    multiply(d, w,
             (xray_matmul){ .kind = XRAY_NT,
                            .x = p->x,
                            .x_stride = IN,
                            .y = p->y,
                            .y_stride = OUT });
    multiply(d, a,
             (xray_matmul){ .kind = XRAY_NT,
                            .x = p->x,
                            .x_stride = IN,
                            .y = p->h,
                            .y_stride = RANK,
                            .alpha = SCALE });
    multiply(d, b,
             (xray_matmul){ .kind = XRAY_NT,
                            .x = p->h,
                            .x_stride = RANK,
                            .y = p->y,
                            .y_stride = OUT,
                            .residual = p->y });
    multiply(d, b,
             (xray_matmul){ .kind = XRAY_NN,
                            .x = p->dy,
                            .x_stride = OUT,
                            .y = p->dh,
                            .y_stride = RANK,
                            .alpha = SCALE });
    multiply(d, w,
             (xray_matmul){ .kind = XRAY_NN,
                            .x = p->dy,
                            .x_stride = OUT,
                            .y = p->dx,
                            .y_stride = IN });
    multiply(d, a,
             (xray_matmul){ .kind = XRAY_NN,
                            .x = p->dh,
                            .x_stride = RANK,
                            .y = p->dx,
                            .y_stride = IN,
                            .residual = p->dx });
    add_grad(
        d, (xray_matmul_grad){
               .dy = p->dh, .x = p->x, .rows = RANK, .cols = IN, .dw = p->da });
    add_grad(
        d,
        (xray_matmul_grad){
            .dy = p->dy, .x = p->h, .rows = OUT, .cols = RANK, .dw = p->db });
    d->ops->weight_destroy(d->self, w);
    d->ops->weight_destroy(d->self, a);
    d->ops->weight_destroy(d->self, b);
}

/* W + s B A, the matrix that the adapter stands for. */
static double merged(const adapter *p, size_t n, size_t k)
{
    double sum = 0;
    for (size_t r = 0; r < RANK; r++)
        sum += (double)p->b[n * RANK + r] * (double)p->a[r * IN + k];
    return (double)p->w[n * IN + k] + (double)SCALE * sum;
}

static void check_adapter_rows(const adapter *p)
{
    for (size_t t = 0; t < TOKENS; t++) {
        for (size_t n = 0; n < OUT; n++) {
            double y = 0;
            for (size_t k = 0; k < IN; k++)
                y += merged(p, n, k) * (double)p->x[t * IN + k];
            assert_near(p->y[t * OUT + n], y, 1e-4, "y");
        }
        for (size_t k = 0; k < IN; k++) {
            double dx = 0;
            for (size_t n = 0; n < OUT; n++)
                dx += merged(p, n, k) * (double)p->dy[t * OUT + n];
            assert_near(p->dx[t * IN + k], dx, 1e-4, "dx");
        }
    }
}

/* The gradients of A and B from that of the merged matrix, dy^T x. */
static void check_adapter_grads(const adapter *p)
{
    static double dw[OUT][IN];
    memset(dw, 0, sizeof(dw));
    for (size_t n = 0; n < OUT; n++)
        for (size_t k = 0; k < IN; k++)
            for (size_t t = 0; t < TOKENS; t++)
                dw[n][k] +=
                    (double)p->dy[t * OUT + n] * (double)p->x[t * IN + k];
    for (size_t r = 0; r < RANK; r++) {
        for (size_t k = 0; k < IN; k++) {
            double da = 0;
            for (size_t n = 0; n < OUT; n++)
                da += (double)p->b[n * RANK + r] * dw[n][k];
            assert_near(p->da[r * IN + k], (double)SCALE * da, 1e-4, "dA");
        }
        for (size_t n = 0; n < OUT; n++) {
            double db = 0;
            for (size_t k = 0; k < IN; k++)
                db += dw[n][k] * (double)p->a[r * IN + k];
            assert_near(p->db[n * RANK + r], (double)SCALE * db, 1e-4, "dB");
        }
    }
}

static void an_adapter_is_differentiated_through_a_frozen_matrix(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (int i = 0; i < b.count; i++) {
        random_state = 5;
        adapter p = make_adapter();
        run_adapter(&b.dev[i], &p);
        check_adapter_rows(&p);
        check_adapter_grads(&p);
        free_adapter(&p);
    }
    close_devices(&b);
}

/* ---- uses --------------------------------------------------------------- */

static xray_status try_product(const dev *d, const xray_weight *w,
                               uint32_t kind)
{
    float x[8] = { 1 };
    float y[8];
    xray_matmul op = { .header = XRAY_HEADER(xray_matmul),
                       .weight = w,
                       .tokens = { 1, NULL },
                       .x = x,
                       .y = y,
                       .x_stride = 8,
                       .y_stride = 8,
                       .kind = kind };
    return d->ops->matmul(d->self, NULL, &op);
}

static xray_status try_lm_head(const dev *d, const xray_weight *w, int dweight)
{
    float x[8] = { 1 };
    float one[1] = { 0 };
    float logits[16] = { 0 };
    float dx[8];
    float grad[4 * 8];
    int32_t target = 1;
    xray_lm_head_logp forward = { .header = XRAY_HEADER(xray_lm_head_logp),
                                  .items = { 1, NULL },
                                  .weight = w,
                                  .x = x,
                                  .targets = &target,
                                  .logp = one,
                                  .lse = one,
                                  .logits = logits };
    xray_lm_head_grad op = { .header = XRAY_HEADER(xray_lm_head_grad),
                             .forward = &forward,
                             .dlogp = one,
                             .dx = dx,
                             .dweight = dweight ? grad : NULL };
    if (dweight < 0)
        return d->ops->lm_head_logp(d->self, NULL, &forward);
    return d->ops->lm_head_grad(d->self, NULL, &op);
}

static void expect_use(xray_status got, uint32_t has, const char *what,
                       const char *needs)
{
    char want[128];
    assert_int_equal(got, has ? XRAY_OK : XRAY_E_STATE);
    if (has)
        return;
    (void)snprintf(want, sizeof(want),
                   "%s needs a weight with %s among its "
                   "uses",
                   what, needs);
    assert_string_equal(last_failure, want);
}

static void products_that_were_not_named_are_refused(void **state)
{
    (void)state;
    float data[4 * 8] = { 0 };
    bench b;
    open_devices(&b);
    for (int i = 0; i < b.count; i++)
        for (uint32_t uses = 1; uses < 8; uses++) {
            const dev *d = &b.dev[i];
            uint32_t nt = uses & XRAY_USE_NT;
            uint32_t nn = uses & XRAY_USE_NN;
            xray_weight *w = create_used(d, data, 4, 8, uses);
            expect_use(try_product(d, w, XRAY_NT), nt, "matmul: XRAY_NT",
                       "XRAY_USE_NT");
            expect_use(try_product(d, w, XRAY_NN), nn, "matmul: XRAY_NN",
                       "XRAY_USE_NN");
            expect_use(try_lm_head(d, w, -1), nt, "lm_head_logp: XRAY_NT",
                       "XRAY_USE_NT");
            expect_use(try_lm_head(d, w, 0), nn, "lm_head_grad: XRAY_NN",
                       "XRAY_USE_NN");
            if (nn)
                expect_use(try_lm_head(d, w, 1), uses & XRAY_USE_TN,
                           "lm_head_grad: dweight", "XRAY_USE_TN");
            d->ops->weight_destroy(d->self, w);
        }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogues_match_on_every_device),
        cmocka_unit_test(many_rows_have_the_bits_of_few),
        cmocka_unit_test(an_adapter_is_differentiated_through_a_frozen_matrix),
        cmocka_unit_test(products_that_were_not_named_are_refused),
    };
    return cmocka_run_group_tests_name("device.epilogue", tests, NULL, NULL);
}
