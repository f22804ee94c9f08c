/* SPDX-License-Identifier: Apache-2.0
 *
 * trim_offsets of ByteLevel and RobertaProcessing: spans without the white
 * space at their ends.
 */
#include "model/text/tok.h"

/* U+0120 stands for a space in the byte-level alphabet. */
static int is_space(const xm_walk *w, uint32_t code)
{
    return code == 0x120 ||
           (xm_class(&w->tok->classes, code) & XM_C_SPACE) != 0;
}

static size_t leading(const xm_walk *w, const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0, length; i < size; i += length) {
        if (!is_space(w, xm_utf8_get(text + i, &length)))
            break;
        count++;
    }
    return count;
}

static size_t trailing(const xm_walk *w, const char *text, size_t size)
{
    size_t count = 0;
    size_t length;
    while (size) {
        size = xm_utf8_back(text, size);
        if (!is_space(w, xm_utf8_get(text + size, &length)))
            break;
        count++;
    }
    return count;
}

/* Characters of the original, as far as the span goes. */
static void move_start(const char *text, size_t count, xm_token_span *span)
{
    for (size_t length; count && span->from < span->to; count--) {
        (void)xm_utf8_get(text + span->from, &length);
        span->from += length;
    }
    span->from = span->from < span->to ? span->from : span->to;
}

static void move_end(const char *text, size_t count, xm_token_span *span)
{
    size_t to = span->to;
    for (; count && to; count--)
        to = xm_utf8_back(text, to);
    if (!count)
        span->to = to > span->from ? to : span->from;
}

static void trim(const xm_walk *w, size_t number, int32_t id, int prefix,
                 xm_token_span *span)
{
    const xm_tokenizer *tok = w->tok;
    const xm_token *t = &tok->tokens[id];
    const char *text = xr_str_text(&tok->pool) + t->at;
    size_t size = t->size;
    if (t->flags & (XM_TOK_LSTRIP | XM_TOK_RSTRIP)) {
        /* An added token is what it took from the text. */
        text = w->original + span->from;
        size = span->to - span->from;
    }
    size_t front = leading(w, text, size);
    size_t back = trailing(w, text, size);
    if (front == 1 && prefix && (number == 0 || span->from == 0))
        front = 0;
    move_start(w->original, front, span);
    move_end(w->original, back, span);
}

void xm_trim_spans(xm_walk *w, size_t from)
{
    const xm_token_spans *spans = w->spans;
    const xm_ids *ids = w->ids;
    size_t count = spans->count - from;
    for (size_t k = 0; k < w->tok->trim_count; k++)
        for (size_t i = 0; i < count; i++)
            trim(w, i, ids->data[ids->count - count + i], w->tok->trim[k],
                 &spans->data[from + i]);
}
