/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the names, literals, calls and subscripts of a template.
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

static const char *describe_token(const xm_jtoken *token)
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

xm_jnode *xm_jfail_unexpected(xm_jparser *p)
{
    const char *text = describe_token(p->token);
    if (text)
        (void)xm_jfail_syntax(p, "unexpected %s", text);
    else
        (void)xm_jfail_syntax(p, "unexpected '%.*s'",
                              (int)(p->token->size < 60 ? p->token->size : 60),
                              p->token->text);
    return NULL;
}

static int is_tuple_end(const xm_jparser *p, const char *stop)
{
    return p->token->type == XM_T_VAR_END || p->token->type == XM_T_BLOCK_END ||
           p->token->type == XM_T_RPAREN ||
           (stop && xm_jis_name(p->token, stop));
}

static xm_jnode *parse_tuple_item(xm_jparser *p, int target, int flag)
{
    return target ? xm_jparse_primary(p, flag) : xm_jparse_expression(p, flag);
}

/* Parses a tuple, or a single item. With `target`, items are names and literals
 * and `flag` allows namespace attributes; without, `flag` allows inline ifs. */
static xm_jnode *parse_tuple_items(xm_jparser *p, int target, int flag,
                                   const char *stop, int parentheses)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_TUPLE);
    int is_tuple = 0;
    while (node) {
        if (node->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (is_tuple_end(p, stop))
            break;
        if (!xm_jnode_add(p, node, parse_tuple_item(p, target, flag)))
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
        return xm_jfail_unexpected(p);
    return xm_jnode_done(p, node);
}

xm_jnode *xm_jparse_tuple(xm_jparser *p, int with_cond, const char *stop,
                          int parentheses)
{
    return parse_tuple_items(p, 0, with_cond, stop, parentheses);
}

static xm_jnode *parse_list(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_LIST);
    p->token++;
    while (node && p->token->type != XM_T_RBRACKET) {
        if (node->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (p->token->type == XM_T_RBRACKET)
            break;
        if (!xm_jnode_add(p, node, xm_jparse_expression(p, 1)))
            return NULL;
    }
    return node && xm_jexpect_token(p, XM_T_RBRACKET) ? xm_jnode_done(p, node)
                                                      : NULL;
}

static xm_jnode *parse_dict(xm_jparser *p)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_DICT);
    p->token++;
    while (node && p->token->type != XM_T_RBRACE) {
        if (node->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (p->token->type == XM_T_RBRACE)
            break;
        if (!xm_jnode_add(p, node, xm_jparse_expression(p, 1)) ||
            !xm_jexpect_token(p, XM_T_COLON) ||
            !xm_jnode_add(p, node, xm_jparse_expression(p, 1)))
            return NULL;
    }
    return node && xm_jexpect_token(p, XM_T_RBRACE) ? xm_jnode_done(p, node)
                                                    : NULL;
}

static xm_jnode *make_constant(xm_jparser *p, xm_jvalue value)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_CONST);
    if (!node)
        return NULL;
    node->value = value;
    p->token++;
    return xm_jnode_done(p, node);
}

/* Adjacent strings become one. */
static xm_jnode *parse_string(xm_jparser *p)
{
    if (p->token[1].type != XM_T_STRING)
        return make_constant(p, p->token->value);
    xr_str text = { 0 };
    for (; p->token->type == XM_T_STRING; p->token++)
        xr_str_append(&text, p->token->value.u.str->text,
                      p->token->value.u.str->size);
    xm_jvalue value;
    if (xm_jstr_take(p->interp, &text, &value))
        return NULL;
    p->token--;
    return make_constant(p, value);
}

static xm_jnode *parse_name(xm_jparser *p, int with_namespace)
{
    const xm_jtoken *token = p->token;
    if (xm_jis_name(token, "true") || xm_jis_name(token, "True"))
        return make_constant(p, xm_jbool(1));
    if (xm_jis_name(token, "false") || xm_jis_name(token, "False"))
        return make_constant(p, xm_jbool(0));
    if (xm_jis_name(token, "none") || xm_jis_name(token, "None"))
        return make_constant(p, xm_jnone());
    int dotted = with_namespace && token[1].type == XM_T_DOT;
    xm_jnode *node = xm_jnode_new(p, dotted ? XM_N_NSREF : XM_N_NAME);
    if (!node || xm_jintern_name(p, token->text, token->size, &node->id))
        return NULL;
    uint8_t special = xm_jis_name(token, "caller")    ? XM_J_CALLER
                      : xm_jis_name(token, "kwargs")  ? XM_J_KWARGS
                      : xm_jis_name(token, "varargs") ? XM_J_VARARGS
                                                      : 0;
    for (struct xm_jspecial *m = p->macro; m && special; m = m->up)
        m->flags |= special;
    p->token++;
    if (!dotted)
        return xm_jnode_done(p, node);
    p->token++;
    if (p->token->type != XM_T_NAME)
        return xm_jfail_unexpected(p);
    if (xm_jstr_borrow(p->interp, p->token->text, p->token->size,
                       xm_jcount_chars(p->token->text, p->token->size),
                       &node->value))
        return NULL;
    p->token++;
    return xm_jnode_done(p, node);
}

xm_jnode *xm_jparse_primary(xm_jparser *p, int with_namespace)
{
    switch (p->token->type) {
    case XM_T_NAME:
        return parse_name(p, with_namespace);
    case XM_T_STRING:
        return parse_string(p);
    case XM_T_INT:
    case XM_T_FLOAT:
        return make_constant(p, p->token->value);
    case XM_T_LPAREN: {
        p->token++;
        xm_jnode *node = xm_jparse_tuple(p, 1, NULL, 1);
        return node && xm_jexpect_token(p, XM_T_RPAREN) ? node : NULL;
    }
    case XM_T_LBRACKET:
        return parse_list(p);
    case XM_T_LBRACE:
        return parse_dict(p);
    default:
        return xm_jfail_unexpected(p);
    }
}

static int add_keyword_arg(xm_jparser *p, xm_jnode *call, xm_jnode *keyword)
{
    if (!keyword)
        return 0;
    /* A temporary node grows the list, as xm_jnode_add grows `list`. */
    xm_jnode scratch = { .list = call->named, .count = call->named_count };
    if (!xm_jnode_add(p, &scratch, keyword))
        return 0;
    call->named = scratch.list;
    call->named_count = scratch.count;
    return 1;
}

static int parse_call_arg(xm_jparser *p, xm_jnode *call)
{
    if (p->token->type == XM_T_MUL && !call->star && !call->stars) {
        p->token++;
        return (call->star = xm_jparse_expression(p, 1)) != NULL;
    }
    if (p->token->type == XM_T_POW && !call->stars) {
        p->token++;
        return (call->stars = xm_jparse_expression(p, 1)) != NULL;
    }
    if (p->token->type == XM_T_NAME && p->token[1].type == XM_T_ASSIGN &&
        !call->stars) {
        xm_jnode *keyword = xm_jnode_new(p, XM_N_KEYWORD);
        if (!keyword ||
            xm_jstr_borrow(p->interp, p->token->text, p->token->size,
                           xm_jcount_chars(p->token->text, p->token->size),
                           &keyword->value))
            return 0;
        p->token += 2;
        keyword->a = xm_jparse_expression(p, 1);
        return keyword->a &&
               add_keyword_arg(p, call, xm_jnode_done(p, keyword));
    }
    if (call->star || call->stars || call->named_count) {
        (void)xm_jfail_syntax(p, "invalid syntax for a function call");
        return 0;
    }
    return xm_jnode_add(p, call, xm_jparse_expression(p, 1));
}

int xm_jparse_call_args(xm_jparser *p, xm_jnode *call)
{
    int more = 0;
    p->token++;
    while (p->token->type != XM_T_RPAREN) {
        if (more && !xm_jexpect_token(p, XM_T_COMMA))
            return 0;
        if (more && p->token->type == XM_T_RPAREN)
            break;
        if (!parse_call_arg(p, call))
            return 0;
        more = 1;
    }
    return xm_jexpect_token(p, XM_T_RPAREN);
}

xm_jnode *xm_jparse_call(xm_jparser *p, xm_jnode *callee)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_CALL);
    if (!node)
        return NULL;
    node->a = callee;
    return xm_jparse_call_args(p, node) ? xm_jnode_done(p, node) : NULL;
}

static int parse_slice_part(xm_jparser *p, xm_jnode **out)
{
    if (p->token->type == XM_T_COLON || p->token->type == XM_T_RBRACKET ||
        p->token->type == XM_T_COMMA)
        return 1;
    *out = xm_jparse_expression(p, 1);
    return *out != NULL;
}

static xm_jnode *parse_subscript_key(xm_jparser *p)
{
    xm_jnode *first = NULL;
    if (p->token->type != XM_T_COLON) {
        first = xm_jparse_expression(p, 1);
        if (!first || p->token->type != XM_T_COLON)
            return first;
    }
    xm_jnode *node = xm_jnode_new(p, XM_N_SLICE);
    if (!node)
        return NULL;
    node->a = first;
    p->token++;
    if (!parse_slice_part(p, &node->b))
        return NULL;
    if (xm_jskip_token(p, XM_T_COLON) && !parse_slice_part(p, &node->c))
        return NULL;
    return xm_jnode_done(p, node);
}

static xm_jnode *parse_subscript(xm_jparser *p, xm_jnode *object)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_ITEM);
    xm_jnode *keys = xm_jnode_new(p, XM_N_TUPLE);
    if (!node || !keys)
        return NULL;
    node->a = object;
    p->token++;
    while (p->token->type != XM_T_RBRACKET) {
        if (keys->count && !xm_jexpect_token(p, XM_T_COMMA))
            return NULL;
        if (!xm_jnode_add(p, keys, parse_subscript_key(p)))
            return NULL;
    }
    p->token++;
    for (size_t i = 0; keys->count > 1 && i < keys->count; i++)
        if (keys->list[i]->type == XM_N_SLICE) {
            (void)xm_jfail_syntax(p,
                                  "a slice cannot be one of several indices");
            return NULL;
        }
    node->b = keys->count == 1 ? keys->list[0] : xm_jnode_done(p, keys);
    return node->b ? xm_jnode_done(p, node) : NULL;
}

static xm_jnode *parse_dot(xm_jparser *p, xm_jnode *object)
{
    const xm_jtoken *token = ++p->token;
    if (token->type == XM_T_INT) {
        xm_jnode *node = xm_jnode_new(p, XM_N_ITEM);
        if (!node)
            return NULL;
        node->a = object;
        node->b = make_constant(p, token->value);
        return node->b ? xm_jnode_done(p, node) : NULL;
    }
    if (token->type != XM_T_NAME)
        return xm_jfail_unexpected(p);
    xm_jnode *node = xm_jnode_new(p, XM_N_ATTR);
    if (!node ||
        xm_jstr_borrow(p->interp, token->text, token->size,
                       xm_jcount_chars(token->text, token->size), &node->value))
        return NULL;
    node->a = object;
    p->token++;
    return xm_jnode_done(p, node);
}

xm_jnode *xm_jparse_postfix(xm_jparser *p, xm_jnode *node)
{
    while (node) {
        if (p->token->type == XM_T_DOT)
            node = parse_dot(p, node);
        else if (p->token->type == XM_T_LBRACKET)
            node = parse_subscript(p, node);
        else if (p->token->type == XM_T_LPAREN)
            node = xm_jparse_call(p, node);
        else
            break;
    }
    return node;
}

xm_jnode *xm_jparse_name_target(xm_jparser *p)
{
    if (p->token->type != XM_T_NAME)
        return xm_jfail_unexpected(p);
    return parse_name(p, 0);
}

static int check_assignable(xm_jparser *p, const xm_jnode *node)
{
    if (node->type == XM_N_TUPLE) {
        for (size_t i = 0; i < node->count; i++)
            if (!check_assignable(p, node->list[i]))
                return 0;
        return 1;
    }
    if (node->type == XM_N_NAME && p->fors &&
        !strcmp(p->tmpl->names[node->id]->text, "loop")) {
        (void)xm_jfail_syntax(p, "the variable 'loop' of a for cannot be set");
        return 0;
    }
    if (node->type == XM_N_NAME || node->type == XM_N_NSREF)
        return 1;
    (void)xm_jfail_syntax(p, "this cannot be assigned to");
    return 0;
}

xm_jnode *xm_jparse_target(xm_jparser *p, int with_namespace, const char *stop)
{
    xm_jnode *node = parse_tuple_items(p, 1, with_namespace, stop, 0);
    return node && check_assignable(p, node) ? node : NULL;
}
