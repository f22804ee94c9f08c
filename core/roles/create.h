/* SPDX-License-Identifier: Apache-2.0
 *
 * The steps of xr_roles_start: one kind of instance each.
 */
#ifndef XR_CREATE_H
#define XR_CREATE_H

#include "core/roles/roles.h"

/* Roles without an instance; NULL when out of memory. */
xr_roles *xr_roles_new(const xr_run *run);
xray_status xr_create_reward(xr_roles *roles, xr_instance *reward, xr_err *err);
/* *out_needs: XRAY_NEED_*. */
xray_status xr_create_algo(xr_roles *roles, uint32_t *out_needs, xr_err *err);
/* The algorithm; the run knows its needs then. */
xray_status xr_create_algo_of_run(xr_roles *roles, xr_run *run, xr_err *err);
xray_status xr_create_device(xr_roles *roles, xr_err *err);
/* The models placed on this rank, all of them where there is one. */
xray_status xr_create_models(xr_roles *roles, xr_err *err);
/* The trainer's component under the name of another role. */
xray_status xr_create_role_part(xr_roles *roles, uint32_t role, xr_err *err);

#endif
