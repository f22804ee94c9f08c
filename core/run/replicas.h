/* SPDX-License-Identifier: Apache-2.0
 *
 * The replicas of a role. A replica is the ranks that hold one model together:
 * replica r has the ranks of the role at the positions r * width to
 * (r + 1) * width - 1. All of them make the same calls, and one of them answers
 * for all.
 */
#ifndef XR_REPLICAS_H
#define XR_REPLICAS_H

#include "core/run/run.h"

typedef struct xr_replicas {
    const xr_ranks *ranks; /* of the role */
    uint32_t width;        /* ranks of a replica */
    uint32_t count;
    uint32_t answers; /* position in a replica of the rank that answers */
    uint32_t reserved;
} xr_replicas;

/* Returns the replicas of a role. A run whose layouts are not known yet has one
 * replica per rank. */
xr_replicas xr_replicas_of(const xr_run *run, uint32_t role);
/* Returns the rank that answers for replica r. */
uint32_t xr_replicas_answering(const xr_replicas *replicas, uint32_t r);
/* Returns 1 if the rank answers for its replica, 0 if another one does. */
int xr_rank_answers(const xr_run *run, uint32_t role, uint32_t rank);
/* Returns 1 if two roles are held by the same ranks in the same layout, so that
 * each rank holds the same part of both models. */
int xr_replicas_match(const xr_run *run, uint32_t role, uint32_t other);

#endif
