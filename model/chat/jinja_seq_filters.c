/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the filters on sequences. They read their input at once, where
 * Python's are lazy; like Python's generators, their result can be read once.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

/* Reads one part of a dotted path. Digits are an index. */
static int get_path_part(xm_jinterp *interp, xm_jvalue item, const char *text,
                         size_t size, xm_jvalue *out)
{
    xm_jvalue key;
    int64_t index;
    xm_jstr part = { text, size, xm_jcount_chars(text, size) };
    if (xm_jis_class(&part, XM_J_ISDIGIT) && !xm_jparse_int(&part, 10, &index))
        key = xm_jint(index);
    else if (xm_jstr_borrow(interp, text, size, part.chars, &key))
        return -1;
    return xm_jget_item(interp, item, key, out);
}

int xm_jget_path(xm_jinterp *interp, xm_jvalue item, xm_jvalue path,
                 const xm_jvalue *preset, int fold, xm_jvalue *out)
{
    *out = item;
    if (path.kind == XM_J_STR) {
        const char *at = path.u.str->text;
        const char *end = at + path.u.str->size;
        for (;;) {
            const char *dot = memchr(at, '.', (size_t)(end - at));
            const char *stop = dot ? dot : end;
            if (xm_jcount_work(interp, 1) ||
                get_path_part(interp, *out, at, (size_t)(stop - at), out))
                return -1;
            if (preset && out->kind == XM_J_UNDEF)
                *out = *preset;
            if (!dot)
                break;
            at = dot + 1;
        }
    } else if (path.kind != XM_J_NONE && path.kind != XM_J_MISSING) {
        if (xm_jget_item(interp, item, path, out))
            return -1;
        if (preset && out->kind == XM_J_UNDEF)
            *out = *preset;
    }
    if (fold && out->kind == XM_J_STR)
        return xm_jconvert_case(interp, *out, XM_J_LOWER, out);
    return 0;
}

static int filter_first(xm_jinterp *interp, xm_jvalue in, xm_jvalue *out)
{
    xm_jlist items;
    if (in.kind == XM_J_ITER) {
        xm_jiter *iter = in.u.iter;
        if (iter->next < iter->items.count) {
            *out = iter->items.at[iter->next++];
            return 0;
        }
    }
    if (xm_jread_items(interp, in, &items))
        return -1;
    if (items.count) {
        *out = items.at[0];
        return 0;
    }
    return xm_jundef_new(interp, "no first item, the sequence is empty",
                         xm_jvalue_of(XM_J_MISSING), xm_jvalue_of(XM_J_MISSING),
                         out);
}

static int filter_last(xm_jinterp *interp, xm_jvalue in, xm_jvalue *out)
{
    xm_jlist items;
    if (in.kind == XM_J_ITER)
        return xm_jfail(interp, "'generator' object is not reversible");
    if (xm_jread_items(interp, in, &items))
        return -1;
    if (items.count) {
        *out = items.at[items.count - 1];
        return 0;
    }
    return xm_jundef_new(interp, "no last item, the sequence is empty",
                         xm_jvalue_of(XM_J_MISSING), xm_jvalue_of(XM_J_MISSING),
                         out);
}

static int copy_items(xm_jinterp *interp, xm_jvalue in, xm_jlist **out)
{
    xm_jlist items;
    if (xm_jread_items(interp, in, &items) ||
        xm_jlist_new(interp, items.count, out))
        return -1;
    if (items.count)
        memcpy((*out)->at, items.at, items.count * sizeof *items.at);
    (*out)->count = items.count;
    return 0;
}

static int filter_list(xm_jinterp *interp, xm_jvalue in, xm_jvalue *out)
{
    xm_jlist *list;
    if (copy_items(interp, in, &list))
        return -1;
    *out = xm_jlist_value(list, XM_J_LIST);
    return 0;
}

static int filter_items(xm_jinterp *interp, xm_jvalue in, xm_jvalue *out)
{
    xm_jlist items = { 0 };
    if (in.kind == XM_J_DICT) {
        in.kind = XM_J_VIEW;
        in.sub = XM_J_ITEMS;
        if (xm_jread_items(interp, in, &items))
            return -1;
    } else if (in.kind != XM_J_UNDEF) {
        return xm_jfail(interp, "items needs a mapping, not %s",
                        xm_jtype_name(in));
    }
    return xm_jiter_new(interp, items, out);
}

static int filter_reverse(xm_jinterp *interp, xm_jvalue in, xm_jvalue *out)
{
    xm_jlist *list;
    if (in.kind == XM_J_STR) {
        const xm_jvalue back[3] = { xm_jnone(), xm_jnone(), xm_jint(-1) };
        return xm_jget_slice(interp, in, back, out);
    }
    if (copy_items(interp, in, &list))
        return -1;
    for (size_t i = 0; i < list->count / 2; i++) {
        xm_jvalue other = list->at[list->count - 1 - i];
        list->at[list->count - 1 - i] = list->at[i];
        list->at[i] = other;
    }
    if (in.kind == XM_J_ITER) {
        *out = xm_jlist_value(list, XM_J_LIST);
        return 0;
    }
    return xm_jiter_new(interp, *list, out);
}

static int filter_join(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                       xm_jvalue *out)
{
    static const char *const names[] = { "d", "attribute", NULL };
    xm_jvalue arg[2];
    xm_jlist items;
    if (xm_jbind_args(interp, "join", args, names, 0, arg) ||
        xm_jread_items(interp, in, &items))
        return -1;
    if (arg[0].kind != XM_J_MISSING && xm_jto_str(interp, arg[0], &arg[0]))
        return -1;
    xr_str text = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue item = items.at[i];
        if (i && arg[0].kind == XM_J_STR &&
            xm_jappend_str(interp, arg[0], &text))
            goto drop_text;
        if (xm_jget_path(interp, item, arg[1], NULL, 0, &item) ||
            xm_jappend_str(interp, item, &text) || xm_jcount_work(interp, 1))
            goto drop_text;
        if (text.size > XM_CHAT_MAX_MEMORY)
            break;
    }
    return xm_jstr_take(interp, &text, out);
drop_text:
    xr_str_free(&text);
    return -1;
}

static int filter_sum(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                      xm_jvalue *out)
{
    static const char *const names[] = { "attribute", "start", NULL };
    xm_jvalue arg[2];
    xm_jlist items;
    if (xm_jbind_args(interp, "sum", args, names, 0, arg) ||
        xm_jread_items(interp, in, &items))
        return -1;
    *out = arg[1].kind == XM_J_MISSING ? xm_jint(0) : arg[1];
    if (out->kind == XM_J_STR)
        return xm_jfail(interp, "sum() can't sum strings");
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue item;
        if (xm_jget_path(interp, items.at[i], arg[0], NULL, 0, &item) ||
            xm_jbinary_op(interp, XM_T_ADD, *out, item, out) ||
            xm_jcount_work(interp, 1))
            return -1;
    }
    return 0;
}

static int read_count_arg(xm_jinterp *interp, const char *what, xm_jvalue arg,
                          int64_t *out)
{
    if (arg.kind != XM_J_INT && arg.kind != XM_J_BOOL)
        return xm_jfail(interp, "%s needs an integer, not %s", what,
                        xm_jtype_name(arg));
    *out = arg.u.i;
    return 0;
}

static int filter_batch(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    static const char *const names[] = { "linecount", "fill_with", NULL };
    xm_jvalue arg[2];
    int64_t size = 0;
    xm_jlist items;
    xm_jlist all = { 0 };
    xm_jlist *row = NULL;
    if (xm_jbind_args(interp, "batch", args, names, 1, arg) ||
        read_count_arg(interp, "batch", arg[0], &size) ||
        xm_jread_items(interp, in, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        if (!row || (int64_t)row->count == size) {
            /* As in Jinja, batch(0) starts with an empty row. */
            if (!row && size == 0 &&
                (xm_jlist_new(interp, 0, &row) ||
                 xm_jlist_add(interp, &all, xm_jlist_value(row, XM_J_LIST))))
                return -1;
            if (xm_jlist_new(interp, 0, &row) ||
                xm_jlist_add(interp, &all, xm_jlist_value(row, XM_J_LIST)))
                return -1;
        }
        if (xm_jlist_add(interp, row, items.at[i]))
            return -1;
    }
    int fill = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    while (row && fill && (int64_t)row->count < size)
        if (xm_jlist_add(interp, row, arg[1]) || xm_jcount_work(interp, 1))
            return -1;
    return xm_jiter_new(interp, all, out);
}

static int filter_slice(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                        xm_jvalue *out)
{
    static const char *const names[] = { "slices", "fill_with", NULL };
    xm_jvalue arg[2];
    int64_t slices = 0;
    xm_jlist items;
    xm_jlist all = { 0 };
    if (xm_jbind_args(interp, "slice", args, names, 1, arg) ||
        read_count_arg(interp, "slice", arg[0], &slices) ||
        xm_jread_items(interp, in, &items))
        return -1;
    if (!slices)
        return xm_jfail(interp, "integer division or modulo by zero");
    int fill = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    size_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t extra = (int64_t)items.count % slices;
        int64_t size = (int64_t)items.count / slices + (i < extra);
        xm_jlist *part;
        if (xm_jcount_work(interp, 1) ||
            xm_jlist_new(interp, (size_t)size, &part))
            return -1;
        for (int64_t j = 0; j < size; j++)
            part->at[j] = items.at[at++];
        part->count = (size_t)size;
        if (fill && i >= extra && xm_jlist_add(interp, part, arg[1]))
            return -1;
        if (xm_jlist_add(interp, &all, xm_jlist_value(part, XM_J_LIST)))
            return -1;
    }
    return xm_jiter_new(interp, all, out);
}

/* The arguments of map: an attribute of each item, or a filter applied to
 * it. */
struct mapping {
    int filter;
    xm_jvalue path;
    xm_jvalue preset;
    xm_jargs args;
};

static int read_map_args(xm_jinterp *interp, const xm_jargs *args,
                         struct mapping *out)
{
    static const char *const names[] = { "attribute", "default", NULL };
    xm_jvalue arg[2];
    out->filter = -1;
    if (!args->count && args->named_count) {
        if (xm_jbind_args(interp, "map", args, names, 1, arg))
            return -1;
        out->path = arg[0];
        out->preset = arg[1];
        return 0;
    }
    if (!args->count)
        return xm_jfail(interp, "map requires a filter argument");
    xm_jvalue name = args->at[0];
    if (name.kind == XM_J_STR)
        out->filter = xm_jfind_filter(name.u.str->text, name.u.str->size);
    if (out->filter < 0)
        return xm_jfail(interp, "map: there is no filter named '%.100s'",
                        name.kind == XM_J_STR ? name.u.str->text
                                              : xm_jtype_name(name));
    out->args = (xm_jargs){ args->at + 1, args->count - 1, args->named,
                            args->named_count };
    return 0;
}

static int filter_map(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                      xm_jvalue *out)
{
    struct mapping plan = { 0 };
    xm_jlist items = { 0 };
    xm_jlist made = { 0 };
    if (!xm_jis_true(in))
        return xm_jiter_new(interp, made, out);
    if (read_map_args(interp, args, &plan) ||
        xm_jread_items(interp, in, &items))
        return -1;
    int preset =
        plan.preset.kind != XM_J_MISSING && plan.preset.kind != XM_J_NONE;
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue value;
        if (plan.filter >= 0
                ? xm_jcall_filter(interp, plan.filter, items.at[i], &plan.args,
                                  &value)
                : xm_jget_path(interp, items.at[i], plan.path,
                               preset ? &plan.preset : NULL, 0, &value))
            return -1;
        if (xm_jlist_add(interp, &made, value))
            return -1;
    }
    return xm_jiter_new(interp, made, out);
}

static int test_item(xm_jinterp *interp, xm_jvalue item, int test,
                     const xm_jargs *args, int *out)
{
    if (test >= 0)
        return xm_jcall_test(interp, test, item, args, out);
    *out = xm_jis_true(item);
    return xm_jcount_work(interp, 1);
}

static int filter_select(xm_jinterp *interp, enum xm_jseq which, xm_jvalue in,
                         const xm_jargs *args, xm_jvalue *out)
{
    size_t by_path = which == XM_J_SELECTATTR || which == XM_J_REJECTATTR;
    int reject = which == XM_J_REJECT || which == XM_J_REJECTATTR;
    xm_jlist items;
    xm_jlist kept = { 0 };
    xm_jargs rest = { 0 };
    int test = -1;
    if (!xm_jis_true(in))
        return xm_jiter_new(interp, kept, out);
    if (args->count < by_path)
        return xm_jfail(interp, "missing parameter for attribute name");
    if (args->count > by_path) {
        xm_jvalue name = args->at[by_path];
        if (name.kind == XM_J_STR)
            test = xm_jfind_test(name.u.str->text, name.u.str->size);
        if (test < 0)
            return xm_jfail(interp, "there is no test named '%.100s'",
                            name.kind == XM_J_STR ? name.u.str->text
                                                  : xm_jtype_name(name));
        rest = (xm_jargs){ args->at + by_path + 1, args->count - by_path - 1,
                           args->named, args->named_count };
    }
    if (xm_jread_items(interp, in, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue value = items.at[i];
        int keep;
        if ((by_path &&
             xm_jget_path(interp, value, args->at[0], NULL, 0, &value)) ||
            test_item(interp, value, test, &rest, &keep))
            return -1;
        if (keep != reject && xm_jlist_add(interp, &kept, items.at[i]))
            return -1;
    }
    return xm_jiter_new(interp, kept, out);
}

int xm_jcall_seq_filter(xm_jinterp *interp, enum xm_jseq which, xm_jvalue in,
                        const xm_jargs *args, xm_jvalue *out)
{
    static const char *const none[] = { NULL };
    xm_jvalue unused;
    if (which <= XM_J_PAIRS || which == XM_J_REVERSE)
        if (xm_jbind_args(interp, "the filter", args, none, 0, &unused))
            return -1;
    switch (which) {
    case XM_J_FIRST:
        return filter_first(interp, in, out);
    case XM_J_LAST:
        return filter_last(interp, in, out);
    case XM_J_AS_LIST:
        return filter_list(interp, in, out);
    case XM_J_PAIRS:
        return filter_items(interp, in, out);
    case XM_J_MAP:
        return filter_map(interp, in, args, out);
    case XM_J_SELECT:
    case XM_J_REJECT:
    case XM_J_SELECTATTR:
    case XM_J_REJECTATTR:
        return filter_select(interp, which, in, args, out);
    case XM_J_REVERSE:
        return filter_reverse(interp, in, out);
    case XM_J_SUM:
        return filter_sum(interp, in, args, out);
    case XM_J_BATCH:
        return filter_batch(interp, in, args, out);
    case XM_J_SLICE:
        return filter_slice(interp, in, args, out);
    case XM_J_JOIN:
        return filter_join(interp, in, args, out);
    default:
        return xm_jcall_sort_filter(interp, which, in, args, out);
    }
}
