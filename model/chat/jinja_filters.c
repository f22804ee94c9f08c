/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds the table of all filters, and implements the filters on strings and
 * numbers.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/chat/jinja_lex.h"

typedef int filter(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                   xm_jvalue *out);

/* Converts a value as str() does, except that a marked string stays marked. */
static int convert_to_string(xm_jinterp *interp, xm_jvalue *value)
{
    return value->kind == XM_J_STR ? 0 : xm_jto_str(interp, *value, value);
}

static int expect_no_args(xm_jinterp *interp, const char *what,
                          const xm_jargs *args)
{
    static const char *const none[] = { NULL };
    xm_jvalue unused;
    return xm_jbind_args(interp, what, args, none, 0, &unused);
}

static int convert_filter_case(xm_jinterp *interp, xm_jvalue in,
                               const xm_jargs *args, enum xm_jcase how,
                               xm_jvalue *out)
{
    if (expect_no_args(interp, "the filter", args) ||
        convert_to_string(interp, &in))
        return -1;
    return xm_jconvert_case(interp, in, how, out);
}

static int filter_upper(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    return convert_filter_case(interp, in, args, XM_J_UPPER, out);
}

static int filter_lower(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    return convert_filter_case(interp, in, args, XM_J_LOWER, out);
}

static int filter_capitalize(xm_jinterp *interp, xm_jvalue in,
                             const xm_jargs *args, xm_jvalue *out)
{
    return convert_filter_case(interp, in, args, XM_J_CAPITAL, out);
}

static int filter_title(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    if (convert_filter_case(interp, in, args, XM_J_TITLE_WORD, out))
        return -1;
    out->markup = 0;
    return 0;
}

static int filter_trim(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                       xm_jvalue *out)
{
    static const char *const names[] = { "chars", NULL };
    xm_jvalue chars;
    if (xm_jbind_args(interp, "trim", args, names, 0, &chars) ||
        convert_to_string(interp, &in))
        return -1;
    if (chars.kind == XM_J_MISSING || chars.kind == XM_J_NONE)
        return xm_jstrip_chars(interp, in, NULL, XM_J_LEFT | XM_J_RIGHT, out);
    if (chars.kind != XM_J_STR)
        return xm_jfail(interp, "trim needs a string, not %s",
                        xm_jtype_name(chars));
    return xm_jstrip_chars(interp, in, chars.u.str, XM_J_LEFT | XM_J_RIGHT,
                           out);
}

static int filter_replace(xm_jinterp *interp, xm_jvalue in,
                          const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "old", "new", "count", NULL };
    xm_jvalue arg[3];
    int64_t limit = -1;
    if (xm_jbind_args(interp, "replace", args, names, 2, arg) ||
        xm_jto_str(interp, in, &in) || xm_jto_str(interp, arg[0], &arg[0]) ||
        xm_jto_str(interp, arg[1], &arg[1]))
        return -1;
    if (arg[2].kind == XM_J_INT || arg[2].kind == XM_J_BOOL)
        limit = arg[2].u.i;
    else if (arg[2].kind != XM_J_MISSING && arg[2].kind != XM_J_NONE)
        return xm_jfail(interp, "replace needs an integer count, not %s",
                        xm_jtype_name(arg[2]));
    return xm_jreplace_text(interp, in.u.str, arg[0].u.str, arg[1].u.str, limit,
                            out);
}

static int filter_default(xm_jinterp *interp, xm_jvalue in,
                          const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "default_value", "boolean", NULL };
    xm_jvalue arg[2];
    if (xm_jbind_args(interp, "default", args, names, 0, arg))
        return -1;
    *out = in;
    if (in.kind != XM_J_UNDEF && (!xm_jis_true(arg[1]) || xm_jis_true(in)))
        return 0;
    *out = arg[0];
    return arg[0].kind == XM_J_MISSING ? xm_jstr_borrow(interp, "", 0, 0, out)
                                       : 0;
}

static int filter_string(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    *out = in;
    return expect_no_args(interp, "string", args) ||
           convert_to_string(interp, out);
}

static int int_from_real(xm_jinterp *interp, double value, xm_jvalue *out)
{
    if (isinf(value))
        return xm_jfail(interp, "cannot convert float infinity to integer");
    if (!(value >= -0x1p63 && value < 0x1p63))
        return xm_jfail(interp, "an integer is beyond 64 bits");
    *out = xm_jint((int64_t)value);
    return 0;
}

static int int_from_text(xm_jinterp *interp, const xm_jstr *text, int64_t base,
                         xm_jvalue preset, xm_jvalue *out)
{
    int64_t integer = 0;
    double real;
    int known = base == 0 || (base >= 2 && base <= 36);
    int status = known ? xm_jparse_int(text, (int)base, &integer) : -1;
    if (status > 0)
        return xm_jfail(interp, "an integer is beyond 64 bits");
    *out = xm_jint(integer);
    if (!status)
        return 0;
    *out = preset;
    /* As in Jinja, "42.5"|int is 42, and so is an integer of no known base. */
    if (xm_jparse_real(text, &real) || !isfinite(real))
        return 0;
    return int_from_real(interp, real, out);
}

static int filter_int(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                      xm_jvalue *out)
{
    static const char *const names[] = { "default", "base", NULL };
    xm_jvalue arg[2];
    if (xm_jbind_args(interp, "int", args, names, 0, arg))
        return -1;
    *out = arg[0].kind == XM_J_MISSING ? xm_jint(0) : arg[0];
    int64_t base = arg[1].kind == XM_J_INT ? arg[1].u.i : 10;
    switch ((enum xm_jkind)in.kind) {
    case XM_J_UNDEF:
        return xm_jfail_undefined(interp, in);
    case XM_J_INT:
    case XM_J_BOOL:
        *out = xm_jint(in.u.i);
        return 0;
    case XM_J_FLOAT:
        return isnan(in.u.f) ? 0 : int_from_real(interp, in.u.f, out);
    case XM_J_STR:
        return int_from_text(interp, in.u.str, base, *out, out);
    default:
        return 0;
    }
}

static int filter_float(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    static const char *const names[] = { "default", NULL };
    xm_jvalue preset;
    double real;
    if (xm_jbind_args(interp, "float", args, names, 0, &preset))
        return -1;
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, in);
    *out = preset.kind == XM_J_MISSING ? xm_jfloat(0) : preset;
    if (xm_jis_number(in))
        *out = xm_jfloat(xm_jto_real(in));
    else if (in.kind == XM_J_STR && !xm_jparse_real(in.u.str, &real))
        *out = xm_jfloat(real);
    return 0;
}

static int filter_abs(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                      xm_jvalue *out)
{
    if (expect_no_args(interp, "abs", args))
        return -1;
    if (!xm_jis_number(in))
        return xm_jfail(interp, "bad operand type for abs(): '%s'",
                        xm_jtype_name(in));
    if (in.kind == XM_J_FLOAT)
        *out = xm_jfloat(fabs(in.u.f));
    else if (in.u.i < 0)
        return xm_jnegate(interp, in, out);
    else
        *out = xm_jint(in.u.i);
    return 0;
}

/* Python's round(): to the nearest, with ties decided on the exact value. */
static double round_real(double value, int64_t digits)
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

static int round_integer(xm_jinterp *interp, int64_t value, int64_t digits,
                         xm_jvalue *out)
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
    xm_jvalue step =
        xm_jint(twice > 0 || (!twice && odd) ? (rest < 0 ? -unit : unit) : 0);
    if ((step.u.i > 0 && base > INT64_MAX - step.u.i) ||
        (step.u.i < 0 && base < INT64_MIN - step.u.i))
        return xm_jfail(interp, "an integer is beyond 64 bits");
    *out = xm_jint(base + step.u.i);
    return 0;
}

static int filter_round(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    static const char *const names[] = { "precision", "method", NULL };
    xm_jvalue arg[2];
    if (xm_jbind_args(interp, "round", args, names, 0, arg))
        return -1;
    const char *how = arg[1].kind == XM_J_STR ? arg[1].u.str->text : "common";
    int up = !strcmp(how, "ceil");
    if (!up && strcmp(how, "floor") != 0 && strcmp(how, "common") != 0)
        return xm_jfail(interp, "round: method must be common, ceil or floor");
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, in);
    if (!xm_jis_number(in))
        return xm_jfail(interp, "type %s has no rounding", xm_jtype_name(in));
    if (arg[0].kind != XM_J_MISSING && arg[0].kind != XM_J_INT &&
        arg[0].kind != XM_J_BOOL)
        return xm_jfail(interp, "round needs an integer precision, not %s",
                        xm_jtype_name(arg[0]));
    int64_t digits = arg[0].kind == XM_J_MISSING ? 0 : arg[0].u.i;
    if (digits > 10000 || digits < -10000)
        return xm_jfail(interp, "round: the precision is out of range");
    if (!strcmp(how, "common")) {
        if (in.kind != XM_J_FLOAT)
            return round_integer(interp, in.u.i, digits, out);
        *out = xm_jfloat(round_real(in.u.f, digits));
        return 0;
    }
    double unit = pow(10, (double)digits);
    double scaled = xm_jto_real(in) * unit;
    if (!isfinite(scaled))
        return xm_jfail(interp, "cannot convert float infinity to integer");
    /* Python rounds to an integer here, which has no negative zero. */
    *out = xm_jfloat(((up ? ceil(scaled) : floor(scaled)) + 0.0) / unit);
    return 0;
}

static int write_indented(xm_jinterp *interp, const xm_jlist *lines,
                          const xm_jstr *by, int first, int blank, xr_str *text)
{
    for (size_t i = 0; i < lines->count; i++) {
        const xm_jstr *line = lines->at[i].u.str;
        if (i)
            xr_str_puts(text, "\n");
        if (i ? blank || line->size : first)
            xr_str_append(text, by->text, by->size);
        xr_str_append(text, line->text, line->size);
        if (xm_jcount_work(interp, 1 + (by->size + line->size) / 32) ||
            text->size > XM_CHAT_MAX_MEMORY)
            return xm_jcount_work(interp, XM_CHAT_MAX_STEPS);
    }
    return 0;
}

static int filter_indent(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    static const char *const names[] = { "width", "first", "blank", NULL };
    xm_jvalue arg[3];
    xm_jvalue newline;
    xm_jvalue by;
    xm_jlist lines = { 0 };
    if (xm_jbind_args(interp, "indent", args, names, 0, arg) ||
        xm_jstr_borrow(interp, "\n", 1, 1, &newline) ||
        xm_jstr_borrow(interp, " ", 1, 1, &by) ||
        xm_jbinary_op(interp, XM_T_ADD, in, newline, &newline))
        return -1;
    xm_jvalue width = arg[0].kind == XM_J_MISSING ? xm_jint(4) : arg[0];
    if (width.kind == XM_J_STR)
        by = width;
    else if (xm_jbinary_op(interp, XM_T_MUL, by, width, &by))
        return -1;
    xr_str text = { 0 };
    if (xm_jsplit_lines(interp, newline.u.str, 0, &lines) ||
        write_indented(interp, &lines, by.u.str, xm_jis_true(arg[1]),
                       xm_jis_true(arg[2]), &text)) {
        xr_str_free(&text);
        return -1;
    }
    if (xm_jstr_take(interp, &text, out))
        return -1;
    out->markup = in.markup;
    return 0;
}

static int filter_safe(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                       xm_jvalue *out)
{
    *out = in;
    if (expect_no_args(interp, "safe", args) || convert_to_string(interp, out))
        return -1;
    out->markup = 1;
    return 0;
}

static int filter_forceescape(xm_jinterp *interp, xm_jvalue in,
                              const xm_jargs *args, xm_jvalue *out)
{
    if (expect_no_args(interp, "escape", args) ||
        convert_to_string(interp, &in) ||
        xm_jcount_work(interp, in.u.str->size / 8))
        return -1;
    xr_str text = { 0 };
    xm_jappend_escaped(in.u.str, &text);
    if (xm_jstr_take(interp, &text, out))
        return -1;
    out->markup = 1;
    return 0;
}

static int filter_escape(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    *out = in;
    return in.markup ? 0 : filter_forceescape(interp, in, args, out);
}

static int filter_wordcount(xm_jinterp *interp, xm_jvalue in,
                            const xm_jargs *args, xm_jvalue *out)
{
    if (expect_no_args(interp, "wordcount", args) ||
        convert_to_string(interp, &in) ||
        xm_jcount_work(interp, in.u.str->size / 8))
        return -1;
    const char *end = in.u.str->text + in.u.str->size;
    int64_t words = 0;
    int inside = 0;
    for (const char *at = in.u.str->text; at < end;) {
        uint32_t code = 0;
        int size = xr_utf8_decode(at, end, &code);
        int word = size && xm_jis_word_char(code);
        words += word && !inside;
        inside = word;
        at += size ? size : 1;
    }
    *out = xm_jint(words);
    return 0;
}

static int filter_format(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    if (args->count && args->named_count)
        return xm_jfail(interp, "format: can't handle positional and keyword "
                                "arguments at the same time");
    if (convert_to_string(interp, &in))
        return -1;
    xm_jlist list = { args->at, args->count, args->count };
    xm_jdict named = { args->named, args->named_count, args->named_count };
    xm_jvalue values = xm_jlist_value(&list, XM_J_TUPLE);
    if (args->named_count) {
        values = xm_jvalue_of(XM_J_DICT);
        values.u.dict = &named;
    }
    if (xm_jformat_percent(interp, in.u.str, values, out))
        return -1;
    out->markup = in.markup;
    return 0;
}

static int filter_length(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    size_t length;
    if (expect_no_args(interp, "length", args))
        return -1;
    if (xm_jlength(in, &length))
        return xm_jfail(interp, "object of type '%s' has no len()",
                        xm_jtype_name(in));
    *out = xm_jint((int64_t)length);
    return 0;
}

static int filter_attr(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                       xm_jvalue *out)
{
    static const char *const names[] = { "name", NULL };
    xm_jvalue name;
    if (xm_jbind_args(interp, "attr", args, names, 1, &name))
        return -1;
    if (name.kind != XM_J_STR)
        return xm_jfail(interp, "attr needs a name, not %s",
                        xm_jtype_name(name));
    return xm_jget_own_attr(interp, in, name, out);
}

/* A filter has a function, or the number of a sequence filter. */
static const struct {
    const char *name;
    filter *text;
    enum xm_jseq sequence;
} filters[] = {
    { "abs", filter_abs, 0 },
    { "attr", filter_attr, 0 },
    { "batch", NULL, XM_J_BATCH },
    { "capitalize", filter_capitalize, 0 },
    { "count", filter_length, 0 },
    { "d", filter_default, 0 },
    { "default", filter_default, 0 },
    { "dictsort", NULL, XM_J_DICTSORT },
    { "e", filter_escape, 0 },
    { "escape", filter_escape, 0 },
    { "first", NULL, XM_J_FIRST },
    { "float", filter_float, 0 },
    { "forceescape", filter_forceescape, 0 },
    { "format", filter_format, 0 },
    { "groupby", NULL, XM_J_GROUPBY },
    { "indent", filter_indent, 0 },
    { "int", filter_int, 0 },
    { "items", NULL, XM_J_PAIRS },
    { "join", NULL, XM_J_JOIN },
    { "last", NULL, XM_J_LAST },
    { "length", filter_length, 0 },
    { "list", NULL, XM_J_AS_LIST },
    { "lower", filter_lower, 0 },
    { "map", NULL, XM_J_MAP },
    { "max", NULL, XM_J_MAX },
    { "min", NULL, XM_J_MIN },
    { "reject", NULL, XM_J_REJECT },
    { "rejectattr", NULL, XM_J_REJECTATTR },
    { "replace", filter_replace, 0 },
    { "reverse", NULL, XM_J_REVERSE },
    { "round", filter_round, 0 },
    { "safe", filter_safe, 0 },
    { "select", NULL, XM_J_SELECT },
    { "selectattr", NULL, XM_J_SELECTATTR },
    { "slice", NULL, XM_J_SLICE },
    { "sort", NULL, XM_J_SORT },
    { "string", filter_string, 0 },
    { "sum", NULL, XM_J_SUM },
    { "title", filter_title, 0 },
    { "tojson", xm_jto_json, 0 },
    { "trim", filter_trim, 0 },
    { "unique", NULL, XM_J_UNIQUE },
    { "upper", filter_upper, 0 },
    { "wordcount", filter_wordcount, 0 },
};

int xm_jfind_filter(const char *name, size_t size)
{
    for (size_t i = 0; i < sizeof filters / sizeof filters[0]; i++)
        if (strlen(filters[i].name) == size &&
            !memcmp(filters[i].name, name, size))
            return (int)i;
    return -1;
}

int xm_jcall_filter(xm_jinterp *interp, int id, xm_jvalue in,
                    const xm_jargs *args, xm_jvalue *out)
{
    if (xm_jcount_work(interp, 1) || xm_jenter_level(interp))
        return -1;
    int status =
        filters[id].text
            ? filters[id].text(interp, in, args, out)
            : xm_jcall_seq_filter(interp, filters[id].sequence, in, args, out);
    xm_jleave_level(interp);
    return status;
}
