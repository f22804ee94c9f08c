/* SPDX-License-Identifier: Apache-2.0
 *
 * Logits of the LM head, one chunk of items at a time, for log-probabilities,
 * their gradient and sampling.
 */
#ifndef CUDA_LM_HEAD_H
#define CUDA_LM_HEAD_H

#include "plugins/device-cuda/product.h"

typedef struct lm_head_chunk {
    const char *where;
    const xray_weight *weight; /* NULL: the logits are given */
    const void *x;             /* [items, dim] */
    const int32_t *live;
    float *kept;  /* [items, row], or NULL: each chunk in scratch */
    float *z;     /* [count, row] logits of this chunk */
    uint16_t *dz; /* bfloat16: the gradient, [count, row of the vocabulary] */
    /* bfloat16: x of this chunk, rounded; NULL: the tensor cores read x as it
     * is */
    uint16_t *x_low;
    uint64_t vocab;
    uint64_t row;   /* floats per row of z */
    uint64_t most;  /* items per chunk */
    uint64_t first; /* the item of the chunk's first row */
    uint64_t count;
    uint32_t x_dtype; /* XRAY_F32 or XRAY_BF16 */
    uint32_t reserved;
} lm_head_chunk;

/* The items of a chunk whose rows have `row` floats: 640 MiB of logits, but 16
 * to 1024 items, complete tiles of a product where possible. Each chunk reads
 * and writes the gradient of the matrix once. */
static inline uint64_t lm_head_chunk_items(uint64_t row)
{
    uint64_t most = ((uint64_t)160 << 20) / row;
    most = most > 1024 ? 1024 : most;
    most = most >= 128 ? most / 128 * 128 : most / 16 * 16;
    return most < 16 ? 16 : most;
}

/* Refuses a vocabulary that does not fit the stride of its logits. */
xray_status cuda_check_logits(const cuda_device *d, const char *where,
                              uint64_t vocab, uint64_t stride);

/* Refuses segments of a vocabulary that are too many. */
xray_status cuda_check_segment(const cuda_device *d, const char *where,
                               uint64_t vocab, uint64_t segment);

/* Reserves scratch for a chunk; with `gradient` for dz as well. */
xray_status lm_head_reserve(cuda_device *d, lm_head_chunk *c, int gradient);

/* Advances to the next chunk of n items; returns 0 if there is none. c->count
 * is 0 before the first call. */
int lm_head_next_chunk(lm_head_chunk *c, uint64_t n);

/* In bfloat16: rounds x of the chunk, unless it can be read as it is. */
xray_status lm_head_round_x(cuda_device *d, cudaStream_t stream,
                            lm_head_chunk *c);

/* Computes z of the chunk. */
xray_status lm_head_logits(cuda_device *d, cudaStream_t stream,
                           lm_head_chunk *c);

#endif
