/* SPDX-License-Identifier: Apache-2.0
 *
 * The report of a comparison, which `xray ab` and `xray compare` share.
 */
#ifndef XR_CLI_CMD_COMPARE_H
#define XR_CLI_CMD_COMPARE_H

#include "core/ab/compare.h"

/* Compares the runs, prints the tables and writes the page to `path` (NULL:
 * none). `lower` 1: lower values of the metric are better. Returns the exit
 * code, after a message if it is not CLI_OK. */
int cli_compare_report(const xr_runs *runs, const char *metric, int lower,
                       const char *path);

#endif
