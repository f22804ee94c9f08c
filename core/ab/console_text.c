/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a comparison as tables of text for a terminal.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ab/compare.h"

/* ---- cells -------------------------------------------------------------- */

#define CELL_CAP 48

static const char *format_number(double value, char *buffer)
{
    if (isnan(value))
        return "-";
    (void)snprintf(buffer, CELL_CAP,
                   fabs(value) >= 1000 && fabs(value) < 1e15 ? "%.0f" : "%.4g",
                   value);
    return buffer;
}

static const char *format_change(double value, char *buffer)
{
    if (isnan(value))
        return "-";
    (void)snprintf(buffer, CELL_CAP, "%+.4g", value);
    return buffer;
}

static const char *format_p(double p, char *buffer)
{
    if (isnan(p))
        return "-";
    if (p < 0.0001)
        return "< 0.0001";
    (void)snprintf(buffer, CELL_CAP, "%.4f", p);
    return buffer;
}

static int widest_name(const xr_runs *runs)
{
    size_t width = 8;
    for (size_t i = 0; i < runs->count; i++)
        if (strlen(runs->variants[i].name) > width)
            width = strlen(runs->variants[i].name);
    return (int)(width < 200 ? width : 200);
}

/* ---- tables ------------------------------------------------------------- */

static void put_value_table(const xr_comparison *c, int width, xr_str *out)
{
    char cells[4][CELL_CAP];
    xr_str_printf(out, "%-*s %5s %10s %10s %10s %10s %10s\n", width, "variant",
                  "runs", "mean", "sd", "min", "max", "last step");
    for (size_t v = 0; v < c->runs->count; v++) {
        const xr_variant *variant = &c->runs->variants[v];
        double least = variant->count ? c->finals[v][0] : (double)NAN;
        double most = least;
        uint64_t step = 0;
        for (size_t i = 0; i < variant->count; i++) {
            least = fmin(least, c->finals[v][i]);
            most = fmax(most, c->finals[v][i]);
            step = c->steps[v][i] > step ? c->steps[v][i] : step;
        }
        double sd = variant->count > 1
                        ? sqrt(xr_variance(c->finals[v], variant->count))
                        : (double)NAN;
        xr_str_printf(
            out, "%-*s %5zu %10s %10s %10s %10s %10llu\n", width, variant->name,
            variant->count,
            format_number(xr_mean(c->finals[v], variant->count), cells[0]),
            format_number(sd, cells[1]), format_number(least, cells[2]),
            format_number(most, cells[3]), (unsigned long long)step);
    }
}

static void put_pair_table(const xr_comparison *c, const xr_contrast *one,
                           xr_str *out)
{
    char cells[3][CELL_CAP];
    if (!one->paired)
        return;
    const char *a_name = c->runs->variants[0].name;
    const char *b_name = c->runs->variants[one->variant].name;
    int wa = (int)strlen(a_name) > 12 ? (int)strlen(a_name) : 12;
    int wb = (int)strlen(b_name) > 12 ? (int)strlen(b_name) : 12;
    xr_str_printf(out, "\n%-20s %*s %*s %12s\n", "seed", wa, a_name, wb, b_name,
                  "difference");
    for (size_t i = 0; i < one->count; i++) {
        double a = c->finals[0][one->a_run[i]];
        double b = c->finals[one->variant][one->b_run[i]];
        xr_str_printf(out, "%-20lld %*s %*s %12s\n", (long long)one->seeds[i],
                      wa, format_number(a, cells[0]), wb,
                      format_number(b, cells[1]),
                      format_change(b - a, cells[2]));
    }
}

static void put_contrast_table(const xr_comparison *c, int width, xr_str *out)
{
    int holm = c->runs->count > 2;
    xr_str_printf(out, "\nagainst %s%s\n", c->runs->variants[0].name,
                  holm ? " (p and intervals corrected by Holm's procedure for "
                         "several variants)"
                       : "");
    xr_str_printf(out, "%-*s %5s %11s %25s %6s %9s  %s\n", width, "variant",
                  "n", "difference", "interval", "level", "p", "judged by");
    for (size_t i = 0; i + 1 < c->runs->count; i++) {
        const xr_contrast *one = &c->contrasts[i];
        const xr_difference *d = &one->difference;
        char cells[4][CELL_CAP];
        char interval[2 * CELL_CAP + 8] = "-";
        char level[CELL_CAP] = "-";
        if (d->error > 0) {
            (void)snprintf(interval, sizeof(interval), "[%s, %s]",
                           format_number(one->low, cells[0]),
                           format_number(one->high, cells[1]));
            (void)snprintf(level, sizeof(level), "%.4g%%",
                           100 * (1 - one->alpha));
        }
        xr_str_printf(out, "%-*s %5zu %11s %25s %6s %9s  %s\n", width,
                      c->runs->variants[one->variant].name, d->pairs,
                      format_change(d->mean, cells[2]), interval, level,
                      format_p(one->adjusted, cells[3]),
                      xr_judged_name(d->judged));
    }
}

/* ---- settings ----------------------------------------------------------- */

const char *xr_variant_setting(const xr_variant *variant, const char *key)
{
    return variant->count ? xr_settings_get(&variant->runs[0].settings, key)
                          : NULL;
}

static int does_key_differ(const xr_runs *runs, const char *key)
{
    const xr_variant *first = NULL;
    for (size_t v = 0; v < runs->count; v++) {
        if (!runs->variants[v].count)
            continue;
        if (!first) {
            first = &runs->variants[v];
            continue;
        }
        const char *a = xr_variant_setting(first, key);
        const char *b = xr_variant_setting(&runs->variants[v], key);
        if (!a || !b ? a != b : strcmp(a, b) != 0)
            return 1;
    }
    return 0;
}

static int list_has_key(const char *const *keys, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(keys[i], key) == 0)
            return 1;
    return 0;
}

xray_status xr_differing_keys(const xr_runs *runs, xr_err *err,
                              const char ***out_keys, size_t *out_count)
{
    size_t most = 1;
    *out_count = 0;
    for (size_t v = 0; v < runs->count; v++)
        most += runs->variants[v].count
                    ? runs->variants[v].runs[0].settings.count
                    : 0;
    *out_keys = xr_calloc(most, sizeof(**out_keys));
    if (!*out_keys)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for settings");
    for (size_t v = 0; v < runs->count; v++) {
        const xr_variant *variant = &runs->variants[v];
        for (size_t i = 0;
             variant->count && i < variant->runs[0].settings.count; i++) {
            const char *key = variant->runs[0].settings.items[i].key;
            if (!xr_setting_is_own(key) && does_key_differ(runs, key) &&
                !list_has_key(*out_keys, *out_count, key))
                (*out_keys)[(*out_count)++] = key;
        }
    }
    return XRAY_OK;
}

static void put_setting_list(const xr_comparison *c, int width, xr_str *out)
{
    const char **keys = NULL;
    size_t count = 0;
    if (xr_differing_keys(c->runs, NULL, &keys, &count) != XRAY_OK) {
        out->failed = 1;
        return;
    }
    xr_str_printf(out, "\nsettings that differ%s\n", count ? "" : ": none");
    for (size_t i = 0; i < count; i++) {
        const char *dot = strrchr(keys[i], '.');
        xr_str_printf(out, "[%.*s] %s\n", (int)(dot - keys[i]), keys[i],
                      dot + 1);
        for (size_t v = 0; v < c->runs->count; v++) {
            const char *value =
                xr_variant_setting(&c->runs->variants[v], keys[i]);
            xr_str_printf(out, "  %-*s  %s\n", width, c->runs->variants[v].name,
                          value ? value : "(not set)");
        }
    }
    free(keys);
}

/* ---- divergences -------------------------------------------------------- */

static void put_sample_divergence(const xr_divergence *p, xr_str *out)
{
    if (!p->sampled)
        xr_str_puts(out, "; samples were not kept");
    else if (!p->samples_differ)
        xr_str_puts(out, "; no sample differs");
    else
        xr_str_printf(out, "; first different %s: step %llu, sample %llu",
                      p->prompts_differ ? "prompt" : "sample",
                      (unsigned long long)p->sample_step,
                      (unsigned long long)p->sample);
}

void xr_divergence_text(const xr_divergence *p, xr_str *out)
{
    char cells[2][CELL_CAP];
    if (!p->differs) {
        xr_str_printf(out, "no metric differs up to step %llu",
                      (unsigned long long)p->last_step);
    } else if (!p->metric) {
        xr_str_printf(out, "step %llu: only one run has it",
                      (unsigned long long)p->step);
    } else {
        xr_str_printf(out, "step %llu: %s %s | %s", (unsigned long long)p->step,
                      p->metric, format_number(p->a, cells[0]),
                      format_number(p->b, cells[1]));
        if (p->more)
            xr_str_printf(out, " and %u more", p->more);
    }
    put_sample_divergence(p, out);
}

static void put_divergences(const xr_comparison *c, xr_str *out)
{
    for (size_t i = 0; i + 1 < c->runs->count; i++) {
        const xr_contrast *one = &c->contrasts[i];
        if (!one->count)
            continue;
        xr_str_printf(out, "\nwhere %s diverges from %s\n",
                      c->runs->variants[one->variant].name,
                      c->runs->variants[0].name);
        for (size_t k = 0; k < one->count; k++) {
            xr_str_printf(out, "seed %-15lld ", (long long)one->seeds[k]);
            xr_divergence_text(&one->divergences[k], out);
            xr_str_puts(out, "\n");
        }
    }
}

/* ---- all tables --------------------------------------------------------- */

static void put_message_list(const char *title, const xr_errors *list,
                             xr_str *out)
{
    for (size_t i = 0; i < list->count; i++)
        xr_str_printf(out, "%s%s: %s\n", i ? "" : "\n", title, list->items[i]);
}

void xr_compare_text(const xr_comparison *c, xr_str *out)
{
    int width = widest_name(c->runs);
    xr_str_printf(out, "%s, the last of each run; %s\n\n", c->metric,
                  xr_better(c));
    put_value_table(c, width, out);
    for (size_t i = 0; i + 1 < c->runs->count; i++)
        put_pair_table(c, &c->contrasts[i], out);
    put_contrast_table(c, width, out);
    xr_str_puts(out, "\n");
    for (size_t i = 0; i + 1 < c->runs->count; i++) {
        xr_verdict(c, i, out);
        xr_str_puts(out, "\n");
    }
    put_setting_list(c, width, out);
    put_divergences(c, out);
    put_message_list("note", &c->notes, out);
    put_message_list("missing", &c->runs->failures, out);
}

xray_status xr_compare_text_time(const xr_comparison *c, xr_str *out,
                                 xr_err *err)
{
    int width = widest_name(c->runs);
    xr_str_printf(out,
                  "\ncost, medians over the steps\n%-*s %10s %10s %10s "
                  "%10s %10s %12s\n",
                  width, "variant", "s/step", "sampling", "update", "tokens/s",
                  "s/run", "tokens/run");
    for (size_t v = 0; v < c->runs->count; v++) {
        char cells[6][CELL_CAP];
        xr_cost cost;
        xray_status status = xr_cost_of(&c->runs->variants[v], err, &cost);
        if (status != XRAY_OK)
            return status;
        xr_str_printf(out, "%-*s %10s %10s %10s %10s %10s %12s\n", width,
                      c->runs->variants[v].name,
                      format_number(cost.step_seconds, cells[0]),
                      format_number(cost.gen_seconds, cells[1]),
                      format_number(cost.update_seconds, cells[2]),
                      format_number(cost.tokens_per_second, cells[3]),
                      format_number(cost.run_seconds, cells[4]),
                      format_number(cost.run_tokens, cells[5]));
    }
    return XRAY_OK;
}
