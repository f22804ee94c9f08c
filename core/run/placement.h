/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement: which ranks hold which model.
 */
#ifndef XR_PLACEMENT_H
#define XR_PLACEMENT_H

#include "core/config/sections.h"

/* The ranks of a role, ascending. */
typedef struct xr_ranks {
    uint32_t count;
    uint32_t rank[XR_MAX_RANKS];
} xr_ranks;

enum {
    XR_ENGINE_NONE,
    XR_ENGINE_CHOOSES, /* the hosts of a run that is to be started */
    XR_ENGINE_CHOSE    /* in a Workhorse */
};

typedef struct xr_placement {
    uint32_t size;                /* ranks of the run */
    uint32_t most_here;           /* the most ranks of one host */
    uint32_t hosts;               /* different hosts; 0: the runtime's choice */
    uint32_t elsewhere;           /* 1: not all of them are localhost */
    uint32_t engine;              /* XR_ENGINE_*: whether a launcher places */
    uint32_t host[XR_MAX_RANKS];  /* of each rank: in [placement] hosts */
    uint32_t local[XR_MAX_RANKS]; /* its number among those of its host */
    xr_ranks actor;
    xr_ranks reference;
    xr_ranks critic;
    xr_ranks reward;
    xr_ranks rollout;
} xr_placement;

/* Decodes [placement]. Faults go to `errors`; the role is then placed on all
 * ranks. */
void xr_placement_read(const xr_config *config, const xr_run_config *ini,
                       xr_placement *out, xr_errors *errors);
/* Returns the position of a rank among the ranks of a role, or -1. */
int64_t xr_ranks_find(const xr_ranks *ranks, uint32_t rank);
int xr_ranks_equal(const xr_ranks *a, const xr_ranks *b);

#endif
