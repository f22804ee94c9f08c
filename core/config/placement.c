/* SPDX-License-Identifier: Apache-2.0
 *
 * Defines the options of [placement].
 */
#include "core/config/internal.h"
#include "core/config/sections.h"

#define PLACEMENT xr_placement_section
const xray_option xr_placement_options[5] = {
    XRAY_LIST(PLACEMENT, actor, "all", 0u, "0.1",
              "Ranks that hold the policy: numbers, ranges such as 0-3, or "
              "all."),
    XRAY_LIST(PLACEMENT, reference, "", 0u, "0.1",
              "Ranks of the reference policy; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, critic, "", 0u, "0.1",
              "Ranks of the critic; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, reward, "", 0u, "0.1",
              "Ranks of the reward model; empty: those of the actor."),
    XRAY_LIST(PLACEMENT, rollout, "", 0u, "0.1",
              "Ranks that have an engine; empty: those of the actor."),
};
