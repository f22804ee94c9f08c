/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of one process that take turns on its device: while one computes, what
 * core/run/turn_settings.h says of the others' memory is away. Nothing but
 * memory depends on it.
 */
#ifndef XR_MEMORY_TURNS_H
#define XR_MEMORY_TURNS_H

#include "core/roles/roles.h"
#include "core/run/turn_settings.h"

/* `role` computes with `tags`: those come, the others' memory goes. */
xray_status xr_turn_take(xr_roles *roles, uint32_t role, uint32_t tags,
                         xr_err *err);
/* Weights go from the policy to the engine: both have theirs, all else goes. */
xray_status xr_turn_publish(xr_roles *roles, xr_err *err);
/* Before an instance is made: everything goes. After it: it takes part. */
xray_status xr_turn_offload_all(xr_roles *roles, xr_err *err);
xray_status xr_turn_join(xr_roles *roles, uint32_t role, xr_err *err);

#endif
