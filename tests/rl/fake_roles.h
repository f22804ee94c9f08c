/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes roles of a run that a test has filled in itself, in this process.
 */
#ifndef TESTS_RL_FAKE_ROLES_H
#define TESTS_RL_FAKE_ROLES_H

#include "core/roles/local.h"

static inline void make_fake_roles(const xr_run *run, xr_roles *out)
{
    *out = (xr_roles){ .run = run, .calls = &xr_local_calls };
    out->device.part = &run->device;
    out->comm.part = &run->comm;
    out->algo.part = &run->algo;
    for (uint32_t role = 1; role < XR_ROLES; role++)
        xr_roles_at(out, role)->part = &out->named[role];
    out->actor.part = &run->train;
    out->engine.part = &run->infer;
    for (size_t i = 0; i < XR_MAX_REWARDS; i++)
        out->rewards[i].part = &run->rewards[i];
}

#endif
