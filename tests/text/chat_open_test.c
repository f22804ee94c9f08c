/* SPDX-License-Identifier: Apache-2.0
 *
 * The chat template of a model directory, and its special tokens, are found in
 * every file that may hold them.
 */
#include "tests/testing.h"

#include "core/base/file.h"
#include "tests/text/chat_checks.h"

/* Makes a model directory with the files (name, content, ..., NULL). */
static void make_model_dir(const char *dir, const char *const *files)
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

/* Checks what the directory's template writes, or its error; "none" if there is
 * no template. */
static void expect_template(const char *dir, const char *name, int tools,
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
    } else if (!chat) {
        assert_string_equal("none", wanted);
    } else if (!chat_wrote(&text, wanted)) {
        fail_msg("[%s], wanted [%s]", xr_str_text(&text.text), wanted);
    }
    xm_chat_text_free(&text);
    xm_chat_close(chat);
    cJSON_Delete(empty);
}

static void template_is_found_in_each_source(void **state)
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
    make_model_dir(dir, plain);
    expect_template(dir, NULL, 0, "<s>|</s>|False");
    expect_template(dir, "rag", 0, "no chat template named \"rag\"");
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
    make_model_dir(dir, file);
    expect_template(dir, NULL, 0, "J<s>");
    expect_template(dir, NULL, 1, "Tp");
    expect_template(dir, "tool_use", 0, "Tp");
    expect_template(dir, "../x", 0, "is not the name of a chat template");
    static const char *const list[] = {
        "tokenizer_config.json",
        "{\"chat_template\":[{\"name\":\"default\",\"template\":\"D\"},"
        "{\"name\":\"tool_use\",\"template\":\"T\"},{\"name\":\"rag\","
        "\"template\":\"R{{ tools }}\"}]}",
        NULL
    };
    make_model_dir(dir, list);
    expect_template(dir, NULL, 0, "D");
    expect_template(dir, NULL, 1, "T");
    expect_template(dir, "rag", 1, "R[]");
    static const char *const json[] = { "chat_template.json",
                                        "{\"chat_template\":\"C\"}", NULL };
    make_model_dir(dir, json);
    expect_template(dir, NULL, 0, "C");
    static const char *const none[] = { "tokenizer_config.json", "{}", NULL };
    make_model_dir(dir, none);
    expect_template(dir, NULL, 0, "none");
    static const char *const wrong[] = { "tokenizer_config.json",
                                         "{\"chat_template\":3}", NULL };
    make_model_dir(dir, wrong);
    expect_template(dir, NULL, 0,
                    "must be a text or a list of {name, template}");
    static const char *const broken[] = {
        "tokenizer_config.json", "{\"chat_template\":\"a\\n{% if %}\"}", NULL
    };
    make_model_dir(dir, broken);
    expect_template(dir, NULL, 0,
                    "tokenizer_config.json:2: unexpected the end");
    assert_int_equal(xr_dir_remove(dir, &err), 0);
}

/* 129 bytes; a name may have 128. */
#define N16 "nnnnnnnnnnnnnnnn"
static const char long_name[] = N16 N16 N16 N16 N16 N16 N16 N16 "n";

static const char all[] =
    "{\"chat_template\":\"{{ bos_token }}{{ eos_token }}{{ unk_token }}"
    "{{ sep_token }}{{ pad_token }}{{ cls_token }}{{ mask_token }}"
    "{{ additional_special_tokens }}\",\"bos_token\":\"b\",\"eos_token\":"
    "\"e\",\"unk_token\":\"u\",\"sep_token\":\"s\",\"pad_token\":\"p\","
    "\"cls_token\":\"c\",\"mask_token\":{\"content\":\"m\"},"
    "\"additional_special_tokens\":[\"x\",{\"content\":\"y\"},3,\"z\"]}";
static const char later[] = "{\"bos_token\":\"B\",\"chat_template\":\"map\","
                            "\"additional_special_tokens\":[\"X\"]}";
static const char list[] =
    "{\"chat_template\":[{\"name\":\"first\",\"template\":\"F\"},"
    "{\"name\":\"tool_use\",\"template\":\"T\"}]}";
static const char tool_first[] =
    "{\"chat_template\":[{\"name\":\"tool_use\",\"template\":\"T\"},"
    "{\"name\":\"default\",\"template\":\"D\"}]}";

/* Per row: files, name of the template, whether there are tools, and the text
 * or the error. */
static const struct {
    const char *files[5];
    const char *name;
    int tools;
    const char *wanted;
} cases[] = {
    { { "tokenizer_config.json", all }, NULL, 0, "beuspcm['x', 'y', 'z']" },
    { { "tokenizer_config.json", all, "special_tokens_map.json", later },
      NULL,
      0,
      "beuspcm['x', 'y', 'z']" },
    { { "special_tokens_map.json", later }, NULL, 0, "none" },
    { { "chat_template.jinja",
        "{{ bos_token }}{{ "
        "additional_special_tokens }}",
        "special_tokens_map.json", later },
      NULL,
      0,
      "B['X']" },
    { { "chat_template.jinja", "\xEF\xBB\xBFJ", "chat_template.json",
        "{\"chat_template\":\"C\"}" },
      NULL,
      0,
      "J" },
    { { "tokenizer_config.json", "{\"chat_template\":\"K\"}",
        "chat_template.json", "{\"chat_template\":\"C\"}" },
      NULL,
      0,
      "K" },
    { { "tokenizer_config.json", list }, NULL, 0, "F" },
    { { "tokenizer_config.json", list }, NULL, 1, "T" },
    { { "tokenizer_config.json", tool_first }, NULL, 0, "D" },
    { { "tokenizer_config.json", tool_first }, NULL, 1, "T" },
    { { "tokenizer_config.json", tool_first }, "tool_use", 0, "T" },
    { { "chat_template.jinja", "J" }, "default", 0, "J" },
    { { "chat_template.jinja", "J" },
      "rag",
      0,
      ": there is no chat template named \"rag\"" },
    { { "additional_chat_templates/rag.jinja", "R" }, "rag", 0, "R" },
    { { "additional_chat_templates/rag.jinja", "R" }, NULL, 0, "none" },
    { { NULL }, long_name + 1, 0, ": there is no chat template named" },
    { { NULL }, long_name, 0, "\" is not the name of a chat template" },
    { { NULL }, "a/b", 0, ": \"a/b\" is not the name of a chat template" },
    { { "chat_template.json", "[]" },
      NULL,
      0,
      "/chat_template.json: must be an object" },
    { { "special_tokens_map.json", "3" },
      NULL,
      0,
      "/special_tokens_map.json: must be an object" },
    { { "chat_template.json", "{\"chat_template\":{}}" },
      NULL,
      0,
      "/chat_template.json: \"chat_template\" must be a text or a list of "
      "{name, template}" },
    { { "chat_template.json", "{\"chat_template\":[{\"name\":\"a\"}]}" },
      NULL,
      0,
      "/chat_template.json: \"template\" is missing" },
    { { "chat_template.json", "{\"chat_template\":[{\"template\":\"a\"}]}" },
      NULL,
      0,
      "/chat_template.json: \"name\" is missing" },
    { { "chat_template.jinja", "a\n{{" },
      NULL,
      0,
      "/chat_template.jinja:2: unexpected the end" },
    { { "additional_chat_templates/tool_use.jinja", "{{" },
      NULL,
      0,
      "/tool_use.jinja:1: unexpected the end" },
};

static void sources_follow_their_order_of_precedence(void **state)
{
    (void)state;
    char dir[] = "/tmp/xray-chat-XXXXXX";
    xr_err err = { 0 };
    assert_non_null(mkdtemp(dir));
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        make_model_dir(dir, cases[i].files);
        expect_template(dir, cases[i].name, cases[i].tools, cases[i].wanted);
    }
    assert_int_equal(xr_dir_remove(dir, &err), 0);
}

/* Opens a template file without, and with, the special tokens of a
 * directory. */
static void file_opens_with_and_without_special_tokens(void **state)
{
    (void)state;
    char dir[] = "/tmp/xray-chat-XXXXXX";
    char path[XR_PATH_CAP];
    static const char *const files[] = {
        "mine.jinja",
        "{{ bos_token }}|{{ eos_token }}",
        "tokenizer_config.json",
        "{\"bos_token\":\"<s>\",\"chat_template\":\"no\"}",
        "special_tokens_map.json",
        "{\"eos_token\":\"</s>\"}",
        NULL
    };
    cJSON *empty = cJSON_CreateArray();
    xm_chat_call call = { .messages = empty };
    assert_non_null(mkdtemp(dir));
    make_model_dir(dir, files);
    (void)snprintf(path, sizeof path, "%s/mine.jinja", dir);
    for (int with = 0; with < 2; with++) {
        xm_chat *chat;
        xm_chat_text text = { 0 };
        xr_err err = { 0 };
        if (xm_chat_open_file(path, with ? dir : NULL, &err, &chat) ||
            xm_chat_render(chat, &call, NULL, &err, &text))
            fail_msg("%s", err.text);
        assert_string_equal(xr_str_text(&text.text), with ? "<s>|</s>" : "|");
        xm_chat_text_free(&text);
        xm_chat_close(chat);
    }
    xm_chat *chat = NULL;
    xr_err err = { 0 };
    (void)snprintf(path, sizeof path, "%s/none.jinja", dir);
    assert_true(xm_chat_open_file(path, dir, &err, &chat) < 0);
    assert_null(chat);
    assert_non_null(strstr(err.text, "none.jinja"));
    assert_int_equal(xr_dir_remove(dir, &err), 0);
    cJSON_Delete(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(template_is_found_in_each_source),
        cmocka_unit_test(sources_follow_their_order_of_precedence),
        cmocka_unit_test(file_opens_with_and_without_special_tokens),
    };
    return cmocka_run_group_tests_name("text.chat_open", tests, NULL, NULL);
}
