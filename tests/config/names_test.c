/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves which names of sections and keys are accepted, that names which inih
 * would cut off or accept otherwise are refused, and that each value keeps its
 * line and section.
 */
#include "tests/config/config_testing.h"

#define S49 "a234567890123456789012345678901234567890123456789"
#define S245 S49 S49 S49 S49 S49
#define B50 "                         \t                        "
#define BLANKS B50 B50 B50 B50 B50

static xr_config *read_ini(const char *text, xr_errors *errors)
{
    xr_config *config = xr_config_new();
    assert_non_null(config);
    write_text("run.ini", text);
    xr_config_read(config, "run.ini", errors);
    return config;
}

static const char *const bad_names[][2] = {
    { "[" S49 "0]\nk = 1\n", "run.ini:1: the section's name has 50 characters, "
                             "but at most 49 are allowed" },
    { "[" S245 "]\nk = 1\n", "run.ini:1: the section's name has 245 "
                             "characters, but at most 49 are allowed" },
    { "[t]\n" S49 "0 = 1\n",
      "run.ini:2: the key has 50 characters, but at most 49 are allowed" },
    { "[t]\n" S245 " = 1\n",
      "run.ini:2: the key has 245 characters, but at most 49 are allowed" },
    { "[" S245, "run.ini:1: the section's name is not followed by ']'" },
    { "[t]\n" S245, "run.ini:2: expected [section] or key = value" },
    /* inih would see a comment and stay in the previous section. */
    { "[t]\n[t ; x]\nk = 1\n", "run.ini:2: [t ; x] is not a valid section "
                               "name: use letters, digits, '_', '-' and '.'" },
    { "[t]\n[t\nk = 1\n",
      "run.ini:2: the section's name is not followed by ']'" },
    { "[t]\n[t  u]\n", "run.ini:2: [t  u] is not a valid section name: use "
                       "letters, digits, '_', '-' and '.'" },
    { "[t]\nco ;unt = 3\n", "run.ini:2: 'co ;unt' is not a valid key: use "
                            "letters, digits, '_' and '-'" },
    /* inih would take ':' for '='. */
    { "[t]\nk : 3 = 4\n", "run.ini:2: 'k : 3' is not a valid key: use letters, "
                          "digits, '_' and '-'" },
    /* inih would skip the second byte order mark. */
    { "\xEF\xBB\xBF\xEF\xBB\xBFinclude = x\n",
      "run.ini:1: '\xEF\xBB\xBFinclude' is not a valid key: use letters, "
      "digits, '_' and '-'" },
    /* inih would append an indented line to the previous value. */
    { "[t]\nk = 3\n  4\n", "run.ini:3: expected [section] or key = value" },
    { "[t]\nk = \"a\n  b\"\n", "run.ini:2: the quote is not closed on this "
                               "line\nrun.ini:3: expected [section] or key = "
                               "value" },
    { "[t]\nbad\nbad", "run.ini:2: expected [section] or key = value\n"
                       "run.ini:3: expected [section] or key = value" },
};

static void invalid_names_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_names) / sizeof(bad_names[0]); i++) {
        xr_errors errors = { 0 };
        xr_config *config = read_ini(bad_names[i][0], &errors);
        expect_errors(&errors, bad_names[i][1]);
        assert_null(xr_config_get(config, "t", S49));
        assert_null(xr_config_get(config, S49, "k"));
        xr_config_free(config);
    }
}

static void command_line_has_the_same_bound(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    xr_config_set(config, S49 "." S49 "=3", &errors);
    xr_config_set(config, "t." S49 "0=3", &errors);
    xr_config_set(config, S49 "0.k=3", &errors);
    expect_errors(
        &errors,
        "--set t." S49 "0=3: a section or a key has at most 49 characters\n"
        "--set " S49 "0.k=3: a section or a key has at most 49 characters");
    assert_string_equal(xr_config_get(config, S49, S49), "3");
    xr_config_free(config);
}

/* A name may have the 49 characters that inih keeps, and a value any number of
 * them, although inih ends a line at 199. */
static void names_are_bounded_but_values_are_not(void **state)
{
    (void)state;
    enum { LONG = 300000 };
    xr_errors errors = { 0 };
    xr_str ini = { 0 };
    xr_str value = { 0 };
    for (int i = 0; i < LONG / 10; i++)
        xr_str_printf(&value, "%08d; ", i);
    xr_str_printf(&ini, "[" S49 "]\n" S49 " = \"%s\"\nlast = x y\n",
                  xr_str_text(&value));
    xr_config *config = read_ini(xr_str_text(&ini), &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_get(config, S49, S49), xr_str_text(&value));
    assert_string_equal(xr_config_origin(config, S49, S49), "run.ini:2");
    assert_string_equal(xr_config_origin(config, S49, "last"), "run.ini:3");
    assert_string_equal(xr_config_section(config, 0), S49);
    assert_null(xr_config_section(config, 1));
    xr_str_free(&ini);
    xr_str_free(&value);
    xr_config_free(config);
}

/* Blanks around a name do not belong to it, however many there are. */
static void blanks_are_ignored(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config =
        read_ini("\xEF\xBB\xBF[" BLANKS "t" BLANKS "]" BLANKS "; x\n" BLANKS
                 "k" BLANKS "=" BLANKS "far" BLANKS "; x\n",
                 &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_get(config, "t", "k"), "far");
    xr_config_free(config);
}

/* A section without keys is a section, too. A value belongs to its own line and
 * to the section above it, whatever is refused around it. */
static void each_value_keeps_its_line_and_section(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config =
        read_ini("[a]\r\n\r\n[b]\r\n; x\r\none = 1\r\n[c d]\r\nlost = 1\r\n"
                 "[a]\r\n\ttwo = 2\r\nbad\r\nthree = 3\r\n[e]",
                 &errors);
    static const char *const values[][3] = {
        { "b", "one", "run.ini:5" },
        { "a", "two", "run.ini:9" },
        { "a", "three", "run.ini:11" },
    };
    static const char *const sections[] = { "a", "b", "e" };
    for (size_t i = 0; i < 3; i++) {
        assert_non_null(xr_config_get(config, values[i][0], values[i][1]));
        assert_string_equal(
            xr_config_origin(config, values[i][0], values[i][1]), values[i][2]);
        assert_string_equal(xr_config_section(config, i), sections[i]);
    }
    assert_null(xr_config_section(config, 3));
    assert_null(xr_config_get(config, "b", "lost"));
    expect_errors(&errors, "run.ini:6: [c d] is not a valid section name: use "
                           "letters, digits, '_', '-' and '.'\n"
                           "run.ini:10: expected [section] or key = value");
    xr_config_free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invalid_names_are_refused),
        cmocka_unit_test(command_line_has_the_same_bound),
        cmocka_unit_test(names_are_bounded_but_values_are_not),
        cmocka_unit_test(blanks_are_ignored),
        cmocka_unit_test(each_value_keeps_its_line_and_section),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
