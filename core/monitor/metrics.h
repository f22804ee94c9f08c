/* SPDX-License-Identifier: Apache-2.0
 *
 * What monitor.c needs of metrics beyond the public calls.
 */
#ifndef XR_MONITOR_METRICS_H
#define XR_MONITOR_METRICS_H

#include "core/monitor/monitor.h"

/* 1: memory ran out, values are missing. */
int xr_metrics_failed(const xr_metrics *metrics);

#endif
