/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares a runtime of actors without shared memory: one process an actor on
 * this host, and one TCP connection to each. Each side has a copy of a region,
 * and each message carries the bytes of those that it names.
 *
 * The parent never waits for a peer without reading from all of them, and the
 * actor has a thread that always reads, so no two sides wait for each other.
 */
#ifndef TESTS_FAKES_APART_H
#define TESTS_FAKES_APART_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include <xray/runtime.h>

extern const xray_runtime_ops apart_runtime;

/* ---- frames -------------------------------------------------------------- */

#define APART_BEAT_MS 100u
#define APART_PIECE (UINT64_C(1) << 20) /* bytes of a message in one frame */

enum {
    APART_HELLO,    /* the first; value: the token, or the size of a record */
    APART_MESSAGE,  /* a piece of a message */
    APART_RECORD,   /* the actor's record */
    APART_WORD,     /* value: the word of `notify` */
    APART_UNREGION, /* value: id of a region that the sender destroyed */
    APART_BEAT,
    APART_LEAVE, /* the actor's instance ended in order */
    APART_KINDS
};

typedef struct apart_frame {
    uint32_t magic;
    uint32_t kind;
    uint64_t size; /* bytes that follow */
    uint64_t rest; /* MESSAGE: bytes of the same message in later frames */
    uint64_t value;
} apart_frame;

/* A message begins with its head and one entry for each region. The bytes of
 * the message follow, and then the contents of the regions. */
typedef struct apart_head {
    uint64_t size; /* bytes of the message itself */
    uint64_t part_count;
} apart_head;

typedef struct apart_part {
    uint64_t id;
    uint64_t size;
    uint64_t first;
    uint64_t count;
    uint64_t receivers; /* 1: the receiver created the region */
} apart_part;

/* A message, or the end of a region, that was received and waits for `poll`. */
typedef struct apart_item {
    struct apart_item *next;
    uint64_t unregion; /* id; 0: a message */
    uint64_t size;
    uint64_t have; /* bytes of it that were received */
    unsigned char bytes[];
} apart_item;

/* One end of a connection. Functions return 0 or an errno. */
typedef struct apart_conn {
    int fd;           /* -1: closed */
    int bad;          /* EPROTO or ENOMEM: nothing can be read any more */
    uint32_t greeted; /* HELLO has come */
    apart_frame frame;
    uint64_t have;         /* bytes of the frame, with its header */
    apart_item *item;      /* the message that is being received */
    uint64_t *record;      /* the last that was received */
    uint64_t record_bytes; /* 0: none is expected here */
    uint64_t total;        /* bytes received so far */
    pthread_mutex_t lock;  /* of the list */
    pthread_cond_t arrived;
    apart_item *first;
    apart_item *last;
    /* Handles a frame of another kind than MESSAGE and UNREGION. */
    int (*handle)(struct apart_conn *conn, const apart_frame *frame);
    /* Waits until the socket may take more, while a frame is being written. */
    int (*wait)(struct apart_conn *conn);
    /* Writes a frame whole. */
    int (*put)(struct apart_conn *conn, const apart_frame *frame,
               const void *data);
} apart_conn;

int apart_conn_open(apart_conn *conn);
void apart_conn_free(apart_conn *conn);
apart_frame apart_frame_of(uint32_t kind, uint64_t value);
/* Writes the frame to the socket and waits while that is full. */
int apart_write(apart_conn *conn, const apart_frame *frame, const void *data);
/* Reads what has arrived: 0, EAGAIN once there is nothing more, EPIPE at the
 * end, EPROTO for bytes that are no frame, or another errno. */
int apart_read(apart_conn *conn);
/* Takes the oldest item of the list; NULL if it is empty. */
apart_item *apart_take(apart_conn *conn);

/* ---- peers and regions --------------------------------------------------- */

typedef struct apart_region {
    xray_region pub;
    struct apart_region *next;
} apart_region;

struct xray_peer {
    apart_conn conn; /* first: a connection is found in its peer */
    struct apart *self;
    apart_region *regions; /* that it created */
    /* The parent's peers only. */
    int listener; /* where its process connects; -1 once it has */
    uint32_t index;
    uint32_t used;
    uint32_t writing; /* a frame is half written */
    uint32_t leaving;
    uint32_t lost; /* 1: to be reported, 2: reported */
    uint32_t clean;
    pid_t pid; /* 0: reaped */
    char name[64];
    char reason[200];
    uint64_t token;
    uint64_t spawned_ms;
    uint64_t quiet_ms;    /* time observed without a sign of life */
    uint64_t quiet_at;    /* conn.total then */
    unsigned char *early; /* what was sent before it had started */
    size_t early_at, early_size, early_cap;
    uint32_t word;
    uint32_t word_due; /* the word waits until the socket takes it */
    _Atomic uint64_t *record;
};

/* Belongs to an actor's process, besides its peer. */
typedef struct apart_own {
    pthread_mutex_t lock; /* of what is written to the socket */
    pthread_t thread;
    int stop; /* an eventfd */
    uint32_t running;
    uint32_t word;               /* of `notify`, written atomically */
    uint64_t next_ms;            /* when a sign of life is due */
    uint64_t *sent;              /* the record as it was sent last */
    apart_frame beat;            /* the sign of life that is being written */
    uint64_t beat_at, beat_size; /* bytes written, and all */
} apart_own;

typedef struct apart {
    const xray_host *host;
    xray_peer *peers; /* [peer_count]; in an actor's process one, the parent */
    struct pollfd *polls;
    uint32_t peer_count;
    uint32_t next_peer;
    uint32_t hang_ms;
    uint32_t start_ms;
    uint64_t checked_ms;
    uint64_t record_bytes;     /* of a record: a multiple of 64 */
    _Atomic uint64_t *records; /* of all peers, or the actor's own */
    apart_region *regions;     /* created here */
    uint64_t next_region;
    apart_item *current; /* the message that `poll` returned */
    apart_own *own;      /* NULL in the parent */
} apart;

/* Reports the reason and returns `status`. */
XRAY_PRINTF(3, 4)
xray_status apart_fail(const xray_host *host, xray_status status,
                       const char *fmt, ...);
uint64_t apart_now_ms(void);
/* An instance with that many peers, none of them in use. */
xray_status apart_new(const xray_host *host, uint32_t peers,
                      uint64_t record_size, apart **out_self);
/* Ends the processes and frees everything. */
void apart_free(apart *self);
/* Makes the peer one in use, without a connection: 0 or an errno. */
int apart_open(apart *self, xray_peer *peer);

xray_status apart_region_create(void *self, uint64_t size,
                                xray_region **out_region);
xray_region *apart_region_find(void *self, xray_peer *peer, uint64_t id);
void apart_region_remove(apart_region **list, uint64_t id);
xray_status apart_send(void *self, xray_peer *peer, const void *data,
                       uint64_t size, xray_region *const *regions,
                       uint32_t region_count);
/* The peer's next message, whose regions then hold what it carried: 1, 0 if
 * none has arrived, or -1 and an errno in *out_bad. */
int apart_next(apart *self, xray_peer *peer, xray_runtime_event *out,
               int *out_bad);

/* ---- the actor's side ---------------------------------------------------- */

xray_status apart_attach(const xray_host *host, const char *address,
                         void **out_self, xray_peer **out_parent);
/* Ends the thread and tells the parent. */
void apart_detach(apart *self);
/* Waits up to timeout_ms until something has arrived. */
xray_status apart_poll_parent(apart *self, int64_t timeout_ms,
                              xray_runtime_event *out);

/* ---- the parent's processes ---------------------------------------------- */

/* Starts the process of the peer, which is to connect to its listener: 0 or an
 * errno. */
int apart_start(xray_peer *peer, const char *const *argv);
/* Ends the process: kills it if a reason is given or it does not exit by
 * itself. What it sent before is received, and how it ended is noted. */
void apart_end(xray_peer *peer, const char *reason);
/* Ends the process and forgets everything about the peer. */
void apart_kill(void *self, xray_peer *peer);
/* Ends the peers that are gone or hang. */
void apart_check(apart *self);

#endif
