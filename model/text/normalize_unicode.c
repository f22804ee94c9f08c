/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts text to NFC, NFD, NFKC and NFKD with the changes that the Hugging
 * Face library counts. Its Unicode is older than utf8proc's; the character
 * classes tell which characters it knows.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/text/internal.h"

typedef struct mark {
    uint32_t code;
    int32_t change;
    unsigned group; /* canonical combining class */
} mark;

typedef struct marks {
    mark *data;
    size_t count;
    size_t cap;
} marks;

static int push_mark(marks *list, mark m)
{
    if (xm_grow_buffer((void **)&list->data, &list->cap, list->count + 1,
                       sizeof m))
        return -1;
    list->data[list->count++] = m;
    return 0;
}

static unsigned get_combining_class(const xm_char_classes *classes,
                                    uint32_t code)
{
    if (!(xm_char_class(classes, code) & XM_C_COMBINES))
        return 0;
    return (uint32_t)utf8proc_get_property((int32_t)code)->combining_class &
           255u;
}

static int decompose_char(const xm_char_classes *classes, uint32_t code,
                          int compat, marks *out)
{
    utf8proc_int32_t made[32];
    int unused = 0;
    unsigned class = xm_char_class(classes, code);
    if (!(class & (compat ? XM_C_NFKD : XM_C_NFD)))
        return push_mark(out,
                         (mark){ code, 0, get_combining_class(classes, code) });
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    options |= compat ? UTF8PROC_COMPAT : 0;
    utf8proc_ssize_t count = utf8proc_decompose_char(
        (int32_t)code, made, 32, (utf8proc_option_t)options, &unused);
    if (count < 0 || count > 32)
        return -1;
    for (utf8proc_ssize_t i = 0; i < count; i++) {
        uint32_t c = (uint32_t)made[i];
        if (push_mark(out, (mark){ c, i > 0, get_combining_class(classes, c) }))
            return -1;
    }
    return 0;
}

/* Sorts marks by combining class and keeps the order within a class. */
static int sort_mark_run(mark *run, size_t count)
{
    if (count <= 16) {
        for (size_t i = 1; i < count; i++) {
            mark m = run[i];
            size_t k = i;
            for (; k && run[k - 1].group > m.group; k--)
                run[k] = run[k - 1];
            run[k] = m;
        }
        return 0;
    }
    size_t start[257] = { 0 };
    mark *sorted = malloc(count * sizeof *sorted);
    if (!sorted)
        return -1;
    for (size_t i = 0; i < count; i++)
        start[run[i].group + 1]++;
    for (size_t g = 1; g < 257; g++)
        start[g] += start[g - 1];
    for (size_t i = 0; i < count; i++)
        sorted[start[run[i].group]++] = run[i];
    memcpy(run, sorted, count * sizeof *run);
    free(sorted);
    return 0;
}

static int sort_marks(marks *list)
{
    for (size_t i = 0; i < list->count; i++) {
        size_t from = i;
        while (i < list->count && list->data[i].group)
            i++;
        if (i - from > 1 && sort_mark_run(list->data + from, i - from))
            return -1;
    }
    return 0;
}

/* Returns the character that two characters compose to, or 0. In contrast to
 * utf8proc, the library composes U+11A7 with nothing. */
static uint32_t compose_pair(const xm_char_classes *classes, uint32_t a,
                             uint32_t b)
{
    int32_t both[2] = { (int32_t)a, (int32_t)b };
    if (b < 0x300 || b == 0x11A7 || !(xm_char_class(classes, b) & XM_C_NFC))
        return 0;
    utf8proc_ssize_t left =
        utf8proc_normalize_utf32(both, 2, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    if (left != 1 || !(xm_char_class(classes, (uint32_t)both[0]) & XM_C_NFD))
        return 0;
    return (uint32_t)both[0];
}

static void compose_marks(const xm_char_classes *classes, marks *list)
{
    size_t made = 0;
    size_t starter = SIZE_MAX;
    unsigned last = 0; /* combining class of the last mark after the starter */
    for (size_t i = 0; i < list->count; i++) {
        mark m = list->data[i];
        if (starter != SIZE_MAX && (!last || last < m.group)) {
            mark *s = &list->data[starter];
            uint32_t code = compose_pair(classes, s->code, m.code);
            if (code) {
                s->code = code;
                s->change += m.change - 1;
                continue;
            }
        }
        if (!m.group)
            starter = made;
        last = m.group;
        list->data[made++] = m;
    }
    list->count = made;
}

/* Writes the input up to `to`, decomposed and, for NFC and NFKC, composed
 * again. */
static int rewrite_range(const xm_tokenizer *tok, enum xm_norm_kind kind,
                         xm_edit *edit, size_t to, marks *list)
{
    int compat = kind == XM_NORM_NFKC || kind == XM_NORM_NFKD;
    size_t length;
    list->count = 0;
    for (size_t i = edit->at; i < to; i += length)
        if (decompose_char(&tok->classes,
                           xm_utf8_get(edit->in.text + i, &length), compat,
                           list))
            return -1;
    if (sort_marks(list))
        return -1;
    if (kind == XM_NORM_NFC || kind == XM_NORM_NFKC)
        compose_marks(&tok->classes, list);
    for (size_t i = 0; i < list->count; i++)
        xm_edit_put(edit, list->data[i].code, list->data[i].change);
    edit->at = to;
    return 0;
}

int xm_normalize_unicode(const xm_tokenizer *tok, enum xm_norm_kind kind,
                         xm_edit *edit)
{
    unsigned mask = kind == XM_NORM_NFC    ? XM_C_NFC
                    : kind == XM_NORM_NFD  ? XM_C_NFD | XM_C_COMBINES
                    : kind == XM_NORM_NFKC ? XM_C_NFC | XM_C_NFKD
                                           : XM_C_NFKD | XM_C_COMBINES;
    marks list = { 0 };
    size_t last = 0; /* offset of the character before */
    size_t done = 0;
    int failed = 0;
    for (size_t i = 0, length; !failed && i < edit->in.size; i += length) {
        uint32_t code = xm_utf8_get(edit->in.text + i, &length);
        if (!(xm_char_class(&tok->classes, code) & mask)) {
            last = i;
            continue;
        }
        /* The range starts at the character before, which may combine, and ends
         * at the next one that cannot. */
        size_t from = last >= done ? last : done;
        for (i += length; i < edit->in.size; i += length)
            if (!(xm_char_class(&tok->classes,
                                xm_utf8_get(edit->in.text + i, &length)) &
                  mask))
                break;
        xm_edit_copy(edit, done, from);
        edit->at = from;
        failed = rewrite_range(tok, kind, edit, i, &list);
        done = i;
        last = i;
        length = 0;
    }
    xm_edit_copy(edit, done, edit->in.size);
    free(list.data);
    return failed;
}
