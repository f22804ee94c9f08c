/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves order, depth and locations of files that include others, and how files
 * are treated that cannot be read.
 */
#include <sys/stat.h>

#include "tests/config/config_testing.h"

static void write_numbered(int i, const char *text)
{
    char name[32];
    (void)snprintf(name, sizeof(name), "f%d.ini", i);
    write_text(name, text);
}

static void remove_numbered(int count)
{
    for (int i = 0; i < count; i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "f%d.ini", i);
        assert_int_equal(unlink(name), 0);
    }
}

/* The value read last holds; one file may set what another file sets. */
static void later_lines_override_earlier_ones(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_numbered(0, "[t]\na = zero\nb = zero\nc = zero\nd = zero\n");
    write_numbered(1, "include = f0.ini\n[t]\nb = one\nc = one\n");
    write_numbered(2, "[t]\nc = two\n");
    write_text("run.ini", "include = f1.ini\ninclude = f2.ini\n"
                          "include = f0.ini\n[t]\nd = run\n");
    xr_config_read(config, "run.ini", &errors);
    expect_errors(&errors, "");
    /* f0 is read twice, and the second reading holds. */
    assert_string_equal(xr_config_get(config, "t", "a"), "zero");
    assert_string_equal(xr_config_get(config, "t", "b"), "zero");
    assert_string_equal(xr_config_get(config, "t", "c"), "zero");
    assert_string_equal(xr_config_get(config, "t", "d"), "run");
    assert_string_equal(xr_config_origin(config, "t", "b"), "f0.ini:3");
    assert_string_equal(xr_config_origin(config, "t", "d"), "run.ini:5");
    xr_config_free(config);
    config = xr_config_new();
    write_text("run.ini", "include = f1.ini\ninclude = f2.ini\n[t]\nd = run\n");
    xr_config_read(config, "run.ini", &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_origin(config, "t", "a"), "f0.ini:2");
    assert_string_equal(xr_config_origin(config, "t", "b"), "f1.ini:3");
    assert_string_equal(xr_config_origin(config, "t", "c"), "f2.ini:2");
    assert_string_equal(xr_config_path(config), "run.ini");
    assert_int_equal(xr_config_unread(config), 0);
    xr_config_free(config);
    remove_numbered(3);
}

static void files_are_nested_sixteen_deep(void **state)
{
    (void)state;
    for (int deep = 16; deep <= 17; deep++) {
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        for (int i = 0; i < deep; i++) {
            char text[64];
            (void)snprintf(text, sizeof(text),
                           i + 1 < deep ? "include = f%d.ini\n"
                                        : "[t]\nlast = %d\n",
                           i + 1);
            write_numbered(i, text);
        }
        write_text("run.ini", "include = f0.ini\n[t]\nfirst = 1\n");
        xr_config_read(config, "run.ini", &errors);
        expect_errors(&errors, deep == 16 ? ""
                                          : "f15.ini:1: include: files include "
                                            "each other more than 16 deep");
        assert_true((xr_config_get(config, "t", "last") != NULL) ==
                    (deep == 16));
        assert_string_equal(xr_config_get(config, "t", "first"), "1");
        xr_config_free(config);
        remove_numbered(deep);
    }
}

/* Unreadable files are remembered, because missing keys may be in them. */
static const struct unread {
    const char *ini;
    const char *other;
    const char *said;
} unread[] = {
    { "include =\n[t]\nk = v\n", "", "run.ini:1: include names no file" },
    { "include = none.ini\n[t]\nk = v\n", "",
      "run.ini:1: include: none.ini: cannot open: No such file or directory" },
    { "include = other.ini\n[t]\nk = v\n", "include = run.ini\n",
      "other.ini:1: include: run.ini includes itself" },
    { "include = other.ini\n[t]\nk = v\n", "PAR1....",
      "other.ini: this is a Parquet file; [data] train_files takes it, and "
      "xray "
      "data convert FILE OUT.jsonl makes JSON lines of it" },
    { "include = .\n[t]\nk = v\n", "",
      "run.ini:1: include: .: this is a folder, but a regular file is "
      "expected" },
};

static void unreadable_files_are_remembered(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(unread) / sizeof(unread[0]); i++) {
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        write_text("run.ini", unread[i].ini);
        write_text("other.ini", unread[i].other);
        xr_config_read(config, "run.ini", &errors);
        expect_errors(&errors, unread[i].said);
        assert_int_equal(xr_config_unread(config), 1);
        assert_string_equal(xr_config_get(config, "t", "k"), "v");
        xr_config_free(config);
    }
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    xr_config_read(config, "none.ini", &errors);
    expect_errors(&errors, "none.ini: cannot open: No such file or directory");
    assert_int_equal(xr_config_unread(config), 1);
    xr_config_free(config);
}

/* Any other key there is refused, and the file that it names is not read. */
static void only_include_stands_before_a_section(void **state)
{
    (void)state;
    static const char *const names[] = { "INCLUDE",  "Include",   "includes",
                                         "includ",   "include2",  "include-",
                                         "xinclude", "in-clude_", "count" };
    write_text("other.ini", "[t]\nother = read\n");
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char text[128];
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        (void)snprintf(text, sizeof(text), "%s = other.ini\n[t]\nk = v\n",
                       names[i]);
        write_text("run.ini", text);
        xr_config_read(config, "run.ini", &errors);
        (void)snprintf(text, sizeof(text),
                       "run.ini:1: %s is set before the first section, where "
                       "only include is allowed",
                       names[i]);
        expect_errors(&errors, text);
        assert_null(xr_config_get(config, "t", "other"));
        assert_string_equal(xr_config_get(config, "t", "k"), "v");
        assert_int_equal(xr_config_unread(config), 0);
        xr_config_free(config);
    }
}

/* Errors in some lines leave the other lines of the file in force. */
static void bad_line_is_left_out(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_text("run.ini",
               "[t]\r\na = 1\r\nb = \"x\r\nc = 3\n[bad name]\nd = 4\n"
               "[t]\ne = 5\ttab\nf = \x7f\n\x1f = 6\ng = 7");
    xr_config_read(config, "run.ini", &errors);
    expect_errors(&errors,
                  "run.ini:3: the quote is not closed on this line\n"
                  "run.ini:5: [bad name] is not a valid section name: use "
                  "letters, digits, '_', '-' and '.'\n"
                  "run.ini:10: the line holds the control character 0x1f");
    assert_string_equal(xr_config_get(config, "t", "a"), "1");
    assert_null(xr_config_get(config, "t", "b"));
    assert_string_equal(xr_config_get(config, "t", "c"), "3");
    assert_null(xr_config_get(config, "t", "d"));
    assert_string_equal(xr_config_get(config, "t", "e"), "5\ttab");
    assert_string_equal(xr_config_get(config, "t", "f"), "\x7f");
    assert_string_equal(xr_config_get(config, "t", "g"), "7");
    assert_string_equal(xr_config_origin(config, "t", "g"), "run.ini:11");
    assert_null(xr_config_section(config, 1));
    assert_int_equal(xr_config_unread(config), 0);
    xr_config_free(config);
}

static void cycle_may_begin_at_a_later_file(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_numbered(0, "include = f1.ini\n");
    write_numbered(1, "include = f0.ini\n");
    write_text("run.ini", "include = f0.ini\n");
    xr_config_read(config, "run.ini", &errors);
    expect_errors(&errors, "f1.ini:1: include: f0.ini includes itself");
    xr_config_free(config);
    remove_numbered(2);
}

static void key_has_at_most_49_characters(void **state)
{
    (void)state;
    char key[67] = "";
    char text[256];
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    memset(key, 'k', 66);
    (void)snprintf(text, sizeof(text), "[t]\n%.49s = v\n%.50s = v\n", key, key);
    write_text("run.ini", text);
    xr_config_read(config, "run.ini", &errors);
    expect_errors(
        &errors,
        "run.ini:3: the key has 50 characters, but at most 49 are allowed");
    key[49] = '\0';
    assert_string_equal(xr_config_get(config, "t", key), "v");
    xr_config_free(config);
}

static void huge_file_is_refused(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_text("run.ini", "[t]\n");
    assert_int_equal(truncate("run.ini", (64 << 20) + 1), 0);
    xr_config_read(config, "run.ini", &errors);
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0], "limit of 67108864 bytes"));
    assert_int_equal(xr_config_unread(config), 1);
    xr_errors_free(&errors);
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(later_lines_override_earlier_ones),
        cmocka_unit_test(files_are_nested_sixteen_deep),
        cmocka_unit_test(unreadable_files_are_remembered),
        cmocka_unit_test(only_include_stands_before_a_section),
        cmocka_unit_test(bad_line_is_left_out),
        cmocka_unit_test(cycle_may_begin_at_a_later_file),
        cmocka_unit_test(key_has_at_most_49_characters),
        cmocka_unit_test(huge_file_is_refused),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
