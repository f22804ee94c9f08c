/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that tensors of a checkpoint that pass through host memory in several
 * pieces are written completely and in their positions, including matrices that
 * the file holds transposed, and parts of matrices.
 */
#include "model/train/save_shares.h"

#include "core/base/file.h"
#include "tests/scratch.h"
#include "tests/train/rig.h"

enum { HEIGHT = 700, WIDTH = 400, COUNT = HEIGHT * WIDTH }; /* above 2^18 */
enum { ALL_HEIGHT = 730, ALL_WIDTH = 405 };

static float values[COUNT];

static xm_piece test_piece(const void *ctx, size_t i)
{
    return (xm_piece){ .data = values,
                       .param = (const xm_param *)ctx + i / 2,
                       .tensor = i,
                       .range = { 0, COUNT },
                       .transposed = i % 2 };
}

static xm_param make_param(void)
{
    xm_param param = { .rows = HEIGHT, .cols = WIDTH, .count = COUNT };
    xm_param_make_whole(&param);
    return param;
}

/* Columns from the third on of rows in two pieces. */
static xm_param make_part(void)
{
    xm_param param = make_param();
    param.all_rows = ALL_HEIGHT;
    param.all_cols = ALL_WIDTH;
    param.col_first = 3;
    param.pieces[0] = (xm_row_piece){ 10, 300 };
    param.pieces[1] = (xm_row_piece){ 320, HEIGHT - 300 };
    param.piece_count = 2;
    return param;
}

/* All agree but at the call that `ctx` counts down to. */
static xray_status agree_but_once(void *ctx, xray_status mine, xr_err *err)
{
    int *left = ctx;
    return mine == XRAY_OK && --*left == 0
               ? xr_fail(err, XRAY_E_PEER, "another rank failed")
               : mine;
}

/* The number in the tensor of the part's row r. */
static size_t find_row(size_t r)
{
    return r < 300 ? r + 10 : r + 20;
}

static void expect_part(const xm_st *file, const char *name, size_t row_step,
                        size_t col_step)
{
    const float *all = xm_st_find(file, name)->data;
    size_t zeros = 0;
    for (size_t r = 0; r < HEIGHT; r++)
        for (size_t c = 0; c < WIDTH; c++)
            assert_true(all[find_row(r) * row_step + (c + 3) * col_step] ==
                        values[r * WIDTH + c]);
    for (size_t i = 0; i < (size_t)ALL_HEIGHT * ALL_WIDTH; i++)
        zeros += all[i] == 0;
    assert_int_equal(zeros, ALL_HEIGHT * ALL_WIDTH - COUNT);
}

static void pieces_are_written_at_their_offsets(void **state)
{
#define ITEM(text, first, second)                                 \
    {                                                             \
        .name = (text), .dtype = XM_ST_F32, .dims = 2, .shape = { \
            first,                                                \
            second                                                \
        }                                                         \
    }
    const xm_st_item items[] = {
        ITEM("as-it-is", HEIGHT, WIDTH),
        ITEM("turned", WIDTH, HEIGHT),
        ITEM("part", ALL_HEIGHT, ALL_WIDTH),
        ITEM("part turned", ALL_WIDTH, ALL_HEIGHT),
    };
#undef ITEM
    static const char *const metadata[] = { "format", "pt", NULL };
    int never = 0;
    const xm_agreement together = { .ctx = &never, .agree = agree_but_once };
    const xm_param params[] = { make_param(), make_part() };
    rig_device device = rig_device_open(1);
    xm_share_source from = { .device = device.ops,
                             .device_self = device.self,
                             .count = 4,
                             .ctx = params,
                             .piece = test_piece };
    const char *path = scratch_path("four.safetensors");
    xm_st_parts *parts = NULL;
    xm_st *file = NULL;
    xr_err err = { "" };
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)(i + 1);
    assert_int_equal(xm_st_parts_file(path, items, 4, metadata, &err, &parts),
                     XRAY_OK);
    assert_int_equal(xm_share_save(&from, parts, XRAY_OK, &together, &err),
                     XRAY_OK);
    xm_st_parts_close(parts);
    assert_int_equal(xm_st_open(path, &err, &file), XRAY_OK);
    const float *plain = xm_st_find(file, "as-it-is")->data;
    const float *turned = xm_st_find(file, "turned")->data;
    assert_memory_equal(plain, values, sizeof(values));
    for (size_t r = 0; r < HEIGHT; r++)
        for (size_t c = 0; c < WIDTH; c++)
            assert_true(turned[c * HEIGHT + r] == values[r * WIDTH + c]);
    expect_part(file, "part", ALL_WIDTH, 1);
    expect_part(file, "part turned", 1, ALL_HEIGHT);
    xm_st_close(file);
    rig_device_close(&device);
}

/* Before all have begun and before all have written there is no file; one that
 * was there before stays. */
static void a_file_is_there_once_all_have_written(void **state)
{
    static const xm_st_item item = { .name = "as-it-is",
                                     .dtype = XM_ST_F32,
                                     .dims = 2,
                                     .shape = { HEIGHT, WIDTH } };
    static const char *const metadata[] = { "format", "pt", NULL };
    const xm_param param = make_param();
    rig_device device = rig_device_open(1);
    const xm_share_source from = { .device = device.ops,
                                   .device_self = device.self,
                                   .count = 1,
                                   .ctx = &param,
                                   .piece = test_piece };
    (void)state;
    for (int call = 1; call <= 3; call++) {
        const char *path = scratch_write("whole.safetensors", "before");
        int left = call;
        const xm_agreement together = { .ctx = &left, .agree = agree_but_once };
        xm_st_parts *parts = NULL;
        char *data = NULL;
        size_t size = 0;
        xr_err err = { "" };
        assert_int_equal(
            xm_st_parts_file(path, &item, 1, metadata, &err, &parts), XRAY_OK);
        assert_int_equal(xm_share_save(&from, parts, XRAY_OK, &together, &err),
                         XRAY_E_PEER);
        assert_string_equal(err.text, "another rank failed");
        xm_st_parts_close(parts);
        assert_int_equal(xr_file_read(path, 1u << 24, &err, &data, &size),
                         XRAY_OK);
        assert_int_equal(size == 6, call < 3);
        assert_false(xr_path_exists(scratch_path("whole.safetensors.part")));
        free(data);
    }
    /* A rank that could not begin says so, and nothing is written. */
    int never = 0;
    const xm_agreement together = { .ctx = &never, .agree = agree_but_once };
    xr_err err = { "" };
    assert_int_equal(xm_share_save(&from, NULL, XRAY_E_IO, &together, &err),
                     XRAY_E_IO);
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_written_at_their_offsets),
        cmocka_unit_test(a_file_is_there_once_all_have_written),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
