/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/comm.h - interface "xray.comm/0": collectives among the ranks of a
 * world, on device buffers and streams.
 *
 * Every rank of a group makes the same calls in the same order:
 *
 *     group(self, ranks, 4, &g);
 *     reduce_scatter(g, stream, grads, shard, count, XRAY_F32);
 *     ...                                          update the shard
 *     all_gather(g, stream, shard, weights, count, XRAY_F32);
 *     device->sync(device_self, stream);           now the results are there
 *
 * A sum is a balanced tree over the ranks of the group, whatever the timing:
 *
 *     S(first, n) = S(first, k) + S(first + k, n - k), S(r, 1) = element of r
 *
 * with k = xray_comm_left(n), so that the same number of ranks gives the same
 * bits. The sum over m ranks of sums over 2^j ranks each, which are neighbours,
 * is the sum over all m * 2^j. fp32 is summed in fp32; bf16 is summed in fp32
 * and rounded once. A maximum is exact; it ignores the NaN of a rank unless all
 * ranks have one.
 *
 * If a rank is missing, the call fails with XRAY_E_PEER after the timeout of
 * the set-up; if a rank is dead or made another call, it fails at once. The
 * message names the group, the call, its size and what each rank is doing
 * instead. After that the group cannot be used any more, and the contents of
 * the failed call's buffers are undefined. The same holds where a waiting
 * rank's host stops the call: all ranks that wait return XRAY_E_CANCELED.
 */
#ifndef XRAY_COMM_H
#define XRAY_COMM_H

#include <xray/abi.h>
#include <xray/device.h>
#include <xray/host.h>

#define XRAY_IFACE_COMM "xray.comm/0"

typedef struct xray_comm_group xray_comm_group; /* the plugin's own */

/* A rank's record of the collective it is in, from which the core, and other
 * ranks of its host, explain why they wait. It lies in memory of the core. The
 * plugin writes it with release stores, `state` last. */
typedef struct xray_comm_trace {
    uint64_t calls; /* number of collectives begun so far */
    uint64_t bytes; /* size of the current one: `count` elements; of an
                     * exchange what is sent and what is received */
    uint64_t group; /* number of its group */
    uint32_t call;  /* XRAY_COMM_* */
    uint32_t state; /* low byte: 0 in no call, 1 waiting for other ranks, 2
                     * working, 3 gave up (the upper bytes are the plugin's
                     * reason), 4 the instance was destroyed */
    uint64_t since; /* when the call began, CLOCK_MONOTONIC in nanoseconds */
    uint64_t pid;
} xray_comm_trace;

#define XRAY_COMM_ALL_REDUCE 1u
#define XRAY_COMM_REDUCE_SCATTER 2u
#define XRAY_COMM_ALL_GATHER 3u
#define XRAY_COMM_BROADCAST 4u
#define XRAY_COMM_SEND 5u
#define XRAY_COMM_RECV 6u
#define XRAY_COMM_EXCHANGE 7u
#define XRAY_COMM_ALL_TO_ALL 8u
#define XRAY_COMM_ALL_REDUCE_MAX 9u

/* The number of ranks in the left part of a sum over `ranks` > 1 ranks: the
 * largest power of two below it. Pure. */
static inline uint32_t xray_comm_left(uint32_t ranks)
{
    uint32_t left = 1;
    while (ranks - left > left)
        left *= 2;
    return left;
}

/* Everything that an instance is created with. */
typedef struct xray_comm_setup {
    xray_header header;
    const xray_host *host;
    const xray_device_ops *device;
    void *device_self;
    uint32_t rank;
    uint32_t size;
    uint64_t timeout_ms;    /* the longest a call waits; 0: without end */
    xray_comm_trace *trace; /* this rank's, which it writes; or NULL */
    /* Those of all ranks, this one's among them, to be read; NULL if the ranks
     * share no memory. That of rank r is trace_stride * r bytes after the
     * first. */
    const xray_comm_trace *traces;
    uint64_t trace_stride; /* in bytes, a multiple of 8 */
    void *gather_ctx;
    /* The core's own slow gather, for setting up faster calls: it writes `size`
     * bytes of every rank, in the order of the ranks, to `all`. [collective]
     * [may-block] */
    xray_status (*gather)(void *ctx, const void *mine, uint64_t size,
                          void *all);
} xray_comm_setup;

/* Two messages of one call: `in` goes to the rank `to` of the group, and `out`
 * is filled by the rank `from`, which may be the same one. */
typedef struct xray_comm_exchange {
    xray_header header;
    const void *in;
    uint64_t in_bytes;
    void *out; /* does not overlap `in` */
    uint64_t out_bytes;
    uint32_t to; /* another rank than this one, as is `from` */
    uint32_t from;
} xray_comm_exchange;

typedef struct xray_comm_ops {
    xray_header header;

    /* 1 if the plugin can work on the memory of this device. Pure. [any] */
    uint32_t (*serves)(const char *device_name);

    /* Creates an instance. On failure *out_self is not written. [collective]
     * [may-block] */
    xray_status (*create)(const xray_comm_setup *setup, const void *config,
                          void **out_self);
    /* Frees the instance; waits for no other rank. Accepts NULL. [control] */
    void (*destroy)(void *self);

    /* Makes a group of `ranks`, which are in ascending order and include this
     * one; all of them call it. The group lives as long as the instance. The
     * same list given again makes another group. Buffers of collectives need no
     * registration, but must lie in shareable memory of the device, which
     * `create` asks the device for. [collective] [may-block] */
    xray_status (*group)(void *self, const uint32_t *ranks, uint32_t count,
                         xray_comm_group **out);

    /* The collectives are enqueued on `stream`, NULL being the default stream,
     * and are done when the stream has done them. A count is a number of
     * elements of `dtype`, XRAY_F32 or XRAY_BF16; what only copies takes any
     * type. Every rank gets the same results. `in` may be this rank's own part
     * of `out`. */

    /* buf[i] = sum over ranks of buf[i]. [stream] [may-block] */
    xray_status (*all_reduce)(xray_comm_group *group, xray_stream *stream,
                              void *buf, uint64_t count, uint32_t dtype);
    /* buf[i] = the largest of the ranks' buf[i]; of zeros of both signs either
     * one. [stream] [may-block] */
    xray_status (*all_reduce_max)(xray_comm_group *group, xray_stream *stream,
                                  void *buf, uint64_t count, uint32_t dtype);
    /* out[i] = sum over ranks of in[rank * count + i]; `in` holds ranks * count
     * elements. [stream] [may-block] */
    xray_status (*reduce_scatter)(xray_comm_group *group, xray_stream *stream,
                                  const void *in, void *out, uint64_t count,
                                  uint32_t dtype);
    /* out[r * count + i] = in[i] of rank r. [stream] [may-block] */
    xray_status (*all_gather)(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype);
    /* buf[i] = buf[i] of the rank `root` of the group. [stream] [may-block] */
    xray_status (*broadcast)(xray_comm_group *group, xray_stream *stream,
                             void *buf, uint64_t bytes, uint32_t root);
    /* Send to, and receive from, the rank `peer` of the group. Messages between
     * two ranks keep their order. A send is done when it was received. [stream]
     * [may-block] */
    xray_status (*send)(xray_comm_group *group, xray_stream *stream,
                        const void *buf, uint64_t bytes, uint32_t peer);
    xray_status (*recv)(xray_comm_group *group, xray_stream *stream, void *buf,
                        uint64_t bytes, uint32_t peer);
    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Sends and receives at once, so that all ranks of a ring, or both of a
     * pair, may make the call together. Its messages are those of `send` and
     * `recv`: the peers may take their parts in an exchange or in one of these.
     * [stream] [may-block] */
    xray_status (*exchange)(xray_comm_group *group, xray_stream *stream,
                            const xray_comm_exchange *messages);
    /* out[r * count + i] = in[rank * count + i] of rank r; `in` and `out` hold
     * ranks * count elements each and do not overlap. [stream] [may-block] */
    xray_status (*all_to_all)(xray_comm_group *group, xray_stream *stream,
                              const void *in, void *out, uint64_t count,
                              uint32_t dtype);

    /* Ends this rank's waiting calls, and all later ones, with XRAY_E_PEER.
     * [any] */
    void (*abort)(void *self);

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* 1 if the ranks may be on several hosts, 0 (as without this member) if all
     * must be on one. Pure. [any] */
    uint32_t (*spans_hosts)(void);
} xray_comm_ops;

#endif
