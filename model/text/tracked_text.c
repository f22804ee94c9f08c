/* SPDX-License-Identifier: Apache-2.0
 *
 * Edits texts whose bytes keep the range of the original they come from.
 */
#include "model/text/tracked_text.h"

#include <stdlib.h>
#include <string.h>

#include "model/text/char_class.h"

void xm_text_free(xm_text *text)
{
    xr_str_free(&text->text);
    free(text->map);
    *text = (xm_text){ 0 };
}

void xm_text_clear(xm_text *text)
{
    xr_str_clear(&text->text);
}

static xm_range get_byte_range(const xm_piece *piece, size_t at)
{
    if (piece->map)
        return piece->map[at];
    size_t from = at;
    size_t length = 0;
    while (from && ((unsigned char)piece->text[from] & 0xC0) == 0x80)
        from--;
    (void)xm_utf8_get(piece->text + from, &length);
    return (xm_range){ (uint32_t)(piece->base + from),
                       (uint32_t)(piece->base + from + length) };
}

xm_range xm_piece_range(const xm_piece *piece, size_t from, size_t to)
{
    to = to < piece->size ? to : piece->size;
    if (from >= to) {
        uint32_t at = (uint32_t)(piece->base + from);
        return (xm_range){ at, at };
    }
    return (xm_range){ get_byte_range(piece, from).from,
                       get_byte_range(piece, to - 1).to };
}

xm_piece xm_piece_cut(const xm_piece *piece, size_t from, size_t to)
{
    return (xm_piece){ .text = piece->text + from,
                       .size = to - from,
                       .map = piece->map ? piece->map + from : NULL,
                       .base = piece->map && from < to ? piece->map[from].from
                               : piece->map            ? piece->base
                                                       : piece->base + from };
}

/* Makes space in the map for the bytes that `out` has grown by. */
static void grow_range_map(xm_text *out, size_t from)
{
    if (out->text.size <= out->cap || out->text.failed)
        return;
    size_t cap = out->text.size + out->text.size / 2 + 64;
    xm_range *map = realloc(out->map, cap * sizeof *map);
    if (!map) {
        out->text.failed = 1;
        out->text.size = from;
        return;
    }
    out->map = map;
    out->cap = cap;
}

static void append_bytes(xm_edit *edit, const char *bytes, size_t size,
                         xm_range range)
{
    xm_text *out = edit->out;
    size_t from = out->text.size;
    if (size > edit->limit - from) {
        edit->too_long = 1;
        return;
    }
    xr_str_append(&out->text, bytes, size);
    if (!edit->track)
        return;
    grow_range_map(out, from);
    for (size_t i = from; i < out->text.size; i++)
        out->map[i] = range;
}

/* The range of a text that is inserted at `at`. */
static xm_range get_range_before(const xm_edit *edit, size_t at)
{
    uint32_t base = (uint32_t)edit->in.base;
    return at ? get_byte_range(&edit->in, at - 1) : (xm_range){ base, base };
}

static void skip_chars(xm_edit *edit, size_t count)
{
    size_t length;
    for (; count && edit->at < edit->in.size; count--) {
        (void)xm_utf8_get(edit->in.text + edit->at, &length);
        edit->at += length;
    }
}

void xm_edit_put(xm_edit *edit, uint32_t code, int32_t change)
{
    char bytes[4];
    size_t size = (size_t)xr_utf8_encode(code, bytes);
    xm_range range = { 0, 0 };
    if (edit->track) {
        range = change > 0 || edit->at >= edit->in.size
                    ? get_range_before(edit, edit->at)
                    : get_byte_range(&edit->in, edit->at);
        if (change <= 0)
            skip_chars(edit, (size_t)1 + (size_t)-change);
    }
    append_bytes(edit, bytes, size, range);
}

void xm_edit_drop(xm_edit *edit, size_t count)
{
    if (edit->track)
        skip_chars(edit, count);
}

void xm_edit_copy(xm_edit *edit, size_t from, size_t to)
{
    xm_text *out = edit->out;
    size_t at = out->text.size;
    if (from == to)
        return;
    if (to - from > edit->limit - at) {
        edit->too_long = 1;
        return;
    }
    xr_str_append(&out->text, edit->in.text + from, to - from);
    if (!edit->track)
        return;
    grow_range_map(out, at);
    if (out->text.failed)
        return;
    if (edit->in.map) {
        memcpy(out->map + at, edit->in.map + from,
               (to - from) * sizeof(xm_range));
        return;
    }
    for (size_t length; from < to; from += length) {
        (void)xm_utf8_get(edit->in.text + from, &length);
        xm_range range = { (uint32_t)(edit->in.base + from),
                           (uint32_t)(edit->in.base + from + length) };
        for (size_t i = 0; i < length; i++)
            out->map[at++] = range;
    }
}

void xm_edit_replace(xm_edit *edit, const char *text, size_t to)
{
    append_bytes(edit, text, strlen(text),
                 edit->track ? get_range_before(edit, to) : (xm_range){ 0, 0 });
}

void xm_edit_prepend(xm_edit *edit, const char *text)
{
    size_t length = 0;
    if (!edit->in.size)
        return;
    (void)xm_utf8_get(edit->in.text, &length);
    xm_range first = get_byte_range(&edit->in, 0);
    append_bytes(edit, text, strlen(text), first);
    /* If `text` is empty, the library counts the first character as
     * inserted. */
    append_bytes(edit, edit->in.text, length,
                 *text ? first : get_range_before(edit, 0));
    xm_edit_copy(edit, length, edit->in.size);
}

xm_piece xm_edit_done(const xm_edit *edit)
{
    return (xm_piece){ .text = xr_str_text(&edit->out->text),
                       .size = edit->out->text.size,
                       .map = edit->track ? edit->out->map : NULL,
                       .base = edit->in.base };
}
