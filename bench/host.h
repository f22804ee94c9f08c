/* SPDX-License-Identifier: Apache-2.0
 *
 * The host of a benchmark's plugins prints what fails.
 */
#ifndef BENCH_HOST_H
#define BENCH_HOST_H

#include <stdio.h>

#include <xray/host.h>

static inline xray_status print_failure(const xray_host *host, xray_status code,
                                        const char *where, const char *msg)
{
    (void)host;
    (void)fprintf(stderr, "%s: %s\n", where, msg);
    return code;
}

#endif
