/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the named metric values of a step in the order in which they were set.
 */
#include "core/monitor/metrics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/map.h"

typedef struct metric {
    char *name;
    double value;
    int set; /* 1: set in this step */
} metric;

struct xr_metrics {
    xr_map *index; /* name -> index in items */
    metric *items; /* in order of first use */
    size_t count;
    size_t cap;
    /* Indices of the metrics set in this step, in that order: a line does not
     * reveal whether its run was resumed. */
    size_t *set;
    size_t set_count;
    xr_histograms *histograms; /* NULL: they are not kept */
    int failed;
};

xr_metrics *xr_metrics_new(void)
{
    xr_metrics *metrics = xr_calloc(1, sizeof *metrics);
    if (!metrics)
        return NULL;
    metrics->index = xr_map_new(64);
    if (!metrics->index) {
        free(metrics);
        return NULL;
    }
    return metrics;
}

void xr_metrics_free(xr_metrics *metrics)
{
    if (!metrics)
        return;
    for (size_t i = 0; i < metrics->count; i++)
        free(metrics->items[i].name);
    free(metrics->items);
    free(metrics->set);
    xr_map_free(metrics->index);
    xr_histograms_free(metrics->histograms);
    free(metrics);
}

void xr_metrics_clear(xr_metrics *metrics)
{
    for (size_t i = 0; i < metrics->set_count; i++)
        metrics->items[metrics->set[i]].set = 0;
    metrics->set_count = 0;
    if (metrics->histograms)
        xr_histograms_clear(metrics->histograms);
}

static int reserve_item(xr_metrics *m)
{
    if (m->count < m->cap)
        return 0;
    size_t cap = m->cap ? m->cap * 2 : 64;
    metric *items = realloc(m->items, cap * sizeof *items);
    if (!items)
        return -1;
    m->items = items;
    size_t *set = realloc(m->set, cap * sizeof *set);
    if (!set)
        return -1;
    m->set = set;
    m->cap = cap;
    return 0;
}

static int add_name(xr_metrics *m, const char *name, size_t *out_index)
{
    if (reserve_item(m))
        return -1;
    char *copy = xr_strdup(name);
    if (!copy)
        return -1;
    if (xr_map_put(m->index, name, strlen(name), m->count)) {
        free(copy);
        return -1;
    }
    m->items[m->count] = (metric){ copy, 0.0, 0 };
    *out_index = m->count++;
    return 0;
}

void xr_metrics_put(xr_metrics *metrics, const char *name, double value)
{
    uint64_t found;
    size_t item;
    if (xr_map_get(metrics->index, name, strlen(name), &found)) {
        item = (size_t)found;
    } else if (add_name(metrics, name, &item)) {
        metrics->failed = 1;
        return;
    }
    metrics->items[item].value = value;
    if (!metrics->items[item].set)
        metrics->set[metrics->set_count++] = item;
    metrics->items[item].set = 1;
}

static void put_suffixed(xr_metrics *metrics, const char *name,
                         const char *suffix, double value)
{
    char full[256];
    (void)snprintf(full, sizeof full, "%s/%s", name, suffix);
    xr_metrics_put(metrics, full, value);
}

void xr_metrics_stats(xr_metrics *metrics, const char *name,
                      const float *values, size_t count)
{
    if (!count)
        return;
    double sum = 0.0;
    double most = values[0];
    double least = values[0];
    for (size_t i = 0; i < count; i++) {
        double v = values[i];
        sum += v;
        /* A NaN must be visible instead of vanishing in comparisons. */
        most = v > most || isnan(v) ? v : most;
        least = v < least || isnan(v) ? v : least;
    }
    put_suffixed(metrics, name, "mean", sum / (double)count);
    put_suffixed(metrics, name, "max", most);
    put_suffixed(metrics, name, "min", least);
    if (metrics->histograms)
        xr_histograms_add(metrics->histograms, name, values, count);
}

int xr_metrics_keep_histograms(xr_metrics *metrics)
{
    if (!metrics->histograms)
        metrics->histograms = xr_histograms_new();
    return metrics->histograms ? 0 : -1;
}

xr_histograms *xr_metrics_histograms(const xr_metrics *metrics)
{
    return metrics->histograms;
}

size_t xr_metrics_count(const xr_metrics *metrics)
{
    return metrics->set_count;
}

const char *xr_metrics_name(const xr_metrics *metrics, size_t i)
{
    return i < metrics->set_count ? metrics->items[metrics->set[i]].name : NULL;
}

double xr_metrics_value(const xr_metrics *metrics, size_t i)
{
    return i < metrics->set_count ? metrics->items[metrics->set[i]].value
                                  : (double)NAN;
}

double xr_metrics_get(const xr_metrics *metrics, const char *name)
{
    uint64_t item;
    if (!xr_map_get(metrics->index, name, strlen(name), &item) ||
        !metrics->items[item].set)
        return (double)NAN;
    return metrics->items[item].value;
}

int xr_metrics_failed(const xr_metrics *metrics)
{
    return metrics->failed;
}
