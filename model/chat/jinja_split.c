/* SPDX-License-Identifier: Apache-2.0
 *
 * split, rsplit, partition and rpartition of strings.
 */
#include "model/chat/jinja.h"

static int piece(xm_jrun *run, xm_jlist *out, const char *from, const char *to)
{
    xm_jv value;
    size_t size = (size_t)(to - from);
    return xm_jwork(run, 1 + size / 64) ||
                   xm_jborrow(run, from, size, xm_jchars(from, size), &value)
               ? -1
               : xm_jlist_add(run, out, value);
}

static int space(const char *at, const char *end)
{
    uint32_t code;
    int size = xr_utf8_decode(at, end, &code);
    return size && xm_jspace(code) ? size : 0;
}

static const char *back(const char *from, const char *at)
{
    do
        at--;
    while (at > from && ((unsigned char)*at & 0xC0) == 0x80);
    return at;
}

static int by_space(xm_jrun *run, const xm_jstr *str, int64_t limit,
                    xm_jlist *out)
{
    const char *at = str->text;
    const char *end = at + str->size;
    for (;;) {
        int size;
        while (at < end && (size = space(at, end)))
            at += size;
        if (at == end)
            return 0;
        if (!limit)
            return piece(run, out, at, end);
        limit -= limit > 0;
        const char *from = at;
        while (at < end && !space(at, end))
            at++;
        if (piece(run, out, from, at))
            return -1;
    }
}

/* From the right, pieces in reverse order. */
static int by_space_back(xm_jrun *run, const xm_jstr *str, int64_t limit,
                         xm_jlist *out)
{
    const char *from = str->text;
    const char *at = from + str->size;
    for (;;) {
        while (at > from && space(back(from, at), at))
            at = back(from, at);
        if (at == from)
            return 0;
        if (!limit)
            return piece(run, out, from, at);
        limit -= limit > 0;
        const char *to = at;
        while (at > from && !space(back(from, at), at))
            at = back(from, at);
        if (piece(run, out, at, to))
            return -1;
    }
}

static int by_text(xm_jrun *run, const xm_jstr *str, const xm_jstr *sep,
                   int64_t limit, xm_jlist *out)
{
    const char *at = str->text;
    const char *end = at + str->size;
    while (limit) {
        size_t hit;
        if (xm_jfind(run, at, (size_t)(end - at), sep, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        if (piece(run, out, at, at + hit))
            return -1;
        at += hit + sep->size;
        limit -= limit > 0;
    }
    return piece(run, out, at, end);
}

static int by_text_back(xm_jrun *run, const xm_jstr *str, const xm_jstr *sep,
                        int64_t limit, xm_jlist *out)
{
    const char *from = str->text;
    const char *end = from + str->size;
    while (limit) {
        size_t hit;
        if (xm_jrfind(run, from, (size_t)(end - from), sep, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        if (piece(run, out, from + hit + sep->size, end))
            return -1;
        end = from + hit;
        limit -= limit > 0;
    }
    return piece(run, out, from, end);
}

static void turn(xm_jlist *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        xm_jv other = list->at[list->count - 1 - i];
        list->at[list->count - 1 - i] = list->at[i];
        list->at[i] = other;
    }
}

static int partition(xm_jrun *run, const xm_jstr *str, const xm_jargs *args,
                     int right, xm_jv *out)
{
    xm_jlist *list;
    size_t hit;
    const char *end = str->text + str->size;
    if (args->count != 1 || args->named_count || args->at[0].kind != XM_J_STR)
        return xm_jfail(run, "partition takes one string");
    const xm_jstr *sep = args->at[0].u.str;
    if (!sep->size)
        return xm_jfail(run, "empty separator");
    if (xm_jlist_new(run, 3, &list) ||
        (right ? xm_jrfind(run, str->text, str->size, sep, &hit)
               : xm_jfind(run, str->text, str->size, sep, &hit)))
        return -1;
    const char *cut[4] = { str->text, end, end, end };
    if (hit != SIZE_MAX) {
        cut[1] = str->text + hit;
        cut[2] = cut[1] + sep->size;
    } else if (right) {
        cut[1] = cut[2] = str->text;
    }
    for (int i = 0; i < 3; i++)
        if (piece(run, list, cut[i], cut[i + 1]))
            return -1;
    *out = xm_jlist_value(list, XM_J_TUPLE);
    return 0;
}

int xm_jsplit(xm_jrun *run, const xm_jstr *str, const xm_jargs *args, int right,
              int parts, xm_jv *out)
{
    static const char *const names[] = { "sep", "maxsplit", NULL };
    xm_jv arg[2];
    xm_jlist *list;
    if (parts)
        return partition(run, str, args, right, out);
    if (xm_jbind(run, "split", args, names, 0, arg) ||
        xm_jlist_new(run, 0, &list))
        return -1;
    if (arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_INT &&
        arg[1].kind != XM_J_BOOL)
        return xm_jfail(run, "split needs an integer, not %s",
                        xm_jtypename(arg[1]));
    int64_t limit = arg[1].kind == XM_J_MISSING ? -1 : arg[1].u.i;
    int status;
    if (arg[0].kind == XM_J_MISSING || arg[0].kind == XM_J_NONE)
        status = right ? by_space_back(run, str, limit, list)
                       : by_space(run, str, limit, list);
    else if (arg[0].kind != XM_J_STR)
        return xm_jfail(run, "split needs a string, not %s",
                        xm_jtypename(arg[0]));
    else if (!arg[0].u.str->size)
        return xm_jfail(run, "empty separator");
    else
        status = right ? by_text_back(run, str, arg[0].u.str, limit, list)
                       : by_text(run, str, arg[0].u.str, limit, list);
    if (right)
        turn(list);
    *out = xm_jlist_value(list, XM_J_LIST);
    return status;
}
