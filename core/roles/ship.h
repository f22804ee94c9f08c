/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights between processes: a region that holds every tensor of a model with
 * its checksum, written where the trainer is and read where an engine is.
 */
#ifndef XR_SHIP_H
#define XR_SHIP_H

#include "core/roles/roles.h"

/* Bytes that a region needs for the policy's weights. */
uint64_t xr_ship_bytes(const xr_roles *roles);
/* Writes the policy's weights. All ranks that hold it call it alike; those with
 * memory NULL only take part. */
xray_status xr_ship_write(xr_roles *roles, void *memory, uint64_t size,
                          xr_err *err);
/* Gives them to the engine of this process. A value that is not what was
 * written is XRAY_E_BUG and names the tensor. */
xray_status xr_ship_read(xr_roles *roles, const void *memory, uint64_t size,
                         xr_err *err);

#endif
