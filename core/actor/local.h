/* SPDX-License-Identifier: Apache-2.0
 *
 * The local runtime: one process per actor on this host, a Unix socket to each,
 * and memfds for the records and for regions.
 */
#ifndef XR_ACTOR_LOCAL_H
#define XR_ACTOR_LOCAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <xray/runtime.h>

#include "core/actor/memory.h"

extern const xray_runtime_ops xr_local_runtime;

/* ---- One end of a socket: frames, some with a file descriptor ---- */

enum {
    XR_FRAME_HELLO,    /* payload: xr_hello; fd: the slots */
    XR_FRAME_MESSAGE,  /* payload: the message */
    XR_FRAME_REGION,   /* id, bytes; fd: its memory */
    XR_FRAME_UNREGION, /* id */
    XR_FRAME_KINDS
};

typedef struct xr_frame {
    uint32_t kind;
    uint32_t has_fd;
    uint64_t size; /* of the payload that follows */
    uint64_t id;
    uint64_t bytes;
} xr_frame;

typedef struct xr_hello {
    uint64_t parent;
    uint64_t record_size;
    uint32_t actors;
    uint32_t index;
} xr_hello;

/* An fd that goes with the byte at offset `at` of the queued bytes. */
typedef struct xr_conn_mark {
    size_t at;
    int fd;
    int reserved;
} xr_conn_mark;

typedef struct xr_conn {
    int fd; /* -1: closed */
    xr_memory_fds fds;
    unsigned char *in;
    size_t in_at, in_size, in_cap;
    unsigned char *out;
    size_t out_at, out_size, out_cap;
    xr_conn_mark *marks;
    size_t mark_at, mark_count, mark_cap;
} xr_conn;

/* Closes the socket and the fds to be sent; keeps the bytes that were read. */
void xr_conn_close(xr_conn *conn);
void xr_conn_free(xr_conn *conn);
/* Sends a frame, or queues what the socket does not take. `fd` stays the
 * caller's; -1: none. 0 or an errno; after ENOMEM and EMFILE the connection is
 * as it was. */
int xr_conn_send(xr_conn *conn, const xr_frame *frame, const void *data,
                 int fd);
int xr_conn_flush(xr_conn *conn);         /* 0, EAGAIN or an errno */
int xr_conn_pending(const xr_conn *conn); /* bytes are queued */
int xr_conn_read(xr_conn *conn);          /* 0, EAGAIN, EPIPE at its end */
/* 1 and a frame, 0 if none is complete yet, -1 if the bytes are no frame. The
 * payload lives until the next read; the fd is the caller's to close. */
int xr_conn_next(xr_conn *conn, xr_frame *out, const void **out_data,
                 int *out_fd);

/* ---- The instance ---- */

/* The beat of a process that is ending in order, which may take a while. */
#define XR_BEAT_LEAVING UINT64_MAX

/* The parent shares this with an actor; the record follows. */
typedef struct xr_local_slot {
    _Atomic uint64_t beat; /* counts up while the process runs; 0: not
                            * started */
    uint32_t word;         /* the parent's notice */
    uint32_t reserved;
    uint64_t reserved2[6];
} xr_local_slot;

typedef struct xr_local_region {
    xray_region pub;
    int fd;              /* -1: another process created it */
    unsigned char *sent; /* [actors]: the peer knows it */
} xr_local_region;

typedef struct xr_local_regions {
    xr_local_region **items;
    size_t count;
    size_t cap;
} xr_local_regions;

struct xray_peer {
    xr_conn conn;
    xr_local_regions regions; /* created by this peer */
    uint32_t index;
    uint32_t used;
    pid_t pid;     /* 0: reaped, or the parent */
    uint32_t lost; /* 1: to be reported, 2: reported */
    uint32_t clean;
    char name[64];
    char reason[200];
    uint64_t beat;     /* last seen */
    uint64_t quiet_ns; /* time observed since it changed */
    uint64_t spawned_ns;
};

typedef struct xr_local {
    const xray_host *host;
    xray_peer *peers; /* [actors]; in an actor's process [1], the parent */
    struct pollfd *polls;
    uint32_t peer_count;
    uint32_t next_peer;
    uint32_t hang_ms;
    uint32_t start_ms;
    uint64_t checked_ns;
    /* The memfd: [slot_count] slots, each with its record. */
    char *shared;
    uint64_t record_size;
    int shared_fd;
    uint32_t slot_count;
    xr_local_regions regions; /* created here */
    uint64_t next_region;
    /* In an actor's process only. */
    xr_local_slot *own;
    pthread_t beat_thread;
    int beat_stop; /* an eventfd */
    int beating;
} xr_local;

/* Reports the reason through the host and returns `status`. */
XRAY_PRINTF(3, 4)
xray_status xr_local_fail(const xr_local *local, xray_status status,
                          const char *fmt, ...);
/* Maps the slots of this many actors, whose records have this size. */
xray_status xr_local_map_shared(xr_local *local, int fd, uint32_t actors,
                                uint64_t record_size);
xr_local_slot *xr_local_slot_at(const xr_local *local, uint32_t actor);

xray_status xr_local_region_create(void *self, uint64_t size,
                                   xray_region **out_region);
void xr_local_region_destroy(void *self, xray_region *region);
xray_region *xr_local_region_find(void *self, xray_peer *peer, uint64_t id);
/* Handles a frame about regions and closes the fd; 0 or an errno. */
int xr_local_region_frame(xray_peer *peer, const xr_frame *frame, int fd);
void xr_local_regions_free(xr_local_regions *regions);
/* Announces the regions that the peer does not know yet; 0 or an errno. */
int xr_local_region_send(xr_local *local, xray_peer *peer,
                         xray_region *const *regions, uint32_t count);

/* Ends the process: kills it if a reason is given or it does not exit by
 * itself, and reaps it. Notes how it ended if that is not known yet. */
void xr_local_end(xray_peer *peer, const char *reason);
/* Ends the peers that are gone or hang. */
void xr_local_check(xr_local *local);

xray_status xr_local_attach(const xray_host *host, const char *address,
                            void **out_self, xray_peer **out_parent);
void xr_local_detach(xr_local *local);

#endif
