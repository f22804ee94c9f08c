/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs and functions that the files of the caller's side share: actors and
 * futures.
 */
#ifndef XR_ACTOR_CALLER_H
#define XR_ACTOR_CALLER_H

#include "core/actor/actor.h"
#include "core/actor/invoke.h"
#include "core/actor/record.h"

enum { XR_FUTURE_SENT, XR_FUTURE_DONE };

/* Stands in its actor's list, in the order of calls, until it is freed. */
struct xr_future {
    xr_future *next;
    xr_future *before;
    xr_actor *actor;
    uint64_t call;
    const char *method;
    const xr_signature *signature;
    void *outs[XR_ACTOR_LETTERS];
    xray_region
        *held[XR_ACTOR_LETTERS]; /* regions of its ins, until the answer */
    uint32_t held_count;
    uint32_t state;
    uint32_t dropped;
    xray_status status;
    xr_err why; /* of a negative status */
    xr_str reply;
    xr_value values[XR_VALUES]; /* point into reply */
    xray_region *regions[XR_VALUES];
};

struct xr_actor {
    xr_actors *actors;
    xr_actor *next;
    xray_peer *peer;
    const void *record; /* of the peer (core/actor/record.h) */
    const xr_actor_class *class_;
    xr_signature *signatures; /* of the class's methods */
    char *name;
    xr_future *first; /* of all futures */
    xr_future *last;
    xr_future *oldest; /* of those without an answer */
    xr_future *create;
    xr_future *farewell; /* it was told to end */
    uint64_t pid;
    uint32_t index;
    uint32_t count;     /* actors of its kind */
    uint32_t gathers;   /* it waits for a gather */
    uint32_t lost;      /* 2: the runtime reported it */
    uint32_t clean;     /* it ended in order */
    uint32_t stopping;  /* its end is expected, not a loss */
    const char *ran;    /* the method that ran at its loss, or NULL */
    xr_err why;         /* "exited with status 1, in phase ..." */
    xr_str given;       /* its bytes of the gather in progress */
    uint64_t gather_ns; /* when it gave them */
    uint64_t gather_ms; /* the longest that it waits; 0: no limit */
};

struct xr_actors {
    const xray_runtime_ops *ops;
    void *runtime;
    xr_relay relay;
    xr_pool pool;
    xr_actor *first;
    xr_future *spare; /* freed futures, to be reused */
    xr_str scratch;
    uint64_t calls;
    uint64_t canceled_ns; /* when the actors were told to end their calls */
    uint32_t fail_together;
    uint32_t gathering; /* actors that wait for a gather */
};

/* Handles one event, waiting up to timeout_ms for it: XRAY_OK, XRAY_AGAIN, or
 * the runtime's failure. */
xray_status xr_actors_pump(xr_actors *actors, int64_t timeout_ms, xr_err *err);
/* XRAY_OK until xr_canceled(); then tells the actors, and once they have had
 * time to answer returns XRAY_E_CANCELED. */
xray_status xr_actors_cancel(xr_actors *actors, xr_err *err);
/* Ends all that waits for the actor. `reason` completes "actor X ..."; `clean`:
 * it was told to end. */
void xr_actor_lose(xr_actor *actor, const char *reason, int clean);
/* The first actor that is lost, or NULL. */
xr_actor *xr_actors_lost(const xr_actors *actors);
/* Puts "actor NAME (rank R, pid P): method M: " before the message in `err`. */
xray_status xr_actor_blame(const xr_actor *actor, const char *method,
                           xray_status status, xr_err *err);
/* Writes ", in phase "x"", or "" if the actor has reported none. */
void xr_actor_phase_note(const xr_actor *actor, char *out, size_t size);

/* A new future at the end of the actor's list; its call is not sent yet. */
xray_status xr_future_new(xr_actor *actor, const char *method,
                          const xr_signature *signature, xr_err *err,
                          xr_future **out);
/* Removes it from the list and keeps its memory for another call. */
void xr_future_free(xr_future *future);
/* Sends the message in `actors->scratch` as this future's call. */
xray_status xr_future_send(xr_future *future, xr_err *err);
/* Handles the answer to the oldest call; XRAY_E_PEER if it answers another. */
xray_status xr_future_answer(xr_actor *actor, const xr_message *message,
                             const xray_runtime_event *event, xr_err *err);
/* Finishes it with the reason of the actor's loss. */
void xr_future_lose(xr_future *future);

/* Takes an actor's bytes, and answers all of its kind once the last has given
 * its own. */
xray_status xr_gather_take(xr_actor *actor, const xr_message *message,
                           xr_err *err);
/* Ends gathers whose time is over, or of which an actor is lost. */
void xr_gathers_check(xr_actors *actors);

#endif
