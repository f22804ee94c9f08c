/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/text/chat_rows.h"

#include <pthread.h>
#include <time.h>

#include "tests/testing.h"

/* ---- one rendering ------------------------------------------------------- */

xray_status chat_render(const char *source, size_t size, const cJSON *context,
                        int go_on, xr_err *err, xm_chat_text *out)
{
    xm_chat *chat = NULL;
    xm_chat_call call = { .messages = xr_json_get(context, "messages"),
                          .tools = xr_json_get(context, "tools"),
                          .variables = context,
                          .continue_final_message = go_on };
    xray_status status = xm_chat_compile(source, size, "mine", err, &chat);
    if (!status)
        status = xm_chat_render(chat, &call, "rows.jsonl:7", err, out);
    xm_chat_close(chat);
    return status;
}

void chat_expect(const char *source, const char *json, int go_on,
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

/* The characters of bytes [0, at). */
static size_t chars(const char *text, size_t at)
{
    size_t count = 0;
    for (size_t i = 0; i < at; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

void chat_expect_spans(const cJSON *wanted, const xm_chat_text *text)
{
    assert_int_equal(text->span_count, cJSON_GetArraySize(wanted));
    for (size_t i = 0; i < text->span_count; i++) {
        const cJSON *span = cJSON_GetArrayItem(wanted, (int)i);
        assert_int_equal(chars(text->text.data, text->spans[i].from),
                         cJSON_GetArrayItem(span, 0)->valueint);
        assert_int_equal(chars(text->text.data, text->spans[i].to),
                         cJSON_GetArrayItem(span, 1)->valueint);
    }
}

int chat_is_said(const xm_chat_text *text, const xm_token_span *span)
{
    for (size_t k = 0; k < text->span_count; k++)
        if (span->from < text->spans[k].to && span->to > text->spans[k].from)
            return 1;
    return 0;
}

/* ---- one template in several threads ------------------------------------- */

struct shared {
    const xm_chat *chat;
    const cJSON *context;
    const char *wanted;
    int wrong;
};

static void *render_often(void *arg)
{
    struct shared *s = arg;
    xm_chat_text text = { 0 };
    for (int i = 0; i < 50; i++) {
        xm_chat_call call = { .messages = xr_json_get(s->context, "messages"),
                              .tools = xr_json_get(s->context, "tools") };
        s->wrong |= xm_chat_render(s->chat, &call, NULL, NULL, &text) != 0 ||
                    strcmp(text.text.data, s->wanted) != 0;
    }
    xm_chat_text_free(&text);
    return NULL;
}

void chat_threads(const char *source, const cJSON *context)
{
    struct shared shared = { .context = context };
    xr_err err = { 0 };
    xm_chat *chat = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xm_chat_compile(source, strlen(source), "t", &err, &chat),
                     0);
    assert_int_equal(
        chat_render(source, strlen(source), shared.context, 0, &err, &text), 0);
    shared.chat = chat;
    shared.wanted = text.text.data;
    struct shared each[4];
    pthread_t ids[4];
    for (int i = 0; i < 4; i++) {
        each[i] = shared;
        assert_int_equal(pthread_create(&ids[i], NULL, render_often, &each[i]),
                         0);
    }
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pthread_join(ids[i], NULL), 0);
        assert_false(each[i].wrong);
    }
    xm_chat_text_free(&text);
    xm_chat_close(chat);
}

/* ---- templates with edits ------------------------------------------------ */

static uint32_t draw(uint64_t *at, uint32_t below)
{
    *at = *at * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*at >> 33) % below);
}

/* Pieces that turn one construct into another. */
static const char *const pieces[] = { "{%",
                                      "%}",
                                      "{{",
                                      "}}",
                                      "{#",
                                      "#}",
                                      "-",
                                      "+",
                                      "(",
                                      ")",
                                      "[",
                                      "]",
                                      "{",
                                      "}",
                                      "|",
                                      ".",
                                      "~",
                                      "'",
                                      "\"",
                                      "\\",
                                      "loop",
                                      " in ",
                                      " is ",
                                      " not ",
                                      " if ",
                                      "for",
                                      "endfor",
                                      "set ",
                                      "macro ",
                                      "0",
                                      "-1",
                                      "999999999",
                                      "**",
                                      "//",
                                      "%",
                                      "*",
                                      "messages",
                                      "tojson",
                                      "range(99999)",
                                      "namespace",
                                      "caller()",
                                      ":",
                                      "loop(messages)",
                                      "|list",
                                      "|map('upper')",
                                      "|join",
                                      ".split(",
                                      "::-1",
                                      "\xC3\xA9",
                                      "\n",
                                      "\0x" };

static void mutate(xr_str *source, uint64_t *at)
{
    for (uint32_t n = 1 + draw(at, 4); n && source->size; n--) {
        uint32_t from = draw(at, (uint32_t)source->size);
        const char *piece = pieces[draw(at, sizeof pieces / sizeof pieces[0])];
        size_t size = strlen(piece);
        switch (draw(at, 5)) {
        case 0:
            source->data[from] = (char)draw(at, 256);
            break;
        case 1:
            source->data[from] = (char)(32 + draw(at, 95));
            break;
        case 2: { /* cut a stretch */
            size_t cut = 1 + draw(at, 12);
            cut = cut < source->size - from ? cut : source->size - from;
            memmove(source->data + from, source->data + from + cut,
                    source->size - from - cut);
            source->size -= cut;
            break;
        }
        case 3: { /* copy a stretch to the end of it */
            size_t copy = 1 + draw(at, 60);
            copy = copy < source->size - from ? copy : source->size - from;
            char held[64];
            memcpy(held, source->data + from, copy);
            xr_str_append(source, held, copy);
            break;
        }
        default: /* put a piece over what is there */
            size = size < source->size - from ? size : source->size - from;
            memcpy(source->data + from, piece, size);
        }
    }
}

void chat_mutations(const cJSON *templates, const cJSON *contexts)
{
    uint64_t at = 20250729;
    int rendered_well = 0;
    const char *rounds = getenv("XRAY_FUZZ_ROUNDS");
    int64_t count = 4000;
    if (rounds)
        (void)xr_parse_int(rounds, &count);
    for (int64_t i = 0; i < count; i++) {
        const cJSON *base = cJSON_GetArrayItem(
            templates, (int)i % cJSON_GetArraySize(templates));
        const cJSON *context = cJSON_GetArrayItem(
            contexts, (int)draw(&at, (uint32_t)cJSON_GetArraySize(contexts)));
        xr_str source = { 0 };
        xr_err err = { 0 };
        xm_chat_text text = { 0 };
        xr_str_puts(&source, base->valuestring);
        mutate(&source, &at);
        clock_t begin = clock();
        xray_status status =
            chat_render(xr_str_text(&source), source.size, context,
                        (int)draw(&at, 2), &err, &text);
        double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
        if (seconds > 30)
            fail_msg("%.1f s: %s", seconds, source.data);
        assert_true(status ? err.text[0] != 0 : err.text[0] == 0);
        rendered_well += !status;
        xm_chat_text_free(&text);
        xr_str_free(&source);
    }
    assert_true(rendered_well > count / 20);
}
