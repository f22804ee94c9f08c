/* SPDX-License-Identifier: Apache-2.0
 *
 * Which ranks hold which model.
 */
#ifndef XR_PLACEMENT_H
#define XR_PLACEMENT_H

#include "core/config/sections.h"

/* Ranks of a role, ascending. */
typedef struct xr_ranks {
    uint32_t count;
    uint32_t rank[XR_MAX_RANKS];
} xr_ranks;

typedef struct xr_placement {
    uint32_t size; /* ranks of the run */
    uint32_t reserved;
    xr_ranks actor;
    xr_ranks reference;
    xr_ranks critic;
    xr_ranks reward;
    xr_ranks rollout;
} xr_placement;

/* Resolves [placement]; what is wrong with it goes to `errors`, and the role is
 * on all ranks then. */
void xr_placement_read(const xr_config *config, const xr_run_config *ini,
                       xr_placement *out, xr_errors *errors);
/* A rank's place among those of a role, or -1. */
int64_t xr_ranks_find(const xr_ranks *ranks, uint32_t rank);
int xr_ranks_equal(const xr_ranks *a, const xr_ranks *b);

#endif
