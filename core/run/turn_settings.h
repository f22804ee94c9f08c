/* SPDX-License-Identifier: Apache-2.0
 *
 * The INI keys for models that take turns on one device: [rollout]
 * free_cache_engine, and param_offload, grad_offload and optimizer_offload of
 * [actor], [critic] and [ref]. Models are named by XRAY_ROLE_*, of which
 * XRAY_ROLE_ROLLOUT is the engine; tags are bits, 1 << XRAY_TAG_*.
 * core/roles/memory_turns.h moves the memory.
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

/* Returns the tags of a model that the INI offloads. */
uint32_t xr_turn_tags(const xr_run_config *ini, uint32_t role);
/* Returns the section of the key that offloads the model, for messages; the
 * key's name goes to *out_key, and of several keys the first that is set. */
const char *xr_turn_key(const xr_run_config *ini, uint32_t role,
                        const char **out_key);

#endif
