/* SPDX-License-Identifier: Apache-2.0
 *
 * Evaluates the expressions of a template.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

static int look_up_name(xm_jinterp *interp, uint32_t id, xm_jvalue *out)
{
    *out = xm_jvalue_of(XM_J_MISSING);
    for (const xm_jscope *s = interp->scope; s; s = s->up)
        for (size_t i = 0; i < s->count; i++)
            if (s->at[i].id == id) {
                *out = s->at[i].value;
                return 0;
            }
    *out = interp->globals[id];
    if (out->kind != XM_J_MISSING)
        return 0;
    xm_jvalue name = xm_jvalue_of(XM_J_STR);
    name.u.str = interp->tmpl->names[id];
    return xm_jundef_new(interp, NULL, xm_jvalue_of(XM_J_MISSING), name, out);
}

static int eval_sequence(xm_jinterp *interp, const xm_jnode *node,
                         xm_jvalue *out)
{
    xm_jlist *list;
    if (xm_jlist_new(interp, node->count, &list))
        return -1;
    for (size_t i = 0; i < node->count; i++)
        if (xm_jeval(interp, node->list[i], &list->at[i]))
            return -1;
    list->count = node->count;
    *out =
        xm_jlist_value(list, node->type == XM_N_LIST ? XM_J_LIST : XM_J_TUPLE);
    return 0;
}

static int eval_dict(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jdict *made;
    if (xm_jdict_new(interp, node->count / 2, &made))
        return -1;
    for (size_t i = 0; i + 1 < node->count; i += 2) {
        xm_jvalue key;
        xm_jvalue value;
        if (xm_jeval(interp, node->list[i], &key) ||
            xm_jeval(interp, node->list[i + 1], &value) ||
            xm_jdict_put(interp, made, key, value))
            return -1;
    }
    *out = xm_jvalue_of(XM_J_DICT);
    out->u.dict = made;
    return 0;
}

static int add_star_args(xm_jinterp *interp, const xm_jnode *star,
                         xm_jlist *out)
{
    xm_jvalue value;
    xm_jlist items;
    if (xm_jeval(interp, star, &value) || xm_jread_items(interp, value, &items))
        return -1;
    for (size_t i = 0; i < items.count; i++)
        if (xm_jlist_add(interp, out, items.at[i]))
            return -1;
    return 0;
}

static int add_named_arg(xm_jinterp *interp, xm_jdict *out, xm_jvalue key,
                         xm_jvalue value)
{
    if (key.kind != XM_J_STR)
        return xm_jfail(interp, "keywords must be strings");
    if (xm_jdict_get(interp, out, key))
        return xm_jfail(interp, "the keyword argument '%.*s' is given twice",
                        xm_jshown_size(key.u.str->size), key.u.str->text);
    return xm_jdict_put(interp, out, key, value);
}

static int add_star_star_args(xm_jinterp *interp, const xm_jnode *stars,
                              xm_jdict *out)
{
    xm_jvalue value;
    if (xm_jeval(interp, stars, &value))
        return -1;
    if (value.kind != XM_J_DICT)
        return xm_jfail(interp, "the argument after ** must be a mapping");
    for (size_t i = 0; i < value.u.dict->count; i++)
        if (add_named_arg(interp, out, value.u.dict->at[i].key,
                          value.u.dict->at[i].value))
            return -1;
    return 0;
}

int xm_jeval_args(xm_jinterp *interp, const xm_jnode *node, xm_jargs *out)
{
    xm_jlist list = { 0 };
    xm_jdict named = { 0 };
    *out = (xm_jargs){ 0 };
    for (size_t i = 0; i < node->count; i++) {
        xm_jvalue value;
        if (xm_jeval(interp, node->list[i], &value) ||
            xm_jlist_add(interp, &list, value))
            return -1;
    }
    if (node->star && add_star_args(interp, node->star, &list))
        return -1;
    for (size_t i = 0; i < node->named_count; i++) {
        xm_jvalue value;
        if (xm_jeval(interp, node->named[i]->a, &value) ||
            add_named_arg(interp, &named, node->named[i]->value, value))
            return -1;
    }
    if (node->stars && add_star_star_args(interp, node->stars, &named))
        return -1;
    *out = (xm_jargs){ list.at, list.count, named.at, named.count };
    return 0;
}

static int eval_call(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jvalue callee;
    xm_jargs args;
    if (xm_jeval(interp, node->a, &callee) ||
        xm_jeval_args(interp, node, &args))
        return -1;
    interp->line = node->line;
    return xm_jcall(interp, callee, &args, out);
}

int xm_jeval_filters(xm_jinterp *interp, const xm_jnode *node,
                     const xm_jvalue *in, xm_jvalue *out)
{
    xm_jvalue value;
    xm_jargs args;
    if (!node->a)
        value = *in;
    else if (in ? xm_jeval_filters(interp, node->a, in, &value)
                : xm_jeval(interp, node->a, &value))
        return -1;
    if (xm_jeval_args(interp, node, &args))
        return -1;
    interp->line = node->line;
    if ((int)node->id < 0)
        return xm_jfail(interp, "there is no filter named '%.*s'",
                        xm_jshown_size(node->value.u.str->size),
                        node->value.u.str->text);
    return xm_jcall_filter(interp, (int)node->id, value, &args, out);
}

static int eval_test(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jvalue value;
    xm_jargs args;
    int result;
    if (xm_jeval(interp, node->a, &value) || xm_jeval_args(interp, node, &args))
        return -1;
    interp->line = node->line;
    if ((int)node->id < 0)
        return xm_jfail(interp, "there is no test named '%.*s'",
                        xm_jshown_size(node->value.u.str->size),
                        node->value.u.str->text);
    if (xm_jcall_test(interp, (int)node->id, value, &args, &result))
        return -1;
    *out = xm_jbool(result);
    return 0;
}

static int eval_item(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jvalue object;
    xm_jvalue key;
    if (xm_jeval(interp, node->a, &object))
        return -1;
    if (node->b->type != XM_N_SLICE) {
        if (xm_jeval(interp, node->b, &key))
            return -1;
        interp->line = node->line;
        return xm_jget_item(interp, object, key, out);
    }
    xm_jvalue bounds[3] = { xm_jvalue_of(XM_J_MISSING),
                            xm_jvalue_of(XM_J_MISSING),
                            xm_jvalue_of(XM_J_MISSING) };
    const xm_jnode *parts[3] = { node->b->a, node->b->b, node->b->c };
    for (int i = 0; i < 3; i++)
        if (parts[i] && xm_jeval(interp, parts[i], &bounds[i]))
            return -1;
    interp->line = node->line;
    return xm_jget_slice(interp, object, bounds, out);
}

static int eval_compare(xm_jinterp *interp, const xm_jnode *node,
                        xm_jvalue *out)
{
    xm_jvalue left;
    int result = 1;
    if (xm_jeval(interp, node->a, &left))
        return -1;
    for (size_t i = 0; result && i < node->count; i++) {
        xm_jvalue right;
        if (xm_jeval(interp, node->list[i]->a, &right))
            return -1;
        interp->line = node->line;
        if (xm_jcompare_op(interp, node->list[i]->op, left, right, &result))
            return -1;
        left = right;
    }
    *out = xm_jbool(result);
    return 0;
}

static int eval_concat(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xr_str text = { 0 };
    for (size_t i = 0; i < node->count; i++) {
        xm_jvalue value;
        if (xm_jeval(interp, node->list[i], &value) ||
            xm_jappend_str(interp, value, &text)) {
            xr_str_free(&text);
            return -1;
        }
    }
    return xm_jstr_take(interp, &text, out);
}

static int eval_unary(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jvalue value;
    if (xm_jeval(interp, node->a, &value))
        return -1;
    interp->line = node->line;
    if (node->type == XM_N_NOT) {
        *out = xm_jbool(!xm_jis_true(value));
        return 0;
    }
    if (node->type == XM_N_NEG)
        return xm_jnegate(interp, value, out);
    if (value.kind == XM_J_UNDEF)
        return xm_jfail_undefined(interp, value);
    if (!xm_jis_number(value))
        return xm_jfail(interp, "bad operand type for unary +: '%s'",
                        xm_jtype_name(value));
    *out = value.kind == XM_J_BOOL ? xm_jint(value.u.i) : value;
    return 0;
}

static int eval_logic(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    if (xm_jeval(interp, node->a, out))
        return -1;
    if (xm_jis_true(*out) == (node->type == XM_N_OR))
        return 0;
    return xm_jeval(interp, node->b, out);
}

static int eval_conditional(xm_jinterp *interp, const xm_jnode *node,
                            xm_jvalue *out)
{
    xm_jvalue condition;
    if (xm_jeval(interp, node->a, &condition))
        return -1;
    if (xm_jis_true(condition))
        return xm_jeval(interp, node->b, out);
    if (node->c)
        return xm_jeval(interp, node->c, out);
    return xm_jundef_new(
        interp, "the inline if evaluated to false and has no else",
        xm_jvalue_of(XM_J_MISSING), xm_jvalue_of(XM_J_MISSING), out);
}

static int eval_binary(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    xm_jvalue a;
    xm_jvalue b;
    if (xm_jeval(interp, node->a, &a) || xm_jeval(interp, node->b, &b))
        return -1;
    interp->line = node->line;
    return xm_jbinary_op(interp, node->op, a, b, out);
}

static int eval_attribute(xm_jinterp *interp, const xm_jnode *node,
                          xm_jvalue *out)
{
    xm_jvalue object;
    if (xm_jeval(interp, node->a, &object))
        return -1;
    interp->line = node->line;
    return xm_jget_attr(interp, object, node->value, out);
}

static int eval_node(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    switch ((enum xm_jnode_type)node->type) {
    case XM_N_CONST:
        *out = node->value;
        return 0;
    case XM_N_NAME:
        return look_up_name(interp, node->id, out);
    case XM_N_TUPLE:
    case XM_N_LIST:
        return eval_sequence(interp, node, out);
    case XM_N_DICT:
        return eval_dict(interp, node, out);
    case XM_N_ATTR:
        return eval_attribute(interp, node, out);
    case XM_N_ITEM:
        return eval_item(interp, node, out);
    case XM_N_CALL:
        return eval_call(interp, node, out);
    case XM_N_FILTER:
        return xm_jeval_filters(interp, node, NULL, out);
    case XM_N_TEST:
        return eval_test(interp, node, out);
    case XM_N_NOT:
    case XM_N_NEG:
    case XM_N_POS:
        return eval_unary(interp, node, out);
    case XM_N_BINARY:
        return eval_binary(interp, node, out);
    case XM_N_AND:
    case XM_N_OR:
        return eval_logic(interp, node, out);
    case XM_N_COMPARE:
        return eval_compare(interp, node, out);
    case XM_N_CONCAT:
        return eval_concat(interp, node, out);
    case XM_N_COND:
        return eval_conditional(interp, node, out);
    default:
        return xm_jfail(interp, "this is not an expression");
    }
}

int xm_jeval(xm_jinterp *interp, const xm_jnode *node, xm_jvalue *out)
{
    interp->line = node->line;
    if (xm_jcount_work(interp, 1) || xm_jenter_level(interp))
        return -1;
    int status = eval_node(interp, node, out);
    xm_jleave_level(interp);
    return status;
}
