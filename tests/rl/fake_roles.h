/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes roles of a run that a test has filled in itself, in this process, and
 * looks at the metrics of its steps.
 */
#ifndef TESTS_RL_FAKE_ROLES_H
#define TESTS_RL_FAKE_ROLES_H

#include <math.h>

#include "core/monitor/monitor.h"
#include "core/roles/local.h"
#include "tests/testing.h"

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

/* A value that a step does not have, such as the mean of no updates, is no
 * metric. */
static inline void expect_values(const xr_metrics *metrics)
{
    for (size_t i = 0; i < xr_metrics_count(metrics); i++)
        if (!isfinite(xr_metrics_value(metrics, i)))
            fail_msg("%s has no value", xr_metrics_name(metrics, i));
}

#endif
