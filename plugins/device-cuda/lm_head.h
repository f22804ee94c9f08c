/* SPDX-License-Identifier: Apache-2.0
 *
 * The logits of a chunk of items, for log-probabilities, their gradient and
 * draws.
 */
#ifndef CUDA_LM_HEAD_H
#define CUDA_LM_HEAD_H

#include "plugins/device-cuda/product.h"

typedef struct head_chunk {
    const char *where;
    const xray_weight *weight;
    const float *x; /* [items, dim] */
    const int32_t *live;
    float *kept;  /* [items, row], or NULL: chunk by chunk in scratch */
    float *z;     /* [count, row] of this chunk */
    uint16_t *dz; /* bfloat16: the gradient, [count, row of the vocabulary] */
    uint16_t *x_low; /* bfloat16: x of this chunk */
    uint64_t row;    /* floats of a row of z */
    uint64_t most;   /* items of a chunk */
    uint64_t first;  /* item of the chunk's first row */
    uint64_t count;
} head_chunk;

/* Room for a chunk; `gradient`: for dz as well. */
xray_status head_begin(cuda_device *d, head_chunk *c, int gradient);

/* The next chunk of n items: 0 if there is none. The first time c->count is 0.
 */
int head_next(head_chunk *c, uint64_t n);

/* bfloat16: rounds x of the chunk. */
xray_status head_round(cuda_device *d, cudaStream_t stream, head_chunk *c);

/* z of the chunk. */
xray_status head_logits(cuda_device *d, cudaStream_t stream, head_chunk *c);

#endif
