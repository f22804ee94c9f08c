/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the filters that compare items: sort, dictsort, groupby, unique,
 * min and max.
 */
#include <string.h>

#include "model/chat/jinja.h"

struct keyed {
    xm_jvalue key;
    xm_jvalue value;
};

/* Whether a < b. Keys that are lists are compared for equality first, as Python
 * does, so that two None need no order. */
static int key_precedes(xm_jinterp *interp, int in_list, xm_jvalue a,
                        xm_jvalue b, int *out)
{
    int equal = 0;
    int order = 0;
    if (in_list && xm_jequal(interp, a, b, &equal))
        return -1;
    if (!equal && xm_jorder_values(interp, "<", a, b, &order))
        return -1;
    *out = !equal && order < 0;
    return 0;
}

/* The order of a sort. */
struct order {
    int reverse; /* equal items still keep their order */
    int in_list;
};

/* Merges two sorted halves; stable. */
static int merge_sorted(xm_jinterp *interp, const struct keyed *from,
                        size_t middle, size_t count, struct order order,
                        struct keyed *to)
{
    size_t a = 0;
    size_t b = middle;
    for (size_t i = 0; i < count; i++) {
        int right = a == middle;
        if (a < middle && b < count &&
            (order.reverse ? key_precedes(interp, order.in_list, from[a].key,
                                          from[b].key, &right)
                           : key_precedes(interp, order.in_list, from[b].key,
                                          from[a].key, &right)))
            return -1;
        to[i] = right ? from[b++] : from[a++];
    }
    return 0;
}

static int sort_keyed(xm_jinterp *interp, struct keyed *items, size_t count,
                      struct order order)
{
    struct keyed *other = xm_jalloc(interp, count + 1, sizeof *other);
    struct keyed *from = items;
    struct keyed *to = other;
    if (!other)
        return -1;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t size = count - at < 2 * width ? count - at : 2 * width;
            size_t middle = size < width ? size : width;
            if (merge_sorted(interp, from + at, middle, size, order, to + at))
                return -1;
        }
        struct keyed *swap = from;
        from = to;
        to = swap;
    }
    if (from != items && count)
        memcpy(items, from, count * sizeof *items);
    return 0;
}

/* Returns the values at comma-separated paths as a list to sort by. */
static int make_sort_key(xm_jinterp *interp, xm_jvalue item, xm_jvalue path,
                         int fold, xm_jvalue *out)
{
    if (path.kind != XM_J_STR ||
        !memchr(path.u.str->text, ',', path.u.str->size))
        return xm_jget_path(interp, item, path, NULL, fold, out);
    xm_jlist *list;
    if (xm_jlist_new(interp, 2, &list))
        return -1;
    const char *at = path.u.str->text;
    const char *end = at + path.u.str->size;
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        xm_jvalue part;
        xm_jvalue value;
        if (xm_jstr_borrow(interp, at, (size_t)(stop - at),
                           xm_jcount_chars(at, (size_t)(stop - at)), &part) ||
            xm_jget_path(interp, item, part, NULL, fold, &value) ||
            xm_jlist_add(interp, list, value))
            return -1;
        if (!comma)
            break;
        at = comma + 1;
    }
    *out = xm_jlist_value(list, XM_J_LIST);
    return 0;
}

/* Returns the items of a value, with keys still to be set; NULL on failure. */
static struct keyed *make_keyed_items(xm_jinterp *interp, xm_jvalue in,
                                      xm_jlist *out)
{
    if (xm_jread_items(interp, in, out))
        return NULL;
    struct keyed *keyed = xm_jalloc(interp, out->count + 1, sizeof *keyed);
    for (size_t i = 0; keyed && i < out->count; i++)
        keyed[i].value = out->at[i];
    return keyed;
}

/* Sorts and returns the values as a list. */
static int make_sorted_list(xm_jinterp *interp, struct keyed *keyed,
                            size_t count, struct order order, xm_jvalue *out)
{
    xm_jlist *made;
    if (sort_keyed(interp, keyed, count, order) ||
        xm_jlist_new(interp, count, &made))
        return -1;
    for (size_t i = 0; i < count; i++)
        made->at[i] = keyed[i].value;
    made->count = count;
    *out = xm_jlist_value(made, XM_J_LIST);
    return 0;
}

static int filter_sort(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                       xm_jvalue *out)
{
    static const char *const names[] = { "reverse", "case_sensitive",
                                         "attribute", NULL };
    xm_jvalue arg[3];
    xm_jlist items;
    if (xm_jbind_args(interp, "sort", args, names, 0, arg))
        return -1;
    struct keyed *keyed = make_keyed_items(interp, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (make_sort_key(interp, items.at[i], arg[2], !xm_jis_true(arg[1]),
                          &keyed[i].key))
            return -1;
    return make_sorted_list(interp, keyed, items.count,
                            (struct order){ xm_jis_true(arg[0]), 1 }, out);
}

static int filter_dictsort(xm_jinterp *interp, xm_jvalue in,
                           const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "case_sensitive", "by", "reverse",
                                         NULL };
    xm_jvalue arg[3];
    xm_jlist items;
    if (xm_jbind_args(interp, "dictsort", args, names, 0, arg))
        return -1;
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, in);
    if (in.kind != XM_J_DICT)
        return xm_jfail(interp, "dictsort needs a mapping, not %s",
                        xm_jtype_name(in));
    const char *by = arg[1].kind == XM_J_STR ? arg[1].u.str->text : "key";
    if (strcmp(by, "key") != 0 && strcmp(by, "value") != 0)
        return xm_jfail(
            interp, "dictsort can only sort by either \"key\" or \"value\"");
    in.kind = XM_J_VIEW;
    in.sub = XM_J_ITEMS;
    struct keyed *keyed = make_keyed_items(interp, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jget_path(interp, items.at[i].u.list->at[*by == 'v'], xm_jnone(),
                         NULL, !xm_jis_true(arg[0]), &keyed[i].key))
            return -1;
    return make_sorted_list(interp, keyed, items.count,
                            (struct order){ xm_jis_true(arg[2]), 0 }, out);
}

static int add_group(xm_jinterp *interp, xm_jvalue name, xm_jlist *all,
                     xm_jlist **out)
{
    xm_jlist *pair;
    if (xm_jlist_new(interp, 4, out) || xm_jlist_new(interp, 2, &pair) ||
        xm_jlist_add(interp, pair, name) ||
        xm_jlist_add(interp, pair, xm_jlist_value(*out, XM_J_LIST)))
        return -1;
    xm_jvalue value = xm_jlist_value(pair, XM_J_TUPLE);
    value.sub = 1; /* it has the attributes grouper and list */
    return xm_jlist_add(interp, all, value);
}

static int filter_groupby(xm_jinterp *interp, xm_jvalue in,
                          const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "attribute", "default",
                                         "case_sensitive", NULL };
    xm_jvalue arg[3];
    xm_jlist items;
    xm_jlist *all;
    xm_jlist *group = NULL;
    if (xm_jbind_args(interp, "groupby", args, names, 1, arg) ||
        xm_jlist_new(interp, 0, &all))
        return -1;
    int has_preset = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    const xm_jvalue *preset = has_preset ? &arg[1] : NULL;
    struct keyed *keyed = make_keyed_items(interp, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jget_path(interp, items.at[i], arg[0], preset,
                         !xm_jis_true(arg[2]), &keyed[i].key))
            return -1;
    if (sort_keyed(interp, keyed, items.count, (struct order){ 0 }))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        int same = 0;
        xm_jvalue name;
        if (i && xm_jequal(interp, keyed[i - 1].key, keyed[i].key, &same))
            return -1;
        if (!same &&
            (xm_jget_path(interp, keyed[i].value, arg[0], preset, 0, &name) ||
             add_group(interp, name, all, &group)))
            return -1;
        if (xm_jlist_add(interp, group, keyed[i].value))
            return -1;
    }
    *out = xm_jlist_value(all, XM_J_LIST);
    return 0;
}

static int filter_unique(xm_jinterp *interp, xm_jvalue in, const xm_jargs *args,
                         xm_jvalue *out)
{
    static const char *const names[] = { "case_sensitive", "attribute", NULL };
    xm_jvalue arg[2];
    xm_jlist items;
    xm_jlist kept = { 0 };
    xm_jdict *seen;
    if (xm_jbind_args(interp, "unique", args, names, 0, arg) ||
        xm_jread_items(interp, in, &items) || xm_jdict_new(interp, 0, &seen))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue key;
        size_t before_count = seen->count;
        if (xm_jget_path(interp, items.at[i], arg[1], NULL,
                         !xm_jis_true(arg[0]), &key) ||
            xm_jdict_put(interp, seen, key, xm_jnone()))
            return -1;
        if (seen->count > before_count &&
            xm_jlist_add(interp, &kept, items.at[i]))
            return -1;
    }
    return xm_jiter_new(interp, kept, out);
}

static int filter_extreme(xm_jinterp *interp, int max, xm_jvalue in,
                          const xm_jargs *args, xm_jvalue *out)
{
    static const char *const names[] = { "case_sensitive", "attribute", NULL };
    xm_jvalue arg[2];
    xm_jlist items;
    if (xm_jbind_args(interp, max ? "max" : "min", args, names, 0, arg) ||
        xm_jread_items(interp, in, &items))
        return -1;
    if (!items.count)
        return xm_jundef_new(
            interp, "no aggregated item, the sequence is empty",
            xm_jvalue_of(XM_J_MISSING), xm_jvalue_of(XM_J_MISSING), out);
    xm_jvalue best = xm_jnone();
    for (size_t i = 0; i < items.count; i++) {
        xm_jvalue key;
        int better = !i;
        if (xm_jget_path(interp, items.at[i], arg[1], NULL,
                         !xm_jis_true(arg[0]), &key))
            return -1;
        if (i && (max ? key_precedes(interp, 0, best, key, &better)
                      : key_precedes(interp, 0, key, best, &better)))
            return -1;
        if (better) {
            best = key;
            *out = items.at[i];
        }
    }
    return 0;
}

int xm_jcall_sort_filter(xm_jinterp *interp, enum xm_jseq which, xm_jvalue in,
                         const xm_jargs *args, xm_jvalue *out)
{
    switch (which) {
    case XM_J_SORT:
        return filter_sort(interp, in, args, out);
    case XM_J_DICTSORT:
        return filter_dictsort(interp, in, args, out);
    case XM_J_GROUPBY:
        return filter_groupby(interp, in, args, out);
    case XM_J_UNIQUE:
        return filter_unique(interp, in, args, out);
    default:
        return filter_extreme(interp, which == XM_J_MAX, in, args, out);
    }
}
