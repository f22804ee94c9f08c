/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns SIGINT and SIGTERM into the end of the call that is under way.
 */
#include "core/cli/stop.h"

#include <signal.h>
#include <stddef.h>

#include "core/plugin/cancel.h"

/* A signal handler has access to static variables only. */
static volatile sig_atomic_t stop_signal;

static void cancel_calls(int number)
{
    stop_signal = number;
    xr_cancel();
}

void cli_stop_catch(void)
{
    struct sigaction action = { .sa_handler = cancel_calls };
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

int cli_stop_code(void)
{
    return 128 + (int)stop_signal;
}
