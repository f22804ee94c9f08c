/* SPDX-License-Identifier: Apache-2.0
 *
 * Notes between ranks: what each does at the moment, which channels are broken,
 * and who has ended. They are small and rare, and a peer's thread reads them at
 * once, so that sending one never waits.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugins/mesh/mesh.h"

#define ANSWER 1000000000u /* ns that ranks have to say what they do */

uint64_t mesh_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void mesh_wake(const mesh_comm *comm)
{
    uint64_t one = 1;
    (void)!write(comm->wake, &one, sizeof(one));
}

/* ---- this rank's state --------------------------------------------------- */

void mesh_trace_begin(const mesh_channel *channel, const mesh_call *call)
{
    mesh_comm *comm = channel->comm;
    uint64_t now = mesh_clock();
    (void)pthread_mutex_lock(&comm->lock);
    uint64_t calls = comm->mine.calls + (call->call != MESH_FORM);
    comm->mine = (mesh_activity){ .calls = calls,
                                  .bytes = call->call_bytes,
                                  .from_bytes = call->from_bytes,
                                  .age = now,
                                  .group = channel->group,
                                  .call = call->call,
                                  .dtype = call->dtype,
                                  .other = call->other,
                                  .from = call->from,
                                  .state = MESH_WAITS };
    (void)pthread_mutex_unlock(&comm->lock);
    xray_comm_trace *trace = comm->trace;
    if (!trace || call->call == MESH_FORM)
        return;
    xr_trace_put64(&trace->calls, calls);
    xr_trace_put64(&trace->bytes, call->call_bytes + call->from_bytes);
    xr_trace_put64(&trace->group, channel->group);
    xr_trace_put32(&trace->call, call->call);
    xr_trace_put64(&trace->since, now);
    xr_trace_put64(&trace->pid, (uint64_t)getpid());
    xr_trace_put32(&trace->state, MESH_WAITS);
}

void mesh_trace_state(mesh_comm *comm, uint32_t state)
{
    (void)pthread_mutex_lock(&comm->lock);
    comm->mine.state = state;
    uint32_t call = comm->mine.call;
    (void)pthread_mutex_unlock(&comm->lock);
    if (comm->trace && call != MESH_FORM)
        xr_trace_put32(&comm->trace->state, state);
}

/* ---- sending ------------------------------------------------------------- */

/* A rank that was told to stop still says what it does. */
static int takes_notes(const mesh_peer *peer)
{
    uint32_t fate = atomic_load(&peer->fate);
    return !peer->mute && (!fate || fate == MESH_ABORTED);
}

void mesh_send_note(mesh_comm *comm, uint32_t rank, const mesh_note *note)
{
    if (rank != comm->rank && takes_notes(&comm->peers[rank]))
        comm->via->send_note(comm, rank, note);
}

void mesh_send_state(mesh_comm *comm, uint32_t rank, uint32_t kind)
{
    mesh_note note = { .magic = MESH_NOTE_MAGIC,
                       .kind = kind,
                       .activity = comm->mine };
    note.activity.age = mesh_clock() - comm->mine.age;
    mesh_send_note(comm, rank, &note);
}

/* ---- broken channels ----------------------------------------------------- */

void mesh_note_broken(mesh_comm *comm, const mesh_broken *broken)
{
    for (uint32_t i = 0; i < comm->broken_count; i++)
        if (comm->broken[i].channel == broken->channel)
            return;
    if (comm->broken_count == comm->broken_cap) {
        uint32_t cap = 2 * comm->broken_cap + 16;
        mesh_broken *more = realloc(comm->broken, cap * sizeof(*more));
        if (!more)
            return; /* the ranks find it by their timeouts */
        comm->broken = more;
        comm->broken_cap = cap;
    }
    comm->broken[comm->broken_count++] = *broken;
    atomic_store(&comm->any_broken, 1);
}

int mesh_is_broken(mesh_comm *comm, uint64_t channel, uint64_t number,
                   mesh_broken *out)
{
    int found = 0;
    if (!atomic_load(&comm->any_broken))
        return 0;
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < comm->broken_count && !found; i++) {
        found = comm->broken[i].channel == channel &&
                comm->broken[i].number <= number;
        if (found && out)
            *out = comm->broken[i];
    }
    (void)pthread_mutex_unlock(&comm->lock);
    return found;
}

/* ---- receiving ------------------------------------------------------------
 */

static void handle_note(mesh_comm *comm, uint32_t rank, const mesh_note *note)
{
    mesh_peer *peer = &comm->peers[rank];
    uint32_t none = 0;
    const mesh_broken broken = { note->channel, note->number, note->cause,
                                 note->origin };
    switch (note->kind) {
    case MESH_ASK:
        mesh_send_state(comm, rank, MESH_STATE);
        return;
    case MESH_STATE:
        peer->answered++;
        break;
    case MESH_BREAK:
        mesh_note_broken(comm, &broken);
        break;
    case MESH_END:
        (void)atomic_compare_exchange_strong(&peer->fate, &none, MESH_LEFT);
        break;
    default:
        (void)atomic_compare_exchange_strong(&peer->fate, &none, MESH_ABORTED);
        break;
    }
    if (note->kind == MESH_STATE || note->activity.calls) {
        peer->told = note->activity;
        peer->told.age = mesh_clock() - note->activity.age;
    }
    if (note->kind == MESH_BREAK && note->activity.calls) {
        peer->broke = peer->told;
        peer->broke_channel = note->channel;
    }
    (void)pthread_cond_broadcast(&comm->heard);
    mesh_wake(comm);
}

int mesh_take_note(mesh_comm *comm, uint32_t rank, const mesh_note *note)
{
    int valid = mesh_note_is_valid(note, comm->size);
    if (valid)
        handle_note(comm, rank, note);
    return valid;
}

void mesh_end_notes(mesh_comm *comm, uint32_t rank, int reason)
{
    mesh_peer *peer = &comm->peers[rank];
    uint32_t none = 0;
    int silent = reason == ETIMEDOUT || reason == EHOSTUNREACH ||
                 reason == ENETUNREACH || reason == EHOSTDOWN;
    uint32_t fate = reason == EBADMSG ? MESH_GARBLED
                    : silent          ? MESH_SILENT
                                      : MESH_DEAD;
    (void)atomic_compare_exchange_strong(&peer->fate, &none, fate);
    peer->mute = 1;
    (void)pthread_cond_broadcast(&comm->heard);
    mesh_wake(comm);
}

/* ---- questions ------------------------------------------------------------
 */

static int awaits_answer(const mesh_comm *comm, const uint32_t *ranks,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const mesh_peer *peer = &comm->peers[ranks[i]];
        if (ranks[i] != comm->rank && takes_notes(peer) &&
            peer->answered < peer->asked)
            return 1;
    }
    return 0;
}

void mesh_ask_ranks(mesh_comm *comm, const uint32_t *ranks, uint32_t count)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ANSWER / 1000000000u;
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < count; i++) {
        mesh_peer *peer = &comm->peers[ranks[i]];
        peer->asked = peer->answered + 1;
        mesh_send_state(comm, ranks[i], MESH_ASK);
    }
    while (awaits_answer(comm, ranks, count))
        if (pthread_cond_timedwait(&comm->heard, &comm->lock, &until) != 0)
            break;
    (void)pthread_mutex_unlock(&comm->lock);
}
