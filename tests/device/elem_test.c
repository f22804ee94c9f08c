/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the elementwise operators, the gradient norm and AdamW, and of
 * memory, checksums, instances and options of a device.
 */
#include "tests/device/bench.h"
#include "tests/growth.h"

#define RUN(d, op, args) must((d)->ops->op((d)->self, NULL, args))

static void axpby_adds_and_scales(void **state)
{
    (void)state;
    enum { N = 70001 };
    bench b;
    open_devices(&b);
    float *x = random_floats(N, 1);
    float *y = random_floats(N, 1);
    for (int d = 0; d < b.count; d++) {
        float *got = copy_floats(y, N);
        xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                          .count = N,
                          .x = x,
                          .y = got,
                          .alpha = 0.3f,
                          .beta = -1.7f };
        RUN(&b.dev[d], axpby, &op);
        for (size_t i = 0; i < N; i++)
            assert_true(got[i] == fmaf(0.3f, x[i], -1.7f * y[i]));
        got[3] = NAN;
        op.beta = 0.0f;
        RUN(&b.dev[d], axpby, &op);
        for (size_t i = 0; i < N; i++)
            assert_true(got[i] == 0.3f * x[i]);
        op.x = NULL;
        op.beta = 2.0f;
        RUN(&b.dev[d], axpby, &op);
        for (size_t i = 0; i < N; i++)
            assert_true(got[i] == 0.3f * x[i] * 2.0f);
        op.beta = 0.0f;
        RUN(&b.dev[d], axpby, &op);
        assert_true(got[0] == 0.0f && got[N - 1] == 0.0f);
        free(got);
    }
    free(x);
    free(y);
    close_devices(&b);
}

static void cast_there_and_back(const dev *d, uint32_t dtype, const float *x,
                                size_t n, float *back)
{
    uint16_t *narrow = calloc(n, sizeof(*narrow));
    assert_non_null(narrow);
    xray_cast op = { .header = XRAY_HEADER(xray_cast),
                     .count = n,
                     .x = x,
                     .y = narrow,
                     .x_dtype = XRAY_F32,
                     .y_dtype = dtype };
    RUN(d, cast, &op);
    op = (xray_cast){ .header = XRAY_HEADER(xray_cast),
                      .count = n,
                      .x = narrow,
                      .y = back,
                      .x_dtype = dtype,
                      .y_dtype = XRAY_F32 };
    RUN(d, cast, &op);
    free(narrow);
}

static void casts_round_to_nearest_even(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    float x[6] = { 1.0f + 0x1p-8f,  1.0f + 0x3p-8f, 1.0f + 0x1p-11f,
                   1.0f + 0x3p-11f, INFINITY,       NAN };
    float y[6];
    const dev *d = &b.dev[0];
    cast_there_and_back(d, XRAY_BF16, x, 6, y);
    assert_true(y[0] == 1.0f && y[1] == 1.0f + 0x1p-6f && y[2] == 1.0f);
    assert_true(isinf(y[4]) && isnan(y[5]));
    cast_there_and_back(d, XRAY_F16, x, 6, y);
    assert_true(y[0] == x[0] && y[2] == 1.0f && y[3] == 1.0f + 0x1p-9f);
    assert_true(isinf(y[4]) && isnan(y[5]));
    /* NaN stays NaN, even one whose upper bits are those of infinity. */
    static const uint32_t odd[] = { 0x7F800001u, 0xFF800001u, 0x7F80FFFFu,
                                    0x7FFFFFFFu, 0xFFFFFFFFu, 0x7FC00000u };
    memcpy(x, odd, sizeof(x));
    for (int i = 0; i < b.count; i++)
        for (uint32_t t = XRAY_BF16; t <= XRAY_F16; t++) {
            cast_there_and_back(&b.dev[i], t, x, 6, y);
            for (int k = 0; k < 6; k++)
                assert_true(isnan(y[k]));
        }
    float *many = random_floats(50000, 100);
    float *back = alloc_floats(50000);
    for (uint32_t t = XRAY_BF16; t <= XRAY_F16; t++) {
        cast_there_and_back(&b.dev[b.count - 1], t, many, 50000, back);
        double grain = t == XRAY_BF16 ? 0x1p-8 : 0x1p-11;
        for (size_t i = 0; i < 50000; i++) {
            double m = fabs((double)many[i]);
            assert_true(fabs((double)back[i] - (double)many[i]) <=
                        grain * m + 0x1p-25);
        }
    }
    free(many);
    free(back);
    close_devices(&b);
}

/* Runs a cast of rows on a device and compares it with casts of each row on the
 * first device; what lies between the rows of y stays. */
static void check_cast_of_rows(const bench *b, const dev *d, xray_cast op,
                               size_t off)
{
    enum { ROOM = 250000 };
    static uint16_t x[2 * ROOM]; /* halves of floats, or narrow ones */
    static unsigned char want[4 * ROOM];
    static unsigned char got[4 * ROOM];
    const size_t y_bytes = op.y_dtype == XRAY_F32 ? 4 : 2;
    const size_t x_bytes = op.x_dtype == XRAY_F32 ? 4 : 2;
    for (uint32_t i = 0; i < 2 * ROOM; i++)
        x[i] = (uint16_t)(i * 2654435761u >> 13 & 0xbfffu); /* finite */
    memset(want, 7, sizeof(want));
    memset(got, 7, sizeof(got));
    op.x = (const char *)x + off * x_bytes;
    op.y = got + off * y_bytes;
    RUN(d, cast, &op);
    xray_cast row = op;
    row.rows = 0;
    for (uint64_t r = 0; r < (op.rows ? op.rows : 1); r++) {
        row.x = (const char *)op.x + r * op.x_stride * x_bytes;
        row.y = want + (off + r * op.y_stride) * y_bytes;
        RUN(&b->dev[0], cast, &row);
    }
    if (memcmp(got, want, sizeof(got)) != 0)
        fail_msg("%s: %u to %u, %llu rows of %llu, strides %llu and %llu",
                 d->name, op.x_dtype, op.y_dtype, (unsigned long long)op.rows,
                 (unsigned long long)op.count, (unsigned long long)op.x_stride,
                 (unsigned long long)op.y_stride);
}

static void casts_of_rows_equal_those_of_each_row(void **state)
{
    (void)state;
    static const struct {
        uint64_t rows, count, x_stride, y_stride;
    } shapes[] = {
        { 5, 8, 8, 12 },
        { 3, 7, 9, 7 },
        { 4, 4099, 5000, 4100 },
        { 1000, 1, 3, 1 },
        { 2, 13000, 14000, 13000 },
        { 300, 64, 96, 64 },
        { 300, 66, 96, 68 },
        { 1, 6, 0, 0 },
        { 0, 6, 0, 0 },
        { 7, 0, 3, 4 },
        { 1999, 101, 102, 120 },
    };
    static const uint32_t types[][2] = {
        { XRAY_F32, XRAY_BF16 }, { XRAY_F32, XRAY_F16 }, { XRAY_F32, XRAY_F32 },
        { XRAY_BF16, XRAY_F32 }, { XRAY_F16, XRAY_F32 },
    };
    bench b;
    open_devices(&b);
    for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++)
        for (size_t t = 0; t < sizeof(types) / sizeof(*types); t++)
            for (int d = 0; d < b.count; d++)
                for (size_t off = 0; off < 2; off++)
                    check_cast_of_rows(
                        &b, &b.dev[d],
                        (xray_cast){ .header = XRAY_HEADER(xray_cast),
                                     .count = shapes[s].count,
                                     .x_dtype = types[t][0],
                                     .y_dtype = types[t][1],
                                     .rows = shapes[s].rows,
                                     .x_stride = shapes[s].x_stride,
                                     .y_stride = shapes[s].y_stride },
                        off);
    close_devices(&b);
}

static void adamw_takes_the_step(void **state)
{
    (void)state;
    enum { N = 20011 };
    bench b;
    open_devices(&b);
    float *p = random_floats(N, 1);
    float *g = random_floats(N, 1);
    float *m = random_floats(N, 0.1);
    float *v = random_floats(N, 1);
    for (size_t i = 0; i < N; i++)
        v[i] *= v[i];
    float scalars[4] = { 3e-3f, 0.5f, 0.19f, 0.002f };
    float *first = alloc_floats(N);
    for (int d = 0; d < b.count; d++) {
        float *p2 = copy_floats(p, N);
        float *m2 = copy_floats(m, N);
        float *v2 = copy_floats(v, N);
        uint16_t *out = calloc(N, sizeof(*out));
        assert_non_null(out);
        xray_adamw op = { .header = XRAY_HEADER(xray_adamw),
                          .count = N,
                          .p = p2,
                          .g = g,
                          .m = m2,
                          .v = v2,
                          .out = out,
                          .scalars = scalars,
                          .beta1 = 0.9f,
                          .beta2 = 0.999f,
                          .eps = 1e-8f,
                          .weight_decay = 0.1f,
                          .out_dtype = XRAY_BF16 };
        RUN(&b.dev[d], adamw, &op);
        if (d == 0)
            memcpy(first, p2, N * sizeof(*first));
        assert_same_bits(p2, first, N, "adamw", b.dev[d].name);
        for (size_t i = 0; i < N; i++) {
            double clipped = (double)g[i] * 0.5;
            double mm = 0.9 * (double)m[i] + 0.1 * clipped;
            double vv = 0.999 * (double)v[i] + 0.001 * clipped * clipped;
            double want = (double)p[i] - 3e-4 * (double)p[i];
            want -= 3e-3 * (mm / 0.19) / (sqrt(vv / 0.002) + 1e-8);
            assert_near(p2[i], want, 2e-6, "adamw p");
            assert_near(m2[i], mm, 1e-6, "adamw m");
            assert_near(v2[i], vv, 1e-6, "adamw v");
            assert_int_equal(out[i], cpu_to_bf16(p2[i]));
        }
        free(p2);
        free(m2);
        free(v2);
        free(out);
    }
    free(p);
    free(g);
    free(m);
    free(v);
    free(first);
    close_devices(&b);
}

/* ---- the instance ------------------------------------------------------- */

static void memory_is_counted_zeroed_and_aligned(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    xray_memory_stats before = { .header = XRAY_HEADER(xray_memory_stats) };
    xray_memory_stats stats = before;
    must(d->ops->memory(d->self, &before));
    /* Around every size at which blocks may come from elsewhere. */
    size_t sizes[64] = { 1, 1000 };
    size_t count = 2;
    for (size_t size = 4096; size <= 8u << 20; size *= 2)
        for (size_t more = 0; more < 3; more++)
            sizes[count++] = size - 1 + more;
    sizes[count++] = 9000000;
    for (size_t s = 0; s < count; s++) {
        void *p = NULL;
        must(d->ops->alloc(d->self, "test", XRAY_TAG_GRADS, sizes[s], &p));
        assert_true((uintptr_t)p % 64 == 0);
        const char *bytes = p;
        int set = 0;
        for (size_t i = 0; i < sizes[s]; i++)
            set |= bytes[i];
        assert_int_equal(set, 0);
        memset(p, 1, sizes[s]);
        must(d->ops->memory(d->self, &stats));
        assert_true(stats.live[XRAY_TAG_GRADS] == sizes[s]);
        d->ops->free(d->self, p);
    }
    must(d->ops->memory(d->self, &stats));
    assert_true(stats.live[XRAY_TAG_GRADS] == 0);
    assert_true(stats.high[XRAY_TAG_GRADS] == 9000000);
    assert_true(stats.live[XRAY_TAG_WORKSPACE] ==
                before.live[XRAY_TAG_WORKSPACE]);
    void *none = NULL;
    assert_int_equal(d->ops->alloc(d->self, "bucket 3", XRAY_TAG_GRADS,
                                   UINT64_MAX - 5, &none),
                     XRAY_E_NOMEM);
    assert_non_null(strstr(last_failure, "bucket 3"));
    assert_int_equal(d->ops->alloc(d->self, "x", 99, 8, &none), XRAY_E_ARG);
    xray_device_info info = { .header = XRAY_HEADER(xray_device_info) };
    must(d->ops->info(d->self, &info));
    assert_true(info.host_memory == 1 && info.threads == 1);
    assert_true(info.memory_bytes > 0);
    close_devices(&b);
}

static void structs_of_older_callers_are_filled(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    for (int i = 0; i < b.count; i++) {
        const dev *d = &b.dev[i];
        void *p = NULL;
        xray_memory_stats stats;
        xray_device_info info;
        must(d->ops->alloc(d->self, "test", XRAY_TAG_GRADS, 1000, &p));
        EXPECT_FILLED_IN_REACH(xray_memory_stats, stats, high_all,
                               d->ops->memory(d->self, &stats));
        assert_true(stats.live[XRAY_TAG_GRADS] >= 1000);
        EXPECT_FILLED_IN_REACH(xray_device_info, info, features,
                               d->ops->info(d->self, &info));
        d->ops->free(d->self, p);
    }
    close_devices(&b);
}

static uint64_t sum_bytes(const dev *d, const void *data, uint64_t bytes)
{
    uint64_t sum = 0;
    const xray_checksum_rows rows = { .header = XRAY_HEADER(xray_checksum_rows),
                                      .data = data,
                                      .rows = 1,
                                      .bytes = bytes };
    must(d->ops->checksum(d->self, &rows, &sum));
    return sum;
}

static void checksums_see_position_and_length(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    char text[40] = "0123456701234567abcdefghabcdefgh";
    uint64_t sum[4];
    sum[0] = sum_bytes(d, text, 32);
    sum[1] = sum_bytes(d, text, 33);
    text[0] = '7';
    text[7] = '0';
    sum[2] = sum_bytes(d, text, 32);
    memcpy(text, "abcdefgh01234567012345670abcdefgh", 24);
    sum[3] = sum_bytes(d, text, 32);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_true(sum[i] != sum[j]);
    /* Two changes that are equal but in their place do not cancel each other,
     * not even in the highest bits. */
    sum[0] = sum_bytes(d, text, 32);
    text[3] ^= (char)0x80;
    text[7] ^= (char)0x80;
    assert_true(sum_bytes(d, text, 32) != sum[0]);
    text[3] ^= (char)0x80;
    text[15] ^= (char)0x80;
    assert_true(sum_bytes(d, text, 32) != sum[0]);
    close_devices(&b);
}

/* A matrix of 23 rows of 17 bytes, of which each row begins somewhere else in
 * its word, cut into four boxes at any place. */
static void checksums_of_parts_add_up(void **state)
{
    (void)state;
    enum { ROWS = 23, COLS = 17 };
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    unsigned char bytes[ROWS * COLS];
    for (int i = 0; i < ROWS * COLS; i++)
        bytes[i] = (unsigned char)(i * 37 >> 2);
    uint64_t all = sum_bytes(d, bytes, sizeof(bytes));
    for (uint64_t row = 0; row <= ROWS; row += 3)
        for (uint64_t col = 0; col <= COLS; col++) {
            uint64_t parts = 0;
            for (int part = 0; part < 4; part++) {
                uint64_t first = part & 1 ? row * COLS : 0;
                uint64_t at = first + (part & 2 ? col : 0);
                uint64_t sum = 0;
                const xray_checksum_rows rows = {
                    .header = XRAY_HEADER(xray_checksum_rows),
                    .data = bytes + at,
                    .rows = part & 1 ? ROWS - row : row,
                    .bytes = part & 2 ? COLS - col : col,
                    .pitch = COLS,
                    .at = at,
                    .at_pitch = COLS
                };
                must(d->ops->checksum(d->self, &rows, &sum));
                parts += sum;
            }
            assert_true(parts == all);
        }
    close_devices(&b);
}

static void rows_are_copied_with_pitches(void **state)
{
    (void)state;
    bench b;
    open_devices(&b);
    const dev *d = &b.dev[0];
    unsigned char from[64];
    unsigned char to[64];
    for (unsigned char i = 0; i < 64; i++)
        from[i] = i;
    for (uint64_t bytes = 0; bytes <= 7; bytes++) {
        const xray_copy_rows rows = { .header = XRAY_HEADER(xray_copy_rows),
                                      .to = to + 1,
                                      .from = from + 2,
                                      .rows = 5,
                                      .bytes = bytes,
                                      .to_pitch = 9,
                                      .from_pitch = 7,
                                      .kind = XRAY_COPY_ON_DEVICE };
        memset(to, 0xee, sizeof(to));
        must(d->ops->copy_rows(d->self, NULL, &rows));
        must(d->ops->sync(d->self, NULL));
        for (uint64_t i = 0; i < 64; i++) {
            int inside = i >= 1 && i < 1 + 5 * 9 && (i - 1) % 9 < bytes;
            assert_int_equal(
                to[i], inside ? from[2 + (i - 1) / 9 * 7 + (i - 1) % 9] : 0xee);
        }
    }
    close_devices(&b);
}

/* Instances with threads of their own run side by side and are created and
 * destroyed in any order. */
static void instances_come_and_go(void **state)
{
    (void)state;
    float *x = random_floats(300000, 1);
    float *y = alloc_floats(300000);
    for (int round = 0; round < 20; round++) {
        bench b;
        open_devices(&b);
        for (int d = 0; d < b.count; d++) {
            xray_axpby op = { .header = XRAY_HEADER(xray_axpby),
                              .count = 300000,
                              .x = x,
                              .y = y,
                              .alpha = (float)d };
            for (int again = 0; again < 20; again++)
                RUN(&b.dev[d], axpby, &op);
            assert_true(y[299999] == (float)d * x[299999]);
        }
        close_devices(&b);
    }
    free(x);
    free(y);
}

static void options_name_the_instruction_sets(void **state)
{
    (void)state;
    const xray_component *c =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0];
    assert_string_equal(c->name, "cpu");
    assert_string_equal(c->numerics, "xray.fp32/2");
    assert_int_equal(c->option_count, 3);
    assert_string_equal(c->options[0].name, "isa");
    assert_string_equal(c->options[1].name, "memory");
    assert_string_equal(c->options[2].name, "share");
    assert_null(xray_plugin_query_device_cpu(XRAY_ABI + 1));
    cpu_config config = { .isa = 77 };
    void *self = NULL;
    assert_int_equal(device_ops()->create(&bench_host, &config, 1, &self),
                     XRAY_E_CONFIG);
    assert_null(self);
    device_ops()->destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axpby_adds_and_scales),
        cmocka_unit_test(casts_round_to_nearest_even),
        cmocka_unit_test(casts_of_rows_equal_those_of_each_row),
        cmocka_unit_test(adamw_takes_the_step),
        cmocka_unit_test(memory_is_counted_zeroed_and_aligned),
        cmocka_unit_test(structs_of_older_callers_are_filled),
        cmocka_unit_test(checksums_see_position_and_length),
        cmocka_unit_test(checksums_of_parts_add_up),
        cmocka_unit_test(rows_are_copied_with_pitches),
        cmocka_unit_test(instances_come_and_go),
        cmocka_unit_test(options_name_the_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
