/* SPDX-License-Identifier: Apache-2.0
 *
 * Added tokens in a text: the leftmost, and of those the longest.
 */
#include <string.h>

#include "model/text/tok.h"

/* White_Space of Unicode. */
static int is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
           c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

/* Part of a word. Beyond Latin-1 everything but spaces and the blocks of
 * punctuation counts. */
static int is_word(uint32_t c)
{
    if (c < 0x80)
        return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z') ||
               c == '_';
    if (c < 0xC0)
        return c == 0xAA || c == 0xB5 || c == 0xBA;
    if (c == 0xD7 || c == 0xF7 || is_space(c))
        return 0;
    return !(c >= 0x2010 && c <= 0x206F) && !(c >= 0x3001 && c <= 0x3004) &&
           !(c >= 0x3008 && c <= 0x3020);
}

/* The character that ends at `at`; its first byte's place in *out_start. */
static uint32_t char_before(const xm_split *s, size_t at, size_t *out_start)
{
    size_t start = at - 1;
    while (start && ((unsigned char)s->text[start] & 0xC0) == 0x80)
        start--;
    uint32_t code = 0;
    (void)xr_utf8_decode(s->text + start, s->text + at, &code);
    *out_start = start;
    return code;
}

static uint32_t char_at(const xm_split *s, size_t at, size_t *out_next)
{
    uint32_t code = 0;
    int length = xr_utf8_decode(s->text + at, s->text + s->size, &code);
    *out_next = at + (size_t)(length ? length : 1);
    return code;
}

static const xm_added *match_at(const xm_split *s, size_t at)
{
    const xm_tokenizer *tok = s->tok;
    if (!tok->starts[s->normalized][(unsigned char)s->text[at]])
        return NULL;
    for (size_t i = 0; i < tok->added_count; i++) {
        const xm_added *a = &tok->added[i];
        int normalized = (a->flags & XM_TOK_NORMALIZED) != 0;
        if (normalized == s->normalized && a->text.size <= s->size - at &&
            memcmp(s->text + at, a->text.data, a->text.size) == 0)
            return a;
    }
    return NULL;
}

static int inside_word(const xm_split *s, const xm_span *span)
{
    size_t ignored;
    return (span->from && is_word(char_before(s, span->from, &ignored))) ||
           (span->to < s->size && is_word(char_at(s, span->to, &ignored)));
}

static void strip(const xm_split *s, uint32_t flags, xm_span *span)
{
    size_t next;
    if (flags & XM_TOK_LSTRIP)
        while (span->from > s->done &&
               is_space(char_before(s, span->from, &next)))
            span->from = next;
    if (flags & XM_TOK_RSTRIP)
        while (span->to < s->size && is_space(char_at(s, span->to, &next)))
            span->to = next;
}

/* The next added token that counts. */
static int find(xm_split *s, xm_span *out)
{
    while (s->search < s->size) {
        const xm_added *a = match_at(s, s->search);
        if (!a) {
            s->search++;
            continue;
        }
        *out = (xm_span){ s->search, s->search + a->text.size, a->id };
        s->search = out->to;
        if (out->from < s->done)
            continue; /* its start was stripped off behind another */
        if ((a->flags & XM_TOK_SINGLE_WORD) && inside_word(s, out))
            continue;
        strip(s, a->flags, out);
        return 1;
    }
    return 0;
}

int xm_tok_split(xm_split *split, xm_span *out)
{
    xm_span next = split->held;
    split->held.to = 0;
    if (!next.to && !find(split, &next)) {
        *out = (xm_span){ split->done, split->size, -1 };
        split->done = split->size;
        return out->from < out->to;
    }
    if (split->done < next.from) {
        split->held = next;
        next = (xm_span){ split->done, next.from, -1 };
    }
    split->done = next.to;
    *out = next;
    return 1;
}
