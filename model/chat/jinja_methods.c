/* SPDX-License-Identifier: Apache-2.0
 *
 * Holds the table of all methods, and implements those of dicts, lists, loops
 * and cyclers.
 */
#include <string.h>

#include "model/chat/jinja_methods.h"

static const struct {
    const char *name;
    enum xm_jkind kind;
    enum xm_jkind also;
} methods[] = {
    [M_CAPITALIZE] = { "capitalize", XM_J_STR, 0 },
    [M_CASEFOLD] = { "casefold", XM_J_STR, 0 },
    [M_CENTER] = { "center", XM_J_STR, 0 },
    [M_COUNT] = { "count", XM_J_STR, 0 },
    [M_ENDSWITH] = { "endswith", XM_J_STR, 0 },
    [M_FIND] = { "find", XM_J_STR, 0 },
    [M_FORMAT] = { "format", XM_J_STR, 0 },
    [M_INDEX] = { "index", XM_J_STR, 0 },
    [M_ISALNUM] = { "isalnum", XM_J_STR, 0 },
    [M_ISALPHA] = { "isalpha", XM_J_STR, 0 },
    [M_ISASCII] = { "isascii", XM_J_STR, 0 },
    [M_ISDECIMAL] = { "isdecimal", XM_J_STR, 0 },
    [M_ISDIGIT] = { "isdigit", XM_J_STR, 0 },
    [M_ISNUMERIC] = { "isnumeric", XM_J_STR, 0 },
    [M_ISSPACE] = { "isspace", XM_J_STR, 0 },
    [M_ISPRINTABLE] = { "isprintable", XM_J_STR, 0 },
    [M_ISLOWER] = { "islower", XM_J_STR, 0 },
    [M_ISUPPER] = { "isupper", XM_J_STR, 0 },
    [M_ISTITLE] = { "istitle", XM_J_STR, 0 },
    [M_JOIN] = { "join", XM_J_STR, 0 },
    [M_LJUST] = { "ljust", XM_J_STR, 0 },
    [M_LOWER] = { "lower", XM_J_STR, 0 },
    [M_LSTRIP] = { "lstrip", XM_J_STR, 0 },
    [M_PARTITION] = { "partition", XM_J_STR, 0 },
    [M_REMOVEPREFIX] = { "removeprefix", XM_J_STR, 0 },
    [M_REMOVESUFFIX] = { "removesuffix", XM_J_STR, 0 },
    [M_REPLACE] = { "replace", XM_J_STR, 0 },
    [M_RFIND] = { "rfind", XM_J_STR, 0 },
    [M_RINDEX] = { "rindex", XM_J_STR, 0 },
    [M_RJUST] = { "rjust", XM_J_STR, 0 },
    [M_RPARTITION] = { "rpartition", XM_J_STR, 0 },
    [M_RSPLIT] = { "rsplit", XM_J_STR, 0 },
    [M_RSTRIP] = { "rstrip", XM_J_STR, 0 },
    [M_SPLIT] = { "split", XM_J_STR, 0 },
    [M_SPLITLINES] = { "splitlines", XM_J_STR, 0 },
    [M_STARTSWITH] = { "startswith", XM_J_STR, 0 },
    [M_STRIP] = { "strip", XM_J_STR, 0 },
    [M_SWAPCASE] = { "swapcase", XM_J_STR, 0 },
    [M_TITLE] = { "title", XM_J_STR, 0 },
    [M_UPPER] = { "upper", XM_J_STR, 0 },
    [M_ZFILL] = { "zfill", XM_J_STR, 0 },
    [M_LIST_COUNT] = { "count", XM_J_LIST, XM_J_TUPLE },
    [M_LIST_INDEX] = { "index", XM_J_LIST, XM_J_TUPLE },
    [M_LIST_COPY] = { "copy", XM_J_LIST, 0 },
    [M_GET] = { "get", XM_J_DICT, 0 },
    [M_ITEMS] = { "items", XM_J_DICT, 0 },
    [M_KEYS] = { "keys", XM_J_DICT, 0 },
    [M_VALUES] = { "values", XM_J_DICT, 0 },
    [M_DICT_COPY] = { "copy", XM_J_DICT, 0 },
    [M_CYCLE] = { "cycle", XM_J_LOOP, 0 },
    [M_CHANGED] = { "changed", XM_J_LOOP, 0 },
    [M_NEXT] = { "next", XM_J_CYCLER, 0 },
    [M_RESET] = { "reset", XM_J_CYCLER, 0 },
};

const char *xm_jmethod_name(enum xm_jmethod_id method)
{
    return methods[method].name;
}

int xm_jfind_method(xm_jvalue self, const xm_jstr *name)
{
    for (size_t i = 0; i < sizeof methods / sizeof methods[0]; i++)
        if ((methods[i].kind == (enum xm_jkind)self.kind ||
             (methods[i].also &&
              methods[i].also == (enum xm_jkind)self.kind)) &&
            !strcmp(methods[i].name, name->text))
            return (int)i;
    return -1;
}

static int is_listed(const char *const *names, const char *name)
{
    for (; *names; names++)
        if (!strcmp(*names, name))
            return 1;
    return 0;
}

const char *xm_jmethod_refused(xm_jvalue self, const xm_jstr *name)
{
    static const char *const list[] = { "append",  "clear",  "pop",
                                        "reverse", "insert", "sort",
                                        "extend",  "remove", NULL };
    static const char *const dict[] = { "clear",      "pop",    "popitem",
                                        "setdefault", "update", NULL };
    static const char *const other[] = { "encode",     "expandtabs",
                                         "format_map", "isidentifier",
                                         "maketrans",  "translate",
                                         NULL };
    if (self.kind == XM_J_LIST && is_listed(list, name->text))
        return "a list cannot be changed by a chat template";
    if (self.kind == XM_J_DICT && is_listed(dict, name->text))
        return "a dict cannot be changed by a chat template";
    if (self.kind == XM_J_STR && is_listed(other, name->text))
        return "this method of strings is not supported in a chat template";
    if (self.kind == XM_J_DICT && !strcmp(name->text, "fromkeys"))
        return "fromkeys is not supported in a chat template";
    return NULL;
}

int xm_jexpect_str(xm_jinterp *interp, const char *what, xm_jvalue arg)
{
    if (arg.kind == XM_J_STR)
        return 0;
    return xm_jfail(interp, "%s needs a string, not %s", what,
                    xm_jtype_name(arg));
}

int xm_jread_integer(xm_jinterp *interp, const char *what, xm_jvalue arg,
                     int64_t preset, int64_t *out)
{
    *out = preset;
    if (arg.kind == XM_J_MISSING)
        return 0;
    if (arg.kind != XM_J_INT && arg.kind != XM_J_BOOL)
        return xm_jfail(interp, "%s needs an integer, not %s", what,
                        xm_jtype_name(arg));
    *out = arg.u.i;
    return 0;
}

int xm_jcheck_positional(xm_jinterp *interp, const char *what,
                         const xm_jargs *args, size_t least, size_t most)
{
    if (args->named_count)
        return xm_jfail(interp, "%s takes no keyword arguments", what);
    if (args->count < least || args->count > most)
        return xm_jfail(interp, "%s takes %zu to %zu arguments, not %zu", what,
                        least, most, args->count);
    return 0;
}

static int call_list_method(xm_jinterp *interp, enum xm_jmethod_id method,
                            xm_jvalue self, const xm_jargs *args,
                            xm_jvalue *out)
{
    const xm_jlist *list = self.u.list;
    if (method == M_LIST_COPY) {
        xm_jvalue all[3] = { xm_jnone(), xm_jnone(), xm_jnone() };
        return xm_jcheck_positional(interp, "copy", args, 0, 0) ||
               xm_jget_slice(interp, self, all, out);
    }
    int64_t count = 0;
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 1, 1))
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        int equal;
        if (xm_jcount_work(interp, 1) ||
            xm_jequal(interp, list->at[i], args->at[0], &equal))
            return -1;
        count += equal;
        if (equal && method == M_LIST_INDEX) {
            *out = xm_jint((int64_t)i);
            return 0;
        }
    }
    if (method == M_LIST_INDEX)
        return xm_jfail(interp, "the value is not in the list");
    *out = xm_jint(count);
    return 0;
}

static int call_dict_method(xm_jinterp *interp, enum xm_jmethod_id method,
                            xm_jvalue self, const xm_jargs *args,
                            xm_jvalue *out)
{
    if (method == M_GET) {
        uint64_t hash;
        if (xm_jcheck_positional(interp, "get", args, 1, 2))
            return -1;
        if (xm_jhash(interp, args->at[0], &hash))
            return xm_jfail_unhashable(interp, args->at[0]);
        xm_jentry *entry = xm_jdict_get(interp, self.u.dict, args->at[0]);
        *out = entry             ? entry->value
               : args->count > 1 ? args->at[1]
                                 : xm_jnone();
        return xm_jcount_work(interp, 1);
    }
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 0, 0))
        return -1;
    if (method == M_DICT_COPY) {
        *out = self;
        return 0;
    }
    *out = self;
    out->kind = XM_J_VIEW;
    out->sub = method == M_KEYS     ? XM_J_KEYS
               : method == M_VALUES ? XM_J_VALUES
                                    : XM_J_ITEMS;
    return 0;
}

static int call_loop_method(xm_jinterp *interp, enum xm_jmethod_id method,
                            xm_jloop *loop, const xm_jargs *args,
                            xm_jvalue *out)
{
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 0,
                             SIZE_MAX))
        return -1;
    if (method == M_CYCLE) {
        if (!args->count)
            return xm_jfail(interp, "no items for cycling given");
        *out = args->at[loop->at % args->count];
        return 0;
    }
    xm_jlist *now;
    int equal;
    if (xm_jlist_new(interp, args->count, &now))
        return -1;
    if (args->count)
        memcpy(now->at, args->at, args->count * sizeof *now->at);
    now->count = args->count;
    xm_jvalue value = xm_jlist_value(now, XM_J_TUPLE);
    if (xm_jequal(interp, loop->changed, value, &equal))
        return -1;
    loop->changed = value;
    *out = xm_jbool(!equal);
    return 0;
}

static int call_cycler_method(xm_jinterp *interp, enum xm_jmethod_id method,
                              xm_jcycle *cycler, const xm_jargs *args,
                              xm_jvalue *out)
{
    if (xm_jcheck_positional(interp, xm_jmethod_name(method), args, 0, 0))
        return -1;
    *out = xm_jnone();
    if (method == M_NEXT)
        *out = cycler->items.at[cycler->next];
    cycler->next =
        method == M_NEXT ? (cycler->next + 1) % cycler->items.count : 0;
    return 0;
}

/* Marks the result of a method of a marked string, and each piece of a list. */
static void copy_markup(xm_jvalue *value, uint8_t markup)
{
    if (value->kind == XM_J_STR)
        value->markup = markup;
    if (value->kind != XM_J_LIST && value->kind != XM_J_TUPLE)
        return;
    for (size_t i = 0; i < value->u.list->count; i++)
        value->u.list->at[i].markup = markup;
}

int xm_jcall_method(xm_jinterp *interp, const xm_jbound *bound,
                    const xm_jargs *args, xm_jvalue *out)
{
    enum xm_jmethod_id method = (enum xm_jmethod_id)bound->method;
    if (xm_jcount_work(interp, 1))
        return -1;
    switch ((enum xm_jkind)bound->self.kind) {
    case XM_J_STR:
        if (xm_jcall_str_method(interp, method, bound->self, args, out))
            return -1;
        copy_markup(out, bound->self.markup);
        return 0;
    case XM_J_LIST:
    case XM_J_TUPLE:
        return call_list_method(interp, method, bound->self, args, out);
    case XM_J_DICT:
        return call_dict_method(interp, method, bound->self, args, out);
    case XM_J_LOOP:
        return call_loop_method(interp, method, bound->self.u.loop, args, out);
    default:
        return call_cycler_method(interp, method, bound->self.u.cycle, args,
                                  out);
    }
}
