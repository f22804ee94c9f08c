/* SPDX-License-Identifier: Apache-2.0
 *
 * Computes the loss of a micro-batch and its gradient, token by token in row
 * order.
 */
#include <string.h>

#include "model/rl/policy_metrics.h"
#include "plugins/algo-grpo/loss.h"
#include "plugins/algo-grpo/prepare.h"

static const char *const names[] = { XM_RL_POLICY_METRIC_NAMES, NULL };

const char *const *grpo_metric_names(void *self)
{
    (void)self;
    return names;
}

/* One token of the micro-batch and the factors of its loss. */
typedef struct token {
    int32_t at;
    int picked;
    double mask;
    double weight;     /* weight in the loss of the mini-batch */
    double share;      /* weight * tokens of the mini-batch, for metrics that
                        * are summed with the weight `mask` per token */
    double correction; /* weight of the rollout correction */
} token;

/* Facts that all tokens of a row share. */
typedef struct row_facts {
    xm_rl_drift drift;
    xm_rl_sequence sequence;
} row_facts;

static void add_metric(xray_metric_sums *sums, int metric, const token *t,
                       double value)
{
    sums->sum[metric] += t->mask * value;
    sums->weight[metric] += t->mask;
}

static xm_rl_policy compute_policy_loss(const grpo_loss_rule *rule,
                                        const xm_rl_sequence *row,
                                        const token *t,
                                        const xray_loss_call *call)
{
    const xray_batch *batch = call->batch;
    const xm_rl_clip *clip = &rule->clip;
    double logp = (double)call->logp[t->at];
    double old = (double)batch->old_logp[t->at];
    double a = (double)batch->advantage[t->at];
    switch (rule->mode) {
    case GRPO_GSPO:
        return xm_rl_gspo(clip, row, logp, old, a);
    case GRPO_CISPO:
        return xm_rl_cispo(clip, logp, old, a);
    case GRPO_GPG:
        return xm_rl_gpg(clip, logp, old, a);
    case GRPO_SAPO:
        return xm_rl_sapo(clip, rule->tau, logp, old, a);
    case GRPO_CLIP_COV:
        return xm_rl_clip_cov(clip, t->picked, logp, old, a);
    case GRPO_KL_COV:
        return xm_rl_kl_cov(clip, t->picked ? rule->ppo_kl_coef : 0, logp, old,
                            a);
    case GRPO_GEO_MEAN:
        return xm_rl_gmpo(clip, row, logp, old, a);
    case GRPO_DPPO_TV:
    case GRPO_DPPO_KL:
        return xm_rl_dppo(clip, rule->mode == GRPO_DPPO_KL, logp, old, a);
    case GRPO_DRO:
        return xm_rl_dro(clip, rule->dro_beta, logp, old, a);
    default:
        return xm_rl_vanilla(clip, logp, old, a);
    }
}

static void add_token_loss(const grpo_loss_rule *rule, const row_facts *row,
                           const token *t, const xray_loss_call *call,
                           xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    double logp = (double)call->logp[t->at];
    xm_rl_policy policy = compute_policy_loss(rule, &row->sequence, t, call);
    double total = t->correction * policy.loss.value;
    double slope = t->correction * policy.loss.slope;
    add_metric(sums, XM_RL_PG_LOSS, t, t->share * total);
    add_metric(sums, XM_RL_PG_CLIPFRAC, t, policy.clipped);
    add_metric(sums, XM_RL_PG_CLIPFRAC_LOWER, t, policy.clipped_lower);
    add_metric(sums, XM_RL_PPO_KL, t, -policy.log_ratio);
    if (rule->use_kl) {
        xm_rl_term kl = xm_rl_kl(rule->kl_type, rule->kl_bounded != 0, logp,
                                 (double)batch->ref_logp[t->at]);
        total += rule->kl_coefficient * kl.value;
        slope += rule->kl_coefficient * kl.slope;
        add_metric(sums, XM_RL_KL_LOSS, t, t->share * kl.value);
        add_metric(sums, XM_RL_KL_COEF, t, rule->kl_coefficient);
    }
    if (call->entropy) {
        double entropy = (double)call->entropy[t->at];
        total -= rule->entropy_coeff * entropy;
        add_metric(sums, XM_RL_ENTROPY, t, t->share * entropy);
    }
    add_metric(sums, XM_RL_LOSS, t, t->share * total);
    call->dlogp[t->at] = (float)(t->mask * t->weight * slope);
    if (call->dentropy)
        call->dentropy[t->at] =
            (float)(-t->mask * t->weight * rule->entropy_coeff);
}

/* ---- rows ---------------------------------------------------------------- */

/* Returns the correction weight of a token. GMPO includes these weights in its
 * geometric mean; all other losses multiply each token by its own. */
static double compute_correction(const grpo_loss_rule *rule,
                                 const xm_rl_drift *drift,
                                 const xray_batch *batch, int32_t at)
{
    if (rule->correction.weight == XM_RL_IS_NONE)
        return 1.0;
    double log_r = xm_rl_log_drift((double)batch->old_logp[at],
                                   (double)batch->rollout_logp[at]);
    return rule->correction_scale *
           xm_rl_drift_weight(&rule->correction, drift, log_r);
}

static row_facts measure_row(const grpo_loss_rule *rule, uint32_t row,
                             const xray_loss_call *call, double *out_tokens)
{
    const xray_batch *batch = call->batch;
    row_facts facts = { .drift =
                            grpo_row_drift(&rule->correction, batch, row) };
    *out_tokens = 0;
    for (int32_t i = batch->row_start[row]; i < batch->row_start[row + 1];
         i++) {
        double mask = grpo_mask_of(&rule->correction, batch, &facts.drift, i);
        *out_tokens += mask;
        if (mask != 0 &&
            (rule->mode == GRPO_GSPO || rule->mode == GRPO_GEO_MEAN))
            xm_rl_sequence_add(&rule->clip, (double)call->logp[i],
                               (double)batch->old_logp[i],
                               (double)batch->advantage[i],
                               compute_correction(rule, &facts.drift, batch, i),
                               &facts.sequence);
    }
    return facts;
}

/* Returns the marks of a row of the mini-batch, from its first token on, or
 * NULL if there are none. */
static const unsigned char *find_row_marks(const grpo_context *context,
                                           const void *blob, uint64_t row)
{
    int32_t start = 0;
    const unsigned char *at = (const unsigned char *)blob + sizeof(*context);
    if (!context->marked)
        return NULL;
    memcpy(&start, at + row * sizeof(start), sizeof(start));
    return at + ((uint64_t)context->rows + 1) * sizeof(start) + start;
}

static void add_row_loss(const grpo_context *context, uint32_t row,
                         const unsigned char *marks, const xray_loss_call *call,
                         xray_metric_sums *sums)
{
    const grpo_loss_rule *rule = &context->rule;
    const xray_batch *batch = call->batch;
    int32_t first = batch->row_start[row];
    double row_tokens = 0;
    row_facts facts = measure_row(rule, row, call, &row_tokens);
    token t = { .weight = xm_rl_token_weight(rule->agg, &context->counts,
                                             row_tokens) };
    /* tokens * (1 / tokens) need not be exactly 1. */
    t.share =
        rule->agg == XM_RL_TOKEN_MEAN ? 1.0 : t.weight * context->counts.tokens;
    for (t.at = first; t.at < batch->row_start[row + 1]; t.at++) {
        t.mask = grpo_mask_of(&rule->correction, batch, &facts.drift, t.at);
        if (t.mask == 0)
            continue;
        t.picked = marks && marks[t.at - first];
        t.correction =
            rule->mode == GRPO_GEO_MEAN
                ? 1.0
                : compute_correction(rule, &facts.drift, batch, t.at);
        add_token_loss(rule, &facts, &t, call, sums);
    }
}

static int has_inputs(const grpo_loss_rule *rule, const xray_loss_call *call,
                      const xray_metric_sums *sums)
{
    const xray_batch *batch = call->batch;
    if (!batch->old_logp || !batch->advantage || !batch->loss_mask)
        return 0;
    if (rule->use_kl && !batch->ref_logp)
        return 0;
    if (rule->correct && !batch->rollout_logp)
        return 0;
    if (rule->entropy_coeff != 0 && (!call->entropy || !call->dentropy))
        return 0;
    return call->logp && call->dlogp && sums->count >= XM_RL_POLICY_METRICS;
}

/* Returns 1 if the rows of the micro-batch belong to the mini-batch of the
 * context. */
static int fits_context(const grpo_context *context, uint64_t size,
                        const xray_loss_call *call)
{
    uint64_t starts = ((uint64_t)context->rows + 1) * sizeof(int32_t);
    if (!context->marked)
        return size == sizeof(*context);
    if (size != sizeof(*context) + starts + context->tokens ||
        !call->batch->row_index)
        return 0;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        if (call->batch->row_index[row] >= context->rows)
            return 0;
    return 1;
}

xray_status grpo_loss(const void *blob, uint64_t size,
                      const xray_loss_call *call, xray_metric_sums *sums)
{
    grpo_context context;
    if (size < sizeof(context))
        return XRAY_E_ARG;
    memcpy(&context, blob, sizeof(context));
    if (context.size != sizeof(context))
        return XRAY_E_ARG;
    if (!call->batch->rows)
        return XRAY_OK;
    if (!has_inputs(&context.rule, call, sums) ||
        !fits_context(&context, size, call))
        return XRAY_E_ARG;
    for (uint32_t row = 0; row < call->batch->rows; row++)
        add_row_loss(&context, row,
                     find_row_marks(&context, blob,
                                    call->batch->row_index
                                        ? call->batch->row_index[row]
                                        : row),
                     call, sums);
    return XRAY_OK;
}
