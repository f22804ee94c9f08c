/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the metrics that plugins put through their hosts, in this process
 * and in the Workhorses.
 */
#include "core/roles/plugin_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/roles/whole_inner.h"

static void take_host_metrics(xr_host *host, xr_metric_put put, void *ctx)
{
    if (host)
        xr_host_metrics(host, put, ctx);
}

void xr_plugin_metrics_here(const xr_roles *roles, xr_metric_put put, void *ctx)
{
    const xr_run *run = roles->run;
    const xr_part *const parts[] = { &run->device,   &run->comm,  &run->runtime,
                                     &run->launcher, &run->train, &run->infer,
                                     &run->algo };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        take_host_metrics(parts[i]->host, put, ctx);
    for (uint32_t role = 1; role < XR_ROLES; role++)
        take_host_metrics(roles->named[role].host, put, ctx);
    for (size_t i = 0; i < run->reward_count; i++)
        take_host_metrics(run->rewards[i].host, put, ctx);
    for (size_t i = 0; i < run->tracker_count; i++)
        take_host_metrics(run->trackers[i].host, put, ctx);
}

static void print_metric(void *ctx, const char *name, double value)
{
    xr_str_printf(ctx, "%s %a\n", name, value);
}

void xr_plugin_metrics_print(const xr_roles *roles, xr_str *out)
{
    xr_plugin_metrics_here(roles, print_metric, out);
}

/* ---- the mean over ranks ------------------------------------------------ */

typedef struct mean {
    const char *name; /* in the text of a rank */
    double sum;
    uint32_t ranks;
    uint32_t reserved;
} mean;

static mean *find_mean(mean *means, uint32_t *count, const char *name)
{
    uint32_t i = 0;
    while (i < *count && strcmp(means[i].name, name) != 0)
        i++;
    if (i == XR_PLUGIN_METRICS_MOST)
        return NULL;
    if (i == *count)
        means[(*count)++] = (mean){ .name = name };
    return &means[i];
}

/* Adds the lines of one rank, and ends each name with a NUL in their text. */
static void add_rank_lines(mean *means, uint32_t *count, char *text)
{
    while (text && *text) {
        char *space = strchr(text, ' ');
        char *end = space ? strchr(space, '\n') : NULL;
        if (!end)
            return;
        *space = '\0';
        mean *m = find_mean(means, count, text);
        if (m) {
            m->sum += strtod(space + 1, NULL);
            m->ranks++;
        }
        text = end + 1;
    }
}

static xray_status ask_ranks(xr_whole *w, xr_err *err)
{
    xr_ranks all = { .count = w->size };
    xray_status status = xr_whole_check_fit(w, err);
    for (uint32_t r = 0; r < w->size && status == XRAY_OK; r++) {
        xr_horse *h = &w->horse[r];
        all.rank[r] = r;
        xr_str_clear(&h->metrics);
        status =
            xr_actor_call(h->actor, "metrics", err, &h->future, &h->metrics);
    }
    return xr_whole_wait(w, &all, status, err);
}

static xray_status collect_from_ranks(xr_whole *w, xr_metric_put put, void *ctx,
                                      xr_err *err)
{
    uint32_t count = 0;
    xray_status status = ask_ranks(w, err);
    if (status != XRAY_OK)
        return status;
    mean *means = xr_calloc(XR_PLUGIN_METRICS_MOST, sizeof(*means));
    if (!means)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for metrics");
    for (uint32_t r = 0; r < w->size; r++)
        add_rank_lines(means, &count, w->horse[r].metrics.data);
    for (uint32_t i = 0; i < count; i++)
        put(ctx, means[i].name, means[i].sum / means[i].ranks);
    free(means);
    return XRAY_OK;
}

xray_status xr_plugin_metrics(xr_roles *roles, xr_metric_put put, void *ctx,
                              xr_err *err)
{
    xr_plugin_metrics_here(roles, put, ctx);
    return roles->whole ? collect_from_ranks(roles->whole, put, ctx, err)
                        : XRAY_OK;
}
