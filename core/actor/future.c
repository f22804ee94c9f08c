/* SPDX-License-Identifier: Apache-2.0
 *
 * Futures: the answers to calls, and waiting for them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/actor/caller.h"
#include "core/actor/clock.h"
#include "core/plugin/cancel.h"

/* The longest that a wait does not notice that the run is canceled. */
#define LOOK_MS 20

xray_status xr_future_new(xr_actor *actor, const char *method,
                          const xr_signature *signature, xr_err *err,
                          xr_future **out)
{
    xr_actors *actors = actor->actors;
    xr_future *future = actors->spare;
    if (future)
        actors->spare = future->next;
    else
        future = calloc(1, sizeof(*future));
    if (!future)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for a call");
    xr_str reply = future->reply; /* keeps its memory */
    memset(future, 0, sizeof(*future));
    future->reply = reply;
    future->actor = actor;
    future->method = method;
    future->signature = signature;
    future->call = ++actors->calls;
    future->before = actor->last;
    if (actor->last)
        actor->last->next = future;
    else
        actor->first = future;
    actor->last = future;
    if (!actor->oldest)
        actor->oldest = future;
    *out = future;
    return XRAY_OK;
}

static void release_held_regions(xr_future *future)
{
    for (uint32_t i = 0; i < future->held_count; i++)
        xr_region_put(future->actor->actors, future->held[i]);
    future->held_count = 0;
}

static void release_results(xr_future *future)
{
    for (uint32_t i = 0; i < XR_VALUES; i++) {
        xr_region_put(future->actor->actors, future->regions[i]);
        future->regions[i] = NULL;
    }
}

static void finish_future(xr_future *future, xray_status status)
{
    future->state = XR_FUTURE_DONE;
    future->status = status;
    if (future->actor->oldest == future)
        future->actor->oldest = future->next;
    release_held_regions(future);
    if (future->dropped)
        xr_future_free(future);
}

void xr_future_free(xr_future *future)
{
    xr_actor *actor = future->actor;
    release_held_regions(future);
    release_results(future);
    if (actor->oldest == future)
        actor->oldest = future->next;
    if (future->before)
        future->before->next = future->next;
    else
        actor->first = future->next;
    if (future->next)
        future->next->before = future->before;
    else
        actor->last = future->before;
    future->next = actor->actors->spare;
    actor->actors->spare = future;
}

xray_status xr_future_send(xr_future *future, xr_err *err)
{
    xr_actor *actor = future->actor;
    xr_actors *actors = actor->actors;
    xray_status status = actors->ops->send(
        actors->runtime, actor->peer, actors->scratch.data,
        actors->scratch.size, future->held, future->held_count);
    if (!status)
        return XRAY_OK;
    (void)xr_relay_error(&actors->relay, status, "send", err);
    if (status != XRAY_E_PEER)
        return xr_actor_blame(actor, future->method, status, err);
    /* The runtime soon reports how the actor ended: wait for that. */
    xr_deadline deadline = xr_deadline_in(2000);
    while (!actor->lost && xr_deadline_rest(&deadline)) {
        xr_err ignored = { "" };
        if (xr_actors_pump(actors, xr_deadline_rest(&deadline), &ignored) < 0)
            break;
    }
    if (actor->lost)
        (void)xr_fail(err, status, "%s", actor->why.text);
    return xr_actor_blame(actor, future->method, status, err);
}

void xr_future_lose(xr_future *future)
{
    (void)xr_fail(&future->why, XRAY_E_PEER, "%s", future->actor->why.text);
    finish_future(future, XRAY_E_PEER);
}

/* Finds the regions that the answer names and takes a reference to each. */
static xray_status find_regions(xr_future *future, xr_err *err)
{
    xr_actors *actors = future->actor->actors;
    const char *letters = future->signature->out;
    for (uint32_t i = 0; letters[i]; i++) {
        const xr_region_name *name = &future->values[i + 1].m;
        if (letters[i] != 'm' || !name->present)
            continue;
        xray_region *region = actors->ops->region_find(
            actors->runtime, name->senders ? future->actor->peer : NULL,
            name->id);
        xray_status status =
            region ? xr_pool_ref(&actors->pool, region, err)
                   : xr_fail(err, XRAY_E_PEER,
                             "its answer names region %llu, which was not sent",
                             (unsigned long long)name->id);
        if (status)
            return status;
        future->regions[i] = region;
    }
    return XRAY_OK;
}

static xray_status read_reply(xr_future *future,
                              const xray_runtime_event *event, xr_err *err)
{
    char letters[XR_VALUES + 1];
    xr_message message;
    (void)snprintf(letters, sizeof(letters), "i%s", future->signature->out);
    xr_str_clear(&future->reply);
    future->reply.failed = 0;
    xr_str_append(&future->reply, event->data, (size_t)event->size);
    if (future->reply.failed)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for its answer");
    xray_status status = xr_message_header(future->reply.data,
                                           future->reply.size, err, &message);
    if (!status)
        status = xr_message_values(&message, letters, err, future->values);
    if (status)
        return xr_fail_in(err, XRAY_E_PEER, "its answer");
    return find_regions(future, err);
}

static xray_status read_error_reply(const xr_message *message, xr_err *err)
{
    xr_value values[2];
    xray_status status =
        xr_message_values(message, XR_ERROR_LETTERS, err, values);
    if (status || values[0].i >= 0)
        return xr_fail(err, XRAY_E_PEER, "its error cannot be read");
    return xr_fail(err, values[0].i, "%s", values[1].s);
}

xray_status xr_future_answer(xr_actor *actor, const xr_message *message,
                             const xray_runtime_event *event, xr_err *err)
{
    xr_future *future = actor->oldest;
    if (!future || future->call != message->call)
        return xr_fail(err, XRAY_E_PEER,
                       "it answered call %llu, which is not the call in turn",
                       (unsigned long long)message->call);
    xray_status status = message->kind == XR_MESSAGE_REPLY
                             ? read_reply(future, event, &future->why)
                             : read_error_reply(message, &future->why);
    finish_future(future, status ? status : future->values[0].i);
    return XRAY_OK;
}

/* ---- Waiting ---- */

/* Handles one event; in the first pass even if no time is left. XRAY_OK: look
 * again; XRAY_AGAIN: the deadline is over; an error ends the wait. The actors
 * of a canceled run end one by one, so that the loss of one ends no wait for
 * another. */
static xray_status pump_until_deadline(xr_actors *actors,
                                       const xr_deadline *deadline, int pass,
                                       xr_err *err)
{
    if (actors->fail_together && xr_actors_lost(actors) && !xr_canceled())
        return xr_actors_check(actors, err);
    int64_t rest = xr_deadline_rest(deadline);
    if (pass && !rest)
        return XRAY_AGAIN;
    xray_status status = xr_actors_cancel(actors, err);
    if (status != XRAY_OK)
        return status;
    if (rest < 0 || rest > LOOK_MS)
        rest = LOOK_MS;
    status = xr_actors_pump(actors, rest, err);
    return status < 0 ? status : XRAY_OK;
}

/* Handles events until the future is done. XRAY_AGAIN: the deadline is over; an
 * error ends the wait. */
static xray_status wait_until_done(const xr_future *future, int64_t timeout_ms,
                                   xr_err *err)
{
    xr_actors *actors = future->actor->actors;
    const xr_deadline deadline = xr_deadline_in(timeout_ms);
    for (int pass = 0; future->state != XR_FUTURE_DONE; pass++) {
        xray_status status = pump_until_deadline(actors, &deadline, pass, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

static xray_status write_string(xr_str *out, const void *data, uint64_t size)
{
    xr_str_clear(out);
    xr_str_append(out, data, (size_t)size);
    if (out->failed)
        return XRAY_E_NOMEM;
    return XRAY_OK;
}

static xray_status write_output(xr_future *future, uint32_t i, void *at)
{
    const xr_value *value = &future->values[i + 1];
    switch (future->signature->out[i]) {
    case 'u':
        *(uint32_t *)at = value->u;
        return XRAY_OK;
    case 'i':
        *(int32_t *)at = value->i;
        return XRAY_OK;
    case 'U':
        *(uint64_t *)at = value->U;
        return XRAY_OK;
    case 'I':
        *(int64_t *)at = value->I;
        return XRAY_OK;
    case 'd':
        *(double *)at = value->d;
        return XRAY_OK;
    case 's':
        return write_string(at, value->s, strlen(value->s));
    case 'b':
        return write_string(at, value->b.data, value->b.size);
    default:
        *(xray_region **)at = future->regions[i];
        future->regions[i] = NULL; /* the reference is the caller's */
        return XRAY_OK;
    }
}

static xray_status write_outputs(xr_future *future, xr_err *err)
{
    uint32_t count = future->signature->out_count;
    /* Regions come last, so that nothing fails after one was handed over. */
    for (uint32_t regions = 0; regions < 2; regions++)
        for (uint32_t i = 0; i < count; i++) {
            if (!future->outs[i] ||
                (future->signature->out[i] == 'm') != regions)
                continue;
            if (write_output(future, i, future->outs[i]))
                return xr_fail(err, XRAY_E_NOMEM,
                               "out of memory for its answer");
        }
    return XRAY_OK;
}

xray_status xr_future_wait(xr_future *future, int64_t timeout_ms, xr_err *err)
{
    xr_actor *actor = future->actor;
    char phase[96];
    xray_status status = wait_until_done(future, timeout_ms, err);
    if (status == XRAY_AGAIN) {
        xr_actor_phase_note(actor, phase, sizeof(phase));
        (void)xr_fail(err, XRAY_E_PEER, "no answer within %.3g s%s",
                      (double)timeout_ms / 1000.0, phase);
        return xr_actor_blame(actor, future->method, XRAY_E_PEER, err);
    }
    if (status)
        return status;
    status = future->status;
    if (status >= 0) {
        xray_status bad = write_outputs(future, err);
        if (bad)
            status = xr_actor_blame(actor, future->method, bad, err);
    } else {
        (void)xr_fail(err, status, "%s", future->why.text);
        (void)xr_actor_blame(actor, future->method, status, err);
    }
    xr_future_free(future);
    return status;
}

static size_t find_first_done(xr_future *const *futures, size_t count,
                              xr_actors **out_actors)
{
    size_t i;
    for (i = 0; i < count; i++) {
        if (!futures[i])
            continue;
        *out_actors = futures[i]->actor->actors;
        if (futures[i]->state == XR_FUTURE_DONE)
            break;
    }
    return i;
}

xray_status xr_future_wait_any(xr_future *const *futures, size_t count,
                               int64_t timeout_ms, xr_err *err,
                               size_t *out_index)
{
    const xr_deadline deadline = xr_deadline_in(timeout_ms);
    for (int pass = 0;; pass++) {
        xr_actors *actors = NULL;
        size_t i = find_first_done(futures, count, &actors);
        if (!actors)
            return xr_fail(err, XRAY_E_ARG, "there is no future to wait for");
        if (i < count) {
            *out_index = i;
            return XRAY_OK;
        }
        xray_status status = pump_until_deadline(actors, &deadline, pass, err);
        if (status != XRAY_OK)
            return status;
    }
}

void xr_future_drop(xr_future *future)
{
    if (!future)
        return;
    if (future->state == XR_FUTURE_DONE)
        xr_future_free(future);
    else
        future->dropped = 1;
}
