/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the methods of strings.
 */
#include <string.h>

#include "model/chat/jinja_methods.h"

static xm_jvalue get_arg_at(const xm_jargs *args, size_t i)
{
    return i < args->count ? args->at[i] : xm_jvalue_of(XM_J_MISSING);
}

/* Sets *out to the characters [start, end) that the second and third argument
 * select, and *out_from to start. Returns 1, or 0 if start is past the end. */
static int select_part(xm_jinterp *interp, const char *what, const xm_jstr *str,
                       const xm_jargs *args, xm_jstr *out, int64_t *out_from)
{
    int64_t length = (int64_t)str->chars;
    int64_t bound[2] = { 0, length };
    for (size_t i = 0; i < 2; i++) {
        xm_jvalue arg = get_arg_at(args, i + 1);
        if (arg.kind == XM_J_NONE)
            arg = xm_jvalue_of(XM_J_MISSING);
        if (xm_jread_integer(interp, what, arg, bound[i], &bound[i]))
            return -1;
        if (bound[i] < 0)
            bound[i] = bound[i] + length < 0 ? 0 : bound[i] + length;
    }
    if (bound[1] > length)
        bound[1] = length;
    *out_from = bound[0];
    if (bound[0] > bound[1])
        return 0;
    size_t from = xm_jchar_offset(str, (size_t)bound[0]);
    size_t to = xm_jchar_offset(str, (size_t)bound[1]);
    *out =
        (xm_jstr){ str->text + from, to - from, (size_t)(bound[1] - bound[0]) };
    return xm_jcount_work(interp,
                          str->chars == str->size ? 1 : 1 + str->size / 64)
               ? -1
               : 1;
}

static int str_find(xm_jinterp *interp, const char *name, int from_right,
                    int must, const xm_jstr *str, const xm_jargs *args,
                    xm_jvalue *out)
{
    xm_jstr part = { 0 };
    int64_t from;
    size_t at = SIZE_MAX;
    if (xm_jcheck_positional(interp, name, args, 1, 3) ||
        xm_jexpect_str(interp, name, args->at[0]))
        return -1;
    int inside = select_part(interp, name, str, args, &part, &from);
    if (inside < 0)
        return -1;
    if (inside && (from_right ? xm_jfind_last(interp, part.text, part.size,
                                              args->at[0].u.str, &at)
                              : xm_jfind_first(interp, part.text, part.size,
                                               args->at[0].u.str, &at)))
        return -1;
    if (at == SIZE_MAX && must)
        return xm_jfail(interp, "substring not found");
    *out = xm_jint(
        at == SIZE_MAX ? -1 : from + (int64_t)xm_jcount_chars(part.text, at));
    return 0;
}

static int str_count(xm_jinterp *interp, const xm_jstr *str,
                     const xm_jargs *args, xm_jvalue *out)
{
    xm_jstr part = { 0 };
    int64_t from;
    int64_t count = 0;
    if (xm_jcheck_positional(interp, "count", args, 1, 3) ||
        xm_jexpect_str(interp, "count", args->at[0]))
        return -1;
    const xm_jstr *what = args->at[0].u.str;
    int inside = select_part(interp, "count", str, args, &part, &from);
    if (inside < 0)
        return -1;
    if (inside && !what->size)
        count = (int64_t)part.chars + 1;
    for (size_t at = 0; inside && what->size;) {
        size_t hit;
        if (xm_jcount_work(interp, 1) ||
            xm_jfind_first(interp, part.text + at, part.size - at, what, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        count++;
        at += hit + what->size;
    }
    *out = xm_jint(count);
    return 0;
}

static int has_affix(const xm_jstr *str, const xm_jstr *what, int end)
{
    return what->size <= str->size &&
           !memcmp(str->text + (end ? str->size - what->size : 0), what->text,
                   what->size);
}

static int str_affix(xm_jinterp *interp, const xm_jstr *str,
                     const xm_jargs *args, int end, xm_jvalue *out)
{
    const char *name = end ? "endswith" : "startswith";
    xm_jstr part = { 0 };
    int64_t from;
    if (xm_jcheck_positional(interp, name, args, 1, 3))
        return -1;
    int inside = select_part(interp, name, str, args, &part, &from);
    if (inside < 0)
        return -1;
    xm_jvalue what = args->at[0];
    if (what.kind != XM_J_TUPLE && xm_jexpect_str(interp, name, what))
        return -1;
    size_t count = what.kind == XM_J_TUPLE ? what.u.list->count : 1;
    int found = 0;
    for (size_t i = 0; i < count && !found; i++) {
        xm_jvalue one = what.kind == XM_J_TUPLE ? what.u.list->at[i] : what;
        if (xm_jexpect_str(interp, name, one) || xm_jcount_work(interp, 1))
            return -1;
        found = inside && has_affix(&part, one.u.str, end);
    }
    *out = xm_jbool(found);
    return 0;
}

static int str_remove(xm_jinterp *interp, xm_jvalue self, const xm_jargs *args,
                      int end, xm_jvalue *out)
{
    const char *name = end ? "removesuffix" : "removeprefix";
    const xm_jstr *str = self.u.str;
    *out = self;
    if (xm_jcheck_positional(interp, name, args, 1, 1) ||
        xm_jexpect_str(interp, name, args->at[0]))
        return -1;
    const xm_jstr *what = args->at[0].u.str;
    if (!has_affix(str, what, end))
        return 0;
    return xm_jstr_borrow(interp, str->text + (end ? 0 : what->size),
                          str->size - what->size, str->chars - what->chars,
                          out);
}

static int str_strip(xm_jinterp *interp, xm_jvalue self, const xm_jargs *args,
                     int sides, xm_jvalue *out)
{
    if (xm_jcheck_positional(interp, "strip", args, 0, 1))
        return -1;
    xm_jvalue chars = get_arg_at(args, 0);
    if (chars.kind == XM_J_MISSING || chars.kind == XM_J_NONE)
        return xm_jstrip_chars(interp, self, NULL, sides, out);
    if (xm_jexpect_str(interp, "strip", chars))
        return -1;
    return xm_jstrip_chars(interp, self, chars.u.str, sides, out);
}

static int str_replace(xm_jinterp *interp, const xm_jstr *str,
                       const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "old", "new", "count", NULL };
    xm_jvalue arg[3];
    int64_t limit;
    if (xm_jbind_args(interp, "replace", args, names, 2, arg) ||
        xm_jexpect_str(interp, "replace", arg[0]) ||
        xm_jexpect_str(interp, "replace", arg[1]) ||
        xm_jread_integer(interp, "replace", arg[2], -1, &limit))
        return -1;
    return xm_jreplace_text(interp, str, arg[0].u.str, arg[1].u.str, limit,
                            out);
}

static int str_join(xm_jinterp *interp, const xm_jstr *str,
                    const xm_jargs *args, xm_jvalue *out)
{
    xm_jlist items;
    if (xm_jcheck_positional(interp, "join", args, 1, 1) ||
        xm_jread_items(interp, args->at[0], &items))
        return -1;
    xr_str text = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        if (items.at[i].kind != XM_J_STR) {
            xr_str_free(&text);
            return xm_jfail(
                interp, "sequence item %zu: expected str instance, %s found", i,
                xm_jtype_name(items.at[i]));
        }
        if (i)
            xr_str_append(&text, str->text, str->size);
        xr_str_append(&text, items.at[i].u.str->text, items.at[i].u.str->size);
        if (text.size > XM_CHAT_MAX_MEMORY)
            break;
    }
    return xm_jstr_take(interp, &text, out);
}

static int str_justify(xm_jinterp *interp, enum xm_jmethod_id method,
                       const xm_jstr *str, const xm_jargs *args, xm_jvalue *out)
{
    int64_t width;
    xm_jstr space = { " ", 1, 1 };
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 1, 2) ||
        xm_jread_integer(interp, xm_jmethod_name(method), args->at[0], 0,
                         &width))
        return -1;
    const xm_jstr *fill = &space;
    if (args->count > 1) {
        if (args->at[1].kind != XM_J_STR || args->at[1].u.str->chars != 1)
            return xm_jfail(interp, "the fill must be one character");
        fill = args->at[1].u.str;
    }
    int64_t pad = width - (int64_t)str->chars;
    if (pad < 0)
        pad = 0;
    if (pad > (int64_t)(XM_CHAT_MAX_MEMORY / 4))
        return xm_jfail(interp,
                        "the template needs more than %zu MiB of memory",
                        XM_CHAT_MAX_MEMORY >> 20);
    int64_t left = method == M_LJUST   ? 0
                   : method == M_RJUST ? pad
                                       : pad / 2 + (pad & width & 1);
    xr_str text = { 0 };
    for (int64_t i = 0; i < left; i++)
        xr_str_append(&text, fill->text, fill->size);
    xr_str_append(&text, str->text, str->size);
    for (int64_t i = left; i < pad; i++)
        xr_str_append(&text, fill->text, fill->size);
    return xm_jstr_take(interp, &text, out);
}

static int str_zfill(xm_jinterp *interp, const xm_jstr *str,
                     const xm_jargs *args, xm_jvalue *out)
{
    int64_t width;
    if (xm_jcheck_positional(interp, "zfill", args, 1, 1) ||
        xm_jread_integer(interp, "zfill", args->at[0], 0, &width))
        return -1;
    if (width > (int64_t)(XM_CHAT_MAX_MEMORY / 4))
        return xm_jfail(interp,
                        "the template needs more than %zu MiB of memory",
                        XM_CHAT_MAX_MEMORY >> 20);
    size_t sign = str->size && (*str->text == '-' || *str->text == '+');
    xr_str text = { 0 };
    xr_str_append(&text, str->text, sign);
    for (int64_t i = (int64_t)str->chars; i < width; i++)
        xr_str_puts(&text, "0");
    xr_str_append(&text, str->text + sign, str->size - sign);
    return xm_jstr_take(interp, &text, out);
}

static int str_splitlines(xm_jinterp *interp, const xm_jstr *str,
                          const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "keepends", NULL };
    xm_jvalue keep;
    xm_jlist *lines;
    if (xm_jbind_args(interp, "splitlines", args, names, 0, &keep) ||
        xm_jlist_new(interp, 0, &lines) ||
        xm_jsplit_lines(interp, str, xm_jis_true(keep), lines))
        return -1;
    *out = xm_jlist_value(lines, XM_J_LIST);
    return 0;
}

static int str_convert_case(xm_jinterp *interp, enum xm_jmethod_id method,
                            xm_jvalue self, const xm_jargs *args,
                            xm_jvalue *out)
{
    enum xm_jcase how = method == M_CAPITALIZE ? XM_J_CAPITAL
                        : method == M_CASEFOLD ? XM_J_FOLD
                        : method == M_LOWER    ? XM_J_LOWER
                        : method == M_SWAPCASE ? XM_J_SWAP
                        : method == M_TITLE    ? XM_J_TITLE
                                               : XM_J_UPPER;
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 0, 0))
        return -1;
    return xm_jconvert_case(interp, self, how, out);
}

static int str_is_class(xm_jinterp *interp, enum xm_jmethod_id method,
                        const xm_jstr *str, const xm_jargs *args,
                        xm_jvalue *out)
{
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 0, 0) ||
        xm_jcount_work(interp, str->size / 8))
        return -1;
    *out = xm_jbool(xm_jis_class(
        str, (enum xm_jclass)(XM_J_ISALNUM + (method - M_ISALNUM))));
    return 0;
}

int xm_jcall_str_method(xm_jinterp *interp, enum xm_jmethod_id method,
                        xm_jvalue self, const xm_jargs *args, xm_jvalue *out)
{
    const xm_jstr *str = self.u.str;
    switch (method) {
    case M_COUNT:
        return str_count(interp, str, args, out);
    case M_FIND:
        return str_find(interp, "find", 0, 0, str, args, out);
    case M_INDEX:
        return str_find(interp, "index", 0, 1, str, args, out);
    case M_RFIND:
        return str_find(interp, "rfind", 1, 0, str, args, out);
    case M_RINDEX:
        return str_find(interp, "rindex", 1, 1, str, args, out);
    case M_STARTSWITH:
        return str_affix(interp, str, args, 0, out);
    case M_ENDSWITH:
        return str_affix(interp, str, args, 1, out);
    case M_REMOVEPREFIX:
        return str_remove(interp, self, args, 0, out);
    case M_REMOVESUFFIX:
        return str_remove(interp, self, args, 1, out);
    case M_FORMAT:
        return xm_jformat_braces(interp, str, args, out);
    case M_JOIN:
        return str_join(interp, str, args, out);
    case M_REPLACE:
        return str_replace(interp, str, args, out);
    case M_LSTRIP:
        return str_strip(interp, self, args, XM_J_LEFT, out);
    case M_RSTRIP:
        return str_strip(interp, self, args, XM_J_RIGHT, out);
    case M_STRIP:
        return str_strip(interp, self, args, XM_J_LEFT | XM_J_RIGHT, out);
    case M_SPLITLINES:
        return str_splitlines(interp, str, args, out);
    case M_SPLIT:
    case M_RSPLIT:
    case M_PARTITION:
    case M_RPARTITION:
        return xm_jsplit_text(
            interp, str, args, method == M_RSPLIT || method == M_RPARTITION,
            method == M_PARTITION || method == M_RPARTITION, out);
    case M_LJUST:
    case M_RJUST:
    case M_CENTER:
        return str_justify(interp, method, str, args, out);
    case M_ZFILL:
        return str_zfill(interp, str, args, out);
    default:
        return method >= M_ISALNUM && method <= M_ISTITLE
                   ? str_is_class(interp, method, str, args, out)
                   : str_convert_case(interp, method, self, args, out);
    }
}
