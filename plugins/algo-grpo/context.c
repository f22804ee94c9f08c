/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes the context of a mini-batch, and picks tokens across it by their
 * covariance for clip_cov and kl_cov.
 */
#include <string.h>

#include <xray/numerics.h>

#include "plugins/algo-grpo/loss.h"
#include "plugins/algo-grpo/prepare.h"

static int uses_marks(const grpo_loss_rule *rule)
{
    return rule->mode == GRPO_CLIP_COV || rule->mode == GRPO_KL_COV;
}

static uint64_t measure_starts(uint32_t rows)
{
    return ((uint64_t)rows + 1) * sizeof(int32_t);
}

uint64_t grpo_context_size(const grpo_loss_rule *rule, const xray_batch *mini)
{
    return sizeof(grpo_context) +
           (uses_marks(rule) ? measure_starts(mini->rows) + mini->tokens : 0);
}

void grpo_context_write(const grpo_context *context, const xray_batch *mini,
                        void *out)
{
    grpo_context header = *context;
    unsigned char *at = out;
    header.size = sizeof(header);
    header.marked = (uint32_t)uses_marks(&header.rule);
    header.rows = mini->rows;
    header.tokens = mini->tokens;
    memcpy(at, &header, sizeof(header));
    if (!header.marked)
        return;
    at += sizeof(header);
    memcpy(at, mini->row_start, measure_starts(mini->rows));
    memset(at + measure_starts(mini->rows), 0, mini->tokens);
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

/* Returns a random key that depends only on the row and the offset of the token
 * in it. */
static uint64_t draw_token_key(const xray_batch *mini, uint64_t i)
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

/* verl `kl_cov` picks the largest covariances. */
static uint64_t compute_kl_key(const void *ctx, uint64_t i)
{
    const candidates *c = ctx;
    if (!c->in[i])
        return 0;
    return xm_rl_key(xm_rl_covariance_at(
        &c->means, (double)c->mini->advantage[i], (double)c->logp[i]));
}

/* verl `clip_cov` picks at random among the tokens whose covariance lies
 * between the bounds and which the clip does not exclude already. */
static uint64_t compute_clip_key(const void *ctx, uint64_t i)
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
    return draw_token_key(c->mini, i);
}

/* Marks the tokens that are in the loss, until the picked tokens replace them,
 * and computes the means over them. */
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
        size != sizeof(header) + measure_starts(mini->rows) + mini->tokens)
        return XRAY_E_ARG;
    unsigned char *picked =
        (unsigned char *)blob + sizeof(header) + measure_starts(mini->rows);
    candidates c = {
        .rule = &header.rule, .mini = mini, .logp = logp, .in = picked
    };
    mark_tokens(&header.rule, mini, logp, picked, &c.means);
    xm_rl_pick(header.rule.mode == GRPO_KL_COV ? compute_kl_key
                                               : compute_clip_key,
               &c, mini->tokens,
               xm_rl_covariance_picks(&c.means, header.rule.cov_ratio), picked);
    return XRAY_OK;
}
