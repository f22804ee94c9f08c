/* SPDX-License-Identifier: Apache-2.0
 *
 * Where actors on other hosts reach their parent: one socket on a named
 * interface. Whoever connects is a guest, of whom little is read, until the
 * greeting proves which actor it is.
 */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/base/str.h"
#include "core/base/system_error.h"

/* Refusals that are logged, so that a scan of ports does not fill the disk. */
#define TOLD 20u
#define BACKLOG 1024

int xr_hosts_watch(const xr_hosts *self, int fd, uint32_t kind, uint32_t index,
                   uint32_t events, int again)
{
    struct epoll_event event = { .events = events,
                                 .data.u64 = (uint64_t)kind << 32 | index };
    const int what = again ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    return epoll_ctl(self->epoll, what, fd, &event) ? errno : 0;
}

/* ---- opening ------------------------------------------------------------- */

/* Copies an address without a port: IPv4, or IPv6 of more than the link. */
static int copy_address(const struct sockaddr *from,
                        struct sockaddr_storage *out, socklen_t *out_size)
{
    if (!from || (from->sa_family != AF_INET && from->sa_family != AF_INET6))
        return 0;
    const struct sockaddr_in6 *six =
        (const struct sockaddr_in6 *)(const void *)from;
    if (from->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr))
        return 0;
    *out_size = from->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                           : sizeof(struct sockaddr_in6);
    memcpy(out, from, *out_size);
    return 1;
}

static xray_status find_address(const xray_host *host, const char *interface,
                                struct sockaddr_storage *out,
                                socklen_t *out_size)
{
    struct ifaddrs *all = NULL;
    int found = 0;
    if (getifaddrs(&all))
        return xr_hosts_fail(host, XRAY_E_IO, "the network interfaces: %s",
                             XR_SYSTEM_ERROR(errno));
    for (const struct ifaddrs *at = all; at && found != AF_INET;
         at = at->ifa_next) {
        const int family = at->ifa_addr ? at->ifa_addr->sa_family : 0;
        if (strcmp(at->ifa_name, interface) == 0 &&
            (!found || family == AF_INET) &&
            copy_address(at->ifa_addr, out, out_size))
            found = family;
    }
    freeifaddrs(all);
    if (found)
        return XRAY_OK;
    return xr_hosts_fail(host, XRAY_E_CONFIG,
                         if_nametoindex(interface)
                             ? "the network interface \"%s\" has no address"
                             : "this host has no network interface \"%s\"",
                         interface);
}

/* Writes the address, without a port, as numbers. */
static void name_address(const struct sockaddr_storage *from, int with_port,
                         char *out, size_t size)
{
    char text[INET6_ADDRSTRLEN] = "?";
    const struct sockaddr_in *four =
        (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *six =
        (const struct sockaddr_in6 *)(const void *)from;
    const int is_six = from->ss_family == AF_INET6;
    (void)inet_ntop(from->ss_family,
                    is_six ? (const void *)&six->sin6_addr
                           : (const void *)&four->sin_addr,
                    text, sizeof(text));
    if (with_port)
        (void)snprintf(out, size, "%s port %u", text,
                       ntohs(is_six ? six->sin6_port : four->sin_port));
    else
        (void)snprintf(out, size, "%s", text);
}

xray_status xr_hosts_open_door(xr_hosts *self, const char *interface)
{
    xr_hosts_door *door = &self->door;
    struct sockaddr_storage at = { 0 };
    struct sockaddr *name = (struct sockaddr *)(void *)&at;
    socklen_t size = 0;
    xray_status status = find_address(self->host, interface, &at, &size);
    if (status != XRAY_OK)
        return status;
    door->fd =
        socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int bad = 0;
    if (door->fd < 0 || bind(door->fd, name, size) ||
        listen(door->fd, BACKLOG) || getsockname(door->fd, name, &size))
        bad = errno;
    if (!bad)
        bad = xr_hosts_watch(self, door->fd, XR_HOSTS_DOOR, 0, EPOLLIN, 0);
    name_address(&at, 0, door->address, sizeof(door->address));
    if (bad)
        return xr_hosts_fail(self->host, XRAY_E_IO,
                             "listening on interface \"%s\", address %s: %s",
                             interface, door->address, XR_SYSTEM_ERROR(bad));
    door->port = ntohs(at.ss_family == AF_INET6
                           ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                           : ((struct sockaddr_in *)(void *)&at)->sin_port);
    return XRAY_OK;
}

static void drop_guest(xr_hosts_guest *guest)
{
    xr_tls_free(guest->tls);
    guest->tls = NULL;
    if (guest->fd >= 0)
        (void)close(guest->fd);
    guest->fd = -1;
}

void xr_hosts_close_door(xr_hosts *self)
{
    for (uint32_t i = 0; i < XR_HOSTS_GUESTS; i++)
        drop_guest(&self->door.guests[i]);
    if (self->door.fd >= 0)
        (void)close(self->door.fd);
    if (self->door.near >= 0)
        (void)close(self->door.near);
    self->door.fd = self->door.near = -1;
}

/* ---- guests -------------------------------------------------------------- */

/* The run goes on; a line says who was refused and why. */
static void refuse_guest(xr_hosts *self, xr_hosts_guest *guest, const char *why)
{
    char line[400];
    drop_guest(guest);
    if (self->door.told++ >= TOLD)
        return;
    (void)snprintf(line, sizeof(line), "a connection from %s was refused: %s%s",
                   guest->from, why,
                   self->door.told == TOLD ? "; later ones are not reported"
                                           : "");
    if (self->host && self->host->log)
        self->host->log(self->host, XRAY_LOG_WARN, line);
}

/* A free place; if there is none, that of the guest who has been here for the
 * longest. */
static xr_hosts_guest *find_place(xr_hosts *self)
{
    xr_hosts_guest *oldest = &self->door.guests[0];
    for (uint32_t i = 0; i < XR_HOSTS_GUESTS; i++) {
        xr_hosts_guest *guest = &self->door.guests[i];
        if (guest->fd < 0)
            return guest;
        if (guest->since_ms < oldest->since_ms)
            oldest = guest;
    }
    refuse_guest(self, oldest,
                 "too many others connected before it had sent "
                 "its hello");
    return oldest;
}

void xr_hosts_accept(xr_hosts *self, int near)
{
    unsigned char nonce[XR_TCP_TOKEN];
    struct sockaddr_storage from = { 0 };
    socklen_t size = sizeof(from);
    int fd = accept4(near ? self->door.near : self->door.fd,
                     (struct sockaddr *)(void *)&from, &size,
                     SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    xr_hosts_guest *guest = find_place(self);
    const uint32_t index = (uint32_t)(guest - self->door.guests);
    if (getrandom(nonce, sizeof(nonce), 0) != (ssize_t)sizeof(nonce) ||
        xr_hosts_watch(self, fd, XR_HOSTS_GUEST, index, EPOLLIN, 0)) {
        (void)close(fd);
        return;
    }
    guest->fd = fd;
    guest->secure = 0;
    guest->named = XR_HOSTS_NAMED_NONE;
    guest->self = self;
    guest->near = (uint32_t)near;
    guest->since_ms = xr_hosts_now_ms();
    if (near)
        (void)snprintf(guest->from, sizeof(guest->from), "this host");
    else
        name_address(&from, 1, guest->from, sizeof(guest->from));
    xr_tcp_hello_await(&guest->hello, self->build, nonce);
}

/* The peer that may connect with this opening; NULL: none is awaited. */
static xray_peer *find_awaited(xr_hosts *self,
                               const xr_tcp_opening_bytes *opening)
{
    xray_peer *peer =
        opening->index < self->peer_count ? &self->peers[opening->index] : NULL;
    if (!peer || !peer->used || peer->lost)
        return NULL;
    const int pulse = opening->purpose == XR_TCP_FOR_PULSE;
    const int there = pulse ? peer->pulse >= 0 : peer->conn.fd >= 0;
    return there || (pulse && !peer->greeted) ? NULL : peer;
}

/* The connection becomes the peer's. */
static void seat_guest(xr_hosts *self, xr_hosts_guest *guest)
{
    const int one = 1;
    xray_peer *peer = find_awaited(self, &guest->hello.opening);
    if (!peer) {
        refuse_guest(self, guest, "another connection had the same token");
        return;
    }
    const int fd = guest->fd;
    xr_tls *tls = guest->tls;
    guest->fd = -1;
    guest->tls = NULL;
    if (!guest->near)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (guest->hello.opening.purpose == XR_TCP_FOR_PULSE) {
        /* Nothing is read from it; its kernel answers for this host. */
        (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, fd, NULL);
        xr_tls_free(tls);
        peer->pulse = fd;
        return;
    }
    if (tls)
        xr_tls_admit(tls);
    peer->conn.tls = tls;
    peer->conn.fd = fd;
    peer->conn.near = guest->near;
    if (guest->near)
        xr_hosts_offer(peer);
    else if (self->door.near >= 0 && xr_hosts_is_here(fd))
        xr_hosts_note_copies(peer, "it came over TCP");
    peer->greeted = 1;
    peer->wants_out = 1; /* what waits for it is sent next */
    (void)xr_hosts_watch(self, fd, XR_HOSTS_PEER, peer->index,
                         EPOLLIN | EPOLLOUT, 1);
}

static void send_answer(xr_hosts_guest *guest)
{
    xr_tcp_hello *hello = &guest->hello;
    const struct iovec piece = { hello->send, hello->send_size };
    /* So few bytes go as a whole or not at all. */
    if (hello->send_size)
        (void)xr_tcp_send(guest->fd, guest->tls, &piece, 1);
    hello->send_size = 0;
}

/* ---- over TLS ------------------------------------------------------------ */

/* The key of the Workhorse that a guest says it is. */
static int find_key(void *ctx, const char *identity, unsigned char *out_key)
{
    xr_hosts_guest *guest = ctx;
    const xr_hosts *self = guest->self;
    const size_t before = strlen(XR_TCP_TLS_NAME);
    int64_t index = 0;
    if (strncmp(identity, XR_TCP_TLS_NAME, before) != 0 ||
        xr_parse_int(identity + before, &index) || index < 0 ||
        index > UINT32_MAX)
        return 0;
    guest->index = (uint32_t)index;
    guest->named = XR_HOSTS_NAMED_STRANGER;
    if (index >= self->peer_count || !self->peers[index].used ||
        self->peers[index].lost)
        return 0;
    guest->named = XR_HOSTS_NAMED_AWAITED;
    xr_tcp_tls_key(self->peers[index].token, out_key);
    return 1;
}

static void refuse_handshake(xr_hosts *self, xr_hosts_guest *guest)
{
    char why[240];
    if (guest->named == XR_HOSTS_NAMED_AWAITED)
        (void)snprintf(why, sizeof(why),
                       "it does not know the token that Workhorse %u was given",
                       guest->index);
    else if (guest->named == XR_HOSTS_NAMED_STRANGER)
        (void)snprintf(why, sizeof(why),
                       "it says that it is Workhorse %u, which the run does "
                       "not await",
                       guest->index);
    else
        (void)snprintf(why, sizeof(why), "its TLS handshake failed: %s",
                       xr_tls_why(guest->tls));
    refuse_guest(self, guest, why);
}

/* Goes on with the handshake: 1 once the hello may be read. That of a guest
 * without TLS is read, too, so that a Workhorse is told why it is refused. */
static int secure_guest(xr_hosts *self, xr_hosts_guest *guest)
{
    unsigned char first = 0;
    if (!guest->tls) {
        ssize_t n = recv(guest->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return 0;
        guest->hello.plain = n <= 0 || first != XR_TLS_FIRST_BYTE;
        if (guest->hello.plain)
            return 1;
        guest->tls = xr_tls_server(guest->fd, XR_TCP_TLS_MOST, find_key, guest);
        if (!guest->tls) {
            refuse_guest(self, guest, "there is no memory for it");
            return 0;
        }
    }
    const int bad = xr_tls_greet(guest->tls);
    if (bad == EPIPE)
        refuse_guest(self, guest, "it ended before its hello was complete");
    else if (bad && bad != EAGAIN)
        refuse_handshake(self, guest);
    guest->secure = !bad;
    return !bad;
}

/* ---- the greeting -------------------------------------------------------- */

void xr_hosts_serve_guest(xr_hosts *self, uint32_t index)
{
    xr_hosts_guest *guest = &self->door.guests[index];
    xr_tcp_hello *hello = &guest->hello;
    unsigned char bytes[XR_TCP_HELLO_MOST];
    if (guest->fd < 0 || (self->tls && !guest->near && !hello->plain &&
                          !guest->secure && !secure_guest(self, guest)))
        return;
    while (guest->fd >= 0 && hello->state == XR_TCP_HELLO_MORE) {
        struct iovec piece = { bytes, hello->want };
        ssize_t n = xr_tcp_receive(guest->fd, guest->tls, &piece, 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            refuse_guest(self, guest,
                         n < 0 && errno == EBADMSG
                             ? "it sent bytes that arrived damaged"
                             : "it ended before its hello was complete");
            return;
        }
        xr_tcp_hello_take(hello, bytes, (uint32_t)n);
        if (hello->state == XR_TCP_HELLO_ASKS) {
            const xray_peer *peer = find_awaited(self, &hello->opening);
            xr_tcp_hello_answer(hello, peer ? peer->token : NULL);
        }
        send_answer(guest);
    }
    if (guest->fd >= 0 && hello->state == XR_TCP_HELLO_DONE)
        seat_guest(self, guest);
    else if (guest->fd >= 0)
        refuse_guest(self, guest, hello->why);
}

void xr_hosts_check_guests(xr_hosts *self, uint64_t now)
{
    for (uint32_t i = 0; i < XR_HOSTS_GUESTS; i++) {
        xr_hosts_guest *guest = &self->door.guests[i];
        if (guest->fd >= 0 && now - guest->since_ms >= XR_HOSTS_HELLO_MS)
            refuse_guest(self, guest, "it sent no hello within 10 s");
    }
}
