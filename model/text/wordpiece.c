/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes words by looking them up: WordPiece and WordLevel.
 */
#include <string.h>

#include "model/text/internal.h"

static xray_status push_unknown_id(xm_encoding *enc, const char *text,
                                   size_t size)
{
    if (enc->tok->model.unk_id < 0)
        return xr_fail(enc->err, XRAY_E_CONFIG,
                       "tokenizer: \"%.*s\" is not in the vocabulary, which "
                       "has no unk_token",
                       (int)(size < 100 ? size : 100), text);
    return xm_push_id(enc, enc->tok->model.unk_id, 0, size)
               ? xm_encode_no_memory(enc)
               : XRAY_OK;
}

xray_status xm_wordlevel_word(xm_encoding *enc, const char *text, size_t size)
{
    int32_t id = xm_vocab_get(&enc->tok->ids, text, size);
    if (id < 0)
        return push_unknown_id(enc, text, size);
    return xm_push_id(enc, id, 0, size) ? xm_encode_no_memory(enc) : XRAY_OK;
}

/* Returns the id of the longest piece that the text starts with; -1: none, -2:
 * out of memory. */
static int32_t find_longest_piece(const xm_encoding *enc, const char *text,
                                  size_t size, int first, size_t *out_size)
{
    const xm_model *m = &enc->tok->model;
    xr_str *key = &enc->workspace->scratch;
    if (size > m->longest_piece) {
        size = m->longest_piece;
        while (size && ((unsigned char)text[size] & 0xC0) == 0x80)
            size--;
    }
    xr_str_clear(key);
    xr_str_puts(key, first ? "" : m->prefix);
    size_t prefix_size = key->size;
    xr_str_append(key, text, size);
    if (key->failed)
        return -2;
    while (size) {
        int32_t id =
            xm_vocab_get(&enc->tok->ids, key->data, prefix_size + size);
        *out_size = size;
        if (id >= 0)
            return id;
        size = xm_utf8_back(text, size);
    }
    return -1;
}

xray_status xm_wordpiece_word(xm_encoding *enc, const char *text, size_t size)
{
    size_t chars = 0;
    size_t from = enc->ids->count;
    size_t span = enc->spans ? enc->spans->count : 0;
    for (size_t i = 0; i < size; i++)
        chars += ((unsigned char)text[i] & 0xC0) != 0x80;
    if (chars > enc->tok->model.longest_word)
        return push_unknown_id(enc, text, size);
    for (size_t at = 0, length = 0; at < size; at += length) {
        int32_t id =
            find_longest_piece(enc, text + at, size - at, at == 0, &length);
        if (id == -2 || (id >= 0 && xm_push_id(enc, id, at, at + length))) {
            enc->workspace->scratch.failed = 0;
            return xm_encode_no_memory(enc);
        }
        if (id >= 0)
            continue;
        enc->ids->count = from;
        if (enc->spans)
            enc->spans->count = span;
        return push_unknown_id(enc, text, size);
    }
    return XRAY_OK;
}
