/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of a WholeModel, shared by core/roles/whole*.c.
 */
#ifndef XR_WHOLE_INNER_H
#define XR_WHOLE_INNER_H

#include "core/actor/actor.h"
#include "core/roles/balance.h"
#include "core/roles/launched.h"
#include "core/roles/whole.h"
#include "core/run/replicas.h"

/* A Workhorse, and its part of the call in progress. Region, rows, tokens
 * and spans are those of its replica, if it answers for it. */
typedef struct xr_horse {
    xr_actor *actor;
    xr_future *future; /* answer of the call in progress */
    xray_region *region;
    uint32_t rows;
    uint32_t tokens;
    uint32_t spans;
    uint32_t skipped; /* result of a step: 1 if it was skipped */
    double norm;
    uint64_t version;
    uint64_t ship_bytes; /* of its section of a region for the weights */
    uint64_t
        received; /* bytes of weights, by its engine in the last transfer */
    xr_str bad;
    xr_str fault; /* result of gradients: a value that is not finite, or "" */
    xr_str memory;
    xr_str metrics; /* those of its plugins, in the last step */
} xr_horse;

/* For results that come back in the region of the call, which this process has:
 * the answer has brought what was written to it. */
#define XR_NO_REGION ((xray_region **)NULL)

struct xr_whole {
    const xr_run *run;
    xr_actors *actors;
    xr_host *host;         /* of the runtime of several hosts, or NULL */
    xr_launched *launched; /* of the roles; NULL: no engine starts them */
    uint32_t size;
    uint32_t broken; /* 1: a call failed, the ranks are out of step */
    xr_horse horse[XR_MAX_RANKS];
    xr_balance balance;
    uint32_t row_cap;
    uint32_t reserved;
    /* Bytes of a region for the weights; 0: not asked yet. */
    uint64_t ship_bytes;
    double per_token; /* c of a row's cost s * s + c * s */
    /* [row_cap] the unit of a row; its rows go to one replica */
    uint32_t *unit;
    double *cost;    /* [row_cap] cost of a unit */
    uint32_t *part;  /* [row_cap] the replica of a unit */
    uint32_t *start; /* [row_cap + 1] first token of a row */
    xr_views views;  /* micro-batches of one replica, to count them */
    /* Called by a wait after each answer and in between, or NULL; its failure
     * ends the wait. */
    xray_status (*beside)(void *ctx, xr_err *err);
    void *beside_ctx;
};

/* Waits for the calls in progress on these ranks and frees their futures. The
 * first error ends the wait, since other ranks may be in a collective with the
 * failed one; the ranks are out of step then. `sent` is the status of sending
 * the calls: if it is an error, nothing is waited for, and the ranks are out of
 * step as well. */
xray_status xr_whole_wait(xr_whole *whole, const xr_ranks *ranks,
                          xray_status sent, xr_err *err);
/* The same for calls in which no replica waits for another: after an error of
 * one the others finish, and the models stay usable. Within a replica of
 * several ranks this holds for XRAY_E_NUMERIC only, after which its ranks
 * finish, too. */
xray_status xr_whole_wait_each(xr_whole *whole, const xr_replicas *replicas,
                               xray_status sent, xr_err *err);
/* Returns XRAY_E_PEER if an earlier call left the ranks out of step. */
xray_status xr_whole_check_fit(const xr_whole *whole, xr_err *err);
/* Gives up the futures of the calls in progress. */
void xr_whole_drop_calls(xr_whole *whole);
/* Returns the regions of a call to the pool. */
void xr_whole_put_regions(xr_whole *whole);

/* Calls with a batch: core/roles/whole_batch.c. */
xray_status xr_whole_forward(xr_roles *roles, uint32_t role,
                             const xr_views *views, uint32_t outputs,
                             const xray_outputs *out, xr_err *err);
xray_status xr_whole_gradients(xr_roles *roles, uint32_t role,
                               const xr_views *views, const xr_loss_spec *spec,
                               xr_err *fault, xr_err *err);
/* Implements xr_samples_generate; prompts are dealt to the engines. */
xray_status xr_whole_generate(xr_roles *roles, xr_samples *samples,
                              const xr_row *const *rows, uint32_t count,
                              const xr_sampling *how, xr_err *err);

#endif
