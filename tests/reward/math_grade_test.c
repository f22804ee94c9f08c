/* SPDX-License-Identifier: Apache-2.0
 *
 * Each math grader through the plugin: where it searches for the answer, and
 * which answers it accepts.
 */
#include "plugins/reward-rule/math.h"
#include "tests/reward/rig.h"

typedef struct sample {
    char verdict; /* Right, Wrong, No answer */
    const char *response;
    const char *truth;
} sample;

static void check_verdicts(const char *const *keys, const sample *samples,
                           size_t count)
{
    rig r;
    int bad = 0;
    rig_open(&r, keys);
    for (size_t i = 0; i < count; i++) {
        const char *text = samples[i].response;
        char got = rig_judge(&r, text, strlen(text), samples[i].truth);
        if (got != samples[i].verdict)
            print_error("%s = %s: %c, expected %c: %s (truth %s)\n", keys[0],
                        keys[1], got, samples[i].verdict, text,
                        samples[i].truth);
        bad += got != samples[i].verdict;
    }
    rig_close(&r);
    assert_int_equal(bad, 0);
}

#define CHECK(keys, samples) \
    check_verdicts(keys, samples, sizeof(samples) / sizeof((samples)[0]))

static void math_takes_the_last_box(void **state)
{
    static const sample samples[] = {
        { 'R', "\\boxed{1} and then \\boxed{\\dfrac{1}{2}}", "\\frac12" },
        { 'W', "\\boxed{2} and then \\boxed{1}", "2" },
        { 'R', "so $\\boxed 7$ it is", "7" },
        { 'R', "\\fbox{7}", "7" },
        { 'R', "\\boxed{\\frac{1}{\\sqrt{2}}}", "\\frac{1}{\\sqrt2}" },
        { 'N', "\\boxed{7", "7" },
        { 'N', "\\boxed{7} no: \\boxed{8", "8" },
        { 'N', "the answer is 7", "7" },
        { 'N', "", "7" },
        { 'R', "\\boxed{x=7}", "7" },
        { 'R', "\\boxed{50\\%}", "50" },
        { 'R', "\\boxed{0.5}", "1/2" },
        { 'W', "\\boxed{0.50}", "1/2" },
        { 'W', "\\boxed{1,000}", "1000" },
        { 'R', "\\boxed{10\\text{ cm}}", "10" },
        { 'R', "\\boxed{7}", "We see that it is $\\boxed{7}$." },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math"), samples);
}

static void math_minerva_takes_the_final_answer(void **state)
{
    static const sample samples[] = {
        { 'R', "Final Answer: The final answer is $7$. I hope it is correct.",
          "7" },
        { 'R',
          "Final Answer: The final answer is $\\frac12$. I hope it is "
          "correct.",
          "\\frac{1}{2}" },
        { 'R',
          "Final Answer: The final answer is 1,000 dollars. I hope it is "
          "correct.",
          "1000" },
        { 'R', "Final Answer: The final answer is $x=7$. ", "7" },
        { 'R', "Final Answer: The final answer is 2+x. I hope it is correct.",
          "x+2" },
        { 'W',
          "Final Answer: The final answer is 8. I hope it is correct. "
          "Final Answer: The final answer is 7. I hope it is correct.",
          "7" },
        { 'N', "Final Answer: The final answer is\n7. I hope it is correct.",
          "7" },
        { 'N', "\\boxed{7}", "7" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_minerva"), samples);
}

/* The verdicts are those of the original code on the same pairs. */
static void math_prm800k_evaluates(void **state)
{
    static const sample samples[] = {
        { 'R', "\\boxed{1,000}", "1000" },
        { 'R', "\\boxed{1000.0}", "1000" },
        { 'R', "\\boxed{0.50}", "\\frac{1}{2}" },
        { 'W', "\\boxed{\\frac{2}{4}}", "\\frac{1}{2}" },
        { 'R', "\\boxed{3+2x}", "2x+3" },
        { 'R', "\\boxed{(x+1)^2}", "x^2+2x+1" },
        { 'W', "\\boxed{2^{10}}", "1024" },
        { 'W', "\\boxed{x+y+z}", "z+y+x" },
        { 'R', "\\boxed{(1, 2)}", "(1,2)" },
        { 'W', "\\boxed{(2,1)}", "(1,2)" },
        { 'W', "\\boxed{[1,2]}", "(1,2)" },
        { 'W', "\\boxed{(-\\infty,3)}", "(-\\infty,3]" },
        { 'R', "\\boxed{3 million}", "3*10^6" },
        { 'R', "\\boxed{20\\%}", "20" },
        { 'R', "\\boxed{\\text{Yes}}", "yes" },
        { 'R', "\\boxed{7\\frac{3}{4}}", "7 3/4" },
        { 'R', "\\boxed{\\sqrt{2}/2}", "\\frac{\\sqrt2}{2}" },
        { 'N', "7", "7" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_prm800k"), samples);
}

static void math_dapo_reads_the_line_after_answer(void **state)
{
    static const sample samples[] = {
        { 'R', "Answer: 7", "7" },
        { 'R', "answer :\n $\\frac12$", "\\frac{1}{2}" },
        { 'R', "Answer: 8\nAnswer: \\boxed{7}", "7" },
        { 'W', "Answer: 7 Answer: 8", "8" },
        { 'R', "ANSWER: 1,000 meters", "1000" },
        { 'N', "\\boxed{7}", "7" },
        { 'N', "Answer:", "7" },
        { 'N', "Answer:\n\n", "7" },
    };
    static const sample strict[] = {
        { 'R', "\\boxed{7}", "7" },
        { 'W', "\\boxed{7.0}", "7" },
        { 'N', "\\boxed 7", "7" },
        { 'N', "Answer: 7", "7" },
        { 'N',
          "\\boxed{7} is the answer, and behind it there are more than a "
          "hundred characters, so that it is not found by this rule.",
          "7" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_dapo"), samples);
    CHECK(RIG_KEYS("grader", "math_dapo", "extract", "boxed"), strict);
}

/* Only the last 300 characters are read. */
static void math_dapo_reads_the_end(void **state)
{
    char text[400];
    rig r;
    (void)state;
    memset(text, ' ', sizeof(text));
    memcpy(text, "Answer: 7\n", 10);
    rig_open(&r, RIG_KEYS("grader", "math_dapo"));
    assert_int_equal(rig_judge(&r, text, 300, "7"), 'R');
    assert_int_equal(rig_judge(&r, text, 301, "7"), 'N');
    rig_close(&r);
}

static void math_verify_finds_the_answer(void **state)
{
    static const sample samples[] = {
        { 'R', "So \\boxed{\\frac{2}{4}}.", "$\\frac{1}{2}$" },
        { 'R', "\\(\\boxed{1}\\) and \\(\\boxed{-2}\\)", "\\{-2,1\\}" },
        { 'W', "\\boxed{1} is wrong, it is \\boxed{2}", "1" },
        { 'R', "\\boxed{1} is wrong, so it is not 1 but \\boxed{2}", "1, 2" },
        { 'R', "\\boxed{1} is wrong. It is \\boxed{2}", "2" },
        { 'N', "\\boxed{7", "7" },
        { 'R', "The final answer is $x = 7$. I hope it is correct.", "7" },
        { 'R', "The answer is 7. There were 12 of them.", "7" },
        { 'R', "**Answer:** 7", "7" },
        { 'R', "It takes 3 steps.\n#### 7", "7" },
        { 'R', "first $5$, then $7$", "7" },
        { 'R', "first $5$, then 7", "7" },
        { 'R', "it costs 1,234.50 dollars", "1234.5" },
        { 'R', "about 50 percent", "50\\%" },
        { 'R', "\\boxed{\\text{(B)}}", "B" },
        { 'R', "So it is \\boxed{Evelyn}.", "\\text{Evelyn}" },
        { 'W', "So it is \\boxed{Carla}.", "\\text{Evelyn}" },
        { 'N', "So the answer is **Evelyn**.", "\\text{Evelyn}" },
        { 'N', "I do not know.", "7" },
        { 'N', "", "7" },
        { 'R', "Answer: \\frac{3}{4}", "\\frac{3}{4}" },
        { 'R', "The answer is \\frac{3}{4}.", "0.75" },
        { 'W', "The answer is \\frac{3}{4}.", "\\frac{4}{3}" },
        { 'R', "Final Answer: The largest $n$ is 34.", "34" },
        { 'W', "Final Answer: The largest $n$ is 34.", "3" },
        { 'R', "$17 \\bmod 5 = 2$", "2" },
        { 'W', "$17 \\bmod 5$", "17" },
        { 'R', "\\boxed{\\lim_{x\\to 0} f(x) = 1}", "1" },
        { 'W', "\\boxed{\\lim_{x\\to 0} f(x) = 1}", "0" },
        { 'R', "Il y en a 2,74", "2.74" },
        { 'W', "Il y en a 2,74", "274" },
        { 'R', "${1,3}$", "\\{1,3\\}" },
        { 'W', "${1,3}$", "\\{1,4\\}" },
        { 'R', "{3 \\over 4}, so $3 \\over 4$", "3/4" },
        { 'R', "\\boxed{0.333333}", "1/3" },
        { 'W', "\\boxed{0.33}", "1/3" },
    };
    static const sample rounded[] = { { 'R', "\\boxed{0.33}", "1/3" } };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_verify"), samples);
    CHECK(RIG_KEYS("grader", "math_verify", "tolerance", "0.005"), rounded);
}

/* Where a chain of equations cannot be read, its last side is, but not that of
 * one equation or of several statements: the number in it counts then. */
static void a_chain_that_cannot_be_read_has_its_last_side(void **state)
{
#define ROOT "\\boxed{\\sqrt{2}}"
    static const sample rows[] = {
        { 'R', ROOT, ")( = x = \\sqrt{2}" },
        { 'W', ROOT, ")( = x = \\sqrt{3}" },
        { 'W', ROOT, ")( = \\sqrt{2}" },
        { 'W', ROOT, ")( = x; y = \\sqrt{2}" },
        { 'W', ROOT, ")( = x, y = \\sqrt{2}" },
        { 'W', ROOT, ")( <= x = \\sqrt{2}" },
        { 'W', ROOT, ")( >= x = \\sqrt{2}" },
        { 'W', ROOT, ")( != x = \\sqrt{2}" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_verify"), rows);
}

/* A sum is not the percentage that a number before it is. */
static void sums_are_no_percentages(void **state)
{
    static const sample rows[] = {
        { 'R', "It was 40%. Now it is 7%", "0.07" },
        { 'R', "It was 40%. Now it is 3 + 4", "7" },
        { 'W', "It was 40%. Now it is 3 + 4", "0.07" },
        { 'W', "It was 3 + 4 of 40%, now 40% of it. Now it is 3 + 4", "0.07" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_verify"), rows);
}

/* As Math-Verify does, passes over a formula that is none. */
static void formulas_that_cannot_be_read_are_passed_over(void **state)
{
    static const sample rows[] = {
        { 'R', "$)($ and $5$", "5" },
        { 'R', "$5$ and $)($", "5" },
        { 'R', "so $5$\n\nand $)($ and $)($", "5" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_verify"), rows);
}

static void extract_chooses_where_the_answer_is(void **state)
{
    static const char *const places[] = { "boxed",  "minerva", "answer",
                                          "marked", "last",    "latex",
                                          "number", "any" };
    static const char *const answers[] = { "1", "2", "3", "4",
                                           "5", "1", "2", "2" };
    static const char text[] = "\\boxed{1} Final Answer: The final answer is "
                               "2. I hope it is correct.\n"
                               "Answer: 3\n#### 4\nand $5$";
    (void)state;
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        rig r;
        rig_open(&r, RIG_KEYS("grader", "math_verify", "extract", places[i]));
        char got = rig_judge(&r, text, strlen(text), answers[i]);
        if (got != 'R')
            print_error("%s\n", places[i]);
        assert_int_equal(got, 'R');
        rig_close(&r);
    }
}

/* With Math-Verify's option, the relation of a response equals the set of the
 * truth. */
static void relations_may_be_sets(void **state)
{
    static const sample strict[] = {
        { 'W', "$x \\ge 1$", "[1,\\infty)" },
        { 'R', "$[1,\\infty)$", "x \\ge 1" },
        { 'W', "$x > 1 \\text{ and } x < 3$", "(1,3)" },
        { 'R', "$(1,3)$", "x > 1 \\text{ and } x < 3" },
        { 'R', "$x \\ge 1$", "1 \\le x" },
        { 'R', "$[1,2]\\cup[2,3]$", "[1,3]" },
    };
    static const sample loose[] = {
        { 'R', "$x \\ge 1$", "[1,\\infty)" },
        { 'W', "$x > 1$", "[1,\\infty)" },
        { 'R', "$x > 1 \\text{ and } x < 3$", "(1,3)" },
        { 'W', "$x > 1 \\text{ and } x < 4$", "(1,3)" },
    };
    (void)state;
    CHECK(RIG_KEYS("grader", "math_verify"), strict);
    CHECK(RIG_KEYS("grader", "math_verify", "allow_set_relation_comp", "true"),
          loose);
}

static void scores_come_from_the_options(void **state)
{
    rig r;
    (void)state;
    rig_open(&r, RIG_KEYS("grader", "math_dapo", "format_score", "-1",
                          "no_answer_score", "-0.5", "after", "</think>"));
    static const char *const texts[] = { "Answer: 8</think>Answer: 7",
                                         "Answer: 7</think>Answer: 8",
                                         "Answer: 7</think>" };
    static const double scores[] = { 1, -1, -0.5 };
    for (int i = 0; i < 3; i++) {
        xray_sample_in one = rig_sample(1, texts[i], strlen(texts[i]), "7");
        assert_int_equal(r.ops->submit(r.self, &one, 1, sizeof(one)), XRAY_OK);
        assert_true(rig_next_score(&r).score == scores[i]);
    }
    rig_close(&r);
}

static int compare_by_minerva(rule_math *m, rule_text given, rule_text truth)
{
    static const rule_equality how = { .single = 1 };
    return rule_equal_minerva(m, given, truth, &how);
}

static int compare_by_value(rule_math *m, rule_text given, rule_text truth)
{
    static const rule_equality how = { .single = 0 };
    return rule_math_equal(m, given, truth, &how);
}

/* Answers that do not fit into the buffer of a normal form are compared byte by
 * byte. */
static void long_answers_are_compared_unchanged(void **state)
{
    static int (*const equal[])(rule_math *, rule_text, rule_text) = {
        rule_equal_dapo,    rule_equal_slime, rule_equal_prm800k,
        compare_by_minerva, compare_by_value,
    };
    static rule_math m;
    static char given[RULE_BUFFER_BYTES + 9];
    static char truth[sizeof(given)];
    (void)state;
    memset(given, 'a', sizeof(given));
    memset(truth, 'a', sizeof(truth));
    for (size_t i = 0; i < sizeof(equal) / sizeof(equal[0]); i++) {
        rule_text a = { given, sizeof(given) };
        rule_text b = { truth, sizeof(truth) };
        truth[sizeof(truth) - 1] = 'a';
        assert_int_equal(equal[i](&m, a, b), 1);
        truth[sizeof(truth) - 1] = 'b';
        assert_int_equal(equal[i](&m, a, b), 0);
        b.size = 3;
        assert_int_equal(equal[i](&m, a, b), 0);
        assert_int_equal(equal[i](&m, b, a), 0);
    }
}

static void keys_of_others_are_refused(void **state)
{
    rig r;
    (void)state;
    assert_int_equal(
        rig_try(&r, RIG_KEYS("grader", "math", "tolerance", "0.1")),
        XRAY_E_CONFIG);
    assert_non_null(strstr(r.host.reason, "tolerance"));
    assert_int_equal(
        rig_try(&r, RIG_KEYS("grader", "gsm8k", "extract", "boxed")),
        XRAY_E_CONFIG);
    assert_non_null(strstr(r.host.reason, "extract"));
}

/* Adds one "key = value" of an example to `keys`. */
static size_t read_example_line(char *line, const char **keys, size_t count)
{
    char *equals = strstr(line, " = ");
    if (!equals || strncmp(line, "plugin", 6) == 0 ||
        strncmp(line, "weight", 6) == 0)
        return count;
    *equals = '\0';
    keys[count] = line;
    keys[count + 1] = equals + 3;
    return count + 2;
}

/* Checks that a section of the example creates an instance. */
static void open_example_section(const char **keys, size_t count)
{
    rig r;
    keys[count] = NULL;
    rig_open(&r, keys);
    rig_close(&r);
}

static void the_example_of_the_docs_works(void **state)
{
    static char text[65536];
    char path[1024];
    const char *keys[32];
    size_t count = 0;
    int sections = 0;
    const char *root = getenv("XRAY_SOURCE");
    (void)state;
    (void)snprintf(path, sizeof(path), "%s/docs/rewards.md", root ? root : ".");
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
    (void)fclose(file);
    char *at = strstr(text, "\n### math\n");
    assert_non_null(at);
    at = strstr(at, "```ini\n");
    assert_non_null(at);
    *strstr(at + 7, "```") = '\0';
    for (char *line = at + 7; *line;) {
        char *end = strchr(line, '\n');
        *end = '\0';
        if (*line == '[' && count)
            open_example_section(keys, count);
        count = *line == '[' ? 0 : read_example_line(line, keys, count);
        sections += *line == '[';
        assert_true(count + 2 < sizeof(keys) / sizeof(keys[0]));
        line = end + 1;
    }
    open_example_section(keys, count);
    assert_int_equal(sections, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_takes_the_last_box),
        cmocka_unit_test(math_minerva_takes_the_final_answer),
        cmocka_unit_test(math_prm800k_evaluates),
        cmocka_unit_test(math_dapo_reads_the_line_after_answer),
        cmocka_unit_test(math_dapo_reads_the_end),
        cmocka_unit_test(math_verify_finds_the_answer),
        cmocka_unit_test(a_chain_that_cannot_be_read_has_its_last_side),
        cmocka_unit_test(sums_are_no_percentages),
        cmocka_unit_test(formulas_that_cannot_be_read_are_passed_over),
        cmocka_unit_test(extract_chooses_where_the_answer_is),
        cmocka_unit_test(relations_may_be_sets),
        cmocka_unit_test(scores_come_from_the_options),
        cmocka_unit_test(long_answers_are_compared_unchanged),
        cmocka_unit_test(keys_of_others_are_refused),
        cmocka_unit_test(the_example_of_the_docs_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
