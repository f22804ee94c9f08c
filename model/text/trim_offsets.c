/* SPDX-License-Identifier: Apache-2.0
 *
 * Removes white space from the ends of spans, which is trim_offsets of
 * ByteLevel and RobertaProcessing.
 */
#include "model/text/internal.h"

/* U+0120 stands for a space in the byte-level alphabet. */
static int is_trimmed_space(const xm_encoding *enc, uint32_t code)
{
    return code == 0x120 ||
           (xm_char_class(&enc->tok->classes, code) & XM_C_SPACE) != 0;
}

static size_t count_leading_spaces(const xm_encoding *enc, const char *text,
                                   size_t size)
{
    size_t count = 0;
    for (size_t i = 0, length; i < size; i += length) {
        if (!is_trimmed_space(enc, xm_utf8_get(text + i, &length)))
            break;
        count++;
    }
    return count;
}

static size_t count_trailing_spaces(const xm_encoding *enc, const char *text,
                                    size_t size)
{
    size_t count = 0;
    size_t length;
    while (size) {
        size = xm_utf8_back(text, size);
        if (!is_trimmed_space(enc, xm_utf8_get(text + size, &length)))
            break;
        count++;
    }
    return count;
}

/* Moves the start by `count` characters of the original, at most to the end. */
static void move_span_start(const char *text, size_t count, xm_token_span *span)
{
    for (size_t length; count && span->from < span->to; count--) {
        (void)xm_utf8_get(text + span->from, &length);
        span->from += length;
    }
    span->from = span->from < span->to ? span->from : span->to;
}

static void move_span_end(const char *text, size_t count, xm_token_span *span)
{
    size_t to = span->to;
    for (; count && to; count--)
        to = xm_utf8_back(text, to);
    if (!count)
        span->to = to > span->from ? to : span->from;
}

static void trim_one_span(const xm_encoding *enc, size_t number, int32_t id,
                          int prefix, xm_token_span *span)
{
    const xm_tokenizer *tok = enc->tok;
    const xm_token *t = &tok->tokens[id];
    const char *text = xr_str_text(&tok->pool) + t->at;
    size_t size = t->size;
    if (t->flags & (XM_TOK_LSTRIP | XM_TOK_RSTRIP)) {
        /* An added token that strips white space counts with all the text it
         * took. */
        text = enc->original + span->from;
        size = span->to - span->from;
    }
    size_t front = count_leading_spaces(enc, text, size);
    size_t back = count_trailing_spaces(enc, text, size);
    if (front == 1 && prefix && (number == 0 || span->from == 0))
        front = 0;
    move_span_start(enc->original, front, span);
    move_span_end(enc->original, back, span);
}

void xm_trim_spans(xm_encoding *enc, size_t from)
{
    const xm_token_spans *spans = enc->spans;
    const xm_ids *ids = enc->ids;
    size_t count = spans->count - from;
    for (size_t k = 0; k < enc->tok->trim_count; k++)
        for (size_t i = 0; i < count; i++)
            trim_one_span(enc, i, ids->data[ids->count - count + i],
                          enc->tok->trim[k], &spans->data[from + i]);
}
