/* SPDX-License-Identifier: Apache-2.0
 *
 * Keeps the stack of plugin calls in progress in static storage.
 */
#include "core/plugin/guard.h"

#include <stdatomic.h>
#include <stddef.h>
#include <time.h>

/* Calls nest at most twice (the loss inside the backend). */
#define DEEPEST 8u
#define NS 1000000000

typedef struct frame {
    _Atomic(const char *) plugin;
    _Atomic(const char *) call;
    _Atomic int64_t deadline;
} frame;

/* A signal handler and the watchdog can only reach static storage. */
static frame frames[DEEPEST];
static atomic_uint depth;
static _Atomic int64_t limit;

int64_t xr_guard_clock(void)
{
    struct timespec now = { 0, 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * NS + now.tv_nsec;
}

void xr_guard_limit(int64_t ns)
{
    atomic_store(&limit, ns);
}

int64_t xr_guard_limit_now(void)
{
    return atomic_load(&limit);
}

void xr_guard_enter(const char *plugin, const char *call, int timed)
{
    unsigned at = atomic_load_explicit(&depth, memory_order_relaxed);
    int64_t most = timed ? atomic_load(&limit) : 0;
    if (at < DEEPEST) {
        frame *f = &frames[at];
        atomic_store_explicit(&f->plugin, plugin, memory_order_relaxed);
        atomic_store_explicit(&f->call, call, memory_order_relaxed);
        atomic_store_explicit(&f->deadline, most ? xr_guard_clock() + most : 0,
                              memory_order_relaxed);
    }
    atomic_store_explicit(&depth, at + 1, memory_order_release);
}

xray_status xr_guard_leave(xray_status status)
{
    unsigned at = atomic_load_explicit(&depth, memory_order_relaxed);
    if (at)
        atomic_store_explicit(&depth, at - 1, memory_order_release);
    return status;
}

int xr_guard_now(xr_guard_call *out)
{
    unsigned at = atomic_load_explicit(&depth, memory_order_acquire);
    if (!at)
        return 0;
    const frame *f = &frames[(at < DEEPEST ? at : DEEPEST) - 1];
    out->plugin = atomic_load_explicit(&f->plugin, memory_order_relaxed);
    out->call = atomic_load_explicit(&f->call, memory_order_relaxed);
    out->deadline_ns = atomic_load_explicit(&f->deadline, memory_order_relaxed);
    return out->plugin && out->call;
}
