/* SPDX-License-Identifier: Apache-2.0
 *
 * The local runtime: starts processes on this host, sends messages to them and
 * polls for theirs.
 */
#define _GNU_SOURCE /* posix_spawn_file_actions_addclosefrom_np */
#include "core/actor/local.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/actor/clock.h"
#include "core/base/err.h"
#include "core/base/system_error.h"
#include "core/base/words.h"

#define PAGE UINT64_C(4096)
#define TICK_MS 100
/* Answers often come within microseconds, sooner than an idle core wakes up, so
 * polling does not sleep for this long. */
#define SPIN_NS 150000u
#define CHILD_FD 3
#define ACTORS_MOST 65536u

xray_status xr_local_fail(const xr_local *local, xray_status status,
                          const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    status = xr_host_vfail(local->host, status, "local runtime", fmt, args);
    va_end(args);
    return status;
}

/* Bytes of a slot and its record, a multiple of their alignment. */
static uint64_t slot_stride(uint64_t record_size)
{
    return sizeof(xr_local_slot) + (record_size + 63) / 64 * 64;
}

xr_local_slot *xr_local_slot_at(const xr_local *local, uint32_t actor)
{
    return (xr_local_slot *)(void *)(local->shared +
                                     actor * slot_stride(local->record_size));
}

xray_status xr_local_map_shared(xr_local *local, int fd, uint32_t actors,
                                uint64_t record_size)
{
    uint64_t size = actors * slot_stride(record_size);
    struct stat info;
    if (fstat(fd, &info))
        return xr_local_fail(local, XRAY_E_PEER,
                             "the actors' records cannot be read: %s",
                             XR_SYSTEM_ERROR(errno));
    if ((uint64_t)info.st_size < size)
        return xr_local_fail(local, XRAY_E_PEER,
                             "the actors' records do not have %llu bytes",
                             (unsigned long long)size);
    void *data =
        mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return xr_local_fail(local, XRAY_E_NOMEM,
                             "the actors' records, %llu bytes: %s",
                             (unsigned long long)size, XR_SYSTEM_ERROR(errno));
    local->shared = data;
    local->record_size = record_size;
    local->slot_count = actors;
    return XRAY_OK;
}

/* NULL if `slot` is none, or has no record. */
static void *record_of_slot(const xr_local *local, xr_local_slot *slot)
{
    return slot && local->record_size ? slot + 1 : NULL;
}

static void *local_record(void *self, xray_peer *peer)
{
    xr_local *local = self;
    return record_of_slot(local, peer ? xr_local_slot_at(local, peer->index)
                                      : local->own);
}

static void *local_records(void *self, uint64_t *out_stride)
{
    xr_local *local = self;
    *out_stride = slot_stride(local->record_size);
    return record_of_slot(local, xr_local_slot_at(local, 0));
}

static void local_notify(void *self, xray_peer *peer, uint32_t word)
{
    __atomic_store_n(&xr_local_slot_at(self, peer->index)->word, word,
                     __ATOMIC_RELEASE);
}

static const uint32_t *local_notice(void *self)
{
    const xr_local *local = self;
    return &local->own->word;
}

static uint64_t local_pid(void *self, xray_peer *peer)
{
    (void)self;
    return (uint64_t)peer->pid;
}

static void local_kill(void *self, xray_peer *peer)
{
    xr_local *local = self;
    const size_t slot = (size_t)(peer - local->peers);
    if (!peer->used)
        return;
    xr_local_end(peer, "was ended");
    xr_conn_free(&peer->conn);
    xr_local_regions_free(&peer->regions);
    for (size_t i = 0; i < local->regions.count; i++)
        local->regions.items[i]->sent[slot] = 0;
    memset(peer, 0, sizeof(*peer));
    peer->conn.fd = -1;
}

static void local_destroy(void *self)
{
    xr_local *local = self;
    if (!local)
        return;
    xr_local_detach(local);
    /* All are killed before the first is waited for. */
    for (uint32_t i = 0; local->peers && i < local->peer_count; i++)
        if (local->peers[i].pid)
            (void)kill(local->peers[i].pid, SIGKILL);
    for (uint32_t i = 0; local->peers && i < local->peer_count; i++)
        local_kill(local, &local->peers[i]);
    xr_local_regions_free(&local->regions);
    if (local->shared)
        (void)munmap(local->shared,
                     local->slot_count * slot_stride(local->record_size));
    if (local->shared_fd >= 0)
        (void)close(local->shared_fd);
    free(local->peers);
    free(local->polls);
    free(local);
}

static xray_status allocate_peers(xr_local *local,
                                  const xray_runtime_setup *setup)
{
    if (!setup->actors || setup->actors > ACTORS_MOST)
        return xr_local_fail(local, XRAY_E_ARG,
                             "%u actors: the number must be 1 to %u",
                             setup->actors, ACTORS_MOST);
    local->hang_ms = setup->hang_ms;
    local->start_ms = setup->start_ms;
    local->peers = calloc(setup->actors, sizeof(*local->peers));
    local->polls = calloc(setup->actors, sizeof(*local->polls));
    if (!local->peers || !local->polls)
        return xr_local_fail(local, XRAY_E_NOMEM, "out of memory");
    local->peer_count = setup->actors;
    for (uint32_t i = 0; i < setup->actors; i++)
        local->peers[i].conn.fd = -1;
    local->shared_fd = xr_memory_make(
        "xray-records", setup->actors * slot_stride(setup->record_size));
    if (local->shared_fd < 0)
        return xr_local_fail(local, XRAY_E_NOMEM, "the actors' records: %s",
                             XR_SYSTEM_ERROR(errno));
    return xr_local_map_shared(local, local->shared_fd, setup->actors,
                               setup->record_size);
}

static xray_status local_create(const xray_runtime_setup *setup,
                                const void *config, void **out_self)
{
    xr_local *local = calloc(1, sizeof(*local));
    (void)config;
    if (!local)
        return XRAY_E_NOMEM;
    local->host = setup->host;
    local->shared_fd = -1;
    local->beat_stop = -1;
    local->checked_ns = xr_clock_ns();
    xray_status status = allocate_peers(local, setup);
    if (status) {
        local_destroy(local);
        return status;
    }
    *out_self = local;
    return XRAY_OK;
}

/* Starts the process with `fd` as its fd 3 and no fd above; 0 or an errno. */
static int start_process(char *const *argv, int fd, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    int bad = posix_spawn_file_actions_init(&actions);
    if (bad)
        return bad;
    bad = posix_spawnattr_init(&attr);
    if (bad) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return bad;
    }
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    bad = posix_spawn_file_actions_adddup2(&actions, fd, CHILD_FD);
    if (!bad)
        bad = posix_spawn_file_actions_addclosefrom_np(&actions, CHILD_FD + 1);
    if (!bad)
        bad = posix_spawnattr_setsigmask(&attr, &none);
    if (!bad)
        bad = posix_spawnattr_setsigdefault(&attr, &all);
    if (!bad)
        bad = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF);
    if (!bad)
        bad = posix_spawn(out_pid, argv[0], &actions, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return bad;
}

static int send_hello(const xr_local *local, xray_peer *peer)
{
    xr_hello hello = { (uint64_t)getpid(), local->record_size,
                       local->slot_count, peer->index };
    xr_frame frame = { XR_FRAME_HELLO, 1, sizeof(hello), 0, 0 };
    return xr_conn_send(&peer->conn, &frame, &hello, local->shared_fd);
}

/* 0 or an errno. */
static int start_peer(const xr_local *local, xray_peer *peer,
                      const xray_actor_spec *spec)
{
    int pair[2];
    int bad;
    char **argv = xr_words_copy(spec->argv, "local:3");
    if (!argv)
        return ENOMEM;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair)) {
        bad = errno;
    } else {
        peer->conn.fd = pair[0];
        bad = send_hello(local, peer);
        if (!bad)
            bad = start_process(argv, pair[1], &peer->pid);
        (void)close(pair[1]);
        if (bad)
            peer->pid = 0;
    }
    free(argv);
    return bad;
}

static int is_this_host(const char *host)
{
    char own[256] = "";
    (void)gethostname(own, sizeof(own) - 1);
    return strcmp(host, "localhost") == 0 || strcmp(host, own) == 0;
}

static xray_status local_spawn(void *self, const xray_actor_spec *spec,
                               xray_peer **out_peer)
{
    xr_local *local = self;
    if (spec->index >= local->peer_count || local->peers[spec->index].used)
        return xr_local_fail(local, XRAY_E_ARG,
                             "actor %s: index %u of %u is taken or too large",
                             spec->name, spec->index, local->peer_count);
    if (spec->host && !is_this_host(spec->host))
        return xr_local_fail(local, XRAY_E_UNSUPPORTED,
                             "actor %s shall run on host %s, but the local "
                             "runtime starts actors on its own host only",
                             spec->name, spec->host);
    xray_peer *peer = &local->peers[spec->index];
    memset(xr_local_slot_at(local, spec->index), 0,
           (size_t)slot_stride(local->record_size));
    peer->index = spec->index;
    peer->spawned_ns = xr_clock_ns();
    (void)snprintf(peer->name, sizeof(peer->name), "%s", spec->name);
    int bad = start_peer(local, peer, spec);
    if (bad) {
        xr_conn_free(&peer->conn);
        return xr_local_fail(local, bad == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                             "actor %s: starting %s: %s", spec->name,
                             spec->argv[0], XR_SYSTEM_ERROR(bad));
    }
    peer->used = 1;
    *out_peer = peer;
    return XRAY_OK;
}

/* Sends everything that is queued and waits for the socket meanwhile: only an
 * actor's process may block. */
static int flush_blocking(xr_conn *conn)
{
    int bad;
    while ((bad = xr_conn_flush(conn)) == EAGAIN) {
        struct pollfd ready = { .fd = conn->fd, .events = POLLOUT };
        (void)poll(&ready, 1, -1);
    }
    return bad;
}

static xray_status local_send(void *self, xray_peer *peer, const void *data,
                              uint64_t size, xray_region *const *regions,
                              uint32_t region_count)
{
    xr_local *local = self;
    xr_frame frame = { XR_FRAME_MESSAGE, 0, size, 0, 0 };
    if (peer->lost || peer->conn.fd < 0)
        return xr_local_fail(local, XRAY_E_PEER, "the other side is gone");
    int bad = xr_local_region_send(local, peer, regions, region_count);
    if (!bad)
        bad = xr_conn_send(&peer->conn, &frame, data, -1);
    if (!bad && local->own)
        bad = flush_blocking(&peer->conn);
    if (!bad)
        return XRAY_OK;
    if (bad == EINVAL)
        return xr_local_fail(local, XRAY_E_ARG,
                             "a message carries a region that neither its "
                             "sender nor its receiver created");
    if (bad == ENOMEM || bad == EMFILE)
        return xr_local_fail(local, XRAY_E_NOMEM, "a message of %llu bytes: %s",
                             (unsigned long long)size, XR_SYSTEM_ERROR(bad));
    return xr_local_fail(local, XRAY_E_PEER, "the other side is gone: %s",
                         XR_SYSTEM_ERROR(bad));
}

/* ---- poll ---- */

/* Handles the frames of one peer up to a message: 1 and the event. */
static int next_message(xray_peer *peer, xray_runtime_event *out)
{
    xr_frame frame;
    const void *data = NULL;
    int fd = -1;
    int got;
    while ((got = xr_conn_next(&peer->conn, &frame, &data, &fd)) > 0) {
        if (frame.kind == XR_FRAME_MESSAGE && fd < 0) {
            out->kind = XRAY_RUNTIME_MESSAGE;
            out->data = data;
            out->size = frame.size;
            return 1;
        }
        int bad = EPROTO;
        if (frame.kind == XR_FRAME_REGION || frame.kind == XR_FRAME_UNREGION)
            bad = xr_local_region_frame(peer, &frame, fd);
        else if (fd >= 0)
            (void)close(fd);
        if (!bad)
            continue;
        char why[120];
        (void)snprintf(why, sizeof(why),
                       "sent a region that cannot be mapped: %s (killed)",
                       XR_SYSTEM_ERROR(bad));
        xr_local_end(peer, why);
        return 0;
    }
    if (got < 0) {
        xr_local_end(peer,
                     "sent bytes that are no frame of this program (killed)");
        peer->conn.in_at = peer->conn.in_size;
    }
    return 0;
}

/* The next event that has arrived; peers take turns. */
static int next_event(xr_local *local, xray_runtime_event *out)
{
    for (uint32_t n = 0; n < local->peer_count; n++) {
        uint32_t i = (local->next_peer + n) % local->peer_count;
        xray_peer *peer = &local->peers[i];
        if (!peer->used || peer->lost == 2)
            continue;
        xray_runtime_event own = { .header = XRAY_HEADER(xray_runtime_event),
                                   .peer = peer };
        if (!next_message(peer, &own)) {
            if (!peer->lost)
                continue;
            peer->lost = 2;
            own.kind = XRAY_RUNTIME_LOST;
            own.clean = peer->clean;
            own.reason = peer->reason;
        }
        xray_fill(out, &own);
        local->next_peer = i + 1;
        return 1;
    }
    return 0;
}

static void note_parent_gone(xray_peer *peer)
{
    peer->clean = 1;
    peer->lost = 1;
    (void)snprintf(peer->reason, sizeof(peer->reason), "the parent is gone");
}

/* Reads and sends as much as is possible now; -1 when memory ran out. */
static int serve_peer(xr_local *local, xray_peer *peer)
{
    int bad = xr_conn_read(&peer->conn);
    if (bad == ENOMEM)
        return -1;
    /* The process ended, but one that it started still holds the connection. */
    if (bad == EAGAIN && !local->own && !peer->pid)
        bad = EPIPE;
    if (bad && bad != EAGAIN) {
        if (local->own) /* the other thread still looks at the socket */
            note_parent_gone(peer);
        else
            xr_local_end(peer, NULL);
        return 0;
    }
    /* A failure shows as the end of the connection. */
    if (xr_conn_pending(&peer->conn))
        (void)xr_conn_flush(&peer->conn);
    return 0;
}

/* Waits up to `ms` until a peer can be served, and serves all that are ready.
 */
static int poll_peers(xr_local *local, int ms)
{
    for (uint32_t i = 0; i < local->peer_count; i++) {
        const xray_peer *peer = &local->peers[i];
        struct pollfd *entry = &local->polls[i];
        entry->fd = peer->used && !peer->lost ? peer->conn.fd : -1;
        entry->events =
            xr_conn_pending(&peer->conn) ? POLLIN | POLLOUT : POLLIN;
        entry->revents = 0;
        if (entry->fd >= 0 && !local->own && !peer->pid)
            ms = 0;
    }
    (void)poll(local->polls, local->peer_count, ms);
    for (uint32_t i = 0; i < local->peer_count; i++) {
        xray_peer *peer = &local->peers[i];
        if (local->polls[i].fd < 0 || peer->lost)
            continue;
        if ((local->polls[i].revents || (!local->own && !peer->pid)) &&
            serve_peer(local, peer))
            return -1;
    }
    return 0;
}

static xray_status local_poll(void *self, int64_t timeout_ms,
                              xray_runtime_event *out_event)
{
    xr_local *local = self;
    const xr_deadline deadline = xr_deadline_in(timeout_ms);
    const uint64_t awake = xr_clock_ns() + SPIN_NS;
    for (int pass = 0;; pass++) {
        if (next_event(local, out_event))
            return XRAY_OK;
        int64_t rest = xr_deadline_rest(&deadline);
        if (pass && !rest)
            return XRAY_AGAIN;
        int spin = xr_clock_ns() < awake;
        if (spin && pass)
            (void)sched_yield();
        if (rest < 0 || rest > TICK_MS)
            rest = TICK_MS;
        if (poll_peers(local, spin ? 0 : (int)rest))
            return xr_local_fail(local, XRAY_E_NOMEM,
                                 "out of memory for a message");
        if (!local->own && !spin)
            xr_local_check(local);
    }
}

const xray_runtime_ops xr_local_runtime = {
    .header = XRAY_HEADER(xray_runtime_ops),
    .create = local_create,
    .attach = xr_local_attach,
    .destroy = local_destroy,
    .spawn = local_spawn,
    .kill = local_kill,
    .pid = local_pid,
    .send = local_send,
    .poll = local_poll,
    .region_create = xr_local_region_create,
    .region_destroy = xr_local_region_destroy,
    .region_find = xr_local_region_find,
    .record = local_record,
    .records = local_records,
    .notify = local_notify,
    .notice = local_notice,
};
