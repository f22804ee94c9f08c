/* SPDX-License-Identifier: Apache-2.0
 *
 * text-lines DIR: for each JSON line {"text"} of standard input, prints
 * everything that the tokenizer of DIR makes of the text, as a JSON line.
 * tests/parity/tokenizers.py runs it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "model/text/tokenizer.h"

static void write_ids(const xm_ids *ids, const char *key, xr_str *out)
{
    xr_str_printf(out, ",\"%s\":[", key);
    for (size_t i = 0; i < ids->count; i++)
        xr_str_printf(out, "%s%d", i ? "," : "", (int)ids->data[i]);
    xr_str_puts(out, "]");
}

static void write_spans(const xm_token_spans *spans, xr_str *out)
{
    xr_str_puts(out, ",\"spans\":[");
    for (size_t i = 0; i < spans->count; i++)
        xr_str_printf(out, "%s[%zu,%zu]", i ? "," : "", spans->data[i].from,
                      spans->data[i].to);
    xr_str_puts(out, "]");
}

static void write_text(const xr_str *text, const char *key, xr_str *out)
{
    xr_str_printf(out, ",\"%s\":", key);
    xr_str_json(out, xr_str_text(text), text->size);
}

static xray_status decode_as_stream(const xm_tokenizer *tok, const xm_ids *ids,
                                    int skip, xr_str *out, xr_err *err)
{
    xm_stream *s;
    xray_status status = xm_stream_open(tok, skip, err, &s);
    if (status)
        return status;
    for (size_t i = 0; !status && i < ids->count; i++) {
        size_t from = out->size;
        status = xm_stream_push(s, ids->data[i], out, err);
        uint32_t code;
        for (size_t at = from, n; !status && at < out->size; at += n) {
            n = (size_t)xr_utf8_decode(out->data + at, out->data + out->size,
                                       &code);
            if (!n)
                status = xr_fail(err, XRAY_E_BUG, "half a character");
        }
    }
    if (!status)
        status = xm_stream_end(s, out, err);
    xm_stream_close(s);
    return status;
}

static xray_status write_answer(const xm_tokenizer *tok, const char *text,
                                xr_err *err, xr_str *out)
{
    xm_ids ids = { 0 };
    xm_ids plain = { 0 };
    xm_ids again = { 0 };
    xm_token_spans spans = { 0 };
    xr_str made[4] = { { 0 } };
    size_t size = strlen(text);
    xray_status status = xm_tokenizer_encode(tok, text, size, 1, &ids, err);
    if (!status)
        status = xm_tokenizer_encode(tok, text, size, 0, &plain, err);
    if (!status)
        status =
            xm_tokenizer_encode_spans(tok, text, size, 1, &again, &spans, err);
    for (int skip = 0; !status && skip < 2; skip++) {
        status = xm_tokenizer_decode(tok, ids.data, ids.count, skip,
                                     &made[skip], err);
        if (!status)
            status = decode_as_stream(tok, &ids, skip, &made[2 + skip], err);
    }
    if (!status) {
        write_ids(&ids, "ids", out);
        write_ids(&plain, "plain", out);
        write_ids(&again, "again", out);
        write_spans(&spans, out);
        write_text(&made[0], "decoded", out);
        write_text(&made[1], "skipped", out);
        write_text(&made[2], "streamed", out);
        write_text(&made[3], "streamed_skipped", out);
    }
    xm_ids_free(&ids);
    xm_ids_free(&plain);
    xm_ids_free(&again);
    xm_token_spans_free(&spans);
    for (size_t i = 0; i < 4; i++)
        xr_str_free(&made[i]);
    return status;
}

static void print_answer(const xm_tokenizer *tok, const char *line, size_t size)
{
    xr_str out = { 0 };
    xr_err err = { "" };
    cJSON *row = NULL;
    const char *text;
    xray_status status = xr_json_parse(line, size, "line", &err, &row);
    if (!status)
        status = xr_json_string(row, "text", "line", &err, &text);
    if (!status)
        status = write_answer(tok, text, &err, &out);
    if (status) {
        xr_str_clear(&out);
        xr_str_puts(&out, ",\"error\":");
        xr_str_json(&out, err.text, strlen(err.text));
    }
    printf("{%s}\n", xr_str_text(&out) + 1);
    cJSON_Delete(row);
    xr_str_free(&out);
}

int main(int argc, char **argv)
{
    xm_tokenizer *tok;
    xr_err err = { "" };
    char *line = NULL;
    size_t cap = 0;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: text-lines DIR <rows\n");
        return 2;
    }
    if (xm_tokenizer_open(argv[1], &err, &tok)) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0;)
        print_answer(tok, line, (size_t)n - (line[n - 1] == '\n'));
    free(line);
    xm_tokenizer_close(tok);
    return 0;
}
