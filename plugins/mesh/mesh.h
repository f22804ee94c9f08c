/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of ranks of which every two are connected by lines, whatever
 * carries those: comm-tcp does it by sockets, comm-mpi by messages of MPI. Each
 * hands over a mesh_transport, and everything else is the same: groups, the
 * course of a call, the order of sums, and what is said when one fails.
 *
 * The calling thread moves the data of a call by itself. One more thread per
 * instance (watch.c) reads the notes of other ranks, so that a rank which
 * computes still says what it does, and hears at once what has ended. What both
 * use is under `lock`.
 */
#ifndef MESH_MESH_H
#define MESH_MESH_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include <xray/comm.h>

#include "core/base/collective.h"
#include "core/base/services.h"
#include "plugins/mesh/wire.h"

#define MESH_MOST_RANKS 256u
/* Bytes that each rank may send to every other one at once. */
#define MESH_SMALL 0x8000u
#define MESH_WINDOW 4u /* pieces of a rank that may wait to be added */
/* Bytes of sums for another host on their way. */
#define MESH_PARTS (2 * MESH_WINDOW * MESH_PIECE)
/* Bytes of `in`, and of `out`, of a staged piece. */
#define MESH_STAGE 0x400000u
#define MESH_LANES 3u
#define MESH_DIRECT 0u /* lane from the rank that has the bytes */
#define MESH_RING 1u   /* lane along the ring of ranks, where others pass on */
#define MESH_PART 2u   /* lane to the rank that adds for another host */

/* Why a channel is broken, and what became of a peer. */
#define MESH_LATE 1u
#define MESH_DEAD 2u
#define MESH_DIFFERENT 3u
#define MESH_ABORTED 4u
#define MESH_FAILED 5u
#define MESH_LEFT 6u
#define MESH_CANCELED 7u
#define MESH_SILENT 8u
#define MESH_GARBLED 9u

/* States of a rank, as in xray_comm_trace. */
#define MESH_OUTSIDE 0u
#define MESH_WAITS 1u
#define MESH_WORKS 2u
#define MESH_GAVE_UP 3u
#define MESH_ENDED 4u

/* Bytes on their way to or from a rank, in order: segments of memory one after
 * the other, or a piece of each in turn. */
typedef struct mesh_segment {
    char *at;
    uint64_t bytes;
} mesh_segment;

typedef struct mesh_run_of_bytes {
    const mesh_segment *segments;
    uint32_t count;
    uint32_t deals; /* 1: a piece of each segment in turn */
    uint32_t current;
    uint32_t round;      /* of a run that deals: pieces of each segment */
    uint64_t in_current; /* bytes of the current segment, or of its current
                          * piece, that have passed */
    uint64_t wraps;      /* bytes after which a segment's memory is used again;
                          * 0: it is not */
    uint64_t done;
    uint64_t total;
} mesh_run_of_bytes;

/* A message of which its other rank is ready to do its half. */
typedef struct mesh_offer_seen {
    mesh_frame frame;
    uint32_t used;
} mesh_offer_seen;

/* Halves that a rank can have open: two of an exchange. */
#define MESH_OFFERS 4u
#define MESH_INPUT 0x1000u

typedef struct mesh_peer {
    uint32_t pid;
    uint32_t is_local; /* 1: its process is of this host */
    uint64_t host_id;
    char host[48];
    const struct mesh_transport *via;
    void *line; /* the transport's */
    /* The line of calls. */
    uint64_t in_transit; /* bytes that the transport has taken, but that have
                          * not gone: while there are some the rank calls `send`
                          * again */
    uint8_t *out;        /* headers, and what is left of an abandoned payload */
    uint64_t out_cap;
    uint64_t out_used;
    uint64_t out_at;
    const char *payload; /* of the frame whose header was put last */
    uint64_t payload_left;
    uint8_t in[MESH_INPUT]; /* bytes that came with a header */
    uint32_t in_used;
    uint32_t in_at;
    uint32_t deaf;   /* 1: the peer takes nothing any more; 2: all that it sent
                      * has been read, too */
    uint32_t parked; /* 1: `frame` was received and waits to be taken */
    mesh_frame frame;
    char *to; /* payload in progress; NULL: it is dropped */
    uint64_t to_left;
    uint64_t stopped_since;    /* when a call first found it told to stop; 0 */
    mesh_run_of_bytes *to_run; /* whose progress it is, or NULL */
    uint32_t leaves;           /* 1: MESH_LEAVE was received */
    mesh_offer_seen offers[MESH_OFFERS];
    mesh_frame seen; /* with which it began its last call; kind 0: none */
    /* The line of notes; under `lock`. */
    uint32_t mute; /* 1: no note can come from it or go to it */
    uint32_t asked;
    uint32_t answered;
    mesh_activity told;
    mesh_activity broke; /* what it did when it broke `broke_channel` */
    uint64_t broke_channel;
    _Atomic uint32_t fate; /* 0, or MESH_DEAD ... */
} mesh_peer;

typedef struct mesh_broken {
    uint64_t channel;
    uint64_t number; /* first call that cannot be made */
    uint32_t cause;
    uint32_t origin;
} mesh_broken;

typedef struct mesh_comm {
    const xray_host *host;
    const xray_call_service *stop; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout; /* ns; 0: no limit */
    uint64_t silence; /* ns after which the transport counts a host as lost */
    const struct mesh_transport *via;
    void *lines; /* the transport's */
    xray_comm_trace *trace;
    mesh_peer *peers; /* [size] */
    struct xray_comm_group *groups;
    uint32_t group_count;
    char *window;   /* pieces that wait to be added, [size][2 MESH_WINDOW] */
    char *mates;    /* those that this rank adds for others of its host, [size]
                     * [MESH_WINDOW]; NULL: no group needs them */
    char *parts;    /* and their sums on their way, [size][2 MESH_WINDOW] */
    char *stage_in; /* where the host cannot read the device's memory */
    char *stage_out;
    _Atomic uint32_t aborted;
    pthread_mutex_t lock;
    pthread_cond_t heard; /* an answer came, or a peer's fate */
    uint32_t locks;       /* 1: the two were made */
    mesh_activity mine;   /* under `lock` */
    mesh_broken *broken;  /* under `lock` */
    uint32_t broken_count;
    uint32_t broken_cap;
    _Atomic uint32_t any_broken;
    int wake; /* eventfd: there is news for the calling thread */
    int end;  /* eventfd: the thread shall end */
    pthread_t watcher;
    uint32_t watching;
} mesh_comm;

/* Ranks that make calls together, or two of which one sends to the other. */
typedef struct mesh_channel {
    mesh_comm *comm;
    uint64_t key;
    uint64_t calls; /* completed */
    uint32_t group; /* number of its group */
    uint32_t count;
    uint32_t self;
    const uint32_t *ranks;
    const struct mesh_channel *with; /* of the other half of an exchange */
    char *broken; /* where and why in full, or NULL: "where\0text" */
    uint32_t broken_cause;
} mesh_channel;

/* A call moves this between this rank and another one. */
typedef struct mesh_flow {
    mesh_segment direct[2]; /* out and in */
    mesh_segment back[2];   /* the same of the ring's lane within a host */
    mesh_run_of_bytes out[MESH_LANES];
    mesh_run_of_bytes in[MESH_LANES];
    uint32_t arrived;
} mesh_flow;

/* The bytes that a rank copies from its own part of a call. */
typedef struct mesh_copy {
    const char *from;
    char *to;
    uint64_t bytes;
    uint64_t done;
} mesh_copy;

/* Where the members of a group are (layout.c). Everything is an index in the
 * group, [count]. */
typedef struct mesh_layout {
    uint32_t *memory;
    uint32_t *host;        /* of each member: the first one of its host */
    uint32_t *order;       /* the members host by host: that of the ring */
    uint32_t *place;       /* of each member in that order */
    uint32_t *block_first; /* of each member: the largest part of the tree of
                            * sums that holds it and only ranks of its host */
    uint32_t *block_count;
    uint32_t *tasks; /* of whose part this host's blocks add; of a call */
    uint32_t hosts;
    uint32_t most; /* ranks of a block */
} mesh_layout;

struct xray_comm_group {
    xray_comm_group *next;
    mesh_channel all;
    uint32_t *ranks;
    mesh_flow *flows;     /* [count] */
    mesh_segment *ring;   /* [2][count] out and in */
    mesh_segment *dealt;  /* [count] of the lanes MESH_PART */
    const void **sources; /* [count] */
    mesh_copy own;        /* of the current call */
    mesh_layout layout;
    mesh_channel *messages; /* [2][count] from each peer and to it */
    uint32_t *pairs;        /* [2][count][2] their ranks */
};

/* A call as one rank makes it. */
typedef struct mesh_call {
    uint32_t call; /* XRAY_COMM_* or MESH_FORM */
    uint32_t dtype;
    uint32_t root;       /* index of a broadcast's root */
    uint32_t other;      /* rank of that root or of a message's peer */
    uint32_t from;       /* rank from which an exchange receives */
    uint64_t from_bytes; /* and how much */
    uint64_t count;
    uint64_t bytes;      /* of count elements */
    uint64_t call_bytes; /* of the call that this is a piece of */
    uint64_t extra;
    const void *in;
    void *out;
} mesh_call;

uint64_t mesh_clock(void);
/* 1 if the host has a log that takes lines of a level. */
static inline int mesh_logs(const mesh_comm *comm, uint32_t level)
{
    return comm->host && comm->host->log && xr_host_logs(comm->host, level);
}

/* ---- what carries the lines ---------------------------------------------- */

typedef struct mesh_wait mesh_wait;

/* The lines of an instance. No callback waits for another rank. */
typedef struct mesh_transport {
    const char *name; /* of the component, as in "comm tcp" */
    /* Sends bytes of the line of calls, as many as go: returns their number, or
     * -1 if the peer takes nothing any more. `count` may be 0. */
    int64_t (*send)(mesh_peer *peer, const struct iovec *parts, size_t count);
    /* Receives what is there of the line of calls: returns the number of bytes,
     * or -1 if all that the peer sent has been read and nothing else comes;
     * then *out_reason is an errno, or 0 for an end without one. */
    int64_t (*receive)(mesh_peer *peer, const struct iovec *parts, size_t count,
                       int *out_reason);
    /* Adds a line to those that `sleep` waits for. */
    void (*wait_for)(mesh_wait *wait, mesh_peer *peer, int reads, int writes);
    /* Sleeps until a line can go on, `wake` of the instance is readable, or
     * `ms` have passed. */
    void (*sleep)(mesh_wait *wait, int ms);
    /* Sends a note to another rank that is not mute. The caller has the
     * lock. */
    void (*send_note)(mesh_comm *comm, uint32_t rank, const mesh_note *note);
    /* Hands notes of all ranks to mesh_take_note until `end` of the instance is
     * readable: the whole work of a thread. */
    void (*watch)(mesh_comm *comm);
    /* Frees all lines, also those that are incomplete. */
    void (*close)(mesh_comm *comm);
} mesh_transport;

/* ---- instances ----------------------------------------------------------- */

/* A rank tells the others this when they connect; what its transport needs
 * follows. */
typedef struct mesh_card {
    int32_t status; /* XRAY_OK, or why it cannot take part */
    uint32_t size;
    uint32_t pid;
    uint32_t unused;
    uint64_t host; /* which host: boot, name and namespaces */
    char name[48];
    char why[104];
} mesh_card;

/* Makes an instance without lines. */
xray_status mesh_new(const xray_comm_setup *setup,
                     const mesh_transport *transport, mesh_comm **out);
/* Everything else that a rank needs of its own host. The lines are made even
 * if it fails, since the other ranks wait for this one. */
xray_status mesh_prepare(mesh_comm *comm);
/* Starts the thread once all ranks are connected. */
xray_status mesh_begin(mesh_comm *comm);
/* Callbacks of the interface. */
uint32_t mesh_serves(const char *device_name);
void mesh_destroy(void *self);
void mesh_abort(void *self);
uint32_t mesh_spans_hosts(void);

void mesh_fill_card(const mesh_comm *comm, xray_status ready, mesh_card *out);
/* Records why this rank cannot take part, unless it has a reason. XRAY_AGAIN:
 * another one did not do its part in time, whose own reason goes before. */
XRAY_PRINTF(3, 4)
void mesh_refuse_card(mesh_card *card, xray_status status, const char *fmt,
                      ...);
/* Writes the cards of all ranks, each of `size` bytes, which begin with a
 * mesh_card. Fails if one of them cannot take part. */
xray_status mesh_gather_cards(const mesh_comm *comm,
                              const xray_comm_setup *setup, const void *mine,
                              uint64_t size, void *all);
/* Notes where the ranks are. */
void mesh_keep_cards(mesh_comm *comm, const void *all, uint64_t size);

/* ---- where ranks are ------------------------------------------------------
 */

/* Returns 0 if there is no memory. */
int mesh_layout_make(mesh_layout *layout, const mesh_comm *comm,
                     const uint32_t *ranks, uint32_t count);
/* Bytes of a partial sum for each byte of an element: fp32 of bf16 are 2. */
uint32_t mesh_widens(const mesh_call *call);
/* 1 if the elements of member `index` reach the member `owner`, which adds
 * them, in the sum over its block. */
int mesh_is_partial(const xray_comm_group *group, const mesh_call *call,
                    uint32_t owner, uint32_t index);
/* The member that sends them: itself, or the one that adds for its block. */
uint32_t mesh_source_of(const xray_comm_group *group, const mesh_call *call,
                        uint32_t owner, uint32_t index);
/* Number of parts that come to a member along the ring. */
uint32_t mesh_ring_parts(const mesh_layout *layout, uint32_t count,
                         uint32_t index);

/* ---- groups -------------------------------------------------------------- */

xray_status mesh_group(void *self, const uint32_t *ranks, uint32_t count,
                       xray_comm_group **out);
void mesh_group_free(xray_comm_group *group);
/* The channel of messages to another member, or from it. */
xray_status mesh_message_channel(xray_comm_group *group, const char *where,
                                 uint32_t peer, int sends, mesh_channel **out);
/* The channel with a key, or NULL. */
mesh_channel *mesh_find_channel(const mesh_comm *comm, uint64_t key);

/* ---- the line of calls --------------------------------------------------- */

/* Takes memory from now on for the header of a frame. Returns 0 if there is
 * none. */
int mesh_line_put(mesh_peer *peer, const mesh_frame *frame);
/* 1 if everything that was put has been sent. */
int mesh_line_is_idle(const mesh_peer *peer);
/* Sends what the line takes without waiting. */
void mesh_line_send(mesh_peer *peer);
/* Receives without waiting: the next frame (peer->parked) or its payload.
 * Returns 1 if anything came. A line that has ended sets the peer's fate. */
int mesh_line_receive(mesh_peer *peer);
/* Has the payload of the parked frame received to `to`; NULL drops it. */
void mesh_line_take(mesh_peer *peer, char *to, mesh_run_of_bytes *run);
/* Forgets the buffers of a call that failed: what was begun is sent as zeros,
 * and what comes is dropped. */
void mesh_line_abandon(mesh_peer *peer);
void mesh_run_advance(mesh_run_of_bytes *run, uint64_t bytes);
/* The bytes that the next frame carries. */
mesh_segment mesh_run_next(const mesh_run_of_bytes *run);
mesh_frame mesh_frame_of(const mesh_channel *channel, const mesh_call *call,
                         uint32_t kind);
/* Reads the next frame of a peer, taking in what needs no call of this rank:
 * offers, farewells, and what remains of broken channels. Returns 1 if a frame
 * is parked that the call has to look at. */
int mesh_next_frame(mesh_comm *comm, mesh_peer *peer);
/* Forgets offers to a channel that was broken since they came. */
void mesh_drop_offers(mesh_comm *comm, mesh_peer *peer);
mesh_offer_seen *mesh_find_offer(mesh_peer *peer, uint64_t channel,
                                 uint32_t call);

/* ---- the course of a call ------------------------------------------------ */

/* Makes a call on memory of the host. */
xray_status mesh_run_call(xray_comm_group *group, const mesh_call *call);
xray_status mesh_stage_call(xray_comm_group *group, xray_stream *stream,
                            const mesh_call *call);
/* Makes a send, a recv or an exchange, on memory of the host. The indices and
 * buffers are those of `x`. */
xray_status mesh_messages(xray_comm_group *group, const mesh_call *call,
                          const xray_comm_exchange *x);
/* The same on memory of the device. */
xray_status mesh_stage_messages(xray_comm_group *group, xray_stream *stream,
                                const mesh_call *call,
                                const xray_comm_exchange *x);

/* A wait for other ranks, from the last progress on. */
struct mesh_wait {
    mesh_comm *comm;
    mesh_channel *channels[2]; /* the second one may be NULL */
    uint64_t since;            /* of the last progress */
    uint64_t looked;           /* when the host was last asked */
    uint32_t count;            /* of fds */
    uint32_t ready;            /* 1: a line can go on already */
    struct pollfd fds[MESH_MOST_RANKS + 1];
    mesh_peer *peers[MESH_MOST_RANKS]; /* whose line each one is */
    uint32_t slept;                    /* times since the last progress */
};

/* Returns a cause (MESH_*) for which the wait cannot go on, and the rank that
 * found it, or 0. It asks the host only from time to time. */
uint32_t mesh_find_cause(mesh_wait *wait, uint32_t *out_origin);
/* Counts progress: the timeout begins anew. */
void mesh_wait_went_on(mesh_wait *wait);
/* Adds a line to those that mesh_wait_sleep waits for. */
void mesh_wait_for(mesh_wait *wait, mesh_peer *peer, int reads);
/* Sleeps until a line can go on, there is news, or a moment has passed. */
void mesh_wait_sleep(mesh_wait *wait);
/* The cause that the fate of a peer is for a call that needs it, or 0. */
uint32_t mesh_fate_of(mesh_peer *peer);
/* Fills what a call moves between this rank and each other one. */
void mesh_plan_call(xray_comm_group *group, const mesh_call *call);
/* Copies the next piece. Returns 0 if there is none. */
int mesh_copy_piece(mesh_copy *copy);
/* The part, or slice, of which a member holds the sum, in this rank's memory.
 */
mesh_segment mesh_share_of(const xray_comm_group *group, const mesh_call *call,
                           uint32_t index);
typedef struct mesh_sums {
    xray_comm_group *group;
    const mesh_call *call;
    const char *own; /* this rank's own elements */
    char *to;
    uint64_t bytes; /* of the sum */
    uint64_t done;
    uint32_t active; /* 1: the call adds */
    uint32_t holds;  /* 1: `to` is still being sent until all has gone */
    uint32_t joins;  /* 1: some sources are sums over blocks */
    mesh_run_of_bytes parts; /* what this rank adds of its block for others */
} mesh_sums;

/* Begins the sums of a call, once it is planned. */
void mesh_sums_begin(mesh_sums *s, xray_comm_group *group,
                     const mesh_call *call);
/* Adds the pieces that all ranks have sent. Returns 1 if there were any. */
int mesh_sums_add(mesh_sums *s);
/* Where the next bytes of a rank go, or NULL while its window is full. */
char *mesh_sums_slot(const mesh_sums *s, uint32_t index, uint32_t lane);
/* Bytes of the sum over this rank's block that its owner may be sent. */
uint64_t mesh_parts_ready(const mesh_sums *s, uint32_t owner);
/* 1 if a call of this size goes from each rank to each one at once. */
int mesh_is_small(const xray_comm_group *group, const mesh_call *call);

/* ---- failures ------------------------------------------------------------ */

/* Breaks the channel, tells its ranks, and reports. */
xray_status mesh_break(mesh_channel *channel, const mesh_call *call,
                       uint32_t cause, uint32_t origin);
/* A frame of a peer begins another call than this rank's: the peer's call is
 * broken as well, since this rank will not come to it. Returns
 * -MESH_DIFFERENT. */
int mesh_differs(mesh_comm *comm, const mesh_peer *peer,
                 const mesh_frame *frame);
/* Breaks a channel without a report of its own: the other half of a failed
 * exchange. */
void mesh_break_quietly(mesh_channel *channel, uint32_t cause, uint32_t origin);
/* 1 if the channel is broken for call `number`; `out`, which may be NULL, then
 * says by whom and why. */
int mesh_is_broken(mesh_comm *comm, uint64_t channel, uint64_t number,
                   mesh_broken *out);
/* Notes that a channel is broken unless it is. The caller has the lock. */
void mesh_note_broken(mesh_comm *comm, const mesh_broken *broken);
/* Returns the error of a channel that is broken. */
xray_status mesh_report_again(mesh_channel *channel);
xray_status mesh_report(mesh_channel *channel, const mesh_call *call,
                        uint32_t cause, uint32_t origin);
void mesh_say_call(xr_sentence *s, const mesh_activity *a);

/* ---- what ranks tell each other ------------------------------------------ */

void mesh_trace_begin(const mesh_channel *channel, const mesh_call *call);
void mesh_trace_state(mesh_comm *comm, uint32_t state);
/* Sends a note to a rank, unless it is this one or has ended. The caller has
 * the lock. */
void mesh_send_note(mesh_comm *comm, uint32_t rank, const mesh_note *note);
void mesh_send_state(mesh_comm *comm, uint32_t rank, uint32_t kind);
/* The transport calls these for a note that came, and where none can come any
 * more, for an errno, or 0. A note that no rank may send is refused: the result
 * is 0. The caller has the lock. */
int mesh_take_note(mesh_comm *comm, uint32_t rank, const mesh_note *note);
void mesh_end_notes(mesh_comm *comm, uint32_t rank, int reason);
/* Asks ranks what they do, and waits for the answers. */
void mesh_ask_ranks(mesh_comm *comm, const uint32_t *ranks, uint32_t count);
void mesh_wake(const mesh_comm *comm);
int mesh_start_watcher(mesh_comm *comm);
void mesh_stop_watcher(mesh_comm *comm);

/* ---- the interface --------------------------------------------------------
 */

xray_status mesh_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype);
xray_status mesh_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                                void *buf, uint64_t count, uint32_t dtype);
xray_status mesh_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype);
xray_status mesh_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype);
xray_status mesh_all_to_all(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype);
xray_status mesh_exchange(xray_comm_group *group, xray_stream *stream,
                          const xray_comm_exchange *messages);
xray_status mesh_broadcast(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t bytes, uint32_t root);
xray_status mesh_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer);
xray_status mesh_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer);

/* All of the interface but `create`. */
#define MESH_CALLBACKS                                                    \
    .serves = mesh_serves, .destroy = mesh_destroy, .group = mesh_group,  \
    .all_reduce = mesh_all_reduce, .all_reduce_max = mesh_all_reduce_max, \
    .reduce_scatter = mesh_reduce_scatter, .all_gather = mesh_all_gather, \
    .broadcast = mesh_broadcast, .send = mesh_send, .recv = mesh_recv,    \
    .exchange = mesh_exchange, .all_to_all = mesh_all_to_all,             \
    .abort = mesh_abort, .spans_hosts = mesh_spans_hosts

#endif
