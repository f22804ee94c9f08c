/* SPDX-License-Identifier: Apache-2.0
 *
 * What is another in a run than in the checkpoint it would go on from: keys of
 * the configuration, and what the files hold that they name.
 */
#ifndef XR_CHANGES_H
#define XR_CHANGES_H

#include "core/rl/history.h"
#include "core/run/run.h"

typedef struct xr_changes {
    xr_errors
        harmless;      /* a line a key: "run.ini:3: [a] b is 2, was 1 in ..." */
    xr_errors meaning; /* the same: scores before and after do not compare */
    int algorithm;     /* 1: another one, to which the state means nothing */
} xr_changes;
void xr_changes_free(xr_changes *changes);

/* Adds the files that the run's keys name, where their content decides what
 * scores mean. */
xray_status xr_changes_add_inputs(const xr_run *run, xr_history *history,
                                  xr_err *err);
/* Compares the run with a whole checkpoint; `now` holds its inputs, `then`
 * the checkpoint's. */
xray_status xr_changes_find(const xr_run *run, const char *checkpoint,
                            const xr_history *now, const xr_history *then,
                            xr_err *err, xr_changes *out);
/* Adds the changed meanings to `errors`, behind a sentence that says what can
 * be done about them. */
void xr_changes_refuse(const xr_run *run, const char *checkpoint,
                       const xr_changes *changes, xr_errors *errors);

#endif
