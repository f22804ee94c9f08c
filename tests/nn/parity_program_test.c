/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that `xray score` and `xray generate` agree with transformers and with
 * each other over the models of tests/nn/goldens.
 */
#include "core/base/str.h"
#include "tests/cli/program.h"
#include "tests/nn/goldens.h"

static void put_ids_line(const cJSON *ids, xr_str *out)
{
    char *text = cJSON_PrintUnformatted(ids);
    assert_non_null(text);
    xr_str_printf(out, "{\"ids\":%s}\n", text);
    free(text);
}

static void check_scores(const char *dir, const cJSON *golden)
{
    xr_str input = { 0 };
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, golden_part(golden, "rows"))
    {
        put_ids_line(row, &input);
    }
    const program_result *r = RUN(xr_str_text(&input), "score", "--model", dir);
    expect_code(r, 0);
    uint32_t line = 0;
    cJSON_ArrayForEach(row, golden_part(golden, "logp"))
    {
        cJSON *got = output_line(r, line++);
        const cJSON *logp = golden_part(got, "logprobs");
        uint32_t count = (uint32_t)cJSON_GetArraySize(row);
        assert_int_equal(cJSON_GetArraySize(logp), count + 1);
        for (uint32_t i = 0; i < count; i++)
            golden_near(golden_at(logp, i + 1), golden_at(row, i), "logprobs",
                        i + 1);
        cJSON_Delete(got);
    }
    assert_int_equal(count_lines(r->out), line);
    xr_str_free(&input);
}

/* Expects the greedy ids of transformers, and returns the output, which the
 * caller deletes. */
static cJSON *check_greedy(const char *dir, const cJSON *greedy)
{
    const cJSON *want = golden_part(greedy, "ids");
    uint32_t count = (uint32_t)cJSON_GetArraySize(want);
    char tokens[16];
    xr_str input = { 0 };
    (void)snprintf(tokens, sizeof tokens, "%u", count);
    put_ids_line(golden_part(greedy, "prompt"), &input);
    const program_result *r =
        RUN(xr_str_text(&input), "generate", "--model", dir, "--temperature",
            "0", "--ignore-eos", "--max-tokens", tokens);
    expect_code(r, 0);
    xr_str_free(&input);
    cJSON *line = output_line(r, 0);
    const cJSON *out = cJSON_GetArrayItem(golden_part(line, "outputs"), 0);
    const cJSON *ids = golden_part(out, "ids");
    const cJSON *logp = golden_part(out, "logprobs");
    assert_int_equal(cJSON_GetArraySize(ids), count);
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(golden_at(ids, i), golden_at(want, i));
        golden_near(golden_at(logp, i),
                    golden_at(golden_part(greedy, "logp"), i), "greedy", i);
    }
    return line;
}

/* Expects the trainer's log-probabilities to equal the engine's to the last
 * digit. */
static void check_trainer_matches_engine(const char *dir, const cJSON *prompt,
                                         const cJSON *out)
{
    cJSON *row = cJSON_Duplicate(prompt, 1);
    uint32_t start = (uint32_t)cJSON_GetArraySize(row);
    const cJSON *id = NULL;
    cJSON_ArrayForEach(id, golden_part(out, "ids"))
    {
        cJSON_AddItemToArray(row, cJSON_CreateNumber(id->valuedouble));
    }
    xr_str input = { 0 };
    put_ids_line(row, &input);
    const program_result *r = RUN(xr_str_text(&input), "score", "--model", dir);
    expect_code(r, 0);
    cJSON *line = output_line(r, 0);
    const cJSON *scored = golden_part(line, "logprobs");
    const cJSON *made = golden_part(out, "logprobs");
    for (uint32_t i = 0; i < (uint32_t)cJSON_GetArraySize(made); i++)
        if (golden_at(scored, start + i) != golden_at(made, i))
            fail_msg("token %u: the trainer has %.9g, the engine %.9g", i,
                     golden_at(scored, start + i), golden_at(made, i));
    xr_str_free(&input);
    cJSON_Delete(line);
    cJSON_Delete(row);
}

static void program_agrees_with_transformers(void **state)
{
    char dir[XR_PATH_CAP];
    golden_dir(*state, dir);
    cJSON *golden = golden_read(dir);
    const cJSON *greedy = golden_part(golden, "greedy");
    check_scores(dir, golden);
    cJSON *line = check_greedy(dir, greedy);
    check_trainer_matches_engine(
        dir, golden_part(greedy, "prompt"),
        cJSON_GetArrayItem(golden_part(line, "outputs"), 0));
    cJSON_Delete(line);
    cJSON_Delete(golden);
}

int main(void)
{
    return golden_run("nn.parity.program", program_agrees_with_transformers,
                      scratch_make, program_done);
}
