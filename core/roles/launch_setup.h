/* SPDX-License-Identifier: Apache-2.0
 *
 * Describes to a launcher the places of all Workhorses, and what their hosts
 * must have.
 */
#ifndef XR_LAUNCH_SETUP_H
#define XR_LAUNCH_SETUP_H

#include "core/base/file.h"
#include "core/run/run.h"

#define XR_BUILD_CAP 65u

typedef struct xr_launch_setup {
    xray_launch_setup given; /* points to the rest */
    xray_launch_place *places;
    char (*names)[64]; /* of the places */
    char **paths;
    uint32_t path_cap;
    uint32_t failed; /* 1: out of memory */
    char build[XR_BUILD_CAP];
    char program[XR_PATH_CAP];
    char folder[XR_PATH_CAP];
} xr_launch_setup;

/* Writes the id of this program's build, as `xray --build` prints it. */
xray_status xr_launch_build(char *out, xr_err *err);
xray_status xr_launch_setup_fill(const xr_run *run, xr_err *err,
                                 xr_launch_setup *out);
void xr_launch_setup_free(xr_launch_setup *setup);

#endif
