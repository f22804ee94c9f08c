/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts ratios in buckets that are the same in every process and step, so that
 * counts of several can be added.
 */
#include "core/roles/ratios.h"

#include <math.h>

const double xr_ratio_edges[XR_RATIO_BUCKETS + 1] = {
    0,    0.25, 0.5,  0.6,   0.7,   0.75,  0.8,   0.85, 0.9,  0.92, 0.94, 0.96,
    0.97, 0.98, 0.99, 0.995, 0.999, 1.001, 1.005, 1.01, 1.02, 1.03, 1.04, 1.06,
    1.08, 1.1,  1.15, 1.2,   1.25,  1.3,   1.4,   1.5,  2,    4,    10,
};

/* Returns the last bucket that begins at or below the ratio. */
static unsigned find_bucket(double ratio)
{
    unsigned from = 0;
    unsigned to = XR_RATIO_BUCKETS;
    while (to - from > 1) {
        unsigned middle = (from + to) / 2;
        if (xr_ratio_edges[middle] <= ratio)
            from = middle;
        else
            to = middle;
    }
    return from;
}

void xr_ratios_count(const xray_batch *batch, const float *logp,
                     double counts[XR_RATIO_BUCKETS])
{
    for (uint32_t t = 0; t < batch->tokens; t++)
        if (batch->loss_mask[t] != 0)
            counts[find_bucket(
                exp((double)logp[t] - (double)batch->old_logp[t]))]++;
}
