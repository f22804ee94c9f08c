/* SPDX-License-Identifier: Apache-2.0
 *
 * A runtime of actors that share no memory with their parent, and the parent's
 * side of its messages.
 */
#define _GNU_SOURCE /* accept4, strerrordesc_np */
#include "tests/fakes/apart.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define TICK_MS 100
#define ACTORS_MOST 4096u

/* ---- the instance -------------------------------------------------------- */

int apart_open(apart *self, xray_peer *peer)
{
    *peer = (xray_peer){ .self = self, .listener = -1 };
    int bad = apart_conn_open(&peer->conn);
    peer->used = !bad;
    return bad;
}

xray_status apart_new(const xray_host *host, uint32_t peers,
                      uint64_t record_size, apart **out_self)
{
    apart *self = calloc(1, sizeof(*self));
    if (self) {
        self->host = host;
        self->record_bytes = (record_size + 63) / 64 * 64;
        self->peers = calloc(peers, sizeof(*self->peers));
        self->polls = calloc(peers, sizeof(*self->polls));
        self->records = self->record_bytes
                            ? aligned_alloc(64, peers * self->record_bytes)
                            : NULL;
    }
    if (!self || !self->peers || !self->polls ||
        (self->record_bytes && !self->records)) {
        if (self)
            apart_free(self);
        return apart_fail(host, XRAY_E_NOMEM, "out of memory");
    }
    self->peer_count = peers;
    self->checked_ms = apart_now_ms();
    *out_self = self;
    return XRAY_OK;
}

void apart_free(apart *self)
{
    if (self->own)
        apart_detach(self);
    /* All are killed before the first is waited for. */
    for (uint32_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].pid)
            (void)kill(self->peers[i].pid, SIGKILL);
    for (uint32_t i = 0; i < self->peer_count; i++)
        apart_kill(self, &self->peers[i]);
    while (self->regions)
        apart_region_remove(&self->regions, self->regions->pub.id);
    free(self->current);
    free(self->records);
    free(self->polls);
    free(self->peers);
    free(self);
}

static xray_status create_parent(const xray_runtime_setup *setup,
                                 const void *config, void **out_self)
{
    apart *self = NULL;
    (void)config;
    if (!setup->actors || setup->actors > ACTORS_MOST)
        return apart_fail(setup->host, XRAY_E_ARG,
                          "%u actors: the number must be 1 to %u",
                          setup->actors, ACTORS_MOST);
    xray_status status =
        apart_new(setup->host, setup->actors, setup->record_size, &self);
    if (status != XRAY_OK)
        return status;
    self->hang_ms = setup->hang_ms;
    self->start_ms = setup->start_ms;
    *out_self = self;
    return XRAY_OK;
}

static void destroy_instance(void *self)
{
    if (self)
        apart_free(self);
}

/* ---- the parent's connections -------------------------------------------- */

/* Keeps a frame for a process that has not connected yet; 0 or ENOMEM. */
static int keep_early(xray_peer *peer, const apart_frame *frame,
                      const void *data)
{
    const size_t size = sizeof(*frame) + (size_t)frame->size;
    if (peer->early_cap - peer->early_size < size) {
        const size_t cap = (peer->early_size + size) * 2;
        unsigned char *grown = realloc(peer->early, cap);
        if (!grown)
            return ENOMEM;
        peer->early = grown;
        peer->early_cap = cap;
    }
    memcpy(peer->early + peer->early_size, frame, sizeof(*frame));
    if (frame->size)
        memcpy(peer->early + peer->early_size + sizeof(*frame), data,
               (size_t)frame->size);
    peer->early_size += size;
    return 0;
}

/* Sends what waits for the socket, as far as that takes it. A failure shows as
 * the end of the connection. */
static void flush_peer(xray_peer *peer)
{
    const int flags = MSG_NOSIGNAL | MSG_DONTWAIT;
    if (!peer->conn.greeted || peer->writing)
        return;
    while (peer->early_at < peer->early_size) {
        ssize_t n = send(peer->conn.fd, peer->early + peer->early_at,
                         peer->early_size - peer->early_at, flags);
        if (n < 0)
            return;
        peer->early_at += (size_t)n;
    }
    const apart_frame word = apart_frame_of(APART_WORD, peer->word);
    /* So few bytes go as a whole or not at all. */
    if (peer->word_due &&
        send(peer->conn.fd, &word, sizeof(word), flags) == sizeof(word))
        peer->word_due = 0;
}

static int handle_frame(apart_conn *conn, const apart_frame *frame)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    switch (frame->kind) {
    case APART_HELLO:
        return frame->value == peer->token ? 0 : EPROTO;
    case APART_RECORD:
        for (uint64_t i = 0; i < frame->size / sizeof(*conn->record); i++)
            atomic_store_explicit(&peer->record[i], conn->record[i],
                                  memory_order_relaxed);
        return 0;
    case APART_LEAVE:
        peer->leaving = 1;
        return 0;
    default:
        return frame->kind == APART_BEAT ? 0 : EPROTO;
    }
}

static void accept_connection(xray_peer *peer)
{
    const int one = 1;
    int fd = accept4(peer->listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0)
        return;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)close(peer->listener);
    peer->listener = -1;
    peer->conn.fd = fd;
}

static void serve_peer(xray_peer *peer)
{
    if (peer->listener >= 0) {
        accept_connection(peer);
        return;
    }
    int bad = apart_read(&peer->conn);
    if (bad == EPROTO)
        apart_end(peer,
                  "sent bytes that are no frame of this program (killed)");
    else if (bad == ENOMEM)
        apart_end(peer, "sent more than there is memory for (killed)");
    else if (bad && bad != EAGAIN)
        apart_end(peer, NULL);
}

/* Waits up to `ms` until a peer can be served, and serves all that are ready.
 */
static void serve_peers(apart *self, int ms)
{
    for (uint32_t i = 0; i < self->peer_count; i++) {
        const xray_peer *peer = &self->peers[i];
        const int waits = peer->writing || peer->word_due ||
                          peer->early_at < peer->early_size;
        struct pollfd *entry = &self->polls[i];
        *entry = (struct pollfd){ .fd = -1, .events = POLLIN };
        if (peer->used && !peer->lost)
            entry->fd = peer->listener >= 0 ? peer->listener : peer->conn.fd;
        if (waits && peer->conn.greeted)
            entry->events |= POLLOUT;
    }
    (void)poll(self->polls, self->peer_count, ms);
    for (uint32_t i = 0; i < self->peer_count; i++) {
        xray_peer *peer = &self->peers[i];
        if (self->polls[i].fd < 0 || !self->polls[i].revents)
            continue;
        serve_peer(peer);
        if (!peer->lost)
            flush_peer(peer);
    }
    apart_check(self);
}

static int wait_for_peer(apart_conn *conn)
{
    const xray_peer *peer = (const xray_peer *)(const void *)conn;
    serve_peers(peer->self, TICK_MS);
    return peer->lost ? EPIPE : 0;
}

static int put_frame(apart_conn *conn, const apart_frame *frame,
                     const void *data)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    int bad = 0;
    if (!conn->greeted) {
        bad = keep_early(peer, frame, data);
        if (bad)
            apart_end(peer, "cannot be sent a message: out of memory (killed)");
        return bad;
    }
    while (!bad && peer->early_at < peer->early_size)
        bad = wait_for_peer(conn);
    peer->writing = 1;
    if (!bad)
        bad = apart_write(conn, frame, data);
    peer->writing = 0;
    return bad;
}

/* ---- actors -------------------------------------------------------------- */

/* Whether the runtime reaches the host, and the peer is free. */
static xray_status check_spec(const apart *self, const xray_actor_spec *spec)
{
    if (spec->host && strcmp(spec->host, "localhost") != 0)
        return apart_fail(self->host, XRAY_E_UNSUPPORTED,
                          "actor %s: host \"%s\" cannot be reached; processes "
                          "are started on localhost only",
                          spec->name, spec->host);
    if (spec->index >= self->peer_count || self->peers[spec->index].used)
        return apart_fail(self->host, XRAY_E_ARG,
                          "actor %s: index %u of %u is taken or too large",
                          spec->name, spec->index, self->peer_count);
    return XRAY_OK;
}

/* 0 or an errno. The actor learns the size of a record before anything else. */
static int start_peer(xray_peer *peer, const xray_actor_spec *spec)
{
    const apart *self = peer->self;
    const uint64_t words = self->record_bytes / sizeof(*peer->record);
    const apart_frame hello = apart_frame_of(APART_HELLO, self->record_bytes);
    peer->index = spec->index;
    peer->spawned_ms = apart_now_ms();
    (void)snprintf(peer->name, sizeof(peer->name), "%s", spec->name);
    peer->conn.handle = handle_frame;
    peer->conn.wait = wait_for_peer;
    peer->conn.put = put_frame;
    peer->conn.record_bytes = self->record_bytes;
    peer->record = words ? self->records + spec->index * words : NULL;
    for (uint64_t i = 0; i < words; i++)
        atomic_store_explicit(&peer->record[i], 0, memory_order_relaxed);
    int bad = keep_early(peer, &hello, NULL);
    return bad ? bad : apart_start(peer, spec->argv);
}

static xray_status spawn_actor(void *self, const xray_actor_spec *spec,
                               xray_peer **out_peer)
{
    apart *at = self;
    xray_status status = check_spec(at, spec);
    if (status != XRAY_OK)
        return status;
    xray_peer *peer = &at->peers[spec->index];
    int bad = apart_open(at, peer);
    if (bad)
        return apart_fail(at->host, XRAY_E_NOMEM, "actor %s: %s", spec->name,
                          strerrordesc_np(bad));
    bad = start_peer(peer, spec);
    if (bad) {
        apart_kill(at, peer);
        return apart_fail(at->host, bad == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                          "actor %s: starting %s: %s", spec->name,
                          spec->argv[0], strerrordesc_np(bad));
    }
    *out_peer = peer;
    return XRAY_OK;
}

static uint64_t give_pid(void *self, xray_peer *peer)
{
    (void)self;
    return (uint64_t)peer->pid;
}

static void notify_actor(void *self, xray_peer *peer, uint32_t word)
{
    (void)self;
    peer->word = word;
    peer->word_due = 1;
    if (!peer->lost)
        flush_peer(peer);
}

/* ---- events -------------------------------------------------------------- */

/* The next event that has arrived; peers take turns. */
static int find_event(apart *self, xray_runtime_event *out)
{
    for (uint32_t n = 0; n < self->peer_count; n++) {
        uint32_t i = (self->next_peer + n) % self->peer_count;
        xray_peer *peer = &self->peers[i];
        int bad = 0;
        if (!peer->used || peer->lost == 2)
            continue;
        int got = apart_next(self, peer, out, &bad);
        if (got < 0) {
            char why[160];
            (void)snprintf(why, sizeof(why),
                           "sent a message whose regions cannot be had: %s "
                           "(killed)",
                           strerrordesc_np(bad));
            apart_end(peer, why);
        }
        if (got <= 0 && !peer->lost)
            continue;
        if (got <= 0) {
            peer->lost = 2;
            *out = (xray_runtime_event){
                .header = XRAY_HEADER(xray_runtime_event),
                .kind = XRAY_RUNTIME_LOST,
                .clean = peer->clean,
                .peer = peer,
                .reason = peer->reason,
            };
        }
        self->next_peer = i + 1;
        return 1;
    }
    return 0;
}

static xray_status wait_for_event(apart *self, int64_t timeout_ms,
                                  xray_runtime_event *out)
{
    const uint64_t begin = apart_now_ms();
    for (int pass = 0;; pass++) {
        const int64_t passed = (int64_t)(apart_now_ms() - begin);
        int64_t rest = timeout_ms < 0 ? TICK_MS : timeout_ms - passed;
        if (find_event(self, out))
            return XRAY_OK;
        if (pass && rest <= 0)
            return XRAY_AGAIN;
        rest = rest < 0 ? 0 : rest;
        serve_peers(self, rest < TICK_MS ? (int)rest : TICK_MS);
    }
}

static xray_status poll_events(void *self, int64_t timeout_ms,
                               xray_runtime_event *out_event)
{
    apart *at = self;
    xray_runtime_event own;
    xray_status status = at->own ? apart_poll_parent(at, timeout_ms, &own)
                                 : wait_for_event(at, timeout_ms, &own);
    if (status == XRAY_OK)
        xray_fill(out_event, &own);
    return status;
}

/* ---- regions and records ------------------------------------------------- */

static void destroy_region(void *self, xray_region *region)
{
    apart *at = self;
    const apart_frame frame = apart_frame_of(APART_UNREGION, region->id);
    if (at->own)
        (void)pthread_mutex_lock(&at->own->lock);
    /* A peer that this does not reach keeps its copy until its end. */
    for (uint32_t i = 0; i < at->peer_count; i++)
        if (at->peers[i].used && !at->peers[i].lost)
            (void)at->peers[i].conn.put(&at->peers[i].conn, &frame, NULL);
    if (at->own)
        (void)pthread_mutex_unlock(&at->own->lock);
    apart_region_remove(&at->regions, region->id);
}

static void *give_record(void *self, xray_peer *peer)
{
    apart *at = self;
    if (peer)
        return peer->record;
    return at->own ? at->records : NULL;
}

static void *give_records(void *self, uint64_t *out_stride)
{
    (void)self;
    *out_stride = 0;
    return NULL;
}

static const uint32_t *give_notice(void *self)
{
    const apart *at = self;
    return at->own ? &at->own->word : NULL;
}

const xray_runtime_ops apart_runtime = {
    .header = XRAY_HEADER(xray_runtime_ops),
    .create = create_parent,
    .attach = apart_attach,
    .destroy = destroy_instance,
    .spawn = spawn_actor,
    .kill = apart_kill,
    .pid = give_pid,
    .send = apart_send,
    .poll = poll_events,
    .region_create = apart_region_create,
    .region_destroy = destroy_region,
    .region_find = apart_region_find,
    .record = give_record,
    .records = give_records,
    .notify = notify_actor,
    .notice = give_notice,
};
