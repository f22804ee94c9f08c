/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds where two runs of the same seed diverge, and the settings that keep
 * their steps or scores from being compared in pairs.
 */
#ifndef XR_AB_DIVERGENCE_H
#define XR_AB_DIVERGENCE_H

#include "core/ab/compare.h"

/* Finds the first line of metrics and the first sample in which two runs of the
 * same seed differ. */
xray_status xr_divergence_find(const xr_ab_run *a, const xr_ab_run *b,
                               xr_err *err, xr_divergence *out);
/* Compares the settings of two variants and adds a note for each difference
 * that weakens a comparison of their runs by seed: other prompts or another
 * order of them, other weights at the start, another meaning of the validation
 * score, another rounding. */
void xr_note_unshared_settings(const xr_variant *base,
                               const xr_variant *variant, xr_errors *notes);

#endif
