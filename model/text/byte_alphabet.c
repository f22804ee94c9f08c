/* SPDX-License-Identifier: Apache-2.0
 *
 * Converts between bytes and the byte-level alphabet, which writes bytes as
 * printable characters, and repairs bytes that are not valid UTF-8.
 */
#include <string.h>

#include "model/text/internal.h"

/* Three groups of bytes do not stand for themselves: 0 to 32, 127 to 160, and
 * 173. */
#define LOW 33u
#define MIDDLE 34u
#define LAST (256u + LOW + MIDDLE)

uint32_t xm_alphabet_code(unsigned byte)
{
    if (byte < LOW)
        return 256u + byte;
    if (byte >= 127u && byte <= 160u)
        return 256u + LOW + (byte - 127u);
    return byte == 173u ? LAST : byte;
}

/* Returns -1 for a character outside the alphabet. */
static int find_alphabet_byte(uint32_t code)
{
    if (code > LAST || code == 173u)
        return -1;
    if (code >= 256u + LOW)
        return code == LAST ? 173 : (int)(code - 256u - LOW + 127u);
    if (code >= 256u)
        return (int)(code - 256u);
    return code < LOW || (code >= 127u && code <= 160u) ? -1 : (int)code;
}

int xm_alphabet_read(const char *text, size_t size, xr_str *out)
{
    size_t start = out->size;
    char made[64];
    size_t used = 0;
    for (size_t i = 0, length; i < size; i += length) {
        int byte = find_alphabet_byte(xm_utf8_get(text + i, &length));
        if (byte < 0) {
            out->size = start;
            return 0;
        }
        made[used++] = (char)byte;
        if (used < sizeof made)
            continue;
        xr_str_append(out, made, used);
        used = 0;
    }
    xr_str_append(out, made, used);
    return 1;
}

/* Returns how many bytes at `at`, where no complete character starts, are one
 * error: a lead byte and the bytes after it that still fit a character. */
static size_t count_broken_bytes(const char *at, const char *end)
{
    unsigned lead = (unsigned char)*at;
    unsigned low = 0x80;
    unsigned high = 0xBF;
    size_t needed = 1;
    if (lead >= 0xC2 && lead <= 0xF4)
        needed = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (lead == 0xE0)
        low = 0xA0;
    else if (lead == 0xF0)
        low = 0x90;
    else if (lead == 0xED)
        high = 0x9F; /* no surrogates */
    else if (lead == 0xF4)
        high = 0x8F; /* nothing above U+10FFFF */
    size_t n = 1;
    for (; n < needed && n < (size_t)(end - at); n++) {
        unsigned next = (unsigned char)at[n];
        if (next < low || next > high)
            break;
        low = 0x80;
        high = 0xBF;
    }
    return n;
}

/* Whether the `size` bytes at `at` reach the end and may still become a
 * character. */
static int is_unfinished_char(const char *at, const char *end, size_t size)
{
    unsigned lead = (unsigned char)*at;
    size_t needed = lead < 0xC2 || lead > 0xF4 ? 1
                    : lead < 0xE0              ? 2
                    : lead < 0xF0              ? 3
                                               : 4;
    return (size_t)(end - at) == size && size < needed;
}

size_t xm_utf8_repair(const char *bytes, size_t size, int more, xr_str *out)
{
    const char *end = bytes + size;
    const char *start = bytes;
    const char *at = bytes;
    while (at < end) {
        uint32_t code;
        int length = xr_utf8_decode(at, end, &code);
        if (length) {
            at += length;
            continue;
        }
        size_t bad = count_broken_bytes(at, end);
        if (more && is_unfinished_char(at, end, bad))
            break;
        xr_str_append(out, start, (size_t)(at - start));
        xr_str_puts(out, "\xEF\xBF\xBD");
        at += bad;
        start = at;
    }
    xr_str_append(out, start, (size_t)(at - start));
    return (size_t)(at - bytes);
}
