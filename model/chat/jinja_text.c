/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles strings as Python sees them: characters, white space, search, lines
 * and numbers.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja.h"

int xm_jis_space(uint32_t code)
{
    if (code < 0x80)
        return code == ' ' || (code >= 9 && code <= 13) ||
               (code >= 0x1C && code <= 0x1F);
    return code == 0x85 || code == 0xA0 || code == 0x1680 ||
           (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
           code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

size_t xm_jcount_chars(const char *text, size_t size)
{
    size_t count = 0;
    for (size_t i = 0; i < size; i++)
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

size_t xm_jchar_offset(const xm_jstr *str, size_t index)
{
    if (index >= str->chars)
        return str->size;
    if (str->chars == str->size)
        return index;
    size_t at = 0;
    for (size_t left = index; at < str->size; at++) {
        if (((unsigned char)str->text[at] & 0xC0) == 0x80)
            continue;
        if (!left--)
            break;
    }
    return at;
}

int xm_jfind_first(xm_jinterp *interp, const char *text, size_t size,
                   const xm_jstr *what, size_t *out)
{
    *out = SIZE_MAX;
    if (!what->size) {
        *out = 0;
        return 0;
    }
    size_t i = 0;
    for (; i + what->size <= size; i++) {
        const char *hit =
            memchr(text + i, what->text[0], size - what->size - i + 1);
        if (!hit)
            break;
        i = (size_t)(hit - text);
        if (!memcmp(hit, what->text, what->size)) {
            *out = i;
            break;
        }
        if (what->size > 32 && xm_jcount_work(interp, what->size / 64))
            return -1;
    }
    /* Only what was searched counts, since a text may be searched part by part.
     */
    return xm_jcount_work(interp, (*out == SIZE_MAX ? size : i) / 64);
}

int xm_jfind_last(xm_jinterp *interp, const char *text, size_t size,
                  const xm_jstr *what, size_t *out)
{
    *out = SIZE_MAX;
    if (xm_jcount_work(interp, size / 16))
        return -1;
    if (what->size > size)
        return 0;
    for (size_t i = size - what->size + 1; i-- > 0;) {
        if (!memcmp(text + i, what->text, what->size)) {
            *out = i;
            return 0;
        }
        if (what->size > 32 && xm_jcount_work(interp, what->size / 64))
            return -1;
    }
    return 0;
}

static int match_stripped(const char *at, const char *end, const xm_jstr *chars)
{
    uint32_t code;
    int size = xr_utf8_decode(at, end, &code);
    if (!size)
        return 0;
    if (!chars)
        return xm_jis_space(code) ? size : 0;
    const char *stop = chars->text + chars->size;
    for (const char *c = chars->text; c < stop;) {
        uint32_t one;
        int step = xr_utf8_decode(c, stop, &one);
        if (!step)
            return 0;
        if (one == code)
            return size;
        c += step;
    }
    return 0;
}

int xm_jstrip_chars(xm_jinterp *interp, xm_jvalue value, const xm_jstr *chars,
                    int sides, xm_jvalue *out)
{
    const xm_jstr *str = value.u.str;
    const char *from = str->text;
    const char *end = from + str->size;
    size_t gone = 0;
    size_t cost = chars ? chars->size / 8 + 1 : 1;
    while (sides & XM_J_LEFT && from < end) {
        int size = match_stripped(from, end, chars);
        if (!size)
            break;
        from += size;
        gone++;
    }
    while (sides & XM_J_RIGHT && from < end) {
        const char *last = end - 1;
        while (last > from && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!match_stripped(last, end, chars))
            break;
        end = last;
        gone++;
    }
    if (xm_jcount_work(interp, gone * cost / 8) ||
        xm_jstr_borrow(interp, from, (size_t)(end - from), str->chars - gone,
                       out))
        return -1;
    out->markup = value.markup;
    return 0;
}

static int is_line_break(uint32_t code)
{
    return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) ||
           code == 0x85 || code == 0x2028 || code == 0x2029;
}

int xm_jsplit_lines(xm_jinterp *interp, const xm_jstr *str, int keep,
                    xm_jlist *out)
{
    const char *end = str->text + str->size;
    const char *from = str->text;
    if (xm_jcount_work(interp, str->size / 8))
        return -1;
    for (const char *at = from; at < end;) {
        uint32_t code = 0;
        int size = xr_utf8_decode(at, end, &code);
        size = size ? size : 1;
        if (!is_line_break(code)) {
            at += size;
            if (at < end)
                continue;
            size = 0;
        }
        if (size && code == '\r' && at + 1 < end && at[1] == '\n')
            size = 2;
        const char *stop = keep ? at + size : at;
        xm_jvalue line;
        if (xm_jstr_borrow(interp, from, (size_t)(stop - from),
                           xm_jcount_chars(from, (size_t)(stop - from)),
                           &line) ||
            xm_jlist_add(interp, out, line))
            return -1;
        at += size;
        from = at;
    }
    return 0;
}

/* Replaces "", which is found before, between and after all characters, as in
 * Python. */
static void replace_empty(const xm_jstr *in, const xm_jstr *to, int64_t limit,
                          xr_str *out)
{
    for (size_t i = 0; i <= in->size; i++) {
        int start =
            i == in->size || ((unsigned char)in->text[i] & 0xC0) != 0x80;
        if (start && limit) {
            xr_str_append(out, to->text, to->size);
            limit -= limit > 0;
        }
        if (i < in->size)
            xr_str_append(out, in->text + i, 1);
        if (out->size > XM_CHAT_MAX_MEMORY)
            return;
    }
}

static int replace_into(xm_jinterp *interp, const xm_jstr *in,
                        const xm_jstr *from, const xm_jstr *to, int64_t limit,
                        xr_str *out)
{
    size_t at = 0;
    while (limit) {
        size_t hit;
        if (xm_jfind_first(interp, in->text + at, in->size - at, from, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        xr_str_append(out, in->text + at, hit);
        xr_str_append(out, to->text, to->size);
        at += hit + from->size;
        limit -= limit > 0;
        if (xm_jcount_work(interp, 1 + to->size / 32) ||
            out->size > XM_CHAT_MAX_MEMORY)
            break;
    }
    xr_str_append(out, in->text + at, in->size - at);
    return 0;
}

int xm_jreplace_text(xm_jinterp *interp, const xm_jstr *in, const xm_jstr *from,
                     const xm_jstr *to, int64_t limit, xm_jvalue *out)
{
    xr_str text = { 0 };
    int status = 0;
    if (!from->size)
        replace_empty(in, to, limit, &text);
    else
        status = replace_into(interp, in, from, to, limit, &text);
    if (status || xm_jcount_work(interp, 0)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}

/* Copies the text of a number without surrounding white space and without the
 * underscores that Python allows between digits; -1: too long or ill-formed. */
static int copy_number_text(const xm_jstr *str, char *out, size_t cap)
{
    const char *from = str->text;
    const char *end = from + str->size;
    int size;
    while (from < end && (size = match_stripped(from, end, NULL)))
        from += size;
    while (end > from) {
        const char *last = end - 1;
        while (last > from && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!match_stripped(last, end, NULL))
            break;
        end = last;
    }
    size_t count = 0;
    for (; from < end; from++) {
        if (*from == '_') {
            if (!count || from + 1 == end || from[-1] == '_' || from[1] == '_')
                return -1;
            continue;
        }
        if (count + 1 >= cap || !*from)
            return -1;
        out[count++] = *from;
    }
    out[count] = 0;
    return count ? 0 : -1;
}

static int get_digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 10 : 99;
}

int xm_jparse_int(const xm_jstr *str, int base, int64_t *out)
{
    char text[256];
    if (copy_number_text(str, text, sizeof text))
        return -1;
    const char *at = text;
    int minus = *at == '-';
    at += *at == '-' || *at == '+';
    int prefix = at[0] != '0'                   ? 0
                 : at[1] == 'x' || at[1] == 'X' ? 16
                 : at[1] == 'o' || at[1] == 'O' ? 8
                 : at[1] == 'b' || at[1] == 'B' ? 2
                                                : 0;
    if (prefix && (base == prefix || base == 0)) {
        at += 2;
        base = prefix;
    }
    base = base ? base : 10;
    if (!*at)
        return -1;
    int64_t value = 0;
    int over = 0;
    for (; *at; at++) {
        int digit = get_digit_value(*at);
        if (digit >= base)
            return -1;
        if (over || value < (INT64_MIN + digit) / base)
            over = 1;
        else
            value = value * base - digit;
    }
    if (over || (!minus && value == INT64_MIN))
        return 1;
    *out = minus ? value : -value;
    return 0;
}

static int parse_named_real(const char *text, double *out)
{
    int minus = *text == '-';
    text += *text == '-' || *text == '+';
    char low[16];
    size_t count = 0;
    for (; text[count] && count + 1 < sizeof low; count++)
        low[count] =
            (char)(text[count] >= 'A' && text[count] <= 'Z' ? text[count] + 32
                                                            : text[count]);
    low[count] = 0;
    if (!strcmp(low, "inf") || !strcmp(low, "infinity"))
        *out = minus ? -INFINITY : INFINITY;
    else if (!strcmp(low, "nan"))
        *out = NAN;
    else
        return -1;
    return 0;
}

int xm_jparse_real(const xm_jstr *str, double *out)
{
    char text[512];
    if (copy_number_text(str, text, sizeof text))
        return -1;
    if (!parse_named_real(text, out) || !xr_parse_real(text, out))
        return 0;
    /* In Python a number too large for a double reads as infinity. */
    char *end;
    if (text[strspn(text, "0123456789.eE+-")])
        return -1;
    double value = strtod(text, &end);
    if (end == text || *end || !isinf(value))
        return -1;
    *out = value;
    return 0;
}
