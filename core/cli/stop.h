/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGINT and SIGTERM for commands that write a file: the call that is under way
 * ends, so that the command can remove its unfinished output.
 */
#ifndef XR_CLI_STOP_H
#define XR_CLI_STOP_H

/* From now on either signal cancels the calls of this process
 * (core/plugin/cancel.h). */
void cli_stop_catch(void);
/* The exit code of a command that a signal stopped. */
int cli_stop_code(void);

#endif
