/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries weights between processes: a region of shared memory holds every
 * box of a model's tensors with its checksum, written by the trainer's ranks
 * and read by engines.
 */
#ifndef XR_SHIP_H
#define XR_SHIP_H

#include "core/roles/roles.h"

/* Returns the bytes of this rank's section of the region: 0 if it has nothing
 * to write. */
uint64_t xr_ship_bytes(const xr_roles *roles);
/* Writes this rank's section, which has exactly `size` bytes. All ranks that
 * hold the policy must call this; those with memory NULL only take part in the
 * export. */
xray_status xr_ship_write(xr_roles *roles, void *memory, uint64_t size,
                          xr_err *err);
/* Loads the weights from the region, which is filled by sections one after the
 * other, into the engine of this process. A tensor that differs from what was
 * written is XRAY_E_BUG and named in the error. */
xray_status xr_ship_read(xr_roles *roles, const void *memory, uint64_t size,
                         xr_err *err);

#endif
