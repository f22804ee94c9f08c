/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that the parent shares with actors of its own host. Which actors these
 * are is not asked but tried: an actor connects to an abstract Unix socket,
 * which exists in one network namespace only, and maps a page that it is passed
 * there. So two network namespaces of one machine are two hosts, and containers
 * that share one are the same host.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/base/system_error.h"

#define BACKLOG 1024
#define PAGE UINT64_C(4096)

/* ---- the Unix socket ----------------------------------------------------- */

/* The abstract name for the TCP address ADDRESS:PORT. */
static socklen_t make_name(const char *address, size_t size,
                           struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    const int n = snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1,
                           "xray/%.*s", (int)size, address);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static void log_line(const xr_hosts *self, const char *line)
{
    if (self->host && self->host->log)
        self->host->log(self->host, XRAY_LOG_INFO, line);
}

void xr_hosts_open_near(xr_hosts *self)
{
    xr_hosts_door *door = &self->door;
    struct sockaddr_un name;
    char text[80];
    char line[200];
    const int size =
        snprintf(text, sizeof(text), "%s:%u", door->address, door->port);
    const socklen_t bytes = make_name(text, (size_t)size, &name);
    door->near = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int bad = 0;
    if (door->near < 0 ||
        bind(door->near, (struct sockaddr *)(void *)&name, bytes) ||
        listen(door->near, BACKLOG))
        bad = errno;
    if (!bad)
        bad = xr_hosts_watch(self, door->near, XR_HOSTS_DOOR, 1, EPOLLIN, 0);
    self->shares = !bad;
    if (!bad)
        return;
    if (door->near >= 0)
        (void)close(door->near);
    door->near = -1;
    (void)snprintf(line, sizeof(line),
                   "actors of this host share no memory with the run, so its "
                   "regions are copied: a Unix socket: %s",
                   XR_SYSTEM_ERROR(bad));
    log_line(self, line);
}

int xr_hosts_reach_near(const char *address)
{
    const char *end = strrchr(address, ':');
    struct sockaddr_un name;
    const char *text = address + strlen("tcp:");
    const socklen_t bytes = make_name(text, (size_t)(end - text), &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (struct sockaddr *)(void *)&name, bytes) == 0)
        return fd;
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

int xr_hosts_is_here(int fd)
{
    struct sockaddr_storage ends[2] = { 0 };
    socklen_t sizes[2] = { sizeof(ends[0]), sizeof(ends[1]) };
    if (getsockname(fd, (struct sockaddr *)(void *)&ends[0], &sizes[0]) ||
        getpeername(fd, (struct sockaddr *)(void *)&ends[1], &sizes[1]))
        return 0;
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in *four = (struct sockaddr_in *)(void *)&ends[i];
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&ends[i];
        if (ends[i].ss_family == AF_INET)
            four->sin_port = 0;
        else
            six->sin6_port = 0;
    }
    return memcmp(&ends[0], &ends[1], sizeof(ends[0])) == 0;
}

void xr_hosts_note_copies(const xray_peer *peer, const char *why)
{
    char line[300];
    (void)snprintf(line, sizeof(line),
                   "actor %s is on this host, but shares no memory with the "
                   "run, so its regions are copied: %s",
                   peer->name, why);
    log_line(peer->self, line);
}

/* ---- the page ------------------------------------------------------------ */

void xr_hosts_offer(xray_peer *peer)
{
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MEMORY, 0);
    const int fd = xr_memory_make("xray-page", PAGE);
    void *page = fd >= 0 ? xr_memory_map(fd, PAGE) : NULL;
    frame.rest = PAGE;
    int bad = page ? 0 : errno;
    if (!bad && getrandom(&peer->page, sizeof(peer->page), 0) !=
                    (ssize_t)sizeof(peer->page))
        bad = errno;
    if (!bad) {
        memcpy(page, &peer->page, sizeof(peer->page));
        peer->conn.give = fd;
        /* The first bytes that this socket takes. */
        bad = xr_tcp_write(&peer->conn, &frame, NULL);
        peer->conn.give = -1;
    }
    if (bad)
        xr_hosts_note_copies(peer, XR_SYSTEM_ERROR(bad));
    if (page)
        (void)munmap(page, (size_t)PAGE);
    if (fd >= 0)
        (void)close(fd);
}

int xr_hosts_take_page(xray_peer *peer)
{
    xr_hosts_own *own = peer->self->own;
    const int fd = xr_memory_take(&peer->conn.fds);
    void *page = !xr_memory_check(fd, PAGE) ? xr_memory_map(fd, PAGE) : NULL;
    own->offered = 1;
    if (page) {
        memcpy(&own->page, page, sizeof(own->page));
        (void)munmap(page, (size_t)PAGE);
    }
    if (fd >= 0)
        (void)close(fd);
    return 0;
}

/* ---- regions ------------------------------------------------------------- */

int xr_hosts_take_region(xray_peer *peer, const xr_tcp_frame *frame)
{
    const int fd = xr_memory_take(&peer->conn.fds);
    int bad = EPROTO;
    if (frame->value && !xr_memory_check(fd, frame->rest) &&
        !xr_hosts_region_find(peer->self, peer, frame->value))
        bad = xr_hosts_region_add(peer, frame->value, frame->rest, fd);
    if (fd >= 0)
        (void)close(fd);
    return bad;
}

/* Passes the memory of a region on. */
static int give_region(xray_peer *peer, const xr_hosts_region *region)
{
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MEMORY, region->pub.id);
    frame.rest = region->pub.size;
    peer->conn.give = region->fd;
    const int bad = xr_hosts_put(peer, &frame, NULL);
    peer->conn.give = -1;
    return bad;
}

int xr_hosts_share(xray_peer *peer, xray_region *region, int *out_shared)
{
    xr_hosts_region *own = (xr_hosts_region *)(void *)region;
    const xr_hosts *self = peer->self;
    int bad = 0;
    if (region->peer) {
        *out_shared = own->shared != 0;
        return 0;
    }
    unsigned char *sent = &own->sent[peer - self->peers];
    /* A peer that has a copy keeps it. */
    if (*sent == XR_HOSTS_UNKNOWN) {
        const int shares = self->own ? self->shares != 0 : peer->shares != 0;
        *sent = shares && own->fd >= 0 ? XR_HOSTS_SHARED : XR_HOSTS_COPIED;
        if (*sent == XR_HOSTS_SHARED)
            bad = give_region(peer, own);
    }
    *out_shared = *sent == XR_HOSTS_SHARED;
    return bad;
}
