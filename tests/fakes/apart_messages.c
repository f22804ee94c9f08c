/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages and regions of the runtime without shared memory: a message carries
 * the bytes of its regions, which the receiver's copies get once the message is
 * returned, so that no message shows what a later one carries.
 */
#define _GNU_SOURCE /* strerrordesc_np */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/fakes/apart.h"

xray_status apart_fail(const xray_host *host, xray_status status,
                       const char *fmt, ...)
{
    char text[400];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    return host->fail(host, status, "runtime apart", text);
}

/* ---- regions ------------------------------------------------------------- */

/* 0 or an errno. The region is the first of the list. */
static int add_region(apart_region **list, uint64_t id, uint64_t size,
                      xray_peer *peer)
{
    apart_region *region = calloc(1, sizeof(*region));
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
static apart_region **find_place(apart_region **list, uint64_t id)
{
    while (*list && (*list)->pub.id != id)
        list = &(*list)->next;
    return list;
}

void apart_region_remove(apart_region **list, uint64_t id)
{
    apart_region **at = find_place(list, id);
    apart_region *region = *at;
    if (!region)
        return;
    *at = region->next;
    (void)munmap(region->pub.data, (size_t)region->pub.size);
    free(region);
}

xray_status apart_region_create(void *self, uint64_t size,
                                xray_region **out_region)
{
    apart *at = self;
    int bad = add_region(&at->regions, at->next_region + 1, size, NULL);
    if (bad)
        return apart_fail(at->host, XRAY_E_NOMEM, "a region of %llu bytes: %s",
                          (unsigned long long)size, strerrordesc_np(bad));
    at->next_region++;
    *out_region = &at->regions->pub;
    return XRAY_OK;
}

xray_region *apart_region_find(void *self, xray_peer *peer, uint64_t id)
{
    apart *at = self;
    apart_region *region =
        *find_place(peer ? &peer->regions : &at->regions, id);
    return region ? &region->pub : NULL;
}

/* ---- sending ------------------------------------------------------------- */

/* Writes bytes of a message; *left of it are still to be written. */
static int put_piece(apart_conn *conn, const void *data, uint64_t size,
                     uint64_t *left)
{
    int bad = 0;
    for (uint64_t at = 0; !bad && at < size;) {
        apart_frame frame = apart_frame_of(APART_MESSAGE, 0);
        frame.size = size - at < APART_PIECE ? size - at : APART_PIECE;
        *left -= frame.size;
        frame.rest = *left;
        bad = conn->put(conn, &frame, (const char *)data + at);
        at += frame.size;
    }
    return bad;
}

static int put_message(apart_conn *conn, const apart_head *head,
                       const void *data, xray_region *const *regions)
{
    const apart_part *parts = (const apart_part *)(const void *)(head + 1);
    const uint64_t opening = sizeof(*head) + head->part_count * sizeof(*parts);
    uint64_t left = opening + head->size;
    for (uint64_t i = 0; i < head->part_count; i++)
        left += parts[i].count;
    int bad = put_piece(conn, head, opening, &left);
    if (!bad)
        bad = put_piece(conn, data, head->size, &left);
    for (uint64_t i = 0; !bad && i < head->part_count; i++)
        bad = put_piece(conn, (const char *)regions[i]->data + parts[i].first,
                        parts[i].count, &left);
    return bad;
}

/* NULL, or why the message cannot carry the region. */
static const char *describe_part(apart *self, const xray_peer *peer,
                                 const xray_region *region, apart_part *out)
{
    if ((region->peer && region->peer != peer) ||
        apart_region_find(self, region->peer, region->id) != region)
        return "a message carries a region that neither its sender nor its "
               "receiver created";
    if (region->first > region->size ||
        region->count > region->size - region->first)
        return "a message carries bytes that its region does not have";
    *out = (apart_part){ .id = region->id,
                         .size = region->size,
                         .first = region->first,
                         .count = region->count ? region->count
                                                : region->size - region->first,
                         .receivers = region->peer != NULL };
    return NULL;
}

/* Writes a message, in an actor's process while no sign of life is written. */
static int send_message(const apart *self, xray_peer *peer,
                        const apart_head *head, const void *data,
                        xray_region *const *regions)
{
    if (self->own)
        (void)pthread_mutex_lock(&self->own->lock);
    int bad = put_message(&peer->conn, head, data, regions);
    if (self->own)
        (void)pthread_mutex_unlock(&self->own->lock);
    return bad;
}

xray_status apart_send(void *self, xray_peer *peer, const void *data,
                       uint64_t size, xray_region *const *regions,
                       uint32_t region_count)
{
    apart *at = self;
    if (peer->lost)
        return apart_fail(at->host, XRAY_E_PEER, "the other side is gone");
    apart_head *head =
        malloc(sizeof(*head) + region_count * sizeof(apart_part));
    if (!head)
        return apart_fail(at->host, XRAY_E_NOMEM, "out of memory");
    apart_part *parts = (apart_part *)(void *)(head + 1);
    *head = (apart_head){ size, region_count };
    const char *why = NULL;
    for (uint32_t i = 0; i < region_count && !why; i++)
        why = describe_part(at, peer, regions[i], &parts[i]);
    int bad = why ? 0 : send_message(at, peer, head, data, regions);
    free(head);
    if (why)
        return apart_fail(at->host, XRAY_E_ARG, "%s", why);
    if (bad)
        return apart_fail(at->host, XRAY_E_PEER, "the other side is gone: %s",
                          strerrordesc_np(bad));
    return XRAY_OK;
}

/* ---- receiving ----------------------------------------------------------- */

/* Copies what a message carries to the region, which is made if this is the
 * first that is seen of it. A region of this side may be gone by now. */
static int fill_region(apart *self, xray_peer *peer, const apart_part *part,
                       const unsigned char *bytes)
{
    apart_region **list = part->receivers ? &self->regions : &peer->regions;
    apart_region *region = *find_place(list, part->id);
    int bad = 0;
    if (!region && part->receivers)
        return 0;
    if (!region) {
        bad = add_region(list, part->id, part->size, peer);
        region = *list;
    }
    if (bad)
        return bad;
    if (region->pub.size != part->size || part->first > part->size ||
        part->count > part->size - part->first)
        return EPROTO;
    memcpy((char *)region->pub.data + part->first, bytes, (size_t)part->count);
    return 0;
}

/* Finds the bytes of a message after those that its regions get. */
static int open_message(apart *self, xray_peer *peer, const apart_item *item,
                        xray_runtime_event *out)
{
    apart_head head;
    apart_part part;
    uint64_t at = sizeof(head);
    if (item->size < at)
        return EPROTO;
    memcpy(&head, item->bytes, sizeof(head));
    if (head.part_count > (item->size - at) / sizeof(part) ||
        head.size > item->size - at - head.part_count * sizeof(part))
        return EPROTO;
    out->kind = XRAY_RUNTIME_MESSAGE;
    out->data = item->bytes + at + head.part_count * sizeof(part);
    out->size = head.size;
    uint64_t from = at + head.part_count * sizeof(part) + head.size;
    for (uint64_t i = 0; i < head.part_count; i++) {
        memcpy(&part, item->bytes + at + i * sizeof(part), sizeof(part));
        if (part.count > item->size - from)
            return EPROTO;
        int bad = fill_region(self, peer, &part, item->bytes + from);
        if (bad)
            return bad;
        from += part.count;
    }
    return from == item->size ? 0 : EPROTO;
}

int apart_next(apart *self, xray_peer *peer, xray_runtime_event *out,
               int *out_bad)
{
    apart_item *item;
    while ((item = apart_take(&peer->conn))) {
        if (item->unregion) {
            apart_region_remove(&peer->regions, item->unregion);
            free(item);
            continue;
        }
        *out =
            (xray_runtime_event){ .header = XRAY_HEADER(xray_runtime_event) };
        out->peer = peer;
        free(self->current);
        self->current = item;
        *out_bad = open_message(self, peer, item, out);
        return *out_bad ? -1 : 1;
    }
    return 0;
}
