/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up the gradients of segments of a mini-batch (xray_workload.segments) as
 * one balanced binary tree, of which this rank has a part. The tree is folded
 * like a binary counter: the sum that ends with segment j takes up the sum of
 * each full branch before it, and waits in a spare share until the branch
 * beside it is there. So log2 of the number of segments are enough.
 */
#ifndef XM_TRAIN_FOLDS_H
#define XM_TRAIN_FOLDS_H

#include <xray/setup.h>

#include "model/nn/layout.h"

typedef struct xm_folds {
    uint32_t mode;  /* XRAY_SEGMENTS_* */
    uint32_t count; /* segments of this rank; 0: none are added up */
    uint32_t done;  /* how many of them have been */
    uint32_t begun; /* 1: the present one has had a micro-batch */
    float *spares;  /* [levels, stride] [dev], buckets one after the other */
    uint64_t stride;
    uint64_t *first; /* [bucket_count] the bucket's first element in a spare */
} xm_folds;

/* Returns the elements of all spare shares for `segments` of a mini-batch; 0
 * where a rank has one of them, or none are added up. Pure. */
uint64_t xm_folds_elements(const xm_layout *layout, uint32_t mode,
                           uint32_t segments);

#endif
