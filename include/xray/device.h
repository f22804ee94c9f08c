/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/device.h - interface "xray.device/0": a device. It offers memory,
 * streams and a table of fused operators over packed tokens, in which models
 * are written.
 *
 * The projections of one layer, forward:
 *
 *     alloc(self, "actor", XRAY_TAG_WEIGHTS, bytes, &data);
 *     weight_create(self, &(xray_weight_desc){ ... data ... }, &weight);
 *     rmsnorm(self, NULL, &norm);
 *     matmul(self, NULL, &product);
 *     sync(self, NULL);                      errors of the device appear here
 *
 * Pointers marked [dev] are device memory of this instance; on a CPU that is
 * host memory. Every operator is enqueued on `stream`, NULL being the default
 * stream, and operators of one stream run in order. An operator returns XRAY_OK
 * or the error of its arguments; faults of the device appear at the next
 * `sync`.
 *
 * An xray_extent gives a number of items twice. The host knows `bound`; `live`
 * [dev], if it is set, holds the real number, at most `bound`, so that a
 * captured graph can be replayed with other lengths. Items from `live` on are
 * not written.
 *
 * Numerics: each element of a matrix product is one chain of fp32 FMAs in the
 * order of the summed index, which starts from the accumulator. A sum along a
 * row uses 16 interleaved partial sums and a fixed tree (docs/numerics.md). So
 * no result depends on the batch around it, on the number of threads or on the
 * instruction set, and a gradient that is added up over tokens does not depend
 * on how the tokens are split into calls.
 */
#ifndef XRAY_DEVICE_H
#define XRAY_DEVICE_H

#include <xray/abi.h>
#include <xray/device_info.h>
#include <xray/head.h>
#include <xray/host.h>
#include <xray/operators.h>

#define XRAY_IFACE_DEVICE "xray.device/0"

/* Types that only the device looks into. */
typedef struct xray_stream xray_stream;
typedef struct xray_event xray_event;
typedef struct xray_graph xray_graph;

typedef struct xray_device_ops {
    xray_header header;

    /* Says what an instance with these options would offer. Pure. It refuses
     * what cannot work with XRAY_E_CONFIG and a reason through host->fail.
     * [any] */
    xray_status (*plan)(const xray_host *host, const void *config,
                        xray_device_plan *out);
    /* The bytes that an instance with these options would take for itself, so
     * that the plans of its users need none: for the packed copies of a matrix
     * (tag WEIGHTS; desc->data is ignored and taken as aligned), and in a block
     * of a KV cache (what kv_block_bytes says). They are what is counted as
     * allocated, or a little more. 0 for a matrix or a cache that would be
     * refused. Pure. [any] */
    uint64_t (*plan_weight)(const void *config, const xray_weight_desc *desc);
    uint64_t (*plan_kv_block)(const void *config, const xray_kv *kv);
    /* The same for the scratch memory (tag WORKSPACE) of an instance of so many
     * threads, as in `create`, whose users together give it these `count`
     * works, `stride` bytes apart. Pure. [any] */
    uint64_t (*plan_scratch)(const void *config, uint32_t threads,
                             const xray_device_work *works, uint64_t count,
                             uint64_t stride);

    /* Creates an instance. `threads` is the run's setting, 0 meaning one thread
     * per core. On failure *out_self is not written. [control] [may-block] */
    xray_status (*create)(const xray_host *host, const void *config,
                          uint32_t threads, void **out_self);
    void (*destroy)(void *self); /* accepts NULL [control] */
    /* Describes the device and its free memory. [control] */
    xray_status (*info)(void *self, xray_device_info *info);

    /* Allocates zeroed memory, aligned to 64 bytes. Messages name `owner`,
     * which is an instance such as "actor". [control] [may-block] */
    xray_status (*alloc)(void *self, const char *owner, uint32_t tag,
                         uint64_t bytes, void **out);
    void (*free)(void *self,
                 void *ptr); /* accepts NULL [control] [may-block] */
    /* Allocate and free zeroed host memory, aligned to 64 bytes, which copies
     * reach while the host goes on; a copy from or to other host memory may
     * keep the host waiting. Messages name `owner`. [control] [may-block] */
    xray_status (*host_alloc)(void *self, const char *owner, uint64_t bytes,
                              void **out);
    void (*host_free)(void *self, void *ptr); /* accepts NULL */
    /* Says how much memory is allocated. [control] */
    xray_status (*memory)(void *self, xray_memory_stats *stats);
    /* Takes the scratch memory for these works, given as in `plan_scratch`, and
     * freezes it: it never moves again, and an operator that needs more fails
     * with XRAY_E_STATE. A later call fails likewise if its works need more.
     * Without this call scratch memory grows with what operators need.
     * [control] [may-block] */
    xray_status (*reserve)(void *self, const xray_device_work *works,
                           uint64_t count, uint64_t stride);
    /* Copies bytes, in the direction XRAY_COPY_*, and sets bytes to zero.
     * [stream] */
    xray_status (*copy)(void *self, xray_stream *stream, void *to,
                        const void *from, uint64_t bytes, uint32_t kind);
    xray_status (*zero)(void *self, xray_stream *stream, void *ptr,
                        uint64_t bytes);
    /* Copies rows of bytes with a pitch on both sides. [stream] */
    xray_status (*copy_rows)(void *self, xray_stream *stream,
                             const xray_copy_rows *rows);
    /* A 64-bit checksum of bytes, the same on every device (xray_checksum_word
     * in <xray/numerics.h>). The checksums of disjoint parts of a tensor add
     * up, modulo 2^64, to that of the entire tensor. [control] [may-block] */
    xray_status (*checksum)(void *self, const xray_checksum_rows *rows,
                            uint64_t *out);

    /* Create and destroy a stream. [control] */
    xray_status (*stream_create)(void *self, xray_stream **out);
    void (*stream_destroy)(void *self, xray_stream *stream);
    /* Waits until the stream has done its work, and returns the first fault of
     * the device since the last call. [control] [may-block] */
    xray_status (*sync)(void *self, xray_stream *stream);
    /* Create and destroy an event, with which one stream waits for another:
     * `event_record` marks the point that a stream has reached, and after
     * `event_wait` another stream does not go on before that point. [control]
     */
    xray_status (*event_create)(void *self, xray_event **out);
    void (*event_destroy)(void *self, xray_event *event);
    /* As described above. [stream] */
    xray_status (*event_record)(void *self, xray_stream *stream,
                                xray_event *event);
    xray_status (*event_wait)(void *self, xray_stream *stream,
                              xray_event *event);
    /* Says whether the work before the last `event_record` is done: XRAY_OK, or
     * XRAY_AGAIN if it is not. An event without a record counts as done.
     * [control] */
    xray_status (*event_query)(void *self, xray_event *event);
    /* Waits for that work and for nothing after it; returns faults as `sync`
     * does. [control] [may-block] */
    xray_status (*event_sync)(void *self, xray_event *event);

    /* Register and release a matrix. `weight_changed` says that its data has
     * new values, so that packed copies are made again before the next product.
     * [control] [may-block] */
    xray_status (*weight_create)(void *self, const xray_weight_desc *desc,
                                 xray_weight **out);
    void (*weight_destroy)(void *self, xray_weight *weight);
    xray_status (*weight_changed)(void *self, xray_weight *weight);
    /* The size of one block of a KV cache of this shape. [control] */
    uint64_t (*kv_block_bytes)(void *self, const xray_kv *kv);

    /* The operators; their structs above say what each computes. [stream]
     * [no-alloc] */
    xray_status (*matmul)(void *, xray_stream *, const xray_matmul *);
    xray_status (*matmul_grad)(void *, xray_stream *, const xray_matmul_grad *);
    xray_status (*embedding)(void *, xray_stream *, const xray_embedding *);
    xray_status (*embedding_grad)(void *, xray_stream *,
                                  const xray_embedding_grad *);
    xray_status (*gather)(void *, xray_stream *, const xray_rows *);
    xray_status (*scatter)(void *, xray_stream *, const xray_rows *);
    xray_status (*rmsnorm)(void *, xray_stream *, const xray_rmsnorm *);
    xray_status (*rmsnorm_grad)(void *, xray_stream *,
                                const xray_rmsnorm_grad *);
    xray_status (*layernorm)(void *, xray_stream *, const xray_layernorm *);
    xray_status (*layernorm_grad)(void *, xray_stream *,
                                  const xray_layernorm_grad *);
    xray_status (*rope_table)(void *, xray_stream *, const xray_rope_table *);
    xray_status (*rope)(void *, xray_stream *, const xray_rope *);
    xray_status (*glu)(void *, xray_stream *, const xray_glu *);
    xray_status (*glu_grad)(void *, xray_stream *, const xray_glu_grad *);
    xray_status (*attention)(void *, xray_stream *, const xray_attention *);
    xray_status (*attention_grad)(void *, xray_stream *,
                                  const xray_attention_grad *);
    xray_status (*attention_kv)(void *, xray_stream *,
                                const xray_attention_kv *);
    xray_status (*lm_head_logp)(void *, xray_stream *,
                                const xray_lm_head_logp *);
    xray_status (*lm_head_grad)(void *, xray_stream *,
                                const xray_lm_head_grad *);
    xray_status (*lm_head_join)(void *, xray_stream *,
                                const xray_lm_head_join *);
    xray_status (*sample)(void *, xray_stream *, const xray_sample *);
    xray_status (*edit_logits)(void *, xray_stream *, const xray_edit_logits *);
    xray_status (*pick_logp)(void *, xray_stream *, const xray_pick_logp *);
    xray_status (*advance)(void *, xray_stream *, const xray_advance *);
    xray_status (*axpby)(void *, xray_stream *, const xray_axpby *);
    xray_status (*cast)(void *, xray_stream *, const xray_cast *);
    xray_status (*sumsq)(void *, xray_stream *, const xray_sumsq *);
    xray_status (*adamw)(void *, xray_stream *, const xray_adamw *);

    /* Members from here on are optional: test them with XRAY_HAS. */

    /* Record the operators between begin and end as a graph, which `launch`
     * then runs at once. A graph uses the scratch memory that it was recorded
     * with: once that has moved, `launch` refuses it with XRAY_E_STATE.
     * [stream] */
    xray_status (*graph_begin)(void *self, xray_stream *stream);
    xray_status (*graph_end)(void *self, xray_stream *stream, xray_graph **out);
    xray_status (*graph_launch)(void *self, xray_stream *stream,
                                xray_graph *graph);
    void (*graph_destroy)(void *self, xray_graph *graph);

    /* Makes a handle with which other processes of this host map a block, if it
     * was allocated while the instance was shareable. `ptr` may point into the
     * block; the handle then reaches from there to its end. A handle is
     * XRAY_HANDLE_BYTES opaque bytes and is valid while the block lives.
     * [control] */
    xray_status (*share)(void *self, const void *ptr, uint8_t *out_handle);
    /* Maps the memory of a handle, which must have at least `bytes`; refuses a
     * handle that is stale or of another device. The memory stays mapped until
     * `detach` or `destroy`, even if the process that made the block ends. A
     * handle of this process gives the block's own address. [control]
     * [may-block] */
    xray_status (*attach)(void *self, const uint8_t *handle, uint64_t bytes,
                          void **out);

    /* Finds an extension by its id; NULL if there is none. [any] */
    const void *(*extension)(void *self, const char *id);

    /* Undoes one `attach`. Accepts NULL. [control] */
    void (*detach)(void *self, void *ptr);
    /* 1: blocks that are allocated from now on can be shared, which may cost
     * the use of large pages. A comm plugin turns it on, so an instance without
     * peers does not pay for it. [control] */
    xray_status (*shareable)(void *self, uint32_t on);

    /* `evict` frees the memory of a block: its address and handles stay, its
     * values are lost, and nothing may use it until `restore` gives it zeroed
     * memory again. Meanwhile it does not count as allocated. Evicting twice,
     * or restoring what is not evicted, does nothing; `free` accepts both.
     * [control] [may-block] */
    xray_status (*evict)(void *self, void *ptr);
    xray_status (*restore)(void *self, void *ptr);
    /* Frees the device's packed copies of a matrix; `weight_changed` makes them
     * again. [control] */
    xray_status (*weight_evict)(void *self, xray_weight *weight);

    /* Checks, without creating an instance, that this machine has what `create`
     * needs, and refuses what is missing as `create` would. [any] */
    xray_status (*probe)(const xray_host *host, const void *config);
} xray_device_ops;

#endif
