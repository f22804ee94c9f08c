/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of presets.
 */
#ifndef PPO_PRESETS_H
#define PPO_PRESETS_H

#include <xray/algo.h>

extern const xray_algo_presets ppo_preset_table;

#endif
