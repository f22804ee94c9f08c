/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of one process that take turns on its device: while one computes, what
 * the INI says of the others' memory is away ([rollout] free_cache_engine,
 * param_offload and its like in [actor], [critic] and [ref]). Nothing but
 * memory depends on it. Models are named by XRAY_ROLE_*, XRAY_ROLE_ROLLOUT
 * being the engine; tags are bits, 1 << XRAY_TAG_*.
 */
#ifndef XR_TURN_H
#define XR_TURN_H

#include "core/rl/session.h"

#define XR_TURN_FORWARD (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_ACTIVATIONS)
#define XR_TURN_GRADS (XR_TURN_FORWARD | 1u << XRAY_TAG_GRADS)
#define XR_TURN_STEP \
    (1u << XRAY_TAG_WEIGHTS | 1u << XRAY_TAG_GRADS | 1u << XRAY_TAG_OPTIMIZER)
#define XR_TURN_ENGINE (XR_TURN_FORWARD | 1u << XRAY_TAG_KV)

/* The tags of a model that the INI sends away. */
uint32_t xr_turn_wanted(const xr_run_config *run, uint32_t role);
/* Where the INI says so first; the key's name in *out_key. */
const char *xr_turn_section(const xr_run_config *run, uint32_t role,
                            const char **out_key);

/* `role` computes with `tags`: those come, the others' memory goes. */
xray_status xr_turn_take(xr_session *session, uint32_t role, uint32_t tags,
                         xr_err *err);
/* Weights go from the policy to the engine: both have theirs, all else goes. */
xray_status xr_turn_publish(xr_session *session, xr_err *err);
/* Before an instance is made: everything goes. Behind it: it takes part. */
xray_status xr_turn_none(xr_session *session, xr_err *err);
xray_status xr_turn_made(xr_session *session, uint32_t role, xr_err *err);

#endif
