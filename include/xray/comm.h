/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/comm.h - interface "xray.comm/0": collectives among the ranks of a
 * world, on device buffers and streams.
 *
 * Every rank of a group makes the same calls in the same order. Sums are taken
 * in rank order, whatever the timing, so the same rank count gives the same
 * bits: fp32 sums in fp32, bf16 is summed in fp32 and rounded once.
 *
 * A rank that does not come is an error after the set-up's timeout, one that is
 * dead or made another call at once: XRAY_E_PEER names the group, the call, its
 * size and what each rank does instead. The group is unfit after that, and what
 * the failed call's buffers hold is undefined.
 */
#ifndef XRAY_COMM_H
#define XRAY_COMM_H

#include <xray/abi.h>
#include <xray/device.h>
#include <xray/host.h>

#define XRAY_IFACE_COMM "xray.comm/0"

typedef struct xray_comm_group xray_comm_group; /* the plugin's own */

/* Where a rank says what it is doing, read by others while it waits. Memory of
 * the core, shared among processes; written by the plugin with release stores,
 * `state` last. */
typedef struct xray_comm_trace {
    uint64_t calls; /* collectives begun */
    uint64_t bytes; /* of `count` elements of the current one */
    uint64_t group; /* its group's number */
    uint32_t call;  /* XRAY_COMM_* */
    uint32_t state; /* low byte: 0 outside, 1 waiting for others, 2 working,
                     * 3 gave up (the rest is why, the plugin's own), 4 ended */
    uint64_t since; /* CLOCK_MONOTONIC nanoseconds at which it began */
    uint64_t pid;
} xray_comm_trace;

#define XRAY_COMM_ALL_REDUCE 1u
#define XRAY_COMM_REDUCE_SCATTER 2u
#define XRAY_COMM_ALL_GATHER 3u
#define XRAY_COMM_BROADCAST 4u
#define XRAY_COMM_SEND 5u
#define XRAY_COMM_RECV 6u
#define XRAY_COMM_BARRIER 7u

/* What an instance is created with. */
typedef struct xray_comm_setup {
    xray_header header;
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout_ms;     /* how long a call waits; 0: for ever */
    xray_comm_trace *traces; /* [size] of all ranks, or NULL */
    /* Gathers `size` bytes of every rank, in rank order, into `all`: the
     * control plane's, for bootstrap. Every rank calls it alike. [may-block] */
    void *exchange_ctx;
    xray_status (*exchange)(void *ctx, const void *mine, uint64_t size,
                            void *all);
} xray_comm_setup;

typedef struct xray_comm_ops {
    xray_header header;

    /* 1: this device's memory can be used. Pure. [any] */
    uint32_t (*serves)(const char *device_name);

    /* Called by all ranks alike. On failure *out_self is untouched.
     * [control] [may-block] */
    xray_status (*create)(const xray_comm_setup *setup, const void *config,
                          void **out_self);
    void (*destroy)(void *self); /* accepts NULL; waits for no one */

    /* The group of `ranks` (ascending, this one among them). Called by all of
     * them. Lives as long as the instance. Buffers of a group's collectives
     * need not be announced, but lie in shareable memory of the device: create
     * asks the device for it. A list given again is another group. [control]
     * [may-block] */
    xray_status (*group)(void *self, const uint32_t *ranks, uint32_t count,
                         xray_comm_group **out);

    /* Collectives are enqueued on `stream` (NULL: the default one) and done
     * when the stream is. Counts are elements of `dtype` (XRAY_F32 or
     * XRAY_BF16; gathers and copies take any type). Results are the same on
     * every rank. `in` may be `out`'s own part. [stream] */

    /* buf[i] = sum over ranks of buf[i]. */
    xray_status (*all_reduce)(xray_comm_group *group, xray_stream *stream,
                              void *buf, uint64_t count, uint32_t dtype);
    /* out[i] = sum over ranks of in[rank * count + i]; in holds ranks * count.
     */
    xray_status (*reduce_scatter)(xray_comm_group *group, xray_stream *stream,
                                  const void *in, void *out, uint64_t count,
                                  uint32_t dtype);
    /* out[r * count + i] = in[i] of rank r. */
    xray_status (*all_gather)(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype);
    xray_status (*broadcast)(xray_comm_group *group, xray_stream *stream,
                             void *buf, uint64_t bytes, uint32_t root);
    /* `peer` is a rank of the group; messages between two ranks keep order. A
     * send is done when it was received. */
    xray_status (*send)(xray_comm_group *group, xray_stream *stream,
                        const void *buf, uint64_t bytes, uint32_t peer);
    xray_status (*recv)(xray_comm_group *group, xray_stream *stream, void *buf,
                        uint64_t bytes, uint32_t peer);
    xray_status (*barrier)(xray_comm_group *group, xray_stream *stream);

    /* Bytes that calls brought to this rank from others, since create: with n
     * ranks, (n - 1) parts of a gather or scatter, both of an all_reduce. */
    uint64_t (*received)(void *self);

    /* Optional from here on. */

    /* Ends waiting calls of this rank, and later ones, with XRAY_E_PEER. [any]
     */
    void (*abort)(void *self);

    /* Finds an extension by id. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);
} xray_comm_ops;

#endif
