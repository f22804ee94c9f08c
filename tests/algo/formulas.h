/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the functions of model/rl by name, with numbers as input and output,
 * so that a program in another language can use them.
 */
#ifndef XR_ALGO_FORMULAS_H
#define XR_ALGO_FORMULAS_H

#define FORMULA_CAP 256

typedef struct formula_in {
    const double *x;
    int count;
    int at; /* index of the next number */
} formula_in;

typedef struct formula_out {
    double x[FORMULA_CAP];
    int count;
} formula_out;

/* Returns 0, or -1 for an unknown name. formulas.c lists the numbers that each
 * name reads. */
int formula_eval(const char *name, formula_in in, formula_out *out);

#endif
