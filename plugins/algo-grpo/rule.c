/* SPDX-License-Identifier: Apache-2.0
 *
 * Resolves the options and the preset to a rule, and refuses values that do
 * not work together.
 */
#include "plugins/algo-grpo/rule.h"

#include <string.h>

#include "core/base/err.h"
#include "core/base/str.h"

static xray_status refuse_key(const xray_host *host, const char *key,
                              const char *text)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, key, ": %s", text);
    return xr_host_tell(host, XRAY_E_CONFIG, "create", &err);
}

static int64_t choose_by_preset(int64_t value, int64_t preset)
{
    return value == GRPO_AUTO ? preset : value;
}

static double number_by_preset(double value, double preset)
{
    return value < 0 ? preset : value;
}

/* -1 means "not set", so all other numbers below 0 are refused. */
static int is_half_unset(double value)
{
    return value < 0 && value > GRPO_UNSET;
}

int grpo_is_token_level(const grpo_rule *rule)
{
    return rule->estimator.type == XM_RL_ADV_REINFORCE ||
           rule->estimator.type == XM_RL_ADV_REMAX;
}

int grpo_needs_groups(const grpo_rule *rule)
{
    return !grpo_is_token_level(rule) || rule->filter_groups;
}

/* ---- values that do not work together ------------------------------------ */

static xray_status check_clip(const xray_host *host, const grpo_config *config,
                              const grpo_rule *rule)
{
    double c = rule->loss.clip.dual;
    int64_t mode = rule->loss.mode;
    if (is_half_unset(config->clip_ratio_low))
        return refuse_key(host, "clip_ratio_low",
                          "expected -1 (clip_ratio) or a number >= 0");
    if (is_half_unset(config->clip_ratio_high))
        return refuse_key(host, "clip_ratio_high",
                          "expected -1 (clip_ratio) or a number >= 0");
    if (is_half_unset(config->clip_ratio_c) || (c != 0 && !(c > 1)))
        return refuse_key(
            host, "clip_ratio_c",
            "expected -1 (by the preset), 0 (off) or a number above 1");
    if (config->clip_ratio_c > 0 && mode != GRPO_VANILLA &&
        mode != GRPO_DPPO_TV && mode != GRPO_DPPO_KL)
        return refuse_key(
            host, "clip_ratio_c",
            "only loss_mode = vanilla, dppo_tv and dppo_kl use it; "
            "remove the key or set one of them");
    if (mode == GRPO_DRO ? !(config->dro_beta > 0) : config->dro_beta >= 0)
        return refuse_key(host, "dro_beta",
                          mode == GRPO_DRO
                              ? "loss_mode = dro needs a number above "
                                "0; it has no default"
                              : "only loss_mode = dro uses it; remove "
                                "the key or set that mode");
    return XRAY_OK;
}

static xray_status check_advantage(const xray_host *host,
                                   const grpo_config *config,
                                   const grpo_rule *rule)
{
    int64_t type = rule->estimator.type;
    int divides = type == XM_RL_ADV_GRPO || type == XM_RL_ADV_PASSK ||
                  type == XM_RL_ADV_GDPO;
    if (is_half_unset(config->adv_epsilon))
        return refuse_key(host, "adv_epsilon",
                          "expected -1 (by the preset) or a number >= 0");
    if (!divides && config->norm_adv_by_std_in_grpo == 1)
        return refuse_key(
            host, "norm_adv_by_std_in_grpo",
            "only adv_estimator = grpo, grpo_passk and gdpo divide by the "
            "deviation of the group; remove the key or set one of them");
    if (config->adv_deviation != GRPO_AUTO &&
        (type != XM_RL_ADV_GRPO || rule->estimator.deviation == XM_RL_STD_NONE))
        return refuse_key(
            host, "adv_deviation",
            "the advantages are not divided by a deviation; remove the key, or "
            "set adv_estimator = grpo and norm_adv_by_std_in_grpo = true");
    if (type == XM_RL_ADV_GDPO &&
        (rule->kl_reward.use || rule->overlong_buffer > 0))
        return refuse_key(
            host, "adv_estimator",
            "gdpo reads the score of each reward separately, which "
            "use_kl_in_reward and overlong_buffer_len do not change; "
            "remove the key (use_kl_loss also limits the KL)");
    if (config->gamma != 1 && type != XM_RL_ADV_REINFORCE)
        return refuse_key(host, "gamma",
                          "only adv_estimator = reinforce_plus_plus discounts; "
                          "remove the key or set that estimator");
    return XRAY_OK;
}

static xray_status check_loss(const xray_host *host, const grpo_config *config,
                              const grpo_rule *rule)
{
    int64_t mode = rule->loss.mode;
    if ((mode == GRPO_GSPO || mode == GRPO_SAPO || mode == GRPO_GEO_MEAN) &&
        rule->loss.agg != XM_RL_SEQ_MEAN_TOKEN_MEAN)
        return refuse_key(
            host, "loss_agg_mode",
            "loss_mode = gspo, sapo and geo_mean average over each row, then "
            "over rows; remove the key or set seq-mean-token-mean");
    if (config->loss_scale_factor > 0 &&
        rule->loss.agg != XM_RL_SEQ_MEAN_TOKEN_SUM_NORM)
        return refuse_key(
            host, "loss_scale_factor",
            "only loss_agg_mode = seq-mean-token-sum-norm uses it; "
            "remove the key or set that mode");
    if (is_half_unset(config->kl_loss_coef))
        return refuse_key(host, "kl_loss_coef",
                          "expected -1 (by the preset) or a number >= 0");
    if (is_half_unset(config->ppo_kl_coef))
        return refuse_key(host, "ppo_kl_coef",
                          "expected -1 (by the preset) or a number >= 0");
    if (rule->kl_control.adaptive && !rule->kl_reward.use)
        return refuse_key(
            host, "kl_ctrl",
            "adaptive changes the coefficient of the KL in the "
            "reward; set use_kl_in_reward = true or remove the key");
    if (mode == GRPO_CLIP_COV && !(rule->loss.cov_low < rule->loss.cov_high))
        return refuse_key(host, "clip_cov_lb",
                          "expected a number below clip_cov_ub");
    return XRAY_OK;
}

static xray_status check_shaping(const xray_host *host,
                                 const grpo_config *config,
                                 const grpo_rule *rule)
{
    if (rule->overlong_buffer > 0 && !(rule->longest >= rule->overlong_buffer))
        return refuse_key(
            host, "max_resp_len",
            "overlong_buffer_len needs it and may not exceed it; set "
            "it to data.max_response_length");
    if (!(rule->overlong_buffer > 0) && rule->longest > 0)
        return refuse_key(
            host, "max_resp_len",
            "only overlong_buffer_len uses it; remove the key or set that one");
    if (config->max_num_gen_batches && !rule->filter_groups)
        return refuse_key(host, "max_num_gen_batches",
                          "only filter_groups uses it; remove the key or set "
                          "filter_groups = true");
    return XRAY_OK;
}

/* ---- thresholds ---------------------------------------------------------- */

/* Parses "LOW_HIGH" or "HIGH", which leaves *low unchanged. */
static int parse_range(const char *text, double *low, double *high)
{
    char first[64];
    const char *bar = text ? strchr(text, '_') : NULL;
    size_t size = bar ? (size_t)(bar - text) : 0;
    if (!text || size >= sizeof(first))
        return -1;
    if (!bar)
        return xr_parse_real(text, high);
    memcpy(first, text, size);
    first[size] = '\0';
    return xr_parse_real(first, low) || xr_parse_real(bar + 1, high);
}

xray_status grpo_rule_correction(const xray_host *host,
                                 const grpo_config *config,
                                 xm_rl_correction *out)
{
    *out = (xm_rl_correction){ .weight = config->rollout_is,
                               .low = -1,
                               .level = config->rollout_rs / 4,
                               .kind = config->rollout_rs % 4,
                               .rs_low = -1 };
    if (parse_range(config->rollout_is_threshold, &out->low, &out->high) ||
        !(out->high > 0) || out->low > out->high ||
        (out->low < 0 && out->low != -1))
        return refuse_key(
            host, "rollout_is_threshold",
            "expected HIGH or LOW_HIGH, numbers above 0, as in 2.0 or 0.5_5.0");
    if (out->kind == XM_RL_RS_NONE) {
        if (config->rollout_rs_threshold && *config->rollout_rs_threshold)
            return refuse_key(
                host, "rollout_rs_threshold",
                "only rollout_rs uses it; remove the key or set that one");
        return XRAY_OK;
    }
    if (parse_range(config->rollout_rs_threshold, &out->rs_low,
                    &out->rs_high) ||
        !(out->rs_high > 0) || out->rs_low > out->rs_high)
        return refuse_key(
            host, "rollout_rs_threshold",
            "expected HIGH or LOW_HIGH, numbers above 0, as in 0.999_1.001");
    if (out->kind != XM_RL_RS_K1 && out->rs_low >= 0)
        return refuse_key(host, "rollout_rs_threshold",
                          "k2 and k3 have only an upper bound, as in 0.01");
    if (out->kind == XM_RL_RS_K1 && out->rs_low < 0)
        out->rs_low = 1.0 / out->rs_high;
    if (out->kind == XM_RL_RS_K1 && !(out->rs_low < out->rs_high))
        return refuse_key(
            host, "rollout_rs_threshold",
            "expected a number above 1, or LOW_HIGH with LOW below HIGH");
    return XRAY_OK;
}

/* ---- resolving ----------------------------------------------------------- */

static int64_t resolve_deviation(const grpo_config *config,
                                 const grpo_preset *p)
{
    int64_t by_preset =
        p->deviation == XM_RL_STD_NONE ? XM_RL_STD_UNBIASED : p->deviation;
    if (!choose_by_preset(config->norm_adv_by_std_in_grpo,
                          p->deviation != XM_RL_STD_NONE ||
                              config->adv_deviation != GRPO_AUTO))
        return XM_RL_STD_NONE;
    return choose_by_preset(config->adv_deviation, by_preset);
}

static grpo_loss_rule resolve_loss(const grpo_config *config,
                                   const grpo_preset *p)
{
    int64_t mode = choose_by_preset(config->loss_mode, p->loss_mode);
    /* The clip of a preset belongs to the loss of the preset. */
    double low = mode == p->loss_mode ? p->clip_low : -1;
    double high = mode == p->loss_mode ? p->clip_high : -1;
    double dual = mode == p->loss_mode ? p->clip_ratio_c : 0;
    int rows = mode == GRPO_GSPO || mode == GRPO_SAPO || mode == GRPO_GEO_MEAN;
    int bounded =
        choose_by_preset(config->safety_bounds, p->safety_bounds) != 0;
    grpo_loss_rule rule = {
        .mode = mode,
        .agg = choose_by_preset(config->loss_agg_mode,
                                rows ? XM_RL_SEQ_MEAN_TOKEN_MEAN
                                     : p->loss_agg_mode),
        .clip = { .low = number_by_preset(
                      config->clip_ratio_low,
                      number_by_preset(low, config->clip_ratio)),
                  .high = number_by_preset(
                      config->clip_ratio_high,
                      number_by_preset(high, config->clip_ratio)),
                  .dual = number_by_preset(config->clip_ratio_c, dual),
                  .bound = bounded ? 20.0 : 0.0 },
        .tau = { config->tau_pos, config->tau_neg },
        .cov_ratio = mode == GRPO_CLIP_COV ? config->clip_cov_ratio
                                           : config->kl_cov_ratio,
        .cov_low = config->clip_cov_lb,
        .cov_high = config->clip_cov_ub,
        .ppo_kl_coef = number_by_preset(
            config->ppo_kl_coef, p->ppo_kl_coef > 0 ? p->ppo_kl_coef : 0.1),
        .dro_beta = config->dro_beta,
        .kl_type = choose_by_preset(config->kl_loss_type,
                                    XM_RL_KL_K3 +
                                        (p->kl_clamped ? XM_RL_KL_CLAMPED : 0)),
        .kl_coefficient = number_by_preset(
            config->kl_loss_coef, number_by_preset(p->kl_loss_coef, 0.001)),
        .entropy_coeff = config->entropy_coeff,
        .correction_scale = 1.0,
        .use_kl =
            choose_by_preset(config->use_kl_loss, p->kl_loss_coef >= 0) != 0,
        .kl_bounded = (uint32_t)bounded,
    };
    return rule;
}

static xray_status (*const checks[])(const xray_host *, const grpo_config *,
                                     const grpo_rule *) = {
    check_advantage,
    check_clip,
    check_loss,
    check_shaping,
};
enum { CHECKS = sizeof(checks) / sizeof(checks[0]) };

xray_status grpo_rule_resolve(const xray_host *host, const grpo_config *config,
                              grpo_rule *out)
{
    const grpo_preset *p = &grpo_presets[config->preset];
    int bounded =
        choose_by_preset(config->safety_bounds, p->safety_bounds) != 0;
    *out = (grpo_rule){
        .estimator = { .type = choose_by_preset(config->adv_estimator,
                                                p->adv_estimator),
                       .deviation = resolve_deviation(config, p),
                       .epsilon = number_by_preset(config->adv_epsilon,
                                                   p->adv_epsilon) },
        .gamma = config->gamma,
        .kl_reward = { config->use_kl_in_reward != 0, bounded,
                       config->kl_penalty, config->kl_coef },
        .kl_control = { config->kl_ctrl == 1, config->target_kl,
                        config->horizon },
        .loss = resolve_loss(config, p),
        .loss_scale_factor = config->loss_scale_factor,
        .normalise_weights = config->rollout_is_batch_normalize != 0,
        .filter_groups =
            choose_by_preset(config->filter_groups, p->filter_groups) != 0,
        .max_rounds = config->max_num_gen_batches,
        .overlong_buffer = config->overlong_buffer_len,
        .overlong_factor = config->overlong_penalty_factor,
        .longest = config->max_resp_len,
    };
    xray_status status =
        grpo_rule_correction(host, config, &out->loss.correction);
    out->loss.correct = out->loss.correction.weight != XM_RL_IS_NONE ||
                        out->loss.correction.kind != XM_RL_RS_NONE;
    for (size_t i = 0; i < CHECKS && status == XRAY_OK; i++)
        status = checks[i](host, config, out);
    return status;
}
