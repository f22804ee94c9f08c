/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/str.h"
#include "core/plugin/plugin.h"

#define REASON_CAP 1024u
/* Threads of one instance that fail at the same moment; a further one takes
 * over the oldest slot. */
#define SLOTS 8u

typedef struct reason {
    pthread_t thread;
    uint64_t age; /* 0: free */
    char text[REASON_CAP];
} reason;

struct xr_host {
    xray_host api;
    xr_log_sink sink;
    char *instance;
    pthread_mutex_t lock; /* guards what follows */
    uint64_t clock;
    reason slots[SLOTS];
};

static reason *slot_of(xr_host *host, pthread_t thread)
{
    for (size_t i = 0; i < SLOTS; i++)
        if (host->slots[i].age && pthread_equal(host->slots[i].thread, thread))
            return &host->slots[i];
    return NULL;
}

static reason *oldest_slot(xr_host *host)
{
    reason *oldest = &host->slots[0];
    for (size_t i = 1; i < SLOTS; i++)
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

static xray_status host_fail(const xray_host *api, xray_status code,
                             const char *where, const char *text)
{
    xr_host *host = api->host_data;
    pthread_t self = pthread_self();
    const char *colon = where && *where ? ": " : "";
    if (!where)
        where = "";
    if (!text)
        text = "no reason was given";
    (void)pthread_mutex_lock(&host->lock);
    reason *slot = slot_of(host, self);
    if (slot) {
        char inner[REASON_CAP];
        memcpy(inner, slot->text, sizeof(inner));
        int used = snprintf(slot->text, sizeof(slot->text), "%s%s%s: ", where,
                            colon, text);
        if (used > 0 && (size_t)used < sizeof(slot->text)) {
            size_t room = sizeof(slot->text) - (size_t)used - 1;
            size_t size = strnlen(inner, room);
            memcpy(slot->text + used, inner, size);
            slot->text[(size_t)used + size] = '\0';
        }
    } else {
        slot = oldest_slot(host);
        slot->thread = self;
        (void)snprintf(slot->text, sizeof(slot->text), "%s%s%s", where, colon,
                       text);
    }
    slot->age = ++host->clock;
    (void)pthread_mutex_unlock(&host->lock);
    return code;
}

static const void *host_service(const xray_host *api, const char *id)
{
    (void)api;
    (void)id;
    return NULL;
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
    if (sink)
        host->sink = *sink;
    host->api = (xray_host){
        .head = XRAY_HEAD(xray_host),
        .host_data = host,
        .version = XR_VERSION,
        .log = host_log,
        .fail = host_fail,
        .service = host_service,
    };
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

const char *xr_host_instance(const xr_host *host)
{
    return host->instance;
}

static const char *meaning(xray_status status)
{
    static const struct {
        xray_status status;
        const char *text;
    } known[] = {
        { XRAY_E_ARG, "bad argument" },
        { XRAY_E_RANGE, "size or value out of range" },
        { XRAY_E_UNSUPPORTED, "not offered by this plugin" },
        { XRAY_E_NOMEM, "out of memory" },
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

xray_status xr_host_error(xr_host *host, xray_status status, const char *call,
                          xr_err *err)
{
    (void)pthread_mutex_lock(&host->lock);
    reason *slot = slot_of(host, pthread_self());
    if (slot)
        (void)xr_fail(err, status, "%s: %s", host->instance, slot->text);
    else
        (void)xr_fail(err, status, "%s: %s failed with status %d (%s)",
                      host->instance, call, (int)status, meaning(status));
    if (slot)
        slot->age = 0;
    (void)pthread_mutex_unlock(&host->lock);
    return status;
}

int xr_host_append(xr_host *host, xr_err *err)
{
    (void)pthread_mutex_lock(&host->lock);
    reason *slot = slot_of(host, pthread_self());
    size_t used = strlen(err->text);
    int found = slot != NULL;
    if (slot) {
        (void)snprintf(err->text + used, sizeof(err->text) - used, "%s%s: %s",
                       used ? ": " : "", host->instance, slot->text);
        slot->age = 0;
    }
    (void)pthread_mutex_unlock(&host->lock);
    return found;
}
