/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects the metrics that plugins put through their hosts.
 */
#ifndef XR_PLUGIN_METRICS_H
#define XR_PLUGIN_METRICS_H

#include "core/base/str.h"
#include "core/roles/roles.h"

typedef void (*xr_metric_put)(void *ctx, const char *name, double value);

/* Hands every metric of the step that ends to `put`, those of this process and
 * those of the Workhorses; of several ranks, the mean over those that gave one.
 */
xray_status xr_plugin_metrics(xr_roles *roles, xr_metric_put put, void *ctx,
                              xr_err *err);

/* Those of this process alone, and as lines "NAME VALUE" for another one. */
void xr_plugin_metrics_here(const xr_roles *roles, xr_metric_put put,
                            void *ctx);
void xr_plugin_metrics_print(const xr_roles *roles, xr_str *out);

/* The most that one process has: its hosts, each with its names. */
#define XR_PLUGIN_METRICS_MOST 2048u

#endif
