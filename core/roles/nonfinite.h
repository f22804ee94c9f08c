/* SPDX-License-Identifier: Apache-2.0
 *
 * NaN and Inf in what plugins give: named, never applied, and by [trainer]
 * on_nonfinite the end of the run or a step left out.
 */
#ifndef XR_NONFINITE_H
#define XR_NONFINITE_H

#include "core/roles/roles.h"

/* Fails with XRAY_E_NUMERIC and marks the roles, so that the caller of the
 * step knows this error from others. */
XRAY_PRINTF(3, 4)
xray_status xr_nonfinite(xr_roles *roles, xr_err *err, const char *fmt, ...);
/* True, once, if the error was such a value and the INI says to go on. */
int xr_nonfinite_skips(xr_roles *roles, xray_status status);
/* A warning in the log: what was left out. */
void xr_nonfinite_warn(const xr_roles *roles, const xr_err *err);

/* Looks for a value that is not finite among the tokens in the loss; 1 and the
 * sentence in `err` if there is one. `who` gave `values`, [tokens] of the
 * batch, which are `what`. */
int xr_nonfinite_token(const char *who, const char *what,
                       const xray_batch *batch, const float *values,
                       xr_err *err);

/* What a loss returns after it was shown a bad value: the call fails, and where
 * the run is to go on it is of the class that leaves the backend fit for more.
 */
xray_status xr_nonfinite_loss(const xr_roles *roles);
/* The update of `who` whose loss found `fault`, after forward_backward gave
 * `status`; XRAY_OK: noted, the run goes on. */
xray_status xr_nonfinite_fault(xr_roles *roles, const char *who,
                               const xr_err *fault, xray_status status,
                               xr_err *err);

/* What became of an update of `who`. XRAY_OK with *out_skipped: left out,
 * noted, and the run goes on. */
xray_status xr_nonfinite_update(xr_roles *roles, const char *who,
                                const xray_step_result *result,
                                int *out_skipped, xr_err *err);

#endif
