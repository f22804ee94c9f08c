/* SPDX-License-Identifier: Apache-2.0
 *
 * A checkpoint's manifest: what it accepts, and that no bytes make it fall
 * over; and its history.
 */
#include "core/rl/inventory.h"
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/rl/history.h"
#include "tests/scratch.h"

#define HEAD "{\"format\": \"xray.checkpoint/1\",\n \"files\": ["

/* Seals a text as the program does and parses it. */
static xray_status parse(const char *text, xr_err *err, xr_inventory *out)
{
    xr_str sealed = { 0 };
    xr_str_puts(&sealed, text);
    uint64_t self = xr_hash64(text, strlen(text), 0);
    xr_str_printf(&sealed, ",\n \"self\": \"%016llx\"}\n",
                  (unsigned long long)self);
    xray_status status =
        xr_inventory_parse(sealed.data, sealed.size, "m", err, out);
    xr_str_free(&sealed);
    return status;
}

static void what_is_refused(void **state)
{
    (void)state;
#define ITEM(path, size, hash)                                                 \
    HEAD "{\"path\": \"" path "\", \"size\": \"" size "\", \"xxh64\": \"" hash \
         "\"}]"
    static const struct {
        const char *text;
        const char *sentence;
    } bad[] = {
        { "{\"format\": \"other/1\", \"files\": []",
          "m: format is other/1, this xray reads xray.checkpoint/1" },
        { "{\"format\": \"xray.checkpoint/1\", \"files\": 3",
          "m: files is no list" },
        { ITEM("../x", "1", "0000000000000000"),
          "m: the path \"../x\" is not one below the checkpoint" },
        { ITEM("/x", "1", "0000000000000000"),
          "m: the path \"/x\" is not one below the checkpoint" },
        { ITEM("a/./x", "1", "0000000000000000"),
          "m: the path \"a/./x\" is not one below the checkpoint" },
        { ITEM("x", "-1", "0000000000000000"), "m: the size of x is \"-1\"" },
        { ITEM("x", "1", "00000000000000zz"),
          "m: the checksum of x is \"00000000000000zz\"" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        xr_err err = { "" };
        xr_inventory v = { .count = 0 };
        assert_int_equal(parse(bad[i].text, &err, &v), XRAY_E_IO);
        assert_string_equal(err.text, bad[i].sentence);
        assert_int_equal(v.count, 0);
    }
    xr_inventory v;
    assert_int_equal(parse(ITEM("a/x", "12", "00000000000000ff"), NULL, &v),
                     XRAY_OK);
    assert_int_equal(v.count, 1);
    assert_string_equal(v.items[0].path, "a/x");
    assert_true(v.items[0].size == 12 && v.items[0].hash == 255);
    xr_inventory_free(&v);
}

static void any_flipped_bit_is_noticed(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    xr_err err = { "" };
    xr_inventory v;
    assert_int_equal(xr_dir_make(scratch_path("c/actor"), &err), XRAY_OK);
    (void)scratch_write("c/state.json", "{}");
    (void)scratch_write("c/actor/model", "weights");
    (void)scratch_write("c/empty", "");
    assert_int_equal(xr_inventory_write(scratch_path("c"), &err), XRAY_OK);
    assert_int_equal(xr_inventory_verify(scratch_path("c"), &err), XRAY_OK);
    assert_int_equal(
        xr_file_read(scratch_path("c/manifest.json"), 4096, &err, &text, &size),
        XRAY_OK);
    for (size_t at = 0; at < size; at++)
        for (unsigned bit = 0; bit < 8; bit++) {
            text[at] = (char)(text[at] ^ (1 << bit));
            assert_int_equal(xr_inventory_parse(text, size, "m", NULL, &v),
                             XRAY_E_IO);
            text[at] = (char)(text[at] ^ (1 << bit));
        }
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(xr_inventory_parse(text, cut, "m", NULL, &v),
                         XRAY_E_IO);
    assert_int_equal(xr_inventory_parse(text, size, "m", &err, &v), XRAY_OK);
    assert_int_equal(v.count, 3);
    xr_inventory_free(&v);
    free(text);
    (void)scratch_write("c/actor/model", "weightz");
    assert_int_equal(xr_inventory_verify(scratch_path("c"), &err), XRAY_E_IO);
    assert_non_null(strstr(err.text, "c/actor/model is damaged: "));
}

/* history.json comes back as it was written; damage has its sentence. */
static void history_of_a_run(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_history a = { .has_lines = 0 };
    xr_history b;
    char dir[300];
    char rows[300];
    (void)snprintf(dir, sizeof(dir), "%s", scratch_path("h"));
    assert_int_equal(xr_dir_make(dir, &err), XRAY_OK);
    assert_int_equal(xr_history_read(dir, &err, &b), XRAY_OK);
    assert_string_equal(b.run, ""); /* of an older xray */
    assert_int_equal(xr_history_begin(&err, &a), XRAY_OK);
    assert_false(xr_history_of_run(dir, a.run));
    a.has_lines = 1;
    a.lines = (xr_metrics_mark){ 7, 0xfedcba9876543210u };
    (void)snprintf(rows, sizeof(rows), "%s",
                   scratch_write("rows \"7\".jsonl", "{}\n"));
    assert_int_equal(xr_history_input(&a, "data.train_files", rows, &err),
                     XRAY_OK);
    assert_int_equal(xr_history_input(&a, "data.val_files", dir, &err),
                     XRAY_OK); /* no file: not an input */
    assert_int_equal(xr_history_write(dir, &a, &err), XRAY_OK);
    assert_int_equal(xr_history_read(dir, &err, &b), XRAY_OK);
    assert_string_equal(a.run, b.run);
    assert_true(b.has_lines && b.lines.count == 7 &&
                b.lines.hash == 0xfedcba9876543210u);
    assert_int_equal(b.input_count, 1);
    assert_string_equal(b.inputs[0].key, "data.train_files");
    assert_string_equal(b.inputs[0].path, a.inputs[0].path);
    assert_true(b.inputs[0].hash == xr_hash64("{}\n", 3, 0));
    assert_true(xr_history_of_run(dir, a.run));
    xr_history_free(&a);
    xr_history_free(&b);
#define RUN "\"version\": 1, \"run\": \"0123456789abcdef\""
    static const char *const bad[][2] = {
        { "{\"version\": 2, \"run\": \"\"}",
          "version is 2, this xray reads 1" },
        { "{\"version\": 1, \"run\": \"x\"}", "run is \"x\"" },
        { "{" RUN ", \"lines\": \"-1\", \"lines_xxh64\": \"\"}",
          "lines is \"-1\", expected a count" },
        { "{" RUN ", \"lines\": \"1\", \"lines_xxh64\": \"0\"}",
          "lines_xxh64 is \"0\"" },
        { "{" RUN "}", "inputs is no list" },
        { "{" RUN ", \"inputs\": [{\"key\": \"a.b\", \"path\": \"p\", "
          "\"xxh64\": \"0123456789abcdef\"}, 3]}",
          "" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        (void)scratch_write("h/history.json", bad[i][0]);
        assert_int_not_equal(xr_history_read(dir, &err, &b), XRAY_OK);
        assert_non_null(strstr(err.text, bad[i][1]));
        assert_int_equal(b.input_count, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_refused),
        cmocka_unit_test(any_flipped_bit_is_noticed),
        cmocka_unit_test(history_of_a_run),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
