/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages and regions of actors on other hosts: a message carries the bytes of
 * its regions, which are received in the regions of the other side.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/actor/memory.h"
#include "core/base/err.h"
#include "core/base/system_error.h"

xray_status xr_hosts_fail(const xray_host *host, xray_status status,
                          const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status = xr_host_vfail(host, status, "runtime hosts", fmt, args);
    va_end(args);
    return status;
}

/* ---- regions ------------------------------------------------------------- */

static void free_region(xr_hosts_region *region)
{
    if (region->pub.data)
        (void)munmap(region->pub.data, (size_t)region->pub.size);
    if (region->fd >= 0)
        (void)close(region->fd);
    free(region->sent);
    free(region);
}

/* A region that `peer` created, or this process with `peers` of them: NULL and
 * errno on failure. `fd` stays the caller's. */
static xr_hosts_region *make_region(uint64_t size, int fd, xray_peer *peer,
                                    uint32_t peers)
{
    xr_hosts_region *region = calloc(1, sizeof(*region));
    if (!region)
        return NULL;
    region->fd = -1;
    region->sent = peers ? calloc(peers, 1) : NULL;
    region->pub = (xray_region){ .header = XRAY_HEADER(xray_region),
                                 .size = size,
                                 .data = xr_memory_map(fd, size),
                                 .peer = peer };
    if (region->pub.data && (!peers || region->sent))
        return region;
    free_region(region);
    errno = ENOMEM;
    return NULL;
}

int xr_hosts_region_add(xray_peer *peer, uint64_t id, uint64_t size, int fd)
{
    xr_hosts *self = peer->self;
    xr_hosts_region *region = make_region(size, fd, peer, 0);
    if (!region)
        return errno;
    region->pub.id = id;
    region->shared = fd >= 0;
    (void)pthread_mutex_lock(&self->lock);
    region->next = peer->regions;
    peer->regions = region;
    (void)pthread_mutex_unlock(&self->lock);
    return 0;
}

/* Where the list points at the region, or at its end. */
static xr_hosts_region **find_place(xr_hosts_region **list, uint64_t id)
{
    while (*list && (*list)->pub.id != id)
        list = &(*list)->next;
    return list;
}

void xr_hosts_region_remove(xr_hosts *self, xr_hosts_region **list, uint64_t id)
{
    (void)pthread_mutex_lock(&self->lock);
    xr_hosts_region **at = find_place(list, id);
    xr_hosts_region *region = *at;
    if (region)
        *at = region->next;
    (void)pthread_mutex_unlock(&self->lock);
    if (region)
        free_region(region);
}

xray_status xr_hosts_region_create(void *self, uint64_t size,
                                   xray_region **out_region)
{
    xr_hosts *at = self;
    /* Without a descriptor to spare it is copied. */
    const int fd = at->shares ? xr_memory_make("xray-region", size) : -1;
    xr_hosts_region *region = make_region(size, fd, NULL, at->peer_count);
    if (!region) {
        const int bad = errno;
        if (fd >= 0)
            (void)close(fd);
        return xr_hosts_fail(at->host, XRAY_E_NOMEM,
                             "a region of %llu bytes: %s",
                             (unsigned long long)size, XR_SYSTEM_ERROR(bad));
    }
    region->fd = fd;
    (void)pthread_mutex_lock(&at->lock);
    region->pub.id = ++at->next_region;
    region->next = at->regions;
    at->regions = region;
    (void)pthread_mutex_unlock(&at->lock);
    *out_region = &region->pub;
    return XRAY_OK;
}

xray_region *xr_hosts_region_find(void *self, xray_peer *peer, uint64_t id)
{
    xr_hosts *at = self;
    (void)pthread_mutex_lock(&at->lock);
    xr_hosts_region *region =
        *find_place(peer ? &peer->regions : &at->regions, id);
    (void)pthread_mutex_unlock(&at->lock);
    return region ? &region->pub : NULL;
}

/* ---- sending ------------------------------------------------------------- */

/* Gives the peer the memory of what it is to share, whose bytes the message
 * does not carry. */
static int share_parts(xray_peer *peer, xr_tcp_part *parts,
                       xray_region *const *regions, uint64_t count)
{
    int bad = 0;
    for (uint64_t i = 0; i < count && !bad; i++) {
        int shared = 0;
        bad = xr_hosts_share(peer, regions[i], &shared);
        if (shared)
            parts[i].first = parts[i].count = 0;
    }
    return bad;
}

/* Writes bytes of a message; *left of it are still to be written. `opening` is
 * the size of its opening. */
static int put_piece(xray_peer *peer, const void *data, uint64_t size,
                     uint64_t opening, uint64_t *left)
{
    int bad = 0;
    for (uint64_t at = 0; !bad && at < size;) {
        xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MESSAGE, opening);
        frame.size = size - at < XR_TCP_PIECE ? size - at : XR_TCP_PIECE;
        *left -= frame.size;
        frame.rest = *left;
        bad = xr_hosts_put(peer, &frame, (const char *)data + at);
        at += frame.size;
    }
    return bad;
}

static int put_message(xray_peer *peer, xr_tcp_head *head, uint64_t opening,
                       xray_region *const *regions)
{
    xr_tcp_part *parts = (xr_tcp_part *)(void *)(head + 1);
    uint64_t left = opening;
    int bad = share_parts(peer, parts, regions, head->part_count);
    for (uint64_t i = 0; i < head->part_count; i++)
        left += parts[i].count;
    if (!bad)
        bad = put_piece(peer, head, opening, opening, &left);
    for (uint64_t i = 0; !bad && i < head->part_count; i++)
        bad = put_piece(peer, (const char *)regions[i]->data + parts[i].first,
                        parts[i].count, opening, &left);
    return bad;
}

/* NULL, or why the message cannot carry the region. */
static const char *describe_part(xr_hosts *self, const xray_peer *peer,
                                 const xray_region *region, xr_tcp_part *out)
{
    if ((region->peer && region->peer != peer) ||
        xr_hosts_region_find(self, region->peer, region->id) != region)
        return "a message carries a region that neither its sender nor its "
               "receiver created";
    if (region->first > region->size ||
        region->count > region->size - region->first)
        return "a message carries bytes that its region does not have";
    *out = (xr_tcp_part){ .id = region->id,
                          .size = region->size,
                          .first = region->first,
                          .count = region->count ? region->count
                                                 : region->size - region->first,
                          .receivers = region->peer != NULL };
    return NULL;
}

/* Writes a message, in an actor's process while no sign of life is written. The
 * other side may answer with the same regions, which the actor's other thread
 * then writes to: under the lock, and so after they were read here. */
static int send_message(xr_hosts *self, xray_peer *peer, xr_tcp_head *head,
                        uint64_t opening, xray_region *const *regions)
{
    if (!self->own)
        return put_message(peer, head, opening, regions);
    (void)pthread_mutex_lock(&self->own->lock);
    int bad = put_message(peer, head, opening, regions);
    (void)pthread_mutex_lock(&self->lock);
    (void)pthread_mutex_unlock(&self->lock);
    (void)pthread_mutex_unlock(&self->own->lock);
    return bad;
}

xray_status xr_hosts_send(void *self, xray_peer *peer, const void *data,
                          uint64_t size, xray_region *const *regions,
                          uint32_t region_count)
{
    xr_hosts *at = self;
    const uint64_t before =
        sizeof(xr_tcp_head) + region_count * sizeof(xr_tcp_part);
    if (peer->lost)
        return xr_hosts_fail(at->host, XRAY_E_PEER, "the other side is gone");
    if (region_count > XR_TCP_PARTS || size > XR_TCP_OPENING - before)
        return xr_hosts_fail(at->host, XRAY_E_ARG,
                             "a message of %llu bytes and %u regions is larger "
                             "than %llu bytes and %u regions",
                             (unsigned long long)size, region_count,
                             (unsigned long long)XR_TCP_OPENING, XR_TCP_PARTS);
    xr_tcp_head *head = malloc((size_t)(before + size));
    if (!head)
        return xr_hosts_fail(at->host, XRAY_E_NOMEM, "out of memory");
    xr_tcp_part *parts = (xr_tcp_part *)(void *)(head + 1);
    *head = (xr_tcp_head){ size, region_count };
    if (size)
        memcpy((char *)head + before, data, (size_t)size);
    const char *why = NULL;
    for (uint32_t i = 0; i < region_count && !why; i++)
        why = describe_part(at, peer, regions[i], &parts[i]);
    int bad = why ? 0 : send_message(at, peer, head, before + size, regions);
    free(head);
    if (why)
        return xr_hosts_fail(at->host, XRAY_E_ARG, "%s", why);
    if (bad)
        return xr_hosts_fail(at->host, XRAY_E_PEER,
                             "the other side is gone: %s",
                             XR_SYSTEM_ERROR(bad));
    return XRAY_OK;
}

/* ---- receiving ----------------------------------------------------------- */

int xr_hosts_expect(xr_tcp_conn *conn, const xr_tcp_part *part)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    xr_hosts *self = peer->self;
    xr_hosts_region **list = part->receivers ? &self->regions : &peer->regions;
    int bad = 0;
    (void)pthread_mutex_lock(&self->lock);
    const xr_hosts_region *region = *find_place(list, part->id);
    if (region)
        bad = region->pub.size == part->size ? 0 : EPROTO;
    (void)pthread_mutex_unlock(&self->lock);
    if (region || part->receivers) /* one of this side may be gone by now */
        return bad;
    return xr_hosts_region_add(peer, part->id, part->size, -1);
}

unsigned char *xr_hosts_hold(xr_tcp_conn *conn, const xr_tcp_part *part)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    xr_hosts *self = peer->self;
    (void)pthread_mutex_lock(&self->lock);
    const xr_hosts_region *region = *find_place(
        part->receivers ? &self->regions : &peer->regions, part->id);
    if (!region || region->pub.size != part->size)
        return NULL;
    return (unsigned char *)region->pub.data + part->first;
}

void xr_hosts_release(xr_tcp_conn *conn)
{
    const xray_peer *peer = (const xray_peer *)(const void *)conn;
    (void)pthread_mutex_unlock(&peer->self->lock);
}

int xr_hosts_next(xr_hosts *self, xray_peer *peer, xray_runtime_event *out)
{
    xr_tcp_item *item;
    while ((item = xr_tcp_take(&peer->conn))) {
        if (item->unregion) {
            xr_hosts_region_remove(self, &peer->regions, item->unregion);
            free(item);
            continue;
        }
        xr_tcp_head head;
        memcpy(&head, item->bytes, sizeof(head));
        free(self->current);
        self->current = item;
        *out = (xray_runtime_event){
            .header = XRAY_HEADER(xray_runtime_event),
            .kind = XRAY_RUNTIME_MESSAGE,
            .peer = peer,
            .data = item->bytes + (item->size - head.size),
            .size = head.size,
        };
        return 1;
    }
    return 0;
}
