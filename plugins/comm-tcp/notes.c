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
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"

#define ANSWER 1000000000u /* ns that ranks have to say what they do */

uint64_t tcp_clock(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void tcp_wake(const tcp_comm *comm)
{
    uint64_t one = 1;
    (void)!write(comm->wake, &one, sizeof(one));
}

/* ---- this rank's state --------------------------------------------------- */

void tcp_trace_begin(const tcp_channel *channel, const tcp_call *call)
{
    tcp_comm *comm = channel->comm;
    uint64_t now = tcp_clock();
    (void)pthread_mutex_lock(&comm->lock);
    uint64_t calls = comm->mine.calls + (call->call != TCP_FORM);
    comm->mine = (tcp_activity){ .calls = calls,
                                 .bytes = call->call_bytes,
                                 .from_bytes = call->from_bytes,
                                 .age = now,
                                 .group = channel->group,
                                 .call = call->call,
                                 .dtype = call->dtype,
                                 .other = call->other,
                                 .from = call->from,
                                 .state = TCP_WAITS };
    (void)pthread_mutex_unlock(&comm->lock);
    xray_comm_trace *trace = comm->trace;
    if (!trace || call->call == TCP_FORM)
        return;
    xr_trace_put64(&trace->calls, calls);
    xr_trace_put64(&trace->bytes, call->call_bytes + call->from_bytes);
    xr_trace_put64(&trace->group, channel->group);
    xr_trace_put32(&trace->call, call->call);
    xr_trace_put64(&trace->since, now);
    xr_trace_put64(&trace->pid, (uint64_t)getpid());
    xr_trace_put32(&trace->state, TCP_WAITS);
}

void tcp_trace_state(tcp_comm *comm, uint32_t state)
{
    (void)pthread_mutex_lock(&comm->lock);
    comm->mine.state = state;
    uint32_t call = comm->mine.call;
    (void)pthread_mutex_unlock(&comm->lock);
    if (comm->trace && call != TCP_FORM)
        xr_trace_put32(&comm->trace->state, state);
}

/* ---- sending ------------------------------------------------------------- */

void tcp_send_note(tcp_comm *comm, uint32_t rank, const tcp_note *note)
{
    const tcp_peer *peer = &comm->peers[rank];
    if (rank != comm->rank && peer->notes >= 0 && !atomic_load(&peer->fate))
        (void)!send(peer->notes, note, sizeof(*note),
                    MSG_NOSIGNAL | MSG_DONTWAIT);
}

void tcp_send_state(tcp_comm *comm, uint32_t rank, uint32_t kind)
{
    tcp_note note = { .magic = TCP_NOTE_MAGIC,
                      .kind = kind,
                      .activity = comm->mine };
    note.activity.age = tcp_clock() - comm->mine.age;
    tcp_send_note(comm, rank, &note);
}

/* ---- broken channels ----------------------------------------------------- */

void tcp_note_broken(tcp_comm *comm, const tcp_broken *broken)
{
    for (uint32_t i = 0; i < comm->broken_count; i++)
        if (comm->broken[i].channel == broken->channel)
            return;
    if (comm->broken_count == comm->broken_cap) {
        uint32_t cap = 2 * comm->broken_cap + 16;
        tcp_broken *more = realloc(comm->broken, cap * sizeof(*more));
        if (!more)
            return; /* the ranks find it by their timeouts */
        comm->broken = more;
        comm->broken_cap = cap;
    }
    comm->broken[comm->broken_count++] = *broken;
    atomic_store(&comm->any_broken, 1);
}

int tcp_is_broken(tcp_comm *comm, uint64_t channel, uint64_t number,
                  tcp_broken *out)
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

static void take_note(tcp_comm *comm, uint32_t rank, const tcp_note *note)
{
    tcp_peer *peer = &comm->peers[rank];
    uint32_t none = 0;
    const tcp_broken broken = { note->channel, note->number, note->cause,
                                note->origin };
    switch (note->kind) {
    case TCP_ASK:
        tcp_send_state(comm, rank, TCP_STATE);
        return;
    case TCP_STATE:
        peer->answered++;
        break;
    case TCP_BREAK:
        tcp_note_broken(comm, &broken);
        break;
    case TCP_END:
        (void)atomic_compare_exchange_strong(&peer->fate, &none, TCP_LEFT);
        break;
    default:
        (void)atomic_compare_exchange_strong(&peer->fate, &none, TCP_ABORTED);
        break;
    }
    if (note->kind == TCP_STATE || note->activity.calls) {
        peer->told = note->activity;
        peer->told.age = tcp_clock() - note->activity.age;
    }
    if (note->kind == TCP_BREAK && note->activity.calls) {
        peer->broke = peer->told;
        peer->broke_channel = note->channel;
    }
    (void)pthread_cond_broadcast(&comm->heard);
    tcp_wake(comm);
}

/* The line has ended: no further note comes. */
static void end_notes(tcp_comm *comm, tcp_peer *peer, int reason)
{
    uint32_t none = 0;
    int silent = reason == ETIMEDOUT || reason == EHOSTUNREACH ||
                 reason == ENETUNREACH || reason == EHOSTDOWN;
    uint32_t fate = reason == EBADMSG ? TCP_GARBLED
                    : silent          ? TCP_SILENT
                                      : TCP_DEAD;
    (void)atomic_compare_exchange_strong(&peer->fate, &none, fate);
    (void)close(peer->notes);
    peer->notes = -1;
    (void)pthread_cond_broadcast(&comm->heard);
    tcp_wake(comm);
}

void tcp_read_notes(tcp_comm *comm, uint32_t rank)
{
    tcp_peer *peer = &comm->peers[rank];
    tcp_note note;
    (void)pthread_mutex_lock(&comm->lock);
    while (peer->notes >= 0) {
        ssize_t got = recv(peer->notes, peer->note + peer->note_used,
                           sizeof(note) - peer->note_used, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            end_notes(comm, peer, got ? errno : 0);
            break;
        }
        peer->note_used += (uint32_t)got;
        if (peer->note_used < sizeof(note))
            continue;
        peer->note_used = 0;
        memcpy(&note, peer->note, sizeof(note));
        if (tcp_note_is_valid(&note, comm->size))
            take_note(comm, rank, &note);
        else
            end_notes(comm, peer, EBADMSG);
    }
    (void)pthread_mutex_unlock(&comm->lock);
}

/* ---- questions ------------------------------------------------------------
 */

static int awaits_answer(const tcp_comm *comm, const uint32_t *ranks,
                         uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const tcp_peer *peer = &comm->peers[ranks[i]];
        if (ranks[i] != comm->rank && peer->notes >= 0 &&
            !atomic_load(&peer->fate) && peer->answered < peer->asked)
            return 1;
    }
    return 0;
}

void tcp_ask_ranks(tcp_comm *comm, const uint32_t *ranks, uint32_t count)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ANSWER / 1000000000u;
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < count; i++) {
        tcp_peer *peer = &comm->peers[ranks[i]];
        if (ranks[i] == comm->rank)
            continue;
        peer->asked = peer->answered + 1;
        tcp_send_state(comm, ranks[i], TCP_ASK);
    }
    while (awaits_answer(comm, ranks, count))
        if (pthread_cond_timedwait(&comm->heard, &comm->lock, &until) != 0)
            break;
    (void)pthread_mutex_unlock(&comm->lock);
}
