/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits a normalized text into words by the steps of the pre_tokenizer, and
 * encodes each word, from the cache if it is there.
 */
#include <string.h>

#include "model/text/internal.h"
#include "model/text/word_cache.h"

static xray_status run_pre_step(xm_encoding *enc, size_t step,
                                const xm_piece *piece);

xray_status xm_encode_no_memory(const xm_encoding *enc)
{
    return xr_fail(enc->err, XRAY_E_NOMEM, "tokenizer: out of memory");
}

xray_status xm_encode_too_long(const xm_encoding *enc)
{
    return xr_fail(enc->err, XRAY_E_RANGE,
                   "tokenizer: the normalizer or pre_tokenizer makes a text "
                   "grow beyond %zu bytes",
                   enc->limit);
}

/* One step of the pre_tokenizer at work on one piece. A Split cuts the piece
 * into ranges, which are matches or the text between them; where its `behavior`
 * asks for it, a range is held back until it is known whether the next one
 * belongs to the same piece. */
typedef struct splitter {
    xm_encoding *enc;
    size_t step;
    const xm_piece *piece;
    const xm_pre_step *pre;
    size_t from; /* the piece that is held back, if `waits` */
    size_t to;
    int waits;
    int matched; /* the previous range was a match */
} splitter;

/* Passes a part of the text to the next step. */
static xray_status emit_piece(const splitter *s, size_t from, size_t to)
{
    if (from == to)
        return XRAY_OK;
    xm_piece part = xm_piece_cut(s->piece, from, to);
    return run_pre_step(s->enc, s->step + 1, &part);
}

static xray_status flush_waiting_piece(splitter *s)
{
    int waits = s->waits;
    s->waits = 0;
    return waits ? emit_piece(s, s->from, s->to) : XRAY_OK;
}

/* Takes the next range of a Split and emits it, holds it back, or joins it to
 * the piece that is held back. */
static xray_status feed_range(splitter *s, size_t from, size_t to, int match)
{
    int before = s->matched;
    match = match != s->pre->invert;
    s->matched = match;
    switch (s->pre->behavior) {
    case XM_ISOLATED:
        return emit_piece(s, from, to);
    case XM_REMOVED:
        return match ? XRAY_OK : emit_piece(s, from, to);
    case XM_WITH_NEXT:
        if (s->waits && !match) {
            s->waits = 0;
            return emit_piece(s, s->from, to);
        }
        if (!match)
            return emit_piece(s, from, to);
        break;
    case XM_WITH_PREVIOUS:
        if (s->waits && match && !before) {
            s->to = to;
            return XRAY_OK;
        }
        break;
    case XM_CONTIGUOUS:
        if (s->waits && match == before) {
            s->to = to;
            return XRAY_OK;
        }
        break;
    }
    xray_status status = flush_waiting_piece(s);
    s->from = from;
    s->to = to;
    s->waits = 1;
    return status;
}

static xray_status split_by_regex(splitter *s)
{
    xm_matches m = { .regex = s->pre->regex,
                     .workspace = s->enc->workspace->regex,
                     .text = s->piece->text,
                     .size = s->piece->size };
    xray_status status = XRAY_OK;
    size_t done = 0;
    int found = 1;
    while (!status && found) {
        size_t from = m.size;
        size_t to = m.size;
        status = xm_regex_next(&m, s->enc->err, &found, &from, &to);
        if (!status && done < from)
            status = feed_range(s, done, from, 0);
        if (!status && found)
            status = feed_range(s, from, to, 1);
        done = to;
    }
    return status ? status : flush_waiting_piece(s);
}

static int is_matching_char(const xm_tokenizer *tok, const xm_pre_step *pre,
                            uint32_t code, const char *at, size_t length)
{
    if (pre->kind == XM_PRE_CLASS)
        return (xm_char_class(&tok->classes, code) & pre->mask) != 0;
    return strncmp(pre->from, at, length) == 0 && !pre->from[length];
}

/* Splits at characters; each matching character is a match of its own. */
static xray_status split_at_chars(splitter *s, const xm_pre_step *pre)
{
    const xm_piece *p = s->piece;
    xray_status status = XRAY_OK;
    size_t done = 0;
    for (size_t i = 0, length; !status && i < p->size; i += length) {
        uint32_t code = xm_utf8_get(p->text + i, &length);
        if (!is_matching_char(s->enc->tok, pre, code, p->text + i, length))
            continue;
        if (done < i)
            status = feed_range(s, done, i, 0);
        if (!status)
            status = feed_range(s, i, i + length, 1);
        done = i + length;
    }
    if (!status && done < p->size)
        status = feed_range(s, done, p->size, 0);
    return status ? status : flush_waiting_piece(s);
}

/* Splits into runs of \w and runs of characters that are neither \w nor white
 * space, which is dropped. */
static xray_status split_into_words(splitter *s)
{
    const xm_piece *p = s->piece;
    const xm_char_classes *classes = &s->enc->tok->classes;
    xray_status status = XRAY_OK;
    size_t from = 0;
    int kind = 0; /* 0: white space, 1: word, 2: neither */
    for (size_t i = 0, length; !status && i < p->size; i += length) {
        unsigned class =
            xm_char_class(classes, xm_utf8_get(p->text + i, &length));
        int now = class & XM_C_WORD ? 1 : class & XM_C_SPACE ? 0 : 2;
        if (now == kind)
            continue;
        if (kind)
            status = emit_piece(s, from, i);
        from = i;
        kind = now;
    }
    if (!status && kind)
        status = emit_piece(s, from, p->size);
    return status;
}

/* Splits into pieces of `count` characters. */
static xray_status split_by_length(splitter *s, size_t count)
{
    const xm_piece *p = s->piece;
    xray_status status = XRAY_OK;
    size_t from = 0;
    size_t seen = 0;
    for (size_t i = 0, length; !status && i < p->size;) {
        (void)xm_utf8_get(p->text + i, &length);
        i += length;
        if (++seen < count && i < p->size)
            continue;
        status = emit_piece(s, from, i);
        from = i;
        seen = 0;
    }
    return status;
}

/* Splits into the words that a scanner finds, which does the work of a known
 * regular expression. In the last step a text without a map needs no
 * xm_piece_cut, and its words are encoded at once. */
static xray_status split_by_scanner(splitter *s)
{
    xm_encoding *enc = s->enc;
    const xm_char_classes *classes = &enc->tok->classes;
    const xm_scanner *scan = &s->pre->scanner;
    xm_piece rest = *s->piece;
    int plain = !rest.map && s->step + 1 == enc->tok->pre_count;
    while (rest.size) {
        size_t size = scan->next(classes, rest.text, rest.size, scan->digits);
        xray_status status;
        if (plain) {
            xm_piece word = { rest.text, size, NULL, rest.base };
            status = xm_encode_word(enc, &word);
        } else {
            xm_piece word = xm_piece_cut(&rest, 0, size);
            status = run_pre_step(enc, s->step + 1, &word);
        }
        if (status)
            return status;
        rest.text += size;
        rest.size -= size;
        rest.base += size;
        rest.map = rest.map ? rest.map + size : NULL;
    }
    return XRAY_OK;
}

/* Writes the text with `from` in place of spaces, and in front if the scheme
 * asks for it and the text does not begin with it. */
static void write_metaspace(const xm_pre_step *pre, const xm_piece *piece,
                            xm_edit *edit)
{
    const char *text = piece->text;
    size_t size = strlen(pre->from);
    size_t ignored;
    int starts = *text == ' ' ||
                 (size <= piece->size && memcmp(text, pre->from, size) == 0);
    if (!starts && (pre->scheme == XM_ALWAYS ||
                    (pre->scheme == XM_FIRST && piece->base == 0)))
        xm_edit_put(edit, xm_utf8_get(pre->from, &ignored), 0);
    size_t done = 0;
    while (done < piece->size) {
        const char *hit = memchr(text + done, ' ', piece->size - done);
        size_t at = hit ? (size_t)(hit - text) : piece->size;
        xm_edit_copy(edit, done, at);
        if (hit)
            xm_edit_replace(edit, pre->from, at + 1);
        done = at + (hit != NULL);
    }
}

/* Writes for each byte its character of the byte-level alphabet. Only the first
 * byte of a UTF-8 sequence takes a character of the input. */
static void write_alphabet(const xm_piece *piece, xm_edit *edit)
{
    for (size_t i = 0; i < piece->size; i++)
        xm_edit_put(edit, xm_alphabet_code((unsigned char)piece->text[i]),
                    ((unsigned char)piece->text[i] & 0xC0) == 0x80);
}

/* Runs a step that writes a new text, and cuts the text of a Metaspace with
 * `split` in front of each of its marks. Each step has its own buffer, because
 * the previous step still reads from its own. */
static xray_status run_rewriting_step(splitter *s)
{
    static const xm_pre_step with_next = { .behavior = XM_WITH_NEXT };
    xm_encoding *enc = s->enc;
    xm_edit edit = { .in = *s->piece,
                     .out = &enc->workspace->pre[s->step],
                     .track = enc->track,
                     .limit = enc->limit };
    xm_text_clear(edit.out);
    if (s->pre->kind == XM_PRE_ALPHABET)
        write_alphabet(s->piece, &edit);
    else if (s->pre->kind == XM_PRE_META)
        write_metaspace(s->pre, s->piece, &edit);
    else
        xm_edit_prepend(&edit, " ");
    if (edit.out->text.failed) {
        edit.out->text.failed = 0;
        return xm_encode_no_memory(enc);
    }
    if (edit.too_long)
        return xm_encode_too_long(enc);
    xm_piece made = xm_edit_done(&edit);
    if (s->pre->kind != XM_PRE_META || !s->pre->split)
        return run_pre_step(enc, s->step + 1, &made);
    splitter pieces = *s;
    pieces.piece = &made;
    pieces.pre = &with_next;
    return split_at_chars(&pieces, s->pre);
}

static xray_status run_pre_step(xm_encoding *enc, size_t step,
                                const xm_piece *piece)
{
    if (!piece->size)
        return XRAY_OK;
    if (step == enc->tok->pre_count)
        return xm_encode_word(enc, piece);
    const xm_pre_step *pre = &enc->tok->pre[step];
    splitter s = { .enc = enc, .step = step, .piece = piece, .pre = pre };
    switch (pre->kind) {
    case XM_PRE_CHARS:
        return split_by_length(&s, 1);
    case XM_PRE_LENGTH:
        return split_by_length(&s, pre->length);
    case XM_PRE_REGEX:
        return split_by_regex(&s);
    case XM_PRE_SCAN:
        return split_by_scanner(&s);
    case XM_PRE_CLASS:
    case XM_PRE_CHAR:
        return split_at_chars(&s, pre);
    case XM_PRE_WORDS:
        return split_into_words(&s);
    case XM_PRE_SPACE:
        if (*piece->text == ' ')
            return run_pre_step(enc, step + 1, piece);
        break;
    case XM_PRE_META:
    case XM_PRE_ALPHABET:
        break;
    }
    return run_rewriting_step(&s);
}

xray_status xm_pre_tokenize(xm_encoding *enc, const xm_piece *piece)
{
    return run_pre_step(enc, 0, piece);
}

static int push_token_span(xm_encoding *enc, const xm_piece *piece, size_t from,
                           size_t to)
{
    xm_token_spans *spans = enc->spans;
    if (xm_grow_buffer((void **)&spans->data, &spans->cap, spans->count + 1,
                       sizeof *spans->data))
        return -1;
    xm_range range = xm_piece_range(piece, from, to);
    range.to = range.to < range.from ? range.from : range.to;
    spans->data[spans->count++] = (xm_token_span){ range.from, range.to };
    return 0;
}

int xm_push_id(xm_encoding *enc, int32_t id, size_t from, size_t to)
{
    enc->apart |= from != enc->last;
    enc->last = to;
    if (enc->made < XM_CACHE_IDS)
        enc->ends[enc->made] = (uint8_t)to;
    enc->made++;
    if (xm_ids_push(enc->ids, id))
        return -1;
    return enc->spans ? push_token_span(enc, &enc->piece, from, to) : 0;
}

static xray_status encode_by_model(xm_encoding *enc, const xm_piece *piece)
{
    enc->piece = *piece;
    enc->made = 0;
    enc->last = 0;
    enc->apart = 0;
    switch (enc->tok->model.kind) {
    case XM_BPE:
        if (enc->tok->model.pairs && piece->size > XM_CACHE_KEY)
            return xm_bpe_text(enc, piece);
        return xm_bpe_word(enc, piece->text, piece->size);
    case XM_UNIGRAM:
        return xm_unigram_word(enc, piece->text, piece->size);
    case XM_WORDPIECE:
        return xm_wordpiece_word(enc, piece->text, piece->size);
    case XM_WORDLEVEL:
        break;
    }
    return xm_wordlevel_word(enc, piece->text, piece->size);
}

static xray_status push_cached_ids(xm_encoding *enc, const xm_cached_word *slot,
                                   const xm_piece *piece)
{
    xm_ids *ids = enc->ids;
    if (ids->cap - ids->count < XM_CACHE_IDS &&
        xm_grow_buffer((void **)&ids->data, &ids->cap,
                       ids->count + XM_CACHE_IDS, sizeof *ids->data))
        return xm_encode_no_memory(enc);
    memcpy(ids->data + ids->count, slot->ids, sizeof slot->ids);
    ids->count += slot->count;
    size_t from = 0;
    for (size_t i = 0; enc->spans && i < slot->count; i++) {
        if (push_token_span(enc, piece, from, slot->ends[i]))
            return xm_encode_no_memory(enc);
        from = slot->ends[i];
    }
    return XRAY_OK;
}

/* A cached word whose spans are unknown is encoded again where spans are
 * wanted. */
xray_status xm_encode_word(xm_encoding *enc, const xm_piece *piece)
{
    if (piece->size > XM_CACHE_KEY)
        return encode_by_model(enc, piece);
    int hit;
    xm_cached_word *slot =
        xm_cache_slot(enc->workspace->cache, piece->text, piece->size, &hit);
    if (hit && (!enc->spans || slot->ends[0] || !slot->count))
        return push_cached_ids(enc, slot, piece);
    size_t from = enc->ids->count;
    xray_status status = encode_by_model(enc, piece);
    size_t made = enc->ids->count - from;
    if (hit || status || made > XM_CACHE_IDS)
        return status;
    slot->size = (uint8_t)piece->size;
    slot->count = (uint8_t)made;
    memcpy(slot->key, piece->text, piece->size);
    for (size_t i = 0; i < made; i++)
        slot->ids[i] = enc->ids->data[from + i];
    memcpy(slot->ends, enc->ends, sizeof slot->ends);
    if (enc->apart)
        slot->ends[0] = 0;
    return XRAY_OK;
}
