/* SPDX-License-Identifier: Apache-2.0
 *
 * xray tokenize: text to ids and back.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cli/lines.h"
#include "model/text/tokenizer.h"

typedef struct tokenize {
    xm_tokenizer *tokenizer;
    int special;
} tokenize;

static xray_status encode_line(void *ctx, const cJSON *object, const char *line,
                               const char *where, xr_err *err, xr_str *out)
{
    const tokenize *t = ctx;
    const char *text;
    (void)line;
    xray_status status = xr_json_string(object, "text", where, err, &text);
    if (status != XRAY_OK)
        return status;
    xm_ids ids = { 0 };
    status = xm_tokenizer_encode(t->tokenizer, text, strlen(text), t->special,
                                 &ids, err);
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

static xray_status decode_ids(const tokenize *t, const int32_t *ids,
                              size_t count, const char *where, xr_err *err,
                              xr_str *out)
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
    const cJSON *array = xr_json_get(object, "ids");
    int32_t *ids;
    size_t count;
    (void)line;
    if (!array)
        return xr_fail(err, XRAY_E_ARG, "%s: \"ids\" is missing", where);
    xray_status status = xr_json_ids(array, where, err, &ids, &count);
    if (status != XRAY_OK)
        return status;
    status = decode_ids(ctx, ids, count, where, err, out);
    free(ids);
    return status;
}

static int run(const cli_args *args)
{
    xr_err err = { "" };
    tokenize t = { NULL, !args->decode };
    if (args->special)
        t.special = strcmp(args->special, "on") == 0;
    if (xm_tokenizer_open(args->model, &err, &t.tokenizer) != XRAY_OK)
        return cli_fail(XRAY_E_CONFIG, &err);
    int code =
        cli_lines_each(args, args->decode ? decode_line : encode_line, &t);
    xm_tokenizer_close(t.tokenizer);
    return code;
}

static const cli_flag flags[] = {
    CLI_MODEL_FLAG,
    { "--decode", NULL, CLI_SWITCH, 0, offsetof(cli_args, decode), NULL, 1, 0,
      "turn {\"ids\"} into {\"text\"}" },
    { "--special", "on|off", CLI_TEXT, 0, offsetof(cli_args, special), NULL, 1,
      0,
      "encoding: add BOS and the like as the tokenizer's own rule says (on "
      "unless said otherwise); decoding: write special tokens as text (off "
      "unless said otherwise)" },
    { 0 }
};

const cli_command cli_tokenize = {
    .name = "tokenize",
    .usage = "--model DIR [options] [FILE]",
    .summary = "text to token ids and back",
    .about = "Reads JSON lines from FILE or standard input and writes a line "
             "for each:\n{\"text\"} -> {\"ids\"}, with --decode {\"ids\"} -> "
             "{\"text\"}. A bad line gives {\"error\"}\nin its place and exit "
             "code 1 at the end.",
    .examples = "  echo '{\"text\":\"Once upon a time\"}' | xray tokenize "
                "--model DIR\n  echo '{\"ids\":[1,403,407]}' | xray tokenize "
                "--model DIR --decode\n",
    .flags = flags,
    .max_words = 1,
    .run = run,
};
