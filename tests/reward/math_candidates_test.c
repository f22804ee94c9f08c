/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts of PRM800K's and slime's rules, and the candidates of a response in
 * Math-Verify's order of preference.
 */
#include "core/base/str.h"
#include "plugins/reward-rule/math_find.h"
#include "tests/reward/fence.h"
#include "tests/testing.h"

static rule_math work;

/* ---- PRM800K ------------------------------------------------------------ */

static const struct {
    const char *given;
    const char *truth;
    int right;
} prm800k[] = {
    { "5 degrees", "5", 1 },
    { "5 cm", "5", 1 },
    { "5 centimeters", "5", 1 },
    { "5 meters^2", "5", 1 },
    { "3 cm or 5 cm", "3,5", 1 },
    { "3 meters^2 or 5 meters^2", "3,5", 1 },
    { "\\text{5}", "5", 1 },
    { "\\text{}", "5", 0 },
    { "{5}", "5", 1 },
    { "{x}", "x", 1 },
    { "12^\\circ", "12", 1 },
    { "12^ \\circ", "12", 1 },
    { "1,\\!234", "1234", 1 },
    { "7 3/4", "31/4", 1 },
    { "- 5", "-5", 1 },
    { "2 million", "2*10^6", 1 },
    { "5 miles", "5", 1 },
    { "5 seconds", "5", 1 },
    { "5 minutes", "5", 1 },
    { "5 hours", "5", 1 },
    { "5 days", "5", 1 },
    { "5 weeks", "5", 1 },
    { "5 months", "5", 1 },
    { "5 years", "5", 1 },
    { "5 foot", "5", 1 },
    { "5 feet", "5", 1 },
    { "5 inches", "5", 1 },
    { "5 yards", "5", 1 },
    { "5 furlongs", "5", 0 },
    { "5 billion", "5*10^9", 1 },
    { "5 trillion", "5*10^12", 1 },
    { "3 or 5", "3,5", 1 },
    { "3 and 5", "3 or 5", 1 },
    { "1,234,567", "1234567", 1 },
    { "1,23", "123", 0 },
    { "5.0", "5", 1 },
    { "5.0000000001", "5", 1 },
    { "5.001", "5", 0 },
    { "1/2", "2/4", 0 },
    { "0.5", "1/2", 1 },
    { "x+1", "1+x", 1 },
    { "x+1", "x+2", 0 },
    { "{5}", "5", 1 },
    { "X", "x", 1 },
    { "(1,2)", "(1, 2)", 1 },
    { "(1,2)", "(1,2]", 0 },
    { "[1,2)", "(1,2)", 0 },
    { "(1,2)", "(1,2,3)", 0 },
    { "(1,1/2)", "(1,0.5)", 1 },
    { "(x+1,2)", "(1+x,2)", 1 },
    { "2^{10}", "1024", 0 },
    { "2^3", "8", 0 },
    { "7 3/4", "7+3/4", 1 },
    { "- 5", "-5", 1 },
    { "\\text{abc}", "abc", 1 },
    { "", "5", 0 },
    { "5", "", 0 },
    { "\\sqrt{4}", "2", 0 },
    { "2\\sqrt2", "\\sqrt2*2", 1 },
    { "3^\\circ", "3", 1 },
    { "a+b", "b+a", 1 },
    { "a+b+c", "c+b+a", 0 },
    { "\\sqrt{x}+y", "y+\\sqrt{x}", 1 },
    { "\\sqrt{x}+y+z", "z+y+\\sqrt{x}", 0 },
    { "x+\\sqrt{2}+a", "a+x+\\sqrt{2}", 1 },
    { "sqrtx+y", "y+sqrtx", 1 },
    { "sqrtx+y+z", "z+y+sqrtx", 0 },
    { "fracx+y+z", "z+y+fracx", 0 },
    { "50%", "50", 1 },
    { "50\\%", "50", 1 },
    { "x\\%", "x", 1 },
    { "x^{10}+1", "1+x^{10}", 0 },
    { "1/2+x", "1/2+1x", 1 },
    { "\\$5", "5", 1 },
    { "5.0^\\circ", "5", 1 },
    { "5.0^  \\circ", "5", 1 },
    { "1,\\!000.0", "1000", 1 },
    { "5.0 inchess ^2", "5", 1 },
    { "5.0 cm^22", "5", 1 },
    { "5.0 cm^", "5", 0 },
    { "{5.0}", "5", 1 },
    { "5.0 million", "5*10^6", 1 },
    { "-0.0", "0", 1 },
    { "+5.0", "5", 1 },
    { "5e0", "5", 1 },
    { "5.0E+0", "5", 1 },
    { "50e-1", "5", 1 },
    { "5e", "5", 0 },
    { "5.", "5", 1 },
    { ".5", "0.5", 1 },
    { "3/1", "3", 0 },
    { "-1/2", "-2/4", 0 },
    { "1/0", "2/0", 0 },
};

static void prm800k_gives_the_verdicts_of_its_rules(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(prm800k) / sizeof(prm800k[0]); i++) {
        int got = rule_equal_prm800k(&work, rule_text_of(prm800k[i].given),
                                     rule_text_of(prm800k[i].truth));
        if (got != prm800k[i].right)
            print_error("%s for %s: %d\n", prm800k[i].given, prm800k[i].truth,
                        got);
        bad += got != prm800k[i].right;
    }
    assert_int_equal(bad, 0);
}

/* slime cuts the decimals of the truth, never of the answer. */
static void slime_cuts_only_the_truth(void **state)
{
    static const struct {
        const char *given;
        const char *truth;
        int right;
    } rows[] = {
        { "12", "12.0", 1 },
        { "12", "12.7", 1 },
        { "-12", "-12.7", 1 },
        { "12.0", "12", 0 },
        { "12", "12.", 1 },
        { "12", "12.x", 0 },
        { "1e3", "1e3", 1 },
        { "+12", "+12.5", 1 },
        { ".5", ".5", 1 },
        { "12<|im_end|>", "12", 1 },
        { "12<|endoftext|>", "12", 1 },
        { "12", "12<|im_end|>", 1 },
        { "12<|end|>", "12", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rule_equal_slime(&work, rule_text_of(rows[i].given),
                             rule_text_of(rows[i].truth)) != rows[i].right)
            fail_msg("%s for %s", rows[i].given, rows[i].truth);
}

/* ---- Math-Verify's order ------------------------------------------------- */

static void candidates_are_tried_in_order(void **state)
{
    static const struct {
        const char *text;
        const char *want; /* NULL: nothing */
    } rows[] = {
        { "The final answer is 5. I hope so. Answer: 6", "5" },
        { "The final answer is: $5$. I hope so. \\boxed{6}", "5" },
        { "The final answer is 5. Then \\boxed{6}", "6" },
        { "\\boxed{6}. The final answer is 5.", "5" },
        { "The final answer to that is 5. Answer: 6", "5" },
        { "The final answer to this 6 th sum is 5.", "5" },
        { "Answer: 5 but the answer 6", "5" },
        { "answer 5, not 6", "5" },
        { "5 then 6", "6" },
        { "$5$ then $6$", "6" },
        { "$5$ then 6.", "6" },
        { "3/4", "3/4" },
        { "it is 1,234.5 now", "1234.5" },
        { "it is 2,74 now", "2.74" },
        { "it is 50 % now", "50\\%" },
        { "it is 50 Percent now", "50\\%" },
        { "it is $50 now", "50" },
        { "it is \xC2\xA3"
          "50 now",
          "50" },
        { "it is \xE2\x82\xAC"
          "50 now",
          "50" },
        { "x=5", "5" },
        { "x5", NULL },
        { "**5**", "5" },
        { "it is -5.", "-5" },
        { "it is 3 + 4 now", "3 + 4" },
        { "it is 2 * (3 + 4) now", "2 * (3 + 4)" },
        { "it is 3\xC3\x97"
          "4.",
          "3" },
        { "answer is 3 + 4 = 7", "7" },
        { "\\[5\\]", "5" },
        { "\\(5\\)", "5" },
        { "$$5$$", "5" },
        { "\\$5 and \\$6", NULL },
        { "\\boxed{1}, \\boxed{2}", "1, 2" },
        { "\\boxed{1} and \\boxed{2}", "1, 2" },
        { "\\boxed{1}; \\boxed{1}", "1" },
        { "\\boxed{1} it is not so but it is \\boxed{2}", "2" },
        { "\\boxed{a=b=c+}", "a=b=c+" },
        { "\\boxed{1} \\boxed{2}", "1, 2" },
        { "\\boxed{a+=b}", "a+=b" },
        { "\\boxed{a+=b=5}", "5" },
        { "it is 0,123 now", "0.123" },
        { "the answer 3\n= 4", "4" },
        { "final answer, after 3 steps, is: 7", "7" },
        { "final answer,\nafter $3$ steps, is $5$", "5" },
        { "the answer is 3\nand 5 = 7", "3" },
        { "no number", NULL },
        { "", NULL },
    };
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        int found = rule_find_answer(&work, fence_string(rows[i].text),
                                     RULE_KIND_LATEX | RULE_KIND_NUMBER);
        rule_text got = rule_buffer_text(&work.a);
        if (found != (rows[i].want != NULL) ||
            (found && !rule_equal(got, rule_text_of(rows[i].want), 0))) {
            print_error("'%s': '%.*s', not '%s'\n", rows[i].text,
                        found ? (int)got.size : 0, got.data,
                        rows[i].want ? rows[i].want : "(none)");
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

/* Two boxes are one list if fewer than 10 bytes lie between them, or fewer than
 * 70 with a separator, which a word may not run into. The expected values are
 * those of extract_boxed_content in latex2sympy2_extended. */
static void boxes_are_joined_over_gaps(void **state)
{
    static const struct {
        const char *gap; /* before as many "x" as make `size` bytes */
        size_t size;
        const char *want;
    } rows[] = {
        { "", 9, "1, 2" },
        { "", 10, "2" },
        { ",", 20, "1, 2" },
        { ",", 69, "1, 2" },
        { ",", 70, "2" },
        { ";", 69, "1, 2" },
        { " and ", 69, "1, 2" },
        { " and ", 70, "2" },
        { " or ", 69, "1, 2" },
        { " or ", 70, "2" },
        { " band ", 20, "2" },
        { " andy ", 20, "2" },
        { " 2and ", 20, "2" },
        { " and2 ", 20, "2" },
        { " _and ", 20, "2" },
        { " and_ ", 20, "2" },
        { " xxxxxxxxxx or", 14, "1, 2" },
        { " xxxxxxxxx and", 14, "1, 2" },
        { " AND ", 20, "2" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char text[128];
        char fill[70];
        size_t more = rows[i].size - strlen(rows[i].gap);
        memset(fill, 'x', sizeof(fill));
        (void)snprintf(text, sizeof(text), "\\boxed{1}%s%.*s\\boxed{2}",
                       rows[i].gap, (int)more, fill);
        int found = rule_find_answer(&work, fence_string(text),
                                     RULE_KIND_LATEX | RULE_KIND_NUMBER);
        rule_text got = rule_buffer_text(&work.a);
        if (!found || !rule_equal(got, rule_text_of(rows[i].want), 0))
            fail_msg("%s: '%.*s', not '%s'", text, (int)got.size, got.data,
                     rows[i].want);
    }
}

/* `before`, `count` times `piece` and `after`; what is found with one more
 * piece is another. */
static void answers_are_looked_for_within_bounds(void **state)
{
    static const struct {
        const char *before, *piece, *after;
        size_t most;
        const char *want, *beyond;
    } rows[] = {
        /* Characters between the announcement and the answer. */
        { "the answer:", "\xC3\xA9", " 7, not 8", 50, "7", "8" },
        { "final answer", "x", " is 7; then 8", 100, "7", "8" },
        { "the answer ", "x", "= 5, not 8", 99, "5", "8" },
        /* Formulas that cannot be read, after one that can. */
        { "$x$", " $+)$", "", 31, "x", "+)" },
    };
    (void)state;
    for (size_t i = 0; i < 2 * (sizeof(rows) / sizeof(rows[0])); i++) {
        xr_str text = { 0 };
        xr_str_puts(&text, rows[i / 2].before);
        for (size_t n = 0; n < rows[i / 2].most + i % 2; n++)
            xr_str_puts(&text, rows[i / 2].piece);
        xr_str_puts(&text, rows[i / 2].after);
        const char *want = i % 2 ? rows[i / 2].beyond : rows[i / 2].want;
        int found = rule_find_answer(&work, fence_string(xr_str_text(&text)),
                                     RULE_KIND_LATEX | RULE_KIND_NUMBER);
        rule_text got = rule_buffer_text(&work.a);
        if (!found || !rule_equal(got, rule_text_of(want), 0))
            fail_msg("%s: '%.*s', not '%s'", xr_str_text(&text),
                     found ? (int)got.size : 0, got.data, want);
        xr_str_free(&text);
    }
    /* A list has the last 32 boxes. */
    for (int count = 31; count <= 33; count++) {
        xr_str text = { 0 };
        xr_str want = { 0 };
        for (int n = 1; n <= count; n++) {
            xr_str_printf(&text, "\\boxed{%d},", n);
            if (n > count - 32)
                xr_str_printf(&want, "%s%d", want.size ? ", " : "", n);
        }
        assert_true(rule_find_answer(&work, fence_string(xr_str_text(&text)),
                                     RULE_KIND_LATEX | RULE_KIND_NUMBER));
        assert_int_equal(work.a.size, want.size);
        assert_memory_equal(work.a.data, want.data, want.size);
        xr_str_free(&text);
        xr_str_free(&want);
    }
}

/* What is found overwrites all that is known of the number before it. */
static void numbers_and_sums_keep_nothing(void **state)
{
    static const struct {
        const char *text;
        int sum, decimal, percent;
        size_t end;
    } rows[] = { { "3 + 4", 1, 0, 0, 5 },    { "7%", 0, 0, 1, 2 },
                 { "7", 0, 0, 0, 1 },        { "2,74", 0, 1, 0, 4 },
                 { "7 \n %", 0, 0, 1, 5 },   { "7 percent of", 0, 0, 1, 9 },
                 { "7Percent", 0, 0, 1, 8 }, { "7\tpct.", 0, 0, 1, 5 },
                 { "2,74 Pct", 0, 1, 1, 8 }, { "7 PERCENT", 0, 0, 0, 1 },
                 { "7 per", 0, 0, 0, 1 } };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        rule_scan scan;
        rule_prose out;
        memset(&out, 0x55, sizeof(out));
        rule_text text = fence_string(rows[i].text);
        rule_scan_open(&scan, text);
        int found = rows[i].sum ? rule_sum_at(&scan, 0, RULE_TAIL_ANY, &out)
                                : rule_number_at(&scan, 0, RULE_TAIL_ANY, &out);
        assert_int_equal(found, 1);
        assert_ptr_equal(out.value.data, text.data);
        assert_int_equal(out.sum, rows[i].sum);
        assert_int_equal(out.decimal, rows[i].decimal);
        assert_int_equal(out.percent, rows[i].percent);
        assert_int_equal(out.end, rows[i].end);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_and_sums_keep_nothing),
        cmocka_unit_test(prm800k_gives_the_verdicts_of_its_rules),
        cmocka_unit_test(slime_cuts_only_the_truth),
        cmocka_unit_test(candidates_are_tried_in_order),
        cmocka_unit_test(boxes_are_joined_over_gaps),
        cmocka_unit_test(answers_are_looked_for_within_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
