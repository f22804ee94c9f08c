/* SPDX-License-Identifier: Apache-2.0
 *
 * Tracks which plugin's code is running, so that a crash, a hang or an exit can
 * be attributed to it. The thread that drives the run records its calls, and
 * any thread or signal handler may read them.
 */
#ifndef XR_GUARD_H
#define XR_GUARD_H

#include <stdint.h>

#include <xray/abi.h>

/* Records that a call begins. `plugin` and `call` must live until it ends. With
 * `timed`, the call counts as hung when it exceeds the limit; calls that
 * compute are not timed. */
void xr_guard_enter(const char *plugin, const char *call, int timed);
/* Records that the innermost call ended. Returns `status`, so that XR_CALL can
 * be one expression. */
xray_status xr_guard_leave(xray_status status);

/* Evaluate `expression`, a call named `name` that returns a status, in the name
 * of `part`, which may be any struct with a string `instance`. */
#define XR_CALL(part, name, expression) \
    (xr_guard_enter((part)->instance, (name), 0), xr_guard_leave(expression))
#define XR_CALL_TIMED(part, name, expression) \
    (xr_guard_enter((part)->instance, (name), 1), xr_guard_leave(expression))

/* Sets the nanoseconds that a timed call may take. 0, the initial value, means
 * no limit. */
void xr_guard_limit(int64_t ns);
/* Returns the limit that is set. */
int64_t xr_guard_limit_now(void);

/* A call in progress. */
typedef struct xr_guard_call {
    const char *plugin;
    const char *call;
    int64_t deadline_ns; /* on CLOCK_MONOTONIC; 0: none */
} xr_guard_call;
/* Gives the innermost call in progress; returns 0 if there is none.
 * Async-signal-safe. */
int xr_guard_now(xr_guard_call *out);
/* Returns the current time in the unit of deadline_ns. Async-signal-safe. */
int64_t xr_guard_clock(void);

#endif
