/* SPDX-License-Identifier: Apache-2.0
 *
 * Our own equality of math answers: which answers are equal and which are not.
 */
#include "tests/reward/math_pairs.h"

static const pair equal[] = {
    /* numbers */
    { "0.5", "\\frac{1}{2}" },
    { ".5", "1/2" },
    { "\\{x \\mid x > 1, x < 3\\}", "(1,3)" },
    { "\\{x \\in [0,9] \\mid x > 1\\}", "(1,9]" },
    { "\\{x \\in \\mathbb{R} \\mid x > 1, x < 3\\}", "(1,3)" },
    { "\\{x > 0 \\mid x < 3\\}", "(0,3)" },
    { "\\{x \\in \\mathbb{Z} \\mid 1 < x < 4\\}",
      "\\{x \\in \\mathbb{Z} \\mid 1<x<4\\}" },
    { "2|x|", "|2x|" },
    { "5\\text{m}", "5" },
    { "5\\mathrm{cm}", "5" },
    { "\\text{(A)}", "A" },
    { "\\sin^{-1}(1)", "\\pi/2" },
    { "\\cos^{-1}(0)", "\\pi/2" },
    { "\\tan^{-1}(1)", "\\pi/4" },
    { "\\log_2(8)", "3" },
    { "\\log_{2} 8", "3" },
    { "\\varnothing", "\\emptyset" },
    { "0^{1/2}", "0" },
    { "(\\sqrt{9})!", "6" },
    { "\\binom{\\sqrt{25}}{2}", "10" },
    { "\\binom{\\sqrt{25}}{\\sqrt{4}}", "10" },
    { "\\binom{x}{2}", "x(x-1)/2" },
    { "2^{4294967296/4294967296}", "2" },
    { "2\\frac{x}{3}", "2x/3" },
    { "2\\frac{3}{x}", "6/x" },
    { "7 /4", "7/4" },
    { "e^{i\\pi}", "-1" },
    { "-\\begin{pmatrix}1\\\\2\\end{pmatrix}",
      "\\begin{pmatrix}-1\\\\-2\\end{pmatrix}" },
    { "x^{10} \\bmod 7", "x^{10} \\bmod (6+1)" },
    { "(-17) \\bmod 5", "3" },
    { "2{x}", "2x" },
    { "x+10^6-10^6-x", "0" },
    { "2y=\\ln(x^2)", "y=\\ln x" },
    { "\\pm 1 \\mp 2", "1, -1" },
    { "\\pm 1 \\pm 2", "3, -3" },
    { "1 \\pm 2 \\mp 3", "0, 2" },
    { "3e+x", "x+3e" },
    { "x \\in [1,5] \\text{ and } x < 3", "[1,3)" },
    { "(-\\infty,\\infty)", "\\mathbb{R}" },
    { "3 \\pmod{5}", "3" },
    { "\\begin{pmatrix}1/3\\\\0.5\\end{pmatrix}",
      "\\begin{pmatrix}0.333333\\\\1/2\\end{pmatrix}" },
    { "-\\frac12", "\\frac{-1}{2}" },
    { "\\frac{2}{4}", "0.50" },
    { "1,234,567", "1234567" },
    { "1{,}234", "1234" },
    { "12,\\!345", "12345" },
    { "10\\,000", "10000" },
    { "3.0", "3" },
    { "1\\frac{3}{4}", "\\frac74" },
    { "-1\\frac{3}{4}", "-1.75" },
    { "1 3/4", "7/4" },
    { "1.5e3", "1500" },
    { "2.5 \\times 10^{-3}", "0.0025" },
    { "1e400", "1e400" },
    { "0.\\overline{3}", "\\frac13" },
    { "0.1\\overline{6}", "1/6" },
    { "2^{100}", "1267650600228229401496703205376" },
    { "5!", "120" },
    { "\\binom{5}{2}", "10" },
    { "0.333333", "\\frac13" },
    { "3.1415927", "\\pi" },
    { "+7", "7" },
    { "\xE2\x88\x92"
      "7",
      "-7" },
    /* units, currency, percent, degrees */
    { "\\$25", "25" },
    { "$25$", "25" },
    { "25\\text{ cm}", "25" },
    { "25\\text{ cm}^2", "25" },
    { "25 \\mathrm{~km}", "25" },
    { "25 square meters", "25" },
    { "25 apples", "25" },
    { "90^\\circ", "90" },
    { "90^{\\circ}", "90\xC2\xB0" },
    { "50\\%", "50" },
    { "50\\%", "0.5" },
    { "50 percent", "50\\%" },
    { "3 \\text{ million}", "3000000" },
    { "9 \\pmod{11}", "9" },
    /* roots, powers, constants, functions */
    { "\\sqrt{8}", "2\\sqrt2" },
    { "\\sqrt{8}", "2 \\sqrt{2}" },
    { "sqrt(8)", "2sqrt(2)" },
    { "\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}" },
    { "\\sqrt[3]{-8}", "-2" },
    { "\\sqrt[3]{x}^2", "x^{2/3}" },
    { "2\\pi r", "2r\\pi" },
    { "2\\pi", "2pi" },
    { "e^2", "e \\cdot e" },
    { "i^2", "-1" },
    { "3+4i", "4i+3" },
    { "\\frac{1}{i}", "-i" },
    { "\\sin^2 x + \\cos^2 x", "1" },
    { "\\sin 2x", "2\\sin x\\cos x" },
    { "\\sin(x)\\cos(x)", "\\frac12\\sin(2x)" },
    { "\\tan x", "\\frac{\\sin x}{\\cos x}" },
    { "\\sin^{-1}(1)", "\\frac{\\pi}{2}" },
    { "\\sin 30^\\circ", "\\frac12" },
    { "\\ln e", "1" },
    { "\\log_2 8", "3" },
    { "\\log 100", "2" },
    { "|{-3}|", "3" },
    { "|x-1|", "|1-x|" },
    { "\\left|-3\\right|", "3" },
    { "\\lfloor 2.7 \\rfloor", "2" },
    { "6 \\div 2", "3" },
    { "2 * 3 ** 2", "18" },
    { "\\text{C}", "C" },
    { "\\text{(C)}", "C" },
    { "\\text{Yes}", "yes" },
    { "\\text{even}", "Even" },
    /* expressions */
    { "(x+1)^2", "x^2+2x+1" },
    { "x(x-1)", "x^2 - x" },
    { "\\frac{x+2}{7}", "\\frac{x}{7}+\\frac{2}{7}" },
    { "ab", "b \\cdot a" },
    { "x_{1}+x_2", "x_2+x_1" },
    { "\\frac{a^2-b^2}{a-b}", "a+b" },
    { "f(x+1)", "f(1+x)" },
    { "\\alpha\\beta", "\\beta \\alpha" },
    { "\\sum_{k=1}^{n} k^2", "\\sum_{k=1}^n k \\cdot k" },
    { "2[3+4]", "14" },
    /* equations */
    { "x=5", "5" },
    { "5=x", "5" },
    { "f(x)=2x+1", "2x+1" },
    { "y=2x+1", "1+2x" },
    { "f^{-1}(x)=2x", "2x" },
    { "x^2+y^2=4", "2x^2+2y^2=8" },
    { "x-2y=3", "2y-x+3=0" },
    { "x=\\sqrt{y-50}", "x-\\sqrt{y-50}=0" },
    { "x \\approx 3", "3" },
    { "\\sqrt{2} \\approx 1.41", "\\sqrt2" },
    { "x = \\sqrt{2} \\approx 1.41", "\\sqrt2" },
    { "\\text{Area} = 12", "12" },
    { "(x,y)=(1,2)", "(1,2)" },
    /* lists, sets, tuples */
    { "1, 2, 3", "3, 2, 1" },
    { "1 \\text{ and } 2", "2, 1" },
    { "1 or 2", "\\{2, 1\\}" },
    { "\\{1,2,2\\}", "\\{2,1\\}" },
    { "x=1, x=2", "2, 1" },
    { "x=1,2", "\\{1,2\\}" },
    { "1 \\pm \\sqrt{2}", "1+\\sqrt2, 1-\\sqrt2" },
    { "\\pm 3", "-3, 3" },
    { "(1, \\frac12)", "(1, 0.5)" },
    { "\\left(1,2\\right)", "(1,2)" },
    { "\\langle 1,2\\rangle", "(1,2)" },
    { "(1;2)", "(1,2)" },
    { "(1,2),(3,4)", "(3,4),(1,2)" },
    { "\\emptyset", "\\{\\}" },
    { "2:4", "1:2" },
    /* intervals and relations */
    { "[1,2)", "1 \\le x < 2" },
    { "x > 3", "(3,\\infty)" },
    { "x>3", "3<x" },
    { "x \\geq 3", "x >= 3" },
    { "x > 2", "(\\sqrt{2}\\sqrt{2},\\infty)" },
    { "-2x < 6", "x > -3" },
    { "x^2 < 4", "(-2,2)" },
    { "|x| \\ge 1", "(-\\infty,-1]\\cup[1,\\infty)" },
    { "x<1 \\text{ or } x>3", "(-\\infty,1) \\cup (3,\\infty)" },
    { "x>1 \\text{ and } x<3", "(1,3)" },
    { "x \\in [1,2]", "[1,2]" },
    { "\\mathbb{R}", "(-\\infty,\\infty)" },
    { "\\mathbb{R} \\setminus \\{0\\}", "(-\\infty,0)\\cup(0,\\infty)" },
    { "x \\ne 0", "(-\\infty,0)\\cup(0,\\infty)" },
    { "(1,2) U (2,3)", "(2,3)\\cup(1,2)" },
    { "[0,1] \\cup [1,2]", "[0,2]" },
    { "[0,3] \\cap [1,5]", "[1,3]" },
    { "a < b < c", "c > b > a" },
    { "\\{x \\mid x>3\\}", "(3,\\infty)" },
    { "\\{x | 1<x, x<2\\}", "(1,2)" },
    { "\\{x \\in \\mathbb{R} \\mid x \\ne 0\\}", "x \\ne 0" },
    { "-\\infty < x < \\infty", "\\mathbb{R}" },
    { "\\{|x|\\}", "\\{|-x|\\}" },
    { "(1,2) \\text{ or } (3,4)", "(1,2)\\cup(3,4)" },
    { "\\text{about }5", "5" },
    /* matrices */
    { "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
      "\\begin{bmatrix} 1 \\\\ 4/2 \\end{bmatrix}" },
    { "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}", "(1,2)" },
    { "2\\begin{pmatrix} 1 & 0 \\\\ 0 & 1 \\end{pmatrix}",
      "\\begin{pmatrix} 2 & 0 \\\\ 0 & 2 \\end{pmatrix}" },
    { "\\begin{pmatrix} 1&2\\\\3&4 \\end{pmatrix}"
      "\\begin{pmatrix} 1&0\\\\0&1 \\end{pmatrix}",
      "\\begin{pmatrix} 1&2\\\\3&4 \\end{pmatrix}" },
    /* names of infinity */
    { "inf", "\\infty" },
    { "Inf", "\\infty" },
    { "-INFINITY", "-\\infty" },
    { "oo", "+\\infty" },
    { "(3, Infinity)", "(3,\\infty)" },
    /* numerals of a base */
    { "1011_2", "1011_{2}" },
    { "204_5", "204" },
    { "17 \\bmod 5", "2" },
    { "\\lim_{x\\to 0} f(x) = 1", "1" },
    { "\\frac{12!}{2!10!}", "\\binom{12}{2}" },
    { "y=5x+3", "5x-y+3=0" },
    { "x=2+3=5", "x=5" },
    { "\\boxed{5}", "5" },
    { "5.", "5" },
    { "**5**", "5" },
};

static const pair unequal[] = {
    { "5\\mathrm{x}", "5" },
    { "5\\mathit{m}", "5" },
    { "333333/1000000", "1/3" },
    { "2^{i}", "1" },
    { "2^{2+i}", "4" },
    { "0^{-1/2}", "0" },
    { "(\\sqrt{9})!", "3" },
    { "\\binom{5}{\\sqrt{2}}", "10" },
    { "\\binom{5}{\\sqrt{2}}", "5" },
    { "\\binom{-2}{\\sqrt{4}}", "1" },
    { "5 \\bmod 0", "5" },
    { "5 \\bmod 0", "0" },
    { "\\begin{pmatrix}2\\\\2\\end{pmatrix}/"
      "\\begin{pmatrix}2\\\\2\\end{pmatrix}",
      "\\begin{pmatrix}1\\\\1\\end{pmatrix}" },
    { "\\begin{pmatrix}1\\\\2\\end{pmatrix}!",
      "\\begin{pmatrix}1\\\\2\\end{pmatrix}" },
    { "2\\frac{x}{3}", "2+x/3" },
    { "\\sin^{-1}(1)", "1/\\sin(1)" },
    { "\\{x \\in [0,9] \\mid x > 1\\}", "(1,\\infty)" },
    { "\\{x \\in [0,9] \\mid x > 1\\}", "\\{x \\mid x > 1\\}" },
    { "\\{x \\in \\mathbb{Z} \\mid 1 < x < 4\\}", "(1,4)" },
    { "\\{x > 0 \\mid x < 3\\}", "x < 3" },
    { "(A)", "(B)" },
    { "(1)", "(2)" },
    { "3e", "3" },
    { "3e+x", "3x" },
    { "1\\frac", "1" },
    { "\\pm 1 \\mp 2", "3, -3" },
    { "\\pm 1 \\pm 2", "1, -1" },
    { "\\langle 1,2\\rangle", "1<x<2" },
    { "\\begin{pmatrix}1/3\\\\1\\end{pmatrix}",
      "\\begin{pmatrix}333333/1000000\\\\1\\end{pmatrix}" },
    { "(1,2)", "(1,2,3)" },
    { "x \\in [1,5] \\text{ and } x < 3", "[1,5]" },
    { "1", "2" },
    { "1", "-1" },
    { "0.33", "\\frac13" },
    { "1e-7", "2e-7" },
    { "0", "1e-7" },
    { "1267650600228229401496703205376", "1267650600228229401496703205377" },
    { "10000000000000001", "10000000000000002" },
    { "50\\%", "5" },
    { "32, 349", "32349" },
    { "(1,234)", "1234" },
    { "\\sqrt2", "1.414" },
    { "\\sqrt{2}", "\\sqrt{3}" },
    { "x", "y" },
    { "x", "|x|" },
    { "\\sqrt{x^2}", "x" },
    { "x^2", "x^3" },
    { "2x", "2" },
    { "ab", "a" },
    { "f(x)", "f(y)" },
    { "x=5", "y=5" },
    { "x=5", "x=6" },
    { "17 \\bmod 5", "17" },
    { "(x,-y)=(1,2)", "(1,2)" },
    { "x^2+y^2=4", "x^2+y^2=5" },
    { "x=1, y=2", "x=2, y=1" },
    { "1,2", "1,2,3" },
    { "(1,2)", "(2,1)" },
    { "(1,2)", "[1,2]" },
    { "(1,2]", "[1,2)" },
    { "[1,2)", "1 < x < 2" },
    { "x>3", "x<3" },
    { "x>3", "x \\ge 3" },
    { "x^2<4", "x^2<4.0001" },
    { "(0,1)\\cup(1,2)", "(0,2)" },
    { "\\pm 3", "3" },
    { "\\{1\\}", "\\emptyset" },
    { "\\begin{pmatrix} 1 & 2 \\end{pmatrix}",
      "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}" },
    { "\\begin{pmatrix} 1 & 2 \\\\ 3 & 4 \\end{pmatrix}",
      "\\begin{pmatrix} 1 & 2 \\\\ 3 & 5 \\end{pmatrix}" },
    { "204_5", "204_6" },
    { "\\text{A}", "\\text{B}" },
    { "A", "a" },
    { "yes", "no" },
    { "", "" },
    { "", "1" },
    { "\\frac{1}{0}", "2" },
    { "\\frac{1}{0}", "\\frac{2}{0}" },
    { "0^0", "1/0" },
    { "1:2:3", "1:2:4" },
    { "\\infty", "-\\infty" },
    { "(-\\infty, 1)", "(-\\infty, 2)" },
};

static void equal_answers_are_equal(void **state)
{
    (void)state;
    EQUAL(equal);
}

/* The text after the last "=" of a response counts if the truth is not an
 * equation. In the other direction, only x = 5 equals 5. */
static void an_equation_counts_by_the_form_of_the_truth(void **state)
{
    static const pair said[] = {
        { "1+1=2", "2" },
        { "m+n=17", "17" },
        { "17 \\bmod 5 = 2", "2" },
        { "8=1", "1" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        assert_true(are_equal(said[i].a, said[i].b));
        assert_false(are_equal(said[i].b, said[i].a));
    }
    assert_true(are_equal("5=x", "5"));
    assert_true(are_equal("y=x", "x"));
    assert_false(are_equal("y=x", "y"));
}

static void unequal_answers_are_unequal(void **state)
{
    (void)state;
    UNEQUAL(unequal);
}

/* The tolerance applies to rounded decimals, and f(y) may equal f(x). */
static void options_change_the_tolerance_and_variables(void **state)
{
    const rule_equality coarse = { .tolerance = 0.005 };
    const rule_equality loose = { .tolerance = 1e-6, .any_variables = 1 };
    const rule_equality single = { .single = 1 };
    rule_text third = rule_text_of("\\frac13");
    rule_text rounded = rule_text_of("0.33");
    (void)state;
    assert_true(rule_math_equal(&work, third, rounded, &coarse));
    assert_false(rule_math_equal(&work, third, rounded, &loose));
    assert_false(rule_math_equal(&work, third, rule_text_of("0.34"), &coarse));
    assert_true(rule_math_equal(&work, rule_text_of("f(x)"),
                                rule_text_of("f(y)"), &loose));
    assert_false(rule_math_equal(&work, rule_text_of("1,2"),
                                 rule_text_of("2,1"), &single));
    assert_true(rule_math_equal(&work, rule_text_of("1/2"), rule_text_of("0.5"),
                                &single));
}

/* A larger tolerance is limited to a twentieth of the larger number, for
 * rational numbers, numbers by value and entries of matrices. */
static void tolerance_is_at_most_a_twentieth_of_the_number(void **state)
{
    const rule_equality coarse = { .tolerance = 0.005 };
    static const struct {
        const char *a;
        const char *b;
        int equal;
    } cases[] = {
        { "0.004", "0.001", 0 },
        { "0.004", "0", 0 },
        { "-0.002", "0.002", 0 },
        { "0.06", "0.064", 0 },
        { "0.1", "0.096", 1 },
        { "0.1", "0.0949", 0 },
        { "-7.3", "-7.304", 1 },
        { "7.3", "7.306", 0 },
        { "\\frac{1}{400}", "0.0023", 0 },
        { "\\frac{1}{400}", "0.0024", 1 },
        { "\\frac{\\sqrt{2}}{1000}", "0.002", 0 },
        { "\\frac{\\sqrt{2}}{1000}", "0.0014", 1 },
        { "\\sqrt{2}", "1.41", 1 },
        { "\\sqrt{2}", "1.40", 0 },
        { "\\begin{pmatrix} 7 & 0.001 \\end{pmatrix}",
          "\\begin{pmatrix} 7 & 0.004 \\end{pmatrix}", 0 },
        { "\\begin{pmatrix} 7 & 0.1 \\end{pmatrix}",
          "\\begin{pmatrix} 7.004 & 0.1 \\end{pmatrix}", 1 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rule_text a = rule_text_of(cases[i].a);
        rule_text b = rule_text_of(cases[i].b);
        if (rule_math_equal(&work, a, b, &coarse) != cases[i].equal ||
            rule_math_equal(&work, b, a, &coarse) != cases[i].equal)
            fail_msg("%s and %s", cases[i].a, cases[i].b);
    }
}

/* The comparison of long and deep answers ends, and only identical ones are
 * equal. */
static void long_and_deep_answers_end(void **state)
{
    static char text[40000];
    static const char *const seeds[] = { "(",
                                         "\\frac{1}{",
                                         "{",
                                         "x^",
                                         "-",
                                         "\\sqrt",
                                         "1+",
                                         "|",
                                         "a,",
                                         "\\left(",
                                         "2^{9",
                                         "[1,",
                                         "\\cup",
                                         "!",
                                         "9",
                                         "\\text{",
                                         "\\sin",
                                         "x/",
                                         "\\begin{pmatrix}",
                                         "x_{n-",
                                         "2^{1000}\\cdot ",
                                         "1,2;",
                                         "\\sum_{k=1}^" };
    (void)state;
    for (size_t i = 0; i < sizeof(seeds) / sizeof(seeds[0]); i++) {
        size_t size = strlen(seeds[i]);
        size_t count = (sizeof(text) - 2) / size;
        for (size_t repeat = 1; repeat <= count; repeat = repeat * 3 + 1) {
            for (size_t k = 0; k < repeat; k++)
                memcpy(text + k * size, seeds[i], size);
            text[repeat * size] = '7';
            rule_text long_one = { text, repeat * size + 1 };
            const rule_equality how = { .tolerance = 1e-6 };
            (void)rule_math_equal(&work, long_one, rule_text_of("7x"), &how);
            (void)rule_equal_prm800k(&work, long_one, rule_text_of("7"));
            (void)rule_equal_minerva(&work, long_one, rule_text_of("7"), &how);
            assert_true(rule_math_equal(&work, long_one, long_one, &how));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_answers_are_equal),
        cmocka_unit_test(unequal_answers_are_unequal),
        cmocka_unit_test(an_equation_counts_by_the_form_of_the_truth),
        cmocka_unit_test(options_change_the_tolerance_and_variables),
        cmocka_unit_test(tolerance_is_at_most_a_twentieth_of_the_number),
        cmocka_unit_test(long_and_deep_answers_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
