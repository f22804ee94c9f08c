/* SPDX-License-Identifier: Apache-2.0
 *
 * Options of the algorithm, and what they come to once the preset has filled
 * what was left open.
 */
#ifndef GRPO_RULE_H
#define GRPO_RULE_H

#include <xray/host.h>
#include <xray/option.h>

#include "plugins/algo-grpo/formula.h"

/* "By the preset": of a choice, and of a number (whose own values are >= 0). */
#define GRPO_AUTO ((int64_t)-1)
#define GRPO_UNSET (-1.0)

typedef struct grpo_config {
    int64_t preset;
    int64_t adv_estimator;
    int64_t norm_adv_by_std_in_grpo;
    double adv_epsilon;
    double clip_ratio;
    double clip_ratio_low;
    double clip_ratio_high;
    double clip_ratio_c;
    int64_t safety_bounds;
    int64_t loss_agg_mode;
    double loss_scale_factor;
    double kl_loss_coef;
    int64_t kl_loss_type;
    double kl_coef;
    int64_t kl_penalty;
    double entropy_coeff;
    uint32_t use_kl_loss;
    uint32_t use_kl_in_reward;
} grpo_config;

#define GRPO_OPTION_COUNT 18u
extern const xray_option grpo_options[];

/* A KL term: where it is used, how much of it, which estimator. */
typedef struct grpo_kl_rule {
    int use;
    int bounded;
    int64_t type;
    double coefficient;
} grpo_kl_rule;

typedef struct grpo_rule {
    grpo_estimator estimator;
    grpo_clip clip;
    grpo_kl_rule kl_loss;
    grpo_kl_rule kl_reward;
    int64_t loss_agg_mode;
    double loss_scale_factor; /* 0: the longest response a run may give */
    double entropy_coeff;
} grpo_rule;

/* XRAY_E_CONFIG, through `host`, for values that cannot work together. */
xray_status grpo_rule_resolve(const xray_host *host, const grpo_config *config,
                              grpo_rule *out);

#endif
