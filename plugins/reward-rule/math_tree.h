/* SPDX-License-Identifier: Apache-2.0
 *
 * Math answers as trees: cleaning the text, parsing it, and evaluating
 * expressions. Text, nodes, depth, names and steps are all bounded.
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
#define RULE_ENTRIES 64u    /* entries of a matrix, elements of a list */
#define RULE_STEPS 1000000u /* node visits of one comparison */
#define RULE_INFINITY 1e300 /* the value of \infty */

enum rule_kind {
    RULE_NONE,
    RULE_NUMBER,   /* text: its digits */
    RULE_NAME,     /* name: index of a variable or word */
    RULE_CONSTANT, /* op: 'p' pi, 'e', 'i', 'o' infinity */
    RULE_ADD,
    RULE_MULTIPLY,
    RULE_DIVIDE,
    RULE_POWER,
    RULE_ROOT, /* radicand, degree */
    RULE_NEGATE,
    RULE_EITHER, /* +-x; op: '+', or '-' for -+ */
    RULE_CALL,   /* op: rule_function; one or two arguments */
    RULE_OPAQUE, /* name: an unknown function of its arguments */
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
    RULE_CHAIN  /* a < b <= c; the op of a child is the relation before it */
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
    uint16_t count; /* number of children */
    uint16_t rows;  /* rows of a matrix */
    uint16_t first; /* first child, 0: none */
    uint16_t next;  /* next sibling, 0: none */
    rule_text text;
} rule_node;

typedef struct rule_tree {
    uint16_t count;
    uint16_t names;
    uint32_t steps;
    uint64_t name[RULE_NAMES]; /* hashes */
    rule_node node[RULE_NODES];
} rule_tree;

/* Writes the text without "$", spacing commands, sizes and currency signs,
 * which carry no meaning, and with signs of Unicode replaced by LaTeX commands.
 */
void rule_clean(rule_text text, rule_buffer *out);

/* Empties the tree; node 0 means none. */
void rule_tree_clear(rule_tree *tree);
uint16_t rule_tree_node(rule_tree *tree, int kind);
void rule_tree_append(rule_tree *tree, uint16_t parent, uint16_t child);
/* Returns the index of the name with this hash, or RULE_NAMES if there are too
 * many. */
uint16_t rule_tree_name(rule_tree *tree, uint64_t hash);
/* Hashes a name; spaces, braces, "$" and backslashes do not count. */
uint64_t rule_hash_name(rule_text text);
/* The same for a word, whose case does not count either. */
uint64_t rule_hash_word(rule_text text);

/* Parses a complete cleaned answer and returns its root, or 0 if it is not a
 * formula that the parser knows. The text must outlive the tree. Several
 * answers may share a tree. */
uint16_t rule_parse(rule_tree *tree, rule_text text);

/* The point at which an expression is evaluated, and facts about the
 * evaluation. */
typedef struct rule_point {
    int sample;     /* number of the sample point, which gives names values */
    int sign;       /* sign that +- takes */
    double percent; /* value of 1% */
    int bound;      /* 1: every name has the value `value` */
    double value;
    /* Set by the evaluation: */
    int branch;   /* 1: a root or logarithm outside of the positive numbers */
    double scale; /* largest summand, which bounds the cancellation */
} rule_point;

/* Evaluates at a point; returns 0 if there is no value. */
int rule_evaluate(rule_tree *tree, uint16_t node, rule_point *point,
                  double complex *out);
/* Evaluates exactly; returns 0 if the expression is not rational or is too
 * large. */
int rule_evaluate_exact(rule_tree *tree, uint16_t node, const rule_point *point,
                        rule_ratio *out);

/* Bits of the kinds of nodes that occur below a node. */
enum {
    RULE_HAS_NAME = 1,
    RULE_HAS_DECIMAL = 2,
    RULE_HAS_PERCENT = 4,
    RULE_HAS_EITHER = 8,
    RULE_HAS_MATRIX = 16,
    RULE_HAS_OPAQUE = 32
};
unsigned rule_contents(rule_tree *tree, uint16_t node);

/* Returns 1 for the name of the set of all real numbers. */
int rule_is_real_line(const rule_tree *tree, const rule_node *n);
/* Returns 1 for the chain x \in \mathbb{R}, which every number fulfills. */
int rule_is_any_real(const rule_tree *tree, uint16_t chain);

typedef struct rule_equality {
    double tolerance;  /* between numbers if one has a decimal point */
    int any_variables; /* 1: f(x) equals f(y) */
    int single;        /* 1: only expressions, no lists, tuples, relations */
    /* 1: x >= 1 does not equal [1, oo) unless the truth is a relation. */
    int relation_is_no_set;
} rule_equality;

/* Returns 1 if two parsed answers are equal. */
int rule_equal_trees(rule_tree *tree, uint16_t a, uint16_t b,
                     const rule_equality *how);

#endif
