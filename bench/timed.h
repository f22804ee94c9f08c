/* SPDX-License-Identifier: Apache-2.0
 *
 * Times what a rank of two does in a step: its phases, the device's operators
 * by kind, and collectives.
 */
#ifndef BENCH_TIMED_H
#define BENCH_TIMED_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <xray/comm.h>
#include <xray/device.h>

#include "bench/probe.h"

#define RANKS 2
#define MOST_CALLS 65536 /* collectives of a step */

enum { FORWARD, BACKWARD, UPDATE, PHASES };
enum { PRODUCTS, ATTENTION, HEAD, NORMS, INPUT, OTHER, ADAM, KINDS };

/* A rank's seconds in a step. */
typedef struct figures {
    double phase[PHASES];
    double kind[KINDS];
    double called; /* in collectives */
    double waited; /* of that, until the other rank was there */
    double bytes;  /* of the collectives' larger buffers */
    uint64_t calls;
} figures;

/* Shared by the ranks and the program. */
typedef struct shared_board {
    _Atomic uint32_t arrived;
    _Atomic uint32_t round;
    char offers[RANKS][256];
    double begun[RANKS][MOST_CALLS]; /* when a rank began a collective */
    double ended[RANKS][MOST_CALLS];
    figures best[RANKS]; /* of the fastest step */
} shared_board;

/* The rank that this process is. */
static struct {
    shared_board *board;
    uint32_t rank;
    uint32_t threads;
    uint32_t phase;
    double since; /* when the phase began */
    /* Of a stage: the phase that begins with a message of so many bytes. */
    uint32_t received;
    uint64_t hidden_bytes; /* 0: none does */
    const xray_device_ops *device;
    const xray_comm_ops *comm;
    figures now;
} self;

static double read_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void enter_phase(uint32_t phase)
{
    double now = read_clock();
    self.now.phase[self.phase] += now - self.since;
    self.phase = phase;
    self.since = now;
}

/* ---- a device and collectives that are timed ---------------------------- */

#define OPERATORS(X)                                  \
    X(matmul, xray_matmul, PRODUCTS)                  \
    X(matmul_grad, xray_matmul_grad, PRODUCTS)        \
    X(embedding, xray_embedding, INPUT)               \
    X(embedding_grad, xray_embedding_grad, OTHER)     \
    X(gather, xray_rows, OTHER)                       \
    X(scatter, xray_rows, OTHER)                      \
    X(rmsnorm, xray_rmsnorm, NORMS)                   \
    X(rmsnorm_grad, xray_rmsnorm_grad, NORMS)         \
    X(rope, xray_rope, OTHER)                         \
    X(glu, xray_glu, OTHER)                           \
    X(glu_grad, xray_glu_grad, OTHER)                 \
    X(attention, xray_attention, ATTENTION)           \
    X(attention_grad, xray_attention_grad, ATTENTION) \
    X(lm_head_logp, xray_lm_head_logp, HEAD)          \
    X(lm_head_grad, xray_lm_head_grad, HEAD)          \
    X(lm_head_join, xray_lm_head_join, HEAD)          \
    X(axpby, xray_axpby, OTHER)                       \
    X(cast, xray_cast, OTHER)                         \
    X(sumsq, xray_sumsq, ADAM)                        \
    X(adamw, xray_adamw, ADAM)

/* A forward pass begins with the embedding. Operators of one thread are timed
 * by its processor time, which neighbours do not extend. */
#define TIMED(name, type, what)                                     \
    static xray_status time_##name(void *device, xray_stream *on,   \
                                   const type *call)                \
    {                                                               \
        if ((what) == INPUT)                                        \
            enter_phase(FORWARD);                                   \
        double start = probe_seconds(self.threads);                 \
        xray_status status = self.device->name(device, on, call);   \
        self.now.kind[what] += probe_seconds(self.threads) - start; \
        return status;                                              \
    }
OPERATORS(TIMED)

static xray_device_ops time_device(const xray_device_ops *inner)
{
    xray_device_ops ops = *inner;
    self.device = inner;
#define TAKE(name, type, what) ops.name = time_##name;
    OPERATORS(TAKE)
    return ops;
}

static uint64_t begin_call(void)
{
    uint64_t n = self.now.calls < MOST_CALLS ? self.now.calls++ : 0;
    self.board->begun[self.rank][n] = read_clock();
    return n;
}

static xray_status end_call(uint64_t n, uint64_t floats, xray_status status)
{
    self.board->ended[self.rank][n] = read_clock();
    self.now.bytes += 4.0 * (double)floats;
    return status;
}

static xray_status time_sum(xray_comm_group *g, xray_stream *on, void *buf,
                            uint64_t count, uint32_t dtype)
{
    uint64_t n = begin_call();
    return end_call(n, count, self.comm->all_reduce(g, on, buf, count, dtype));
}

static xray_status time_max(xray_comm_group *g, xray_stream *on, void *buf,
                            uint64_t count, uint32_t dtype)
{
    uint64_t n = begin_call();
    return end_call(n, count,
                    self.comm->all_reduce_max(g, on, buf, count, dtype));
}

static xray_status time_scatter_sum(xray_comm_group *g, xray_stream *on,
                                    const void *in, void *out, uint64_t count,
                                    uint32_t dtype)
{
    uint64_t n = begin_call();
    return end_call(n, RANKS * count,
                    self.comm->reduce_scatter(g, on, in, out, count, dtype));
}

static xray_status time_gather_all(xray_comm_group *g, xray_stream *on,
                                   const void *in, void *out, uint64_t count,
                                   uint32_t dtype)
{
    uint64_t n = begin_call();
    return end_call(n, RANKS * count,
                    self.comm->all_gather(g, on, in, out, count, dtype));
}

static xray_status time_broadcast(xray_comm_group *g, xray_stream *on,
                                  void *buf, uint64_t bytes, uint32_t root)
{
    uint64_t n = begin_call();
    return end_call(n, bytes / 4,
                    self.comm->broadcast(g, on, buf, bytes, root));
}

static xray_status time_send(xray_comm_group *g, xray_stream *on,
                             const void *buf, uint64_t bytes, uint32_t peer)
{
    uint64_t n = begin_call();
    return end_call(n, bytes / 4, self.comm->send(g, on, buf, bytes, peer));
}

static xray_status time_recv(xray_comm_group *g, xray_stream *on, void *buf,
                             uint64_t bytes, uint32_t peer)
{
    if (bytes && bytes == self.hidden_bytes)
        enter_phase(self.received);
    uint64_t n = begin_call();
    return end_call(n, bytes / 4, self.comm->recv(g, on, buf, bytes, peer));
}

static xray_comm_ops time_comm(const xray_comm_ops *inner)
{
    xray_comm_ops ops = *inner;
    self.comm = inner;
    ops.all_reduce = time_sum;
    ops.all_reduce_max = time_max;
    ops.reduce_scatter = time_scatter_sum;
    ops.all_gather = time_gather_all;
    ops.broadcast = time_broadcast;
    ops.send = time_send;
    ops.recv = time_recv;
    return ops;
}

#endif
