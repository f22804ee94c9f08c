/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "model/rl/policy_metrics.h"
#include "plugins/algo-ppo/loss.h"

enum {
    METRIC_VF_LOSS = XM_RL_POLICY_METRICS,
    METRIC_VF_CLIPFRAC,
    METRIC_VPRED_MEAN,
    METRIC_COUNT,
};

static const char *const names[] = { XM_RL_POLICY_METRIC_NAMES,
                                     "critic/vf_loss", "critic/vf_clipfrac",
                                     "critic/vpred_mean", NULL };

const char *const *ppo_metric_names(void)
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

/* The value loss and its slope, not yet weighted. */
static xm_rl_term value_term(const ppo_context *context, const token *t,
                             const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    double value = (double)call->value[t->at];
    xm_rl_value v = xm_rl_value_loss(context->cliprange_value, value,
                                     (double)batch->value[t->at],
                                     (double)batch->returns[t->at]);
    add(sums, METRIC_VF_LOSS, t, t->share * v.loss.value);
    add(sums, METRIC_VF_CLIPFRAC, t, v.clipped);
    add(sums, METRIC_VPRED_MEAN, t, value);
    return v.loss;
}

static void token_loss(const ppo_context *context, const token *t,
                       const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    double logp = (double)call->logp[t->at];
    double a =
        ((double)batch->advantage[t->at] - context->mean) * context->scale;
    xm_rl_policy policy =
        xm_rl_vanilla(&context->clip, logp, (double)batch->old_logp[t->at], a);
    double total = policy.loss.value;
    double slope = policy.loss.slope;
    add(sums, XM_RL_PG_LOSS, t, t->share * policy.loss.value);
    add(sums, XM_RL_PG_CLIPFRAC, t, policy.clipped);
    add(sums, XM_RL_PG_CLIPFRAC_LOWER, t, policy.clipped_lower);
    add(sums, XM_RL_PPO_KL, t, -policy.log_ratio);
    if (context->use_kl) {
        xm_rl_term kl = xm_rl_kl(context->kl_type, context->kl_bounded != 0,
                                 logp, (double)batch->ref_logp[t->at]);
        total += context->kl_coefficient * kl.value;
        slope += context->kl_coefficient * kl.slope;
        add(sums, XM_RL_KL_LOSS, t, t->share * kl.value);
        add(sums, XM_RL_KL_COEF, t, context->kl_coefficient);
    }
    if (call->entropy) {
        double entropy = (double)call->entropy[t->at];
        total -= context->entropy_coeff * entropy;
        add(sums, XM_RL_ENTROPY, t, t->share * entropy);
    }
    call->dlogp[t->at] = (float)(t->mask * t->weight * slope);
    if (call->dentropy)
        call->dentropy[t->at] =
            (float)(-t->mask * t->weight * context->entropy_coeff);
    add(sums, XM_RL_LOSS, t, t->share * total);
}

static void weight_of(const ppo_context *context, int64_t mode,
                      const xray_batch *batch, uint32_t row, token *out)
{
    double row_tokens = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1]; i++)
        row_tokens += (double)batch->loss_mask[i];
    out->weight = xm_rl_token_weight(mode, &context->counts, row_tokens);
    /* Exactly 1 where it is 1, not tokens * (1 / tokens). */
    out->share =
        mode == XM_RL_TOKEN_MEAN ? 1.0 : out->weight * context->counts.tokens;
}

static void row_loss(const ppo_context *context, uint32_t row,
                     const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    token t = { .at = 0 };
    token v = { .at = 0 };
    weight_of(context, context->loss_agg_mode, batch, row, &t);
    weight_of(context, context->critic_loss_agg_mode, batch, row, &v);
    for (t.at = batch->row_start[row]; t.at < batch->row_start[row + 1];
         t.at++) {
        t.mask = (double)batch->loss_mask[t.at];
        if (t.mask == 0)
            continue;
        token_loss(context, &t, call, sums);
        if (!context->own_value)
            continue;
        v.at = t.at;
        v.mask = t.mask;
        xm_rl_term term = value_term(context, &v, call, sums);
        call->dvalue[v.at] =
            (float)(v.mask * v.weight * context->vf_coef * term.slope);
        sums->sum[XM_RL_LOSS] +=
            v.mask * v.share * context->vf_coef * term.value;
    }
}

static void row_value(const ppo_context *context, uint32_t row,
                      const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    token v = { .at = 0 };
    weight_of(context, context->critic_loss_agg_mode, batch, row, &v);
    for (v.at = batch->row_start[row]; v.at < batch->row_start[row + 1];
         v.at++) {
        v.mask = (double)batch->loss_mask[v.at];
        if (v.mask == 0)
            continue;
        xm_rl_term term = value_term(context, &v, call, sums);
        call->dvalue[v.at] = (float)(v.mask * v.weight * term.slope);
    }
}

static int has_values(const xray_loss_call *call)
{
    return call->value && call->dvalue && call->batch->value &&
           call->batch->returns;
}

static int complete(const ppo_context *context, const xray_loss_call *call)
{
    const xray_batch *batch = call->batch;
    if (!batch->old_logp || !batch->advantage)
        return 0;
    if (context->use_kl && !batch->ref_logp)
        return 0;
    if (context->entropy_coeff != 0 && (!call->entropy || !call->dentropy))
        return 0;
    if (context->own_value && !has_values(call))
        return 0;
    return call->logp && call->dlogp;
}

static xray_status open_context(const void *blob, uint64_t size,
                                const xray_loss_call *call,
                                const xray_metric_sums *sums, ppo_context *out)
{
    if (size != sizeof(*out))
        return XRAY_E_ARG;
    memcpy(out, blob, sizeof(*out));
    if (out->size != sizeof(*out) || sums->count < METRIC_COUNT)
        return XRAY_E_ARG;
    return call->batch->rows && !call->batch->loss_mask ? XRAY_E_ARG : XRAY_OK;
}

xray_status ppo_loss(const void *blob, uint64_t size,
                     const xray_loss_call *call, xray_metric_sums *sums)
{
    ppo_context context;
    xray_status status = open_context(blob, size, call, sums, &context);
    if (status != XRAY_OK || !call->batch->rows)
        return status;
    if (!complete(&context, call))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        row_loss(&context, row, call, sums);
    return XRAY_OK;
}

xray_status ppo_critic_loss(const void *blob, uint64_t size,
                            const xray_loss_call *call, xray_metric_sums *sums)
{
    ppo_context context;
    xray_status status = open_context(blob, size, call, sums, &context);
    if (status != XRAY_OK || !call->batch->rows)
        return status;
    if (!has_values(call))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        row_value(&context, row, call, sums);
    return XRAY_OK;
}
