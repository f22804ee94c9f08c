/* SPDX-License-Identifier: Apache-2.0
 *
 * The WholeModel: each model of a run as one object, whatever Workhorses hold
 * its shards. A call deals a batch to the replicas, waits for all of them and
 * puts the results back in order.
 */
#ifndef XR_WHOLE_H
#define XR_WHOLE_H

#include "core/roles/role_calls.h"

typedef struct xr_whole xr_whole;

/* Starts a Workhorse per rank, in parallel, and waits until all are ready. The
 * memory that each one took is logged at level info. xr_whole_calls.close ends
 * them. */
xray_status xr_whole_open(xr_roles *roles, xr_err *err, xr_whole **out);

/* The table of calls for roles whose models are in Workhorses. Errors name
 * actor, rank, phase and the last collective. The loss of a Workhorse is
 * XRAY_E_PEER, and every later call fails. Gradients with a value that is not
 * finite are discarded. */
extern const xr_role_ops xr_whole_calls;

#endif
