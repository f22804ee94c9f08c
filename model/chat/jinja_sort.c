/* SPDX-License-Identifier: Apache-2.0
 *
 * Filters that compare items: sort, dictsort, groupby, unique, min, max.
 */
#include <string.h>

#include "model/chat/jinja.h"

struct keyed {
    xm_jv key;
    xm_jv value;
};

/* Whether a < b. Keys of a list are first looked through for what differs, as
 * Python does with lists, so that two None need no order. */
static int before(xm_jrun *run, int in_list, xm_jv a, xm_jv b, int *out)
{
    int equal = 0;
    int order = 0;
    if (in_list && xm_jequal(run, a, b, &equal))
        return -1;
    if (!equal && xm_jorder(run, "<", a, b, &order))
        return -1;
    *out = !equal && order < 0;
    return 0;
}

/* How to sort. */
struct order {
    int reverse; /* equal items keep their order all the same */
    int in_list;
};

/* A stable merge of two runs. */
static int merge(xm_jrun *run, const struct keyed *from, size_t middle,
                 size_t count, struct order order, struct keyed *to)
{
    size_t a = 0;
    size_t b = middle;
    for (size_t i = 0; i < count; i++) {
        int right = a == middle;
        if (a < middle && b < count &&
            (order.reverse
                 ? before(run, order.in_list, from[a].key, from[b].key, &right)
                 : before(run, order.in_list, from[b].key, from[a].key,
                          &right)))
            return -1;
        to[i] = right ? from[b++] : from[a++];
    }
    return 0;
}

static int sort(xm_jrun *run, struct keyed *items, size_t count,
                struct order order)
{
    struct keyed *other = xm_jtake(run, count + 1, sizeof *other);
    struct keyed *from = items;
    struct keyed *to = other;
    if (!other)
        return -1;
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t at = 0; at < count; at += 2 * width) {
            size_t size = count - at < 2 * width ? count - at : 2 * width;
            size_t middle = size < width ? size : width;
            if (merge(run, from + at, middle, size, order, to + at))
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

/* The values at comma-separated paths, as a list to compare by. */
static int multi_key(xm_jrun *run, xm_jv item, xm_jv path, int fold, xm_jv *out)
{
    if (path.kind != XM_J_STR ||
        !memchr(path.u.str->text, ',', path.u.str->size))
        return xm_jpath(run, item, path, NULL, fold, out);
    xm_jlist *list;
    if (xm_jlist_new(run, 2, &list))
        return -1;
    const char *at = path.u.str->text;
    const char *end = at + path.u.str->size;
    for (;;) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        xm_jv part;
        xm_jv value;
        if (xm_jborrow(run, at, (size_t)(stop - at),
                       xm_jchars(at, (size_t)(stop - at)), &part) ||
            xm_jpath(run, item, part, NULL, fold, &value) ||
            xm_jlist_add(run, list, value))
            return -1;
        if (!comma)
            break;
        at = comma + 1;
    }
    *out = xm_jlist_value(list, XM_J_LIST);
    return 0;
}

/* The items of a value, without their keys; NULL if that failed. */
static struct keyed *take_items(xm_jrun *run, xm_jv in, xm_jlist *out)
{
    if (xm_jitems(run, in, out))
        return NULL;
    struct keyed *keyed = xm_jtake(run, out->count + 1, sizeof *keyed);
    for (size_t i = 0; keyed && i < out->count; i++)
        keyed[i].value = out->at[i];
    return keyed;
}

/* The values in order, as a list. */
static int sorted_list(xm_jrun *run, struct keyed *keyed, size_t count,
                       struct order order, xm_jv *out)
{
    xm_jlist *made;
    if (sort(run, keyed, count, order) || xm_jlist_new(run, count, &made))
        return -1;
    for (size_t i = 0; i < count; i++)
        made->at[i] = keyed[i].value;
    made->count = count;
    *out = xm_jlist_value(made, XM_J_LIST);
    return 0;
}

static int f_sort(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "reverse", "case_sensitive",
                                         "attribute", NULL };
    xm_jv arg[3];
    xm_jlist items;
    if (xm_jbind(run, "sort", args, names, 0, arg))
        return -1;
    struct keyed *keyed = take_items(run, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (multi_key(run, items.at[i], arg[2], !xm_jtruth(arg[1]),
                      &keyed[i].key))
            return -1;
    return sorted_list(run, keyed, items.count,
                       (struct order){ xm_jtruth(arg[0]), 1 }, out);
}

static int f_dictsort(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "case_sensitive", "by", "reverse",
                                         NULL };
    xm_jv arg[3];
    xm_jlist items;
    if (xm_jbind(run, "dictsort", args, names, 0, arg))
        return -1;
    if (in.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, in);
    if (in.kind != XM_J_DICT)
        return xm_jfail(run, "dictsort needs a mapping, not %s",
                        xm_jtypename(in));
    const char *by = arg[1].kind == XM_J_STR ? arg[1].u.str->text : "key";
    if (strcmp(by, "key") != 0 && strcmp(by, "value") != 0)
        return xm_jfail(
            run, "dictsort can only sort by either \"key\" or \"value\"");
    in.kind = XM_J_VIEW;
    in.sub = XM_J_ITEMS;
    struct keyed *keyed = take_items(run, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jpath(run, items.at[i].u.list->at[*by == 'v'], xm_jnone(), NULL,
                     !xm_jtruth(arg[0]), &keyed[i].key))
            return -1;
    return sorted_list(run, keyed, items.count,
                       (struct order){ xm_jtruth(arg[2]), 0 }, out);
}

static int add_group(xm_jrun *run, xm_jv name, xm_jlist *all, xm_jlist **out)
{
    xm_jlist *pair;
    if (xm_jlist_new(run, 4, out) || xm_jlist_new(run, 2, &pair) ||
        xm_jlist_add(run, pair, name) ||
        xm_jlist_add(run, pair, xm_jlist_value(*out, XM_J_LIST)))
        return -1;
    xm_jv value = xm_jlist_value(pair, XM_J_TUPLE);
    value.sub = 1; /* has the attributes grouper and list */
    return xm_jlist_add(run, all, value);
}

static int f_groupby(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "attribute", "default",
                                         "case_sensitive", NULL };
    xm_jv arg[3];
    xm_jlist items;
    xm_jlist *all;
    xm_jlist *group = NULL;
    if (xm_jbind(run, "groupby", args, names, 1, arg) ||
        xm_jlist_new(run, 0, &all))
        return -1;
    int has_preset = arg[1].kind != XM_J_MISSING && arg[1].kind != XM_J_NONE;
    const xm_jv *preset = has_preset ? &arg[1] : NULL;
    struct keyed *keyed = take_items(run, in, &items);
    if (!keyed)
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jpath(run, items.at[i], arg[0], preset, !xm_jtruth(arg[2]),
                     &keyed[i].key))
            return -1;
    if (sort(run, keyed, items.count, (struct order){ 0 }))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        int same = 0;
        xm_jv name;
        if (i && xm_jequal(run, keyed[i - 1].key, keyed[i].key, &same))
            return -1;
        if (!same && (xm_jpath(run, keyed[i].value, arg[0], preset, 0, &name) ||
                      add_group(run, name, all, &group)))
            return -1;
        if (xm_jlist_add(run, group, keyed[i].value))
            return -1;
    }
    *out = xm_jlist_value(all, XM_J_LIST);
    return 0;
}

static int f_unique(xm_jrun *run, xm_jv in, const xm_jargs *args, xm_jv *out)
{
    static const char *const names[] = { "case_sensitive", "attribute", NULL };
    xm_jv arg[2];
    xm_jlist items;
    xm_jlist kept = { 0 };
    xm_jdict *seen;
    if (xm_jbind(run, "unique", args, names, 0, arg) ||
        xm_jitems(run, in, &items) || xm_jdict_new(run, 0, &seen))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        xm_jv key;
        size_t before_count = seen->count;
        if (xm_jpath(run, items.at[i], arg[1], NULL, !xm_jtruth(arg[0]),
                     &key) ||
            xm_jdict_put(run, seen, key, xm_jnone()))
            return -1;
        if (seen->count > before_count && xm_jlist_add(run, &kept, items.at[i]))
            return -1;
    }
    return xm_jiter_new(run, kept, out);
}

static int f_extreme(xm_jrun *run, int max, xm_jv in, const xm_jargs *args,
                     xm_jv *out)
{
    static const char *const names[] = { "case_sensitive", "attribute", NULL };
    xm_jv arg[2];
    xm_jlist items;
    if (xm_jbind(run, max ? "max" : "min", args, names, 0, arg) ||
        xm_jitems(run, in, &items))
        return -1;
    if (!items.count)
        return xm_jundefined(run, "no aggregated item, the sequence is empty",
                             xm_jof(XM_J_MISSING), xm_jof(XM_J_MISSING), out);
    xm_jv best = xm_jnone();
    for (size_t i = 0; i < items.count; i++) {
        xm_jv key;
        int better = !i;
        if (xm_jpath(run, items.at[i], arg[1], NULL, !xm_jtruth(arg[0]), &key))
            return -1;
        if (i && (max ? before(run, 0, best, key, &better)
                      : before(run, 0, key, best, &better)))
            return -1;
        if (better) {
            best = key;
            *out = items.at[i];
        }
    }
    return 0;
}

int xm_jorder_filter(xm_jrun *run, enum xm_jseq which, xm_jv in,
                     const xm_jargs *args, xm_jv *out)
{
    switch (which) {
    case XM_J_SORT:
        return f_sort(run, in, args, out);
    case XM_J_DICTSORT:
        return f_dictsort(run, in, args, out);
    case XM_J_GROUPBY:
        return f_groupby(run, in, args, out);
    case XM_J_UNIQUE:
        return f_unique(run, in, args, out);
    default:
        return f_extreme(run, which == XM_J_MAX, in, args, out);
    }
}
