/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares a math answer with the ground truth by the rules of several
 * graders.
 */
#ifndef RULE_MATH_H
#define RULE_MATH_H

#include "plugins/reward-rule/math_extract.h"
#include "plugins/reward-rule/math_strip.h"
#include "plugins/reward-rule/math_tree.h"

/* Buffers to work in. Each judge owns one, and one thread uses it at a time. */
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

/* Our own equality: two answers are equal if they have the same text or the
 * same value, or are equal for all values of their variables. Lists may be in
 * any order, tuples may not. */
int rule_math_equal(rule_math *m, rule_text a, rule_text b,
                    const rule_equality *how);

/* PRM800K's grade_answer, with our own equality instead of sympy's. */
int rule_equal_prm800k(rule_math *m, rule_text given, rule_text truth);

/* Minerva's equality: equal text after normalisation, or the same value. */
int rule_equal_minerva(rule_math *m, rule_text given, rule_text truth,
                       const rule_equality *how);
/* DAPO's equality: equal text after normalisation. */
int rule_equal_dapo(rule_math *m, rule_text given, rule_text truth);
/* The same without end tokens; a decimal truth is cut to an integer. */
int rule_equal_slime(rule_math *m, rule_text given, rule_text truth);

/* Writes LaTeX as plain text. */
void rule_latex_to_text(rule_text latex, rule_buffer *out);

/* Where the answer is searched for. */
enum {
    RULE_FROM_PRESET, /* where the source of the grader searches */
    RULE_FROM_BOXED,
    RULE_FROM_MINERVA,
    RULE_FROM_ANSWER,
    RULE_FROM_MARKED,
    RULE_FROM_LAST,   /* the last formula or number */
    RULE_FROM_LATEX,  /* boxes and formulas only */
    RULE_FROM_NUMBER, /* numbers only */
    RULE_FROM_ANY     /* the first of all of these */
};

/* Copies the answer to m->a and returns 1, or returns 0 if there is none. */
int rule_math_extract(rule_math *m, rule_text response, int from);

#endif
