/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor's side of the runtime without shared memory. A thread reads what
 * the parent sends and shows that the process is alive, whatever the others do.
 */
#define _GNU_SOURCE /* strerrordesc_np */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/apart.h"

#define HELLO_MS 10000

/* ---- signs of life ------------------------------------------------------- */

/* Makes the next sign of life: the record if it changed. */
static void fill_beat(apart *self)
{
    apart_own *own = self->own;
    const uint64_t count = self->record_bytes / sizeof(*own->sent);
    int changed = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t word =
            atomic_load_explicit(&self->records[i], memory_order_relaxed);
        changed |= word != own->sent[i];
        own->sent[i] = word;
    }
    own->beat = apart_frame_of(changed ? APART_RECORD : APART_BEAT, 0);
    own->beat.size = changed ? self->record_bytes : 0;
    own->beat_at = 0;
    own->beat_size = sizeof(own->beat) + own->beat.size;
    own->next_ms = apart_now_ms() + APART_BEAT_MS;
}

/* Writes as much of the sign of life as the socket takes: 0, EAGAIN or another
 * errno. */
static int flush_beat(apart *self)
{
    apart_own *own = self->own;
    while (own->beat_at < own->beat_size) {
        const uint64_t head = sizeof(own->beat);
        const char *from = own->beat_at < head
                               ? (const char *)&own->beat + own->beat_at
                               : (const char *)own->sent + own->beat_at - head;
        uint64_t to = own->beat_at < head ? head : own->beat_size;
        ssize_t n =
            send(self->peers[0].conn.fd, from, (size_t)(to - own->beat_at),
                 MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EINTR)
            return errno;
        own->beat_at += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

static int wait_for_socket(apart_conn *conn)
{
    struct pollfd ready = { .fd = conn->fd, .events = POLLOUT };
    (void)poll(&ready, 1, -1);
    return 0;
}

/* Writes what is left of the last sign of life, and one that is due. */
static int write_beats(apart *self)
{
    int bad;
    for (;;) {
        while ((bad = flush_beat(self)) == EAGAIN)
            (void)wait_for_socket(&self->peers[0].conn);
        if (bad || apart_now_ms() < self->own->next_ms)
            return bad;
        fill_beat(self);
    }
}

/* A message of many frames lets signs of life pass in between. */
static int put_frame(apart_conn *conn, const apart_frame *frame,
                     const void *data)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    int bad = write_beats(peer->self);
    return bad ? bad : apart_write(conn, frame, data);
}

/* ---- the thread ---------------------------------------------------------- */

/* Returns whether the sign of life must wait for the socket. While the other
 * thread writes a message, it writes them too. */
static int try_to_beat(apart *self)
{
    apart_own *own = self->own;
    if (pthread_mutex_trylock(&own->lock))
        return 0;
    if (own->beat_at == own->beat_size && apart_now_ms() >= own->next_ms)
        fill_beat(self);
    int full = flush_beat(self) == EAGAIN;
    (void)pthread_mutex_unlock(&own->lock);
    return full;
}

/* The end of the connection is that of the parent, and so of this process. */
static void *serve_connection(void *data)
{
    apart *self = data;
    apart_conn *conn = &self->peers[0].conn;
    struct pollfd polls[2] = { { .fd = conn->fd },
                               { .fd = self->own->stop, .events = POLLIN } };
    for (;;) {
        polls[0].events = try_to_beat(self) ? POLLIN | POLLOUT : POLLIN;
        (void)poll(polls, 2, APART_BEAT_MS / 2);
        if (polls[1].revents)
            return NULL;
        int bad = apart_read(conn);
        if (bad && bad != EAGAIN)
            _exit(1);
    }
}

static int handle_frame(apart_conn *conn, const apart_frame *frame)
{
    xray_peer *peer = (xray_peer *)(void *)conn;
    if (frame->kind == APART_HELLO)
        peer->self->record_bytes = frame->value;
    else if (frame->kind == APART_WORD)
        __atomic_store_n(&peer->self->own->word, (uint32_t)frame->value,
                         __ATOMIC_RELEASE);
    else
        return EPROTO;
    return 0;
}

/* ---- joining the parent -------------------------------------------------- */

static int start_thread(apart *self)
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

/* Connects and shows the token: 0 or an errno. */
static int connect_to_parent(apart_conn *conn, uint16_t port, uint64_t token)
{
    const int one = 1;
    const apart_frame hello = apart_frame_of(APART_HELLO, token);
    struct sockaddr_in to = { .sin_family = AF_INET,
                              .sin_port = htons(port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    conn->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn->fd < 0 ||
        connect(conn->fd, (struct sockaddr *)(void *)&to, sizeof(to)) ||
        setsockopt(conn->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
        return errno;
    return apart_write(conn, &hello, NULL);
}

/* Reads until the parent has said how large a record is. */
static int await_greeting(apart_conn *conn)
{
    struct pollfd ready = { .fd = conn->fd, .events = POLLIN };
    while (!conn->greeted) {
        if (poll(&ready, 1, HELLO_MS) == 0)
            return ETIMEDOUT;
        int bad = apart_read(conn);
        if (bad && bad != EAGAIN)
            return bad;
    }
    return 0;
}

/* Reads "apart:PORT:TOKEN"; 0 or EINVAL. */
static int read_address(const char *address, uint16_t *out_port,
                        uint64_t *out_token)
{
    char *end = NULL;
    if (strncmp(address, "apart:", 6) != 0)
        return EINVAL;
    unsigned long port = strtoul(address + 6, &end, 10);
    if (*end != ':' || !port || port > UINT16_MAX)
        return EINVAL;
    *out_port = (uint16_t)port;
    *out_token = strtoull(end + 1, &end, 16);
    return *end ? EINVAL : 0;
}

static xray_status join_parent(apart *self, const char *address)
{
    apart_conn *conn = &self->peers[0].conn;
    uint16_t port = 0;
    uint64_t token = 0;
    if (read_address(address, &port, &token))
        return apart_fail(self->host, XRAY_E_ARG,
                          "\"%s\" is not the address of an actor's parent",
                          address);
    /* A parent that ends before this ends the connection, too. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int bad = connect_to_parent(conn, port, token);
    if (!bad)
        bad = await_greeting(conn);
    if (bad)
        return apart_fail(self->host, XRAY_E_PEER, "%s: %s", address,
                          strerrordesc_np(bad));
    if (self->record_bytes) {
        self->records = aligned_alloc(64, (size_t)self->record_bytes);
        self->own->sent = calloc(1, (size_t)self->record_bytes);
        if (!self->records || !self->own->sent)
            return apart_fail(self->host, XRAY_E_NOMEM, "out of memory");
        memset(self->records, 0, (size_t)self->record_bytes);
    }
    bad = start_thread(self);
    return bad ? apart_fail(self->host, XRAY_E_NOMEM, "starting a thread: %s",
                            strerrordesc_np(bad))
               : XRAY_OK;
}

xray_status apart_attach(const xray_host *host, const char *address,
                         void **out_self, xray_peer **out_parent)
{
    apart *self = NULL;
    xray_status status = apart_new(host, 1, 0, &self);
    if (status != XRAY_OK)
        return status;
    xray_peer *parent = &self->peers[0];
    self->own = calloc(1, sizeof(*self->own));
    if (!self->own || pthread_mutex_init(&self->own->lock, NULL) ||
        apart_open(self, parent)) {
        free(self->own);
        self->own = NULL;
        status = apart_fail(host, XRAY_E_NOMEM, "out of memory");
    } else {
        self->own->stop = -1;
        parent->conn.handle = handle_frame;
        parent->conn.wait = wait_for_socket;
        parent->conn.put = put_frame;
        status = join_parent(self, address);
    }
    if (status != XRAY_OK) {
        apart_free(self);
        return status;
    }
    *out_self = self;
    *out_parent = parent;
    return XRAY_OK;
}

void apart_detach(apart *self)
{
    apart_own *own = self->own;
    const apart_frame leave = apart_frame_of(APART_LEAVE, 0);
    const uint64_t one = 1;
    if (own->running && write(own->stop, &one, sizeof(one)) == sizeof(one)) {
        (void)pthread_join(own->thread, NULL);
        own->next_ms = 0; /* the record as it is now */
        (void)put_frame(&self->peers[0].conn, &leave, NULL);
        /* The socket stays open until the process ends, because the parent
         * takes the end of the connection for that of the process. */
        self->peers[0].conn.fd = -1;
    }
    if (own->stop >= 0)
        (void)close(own->stop);
    (void)pthread_mutex_destroy(&own->lock);
    free(own->sent);
    free(own);
    self->own = NULL;
}

xray_status apart_poll_parent(apart *self, int64_t timeout_ms,
                              xray_runtime_event *out)
{
    xray_peer *parent = &self->peers[0];
    apart_conn *conn = &parent->conn;
    const uint64_t end = apart_now_ms() + (uint64_t)timeout_ms;
    const struct timespec until = { (time_t)(end / 1000),
                                    (long)(end % 1000) * 1000000 };
    for (;;) {
        int bad = 0;
        int got = apart_next(self, parent, out, &bad);
        if (got > 0)
            return XRAY_OK;
        if (got < 0)
            return apart_fail(self->host, XRAY_E_PEER,
                              "the regions of a message: %s",
                              strerrordesc_np(bad));
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
