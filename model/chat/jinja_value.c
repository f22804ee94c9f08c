/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates, hashes and compares the values of a template: strings, lists and
 * dicts.
 */
#include <math.h>
#include <string.h>

#include "model/chat/jinja.h"

xm_jvalue xm_jvalue_of(enum xm_jkind kind)
{
    return (xm_jvalue){ .kind = (uint8_t)kind };
}

xm_jvalue xm_jnone(void)
{
    return xm_jvalue_of(XM_J_NONE);
}

xm_jvalue xm_jbool(int value)
{
    xm_jvalue v = { .kind = XM_J_BOOL };
    v.u.i = value != 0;
    return v;
}

xm_jvalue xm_jint(int64_t value)
{
    xm_jvalue v = { .kind = XM_J_INT };
    v.u.i = value;
    return v;
}

xm_jvalue xm_jfloat(double value)
{
    xm_jvalue v = { .kind = XM_J_FLOAT };
    v.u.f = value;
    return v;
}

int xm_jstr_borrow(xm_jinterp *interp, const char *text, size_t size,
                   size_t chars, xm_jvalue *out)
{
    xm_jstr *str = xm_jalloc(interp, 1, sizeof *str);
    if (!str)
        return -1;
    *str = (xm_jstr){ text, size, chars };
    *out = xm_jvalue_of(XM_J_STR);
    out->u.str = str;
    return 0;
}

int xm_jstr_copy(xm_jinterp *interp, const char *text, size_t size,
                 xm_jvalue *out)
{
    char *copy = xm_jalloc(interp, size + 1, 1);
    if (!copy || xm_jcount_work(interp, size / 32))
        return -1;
    if (size)
        memcpy(copy, text, size);
    return xm_jstr_borrow(interp, copy, size, xm_jcount_chars(copy, size), out);
}

int xm_jstr_take(xm_jinterp *interp, xr_str *text, xm_jvalue *out)
{
    int status = text->failed
                     ? xm_jfail(interp, "out of memory")
                     : xm_jstr_copy(interp, xr_str_text(text), text->size, out);
    xr_str_free(text);
    return status;
}

int xm_jundef_new(xm_jinterp *interp, const char *hint, xm_jvalue object,
                  xm_jvalue name, xm_jvalue *out)
{
    xm_jundef *undef = xm_jalloc(interp, 1, sizeof *undef);
    if (!undef)
        return -1;
    *undef = (xm_jundef){ hint, object, name };
    *out = xm_jvalue_of(XM_J_UNDEF);
    out->u.undef = undef;
    return 0;
}

int xm_jfail_undefined(xm_jinterp *interp, xm_jvalue value)
{
    const xm_jundef *undef = value.u.undef;
    if (!undef)
        return xm_jfail(interp, "an undefined value is used");
    if (undef->hint)
        return xm_jfail(interp, "%s", undef->hint);
    xr_str name = { 0 };
    if (xm_jappend_repr(interp, undef->name, &name)) {
        xr_str_free(&name);
        return -1;
    }
    const char *text = xr_str_text(&name);
    if (undef->object.kind == XM_J_MISSING) {
        (void)xm_jfail(interp, "%.200s is undefined", text);
    } else {
        const char *type = undef->object.kind == XM_J_NONE
                               ? "None"
                               : xm_jtype_name(undef->object);
        const char *object = undef->object.kind == XM_J_NONE ? "" : " object";
        if (undef->name.kind == XM_J_STR)
            (void)xm_jfail(interp, "'%s%s' has no attribute %.200s", type,
                           object, text);
        else
            (void)xm_jfail(interp, "%s%s has no element %.200s", type, object,
                           text);
    }
    xr_str_free(&name);
    return -1;
}

int xm_jlist_new(xm_jinterp *interp, size_t cap, xm_jlist **out)
{
    xm_jlist *list = xm_jalloc(interp, 1, sizeof *list);
    if (!list)
        return -1;
    if (cap) {
        list->at = xm_jalloc(interp, cap, sizeof *list->at);
        if (!list->at)
            return -1;
        list->cap = cap;
    }
    *out = list;
    return 0;
}

int xm_jlist_add(xm_jinterp *interp, xm_jlist *list, xm_jvalue value)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? 2 * list->cap : 8;
        xm_jvalue *at = xm_jalloc(interp, cap, sizeof *at);
        if (!at)
            return -1;
        if (list->count)
            memcpy(at, list->at, list->count * sizeof *at);
        list->at = at;
        list->cap = cap;
    }
    list->at[list->count++] = value;
    return 0;
}

xm_jvalue xm_jlist_value(xm_jlist *list, enum xm_jkind kind)
{
    xm_jvalue v = xm_jvalue_of(kind);
    v.u.list = list;
    return v;
}

int xm_jiter_new(xm_jinterp *interp, xm_jlist items, xm_jvalue *out)
{
    xm_jiter *iter = xm_jalloc(interp, 1, sizeof *iter);
    if (!iter)
        return -1;
    iter->items = items;
    *out = xm_jvalue_of(XM_J_ITER);
    out->u.iter = iter;
    return 0;
}

int xm_jdict_new(xm_jinterp *interp, size_t cap, xm_jdict **out)
{
    xm_jdict *dict = xm_jalloc(interp, 1, sizeof *dict);
    if (!dict)
        return -1;
    if (cap) {
        dict->at = xm_jalloc(interp, cap, sizeof *dict->at);
        if (!dict->at)
            return -1;
        dict->cap = cap;
    }
    *out = dict;
    return 0;
}

int xm_jis_number(xm_jvalue value)
{
    return value.kind == XM_J_INT || value.kind == XM_J_FLOAT ||
           value.kind == XM_J_BOOL;
}

double xm_jto_real(xm_jvalue value)
{
    return value.kind == XM_J_FLOAT ? value.u.f : (double)value.u.i;
}

static uint64_t mix_hash(uint64_t hash, uint64_t more)
{
    hash = (hash ^ more) * 0x9e3779b97f4a7c15u;
    return hash ^ (hash >> 29);
}

static uint64_t hash_text(const char *text, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

/* Equal numbers of different types have the same hash. */
static uint64_t hash_number(xm_jvalue value)
{
    double real = xm_jto_real(value);
    if (real == 0)
        real = 0;
    uint64_t bits;
    memcpy(&bits, &real, sizeof bits);
    return mix_hash(1, bits);
}

static int hash_value(xm_jinterp *interp, xm_jvalue value, unsigned depth,
                      uint64_t *out)
{
    if (depth > XM_CHAT_MAX_DEPTH || value.kind == XM_J_LIST ||
        value.kind == XM_J_DICT)
        return -1;
    if (xm_jis_number(value)) {
        *out = hash_number(value);
    } else if (value.kind == XM_J_STR) {
        *out = hash_text(value.u.str->text, value.u.str->size);
        return xm_jcount_work(interp, value.u.str->size / 16);
    } else if (value.kind == XM_J_TUPLE) {
        *out = 7;
        for (size_t i = 0; i < value.u.list->count; i++) {
            uint64_t one;
            if (xm_jcount_work(interp, 1) ||
                hash_value(interp, value.u.list->at[i], depth + 1, &one))
                return -1;
            *out = mix_hash(*out, one);
        }
    } else {
        *out = value.kind;
    }
    return 0;
}

int xm_jhash(xm_jinterp *interp, xm_jvalue value, uint64_t *out)
{
    return hash_value(interp, value, 0, out);
}

int xm_jfail_unhashable(xm_jinterp *interp, xm_jvalue value)
{
    /* The hash may also have failed because the limit of work was reached. */
    return xm_jcount_work(interp, 0) ||
                   xm_jfail(interp, "unhashable type: '%s'",
                            xm_jtype_name(value))
               ? -1
               : 0;
}

xm_jentry *xm_jdict_get(xm_jinterp *interp, const xm_jdict *dict, xm_jvalue key)
{
    uint64_t hash;
    if (xm_jhash(interp, key, &hash) ||
        xm_jcount_work(interp, dict->count / 16))
        return NULL;
    for (size_t i = 0; i < dict->count; i++) {
        int equal = 0;
        if (dict->at[i].hash != hash)
            continue;
        if (!xm_jequal(interp, dict->at[i].key, key, &equal) && equal)
            return &dict->at[i];
    }
    return NULL;
}

xm_jentry *xm_jdict_find(const xm_jdict *dict, const char *name)
{
    size_t size = strlen(name);
    for (size_t i = 0; i < dict->count; i++)
        if (dict->at[i].key.kind == XM_J_STR &&
            dict->at[i].key.u.str->size == size &&
            !memcmp(dict->at[i].key.u.str->text, name, size))
            return &dict->at[i];
    return NULL;
}

int xm_jdict_put(xm_jinterp *interp, xm_jdict *dict, xm_jvalue key,
                 xm_jvalue value)
{
    uint64_t hash;
    if (xm_jhash(interp, key, &hash))
        return xm_jfail_unhashable(interp, key);
    xm_jentry *entry = xm_jdict_get(interp, dict, key);
    if (entry) {
        entry->value = value;
        return 0;
    }
    if (interp->steps > XM_CHAT_MAX_STEPS)
        return xm_jcount_work(interp, 0);
    if (dict->count == dict->cap) {
        size_t cap = dict->cap ? 2 * dict->cap : 8;
        xm_jentry *at = xm_jalloc(interp, cap, sizeof *at);
        if (!at)
            return -1;
        if (dict->count)
            memcpy(at, dict->at, dict->count * sizeof *at);
        dict->at = at;
        dict->cap = cap;
    }
    dict->at[dict->count++] = (xm_jentry){ key, value, hash };
    return 0;
}

const char *xm_jtype_name(xm_jvalue value)
{
    switch ((enum xm_jkind)value.kind) {
    case XM_J_NONE:
        return "NoneType";
    case XM_J_BOOL:
        return "bool";
    case XM_J_INT:
        return "int";
    case XM_J_FLOAT:
        return "float";
    case XM_J_STR:
        return value.markup ? "Markup" : "str";
    case XM_J_LIST:
        return "list";
    case XM_J_TUPLE:
        return "tuple";
    case XM_J_DICT:
        return "dict";
    case XM_J_RANGE:
        return "range";
    case XM_J_ITER:
        return "generator";
    case XM_J_VIEW:
        return value.sub == XM_J_KEYS     ? "dict_keys"
               : value.sub == XM_J_VALUES ? "dict_values"
                                          : "dict_items";
    case XM_J_NS:
        return "Namespace";
    case XM_J_MACRO:
        return "Macro";
    case XM_J_LOOP:
        return "LoopContext";
    case XM_J_CYCLER:
        return "Cycler";
    case XM_J_JOINER:
        return "Joiner";
    case XM_J_FUNC:
    case XM_J_BOUND:
        return "builtin_function_or_method";
    default:
        return "Undefined";
    }
}

int xm_jlength(xm_jvalue value, size_t *out)
{
    switch ((enum xm_jkind)value.kind) {
    case XM_J_MISSING:
    case XM_J_UNDEF:
        *out = 0;
        return 0;
    case XM_J_STR:
        *out = value.u.str->chars;
        return 0;
    case XM_J_LIST:
    case XM_J_TUPLE:
        *out = value.u.list->count;
        return 0;
    case XM_J_DICT:
    case XM_J_VIEW:
        *out = value.u.dict->count;
        return 0;
    case XM_J_RANGE:
        *out = (size_t)value.u.range->count;
        return 0;
    case XM_J_LOOP:
        *out = value.u.loop->items.count;
        return 0;
    default:
        return -1;
    }
}

int xm_jis_true(xm_jvalue value)
{
    size_t length;
    if (value.kind == XM_J_NONE)
        return 0;
    if (value.kind == XM_J_FLOAT)
        return value.u.f != 0;
    if (xm_jis_number(value))
        return value.u.i != 0;
    return xm_jlength(value, &length) || length;
}

static int equal_lists(xm_jinterp *interp, const xm_jlist *a, const xm_jlist *b,
                       int *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++)
        if (xm_jequal(interp, a->at[i], b->at[i], out))
            return -1;
    return 0;
}

static int equal_dicts(xm_jinterp *interp, const xm_jdict *a, const xm_jdict *b,
                       int *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        xm_jentry *other = xm_jdict_get(interp, b, a->at[i].key);
        *out = other != NULL;
        if (other && xm_jequal(interp, a->at[i].value, other->value, out))
            return -1;
    }
    return 0;
}

static int equal_numbers(xm_jvalue a, xm_jvalue b)
{
    if (a.kind != XM_J_FLOAT && b.kind != XM_J_FLOAT)
        return a.u.i == b.u.i;
    if (a.kind == XM_J_FLOAT && b.kind == XM_J_FLOAT)
        return a.u.f == b.u.f;
    double real = a.kind == XM_J_FLOAT ? a.u.f : b.u.f;
    int64_t integer = a.kind == XM_J_FLOAT ? b.u.i : a.u.i;
    /* The comparison is exact: an integer beyond 2^53 does not equal a double
     * that it would round to. */
    return real >= -0x1p63 && real < 0x1p63 && real == floor(real) &&
           (int64_t)real == integer;
}

static int equal_same_kind(xm_jinterp *interp, xm_jvalue a, xm_jvalue b,
                           int *out)
{
    switch ((enum xm_jkind)a.kind) {
    case XM_J_MISSING:
    case XM_J_UNDEF:
    case XM_J_NONE:
        *out = 1;
        return 0;
    case XM_J_STR:
        *out = a.u.str->size == b.u.str->size &&
               !memcmp(a.u.str->text, b.u.str->text, a.u.str->size);
        return xm_jcount_work(interp, a.u.str->size / 64);
    case XM_J_LIST:
    case XM_J_TUPLE:
        return equal_lists(interp, a.u.list, b.u.list, out);
    case XM_J_DICT:
        return equal_dicts(interp, a.u.dict, b.u.dict, out);
    case XM_J_RANGE:
        *out =
            a.u.range->count == b.u.range->count &&
            (!a.u.range->count ||
             (a.u.range->start == b.u.range->start &&
              (a.u.range->count == 1 || a.u.range->step == b.u.range->step)));
        return 0;
    case XM_J_FUNC:
        *out = a.sub == b.sub;
        return 0;
    default:
        *out =
            (const void *)a.u.list == (const void *)b.u.list && a.sub == b.sub;
        return 0;
    }
}

int xm_jequal(xm_jinterp *interp, xm_jvalue a, xm_jvalue b, int *out)
{
    if (xm_jis_number(a) && xm_jis_number(b)) {
        *out = equal_numbers(a, b);
        return 0;
    }
    *out = 0;
    if (a.kind != b.kind)
        return 0;
    if (xm_jcount_work(interp, 1) || xm_jenter_level(interp))
        return -1;
    int status = equal_same_kind(interp, a, b, out);
    xm_jleave_level(interp);
    return status;
}

int xm_jis_iterable(xm_jvalue value)
{
    size_t length;
    return value.kind == XM_J_ITER || !xm_jlength(value, &length);
}

static int list_characters(xm_jinterp *interp, const xm_jstr *str,
                           xm_jlist *out)
{
    size_t from = 0;
    for (size_t i = 0; i < str->chars; i++) {
        size_t to = from + 1;
        while (to < str->size && ((unsigned char)str->text[to] & 0xC0) == 0x80)
            to++;
        xm_jvalue one;
        if (xm_jstr_borrow(interp, str->text + from, to - from, 1, &one) ||
            xm_jlist_add(interp, out, one))
            return -1;
        from = to;
    }
    return 0;
}

static int list_entries(xm_jinterp *interp, const xm_jdict *dict,
                        enum xm_jview view, xm_jlist *out)
{
    for (size_t i = 0; i < dict->count; i++) {
        xm_jvalue item =
            view == XM_J_VALUES ? dict->at[i].value : dict->at[i].key;
        if (view == XM_J_ITEMS) {
            xm_jlist *pair;
            if (xm_jlist_new(interp, 2, &pair) ||
                xm_jlist_add(interp, pair, dict->at[i].key) ||
                xm_jlist_add(interp, pair, dict->at[i].value))
                return -1;
            item = xm_jlist_value(pair, XM_J_TUPLE);
        }
        if (xm_jlist_add(interp, out, item))
            return -1;
    }
    return 0;
}

int xm_jread_items(xm_jinterp *interp, xm_jvalue value, xm_jlist *out)
{
    size_t length = 0;
    *out = (xm_jlist){ 0 };
    if (value.kind == XM_J_ITER) {
        xm_jiter *iter = value.u.iter;
        out->count = out->cap = iter->items.count - iter->next;
        if (out->count)
            out->at = iter->items.at + iter->next;
        iter->next = iter->items.count;
        return 0;
    }
    if (xm_jlength(value, &length))
        return xm_jfail(interp, "'%s' object is not iterable",
                        xm_jtype_name(value));
    if (xm_jcount_work(interp, length / 4))
        return -1;
    switch ((enum xm_jkind)value.kind) {
    case XM_J_LIST:
    case XM_J_TUPLE:
        *out = *value.u.list;
        return 0;
    case XM_J_STR:
        return list_characters(interp, value.u.str, out);
    case XM_J_DICT:
        return list_entries(interp, value.u.dict, XM_J_KEYS, out);
    case XM_J_VIEW:
        return list_entries(interp, value.u.dict, (enum xm_jview)value.sub,
                            out);
    case XM_J_RANGE:
        for (int64_t i = 0; i < value.u.range->count; i++)
            if (xm_jlist_add(
                    interp, out,
                    xm_jint(value.u.range->start + i * value.u.range->step)))
                return -1;
        return 0;
    case XM_J_LOOP:
        return xm_jfail(interp, "a loop cannot be read within itself");
    default:
        return 0;
    }
}
