/* SPDX-License-Identifier: Apache-2.0
 *
 * The math graders agree with the answers of the graders that they are named
 * after.
 */
#include <math.h>

#include "plugins/reward-rule/math_find.h"
#include "tests/reward/math_rows.h"
#include "tests/reward/rig.h"

static rule_math work;

/* ---- normalisations ------------------------------------------------------ */

static int check_normal_form(const cJSON *row, const char *key)
{
    const char *input = math_string(row, "input");
    rule_buffer_set(&work.a, rule_text_of(input));
    if (*key == 'h')
        assert_true(rule_strip_hendrycks(&work.a, &work.scratch));
    else if (*key == 'p')
        rule_strip_prm800k(&work.a, &work.scratch);
    else
        rule_strip_dapo(&work.a, &work.scratch);
    int good = math_is(rule_buffer_text(&work.a), math_string(row, key));
    if (!good)
        print_error("%s of %s: %.*s, expected %s\n", key, input,
                    (int)work.a.size, work.a.data, math_string(row, key));
    return good;
}

/* The golden has the box together with its command. */
static int check_box(const char *text, const char *golden)
{
    char want[4096];
    rule_text got = rule_extract_boxed(rule_text_of(text));
    if (!golden)
        return got.data == NULL;
    if (strncmp(golden, "\\boxed ", 7) == 0)
        return math_is(got, golden + 7);
    (void)snprintf(want, sizeof(want), "%s", golden + strlen("\\boxed{"));
    want[strlen(want) - 1] = '\0';
    return math_is(got, want);
}

static void normalises_as_the_sources(void **state)
{
    static const char *const keys[] = { "hendrycks_strip_string",
                                        "prm800k_normalize", "dapo_normalize" };
    math_rows rows;
    int good[4] = { 0, 0, 0, 0 };
    (void)state;
    math_rows_read(&rows, "graders/golden_normalize.jsonl");
    assert_int_equal(rows.count, 424);
    for (size_t i = 0; i < rows.count; i++) {
        for (int k = 0; k < 3; k++)
            good[k] += check_normal_form(rows.at[i], keys[k]);
        good[3] += check_box(math_string(rows.at[i], "input"),
                             math_string(rows.at[i], "last_boxed"));
    }
    for (int k = 0; k < 4; k++)
        assert_int_equal(good[k], 424);
    math_rows_free(&rows);
}

static const char *get_argument(const cJSON *row, int which)
{
    const cJSON *call = cJSON_GetObjectItem(row, "call");
    const cJSON *list = cJSON_GetObjectItem(call, "args");
    return cJSON_GetArrayItem(list, which)->valuestring;
}

static void is_equivalent_as_hendrycks_tests(void **state)
{
    math_rows rows;
    (void)state;
    math_rows_read(&rows, "graders/hendrycks_is_equiv.jsonl");
    assert_int_equal(rows.count, 16);
    for (size_t i = 0; i < rows.count; i++) {
        int want = cJSON_IsTrue(cJSON_GetObjectItem(rows.at[i], "expected"));
        int got =
            rule_equal_hendrycks(rule_text_of(get_argument(rows.at[i], 0)),
                                 rule_text_of(get_argument(rows.at[i], 1)),
                                 &work.a, &work.b, &work.scratch);
        if (got != want)
            fail_msg("is_equiv(%s, %s)", get_argument(rows.at[i], 0),
                     get_argument(rows.at[i], 1));
    }
    math_rows_free(&rows);
}

/* ---- complete responses -------------------------------------------------- */

static double grade_row(rig *r, const cJSON *row)
{
    const char *text = math_string(row, "completion");
    xray_sample_in sample =
        rig_sample(1, text, strlen(text), math_string(row, "gold"));
    assert_int_equal(r->ops->submit(r->self, &sample, 1, sizeof(sample)),
                     XRAY_OK);
    return rig_next_score(r).score;
}

static void check_row_box(const cJSON *row)
{
    const char *text = math_string(row, "completion");
    const cJSON *dapo = cJSON_GetObjectItem(row, "verl_dapo_strict_box");
    const cJSON *same = cJSON_GetObjectItem(row, "verl_dapo_minerva");
    const char *box = math_string(dapo, "pred");
    const char *label = math_string(same, "pred");
    rule_text strict =
        rule_extract_strict_box(rule_last_characters(rule_text_of(text), 300));
    assert_true(check_box(text, math_string(row, "last_boxed")));
    assert_true(box ? math_is(strict, box) : strict.data == NULL);
    assert_string_equal(label, box ? box : "[INVALID]");
}

static void scores_completions_as_verl(void **state)
{
    rig math;
    rig dapo;
    math_rows rows;
    (void)state;
    math_rows_read(&rows, "graders/golden_math_cot.jsonl");
    assert_int_equal(rows.count, 400);
    rig_open(&math, RIG_KEYS("grader", "math"));
    rig_open(&dapo, RIG_KEYS("grader", "math_dapo", "extract", "boxed",
                             "format_score", "-1", "no_answer_score", "-1"));
    for (size_t i = 0; i < rows.count; i++) {
        const cJSON *row = rows.at[i];
        const char *keys[] = { "verl_dapo_strict_box", "verl_dapo_minerva" };
        check_row_box(row);
        double want = cJSON_GetObjectItem(row, "verl_math_reward")->valuedouble;
        assert_true(grade_row(&math, row) == want);
        for (int k = 0; k < 2; k++) {
            const cJSON *golden = cJSON_GetObjectItem(row, keys[k]);
            want = cJSON_GetObjectItem(golden, "score")->valuedouble;
            assert_true(grade_row(&dapo, row) == want);
        }
        int equal =
            rule_equal_hendrycks(rule_text_of(math_string(row, "qwen_pred")),
                                 rule_text_of(math_string(row, "gold")),
                                 &work.a, &work.b, &work.scratch);
        assert_int_equal(equal, cJSON_IsTrue(cJSON_GetObjectItem(
                                    row, "hendrycks_is_equiv_pred")));
    }
    rig_close(&math);
    rig_close(&dapo);
    math_rows_free(&rows);
}

/* A case whose verdict differs from that of its source, and the reason. */
typedef struct known {
    const char *gold;
    const char *tail; /* end of the response */
    const char *reason;
} known;

static const known against_qwen[] = {
    { "10{,}000", "\\(\\boxed{10000}\\).",
      "the same number; Qwen's grader does not read {,} between thousands" },
};

static const known against_math_verify[] = {
    { "$1 - \\frac{1}{\\mathrm{e}}$", "$1 + \\frac{1}{\\mathrm{e}}$",
      "1 - 1/e is not 1 + 1/e; Math-Verify drops the upright e as a unit and "
      "reads 1 on both sides" },
};

static int ends_with_text(const char *text, const char *tail)
{
    size_t size = strlen(tail);
    return strlen(text) >= size &&
           strcmp(text + strlen(text) - size, tail) == 0;
}

/* Fails both for a listed case that agrees and for an unlisted case that does
 * not agree. */
static int check_agreement(const known *list, size_t count, const char *gold,
                           const char *response, int agrees)
{
    int listed = 0;
    for (size_t i = 0; i < count; i++)
        listed |= strcmp(list[i].gold, gold) == 0 &&
                  ends_with_text(response, list[i].tail);
    if (listed == agrees)
        print_error("%s but listed = %d: %s against ...%s\n",
                    agrees ? "agrees" : "differs", listed, gold,
                    response +
                        (strlen(response) > 80 ? strlen(response) - 80 : 0));
    return listed != agrees;
}

static void verifies_completions_as_qwen(void **state)
{
    rig verify;
    math_rows rows;
    int good = 0;
    (void)state;
    math_rows_read(&rows, "graders/golden_math_cot.jsonl");
    rig_open(&verify, RIG_KEYS("grader", "math_verify"));
    for (size_t i = 0; i < rows.count; i++) {
        const cJSON *row = rows.at[i];
        int want = cJSON_IsTrue(cJSON_GetObjectItem(row, "qwen_score"));
        int agrees = (grade_row(&verify, row) > 0) == want;
        good += check_agreement(
            against_qwen, sizeof(against_qwen) / sizeof(against_qwen[0]),
            math_string(row, "gold"), math_string(row, "completion"), agrees);
    }
    assert_int_equal(good, 400);
    rig_close(&verify);
    math_rows_free(&rows);
}

/* The options of a test of Math-Verify. */
static int verify_triple(const cJSON *row)
{
    const cJSON *options = cJSON_GetObjectItem(row, "options");
    const cJSON *precision = cJSON_GetObjectItem(options, "precision");
    const cJSON *strict = cJSON_GetObjectItem(options, "strict");
    const char *body = math_string(row, "body");
    int latex = strstr(body, "'latex'") != NULL;
    int number = strstr(body, "'expr'") != NULL;
    int from = latex == number ? RULE_FROM_ANY
               : latex         ? RULE_FROM_LATEX
                               : RULE_FROM_NUMBER;
    int digits = precision ? precision->valueint : 6;
    rule_equality how = { .tolerance = 0.5 * pow(10, -digits),
                          .any_variables = cJSON_IsFalse(strict) };
    if (!rule_math_extract(&work, rule_text_of(math_string(row, "pred")), from))
        return 0;
    work.found = work.a;
    rule_find_truth(&work, rule_text_of(math_string(row, "gold")));
    return rule_math_equal(&work, rule_buffer_text(&work.found),
                           rule_buffer_text(&work.a), &how);
}

static void verifies_the_cases_of_math_verify(void **state)
{
    math_rows rows;
    int good = 0;
    (void)state;
    math_rows_read(&rows, "graders/math_verify_triples.jsonl");
    assert_int_equal(rows.count, 134);
    for (size_t i = 0; i < rows.count; i++) {
        const cJSON *row = rows.at[i];
        int want = cJSON_GetObjectItem(row, "expected_math_verify")->valueint;
        int agrees = verify_triple(row) == want;
        good += check_agreement(
            against_math_verify,
            sizeof(against_math_verify) / sizeof(against_math_verify[0]),
            math_string(row, "gold"), math_string(row, "pred"), agrees);
        int plain = rule_equal_hendrycks(rule_text_of(math_string(row, "pred")),
                                         rule_text_of(math_string(row, "gold")),
                                         &work.a, &work.b, &work.scratch);
        assert_int_equal(plain, cJSON_IsTrue(cJSON_GetObjectItem(
                                    row, "hendrycks_is_equiv")));
    }
    assert_int_equal(good, 134);
    math_rows_free(&rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normalises_as_the_sources),
        cmocka_unit_test(is_equivalent_as_hendrycks_tests),
        cmocka_unit_test(scores_completions_as_verl),
        cmocka_unit_test(verifies_completions_as_qwen),
        cmocka_unit_test(verifies_the_cases_of_math_verify),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
