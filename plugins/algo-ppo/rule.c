/* SPDX-License-Identifier: Apache-2.0 */
#include "plugins/algo-ppo/rule.h"

#include "core/base/err.h"
#include "model/rl/option_choices.h"

enum { PRESET_VERL, PRESET_TRLX };

/* What a preset says about the keys that differ between projects. */
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
    { "verl", PRESET_VERL, "a critic of its own, verl's defaults" },
    { "trlx", PRESET_TRLX, "one trunk with a value head, trlX's flow" },
    { NULL, 0, NULL },
};

static const xray_choice auto_bool_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    XM_RL_BOOL_CHOICES,
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
    { "adaptive", 1, "kl_coef follows the KL to target_kl" },
    { NULL, 0, NULL },
};

static const xray_choice update_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "step", PPO_CONTROL_STEP, "once a step, by its rows" },
    { "epoch", PPO_CONTROL_EPOCH, "once an epoch, by a mini-batch's rows" },
    { NULL, 0, NULL },
};

static const xray_choice value_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "critic", PPO_VALUE_CRITIC, "a model of its own" },
    { "policy", PPO_VALUE_POLICY, "a second head of the policy" },
    { NULL, 0, NULL },
};

static const xray_choice whiten_choices[] = {
    { "auto", PPO_AUTO, "by the preset" },
    { "none", PPO_WHITEN_NONE, "advantages as they are" },
    { "batch", PPO_WHITEN_BATCH, "over the tokens of a step" },
    { "mini-batch", PPO_WHITEN_MINI, "over the tokens of a mini-batch" },
    { "mini-batch-padded", PPO_WHITEN_PADDED,
      "over a mini-batch with its padding, as trlX" },
    { NULL, 0, NULL },
};

static const xray_choice scale_choices[] = {
    { "ignored", PPO_SCALE_IGNORED, "scores are left as they are" },
    { "running", PPO_SCALE_RUNNING, "by the deviation of all so far" },
    { "ref", PPO_SCALE_REF, "by ref_std" },
    { NULL, 0, NULL },
};

const xray_option ppo_options[] = {
    XRAY_CHOICE(ppo_config, preset, "verl", preset_choices, "0.1",
                "Whose flow: fills every key left at auto or -1."),
    XRAY_REAL(ppo_config, gamma, "1", 0, 1, NULL, "0.1",
              "Discount of later rewards, a token."),
    XRAY_REAL(ppo_config, lam, "-1", -1, 1, NULL, "0.1",
              "Lambda of the generalised advantage estimate; -1: by the "
              "preset."),
    XRAY_REAL(ppo_config, clip_ratio, "0.2", 0, 1e6, NULL, "0.1",
              "The ratio counts within 1 - clip_ratio and 1 + clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_low, "-1", -1, 1e6, NULL, "0.1",
              "Distance of the lower bound; -1: clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_high, "-1", -1, 1e6, NULL, "0.1",
              "Distance of the upper bound; -1: clip_ratio."),
    XRAY_REAL(ppo_config, clip_ratio_c, "-1", -1, 1e6, NULL, "0.1",
              "Dual clip: most a token of negative advantage may lose, in "
              "units of the advantage, above 1; 0: off, -1: by the preset."),
    XRAY_CHOICE(ppo_config, safety_bounds, "auto", auto_bool_choices, "0.1",
                "verl's limits: log-ratios within 20, k3 within 10."),
    XRAY_CHOICE(ppo_config, loss_agg_mode, "token-mean", agg_choices, "0.1",
                "How the tokens' losses become one number."),
    XRAY_CHOICE(ppo_config, critic_loss_agg_mode, "auto", critic_agg_choices,
                "0.1", "The same for the value loss."),
    XRAY_REAL(ppo_config, loss_scale_factor, "0", 0, 1e12, "tokens", "0.1",
              "Divisor of seq-mean-token-sum-norm; 0: the longest response "
              "the run may give."),
    XRAY_REAL(ppo_config, cliprange_value, "-1", -1, 1e30, NULL, "0.1",
              "Most a value may move from its old one before the loss stops "
              "counting it; 0: any, -1: by the preset."),
    XRAY_REAL(ppo_config, vf_coef, "1", 0, 1e6, NULL, "0.1",
              "Weight of the value loss beside the policy's, where both have "
              "one trunk."),
    XRAY_CHOICE(ppo_config, value_model, "auto", value_choices, "0.1",
                "Which model estimates values."),
    XRAY_CHOICE(ppo_config, whiten_advantages, "auto", whiten_choices, "0.1",
                "What advantages are brought to mean 0 and deviation 1 over."),
    XRAY_REAL(ppo_config, entropy_coeff, "0", -1e6, 1e6, NULL, "0.1",
              "Weight of the entropy taken off the loss."),
    XRAY_BOOL(ppo_config, use_kl_loss, "false", "0.1",
              "Add KL to the reference to the loss."),
    XRAY_REAL(ppo_config, kl_loss_coef, "0.001", 0, 1e6, NULL, "0.1",
              "Weight of the KL in the loss."),
    XRAY_CHOICE(ppo_config, kl_loss_type, "low_var_kl", kl_choices, "0.1",
                "Estimator of the KL in the loss."),
    XRAY_CHOICE(ppo_config, use_kl_in_reward, "auto", auto_bool_choices, "0.1",
                "Take KL to the reference off every token's reward."),
    XRAY_CHOICE(ppo_config, kl_penalty, "kl", kl_choices, "0.1",
                "Estimator of the KL in the reward."),
    XRAY_REAL(ppo_config, kl_coef, "0.001", 0, 1e6, NULL, "0.1",
              "Weight of the KL in the reward; an adaptive one starts here."),
    XRAY_CHOICE(ppo_config, kl_ctrl, "fixed", control_choices, "0.1",
                "Whether kl_coef changes."),
    XRAY_CHOICE(ppo_config, kl_ctrl_update, "auto", update_choices, "0.1",
                "When an adaptive kl_coef changes."),
    XRAY_REAL(ppo_config, target_kl, "0.1", 0, 1e6, NULL, "0.1",
              "The KL an adaptive kl_coef aims at."),
    XRAY_REAL(ppo_config, horizon, "10000", 0, 1e15, "samples", "0.1",
              "Samples in which an adaptive kl_coef moves by a fifth of "
              "itself, at most."),
    XRAY_REAL(ppo_config, cliprange_reward, "-1", -1, 1e30, NULL, "0.1",
              "Scores are kept within this distance of 0; 0: any, -1: by the "
              "preset."),
    XRAY_CHOICE(ppo_config, scale_reward, "ignored", scale_choices, "0.1",
                "What scores are divided by, once clipped."),
    XRAY_REAL(ppo_config, ref_std, "0", 0, 1e30, NULL, "0.1",
              "Divisor of scale_reward = ref; 0: the deviation of the first "
              "step's scores."),
};
_Static_assert(sizeof(ppo_options) == PPO_OPTION_COUNT * sizeof(ppo_options[0]),
               "PPO_OPTION_COUNT");

static xray_status refuse(const xray_host *host, const char *key,
                          const char *text)
{
    xr_err err;
    (void)xr_fail_key(&err, XRAY_E_CONFIG, NULL, key, ": %s", text);
    return xr_host_tell(host, XRAY_E_CONFIG, "create", &err);
}

static int64_t choose(int64_t value, int64_t preset)
{
    return value == PPO_AUTO ? preset : value;
}

static double number(double value, double preset)
{
    return value < 0 ? preset : value;
}

/* -1 stands for "unset", so nothing else below 0 may pass. */
static int half_unset(double value)
{
    return value < 0 && value > PPO_UNSET;
}

static xray_status check_numbers(const xray_host *host, const ppo_config *c,
                                 const ppo_rule *rule)
{
    if (half_unset(c->lam))
        return refuse(host, "lam",
                      "expected -1 (by the preset) or a number from 0 to 1");
    if (half_unset(c->clip_ratio_low))
        return refuse(host, "clip_ratio_low",
                      "expected -1 (clip_ratio) or a number >= 0");
    if (half_unset(c->clip_ratio_high))
        return refuse(host, "clip_ratio_high",
                      "expected -1 (clip_ratio) or a number >= 0");
    double dual = rule->clip.dual;
    if (half_unset(c->clip_ratio_c) || (dual != 0 && !(dual > 1)))
        return refuse(
            host, "clip_ratio_c",
            "expected -1 (by the preset), 0 (off) or a number above 1");
    if (half_unset(c->cliprange_value))
        return refuse(
            host, "cliprange_value",
            "expected -1 (by the preset), 0 (off) or a number above 0");
    if (half_unset(c->cliprange_reward))
        return refuse(
            host, "cliprange_reward",
            "expected -1 (by the preset), 0 (off) or a number above 0");
    return XRAY_OK;
}

static xray_status check_together(const xray_host *host, const ppo_config *c,
                                  const ppo_rule *rule)
{
    int norm = rule->loss_agg_mode == XM_RL_SEQ_MEAN_TOKEN_SUM_NORM ||
               rule->critic_loss_agg_mode == XM_RL_SEQ_MEAN_TOKEN_SUM_NORM;
    if (c->loss_scale_factor > 0 && !norm)
        return refuse(host, "loss_scale_factor",
                      "only loss_agg_mode = seq-mean-token-sum-norm uses it; "
                      "remove the key or set that mode");
    if (c->vf_coef != 1 && rule->value_model == PPO_VALUE_CRITIC)
        return refuse(host, "vf_coef",
                      "a critic has a loss of its own and [critic.optim] lr; "
                      "remove the key or set value_model = policy");
    if (rule->control.adaptive && !rule->kl_reward.use)
        return refuse(host, "kl_ctrl",
                      "adaptive needs use_kl_in_reward = true");
    if (rule->control.adaptive && !(c->target_kl > 0))
        return refuse(host, "target_kl", "expected a number above 0");
    if (rule->control.adaptive && !(c->horizon > 0))
        return refuse(host, "horizon", "expected a number above 0");
    if (rule->control.adaptive && rule->control_update == PPO_CONTROL_EPOCH &&
        rule->value_model == PPO_VALUE_CRITIC)
        return refuse(
            host, "kl_ctrl_update",
            "epoch needs value_model = policy; with a critic set step");
    if (c->ref_std > 0 && c->scale_reward != PPO_SCALE_REF)
        return refuse(
            host, "ref_std",
            "only scale_reward = ref uses it; remove the key or set that");
    return XRAY_OK;
}

xray_status ppo_rule_resolve(const xray_host *host, const ppo_config *c,
                             ppo_rule *out)
{
    const preset_values *p = &presets[c->preset];
    int bounded = choose(c->safety_bounds, p->safety_bounds) != 0;
    int in_reward = choose(c->use_kl_in_reward, p->use_kl_in_reward) != 0;
    *out = (ppo_rule){
        .gae = { .gamma = c->gamma, .lam = number(c->lam, p->lam) },
        .clip = { .low = number(c->clip_ratio_low, c->clip_ratio),
                  .high = number(c->clip_ratio_high, c->clip_ratio),
                  .dual = number(c->clip_ratio_c, p->clip_ratio_c),
                  .bound = bounded ? 20.0 : 0.0 },
        .value_model = choose(c->value_model, p->value_model),
        .whiten = choose(c->whiten_advantages, p->whiten),
        .loss_agg_mode = c->loss_agg_mode,
        .critic_loss_agg_mode =
            choose(c->critic_loss_agg_mode, c->loss_agg_mode),
        .loss_scale_factor = c->loss_scale_factor,
        .cliprange_value = number(c->cliprange_value, p->cliprange_value),
        .vf_coef = c->vf_coef,
        .entropy_coeff = c->entropy_coeff,
        .kl_loss = { c->use_kl_loss != 0, bounded, c->kl_loss_type,
                     c->kl_loss_coef },
        .kl_reward = { in_reward, bounded, c->kl_penalty, c->kl_coef },
        .control = { c->kl_ctrl != 0, c->target_kl, c->horizon },
        .control_update = choose(c->kl_ctrl_update, p->control_update),
        .cliprange_reward = number(c->cliprange_reward, p->cliprange_reward),
        .scale_reward = c->scale_reward,
        .ref_std = c->ref_std,
    };
    xray_status status = check_numbers(host, c, out);
    return status == XRAY_OK ? check_together(host, c, out) : status;
}
