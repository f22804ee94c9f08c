/* SPDX-License-Identifier: Apache-2.0
 *
 * xray/operators.h - the operators of "xray.device/0": what each one computes,
 * and the struct of its arguments; <xray/head.h> has those of the LM head and
 * of sampling. <xray/device.h> has the table that calls them, and the rules
 * that hold for all of them.
 *
 * Activations are fp32, or bf16 where a struct names the type of x, of y or of
 * both: 0 and XRAY_F32 stand for fp32. A bf16 input is widened, which is exact,
 * an operator computes in fp32, and a bf16 output is rounded to nearest even as
 * it is stored. Gradients, statistics, logits and weights of norms and biases
 * are fp32. A device refuses a type that it does not compute with
 * (XRAY_E_UNSUPPORTED).
 */
#ifndef XRAY_OPERATORS_H
#define XRAY_OPERATORS_H

#include <xray/abi.h>

/* A matrix, packed for products in the way that suits the device; only the
 * device looks into it. */
typedef struct xray_weight xray_weight;

/* A number of items. */
typedef struct xray_extent {
    uint64_t bound;      /* the most items */
    const int32_t *live; /* [dev] the real number; NULL: `bound` */
} xray_extent;

/* ---- matrix products ---------------------------------------------------- */

#define XRAY_NT 1u /* y[t, rows] = x[t, cols] . W^T: forward */
#define XRAY_NN 2u /* y[t, cols] = x[t, rows] . W: gradient of the input */

/* The uses of a matrix, as a set of bits. A frozen matrix through which
 * gradients flow, as below an adapter, has the first two. */
#define XRAY_USE_NT 1u /* products of kind XRAY_NT; LM head and sampling */
#define XRAY_USE_NN 2u /* products of kind XRAY_NN; dx of lm_head_grad */
#define XRAY_USE_TN 4u /* its own gradient: dweight of lm_head_grad */

/* The matrix W [rows, cols], row-major. The device may keep packed copies for
 * the uses that are named, and refuses the others. */
typedef struct xray_weight_desc {
    xray_header header;
    void *data; /* [dev] remains the caller's */
    uint64_t rows;
    uint64_t cols;
    uint32_t dtype;
    uint32_t uses; /* XRAY_USE_*, at least one */
    /* XRAY_BF16: every product rounds the elements to bf16 first, so that it
     * has the bits of a bf16 matrix; 0: it takes them as they are. */
    uint32_t product_dtype;
    uint32_t reserved;
} xray_weight_desc;

#define XRAY_ACT_SILU 1u
#define XRAY_ACT_GELU_TANH 2u

/* Ranks that share a matrix add up parts of a sum. So that they have the bits
 * of one rank, a sum may be cut into segments, whose number is a power of two
 * up to XRAY_SEGMENTS: each segment is a chain of its own, from 0, and a
 * balanced tree joins them, segment 2i with 2i + 1, then pairs with pairs. A
 * part of the matrix that has some neighbouring segments, a power of two of
 * them, gives their part of the tree. */
#define XRAY_SEGMENTS 8u

/* A product of tokens with a matrix, of kind XRAY_NT or XRAY_NN:
 * y = residual + (alpha x) . W^T + bias, in this order: each element of x is
 * multiplied by alpha and rounded; the chain of an output starts from its
 * residual, or from its bias, or from 0. Where both are given it starts from
 * the bias, and the residual is added to its result. So residual = y adds to
 * y.
 *
 * With `segments` above 1, y = residual + (sum + bias), where the sum is that
 * of the segments. If the summed index goes over several matrices, as over the
 * outputs of q, k and v, `part` has their sizes, each a multiple of `segments`:
 * segment g is one chain over the g-th piece of the first, then of the second,
 * and so on. Not together with `act`.
 *
 * With `act`, which excludes a residual, the outputs are not stored but
 * activated, with the bits that `glu` gives: of 2 n outputs the first n are
 * gates, and y is [tokens, n]; with `plain` there are no gates, and y has all n
 * outputs. If y is bf16, gates and the others are rounded to bf16 before they
 * are activated, as if they had been stored. The kind is XRAY_NT. */
typedef struct xray_matmul {
    xray_header header;
    const xray_weight *weight;
    xray_extent tokens;
    const void *x; /* [dev] row t at element t * x_stride */
    void *y;       /* [dev] */
    uint64_t x_stride;
    uint64_t y_stride;
    const float *bias;    /* [dev] [outputs] or NULL */
    const void *residual; /* [dev] [tokens, outputs] or NULL; it is y with its
                           * stride and type, or does not overlap y */
    uint64_t residual_stride;
    uint32_t kind;     /* XRAY_NT or XRAY_NN */
    float alpha;       /* 0: 1 */
    uint32_t act;      /* XRAY_ACT_*; 0: none */
    uint32_t plain;    /* as in xray_glu; 0 without `act` */
    uint32_t segments; /* of the summed index; 0: 1 */
    uint32_t x_dtype;
    uint64_t part[3]; /* sizes that add up to the summed index; all 0: it is one
                       * part */
    uint32_t y_dtype;
    uint32_t residual_dtype;
} xray_matmul;

/* dw[n, k] += sum_t dy[t, n] x[t, k]; dbias[n] += sum_t dy[t, n]. */
typedef struct xray_matmul_grad {
    xray_header header;
    xray_extent tokens;
    const float *dy; /* [dev] */
    const void *x;   /* [dev] */
    uint64_t dy_stride;
    uint64_t x_stride;
    uint64_t rows;
    uint64_t cols;
    float *dw;    /* [dev] [rows, cols] fp32, row stride cols */
    float *dbias; /* [dev] [rows] or NULL */
    uint32_t x_dtype;
    uint32_t reserved;
} xray_matmul_grad;

/* ---- rows in and out ---------------------------------------------------- */

/* y[t] = table[ids[t] - vocab_first], times `scale`; if y is bf16, the entries
 * of the table are rounded to bf16 before that, too. Where the table is a slice
 * of the vocabulary, ids outside of it give -0, which leaves any sum as it is:
 * the sum over all slices has the bits of the whole table. */
typedef struct xray_embedding {
    xray_header header;
    xray_extent tokens;
    const int32_t *ids; /* [dev] [tokens], each that of a row or, of a slice, at
                         * least 0 */
    const void *table;  /* [dev] [vocab, dim] */
    void *y;            /* [dev] [tokens, dim] */
    uint64_t vocab;     /* rows of the table */
    uint64_t dim;
    float scale;
    uint32_t table_dtype; /* XRAY_F32 (or 0), XRAY_BF16: widened exactly */
    uint64_t vocab_first; /* id of the table's first row */
    uint32_t slice;       /* 1: ids may lie outside of the table */
    uint32_t y_dtype;
} xray_embedding;

/* dtable[ids[t] - vocab_first] += scale * dy[t], in token order; ids outside of
 * a slice are left out. */
typedef struct xray_embedding_grad {
    xray_header header;
    xray_extent tokens;
    const int32_t *ids; /* [dev] */
    const float *dy;    /* [dev] [tokens, dim] */
    float *dtable;      /* [dev] [vocab, dim] */
    uint64_t vocab;
    uint64_t dim;
    float scale;
    uint32_t slice; /* as in xray_embedding */
    uint64_t vocab_first;
} xray_embedding_grad;

/* gather: y[i] = x[index[i]]. scatter: y[index[i]] = x[i], where no index comes
 * twice. */
typedef struct xray_rows {
    xray_header header;
    xray_extent count;
    const int32_t *index; /* [dev] [count] */
    const void *x;        /* [dev] */
    void *y;              /* [dev] */
    uint64_t dim;
    uint32_t dtype; /* of x and y */
    uint32_t reserved;
} xray_rows;

/* ---- norms, positions, activation --------------------------------------- */

/* RMSNorm over the last dimension: y = x * rstd * (w + offset), with rstd =
 * 1/sqrt(mean(x^2) + eps). A token holds `groups` vectors of `dim` elements,
 * one after the other: one vector for the norm of a block, one per head for
 * qk-norm. With `residual`, for which groups is 1, residual += x comes first
 * and the sum, as it is stored, is normed: y = norm(residual). y may be x if
 * both have one type. */
typedef struct xray_rmsnorm {
    xray_header header;
    xray_extent tokens;
    const void *x;       /* [dev] token t at element t * x_stride */
    void *residual;      /* [dev] [tokens, dim] or NULL */
    const float *weight; /* [dev] [dim] */
    void *y;             /* [dev] token t at element t * y_stride */
    float *rstd;         /* [dev] [tokens, groups] kept for backward, or NULL */
    uint64_t x_stride;
    uint64_t y_stride;
    uint32_t groups;
    uint32_t dim;
    float eps;
    float offset; /* 0; 1 for Gemma */
    uint32_t x_dtype;
    uint32_t y_dtype;
    uint32_t residual_dtype;
    uint32_t reserved;
} xray_rmsnorm;

/* The gradients of rmsnorm from dy and the normed input x. dx is set, or added
 * to if `accumulate` is 1; dweight is added to, over tokens in order and the
 * groups within each. dx may be dy if accumulate is 0. */
typedef struct xray_rmsnorm_grad {
    xray_header header;
    xray_extent tokens;
    const void *x;       /* [dev] the normed input, after the residual add */
    const float *weight; /* [dev] */
    const float *rstd;   /* [dev] [tokens, groups] */
    const float *dy;     /* [dev] */
    float *dx;           /* [dev] */
    float *dweight;      /* [dev] [segments, dim] */
    uint64_t x_stride;
    uint64_t dy_stride;
    uint64_t dx_stride;
    uint32_t groups;
    uint32_t dim;
    uint32_t accumulate; /* 1: dx += */
    float offset;
    uint32_t segments; /* sums of dweight, one for each of as many equal runs of
                        * groups; 0: 1 */
    uint32_t x_dtype;
} xray_rmsnorm_grad;

/* LayerNorm over the last dimension: y = (x - mean) * rstd * w + b, with rstd =
 * 1/sqrt(mean((x - mean)^2) + eps). y may be x if both have one type. */
typedef struct xray_layernorm {
    xray_header header;
    xray_extent tokens;
    const void *x;       /* [dev] token t at element t * x_stride */
    const float *weight; /* [dev] [dim] */
    const float *bias;   /* [dev] [dim] or NULL */
    void *y;             /* [dev] token t at element t * y_stride */
    float *stat;         /* [dev] [tokens, 2] mean, rstd; or NULL */
    uint64_t x_stride;
    uint64_t y_stride;
    uint32_t dim;
    float eps;
    uint32_t x_dtype;
    uint32_t y_dtype;
} xray_layernorm;

/* The gradients of layernorm from dy and the normed input x. dx is set, or
 * added to if `accumulate` is 1; dweight and dbias are added to, over tokens in
 * order. dx may be dy if accumulate is 0. */
typedef struct xray_layernorm_grad {
    xray_header header;
    xray_extent tokens;
    const void *x;       /* [dev] */
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
    uint32_t x_dtype;
    uint32_t reserved;
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

/* Rotates the pairs (x[i], x[i + half]) of every head in place. inverse = 1
 * rotates the other way, which is the backward pass. */
typedef struct xray_rope {
    xray_header header;
    xray_extent tokens;
    void *x;                  /* [dev] token t at element t * stride */
    const int32_t *positions; /* [dev] [tokens] */
    const float *table;       /* [dev] */
    uint64_t stride;
    uint32_t heads;
    uint32_t head_dim;
    uint32_t half; /* rotary dimensions / 2 */
    uint32_t inverse;
    uint32_t dtype;
    uint32_t reserved;
} xray_rope;

/* y[t, i] = act(x[t, i]) * x[t, dim + i]; plain = 1: y[t, i] = act(x[t, i]),
 * and x is [tokens, dim]. */
typedef struct xray_glu {
    xray_header header;
    xray_extent tokens;
    const void *x; /* [dev] [tokens, 2 * dim] gate, then up */
    void *y;       /* [dev] [tokens, dim] */
    uint32_t dim;
    uint32_t act;
    uint32_t plain;
    uint32_t x_dtype;
    uint32_t y_dtype;
    uint32_t reserved;
} xray_glu;

/* The gradient of glu with respect to x. */
typedef struct xray_glu_grad {
    xray_header header;
    xray_extent tokens;
    const void *x;   /* [dev] [tokens, 2 * dim] */
    const float *dy; /* [dev] [tokens, dim] */
    float *dx;       /* [dev] [tokens, 2 * dim]; may be an fp32 x */
    uint32_t dim;
    uint32_t act;
    uint32_t plain; /* 1: x and dx are [tokens, dim] */
    uint32_t x_dtype;
} xray_glu_grad;

/* ---- attention ---------------------------------------------------------- */

/* Causal attention within each row of a packed batch. Head h of q reads head
 * h / (heads / kv_heads) of k and v. Token t's heads lie one after the other
 * from element t * q_stride on.
 *
 * With `parent`, row r continues row parent[r]: it sees the tokens of that row
 * as if they stood before its own, and has the bits of the joined row. A parent
 * has no parent itself, and its children follow directly after it. The gradient
 * of a parent's keys and values sums over the queries of the parent and then of
 * its children, in the order of the device's numerics contract. Only devices
 * whose `info` has the feature XRAY_DEVICE_PARENTS do this.
 *
 * With `query_start`, row r has the keys and values of the tokens row_start[r]
 * to row_start[r + 1] - 1, but only some of its queries: those at
 * query_start[r] to query_start[r + 1] - 1 in q, o, lse, d_o and dq, which
 * stand at the positions query_first[r] and following of the row. They have the
 * bits that they have among all queries, and the gradients of keys and values
 * are the part that these queries add. A row may have no queries. Not together
 * with `parent`. */
typedef struct xray_attention {
    xray_header header;
    xray_extent tokens;
    const int32_t *row_start; /* [dev] [rows + 1] */
    uint64_t rows;
    uint64_t row_bound; /* most tokens of a row together with its parent */
    const void *q;      /* [dev] */
    const void *k;      /* [dev] */
    const void *v;      /* [dev] */
    void *o;            /* [dev] */
    float *lse;         /* [dev] [tokens, heads] log-sum-exp of scaled scores,
                         * kept for backward; or NULL */
    uint64_t q_stride;
    uint64_t k_stride;
    uint64_t v_stride;
    uint64_t o_stride;
    uint32_t heads;
    uint32_t kv_heads;
    uint32_t head_dim;
    uint32_t window; /* keys that a query sees, its own included; 0: all */
    float scale;
    float softcap;         /* 0: none */
    const int32_t *parent; /* [dev] [rows] an earlier row, or -1 for none; NULL:
                            * no row has a parent */
    /* The tokens of q, o and lse, with query_start; NULL: all have a query. */
    xray_extent queries;
    const int32_t *query_start; /* [dev] [rows + 1] */
    const int32_t *query_first; /* [dev] [rows] */
    uint32_t dtype;             /* of q, k, v and o */
    uint32_t reserved;
} xray_attention;

/* The gradients of attention. dq, dk and dv are overwritten. */
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

/* The cached keys and values of one layer, in blocks of block_tokens positions.
 * A cache of bf16 is for bf16 keys and values, which it holds without a change.
 * Block b of sequence s, which holds the positions from b * block_tokens on, is
 * block number table[s * table_stride + b], or s * table_stride + b if table is
 * NULL. The device chooses the layout within a block; kv_block_bytes gives the
 * size of a block, keys and values together, and a block may be copied as
 * bytes. */
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

/* Stores the keys and values of new tokens in the cache, then attends. Token t
 * is at positions[t] of sequence seq[t] and sees all positions up to its own.
 * All keys of the call are stored before the first query reads, so a prompt may
 * be computed at once or in chunks and has the bits of xray_attention. */
typedef struct xray_attention_kv {
    xray_header header;
    xray_extent tokens;
    const xray_kv *kv;
    const int32_t *seq;       /* [dev] [tokens] */
    const int32_t *positions; /* [dev] [tokens] */
    const void *q;            /* [dev] */
    const void *k;            /* [dev] */
    const void *v;            /* [dev] */
    void *o;                  /* [dev] */
    uint64_t q_stride;
    uint64_t k_stride;
    uint64_t v_stride;
    uint64_t o_stride;
    uint64_t position_bound; /* above every position */
    uint32_t heads;
    uint32_t window;
    float scale;
    float softcap;
    uint32_t dtype; /* of q, k, v and o */
    uint32_t reserved;
} xray_attention_kv;

/* ---- elementwise, optimizer --------------------------------------------- */

/* y[i] = alpha * x[i] + beta * y[i]. */
typedef struct xray_axpby {
    xray_header header;
    uint64_t count;
    const void *x; /* [dev] or NULL: 0 */
    void *y;       /* [dev] */
    float alpha;
    float beta;
    uint32_t x_dtype;
    uint32_t y_dtype;
} xray_axpby;

/* y[r, i] = x[r, i] in another element type, rounded to nearest even. */
typedef struct xray_cast {
    xray_header header;
    uint64_t count; /* elements of a row */
    const void *x;  /* [dev] */
    void *y;        /* [dev] */
    uint32_t x_dtype;
    uint32_t y_dtype;
    uint64_t rows; /* 0: 1, whose strides are not used */
    /* Elements from a row to the next, at least `count`. */
    uint64_t x_stride;
    uint64_t y_stride;
} xray_cast;

/* Adds the squares of x, exactly, to the sum `result` (<xray/numerics.h>),
 * whose words are carried then: those of 0 at first. */
typedef struct xray_sumsq {
    xray_header header;
    uint64_t count;
    const float *x;   /* [dev] */
    uint64_t *result; /* [dev] [XRAY_SQUARES_WORDS] */
} xray_sumsq;

/* AdamW with decoupled weight decay: p -= lr wd p; m = b1 m + (1-b1) g;
 * v = b2 v + (1-b2) g^2; p -= lr (m / c1) / (sqrt(v / c2) + eps), where g is
 * the gradient times `clip`. */
typedef struct xray_adamw {
    xray_header header;
    uint64_t count;
    float *p;       /* [dev] fp32 master */
    const float *g; /* [dev] */
    float *m;       /* [dev] */
    float *v;       /* [dev] */
    void *out;      /* [dev] out: p as out_dtype, or NULL */
    /* [dev] [4]: lr, clip, c1 = 1 - b1^t, c2 = 1 - b2^t */
    const float *scalars;
    float beta1;
    float beta2;
    float eps;
    float weight_decay;
    uint32_t out_dtype;
    uint32_t reserved;
} xray_adamw;

#endif
