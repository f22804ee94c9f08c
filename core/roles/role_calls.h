/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls to the models of a run by their role (XRAY_ROLE_*), wherever they are:
 * core/roles/local.c carries a call out in this process, core/roles/whole.c
 * through Workhorses. The results are the same bits.
 */
#ifndef XR_ROLE_CALLS_H
#define XR_ROLE_CALLS_H

#include "core/roles/losses.h"
#include "core/roles/samples.h"
#include "core/run/rows.h"

/* Returns "actor", "reference", "critic" or "reward model", with which errors
 * begin. */
const char *xr_role_name(uint32_t role);

/* Computes outputs per token of every view. They are written to arrays for the
 * rows that the views were cut from (token t at [t]). */
xray_status xr_role_forward(xr_roles *roles, uint32_t role,
                            const xr_views *views, uint32_t outputs,
                            const xray_outputs *out, xr_err *err);

/* Computes the gradients of all views and adds to the sums of the spec. A value
 * that is not finite goes to `fault` and fails the call with xr_nonfinite_loss.
 */
xray_status xr_role_gradients(xr_roles *roles, uint32_t role,
                              const xr_views *views, const xr_loss_spec *spec,
                              xr_err *fault, xr_err *err);

/* Takes a step of the optimizer. out->bad_tensor is valid until the next call.
 */
xray_status xr_role_step(xr_roles *roles, uint32_t role, double lr,
                         double max_norm, xray_step_result *out, xr_err *err);

/* Saves and loads a model's checkpoint; every rank writes and reads its own
 * part of the folder. */
xray_status xr_role_save(xr_roles *roles, uint32_t role, const char *dir,
                         xr_err *err);
xray_status xr_role_load(xr_roles *roles, uint32_t role, const char *dir,
                         xr_err *err);

/* The table of these calls, and of those to the engine (core/roles/samples.h,
 * core/roles/publish.h). It has two implementations. The calls mean the same as
 * the functions above; `fault` of gradients is set where the call may go on. */
typedef struct xr_role_ops {
    xray_status (*forward)(xr_roles *roles, uint32_t role,
                           const xr_views *views, uint32_t outputs,
                           const xray_outputs *out, xr_err *err);
    xray_status (*gradients)(xr_roles *roles, uint32_t role,
                             const xr_views *views, const xr_loss_spec *spec,
                             xr_err *fault, xr_err *err);
    xray_status (*step)(xr_roles *roles, uint32_t role, double lr,
                        double max_norm, xray_step_result *out, xr_err *err);
    xray_status (*save)(xr_roles *roles, uint32_t role, const char *dir,
                        xr_err *err);
    xray_status (*load)(xr_roles *roles, uint32_t role, const char *dir,
                        xr_err *err);
    xray_status (*generate)(xr_roles *roles, xr_samples *samples,
                            const xr_row *const *rows, uint32_t count,
                            const xr_sampling *how, xr_err *err);
    xray_status (*publish)(xr_roles *roles, xr_err *err);
    /* Ends what carries the calls out, before the roles are freed; or NULL. */
    void (*close)(xr_roles *roles);
} xr_role_ops;

#endif
