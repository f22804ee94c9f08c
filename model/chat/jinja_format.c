/* SPDX-License-Identifier: Apache-2.0
 *
 * Formats strings with the operator "%" and with str.format().
 */
#include "model/chat/jinja_format.h"

#include <math.h>
#include <string.h>

/* The state of one "%" formatting. Values are taken in turn or by name. */
struct percent {
    xm_jinterp *interp;
    const char *at;
    const char *end;
    xm_jvalue values;
    size_t next;
    xr_str *out;
};

static int take_value(struct percent *p, xm_jvalue *out)
{
    if (p->values.kind == XM_J_TUPLE) {
        if (p->next < p->values.u.list->count) {
            *out = p->values.u.list->at[p->next++];
            return 0;
        }
    } else if (!p->next++) {
        *out = p->values;
        return 0;
    }
    return xm_jfail(p->interp, "not enough arguments for format string");
}

static int take_named_value(struct percent *p, xm_jvalue *out)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at != ')')
        p->at++;
    if (p->at == p->end)
        return xm_jfail(p->interp, "incomplete format key");
    xm_jvalue key;
    if (xm_jstr_copy(p->interp, from, (size_t)(p->at - from), &key))
        return -1;
    p->at++;
    if (p->values.kind != XM_J_DICT)
        return xm_jfail(p->interp, "format requires a mapping");
    xm_jentry *entry = xm_jdict_get(p->interp, p->values.u.dict, key);
    if (!entry)
        return xm_jfail(p->interp, "the format key '%.100s' is not given",
                        key.u.str->text);
    *out = entry->value;
    return 0;
}

static int read_count(struct percent *p, int *out)
{
    xm_jvalue value = xm_jvalue_of(XM_J_MISSING);
    *out = 0;
    if (p->at < p->end && *p->at == '*') {
        p->at++;
        if (take_value(p, &value))
            return -1;
        if (value.kind != XM_J_INT && value.kind != XM_J_BOOL)
            return xm_jfail(p->interp, "* wants int");
        if (value.u.i > 100000 || value.u.i < -100000)
            return xm_jfail(p->interp, "a width or precision is too large");
        *out = (int)value.u.i;
        return 0;
    }
    for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
        if ((*out = *out * 10 + (*p->at - '0')) > 100000)
            return xm_jfail(p->interp, "a width or precision is too large");
    return 0;
}

static int read_percent_spec(struct percent *p, struct xm_jspec *spec)
{
    *spec = (struct xm_jspec){ .fill = " ", .fill_size = 1, .precision = -1 };
    int left = 0;
    int zero = 0;
    for (; p->at < p->end && *p->at && strchr("#0- +", *p->at); p->at++) {
        left |= *p->at == '-';
        zero |= *p->at == '0';
        spec->alt |= *p->at == '#';
        if (*p->at == '+' || (*p->at == ' ' && !spec->sign))
            spec->sign = *p->at;
    }
    if (read_count(p, &spec->width))
        return -1;
    if (spec->width < 0) {
        left = 1;
        spec->width = -spec->width;
    }
    if (p->at < p->end && *p->at == '.') {
        p->at++;
        if (read_count(p, &spec->precision))
            return -1;
        if (spec->precision < 0)
            spec->precision = 0;
    }
    spec->align = left ? '<' : zero ? '=' : '>';
    if (zero && !left)
        spec->fill = "0";
    while (p->at < p->end && (*p->at == 'h' || *p->at == 'l' || *p->at == 'L'))
        p->at++;
    return p->at < p->end ? 0 : xm_jfail(p->interp, "incomplete format");
}

/* The flag '0' is for numbers alone. */
static void drop_zero_flag(struct xm_jspec *spec)
{
    if (spec->align != '=')
        return;
    spec->align = '>';
    spec->fill = " ";
}

static int format_text(struct percent *p, struct xm_jspec *spec,
                       xm_jvalue value)
{
    drop_zero_flag(spec);
    if (spec->type == 'r' ? xm_jto_repr(p->interp, value, &value)
                          : xm_jto_str(p->interp, value, &value))
        return -1;
    xm_jspec_text(spec, value.u.str, p->out);
    return 0;
}

static int format_int(struct percent *p, struct xm_jspec *spec, xm_jvalue value)
{
    int real_fits = spec->type == 'd' || spec->type == 'i' || spec->type == 'u';
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(p->interp, value);
    if (value.kind == XM_J_FLOAT && real_fits) {
        if (!(value.u.f >= -0x1p63 && value.u.f < 0x1p63))
            return xm_jfail(p->interp, "an integer is beyond 64 bits");
        value = xm_jint((int64_t)value.u.f);
    }
    if (value.kind != XM_J_INT && value.kind != XM_J_BOOL)
        return xm_jfail(p->interp, "%%%c format: a number is required, not %s",
                        spec->type, xm_jtype_name(value));
    if (real_fits)
        spec->type = 'd';
    int least = spec->precision;
    spec->precision = -1;
    if (least <= 0)
        return xm_jspec_int(p->interp, spec, value.u.i, p->out);
    /* For integers a precision is the minimum number of digits. */
    struct xm_jspec inner = *spec;
    inner.width = least + (value.u.i < 0 || spec->sign) +
                  (spec->alt && spec->type != 'd' ? 2 : 0);
    if (spec->align == '=' && spec->width > inner.width)
        inner.width = spec->width;
    inner.align = '=';
    inner.fill = "0";
    xr_str text = { 0 };
    if (xm_jspec_int(p->interp, &inner, value.u.i, &text)) {
        xr_str_free(&text);
        return -1;
    }
    xm_jstr made = { xr_str_text(&text), text.size, text.size };
    xm_jspec_text(spec, &made, p->out);
    xr_str_free(&text);
    return 0;
}

static int format_conversion(struct percent *p)
{
    struct xm_jspec spec;
    xm_jvalue value = xm_jvalue_of(XM_J_MISSING);
    if (p->at < p->end && *p->at == '%') {
        xr_str_append(p->out, p->at++, 1);
        return 0;
    }
    if (p->at < p->end && *p->at == '(') {
        p->at++;
        if (take_named_value(p, &value))
            return -1;
    }
    if (read_percent_spec(p, &spec))
        return -1;
    spec.type = *p->at++;
    if (!spec.type || !strchr("srdiuxXoceEfFgG", spec.type))
        return xm_jfail(p->interp, "unsupported format character '%c'",
                        spec.type >= ' ' && spec.type < 127 ? spec.type : '?');
    if (value.kind == XM_J_MISSING && take_value(p, &value))
        return -1;
    if (spec.type == 'c') {
        spec.precision = -1;
        drop_zero_flag(&spec);
    }
    if (spec.type == 'c' && value.kind == XM_J_STR) {
        if (value.u.str->chars != 1)
            return xm_jfail(p->interp, "%%c requires int or char");
        return format_text(p, &spec, value);
    }
    if (spec.type == 's' || spec.type == 'r')
        return format_text(p, &spec, value);
    if (strchr("diuxXoc", spec.type))
        return format_int(p, &spec, value);
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(p->interp, value);
    if (!xm_jis_number(value))
        return xm_jfail(p->interp, "must be real number, not %s",
                        xm_jtype_name(value));
    if (spec.precision > 350)
        return xm_jfail(p->interp, "a width or precision is too large");
    xm_jspec_real(&spec, xm_jto_real(value), p->out);
    return 0;
}

static int format_percent(struct percent *p)
{
    while (p->at < p->end) {
        const char *sign = memchr(p->at, '%', (size_t)(p->end - p->at));
        const char *stop = sign ? sign : p->end;
        xr_str_append(p->out, p->at, (size_t)(stop - p->at));
        p->at = sign ? sign + 1 : p->end;
        if (sign && (xm_jcount_work(p->interp, 1 + p->out->size / 4096) ||
                     p->out->size > XM_CHAT_MAX_MEMORY || format_conversion(p)))
            return p->out->size > XM_CHAT_MAX_MEMORY
                       ? xm_jfail(p->interp, "a formatted text is too long")
                       : -1;
    }
    if (p->values.kind == XM_J_TUPLE
            ? p->next < p->values.u.list->count
            : !p->next && p->values.kind != XM_J_DICT &&
                  p->values.kind != XM_J_LIST && p->values.kind != XM_J_UNDEF &&
                  p->values.kind != XM_J_RANGE)
        return xm_jfail(p->interp, "not all arguments converted during string "
                                   "formatting");
    return 0;
}

int xm_jformat_percent(xm_jinterp *interp, const xm_jstr *format,
                       xm_jvalue values, xm_jvalue *out)
{
    xr_str text = { 0 };
    struct percent p = { .interp = interp,
                         .at = format->text,
                         .end = format->text + format->size,
                         .values = values,
                         .out = &text };
    if (format_percent(&p)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}

/* The state of one str.format(). */
struct braces {
    xm_jinterp *interp;
    const xm_jargs *args;
    int64_t next; /* index of the next field without a number */
    int manual;   /* a field with a number was seen */
};

/* Finds the argument that a field starts with. As in Python, only a field that
 * is `alone`, without an attribute or item, counts for the rule that automatic
 * and manual numbers do not mix. */
static int find_field_base(struct braces *b, const char *name, size_t size,
                           int alone, xm_jvalue *out)
{
    xm_jstr text = { name, size, xm_jcount_chars(name, size) };
    int64_t index = -1;
    if (!size && alone) {
        if (b->manual)
            return xm_jfail(b->interp, "cannot switch from manual field "
                                       "specification to automatic numbering");
        index = b->next++;
    } else if (xm_jis_class(&text, XM_J_ISDIGIT)) {
        if ((alone && b->next) || xm_jparse_int(&text, 10, &index))
            return xm_jfail(b->interp, "cannot switch from automatic field "
                                       "numbering to manual specification");
        b->manual |= alone;
    }
    if (index >= 0) {
        if ((uint64_t)index >= b->args->count)
            return xm_jfail(b->interp, "replacement index %lld out of range",
                            (long long)index);
        *out = b->args->at[index];
        return 0;
    }
    for (size_t i = 0; i < b->args->named_count; i++) {
        const xm_jstr *key = b->args->named[i].key.u.str;
        if (key->size == size && !memcmp(key->text, name, size)) {
            *out = b->args->named[i].value;
            return 0;
        }
    }
    return xm_jfail(b->interp, "the format key '%.*s' is not given",
                    xm_jshown_size(size), name);
}

/* Finds the value of name(.attribute | [item])*. */
static int find_field_value(struct braces *b, const char *at, const char *end,
                            xm_jvalue *out)
{
    const char *from = at;
    while (at < end && *at != '.' && *at != '[')
        at++;
    if (find_field_base(b, from, (size_t)(at - from), at == end, out))
        return -1;
    while (at < end) {
        int item = *at == '[';
        from = ++at;
        while (at < end && (item ? *at != ']' : *at != '.' && *at != '['))
            at++;
        if ((item && at == end) || at == from)
            return xm_jfail(b->interp, "Empty attribute in format string");
        xm_jstr text = { from, (size_t)(at - from),
                         xm_jcount_chars(from, (size_t)(at - from)) };
        xm_jvalue name;
        int64_t index;
        if (xm_jstr_borrow(b->interp, text.text, text.size, text.chars, &name))
            return -1;
        if (item && xm_jis_class(&text, XM_J_ISDIGIT) &&
            !xm_jparse_int(&text, 10, &index))
            name = xm_jint(index);
        if (item ? xm_jget_item(b->interp, *out, name, out)
                 : xm_jget_attr(b->interp, *out, name, out))
            return -1;
        at += item;
        if (item && at < end && *at != '.' && *at != '[')
            return xm_jfail(b->interp,
                            "Only '.' or '[' may follow ']' in format "
                            "field specifier");
    }
    return 0;
}

static int format_braces(struct braces *b, const char *at, const char *end,
                         int depth, xr_str *out);

static int format_field(struct braces *b, const char *at, const char *end,
                        int depth, xr_str *out)
{
    const char *name = at;
    while (at < end && *at != '!' && *at != ':') {
        if (*at == '[')
            while (at < end && *at != ']')
                at++;
        at += at < end;
    }
    xm_jvalue value;
    if (find_field_value(b, name, at, &value))
        return -1;
    if (at < end && *at == '!') {
        char how = at + 1 < end ? at[1] : 0;
        if ((how != 'r' && how != 's') || (at + 2 < end && at[2] != ':'))
            return xm_jfail(b->interp, "unknown conversion in a format field");
        if (how == 'r' ? xm_jto_repr(b->interp, value, &value)
                       : xm_jto_str(b->interp, value, &value))
            return -1;
        at += 2;
    }
    at += at < end;
    xr_str made = { 0 };
    struct xm_jspec spec;
    int status =
        format_braces(b, at, end, depth - 1, &made) ||
        xm_jspec_read(b->interp, xr_str_text(&made), made.size, &spec) ||
        xm_jspec_write(b->interp, value, &spec, !made.size, out);
    xr_str_free(&made);
    return status ? -1 : 0;
}

/* Returns the brace that closes a field, or NULL. */
static const char *find_field_end(const char *at, const char *end)
{
    int open = 1;
    for (; at < end; at++) {
        open += (*at == '{') - (*at == '}');
        if (!open)
            return at;
    }
    return NULL;
}

static int format_braces(struct braces *b, const char *at, const char *end,
                         int depth, xr_str *out)
{
    if (depth < 0)
        return xm_jfail(b->interp, "Max string recursion exceeded");
    while (at < end) {
        char c = *at++;
        if (c != '{' && c != '}') {
            xr_str_append(out, &c, 1);
            continue;
        }
        if (at < end && *at == c) {
            xr_str_append(out, at++, 1);
            continue;
        }
        const char *to = c == '{' ? find_field_end(at, end) : NULL;
        if (!to)
            return xm_jfail(b->interp,
                            "Single '%c' encountered in format string", c);
        if (xm_jcount_work(b->interp, 1 + (size_t)(to - at) / 8) ||
            format_field(b, at, to, depth, out))
            return -1;
        if (out->size > XM_CHAT_MAX_MEMORY)
            return xm_jfail(b->interp, "a formatted text is too long");
        at = to + 1;
    }
    return 0;
}

int xm_jformat_braces(xm_jinterp *interp, const xm_jstr *format,
                      const xm_jargs *args, xm_jvalue *out)
{
    struct braces b = { .interp = interp, .args = args };
    xr_str text = { 0 };
    if (xm_jcount_work(interp, format->size / 16) ||
        format_braces(&b, format->text, format->text + format->size, 2,
                      &text)) {
        xr_str_free(&text);
        return -1;
    }
    return xm_jstr_take(interp, &text, out);
}
