/* SPDX-License-Identifier: Apache-2.0
 *
 * Equality of parsed answers, between its parts: numbers and expressions
 * (math_equal.c), sets of the real line (math_sets.c), answers made of several
 * (math_compare.c).
 */
#ifndef RULE_MATH_EQUAL_H
#define RULE_MATH_EQUAL_H

#include "plugins/reward-rule/math_tree.h"

/* One of the values of an answer; sign is that of +- in it. */
typedef struct rule_item {
    uint16_t node;
    int sign;
} rule_item;

typedef struct rule_equal_context {
    rule_tree *tree;
    const rule_equality *how;
} rule_equal_context;

rule_point rule_point_of(int sample, int sign, double percent);

/* 1 if two complex numbers are one: relative 1e-9, and 1e-13 of the largest
 * summand or angle on the way. */
int rule_near(double complex a, double complex b, double scale);

int rule_equal_scalars(const rule_equal_context *c, rule_item a, rule_item b);
/* Two equations that are one up to a factor: the sides of each. */
int rule_equal_equations(const rule_equal_context *c, const uint16_t sides[4]);
int rule_equal_matrices(const rule_equal_context *c, uint16_t a, uint16_t b);

/* 1 if the node is a set of the real line or a relation of one variable. */
int rule_is_set(rule_tree *tree, uint16_t node);
/* 1 if it says "less", "more" or "not" of something, or several do. */
int rule_is_relation(const rule_tree *tree, uint16_t node);
/* 1 if it is one beyond doubt: (1,2) may be a pair, x < 2 is none. */
int rule_is_plain_set(rule_tree *tree, uint16_t node);
int rule_equal_sets(rule_tree *tree, uint16_t a, uint16_t b);

/* Bits of the names below a node. */
uint64_t rule_names(rule_tree *tree, uint16_t node);

#endif
