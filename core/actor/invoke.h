/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of C functions as a signature describes them, and parts that both sides
 * of an actor have: a host that keeps a runtime's reasons, and a pool of
 * regions.
 */
#ifndef XR_ACTOR_INVOKE_H
#define XR_ACTOR_INVOKE_H

#include <ffi.h>

#include "core/actor/signature.h"

/* self, up to two arguments per letter, err */
#define XR_INVOKE_ARGS (2 * XR_ACTOR_LETTERS + 2)

typedef struct xr_invoke {
    xr_signature signature;
    ffi_cif cif;
    ffi_type *types[XR_INVOKE_ARGS];
} xr_invoke;

/* The arguments and results of one call. */
typedef struct xr_invoke_values {
    xr_value in[XR_ACTOR_LETTERS];
    xray_region *in_region[XR_ACTOR_LETTERS];
    xr_value out[XR_ACTOR_LETTERS];
    xr_str out_str[XR_ACTOR_LETTERS];
    xray_region *out_region[XR_ACTOR_LETTERS];
    void *out_at[XR_ACTOR_LETTERS]; /* where the method writes its results */
} xr_invoke_values;

/* Describes the call to libffi, which keeps pointers into `out`: it must not be
 * moved or copied. */
xray_status xr_invoke_prepare(const char *signature, xr_err *err,
                              xr_invoke *out);
/* Clears the outs, calls the method and returns its status. */
xray_status xr_invoke_call(xr_invoke *invoke, xr_actor_fn function, void *self,
                           xr_invoke_values *values, xr_err *err);

/* ---- The host that a runtime is given ---- */

typedef struct xr_relay {
    xray_host host;
    const xray_host *outer; /* for log and service; may be NULL */
    xr_err err;             /* why a call of the runtime failed */
} xr_relay;

void xr_relay_init(xr_relay *relay, const xray_host *outer);
/* Moves the reason why a call failed into `err` and returns `status`. */
xray_status xr_relay_error(xr_relay *relay, xray_status status,
                           const char *call, xr_err *err);

/* Checks an event that poll returned with XRAY_OK, before it is used. */
xray_status xr_event_check(const xray_runtime_event *event, xr_err *err);

/* ---- A pool of regions ---- */

typedef struct xr_pool_entry {
    xray_region *region;
    uint64_t refs;
} xr_pool_entry;

typedef struct xr_pool {
    const xray_runtime_ops *ops;
    void *runtime;
    xr_relay *relay;
    xr_pool_entry *entries;
    size_t count;
    size_t cap;
} xr_pool;

void xr_pool_free(xr_pool *pool); /* the table; the runtime owns the regions */
/* A region of at least `size` bytes with one reference. */
xray_status xr_pool_get(xr_pool *pool, uint64_t size, xr_err *err,
                        xray_region **out);
/* Takes one more reference. A region of another process is added to the pool.
 */
xray_status xr_pool_ref(xr_pool *pool, xray_region *region, xr_err *err);
/* Gives up one reference. 1 if it was the last one to a region of another
 * process, which leaves the table then. Unknown regions are ignored. */
int xr_pool_put(xr_pool *pool, xray_region *region);
/* Removes the regions of this peer. */
void xr_pool_forget(xr_pool *pool, const xray_peer *peer);

#endif
