/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts that both sides of an actor use: the host that keeps a runtime's
 * reasons, a pool of shared regions, and the check of a runtime's events.
 */
#include <stdlib.h>
#include <string.h>

#include "core/actor/invoke.h"

/* ---- The host that a runtime is given ---- */

static void relay_log(const xray_host *host, uint32_t level, const char *msg)
{
    const xr_relay *relay = host->host_data;
    if (relay->outer)
        relay->outer->log(relay->outer, level, msg);
}

static xray_status relay_fail(const xray_host *host, xray_status code,
                              const char *where, const char *msg)
{
    xr_relay *relay = host->host_data;
    (void)where;
    if (relay->err.text[0])
        return xr_fail_in(&relay->err, code, "%s", msg);
    return xr_fail(&relay->err, code, "%s", msg);
}

static const void *relay_service(const xray_host *host, const char *id)
{
    const xr_relay *relay = host->host_data;
    return relay->outer ? relay->outer->service(relay->outer, id) : NULL;
}

void xr_relay_init(xr_relay *relay, const xray_host *outer)
{
    *relay = (xr_relay){ .host = { .header = XRAY_HEADER(xray_host),
                                   .host_data = relay,
                                   .version = outer ? outer->version : "",
                                   .log = relay_log,
                                   .fail = relay_fail,
                                   .service = relay_service },
                         .outer = outer };
}

xray_status xr_relay_error(xr_relay *relay, xray_status status,
                           const char *call, xr_err *err)
{
    if (relay->err.text[0])
        (void)xr_fail(err, status, "%s", relay->err.text);
    else
        (void)xr_fail(err, status, "the runtime's %s failed with status %d",
                      call, status);
    relay->err.text[0] = 0;
    return status;
}

/* ---- A pool of regions ---- */

void xr_pool_free(xr_pool *pool)
{
    free(pool->entries);
    memset(pool, 0, sizeof(*pool));
}

static xray_status reserve_entry(xr_pool *pool, xr_err *err)
{
    if (pool->count < pool->cap)
        return XRAY_OK;
    size_t cap = pool->cap ? pool->cap * 2 : 16;
    xr_pool_entry *grown = realloc(pool->entries, cap * sizeof(*grown));
    if (!grown)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a region");
    pool->entries = grown;
    pool->cap = cap;
    return XRAY_OK;
}

/* Rounds up to pages, and sizes above 32 KiB to steps of an eighth to a quarter
 * of the size, so that sizes that differ a little share regions. Memory that is
 * never touched costs nothing. */
static uint64_t round_up_size(uint64_t size)
{
    uint64_t step = 4096;
    while (step <= size / 8 && step < UINT64_C(1) << 40)
        step *= 2;
    return (size + step - 1) / step * step;
}

static xr_pool_entry *find_entry(const xr_pool *pool, const xray_region *region)
{
    for (size_t i = 0; i < pool->count; i++)
        if (pool->entries[i].region == region)
            return &pool->entries[i];
    return NULL;
}

static void remove_entry(xr_pool *pool, xr_pool_entry *entry)
{
    *entry = pool->entries[--pool->count];
}

static int is_unused_region(const xr_pool_entry *entry)
{
    return !entry->refs && !entry->region->peer;
}

/* The smallest unused region that is large enough, or NULL; *out_small is the
 * largest unused one that is too small, or NULL. */
static xr_pool_entry *find_best_fit(const xr_pool *pool, uint64_t size,
                                    xr_pool_entry **out_small)
{
    xr_pool_entry *found = NULL;
    *out_small = NULL;
    for (size_t i = 0; i < pool->count; i++) {
        xr_pool_entry *entry = &pool->entries[i];
        uint64_t have = entry->region->size;
        if (!is_unused_region(entry))
            continue;
        if (have < size) {
            if (!*out_small || have > (*out_small)->region->size)
                *out_small = entry;
        } else if (!found || have < found->region->size) {
            found = entry;
        }
    }
    return found;
}

xray_status xr_pool_get(xr_pool *pool, uint64_t size, xr_err *err,
                        xray_region **out)
{
    xr_pool_entry *small = NULL;
    if (!size || size > UINT64_C(1) << 62)
        return xr_fail(err, XRAY_E_RANGE, "a region cannot have %llu bytes",
                       (unsigned long long)size);
    /* Entries may move here, and must not once they are pointed to. */
    xray_status status = reserve_entry(pool, err);
    if (status)
        return status;
    xr_pool_entry *entry = find_best_fit(pool, size, &small);
    if (!entry) {
        xray_region *region = NULL;
        status = pool->ops->region_create(pool->runtime, round_up_size(size),
                                          &region);
        if (status)
            return xr_relay_error(pool->relay, status, "region_create", err);
        if (!region || !region->data || region->size < size)
            return xr_fail(err, XRAY_E_BUG,
                           "the runtime's region_create returned no region of "
                           "%llu bytes",
                           (unsigned long long)size);
        /* The new region replaces a smaller one, so that a caller whose sizes
         * grow does not leave small regions behind. */
        if (small) {
            pool->ops->region_destroy(pool->runtime, small->region);
            remove_entry(pool, small);
        }
        entry = &pool->entries[pool->count++];
        *entry = (xr_pool_entry){ region, 0 };
    }
    entry->refs = 1;
    *out = entry->region;
    return XRAY_OK;
}

xray_status xr_pool_ref(xr_pool *pool, xray_region *region, xr_err *err)
{
    xr_pool_entry *entry = find_entry(pool, region);
    if (entry) {
        entry->refs++;
        return XRAY_OK;
    }
    if (!region->peer)
        return xr_fail(err, XRAY_E_ARG, "the region was already given back");
    xray_status status = reserve_entry(pool, err);
    if (!status)
        pool->entries[pool->count++] = (xr_pool_entry){ region, 1 };
    return status;
}

int xr_pool_put(xr_pool *pool, xray_region *region)
{
    xr_pool_entry *entry = find_entry(pool, region);
    if (!entry || !entry->refs || --entry->refs || !region->peer)
        return 0;
    remove_entry(pool, entry);
    return 1;
}

void xr_pool_forget(xr_pool *pool, const xray_peer *peer)
{
    for (size_t i = pool->count; i-- > 0;)
        if (pool->entries[i].region->peer == peer)
            remove_entry(pool, &pool->entries[i]);
}

xray_status xr_event_check(const xray_runtime_event *event, xr_err *err)
{
    if (event->kind != XRAY_RUNTIME_MESSAGE && event->kind != XRAY_RUNTIME_LOST)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll returned an event of kind %u, which "
                       "does not exist",
                       event->kind);
    if (event->kind == XRAY_RUNTIME_LOST && !event->reason)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll reported a loss without its reason");
    if (event->kind == XRAY_RUNTIME_MESSAGE && event->size && !event->data)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll returned a message of %llu bytes "
                       "without its data",
                       (unsigned long long)event->size);
    return XRAY_OK;
}
