/* SPDX-License-Identifier: Apache-2.0
 *
 * Edits text in a buffer of fixed capacity, and searches it.
 */
#include "plugins/reward-rule/math_buffer.h"

#include <string.h>

void rule_buffer_set(rule_buffer *buffer, rule_text text)
{
    buffer->size = 0;
    buffer->full = 0;
    rule_buffer_add(buffer, text.data, text.size);
}

void rule_buffer_add(rule_buffer *buffer, const char *data, size_t size)
{
    if (size > sizeof(buffer->data) - buffer->size) {
        buffer->full = 1;
        return;
    }
    if (size)
        memcpy(buffer->data + buffer->size, data, size);
    buffer->size += size;
}

void rule_buffer_puts(rule_buffer *buffer, const char *string)
{
    rule_buffer_add(buffer, string, strlen(string));
}

rule_text rule_buffer_text(const rule_buffer *buffer)
{
    return (rule_text){ buffer->data, buffer->size };
}

void rule_buffer_replace(rule_buffer *buffer, const char *what, const char *by,
                         rule_buffer *scratch)
{
    rule_text rest = rule_buffer_text(buffer);
    size_t at = rule_seek(rest, what);
    if (at == rest.size)
        return;
    scratch->size = 0;
    scratch->full = buffer->full;
    while (at < rest.size) {
        rule_buffer_add(scratch, rest.data, at);
        rule_buffer_puts(scratch, by);
        rest = rule_text_from(rest, at + strlen(what));
        at = rule_seek(rest, what);
    }
    rule_buffer_add(scratch, rest.data, rest.size);
    memcpy(buffer->data, scratch->data, scratch->size);
    buffer->size = scratch->size;
    buffer->full = scratch->full;
}

void rule_buffer_trim(rule_buffer *buffer)
{
    rule_text text = rule_trim(rule_buffer_text(buffer));
    if (text.size)
        memmove(buffer->data, text.data, text.size);
    buffer->size = text.size;
}

int rule_begins(rule_text text, const char *string)
{
    size_t size = strlen(string);
    return text.size >= size && memcmp(text.data, string, size) == 0;
}

size_t rule_seek(rule_text text, const char *string)
{
    size_t size = strlen(string);
    for (size_t at = 0; at + size <= text.size; at++) {
        const char *hit =
            memchr(text.data + at, *string, text.size - size + 1 - at);
        if (!hit)
            break;
        at = (size_t)(hit - text.data);
        if (memcmp(hit, string, size) == 0)
            return at;
    }
    return text.size;
}

size_t rule_seek_last(rule_text text, const char *string)
{
    size_t size = strlen(string);
    for (size_t at = text.size; at-- > 0;)
        if (text.size - at >= size && memcmp(text.data + at, string, size) == 0)
            return at;
    return text.size;
}

size_t rule_count_text(rule_text text, const char *string)
{
    size_t count = 0;
    for (size_t at = rule_seek(text, string); at < text.size;
         at = rule_seek(text, string)) {
        count++;
        text = rule_text_from(text, at + strlen(string));
    }
    return count;
}

size_t rule_char_size(rule_text text)
{
    size_t size = text.size > 0;
    while (size && size < 4 && size < text.size &&
           ((unsigned char)text.data[0] & 0x80) != 0 &&
           ((unsigned char)text.data[size] & 0xC0) == 0x80)
        size++;
    return size;
}

rule_text rule_text_from(rule_text text, size_t first)
{
    if (first > text.size)
        first = text.size;
    return (rule_text){ text.data + first, text.size - first };
}

int rule_ascii_digit(char c)
{
    return c >= '0' && c <= '9';
}

int rule_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

int rule_ascii_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}
