/* SPDX-License-Identifier: Apache-2.0
 *
 * xray chat answers each line as xray generate answers the conversation up to
 * it, and xray generate --prompt as it answers a line with that prompt.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static char model[256];

/* A model of random weights whose tokenizer knows digits and letters; its
 * template writes each role's first letter before a message. */
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
        "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
        "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\","
        "\"vocab_size\":16}");
    (void)scratch_write(
        "model/tokenizer.json",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"0\":0,\"1\":1,\"2\":2,"
        "\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"-\":10,"
        "\"a\":11,\"s\":12,\"u\":13,\"b\":14,\"c\":15},\"merges\":[]}}");
    (void)scratch_write(
        "model/tokenizer_config.json",
        "{\"chat_template\":\"{% for m in messages %}{{ m.role[0] }}"
        "{{ m.content }}-{% endfor %}{% if add_generation_prompt %}a"
        "{% endif %}\"}");
    return 0;
}

#define DRAWN "--model", model, "--set", "model.init=random"
#define OPTIONS DRAWN, "--max-tokens", "7", "--seed", "5"

/* Copies line i of a text, without its newline. */
static char *copy_line(const char *text, size_t i)
{
    for (; i; i--)
        text = strchr(text, '\n') + 1;
    size_t size = strcspn(text, "\n");
    char *line = calloc(size + 1, 1);
    assert_non_null(line);
    memcpy(line, text, size);
    return line;
}

static void put_message(xr_str *out, const char *role, const char *text)
{
    xr_str_printf(out, "%s{\"role\":\"%s\",\"content\":\"%s\"}",
                  out->size ? "," : "", role, text);
}

/* Random numbers depend on the number of a line, as in xray generate. */
static void expect_conversation(const char *const *said, const char *system)
{
    xr_str typed = { 0 };
    xr_str lines = { 0 };
    xr_str so_far = { 0 };
    for (size_t i = 0; i < 3; i++)
        xr_str_printf(&typed, "%s\n", said[i]);
    const program_result *r =
        system ? RUN(xr_str_text(&typed), "chat", OPTIONS, "--system", system)
               : RUN(xr_str_text(&typed), "chat", OPTIONS);
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 3);
    char *answers = xr_strdup(r->out);
    if (system)
        put_message(&so_far, "system", system);
    for (size_t i = 0; i < 3; i++) {
        char *answer = copy_line(answers, i);
        put_message(&so_far, "user", said[i]);
        xr_str_printf(&lines, "{\"messages\":[%s]}\n", xr_str_text(&so_far));
        put_message(&so_far, "assistant", answer);
        free(answer);
    }
    r = RUN(xr_str_text(&lines), "generate", OPTIONS, "--stream");
    expect_code(r, 0);
    assert_string_equal(r->out, answers);
    free(answers);
    xr_str_free(&typed);
    xr_str_free(&lines);
    xr_str_free(&so_far);
}

static void answers_are_those_of_the_conversation(void **state)
{
    (void)state;
    static const char *const said[] = { "12", "3", "45" };
    expect_conversation(said, NULL);
    expect_conversation(said, "99");
}

/* Greedy answers do not depend on the number of the line. */
static void reset_forgets_the_conversation(void **state)
{
    (void)state;
    const program_result *r =
        RUN("12\n\n34\n/reset\n12\n/quit\n12\n", "chat", DRAWN, "--max-tokens",
            "7", "--temperature", "0", "--system", "1");
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 3);
    char *first = copy_line(r->out, 0);
    char *third = copy_line(r->out, 2);
    assert_string_equal(first, third);
    free(first);
    free(third);
    expect_text(r->err, "xray: the answer was cut after 7 tokens");
}

/* A message that cannot be answered is dropped, and the talk goes on. */
static void refused_messages_are_dropped(void **state)
{
    (void)state;
    char line[128];
    memset(line, '1', 80);
    (void)snprintf(line + 80, sizeof line - 80, "\n2\n");
    const program_result *r =
        RUN(line, "chat", DRAWN, "--max-tokens", "3", "--temperature", "0");
    expect_code(r, 0);
    expect_text(r->err, "xray: turn:1: 83 tokens, at most 63 are possible with "
                        "this model");
    char *after = xr_strdup(r->out);
    r = RUN("2\n", "chat", DRAWN, "--max-tokens", "3", "--temperature", "0");
    assert_string_equal(r->out, after);
    free(after);
    r = RUN("\xff\n", "chat", DRAWN);
    expect_code(r, 0);
    assert_string_equal(r->out, "");
    expect_text(r->err, "xray: the line is not text in UTF-8");
}

static void models_without_a_template_are_refused(void **state)
{
    (void)state;
    (void)scratch_write("model/tokenizer_config.json.kept", "");
    const char *config = scratch_path("model/tokenizer_config.json");
    char away[300];
    (void)snprintf(away, sizeof away, "%s.away", config);
    assert_int_equal(rename(config, away), 0);
    const program_result *r = RUN("1\n", "chat", DRAWN);
    assert_int_equal(rename(away, scratch_path("model/tokenizer_config.json")),
                     0);
    expect_code(r, 2);
    expect_text(r->err, "xray: the model has no chat template; xray generate "
                        "samples from texts");
}

/* Before a turn is read: the program does not wait for input. */
static void engines_that_give_no_parts_are_refused(void **state)
{
    (void)state;
    assert_int_equal(setenv("MODEL", model, 1), 0);
    const program_result *r = program_shell(
        "export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes\n"
        "mkfifo $XRAY_SCRATCH/never && exec 3<>$XRAY_SCRATCH/never\n"
        "$XRAY_BIN chat --model $MODEL --set model.init=random --infer grid "
        "<&3; echo $?\n");
    assert_string_equal(r->err, "xray: xray chat: infer.grid does not offer "
                                "stream, which is asked for\n");
    assert_string_equal(r->out, "2\n");
}

static void prompts_are_lines(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"12\"}\n{\"prompt\":\"3\"}\n", "generate", OPTIONS);
    expect_code(r, 0);
    char *want = xr_strdup(r->out);
    r = RUN("{\"prompt\":\"9\"}\n", "generate", OPTIONS, "--prompt", "12",
            "--prompt", "3");
    expect_code(r, 0);
    assert_string_equal(r->out, want);
    free(want);
    r = RUN("", "generate", OPTIONS, "--prompt", "");
    expect_code(r, 1);
    expect_text(r->out, "--prompt:1: the prompt has no tokens");
    r = RUN("", "generate", OPTIONS, "--prompt", "1", "rows.jsonl");
    expect_code(r, 2);
    expect_text(r->err,
                "xray: --prompt takes the place of FILE: give one of them");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_of_the_conversation),
        cmocka_unit_test(reset_forgets_the_conversation),
        cmocka_unit_test(refused_messages_are_dropped),
        cmocka_unit_test(models_without_a_template_are_refused),
        cmocka_unit_test(engines_that_give_no_parts_are_refused),
        cmocka_unit_test(prompts_are_lines),
    };
    return cmocka_run_group_tests_name("cli.chat", tests, make_model,
                                       program_done);
}
