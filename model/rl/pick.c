/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/rl/policy.h"

void xm_rl_covariance_of(const float *advantage, const float *logp,
                         const float *mask, uint64_t count,
                         xm_rl_covariance *out)
{
    xm_rl_covariance sum = { 0, 0, 0 };
    for (uint64_t i = 0; i < count; i++)
        if (mask[i] != 0) {
            sum.tokens++;
            sum.advantage += (double)advantage[i];
            sum.logp += (double)logp[i];
        }
    if (sum.tokens > 0) {
        sum.advantage /= sum.tokens;
        sum.logp /= sum.tokens;
    }
    *out = sum;
}

/* (A - mean A) (logp - mean logp), a token's part of their covariance (Cui et
 * al., "The entropy mechanism of reinforcement learning", 2025; verl
 * `clip_cov`, `kl_cov`). */
double xm_rl_covariance_at(const xm_rl_covariance *means, double a, double logp)
{
    return (a - means->advantage) * (logp - means->logp);
}

uint64_t xm_rl_covariance_picks(const xm_rl_covariance *means, double ratio)
{
    uint64_t picks = (uint64_t)(ratio * means->tokens);
    if (!(means->tokens > 0))
        return 0;
    return picks ? picks : 1;
}

uint64_t xm_rl_key(double x)
{
    uint64_t bits = 0;
    if (x != x)
        return 0;
    x += 0.0; /* -0 becomes 0 */
    memcpy(&bits, &x, sizeof(bits));
    return bits >> 63 ? ~bits : bits | (uint64_t)1 << 63;
}

/* The largest threshold that at least `picks` keys reach, found bit by bit. */
void xm_rl_pick(uint64_t (*key)(const void *ctx, uint64_t i), const void *ctx,
                uint64_t count, uint64_t picks, uint8_t *out_marks)
{
    uint64_t threshold = 0;
    for (int bit = 63; picks && bit >= 0; bit--) {
        uint64_t trial = threshold | (uint64_t)1 << bit;
        uint64_t reached = 0;
        for (uint64_t i = 0; i < count; i++)
            reached += key(ctx, i) >= trial;
        if (reached >= picks)
            threshold = trial;
    }
    uint64_t left = picks;
    for (uint64_t i = 0; i < count; i++) {
        out_marks[i] = picks && key(ctx, i) > threshold;
        left -= out_marks[i];
    }
    for (uint64_t i = 0; i < count && left && threshold; i++)
        if (key(ctx, i) == threshold) {
            out_marks[i] = 1;
            left--;
        }
}
