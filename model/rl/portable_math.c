/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements exp and log from basic arithmetic.
 */
#include <math.h>

#include "model/rl/portable_math.h"

/* exp(x) = 2^n exp(r) with n = round(x / ln 2), so |r| <= ln(2) / 2; exp(r) by
 * its Taylor polynomial of degree 13, whose remainder is below 2^-57. ln 2 is
 * taken off in two parts so that r keeps its low bits (Cody and Waite,
 * "Software manual for the elementary functions", 1980, chapter 6). */
double xm_rl_exp(double x)
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

/* log(x) = n ln 2 + log(m) with m in [sqrt(1/2), sqrt(2)), and
 * log(m) = 2 atanh(s), s = (m - 1) / (m + 1), |s| < 0.172: the odd series of
 * atanh up to s^23, whose remainder is below 2^-60. */
double xm_rl_log(double x)
{
    if (isnan(x) || x < 0)
        return (double)NAN;
    if (x == 0)
        return -(double)INFINITY;
    if (isinf(x))
        return x;
    int n = 0;
    double m = frexp(x, &n);
    if (m < 0x1.6a09e667f3bcdp-1) {
        m *= 2;
        n--;
    }
    double s = (m - 1.0) / (m + 1.0);
    double square = s * s;
    double p = 0;
    for (int k = 23; k >= 3; k -= 2)
        p = (p + 1.0 / k) * square;
    double low = 2.0 * s * p + (double)n * 0x1.a39ef35793c76p-33;
    return (double)n * 0x1.62e42fee00000p-1 + (2.0 * s + low);
}
