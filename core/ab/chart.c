/* SPDX-License-Identifier: Apache-2.0
 *
 * Plots charts as inline SVG, with colours from CSS classes so that a page
 * follows the reader's light or dark scheme.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ab/page.h"

/* Sizes in SVG units; the page scales them. */
static const double WIDTH = 540;
static const double LEFT = 58;
static const double RIGHT = 14;
static const double TOP = 12;
static const double BOTTOM = 42;

typedef struct axis {
    double from; /* of the values */
    double to;
    double at; /* of the picture, in SVG units */
    double end;
    double tick; /* distance of ticks */
} axis;

static double position_on_axis(const axis *a, double value)
{
    return a->at + (value - a->from) / (a->to - a->from) * (a->end - a->at);
}

/* 1, 2 or 5 times a power of ten, so that about `ticks` ticks fit. */
static double choose_tick_distance(double range, double ticks)
{
    double raw = range / ticks;
    double power = pow(10, floor(log10(raw)));
    double part = raw / power;
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10);
}

/* An axis around the values, from tick to tick unless `tight`. A range of one
 * value is widened. */
static axis fit_axis(double low, double high, double ticks, int tight)
{
    axis a;
    if (!(high > low)) {
        double margin = fabs(low) > 0 ? fabs(low) * 0.1 : 1;
        low -= margin;
        high += margin;
    }
    a.tick = choose_tick_distance(high - low, ticks);
    a.from = tight ? low : floor(low / a.tick + 1e-9) * a.tick;
    a.to = tight ? high : ceil(high / a.tick - 1e-9) * a.tick;
    a.at = 0;
    a.end = 1;
    return a;
}

/* Writes 12000 as 12k, with as many digits as the distance of ticks needs. */
static void put_tick_label(double value, double tick, xr_str *out)
{
    static const struct {
        double size;
        const char *unit;
    } units[] = { { 1e9, "G" }, { 1e6, "M" }, { 1e3, "k" }, { 1, "" } };
    size_t u = 0;
    double most = fmax(fabs(value), tick);
    while (u < 3 && most < units[u].size * (u == 2 ? 10 : 1))
        u++;
    double shown = value / units[u].size;
    int digits = (int)ceil(-log10(tick / units[u].size) - 1e-9);
    digits = digits < 0 ? 0 : digits > 9 ? 9 : digits;
    if (fabs(shown) < 1e-12)
        shown = 0;
    xr_str_printf(out, "%.*f%s", digits, shown,
                  shown != 0 ? units[u].unit : "");
}

/* The number of ticks on the axis, and the value of the first one. */
static size_t count_ticks(const axis *a, double *out_first)
{
    *out_first = ceil(a->from / a->tick - 1e-9) * a->tick;
    double more = (a->to - *out_first) / a->tick + 1e-9;
    return more >= 0 && more < 1000 ? (size_t)more + 1 : 0;
}

static void put_x_axis(const axis *x, double bottom, const char *label,
                       xr_str *out)
{
    double first = 0;
    size_t ticks = count_ticks(x, &first);
    for (size_t i = 0; i < ticks; i++) {
        double value = first + (double)i * x->tick;
        double at = position_on_axis(x, value);
        xr_str_printf(out,
                      "<line class=\"tick\" x1=\"%.2f\" y1=\"%.2f\" "
                      "x2=\"%.2f\" y2=\"%.2f\"/><text x=\"%.2f\" y=\"%.2f\" "
                      "text-anchor=\"middle\">",
                      at, bottom, at, bottom + 4, at, bottom + 17);
        put_tick_label(value, x->tick, out);
        xr_str_puts(out, "</text>\n");
    }
    xr_str_printf(out,
                  "<text class=\"label\" x=\"%.2f\" y=\"%.2f\" "
                  "text-anchor=\"middle\">",
                  (x->at + x->end) / 2, bottom + 35);
    xr_page_text(label, out);
    xr_str_puts(out, "</text>\n");
}

static void put_y_axis(const axis *y, xr_str *out)
{
    double first = 0;
    size_t ticks = count_ticks(y, &first);
    for (size_t i = 0; i < ticks; i++) {
        double value = first + (double)i * y->tick;
        double at = position_on_axis(y, value);
        xr_str_printf(out,
                      "<line class=\"grid\" x1=\"%.2f\" y1=\"%.2f\" "
                      "x2=\"%.2f\" y2=\"%.2f\"/><text x=\"%.2f\" y=\"%.2f\" "
                      "text-anchor=\"end\">",
                      LEFT, at, WIDTH - RIGHT, at, LEFT - 7, at + 4);
        put_tick_label(value, y->tick, out);
        xr_str_puts(out, "</text>\n");
    }
}

static void begin_svg(double height, const char *what, xr_str *out)
{
    xr_str_printf(out,
                  "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"",
                  WIDTH, height);
    xr_page_text(what, out);
    xr_str_puts(out, "\">\n");
}

/* ---- curves ------------------------------------------------------------- */

static const double *x_values_of(const xr_series *s, int over)
{
    if (over == XR_OVER_TOKENS)
        return s->tokens;
    return over == XR_OVER_SECONDS ? s->seconds : s->step;
}

static void put_series_curve(const xr_series *s, const axis *x, const axis *y,
                             int over, xr_str *out)
{
    const double *xs = x_values_of(s, over);
    xr_str_puts(out, "<polygon class=\"band\" points=\"");
    for (size_t i = 0; i < s->count; i++)
        xr_str_printf(out, "%.2f,%.2f ", position_on_axis(x, xs[i]),
                      position_on_axis(y, s->high[i]));
    for (size_t i = s->count; i > 0; i--)
        xr_str_printf(out, "%.2f,%.2f%s", position_on_axis(x, xs[i - 1]),
                      position_on_axis(y, s->low[i - 1]), i > 1 ? " " : "");
    xr_str_puts(out, "\"/>\n<polyline class=\"curve\" points=\"");
    for (size_t i = 0; i < s->count; i++)
        xr_str_printf(out, "%s%.2f,%.2f", i ? " " : "",
                      position_on_axis(x, xs[i]),
                      position_on_axis(y, s->mean[i]));
    xr_str_puts(out, "\"/>\n");
    for (size_t i = 0; s->count <= 25 && i < s->count; i++)
        xr_str_printf(out,
                      "<circle class=\"dot\" cx=\"%.2f\" cy=\"%.2f\" "
                      "r=\"2.6\"/>\n",
                      position_on_axis(x, xs[i]),
                      position_on_axis(y, s->mean[i]));
}

void xr_page_curves(const xr_series *series, const xr_runs *runs,
                    const char *metric, int over, xr_str *out)
{
    static const char *const labels[] = { "step", "tokens", "seconds" };
    const double height = 270;
    double range[4] = { INFINITY, -INFINITY, INFINITY, -INFINITY };
    for (size_t v = 0; v < runs->count; v++)
        for (size_t i = 0; i < series[v].count; i++) {
            double at = x_values_of(&series[v], over)[i];
            range[0] = fmin(range[0], at);
            range[1] = fmax(range[1], at);
            range[2] = fmin(range[2], series[v].low[i]);
            range[3] = fmax(range[3], series[v].high[i]);
        }
    if (!isfinite(range[0]) || !isfinite(range[2]) || !isfinite(range[3]))
        return;
    axis x = fit_axis(range[0], range[1], 6, range[1] > range[0]);
    axis y = fit_axis(range[2], range[3], 5, 0);
    x.at = LEFT;
    x.end = WIDTH - RIGHT;
    y.at = height - BOTTOM;
    y.end = TOP;
    xr_str_puts(out, "<figure>\n<figcaption>");
    xr_page_text(metric, out);
    xr_str_printf(out, " over %s</figcaption>\n",
                  over == XR_OVER_STEPS ? "steps" : labels[over]);
    begin_svg(height, metric, out);
    put_y_axis(&y, out);
    put_x_axis(&x, height - BOTTOM, labels[over], out);
    for (size_t v = 0; v < runs->count; v++) {
        if (!series[v].count)
            continue;
        xr_str_printf(out, "<g class=\"c%zu\">\n", v % XR_COLOURS);
        put_series_curve(&series[v], &x, &y, over, out);
        xr_str_puts(out, "</g>\n");
    }
    xr_str_puts(out, "</svg>\n</figure>\n");
}

/* ---- differences -------------------------------------------------------- */

static double pair_difference(const xr_comparison *c, const xr_contrast *one,
                              size_t i)
{
    return c->finals[one->variant][one->b_run[i]] - c->finals[0][one->a_run[i]];
}

static void widen_range(double value, double *low, double *high)
{
    if (isnan(value))
        return;
    *low = fmin(*low, value);
    *high = fmax(*high, value);
}

static void put_difference_row(const xr_comparison *c, const xr_contrast *one,
                               const axis *x, double y, xr_str *out)
{
    double mean = position_on_axis(x, one->difference.mean);
    if (isnan(mean))
        return;
    xr_str_printf(out,
                  "<g class=\"c%zu\"><text class=\"name\" x=\"%.2f\" "
                  "y=\"%.2f\">",
                  one->variant % XR_COLOURS, LEFT + 8, y - 14);
    xr_page_text(c->runs->variants[one->variant].name, out);
    xr_str_puts(out, "</text>\n");
    if (!isnan(one->low))
        xr_str_printf(out,
                      "<line class=\"bar\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                      "y2=\"%.2f\"/>\n",
                      position_on_axis(x, one->low), y,
                      position_on_axis(x, one->high), y);
    for (size_t i = 0; one->paired && i < one->count; i++)
        xr_str_printf(out,
                      "<circle class=\"ring\" cx=\"%.2f\" cy=\"%.2f\" "
                      "r=\"4\"><title>seed %lld</title></circle>\n",
                      position_on_axis(x, pair_difference(c, one, i)), y,
                      (long long)one->seeds[i]);
    xr_str_printf(out,
                  "<line class=\"mean\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                  "y2=\"%.2f\"/></g>\n",
                  mean, y - 8, mean, y + 8);
}

void xr_page_differences(const xr_comparison *c, xr_str *out)
{
    const double row = 46;
    size_t rows = c->runs->count - 1;
    double height = TOP + row * (double)rows + BOTTOM;
    double low = 0;
    double high = 0;
    for (size_t v = 0; v < rows; v++) {
        const xr_contrast *one = &c->contrasts[v];
        widen_range(one->difference.mean, &low, &high);
        widen_range(one->low, &low, &high);
        widen_range(one->high, &low, &high);
        for (size_t i = 0; one->paired && i < one->count; i++)
            widen_range(pair_difference(c, one, i), &low, &high);
    }
    axis x = fit_axis(low, high, 6, 0);
    x.at = LEFT;
    x.end = WIDTH - RIGHT;
    xr_str_puts(out, "<figure>\n<figcaption>Difference from ");
    xr_page_text(c->runs->variants[0].name, out);
    xr_str_puts(out,
                ": a ring per seed, the mean and its interval</figcaption>\n");
    begin_svg(height, "differences from the base", out);
    xr_str_printf(out,
                  "<line class=\"zero\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                  "y2=\"%.2f\"/>\n",
                  position_on_axis(&x, 0), TOP, position_on_axis(&x, 0),
                  height - BOTTOM);
    for (size_t v = 0; v < rows; v++)
        put_difference_row(c, &c->contrasts[v], &x,
                           TOP + row * ((double)v + 0.65), out);
    xr_str_printf(out,
                  "<line class=\"tick\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" "
                  "y2=\"%.2f\"/>\n",
                  LEFT, height - BOTTOM, WIDTH - RIGHT, height - BOTTOM);
    put_x_axis(&x, height - BOTTOM, "difference", out);
    xr_str_puts(out, "</svg>\n</figure>\n");
}
