/* SPDX-License-Identifier: Apache-2.0
 *
 * Equality of a math answer with the ground truth, by the name of the rule.
 */
#ifndef RULE_MATH_H
#define RULE_MATH_H

#include "plugins/reward-rule/math_extract.h"
#include "plugins/reward-rule/math_strip.h"
#include "plugins/reward-rule/math_tree.h"

/* Room to work in: a judge of one thread owns one. */
typedef struct rule_math {
    rule_buffer found;
    rule_buffer given;
    rule_buffer a;
    rule_buffer b;
    rule_buffer clean_a;
    rule_buffer clean_b;
    rule_buffer scratch;
    rule_buffer spare;
    rule_tree tree;
} rule_math;

/* Our own equality: the same text, the same value, or the same for every value
 * of the variables; lists in any order, tuples in theirs. */
int rule_math_equal(rule_math *m, rule_text a, rule_text b,
                    const rule_equality *how);

/* PRM800K's grade_answer; our own equality takes sympy's place. */
int rule_equal_prm800k(rule_math *m, rule_text given, rule_text truth);

/* Minerva's: equal when normalised, or the same value. */
int rule_equal_minerva(rule_math *m, rule_text given, rule_text truth,
                       const rule_equality *how);
int rule_equal_dapo(rule_math *m, rule_text given, rule_text truth);
/* The same without end tokens; a decimal truth is cut to a whole number. */
int rule_equal_slime(rule_math *m, rule_text given, rule_text truth);

/* LaTeX as plain text. */
void rule_plain(rule_text latex, rule_buffer *out);

/* Where an answer is looked for. */
enum {
    RULE_FROM_PRESET, /* as the grader's source */
    RULE_FROM_BOXED,
    RULE_FROM_MINERVA,
    RULE_FROM_ANSWER,
    RULE_FROM_MARKED,
    RULE_FROM_LAST,   /* the last formula or number */
    RULE_FROM_LATEX,  /* boxes and formulas only */
    RULE_FROM_NUMBER, /* numbers only */
    RULE_FROM_ANY     /* the first of all of these */
};

/* 1 and the answer in m->a, or 0. */
int rule_math_extract(rule_math *m, rule_text response, int from);

#endif
