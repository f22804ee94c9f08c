/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins what the tensor-parallel ranks of a slice have, over their group.
 */
#ifndef XM_JOIN_H
#define XM_JOIN_H

#include <xray/comm.h>

#include "model/nn/decoder.h"

typedef struct xm_join {
    const xray_comm_ops *comm;
    xray_comm_group *group; /* the ranks, rank r of them having slice r */
    uint32_t ranks;
    uint32_t rank; /* this one */
} xm_join;

/* The `join` of an xm_watch, one collective on the default stream. Where it
 * fails, the text is the one that it gave to its host. */
xray_status xm_join_rows(const xm_join *join, uint32_t what, float *rows,
                         uint64_t tokens, uint64_t dim);

/* The `parts` of an xm_watch: a reduce_scatter, an all_gather, or messages from
 * rank to rank and a broadcast. */
xray_status xm_join_parts(const xm_join *join, const xm_parts *call);

/* Adds up what the ranks that have the same KV head (xm_slice.kv_ranks of them,
 * neighbours) have of its gradients in a bucket [dev]: those of k and v,
 * weights and biases. The sums replace them, so it is called once for all
 * micro-batches, before the bucket is summed over data-parallel ranks. `join`
 * has the group of these ranks. */
xray_status xm_join_kv_grads(const xm_join *join, const xm_layout *layout,
                             uint32_t bucket, float *grads);

#endif
