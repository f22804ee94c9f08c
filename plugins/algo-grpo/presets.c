/* SPDX-License-Identifier: Apache-2.0
 *
 * The presets: published variants with their project and source file. All were
 * read at a fixed commit: verl 1dda039b9, verl-recipe 48ea0a7, SkyRL
 * a9564572e, NeMo-RL 7ea279abf, TRL f2cd57710 (v1.9.0 + 26), OpenRLHF v0.11.0,
 * open-instruct e6c3044aa.
 */
#include "plugins/algo-grpo/rule.h"

#define GRPO_ADV XM_RL_ADV_GRPO
#define UNBIASED XM_RL_STD_UNBIASED
#define PLAIN XM_RL_STD_NONE
#define MEAN XM_RL_TOKEN_MEAN
#define ROWS XM_RL_SEQ_MEAN_TOKEN_MEAN
#define NORM XM_RL_SEQ_MEAN_TOKEN_SUM_NORM

/* name, doc, estimator, deviation, epsilon, loss, low, high, c, bounds,
 * aggregation, KL in the loss, dynamic sampling, ppo_kl_coef, k3 clamped */
const grpo_preset grpo_presets[] = {
    { "none", "plain GRPO, without dual clip and safety bounds", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_VANILLA, -1, -1, 0, 0, MEAN, -1, 0, 0, 0 },
    { "verl", "GRPO with verl's defaults", GRPO_ADV, UNBIASED, 1e-6,
      GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0, 0, 0 },
    { "trl", "GRPO with TRL's defaults (loss_type dapo)", GRPO_ADV, UNBIASED,
      1e-4, GRPO_VANILLA, -1, -1, 0, 0, MEAN, -1, 0, 0, 0 },
    { "trl_grpo", "TRL's loss_type grpo: mean over rows of the mean per row",
      GRPO_ADV, UNBIASED, 1e-4, GRPO_VANILLA, -1, -1, 0, 0, ROWS, -1, 0, 0, 0 },
    { "openrlhf", "OpenRLHF's group_norm", GRPO_ADV, UNBIASED, 1e-9,
      GRPO_VANILLA, -1, -1, 0, 0, MEAN, -1, 0, 0, 0 },
    { "openrlhf_dr_grpo",
      "OpenRLHF's dr_grpo: centred scores, mean over tokens", GRPO_ADV, PLAIN,
      0, GRPO_VANILLA, -1, -1, 0, 0, MEAN, -1, 0, 0, 0 },
    { "open_instruct", "open-instruct's default: centred scores, KL 0.05",
      GRPO_ADV, PLAIN, 0, GRPO_VANILLA, -1, 0.272, 0, 0, MEAN, 0.05, 0, 0, 0 },
    { "open_instruct_standard",
      "open-instruct's standard: divided by the population deviation", GRPO_ADV,
      XM_RL_STD_POPULATION, 1e-8, GRPO_VANILLA, -1, 0.272, 0, 0, MEAN, 0.05, 0,
      0, 0 },
    { "nemo_rl", "NeMo-RL's default: baseline and deviation of the others",
      GRPO_ADV, XM_RL_STD_OTHERS, 1e-6, GRPO_VANILLA, -1, -1, 0, 0, MEAN, 0.01,
      0, 0, 1 },
    { "dr_grpo",
      "Dr. GRPO: no division by the deviation, sums over a constant length",
      GRPO_ADV, PLAIN, 1e-6, GRPO_VANILLA, -1, -1, 0, 0, NORM, -1, 0, 0, 0 },
    { "verl_dr_grpo", "Dr. GRPO as in verl, with its dual clip", GRPO_ADV,
      PLAIN, 1e-6, GRPO_VANILLA, -1, -1, 3, 1, NORM, -1, 0, 0, 0 },
    { "rloo", "leave-one-out baseline, otherwise as verl",
      XM_RL_ADV_RLOO_VECTORIZED, PLAIN, 0, GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1,
      0, 0, 0 },
    { "reinforce_plus_plus", "returns of tokens, whitened over the batch",
      XM_RL_ADV_REINFORCE, PLAIN, 0, GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0, 0,
      0 },
    { "reinforce_plus_plus_baseline",
      "scores minus the mean of the group, whitened over the batch",
      XM_RL_ADV_REINFORCE_BASELINE, PLAIN, 0, GRPO_VANILLA, -1, -1, 3, 1, MEAN,
      -1, 0, 0, 0 },
    { "remax", "returns of tokens minus the score of a greedy sample",
      XM_RL_ADV_REMAX, PLAIN, 0, GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0, 0,
      0 },
    { "opo", "baseline weighted by length", XM_RL_ADV_OPO, PLAIN, 0,
      GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0, 0, 0 },
    { "gpg", "no ratio and no clip, divided by the share of nonzero scores",
      XM_RL_ADV_GPG, PLAIN, 0, GRPO_GPG, -1, -1, 0, 1, MEAN, -1, 0, 0, 0 },
    { "grpo_passk",
      "only the best sample of a group, by its lead over the second",
      XM_RL_ADV_PASSK, UNBIASED, 1e-6, GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0,
      0, 0 },
    { "maxrl", "SkyRL's maxrl: divided by the mean of the group",
      XM_RL_ADV_MAXRL, PLAIN, 1e-6, GRPO_VANILLA, -1, -1, 0, 1, MEAN, -1, 0, 0,
      0 },
    { "dapo", "higher upper clip, groups of equal scores are replaced",
      GRPO_ADV, UNBIASED, 1e-6, GRPO_VANILLA, 0.2, 0.28, 10, 1, MEAN, -1, 1, 0,
      0 },
    { "gspo", "one ratio per row: the geometric mean of its tokens", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_GSPO, 3e-4, 4e-4, 0, 0, ROWS, -1, 0, 0, 0 },
    { "cispo", "clipped weights, every token keeps its gradient", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_CISPO, 1, 0.2, 0, 1, MEAN, -1, 0, 0, 0 },
    { "cispo_trl", "TRL's: the bound is epsilon_high (5), no lower one",
      GRPO_ADV, UNBIASED, 1e-4, GRPO_CISPO, 1, 4, 0, 0, MEAN, -1, 0, 0, 0 },
    { "cispo_open_instruct", "open-instruct's: no lower bound, centred scores",
      GRPO_ADV, PLAIN, 0, GRPO_CISPO, 1, 0.272, 0, 0, MEAN, 0.05, 0, 0, 0 },
    { "gmpo", "geometric mean of clipped ratios (verl's geo_mean)", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_GEO_MEAN, 0.4, 0.4, 0, 0, ROWS, -1, 0, 0, 0 },
    { "sapo", "a soft gate instead of a clip", GRPO_ADV, UNBIASED, 1e-6,
      GRPO_SAPO, -1, -1, 0, 1, ROWS, -1, 0, 0, 0 },
    { "clip_cov",
      "drops randomly picked tokens of high covariance from the loss", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_CLIP_COV, 1, 1, 0, 1, MEAN, -1, 0, 0, 0 },
    { "kl_cov", "penalises tokens of the highest covariance", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_KL_COV, -1, -1, 0, 1, MEAN, -1, 0, 1.0, 0 },
    { "dppo_tv", "clip by binary total variation", GRPO_ADV, UNBIASED, 1e-6,
      GRPO_DPPO_TV, 0.15, 0.15, 1e4, 1, MEAN, -1, 0, 0, 0 },
    { "dppo_kl", "clip by binary KL", GRPO_ADV, UNBIASED, 1e-6, GRPO_DPPO_KL,
      0.05, 0.05, 1e4, 1, MEAN, -1, 0, 0, 0 },
    { "dro", "a quadratic penalty instead of a clip; needs dro_beta", GRPO_ADV,
      UNBIASED, 1e-6, GRPO_DRO, -1, -1, 0, 1, MEAN, -1, 0, 0, 0 },
    { "gdpo", "each reward normalised separately, then summed and whitened",
      XM_RL_ADV_GDPO, UNBIASED, 1e-6, GRPO_VANILLA, -1, -1, 3, 1, MEAN, -1, 0,
      0, 0 },
};
const uint32_t grpo_preset_count =
    sizeof(grpo_presets) / sizeof(grpo_presets[0]);

/* ---- the table of differences -------------------------------------------- */

static const char *const titles[] = {
    "preset", "project",     "source", "advantage", "divided by", "A(1)",
    "A(0)",   "policy loss", "clip",   "dual clip", "average",    "KL",
};
enum { COLUMNS = sizeof(titles) / sizeof(titles[0]) };

#define V "verl"
#define V_FILE "verl/trainer/ppo/core_algos.py @1dda039b9"
#define O_FILE "openrlhf/trainer/ppo_utils/experience_maker.py @v0.11.0"
#define T_FILE "trl/trainer/grpo_trainer.py @f2cd57710"
#define I_FILE "open_instruct/data_loader.py, grpo_utils.py @e6c3044aa"
#define N_FILE "nemo_rl/algorithms/utils.py @7ea279abf"
#define GROUP "s - mean of group"
#define STD "std(n-1) + 1e-6"
#define ONE "1.620182"
#define ZERO "-0.540061"
#define CLIP "0.2 / 0.2"

/* A(1) and A(0) are the advantages in a group of rewards 1 0 0 1 0 0 0 0. */
static const char *const cells[][COLUMNS] = {
    { "none", "-", "DeepSeekMath, 2024", GROUP, STD, ONE, ZERO, "PPO", CLIP,
      "off", "tokens", "off" },
    { "verl", V, V_FILE, GROUP, STD, ONE, ZERO, "PPO", CLIP, "3", "tokens",
      "off" },
    { "trl", "TRL", T_FILE, GROUP, "std(n-1) + 1e-4", "1.619835", "-0.539945",
      "PPO", CLIP, "off", "tokens", "off" },
    { "trl_grpo", "TRL", T_FILE, GROUP, "std(n-1) + 1e-4", "1.619835",
      "-0.539945", "PPO", CLIP, "off", "rows", "off" },
    { "openrlhf", "OpenRLHF", O_FILE, GROUP, "std(n-1) + 1e-9", "1.620185",
      "-0.540062", "PPO", CLIP, "off", "tokens", "off" },
    { "openrlhf_dr_grpo", "OpenRLHF", O_FILE, GROUP, "nothing", "0.75", "-0.25",
      "PPO", CLIP, "off", "tokens", "off" },
    { "open_instruct", "open-instruct", I_FILE, GROUP, "nothing", "0.75",
      "-0.25", "PPO", "0.2 / 0.272", "off", "tokens", "0.05 k3" },
    { "open_instruct_standard", "open-instruct", I_FILE, GROUP, "std(n) + 1e-8",
      "1.732051", "-0.577350", "PPO", "0.2 / 0.272", "off", "tokens",
      "0.05 k3" },
    { "nemo_rl", "NeMo-RL", N_FILE, "s - mean of others",
      "std of others + 1e-6", "2.267781", "-0.585539", "PPO", CLIP, "off",
      "tokens", "0.01 k3_clamped" },
    { "dr_grpo", "paper", "Dr. GRPO, 2025", GROUP, "nothing", "0.75", "-0.25",
      "PPO", CLIP, "off", "rows / length", "off" },
    { "verl_dr_grpo", V, V_FILE, GROUP, "nothing", "0.75", "-0.25", "PPO", CLIP,
      "3", "rows / length", "off" },
    { "rloo", V, V_FILE, "s - mean of others", "nothing", "0.857143",
      "-0.285714", "PPO", CLIP, "3", "tokens", "off" },
    { "reinforce_plus_plus", V, V_FILE, "return of token", "std of batch (n-1)",
      "batch", "batch", "PPO", CLIP, "3", "tokens", "off" },
    { "reinforce_plus_plus_baseline", V, V_FILE, GROUP, "std of batch (n-1)",
      "batch", "batch", "PPO", CLIP, "3", "tokens", "off" },
    { "remax", V, V_FILE, "return - greedy score", "nothing", "1 - b", "-b",
      "PPO", CLIP, "3", "tokens", "off" },
    { "opo", V, V_FILE, "s - mean by length", "nothing", "0.75", "-0.25", "PPO",
      CLIP, "3", "tokens", "off" },
    { "gpg", V, V_FILE, "(s - mean) B / nonzero", "nothing", "3", "-1",
      "-A logp", "none", "off", "tokens", "off" },
    { "grpo_passk", V, V_FILE, "best - second, best only", STD, "0", "0", "PPO",
      CLIP, "3", "tokens", "off" },
    { "maxrl", "SkyRL", "skyrl_train/utils/ppo_utils.py @a9564572e", GROUP,
      "mean + 1e-6", "2.999988", "-0.999996", "PPO", CLIP, "off", "tokens",
      "off" },
    { "dapo", V, "verl-recipe dapo/run_dapo_qwen2.5_32b.sh @48ea0a7", GROUP,
      STD, ONE, ZERO, "PPO", "0.2 / 0.28", "10", "tokens", "off" },
    { "gspo", V, "examples/gspo_trainer @1dda039b9", GROUP, STD, ONE, ZERO,
      "row ratio", "3e-4 / 4e-4", "off", "rows", "off" },
    { "cispo", V, "examples/cispo_trainer @1dda039b9", GROUP, STD, ONE, ZERO,
      "-sg(clip) A logp", "none / 0.2", "off", "tokens", "off" },
    { "cispo_trl", "TRL", T_FILE, GROUP, "std(n-1) + 1e-4", "1.619835",
      "-0.539945", "-sg(clip) A logp", "none / at 5", "off", "tokens", "off" },
    { "cispo_open_instruct", "open-instruct", I_FILE, GROUP, "nothing", "0.75",
      "-0.25", "-sg(clip) A logp", "none / 0.272", "off", "tokens", "0.05 k3" },
    { "gmpo", V, "examples/gmpo_trainer @1dda039b9", GROUP, STD, ONE, ZERO,
      "geometric mean", "log 0.4 / 0.4", "off", "rows", "off" },
    { "sapo", V, V_FILE, GROUP, STD, ONE, ZERO, "soft gate 1 / 1.05", "none",
      "off", "rows", "off" },
    { "clip_cov", V, "verl-recipe entropy/7b_clip_cov.sh @48ea0a7", GROUP, STD,
      ONE, ZERO, "PPO, picked = 0", "1 / 1", "off", "tokens", "off" },
    { "kl_cov", V, "verl-recipe entropy/32b_kl_cov.sh @48ea0a7", GROUP, STD,
      ONE, ZERO, "-A ratio, picked + |x|", "none", "off", "tokens", "off" },
    { "dppo_tv", V, "examples/dppo_trainer @1dda039b9", GROUP, STD, ONE, ZERO,
      "-sg(min(ratio, c)) A logp", "TV 0.15 / 0.15", "10000", "tokens", "off" },
    { "dppo_kl", V, "examples/dppo_trainer @1dda039b9", GROUP, STD, ONE, ZERO,
      "-sg(min(ratio, c)) A logp", "KL 0.05 / 0.05", "10000", "tokens", "off" },
    { "dro", V, V_FILE, GROUP, STD, ONE, ZERO, "-A logp + beta/2 x^2", "none",
      "off", "tokens", "off" },
    { "gdpo", V, V_FILE, "sum of w (s_k - mean of group)",
      "std(n-1) + 1e-6, then std of batch", "batch", "batch", "PPO", CLIP, "3",
      "tokens", "off" },
};
_Static_assert(sizeof(cells) / sizeof(cells[0]) ==
                   sizeof(grpo_presets) / sizeof(grpo_presets[0]),
               "one row per preset");

const xray_algo_presets grpo_preset_table = {
    .header = XRAY_HEADER(xray_algo_presets),
    .columns = COLUMNS,
    .rows = sizeof(cells) / sizeof(cells[0]),
    .titles = titles,
    .cells = cells[0],
};
