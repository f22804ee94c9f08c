/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a comparison as an HTML page that needs no other file.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ab/page.h"

#define MOST_CURVES 4u

static const char style[] =
    ":root{color-scheme:light dark;--bg:#ffffff;--fg:#1c2024;--dim:#5c6570;"
    "--edge:#d9dee4;--card:#f5f7f9;--c0:#56616d;--c1:#0b6bcb;--c2:#b3500a;"
    "--c3:#10764f;--c4:#8b3fa8;--c5:#a8324a;--c6:#5d6b00;--c7:#00717f}\n"
    "@media (prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e6e9ed;"
    "--dim:#9aa4af;--edge:#333a42;--card:#1d2228;--c0:#a7b1bc;--c1:#62b0ff;"
    "--c2:#ff9d5c;--c3:#4fce9b;--c4:#d493ee;--c5:#ff8da1;--c6:#c6d24f;"
    "--c7:#4fd0de}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--bg);color:var(--fg);"
    "font:15px/1.5 system-ui,sans-serif}\n"
    "main{max-width:1160px;margin:0 auto;padding:28px 20px 60px}\n"
    "h1{font-size:26px;line-height:1.25;margin:0 0 4px}\n"
    "h2{font-size:18px;margin:38px 0 10px;padding-top:14px;"
    "border-top:1px solid var(--edge)}\n"
    "p{margin:6px 0;max-width:78ch}\n.dim{color:var(--dim)}\n"
    "code,pre,td.mono{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,"
    "monospace;font-size:13px}\n"
    ".verdict{margin:10px 0;padding:10px 14px;background:var(--card);"
    "border-left:5px solid var(--edge);border-radius:4px;max-width:none}\n"
    ".wins{border-left-color:var(--c)}\n.wide{overflow-x:auto}\n"
    "table{border-collapse:collapse;margin:8px 0}\n"
    "th,td{padding:4px 12px 4px 0;text-align:right;vertical-align:top;"
    "border-bottom:1px solid var(--edge)}\n"
    "th{font-weight:600;color:var(--dim);white-space:nowrap}\n"
    "td{font-variant-numeric:tabular-nums}\n"
    ".left,th.left{text-align:left}\n"
    ".key{display:inline-block;width:11px;height:11px;border-radius:3px;"
    "background:var(--c);margin-right:7px}\n"
    ".legend span.item{margin-right:20px;white-space:nowrap}\n"
    ".figures{display:grid;gap:18px;"
    "grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr))}\n"
    "figure{margin:6px 0;min-width:0;max-width:640px}\n"
    "figcaption{font-size:13px;color:var(--dim);overflow-wrap:anywhere}\n"
    "svg{width:100%;height:auto;display:block}\n"
    "svg text{fill:var(--dim);font-size:12px}\n"
    "svg text.name{fill:var(--fg);stroke:var(--bg);stroke-width:4px;"
    "paint-order:stroke}\n"
    ".tables{display:flex;flex-wrap:wrap;gap:8px 48px}\n"
    "svg .grid{stroke:var(--edge)}\nsvg .tick{stroke:var(--dim)}\n"
    "svg .zero{stroke:var(--dim);stroke-dasharray:4 3}\n"
    "svg .curve{fill:none;stroke:var(--c);stroke-width:2;"
    "stroke-linejoin:round}\n"
    "svg .band{fill:var(--c);opacity:.18}\nsvg .dot{fill:var(--c)}\n"
    "svg .bar{stroke:var(--c);stroke-width:9;opacity:.28}\n"
    "svg .mean{stroke:var(--c);stroke-width:3}\n"
    "svg .ring{fill:none;stroke:var(--c);stroke-width:1.6}\n"
    ".samples{table-layout:fixed;width:100%;min-width:640px}\n"
    ".samples td,.samples th{text-align:left;padding-right:16px}\n"
    "pre{margin:0;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    "li{max-width:90ch}\n";

/* ---- cells -------------------------------------------------------------- */

static void put_number_cell(double value, xr_str *out)
{
    xr_str_puts(out, "<td>");
    xr_page_number(value, out);
    xr_str_puts(out, "</td>");
}

static void put_change_cell(double value, xr_str *out)
{
    if (isnan(value))
        put_number_cell(value, out);
    else
        xr_str_printf(out, "<td>%+.4g</td>", value);
}

static void put_name_cell(const xr_runs *runs, size_t variant, xr_str *out)
{
    xr_str_puts(out, "<td class=\"left\">");
    xr_page_name(runs, variant, out);
    xr_str_puts(out, "</td>");
}

static void put_legend(const xr_runs *runs, xr_str *out)
{
    xr_str_puts(out, "<p class=\"legend\">");
    for (size_t v = 0; v < runs->count; v++) {
        xr_str_puts(out, "<span class=\"item\">");
        xr_page_name(runs, v, out);
        xr_str_puts(out, "</span>");
    }
    xr_str_puts(out, "</p>\n");
}

/* ---- head and verdicts -------------------------------------------------- */

static void put_page_head(const xr_comparison *c, xr_str *out)
{
    const xr_runs *runs = c->runs;
    xr_str_puts(out,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n"
                "<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" "
                "content=\"width=device-width, initial-scale=1\"/>\n<title>");
    for (size_t v = 0; v < runs->count; v++) {
        xr_str_puts(out, v ? ", " : "");
        xr_page_text(runs->variants[v].name, out);
    }
    xr_str_puts(out, " compared</title>\n<style>\n");
    xr_str_puts(out, style);
    for (unsigned i = 0; i < XR_COLOURS; i++)
        xr_str_printf(out, ".c%u{--c:var(--c%u)}\n", i, i);
    xr_str_puts(out, "</style>\n</head>\n<body>\n<main>\n<h1>");
    for (size_t v = 1; v < runs->count; v++) {
        xr_str_puts(out, v > 1 ? ", " : "");
        xr_page_text(runs->variants[v].name, out);
    }
    xr_str_puts(out, " against ");
    xr_page_text(runs->variants[0].name, out);
    xr_str_puts(out, "</h1>\n<p class=\"dim\"><code>");
    xr_page_text(c->metric, out);
    xr_str_printf(out, "</code>, the last of each run; %s</p>\n", xr_better(c));
    for (size_t i = 0; i + 1 < runs->count; i++) {
        xr_str text = { 0 };
        const xr_contrast *one = &c->contrasts[i];
        size_t winner = one->verdict == XR_VARIANT_WINS ? one->variant : 0;
        xr_verdict(c, i, &text);
        xr_str_printf(out, "<p class=\"verdict%s c%zu\">",
                      one->verdict == XR_NO_DIFFERENCE ? "" : " wins",
                      winner % XR_COLOURS);
        xr_page_text(xr_str_text(&text), out);
        xr_str_puts(out, "</p>\n");
        out->failed |= text.failed;
        xr_str_free(&text);
    }
}

static void put_message_list(const char *title, const xr_errors *list,
                             xr_str *out)
{
    if (!list->count)
        return;
    xr_str_printf(out, "<h2>%s</h2>\n<ul>\n", title);
    for (size_t i = 0; i < list->count; i++) {
        xr_str_puts(out, "<li>");
        xr_page_text(list->items[i], out);
        xr_str_puts(out, "</li>\n");
    }
    xr_str_puts(out, "</ul>\n");
}

/* ---- values ------------------------------------------------------------- */

static void put_final_values(const xr_comparison *c, xr_str *out)
{
    xr_str_puts(out, "<h2>Final values</h2>\n<div class=\"wide\"><table>\n<tr>"
                     "<th class=\"left\">variant</th><th>runs</th><th>mean</th>"
                     "<th>sd</th><th>min</th><th>max</th><th>last step</th>"
                     "</tr>\n");
    for (size_t v = 0; v < c->runs->count; v++) {
        size_t count = c->runs->variants[v].count;
        double least = count ? c->finals[v][0] : (double)NAN;
        double most = least;
        uint64_t step = 0;
        for (size_t i = 0; i < count; i++) {
            least = fmin(least, c->finals[v][i]);
            most = fmax(most, c->finals[v][i]);
            step = c->steps[v][i] > step ? c->steps[v][i] : step;
        }
        xr_str_puts(out, "<tr>");
        put_name_cell(c->runs, v, out);
        xr_str_printf(out, "<td>%zu</td>", count);
        put_number_cell(xr_mean(c->finals[v], count), out);
        put_number_cell(count > 1 ? sqrt(xr_variance(c->finals[v], count))
                                  : (double)NAN,
                        out);
        put_number_cell(least, out);
        put_number_cell(most, out);
        xr_str_printf(out, "<td>%llu</td></tr>\n", (unsigned long long)step);
    }
    xr_str_puts(out, "</table></div>\n");
}

static void put_contrast_table(const xr_comparison *c, xr_str *out)
{
    xr_str_puts(out, "<div class=\"wide\"><table>\n<tr><th class=\"left\">"
                     "difference from the base</th><th>n</th><th>mean</th>"
                     "<th>interval</th><th>level</th><th>p</th>"
                     "<th class=\"left\">judged by</th></tr>\n");
    for (size_t i = 0; i + 1 < c->runs->count; i++) {
        const xr_contrast *one = &c->contrasts[i];
        const xr_difference *d = &one->difference;
        xr_str_puts(out, "<tr>");
        put_name_cell(c->runs, one->variant, out);
        xr_str_printf(out, "<td>%zu</td>", d->pairs);
        put_change_cell(d->mean, out);
        if (d->error > 0)
            xr_str_printf(out, "<td>[%.4g, %.4g]</td><td>%.4g&#160;%%</td>",
                          one->low, one->high, 100 * (1 - one->alpha));
        else
            xr_str_puts(out, "<td>\xe2\x80\x93</td><td>\xe2\x80\x93</td>");
        if (one->adjusted < 0.0001)
            xr_str_puts(out, "<td>&lt; 0.0001</td>");
        else if (isnan(one->adjusted))
            put_number_cell(one->adjusted, out);
        else
            xr_str_printf(out, "<td>%.4f</td>", one->adjusted);
        xr_str_printf(out, "<td class=\"left\">%s</td></tr>\n",
                      xr_judged_name(d->judged));
    }
    xr_str_puts(out, "</table></div>\n");
    if (c->runs->count > 2)
        xr_str_puts(out, "<p class=\"dim\">With several variants, p and the "
                         "intervals are corrected by Holm's procedure.</p>\n");
    xr_page_differences(c, out);
}

static void put_pair_table(const xr_comparison *c, const xr_contrast *one,
                           xr_str *out)
{
    if (!one->paired)
        return;
    xr_str_puts(out, "<div class=\"wide\"><table>\n<tr><th class=\"left\">seed"
                     "</th><th>");
    xr_page_text(c->runs->variants[0].name, out);
    xr_str_puts(out, "</th><th>");
    xr_page_text(c->runs->variants[one->variant].name, out);
    xr_str_puts(out, "</th><th>difference</th></tr>\n");
    for (size_t i = 0; i < one->count; i++) {
        double a = c->finals[0][one->a_run[i]];
        double b = c->finals[one->variant][one->b_run[i]];
        xr_str_printf(out, "<tr><td class=\"left\">%lld</td>",
                      (long long)one->seeds[i]);
        put_number_cell(a, out);
        put_number_cell(b, out);
        put_change_cell(b - a, out);
        xr_str_puts(out, "</tr>\n");
    }
    xr_str_puts(out, "</table></div>\n");
}

/* ---- curves ------------------------------------------------------------- */

/* The metrics that are plotted, beginning with that of the verdict. */
static size_t choose_curve_metrics(const xr_comparison *c, const char **out)
{
    static const char *const more[] = { "critic/score/mean",
                                        "response_length/mean",
                                        "actor/entropy" };
    size_t count = 0;
    out[count++] = c->metric;
    for (size_t i = 0; i < 3 && count < MOST_CURVES; i++)
        if (strcmp(more[i], c->metric) != 0)
            out[count++] = more[i];
    return count;
}

static xray_status put_metric_curves(const xr_comparison *c, const char *metric,
                                     const int *overs, size_t count,
                                     xr_str *out, xr_err *err)
{
    size_t variants = c->runs->count;
    xr_series *series = xr_calloc(variants, sizeof(*series));
    xray_status status =
        series ? XRAY_OK : xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t v = 0; status == XRAY_OK && v < variants; v++)
        status = xr_series_make(&c->runs->variants[v], metric, err, &series[v]);
    for (size_t i = 0; status == XRAY_OK && i < count; i++)
        xr_page_curves(series, c->runs, metric, overs[i], out);
    for (size_t v = 0; series && v < variants; v++)
        xr_series_free(&series[v]);
    free(series);
    return status;
}

static xray_status put_curve_figures(const xr_comparison *c, const int *overs,
                                     size_t count, xr_str *out, xr_err *err)
{
    const char *names[MOST_CURVES];
    size_t metrics = choose_curve_metrics(c, names);
    xray_status status = XRAY_OK;
    put_legend(c->runs, out);
    xr_str_puts(out, "<div class=\"figures\">\n");
    for (size_t i = 0; status == XRAY_OK && i < metrics; i++)
        status =
            put_metric_curves(c, names[i], overs, i < 2 ? count : 1, out, err);
    xr_str_puts(out, "</div>\n");
    return status;
}

/* ---- settings and divergences ----------------------------------------------
 */

static xray_status put_setting_table(const xr_comparison *c, xr_str *out,
                                     xr_err *err)
{
    const char **keys = NULL;
    size_t count = 0;
    xray_status status = xr_differing_keys(c->runs, err, &keys, &count);
    if (status != XRAY_OK)
        return status;
    xr_str_puts(out, "<h2>Settings that differ</h2>\n");
    if (!count)
        xr_str_puts(out, "<p>None.</p>\n");
    else
        xr_str_puts(out, "<div class=\"wide\"><table>\n<tr><th class=\"left\">"
                         "key</th>");
    for (size_t v = 0; count && v < c->runs->count; v++) {
        xr_str_puts(out, "<th class=\"left\">");
        xr_page_name(c->runs, v, out);
        xr_str_puts(out, "</th>");
    }
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(keys[i], '.');
        xr_str_printf(out, "</tr>\n<tr><td class=\"left mono\">[%.*s] ",
                      (int)(dot - keys[i]), keys[i]);
        xr_page_text(dot + 1, out);
        xr_str_puts(out, "</td>");
        for (size_t v = 0; v < c->runs->count; v++) {
            const char *value =
                xr_variant_setting(&c->runs->variants[v], keys[i]);
            xr_str_puts(out, "<td class=\"left mono\">");
            xr_page_text(value ? value : "(not set)", out);
            xr_str_puts(out, "</td>");
        }
    }
    xr_str_puts(out, count ? "</tr>\n</table></div>\n" : "");
    free(keys);
    return XRAY_OK;
}

static void put_divergences(const xr_comparison *c, xr_str *out)
{
    int any = 0;
    for (size_t i = 0; i + 1 < c->runs->count; i++)
        any |= c->contrasts[i].count > 0;
    if (!any)
        return;
    xr_str_puts(out, "<h2>Where runs of the same seed diverge</h2>\n"
                     "<div class=\"wide\"><table>\n<tr><th class=\"left\">"
                     "variant</th><th>seed</th><th class=\"left\">first "
                     "difference (base | variant)</th></tr>\n");
    for (size_t i = 0; i + 1 < c->runs->count; i++) {
        const xr_contrast *one = &c->contrasts[i];
        for (size_t k = 0; k < one->count; k++) {
            xr_str text = { 0 };
            xr_divergence_text(&one->divergences[k], &text);
            xr_str_puts(out, "<tr>");
            put_name_cell(c->runs, one->variant, out);
            xr_str_printf(out, "<td>%lld</td><td class=\"left\">",
                          (long long)one->seeds[k]);
            xr_page_text(xr_str_text(&text), out);
            xr_str_puts(out, "</td></tr>\n");
            out->failed |= text.failed;
            xr_str_free(&text);
        }
    }
    xr_str_puts(out, "</table></div>\n");
}

/* ---- time --------------------------------------------------------------- */

static xray_status put_cost_section(const xr_comparison *c, xr_str *out,
                                    xr_err *err)
{
    static const int seconds[] = { XR_OVER_SECONDS };
    xr_str_puts(out,
                "<section id=\"time\">\n<h2>Cost</h2>\n<p class=\"dim\">"
                "Medians over the steps of all runs; these figures depend on "
                "the machine and on what else ran.</p>\n"
                "<div class=\"wide\"><table>\n<tr><th class=\"left\">variant"
                "</th><th>s per step</th><th>sampling</th><th>update</th>"
                "<th>tokens/s</th><th>s per run</th><th>tokens per run</th>"
                "</tr>\n");
    for (size_t v = 0; v < c->runs->count; v++) {
        xr_cost cost;
        xray_status status = xr_cost_of(&c->runs->variants[v], err, &cost);
        if (status != XRAY_OK)
            return status;
        xr_str_puts(out, "<tr>");
        put_name_cell(c->runs, v, out);
        put_number_cell(cost.step_seconds, out);
        put_number_cell(cost.gen_seconds, out);
        put_number_cell(cost.update_seconds, out);
        put_number_cell(cost.tokens_per_second, out);
        put_number_cell(cost.run_seconds, out);
        put_number_cell(cost.run_tokens, out);
        xr_str_puts(out, "</tr>\n");
    }
    xr_str_puts(out, "</table></div>\n");
    xray_status status = put_curve_figures(c, seconds, 1, out, err);
    xr_str_puts(out, "</section>\n");
    return status;
}

/* ---- the page ----------------------------------------------------------- */

xray_status xr_compare_html(const xr_comparison *c, xr_str *out, xr_err *err)
{
    static const int overs[] = { XR_OVER_STEPS, XR_OVER_TOKENS };
    put_page_head(c, out);
    put_message_list("Missing runs", &c->runs->failures, out);
    put_final_values(c, out);
    put_contrast_table(c, out);
    xr_str_puts(out, "<div class=\"tables\">\n");
    for (size_t i = 0; i + 1 < c->runs->count; i++)
        put_pair_table(c, &c->contrasts[i], out);
    xr_str_puts(out, "</div>\n");
    xr_str_puts(out, "<h2>Learning curves</h2>\n<p class=\"dim\">Mean over the "
                     "seeds with a 95&#160;% bootstrap band (runs resampled "
                     "10,000 times).</p>\n");
    xray_status status = put_curve_figures(c, overs, 2, out, err);
    if (status == XRAY_OK)
        status = put_setting_table(c, out, err);
    if (status == XRAY_OK)
        put_divergences(c, out);
    if (status == XRAY_OK)
        status = xr_page_samples(c, out, err);
    put_message_list("Notes", &c->notes, out);
    if (status == XRAY_OK)
        status = put_cost_section(c, out, err);
    xr_str_puts(out, "</main>\n</body>\n</html>\n");
    if (status == XRAY_OK && out->failed)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for the page");
    return status;
}
