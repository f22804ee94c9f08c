/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "plugins/algo-grpo/formula.h"

/* exp(x) = 2^n exp(r) with n = round(x / ln 2), so |r| <= ln(2) / 2; exp(r) by
 * its Taylor polynomial of degree 13, whose remainder is below 2^-57. ln 2 is
 * taken off in two parts so that r keeps its low bits (Cody and Waite,
 * "Software manual for the elementary functions", 1980, chapter 6). */
double grpo_exp(double x)
{
    static const double inverse[] = {
        1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0,
        1.0 / 3628800.0,    1.0 / 362880.0,    1.0 / 40320.0,
        1.0 / 5040.0,       1.0 / 720.0,       1.0 / 120.0,
        1.0 / 24.0,         1.0 / 6.0,         0.5,
    };
    if (!(x > -745.0))
        return isnan(x) ? x : 0.0;
    if (x > 709.7)
        return (double)INFINITY;
    double n = rint(x * 0x1.71547652b82fep+0);
    double r = (x - n * 0x1.62e42fee00000p-1) - n * 0x1.a39ef35793c76p-33;
    double p = inverse[0];
    for (unsigned i = 1; i < sizeof(inverse) / sizeof(inverse[0]); i++)
        p = p * r + inverse[i];
    return ldexp(1.0 + (r + r * r * p), (int)n);
}
