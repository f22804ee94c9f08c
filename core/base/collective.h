/* SPDX-License-Identifier: Apache-2.0
 *
 * Serves every implementation of xray.comm, and the readers of its traces:
 * checks of arguments, names of calls, and trace fields that one process reads
 * while another writes them.
 */
#ifndef XR_COLLECTIVE_H
#define XR_COLLECTIVE_H

#include <stdatomic.h>
#include <stddef.h>

#include <xray/comm.h>

/* A sentence in a buffer that the owner provides; text past its end is cut
 * off. */
typedef struct xr_sentence {
    char *text;
    size_t cap;
    size_t used;
} xr_sentence;

XRAY_PRINTF(2, 3)
void xr_sentence_printf(xr_sentence *sentence, const char *fmt, ...);

/* A call with its arguments, as far as messages name them. */
typedef struct xr_collective {
    uint32_t call; /* XRAY_COMM_* */
    uint32_t dtype;
    uint64_t bytes;
    uint32_t other; /* rank: root of a broadcast, peer of send and recv, where
                     * an exchange sends `bytes` */
    uint32_t from;  /* rank from which an exchange receives from_bytes */
    uint64_t from_bytes;
} xr_collective;

/* "all_reduce"; "no call" for 0. */
const char *xr_collective_name(uint32_t call);
/* 1 if the call has one buffer, which is read and written: all_reduce and
 * all_reduce_max. */
int xr_collective_is_in_place(uint32_t call);
/* 1 if the call adds or compares elements: those and reduce_scatter. */
int xr_collective_reduces(uint32_t call);
/* "all_reduce of 64 bytes of f32" */
void xr_collective_print(xr_sentence *sentence, const xr_collective *call);

/* 1 if a device of this name, which may be NULL, is of a kind: "cuda" and
 * "cuda:0" are of the kind "cuda". */
uint32_t xr_collective_is_kind(const char *device_name, const char *kind);

/* Bytes of one element; 0 if no collective takes the type. */
uint64_t xr_collective_width(uint32_t dtype);
/* Returns XRAY_OK if a call may have these arguments; otherwise reports an
 * error at `where` to `host`. */
xray_status xr_collective_check(const xray_host *host, const char *where,
                                const void *in, const void *out,
                                uint64_t bytes);
/* The same check for `count` elements of a call that all ranks of a group
 * make; `in` is ignored where the call is in place. */
xray_status xr_collective_check_call(const xray_host *host, uint32_t call,
                                     const void *in, const void *out,
                                     uint64_t count, uint32_t dtype);

/* The same check for the ranks of a group that rank `self` of `size` ranks
 * belongs to. */
xray_status xr_collective_check_ranks(const xray_host *host,
                                      const uint32_t *ranks, uint32_t count,
                                      uint32_t self, uint32_t size);

/* Returns the trace of a rank in an array of records of `stride` bytes. */
static inline const xray_comm_trace *xr_trace_at(const xray_comm_trace *traces,
                                                 uint64_t stride, uint32_t rank)
{
    return (const xray_comm_trace *)(const void *)((const char *)traces +
                                                   stride * rank);
}

/* Fields of traces are released by the writer and acquired by the reader. */
static inline void xr_trace_put64(uint64_t *to, uint64_t value)
{
    atomic_store_explicit((_Atomic uint64_t *)to, value, memory_order_release);
}

static inline void xr_trace_put32(uint32_t *to, uint32_t value)
{
    atomic_store_explicit((_Atomic uint32_t *)to, value, memory_order_release);
}

static inline uint64_t xr_trace_get64(const uint64_t *from)
{
    return atomic_load_explicit((const _Atomic uint64_t *)from,
                                memory_order_acquire);
}

static inline uint32_t xr_trace_get32(const uint32_t *from)
{
    return atomic_load_explicit((const _Atomic uint32_t *)from,
                                memory_order_acquire);
}

#endif
