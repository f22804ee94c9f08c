/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of C functions by signature, and the parts both sides of an actor have:
 * a host that keeps the runtime's reasons, and a pool of regions.
 */
#ifndef XR_ACTOR_INVOKE_H
#define XR_ACTOR_INVOKE_H

#include <ffi.h>

#include "core/actor/signature.h"

/* self, up to two arguments a letter, err. */
#define XR_INVOKE_ARGS (2 * XR_ACTOR_LETTERS + 2)

typedef struct xr_invoke {
    xr_signature signature;
    ffi_cif cif;
    ffi_type *types[XR_INVOKE_ARGS];
} xr_invoke;

/* Holds what goes in and what comes out of one call. */
typedef struct xr_invoke_values {
    xr_value in[XR_ACTOR_LETTERS];
    xray_region *in_region[XR_ACTOR_LETTERS];
    xr_value out[XR_ACTOR_LETTERS];
    xr_str out_str[XR_ACTOR_LETTERS];
    xray_region *out_region[XR_ACTOR_LETTERS];
    void *out_at[XR_ACTOR_LETTERS]; /* where the method writes */
} xr_invoke_values;

/* `out` must stay where it is. */
xray_status xr_invoke_prepare(const char *signature, xr_err *err,
                              xr_invoke *out);
/* Clears the outs, calls, and gives the method's status. */
xray_status xr_invoke_call(xr_invoke *invoke, xr_actor_fn function, void *self,
                           xr_invoke_values *values, xr_err *err);

/* ---- The host a runtime is given ---- */

typedef struct xr_relay {
    xray_host host;
    const xray_host *outer; /* for log and service, may be NULL */
    xr_err err;
} xr_relay;

void xr_relay_init(xr_relay *relay, const xray_host *outer);
/* Moves the reason of a failed call into `err`; gives `status`. */
xray_status xr_relay_error(xr_relay *relay, xray_status status,
                           const char *call, xr_err *err);

/* What poll gave with XRAY_OK, before anything of it is read. */
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

void xr_pool_free(xr_pool *pool); /* the table; the runtime has the regions */
/* One of at least `size` bytes with one reference. */
xray_status xr_pool_get(xr_pool *pool, uint64_t size, xr_err *err,
                        xray_region **out);
/* One more reference; also takes in another's region. */
xray_status xr_pool_ref(xr_pool *pool, xray_region *region, xr_err *err);
/* One less; 1 if that was the last one of another's region, which leaves the
 * table. Unknown ones are passed over. */
int xr_pool_put(xr_pool *pool, xray_region *region);
void xr_pool_forget(xr_pool *pool, const xray_peer *peer);

#endif
