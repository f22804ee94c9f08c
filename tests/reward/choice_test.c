/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "choice" finds the letter of an answer where it is announced and,
 * if flexible, anywhere.
 */
#include "tests/reward/rig.h"

#define RUN RIG_RUN

static void finds_an_announced_letter(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice"), { "Answer: B", "B", 'R' },
        { "Answer: B", "C", 'W' }, { "answer:b.", "B", 'R' },
        { "The answer is (C).", "C", 'R' },
        { "the answer is: **D**", "D", 'R' }, { "**Answer:** $B$", "B", 'R' },
        { "Answer: A\nAnswer: B", "B", 'R' }, { "so \\boxed{C}", "C", 'R' },
        { "\\boxed{\\text{C}}", "C", 'R' },
        { "\\boxed{\\textbf{(C)}}", "C", 'R' },
        { "Answer: A, \\boxed{B}", "B", 'R' },
        { "Answer: \\boxed{\\text{(D)}}", "D", 'R' },
        { "Answer: \\boxed{D", "D", 'R' }, { "B", "B", 'R' },
        { " (b)\n", "B", 'R' }, { "C.", "C", 'R' }, { "\"D\"", "D", 'R' },
        { "Answer: E", "A", 'N' }, { "Answer: Because", "B", 'N' },
        { "Answer: B\xC3\xA9", "B", 'N' }, { "\\boxed{42}", "A", 'N' },
        { "answers vary", "A", 'N' }, { "It is (B)", "B", 'N' },
        { "B or C", "B", 'N' }, { "", "A", 'N' }, { "answer", "A", 'N' },
        { "answer is", "A", 'N' }, { "answer:", "A", 'N' },
        { "\\boxed{", "A", 'N' }, { "(", "A", 'N' });
}

static void flexible_finds_a_letter_anywhere(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice", "method", "flexible"),
        { "It is (B)", "B", 'R' }, { "(A) is wrong, (C) fits", "C", 'R' },
        { "I choose D", "D", 'R' }, { "B or C", "C", 'R' },
        { "D, for A dog barks", "D", 'R' }, { "D. A's too small", "D", 'R' },
        { "(x) B", "B", 'R' }, { "ABC", "B", 'N' }, { "x_B", "B", 'N' },
        { "\xC3\x89"
          "B",
          "B", 'N' },
        { "e\xCC\x81"
          "B",
          "B", 'N' },
        { "B\xCC\x81", "B", 'N' }, { "b and c", "B", 'N' },
        { "none", "B", 'N' }, { "Answer: A (B)", "A", 'R' });
}

static void reads_truths_and_option_ranges(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "choice"), { "Answer: C", "2", 'R' },
        { "Answer: C", " c ", 'R' }, { "Answer: C", "(C)", 'R' },
        { "Answer: C", "C. Paris", 'R' }, { "Answer: C", "(C) Paris", 'R' },
        { "Answer: A", "0", 'R' });
    RUN(RIG_KEYS("grader", "choice", "index_from", "1"),
        { "Answer: C", "3", 'R' }, { "Answer: A", "1", 'R' });
    RUN(RIG_KEYS("grader", "choice", "option_count", "10"),
        { "Answer: J", "9", 'R' }, { "Answer: K", "9", 'N' });
    RUN(RIG_KEYS("grader", "choice", "after", "</think>"),
        { "Answer: A</think>B", "B", 'R' }, { "Answer: A", "A", 'N' });
    rig r;
    rig_open(&r, RIG_KEYS("grader", "choice"));
    /* No response is right where the truth is no option, not even none. */
    static const char *const bad[] = { "", "4", "-1", "E", "Paris", "1000" };
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(rig_judge(&r, "Answer: A", 9, bad[i]), 'N');
        assert_int_equal(rig_judge(&r, "no letter", 9, bad[i]), 'N');
    }
    assert_int_equal(r.host.warnings, 1);
    rig_close(&r);
}

/* Writes a form with the letter in the place of its %c. */
static void write_letter(const char *form, int letter, char text[32])
{
    size_t at = strcspn(form, "%");
    (void)snprintf(text, 32, "%.*s%c%s", (int)at, form, letter, form + at + 2);
}

/* However an answer is given, its letter is one of the options, or it is none.
 */
static void a_letter_beyond_the_options_is_no_answer(void **state)
{
    static const char *const forms[] = { "\\boxed{%c}", "Answer: %c",
                                         "%c",          "(%c)",
                                         "It is (%c)",  "I choose %c" };
    (void)state;
    for (int count = 2; count <= 10; count += 2) {
        char number[12];
        char truth[12];
        rig r;
        (void)snprintf(number, sizeof(number), "%d", count);
        (void)snprintf(truth, sizeof(truth), "%d", count - 1);
        rig_open(&r, RIG_KEYS("grader", "choice", "method", "flexible",
                              "option_count", number));
        for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
            char text[32];
            write_letter(forms[i], 'A' + count - 1, text);
            assert_int_equal(rig_judge(&r, text, strlen(text), truth), 'R');
            assert_int_equal(rig_judge(&r, text, strlen(text), "A"), 'W');
            write_letter(forms[i], 'A' + count, text);
            if (rig_judge(&r, text, strlen(text), truth) != 'N')
                fail_msg("%s of %d options", text, count);
        }
        rig_close(&r);
    }
}

static void refuses_keys_of_other_graders(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("grader", "choice", "match", "f1"),
               "match: only grader = qa, search_r1 use it");
    rig_refuse(RIG_KEYS("option_count", "5"), "option_count: only grader = "
                                              "choice, gpqa use it");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_an_announced_letter),
        cmocka_unit_test(flexible_finds_a_letter_anywhere),
        cmocka_unit_test(reads_truths_and_option_ranges),
        cmocka_unit_test(a_letter_beyond_the_options_is_no_answer),
        cmocka_unit_test(refuses_keys_of_other_graders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
