/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of the local runtime's socket: sends and receives frames, some with a
 * file descriptor, without ever blocking.
 */
#define _GNU_SOURCE /* F_DUPFD_CLOEXEC */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/actor/local.h"

#define FRAME_MOST (UINT64_C(8) << 30) /* more than a message can hold */
#define READ_LEAST ((size_t)64 << 10)

void xr_conn_close(xr_conn *conn)
{
    if (conn->fd >= 0)
        (void)close(conn->fd);
    conn->fd = -1;
    for (; conn->mark_at < conn->mark_count; conn->mark_at++)
        (void)close(conn->marks[conn->mark_at].fd);
    conn->out_at = conn->out_size = 0;
}

void xr_conn_free(xr_conn *conn)
{
    xr_conn_close(conn);
    xr_memory_drop(&conn->fds);
    free(conn->in);
    free(conn->out);
    free(conn->marks);
    memset(conn, 0, sizeof(*conn));
    conn->fd = -1;
}

/* Grows the buffer so that `more` bytes fit after `size`; 0 or ENOMEM. */
static int reserve_bytes(unsigned char **data, size_t size, size_t more,
                         size_t *cap)
{
    if (more > SIZE_MAX / 2 - size)
        return ENOMEM;
    if (size + more <= *cap)
        return 0;
    size_t want = *cap + *cap / 2;
    if (want < size + more)
        want = size + more;
    unsigned char *grown = realloc(*data, want);
    if (!grown)
        return ENOMEM;
    *data = grown;
    *cap = want;
    return 0;
}

static int reserve_mark(xr_conn *conn)
{
    if (conn->mark_count < conn->mark_cap)
        return 0;
    size_t cap = conn->mark_cap ? conn->mark_cap * 2 : 8;
    xr_conn_mark *grown = realloc(conn->marks, cap * sizeof(*grown));
    if (!grown)
        return ENOMEM;
    conn->marks = grown;
    conn->mark_cap = cap;
    return 0;
}

int xr_conn_pending(const xr_conn *conn)
{
    return conn->out_at < conn->out_size;
}

int xr_conn_flush(xr_conn *conn)
{
    while (xr_conn_pending(conn)) {
        size_t end = conn->out_size;
        int fd = -1;
        if (conn->mark_at < conn->mark_count) {
            const xr_conn_mark *mark = &conn->marks[conn->mark_at];
            if (mark->at == conn->out_at) {
                fd = mark->fd;
                if (conn->mark_at + 1 < conn->mark_count)
                    end = mark[1].at;
            } else {
                end = mark->at;
            }
        }
        struct iovec iov = { conn->out + conn->out_at, end - conn->out_at };
        ssize_t sent = xr_memory_send(conn->fd, &iov, 1, fd);
        if (sent < 0)
            return errno == EWOULDBLOCK ? EAGAIN : errno;
        if (fd >= 0) {
            (void)close(fd);
            conn->mark_at++;
        }
        conn->out_at += (size_t)sent;
    }
    conn->out_at = conn->out_size = 0;
    conn->mark_at = conn->mark_count = 0;
    return 0;
}

static void queue_bytes(xr_conn *conn, const void *data, size_t size)
{
    if (size)
        memcpy(conn->out + conn->out_size, data, size);
    conn->out_size += size;
}

/* Drops the bytes that were sent already if they are half of the buffer or
 * more. */
static void compact_queue(xr_conn *conn)
{
    const size_t gone = conn->out_at;
    if (gone < conn->out_size / 2)
        return;
    memmove(conn->out, conn->out + gone, conn->out_size - gone);
    conn->out_size -= gone;
    conn->out_at = 0;
    for (size_t i = conn->mark_at; i < conn->mark_count; i++) {
        conn->marks[i - conn->mark_at] = conn->marks[i];
        conn->marks[i - conn->mark_at].at -= gone;
    }
    conn->mark_count -= conn->mark_at;
    conn->mark_at = 0;
}

int xr_conn_send(xr_conn *conn, const xr_frame *frame, const void *data, int fd)
{
    const size_t size = (size_t)frame->size;
    int bad = xr_conn_pending(conn) ? xr_conn_flush(conn) : 0;
    if (bad && bad != EAGAIN)
        return bad;
    if (bad)
        compact_queue(conn);
    if (reserve_bytes(&conn->out, conn->out_size, sizeof(*frame) + size,
                      &conn->out_cap) ||
        reserve_mark(conn))
        return ENOMEM;
    size_t sent = 0;
    if (!bad) {
        xr_frame header = *frame;
        const union {
            const void *given;
            void *base; /* sendmsg does not write to it */
        } payload = { data };
        struct iovec iov[2] = { { &header, sizeof(header) },
                                { payload.base, size } };
        ssize_t n = xr_memory_send(conn->fd, iov, size ? 2 : 1, fd);
        if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK)
            return errno;
        sent = n < 0 ? 0 : (size_t)n;
    }
    if (sent == sizeof(*frame) + size)
        return 0;
    if (!sent && fd >= 0) { /* it goes with the first queued byte */
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (copy < 0)
            return errno;
        conn->marks[conn->mark_count++] =
            (xr_conn_mark){ conn->out_size, copy, 0 };
    }
    if (sent < sizeof(*frame)) {
        queue_bytes(conn, (const char *)frame + sent, sizeof(*frame) - sent);
        sent = sizeof(*frame);
    }
    sent -= sizeof(*frame);
    queue_bytes(conn, (const char *)data + sent, size - sent);
    return 0;
}

/* Makes space for the rest of the frame whose beginning was read, and for at
 * least READ_LEAST bytes. */
static int reserve_read_buffer(xr_conn *conn)
{
    size_t rest = READ_LEAST;
    size_t have = conn->in_size - conn->in_at;
    if (conn->in_at) {
        memmove(conn->in, conn->in + conn->in_at, have);
        conn->in_size = have;
        conn->in_at = 0;
    }
    if (have >= sizeof(xr_frame)) {
        xr_frame frame;
        memcpy(&frame, conn->in, sizeof(frame));
        if (frame.size <= FRAME_MOST && sizeof(frame) + frame.size > have)
            rest = sizeof(frame) + (size_t)frame.size - have;
    }
    if (rest < READ_LEAST)
        rest = READ_LEAST;
    return reserve_bytes(&conn->in, conn->in_size, rest, &conn->in_cap);
}

int xr_conn_read(xr_conn *conn)
{
    if (conn->fds.count ==
        XR_MEMORY_FDS) /* more than complete frames account for */
        return EMFILE;
    if (reserve_read_buffer(conn))
        return ENOMEM;
    struct iovec iov = { conn->in + conn->in_size,
                         conn->in_cap - conn->in_size };
    struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
    const ssize_t n = xr_memory_receive(conn->fd, &msg, &conn->fds);
    if (n < 0)
        return errno == EWOULDBLOCK ? EAGAIN : errno;
    if (!n)
        return EPIPE;
    conn->in_size += (size_t)n;
    return conn->fds.lost ? EMFILE : 0;
}

int xr_conn_next(xr_conn *conn, xr_frame *out, const void **out_data,
                 int *out_fd)
{
    size_t have = conn->in_size - conn->in_at;
    if (have < sizeof(*out))
        return 0;
    memcpy(out, conn->in + conn->in_at, sizeof(*out));
    if (out->kind >= XR_FRAME_KINDS || out->size > FRAME_MOST ||
        out->has_fd > 1)
        return -1;
    if (have < sizeof(*out) + out->size)
        return 0;
    *out_fd = -1;
    if (out->has_fd) {
        *out_fd = xr_memory_take(&conn->fds);
        if (*out_fd < 0)
            return -1;
    }
    *out_data = conn->in + conn->in_at + sizeof(*out);
    conn->in_at += sizeof(*out) + (size_t)out->size;
    return 1;
}
