/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/device.h - interface "xray.device/0": memory, streams and the table of
 * fused operators over packed tokens that models are written in.
 *
 * Pointers marked [dev] are device memory of this instance. On the CPU that is
 * host memory. Every operator is enqueued on `stream` (NULL: the default
 * stream) in order, from one thread a process; it returns XRAY_OK or the error
 * of its arguments, device faults surface at the next `sync`.
 *
 * An `xray_extent` gives the number of items: `bound` is known to the host,
 * `live` [dev], if set, holds the real count <= bound, so that a captured graph
 * can be replayed with other lengths. Items beyond `live` are left untouched.
 *
 * Numerics: every matrix product is, per output element, one fp32 FMA chain in
 * index order that starts from the accumulator; sums along a row use 16
 * interleaved partial sums and a fixed tree (docs/numerics.md). So no result
 * depends on the batch around it, on the thread count or on the instruction
 * set, and a gradient folded over tokens does not depend on where the tokens
 * are cut into calls.
 */
#ifndef XRAY_DEVICE_H
#define XRAY_DEVICE_H

#include <xray/abi.h>
#include <xray/device_info.h>
#include <xray/host.h>

#define XRAY_IFACE_DEVICE "xray.device/0"

typedef struct xray_stream xray_stream; /* device's own */
typedef struct xray_event xray_event;   /* device's own */
typedef struct xray_graph xray_graph;   /* device's own */
typedef struct xray_weight xray_weight; /* device's own: a matrix ready for
                                         * products, in whatever packing */

typedef struct xray_extent {
    uint64_t bound;
    const int32_t *live; /* [dev] or NULL */
} xray_extent;

/* ---- matrix products ---------------------------------------------------- */

#define XRAY_NT 1u /* y[t, rows] = x[t, cols] . W^T: forward */
#define XRAY_NN 2u /* y[t, cols] = x[t, rows] . W: gradient of the input */

/* The matrix W [rows, cols], row-major. The device may keep packed copies. */
typedef struct xray_weight_desc {
    xray_header header;
    void *data; /* [dev] stays the caller's */
    uint64_t rows;
    uint64_t cols;
    uint32_t dtype;
    uint32_t trainable; /* 0: XRAY_NN is never asked for */
} xray_weight_desc;

typedef struct xray_matmul {
    xray_header header;
    const xray_weight *weight;
    xray_extent tokens;
    const float *x; /* [dev] row t at x + t * x_stride */
    float *y;       /* [dev] */
    uint64_t x_stride;
    uint64_t y_stride;
    const float *bias; /* [dev] [outputs]; the chain starts from it; or NULL */
    uint32_t kind;     /* XRAY_NT or XRAY_NN */
    uint32_t accumulate; /* 1: the chain starts from y (no bias then) */
} xray_matmul;

/* dw[n, k] += sum_t dy[t, n] x[t, k]; dbias[n] += sum_t dy[t, n]. */
typedef struct xray_matmul_grad {
    xray_header header;
    xray_extent tokens;
    const float *dy; /* [dev] */
    const float *x;  /* [dev] */
    uint64_t dy_stride;
    uint64_t x_stride;
    uint64_t rows;
    uint64_t cols;
    float *dw;    /* [dev] [rows, cols] fp32, row stride cols */
    float *dbias; /* [dev] [rows] or NULL */
} xray_matmul_grad;

/* ---- rows in and out ---------------------------------------------------- */

/* y[t] = table[ids[t]], times `scale`. */
typedef struct xray_embedding {
    xray_header header;
    xray_extent tokens;
    const int32_t *ids; /* [dev] [tokens], each in [0, vocab) */
    const void *table;  /* [dev] [vocab, dim] */
    float *y;           /* [dev] [tokens, dim] */
    uint64_t vocab;
    uint64_t dim;
    float scale;
    uint32_t table_dtype; /* XRAY_F32 (or 0), XRAY_BF16: widened exactly */
} xray_embedding;

/* dtable[ids[t]] += scale * dy[t], in token order. */
typedef struct xray_embedding_grad {
    xray_header header;
    xray_extent tokens;
    const int32_t *ids; /* [dev] */
    const float *dy;    /* [dev] [tokens, dim] */
    float *dtable;      /* [dev] [vocab, dim] */
    uint64_t vocab;
    uint64_t dim;
    float scale;
    uint32_t reserved;
} xray_embedding_grad;

/* gather: y[i] = x[index[i]]. scatter: y[index[i]] = x[i]; indices differ. */
typedef struct xray_rows {
    xray_header header;
    xray_extent count;
    const int32_t *index; /* [dev] [count] */
    const float *x;       /* [dev] */
    float *y;             /* [dev] */
    uint64_t dim;
} xray_rows;

/* ---- norms, positions, activation --------------------------------------- */

/* RMSNorm over the last dimension: y = x * rstd * (w + offset), with rstd =
 * 1/sqrt(mean(x^2) + eps). A token holds `groups` vectors of `dim`, one after
 * the other: groups = 1 for a block's norm, = heads for qk-norm. With
 * `residual` (groups = 1 only), residual += x first and the sum is normed:
 * y = norm(residual). y may be x. */
typedef struct xray_rmsnorm {
    xray_header header;
    xray_extent tokens;
    const float *x;      /* [dev] token t at x + t * x_stride */
    float *residual;     /* [dev] [tokens, dim] or NULL */
    const float *weight; /* [dev] [dim] */
    float *y;            /* [dev] token t at y + t * y_stride */
    float *rstd;         /* [dev] [tokens, groups] kept for backward, or NULL */
    uint64_t x_stride;
    uint64_t y_stride;
    uint32_t groups;
    uint32_t dim;
    float eps;
    float offset; /* 0; 1 for Gemma */
} xray_rmsnorm;

/* From dy and the normed input x: dx (+)= ..., dweight += sum over tokens in
 * order, then groups. dx may be dy when accumulate is 0. */
typedef struct xray_rmsnorm_grad {
    xray_header header;
    xray_extent tokens;
    const float *x;      /* [dev] what was normed (after the residual add) */
    const float *weight; /* [dev] */
    const float *rstd;   /* [dev] [tokens, groups] */
    const float *dy;     /* [dev] */
    float *dx;           /* [dev] */
    float *dweight;      /* [dev] [dim] */
    uint64_t x_stride;
    uint64_t dy_stride;
    uint64_t dx_stride;
    uint32_t groups;
    uint32_t dim;
    uint32_t accumulate; /* 1: dx += */
    float offset;
} xray_rmsnorm_grad;

/* LayerNorm over the last dimension: y = (x - mean) * rstd * w + b, with rstd =
 * 1/sqrt(mean((x - mean)^2) + eps). y may be x. */
typedef struct xray_layernorm {
    xray_header header;
    xray_extent tokens;
    const float *x;      /* [dev] token t at x + t * x_stride */
    const float *weight; /* [dev] [dim] */
    const float *bias;   /* [dev] [dim] or NULL */
    float *y;            /* [dev] token t at y + t * y_stride */
    float *stat;         /* [dev] [tokens, 2] mean, rstd; or NULL */
    uint64_t x_stride;
    uint64_t y_stride;
    uint32_t dim;
    float eps;
} xray_layernorm;

/* From dy and the normed input x: dx (+)= ..., dweight and dbias += sums over
 * tokens in order. dx may be dy when accumulate is 0. */
typedef struct xray_layernorm_grad {
    xray_header header;
    xray_extent tokens;
    const float *x;      /* [dev] */
    const float *weight; /* [dev] */
    const float *stat;   /* [dev] [tokens, 2] */
    const float *dy;     /* [dev] */
    float *dx;           /* [dev] */
    float *dweight;      /* [dev] [dim] */
    float *dbias;        /* [dev] [dim] or NULL */
    uint64_t x_stride;
    uint64_t dy_stride;
    uint64_t dx_stride;
    uint32_t dim;
    uint32_t accumulate; /* 1: dx += */
} xray_layernorm_grad;

/* Fills table[p, i] = (cos, sin)(p * inv_freq[i]) * scale for p < positions. */
typedef struct xray_rope_table {
    xray_header header;
    const double *inv_freq; /* host memory, [half] */
    float *table;           /* [dev] [positions, half, 2] */
    uint64_t positions;
    uint32_t half;
    float scale;
} xray_rope_table;

/* Rotates pairs (x[i], x[i + half]) of every head, in place; inverse = 1 turns
 * the other way, which is the backward pass. */
typedef struct xray_rope {
    xray_header header;
    xray_extent tokens;
    float *x;                 /* [dev] token t at x + t * stride */
    const int32_t *positions; /* [dev] [tokens] */
    const float *table;       /* [dev] */
    uint64_t stride;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t half; /* rotary dimensions / 2 */
    uint32_t inverse;
} xray_rope;

#define XRAY_ACT_SILU 1u
#define XRAY_ACT_GELU_TANH 2u

/* y[t, i] = act(x[t, i]) * x[t, dim + i]; plain = 1: y[t, i] = act(x[t, i]),
 * and x is [tokens, dim]. */
typedef struct xray_glu {
    xray_header header;
    xray_extent tokens;
    const float *x; /* [dev] [tokens, 2 * dim] gate, then up */
    float *y;       /* [dev] [tokens, dim] */
    uint32_t dim;
    uint32_t act;
    uint32_t plain;
    uint32_t reserved;
} xray_glu;

typedef struct xray_glu_grad {
    xray_header header;
    xray_extent tokens;
    const float *x;  /* [dev] [tokens, 2 * dim] */
    const float *dy; /* [dev] [tokens, dim] */
    float *dx;       /* [dev] [tokens, 2 * dim]; may be x */
    uint32_t dim;
    uint32_t act;
    uint32_t plain; /* 1: x and dx are [tokens, dim] */
    uint32_t reserved;
} xray_glu_grad;

/* ---- attention ---------------------------------------------------------- */

/* Causal attention within each row of a packed batch. Head h of q reads head
 * h / (heads / kv_heads) of k and v. Token t's heads lie one after the other at
 * q + t * q_stride.
 *
 * With `parent`, row r goes on from row parent[r]: it sees that row's tokens as
 * if they stood before its own, and its bits are those of the joined row. A
 * parent has none itself, and its children follow it, one after the other. The
 * gradient of a parent's keys and values is one chain over the queries of the
 * parent, then of its children in order (of a row: head by head). For devices
 * whose `info` says XRAY_DEVICE_PARENTS. */
typedef struct xray_attention {
    xray_header header;
    xray_extent tokens;
    const int32_t *row_start; /* [dev] [rows + 1] */
    uint64_t rows;
    uint64_t row_bound; /* no row, with its parent, is longer */
    const float *q;     /* [dev] */
    const float *k;     /* [dev] */
    const float *v;     /* [dev] */
    float *o;           /* [dev] */
    float *lse;         /* [dev] [tokens, heads] log-sum-exp of scaled scores,
                         * kept for backward; or NULL */
    uint64_t q_stride;
    uint64_t k_stride;
    uint64_t v_stride;
    uint64_t o_stride;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t window; /* keys seen, the own one included; 0: all */
    float scale;
    float softcap;         /* 0: none */
    const int32_t *parent; /* [dev] [rows] a row before it, or -1; NULL: no row
                            * has any */
} xray_attention;

/* dq, dk, dv are overwritten; they share strides with q, k, v. */
typedef struct xray_attention_grad {
    xray_header header;
    const xray_attention *forward; /* the call, with o and lse filled */
    const float *d_o;              /* [dev] strides as o */
    float *dq;                     /* [dev] token t at dq + t * dq_stride */
    float *dk;                     /* [dev] */
    float *dv;                     /* [dev] */
    uint64_t dq_stride;
    uint64_t dk_stride;
    uint64_t dv_stride;
} xray_attention_grad;

/* Keys and values of one layer, in blocks of block_tokens positions. Sequence s
 * keeps positions [b * block_tokens, ...) in block table[s * table_stride + b],
 * or s * table_stride + b where table is NULL: then slots are contiguous. What
 * a block looks like inside is the device's affair; kv_block_bytes gives its
 * size for k and v together, and blocks may be copied whole. */
typedef struct xray_kv {
    xray_header header;
    void *blocks;         /* [dev] block i at blocks + i * kv_block_bytes */
    const int32_t *table; /* [dev] or NULL */
    uint64_t table_stride;
    uint32_t block_tokens; /* a multiple of 16 */
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t dtype;
} xray_kv;

/* Stores k and v of new tokens, then attends: token t belongs to sequence
 * seq[t], sits at positions[t], and sees the positions up to its own. All keys
 * of the call are stored before any query reads, so prompts run whole or in
 * chunks and give the same bits as xray_attention. */
typedef struct xray_attention_kv {
    xray_header header;
    xray_extent tokens;
    const xray_kv *kv;
    const int32_t *seq;       /* [dev] [tokens] */
    const int32_t *positions; /* [dev] [tokens] */
    const float *q;           /* [dev] */
    const float *k;           /* [dev] */
    const float *v;           /* [dev] */
    float *o;                 /* [dev] */
    uint64_t q_stride;
    uint64_t k_stride;
    uint64_t v_stride;
    uint64_t o_stride;
    uint64_t position_bound; /* no position is as large */
    uint32_t heads;
    uint32_t window;
    float scale;
    float softcap;
} xray_attention_kv;

/* ---- head: from hidden states to log-probabilities ---------------------- */

/* Of item i: z = (x[i] . W^T) / temperature[i]; logp = z[target] - lse(z),
 * entropy = lse(z) - sum softmax(z) z, in nats. Logits are fp32 and exist for a
 * chunk of items, or in `logits` for lm_head_grad, which uses them up; a device
 * may as well compute them twice. With `partial`, W holds the vocabulary slice
 * [vocab_first, vocab_first + rows) and its four sums are given instead:
 * max z, sum exp(z - max), sum exp(z - max) z, z[target] (0 if elsewhere). */
typedef struct xray_lm_head_logp {
    xray_header header;
    xray_extent items;
    const xray_weight *weight; /* [vocab, dim] */
    const float *x;            /* [dev] [items, dim] */
    const int32_t *targets;    /* [dev] [items] */
    const float *temperature;  /* [dev] [items] or NULL: all 1 */
    float *logp;               /* [dev] [items] */
    float *entropy;            /* [dev] [items] or NULL */
    float *lse;                /* [dev] [items] kept for backward, or NULL */
    float *partial;            /* [dev] [items, 4] or NULL */
    uint64_t vocab_first;
    float softcap; /* 0: none */
    uint32_t reserved;
    float *logits; /* [dev] [items, vocab to a multiple of 16] or NULL */
} xray_lm_head_logp;

/* dz_j = (dlogp (1[j = target] - p_j) - dentropy p_j (log p_j + H)) /
 * temperature; dx = dz . W; dweight += dz^T . x, in item order. */
typedef struct xray_lm_head_grad {
    xray_header header;
    const xray_lm_head_logp
        *forward;          /* the call, with lse and entropy filled */
    const float *dlogp;    /* [dev] [items] */
    const float *dentropy; /* [dev] [items] or NULL: all 0 */
    float *dx;             /* [dev] [items, dim], overwritten */
    float *dweight;        /* [dev] [vocab, dim] */
} xray_lm_head_grad;

/* Where a draw's random numbers come from: Philox4x32-10 with key `key` and
 * counter (token / 4, position, sample, 0), word token % 4. */
typedef struct xray_draw {
    uint64_t key; /* of seed, step and prompt id: xray_philox_key,
                   * <xray/numerics.h> */
    uint32_t sample;
    uint32_t position; /* of the token that is drawn, from the row's start */
    float temperature; /* 0: the most likely token, lowest id first */
    float top_p;       /* 1: off */
    float min_p;       /* 0: off */
    int32_t top_k;     /* 0: off */
} xray_draw;

/* Gumbel-max: token = argmax over the support of z + g, z = logits /
 * temperature, g = -log(-log u). The support is cut by min_p, then top_k, then
 * top_p; ties with the last kept token stay in. raw_logp is at temperature 1
 * over the whole vocabulary, logp at the draw's temperature over the whole
 * vocabulary (temperature 0: equal to raw_logp). */
typedef struct xray_sample {
    xray_header header;
    xray_extent items;
    const xray_weight *weight; /* [vocab, dim] */
    const float *x;            /* [dev] [items, dim] */
    const xray_draw *draws;    /* [dev] [items] */
    int32_t *token;            /* [dev] [items] */
    float *raw_logp;           /* [dev] [items] */
    float *logp;               /* [dev] [items] */
    float *logits;             /* [dev] [items, vocab] or NULL: kept if asked */
    float softcap;
    uint32_t draw_stride; /* sizeof(xray_draw) */
} xray_sample;

/* ---- elementwise, optimizer --------------------------------------------- */

/* y[i] = alpha * x[i] + beta * y[i]. */
typedef struct xray_axpby {
    xray_header header;
    uint64_t count;
    const float *x; /* [dev] or NULL: 0 */
    float *y;       /* [dev] */
    float alpha;
    float beta;
} xray_axpby;

typedef struct xray_cast {
    xray_header header;
    uint64_t count;
    const void *x; /* [dev] */
    void *y;       /* [dev] */
    uint32_t x_dtype;
    uint32_t y_dtype;
} xray_cast;

/* result[0] += sum of squares of x (double: fixed blocks of 4096 elements, each
 * folded as a row sum, added in order); result[1] += number of entries that
 * are not finite. */
typedef struct xray_sumsq {
    xray_header header;
    uint64_t count;
    const float *x; /* [dev] */
    double *result; /* [dev] [2] */
} xray_sumsq;

/* AdamW, decoupled decay: p -= lr wd p; m = b1 m + (1-b1) g; v = b2 v + (1-b2)
 * g^2; p -= lr (m / c1) / (sqrt(v / c2) + eps), with g scaled by `clip`. */
typedef struct xray_adamw {
    xray_header header;
    uint64_t count;
    float *p;       /* [dev] fp32 master */
    const float *g; /* [dev] */
    float *m;       /* [dev] */
    float *v;       /* [dev] */
    void *out;      /* [dev] p in out_dtype, or NULL */
    /* [dev] [4]: lr, clip, c1 = 1 - b1^t, c2 = 1 - b2^t */
    const float *scalars;
    float beta1;
    float beta2;
    float eps;
    float weight_decay;
    uint32_t out_dtype;
    uint32_t reserved;
} xray_adamw;

/* ---- the instance ------------------------------------------------------- */

typedef struct xray_device_ops {
    xray_header header;

    /* Pure: what an instance with these options would offer. What cannot work
     * is refused through host->fail with XRAY_E_CONFIG. [any] */
    xray_status (*plan)(const xray_host *host, const void *config,
                        xray_device_plan *out);

    /* `threads`: of [run], 0 for one a core. On failure *out_self is untouched.
     * [control] */
    xray_status (*create)(const xray_host *host, const void *config,
                          uint32_t threads, void **out_self);
    void (*destroy)(void *self); /* accepts NULL [control] */
    xray_status (*info)(void *self, xray_device_info *info);

    /* Memory, 64-byte aligned, zeroed. `owner` names an instance in messages.
     * [control] [may-block] */
    xray_status (*alloc)(void *self, const char *owner, uint32_t tag,
                         uint64_t bytes, void **out);
    void (*free)(void *self, void *ptr); /* accepts NULL */
    xray_status (*memory)(void *self, xray_memory_stats *stats);
    xray_status (*copy)(void *self, xray_stream *stream, void *to,
                        const void *from, uint64_t bytes, uint32_t kind);
    xray_status (*zero)(void *self, xray_stream *stream, void *ptr,
                        uint64_t bytes);
    /* A 64-bit sum of the bytes, the same on every device. [may-block] */
    xray_status (*checksum)(void *self, const void *ptr, uint64_t bytes,
                            uint64_t *out);

    xray_status (*stream_create)(void *self, xray_stream **out);
    void (*stream_destroy)(void *self, xray_stream *stream);
    xray_status (*sync)(void *self, xray_stream *stream); /* [may-block] */
    xray_status (*event_create)(void *self, xray_event **out);
    void (*event_destroy)(void *self, xray_event *event);
    xray_status (*event_record)(void *self, xray_stream *stream,
                                xray_event *event);
    xray_status (*event_wait)(void *self, xray_stream *stream,
                              xray_event *event);

    /* Matrices. `changed` says that data holds new values: packed copies are
     * made again before the next product. */
    xray_status (*weight_create)(void *self, const xray_weight_desc *desc,
                                 xray_weight **out);
    void (*weight_destroy)(void *self, xray_weight *weight);
    xray_status (*weight_changed)(void *self, xray_weight *weight);
    uint64_t (*kv_block_bytes)(void *self, const xray_kv *kv);

    /* Operators. [stream] [no-alloc] */
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
    xray_status (*sample)(void *, xray_stream *, const xray_sample *);
    xray_status (*axpby)(void *, xray_stream *, const xray_axpby *);
    xray_status (*cast)(void *, xray_stream *, const xray_cast *);
    xray_status (*sumsq)(void *, xray_stream *, const xray_sumsq *);
    xray_status (*adamw)(void *, xray_stream *, const xray_adamw *);

    /* Optional from here on. */

    /* Graph capture: between begin and end, operators are recorded. */
    xray_status (*graph_begin)(void *self, xray_stream *stream);
    xray_status (*graph_end)(void *self, xray_stream *stream, xray_graph **out);
    xray_status (*graph_launch)(void *self, xray_stream *stream,
                                xray_graph *graph);
    void (*graph_destroy)(void *self, xray_graph *graph);

    /* Memory that processes of this host map, without a copy: blocks made while
     * the instance is shareable. `ptr` may point into one: the handle reaches
     * from there to its end. A handle, XRAY_HANDLE_BYTES opaque bytes, is good
     * while the block lives; `attach` refuses a stale or foreign one. */
    xray_status (*share)(void *self, const void *ptr, uint8_t *out_handle);
    /* The memory behind a handle, at least `bytes`. It stays mapped until
     * `detach` or `destroy`, also when the block's process has ended; a handle
     * of this process gives the block's own address. */
    xray_status (*attach)(void *self, const uint8_t *handle, uint64_t bytes,
                          void **out);

    /* Finds an extension by id. NULL if none. [any] */
    const void *(*extension)(void *self, const char *id);

    void (*detach)(void *self, void *ptr); /* ends one attach; accepts NULL */
    /* 1: blocks from now on can be shared, which may cost large pages; a comm
     * plugin asks for it, an instance without peers pays nothing. [control] */
    xray_status (*shareable)(void *self, uint32_t on);

    /* Takes the memory behind a block from `alloc` away: its address and its
     * handles stay, its values are lost and nothing may use it until `restore`,
     * which gives it memory again, zeroed. Meanwhile it is not counted. What is
     * away or there already stays so; `free` takes both. [control] [may-block]
     */
    xray_status (*evict)(void *self, void *ptr);
    xray_status (*restore)(void *self, void *ptr);
    /* The same for a device's own copies of a matrix; `weight_changed` brings
     * them back. */
    xray_status (*weight_evict)(void *self, xray_weight *weight);

    /* Whether this machine has what `create` needs, without starting it: what
     * is not there is refused as `create` would. [any] */
    xray_status (*probe)(const xray_host *host, const void *config);
} xray_device_ops;

#endif
