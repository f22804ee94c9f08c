/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors: objects in other processes whose methods are ordinary C functions.
 * A class is a table of methods; a call is marshalled by the method's
 * signature, sent by a runtime (xray/runtime.h) and made there with libffi.
 *
 * A signature is "ins -> outs", letters with or without spaces between:
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
 * What a method is given lives until it returns. At most 24 letters.
 *
 * One thread drives an xr_actors, its actors and futures. Errors name the
 * actor: "actor workhorse 1 (rank 1, pid 123): method step: <its sentence>".
 */
#ifndef XR_ACTOR_H
#define XR_ACTOR_H

#include <stddef.h>
#include <stdint.h>

#include <xray/runtime.h>

#include "core/actor/board.h"
#include "core/base/err.h"
#include "core/base/str.h"

#define XR_ACTOR_LETTERS 24

/* Any function; cast back by the signature. */
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
    /* In the actor's process. `text` is what spawn was given; the context lives
     * as long as the object. On failure *out_self is untouched and the actor's
     * process ends. */
    xray_status (*create)(const xr_actor_context *context, const char *text,
                          xr_err *err, void **out_self);
    void (*destroy)(void *self); /* may be NULL */
} xr_actor_class;

/* ---- The caller's side ---- */

typedef struct xr_actors xr_actors; /* a runtime and the actors on it */
typedef struct xr_actor xr_actor;
typedef struct xr_future xr_future;

typedef struct xr_actors_setup {
    const xray_runtime_ops *ops; /* NULL: the built-in local runtime */
    const void *config;          /* of the runtime's plugin, or NULL */
    const xray_host *host;       /* what the plugin is given, or NULL */
    uint32_t actors;             /* at most so many at a time */
    uint32_t hang_ms;            /* 0: 3000; UINT32_MAX: never */
    uint32_t start_ms;           /* 0: 60000 */
    uint32_t fail_together;      /* 1: the loss of any actor ends every wait */
    uint64_t extra;              /* bytes of the board an actor */
} xr_actors_setup;

typedef struct xr_actor_spawn_spec {
    const xr_actor_class *class_;
    const char *const *argv; /* ends with NULL; the runtime appends an address,
                              * which xr_actor_serve is given */
    const char *name;        /* "workhorse 1" */
    const char *text;        /* what create is given, NULL: "" */
    uint32_t index;          /* its place on the board, and its rank */
    uint32_t count;          /* how many there are of its kind */
} xr_actor_spawn_spec;

xray_status xr_actors_new(const xr_actors_setup *setup, xr_err *err,
                          xr_actors **out);
/* Kills all that is left, frees every future. Accepts NULL. */
void xr_actors_free(xr_actors *actors);
/* The board all actors share; NULL where the runtime has none, as one of many
 * hosts. */
const xr_board *xr_actors_board(const xr_actors *actors);
/* XRAY_OK, or XRAY_E_PEER and which actor is lost, how and in which phase.
 * Looks, does not wait. */
xray_status xr_actors_check(xr_actors *actors, xr_err *err);

/* Starts a process and its object, and waits for neither: spawn all, then wait
 * for each. */
xray_status xr_actor_spawn(xr_actors *actors, const xr_actor_spawn_spec *spec,
                           xr_err *err, xr_actor **out);
/* Waits until the object is created, up to timeout_ms (negative: no limit). */
xray_status xr_actor_ready(xr_actor *actor, int64_t timeout_ms, xr_err *err);
/* Destroys the object and ends the process; kills it after timeout_ms. The
 * actor and its futures are freed. Accepts NULL. */
xray_status xr_actor_stop(xr_actor *actor, int64_t timeout_ms, xr_err *err);
/* The same at once and whatever it does. Accepts NULL. */
void xr_actor_kill(xr_actor *actor);
uint64_t xr_actor_pid(const xr_actor *actor); /* 0 after its loss */
const char *xr_actor_name(const xr_actor *actor);
/* What it said last that it does; `size` of `out` includes the NUL. */
void xr_actor_phase_of(const xr_actor *actor, char *out, size_t size);

/* Sends a call: `...` are the ins and then the outs of the signature, by the
 * table above. Returns when it is sent; calls of one actor run one after
 * another, in this order. The outs (each may be NULL) must live until the
 * future is waited for or dropped; they are written then, and only if the
 * method succeeded (xr_str is replaced). An m that comes back is put with
 * xr_region_put. */
xray_status xr_actor_call(xr_actor *actor, const char *method, xr_err *err,
                          xr_future **out_future, ...);
/* Call and wait. `...` as above. */
xray_status xr_actor_ask(xr_actor *actor, const char *method,
                         int64_t timeout_ms, xr_err *err, ...);

/* The method's status, and its outs. The future is freed, unless it is not
 * answered in time: then it is XRAY_E_PEER, names method and phase, and the
 * future can be waited for again or dropped. The same holds where
 * fail_together ends the wait with another actor's loss. */
xray_status xr_future_wait(xr_future *future, int64_t timeout_ms, xr_err *err);
/* The index of one that is answered, or whose actor is lost; its
 * xr_future_wait does not wait. NULL entries are passed over. XRAY_AGAIN after
 * timeout_ms (0: looks), XRAY_E_ARG where all are NULL. */
xray_status xr_future_wait_any(xr_future *const *futures, size_t count,
                               int64_t timeout_ms, xr_err *err,
                               size_t *out_index);
/* The answer does not matter; accepts NULL. The method runs nevertheless. */
void xr_future_drop(xr_future *future);

/* ---- Bulk regions ----
 * Taken from a pool and put back to it: a loop does not create new ones. An
 * actor sees the same memory. */

/* At least `size` bytes; `region->size` may be more. Not cleared: it may hold
 * what its last user left. */
xray_status xr_region_get(xr_actors *actors, uint64_t size, xr_err *err,
                          xray_region **out);
void xr_region_ref(xr_actors *actors, xray_region *region);
/* Gives up one reference; of an actor's region, too. Calls that carry it may
 * still run: it is reused when they are answered. Accepts NULL. */
void xr_region_put(xr_actors *actors, xray_region *region);
/* Regions alive here, made so far: what a test counts. */
size_t xr_region_count(const xr_actors *actors);

/* ---- The actor's side ---- */

/* Serves one object of one of `classes` until the parent ends; `address` is the
 * last argument of the command line. `ops` NULL: the local runtime. Returns
 * XRAY_OK when stopped or when the parent is gone. The caller ends the process
 * then. */
xray_status xr_actor_serve(const xr_actor_class *const *classes, size_t count,
                           const xray_runtime_ops *ops, const xray_host *host,
                           const char *address, xr_err *err);

const char *xr_actor_own_name(const xr_actor_context *context);
uint32_t xr_actor_index(const xr_actor_context *context);
uint32_t xr_actor_count(const xr_actor_context *context);
const xr_board *xr_actor_board(const xr_actor_context *context); /* or NULL */
/* Up to 63 bytes, for the message about this actor's end. Any thread. */
void xr_actor_phase(const xr_actor_context *context, const char *phase);
/* A region to return as an m: its reference passes to the caller. From this
 * actor's pool. xr_actor_region_put gives it back if it is not returned. */
xray_status xr_actor_region(const xr_actor_context *context, uint64_t size,
                            xr_err *err, xray_region **out);
void xr_actor_region_put(const xr_actor_context *context, xray_region *region);

#endif
