/* SPDX-License-Identifier: Apache-2.0
 *
 * Verdicts where graders are easily off by one: the first option, the first
 * byte after a mark, and the first place at which a form may begin.
 */
#include "tests/reward/rig.h"

#define RUN RIG_RUN

/* The option A has the number 0, which is an answer like any other. */
static void the_first_option_is_an_answer(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice"), { "Answer: B", "A", 'W' },
        { "Answer: A", "B", 'W' }, { "Answer: A", "A", 'R' },
        { "answer: a", "A", 'R' }, { "(a)", "a", 'R' },
        { "Answer: B", "0", 'W' }, { "Answer: B", "?", 'N' });
    RUN(RIG_KEYS("grader", "choice", "option_count", "26"),
        { "answer: z", "Z", 'R' }, { "z", "25", 'R' });
    RUN(RIG_KEYS("grader", "gpqa"), { "Answer: B", "A", 'W' },
        { "Answer: A", "B", 'W' }, { "answer: a", "A", 'R' },
        { "A is correct", "A", 'R' }, { "so A", "A", 'R' },
        { "so A", "B", 'W' }, { "final answer: A", "A", 'R' },
        { "It is Paris, France!", "paris  france", 'R' },
        { "It is parisfrance", "Paris, France", 'N' },
        { "Paris 1. 2", "paris 1 2", 'R' });
}

/* Words and marks around a letter do not move the place at which it is read. */
static void letters_are_read_right_after_their_mark(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice"), { "answer is:B", "B", 'R' },
        { "answer is :B", "B", 'R' }, { "answer is B", "B", 'R' },
        { "answer\tis\tB", "B", 'R' }, { "**answer** is **B**", "B", 'R' },
        { "answer:C answer is B", "B", 'R' }, { "answer is**B**", "B", 'R' },
        { "answer isn't B", "B", 'N' });
    RUN(RIG_KEYS("grader", "choice", "method", "flexible"),
        { "(Cat) is B", "B", 'R' }, { "(A) fits, not C", "A", 'R' },
        { "(A) or (E) fits", "A", 'R' }, { "(A) (b) fits", "A", 'R' },
        { "(A", "A", 'R' }, { "A abc then B", "B", 'R' },
        { "B. Then A abc", "B", 'R' }, { "B. Then A zoo", "B", 'R' },
        { "B. Then A 2", "A", 'R' }, { "A", "A", 'R' },
        { "It is D", "D", 'R' });
}

/* Returns the score of a response under a grader without a ground truth. */
static double score_form(const char *const *keys, const char *response)
{
    rig r;
    rig_open(&r, keys);
    double score = rig_text_score(&r, response, "");
    rig_close(&r);
    return score;
}

static void forms_begin_at_the_first_byte(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "format", "format", "think"),
        { "<think><think>a</think>", "", 'W' }, { "<think></think>", "", 'R' },
        { "<think>a<think></think>", "", 'W' },
        { " <think>a</think>", "", 'W' });
    RUN(RIG_KEYS("grader", "format", "format", "think_answer"),
        { "<think>\na\n</think>\n<answer>\nb\n</answer>", "", 'R' },
        { "<think>\n\n</think>\n<answer>\n\n</answer>\n", "", 'R' },
        { "<think>\na\n</think>\n<answer>\nb\n</answer>x", "", 'W' },
        { "<think>\na\n</think>\n<answer>\nb\n</answer>x\n</answer>", "",
          'R' });
    const char *const *steps = RIG_KEYS("grader", "reasoning_steps");
    rig_near(score_form(steps, "1.\n- a Next,"), 1, "1.");
    rig_near(score_form(steps, "12.\n- a Next,"), 1, "12.");
    rig_near(score_form(steps, "Step 1:\n- b Next, c"), 1, "Step 1:");
    rig_near(score_form(steps, "Step 12:Step 3:Step x:"), 2.0 / 3, "Step 12:");
    rig_near(score_form(steps, "a\n-\n*"), 2.0 / 3, "marks");
    rig_near(score_form(steps, "a 1. b 2."), 0, "inner numbers");
}

/* A minus after a digit, a letter or a bracket subtracts. */
static void a_sign_belongs_to_its_number(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "numeric"), { "10-5", "5", 'R' },
        { "19-5", "5", 'R' }, { "a-5", "5", 'R' }, { "z-5", "5", 'R' },
        { "A-5", "5", 'R' }, { "Z-5", "5", 'R' }, { "(1)-5", "5", 'R' },
        { " -5", "-5", 'R' }, { "=-5", "-5", 'R' }, { "-5", "-5", 'R' },
        { "(-5)", "-5", 'R' }, { "-$5", "-5", 'R' }, { "1-$5", "5", 'R' },
        { "\xE2\x88\x92"
          "5",
          "-5", 'R' },
        { "1\xE2\x88\x92"
          "5",
          "5", 'R' });
}

/* Every digit is one, the first and the last included. */
static void numbers_of_gsm8k_have_all_digits(void **state)
{
    (void)state;
    for (int method = 0; method < 2; method++)
        RUN(RIG_KEYS("grader", "gsm8k", "method",
                     method ? "flexible" : "strict"),
            { "#### 0", "0", 'R' }, { "#### 9", "9", 'R' },
            { "#### 90", "9", 'W' },
            { "#### 1,900", "1900", method ? 'W' : 'R' },
            { "#### 10", "10", 'R' }, { "#### -9", "-9", 'R' },
            { "#### 0.9", "0.9", 'R' }, { "####", "9", 'N' });
}

/* PRM800K compares tuples element by element, with the same brackets, and drops
 * units with their plurals and powers. */
static void tuples_and_units_are_those_of_prm800k(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "math_prm800k"),
        { "\\boxed{(1,2,3)}", "(1,2)", 'W' },
        { "\\boxed{(1,2)}", "(1,2,3)", 'W' },
        { "\\boxed{(1, 2)}", "(1,2)", 'R' }, { "\\boxed{[1,2)}", "(1,2)", 'W' },
        { "\\boxed{(1,2]}", "(1,2)", 'W' }, { "\\boxed{(2,1)}", "(1,2)", 'W' },
        { "\\boxed{5 inches^2}", "5", 'R' }, { "\\boxed{5 inches}", "5", 'R' },
        { "\\boxed{5 cm ^2}", "5", 'R' }, { "\\boxed{50\\%}", "50", 'R' },
        { "\\boxed{1 or 2}", "1,2", 'R' }, { "\\boxed{2\\frac12}", "2.5", 'R' },
        { "\\boxed{1,000}", "1000", 'R' }, { "\\boxed{1,00}", "100", 'W' },
        { "\\boxed{7.0}", "7", 'R' }, { "\\boxed{2/4}", "1/2", 'W' },
        { "\\boxed{\\text{12} c}", "12", 'W' },
        { "\\boxed{\\text{12}}", "12", 'R' });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_option_is_an_answer),
        cmocka_unit_test(letters_are_read_right_after_their_mark),
        cmocka_unit_test(forms_begin_at_the_first_byte),
        cmocka_unit_test(a_sign_belongs_to_its_number),
        cmocka_unit_test(numbers_of_gsm8k_have_all_digits),
        cmocka_unit_test(tuples_and_units_are_those_of_prm800k),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
