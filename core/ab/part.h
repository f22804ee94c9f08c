/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of a comparison that compare.c puts together.
 */
#ifndef XR_AB_PART_H
#define XR_AB_PART_H

#include "core/ab/compare.h"

/* Holds two runs against each other, line by line and sample by sample. */
xray_status xr_part_find(const xr_ab_run *a, const xr_ab_run *b, xr_err *err,
                         xr_parting *out);
/* Notes on settings by which runs of one seed share less than all: prompts,
 * order, draws, what validation measures. */
void xr_part_pairing(const xr_variant *base, const xr_variant *variant,
                     xr_errors *notes);

#endif
