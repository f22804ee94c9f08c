/* SPDX-License-Identifier: Apache-2.0
 *
 * The option table of the algorithm, and the resolution of options and preset
 * to a rule.
 */
#include "plugins/algo-ppo/rule.h"

#include "core/base/err.h"
#include "model/rl/option_choices.h"

enum { PRESET_VERL, PRESET_TRLX };

/* A preset's values of the keys that differ between projects. */
typedef struct preset_values {
    double lam;
    double clip_ratio_c;
    int64_t safety_bounds;
    double cliprange_value;
    int64_t value_model;
    int64_t whiten;
    int64_t use_kl_in_reward;
    int64_t control_update;
    double cliprange_reward;
} preset_values;

/* verl 1dda039b9: verl/trainer/config (critic.cliprange_value,
 * actor.clip_ratio_c, algorithm.lam). trlX: trlx/data/default_configs.py
 * `default_ppo_config`, trlx/models/modeling_ppo.py `PPOConfig`. */
static const preset_values presets[] = {
    [PRESET_VERL] = { 1.0, 3.0, 1, 0.5, PPO_VALUE_CRITIC, PPO_WHITEN_BATCH, 0,
                      PPO_CONTROL_STEP, 0.0 },
    [PRESET_TRLX] = { 0.95, 0.0, 0, 0.2, PPO_VALUE_POLICY, PPO_WHITEN_PADDED, 1,
                      PPO_CONTROL_EPOCH, 10.0 },
};

static const xray_choice preset_choices[] = {
    { "verl", PRESET_VERL, "a separate critic, with verl's defaults" },
    { "trlx", PRESET_TRLX, "a policy with a value head, as in trlX" },
    { NULL, 0, NULL },
};

static const xray_choice agg_choices[] = { XM_RL_AGG_CHOICES,
                                           { NULL, 0, NULL } };
static const xray_choice critic_agg_choices[] = {
    { "auto", PPO_AUTO, "as loss_agg_mode" },
    XM_RL_AGG_CHOICES,
    { NULL, 0, NULL },
};

static const xray_choice kl_choices[] = {
    XM_RL_KL_CHOICES,
    { NULL, 0, NULL },
};

static const xray_choice control_choices[] = {
    { "fixed", 0, "kl_coef in every step" },
    { "adaptive", 1, "kl_coef brings the KL to target_kl" },
    { NULL, 0, NULL },
};

static const xray_choice update_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "step", PPO_CONTROL_STEP, "once per step, by its rows" },
    { "epoch", PPO_CONTROL_EPOCH,
      "once per epoch, by the rows of a mini-batch" },
    { NULL, 0, NULL },
};

static const xray_choice value_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "critic", PPO_VALUE_CRITIC, "a separate model" },
    { "policy", PPO_VALUE_POLICY, "a second head of the policy" },
    { NULL, 0, NULL },
};

static const xray_choice whiten_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "none", PPO_WHITEN_NONE, "advantages are not whitened" },
    { "batch", PPO_WHITEN_BATCH, "over the tokens of a step" },
    { "mini-batch", PPO_WHITEN_MINI, "over the tokens of a mini-batch" },
    { "mini-batch-padded", PPO_WHITEN_PADDED,
      "over a mini-batch with its padding, as in trlX" },
    { NULL, 0, NULL },
};

static const xray_choice scale_choices[] = {
    { "ignored", PPO_SCALE_IGNORED, "scores are not divided" },
    { "running", PPO_SCALE_RUNNING, "the deviation of all scores so far" },
    { "ref", PPO_SCALE_REF, "ref_std" },
    { NULL, 0, NULL },
};

const xray_option ppo_options[] = {
    XRAY_CHOICE(ppo_config, preset, "verl", preset_choices, 0u, "0.1",
                "The project whose values are used for every key left at auto "
                "or -1."),
    XRAY_REAL(ppo_config, gamma, "1", 0, 1, NULL, 0u, "0.1",
              "Discount of later rewards, per token."),
    XRAY_REAL(ppo_config, lam, "-1", -1, 1, NULL, 0u, "0.1",
              "Lambda of the generalised advantage estimate; -1: by the "
              "preset."),
    XRAY_REAL(ppo_config, clip_ratio, "0.2", 0, 1e6, NULL, 0u, "0.1",
              "The ratio is clipped to 1 - clip_ratio and 1 + clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_low, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Distance of the lower bound from 1; -1: clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_high, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Distance of the upper bound from 1; -1: clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_c, "-1", -1, 1e6, NULL, 0u, "0.1",
              "Dual clip: largest loss of a token of negative advantage, in "
              "units of the advantage, above 1; 0: off, -1: by the preset."),
    XRAY_TRISTATE(ppo_config, safety_bounds, "auto", 0u, "0.1",
                  "Clamp log-ratios to +-20 and k3 to +-10, as verl does; "
                  "auto: by the preset."),
    XRAY_CHOICE(ppo_config, loss_agg_mode, "token-mean", agg_choices, 0u, "0.1",
                "How the losses of tokens are averaged."),
    XRAY_CHOICE(ppo_config, critic_loss_agg_mode, "auto", critic_agg_choices,
                0u, "0.1", "The same for the value loss."),
    XRAY_REAL(ppo_config, loss_scale_factor, "0", 0, 1e12, "tokens", 0u, "0.1",
              "Divisor of seq-mean-token-sum-norm; 0: the longest response "
              "that the run allows."),
    XRAY_REAL(ppo_config, cliprange_value, "-1", -1, 1e30, NULL, 0u, "0.1",
              "Largest distance of a value from its old one that the value "
              "loss counts; 0: no limit, -1: by the preset."),
    XRAY_REAL(ppo_config, vf_coef, "1", 0, 1e6, NULL, 0u, "0.1",
              "Weight of the value loss if value_model = policy."),
    XRAY_CHOICE(ppo_config, value_model, "auto", value_choices, 0u, "0.1",
                "The model that estimates values."),
    XRAY_CHOICE(ppo_config, whiten_advantages, "auto", whiten_choices, 0u,
                "0.1",
                "The tokens over which advantages are whitened to mean 0 and "
                "deviation 1."),
    XRAY_REAL(ppo_config, entropy_coeff, "0", -1e6, 1e6, NULL, 0u, "0.1",
              "Weight of the entropy that is subtracted from the loss."),
    XRAY_BOOL(ppo_config, use_kl_loss, "false", 0u, "0.1",
              "Add KL to the reference to the loss."),
    XRAY_REAL(ppo_config, kl_loss_coef, "0.001", 0, 1e6, NULL, 0u, "0.1",
              "Weight of the KL in the loss."),
    XRAY_CHOICE(ppo_config, kl_loss_type, "low_var_kl", kl_choices, 0u, "0.1",
                "Estimator of the KL in the loss."),
    XRAY_TRISTATE(ppo_config, use_kl_in_reward, "auto", 0u, "0.1",
                  "Subtract the KL to the reference from the reward of each "
                  "token; auto: by the preset."),
    XRAY_CHOICE(ppo_config, kl_penalty, "kl", kl_choices, 0u, "0.1",
                "Estimator of the KL in the reward."),
    XRAY_REAL(ppo_config, kl_coef, "0.001", 0, 1e6, NULL, 0u, "0.1",
              "Weight of the KL in the reward; an adaptive weight starts "
              "here."),
    XRAY_CHOICE(ppo_config, kl_ctrl, "fixed", control_choices, 0u, "0.1",
                "Whether kl_coef changes."),
    XRAY_CHOICE(ppo_config, kl_ctrl_update, "auto", update_choices, 0u, "0.1",
                "When an adaptive kl_coef changes."),
    XRAY_REAL(ppo_config, target_kl, "0.1", 0, 1e6, NULL, 0u, "0.1",
              "The KL that an adaptive kl_coef aims at."),
    XRAY_REAL(ppo_config, horizon, "10000", 0, 1e15, "samples", 0u, "0.1",
              "Number of samples over which an adaptive kl_coef changes by at "
              "most a fifth of itself."),
    XRAY_REAL(ppo_config, cliprange_reward, "-1", -1, 1e30, NULL, 0u, "0.1",
              "Scores are clipped to this distance from 0; 0: no limit, -1: by "
              "the preset."),
    XRAY_CHOICE(ppo_config, scale_reward, "ignored", scale_choices, 0u, "0.1",
                "The divisor of scores after clipping."),
    XRAY_REAL(ppo_config, ref_std, "0", 0, 1e30, NULL, 0u, "0.1",
              "Divisor of scale_reward = ref; 0: the deviation of the first "
              "step's scores."),
};
_Static_assert(sizeof(ppo_options) == PPO_OPTION_COUNT * sizeof(ppo_options[0]),
               "PPO_OPTION_COUNT");

static xray_status refuse_key(const xray_host *host, const char *key,
                              const char *text)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, key, ": %s", text);
    return xr_host_tell(host, XRAY_E_CONFIG, "create", &err);
}

static int64_t choose_by_preset(int64_t value, int64_t preset)
{
    return value == PPO_AUTO ? preset : value;
}

static double number_by_preset(double value, double preset)
{
    return value < 0 ? preset : value;
}

/* -1 means "not set", so all other numbers below 0 are refused. */
static int is_half_unset(double value)
{
    return value < 0 && value > PPO_UNSET;
}

static xray_status check_numbers(const xray_host *host, const ppo_config *c,
                                 const ppo_rule *rule)
{
    if (is_half_unset(c->lam))
        return refuse_key(
            host, "lam", "expected -1 (by the preset) or a number from 0 to 1");
    if (is_half_unset(c->clip_ratio_low))
        return refuse_key(host, "clip_ratio_low",
                          "expected -1 (clip_ratio) or a number >= 0");
    if (is_half_unset(c->clip_ratio_high))
        return refuse_key(host, "clip_ratio_high",
                          "expected -1 (clip_ratio) or a number >= 0");
    double dual = rule->clip.dual;
    if (is_half_unset(c->clip_ratio_c) || (dual != 0 && !(dual > 1)))
        return refuse_key(
            host, "clip_ratio_c",
            "expected -1 (by the preset), 0 (off) or a number above 1");
    if (is_half_unset(c->cliprange_value))
        return refuse_key(
            host, "cliprange_value",
            "expected -1 (by the preset), 0 (off) or a number above 0");
    if (is_half_unset(c->cliprange_reward))
        return refuse_key(
            host, "cliprange_reward",
            "expected -1 (by the preset), 0 (off) or a number above 0");
    return XRAY_OK;
}

static xray_status check_combinations(const xray_host *host,
                                      const ppo_config *c, const ppo_rule *rule)
{
    int norm = rule->loss_agg_mode == XM_RL_SEQ_MEAN_TOKEN_SUM_NORM ||
               rule->critic_loss_agg_mode == XM_RL_SEQ_MEAN_TOKEN_SUM_NORM;
    if (c->loss_scale_factor > 0 && !norm)
        return refuse_key(
            host, "loss_scale_factor",
            "only loss_agg_mode = seq-mean-token-sum-norm uses it; "
            "remove the key or set that mode");
    if (c->vf_coef != 1 && rule->value_model == PPO_VALUE_CRITIC)
        return refuse_key(
            host, "vf_coef",
            "a critic has a separate loss, which [critic.optim] lr "
            "scales; remove the key or set value_model = policy");
    if (rule->control.adaptive && !rule->kl_reward.use)
        return refuse_key(host, "kl_ctrl",
                          "adaptive needs use_kl_in_reward = true");
    if (rule->control.adaptive && !(c->target_kl > 0))
        return refuse_key(host, "target_kl", "expected a number above 0");
    if (rule->control.adaptive && !(c->horizon > 0))
        return refuse_key(host, "horizon", "expected a number above 0");
    if (rule->control.adaptive && rule->control_update == PPO_CONTROL_EPOCH &&
        rule->value_model == PPO_VALUE_CRITIC)
        return refuse_key(
            host, "kl_ctrl_update",
            "epoch needs value_model = policy; with a critic set step");
    if (c->ref_std > 0 && c->scale_reward != PPO_SCALE_REF)
        return refuse_key(
            host, "ref_std",
            "only scale_reward = ref uses it; remove the key or set that "
            "choice");
    return XRAY_OK;
}

xray_status ppo_rule_resolve(const xray_host *host, const ppo_config *c,
                             ppo_rule *out)
{
    const preset_values *p = &presets[c->preset];
    int bounded = choose_by_preset(c->safety_bounds, p->safety_bounds) != 0;
    int in_reward =
        choose_by_preset(c->use_kl_in_reward, p->use_kl_in_reward) != 0;
    *out = (ppo_rule){
        .gae = { .gamma = c->gamma, .lam = number_by_preset(c->lam, p->lam) },
        .clip = { .low = number_by_preset(c->clip_ratio_low, c->clip_ratio),
                  .high = number_by_preset(c->clip_ratio_high, c->clip_ratio),
                  .dual = number_by_preset(c->clip_ratio_c, p->clip_ratio_c),
                  .bound = bounded ? 20.0 : 0.0 },
        .value_model = choose_by_preset(c->value_model, p->value_model),
        .whiten = choose_by_preset(c->whiten_advantages, p->whiten),
        .loss_agg_mode = c->loss_agg_mode,
        .critic_loss_agg_mode =
            choose_by_preset(c->critic_loss_agg_mode, c->loss_agg_mode),
        .loss_scale_factor = c->loss_scale_factor,
        .cliprange_value =
            number_by_preset(c->cliprange_value, p->cliprange_value),
        .vf_coef = c->vf_coef,
        .entropy_coeff = c->entropy_coeff,
        .kl_loss = { c->use_kl_loss != 0, bounded, c->kl_loss_type,
                     c->kl_loss_coef },
        .kl_reward = { in_reward, bounded, c->kl_penalty, c->kl_coef },
        .control = { c->kl_ctrl != 0, c->target_kl, c->horizon },
        .control_update =
            choose_by_preset(c->kl_ctrl_update, p->control_update),
        .cliprange_reward =
            number_by_preset(c->cliprange_reward, p->cliprange_reward),
        .scale_reward = c->scale_reward,
        .ref_std = c->ref_std,
    };
    xray_status status = check_numbers(host, c, out);
    return status == XRAY_OK ? check_combinations(host, c, out) : status;
}
