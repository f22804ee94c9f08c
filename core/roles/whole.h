/* SPDX-License-Identifier: Apache-2.0
 *
 * The WholeModel: the models of a run as one thing each, whatever Workhorses
 * hold their shards. One call deals a batch to the replicas, waits for all of
 * them and puts the answers back in order.
 */
#ifndef XR_WHOLE_H
#define XR_WHOLE_H

#include "core/roles/role_calls.h"

typedef struct xr_whole xr_whole;

/* Starts a Workhorse per rank, in parallel, and waits until all are ready. Each
 * says what memory it took, at log level info. xr_whole_calls.close ends them,
 * whatever they do. */
xray_status xr_whole_open(xr_roles *roles, xr_err *err, xr_whole **out);

/* The calls of roles whose models are in Workhorses. They give an error that
 * names actor, rank, phase and the last collective; the loss of a Workhorse is
 * XRAY_E_PEER, and every later call fails. Gradients of a value that is not
 * finite are not kept. */
extern const xr_role_ops xr_whole_calls;

#endif
