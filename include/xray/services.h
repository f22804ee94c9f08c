/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/services.h - what host->service gives by id: whether to stop, what is
 * logged, and metrics.
 *
 * A plugin asks for a service once, in `create` or `plan`, keeps the pointer
 * for as long as the instance lives, and does without it where it is NULL:
 *
 *     self->calls = host->service(host, XRAY_SERVICE_CALLS);
 *     ...
 *     for (i = 0; i < count; i++) {
 *         if (self->calls && self->calls->stopping(self->calls))
 *             return self->host->fail(self->host, XRAY_E_CANCELED, "forward",
 *                                     "the host stops");
 *         compute(self, batches[i]);
 *     }
 *
 * Every function takes the service itself.
 */
#ifndef XRAY_SERVICES_H
#define XRAY_SERVICES_H

#include <xray/abi.h>
#include <xray/host.h>

#define XRAY_SERVICE_CALLS "xray.host.calls/0"
#define XRAY_SERVICE_LOG "xray.host.log/0"
#define XRAY_SERVICE_METRICS "xray.host.metrics/0"

/* The calls of the instance. */
typedef struct xray_call_service {
    xray_header header;
    void *host_data; /* the host's own */

    /* 1 once the host wants every call to end, as after a second Ctrl-C, else
     * 0. It reads one word, and never goes back to 0 while the instance lives.
     * A call that may take longer than 0.1 s asks at least that often, and
     * returns XRAY_E_CANCELED as soon as it is 1. All ranks of a world are told
     * at about the same time, so one may be in a collective that another does
     * not reach: a call that waits for other ranks asks, too. A device does not
     * interrupt what it was given: whoever has much work for it cuts this and
     * asks in between. What a canceled call was writing, such as weights, is
     * undefined, and the host uses nothing of it. It only cleans up: it calls
     * what aborts, discards or destroys, and these do not ask. [any]
     * [no-alloc] */
    uint32_t (*stopping)(const struct xray_call_service *service);

    /* 1 if the calling thread is the one that drives the run, which makes the
     * [control] calls, else 0. What a plugin's own thread passes to host->fail
     * is seen by nobody, for example. [any] [no-alloc] */
    uint32_t (*on_control)(const struct xray_call_service *service);
} xray_call_service;

/* The log. */
typedef struct xray_log_service {
    xray_header header;
    void *host_data; /* the host's own */

    /* The highest XRAY_LOG_* that is written, 0 if nothing is: what is above it
     * need not be formatted. [any] [no-alloc] */
    uint32_t (*level)(const struct xray_log_service *service);
} xray_log_service;

#define XRAY_METRIC_NAME_MOST 47u /* characters of a metric's name */
#define XRAY_METRICS_MOST 32u     /* names of one instance in one step */

/* Metrics of the instance's own work. */
typedef struct xray_metrics_service {
    xray_header header;
    void *host_data; /* the host's own */

    /* Logs `value` with the current step as perf/INSTANCE/NAME, such as
     * perf/infer.dsinf/rows. Of several values in a step the last one counts,
     * and the mean over the ranks that gave one. `name` consists of 1 to
     * XRAY_METRIC_NAME_MOST lower-case letters, digits, '_' and '/', else the
     * status is XRAY_E_ARG; after XRAY_METRICS_MOST names it is XRAY_E_RANGE,
     * and on another thread than that of the [control] calls XRAY_E_STATE.
     * Nothing that a run learns or reports as its result belongs here, since
     * comparisons of runs leave names under perf/ out. [control] [no-alloc] */
    xray_status (*put)(const struct xray_metrics_service *service,
                       const char *name, double value);
} xray_metrics_service;

#endif
