/* SPDX-License-Identifier: Apache-2.0
 *
 * Matches the split patterns of most byte-level tokenizers with hand-written
 * scanners, without a regular expression engine. The patterns leave no gaps, so
 * the matches put together are the text.
 */
#include <string.h>

#include "model/text/internal.h"

const char xm_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+";

#define CL100K(digits)                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define KINDS (XM_C_LETTER | XM_C_NUMBER | XM_C_SPACE)

static unsigned get_char_kind(const xm_char_classes *classes, const char *at,
                              size_t *out_length)
{
    return xm_char_class(classes, xm_utf8_get(at, out_length)) & KINDS;
}

/* Returns the end of the run of characters of exactly `kind` that starts at
 * `at`. */
static size_t find_run_end(const xm_char_classes *classes, const char *text,
                           size_t size, size_t at, unsigned kind)
{
    size_t length;
    while (at < size && get_char_kind(classes, text + at, &length) == kind)
        at += length;
    return at;
}

/* Matches \s+(?!\S)|\s+ at the start: all of the white space if the text ends
 * after it or if it is one character, otherwise all but its last character. */
static size_t match_spaces(const xm_char_classes *classes, const char *text,
                           size_t size)
{
    size_t end = find_run_end(classes, text, size, 0, XM_C_SPACE);
    if (end == size)
        return end;
    size_t last = xm_utf8_back(text, end);
    return last ? last : end;
}

static size_t next_gpt2_word(const xm_char_classes *classes, const char *text,
                             size_t size, size_t digits)
{
    size_t length;
    unsigned kind = get_char_kind(classes, text, &length);
    (void)digits;
    if (*text == '\'' && size > 1) {
        if (memchr("stmd", text[1], 4))
            return 2;
        if (size > 2 && ((text[1] == 'r' && text[2] == 'e') ||
                         (text[1] == 'v' && text[2] == 'e') ||
                         (text[1] == 'l' && text[2] == 'l')))
            return 3;
    }
    if (kind != XM_C_SPACE)
        return find_run_end(classes, text, size, length, kind);
    if (*text == ' ' && size > 1) {
        kind = get_char_kind(classes, text + 1, &length);
        if (kind != XM_C_SPACE)
            return find_run_end(classes, text, size, 1 + length, kind);
    }
    return match_spaces(classes, text, size);
}

/* Matches (?i:'s|'t|'re|'ve|'m|'ll|'d), where U+017F also counts as s. */
static size_t match_contraction(const char *text, size_t size)
{
    if (size < 2)
        return 0;
    char a = (char)(text[1] | 32);
    char b = (char)(size > 2 ? text[2] | 32 : 0);
    if ((unsigned char)text[1] == 0xC5)
        return size > 2 && (unsigned char)text[2] == 0xBF ? 3 : 0;
    if (a == 's' || a == 't' || a == 'm' || a == 'd')
        return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') ||
                   (a == 'l' && b == 'l')
               ? 3
               : 0;
}

static int is_line_break(char c)
{
    return c == '\r' || c == '\n';
}

/* Matches \s*[\r\n]+: white space up to its last line break; 0 if it has
 * none. */
static size_t match_line_breaks(const xm_char_classes *classes,
                                const char *text, size_t size)
{
    size_t end = find_run_end(classes, text, size, 0, XM_C_SPACE);
    while (end && !is_line_break(text[end - 1]))
        end--;
    return end;
}

static size_t match_numbers(const xm_char_classes *classes, const char *text,
                            size_t size, size_t count)
{
    size_t at = 0;
    size_t length;
    while (count-- && at < size &&
           get_char_kind(classes, text + at, &length) == XM_C_NUMBER)
        at += length;
    return at;
}

static size_t match_other_chars(const xm_char_classes *classes,
                                const char *text, size_t size, size_t at)
{
    at = find_run_end(classes, text, size, at, 0);
    while (at < size && is_line_break(text[at]))
        at++;
    return at;
}

static size_t next_cl100k_word(const xm_char_classes *classes, const char *text,
                               size_t size, size_t digits)
{
    size_t first;
    size_t second;
    unsigned kind = get_char_kind(classes, text, &first);
    if (kind == XM_C_LETTER)
        return find_run_end(classes, text, size, first, XM_C_LETTER);
    if (kind == XM_C_NUMBER)
        return match_numbers(classes, text, size, digits);
    size_t short_form = *text == '\'' ? match_contraction(text, size) : 0;
    if (short_form)
        return short_form;
    unsigned next = first < size ? get_char_kind(classes, text + first, &second)
                                 : XM_C_SPACE;
    if (next == XM_C_LETTER && !is_line_break(*text))
        return find_run_end(classes, text, size, first + second, XM_C_LETTER);
    if (kind == 0)
        return match_other_chars(classes, text, size, first);
    if (*text == ' ' && next == 0)
        return match_other_chars(classes, text, size, 1 + second);
    size_t end = match_line_breaks(classes, text, size);
    return end ? end : match_spaces(classes, text, size);
}

xm_scanner xm_find_scanner(const char *pattern)
{
    if (strcmp(pattern, xm_gpt2_pattern) == 0)
        return (xm_scanner){ next_gpt2_word, 0 };
    if (strcmp(pattern, CL100K("\\p{N}")) == 0)
        return (xm_scanner){ next_cl100k_word, 1 };
    if (strcmp(pattern, CL100K("\\p{N}{1,3}")) == 0)
        return (xm_scanner){ next_cl100k_word, 3 };
    if (strcmp(pattern, CL100K("\\p{N}+")) == 0)
        return (xm_scanner){ next_cl100k_word, SIZE_MAX };
    return (xm_scanner){ NULL, 0 };
}
