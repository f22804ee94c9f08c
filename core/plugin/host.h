/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of a host, shared by core/plugin/host.c and
 * core/plugin/services.c.
 */
#ifndef XR_PLUGIN_HOST_H
#define XR_PLUGIN_HOST_H

#include <pthread.h>

#include <xray/services.h>

#include "core/plugin/plugin.h"

/* Threads of one instance that may fail at the same time; a further one
 * replaces the oldest reason. */
#define XR_HOST_SLOTS 8u

typedef struct xr_host_reason {
    pthread_t thread;
    uint64_t age; /* 0: free */
    xr_err err;
} xr_host_reason;

typedef struct xr_host_metric {
    char name[XRAY_METRIC_NAME_MOST + 1];
    double value;
} xr_host_metric;

struct xr_host {
    xray_host api;
    xray_call_service calls;
    xray_log_service log;
    xray_metrics_service metrics_service;
    xr_log_sink sink;
    char *instance;
    const char *section; /* section of its options */
    xr_host *below;      /* of an instance that this one calls, or NULL */
    pthread_t control;   /* the thread that drives the run */
    /* Of the step in progress; only the thread `control` uses them. */
    uint32_t metric_count;
    uint32_t reserved;
    xr_host_metric metrics[XRAY_METRICS_MOST];
    pthread_mutex_t lock; /* guards the members below */
    uint64_t clock;
    xr_host_reason slots[XR_HOST_SLOTS];
};

/* Fills the services of a new host. */
void xr_host_open_services(xr_host *host);
/* Implements xray_host.service. */
const void *xr_host_service(const xray_host *api, const char *id);

#endif
