/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares finished runs of several variants; the first variant is the base.
 */
#ifndef XR_AB_COMPARE_H
#define XR_AB_COMPARE_H

#include "core/ab/run_folder.h"
#include "core/ab/stats.h"
#include "core/config/config.h"

typedef struct xr_variant {
    char *name;
    xr_ab_run *runs;
    size_t count;
} xr_variant;

/* The runs of a comparison. `failures` has a sentence per missing run. */
typedef struct xr_runs {
    xr_variant *variants;
    size_t count;
    xr_errors failures;
} xr_runs;

/* Adds a variant under a unique name ("base", "base-2"). */
xray_status xr_runs_variant(xr_runs *runs, const char *name, xr_err *err);
/* Reads a run into the last variant. */
xray_status xr_runs_add(xr_runs *runs, const char *dir, xr_err *err);
/* Sorts folders into variants. Each folder is a run, or holds runs named seed-N
 * and is one variant. A run named seed-N belongs to the variant of the folder
 * it is in. Other runs are one variant if their settings differ in the seed
 * alone. Faults are added to `errors`. */
void xr_runs_sort(xr_runs *runs, const char *const *dirs, size_t count,
                  xr_errors *errors);
void xr_runs_free(xr_runs *runs);

/* The first difference between two runs of the same seed. */
typedef struct xr_divergence {
    int64_t seed;
    int differs;   /* 0: no line of metrics differs */
    uint32_t more; /* further metrics of the line that differ */
    uint64_t step;
    const char *metric; /* NULL: only one run has a line of the step */
    double a;
    double b;
    int sampled; /* both runs kept samples; else the rest is unset */
    int samples_differ;
    uint64_t sample_step;
    uint64_t sample;    /* its number in the step, from 1 */
    int prompts_differ; /* the prompt differs, not only the response */
    uint64_t last_step; /* that was compared */
} xr_divergence;

enum { XR_NO_DIFFERENCE, XR_BASE_WINS, XR_VARIANT_WINS };

/* A variant compared with the base. */
typedef struct xr_contrast {
    size_t variant;
    int paired;
    int verdict;
    size_t count; /* pairs; 0 when not paired */
    int64_t *seeds;
    size_t *a_run; /* [count] indices of the pair's runs */
    size_t *b_run;
    xr_divergence *divergences; /* [count] */
    xr_difference difference;
    double adjusted; /* p after Holm; p itself with one variant */
    double alpha;    /* of the interval, see xr_holm */
    double low;
    double high;
} xr_contrast;

typedef struct xr_comparison {
    const xr_runs *runs;
    const char *metric;     /* that the verdict judges */
    int lower;              /* 1: lower is better */
    double **finals;        /* [variants][runs] last values of the metric */
    uint64_t **steps;       /* [variants][runs] the steps of those values */
    xr_contrast *contrasts; /* [variants - 1] */
    xr_errors notes;        /* limits of the comparison, for the reader */
} xr_comparison;

/* `metric` NULL: the first greedy validation score that all runs have, else the
 * mean reward of the last step. `lower` 1: lower is better. Fewer than two
 * variants, or a metric that a run lacks, are errors. `runs` is borrowed. */
xray_status xr_compare(const xr_runs *runs, const char *metric, int lower,
                       xr_err *err, xr_comparison *out);
void xr_comparison_free(xr_comparison *comparison);
/* "higher is better" or "lower is better". */
const char *xr_better(const xr_comparison *comparison);
/* The verdict as a sentence, which names a winner or says that none is shown.
 */
void xr_verdict(const xr_comparison *comparison, size_t contrast, xr_str *out);
/* The first difference between the runs of a pair, as a sentence. */
void xr_divergence_text(const xr_divergence *divergence, xr_str *out);
/* Keys whose values differ between variants, except those that each run has its
 * own value of, in the order of the first variant. free() releases the array.
 */
xray_status xr_differing_keys(const xr_runs *runs, xr_err *err,
                              const char ***out_keys, size_t *out_count);
/* The value of a key in a variant, or NULL. */
const char *xr_variant_setting(const xr_variant *variant, const char *key);
/* The name of an XR_JUDGED_*: "paired t", ... */
const char *xr_judged_name(int judged);

/* The mean of a metric over the runs of a variant, with its bootstrap band, at
 * steps where all of them have it: at most XR_SERIES_MAX, including the last.
 */
#define XR_SERIES_MAX 240u
typedef struct xr_series {
    size_t count;
    double *step; /* [count]; the arrays below share its allocation */
    double *mean;
    double *low; /* equal to the mean for a single run */
    double *high;
    double *seconds; /* of all steps up to this one, mean over the runs */
    double *tokens;
} xr_series;
xray_status xr_series_make(const xr_variant *variant, const char *metric,
                           xr_err *err, xr_series *out);
void xr_series_free(xr_series *series);

/* The cost of a step of a variant: medians over the steps of all its runs. */
typedef struct xr_cost {
    double step_seconds; /* NaN: not measured */
    double tokens_per_second;
    double gen_seconds;
    double update_seconds;
    double run_seconds; /* of all steps of a run, median over runs */
    double run_tokens;
} xr_cost;
xray_status xr_cost_of(const xr_variant *variant, xr_err *err, xr_cost *out);

/* Writes the tables for a terminal; the second one writes those that depend on
 * the clock. */
void xr_compare_text(const xr_comparison *comparison, xr_str *out);
xray_status xr_compare_text_time(const xr_comparison *comparison, xr_str *out,
                                 xr_err *err);
/* Writes the HTML page: one file without scripts or links. All that depends on
 * time is in the section with the id "time"; everything else is the same for
 * equal runs. */
xray_status xr_compare_html(const xr_comparison *comparison, xr_str *out,
                            xr_err *err);

#endif
