/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of runs under several seeds, in double precision. All functions
 * are pure; the bootstrap uses Philox, so equal values give equal bands.
 */
#ifndef XR_AB_STATS_H
#define XR_AB_STATS_H

#include <stddef.h>

#include "core/base/err.h"

/* Significance level: the probability of claiming a difference that does not
 * exist. */
#define XR_ALPHA 0.05
#define XR_RESAMPLES 10000u

double xr_mean(const double *values, size_t count);
/* Unbiased, computed in two passes; 0 for fewer than two values. */
double xr_variance(const double *values, size_t count);
void xr_sort(double *values, size_t count);
/* The quantile at `part` (0 to 1) of sorted values, interpolated linearly
 * (Hyndman and Fan's type 7); NaN without values. */
double xr_quantile(const double *sorted, size_t count, double part);
/* Sorts the values. */
double xr_median(double *values, size_t count);

/* P(|T| >= |t|) of Student's t with `df` degrees of freedom, which need not be
 * an integer. */
double xr_t_both_tails(double t, double df);
/* The t that |T| exceeds with probability `tails`, in (0, 1). */
double xr_t_critical(double tails, double df);

/* How a difference was judged. */
enum {
    XR_JUDGED_NOT,    /* fewer than two values on a side */
    XR_JUDGED_PAIRED, /* t interval of the differences, n - 1 degrees */
    XR_JUDGED_WELCH,  /* Welch's t interval, Satterthwaite's degrees */
    XR_JUDGED_SIGNS,  /* all differences are equal: exact test of signs */
    XR_JUDGED_LABELS, /* the values of each side are equal: exact test of
                       * labels */
};

/* The difference b minus a. If the differences do not scatter, a t interval has
 * no width and would call a difference of two runs certain. Then p is the
 * probability of the outcome under permuted signs or labels: 2 / 2^n if all
 * differences are equal. If the values of each side are equal, the seed has no
 * influence and pairs mean nothing; p is then 1 / C(n_a + n_b, n_a), or twice
 * that for sides of equal size. */
typedef struct xr_difference {
    size_t pairs; /* if paired; else the values of both sides together */
    double mean;
    double error; /* standard error of the mean; 0: no scatter */
    double df;
    double p; /* both tails; NaN: not judged */
    int judged;
} xr_difference;
xr_difference xr_difference_paired(const double *a, const double *b,
                                   size_t count);
xr_difference xr_difference_welch(const double *a, size_t a_count,
                                  const double *b, size_t b_count);
/* Bounds of the difference at confidence 1 - alpha; NaN when not judged. */
void xr_difference_bounds(const xr_difference *difference, double alpha,
                          double *out_low, double *out_high);

/* Holm's step-down procedure over `count` probabilities; a NaN is skipped and
 * does not count. out_adjusted[i] <= XR_ALPHA: the difference is significant.
 * out_alphas[i] is the alpha at which the interval contains zero exactly if
 * Holm keeps the hypothesis. S. Holm, "A simple sequentially rejective multiple
 * test procedure", 1979. */
void xr_holm(const double *p, size_t count, double *out_adjusted,
             double *out_alphas);

/* Percentile bands (2.5 % to 97.5 %) of the mean over `rows` runs, one for each
 * of the `points` columns of values[rows, points]. A resample takes complete
 * runs, and which ones depends on its number and `rows` only. */
xray_status xr_bootstrap_bands(const double *values, size_t rows, size_t points,
                               double *out_low, double *out_high, xr_err *err);
/* The run, of `rows`, that resample `resample` has at position `position`. */
size_t xr_bootstrap_pick(size_t rows, size_t resample, size_t position);

#endif
