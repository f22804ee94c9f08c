/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads attributes, items and slices of values.
 */
#include <string.h>

#include "model/chat/jinja.h"

/* Finds the attributes that are neither methods nor items; returns 1 if
 * found. */
static int find_special_attr(xm_jinterp *interp, xm_jvalue object,
                             const xm_jstr *name, xm_jvalue *out)
{
    int is_name = !strcmp(name->text, "name");
    if (object.kind == XM_J_MACRO && is_name) {
        *out = object.u.macro->node->value;
        if (!out->kind)
            *out = xm_jnone();
        return 1;
    }
    if (object.kind == XM_J_TUPLE && object.sub && object.u.list->count == 2 &&
        (!strcmp(name->text, "grouper") || !strcmp(name->text, "list"))) {
        *out = object.u.list->at[name->text[0] == 'l'];
        return 1;
    }
    if (object.kind == XM_J_CYCLER && object.u.cycle->items.count &&
        !strcmp(name->text, "current")) {
        *out = object.u.cycle->items.at[object.u.cycle->next];
        return 1;
    }
    (void)interp;
    return 0;
}

static int find_loop_attr(xm_jinterp *interp, const xm_jloop *loop,
                          const xm_jstr *name, xm_jvalue *out)
{
    static const char *const names[] = { "index",     "index0",  "revindex",
                                         "revindex0", "first",   "last",
                                         "length",    "depth",   "depth0",
                                         "previtem",  "nextitem" };
    int64_t at = (int64_t)loop->at;
    int64_t count = (int64_t)loop->items.count;
    const int64_t values[] = { at + 1,
                               at,
                               count - at,
                               count - at - 1,
                               at == 0,
                               at + 1 == count,
                               count,
                               (int64_t)loop->depth + 1,
                               (int64_t)loop->depth };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name->text) != 0)
            continue;
        if (i < sizeof values / sizeof values[0]) {
            *out = i == 4 || i == 5 ? xm_jbool(values[i] != 0)
                                    : xm_jint(values[i]);
            return 1;
        }
        int previous = i == 9;
        if (previous ? at == 0 : at + 1 >= count)
            return xm_jundef_new(interp,
                                 previous ? "there is no previous item"
                                          : "there is no next item",
                                 xm_jvalue_of(XM_J_MISSING),
                                 xm_jvalue_of(XM_J_MISSING), out)
                       ? -1
                       : 1;
        *out = loop->items.at[previous ? at - 1 : at + 1];
        return 1;
    }
    return 0;
}

/* Python's getattr: 1 found, 0 not found, -1 error. */
static int find_own_attr(xm_jinterp *interp, xm_jvalue object, xm_jvalue name,
                         xm_jvalue *out)
{
    const xm_jstr *text = name.u.str;
    if (object.kind == XM_J_NS) {
        xm_jentry *entry = xm_jdict_get(interp, object.u.dict, name);
        if (entry)
            *out = entry->value;
        return entry != NULL;
    }
    char copy[32];
    if (text->size >= sizeof copy)
        return 0;
    memcpy(copy, text->text, text->size);
    copy[text->size] = 0;
    const xm_jstr ended = { copy, text->size, text->chars };
    if (object.kind == XM_J_LOOP) {
        int status = find_loop_attr(interp, object.u.loop, &ended, out);
        if (status)
            return status;
    }
    if (find_special_attr(interp, object, &ended, out))
        return 1;
    const char *unsafe = xm_jmethod_refused(object, &ended);
    if (unsafe)
        return xm_jundef_new(interp, unsafe, object, name, out) ? -1 : 1;
    int method = xm_jfind_method(object, &ended);
    if (method < 0)
        return 0;
    xm_jbound *bound = xm_jalloc(interp, 1, sizeof *bound);
    if (!bound)
        return -1;
    *bound = (xm_jbound){ object, (uint32_t)method };
    *out = xm_jvalue_of(XM_J_BOUND);
    out->u.bound = bound;
    return 1;
}

static int resolve_index(const xm_jvalue key, size_t count, size_t *out)
{
    if (key.kind != XM_J_INT && key.kind != XM_J_BOOL)
        return 0;
    int64_t index = key.u.i;
    if (index < 0)
        index += (int64_t)count;
    if (index < 0 || (uint64_t)index >= count)
        return 0;
    *out = (size_t)index;
    return 1;
}

/* Python's object[key]: 1 found, 0 not found, -1 error. */
static int find_own_item(xm_jinterp *interp, xm_jvalue object, xm_jvalue key,
                         xm_jvalue *out)
{
    size_t index;
    switch ((enum xm_jkind)object.kind) {
    case XM_J_DICT: {
        xm_jentry *entry = xm_jdict_get(interp, object.u.dict, key);
        if (entry)
            *out = entry->value;
        return entry != NULL;
    }
    case XM_J_LIST:
    case XM_J_TUPLE:
        if (!resolve_index(key, object.u.list->count, &index))
            return 0;
        *out = object.u.list->at[index];
        return 1;
    case XM_J_RANGE:
        if (!resolve_index(key, (size_t)object.u.range->count, &index))
            return 0;
        *out = xm_jint(object.u.range->start +
                       (int64_t)index * object.u.range->step);
        return 1;
    case XM_J_STR: {
        const xm_jstr *str = object.u.str;
        if (!resolve_index(key, str->chars, &index))
            return 0;
        size_t from = xm_jchar_offset(str, index);
        size_t to = from + 1;
        while (to < str->size && ((unsigned char)str->text[to] & 0xC0) == 0x80)
            to++;
        if (xm_jcount_work(interp,
                           str->chars == str->size ? 0 : str->size / 64) ||
            xm_jstr_borrow(interp, str->text + from, to - from, 1, out))
            return -1;
        out->markup = object.markup;
        return 1;
    }
    case XM_J_UNDEF:
        return xm_jfail_undefined(interp, object);
    default:
        return 0;
    }
}

int xm_jget_attr(xm_jinterp *interp, xm_jvalue object, xm_jvalue name,
                 xm_jvalue *out)
{
    if (object.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, object);
    int found = find_own_attr(interp, object, name, out);
    if (!found)
        found = find_own_item(interp, object, name, out);
    if (found)
        return found < 0 ? -1 : 0;
    return xm_jundef_new(interp, NULL, object, name, out);
}

int xm_jget_own_attr(xm_jinterp *interp, xm_jvalue object, xm_jvalue name,
                     xm_jvalue *out)
{
    if (object.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, object);
    int found = find_own_attr(interp, object, name, out);
    if (found)
        return found < 0 ? -1 : 0;
    return xm_jundef_new(interp, NULL, object, name, out);
}

int xm_jget_item(xm_jinterp *interp, xm_jvalue object, xm_jvalue key,
                 xm_jvalue *out)
{
    if (object.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, object);
    int found = find_own_item(interp, object, key, out);
    if (!found && key.kind == XM_J_STR)
        found = find_own_attr(interp, object, key, out);
    if (found)
        return found < 0 ? -1 : 0;
    return xm_jundef_new(interp, NULL, object, key, out);
}

/* Python's slice.indices: sets start, count, step and stop. */
static int resolve_slice(xm_jinterp *interp, const xm_jvalue bounds[3],
                         int64_t length, int64_t out[4])
{
    int64_t value[3] = { 0, length, 1 };
    for (int i = 0; i < 3; i++) {
        xm_jvalue bound = bounds[i];
        if (bound.kind == XM_J_MISSING || bound.kind == XM_J_NONE)
            continue;
        if (bound.kind != XM_J_INT && bound.kind != XM_J_BOOL)
            return xm_jfail(interp, "slice indices must be integers or None");
        value[i] = bound.u.i;
    }
    int64_t step = value[2];
    if (!step)
        return xm_jfail(interp, "slice step cannot be zero");
    if (step < -INT64_MAX)
        step = -INT64_MAX;
    int64_t low = step < 0 ? -1 : 0;
    int64_t high = step < 0 ? length - 1 : length;
    for (int i = 0; i < 2; i++) {
        int absent =
            bounds[i].kind == XM_J_MISSING || bounds[i].kind == XM_J_NONE;
        if (absent)
            value[i] = (i == 0) == (step > 0) ? low : high;
        else if (value[i] < 0)
            value[i] = value[i] + length < low ? low : value[i] + length;
        else if (value[i] > high)
            value[i] = high;
    }
    int64_t span = step > 0 ? value[1] - value[0] : value[0] - value[1];
    int64_t size = step > 0 ? step : -step;
    out[0] = value[0];
    out[1] = span > 0 ? (span - 1) / size + 1 : 0;
    out[2] = step;
    out[3] = value[1];
    return 0;
}

static int slice_text(xm_jinterp *interp, xm_jvalue object, const int64_t at[4],
                      xm_jvalue *out)
{
    const xm_jstr *str = object.u.str;
    if (xm_jcount_work(interp, str->size / 64))
        return -1;
    if (at[2] == 1 || !at[1]) {
        size_t from = xm_jchar_offset(str, (size_t)at[0]);
        size_t to = xm_jchar_offset(str, (size_t)(at[0] + at[1]));
        if (!at[1])
            from = to = 0;
        return xm_jstr_borrow(interp, str->text + from, to - from,
                              (size_t)at[1], out);
    }
    xm_jlist chars;
    xm_jvalue plain = object;
    plain.markup = 0;
    if (xm_jread_items(interp, plain, &chars))
        return -1;
    char *text = xm_jalloc(interp, str->size + 1, 1);
    size_t size = 0;
    if (!text)
        return -1;
    for (int64_t i = 0; i < at[1]; i++) {
        const xm_jstr *one = chars.at[at[0] + i * at[2]].u.str;
        memcpy(text + size, one->text, one->size);
        size += one->size;
    }
    return xm_jstr_borrow(interp, text, size, (size_t)at[1], out);
}

static int slice_list(xm_jinterp *interp, xm_jvalue object, const int64_t at[4],
                      xm_jvalue *out)
{
    xm_jlist *list;
    if (xm_jcount_work(interp, (size_t)at[1] / 8) ||
        xm_jlist_new(interp, (size_t)at[1], &list))
        return -1;
    for (int64_t i = 0; i < at[1]; i++)
        list->at[i] = object.u.list->at[at[0] + i * at[2]];
    list->count = (size_t)at[1];
    *out = xm_jlist_value(list, (enum xm_jkind)object.kind);
    return 0;
}

static int slice_range(xm_jinterp *interp, xm_jvalue object,
                       const int64_t at[4], xm_jvalue *out)
{
    const xm_jrange *from = object.u.range;
    xm_jrange *range = xm_jalloc(interp, 1, sizeof *range);
    if (!range)
        return -1;
    /* A step past all items has the same effect as one to their end. The limit
     * keeps the steps of slices of slices within 64 bits. */
    int64_t most = from->count > 1 ? from->count : 1;
    int64_t step = at[2] > most ? most : at[2] < -most ? -most : at[2];
    range->step = from->step * step;
    range->start = from->start + at[0] * from->step;
    range->count = at[1];
    range->stop = from->start + at[3] * from->step;
    *out = xm_jvalue_of(XM_J_RANGE);
    out->u.range = range;
    return 0;
}

int xm_jget_slice(xm_jinterp *interp, xm_jvalue object,
                  const xm_jvalue bounds[3], xm_jvalue *out)
{
    size_t length;
    int64_t at[4] = { 0 };
    if (object.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, object);
    if ((object.kind != XM_J_STR && object.kind != XM_J_LIST &&
         object.kind != XM_J_TUPLE && object.kind != XM_J_RANGE) ||
        xm_jlength(object, &length))
        return xm_jfail(interp, "'%s' object cannot be sliced",
                        xm_jtype_name(object));
    if (resolve_slice(interp, bounds, (int64_t)length, at))
        return -1;
    if (object.kind == XM_J_RANGE)
        return slice_range(interp, object, at, out);
    if (object.kind != XM_J_STR)
        return slice_list(interp, object, at, out);
    if (slice_text(interp, object, at, out))
        return -1;
    out->markup = object.markup;
    return 0;
}
