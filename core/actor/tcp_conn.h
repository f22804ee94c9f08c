/* SPDX-License-Identifier: Apache-2.0
 *
 * One end of a connection of frames (core/actor/tcp_frame.h), without waiting:
 * a header and its payload are written with one call, and what the regions of a
 * message carry is received in their memory.
 *
 * One thread reads. Another may take the messages that have arrived.
 */
#ifndef XR_ACTOR_TCP_CONN_H
#define XR_ACTOR_TCP_CONN_H

#include <pthread.h>

#include "core/actor/memory.h"
#include "core/actor/tcp_frame.h"
#include "core/base/tls.h"

/* A message, or the end of a region, that was received and waits. */
typedef struct xr_tcp_item {
    struct xr_tcp_item *next;
    uint64_t unregion; /* id; 0: a message */
    uint64_t size;     /* bytes of its opening */
    uint64_t have;     /* those that were received */
    uint64_t cap;
    uint64_t reserved;
    unsigned char bytes[];
} xr_tcp_item;

typedef struct xr_tcp_conn xr_tcp_conn;

/* Who receives. Functions return 0 or an errno. */
typedef struct xr_tcp_owner {
    /* Handles a frame of another kind than MESSAGE and UNREGION; its payload
     * is at `data`. */
    int (*handle)(xr_tcp_conn *conn, const xr_tcp_frame *frame,
                  const void *data);
    /* Makes the region of the part if this is the first that is seen of it;
     * EPROTO if its size is another one. */
    int (*expect)(xr_tcp_conn *conn, const xr_tcp_part *part);
    /* The bytes that the part carries, which stay until `release`; NULL if the
     * region is gone. */
    unsigned char *(*hold)(xr_tcp_conn *conn, const xr_tcp_part *part);
    void (*release)(xr_tcp_conn *conn);
    /* Waits until the socket may take more, while a frame is being written. */
    int (*wait)(xr_tcp_conn *conn);
} xr_tcp_owner;

struct xr_tcp_conn {
    xr_tls *tls; /* NULL: its bytes are sent as they are */
    int fd;      /* -1: closed */
    int bad;     /* EPROTO, EBADMSG or ENOMEM: nothing can be read any more */
    const xr_tcp_owner *owner;
    uint64_t total; /* bytes received so far */
    /* Of a Unix socket, which passes memory on: */
    uint32_t near; /* 1: it is one */
    int give;      /* goes with the next frame that is written; -1: none */
    xr_memory_fds fds;
    /* The frame that is being received: */
    xr_tcp_frame frame;
    uint64_t have; /* bytes of it, with its header */
    uint64_t record_bytes;
    unsigned char *record; /* the payload of a RECORD */
    /* and the message: */
    xr_tcp_item *item;
    const xr_tcp_part *parts; /* NULL until its opening is complete */
    uint64_t part_count;
    uint64_t part;    /* the part that is being received */
    uint64_t part_at; /* bytes of it in earlier frames */
    unsigned char *sink;
    uint32_t sunk; /* bytes of this frame went to the sink */
    uint32_t reserved;
    pthread_mutex_t lock; /* of the list of what has arrived */
    pthread_cond_t arrived;
    xr_tcp_item *first;
    xr_tcp_item *last;
};

/* As sendmsg and recvmsg, without waiting, over TLS unless that is NULL. Under
 * TLS sending may leave bytes to be sent by xr_tls_flush, and receiving fills
 * the first piece only. */
ssize_t xr_tcp_send(int fd, xr_tls *tls, const struct iovec *pieces, int count);
ssize_t xr_tcp_receive(int fd, xr_tls *tls, struct iovec *pieces, int count);

/* 0 or an errno. */
int xr_tcp_conn_open(xr_tcp_conn *conn, const xr_tcp_owner *owner,
                     uint64_t record_bytes);
/* The socket is closed before this. */
void xr_tcp_conn_free(xr_tcp_conn *conn);
/* Sends what TLS has encrypted and the socket did not take: 0, EAGAIN or
 * another errno. */
int xr_tcp_flush(const xr_tcp_conn *conn);
/* Seals the frame and writes it with its payload, waiting while the socket is
 * full. 0 or an errno. */
int xr_tcp_write(xr_tcp_conn *conn, xr_tcp_frame *frame, const void *data);
/* Reads what has arrived: 0, EAGAIN once there is nothing more, EPIPE at the
 * end, EPROTO for bytes that are no frame, EBADMSG for damaged ones, or another
 * errno. */
int xr_tcp_read(xr_tcp_conn *conn);
/* Takes the oldest item of the list; NULL if it is empty. */
xr_tcp_item *xr_tcp_take(xr_tcp_conn *conn);

#endif
