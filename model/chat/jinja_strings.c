/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of strings.
 */
#include <string.h>

#include "model/chat/jinja_methods.h"

static xm_jv arg_at(const xm_jargs *args, size_t i)
{
    return i < args->count ? args->at[i] : xm_jof(XM_J_MISSING);
}

/* The characters [start, end) that the arguments behind the first one name, as
 * a string; *out_from is their start. 0 when start lies behind the end. */
static int part_of(xm_jrun *run, const char *what, const xm_jstr *str,
                   const xm_jargs *args, xm_jstr *out, int64_t *out_from)
{
    int64_t length = (int64_t)str->chars;
    int64_t bound[2] = { 0, length };
    for (size_t i = 0; i < 2; i++) {
        xm_jv arg = arg_at(args, i + 1);
        if (arg.kind == XM_J_NONE)
            arg = xm_jof(XM_J_MISSING);
        if (xm_jinteger(run, what, arg, bound[i], &bound[i]))
            return -1;
        if (bound[i] < 0)
            bound[i] = bound[i] + length < 0 ? 0 : bound[i] + length;
    }
    if (bound[1] > length)
        bound[1] = length;
    *out_from = bound[0];
    if (bound[0] > bound[1])
        return 0;
    size_t from = xm_joffset(str, (size_t)bound[0]);
    size_t to = xm_joffset(str, (size_t)bound[1]);
    *out =
        (xm_jstr){ str->text + from, to - from, (size_t)(bound[1] - bound[0]) };
    return xm_jwork(run, str->chars == str->size ? 1 : 1 + str->size / 64) ? -1
                                                                           : 1;
}

static int m_find(xm_jrun *run, const char *name, int from_right, int must,
                  const xm_jstr *str, const xm_jargs *args, xm_jv *out)
{
    xm_jstr part = { 0 };
    int64_t from;
    size_t at = SIZE_MAX;
    if (xm_jpositional(run, name, args, 1, 3) ||
        xm_jwant_text(run, name, args->at[0]))
        return -1;
    int inside = part_of(run, name, str, args, &part, &from);
    if (inside < 0)
        return -1;
    if (inside &&
        (from_right
             ? xm_jrfind(run, part.text, part.size, args->at[0].u.str, &at)
             : xm_jfind(run, part.text, part.size, args->at[0].u.str, &at)))
        return -1;
    if (at == SIZE_MAX && must)
        return xm_jfail(run, "substring not found");
    *out =
        xm_jint(at == SIZE_MAX ? -1 : from + (int64_t)xm_jchars(part.text, at));
    return 0;
}

static int m_count(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                   xm_jv *out)
{
    xm_jstr part = { 0 };
    int64_t from;
    int64_t count = 0;
    if (xm_jpositional(run, "count", args, 1, 3) ||
        xm_jwant_text(run, "count", args->at[0]))
        return -1;
    const xm_jstr *what = args->at[0].u.str;
    int inside = part_of(run, "count", str, args, &part, &from);
    if (inside < 0)
        return -1;
    if (inside && !what->size)
        count = (int64_t)part.chars + 1;
    for (size_t at = 0; inside && what->size;) {
        size_t hit;
        if (xm_jwork(run, 1) ||
            xm_jfind(run, part.text + at, part.size - at, what, &hit))
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

static int m_affix(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                   int end, xm_jv *out)
{
    const char *name = end ? "endswith" : "startswith";
    xm_jstr part = { 0 };
    int64_t from;
    if (xm_jpositional(run, name, args, 1, 3))
        return -1;
    int inside = part_of(run, name, str, args, &part, &from);
    if (inside < 0)
        return -1;
    xm_jv what = args->at[0];
    if (what.kind != XM_J_TUPLE && xm_jwant_text(run, name, what))
        return -1;
    size_t count = what.kind == XM_J_TUPLE ? what.u.list->count : 1;
    int found = 0;
    for (size_t i = 0; i < count && !found; i++) {
        xm_jv one = what.kind == XM_J_TUPLE ? what.u.list->at[i] : what;
        if (xm_jwant_text(run, name, one) || xm_jwork(run, 1))
            return -1;
        found = inside && has_affix(&part, one.u.str, end);
    }
    *out = xm_jbool(found);
    return 0;
}

static int m_remove(xm_jrun *run, xm_jv self, const xm_jargs *args, int end,
                    xm_jv *out)
{
    const char *name = end ? "removesuffix" : "removeprefix";
    const xm_jstr *str = self.u.str;
    *out = self;
    if (xm_jpositional(run, name, args, 1, 1) ||
        xm_jwant_text(run, name, args->at[0]))
        return -1;
    const xm_jstr *what = args->at[0].u.str;
    if (!has_affix(str, what, end))
        return 0;
    return xm_jborrow(run, str->text + (end ? 0 : what->size),
                      str->size - what->size, str->chars - what->chars, out);
}

static int m_strip(xm_jrun *run, xm_jv self, const xm_jargs *args, int sides,
                   xm_jv *out)
{
    if (xm_jpositional(run, "strip", args, 0, 1))
        return -1;
    xm_jv chars = arg_at(args, 0);
    if (chars.kind == XM_J_MISSING || chars.kind == XM_J_NONE)
        return xm_jstrip(run, self, NULL, sides, out);
    if (xm_jwant_text(run, "strip", chars))
        return -1;
    return xm_jstrip(run, self, chars.u.str, sides, out);
}

static int m_replace(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                     xm_jv *out)
{
    static const char *const names[] = { "old", "new", "count", NULL };
    xm_jv arg[3];
    int64_t limit;
    if (xm_jbind(run, "replace", args, names, 2, arg) ||
        xm_jwant_text(run, "replace", arg[0]) ||
        xm_jwant_text(run, "replace", arg[1]) ||
        xm_jinteger(run, "replace", arg[2], -1, &limit))
        return -1;
    return xm_jreplace(run, str, arg[0].u.str, arg[1].u.str, limit, out);
}

static int m_join(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                  xm_jv *out)
{
    xm_jlist items;
    if (xm_jpositional(run, "join", args, 1, 1) ||
        xm_jitems(run, args->at[0], &items))
        return -1;
    xr_str text = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        if (items.at[i].kind != XM_J_STR) {
            xr_str_free(&text);
            return xm_jfail(
                run, "sequence item %zu: expected str instance, %s found", i,
                xm_jtypename(items.at[i]));
        }
        if (i)
            xr_str_append(&text, str->text, str->size);
        xr_str_append(&text, items.at[i].u.str->text, items.at[i].u.str->size);
        if (text.size > XM_CHAT_MAX_MEMORY)
            break;
    }
    return xm_jtext(run, &text, out);
}

static int m_justify(xm_jrun *run, enum xm_jmethod_id method,
                     const xm_jstr *str, const xm_jargs *args, xm_jv *out)
{
    int64_t width;
    xm_jstr space = { " ", 1, 1 };
    if (xm_jpositional(run, xm_jmethod_name(method), args, 1, 2) ||
        xm_jinteger(run, xm_jmethod_name(method), args->at[0], 0, &width))
        return -1;
    const xm_jstr *fill = &space;
    if (args->count > 1) {
        if (args->at[1].kind != XM_J_STR || args->at[1].u.str->chars != 1)
            return xm_jfail(run, "the fill must be one character");
        fill = args->at[1].u.str;
    }
    int64_t pad = width - (int64_t)str->chars;
    if (pad < 0)
        pad = 0;
    if (pad > (int64_t)(XM_CHAT_MAX_MEMORY / 4))
        return xm_jfail(run, "the template needs more than %zu MiB of memory",
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
    return xm_jtext(run, &text, out);
}

static int m_zfill(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                   xm_jv *out)
{
    int64_t width;
    if (xm_jpositional(run, "zfill", args, 1, 1) ||
        xm_jinteger(run, "zfill", args->at[0], 0, &width))
        return -1;
    if (width > (int64_t)(XM_CHAT_MAX_MEMORY / 4))
        return xm_jfail(run, "the template needs more than %zu MiB of memory",
                        XM_CHAT_MAX_MEMORY >> 20);
    size_t sign = str->size && (*str->text == '-' || *str->text == '+');
    xr_str text = { 0 };
    xr_str_append(&text, str->text, sign);
    for (int64_t i = (int64_t)str->chars; i < width; i++)
        xr_str_puts(&text, "0");
    xr_str_append(&text, str->text + sign, str->size - sign);
    return xm_jtext(run, &text, out);
}

static int m_lines(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                   xm_jv *out)
{
    static const char *const names[] = { "keepends", NULL };
    xm_jv keep;
    xm_jlist *lines;
    if (xm_jbind(run, "splitlines", args, names, 0, &keep) ||
        xm_jlist_new(run, 0, &lines) ||
        xm_jlines(run, str, xm_jtruth(keep), lines))
        return -1;
    *out = xm_jlist_value(lines, XM_J_LIST);
    return 0;
}

static int m_cased(xm_jrun *run, enum xm_jmethod_id method, xm_jv self,
                   const xm_jargs *args, xm_jv *out)
{
    enum xm_jcase how = method == M_CAPITALIZE ? XM_J_CAPITAL
                        : method == M_CASEFOLD ? XM_J_FOLD
                        : method == M_LOWER    ? XM_J_LOWER
                        : method == M_SWAPCASE ? XM_J_SWAP
                        : method == M_TITLE    ? XM_J_TITLE
                                               : XM_J_UPPER;
    if (xm_jpositional(run, xm_jmethod_name(method), args, 0, 0))
        return -1;
    return xm_jcase(run, self, how, out);
}

static int m_is(xm_jrun *run, enum xm_jmethod_id method, const xm_jstr *str,
                const xm_jargs *args, xm_jv *out)
{
    if (xm_jpositional(run, xm_jmethod_name(method), args, 0, 0) ||
        xm_jwork(run, str->size / 8))
        return -1;
    *out = xm_jbool(
        xm_jis(str, (enum xm_jclass)(XM_J_ISALNUM + (method - M_ISALNUM))));
    return 0;
}

int xm_jtext_method(xm_jrun *run, enum xm_jmethod_id method, xm_jv self,
                    const xm_jargs *args, xm_jv *out)
{
    const xm_jstr *str = self.u.str;
    switch (method) {
    case M_COUNT:
        return m_count(run, str, args, out);
    case M_FIND:
        return m_find(run, "find", 0, 0, str, args, out);
    case M_INDEX:
        return m_find(run, "index", 0, 1, str, args, out);
    case M_RFIND:
        return m_find(run, "rfind", 1, 0, str, args, out);
    case M_RINDEX:
        return m_find(run, "rindex", 1, 1, str, args, out);
    case M_STARTSWITH:
        return m_affix(run, str, args, 0, out);
    case M_ENDSWITH:
        return m_affix(run, str, args, 1, out);
    case M_REMOVEPREFIX:
        return m_remove(run, self, args, 0, out);
    case M_REMOVESUFFIX:
        return m_remove(run, self, args, 1, out);
    case M_FORMAT:
        return xm_jformat(run, str, args, out);
    case M_JOIN:
        return m_join(run, str, args, out);
    case M_REPLACE:
        return m_replace(run, str, args, out);
    case M_LSTRIP:
        return m_strip(run, self, args, XM_J_LEFT, out);
    case M_RSTRIP:
        return m_strip(run, self, args, XM_J_RIGHT, out);
    case M_STRIP:
        return m_strip(run, self, args, XM_J_LEFT | XM_J_RIGHT, out);
    case M_SPLITLINES:
        return m_lines(run, str, args, out);
    case M_SPLIT:
    case M_RSPLIT:
    case M_PARTITION:
    case M_RPARTITION:
        return xm_jsplit(run, str, args,
                         method == M_RSPLIT || method == M_RPARTITION,
                         method == M_PARTITION || method == M_RPARTITION, out);
    case M_LJUST:
    case M_RJUST:
    case M_CENTER:
        return m_justify(run, method, str, args, out);
    case M_ZFILL:
        return m_zfill(run, str, args, out);
    default:
        return method >= M_ISALNUM && method <= M_ISTITLE
                   ? m_is(run, method, str, args, out)
                   : m_cased(run, method, self, args, out);
    }
}
