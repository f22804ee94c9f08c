/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance, its groups and its lines to the other ranks, and the functions
 * that the files of comm-tcp share.
 *
 * The calling thread moves the data of a call by itself. One more thread per
 * instance (watch.c) reads the notes of other ranks, so that a rank which
 * computes still says what it does, and hears at once what has ended. What both
 * use is under `lock`.
 */
#ifndef TCP_TCP_H
#define TCP_TCP_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/uio.h>

#include <xray/comm.h>

#include "core/base/collective.h"
#include "core/base/services.h"
#include "plugins/comm-tcp/hello.h"
#include "plugins/comm-tcp/wire.h"

#define TCP_MOST_RANKS 256u
#define TCP_WINDOW 4u /* pieces of a rank that may wait to be added */
#define TCP_PARTS     \
    (2 * TCP_WINDOW * \
     TCP_PIECE) /* bytes of sums for another host on their way */
#define TCP_STAGE                                               \
    0x400000u /* bytes of `in`, and of `out`, of a staged piece \
               */
#define TCP_LANES 3u
#define TCP_DIRECT 0u /* lane from the rank that has the bytes */
#define TCP_RING 1u   /* lane along the ring of ranks, where others pass on */
#define TCP_PART 2u   /* lane to the rank that adds for another host */

/* Why a channel is broken, and what became of a peer. */
#define TCP_LATE 1u
#define TCP_DEAD 2u
#define TCP_DIFFERENT 3u
#define TCP_ABORTED 4u
#define TCP_FAILED 5u
#define TCP_LEFT 6u
#define TCP_CANCELED 7u
#define TCP_SILENT 8u
#define TCP_GARBLED 9u

/* States of a rank, as in xray_comm_trace. */
#define TCP_OUTSIDE 0u
#define TCP_WAITS 1u
#define TCP_WORKS 2u
#define TCP_GAVE_UP 3u
#define TCP_ENDED 4u

typedef struct tcp_config {
    const char *interface;
    int64_t heartbeat; /* ns */
} tcp_config;

/* Bytes on their way to or from a rank, in order: segments of memory one after
 * the other, or a piece of each in turn. */
typedef struct tcp_segment {
    char *at;
    uint64_t bytes;
} tcp_segment;

typedef struct tcp_run_of_bytes {
    const tcp_segment *segments;
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
} tcp_run_of_bytes;

/* A message of which its other rank is ready to do its half. */
typedef struct tcp_offer_seen {
    tcp_frame frame;
    uint32_t used;
} tcp_offer_seen;

#define TCP_OFFERS                                             \
    4u /* halves that a rank can have open: two of an exchange \
        */
#define TCP_INPUT 0x1000u

/* The memory that a rank of the same host writes to this one by, or reads from
 * it (ring.c). */
typedef struct tcp_ring tcp_ring;

typedef struct tcp_peer {
    uint32_t pid;
    uint32_t is_local; /* 1: its process is of this host */
    uint64_t host_id;
    char host[48];
    tcp_ring *ring_out; /* NULL: bytes of calls go through the system */
    tcp_ring *ring_in;
    uint32_t hung; /* 1: no more bytes come to ring_in */
    /* The line of calls. */
    int calls;
    uint8_t *out; /* headers, and what is left of an abandoned payload */
    uint64_t out_cap;
    uint64_t out_used;
    uint64_t out_at;
    const char *payload; /* of the frame whose header was put last */
    uint64_t payload_left;
    uint8_t in[TCP_INPUT]; /* bytes that came with a header */
    uint32_t in_used;
    uint32_t in_at;
    uint32_t deaf;   /* 1: the peer takes nothing any more */
    uint32_t parked; /* 1: `frame` was received and waits to be taken */
    tcp_frame frame;
    char *to; /* payload in progress; NULL: it is dropped */
    uint64_t to_left;
    uint64_t stopped_since;   /* when a call first found it told to stop; 0 */
    tcp_run_of_bytes *to_run; /* whose progress it is, or NULL */
    uint32_t leaves;          /* 1: TCP_LEAVE was received */
    tcp_offer_seen offers[TCP_OFFERS];
    tcp_frame seen; /* with which it began its last call; kind 0: none */
    /* The line of notes; under `lock`. */
    int notes;
    uint8_t note[sizeof(tcp_note)];
    uint32_t note_used;
    uint32_t asked;
    uint32_t answered;
    tcp_activity told;
    tcp_activity broke; /* what it did when it broke `broke_channel` */
    uint64_t broke_channel;
    _Atomic uint32_t fate; /* 0, or TCP_DEAD ... */
} tcp_peer;

typedef struct tcp_broken {
    uint64_t channel;
    uint64_t number; /* first call that cannot be made */
    uint32_t cause;
    uint32_t origin;
} tcp_broken;

typedef struct tcp_comm {
    const xray_host *host;
    const xray_call_service *stop; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout;   /* ns; 0: no limit */
    uint64_t heartbeat; /* ns */
    xray_comm_trace *trace;
    tcp_peer *peers; /* [size] */
    struct xray_comm_group *groups;
    uint32_t group_count;
    char *window;   /* pieces that wait to be added, [size][2 TCP_WINDOW] */
    char *mates;    /* those that this rank adds for others of its host, [size]
                     * [TCP_WINDOW]; NULL: no group needs them */
    char *parts;    /* and their sums on their way, [size][2 TCP_WINDOW] */
    char *rings;    /* memory that ranks of this host share, or NULL */
    int rings_fd;   /* until they have found it */
    char *stage_in; /* where the host cannot read the device's memory */
    char *stage_out;
    _Atomic uint32_t aborted;
    pthread_mutex_t lock;
    pthread_cond_t heard; /* an answer came, or a peer's fate */
    uint32_t locks;       /* 1: the two were made */
    tcp_activity mine;    /* under `lock` */
    tcp_broken *broken;   /* under `lock` */
    uint32_t broken_count;
    uint32_t broken_cap;
    _Atomic uint32_t any_broken;
    int wake; /* eventfd: there is news for the calling thread */
    int end;  /* eventfd: the thread shall end */
    pthread_t watcher;
    uint32_t watching;
} tcp_comm;

/* Ranks that make calls together, or two of which one sends to the other. */
typedef struct tcp_channel {
    tcp_comm *comm;
    uint64_t key;
    uint64_t calls; /* completed */
    uint32_t group; /* number of its group */
    uint32_t count;
    uint32_t self;
    const uint32_t *ranks;
    const struct tcp_channel *with; /* of the other half of an exchange */
    char *broken; /* where and why in full, or NULL: "where\0text" */
    uint32_t broken_cause;
} tcp_channel;

/* A call moves this between this rank and another one. */
typedef struct tcp_flow {
    tcp_segment direct[2]; /* out and in */
    tcp_segment back[2];   /* the same of the ring's lane within a host */
    tcp_run_of_bytes out[TCP_LANES];
    tcp_run_of_bytes in[TCP_LANES];
    uint32_t arrived;
} tcp_flow;

/* The bytes that a rank copies from its own part of a call. */
typedef struct tcp_copy {
    const char *from;
    char *to;
    uint64_t bytes;
    uint64_t done;
} tcp_copy;

/* Where the members of a group are (layout.c). Everything is an index in the
 * group, [count]. */
typedef struct tcp_layout {
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
} tcp_layout;

struct xray_comm_group {
    xray_comm_group *next;
    tcp_channel all;
    uint32_t *ranks;
    tcp_flow *flows;      /* [count] */
    tcp_segment *ring;    /* [2][count] out and in */
    tcp_segment *dealt;   /* [count] of the lanes TCP_PART */
    const void **sources; /* [count] */
    tcp_copy own;         /* of the current call */
    tcp_layout layout;
    tcp_channel *messages; /* [2][count] from each peer and to it */
    uint32_t *pairs;       /* [2][count][2] their ranks */
};

/* A call as one rank makes it. */
typedef struct tcp_call {
    uint32_t call; /* XRAY_COMM_* or TCP_FORM */
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
} tcp_call;

uint64_t tcp_clock(void);
/* 1 if the host has a log that takes lines of a level. */
static inline int tcp_logs(const tcp_comm *comm, uint32_t level)
{
    return comm->host && comm->host->log && xr_host_logs(comm->host, level);
}

/* ---- addresses and connections ------------------------------------------ */

/* A rank tells the others this when they connect. */
typedef struct tcp_card {
    int32_t status; /* XRAY_OK, or why it cannot take part */
    uint32_t size;
    uint32_t pid;
    uint32_t port;
    uint64_t host; /* which host: boot, name and namespaces */
    uint32_t family;
    uint32_t scope;
    uint8_t address[16];
    uint8_t key[TCP_KEY];
    uint64_t rings;   /* proves which memory file is meant */
    int32_t rings_fd; /* -1: none */
    uint32_t maps;    /* 1: the rank has found those of its host */
    char name[48];
    char why[112];
} tcp_card;

uint64_t tcp_host_id(char *name, uint32_t cap);
/* Chooses the address of this host by the option `interface`; "" is that of the
 * default route, or without one the first that is not the loopback's. Writes
 * its interface's name. Returns NULL, or a sentence about why there is none. */
const char *tcp_choose_address(const char *interface, tcp_card *card,
                               char *out_name, uint32_t cap);
void tcp_loopback_address(tcp_card *card);
void tcp_print_address(const tcp_card *card, char *out, uint32_t cap);

/* Connects all ranks. Every rank takes part in each gather. */
xray_status tcp_connect(tcp_comm *comm, const xray_comm_setup *setup,
                        const tcp_config *config, xray_status ready);
/* The port of a rank while the others connect. */
typedef struct tcp_doors {
    tcp_comm *comm;
    int listener;
    const uint8_t *key;
    uint64_t until;   /* tcp_clock() */
    uint32_t refused; /* connections */
    uint32_t missing; /* rank that did not come, or `size` */
} tcp_doors;

/* Accepts connections until every rank above this one has both of its lines,
 * and refuses all that cannot prove that they are of this run. Returns 1, or 0
 * if a rank is missing. */
int tcp_accept_ranks(tcp_doors *doors);
/* Makes a connection a line of the instance. */
void tcp_keep_line(tcp_comm *comm, uint32_t rank, uint32_t line, int fd);

/* ---- memory of ranks of one host ------------------------------------------
 */

/* Makes the memory by which the ranks of this host write to this one, and puts
 * it on the card. Where it cannot the card has none, and lines are used. */
void tcp_rings_make(tcp_comm *comm, tcp_card *card);
/* Finds those of the other ranks of this host. Returns 1 if all were found. */
int tcp_rings_find(tcp_comm *comm, const tcp_card *all);
/* Keeps those that both ranks have found, once all have tried. */
void tcp_rings_keep(tcp_comm *comm, const tcp_card *all);
void tcp_rings_free(tcp_comm *comm);
/* Writes bytes to the peer, as many as there is room for, or reads what is
 * there. Returns how many; the peer is woken if it waits for them. */
uint64_t tcp_ring_write(tcp_peer *peer, const struct iovec *parts,
                        size_t count);
uint64_t tcp_ring_read(tcp_peer *peer, const struct iovec *parts, size_t count);
/* Has the peer wake this rank. Returns 0 if it can go on already. */
int tcp_ring_may_sleep(const tcp_peer *peer, int reads, int writes);
/* The line of the peer woke this rank, or has ended. */
void tcp_ring_wake(tcp_peer *peer);

/* ---- where ranks are ------------------------------------------------------
 */

/* Returns 0 if there is no memory. */
int tcp_layout_make(tcp_layout *layout, const tcp_comm *comm,
                    const uint32_t *ranks, uint32_t count);
/* Bytes of a partial sum for each byte of an element: fp32 of bf16 are 2. */
uint32_t tcp_widens(const tcp_call *call);
/* 1 if the elements of member `index` reach the member `owner`, which adds
 * them, in the sum over its block. */
int tcp_is_partial(const xray_comm_group *group, const tcp_call *call,
                   uint32_t owner, uint32_t index);
/* The member that sends them: itself, or the one that adds for its block. */
uint32_t tcp_source_of(const xray_comm_group *group, const tcp_call *call,
                       uint32_t owner, uint32_t index);
/* Number of parts that come to a member along the ring. */
uint32_t tcp_ring_parts(const tcp_layout *layout, uint32_t count,
                        uint32_t index);

/* ---- groups -------------------------------------------------------------- */

xray_status tcp_group(void *self, const uint32_t *ranks, uint32_t count,
                      xray_comm_group **out);
void tcp_group_free(xray_comm_group *group);
/* The channel of messages to another member, or from it. */
xray_status tcp_message_channel(xray_comm_group *group, const char *where,
                                uint32_t peer, int sends, tcp_channel **out);
/* The channel with a key, or NULL. */
tcp_channel *tcp_find_channel(const tcp_comm *comm, uint64_t key);

/* ---- the line of calls --------------------------------------------------- */

/* Takes memory from now on for the header of a frame. Returns 0 if there is
 * none. */
int tcp_line_put(tcp_peer *peer, const tcp_frame *frame);
/* 1 if everything that was put has been sent. */
int tcp_line_is_idle(const tcp_peer *peer);
/* Sends what the line takes without waiting. */
void tcp_line_send(tcp_peer *peer);
/* Receives without waiting: the next frame (peer->parked) or its payload.
 * Returns 1 if anything came. A line that has ended sets the peer's fate. */
int tcp_line_receive(tcp_peer *peer);
/* Has the payload of the parked frame received to `to`; NULL drops it. */
void tcp_line_take(tcp_peer *peer, char *to, tcp_run_of_bytes *run);
/* Forgets the buffers of a call that failed: what was begun is sent as zeros,
 * and what comes is dropped. */
void tcp_line_abandon(tcp_peer *peer);
void tcp_run_advance(tcp_run_of_bytes *run, uint64_t bytes);
/* The bytes that the next frame carries. */
tcp_segment tcp_run_next(const tcp_run_of_bytes *run);
tcp_frame tcp_frame_of(const tcp_channel *channel, const tcp_call *call,
                       uint32_t kind);
/* Reads the next frame of a peer, taking in what needs no call of this rank:
 * offers, farewells, and what remains of broken channels. Returns 1 if a frame
 * is parked that the call has to look at. */
int tcp_next_frame(tcp_comm *comm, tcp_peer *peer);
tcp_offer_seen *tcp_find_offer(tcp_peer *peer, uint64_t channel, uint32_t call);

/* ---- the course of a call ------------------------------------------------ */

/* Makes a call on memory of the host. */
xray_status tcp_run_call(xray_comm_group *group, const tcp_call *call);
xray_status tcp_stage_call(xray_comm_group *group, xray_stream *stream,
                           const tcp_call *call);
/* Makes a send, a recv or an exchange, on memory of the host. The indices and
 * buffers are those of `x`. */
xray_status tcp_messages(xray_comm_group *group, const tcp_call *call,
                         const xray_comm_exchange *x);
/* The same on memory of the device. */
xray_status tcp_stage_messages(xray_comm_group *group, xray_stream *stream,
                               const tcp_call *call,
                               const xray_comm_exchange *x);

/* A wait for other ranks, from the last progress on. */
typedef struct tcp_wait {
    tcp_comm *comm;
    tcp_channel *channels[2]; /* the second one may be NULL */
    uint64_t since;           /* of the last progress */
    uint64_t looked;          /* when the host was last asked */
    uint32_t count;           /* of fds */
    uint32_t ready;           /* 1: a line can go on already */
    struct pollfd fds[TCP_MOST_RANKS + 1];
    tcp_peer *peers[TCP_MOST_RANKS]; /* whose line each one is */
} tcp_wait;

/* Returns a cause (TCP_*) for which the wait cannot go on, and the rank that
 * found it, or 0. It asks the host only from time to time. */
uint32_t tcp_find_cause(tcp_wait *wait, uint32_t *out_origin);
/* Counts progress: the timeout begins anew. */
void tcp_wait_went_on(tcp_wait *wait);
/* Adds a line to those that tcp_wait_sleep waits for. */
void tcp_wait_for(tcp_wait *wait, tcp_peer *peer, int reads);
/* Sleeps until a line can go on, there is news, or a moment has passed. */
void tcp_wait_sleep(tcp_wait *wait);
/* The cause that the fate of a peer is for a call that needs it, or 0. */
uint32_t tcp_fate_of(tcp_peer *peer);
/* Fills what a call moves between this rank and each other one. */
void tcp_plan_call(xray_comm_group *group, const tcp_call *call);
/* Copies the next piece. Returns 0 if there is none. */
int tcp_copy_piece(tcp_copy *copy);
/* The part, or slice, of which a member holds the sum, in this rank's memory.
 */
tcp_segment tcp_share_of(const xray_comm_group *group, const tcp_call *call,
                         uint32_t index);
typedef struct tcp_sums {
    xray_comm_group *group;
    const tcp_call *call;
    const char *own; /* this rank's own elements */
    char *to;
    uint64_t bytes; /* of the sum */
    uint64_t done;
    uint32_t active;        /* 1: the call adds */
    uint32_t holds;         /* 1: `to` is still being sent until all has gone */
    uint32_t joins;         /* 1: some sources are sums over blocks */
    tcp_run_of_bytes parts; /* what this rank adds of its block for others */
} tcp_sums;

/* Begins the sums of a call, once it is planned. */
void tcp_sums_begin(tcp_sums *s, xray_comm_group *group, const tcp_call *call);
/* Adds the pieces that all ranks have sent. Returns 1 if there were any. */
int tcp_sums_add(tcp_sums *s);
/* Where the next bytes of a rank go, or NULL while its window is full. */
char *tcp_sums_slot(const tcp_sums *s, uint32_t index, uint32_t lane);
/* Bytes of the sum over this rank's block that its owner may be sent. */
uint64_t tcp_parts_ready(const tcp_sums *s, uint32_t owner);
/* 1 if a call of this size goes from each rank to each one at once. */
int tcp_is_small(const xray_comm_group *group, const tcp_call *call);

/* ---- failures ------------------------------------------------------------ */

/* Breaks the channel, tells its ranks, and reports. */
xray_status tcp_break(tcp_channel *channel, const tcp_call *call,
                      uint32_t cause, uint32_t origin);
/* A frame of a peer begins another call than this rank's: the peer's call is
 * broken as well, since this rank will not come to it. Returns
 * -TCP_DIFFERENT. */
int tcp_differs(tcp_comm *comm, const tcp_peer *peer, const tcp_frame *frame);
/* Breaks a channel without a report of its own: the other half of a failed
 * exchange. */
void tcp_break_quietly(tcp_channel *channel, uint32_t cause, uint32_t origin);
/* 1 if the channel is broken for call `number`; `out`, which may be NULL, then
 * says by whom and why. */
int tcp_is_broken(tcp_comm *comm, uint64_t channel, uint64_t number,
                  tcp_broken *out);
/* Notes that a channel is broken unless it is. The caller has the lock. */
void tcp_note_broken(tcp_comm *comm, const tcp_broken *broken);
/* Returns the error of a channel that is broken. */
xray_status tcp_report_again(tcp_channel *channel);
xray_status tcp_report(tcp_channel *channel, const tcp_call *call,
                       uint32_t cause, uint32_t origin);
void tcp_say_call(xr_sentence *s, const tcp_activity *a);

/* ---- what ranks tell each other ------------------------------------------ */

void tcp_trace_begin(const tcp_channel *channel, const tcp_call *call);
void tcp_trace_state(tcp_comm *comm, uint32_t state);
/* Sends a note to a rank. The caller has the lock. */
void tcp_send_note(tcp_comm *comm, uint32_t rank, const tcp_note *note);
void tcp_send_state(tcp_comm *comm, uint32_t rank, uint32_t kind);
void tcp_read_notes(tcp_comm *comm, uint32_t rank);
/* Asks ranks what they do, and waits for the answers. */
void tcp_ask_ranks(tcp_comm *comm, const uint32_t *ranks, uint32_t count);
void tcp_wake(const tcp_comm *comm);
int tcp_start_watcher(tcp_comm *comm);
void tcp_stop_watcher(tcp_comm *comm);

/* ---- the interface --------------------------------------------------------
 */

xray_status tcp_all_reduce(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t count, uint32_t dtype);
xray_status tcp_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                               void *buf, uint64_t count, uint32_t dtype);
xray_status tcp_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                               const void *in, void *out, uint64_t count,
                               uint32_t dtype);
xray_status tcp_all_gather(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype);
xray_status tcp_all_to_all(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype);
xray_status tcp_exchange(xray_comm_group *group, xray_stream *stream,
                         const xray_comm_exchange *messages);
xray_status tcp_broadcast(xray_comm_group *group, xray_stream *stream,
                          void *buf, uint64_t bytes, uint32_t root);
xray_status tcp_send(xray_comm_group *group, xray_stream *stream,
                     const void *buf, uint64_t bytes, uint32_t peer);
xray_status tcp_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                     uint64_t bytes, uint32_t peer);

#endif
