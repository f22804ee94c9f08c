/* SPDX-License-Identifier: Apache-2.0
 *
 * The program as a Workhorse: started by a run, never by a user.
 */
#include "core/cli/cli.h"
#include "core/rl/worker.h"

int cli_workhorse(const char *address)
{
    static const xr_actor_class *const classes[] = { &xr_worker_class };
    xr_err err = { "" };
    if (xr_actor_serve(classes, 1, NULL, NULL, address, &err) == XRAY_OK)
        return CLI_OK;
    cli_say("workhorse: %s", err.text);
    return CLI_FAILED;
}
