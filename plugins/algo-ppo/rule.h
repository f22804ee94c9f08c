/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the algorithm, and the rule that results when the preset has
 * filled in all keys that were not set.
 */
#ifndef PPO_RULE_H
#define PPO_RULE_H

#include <xray/host.h>
#include <xray/option.h>

#include "model/rl/aggregate.h"
#include "model/rl/kl.h"
#include "model/rl/policy.h"
#include "model/rl/ppo.h"

/* The values of a choice and of a number that mean "set by the preset". All
 * other values of such numbers are >= 0. */
#define PPO_AUTO ((int64_t)-1)
#define PPO_UNSET (-1.0)

/* The model that estimates values. */
enum { PPO_VALUE_CRITIC, PPO_VALUE_POLICY };
/* The tokens over which advantages are whitened. */
enum {
    PPO_WHITEN_NONE,
    PPO_WHITEN_BATCH,  /* tokens in the loss of a step */
    PPO_WHITEN_MINI,   /* tokens in the loss of a mini-batch */
    PPO_WHITEN_PADDED, /* a mini-batch as trlX pads it: rows x longest response,
                        * with zeros after the end of a row */
};
/* The divisor of scores. */
enum { PPO_SCALE_IGNORED, PPO_SCALE_RUNNING, PPO_SCALE_REF };
/* When the KL controller is updated. */
enum {
    PPO_CONTROL_STEP, /* once per step, with the rows of the step (verl) */
    PPO_CONTROL_EPOCH /* after each epoch, with the rows of a mini-batch
                       * (trlX) */
};

typedef struct ppo_config {
    int64_t preset;
    double gamma;
    double lam;
    double clip_ratio;
    double clip_ratio_low;
    double clip_ratio_high;
    double clip_ratio_c;
    int64_t safety_bounds;
    int64_t loss_agg_mode;
    int64_t critic_loss_agg_mode;
    double loss_scale_factor;
    double cliprange_value;
    double vf_coef;
    int64_t value_model;
    int64_t whiten_advantages;
    double entropy_coeff;
    double kl_loss_coef;
    int64_t kl_loss_type;
    int64_t use_kl_in_reward;
    int64_t kl_penalty;
    double kl_coef;
    int64_t kl_ctrl;
    int64_t kl_ctrl_update;
    double target_kl;
    double horizon;
    double cliprange_reward;
    int64_t scale_reward;
    double ref_std;
    uint32_t use_kl_loss;
    uint32_t reserved;
} ppo_config;

#define PPO_OPTION_COUNT 29u
extern const xray_option ppo_options[];

/* A KL term: whether it is used, its estimator and its coefficient. */
typedef struct ppo_kl_rule {
    int use;
    int bounded;
    int64_t type;
    double coefficient; /* for the KL in the reward, that of the first step */
} ppo_kl_rule;

typedef struct ppo_rule {
    xm_rl_gae_rule gae;
    xm_rl_clip clip;
    int64_t value_model;
    int64_t whiten;
    int64_t loss_agg_mode;
    int64_t critic_loss_agg_mode;
    double loss_scale_factor; /* 0: longest response that the run allows */
    double cliprange_value;   /* 0: none */
    double vf_coef;
    double entropy_coeff;
    ppo_kl_rule kl_loss;
    ppo_kl_rule kl_reward;
    xm_rl_kl_control control;
    int64_t control_update;
    double cliprange_reward; /* 0: none */
    int64_t scale_reward;
    double ref_std; /* 0: the deviation of the first step's scores */
} ppo_rule;

/* Fails with XRAY_E_CONFIG, reported through `host`, if values do not work
 * together. */
xray_status ppo_rule_resolve(const xray_host *host, const ppo_config *config,
                             ppo_rule *out);

#endif
