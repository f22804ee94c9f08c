/* SPDX-License-Identifier: Apache-2.0
 *
 * Picks tokens by the covariance of advantage and log-probability, for Clip-Cov
 * and KL-Cov.
 */
#include <string.h>

#include "model/rl/policy.h"

void xm_rl_covariance_add(xm_rl_covariance *means, double a, double logp)
{
    means->tokens++;
    means->advantage += a;
    means->logp += logp;
}

void xm_rl_covariance_close(xm_rl_covariance *means)
{
    if (means->tokens > 0) {
        means->advantage /= means->tokens;
        means->logp /= means->tokens;
    }
}

/* (A - mean A) (logp - mean logp), a token's contribution to their covariance
 * (Cui et al., "The entropy mechanism of reinforcement learning", 2025; verl
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

/* Finds, bit by bit, the largest threshold that at least `picks` keys reach. */
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
    uint64_t above = 0;
    for (uint64_t i = 0; picks && i < count; i++)
        above += key(ctx, i) > threshold;
    uint64_t ties = threshold ? picks - above : 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t k = picks ? key(ctx, i) : 0;
        int tie = k == threshold && ties > 0;
        out_marks[i] = (k > threshold) || tie;
        ties -= (uint64_t)tie;
    }
}
