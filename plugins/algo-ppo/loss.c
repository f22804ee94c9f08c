/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the policy loss and the value loss of a micro-batch and their
 * gradients, token by token in row order.
 */
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

const char *const *ppo_metric_names(void *self)
{
    (void)self;
    return names;
}

/* One token of the micro-batch and the factors of its loss. */
typedef struct token {
    int32_t at;
    double mask;
    double weight; /* weight in the loss of the mini-batch */
    double share;  /* weight * tokens of the mini-batch, for metrics that are
                    * summed with the weight `mask` per token */
} token;

static void add_metric(xray_metric_sums *sums, int metric, const token *t,
                       double value)
{
    sums->sum[metric] += t->mask * value;
    sums->weight[metric] += t->mask;
}

/* Returns the value loss and its slope without weights. */
static xm_rl_term compute_value_loss(const ppo_context *context, const token *t,
                                     const xray_loss_call *call,
                                     xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    double value = (double)call->value[t->at];
    xm_rl_value v = xm_rl_value_loss(context->cliprange_value, value,
                                     (double)batch->value[t->at],
                                     (double)batch->returns[t->at]);
    add_metric(sums, METRIC_VF_LOSS, t, t->share * v.loss.value);
    add_metric(sums, METRIC_VF_CLIPFRAC, t, v.clipped);
    add_metric(sums, METRIC_VPRED_MEAN, t, value);
    return v.loss;
}

static void add_token_loss(const ppo_context *context, const token *t,
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
    add_metric(sums, XM_RL_PG_LOSS, t, t->share * policy.loss.value);
    add_metric(sums, XM_RL_PG_CLIPFRAC, t, policy.clipped);
    add_metric(sums, XM_RL_PG_CLIPFRAC_LOWER, t, policy.clipped_lower);
    add_metric(sums, XM_RL_PPO_KL, t, -policy.log_ratio);
    if (context->use_kl) {
        xm_rl_term kl = xm_rl_kl(context->kl_type, context->kl_bounded != 0,
                                 logp, (double)batch->ref_logp[t->at]);
        total += context->kl_coefficient * kl.value;
        slope += context->kl_coefficient * kl.slope;
        add_metric(sums, XM_RL_KL_LOSS, t, t->share * kl.value);
        add_metric(sums, XM_RL_KL_COEF, t, context->kl_coefficient);
    }
    if (call->entropy) {
        double entropy = (double)call->entropy[t->at];
        total -= context->entropy_coeff * entropy;
        add_metric(sums, XM_RL_ENTROPY, t, t->share * entropy);
    }
    call->dlogp[t->at] = (float)(t->mask * t->weight * slope);
    if (call->dentropy)
        call->dentropy[t->at] =
            (float)(-t->mask * t->weight * context->entropy_coeff);
    add_metric(sums, XM_RL_LOSS, t, t->share * total);
}

static void compute_weight(const ppo_context *context, int64_t mode,
                           const xray_batch *batch, uint32_t row, token *out)
{
    double row_tokens = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1]; i++)
        row_tokens += (double)batch->loss_mask[i];
    out->weight = xm_rl_token_weight(mode, &context->counts, row_tokens);
    /* tokens * (1 / tokens) need not be exactly 1. */
    out->share =
        mode == XM_RL_TOKEN_MEAN ? 1.0 : out->weight * context->counts.tokens;
}

static void add_row_loss(const ppo_context *context, uint32_t row,
                         const xray_loss_call *call, xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    token t = { .at = 0 };
    token v = { .at = 0 };
    compute_weight(context, context->loss_agg_mode, batch, row, &t);
    compute_weight(context, context->critic_loss_agg_mode, batch, row, &v);
    for (t.at = batch->row_start[row]; t.at < batch->row_start[row + 1];
         t.at++) {
        t.mask = (double)batch->loss_mask[t.at];
        if (t.mask == 0)
            continue;
        add_token_loss(context, &t, call, sums);
        if (!context->own_value)
            continue;
        v.at = t.at;
        v.mask = t.mask;
        xm_rl_term term = compute_value_loss(context, &v, call, sums);
        call->dvalue[v.at] =
            (float)(v.mask * v.weight * context->vf_coef * term.slope);
        sums->sum[XM_RL_LOSS] +=
            v.mask * v.share * context->vf_coef * term.value;
    }
}

static void add_row_value_loss(const ppo_context *context, uint32_t row,
                               const xray_loss_call *call,
                               xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    token v = { .at = 0 };
    compute_weight(context, context->critic_loss_agg_mode, batch, row, &v);
    for (v.at = batch->row_start[row]; v.at < batch->row_start[row + 1];
         v.at++) {
        v.mask = (double)batch->loss_mask[v.at];
        if (v.mask == 0)
            continue;
        xm_rl_term term = compute_value_loss(context, &v, call, sums);
        call->dvalue[v.at] = (float)(v.mask * v.weight * term.slope);
    }
}

static int has_values(const xray_loss_call *call)
{
    return call->value && call->dvalue && call->batch->value &&
           call->batch->returns;
}

static int has_inputs(const ppo_context *context, const xray_loss_call *call)
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

static xray_status read_context(const void *blob, uint64_t size,
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
    xray_status status = read_context(blob, size, call, sums, &context);
    if (status != XRAY_OK || !call->batch->rows)
        return status;
    if (!has_inputs(&context, call))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        add_row_loss(&context, row, call, sums);
    return XRAY_OK;
}

xray_status ppo_critic_loss(const void *blob, uint64_t size,
                            const xray_loss_call *call, xray_metric_sums *sums)
{
    ppo_context context;
    xray_status status = read_context(blob, size, call, sums, &context);
    if (status != XRAY_OK || !call->batch->rows)
        return status;
    if (!has_values(call))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        add_row_value_loss(&context, row, call, sums);
    return XRAY_OK;
}
