/* SPDX-License-Identifier: Apache-2.0
 *
 * xray grade gives the scores of verl's graders, and answers bad lines.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

/* Makes lines for `grade` from all golden rows; `want` gets their scores. */
static size_t read_golden_rows(const char *score_key, xr_str *input,
                               double *want, size_t cap)
{
    char path[512];
    char *text;
    size_t size;
    size_t count = 0;
    xr_err err = { "" };
    (void)test_data("graders/golden_verl_gsm8k.jsonl", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1 << 26, &err, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        cJSON *row;
        assert_int_equal(xr_json_parse(line, n, path, &err, &row), XRAY_OK);
        line += n + (line[n] == '\n');
        const char *response = xr_json_get(row, "solution_str")->valuestring;
        const char *truth = xr_json_get(row, "ground_truth")->valuestring;
        xr_str_puts(input, "{\"prompt\":\"\",\"response\":");
        xr_str_json(input, response, strlen(response));
        xr_str_puts(input, ",\"ground_truth\":");
        xr_str_json(input, truth, strlen(truth));
        xr_str_puts(input, "}\n");
        assert_true(count < cap);
        want[count++] = xr_json_get(row, score_key)->valuedouble;
        cJSON_Delete(row);
    }
    free(text);
    return count;
}

static void expect_golden_scores(const char *method, const char *score_key)
{
    static double want[4096];
    xr_str input = { 0 };
    char set[64];
    (void)snprintf(set, sizeof set, "reward.rule.method=%s", method);
    size_t count = read_golden_rows(score_key, &input, want, 4096);
    const program_result *r =
        RUN(xr_str_text(&input), "grade", "--reward", "rule", "--set",
            "reward.rule.grader=gsm8k", "--set", set);
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), count);
    const char *line = r->out;
    for (size_t i = 0; i < count; i++) {
        cJSON *json;
        size_t n = strcspn(line, "\n");
        assert_int_equal(xr_json_parse(line, n, "stdout", NULL, &json),
                         XRAY_OK);
        if (xr_json_get(json, "score")->valuedouble != want[i])
            fail_msg("row %zu: %.*s, not %g", i, (int)n, line, want[i]);
        cJSON_Delete(json);
        line += n + 1;
    }
    xr_str_free(&input);
}

static void strict_scores_agree(void **state)
{
    (void)state;
    expect_golden_scores("strict", "score_strict");
}

static void flexible_scores_agree(void **state)
{
    (void)state;
    expect_golden_scores("flexible", "score_flexible");
}

/* Makes lines for `grade` from the committed verdicts of a grader; `want` is 1
 * where the source accepts the answer. */
static size_t read_verdict_rows(const char *grader, xr_str *input, double *want,
                                size_t cap)
{
    const char *root = getenv("XRAY_SOURCE");
    char path[512];
    char *text;
    size_t size;
    size_t count = 0;
    xr_err err = { "" };
    (void)snprintf(path, sizeof path, "%s/tests/reward/sources.jsonl",
                   root ? root : ".");
    assert_int_equal(xr_file_read(path, 1 << 26, &err, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        cJSON *row;
        assert_int_equal(xr_json_parse(line, n, path, &err, &row), XRAY_OK);
        line += n + (line[n] == '\n');
        if (strcmp(xr_json_get(row, "grader")->valuestring, grader) == 0) {
            const char *response = xr_json_get(row, "response")->valuestring;
            const char *truth = xr_json_get(row, "truth")->valuestring;
            xr_str_puts(input, "{\"response\":");
            xr_str_json(input, response, strlen(response));
            xr_str_puts(input, ",\"ground_truth\":");
            xr_str_json(input, truth, strlen(truth));
            xr_str_puts(input, "}\n");
            assert_true(count < cap);
            want[count++] = cJSON_IsTrue(xr_json_get(row, "right"));
        }
        cJSON_Delete(row);
    }
    free(text);
    return count;
}

static double read_score(const program_result *r, size_t i)
{
    cJSON *line = output_line(r, i);
    const cJSON *score = xr_json_get(line, "score");
    if (!cJSON_IsNumber(score))
        fail_msg("no score: %s", r->out);
    double value = score->valuedouble;
    cJSON_Delete(line);
    return value;
}

/* The program agrees with verl's verdicts; no data folder is needed. */
static void committed_verdicts_agree(void **state)
{
    static const char *const sources[][2] = {
        { "gsm8k_strict", "reward.rule.method=strict" },
        { "gsm8k_flexible", "reward.rule.method=flexible" },
    };
    (void)state;
    for (int k = 0; k < 2; k++) {
        double want[256];
        xr_str input = { 0 };
        size_t count = read_verdict_rows(sources[k][0], &input, want, 256);
        const program_result *r =
            RUN(xr_str_text(&input), "grade", "--reward", "rule", "--set",
                "reward.rule.grader=gsm8k", "--set", sources[k][1]);
        expect_code(r, 0);
        assert_int_equal(count, 120);
        assert_int_equal(count_lines(r->out), count);
        for (size_t i = 0; i < count; i++)
            if (read_score(r, i) != want[i])
                fail_msg("%s: row %zu is not %g", sources[k][0], i, want[i]);
        xr_str_free(&input);
    }
}

/* The method is strict by default; a number can be a ground truth. */
static void method_is_strict_by_default(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"response\":\"#### 18\",\"ground_truth\":\"18\"}\n"
            "{\"response\":\"18\",\"ground_truth\":\"18\"}\n"
            "{\"response\":\"#### 18\",\"ground_truth\":18}\n",
            "grade", "--reward", "rule", "--set", "reward.rule.grader=gsm8k");
    expect_code(r, 0);
    assert_true(read_score(r, 0) == 1);
    assert_true(read_score(r, 1) == 0);
    assert_true(read_score(r, 2) == 1);
}

/* Lists of ground truths, as pandas writes those of search data sets; a grader
 * of a single text refuses them. */
static void lists_of_truths_are_read(void **state)
{
    (void)state;
    static const char input[] =
        "{\"response\":\"Paris\",\"ground_truth\":{\"target\":[\"Rome\","
        "\"Paris\"]}}\n"
        "{\"response\":\"Paris\",\"ground_truth\":[\"Rome\",\"Paris\"]}\n"
        "{\"response\":\"Paris\",\"ground_truth\":[\"Rome\"]}\n";
    const program_result *r = RUN(input, "grade", "--reward", "rule", "--set",
                                  "reward.rule.grader=qa");
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    assert_true(read_score(r, 0) == 1);
    assert_true(read_score(r, 1) == 1);
    assert_true(read_score(r, 2) == 0);
    r = RUN(input, "grade", "--reward", "rule", "--set",
            "reward.rule.grader=exact");
    expect_code(r, 0);
    assert_true(read_score(r, 0) == 0);
    expect_text(r->err, "its ground truth is a JSON list or object, which only "
                        "qa and search_r1 read");
}

static void several_instances_are_weighted(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"response\":\"#### 18\",\"ground_truth\":\"18\"}\n", "grade",
            "--reward", "a,b", "--set", "reward.a.grader=gsm8k", "--set",
            "reward.b.grader=exact", "--set", "reward.a.weight=0.5", "--set",
            "reward.b.weight=2");
    expect_code(r, 0);
    assert_true(read_score(r, 0) == 0.5);
    cJSON *line = output_line(r, 0);
    const cJSON *parts = xr_json_get(line, "scores");
    assert_true(xr_json_get(parts, "reward.a")->valuedouble == 1);
    assert_true(xr_json_get(parts, "reward.b")->valuedouble == 0);
    cJSON_Delete(line);
}

static void bad_lines_are_answered(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"x\"}\n{\"response\":3}\n{\n"
            "{\"response\":\"#### 1\",\"ground_truth\":{}}\n"
            "{\"response\":\"#### 1\",\"ground_truth\":\"1\"}\n",
            "grade", "--reward", "rule", "--set", "reward.rule.grader=gsm8k");
    expect_code(r, 1);
    assert_int_equal(count_lines(r->out), 5);
    for (size_t i = 0; i < 4; i++) {
        cJSON *line = output_line(r, i);
        assert_non_null(xr_json_get(line, "error"));
        assert_null(xr_json_get(line, "score"));
        cJSON_Delete(line);
    }
    assert_true(read_score(r, 4) == 1);
}

static void bad_options_are_refused(void **state)
{
    (void)state;
    const program_result *r =
        RUN("", "grade", "--reward", "rule", "--set", "reward.rule.grader=gsm");
    expect_code(r, 2);
    expect_text(r->err, "gsm8k");
    r = RUN("", "grade", "--reward", "rule", "--set", "reward.rule.plugin=no");
    expect_code(r, 2);
    /* The section of an instance that has the name of a reward is that
     * reward's, whatever it sets; this one has no grader. */
    r = RUN("", "grade", "--reward", "ffi", "--set", "reward.ffi.grader=exact");
    expect_code(r, 2);
    expect_text(r->err, "[reward.ffi] grader: no such option");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strict_scores_agree),
        cmocka_unit_test(flexible_scores_agree),
        cmocka_unit_test(committed_verdicts_agree),
        cmocka_unit_test(method_is_strict_by_default),
        cmocka_unit_test(lists_of_truths_are_read),
        cmocka_unit_test(several_instances_are_weighted),
        cmocka_unit_test(bad_lines_are_answered),
        cmocka_unit_test(bad_options_are_refused),
    };
    return cmocka_run_group_tests_name("cli.grade", tests, scratch_make,
                                       program_done);
}
