/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor's side of the runtime of other hosts. A thread reads what the
 * parent sends and shows that the process is alive, whatever the others do, and
 * ends the process with its parent.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/actor/hosts_join.h"
#include "core/base/system_error.h"

/* ---- signs of life ------------------------------------------------------- */

/* Makes the next sign of life: the record if it changed. */
static void fill_beat(xr_hosts *self)
{
    xr_hosts_own *own = self->own;
    const uint64_t count = self->record_bytes / sizeof(*own->sent);
    int changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word =
            atomic_load_explicit(&self->records[i], memory_order_relaxed);
        changed |= word != own->sent[i];
        own->sent[i] = word;
    }
    own->beat = xr_tcp_frame_of(changed ? XR_TCP_RECORD : XR_TCP_BEAT, 0);
    own->beat.size = changed ? self->record_bytes : 0;
    xr_tcp_seal(&own->beat, own->sent);
    own->beat_at = 0;
    own->beat_size = sizeof(own->beat) + own->beat.size;
    own->next_ms = xr_hosts_now_ms() + XR_HOSTS_BEAT_MS;
}

/* Writes as much of the sign of life as the socket takes: 0, EAGAIN or another
 * errno. */
static int flush_beat(xr_hosts *self)
{
    xr_hosts_own *own = self->own;
    const xr_tcp_conn *conn = &self->peers[0].conn;
    while (own->beat_at < own->beat_size) {
        const uint64_t head = sizeof(own->beat);
        char *from = own->beat_at < head
                         ? (char *)&own->beat + own->beat_at
                         : (char *)own->sent + own->beat_at - head;
        uint64_t to = own->beat_at < head ? head : own->beat_size;
        const struct iovec piece = { from, (size_t)(to - own->beat_at) };
        ssize_t n = xr_tcp_send(conn->fd, conn->tls, &piece, 1);
        if (n < 0 && errno != EINTR)
            return errno;
        own->beat_at += n > 0 ? (uint64_t)n : 0;
    }
    return xr_tcp_flush(conn);
}

static int wait_for_socket(xr_tcp_conn *conn)
{
    struct pollfd ready = { .fd = conn->fd, .events = POLLOUT };
    (void)poll(&ready, 1, -1);
    return 0;
}

/* Writes what is left of the last sign of life, and one that is due. */
static int write_beats(xr_hosts *self)
{
    int bad;
    for (;;) {
        while ((bad = flush_beat(self)) == EAGAIN)
            (void)wait_for_socket(&self->peers[0].conn);
        if (bad || xr_hosts_now_ms() < self->own->next_ms)
            return bad;
        fill_beat(self);
    }
}

/* A message of many frames lets signs of life pass in between. */
int xr_hosts_put_up(xray_peer *peer, xr_tcp_frame *frame, const void *data)
{
    int bad = write_beats(peer->self);
    return bad ? bad : xr_tcp_write(&peer->conn, frame, data);
}

/* ---- the thread ---------------------------------------------------------- */

/* Returns whether the sign of life must wait for the socket. While the other
 * thread writes a message, it writes them too. */
static int try_to_beat(xr_hosts *self)
{
    xr_hosts_own *own = self->own;
    if (pthread_mutex_trylock(&own->lock))
        return 0;
    if (own->beat_at == own->beat_size && xr_hosts_now_ms() >= own->next_ms)
        fill_beat(self);
    int full = flush_beat(self) == EAGAIN;
    (void)pthread_mutex_unlock(&own->lock);
    return full;
}

/* The standard input and the pulse carry nothing: at their end, or that of the
 * connection, the parent or its host is gone, and this process ends. */
static void end_with_parent(int fd, short events)
{
    char ignored[64];
    if (events && read(fd, ignored, sizeof(ignored)) <= 0 && errno != EINTR &&
        errno != EAGAIN)
        _exit(1);
}

static void *serve_connection(void *data)
{
    xr_hosts *self = data;
    xr_tcp_conn *conn = &self->peers[0].conn;
    struct pollfd polls[4] = { { .fd = conn->fd },
                               { .fd = self->own->stop, .events = POLLIN },
                               { .fd = STDIN_FILENO, .events = POLLIN },
                               { .fd = self->own->pulse, .events = POLLIN } };
    for (;;) {
        polls[0].events = try_to_beat(self) ? POLLIN | POLLOUT : POLLIN;
        (void)poll(polls, 4, XR_HOSTS_BEAT_MS / 2);
        if (polls[1].revents)
            return NULL;
        for (int i = 2; i < 4; i++) {
            errno = 0;
            end_with_parent(polls[i].fd, polls[i].revents);
        }
        int bad = xr_tcp_read(conn);
        if (!bad || bad == EAGAIN)
            continue;
        if (bad != EPIPE && bad != ECONNRESET) /* the parent is still there */
            (void)fprintf(stderr,
                          "xray: workhorse: a message cannot be read: %s\n",
                          XR_SYSTEM_ERROR(bad));
        _exit(1);
    }
}

static int handle_frame(xr_tcp_conn *conn, const xr_tcp_frame *frame,
                        const void *data)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    xr_hosts *self = peer->self;
    (void)data;
    if (frame->kind == XR_TCP_WELCOME && !self->own->welcome) {
        self->record_bytes = (uint32_t)frame->value;
        self->hang_ms = (uint32_t)(frame->value >> 32);
        self->own->welcome = 1;
    } else if (frame->kind == XR_TCP_MEMORY && frame->value) {
        return xr_hosts_take_region(peer, frame);
    } else if (frame->kind == XR_TCP_MEMORY && !self->own->welcome) {
        return xr_hosts_take_page(peer);
    } else if (frame->kind == XR_TCP_WORD) {
        __atomic_store_n(&self->own->word, (uint32_t)frame->value,
                         __ATOMIC_RELEASE);
    } else {
        return EPROTO;
    }
    return 0;
}

static const xr_tcp_owner actor_side = {
    .handle = handle_frame,
    .expect = xr_hosts_expect,
    .hold = xr_hosts_hold,
    .release = xr_hosts_release,
    .wait = wait_for_socket,
};

/* ---- joining the parent -------------------------------------------------- */

static int start_thread(xr_hosts *self)
{
    sigset_t all;
    sigset_t old;
    self->own->stop = eventfd(0, EFD_CLOEXEC);
    if (self->own->stop < 0)
        return errno;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad = pthread_create(&self->own->thread, NULL, serve_connection, self);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    self->own->running = !bad;
    return bad;
}

/* Reads until the parent has said how large a record is, and answers the page
 * that came before. */
static int await_welcome(xr_hosts *self, xr_tcp_conn *conn)
{
    struct pollfd ready = { .fd = conn->fd, .events = POLLIN };
    xr_tcp_frame answer;
    while (!self->own->welcome) {
        if (poll(&ready, 1, XR_HOSTS_JOIN_MS) == 0)
            return ETIMEDOUT;
        int bad = xr_tcp_read(conn);
        if (bad && bad != EAGAIN)
            return bad;
    }
    answer = xr_tcp_frame_of(XR_TCP_SHARES, self->own->page);
    self->shares = self->own->page != 0;
    return self->own->offered ? xr_tcp_write(conn, &answer, NULL) : 0;
}

static int make_record(xr_hosts *self)
{
    if (!self->record_bytes)
        return 0;
    self->records = aligned_alloc(64, (size_t)self->record_bytes);
    self->own->sent = calloc(1, (size_t)self->record_bytes);
    if (!self->records || !self->own->sent)
        return ENOMEM;
    memset(self->records, 0, (size_t)self->record_bytes);
    return 0;
}

static xray_status join_parent(xr_hosts *self, const char *address)
{
    xr_tcp_conn *conn = &self->peers[0].conn;
    xr_hosts_address to;
    xr_hosts_line line = { .fd = -1 };
    xray_status status = xr_hosts_find_parent(self->host, address, &to);
    /* A parent that ends before this ends the standard input, too. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (status == XRAY_OK)
        status = xr_hosts_join(self->host, &to, XR_TCP_FOR_MESSAGES,
                               self->build, &line);
    conn->fd = line.fd;
    conn->near = line.near;
    conn->tls = line.tls;
    int bad = status == XRAY_OK ? await_welcome(self, conn) : 0;
    if (bad)
        status = xr_hosts_fail(self->host, XRAY_E_PEER, "%s: %s", address,
                               XR_SYSTEM_ERROR(bad));
    const int far = self->hang_ms && !conn->near;
    if (status == XRAY_OK && far)
        status = xr_hosts_join(self->host, &to, XR_TCP_FOR_PULSE, self->build,
                               &line);
    if (status != XRAY_OK)
        return status;
    if (far) {
        xr_tls_free(line.tls); /* nothing follows the greeting */
        self->own->pulse = line.fd;
        xr_hosts_watch_pulse(self->own->pulse, self->hang_ms);
    }
    bad = make_record(self);
    if (!bad)
        bad = start_thread(self);
    return bad ? xr_hosts_fail(self->host, XRAY_E_NOMEM,
                               "starting a thread: %s", XR_SYSTEM_ERROR(bad))
               : XRAY_OK;
}

xray_status xr_hosts_attach(const xray_host *host, const char *address,
                            void **out_self, xray_peer **out_parent)
{
    xr_hosts *self = NULL;
    xray_status status = xr_hosts_new(host, 1, 0, &self);
    if (status != XRAY_OK)
        return status;
    xray_peer *parent = &self->peers[0];
    self->own = calloc(1, sizeof(*self->own));
    if (!self->own || pthread_mutex_init(&self->own->lock, NULL) ||
        xr_hosts_open_peer(self, parent, &actor_side)) {
        free(self->own);
        self->own = NULL;
        status = xr_hosts_fail(host, XRAY_E_NOMEM, "out of memory");
    } else {
        self->own->stop = -1;
        self->own->pulse = -1;
        status = join_parent(self, address);
    }
    if (status != XRAY_OK) {
        xr_hosts_free(self);
        return status;
    }
    *out_self = self;
    *out_parent = parent;
    return XRAY_OK;
}

void xr_hosts_detach(xr_hosts *self)
{
    xr_hosts_own *own = self->own;
    xr_tcp_frame leave = xr_tcp_frame_of(XR_TCP_LEAVE, 0);
    const uint64_t one = 1;
    if (own->running && write(own->stop, &one, sizeof(one)) == sizeof(one)) {
        (void)pthread_join(own->thread, NULL);
        own->next_ms = 0; /* the record as it is now */
        (void)xr_hosts_put_up(&self->peers[0], &leave, NULL);
        /* The socket stays open until the process ends, because the parent
         * takes the end of the connection for that of the process. */
        self->peers[0].conn.fd = -1;
    }
    if (own->stop >= 0)
        (void)close(own->stop);
    if (own->pulse >= 0)
        (void)close(own->pulse);
    (void)pthread_mutex_destroy(&own->lock);
    free(own->sent);
    free(own);
    self->own = NULL;
}

xray_status xr_hosts_poll_parent(xr_hosts *self, int64_t timeout_ms,
                                 xray_runtime_event *out)
{
    xray_peer *parent = &self->peers[0];
    xr_tcp_conn *conn = &parent->conn;
    const uint64_t end = xr_hosts_now_ms() + (uint64_t)timeout_ms;
    const struct timespec until = { (time_t)(end / 1000),
                                    (long)(end % 1000) * 1000000 };
    for (;;) {
        int bad = 0;
        if (xr_hosts_next(self, parent, out))
            return XRAY_OK;
        (void)pthread_mutex_lock(&conn->lock);
        while (!conn->first && !bad)
            bad = timeout_ms < 0
                      ? pthread_cond_wait(&conn->arrived, &conn->lock)
                      : pthread_cond_timedwait(&conn->arrived, &conn->lock,
                                               &until);
        (void)pthread_mutex_unlock(&conn->lock);
        if (bad == ETIMEDOUT)
            return XRAY_AGAIN;
    }
}
