/* SPDX-License-Identifier: Apache-2.0
 *
 * A file of events in Chrome's trace format, which chrome://tracing and
 * Perfetto show: a JSON array with one event on each line. Events are collected
 * in memory and written by xm_trace_flush. The file then lacks only the "]" at
 * its end, which the format allows and xm_trace_close writes, so that a process
 * may be killed at any time.
 */
#ifndef XM_TRACE_H
#define XM_TRACE_H

#include "core/base/err.h"

typedef struct xm_trace xm_trace;

/* Tells why no trace can be opened at `path` on this machine, as far as that is
 * known before. */
xray_status xm_trace_check(const char *path, xr_err *err);

/* Rank 0 of the run writes `path`, and rank N "PATH.N". An older file is
 * replaced. `name` is that of the process in the trace. */
xray_status xm_trace_open(const char *path, uint32_t rank, const char *name,
                          xr_err *err, xm_trace **out);
/* Writes what is left and ends the array; both report the first failure and do
 * nothing from then on. xm_trace_close accepts NULL. */
xray_status xm_trace_flush(xm_trace *trace, xr_err *err);
xray_status xm_trace_close(xm_trace *trace, xr_err *err);

/* Microseconds since the trace was opened. */
double xm_trace_now(const xm_trace *trace);
/* Adds an event: `phase` is its letter in the format, `at` its time, and `rest`
 * prints the members after these, which begin with a comma, or nothing. */
XRAY_PRINTF(5, 6)
void xm_trace_add(xm_trace *trace, char phase, double at, const char *name,
                  const char *rest, ...);

#endif
