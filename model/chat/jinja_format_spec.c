/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats one value by one format specification, as Python's format() does.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_format.h"

#define MAX_DIGITS 350 /* largest precision */
#define MAX_WIDTH 100000

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *read_digits(const char *at, const char *end, int *out)
{
    int value = 0;
    for (; at < end && is_digit(*at); at++)
        value = value > 1000000 ? value : value * 10 + (*at - '0');
    *out = value;
    return at;
}

int xm_jspec_read(xm_jinterp *interp, const char *at, size_t size,
                  struct xm_jspec *out)
{
    const char *end = at + size;
    *out = (struct xm_jspec){ .fill = " ", .fill_size = 1, .precision = -1 };
    uint32_t code;
    int first = at < end ? xr_utf8_decode(at, end, &code) : 0;
    int filled = first && at + first < end && strchr("<>=^", at[first]);
    if (filled) {
        out->fill = at;
        out->fill_size = (size_t)first;
        out->align = at[first];
        at += first + 1;
    } else if (at < end && *at && strchr("<>=^", *at)) {
        out->align = *at++;
    }
    if (at < end && *at && strchr("+- ", *at))
        out->sign = *at++;
    if (at < end && *at == '#') {
        out->alt = 1;
        at++;
    }
    if (at < end && *at == '0') {
        if (!filled)
            out->fill = "0";
        at++;
    }
    at = read_digits(at, end, &out->width);
    if (at < end && (*at == ',' || *at == '_'))
        out->group = *at++;
    if (at < end && *at == '.') {
        if (at + 1 == end || !is_digit(at[1]))
            return xm_jfail(
                interp, "the format specification has no precision after '.'");
        at = read_digits(at + 1, end, &out->precision);
    }
    if (at < end)
        out->type = *at++;
    if (at < end || out->width > MAX_WIDTH || out->precision > MAX_DIGITS)
        return xm_jfail(interp, "invalid format specification");
    return 0;
}

static void write_padding(xr_str *out, const struct xm_jspec *spec,
                          size_t count)
{
    for (size_t i = 0; i < count; i++)
        xr_str_append(out, spec->fill, spec->fill_size);
}

/* Writes a text with padding. With '=' the first `lead` characters, a sign or a
 * prefix, stay in front of the padding. */
static void write_aligned(const struct xm_jspec *spec, char preset,
                          const char *text, size_t size, size_t lead,
                          xr_str *out)
{
    char align = spec->align ? spec->align : preset;
    size_t chars = xm_jcount_chars(text, size);
    size_t width = (size_t)spec->width;
    size_t gap = width > chars ? width - chars : 0;
    size_t left = align == '<' ? 0 : align == '^' ? gap / 2 : gap;
    if (align == '=') {
        xr_str_append(out, text, lead);
        write_padding(out, spec, gap);
        xr_str_append(out, text + lead, size - lead);
        return;
    }
    write_padding(out, spec, left);
    xr_str_append(out, text, size);
    write_padding(out, spec, gap - left);
}

/* Writes a number with a separator every `step` digits of its integer part,
 * counted from the end, and with zeros up to the width if the padding is
 * '='. */
static void write_grouped(const struct xm_jspec *spec, const char *text,
                          size_t lead, int step, xr_str *out)
{
    size_t int_end = lead;
    while (text[int_end] && strchr("0123456789abcdefABCDEF", text[int_end]))
        int_end++;
    size_t count = int_end - lead;
    size_t rest = strlen(text + int_end);
    size_t zeros = 0;
    size_t size = (size_t)step;
    int zero_fill =
        spec->align == '=' && spec->fill_size == 1 && *spec->fill == '0';
    while (zero_fill &&
           lead + count + zeros + (count + zeros - 1) / size + rest <
               (size_t)spec->width)
        zeros++;
    xr_str_append(out, text, lead);
    for (size_t i = 0; i < count + zeros; i++) {
        if (i && (count + zeros - i) % size == 0)
            xr_str_append(out, &spec->group, 1);
        xr_str_append(out, i < zeros ? "0" : text + lead + i - zeros, 1);
    }
    xr_str_puts(out, text + int_end);
}

static void write_number(const struct xm_jspec *spec, const char *text,
                         size_t lead, xr_str *out)
{
    if (!spec->group) {
        write_aligned(spec, '>', text, strlen(text), lead, out);
        return;
    }
    xr_str made = { 0 };
    int based = spec->type && strchr("boxX", spec->type) != NULL;
    write_grouped(spec, text, lead, based ? 4 : 3, &made);
    write_aligned(spec, '>', xr_str_text(&made), made.size, lead, out);
    out->failed |= made.failed;
    xr_str_free(&made);
}

static size_t write_sign(char *out, int minus, char sign)
{
    if (!minus && sign != '+' && sign != ' ')
        return 0;
    *out = minus ? '-' : sign;
    return 1;
}

static void write_int_digits(uint64_t value, unsigned base, int upper,
                             char *out)
{
    char back[72];
    size_t count = 0;
    const char *set = upper ? "0123456789ABCDEF" : "0123456789abcdef";
    do
        back[count++] = set[value % base];
    while (value /= base);
    while (count)
        *out++ = back[--count];
    *out = 0;
}

int xm_jspec_int(xm_jinterp *interp, const struct xm_jspec *spec, int64_t value,
                 xr_str *out)
{
    char text[100];
    unsigned base = spec->type == 'b'                        ? 2
                    : spec->type == 'o'                      ? 8
                    : spec->type == 'x' || spec->type == 'X' ? 16
                                                             : 10;
    if (spec->precision >= 0)
        return xm_jfail(interp,
                        "precision not allowed in integer format specifier");
    if (spec->type == 'c') {
        if (value < 0 || value > 0x10FFFF ||
            (value >= 0xD800 && value < 0xE000))
            return xm_jfail(interp, "%%c arg not in range(0x110000)");
        int size = xr_utf8_encode((uint32_t)value, text);
        write_aligned(spec, '>', text, (size_t)size, 0, out);
        return 0;
    }
    size_t lead = write_sign(text, value < 0, spec->sign);
    if (spec->alt && base != 10) {
        text[lead++] = '0';
        text[lead++] = spec->type;
    }
    uint64_t size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    write_int_digits(size, base, spec->type == 'X', text + lead);
    write_number(spec, text, lead, out);
    return 0;
}

static void write_real_text(const struct xm_jspec *spec, double value,
                            char *out, size_t cap)
{
    int digit = spec->precision;
    char type = spec->type;
    if (!type && digit < 0) {
        char real[XM_J_REAL];
        xm_jformat_real(value, real);
        (void)snprintf(out, cap, "%s", real);
        return;
    }
    char format[8] = "%.*g"; /* a negative precision counts as none */
    if (type && strchr("eEfFgG", type))
        format[3] = type;
    else if (type == '%')
        format[3] = 'f';
    if (spec->alt)
        (void)snprintf(format, sizeof format, "%%#.*%c",
                       type && type != '%' ? type : 'f');
    (void)snprintf(out, cap, format, digit, type == '%' ? value * 100 : value);
    if (!type && !strpbrk(out, ".en"))
        strncat(out, ".0", cap - strlen(out) - 1);
    if (type == '%')
        strncat(out, "%", cap - strlen(out) - 1);
}

void xm_jspec_real(const struct xm_jspec *spec, double value, xr_str *out)
{
    char text[400 + MAX_DIGITS];
    int minus = signbit(value) && !isnan(value);
    size_t lead = write_sign(text, minus, spec->sign);
    write_real_text(spec, fabs(value), text + lead, sizeof text - lead);
    write_number(spec, text, lead, out);
}

void xm_jspec_text(const struct xm_jspec *spec, const xm_jstr *str, xr_str *out)
{
    size_t size = str->size;
    if (spec->precision >= 0)
        size = xm_jchar_offset(str, (size_t)spec->precision);
    write_aligned(spec, '<', str->text, size, 0, out);
}

static int fits_text(const struct xm_jspec *spec)
{
    return (!spec->type || spec->type == 's') && !spec->group && !spec->sign &&
           !spec->alt && spec->align != '=';
}

static int fits_integer(const struct xm_jspec *spec)
{
    if (spec->type == 'c')
        return !spec->group && !spec->sign && !spec->alt;
    if (!spec->type || spec->type == 'd')
        return 1;
    if (spec->type == 'n')
        return !spec->group;
    return strchr("boxX", spec->type) && spec->group != ',';
}

static int fits_real(const struct xm_jspec *spec)
{
    return !spec->type || strchr("eEfFgG%", spec->type) ||
           (spec->type == 'n' && !spec->group);
}

int xm_jspec_write(xm_jinterp *interp, xm_jvalue value,
                   const struct xm_jspec *spec, int plain, xr_str *out)
{
    if (plain)
        return xm_jappend_str(interp, value, out);
    if (value.kind == XM_J_STR && fits_text(spec)) {
        xm_jspec_text(spec, value.u.str, out);
        return 0;
    }
    struct xm_jspec number = *spec;
    /* The flag '0' fills a number after its sign. */
    if (!spec->align && *spec->fill == '0')
        number.align = '=';
    int is_int = value.kind == XM_J_INT || value.kind == XM_J_BOOL;
    if (is_int && fits_integer(spec))
        return xm_jspec_int(interp, &number, value.u.i, out);
    if (xm_jis_number(value) && fits_real(spec)) {
        xm_jspec_real(&number, xm_jto_real(value), out);
        return 0;
    }
    return xm_jfail(interp, "the format specification does not fit '%s'",
                    xm_jtype_name(value));
}
