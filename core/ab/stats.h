/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of runs under several seeds, in double precision. Pure functions;
 * the bootstrap draws by Philox, so equal values give equal bands.
 */
#ifndef XR_AB_STATS_H
#define XR_AB_STATS_H

#include <stddef.h>

#include "core/base/err.h"

/* What is held against zero: probability of a wrong claim of difference. */
#define XR_ALPHA 0.05
#define XR_RESAMPLES 10000u

double xr_mean(const double *values, size_t count);
/* Unbiased, by two passes; 0 for fewer than two values. */
double xr_variance(const double *values, size_t count);
void xr_sort(double *values, size_t count);
/* Of sorted values, between neighbours by a straight line (Hyndman and Fan's
 * type 7); NaN of none. */
double xr_quantile(const double *sorted, size_t count, double part);
/* Sorts the values. */
double xr_median(double *values, size_t count);

/* P(|T| >= |t|) of Student's t with `df` degrees, not whole ones too. */
double xr_t_both_tails(double t, double df);
/* The t that is exceeded in size with probability `tails`, in (0, 1). */
double xr_t_critical(double tails, double df);

/* How a difference was judged. */
enum {
    XR_JUDGED_NOT,    /* fewer than two values on a side */
    XR_JUDGED_PAIRED, /* t interval of the differences, n - 1 degrees */
    XR_JUDGED_WELCH,  /* Welch's t interval, Satterthwaite's degrees */
    XR_JUDGED_SIGNS,  /* all differences are one number, exact test of signs */
    XR_JUDGED_LABELS, /* both sides are one number each: exact test of labels */
};

/* b minus a. Where nothing scatters t has no width and would call a difference
 * of two runs certain; the chance of the outcome under shuffled signs or labels
 * stands in: 2 / 2^n where the differences are one number; where each side is
 * one, so that nothing depends on the seed and pairs mean nothing, the one (or
 * two, of equal sizes) of C(n_a + n_b, n_a) ways. */
typedef struct xr_difference {
    size_t pairs; /* of a paired one; else of both sides in all */
    double mean;
    double error; /* standard error of the mean; 0: no width */
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

/* Holm's step-down over `count` probabilities (NaN: left out, and so is its
 * place). adjusted[i] <= XR_ALPHA means: still a difference. alphas[i] is the
 * alpha at which an interval holds zero exactly if Holm keeps the hypothesis.
 * S. Holm, "A simple sequentially rejective multiple test procedure", 1979. */
void xr_holm(const double *p, size_t count, double *out_adjusted,
             double *out_alphas);

/* Percentile bands (2.5 % to 97.5 %) of the mean over `rows` runs, one for each
 * of `points` columns of values[rows, points]. A resample draws whole runs; a
 * draw depends on its numbers and `rows` only. */
xray_status xr_bootstrap_bands(const double *values, size_t rows, size_t points,
                               double *out_low, double *out_high, xr_err *err);
/* Which of `rows` runs resample `resample` takes in place `place`. */
size_t xr_bootstrap_pick(size_t rows, size_t resample, size_t place);

#endif
