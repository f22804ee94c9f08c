/* SPDX-License-Identifier: Apache-2.0
 *
 * Brings the trainer's weights to the engine. An engine that shares the
 * trainer's table is told the version. An engine with weights of its own
 * receives them by a plan made once, and the checksum of every box that it
 * keeps is compared on both sides each time.
 */
#ifndef XR_PUBLISH_H
#define XR_PUBLISH_H

#include "core/roles/roles.h"

/* Brings the engine to the trainer's weights and version. A tensor that arrived
 * damaged or not at all, or an engine with another version, is XRAY_E_BUG: the
 * run must not continue. No request may be running. The first call for an
 * engine with weights of its own allocates memory, later calls do not. */
xray_status xr_publish(xr_roles *roles, xr_err *err);

/* Does the same if both are in this process; called through
 * core/roles/role_calls.h. */
xray_status xr_publish_here(xr_roles *roles, xr_err *err);

/* Does the same, but with [rollout] free_cache_engine delays it until the next
 * rollout, since the engine sleeps until then and would lose the weights again.
 */
xray_status xr_publish_later(xr_roles *roles, xr_err *err);

/* An iterator over the boxes of a table. `next` gives boxes in the memory of
 * the table's device, which are valid until the next call; XRAY_END after the
 * last.
 */
typedef struct xr_parts {
    void *ctx;
    xray_status (*next)(void *ctx, const xray_weights **out, xr_err *err);
} xr_parts;

/* Copies weights to the engine from a table that came from another process. The
 * engine must have weights of its own. `parts`
 * provides the values if `data` of the table is not memory of its device;
 * otherwise it is NULL. */
xray_status xr_publish_table(xr_roles *roles, const xray_weights *table,
                             const xr_parts *parts, xr_err *err);

/* Returns 1 if the table holds all elements of each tensor, so that an engine
 * in this process can share it. */
int xr_weights_complete(const xray_weights *table);

typedef struct xr_transfer xr_transfer;
/* Called before the parts are destroyed. Accepts roles without a transfer. */
void xr_transfer_free(xr_roles *roles);

#endif
