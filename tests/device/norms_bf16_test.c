/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that RMSNorm and LayerNorm of bf16 have the bits of the fp32 norm of
 * the widened inputs, rounded once, and that gradients are those of these
 * inputs: for each type of each operand, every device and any cut of the
 * tokens.
 */
#include "tests/device/typed.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

static const uint32_t types[2] = { XRAY_F32, XRAY_BF16 };

typedef struct shape {
    size_t tokens, groups, dim;
} shape;

static const shape shapes[] = {
    { 1, 1, 1 },  { 7, 1, 15 }, { 5, 3, 17 },
    { 9, 4, 16 }, { 4, 8, 63 }, { 150, 1, 515 }, /* for several threads */
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

/* ---- RMSNorm ------------------------------------------------------------ */

static void run_rmsnorm(const dev *d, const xray_rmsnorm *op, size_t cut)
{
    xray_rmsnorm part = *op;
    part.tokens.bound = cut;
    RUN(d, rmsnorm, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->x_dtype, cut * op->x_stride);
    part.y = typed_at(op->y, op->y_dtype, cut * op->y_stride);
    part.residual = typed_at(op->residual, op->residual_dtype, cut * op->dim);
    part.rstd = op->rstd + cut * op->groups;
    RUN(d, rmsnorm, &part);
}

/* Normalizes what is in `sum` and `y`, as the bf16 operator should. */
static void expect_rmsnorm(const dev *d, xray_rmsnorm op, float *sum,
                           uint32_t sum_dtype)
{
    if (sum) {
        xray_rmsnorm add = op;
        add.residual = sum;
        RUN(d, rmsnorm, &add);
        for (size_t i = 0; i < op.tokens.bound * op.dim; i++)
            if (sum_dtype == XRAY_BF16)
                sum[i] = cpu_from_bf16(cpu_to_bf16(sum[i]));
        op.x = sum;
        op.x_stride = op.dim;
    }
    RUN(d, rmsnorm, &op);
}

/* With residual_dtype 0 there is no residual. */
static void check_rmsnorm(const bench *b, shape s, const uint32_t dtypes[3])
{
    size_t stride = s.groups * s.dim + 5;
    size_t n = s.tokens * stride;
    size_t rows = s.tokens * s.groups;
    float *x = make_values(n, 2);
    float *y = make_values(n, 1);
    float *r = make_values(s.tokens * s.dim, 1);
    float *sum =
        dtypes[2] ? keep_array(copy_floats(r, s.tokens * s.dim)) : NULL;
    float *rstd = keep_array(alloc_floats(rows));
    float *want = keep_array(copy_floats(y, n));
    xray_rmsnorm op = { .header = XRAY_HEADER(xray_rmsnorm),
                        .tokens = { s.tokens, NULL },
                        .x = x,
                        .weight = keep_array(random_floats(s.dim, 1)),
                        .y = want,
                        .rstd = rstd,
                        .x_stride = stride,
                        .y_stride = stride,
                        .groups = (uint32_t)s.groups,
                        .dim = (uint32_t)s.dim,
                        .eps = 1e-5f,
                        .offset = 1.0f };
    expect_rmsnorm(&b->dev[0], op, sum, dtypes[2]);
    op.x_dtype = dtypes[0];
    op.y_dtype = dtypes[1];
    op.residual_dtype = dtypes[2];
    for (int d = 0; d < b->count; d++) {
        const char *name = b->dev[d].name;
        op.x = make_typed(x, n, op.x_dtype);
        op.y = make_typed(y, n, op.y_dtype);
        op.rstd = keep_array(alloc_floats(rows));
        if (sum)
            op.residual = make_typed(r, s.tokens * s.dim, dtypes[2]);
        run_rmsnorm(&b->dev[d], &op, s.tokens / 3);
        check_typed(op.y, op.y_dtype, want, n, "rmsnorm", name);
        assert_same_bits(op.rstd, rstd, rows, "rstd", name);
        if (sum)
            check_typed(op.residual, dtypes[2], sum, s.tokens * s.dim,
                        "residual", name);
    }
    release();
}

static void rmsnorm_rounds_the_sum_and_its_norm(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t k = 0; k < 12; k++)
            if (k < 4 || shapes[s].groups == 1)
                check_rmsnorm(
                    &b, shapes[s],
                    (uint32_t[]){ types[k % 2], types[k / 2 % 2], k / 4 });
    close_devices(&b);
}

static void run_rmsnorm_grad(const dev *d, const xray_rmsnorm_grad *op,
                             size_t cut)
{
    xray_rmsnorm_grad part = *op;
    part.tokens.bound = cut;
    RUN(d, rmsnorm_grad, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->x_dtype, cut * op->x_stride);
    part.rstd = op->rstd + cut * op->groups;
    part.dy = op->dy + cut * op->dy_stride;
    part.dx = op->dx + cut * op->dx_stride;
    RUN(d, rmsnorm_grad, &part);
}

static void check_rmsnorm_grad(const bench *b, shape s, uint32_t segments)
{
    size_t stride = s.groups * s.dim + 3;
    size_t n = s.tokens * stride;
    size_t sums = (segments ? segments : 1) * s.dim;
    float *x = make_values(n, 2);
    float *dx = keep_array(random_floats(n, 1));
    float *dw = keep_array(random_floats(sums, 1));
    float *rstd = keep_array(random_floats(s.tokens * s.groups, 0.2));
    xray_rmsnorm_grad op = { .header = XRAY_HEADER(xray_rmsnorm_grad),
                             .tokens = { s.tokens, NULL },
                             .x = x,
                             .weight = keep_array(random_floats(s.dim, 1)),
                             .rstd = rstd,
                             .dy = keep_array(random_floats(n, 1)),
                             .dx = keep_array(copy_floats(dx, n)),
                             .dweight = keep_array(copy_floats(dw, sums)),
                             .x_stride = stride,
                             .dy_stride = stride,
                             .dx_stride = stride,
                             .groups = (uint32_t)s.groups,
                             .dim = (uint32_t)s.dim,
                             .accumulate = segments % 2,
                             .offset = 1.0f,
                             .segments = segments };
    const xray_rmsnorm_grad plain = op;
    RUN(&b->dev[0], rmsnorm_grad, &plain);
    op.x = make_typed(x, n, XRAY_BF16);
    op.x_dtype = XRAY_BF16;
    for (int d = 0; d < b->count; d++) {
        op.dx = keep_array(copy_floats(dx, n));
        op.dweight = keep_array(copy_floats(dw, sums));
        run_rmsnorm_grad(&b->dev[d], &op, s.tokens / 3);
        assert_same_bits(op.dx, plain.dx, n, "dx", b->dev[d].name);
        assert_same_bits(op.dweight, plain.dweight, sums, "dweight",
                         b->dev[d].name);
    }
    release();
}

static void rmsnorm_has_the_gradients_of_widened_inputs(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < SHAPES; s++)
        for (uint32_t segments = 0; segments <= 8; segments++)
            if (shapes[s].groups % (segments ? segments : 1) == 0)
                check_rmsnorm_grad(&b, shapes[s], segments);
    close_devices(&b);
}

/* ---- LayerNorm ---------------------------------------------------------- */

static void run_layernorm(const dev *d, const xray_layernorm *op, size_t cut)
{
    xray_layernorm part = *op;
    part.tokens.bound = cut;
    RUN(d, layernorm, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->x_dtype, cut * op->x_stride);
    part.y = typed_at(op->y, op->y_dtype, cut * op->y_stride);
    part.stat = op->stat + 2 * cut;
    RUN(d, layernorm, &part);
}

static void check_layernorm(const bench *b, shape s, uint32_t x_dtype,
                            uint32_t y_dtype)
{
    size_t stride = s.dim + 5;
    size_t n = s.tokens * stride;
    float *x = make_values(n, 2);
    float *y = make_values(n, 1);
    float *want = keep_array(copy_floats(y, n));
    float *stat = keep_array(alloc_floats(2 * s.tokens));
    xray_layernorm op = { .header = XRAY_HEADER(xray_layernorm),
                          .tokens = { s.tokens, NULL },
                          .x = x,
                          .weight = keep_array(random_floats(s.dim, 1)),
                          .bias = keep_array(random_floats(s.dim, 1)),
                          .y = want,
                          .stat = stat,
                          .x_stride = stride,
                          .y_stride = stride,
                          .dim = (uint32_t)s.dim,
                          .eps = 1e-5f };
    RUN(&b->dev[0], layernorm, &op);
    op.x = make_typed(x, n, x_dtype);
    op.x_dtype = x_dtype;
    op.y_dtype = y_dtype;
    for (int d = 0; d < b->count; d++) {
        op.y = make_typed(y, n, y_dtype);
        op.stat = keep_array(alloc_floats(2 * s.tokens));
        run_layernorm(&b->dev[d], &op, s.tokens / 3);
        check_typed(op.y, y_dtype, want, n, "layernorm", b->dev[d].name);
        assert_same_bits(op.stat, stat, 2 * s.tokens, "stat", b->dev[d].name);
    }
    release();
}

static void layernorm_is_rounded_once(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < SHAPES; s++)
        for (int k = 0; k < 4; k++)
            check_layernorm(&b, shapes[s], types[k % 2], types[k / 2]);
    close_devices(&b);
}

static void run_layernorm_grad(const dev *d, const xray_layernorm_grad *op,
                               size_t cut)
{
    xray_layernorm_grad part = *op;
    part.tokens.bound = cut;
    RUN(d, layernorm_grad, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->x_dtype, cut * op->x_stride);
    part.stat = op->stat + 2 * cut;
    part.dy = op->dy + cut * op->dy_stride;
    part.dx = op->dx + cut * op->dx_stride;
    RUN(d, layernorm_grad, &part);
}

static void check_layernorm_grad(const bench *b, shape s, uint32_t accumulate)
{
    size_t stride = s.dim + 3;
    size_t n = s.tokens * stride;
    float *x = make_values(n, 2);
    float *start = keep_array(random_floats(n, 1));
    float *sums = keep_array(random_floats(s.dim, 1));
    xray_layernorm_grad op = { .header = XRAY_HEADER(xray_layernorm_grad),
                               .tokens = { s.tokens, NULL },
                               .x = x,
                               .weight = keep_array(random_floats(s.dim, 1)),
                               .stat =
                                   keep_array(random_floats(2 * s.tokens, 1)),
                               .dy = keep_array(random_floats(n, 1)),
                               .dx = keep_array(copy_floats(start, n)),
                               .dweight = keep_array(copy_floats(sums, s.dim)),
                               .dbias = keep_array(copy_floats(sums, s.dim)),
                               .x_stride = stride,
                               .dy_stride = stride,
                               .dx_stride = stride,
                               .dim = (uint32_t)s.dim,
                               .accumulate = accumulate };
    const xray_layernorm_grad plain = op;
    RUN(&b->dev[0], layernorm_grad, &plain);
    op.x = make_typed(x, n, XRAY_BF16);
    op.x_dtype = XRAY_BF16;
    for (int d = 0; d < b->count; d++) {
        const char *name = b->dev[d].name;
        op.dx = keep_array(copy_floats(start, n));
        op.dweight = keep_array(copy_floats(sums, s.dim));
        op.dbias = keep_array(copy_floats(sums, s.dim));
        run_layernorm_grad(&b->dev[d], &op, s.tokens / 3);
        assert_same_bits(op.dx, plain.dx, n, "dx", name);
        assert_same_bits(op.dweight, plain.dweight, s.dim, "dweight", name);
        assert_same_bits(op.dbias, plain.dbias, s.dim, "dbias", name);
    }
    release();
}

static void layernorm_has_the_gradients_of_widened_inputs(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (uint32_t s = 0; s < SHAPES; s++)
        check_layernorm_grad(&b, shapes[s], s % 2);
    close_devices(&b);
}

/* y may be written over an x of its type. */
static void norms_of_bf16_work_in_place(void **state)
{
    (void)state;
    enum { TOKENS = 13, DIM = 37, N = TOKENS * DIM };
    bench b;
    open_devices(&b);
    for (int d = 0; d < b.count; d++) {
        float *x = make_values(N, 2);
        float *w = keep_array(random_floats(DIM, 1));
        void *here = make_typed(x, N, XRAY_BF16);
        void *there = make_typed(x, N, XRAY_BF16);
        xray_layernorm layer = { .header = XRAY_HEADER(xray_layernorm),
                                 .tokens = { TOKENS, NULL },
                                 .x = here,
                                 .weight = w,
                                 .y = there,
                                 .x_stride = DIM,
                                 .y_stride = DIM,
                                 .dim = DIM,
                                 .eps = 1e-5f,
                                 .x_dtype = XRAY_BF16,
                                 .y_dtype = XRAY_BF16 };
        xray_rmsnorm rms = { .header = XRAY_HEADER(xray_rmsnorm),
                             .tokens = { TOKENS, NULL },
                             .x = here,
                             .weight = w,
                             .y = there,
                             .x_stride = DIM,
                             .y_stride = DIM,
                             .groups = 1,
                             .dim = DIM,
                             .eps = 1e-5f,
                             .x_dtype = XRAY_BF16,
                             .y_dtype = XRAY_BF16 };
        RUN(&b.dev[d], layernorm, &layer);
        layer.y = here;
        RUN(&b.dev[d], layernorm, &layer);
        assert_memory_equal(here, there, sizeof(uint16_t) * N);
        RUN(&b.dev[d], rmsnorm, &rms);
        rms.y = here;
        RUN(&b.dev[d], rmsnorm, &rms);
        assert_memory_equal(here, there, sizeof(uint16_t) * N);
        release();
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorm_rounds_the_sum_and_its_norm),
        cmocka_unit_test(rmsnorm_has_the_gradients_of_widened_inputs),
        cmocka_unit_test(layernorm_is_rounded_once),
        cmocka_unit_test(layernorm_has_the_gradients_of_widened_inputs),
        cmocka_unit_test(norms_of_bf16_work_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
