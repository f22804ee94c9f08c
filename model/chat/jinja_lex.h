/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the tokens of a template, and the functions that the files of the
 * parser share.
 */
#ifndef XM_JINJA_LEX_H
#define XM_JINJA_LEX_H

#include "model/chat/jinja.h"

enum xm_jtoken_type {
    XM_T_EOF,
    XM_T_DATA,
    XM_T_BLOCK_BEGIN,
    XM_T_BLOCK_END,
    XM_T_VAR_BEGIN,
    XM_T_VAR_END,
    XM_T_NAME,
    XM_T_STRING,
    XM_T_INT,
    XM_T_FLOAT,
    XM_T_ADD,
    XM_T_SUB,
    XM_T_MUL,
    XM_T_DIV,
    XM_T_FLOORDIV,
    XM_T_MOD,
    XM_T_POW,
    XM_T_TILDE,
    XM_T_LBRACKET,
    XM_T_RBRACKET,
    XM_T_LPAREN,
    XM_T_RPAREN,
    XM_T_LBRACE,
    XM_T_RBRACE,
    XM_T_EQ,
    XM_T_NE,
    XM_T_GT,
    XM_T_GE,
    XM_T_LT,
    XM_T_LE,
    XM_T_ASSIGN,
    XM_T_DOT,
    XM_T_COLON,
    XM_T_PIPE,
    XM_T_COMMA,
    XM_T_SEMICOLON,
    XM_T_IN, /* operators written as names */
    XM_T_NOTIN
};

typedef struct xm_jtoken {
    enum xm_jtoken_type type;
    uint32_t line;
    const char *text;
    size_t size;
    xm_jvalue value; /* of literals and data */
} xm_jtoken;

typedef struct xm_jtokens {
    xm_jtoken *at;
    size_t count;
    size_t cap;
} xm_jtokens;

/* Reads all tokens of a template; the last one is XM_T_EOF. */
int xm_jtokenize(xm_jinterp *interp, const char *source, size_t size,
                 xm_jtokens *out);

/* The state of the parser. */
typedef struct xm_jparser {
    xm_jtemplate *tmpl;
    xm_jinterp *interp;
    xm_jtoken *token; /* the current one */
    uint32_t depth;   /* of nested expressions and blocks */
    uint32_t loops;   /* enclosing for loops within the macro */
    uint32_t fors;    /* enclosing for loops, across macros */
    int soft; /* inside an if: unknown filters fail only when executed */
    struct xm_jspecial {
        struct xm_jspecial *up;
        uint8_t flags; /* XM_J_CALLER, ... */
    } * macro;         /* the innermost macro */
} xm_jparser;

int xm_jfail_syntax(xm_jparser *p, const char *fmt, ...) XRAY_PRINTF(2, 3);
xm_jnode *xm_jnode_new(xm_jparser *p, enum xm_jnode_type type);
/* Sets the depth from the children; NULL if the tree is too deep. */
xm_jnode *xm_jnode_done(xm_jparser *p, xm_jnode *node);
int xm_jis_name(const xm_jtoken *token, const char *name);
int xm_jskip_token(xm_jparser *p, enum xm_jtoken_type type);
int xm_jskip_name(xm_jparser *p, const char *name);
int xm_jexpect_token(xm_jparser *p, enum xm_jtoken_type type);
int xm_jnode_add(xm_jparser *p, xm_jnode *node, xm_jnode *child);
int xm_jintern_name(xm_jparser *p, const char *text, size_t size,
                    uint32_t *out);

/* jinja_parse_primary.c and jinja_parse_expr.c. They return NULL, or 0, after a
 * message. */
xm_jnode *xm_jfail_unexpected(xm_jparser *p);
xm_jnode *xm_jparse_primary(xm_jparser *p, int with_namespace);
xm_jnode *xm_jparse_postfix(xm_jparser *p, xm_jnode *node);
xm_jnode *xm_jparse_call(xm_jparser *p, xm_jnode *callee);
/* Parses arguments in parentheses and adds them to `call`. */
int xm_jparse_call_args(xm_jparser *p, xm_jnode *call);
xm_jnode *xm_jparse_expression(xm_jparser *p, int with_cond);
xm_jnode *xm_jparse_tuple(xm_jparser *p, int with_cond, const char *stop,
                          int parentheses);
xm_jnode *xm_jparse_target(xm_jparser *p, int with_namespace, const char *stop);
xm_jnode *xm_jparse_name_target(xm_jparser *p);
/* Parses filters after `node`, which may be NULL. `inline_first`: the first one
 * has no bar. */
xm_jnode *xm_jparse_filters(xm_jparser *p, xm_jnode *node, int inline_first);

#endif
