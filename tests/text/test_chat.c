/* SPDX-License-Identifier: Apache-2.0
 *
 * Chat templates of real models against what transformers renders.
 */
#include "tests/testing.h"

#include "core/base/file.h"
#include "tests/text/chat_rows.h"

static cJSON *load(const char *name)
{
    char path[256];
    char full[XR_PATH_CAP];
    cJSON *json = NULL;
    xr_err err = { 0 };
    (void)snprintf(path, sizeof path, "chat_templates/%s", name);
    if (xr_json_file(real_data(path, full, sizeof full), &err, &json))
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
    if (output && strcmp(output->valuestring, text.text.data) != 0)
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
    cJSON *templates = load("templates.json");
    cJSON *contexts = load("contexts.json");
    if (xr_file_read(real_data(name, path, sizeof path), 1u << 24, &err, &data,
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

static void rendered(void **state)
{
    (void)state;
    check_file("chat_templates/rendered_goldens.jsonl", 364);
}

static void qwen_texts(void **state)
{
    (void)state;
    check_file("chat_templates/qwen_token_goldens.jsonl", 50);
}

static void expect_text(const char *source, const char *json, int go_on,
                        const char *wanted)
{
    xr_err err = { 0 };
    cJSON *context = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xr_json_parse(json, strlen(json), "test", &err, &context),
                     0);
    if (chat_render(source, strlen(source), context, go_on, &err, &text))
        assert_string_equal(err.text, wanted);
    else
        assert_string_equal(xr_str_text(&text.text), wanted);
    xm_chat_text_free(&text);
    cJSON_Delete(context);
}

/* The wanted texts are transformers'. */
static void continues(void **state)
{
    (void)state;
    cJSON *templates = load("templates.json");
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
        expect_text(xr_json_get(templates, cases[i].name)->valuestring, json, 1,
                    cases[i].wanted);
    }
    cJSON_Delete(templates);
    expect_text("{% for m in messages %}{{ m.role }}{% endfor %}",
                "{\"messages\":[{\"role\":\"a\",\"content\":\"b\"}]}", 1,
                "rows.jsonl:7: mine: continue_final_message: the template does "
                "not write the last message as it is");
}

static void span_ends_with_the_text(void **state)
{
    (void)state;
    static const char source[] =
        "{% for m in messages %}{{ m.role }}:{% generation %}{{ m.content }}!"
        "{% endgeneration %}\n{% endfor %}";
    static const char json[] = "{\"messages\":[{\"role\":\"é\",\"content\":"
                               "\"one\"},{\"role\":\"b\",\"content\":\"tw\"}]}";
    xr_err err = { 0 };
    cJSON *context = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xr_json_parse(json, strlen(json), "test", &err, &context),
                     0);
    assert_int_equal(
        chat_render(source, strlen(source), context, 1, &err, &text), 0);
    assert_string_equal(text.text.data, "é:one!b:tw");
    assert_int_equal(text.span_count, 2);
    assert_int_equal(text.spans[0].from, 3);
    assert_int_equal(text.spans[0].to, 7);
    assert_int_equal(text.spans[1].from, 9);
    assert_int_equal(text.spans[1].to, 11);
    xm_chat_text_free(&text);
    cJSON_Delete(context);
}

static void reasoning(void **state)
{
    (void)state;
    static const char source[] = "{{ messages[0] }}";
    expect_text(source, "{\"messages\":[{\"role\":\"a\",\"reasoning\":\"r\"}]}",
                0,
                "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', "
                "'reasoning_content': 'r'}");
    expect_text(
        source,
        "{\"messages\":[{\"reasoning_content\":null,\"thinking\":\"t\"}]}", 0,
        "{'thinking': 't', 'reasoning_content': 't'}");
    expect_text(source, "{\"messages\":[{\"role\":\"a\"}]}", 0,
                "{'role': 'a'}");
}

static void messages_of_errors(void **state)
{
    (void)state;
    expect_text("a\n{{ messages[0].x.y }}", "{\"messages\":[{}]}", 0,
                "rows.jsonl:7: mine:2: 'dict object' has no attribute 'x'");
    expect_text("{{ raise_exception('No: ' ~ messages|length) }}",
                "{\"messages\":[]}", 0, "rows.jsonl:7: mine:1: No: 0");
    expect_text("x", "{\"messages\":[3]}", 0,
                "rows.jsonl:7: mine: message 1 must be an object, not int");
    expect_text("x", "{}", 0, "rows.jsonl:7: mine: messages must be an array");
    expect_text("\n{% if x %}", "{\"messages\":[]}", 0,
                "mine:2: the template ends where 'elif' was expected");
    expect_text("{{ 'a' \"b }}", "{\"messages\":[]}", 0,
                "mine:1: the string is not closed");
    expect_text("\xff", "{\"messages\":[]}", 0,
                "mine: the chat template is not UTF-8");
}

/* A model directory of the files in `files` (name, content, ..., NULL). */
static void make_dir(const char *dir, const char *const *files)
{
    char path[XR_PATH_CAP];
    xr_err err = { 0 };
    assert_int_equal(xr_dir_remove(dir, &err), 0);
    assert_int_equal(xr_dir_make(dir, &err), 0);
    (void)snprintf(path, sizeof path, "%s/additional_chat_templates", dir);
    assert_int_equal(xr_dir_make(path, &err), 0);
    for (; *files; files += 2) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, files[0]);
        assert_int_equal(xr_file_write(path, files[1], strlen(files[1]), &err),
                         0);
    }
}

/* What the directory's template writes, or its error; "none" without one. */
static void expect_dir(const char *dir, const char *name, int tools,
                       const char *wanted)
{
    xr_err err = { 0 };
    xm_chat *chat = NULL;
    xm_chat_text text = { 0 };
    cJSON *empty = cJSON_CreateArray();
    xm_chat_call call = { .messages = empty, .tools = tools ? empty : NULL };
    xray_status status = xm_chat_open(dir, name, &err, &chat);
    if (!status && chat)
        status = xm_chat_render(chat, &call, NULL, &err, &text);
    if (status) {
        if (!strstr(err.text, wanted))
            fail_msg("[%s], wanted [%s]", err.text, wanted);
    } else {
        assert_string_equal(chat ? xr_str_text(&text.text) : "none", wanted);
    }
    xm_chat_text_free(&text);
    xm_chat_close(chat);
    cJSON_Delete(empty);
}

static void opens(void **state)
{
    (void)state;
    char dir[] = "/tmp/xray-chat-XXXXXX";
    xr_err err = { 0 };
    assert_non_null(mkdtemp(dir));
    static const char tokens[] =
        "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\",\"lstrip\":"
        "false},\"pad_token\":null,\"chat_template\":\"{{ bos_token }}|{{ "
        "eos_token }}|{{ pad_token is defined }}\"}";
    static const char *const plain[] = { "tokenizer_config.json", tokens,
                                         NULL };
    make_dir(dir, plain);
    expect_dir(dir, NULL, 0, "<s>|</s>|False");
    expect_dir(dir, "rag", 0, "no chat template named \"rag\"");
    static const char *const file[] = { "tokenizer_config.json",
                                        tokens,
                                        "chat_template.jinja",
                                        "J{{ bos_token }}",
                                        "special_tokens_map.json",
                                        "{\"bos_token\":\"x\",\"pad_token\":"
                                        "\"p\"}",
                                        "additional_chat_templates/"
                                        "tool_use.jinja",
                                        "T{{ pad_token }}",
                                        NULL };
    make_dir(dir, file);
    expect_dir(dir, NULL, 0, "J<s>");
    expect_dir(dir, NULL, 1, "Tp");
    expect_dir(dir, "tool_use", 0, "Tp");
    expect_dir(dir, "../x", 0, "is no name of a chat template");
    static const char *const list[] = {
        "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
        "{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"rag\","
        "\"template\":\"R{{ tools }}\"}]}",
        NULL
    };
    make_dir(dir, list);
    expect_dir(dir, NULL, 0, "D");
    expect_dir(dir, NULL, 1, "T");
    expect_dir(dir, "rag", 1, "R[]");
    static const char *const json[] = { "chat_template.json",
                                        "{\"chat_template\":\"C\"}", NULL };
    make_dir(dir, json);
    expect_dir(dir, NULL, 0, "C");
    static const char *const none[] = { "tokenizer_config.json", "{}", NULL };
    make_dir(dir, none);
    expect_dir(dir, NULL, 0, "none");
    static const char *const wrong[] = { "tokenizer_config.json",
                                         "{\"chat_template\":3}", NULL };
    make_dir(dir, wrong);
    expect_dir(dir, NULL, 0, "must be a text or a list of {name, template}");
    static const char *const broken[] = {
        "tokenizer_config.json", "{\"chat_template\":\"a\\n{% if %}\"}", NULL
    };
    make_dir(dir, broken);
    expect_dir(dir, NULL, 0, "tokenizer_config.json:2: unexpected the end");
    assert_int_equal(xr_dir_remove(dir, &err), 0);
}

static void threads(void **state)
{
    (void)state;
    cJSON *templates = load("templates.json");
    cJSON *contexts = load("contexts.json");
    chat_threads(xr_json_get(templates, "trl/qwen3")->valuestring,
                 xr_json_get(contexts, "tool_call_parallel"));
    cJSON_Delete(templates);
    cJSON_Delete(contexts);
}

static void mutations(void **state)
{
    (void)state;
    cJSON *templates = load("templates.json");
    cJSON *contexts = load("contexts.json");
    chat_mutations(templates, contexts);
    cJSON_Delete(templates);
    cJSON_Delete(contexts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rendered),  cmocka_unit_test(qwen_texts),
        cmocka_unit_test(continues), cmocka_unit_test(span_ends_with_the_text),
        cmocka_unit_test(reasoning), cmocka_unit_test(messages_of_errors),
        cmocka_unit_test(opens),     cmocka_unit_test(threads),
        cmocka_unit_test(mutations),
    };
    return cmocka_run_group_tests_name("text.chat", tests, NULL, NULL);
}
