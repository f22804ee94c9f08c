/* SPDX-License-Identifier: Apache-2.0
 *
 * Lays out the parameters of a decoder in flat buckets, one per block, so that
 * ZeRO and Megatron can partition the same buckets. Bucket 0 holds the
 * embedding and learned positions, bucket 1 + l block l, and the last one the
 * final norm, an untied lm_head and the value head. q, k and v are adjacent,
 * and so are gate and up: each group is one matrix to a product.
 */
#ifndef XM_LAYOUT_H
#define XM_LAYOUT_H

#include <stdint.h>

#include "core/base/err.h"
#include "model/hf/config.h"

#define XM_NAME_CAP 96
#define XM_VALUE_HEAD "value_head.weight" /* [1, hidden]; not a HF name */

/* Consecutive rows of a tensor. */
typedef struct xm_row_piece {
    uint64_t first;
    uint64_t rows;
} xm_row_piece;

/* Most pieces that a slice of a model has of a tensor: of q, k and v. */
#define XM_PIECES 3u

typedef struct xm_param {
    char name[XM_NAME_CAP]; /* HF name */
    /* The shape in memory: of a slice of a model, that of the part which the
     * slice has. */
    uint64_t rows;
    uint64_t cols; /* 0: a vector of `rows` */
    uint64_t count;
    /* The part of the tensor that it is: columns from col_first on of rows in
     * so many pieces. A part that is all of the tensor is one piece. */
    uint64_t all_rows;
    uint64_t all_cols;
    uint64_t col_first;
    xm_row_piece pieces[XM_PIECES];
    uint32_t piece_count;
    /* So many elements are here alone or here first: of several tensor-parallel
     * ranks or stages that have an element, the first one saves it and counts
     * it in norms. The elements after them are copies. */
    uint64_t own;
    /* The elements from this one on are of a KV head that several ranks have
     * (xm_slice.kv_ranks); its gradient is the sum of theirs. `count` if there
     * are none. */
    uint64_t shared;
    uint64_t offset; /* in elements from the bucket's start; a multiple of 16
                      * unless `joined` */
    uint32_t bucket;
    int32_t matrix;      /* index of the matrix that contains it; -1: none */
    uint64_t matrix_row; /* its first row there */
    uint32_t decay;      /* 1: weight decay applies (matrices) */
    uint32_t slot;       /* XM_* of model/hf/param_slots.h */
    uint32_t joined; /* 1: directly follows the previous parameter and forms one
                      * matrix or vector with it: k after q, v after k, up after
                      * gate */
    uint32_t transposed; /* 1: stored as [cols, rows] in files */
} xm_param;

typedef struct xm_matrix {
    uint64_t rows;
    uint64_t cols;
    uint64_t offset;
    uint32_t bucket;
    uint32_t product_dtype; /* as in xray_weight_desc */
} xm_matrix;

typedef struct xm_layout {
    xm_param *params;
    uint32_t param_count;
    uint32_t matrix_count;
    xm_matrix *matrices;
    uint64_t *bucket_sizes; /* elements, padded to 16 */
    uint32_t bucket_count;  /* layers + 2 */
    uint32_t sliced;        /* 1: of one of several tensor-parallel ranks */
    uint32_t stage;         /* 1: the model has layers that are not here */
    /* How the buckets are partitioned; set after creation by whoever partitions
     * them. */
    uint32_t ranks;  /* equal shares of each bucket; 0 and 1: not partitioned */
    uint32_t rank;   /* the rank to whose share functions refer */
    uint32_t frozen; /* buckets below it have no gradients and moments; 1: a
                      * stage whose blocks are trained may have stages before
                      * it that need the gradient of what they gave */
} xm_layout;

/* Elements [first, first + count) of a bucket. */
typedef struct xm_range {
    uint64_t first;
    uint64_t count;
} xm_range;

/* Elements that a bucket occupies when each rank's share is a multiple of 64
 * bytes. Elements past the bucket's size are 0. */
static inline uint64_t xm_bucket_capacity(const xm_layout *layout,
                                          uint32_t bucket)
{
    uint64_t unit = 16 * (uint64_t)(layout->ranks ? layout->ranks : 1);
    return (layout->bucket_sizes[bucket] + unit - 1) / unit * unit;
}

/* The rank's share of a bucket's capacity; all of it where there is one rank.
 */
static inline xm_range xm_bucket_share(const xm_layout *layout, uint32_t bucket)
{
    uint64_t count = xm_bucket_capacity(layout, bucket);
    if (layout->ranks < 2)
        return (xm_range){ 0, count };
    count /= layout->ranks;
    return (xm_range){ layout->rank * count, count };
}

/* The part of a parameter that lies in a range of its bucket, counted from the
 * parameter's start. */
static inline xm_range xm_param_in(const xm_param *param, xm_range range)
{
    uint64_t end = param->offset + param->count;
    uint64_t last = range.first + range.count;
    uint64_t from = param->offset > range.first ? param->offset : range.first;
    uint64_t to = end < last ? end : last;
    return (xm_range){ from < to ? from - param->offset : 0,
                       from < to ? to - from : 0 };
}

/* Maps element `first` of a parameter in memory to *out, its number in the
 * entire tensor, and returns how many elements from there on lie side by side
 * in both. */
uint64_t xm_param_run(const xm_param *param, uint64_t first, uint64_t *out);
/* Maps row `row` of a parameter in memory to *out, its number in the entire
 * tensor, and returns how many rows from there on are neighbours in both. */
uint64_t xm_param_rows(const xm_param *param, uint64_t row, uint64_t *out);
/* Makes a parameter whose shape is set the entire tensor. */
void xm_param_make_whole(xm_param *param);

/* A nonzero `value_head` adds XM_VALUE_HEAD where the last layer is. */
xray_status xm_layout_create(const xm_config *config, int value_head,
                             xr_err *err, xm_layout **out);
void xm_layout_destroy(xm_layout *layout); /* accepts NULL */
const xm_param *xm_layout_find(const xm_layout *layout, const char *name);
/* Returns the uses of matrix number `matrix`, XRAY_USE_*. Gradients flow
 * through no frozen bucket but that of a tied lm_head. */
uint32_t xm_layout_uses(const xm_layout *layout, uint32_t matrix,
                        int trainable);
/* The parameter at a slot of a bucket, or NULL. */
const xm_param *xm_layout_at(const xm_layout *layout, uint32_t bucket,
                             uint32_t slot);

#endif
