/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors on the side of their caller: spawning and stopping them, and events of
 * the runtime.
 */
#include "core/actor/actor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/actor/caller.h"
#include "core/actor/clock.h"
#include "core/actor/local.h"
#include "core/plugin/cancel.h"

#define HANG_MS 3000u
#define START_MS 60000u
/* Nanoseconds that actors have to answer once they are told to end. A long call
 * notices it within 0.2 s; a busy machine may take longer. */
#define PATIENCE_NS 1000000000u

static const xr_signature no_values = { 0 };

/* ---- Events ---- */

void xr_actor_phase_of(const xr_actor *actor, char *out, size_t size)
{
    xr_record_get_phase(actor->record, out, size);
}

const void *xr_actor_extra_of(const xr_actor *actor)
{
    return (const char *)actor->record + XR_RECORD_PHASE;
}

void xr_actor_phase_note(const xr_actor *actor, char *out, size_t size)
{
    char phase[64];
    out[0] = 0;
    xr_actor_phase_of(actor, phase, sizeof(phase));
    if (phase[0])
        (void)snprintf(out, size, ", in phase \"%s\"", phase);
}

/* Writes ", pid 4711" for an actor that has a process on this host. */
static const char *note_pid(const xr_actor *actor, char *out, size_t size)
{
    *out = '\0';
    if (actor->pid)
        (void)snprintf(out, size, ", pid %llu", (unsigned long long)actor->pid);
    return out;
}

xray_status xr_actor_blame(const xr_actor *actor, const char *method,
                           xray_status status, xr_err *err)
{
    char pid[32];
    return xr_fail_in(err, status, "actor %s (rank %u%s): method %s",
                      actor->name, actor->index,
                      note_pid(actor, pid, sizeof(pid)), method);
}

xr_actor *xr_actors_lost(const xr_actors *actors)
{
    xr_actor *actor = actors->first;
    while (actor && !(actor->lost && !actor->stopping))
        actor = actor->next;
    return actor;
}

static int creation_failed(const xr_actor *actor)
{
    const xr_future *create = actor->create;
    return create && create->state == XR_FUTURE_DONE && create->status < 0;
}

void xr_actor_lose(xr_actor *actor, const char *reason, int clean)
{
    char phase[96];
    xr_actor_phase_note(actor, phase, sizeof(phase));
    if (creation_failed(actor))
        (void)xr_fail(&actor->why, XRAY_E_PEER, "it was not created: %s",
                      actor->create->why.text);
    else
        (void)xr_fail(&actor->why, XRAY_E_PEER, "%s%s", reason, phase);
    actor->lost = 1;
    actor->clean = clean != 0;
    actor->ran = actor->oldest ? actor->oldest->method : NULL;
    while (actor->oldest)
        xr_future_lose(actor->oldest);
}

/* The actor sent a malformed message, so nothing that it sends later can be
 * trusted. */
static void distrust_actor(xr_actor *actor, xr_err *why)
{
    (void)xr_fail_in(why, XRAY_E_PEER, "sent a malformed message");
    xr_actor_lose(actor, why->text, 0);
}

static void handle_message(xr_actor *actor, const xray_runtime_event *event)
{
    xr_message message;
    xr_err err = { "" };
    xr_value value;
    if (actor->lost)
        return;
    xray_status status =
        xr_message_header(event->data, (size_t)event->size, &err, &message);
    if (!status && message.kind == XR_MESSAGE_RELEASE)
        status = xr_message_values(&message, "U", &err, &value);
    else if (!status && (message.kind == XR_MESSAGE_REPLY ||
                         message.kind == XR_MESSAGE_ERROR))
        status = xr_future_answer(actor, &message, event, &err);
    else if (!status && message.kind == XR_MESSAGE_GATHER)
        status = xr_gather_take(actor, &message, &err);
    else if (!status)
        status = xr_fail(&err, XRAY_E_PEER, "its kind %u is unexpected",
                         message.kind);
    if (status)
        distrust_actor(actor, &err);
}

/* Tells the actors that every call shall end. */
static void tell_canceled(const xr_actors *actors)
{
    for (const xr_actor *actor = actors->first; actor; actor = actor->next)
        actors->ops->notify(actors->runtime, actor->peer, 1);
}

xray_status xr_actors_cancel(xr_actors *actors, xr_err *err)
{
    if (!xr_canceled())
        return XRAY_OK;
    if (!actors->canceled_ns) {
        tell_canceled(actors);
        actors->canceled_ns = xr_clock_ns();
    }
    return xr_clock_ns() - actors->canceled_ns < PATIENCE_NS
               ? XRAY_OK
               : xr_cancel_check(err);
}

xray_status xr_actors_pump(xr_actors *actors, int64_t timeout_ms, xr_err *err)
{
    xray_runtime_event event = { .header = XRAY_HEADER(xray_runtime_event) };
    xr_gathers_check(actors);
    xray_status status = actors->ops->poll(actors->runtime, timeout_ms, &event);
    if (status < 0)
        return xr_relay_error(&actors->relay, status, "poll", err);
    if (!status)
        status = xr_event_check(&event, err);
    if (status)
        return status;
    xr_actor *actor = actors->first;
    while (actor && actor->peer != event.peer)
        actor = actor->next;
    if (!actor)
        return XRAY_OK;
    if (event.kind == XRAY_RUNTIME_LOST) {
        if (!actor->lost)
            xr_actor_lose(actor, event.reason, (int)event.clean);
        actor->clean = event.clean;
        actor->lost = 2;
    } else {
        handle_message(actor, &event);
    }
    return XRAY_OK;
}

xray_status xr_actors_check(xr_actors *actors, xr_err *err)
{
    xray_status status = XRAY_OK;
    while (!xr_actors_lost(actors) && !status)
        status = xr_actors_pump(actors, 0, err);
    if (status < 0)
        return status;
    const xr_actor *actor = xr_actors_lost(actors);
    if (!actor)
        return XRAY_OK;
    /* A caller that waits for another actor learns why this one refused to be
     * created; that its process then ended is only the consequence. */
    status = xr_fail(
        err, creation_failed(actor) ? actor->create->status : XRAY_E_PEER, "%s",
        actor->why.text);
    if (actor->ran)
        return xr_actor_blame(actor, actor->ran, status, err);
    char pid[32];
    return xr_fail_in(err, status, "actor %s (rank %u%s): no method ran",
                      actor->name, actor->index,
                      note_pid(actor, pid, sizeof(pid)));
}

/* ---- The runtime ---- */

xray_status xr_actors_new(const xr_actors_setup *setup, xr_err *err,
                          xr_actors **out)
{
    xr_actors *actors = calloc(1, sizeof(*actors));
    if (!actors)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for actors");
    xr_relay_init(&actors->relay, setup->host);
    actors->ops = setup->ops ? setup->ops : &xr_local_runtime;
    actors->fail_together = setup->fail_together;
    xray_runtime_setup given = {
        .header = XRAY_HEADER(xray_runtime_setup),
        .host = &actors->relay.host,
        .record_size = XR_RECORD_PHASE + setup->extra,
        .actors = setup->actors,
        .hang_ms = setup->hang_ms ? setup->hang_ms : HANG_MS,
        .start_ms = setup->start_ms ? setup->start_ms : START_MS,
    };
    if (given.hang_ms == UINT32_MAX)
        given.hang_ms = 0;
    xray_status status =
        actors->ops->create(&given, setup->config, &actors->runtime);
    if (status) {
        (void)xr_relay_error(&actors->relay, status, "create", err);
        xr_actors_free(actors);
        return status;
    }
    actors->pool.ops = actors->ops;
    actors->pool.runtime = actors->runtime;
    actors->pool.relay = &actors->relay;
    *out = actors;
    return XRAY_OK;
}

static void free_actor(xr_actor *actor)
{
    xr_actors *actors = actor->actors;
    xr_actor **at = &actors->first;
    while (actor->first)
        xr_future_free(actor->first);
    while (*at && *at != actor)
        at = &(*at)->next;
    if (*at)
        *at = actor->next;
    actors->gathering -= actor->gathers;
    xr_str_free(&actor->given);
    free(actor->signatures);
    free(actor->name);
    free(actor);
}

void xr_actors_free(xr_actors *actors)
{
    if (!actors)
        return;
    for (xr_actor *actor = actors->first; actor; actor = actor->next)
        while (actor->first) /* while regions can still be found */
            xr_future_free(actor->first);
    if (actors->runtime) /* ends all processes at once */
        actors->ops->destroy(actors->runtime);
    while (actors->first)
        free_actor(actors->first);
    while (actors->spare) {
        xr_future *next = actors->spare->next;
        xr_str_free(&actors->spare->reply);
        free(actors->spare);
        actors->spare = next;
    }
    xr_pool_free(&actors->pool);
    xr_str_free(&actors->scratch);
    free(actors);
}

/* ---- Regions ---- */

xray_status xr_region_get(xr_actors *actors, uint64_t size, xr_err *err,
                          xray_region **out)
{
    return xr_pool_get(&actors->pool, size, err, out);
}

void xr_region_ref(xr_actors *actors, xray_region *region)
{
    xr_err ignored;
    (void)xr_pool_ref(&actors->pool, region, &ignored);
}

void xr_region_put(xr_actors *actors, xray_region *region)
{
    xr_value value;
    xr_err ignored = { "" };
    if (!region || !xr_pool_put(&actors->pool, region))
        return;
    /* An actor created it and may use it again once it is told. If this cannot
     * be sent, the actor keeps it unused. */
    const xr_message header = { XR_MESSAGE_RELEASE, 0, 0, "", NULL, 0 };
    value.U = region->id;
    if (xr_message_encode(&header, "U", &value, &ignored, &actors->scratch))
        return;
    if (actors->ops->send(actors->runtime, region->peer, actors->scratch.data,
                          actors->scratch.size, NULL, 0))
        actors->relay.err.text[0] = 0;
}

size_t xr_region_count(const xr_actors *actors)
{
    return actors->pool.count;
}

/* ---- Actors ---- */

void xr_actor_kill(xr_actor *actor)
{
    if (!actor)
        return;
    xr_actors *actors = actor->actors;
    while (actor->first)
        xr_future_free(actor->first);
    xr_pool_forget(&actors->pool, actor->peer);
    actors->ops->kill(actors->runtime, actor->peer);
    free_actor(actor);
}

uint64_t xr_actor_pid(const xr_actor *actor)
{
    return actor->lost ? 0 : actor->pid;
}

const char *xr_actor_name(const xr_actor *actor)
{
    return actor->name;
}

static xray_status new_actor(xr_actors *actors, const xr_actor_spawn_spec *spec,
                             xr_err *err, xr_actor **out)
{
    const size_t count = spec->class_->method_count;
    xr_actor *actor = calloc(1, sizeof(*actor));
    if (!actor)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for an actor");
    actor->actors = actors;
    actor->class_ = spec->class_;
    actor->index = spec->index;
    actor->count = spec->count;
    actor->name = xr_strdup(spec->name);
    actor->signatures = xr_calloc(count + 1, sizeof(*actor->signatures));
    xray_status status = XRAY_OK;
    if (!actor->name || !actor->signatures)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory for an actor");
    for (size_t i = 0; !status && i < count; i++) {
        const xr_actor_method *method = &spec->class_->methods[i];
        status =
            xr_signature_parse(method->signature, err, &actor->signatures[i]);
        if (status)
            (void)xr_fail_in(err, status, "method %s of class %s", method->name,
                             spec->class_->name);
    }
    if (status) {
        free_actor(actor);
        return status;
    }
    *out = actor;
    return XRAY_OK;
}

static xray_status send_create(xr_actor *actor, const xr_actor_spawn_spec *spec,
                               xr_err *err)
{
    xray_status status =
        xr_future_new(actor, "create", &no_values, err, &actor->create);
    if (status)
        return status;
    const xr_message header = { XR_MESSAGE_CREATE,   0,    actor->create->call,
                                actor->class_->name, NULL, 0 };
    const xr_value values[4] = { { .s = spec->name },
                                 { .u = spec->index },
                                 { .u = spec->count },
                                 { .s = spec->text ? spec->text : "" } };
    status = xr_message_encode(&header, XR_CREATE_LETTERS, values, err,
                               &actor->actors->scratch);
    return status ? status : xr_future_send(actor->create, err);
}

static xray_status find_record(xr_actor *actor, xr_err *err)
{
    const xr_actors *actors = actor->actors;
    if (!actor->peer)
        return xr_fail(
            err, XRAY_E_BUG,
            "the runtime's spawn returned neither a peer nor an error");
    actor->record = actors->ops->record(actors->runtime, actor->peer);
    return actor->record ? XRAY_OK
                         : xr_fail(err, XRAY_E_BUG,
                                   "the runtime's record returned no memory");
}

xray_status xr_actor_spawn(xr_actors *actors, const xr_actor_spawn_spec *spec,
                           xr_err *err, xr_actor **out)
{
    xr_actor *actor = NULL;
    xray_status status = new_actor(actors, spec, err, &actor);
    if (status)
        return status;
    const xray_actor_spec given = { .header = XRAY_HEADER(xray_actor_spec),
                                    .name = spec->name,
                                    .argv = spec->argv,
                                    .host = spec->host,
                                    .index = spec->index,
                                    .devices = spec->devices };
    status = actors->ops->spawn(actors->runtime, &given, &actor->peer);
    if (status) {
        (void)xr_relay_error(&actors->relay, status, "spawn", err);
        free_actor(actor);
        return status;
    }
    status = find_record(actor, err);
    if (status) {
        free_actor(actor);
        return status;
    }
    actor->pid = actors->ops->pid(actors->runtime, actor->peer);
    actor->next = actors->first;
    actors->first = actor;
    status = send_create(actor, spec, err);
    if (status) {
        xr_actor_kill(actor);
        return status;
    }
    *out = actor;
    return XRAY_OK;
}

xray_status xr_actor_ready(xr_actor *actor, int64_t timeout_ms, xr_err *err)
{
    xr_future *create = actor->create;
    if (!create)
        return XRAY_OK;
    xray_status status = xr_future_wait(create, timeout_ms, err);
    if (actor->first != create) /* answered, and freed */
        actor->create = NULL;
    return status;
}

/* Sends the wish that it ends, once. */
static xray_status ask_to_leave(xr_actor *actor, xr_err *err)
{
    xr_actors *actors = actor->actors;
    if (actor->farewell)
        return XRAY_OK;
    if (actor->lost) {
        (void)xr_fail(err, XRAY_E_PEER, "%s", actor->why.text);
        return xr_actor_blame(actor, "stop", XRAY_E_PEER, err);
    }
    actor->stopping = 1;
    xray_status status =
        xr_future_new(actor, "stop", &no_values, err, &actor->farewell);
    if (status)
        return status;
    const xr_message header = {
        XR_MESSAGE_STOP, 0, actor->farewell->call, "", NULL, 0
    };
    status = xr_message_encode(&header, "", NULL, err, &actors->scratch);
    return status ? status : xr_future_send(actor->farewell, err);
}

void xr_actor_leave(xr_actor *actor)
{
    xr_err ignored = { "" };
    if (actor)
        (void)ask_to_leave(actor, &ignored);
}

static xray_status stop_actor(xr_actor *actor, const xr_deadline *deadline,
                              xr_err *err)
{
    xr_actors *actors = actor->actors;
    xray_status status = ask_to_leave(actor, err);
    if (!status)
        status =
            xr_future_wait(actor->farewell, xr_deadline_rest(deadline), err);
    while (!status && actor->lost < 2) {
        int64_t rest = xr_deadline_rest(deadline);
        status = rest ? xr_actors_pump(actors, rest, err) : XRAY_E_PEER;
        if (!rest) {
            (void)xr_fail(err, status, "it did not end in time (killed)");
            (void)xr_actor_blame(actor, "stop", status, err);
        }
        if (status == XRAY_AGAIN)
            status = XRAY_OK;
    }
    if (!status && !actor->clean) {
        status = xr_fail(err, XRAY_E_PEER, "%s", actor->why.text);
        (void)xr_actor_blame(actor, "stop", status, err);
    }
    return status;
}

xray_status xr_actor_stop(xr_actor *actor, int64_t timeout_ms, xr_err *err)
{
    if (!actor)
        return XRAY_OK;
    const xr_deadline deadline = xr_deadline_in(timeout_ms);
    xray_status status = stop_actor(actor, &deadline, err);
    xr_actor_kill(actor);
    return status;
}
