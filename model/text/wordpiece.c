/* SPDX-License-Identifier: Apache-2.0
 *
 * Words to ids by looking them up: WordPiece and WordLevel.
 */
#include <string.h>

#include "model/text/tok.h"

static xray_status unknown(xm_walk *w, const char *text, size_t size)
{
    if (w->tok->model.unk_id < 0)
        return xr_fail(w->err, XRAY_E_CONFIG,
                       "tokenizer: \"%.*s\" is not in the vocabulary, which "
                       "has no unk_token",
                       (int)(size < 100 ? size : 100), text);
    return xm_walk_push(w, w->tok->model.unk_id, 0, size) ? xm_walk_no_memory(w)
                                                          : XRAY_OK;
}

xray_status xm_wordlevel_word(xm_walk *w, const char *text, size_t size)
{
    int32_t id = xm_vocab_get(&w->tok->ids, text, size);
    if (id < 0)
        return unknown(w, text, size);
    return xm_walk_push(w, id, 0, size) ? xm_walk_no_memory(w) : XRAY_OK;
}

/* The longest piece of the vocabulary that the rest begins with; its id. */
static int32_t longest(const xm_walk *w, const char *text, size_t size,
                       int first, size_t *out_size)
{
    const xm_model *m = &w->tok->model;
    xr_str *key = &w->room->scratch;
    if (size > m->longest_piece) {
        size = m->longest_piece;
        while (size && ((unsigned char)text[size] & 0xC0) == 0x80)
            size--;
    }
    xr_str_clear(key);
    xr_str_puts(key, first ? "" : m->prefix);
    size_t head = key->size;
    xr_str_append(key, text, size);
    if (key->failed)
        return -2;
    while (size) {
        int32_t id = xm_vocab_get(&w->tok->ids, key->data, head + size);
        *out_size = size;
        if (id >= 0)
            return id;
        size = xm_utf8_back(text, size);
    }
    return -1;
}

xray_status xm_wordpiece_word(xm_walk *w, const char *text, size_t size)
{
    size_t chars = 0;
    size_t from = w->ids->count;
    size_t span = w->spans ? w->spans->count : 0;
    for (size_t i = 0; i < size; i++)
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (chars > w->tok->model.longest_word)
        return unknown(w, text, size);
    for (size_t at = 0, length = 0; at < size; at += length) {
        int32_t id = longest(w, text + at, size - at, at == 0, &length);
        if (id == -2 || (id >= 0 && xm_walk_push(w, id, at, at + length))) {
            w->room->scratch.failed = 0;
            return xm_walk_no_memory(w);
        }
        if (id >= 0)
            continue;
        w->ids->count = from;
        if (w->spans)
            w->spans->count = span;
        return unknown(w, text, size);
    }
    return XRAY_OK;
}
