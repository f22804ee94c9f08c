/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls the models held by this process: all models of a run on one device, or
 * the shards of a Workhorse.
 */
#ifndef XR_LOCAL_H
#define XR_LOCAL_H

#include "core/roles/role_calls.h"

/* The table of calls for roles whose models are in this process. */
extern const xr_role_ops xr_local_calls;

/* Single calls, which a Workhorse makes on the views of the rows it received.
 * They are filled up as the backend planned it, and to at least `least`
 * micro-batches, since every replica makes the same number. */
xray_status xr_local_forward(xr_roles *roles, uint32_t role,
                             const xr_views *views, uint32_t least,
                             uint32_t outputs, const xray_outputs *out,
                             xr_err *err);
xray_status xr_local_gradients(xr_roles *roles, uint32_t role,
                               const xr_views *views, uint32_t least,
                               xr_loss_run *loss, xr_err *err);
xray_status xr_local_step(xr_roles *roles, uint32_t role, double lr,
                          double max_norm, xray_step_result *out, xr_err *err);
xray_status xr_local_save(xr_roles *roles, uint32_t role, const char *dir,
                          xr_err *err);
xray_status xr_local_load(xr_roles *roles, uint32_t role, const char *dir,
                          xr_err *err);
/* Restores the gradients to their values before xr_local_gradients. */
xray_status xr_local_discard(xr_roles *roles, uint32_t role, xr_err *err);

#endif
