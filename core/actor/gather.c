/* SPDX-License-Identifier: Apache-2.0
 *
 * The caller's side of a gather: it takes the bytes of each actor of a kind and
 * sends all of them to each, or the reason why some did not arrive.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/actor/caller.h"
#include "core/actor/clock.h"

static int is_member(const xr_actor *actor, const xr_actor *of)
{
    return actor->class_ == of->class_ && !actor->stopping;
}

static uint32_t count_arrived(const xr_actor *of)
{
    uint32_t count = 0;
    for (const xr_actor *a = of->actors->first; a; a = a->next)
        count += is_member(a, of) && a->gathers;
    return count;
}

/* Sends the message in `scratch` to every member that waits. That one is gone,
 * the runtime reports; where there is no memory for the message, the member
 * would wait for it until its time is over. */
static void send_to_waiting(xr_actor *of)
{
    xr_actors *actors = of->actors;
    for (xr_actor *a = actors->first; a; a = a->next) {
        if (!is_member(a, of) || !a->gathers)
            continue;
        a->gathers = 0;
        actors->gathering--;
        xr_err why = { "" };
        xray_status status =
            actors->ops->send(actors->runtime, a->peer, actors->scratch.data,
                              actors->scratch.size, NULL, 0);
        if (status != XRAY_OK)
            (void)xr_relay_error(&actors->relay, status, "send", &why);
        if (status != XRAY_OK && status != XRAY_E_PEER)
            xr_actor_lose(a, why.text, 0);
    }
}

static void fail_gather(xr_actor *of, xray_status status, const char *text)
{
    const xr_message header = { XR_MESSAGE_NOT_GATHERED, 0, 0, "", NULL, 0 };
    const xr_value values[2] = { { .i = status }, { .s = text } };
    xr_err ignored = { "" };
    if (xr_message_encode(&header, XR_ERROR_LETTERS, values, &ignored,
                          &of->actors->scratch) == XRAY_OK)
        send_to_waiting(of);
}

/* The first member whose bytes are not as many as those of `of`, or NULL. */
static const xr_actor *find_other_size(const xr_actor *of)
{
    for (const xr_actor *a = of->actors->first; a; a = a->next)
        if (is_member(a, of) && a->given.size != of->given.size)
            return a;
    return NULL;
}

static void complete_gather(xr_actor *of)
{
    const xr_message header = { XR_MESSAGE_GATHERED, 0, 0, "", NULL, 0 };
    const size_t bytes = of->given.size;
    xr_err err = { "" };
    const xr_actor *other = find_other_size(of);
    if (other) {
        (void)xr_fail(&err, XRAY_E_PEER,
                      "gather: rank %u has %zu bytes, but rank %u has %zu",
                      other->index, other->given.size, of->index, bytes);
        fail_gather(of, XRAY_E_PEER, err.text);
        return;
    }
    char *to = xr_calloc(of->count, bytes);
    for (const xr_actor *a = of->actors->first; to && a; a = a->next)
        if (is_member(a, of) && bytes)
            memcpy(to + a->index * bytes, a->given.data, bytes);
    const xr_value value = { .b = { to, bytes * of->count } };
    if (to && xr_message_encode(&header, "b", &value, &err,
                                &of->actors->scratch) == XRAY_OK)
        send_to_waiting(of);
    else
        fail_gather(of, XRAY_E_NOMEM, "gather: out of memory");
    free(to);
}

xray_status xr_gather_take(xr_actor *actor, const xr_message *message,
                           xr_err *err)
{
    xr_value values[2];
    xray_status status = xr_message_values(message, "Ub", err, values);
    if (status)
        return status;
    if (actor->gathers || actor->index >= actor->count)
        return xr_fail(err, XRAY_E_PEER, "its gather is out of turn");
    xr_str_clear(&actor->given);
    actor->given.failed = 0;
    xr_str_append(&actor->given, values[1].b.data, (size_t)values[1].b.size);
    actor->gathers = 1;
    actor->actors->gathering++;
    actor->gather_ms = values[0].U;
    actor->gather_ns = xr_clock_ns();
    if (actor->given.failed)
        fail_gather(actor, XRAY_E_NOMEM, "gather: out of memory");
    else if (count_arrived(actor) == actor->count)
        complete_gather(actor);
    return XRAY_OK;
}

/* Writes "1, 3": the ranks that are not there. */
static void list_missing_ranks(const xr_actor *of, xr_str *out)
{
    for (uint32_t r = 0; r < of->count; r++) {
        const xr_actor *a = of->actors->first;
        while (a && !(is_member(a, of) && a->gathers && a->index == r))
            a = a->next;
        if (!a)
            xr_str_printf(out, "%s%u", out->size ? ", " : "", r);
    }
}

static void fail_late_gather(xr_actor *of)
{
    xr_err err = { "" };
    xr_str ranks = { 0 };
    list_missing_ranks(of, &ranks);
    (void)xr_fail(&err, XRAY_E_PEER,
                  "gather of %zu bytes among %u ranks: rank %s did not arrive "
                  "within %.1f s",
                  of->given.size, of->count, xr_str_text(&ranks),
                  (double)of->gather_ms / 1000.0);
    xr_str_free(&ranks);
    fail_gather(of, XRAY_E_PEER, err.text);
}

static const xr_actor *find_lost_member(const xr_actor *of)
{
    const xr_actor *a = of->actors->first;
    while (a && !(is_member(a, of) && a->lost))
        a = a->next;
    return a;
}

static void check_gather_of(xr_actor *of, uint64_t now)
{
    xr_err err = { "" };
    const xr_actor *lost = find_lost_member(of);
    if (lost) {
        (void)xr_fail(&err, XRAY_E_PEER,
                      "gather of %zu bytes among %u ranks: rank %u is gone",
                      of->given.size, of->count, lost->index);
        fail_gather(of, XRAY_E_PEER, err.text);
    } else if (of->gather_ms &&
               now - of->gather_ns >= of->gather_ms * 1000000u) {
        fail_late_gather(of);
    }
}

void xr_gathers_check(xr_actors *actors)
{
    const uint64_t now = actors->gathering ? xr_clock_ns() : 0;
    for (xr_actor *a = actors->first; actors->gathering && a; a = a->next)
        if (a->gathers)
            check_gather_of(a, now);
}
