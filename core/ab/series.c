/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the learning curves of a variant and the cost of its steps.
 */
#include <math.h>
#include <stdlib.h>

#include "core/ab/compare.h"

/* ---- curves ------------------------------------------------------------- */

static const xr_line *find_line_of_step(const xr_ab_run *run, uint64_t step)
{
    size_t low = 0;
    size_t high = run->line_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (run->lines[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->line_count && run->lines[low].step == step
               ? &run->lines[low]
               : NULL;
}

static int all_runs_have_step(const xr_variant *v, uint64_t step,
                              const char *metric)
{
    for (size_t i = 0; i < v->count; i++) {
        const xr_line *line = find_line_of_step(&v->runs[i], step);
        if (!line || isnan(xr_ab_run_value(&v->runs[i], line, metric)))
            return 0;
    }
    return 1;
}

/* The sum of a metric over the lines up to `step`, averaged over the runs. */
static double mean_sum_until(const xr_variant *v, uint64_t step,
                             const char *metric)
{
    double sum = 0;
    for (size_t r = 0; r < v->count; r++) {
        const xr_ab_run *run = &v->runs[r];
        for (size_t i = 0; i < run->line_count; i++) {
            double value = xr_ab_run_value(run, &run->lines[i], metric);
            if (run->lines[i].step <= step && !isnan(value))
                sum += value;
        }
    }
    return sum / (double)v->count;
}

static xray_status allocate_series(size_t points, xr_series *out, xr_err *err)
{
    *out = (xr_series){ .count = points };
    out->step = xr_calloc(6 * points + 1, sizeof(double));
    if (!out->step)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for curves");
    out->mean = out->step + points;
    out->low = out->mean + points;
    out->high = out->low + points;
    out->seconds = out->high + points;
    out->tokens = out->seconds + points;
    return XRAY_OK;
}

/* The steps that all runs have, thinned evenly from the last one backwards. */
static xray_status choose_series_steps(const xr_variant *v, const char *metric,
                                       xr_series *out, xr_err *err)
{
    const xr_ab_run *first = &v->runs[0];
    uint64_t *steps = xr_calloc(first->line_count + 1, sizeof(*steps));
    size_t found = 0;
    if (!steps)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for curves");
    for (size_t i = 0; i < first->line_count; i++)
        if (all_runs_have_step(v, first->lines[i].step, metric))
            steps[found++] = first->lines[i].step;
    size_t every = (found + XR_SERIES_MAX - 1) / XR_SERIES_MAX;
    size_t points = found ? (found - 1) / every + 1 : 0;
    xray_status status = allocate_series(points, out, err);
    for (size_t i = 0; status == XRAY_OK && i < points; i++)
        out->step[points - 1 - i] = (double)steps[found - 1 - i * every];
    free(steps);
    return status;
}

static void compute_series_point(const xr_variant *v, const char *metric,
                                 size_t i, double *values, xr_series *out)
{
    uint64_t step = (uint64_t)out->step[i];
    double sum = 0;
    for (size_t r = 0; r < v->count; r++) {
        const xr_ab_run *run = &v->runs[r];
        double value =
            xr_ab_run_value(run, find_line_of_step(run, step), metric);
        values[r * out->count + i] = value;
        sum += value;
    }
    out->mean[i] = out->low[i] = out->high[i] = sum / (double)v->count;
    out->seconds[i] = mean_sum_until(v, step, "timing_s/step");
    out->tokens[i] = mean_sum_until(v, step, "perf/total_num_tokens");
}

xray_status xr_series_make(const xr_variant *variant, const char *metric,
                           xr_err *err, xr_series *out)
{
    *out = (xr_series){ .count = 0 };
    if (!variant->count)
        return XRAY_OK;
    xray_status status = choose_series_steps(variant, metric, out, err);
    double *values =
        status == XRAY_OK
            ? xr_calloc(variant->count * out->count + 1, sizeof(*values))
            : NULL;
    if (status == XRAY_OK && !values)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for curves");
    for (size_t i = 0; status == XRAY_OK && i < out->count; i++)
        compute_series_point(variant, metric, i, values, out);
    if (status == XRAY_OK && variant->count > 1)
        status = xr_bootstrap_bands(values, variant->count, out->count,
                                    out->low, out->high, err);
    free(values);
    if (status != XRAY_OK)
        xr_series_free(out);
    return status;
}

void xr_series_free(xr_series *series)
{
    free(series->step);
    *series = (xr_series){ .count = 0 };
}

/* ---- cost --------------------------------------------------------------- */

static size_t count_all_lines(const xr_variant *v)
{
    size_t lines = 0;
    for (size_t i = 0; i < v->count; i++)
        lines += v->runs[i].line_count;
    return lines;
}

static double median_over_steps(const xr_variant *v, const char *metric,
                                double *scratch)
{
    size_t count = 0;
    for (size_t r = 0; r < v->count; r++)
        for (size_t i = 0; i < v->runs[r].line_count; i++) {
            double value =
                xr_ab_run_value(&v->runs[r], &v->runs[r].lines[i], metric);
            if (!isnan(value))
                scratch[count++] = value;
        }
    return xr_median(scratch, count);
}

static double median_over_runs(const xr_variant *v, const char *metric,
                               double *scratch)
{
    for (size_t r = 0; r < v->count; r++) {
        const xr_variant one = { .runs = &v->runs[r], .count = 1 };
        scratch[r] = mean_sum_until(&one, UINT64_MAX, metric);
    }
    return xr_median(scratch, v->count);
}

xray_status xr_cost_of(const xr_variant *variant, xr_err *err, xr_cost *out)
{
    double *scratch = xr_calloc(count_all_lines(variant) + 1, sizeof(*scratch));
    if (!scratch)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for times");
    *out = (xr_cost){
        .step_seconds = median_over_steps(variant, "timing_s/step", scratch),
        .tokens_per_second =
            median_over_steps(variant, "perf/throughput", scratch),
        .gen_seconds = median_over_steps(variant, "timing_s/gen", scratch),
        .update_seconds =
            median_over_steps(variant, "timing_s/update_actor", scratch),
        .run_seconds = median_over_runs(variant, "timing_s/step", scratch),
        .run_tokens =
            median_over_runs(variant, "perf/total_num_tokens", scratch),
    };
    free(scratch);
    return XRAY_OK;
}
