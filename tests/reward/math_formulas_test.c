/* SPDX-License-Identifier: Apache-2.0
 *
 * Formulas of a response: which delimiters open and close one, which formulas
 * are joined to a list, and where each ends.
 */
#include "plugins/reward-rule/math_find.h"
#include "tests/reward/fence.h"
#include "tests/testing.h"

typedef struct row {
    const char *text;
    size_t at;
    const char *want; /* the formulas, separated by bars, % after a percent */
    size_t end;       /* of the last formula */
} row;

static rule_math work;

static void check_rows(const row *rows, size_t count, int boxed)
{
    int bad = 0;
    for (size_t i = 0; i < count; i++) {
        rule_scan scan;
        rule_formula list[RULE_CHAIN];
        char got[128] = "";
        size_t size = 0;
        rule_scan_open(&scan, fence_string(rows[i].text));
        unsigned found = rule_formulas_at(&scan, rows[i].at, boxed, list);
        for (unsigned k = 0; k < found; k++) {
            int wrote =
                snprintf(got + size, sizeof(got) - size, "%s%.*s%s",
                         k ? "|" : "", (int)list[k].inside.size,
                         list[k].inside.data, list[k].percent ? "%" : "");
            assert_true(wrote > 0);
            size += (size_t)wrote;
            assert_true(size < sizeof(got));
        }
        size_t end = found ? list[found - 1].end : 0;
        if (strcmp(got, rows[i].want) != 0 || end != rows[i].end) {
            print_error("'%s': '%s' to %zu\n", rows[i].text, got, end);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}
#define CHECK(rows, boxed) \
    check_rows(rows, sizeof(rows) / sizeof((rows)[0]), boxed)

static void delimiters_open_and_close_a_formula(void **state)
{
    static const row rows[] = {
        { "$x$", 0, "x", 3 },
        { "$x$  y", 0, "x", 5 },
        { "a$x$", 1, "x", 4 },
        { "a$x$", 0, "", 0 },
        { "3$x$", 1, "", 0 },
        { "\\$x$", 1, "", 0 },
        { "$a\\$b$", 0, "a\\$b", 6 },
        { "$x", 0, "", 0 },
        { "$$", 0, "", 0 },
        { "$$a$b$$", 0, "a$b", 7 },
        { "z$$a$$", 1, "a", 6 },
        { "$$$$", 0, "", 0 },
        { "$a\nb$", 0, "", 0 },
        { "$$a\nb$$", 0, "a\nb", 7 },
        { "\\[a\nb\\]", 0, "a\nb", 7 },
        { "\\(a\nb\\)", 0, "", 0 },
        { "\\(ab\\) c", 0, "ab", 7 },
        { "\\(a\\\\)", 0, "", 0 },
        { "\\\\(a\\)", 1, "", 0 },
        { " [x] ", 0, "x", 5 },
        { "\n[xy]\n.", 0, "xy", 6 },
        { " [x].", 0, "", 0 },
        { " [x]", 0, "", 0 },
        { " [] ", 0, "", 0 },
        { " [a[b] ", 0, "", 0 },
        { " [a\n] ", 0, "", 0 },
        { "[ x] ", 1, "", 0 },
        { "[x] ", 0, "", 0 },
    };
    (void)state;
    CHECK(rows, 0);
}

static void a_fraction_of_numbers_needs_no_delimiters(void **state)
{
    static const row rows[] = {
        { "\\frac{3}{4}", 0, "\\frac{3}{4}", 11 },
        { "\\frac{3}{4}x", 0, "\\frac{3}{4}", 11 },
        { "a-\\frac{30}{4} b", 1, "-\\frac{30}{4}", 15 },
        { "\\frac{-3.5}{1,000}", 0, "\\frac{-3.5}{1,000}", 18 },
        { "\\frac{3.}{4}", 0, "", 0 },
        { "\\frac{3}{4.}", 0, "", 0 },
        { "\\frac{}{4}", 0, "", 0 },
        { "\\frac{-}{4}", 0, "", 0 },
        { "\\frac{a}{4}", 0, "", 0 },
        { "\\frac{3}{4", 0, "", 0 },
        { "\\frac34", 0, "", 0 },
        { "-3", 0, "", 0 },
    };
    (void)state;
    CHECK(rows, 0);
}

static void a_percent_sign_belongs_to_the_formula_before_it(void **state)
{
    static const row rows[] = {
        { "$5$\\%", 0, "5%", 5 },
        { "$5$ % x", 0, "5%", 5 },
        { "$5$ percent of", 0, "5%", 11 },
        { "$5$Percent", 0, "5%", 10 },
        { "$5$pct.", 0, "5%", 6 },
        { "$5$\nPct", 0, "5%", 7 },
        { "$5$ PERCENT", 0, "5", 4 },
        { "$5$ per", 0, "5", 4 },
        { "$1$\\%, $2$", 0, "1%|2", 10 },
        { "$1$, $2$\\%", 0, "1|2%", 10 },
        { "$1$\\% and $2$", 0, "1%|2", 13 },
        { "$1$ pct\n, $2$", 0, "1%|2", 13 },
        { "$1$\\% $2$", 0, "1%", 5 },
    };
    (void)state;
    CHECK(rows, 0);
}

static void commas_and_words_join_formulas(void **state)
{
    static const row rows[] = {
        { "$1$, $2$", 0, "1|2", 8 },
        { "$1$,$2$", 0, "1|2", 7 },
        { "$1$ ,\n$2$", 0, "1|2", 9 },
        { "$1$ and $2$", 0, "1|2", 11 },
        { "$1$or$2$", 0, "1|2", 8 },
        { "$1$,or$2$", 0, "1|2", 9 },
        { "$1$,and $2$", 0, "1|2", 11 },
        { "$1$, \\(2\\) and $$3$$", 0, "1|2|3", 20 },
        { "$1$, [2] ", 0, "1|2", 9 },
        { "$1$,[2] ", 0, "1", 3 },
        { "$1$, \\frac{1}{2}", 0, "1|\\frac{1}{2}", 16 },
        { "$1$; $2$", 0, "1", 3 },
        { "$1$ $2$", 0, "1", 4 },
        { "$1$, 2", 0, "1", 3 },
        { "$1$, x$2$", 0, "1", 3 },
        { "$1$,$2$,$3$,$4$,$5$,$6$,$7$", 0, "1|2|3|4|5|6", 23 },
    };
    (void)state;
    CHECK(rows, 0);
}

static void a_box_in_a_formula_must_hold_something(void **state)
{
    static const row rows[] = {
        { "$\\boxed{5}$", 0, "\\boxed{5}", 11 },
        { "$x=\\boxed{5}+1$", 0, "x=\\boxed{5}+1", 15 },
        { "a $\\boxed{5}$", 2, "\\boxed{5}", 13 },
        { "$\\boxed{}$", 0, "", 0 },
        { "$\\boxed{5$", 0, "", 0 },
        { "$} \\boxed{55$", 0, "", 0 },
        { "$x$ \\boxed{5}", 0, "", 0 },
        { "$x$", 0, "", 0 },
        { "\\frac{3}{4}", 0, "", 0 },
        { " [\\boxed{5}] ", 0, "\\boxed{5}", 13 },
        { "$\\boxed{1}$, $\\boxed{2}$", 0, "\\boxed{1}|\\boxed{2}", 24 },
        { "$\\boxed{1}$, $2$", 0, "\\boxed{1}", 11 },
    };
    (void)state;
    CHECK(rows, 1);
}

/* Marks are remembered from one offset to the next; the answers must not depend
 * on the order in which offsets are asked. */
static void every_order_of_offsets_gives_the_same_formulas(void **state)
{
    static const char text[] =
        "$1$ \\(2\\) \\[3\\] $$4$$\n$5\n$ \\boxed{6} $7$, "
        "$8$ \\(9 [0] ";
    rule_scan forward;
    rule_scan backward;
    rule_formula a[RULE_CHAIN];
    rule_formula b[RULE_CHAIN];
    (void)state;
    rule_scan_open(&backward, rule_text_of(text));
    for (size_t at = sizeof(text); at-- > 0;) {
        memset(&forward, 0xA5, sizeof(forward));
        rule_scan_open(&forward, rule_text_of(text));
        unsigned count = rule_formulas_at(&forward, at, 0, a);
        assert_int_equal(rule_formulas_at(&backward, at, 0, b), count);
        for (unsigned i = 0; i < count; i++) {
            assert_ptr_equal(a[i].inside.data, b[i].inside.data);
            assert_int_equal(a[i].inside.size, b[i].inside.size);
            assert_int_equal(a[i].end, b[i].end);
        }
    }
}

/* The answers of a response, by kind; NULL stands for no answer. */
static void answers_are_read_from_prose_and_formulas(void **state)
{
    static const struct {
        const char *text;
        unsigned kinds;
        const char *want;
    } rows[] = {
        { "so 5 and $6$", RULE_KIND_LATEX, "6" },
        { "so 5 and \\(6\\)", RULE_KIND_NUMBER, "5" },
        { "so $6$ and 5", 7, "5" },
        { "answer: 4, or 5", 7, "5" },
        { "\\boxed{3} then $4$", 7, "4" },
        { "$50$\\% is it", 3, "50\\%" },
        { "$1$\\%, $2$", 3, "1\\%, 2" },
        { "$1$, $2$\\%", 3, "1, 2\\%" },
        { "$1$\\%, $x+$, $3$", 1, "1\\%" },
        { "$1$, $2$ and $3$", 3, "1, 2, 3" },
        { "$a=b=c+$", 3, "a=b=c+" },
        { "it is 12,345,678 now", 3, "12345678" },
        { "it is 1 234 now", 3, "1234" },
        { "it is -1,234.50.", 3, "-1234.50" },
        { "it is .5 now", 3, ".5" },
        { "it is -.5 now", 3, NULL },
        { "it is **-5** now", 3, "-5" },
        { "it is 7 pct now", 3, "7\\%" },
        { "it is \xC2\xA5"
          "7",
          3, "7" },
        { "it is \xE0\xB8\xBF"
          "7",
          3, "7" },
        { "it is (1+2)/3, yes", 3, "(1+2)/3" },
        { "it is -(1+2), so", 3, "-(1+2)" },
        { "it is 1/2: so", 3, "1/2" },
        { "it is 1 + 2 + x", 3, "2" },
        { "The final answer is 7. I hope it is 8", 3, "7" },
        { "The final answer is 7.  I hope it is 8", 3, "7" },
        { "final answer is 1. I hope. final answer is 2. I hope", 3, "2" },
        { "Final Answer is $3$. I hope", 3, "3" },
        { "final answer:\nx is 7\nand 8", 3, "8" },
        { "ANSWER: 7", 3, "7" },
        { "answer: $x$ or $y$", 3, "x, y" },
        { "the answer is 3 + 4 = 7 = 7", 3, "7" },
        { "\\boxed{1} or \\boxed{2}", 3, "1, 2" },
        { "\\boxed{\\frac{1}{2}}", 3, "\\frac{1}{2}" },
        { "\\boxed{ 5 }", 3, "5" },
        { "\\boxed{1} and so on and \\fbox{2}", 3, "1, 2" },
        { "\\boxed{1} sand \\boxed{2}", 3, "1, 2" },
        { "\\boxed{1} is a thousand \\boxed{2}", 3, "2" },
        { "\\boxed{5", 3, NULL },
        { "x [7] y", RULE_KIND_LATEX, "7" },
        { "x[7] y", RULE_KIND_LATEX, NULL },
        { "x [7]y", RULE_KIND_LATEX, NULL },
        { "x -[7] y", RULE_KIND_LATEX, NULL },
        { "x [] y", RULE_KIND_LATEX, NULL },
        { "x [7\n] y", RULE_KIND_LATEX, NULL },
        { "\\comb{3}{4}", RULE_KIND_LATEX, NULL },
        { "\\frac{3}{4}", RULE_KIND_LATEX, "\\frac{3}{4}" },
        { "x -\\frac{3}{4}", RULE_KIND_LATEX, "-\\frac{3}{4}" },
        { "\\frac{3}4", RULE_KIND_LATEX, NULL },
        { "\\frac{}{4}", RULE_KIND_LATEX, NULL },
        { "\\boxed{}", 3, NULL },
    };
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int found =
            rule_find_answer(&work, fence_string(rows[i].text), rows[i].kinds);
        rule_text got = rule_buffer_text(&work.a);
        if (found != (rows[i].want != NULL) ||
            (found && !rule_equal(got, rule_text_of(rows[i].want), 0))) {
            print_error("'%s': '%.*s'\n", rows[i].text,
                        found ? (int)got.size : 0, got.data);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* A truth with a formula is that formula; one without is read as a whole. */
static void a_truth_is_its_formula(void **state)
{
    static const char *const marked[] = { "x $5$", "x $$5$$", "x \\(5\\)",
                                          "x \\[5\\]", "x \\boxed{5}" };
    (void)state;
    for (size_t i = 0; i < sizeof(marked) / sizeof(marked[0]); i++) {
        rule_find_truth(&work, fence_string(marked[i]));
        if (!rule_equal(rule_buffer_text(&work.a), rule_text_of("5"), 0))
            fail_msg("'%s': '%.*s'", marked[i], (int)work.a.size, work.a.data);
    }
    rule_find_truth(&work, fence_string(" 5 x "));
    assert_true(rule_equal(rule_buffer_text(&work.a), rule_text_of("5 x"), 0));
}

/* Sums in prose are read as Python reads them. */
static void sums_have_the_form_of_python(void **state)
{
    static const char *const good[] = {
        "1",    "1.5",     ".5",   "1.",     "1+2",         "-1",
        "--1",  "1 + 2",   "2**3", "2^3",    "1/2*3-4",     "(1)",
        "+(1)", "((1+2))", "1/-2", "2*(-3)", "(1+2)*(3+4)", "1.5*2.5",
    };
    static const char *const bad[] = {
        "",   ".",   "1..2", "1.2.3", "1+",  "(1",    "1)",   "()",
        "*1", "1 2", "1++",  "1***2", "x+1", "1,000", "1(2)", "(1+.)",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!rule_is_python_sum(rule_text_of(good[i])))
            fail_msg("'%s' is a sum", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (rule_is_python_sum(rule_text_of(bad[i])))
            fail_msg("'%s' is no sum", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(delimiters_open_and_close_a_formula),
        cmocka_unit_test(a_fraction_of_numbers_needs_no_delimiters),
        cmocka_unit_test(a_percent_sign_belongs_to_the_formula_before_it),
        cmocka_unit_test(commas_and_words_join_formulas),
        cmocka_unit_test(a_box_in_a_formula_must_hold_something),
        cmocka_unit_test(every_order_of_offsets_gives_the_same_formulas),
        cmocka_unit_test(answers_are_read_from_prose_and_formulas),
        cmocka_unit_test(a_truth_is_its_formula),
        cmocka_unit_test(sums_have_the_form_of_python),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
