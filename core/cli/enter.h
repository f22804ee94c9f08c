/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks the launcher of a run what this process is: some engines start every
 * process of a job with the user's own command line.
 */
#ifndef XR_CLI_ENTER_H
#define XR_CLI_ENTER_H

#include "core/plugin/plugin.h"

/* The launcher that was asked, which must stay until the process ends. */
typedef struct cli_entry {
    xr_plugins *plugins;
    xr_host *host;
    void *config;
} cli_entry;

/* Finds the launcher `name` and asks it, if it is one that tells. Without, the
 * kind of *out is 0. `config`: has its options, which are the defaults
 * otherwise. `address`: of a Workhorse that the run started, or NULL. */
xray_status cli_entry_ask(cli_entry *entry, const char *name,
                          const char *folders, xr_config *config,
                          const char *address, xr_err *err,
                          xray_launch_entry *out);
void cli_entry_close(cli_entry *entry);

/* Serves as the Workhorse that the launcher has described, until the run ends;
 * returns the exit code. */
int cli_serve_entry(const xray_launch_entry *what);

/* For a command that runs a job: returns 1 if this process became a Workhorse,
 * which has ended with *out_code; 0: it goes on, and `entry` is to be closed
 * once it has ended. */
int cli_enter(cli_entry *entry, xr_config *config, const char *folders,
              int *out_code);

#endif
