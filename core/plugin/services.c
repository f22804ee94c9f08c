/* SPDX-License-Identifier: Apache-2.0
 *
 * The services that a host gives by id.
 */
#include <stdio.h>
#include <string.h>

#include "core/plugin/cancel.h"
#include "core/plugin/host.h"

static uint32_t call_stopping(const xray_call_service *service)
{
    (void)service;
    return (uint32_t)xr_canceled();
}

static int is_control_thread(const xr_host *host)
{
    return pthread_equal(host->control, pthread_self()) != 0;
}

static uint32_t call_on_control(const xray_call_service *service)
{
    return is_control_thread(service->host_data) ? 1 : 0;
}

static uint32_t log_level(const xray_log_service *service)
{
    const xr_host *host = service->host_data;
    return host->sink.write ? host->sink.level : 0;
}

static int is_metric_name(const char *name)
{
    size_t size =
        name ? strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_/") : 0;
    return size && size <= XRAY_METRIC_NAME_MOST && !name[size];
}

static xray_status put_metric(const xray_metrics_service *service,
                              const char *name, double value)
{
    xr_host *host = service->host_data;
    uint32_t at = 0;
    if (!is_control_thread(host))
        return XRAY_E_STATE;
    if (!is_metric_name(name))
        return XRAY_E_ARG;
    while (at < host->metric_count && strcmp(host->metrics[at].name, name) != 0)
        at++;
    if (at == XRAY_METRICS_MOST)
        return XRAY_E_RANGE;
    if (at == host->metric_count) {
        memcpy(host->metrics[at].name, name, strlen(name) + 1);
        host->metric_count++;
    }
    host->metrics[at].value = value;
    return XRAY_OK;
}

void xr_host_open_services(xr_host *host)
{
    host->calls = (xray_call_service){ .header = XRAY_HEADER(xray_call_service),
                                       .host_data = host,
                                       .stopping = call_stopping,
                                       .on_control = call_on_control };
    host->log = (xray_log_service){ .header = XRAY_HEADER(xray_log_service),
                                    .host_data = host,
                                    .level = log_level };
    host->metrics_service = (xray_metrics_service){
        .header = XRAY_HEADER(xray_metrics_service),
        .host_data = host,
        .put = put_metric,
    };
}

const void *xr_host_service(const xray_host *api, const char *id)
{
    const xr_host *host = api->host_data;
    if (!id)
        return NULL;
    if (strcmp(id, XRAY_SERVICE_CALLS) == 0)
        return &host->calls;
    if (strcmp(id, XRAY_SERVICE_LOG) == 0)
        return &host->log;
    if (strcmp(id, XRAY_SERVICE_METRICS) == 0)
        return &host->metrics_service;
    return NULL;
}

void xr_host_metrics(xr_host *host,
                     void (*put)(void *ctx, const char *name, double value),
                     void *ctx)
{
    char name[320];
    for (uint32_t i = 0; i < host->metric_count; i++) {
        (void)snprintf(name, sizeof(name), "perf/%s/%s", host->instance,
                       host->metrics[i].name);
        put(ctx, name, host->metrics[i].value);
    }
    host->metric_count = 0;
}
