/* SPDX-License-Identifier: Apache-2.0
 *
 * Everything that can be found out about a run without running it.
 */
#ifndef XR_CHECK_H
#define XR_CHECK_H

#include "core/base/str.h"
#include "core/data/data.h"
#include "core/run/run.h"

/* Looks at a draft: creates algorithm and rewards, asks the plugins for their
 * plans, reads the headers of the weights and all data rows, looks for room and
 * for a checkpoint to go on from. Writes nothing and starts no device. What a
 * user wants to know goes to `out`, what is wrong to `errors`, what may become
 * wrong to `warnings`. */
void xr_check_run(xr_run *run, xr_str *out, xr_errors *errors,
                  xr_errors *warnings);

/* Whether the train set has the rows of a step; the error names the key. */
xray_status xr_check_rows(const xr_run *run, const xr_dataset *set,
                          xr_err *err);

#endif
