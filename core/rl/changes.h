/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds out what differs between a run and the checkpoint it would resume from:
 * keys of the configuration, and the contents of the files that those keys
 * name.
 */
#ifndef XR_CHANGES_H
#define XR_CHANGES_H

#include "core/rl/history.h"
#include "core/run/run.h"

typedef struct xr_changes {
    /* One line per key: "run.ini:3: [a] b is 2, was 1 in ...". */
    xr_errors harmless;
    xr_errors meaning; /* the same, for changes after which scores no longer
                        * compare with earlier ones */
    int algorithm; /* 1: the algorithm changed, so its saved state is of no use
                    */
} xr_changes;
void xr_changes_free(xr_changes *changes);

/* Adds the files that the run's keys name, if their content decides what scores
 * mean. */
xray_status xr_changes_add_inputs(const xr_run *run, xr_history *history,
                                  xr_err *err);
/* Compares the run with a verified checkpoint. `now` holds the run's input
 * files, `then` those of the checkpoint. */
xray_status xr_changes_find(const xr_run *run, const char *checkpoint,
                            const xr_history *now, const xr_history *then,
                            xr_err *err, xr_changes *out);
/* Adds one sentence that tells the user what to do, followed by the changes in
 * `changes->meaning`, to `errors`. */
void xr_changes_refuse(const xr_run *run, const char *checkpoint,
                       const xr_changes *changes, xr_errors *errors);

#endif
