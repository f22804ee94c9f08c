/* SPDX-License-Identifier: Apache-2.0
 *
 * Splits strings: split, rsplit, partition and rpartition.
 */
#include "model/chat/jinja.h"

static int add_piece(xm_jinterp *interp, xm_jlist *out, const char *from,
                     const char *to)
{
    xm_jvalue value;
    size_t size = (size_t)(to - from);
    return xm_jcount_work(interp, 1 + size / 64) ||
                   xm_jstr_borrow(interp, from, size,
                                  xm_jcount_chars(from, size), &value)
               ? -1
               : xm_jlist_add(interp, out, value);
}

static int match_space(const char *at, const char *end)
{
    uint32_t code;
    int size = xr_utf8_decode(at, end, &code);
    return size && xm_jis_space(code) ? size : 0;
}

static const char *move_back(const char *from, const char *at)
{
    do
        at--;
    while (at > from && ((unsigned char)*at & 0xC0) == 0x80);
    return at;
}

static int split_at_space(xm_jinterp *interp, const xm_jstr *str, int64_t limit,
                          xm_jlist *out)
{
    const char *at = str->text;
    const char *end = at + str->size;
    for (;;) {
        int size;
        while (at < end && (size = match_space(at, end)))
            at += size;
        if (at == end)
            return 0;
        if (!limit)
            return add_piece(interp, out, at, end);
        limit -= limit > 0;
        const char *from = at;
        while (at < end && !match_space(at, end))
            at++;
        if (add_piece(interp, out, from, at))
            return -1;
    }
}

/* Splits from the right; the pieces are in reverse order. */
static int split_at_space_back(xm_jinterp *interp, const xm_jstr *str,
                               int64_t limit, xm_jlist *out)
{
    const char *from = str->text;
    const char *at = from + str->size;
    for (;;) {
        while (at > from && match_space(move_back(from, at), at))
            at = move_back(from, at);
        if (at == from)
            return 0;
        if (!limit)
            return add_piece(interp, out, from, at);
        limit -= limit > 0;
        const char *to = at;
        while (at > from && !match_space(move_back(from, at), at))
            at = move_back(from, at);
        if (add_piece(interp, out, at, to))
            return -1;
    }
}

static int split_at_text(xm_jinterp *interp, const xm_jstr *str,
                         const xm_jstr *sep, int64_t limit, xm_jlist *out)
{
    const char *at = str->text;
    const char *end = at + str->size;
    while (limit) {
        size_t hit;
        if (xm_jfind_first(interp, at, (size_t)(end - at), sep, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        if (add_piece(interp, out, at, at + hit))
            return -1;
        at += hit + sep->size;
        limit -= limit > 0;
    }
    return add_piece(interp, out, at, end);
}

static int split_at_text_back(xm_jinterp *interp, const xm_jstr *str,
                              const xm_jstr *sep, int64_t limit, xm_jlist *out)
{
    const char *from = str->text;
    const char *end = from + str->size;
    while (limit) {
        size_t hit;
        if (xm_jfind_last(interp, from, (size_t)(end - from), sep, &hit))
            return -1;
        if (hit == SIZE_MAX)
            break;
        if (add_piece(interp, out, from + hit + sep->size, end))
            return -1;
        end = from + hit;
        limit -= limit > 0;
    }
    return add_piece(interp, out, from, end);
}

static void reverse_list(xm_jlist *list)
{
    for (size_t i = 0; i < list->count / 2; i++) {
        xm_jvalue other = list->at[list->count - 1 - i];
        list->at[list->count - 1 - i] = list->at[i];
        list->at[i] = other;
    }
}

static int partition_text(xm_jinterp *interp, const xm_jstr *str,
                          const xm_jargs *args, int right, xm_jvalue *out)
{
    xm_jlist *list;
    size_t hit;
    const char *end = str->text + str->size;
    if (args->count != 1 || args->named_count || args->at[0].kind != XM_J_STR)
        return xm_jfail(interp, "partition takes one string");
    const xm_jstr *sep = args->at[0].u.str;
    if (!sep->size)
        return xm_jfail(interp, "empty separator");
    if (xm_jlist_new(interp, 3, &list) ||
        (right ? xm_jfind_last(interp, str->text, str->size, sep, &hit)
               : xm_jfind_first(interp, str->text, str->size, sep, &hit)))
        return -1;
    const char *cut[4] = { str->text, end, end, end };
    if (hit != SIZE_MAX) {
        cut[1] = str->text + hit;
        cut[2] = cut[1] + sep->size;
    } else if (right) {
        cut[1] = cut[2] = str->text;
    }
    for (int i = 0; i < 3; i++)
        if (add_piece(interp, list, cut[i], cut[i + 1]))
            return -1;
    *out = xm_jlist_value(list, XM_J_TUPLE);
    return 0;
}

int xm_jsplit_text(xm_jinterp *interp, const xm_jstr *str, const xm_jargs *args,
                   int right, int parts, xm_jvalue *out)
{
    static const char *const names[] = { "sep", "maxsplit", NULL };
    xm_jvalue arg[2];
    xm_jlist *list;
    if (parts)
        return partition_text(interp, str, args, right, out);
    if (xm_jbind_args(interp, "split", args, names, 0, arg) ||
        xm_jlist_new(interp, 0, &list))
        return -1;
    if (arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_INT &&
        arg[1].kind != XM_J_BOOL)
        return xm_jfail(interp, "split needs an integer, not %s",
                        xm_jtype_name(arg[1]));
    int64_t limit = arg[1].kind == XM_J_MISSING ? -1 : arg[1].u.i;
    int status;
    if (arg[0].kind == XM_J_MISSING || arg[0].kind == XM_J_NONE)
        status = right ? split_at_space_back(interp, str, limit, list)
                       : split_at_space(interp, str, limit, list);
    else if (arg[0].kind != XM_J_STR)
        return xm_jfail(interp, "split needs a string, not %s",
                        xm_jtype_name(arg[0]));
    else if (!arg[0].u.str->size)
        return xm_jfail(interp, "empty separator");
    else
        status =
            right ? split_at_text_back(interp, str, arg[0].u.str, limit, list)
                  : split_at_text(interp, str, arg[0].u.str, limit, list);
    if (right)
        reverse_list(list);
    *out = xm_jlist_value(list, XM_J_LIST);
    return status;
}
