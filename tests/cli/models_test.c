/* SPDX-License-Identifier: Apache-2.0
 *
 * xray score and xray generate against the float64 goldens of a small model.
 */
#include <math.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static const double TOLERANCE = 1e-4;
enum { KNOWN = 1 }; /* the golden case whose prompt is "Once upon a time" */

static const char *model_folder(const char *name)
{
    static char path[512];
    char file[64];
    (void)snprintf(file, sizeof file, "models/stories260K/%s/config.json",
                   name);
    (void)test_data(file, path, sizeof path);
    *strrchr(path, '/') = '\0';
    return path;
}

static cJSON *read_golden(const char *name)
{
    char path[512];
    char file[64];
    cJSON *golden = NULL;
    xr_err err = { "" };
    (void)snprintf(file, sizeof file, "models/stories260K/%s", name);
    (void)test_data(file, path, sizeof path);
    if (xr_json_file(path, &err, &golden) != XRAY_OK)
        fail_msg("%s", err.text);
    return golden;
}

static double number_at(const cJSON *array, int i)
{
    const cJSON *item = cJSON_GetArrayItem(array, i);
    if (!cJSON_IsNumber(item))
        fail_msg("entry %d is no number", i);
    return item->valuedouble;
}

static void expect_near(double got, double want, const char *what, int i)
{
    if (!(fabs(got - want) <= TOLERANCE))
        fail_msg("%s %d: %.9g, not %.9g", what, i, got, want);
}

/* The prompt and the greedy ids, so that both stored log-probs are checked. */
static cJSON *join_all_ids(const cJSON *entry)
{
    cJSON *ids = cJSON_Duplicate(xr_json_get(entry, "prompt_ids"), 1);
    const cJSON *id;
    cJSON_ArrayForEach(id, xr_json_get(entry, "greedy_ids"))
    {
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(id->valuedouble));
    }
    return ids;
}

static void append_case(xr_str *input, const char *key, const cJSON *value)
{
    char *text = cJSON_PrintUnformatted(value);
    xr_str_printf(input, "{\"%s\":%s}\n", key, text);
    free(text);
}

static void check_scores(const cJSON *line, const cJSON *entry)
{
    const cJSON *logp = xr_json_get(line, "logprobs");
    const cJSON *entropy = xr_json_get(line, "entropies");
    const cJSON *prompt = xr_json_get(entry, "prompt_logprobs");
    const cJSON *greedy = xr_json_get(entry, "greedy_logprobs");
    int first = cJSON_GetArraySize(prompt);
    int count = first + cJSON_GetArraySize(greedy) + 1;
    assert_int_equal(cJSON_GetArraySize(xr_json_get(line, "ids")), count);
    assert_int_equal(cJSON_GetArraySize(logp), count);
    assert_int_equal(cJSON_GetArraySize(entropy), count);
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(logp, 0)));
    assert_true(cJSON_IsNull(cJSON_GetArrayItem(entropy, 0)));
    for (int i = 0; i < first; i++)
        expect_near(number_at(logp, i + 1), number_at(prompt, i), "prompt", i);
    for (int i = first; i < count - 1; i++)
        expect_near(number_at(logp, i + 1), number_at(greedy, i - first),
                    "greedy", i - first);
    /* The token after the prompt has the stored distribution. */
    expect_near(number_at(entropy, first + 1),
                xr_json_get(entry, "entropy_after_prompt")->valuedouble,
                "entropy", first + 1);
}

static void expect_golden_scores(const char *name, const char *golden_file)
{
    cJSON *golden = read_golden(golden_file);
    const cJSON *cases = xr_json_get(golden, "cases");
    const cJSON *entry;
    xr_str input = { 0 };
    cJSON_ArrayForEach(entry, cases)
    {
        cJSON *ids = join_all_ids(entry);
        append_case(&input, "ids", ids);
        cJSON_Delete(ids);
    }
    const program_result *r =
        RUN(xr_str_text(&input), "score", "--model", model_folder(name));
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    size_t i = 0;
    cJSON_ArrayForEach(entry, cases)
    {
        cJSON *line = output_line(r, i++);
        check_scores(line, entry);
        cJSON_Delete(line);
    }
    assert_int_equal(count_lines(r->out), i);
    xr_str_free(&input);
    cJSON_Delete(golden);
}

static void scores_agree_with_goldens(void **state)
{
    (void)state;
    expect_golden_scores("hf", "golden.json");
    expect_golden_scores("hf_as_qwen2", "golden.json");
    expect_golden_scores("hf_untied", "golden.json");
    expect_golden_scores("hf_sharded", "golden.json");
    expect_golden_scores("hf_bf16", "golden_hf_bf16.json");
    expect_golden_scores("hf_f16", "golden_hf_f16.json");
}

static void text_is_scored(void **state)
{
    (void)state;
    cJSON *golden = read_golden("golden.json");
    const cJSON *entry;
    xr_str input = { 0 };
    cJSON_ArrayForEach(entry, xr_json_get(golden, "cases"))
    {
        append_case(&input, "text", xr_json_get(entry, "prompt"));
    }
    const program_result *r = RUN(xr_str_text(&input), "score", "--model",
                                  model_folder("hf"), "--train", "zero3");
    expect_code(r, 0);
    size_t i = 0;
    cJSON_ArrayForEach(entry, xr_json_get(golden, "cases"))
    {
        cJSON *line = output_line(r, i++);
        const cJSON *logp = xr_json_get(line, "logprobs");
        const cJSON *want = xr_json_get(entry, "prompt_logprobs");
        assert_true(cJSON_Compare(xr_json_get(line, "ids"),
                                  xr_json_get(entry, "prompt_ids"), 1));
        for (int k = 0; k < cJSON_GetArraySize(want); k++)
            expect_near(number_at(logp, k + 1), number_at(want, k), "text", k);
        cJSON_Delete(line);
    }
    xr_str_free(&input);
    cJSON_Delete(golden);
}

/* The bits of a row do not depend on the other rows or their lengths. */
static void scores_do_not_depend_on_other_lines(void **state)
{
    (void)state;
    static const char alone[] = "{\"text\":\"Lily and Tom went home.\"}\n";
    const program_result *r =
        RUN(alone, "score", "--model", model_folder("hf"));
    expect_code(r, 0);
    char *want = strdup(r->out);
    xr_str input = { 0 };
    for (int i = 0; i < 300; i++) {
        xr_str_printf(&input, "{\"ids\":[1");
        for (int k = 0; k < i + 1; k++)
            xr_str_printf(&input, ",%d", 3 + (i * 31 + k * 7) % 500);
        xr_str_puts(&input, "]}\n");
    }
    xr_str_puts(&input, alone);
    r = RUN(xr_str_text(&input), "score", "--model", model_folder("hf"));
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 301);
    assert_string_equal(r->out + strlen(r->out) - strlen(want), want);
    free(want);
    xr_str_free(&input);
}

static void edge_cases_are_scored(void **state)
{
    (void)state;
    cJSON *golden = read_golden("golden.json");
    const cJSON *known =
        cJSON_GetArrayItem(xr_json_get(golden, "cases"), KNOWN);
    xr_str input = { 0 };
    xr_str_puts(&input, "{\"ids\":[]}\n{\"ids\":[5]}\n{\"ids\":[1,512]}\n"
                        "{\"ids\":[1],\"text\":\"a\"}\n{}\n{\"ids\":[1");
    for (int i = 0; i < 512; i++)
        xr_str_puts(&input, ",5");
    xr_str_puts(&input, "]}\n");
    append_case(&input, "ids", xr_json_get(known, "prompt_ids"));
    const program_result *r =
        RUN(xr_str_text(&input), "score", "--model", model_folder("hf"));
    expect_code(r, 1);
    assert_int_equal(count_lines(r->out), 7);
    expect_text(r->out, "{\"ids\":[],\"logprobs\":[],\"entropies\":[]}\n"
                        "{\"ids\":[5],\"logprobs\":[null],\"entropies\":["
                        "null]}\n");
    for (size_t i = 2; i < 6; i++) {
        cJSON *line = output_line(r, i);
        assert_non_null(xr_json_get(line, "error"));
        cJSON_Delete(line);
    }
    cJSON *line = output_line(r, 6);
    expect_near(number_at(xr_json_get(line, "logprobs"), 1),
                number_at(xr_json_get(known, "prompt_logprobs"), 0), "logprob",
                1);
    cJSON_Delete(line);
    cJSON_Delete(golden);
    xr_str_free(&input);
    r = RUN("", "score", "--model", model_folder("hf"), "--train", "nothing");
    expect_code(r, 2);
    expect_text(r->err, "nothing");
}

/* ---- generate ----------------------------------------------------------- */

static const cJSON *first_output(const cJSON *line)
{
    const cJSON *outputs = xr_json_get(line, "outputs");
    if (cJSON_GetArraySize(outputs) < 1)
        fail_msg("no outputs");
    return cJSON_GetArrayItem(outputs, 0);
}

static void check_greedy(const cJSON *line, const cJSON *entry)
{
    const cJSON *out = first_output(line);
    const cJSON *logp = xr_json_get(out, "logprobs");
    const cJSON *want = xr_json_get(entry, "greedy_logprobs");
    int count = cJSON_GetArraySize(want);
    assert_true(cJSON_Compare(xr_json_get(out, "ids"),
                              xr_json_get(entry, "greedy_ids"), 1));
    assert_int_equal(cJSON_GetArraySize(logp), count);
    for (int i = 0; i < count; i++)
        expect_near(number_at(logp, i), number_at(want, i), "greedy", i);
    assert_string_equal(xr_json_get(out, "finish_reason")->valuestring,
                        "length");
}

static void expect_greedy_goldens(const char *name, const char *golden_file)
{
    cJSON *golden = read_golden(golden_file);
    const cJSON *cases = xr_json_get(golden, "cases");
    const cJSON *entry;
    xr_str input = { 0 };
    cJSON_ArrayForEach(entry, cases)
    {
        int count = cJSON_GetArraySize(xr_json_get(entry, "greedy_ids"));
        char *prompt = cJSON_PrintUnformatted(xr_json_get(entry, "prompt"));
        xr_str_printf(&input, "{\"prompt\":%s,\"max_tokens\":%d}\n", prompt,
                      count);
        free(prompt);
    }
    const program_result *r =
        RUN(xr_str_text(&input), "generate", "--model", model_folder(name),
            "--temperature", "0", "--infer", "dsinf", "--ignore-eos");
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    size_t i = 0;
    cJSON_ArrayForEach(entry, cases)
    {
        cJSON *line = output_line(r, i++);
        check_greedy(line, entry);
        cJSON_Delete(line);
    }
    xr_str_free(&input);
    cJSON_Delete(golden);
}

static void greedy_samples_agree(void **state)
{
    (void)state;
    expect_greedy_goldens("hf", "golden.json");
    expect_greedy_goldens("hf_as_qwen2", "golden.json");
    expect_greedy_goldens("hf_untied", "golden.json");
    expect_greedy_goldens("hf_bf16", "golden_hf_bf16.json");
    expect_greedy_goldens("hf_f16", "golden_hf_f16.json");
}

#define PROMPT "{\"prompt\":\"Once upon a time\"}\n"

static void samples_follow_their_seed(void **state)
{
    (void)state;
    const program_result *r =
        RUN(PROMPT PROMPT, "generate", "--model", model_folder("hf"), "--n",
            "5", "--seed", "3", "--max-tokens", "24");
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 2);
    char *again = strdup(r->out);
    cJSON *line = output_line(r, 0);
    cJSON *other = output_line(r, 1);
    const cJSON *outputs = xr_json_get(line, "outputs");
    int differ = 0;
    assert_int_equal(cJSON_GetArraySize(outputs), 5);
    for (int i = 1; i < 5; i++)
        differ += !cJSON_Compare(cJSON_GetArrayItem(outputs, i),
                                 first_output(line), 1);
    assert_true(differ > 0);
    assert_false(cJSON_Compare(line, other,
                               1)); /* each line has its own random numbers */
    cJSON_Delete(line);
    cJSON_Delete(other);
    r = RUN(PROMPT PROMPT, "generate", "--model", model_folder("hf"), "--n",
            "5", "--seed", "3", "--max-tokens", "24");
    assert_string_equal(r->out, again);
    r = RUN(PROMPT PROMPT, "generate", "--model", model_folder("hf"), "--n",
            "5", "--seed", "4", "--max-tokens", "24");
    assert_string_not_equal(r->out, again);
    free(again);
}

/* xray score and xray generate give a sample the same bits. */
static void generate_agrees_with_score(void **state)
{
    (void)state;
    cJSON *golden = read_golden("golden.json");
    cJSON *ids = cJSON_Duplicate(
        xr_json_get(cJSON_GetArrayItem(xr_json_get(golden, "cases"), KNOWN),
                    "prompt_ids"),
        1);
    int prompt = cJSON_GetArraySize(ids);
    xr_str input = { 0 };
    cJSON_Delete(golden);
    append_case(&input, "ids", ids);
    const program_result *r =
        RUN(xr_str_text(&input), "generate", "--model", model_folder("hf"),
            "--temperature", "0.7", "--top-k", "40", "--max-tokens", "40",
            "--ignore-eos");
    expect_code(r, 0);
    cJSON *line = output_line(r, 0);
    const cJSON *out = first_output(line);
    const cJSON *id;
    cJSON_ArrayForEach(id, xr_json_get(out, "ids"))
    {
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(id->valuedouble));
    }
    xr_str_clear(&input);
    append_case(&input, "ids", ids);
    r = RUN(xr_str_text(&input), "score", "--model", model_folder("hf"));
    expect_code(r, 0);
    cJSON *scores = output_line(r, 0);
    const cJSON *want = xr_json_get(scores, "logprobs");
    const cJSON *got = xr_json_get(out, "logprobs");
    assert_int_equal(cJSON_GetArraySize(got), 40);
    for (int i = 0; i < 40; i++)
        assert_true(number_at(got, i) == number_at(want, i + prompt));
    cJSON_Delete(scores);
    cJSON_Delete(line);
    cJSON_Delete(ids);
    xr_str_free(&input);
}

static void edge_cases_are_generated(void **state)
{
    (void)state;
    static const char input[] =
        "{\"prompt\":\"Once\",\"max_tokens\":0}\n"
        "{\"prompt\":\"Once\",\"temperature\":-1}\n"
        "{\"prompt\":\"Once\",\"n\":\"two\"}\n"
        "{\"ids\":[]}\n"
        "{\"ids\":[600]}\n"
        "{\"text\":\"Once\"}\n"
        "{\"prompt\":\"Once\",\"max_tokens\":3,\"temperature\":0}\n"
        "{\"prompt\":\"Once\",\"max_tokens\":100000,\"ignore_eos\":true}\n";
    const program_result *r =
        RUN(input, "generate", "--model", model_folder("hf"));
    expect_code(r, 1);
    assert_int_equal(count_lines(r->out), 8);
    for (size_t i = 0; i < 6; i++) {
        cJSON *line = output_line(r, i);
        assert_non_null(xr_json_get(line, "error"));
        cJSON_Delete(line);
    }
    cJSON *line = output_line(r, 6);
    const cJSON *out = first_output(line);
    assert_int_equal(cJSON_GetArraySize(xr_json_get(out, "ids")), 3);
    assert_true(cJSON_IsString(xr_json_get(out, "text")));
    cJSON_Delete(line);
    /* The model's last position ends a sample before max_tokens does. */
    line = output_line(r, 7);
    out = first_output(line);
    assert_int_equal(cJSON_GetArraySize(xr_json_get(out, "ids")), 510);
    assert_string_equal(xr_json_get(out, "finish_reason")->valuestring,
                        "length");
    cJSON_Delete(line);
}

/* A story ends with the end id, which is the last token and not in the text. */
static void end_ids_stop_a_sample(void **state)
{
    (void)state;
    const program_result *r =
        RUN(PROMPT, "generate", "--model", model_folder("hf"), "--temperature",
            "0", "--max-tokens", "500");
    expect_code(r, 0);
    cJSON *line = output_line(r, 0);
    const cJSON *out = first_output(line);
    const cJSON *ids = xr_json_get(out, "ids");
    int count = cJSON_GetArraySize(ids);
    assert_string_equal(xr_json_get(out, "finish_reason")->valuestring, "stop");
    assert_true(count < 500);
    double last = number_at(ids, count - 1);
    assert_true(last == 1 || last == 2);
    for (int i = 0; i < count - 1; i++)
        assert_true(number_at(ids, i) > 2);
    assert_null(strstr(xr_json_get(out, "text")->valuestring, "<s>"));
    assert_null(strstr(xr_json_get(out, "text")->valuestring, "</s>"));
    cJSON_Delete(line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scores_agree_with_goldens),
        cmocka_unit_test(text_is_scored),
        cmocka_unit_test(scores_do_not_depend_on_other_lines),
        cmocka_unit_test(edge_cases_are_scored),
        cmocka_unit_test(greedy_samples_agree),
        cmocka_unit_test(samples_follow_their_seed),
        cmocka_unit_test(generate_agrees_with_score),
        cmocka_unit_test(edge_cases_are_generated),
        cmocka_unit_test(end_ids_stop_a_sample),
    };
    return cmocka_run_group_tests_name("cli.models", tests, scratch_make,
                                       program_done);
}
