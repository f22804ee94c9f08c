/* SPDX-License-Identifier: Apache-2.0
 *
 * Equality of math answers by the laws of mathematics: identities hold, near
 * misses do not, and an answer that is too long leaves nothing for the next
 * one.
 */
#include "plugins/reward-rule/math_strip.h"
#include "tests/reward/math_pairs.h"

/* Identities that hold for the principal values of positive numbers hold, and
 * identities of all real numbers must hold for negative ones too. */
static void identities_of_functions_hold(void **state)
{
    static const pair equal[] = {
        { "\\ln(x^2)", "2\\ln x" },
        { "\\sqrt{x}\\sqrt{y}", "\\sqrt{xy}" },
        { "\\sqrt[3]{-x}", "-\\sqrt[3]{x}" },
        { "\\sqrt[3]{x^3}", "x" },
        { "\\sqrt[4]{x^4}", "|x|" },
        { "\\sqrt[5]{-32}", "-2" },
        { "\\sqrt[6]{64}", "2" },
        { "x^{1/2}x^{1/2}", "x" },
        { "\\exp(x+y)", "e^x e^y" },
        { "\\sec^2 x-\\tan^2 x", "1" },
        { "\\csc^2 x-\\cot^2 x", "1" },
        { "\\cosh^2 x-\\sinh^2 x", "1" },
        { "\\tanh x", "\\frac{\\sinh x}{\\cosh x}" },
        { "\\log_b a", "\\frac{\\ln a}{\\ln b}" },
        { "\\log_3^2 9", "4" },
        { "\\log^2_3 9", "4" },
        { "\\arcsin x+\\arccos x", "\\frac{\\pi}{2}" },
        { "\\binom{n}{2}", "\\frac{n(n-1)}{2}" },
        { "\\binom{1/2}{2}", "-\\frac18" },
        { "\\binom{n}{0}", "1" },
        { "(1/2)!", "\\frac{\\sqrt\\pi}{2}" },
        { "(-1/2)!", "\\sqrt\\pi" },
        { "(x+1)!", "(x+1)x!" },
        { "1!", "1" },
        { "7 \\bmod (-3)", "-2" },
        { "7.5 \\bmod 2", "1.5" },
        { "\\sin(x+180^\\circ)", "\\sin(x+180)" },
        { "\\cos 0^\\circ", "1" },
        { "\\sin 90^\\circ+\\cos 90^\\circ", "1" },
        { "|a||b|", "|ab|" },
        { "2|x|", "|2x|" },
        { "||x||", "|x|" },
        { "|\\frac{2|x|}{2}|", "|x|" },
        { "|x|+|y|", "|-x|+|-y|" },
        { "\\lfloor -2\\rfloor", "\\lceil -2\\rceil" },
        { "\\sin\\sqrt(x)(y+1)", "(y+1)\\sin\\sqrt{x}" },
        { "\\sin x\\cos y(y+1)", "(y+1)\\cos y\\sin x" },
        { "sinx", "\\sin x" },
        { "lnx", "\\ln x" },
        { "\\pm\\sqrt2", "-\\sqrt2, \\sqrt2" },
        { "a \\pm b", "a-b, a+b" },
        { "\\frac{-b \\pm \\sqrt{b^2-4ac}}{2a}",
          "\\frac{-b+\\sqrt{b^2-4ac}}{2a}, \\frac{-b-\\sqrt{b^2-4ac}}{2a}" },
    };
    static const pair unequal[] = {
        { "\\sqrt[4]{x^4}", "x" },
        { "\\sqrt[3]{x^2}", "x" },
        { "\\sqrt[6]{64}", "-2" },
        { "\\ln(x^2)", "\\ln x" },
        { "\\ln(xy)", "\\ln x\\ln y" },
        { "\\log_b a", "\\log_a b" },
        { "\\binom{n}{2}", "\\frac{n(n+1)}{2}" },
        { "\\binom{n}{2}", "\\binom{n}{3}" },
        { "\\binom{3}{5}", "1" },
        { "(1/2)!", "\\sqrt\\pi" },
        { "7 \\bmod 0", "7" },
        { "|x|-|y|", "|x-y|" },
        { "x|x|", "x^2" },
        { "\\sin x", "\\sin(-x)" },
        { "\\arctan x", "\\frac{1}{\\tan x}" },
        { "a \\pm b", "a+b" },
        { "x^2+1", "x^2+1.001" },
        { "x+10^{-6}", "x" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Functions of real numbers have no value elsewhere: the real part is no
 * answer. A value that is real after all is one. */
static void functions_of_real_numbers_have_no_other_values(void **state)
{
    static const pair equal[] = {
        { "\\lfloor i^2\\rfloor", "-1" },
        { "\\lceil i^4\\rceil", "1" },
        { "(-2i^2)!", "2" },
        { "\\binom{4}{-2i^2}", "6" },
        { "(-7i^2) \\bmod 2", "1" },
    };
    static const pair unequal[] = {
        { "\\lfloor 2+i\\rfloor", "2" },
        { "\\lceil 2+i\\rceil", "2" },
        { "(2+i)!", "2" },
        { "\\binom{4}{2+i}", "6" },
        { "(7+i) \\bmod 2", "1" },
        { "7 \\bmod (2+i)", "1" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Names are compared with their indices and marks, and unknown functions by
 * their arguments in order. */
static void names_and_unknown_functions_keep_their_parts(void **state)
{
    static const pair equal[] = {
        { "a_1", "a_{1}" },
        { "a_{n+1}", "a_{1+n}" },
        { "a_{-n}", "a_{-1 \\cdot n}" },
        { "1+\\text{AaZz word}", "\\text{aAzZ Word}+1" },
        { "\\text{(A)}, \\text{(B)}", "B, A" },
        { "A_\\alpha", "A_{\\alpha}" },
        { "g(2x)", "g(x+x)" },
        { "f(x,y)", "f(x,y)" },
        { "f(x)+g(x)", "g(x)+f(x)" },
        { "f'(x)", "f'(x)" },
        { "\\vec v", "\\vec{v}" },
        { "\\hat x+1", "1+\\hat{x}" },
        { "\\sum_{k=1}^{3} 2k", "\\sum_{k=1}^{3} (k+k)" },
        { "\\int_0^1 x x", "\\int_0^1 x^2" },
        { "\\text{Yes}\\text{No}", "YesNo" },
        { "AB=5", "5" },
        { "|AB|=5", "5" },
        { "\\frac{a}{b}=2", "2" },
        { "A:B=2", "2" },
        { "5=x=y", "5" },
        { "x_1=3", "3" },
        { "f(2)=3", "3" },
    };
    static const pair unequal[] = {
        { "a_1", "a_{12}" },
        { "a_{n+1}", "a_{n+2}" },
        { "a_{n+1}", "b_{n+1}" },
        { "a_n", "a" },
        { "g(x)", "g(2x)" },
        { "f(x,y)", "f(y,x)" },
        { "f(x)", "x" },
        { "f'(x)", "f(x)" },
        { "x''", "x'" },
        { "\\hat{x}", "\\bar{x}" },
        { "\\sum_{k=1}^{3} k", "\\sum_{k=1}^{4} k" },
        { "\\lim_{x\\to 0} f(x)", "\\lim_{x\\to 1} f(x)" },
        { "AB", "ab" },
        { "\\text{yes}", "\\text{yes no}" },
        { "f(2)=3", "f(3)=3" },
        { "x_1=3", "x_2=3" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* The 65th name is not like any other name, although there is no room for it.
 */
static void names_beyond_the_last_are_not_equal(void **state)
{
    char a[1024] = "x_{1}";
    char b[1024] = "x_{1}";
    (void)state;
    for (int i = 2; i <= 70; i++) {
        size_t size = strlen(a);
        (void)snprintf(a + size, sizeof(a) - size, "+x_{%d}", i);
        size = strlen(b);
        (void)snprintf(b + size, sizeof(b) - size, "+x_{%d}", i == 70 ? 71 : i);
    }
    assert_false(are_equal(a, b));
    assert_true(are_equal(a, a));
}

/* No term leaves the parser deeper in brackets than it was before. */
static void sums_of_many_terms_are_parsed(void **state)
{
    static const char *const terms[] = {
        "\\sin x",
        "\\sin(x)",
        "\\sqrt{x}",
        "\\sqrt x",
        "\\sqrt\\pi",
        "\\sqrt[3]{x}",
        "(x)",
        "{x}",
        "|x|",
        "[x]",
        "(-x)",
        "2\\cdot -x",
        "\\frac{x}{2}",
        "\\frac\\pi2",
        "x^{2}",
        "x^\\pi",
        "x!",
        "f(x)",
        "x_{n-1}",
        "\\binom{x}{2}",
        "\\lfloor x\\rfloor",
        "\\text{about }5",
        "\\boxed{x}",
        "\\angle x",
        "\\sum_{k=1}^n k",
        "\\begin{pmatrix}x\\\\1\\end{pmatrix}",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(terms) / sizeof(terms[0]); i++) {
        char sum[4096];
        char product[64];
        (void)snprintf(sum, sizeof(sum), "%s", terms[i]);
        for (int k = 1; k < 60; k++) {
            size_t size = strlen(sum);
            (void)snprintf(sum + size, sizeof(sum) - size, "+%s", terms[i]);
        }
        (void)snprintf(product, sizeof(product), "60\\cdot %s", terms[i]);
        if (!are_equal(sum, product) || !are_equal(product, sum))
            fail_msg("60 terms %s", terms[i]);
        (void)snprintf(product, sizeof(product), "59\\cdot %s", terms[i]);
        if (are_equal(sum, product))
            fail_msg("59 terms %s", terms[i]);
    }
}

static void integers_and_fractions_of_many_digits_are_exact(void **state)
{
    static const pair equal[] = {
        { "4294967295+1", "4294967296" },
        { "18446744073709551615+1", "18446744073709551616" },
        { "79228162514264337593543950336-1", "79228162514264337593543950335" },
        { "4294967295 \\cdot 4294967295", "18446744065119617025" },
        { "-\\frac13+\\frac12", "\\frac16" },
        { "-\\frac12+\\frac13", "-\\frac16" },
        { "-1+1", "0" },
        { "3-5", "-2" },
        { "-2 \\cdot -3", "6" },
        { "-6/(-3)", "2" },
        { "0.\\overline{09}", "\\frac{1}{11}" },
        { "12.3\\overline{45}", "\\frac{679}{55}" },
        { "1e300", "10^{300}" },
        { "1e-300", "10^{-300}" },
        { "1e300 \\cdot 1e-300", "1" },
        { "2^{-1000}", "\\frac{1}{2^{1000}}" },
        { "(-2)^{-3}", "-\\frac18" },
        { "2^10", "1024" },
        { "\\sqrt{1000000000000000000000000000000000000000000}", "10^{21}" },
        { "\\sqrt{0.000000000000000000000000000000000000000001}", "10^{-21}" },
        { "12 345", "12345" },
        { "1 234 567", "1234567" },
        { "2e", "2 \\cdot e" },
        { "1.5e+3", "1500" },
        { "3\\tfrac12", "3.5" },
        { "\\frac1{12}", "1/12" },
        { "|-\\frac12|", "0.5" },
        { "3^2 \\text{ cm}", "9" },
        { "10^2\\%", "1" },
    };
    static const pair unequal[] = {
        { "4294967296", "0" },
        { "18446744073709551616", "0" },
        { "4294967297", "1" },
        { "79228162514264337593543950336", "79228162514264337593543950335" },
        { "2^{1000}", "2^{1000}+1" },
        { "2^{-1000}", "2^{-1001}" },
        { "0.\\overline{09}", "\\frac{1}{10}" },
        { "0.\\overline{9}", "0.9" },
        { "-\\frac12+\\frac13", "\\frac16" },
        { "0^{-1}", "0" },
        { "1 234", "1,23" },
        { "200!", "199!" },
        { "-0.5", "0.5" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* The steps between numbers must not hide where a set begins and ends. */
static void sets_are_equal_where_they_begin_and_end(void **state)
{
    static const pair equal[] = {
        { "x^2-5x+6<0", "(2,3)" },
        { "x(x-1)(x-3)>0", "(0,1)\\cup(3,\\infty)" },
        { "\\sqrt{x}<2", "[0,4)" },
        { "\\frac1x<1", "(-\\infty,0)\\cup(1,\\infty)" },
        { "x^3<8", "x<2" },
        { "x^2<30", "(-\\sqrt{30},\\sqrt{30})" },
        { "x \\in \\{1,2\\} \\cup (3,4)", "(3,4) \\cup \\{2,1\\}" },
        { "[0,5] \\cap [1,6] \\cap [2,7]", "[2,5]" },
        { "\\mathbb{R} \\setminus (0,1)", "x \\le 0 \\text{ or } x \\ge 1" },
        { "1<x<2, 3<x<4", "(1,2)\\cup(3,4)" },
        { "x>1000", "(1000,\\infty)" },
        { "|x-3| \\le 2", "[1,5]" },
        { "a<b\\le c<d", "d>c\\ge b>a" },
        { "a=b<c", "c>b=a" },
        { "x^2=4", "(x-2)(x+2)=0" },
        { "[1,2,3]", "1,2,3" },
        { "\\{1,2\\}", "1,2" },
        { "\\{1\\}", "1" },
        { "\\ln(x^2)=y+1", "2\\ln x=y+1" },
        { "2f(2)=6", "f(2)-3=0" },
        { "1, 2, and 3", "3,2,1" },
    };
    static const pair unequal[] = {
        { "x^2-5x+6<0", "[2,3]" },
        { "x^2-5x+6<0", "(2,3]" },
        { "\\sqrt{x}<2", "(0,4)" },
        { "x^3<8", "x<2.001" },
        { "[0,1]\\cup\\{5\\}", "[0,1]" },
        { "[0,1]\\cup\\{5\\}", "[0,1]\\cup\\{6\\}" },
        { "x>1000", "x \\ge 1000" },
        { "x>1000", "x>1001" },
        { "x<-1000", "x<-1001" },
        { "(a,b)", "(a,c)" },
        { "a<b\\le c<d", "d>c>b\\ge a" },
        { "a<b", "a<c" },
        { "a=b<c", "a<b=c" },
        { "x+y=1", "(x+y)^2=1" },
        { "x+1=3=y+1", "x+1=y+1" },
        { "1+1=3", "2+2=7" },
        { "e=2", "i=2" },
        { "\\langle 1,2\\rangle", "[1,2]" },
        { "2,1", "(1,2)" },
        { "1,2", "[1,2)" },
        { "204_5", "20" },
        { "204_5", "2045" },
        { "1,2,3", "1,2,4" },
        { "1,2,3", "(1,3,2)" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Of each pair of operators the left one is done first, however it is spelled.
 */
static void operators_of_sets_are_done_in_turn(void **state)
{
    static const char *const spelled[3][2] = {
        { "\\cup", "U" },
        { "\\cap", "\\cap " },
        { "\\setminus", "\\backslash" },
    };
    static const char *const results[3][3] = {
        { "[0,8]", "[3,6]", "[0,3)" },
        { "[2,8]", "[3,4]", "[2,3)" },
        { "[0,2)\\cup[3,8]", "(4,6]", "[0,2)" },
    };
    char sets[128];
    (void)state;
    for (unsigned i = 0; i < 3 * 3 * 2 * 2; i++) {
        unsigned first = i % 3;
        unsigned second = i / 3 % 3;
        (void)snprintf(sets, sizeof(sets), "[0,6] %s [2,4] %s [3,8]",
                       spelled[first][i / 9 % 2], spelled[second][i / 18]);
        for (unsigned r = 0; r < 9; r++) {
            int same =
                strcmp(results[r / 3][r % 3], results[first][second]) == 0;
            if (are_equal(sets, results[r / 3][r % 3]) != same)
                fail_msg("%s and %s", sets, results[r / 3][r % 3]);
        }
    }
}

/* A ground truth counts as the value of its last side only if it names
 * something; an answer may be any equation. */
static void a_truth_with_an_expression_is_no_value(void **state)
{
    static const pair said[] = {
        { "x^2=4", "4" },
        { "a+b=5", "5" },
        { "2x=4", "4" },
        { "|\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}|=-2", "-2" },
        { "\\left|\\begin{pmatrix}|x|&1\\end{pmatrix}\\right|+|y|=5", "5" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(said) / sizeof(said[0]); i++) {
        if (!are_equal(said[i].a, said[i].b) || are_equal(said[i].b, said[i].a))
            fail_msg("%s", said[i].a);
    }
}

static void many_steps_of_matrices_have_their_values(void **state)
{
#define V(a, b) "\\begin{pmatrix} " a " \\\\ " b " \\end{pmatrix}"
#define H(a, b) "\\begin{pmatrix} " a " & " b " \\end{pmatrix}"
    static const pair equal[] = {
        { V("1", "2") "+" V("3", "4") "+" V("5", "6"), V("9", "12") },
        { V("1", "2") "-" V("3", "4") "-" V("5", "6"), V("-7", "-8") },
        { "2" H("1", "2") V("3", "4"), "\\begin{pmatrix} 22 \\end{pmatrix}" },
        { V("1", "2") H("3", "4"),
          "\\begin{pmatrix} 3 & 4 \\\\ 6 & 8 \\end{pmatrix}" },
        { V("\\ln(x^2)", "1"), V("2\\ln x", "1") },
        { V("x^2-1", "0"), V("(x-1)(x+1)", "0") },
        { V("1", "2") "\\cdot \\frac{1}{2}", V("0.5", "1") },
    };
    static const pair unequal[] = {
        { V("1", "2") "+" H("1", "2"), V("2", "4") },
        { V("1", "2") "+" H("1", "2"), V("1", "2") },
        { V("1", "2") "+" V("3", "4"), V("4", "7") },
        { V("1", "2"), V("3", "2") },
        { V("1", "2") "/" V("1", "2"), "1" },
        { V("1", "2") "^2", V("1", "4") },
        { V("|x|", "1"), V("x", "1") },
        { V("1", "2"), H("1", "2") },
        { V("1", "2"), "\\begin{pmatrix} 1 \\\\ 2 \\\\ 3 \\end{pmatrix}" },
        { V("1", "2"), "(1,3)" },
        { V("1", "2") V("1", "2"), V("1", "4") },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Writes a column of `rows` entries times a row of `columns` ones. */
static void write_product(const char *entry, int rows, int columns,
                          char text[1024])
{
    size_t size = (size_t)snprintf(text, 1024, "\\begin{pmatrix} %s", entry);
    for (int i = 1; i < rows; i++)
        size += (size_t)snprintf(text + size, 1024 - size, " \\\\ %s", entry);
    size += (size_t)snprintf(text + size, 1024 - size,
                             " \\end{pmatrix}\\begin{pmatrix} 1");
    for (int i = 1; i < columns; i++)
        size += (size_t)snprintf(text + size, 1024 - size, " & 1");
    size += (size_t)snprintf(text + size, 1024 - size, " \\end{pmatrix}");
    assert_true(size < 1024);
}

/* A matrix has room for 64 entries, and so has a product; a larger one is not
 * computed, and equals nothing but its own text. */
static void products_of_matrices_have_up_to_64_entries(void **state)
{
    static const int sizes[][2] = { { 8, 8 },  { 4, 16 }, { 64, 1 },
                                    { 9, 8 },  { 8, 9 },  { 5, 13 },
                                    { 13, 5 }, { 9, 9 },  { 30, 30 } };
    (void)state;
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char a[1024];
        char b[1024];
        char other[1024];
        int rows = sizes[i][0];
        int columns = sizes[i][1];
        write_product("1", rows, columns, a);
        write_product("3-2", rows, columns, b);
        write_product("3-1", rows, columns, other);
        assert_int_equal(are_equal(a, b), rows * columns <= 64);
        assert_false(are_equal(a, other));
        assert_true(are_equal(a, a));
    }
}

/* After an answer that no buffer holds, the next one is compared as ever. */
static void a_long_answer_leaves_nothing_for_the_next(void **state)
{
    static char text[2 * RULE_BUFFER_BYTES];
    static const rule_equality single = { .single = 1 };
    const rule_text half = rule_text_of("\\frac12");
    const rule_text slash = rule_text_of("1/2");
    (void)state;
    memset(text, '7', sizeof(text));
    const rule_text long_one = { text, sizeof(text) };
    for (int i = 0; i < 2; i++) {
        const rule_text one = i ? long_one : slash;
        const rule_text other = i ? slash : long_one;
        assert_false(are_equal("1", "2"));
        assert_false(rule_equal_prm800k(&work, one, other));
        assert_true(rule_equal_prm800k(&work, slash, half));
        assert_false(rule_equal_minerva(&work, one, other, &single));
        assert_true(rule_equal_minerva(&work, rule_text_of("5 km"),
                                       rule_text_of("5"), &single));
        assert_false(rule_equal_dapo(&work, one, other));
        assert_true(
            rule_equal_dapo(&work, rule_text_of("5 km"), rule_text_of("5")));
        assert_false(rule_equal_slime(&work, one, other));
        assert_true(
            rule_equal_slime(&work, rule_text_of("5"), rule_text_of("5.7")));
        assert_false(
            rule_equal_hendrycks(one, other, &work.a, &work.b, &work.scratch));
        assert_true(
            rule_equal_hendrycks(half, slash, &work.a, &work.b, &work.scratch));
        assert_true(are_equal("1/2", "0.5"));
    }
    assert_false(rule_math_equal(&work, long_one, slash, &single));
    assert_true(rule_math_equal(&work, half, slash, &single));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(identities_of_functions_hold),
        cmocka_unit_test(functions_of_real_numbers_have_no_other_values),
        cmocka_unit_test(names_and_unknown_functions_keep_their_parts),
        cmocka_unit_test(names_beyond_the_last_are_not_equal),
        cmocka_unit_test(sums_of_many_terms_are_parsed),
        cmocka_unit_test(integers_and_fractions_of_many_digits_are_exact),
        cmocka_unit_test(sets_are_equal_where_they_begin_and_end),
        cmocka_unit_test(operators_of_sets_are_done_in_turn),
        cmocka_unit_test(a_truth_with_an_expression_is_no_value),
        cmocka_unit_test(many_steps_of_matrices_have_their_values),
        cmocka_unit_test(products_of_matrices_have_up_to_64_entries),
        cmocka_unit_test(a_long_answer_leaves_nothing_for_the_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
