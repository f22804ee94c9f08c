/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of one process that take turns on its device, as the INI has it:
 * [rollout] free_cache_engine, param_offload and its like in [actor], [critic]
 * and [ref]. Models are named by XRAY_ROLE_*, XRAY_ROLE_ROLLOUT being the
 * engine; tags are bits, 1 << XRAY_TAG_*. core/roles/memory_turns.h carries it
 * out.
 */
#ifndef XR_TURN_SETTINGS_H
#define XR_TURN_SETTINGS_H

#include <xray/device_info.h>
#include <xray/setup.h>

#include "core/config/sections.h"

#define XR_TURN_FORWARD (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define XR_TURN_GRADS (XR_TURN_FORWARD | 1u << XRAY_TAG_GRADS)
#define XR_TURN_STEP \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_GRADS | 1u << XRAY_TAG_OPTIMIZER)
#define XR_TURN_ENGINE (XR_TURN_FORWARD | 1u << XRAY_TAG_KV)

/* The tags of a model that the INI sends away. */
uint32_t xr_turn_tags(const xr_run_config *ini, uint32_t role);
/* Where the INI says so first; the key's name in *out_key. */
const char *xr_turn_key(const xr_run_config *ini, uint32_t role,
                        const char **out_key);

#endif
