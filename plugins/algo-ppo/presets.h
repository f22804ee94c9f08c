/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the table of presets that `xray algo list` prints.
 */
#ifndef PPO_PRESETS_H
#define PPO_PRESETS_H

#include <xray/algo.h>

extern const xray_algo_presets ppo_preset_table;

#endif
