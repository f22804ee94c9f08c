/* SPDX-License-Identifier: Apache-2.0
 *
 * The models of a run alive: device, models, engine, algorithm and rewards,
 * created here or, by a WholeModel, in Workhorses.
 */
#ifndef XR_ROLES_H
#define XR_ROLES_H

#include "core/run/run.h"

/* A part of the run, created. */
typedef struct xr_instance {
    const xr_part *part; /* never NULL once the roles are made */
    void *self;          /* NULL: not created, or not here. Where Workhorses
                          * hold the models: their xr_whole */
} xr_instance;

#define XR_ROLES                                                 \
    (XRAY_ROLE_REWARD + 1) /* arrays by XRAY_ROLE_*; 0 is unused \
                            */

/* Who has what on the device, by XRAY_ROLE_*: core/roles/memory_turns.h. */
typedef struct xr_turns {
    uint32_t goes[XR_ROLES]; /* 1 << tag: may be sent away */
    uint32_t away[XR_ROLES];
} xr_turns;

/* The engine's weights: core/roles/publish.h. */
typedef struct xr_published {
    struct xr_transfer *transfer; /* NULL while they are the policy's own */
    uint64_t version;             /* of the last transfer */
    int synced;                   /* there was one: `version` counts */
    int due;                      /* the next rollout starts with xr_publish */
} xr_published;

typedef struct xr_roles {
    const xr_run *run; /* borrowed */
    /* What models are called through: core/roles/role_calls.h. */
    const struct xr_role_ops *calls;
    struct xr_whole *whole; /* models are in Workhorses; NULL: in this process
                             */
    xr_instance device;
    xr_instance comm; /* in a Workhorse, with others */
    xr_instance actor;
    xr_instance reference;
    xr_instance critic; /* a third train instance, if the algorithm needs one */
    xr_instance reward_model; /* the reward model */
    xr_instance engine;
    xr_instance algo;
    xr_instance rewards[XR_MAX_REWARDS];
    xr_part named[XR_ROLES]; /* the trainer's component as reference, critic and
                              * reward model */
    xray_world worlds[XR_ROLES];
    xr_turns turns;
    xr_published published;
    uint32_t rank;         /* of this process */
    uint32_t in_workhorse; /* 1: this process is a Workhorse */
    int exact;          /* as xr_run.exact, once the engine has said its own */
    int nonfinite;      /* the last error is a NaN or Inf: xr_nonfinite */
    double first_token; /* xr_now() when an engine here had made one; or 0 */
} xr_roles;

/* Creates algorithm and rewards, which live on the host, once the plugins'
 * plans fit the machine also device, models and engine. `run` is constant from
 * here on and has to outlive the roles. NULL in *out after an error. */
xray_status xr_roles_start(xr_run *run, xr_err *err, xr_roles **out);
/* Creates algorithm and rewards and destroys them again, so that a pattern that
 * does not compile is found; each that cannot be created is an error. The run
 * knows the algorithm's needs then. */
void xr_roles_try(xr_run *run, xr_errors *errors);
/* Destroys everything, in reverse order. Accepts NULL. */
void xr_roles_free(xr_roles *roles);

/* What a Workhorse has of the others. */
typedef struct xr_rank_link {
    uint32_t rank;
    uint32_t reserved;
    xray_comm_trace *traces; /* [ranks] */
    void *exchange_ctx;
    xray_status (*exchange)(void *ctx, const void *mine, uint64_t size,
                            void *all);
} xr_rank_link;
/* In a Workhorse: device, comm, and the roles placed on its rank. */
xray_status xr_roles_start_rank(xr_run *run, const xr_rank_link *link,
                                xr_err *err, xr_roles **out);

/* The instance of XRAY_ROLE_*. */
static inline xr_instance *xr_roles_at(xr_roles *roles, uint32_t role)
{
    return role == XRAY_ROLE_ROLLOUT     ? &roles->engine
           : role == XRAY_ROLE_CRITIC    ? &roles->critic
           : role == XRAY_ROLE_REFERENCE ? &roles->reference
           : role == XRAY_ROLE_REWARD    ? &roles->reward_model
                                         : &roles->actor;
}

#endif
