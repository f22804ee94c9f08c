/* SPDX-License-Identifier: Apache-2.0
 *
 * Reports NaN and Inf in the results of plugins.
 */
#include "core/roles/nonfinite.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

xray_status xr_nonfinite(xr_roles *roles, xr_err *err, const char *fmt, ...)
{
    va_list list;
    roles->nonfinite = 1;
    if (err) {
        va_start(list, fmt);
        (void)vsnprintf(err->text, sizeof(err->text), fmt, list);
        va_end(list);
    }
    return XRAY_E_NUMERIC;
}

int xr_nonfinite_skips(xr_roles *roles, xray_status status)
{
    int found = roles->nonfinite && status == XRAY_E_NUMERIC;
    roles->nonfinite = 0;
    return found && roles->run->ini.trainer.on_nonfinite == XR_NONFINITE_SKIP;
}

void xr_nonfinite_warn(const xr_roles *roles, const xr_err *err)
{
    if (roles->run->sink.write && roles->run->sink.level >= XRAY_LOG_WARN)
        roles->run->sink.write(roles->run->sink.ctx, XRAY_LOG_WARN, "left out",
                               err->text);
}

int xr_nonfinite_token(const char *who, const char *what,
                       const xray_batch *batch, const float *values,
                       xr_err *err)
{
    for (uint32_t r = 0; r < batch->rows; r++)
        for (int32_t t = batch->row_start[r]; t < batch->row_start[r + 1];
             t++) {
            if (batch->loss_mask[t] == 0 || isfinite(values[t]))
                continue;
            (void)xr_fail(err, XRAY_E_NUMERIC,
                          "%s gave the %s %g for token %d of row %llu (prompt "
                          "%llu), expected a finite number",
                          who, what, (double)values[t],
                          (int)(t - batch->row_start[r]),
                          (unsigned long long)batch->row_id[r],
                          (unsigned long long)batch->prompt_id[r]);
            return 1;
        }
    return 0;
}

xray_status xr_nonfinite_loss(const xr_roles *roles)
{
    return roles->run->ini.trainer.on_nonfinite == XR_NONFINITE_STOP
               ? XRAY_E_NUMERIC
               : XRAY_E_ARG;
}

xray_status xr_nonfinite_fault(xr_roles *roles, const char *who,
                               const xr_err *fault, xray_status status,
                               xr_err *err)
{
    if (roles->run->ini.trainer.on_nonfinite == XR_NONFINITE_STOP)
        return xr_nonfinite(roles, err, "%s", fault->text);
    if (status != xr_nonfinite_loss(roles))
        return xr_fail(err, XRAY_E_BUG,
                       "%s; %s did not pass on that the loss failed",
                       fault->text, who);
    xr_nonfinite_warn(roles, fault);
    return XRAY_OK;
}

xray_status xr_nonfinite_update(xr_roles *roles, const char *who,
                                const xray_step_result *result,
                                int *out_skipped, xr_err *err)
{
    xr_err found = { "" };
    *out_skipped = result->skipped != 0;
    if (!result->skipped && isfinite(result->grad_norm))
        return XRAY_OK;
    (void)xr_fail(&found, XRAY_E_NUMERIC,
                  "%s gave the gradient norm %g, first in tensor %s", who,
                  result->grad_norm,
                  result->bad_tensor ? result->bad_tensor : "unknown");
    if (!result->skipped)
        return xr_fail(err, XRAY_E_BUG,
                       "%s; it applied the update nevertheless, so the weights "
                       "are corrupt",
                       found.text);
    if (roles->run->ini.trainer.on_nonfinite == XR_NONFINITE_STOP)
        return xr_nonfinite(roles, err, "%s", found.text);
    xr_nonfinite_warn(roles, &found);
    return XRAY_OK;
}
