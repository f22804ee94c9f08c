/* SPDX-License-Identifier: Apache-2.0
 *
 * Generates samples with the inference engine of this process.
 */
#ifndef XR_ENGINE_H
#define XR_ENGINE_H

#include "core/roles/samples.h"

/* The last time an engine was seen to make progress; all 0 at first. */
typedef struct xr_engine_watch {
    double since;
    uint64_t made;
    uint64_t left;
} xr_engine_watch;

/* Called between steps of the engine while `left` samples are missing. Returns
 * XRAY_E_BUG if the engine made no progress for [run] plugin_timeout. */
xray_status xr_engine_progress(xr_roles *roles, xr_engine_watch *progress,
                               uint64_t left, xr_err *err);

/* Refuses what the engine does not offer with XRAY_E_UNSUPPORTED: what a
 * request needs, and the bits XRAY_INFER_* `more`. */
xray_status xr_engine_serves(const xr_run *run, const xray_request *request,
                             uint64_t more, xr_err *err);

/* Implements xr_samples_generate on the engine of this process. The caller has
 * checked the capacity of `samples` and published the weights. */
xray_status xr_engine_generate(xr_roles *roles, xr_samples *samples,
                               const xr_row *const *rows, uint32_t count,
                               const xr_sampling *how, xr_err *err);

#endif
