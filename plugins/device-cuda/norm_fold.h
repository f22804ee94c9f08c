/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches the parameter gradients of the norms (norm_fold.cu).
 */
#ifndef CUDA_NORM_FOLD_H
#define CUDA_NORM_FOLD_H

#include "plugins/device-cuda/device.h"

/* A row is one group of one token. */
typedef struct norm_fold {
    const void *x;
    const float *dy;
    const float *stat; /* rstd per row; if centred: mean, rstd */
    float *dweight;    /* [groups / run, dim] or NULL */
    float *dbias;      /* [dim] or NULL, centred only */
    xray_extent tokens;
    uint64_t x_stride;
    uint64_t dy_stride;
    uint32_t groups;
    uint32_t run; /* groups of a segment; it divides groups */
    uint32_t dim;
    uint32_t x_dtype;
} norm_fold;

/* dweight = fma(dy, xh, dweight) and dbias = dbias + dy over tokens, then
 * the groups of a segment; xh = x rstd or, where centred, (x - mean) rstd. */
void norm_fold_start(const cuda_device *d, cudaStream_t stream,
                     const norm_fold *f, int centred);

#endif
