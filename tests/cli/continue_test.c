/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines of xray generate that go on from the answer of an earlier line: they
 * have the samples of a line that holds the complete row, whatever order and
 * chunks the lines come in, and what cannot go on is refused.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static char model[256];

/* A model of random weights whose tokenizer writes 15 before a text, and knows
 * digits. */
static int make_model(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    (void)snprintf(model, sizeof model, "%s", scratch_path("model"));
    if (xr_dir_make(model, NULL) != XRAY_OK)
        return -1;
    (void)scratch_write(
        "model/config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"intermediate_size\":16,"
        "\"max_position_embeddings\":600,\"rms_norm_eps\":1e-5,"
        "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\","
        "\"vocab_size\":16,\"eos_token_id\":14}");
    (void)scratch_write(
        "model/tokenizer.json",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"0\":0,\"1\":1,\"2\":2,"
        "\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"-\":10,"
        "\"a\":11,\"b\":12,\"c\":13},\"merges\":[]},"
        "\"added_tokens\":[{\"id\":15,\"content\":\"<s>\",\"special\":true},"
        "{\"id\":14,\"content\":\"</s>\",\"special\":true}],"
        "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
        "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
        "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],"
        "\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[15],"
        "\"tokens\":[\"<s>\"]}}}}");
    return 0;
}

#define DRAWN "generate", "--model", model, "--set", "model.init=random"

/* Appends the ids of the sample of answer `i`. */
static void put_sample(const program_result *r, size_t i, xr_str *out)
{
    cJSON *line = output_line(r, i);
    const cJSON *outputs = xr_json_get(line, "outputs");
    if (!outputs)
        fail_msg("line %zu: %s", i, r->out);
    const cJSON *id = NULL;
    cJSON_ArrayForEach(id, xr_json_get(outputs->child, "ids"))
        xr_str_printf(out, ",%d", id->valueint);
    cJSON_Delete(line);
}

static void expect_error(const program_result *r, size_t i, const char *want)
{
    cJSON *line = output_line(r, i);
    const cJSON *error = xr_json_get(line, "error");
    if (!cJSON_IsString(error) || strcmp(error->valuestring, want) != 0)
        fail_msg("line %zu: expected %s in %s", i, want, r->out);
    cJSON_Delete(line);
}

/* Returns the copy of a line of the output. */
static char *copy_line(const program_result *r, size_t i)
{
    cJSON *line = output_line(r, i);
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    return text;
}

static const char turns[] =
    "{\"prompt\":\"12\",\"id\":\"a\",\"max_tokens\":3,\"ignore_eos\":true}\n"
    "{\"prompt\":\"34\",\"after\":\"a\",\"id\":\"b\",\"max_tokens\":4,"
    "\"ignore_eos\":true}\n"
    "{\"ids\":[5],\"after\":\"b\",\"max_tokens\":5,\"ignore_eos\":true,"
    "\"prompt_logprobs\":true,\"temperature\":0.7}\n"
    "{\"after\":\"a\",\"max_tokens\":5,\"n\":2,\"ignore_eos\":true}\n";

/* Every line has a number, which its random numbers depend on, so the complete
 * rows are given in lines of the same numbers. */
static void goes_on_from_the_complete_row(void **state)
{
    (void)state;
    const program_result *r = RUN(turns, DRAWN, "--seed", "3");
    xr_str rows[4] = { { 0 } };
    xr_str input = { 0 };
    char *answers[4];
    expect_code(r, 0);
    xr_str_puts(&rows[0], "15,1,2");
    xr_str_puts(&rows[1], "15,1,2");
    put_sample(r, 0, &rows[1]);
    xr_str_puts(&rows[3], xr_str_text(&rows[1]));
    xr_str_puts(&rows[1], ",3,4");
    xr_str_puts(&rows[2], xr_str_text(&rows[1]));
    put_sample(r, 1, &rows[2]);
    xr_str_puts(&rows[2], ",5");
    for (size_t i = 0; i < 4; i++)
        answers[i] = copy_line(r, i);
    static const char *const rest[] = {
        "\"max_tokens\":3", "\"max_tokens\":4",
        "\"max_tokens\":5,\"prompt_logprobs\":true,\"temperature\":0.7",
        "\"max_tokens\":5,\"n\":2"
    };
    for (size_t i = 0; i < 4; i++)
        xr_str_printf(&input, "{\"ids\":[%s],%s,\"ignore_eos\":true}\n",
                      xr_str_text(&rows[i]), rest[i]);
    r = RUN(xr_str_text(&input), DRAWN, "--seed", "3");
    expect_code(r, 0);
    for (size_t i = 0; i < 4; i++) {
        char *whole = copy_line(r, i);
        if (strcmp(whole, answers[i]) != 0)
            fail_msg("line %zu: %s, but after its answer %s", i, whole,
                     answers[i]);
        free(whole);
        free(answers[i]);
        xr_str_free(&rows[i]);
    }
    xr_str_free(&input);
}

/* With a pause after each line, every line is a chunk of its own. */
static void chunks_change_nothing(void **state)
{
    (void)state;
    char command[2048];
    const program_result *r = RUN(turns, DRAWN);
    expect_code(r, 0);
    char *together = xr_strdup(r->out);
    (void)scratch_write("turns.jsonl", turns);
    (void)snprintf(command, sizeof command,
                   "while IFS= read -r line; do echo \"$line\"; sleep 0.2; "
                   "done <%s | $XRAY_BIN generate --model %s --set "
                   "model.init=random",
                   scratch_path("turns.jsonl"), model);
    r = program_shell(command);
    expect_code(r, 0);
    assert_string_equal(r->out, together);
    free(together);
}

/* Texts are printed in the order of lines, and a line goes on from an answer up
 * to the token that completed a stop text. */
static void stops_and_streams(void **state)
{
    (void)state;
    static const char lines[] =
        "{\"prompt\":\"1\",\"id\":\"a\",\"max_tokens\":30,\"stop\":[\"0\","
        "\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"-\",\"a\","
        "\"b\",\"c\"]}\n"
        "{\"after\":\"a\",\"max_tokens\":6}\n";
    const program_result *r =
        RUN(lines, DRAWN, "--ignore-eos", "--temperature", "0");
    xr_str row = { 0 };
    xr_str input = { 0 };
    expect_code(r, 0);
    put_sample(r, 0, &row);
    char *answer = copy_line(r, 1);
    xr_str_printf(&input, "{\"ids\":[15,1%s],\"max_tokens\":6}\n",
                  xr_str_text(&row));
    r = RUN(xr_str_text(&input), DRAWN, "--ignore-eos", "--temperature", "0");
    expect_code(r, 0);
    char *whole = copy_line(r, 0);
    assert_string_equal(whole, answer);
    free(whole);
    cJSON *line = cJSON_Parse(answer);
    const cJSON *text =
        xr_json_get(xr_json_get(line, "outputs")->child, "text");
    r = RUN(lines, DRAWN, "--ignore-eos", "--temperature", "0", "--stream");
    expect_code(r, 0);
    const char *second = strchr(r->out, '\n') + 1;
    assert_int_equal(
        strncmp(second, text->valuestring, strlen(text->valuestring)), 0);
    assert_string_equal(second + strlen(text->valuestring), "\n");
    cJSON_Delete(line);
    free(answer);
    xr_str_free(&row);
    xr_str_free(&input);
}

static void refuses_what_cannot_go_on(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"1\",\"id\":\"a\",\"max_tokens\":2}\n"
            "{\"prompt\":\"1\",\"after\":\"b\",\"id\":\"c\"}\n"
            "{\"prompt\":\"1\",\"after\":\"c\"}\n"
            "{\"prompt\":\"1\",\"id\":\"a\"}\n"
            "{\"prompt\":\"1\",\"after\":\"d\",\"id\":\"d\"}\n"
            "{\"prompt\":\"1\",\"id\":\"n\",\"n\":2,\"max_tokens\":2}\n"
            "{\"prompt\":\"1\",\"after\":\"n\"}\n"
            "{\"after\":\"a\",\"messages\":[]}\n"
            "{\"after\":5}\n"
            "{\"id\":\"e\",\"ids\":[]}\n"
            "{\"id\":\"f\"}\n"
            "{\"after\":\"a\",\"prompt\":\"1\",\"ids\":[1]}\n"
            "{\"after\":\"a\",\"prompt\":\"1\",\"max_tokens\":2}\n"
            "{\"after\":\"z\",\"prompt\":\"1\",\"id\":\"a\"}\n",
            DRAWN);
    expect_code(r, 1);
    expect_error(r, 13, "stdin:14: no line before this one has the id \"z\"");
    expect_error(r, 1, "stdin:2: no line before this one has the id \"b\"");
    expect_error(r, 2,
                 "stdin:3: line 2 has no answer to go on from, since it "
                 "failed");
    expect_error(r, 3, "stdin:4: line 1 has the id \"a\", too");
    expect_error(r, 4, "stdin:5: no line before this one has the id \"d\"");
    expect_error(r, 6,
                 "stdin:7: line 6 has 2 samples; a line can go on from one "
                 "that has a single sample");
    expect_error(r, 7,
                 "stdin:8: \"messages\" are a complete conversation; a line "
                 "with \"after\" has \"prompt\" or \"ids\"");
    expect_error(r, 8, "stdin:9: \"after\" must be a string, not a number");
    expect_error(r, 9, "stdin:10: the prompt has no tokens");
    expect_error(r, 10,
                 "stdin:11: a line must have exactly one of \"prompt\", "
                 "\"messages\" and \"ids\"");
    expect_error(r, 11,
                 "stdin:12: a line must have exactly one of \"prompt\", "
                 "\"messages\" and \"ids\"");
    expect_text(r->out, "\"outputs\"");
    cJSON_Delete(output_line(r, 12));
    r = RUN("{\"text\":\"1\",\"after\":\"a\"}\n", "tokenize", "--model", model);
    expect_code(r, 1);
    expect_error(r, 0, "stdin:1: there is no key \"after\"");
}

/* A row that is too long is found once the answer is there; lines behind it
 * fail with it, in the same chunk as well as in a later one. */
static void rows_have_the_models_positions(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"1\",\"id\":\"a\",\"max_tokens\":1000}\n"
            "{\"after\":\"a\",\"id\":\"b\"}\n"
            "{\"after\":\"b\"}\n"
            "{\"prompt\":\"1\",\"max_tokens\":2}\n",
            DRAWN, "--ignore-eos");
    expect_code(r, 1);
    expect_error(
        r, 1,
        "stdin:2: 600 tokens after the answer that it goes on from, at "
        "most 599 are possible with this model");
    expect_error(r, 2,
                 "stdin:3: line 2 has no answer to go on from, since it "
                 "failed");
    cJSON *last = output_line(r, 3);
    assert_non_null(xr_json_get(last, "outputs"));
    cJSON_Delete(last);
}

/* Rows that become long only with the answers before them fit the engine, whose
 * rows have 256 tokens where no line needs more. */
static void answers_make_rows_long(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"1\",\"id\":\"a\",\"max_tokens\":150}\n"
            "{\"after\":\"a\",\"id\":\"b\",\"max_tokens\":150}\n"
            "{\"after\":\"b\",\"max_tokens\":150}\n",
            DRAWN, "--ignore-eos");
    expect_code(r, 0);
    for (size_t i = 0; i < 3; i++) {
        cJSON *line = output_line(r, i);
        const cJSON *outputs = xr_json_get(line, "outputs");
        assert_int_equal(cJSON_GetArraySize(xr_json_get(outputs->child, "ids")),
                         150);
        cJSON_Delete(line);
    }
}

/* The tokens of the first turn are not computed again: the engine starts the
 * second behind the blocks of 16 tokens that the first has filled. */
static void finds_the_row_in_the_prefix_cache(void **state)
{
    (void)state;
    char trace[512];
    static char text[1 << 18];
    (void)snprintf(trace, sizeof trace, "infer.paged.trace=%s",
                   scratch_path("trace.json"));
    const program_result *r =
        RUN("{\"prompt\":\"1234567\",\"id\":\"a\",\"max_tokens\":27}\n"
            "{\"after\":\"a\",\"prompt\":\"89\",\"max_tokens\":2}\n",
            DRAWN, "--ignore-eos", "--infer", "paged", "--set",
            "infer.paged.block_size=16", "--set", trace);
    expect_code(r, 0);
    FILE *file = fopen(scratch_path("trace.json"), "r");
    assert_non_null(file);
    size_t size = fread(text, 1, sizeof text - 1, file);
    (void)fclose(file);
    text[size] = '\0';
    /* 8 + 27 tokens, of which the last has no key: two blocks, and 5 more of
     * the 37 tokens. */
    const char *chunk = strstr(text, "\"name\":\"chunk\"");
    chunk = chunk ? strstr(chunk + 1, "\"name\":\"chunk\"") : NULL;
    if (!chunk)
        fail_msg("no second chunk in %s", text);
    expect_text(chunk, "\"event\":\"chunk\",\"tokens\":5");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_from_the_complete_row),
        cmocka_unit_test(chunks_change_nothing),
        cmocka_unit_test(stops_and_streams),
        cmocka_unit_test(refuses_what_cannot_go_on),
        cmocka_unit_test(rows_have_the_models_positions),
        cmocka_unit_test(answers_make_rows_long),
        cmocka_unit_test(finds_the_row_in_the_prefix_cache),
    };
    return cmocka_run_group_tests_name("cli.continue", tests, make_model,
                                       program_done);
}
