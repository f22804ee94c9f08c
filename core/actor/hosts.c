/* SPDX-License-Identifier: Apache-2.0
 *
 * The runtime of actors on other hosts, and the parent's side of its messages.
 */
#include "core/actor/hosts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/actor/clock.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "core/base/words.h"

#define TICK_MS 100
#define ACTORS_MOST 4096u
#define EVENTS 64
/* As in the local runtime: answers often come sooner than an idle core wakes
 * up. */
#define SPIN_NS 150000u

uint64_t xr_hosts_now_ms(void)
{
    return xr_clock_ns() / 1000000u;
}

/* ---- the instance -------------------------------------------------------- */

int xr_hosts_open_peer(xr_hosts *self, xray_peer *peer,
                       const xr_tcp_owner *owner)
{
    *peer = (xray_peer){ .self = self, .leash = -1, .says = -1, .pulse = -1 };
    int bad = xr_tcp_conn_open(&peer->conn, owner, self->record_bytes);
    peer->used = !bad;
    return bad;
}

xray_status xr_hosts_new(const xray_host *host, uint32_t peers,
                         uint64_t record_size, xr_hosts **out_self)
{
    xr_hosts *self = calloc(1, sizeof(*self));
    if (!self || pthread_mutex_init(&self->lock, NULL)) {
        free(self);
        return xr_hosts_fail(host, XRAY_E_NOMEM, "out of memory");
    }
    self->host = host;
    self->epoll = -1;
    self->door.fd = self->door.near = -1;
    for (uint32_t i = 0; i < XR_HOSTS_GUESTS; i++)
        self->door.guests[i].fd = -1;
    self->record_bytes = (record_size + 63) / 64 * 64;
    self->peers = calloc(peers, sizeof(*self->peers));
    self->records = self->record_bytes
                        ? aligned_alloc(64, peers * self->record_bytes)
                        : NULL;
    if (!self->peers || (self->record_bytes && !self->records)) {
        xr_hosts_free(self);
        return xr_hosts_fail(host, XRAY_E_NOMEM, "out of memory");
    }
    self->peer_count = peers;
    self->checked_ms = xr_hosts_now_ms();
    int bad = xr_tcp_build_id(self->build);
    if (bad) {
        xr_hosts_free(self);
        return xr_hosts_fail(host, XRAY_E_IO,
                             "the program's file cannot be read: %s",
                             XR_SYSTEM_ERROR(bad));
    }
    *out_self = self;
    return XRAY_OK;
}

void xr_hosts_free(xr_hosts *self)
{
    if (self->own)
        xr_hosts_detach(self);
    /* All are killed before the first is waited for. */
    for (uint32_t i = 0; i < self->peer_count; i++)
        xr_hosts_strike(&self->peers[i]);
    for (uint32_t i = 0; i < self->peer_count; i++)
        xr_hosts_kill(self, &self->peers[i]);
    xr_hosts_close_door(self);
    if (self->epoll >= 0)
        (void)close(self->epoll);
    while (self->regions)
        xr_hosts_region_remove(self, &self->regions, self->regions->pub.id);
    (void)pthread_mutex_destroy(&self->lock);
    free(self->current);
    free(self->records);
    free(self->launch);
    free(self->peers);
    free(self);
}

static xray_status open_parent(xr_hosts *self, const xr_hosts_config *config)
{
    const char *interface =
        config && config->interface ? config->interface : "";
    if (config && config->launch) {
        self->launch = xr_strdup(config->launch);
        if (!self->launch)
            return xr_hosts_fail(self->host, XRAY_E_NOMEM, "out of memory");
    }
    self->tls = config && config->tls;
    if (self->tls && !xr_tls_is_there())
        return xr_hosts_fail(self->host, XRAY_E_UNSUPPORTED,
                             "[runtime] tls is true, but " XR_TLS_MISSING);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (self->epoll < 0)
        return xr_hosts_fail(self->host, XRAY_E_IO, "epoll: %s",
                             XR_SYSTEM_ERROR(errno));
    xray_status status =
        xr_hosts_open_door(self, *interface ? interface : "lo");
    if (status == XRAY_OK && !(config && config->copies))
        xr_hosts_open_near(self);
    self->launcher = config ? config->launcher : NULL;
    self->launcher_self = config ? config->launcher_self : NULL;
    if (status != XRAY_OK || !self->launcher)
        return status;
    const int bad = xr_hosts_engine_open(self);
    return bad ? xr_hosts_fail(self->host, XRAY_E_IO,
                               "the events of the launcher: %s",
                               XR_SYSTEM_ERROR(bad))
               : XRAY_OK;
}

static xray_status create_parent(const xray_runtime_setup *setup,
                                 const void *config, void **out_self)
{
    xr_hosts *self = NULL;
    if (!setup->actors || setup->actors > ACTORS_MOST)
        return xr_hosts_fail(setup->host, XRAY_E_ARG,
                             "%u actors: the number must be 1 to %u",
                             setup->actors, ACTORS_MOST);
    xray_status status =
        xr_hosts_new(setup->host, setup->actors, setup->record_size, &self);
    if (status != XRAY_OK)
        return status;
    self->hang_ms = setup->hang_ms;
    self->start_ms = setup->start_ms;
    status = open_parent(self, config);
    if (status != XRAY_OK) {
        xr_hosts_free(self);
        return status;
    }
    *out_self = self;
    return XRAY_OK;
}

static void destroy_instance(void *self)
{
    if (self)
        xr_hosts_free(self);
}

/* ---- the parent's connections -------------------------------------------- */

int xr_hosts_put_early(xray_peer *peer, xr_tcp_frame *frame, const void *data)
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
    xr_tcp_seal(frame, data);
    memcpy(peer->early + peer->early_size, frame, sizeof(*frame));
    if (frame->size)
        memcpy(peer->early + peer->early_size + sizeof(*frame), data,
               (size_t)frame->size);
    peer->early_size += size;
    return 0;
}

static ssize_t send_bytes(const xray_peer *peer, void *bytes, size_t size)
{
    const struct iovec piece = { bytes, size };
    return xr_tcp_send(peer->conn.fd, peer->conn.tls, &piece, 1);
}

/* Sends what waits for the socket, as far as that takes it. A failure shows as
 * the end of the connection. */
static void flush_peer(xray_peer *peer)
{
    if (!peer->greeted || peer->writing || xr_tcp_flush(&peer->conn))
        return;
    while (peer->early_at < peer->early_size) {
        ssize_t n = send_bytes(peer, peer->early + peer->early_at,
                               peer->early_size - peer->early_at);
        if (n < 0)
            return;
        peer->early_at += (size_t)n;
    }
    if (peer->early) {
        free(peer->early);
        peer->early = NULL;
        peer->early_at = peer->early_size = peer->early_cap = 0;
    }
    xr_tcp_frame word = xr_tcp_frame_of(XR_TCP_WORD, peer->word);
    xr_tcp_seal(&word, NULL);
    /* So few bytes go as a whole or not at all. */
    if (peer->word_due && send_bytes(peer, &word, sizeof(word)) == sizeof(word))
        peer->word_due = 0;
}

/* Has epoll say when the socket takes more, as long as something waits. */
static void watch_peer(xray_peer *peer)
{
    const uint32_t wants = peer->writing || peer->word_due ||
                           peer->early_at < peer->early_size ||
                           xr_tls_owes(peer->conn.tls);
    if (!peer->greeted || peer->lost || wants == peer->wants_out)
        return;
    peer->wants_out = wants;
    (void)xr_hosts_watch(peer->self, peer->conn.fd, XR_HOSTS_PEER, peer->index,
                         EPOLLIN | (wants ? (uint32_t)EPOLLOUT : 0), 1);
}

static int handle_frame(xr_tcp_conn *conn, const xr_tcp_frame *frame,
                        const void *data)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    const uint64_t *record = data;
    switch (frame->kind) {
    case XR_TCP_RECORD:
        for (uint64_t i = 0; i < frame->size / sizeof(*record); i++)
            atomic_store_explicit(&peer->record[i], record[i],
                                  memory_order_relaxed);
        return 0;
    case XR_TCP_LEAVE:
        peer->leaving = 1;
        return 0;
    case XR_TCP_MEMORY:
        return xr_hosts_take_region(peer, frame);
    case XR_TCP_SHARES:
        if (!conn->near)
            return EPROTO;
        peer->shares = frame->value && frame->value == peer->page;
        if (!peer->shares)
            xr_hosts_note_copies(peer, "it cannot map it");
        return 0;
    default:
        return frame->kind == XR_TCP_BEAT ? 0 : EPROTO;
    }
}

static void serve_peer(xray_peer *peer)
{
    if (!peer->used || peer->lost || peer->conn.fd < 0)
        return;
    int bad = xr_tcp_read(&peer->conn);
    if (bad == EPROTO)
        xr_hosts_end(peer,
                     "sent bytes that are no frame of this program (killed)");
    else if (bad == EBADMSG)
        xr_hosts_end(peer, "sent bytes that arrived damaged (killed)");
    else if (bad == ENOMEM)
        xr_hosts_end(peer, "sent more than there is memory for (killed)");
    else if (bad == ETIMEDOUT || bad == EHOSTUNREACH || bad == ENETUNREACH)
        xr_hosts_end(peer, "cannot be reached any more (killed)");
    else if (bad && bad != EAGAIN)
        xr_hosts_end(peer, NULL);
    if (!peer->lost)
        flush_peer(peer);
}

static void serve_event(xr_hosts *self, uint64_t about)
{
    const uint32_t index = (uint32_t)about;
    switch (about >> 32) {
    case XR_HOSTS_DOOR:
        xr_hosts_accept(self, index != 0);
        break;
    case XR_HOSTS_GUEST:
        xr_hosts_serve_guest(self, index);
        break;
    case XR_HOSTS_PEER:
        serve_peer(&self->peers[index]);
        break;
    case XR_HOSTS_ENGINE:
        xr_hosts_engine_serve(self);
        break;
    default:
        xr_hosts_read_says(&self->peers[index]);
        break;
    }
}

/* Waits up to `ms` until something can be served, and serves all that is ready.
 */
static void serve_peers(xr_hosts *self, int ms)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(self->epoll, events, EVENTS, ms);
    for (int i = 0; i < count; i++)
        serve_event(self, events[i].data.u64);
    xr_hosts_check(self);
    for (uint32_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].used)
            watch_peer(&self->peers[i]);
}

static int wait_for_peer(xr_tcp_conn *conn)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    watch_peer(peer);
    serve_peers(peer->self, TICK_MS);
    return peer->lost ? EPIPE : 0;
}

static const xr_tcp_owner parent_side = {
    .handle = handle_frame,
    .expect = xr_hosts_expect,
    .hold = xr_hosts_hold,
    .release = xr_hosts_release,
    .wait = wait_for_peer,
};

int xr_hosts_put(xray_peer *peer, xr_tcp_frame *frame, const void *data)
{
    int bad = 0;
    if (peer->self->own)
        return xr_hosts_put_up(peer, frame, data);
    if (!peer->greeted) {
        bad = xr_hosts_put_early(peer, frame, data);
        if (bad)
            xr_hosts_end(peer,
                         "cannot be sent a message: out of memory (killed)");
        return bad;
    }
    while (!bad && peer->early_at < peer->early_size)
        bad = wait_for_peer(&peer->conn);
    peer->writing = 1;
    if (!bad)
        bad = xr_tcp_write(&peer->conn, frame, data);
    peer->writing = 0;
    return bad;
}

/* ---- actors -------------------------------------------------------------- */

static int is_host_name(const char *name)
{
    return *name && *name != '-' &&
           strspn(name, XR_HOST_NAME_CHARACTERS) == strlen(name);
}

static xray_status check_spec(const xr_hosts *self, const xray_actor_spec *spec)
{
    const int here = !spec->host || strcmp(spec->host, "localhost") == 0;
    if (!here && !is_host_name(spec->host))
        return xr_hosts_fail(self->host, XRAY_E_ARG,
                             "actor %s: \"%s\" is not the name of a host",
                             spec->name, spec->host);
    if (!here && !self->launch && !self->launcher)
        return xr_hosts_fail(self->host, XRAY_E_UNSUPPORTED,
                             "actor %s: host \"%s\" cannot be reached without "
                             "a launcher",
                             spec->name, spec->host);
    if (spec->index >= self->peer_count || self->peers[spec->index].used)
        return xr_hosts_fail(self->host, XRAY_E_ARG,
                             "actor %s: index %u of %u is taken or too large",
                             spec->name, spec->index, self->peer_count);
    return XRAY_OK;
}

static xray_status fail_to_start(const xr_hosts *self,
                                 const xray_actor_spec *spec, int launched,
                                 int bad)
{
    return xr_hosts_fail(self->host, bad == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                         "actor %s: starting %s: %s", spec->name,
                         launched ? self->launch : spec->argv[0],
                         XR_SYSTEM_ERROR(bad));
}

/* 0 or an errno. The actor learns the size of a record before anything else. */
static int prepare_peer(xray_peer *peer, const xray_actor_spec *spec)
{
    const xr_hosts *self = peer->self;
    const uint64_t words = self->record_bytes / sizeof(*peer->record);
    xr_tcp_frame welcome = xr_tcp_frame_of(
        XR_TCP_WELCOME, self->record_bytes | (uint64_t)self->hang_ms << 32);
    peer->index = spec->index;
    peer->spawned_ms = xr_hosts_now_ms();
    peer->launched =
        !self->launcher && spec->host && strcmp(spec->host, "localhost") != 0;
    (void)snprintf(peer->name, sizeof(peer->name), "%s", spec->name);
    (void)snprintf(peer->host, sizeof(peer->host), "%s",
                   spec->host ? spec->host : "localhost");
    peer->record = words ? self->records + spec->index * words : NULL;
    for (uint64_t i = 0; i < words; i++)
        atomic_store_explicit(&peer->record[i], 0, memory_order_relaxed);
    if (getrandom(peer->token, XR_TCP_TOKEN, 0) != (ssize_t)XR_TCP_TOKEN)
        return errno;
    return xr_hosts_put_early(peer, &welcome, NULL);
}

static xray_status start_peer(xray_peer *peer, const xray_actor_spec *spec)
{
    const xr_hosts *self = peer->self;
    int bad = prepare_peer(peer, spec);
    if (!bad && self->launcher) {
        xray_status status = xr_hosts_engine_start(peer, spec->argv);
        /* The launcher has told its own host why. */
        return status == XRAY_OK
                   ? XRAY_OK
                   : xr_hosts_fail(self->host, status,
                                   "actor %s: its engine did not start it",
                                   spec->name);
    }
    if (!bad)
        bad = xr_hosts_start(peer, spec->argv);
    return bad ? fail_to_start(self, spec, (int)peer->launched, bad) : XRAY_OK;
}

static xray_status spawn_actor(void *self, const xray_actor_spec *spec,
                               xray_peer **out_peer)
{
    xr_hosts *at = self;
    xray_status status = check_spec(at, spec);
    if (status != XRAY_OK)
        return status;
    xray_peer *peer = &at->peers[spec->index];
    int bad = xr_hosts_open_peer(at, peer, &parent_side);
    if (bad)
        return xr_hosts_fail(at->host, XRAY_E_NOMEM, "actor %s: %s", spec->name,
                             XR_SYSTEM_ERROR(bad));
    status = start_peer(peer, spec);
    if (status != XRAY_OK) {
        xr_hosts_kill(at, peer);
        return status;
    }
    *out_peer = peer;
    return XRAY_OK;
}

static uint64_t give_pid(void *self, xray_peer *peer)
{
    (void)self;
    return peer->launched ? 0 : (uint64_t)peer->pid;
}

static void notify_actor(void *self, xray_peer *peer, uint32_t word)
{
    (void)self;
    peer->word = word;
    peer->word_due = 1;
    if (!peer->lost)
        flush_peer(peer);
    watch_peer(peer);
}

/* ---- events -------------------------------------------------------------- */

/* The next event of the peer; its loss follows its last message. */
static int find_event_of(xr_hosts *self, xray_peer *peer,
                         xray_runtime_event *out)
{
    if (xr_hosts_next(self, peer, out))
        return 1;
    if (peer->lost != 1)
        return 0;
    peer->lost = 2;
    *out = (xray_runtime_event){
        .header = XRAY_HEADER(xray_runtime_event),
        .kind = XRAY_RUNTIME_LOST,
        .clean = peer->clean,
        .peer = peer,
        .reason = peer->reason,
    };
    return 1;
}

/* The next event that has arrived. A loss comes before what others say of it;
 * otherwise peers take turns. */
static int find_event(xr_hosts *self, xray_runtime_event *out)
{
    for (uint32_t n = 0; n < 2 * self->peer_count; n++) {
        const uint32_t i = (self->next_peer + n) % self->peer_count;
        xray_peer *peer = &self->peers[i];
        const int first = n < self->peer_count;
        if (!peer->used || peer->lost == 2 || (first && !peer->lost))
            continue;
        if (!find_event_of(self, peer, out))
            continue;
        self->next_peer = i + 1;
        return 1;
    }
    return 0;
}

static xray_status wait_for_event(xr_hosts *self, int64_t timeout_ms,
                                  xray_runtime_event *out)
{
    const uint64_t begin = xr_clock_ns();
    for (int pass = 0;; pass++) {
        const uint64_t passed = xr_clock_ns() - begin;
        int64_t rest =
            timeout_ms < 0 ? TICK_MS : timeout_ms - (int64_t)(passed / 1000000);
        if (find_event(self, out))
            return XRAY_OK;
        if (pass && rest <= 0)
            return XRAY_AGAIN;
        rest = rest < 0 || passed < SPIN_NS ? 0 : rest;
        serve_peers(self, rest < TICK_MS ? (int)rest : TICK_MS);
    }
}

static xray_status poll_events(void *self, int64_t timeout_ms,
                               xray_runtime_event *out_event)
{
    xr_hosts *at = self;
    xray_runtime_event own;
    xray_status status = at->own ? xr_hosts_poll_parent(at, timeout_ms, &own)
                                 : wait_for_event(at, timeout_ms, &own);
    if (status == XRAY_OK)
        xray_fill(out_event, &own);
    return status;
}

/* ---- regions and records ------------------------------------------------- */

static void destroy_region(void *self, xray_region *region)
{
    xr_hosts *at = self;
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_UNREGION, region->id);
    if (at->own)
        (void)pthread_mutex_lock(&at->own->lock);
    /* A peer that this does not reach keeps its copy until its end. */
    for (uint32_t i = 0; i < at->peer_count; i++)
        if (at->peers[i].used && !at->peers[i].lost)
            (void)xr_hosts_put(&at->peers[i], &frame, NULL);
    if (at->own)
        (void)pthread_mutex_unlock(&at->own->lock);
    xr_hosts_region_remove(at, &at->regions, region->id);
}

static void *give_record(void *self, xray_peer *peer)
{
    xr_hosts *at = self;
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
    const xr_hosts *at = self;
    return at->own ? &at->own->word : NULL;
}

const xray_runtime_ops xr_hosts_runtime = {
    .header = XRAY_HEADER(xray_runtime_ops),
    .create = create_parent,
    .attach = xr_hosts_attach,
    .destroy = destroy_instance,
    .spawn = spawn_actor,
    .kill = xr_hosts_kill,
    .pid = give_pid,
    .send = xr_hosts_send,
    .poll = poll_events,
    .region_create = xr_hosts_region_create,
    .region_destroy = destroy_region,
    .region_find = xr_hosts_region_find,
    .record = give_record,
    .records = give_records,
    .notify = notify_actor,
    .notice = give_notice,
};
