/* SPDX-License-Identifier: Apache-2.0
 *
 * Random edits of the responses and truths of the goldens: nothing crashes or
 * runs on, a response is graded the same way each time, and an answer equals
 * itself.
 */
#include "plugins/reward-rule/math.h"
#include "tests/reward/golden.h"

#define EDITS 4000
#define GRADERS 8
#define LONGEST 6000u

static rule_math work;

static uint32_t draw_number(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

static const char *const pieces[] = {
    "{",
    "}",
    "\\boxed{",
    "\\frac",
    "\\sqrt",
    "$",
    "\\\\",
    "\\text{ ",
    "(",
    "]",
    "|",
    "^",
    "_",
    ",",
    "=",
    "\\left",
    "\\le",
    "\\cup",
    "\\infty",
    "\\pm",
    "1/0",
    "999999999",
    "-",
    "\xE2\x88",
    "\\begin{pmatrix}",
    "\\end{pmatrix}",
    "&",
    "!",
    "Answer:",
    "####",
    "%",
    "\\overline{",
    "\xFF",
    "Final Answer: The final answer is",
    ". I hope it is correct.",
};

static size_t insert_piece(char *text, size_t size, size_t at,
                           const char *piece)
{
    size_t length = strlen(piece);
    if (size + length > LONGEST)
        return size;
    memmove(text + at + length, text + at, size - at);
    memcpy(text + at, piece, length);
    return size + length;
}

static size_t edit_text(char *text, size_t size, uint64_t *seed)
{
    size_t at = size ? draw_number(seed) % size : 0;
    size_t length = size ? draw_number(seed) % (size - at + 1) : 0;
    switch (draw_number(seed) % 6) {
    case 0:
        return insert_piece(
            text, size, at,
            pieces[draw_number(seed) % (sizeof(pieces) / sizeof(pieces[0]))]);
    case 1: /* cut out */
        length = length > 20 ? length % 20 : length;
        memmove(text + at, text + at + length, size - at - length);
        return size - length;
    case 2: /* any byte */
        if (size)
            text[at] = (char)(draw_number(seed) % 256);
        return size;
    case 3: /* a printable one */
        if (size)
            text[at] = (char)(' ' + draw_number(seed) % 95);
        return size;
    case 4: /* double a part */
        if (size + length > LONGEST)
            return size;
        memmove(text + at + length, text + at, size - at);
        return size + length;
    default: /* cut off the end */
        return size ? size - draw_number(seed) % (size > 8 ? 8 : size) : 0;
    }
}

static const char *pick_source(const golden *rows, uint64_t *seed)
{
    const cJSON *row = rows->at[draw_number(seed) % rows->count];
    return golden_text(row, draw_number(seed) % 2 ? "response" : "truth");
}

/* Copies a short text completely, and mostly the end of a long one. */
static size_t copy_start(char *text, const char *from, uint64_t *seed)
{
    size_t size = strlen(from);
    size_t keep = size > 300 && draw_number(seed) % 4 ? 300 : size;
    if (keep > LONGEST / 2)
        keep = LONGEST / 2;
    memcpy(text, from + size - keep, keep);
    return keep;
}

static void check_functions(rule_text a, rule_text b)
{
    static const rule_equality how = { .tolerance = 1e-6 };
    (void)rule_equal_hendrycks(a, b, &work.a, &work.b, &work.scratch);
    (void)rule_equal_prm800k(&work, a, b);
    (void)rule_equal_dapo(&work, a, b);
    (void)rule_equal_minerva(&work, a, b, &how);
    int there = rule_math_equal(&work, a, b, &how);
    assert_int_equal(there, rule_math_equal(&work, a, b, &how));
    int back = rule_math_equal(&work, b, a, &how);
    /* The text after "=" counts in a response, but not in a truth, so equality
     * of equations is not symmetric. */
    int equations = rule_count_text(a, "=") || rule_count_text(b, "=") ||
                    rule_count_text(a, "\\in") || rule_count_text(b, "\\in") ||
                    rule_count_text(a, "\\eq") || rule_count_text(b, "\\eq");
    if (back != there && !equations)
        fail_msg("%d, %d: %.*s and %.*s", there, back, (int)a.size, a.data,
                 (int)b.size, b.data);
    rule_clean(a, &work.clean_a);
    if (work.clean_a.size)
        assert_true(rule_math_equal(&work, a, a, &how));
}

static void fuzz_rows(const char *name, uint64_t seed)
{
    static const char *const graders[] = { "math",         "math_minerva",
                                           "math_prm800k", "math_dapo",
                                           "math_verify",  "math_slime",
                                           "math_areal",   "gpqa" };
    rig r[GRADERS];
    char a[LONGEST + 1];
    char b[LONGEST + 1];
    golden rows;
    golden_read(&rows, name);
    for (int i = 0; i < GRADERS; i++)
        rig_open(&r[i], RIG_KEYS("grader", graders[i]));
    for (int i = 0; i < EDITS; i++) {
        size_t size = copy_start(a, pick_source(&rows, &seed), &seed);
        const char *other =
            draw_number(&seed) % 2 ? a : pick_source(&rows, &seed);
        size_t other_size = other == a ? size : copy_start(b, other, &seed);
        if (other == a)
            memcpy(b, a, size);
        for (uint32_t n = draw_number(&seed) % 6; n > 0; n--)
            size = edit_text(a, size, &seed);
        b[other_size] = '\0';
        check_functions((rule_text){ a, size }, rule_text_of(b));
        rig *one = &r[i % GRADERS];
        char first = rig_judge(one, a, size, b);
        assert_int_equal(first, rig_judge(one, a, size, b));
    }
    for (int i = 0; i < GRADERS; i++)
        rig_close(&r[i]);
    golden_free(&rows);
}

static void edited_math_answers_are_graded_the_same_twice(void **state)
{
    (void)state;
    fuzz_rows("math_answers.jsonl", 1);
}

static void edited_responses_of_other_graders_are_too(void **state)
{
    (void)state;
    fuzz_rows("sources.jsonl", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edited_math_answers_are_graded_the_same_twice),
        cmocka_unit_test(edited_responses_of_other_graders_are_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
