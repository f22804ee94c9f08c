/* SPDX-License-Identifier: Apache-2.0
 *
 * The running models of a run: device, models, engine, algorithm and rewards,
 * created in this process or, through a WholeModel, in Workhorses.
 */
#ifndef XR_ROLES_H
#define XR_ROLES_H

#include "core/run/padding.h"
#include "core/run/run.h"

/* A part of the run that was created. */
typedef struct xr_instance {
    const xr_part *part; /* never NULL after xr_roles_new */
    void *self; /* NULL: not created, or not in this process. If Workhorses hold
                 * the models, this is their xr_whole */
} xr_instance;

/* The size of arrays indexed by XRAY_ROLE_*; 0 is unused. */
#define XR_ROLES (XRAY_ROLE_REWARD + 1)

/* The memory of each role on the device, by XRAY_ROLE_*:
 * core/roles/memory_turns.h. */
typedef struct xr_turns {
    uint32_t movable[XR_ROLES];   /* 1 << tag: may be offloaded */
    uint32_t offloaded[XR_ROLES]; /* 1 << tag: is offloaded now */
} xr_turns;

/* The state of the engine's weights: core/roles/publish.h. */
typedef struct xr_published {
    /* NULL while the engine uses the policy's weights. */
    struct xr_transfer *transfer;
    uint64_t version; /* version of the last transfer */
    int synced;       /* 1: weights were transferred, so `version` is valid */
    int due;          /* 1: the next rollout begins with xr_publish */
    /* Of the transfers since the loop set them to 0: their time, and the bytes
     * that the engines received, which are 0 while they share the weights. */
    double seconds;
    uint64_t bytes;
} xr_published;

typedef struct xr_roles {
    const xr_run *run; /* borrowed */
    /* The table through which models are called: core/roles/role_calls.h. */
    const struct xr_role_ops *calls;
    struct xr_whole *whole;       /* NULL: the models are in this process */
    struct xr_launched *launched; /* NULL: no engine starts the Workhorses */
    xr_instance device;
    xr_instance comm; /* in a Workhorse of several */
    xr_instance actor;
    xr_instance reference;
    xr_instance critic; /* a third train instance, if the algorithm needs one */
    xr_instance reward_model; /* the reward model */
    xr_instance engine;
    xr_instance algo;
    xr_instance rewards[XR_MAX_REWARDS];
    xr_part named[XR_ROLES]; /* the trainer's component as reference, critic and
                              * reward model */
    xray_world worlds[XR_ROLES]; /* of this rank: core/roles/worlds.h */
    xray_subgroup subgroups[XR_ROLES][XRAY_AXES + 2]; /* axes, data, replica */
    xr_turns turns;
    xr_padding padding; /* of the present call of a model in this process */
    xr_published published;
    uint32_t rank;         /* rank of this process */
    uint32_t in_workhorse; /* 1: this process is a Workhorse */
    int nonfinite; /* 1: the last error is a NaN or Inf (core/roles/nonfinite.h)
                    */
    double first_token; /* xr_now() at the first token of an engine in this
                         * process; or 0 */
} xr_roles;

/* Creates algorithm and rewards, which live on the host, and, once the plugins'
 * plans fit the machine, device, models and engine. `run` is constant from here
 * on and must outlive the roles. *out is NULL after an error. */
xray_status xr_roles_start(xr_run *run, xr_err *err, xr_roles **out);
/* Creates algorithm and rewards and destroys them again, which finds faults
 * such as a pattern that does not compile. Each that cannot be created is an
 * error. Afterwards the run knows the algorithm's needs. */
void xr_roles_try(xr_run *run, xr_errors *errors);
/* Destroys everything in reverse order. Accepts NULL. */
void xr_roles_free(xr_roles *roles);

/* The rank of a Workhorse, and what it shares with the others. */
typedef struct xr_rank_link {
    uint32_t rank;
    uint32_t reserved;
    xray_comm_trace *trace;        /* the last collective of this rank */
    const xray_comm_trace *traces; /* of each rank, or NULL */
    uint64_t trace_stride;         /* bytes from one rank's trace to the next */
    void *gather_ctx;
    xray_status (*gather)(void *ctx, const void *mine, uint64_t size,
                          void *all);
} xr_rank_link;
/* Starts the roles of a Workhorse: device, communicator, and the models placed
 * on its rank. */
xray_status xr_roles_start_rank(xr_run *run, const xr_rank_link *link,
                                xr_err *err, xr_roles **out);

/* Returns the instance of XRAY_ROLE_*. */
static inline xr_instance *xr_roles_at(xr_roles *roles, uint32_t role)
{
    return role == XRAY_ROLE_ROLLOUT     ? &roles->engine
           : role == XRAY_ROLE_CRITIC    ? &roles->critic
           : role == XRAY_ROLE_REFERENCE ? &roles->reference
           : role == XRAY_ROLE_REWARD    ? &roles->reward_model
                                         : &roles->actor;
}

#endif
