/* SPDX-License-Identifier: Apache-2.0
 *
 * A text on its way through the steps, and where in the original its bytes
 * come from.
 */
#ifndef XM_TOK_TEXT_H
#define XM_TOK_TEXT_H

#include "core/base/str.h"

/* Bytes [from, to) of the original. */
typedef struct xm_range {
    uint32_t from;
    uint32_t to;
} xm_range;

/* A growing text with one range for each byte, or with none. */
typedef struct xm_text {
    xr_str text;
    xm_range *map;
    size_t cap;
} xm_text;
void xm_text_free(xm_text *text);
void xm_text_clear(xm_text *text);

/* A part of a text. Without a map it is the original from `base` on. */
typedef struct xm_piece {
    const char *text;
    size_t size;
    const xm_range *map;
    size_t base; /* where the part of the original that it stands for starts */
} xm_piece;
/* The characters that bytes [from, to) of a piece belong to, in the original;
 * of none, an empty range. */
xm_range xm_piece_range(const xm_piece *piece, size_t from, size_t to);
xm_piece xm_piece_cut(const xm_piece *piece, size_t from, size_t to);

/* Writing a text from another, as the Hugging Face library tracks it: a
 * character takes the place of one (change 0), of one and some that vanish
 * (change -n), or comes in addition (change 1) and then belongs where the byte
 * before belongs. */
typedef struct xm_edit {
    xm_piece in;
    xm_text *out;
    int track;
    size_t limit; /* of the output; beyond it `too_long` is set */
    int too_long;
    size_t at; /* read so far, where `track` is set */
} xm_edit;
void xm_edit_put(xm_edit *edit, uint32_t code, int32_t change);
/* The next `count` characters vanish: at the start only. */
void xm_edit_drop(xm_edit *edit, size_t count);
/* Bytes [from, to) of the input as they are, without moving `at`. */
void xm_edit_copy(xm_edit *edit, size_t from, size_t to);
/* `text` in the place of bytes [from, to). */
void xm_edit_replace(xm_edit *edit, const char *text, size_t to);
/* `text` in front of the first character. */
void xm_edit_prepend(xm_edit *edit, const char *text);
xm_piece xm_edit_done(const xm_edit *edit);

#endif
