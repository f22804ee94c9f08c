/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance, its groups, and what the files here share.
 *
 * All collectives of an instance run on one stream of its own, so that two
 * groups never run at once in different orders. A call is some NCCL operations
 * between two events: `ready`, up to which the caller's stream has come, and
 * `done`, for which the caller's stream waits. The calls that are under way are
 * a ring; a thread watches the first of them, and whoever waits looks too.
 */
#ifndef NCCL_INSTANCE_H
#define NCCL_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>

#include <xray/comm.h>
#include <xray/cuda.h>

#include "core/base/err.h"
#include "plugins/comm-nccl/nccl_api.h"

#define NCCL_RING 256u  /* calls under way; one more waits for room */
#define NCCL_TEXT 1000u /* bytes of a sentence */
#define NCCL_MOST_RANKS 4096u

/* Options. */
#define NCCL_SUMS_ORDERED 0
#define NCCL_SUMS_NCCL 1
#define NCCL_BF16_FP32 0
#define NCCL_BF16_NCCL 1

typedef struct nccl_config {
    int64_t sums;        /* NCCL_SUMS_* */
    int64_t reduce_bf16; /* NCCL_BF16_* */
    uint64_t scratch;    /* bytes */
    uint32_t wait;       /* 1: a call returns when it is done */
    uint32_t reserved;
    const char *library;
    const char *driver;
} nccl_config;

/* Why a group is unfit; from bit 8 on, 1 + the rank that found it (0: this
 * one). In traces[].state from bit 8 on. */
#define NCCL_LATE 1u
#define NCCL_DEAD 2u
#define NCCL_ABORTED 3u
#define NCCL_FAILED 4u
#define NCCL_LEFT 5u

/* States of a trace. */
#define NCCL_OUTSIDE 0u
#define NCCL_WAITS 1u
#define NCCL_GAVE_UP 3u
#define NCCL_ENDED 4u

/* What ranks tell each other when they meet. */
typedef struct nccl_offer {
    uint64_t host; /* which machine and process space */
    uint32_t pid;
    int32_t status; /* XRAY_OK, or why this rank cannot come */
    uint32_t size;
    int32_t version;
    char bus[32]; /* of its device */
    nccl_id id;   /* rank 0's: of the group of all */
} nccl_offer;

typedef struct nccl_peer {
    uint32_t pid;
    uint32_t near; /* 1: another process of this host */
    int pidfd;     /* -1: none */
} nccl_peer;

/* A call as its rank makes it. */
typedef struct nccl_call {
    uint32_t call; /* XRAY_COMM_* */
    uint32_t dtype;
    uint32_t other; /* index in the group: a root, a message's other side */
    uint32_t wait;  /* 1: is done when it returns; 2: and is not counted */
    uint64_t count;
    uint64_t bytes; /* of count elements */
    const void *in;
    void *out;
} nccl_call;

typedef struct nccl_slot {
    xray_comm_group *group;
    uint32_t call;
    uint32_t dtype;
    uint32_t other; /* rank of the world */
    uint32_t reserved;
    uint64_t number; /* of this rank's calls, from 1 */
    uint64_t bytes;
    uint64_t since; /* when this rank was ready; 0: not yet */
    void *ready;    /* events */
    void *done;
} nccl_slot;

typedef struct nccl_comm {
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    const xray_cuda_ops *cuda;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout; /* ns; 0: for ever */
    xray_comm_trace *traces;
    nccl_config config;
    nccl_api api;
    int gpu;             /* CUdevice */
    void *context;       /* its primary one; NULL: not held */
    xray_stream *stream; /* the instance's own */
    void *native;        /* the same as CUDA has it */
    nccl_peer *peers;    /* [size] */
    xray_comm_group *groups;
    xray_comm_group *base; /* of all; the first one that is asked for */
    uint32_t base_given;
    uint32_t group_count; /* of which this rank was the first member */
    char *scratch;        /* [dev] */
    char *small;          /* [dev] NCCL_SMALL bytes, for ids and barriers */
    uint64_t received;
    _Atomic uint32_t aborted;
    /* Under the lock from here on. */
    pthread_mutex_t lock;
    pthread_cond_t work; /* something to watch, or the end */
    pthread_t watcher;
    uint32_t watching;
    uint32_t ending;
    uint64_t calls; /* begun */
    uint64_t head;  /* of the ring: calls before it are done */
    uint64_t tail;
    uint64_t looked;         /* when the others were looked at last */
    uint64_t left_since;     /* when a rank was first seen to have ended */
    xray_comm_group *untold; /* broke since the last call */
    const nccl_slot *making; /* being enqueued */
    nccl_slot ring[NCCL_RING];
} nccl_comm;

#define NCCL_SMALL 1024u

struct xray_comm_group {
    nccl_comm *comm;
    xray_comm_group *next;
    uint32_t *ranks;
    uint32_t count;
    uint32_t self;
    uint64_t number;
    void *nccl;      /* NULL: of one rank, or unfit */
    uint32_t broken; /* NCCL_*; 0: fit */
    uint32_t reserved;
    char where[160];
    char text[NCCL_TEXT];
};

/* What the CUDA driver says of an error. */
const char *nccl_cuda_text(const nccl_comm *comm, int error);
uint64_t nccl_clock(void);
void nccl_pause(uint32_t us);

/* ---- meeting ------------------------------------------------------------ */

/* This rank's address; `ready` says whether it can take part. */
void nccl_offer_make(const nccl_comm *comm, xray_status ready,
                     nccl_offer *offer);
/* The first rank that cannot come, or two that do not go together. */
xray_status nccl_offers_check(const nccl_comm *comm, const nccl_offer *all);
void nccl_peers_open(nccl_comm *comm, const nccl_offer *all);
int nccl_is_dead(const nccl_comm *comm, uint32_t rank);

xray_comm_group *nccl_group_make(nccl_comm *comm, const uint32_t *ranks,
                                 uint32_t count);
void nccl_group_free(xray_comm_group *group);
/* Makes the group's communicator; waits for its ranks. */
xray_status nccl_connect(xray_comm_group *group, const nccl_id *id);
xray_status nccl_group(void *self, const uint32_t *ranks, uint32_t count,
                       xray_comm_group **out);

/* ---- a call's course ---------------------------------------------------- */

/* Makes a call: its operations go to the instance's stream, after what the
 * caller's stream holds, and that waits for them. */
xray_status nccl_run(xray_comm_group *group, xray_stream *stream,
                     const nccl_call *call);
/* The operations of a sum in the order of the ranks. */
xray_status nccl_ordered(xray_comm_group *group, const nccl_call *call);
/* Those of a bf16 sum that NCCL makes in fp32. */
xray_status nccl_widened(xray_comm_group *group, const nccl_call *call);
/* Waits until an NCCL function that returned `result` has done its part. Holds
 * the lock. */
xray_status nccl_settle(xray_comm_group *group, const char *what, int result);
/* Elements of fp32 that each of `ranks` parts of the scratch memory has. */
uint64_t nccl_piece(const nccl_comm *comm, uint32_t ranks);

/* ---- watching ----------------------------------------------------------- */

/* Looks at the calls under way; breaks the group of one that fails. Holds the
 * lock. */
void nccl_look(nccl_comm *comm);
/* Declares a group unfit: ends its operations, writes its text, tells the
 * others. `detail`: what NCCL or CUDA says, or NULL. Holds the lock. */
void nccl_break(xray_comm_group *group, uint32_t cause, const char *detail);
/* What is wrong with the ranks of a group that this one waits in since
 * `since`: NCCL_* or 0. Holds the lock, as the next one. */
uint32_t nccl_wrong(nccl_comm *comm, const xray_comm_group *group,
                    uint64_t since);
/* The same of what is seen without a system call, before a call begins. */
uint32_t nccl_gone(const xray_comm_group *group);
/* The error of a group that is unfit. Holds the lock. */
xray_status nccl_unfit(xray_comm_group *group);
int nccl_watch(nccl_comm *comm); /* 1: the watcher runs */
void nccl_unwatch(nccl_comm *comm);

/* ---- what is said ------------------------------------------------------- */

void nccl_trace_reset(const nccl_comm *comm);
void nccl_trace_begin(const nccl_comm *comm, const nccl_slot *slot);
void nccl_trace_state(const nccl_comm *comm, uint32_t state);
void nccl_trace_broken(const xray_comm_group *group, uint32_t cause);
/* Fills the group's `where` and `text`. */
void nccl_report(xray_comm_group *group, const nccl_slot *slot, uint32_t cause,
                 const char *detail);

xray_status nccl_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype);
xray_status nccl_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype);
xray_status nccl_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype);
xray_status nccl_broadcast(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t bytes, uint32_t root);
xray_status nccl_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer);
xray_status nccl_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer);
xray_status nccl_barrier(xray_comm_group *group, xray_stream *stream);

#endif
