/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of the algorithm, with the choices of each key.
 */
#include "plugins/algo-grpo/rule.h"

#include "model/rl/option_choices.h"

/* The values are indices into grpo_presets; a test compares the two tables. */
static const xray_choice preset_choices[] = {
    { "none", 0, "plain GRPO, without dual clip and safety bounds" },
    { "verl", 1, "GRPO with verl's defaults" },
    { "trl", 2, "GRPO with TRL's defaults (loss_type dapo)" },
    { "trl_grpo", 3, "TRL's loss_type grpo" },
    { "openrlhf", 4, "OpenRLHF's group_norm" },
    { "openrlhf_dr_grpo", 5, "OpenRLHF's dr_grpo" },
    { "open_instruct", 6, "open-instruct's default, centered" },
    { "open_instruct_standard", 7, "open-instruct's standard" },
    { "nemo_rl", 8, "NeMo-RL's default, leave-one-out" },
    { "dr_grpo", 9,
      "Dr. GRPO: no division by the deviation, sums over a constant length" },
    { "verl_dr_grpo", 10, "Dr. GRPO as in verl, with its dual clip" },
    { "rloo", 11, "leave-one-out baseline, otherwise as verl" },
    { "reinforce_plus_plus", 12, "returns of tokens, whitened (verl)" },
    { "reinforce_plus_plus_baseline", 13, "centred and whitened (verl)" },
    { "remax", 14, "the score of a greedy sample is the baseline (verl)" },
    { "opo", 15, "baseline weighted by length (verl)" },
    { "gpg", 16, "no ratio and no clip (verl)" },
    { "grpo_passk", 17, "only the best sample of a group (verl)" },
    { "maxrl", 18, "divided by the mean of the group (SkyRL)" },
    { "dapo", 19, "clip-higher and dynamic sampling (verl)" },
    { "gspo", 20, "one ratio per row (verl)" },
    { "cispo", 21, "clipped weights (verl)" },
    { "cispo_trl", 22, "TRL's CISPO" },
    { "cispo_open_instruct", 23, "open-instruct's CISPO" },
    { "gmpo", 24, "geometric mean of clipped ratios (verl's geo_mean)" },
    { "sapo", 25, "a soft gate instead of a clip (verl)" },
    { "clip_cov", 26, "drops tokens of high covariance from the loss (verl)" },
    { "kl_cov", 27, "penalises tokens of the highest covariance (verl)" },
    { "dppo_tv", 28, "clip by binary total variation (verl)" },
    { "dppo_kl", 29, "clip by binary KL (verl)" },
    { "dro", 30, "a quadratic penalty; needs dro_beta (verl)" },
    { "gdpo", 31, "each reward separately, then summed (verl)" },
    { NULL, 0, NULL },
};

static const xray_choice estimator_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "grpo", XM_RL_ADV_GRPO, "score minus the mean of its group" },
    { "rloo", XM_RL_ADV_RLOO,
      "score minus the mean of the others; of a single sample, its score" },
    { "rloo_vectorized", XM_RL_ADV_RLOO_VECTORIZED,
      "as rloo; of a single sample, 0" },
    { "grpo_passk", XM_RL_ADV_PASSK,
      "of the best sample, its score minus the second; of the others, 0" },
    { "opo", XM_RL_ADV_OPO, "score minus a mean weighted by length" },
    { "gpg", XM_RL_ADV_GPG, "as grpo, divided by the share of nonzero scores" },
    { "maxrl", XM_RL_ADV_MAXRL, "as grpo, divided by the mean of the group" },
    { "gdpo", XM_RL_ADV_GDPO,
      "grpo of each reward separately, summed, whitened over the batch" },
    { "reinforce_plus_plus", XM_RL_ADV_REINFORCE,
      "discounted returns, whitened over the batch" },
    { "reinforce_plus_plus_baseline", XM_RL_ADV_REINFORCE_BASELINE,
      "score minus the mean of its group, whitened over the batch" },
    { "remax", XM_RL_ADV_REMAX, "returns minus the score of a greedy sample" },
    { NULL, 0, NULL },
};

static const xray_choice deviation_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "unbiased", XM_RL_STD_UNBIASED, "of the group, divided by n - 1" },
    { "population", XM_RL_STD_POPULATION, "of the group, divided by n" },
    { "others", XM_RL_STD_OTHERS,
      "of the group's other samples, whose mean is then the baseline" },
    { NULL, 0, NULL },
};

static const xray_choice mode_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    { "vanilla", GRPO_VANILLA, "PPO's clip, dual clip by clip_ratio_c" },
    { "gspo", GRPO_GSPO, "the clip on the geometric mean ratio of the row" },
    { "cispo", GRPO_CISPO, "clipped weights of the log-probability" },
    { "gpg", GRPO_GPG, "-A logp" },
    { "sapo", GRPO_SAPO, "a sigmoid gate, set by tau_pos and tau_neg" },
    { "clip_cov", GRPO_CLIP_COV,
      "drops tokens by clip_cov_ratio, clip_cov_lb and clip_cov_ub" },
    { "kl_cov", GRPO_KL_COV,
      "penalises tokens by kl_cov_ratio and ppo_kl_coef" },
    { "geo_mean", GRPO_GEO_MEAN, "GMPO: clips log-ratios" },
    { "dppo_tv", GRPO_DPPO_TV, "clips by the total variation" },
    { "dppo_kl", GRPO_DPPO_KL, "clips by the binary KL" },
    { "dro", GRPO_DRO, "a quadratic penalty, weighted by dro_beta" },
    { NULL, 0, NULL },
};

static const xray_choice agg_choices[] = {
    { "auto", GRPO_AUTO, "by the preset" },
    XM_RL_AGG_CHOICES,
    { NULL, 0, NULL },
};

#define STRAIGHT(kind) (XM_RL_KL_##kind + XM_RL_KL_STRAIGHT)
#define CLAMPED(kind) (XM_RL_KL_##kind + XM_RL_KL_CLAMPED)
/* `auto` is only for the KL in the loss, because presets set only that one. */
static const xray_choice kl_choices[] = {
    { "auto", GRPO_AUTO, "by the preset, else low_var_kl" },
    XM_RL_KL_CHOICES,
    { "k1_clamped", CLAMPED(K1), "k1 clamped to +-10, as in NeMo-RL" },
    { "k2_clamped", CLAMPED(K2), "k2 up to 10, as in NeMo-RL" },
    { "k3_clamped", CLAMPED(K3), "k3 up to 10, as in NeMo-RL" },
    { "low_var_kl+", STRAIGHT(K3), "its value, the gradient of k2" },
    { "k3+", STRAIGHT(K3), "the same" },
    { "kl+", STRAIGHT(K1), "its value, the gradient of k2" },
    { "k1+", STRAIGHT(K1), "the same" },
    { "mse+", STRAIGHT(K2), "k2" },
    { "k2+", STRAIGHT(K2), "k2" },
    { "abs+", STRAIGHT(ABS), "its value, the gradient of k2" },
    { NULL, 0, NULL },
};

static const xray_choice control_choices[] = {
    { "fixed", 0, "kl_coef in every step" },
    { "adaptive", 1, "kl_coef brings the KL to target_kl" },
    { NULL, 0, NULL },
};

static const xray_choice is_choices[] = {
    { "none", XM_RL_IS_NONE, "no weights" },
    { "token", XM_RL_IS_TOKEN, "the ratio of trainer and sampler per token" },
    { "sequence", XM_RL_IS_SEQUENCE,
      "the ratio of the row for all its tokens" },
    { NULL, 0, NULL },
};

/* level * 4 + kind */
#define RS(level, kind) (XM_RL_RS_##level * 4 + XM_RL_RS_##kind)
static const xray_choice rs_choices[] = {
    { "none", 0, "nothing is rejected" },
    { "token_k1", RS(TOKEN, K1), "tokens, by their ratio" },
    { "token_k2", RS(TOKEN, K2), "tokens, by log^2 / 2" },
    { "token_k3", RS(TOKEN, K3), "tokens, by r - 1 - log r" },
    { "seq_sum_k1", RS(SUM, K1), "rows, by the product of ratios" },
    { "seq_sum_k2", RS(SUM, K2), "rows, by the sum of k2" },
    { "seq_sum_k3", RS(SUM, K3), "rows, by the sum of k3" },
    { "seq_mean_k1", RS(MEAN, K1), "rows, by the geometric mean ratio" },
    { "seq_mean_k2", RS(MEAN, K2), "rows, by the mean of k2" },
    { "seq_mean_k3", RS(MEAN, K3), "rows, by the mean of k3" },
    { "seq_max_k1", RS(MAX, K1), "rows, by their furthest ratios" },
    { "seq_max_k2", RS(MAX, K2), "rows, by their largest k2" },
    { "seq_max_k3", RS(MAX, K3), "rows, by their largest k3" },
    { NULL, 0, NULL },
};

const xray_option grpo_options[] = {
    XRAY_CHOICE(grpo_config, preset, "verl", preset_choices, 0u, "0.1",
                "The published variant that sets every key left at auto or -1; "
                "see xray algo list."),
    XRAY_CHOICE(grpo_config, adv_estimator, "auto", estimator_choices, 0u,
                "0.1",
                "How the advantage of a row is computed from the scores of its "
                "group."),
    XRAY_TRISTATE(grpo_config, norm_adv_by_std_in_grpo, "auto", 0u, "0.1",
                  "Divide advantages by the standard deviation of the group; "
                  "auto: by the preset."),
    XRAY_CHOICE(grpo_config, adv_deviation, "auto", deviation_choices, 0u,
                "0.1",
                "The standard deviation that advantages are divided by."),
    XRAY_REAL(grpo_config, adv_epsilon, "-1", -1, 1, NULL, 0u, "0.1",
              "Number added to the divisor of advantages; -1: by the preset."),
    XRAY_REAL(grpo_config, gamma, "1", 0, 1, NULL, 0u, "0.1",
              "Discount of reinforce_plus_plus."),
    XRAY_CHOICE(grpo_config, loss_mode, "auto", mode_choices, 0u, "0.1",
                "The policy loss of a token."),
    XRAY_REAL(grpo_config, clip_ratio, "0.2", 0, 1e6, NULL, 0u, "0.1",
              "The ratio is clipped to 1 - clip_ratio and 1 + clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_low, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Distance of the lower bound from 1; -1: by the preset, else "
              "clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_high, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Distance of the upper bound from 1; -1: by the preset, else "
              "clip_ratio."),
    XRAY_REAL(grpo_config, clip_ratio_c, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Dual clip: largest loss of a token of negative advantage, in "
              "units of the advantage, above 1; 0: off, -1: by the preset."),
    XRAY_TRISTATE(grpo_config, safety_bounds, "auto", 0u, "0.1",
                  "Clamp log-ratios to +-20 and k3 to +-10, as verl does; "
                  "auto: by the preset."),
    XRAY_REAL(grpo_config, tau_pos, "1", 1e-6, 1e6, NULL, 0u, "0.1",
              "sapo: steepness of the gate for advantages above 0."),
    XRAY_REAL(grpo_config, tau_neg, "1.05", 1e-6, 1e6, NULL, 0u, "0.1",
              "sapo: steepness of the gate for other advantages."),
    XRAY_REAL(grpo_config, clip_cov_ratio, "2e-4", 0, 1, NULL, 0u, "0.1",
              "clip_cov: share of the tokens that are picked."),
    XRAY_REAL(grpo_config, clip_cov_lb, "1", -1e6, 1e6, NULL, 0u, "0.1",
              "clip_cov: tokens with a covariance above this are candidates."),
    XRAY_REAL(grpo_config, clip_cov_ub, "5", -1e6, 1e6, NULL, 0u, "0.1",
              "clip_cov: tokens with a covariance below this are candidates."),
    XRAY_REAL(grpo_config, kl_cov_ratio, "2e-4", 0, 1, NULL, 0u, "0.1",
              "kl_cov: share of the tokens that are picked."),
    XRAY_REAL(grpo_config, ppo_kl_coef, "-1", -1, 1e6, NULL, 0u, "0.1",
              "kl_cov: weight of |log-ratio| in the loss of a picked token; "
              "-1: by the preset, else 0.1."),
    XRAY_REAL(grpo_config, dro_beta, "-1", -1, 1e6, NULL, 0u, "0.1",
              "dro: weight of the quadratic penalty, above 0."),
    XRAY_CHOICE(grpo_config, loss_agg_mode, "auto", agg_choices, 0u, "0.1",
                "How the losses of tokens are averaged."),
    XRAY_REAL(grpo_config, loss_scale_factor, "0", 0, 1e12, "tokens", 0u, "0.1",
              "Divisor of seq-mean-token-sum-norm; 0: the longest response "
              "that the run allows."),
    XRAY_TRISTATE(grpo_config, use_kl_loss, "auto", 0u, "0.1",
                  "Add KL to the reference to the loss; auto: by the preset."),
    XRAY_REAL(grpo_config, kl_loss_coef, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Weight of the KL in the loss; -1: by the preset, else 0.001."),
    XRAY_CHOICE(grpo_config, kl_loss_type, "auto", kl_choices, 0u, "0.1",
                "Estimator of the KL in the loss."),
    XRAY_REAL(grpo_config, kl_coef, "0.001", 0, 1e6, NULL, 0u, "0.1",
              "Weight of the KL in the reward."),
    XRAY_CHOICE(grpo_config, kl_penalty, "kl", &kl_choices[1], 0u, "0.1",
                "Estimator of the KL in the reward."),
    XRAY_CHOICE(grpo_config, kl_ctrl, "fixed", control_choices, 0u, "0.1",
                "How kl_coef changes from step to step."),
    XRAY_REAL(grpo_config, target_kl, "0.1", 1e-12, 1e6, NULL, 0u, "0.1",
              "The KL that an adaptive kl_coef aims at."),
    XRAY_REAL(grpo_config, horizon, "10000", 1e-6, 1e18, "rows", 0u, "0.1",
              "The time scale of an adaptive kl_coef: a longer one adapts more "
              "slowly."),
    XRAY_REAL(grpo_config, entropy_coeff, "0", -1e6, 1e6, NULL, 0u, "0.1",
              "Weight of the entropy that is subtracted from the loss."),
    XRAY_TRISTATE(
        grpo_config, filter_groups, "auto", 0u, "0.1",
        "Replace groups whose scores are all equal by groups of other "
        "prompts; auto: by the preset."),
    XRAY_INT(grpo_config, max_num_gen_batches, "0", 0, 1000000, NULL, 0u, "0.1",
             "filter_groups: number of batches after which all groups are "
             "kept; 0: the core decides."),
    XRAY_REAL(grpo_config, overlong_buffer_len, "0", 0, 1e9, "tokens", 0u,
              "0.1",
              "Number of tokens before max_resp_len over which the penalty of "
              "a response grows; 0: no penalty."),
    XRAY_REAL(grpo_config, overlong_penalty_factor, "1", 0, 1e6, NULL, 0u,
              "0.1", "Penalty of a response of max_resp_len tokens."),
    XRAY_REAL(
        grpo_config, max_resp_len, "0", 0, 1e9, "tokens", 0u, "0.1",
        "With overlong_buffer_len: the same as data.max_response_length."),
    XRAY_CHOICE(grpo_config, rollout_is, "none", is_choices, 0u, "0.1",
                "Importance weights that correct for a sampler whose "
                "log-probabilities differ."),
    XRAY_STRING(grpo_config, rollout_is_threshold, "2.0", 0, "0.1",
                "HIGH: larger weights are cut to HIGH; LOW_HIGH: weights "
                "outside of this range become 0."),
    XRAY_CHOICE(grpo_config, rollout_rs, "none", rs_choices, 0u, "0.1",
                "Rejection of tokens or rows by the difference of their "
                "log-probabilities."),
    XRAY_STRING(grpo_config, rollout_rs_threshold, "", 0, "0.1",
                "k1: LOW_HIGH of the ratio, or HIGH (then LOW = 1 / HIGH); "
                "k2, k3: HIGH."),
    XRAY_BOOL(grpo_config, rollout_is_batch_normalize, "false", 0u, "0.1",
              "Divide weights by their mean over the step."),
    XRAY_BOOL(
        grpo_config, use_kl_in_reward, "false", 0u, "0.1",
        "Subtract the KL to the reference from the reward of each token."),
};
_Static_assert(sizeof(grpo_options) ==
                   GRPO_OPTION_COUNT * sizeof(grpo_options[0]),
               "GRPO_OPTION_COUNT");
