/* SPDX-License-Identifier: Apache-2.0
 *
 * For conversations with Qwen 2.5 and Qwen 3, the ids and the mask of the
 * assistant's tokens are those of transformers.
 */
#include "core/base/file.h"
#include "tests/scratch.h"
#include "tests/text/chat_checks.h"

/* The tokens that these tokenizers have beyond the file of Qwen 2, from id
 * 151646 on. */
static const struct {
    const char *content;
    int special;
} added[] = {
    { "<|object_ref_start|>", 1 },
    { "<|object_ref_end|>", 1 },
    { "<|box_start|>", 1 },
    { "<|box_end|>", 1 },
    { "<|quad_start|>", 1 },
    { "<|quad_end|>", 1 },
    { "<|vision_start|>", 1 },
    { "<|vision_end|>", 1 },
    { "<|vision_pad|>", 1 },
    { "<|image_pad|>", 1 },
    { "<|video_pad|>", 1 },
    { "<tool_call>", 0 },
    { "</tool_call>", 0 },
    { "<|fim_prefix|>", 0 },
    { "<|fim_middle|>", 0 },
    { "<|fim_suffix|>", 0 },
    { "<|fim_pad|>", 0 },
    { "<|repo_name|>", 0 },
    { "<|file_sep|>", 0 },
    { "<tool_response>", 0 },
    { "</tool_response>", 0 },
    { "<think>", 0 },
    { "</think>", 0 },
};
#define QWEN25 19 /* Qwen 3 has all of them */

typedef struct model {
    xm_tokenizer *qwen25;
    xm_tokenizer *qwen3;
    cJSON *templates;
    cJSON *contexts;
} model;

static cJSON *read_json(const char *name)
{
    char path[512];
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_file(test_data(name, path, sizeof path), &err, &json) !=
        XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

static xm_tokenizer *open_with_added(size_t count)
{
    cJSON *json = read_json("tokenizers/qwen2/tokenizer.json");
    cJSON *list = cJSON_GetObjectItem(json, "added_tokens");
    for (size_t i = 0; i < count; i++) {
        cJSON *token = cJSON_Duplicate(list->child, 1);
        cJSON_ReplaceItemInObject(token, "id",
                                  cJSON_CreateNumber(151646 + (double)i));
        cJSON_ReplaceItemInObject(token, "content",
                                  cJSON_CreateString(added[i].content));
        cJSON_ReplaceItemInObject(token, "special",
                                  cJSON_CreateBool(added[i].special));
        assert_true(cJSON_AddItemToArray(list, token));
    }
    char *text = cJSON_PrintUnformatted(json);
    assert_non_null(text);
    (void)scratch_write("tokenizer.json", text);
    cJSON_free(text);
    cJSON_Delete(json);
    xm_tokenizer *tok = NULL;
    xr_err err = { "" };
    if (xm_tokenizer_open(scratch_path(""), &err, &tok) != XRAY_OK)
        fail_msg("%s", err.text);
    return tok;
}

static void render_row(const model *m, const cJSON *row, xm_chat_text *out)
{
    const char *name = cJSON_GetObjectItem(row, "template")->valuestring;
    const char *context = cJSON_GetObjectItem(row, "context")->valuestring;
    const char *source = NULL;
    const cJSON *item;
    cJSON_ArrayForEach(item, m->templates)
    {
        if (strcmp(item->string, name) == 0)
            source = item->valuestring;
    }
    assert_non_null(source);
    const cJSON *given = cJSON_GetObjectItem(m->contexts, context);
    assert_non_null(given);
    xm_chat *chat = NULL;
    xr_err err = { "" };
    xm_chat_call call = {
        .messages = cJSON_GetObjectItem(given, "messages"),
        .tools = cJSON_GetObjectItem(given, "tools"),
        .variables = given,
        .add_generation_prompt =
            cJSON_IsTrue(cJSON_GetObjectItem(row, "add_generation_prompt")),
    };
    if (xm_chat_compile(source, strlen(source), name, &err, &chat) != XRAY_OK ||
        xm_chat_render(chat, &call, context, &err, out) != XRAY_OK)
        fail_msg("%s", err.text);
    xm_chat_close(chat);
}

static void check_row(const model *m, const cJSON *row, size_t number)
{
    xm_chat_text text = { .spans = NULL };
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    xr_err err = { "" };
    const char *kind = cJSON_GetObjectItem(row, "tokenizer")->valuestring;
    const xm_tokenizer *tok = strcmp(kind, "qwen3") == 0 ? m->qwen3 : m->qwen25;
    render_row(m, row, &text);
    assert_string_equal(xr_str_text(&text.text),
                        cJSON_GetObjectItem(row, "text")->valuestring);
    assert_int_equal(xm_tokenizer_encode_spans(tok, xr_str_text(&text.text),
                                               text.text.size, 0, &ids, &spans,
                                               &err),
                     XRAY_OK);
    const cJSON *want = cJSON_GetObjectItem(row, "ids");
    const cJSON *mask = cJSON_GetObjectItem(row, "assistant_mask");
    assert_int_equal(ids.count, cJSON_GetArraySize(want));
    assert_int_equal(spans.count, ids.count);
    const cJSON *id = want->child;
    const cJSON *said = mask ? mask->child : NULL;
    for (size_t i = 0; i < ids.count; i++, id = id->next) {
        if (ids.data[i] != id->valueint)
            fail_msg("row %zu, token %zu: %d, not %d", number, i, ids.data[i],
                     id->valueint);
        if (mask && chat_is_assistant(&text, &spans.data[i]) != said->valueint)
            fail_msg("row %zu, token %zu: the mask is %d", number, i,
                     said->valueint);
        said = mask ? said->next : NULL;
    }
    xm_ids_free(&ids);
    xm_token_spans_free(&spans);
    xm_chat_text_free(&text);
}

static void qwen_ids_and_masks_match_transformers(void **state)
{
    (void)state;
    char path[512];
    char *text;
    size_t size;
    size_t rows = 0;
    xr_err err = { "" };
    model m = { .qwen25 = open_with_added(QWEN25),
                .qwen3 = open_with_added(sizeof added / sizeof added[0]),
                .templates = read_json("chat_templates/templates.json"),
                .contexts = read_json("chat_templates/contexts.json") };
    (void)test_data("chat_templates/qwen_token_goldens.jsonl", path,
                    sizeof path);
    assert_int_equal(xr_file_read(path, SIZE_MAX / 4, &err, &text, &size),
                     XRAY_OK);
    for (char *line = text; *line; rows++) {
        char *end = strchr(line, '\n');
        assert_non_null(end);
        *end = '\0';
        cJSON *row = cJSON_Parse(line);
        assert_non_null(row);
        check_row(&m, row, rows + 1);
        cJSON_Delete(row);
        line = end + 1;
    }
    assert_int_equal(rows, 117);
    free(text);
    cJSON_Delete(m.templates);
    cJSON_Delete(m.contexts);
    xm_tokenizer_close(m.qwen25);
    xm_tokenizer_close(m.qwen3);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        qwen_ids_and_masks_match_transformers) };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
