/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of bf16 activations in the products, the LM head and draws of
 * device-cuda: results have the bits that the widened activations give, and the
 * tensor cores read them as they are where they can.
 */
#include "tests/cuda/products.h"
#include "tests/device/lm_input.h"

/* Aligned, with one element in front for users that want it odd. */
static uint16_t *narrow_floats(const float *x, size_t n, size_t odd)
{
    uint16_t *low = aligned_alloc(16, ((n + odd) * 2 + 15) / 16 * 16 + 16);
    assert_non_null(low);
    for (size_t i = 0; i < n; i++)
        low[odd + i] = to_bf16(x[i]);
    return low;
}

/* Values that bf16 holds. */
static float *random_values(size_t n)
{
    float *x = random_floats(n, 1);
    for (size_t i = 0; i < n; i++)
        x[i] = round_to_bf16(x[i]);
    return x;
}

static void check_rounded(const uint16_t *y, const float *want, size_t n,
                          const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (y[i] != to_bf16(want[i]))
            fail_msg("%s: entry %zu is %a, not %a", what, i,
                     (double)from_bf16(y[i]), (double)round_to_bf16(want[i]));
}

/* ---- products ------------------------------------------------------------ */

typedef struct call {
    const char *what;
    uint32_t kind;
    size_t tokens, rows, cols;
    size_t stride; /* of x */
    size_t odd;    /* elements before x */
    float alpha;
    uint32_t segments;
    int in_place; /* 1: no copy of x is needed */
} call;

static const call calls[] = {
    { "many tokens", XRAY_NT, 70, 24, 64, 64, 0, 0, 0, 1 },
    { "rows of a wider matrix", XRAY_NT, 3, 33, 40, 72, 0, 0, 4, 1 },
    { "gradient of an input", XRAY_NN, 20, 48, 17, 48, 0, 0, 8, 1 },
    { "odd rows", XRAY_NT, 5, 33, 21, 21, 0, 0, 0, 0 },
    { "odd rows of a wider matrix", XRAY_NT, 5, 33, 21, 24, 0, 0, 0, 0 },
    { "an odd address", XRAY_NT, 5, 16, 64, 64, 1, 0, 0, 0 },
    { "an odd stride", XRAY_NN, 5, 16, 64, 67, 0, 0, 0, 0 },
    { "a factor", XRAY_NT, 9, 16, 64, 64, 0, 0.3f, 0, 0 },
};
#define CALLS (sizeof(calls) / sizeof(*calls))

typedef struct operands {
    size_t in, out;
    float *w, *x, *y, *bias, *residual;
} operands;

static operands make_operands(const call *c)
{
    operands o = { .in = c->kind == XRAY_NT ? c->cols : c->rows,
                   .out = c->kind == XRAY_NT ? c->rows : c->cols };
    o.w = random_floats(c->rows * c->cols, 1);
    o.x = random_values(c->tokens * c->stride);
    for (size_t i = 0; i < c->tokens * c->stride; i++)
        if (i % c->stride >= o.in)
            o.x[i] = NAN; /* not of x */
    o.y = alloc_floats(c->tokens * o.out);
    o.bias = random_floats(o.out, 1);
    o.residual = random_values(c->tokens * o.out);
    return o;
}

static void free_operands(operands *o)
{
    free(o->w);
    free(o->x);
    free(o->y);
    free(o->bias);
    free(o->residual);
}

static xray_matmul make_matmul(const call *c, const operands *o,
                               const xray_weight *w)
{
    return (xray_matmul){ .header = XRAY_HEADER(xray_matmul),
                          .weight = w,
                          .tokens = { c->tokens, NULL },
                          .x = o->x,
                          .y = o->y,
                          .x_stride = c->stride,
                          .y_stride = o->out,
                          .bias = o->bias,
                          .residual = o->residual,
                          .residual_stride = o->out,
                          .kind = c->kind,
                          .alpha = c->alpha,
                          .segments = c->segments };
}

/* The narrow call comes first, while the device has no scratch. */
static void check_call(const call *c, int64_t precision)
{
    cuda_device *d = create_cuda(precision);
    operands o = make_operands(c);
    xray_weight *w = create_weight_on(cuda_ops(), d, o.w, c->rows, c->cols);
    size_t outputs = c->tokens * o.out;
    uint16_t *x = narrow_floats(o.x, c->tokens * c->stride, c->odd);
    uint16_t *y = narrow_floats(o.residual, outputs, 0);
    xray_matmul op = make_matmul(c, &o, w);
    op.x = x + c->odd;
    op.y = y;
    op.residual = y;
    op.x_dtype = op.y_dtype = op.residual_dtype = XRAY_BF16;
    must(cuda_matmul(d, NULL, &op));
    if (precision == CUDA_FLOAT32 || c->in_place)
        assert_null(d->scratch[CUDA_SCRATCH_X].data);
    op = make_matmul(c, &o, w);
    must(cuda_matmul(d, NULL, &op));
    check_rounded(y, o.y, outputs, c->what);
    cuda_weight_destroy(d, w);
    free(x);
    free(y);
    free_operands(&o);
    destroy_cuda(d);
}

static void products_read_activations_as_they_are(void **state)
{
    (void)state;
    for (size_t i = 0; i < CALLS; i++) {
        check_call(&calls[i], CUDA_FLOAT32);
        check_call(&calls[i], CUDA_BFLOAT16);
    }
}

/* Of gates, up projections and outputs each is rounded once. */
static void activated_outputs_are_rounded_as_if_stored(void **state)
{
    (void)state;
    enum { TOKENS = 19, ROWS = 50, COLS = 40 };
    for (int run = 0; run < 4; run++) {
        cuda_device *d = create_cuda(run / 2 ? CUDA_BFLOAT16 : CUDA_FLOAT32);
        const call c = { .kind = XRAY_NT,
                         .tokens = TOKENS,
                         .rows = ROWS,
                         .cols = COLS,
                         .stride = COLS };
        operands o = make_operands(&c);
        xray_weight *w = create_weight_on(cuda_ops(), d, o.w, ROWS, COLS);
        uint32_t plain = (uint32_t)run % 2;
        size_t kept = plain ? ROWS : ROWS / 2;
        uint16_t *y = narrow_floats(o.y, (size_t)TOKENS * kept, 0);
        float *want = alloc_floats((size_t)TOKENS * kept);
        xray_matmul op = make_matmul(&c, &o, w);
        op.residual = NULL;
        must(cuda_matmul(d, NULL, &op));
        for (size_t i = 0; i < (size_t)TOKENS * ROWS; i++)
            o.y[i] = round_to_bf16(o.y[i]);
        const xray_glu glu = { .header = XRAY_HEADER(xray_glu),
                               .tokens = { TOKENS, NULL },
                               .x = o.y,
                               .y = want,
                               .dim = (uint32_t)kept,
                               .act = XRAY_ACT_SILU,
                               .plain = plain };
        must(cuda_glu(d, NULL, &glu));
        op.y = y;
        op.y_stride = kept;
        op.y_dtype = XRAY_BF16;
        op.act = XRAY_ACT_SILU;
        op.plain = plain;
        must(cuda_matmul(d, NULL, &op));
        check_rounded(y, want, (size_t)TOKENS * kept, "activated");
        cuda_weight_destroy(d, w);
        free(y);
        free(want);
        free_operands(&o);
        destroy_cuda(d);
    }
}

/* Columns 48 are read as they are, 45 are copied. */
static void gradients_read_activations(void **state)
{
    (void)state;
    enum { TOKENS = 77, ROWS = 33 };
    for (int run = 0; run < 4; run++) {
        cuda_device *d = create_cuda(run / 2 ? CUDA_BFLOAT16 : CUDA_FLOAT32);
        size_t cols = run % 2 ? 45 : 48;
        float *dy = random_floats((size_t)TOKENS * ROWS, 1);
        float *x = random_values(TOKENS * cols);
        uint16_t *low = narrow_floats(x, TOKENS * cols, 0);
        float *want = random_floats(ROWS * cols, 1);
        float *dw = copy_floats(want, ROWS * cols);
        int32_t live = TOKENS - 6;
        xray_matmul_grad op = { .header = XRAY_HEADER(xray_matmul_grad),
                                .tokens = { TOKENS, &live },
                                .dy = dy,
                                .x = low,
                                .dy_stride = ROWS,
                                .x_stride = cols,
                                .rows = ROWS,
                                .cols = cols,
                                .dw = dw,
                                .x_dtype = XRAY_BF16 };
        must(cuda_matmul_grad(d, NULL, &op));
        uint64_t bytes = d->scratch[CUDA_SCRATCH_X].bytes;
        op.x = x;
        op.x_dtype = XRAY_F32;
        op.dw = want;
        must(cuda_matmul_grad(d, NULL, &op));
        assert_same_bits(dw, want, ROWS * cols, "dw", "of bf16");
        if (run == 2)
            assert_true(bytes < d->scratch[CUDA_SCRATCH_X].bytes);
        free(dy);
        free(x);
        free(low);
        free(want);
        free(dw);
        destroy_cuda(d);
    }
}

/* ---- LM head ------------------------------------------------------------- */

typedef struct scores {
    float *logp, *lse, *dx, *dw;
    int32_t *token;
} scores;

static scores make_scores(const lm_input *h)
{
    scores s = { alloc_floats(h->items), alloc_floats(h->items),
                 alloc_floats(h->items * h->dim),
                 alloc_floats(h->vocab * h->dim),
                 calloc(h->items, sizeof(int32_t)) };
    assert_non_null(s.token);
    return s;
}

static void free_scores(scores *s)
{
    free(s->logp);
    free(s->lse);
    free(s->dx);
    free(s->dw);
    free(s->token);
}

/* Draws a token of each item, then scores it and takes the gradient. */
static void run_head(cuda_device *d, const lm_input *h, const xray_weight *w,
                     const void *x, uint32_t dtype, scores *s)
{
    xray_draw *draws = calloc(h->items, sizeof(*draws));
    float *raw = alloc_floats(h->items);
    assert_non_null(draws);
    for (size_t i = 0; i < h->items; i++)
        draws[i] = (xray_draw){ .key = i, .temperature = 1, .top_p = 1 };
    const xray_sample sample = { .header = XRAY_HEADER(xray_sample),
                                 .items = { h->items, NULL },
                                 .weight = w,
                                 .x = x,
                                 .draws = draws,
                                 .token = s->token,
                                 .raw_logp = raw,
                                 .logp = s->logp,
                                 .draw_stride = sizeof(xray_draw),
                                 .x_dtype = dtype };
    must(cuda_sample(d, NULL, &sample));
    xray_lm_head_logp op = make_logp(h, w);
    op.x = x;
    op.x_dtype = dtype;
    op.targets = s->token;
    op.logp = s->logp;
    op.lse = s->lse;
    must(cuda_lm_head_logp(d, NULL, &op));
    assert_same_bits(s->logp, raw, h->items, "logp", "of the draws");
    const xray_lm_head_grad grad = { .header = XRAY_HEADER(xray_lm_head_grad),
                                     .forward = &op,
                                     .dlogp = s->lse,
                                     .dx = s->dx,
                                     .dweight = s->dw };
    must(cuda_lm_head_grad(d, NULL, &grad));
    free(draws);
    free(raw);
}

/* More items than a chunk has; rows that can be read as they are, and rows that
 * cannot. */
static void the_lm_head_reads_activations(void **state)
{
    (void)state;
    for (int run = 0; run < 4; run++) {
        cuda_device *d = create_cuda(run / 2 ? CUDA_BFLOAT16 : CUDA_FLOAT32);
        lm_input h = make_lm_input(
            (lm_input){ .items = 1030, .vocab = 19, .dim = run % 2 ? 21 : 24 });
        for (size_t i = 0; i < h.items * h.dim; i++)
            h.x[i] = round_to_bf16(h.x[i]);
        uint16_t *x = narrow_floats(h.x, h.items * h.dim, 0);
        scores narrow = make_scores(&h);
        scores wide = make_scores(&h);
        xray_weight *w = create_weight_on(cuda_ops(), d, h.w, h.vocab, h.dim);
        run_head(d, &h, w, x, XRAY_BF16, &narrow);
        assert_true(run == 3 || !d->scratch[CUDA_SCRATCH_X].data);
        run_head(d, &h, w, h.x, XRAY_F32, &wide);
        assert_memory_equal(narrow.token, wide.token,
                            h.items * sizeof(int32_t));
        assert_same_bits(narrow.logp, wide.logp, h.items, "logp", "of bf16");
        assert_same_bits(narrow.dx, wide.dx, h.items * h.dim, "dx", "of bf16");
        assert_same_bits(narrow.dw, wide.dw, h.vocab * h.dim, "dw", "of bf16");
        cuda_weight_destroy(d, w);
        free_scores(&narrow);
        free_scores(&wide);
        free(x);
        free_lm_input(&h);
        destroy_cuda(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_read_activations_as_they_are),
        cmocka_unit_test(activated_outputs_are_rounded_as_if_stored),
        cmocka_unit_test(gradients_read_activations),
        cmocka_unit_test(the_lm_head_reads_activations),
    };
    return cmocka_run_group_tests_name("cuda.activations", tests, NULL, NULL);
}
