/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher of a run whose Workhorses an engine of others places and starts:
 * what it is asked for, its instance, and what it may be asked besides.
 */
#ifndef XR_LAUNCHED_H
#define XR_LAUNCHED_H

#include "core/run/run.h"

typedef struct xr_launched xr_launched;

/* Creates the launcher's instance, which may wait for places, and fills the
 * run's placement with the hosts that it chose. While it waits, the first
 * signal ends the run. */
xray_status xr_launched_open(xr_run *run, xr_err *err, xr_launched **out);
/* Ends the instance, after the runtime. Accepts NULL. */
void xr_launched_close(xr_launched *launched);

/* Starts and ends processes in the name of the launcher; `self` is the
 * xr_launched. */
extern const xray_launcher_ops xr_launched_ops;
/* Puts the launcher's reason, if it has given one, behind that of the runtime.
 */
void xr_launched_explain(const xr_launched *launched, xr_err *err);

/* The path of this program, on every host. */
const char *xr_launched_program(const xr_launched *launched);
/* "node1:2, node2:2", as [placement] hosts has it. */
const char *xr_launched_hosts(const xr_launched *launched);
const char *xr_launched_host_of(const xr_launched *launched, uint32_t rank);
/* Returns 1 if the processes that it starts are to be asked what they are. */
int xr_launched_enters(const xr_run *run);

/* Asks the launcher whether its engine could give what the run needs. */
xray_status xr_launched_check(const xr_run *run, xr_err *err);
/* Has the engine run a command line, whose first word becomes this program. */
xray_status xr_launched_submit(const xr_run *run, const char **argv,
                               xr_err *err, int32_t *out_exit);

#endif
