/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "core/actor/invoke.h"

/* ---- The host a runtime is given ---- */

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

static xray_status reserve(xr_pool *pool, xr_err *err)
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

/* Whole pages, and steps of a quarter above 64 KiB, so that sizes that differ
 * a little share regions. Memory that is not touched costs nothing. */
static uint64_t round_up(uint64_t size)
{
    uint64_t step = 4096;
    while (step <= size / 8 && step < UINT64_C(1) << 40)
        step *= 2;
    return (size + step - 1) / step * step;
}

static xr_pool_entry *find(const xr_pool *pool, const xray_region *region)
{
    for (size_t i = 0; i < pool->count; i++)
        if (pool->entries[i].region == region)
            return &pool->entries[i];
    return NULL;
}

static void take_out(xr_pool *pool, xr_pool_entry *entry)
{
    *entry = pool->entries[--pool->count];
}

static int is_free(const xr_pool_entry *entry)
{
    return !entry->refs && !entry->region->peer;
}

/* The smallest free one that fits, or NULL and the largest that does not. */
static xr_pool_entry *best(const xr_pool *pool, uint64_t size,
                           xr_pool_entry **out_small)
{
    xr_pool_entry *found = NULL;
    *out_small = NULL;
    for (size_t i = 0; i < pool->count; i++) {
        xr_pool_entry *entry = &pool->entries[i];
        uint64_t have = entry->region->size;
        if (!is_free(entry))
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
        return xr_fail(err, XRAY_E_RANGE, "a region of %llu bytes",
                       (unsigned long long)size);
    xr_pool_entry *entry = best(pool, size, &small);
    if (!entry) {
        xray_region *region = NULL;
        xray_status status = reserve(pool, err);
        if (status)
            return status;
        status =
            pool->ops->region_create(pool->runtime, round_up(size), &region);
        if (status)
            return xr_relay_error(pool->relay, status, "region_create", err);
        if (!region || !region->data || region->size < size)
            return xr_fail(err, XRAY_E_BUG,
                           "the runtime's region_create gave no region of %llu "
                           "bytes",
                           (unsigned long long)size);
        /* Growing sizes leave no trail of small ones. */
        (void)best(pool, size, &small);
        if (small) {
            pool->ops->region_destroy(pool->runtime, small->region);
            take_out(pool, small);
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
    xr_pool_entry *entry = find(pool, region);
    if (entry) {
        entry->refs++;
        return XRAY_OK;
    }
    if (!region->peer)
        return xr_fail(err, XRAY_E_ARG, "a region that was given back");
    xray_status status = reserve(pool, err);
    if (!status)
        pool->entries[pool->count++] = (xr_pool_entry){ region, 1 };
    return status;
}

int xr_pool_put(xr_pool *pool, xray_region *region)
{
    xr_pool_entry *entry = find(pool, region);
    if (!entry || !entry->refs || --entry->refs || !region->peer)
        return 0;
    take_out(pool, entry);
    return 1;
}

void xr_pool_forget(xr_pool *pool, const xray_peer *peer)
{
    for (size_t i = pool->count; i-- > 0;)
        if (pool->entries[i].region->peer == peer)
            take_out(pool, &pool->entries[i]);
}

xray_status xr_event_check(const xray_runtime_event *event, xr_err *err)
{
    if (event->kind != XRAY_RUNTIME_MESSAGE && event->kind != XRAY_RUNTIME_LOST)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll gave an event of kind %u, which is "
                       "none",
                       event->kind);
    if (event->kind == XRAY_RUNTIME_LOST && !event->reason)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll gave a loss without its reason");
    if (event->kind == XRAY_RUNTIME_MESSAGE && event->size && !event->data)
        return xr_fail(err, XRAY_E_BUG,
                       "the runtime's poll gave a message of %llu bytes, but "
                       "none of them",
                       (unsigned long long)event->size);
    return XRAY_OK;
}
