/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that activations of bf16 have the bits of the fp32 ones of the widened
 * inputs, rounded once, and that gradients are those of these inputs.
 */
#include "tests/device/typed.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

static const uint32_t types[2] = { XRAY_F32, XRAY_BF16 };

typedef struct gate {
    size_t tokens, dim, in; /* in: elements of a token of x */
    uint32_t act, plain;
} gate;

static xray_glu make_glu(const gate *g, const void *x, void *y)
{
    return (xray_glu){ .header = XRAY_HEADER(xray_glu),
                       .tokens = { g->tokens, NULL },
                       .x = x,
                       .y = y,
                       .dim = (uint32_t)g->dim,
                       .act = g->act,
                       .plain = g->plain };
}

static void run_glu(const dev *d, const xray_glu *op, size_t cut)
{
    xray_glu part = *op;
    part.tokens.bound = cut;
    RUN(d, glu, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->x_dtype, cut * op->dim * (op->plain ? 1 : 2));
    part.y = typed_at(op->y, op->y_dtype, cut * op->dim);
    RUN(d, glu, &part);
}

static void check_glu(const bench *b, const gate *g, uint32_t x_dtype,
                      uint32_t y_dtype)
{
    size_t n = g->tokens * g->dim;
    float *x = make_values(g->tokens * g->in, 6);
    float *want = keep_array(alloc_floats(n));
    xray_glu op = make_glu(g, x, want);
    RUN(&b->dev[0], glu, &op);
    op.x = make_typed(x, g->tokens * g->in, x_dtype);
    op.x_dtype = x_dtype;
    op.y_dtype = y_dtype;
    for (int d = 0; d < b->count; d++) {
        op.y = make_typed(x, n, y_dtype);
        run_glu(&b->dev[d], &op, g->tokens / 3);
        check_typed(op.y, y_dtype, want, n, "glu", b->dev[d].name);
    }
    release();
}

static void check_glu_grad(const bench *b, const gate *g)
{
    size_t n = g->tokens * g->in;
    float *x = make_values(n, 6);
    float *want = keep_array(alloc_floats(n));
    xray_glu_grad op = { .header = XRAY_HEADER(xray_glu_grad),
                         .tokens = { g->tokens, NULL },
                         .x = x,
                         .dy = keep_array(random_floats(g->tokens * g->dim, 1)),
                         .dx = want,
                         .dim = (uint32_t)g->dim,
                         .act = g->act,
                         .plain = g->plain };
    RUN(&b->dev[0], glu_grad, &op);
    op.x = make_typed(x, n, XRAY_BF16);
    op.x_dtype = XRAY_BF16;
    for (int d = 0; d < b->count; d++) {
        op.dx = keep_array(alloc_floats(n));
        RUN(&b->dev[d], glu_grad, &op);
        assert_same_bits(op.dx, want, n, "glu_grad", b->dev[d].name);
    }
    release();
}

static void activations_of_bf16_are_rounded_once(void **state)
{
    (void)state;
    static const size_t grid[][2] = { { 1, 1 },   { 22, 15 }, { 25, 16 },
                                      { 31, 17 }, { 70, 63 }, { 24, 1030 } };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i++)
        for (uint32_t k = 0; k < 16; k++) {
            gate g = { .tokens = grid[i][0],
                       .dim = grid[i][1],
                       .act = k % 2 ? XRAY_ACT_SILU : XRAY_ACT_GELU_TANH,
                       .plain = k / 2 % 2 };
            g.in = g.dim * (g.plain ? 1 : 2);
            check_glu(&b, &g, types[k / 4 % 2], types[k / 8]);
            if (k < 4)
                check_glu_grad(&b, &g);
        }
    close_devices(&b);
}

/* The result against float64: half a unit in the last place of bf16, besides
 * the error of the fp32 operator. */
static void a_gate_of_bf16_is_near_float64(void **state)
{
    (void)state;
    enum { N = 20000 };
    static uint16_t x[2 * N];
    static uint16_t y[N];
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < (size_t)2 * N; i++)
        x[i] = cpu_to_bf16((float)((random_unit() - 0.5) * 20));
    for (int d = 0; d < b.count; d++) {
        xray_glu op = make_glu(
            &(gate){ .tokens = 1, .dim = N, .act = XRAY_ACT_SILU }, x, y);
        op.x_dtype = op.y_dtype = XRAY_BF16;
        RUN(&b.dev[d], glu, &op);
        for (size_t i = 0; i < N; i++) {
            double g = (double)cpu_from_bf16(x[i]);
            double want = g / (1 + exp(-g)) * (double)cpu_from_bf16(x[N + i]);
            double error = fabs((double)cpu_from_bf16(y[i]) - want);
            assert_true(error <= 0x1.001p-8 * fabs(want) + 2e-6);
        }
    }
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_of_bf16_are_rounded_once),
        cmocka_unit_test(a_gate_of_bf16_is_near_float64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
