/* SPDX-License-Identifier: Apache-2.0
 *
 * The value of an expression.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

static int lookup(xm_jrun *run, uint32_t id, xm_jv *out)
{
    *out = xm_jof(XM_J_MISSING);
    for (const xm_jscope *s = run->scope; s; s = s->up)
        for (size_t i = 0; i < s->count; i++)
            if (s->at[i].id == id) {
                *out = s->at[i].value;
                return 0;
            }
    *out = run->globals[id];
    if (out->kind != XM_J_MISSING)
        return 0;
    xm_jv name = xm_jof(XM_J_STR);
    name.u.str = run->tmpl->names[id];
    return xm_jundefined(run, NULL, xm_jof(XM_J_MISSING), name, out);
}

static int sequence(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jlist *list;
    if (xm_jlist_new(run, node->count, &list))
        return -1;
    for (size_t i = 0; i < node->count; i++)
        if (xm_jeval(run, node->list[i], &list->at[i]))
            return -1;
    list->count = node->count;
    *out =
        xm_jlist_value(list, node->type == XM_N_LIST ? XM_J_LIST : XM_J_TUPLE);
    return 0;
}

static int dict(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jdict *made;
    if (xm_jdict_new(run, node->count / 2, &made))
        return -1;
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jv key;
        xm_jv value;
        if (xm_jeval(run, node->list[i], &key) ||
            xm_jeval(run, node->list[i + 1], &value) ||
            xm_jdict_put(run, made, key, value))
            return -1;
    }
    *out = xm_jof(XM_J_DICT);
    out->u.dict = made;
    return 0;
}

static int star_args(xm_jrun *run, const xm_jn *star, xm_jlist *out)
{
    xm_jv value;
    xm_jlist items;
    if (xm_jeval(run, star, &value) || xm_jitems(run, value, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jlist_add(run, out, items.at[i]))
            return -1;
    return 0;
}

static int named_arg(xm_jrun *run, xm_jdict *out, xm_jv key, xm_jv value)
{
    if (key.kind != XM_J_STR)
        return xm_jfail(run, "keywords must be strings");
    if (xm_jdict_get(run, out, key))
        return xm_jfail(run, "the keyword argument '%.*s' is given twice",
                        xm_jshown(key.u.str->size), key.u.str->text);
    return xm_jdict_put(run, out, key, value);
}

static int stars_args(xm_jrun *run, const xm_jn *stars, xm_jdict *out)
{
    xm_jv value;
    if (xm_jeval(run, stars, &value))
        return -1;
    if (value.kind != XM_J_DICT)
        return xm_jfail(run, "the argument behind ** is no mapping");
    for (size_t i = 0; i < value.u.dict->count; i++)
        if (named_arg(run, out, value.u.dict->at[i].key,
                      value.u.dict->at[i].value))
            return -1;
    return 0;
}

int xm_jeval_args(xm_jrun *run, const xm_jn *node, xm_jargs *out)
{
    xm_jlist list = { 0 };
    xm_jdict named = { 0 };
    *out = (xm_jargs){ 0 };
    for (size_t i = 0; i < node->count; i++) {
        xm_jv value;
        if (xm_jeval(run, node->list[i], &value) ||
            xm_jlist_add(run, &list, value))
            return -1;
    }
    if (node->star && star_args(run, node->star, &list))
        return -1;
    for (size_t i = 0; i < node->named_count; i++) {
        xm_jv value;
        if (xm_jeval(run, node->named[i]->a, &value) ||
            named_arg(run, &named, node->named[i]->value, value))
            return -1;
    }
    if (node->stars && stars_args(run, node->stars, &named))
        return -1;
    *out = (xm_jargs){ list.at, list.count, named.at, named.count };
    return 0;
}

static int call(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv callee;
    xm_jargs args;
    if (xm_jeval(run, node->a, &callee) || xm_jeval_args(run, node, &args))
        return -1;
    run->line = node->line;
    return xm_jcall(run, callee, &args, out);
}

int xm_jfilters(xm_jrun *run, const xm_jn *node, const xm_jv *in, xm_jv *out)
{
    xm_jv value;
    xm_jargs args;
    if (!node->a)
        value = *in;
    else if (in ? xm_jfilters(run, node->a, in, &value)
                : xm_jeval(run, node->a, &value))
        return -1;
    if (xm_jeval_args(run, node, &args))
        return -1;
    run->line = node->line;
    if ((int)node->id < 0)
        return xm_jfail(run, "there is no filter named '%.*s'",
                        xm_jshown(node->value.u.str->size),
                        node->value.u.str->text);
    return xm_jfilter(run, (int)node->id, value, &args, out);
}

static int test(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv value;
    xm_jargs args;
    int result;
    if (xm_jeval(run, node->a, &value) || xm_jeval_args(run, node, &args))
        return -1;
    run->line = node->line;
    if ((int)node->id < 0)
        return xm_jfail(run, "there is no test named '%.*s'",
                        xm_jshown(node->value.u.str->size),
                        node->value.u.str->text);
    if (xm_jtest(run, (int)node->id, value, &args, &result))
        return -1;
    *out = xm_jbool(result);
    return 0;
}

static int item(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv object;
    xm_jv key;
    if (xm_jeval(run, node->a, &object))
        return -1;
    if (node->b->type != XM_N_SLICE) {
        if (xm_jeval(run, node->b, &key))
            return -1;
        run->line = node->line;
        return xm_jitem(run, object, key, out);
    }
    xm_jv bounds[3] = { xm_jof(XM_J_MISSING), xm_jof(XM_J_MISSING),
                        xm_jof(XM_J_MISSING) };
    const xm_jn *parts[3] = { node->b->a, node->b->b, node->b->c };
    for (int i = 0; i < 3; i++)
        if (parts[i] && xm_jeval(run, parts[i], &bounds[i]))
            return -1;
    run->line = node->line;
    return xm_jslice(run, object, bounds, out);
}

static int compare(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv left;
    int result = 1;
    if (xm_jeval(run, node->a, &left))
        return -1;
    for (size_t i = 0; result && i < node->count; i++) {
        xm_jv right;
        if (xm_jeval(run, node->list[i]->a, &right))
            return -1;
        run->line = node->line;
        if (xm_jcompare(run, node->list[i]->op, left, right, &result))
            return -1;
        left = right;
    }
    *out = xm_jbool(result);
    return 0;
}

static int concat(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xr_str text = { 0 };
    for (size_t i = 0; i < node->count; i++) {
        xm_jv value;
        if (xm_jeval(run, node->list[i], &value) ||
            xm_jprint(run, value, &text)) {
            xr_str_free(&text);
            return -1;
        }
    }
    return xm_jtext(run, &text, out);
}

static int unary(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv value;
    if (xm_jeval(run, node->a, &value))
        return -1;
    run->line = node->line;
    if (node->type == XM_N_NOT) {
        *out = xm_jbool(!xm_jtruth(value));
        return 0;
    }
    if (node->type == XM_N_NEG)
        return xm_jnegate(run, value, out);
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(run, value);
    if (!xm_jis_number(value))
        return xm_jfail(run, "bad operand type for unary +: '%s'",
                        xm_jtypename(value));
    *out = value.kind == XM_J_BOOL ? xm_jint(value.u.i) : value;
    return 0;
}

static int logic(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    if (xm_jeval(run, node->a, out))
        return -1;
    if (xm_jtruth(*out) == (node->type == XM_N_OR))
        return 0;
    return xm_jeval(run, node->b, out);
}

static int conditional(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv condition;
    if (xm_jeval(run, node->a, &condition))
        return -1;
    if (xm_jtruth(condition))
        return xm_jeval(run, node->b, out);
    if (node->c)
        return xm_jeval(run, node->c, out);
    return xm_jundefined(run,
                         "the inline if evaluated to false and has no else",
                         xm_jof(XM_J_MISSING), xm_jof(XM_J_MISSING), out);
}

static int binary(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv a;
    xm_jv b;
    if (xm_jeval(run, node->a, &a) || xm_jeval(run, node->b, &b))
        return -1;
    run->line = node->line;
    return xm_jbinary(run, node->op, a, b, out);
}

static int attribute(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    xm_jv object;
    if (xm_jeval(run, node->a, &object))
        return -1;
    run->line = node->line;
    return xm_jattr(run, object, node->value, out);
}

static int eval(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    switch ((enum xm_jtype)node->type) {
    case XM_N_CONST:
        *out = node->value;
        return 0;
    case XM_N_NAME:
        return lookup(run, node->id, out);
    case XM_N_TUPLE:
    case XM_N_LIST:
        return sequence(run, node, out);
    case XM_N_DICT:
        return dict(run, node, out);
    case XM_N_ATTR:
        return attribute(run, node, out);
    case XM_N_ITEM:
        return item(run, node, out);
    case XM_N_CALL:
        return call(run, node, out);
    case XM_N_FILTER:
        return xm_jfilters(run, node, NULL, out);
    case XM_N_TEST:
        return test(run, node, out);
    case XM_N_NOT:
    case XM_N_NEG:
    case XM_N_POS:
        return unary(run, node, out);
    case XM_N_BINARY:
        return binary(run, node, out);
    case XM_N_AND:
    case XM_N_OR:
        return logic(run, node, out);
    case XM_N_COMPARE:
        return compare(run, node, out);
    case XM_N_CONCAT:
        return concat(run, node, out);
    case XM_N_COND:
        return conditional(run, node, out);
    default:
        return xm_jfail(run, "this is no expression");
    }
}

int xm_jeval(xm_jrun *run, const xm_jn *node, xm_jv *out)
{
    run->line = node->line;
    if (xm_jwork(run, 1) || xm_jenter(run))
        return -1;
    int status = eval(run, node, out);
    xm_jleave(run);
    return status;
}
