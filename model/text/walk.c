/* SPDX-License-Identifier: Apache-2.0
 *
 * A text on its way through the steps of the pre_tokenizer.
 */
#include <string.h>

#include "model/text/cache.h"
#include "model/text/tok.h"

static xray_status run(xm_walk *w, size_t step, const xm_piece *piece);

xray_status xm_walk_no_memory(const xm_walk *w)
{
    return xr_fail(w->err, XRAY_E_NOMEM, "tokenizer: out of memory");
}

xray_status xm_walk_too_long(const xm_walk *w)
{
    return xr_fail(w->err, XRAY_E_RANGE,
                   "tokenizer: the normalizer or pre_tokenizer makes a text "
                   "grow beyond %zu bytes",
                   w->limit);
}

/* Matches and gaps on their way to pieces. */
typedef struct fold {
    xm_walk *w;
    size_t step;
    const xm_piece *piece;
    const xm_pre *pre;
    size_t from; /* of the piece that waits */
    size_t to;
    int waits;
    int before; /* what came last was a match */
} fold;

static xray_status emit(const fold *f, size_t from, size_t to)
{
    if (from == to)
        return XRAY_OK;
    xm_piece part = xm_piece_cut(f->piece, from, to);
    return run(f->w, f->step + 1, &part);
}

static xray_status flush(fold *f)
{
    int waits = f->waits;
    f->waits = 0;
    return waits ? emit(f, f->from, f->to) : XRAY_OK;
}

static xray_status feed(fold *f, size_t from, size_t to, int match)
{
    int before = f->before;
    match = match != f->pre->invert;
    f->before = match;
    switch (f->pre->behavior) {
    case XM_ISOLATED:
        return emit(f, from, to);
    case XM_REMOVED:
        return match ? XRAY_OK : emit(f, from, to);
    case XM_WITH_NEXT:
        if (f->waits && !match) {
            f->waits = 0;
            return emit(f, f->from, to);
        }
        if (!match)
            return emit(f, from, to);
        break;
    case XM_WITH_PREVIOUS:
        if (f->waits && match && !before) {
            f->to = to;
            return XRAY_OK;
        }
        break;
    case XM_CONTIGUOUS:
        if (f->waits && match == before) {
            f->to = to;
            return XRAY_OK;
        }
        break;
    }
    xray_status status = flush(f);
    f->from = from;
    f->to = to;
    f->waits = 1;
    return status;
}

static xray_status run_regex(fold *f)
{
    xm_matches m = { .regex = f->pre->regex,
                     .room = f->w->room->regex,
                     .text = f->piece->text,
                     .size = f->piece->size };
    xray_status status = XRAY_OK;
    size_t done = 0;
    int found = 1;
    while (!status && found) {
        size_t from = m.size;
        size_t to = m.size;
        status = xm_regex_next(&m, f->w->err, &found, &from, &to);
        if (!status && done < from)
            status = feed(f, done, from, 0);
        if (!status && found)
            status = feed(f, from, to, 1);
        done = to;
    }
    return status ? status : flush(f);
}

static int matches(const xm_tokenizer *tok, const xm_pre *pre, uint32_t code,
                   const char *at, size_t length)
{
    if (pre->kind == XM_PRE_CLASS)
        return (xm_class(&tok->classes, code) & pre->mask) != 0;
    return strncmp(pre->from, at, length) == 0 && !pre->from[length];
}

/* Every character that matches is a match by itself. */
static xray_status run_chars(fold *f, const xm_pre *pre)
{
    const xm_piece *p = f->piece;
    xray_status status = XRAY_OK;
    size_t done = 0;
    for (size_t i = 0, length; !status && i < p->size; i += length) {
        uint32_t code = xm_utf8_get(p->text + i, &length);
        if (!matches(f->w->tok, pre, code, p->text + i, length))
            continue;
        if (done < i)
            status = feed(f, done, i, 0);
        if (!status)
            status = feed(f, i, i + length, 1);
        done = i + length;
    }
    if (!status && done < p->size)
        status = feed(f, done, p->size, 0);
    return status ? status : flush(f);
}

/* Runs of \w, and runs of what is neither \w nor white space. */
static xray_status run_words(fold *f)
{
    const xm_piece *p = f->piece;
    const xm_classes *classes = &f->w->tok->classes;
    xray_status status = XRAY_OK;
    size_t from = 0;
    int kind = 0; /* 0 space, 1 word, 2 neither */
    for (size_t i = 0, length; !status && i < p->size; i += length) {
        unsigned class = xm_class(classes, xm_utf8_get(p->text + i, &length));
        int now = class & XM_C_WORD ? 1 : class & XM_C_SPACE ? 0 : 2;
        if (now == kind)
            continue;
        if (kind)
            status = emit(f, from, i);
        from = i;
        kind = now;
    }
    if (!status && kind)
        status = emit(f, from, p->size);
    return status;
}

static xray_status run_length(fold *f, size_t count)
{
    const xm_piece *p = f->piece;
    xray_status status = XRAY_OK;
    size_t from = 0;
    size_t seen = 0;
    for (size_t i = 0, length; !status && i < p->size;) {
        (void)xm_utf8_get(p->text + i, &length);
        i += length;
        if (++seen < count && i < p->size)
            continue;
        status = emit(f, from, i);
        from = i;
        seen = 0;
    }
    return status;
}

static xray_status run_scan(fold *f)
{
    xm_walk *w = f->w;
    const xm_classes *classes = &w->tok->classes;
    const xm_scanner *scan = &f->pre->scanner;
    xm_piece rest = *f->piece;
    int plain = !rest.map && f->step + 1 == w->tok->pre_count;
    while (rest.size) {
        size_t size = scan->next(classes, rest.text, rest.size, scan->digits);
        xray_status status;
        if (plain) {
            xm_piece word = { rest.text, size, NULL, rest.base };
            status = xm_walk_word(w, &word);
        } else {
            xm_piece word = xm_piece_cut(&rest, 0, size);
            status = run(w, f->step + 1, &word);
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

static void write_meta(const xm_pre *pre, const xm_piece *piece, xm_edit *edit)
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

static void write_alphabet(const xm_piece *piece, xm_edit *edit)
{
    for (size_t i = 0; i < piece->size; i++)
        xm_edit_put(edit, xm_alphabet_code((unsigned char)piece->text[i]),
                    ((unsigned char)piece->text[i] & 0xC0) == 0x80);
}

/* Steps that write a new text; each has its own, as the one before still reads
 * from its own. */
static xray_status run_rewritten(fold *f)
{
    static const xm_pre with_next = { .behavior = XM_WITH_NEXT };
    xm_walk *w = f->w;
    xm_edit edit = { .in = *f->piece,
                     .out = &w->room->pre[f->step],
                     .track = w->track,
                     .limit = w->limit };
    xm_text_clear(edit.out);
    if (f->pre->kind == XM_PRE_ALPHABET)
        write_alphabet(f->piece, &edit);
    else if (f->pre->kind == XM_PRE_META)
        write_meta(f->pre, f->piece, &edit);
    else
        xm_edit_prepend(&edit, " ");
    if (edit.out->text.failed) {
        edit.out->text.failed = 0;
        return xm_walk_no_memory(w);
    }
    if (edit.too_long)
        return xm_walk_too_long(w);
    xm_piece made = xm_edit_done(&edit);
    if (f->pre->kind != XM_PRE_META || !f->pre->split)
        return run(w, f->step + 1, &made);
    fold pieces = *f;
    pieces.piece = &made;
    pieces.pre = &with_next;
    return run_chars(&pieces, f->pre);
}

static xray_status run(xm_walk *w, size_t step, const xm_piece *piece)
{
    if (!piece->size)
        return XRAY_OK;
    if (step == w->tok->pre_count)
        return xm_walk_word(w, piece);
    const xm_pre *pre = &w->tok->pre[step];
    fold f = { .w = w, .step = step, .piece = piece, .pre = pre };
    switch (pre->kind) {
    case XM_PRE_CHARS:
        return run_length(&f, 1);
    case XM_PRE_LENGTH:
        return run_length(&f, pre->length);
    case XM_PRE_REGEX:
        return run_regex(&f);
    case XM_PRE_SCAN:
        return run_scan(&f);
    case XM_PRE_CLASS:
    case XM_PRE_CHAR:
        return run_chars(&f, pre);
    case XM_PRE_WORDS:
        return run_words(&f);
    case XM_PRE_SPACE:
        if (*piece->text == ' ')
            return run(w, step + 1, piece);
        break;
    case XM_PRE_META:
    case XM_PRE_ALPHABET:
        break;
    }
    return run_rewritten(&f);
}

xray_status xm_walk_text(xm_walk *w, const xm_piece *piece)
{
    return run(w, 0, piece);
}

static int push_span(xm_walk *w, const xm_piece *piece, size_t from, size_t to)
{
    xm_token_spans *spans = w->spans;
    if (xm_room_grow((void **)&spans->data, &spans->cap, spans->count + 1,
                     sizeof *spans->data))
        return -1;
    xm_range range = xm_piece_range(piece, from, to);
    range.to = range.to < range.from ? range.from : range.to;
    spans->data[spans->count++] = (xm_token_span){ range.from, range.to };
    return 0;
}

int xm_walk_push(xm_walk *w, int32_t id, size_t from, size_t to)
{
    w->apart |= from != w->last;
    w->last = to;
    if (w->made < XM_CACHE_IDS)
        w->ends[w->made] = (uint8_t)to;
    w->made++;
    if (xm_ids_push(w->ids, id))
        return -1;
    return w->spans ? push_span(w, &w->piece, from, to) : 0;
}

static xray_status by_model(xm_walk *w, const xm_piece *piece)
{
    w->piece = *piece;
    w->made = 0;
    w->last = 0;
    w->apart = 0;
    switch (w->tok->model.kind) {
    case XM_BPE:
        if (w->tok->model.pairs && piece->size > XM_CACHE_KEY)
            return xm_bpe_text(w, piece);
        return xm_bpe_word(w, piece->text, piece->size);
    case XM_UNIGRAM:
        return xm_unigram_word(w, piece->text, piece->size);
    case XM_WORDPIECE:
        return xm_wordpiece_word(w, piece->text, piece->size);
    case XM_WORDLEVEL:
        break;
    }
    return xm_wordlevel_word(w, piece->text, piece->size);
}

static xray_status from_cache(xm_walk *w, const xm_cached *slot,
                              const xm_piece *piece)
{
    xm_ids *ids = w->ids;
    if (ids->cap - ids->count < XM_CACHE_IDS &&
        xm_room_grow((void **)&ids->data, &ids->cap, ids->count + XM_CACHE_IDS,
                     sizeof *ids->data))
        return xm_walk_no_memory(w);
    memcpy(ids->data + ids->count, slot->ids, sizeof slot->ids);
    ids->count += slot->count;
    size_t from = 0;
    for (size_t i = 0; w->spans && i < slot->count; i++) {
        if (push_span(w, piece, from, slot->ends[i]))
            return xm_walk_no_memory(w);
        from = slot->ends[i];
    }
    return XRAY_OK;
}

xray_status xm_walk_word(xm_walk *w, const xm_piece *piece)
{
    if (piece->size > XM_CACHE_KEY)
        return by_model(w, piece);
    int hit;
    xm_cached *slot =
        xm_cache_slot(w->room->cache, piece->text, piece->size, &hit);
    if (hit && (!w->spans || slot->ends[0] || !slot->count))
        return from_cache(w, slot, piece);
    size_t from = w->ids->count;
    xray_status status = by_model(w, piece);
    size_t made = w->ids->count - from;
    if (hit || status || made > XM_CACHE_IDS)
        return status;
    slot->size = (uint8_t)piece->size;
    slot->count = (uint8_t)made;
    memcpy(slot->key, piece->text, piece->size);
    for (size_t i = 0; i < made; i++)
        slot->ids[i] = w->ids->data[from + i];
    memcpy(slot->ends, w->ends, sizeof slot->ends);
    if (w->apart)
        slot->ends[0] = 0;
    return XRAY_OK;
}
