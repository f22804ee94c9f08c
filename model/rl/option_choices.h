/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists values of options that several algorithms have under one name, as rows
 * of an xray_choice table to which each algorithm may add its own.
 */
#ifndef XM_RL_OPTION_CHOICES_H
#define XM_RL_OPTION_CHOICES_H

#include <xray/option.h>

#include "model/rl/aggregate.h"
#include "model/rl/kl.h"

/* clang-format off */

/* loss_agg_mode */
#define XM_RL_AGG_CHOICES \
    { "token-mean", XM_RL_TOKEN_MEAN, "mean over the tokens" }, \
    { "token-sum", XM_RL_TOKEN_SUM, "sum over the tokens" }, \
    { "seq-mean-token-sum", XM_RL_SEQ_MEAN_TOKEN_SUM, \
      "mean over rows of a row's sum" }, \
    { "seq-mean-token-sum-norm", XM_RL_SEQ_MEAN_TOKEN_SUM_NORM, \
      "the same, over loss_scale_factor" }, \
    { "seq-mean-token-mean", XM_RL_SEQ_MEAN_TOKEN_MEAN, \
      "mean over rows of a row's mean" }

/* kl_loss_type and kl_penalty */
#define XM_RL_KL_CHOICES \
    { "low_var_kl", XM_RL_KL_K3, "exp(d) - d - 1, d = ref - logp" }, \
    { "k3", XM_RL_KL_K3, "the same" }, \
    { "kl", XM_RL_KL_K1, "logp - ref" }, \
    { "k1", XM_RL_KL_K1, "the same" }, \
    { "mse", XM_RL_KL_K2, "(logp - ref)^2 / 2" }, \
    { "k2", XM_RL_KL_K2, "the same" }, \
    { "abs", XM_RL_KL_ABS, "|logp - ref|" }

/* clang-format on */

#endif
