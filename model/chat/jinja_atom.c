/* SPDX-License-Identifier: Apache-2.0
 *
 * Names, literals, calls and subscripts of a template.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

static const char *token_text(const xm_jtoken *token)
{
    switch (token->type) {
    case XM_T_EOF:
        return "the end of the template";
    case XM_T_DATA:
        return "text";
    case XM_T_BLOCK_END:
        return "the end of the tag";
    case XM_T_VAR_END:
        return "the end of the print";
    default:
        return NULL;
    }
}

xm_jn *xm_junexpected(xm_jparser *p)
{
    const char *text = token_text(p->token);
    if (text)
        (void)xm_jsyntax(p, "unexpected %s", text);
    else
        (void)xm_jsyntax(p, "unexpected '%.*s'",
                         (int)(p->token->size < 60 ? p->token->size : 60),
                         p->token->text);
    return NULL;
}

static int tuple_end(const xm_jparser *p, const char *stop)
{
    return p->token->type == XM_T_VAR_END || p->token->type == XM_T_BLOCK_END ||
           p->token->type == XM_T_RPAREN ||
           (stop && xm_jis_name(p->token, stop));
}

static xm_jn *tuple_item(xm_jparser *p, int target, int flag)
{
    return target ? xm_jprimary(p, flag) : xm_jexpression(p, flag);
}

/* `target`: only names and literals; then `flag` allows namespace attributes,
 * else it allows inline ifs. */
static xm_jn *tuple_of(xm_jparser *p, int target, int flag, const char *stop,
                       int parentheses)
{
    xm_jn *node = xm_jnode(p, XM_N_TUPLE);
    int is_tuple = 0;
    while (node) {
        if (node->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (tuple_end(p, stop))
            break;
        if (!xm_jadd(p, node, tuple_item(p, target, flag)))
            return NULL;
        if (p->token->type != XM_T_COMMA)
            break;
        is_tuple = 1;
    }
    if (!node)
        return NULL;
    if (!is_tuple && node->count)
        return node->list[0];
    if (!is_tuple && !parentheses)
        return xm_junexpected(p);
    return xm_jdone(p, node);
}

xm_jn *xm_jtuple(xm_jparser *p, int with_cond, const char *stop,
                 int parentheses)
{
    return tuple_of(p, 0, with_cond, stop, parentheses);
}

static xm_jn *list_literal(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_LIST);
    p->token++;
    while (node && p->token->type != XM_T_RBRACKET) {
        if (node->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (p->token->type == XM_T_RBRACKET)
            break;
        if (!xm_jadd(p, node, xm_jexpression(p, 1)))
            return NULL;
    }
    return node && xm_jexpect(p, XM_T_RBRACKET) ? xm_jdone(p, node) : NULL;
}

static xm_jn *dict_literal(xm_jparser *p)
{
    xm_jn *node = xm_jnode(p, XM_N_DICT);
    p->token++;
    while (node && p->token->type != XM_T_RBRACE) {
        if (node->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (p->token->type == XM_T_RBRACE)
            break;
        if (!xm_jadd(p, node, xm_jexpression(p, 1)) ||
            !xm_jexpect(p, XM_T_COLON) ||
            !xm_jadd(p, node, xm_jexpression(p, 1)))
            return NULL;
    }
    return node && xm_jexpect(p, XM_T_RBRACE) ? xm_jdone(p, node) : NULL;
}

static xm_jn *constant(xm_jparser *p, xm_jv value)
{
    xm_jn *node = xm_jnode(p, XM_N_CONST);
    if (!node)
        return NULL;
    node->value = value;
    p->token++;
    return xm_jdone(p, node);
}

/* Strings side by side are one. */
static xm_jn *string(xm_jparser *p)
{
    if (p->token[1].type != XM_T_STRING)
        return constant(p, p->token->value);
    xr_str text = { 0 };
    for (; p->token->type == XM_T_STRING; p->token++)
        xr_str_append(&text, p->token->value.u.str->text,
                      p->token->value.u.str->size);
    xm_jv value;
    if (xm_jtext(p->run, &text, &value))
        return NULL;
    p->token--;
    return constant(p, value);
}

static xm_jn *name(xm_jparser *p, int with_namespace)
{
    const xm_jtoken *token = p->token;
    if (xm_jis_name(token, "true") || xm_jis_name(token, "True"))
        return constant(p, xm_jbool(1));
    if (xm_jis_name(token, "false") || xm_jis_name(token, "False"))
        return constant(p, xm_jbool(0));
    if (xm_jis_name(token, "none") || xm_jis_name(token, "None"))
        return constant(p, xm_jnone());
    int dotted = with_namespace && token[1].type == XM_T_DOT;
    xm_jn *node = xm_jnode(p, dotted ? XM_N_NSREF : XM_N_NAME);
    if (!node || xm_jname_id(p, token->text, token->size, &node->id))
        return NULL;
    uint8_t special = xm_jis_name(token, "caller")    ? XM_J_CALLER
                      : xm_jis_name(token, "kwargs")  ? XM_J_KWARGS
                      : xm_jis_name(token, "varargs") ? XM_J_VARARGS
                                                      : 0;
    for (struct xm_jspecial *m = p->macro; m && special; m = m->up)
        m->flags |= special;
    p->token++;
    if (!dotted)
        return xm_jdone(p, node);
    p->token++;
    if (p->token->type != XM_T_NAME)
        return xm_junexpected(p);
    if (xm_jborrow(p->run, p->token->text, p->token->size,
                   xm_jchars(p->token->text, p->token->size), &node->value))
        return NULL;
    p->token++;
    return xm_jdone(p, node);
}

xm_jn *xm_jprimary(xm_jparser *p, int with_namespace)
{
    switch (p->token->type) {
    case XM_T_NAME:
        return name(p, with_namespace);
    case XM_T_STRING:
        return string(p);
    case XM_T_INT:
    case XM_T_FLOAT:
        return constant(p, p->token->value);
    case XM_T_LPAREN: {
        p->token++;
        xm_jn *node = xm_jtuple(p, 1, NULL, 1);
        return node && xm_jexpect(p, XM_T_RPAREN) ? node : NULL;
    }
    case XM_T_LBRACKET:
        return list_literal(p);
    case XM_T_LBRACE:
        return dict_literal(p);
    default:
        return xm_junexpected(p);
    }
}

static int add_named(xm_jparser *p, xm_jn *call, xm_jn *keyword)
{
    if (!keyword)
        return 0;
    /* Grown through a scratch node: both lists are alike. */
    xm_jn scratch = { .list = call->named, .count = call->named_count };
    if (!xm_jadd(p, &scratch, keyword))
        return 0;
    call->named = scratch.list;
    call->named_count = scratch.count;
    return 1;
}

static int call_arg(xm_jparser *p, xm_jn *call)
{
    if (p->token->type == XM_T_MUL && !call->star && !call->stars) {
        p->token++;
        return (call->star = xm_jexpression(p, 1)) != NULL;
    }
    if (p->token->type == XM_T_POW && !call->stars) {
        p->token++;
        return (call->stars = xm_jexpression(p, 1)) != NULL;
    }
    if (p->token->type == XM_T_NAME && p->token[1].type == XM_T_ASSIGN &&
        !call->stars) {
        xm_jn *keyword = xm_jnode(p, XM_N_KEYWORD);
        if (!keyword || xm_jborrow(p->run, p->token->text, p->token->size,
                                   xm_jchars(p->token->text, p->token->size),
                                   &keyword->value))
            return 0;
        p->token += 2;
        keyword->a = xm_jexpression(p, 1);
        return keyword->a && add_named(p, call, xm_jdone(p, keyword));
    }
    if (call->star || call->stars || call->named_count) {
        (void)xm_jsyntax(p, "invalid syntax for a function call");
        return 0;
    }
    return xm_jadd(p, call, xm_jexpression(p, 1));
}

/* The arguments in parentheses, into `call`. */
int xm_jcall_args(xm_jparser *p, xm_jn *call)
{
    int more = 0;
    p->token++;
    while (p->token->type != XM_T_RPAREN) {
        if (more && !xm_jexpect(p, XM_T_COMMA))
            return 0;
        if (more && p->token->type == XM_T_RPAREN)
            break;
        if (!call_arg(p, call))
            return 0;
        more = 1;
    }
    return xm_jexpect(p, XM_T_RPAREN);
}

xm_jn *xm_jcall_node(xm_jparser *p, xm_jn *callee)
{
    xm_jn *node = xm_jnode(p, XM_N_CALL);
    if (!node)
        return NULL;
    node->a = callee;
    return xm_jcall_args(p, node) ? xm_jdone(p, node) : NULL;
}

static int slice_part(xm_jparser *p, xm_jn **out)
{
    if (p->token->type == XM_T_COLON || p->token->type == XM_T_RBRACKET ||
        p->token->type == XM_T_COMMA)
        return 1;
    *out = xm_jexpression(p, 1);
    return *out != NULL;
}

static xm_jn *subscribed(xm_jparser *p)
{
    xm_jn *first = NULL;
    if (p->token->type != XM_T_COLON) {
        first = xm_jexpression(p, 1);
        if (!first || p->token->type != XM_T_COLON)
            return first;
    }
    xm_jn *node = xm_jnode(p, XM_N_SLICE);
    if (!node)
        return NULL;
    node->a = first;
    p->token++;
    if (!slice_part(p, &node->b))
        return NULL;
    if (xm_jskip(p, XM_T_COLON) && !slice_part(p, &node->c))
        return NULL;
    return xm_jdone(p, node);
}

static xm_jn *subscript(xm_jparser *p, xm_jn *object)
{
    xm_jn *node = xm_jnode(p, XM_N_ITEM);
    xm_jn *keys = xm_jnode(p, XM_N_TUPLE);
    if (!node || !keys)
        return NULL;
    node->a = object;
    p->token++;
    while (p->token->type != XM_T_RBRACKET) {
        if (keys->count && !xm_jexpect(p, XM_T_COMMA))
            return NULL;
        if (!xm_jadd(p, keys, subscribed(p)))
            return NULL;
    }
    p->token++;
    for (size_t i = 0; keys->count > 1 && i < keys->count; i++)
        if (keys->list[i]->type == XM_N_SLICE) {
            (void)xm_jsyntax(p, "a slice among several indices");
            return NULL;
        }
    node->b = keys->count == 1 ? keys->list[0] : xm_jdone(p, keys);
    return node->b ? xm_jdone(p, node) : NULL;
}

static xm_jn *dot(xm_jparser *p, xm_jn *object)
{
    const xm_jtoken *token = ++p->token;
    if (token->type == XM_T_INT) {
        xm_jn *node = xm_jnode(p, XM_N_ITEM);
        if (!node)
            return NULL;
        node->a = object;
        node->b = constant(p, token->value);
        return node->b ? xm_jdone(p, node) : NULL;
    }
    if (token->type != XM_T_NAME)
        return xm_junexpected(p);
    xm_jn *node = xm_jnode(p, XM_N_ATTR);
    if (!node || xm_jborrow(p->run, token->text, token->size,
                            xm_jchars(token->text, token->size), &node->value))
        return NULL;
    node->a = object;
    p->token++;
    return xm_jdone(p, node);
}

xm_jn *xm_jpostfix(xm_jparser *p, xm_jn *node)
{
    while (node) {
        if (p->token->type == XM_T_DOT)
            node = dot(p, node);
        else if (p->token->type == XM_T_LBRACKET)
            node = subscript(p, node);
        else if (p->token->type == XM_T_LPAREN)
            node = xm_jcall_node(p, node);
        else
            break;
    }
    return node;
}

xm_jn *xm_jname_target(xm_jparser *p)
{
    if (p->token->type != XM_T_NAME)
        return xm_junexpected(p);
    return name(p, 0);
}

static int assignable(xm_jparser *p, const xm_jn *node)
{
    if (node->type == XM_N_TUPLE) {
        for (size_t i = 0; i < node->count; i++)
            if (!assignable(p, node->list[i]))
                return 0;
        return 1;
    }
    if (node->type == XM_N_NAME && p->fors &&
        !strcmp(p->tmpl->names[node->id]->text, "loop")) {
        (void)xm_jsyntax(p, "the variable 'loop' of a for cannot be set");
        return 0;
    }
    if (node->type == XM_N_NAME || node->type == XM_N_NSREF)
        return 1;
    (void)xm_jsyntax(p, "this cannot be assigned to");
    return 0;
}

xm_jn *xm_jtarget(xm_jparser *p, int with_namespace, const char *stop)
{
    xm_jn *node = tuple_of(p, 1, with_namespace, stop, 0);
    return node && assignable(p, node) ? node : NULL;
}
