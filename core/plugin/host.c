/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the host of a plugin instance: logging, and the reason of a failed
 * call per thread.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/plugin/host.h"

typedef struct xr_host_reason reason;

static reason *find_thread_slot(xr_host *host, pthread_t thread)
{
    for (size_t i = 0; i < XR_HOST_SLOTS; i++)
        if (host->slots[i].age && pthread_equal(host->slots[i].thread, thread))
            return &host->slots[i];
    return NULL;
}

static reason *find_oldest_slot(xr_host *host)
{
    reason *oldest = &host->slots[0];
    for (size_t i = 1; i < XR_HOST_SLOTS; i++)
        if (host->slots[i].age < oldest->age)
            oldest = &host->slots[i];
    return oldest;
}

static void host_log(const xray_host *api, uint32_t level, const char *text)
{
    const xr_host *host = api->host_data;
    if (level <= host->sink.level && host->sink.write)
        host->sink.write(host->sink.ctx, level, host->instance,
                         text ? text : "no text was given");
}

/* A further reason is put before the recorded one and replaces its location. */
static void record_reason(xr_host *host, const xr_err *said)
{
    pthread_t self = pthread_self();
    (void)pthread_mutex_lock(&host->lock);
    reason *slot = find_thread_slot(host, self);
    if (slot) {
        (void)xr_fail_in(&slot->err, 0, "%s", said->text);
        slot->err.location = said->location;
    } else {
        slot = find_oldest_slot(host);
        slot->thread = self;
        slot->err = *said;
    }
    slot->age = ++host->clock;
    (void)pthread_mutex_unlock(&host->lock);
}

static xray_status host_fail(const xray_host *api, xray_status code,
                             const char *where, const char *text)
{
    xr_err said;
    (void)xr_fail(&said, code, "%s%s%s", where ? where : "",
                  where && *where ? ": " : "",
                  text ? text : "no reason was given");
    record_reason(api->host_data, &said);
    return code;
}

static xray_status host_fail_at(const xray_host *api, xray_status code,
                                const char *where,
                                const xray_location *location, const char *text)
{
    xr_err said;
    if (!location || !XRAY_REACHES(xray_location, location, file) || !text ||
        (!location->key && !location->file))
        return host_fail(api, code, where, text);
    if (location->key) {
        (void)xr_fail_key(&said, code, location->section, location->key, "%s",
                          text);
    } else {
        (void)xr_fail(&said, code, "%s%s", location->file, text);
        xr_err_file(&said, location->file);
    }
    if (where && *where)
        (void)xr_fail_in(&said, code, "%s", where);
    record_reason(api->host_data, &said);
    return code;
}

xr_host *xr_host_new(const char *instance, const xr_log_sink *sink)
{
    xr_host *host = calloc(1, sizeof(*host));
    if (!host)
        return NULL;
    host->instance = xr_strdup(instance);
    if (!host->instance || pthread_mutex_init(&host->lock, NULL) != 0) {
        free(host->instance);
        free(host);
        return NULL;
    }
    host->section = host->instance;
    host->control = pthread_self();
    if (sink)
        host->sink = *sink;
    host->api = (xray_host){
        .header = XRAY_HEADER(xray_host),
        .host_data = host,
        .version = XR_VERSION,
        .log = host_log,
        .fail = host_fail,
        .service = xr_host_service,
        .fail_at = host_fail_at,
    };
    xr_host_open_services(host);
    return host;
}

void xr_host_free(xr_host *host)
{
    if (!host)
        return;
    (void)pthread_mutex_destroy(&host->lock);
    free(host->instance);
    free(host);
}

const xray_host *xr_host_api(const xr_host *host)
{
    return &host->api;
}

void xr_host_section(xr_host *host, const char *section)
{
    host->section = section;
}

void xr_host_stand_on(xr_host *host, xr_host *below)
{
    host->below = below;
}

const char *xr_host_instance(const xr_host *host)
{
    return host->instance;
}

static const char *describe_status(xray_status status)
{
    static const struct {
        xray_status status;
        const char *text;
    } known[] = {
        { XRAY_E_ARG, "bad argument" },
        { XRAY_E_RANGE, "size or value out of range" },
        { XRAY_E_UNSUPPORTED, "not offered by this plugin" },
        { XRAY_E_NOMEM, "out of memory" },
        { XRAY_E_CANCELED, "canceled" },
        { XRAY_E_STATE, "used out of order" },
        { XRAY_E_CONFIG, "options cannot work" },
        { XRAY_E_NUMERIC, "NaN, Inf or divergence" },
        { XRAY_E_DEVICE, "accelerator error" },
        { XRAY_E_IO, "file or network error" },
        { XRAY_E_PEER, "a rank is lost" },
        { XRAY_E_ABI, "plugin and host do not match" },
        { XRAY_E_BUG, "broken invariant" },
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (known[i].status == status)
            return known[i].text;
    return "a status this xray does not know";
}

/* Moves a reason to *out. A key without a section is an option of the
 * instance. */
static void take_reason(const xr_host *host, reason *slot, xr_err *out)
{
    xr_location *location = &slot->err.location;
    if (*location->key && !*location->section &&
        strlen(host->section) < sizeof(location->section))
        (void)snprintf(location->section, sizeof(location->section), "%s",
                       host->section);
    (void)xr_fail_in(&slot->err, 0, "%s", host->instance);
    *out = slot->err;
    slot->age = 0;
}

int xr_host_append(xr_host *host, xr_err *err)
{
    xr_err said = { "" };
    (void)pthread_mutex_lock(&host->lock);
    reason *slot = find_thread_slot(host, pthread_self());
    int found = slot != NULL;
    if (slot)
        take_reason(host, slot, &said);
    (void)pthread_mutex_unlock(&host->lock);
    if (found && *err->text) {
        (void)xr_fail_in(&said, 0, "%s", err->text);
        said.location = err->location;
    }
    if (found)
        *err = said;
    return found;
}

xray_status xr_host_error(xr_host *host, xray_status status, const char *call,
                          xr_err *err)
{
    xr_err said = { "" };
    if (!xr_host_append(host, &said)) {
        if (host->below && xr_host_append(host->below, &said))
            (void)xr_fail_in(&said, status, "%s: %s", host->instance, call);
        else
            (void)xr_fail(&said, status, "%s: %s failed with status %d (%s)",
                          host->instance, call, (int)status,
                          describe_status(status));
    }
    if (err)
        *err = said;
    return status;
}
