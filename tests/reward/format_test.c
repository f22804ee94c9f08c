/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders of form: open-r1's and TRL's expressions, tags, boxes and
 * reasoning steps.
 */
#include "tests/reward/rig.h"

typedef struct format_case {
    const char *response;
    double score;
} format_case;

static void run_cases(const char *const *keys, const format_case *cases)
{
    rig r;
    rig_open(&r, keys);
    for (; cases->response; cases++)
        rig_near(rig_text_score(&r, cases->response, ""), cases->score,
                 cases->response);
    rig_close(&r);
}

#define RUN(keys, ...) \
    run_cases(keys, (const format_case[]){ __VA_ARGS__, { NULL, 0 } })
#define FORM(name) RIG_KEYS("grader", "format", "format", name)

/* ^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$ */
static void think_answer_needs_every_tag_and_line_end(void **state)
{
    (void)state;
    RUN(FORM("think_answer"),
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>", 1 },
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>\nmore", 1 },
        { "<think>\n\n</think>\n<answer>\n\n</answer>", 1 },
        { "<think>\n</think>\n<answer>\ny\n</answer>", 0 },
        { "<think>\nx\n</think>\n<answer>\n</answer>", 0 },
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>!", 0 },
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>!\n</answer>", 1 },
        { " <think>\nx\n</think>\n<answer>\ny\n</answer>", 0 },
        { "<think>x</think><answer>y</answer>", 0 },
        { "<think>\nx\n</think>\n", 0 }, { "", 0 });
    RUN(FORM("think_answer_soft"), { "<think>x</think><answer>y</answer>", 1 },
        { "\n<think>x</think> \n<answer>y</answer> more", 1 },
        { "<think>x</think>z<answer>y</answer>", 0 },
        { "<think></think>z</think><answer></answer>", 1 },
        { "<think></think>z</think <answer></answer>", 0 },
        { "<think></think>z</thinkx <answer></answer>", 0 },
        { "<think>x</think><answer>y", 0 },
        { "x<think>x</think><answer>y</answer>", 0 }, { "", 0 });
}

/* ^<think>(?!.*<think>)(.*?)</think>.*$ */
static void think_needs_a_single_opening_tag(void **state)
{
    (void)state;
    RUN(FORM("think"), { "<think>x</think>y", 1 },
        { "<think>\nx\n</think>\n", 1 }, { "<think></think></think>", 1 },
        { "<think>x</think><think>", 0 }, { "x<think>x</think>", 0 },
        { "<think>x", 0 }, { "", 0 });
}

static void answers_and_boxes_must_be_closed_and_filled(void **state)
{
    (void)state;
    RUN(FORM("answer"), { "x <answer>1</answer> y", 1 },
        { "<answer> </answer>", 0 },
        { "<answer>1</answer><answer>2</answer>", 0 },
        { "</answer>1<answer>", 0 }, { "<answer>1", 0 }, { "", 0 });
    RUN(FORM("boxed"), { "so \\boxed{42}", 1 }, { "\\boxed{\\frac{1}{2}}", 1 },
        { "\\boxed{}", 0 }, { "\\boxed{ }", 0 }, { "\\boxed{{}", 0 },
        { "\\boxed{1", 0 }, { "\\boxed{{}}", 1 }, { "\\boxed 1", 0 },
        { "\\boxed{} \\boxed{2}", 1 }, { "\\boxed{{ \\boxed{3}", 1 },
        { "}} \\boxed{1}", 1 }, { "boxed{1}", 0 }, { "\\boxed{", 0 },
        { "", 0 });
    /* Boxes in boxes, more than are tracked. */
    enum { DEEP = 1000 };
    char deep[DEEP * 8 + 1] = "";
    for (size_t i = 0; i < DEEP; i++)
        memcpy(deep + 7 * i, "\\boxed{", 8);
    RUN(FORM("boxed"), { deep, 0 });
    memset(deep + (size_t)7 * DEEP, '}', DEEP);
    RUN(FORM("boxed"), { deep, 1 });
    /* The 64th is tracked, and a 65th alone would count. */
    for (size_t boxes = 64; boxes <= 65; boxes++) {
        for (size_t i = 0; i < boxes; i++)
            memcpy(deep + 7 * i, "\\boxed{", 8);
        (void)snprintf(deep + 7 * boxes, sizeof(deep) - 7 * boxes, "1}");
        RUN(FORM("boxed"), { deep, boxes == 64 });
    }
    RUN(RIG_KEYS("grader", "format", "format", "boxed", "score", "0.5",
                 "format_score", "-0.5"),
        { "\\boxed{1}", 0.5 }, { "1", -0.5 });
}

/* Each of the four tags that occurs exactly once earns 0.25. */
static void each_tag_that_occurs_once_earns_a_quarter(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "tag_count"),
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>", 1 },
        { "<think>\n<think>\nx\n</think>\n<answer>\ny\n</answer>", 0.75 },
        { "<think>x</think>", 0 }, { "<think>\n", 0.25 },
        { "a\n</think>\n<answer>\nb", 0.5 },
        { "\n</think>\n\n<answer>\n\n</answer>", 0.75 }, { "", 0 });
}

/* The score is min(1, marks / 3). Marks are "Step N:", "N." at the start of the
 * text, "\n-", "\n*", "First,", "Second,", "Next," and "Finally,". */
static void three_steps_earn_the_full_score(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "reasoning_steps"), { "", 0 },
        { "First, x", 1.0 / 3 }, { "1. x\n2. y", 1.0 / 3 },
        { "Step 1: a Step 23: b", 2.0 / 3 }, { "Step : Step 1", 0 },
        /* Digits of any script, as those of Python's \d. */
        { "Step \xD9\xA1: a Step \xE0\xA5\xA8\xE0\xA5\xA9: b", 2.0 / 3 },
        { "\xD9\xA1\xD9\xA2. x", 1.0 / 3 },
        { "\xC2\xB2. x Step \xC2\xBD: y", 0 }, { "x\n- a\n* b\n-c\n-d", 1 },
        { "- a", 0 }, { "First, Second, Next, Finally,", 1 },
        { "x\n- a", 1.0 / 3 }, { "x\n* a", 1.0 / 3 }, { "Second, x", 1.0 / 3 },
        { "Next, x", 1.0 / 3 }, { "Finally, x", 1.0 / 3 },
        { "first, next,", 0 });
}

static void refuses_keys_of_other_graders(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("format", "boxed"), "format: only grader = format");
    rig_refuse(RIG_KEYS("grader", "tag_count", "no_answer_score", "1"),
               "no_answer_score: only grader =");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(think_answer_needs_every_tag_and_line_end),
        cmocka_unit_test(think_needs_a_single_opening_tag),
        cmocka_unit_test(answers_and_boxes_must_be_closed_and_filled),
        cmocka_unit_test(each_tag_that_occurs_once_earns_a_quarter),
        cmocka_unit_test(three_steps_earn_the_full_score),
        cmocka_unit_test(refuses_keys_of_other_graders),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
