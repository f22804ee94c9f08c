/* SPDX-License-Identifier: Apache-2.0
 *
 * Rewards for form: open-r1's and TRL's expressions, tags, boxes and steps.
 */
#include "tests/reward/rig.h"

typedef struct format_case {
    const char *response;
    double score;
} format_case;

static void run(const char *const *keys, const format_case *cases)
{
    rig r;
    rig_open(&r, keys);
    for (; cases->response; cases++)
        rig_near(rig_text_score(&r, cases->response, ""), cases->score,
                 cases->response);
    rig_close(&r);
}

#define RUN(keys, ...) \
    run(keys, (const format_case[]){ __VA_ARGS__, { NULL, 0 } })
#define FORM(name) RIG_KEYS("grader", "format", "format", name)

/* ^<think>\n.*?\n</think>\n<answer>\n.*?\n</answer>$ */
static void think_answer(void **state)
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
static void think(void **state)
{
    (void)state;
    RUN(FORM("think"), { "<think>x</think>y", 1 },
        { "<think>\nx\n</think>\n", 1 }, { "<think></think></think>", 1 },
        { "<think>x</think><think>", 0 }, { "x<think>x</think>", 0 },
        { "<think>x", 0 }, { "", 0 });
}

static void answers_and_boxes(void **state)
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
    RUN(RIG_KEYS("grader", "format", "format", "boxed", "score", "0.5",
                 "format_score", "-0.5"),
        { "\\boxed{1}", 0.5 }, { "1", -0.5 });
}

/* 0.25 for each of the four tags that stands exactly once. */
static void tags(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "tag_count"),
        { "<think>\nx\n</think>\n<answer>\ny\n</answer>", 1 },
        { "<think>\n<think>\nx\n</think>\n<answer>\ny\n</answer>", 0.75 },
        { "<think>x</think>", 0 }, { "<think>\n", 0.25 },
        { "a\n</think>\n<answer>\nb", 0.5 },
        { "\n</think>\n\n<answer>\n\n</answer>", 0.75 }, { "", 0 });
}

/* min(1, marks / 3), marks: "Step N:", "N." at the very start, "\n-", "\n*",
 * "First,", "Second,", "Next,", "Finally,". */
static void steps(void **state)
{
    (void)state;
    RUN(RIG_KEYS("grader", "reasoning_steps"), { "", 0 },
        { "First, x", 1.0 / 3 }, { "1. x\n2. y", 1.0 / 3 },
        { "Step 1: a Step 23: b", 2.0 / 3 }, { "Step : Step 1", 0 },
        { "x\n- a\n* b\n-c\n-d", 1 }, { "- a", 0 },
        { "First, Second, Next, Finally,", 1 }, { "first, next,", 0 });
}

static void refusals(void **state)
{
    (void)state;
    rig_refuse(RIG_KEYS("format", "boxed"), "format: only grader = format");
    rig_refuse(RIG_KEYS("grader", "tag_count", "no_answer_score", "1"),
               "no_answer_score: only grader =");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(think_answer),
        cmocka_unit_test(think),
        cmocka_unit_test(answers_and_boxes),
        cmocka_unit_test(tags),
        cmocka_unit_test(steps),
        cmocka_unit_test(refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
