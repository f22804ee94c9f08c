/* SPDX-License-Identifier: Apache-2.0
 *
 * Inside a WholeModel.
 */
#ifndef XR_WHOLE_INNER_H
#define XR_WHOLE_INNER_H

#include "core/actor/actor.h"
#include "core/roles/balance.h"
#include "core/roles/whole.h"

/* A Workhorse, and its part of the call in progress. */
typedef struct xr_horse {
    xr_actor *actor;
    xr_future *future; /* of the call in progress */
    xray_region *region;
    uint32_t rows;
    uint32_t tokens;
    uint32_t skipped; /* of a step */
    double norm;
    uint64_t version;
    xr_str bad;
    xr_str memory;
} xr_horse;

struct xr_whole {
    const xr_run *run;
    xr_actors *actors;
    uint32_t size;
    uint32_t broken; /* 1: a call failed, the ranks are out of step */
    xr_horse horse[XR_MAX_RANKS];
    xr_balance balance;
    uint32_t row_cap;
    uint32_t reserved;
    uint64_t ship_bytes; /* of the weights for other ranks; 0: not asked yet */
    double per_token;    /* c of a row's cost s * s + c * s */
    uint32_t *unit;      /* [row_cap] rows of one unit go to one replica */
    double *cost;        /* [row_cap] of a unit */
    uint32_t *part;      /* [row_cap] the replica a unit goes to */
    uint32_t *start;     /* [row_cap + 1] a row's first token */
    xr_views views;      /* one replica's micro-batches, to be counted */
};

/* Waits for the calls in progress on these ranks and frees their futures. The
 * first error ends the wait, since other ranks may be in a collective with the
 * one that failed: the models are out of step then. `sent` is how the sending
 * went: where a call did not reach its rank, nothing is waited for, and the
 * models are out of step as well. */
xray_status xr_whole_wait(xr_whole *whole, const xr_ranks *ranks,
                          xray_status sent, xr_err *err);
/* The same for calls in which no rank waits for another: an error of one lets
 * the others finish, and the models stay fit. `stop` (or NULL) at 2: XRAY_END.
 */
xray_status xr_whole_wait_each(xr_whole *whole, const xr_ranks *ranks,
                               xray_status sent,
                               const volatile sig_atomic_t *stop, xr_err *err);
/* XRAY_E_PEER after a call has failed. */
xray_status xr_whole_check_fit(const xr_whole *whole, xr_err *err);
/* The futures of calls in progress are given up. */
void xr_whole_drop_calls(xr_whole *whole);
/* The regions of a call go back to the pool. */
void xr_whole_put_regions(xr_whole *whole);

/* The calls with a batch: core/roles/whole_batch.c. */
xray_status xr_whole_forward(xr_roles *roles, uint32_t role,
                             const xr_views *views, uint32_t outputs,
                             const xray_outputs *out, xr_err *err);
xray_status xr_whole_gradients(xr_roles *roles, uint32_t role,
                               const xr_views *views, const xr_loss_spec *spec,
                               xr_err *fault, xr_err *err);
/* As xr_samples_generate, the prompts dealt to the engines. */
xray_status xr_whole_generate(xr_roles *roles, xr_samples *samples,
                              const xr_row *const *rows, uint32_t count,
                              const xr_sampling *how,
                              const volatile sig_atomic_t *stop, xr_err *err);

#endif
