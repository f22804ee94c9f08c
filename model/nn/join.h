/* SPDX-License-Identifier: Apache-2.0
 *
 * Joins what the tensor-parallel ranks of a slice have, over their group.
 */
#ifndef XM_JOIN_H
#define XM_JOIN_H

#include <xray/comm.h>

#include "model/nn/decoder.h"

/* The first members are set by the owner, before xm_join_open. */
typedef struct xm_join {
    const xray_comm_ops *comm;
    xray_comm_group *group; /* the ranks, rank r of them having slice r */
    const xray_device_ops *device;
    void *device_self;
    uint32_t ranks;
    uint32_t rank;   /* this one */
    float *gathered; /* [dev] [ranks, a piece] */
    float *copy;     /* the same on the host */
} xm_join;

/* Allocates a piece of every rank's maxima (tag WORKSPACE), xm_join_bytes of
 * device memory. */
xray_status xm_join_open(xm_join *join, const char *owner, xr_err *err);
void xm_join_close(xm_join *join); /* accepts one that was never opened */
uint64_t xm_join_bytes(uint32_t ranks);

/* The `join` of an xm_watch. Sums are one all_reduce. Maxima are gathered and
 * compared by the host, since no collective forms them: that waits for the
 * device once for each piece, and moves a float for each token and rank. Where
 * a collective fails, the text is the one that it gave to its host. */
xray_status xm_join_rows(const xm_join *join, uint32_t what, float *rows,
                         uint64_t tokens, uint64_t dim, xr_err *err);

/* The `parts` of an xm_watch: a reduce_scatter, an all_gather, or messages from
 * rank to rank and a broadcast. */
xray_status xm_join_parts(const xm_join *join, const xm_parts *call,
                          xr_err *err);

/* Adds up what the ranks that have the same KV head (xm_slice.kv_ranks of them,
 * neighbours) have of its gradients in a bucket [dev]: those of k and v,
 * weights and biases. The sums replace them, so it is called once for all
 * micro-batches, before the bucket is summed over data-parallel ranks. `join`
 * has the group of these ranks and needs no memory. */
xray_status xm_join_kv_grads(const xm_join *join, const xm_layout *layout,
                             uint32_t bucket, float *grads);

#endif
