/* SPDX-License-Identifier: Apache-2.0
 *
 * Adds up the gradients of segments of a mini-batch (xray_workload.segments) as
 * one balanced binary tree, of which this rank has a part. The tree is folded
 * like a binary counter: the sum that ends with segment j takes up the sum of
 * each full branch before it, and waits in a spare share until the branch
 * beside it is there. So log2 of the number of segments are enough.
 *
 * The gradients of a tied embedding's look-ups have a tree of their own, and
 * are added to the LM head's after it. So two stages, of which one has the
 * look-ups and one the head, each add up their own, and join them once a step.
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
    uint64_t *first; /* [bucket_count + 1] the bucket's first element in a
                      * spare, and at the end that of the look-ups */
} xm_folds;

/* The number of the look-ups, which are laid out as bucket 0, after those of
 * the buckets. */
static inline uint32_t xm_folds_lookups(const xm_layout *layout)
{
    return layout->bucket_count;
}

/* Returns the elements of all spare shares for `segments` of a mini-batch; 0
 * where a rank has one of them, or none are added up. Pure. */
uint64_t xm_folds_elements(const xm_config *model, const xm_layout *layout,
                           uint32_t mode, uint32_t segments);

#endif
