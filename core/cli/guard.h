/* SPDX-License-Identifier: Apache-2.0
 *
 * What contains a broken plugin: a line that names it when it crashes or calls
 * exit, and a watchdog for calls that hang.
 */
#ifndef XR_CLI_GUARD_H
#define XR_CLI_GUARD_H

/* Once, at the start of the program; without memory for a thread the program
 * runs without a watchdog. */
void cli_guard_start(void);
void cli_guard_stop(void);

#endif
