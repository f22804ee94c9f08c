/* SPDX-License-Identifier: Apache-2.0
 *
 * The context of a mini-batch, and the tokens picked across it.
 */
#include <string.h>

#include <xray/numerics.h>

#include "plugins/algo-grpo/loss.h"
#include "plugins/algo-grpo/prepare.h"

static int marks(const grpo_loss_rule *rule)
{
    return rule->mode == GRPO_CLIP_COV || rule->mode == GRPO_KL_COV;
}

static uint64_t starts_size(uint32_t rows)
{
    return ((uint64_t)rows + 1) * sizeof(int32_t);
}

uint64_t grpo_context_size(const grpo_loss_rule *rule, const xray_batch *mini)
{
    return sizeof(grpo_context) +
           (marks(rule) ? starts_size(mini->rows) + mini->tokens : 0);
}

void grpo_context_write(const grpo_context *context, const xray_batch *mini,
                        void *out)
{
    grpo_context header = *context;
    unsigned char *at = out;
    header.size = sizeof(header);
    header.marked = (uint32_t)marks(&header.rule);
    header.rows = mini->rows;
    header.tokens = mini->tokens;
    memcpy(at, &header, sizeof(header));
    if (!header.marked)
        return;
    at += sizeof(header);
    memcpy(at, mini->row_start, starts_size(mini->rows));
    memset(at + starts_size(mini->rows), 0, mini->tokens);
}

void grpo_count(const grpo_loss_rule *rule, const xray_batch *mini,
                xm_rl_counts *out)
{
    out->rows = out->tokens = 0;
    for (uint32_t r = 0; r < mini->rows; r++) {
        xm_rl_drift drift = grpo_row_drift(&rule->correction, mini, r);
        double row = 0;
        for (int32_t i = mini->row_start[r]; i < mini->row_start[r + 1]; i++)
            row += grpo_mask_of(&rule->correction, mini, &drift, i);
        out->tokens += row;
        out->rows += row > 0;
    }
}

/* ---- picking ------------------------------------------------------------- */

typedef struct candidates {
    const grpo_loss_rule *rule;
    const xray_batch *mini;
    const float *logp;
    const unsigned char *in; /* [tokens] 1: the token is in the loss */
    xm_rl_covariance means;
} candidates;

/* By chance: a number that depends on the row and the place in it alone. */
static uint64_t drawn(const xray_batch *mini, uint64_t i)
{
    uint32_t row = 0;
    uint32_t end = mini->rows;
    while (end - row > 1) {
        uint32_t middle = row + (end - row) / 2;
        if ((uint64_t)mini->row_start[middle] <= i)
            row = middle;
        else
            end = middle;
    }
    uint64_t id = mini->row_id ? mini->row_id[row] : row;
    xray_philox_out bits =
        xray_philox(xray_mix64(0, id),
                    (uint32_t)(i - (uint64_t)mini->row_start[row]), 0, 0, 0);
    uint64_t key = (uint64_t)bits.w[0] << 32 | bits.w[1];
    return key ? key : 1;
}

/* verl `kl_cov`: the largest covariances. */
static uint64_t kl_key(const void *ctx, uint64_t i)
{
    const candidates *c = ctx;
    if (!c->in[i])
        return 0;
    return xm_rl_key(xm_rl_covariance_at(
        &c->means, (double)c->mini->advantage[i], (double)c->logp[i]));
}

/* verl `clip_cov`: any of the covariances between the bounds that the clip has
 * not caught already. */
static uint64_t clip_key(const void *ctx, uint64_t i)
{
    const candidates *c = ctx;
    if (!c->in[i])
        return 0;
    double a = (double)c->mini->advantage[i];
    double logp = (double)c->logp[i];
    double cov = xm_rl_covariance_at(&c->means, a, logp);
    if (!(cov > c->rule->cov_low && cov < c->rule->cov_high))
        return 0;
    if (xm_rl_vanilla(&c->rule->clip, logp, (double)c->mini->old_logp[i], a)
            .clipped)
        return 0;
    return drawn(c->mini, i);
}

/* Until the picks are known the marks hold which tokens are in the loss; the
 * means are over those. */
static void mark_tokens(const grpo_loss_rule *rule, const xray_batch *mini,
                        const float *logp, unsigned char *in,
                        xm_rl_covariance *means)
{
    *means = (xm_rl_covariance){ 0, 0, 0 };
    for (uint32_t r = 0; r < mini->rows; r++) {
        xm_rl_drift drift = grpo_row_drift(&rule->correction, mini, r);
        for (int32_t i = mini->row_start[r]; i < mini->row_start[r + 1]; i++) {
            in[i] = grpo_mask_of(&rule->correction, mini, &drift, i) != 0;
            if (!in[i])
                continue;
            xm_rl_covariance_add(means, (double)mini->advantage[i],
                                 (double)logp[i]);
        }
    }
    xm_rl_covariance_close(means);
}

xray_status grpo_select(const xray_batch *mini, const float *logp, void *blob,
                        uint64_t size)
{
    grpo_context header;
    if (size < sizeof(header))
        return XRAY_E_ARG;
    memcpy(&header, blob, sizeof(header));
    if (!header.marked)
        return XRAY_OK;
    if (header.size != sizeof(header) || header.tokens != mini->tokens ||
        header.rows != mini->rows || !mini->advantage || !mini->old_logp ||
        size != sizeof(header) + starts_size(mini->rows) + mini->tokens)
        return XRAY_E_ARG;
    unsigned char *picked =
        (unsigned char *)blob + sizeof(header) + starts_size(mini->rows);
    candidates c = {
        .rule = &header.rule, .mini = mini, .logp = logp, .in = picked
    };
    mark_tokens(&header.rule, mini, logp, picked, &c.means);
    xm_rl_pick(header.rule.mode == GRPO_KL_COV ? kl_key : clip_key, &c,
               mini->tokens,
               xm_rl_covariance_picks(&c.means, header.rule.cov_ratio), picked);
    return XRAY_OK;
}
