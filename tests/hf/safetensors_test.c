/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that safetensors files, shards and mutated files are read correctly or
 * refused.
 */
#include <xray/numerics.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/hf/safetensors.h"
#include "tests/scratch.h"

static void join_scratch_path(const char *name, char *path)
{
    assert_int_equal(xr_path_join(scratch_dir(), name, path, XR_PATH_CAP, NULL),
                     XRAY_OK);
}

/* Reads every byte of every tensor. */
static void read_all_bytes(const xm_st *st)
{
    for (size_t i = 0; i < xm_st_count(st); i++) {
        const xm_st_tensor *t = xm_st_at(st, i);
        const unsigned char *data = t->data;
        volatile unsigned char sink = 0;
        for (uint64_t b = 0; b < t->bytes; b++)
            sink = (unsigned char)(sink ^ data[b]);
        assert_ptr_equal(xm_st_find(st, t->name), t);
    }
}

static void malformed_files_are_refused_and_others_open(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    cJSON *manifest;
    xr_err err = { "" };
    test_data("safetensors/manifest.json", path, sizeof path);
    assert_int_equal(xr_json_file(path, &err, &manifest), XRAY_OK);
    int seen = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, manifest)
    {
        char name[256];
        const char *file = xr_json_get(item, "file")->valuestring;
        const char *expect = xr_json_get(item, "expect")->valuestring;
        (void)snprintf(name, sizeof name, "safetensors/%s", file);
        test_data(name, path, sizeof path);
        xm_st *st;
        err.text[0] = '\0';
        xray_status status = xm_st_open(path, &err, &st);
        if ((status == XRAY_OK) != (strcmp(expect, "accept") == 0))
            fail_msg("%s: expected %s: %s", file, expect, err.text);
        if (status)
            assert_non_null(strstr(err.text, path));
        else
            read_all_bytes(st);
        xm_st_close(status ? NULL : st);
        seen++;
    }
    assert_true(seen >= 25);
    cJSON_Delete(manifest);
}

static void values_are_read_at_their_offsets(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *tensor;
        uint64_t count;
        float first;
        float step;
    } cases[] = { { "ok_f32_1x2x3", "attn.0", 6, 0, 1 },
                  { "ok_unsorted_offsets", "a", 1, 10, 0 },
                  { "ok_unsorted_offsets", "z", 1, 20, 0 } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[128];
        char path[XR_PATH_CAP];
        (void)snprintf(name, sizeof name, "safetensors/cases/%s.safetensors",
                       cases[i].file);
        test_data(name, path, sizeof path);
        xm_st *st;
        assert_int_equal(xm_st_open(path, NULL, &st), XRAY_OK);
        const xm_st_tensor *t = xm_st_find(st, cases[i].tensor);
        assert_non_null(t);
        assert_true(t->count == cases[i].count);
        if (t->dtype != XM_ST_F32) {
            xm_st_close(st);
            continue;
        }
        for (uint64_t k = 0; k < t->count; k++) {
            float value;
            assert_int_equal(xm_st_read_f32(t, k, 1, &value, NULL), XRAY_OK);
            assert_true(value == cases[i].first + (float)k * cases[i].step);
        }
        float none;
        assert_int_equal(xm_st_read_f32(t, t->count, 1, &none, NULL),
                         XRAY_E_RANGE);
        xm_st_close(st);
    }
}

static void written_tensors_read_back_equal(void **state)
{
    (void)state;
    const float f32[6] = { 0.5f, -1, 3, 4, 5, 6 };
    const uint16_t bf16[3] = { 0x3F80, 0xC000, 0x3F00 };
    const uint16_t f16[1] = { 0x3C00 };
    const double f64[1] = { 2.25 };
    const int64_t i64[1] = { 7 };
    const xm_st_item items[] = {
        { "w\"\xC3\xA9", XM_ST_F32, 2, { 2, 3 }, f32 },
        { "b", XM_ST_BF16, 1, { 3 }, bf16 },
        { "h", XM_ST_F16, 1, { 1 }, f16 },
        { "d", XM_ST_F64, 0, { 0 }, f64 },
        { "empty", XM_ST_F32, 2, { 0, 9 }, NULL },
        { "i", XM_ST_I64, 1, { 1 }, i64 },
    };
    const char *const metadata[] = { "format", "pt", "k", "v\n", NULL };
    char path[XR_PATH_CAP];
    join_scratch_path("model.safetensors", path);
    assert_int_equal(xm_st_write(path, items, 6, metadata, NULL), XRAY_OK);
    xm_st *st;
    xr_err err = { "" };
    assert_int_equal(xm_st_open(scratch_dir(), &err, &st),
                     XRAY_OK); /* the folder */
    assert_int_equal(xm_st_count(st), 6);
    assert_string_equal(xm_st_metadata(st, "k"), "v\n");
    assert_null(xm_st_metadata(st, "none"));
    float got[6];
    const xm_st_tensor *t = xm_st_find(st, "w\"\xC3\xA9");
    assert_int_equal(t->shape[1], 3);
    assert_int_equal((uintptr_t)t->data % 8, 0);
    assert_int_equal(xm_st_read_f32(t, 0, 6, got, NULL), XRAY_OK);
    assert_memory_equal(got, f32, sizeof f32);
    assert_int_equal(xm_st_read_f32(xm_st_find(st, "b"), 1, 2, got, NULL),
                     XRAY_OK);
    assert_true(got[0] == -2 && got[1] == 0.5f);
    assert_int_equal(xm_st_read_f32(xm_st_find(st, "h"), 0, 1, got, NULL),
                     XRAY_OK);
    assert_true(got[0] == 1);
    assert_int_equal(xm_st_read_f32(xm_st_find(st, "d"), 0, 1, got, NULL),
                     XRAY_OK);
    assert_true(got[0] == 2.25f);
    assert_int_equal(xm_st_read_f32(xm_st_find(st, "i"), 0, 1, got, &err),
                     XRAY_E_UNSUPPORTED);
    xm_st_close(st);
    const xm_st_item twice[] = { items[2], items[2] };
    assert_int_equal(xm_st_write(path, twice, 2, NULL, &err), XRAY_E_ARG);
    assert_int_equal(xm_st_open(path, &err, &st), XRAY_OK); /* the earlier file
                                                             * is still there */
    assert_int_equal(xm_st_count(st), 6);
    xm_st_close(st);
}

static void check_index(const char *text, const char *fault)
{
    char dir[XR_PATH_CAP];
    char path[XR_PATH_CAP];
    xm_st *st;
    xr_err err = { "" };
    join_scratch_path("sharded", dir);
    assert_int_equal(xr_path_join(dir, "model.safetensors.index.json", path,
                                  sizeof path, NULL),
                     XRAY_OK);
    assert_int_equal(xr_file_write(path, text, strlen(text), NULL), XRAY_OK);
    xray_status status = xm_st_open(dir, &err, &st);
    if (!fault) {
        assert_int_equal(status, XRAY_OK);
        assert_int_equal(xm_st_count(st), 2);
        xm_st_close(st);
    } else if (status == XRAY_OK || !strstr(err.text, fault)) {
        fail_msg("%s: %s", text, err.text);
    }
}

static void indexes_that_misplace_tensors_are_refused(void **state)
{
    (void)state;
    const float one = 1;
    const xm_st_item a = { "a", XM_ST_F32, 1, { 1 }, &one };
    const xm_st_item b = { "b", XM_ST_F32, 1, { 1 }, &one };
    char path[XR_PATH_CAP];
    join_scratch_path("sharded", path);
    assert_int_equal(xr_dir_make(path, NULL), XRAY_OK);
    join_scratch_path("sharded/1.safetensors", path);
    assert_int_equal(xm_st_write(path, &a, 1, NULL, NULL), XRAY_OK);
    join_scratch_path("sharded/2.safetensors", path);
    assert_int_equal(xm_st_write(path, &b, 1, NULL, NULL), XRAY_OK);
    join_scratch_path("sharded/3.safetensors", path);
    assert_int_equal(xm_st_write(path, &b, 1, NULL, NULL), XRAY_OK);
    check_index("{\"weight_map\":{\"a\":\"1.safetensors\","
                "\"b\":\"2.safetensors\"}}",
                NULL);
    check_index("{\"weight_map\":{\"a\":\"2.safetensors\"}}",
                "tensor \"a\" is not in 2.safetensors");
    check_index("{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "same folder");
    check_index("{\"weight_map\":{\"a\":\"no.safetensors\"}}", "cannot open");
    check_index("{\"weight_map\":{\"a\":\"2.safetensors\","
                "\"b\":\"3.safetensors\"}}",
                "occurs twice");
    check_index("{}", "weight_map");
}

static void mutated_files_are_read_or_refused(void **state)
{
    (void)state;
    char good[XR_PATH_CAP];
    char path[XR_PATH_CAP];
    const float values[4] = { 1, 2, 3, 4 };
    const char *const metadata[] = { "format", "pt", NULL };
    const xm_st_item items[] = { { "one", XM_ST_F32, 2, { 1, 2 }, values },
                                 { "two", XM_ST_BF16, 1, { 4 }, values } };
    join_scratch_path("good", good);
    join_scratch_path("mutant", path);
    assert_int_equal(xm_st_write(good, items, 2, metadata, NULL), XRAY_OK);
    char *data;
    size_t size;
    assert_int_equal(xr_file_read(good, 4096, NULL, &data, &size), XRAY_OK);
    int accepted = 0;
    for (uint32_t i = 0; i < 800; i++) {
        xray_philox_out r = xray_philox(5, i, 0, 0, 0);
        size_t at = r.w[0] % size;
        char old = data[at];
        size_t cut = r.w[2] % 8 ? size : r.w[3] % size;
        data[at] = (char)(r.w[1] & 255);
        /* Written in place and without fsync, which would take minutes here. */
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        assert_int_equal(fwrite(data, 1, cut, file), cut);
        assert_int_equal(fclose(file), 0);
        data[at] = old;
        xm_st *st;
        xr_err err = { "" };
        if (xm_st_open(path, &err, &st)) {
            assert_true(err.text[0] != '\0');
            continue;
        }
        read_all_bytes(st);
        xm_st_close(st);
        accepted++;
    }
    assert_true(accepted > 0 && accepted < 800);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(malformed_files_are_refused_and_others_open),
        cmocka_unit_test(values_are_read_at_their_offsets),
        cmocka_unit_test(written_tensors_read_back_equal),
        cmocka_unit_test(indexes_that_misplace_tensors_are_refused),
        cmocka_unit_test(mutated_files_are_read_or_refused),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
