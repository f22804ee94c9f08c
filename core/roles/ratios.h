/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts the ratios of a policy's probabilities after and before, token by
 * token, where its loss is computed.
 */
#ifndef XR_RATIOS_H
#define XR_RATIOS_H

#include <xray/batch.h>

/* Narrow around 1, with edges at the usual bounds of clipping. */
#define XR_RATIO_BUCKETS 34u
extern const double xr_ratio_edges[XR_RATIO_BUCKETS + 1];

/* Adds 1 to the bucket of exp(logp - old_logp) for each token in the loss.
 * Ratios above the last edge count in the last bucket. */
void xr_ratios_count(const xray_batch *batch, const float *logp,
                     double counts[XR_RATIO_BUCKETS]);

#endif
