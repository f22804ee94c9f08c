/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the added tokens in a text: the leftmost, and of those the longest.
 */
#include <string.h>

#include "model/text/internal.h"

static int char_has_class(const xm_added_search *s, size_t at, unsigned mask)
{
    size_t length;
    return (xm_char_class(&s->tok->classes,
                          xm_utf8_get(s->text + at, &length)) &
            mask) != 0;
}

static const xm_added *match_added_at(const xm_added_search *s, size_t at)
{
    const xm_tokenizer *tok = s->tok;
    unsigned byte = (unsigned char)s->text[at];
    size_t left = s->size - at;
    uint32_t i = tok->first[s->normalized][byte];
    uint32_t end = tok->first[s->normalized][byte + 1];
    /* One lookup per distinct length, longest first. */
    while (i < end) {
        const xm_added *a = &tok->added[i];
        size_t size = a->text.size;
        if (size <= left) {
            int32_t at_text =
                a->shorter - i == 1
                    ? (memcmp(s->text + at, a->text.data, size) ? -1
                                                                : (int32_t)i)
                    : xm_vocab_get(&tok->added_texts[s->normalized],
                                   s->text + at, size);
            if (at_text >= 0)
                return &tok->added[at_text];
        }
        i = a->shorter;
    }
    return NULL;
}

static int is_inside_word(const xm_added_search *s, const xm_span *span)
{
    return (span->from &&
            char_has_class(s, xm_utf8_back(s->text, span->from), XM_C_WORD)) ||
           (span->to < s->size && char_has_class(s, span->to, XM_C_WORD));
}

static void widen_over_spaces(const xm_added_search *s, uint32_t flags,
                              xm_span *span)
{
    if (flags & XM_TOK_LSTRIP)
        while (span->from > s->done) {
            size_t before = xm_utf8_back(s->text, span->from);
            if (!char_has_class(s, before, XM_C_SPACE))
                break;
            span->from = before;
        }
    if (flags & XM_TOK_RSTRIP)
        while (span->to < s->size && char_has_class(s, span->to, XM_C_SPACE)) {
            size_t length;
            (void)xm_utf8_get(s->text + span->to, &length);
            span->to += length;
        }
}

/* Finds the next added token, with the white space that it takes along. */
static int find_added_token(xm_added_search *s, xm_span *out)
{
    const uint32_t *first = s->tok->first[s->normalized];
    while (s->search < s->size) {
        unsigned byte = (unsigned char)s->text[s->search];
        const xm_added *a = first[byte] == first[byte + 1]
                                ? NULL
                                : match_added_at(s, s->search);
        if (!a) {
            s->search++;
            continue;
        }
        *out = (xm_span){ s->search, s->search + a->text.size, a->id };
        s->search = out->to;
        if ((a->flags & XM_TOK_SINGLE_WORD) && is_inside_word(s, out))
            continue;
        widen_over_spaces(s, a->flags, out);
        return 1;
    }
    return 0;
}

int xm_added_next(xm_added_search *split, xm_span *out)
{
    xm_span next = split->held;
    split->held.to = 0;
    if (!next.to && !find_added_token(split, &next)) {
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
