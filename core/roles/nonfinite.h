/* SPDX-License-Identifier: Apache-2.0
 *
 * Handles NaN and Inf in the results of plugins: they are reported, never
 * applied, and either end the run or skip a step, as [trainer] on_nonfinite
 * tells.
 */
#ifndef XR_NONFINITE_H
#define XR_NONFINITE_H

#include "core/roles/roles.h"

/* Fails with XRAY_E_NUMERIC and sets roles->nonfinite, by which the caller of a
 * step recognizes this kind of error. */
XRAY_PRINTF(3, 4)
xray_status xr_nonfinite(xr_roles *roles, xr_err *err, const char *fmt, ...);
/* Returns 1 if the error was such a value and the run is to continue. Clears
 * roles->nonfinite. */
int xr_nonfinite_skips(xr_roles *roles, xray_status status);
/* Logs a warning that tells what was skipped. */
void xr_nonfinite_warn(const xr_roles *roles, const xr_err *err);

/* Returns 1 and a sentence in `err` if there is a value that is not finite
 * among the tokens in the loss. `who` is the instance that returned `values`,
 * [tokens] of the batch, and `what` tells what they are. */
int xr_nonfinite_token(const char *who, const char *what,
                       const xray_batch *batch, const float *values,
                       xr_err *err);

/* Returns the status of a loss that was given a bad value: the call fails and,
 * if the run is to continue, with a status after which the backend can still be
 * used. */
xray_status xr_nonfinite_loss(const xr_roles *roles);
/* Ends an update of `who` whose loss found `fault`, after forward_backward
 * returned `status`. XRAY_OK: the fault was logged and the run continues. */
xray_status xr_nonfinite_fault(xr_roles *roles, const char *who,
                               const xr_err *fault, xray_status status,
                               xr_err *err);

/* Checks the result of an optimizer step of `who`. XRAY_OK with *out_skipped
 * set: the update was skipped and logged, and the run continues. */
xray_status xr_nonfinite_update(xr_roles *roles, const char *who,
                                const xray_step_result *result,
                                int *out_skipped, xr_err *err);

#endif
