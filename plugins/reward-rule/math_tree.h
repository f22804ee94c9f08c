/* SPDX-License-Identifier: Apache-2.0
 *
 * Math answers as trees: cleaning the text, parsing it, values of expressions.
 * Everything is bounded: text (RULE_BUFFER_BYTES), nodes, depth, names, steps.
 */
#ifndef RULE_MATH_TREE_H
#define RULE_MATH_TREE_H

#include <complex.h>
#include <stdint.h>

#include "plugins/reward-rule/math_buffer.h"
#include "plugins/reward-rule/math_ratio.h"

#define RULE_NODES 1536u
#define RULE_DEPTH 48
#define RULE_NAMES 64u
#define RULE_ENTRIES 64u    /* of a matrix; elements of a list */
#define RULE_STEPS 1000000u /* node visits of one comparison */
#define RULE_INFINITY 1e300 /* the value of \infty */

enum rule_kind {
    RULE_NONE,
    RULE_NUMBER,   /* text: its digits */
    RULE_NAME,     /* name: a variable or word */
    RULE_CONSTANT, /* op: 'p' pi, 'e', 'i', 'o' infinity */
    RULE_ADD,
    RULE_MULTIPLY,
    RULE_DIVIDE,
    RULE_POWER,
    RULE_ROOT, /* radicand, degree */
    RULE_NEGATE,
    RULE_EITHER, /* +-x; op: '+', or '-' for -+ */
    RULE_CALL,   /* op: rule_function; one or two arguments */
    RULE_OPAQUE, /* name; a function of its arguments nothing is known of */
    RULE_PERCENT,
    RULE_DEGREE,
    RULE_LIST,  /* a, b and c; op 'a' if joined by "and" */
    RULE_TUPLE, /* op, close: its brackets ( [ < */
    RULE_SET,
    RULE_MATRIX, /* rows x (count / rows) */
    RULE_UNION,
    RULE_INTERSECTION,
    RULE_WITHOUT,
    RULE_RATIO, /* a:b:c */
    RULE_CHAIN  /* a < b <= c; the op of a child stands before it */
};

enum rule_function {
    RULE_SIN,
    RULE_COS,
    RULE_TAN,
    RULE_COT,
    RULE_SEC,
    RULE_CSC,
    RULE_ARCSIN,
    RULE_ARCCOS,
    RULE_ARCTAN,
    RULE_SINH,
    RULE_COSH,
    RULE_TANH,
    RULE_LN,
    RULE_LOG, /* argument, base */
    RULE_EXP,
    RULE_ABS,
    RULE_FLOOR,
    RULE_CEIL,
    RULE_FACTORIAL,
    RULE_BINOMIAL,
    RULE_MODULO
};

/* Relations, as the op of a child of a chain. */
enum {
    RULE_EQ = '=',
    RULE_LT = '<',
    RULE_GT = '>',
    RULE_LE = 'l',
    RULE_GE = 'g',
    RULE_NE = '!',
    RULE_NEAR = '~',
    RULE_IN = 'i'
};

typedef struct rule_node {
    uint8_t kind;
    uint8_t op;
    uint8_t close;
    uint8_t name;
    uint16_t count; /* of children */
    uint16_t rows;
    uint16_t first; /* child, 0: none */
    uint16_t next;  /* sibling */
    rule_text text;
} rule_node;

typedef struct rule_tree {
    uint16_t count;
    uint16_t names;
    uint32_t steps;
    uint64_t name[RULE_NAMES]; /* hashes */
    rule_node node[RULE_NODES];
} rule_tree;

/* Text without what carries no meaning: "$", spacing commands, sizes, units
 * of currency; signs of Unicode become commands. */
void rule_clean(rule_text text, rule_buffer *out);

/* Empties the tree; node 0 means none. */
void rule_tree_clear(rule_tree *tree);
uint16_t rule_tree_node(rule_tree *tree, int kind);
void rule_tree_append(rule_tree *tree, uint16_t parent, uint16_t child);
/* Index of a name, RULE_NAMES if there are too many. */
uint16_t rule_tree_name(rule_tree *tree, rule_text name);
/* A name that does not depend on spaces, braces and sizes. */
uint64_t rule_hash(rule_text text);

/* A whole cleaned answer, 0 if it is no formula we know. The text must outlive
 * the tree. Several answers may share a tree. */
uint16_t rule_parse(rule_tree *tree, rule_text text);

/* Where an expression is evaluated. */
typedef struct rule_point {
    int sample;     /* which values the names have */
    int sign;       /* of +- */
    double percent; /* the value of 1% */
    int bound;      /* every name is `value` */
    double value;
    int rename; /* names count by their order, from `base` on */
    /* What came up on the way: */
    int branch;   /* a root or logarithm outside the positive numbers */
    double scale; /* largest summand: bounds the cancellation */
} rule_point;

/* Values at a point; 0 if there is none. */
int rule_evaluate(rule_tree *tree, uint16_t node, rule_point *point,
                  double complex *out);
/* Exactly; 0 if the expression is not rational or too large. */
int rule_exact(rule_tree *tree, uint16_t node, const rule_point *point,
               rule_ratio *out);

/* Bits of what occurs below a node. */
enum {
    RULE_HAS_NAME = 1,
    RULE_HAS_DECIMAL = 2,
    RULE_HAS_PERCENT = 4,
    RULE_HAS_EITHER = 8,
    RULE_HAS_MATRIX = 16,
    RULE_HAS_OPAQUE = 32
};
unsigned rule_contents(rule_tree *tree, uint16_t node);

typedef struct rule_equality {
    double tolerance;  /* between numbers of which one has a decimal point */
    int any_variables; /* f(x) equals f(y) */
    int single;        /* only expressions: no lists, tuples, relations */
    /* x >= 1 is not [1, oo) unless the truth is a relation. */
    int relation_is_no_set;
} rule_equality;

/* 1 if two parsed answers are equal. */
int rule_equal_trees(rule_tree *tree, uint16_t a, uint16_t b,
                     const rule_equality *how);

#endif
