/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance, its groups and its channels, and the functions that the files
 * of comm-shm share.
 */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include <stdatomic.h>

#include <xray/comm.h>

#include "core/base/services.h"
#include "core/base/sums.h"
#include "plugins/comm-shm/control.h"

/* Bytes of staging memory for `in`, and as many for `out`. */
#define SHM_STAGE 0x100000u
#define SHM_CACHE 64u /* attached buffers per peer, by hash of the handle */

typedef struct shm_attached {
    uint8_t handle[XRAY_HANDLE_BYTES];
    uint64_t bytes;
    void *ptr; /* NULL: free */
} shm_attached;

typedef struct shm_peer {
    uint32_t pid;
    int pidfd; /* -1: the peer is in this process, or the system has no pidfd */
    shm_attached cache[SHM_CACHE];
    char *stage; /* the peer's staging memory, mapped on first use */
} shm_peer;

typedef struct shm_comm {
    const xray_host *host;
    const xray_call_service *calls; /* or NULL */
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout;       /* ns; 0: no limit */
    uint64_t spin;          /* ns */
    xray_comm_trace *trace; /* of this rank, or NULL */
    shm_control control;
    shm_peer *peers; /* [size] */
    struct xray_comm_group *groups;
    _Atomic uint32_t aborted;
    /* For a device whose memory the host cannot read (stage.c). */
    char *stage; /* NULL: calls work on the buffers themselves */
    int stage_fd;
} shm_comm;

/* Ranks that make calls together: a group, or two of its members, one of which
 * sends messages to the other. */
typedef struct shm_channel {
    shm_comm *comm;
    uint32_t number; /* index in the control memory */
    uint32_t group;  /* number of its group's own channel */
    uint32_t count;
    uint32_t self;         /* index of this rank in `ranks` */
    const uint32_t *ranks; /* [count] ranks of the world, ascending */
    uint64_t calls;        /* number of completed calls */
    uint32_t arrived;      /* 1: this rank has arrived at the next one */
    const void **in;       /* [count] buffers of the current call */
    void **out;            /* [count] */
    uint32_t *in_place;    /* [count] */
} shm_channel;

struct xray_comm_group {
    shm_comm *comm;
    xray_comm_group *next;
    uint32_t *ranks;
    uint32_t count;
    uint32_t self;
    shm_channel *all;
    shm_channel **messages; /* [count][2] by the peer's index, from it and to
                             * it; created on first use */
    uint32_t *pair_ranks;   /* [count][2] */
};

/* A call as one rank makes it. */
typedef struct shm_call {
    uint32_t call; /* XRAY_COMM_* */
    uint32_t dtype;
    uint32_t root;  /* index of a broadcast's root in the channel */
    uint32_t other; /* rank of that root or of a message's peer; where an
                     * exchange sends call_bytes */
    uint32_t from;  /* rank from which an exchange receives from_bytes */
    uint64_t from_bytes;
    const struct shm_call *whole; /* the exchange of which this message is one
                                   * half; NULL: none */
    uint64_t count;
    uint64_t bytes;      /* size of count elements */
    uint64_t call_bytes; /* of the call that this is a piece of */
    const void *in;      /* NULL: none */
    void *out;           /* NULL: none */
} shm_call;

/* Numbers of parts of a call's `in` and `out`, each of `bytes`, in a group of
 * `count` ranks; 0: the call has no such buffer. */
uint64_t shm_parts_in(uint32_t call, uint32_t count);
uint64_t shm_parts_out(uint32_t call, uint32_t count);

/* ---- groups ------------------------------------------------------------- */

xray_status shm_group(void *self, const uint32_t *ranks, uint32_t count,
                      xray_comm_group **out);
void shm_group_free(xray_comm_group *group);
/* Returns the channel of messages to another member, or from it. `where` names
 * the call in errors. */
xray_status shm_message_channel(xray_comm_group *group, const char *where,
                                uint32_t peer, int sends, shm_channel **out);

/* ---- the course of a call ---------------------------------------------- */

/* Carries out a call: at once, or in pieces through staging memory. */
xray_status shm_make_call(shm_channel *channel, xray_stream *stream,
                          const shm_call *call);
/* Runs one round, from this rank's arrival until all work is done. */
xray_status shm_run_round(shm_channel *channel, const shm_call *call);
/* The same in steps, for a rank that takes part in two rounds at once: arrives
 * at the next round; works once it is open (XRAY_AGAIN: it is not closed yet);
 * and counts it once it is closed. */
shm_round *shm_next_round(const shm_channel *channel);
xray_status shm_begin_round(shm_channel *channel, const shm_call *call);
xray_status shm_work_round(shm_channel *channel, const shm_call *call);
void shm_end_round(shm_channel *channel);

/* A wait until a word of the next round equals the number of its call. */
typedef struct shm_wait {
    shm_channel *channel;
    const shm_call *call;
    _Atomic uint32_t *word; /* `open` or `closed` */
    uint64_t start;         /* 0: it has not begun */
    uint64_t waited;        /* ns, when the other ranks were last checked */
} shm_wait;

/* Waits, at most `most` nanoseconds (0: without end): XRAY_AGAIN when they have
 * passed. The text of an error names what every rank does. */
xray_status shm_wait_word(shm_wait *wait, uint64_t most);
int shm_wait_is_over(const shm_wait *wait);
void shm_wake_ranks(shm_round *round, _Atomic uint32_t *word);
/* Marks the channel as broken, wakes its ranks, and reports the error. */
xray_status shm_break_channel(shm_channel *channel, const shm_call *call,
                              uint32_t cause);
/* Returns the word of a channel that this rank breaks. */
static inline uint32_t shm_broken_here(const shm_comm *comm, uint32_t cause)
{
    return cause + 256 * comm->rank;
}
/* Only marks the channel, for the other half of a failed exchange. */
void shm_mark_broken(const shm_comm *comm, uint32_t channel, uint32_t broken);
/* Reports the error of a channel that is already broken. */
xray_status shm_report_broken(shm_channel *channel, const shm_call *call);
uint64_t shm_clock(void);

/* ---- the state of other ranks ------------------------------------------- */

int shm_is_dead(const shm_comm *comm, uint32_t rank);
/* Returns 1 if a rank of the channel waits for this rank in another call, or
 * has during this wait. */
int shm_is_elsewhere(const shm_wait *wait, uint32_t rank,
                     uint32_t *out_channel);
/* Reports an error: its cause, and what every rank does at the moment. */
xray_status shm_report_ranks(const shm_channel *channel, const shm_call *call,
                             uint32_t broken);
/* Write the state of this rank to the control memory and to the core's trace.
 * An exchange is in two channels at once; otherwise `second` is NULL. */
void shm_trace_begin(const shm_channel *channel, const shm_channel *second,
                     const shm_call *call);
/* Tells the others at which call of the channel this rank is; `half` is 1 for
 * the second channel of an exchange. */
void shm_trace_call(const shm_channel *channel, uint32_t half);
void shm_trace_state(const shm_comm *comm, uint32_t state);
void shm_trace_end(const shm_comm *comm, uint32_t state);

/* ---- buffers and work --------------------------------------------------- */

/* Fills the channel's `in`, `out` and `in_place` from the calls of all
 * members. */
xray_status shm_attach_buffers(shm_channel *channel, const shm_call *call,
                               shm_round *round);
void shm_detach_all(shm_comm *comm);
int shm_stage_create(shm_comm *comm); /* 1 on success */
void shm_stage_free(shm_comm *comm);
void shm_stage_share(const shm_comm *comm, const void *ptr, uint8_t *handle);
xray_status shm_stage_attach(shm_comm *comm, uint32_t rank,
                             const uint8_t *handle, void **out);

/* Works on pieces until there are none left. Returns 1 if the round has any. */
int shm_do_pieces(shm_channel *channel, const shm_call *call, shm_round *round);

/* Copies the same bytes to every destination that is not NULL, except for
 * one. */
typedef struct shm_copy {
    void *const *dst; /* [count], NULL: skipped */
    uint32_t count;
    uint32_t except;
    uint64_t at; /* byte offset in each destination */
    const char *src;
    uint64_t bytes;
    uint32_t stream;
} shm_copy;

void shm_copy_run(const shm_copy *c);
/* Makes everything that xr_sum_run and shm_copy_run wrote visible to other
 * ranks. */
void shm_flush_stores(void);

xray_status shm_all_reduce(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t count, uint32_t dtype);
xray_status shm_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                               void *buf, uint64_t count, uint32_t dtype);
xray_status shm_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                               const void *in, void *out, uint64_t count,
                               uint32_t dtype);
xray_status shm_all_gather(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype);
xray_status shm_all_to_all(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype);
xray_status shm_exchange(xray_comm_group *group, xray_stream *stream,
                         const xray_comm_exchange *messages);
xray_status shm_broadcast(xray_comm_group *group, xray_stream *stream,
                          void *buf, uint64_t bytes, uint32_t root);
xray_status shm_send(xray_comm_group *group, xray_stream *stream,
                     const void *buf, uint64_t bytes, uint32_t peer);
xray_status shm_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                     uint64_t bytes, uint32_t peer);

#endif
