/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses numbers, sizes and durations, and converts UTF-8.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/locale.h"
#include "core/base/str.h"

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int xr_parse_int(const char *text, int64_t *out)
{
    int minus = *text == '-';
    if (*text == '-' || *text == '+')
        text++;
    if (!*text)
        return -1;
    /* Counts down from zero, because the negative range is one longer. */
    int64_t value = 0;
    for (; *text; text++) {
        if (!is_digit(*text))
            return -1;
        int digit = *text - '0';
        if (value < (INT64_MIN + digit) / 10)
            return -1;
        value = value * 10 - digit;
    }
    if (!minus && value == INT64_MIN)
        return -1;
    *out = minus ? value : -value;
    return 0;
}

int xr_parse_hex64(const char *text, uint64_t *out)
{
    *out = 0;
    if (strlen(text) != 16)
        return -1;
    for (; *text; text++) {
        const char *digits = "0123456789abcdef";
        const char *at = strchr(digits, *text);
        if (!at)
            return -1;
        *out = *out << 4 | (uint64_t)(at - digits);
    }
    return 0;
}

/* Returns the length of the decimal number at the start of `text`, or 0 if
 * there is none. */
static size_t measure_real(const char *text)
{
    size_t i = text[0] == '-' || text[0] == '+';
    size_t digits = 0;
    for (; is_digit(text[i]); i++)
        digits++;
    if (text[i] == '.')
        for (i++; is_digit(text[i]); i++)
            digits++;
    if (!digits)
        return 0;
    if (text[i] != 'e' && text[i] != 'E')
        return i;
    size_t at = i + 1;
    at += text[at] == '-' || text[at] == '+';
    if (!is_digit(text[at]))
        return i;
    while (is_digit(text[at]))
        at++;
    return at;
}

/* Converts `text`, which starts with a number that measure_real found. */
static int convert_real(const char *text, double *out)
{
    xr_locale saved = xr_locale_use_c();
    double value = strtod(text, NULL);
    xr_locale_restore(saved);
    if (!isfinite(value))
        return -1;
    *out = value;
    return 0;
}

int xr_parse_real(const char *text, double *out)
{
    size_t length = measure_real(text);
    if (!length || text[length])
        return -1;
    return convert_real(text, out);
}

/* Converts a count of units to an integer. Below 2^53 the product is exact for
 * every unit and fraction in common use. */
static int convert_scaled(const char *text, double unit, double *out)
{
    double value;
    if (convert_real(text, &value))
        return -1;
    value *= unit;
    if (value < 0 || value >= 0x1p63)
        return -1;
    *out = value;
    return 0;
}

int xr_parse_bytes(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        uint32_t shift;
    } units[] = {
        { "", 0 }, { "K", 10 }, { "M", 20 }, { "G", 30 }, { "T", 40 }
    };
    size_t length = measure_real(text);
    if (!length || text[0] == '-')
        return -1;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(text + length, units[i].name) != 0)
            continue;
        double value;
        if (convert_scaled(text, (double)(UINT64_C(1) << units[i].shift),
                           &value) ||
            value != floor(value))
            return -1;
        *out = (uint64_t)value;
        return 0;
    }
    return -1;
}

int xr_parse_duration(const char *text, const char *bare, int64_t *out_ns)
{
    static const struct {
        const char *name;
        double ns;
    } units[] = { { "ns", 1 },  { "us", 1e3 },   { "ms", 1e6 },
                  { "s", 1e9 }, { "min", 60e9 }, { "h", 3600e9 } };
    size_t length = measure_real(text);
    if (!length || text[0] == '-')
        return -1;
    double value;
    if (!text[length] && !convert_real(text, &value) && value == 0) {
        *out_ns = 0; /* zero is the only duration without a unit */
        return 0;
    }
    const char *unit = text[length] || !bare ? text + length : bare;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) != 0)
            continue;
        if (convert_scaled(text, units[i].ns, &value))
            return -1;
        *out_ns = (int64_t)(value + 0.5);
        return 0;
    }
    return -1;
}

int xr_utf8_decode(const char *s, const char *end, uint32_t *out)
{
    if (s >= end)
        return 0;
    unsigned char lead = (unsigned char)*s;
    if (lead < 0x80) {
        *out = lead;
        return 1;
    }
    int length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (lead < 0xC2 || lead > 0xF4 || end - s < length)
        return 0;
    uint32_t code = lead & (0x7Fu >> length);
    for (int i = 1; i < length; i++) {
        unsigned char c = (unsigned char)s[i];
        if ((c & 0xC0) != 0x80)
            return 0;
        code = code << 6 | (c & 0x3Fu);
    }
    static const uint32_t least[5] = { 0, 0, 0x80, 0x800, 0x10000 };
    if (code < least[length] || code > 0x10FFFF ||
        (code >= 0xD800 && code <= 0xDFFF))
        return 0;
    *out = code;
    return length;
}

int xr_utf8_encode(uint32_t code, char *out)
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = length - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (code & 0x3Fu));
        code >>= 6;
    }
    static const unsigned lead[5] = { 0, 0, 0xC0, 0xE0, 0xF0 };
    out[0] = (char)(lead[length] | code);
    return length;
}
