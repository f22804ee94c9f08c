/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters over strings and numbers, and the table of all filters.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

typedef int filter(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out);

/* A string as it is, marked or not; anything else as str() writes it. */
static int soft(xm_jrun *run, xm_jv *value)
{
    return value->kind == XM_J_STR ? 0 : xm_jstr_of(run, *value, value);
}

static int no_args(xm_jrun *run, const char *what, const xm_jargs *args)
{
    static const char *const none[] = { NULL };
    xm_jv unused;
    return xm_jbind(run, what, args, none, 0, &unused);
}

static int cased(xm_jrun *run, xm_jv in, const xm_jargs *args,
                 enum xm_jcase how, xm_jv *out)
{
    if (no_args(run, "the filter", args) || soft(run, &in))
        return -1;
    return xm_jcase(run, in, how, out);
}

static int f_upper(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    return cased(run, in, args, XM_J_UPPER, out);
}

static int f_lower(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    return cased(run, in, args, XM_J_LOWER, out);
}

static int f_capitalize(xm_jrun *run, xm_jv in, const xm_jargs *args,
                        xm_jv *out)
{
    return cased(run, in, args, XM_J_CAPITAL, out);
}

static int f_title(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    if (cased(run, in, args, XM_J_TITLE_WORD, out))
        return -1;
    out->markup = 0;
    return 0;
}

static int f_trim(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "chars", NULL };
    xm_jv chars;
    if (xm_jbind(run, "trim", args, names, 0, &chars) || soft(run, &in))
        return -1;
    if (chars.kind == XM_J_MISSING || chars.kind == XM_J_NONE)
        return xm_jstrip(run, in, NULL, XM_J_LEFT | XM_J_RIGHT, out);
    if (chars.kind != XM_J_STR)
        return xm_jfail(run, "trim needs a string, not %s",
                        xm_jtypename(chars));
    return xm_jstrip(run, in, chars.u.str, XM_J_LEFT | XM_J_RIGHT, out);
}

static int f_replace(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "old", "new", "count", NULL };
    xm_jv arg[3];
    int64_t limit = -1;
    if (xm_jbind(run, "replace", args, names, 2, arg) ||
        xm_jstr_of(run, in, &in) || xm_jstr_of(run, arg[0], &arg[0]) ||
        xm_jstr_of(run, arg[1], &arg[1]))
        return -1;
    if (arg[2].kind == XM_J_INT || arg[2].kind == XM_J_BOOL)
        limit = arg[2].u.i;
    else if (arg[2].kind != XM_J_MISSING && arg[2].kind != XM_J_NONE)
        return xm_jfail(run, "replace needs an integer count, not %s",
                        xm_jtypename(arg[2]));
    return xm_jreplace(run, in.u.str, arg[0].u.str, arg[1].u.str, limit, out);
}

static int f_default(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "default_value", "boolean", NULL };
    xm_jv arg[2];
    if (xm_jbind(run, "default", args, names, 0, arg))
        return -1;
    *out = in;
    if (in.kind != XM_J_UNDEF && (!xm_jtruth(arg[1]) || xm_jtruth(in)))
        return 0;
    *out = arg[0];
    return arg[0].kind == XM_J_MISSING ? xm_jborrow(run, "", 0, 0, out) : 0;
}

static int f_string(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    *out = in;
    return no_args(run, "string", args) || soft(run, out);
}

static int from_real(xm_jrun *run, double value, xm_jv *out)
{
    if (isinf(value))
        return xm_jfail(run, "cannot convert float infinity to integer");
    if (!(value > -0x1p63 && value < 0x1p63))
        return xm_jfail(run, "an integer leaves 64 bits");
    *out = xm_jint((int64_t)value);
    return 0;
}

static int int_of_text(xm_jrun *run, const xm_jstr *text, int64_t base,
                       xm_jv preset, xm_jv *out)
{
    int64_t whole = 0;
    double real;
    if (base < 0 || base == 1 || base > 36)
        return xm_jfail(run, "int() base must be >= 2 and <= 36, or 0");
    int status = xm_jparse_int(text, (int)base, &whole);
    if (status > 0)
        return xm_jfail(run, "an integer leaves 64 bits");
    *out = xm_jint(whole);
    if (!status)
        return 0;
    *out = preset;
    /* "42.5"|int is 42. */
    if (xm_jparse_real(text, &real) || !isfinite(real))
        return 0;
    return from_real(run, real, out);
}

static int f_int(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "default", "base", NULL };
    xm_jv arg[2];
    if (xm_jbind(run, "int", args, names, 0, arg))
        return -1;
    *out = arg[0].kind == XM_J_MISSING ? xm_jint(0) : arg[0];
    int64_t base = arg[1].kind == XM_J_INT ? arg[1].u.i : 10;
    switch ((enum xm_jkind)in.kind) {
    case XM_J_UNDEF:
        return xm_jfail_undefined(run, in);
    case XM_J_INT:
    case XM_J_BOOL:
        *out = xm_jint(in.u.i);
        return 0;
    case XM_J_FLOAT:
        return isnan(in.u.f) ? 0 : from_real(run, in.u.f, out);
    case XM_J_STR:
        return int_of_text(run, in.u.str, base, *out, out);
    default:
        return 0;
    }
}

static int f_float(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "default", NULL };
    xm_jv preset;
    double real;
    if (xm_jbind(run, "float", args, names, 0, &preset))
        return -1;
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, in);
    *out = preset.kind == XM_J_MISSING ? xm_jfloat(0) : preset;
    if (xm_jis_number(in))
        *out = xm_jfloat(xm_jreal(in));
    else if (in.kind == XM_J_STR && !xm_jparse_real(in.u.str, &real))
        *out = xm_jfloat(real);
    return 0;
}

static int f_abs(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    if (no_args(run, "abs", args))
        return -1;
    if (!xm_jis_number(in))
        return xm_jfail(run, "bad operand type for abs(): '%s'",
                        xm_jtypename(in));
    if (in.kind == XM_J_FLOAT)
        *out = xm_jfloat(fabs(in.u.f));
    else if (in.u.i < 0)
        return xm_jnegate(run, in, out);
    else
        *out = xm_jint(in.u.i);
    return 0;
}

/* Python's round(): to the nearest, ties judged on the exact value. */
static double rounded(double value, int64_t digits)
{
    char text[400];
    if (!isfinite(value) || digits > 320)
        return value;
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return isfinite(unit) ? rint(value / unit) * unit : 0 * value;
    }
    int size = snprintf(text, sizeof text, "%.*f", (int)digits, value);
    return size < (int)sizeof text ? strtod(text, NULL) : value;
}

static int round_int(xm_jrun *run, int64_t value, int64_t digits, xm_jv *out)
{
    *out = xm_jint(value);
    if (digits >= 0)
        return 0;
    int64_t unit = 1;
    for (int64_t i = 0; i > digits && unit; i--)
        unit = i <= -18 ? 0 : unit * 10;
    if (!unit) {
        *out = xm_jint(0);
        return 0;
    }
    int64_t rest = value % unit;
    int64_t base = value - rest;
    int64_t twice = (rest < 0 ? -rest : rest) - unit / 2;
    int odd = (base / unit) % 2 != 0;
    xm_jv step =
        xm_jint(twice > 0 || (!twice && odd) ? (rest < 0 ? -unit : unit) : 0);
    if ((step.u.i > 0 && base > INT64_MAX - step.u.i) ||
        (step.u.i < 0 && base < INT64_MIN - step.u.i))
        return xm_jfail(run, "an integer leaves 64 bits");
    *out = xm_jint(base + step.u.i);
    return 0;
}

static int f_round(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "precision", "method", NULL };
    xm_jv arg[2];
    if (xm_jbind(run, "round", args, names, 0, arg))
        return -1;
    const char *how = arg[1].kind == XM_J_STR ? arg[1].u.str->text : "common";
    int up = !strcmp(how, "ceil");
    if (!up && strcmp(how, "floor") != 0 && strcmp(how, "common") != 0)
        return xm_jfail(run, "round: method must be common, ceil or floor");
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, in);
    if (!xm_jis_number(in))
        return xm_jfail(run, "type %s has no rounding", xm_jtypename(in));
    if (arg[0].kind != XM_J_MISSING && arg[0].kind != XM_J_INT &&
        arg[0].kind != XM_J_BOOL)
        return xm_jfail(run, "round needs an integer precision, not %s",
                        xm_jtypename(arg[0]));
    int64_t digits = arg[0].kind == XM_J_MISSING ? 0 : arg[0].u.i;
    if (digits > 10000 || digits < -10000)
        return xm_jfail(run, "round: the precision is out of range");
    if (!strcmp(how, "common")) {
        if (in.kind != XM_J_FLOAT)
            return round_int(run, in.u.i, digits, out);
        *out = xm_jfloat(rounded(in.u.f, digits));
        return 0;
    }
    double unit = pow(10, (double)digits);
    double scaled = xm_jreal(in) * unit;
    *out = xm_jfloat((up ? ceil(scaled) : floor(scaled)) / unit);
    return 0;
}

static int indented(xm_jrun *run, const xm_jlist *lines, const xm_jstr *by,
                    int first, int blank, xr_str *text)
{
    for (size_t i = 0; i < lines->count; i++) {
        const xm_jstr *line = lines->at[i].u.str;
        if (i)
            xr_str_puts(text, "\n");
        if (i ? blank || line->size : first)
            xr_str_append(text, by->text, by->size);
        xr_str_append(text, line->text, line->size);
        if (xm_jwork(run, 1 + (by->size + line->size) / 32) ||
            text->size > XM_CHAT_MAX_MEMORY)
            return xm_jwork(run, XM_CHAT_MAX_STEPS);
    }
    return 0;
}

static int f_indent(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "width", "first", "blank", NULL };
    xm_jv arg[3];
    xm_jv newline;
    xm_jv by;
    xm_jlist lines = { 0 };
    if (xm_jbind(run, "indent", args, names, 0, arg) ||
        xm_jborrow(run, "\n", 1, 1, &newline) ||
        xm_jborrow(run, " ", 1, 1, &by) ||
        xm_jbinary(run, XM_T_ADD, in, newline, &newline))
        return -1;
    xm_jv width = arg[0].kind == XM_J_MISSING ? xm_jint(4) : arg[0];
    if (width.kind == XM_J_STR)
        by = width;
    else if (xm_jbinary(run, XM_T_MUL, by, width, &by))
        return -1;
    xr_str text = { 0 };
    if (xm_jlines(run, newline.u.str, 0, &lines) ||
        indented(run, &lines, by.u.str, xm_jtruth(arg[1]), xm_jtruth(arg[2]),
                 &text)) {
        xr_str_free(&text);
        return -1;
    }
    if (xm_jtext(run, &text, out))
        return -1;
    out->markup = in.markup;
    return 0;
}

static int f_safe(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    *out = in;
    if (no_args(run, "safe", args) || soft(run, out))
        return -1;
    out->markup = 1;
    return 0;
}

static int f_forceescape(xm_jrun *run, xm_jv in, const xm_jargs *args,
                         xm_jv *out)
{
    if (no_args(run, "escape", args) || soft(run, &in) ||
        xm_jwork(run, in.u.str->size / 8))
        return -1;
    xr_str text = { 0 };
    xm_jescape(in.u.str, &text);
    if (xm_jtext(run, &text, out))
        return -1;
    out->markup = 1;
    return 0;
}

static int f_escape(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    *out = in;
    return in.markup ? 0 : f_forceescape(run, in, args, out);
}

static int f_wordcount(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    if (no_args(run, "wordcount", args) || soft(run, &in) ||
        xm_jwork(run, in.u.str->size / 8))
        return -1;
    const char *end = in.u.str->text + in.u.str->size;
    int64_t words = 0;
    int inside = 0;
    for (const char *at = in.u.str->text; at < end;) {
        uint32_t code = 0;
        int size = xr_utf8_decode(at, end, &code);
        int word = size && xm_jword(code);
        words += word && !inside;
        inside = word;
        at += size ? size : 1;
    }
    *out = xm_jint(words);
    return 0;
}

static int f_format(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    if (args->count && args->named_count)
        return xm_jfail(run, "format: can't handle positional and keyword "
                             "arguments at the same time");
    if (soft(run, &in))
        return -1;
    xm_jlist list = { args->at, args->count, args->count };
    xm_jdict named = { args->named, args->named_count, args->named_count };
    xm_jv values = xm_jlist_value(&list, XM_J_TUPLE);
    if (args->named_count) {
        values = xm_jof(XM_J_DICT);
        values.u.dict = &named;
    }
    if (xm_jpercent(run, in.u.str, values, out))
        return -1;
    out->markup = in.markup;
    return 0;
}

static int f_length(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    size_t length;
    if (no_args(run, "length", args))
        return -1;
    if (xm_jlength(in, &length))
        return xm_jfail(run, "object of type '%s' has no len()",
                        xm_jtypename(in));
    *out = xm_jint((int64_t)length);
    return 0;
}

static int f_attr(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "name", NULL };
    xm_jv name;
    if (xm_jbind(run, "attr", args, names, 1, &name))
        return -1;
    if (name.kind != XM_J_STR)
        return xm_jfail(run, "attr needs a name, not %s", xm_jtypename(name));
    return xm_jown_attr(run, in, name, out);
}

/* first..last are sequence filters, whose number stands in place of a
 * function. */
static const struct {
    const char *name;
    filter *text;
    enum xm_jseq sequence;
} filters[] = {
    { "abs", f_abs, 0 },
    { "attr", f_attr, 0 },
    { "batch", NULL, XM_J_BATCH },
    { "capitalize", f_capitalize, 0 },
    { "count", f_length, 0 },
    { "d", f_default, 0 },
    { "default", f_default, 0 },
    { "dictsort", NULL, XM_J_DICTSORT },
    { "e", f_escape, 0 },
    { "escape", f_escape, 0 },
    { "first", NULL, XM_J_FIRST },
    { "float", f_float, 0 },
    { "forceescape", f_forceescape, 0 },
    { "format", f_format, 0 },
    { "groupby", NULL, XM_J_GROUPBY },
    { "indent", f_indent, 0 },
    { "int", f_int, 0 },
    { "items", NULL, XM_J_PAIRS },
    { "join", NULL, XM_J_JOIN },
    { "last", NULL, XM_J_LAST },
    { "length", f_length, 0 },
    { "list", NULL, XM_J_AS_LIST },
    { "lower", f_lower, 0 },
    { "map", NULL, XM_J_MAP },
    { "max", NULL, XM_J_MAX },
    { "min", NULL, XM_J_MIN },
    { "reject", NULL, XM_J_REJECT },
    { "rejectattr", NULL, XM_J_REJECTATTR },
    { "replace", f_replace, 0 },
    { "reverse", NULL, XM_J_REVERSE },
    { "round", f_round, 0 },
    { "safe", f_safe, 0 },
    { "select", NULL, XM_J_SELECT },
    { "selectattr", NULL, XM_J_SELECTATTR },
    { "slice", NULL, XM_J_SLICE },
    { "sort", NULL, XM_J_SORT },
    { "string", f_string, 0 },
    { "sum", NULL, XM_J_SUM },
    { "title", f_title, 0 },
    { "tojson", xm_jtojson, 0 },
    { "trim", f_trim, 0 },
    { "unique", NULL, XM_J_UNIQUE },
    { "upper", f_upper, 0 },
    { "wordcount", f_wordcount, 0 },
};

int xm_jfilter_find(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strlen(filters[i].name) == size &&
            !memcmp(filters[i].name, name, size))
            return (int)i;
    return -1;
}

int xm_jfilter(xm_jrun *run, int id, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    if (xm_jwork(run, 1) || xm_jenter(run))
        return -1;
    int status = filters[id].text
                     ? filters[id].text(run, in, args, out)
                     : xm_jseq_filter(run, filters[id].sequence, in, args, out);
    xm_jleave(run);
    return status;
}
