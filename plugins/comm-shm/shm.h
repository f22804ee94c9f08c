/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance, its groups and channels, and what the files here share.
 */
#ifndef SHM_SHM_H
#define SHM_SHM_H

#include <stdatomic.h>

#include <xray/comm.h>

#include "core/base/err.h"
#include "plugins/comm-shm/control.h"

#define SHM_CACHE 64u /* attached blocks a peer, by hash of the handle */

typedef struct shm_attached {
    uint8_t handle[XRAY_HANDLE_BYTES];
    uint64_t bytes;
    void *ptr; /* NULL: free */
} shm_attached;

typedef struct shm_peer {
    uint32_t pid;
    int pidfd; /* -1: this process, or the system has none */
    shm_attached cache[SHM_CACHE];
    char *stage; /* its staging memory, mapped on first use */
} shm_peer;

typedef struct shm_comm {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout; /* ns; 0: for ever */
    uint64_t spin;    /* ns */
    xray_comm_trace *traces;
    shm_control control;
    shm_peer *peers; /* [size] */
    struct xray_comm_group *groups;
    uint64_t received;
    _Atomic uint32_t aborted;
    /* Of a device whose memory the host cannot read (stage.c). */
    char *stage; /* NULL: buffers are worked on where they are */
    int stage_fd;
} shm_comm;

/* Ranks that make calls together: a group, or two of it that exchange messages.
 */
typedef struct shm_channel {
    shm_comm *comm;
    uint32_t number; /* in the control memory */
    uint32_t group;  /* number of the group's own channel */
    uint32_t count;
    uint32_t self;         /* index of this rank */
    const uint32_t *ranks; /* [count] of the world, ascending */
    uint64_t calls;        /* completed */
    const void **in;       /* [count] of the call in progress */
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
    shm_channel **pairs;  /* [count] by the other's index, made on first use */
    uint32_t *pair_ranks; /* [count][2] */
};

/* A call as its rank makes it. */
typedef struct shm_call {
    uint32_t call; /* XRAY_COMM_* */
    uint32_t dtype;
    uint32_t root; /* index in the channel of a broadcast's root */
    uint32_t
        other; /* rank of the world: that root, or a message's other side */
    uint64_t count;
    uint64_t bytes; /* of count elements */
    uint64_t whole; /* bytes of the call that this is a piece of */
    const void *in; /* NULL: none */
    void *out;      /* NULL: none */
    uint64_t in_bytes;
    uint64_t out_bytes;
} shm_call;

/* ---- groups ------------------------------------------------------------- */

xray_status shm_group(void *self, const uint32_t *ranks, uint32_t count,
                      xray_comm_group **out);
void shm_group_free(xray_comm_group *group);
/* The channel to another member. */
xray_status shm_pair_channel(xray_comm_group *group, uint32_t peer,
                             shm_channel **out);

/* ---- a call's course ---------------------------------------------------- */

/* Makes a call: in one, or in pieces through staging memory. */
xray_status shm_make(shm_channel *channel, xray_stream *stream,
                     const shm_call *call);
/* From arrival to the end of the work of all. */
xray_status shm_run(shm_channel *channel, const shm_call *call);

/* Waits until `word` is `want`. The text of an error names every rank. */
xray_status shm_wait(shm_channel *channel, const shm_call *call, shm_step *step,
                     _Atomic uint32_t *word, uint32_t want);
void shm_wake(shm_step *step, _Atomic uint32_t *word);
/* Declares the channel unfit, wakes its ranks, and writes the error. */
xray_status shm_break(shm_channel *channel, const shm_call *call,
                      uint32_t cause);
/* The error of a channel that is unfit already. */
xray_status shm_unfit(shm_channel *channel, const shm_call *call);
uint64_t shm_clock(void);

/* ---- who is where ------------------------------------------------------- */

int shm_is_dead(const shm_comm *comm, uint32_t rank);
/* A rank of the channel waits for this one in another call. */
int shm_is_elsewhere(const shm_channel *channel, uint32_t rank,
                     uint32_t *out_channel);
/* What is wrong, and per rank what it does. */
xray_status shm_report(const shm_channel *channel, const shm_call *call,
                       uint32_t broken);
/* In the control memory and in the core's trace. */
void shm_trace_begin(const shm_channel *channel, const shm_call *call);
void shm_trace_state(const shm_comm *comm, uint32_t state);
void shm_trace_end(const shm_comm *comm, uint32_t state);

/* ---- buffers and work --------------------------------------------------- */

xray_status shm_share(const shm_comm *comm, const shm_call *call,
                      shm_desc *desc);
/* Fills the channel's `in`, `out` and `in_place` from what all came with. */
xray_status shm_attach(shm_channel *channel, const shm_call *call,
                       shm_step *step);
void shm_detach_all(shm_comm *comm);
int shm_stage_make(shm_comm *comm); /* 1 on success */
void shm_stage_free(shm_comm *comm);
void shm_stage_share(const shm_comm *comm, const void *ptr, uint8_t *handle);
xray_status shm_stage_attach(shm_comm *comm, uint32_t rank,
                             const uint8_t *handle, void **out);

/* Takes pieces until there are none. Returns 1 if the step has any. */
int shm_work(shm_channel *channel, const shm_call *call, shm_step *step);

/* Elements first .. first + n - 1: dst[*][i] = sum over src in order. */
typedef struct shm_sum {
    void *const *dst;
    const void *const *src;
    uint64_t src_at; /* element of each source where index 0 lies */
    uint64_t dst_at;
    uint32_t dst_count;
    uint32_t src_count;
    uint32_t dtype;
    uint32_t stream; /* 1: results are not read soon: past the caches */
} shm_sum;

void shm_sum_run(const shm_sum *s, uint64_t first, uint64_t n);
/* The same bytes to every destination that is there, but one. */
typedef struct shm_copy {
    void *const *dst; /* [count], NULL: not there */
    uint32_t count;
    uint32_t except;
    uint64_t at; /* byte of each destination */
    const char *src;
    uint64_t bytes;
    uint32_t stream;
} shm_copy;

void shm_copy_run(const shm_copy *c);
/* What `shm_sum_run` and `shm_copy_run` wrote is visible to others after. */
void shm_settle(void);

xray_status shm_all_reduce(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t count, uint32_t dtype);
xray_status shm_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                               const void *in, void *out, uint64_t count,
                               uint32_t dtype);
xray_status shm_all_gather(xray_comm_group *group, xray_stream *stream,
                           const void *in, void *out, uint64_t count,
                           uint32_t dtype);
xray_status shm_broadcast(xray_comm_group *group, xray_stream *stream,
                          void *buf, uint64_t bytes, uint32_t root);
xray_status shm_send(xray_comm_group *group, xray_stream *stream,
                     const void *buf, uint64_t bytes, uint32_t peer);
xray_status shm_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                     uint64_t bytes, uint32_t peer);
xray_status shm_barrier(xray_comm_group *group, xray_stream *stream);

#endif
