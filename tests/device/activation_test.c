/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that activations and their gradients, gated and plain, match float64 on
 * every device, also for inputs that leave the range of fp32.
 */
#include "tests/device/bench.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

static double ref_act(uint32_t act, double g, double *slope)
{
    if (act == XRAY_ACT_SILU) {
        double f = 1 / (1 + exp(-g));
        *slope = f * (1 + g * (1 - f));
        return g * f;
    }
    double c = sqrt(2 / acos(-1.0));
    double t = tanh(c * (g + 0.044715 * g * g * g));
    *slope =
        0.5 * (1 + t) + 0.5 * g * (1 - t * t) * c * (1 + 3 * 0.044715 * g * g);
    return 0.5 * g * (1 + t);
}

typedef struct gate {
    size_t tokens, dim;
    uint32_t plain;
    uint32_t act;
    size_t in; /* floats of x */
    float *x, *dy;
} gate;

/* Inputs for which exp, a square or a cube leaves the range of fp32. */
static const float huge[] = { -200.0f, 200.0f, -88.7f, 88.7f,  -1e4f,  1e4f,
                              -1e13f,  1e13f,  -1e19f, 1e19f,  -1e25f, 1e25f,
                              -5e37f,  5e37f,  -9.1f,  9.1f,   0.0f,   -0.0f,
                              -1e-30f, 1e-30f, 1e-42f, -1e-42f };
#define HUGE_COUNT (sizeof(huge) / sizeof(*huge))

static gate make_gate(gate g)
{
    g.in = g.tokens * g.dim * (g.plain ? 1 : 2);
    g.x = random_floats(g.in, 6);
    g.dy = random_floats(g.tokens * g.dim, 1);
    for (size_t i = 0; i < HUGE_COUNT && i < g.tokens; i++)
        g.x[i * g.in / g.tokens + i % g.dim] = huge[i];
    return g;
}

static void free_gate(gate *g)
{
    free(g->x);
    free(g->dy);
}

static void run_gate(const dev *d, const gate *g, float *y)
{
    xray_glu op = { .header = XRAY_HEADER(xray_glu),
                    .tokens = { g->tokens, NULL },
                    .x = g->x,
                    .y = y,
                    .dim = (uint32_t)g->dim,
                    .act = g->act,
                    .plain = g->plain };
    RUN(d, glu, &op);
}

static void run_gate_grad(const dev *d, const gate *g, const float *x,
                          float *dx)
{
    xray_glu_grad op = { .header = XRAY_HEADER(xray_glu_grad),
                         .tokens = { g->tokens, NULL },
                         .x = x,
                         .dy = g->dy,
                         .dx = dx,
                         .dim = (uint32_t)g->dim,
                         .act = g->act,
                         .plain = g->plain };
    RUN(d, glu_grad, &op);
}

static void check_gate(const gate *g, const float *y, const float *dx)
{
    for (size_t i = 0; i < g->tokens * g->dim; i++) {
        size_t at = g->plain ? i : i / g->dim * 2 * g->dim + i % g->dim;
        double slope;
        double a = ref_act(g->act, (double)g->x[at], &slope);
        double up = g->plain ? 1 : (double)g->x[at + g->dim];
        double dy = (double)g->dy[i];
        assert_near(y[i], a * up, 2e-6, "activation");
        assert_near(dx[at], dy * up * slope, 4e-6, "slope");
        if (!g->plain)
            assert_near(dx[at + g->dim], dy * a, 2e-6, "dup");
    }
}

static void check_gate_on_devices(const bench *b, gate form)
{
    gate g = make_gate(form);
    size_t out = g.tokens * g.dim;
    float *y0 = alloc_floats(out);
    float *dx0 = alloc_floats(g.in);
    run_gate(&b->dev[0], &g, y0);
    run_gate_grad(&b->dev[0], &g, g.x, dx0);
    check_gate(&g, y0, dx0);
    for (int d = 1; d < b->count; d++) {
        float *y = alloc_floats(out);
        float *dx = copy_floats(g.x, g.in); /* the gradient replaces x */
        run_gate(&b->dev[d], &g, y);
        run_gate_grad(&b->dev[d], &g, dx, dx);
        assert_same_bits(y, y0, out, "glu", b->dev[d].name);
        assert_same_bits(dx, dx0, g.in, "glu_grad", b->dev[d].name);
        free(y);
        free(dx);
    }
    free(y0);
    free(dx0);
    free_gate(&g);
}

static void activations_match_float64(void **state)
{
    (void)state;
    static const size_t grid[][2] = { { 1, 1 },    { 30, 1 },  { 22, 15 },
                                      { 25, 16 },  { 31, 17 }, { 70, 53 },
                                      { 24, 1030 } };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(grid) / sizeof(*grid); i++)
        for (uint32_t act = XRAY_ACT_SILU; act <= XRAY_ACT_GELU_TANH; act++)
            for (uint32_t plain = 0; plain < 2; plain++)
                check_gate_on_devices(&b, (gate){ .tokens = grid[i][0],
                                                  .dim = grid[i][1],
                                                  .plain = plain,
                                                  .act = act });
    close_devices(&b);
}

/* The slope that the kernels are compared with is the derivative of the
 * function. */
static void the_reference_slope_is_a_slope(void **state)
{
    (void)state;
    for (uint32_t act = XRAY_ACT_SILU; act <= XRAY_ACT_GELU_TANH; act++)
        for (double x = -12; x < 12; x += 0.0371) {
            double slope;
            double other;
            (void)ref_act(act, x, &slope);
            double up = ref_act(act, x + 1e-5, &other);
            double down = ref_act(act, x - 1e-5, &other);
            assert_true(fabs((up - down) / 2e-5 - slope) < 1e-8);
        }
}

/* A plain activation equals the gated one whose second input is 1. */
static void plain_is_a_gate_of_one(void **state)
{
    (void)state;
    enum { TOKENS = 40, DIM = 29 };
    bench b;
    open_devices(&b);
    for (uint32_t act = XRAY_ACT_SILU; act <= XRAY_ACT_GELU_TANH; act++) {
        gate plain = make_gate((gate){ TOKENS, DIM, 1, act, 0, NULL, NULL });
        gate gated = make_gate((gate){ TOKENS, DIM, 0, act, 0, NULL, NULL });
        for (size_t i = 0; i < (size_t)TOKENS * DIM; i++) {
            size_t at = i / DIM * 2 * DIM + i % DIM;
            gated.x[at] = plain.x[i];
            gated.x[at + DIM] = 1.0f;
        }
        for (int d = 0; d < b.count; d++) {
            float *y = alloc_floats((size_t)TOKENS * DIM);
            float *want = alloc_floats((size_t)TOKENS * DIM);
            run_gate(&b.dev[d], &plain, y);
            run_gate(&b.dev[d], &gated, want);
            assert_same_bits(y, want, (size_t)TOKENS * DIM, "plain",
                             b.dev[d].name);
            memcpy(want, plain.x, sizeof(float) * TOKENS * DIM);
            gate here = plain;
            here.x = want;
            run_gate(&b.dev[d], &here, want);
            assert_same_bits(want, y, (size_t)TOKENS * DIM, "y written over x",
                             b.dev[d].name);
            free(y);
            free(want);
        }
        free_gate(&plain);
        free_gate(&gated);
    }
    close_devices(&b);
}

static void tokens_beyond_live_are_left(void **state)
{
    (void)state;
    enum { TOKENS = 9, DIM = 5, LIVE = 4 };
    bench b;
    open_devices(&b);
    const int32_t live = LIVE;
    for (uint32_t plain = 0; plain < 2; plain++) {
        gate g = make_gate(
            (gate){ TOKENS, DIM, plain, XRAY_ACT_GELU_TANH, 0, NULL, NULL });
        for (int d = 0; d < b.count; d++) {
            float y[TOKENS * DIM] = { 0 };
            float dx[TOKENS * DIM * 2] = { 0 };
            xray_glu op = { .header = XRAY_HEADER(xray_glu),
                            .tokens = { TOKENS, &live },
                            .x = g.x,
                            .y = y,
                            .dim = DIM,
                            .act = g.act,
                            .plain = plain };
            xray_glu_grad grad = { .header = XRAY_HEADER(xray_glu_grad),
                                   .tokens = { TOKENS, &live },
                                   .x = g.x,
                                   .dy = g.dy,
                                   .dx = dx,
                                   .dim = DIM,
                                   .act = g.act,
                                   .plain = plain };
            RUN(&b.dev[d], glu, &op);
            RUN(&b.dev[d], glu_grad, &grad);
            size_t wide = plain ? DIM : 2 * DIM;
            assert_true(y[LIVE * DIM - 1] != 0.0f);
            assert_true(dx[LIVE * wide - 1] != 0.0f);
            for (size_t i = (size_t)LIVE * DIM; i < (size_t)TOKENS * DIM; i++)
                assert_true(y[i] == 0.0f);
            for (size_t i = LIVE * wide; i < TOKENS * wide; i++)
                assert_true(dx[i] == 0.0f);
        }
        free_gate(&g);
    }
    close_devices(&b);
}

static void unknown_activations_are_refused(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    float x[4] = { 0 };
    xray_glu op = { .header = XRAY_HEADER(xray_glu),
                    .tokens = { 1, NULL },
                    .x = x,
                    .y = x,
                    .dim = 2,
                    .act = 9 };
    assert_int_equal(d->ops->glu(d->self, NULL, &op), XRAY_E_UNSUPPORTED);
    op.act = XRAY_ACT_SILU;
    op.plain = 2;
    assert_int_equal(d->ops->glu(d->self, NULL, &op), XRAY_E_ARG);
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_match_float64),
        cmocka_unit_test(the_reference_slope_is_a_slope),
        cmocka_unit_test(plain_is_a_gate_of_one),
        cmocka_unit_test(tokens_beyond_live_are_left),
        cmocka_unit_test(unknown_activations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
