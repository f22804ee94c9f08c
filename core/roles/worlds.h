/* SPDX-License-Identifier: Apache-2.0
 *
 * The worlds of this rank: with whom an instance of each role communicates.
 */
#ifndef XR_WORLDS_H
#define XR_WORLDS_H

#include "core/roles/roles.h"

/* Joins the groups of all roles that this rank holds. Every rank of the run
 * must call this. */
xray_status xr_worlds_join(xr_roles *roles, xr_err *err);

#endif
