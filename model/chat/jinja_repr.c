/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes values as text, as Python's str() and repr() do.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja.h"

/* Writes the shortest digits that read back as the same double, in Python's
 * layout: without exponent from 1e-4 up to 1e16, with one elsewhere. */
void xm_jformat_real(double value, char out[XM_J_REAL])
{
    if (!isfinite(value)) {
        (void)snprintf(out, XM_J_REAL, "%s",
                       isnan(value) ? "nan"
                       : value < 0  ? "-inf"
                                    : "inf");
        return;
    }
    char text[XM_J_REAL];
    for (int digits = 0; digits < 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*e", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    char digit[20];
    size_t count = 0;
    const char *at = text;
    char *end = out;
    if (*at == '-')
        *end++ = *at++;
    for (; *at && *at != 'e'; at++)
        if (*at >= '0' && *at <= '9')
            digit[count++] = *at;
    int exponent = (int)strtol(at + 1, NULL, 10);
    while (count > 1 && digit[count - 1] == '0')
        count--;
    if (exponent < -4 || exponent >= 16) {
        *end++ = digit[0];
        if (count > 1)
            *end++ = '.';
        memcpy(end, digit + 1, count - 1);
        (void)snprintf(end + count - 1, 8, "e%c%02u", exponent < 0 ? '-' : '+',
                       (unsigned)abs(exponent) % 1000);
        return;
    }
    if (exponent < 0) {
        *end++ = '0';
        *end++ = '.';
        for (int i = -1; i > exponent; i--)
            *end++ = '0';
        memcpy(end, digit, count);
        end[count] = 0;
        return;
    }
    for (size_t i = 0; i < count || i <= (size_t)exponent; i++) {
        *end++ = i < count ? digit[i] : '0';
        if (i == (size_t)exponent)
            *end++ = '.';
    }
    if (end[-1] == '.')
        *end++ = '0';
    *end = 0;
}

static void write_char_repr(uint32_t code, const char *text, int size,
                            char quote, xr_str *out)
{
    if (code == (uint32_t)quote || code == '\\')
        xr_str_printf(out, "\\%c", (char)code);
    else if (code == '\n')
        xr_str_puts(out, "\\n");
    else if (code == '\r')
        xr_str_puts(out, "\\r");
    else if (code == '\t')
        xr_str_puts(out, "\\t");
    else if (xm_jis_printable(code))
        xr_str_append(out, text, (size_t)size);
    else if (code < 0x100)
        xr_str_printf(out, "\\x%02x", (unsigned)code);
    else if (code < 0x10000)
        xr_str_printf(out, "\\u%04x", (unsigned)code);
    else
        xr_str_printf(out, "\\U%08x", (unsigned)code);
}

static void write_text_repr(const xm_jstr *str, xr_str *out)
{
    char quote =
        memchr(str->text, '\'', str->size) && !memchr(str->text, '"', str->size)
            ? '"'
            : '\'';
    xr_str_append(out, &quote, 1);
    const char *end = str->text + str->size;
    for (const char *at = str->text; at < end;) {
        uint32_t code;
        int size = xr_utf8_decode(at, end, &code);
        if (!size) {
            code = (unsigned char)*at;
            size = 1;
        }
        write_char_repr(code, at, size, quote, out);
        at += size;
    }
    xr_str_append(out, &quote, 1);
}

static int write_items_repr(xm_jinterp *interp, const xm_jlist *list,
                            xr_str *out)
{
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            xr_str_puts(out, ", ");
        if (xm_jappend_repr(interp, list->at[i], out))
            return -1;
    }
    return 0;
}

static int write_dict_repr(xm_jinterp *interp, const xm_jdict *dict,
                           xr_str *out)
{
    xr_str_puts(out, "{");
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            xr_str_puts(out, ", ");
        if (xm_jappend_repr(interp, dict->at[i].key, out))
            return -1;
        xr_str_puts(out, ": ");
        if (xm_jappend_repr(interp, dict->at[i].value, out))
            return -1;
    }
    xr_str_puts(out, "}");
    return 0;
}

static int write_view_repr(xm_jinterp *interp, xm_jvalue value, xr_str *out)
{
    xm_jlist items;
    if (xm_jread_items(interp, value, &items))
        return -1;
    xr_str_printf(out, "%s([", xm_jtype_name(value));
    if (write_items_repr(interp, &items, out))
        return -1;
    xr_str_puts(out, "])");
    return 0;
}

static void write_range_repr(const xm_jrange *range, xr_str *out)
{
    xr_str_printf(out, "range(%lld, %lld", (long long)range->start,
                  (long long)range->stop);
    if (range->step != 1)
        xr_str_printf(out, ", %lld", (long long)range->step);
    xr_str_puts(out, ")");
}

static int write_object_repr(xm_jinterp *interp, xm_jvalue value, xr_str *out)
{
    switch ((enum xm_jkind)value.kind) {
    case XM_J_NS:
        xr_str_puts(out, "<Namespace ");
        if (write_dict_repr(interp, value.u.dict, out))
            return -1;
        xr_str_puts(out, ">");
        return 0;
    case XM_J_MACRO: {
        const xm_jnode *node = value.u.macro->node;
        if (!node->value.kind)
            xr_str_puts(out, "<Macro anonymous>");
        else
            xr_str_printf(out, "<Macro '%s'>", node->value.u.str->text);
        return 0;
    }
    case XM_J_LOOP:
        xr_str_printf(out, "<LoopContext %zu/%zu>", value.u.loop->at + 1,
                      value.u.loop->items.count);
        return 0;
    default:
        xr_str_printf(out, "<%s object>", xm_jtype_name(value));
        return 0;
    }
}

static int write_value_repr(xm_jinterp *interp, xm_jvalue value, xr_str *out)
{
    char real[XM_J_REAL];
    switch ((enum xm_jkind)value.kind) {
    case XM_J_MISSING:
    case XM_J_UNDEF:
        xr_str_puts(out, "Undefined");
        return 0;
    case XM_J_NONE:
        xr_str_puts(out, "None");
        return 0;
    case XM_J_BOOL:
        xr_str_puts(out, value.u.i ? "True" : "False");
        return 0;
    case XM_J_INT:
        xr_str_printf(out, "%lld", (long long)value.u.i);
        return 0;
    case XM_J_FLOAT:
        xm_jformat_real(value.u.f, real);
        xr_str_puts(out, real);
        return 0;
    case XM_J_STR:
        xr_str_puts(out, value.markup ? "Markup(" : "");
        write_text_repr(value.u.str, out);
        xr_str_puts(out, value.markup ? ")" : "");
        return xm_jcount_work(interp, value.u.str->size / 8);
    case XM_J_LIST:
    case XM_J_TUPLE: {
        int tuple = value.kind == XM_J_TUPLE;
        xr_str_puts(out, tuple ? "(" : "[");
        if (write_items_repr(interp, value.u.list, out))
            return -1;
        if (tuple && value.u.list->count == 1)
            xr_str_puts(out, ",");
        xr_str_puts(out, tuple ? ")" : "]");
        return 0;
    }
    case XM_J_DICT:
        return write_dict_repr(interp, value.u.dict, out);
    case XM_J_VIEW:
        return write_view_repr(interp, value, out);
    case XM_J_RANGE:
        write_range_repr(value.u.range, out);
        return 0;
    default:
        return write_object_repr(interp, value, out);
    }
}

int xm_jappend_repr(xm_jinterp *interp, xm_jvalue value, xr_str *out)
{
    if (xm_jcount_work(interp, 2) || xm_jenter_level(interp))
        return -1;
    int status = write_value_repr(interp, value, out);
    xm_jleave_level(interp);
    if (!status && out->size > XM_CHAT_MAX_MEMORY)
        return xm_jfail(interp,
                        "the template needs more than %zu MiB of memory",
                        XM_CHAT_MAX_MEMORY >> 20);
    return status;
}

int xm_jappend_str(xm_jinterp *interp, xm_jvalue value, xr_str *out)
{
    if (value.kind == XM_J_UNDEF || value.kind == XM_J_MISSING)
        return 0;
    if (value.kind != XM_J_STR)
        return xm_jappend_repr(interp, value, out);
    xr_str_append(out, value.u.str->text, value.u.str->size);
    return xm_jcount_work(interp, value.u.str->size / 32);
}

int xm_jto_str(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out)
{
    if (value.kind == XM_J_STR) {
        *out = value;
        out->markup = 0;
        return 0;
    }
    xr_str text = { 0 };
    if (xm_jappend_str(interp, value, &text)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}

int xm_jto_repr(xm_jinterp *interp, xm_jvalue value, xm_jvalue *out)
{
    xr_str text = { 0 };
    if (xm_jappend_repr(interp, value, &text)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}

void xm_jappend_escaped(const xm_jstr *str, xr_str *out)
{
    for (size_t i = 0; i < str->size; i++) {
        switch (str->text[i]) {
        case '&':
            xr_str_puts(out, "&amp;");
            break;
        case '<':
            xr_str_puts(out, "&lt;");
            break;
        case '>':
            xr_str_puts(out, "&gt;");
            break;
        case '\'':
            xr_str_puts(out, "&#39;");
            break;
        case '"':
            xr_str_puts(out, "&#34;");
            break;
        default:
            xr_str_append(out, str->text + i, 1);
        }
    }
}
