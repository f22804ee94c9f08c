/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls macros, recursive loops and the global functions of every template.
 */
#include <string.h>

#include "model/chat/jinja.h"

enum function {
    F_RANGE,
    F_DICT,
    F_NAMESPACE,
    F_RAISE,
    F_STRFTIME,
    F_CYCLER,
    F_JOINER,
    F_LIPSUM
};
static const char *const functions[] = { "range",        "dict",
                                         "namespace",    "raise_exception",
                                         "strftime_now", "cycler",
                                         "joiner",       "lipsum" };

/* The largest number in a range, which keeps the arithmetic of ranges and their
 * slices within 64 bits. */
#define RANGE_BOUND ((int64_t)1 << 40)

xm_jvalue xm_jfind_function(const xm_jstr *name)
{
    xm_jvalue value = xm_jvalue_of(XM_J_MISSING);
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        if (strlen(functions[i]) == name->size &&
            !memcmp(functions[i], name->text, name->size)) {
            value = xm_jvalue_of(XM_J_FUNC);
            value.sub = (uint16_t)i;
        }
    return value;
}

int xm_jbind_args(xm_jinterp *interp, const char *what, const xm_jargs *args,
                  const char *const *names, size_t required, xm_jvalue *out)
{
    size_t max = 0;
    for (; names[max]; max++)
        out[max] = xm_jvalue_of(XM_J_MISSING);
    if (args->count > max)
        return xm_jfail(interp, "%s takes at most %zu arguments, not %zu", what,
                        max, args->count);
    for (size_t i = 0; i < args->count; i++)
        out[i] = args->at[i];
    for (size_t i = 0; i < args->named_count; i++) {
        const xm_jstr *name = args->named[i].key.u.str;
        size_t at = 0;
        while (names[at] && (strlen(names[at]) != name->size ||
                             memcmp(names[at], name->text, name->size) != 0))
            at++;
        if (!names[at])
            return xm_jfail(interp,
                            "%s got an unexpected keyword argument '%.*s'",
                            what, xm_jshown_size(name->size), name->text);
        if (out[at].kind != XM_J_MISSING)
            return xm_jfail(interp, "%s got multiple values for argument '%s'",
                            what, names[at]);
        out[at] = args->named[i].value;
    }
    for (size_t i = 0; i < required; i++)
        if (out[i].kind == XM_J_MISSING)
            return xm_jfail(interp, "%s needs the argument '%s'", what,
                            names[i]);
    return 0;
}

static int make_range(xm_jinterp *interp, const xm_jargs *args, xm_jvalue *out)
{
    int64_t value[3] = { 0, 0, 1 };
    if (args->named_count || !args->count || args->count > 3)
        return xm_jfail(interp, "range takes one to three arguments");
    for (size_t i = 0; i < args->count; i++) {
        xm_jvalue arg = args->at[i];
        if (arg.kind == XM_J_UNDEF)
            return xm_jfail_undefined(interp, arg);
        if (arg.kind != XM_J_INT && arg.kind != XM_J_BOOL)
            return xm_jfail(interp,
                            "'%s' object cannot be interpreted as an integer",
                            xm_jtype_name(arg));
        if (arg.u.i > RANGE_BOUND || arg.u.i < -RANGE_BOUND)
            return xm_jfail(interp, "a number in range() is beyond 2^40");
        value[args->count == 1 ? 1 : i] = arg.u.i;
    }
    if (!value[2])
        return xm_jfail(interp, "range() arg 3 must not be zero");
    uint64_t span = value[2] > 0 ? (uint64_t)value[1] - (uint64_t)value[0]
                                 : (uint64_t)value[0] - (uint64_t)value[1];
    uint64_t step = value[2] > 0 ? (uint64_t)value[2] : 0 - (uint64_t)value[2];
    int empty = value[2] > 0 ? value[1] <= value[0] : value[1] >= value[0];
    uint64_t count = empty ? 0 : (span - 1) / step + 1;
    if (count > XM_CHAT_MAX_RANGE)
        return xm_jfail(interp, "a range has more than %d items",
                        XM_CHAT_MAX_RANGE);
    xm_jrange *made = xm_jalloc(interp, 1, sizeof *made);
    if (!made)
        return -1;
    *made = (xm_jrange){ value[0], value[2], (int64_t)count, value[1] };
    *out = xm_jvalue_of(XM_J_RANGE);
    out->u.range = made;
    return 0;
}

static int add_dict_pairs(xm_jinterp *interp, xm_jvalue from, xm_jdict *out)
{
    xm_jlist items;
    if (from.kind == XM_J_DICT) {
        for (size_t i = 0; i < from.u.dict->count; i++)
            if (xm_jdict_put(interp, out, from.u.dict->at[i].key,
                             from.u.dict->at[i].value))
                return -1;
        return 0;
    }
    if (xm_jread_items(interp, from, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++) {
        xm_jlist pair;
        if (xm_jread_items(interp, items.at[i], &pair))
            return -1;
        if (pair.count != 2)
            return xm_jfail(interp,
                            "dictionary update sequence element #%zu has "
                            "length %zu; 2 is required",
                            i, pair.count);
        if (xm_jdict_put(interp, out, pair.at[0], pair.at[1]))
            return -1;
    }
    return 0;
}

int xm_jfill_dict(xm_jinterp *interp, const xm_jargs *args, xm_jdict *out)
{
    if (args->count > 1)
        return xm_jfail(interp, "dict expected at most 1 argument, got %zu",
                        args->count);
    if (args->count && add_dict_pairs(interp, args->at[0], out))
        return -1;
    for (size_t i = 0; i < args->named_count; i++)
        if (xm_jdict_put(interp, out, args->named[i].key, args->named[i].value))
            return -1;
    return 0;
}

static int make_dict(xm_jinterp *interp, const xm_jargs *args,
                     enum xm_jkind kind, xm_jvalue *out)
{
    xm_jdict *dict;
    if (xm_jdict_new(interp, args->named_count, &dict) ||
        xm_jfill_dict(interp, args, dict))
        return -1;
    for (size_t i = 0; kind == XM_J_NS && i < dict->count; i++)
        if (dict->at[i].key.kind == XM_J_STR &&
            dict->at[i].key.u.str->text[0] == '_')
            return xm_jfail(interp,
                            "a namespace takes no attributes that start "
                            "with an underscore");
    *out = xm_jvalue_of(kind);
    out->u.dict = dict;
    return 0;
}

static int call_raise_exception(xm_jinterp *interp, const xm_jargs *args)
{
    static const char *const names[] = { "message", NULL };
    xm_jvalue message;
    if (xm_jbind_args(interp, "raise_exception", args, names, 1, &message) ||
        xm_jto_str(interp, message, &message))
        return -1;
    return xm_jfail(interp, "%s", message.u.str->text);
}

static int call_strftime_now(xm_jinterp *interp, const xm_jargs *args,
                             xm_jvalue *out)
{
    static const char *const names[] = { "format", NULL };
    xm_jvalue format;
    if (xm_jbind_args(interp, "strftime_now", args, names, 1, &format))
        return -1;
    if (format.kind != XM_J_STR)
        return xm_jfail(interp, "strftime_now needs a string, not %s",
                        xm_jtype_name(format));
    return xm_jstrftime(interp, format.u.str, out);
}

static int make_cycle(xm_jinterp *interp, const xm_jargs *args,
                      enum xm_jkind kind, xm_jvalue *out)
{
    static const char *const names[] = { "sep", NULL };
    xm_jcycle *made = xm_jalloc(interp, 1, sizeof *made);
    if (!made)
        return -1;
    if (kind == XM_J_JOINER) {
        if (xm_jbind_args(interp, "joiner", args, names, 0, &made->sep))
            return -1;
        if (made->sep.kind == XM_J_MISSING &&
            xm_jstr_borrow(interp, ", ", 2, 2, &made->sep))
            return -1;
    } else if (!args->count || args->named_count) {
        return xm_jfail(interp, "a cycler needs at least one item");
    }
    made->items = (xm_jlist){ args->at, args->count, args->count };
    *out = xm_jvalue_of(kind);
    out->u.cycle = made;
    return 0;
}

static int call_joiner(xm_jinterp *interp, xm_jcycle *joiner,
                       const xm_jargs *args, xm_jvalue *out)
{
    if (args->count || args->named_count)
        return xm_jfail(interp, "a joiner takes no arguments");
    if (!joiner->next++)
        return xm_jstr_borrow(interp, "", 0, 0, out);
    *out = joiner->sep;
    return 0;
}

static int call_function(xm_jinterp *interp, enum function which,
                         const xm_jargs *args, xm_jvalue *out)
{
    switch (which) {
    case F_RANGE:
        return make_range(interp, args, out);
    case F_DICT:
        return make_dict(interp, args, XM_J_DICT, out);
    case F_NAMESPACE:
        return make_dict(interp, args, XM_J_NS, out);
    case F_RAISE:
        return call_raise_exception(interp, args);
    case F_STRFTIME:
        return call_strftime_now(interp, args, out);
    case F_CYCLER:
        return make_cycle(interp, args, XM_J_CYCLER, out);
    case F_JOINER:
        return make_cycle(interp, args, XM_J_JOINER, out);
    default:
        return xm_jfail(interp, "lipsum is not supported in a chat template");
    }
}

static int call_loop(xm_jinterp *interp, xm_jloop *loop, const xm_jargs *args,
                     xm_jvalue *out)
{
    if (!loop->node)
        return xm_jfail(interp,
                        "the loop must have the 'recursive' marker to be "
                        "called recursively");
    if (args->count != 1 || args->named_count)
        return xm_jfail(interp, "a recursive loop takes one argument");
    xm_jscope *scope = interp->scope;
    size_t mark = xm_jbuffer_begin(interp);
    interp->scope = loop->scope;
    if (xm_jexec_loop(interp, loop->node, args->at[0], loop->depth + 1))
        return -1;
    interp->scope = scope;
    return xm_jbuffer_end(interp, mark, out);
}

/* Removes a named argument from the list and returns whether it was there. */
static int take_named_arg(xm_jinterp *interp, xm_jdict *named,
                          const xm_jstr *name, xm_jvalue *out)
{
    xm_jvalue key = xm_jvalue_of(XM_J_STR);
    key.u.str = name;
    xm_jentry *entry = xm_jdict_get(interp, named, key);
    *out = entry ? entry->value : xm_jvalue_of(XM_J_MISSING);
    if (!entry)
        return 0;
    size_t at = (size_t)(entry - named->at);
    memmove(entry, entry + 1, (named->count - at - 1) * sizeof *entry);
    named->count--;
    return 1;
}

static int bind_params(xm_jinterp *interp, const xm_jnode *node,
                       const xm_jargs *args, xm_jdict *named)
{
    for (size_t i = 0; i < node->count; i++) {
        const xm_jnode *param = node->list[i];
        xm_jvalue value;
        if (i < args->count)
            value = args->at[i];
        else
            (void)take_named_arg(interp, named, interp->tmpl->names[param->id],
                                 &value);
        if (value.kind == XM_J_MISSING) {
            xm_jvalue name = xm_jvalue_of(XM_J_STR);
            name.u.str = interp->tmpl->names[param->id];
            if (param->a
                    ? xm_jeval(interp, param->a, &value)
                    : xm_jundef_new(interp, "a parameter was not provided",
                                    xm_jvalue_of(XM_J_MISSING), name, &value))
                return -1;
        }
        if (xm_jset_variable(interp, param->id, value))
            return -1;
    }
    return 0;
}

static int bind_caller(xm_jinterp *interp, xm_jdict *named)
{
    xm_jvalue caller;
    (void)take_named_arg(interp, named, interp->tmpl->names[XM_J_ID_CALLER],
                         &caller);
    if (caller.kind == XM_J_MISSING || caller.kind == XM_J_NONE)
        if (xm_jundef_new(interp, "no caller is defined",
                          xm_jvalue_of(XM_J_MISSING),
                          xm_jvalue_of(XM_J_MISSING), &caller))
            return -1;
    return xm_jset_variable(interp, XM_J_ID_CALLER, caller);
}

static const char *get_macro_name(const xm_jnode *node)
{
    return node->value.kind ? node->value.u.str->text : "caller";
}

/* Binds the remaining arguments to caller, kwargs and varargs if the body uses
 * them; otherwise they are an error. */
static int bind_extra_args(xm_jinterp *interp, const xm_jnode *node,
                           const xm_jargs *args, xm_jdict *named)
{
    if (node->flags & XM_J_CALLER && bind_caller(interp, named))
        return -1;
    if (node->flags & XM_J_KWARGS) {
        xm_jvalue kwargs = xm_jvalue_of(XM_J_DICT);
        kwargs.u.dict = named;
        if (xm_jset_variable(interp, XM_J_ID_KWARGS, kwargs))
            return -1;
    } else if (named->count) {
        const xm_jstr *name = named->at[0].key.u.str;
        return xm_jfail(
            interp, "macro '%.100s' takes no keyword argument '%.*s'",
            get_macro_name(node), xm_jshown_size(name->size), name->text);
    }
    size_t extra = args->count > node->count ? args->count - node->count : 0;
    if (node->flags & XM_J_VARARGS) {
        xm_jlist *list;
        if (xm_jlist_new(interp, extra, &list))
            return -1;
        for (size_t i = 0; i < extra; i++)
            list->at[i] = args->at[node->count + i];
        list->count = extra;
        return xm_jset_variable(interp, XM_J_ID_VARARGS,
                                xm_jlist_value(list, XM_J_TUPLE));
    }
    if (extra)
        return xm_jfail(interp, "macro '%.100s' takes at most %zu argument(s)",
                        get_macro_name(node), node->count);
    return 0;
}

static int call_macro(xm_jinterp *interp, const xm_jmacro *macro,
                      const xm_jargs *args, xm_jvalue *out)
{
    const xm_jnode *node = macro->node;
    xm_jscope *outer = interp->scope;
    xm_jscope *scope = xm_jalloc(interp, 1, sizeof *scope);
    xm_jdict *named;
    if (!scope || xm_jdict_new(interp, args->named_count, &named))
        return -1;
    for (size_t i = 0; i < args->named_count; i++)
        named->at[i] = args->named[i];
    named->count = args->named_count;
    scope->up = macro->scope;
    interp->scope = scope;
    size_t mark = xm_jbuffer_begin(interp);
    if (bind_params(interp, node, args, named) ||
        bind_extra_args(interp, node, args, named) ||
        xm_jexec(interp, node->c) < 0)
        return -1;
    interp->scope = outer;
    return xm_jbuffer_end(interp, mark, out);
}

static int call_nested(xm_jinterp *interp, xm_jvalue callee,
                       const xm_jargs *args, xm_jvalue *out)
{
    if (interp->calls >= XM_CHAT_MAX_CALLS)
        return xm_jfail(interp, "more than %u macros call each other",
                        XM_CHAT_MAX_CALLS);
    interp->calls++;
    int status = callee.kind == XM_J_MACRO
                     ? call_macro(interp, callee.u.macro, args, out)
                     : call_loop(interp, callee.u.loop, args, out);
    interp->calls--;
    return status;
}

int xm_jcall(xm_jinterp *interp, xm_jvalue callee, const xm_jargs *args,
             xm_jvalue *out)
{
    switch ((enum xm_jkind)callee.kind) {
    case XM_J_UNDEF:
        return xm_jfail_undefined(interp, callee);
    case XM_J_FUNC:
        return call_function(interp, (enum function)callee.sub, args, out);
    case XM_J_BOUND:
        return xm_jcall_method(interp, callee.u.bound, args, out);
    case XM_J_JOINER:
        return call_joiner(interp, callee.u.cycle, args, out);
    case XM_J_MACRO:
    case XM_J_LOOP:
        return call_nested(interp, callee, args, out);
    default:
        return xm_jfail(interp, "'%s' object is not callable",
                        xm_jtype_name(callee));
    }
}
