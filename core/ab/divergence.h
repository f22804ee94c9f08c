/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds where two runs of the same seed diverge, and settings that weaken the
 * comparison of such pairs.
 */
#ifndef XR_AB_DIVERGENCE_H
#define XR_AB_DIVERGENCE_H

#include "core/ab/compare.h"

/* Compares two runs line by line and sample by sample. */
xray_status xr_divergence_find(const xr_ab_run *a, const xr_ab_run *b,
                               xr_err *err, xr_divergence *out);
/* Adds a note for each setting because of which runs of the same seed do not
 * share their prompts, the order, the random numbers or the validation score.
 */
void xr_note_pairing(const xr_variant *base, const xr_variant *variant,
                     xr_errors *notes);

#endif
