/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiles chat templates and renders messages with them.
 */
#include "model/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "model/chat/chat_internal.h"

#define CONTINUE_TAG "CONTINUE_FINAL_MESSAGE_TAG "

static xray_status fail_with_line(xr_err *err, const xm_jinterp *interp,
                                  const char *where, const char *tmpl)
{
    const char *text = interp->text;
    xray_status status =
        strcmp(text, "out of memory") == 0 ? XRAY_E_NOMEM : XRAY_E_CONFIG;
    if (where && interp->line)
        return xr_fail(err, status, "%s: %s:%u: %s", where, tmpl, interp->line,
                       text);
    if (where)
        return xr_fail(err, status, "%s: %s: %s", where, tmpl, text);
    if (interp->line)
        return xr_fail(err, status, "%s:%u: %s", tmpl, interp->line, text);
    return xr_fail(err, status, "%s: %s", tmpl, text);
}

static int is_valid_utf8(const char *text, size_t size)
{
    const char *end = text + size;
    for (const char *at = text; at < end;) {
        uint32_t code;
        int step = xr_utf8_decode(at, end, &code);
        if (!step)
            return 0;
        at += step;
    }
    return 1;
}

static void free_template(struct xm_chat_named *named)
{
    xm_jarena_free(&named->tmpl.arena);
    free(named->tmpl.where);
    free(named->tmpl.source);
    free(named->name);
}

void xm_chat_close(xm_chat *chat)
{
    if (!chat)
        return;
    for (size_t i = 0; i < chat->count; i++)
        free_template(&chat->named[i]);
    free(chat->named);
    cJSON_Delete(chat->special);
    free(chat);
}

static xray_status compile_template(const char *source, size_t size,
                                    const char *where, xr_err *err,
                                    xm_jtemplate *tmpl)
{
    if (size > XM_CHAT_MAX_SOURCE)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the chat template has more than %zu bytes", where,
                       XM_CHAT_MAX_SOURCE);
    if (!is_valid_utf8(source, size))
        return xr_fail(err, XRAY_E_CONFIG, "%s: the chat template is not UTF-8",
                       where);
    tmpl->arena.limit = XM_CHAT_MAX_MEMORY;
    tmpl->where = xr_strdup(where);
    tmpl->source = xr_strndup(source, size);
    if (!tmpl->where || !tmpl->source)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    tmpl->source_size = size;
    xm_jinterp interp = { .arena = &tmpl->arena, .line = 1 };
    if (xm_jcompile(tmpl, &interp))
        return fail_with_line(err, &interp, NULL, where);
    return XRAY_OK;
}

xray_status xm_chat_add(xm_chat *chat, const char *name, const char *source,
                        size_t size, const char *where, xr_err *err)
{
    struct xm_chat_named *more =
        realloc(chat->named, (chat->count + 1) * sizeof *more);
    if (!more)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    chat->named = more;
    struct xm_chat_named *named = &more[chat->count++];
    *named = (struct xm_chat_named){ 0 };
    named->name = xr_strdup(name);
    if (!named->name)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return compile_template(source, size, where, err, &named->tmpl);
}

xray_status xm_chat_compile(const char *source, size_t size, const char *where,
                            xr_err *err, xm_chat **out)
{
    xm_chat *chat = xr_calloc(1, sizeof *chat);
    if (!chat)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    xray_status status = xm_chat_add(chat, "default", source, size, where, err);
    if (status) {
        xm_chat_close(chat);
        return status;
    }
    *out = chat;
    return XRAY_OK;
}

void xm_chat_text_free(xm_chat_text *text)
{
    xr_str_free(&text->text);
    free(text->spans);
    *text = (xm_chat_text){ 0 };
}

static const xm_jtemplate *choose_template(const xm_chat *chat,
                                           const xm_chat_call *call)
{
    int tools = call->tools && !cJSON_IsNull(call->tools);
    for (size_t i = 0; tools && i < chat->count; i++)
        if (!strcmp(chat->named[i].name, "tool_use"))
            return &chat->named[i].tmpl;
    for (size_t i = 0; i < chat->count; i++)
        if (!strcmp(chat->named[i].name, "default"))
            return &chat->named[i].tmpl;
    return &chat->named[0].tmpl;
}

/* Copies a message's reasoning text, which has several names in data, to the
 * keys reasoning_content and thinking, as transformers does. */
static int alias_reasoning(xm_jinterp *interp, xm_jvalue *message)
{
    static const char *const names[] = { "reasoning_content", "thinking",
                                         "reasoning" };
    const xm_jdict *dict = message->u.dict;
    const xm_jentry *found = NULL;
    for (size_t i = 0; !found && i < sizeof names / sizeof names[0]; i++) {
        found = xm_jdict_find(dict, names[i]);
        if (found && found->value.kind == XM_J_NONE)
            found = NULL;
    }
    if (!found)
        return 0;
    xm_jdict *made;
    xm_jvalue thinking;
    xm_jvalue content;
    if (xm_jdict_new(interp, dict->count + 2, &made) ||
        xm_jstr_borrow(interp, "thinking", 8, 8, &thinking) ||
        xm_jstr_borrow(interp, "reasoning_content", 17, 17, &content) ||
        xm_jdict_put(interp, made, thinking, found->value))
        return -1;
    for (size_t i = 0; i < dict->count; i++)
        if (xm_jdict_put(interp, made, dict->at[i].key, dict->at[i].value))
            return -1;
    message->u.dict = made;
    return xm_jdict_put(interp, made, content, found->value);
}

static int read_messages(xm_jinterp *interp, const cJSON *json, xm_jvalue *out)
{
    if (!cJSON_IsArray(json))
        return xm_jfail(interp, "messages must be an array");
    if (xm_jfrom_json(interp, json, out))
        return -1;
    for (size_t i = 0; i < out->u.list->count; i++) {
        if (out->u.list->at[i].kind != XM_J_DICT)
            return xm_jfail(interp, "message %zu must be an object, not %s",
                            i + 1, xm_jtype_name(out->u.list->at[i]));
        if (alias_reasoning(interp, &out->u.list->at[i]))
            return -1;
    }
    return 0;
}

/* Returns the text to continue: the content, or the text of its last part that
 * has one. NULL if there is none. */
static xm_jvalue *find_last_text(xm_jvalue *message)
{
    xm_jentry *entry = xm_jdict_find(message->u.dict, "content");
    if (!entry || entry->value.kind == XM_J_STR)
        return entry ? &entry->value : NULL;
    if (entry->value.kind != XM_J_LIST)
        return NULL;
    const xm_jlist *parts = entry->value.u.list;
    for (size_t i = parts->count; i-- > 0;) {
        if (parts->at[i].kind != XM_J_DICT)
            continue;
        xm_jentry *text = xm_jdict_find(parts->at[i].u.dict, "text");
        if (text)
            return text->value.kind == XM_J_STR ? &text->value : NULL;
    }
    return NULL;
}

/* Appends a tag to the text of the last message, so that its end can be found
 * in the rendered text. */
static int tag_last_message(xm_jinterp *interp, const xm_jlist *messages,
                            xm_jvalue *out)
{
    xm_jvalue *text = messages->count
                          ? find_last_text(&messages->at[messages->count - 1])
                          : NULL;
    if (!text)
        return xm_jfail(interp,
                        "continue_final_message: the last message has no "
                        "text content to continue");
    *out = *text;
    xr_str tagged = { 0 };
    xr_str_append(&tagged, text->u.str->text, text->u.str->size);
    xr_str_puts(&tagged, CONTINUE_TAG);
    return xm_jstr_take(interp, &tagged, text);
}

/* Cuts the rendered text after the last message, at the tag. */
static int cut_after_tag(xm_jinterp *interp, xm_jvalue message,
                         xm_chat_text *out)
{
    static const char tag[] = CONTINUE_TAG;
    const xm_jstr bare = { tag, sizeof tag - 2, sizeof tag - 2 };
    size_t at;
    size_t found;
    xr_str *text = &out->text;
    if (xm_jstrip_chars(interp, message, NULL, XM_J_LEFT | XM_J_RIGHT,
                        &message) ||
        xm_jfind_last(interp, xr_str_text(text), text->size, &bare, &at) ||
        xm_jfind_first(interp, xr_str_text(text), text->size, message.u.str,
                       &found))
        return -1;
    if (at == SIZE_MAX || found == SIZE_MAX) {
        interp->line = 0;
        return xm_jfail(interp, "continue_final_message: the template does not "
                                "write the last message unchanged");
    }
    int has_space =
        text->size - at > bare.size && text->data[at + bare.size] == ' ';
    if (!has_space) {
        xm_jvalue front;
        if (xm_jstr_borrow(interp, text->data, at,
                           xm_jcount_chars(text->data, at), &front) ||
            xm_jstrip_chars(interp, front, NULL, XM_J_RIGHT, &front))
            return -1;
        at = front.u.str->size;
    }
    text->size = at;
    text->data[at] = 0;
    size_t kept = 0;
    for (size_t i = 0; i < out->span_count; i++) {
        xm_chat_span span = out->spans[i];
        span.to = span.to < at ? span.to : at;
        if (span.from < span.to)
            out->spans[kept++] = span;
    }
    out->span_count = kept;
    return 0;
}

static int look_up_variable(xm_jinterp *interp, const xm_chat *chat,
                            const xm_chat_call *call, const xm_jstr *name,
                            xm_jvalue *out)
{
    const cJSON *found = NULL;
    *out = xm_jnone();
    if (!strcmp(name->text, "add_generation_prompt")) {
        *out = xm_jbool(call->add_generation_prompt);
        return 0;
    }
    if (!strcmp(name->text, "tools"))
        return call->tools ? xm_jfrom_json(interp, call->tools, out) : 0;
    if (!strcmp(name->text, "documents"))
        return call->documents ? xm_jfrom_json(interp, call->documents, out)
                               : 0;
    if (call->variables)
        found = cJSON_GetObjectItemCaseSensitive(call->variables, name->text);
    if (!found && chat->special)
        found = cJSON_GetObjectItemCaseSensitive(chat->special, name->text);
    if (found)
        return xm_jfrom_json(interp, found, out);
    *out = xm_jfind_function(name);
    return 0;
}

static int render_template(xm_jinterp *interp, const xm_chat *chat,
                           const xm_chat_call *call, xm_chat_text *out)
{
    const xm_jtemplate *tmpl = interp->tmpl;
    xm_jvalue messages;
    xm_jvalue last = xm_jnone();
    interp->globals =
        xm_jalloc(interp, tmpl->name_count, sizeof *interp->globals);
    if (!interp->globals || read_messages(interp, call->messages, &messages))
        return -1;
    if (call->continue_final_message) {
        if (call->add_generation_prompt)
            return xm_jfail(interp,
                            "continue_final_message cannot be combined with "
                            "add_generation_prompt");
        if (tag_last_message(interp, messages.u.list, &last))
            return -1;
    }
    for (size_t i = 0; i < tmpl->name_count; i++) {
        if (!strcmp(tmpl->names[i]->text, "messages"))
            interp->globals[i] = messages;
        else if (look_up_variable(interp, chat, call, tmpl->names[i],
                                  &interp->globals[i]))
            return -1;
    }
    if (xm_jexec(interp, tmpl->body) < 0)
        return -1;
    return call->continue_final_message ? cut_after_tag(interp, last, out) : 0;
}

xray_status xm_chat_render(const xm_chat *chat, const xm_chat_call *call,
                           const char *where, xr_err *err, xm_chat_text *out)
{
    const xm_jtemplate *tmpl = choose_template(chat, call);
    xm_jarena arena = { .limit = XM_CHAT_MAX_MEMORY };
    xm_jinterp interp = {
        .arena = &arena, .tmpl = tmpl, .out = out, .now = call->now
    };
    xr_str_clear(&out->text);
    out->span_count = 0;
    out->has_generation = tmpl->has_generation;
    xray_status status = XRAY_OK;
    if (render_template(&interp, chat, call, out)) {
        status = fail_with_line(err, &interp, where, tmpl->where);
        xr_str_clear(&out->text);
        out->span_count = 0;
    }
    xm_jarena_free(&arena);
    return status;
}
