/* SPDX-License-Identifier: Apache-2.0
 *
 * Which plugin's code runs right now: what a crash, a hang or an exit is
 * blamed on. Kept by the thread that drives the run; read from anywhere, also
 * from a signal handler.
 */
#ifndef XR_GUARD_H
#define XR_GUARD_H

#include <stdint.h>

#include <xray/abi.h>

/* A call begins. `plugin` and `call` live until it is over. `timed`: it counts
 * as hung past the limit; for calls that set up, not for those that compute. */
void xr_guard_enter(const char *plugin, const char *call, int timed);
/* It is over. Hands `status` through, so that a call is one expression. */
xray_status xr_guard_leave(xray_status status);

/* A call of a part (anything with an `instance`) that gives a status. */
#define XR_CALL(part, name, expression) \
    (xr_guard_enter((part)->instance, (name), 0), xr_guard_leave(expression))
#define XR_CALL_TIMED(part, name, expression) \
    (xr_guard_enter((part)->instance, (name), 1), xr_guard_leave(expression))

/* Nanoseconds a timed call may take; 0: no limit, as at the start. */
void xr_guard_limit(int64_t ns);
int64_t xr_guard_limit_now(void);

/* The innermost call in progress. */
typedef struct xr_guard_call {
    const char *plugin;
    const char *call;
    int64_t deadline_ns; /* on CLOCK_MONOTONIC; 0: none */
} xr_guard_call;
/* 0 if no plugin's code is running. Async-signal-safe. */
int xr_guard_now(xr_guard_call *out);
/* Now, in the unit of deadline_ns. Async-signal-safe. */
int64_t xr_guard_clock(void);

#endif
