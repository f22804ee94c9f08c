/* SPDX-License-Identifier: Apache-2.0
 *
 * The functions of model/rl by name, numbers in and numbers out, so that a
 * program of another language can ask for them.
 */
#ifndef XR_ALGO_FORMULAS_H
#define XR_ALGO_FORMULAS_H

#define FORMULA_CAP 256

typedef struct formula_in {
    const double *x;
    int count;
    int at; /* of the next number */
} formula_in;

typedef struct formula_out {
    double x[FORMULA_CAP];
    int count;
} formula_out;

/* 0, or -1 for a name that is not known. What a name reads stands in
 * formulas.c. */
int formula_eval(const char *name, formula_in in, formula_out *out);

#endif
