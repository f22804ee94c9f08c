/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokens of a template and the state of its parser.
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
    XM_T_IN, /* operators that are names */
    XM_T_NOTIN
};

typedef struct xm_jtoken {
    enum xm_jtoken_type type;
    uint32_t line;
    const char *text;
    size_t size;
    xm_jv value; /* of literals and data */
} xm_jtoken;

typedef struct xm_jtokens {
    xm_jtoken *at;
    size_t count;
    size_t cap;
} xm_jtokens;

/* All tokens of the template, ended with XM_T_EOF. */
int xm_jlex(xm_jrun *run, const char *source, size_t size, xm_jtokens *out);

/* What the parser knows while it reads. */
typedef struct xm_jparser {
    xm_jtemplate *tmpl;
    xm_jrun *run;
    xm_jtoken *token; /* the current one */
    uint32_t depth;   /* of what is being read */
    uint32_t loops;   /* for loops around, within the macro */
    uint32_t fors;    /* for loops around, macros or not */
    int soft;         /* within an if: unknown filters fail when executed */
    struct xm_jspecial {
        struct xm_jspecial *up;
        uint8_t flags; /* XM_J_CALLER, ... */
    } * macro;         /* the innermost macro being read */
} xm_jparser;

int xm_jsyntax(xm_jparser *p, const char *fmt, ...) XRAY_PRINTF(2, 3);
xm_jn *xm_jnode(xm_jparser *p, enum xm_jtype type);
/* Sets depth from the children; NULL when the tree is too deep. */
xm_jn *xm_jdone(xm_jparser *p, xm_jn *node);
int xm_jis_name(const xm_jtoken *token, const char *name);
int xm_jskip(xm_jparser *p, enum xm_jtoken_type type);
int xm_jskip_name(xm_jparser *p, const char *name);
int xm_jexpect(xm_jparser *p, enum xm_jtoken_type type);
int xm_jadd(xm_jparser *p, xm_jn *node, xm_jn *child);
int xm_jname_id(xm_jparser *p, const char *text, size_t size, uint32_t *out);

/* jinja_atom.c and jinja_expr.c; NULL (0) after a message. */
xm_jn *xm_junexpected(xm_jparser *p);
xm_jn *xm_jprimary(xm_jparser *p, int with_namespace);
xm_jn *xm_jpostfix(xm_jparser *p, xm_jn *node);
xm_jn *xm_jcall_node(xm_jparser *p, xm_jn *callee);
/* The arguments in parentheses, into `call`. */
int xm_jcall_args(xm_jparser *p, xm_jn *call);
xm_jn *xm_jexpression(xm_jparser *p, int with_cond);
xm_jn *xm_jtuple(xm_jparser *p, int with_cond, const char *stop,
                 int parentheses);
xm_jn *xm_jtarget(xm_jparser *p, int with_namespace, const char *stop);
xm_jn *xm_jname_target(xm_jparser *p);
/* Filters behind `node`, which may be NULL; `inline_first`: the first one
 * comes without its bar. */
xm_jn *xm_jfilter_chain(xm_jparser *p, xm_jn *node, int inline_first);

#endif
