/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters over sequences: they read their input at once, where Python's are
 * lazy; what they give reads once like Python's generators.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

/* One part of a dotted path: digits are an index. */
static int step(xm_jrun *run, xm_jv item, const char *text, size_t size,
                xm_jv *out)
{
    xm_jv key;
    int64_t index;
    xm_jstr part = { text, size, xm_jchars(text, size) };
    if (xm_jis(&part, XM_J_ISDIGIT) && !xm_jparse_int(&part, 10, &index))
        key = xm_jint(index);
    else if (xm_jborrow(run, text, size, part.chars, &key))
        return -1;
    return xm_jitem(run, item, key, out);
}

int xm_jpath(xm_jrun *run, xm_jv item, xm_jv path, const xm_jv *preset,
             int fold, xm_jv *out)
{
    *out = item;
    if (path.kind == XM_J_STR) {
        const char *at = path.u.str->text;
        const char *end = at + path.u.str->size;
        for (;;) {
            const char *dot = memchr(at, '.', (size_t)(end - at));
            const char *stop = dot ? dot : end;
            if (xm_jwork(run, 1) ||
                step(run, *out, at, (size_t)(stop - at), out))
                return -1;
            if (preset && out->kind == XM_J_UNDEF)
                *out = *preset;
            if (!dot)
                break;
            at = dot + 1;
        }
    } else if (path.kind != XM_J_NONE && path.kind != XM_J_MISSING) {
        if (xm_jitem(run, item, path, out))
            return -1;
        if (preset && out->kind == XM_J_UNDEF)
            *out = *preset;
    }
    if (fold && out->kind == XM_J_STR)
        return xm_jcase(run, *out, XM_J_LOWER, out);
    return 0;
}

static int f_first(xm_jrun *run, xm_jv in, xm_jv *out)
{
    xm_jlist items;
    if (in.kind == XM_J_ITER) {
        xm_jiter *iter = in.u.iter;
        if (iter->next < iter->items.count) {
            *out = iter->items.at[iter->next++];
            return 0;
        }
    }
    if (xm_jitems(run, in, &items))
        return -1;
    if (items.count) {
        *out = items.at[0];
        return 0;
    }
    return xm_jundefined(run, "no first item, the sequence is empty",
                         xm_jof(XM_J_MISSING), xm_jof(XM_J_MISSING), out);
}

static int f_last(xm_jrun *run, xm_jv in, xm_jv *out)
{
    xm_jlist items;
    if (in.kind == XM_J_ITER)
        return xm_jfail(run, "'generator' object is not reversible");
    if (xm_jitems(run, in, &items))
        return -1;
    if (items.count) {
        *out = items.at[items.count - 1];
        return 0;
    }
    return xm_jundefined(run, "no last item, the sequence is empty",
                         xm_jof(XM_J_MISSING), xm_jof(XM_J_MISSING), out);
}

static int copy_list(xm_jrun *run, xm_jv in, xm_jlist **out)
{
    xm_jlist items;
    if (xm_jitems(run, in, &items) || xm_jlist_new(run, items.count, out))
        return -1;
    if (items.count)
        memcpy((*out)->at, items.at, items.count * sizeof *items.at);
    (*out)->count = items.count;
    return 0;
}

static int f_list(xm_jrun *run, xm_jv in, xm_jv *out)
{
    xm_jlist *list;
    if (copy_list(run, in, &list))
        return -1;
    *out = xm_jlist_value(list, XM_J_LIST);
    return 0;
}

static int f_items(xm_jrun *run, xm_jv in, xm_jv *out)
{
    xm_jlist items = { 0 };
    if (in.kind == XM_J_DICT) {
        in.kind = XM_J_VIEW;
        in.sub = XM_J_ITEMS;
        if (xm_jitems(run, in, &items))
            return -1;
    } else if (in.kind != XM_J_UNDEF) {
        return xm_jfail(run, "items needs a mapping, not %s", xm_jtypename(in));
    }
    return xm_jiter_new(run, items, out);
}

static int f_reverse(xm_jrun *run, xm_jv in, xm_jv *out)
{
    xm_jlist *list;
    if (in.kind == XM_J_STR) {
        const xm_jv back[3] = { xm_jnone(), xm_jnone(), xm_jint(-1) };
        return xm_jslice(run, in, back, out);
    }
    if (copy_list(run, in, &list))
        return -1;
    for (size_t i = 0; i < list->count / 2; i++) {
        xm_jv other = list->at[list->count - 1 - i];
        list->at[list->count - 1 - i] = list->at[i];
        list->at[i] = other;
    }
    if (in.kind == XM_J_ITER) {
        *out = xm_jlist_value(list, XM_J_LIST);
        return 0;
    }
    return xm_jiter_new(run, *list, out);
}

static int f_join(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "d", "attribute", NULL };
    xm_jv arg[2];
    xm_jlist items;
    if (xm_jbind(run, "join", args, names, 0, arg) ||
        xm_jitems(run, in, &items))
        return -1;
    if (arg[0].kind != XM_J_MISSING && xm_jstr_of(run, arg[0], &arg[0]))
        return -1;
    xr_str text = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        xm_jv item = items.at[i];
        if (i && arg[0].kind == XM_J_STR && xm_jprint(run, arg[0], &text))
            goto drop_text;
        if (xm_jpath(run, item, arg[1], NULL, 0, &item) ||
            xm_jprint(run, item, &text) || xm_jwork(run, 1))
            goto drop_text;
        if (text.size > XM_CHAT_MAX_MEMORY)
            break;
    }
    return xm_jtext(run, &text, out);
drop_text:
    xr_str_free(&text);
    return -1;
}

static int f_sum(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "attribute", "start", NULL };
    xm_jv arg[2];
    xm_jlist items;
    if (xm_jbind(run, "sum", args, names, 0, arg) || xm_jitems(run, in, &items))
        return -1;
    *out = arg[1].kind == XM_J_MISSING ? xm_jint(0) : arg[1];
    if (out->kind == XM_J_STR)
        return xm_jfail(run, "sum() can't sum strings");
    for (size_t i = 0; i < items.count; i++) {
        xm_jv item;
        if (xm_jpath(run, items.at[i], arg[0], NULL, 0, &item) ||
            xm_jbinary(run, XM_T_ADD, *out, item, out) || xm_jwork(run, 1))
            return -1;
    }
    return 0;
}

static int count_arg(xm_jrun *run, const char *what, xm_jv arg, int64_t *out)
{
    if (arg.kind != XM_J_INT && arg.kind != XM_J_BOOL)
        return xm_jfail(run, "%s needs an integer, not %s", what,
                        xm_jtypename(arg));
    *out = arg.u.i;
    return 0;
}

static int f_batch(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "linecount", "fill_with", NULL };
    xm_jv arg[2];
    int64_t size = 0;
    xm_jlist items;
    xm_jlist all = { 0 };
    xm_jlist *row = NULL;
    if (xm_jbind(run, "batch", args, names, 1, arg) ||
        count_arg(run, "batch", arg[0], &size) || xm_jitems(run, in, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        if (!row || (int64_t)row->count == size) {
            /* Rows of 0 start with an empty one, as in Jinja. */
            if (!row && size == 0 &&
                (xm_jlist_new(run, 0, &row) ||
                 xm_jlist_add(run, &all, xm_jlist_value(row, XM_J_LIST))))
                return -1;
            if (xm_jlist_new(run, 0, &row) ||
                xm_jlist_add(run, &all, xm_jlist_value(row, XM_J_LIST)))
                return -1;
        }
        if (xm_jlist_add(run, row, items.at[i]))
            return -1;
    }
    int fill = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    while (row && fill && (int64_t)row->count < size)
        if (xm_jlist_add(run, row, arg[1]) || xm_jwork(run, 1))
            return -1;
    return xm_jiter_new(run, all, out);
}

static int f_slice(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "slices", "fill_with", NULL };
    xm_jv arg[2];
    int64_t slices = 0;
    xm_jlist items;
    xm_jlist all = { 0 };
    if (xm_jbind(run, "slice", args, names, 1, arg) ||
        count_arg(run, "slice", arg[0], &slices) || xm_jitems(run, in, &items))
        return -1;
    if (!slices)
        return xm_jfail(run, "integer division or modulo by zero");
    int fill = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    size_t at = 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t extra = (int64_t)items.count % slices;
        int64_t size = (int64_t)items.count / slices + (i < extra);
        xm_jlist *part;
        if (xm_jwork(run, 1) || xm_jlist_new(run, (size_t)size, &part))
            return -1;
        for (int64_t j = 0; j < size; j++)
            part->at[j] = items.at[at++];
        part->count = (size_t)size;
        if (fill && i >= extra && xm_jlist_add(run, part, arg[1]))
            return -1;
        if (xm_jlist_add(run, &all, xm_jlist_value(part, XM_J_LIST)))
            return -1;
    }
    return xm_jiter_new(run, all, out);
}

/* map: an attribute of each item, or a filter over it. */
struct mapping {
    int filter;
    xm_jv path;
    xm_jv preset;
    xm_jargs args;
};

static int map_plan(xm_jrun *run, const xm_jargs *args, struct mapping *out)
{
    static const char *const names[] = { "attribute", "default", NULL };
    xm_jv arg[2];
    out->filter = -1;
    if (!args->count && args->named_count) {
        if (xm_jbind(run, "map", args, names, 1, arg))
            return -1;
        out->path = arg[0];
        out->preset = arg[1];
        return 0;
    }
    if (!args->count)
        return xm_jfail(run, "map requires a filter argument");
    xm_jv name = args->at[0];
    if (name.kind == XM_J_STR)
        out->filter = xm_jfilter_find(name.u.str->text, name.u.str->size);
    if (out->filter < 0)
        return xm_jfail(run, "map: there is no filter named '%.100s'",
                        name.kind == XM_J_STR ? name.u.str->text
                                              : xm_jtypename(name));
    out->args = (xm_jargs){ args->at + 1, args->count - 1, args->named,
                            args->named_count };
    return 0;
}

static int f_map(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    struct mapping plan = { 0 };
    xm_jlist items = { 0 };
    xm_jlist made = { 0 };
    if (!xm_jtruth(in))
        return xm_jiter_new(run, made, out);
    if (map_plan(run, args, &plan) || xm_jitems(run, in, &items))
        return -1;
    int preset =
        plan.preset.kind != XM_J_MISSING && plan.preset.kind != XM_J_NONE;
    for (size_t i = 0; i < items.count; i++) {
        xm_jv value;
        if (plan.filter >= 0
                ? xm_jfilter(run, plan.filter, items.at[i], &plan.args, &value)
                : xm_jpath(run, items.at[i], plan.path,
                           preset ? &plan.preset : NULL, 0, &value))
            return -1;
        if (xm_jlist_add(run, &made, value))
            return -1;
    }
    return xm_jiter_new(run, made, out);
}

static int keeps(xm_jrun *run, xm_jv item, int test, const xm_jargs *args,
                 int *out)
{
    if (test >= 0)
        return xm_jtest(run, test, item, args, out);
    *out = xm_jtruth(item);
    return xm_jwork(run, 1);
}

static int f_select(xm_jrun *run, enum xm_jseq which, xm_jv in,
                    const xm_jargs *args, xm_jv *out)
{
    size_t by_path = which == XM_J_SELECTATTR || which == XM_J_REJECTATTR;
    int reject = which == XM_J_REJECT || which == XM_J_REJECTATTR;
    xm_jlist items;
    xm_jlist kept = { 0 };
    xm_jargs rest = { 0 };
    int test = -1;
    if (!xm_jtruth(in))
        return xm_jiter_new(run, kept, out);
    if (args->count < by_path)
        return xm_jfail(run, "missing parameter for attribute name");
    if (args->count > by_path) {
        xm_jv name = args->at[by_path];
        if (name.kind == XM_J_STR)
            test = xm_jtest_find(name.u.str->text, name.u.str->size);
        if (test < 0)
            return xm_jfail(run, "there is no test named '%.100s'",
                            name.kind == XM_J_STR ? name.u.str->text
                                                  : xm_jtypename(name));
        rest = (xm_jargs){ args->at + by_path + 1, args->count - by_path - 1,
                           args->named, args->named_count };
    }
    if (xm_jitems(run, in, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        xm_jv value = items.at[i];
        int keep;
        if ((by_path && xm_jpath(run, value, args->at[0], NULL, 0, &value)) ||
            keeps(run, value, test, &rest, &keep))
            return -1;
        if (keep != reject && xm_jlist_add(run, &kept, items.at[i]))
            return -1;
    }
    return xm_jiter_new(run, kept, out);
}

int xm_jseq_filter(xm_jrun *run, enum xm_jseq which, xm_jv in,
                   const xm_jargs *args, xm_jv *out)
{
    static const char *const none[] = { NULL };
    xm_jv unused;
    if (which <= XM_J_PAIRS || which == XM_J_REVERSE)
        if (xm_jbind(run, "the filter", args, none, 0, &unused))
            return -1;
    switch (which) {
    case XM_J_FIRST:
        return f_first(run, in, out);
    case XM_J_LAST:
        return f_last(run, in, out);
    case XM_J_AS_LIST:
        return f_list(run, in, out);
    case XM_J_PAIRS:
        return f_items(run, in, out);
    case XM_J_MAP:
        return f_map(run, in, args, out);
    case XM_J_SELECT:
    case XM_J_REJECT:
    case XM_J_SELECTATTR:
    case XM_J_REJECTATTR:
        return f_select(run, which, in, args, out);
    case XM_J_REVERSE:
        return f_reverse(run, in, out);
    case XM_J_SUM:
        return f_sum(run, in, args, out);
    case XM_J_BATCH:
        return f_batch(run, in, args, out);
    case XM_J_SLICE:
        return f_slice(run, in, args, out);
    case XM_J_JOIN:
        return f_join(run, in, args, out);
    default:
        return xm_jorder_filter(run, which, in, args, out);
    }
}
