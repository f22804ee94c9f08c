/* SPDX-License-Identifier: Apache-2.0
 *
 * On which hosts the ranks of a run are.
 */
#ifndef XR_RUN_HOSTS_H
#define XR_RUN_HOSTS_H

#include "core/base/str.h"
#include "core/run/run.h"

#define XR_HOSTS "hosts" /* the runtime that is built in for several hosts */
#define XR_HOST_NAME_CAP 64u

/* Decodes [placement] hosts into the host and local number of each rank, and
 * checks what else the runtime needs. Faults go to `errors`. */
void xr_hosts_read(const xr_config *config, const xr_run_config *ini,
                   xr_placement *placement, xr_errors *errors);
/* Writes the name of the rank's host, up to XR_HOST_NAME_CAP bytes with the
 * NUL, and returns `out`; NULL if that is the runtime's choice. */
const char *xr_hosts_name(const xr_run_config *ini,
                          const xr_placement *placement, uint32_t rank,
                          char *out);
/* Places the ranks on the hosts that an engine chose, by rank, and writes them
 * to `out` as [placement] hosts has them. */
xray_status xr_hosts_place(xr_run *run, const char *const *names, xr_str *out,
                           xr_err *err);
/* Returns 1 if the run has the built-in runtime of several hosts. */
int xr_hosts_on(const xr_run *run);
/* Adds an error for what [runtime] needs and this host does not have: the
 * interface, and the library of TLS. */
void xr_hosts_check_here(const xr_run *run, xr_errors *errors);
/* Adds an error if TLS is asked for, and collectives would go from host to host
 * without it. The layouts are known. */
void xr_hosts_check_tls(const xr_run *run, xr_errors *errors);

#endif
