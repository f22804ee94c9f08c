/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes the frames of a connection.
 */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include "core/actor/tcp_conn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Bytes that are read before other connections get a turn. */
#define AT_ONCE (UINT64_C(16) << 20)
#define HEADER sizeof(xr_tcp_frame)

int xr_tcp_conn_open(xr_tcp_conn *conn, const xr_tcp_owner *owner,
                     uint64_t record_bytes)
{
    pthread_condattr_t attr;
    *conn = (xr_tcp_conn){
        .fd = -1, .give = -1, .owner = owner, .record_bytes = record_bytes
    };
    int bad = pthread_mutex_init(&conn->lock, NULL);
    if (!bad)
        bad = pthread_condattr_init(&attr);
    if (bad)
        return bad;
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    bad = pthread_cond_init(&conn->arrived, &attr);
    (void)pthread_condattr_destroy(&attr);
    return bad;
}

void xr_tcp_conn_free(xr_tcp_conn *conn)
{
    xr_tcp_item *item;
    xr_memory_drop(&conn->fds);
    while ((item = xr_tcp_take(conn)))
        free(item);
    free(conn->item);
    free(conn->record);
    free(conn->sink);
    xr_tls_free(conn->tls);
    conn->tls = NULL;
    conn->item = NULL;
    conn->record = NULL;
    conn->sink = NULL;
    (void)pthread_mutex_destroy(&conn->lock);
    (void)pthread_cond_destroy(&conn->arrived);
}

/* ---- bytes --------------------------------------------------------------- */

ssize_t xr_tcp_send(int fd, xr_tls *tls, const struct iovec *pieces, int count)
{
    const union {
        const struct iovec *constant;
        struct iovec *plain; /* as POSIX declares what it does not write */
    } from = { .constant = pieces };
    const struct msghdr message = { .msg_iov = from.plain,
                                    .msg_iovlen = (size_t)count };
    if (tls && fd >= 0)
        return xr_tls_send(tls, pieces, count);
    return sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t xr_tcp_receive(int fd, xr_tls *tls, struct iovec *pieces, int count)
{
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
    if (tls && fd >= 0)
        return xr_tls_recv(tls, pieces[0].iov_base, pieces[0].iov_len);
    return recvmsg(fd, &message, MSG_DONTWAIT);
}

int xr_tcp_flush(const xr_tcp_conn *conn)
{
    return conn->tls && conn->fd >= 0 ? xr_tls_flush(conn->tls) : 0;
}

/* ---- writing ------------------------------------------------------------- */

/* Writes bytes of a frame from `at`, or if that is its end what is left of its
 * last record: their number, or -1. */
static ssize_t write_bytes(xr_tcp_conn *conn, xr_tcp_frame *frame, void *data,
                           uint64_t at)
{
    const uint64_t in = at < HEADER ? 0 : at - HEADER;
    const uint64_t head = at < HEADER ? HEADER - at : 0;
    struct iovec pieces[2] = {
        { (char *)frame + (HEADER - head), (size_t)head },
        { frame->size ? (char *)data + in : NULL, (size_t)(frame->size - in) },
    };
    if (at < HEADER + frame->size && conn->near)
        return xr_memory_send(conn->fd, pieces + !head, 1 + (head != 0),
                              at ? -1 : conn->give);
    if (at < HEADER + frame->size)
        return xr_tcp_send(conn->fd, conn->tls, pieces + !head,
                           1 + (head != 0));
    errno = xr_tcp_flush(conn);
    return errno ? -1 : 0;
}

int xr_tcp_write(xr_tcp_conn *conn, xr_tcp_frame *frame, const void *data)
{
    const uint64_t whole = HEADER + frame->size;
    union {
        const void *constant;
        void *plain; /* as POSIX declares what it does not write */
    } payload = { .constant = data };
    xr_tcp_seal(frame, data);
    for (uint64_t at = 0; at < whole || xr_tls_owes(conn->tls);) {
        ssize_t n = write_bytes(conn, frame, payload.plain, at);
        int bad = 0;
        if (n < 0)
            bad = errno == EAGAIN ? conn->owner->wait(conn) : errno;
        if (bad && bad != EINTR)
            return bad;
        at += n > 0 ? (uint64_t)n : 0;
    }
    conn->give = -1;
    return 0;
}

/* ---- what has arrived ---------------------------------------------------- */

static void append_item(xr_tcp_conn *conn, xr_tcp_item *item)
{
    (void)pthread_mutex_lock(&conn->lock);
    if (conn->last)
        conn->last->next = item;
    else
        conn->first = item;
    conn->last = item;
    (void)pthread_cond_signal(&conn->arrived);
    (void)pthread_mutex_unlock(&conn->lock);
}

xr_tcp_item *xr_tcp_take(xr_tcp_conn *conn)
{
    (void)pthread_mutex_lock(&conn->lock);
    xr_tcp_item *item = conn->first;
    if (item)
        conn->first = item->next;
    if (!conn->first)
        conn->last = NULL;
    (void)pthread_mutex_unlock(&conn->lock);
    return item;
}

/* ---- reading ------------------------------------------------------------- */

/* Makes room for as much of the opening as the frame brings, so that memory
 * grows with what arrives and not with what is announced. */
static int reserve_opening(xr_tcp_conn *conn, uint64_t size)
{
    xr_tcp_item *item = conn->item;
    const uint64_t need = (item ? item->have : 0) + conn->frame.size;
    uint64_t cap = item ? item->cap : 0;
    if (need > size)
        return EPROTO;
    if (need <= cap)
        return 0;
    cap = need > 2 * cap ? need : 2 * cap;
    cap = cap < size ? cap : size;
    xr_tcp_item *grown = realloc(item, sizeof(*item) + (size_t)cap);
    if (!grown)
        return ENOMEM;
    if (!item)
        *grown = (xr_tcp_item){ .size = size };
    grown->cap = cap;
    conn->item = grown;
    return 0;
}

static int begin_message(xr_tcp_conn *conn)
{
    const xr_tcp_frame *frame = &conn->frame;
    if (conn->parts) /* a piece of the part that is next */
        return frame->size <= conn->parts[conn->part].count - conn->part_at
                   ? 0
                   : EPROTO;
    const uint64_t size = conn->item ? conn->item->size : frame->value;
    return size > XR_TCP_OPENING ? EPROTO : reserve_opening(conn, size);
}

/* Checks a header that is complete. */
static int begin_frame(xr_tcp_conn *conn)
{
    const xr_tcp_frame *frame = &conn->frame;
    conn->sunk = 0;
    if (!xr_tcp_is_frame(frame))
        return EPROTO;
    if (frame->kind == XR_TCP_MESSAGE)
        return begin_message(conn);
    if (frame->kind != XR_TCP_RECORD)
        return 0;
    if (!frame->size || frame->size != conn->record_bytes)
        return EPROTO;
    if (!conn->record)
        conn->record = malloc((size_t)frame->size);
    return conn->record ? 0 : ENOMEM;
}

/* Goes on to the next part that carries anything; after the last one the
 * message is complete. */
static void find_next_part(xr_tcp_conn *conn)
{
    while (conn->part < conn->part_count &&
           conn->part_at == conn->parts[conn->part].count) {
        conn->part++;
        conn->part_at = 0;
    }
    if (conn->part < conn->part_count)
        return;
    append_item(conn, conn->item);
    conn->item = NULL;
    conn->parts = NULL;
}

/* Reads what the opening announces. */
static int end_opening(xr_tcp_conn *conn)
{
    xr_tcp_head head;
    uint64_t carried = 0;
    int bad = 0;
    conn->parts =
        xr_tcp_opening(conn->item->bytes, conn->item->size, &head, &carried);
    if (!conn->parts || carried != conn->frame.rest)
        return EPROTO;
    conn->part_count = head.part_count;
    conn->part = 0;
    conn->part_at = 0;
    for (uint64_t i = 0; i < head.part_count && !bad; i++)
        bad = conn->owner->expect(conn, &conn->parts[i]);
    if (!bad)
        find_next_part(conn);
    return bad;
}

static int end_message_frame(xr_tcp_conn *conn)
{
    if (conn->parts) {
        conn->part_at += conn->frame.size;
        find_next_part(conn);
        return 0;
    }
    conn->item->have += conn->frame.size;
    return conn->item->have == conn->item->size ? end_opening(conn) : 0;
}

/* Where the payload of the frame goes. */
static unsigned char *hold_payload(xr_tcp_conn *conn)
{
    if (conn->frame.kind == XR_TCP_RECORD)
        return conn->record;
    if (!conn->parts)
        return conn->item->bytes + conn->item->have;
    unsigned char *bytes = conn->owner->hold(conn, &conn->parts[conn->part]);
    if (bytes)
        return bytes + conn->part_at;
    conn->sunk = 1;
    if (!conn->sink)
        conn->sink = malloc((size_t)XR_TCP_PIECE);
    return conn->sink;
}

static void release_payload(xr_tcp_conn *conn)
{
    if (conn->frame.kind == XR_TCP_MESSAGE && conn->parts)
        conn->owner->release(conn);
}

/* Handles a frame that is complete. */
static int end_frame(xr_tcp_conn *conn)
{
    const xr_tcp_frame frame = conn->frame;
    unsigned char *data = NULL;
    int damaged = 0;
    conn->have = 0;
    if (frame.size)
        data = hold_payload(conn);
    /* Bytes that no region takes were not kept, either. */
    if (!conn->sunk)
        damaged = !xr_tcp_is_whole(&frame, data);
    if (frame.size)
        release_payload(conn);
    if (damaged)
        return EBADMSG;
    if (frame.kind == XR_TCP_MESSAGE)
        return end_message_frame(conn);
    if (frame.kind != XR_TCP_UNREGION)
        return conn->owner->handle(conn, &frame, data);
    xr_tcp_item *item = malloc(sizeof(*item));
    if (!item)
        return ENOMEM;
    *item = (xr_tcp_item){ .unregion = frame.value };
    append_item(conn, item);
    return 0;
}

static ssize_t receive_now(xr_tcp_conn *conn, struct iovec *pieces, int count)
{
    struct msghdr message = { .msg_iov = pieces, .msg_iovlen = (size_t)count };
    return conn->near ? xr_memory_receive(conn->fd, &message, &conn->fds)
                      : xr_tcp_receive(conn->fd, conn->tls, pieces, count);
}

/* Receives as much of the frame as there is, and with the end of its payload
 * the next header. */
static ssize_t receive_bytes(xr_tcp_conn *conn, xr_tcp_frame *next)
{
    struct iovec pieces[2];
    if (conn->have < HEADER) {
        pieces[0] = (struct iovec){ (char *)&conn->frame + conn->have,
                                    (size_t)(HEADER - conn->have) };
        return receive_now(conn, pieces, 1);
    }
    const uint64_t in = conn->have - HEADER;
    unsigned char *to = hold_payload(conn);
    if (!to) {
        release_payload(conn);
        errno = ENOMEM;
        return -1;
    }
    pieces[0] = (struct iovec){ to + in, (size_t)(conn->frame.size - in) };
    pieces[1] = (struct iovec){ next, HEADER };
    ssize_t n = receive_now(conn, pieces, 2);
    const int why = errno;
    release_payload(conn);
    errno = why;
    return n;
}

/* Handles `n` bytes that were received. */
static int advance_frame(xr_tcp_conn *conn, uint64_t n,
                         const xr_tcp_frame *next)
{
    const uint64_t whole =
        conn->have < HEADER ? HEADER : HEADER + conn->frame.size;
    const uint64_t more = conn->have + n > whole ? conn->have + n - whole : 0;
    int bad = 0;
    conn->total += n;
    conn->have += n - more;
    if (conn->have == HEADER && whole == HEADER)
        bad = begin_frame(conn);
    if (bad || conn->have < HEADER || conn->have < HEADER + conn->frame.size)
        return bad;
    bad = end_frame(conn);
    if (bad || !more)
        return bad;
    memcpy(&conn->frame, next, (size_t)more);
    conn->have = more;
    if (more < HEADER)
        return 0;
    bad = begin_frame(conn);
    return bad || conn->frame.size ? bad : end_frame(conn);
}

int xr_tcp_read(xr_tcp_conn *conn)
{
    const uint64_t most = conn->total + AT_ONCE;
    /* No event of the socket tells of bytes that TLS holds. */
    while (!conn->bad && (conn->total < most || xr_tls_holds(conn->tls))) {
        xr_tcp_frame next;
        ssize_t n = receive_bytes(conn, &next);
        if (n == 0)
            return EPIPE;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        conn->bad = advance_frame(conn, (uint64_t)n, &next);
    }
    return conn->bad;
}
