/* SPDX-License-Identifier: Apache-2.0
 *
 * Places of a response that may hold its answer, by the rules of Math-Verify:
 * formulas (math_formula.c), numbers and sums in prose (math_prose.c), and
 * which of them comes first (math_verify.c).
 */
#ifndef RULE_MATH_FIND_H
#define RULE_MATH_FIND_H

#include "plugins/reward-rule/math.h"

/* Marks whose next place is remembered, so that a scan of the whole text stays
 * linear. */
enum rule_mark {
    RULE_MARK_DISPLAY, /* $$ */
    RULE_MARK_DOLLAR,  /* $ without a backslash */
    RULE_MARK_SQUARE,  /* \] */
    RULE_MARK_ROUND,   /* \) */
    RULE_MARK_LINE,    /* end of a line */
    RULE_MARK_BOX,     /* \boxed{ */
    RULE_MARKS
};

typedef struct rule_scan {
    rule_text text;
    size_t asked[RULE_MARKS]; /* the last question and its answer */
    size_t found[RULE_MARKS];
    size_t run; /* characters of a sum up to here, from run_from on */
    size_t run_from;
    size_t run_stop;  /* the last place in it where a sum may end */
    size_t run_first; /* its first operator, from run_from on */
} rule_scan;

void rule_scan_open(rule_scan *scan, rule_text text);

/* A formula with its delimiters. */
typedef struct rule_formula {
    rule_text inside;
    int percent;
    size_t end;
} rule_formula;

#define RULE_CHAIN 6u /* formulas joined by commas, "and", "or" */

/* The formulas at `at`: their number, 0 if there is none. `boxed`: only those
 * that hold a box. The last of them ends where the chain does. */
unsigned rule_formulas_at(rule_scan *scan, size_t at, int boxed,
                          rule_formula out[RULE_CHAIN]);

/* What must follow a number or sum. */
enum rule_tail {
    RULE_TAIL_ANY,
    RULE_TAIL_NO_EQUALS, /* no "=" */
    RULE_TAIL_I_HOPE     /* "I hope" */
};

/* A number, or a sum of numbers, in prose. */
typedef struct rule_prose {
    rule_text value;
    int sum;     /* with operators: read as Python reads it */
    int decimal; /* its comma is a decimal point */
    int percent;
    size_t end; /* of the match, with the mark behind it */
} rule_prose;

/* 1 if there is one whose white space or "=" in front stands at `at`. */
int rule_sum_at(rule_scan *scan, size_t at, int tail, rule_prose *out);
int rule_number_at(rule_scan *scan, size_t at, int tail, rule_prose *out);

/* 1 if Python reads the sum. */
int rule_is_python_sum(rule_text sum);

/* 1 if "I hope" follows, behind at most a point and a blank. */
int rule_hopes_at(rule_text text, size_t at, size_t *out_end);

enum {
    RULE_KIND_LATEX = 1,  /* formulas and boxes */
    RULE_KIND_NUMBER = 2, /* numbers and sums */
    RULE_KIND_LAST = 4    /* wherever they stand: the last one */
};

/* The first answer of a response that can be read, else the first that is
 * there, into `m->a`. 0 if there is none. */
int rule_find_answer(rule_math *m, rule_text response, unsigned kinds);
/* The same for a ground truth, which may also stand without any mark. */
void rule_find_truth(rule_math *m, rule_text truth);

#endif
