/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the parts of metrics that only monitor.c needs.
 */
#ifndef XR_MONITOR_METRICS_H
#define XR_MONITOR_METRICS_H

#include "core/monitor/monitor.h"

/* 1 if memory ran out, so that values are missing. */
int xr_metrics_failed(const xr_metrics *metrics);

#endif
