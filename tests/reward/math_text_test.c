/* SPDX-License-Identifier: Apache-2.0
 *
 * The text of an answer: the normal forms of MATH, Minerva and PRM800K, LaTeX
 * as plain text, and signs that are read as commands.
 */
#include "plugins/reward-rule/math.h"
#include "plugins/reward-rule/math_extract.h"
#include "plugins/reward-rule/math_tree.h"
#include "tests/reward/fence.h"
#include "tests/testing.h"

typedef struct form {
    const char *text;
    const char *want; /* NULL: the text cannot be normalised */
} form;

static rule_buffer made;
static rule_buffer scratch;

/* Sets `made`, behind whose text stands a byte that changes from text to text:
 * what is there must not count. */
static void set_made(const char *text)
{
    static const char soil[] = "7}a)\\ ,.{/^_+|$!";
    static size_t turn;
    memset(made.data, soil[turn++ % (sizeof(soil) - 1)], sizeof(made.data));
    rule_buffer_set(&made, rule_text_of(text));
}

static int check_text(const char *text, const char *want)
{
    if (made.size == strlen(want) && memcmp(made.data, want, made.size) == 0)
        return 0;
    print_error("'%s' becomes '%.*s', not '%s'\n", text, (int)made.size,
                made.data, want);
    return 1;
}

/* The expected forms are those of the script of Hendrycks et al. A text that
 * makes the script fail stays unchanged. */
static const form hendrycks[] = {
    { "0.5", "\\frac{1}{2}" },
    { ".5", "\\frac{1}{2}" },
    { "x=.5", ".5" },
    { "1/2", "\\frac{1}{2}" },
    { "-1/2", "\\frac{-1}{2}" },
    { "01/2", "01/2" },
    { "1/02", "1/02" },
    { "-0/2", "-0/2" },
    { "1/2/3", "1/2/3" },
    { "a/b", "a/b" },
    { "xy = 3", "xy=3" },
    { "xyz=3", "xyz=3" },
    { "a=b=c", "a=b=c" },
    { "\\frac12", "\\frac{1}{2}" },
    { "\\frac1{72}", "\\frac{1}{72}" },
    { "\\frac{1}2", "\\frac{1}2" },
    { "\\frac{1}{2}", "\\frac{1}{2}" },
    { "\\frac1", "\\frac1" },
    { "\\frac", NULL },
    { "\\frac12+\\frac34", "\\frac{1}{2}+\\frac{3}{4}" },
    { "\\tfrac12", "\\frac{1}{2}" },
    { "\\dfrac{1}{2}", "\\frac{1}{2}" },
    { "\\sqrt3", "\\sqrt{3}" },
    { "\\sqrt{3}", "\\sqrt{3}" },
    { "\\sqrt", NULL },
    { "\\sqrt3\\sqrt", NULL },
    { "\\sqrt\\sqrt3", NULL },
    { "5\\text{ cm}", "5" },
    { "5\\text{ a}\\text{ b}", NULL },
    { "5\\text{cm}", "5\\text{cm}" },
    { "50\\%", "50" },
    { "\\$5", "5" },
    { "3^\\circ", "3" },
    { "3^{\\circ}", "3" },
    { "\\left(1,2\\right)", "(1,2)" },
    { "1\\!2", "12" },
    { "1\n2", "12" },
    { "a\\\\b", "a\\b" },
    { "{.5}", "{0.5}" },
    { " .5", "\\frac{1}{2}" },
    { "1 2 3", "123" },
    { "", "" },
    { "\\frac\xC3\xA9"
      "2",
      "\\frac{\xC3\xA9}{2}" },
    { "x\xC3\xA9=3", "3" },
    { "\xC3\xA9\xC3\xA9\xC3\xA9=3", "\xC3\xA9\xC3\xA9\xC3\xA9=3" },
    { "10/10", "\\frac{10}{10}" },
    { "0/1", "\\frac{0}{1}" },
    { "-12/5", "\\frac{-12}{5}" },
    { "\\frac{a}b", "\\frac{a}b" },
    { "\\frac ab", "\\frac{a}{b}" },
    { "\\sqrt x", "\\sqrt{}x" },
};

static void math_normalises_as_its_authors_do(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(hendrycks) / sizeof(hendrycks[0]); i++) {
        const form *f = &hendrycks[i];
        set_made(f->text);
        int ok = rule_strip_hendrycks(&made, &scratch);
        bad += ok != (f->want != NULL);
        bad += f->want ? check_text(f->text, f->want) : 0;
        set_made(f->text);
        rule_strip_prm800k(&made, &scratch);
        bad += check_text(f->text, f->want ? f->want : f->text);
    }
    assert_int_equal(bad, 0);
}

/* PRM800K takes the words out of a command that holds the whole line. */
static void a_line_of_words_loses_its_command(void **state)
{
    static const form lines[] = {
        { "\\text{ab}", "ab" },           { " \\text{ a }\n", "a" },
        { "\\text{}", "\\text{}" },       { "\\text{a}+1", "\\text{a}+1" },
        { "\\text{a\nb}", "\\text{ab}" }, { "y\\text{ab}", "y\\text{ab}" },
    };
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        set_made(lines[i].text);
        rule_strip_prm800k(&made, &scratch);
        bad += check_text(lines[i].text, lines[i].want);
    }
    assert_int_equal(bad, 0);
}

static const form minerva[] = {
    { "\\frac1", "\\frac1" },
    { "a\\frac", "a\\frac" },
    { "\\sqrt", "\\sqrt" },
    { "x=5", "5" },
    { "x=y=5", "5" },
    { "an apple", "apple" },
    { "a 5", "5" },
    { "5 dollars", "5" },
    { "5 cm and 3 m", "5and3m" },
    { "\\text{5}", "5" },
    { "\\text{5} and \\text{6}", "5and6" },
    { "\\textbf{5}", "5" },
    { "\\overline{36}", "36" },
    { "\\boxed{5}", "5" },
    { "\\boxed{5} x}", "5}x" },
    { "\\boxed{5", "\\boxed{5" },
    { "$5$", "5" },
    { "x $5$ y", "5" },
    { "a $5$\nb $6$", "5\n6" },
    { "$5", "5" },
    { "frac12", "frac{1}{2}" },
    { "frac1{2}", "frac{1}{{}2}" },
    { "frac{1}2", "frac{1}2" },
    { "\\frac12", "\\frac{1}{2}" },
    { "sqrt2", "sqrt{2}" },
    { "sqrt{2}", "sqrt{2}" },
    { "sqrt", "sqrt" },
    { "\\sqrt2", "\\sqrt{2}" },
    { "1,000", "1000" },
    { "1,000,000", "1000000" },
    { "1,0a", "1,0a" },
    { "{,}", "" },
    { "1{,}000", "1000" },
    { "3\\text{m}", "3" },
    { "5\\mbox{x}", "5x" },
    { "90^\\circ", "90" },
    { "90^{\\circ}", "90" },
    { "5\\%", "5\\%" },
    { "\\$5", "5" },
    { "5.$", "5" },
    { "1\\ 2", "12" },
    { "\\text{and}", "," },
    { "a,\\text{and}b\\text{\ns}", "a,b" },
    { "5 square ways", "5" },
    { "childrentickets", "" },
    { "\\;5", "5" },
    { "5\\dots", "5" },
    { "\"5\"", "5" },
    { "5,\\!000", "5000" },
    { "\\mathrm{th}", "" },
    { "2\\text{}^2", "2" },
    { "meters", "" },
    { "5 km", "5" },
    { "5 points", "5" },
    { ",", "," },
    { "", "" },
};

static void minerva_normalises_and_drops_units(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(minerva) / sizeof(minerva[0]); i++) {
        set_made(minerva[i].text);
        rule_strip_minerva(&made, &scratch);
        bad += check_text(minerva[i].text, minerva[i].want);
    }
    /* Every unit of measure is dropped. */
    static const char *const units[] = {
        "square",    "ways",      "integers",   "dollars",    "mph",
        "inches",    "hours",     "km",         "units",      "\\ldots",
        "sue",       "points",    "feet",       "minutes",    "digits",
        "cents",     "degrees",   "cm",         "gm",         "pounds",
        "meters",    "meals",     "edges",      "students",   "multiples",
        "\\text{s}", "\\text{.}", "\\text{}^3", "\\text{\n}",
    };
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "5 %s", units[i]);
        set_made(text);
        rule_strip_dapo(&made, &scratch);
        bad += check_text(text, "5");
    }
    assert_int_equal(bad, 0);
}

/* The expected text is approximately that of pylatexenc. */
static const form plain[] = {
    { "\\frac12", " 1/2" },
    { "\\dfrac{1}{2}", " 1/2" },
    { "\\frac\\pi2", " pi/2" },
    { "\\tfrac{a}{b}", " a/b" },
    { "\\frac{1}{\\sqrt{2}}", " 1/sqrt(2)" },
    { "\\sqrt[3]{8}", "sqrt(8)" },
    { "\\sqrt2", "sqrt(2)" },
    { "\\sqrt[3", "sqrt()" },
    { "a\\cdot b", "a* b" },
    { "a\\times b\\div c", "a* b/ c" },
    { "2\\pi", "2pi" },
    { "\\infty", "inf" },
    { "A\\cup B", "AU B" },
    { "\\cap", "cap" },
    { "a\\le b", "a<= b" },
    { "a\\leq b", "a<= b" },
    { "a\\ge b\\geq c", "a>= b>= c" },
    { "\\ne\\neq", "!=!=" },
    { "\\lt\\gt", "<>" },
    { "\\pm1", "+-1" },
    { "a\\quad b\\qquad c", "a  b  c" },
    { "\\sin x\\cos\\tan\\log\\ln\\exp", "sin xcostanloglnexp" },
    { "\\ldots\\dots", "......" },
    { "x\\in y", "xin y" },
    { "\\alpha\\beta\\gamma\\delta\\theta\\lambda\\mu\\phi\\omega",
      "\xCE\xB1\xCE\xB2\xCE\xB3\xCE\xB4\xCE\xB8\xCE\xBB\xCE\xBC\xCF\x95\xCF"
      "\x89" },
    { "\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "[ 1 2; 3 4 ]" },
    { "a~b", "a b" },
    { "a\\,b\\;c\\:d\\!e\\ f", "a b c de f" },
    { "\\{1\\}", "{1}" },
    { "{x}$y$", "xy" },
    { "\\unknown x", " x" },
    { "\\text{abc}", "abc" },
    { "\\frac", " /" },
    { "\\frac1", " 1/" },
    { "\\frac {1} {2}", " 1/2" },
    { "\\sqrt 2", "sqrt(2)" },
    { "\\%", "%" },
    { "\\\\", "; " },
};

static void latex_is_written_as_plain_text(void **state)
{
    int bad = 0;
    char deep[240] = "";
    (void)state;
    for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
        rule_latex_to_text(fence_string(plain[i].text), &made);
        bad += check_text(plain[i].text, plain[i].want);
        bad += made.full != 0;
    }
    assert_int_equal(bad, 0);
    for (int i = 1; i <= 33; i++) {
        strncat(deep, "\\sqrt", 6);
        rule_latex_to_text(fence_string(deep), &made);
        assert_int_equal(made.full, 0);
    }
    for (size_t i = 1; i <= 33; i++) {
        memcpy(deep + 6 * (i - 1), "\\sqrt{", 6);
        memset(deep + 6 * i, '}', i);
        rule_latex_to_text((rule_text){ deep, 7 * i }, &made);
        assert_int_equal(made.full, i > 32);
    }
}

static const form clean[] = {
    { "\xE2\x88\x92"
      "7",
      "-7" },
    { "\xE2\x80\x93"
      "7",
      "-7" },
    { "3\xC3\x97"
      "4",
      "3\\times 4" },
    { "3\xC2\xB7"
      "4",
      "3\\cdot 4" },
    { "3\xE2\x8B\x85"
      "4",
      "3\\cdot 4" },
    { "6\xC3\xB7"
      "2",
      "6\\div 2" },
    { "\xCF\x80", "\\pi" },
    { "\xE2\x88\x9E", "\\infty" },
    { "\xE2\x88\x9A"
      "2",
      "\\sqrt 2" },
    { "\xE2\x89\xA4", "\\le" },
    { "\xE2\x89\xA5", "\\ge" },
    { "\xE2\x89\xA0", "\\ne" },
    { "\xE2\x89\x88", "\\approx" },
    { "\xC2\xB1"
      "1",
      "\\pm 1" },
    { "\xE2\x88\x93"
      "1",
      "\\mp 1" },
    { "90\xC2\xB0", "90\\degree" },
    { "x\xC2\xB2", "x^2" },
    { "x\xC2\xB3", "x^3" },
    { "A\xE2\x88\xAA"
      "B",
      "A\\cup B" },
    { "A\xE2\x88\xA9"
      "B",
      "A\\cap B" },
    { "x\xE2\x88\x88"
      "A",
      "x\\in A" },
    { "\xC2\xBD", "\\frac12" },
    { "\xC2\xBC", "\\frac14" },
    { "\xC2\xBE", "\\frac34" },
    { "1\xEF\xBC\x8C"
      "2",
      "1,2" },
    { "\xE2\x84\x9D", "\\mathbb{R}" },
    { "\xE2\x88\x85", "\\emptyset" },
    { "\xE2\x88\x85x", "\\emptyset x" },
    { "\xCF\x80x", "\\pi x" },
    { "\xE2\x88\x9Ex", "\\infty x" },
    { "x\xE2\x89\xA4y", "x\\le y" },
    { "x\xE2\x89\xA5y", "x\\ge y" },
    { "x\xE2\x89\xA0y", "x\\ne y" },
    { "x\xE2\x89\x88y", "x\\approx y" },
    { "x\xC3\x97y", "x\\times y" },
    { "x\xC2\xB7y", "x\\cdot y" },
    { "x\xE2\x8B\x85y", "x\\cdot y" },
    { "x\xC3\xB7y", "x\\div y" },
    { "x\xC2\xB1y", "x\\pm y" },
    { "x\xE2\x88\x93y", "x\\mp y" },
    { "\xE2\x88\x9Ax", "\\sqrt x" },
    { "x\xC2\xB0y", "x\\degree y" },
    { "\xC2\xBDx", "\\frac12 x" },
    { "\xC2\xBCx", "\\frac14 x" },
    { "\xC2\xBEx", "\\frac34 x" },
    { "x<=y", "x\\le y" },
    { "x>=y", "x\\ge y" },
    { "x!=y", "x\\ne y" },
    { "1\xC2\xA0"
      "2",
      "1 2" },
    { "1\xE2\x80\x89"
      "2",
      "1 2" },
    { "1\xE2\x80\xAF"
      "2",
      "1 2" },
    { "\xE2\x82\xAC"
      "5",
      "5" },
    { "\xC2\xA3"
      "5",
      "5" },
    { "\xC2\xA5"
      "5",
      "5" },
    { "\xE2\x80\x9C"
      "5\xE2\x80\x9D",
      "5" },
    { "90^\\circ", "90\\degree" },
    { "90^{\\circ}", "90\\degree" },
    { "90^ \\circ", "90\\degree" },
    { "90^{\\degree}", "90\\degree" },
    { "90\\textdegree", "90\\degree" },
    { "\\lbrace 1\\rbrace", "\\{ 1\\}" },
    { "\\$5", "5" },
    { "$5$", "5" },
    { "5\\%", "5%" },
    { "1\\!2", "12" },
    { "1\\,2", "12" },
    { "1\\;2", "1 2" },
    { "1\\:2", "1 2" },
    { "1\\ 2", "1 2" },
    { "1\\>2", "1 2" },
    { "1~2", "1 2" },
    { "2**3", "2^3" },
    { "a<=b", "a\\le b" },
    { "a>=b", "a\\ge b" },
    { "a!=b", "a\\ne b" },
    { "a==b", "a=b" },
    { "a:=b", "a=b" },
    { "\"x\"", "x" },
    { "a\tb\nc\rd", "a b c d" },
    { "\\left(1\\right)", "(1 )" },
    { "\\left.x\\right|", "x |" },
    { "\\big(1\\Big)", "(1 )" },
    { "\\bigl(\\bigr)", "( )" },
    { "\\displaystyle x", "x" },
    { "\\quad x", "x" },
    { "\\quadx", "x" },
    { "\\qquad x", "x" },
    { "\\limits", "" },
    { "1{,}234", "1234" },
    { "1,\\!234", "1234" },
    { "1\\,234", "1234" },
    { "1{,} 234", "1234" },
    { "1\\, 234", "1234" },
    { "1,\\! 234", "1234" },
    { "x\\,234", "x 234" },
    { "1\\,x", "1 x" },
    { "\\\\frac12", "\\frac12" },
    { "a\\\\ b", "a  b" },
    { "\\begin{pmatrix}1\\\\2\\end{pmatrix}",
      "\\begin{pmatrix}1\\\\2\\end{pmatrix}" },
    { "\\begin{a}1\\\\end{a}", "\\begin{a}1\\end{a}" },
    { "*5*", "5" },
    { ":5:", "5" },
    { "5.", "5" },
    { "5,;", "5" },
    { "x\\,.", "x" },
    { "**5**.", "5" },
    { "\\leftarrow", "\\leftarrow" },
    { "5 .", "5" },
    { "\\foo{x}", "\\foo{x}" },
    { "\\quad.5", ".5" },
    { "\\left.5", "5" },
    { "\\right.5", "5" },
};

static void unicode_signs_become_commands(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(clean) / sizeof(clean[0]); i++) {
        rule_clean(fence_string(clean[i].text), &made);
        bad += check_text(clean[i].text, clean[i].want);
    }
    static const char *const sizes[] = {
        "left",      "right",     "big",    "Big",          "bigg",
        "Bigg",      "bigl",      "bigr",   "Bigl",         "Bigr",
        "biggl",     "biggr",     "Biggl",  "Biggr",        "middle",
        "textstyle", "nolimits",  "limits", "displaystyle", "scriptstyle",
        "enspace",   "thinspace", "quad",   "qquad",
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        char text[64];
        (void)snprintf(text, sizeof(text), "1\\%s 2", sizes[i]);
        rule_clean(fence_string(text), &made);
        bad += check_text(text, "1  2");
        (void)snprintf(text, sizeof(text), "1\\%syy 2", sizes[i]);
        rule_clean(fence_string(text), &made);
        bad += check_text(text, text);
    }
    assert_int_equal(bad, 0);
}

/* ---- extraction ---------------------------------------------------------- */

typedef rule_text (*extractor)(rule_text);
static const struct extraction {
    extractor extract;
    const char *text;
    const char *want; /* NULL: none */
} extractions[] = {
    { rule_extract_boxed, "\\boxed{1}", "1" },
    { rule_extract_boxed, "\\boxed{{1}{2}} x", "{1}{2}" },
    { rule_extract_boxed, "\\boxed{}", "" },
    { rule_extract_boxed, "\\boxed{1} \\fbox{2}", "1" },
    { rule_extract_boxed, "\\fbox{1} \\fbox{2}", "2" },
    { rule_extract_boxed, "\\boxed 1$ x", "1" },
    { rule_extract_boxed, "\\boxed 1", "1" },
    { rule_extract_boxed, "\\boxed{2} \\boxed 1$", "1" },
    { rule_extract_boxed, "\\boxed", NULL },
    { rule_extract_boxed, "\\boxedx{1}", NULL },
    { rule_extract_boxed, "\\boxed{1", NULL },
    { rule_extract_boxed, "x", NULL },
    { rule_extract_strict_box, "\\boxed{1}", "1" },
    { rule_extract_strict_box, "\\boxed{1} \\boxed{2}", "2" },
    { rule_extract_strict_box, "\\boxed 1", NULL },
    { rule_extract_strict_box, "\\fbox{1}", NULL },
    { rule_extract_minerva,
      "Final Answer: The final answer is 5. I hope it is correct.", "5" },
    { rule_extract_minerva,
      "Final Answer: The final answer is   . I hope it is correct.", "" },
    { rule_extract_minerva, "Final Answer: The final answer is 5. ", "5" },
    { rule_extract_minerva, "Final Answer: The final answer is 5.", NULL },
    { rule_extract_minerva, "Final Answer: The final answer is 5.\n", NULL },
    { rule_extract_minerva, "Final Answer: The final answer is 5. \nx", NULL },
    { rule_extract_minerva,
      "Final Answer: The final answer is 5\nFinal Answer: The final answer is "
      "6. I hope it is correct.",
      "6" },
    { rule_extract_minerva, "final answer: the final answer is 5. ", NULL },
    { rule_extract_answer, "Answer: 5", "5" },
    { rule_extract_answer, "ANSWER :\n\n 5 \n6", "5 " },
    { rule_extract_answer, "answer: 5 answer: 6", "5 answer: 6" },
    { rule_extract_answer, "answer: 5\nanswer: 6", "6" },
    { rule_extract_answer, "answer: 5\nanswer 6", "5" },
    { rule_extract_answer, "answer:", NULL },
    { rule_extract_answer, "answer: ", " " },
    { rule_extract_answer, "answer:\n", NULL },
    { rule_extract_answer, "answer5: 6", NULL },
    { rule_extract_answer, "answeranswer: 6", "6" },
    { rule_extract_marked, "#### 5", "5" },
    { rule_extract_marked, "####5 \n6", "5" },
    { rule_extract_marked, "#### 5 #### 6", "6" },
    { rule_extract_marked, "#####5", "5" },
    { rule_extract_marked, "#### \n6", NULL },
    { rule_extract_marked, "### 6", NULL },
};

static void answers_are_extracted_by_their_markers(void **state)
{
    int bad = 0;
    (void)state;
    for (size_t i = 0; i < sizeof(extractions) / sizeof(extractions[0]); i++) {
        const struct extraction *p = &extractions[i];
        rule_text got = p->extract(fence_string(p->text));
        if ((got.data != NULL) != (p->want != NULL) ||
            (p->want && !rule_equal(got, rule_text_of(p->want), 0))) {
            print_error("%zu: '%s' holds '%.*s', not '%s'\n", i, p->text,
                        (int)got.size, got.data ? got.data : "",
                        p->want ? p->want : "(none)");
            bad++;
        }
    }
    assert_int_equal(bad, 0);
    /* A strict box must be within the last hundred characters. */
    char text[200];
    memset(text, '.', sizeof(text));
    memcpy(text, "\\boxed{1}", 9);
    assert_non_null(rule_extract_strict_box((rule_text){ text, 100 }).data);
    assert_null(rule_extract_strict_box((rule_text){ text, 101 }).data);
}

/* ---- buffers ------------------------------------------------------------ */

static void buffers_report_what_does_not_fit(void **state)
{
    static char much[sizeof(made.data) + 1];
    (void)state;
    memset(much, 'x', sizeof(much));
    rule_buffer_set(&made, (rule_text){ much, sizeof(made.data) });
    assert_int_equal(made.full, 0);
    assert_int_equal(made.size, sizeof(made.data));
    rule_buffer_add(&made, "y", 1);
    assert_int_equal(made.full, 1);
    assert_int_equal(made.size, sizeof(made.data));
    rule_buffer_set(&made, (rule_text){ much, sizeof(much) });
    assert_int_equal(made.full, 1);
    set_made("aXbXX");
    rule_buffer_replace(&made, "X", "--", &scratch);
    assert_int_equal(check_text("aXbXX", "a--b----"), 0);
    rule_buffer_replace(&made, "?", "!", &scratch);
    assert_int_equal(check_text("aXbXX", "a--b----"), 0);
    set_made("  a b\n");
    rule_buffer_trim(&made);
    assert_int_equal(check_text("  a b", "a b"), 0);
    rule_text t = rule_text_of("abcabc");
    assert_int_equal(rule_seek(t, "bc"), 1);
    assert_int_equal(rule_seek_last(t, "bc"), 4);
    assert_int_equal(rule_seek(t, "x"), 6);
    assert_int_equal(rule_seek_last(t, "x"), 6);
    assert_int_equal(rule_seek(t, "abcabcd"), 6);
    assert_int_equal(rule_seek_last(t, "abcabc"), 0);
    assert_int_equal(rule_count_text(t, "abc"), 2);
    assert_int_equal(rule_count_text(rule_text_of("aaa"), "aa"), 1);
    assert_int_equal(rule_text_from(t, 9).size, 0);
    assert_int_equal(rule_char_size(rule_text_of("")), 0);
    assert_int_equal(rule_char_size(rule_text_of("\xC3\xA9x")), 2);
    assert_int_equal(rule_char_size(rule_text_of("\xF0\x9F\x98\x80\x80")), 4);
    assert_int_equal(rule_char_size(rule_text_of("a\x80")), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_normalises_as_its_authors_do),
        cmocka_unit_test(a_line_of_words_loses_its_command),
        cmocka_unit_test(minerva_normalises_and_drops_units),
        cmocka_unit_test(latex_is_written_as_plain_text),
        cmocka_unit_test(unicode_signs_become_commands),
        cmocka_unit_test(answers_are_extracted_by_their_markers),
        cmocka_unit_test(buffers_report_what_does_not_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
