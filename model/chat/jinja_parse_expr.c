/* SPDX-License-Identifier: Apache-2.0
 *
 * Parses the expressions of a template. The grammar is Python's, extended by
 * filters, tests and "~".
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

/* Parses the name of a filter or test and looks it up. An unknown one is an
 * error, unless an enclosing if may keep it from being executed. */
static int parse_function_name(xm_jparser *p, xm_jnode *node, int test)
{
    const xm_jtoken *token = p->token;
    if (token->type != XM_T_NAME) {
        (void)xm_jfail_unexpected(p);
        return 0;
    }
    int id = test ? xm_jfind_test(token->text, token->size)
                  : xm_jfind_filter(token->text, token->size);
    int dotted = token[1].type == XM_T_DOT;
    if ((id < 0 || dotted) && !p->soft) {
        (void)xm_jfail_syntax(
            p, "there is no %s named '%.*s'", test ? "test" : "filter",
            (int)(token->size < 60 ? token->size : 60), token->text);
        return 0;
    }
    p->token++;
    while (xm_jskip_token(p, XM_T_DOT)) {
        id = -1;
        if (!xm_jexpect_token(p, XM_T_NAME))
            return 0;
    }
    node->id = (uint32_t)id;
    return !xm_jstr_borrow(p->interp, token->text, token->size,
                           xm_jcount_chars(token->text, token->size),
                           &node->value);
}

xm_jnode *xm_jparse_filters(xm_jparser *p, xm_jnode *node, int inline_first)
{
    while (inline_first || p->token->type == XM_T_PIPE) {
        if (!inline_first)
            p->token++;
        inline_first = 0;
        xm_jnode *filter = xm_jnode_new(p, XM_N_FILTER);
        if (!filter || !parse_function_name(p, filter, 0))
            return NULL;
        filter->a = node;
        if (p->token->type == XM_T_LPAREN && !xm_jparse_call_args(p, filter))
            return NULL;
        node = xm_jnode_done(p, filter);
        if (!node)
            return NULL;
    }
    return node;
}

/* Whether a token starts an argument of a test without parentheses. */
static int starts_test_arg(const xm_jtoken *token)
{
    switch (token->type) {
    case XM_T_NAME:
        return !xm_jis_name(token, "else") && !xm_jis_name(token, "or") &&
               !xm_jis_name(token, "and");
    case XM_T_STRING:
    case XM_T_INT:
    case XM_T_FLOAT:
    case XM_T_LBRACKET:
    case XM_T_LBRACE:
        return 1;
    default:
        return 0;
    }
}

static xm_jnode *parse_test(xm_jparser *p, xm_jnode *value)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_TEST);
    p->token++;
    int negated = xm_jskip_name(p, "not");
    if (!node || !parse_function_name(p, node, 1))
        return NULL;
    node->a = value;
    if (p->token->type == XM_T_LPAREN) {
        if (!xm_jparse_call_args(p, node))
            return NULL;
    } else if (starts_test_arg(p->token)) {
        if (xm_jis_name(p->token, "is")) {
            (void)xm_jfail_syntax(p, "tests cannot be chained with 'is'");
            return NULL;
        }
        if (!xm_jnode_add(p, node,
                          xm_jparse_postfix(p, xm_jparse_primary(p, 0))))
            return NULL;
    }
    node = xm_jnode_done(p, node);
    if (!negated || !node)
        return node;
    xm_jnode *not = xm_jnode_new(p, XM_N_NOT);
    if (!not )
        return NULL;
    not ->a = node;
    return xm_jnode_done(p, not );
}

static xm_jnode *parse_filters_and_tests(xm_jparser *p, xm_jnode *node)
{
    while (node) {
        if (p->token->type == XM_T_PIPE)
            node = xm_jparse_filters(p, node, 0);
        else if (xm_jis_name(p->token, "is"))
            node = parse_test(p, node);
        else if (p->token->type == XM_T_LPAREN)
            node = xm_jparse_call(p, node);
        else
            break;
    }
    return node;
}

static xm_jnode *parse_unary(xm_jparser *p, int with_filter)
{
    xm_jnode *node;
    if (p->token->type == XM_T_SUB || p->token->type == XM_T_ADD) {
        if (++p->depth > XM_CHAT_MAX_NESTING) {
            (void)xm_jfail_syntax(p, "an expression is nested too deeply");
            return NULL;
        }
        node =
            xm_jnode_new(p, p->token->type == XM_T_SUB ? XM_N_NEG : XM_N_POS);
        p->token++;
        if (!node || !(node->a = parse_unary(p, 0)))
            return NULL;
        p->depth--;
        node = xm_jnode_done(p, node);
    } else {
        node = xm_jparse_primary(p, 0);
    }
    node = xm_jparse_postfix(p, node);
    return with_filter ? parse_filters_and_tests(p, node) : node;
}

/* Returns the binding strength of a binary operator; 0: not one. */
static int get_operator_level(enum xm_jtoken_type type)
{
    switch (type) {
    case XM_T_ADD:
    case XM_T_SUB:
        return 1;
    case XM_T_TILDE:
        return 2;
    case XM_T_MUL:
    case XM_T_DIV:
    case XM_T_FLOORDIV:
    case XM_T_MOD:
        return 3;
    case XM_T_POW:
        return 4;
    default:
        return 0;
    }
}

static xm_jnode *parse_binary(xm_jparser *p, int level);

static xm_jnode *parse_concat(xm_jparser *p, xm_jnode *left)
{
    xm_jnode *node = xm_jnode_new(p, XM_N_CONCAT);
    if (!node || !xm_jnode_add(p, node, left))
        return NULL;
    while (xm_jskip_token(p, XM_T_TILDE))
        if (!xm_jnode_add(p, node, parse_binary(p, 3)))
            return NULL;
    return xm_jnode_done(p, node);
}

static xm_jnode *parse_binary(xm_jparser *p, int level)
{
    xm_jnode *left =
        level == 4 ? parse_unary(p, 1) : parse_binary(p, level + 1);
    while (left && get_operator_level(p->token->type) == level) {
        if (level == 2)
            return parse_concat(p, left);
        xm_jnode *node = xm_jnode_new(p, XM_N_BINARY);
        if (!node)
            return NULL;
        node->op = (uint8_t)p->token->type;
        p->token++;
        node->a = left;
        node->b = level == 4 ? parse_unary(p, 1) : parse_binary(p, level + 1);
        left = node->b ? xm_jnode_done(p, node) : NULL;
    }
    return left;
}

/* Consumes a comparison operator; XM_T_EOF: there is none. */
static enum xm_jtoken_type read_comparison(xm_jparser *p)
{
    enum xm_jtoken_type type = p->token->type;
    if (type >= XM_T_EQ && type <= XM_T_LE) {
        p->token++;
        return type;
    }
    if (xm_jskip_name(p, "in"))
        return XM_T_IN;
    if (!xm_jis_name(p->token, "not") || !xm_jis_name(p->token + 1, "in"))
        return XM_T_EOF;
    p->token += 2;
    return XM_T_NOTIN;
}

static xm_jnode *parse_compare(xm_jparser *p)
{
    xm_jnode *left = parse_binary(p, 1);
    xm_jnode *node = NULL;
    enum xm_jtoken_type type;
    while (left && (type = read_comparison(p)) != XM_T_EOF) {
        if (!node && !(node = xm_jnode_new(p, XM_N_COMPARE)))
            return NULL;
        node->a = left;
        xm_jnode *operand = xm_jnode_new(p, XM_N_OPERAND);
        if (!operand || !(operand->a = parse_binary(p, 1)))
            return NULL;
        operand->op = (uint8_t)type;
        if (!xm_jnode_add(p, node, xm_jnode_done(p, operand)))
            return NULL;
    }
    return node ? xm_jnode_done(p, node) : left;
}

static xm_jnode *parse_not(xm_jparser *p)
{
    uint32_t count = 0;
    while (xm_jskip_name(p, "not"))
        count++;
    xm_jnode *node = parse_compare(p);
    for (; node && count; count--) {
        xm_jnode *outer = xm_jnode_new(p, XM_N_NOT);
        if (!outer)
            return NULL;
        outer->a = node;
        node = xm_jnode_done(p, outer);
    }
    return node;
}

static xm_jnode *parse_logic(xm_jparser *p, int is_or)
{
    xm_jnode *left = is_or ? parse_logic(p, 0) : parse_not(p);
    while (left && xm_jskip_name(p, is_or ? "or" : "and")) {
        xm_jnode *node = xm_jnode_new(p, is_or ? XM_N_OR : XM_N_AND);
        if (!node)
            return NULL;
        node->a = left;
        node->b = is_or ? parse_logic(p, 0) : parse_not(p);
        left = node->b ? xm_jnode_done(p, node) : NULL;
    }
    return left;
}

static xm_jnode *parse_conditional(xm_jparser *p)
{
    int soft = p->soft;
    xm_jnode *value = parse_logic(p, 1);
    while (value && xm_jskip_name(p, "if")) {
        xm_jnode *node = xm_jnode_new(p, XM_N_COND);
        if (!node)
            return NULL;
        p->soft = 1;
        node->b = value;
        node->a = parse_logic(p, 1);
        if (node->a && xm_jskip_name(p, "else") &&
            !(node->c = xm_jparse_expression(p, 1)))
            return NULL;
        p->soft = soft;
        value = node->a ? xm_jnode_done(p, node) : NULL;
    }
    return value;
}

xm_jnode *xm_jparse_expression(xm_jparser *p, int with_cond)
{
    if (++p->depth > XM_CHAT_MAX_NESTING) {
        (void)xm_jfail_syntax(p, "an expression is nested too deeply");
        return NULL;
    }
    xm_jnode *node = with_cond ? parse_conditional(p) : parse_logic(p, 1);
    p->depth--;
    return node;
}
