/* SPDX-License-Identifier: Apache-2.0
 *
 * Equality of math answers by class: every function, sign, unit and bracket,
 * exact arithmetic, and the bounds of evaluation.
 */
#include "tests/reward/math_pairs.h"

static const pair equal_functions[] = {
    { "0^{1/2}", "0" },
    { "\\sqrt[4]{0}+\\pi", "\\pi" },
    { "3!\\pi", "6\\pi" },
    { "\\binom{4}{2}\\pi", "6\\pi" },
    { "1\\text{, and }2", "1, 2" },
    { "\\sin 0.5", "0.479425538604203" },
    { "\\cos 0.5", "0.877582561890373" },
    { "\\tan 0.5", "0.546302489843790" },
    { "\\cot 0.5", "1.830487721712452" },
    { "\\sec 0.5", "1.139493927324549" },
    { "\\csc 0.5", "2.085829642933488" },
    { "\\tg 0.5", "\\tan 0.5" },
    { "\\ctg 0.5", "\\cot 0.5" },
    { "\\arcsin 0.5", "\\frac{\\pi}{6}" },
    { "\\arccos 0.5", "\\frac{\\pi}{3}" },
    { "\\arctan 1", "\\frac{\\pi}{4}" },
    { "asin(0.5)", "\\arcsin 0.5" },
    { "acos(0.5)", "\\arccos 0.5" },
    { "atan(0.5)", "\\arctan 0.5" },
    { "\\sin^{-1} x", "\\arcsin x" },
    { "\\cos^{-1}(x)", "\\arccos x" },
    { "\\tan^{-1} x", "\\arctan x" },
    { "\\sin^-1 x", "\\arcsin x" },
    { "\\sinh 1", "\\frac{e-e^{-1}}{2}" },
    { "\\cosh 1", "\\frac{e+e^{-1}}{2}" },
    { "\\tanh 1", "\\frac{e-e^{-1}}{e+e^{-1}}" },
    { "\\ln 2", "0.693147180559945" },
    { "\\ln 8", "3\\ln 2" },
    { "\\log 1000", "3" },
    { "\\lg 1000", "3" },
    { "\\log_{3} 81", "4" },
    { "\\log_3 9^2", "4" },
    { "\\log^2 100", "4" },
    { "\\exp(2)", "e^2" },
    { "\\exp 0", "1" },
    { "abs(-3)", "3" },
    { "floor(2.7)", "2" },
    { "ceil(2.1)", "3" },
    { "\\lfloor -2.5\\rfloor", "-3" },
    { "\\lceil 2.5\\rceil", "3" },
    { "\\lvert -3\\rvert", "3" },
    { "\\vert -3\\vert", "3" },
    { "2\\left\\vert x\\right\\vert+1", "1+2|x|" },
    { "\\sqrt[3]{27}", "3" },
    { "\\sqrt[4]{16}", "2" },
    { "\\sqrt[3]{-27}", "-3" },
    { "\\sqrt{-4}", "2i" },
    { "\\sqrt{-3}", "i\\sqrt3" },
    { "(-4)^{1/2}", "2i" },
    { "\\ln(-1)", "i\\pi" },
    { "sqrt(9)", "3" },
    { "\\sqrt(9)", "3" },
    { "0!", "1" },
    { "6!", "720" },
    { "3!!", "720" },
    { "2!3!", "12" },
    { "\\binom{6}{3}", "20" },
    { "\\binom{3}{5}", "0" },
    { "\\dbinom{6}{2}", "15" },
    { "\\tbinom{6}{6}", "1" },
    { "{6 \\choose 2}", "15" },
    { "{1 \\over 4}", "0.25" },
    { "(-7) \\bmod 3", "2" },
    { "7 \\mod 4", "3" },
    { "\\cos 60^\\circ", "0.5" },
    { "\\tan 45^\\circ", "1" },
    { "\\sin^2 30^\\circ", "0.25" },
    { "inf", "\\infty" },
    { "infinity", "oo" },
    { "e^{i\\pi}", "-1" },
    { "i^3", "-i" },
    { "\\frac{d}{d}", "1" },
    { "\\cfrac{1}{2}", "0.5" },
    { "|3-5|", "2" },
    { "50\\%\\sqrt2", "\\frac{\\sqrt2}{2}" },
    { "x_{n+1}", "x_{1+n}" },
    { "x_{n-1}", "x_{-1+n}" },
    { "x_{n*2}", "x_{2*n}" },
    { "x_{2/n}", "x_{4/(2n)}" },
    { "x_{2(n)}", "x_{n*2}" },
    { "\\measuredangle 5", "5" },
    { "\\triangle ABC", "ABC" },
    { "\\circ 5", "5" },
    { "2 sqrt(4)", "4" },
    { "2 sinh(1)", "2\\sinh 1" },
    { "2 cosh(1)", "2\\cosh 1" },
    { "2 tanh(1)", "2\\tanh 1" },
    { "2 arcsin(0.5)", "\\frac{\\pi}{3}" },
    { "2 arccos(0.5)", "\\frac{2\\pi}{3}" },
    { "2 arctan(1)", "\\frac{\\pi}{2}" },
    { "\\boxed{5}+1", "6" },
    { "\\fbox{5}+1", "6" },
};

static const pair unequal_functions[] = {
    { "0^{-1/2}", "0" },
    { "3!\\pi", "3\\pi" },
    { "\\binom{4}{2}\\pi", "8\\pi" },
    { "\\sinh 1", "\\sin 1" },
    { "\\cosh 1", "\\sinh 1" },
    { "\\log 8", "\\ln 8" },
    { "\\log_2 8", "\\log_3 8" },
    { "\\lfloor 2.7 \\rfloor", "\\lceil 2.7 \\rceil" },
    { "\\arcsin x", "\\arccos x" },
    { "\\sin x^2", "\\sin^2 x" },
    { "\\sin 30", "\\frac12" },
    { "\\sqrt[3]{8}", "\\sqrt{8}" },
    { "\\binom{6}{2}", "30" },
    { "\\binom{5}{-1}", "1" },
    { "\\binom{5}{-1}", "0" },
    { "\\binom{5}{1/2}", "1" },
    { "(-1)!", "1" },
    { "5!", "24" },
    { "7 \\bmod 3", "2" },
    { "\\sum_{k=1}^n k", "\\prod_{k=1}^n k" },
    { "\\sum_{k=1}^n k", "\\sum_{k=2}^n k" },
    { "f(1)", "g(1)" },
    { "\\min(1,2)", "\\max(1,2)" },
    { "\\overline{AB}", "AB" },
    { "\\vec{a}", "\\vec{b}" },
    { "x_1", "x_2" },
    { "x'", "x" },
    { "x_{(n)2}", "x_{n+2}" },
    { "\\text{(ab}", "a" }, /* only (a) is a choice */
    { "\\text{ab)}", "b" },
    { "\\sqrt[4]{-16}", "-2" },
    { "\\infty", "1e200" },
    { "\\pi", "e" },
};

static void functions_have_their_values(void **state)
{
    (void)state;
    EQUAL(equal_functions);
    UNEQUAL(unequal_functions);
}

static void operators_have_their_precedence(void **state)
{
    static const pair equal[] = {
        { "2+3\\cdot 4", "14" },
        { "2^{3^2}", "512" },
        { "-2^2", "-4" },
        { "(-2)^2", "4" },
        { "2^{-2}", "0.25" },
        { "2^-2", "0.25" },
        { "2^{(3)}", "8" },
        { "2^(3)", "8" },
        { "12/2/3", "2" },
        { "12 \\div 2 \\cdot 3", "18" },
        { "1-2-3", "-4" },
        { "2 - -3", "5" },
        { "2 * -3", "-6" },
        { "6/-3", "-2" },
        { "2x^2", "2 \\cdot x \\cdot x" },
        { "ab^2", "a \\cdot b \\cdot b" },
        { "x/2y", "\\frac{x y}{2}" },
        { "2\\sqrt3\\sqrt3", "6" },
        { "+-3", "-3, 3" },
        { "+/-3", "\\pm 3" },
        { "1 \\mp 2", "3, -1" },
        { "2 \\ast 3", "6" },
        { "2 \\times 3", "6" },
        { "a(b+c)", "ab+ac" },
        { "(a+b)(a-b)", "a^2-b^2" },
        { "\\frac{x^2-1}{x-1}", "x+1" },
        { "10^{-3}", "0.001" },
        { "1.2e-3", "0.0012" },
        { "1.2E3", "1200" },
        { "1 \\pm 2 \\mp 3", "0, 2" },
        { "1,2345", "2345, 1" },
        { "2 \\frac{1}{2}", "2.5" },
        { "2\\frac{x}{2}", "x" },
        { "1 1/2", "1.5" },
        { "-1 1/2", "-1.5" },
        { "3 : 6", "1:2" },
        { "1:2:3", "1:2:(4-1)" },
        /* Only a whole number begins a mixed one. */
        { "2.5\\frac{1}{2}", "1.25" },
        { "2.5 \\frac{1}{2}", "1.25" },
        { "0.\\overline{3}\\frac{3}{4}", "0.25" },
        { "1e1\\frac{1}{2}", "5" },
    };
    static const pair unequal[] = {
        { "12/2/3", "18" },
        { "1-2-3", "2" },
        { "-2^2", "4" },
        { "2^{3^2}", "64" },
        { "1 \\pm 2", "3" },
        { "x/2y", "\\frac{x}{y}" },
        { "1 \\pm 2 \\mp 3", "6, -4" },
        { "1:2:3", "1:2" },
        { "1:2", "2:1" },
        { "a-b", "b-a" },
        { "a/b", "b/a" },
        { "x^y", "y^x" },
        { "2 1/2", "1" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

static void numbers_are_exact(void **state)
{
    static const pair equal[] = {
        { "\\frac{1}{3}+\\frac{1}{6}", "\\frac12" },
        { "\\frac{1}{3}-\\frac{1}{2}", "-\\frac16" },
        { "\\frac{1}{2}-\\frac{1}{3}", "\\frac16" },
        { "-\\frac{1}{3}-\\frac{1}{6}", "-\\frac12" },
        { "3^{50}", "717897987691852588770249" },
        { "2^{64}-1", "18446744073709551615" },
        { "18446744073709551616 - 1", "18446744073709551615" },
        { "4294967296 \\cdot 4294967296", "18446744073709551616" },
        { "20!", "2432902008176640000" },
        { "25!", "15511210043330985984000000" },
        { "\\binom{60}{30}", "118264581564861424" },
        { "\\frac{30!}{28!}", "870" },
        { "0.\\overline{142857}", "\\frac17" },
        { "0.1\\overline{6}", "\\frac16" },
        { "1.\\overline{9}", "2" },
        { "3.\\overline{14}", "\\frac{311}{99}" },
        { "\\left(\\frac23\\right)^{-3}", "\\frac{27}{8}" },
        { "\\left(-\\frac12\\right)^{3}", "-\\frac18" },
        { "10^{20}+1", "100000000000000000001" },
        { "1e20", "100000000000000000000" },
        { "1234567890123456789.5", "\\frac{2469135780246913579}{2}" },
        { "-0", "0" },
        { "0/5", "0" },
    };
    static const pair unequal[] = {
        { "2^{64}", "18446744073709551615" },
        { "25!", "15511210043330985984000001" },
        { "10^{20}+1", "10^{20}" },
        { "\\frac{10^{18}}{3}", "333333333333333333" },
        { "\\binom{60}{30}", "118264581564861425" },
        { "1/0", "0" },
        { "-5", "5" },
        { "10000000001", "10000000002" },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Tests every unit and every command that holds words. */
static void units_do_not_count(void **state)
{
    static const char *const units[] = {
        "cm",  "mm", "km",  "nm", "dm",     "kg",          "mg",    "lb",
        "lbs", "oz", "ft",  "yd", "mi",     "mph",         "kph",   "sec",
        "min", "hr", "hrs", "ml", "sq",     "rad",         "deg",   "usd",
        "rs",  "am", "pm",  "CM", "inches", "square feet", "hours",
    };
    static const char *const commands[] = {
        "text",   "mbox",   "hbox",   "textrm", "textbf", "textit",
        "textsf", "mathrm", "mathbf", "mathit", "mathsf", "operatorname",
    };
    static const pair equal[] = {
        { "5 percent", "0.05" },
        { "5 pct", "0.05" },
        { "5 percentage", "0.05" },
        { "5 Percent", "5\\%" },
        { "5 thousand", "5000" },
        { "5 million", "5000000" },
        { "5 billion", "5000000000" },
        { "5 trillion", "5000000000000" },
        { "5 Million", "5000000" },
        { "5\\%", "\\frac{1}{20}" },
        { "5\\text{ million}", "5000000" },
        { "5\\text{ percent}", "0.05" },
        { "5\\mathrm{pct}", "0.05" },
        { "5\\text{ percentage}", "0.05" },
        { "5 \\pmod 7", "5" },
        { "\\angle 5", "5" },
        { "5 \\text{ m}^2", "5" },
        { "5^\\circ", "5" },
        { "\\text{5}", "5" },
        { "\\text{-5}", "-5" },
    };
    static const pair unequal[] = {
        { "5 percent", "6\\%" }, { "5\\%", "0.5" },
        { "5 thousand", "5" },   { "5 million", "5000" },
        { "5x", "5" },           { "5 ab", "5" },
        { "5 percent", "0.5" },  { "5 inches", "0.05" },
        { "5 million", "5" },    { "5 billion", "5" },
        { "5 trillion", "5" },   { "5 permille", "0.05" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "5 %s", units[i]);
        if (!are_equal(text, "5"))
            fail_msg("%s", text);
        assert_false(are_equal(text, "6"));
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "5\\%s{ inches}", commands[i]);
        if (!are_equal(text, "5"))
            fail_msg("%s", text);
        (void)snprintf(text, sizeof(text), "\\%s{Even}", commands[i]);
        if (!are_equal(text, "even"))
            fail_msg("%s", text);
    }
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* `form` with a name in place of each #. */
static void fill_form(const char *form, const char *name, char *out, size_t cap)
{
    size_t size = 0;
    *out = '\0';
    for (; *form; form++)
        size += (size_t)snprintf(out + size, cap - size, "%.*s",
                                 *form == '#' ? (int)strlen(name) : 1,
                                 *form == '#' ? name : form);
}

/* Commands of a kind, and what each of them is equal to, or not. */
static void every_command_has_the_part_of_its_kind(void **state)
{
    static const struct {
        const char *names[12];
        const char *a;
        const char *b;
        int equal;
    } rows[] = {
        { { "frac", "dfrac", "tfrac", "cfrac" }, "\\#12", "0.5", 1 },
        { { "binom", "dbinom", "tbinom" }, "\\#52", "10", 1 },
        { { "matrix", "pmatrix", "bmatrix", "Bmatrix", "smallmatrix" },
          "\\begin{#}1\\\\2\\end{#}",
          "\\begin{array}{c}1\\\\2\\end{array}",
          1 },
        /* Letters under the mark belong to the name. */
        { { "mathbb", "mathcal", "overline", "vec", "bar", "hat", "widehat",
            "underline", "overrightarrow", "boldsymbol" },
          "\\#{a}b",
          "\\#{b}a",
          0 },
        { { "mathbb", "mathcal", "overline", "vec", "bar", "hat", "widehat",
            "underline", "overrightarrow", "boldsymbol" },
          "\\# ab",
          "b\\#{a}",
          1 },
        /* The operator is applied to the term that follows. */
        { { "sum", "prod", "int", "lim", "bigcup", "bigcap", "min", "max",
            "gcd" },
          "\\#_{k}ab",
          "a\\#_{k}b",
          0 },
        { { "sum", "prod", "int", "lim", "bigcup", "bigcap", "min", "max",
            "gcd" },
          "\\#_{k}ab",
          "\\#_{k}ba",
          1 },
        /* An operator ends the argument of a function. */
        { { "cdot", "times", "ast" }, "\\sin 2 \\# x", "x\\sin(2)", 1 },
        { { "div" }, "\\sin 2 \\# x", "\\sin(2)/x", 1 },
        { { "bmod", "mod" }, "\\log 1000 \\# 2", "1", 1 },
        { { " ", "\t", "\n", "\v", "\f", "\r", "\\\n", "\\ ", "~" },
          "\\frac#1#2#+#x",
          "x+0.5",
          1 },
    };
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        for (size_t k = 0; k < 12 && rows[i].names[k]; k++) {
            char a[80];
            char b[80];
            fill_form(rows[i].a, rows[i].names[k], a, sizeof(a));
            fill_form(rows[i].b, rows[i].names[k], b, sizeof(b));
            if (are_equal(a, b) == rows[i].equal)
                continue;
            print_error("%s: %s\n", a, b);
            bad++;
        }
    assert_int_equal(bad, 0);
}

static const pair equal_sets[] = {
    { "\\lbrack 0,1\\rbrack", "[0,1]" },
    { "(0,1\\rbrack", "0 < x \\le 1" },
    { "\\left\\lbrack 0,1\\right)", "0 \\le x < 1" },
    { "\\{x \\vert x > 1\\}", "(1,\\infty)" },
    { "x < 3", "3 > x" },
    { "x \\le 3", "3 \\ge x" },
    { "x \\leqslant 3", "x \\leq 3" },
    { "x \\geqslant 3", "x \\ge 3" },
    { "x \\lt 3", "x < 3" },
    { "x \\gt 3", "x > 3" },
    { "x \\neq 3", "x \\ne 3" },
    { "x \\equiv 3", "3" },
    { "x \\simeq 3", "3" },
    { "1 < x \\le 2", "(1,2]" },
    { "2 \\ge x > 1", "(1,2]" },
    { "x \\le 1 \\text{ or } x \\ge 2", "(-\\infty,1]\\cup[2,\\infty)" },
    { "x \\ge 1 \\text{ and } x \\le 2", "[1,2]" },
    { "[0,2] \\cap (1,3)", "(1,2]" },
    { "[0,2] \\setminus \\{1\\}", "[0,1)\\cup(1,2]" },
    { "[0,2] \\backslash \\{1\\}", "[0,1)\\cup(1,2]" },
    { "(0,1) \\cup (1,2)", "(0,2) \\setminus \\{1\\}" },
    { "(-\\infty, 0) \\cup (0, \\infty)", "\\mathbb{R}\\setminus\\{0\\}" },
    { "x \\in (0,1)", "0 < x < 1" },
    { "\\{x : x > 1\\}", "\\{x : x > 1\\}" },
    { "\\{x | x > 1\\}", "(1,\\infty)" },
    { "2x > 2", "x > 1" },
    { "x^2 \\ge 4", "x \\le -2 \\text{ or } x \\ge 2" },
    { "|x| < 2", "(-2,2)" },
    { "\\{3, 1, 2\\}", "\\{1, 2, 3\\}" },
    { "\\{1, 1, 2\\}", "\\{2, 1\\}" },
    { "(\\{1, 3\\}, 2)", "(\\{3, 1\\}, 2)" },
    { "\\varnothing", "\\emptyset" },
    { "1, 2 \\text{ and } 3", "3, 2, 1" },
    { "1; 2", "2; 1" },
    { "1 or 2", "2, 1" },
    { "(1, 2, 3)", "(1, 2, 3)" },
    { "[1, 2, 3]", "(1, 2, 3)" },
    { "\\langle 1, 2 \\rangle", "(1, 2)" },
    { "1, 2", "(1, 2)" },
    { "x=1, y=2", "y=2, x=1" },
    { "x+y=1", "2x+2y=2" },
    { "y=x+1", "y-x=1" },
    { "x+y \\equiv 3", "x+y=3" },
    { "x+y \\simeq 3", "x+y \\approx 3" },
    { "i=5", "5" },
    { "e=5", "5" },
    { "a < b", "b > a" },
    { "a \\le b", "b \\ge a" },
    { "a \\ge b > c", "c < b \\le a" },
    { "x<1, x>3 \\text{ and } x>4", "(-\\infty,1)\\cup(3,\\infty)" },
};

static const pair unequal_sets[] = {
    { "x < 3", "x \\le 3" },
    { "x \\ne 3", "x = 3" },
    { "(1,2)", "(1,2]" },
    { "[1,2]", "(1,2]" },
    { "[0,2] \\cap (1,3)", "[1,2]" },
    { "[0,2] \\setminus \\{1\\}", "[0,2]" },
    { "x \\ge 1 \\text{ or } x \\le 2", "[1,2]" },
    { "(0,1) \\cup (2,3)", "(0,3)" },
    { "x < 1", "x < 1.01" },
    { "x^2 > 4", "x > 2" },
    { "\\{1, 2\\}", "\\{1, 2, 3\\}" },
    { "\\{1, 2\\}", "\\{1, 3\\}" },
    { "1, 2", "1, 3" },
    { "1, 2, 2", "1, 1, 3" },
    { "(1, 2)", "(1, 3)" },
    { "(1, 2, 3)", "(1, 3, 2)" },
    { "(1, 2)", "(1, 2, 3)" },
    { "1, 2", "[1, 2]" },
    { "x+y=1", "x+y=2" },
    { "x+y \\approx 3", "x+y=3" },
    { "x+y \\simeq 3", "x+y=3" },
    { "x+y=1", "x-y=1" },
    { "x+y=y+x", "x+y=1" }, /* holds everywhere */
    { "2x-x=x", "x=0" },
    { "\\emptyset", "\\{0\\}" },
    { "(\\{1\\}, 2)", "(1, 2)" },
    { "(\\{1, 2\\}, 3)", "((1, 2), 3)" },
    { "\\{\\{1\\}, 2\\}", "\\{1, 2\\}" },
    { "(\\{1\\}, 2)", "(\\{2\\}, 1)" },
    { "a < b < c", "a < c < b" },
    { "a < b", "a > b" },
    { "a \\le b", "b > a" },
    { "a \\ge b", "b < a" },
    { "x^3 < 5", "x^3 < 5.00001" },
    /* They differ at -2.5 alone. */
    { "|x| > 2.5", "|x| \\ge 2.5 \\text{ and } x \\ne 2.5" },
    { "|x| < 2.5", "|x| \\le 2.5 \\text{ and } x \\ne 2.5" },
};

static void sets_equal_the_relations_that_describe_them(void **state)
{
    (void)state;
    EQUAL(equal_sets);
    UNEQUAL(unequal_sets);
}

#define M(a, b, c, d) \
    "\\begin{pmatrix} " a " & " b " \\\\ " c " & " d " \\end{pmatrix}"
static void matrices_are_compared(void **state)
{
    static const pair equal[] = {
        { M("1", "2", "3", "4") "+" M("1", "1", "1", "1"),
          M("2", "3", "4", "5") },
        { M("1", "2", "3", "4") "-" M("1", "1", "1", "1"),
          M("0", "1", "2", "3") },
        { "-" M("1", "2", "3", "4"), M("-1", "-2", "-3", "-4") },
        { "2" M("1", "2", "3", "4"), M("2", "4", "6", "8") },
        { M("1", "2", "3", "4") "\\cdot 2", M("2", "4", "6", "8") },
        { "\\frac12" M("2", "4", "6", "8"), M("1", "2", "3", "4") },
        { M("2", "4", "6", "8") "/ 2", M("1", "2", "3", "4") },
        { M("1", "2", "3", "4") M("5", "6", "7", "8"),
          M("19", "22", "43", "50") },
        { M("1", "2", "3", "4") "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}",
          "\\begin{pmatrix} 5 \\\\ 11 \\end{pmatrix}" },
        { "\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "(1, 2)" },
        { "\\begin{array}{cc} 1 & 2 \\end{array}",
          "\\begin{bmatrix} 1 & 2 \\end{bmatrix}" },
        { "\\begin{Bmatrix} 1 \\end{Bmatrix}",
          "\\begin{matrix} 1 \\end{matrix}" },
        { M("a", "b+b", "c", "d"), M("a", "2b", "c", "d") },
    };
    static const pair unequal[] = {
        { M("1", "2", "3", "4"), M("1", "3", "2", "4") },
        { M("1", "2", "3", "4") M("5", "6", "7", "8"),
          M("5", "6", "7", "8") M("1", "2", "3", "4") },
        { "\\begin{pmatrix} 1 & 2 & 3 & 4 \\end{pmatrix}",
          M("1", "2", "3", "4") },
        { M("a", "b", "c", "d"), M("a", "b", "c", "2d") },
        { "\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "(2, 1)" },
        { M("1", "2", "3", "4"), "(1, 2, 3, 4)" },
        { "\\begin{pmatrix} 1 \\\\ 2 & 3 \\end{pmatrix}",
          "\\begin{bmatrix} 1 \\\\ 2 & 3 \\end{bmatrix}" },
        { "\\begin{pmatrix} 1 & 2 \\\\ 3 \\end{pmatrix}",
          M("1", "2", "3", "4") },
    };
    (void)state;
    EQUAL(equal);
    UNEQUAL(unequal);
}

/* Words are equal in any wrapper and any case. Single values do not equal
 * lists. */
static void words_equal_in_any_case_and_wrapper(void **state)
{
    static const char *const wrappers[] = { "text",   "textbf", "textit",
                                            "mathrm", "mathbf", "mbox" };
    static const rule_equality single = { .single = 1 };
    (void)state;
    for (size_t i = 0; i < sizeof(wrappers) / sizeof(wrappers[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "\\%s{Yes}", wrappers[i]);
        assert_true(are_equal(text, "yes"));
        assert_false(are_equal(text, "no"));
        (void)snprintf(text, sizeof(text), "\\%s{(B)}", wrappers[i]);
        assert_true(are_equal(text, "B"));
        assert_false(are_equal(text, "b"));
    }
    /* Only letters are words, and fewer than three are names. */
    static const pair unequal[] = { { "A.B", "a.b" },   { "No.", "no." },
                                    { "AB", "ab" },     { "A1", "a1" },
                                    { "ABC2", "abc2" }, { "A-B", "a-b" } };
    UNEQUAL(unequal);
    assert_false(rule_math_equal(&work, rule_text_of("1, 2"),
                                 rule_text_of("1,2"), &single));
    assert_false(rule_math_equal(&work, rule_text_of("x = 2"),
                                 rule_text_of("x=2"), &single));
    assert_true(rule_math_equal(&work, rule_text_of("1 + x"),
                                rule_text_of("x+1"), &single));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_have_their_values),
        cmocka_unit_test(operators_have_their_precedence),
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(units_do_not_count),
        cmocka_unit_test(every_command_has_the_part_of_its_kind),
        cmocka_unit_test(sets_equal_the_relations_that_describe_them),
        cmocka_unit_test(matrices_are_compared),
        cmocka_unit_test(words_equal_in_any_case_and_wrapper),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
