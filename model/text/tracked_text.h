/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares texts that remember, byte by byte, which part of the original text
 * they come from, and edits that keep that record as the Hugging Face library
 * does.
 */
#ifndef XM_TRACKED_TEXT_H
#define XM_TRACKED_TEXT_H

#include "core/base/str.h"

/* Bytes [from, to) of the original text. */
typedef struct xm_range {
    uint32_t from;
    uint32_t to;
} xm_range;

/* A growing text, with one range of the original per byte if it is tracked. */
typedef struct xm_text {
    xr_str text;
    xm_range *map;
    size_t cap;
} xm_text;
void xm_text_free(xm_text *text);
void xm_text_clear(xm_text *text);

/* A borrowed part of a text. Without a map it is the original itself from
 * offset `base` on. */
typedef struct xm_piece {
    const char *text;
    size_t size;
    const xm_range *map;
    size_t base; /* offset in the original at which the part starts */
} xm_piece;
/* The range in the original of the characters that bytes [from, to) of a piece
 * come from; empty if there are no such bytes. */
xm_range xm_piece_range(const xm_piece *piece, size_t from, size_t to);
xm_piece xm_piece_cut(const xm_piece *piece, size_t from, size_t to);

/* Writes a text from another one and tracks it as the Hugging Face library
 * does. A new character replaces one character (change 0), replaces one and
 * removes the n after it (change -n), or is inserted (change 1); an inserted
 * one gets the range of the byte before it. */
typedef struct xm_edit {
    xm_piece in;
    xm_text *out;
    int track;
    size_t limit; /* most bytes of output; past it `too_long` is set */
    int too_long;
    size_t at; /* bytes of input read so far, if `track` is set */
} xm_edit;
void xm_edit_put(xm_edit *edit, uint32_t code, int32_t change);
/* Removes the next `count` characters. Only valid at the start. */
void xm_edit_drop(xm_edit *edit, size_t count);
/* Copies bytes [from, to) of the input unchanged, without moving `at`. */
void xm_edit_copy(xm_edit *edit, size_t from, size_t to);
/* Writes `text` in place of the input bytes that end at `to`. */
void xm_edit_replace(xm_edit *edit, const char *text, size_t to);
/* Copies the complete input with `text` in front of its first character. */
void xm_edit_prepend(xm_edit *edit, const char *text);
xm_piece xm_edit_done(const xm_edit *edit);

#endif
