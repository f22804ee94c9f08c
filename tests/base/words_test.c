/* SPDX-License-Identifier: Apache-2.0
 *
 * Command lines are cut into words as written, without a shell.
 */
#include "core/base/words.h"
#include "tests/testing.h"

/* Cuts the text and joins the words with bars. */
static const char *cut_text(const char *text)
{
    static const xr_word_value values[] = { { "host", "a b'c\"" },
                                            { "address", "tcp:1" } };
    static char out[1024];
    char **words = NULL;
    xr_err err = { "" };
    if (xr_words_cut(text, values, 2, &err, &words) != XRAY_OK) {
        (void)snprintf(out, sizeof(out), "%s", err.text);
        return out;
    }
    size_t at = 0;
    for (size_t i = 0; words[i]; i++)
        at += (size_t)snprintf(out + at, sizeof(out) - at, "%s|", words[i]);
    free(words);
    return out;
}

static void words_are_cut_at_blanks(void **state)
{
    (void)state;
    assert_string_equal(cut_text("ssh -q node"), "ssh|-q|node|");
    assert_string_equal(cut_text("  ssh\t\n node  "), "ssh|node|");
    assert_string_equal(cut_text("a$b;c&d `e` \\f *"), "a$b;c&d|`e`|\\f|*|");
}

static void quotes_make_one_word(void **state)
{
    (void)state;
    assert_string_equal(cut_text("sh -c 'a \"b\"  c'"), "sh|-c|a \"b\"  c|");
    assert_string_equal(cut_text("a\"b 'c\"d'e f'g"), "ab 'cde fg|");
    assert_string_equal(cut_text("a '' \"\""), "a|||");
    assert_string_equal(cut_text("a 'b"), "has a quote that does not end");
    assert_string_equal(cut_text("a \"b'"), "has a quote that does not end");
    assert_string_equal(cut_text(" \t"), "is empty");
    assert_string_equal(cut_text(""), "is empty");
}

/* A value stays in the word in which its name stands. */
static void values_are_put_in(void **state)
{
    (void)state;
    assert_string_equal(cut_text("ssh {host} x {address}"),
                        "ssh|a b'c\"|x|tcp:1|");
    assert_string_equal(cut_text("-o{host}= '{address} {host}'"),
                        "-oa b'c\"=|tcp:1 a b'c\"|");
    assert_string_equal(cut_text("{hosts} {ho {} ${address}"),
                        "{hosts}|{ho|{}|$tcp:1|");
}

static void words_are_copied_with_one_behind_them(void **state)
{
    (void)state;
    static const char *const words[] = { "ssh", "", "a b", NULL };
    char **copy = xr_words_copy(words, "last");
    assert_non_null(copy);
    for (size_t i = 0; words[i]; i++) {
        assert_string_equal(copy[i], words[i]);
        assert_ptr_not_equal(copy[i], words[i]);
    }
    assert_string_equal(copy[3], "last");
    assert_null(copy[4]);
    free(copy);
    copy = xr_words_copy(words + 3, "only");
    assert_non_null(copy);
    assert_string_equal(copy[0], "only");
    assert_null(copy[1]);
    free(copy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_cut_at_blanks),
        cmocka_unit_test(quotes_make_one_word),
        cmocka_unit_test(values_are_put_in),
        cmocka_unit_test(words_are_copied_with_one_behind_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
