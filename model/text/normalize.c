/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of a normalizer.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/text/tok.h"

/* A walk over the characters of the input. */
#define EACH(e, i, length, code)                             \
    for (size_t i = 0, length = 0;                           \
         i < (e)->in.size &&                                 \
         (code = xm_utf8_get((e)->in.text + i, &length), 1); \
         i += length)

uint32_t xm_lower(uint32_t code)
{
    /* Newer than utf8proc's oldest Unicode that still counts. */
    static const struct {
        uint32_t from;
        uint32_t to;
        int32_t shift;
    } newer[] = { { 0x1C89, 0x1C89, 1 },      { 0xA7CB, 0xA7CB, -0xA567 },
                  { 0xA7CC, 0xA7CC, 1 },      { 0xA7CE, 0xA7CE, 1 },
                  { 0xA7D2, 0xA7D2, 1 },      { 0xA7D4, 0xA7D4, 1 },
                  { 0xA7DA, 0xA7DA, 1 },      { 0xA7DC, 0xA7DC, -0xA641 },
                  { 0x10D50, 0x10D65, 0x20 }, { 0x16EA0, 0x16EB8, 0x1B } };
    if (code < 0x80)
        return code >= 'A' && code <= 'Z' ? code | 32 : code;
    for (size_t i = 0; code >= 0x1C89 && i < sizeof newer / sizeof newer[0];
         i++)
        if (code >= newer[i].from && code <= newer[i].to)
            return (uint32_t)((int32_t)code + newer[i].shift);
    return (uint32_t)utf8proc_tolower((int32_t)code);
}

/* Drops the characters that have a class of `mask`; `nul` too on request. */
typedef struct filter {
    xm_edit *edit;
    uint32_t last;
    int32_t removed;
    int any;
} filter;

static void filter_put(filter *f, uint32_t code, int keep)
{
    if (!keep) {
        f->removed++;
        return;
    }
    if (f->any)
        xm_edit_put(f->edit, f->last, -f->removed);
    else
        xm_edit_drop(f->edit, (size_t)f->removed);
    f->last = code;
    f->removed = 0;
    f->any = 1;
}

static void filter_end(filter *f)
{
    if (f->any)
        xm_edit_put(f->edit, f->last, -f->removed);
}

static void drop_class(const xm_classes *classes, unsigned mask, xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        filter_put(&f, code, !(xm_class(classes, code) & mask));
    }
    filter_end(&f);
}

static int nmt_drops(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) ||
           c == 0x7F || c == 0x8F || c == 0x9F;
}

static uint32_t nmt_maps(uint32_t c)
{
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                   (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                   c == 0x2581 || c == 0xFEFF || c == 0xFFFD
               ? ' '
               : c;
}

static void nmt(xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        filter_put(&f, nmt_maps(code), !nmt_drops(code));
    }
    filter_end(&f);
}

static void bert_clean(const xm_classes *classes, xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        unsigned class = xm_class(classes, code);
        filter_put(&f, class & XM_C_SPACE ? ' ' : code, !(class & XM_C_OTHER));
    }
    filter_end(&f);
}

static void bert_chinese(xm_edit *edit)
{
    uint32_t c;
    EACH(edit, i, length, c)
    {
        int chinese =
            (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
            (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
            (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
            (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
        if (chinese)
            xm_edit_put(edit, ' ', 0);
        xm_edit_put(edit, c, chinese);
        if (chinese)
            xm_edit_put(edit, ' ', 1);
    }
}

static void lower(xm_edit *edit)
{
    uint32_t code;
    EACH(edit, i, length, code)
    {
        xm_edit_put(edit, code == 0x130 ? 'i' : xm_lower(code), 0);
        if (code == 0x130)
            xm_edit_put(edit, 0x307, 1);
    }
}

static void alphabet(xm_edit *edit)
{
    const char *text = edit->in.text;
    for (size_t i = 0; i < edit->in.size; i++)
        xm_edit_put(edit, xm_alphabet_code((unsigned char)text[i]),
                    ((unsigned char)text[i] & 0xC0) == 0x80);
}

static void strip(const xm_classes *classes, const xm_norm *step, xm_edit *edit)
{
    const char *text = edit->in.text;
    size_t from = 0;
    size_t to = edit->in.size;
    size_t length;
    while (step->left && from < to &&
           xm_class(classes, xm_utf8_get(text + from, &length)) & XM_C_SPACE)
        from += length;
    while (step->right && to > from) {
        size_t start = xm_utf8_back(text, to);
        if (!(xm_class(classes, xm_utf8_get(text + start, &length)) &
              XM_C_SPACE))
            break;
        to = start;
    }
    xm_edit_copy(edit, from, to);
}

static void replace_string(const xm_norm *step, xm_edit *edit)
{
    size_t size = strlen(step->from);
    const char *text = edit->in.text;
    size_t done = 0;
    size_t at = 0;
    while (at + size <= edit->in.size) {
        const char *hit =
            memchr(text + at, step->from[0], edit->in.size - size + 1 - at);
        if (!hit)
            break;
        at = (size_t)(hit - text);
        if (memcmp(hit, step->from, size) != 0) {
            at++;
            continue;
        }
        xm_edit_copy(edit, done, at);
        at += size;
        done = at;
        xm_edit_replace(edit, step->to, at);
    }
    xm_edit_copy(edit, done, edit->in.size);
}

static xray_status replace_regex(xm_walk *w, const xm_norm *step, xm_edit *edit)
{
    xm_matches m = { .regex = step->regex,
                     .room = w->room->regex,
                     .text = edit->in.text,
                     .size = edit->in.size };
    size_t done = 0;
    int found = 1;
    xray_status status = XRAY_OK;
    while (!status && found && edit->in.size) {
        size_t from = 0;
        size_t to = 0;
        status = xm_regex_next(&m, w->err, &found, &from, &to);
        if (status || !found)
            break;
        xm_edit_copy(edit, done, from);
        xm_edit_replace(edit, step->to, to);
        done = to;
    }
    if (!status)
        xm_edit_copy(edit, done, edit->in.size);
    return status;
}

static xray_status run_step(xm_walk *w, const xm_norm *step, xm_edit *edit)
{
    const xm_classes *classes = &w->tok->classes;
    switch (step->kind) {
    case XM_NORM_PREPEND:
        xm_edit_prepend(edit, step->to);
        break;
    case XM_NORM_REPLACE:
        if (step->regex)
            return replace_regex(w, step, edit);
        replace_string(step, edit);
        break;
    case XM_NORM_NFC:
    case XM_NORM_NFD:
    case XM_NORM_NFKC:
    case XM_NORM_NFKD:
        if (xm_norm_unicode(w->tok, step->kind, edit))
            edit->out->text.failed = 1;
        break;
    case XM_NORM_STRIP:
        strip(classes, step, edit);
        break;
    case XM_NORM_ACCENTS:
        drop_class(classes, XM_C_MARK, edit);
        break;
    case XM_NORM_LOWER:
        lower(edit);
        break;
    case XM_NORM_NMT:
        nmt(edit);
        break;
    case XM_NORM_CHARSMAP:
        xm_charsmap_run(step->map, edit);
        break;
    case XM_NORM_BERT_CLEAN:
        bert_clean(classes, edit);
        break;
    case XM_NORM_BERT_CHINESE:
        bert_chinese(edit);
        break;
    case XM_NORM_BERT_ACCENTS:
        drop_class(classes, XM_C_ACCENT, edit);
        break;
    case XM_NORM_ALPHABET:
        alphabet(edit);
        break;
    }
    return XRAY_OK;
}

/* 1 where a step leaves the text alone, which is common and cheap to see. */
static int leaves(const xm_tokenizer *tok, const xm_norm *step,
                  const xm_piece *piece)
{
    unsigned mask = 0;
    if (!piece->size)
        return 1;
    if (step->kind == XM_NORM_REPLACE && step->from)
        return !memchr(piece->text, step->from[0], piece->size);
    if (step->kind == XM_NORM_NFC)
        mask = XM_C_NFC;
    else if (step->kind == XM_NORM_NFD)
        mask = XM_C_NFD | XM_C_COMBINES;
    else if (step->kind == XM_NORM_NFKC)
        mask = XM_C_NFC | XM_C_NFKD;
    else if (step->kind == XM_NORM_NFKD)
        mask = XM_C_NFKD | XM_C_COMBINES;
    else
        return 0;
    for (size_t i = 0, length; i < piece->size; i += length) {
        if ((unsigned char)piece->text[i] < 0x80) {
            length = 1;
            continue;
        }
        if (xm_class(&tok->classes, xm_utf8_get(piece->text + i, &length)) &
            mask)
            return 0;
    }
    return 1;
}

xray_status xm_norm_run(xm_walk *w, const xm_piece *piece, xm_piece *out)
{
    const xm_tokenizer *tok = w->tok;
    unsigned turn = 0;
    *out = *piece;
    for (size_t i = 0; i < tok->norm_count; i++) {
        if (leaves(tok, &tok->norm[i], out))
            continue;
        xm_edit edit = { .in = *out,
                         .out = &w->room->norm[turn],
                         .track = w->track,
                         .limit = w->limit };
        xm_text_clear(edit.out);
        xray_status status = run_step(w, &tok->norm[i], &edit);
        if (status)
            return status;
        if (edit.out->text.failed) {
            edit.out->text.failed = 0;
            return xm_walk_no_memory(w);
        }
        if (edit.too_long)
            return xm_walk_too_long(w);
        *out = xm_edit_done(&edit);
        turn = !turn;
    }
    return XRAY_OK;
}
