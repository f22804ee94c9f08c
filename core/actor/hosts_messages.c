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

#include "core/actor/hosts.h"
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

/* 0 or an errno. The region is the first of the list. */
static int add_region(xr_hosts_region **list, uint64_t id, uint64_t size,
                      xray_peer *peer)
{
    xr_hosts_region *region = calloc(1, sizeof(*region));
    if (!region)
        return ENOMEM;
    void *data = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        free(region);
        return errno;
    }
    region->pub = (xray_region){ .header = XRAY_HEADER(xray_region),
                                 .id = id,
                                 .size = size,
                                 .data = data,
                                 .peer = peer };
    region->next = *list;
    *list = region;
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
    if (!region)
        return;
    (void)munmap(region->pub.data, (size_t)region->pub.size);
    free(region);
}

xray_status xr_hosts_region_create(void *self, uint64_t size,
                                   xray_region **out_region)
{
    xr_hosts *at = self;
    (void)pthread_mutex_lock(&at->lock);
    int bad = add_region(&at->regions, at->next_region + 1, size, NULL);
    if (!bad) {
        at->next_region++;
        *out_region = &at->regions->pub;
    }
    (void)pthread_mutex_unlock(&at->lock);
    return bad ? xr_hosts_fail(at->host, XRAY_E_NOMEM,
                               "a region of %llu bytes: %s",
                               (unsigned long long)size, XR_SYSTEM_ERROR(bad))
               : XRAY_OK;
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

static int put_message(xray_peer *peer, const xr_tcp_head *head,
                       uint64_t opening, xray_region *const *regions)
{
    const xr_tcp_part *parts = (const xr_tcp_part *)(const void *)(head + 1);
    uint64_t left = opening;
    for (uint64_t i = 0; i < head->part_count; i++)
        left += parts[i].count;
    int bad = put_piece(peer, head, opening, opening, &left);
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
static int send_message(xr_hosts *self, xray_peer *peer,
                        const xr_tcp_head *head, uint64_t opening,
                        xray_region *const *regions)
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
    else if (!part->receivers) /* a region of this side may be gone by now */
        bad = add_region(list, part->id, part->size, peer);
    (void)pthread_mutex_unlock(&self->lock);
    return bad;
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
