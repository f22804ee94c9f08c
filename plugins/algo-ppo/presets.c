/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the presets' differences that `xray algo list` prints.
 */
#include "plugins/algo-ppo/presets.h"

static const char *const titles[] = {
    "preset",     "project",   "source",      "values of", "lam",
    "value clip", "dual clip", "whitened by", "KL",        "controller moves",
};
enum { COLUMNS = sizeof(titles) / sizeof(titles[0]) };

static const char *const cells[][COLUMNS] = {
    { "verl", "verl", "verl/trainer/ppo/core_algos.py @1dda039b9", "a critic",
      "1", "0.5", "3", "step, tokens", "off", "once per step, by its rows" },
    { "trlx", "trlX",
      "trlx/trainer/accelerate_ppo_trainer.py, models/modeling_ppo.py",
      "the policy's second head", "0.95", "0.2", "off",
      "mini-batch with padding", "in the reward",
      "once per epoch, by the rows of a mini-batch" },
};

const xray_algo_presets ppo_preset_table = {
    .header = XRAY_HEADER(xray_algo_presets),
    .columns = COLUMNS,
    .rows = sizeof(cells) / sizeof(cells[0]),
    .titles = titles,
    .cells = cells[0],
};
