/* SPDX-License-Identifier: Apache-2.0
 *
 * The instance, its groups, and the functions that the files of comm-nccl
 * share.
 *
 * All collectives of an instance run on one stream of its own, so that two
 * groups never run at once in different orders. A call is a few NCCL operations
 * between two events: the operations wait for `ready`, which marks what the
 * caller's stream held, and the caller's stream waits for `done`. The calls in
 * progress form a ring; a thread watches the first of them, and whoever waits
 * for a call checks it too.
 *
 * The calling thread holds the lock only while it changes the ring. While it is
 * in NCCL, the driver or the device, any of which may be stuck, it holds
 * nothing that the watcher needs. Who uses a communicator holds the gate of its
 * group instead: NCCL allows one thread at a time, and nobody once it is
 * aborted.
 */
#ifndef NCCL_INSTANCE_H
#define NCCL_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>

#include <xray/comm.h>
#include <xray/cuda.h>

#include "core/base/services.h"
#include "plugins/comm-nccl/nccl_api.h"

#define NCCL_RING \
    256u /* calls in progress; another one waits for a free slot */
#define NCCL_TEXT 1000u /* size of an error's text in bytes */
#define NCCL_MAX_RANKS 4096u

/* Options. */
#define NCCL_SUMS_ORDERED 0
#define NCCL_SUMS_NCCL 1
#define NCCL_BF16_FP32 0
#define NCCL_BF16_NCCL 1

typedef struct nccl_config {
    int64_t sums;        /* NCCL_SUMS_*: how sums are formed */
    int64_t reduce_bf16; /* NCCL_BF16_* */
    uint64_t scratch;    /* in bytes */
    uint32_t wait;       /* 1: a call returns only when it is complete */
    uint32_t reserved;
    const char *library;
    const char *driver;
} nccl_config;

/* Why a group is broken. Bits 8 and up hold 1 + the rank that found it (0: this
 * one), in traces[].state as well. */
#define NCCL_LATE 1u
#define NCCL_DEAD 2u
#define NCCL_ABORTED 3u
#define NCCL_FAILED 4u
#define NCCL_LEFT 5u
#define NCCL_CANCELED 6u

/* States of a trace. */
#define NCCL_OUTSIDE 0u
#define NCCL_WAITS 1u
#define NCCL_GAVE_UP 3u
#define NCCL_ENDED 4u

/* The record that ranks send each other when they connect. */
typedef struct nccl_offer {
    uint64_t host; /* identifies the machine and its process namespace */
    uint32_t pid;
    int32_t status; /* XRAY_OK, or why this rank cannot take part */
    uint32_t size;
    int32_t version;
    char bus[32]; /* PCI bus id of its device */
    nccl_id id;   /* id of the group of all ranks, from rank 0 */
} nccl_offer;

typedef struct nccl_peer {
    uint32_t pid;
    uint32_t near; /* 1: another process of this host */
    int pidfd;     /* -1: none */
} nccl_peer;

/* A call as one rank makes it. */
typedef struct nccl_call {
    uint32_t call; /* XRAY_COMM_* */
    uint32_t dtype;
    uint32_t other; /* index in the group of a broadcast's root or a message's
                     * peer, or where an exchange sends */
    uint32_t from;  /* index in the group of where an exchange receives */
    uint32_t wait;  /* 1: it is complete when it returns */
    uint64_t count;
    uint64_t bytes;      /* size of count elements */
    uint64_t from_bytes; /* what an exchange receives; otherwise 0 */
    const void *in;
    void *out;
} nccl_call;

/* How far a call of the ring is. */
#define NCCL_BEGUN 0u  /* neither event is recorded */
#define NCCL_MARKED 1u /* `ready` is */
#define NCCL_POSTED 2u /* both are */

typedef struct nccl_slot {
    xray_comm_group *group;
    uint32_t call;
    uint32_t dtype;
    uint32_t other; /* ranks of the world, as in nccl_call */
    uint32_t from;
    uint64_t number; /* index among this rank's calls, from 1 */
    uint64_t bytes;
    uint64_t from_bytes;
    uint64_t since; /* when this rank was ready; 0: not yet */
    void *ready;    /* CUDA events */
    void *done;
    _Atomic uint32_t stage; /* NCCL_BEGUN and so on */
    uint32_t reserved;
} nccl_slot;

typedef struct nccl_comm {
    const xray_host *host;
    const xray_call_service *stop; /* whether the host stops the call */
    const xray_device_ops *device;
    void *device_self;
    const xray_cuda_ops *cuda;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout;              /* ns; 0: no limit */
    xray_comm_trace *trace;        /* this rank's; NULL: none */
    const xray_comm_trace *traces; /* of all ranks; NULL: not known here */
    uint64_t trace_stride;
    nccl_config config;
    nccl_api api;
    int gpu;             /* CUdevice */
    void *context;       /* the device's primary context; NULL: not retained */
    xray_stream *stream; /* the instance's own */
    void *native;        /* the CUDA handle of `stream` */
    nccl_peer *peers;    /* [size] */
    xray_comm_group *groups;
    xray_comm_group *base; /* the group of all ranks; also returned for the
                            * first one requested */
    uint32_t base_taken;
    uint32_t group_count; /* number of groups whose first member is this rank */
    char *scratch;        /* [dev] */
    char *small;          /* [dev] NCCL_SMALL bytes for group ids */
    _Atomic uint32_t aborted;
    /* The members from here on are protected by the lock. */
    pthread_mutex_t lock;
    pthread_cond_t work;   /* signals that there is a call to watch or a
                            * communicator to abort, or that the watcher must
                            * end */
    pthread_cond_t closed; /* signals that a communicator was aborted */
    pthread_t watcher;
    uint32_t watching;
    uint32_t ending;
    uint32_t idle;       /* 1: the watcher looks rarely until it is signaled */
    uint32_t reserved;   /* 0 */
    uint64_t calls;      /* number of calls begun */
    uint64_t completed;  /* ring position: calls before it are complete */
    uint64_t enqueued;   /* calls before it are begun */
    uint64_t last_check; /* when the other ranks were last checked */
    xray_comm_group *unreported; /* broken, its error not reported yet */
    const nccl_slot *refused;    /* the call that is refused, if not in the
                                  * ring */
    nccl_slot ring[NCCL_RING];
} nccl_comm;

#define NCCL_SMALL 1024u

/* The gate of a group's communicator. Any other value is the time since when
 * the calling thread has been inside. */
#define NCCL_OPEN 0u
#define NCCL_ASKED 1u  /* the watcher or who waits asks it for errors */
#define NCCL_CLOSED 2u /* there is none, or nobody may use it any more */

struct xray_comm_group {
    nccl_comm *comm;
    xray_comm_group *next;
    uint32_t *ranks;
    uint32_t count;
    uint32_t self;
    uint64_t number;
    void *nccl; /* used only by who holds the gate */
    _Atomic uint64_t gate;
    _Atomic uint32_t broken; /* NCCL_* cause; 0: the group works */
    uint32_t waits; /* how often the watcher found the gate of a broken group
                     * taken */
    _Atomic uint32_t closing; /* 1: the communicator is still to be aborted */
    uint32_t reserved;
    uint64_t left_since; /* when a member was first seen to have left; under
                          * the lock */
    char where[160];
    char text[NCCL_TEXT];
};

/* Returns the CUDA driver's text for an error. */
const char *nccl_cuda_text(const nccl_comm *comm, int error);
uint64_t nccl_clock(void);
void nccl_pause(uint32_t us);
/* Waits before look `i` at something that another thread or the device does.
 * The first ones, which last about 0.1 ms, do not sleep. */
void nccl_back_off(uint32_t i);

/* ---- the use of a communicator ------------------------------------------- */

/* Takes the gate for a call into NCCL; 0: the communicator is aborted. */
int nccl_enter(xray_comm_group *group);
/* Waits until an NCCL function that returned `result` has completed on the
 * host, and gives the gate back. If it failed, the group is broken. */
xray_status nccl_finish(xray_comm_group *group, const char *what, int result);
/* Asks a communicator for its errors, unless the calling thread is inside; 0:
 * it failed, and `detail` says why. The caller holds the lock. */
int nccl_ask(xray_comm_group *group, char *detail, size_t size);
/* Shuts the gate of a broken group, whose communicator the watcher then aborts.
 * If the calling thread is inside, this happens when it leaves, or with `force`
 * at once. The caller holds the lock. */
void nccl_close(xray_comm_group *group, int force);
/* Aborts a communicator whose gate is shut, if that has not been done. The
 * caller does not hold the lock. */
void nccl_abort_closed(xray_comm_group *group);

/* ---- connecting ---------------------------------------------------------- */

/* Fills in this rank's address; `ready` is XRAY_OK if it can take part. */
void nccl_offer_fill(const nccl_comm *comm, xray_status ready,
                     nccl_offer *offer);
/* Reports the first rank that cannot take part, or two that do not fit
 * together. */
xray_status nccl_offers_check(const nccl_comm *comm, const nccl_offer *all);
void nccl_peers_open(nccl_comm *comm, const nccl_offer *all);
int nccl_is_dead(const nccl_comm *comm, uint32_t rank);

xray_comm_group *nccl_group_create(nccl_comm *comm, const uint32_t *ranks,
                                   uint32_t count);
void nccl_group_free(xray_comm_group *group);
/* Creates the group's communicator, which waits for all its ranks. */
xray_status nccl_connect(xray_comm_group *group, const nccl_id *id);
xray_status nccl_group(void *self, const uint32_t *ranks, uint32_t count,
                       xray_comm_group **out);

/* ---- the course of a call ------------------------------------------------ */

/* Makes a call: its operations go to the instance's stream and wait for the
 * caller's stream, which then waits for them. */
xray_status nccl_run_call(xray_comm_group *group, xray_stream *stream,
                          const nccl_call *call);
/* Enqueues the operations of a sum in the order of <xray/comm.h>. */
xray_status nccl_sum_ordered(xray_comm_group *group, const nccl_call *call);
/* Enqueues the operations of a bf16 sum that NCCL forms in fp32. */
xray_status nccl_sum_widened(xray_comm_group *group, const nccl_call *call);
/* Enqueue the transfers of these calls. */
xray_status nccl_enqueue_exchange(xray_comm_group *group,
                                  const nccl_call *call);
xray_status nccl_enqueue_all_to_all(xray_comm_group *group,
                                    const nccl_call *call);
/* Size of one of the `ranks` parts of the scratch memory, in fp32 elements. */
uint64_t nccl_piece_elements(const nccl_comm *comm, uint32_t ranks);

/* Transfers that NCCL carries out together. Those of 0 bytes are left out. */
typedef struct nccl_transfers {
    xray_comm_group *group;
    int inside; /* 0: the communicator is aborted */
    int result; /* the first failure, or the last result */
} nccl_transfers;

nccl_transfers nccl_transfers_begin(xray_comm_group *group);
void nccl_transfers_send(nccl_transfers *t, const void *buf, uint64_t bytes,
                         uint32_t peer);
void nccl_transfers_recv(nccl_transfers *t, void *buf, uint64_t bytes,
                         uint32_t peer);
xray_status nccl_transfers_end(nccl_transfers *t);

/* ---- watching ------------------------------------------------------------ */

/* Checks the calls in progress, and breaks the group of one that fails. The
 * caller holds the lock. */
void nccl_check_calls(nccl_comm *comm);
/* Marks a group as broken: writes its error, tells the other ranks, and shuts
 * its gate. `detail` is the text of NCCL or CUDA, or NULL. The caller
 * holds the lock. */
void nccl_break_group(xray_comm_group *group, uint32_t cause,
                      const char *detail);
/* Returns why a group in which this rank has waited since `since` cannot go on:
 * NCCL_* or 0. The caller holds the lock. */
uint32_t nccl_find_cause(nccl_comm *comm, xray_comm_group *group,
                         uint64_t since);
/* Does the same before a call begins, as far as no system call is needed where
 * all ranks are there. The caller holds the lock. */
uint32_t nccl_find_departed(const xray_comm_group *group);
/* Reports the error of a broken group once its operations have ended, or do not
 * end soon. The caller holds the lock, which is released while it waits. */
xray_status nccl_report_broken(xray_comm_group *group);
int nccl_start_watcher(nccl_comm *comm); /* 1: the thread runs */
void nccl_stop_watcher(nccl_comm *comm);

/* ---- traces and errors --------------------------------------------------- */

/* Returns the trace of a rank, if the instance has traces. */
const xray_comm_trace *nccl_trace_of(const nccl_comm *comm, uint32_t rank);
void nccl_trace_reset(const nccl_comm *comm);
void nccl_trace_begin(const nccl_comm *comm, const nccl_slot *slot);
void nccl_trace_state(const nccl_comm *comm, uint32_t state);
void nccl_trace_broken(const xray_comm_group *group, uint32_t cause);
/* Writes `where` and `text` of the group's error. */
void nccl_write_report(xray_comm_group *group, const nccl_slot *slot,
                       uint32_t cause, const char *detail);

xray_status nccl_all_reduce(xray_comm_group *group, xray_stream *stream,
                            void *buf, uint64_t count, uint32_t dtype);
xray_status nccl_all_reduce_max(xray_comm_group *group, xray_stream *stream,
                                void *buf, uint64_t count, uint32_t dtype);
xray_status nccl_reduce_scatter(xray_comm_group *group, xray_stream *stream,
                                const void *in, void *out, uint64_t count,
                                uint32_t dtype);
xray_status nccl_all_gather(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype);
xray_status nccl_exchange(xray_comm_group *group, xray_stream *stream,
                          const xray_comm_exchange *messages);
xray_status nccl_all_to_all(xray_comm_group *group, xray_stream *stream,
                            const void *in, void *out, uint64_t count,
                            uint32_t dtype);
xray_status nccl_broadcast(xray_comm_group *group, xray_stream *stream,
                           void *buf, uint64_t bytes, uint32_t root);
xray_status nccl_send(xray_comm_group *group, xray_stream *stream,
                      const void *buf, uint64_t bytes, uint32_t peer);
xray_status nccl_recv(xray_comm_group *group, xray_stream *stream, void *buf,
                      uint64_t bytes, uint32_t peer);

#endif
