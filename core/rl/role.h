/* SPDX-License-Identifier: Apache-2.0
 *
 * Roles: a model the loop speaks to through futures. Calls are submitted and
 * waited for; in this process they are carried out when they are submitted,
 * actors carry them out elsewhere.
 */
#ifndef XR_ROLE_H
#define XR_ROLE_H

#include "core/rl/losses.h"
#include "core/rl/publish.h"
#include "core/rl/rows.h"
#include "core/rl/session.h"

typedef struct xr_pending {
    xray_status status;
    uint32_t done;
    xr_err err;
} xr_pending;

/* The result of a submitted call; its sentence in `err`. Every future is waited
 * for once. */
xray_status xr_wait(xr_pending *future, xr_err *err);

/* A train instance in a role ("actor", "reference", "critic", "reward model").
 */
typedef struct xr_role {
    const xray_train_ops *ops;
    xr_part *part;
    const char *name;
    xr_session *session;
    uint32_t id; /* XRAY_ROLE_* */
    uint32_t reserved;
} xr_role;
xr_role xr_role_actor(xr_session *session);
xr_role xr_role_reference(xr_session *session);
xr_role xr_role_critic(xr_session *session);
xr_role xr_role_score(xr_session *session); /* the reward model */

/* Per-token outputs of every view, written to arrays of the whole run the
 * views were cut from (token t of the run at [t]). */
void xr_role_forward(const xr_role *role, const xr_views *views,
                     uint32_t outputs, const xray_outputs *out,
                     xr_pending *future);

/* Gradients of all views; adds to the spec's sums. A value that is not finite
 * goes to `fault` and fails the call with xr_nonfinite_loss. */
void xr_role_gradients(const xr_role *role, const xr_views *views,
                       const xr_loss_spec *spec, xr_err *fault,
                       xr_pending *future);

/* The optimizer's step. */
void xr_role_step(const xr_role *role, double lr, double max_norm,
                  xray_step_result *out, xr_pending *future);

/* Its checkpoint: every rank writes and reads its own part of the folder. */
xray_status xr_role_save(const xr_role *role, const char *dir, xr_err *err);
xray_status xr_role_load(const xr_role *role, const char *dir, xr_err *err);

#endif
