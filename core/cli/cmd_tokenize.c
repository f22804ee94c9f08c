/* SPDX-License-Identifier: Apache-2.0
 *
 * xray tokenize: turns text into token ids and back.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/hub.h"
#include "core/cli/chat.h"
#include "core/cli/json_lines.h"
#include "model/text/tokenizer.h"

typedef struct tokenize {
    xm_tokenizer *tokenizer;
    cli_chat chat;
    int special;
} tokenize;

static xray_status encode_text(const tokenize *t, const char *text,
                               const char *where, xr_err *err, xr_str *out)
{
    xm_ids ids = { 0 };
    xray_status status = xm_tokenizer_encode(t->tokenizer, text, strlen(text),
                                             t->special, &ids, err);
    if (status == XRAY_OK) {
        xr_str_puts(out, "{\"ids\":");
        cli_put_ids(ids.data, ids.count, out);
        xr_str_append(out, "}", 1);
    } else {
        (void)xr_fail_in(err, status, "%s", where);
    }
    xm_ids_free(&ids);
    return status;
}

/* Writes a 1 for each token that overlaps a generation block, else a 0. */
static void put_assistant_mask(const xm_chat_text *text,
                               const xm_token_spans *spans, xr_str *out)
{
    xr_str_puts(out, ",\"assistant_mask\":[");
    for (size_t i = 0; i < spans->count; i++) {
        int inside = 0;
        for (size_t k = 0; k < text->span_count; k++)
            inside |= spans->data[i].from < text->spans[k].to &&
                      spans->data[i].to > text->spans[k].from;
        xr_str_printf(out, "%s%d", i ? "," : "", inside);
    }
    xr_str_append(out, "]", 1);
}

/* Encodes a rendered conversation; its template wrote the special tokens. */
static xray_status put_conversation(const tokenize *t, const xm_chat_text *text,
                                    const char *where, xr_err *err, xr_str *out)
{
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    xray_status status =
        xm_tokenizer_encode_spans(t->tokenizer, xr_str_text(&text->text),
                                  text->text.size, 0, &ids, &spans, err);
    if (status == XRAY_OK) {
        xr_str_puts(out, "{\"ids\":");
        cli_put_ids(ids.data, ids.count, out);
        xr_str_puts(out, ",\"text\":");
        xr_str_json(out, xr_str_text(&text->text), text->text.size);
        if (text->has_generation)
            put_assistant_mask(text, &spans, out);
        xr_str_append(out, "}", 1);
    } else {
        (void)xr_fail_in(err, status, "%s", where);
    }
    xm_ids_free(&ids);
    xm_token_spans_free(&spans);
    return status;
}

static xray_status encode_line(void *ctx, const cJSON *object, const char *line,
                               const char *where, xr_err *err, xr_str *out)
{
    static const char *const keys[] = { "text", NULL };
    const tokenize *t = ctx;
    const char *text;
    (void)line;
    xray_status status = cli_line_keys(object, keys, 1, where, err);
    if (status != XRAY_OK)
        return status;
    if (!xr_json_get(object, "messages")) {
        status = xr_json_string(object, "text", where, err, &text);
        return status == XRAY_OK ? encode_text(t, text, where, err, out)
                                 : status;
    }
    xm_chat_text chat = { .spans = NULL };
    status = cli_chat_render(&t->chat, object, where, 0, err, &chat);
    if (status == XRAY_OK)
        status = put_conversation(t, &chat, where, err, out);
    xm_chat_text_free(&chat);
    return status;
}

static xray_status decode_token_ids(const tokenize *t, const int32_t *ids,
                                    size_t count, const char *where,
                                    xr_err *err, xr_str *out)
{
    xr_str text = { 0 };
    xray_status status =
        xm_tokenizer_decode(t->tokenizer, ids, count, !t->special, &text, err);
    if (status == XRAY_OK) {
        xr_str_puts(out, "{\"text\":");
        xr_str_json(out, xr_str_text(&text), text.size);
        xr_str_append(out, "}", 1);
    } else {
        (void)xr_fail_in(err, status, "%s", where);
    }
    xr_str_free(&text);
    return status;
}

static xray_status decode_line(void *ctx, const cJSON *object, const char *line,
                               const char *where, xr_err *err, xr_str *out)
{
    static const char *const keys[] = { "ids", NULL };
    const cJSON *array = xr_json_get(object, "ids");
    int32_t *ids;
    size_t count;
    (void)line;
    xray_status status = cli_line_keys(object, keys, 0, where, err);
    if (status != XRAY_OK)
        return status;
    if (!array)
        return xr_fail(err, XRAY_E_ARG, "%s: \"ids\" is missing", where);
    status = xr_json_ids(array, where, err, &ids, &count);
    if (status != XRAY_OK)
        return status;
    status = decode_token_ids(ctx, ids, count, where, err, out);
    free(ids);
    return status;
}

/* Finds the folder that --model names, in `buffer` if it is a snapshot of the
 * hub's cache. */
static xray_status find_model(const char *id, char *buffer, size_t cap,
                              xr_err *err, const char **out)
{
    xr_err why = { "" };
    *out = id;
    if (!*id)
        return xr_fail(err, XRAY_E_CONFIG,
                       "--model is empty; it names the folder of the model");
    if (xr_path_exists(id) || !xr_hub_is_id(id))
        return XRAY_OK;
    if (xr_hub_find(id, buffer, cap, &why) == XRAY_OK) {
        cli_say("--model: %s is %s", id, buffer);
        *out = buffer;
    } else if (strchr(id, '/')) {
        return xr_fail(err, XRAY_E_CONFIG,
                       "--model: %s is not a folder, and %s", id, why.text);
    }
    return XRAY_OK;
}

static int run_tokenize(const cli_args *args)
{
    xr_err err = { "" };
    char found[XR_PATH_CAP];
    tokenize t = { .special = !args->decode };
    if (args->special)
        t.special = strcmp(args->special, "on") == 0;
    const char *model;
    if (find_model(args->model, found, sizeof found, &err, &model) != XRAY_OK ||
        xm_tokenizer_open(model, &err, &t.tokenizer) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    cli_chat_open(model, NULL, &t.chat);
    int code =
        cli_lines_each(args, args->decode ? decode_line : encode_line, &t);
    cli_chat_close(&t.chat);
    xm_tokenizer_close(t.tokenizer);
    return code;
}

static const cli_flag flags[] = {
    CLI_MODEL_FLAG,
    { "--decode", NULL, CLI_SWITCH, 0, offsetof(cli_args, decode), NULL, 1, 0,
      "turn {\"ids\"} into {\"text\"}" },
    { "--special", "on|off", CLI_TEXT, 0, offsetof(cli_args, special), NULL, 1,
      0,
      "encoding: add BOS and the like as the tokenizer's own rule says "
      "(default on); decoding: write special tokens as text (default off)" },
    { 0 }
};

const cli_command cli_tokenize = {
    .name = "tokenize",
    .usage = "--model DIR [options] [FILE]",
    .summary = "text to token ids and back",
    .about =
        "Reads JSON lines from FILE or standard input and writes a line "
        "for each:\n{\"text\"} -> {\"ids\"}, with --decode {\"ids\"} -> "
        "{\"text\"}. {\"messages\": [{\"role\",\n\"content\"}, ...]} goes "
        "through the model's chat template, with \"tools\",\n"
        "\"add_generation_prompt\" and \"chat_template_kwargs\" if the line "
        "has them, and gives\n{\"ids\",\"text\"}, and "
        "\"assistant_mask\" where the template marks what the assistant\n"
        "says. A bad line gives {\"error\"} instead and exit code 1 at "
        "the end.",
    .examples = "  echo '{\"text\":\"Once upon a time\"}' | xray tokenize "
                "--model DIR\n  echo '{\"ids\":[1,403,407]}' | xray tokenize "
                "--model DIR --decode\n",
    .flags = flags,
    .max_words = 1,
    .run = run_tokenize,
};
