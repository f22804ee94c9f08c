/* SPDX-License-Identifier: Apache-2.0
 *
 * Names the metrics that every policy loss reports of a micro-batch, as verl
 * does: sums over tokens and their weights, in this order.
 */
#ifndef XM_RL_POLICY_METRICS_H
#define XM_RL_POLICY_METRICS_H

enum {
    XM_RL_PG_LOSS,
    XM_RL_PG_CLIPFRAC,
    XM_RL_PG_CLIPFRAC_LOWER,
    XM_RL_PPO_KL,
    XM_RL_KL_LOSS,
    XM_RL_KL_COEF,
    XM_RL_ENTROPY,
    XM_RL_LOSS,
    XM_RL_POLICY_METRICS, /* metrics of a single loss follow */
};

/* The first entries of xray_algo_ops.metric_names, in the same order. */
#define XM_RL_POLICY_METRIC_NAMES                                          \
    "actor/pg_loss", "actor/pg_clipfrac", "actor/pg_clipfrac_lower",       \
        "actor/ppo_kl", "actor/kl_loss", "actor/kl_coef", "actor/entropy", \
        "actor/loss"

#endif
