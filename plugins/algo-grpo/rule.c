/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/algo-grpo/rule.h"

enum { PRESET_NONE, PRESET_VERL, PRESET_TRL, PRESET_DR_GRPO, PRESET_RLOO };

/* What a preset says about the keys that differ between projects. */
typedef struct preset_values {
    int64_t adv_estimator;
    int64_t norm_adv_by_std;
    double adv_epsilon;
    double clip_ratio_c;
    int64_t safety_bounds;
    int64_t loss_agg_mode;
} preset_values;

static const preset_values presets[] = {
    [PRESET_NONE] = { GRPO_ESTIMATOR_GRPO, 1, 1e-6, 0.0, 0, GRPO_TOKEN_MEAN },
    [PRESET_VERL] = { GRPO_ESTIMATOR_GRPO, 1, 1e-6, 3.0, 1, GRPO_TOKEN_MEAN },
    [PRESET_TRL] = { GRPO_ESTIMATOR_GRPO, 1, 1e-4, 0.0, 0, GRPO_TOKEN_MEAN },
    [PRESET_DR_GRPO] = { GRPO_ESTIMATOR_GRPO, 0, 1e-6, 0.0, 0,
                         GRPO_SEQ_MEAN_TOKEN_SUM_NORM },
    [PRESET_RLOO] = { GRPO_ESTIMATOR_RLOO_VECTORIZED, 0, 1e-6, 3.0, 1,
                      GRPO_TOKEN_MEAN },
};

static const xray_choice preset_choices[] = {
    { "none", PRESET_NONE, "GRPO and nothing else: no dual clip, no bounds" },
    { "verl", PRESET_VERL, "GRPO with verl's defaults" },
    { "trl", PRESET_TRL, "GRPO with TRL's defaults" },
    { "dr_grpo", PRESET_DR_GRPO,
      "Dr. GRPO: no division by the deviation, sums over a constant length" },
    { "rloo", PRESET_RLOO, "leave-one-out baseline, otherwise as verl" },
    { NULL, 0, NULL },
};

static const xray_choice estimator_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "grpo", GRPO_ESTIMATOR_GRPO, "score against the mean of its group" },
    { "rloo", GRPO_ESTIMATOR_RLOO,
      "score against the mean of the others; alone: the score itself" },
    { "rloo_vectorized", GRPO_ESTIMATOR_RLOO_VECTORIZED, "as rloo; alone: 0" },
    { NULL, 0, NULL },
};

static const xray_choice auto_bool_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "true", 1, NULL },
    { "false", 0, NULL },
    { "on", 1, NULL },
    { "off", 0, NULL },
    { "yes", 1, NULL },
    { "no", 0, NULL },
    { "1", 1, NULL },
    { "0", 0, NULL },
    { NULL, 0, NULL },
};

static const xray_choice agg_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "token-mean", GRPO_TOKEN_MEAN, "mean over the tokens" },
    { "token-sum", GRPO_TOKEN_SUM, "sum over the tokens" },
    { "seq-mean-token-sum", GRPO_SEQ_MEAN_TOKEN_SUM,
      "mean over rows of a row's sum" },
    { "seq-mean-token-sum-norm", GRPO_SEQ_MEAN_TOKEN_SUM_NORM,
      "the same, over loss_scale_factor" },
    { "seq-mean-token-mean", GRPO_SEQ_MEAN_TOKEN_MEAN,
      "mean over rows of a row's mean" },
    { NULL, 0, NULL },
};

static const xray_choice kl_choices[] = {
    { "low_var_kl", GRPO_KL_K3, "exp(d) - d - 1, d = ref - logp" },
    { "k3", GRPO_KL_K3, "the same" },
    { "kl", GRPO_KL_K1, "logp - ref" },
    { "k1", GRPO_KL_K1, "the same" },
    { "mse", GRPO_KL_K2, "(logp - ref)^2 / 2" },
    { "k2", GRPO_KL_K2, "the same" },
    { "abs", GRPO_KL_ABS, "|logp - ref|" },
    { NULL, 0, NULL },
};

const xray_option grpo_options[] = {
    XRAY_CHOICE(grpo_config, preset, "verl", preset_choices, "0.1",
                "Whose maths: fills every key left at auto or -1."),
    XRAY_CHOICE(grpo_config, adv_estimator, "auto", estimator_choices, "0.1",
                "How a row's advantage follows from the scores of its group."),
    XRAY_CHOICE(grpo_config, norm_adv_by_std_in_grpo, "auto", auto_bool_choices,
                "0.1",
                "Divide by the unbiased standard deviation of the group."),
    XRAY_REAL(grpo_config, adv_epsilon, "-1", -1, 1, NULL, "0.1",
              "Added to the standard deviation; -1: by the preset."),
    XRAY_REAL(grpo_config, clip_ratio, "0.2", 0, 1e6, NULL, "0.1",
              "The ratio counts within 1 - clip_ratio and 1 + clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_low, "-1", -1, 1e6, NULL, "0.1",
              "Distance of the lower bound; -1: clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_high, "-1", -1, 1e6, NULL, "0.1",
              "Distance of the upper bound; -1: clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_c, "-1", -1, 1e6, NULL, "0.1",
              "Dual clip: most a token of negative advantage may lose, in "
              "units of the advantage, above 1; 0: off, -1: by the preset."),
    XRAY_CHOICE(grpo_config, safety_bounds, "auto", auto_bool_choices, "0.1",
                "verl's limits: log-ratios within 20, k3 within 10."),
    XRAY_CHOICE(grpo_config, loss_agg_mode, "auto", agg_choices, "0.1",
                "How the tokens' losses become one number."),
    XRAY_REAL(grpo_config, loss_scale_factor, "0", 0, 1e12, "tokens", "0.1",
              "Divisor of seq-mean-token-sum-norm; 0: the longest response "
              "the run may give."),
    XRAY_BOOL(grpo_config, use_kl_loss, "false", "0.1",
              "Add KL to the reference to the loss."),
    XRAY_REAL(grpo_config, kl_loss_coef, "0.001", 0, 1e6, NULL, "0.1",
              "Weight of the KL in the loss."),
    XRAY_CHOICE(grpo_config, kl_loss_type, "low_var_kl", kl_choices, "0.1",
                "Estimator of the KL in the loss."),
    XRAY_BOOL(grpo_config, use_kl_in_reward, "false", "0.1",
              "Take KL to the reference off every token's reward."),
    XRAY_REAL(grpo_config, kl_coef, "0.001", 0, 1e6, NULL, "0.1",
              "Weight of the KL in the reward."),
    XRAY_CHOICE(grpo_config, kl_penalty, "kl", kl_choices, "0.1",
                "Estimator of the KL in the reward."),
    XRAY_REAL(grpo_config, entropy_coeff, "0", -1e6, 1e6, NULL, "0.1",
              "Weight of the entropy taken off the loss."),
};
_Static_assert(sizeof(grpo_options) ==
                   GRPO_OPTION_COUNT * sizeof(grpo_options[0]),
               "GRPO_OPTION_COUNT");

static xray_status refuse(const xray_host *host, const char *text)
{
    return host->fail(host, XRAY_E_CONFIG, "create", text);
}

static int64_t choose(int64_t value, int64_t preset)
{
    return value == GRPO_AUTO ? preset : value;
}

static double number(double value, double preset)
{
    return value < 0 ? preset : value;
}

/* -1 stands for "unset", so nothing else below 0 may pass. */
static int half_unset(double value)
{
    return value < 0 && value > GRPO_UNSET;
}

static xray_status check(const xray_host *host, const grpo_config *config,
                         const grpo_rule *rule)
{
    if (half_unset(config->adv_epsilon))
        return refuse(host, "adv_epsilon: expected -1 (by the preset) or a "
                            "number >= 0");
    if (half_unset(config->clip_ratio_low))
        return refuse(host, "clip_ratio_low: expected -1 (clip_ratio) or a "
                            "number >= 0");
    if (half_unset(config->clip_ratio_high))
        return refuse(host, "clip_ratio_high: expected -1 (clip_ratio) or a "
                            "number >= 0");
    double c = rule->clip.dual;
    if (half_unset(config->clip_ratio_c) || (c != 0 && !(c > 1)))
        return refuse(host, "clip_ratio_c: expected -1 (by the preset), 0 "
                            "(off) or a number above 1");
    if (rule->estimator.type != GRPO_ESTIMATOR_GRPO &&
        config->norm_adv_by_std_in_grpo == 1)
        return refuse(host, "norm_adv_by_std_in_grpo: has no effect with a "
                            "leave-one-out estimator; remove the key or set "
                            "adv_estimator = grpo");
    if (config->loss_scale_factor > 0 &&
        rule->loss_agg_mode != GRPO_SEQ_MEAN_TOKEN_SUM_NORM)
        return refuse(host, "loss_scale_factor: only loss_agg_mode = "
                            "seq-mean-token-sum-norm uses it; remove the key "
                            "or set that mode");
    return XRAY_OK;
}

xray_status grpo_rule_resolve(const xray_host *host, const grpo_config *config,
                              grpo_rule *out)
{
    const preset_values *p = &presets[config->preset];
    int bounded = choose(config->safety_bounds, p->safety_bounds) != 0;
    *out = (grpo_rule){
        .estimator = {
            .type = choose(config->adv_estimator, p->adv_estimator),
            .by_deviation = choose(config->norm_adv_by_std_in_grpo,
                                   p->norm_adv_by_std) != 0,
            .epsilon = number(config->adv_epsilon, p->adv_epsilon),
        },
        .clip = {
            .low = number(config->clip_ratio_low, config->clip_ratio),
            .high = number(config->clip_ratio_high, config->clip_ratio),
            .dual = number(config->clip_ratio_c, p->clip_ratio_c),
            .bound = bounded ? 20.0 : 0.0,
        },
        .kl_loss = { config->use_kl_loss != 0, bounded, config->kl_loss_type,
                     config->kl_loss_coef },
        .kl_reward = { config->use_kl_in_reward != 0, bounded,
                       config->kl_penalty, config->kl_coef },
        .loss_agg_mode = choose(config->loss_agg_mode, p->loss_agg_mode),
        .loss_scale_factor = config->loss_scale_factor,
        .entropy_coeff = config->entropy_coeff,
    };
    return check(host, config, out);
}
