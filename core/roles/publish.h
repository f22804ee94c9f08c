/* SPDX-License-Identifier: Apache-2.0
 *
 * Weights from trainer to engine. An engine that shares the trainer's table is
 * told the version; one with weights of its own is sent them by a plan made
 * once, and every tensor's checksum is compared on both sides each time.
 */
#ifndef XR_PUBLISH_H
#define XR_PUBLISH_H

#include "core/roles/roles.h"

/* Brings the engine to the trainer's weights and version. A value that arrived
 * otherwise than it was sent, a tensor that did not arrive or an engine at
 * another version is XRAY_E_BUG: the run must not go on. No request may be
 * running. The first call of a copying pair allocates, later ones do not. */
xray_status xr_publish(xr_roles *roles, xr_err *err);

/* The same where both are in this process: core/roles/role_calls.h calls it. */
xray_status xr_publish_here(xr_roles *roles, xr_err *err);

/* The same, but with [rollout] free_cache_engine not before the next rollout:
 * until then the engine sleeps, and would lose the weights again. */
xray_status xr_publish_later(xr_roles *roles, xr_err *err);

/* The next tensors of a table, whole and in the memory of its device, until the
 * call after; XRAY_END after the last. */
typedef struct xr_parts {
    void *ctx;
    xray_status (*next)(void *ctx, const xray_weights **out, xr_err *err);
} xr_parts;

/* The same from a table that came from elsewhere and holds whole tensors; the
 * engine must keep weights of its own. `parts` brings the values where `data`
 * of the table is no memory of its device, NULL: it is. */
xray_status xr_publish_table(xr_roles *roles, const xray_weights *table,
                             const xr_parts *parts, xr_err *err);

/* 1 if the table holds all elements of each of its tensors, so that an engine
 * in this process can share it. */
int xr_weights_complete(const xray_weights *table);

typedef struct xr_transfer xr_transfer;
/* Before the parts are destroyed. Accepts roles without one. */
void xr_transfer_free(xr_roles *roles);

#endif
