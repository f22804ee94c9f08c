/* SPDX-License-Identifier: Apache-2.0
 *
 * xray check: finds every fault of a run that can be found without running it.
 */
#ifndef XR_CHECK_H
#define XR_CHECK_H

#include "core/base/str.h"
#include "core/data/data.h"
#include "core/run/run.h"

/* Checks a draft of a run: creates algorithm and rewards, asks the plugins for
 * their memory plans, reads the headers of the weights and all data rows, and
 * looks for disk space and for a checkpoint to resume from. It writes nothing
 * and starts no device. Information for the user goes to `out`, faults to
 * `errors`, and possible problems to `warnings`. */
void xr_check_run(xr_run *run, xr_str *out, xr_errors *errors,
                  xr_errors *warnings);

/* Checks that the training set has enough rows for one step. The error names
 * the key. */
xray_status xr_check_rows(const xr_run *run, const xr_dataset *set,
                          xr_err *err);

#endif
