/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which manifests of checkpoints are accepted and that no bytes crash
 * their parser; and the same for history.json.
 */
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/rl/history.h"
#include "core/run/inventory.h"
#include "tests/scratch.h"

#define HEAD "{\"format\": \"xray.checkpoint/1\",\n \"files\": ["

/* Appends the checksum to a text as the program does, and parses it. */
static xray_status parse_sealed(const char *text, xr_err *err,
                                xr_inventory *out)
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

static void faulty_manifests_are_refused(void **state)
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
          "m: files is not a list" },
        { ITEM("../x", "1", "0000000000000000"),
          "m: the path \"../x\" is not inside the checkpoint" },
        { ITEM("/x", "1", "0000000000000000"),
          "m: the path \"/x\" is not inside the checkpoint" },
        { ITEM("a/./x", "1", "0000000000000000"),
          "m: the path \"a/./x\" is not inside the checkpoint" },
        { ITEM("x", "-1", "0000000000000000"), "m: the size of x is \"-1\"" },
        { ITEM("x", "1", "00000000000000zz"),
          "m: the checksum of x is \"00000000000000zz\"" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        xr_err err = { "" };
        xr_inventory v = { .count = 0 };
        assert_int_equal(parse_sealed(bad[i].text, &err, &v), XRAY_E_IO);
        assert_string_equal(err.text, bad[i].sentence);
        assert_int_equal(v.count, 0);
    }
    xr_inventory v;
    assert_int_equal(
        parse_sealed(ITEM("a/x", "12", "00000000000000ff"), NULL, &v), XRAY_OK);
    assert_int_equal(v.count, 1);
    assert_string_equal(v.items[0].path, "a/x");
    assert_true(v.items[0].size == 12 && v.items[0].hash == 255);
    xr_inventory_free(&v);
}

/* Paths inside the checkpoint, and paths that lead out of it. */
static void paths_stay_inside(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        int inside;
    } cases[] = {
        { "x", 1 },    { "a/b/c", 1 }, { "..x", 1 },    { ".x/..y", 1 },
        { "...", 1 },  { "", 0 },      { "/", 0 },      { ".", 0 },
        { "..", 0 },   { "a/..", 0 },  { "a/../b", 0 }, { "./a", 0 },
        { "a//b", 0 }, { "a/.", 0 },   { "//", 0 },     { "a/b/../c", 0 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[300];
        char want[200];
        xr_err err = { "" };
        xr_inventory v;
        (void)snprintf(text, sizeof(text), ITEM("%s", "0", "0000000000000000"),
                       cases[i].path);
        assert_int_equal(parse_sealed(text, &err, &v),
                         cases[i].inside ? XRAY_OK : XRAY_E_IO);
        (void)snprintf(want, sizeof(want),
                       "m: the path \"%s\" is not inside the checkpoint",
                       cases[i].path);
        assert_string_equal(err.text, cases[i].inside ? "" : want);
        xr_inventory_free(&v);
    }
}

static void expect_verified(xray_status status, const char *sentence)
{
    xr_err err = { "" };
    char want[400] = "";
    xray_status got = xr_inventory_verify(scratch_path("m"), &err);
    if (*sentence)
        (void)snprintf(want, sizeof(want), "%s/m%s", scratch_dir(), sentence);
    assert_string_equal(err.text, want);
    assert_int_equal(got, status);
}

static void write_inventory(void)
{
    xr_err err = { "" };
    if (xr_inventory_write(scratch_path("m"), &err) != XRAY_OK)
        fail_msg("%s", err.text);
}

/* The complete text of a manifest: sorted, with size and checksum of every file
 * except itself. */
static void manifest_is_written(void **state)
{
    (void)state;
    char *text = NULL;
    size_t size = 0;
    xr_str want = { 0 };
    xr_err err = { "" };
    assert_int_equal(xr_dir_make(scratch_path("m/b"), &err), XRAY_OK);
    write_inventory();
    expect_verified(XRAY_OK, ""); /* of an empty folder */
    (void)scratch_write("m/z", "zz");
    expect_verified(
        XRAY_E_IO,
        "/z does not belong to the checkpoint: its manifest does not list it");
    (void)scratch_write("m/a \"1\"", "");
    (void)scratch_write("m/b/manifest.json", "inner");
    write_inventory();
    xr_str_printf(&want,
                  HEAD "\n  {\"path\": \"a \\\"1\\\"\", \"size\": \"0\", "
                       "\"xxh64\": \"%016llx\"},\n  {\"path\": "
                       "\"b/manifest.json\", \"size\": \"5\", \"xxh64\": "
                       "\"%016llx\"},\n  {\"path\": \"z\", \"size\": \"2\", "
                       "\"xxh64\": \"%016llx\"}]",
                  (unsigned long long)xr_hash64("", 0, 0),
                  (unsigned long long)xr_hash64("inner", 5, 0),
                  (unsigned long long)xr_hash64("zz", 2, 0));
    uint64_t self = xr_hash64(want.data, want.size, 0);
    xr_str_printf(&want, ",\n \"self\": \"%016llx\"}\n",
                  (unsigned long long)self);
    assert_int_equal(
        xr_file_read(scratch_path("m/manifest.json"), 4096, &err, &text, &size),
        XRAY_OK);
    assert_string_equal(text, xr_str_text(&want));
    free(text);
    xr_str_free(&want);
    expect_verified(XRAY_OK, "");
    (void)scratch_write("m/z", "z");
    expect_verified(XRAY_E_IO, "/z has 1 bytes, its manifest says 2");
    assert_int_equal(remove(scratch_path("m/z")), 0);
    expect_verified(XRAY_E_IO, "/z is missing");
    assert_int_equal(xr_dir_remove(scratch_path("m"), &err), XRAY_OK);
    expect_verified(XRAY_E_IO, ": there is no such folder");
    assert_int_equal(xr_dir_make(scratch_path("m"), &err), XRAY_OK);
    expect_verified(XRAY_E_IO, "/manifest.json is missing");
}

/* More files than the list's first capacity, in folders of the largest depth.
 */
static void many_and_deep_files_are_listed(void **state)
{
    (void)state;
    xr_err err = { "" };
    xr_inventory v;
    char *text = NULL;
    size_t size = 0;
    char name[64];
    assert_int_equal(xr_dir_make(scratch_path("m/1/2/3/4/5/6/7/8"), &err),
                     XRAY_OK);
    (void)scratch_write("m/1/2/3/4/5/6/7/8/deep", "");
    for (int i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "m/f%02d", (i * 7) % 40);
        (void)scratch_write(name, "");
    }
    write_inventory();
    expect_verified(XRAY_OK, "");
    assert_int_equal(
        xr_file_read(scratch_path("m/manifest.json"), 8192, &err, &text, &size),
        XRAY_OK);
    assert_int_equal(xr_inventory_parse(text, size, "m", &err, &v), XRAY_OK);
    assert_int_equal(v.count, 41);
    assert_string_equal(v.items[0].path, "1/2/3/4/5/6/7/8/deep");
    for (size_t i = 0; i < 40; i++) {
        (void)snprintf(name, sizeof(name), "f%02zu", i);
        assert_string_equal(v.items[i + 1].path, name);
    }
    xr_inventory_free(&v);
    free(text);
    assert_int_equal(xr_dir_make(scratch_path("m/1/2/3/4/5/6/7/8/9"), &err),
                     XRAY_OK);
    expect_verified(XRAY_E_IO,
                    "/1/2/3/4/5/6/7/8/9: folders are nested too deep");
    assert_int_equal(xr_inventory_write(scratch_path("m"), &err), XRAY_E_IO);
    assert_int_equal(xr_dir_remove(scratch_path("m"), &err), XRAY_OK);
}

/* One model of a checkpoint: its own files alone, and only the sizes of the
 * optimizer's. */
static void a_model_is_verified_by_itself(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        const char *text; /* NULL: the file is removed */
        const char *sizes;
        const char *sums; /* expected sentences; "": none */
    } cases[] = {
        { "m/actor/model", "weights", "", "" },
        { "m/actor/model", "weightz", "", "/actor/model is damaged: its " },
        { "m/actor/model", "weight", "/actor/model has 6 bytes, its",
          "/actor/model has 6 bytes, its" },
        { "m/actor/model", NULL, "/actor/model is missing",
          "/actor/model is missing" },
        { "m/actor/optim.x", "OPTIM", "", "" },
        { "m/actor/optim.x", "op", "/actor/optim.x has 2 bytes, its",
          "/actor/optim.x has 2 bytes, its" },
        { "m/actor/new", "", "/actor/new does not belong",
          "/actor/new does not belong" },
        { "m/actor2/model", "other", "", "" },
        { "m/critic/model", NULL, "", "" },
        { "m/state", "other", "", "" },
    };
    xr_err err = { "" };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(xr_dir_make(scratch_path("m/actor"), &err), XRAY_OK);
        assert_int_equal(xr_dir_make(scratch_path("m/actor2"), &err), XRAY_OK);
        assert_int_equal(xr_dir_make(scratch_path("m/critic"), &err), XRAY_OK);
        (void)scratch_write("m/actor/model", "weights");
        (void)scratch_write("m/actor/optim.x", "optim");
        (void)scratch_write("m/actor2/model", "weights");
        (void)scratch_write("m/critic/model", "weights");
        (void)scratch_write("m/state", "{}");
        write_inventory();
        if (cases[i].text)
            (void)scratch_write(cases[i].file, cases[i].text);
        else
            assert_int_equal(remove(scratch_path(cases[i].file)), 0);
        for (int sums = 0; sums < 2; sums++) {
            const char *want = sums ? cases[i].sums : cases[i].sizes;
            err.text[0] = '\0';
            assert_int_equal(xr_inventory_verify_model(scratch_path("m"),
                                                       "actor", sums, &err),
                             *want ? XRAY_E_IO : XRAY_OK);
            if (!*want != !*err.text || !strstr(err.text, want))
                fail_msg("case %zu, sums %d: %s", i, sums, err.text);
        }
        assert_int_equal(xr_dir_remove(scratch_path("m"), &err), XRAY_OK);
    }
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

/* history.json is read as it was written; damage has its own sentence. */
static void history_is_read_back(void **state)
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
    assert_string_equal(b.run, ""); /* written by an older xray */
    assert_int_equal(xr_history_begin(&err, &a), XRAY_OK);
    assert_false(xr_history_of_run(dir, a.run));
    a.has_lines = 1;
    a.lines = (xr_metrics_mark){ 7, 0xfedcba9876543210u };
    (void)snprintf(rows, sizeof(rows), "%s",
                   scratch_write("rows \"7\".jsonl", "{}\n"));
    assert_int_equal(xr_history_input(&a, "data.train_files", rows, &err),
                     XRAY_OK);
    assert_int_equal(xr_history_input(&a, "data.val_files", dir, &err),
                     XRAY_OK); /* a missing file is not an input */
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
        { "{" RUN ", \"lines\": \"3\"}", "lines_xxh64 is \"\"" },
        { "{" RUN ", \"lines_xxh64\": \"0123456789abcdef\"}",
          "lines is \"\", expected a count" },
        { "{" RUN ", \"inputs\": [{\"key\": \"a.b\", \"path\": \"p\", "
          "\"xxh64\": \"12\"}]}",
          "xxh64 of p is \"12\", expected 16 hexadecimal digits" },
        { "{" RUN ", \"inputs\": [{\"path\": \"p\"}]}", "key" },
        { "{" RUN ", \"inputs\": [{\"key\": \"a.b\"}]}", "path" },
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

/* The complete text of history.json, and what two checkpoints tell of their
 * runs. */
static void history_is_written(void **state)
{
    (void)state;
    xr_err err = { "" };
    char *text = NULL;
    size_t size = 0;
    xr_history h = { .run = "0123456789abcdef" };
    xr_history read;
    char one[300];
    char two[300];
    char want[1600];
    char file[300];
    (void)snprintf(one, sizeof(one), "%s", scratch_path("one"));
    (void)snprintf(two, sizeof(two), "%s", scratch_path("two"));
    (void)snprintf(file, sizeof(file), "%s", scratch_write("in", "text"));
    assert_int_equal(xr_dir_make(one, &err), XRAY_OK);
    assert_int_equal(xr_dir_make(two, &err), XRAY_OK);
    assert_true(xr_history_same_run(one, two)); /* neither names its run */
    assert_int_equal(xr_history_input(&h, "a.b", file, &err), XRAY_OK);
    assert_int_equal(xr_history_input(&h, "a.c", file, &err), XRAY_OK);
    for (int lines = 0; lines < 2; lines++) {
        unsigned long long sum = xr_hash64("text", 4, 0);
        h.has_lines = lines;
        h.lines = (xr_metrics_mark){ 0, 0x1f };
        assert_int_equal(xr_history_write(one, &h, &err), XRAY_OK);
        assert_int_equal(xr_file_read(scratch_path("one/history.json"), 4096,
                                      &err, &text, &size),
                         XRAY_OK);
        (void)snprintf(want, sizeof(want),
                       "{\"version\": 1, \"run\": \"0123456789abcdef\"%s,\n "
                       "\"inputs\": [\n  {\"key\": \"a.b\", \"path\": \"%s\", "
                       "\"xxh64\": \"%016llx\"},\n  {\"key\": \"a.c\", "
                       "\"path\": \"%s\", \"xxh64\": \"%016llx\"}]}\n",
                       lines ? ", \"lines\": \"0\", \"lines_xxh64\": "
                               "\"000000000000001f\""
                             : "",
                       file, sum, file, sum);
        assert_string_equal(text, want);
        free(text);
        assert_int_equal(xr_history_read(one, &err, &read), XRAY_OK);
        assert_int_equal(read.has_lines, lines);
        assert_true(read.lines.hash == (lines ? 0x1f : 0));
        assert_int_equal(read.input_count, 2);
        assert_string_equal(read.inputs[1].key, "a.c");
        xr_history_free(&read);
    }
    assert_false(xr_history_same_run(one, two));
    assert_false(xr_history_same_run(two, one));
    assert_int_equal(xr_history_write(two, &h, &err), XRAY_OK);
    assert_true(xr_history_same_run(one, two));
    h.run[15] = 'e';
    assert_int_equal(xr_history_write(two, &h, &err), XRAY_OK);
    assert_false(xr_history_same_run(one, two));
    assert_true(xr_history_of_run(two, "0123456789abcdee"));
    assert_false(xr_history_of_run(two, "0123456789abcdef"));
    (void)scratch_write("two/history.json", "{");
    assert_false(xr_history_of_run(two, "0123456789abcdee"));
    assert_false(xr_history_same_run(one, two));
    assert_false(xr_history_same_run(two, one));
    xr_history_free(&h);
    xr_history begun = { .has_lines = 0 };
    assert_int_equal(xr_history_begin(&err, &begun), XRAY_OK);
    assert_int_equal(xr_history_begin(&err, &h), XRAY_OK);
    assert_int_equal(strspn(begun.run, "0123456789abcdef"), 16);
    assert_string_not_equal(begun.run, h.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faulty_manifests_are_refused),
        cmocka_unit_test(paths_stay_inside),
        cmocka_unit_test(manifest_is_written),
        cmocka_unit_test(many_and_deep_files_are_listed),
        cmocka_unit_test(a_model_is_verified_by_itself),
        cmocka_unit_test(any_flipped_bit_is_noticed),
        cmocka_unit_test(history_is_read_back),
        cmocka_unit_test(history_is_written),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
