/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the steps of a normalizer on a text.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/text/internal.h"

/* Loops over the characters of the input. */
#define EACH(e, i, length, code)                             \
    for (size_t i = 0, length = 0;                           \
         i < (e)->in.size &&                                 \
         (code = xm_utf8_get((e)->in.text + i, &length), 1); \
         i += length)

uint32_t xm_lower_char(uint32_t code)
{
    /* Mappings that the oldest supported utf8proc does not have. */
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

/* Removes characters. Each kept one is delayed by one, because a removal is
 * recorded with the kept character before it. */
typedef struct filter {
    xm_edit *edit;
    uint32_t last;
    int32_t removed;
    int any;
} filter;

static void filter_char(filter *f, uint32_t code, int keep)
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

static void flush_filter(filter *f)
{
    if (f->any)
        xm_edit_put(f->edit, f->last, -f->removed);
}

static void drop_char_class(const xm_char_classes *classes, unsigned mask,
                            xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        filter_char(&f, code, !(xm_char_class(classes, code) & mask));
    }
    flush_filter(&f);
}

static int is_dropped_by_nmt(uint32_t c)
{
    return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) ||
           c == 0x7F || c == 0x8F || c == 0x9F;
}

static uint32_t map_nmt_char(uint32_t c)
{
    return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
                   (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                   c == 0x2581 || c == 0xFEFF || c == 0xFFFD
               ? ' '
               : c;
}

static void apply_nmt(xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        filter_char(&f, map_nmt_char(code), !is_dropped_by_nmt(code));
    }
    flush_filter(&f);
}

static void clean_bert_text(const xm_char_classes *classes, xm_edit *edit)
{
    filter f = { .edit = edit };
    uint32_t code;
    EACH(edit, i, length, code)
    {
        unsigned class = xm_char_class(classes, code);
        filter_char(&f, class & XM_C_SPACE ? ' ' : code, !(class & XM_C_OTHER));
    }
    flush_filter(&f);
}

static void space_chinese_chars(xm_edit *edit)
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

static void lowercase_text(xm_edit *edit)
{
    uint32_t code;
    EACH(edit, i, length, code)
    {
        xm_edit_put(edit, code == 0x130 ? 'i' : xm_lower_char(code), 0);
        if (code == 0x130)
            xm_edit_put(edit, 0x307, 1);
    }
}

static void write_byte_alphabet(xm_edit *edit)
{
    const char *text = edit->in.text;
    for (size_t i = 0; i < edit->in.size; i++)
        xm_edit_put(edit, xm_alphabet_code((unsigned char)text[i]),
                    ((unsigned char)text[i] & 0xC0) == 0x80);
}

static void strip_spaces(const xm_char_classes *classes,
                         const xm_norm_step *step, xm_edit *edit)
{
    const char *text = edit->in.text;
    size_t from = 0;
    size_t to = edit->in.size;
    size_t length;
    while (step->left && from < to &&
           xm_char_class(classes, xm_utf8_get(text + from, &length)) &
               XM_C_SPACE)
        from += length;
    while (step->right && to > from) {
        size_t start = xm_utf8_back(text, to);
        if (!(xm_char_class(classes, xm_utf8_get(text + start, &length)) &
              XM_C_SPACE))
            break;
        to = start;
    }
    xm_edit_copy(edit, from, to);
}

static void replace_string(const xm_norm_step *step, xm_edit *edit)
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

static xray_status replace_matches(xm_encoding *enc, const xm_norm_step *step,
                                   xm_edit *edit)
{
    xm_matches m = { .regex = step->regex,
                     .workspace = enc->workspace->regex,
                     .text = edit->in.text,
                     .size = edit->in.size };
    size_t done = 0;
    int found = 1;
    xray_status status = XRAY_OK;
    while (!status && found && edit->in.size) {
        size_t from = 0;
        size_t to = 0;
        status = xm_regex_next(&m, enc->err, &found, &from, &to);
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

static xray_status run_norm_step(xm_encoding *enc, const xm_norm_step *step,
                                 xm_edit *edit)
{
    const xm_char_classes *classes = &enc->tok->classes;
    switch (step->kind) {
    case XM_NORM_PREPEND:
        xm_edit_prepend(edit, step->to);
        break;
    case XM_NORM_REPLACE:
        if (step->regex)
            return replace_matches(enc, step, edit);
        replace_string(step, edit);
        break;
    case XM_NORM_NFC:
    case XM_NORM_NFD:
    case XM_NORM_NFKC:
    case XM_NORM_NFKD:
        if (xm_normalize_unicode(enc->tok, step->kind, edit))
            edit->out->text.failed = 1;
        break;
    case XM_NORM_STRIP:
        strip_spaces(classes, step, edit);
        break;
    case XM_NORM_ACCENTS:
        drop_char_class(classes, XM_C_MARK, edit);
        break;
    case XM_NORM_LOWER:
        lowercase_text(edit);
        break;
    case XM_NORM_NMT:
        apply_nmt(edit);
        break;
    case XM_NORM_CHARSMAP:
        xm_charsmap_run(step->map, edit);
        break;
    case XM_NORM_BERT_CLEAN:
        clean_bert_text(classes, edit);
        break;
    case XM_NORM_BERT_CHINESE:
        space_chinese_chars(edit);
        break;
    case XM_NORM_BERT_ACCENTS:
        drop_char_class(classes, XM_C_ACCENT, edit);
        break;
    case XM_NORM_ALPHABET:
        write_byte_alphabet(edit);
        break;
    }
    return XRAY_OK;
}

/* Whether a step leaves the text unchanged, which is common and cheap to
 * test. */
static int leaves_unchanged(const xm_tokenizer *tok, const xm_norm_step *step,
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
        if (xm_char_class(&tok->classes,
                          xm_utf8_get(piece->text + i, &length)) &
            mask)
            return 0;
    }
    return 1;
}

xray_status xm_normalize(xm_encoding *enc, const xm_piece *piece, xm_piece *out)
{
    const xm_tokenizer *tok = enc->tok;
    unsigned turn = 0;
    *out = *piece;
    for (size_t i = 0; i < tok->norm_count; i++) {
        if (leaves_unchanged(tok, &tok->norm[i], out))
            continue;
        xm_edit edit = { .in = *out,
                         .out = &enc->workspace->norm[turn],
                         .track = enc->track,
                         .limit = enc->limit };
        xm_text_clear(edit.out);
        xray_status status = run_norm_step(enc, &tok->norm[i], &edit);
        if (status)
            return status;
        if (edit.out->text.failed) {
            edit.out->text.failed = 0;
            return xm_encode_no_memory(enc);
        }
        if (edit.too_long)
            return xm_encode_too_long(enc);
        *out = xm_edit_done(&edit);
        turn = !turn;
    }
    return XRAY_OK;
}
