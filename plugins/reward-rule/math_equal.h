/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares parsed answers; shared by its parts for numbers and expressions
 * (math_equal.c), sets of the real line (math_sets.c) and answers of several
 * values (math_compare.c).
 */
#ifndef RULE_MATH_EQUAL_H
#define RULE_MATH_EQUAL_H

#include "plugins/reward-rule/math_tree.h"

/* One of the values of an answer; `sign` is the sign that +- in it takes. */
typedef struct rule_item {
    uint16_t node;
    int sign;
} rule_item;

typedef struct rule_equal_context {
    rule_tree *tree;
    const rule_equality *how;
} rule_equal_context;

rule_point rule_point_of(int sample, int sign, double percent);

/* Returns 1 if two complex numbers are equal up to 1e-9 relative and up to
 * 1e-13 times `scale`, the largest summand or angle of their evaluation. */
int rule_is_near(double complex a, double complex b, double scale);

int rule_equal_scalars(const rule_equal_context *c, rule_item a, rule_item b);
/* Returns 1 if two equations are the same up to a factor. `sides` holds the two
 * sides of each. */
int rule_equal_equations(const rule_equal_context *c, const uint16_t sides[4]);
int rule_equal_matrices(const rule_equal_context *c, uint16_t a, uint16_t b);

/* Returns 1 if the node is a set of the real line or a relation of one
 * variable. */
int rule_is_set(rule_tree *tree, uint16_t node);
/* Returns 1 if the node is an inequality or several of them. */
int rule_is_relation(const rule_tree *tree, uint16_t node);
/* Returns 1 if the node can only be a set: (1,2) may also be a pair, and x < 2
 * is a relation. */
int rule_is_plain_set(rule_tree *tree, uint16_t node);
int rule_equal_sets(rule_tree *tree, uint16_t a, uint16_t b);

/* Returns one bit per name that occurs below the node. */
uint64_t rule_find_names(rule_tree *tree, uint16_t node);

#endif
