/* SPDX-License-Identifier: Apache-2.0
 *
 * The graders agree with the code that they are named after, on responses that
 * tests/parity/math_answers.py and other_graders.py made.
 */
#include "tests/reward/golden.h"

#define MOST 8

typedef struct tally {
    int rows;
    int same;
    int wrong;  /* accepted here, refused by the source, and meant as wrong */
    int silent; /* no answer here, right in the source */
} tally;

/* A grader's name in the goldens, and its keys. */
typedef struct source {
    const char *name;
    const char *keys[MOST];
} source;

static int is_true_key(const cJSON *row, const char *key)
{
    return cJSON_IsTrue(cJSON_GetObjectItem(row, key));
}

static void compare_row(rig *r, const cJSON *row, tally *t)
{
    const char *text = golden_text(row, "response");
    const char *truth = golden_text(row, "truth");
    char got = rig_judge(r, text, strlen(text), truth);
    int accepted = got == 'R';
    int right = is_true_key(row, "right");
    t->rows++;
    t->same += accepted == right;
    t->wrong += accepted && !right && !is_true_key(row, "meant");
    t->silent += got == 'N' && right;
    if (accepted != right)
        print_message("%s %s: %s\n", accepted ? "accepted for" : "refused for",
                      truth, text);
}

static tally compare_rows(const char *file_name, const source *s)
{
    golden rows;
    tally t = { 0, 0, 0, 0 };
    rig r;
    golden_read(&rows, file_name);
    rig_open(&r, s->keys);
    for (size_t i = 0; i < rows.count; i++) {
        const cJSON *grader = cJSON_GetObjectItem(rows.at[i], "grader");
        if (!s->name || strcmp(grader->valuestring, s->name) == 0)
            compare_row(&r, rows.at[i], &t);
    }
    golden_free(&rows);
    rig_close(&r);
    print_message("%s: %d of %d the same\n", s->keys[1], t.same, t.rows);
    return t;
}

/* Math-Verify 0.9 refuses some right answers (it reads 6\,610 as 616), so an
 * answer that was meant as right may be accepted here. */
static void math_verify_agrees_with_the_library(void **state)
{
    static const source verify = { NULL, { "grader", "math_verify", NULL } };
    (void)state;
    tally t = compare_rows("math_answers.jsonl", &verify);
    assert_int_equal(t.rows, 600);
    assert_int_equal(t.wrong, 0);
    assert_true(t.same >= 0.97 * t.rows);
}

/* All verdicts agree. */
static void other_graders_agree_with_their_code(void **state)
{
    static const source sources[] = {
        { "math_slime", { "grader", "math_slime", NULL } },
        { "gsm8k_strict", { "grader", "gsm8k", NULL } },
        { "gsm8k_flexible", { "grader", "gsm8k", "method", "flexible", NULL } },
        { "math", { "grader", "math", NULL } },
        { "math_prm800k", { "grader", "math_prm800k", NULL } },
        { "math_dapo", { "grader", "math_dapo", NULL } },
        { "math_dapo_box",
          { "grader", "math_dapo", "extract", "boxed", NULL } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(sources) / sizeof(sources[0]); i++) {
        tally t = compare_rows("sources.jsonl", &sources[i]);
        assert_int_equal(t.rows, 120);
        assert_int_equal(t.same, t.rows);
    }
}

/* If slime finds no letter, it searches the response for the letter of the
 * truth as text, so that "b" matches "nobody". Here that is no answer. */
static void gpqa_agrees_with_slime(void **state)
{
    static const source gpqa = { "gpqa", { "grader", "gpqa", NULL } };
    (void)state;
    tally t = compare_rows("sources.jsonl", &gpqa);
    assert_int_equal(t.rows, 120);
    assert_int_equal(t.same + t.silent, t.rows);
    assert_true(t.silent < 0.1 * t.rows);
}

static void math_areal_agrees_with_areal(void **state)
{
    static const source areal = { "math_areal",
                                  { "grader", "math_areal", NULL } };
    (void)state;
    tally t = compare_rows("sources.jsonl", &areal);
    assert_int_equal(t.rows, 120);
    assert_int_equal(t.wrong, 0);
    assert_true(t.same >= 0.97 * t.rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(math_verify_agrees_with_the_library),
        cmocka_unit_test(other_graders_agree_with_their_code),
        cmocka_unit_test(gpqa_agrees_with_slime),
        cmocka_unit_test(math_areal_agrees_with_areal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
