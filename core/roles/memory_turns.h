/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves the memory of models that take turns on one device: while one model
 * computes, the memory of the others is offloaded as core/run/turn_settings.h
 * tells. Turns affect memory only, never results.
 */
#ifndef XR_MEMORY_TURNS_H
#define XR_MEMORY_TURNS_H

#include "core/roles/roles.h"
#include "core/run/turn_settings.h"

/* Prepares `role` to compute with the memory in `tags`: offloads the other
 * models, then loads those tags. */
xray_status xr_turn_take(xr_roles *roles, uint32_t role, uint32_t tags,
                         xr_err *err);
/* Prepares the transfer of weights from policy to engine: both have their
 * weights on the device, all else is offloaded. */
xray_status xr_turn_publish(xr_roles *roles, xr_err *err);
/* xr_turn_offload_all makes space before an instance is created; afterwards,
 * xr_turn_join lets the instance take turns. */
xray_status xr_turn_offload_all(xr_roles *roles, xr_err *err);
xray_status xr_turn_join(xr_roles *roles, uint32_t role, xr_err *err);

#endif
