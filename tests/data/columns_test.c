/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that Parquet and Arrow files of other libraries give their rows by
 * each reader that this machine has, and, by readers that the suite makes
 * itself, when a file is converted and what is said when none can be.
 */
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/child.h"
#include "core/base/json.h"
#include "core/data/columns.h"
#include "core/data/source.h"
#include "core/data/text_out.h"
#include "tests/scratch.h"

static char path_before[4096];

xray_status __wrap_xr_duckdb_read(const char *path,
                                  const xray_call_service *calls, xr_err *err,
                                  xr_str *out);
xray_status __wrap_xr_duckdb_read(const char *path,
                                  const xray_call_service *calls, xr_err *err,
                                  xr_str *out)
{
    (void)path;
    (void)calls;
    (void)err;
    (void)out;
    return XRAY_E_UNSUPPORTED;
}

/* Makes a program `name` that the suite's PATH finds first. */
static void make_program(const char *name, const char *script)
{
    char text[10000];
    char path[64];
    (void)snprintf(path, sizeof path, "bin/%s", name);
    (void)snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
    assert_int_equal(chmod(scratch_write(path, text), 0755), 0);
}

static int begin_case(void **state)
{
    (void)state;
    assert_int_equal(xr_dir_remove(scratch_path("cache"), NULL), XRAY_OK);
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_path("cache"), 1), 0);
    make_program("duckdb", "exit 127");
    make_program("python3", "exit 127");
    return 0;
}

static int set_up(void **state)
{
    char path[5000];
    if (scratch_make(state) != 0)
        return -1;
    (void)snprintf(path_before, sizeof path_before, "%s", getenv("PATH"));
    (void)snprintf(path, sizeof path, "%s:%s", scratch_path("bin"),
                   path_before);
    return mkdir(scratch_path("bin"), 0777) == 0 ? setenv("PATH", path, 1) : -1;
}

/* Makes `name` a program that runs the machine's own one; 0 if there is none,
 * or if `test`, a command of a shell, fails with it. */
static int use_real(const char *name, const char *test)
{
    char script[8192];
    xr_str out = { 0 };
    (void)snprintf(script, sizeof script, "PATH='%s'; command -v %s && %s",
                   path_before, name, test);
    const char *argv[] = { "sh", "-c", script, NULL };
    const xr_child child = { .name = argv[0], .argv = argv, .seconds = 60 };
    int found = xr_child_run(&child, NULL, NULL, &out) == XRAY_OK;
    const char *real = xr_str_text(&out);
    if (found) {
        (void)snprintf(script, sizeof script, "exec '%.*s' \"$@\"",
                       (int)strcspn(real, "\n"), real);
        make_program(name, script);
    } else {
        print_message("no %s that reads such files: its rows are not "
                      "compared\n",
                      name);
    }
    xr_str_free(&out);
    return found;
}

static int use_duckdb(void)
{
    return use_real("duckdb", "true");
}

static int use_pyarrow(void)
{
    return use_real("python3", "python3 -c 'import pyarrow' 2>/dev/null");
}

/* Compares all rows with lines of JSON. */
static void expect_rows(const char *path, const char *const *want, size_t count)
{
    xr_err err = { "" };
    xr_source source;
    char *line;
    size_t size;
    if (xr_source_open(path, NULL, &err, &source) != XRAY_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++) {
        cJSON *got = NULL;
        cJSON *expected = NULL;
        if (xr_source_next(&source, &err, &line, &size) != XRAY_OK ||
            xr_json_line(line, size, source.where, &err, &got) != XRAY_OK)
            fail_msg("%s: row %zu: %s", path, i + 1, err.text);
        assert_int_equal(
            xr_json_parse(want[i], strlen(want[i]), "", NULL, &expected),
            XRAY_OK);
        if (!cJSON_Compare(got, expected, 1))
            fail_msg("%s: %s", source.where, line);
        cJSON_Delete(got);
        cJSON_Delete(expected);
    }
    assert_int_equal(xr_source_next(&source, &err, &line, &size), XRAY_END);
    xr_source_close(&source);
}

static const char *file_of(const char *name)
{
    static char path[512];
    const char *sources = getenv("XRAY_SOURCE");
    assert_non_null(sources);
    (void)snprintf(path, sizeof path, "%s/tests/data/files/%s", sources, name);
    return path;
}

#define VERL(index, ability, truth, tags)                                  \
    "{\"data_source\":\"openai/gsm8k\",\"prompt\":[{\"role\":\"user\","    \
    "\"content\":\"Caf\xc3\xa9 " index ": \\\"1\\\" +\\n " index "?\"}],"  \
    "\"ability\":" ability ",\"reward_model\":{\"style\":\"rule\","        \
    "\"ground_truth\":\"" truth "\"},\"extra_info\":{\"split\":\"train\"," \
    "\"index\":" index ",\"tags\":[" tags "]}}"
static const char *const verl_rows[] = {
    VERL("0", "\"math\"", "1", ""), VERL("1", "null", "2", "\"a\""),
    VERL("2", "\"math\"", "3", "\"a\",\"b\"")
};

static const char *const typed_rows[] = {
    "{\"dec\":1.5,\"ts\":\"2024-01-02 03:04:05.5\",\"tz\":\"2024-01-02 "
    "03:04:05+00\",\"day\":\"2024-01-02\",\"bytes\":\"ab\\\\x00\\\\x5C\","
    "\"map\":{\"k\":1},\"nan\":null,\"inf\":null,\"single\":0.5,"
    "\"big\":9007199254740993,\"yes\":true,\"text\":\"NaN \\\" Infinity\","
    "\"cat\":\"x\"}",
    "{\"dec\":null,\"ts\":\"2024-01-02 00:00:00\",\"tz\":null,\"day\":null,"
    "\"bytes\":\"\",\"map\":{},\"nan\":null,\"inf\":0.5,"
    "\"single\":0.10000000149011612,\"big\":-1,\"yes\":false,\"text\":null,"
    "\"cat\":\"x\"}"
};

static void parquet_gives_its_rows_by_either_reader(void **state)
{
    (void)state;
    static const char *const names[] = { "pyarrow.parquet", "pandas.parquet",
                                         "duckdb.parquet" };
    int (*const readers[])(void) = { use_duckdb, use_pyarrow };
    int used = 0;
    for (size_t r = 0; r < 2; r++) {
        (void)begin_case(NULL);
        if (!readers[r]())
            continue;
        used++;
        for (size_t i = 0; i < 3; i++)
            expect_rows(file_of(names[i]), verl_rows, 3);
        expect_rows(file_of("types.parquet"), typed_rows, 2);
    }
    if (!used)
        skip();
}

static void arrow_gives_its_rows(void **state)
{
    (void)state;
    static const char *const names[] = { "file.arrow", "stream.arrow",
                                         "file.feather" };
    if (!use_pyarrow())
        skip();
    for (size_t i = 0; i < 3; i++)
        expect_rows(file_of(names[i]), verl_rows, 3);
}

/* ---- readers of the suite's own ----------------------------------------- */

/* A reader that writes a row and notes that it was called. */
static void make_counting_reader(void)
{
    char script[600];
    (void)snprintf(script, sizeof script,
                   "echo >>'%s'\n[ \"$(head -c 4)\" = PAR1 ] || exit 3\n"
                   "echo '{\"a\":-NaN}'",
                   scratch_path("calls"));
    (void)unlink(scratch_path("calls"));
    make_program("duckdb", script);
}

static size_t count_calls(void)
{
    struct stat info;
    return stat(scratch_path("calls"), &info) == 0 ? (size_t)info.st_size : 0;
}

static void find_kept(char *path, size_t cap)
{
    const char *argv[] = { "find", scratch_path("cache"), "-type", "f", NULL };
    const xr_child child = { .name = argv[0], .argv = argv, .seconds = 60 };
    xr_str out = { 0 };
    assert_int_equal(xr_child_run(&child, NULL, NULL, &out), XRAY_OK);
    (void)snprintf(path, cap, "%.*s", (int)strcspn(xr_str_text(&out), "\n"),
                   xr_str_text(&out));
    xr_str_free(&out);
}

static void rows_are_converted_once(void **state)
{
    (void)state;
    static const char *const rows[] = { "{\"a\":null}" };
    static const long sizes[] = { 0, 3, 20 };
    char kept[600];
    make_counting_reader();
    /* Neither the name nor a pattern in it reaches a query. */
    const char *path = scratch_write("*'); DROP.parquet", "PAR1 one");
    char same[300];
    (void)snprintf(same, sizeof same, "%s", path);
    expect_rows(same, rows, 1);
    assert_int_equal(count_calls(), 1);
    expect_rows(same, rows, 1);
    expect_rows(scratch_write("copy.x", "PAR1 one"), rows, 1);
    assert_int_equal(count_calls(), 1);
    expect_rows(scratch_write("copy.x", "PAR1 two"), rows, 1);
    assert_int_equal(count_calls(), 2);
    /* Truncated lines are found out and converted anew. */
    for (size_t i = 0; i < 3; i++) {
        (void)begin_case(NULL);
        make_counting_reader();
        expect_rows(same, rows, 1);
        find_kept(kept, sizeof kept);
        assert_int_equal(truncate(kept, sizes[i]), 0);
        expect_rows(same, rows, 1);
        assert_int_equal(count_calls(), 2);
        expect_rows(same, rows, 1);
        assert_int_equal(count_calls(), 2);
    }
    /* Without a place for them nothing is kept. */
    (void)scratch_write("cache-file", "");
    assert_int_equal(setenv("XDG_CACHE_HOME", scratch_path("cache-file"), 1),
                     0);
    expect_rows(same, rows, 1);
    expect_rows(same, rows, 1);
    assert_int_equal(count_calls(), 4);
}

/* XDG_CACHE_HOME and HOME name a place if they are absolute, the former first;
 * without one nothing is kept, and nothing is written where the run began. */
static void lines_are_kept_in_the_users_cache(void **state)
{
    (void)state;
    static const char *const rows[] = { "{\"a\":null}" };
    static const struct {
        const char *cache; /* a name in the scratch folder; NULL: not set */
        const char *home;
        const char *kept; /* NULL: nowhere */
    } cases[] = {
        { "/c", "/h", "c/xray/rows" },
        { NULL, "/h", "h/.cache/xray/rows" },
        { "", "/h", "h/.cache/xray/rows" },
        { "c", "/h", "h/.cache/xray/rows" },
        { NULL, "h", NULL },
        { "c", "h", NULL },
        { NULL, NULL, NULL },
    };
    char before[4096];
    const char *home = getenv("HOME");
    (void)snprintf(before, sizeof before, "%s", home ? home : "");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *const values[] = { cases[i].cache, cases[i].home };
        static const char *const names[] = { "XDG_CACHE_HOME", "HOME" };
        (void)begin_case(NULL);
        make_counting_reader();
        assert_int_equal(xr_dir_remove(scratch_path("c"), NULL), XRAY_OK);
        assert_int_equal(xr_dir_remove(scratch_path("h"), NULL), XRAY_OK);
        for (size_t k = 0; k < 2; k++) {
            const char *value = values[k];
            assert_int_equal(!value ? unsetenv(names[k])
                             : *value == '/'
                                 ? setenv(names[k], scratch_path(value + 1), 1)
                                 : setenv(names[k], value, 1),
                             0);
        }
        const char *path = scratch_write("kept.parquet", "PAR1 kept");
        expect_rows(path, rows, 1);
        expect_rows(path, rows, 1);
        assert_int_equal(count_calls(), cases[i].kept ? 1 : 2);
        if (cases[i].kept)
            assert_true(xr_path_is_dir(scratch_path(cases[i].kept)));
        assert_false(xr_path_exists("c/xray") || xr_path_exists("h/.cache"));
    }
    assert_int_equal(home ? setenv("HOME", before, 1) : unsetenv("HOME"), 0);
}

/* Writes a file in the format that its name ends with. */
static const char *pack_file(const char *name, const char *text, size_t size)
{
    static char path[512];
    xr_text_out out;
    (void)snprintf(path, sizeof path, "%s", scratch_path(name));
    (void)unlink(path);
    assert_int_equal(xr_text_begin(path, NULL, &out), XRAY_OK);
    assert_int_equal(xr_text_append(&out, text, size, NULL), XRAY_OK);
    assert_int_equal(xr_text_finish(&out, NULL), XRAY_OK);
    return path;
}

static void expect_refusal(const char *path, const char *want)
{
    xr_err err = { "" };
    xr_source source;
    assert_int_equal(xr_source_open(path, NULL, &err, &source), XRAY_E_CONFIG);
    assert_string_equal(err.text + strlen(scratch_dir()) + 1, want);
}

static void compressed_files_are_unpacked_for_their_reader(void **state)
{
    (void)state;
    static const char *const rows[] = { "{\"a\":null}" };
    static const char *const arrow_rows[] = { "{\"b\":2}" };
    static const char *const names[] = { "rows.parquet.gz", "rows.parquet.zst",
                                         "other-name.gz" };
    make_counting_reader();
    for (size_t i = 0; i < 3; i++)
        expect_rows(pack_file(names[i], "PAR1 packed", 11), rows, 1);
    assert_int_equal(count_calls(), 2); /* two of them have the same bytes */
    expect_rows(scratch_path("rows.parquet.zst"), rows, 1);
    assert_int_equal(count_calls(), 2);
    make_program("python3", "[ \"$(wc -c)\" = 200004 ] && echo '{\"b\":2}'");
    static char stream[200004] = "\xff\xff\xff\xff";
    expect_rows(pack_file("stream.arrow.zst", stream, sizeof stream),
                arrow_rows, 1);
    expect_rows(pack_file("stream.arrow.gz", stream, sizeof stream), arrow_rows,
                1);
    /* An error names the file as the user does. */
    make_program("duckdb", "echo 'no footer' >&2; exit 1");
    expect_refusal(pack_file("bad.parquet.gz", "PAR1 bad", 8),
                   "bad.parquet.gz: duckdb ended with code 1: no footer ");
}

/* Numbers that JSON has not are no values; in a text they are text. */
static void numbers_beyond_json_are_no_values(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{\"a\":null,\"b\":[null,-1,null],\"t\":\"NaN \\\" -Infinity\"}",
        "{\"a\":null,\"b\":[],\"t\":\"\\\\\",\"n\":null}"
    };
    make_program("duckdb",
                 "cat <<'END'\n"
                 "{\"a\":NaN,\"b\":[-NaN,-1,Infinity],"
                 "\"t\":\"NaN \\\" -Infinity\"}\n"
                 "{\"a\":-Infinity,\"b\":[],\"t\":\"\\\\\",\"n\":NaN}\n"
                 "END");
    expect_rows(scratch_write("numbers.parquet", "PAR1"), rows, 2);
}

/* The first bytes make a file one of columns, whatever its name is, and nothing
 * short of them does. */
static void first_bytes_tell_columns_from_lines(void **state)
{
    (void)state;
    static const char *const read[] = { "{\"a\":1}" };
    static const char *const heads[] = { "PAR1", "ARROW1", "FEA1",
                                         "\xff\xff\xff\xff" };
    make_program("duckdb", "echo '{\"a\":1}'");
    make_program("python3", "echo '{\"a\":1}'");
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        char text[16];
        xr_err err = { "" };
        int found = 0;
        expect_rows(scratch_write("plain.jsonl", heads[i]), read, 1);
        (void)snprintf(text, sizeof text, "%.*s", (int)strlen(heads[i]) - 1,
                       heads[i]);
        assert_int_equal(
            xr_columns_find(scratch_write("plain.jsonl", text), &err, &found),
            XRAY_OK);
        assert_int_equal(found, 0);
        (void)snprintf(text, sizeof text, "{%s", heads[i]);
        assert_int_equal(
            xr_columns_find(scratch_write("plain.jsonl", text), &err, &found),
            XRAY_OK);
        assert_int_equal(found, 0);
    }
}

/* DuckDB reads the user's init file unless it is given another one, and it
 * would load extensions for what it reads. */
static void readers_heed_no_settings_of_the_user(void **state)
{
    (void)state;
    static const char *const rows[] = { "{\"a\":1}" };
    make_program(
        "duckdb",
        "init=~/.duckdbrc\n"
        "while [ $# -gt 0 ]; do\n"
        "case $1 in -init) init=$2; shift;; -c) code=$2; shift;; esac\n"
        "shift\ndone\n"
        "[ \"$init\" = /dev/null ] || exit 3\n"
        "for key in autoinstall autoload; do\n"
        "case $code in *SET\\ ${key}_known_extensions=false*COPY*);;"
        "*) exit 4;; esac\ndone\n"
        "echo '{\"a\":1}'");
    expect_rows(scratch_write("alone.parquet", "PAR1 alone"), rows, 1);
}

static void missing_and_failing_readers_are_named(void **state)
{
    (void)state;
    char path[300];
    (void)snprintf(path, sizeof path, "%s", scratch_write("a.parquet", "PAR1"));
    expect_refusal(path, "a.parquet: Parquet is read by DuckDB or by pyarrow, "
                         "and neither is here; pip install duckdb-cli, or "
                         "pip install pyarrow");
    expect_refusal(scratch_write("a.feather", "ARROW1"),
                   "a.feather: Arrow files are read by pyarrow in python3, "
                   "which is not here; pip install pyarrow");
    make_program("duckdb", "echo 'no magic bytes' >&2; exit 1");
    expect_refusal(path,
                   "a.parquet: duckdb ended with code 1: no magic bytes ");
    make_program("python3", "echo 'worse' >&2; exit 1");
    expect_refusal(path,
                   "a.parquet: duckdb ended with code 1: no magic bytes ");
    /* The next reader may know what the first one does not. */
    static const char *const rows[] = { "{\"a\":1}" };
    make_program("python3", "echo '{\"a\":1}'");
    expect_rows(path, rows, 1);
}

/* ---- programs ----------------------------------------------------------- */

static xray_status run_script(const char *script, double seconds, xr_err *err,
                              xr_str *out)
{
    const char *argv[] = { "sh", "-c", script, NULL };
    const xr_child child = { .name = argv[0],
                             .argv = argv,
                             .seconds = seconds };
    *err = (xr_err){ "" };
    return xr_child_run(&child, NULL, err, out);
}

static void programs_end_in_time_or_are_killed(void **state)
{
    (void)state;
    xr_err err;
    xr_str out = { 0 };
    assert_int_equal(
        run_script("i=0; while [ $i -lt 20000 ]; do echo 123456789; echo e "
                   ">&2; i=$((i+1)); done",
                   60, &err, &out),
        XRAY_OK);
    assert_int_equal(out.size, 200000);
    assert_int_equal(run_script("sleep 600 & sleep 600", 0.3, &err, &out),
                     XRAY_E_IO);
    assert_string_equal(err.text, "sh took longer than 0 s");
    assert_int_equal(run_script("exec >&- 2>&-; sleep 600", 0.3, &err, &out),
                     XRAY_E_IO);
    assert_int_equal(run_script("kill -9 $$", 60, &err, &out), XRAY_E_IO);
    assert_string_equal(err.text, "sh was ended by signal 9");
    assert_int_equal(run_script("exit 4", 60, &err, &out), XRAY_E_IO);
    assert_string_equal(err.text, "sh ended with code 4: it gave no reason");
    const char *argv[] = { "/none/such", NULL };
    const xr_child child = { .name = argv[0], .argv = argv, .seconds = 1 };
    assert_int_equal(xr_child_run(&child, NULL, &err, &out),
                     XRAY_E_UNSUPPORTED);
    xr_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(parquet_gives_its_rows_by_either_reader,
                               begin_case),
        cmocka_unit_test_setup(arrow_gives_its_rows, begin_case),
        cmocka_unit_test_setup(rows_are_converted_once, begin_case),
        cmocka_unit_test_setup(lines_are_kept_in_the_users_cache, begin_case),
        cmocka_unit_test_setup(compressed_files_are_unpacked_for_their_reader,
                               begin_case),
        cmocka_unit_test_setup(numbers_beyond_json_are_no_values, begin_case),
        cmocka_unit_test_setup(first_bytes_tell_columns_from_lines, begin_case),
        cmocka_unit_test_setup(readers_heed_no_settings_of_the_user,
                               begin_case),
        cmocka_unit_test_setup(missing_and_failing_readers_are_named,
                               begin_case),
        cmocka_unit_test_setup(programs_end_in_time_or_are_killed, begin_case),
    };
    return cmocka_run_group_tests(tests, set_up, scratch_drop);
}
