/* SPDX-License-Identifier: Apache-2.0
 *
 * Frames of the runtime without shared memory: writes them to a socket and
 * reads them from there.
 */
#define _GNU_SOURCE /* pthread_condattr_setclock */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/apart.h"

#define MAGIC 0x74726170u
#define MOST (UINT64_C(1) << 40)     /* bytes of a message */
#define AT_ONCE (UINT64_C(16) << 20) /* bytes read before others get a turn */

int apart_conn_open(apart_conn *conn)
{
    pthread_condattr_t attr;
    conn->fd = -1;
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

void apart_conn_free(apart_conn *conn)
{
    apart_item *item;
    if (conn->fd >= 0)
        (void)close(conn->fd);
    conn->fd = -1;
    while ((item = apart_take(conn)))
        free(item);
    free(conn->item);
    free(conn->record);
    (void)pthread_mutex_destroy(&conn->lock);
    (void)pthread_cond_destroy(&conn->arrived);
}

apart_frame apart_frame_of(uint32_t kind, uint64_t value)
{
    return (apart_frame){ .magic = MAGIC, .kind = kind, .value = value };
}

static int write_bytes(apart_conn *conn, const char *bytes, uint64_t size,
                       int flags)
{
    while (size) {
        ssize_t n = send(conn->fd, bytes, (size_t)size,
                         MSG_NOSIGNAL | MSG_DONTWAIT | flags);
        int bad = 0;
        if (n < 0)
            bad = errno == EAGAIN ? conn->wait(conn) : errno;
        if (bad && bad != EINTR)
            return bad;
        bytes += n > 0 ? n : 0;
        size -= n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

int apart_write(apart_conn *conn, const apart_frame *frame, const void *data)
{
    int bad = write_bytes(conn, (const char *)frame, sizeof(*frame),
                          frame->size ? MSG_MORE : 0);
    return bad ? bad : write_bytes(conn, data, frame->size, 0);
}

/* ---- reading ------------------------------------------------------------- */

static void append_item(apart_conn *conn, apart_item *item)
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

apart_item *apart_take(apart_conn *conn)
{
    (void)pthread_mutex_lock(&conn->lock);
    apart_item *item = conn->first;
    if (item)
        conn->first = item->next;
    if (!conn->first)
        conn->last = NULL;
    (void)pthread_mutex_unlock(&conn->lock);
    return item;
}

static int begin_message(apart_conn *conn)
{
    const apart_frame *frame = &conn->frame;
    if (!frame->size || frame->size > APART_PIECE || frame->rest > MOST)
        return EPROTO;
    if (conn->item) {
        uint64_t left = conn->item->size - conn->item->have;
        return left == frame->size + frame->rest ? 0 : EPROTO;
    }
    uint64_t size = frame->size + frame->rest;
    conn->item = malloc(sizeof(*conn->item) + (size_t)size);
    if (!conn->item)
        return ENOMEM;
    *conn->item = (apart_item){ .size = size };
    return 0;
}

/* Checks a header that is complete. */
static int begin_frame(apart_conn *conn)
{
    const apart_frame *frame = &conn->frame;
    if (frame->magic != MAGIC || frame->kind >= APART_KINDS ||
        (frame->kind == APART_HELLO) == (conn->greeted != 0))
        return EPROTO;
    if (frame->kind == APART_MESSAGE)
        return begin_message(conn);
    uint64_t size = frame->kind == APART_RECORD ? conn->record_bytes : 0;
    if (frame->size != size || (frame->kind == APART_RECORD && !size))
        return EPROTO;
    if (size && !conn->record)
        conn->record = malloc((size_t)size);
    return size && !conn->record ? ENOMEM : 0;
}

/* Handles a frame that is complete. */
static int end_frame(apart_conn *conn)
{
    const apart_frame *frame = &conn->frame;
    apart_item *item = conn->item;
    if (frame->kind == APART_MESSAGE) {
        item->have += frame->size;
        if (frame->rest)
            return 0;
        conn->item = NULL;
    } else if (frame->kind == APART_UNREGION) {
        item = malloc(sizeof(*item));
        if (!item)
            return ENOMEM;
        *item = (apart_item){ .unregion = frame->value };
    } else {
        int bad = conn->handle(conn, frame);
        conn->greeted |= !bad;
        return bad;
    }
    append_item(conn, item);
    return 0;
}

/* Where the next bytes go, and how many. */
static void *find_target(apart_conn *conn, size_t *out_size)
{
    if (conn->have < sizeof(conn->frame)) {
        *out_size = sizeof(conn->frame) - (size_t)conn->have;
        return (char *)&conn->frame + conn->have;
    }
    uint64_t at = conn->have - sizeof(conn->frame);
    *out_size = (size_t)(conn->frame.size - at);
    if (conn->frame.kind == APART_MESSAGE)
        return conn->item->bytes + conn->item->have + at;
    return (char *)conn->record + at;
}

int apart_read(apart_conn *conn)
{
    const uint64_t most = conn->total + AT_ONCE;
    while (!conn->bad && conn->total < most) {
        size_t size = 0;
        void *to = find_target(conn, &size);
        ssize_t n = recv(conn->fd, to, size, MSG_DONTWAIT);
        if (n == 0)
            return EPIPE;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        conn->total += (uint64_t)n;
        conn->have += (uint64_t)n;
        if (conn->have == sizeof(conn->frame))
            conn->bad = begin_frame(conn);
        if (!conn->bad &&
            conn->have == sizeof(conn->frame) + conn->frame.size) {
            conn->bad = end_frame(conn);
            conn->have = 0;
        }
    }
    return conn->bad;
}
