/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares finished runs: chooses the metric, pairs runs by seed, judges the
 * differences and words the verdicts.
 */
#include "core/ab/compare.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ab/divergence.h"

#define REWARD "critic/score/mean"

/* ---- the metric --------------------------------------------------------- */

static int all_runs_have_metric(const xr_runs *runs, const char *metric)
{
    for (size_t v = 0; v < runs->count; v++)
        for (size_t i = 0; i < runs->variants[v].count; i++)
            if (!xr_ab_run_last(&runs->variants[v].runs[i], metric))
                return 0;
    return 1;
}

static int is_greedy_score(const char *name)
{
    static const char head[] = "val-core/";
    static const char tail[] = "/reward/mean@1";
    size_t n = strlen(name);
    return n > sizeof(head) + sizeof(tail) - 2 &&
           strncmp(name, head, sizeof(head) - 1) == 0 &&
           strcmp(name + n - (sizeof(tail) - 1), tail) == 0;
}

static const xr_ab_run *find_first_run(const xr_runs *runs)
{
    for (size_t v = 0; v < runs->count; v++)
        if (runs->variants[v].count)
            return &runs->variants[v].runs[0];
    return NULL;
}

static xray_status choose_metric(const xr_runs *runs, const char *wanted,
                                 xr_comparison *out, xr_err *err)
{
    const xr_ab_run *run = find_first_run(runs);
    if (!run)
        return xr_fail(err, XRAY_E_CONFIG, "no run is finished");
    if (wanted && all_runs_have_metric(runs, wanted)) {
        out->metric = wanted;
        return XRAY_OK;
    }
    if (wanted)
        return xr_fail(
            err, XRAY_E_CONFIG,
            "--metric %s: not all runs have this metric; the first run has %s "
            "and %zu more",
            wanted, run->name_count ? run->names[0] : "none",
            run->name_count ? run->name_count - 1 : 0);
    size_t scores = 0;
    for (size_t i = 0; i < run->name_count; i++) {
        if (!is_greedy_score(run->names[i]) ||
            !all_runs_have_metric(runs, run->names[i]))
            continue;
        out->metric = scores++ ? out->metric : run->names[i];
    }
    if (scores > 1)
        xr_errors_add(&out->notes,
                      "the verdict is on %s alone; %zu more validation scores "
                      "were measured (--metric chooses)",
                      out->metric, scores - 1);
    if (!out->metric && all_runs_have_metric(runs, REWARD)) {
        out->metric = REWARD;
        xr_errors_add(
            &out->notes,
            "no validation score is in all runs, so the verdict is on the mean "
            "reward of the last step, which rests on few samples");
    }
    return out->metric ? XRAY_OK
                       : xr_fail(err, XRAY_E_CONFIG,
                                 "no validation score and no " REWARD
                                 " is in all runs; --metric names another");
}

/* ---- values ------------------------------------------------------------- */

static xray_status collect_final_values(xr_comparison *c, xr_err *err)
{
    const xr_runs *runs = c->runs;
    uint64_t first = 0;
    int same = 1;
    c->finals = xr_calloc(runs->count, sizeof(*c->finals));
    c->steps = xr_calloc(runs->count, sizeof(*c->steps));
    if (!c->finals || !c->steps)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for values");
    for (size_t v = 0; v < runs->count; v++) {
        const xr_variant *variant = &runs->variants[v];
        c->finals[v] = xr_calloc(variant->count + 1, sizeof(double));
        c->steps[v] = xr_calloc(variant->count + 1, sizeof(uint64_t));
        if (!c->finals[v] || !c->steps[v])
            return xr_fail(err, XRAY_E_NOMEM, "out of memory for values");
        for (size_t i = 0; i < variant->count; i++) {
            const xr_ab_run *run = &variant->runs[i];
            const xr_line *line = xr_ab_run_last(run, c->metric);
            c->finals[v][i] = xr_ab_run_value(run, line, c->metric);
            c->steps[v][i] = line->step;
            first = v + i ? first : line->step;
            same &= line->step == first;
        }
    }
    if (!same)
        xr_errors_add(&c->notes,
                      "the last values are not all from the same step: a run "
                      "that trained longer has an advantage");
    return XRAY_OK;
}

/* ---- pairs -------------------------------------------------------------- */

/* Pairs runs of the same seed; each run is used at most once. */
static size_t match_seeds(const xr_variant *a, const xr_variant *b,
                          xr_contrast *out)
{
    size_t pairs = 0;
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < b->count; k++) {
            int used = 0;
            for (size_t p = 0; p < pairs; p++)
                used |= out->b_run[p] == k;
            if (used || a->runs[i].seed != b->runs[k].seed)
                continue;
            out->seeds[pairs] = a->runs[i].seed;
            out->a_run[pairs] = i;
            out->b_run[pairs++] = k;
            break;
        }
    return pairs;
}

static xray_status pair_runs_by_seed(const xr_variant *a, const xr_variant *b,
                                     xr_comparison *c, xr_contrast *out,
                                     xr_err *err)
{
    size_t most = a->count > b->count ? a->count : b->count;
    out->seeds = xr_calloc(a->count + 1, sizeof(*out->seeds));
    out->a_run = xr_calloc(a->count + 1, sizeof(*out->a_run));
    out->b_run = xr_calloc(a->count + 1, sizeof(*out->b_run));
    out->divergences = xr_calloc(a->count + 1, sizeof(*out->divergences));
    if (!out->seeds || !out->a_run || !out->b_run || !out->divergences)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for pairs");
    out->count = match_seeds(a, b, out);
    out->paired = out->count > 0 && 2 * out->count >= most;
    if (!out->paired && a->count && b->count)
        xr_errors_add(&c->notes,
                      "%s and %s were not run with the same seeds, so they are "
                      "compared unpaired, by Welch's t interval",
                      a->name, b->name);
    else if (out->count < most)
        xr_errors_add(&c->notes,
                      "%s and %s: %zu of %zu runs have a partner of their "
                      "seed; the others are left out of the difference",
                      a->name, b->name, out->count, most);
    return XRAY_OK;
}

static xray_status compute_difference(const xr_comparison *c, xr_contrast *out,
                                      xr_err *err)
{
    const xr_runs *runs = c->runs;
    if (!out->paired) {
        out->difference = xr_difference_welch(
            c->finals[0], runs->variants[0].count, c->finals[out->variant],
            runs->variants[out->variant].count);
        return XRAY_OK;
    }
    double *both = xr_calloc(2 * out->count + 1, sizeof(*both));
    if (!both)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for differences");
    for (size_t i = 0; i < out->count; i++) {
        both[i] = c->finals[0][out->a_run[i]];
        both[out->count + i] = c->finals[out->variant][out->b_run[i]];
    }
    out->difference = xr_difference_paired(both, both + out->count, out->count);
    free(both);
    return XRAY_OK;
}

static xray_status compare_variant(xr_comparison *c, size_t variant,
                                   xr_err *err)
{
    const xr_variant *a = &c->runs->variants[0];
    const xr_variant *b = &c->runs->variants[variant];
    xr_contrast *out = &c->contrasts[variant - 1];
    out->variant = variant;
    xray_status status = pair_runs_by_seed(a, b, c, out, err);
    if (status == XRAY_OK)
        status = compute_difference(c, out, err);
    for (size_t i = 0; status == XRAY_OK && i < out->count; i++)
        status =
            xr_divergence_find(&a->runs[out->a_run[i]], &b->runs[out->b_run[i]],
                               err, &out->divergences[i]);
    if (status == XRAY_OK)
        xr_note_unshared_settings(a, b, &c->notes);
    return status;
}

/* ---- verdicts ----------------------------------------------------------- */

static xray_status judge_contrasts(xr_comparison *c, xr_err *err)
{
    size_t count = c->runs->count - 1;
    double *p = xr_calloc(3 * count, sizeof(*p));
    if (!p)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for verdicts");
    for (size_t i = 0; i < count; i++)
        p[i] = c->contrasts[i].difference.p;
    xr_holm(p, count, p + count, p + 2 * count);
    for (size_t i = 0; i < count; i++) {
        xr_contrast *one = &c->contrasts[i];
        one->adjusted = p[count + i];
        one->alpha = p[2 * count + i];
        xr_difference_bounds(&one->difference, one->alpha, &one->low,
                             &one->high);
        int holds = !(one->low > 0 || one->high < 0);
        if (!holds && one->adjusted <= XR_ALPHA)
            one->verdict = (one->difference.mean > 0) == !c->lower
                               ? XR_VARIANT_WINS
                               : XR_BASE_WINS;
    }
    free(p);
    return XRAY_OK;
}

/* Runs of a variant should differ in nothing but their seed. */
static void note_mixed_settings(const xr_variant *v, xr_errors *notes)
{
    const char *a = NULL;
    const char *b = NULL;
    for (size_t i = 1; i < v->count; i++) {
        const char *key = xr_settings_differ(&v->runs[0].settings,
                                             &v->runs[i].settings, &a, &b);
        if (!key)
            continue;
        xr_errors_add(notes,
                      "%s: its runs do not all have the same settings: %s is "
                      "%s, and %s with %s",
                      v->name, key, a ? a : "not set", b ? b : "not set",
                      v->runs[i].label);
        return;
    }
}

xray_status xr_compare(const xr_runs *runs, const char *metric, int lower,
                       xr_err *err, xr_comparison *out)
{
    *out = (xr_comparison){ .runs = runs, .lower = lower };
    if (runs->count < 2)
        return xr_fail(err, XRAY_E_CONFIG,
                       "a comparison needs two variants, but there is %s",
                       runs->count ? "one: all runs have the same settings"
                                   : "none");
    xray_status status = choose_metric(runs, metric, out, err);
    if (status == XRAY_OK)
        status = collect_final_values(out, err);
    if (status == XRAY_OK) {
        out->contrasts = xr_calloc(runs->count - 1, sizeof(*out->contrasts));
        if (!out->contrasts)
            status = xr_fail(err, XRAY_E_NOMEM, "out of memory for verdicts");
    }
    for (size_t v = 1; status == XRAY_OK && v < runs->count; v++)
        status = compare_variant(out, v, err);
    for (size_t v = 0; status == XRAY_OK && v < runs->count; v++)
        note_mixed_settings(&runs->variants[v], &out->notes);
    if (status == XRAY_OK)
        status = judge_contrasts(out, err);
    if (status != XRAY_OK)
        xr_comparison_free(out);
    return status;
}

void xr_comparison_free(xr_comparison *c)
{
    for (size_t v = 0; c->runs && v < c->runs->count; v++) {
        if (c->finals)
            free(c->finals[v]);
        if (c->steps)
            free(c->steps[v]);
        if (!v || !c->contrasts)
            continue;
        free(c->contrasts[v - 1].seeds);
        free(c->contrasts[v - 1].a_run);
        free(c->contrasts[v - 1].b_run);
        free(c->contrasts[v - 1].divergences);
    }
    free(c->finals);
    free(c->steps);
    free(c->contrasts);
    xr_errors_free(&c->notes);
    *c = (xr_comparison){ .runs = NULL };
}

/* ---- sentences ---------------------------------------------------------- */

const char *xr_judged_name(int judged)
{
    static const char *const names[] = { "none", "paired t", "Welch t",
                                         "exact signs", "exact labels" };
    return names[judged];
}

const char *xr_better(const xr_comparison *c)
{
    return c->lower ? "lower is better" : "higher is better";
}

static void put_exact_verdict(const xr_contrast *one, xr_str *out)
{
    const xr_difference *d = &one->difference;
    if (fabs(d->mean) <= 0) {
        xr_str_puts(out, "no difference shown: every value is equal");
        return;
    }
    xr_str_printf(out,
                  "no difference shown: the values do not scatter, so there is "
                  "no interval, and the exact test of %s over %zu runs gives "
                  "p = %.3g; more seeds could decide",
                  d->judged == XR_JUDGED_SIGNS ? "signs" : "labels", d->pairs,
                  one->adjusted);
}

void xr_verdict(const xr_comparison *c, size_t contrast, xr_str *out)
{
    const xr_contrast *one = &c->contrasts[contrast];
    const xr_difference *d = &one->difference;
    const char *base = c->runs->variants[0].name;
    const char *variant = c->runs->variants[one->variant].name;
    double level = 100 * (1 - one->alpha);
    if (d->judged == XR_JUDGED_NOT) {
        xr_str_printf(
            out,
            "%s against %s: no verdict: an interval needs two runs of each",
            variant, base);
    } else if (one->verdict == XR_NO_DIFFERENCE) {
        xr_str_printf(out, "%s against %s: ", variant, base);
        if (d->error > 0)
            xr_str_printf(out,
                          "no difference shown: the %.4g %% interval [%.4g, "
                          "%.4g] contains zero",
                          level, one->low, one->high);
        else
            put_exact_verdict(one, out);
    } else {
        int won = one->verdict == XR_VARIANT_WINS;
        xr_str_printf(out, "%s is better than %s: ", won ? variant : base,
                      won ? base : variant);
        if (d->error > 0)
            xr_str_printf(out,
                          "%s minus %s is %+.4g, and the %.4g %% interval "
                          "[%.4g, %.4g] excludes zero",
                          variant, base, d->mean, level, one->low, one->high);
        else
            xr_str_printf(out,
                          "%s minus %s is %+.4g without scatter, and the "
                          "exact test gives p = %.3g",
                          variant, base, d->mean, one->adjusted);
    }
}
