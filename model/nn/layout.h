/* SPDX-License-Identifier: Apache-2.0
 *
 * Where each parameter of a decoder lies: flat buckets, one a block, so that
 * ZeRO and Megatron can cut the same buckets. Bucket 0 holds the embedding,
 * bucket 1 + l block l, the last one the final norm, the output head when
 * untied, and the value head; learned positions lie with the embedding. q, k
 * and v lie behind one another, and so do gate and up: each run is one matrix
 * of products.
 */
#ifndef XM_LAYOUT_H
#define XM_LAYOUT_H

#include <stdint.h>

#include "core/base/err.h"
#include "model/hf/config.h"

#define XM_NAME_CAP 96
#define XM_VALUE_HEAD "value_head.weight" /* [1, hidden]; not a HF name */

typedef struct xm_param {
    char name[XM_NAME_CAP]; /* HF name */
    uint64_t rows;
    uint64_t cols; /* 0: a vector of `rows` */
    uint64_t count;
    uint64_t offset; /* elements into the bucket; a matrix starts at 16 n */
    uint32_t bucket;
    int32_t matrix;      /* index of the matrix that covers it, -1: none */
    uint64_t matrix_row; /* its first row there */
    uint32_t decay;  /* 1: weight decay applies (matrices), 0: norms, biases */
    uint32_t slot;   /* its place: model/hf/param_slots.h */
    uint32_t joined; /* 1: lies right behind the parameter before it, as one
                      * matrix or vector: k and v behind q, up behind gate */
    uint32_t transposed; /* 1: lies [cols, rows] in files */
    uint32_t reserved;
} xm_param;

typedef struct xm_matrix {
    uint64_t rows;
    uint64_t cols;
    uint64_t offset;
    uint32_t bucket;
    uint32_t reserved;
} xm_matrix;

typedef struct xm_layout {
    xm_param *params;
    uint32_t param_count;
    uint32_t matrix_count;
    xm_matrix *matrices;
    uint64_t *bucket_sizes; /* elements, padded to 16 */
    uint32_t bucket_count;  /* layers + 2 */
    /* How buckets are cut; set behind create by who cuts them. */
    uint32_t ranks;  /* equal shares of each bucket, 0 and 1: not cut */
    uint32_t rank;   /* whose share is spoken of */
    uint32_t frozen; /* buckets below it have no gradients and no moments */
} xm_layout;

/* Elements [first, first + count) of a bucket. */
typedef struct xm_range {
    uint64_t first;
    uint64_t count;
} xm_range;

/* Elements that a bucket takes with equal shares of whole lines: what lies
 * behind its size is 0. */
static inline uint64_t xm_bucket_capacity(const xm_layout *layout,
                                          uint32_t bucket)
{
    uint64_t unit = 16 * (uint64_t)(layout->ranks ? layout->ranks : 1);
    return (layout->bucket_sizes[bucket] + unit - 1) / unit * unit;
}

/* The rank's share of a bucket's room; of one rank, all. */
static inline xm_range xm_bucket_share(const xm_layout *layout, uint32_t bucket)
{
    uint64_t count = xm_bucket_capacity(layout, bucket);
    if (layout->ranks < 2)
        return (xm_range){ 0, count };
    count /= layout->ranks;
    return (xm_range){ layout->rank * count, count };
}

/* The elements of a parameter that lie in a range of its bucket, counted from
 * the parameter's start. */
static inline xm_range xm_param_in(const xm_param *param, xm_range range)
{
    uint64_t end = param->offset + param->count;
    uint64_t last = range.first + range.count;
    uint64_t from = param->offset > range.first ? param->offset : range.first;
    uint64_t to = end < last ? end : last;
    return (xm_range){ from < to ? from - param->offset : 0,
                       from < to ? to - from : 0 };
}

/* `value_head` adds XM_VALUE_HEAD. */
xray_status xm_layout_create(const xm_config *config, int value_head,
                             xr_err *err, xm_layout **out);
void xm_layout_destroy(xm_layout *layout); /* accepts NULL */
const xm_param *xm_layout_find(const xm_layout *layout, const char *name);
/* The parameter at a place of a bucket; NULL: there is none. */
const xm_param *xm_layout_at(const xm_layout *layout, uint32_t bucket,
                             uint32_t slot);

#endif
