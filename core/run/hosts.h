/* SPDX-License-Identifier: Apache-2.0
 *
 * On which hosts the ranks of a run are.
 */
#ifndef XR_RUN_HOSTS_H
#define XR_RUN_HOSTS_H

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
/* Adds an error for what [runtime] needs and this host does not have: the
 * interface, and the library of TLS. */
void xr_hosts_check_here(const xr_config *config, const xr_run_config *ini,
                         xr_errors *errors);
/* Adds an error if TLS is asked for, and collectives would go from host to host
 * without it. The layouts are known. */
void xr_hosts_check_tls(const xr_run *run, xr_errors *errors);

#endif
