/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns conversations into tokens through the chat template, and masks the
 * assistant's tokens for SFT.
 */
#include <stdlib.h>
#include <string.h>

#include "core/data/row.h"

xray_status xr_data_chat(const xr_data_section *data, const char *model_dir,
                         xr_err *err, xm_chat **out)
{
    *out = NULL;
    if (data->apply_chat_template == XR_CHAT_NEVER)
        return XRAY_OK;
    if (*data->chat_template)
        return xm_chat_open_file(data->chat_template, model_dir, err, out);
    xr_err why = { "" };
    xray_status status = xm_chat_open(model_dir, NULL, &why, out);
    if (status != XRAY_OK)
        return xr_fail(
            err, status,
            "%s ([data] apply_chat_template = never works without a template)",
            why.text);
    if (status == XRAY_OK && !*out &&
        data->apply_chat_template == XR_CHAT_ALWAYS)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the model has no chat template, which [data] "
                       "apply_chat_template = always needs; set chat_template "
                       "to a file with one",
                       model_dir);
    return status;
}

/* ---- messages of a prompt ----------------------------------------------- */

static int add_message(cJSON *list, const char *role, const char *content)
{
    cJSON *message = cJSON_CreateObject();
    if (!message || !cJSON_AddStringToObject(message, "role", role) ||
        !cJSON_AddStringToObject(message, "content", content) ||
        !cJSON_AddItemToArray(list, message)) {
        cJSON_Delete(message);
        return -1;
    }
    return 0;
}

static int has_system_message(const cJSON *messages)
{
    const cJSON *role =
        messages->child ? xr_json_get(messages->child, "role") : NULL;
    return cJSON_IsString(role) &&
           (strcmp(role->valuestring, "system") == 0 ||
            strcmp(role->valuestring, "developer") == 0);
}

cJSON *xr_data_messages(const char *system, const cJSON *messages)
{
    cJSON *list = cJSON_CreateArray();
    int bad = !list;
    if (!bad && *system && !has_system_message(messages))
        bad = add_message(list, "system", system);
    cJSON *message;
    cJSON_ArrayForEach(message, messages)
    {
        bad = bad || !cJSON_AddItemReferenceToArray(list, message);
    }
    if (!bad)
        return list;
    cJSON_Delete(list);
    return NULL;
}

static cJSON *wrap_text(const xr_reader *r, const char *text)
{
    cJSON *list = cJSON_CreateArray();
    const char *system = r->data->system_prompt;
    int bad = !list || (*system && add_message(list, "system", system)) ||
              add_message(list, "user", text);
    if (!bad)
        return list;
    cJSON_Delete(list);
    return NULL;
}

static xray_status check_messages(xr_reader *r, const cJSON *messages,
                                  const char *key)
{
    const cJSON *message;
    int bad = !cJSON_IsArray(messages) || !messages->child;
    if (!bad)
        cJSON_ArrayForEach(message, messages)
        {
            bad = bad || !cJSON_IsObject(message) ||
                  !cJSON_IsString(xr_json_get(message, "role"));
        }
    if (!bad)
        return XRAY_OK;
    return xr_fail(r->err, XRAY_E_CONFIG,
                   "%s: '%s' must be a list of messages, each an object with a "
                   "'role'",
                   r->where, key);
}

xray_status xr_reader_messages(xr_reader *r, const cJSON *json, cJSON **out)
{
    const cJSON *prompt = xr_json_get(json, r->data->prompt_key);
    *out = NULL;
    if (!r->want->chat)
        return XRAY_OK;
    if (cJSON_IsArray(prompt)) {
        xray_status status = check_messages(r, prompt, r->data->prompt_key);
        if (status != XRAY_OK)
            return status;
        *out = xr_data_messages(r->data->system_prompt, prompt);
        return *out ? XRAY_OK : xr_reader_no_memory(r);
    }
    if (r->data->apply_chat_template != XR_CHAT_ALWAYS)
        return XRAY_OK;
    xr_alias alias = { "prompt", r->data->prompt_key };
    xr_str_clear(&r->text);
    xray_status status = xr_template_fill(&r->prompt_template, alias, json,
                                          r->where, r->err, &r->text);
    if (status != XRAY_OK)
        return status;
    *out = wrap_text(r, xr_str_text(&r->text));
    return *out ? XRAY_OK : xr_reader_no_memory(r);
}

xray_status xr_reader_render(xr_reader *r, const cJSON *json,
                             const cJSON *messages, int add_generation_prompt)
{
    xm_chat_call call = { .messages = messages,
                          .tools = xr_json_get(json, r->data->tools_key),
                          .documents = xr_json_get(json, "documents"),
                          .variables = r->kwargs,
                          .add_generation_prompt = add_generation_prompt,
                          .now = r->today };
    return xm_chat_render(r->want->chat, &call, r->where, r->err, &r->chat);
}

/* ---- SFT on complete conversations -----------------------------------------
 */

/* Masks the tokens that overlap bytes [from, to). */
static void mask_bytes(xr_reader *r, size_t from, size_t to)
{
    for (size_t i = 0; i < r->ids.count; i++) {
        const xm_token_span *span = &r->spans.data[i];
        if (span->from < to && span->to > from)
            r->mask[i] = 1;
    }
}

static xray_status encode_conversation(xr_reader *r)
{
    xr_err err = { "" };
    r->ids.count = 0;
    r->spans.count = 0;
    xray_status status = xm_tokenizer_encode_spans(
        r->want->tokenizer, xr_str_text(&r->chat.text), r->chat.text.size, 0,
        &r->ids, &r->spans, &err);
    if (status != XRAY_OK)
        return xr_fail(r->err, status, "%s: %s", r->where, err.text);
    if (r->ids.count > r->mask_cap) {
        free(r->mask);
        r->mask_cap = r->ids.count * 2;
        r->mask = malloc(r->mask_cap);
        if (!r->mask) {
            r->mask_cap = 0;
            return xr_reader_no_memory(r);
        }
    }
    if (r->ids.count)
        memset(r->mask, 0, r->ids.count);
    r->masked = 1;
    return XRAY_OK;
}

/* Renders the first `count` messages into *out. */
static xray_status render_prefix(xr_reader *r, const cJSON *json,
                                 const cJSON *messages, int count,
                                 int add_generation_prompt, xr_str *out)
{
    cJSON *some = cJSON_CreateArray();
    int bad = !some;
    const cJSON *message = messages->child;
    for (int i = 0; i < count && message && !bad; i++) {
        cJSON *borrowed = cJSON_CreateObjectReference(message->child);
        bad = !borrowed || !cJSON_AddItemToArray(some, borrowed);
        message = message->next;
    }
    xray_status status =
        bad ? xr_reader_no_memory(r)
            : xr_reader_render(r, json, some, add_generation_prompt);
    cJSON_Delete(some);
    xr_str_clear(out);
    xr_str_append(out, xr_str_text(&r->chat.text), r->chat.text.size);
    if (status == XRAY_OK && out->failed)
        status = xr_reader_no_memory(r);
    return status;
}

static int begins_with(const xr_str *text, const xr_str *start)
{
    return text->size >= start->size &&
           (!start->size || memcmp(text->data, start->data, start->size) == 0);
}

typedef struct answer {
    size_t from;
    size_t to;
} answer;

/* Finds the text that assistant message `i` adds to the messages before it. */
static xray_status find_answer(xr_reader *r, const cJSON *json,
                               const cJSON *messages, int i, xr_str texts[2],
                               answer *out)
{
    xray_status status = render_prefix(r, json, messages, i, 1, &texts[0]);
    if (status == XRAY_OK)
        status = render_prefix(r, json, messages, i + 1, 0, &texts[1]);
    if (status != XRAY_OK)
        return status;
    if (!begins_with(&texts[1], &texts[0]))
        return xr_fail(
            r->err, XRAY_E_CONFIG,
            "%s: the chat template does not put message %d after the "
            "generation prompt, so the assistant's tokens cannot be found; use "
            "a template with generation blocks ([data] chat_template)",
            r->where, i + 1);
    *out = (answer){ texts[0].size, texts[1].size };
    return XRAY_OK;
}

/* Masks an answer up to its last EOS: the line break that templates add after
 * it is never sampled. */
static void mask_answer(xr_reader *r, answer range)
{
    int32_t eos = xm_tokenizer_eos(r->want->tokenizer);
    size_t last = 0;
    int ended = 0;
    for (size_t i = 0; i < r->ids.count; i++) {
        const xm_token_span *span = &r->spans.data[i];
        if (span->from >= range.from && span->to <= range.to &&
            r->ids.data[i] == eos) {
            last = span->to;
            ended = 1;
        }
    }
    mask_bytes(r, range.from, ended ? last : range.to);
}

/* Masks answers, from message `first` on, of templates without generation
 * blocks: rendering the
 * conversation once per answer shows its range, as long as a longer
 * conversation begins with the text of a shorter one. */
static xray_status mask_answers(xr_reader *r, const cJSON *json,
                                const cJSON *messages, int first)
{
    xr_str all_text = { 0 };
    xr_str texts[2] = { { 0 }, { 0 } };
    xr_str_append(&all_text, xr_str_text(&r->chat.text), r->chat.text.size);
    xray_status status =
        all_text.failed ? xr_reader_no_memory(r) : encode_conversation(r);
    const cJSON *message = messages->child;
    for (int i = 0; message && status == XRAY_OK;
         i++, message = message->next) {
        const cJSON *role = xr_json_get(message, "role");
        answer range = { 0, 0 };
        if (i < first || strcmp(role->valuestring, "assistant") != 0)
            continue;
        status = find_answer(r, json, messages, i, texts, &range);
        if (status == XRAY_OK && !begins_with(&all_text, &texts[1]))
            status = xr_fail(r->err, XRAY_E_CONFIG,
                             "%s: the chat template changes message %d when "
                             "others follow, so the assistant's tokens cannot "
                             "be found; use a template with generation blocks "
                             "([data] chat_template)",
                             r->where, i + 1);
        if (status == XRAY_OK)
            mask_answer(r, range);
    }
    xr_str_free(&all_text);
    xr_str_free(&texts[0]);
    xr_str_free(&texts[1]);
    return status;
}

/* Masks the blocks after the first `given`. */
static xray_status mask_generation_blocks(xr_reader *r, size_t given)
{
    xray_status status = encode_conversation(r);
    if (status != XRAY_OK)
        return status;
    for (size_t i = given; i < r->chat.span_count; i++)
        mask_bytes(r, r->chat.spans[i].from, r->chat.spans[i].to);
    return XRAY_OK;
}

/* Tokenizes a list of messages, whose first `given` ones are not learned. */
static xray_status read_conversation(xr_reader *r, const cJSON *json,
                                     const cJSON *list, int given, xr_row *row)
{
    xr_str prompt = { 0 };
    xray_status status =
        given ? render_prefix(r, json, list, given, 1, &prompt) : XRAY_OK;
    size_t blocks = given ? r->chat.span_count : 0;
    if (status == XRAY_OK)
        status = xr_reader_render(r, json, list, 0);
    if (status == XRAY_OK) {
        const xr_str *text = given ? &prompt : &r->chat.text;
        row->prompt = xr_arena_text(r->arena, xr_str_text(text), text->size);
        status = !row->prompt             ? xr_reader_no_memory(r)
                 : r->chat.has_generation ? mask_generation_blocks(r, blocks)
                                          : mask_answers(r, json, list, given);
    }
    xr_str_free(&prompt);
    row->prompt_count = 0;
    if (status == XRAY_OK)
        while (row->prompt_count < r->ids.count && !r->mask[row->prompt_count])
            row->prompt_count++;
    return status;
}

xray_status xr_reader_conversation(xr_reader *r, const cJSON *json,
                                   const cJSON *messages, xr_row *row)
{
    const char *key = r->data->messages_key;
    xray_status status = check_messages(r, messages, key);
    if (status != XRAY_OK)
        return status;
    if (!r->want->chat)
        return xr_fail(r->err, XRAY_E_CONFIG,
                       "%s: '%s' is a conversation, but the model has no chat "
                       "template; set [data] chat_template to a file with one",
                       r->where, key);
    cJSON *list = xr_data_messages(r->data->system_prompt, messages);
    if (!list)
        return xr_reader_no_memory(r);
    status = read_conversation(r, json, list, 0, row);
    cJSON_Delete(list);
    return status;
}

xray_status xr_reader_completion(xr_reader *r, const cJSON *json,
                                 const cJSON *completion, xr_row *row)
{
    cJSON *list = NULL;
    xray_status status = check_messages(r, completion, r->response_key);
    if (status == XRAY_OK)
        status = xr_reader_messages(r, json, &list);
    int given = status == XRAY_OK ? cJSON_GetArraySize(list) : 0;
    const cJSON *message;
    if (status == XRAY_OK)
        cJSON_ArrayForEach(message, completion)
        {
            cJSON *borrowed = cJSON_CreateObjectReference(message->child);
            if (borrowed && cJSON_AddItemToArray(list, borrowed))
                continue;
            status = xr_reader_no_memory(r);
            break;
        }
    if (status == XRAY_OK)
        status = read_conversation(r, json, list, given, row);
    cJSON_Delete(list);
    return status;
}
