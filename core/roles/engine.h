/* SPDX-License-Identifier: Apache-2.0
 *
 * The inference engine of this process.
 */
#ifndef XR_ENGINE_H
#define XR_ENGINE_H

#include "core/roles/samples.h"

/* When an engine was last seen to make something; all 0 at first. */
typedef struct xr_watch {
    double since;
    uint64_t made;
    uint64_t left;
} xr_watch;

/* To be asked between steps of the engine while `left` samples are missing:
 * XRAY_E_BUG if it made nothing for [run] plugin_timeout. */
xray_status xr_engine_progress(xr_roles *roles, xr_watch *progress,
                               uint64_t left, xr_err *err);

/* xr_samples_generate on it: the room was looked at, and the weights are there.
 */
xray_status xr_engine_generate(xr_roles *roles, xr_samples *samples,
                               const xr_row *const *rows, uint32_t count,
                               const xr_sampling *how,
                               const volatile sig_atomic_t *stop, xr_err *err);

#endif
