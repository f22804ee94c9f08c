/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots values as text with axis labels.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/monitor/monitor.h"

/* Returns the mean of the values that fall into a column; NaN if none does. */
static double column_mean(const double *values, size_t count, size_t column,
                          size_t columns)
{
    size_t first = column * count / columns;
    size_t last = (column + 1) * count / columns;
    double sum = 0.0;
    size_t seen = 0;
    for (size_t i = first; i < last; i++) {
        if (isfinite(values[i])) {
            sum += values[i];
            seen++;
        }
    }
    return seen ? sum / (double)seen : (double)NAN;
}

static void find_range(const double *means, size_t columns, double *out_low,
                       double *out_high)
{
    double low = INFINITY;
    double high = -INFINITY;
    for (size_t i = 0; i < columns; i++) {
        low = means[i] < low ? means[i] : low;
        high = means[i] > high ? means[i] : high;
    }
    if (low == high) { /* a flat line runs through the middle */
        double margin = low == 0.0 ? 1.0 : fabs(low) * 0.5;
        low -= margin;
        high += margin;
    }
    *out_low = low;
    *out_high = high;
}

static void append_plot_rows(const double *means, size_t columns,
                             unsigned height, xr_str *out)
{
    double low;
    double high;
    find_range(means, columns, &low, &high);
    for (unsigned row = 0; row < height; row++) {
        unsigned level = height - 1 - row;
        double at = low + (high - low) * level / (double)(height - 1);
        if (row == 0 || level == 0 || level == (height - 1) / 2)
            xr_str_printf(out, "%10.4g |", at);
        else
            xr_str_puts(out, "           |");
        size_t end = out->size;
        for (size_t c = 0; c < columns; c++) {
            double height_of_mean =
                (means[c] - low) / (high - low) * (height - 1);
            int hit = isfinite(height_of_mean) &&
                      (unsigned)lround(height_of_mean) == level;
            xr_str_append(out, hit ? "*" : " ", 1);
            end = hit ? out->size : end;
        }
        if (!out->failed) {
            out->size = end; /* lines do not end with blanks */
            out->data[end] = '\0';
        }
        xr_str_append(out, "\n", 1);
    }
}

/* Appends the indices of the first and the last value under their columns. */
static void append_axis_labels(size_t count, size_t columns, xr_str *out)
{
    char last[24];
    int digits = snprintf(last, sizeof last, "%zu", count);
    int gap = (int)columns - 1 - digits;
    xr_str_puts(out, "\n            1");
    if (count > 1)
        xr_str_printf(out, "%*s%s", gap > 1 ? gap : 1, "", last);
    xr_str_append(out, "\n", 1);
}

void xr_plot(const double *values, size_t count, unsigned width,
             unsigned height, const char *label, xr_str *out)
{
    size_t finite = 0;
    for (size_t i = 0; i < count; i++)
        finite += isfinite(values[i]) != 0;
    xr_str_printf(out, "%s\n", label);
    if (!finite || !width || height < 2) {
        xr_str_puts(out, "  (no values)\n");
        return;
    }
    size_t columns = count < width ? count : width;
    double *means = xr_calloc(columns, sizeof *means);
    if (!means) {
        out->failed = 1;
        return;
    }
    for (size_t c = 0; c < columns; c++)
        means[c] = column_mean(values, count, c, columns);
    append_plot_rows(means, columns, height, out);
    free(means);
    xr_str_puts(out, "           +");
    for (size_t c = 0; c < columns; c++)
        xr_str_append(out, "-", 1);
    append_axis_labels(count, columns, out);
}
