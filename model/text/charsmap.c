/* SPDX-License-Identifier: Apache-2.0
 *
 * Applies SentencePiece's precompiled_charsmap: a double-array trie, in the
 * layout of Darts-clone, over the strings to replace, followed by the
 * replacements, each terminated by NUL.
 */
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

#include "model/text/internal.h"

struct xm_charsmap {
    uint32_t *units;
    size_t unit_count;
    char *texts;
    size_t text_size;
};

static int read_base64_digit(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrs"
                                 "tuvwxyz0123456789+/";
    const char *hit = c ? strchr(digits, c) : NULL;
    return hit ? (int)(hit - digits) : -1;
}

/* Returns the decoded bytes, or NULL. */
static unsigned char *decode_base64(const char *text, size_t *out_size)
{
    size_t size = strlen(text);
    unsigned char *bytes = malloc(size / 4 * 3 + 4);
    size_t used = 0;
    size_t pad = size >= 2 && text[size - 1] == '='
                     ? 1 + (size_t)(text[size - 2] == '=')
                     : 0;
    int bad = size % 4 != 0;
    for (size_t i = 0; bytes && !bad && i < size; i += 4) {
        uint32_t word = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = i + k >= size - pad ? 0 : read_base64_digit(text[i + k]);
            bad |= d < 0;
            word = word << 6 | (uint32_t)(d & 63);
        }
        bytes[used++] = (unsigned char)(word >> 16);
        bytes[used++] = (unsigned char)(word >> 8);
        bytes[used++] = (unsigned char)word;
    }
    if (bad) {
        free(bytes);
        return NULL;
    }
    *out_size = used - pad;
    return bytes;
}

static uint32_t read_le_word(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 |
           (uint32_t)at[3] << 24;
}

/* Splits the bytes into trie and replacements; -1: not a charsmap, -2: out of
 * memory. */
static int split_charsmap(xm_charsmap *map, const unsigned char *bytes,
                          size_t size)
{
    if (size < 4)
        return -1;
    uint32_t trie = read_le_word(bytes) / 4;
    if (trie > (size - 4) / 4)
        return -1;
    map->unit_count = trie;
    map->text_size = size - 4 - (size_t)trie * 4;
    map->units = xr_calloc(trie + (size_t)1, sizeof *map->units);
    map->texts = malloc(map->text_size + 1);
    if (!map->units || !map->texts)
        return -2;
    for (size_t i = 0; i < trie; i++)
        map->units[i] = read_le_word(bytes + 4 + i * 4);
    memcpy(map->texts, bytes + size - map->text_size, map->text_size);
    map->texts[map->text_size] = '\0';
    const char *end = map->texts + map->text_size;
    for (const char *at = map->texts; at < end;) {
        uint32_t code;
        int length = xr_utf8_decode(at, end, &code);
        if (!length)
            return -1;
        at += length;
    }
    return 0;
}

xray_status xm_charsmap_open(const char *base64, const char *where, xr_err *err,
                             xm_charsmap **out)
{
    size_t size = 0;
    xm_charsmap *map = xr_calloc(1, sizeof *map);
    unsigned char *bytes = map ? decode_base64(base64, &size) : NULL;
    int bad = !map ? -2 : !bytes ? -1 : split_charsmap(map, bytes, size);
    free(bytes);
    if (bad) {
        xm_charsmap_close(map);
        return bad == -2
                   ? xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where)
                   : xr_fail(err, XRAY_E_CONFIG,
                             "%s: normalizer Precompiled: "
                             "\"precompiled_charsmap\" is not a SentencePiece "
                             "charsmap in base64",
                             where);
    }
    *out = map;
    return XRAY_OK;
}

void xm_charsmap_close(xm_charsmap *map)
{
    if (!map)
        return;
    free(map->units);
    free(map->texts);
    free(map);
}

static size_t get_child_offset(uint32_t unit)
{
    return (size_t)(unit >> 10) << ((unit & (1u << 9)) >> 6);
}

/* Returns the replacement of the shortest entry that the text starts with, or
 * NULL. The library takes that one and ignores longer entries. */
static const char *find_replacement(const xm_charsmap *map, const char *text,
                                    size_t size)
{
    if (!map->unit_count)
        return NULL;
    size_t at = get_child_offset(map->units[0]);
    for (size_t i = 0; i < size && text[i]; i++) {
        unsigned c = (unsigned char)text[i];
        at ^= c;
        if (at >= map->unit_count || (map->units[at] & (1u << 31 | 0xFFu)) != c)
            return NULL;
        uint32_t unit = map->units[at];
        at ^= get_child_offset(unit);
        if (!(unit >> 8 & 1))
            continue;
        if (at >= map->unit_count)
            return NULL;
        size_t index = map->units[at] & ~(1u << 31);
        if (index > map->text_size ||
            ((unsigned char)map->texts[index] & 0xC0) == 0x80)
            return NULL;
        return map->texts + index;
    }
    return NULL;
}

/* Delays each character until the next one is put, because a removal is
 * recorded with the last character before it. */
typedef struct writer {
    xm_edit *edit;
    uint32_t code;
    int32_t change;
    int held;
} writer;

static void write_delayed_char(writer *w, uint32_t code, int32_t change)
{
    if (w->held)
        xm_edit_put(w->edit, w->code, w->change);
    w->code = code;
    w->change = change;
    w->held = 1;
}

static size_t count_chars(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

static void replace_chars(writer *w, const char *old, size_t old_size,
                          const char *made)
{
    size_t size = strlen(made);
    size_t before = count_chars(old, old_size);
    size_t after = count_chars(made, size);
    size_t number = 0;
    for (size_t i = 0, length; i < size; i += length) {
        uint32_t code = xm_utf8_get(made + i, &length);
        write_delayed_char(w, code, number++ >= before);
    }
    if (after < before && w->held)
        w->change -= (int32_t)(before - after);
}

/* Returns the end of the grapheme that starts at `from`. */
static size_t find_grapheme_end(const xm_piece *in, size_t from)
{
    int32_t state = 0;
    size_t length;
    uint32_t last = xm_utf8_get(in->text + from, &length);
    size_t at = from + length;
    while (at < in->size) {
        uint32_t next = xm_utf8_get(in->text + at, &length);
        if (utf8proc_grapheme_break_stateful((int32_t)last, (int32_t)next,
                                             &state))
            break;
        last = next;
        at += length;
    }
    return at;
}

int xm_charsmap_run(const xm_charsmap *map, xm_edit *edit)
{
    writer w = { .edit = edit };
    const char *text = edit->in.text;
    for (size_t i = 0; i < edit->in.size;) {
        size_t end = find_grapheme_end(&edit->in, i);
        const char *made =
            end - i < 6 ? find_replacement(map, text + i, end - i) : NULL;
        if (made) {
            replace_chars(&w, text + i, end - i, made);
            i = end;
            continue;
        }
        for (size_t length; i < end; i += length) {
            uint32_t code = xm_utf8_get(text + i, &length);
            made = find_replacement(map, text + i, length);
            if (made)
                replace_chars(&w, text + i, length, made);
            else
                write_delayed_char(&w, code, 0);
        }
    }
    if (w.held)
        xm_edit_put(edit, w.code, w.change);
    return 0;
}
