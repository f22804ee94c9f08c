/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of samples has lines of the given width, whatever a model writes,
 * and nothing in it moves the cursor.
 */
#include <string.h>

#include "core/monitor/samples_table.h"
#include "tests/testing.h"

static void expect_row(const xr_shown_sample *sample, unsigned columns,
                       const char *want)
{
    xr_str out = { 0 };
    xr_samples_table_row(sample, columns, &out);
    assert_string_equal(xr_str_text(&out), want);
    xr_str_free(&out);
}

static xr_shown_sample shown(const char *prompt, const char *answer,
                             const char *truth, double score)
{
    return (xr_shown_sample){ prompt,         strlen(prompt), answer,
                              strlen(answer), truth,          score };
}

/* Of 60 columns 8 are the score's, 6 are blanks, and 46 are 18, 19 and 9. */
static void texts_are_cut_to_their_columns(void **state)
{
    (void)state;
    xr_shown_sample s = shown("1+2=", "3", "3", 1);
    expect_row(&s, 60,
               "       1  1+2=                3                    3\n");
    s = shown("abcdefghijklmnopqrs", "abcdefghijklmnopqrst", "0123456789",
              0.25);
    expect_row(&s, 60,
               "    0.25  \xe2\x80\xa6"
               "cdefghijklmnopqrs  abcdefghijklmnopqr\xe2\x80\xa6  "
               "01234567\xe2\x80\xa6\n");
    /* What just fits is whole. */
    s = shown("bcdefghijklmnopqrs", "bcdefghijklmnopqrst", "123456789", -2);
    expect_row(&s, 60,
               "      -2  bcdefghijklmnopqrs  bcdefghijklmnopqrst  "
               "123456789\n");
    expect_row(&s, 10,
               "      -2  bcdefghijklmnopqrs  bcdefghijklmnopqrst  "
               "123456789\n");
}

/* A wide character has two columns, and an accent of its own none. */
static void columns_are_those_of_the_terminal(void **state)
{
    (void)state;
    xr_shown_sample s =
        shown("p",
              "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad"
              "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad",
              "e\xcc\x81", 0);
    expect_row(&s, 60,
               "       0  p                   "
               "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad"
               "\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad\xe2\x80\xa6"
               "  e\xcc\x81\n");
}

static void nothing_moves_the_cursor(void **state)
{
    (void)state;
    static const char answer[] = "a\nb\tc\rd\x1b[2J\xc2\x9b\xe2\x80\xae\xff";
    xr_shown_sample s = shown("p", answer, "", 0);
    expect_row(&s, 120,
               "       0  p                                           "
               "a\\nb\\tc\xef\xbf\xbd"
               "d\xef\xbf\xbd[2J\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\n");
}

/* Each kind of character that is not shown as it is: controls, formatting,
 * private and unassigned ones, separators of lines and paragraphs. */
static void hidden_characters_are_replaced(void **state)
{
    (void)state;
    static const char *const hidden[] = {
        "\x07",         "\x7f",         "\xc2\x9b",
        "\xe2\x80\x8b", "\xee\x80\x80", "\xcd\xb8",
        "\xe2\x80\xa8", "\xe2\x80\xa9", "\xff",
    };
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++) {
        char answer[16];
        (void)snprintf(answer, sizeof answer, "a%sb", hidden[i]);
        xr_shown_sample s = shown("p", answer, "", 0);
        expect_row(&s, 60,
                   "       0  p                   a\xef\xbf\xbd"
                   "b\n");
    }
}

/* Lines of a text stay lines; its other characters are shown as in a table. */
static void lines_of_a_text_are_indented(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *want;
    } rows[] = {
        { "", "  \n" },
        { "a", "  a\n" },
        { "a\n", "  a\n" },
        { "a\nb\tc", "  a\n  b\\tc\n" },
        { "\n\na", "  \n  \n  a\n" },
        { "\x1b[2J\xe2\x80\xa8", "  \xef\xbf\xbd[2J\xef\xbf\xbd\n" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        xr_str out = { 0 };
        xr_shown_text(rows[i].text, strlen(rows[i].text), "  ", &out);
        assert_string_equal(xr_str_text(&out), rows[i].want);
        xr_str_free(&out);
    }
}

static void the_head_names_the_columns(void **state)
{
    (void)state;
    xr_str out = { 0 };
    xr_samples_table_head(70, &out);
    assert_string_equal(xr_str_text(&out),
                        "   score  prompt                  answer"
                        "                   ground tru\xe2\x80\xa6\n");
    xr_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_cut_to_their_columns),
        cmocka_unit_test(columns_are_those_of_the_terminal),
        cmocka_unit_test(nothing_moves_the_cursor),
        cmocka_unit_test(hidden_characters_are_replaced),
        cmocka_unit_test(lines_of_a_text_are_indented),
        cmocka_unit_test(the_head_names_the_columns),
    };
    return cmocka_run_group_tests_name("data.samples_table", tests, NULL, NULL);
}
