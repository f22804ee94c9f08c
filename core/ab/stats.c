/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of runs: Student's t, exact tests, Holm's procedure, bootstrap
 * bands.
 */
#include "core/ab/stats.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include <xray/numerics.h>

#include "core/base/str.h"

/* Relative difference up to which values count as equal, because rounding alone
 * can cause it. */
static const double SAME = 1e-12;

/* ---- moments and order -------------------------------------------------- */

double xr_mean(const double *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count ? sum / (double)count : (double)NAN;
}

double xr_variance(const double *values, size_t count)
{
    double mean = xr_mean(values, count);
    double sum = 0;
    if (count < 2)
        return 0;
    for (size_t i = 0; i < count; i++)
        sum += (values[i] - mean) * (values[i] - mean);
    return sum / (double)(count - 1);
}

static int compare_values(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

void xr_sort(double *values, size_t count)
{
    if (count)
        qsort(values, count, sizeof(*values), compare_values);
}

double xr_quantile(const double *sorted, size_t count, double part)
{
    if (!count)
        return (double)NAN;
    double position = part * (double)(count - 1);
    size_t at = (size_t)position;
    if (at + 1 >= count)
        return sorted[count - 1];
    return sorted[at] + (position - (double)at) * (sorted[at + 1] - sorted[at]);
}

double xr_median(double *values, size_t count)
{
    xr_sort(values, count);
    return xr_quantile(values, count, 0.5);
}

/* ---- Student's t -------------------------------------------------------- */

static double away_from_zero(double value)
{
    return fabs(value) < DBL_MIN ? DBL_MIN : value;
}

/* The continued fraction of the incomplete beta function, by Lentz's method
 * (DLMF 8.17.22). */
static double beta_fraction(double x, double a, double b)
{
    double c = 1;
    double d = 1 / away_from_zero(1 - (a + b) * x / (a + 1));
    double value = d;
    for (int m = 1; m <= 500; m++) {
        double even = m * (b - m) * x / ((a + 2.0 * m - 1) * (a + 2.0 * m));
        double odd =
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1));
        d = 1 / away_from_zero(1 + even * d);
        c = away_from_zero(1 + even / c);
        value *= c * d;
        d = 1 / away_from_zero(1 + odd * d);
        c = away_from_zero(1 + odd / c);
        value *= c * d;
        if (fabs(c * d - 1) < 1e-16)
            break;
    }
    return value;
}

/* The regularised incomplete beta function I_x(a, b). y = 1 - x is a parameter,
 * since the subtraction would lose digits near x = 1. */
static double incomplete_beta(double x, double y, double a, double b)
{
    if (x <= 0)
        return 0;
    if (y <= 0)
        return 1;
    double front =
        exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log(y));
    if (x < (a + 1) / (a + b + 2))
        return front * beta_fraction(x, a, b) / a;
    return 1 - front * beta_fraction(y, b, a) / b;
}

double xr_t_both_tails(double t, double df)
{
    if (isnan(t) || !(df > 0))
        return (double)NAN;
    if (isinf(t))
        return 0;
    double x = df / (df + t * t);
    return incomplete_beta(x, t * t / (df + t * t), df / 2, 0.5);
}

double xr_t_critical(double tails, double df)
{
    double low = 0;
    double high = 1;
    while (xr_t_both_tails(high, df) > tails && high < 1e300)
        high *= 2;
    for (int i = 0; i < 200 && low < high; i++) {
        double middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            break;
        if (xr_t_both_tails(middle, df) > tails)
            low = middle;
        else
            high = middle;
    }
    return high;
}

/* ---- differences -------------------------------------------------------- */

static double largest_magnitude(const double *values, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(values[i]));
    return most;
}

/* 0 if the mean is as small as rounding errors of values of this size. */
static double drop_rounding_noise(double mean, double size)
{
    return fabs(mean) > SAME * size ? mean : 0;
}

/* The probability that permuted labels separate two numbers completely: one
 * of C(a + b, a) ways, and a second one, with the sides exchanged, if their
 * sizes are equal. */
static double exact_label_p(size_t a, size_t b)
{
    double p = a == b ? 2 : 1;
    for (size_t i = 1; i <= a; i++)
        p = p * (double)i / (double)(b + i);
    return p;
}

/* Judges differences without scatter by an exact p; a mean of zero has p = 1.
 */
static void judge_exactly(xr_difference *d, double p, int how)
{
    d->error = 0;
    d->judged = how;
    d->p = fabs(d->mean) > 0 ? p : 1;
}

/* 1 if no value differs from the first by more than rounding errors. */
static int is_constant(const double *values, size_t count, double size)
{
    for (size_t i = 1; i < count; i++)
        if (fabs(values[i] - values[0]) > SAME * size)
            return 0;
    return 1;
}

xr_difference xr_difference_paired(const double *a, const double *b,
                                   size_t count)
{
    xr_difference d = { .pairs = count, .p = (double)NAN };
    double sum = 0;
    double square = 0;
    for (size_t i = 0; i < count; i++)
        sum += b[i] - a[i];
    d.mean = count ? sum / (double)count : (double)NAN;
    if (count < 2)
        return d;
    for (size_t i = 0; i < count; i++)
        square += (b[i] - a[i] - d.mean) * (b[i] - a[i] - d.mean);
    d.df = (double)(count - 1);
    d.error = sqrt(square / d.df / (double)count);
    double size =
        fmax(largest_magnitude(a, count), largest_magnitude(b, count));
    d.mean = drop_rounding_noise(d.mean, size);
    if (d.error > SAME * size) {
        d.judged = XR_JUDGED_PAIRED;
        d.p = xr_t_both_tails(d.mean / d.error, d.df);
    } else if (is_constant(a, count, size)) {
        judge_exactly(&d, exact_label_p(count, count), XR_JUDGED_LABELS);
    } else {
        judge_exactly(&d, ldexp(2, -(int)(count < 1000 ? count : 1000)),
                      XR_JUDGED_SIGNS);
    }
    return d;
}

xr_difference xr_difference_welch(const double *a, size_t a_count,
                                  const double *b, size_t b_count)
{
    xr_difference d = { .pairs = a_count + b_count, .p = (double)NAN };
    d.mean = xr_mean(b, b_count) - xr_mean(a, a_count);
    if (a_count < 2 || b_count < 2)
        return d;
    double va = xr_variance(a, a_count) / (double)a_count;
    double vb = xr_variance(b, b_count) / (double)b_count;
    double size =
        fmax(largest_magnitude(a, a_count), largest_magnitude(b, b_count));
    d.mean = drop_rounding_noise(d.mean, size);
    d.error = sqrt(va + vb);
    if (d.error <= SAME * size) {
        judge_exactly(&d, exact_label_p(a_count, b_count), XR_JUDGED_LABELS);
        return d;
    }
    d.judged = XR_JUDGED_WELCH;
    d.df = (va + vb) * (va + vb) /
           (va * va / (double)(a_count - 1) + vb * vb / (double)(b_count - 1));
    d.p = xr_t_both_tails(d.mean / d.error, d.df);
    return d;
}

void xr_difference_bounds(const xr_difference *d, double alpha, double *out_low,
                          double *out_high)
{
    *out_low = *out_high = (double)NAN;
    if (d->judged == XR_JUDGED_NOT)
        return;
    double half =
        d->error > 0 && d->df > 0 ? xr_t_critical(alpha, d->df) * d->error : 0;
    *out_low = d->mean - half;
    *out_high = d->mean + half;
}

/* ---- several comparisons ------------------------------------------------ */

/* The rank of p[i]: the number of smaller ones and of equal ones before it. */
static size_t rank_of_p(const double *p, size_t count, size_t i)
{
    size_t rank = 0;
    for (size_t k = 0; k < count; k++)
        if (p[k] < p[i] || (p[k] == p[i] && k < i))
            rank++;
    return rank;
}

void xr_holm(const double *p, size_t count, double *out_adjusted,
             double *out_alphas)
{
    size_t judged = 0;
    double most = 0;
    double left = 0; /* hypotheses that remain at the first one kept */
    for (size_t i = 0; i < count; i++) {
        judged += isnan(p[i]) ? 0u : 1u;
        out_adjusted[i] = (double)NAN;
        out_alphas[i] = XR_ALPHA;
    }
    for (size_t rank = 0; rank < judged; rank++)
        for (size_t i = 0; i < count; i++) {
            if (isnan(p[i]) || rank_of_p(p, count, i) != rank)
                continue;
            double here = (double)(judged - rank);
            most = fmin(1, fmax(most, here * p[i]));
            out_adjusted[i] = most;
            if (most > XR_ALPHA && left == 0)
                left = here;
            out_alphas[i] = XR_ALPHA / (left > 0 ? left : here);
        }
}

/* ---- bootstrap ---------------------------------------------------------- */

size_t xr_bootstrap_pick(size_t rows, size_t resample, size_t position)
{
    xray_philox_out w = xray_philox(0x626f6f7473747261u, (uint32_t)resample,
                                    (uint32_t)position, (uint32_t)rows, 0);
    return (size_t)(((uint64_t)w.w[0] * (uint64_t)rows) >> 32);
}

xray_status xr_bootstrap_bands(const double *values, size_t rows, size_t points,
                               double *out_low, double *out_high, xr_err *err)
{
    double *means = xr_calloc(XR_RESAMPLES, sizeof(*means));
    size_t *picks =
        xr_calloc((size_t)XR_RESAMPLES * (rows + 1), sizeof(*picks));
    if (!means || !picks || !rows) {
        free(means);
        free(picks);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for the bootstrap");
    }
    for (size_t r = 0; r < XR_RESAMPLES; r++)
        for (size_t i = 0; i < rows; i++)
            picks[r * rows + i] = xr_bootstrap_pick(rows, r, i);
    for (size_t point = 0; point < points; point++) {
        for (size_t r = 0; r < XR_RESAMPLES; r++) {
            double sum = 0;
            for (size_t i = 0; i < rows; i++)
                sum += values[picks[r * rows + i] * points + point];
            means[r] = sum / (double)rows;
        }
        xr_sort(means, XR_RESAMPLES);
        out_low[point] = xr_quantile(means, XR_RESAMPLES, 0.025);
        out_high[point] = xr_quantile(means, XR_RESAMPLES, 0.975);
    }
    free(means);
    free(picks);
    return XRAY_OK;
}
