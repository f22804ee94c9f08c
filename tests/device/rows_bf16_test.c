/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests that conversions, sums, rows and rotary positions in bf16 are the fp32
 * ones, rounded once, on every device and from addresses that are not aligned.
 */
#include "tests/device/typed.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

static const uint32_t types[2] = { XRAY_F32, XRAY_BF16 };

/* ---- conversions -------------------------------------------------------- */

/* The value of bf16 bits; of infinity that which would follow the largest. */
static double half_value(uint32_t half)
{
    double x = (half & 0x7fff) == 0x7f80
                   ? 0x1p128
                   : (double)fabsf(cpu_from_bf16((uint16_t)half));
    return half & 0x8000 ? -x : x;
}

/* Nearest, then even, among the bf16 values below and above x. */
static uint16_t nearest_half(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    uint32_t in = bits >> 16;
    if (isinf(x))
        return (uint16_t)in;
    double to_in = fabs((double)x - half_value(in));
    double to_out = fabs((double)x - half_value(in + 1));
    uint32_t even = in % 2 ? in + 1 : in;
    return (uint16_t)(to_in < to_out ? in : to_out < to_in ? in + 1 : even);
}

static void check_conversions(const dev *d, const uint16_t *half, float *wide,
                              uint32_t low)
{
    enum { ALL = 0x10000 };
    static uint16_t got[ALL];
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t bits = i << 16 | low;
        memcpy(&wide[i], &bits, sizeof(bits));
    }
    xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                      .count = ALL,
                      .x = wide,
                      .y = got,
                      .alpha = 1.0f,
                      .y_dtype = XRAY_BF16 };
    RUN(d, axpby, &op);
    for (size_t i = 0; i < ALL; i++)
        if (isnan(wide[i]) ? !isnan(cpu_from_bf16(got[i]))
                           : got[i] != nearest_half(wide[i]))
            fail_msg("%s: %a is rounded to %#x", d->name, (double)wide[i],
                     got[i]);
    op = (xray_axpby){ .header = XRAY_HEADER(xray_axpby),
                       .count = ALL,
                       .x = half,
                       .y = wide,
                       .alpha = 1.0f,
                       .x_dtype = XRAY_BF16 };
    RUN(d, axpby, &op);
    for (uint32_t i = 0; i < ALL; i++) {
        uint32_t bits;
        memcpy(&bits, &wide[i], sizeof(bits));
        if (bits != i << 16 && !isnan(wide[i]))
            fail_msg("%s: %#x is widened to %#x", d->name, i, bits);
    }
}

static void values_are_widened_exactly_and_rounded_to_nearest(void **state)
{
    (void)state;
    static const uint32_t low[] = {
        0, 1, 0x7ffe, 0x7fff, 0x8000, 0x8001, 0xffff
    };
    static uint16_t half[0x10000];
    static float wide[0x10000];
    bench b;
    open_devices(&b);
    for (uint32_t i = 0; i < 0x10000; i++)
        half[i] = (uint16_t)i;
    for (int d = 0; d < b.count; d++)
        for (size_t i = 0; i < sizeof(low) / sizeof(*low); i++)
            check_conversions(&b.dev[d], half, wide, low[i]);
    close_devices(&b);
}

static void check_axpby(const bench *b, size_t n, xray_axpby op)
{
    const float *x = make_values(n, 1);
    const float *y = make_values(n, 1);
    float *want = keep_array(copy_floats(y, n));
    int no_x = op.x == NULL;
    xray_axpby plain = op;
    plain.x = no_x ? NULL : x;
    plain.y = want;
    plain.x_dtype = plain.y_dtype = XRAY_F32;
    RUN(&b->dev[0], axpby, &plain);
    op.x = no_x ? NULL : make_typed(x, n, op.x_dtype);
    for (int d = 0; d < b->count; d++) {
        op.y = make_typed(y, n, op.y_dtype);
        RUN(&b->dev[d], axpby, &op);
        check_typed(op.y, op.y_dtype, want, n, "axpby", b->dev[d].name);
    }
    release();
}

static void sums_are_rounded_once(void **state)
{
    (void)state;
    static const size_t sizes[] = { 1, 15, 17, 63, 20011 };
    bench b;
    open_devices(&b);
    for (int k = 0; k < 32; k++)
        check_axpby(&b, sizes[k / 4 % 5],
                    (xray_axpby){ .header = XRAY_HEADER(xray_axpby),
                                  .count = sizes[k / 4 % 5],
                                  .x = k % 8 == 5 ? NULL : &b,
                                  .alpha = 0.37f,
                                  .beta = k % 8 == 2 ? 0.0f : -1.3f,
                                  .x_dtype = types[k % 2],
                                  .y_dtype = types[k / 2 % 2] });
    close_devices(&b);
}

/* ---- rows by index ------------------------------------------------------ */

static void check_embedding(const bench *b, size_t dim, uint32_t table_dtype,
                            uint32_t y_dtype)
{
    enum { VOCAB = 11, TOKENS = 150 };
    size_t n = TOKENS * dim;
    int32_t ids[TOKENS];
    for (size_t t = 0; t < TOKENS; t++)
        ids[t] = (int32_t)random_below(VOCAB + 3); /* some outside */
    /* The entries of an fp32 table are no bf16 values. */
    float *table = keep_array(random_floats(VOCAB * dim, 1));
    float *want = keep_array(alloc_floats(n));
    xray_embedding op = { .header = XRAY_HEADER(xray_embedding),
                          .tokens = { TOKENS, NULL },
                          .ids = ids,
                          .table = make_typed(table, VOCAB * dim, table_dtype),
                          .y = want,
                          .vocab = VOCAB,
                          .dim = dim,
                          .scale = 1.7f,
                          .vocab_first = 2,
                          .slice = 1 };
    for (size_t i = 0; i < VOCAB * dim; i++)
        if (table_dtype == XRAY_BF16 || y_dtype == XRAY_BF16)
            table[i] = cpu_from_bf16(cpu_to_bf16(table[i]));
    xray_embedding plain = op;
    plain.table = table;
    RUN(&b->dev[0], embedding, &plain);
    op.table_dtype = table_dtype;
    op.y_dtype = y_dtype;
    for (int d = 0; d < b->count; d++) {
        op.y = make_typed(want, n, y_dtype);
        memset(op.y, 0x55, n * type_bytes(y_dtype));
        RUN(&b->dev[d], embedding, &op);
        check_typed(op.y, y_dtype, want, n, "embedding", b->dev[d].name);
    }
    release();
}

static void entries_are_rounded_before_and_after_the_scale(void **state)
{
    (void)state;
    static const size_t dims[] = { 1, 15, 16, 17, 63, 1030 };
    bench b;
    open_devices(&b);
    for (size_t i = 0; i < sizeof(dims) / sizeof(*dims); i++)
        for (int k = 0; k < 4; k++)
            check_embedding(&b, dims[i], types[k % 2], types[k / 2]);
    close_devices(&b);
}

static void rows_of_bf16_are_moved(void **state)
{
    (void)state;
    enum { ROWS = 40, COUNT = 23, DIM = 19 };
    bench b;
    open_devices(&b);
    uint16_t x[ROWS * DIM + 1];
    int32_t index[COUNT];
    for (uint32_t i = 0; i < ROWS * DIM + 1; i++)
        x[i] = (uint16_t)(i * 2654435761u >> 14 & 0xbfffu); /* finite */
    for (int32_t i = 0; i < COUNT; i++)
        index[i] = (i * 7 + 3) % ROWS;
    for (int d = 0; d < b.count; d++) {
        uint16_t y[COUNT * DIM] = { 0 };
        uint16_t back[ROWS * DIM] = { 0 };
        xray_rows op = { .header = XRAY_HEADER(xray_rows),
                         .count = { COUNT, NULL },
                         .index = index,
                         .x = x + 1,
                         .y = y,
                         .dim = DIM,
                         .dtype = XRAY_BF16 };
        RUN(&b.dev[d], gather, &op);
        op.x = y;
        op.y = back;
        RUN(&b.dev[d], scatter, &op);
        for (size_t i = 0; i < COUNT; i++) {
            size_t row = (size_t)index[i] * DIM;
            assert_memory_equal(y + i * DIM, x + 1 + row, 2 * DIM);
            assert_memory_equal(back + row, x + 1 + row, 2 * DIM);
        }
    }
    close_devices(&b);
}

/* ---- positions ---------------------------------------------------------- */

static void run_rope(const dev *d, const xray_rope *op, size_t cut)
{
    xray_rope part = *op;
    part.tokens.bound = cut;
    RUN(d, rope, &part);
    part.tokens.bound = op->tokens.bound - cut;
    part.x = typed_at(op->x, op->dtype, cut * op->stride);
    part.positions = op->positions + cut;
    RUN(d, rope, &part);
}

static void check_rope(const bench *b, xray_rope op)
{
    enum { TOKENS = 60, POSITIONS = 100 };
    const size_t n = TOKENS * op.stride;
    int32_t positions[TOKENS];
    for (size_t t = 0; t < TOKENS; t++)
        positions[t] = (int32_t)random_below(POSITIONS);
    float *x = make_values(n, 1);
    float *want = keep_array(copy_floats(x, n));
    op.header = (xray_header)XRAY_HEADER(xray_rope);
    op.tokens.bound = TOKENS;
    op.positions = positions;
    op.table = keep_array(random_floats((size_t)POSITIONS * op.half * 2, 1));
    op.x = want;
    RUN(&b->dev[0], rope, &op);
    op.dtype = XRAY_BF16;
    for (int d = 0; d < b->count; d++) {
        op.x = make_typed(x, n, XRAY_BF16);
        run_rope(&b->dev[d], &op, 23);
        check_typed(op.x, XRAY_BF16, want, n, "rope", b->dev[d].name);
    }
    release();
}

static void rotations_are_rounded_once(void **state)
{
    (void)state;
    static const struct {
        uint32_t heads, dim, half;
    } grid[] = { { 1, 8, 4 },  { 3, 64, 32 }, { 2, 40, 17 },  { 5, 24, 8 },
                 { 3, 16, 8 }, { 3, 80, 40 }, { 2, 256, 64 }, { 2, 5, 1 } };
    bench b;
    open_devices(&b);
    for (uint32_t i = 0; i < sizeof(grid) / sizeof(*grid); i++)
        check_rope(&b, (xray_rope){ .stride = grid[i].heads * grid[i].dim + 3,
                                    .heads = grid[i].heads,
                                    .head_dim = grid[i].dim,
                                    .half = grid[i].half,
                                    .inverse = i % 2 });
    close_devices(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_widened_exactly_and_rounded_to_nearest),
        cmocka_unit_test(sums_are_rounded_once),
        cmocka_unit_test(entries_are_rounded_before_and_after_the_scale),
        cmocka_unit_test(rows_of_bf16_are_moved),
        cmocka_unit_test(rotations_are_rounded_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
