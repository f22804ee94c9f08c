/* SPDX-License-Identifier: Apache-2.0
 *
 * The options of the algorithm, and the rule that results when the preset has
 * filled in all keys that were not set.
 */
#ifndef GRPO_RULE_H
#define GRPO_RULE_H

#include <xray/algo.h>
#include <xray/host.h>
#include <xray/option.h>

#include "model/rl/advantage.h"
#include "model/rl/aggregate.h"
#include "model/rl/kl.h"
#include "model/rl/policy.h"
#include "model/rl/ppo.h"
#include "model/rl/rollout_correction.h"

/* The values of a choice and of a number that mean "set by the preset". All
 * other values of such numbers are >= 0. */
#define GRPO_AUTO ((int64_t)-1)
#define GRPO_UNSET (-1.0)

typedef struct grpo_config {
    int64_t preset;
    int64_t adv_estimator;
    int64_t norm_adv_by_std_in_grpo;
    int64_t adv_deviation;
    double adv_epsilon;
    double gamma;
    int64_t loss_mode;
    double clip_ratio;
    double clip_ratio_low;
    double clip_ratio_high;
    double clip_ratio_c;
    int64_t safety_bounds;
    double tau_pos;
    double tau_neg;
    double clip_cov_ratio;
    double clip_cov_lb;
    double clip_cov_ub;
    double kl_cov_ratio;
    double ppo_kl_coef;
    double dro_beta;
    int64_t loss_agg_mode;
    double loss_scale_factor;
    int64_t use_kl_loss;
    double kl_loss_coef;
    int64_t kl_loss_type;
    double kl_coef;
    int64_t kl_penalty;
    int64_t kl_ctrl;
    double target_kl;
    double horizon;
    double entropy_coeff;
    int64_t filter_groups;
    int64_t max_num_gen_batches;
    double overlong_buffer_len;
    double overlong_penalty_factor;
    double max_resp_len;
    int64_t rollout_is;
    const char *rollout_is_threshold;
    int64_t rollout_rs;
    const char *rollout_rs_threshold;
    uint32_t rollout_is_batch_normalize;
    uint32_t use_kl_in_reward;
} grpo_config;

#define GRPO_OPTION_COUNT 42u
extern const xray_option grpo_options[];

enum {
    GRPO_VANILLA,
    GRPO_GSPO,
    GRPO_CISPO,
    GRPO_GPG,
    GRPO_SAPO,
    GRPO_CLIP_COV,
    GRPO_KL_COV,
    GRPO_GEO_MEAN,
    GRPO_DPPO_TV,
    GRPO_DPPO_KL,
    GRPO_DRO,
};

/* A KL term: whether it is used, its estimator and its coefficient. */
typedef struct grpo_kl_rule {
    int use;
    int bounded;
    int64_t type;
    double coefficient;
} grpo_kl_rule;

/* All settings on which the loss of a token depends; sent to the workers. */
typedef struct grpo_loss_rule {
    int64_t mode; /* GRPO_VANILLA ... */
    int64_t agg;
    xm_rl_clip clip;
    double tau[2];
    double cov_ratio;
    double cov_low;
    double cov_high;
    double ppo_kl_coef;
    double dro_beta;
    int64_t kl_type;
    double kl_coefficient;
    double entropy_coeff;
    double correction_scale; /* factor of all correction weights */
    xm_rl_correction correction;
    uint32_t use_kl;
    uint32_t kl_bounded;
    uint32_t correct; /* 1: rollout_logp is read */
    uint32_t reserved;
} grpo_loss_rule;

typedef struct grpo_rule {
    xm_rl_estimator estimator;
    double gamma;
    grpo_kl_rule kl_reward;
    xm_rl_kl_control kl_control;
    grpo_loss_rule loss;
    double loss_scale_factor; /* 0: longest response that the run allows */
    int normalise_weights;
    int filter_groups;
    int64_t max_rounds; /* generations of a step; 0: the core decides */
    double overlong_buffer;
    double overlong_factor;
    double longest;
} grpo_rule;

/* A preset's values of the keys that differ between projects. */
typedef struct grpo_preset {
    const char *name;
    const char *doc;
    int64_t adv_estimator;
    int64_t deviation; /* XM_RL_STD_* */
    double adv_epsilon;
    int64_t loss_mode;
    double clip_low; /* -1: clip_ratio */
    double clip_high;
    double clip_ratio_c;
    int64_t safety_bounds;
    int64_t loss_agg_mode;
    double kl_loss_coef; /* weight of KL in the loss; -1: not in the loss */
    int64_t filter_groups;
    double ppo_kl_coef; /* 0: 0.1, which is verl's default */
    int64_t kl_clamped; /* 1: the KL in the loss is k3_clamped, not k3 */
} grpo_preset;

extern const grpo_preset grpo_presets[];
extern const uint32_t grpo_preset_count;
/* The table that `xray algo list` prints. */
extern const xray_algo_presets grpo_preset_table;

/* Fails with XRAY_E_CONFIG, reported through `host`, if values do not work
 * together. */
xray_status grpo_rule_resolve(const xray_host *host, const grpo_config *config,
                              grpo_rule *out);
/* Resolves only the keys of the rollout correction. */
xray_status grpo_rule_correction(const xray_host *host,
                                 const grpo_config *config,
                                 xm_rl_correction *out);
int grpo_is_token_level(const grpo_rule *rule);
int grpo_needs_groups(const grpo_rule *rule);

#endif
