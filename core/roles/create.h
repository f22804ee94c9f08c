/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates the instances of a run one kind at a time; used by xr_roles_start and
 * xr_roles_start_rank.
 */
#ifndef XR_CREATE_H
#define XR_CREATE_H

#include "core/roles/roles.h"

/* Returns roles without instances; NULL if out of memory. */
xr_roles *xr_roles_new(const xr_run *run);
xray_status xr_create_reward(xr_roles *roles, xr_instance *reward, xr_err *err);
/* Creates the algorithm; its needs (XRAY_NEED_*) go to *out_needs. */
xray_status xr_create_algo(xr_roles *roles, uint32_t *out_needs, xr_err *err);
/* Creates the algorithm and applies its needs to the run. */
xray_status xr_create_algo_of_run(xr_roles *roles, xr_run *run, xr_err *err);
xray_status xr_create_device(xr_roles *roles, xr_err *err);
/* Creates the models placed on this rank; all models if there is one rank. */
xray_status xr_create_models(xr_roles *roles, xr_err *err);
/* Sets up the trainer's component as the part of another role, under the name
 * of that role. */
xray_status xr_create_role_part(xr_roles *roles, uint32_t role, xr_err *err);

#endif
