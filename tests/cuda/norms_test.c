/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that the norms and elementwise operators of device-cuda give the CPU's
 * bits.
 */
#include <float.h>

#include <xray/numerics.h>

#include "tests/cuda/pair.h"

/* ---- norms -------------------------------------------------------------- */

typedef struct shape {
    size_t tokens;
    uint32_t groups, dim, pad; /* pad: values between tokens */
    size_t off;                /* offset of all pointers, in values */
    uint32_t segments;         /* of the weight's gradient of rmsnorm */
    uint32_t odd; /* the operand whose alignment is that of one value */
} shape;

enum { ALL_EVEN, ODD_X, ODD_Y, ODD_DY, ODD_DX, ODD_W };

static const shape shapes[] = {
    { 3, 1, 1, 0, 0, 0 },           { 9, 5, 7, 1, 0, 5 },
    { 40, 3, 64, 0, 0, 0 },         { 21, 2, 100, 4, 1, 2 },
    { 17, 4, 128, 8, 0, 2 },        { 11, 2, 256, 4, 0, 1 },
    { 9, 2, 260, 0, 0, 0 },         { 6, 1, 300, 4, 1, 0 },
    { 530, 1, 896, 4, 0, 1 },       { 5, 1, 1030, 1, 0, 0 },
    { 4, 1, 8200, 0, 0, 0 },        { 300, 8, 32, 0, 0, 8 },
    { 7, 1, 264, 4, 0, 0, ODD_X },  { 7, 1, 264, 8, 0, 0, ODD_Y },
    { 7, 1, 264, 4, 0, 0, ODD_DY }, { 7, 1, 264, 8, 0, 0, ODD_DX },
    { 7, 1, 264, 4, 0, 0, ODD_W },
};
#define SHAPES (sizeof(shapes) / sizeof(*shapes))

typedef struct fields {
    buf x, w, bias, y, dy, dx, stat, residual, dw, db, live;
} fields;

/* Values from token to token: of each operand another number. */
static size_t stride_of(const shape *s, uint32_t operand)
{
    return (size_t)s->groups * s->dim + s->pad * (size_t)operand +
           (s->odd == operand ? 1 : 0);
}

static const float *weight_of(const shape *h, const buf *w, int s)
{
    return buf_floats(w, s, h->off + (h->odd == ODD_W ? 1 : 0));
}

static fields make_fields(const pair *p, const shape *s)
{
    size_t stride = stride_of(s, ODD_DX) + 1;
    int32_t live = s->tokens > 5 ? (int32_t)s->tokens - 2 : (int32_t)s->tokens;
    fields f = { .x = make_random_buf(p, s->tokens * stride + 1, 2),
                 .w = make_random_buf(p, s->dim + 2u, 1),
                 .bias = make_random_buf(p, s->dim + 1u, 1),
                 .y = make_random_buf(p, s->tokens * stride + 1, 1),
                 .dy = make_random_buf(p, s->tokens * stride + 1, 1),
                 .dx = make_random_buf(p, s->tokens * stride + 1, 1),
                 .stat = make_random_buf(p, s->tokens * s->groups * 2, 1),
                 .residual = make_random_buf(p, s->tokens * s->dim + 1, 1),
                 .dw = make_random_buf(p, (size_t)s->groups * s->dim, 1),
                 .db = make_random_buf(p, s->dim, 1),
                 .live = make_buf(p, &live, sizeof(live)) };
    return f;
}

static void assert_same_fields(const pair *p, const fields *f)
{
    assert_same_buf(p, &f->x, "x");
    assert_same_buf(p, &f->y, "y");
    assert_same_buf(p, &f->stat, "stat");
    assert_same_buf(p, &f->residual, "residual");
    assert_same_buf(p, &f->dw, "dweight");
    assert_same_buf(p, &f->db, "dbias");
    assert_same_buf(p, &f->dx, "dx");
    assert_same_buf(p, &f->dy, "dy");
}

static void free_fields(const pair *p, fields *f)
{
    buf *all = (buf *)f;
    for (size_t i = 0; i < sizeof(*f) / sizeof(*all); i++)
        free_buf(p, &all[i]);
}

static void compare_rmsnorm(const pair *p, const shape *h, int residual,
                            int in_place, uint32_t kind)
{
    uint32_t x_dtype = type_in(kind, 0);
    uint32_t residual_dtype = type_in(kind, 2);
    fields f = make_fields(p, h);
    const uint32_t y_as = in_place ? ODD_X : ODD_Y;
    const uint32_t dx_as = in_place ? ODD_DY : ODD_DX;
    for (int s = 0; s < 2; s++) {
        xray_rmsnorm op = { .header = XRAY_HEADER(xray_rmsnorm),
                            .tokens = { h->tokens, f.live.p[s] },
                            .x = buf_floats(&f.x, s, h->off),
                            .residual = residual
                                            ? buf_floats(&f.residual, s, h->off)
                                            : NULL,
                            .weight = weight_of(h, &f.w, s),
                            .y = buf_floats(in_place ? &f.x : &f.y, s, h->off),
                            .rstd = f.stat.p[s],
                            .x_stride = stride_of(h, ODD_X),
                            .y_stride = stride_of(h, y_as),
                            .groups = h->groups,
                            .dim = h->dim,
                            .eps = 1e-5f,
                            .offset = residual ? 1.0f : 0.0f,
                            .x_dtype = x_dtype,
                            .y_dtype = in_place ? x_dtype : type_in(kind, 1),
                            .residual_dtype = residual_dtype };
        xray_rmsnorm_grad grad = {
            .header = XRAY_HEADER(xray_rmsnorm_grad),
            .tokens = { h->tokens, f.live.p[s] },
            .x = residual ? op.residual : buf_floats(&f.x, s, h->off),
            .weight = op.weight,
            .rstd = op.rstd,
            .dy = buf_floats(&f.dy, s, h->off),
            .dx = buf_floats(in_place ? &f.dy : &f.dx, s, h->off),
            .dweight = f.dw.p[s],
            .x_stride = residual ? h->dim : op.x_stride,
            .dy_stride = stride_of(h, ODD_DY),
            .dx_stride = stride_of(h, dx_as),
            .groups = h->groups,
            .dim = h->dim,
            .accumulate = in_place ? 0 : 1,
            .offset = op.offset,
            .segments = h->segments,
            .x_dtype = residual ? residual_dtype : x_dtype
        };
        RUN_ON(p, s, rmsnorm, &op);
        RUN_ON(p, s, rmsnorm_grad, &grad);
    }
    assert_same_fields(p, &f);
    free_fields(p, &f);
}

static void rmsnorms_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (uint32_t i = 0; i < SHAPES; i++)
        for (int k = 0; k < 4; k++) {
            /* fp32, and another choice of types for each shape */
            uint32_t kind = k < 2 ? 0 : 1 + (i + (uint32_t)k) % 7;
            compare_rmsnorm(&p, &shapes[i], 0, k % 2, kind);
            if (shapes[i].groups == 1)
                compare_rmsnorm(&p, &shapes[i], 1, k % 2, kind);
        }
    float x[4] = { 0 };
    xray_rmsnorm op = { .header = XRAY_HEADER(xray_rmsnorm),
                        .tokens = { 1, NULL },
                        .x = x,
                        .residual = x,
                        .weight = x,
                        .y = x,
                        .x_stride = 4,
                        .y_stride = 4,
                        .groups = 2,
                        .dim = 2 };
    REFUSED(&p, rmsnorm, &op, XRAY_E_ARG);
    op.dim = 3;
    REFUSED(&p, rmsnorm, &op, XRAY_E_ARG);
    op.dim = 1 << 20;
    op.groups = 1;
    op.x_stride = op.y_stride = op.dim;
    assert_int_equal(p.d[CUDA].ops->rmsnorm(p.d[CUDA].self, NULL, &op),
                     XRAY_E_UNSUPPORTED);
    assert_non_null(strstr(last_failure, "shared memory"));
    close_pair(&p);
}

static void compare_layernorm(const pair *p, const shape *h, int in_place,
                              uint32_t kind)
{
    uint32_t x_dtype = type_in(kind, 0);
    fields f = make_fields(p, h);
    const uint32_t y_as = in_place ? ODD_X : ODD_Y;
    const uint32_t dx_as = in_place ? ODD_DY : ODD_DX;
    for (int s = 0; s < 2; s++) {
        xray_layernorm op = {
            .header = XRAY_HEADER(xray_layernorm),
            .tokens = { h->tokens, f.live.p[s] },
            .x = buf_floats(&f.x, s, h->off),
            .weight = weight_of(h, &f.w, s),
            .bias = in_place ? NULL : buf_floats(&f.bias, s, h->off),
            .y = buf_floats(in_place ? &f.x : &f.y, s, h->off),
            .stat = f.stat.p[s],
            .x_stride = stride_of(h, ODD_X),
            .y_stride = stride_of(h, y_as),
            .dim = h->dim,
            .eps = 1e-5f,
            .x_dtype = x_dtype,
            .y_dtype = in_place ? x_dtype : type_in(kind, 1)
        };
        xray_layernorm_grad grad = { .header = XRAY_HEADER(xray_layernorm_grad),
                                     .tokens = { h->tokens, f.live.p[s] },
                                     .x = op.x,
                                     .weight = op.weight,
                                     .stat = op.stat,
                                     .dy = buf_floats(&f.dy, s, h->off),
                                     .dx = buf_floats(in_place ? &f.dy : &f.dx,
                                                      s, h->off),
                                     .dweight = in_place ? NULL : f.dw.p[s],
                                     .dbias = f.db.p[s],
                                     .x_stride = op.x_stride,
                                     .dy_stride = stride_of(h, ODD_DY),
                                     .dx_stride = stride_of(h, dx_as),
                                     .dim = h->dim,
                                     .accumulate = in_place ? 0 : 1,
                                     .x_dtype = x_dtype };
        RUN_ON(p, s, layernorm, &op);
        RUN_ON(p, s, layernorm_grad, &grad);
    }
    assert_same_fields(p, &f);
    free_fields(p, &f);
}

static void layernorms_equal_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (size_t i = 0; i < SHAPES; i++)
        if (shapes[i].groups == 1)
            for (uint32_t kind = 0; kind < 4; kind++)
                compare_layernorm(&p, &shapes[i], kind % 2, kind);
    close_pair(&p);
}

/* ---- elementwise -------------------------------------------------------- */

static const size_t counts[] = { 1, 3, 4, 1023, 5000, 20011 };
#define COUNTS (sizeof(counts) / sizeof(*counts))

static void scaled_sums_equal_the_cpu(void **state)
{
    (void)state;
    static const float betas[] = { 0.0f, -1.7f };
    pair p = open_pair();
    for (size_t i = 0; i < COUNTS; i++)
        for (uint32_t form = 0; form < 32; form++) {
            buf x = make_random_buf(&p, counts[i] + 1, 1);
            buf y = make_random_buf(&p, counts[i] + 1, 1);
            for (int s = 0; s < 2; s++) {
                xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                                  .count = counts[i],
                                  .x = form & 1
                                           ? buf_floats(&x, s, form >> 2 & 1)
                                           : NULL,
                                  .y = buf_floats(&y, s, form >> 2 & 1),
                                  .alpha = 0.3f,
                                  .beta = betas[form >> 1 & 1],
                                  .x_dtype = type_in(form, 3),
                                  .y_dtype = type_in(form, 4) };
                RUN_ON(&p, s, axpby, &op);
            }
            assert_same_buf(&p, &y, "axpby");
            free_buf(&p, &x);
            free_buf(&p, &y);
        }
    close_pair(&p);
}

/* Casts every 16-bit value, and floats of every magnitude with ties among
 * them. */
static void compare_cast(const pair *p, const void *data, size_t n,
                         uint32_t from, uint32_t to, size_t off)
{
    size_t from_bytes = from == XRAY_F32 ? 4 : 2;
    size_t to_bytes = to == XRAY_F32 ? 4 : 2;
    buf x = make_buf(p, data, (n + 1) * from_bytes);
    buf y = make_random_buf(p, n + 1, 1);
    for (int s = 0; s < 2; s++) {
        xray_cast op = { .header = XRAY_HEADER(xray_cast),
                         .count = n,
                         .x = (char *)x.p[s] + off * from_bytes,
                         .y = (char *)y.p[s] + off * to_bytes,
                         .x_dtype = from,
                         .y_dtype = to };
        RUN_ON(p, s, cast, &op);
    }
    assert_same_buf(p, &y, "cast");
    free_buf(p, &x);
    free_buf(p, &y);
}

static void casts_equal_the_cpu(void **state)
{
    (void)state;
    enum { N = 65536 };
    pair p = open_pair();
    uint16_t *narrow = calloc(N + 1, sizeof(*narrow));
    float *wide = alloc_floats(N + 1);
    assert_non_null(narrow);
    for (uint32_t i = 0; i < N; i++) {
        /* upper halves of every kind; lower halves below, at and above a tie */
        static const uint32_t low[] = { 0,      0x1000, 0x8000, 0x0fff,
                                        0x7fff, 0x1001, 0x8001, 0x3000 };
        uint32_t u = i << 16 | low[i % 8];
        if ((u & 0x7f800000u) == 0x7f800000u)
            u &= 0xff800000u; /* infinities */
        narrow[i] = (uint16_t)i;
        memcpy(&wide[i], &u, sizeof(u));
    }
    for (uint32_t t = XRAY_BF16; t <= XRAY_F16; t++)
        for (size_t off = 0; off < 2; off++) {
            compare_cast(&p, narrow, N - off, t, XRAY_F32, off);
            compare_cast(&p, wide, N - off, XRAY_F32, t, off);
        }
    compare_cast(&p, wide, 1003, XRAY_F32, XRAY_F32, 0);
    wide[1] = NAN;
    wide[2] = 0x1p-25f; /* half of the smallest binary16 */
    wide[3] = 0x1.000002p-25f;
    wide[4] = 65519.99f;
    wide[5] = 65520.0f;
    compare_cast(&p, wide, 16, XRAY_F32, XRAY_F16, 0);
    xray_cast op = { .header = XRAY_HEADER(xray_cast),
                     .x = narrow,
                     .y = narrow,
                     .x_dtype = XRAY_BF16,
                     .y_dtype = XRAY_F16 };
    REFUSED(&p, cast, &op, XRAY_E_UNSUPPORTED);
    free(narrow);
    free(wide);
    close_pair(&p);
}

static void sums_of_squares_equal_the_cpu(void **state)
{
    (void)state;
    static const size_t sizes[] = { 0, 1, 17, 4096, 4099, 66000, 4300000 };
    pair p = open_pair();
    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        float *x = random_floats(sizes[i] + 3, 3);
        x[0] = -INFINITY;
        x[sizes[i] / 2] = NAN;
        x[sizes[i] / 3] = FLT_MAX;
        x[sizes[i] / 4] = FLT_TRUE_MIN;
        const uint64_t start[XRAY_SQUARES_WORDS] = { 1, 0xFFFFFFFFu };
        buf result = make_buf(&p, start, sizeof(start));
        buf at_x = make_buf(&p, x, (sizes[i] + 3) * sizeof(*x));
        for (int s = 0; s < 2; s++) {
            xray_sumsq op = { .header = XRAY_HEADER(xray_sumsq),
                              .count = sizes[i],
                              .x = at_x.p[s],
                              .result = result.p[s] };
            RUN_ON(&p, s, sumsq, &op);
            op.x = buf_floats(&at_x, s, 3);
            RUN_ON(&p, s, sumsq, &op);
        }
        assert_same_buf(&p, &result, "sumsq");
        free_buf(&p, &at_x);
        free_buf(&p, &result);
        free(x);
    }
    close_pair(&p);
}

static void compare_adamw(const pair *p, size_t n, uint32_t out, size_t off)
{
    float scalars[4] = { 3e-3f, 0.5f, 0.19f, 0.002f };
    float *square = random_floats(n + 1, 1);
    for (size_t i = 0; i <= n; i++)
        square[i] = i % 7 ? square[i] * square[i] : 0.0f;
    buf f[6] = { make_random_buf(p, n + 1, 1),
                 make_random_buf(p, n + 1, 1),
                 make_random_buf(p, n + 1, 0.1),
                 make_buf(p, square, (n + 1) * sizeof(*square)),
                 make_random_buf(p, n + 1, 1),
                 make_buf(p, scalars, sizeof(scalars)) };
    for (int s = 0; s < 2; s++) {
        xray_adamw op = { .header = XRAY_HEADER(xray_adamw),
                          .count = n,
                          .p = buf_floats(&f[0], s, off),
                          .g = buf_floats(&f[1], s, off),
                          .m = buf_floats(&f[2], s, off),
                          .v = buf_floats(&f[3], s, off),
                          .out = out ? buf_floats(&f[4], s, off) : NULL,
                          .scalars = f[5].p[s],
                          .beta1 = 0.9f,
                          .beta2 = 0.999f,
                          .eps = 1e-8f,
                          .weight_decay = 0.1f,
                          .out_dtype = out };
        RUN_ON(p, s, adamw, &op);
    }
    assert_same_buf(p, &f[0], "p");
    assert_same_buf(p, &f[2], "m");
    assert_same_buf(p, &f[3], "v");
    assert_same_buf(p, &f[4], "out");
    for (int i = 0; i < 6; i++)
        free_buf(p, &f[i]);
    free(square);
}

static void adamw_equals_the_cpu(void **state)
{
    (void)state;
    pair p = open_pair();
    for (uint32_t out = 0; out <= XRAY_F16; out++)
        for (size_t i = 0; i < COUNTS; i++)
            for (size_t off = 0; off < 2; off++)
                compare_adamw(&p, counts[i], out, off);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rmsnorms_equal_the_cpu),
        cmocka_unit_test(layernorms_equal_the_cpu),
        cmocka_unit_test(scaled_sums_equal_the_cpu),
        cmocka_unit_test(casts_equal_the_cpu),
        cmocka_unit_test(sums_of_squares_equal_the_cpu),
        cmocka_unit_test(adamw_equals_the_cpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
