/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that tensors of a checkpoint that pass through host memory in several
 * pieces are written completely and in their positions, including a matrix that
 * the file holds transposed.
 */
#include "model/train/save_shares.h"

#include "core/base/file.h"
#include "tests/scratch.h"
#include "tests/train/rig.h"

enum { HEIGHT = 700, WIDTH = 400, COUNT = HEIGHT * WIDTH }; /* above 2^18 */

static float values[COUNT];

static xm_piece test_piece(const void *ctx, size_t i)
{
    (void)ctx;
    return (xm_piece){ .data = values,
                       .range = { 0, COUNT },
                       .rows = HEIGHT,
                       .cols = WIDTH,
                       .transposed = i == 1 };
}

/* All agree but at the call that `ctx` counts down to. */
static xray_status agree_but_once(void *ctx, xray_status mine, xr_err *err)
{
    int *left = ctx;
    return mine == XRAY_OK && --*left == 0
               ? xr_fail(err, XRAY_E_PEER, "another rank failed")
               : mine;
}

static void pieces_are_written_at_their_offsets(void **state)
{
    const xm_st_item items[] = {
        { .name = "as-it-is",
          .dtype = XM_ST_F32,
          .dims = 2,
          .shape = { HEIGHT, WIDTH } },
        { .name = "turned",
          .dtype = XM_ST_F32,
          .dims = 2,
          .shape = { WIDTH, HEIGHT } },
    };
    static const char *const metadata[] = { "format", "pt", NULL };
    int never = 0;
    const xm_agreement together = { .ctx = &never, .agree = agree_but_once };
    rig_device device = rig_device_open(1);
    xm_share_source from = { .device = device.ops,
                             .device_self = device.self,
                             .count = 2,
                             .piece = test_piece };
    const char *path = scratch_path("two.safetensors");
    xm_st_parts *parts = NULL;
    xm_st *file = NULL;
    xr_err err = { "" };
    (void)state;
    for (size_t i = 0; i < COUNT; i++)
        values[i] = (float)i;
    assert_int_equal(xm_st_parts_file(path, items, 2, metadata, &err, &parts),
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
    rig_device device = rig_device_open(1);
    const xm_share_source from = { .device = device.ops,
                                   .device_self = device.self,
                                   .count = 1,
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
