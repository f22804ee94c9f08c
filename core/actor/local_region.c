/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared memory regions of the local runtime: creates, announces and maps them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/actor/local.h"
#include "core/actor/memory.h"
#include "core/base/system_error.h"

static int append_region(xr_local_regions *regions, xr_local_region *region)
{
    if (regions->count == regions->cap) {
        size_t cap = regions->cap ? regions->cap * 2 : 16;
        xr_local_region **grown = realloc(regions->items, cap * sizeof(region));
        if (!grown)
            return ENOMEM;
        regions->items = grown;
        regions->cap = cap;
    }
    regions->items[regions->count++] = region;
    return 0;
}

static size_t find_region(const xr_local_regions *regions, uint64_t id)
{
    size_t i = 0;
    while (i < regions->count && regions->items[i]->pub.id != id)
        i++;
    return i;
}

static void free_region(xr_local_region *region)
{
    if (region->pub.data)
        (void)munmap(region->pub.data, (size_t)region->pub.size);
    if (region->fd >= 0)
        (void)close(region->fd);
    free(region->sent);
    free(region);
}

static void remove_region(xr_local_regions *regions, size_t i)
{
    free_region(regions->items[i]);
    regions->items[i] = regions->items[--regions->count];
}

void xr_local_regions_free(xr_local_regions *regions)
{
    while (regions->count)
        remove_region(regions, regions->count - 1);
    free(regions->items);
    memset(regions, 0, sizeof(*regions));
}

xray_status xr_local_region_create(void *self, uint64_t size,
                                   xray_region **out_region)
{
    xr_local *local = self;
    xr_local_region *region = calloc(1, sizeof(*region));
    int bad = ENOMEM;
    if (region) {
        region->pub =
            (xray_region){ XRAY_HEADER(xray_region), 0, size, NULL, NULL };
        region->fd = -1;
        region->sent = calloc(local->peer_count, 1);
    }
    if (region && region->sent) {
        region->fd = xr_memory_make("xray-region", size);
        if (region->fd >= 0)
            region->pub.data = xr_memory_map(region->fd, size);
        bad = region->pub.data ? append_region(&local->regions, region) : errno;
    }
    if (bad) {
        if (region)
            free_region(region);
        return xr_local_fail(local, XRAY_E_NOMEM,
                             "a shared region of %llu bytes: %s",
                             (unsigned long long)size, XR_SYSTEM_ERROR(bad));
    }
    region->pub.id = ++local->next_region;
    *out_region = &region->pub;
    return XRAY_OK;
}

void xr_local_region_destroy(void *self, xray_region *region)
{
    xr_local *local = self;
    size_t at = find_region(&local->regions, region->id);
    if (at == local->regions.count)
        return;
    xr_frame frame = { XR_FRAME_UNREGION, 0, 0, region->id, 0 };
    for (uint32_t i = 0; i < local->peer_count; i++) {
        xray_peer *peer = &local->peers[i];
        /* A peer that this does not reach keeps it mapped until its end. */
        if (local->regions.items[at]->sent[i] && peer->conn.fd >= 0)
            (void)xr_conn_send(&peer->conn, &frame, NULL, -1);
    }
    remove_region(&local->regions, at);
}

xray_region *xr_local_region_find(void *self, xray_peer *peer, uint64_t id)
{
    xr_local *local = self;
    const xr_local_regions *regions = peer ? &peer->regions : &local->regions;
    size_t at = find_region(regions, id);
    return at < regions->count ? &regions->items[at]->pub : NULL;
}

static int receive_region(xray_peer *peer, const xr_frame *frame, int fd)
{
    int bad = xr_memory_check(fd, frame->bytes);
    if (bad || find_region(&peer->regions, frame->id) < peer->regions.count)
        return EINVAL;
    xr_local_region *region = calloc(1, sizeof(*region));
    if (!region)
        return ENOMEM;
    region->pub =
        (xray_region){ XRAY_HEADER(xray_region), frame->id, frame->bytes,
                       xr_memory_map(fd, frame->bytes), peer };
    region->fd = -1;
    bad = region->pub.data ? append_region(&peer->regions, region) : ENOMEM;
    if (bad)
        free_region(region);
    return bad;
}

int xr_local_region_frame(xray_peer *peer, const xr_frame *frame, int fd)
{
    int bad = 0;
    if (frame->kind == XR_FRAME_REGION) {
        bad = receive_region(peer, frame, fd);
    } else {
        size_t at = find_region(&peer->regions, frame->id);
        if (at < peer->regions.count)
            remove_region(&peer->regions, at);
    }
    if (fd >= 0)
        (void)close(fd);
    return bad;
}

int xr_local_region_send(xr_local *local, xray_peer *peer,
                         xray_region *const *regions, uint32_t count)
{
    const size_t slot = (size_t)(peer - local->peers);
    for (uint32_t i = 0; i < count; i++) {
        if (regions[i]->peer == peer)
            continue;
        size_t at = find_region(&local->regions, regions[i]->id);
        if (regions[i]->peer || at == local->regions.count)
            return EINVAL;
        xr_local_region *own = local->regions.items[at];
        if (own->sent[slot])
            continue;
        xr_frame frame = { XR_FRAME_REGION, 1, 0, own->pub.id, own->pub.size };
        int bad = xr_conn_send(&peer->conn, &frame, NULL, own->fd);
        if (bad)
            return bad;
        own->sent[slot] = 1;
    }
    return 0;
}
