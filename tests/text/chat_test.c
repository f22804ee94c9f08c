/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates of published models render what transformers renders.
 */
#include "tests/testing.h"

#include "core/base/file.h"
#include "tests/text/chat_checks.h"

static cJSON *load_data_json(const char *name)
{
    char path[256];
    char full[XR_PATH_CAP];
    cJSON *json = NULL;
    xr_err err = { 0 };
    (void)snprintf(path, sizeof path, "chat_templates/%s", name);
    if (xr_json_file(test_data(path, full, sizeof full), &err, &json))
        fail_msg("%s", err.text);
    return json;
}

static void check_spans(const cJSON *row, const char *source,
                        const xm_chat_text *text)
{
    const cJSON *wanted = xr_json_get(row, "assistant_spans");
    assert_int_equal(text->has_generation,
                     strstr(source, "endgeneration") != NULL);
    if (!wanted) {
        assert_int_equal(text->span_count, 0);
        return;
    }
    chat_expect_spans(wanted, text);
}

static void check_row(const cJSON *row, const char *source,
                      const cJSON *context, size_t number)
{
    xr_err err = { 0 };
    xm_chat *chat = NULL;
    xm_chat_text text = { 0 };
    cJSON *variables = cJSON_Duplicate(context, 1);
    static const char *const tokens[] = { "bos_token", "eos_token" };
    for (size_t i = 0; i < 2; i++)
        if (xr_json_get(row, tokens[i]))
            (void)cJSON_AddStringToObject(
                variables, tokens[i], xr_json_get(row, tokens[i])->valuestring);
    xm_chat_call call = {
        .messages = xr_json_get(context, "messages"),
        .tools = xr_json_get(context, "tools"),
        .variables = variables,
        .add_generation_prompt =
            cJSON_IsTrue(xr_json_get(row, "add_generation_prompt")),
        .now = 1721995200, /* 26 Jul 2024, the day of the goldens */
    };
    if (xm_chat_compile(source, strlen(source), "t", &err, &chat))
        fail_msg("row %zu: %s", number, err.text);
    xray_status status = xm_chat_render(chat, &call, "row", &err, &text);
    const cJSON *output = xr_json_get(row, "output");
    if (!output)
        output = xr_json_get(row, "text");
    const cJSON *message = xr_json_get(row, "message");
    if (output && status)
        fail_msg("row %zu: %s", number, err.text);
    if (output && !chat_wrote(&text, output->valuestring))
        fail_msg("row %zu: wanted [%s]\ngot [%s]", number, output->valuestring,
                 text.text.data);
    if (!output && !status)
        fail_msg("row %zu: no error", number);
    if (message && !strstr(err.text, message->valuestring))
        fail_msg("row %zu: [%s], wanted [%s]", number, err.text,
                 message->valuestring);
    if (xr_json_get(row, "output"))
        check_spans(row, source, &text);
    xm_chat_text_free(&text);
    xm_chat_close(chat);
    cJSON_Delete(variables);
}

static void check_file(const char *name, size_t least)
{
    char path[XR_PATH_CAP];
    char *data;
    size_t size;
    xr_err err = { 0 };
    cJSON *templates = load_data_json("templates.json");
    cJSON *contexts = load_data_json("contexts.json");
    if (xr_file_read(test_data(name, path, sizeof path), 1u << 24, &err, &data,
                     &size))
        fail_msg("%s", err.text);
    size_t count = 0;
    for (char *at = data; *at;) {
        char *end = strchr(at, '\n');
        cJSON *row = NULL;
        size_t length = end ? (size_t)(end - at) : strlen(at);
        assert_int_equal(xr_json_parse(at, length, name, &err, &row), 0);
        const cJSON *source =
            xr_json_get(templates, xr_json_get(row, "template")->valuestring);
        const cJSON *context =
            xr_json_get(contexts, xr_json_get(row, "context")->valuestring);
        assert_non_null(source);
        assert_non_null(context);
        check_row(row, source->valuestring, context, ++count);
        cJSON_Delete(row);
        at += length + (end != NULL);
    }
    assert_true(count >= least);
    free(data);
    cJSON_Delete(templates);
    cJSON_Delete(contexts);
}

static void real_templates_render_like_transformers(void **state)
{
    (void)state;
    check_file("chat_templates/rendered_goldens.jsonl", 364);
}

static void qwen_texts_match_transformers(void **state)
{
    (void)state;
    check_file("chat_templates/qwen_token_goldens.jsonl", 50);
}

/* The expected texts are those of transformers. */
static void last_message_is_continued(void **state)
{
    (void)state;
    cJSON *templates = load_data_json("templates.json");
    static const struct {
        const char *name;
        const char *last;
        const char *wanted;
    } cases[] = {
        { "trl/llama3", "\"1, 2, \\n\"",
          "<s><|start_header_id|>user<|end_header_id|>\n\né<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n1, 2," },
        { "trl/gemma3",
          "[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b "
          "\"}]",
          "<s><start_of_turn>user\né<end_of_turn>\n<start_of_turn>model\nab" },
        { "trl/qwen3", "\"<think>\\nx\\n</think>\\n\\n1, \"",
          "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n<think>\nx\n"
          "</think>\n\n1, " },
        { "inline/chatml", "\"\"",
          "<|im_start|>user\né<|im_end|>\n<|im_start|>assistant\n" },
        { "inline/chatml", "null",
          "rows.jsonl:7: mine: continue_final_message: the last message has no "
          "text content to continue" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[512];
        (void)snprintf(
            json, sizeof json,
            "{\"bos_token\":\"<s>\",\"messages\":[{\"role\":\"user\","
            "\"content\":\"é\"},{\"role\":\"assistant\","
            "\"content\":%s}]}",
            cases[i].last);
        chat_expect(xr_json_get(templates, cases[i].name)->valuestring, json, 1,
                    cases[i].wanted);
    }
    cJSON_Delete(templates);
}

static void threads_render_the_same_text(void **state)
{
    (void)state;
    cJSON *templates = load_data_json("templates.json");
    cJSON *contexts = load_data_json("contexts.json");
    chat_check_threads(xr_json_get(templates, "trl/qwen3")->valuestring,
                       xr_json_get(contexts, "tool_call_parallel"));
    cJSON_Delete(templates);
    cJSON_Delete(contexts);
}

static void mutated_templates_end_with_text_or_error(void **state)
{
    (void)state;
    cJSON *templates = load_data_json("templates.json");
    cJSON *contexts = load_data_json("contexts.json");
    chat_check_mutations(templates, contexts);
    cJSON_Delete(templates);
    cJSON_Delete(contexts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_templates_render_like_transformers),
        cmocka_unit_test(qwen_texts_match_transformers),
        cmocka_unit_test(last_message_is_continued),

        cmocka_unit_test(threads_render_the_same_text),
        cmocka_unit_test(mutated_templates_end_with_text_or_error),
    };
    return cmocka_run_group_tests_name("text.chat", tests, NULL, NULL);
}
