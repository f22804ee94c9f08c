/* SPDX-License-Identifier: Apache-2.0
 *
 * The grader "gsm8k" gives the answers and scores of verl's scorer.
 */
#include <cjson/cJSON.h>

#include "plugins/reward-rule/gsm8k.h"
#include "tests/reward/rig.h"

#define CASES 4096

typedef struct golden {
    cJSON *rows[CASES];
    size_t count;
} golden;

static void free_golden(golden *g)
{
    for (size_t i = 0; i < g->count; i++)
        cJSON_Delete(g->rows[i]);
}

static void read_golden(golden *g)
{
    char path[1024];
    FILE *file = fopen(
        test_data("graders/golden_verl_gsm8k.jsonl", path, sizeof(path)), "rb");
    assert_non_null(file);
    char *line = NULL;
    size_t cap = 0;
    g->count = 0;
    while (getline(&line, &cap, file) > 0) {
        assert_true(g->count < CASES);
        g->rows[g->count] = cJSON_Parse(line);
        assert_non_null(g->rows[g->count]);
        g->count++;
    }
    free(line);
    (void)fclose(file);
    assert_true(g->count > 100);
}

static const char *get_row_text(const cJSON *row, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(row, key);
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

static void check_extraction(const cJSON *row, int method, const char *key)
{
    char buffer[RULE_GSM8K_TAIL];
    const char *want = get_row_text(row, key);
    rule_text got = rule_gsm8k_extract(
        rule_text_of(get_row_text(row, "solution_str")), method, buffer);
    if (!want) {
        assert_null(got.data);
        return;
    }
    if (!got.data || got.size != strlen(want) ||
        memcmp(got.data, want, got.size) != 0)
        fail_msg("%s: %s: got '%.*s', want '%s'", get_row_text(row, "id"), key,
                 (int)got.size, got.data ? got.data : "", want);
}

/* Submits all cases as one batch. The scores must come in the same order with
 * the same ids. */
static void check_scores(const golden *g, const char *method, const char *key)
{
    rig r;
    rig_open(&r, RIG_KEYS("grader", "gsm8k", "method", method));
    xray_sample_in *samples = calloc(g->count, sizeof(*samples));
    assert_non_null(samples);
    for (size_t i = 0; i < g->count; i++) {
        const char *response = get_row_text(g->rows[i], "solution_str");
        samples[i] = rig_sample(5 * i + 1, response, strlen(response),
                                get_row_text(g->rows[i], "ground_truth"));
    }
    assert_int_equal(r.ops->submit(r.self, samples, g->count, sizeof(*samples)),
                     XRAY_OK);
    for (size_t i = 0; i < g->count; i++) {
        xray_score score = rig_next_score(&r);
        assert_int_equal(score.id, 5 * i + 1);
        double want = cJSON_GetObjectItem(g->rows[i], key)->valuedouble;
        if (score.score != want)
            fail_msg("%s: %s: got %g, want %g", get_row_text(g->rows[i], "id"),
                     key, score.score, want);
    }
    rig_is_empty(&r);
    free(samples);
    rig_close(&r);
}

static void agrees_with_verl_on_every_golden_case(void **state)
{
    (void)state;
    static golden g;
    read_golden(&g);
    for (size_t i = 0; i < g.count; i++) {
        check_extraction(g.rows[i], RULE_STRICT, "extract_strict");
        check_extraction(g.rows[i], RULE_FLEXIBLE, "extract_flexible");
    }
    check_scores(&g, "strict", "score_strict");
    check_scores(&g, "flexible", "score_flexible");
    free_golden(&g);
}

static const char *extract_answer(const char *response, int method)
{
    static char out[RULE_GSM8K_TAIL + 1];
    char buffer[RULE_GSM8K_TAIL];
    rule_text got = rule_gsm8k_extract(rule_text_of(response), method, buffer);
    if (!got.data)
        return "(none)";
    memcpy(out, got.data, got.size);
    out[got.size] = '\0';
    return out;
}

/* The expected answers are those of Python's re.findall with verl's two regular
 * expressions. */
static void agrees_with_verl_on_unusual_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *response;
        const char *strict;
        const char *flexible;
    } cases[] = {
        { "", "(none)", "(none)" },
        { "#### ", "(none)", "(none)" },
        { "#### -", "(none)", "(none)" },
        { "####5", "(none)", "5" },
        { "####  5", "(none)", "5" },
        { "##### 5", "5", "5" },
        { "#### #### 5", "5", "5" },
        { "#### 5 #### 6", "6", "6" },
        { "#### 5 #### x", "5", "5" },
        { "#### 1,234.50", "1234.50", "1,234.50" },
        { "#### ,", "", "," },
        { "#### .", ".", "." },
        { "#### -,", "-", "-," },
        { "#### $5", "(none)", "5" },
        { "#### --5", "(none)", "-5" },
        { "5-3", "(none)", "-3" },
        { "It is 7.", "(none)", "7." },
        { "It is 7 .", "(none)", "7" },
        { ". and .", "(none)", "." },
        { "4 ... .", "(none)", "..." },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_string_equal(extract_answer(cases[i].response, RULE_STRICT),
                            cases[i].strict);
        assert_string_equal(extract_answer(cases[i].response, RULE_FLEXIBLE),
                            cases[i].flexible);
    }
}

/* Only the last 300 characters count, and they are characters, not bytes. */
static void only_the_last_300_characters_are_read(void **state)
{
    (void)state;
    char text[2048] = "#### 42";
    for (int i = 0; i < 293; i++)
        strncat(text, "\xC3\xA9", 3);
    assert_string_equal(extract_answer(text, RULE_STRICT), "42");
    strncat(text, "!", 2);
    assert_string_equal(extract_answer(text, RULE_STRICT), "(none)");
    assert_string_equal(extract_answer(text, RULE_FLEXIBLE), "42");
    for (int i = 0; i < 6; i++)
        strncat(text, "!", 2);
    assert_string_equal(extract_answer(text, RULE_FLEXIBLE), "(none)");
}

static void a_solution_as_truth_stands_for_its_number(void **state)
{
    (void)state;
    rig r;
    rig_open(&r, RIG_KEYS("grader", "gsm8k", "score", "2", "format_score",
                          "0.1", "no_answer_score", "-1"));
    const char *responses[] = { "#### 1,000", "#### 7", "1000" };
    const double want[] = { 2, 0.1, -1 };
    for (int i = 0; i < 3; i++) {
        xray_sample_in s = rig_sample(9, responses[i], strlen(responses[i]),
                                      "500 * 2 = 1000\n#### 1,000");
        assert_int_equal(r.ops->submit(r.self, &s, 1, sizeof(s)), XRAY_OK);
        assert_true(rig_next_score(&r).score == want[i]);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_verl_on_every_golden_case),
        cmocka_unit_test(agrees_with_verl_on_unusual_numbers),
        cmocka_unit_test(only_the_last_300_characters_are_read),
        cmocka_unit_test(a_solution_as_truth_stands_for_its_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
