/* SPDX-License-Identifier: Apache-2.0
 *
 * Expressions of a template: the grammar of Jinja, which is Python's but for
 * filters, tests and "~".
 */
#include <string.h>

#include "model/chat/jinja_lex.h"

/* The name of a filter or test: its index, or an error unless an if around
 * may keep it from being executed. */
static int function_name(xm_jparser *p, xm_jn *node, int test)
{
    const xm_jtoken *token = p->token;
    if (token->type != XM_T_NAME) {
        (void)xm_junexpected(p);
        return 0;
    }
    int id = test ? xm_jtest_find(token->text, token->size)
                  : xm_jfilter_find(token->text, token->size);
    int dotted = token[1].type == XM_T_DOT;
    if ((id < 0 || dotted) && !p->soft) {
        (void)xm_jsyntax(
            p, "there is no %s named '%.*s'", test ? "test" : "filter",
            (int)(token->size < 60 ? token->size : 60), token->text);
        return 0;
    }
    p->token++;
    while (xm_jskip(p, XM_T_DOT)) {
        id = -1;
        if (!xm_jexpect(p, XM_T_NAME))
            return 0;
    }
    node->id = (uint32_t)id;
    return !xm_jborrow(p->run, token->text, token->size,
                       xm_jchars(token->text, token->size), &node->value);
}

xm_jn *xm_jfilter_chain(xm_jparser *p, xm_jn *node, int inline_first)
{
    while (inline_first || p->token->type == XM_T_PIPE) {
        if (!inline_first)
            p->token++;
        inline_first = 0;
        xm_jn *filter = xm_jnode(p, XM_N_FILTER);
        if (!filter || !function_name(p, filter, 0))
            return NULL;
        filter->a = node;
        if (p->token->type == XM_T_LPAREN && !xm_jcall_args(p, filter))
            return NULL;
        node = xm_jdone(p, filter);
        if (!node)
            return NULL;
    }
    return node;
}

/* What a test takes without parentheses starts with one of these. */
static int test_arg_begins(const xm_jtoken *token)
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

static xm_jn *test(xm_jparser *p, xm_jn *value)
{
    xm_jn *node = xm_jnode(p, XM_N_TEST);
    p->token++;
    int negated = xm_jskip_name(p, "not");
    if (!node || !function_name(p, node, 1))
        return NULL;
    node->a = value;
    if (p->token->type == XM_T_LPAREN) {
        if (!xm_jcall_args(p, node))
            return NULL;
    } else if (test_arg_begins(p->token)) {
        if (xm_jis_name(p->token, "is")) {
            (void)xm_jsyntax(p, "tests cannot be chained with 'is'");
            return NULL;
        }
        if (!xm_jadd(p, node, xm_jpostfix(p, xm_jprimary(p, 0))))
            return NULL;
    }
    node = xm_jdone(p, node);
    if (!negated || !node)
        return node;
    xm_jn *not = xm_jnode(p, XM_N_NOT);
    if (!not )
        return NULL;
    not ->a = node;
    return xm_jdone(p, not );
}

static xm_jn *filters_and_tests(xm_jparser *p, xm_jn *node)
{
    while (node) {
        if (p->token->type == XM_T_PIPE)
            node = xm_jfilter_chain(p, node, 0);
        else if (xm_jis_name(p->token, "is"))
            node = test(p, node);
        else if (p->token->type == XM_T_LPAREN)
            node = xm_jcall_node(p, node);
        else
            break;
    }
    return node;
}

static xm_jn *unary(xm_jparser *p, int with_filter)
{
    xm_jn *node;
    if (p->token->type == XM_T_SUB || p->token->type == XM_T_ADD) {
        if (++p->depth > XM_CHAT_MAX_NESTING) {
            (void)xm_jsyntax(p, "an expression nests too deep");
            return NULL;
        }
        node = xm_jnode(p, p->token->type == XM_T_SUB ? XM_N_NEG : XM_N_POS);
        p->token++;
        if (!node || !(node->a = unary(p, 0)))
            return NULL;
        p->depth--;
        node = xm_jdone(p, node);
    } else {
        node = xm_jprimary(p, 0);
    }
    node = xm_jpostfix(p, node);
    return with_filter ? filters_and_tests(p, node) : node;
}

/* Binary operators that are tokens, by how tightly they bind. */
static int level_of(enum xm_jtoken_type type)
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

static xm_jn *binary(xm_jparser *p, int level);

static xm_jn *concat(xm_jparser *p, xm_jn *left)
{
    xm_jn *node = xm_jnode(p, XM_N_CONCAT);
    if (!node || !xm_jadd(p, node, left))
        return NULL;
    while (xm_jskip(p, XM_T_TILDE))
        if (!xm_jadd(p, node, binary(p, 3)))
            return NULL;
    return xm_jdone(p, node);
}

static xm_jn *binary(xm_jparser *p, int level)
{
    xm_jn *left = level == 4 ? unary(p, 1) : binary(p, level + 1);
    while (left && level_of(p->token->type) == level) {
        if (level == 2)
            return concat(p, left);
        xm_jn *node = xm_jnode(p, XM_N_BINARY);
        if (!node)
            return NULL;
        node->op = (uint8_t)p->token->type;
        p->token++;
        node->a = left;
        node->b = level == 4 ? unary(p, 1) : binary(p, level + 1);
        left = node->b ? xm_jdone(p, node) : NULL;
    }
    return left;
}

/* The comparison at the current token, or EOF. */
static enum xm_jtoken_type comparison(xm_jparser *p)
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

static xm_jn *compare(xm_jparser *p)
{
    xm_jn *left = binary(p, 1);
    xm_jn *node = NULL;
    enum xm_jtoken_type type;
    while (left && (type = comparison(p)) != XM_T_EOF) {
        if (!node && !(node = xm_jnode(p, XM_N_COMPARE)))
            return NULL;
        node->a = left;
        xm_jn *operand = xm_jnode(p, XM_N_OPERAND);
        if (!operand || !(operand->a = binary(p, 1)))
            return NULL;
        operand->op = (uint8_t)type;
        if (!xm_jadd(p, node, xm_jdone(p, operand)))
            return NULL;
    }
    return node ? xm_jdone(p, node) : left;
}

static xm_jn *not_(xm_jparser *p)
{
    uint32_t count = 0;
    while (xm_jskip_name(p, "not"))
        count++;
    xm_jn *node = compare(p);
    for (; node && count; count--) {
        xm_jn *outer = xm_jnode(p, XM_N_NOT);
        if (!outer)
            return NULL;
        outer->a = node;
        node = xm_jdone(p, outer);
    }
    return node;
}

static xm_jn *logic(xm_jparser *p, int is_or)
{
    xm_jn *left = is_or ? logic(p, 0) : not_(p);
    while (left && xm_jskip_name(p, is_or ? "or" : "and")) {
        xm_jn *node = xm_jnode(p, is_or ? XM_N_OR : XM_N_AND);
        if (!node)
            return NULL;
        node->a = left;
        node->b = is_or ? logic(p, 0) : not_(p);
        left = node->b ? xm_jdone(p, node) : NULL;
    }
    return left;
}

static xm_jn *conditional(xm_jparser *p)
{
    int soft = p->soft;
    xm_jn *value = logic(p, 1);
    while (value && xm_jskip_name(p, "if")) {
        xm_jn *node = xm_jnode(p, XM_N_COND);
        if (!node)
            return NULL;
        p->soft = 1;
        node->b = value;
        node->a = logic(p, 1);
        if (node->a && xm_jskip_name(p, "else") &&
            !(node->c = xm_jexpression(p, 1)))
            return NULL;
        p->soft = soft;
        value = node->a ? xm_jdone(p, node) : NULL;
    }
    return value;
}

xm_jn *xm_jexpression(xm_jparser *p, int with_cond)
{
    if (++p->depth > XM_CHAT_MAX_NESTING) {
        (void)xm_jsyntax(p, "an expression nests too deep");
        return NULL;
    }
    xm_jn *node = with_cond ? conditional(p) : logic(p, 1);
    p->depth--;
    return node;
}
