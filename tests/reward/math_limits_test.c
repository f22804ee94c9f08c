/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of parsing and evaluating math answers: an answer of just the
 * limit is compared by its value, and beyond it only identical texts are equal,
 * so that no part of an answer is left out of a comparison.
 */
#include "core/base/str.h"
#include "tests/reward/math_pairs.h"

/* An answer with `n` pieces. A '#' is the number of the piece, outside of the
 * pieces n. */
typedef struct form {
    const char *before;
    const char *piece;
    const char *inner;
    const char *close; /* one for each piece */
    const char *after;
} form;

typedef struct limit {
    form a;
    form b; /* has the same value */
    size_t most;
} limit;

static void add_numbered(const char *text, size_t number, xr_str *out)
{
    for (; text && *text; text++)
        if (*text == '#')
            xr_str_printf(out, "%zu", number);
        else
            xr_str_append(out, text, 1);
}

static void write_answer(const form *f, size_t n, xr_str *out)
{
    xr_str_clear(out);
    add_numbered(f->before, n, out);
    for (size_t i = 1; i <= n; i++)
        add_numbered(f->piece, i, out);
    add_numbered(f->inner, n, out);
    for (size_t i = n; i; i--)
        add_numbered(f->close, i, out);
    add_numbered(f->after, n, out);
}

static int is_equal_both_ways(const form *a, const form *b, size_t n)
{
    xr_str x = { 0 };
    xr_str y = { 0 };
    write_answer(a, n, &x);
    write_answer(b, n, &y);
    int equal = are_equal(xr_str_text(&x), xr_str_text(&y));
    int back = are_equal(xr_str_text(&y), xr_str_text(&x));
    if (equal != back)
        fail_msg("%zu times %s in one direction alone", n, a->piece);
    xr_str_free(&x);
    xr_str_free(&y);
    return equal;
}

static void check_limits(const limit *rows, size_t count)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++)
        for (size_t over = 0; over < 2; over++) {
            const limit *row = &rows[i];
            int equal = is_equal_both_ways(&row->a, &row->b, row->most + over);
            if (equal == (over == 0))
                continue;
            bad++;
            print_error("%zu times: %s: %s%s...%s\n", row->most + over,
                        equal ? "equal" : "unequal", row->a.before,
                        row->a.piece ? row->a.piece : "",
                        row->a.inner ? row->a.inner : "");
        }
    assert_int_equal(bad, 0);
}
#define CHECK(rows) check_limits(rows, sizeof(rows) / sizeof((rows)[0]))

/* Nesting counts all levels on the way down: those of the list, the sum, the
 * product and the factor between two brackets. */
static void depth_has_a_bound(void **state)
{
    static const limit rows[] = {
        { { "", "(", "7", ")" }, { "7" }, 15 },
        { { "", "{", "7", "}" }, { "7" }, 15 },
        { { "", "\\left(", "7", "\\right)" }, { "7" }, 15 },
        { { "", "\\sqrt{", "1", "}" }, { "1" }, 15 },
        { { "", "\\sqrt", "1" }, { "1" }, 44 },
        { { "", "\\frac{1}{", "1", "}" }, { "1" }, 15 },
        { { "", "--", "7" }, { "7" }, 23 },
        { { "", "1^{", "1", "}" }, { "1" }, 15 },
        { { "1", "^1" }, { "1" }, 49 },
        { { "", "\\sin ", "0" }, { "0" }, 23 },
        { { "", "\\sin(", "0", ")" }, { "0" }, 15 },
        { { "1", "!" }, { "1" }, 48 },
        { { "1e99", "\\%" }, { "1e99" }, 48 },
        { { "", "\\lfloor ", "7", "\\rfloor " }, { "7" }, 15 },
        { { "", "\\text{", "7", "}" }, { "7" }, 15 },
        { { "", "\\boxed{", "7", "}" }, { "7" }, 15 },
        { { "", "f(", "7", ")" }, { "", "f(", "8-1", ")" }, 15 },
        { { "", "|1+", "0", "|" }, { "#" }, 15 },
        { { "", "(", "\\begin{pmatrix}7&8\\end{pmatrix}", ")" },
          { "\\begin{pmatrix}7&8\\end{pmatrix}" },
          14 },
        { { "\\begin{pmatrix}8&", "(", "7", ")", "\\end{pmatrix}" },
          { "\\begin{pmatrix}8&7\\end{pmatrix}" },
          14 },
    };
    (void)state;
    CHECK(rows);
}

static void parts_of_an_answer_have_a_bound(void **state)
{
#define ROW(entries) "\\begin{pmatrix}" entries "\\end{pmatrix}"
    static const limit rows[] = {
        /* Both answers have 1535 nodes. */
        { { "7", "+0" }, { "7" }, 1532 },
        { { "7", "\\cdot 1" }, { "7" }, 128 },
        { { "7", "(1)" }, { "7" }, 128 },
        /* Names, with y the 64th. */
        { { "", "x_{#}+", "y" }, { "y", "+x_{#}" }, 63 },
        { { "", "f_{#}(1)+", "y" }, { "y", "+f_{#}(1)" }, 63 },
        { { "", "#,", "7a" }, { "3a+4a", ",#" }, 63 },
        { { "\\{", "#,", "7a", "", "\\}" },
          { "\\{3a+4a", ",#", "", "", "\\}" },
          63 },
        /* Two items each. */
        { { "0", ",\\pm #" }, { "", "\\pm #,", "1-1" }, 31 },
        { { "\\begin{pmatrix}", "#&", "7", "", "\\end{pmatrix}" },
          { "\\begin{pmatrix}", "#&", "8-1", "", "\\end{pmatrix}" },
          63 },
        { { "\\begin{pmatrix}", "#\\\\", "7", "", "\\end{pmatrix}" },
          { "\\begin{pmatrix}", "#\\\\", "8-1", "", "\\end{pmatrix}" },
          63 },
        /* Products of 64 and of 60 entries, and of 68 and 65. */
        { { "\\begin{pmatrix}", "1\\\\", "1", "",
            "\\end{pmatrix}" ROW("1&1&1&1") },
          { "2\\begin{pmatrix}", ".5\\\\", ".5", "",
            "\\end{pmatrix}" ROW("1&1&1&1") },
          15 },
        { { "\\begin{pmatrix}", "1\\\\", "1", "",
            "\\end{pmatrix}" ROW("1&1&1&1&1") },
          { "2\\begin{pmatrix}", ".5\\\\", ".5", "",
            "\\end{pmatrix}" ROW("1&1&1&1&1") },
          11 },
        /* 64 sides. */
        { { "", "x+y<", "2x" }, { "", "x+y<", "x+x" }, 63 },
        { { "\\text{", "a", "", "", "}+1" },
          { "1+\\text{", "a", "", "", "}" },
          16375 },
    };
    (void)state;
    CHECK(rows);
}

static void numbers_have_bounds(void **state)
{
    static const limit rows[] = {
        { { "1e#" }, { "10^{#}" }, 300 },
        { { "1e-#" }, { "10^{-#}" }, 300 },
        { { "2^{#}\\cdot 3" }, { "3\\cdot 2^{#}" }, 1100 },
        { { "2^{1100}\\cdot 2^{#}" }, { "2^{#}\\cdot 2^{1100}" }, 19 },
        { { "1", "0" }, { "10^{#}" }, 337 },
        { { "0.", "0", "1" }, { "10^{-#}/10" }, 299 },
        { { "\\binom{1010}{#}" }, { "1\\cdot\\binom{1010}{#}" }, 1000 },
        { { "(-#.5)!\\pi" }, { "\\pi\\cdot(-#.5)!" }, 19 },
        { { "(#.5)!/\\pi" }, { "\\frac{1}{\\pi}(#.5)!" }, 169 },
    };
    static const pair unequal[] = {
        { "\\binom{400}{40}", "\\binom{400}{40}+1" },
        { "2^{1100}", "2^{1100}+1" },
        { "187!", "187!+1" },
    };
    (void)state;
    CHECK(rows);
    UNEQUAL(unequal);
}

/* An answer that differs in its last part alone is another one, however long
 * it is. */
static void the_last_part_counts_at_any_length(void **state)
{
    static const form rows[][2] = {
        { { "", "#,", "x" }, { "", "#,", "y" } },
        { { "\\{", "#,", "x", "", "\\}" }, { "\\{", "#,", "y", "", "\\}" } },
        { { "(", "#,", "x", "", ")" }, { "(", "#,", "y", "", ")" } },
        { { "", "x+y<", "x" }, { "", "x+y<", "y" } },
        { { "", "#:", "x" }, { "", "#:", "y" } },
        { { "x", "+y", "+x" }, { "x", "+y", "+y" } },
        { { "\\begin{pmatrix}", "#&", "7", "", "\\end{pmatrix}" },
          { "\\begin{pmatrix}", "#&", "8", "", "\\end{pmatrix}" } },
        { { "\\text{", "ab ", "x", "", "}" },
          { "\\text{", "ab ", "y", "", "}" } },
        { { "\\text{", "ab", "x", "", "}+1" },
          { "1+\\text{", "ab", "y", "", "}" } },
        { { "", "ab", "x" }, { "", "ab", "y" } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t n = 1; n < 140; n++)
            if (is_equal_both_ways(&rows[i][0], &rows[i][1], n))
                fail_msg("%zu times %s", n, rows[i][0].piece);
    /* Their case does not count, at any length either. */
    const form lower = { "\\text{", "ab ", "x", "", "}" };
    const form upper = { "\\text{", "aB ", "X", "", "}" };
    for (size_t n = 1; n < 140; n++)
        if (!is_equal_both_ways(&lower, &upper, n))
            fail_msg("%zu words", n);
}

/* The power of a negative number has its sign, whatever its size. */
static void powers_of_names_keep_their_sign(void **state)
{
    const form power = { "x^{#}" };
    const form size = { "|x|^{#}" };
    const form turned = { "-(-x)^{#}" };
    (void)state;
    for (size_t n = 1; n < 80; n++) {
        if (is_equal_both_ways(&power, &size, n) != (n % 2 == 0))
            fail_msg("|x|^%zu", n);
        if (is_equal_both_ways(&power, &turned, n) != (n % 2 == 1))
            fail_msg("-(-x)^%zu", n);
    }
}

/* The union of ten intervals whose ends have `terms` terms; `shift` moves its
 * last end. */
static void write_union(size_t terms, const char *shift, xr_str *out)
{
    xr_str_clear(out);
    for (int i = 0; i < 10; i++) {
        xr_str_printf(out, "%s[%d", i ? "\\cup" : "", 3 * i);
        for (size_t k = 0; k < terms; k++)
            xr_str_puts(out, "+0");
        xr_str_printf(out, ",%d%s]", 3 * i + 1, i == 9 ? shift : "");
    }
}

/* Sets whose comparison takes too many steps are not equal, since a difference
 * that was not reached would go unseen. */
static void sets_are_compared_to_the_end_or_unequal(void **state)
{
    static const struct {
        size_t terms;
        const char *shift;
        int equal;
    } rows[] = {
        { 1, "+0", 1 },
        { 1, "+10^{-5}", 0 },
        { 40, "+0", 0 },
        { 40, "+10^{-5}", 0 },
    };
    xr_str a = { 0 };
    xr_str b = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        write_union(rows[i].terms, "", &a);
        write_union(rows[i].terms, rows[i].shift, &b);
        if (are_equal(xr_str_text(&a), xr_str_text(&b)) != rows[i].equal ||
            are_equal(xr_str_text(&b), xr_str_text(&a)) != rows[i].equal)
            fail_msg("%zu terms, %s", rows[i].terms, rows[i].shift);
    }
    xr_str_free(&a);
    xr_str_free(&b);
}

/* Near the tolerance, the numbers that stand for the names decide. They belong
 * to the names, so it does not matter which of the two is the truth. */
static void the_tolerance_is_the_same_in_both_directions(void **state)
{
    const form b = { "x+y+1.0z" };
    int equal = 0;
    (void)state;
    for (size_t n = 300; n < 700; n++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "z+y+1.0000%05zux", n);
        const form c = { text };
        equal += is_equal_both_ways(&c, &b, n);
    }
    assert_in_range(equal, 1, 399);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(depth_has_a_bound),
        cmocka_unit_test(parts_of_an_answer_have_a_bound),
        cmocka_unit_test(numbers_have_bounds),
        cmocka_unit_test(the_last_part_counts_at_any_length),
        cmocka_unit_test(powers_of_names_keep_their_sign),
        cmocka_unit_test(sets_are_compared_to_the_end_or_unequal),
        cmocka_unit_test(the_tolerance_is_the_same_in_both_directions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
