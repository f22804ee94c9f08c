/* SPDX-License-Identifier: Apache-2.0
 *
 * Finished runs of several variants held against each other: the first variant
 * is the base.
 */
#ifndef XR_AB_COMPARE_H
#define XR_AB_COMPARE_H

#include "core/ab/run.h"
#include "core/ab/stats.h"
#include "core/config/config.h"

typedef struct xr_variant {
    char *name;
    xr_ab_run *runs;
    size_t count;
} xr_variant;

/* The runs of a comparison. `failures`: sentences on runs that are not there.
 */
typedef struct xr_runs {
    xr_variant *variants;
    size_t count;
    xr_errors failures;
} xr_runs;

/* Adds a variant, its name made unique ("base", "base-2"). */
xray_status xr_runs_variant(xr_runs *runs, const char *name, xr_err *err);
/* Reads a run into the last variant. */
xray_status xr_runs_add(xr_runs *runs, const char *dir, xr_err *err);
/* Sorts folders, each a run or a folder of runs named seed-N, into variants: a
 * folder of runs is one; runs named seed-N belong to the folder they are in;
 * of others those whose settings are equal but for the seed. What is wrong
 * goes to `errors`. */
void xr_runs_sort(xr_runs *runs, const char *const *dirs, size_t count,
                  xr_errors *errors);
void xr_runs_free(xr_runs *runs);

/* Where two runs of one seed part. */
typedef struct xr_parting {
    int64_t seed;
    int parted;    /* 0: no line differs */
    uint32_t more; /* other metrics of the line that differ */
    uint64_t step;
    const char *metric; /* NULL: one run has a line the other has not */
    double a;
    double b;
    int sampled; /* both runs kept samples: the next ones count */
    int samples_parted;
    uint64_t sample_step;
    uint64_t sample;    /* its number in the step, from 1 */
    int prompts_parted; /* not the response but the prompt differs */
    uint64_t last_step; /* of those compared */
} xr_parting;

enum { XR_NO_DIFFERENCE, XR_BASE_WINS, XR_VARIANT_WINS };

/* A variant against the base. */
typedef struct xr_contrast {
    size_t variant;
    int paired;
    int verdict;
    size_t count; /* pairs; 0 when not paired */
    int64_t *seeds;
    size_t *a_run; /* [count] places of the pair's runs */
    size_t *b_run;
    xr_parting *partings; /* [count] */
    xr_difference difference;
    double adjusted; /* Holm's p; p itself with one variant */
    double alpha;    /* of the interval, see xr_holm */
    double low;
    double high;
} xr_contrast;

typedef struct xr_comparison {
    const xr_runs *runs;
    const char *metric;     /* what the verdict is on */
    int lower;              /* less of it is better */
    double **finals;        /* [variants][runs] its last values */
    uint64_t **steps;       /* the steps they are of */
    xr_contrast *contrasts; /* [variants - 1] */
    xr_errors notes;        /* what a reader must know */
} xr_comparison;

/* `metric`: NULL for the first greedy validation score all runs have, else the
 * mean reward of the last step. `lower`: less of it is better. Fewer than two
 * variants, or a metric that a run lacks, are errors. `runs` is borrowed. */
xray_status xr_compare(const xr_runs *runs, const char *metric, int lower,
                       xr_err *err, xr_comparison *out);
void xr_comparison_free(xr_comparison *comparison);
/* "higher is better" or "lower is better". */
const char *xr_better(const xr_comparison *comparison);
/* The verdict as a sentence: names the winner, or refuses to. */
void xr_verdict(const xr_comparison *comparison, size_t contrast, xr_str *out);
/* Where the runs of a pair part, as a sentence. */
void xr_parting_text(const xr_parting *parting, xr_str *out);
/* Keys whose values differ between variants, but for those of a run's own, in
 * the order of the first; free() releases the array. */
xray_status xr_differing_keys(const xr_runs *runs, xr_err *err,
                              const char ***out_keys, size_t *out_count);
/* The value a variant has, or NULL. */
const char *xr_variant_setting(const xr_variant *variant, const char *key);
/* "paired t", ... of XR_JUDGED_*. */
const char *xr_judged_name(int judged);

/* The mean of a metric over the runs of a variant with its band, at the steps
 * where all of them have it (at most `XR_SERIES_MAX`, the last among them). */
#define XR_SERIES_MAX 240u
typedef struct xr_series {
    size_t count;
    double *step; /* [count]; the others behind it, one allocation */
    double *mean;
    double *low; /* equal to the mean for a single run */
    double *high;
    double *seconds; /* of all steps so far, mean over the runs */
    double *tokens;
} xr_series;
xray_status xr_series_make(const xr_variant *variant, const char *metric,
                           xr_err *err, xr_series *out);
void xr_series_free(xr_series *series);

/* What a step of a variant costs: medians over the steps of all its runs. */
typedef struct xr_cost {
    double step_seconds; /* NaN: not measured */
    double tokens_per_second;
    double gen_seconds;
    double update_seconds;
    double run_seconds; /* all steps of a run, median over runs */
    double run_tokens;
} xr_cost;
xray_status xr_cost_of(const xr_variant *variant, xr_err *err, xr_cost *out);

/* Console tables, in order: verdicts, values, settings, partings, notes; and
 * what depends on the clock. */
void xr_compare_text(const xr_comparison *comparison, xr_str *out);
xray_status xr_compare_text_time(const xr_comparison *comparison, xr_str *out,
                                 xr_err *err);
/* The page: one file, no script, no link. Times stand in one section of their
 * own, with the id "time"; all else is the same for equal runs. */
xray_status xr_compare_html(const xr_comparison *comparison, xr_str *out,
                            xr_err *err);

#endif
