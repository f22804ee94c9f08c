/* SPDX-License-Identifier: Apache-2.0
 *
 * Renders chat templates, also in threads and after random edits, and checks
 * texts and spans.
 */
#include "tests/text/chat_checks.h"

#include <pthread.h>
#include <time.h>

#include "tests/testing.h"

/* ---- one rendering ------------------------------------------------------- */

xray_status chat_render(const char *source, size_t size, const cJSON *context,
                        int continue_last, xr_err *err, xm_chat_text *out)
{
    xm_chat *chat = NULL;
    xm_chat_call call = { .messages = xr_json_get(context, "messages"),
                          .tools = xr_json_get(context, "tools"),
                          .variables = context,
                          .continue_final_message = continue_last };
    xray_status status = xm_chat_compile(source, size, "mine", err, &chat);
    if (!status)
        status = xm_chat_render(chat, &call, "rows.jsonl:7", err, out);
    xm_chat_close(chat);
    return status;
}

void chat_expect(const char *source, const char *json, int continue_last,
                 const char *wanted)
{
    xr_err err = { 0 };
    cJSON *context = NULL;
    xm_chat_text text = { 0 };
    assert_int_equal(xr_json_parse(json, strlen(json), "test", &err, &context),
                     0);
    if (chat_render(source, strlen(source), context, continue_last, &err,
                    &text))
        assert_string_equal(err.text, wanted);
    else
        assert_string_equal(xr_str_text(&text.text), wanted);
    xm_chat_text_free(&text);
    cJSON_Delete(context);
}

/* Returns the number of characters in bytes [0, at). */
static size_t count_chars(const char *text, size_t at)
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
        assert_int_equal(count_chars(text->text.data, text->spans[i].from),
                         cJSON_GetArrayItem(span, 0)->valueint);
        assert_int_equal(count_chars(text->text.data, text->spans[i].to),
                         cJSON_GetArrayItem(span, 1)->valueint);
    }
}

int chat_is_assistant(const xm_chat_text *text, const xm_token_span *span)
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
                    !chat_wrote(&text, s->wanted);
    }
    xm_chat_text_free(&text);
    return NULL;
}

void chat_check_threads(const char *source, const cJSON *context)
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

static uint32_t pick_below(uint64_t *at, uint32_t below)
{
    *at = *at * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*at >> 33) % below);
}

/* Snippets that turn one construct into another. */
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

static void mutate_source(xr_str *source, uint64_t *at)
{
    for (uint32_t n = 1 + pick_below(at, 4); n && source->size; n--) {
        uint32_t from = pick_below(at, (uint32_t)source->size);
        const char *piece =
            pieces[pick_below(at, sizeof pieces / sizeof pieces[0])];
        size_t size = strlen(piece);
        switch (pick_below(at, 5)) {
        case 0:
            source->data[from] = (char)pick_below(at, 256);
            break;
        case 1:
            source->data[from] = (char)(32 + pick_below(at, 95));
            break;
        case 2: { /* remove some bytes */
            size_t cut = 1 + pick_below(at, 12);
            cut = cut < source->size - from ? cut : source->size - from;
            memmove(source->data + from, source->data + from + cut,
                    source->size - from - cut);
            source->size -= cut;
            break;
        }
        case 3: { /* append a copy of some bytes */
            size_t copy = 1 + pick_below(at, 60);
            copy = copy < source->size - from ? copy : source->size - from;
            char held[64];
            memcpy(held, source->data + from, copy);
            xr_str_append(source, held, copy);
            break;
        }
        default: /* overwrite with a snippet */
            size = size < source->size - from ? size : source->size - from;
            memcpy(source->data + from, piece, size);
        }
    }
}

void chat_check_mutations(const cJSON *templates, const cJSON *contexts)
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
            contexts,
            (int)pick_below(&at, (uint32_t)cJSON_GetArraySize(contexts)));
        xr_str source = { 0 };
        xr_err err = { 0 };
        xm_chat_text text = { 0 };
        xr_str_puts(&source, base->valuestring);
        mutate_source(&source, &at);
        clock_t begin = clock();
        xray_status status =
            chat_render(xr_str_text(&source), source.size, context,
                        (int)pick_below(&at, 2), &err, &text);
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
