/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors: objects in other processes whose methods are ordinary C functions.
 * A class is a table of methods. A call is encoded as the method's signature
 * describes, a runtime (xray/runtime.h) sends it to the actor's process, and
 * libffi calls the method there.
 *
 * A signature is "ins -> outs", where each letter stands for one argument and
 * spaces are ignored:
 *
 *   letter  in: caller and method      out: caller and method
 *   u  i    uint32_t  int32_t          uint32_t *  int32_t *
 *   U  I    uint64_t  int64_t          uint64_t *  int64_t *
 *   d       double                     double *
 *   s       const char *               xr_str *
 *   b       const void *, uint64_t     xr_str *
 *   m       xray_region *              xray_region **
 *
 * The method for "u b -> U s" is
 *
 *   xray_status method(void *self, uint32_t a, const void *b, uint64_t b_size,
 *                      uint64_t *out_c, xr_str *out_d, xr_err *err);
 *
 * The arguments of a method live until it returns. A signature has at most 24
 * letters.
 *
 * An xr_actors, its actors and their futures are used by one thread. Errors
 * name the actor: "actor workhorse 1 (rank 1, pid 123): method step: <sentence
 * of the method>".
 */
#ifndef XR_ACTOR_H
#define XR_ACTOR_H

#include <stddef.h>
#include <stdint.h>

#include <xray/launcher.h>
#include <xray/runtime.h>

#include "core/base/err.h"
#include "core/base/str.h"

#define XR_ACTOR_LETTERS 24

/* Any method; libffi calls it with the types of its signature. */
typedef xray_status (*xr_actor_fn)(void);

typedef struct xr_actor_method {
    const char *name;
    const char *signature;
    xr_actor_fn call; /* XR_METHOD(function) */
} xr_actor_method;

#define XR_METHOD(function) ((xr_actor_fn)(void (*)(void))(function))

typedef struct xr_actor_context xr_actor_context;

typedef struct xr_actor_class {
    const char *name; /* "workhorse" */
    const xr_actor_method *methods;
    size_t method_count;
    /* Creates the object, in the actor's process. `text` is the one of
     * xr_actor_spawn_spec; the context lives as long as the object. On failure
     * *out_self is not written and the actor's process ends. */
    xray_status (*create)(const xr_actor_context *context, const char *text,
                          xr_err *err, void **out_self);
    void (*destroy)(void *self); /* may be NULL */
} xr_actor_class;

/* ---- The caller's side ---- */

typedef struct xr_actors xr_actors; /* a runtime and the actors on it */
typedef struct xr_actor xr_actor;
typedef struct xr_future xr_future;

/* The runtime that starts actors on other hosts, and what it is configured
 * with. Actors without a host, and those on "localhost", are started by their
 * own command line. */
extern const xray_runtime_ops xr_hosts_runtime;
typedef struct xr_hosts_config {
    const char *interface; /* on which actors reach this process; NULL or "":
                            * the loopback one */
    const char *launch;    /* a command line with {host} and {address}, or NULL
                            */
    uint32_t tls;          /* 1: connections are encrypted */
    uint32_t copies;       /* 1: actors of this host share no memory, either */
    /* The launcher that starts every actor instead, and an instance of it that
     * has a place for each, which outlives the runtime; or NULL. Why it did not
     * start one it tells its own host. */
    const xray_launcher_ops *launcher;
    void *launcher_self;
} xr_hosts_config;

typedef struct xr_actors_setup {
    const xray_runtime_ops *ops; /* NULL: the built-in local runtime */
    const void *config;          /* of the runtime's plugin, or NULL */
    const xray_host *host;       /* for the runtime's plugin, or NULL */
    uint32_t actors;             /* upper limit of actors at a time */
    uint32_t hang_ms;            /* limit of silence, in milliseconds; 0: 3000,
                                  * UINT32_MAX: none */
    uint32_t start_ms;           /* limit for the start; 0: 60000 */
    uint32_t fail_together;      /* 1: the loss of any actor ends every wait,
                                  * unless the run is canceled */
    uint64_t extra;              /* bytes of each actor that its object writes
                                  * and the caller reads at any time */
} xr_actors_setup;

typedef struct xr_actor_spawn_spec {
    const xr_actor_class *class_;
    const char *const *argv; /* ends with NULL; the runtime appends an address
                              * for xr_actor_serve */
    const char *name;        /* "workhorse 1" */
    const char *text;        /* argument of create; NULL: "" */
    uint32_t index;          /* rank of the actor among its kind */
    uint32_t count;          /* actors of its kind */
    const char *host;        /* NULL: the runtime's choice */
    uint32_t devices;        /* accelerators that it uses */
    uint32_t reserved;
} xr_actor_spawn_spec;

xray_status xr_actors_new(const xr_actors_setup *setup, xr_err *err,
                          xr_actors **out);
/* Kills the actors that are left and frees every future. Accepts NULL. */
void xr_actors_free(xr_actors *actors);
/* XRAY_OK if no actor is lost, else XRAY_E_PEER and a message that names the
 * lost actor, the reason and its phase. Does not wait. */
xray_status xr_actors_check(xr_actors *actors, xr_err *err);

/* Starts a process that creates the object, and waits for neither. Spawn all
 * actors first and then wait for each, so that they start in parallel. */
xray_status xr_actor_spawn(xr_actors *actors, const xr_actor_spawn_spec *spec,
                           xr_err *err, xr_actor **out);
/* Waits until the object is created, up to timeout_ms (negative: no limit). */
xray_status xr_actor_ready(xr_actor *actor, int64_t timeout_ms, xr_err *err);
/* Destroys the object and ends the process, which is killed if that takes
 * longer than timeout_ms. Frees the actor and its futures. Accepts NULL. */
xray_status xr_actor_stop(xr_actor *actor, int64_t timeout_ms, xr_err *err);
/* Tells it to destroy the object and to end, and does not wait. Tell all before
 * the first is stopped, so that they end in parallel, and none waits in vain
 * for another one's end. Accepts NULL. */
void xr_actor_leave(xr_actor *actor);
/* Kills the process at once; frees as xr_actor_stop does. Accepts NULL. */
void xr_actor_kill(xr_actor *actor);
uint64_t xr_actor_pid(const xr_actor *actor); /* 0 after its loss */
const char *xr_actor_name(const xr_actor *actor);
/* The `extra` bytes of the actor, aligned to 64, as it wrote them at most 0.5 s
 * ago. They are kept after its loss. */
const void *xr_actor_extra_of(const xr_actor *actor);
/* Writes the phase that the actor reported last; `size` of `out` includes the
 * NUL. */
void xr_actor_phase_of(const xr_actor *actor, char *out, size_t size);

/* Sends a call. `...` are the ins and then the outs of the signature, with the
 * types of the table above. Returns once the call is sent; the calls of one
 * actor run one after another, in the order in which they were sent. The outs
 * (each may be NULL) must live until the future is waited for or dropped. The
 * wait writes them if the method succeeded, and replaces the text of an xr_str.
 * A region that comes back as `m` is given up with xr_region_put. */
xray_status xr_actor_call(xr_actor *actor, const char *method, xr_err *err,
                          xr_future **out_future, ...);
/* Sends a call, as above, and waits for its answer. */
xray_status xr_actor_ask(xr_actor *actor, const char *method,
                         int64_t timeout_ms, xr_err *err, ...);

/* Waits for the answer, writes the outs, frees the future and returns the
 * method's status. If no answer comes in time, it returns XRAY_E_PEER with a
 * message that names method and phase, and the future stays: wait for it again
 * or drop it. The future also stays if fail_together ends the wait because of
 * another actor's loss. */
xray_status xr_future_wait(xr_future *future, int64_t timeout_ms, xr_err *err);
/* Waits until one of the futures is answered or its actor is lost, and gives
 * its index; xr_future_wait then returns at once. NULL entries are skipped.
 * XRAY_AGAIN after timeout_ms (0: does not wait), XRAY_E_ARG if all are NULL.
 */
xray_status xr_future_wait_any(xr_future *const *futures, size_t count,
                               int64_t timeout_ms, xr_err *err,
                               size_t *out_index);
/* Frees a future whose answer is not needed; the method still runs. Accepts
 * NULL. */
void xr_future_drop(xr_future *future);

/* ---- Bulk regions ----
 * Regions are shared memory that carries large data without a copy. They come
 * from a pool and go back to it, so a loop creates none after its first pass.
 */

/* A region of at least `size` bytes (`region->size` may be more) with one
 * reference. It is not cleared and may hold the data of an earlier use. */
xray_status xr_region_get(xr_actors *actors, uint64_t size, xr_err *err,
                          xray_region **out);
/* Takes one more reference. */
void xr_region_ref(xr_actors *actors, xray_region *region);
/* Gives up one reference, also of a region that an actor created. Calls that
 * carry the region may still run: it is reused only after they are answered.
 * Accepts NULL. */
void xr_region_put(xr_actors *actors, xray_region *region);
/* Number of regions in the pool, for tests. */
size_t xr_region_count(const xr_actors *actors);

/* ---- The actor's side ---- */

/* Serves one object of one of the `classes` until it is stopped or the parent
 * ends; both return XRAY_OK, and the caller then ends the process. `address` is
 * the last argument of the command line. `ops` NULL: the local runtime. */
xray_status xr_actor_serve(const xr_actor_class *const *classes, size_t count,
                           const xray_runtime_ops *ops, const xray_host *host,
                           const char *address, xr_err *err);

const char *xr_actor_own_name(const xr_actor_context *context);
uint32_t xr_actor_index(const xr_actor_context *context);
uint32_t xr_actor_count(const xr_actor_context *context);
/* The bytes of this actor that the caller reads, and those of all actors, actor
 * i's at i * *out_stride; NULL if they share no memory. */
void *xr_actor_extra(const xr_actor_context *context);
const void *xr_actor_extras(const xr_actor_context *context,
                            uint64_t *out_stride);
/* Gives every actor of this kind the bytes of all: `all` holds `count` times
 * `bytes`, in the order of their indices. All of them call it, in a method or
 * in `create`. XRAY_E_PEER names the actors that did not arrive within
 * timeout_ms (0: no limit) or are gone. */
xray_status xr_actor_gather(const xr_actor_context *context, const void *mine,
                            uint64_t bytes, uint64_t timeout_ms, void *all,
                            xr_err *err);
/* Sets the phase that messages about this actor name, up to 63 bytes. May be
 * called by any thread. */
void xr_actor_phase(const xr_actor_context *context, const char *phase);
/* A region of this actor's pool, to be returned as `m`, which passes its
 * reference to the caller. A region that is not returned is given back with
 * xr_actor_region_put. */
xray_status xr_actor_region(const xr_actor_context *context, uint64_t size,
                            xr_err *err, xray_region **out);
void xr_actor_region_put(const xr_actor_context *context, xray_region *region);

#endif
