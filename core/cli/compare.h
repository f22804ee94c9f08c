/* SPDX-License-Identifier: Apache-2.0
 *
 * What xray ab and xray compare share.
 */
#ifndef XR_CLI_COMPARE_H
#define XR_CLI_COMPARE_H

#include "core/ab/compare.h"

/* Compares, prints the tables and writes the page to `path` (NULL: none).
 * `lower`: less of the metric is better. Returns the exit code, after a message
 * where it is not CLI_OK. */
int cli_compare_report(const xr_runs *runs, const char *metric, int lower,
                       const char *path);

#endif
