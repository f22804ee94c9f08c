/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the learning rate of a step.
 */
#include "core/rl/schedule.h"

#include <math.h>

#define PI 3.14159265358979323846

double xr_schedule(const xr_optim_section *optim, uint64_t step, uint64_t total)
{
    double warm = optim->lr_warmup_steps >= 0
                      ? (double)optim->lr_warmup_steps
                      : optim->lr_warmup_steps_ratio * (double)total;
    warm = floor(warm);
    double at = (double)step;
    if (at < warm)
        return optim->lr * at / fmax(1.0, warm);
    double progress = (at - warm) / fmax(1.0, (double)total - warm);
    double low = optim->min_lr_ratio;
    if (progress > 1)
        progress = 1;
    if (optim->lr_scheduler_type == XR_SCHEDULE_LINEAR)
        return optim->lr * (low + (1 - low) * (1 - progress));
    if (optim->lr_scheduler_type == XR_SCHEDULE_COSINE) {
        double wave = cos(2 * PI * optim->num_cycles * progress);
        return optim->lr * fmax(low, wave * (1 - low) / 2 + (1 + low) / 2);
    }
    return optim->lr;
}
