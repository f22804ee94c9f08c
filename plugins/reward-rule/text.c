/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, cuts and compares answers in text that may hold any bytes.
 */
#include "plugins/reward-rule/text.h"

#include <string.h>

rule_text rule_text_of(const char *string)
{
    if (!string)
        return (rule_text){ "", 0 };
    return (rule_text){ string, strlen(string) };
}

static int is_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static int is_continuation(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

rule_text rule_trim(rule_text text)
{
    while (text.size && is_ascii_space(text.data[text.size - 1]))
        text.size--;
    while (text.size && is_ascii_space(*text.data)) {
        text.data++;
        text.size--;
    }
    return text;
}

static rule_text drop_front(rule_text text, size_t first)
{
    return (rule_text){ text.data + first, text.size - first };
}

rule_text rule_last_characters(rule_text text, size_t count)
{
    size_t first = text.size;
    while (first && count) {
        first--;
        count -= !is_continuation(text.data[first]);
    }
    return drop_front(text, first);
}

rule_text rule_last_bytes(rule_text text, size_t count)
{
    if (text.size <= count)
        return text;
    size_t first = text.size - count;
    while (first < text.size && is_continuation(text.data[first]))
        first++;
    return drop_front(text, first);
}

rule_text rule_after(rule_text text, rule_text marker)
{
    if (marker.size > text.size)
        return (rule_text){ NULL, 0 };
    for (size_t end = text.size; end >= marker.size; end--) {
        size_t at = end - marker.size;
        if (memcmp(text.data + at, marker.data, marker.size) == 0)
            return drop_front(text, end);
        if (!at)
            break;
    }
    return (rule_text){ NULL, 0 };
}

static char fold_case(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

int rule_equal(rule_text a, rule_text b, int ignore_case)
{
    if (a.size != b.size)
        return 0;
    if (!ignore_case)
        return a.size == 0 || memcmp(a.data, b.data, a.size) == 0;
    for (size_t i = 0; i < a.size; i++)
        if (fold_case(a.data[i]) != fold_case(b.data[i]))
            return 0;
    return 1;
}
