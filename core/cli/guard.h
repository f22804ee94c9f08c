/* SPDX-License-Identifier: Apache-2.0
 *
 * Guards the program against broken plugins: names the one that crashes or
 * calls exit, and ends calls that hang.
 */
#ifndef XR_CLI_GUARD_H
#define XR_CLI_GUARD_H

/* Called once, at the start of the program. If no thread can be created, the
 * program runs without the watchdog. */
void cli_guard_start(void);
void cli_guard_stop(void);

#endif
