/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "plugins/algo-grpo/loss.h"

enum {
    METRIC_PG_LOSS,
    METRIC_PG_CLIPFRAC,
    METRIC_PG_CLIPFRAC_LOWER,
    METRIC_PPO_KL,
    METRIC_KL_LOSS,
    METRIC_KL_COEF,
    METRIC_ENTROPY,
    METRIC_LOSS,
    METRIC_COUNT,
};

static const char *const names[METRIC_COUNT + 1] = {
    [METRIC_PG_LOSS] = "actor/pg_loss",
    [METRIC_PG_CLIPFRAC] = "actor/pg_clipfrac",
    [METRIC_PG_CLIPFRAC_LOWER] = "actor/pg_clipfrac_lower",
    [METRIC_PPO_KL] = "actor/ppo_kl",
    [METRIC_KL_LOSS] = "actor/kl_loss",
    [METRIC_KL_COEF] = "actor/kl_coef",
    [METRIC_ENTROPY] = "actor/entropy",
    [METRIC_LOSS] = "actor/loss",
};

const char *const *grpo_metric_names(void)
{
    return names;
}

/* A token of the micro-batch, and the factors of its loss. */
typedef struct token {
    int32_t at;
    double mask;
    double weight; /* in the loss of the mini-batch */
    double share;  /* weight * tokens of the mini-batch: in a metric that is
                    * summed with weight `mask` a token */
} token;

static void add(xray_metric_sums *sums, int metric, const token *t,
                double value)
{
    sums->sum[metric] += t->mask * value;
    sums->weight[metric] += t->mask;
}

static void token_loss(const grpo_context *context, const token *t,
                       const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    double logp = (double)call->logp[t->at];
    grpo_policy policy =
        grpo_policy_loss(&context->clip, logp, (double)batch->old_logp[t->at],
                         (double)batch->advantage[t->at]);
    double total = policy.loss.value;
    double slope = policy.loss.slope;
    add(sums, METRIC_PG_LOSS, t, t->share * policy.loss.value);
    add(sums, METRIC_PG_CLIPFRAC, t, policy.clipped);
    add(sums, METRIC_PG_CLIPFRAC_LOWER, t, policy.clipped_lower);
    add(sums, METRIC_PPO_KL, t, -policy.log_ratio);
    if (context->use_kl) {
        grpo_term kl = grpo_kl(context->kl_type, context->kl_bounded != 0, logp,
                               (double)batch->ref_logp[t->at]);
        total += context->kl_coefficient * kl.value;
        slope += context->kl_coefficient * kl.slope;
        add(sums, METRIC_KL_LOSS, t, t->share * kl.value);
        add(sums, METRIC_KL_COEF, t, context->kl_coefficient);
    }
    if (call->entropy) {
        double entropy = (double)call->entropy[t->at];
        total -= context->entropy_coeff * entropy;
        add(sums, METRIC_ENTROPY, t, t->share * entropy);
    }
    add(sums, METRIC_LOSS, t, t->share * total);
    call->dlogp[t->at] = (float)(t->mask * t->weight * slope);
    if (call->dentropy)
        call->dentropy[t->at] =
            (float)(-t->mask * t->weight * context->entropy_coeff);
}

static void row_loss(const grpo_context *context, uint32_t row,
                     const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    int32_t first = batch->row_start[row];
    int32_t end = batch->row_start[row + 1];
    double row_tokens = 0;
    for (int32_t i = first; i < end; i++)
        row_tokens += (double)batch->loss_mask[i];
    token t = { .weight = grpo_token_weight(context->loss_agg_mode,
                                            &context->counts, row_tokens) };
    /* Exactly 1 where it is 1, not tokens * (1 / tokens). */
    t.share = context->loss_agg_mode == GRPO_TOKEN_MEAN
                  ? 1.0
                  : t.weight * context->counts.tokens;
    for (t.at = first; t.at < end; t.at++) {
        t.mask = (double)batch->loss_mask[t.at];
        if (t.mask != 0)
            token_loss(context, &t, call, sums);
    }
}

static int complete(const grpo_context *context, const xray_loss_call *call,
                    const xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    if (!batch->old_logp || !batch->advantage || !batch->loss_mask)
        return 0;
    if (context->use_kl && !batch->ref_logp)
        return 0;
    if (context->entropy_coeff != 0 && (!call->entropy || !call->dentropy))
        return 0;
    return call->logp && call->dlogp && sums->count >= METRIC_COUNT;
}

xray_status grpo_loss(const void *blob, uint64_t size,
                      const xray_loss_call *call, xray_metric_sums *sums)
{
    grpo_context context;
    if (size != sizeof(context))
        return XRAY_E_ARG;
    memcpy(&context, blob, sizeof(context));
    if (context.size != sizeof(context))
        return XRAY_E_ARG;
    if (!call->batch->rows)
        return XRAY_OK;
    if (!complete(&context, call, sums))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        row_loss(&context, row, call, sums);
    return XRAY_OK;
}
