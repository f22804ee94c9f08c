/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads, classifies and searches characters of UTF-8 text that may hold any
 * bytes.
 */
#include "plugins/reward-rule/unicode.h"

#include <string.h>
#include <utf8proc.h>

size_t rule_char_at(rule_text text, size_t at, uint32_t *out)
{
    unsigned char byte = (unsigned char)text.data[at];
    if (byte < 0x80) {
        *out = byte;
        return at + 1;
    }
    int size = xr_utf8_decode(text.data + at, text.data + text.size, out);
    if (size > 0)
        return at + (size_t)size;
    *out = 0xFFFD;
    return at + 1;
}

size_t rule_char_before(rule_text text, size_t end, uint32_t *out)
{
    for (size_t back = 1; back <= 4 && back <= end; back++) {
        if ((text.data[end - back] & 0xC0) == 0x80)
            continue;
        rule_text front = { text.data, end };
        if (rule_char_at(front, end - back, out) == end)
            return end - back;
        break;
    }
    *out = 0xFFFD;
    return end - 1;
}

size_t rule_char_count(rule_text text)
{
    uint32_t c = 0;
    size_t count = 0;
    for (size_t at = 0; at < text.size; count++)
        at = rule_char_at(text, at, &c);
    return count;
}

static utf8proc_category_t get_category(uint32_t c)
{
    return utf8proc_category((utf8proc_int32_t)c);
}

int rule_is_letter(uint32_t c)
{
    if (c < 0x80)
        return (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    utf8proc_category_t k = get_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

int rule_is_mark(uint32_t c)
{
    if (c < 0x300)
        return 0;
    utf8proc_category_t k = get_category(c);
    return k >= UTF8PROC_CATEGORY_MN && k <= UTF8PROC_CATEGORY_ME;
}

int rule_is_upper(uint32_t c)
{
    if (c < 0x80)
        return c >= 'A' && c <= 'Z';
    return get_category(c) == UTF8PROC_CATEGORY_LU;
}

int rule_is_lower(uint32_t c)
{
    if (c < 0x80)
        return c >= 'a' && c <= 'z';
    return get_category(c) == UTF8PROC_CATEGORY_LL;
}

int rule_is_word(uint32_t c)
{
    if (c < 0x80)
        return rule_is_letter(c) || rule_is_digit(c) || c == '_';
    utf8proc_category_t k = get_category(c);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO) ||
           (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

int rule_is_digit(uint32_t c)
{
    if (c < 0x80)
        return c >= '0' && c <= '9';
    return get_category(c) == UTF8PROC_CATEGORY_ND;
}

int rule_is_space(uint32_t c)
{
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x1F);
    return c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

rule_text rule_slice(rule_text text, size_t first, size_t end)
{
    return (rule_text){ text.data + first, end - first };
}

rule_text rule_strip(rule_text text)
{
    uint32_t c = 0;
    size_t first = 0;
    size_t end = text.size;
    while (end) {
        size_t before = rule_char_before(text, end, &c);
        if (!rule_is_space(c))
            break;
        end = before;
    }
    while (first < end) {
        size_t next = rule_char_at(text, first, &c);
        if (!rule_is_space(c))
            break;
        first = next;
    }
    return rule_slice(text, first, end);
}

rule_text rule_next_word(rule_text text, size_t *at)
{
    uint32_t c = 0;
    while (*at < text.size) {
        size_t next = rule_char_at(text, *at, &c);
        if (!rule_is_space(c))
            break;
        *at = next;
    }
    size_t first = *at;
    while (*at < text.size) {
        size_t next = rule_char_at(text, *at, &c);
        if (rule_is_space(c))
            break;
        *at = next;
    }
    return rule_slice(text, first, *at);
}

void rule_lower(rule_text text, xr_str *out)
{
    for (size_t at = 0; at < text.size;) {
        uint32_t c = 0;
        size_t next = rule_char_at(text, at, &c);
        char low[4];
        if (c < 0x80) {
            low[0] = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
            xr_str_append(out, low, 1);
        } else if (next == at + 1) {
            xr_str_append(out, text.data + at, 1);
        } else {
            uint32_t to = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
            xr_str_append(out, low, (size_t)xr_utf8_encode(to, low));
        }
        at = next;
    }
}

size_t rule_find(rule_text text, rule_text needle, size_t from)
{
    if (!needle.size || needle.size > text.size)
        return SIZE_MAX;
    size_t last = text.size - needle.size;
    while (from <= last) {
        const char *hit =
            memchr(text.data + from, needle.data[0], last - from + 1);
        if (!hit)
            break;
        if (memcmp(hit, needle.data, needle.size) == 0)
            return (size_t)(hit - text.data);
        from = (size_t)(hit - text.data) + 1;
    }
    return SIZE_MAX;
}

int rule_starts(rule_text text, rule_text prefix)
{
    return text.size >= prefix.size &&
           (!prefix.size || memcmp(text.data, prefix.data, prefix.size) == 0);
}

int rule_ends(rule_text text, rule_text suffix)
{
    return text.size >= suffix.size &&
           (!suffix.size || memcmp(text.data + text.size - suffix.size,
                                   suffix.data, suffix.size) == 0);
}
