/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves reading through DuckDB's C library, which the suite makes itself: the
 * rows, its errors, and that a call can be ended.
 */
#include <dirent.h>

#include "core/base/library.h"
#include "core/data/duckdb.h"
#include "tests/scratch.h"

static size_t count_descriptors(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count;
}

/* Counts what the library made for its caller and did not get back. */
static int count_held(void)
{
    static const char *const names[] = { "duckdb_count_held" };
    union {
        void *symbol;
        int (*count)(void);
    } found;
    assert_true(xr_library_find("libduckdb.so", names, 1, &found.symbol));
    return found.count();
}

static xray_status read_file(const char *text, const xray_call_service *calls,
                             xr_err *err, xr_str *out)
{
    size_t before = count_descriptors();
    *err = (xr_err){ "" };
    xray_status status =
        xr_duckdb_read(scratch_write("rows'; .parquet", text), calls, err, out);
    assert_int_equal(count_descriptors(), before);
    assert_int_equal(count_held(), 0);
    return status;
}

static void rows_are_appended(void **state)
{
    (void)state;
    xr_err err;
    xr_str out = { 0 };
    xr_str_puts(&out, "before\n");
    if (read_file("PAR1\nrows\n{\"a\":1}\n{\"a\":2}\n", NULL, &err, &out) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    assert_string_equal(xr_str_text(&out), "before\n{\"a\":1}\n{\"a\":2}\n");
    assert_int_equal(read_file("PAR1\nrows\n", NULL, &err, &out), XRAY_OK);
    assert_string_equal(xr_str_text(&out), "before\n{\"a\":1}\n{\"a\":2}\n");
    xr_str_free(&out);
}

static void errors_are_the_first_line(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        { "PAR1\nunprepared\n", "libduckdb: Parser Error: no" },
        { "PAR1\nnothing pending\n", "libduckdb: Invalid Error: half of it" },
        { "PAR1\ntask fails\n", "libduckdb: Invalid Error: half of it" },
        { "PAR1\nsilent\n", "libduckdb: it gives no reason" },
        { "PAR1\nresult fails\n", "libduckdb: IO Error: no result" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xr_err err;
        xr_str out = { 0 };
        assert_int_equal(read_file(cases[i].text, NULL, &err, &out), XRAY_E_IO);
        assert_string_equal(err.text, cases[i].want);
        assert_int_equal(out.size, 0);
        xr_str_free(&out);
    }
    xr_err err = { "" };
    xr_str out = { 0 };
    assert_int_equal(
        xr_duckdb_read(scratch_path("nowhere.parquet"), NULL, &err, &out),
        XRAY_E_IO);
    assert_non_null(strstr(err.text, "nowhere.parquet"));
}

/* Of the settings, the last one may fail: a library without time zones does not
 * know it. */
static void databases_that_cannot_be_used_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "open", "libduckdb: no database in memory can be opened" },
        { "connect", "libduckdb: its database takes no connection" },
        { "SET autoinstall_known_extensions=false",
          "libduckdb: SET autoinstall_known_extensions=false" },
        { "SET autoload_known_extensions=false",
          "libduckdb: SET autoload_known_extensions=false" },
        { "SET TimeZone='UTC'", NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        xr_err err;
        xr_str out = { 0 };
        assert_int_equal(setenv("XRAY_FAKE_DUCKDB", cases[i][0], 1), 0);
        assert_int_equal(read_file("PAR1\nrows\n{}\n", NULL, &err, &out),
                         cases[i][1] ? XRAY_E_IO : XRAY_OK);
        assert_int_equal(unsetenv("XRAY_FAKE_DUCKDB"), 0);
        assert_string_equal(err.text, cases[i][1] ? cases[i][1] : "");
        assert_string_equal(xr_str_text(&out), cases[i][1] ? "" : "{}\n");
        xr_str_free(&out);
    }
}

/* Counts down to the end of the call. */
static uint32_t end_soon(const xray_call_service *service)
{
    int *left = service->host_data;
    return --*left < 0;
}

static void calls_can_be_ended(void **state)
{
    (void)state;
    int left = 5;
    const xray_call_service calls = {
        .header = XRAY_HEADER(xray_call_service),
        .host_data = &left,
        .stopping = end_soon,
    };
    xr_err err;
    xr_str out = { 0 };
    assert_int_equal(read_file("PAR1\nlong\n", &calls, &err, &out),
                     XRAY_E_CANCELED);
    assert_int_equal(left, -1);
    xr_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_appended),
        cmocka_unit_test(errors_are_the_first_line),
        cmocka_unit_test(databases_that_cannot_be_used_are_named),
        cmocka_unit_test(calls_can_be_ended),
    };
    return cmocka_run_group_tests_name("data.duckdb", tests, scratch_make,
                                       scratch_drop);
}
