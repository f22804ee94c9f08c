/* SPDX-License-Identifier: Apache-2.0
 *
 * Scanners for the patterns that most byte-level tokenizers split with: what
 * the pattern matches next, without a regular expression's machine. The
 * patterns leave no gaps, so a text is its words put together.
 */
#include <string.h>

#include "model/text/tok.h"

const char xm_scan_gpt2[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+"
    "|\\s+(?!\\S)|\\s+";

#define CL100K(digits)                                                   \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define KINDS (XM_C_LETTER | XM_C_NUMBER | XM_C_SPACE)

static unsigned kind_at(const xm_classes *classes, const char *at,
                        size_t *out_length)
{
    return xm_class(classes, xm_utf8_get(at, out_length)) & KINDS;
}

/* Where a run of characters of exactly `kind` that starts at `at` ends. */
static size_t run_of(const xm_classes *classes, const char *text, size_t size,
                     size_t at, unsigned kind)
{
    size_t length;
    while (at < size && kind_at(classes, text + at, &length) == kind)
        at += length;
    return at;
}

/* White space from 0 on: to its end if the text ends there, else to its last
 * character, which goes with what follows, or that one if it is alone. */
static size_t spaces(const xm_classes *classes, const char *text, size_t size)
{
    size_t end = run_of(classes, text, size, 0, XM_C_SPACE);
    if (end == size)
        return end;
    size_t last = xm_utf8_back(text, end);
    return last ? last : end;
}

static size_t next_gpt2(const xm_classes *classes, const char *text,
                        size_t size, size_t digits)
{
    size_t length;
    unsigned kind = kind_at(classes, text, &length);
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
        return run_of(classes, text, size, length, kind);
    if (*text == ' ' && size > 1) {
        kind = kind_at(classes, text + 1, &length);
        if (kind != XM_C_SPACE)
            return run_of(classes, text, size, 1 + length, kind);
    }
    return spaces(classes, text, size);
}

/* 's and the like in either case, U+017F for s. */
static size_t contraction(const char *text, size_t size)
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

static int is_break(char c)
{
    return c == '\r' || c == '\n';
}

/* White space with a line break in it, up to its last one; 0 without. */
static size_t breaks(const xm_classes *classes, const char *text, size_t size)
{
    size_t end = run_of(classes, text, size, 0, XM_C_SPACE);
    while (end && !is_break(text[end - 1]))
        end--;
    return end;
}

static size_t numbers(const xm_classes *classes, const char *text, size_t size,
                      size_t count)
{
    size_t at = 0;
    size_t length;
    while (count-- && at < size &&
           kind_at(classes, text + at, &length) == XM_C_NUMBER)
        at += length;
    return at;
}

static size_t others(const xm_classes *classes, const char *text, size_t size,
                     size_t at)
{
    at = run_of(classes, text, size, at, 0);
    while (at < size && is_break(text[at]))
        at++;
    return at;
}

static size_t next_cl100k(const xm_classes *classes, const char *text,
                          size_t size, size_t digits)
{
    size_t first;
    size_t second;
    unsigned kind = kind_at(classes, text, &first);
    if (kind == XM_C_LETTER)
        return run_of(classes, text, size, first, XM_C_LETTER);
    if (kind == XM_C_NUMBER)
        return numbers(classes, text, size, digits);
    size_t short_form = *text == '\'' ? contraction(text, size) : 0;
    if (short_form)
        return short_form;
    unsigned next =
        first < size ? kind_at(classes, text + first, &second) : XM_C_SPACE;
    if (next == XM_C_LETTER && !is_break(*text))
        return run_of(classes, text, size, first + second, XM_C_LETTER);
    if (kind == 0)
        return others(classes, text, size, first);
    if (*text == ' ' && next == 0)
        return others(classes, text, size, 1 + second);
    size_t end = breaks(classes, text, size);
    return end ? end : spaces(classes, text, size);
}

xm_scanner xm_scan_find(const char *pattern)
{
    if (strcmp(pattern, xm_scan_gpt2) == 0)
        return (xm_scanner){ next_gpt2, 0 };
    if (strcmp(pattern, CL100K("\\p{N}")) == 0)
        return (xm_scanner){ next_cl100k, 1 };
    if (strcmp(pattern, CL100K("\\p{N}{1,3}")) == 0)
        return (xm_scanner){ next_cl100k, 3 };
    if (strcmp(pattern, CL100K("\\p{N}+")) == 0)
        return (xm_scanner){ next_cl100k, SIZE_MAX };
    return (xm_scanner){ NULL, 0 };
}
