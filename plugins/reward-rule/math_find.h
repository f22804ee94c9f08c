/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the parts of a response that may hold its answer, by the rules of
 * Math-Verify: formulas (math_formula.c), numbers and sums in prose
 * (math_prose.c), and their order of preference (math_verify.c).
 */
#ifndef RULE_MATH_FIND_H
#define RULE_MATH_FIND_H

#include "plugins/reward-rule/math.h"

/* Marks whose next offset is remembered, so that a scan of the entire text
 * takes linear time. */
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
    size_t asked[RULE_MARKS]; /* offset from which a mark was last sought */
    size_t found[RULE_MARKS]; /* offset at which it was found */
    size_t run;               /* end of the run of characters of a sum */
    size_t run_from;          /* offset from which that run was measured */
    size_t run_stop;  /* last offset in the run at which a sum may end */
    size_t run_first; /* first operator of the run after run_from */
} rule_scan;

void rule_scan_open(rule_scan *scan, rule_text text);

/* A formula with its delimiters. */
typedef struct rule_formula {
    rule_text inside;
    int percent;
    size_t end;
} rule_formula;

#define RULE_CHAIN 6u /* formulas joined by commas, "and", "or" */

/* Reads the formulas at `at` and returns their number. With `boxed`, only
 * formulas that hold a box count. The last one ends where the chain ends. */
unsigned rule_formulas_at(rule_scan *scan, size_t at, int boxed,
                          rule_formula out[RULE_CHAIN]);

/* The text that must follow a number or sum. */
enum rule_tail {
    RULE_TAIL_ANY,
    RULE_TAIL_NO_EQUALS, /* no "=" */
    RULE_TAIL_I_HOPE     /* "I hope" */
};

/* A number, or a sum of numbers, in prose. */
typedef struct rule_prose {
    rule_text value;
    int sum;     /* 1: it has operators and is read as Python reads it */
    int decimal; /* 1: its comma is a decimal point */
    int percent;
    size_t end; /* end of the match, including the mark after it */
} rule_prose;

/* Return 1 if `at` is the white space or "=" before a sum or a number. */
int rule_sum_at(rule_scan *scan, size_t at, int tail, rule_prose *out);
int rule_number_at(rule_scan *scan, size_t at, int tail, rule_prose *out);

/* Returns 1 if Python can evaluate the sum. */
int rule_is_python_sum(rule_text sum);

/* Returns 1 if "I hope" follows, after at most a point and a space. */
int rule_hopes_at(rule_text text, size_t at, size_t *out_end);

enum {
    RULE_KIND_LATEX = 1,  /* formulas and boxes */
    RULE_KIND_NUMBER = 2, /* numbers and sums */
    RULE_KIND_LAST = 4    /* the last one, whatever announces it */
};

/* Copies to `m->a` the first answer of a response that can be parsed, else the
 * first answer. Returns 0 if there is none. */
int rule_find_answer(rule_math *m, rule_text response, unsigned kinds);
/* The same for a ground truth, which needs no mark around it. */
void rule_find_truth(rule_math *m, rule_text truth);

#endif
