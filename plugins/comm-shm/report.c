/* SPDX-License-Identifier: Apache-2.0
 *
 * Records what this rank does, reads what the other ranks do, and puts that
 * into the text of errors.
 */
#include <unistd.h>

#include "core/base/collective.h"
#include "core/base/process.h"
#include "plugins/comm-shm/shm.h"

#define TEXT_CAP 900u

/* ---- processes ---------------------------------------------------------- */

int shm_is_dead(const shm_comm *comm, uint32_t rank)
{
    const shm_peer *peer = &comm->peers[rank];
    return xr_process_is_dead(peer->pid, peer->pidfd);
}

/* ---- other calls -------------------------------------------------------- */

/* Returns this rank's channel with a number, or NULL. */
static const shm_channel *find_channel(const shm_comm *comm, uint32_t number)
{
    for (const xray_comm_group *g = comm->groups; g; g = g->next) {
        if (g->all->number == number)
            return g->all;
        for (uint32_t i = 0; i < 2 * g->count; i++)
            if (g->messages[i] && g->messages[i]->number == number)
                return g->messages[i];
    }
    return NULL;
}

/* True if a rank whose call has the tag waits there for this one. In the other
 * half of its own exchange this rank will be by itself, however many pieces the
 * other one is ahead. */
static int is_awaited(const shm_comm *comm, uint64_t tag)
{
    uint32_t number = (uint32_t)(tag >> 48) - 1;
    const shm_channel *there = find_channel(comm, number);
    if (there)
        return !there->arrived && (tag & 0xffffffffffffu) > there->calls;
    /* A message channel that this rank has never used. */
    uint64_t pair = shm_channel_pair(&comm->control, number);
    return pair && ((pair >> 16 & 0xffff) == comm->rank ||
                    (pair & 0xffff) == comm->rank);
}

/* A rank that gave up in another call while this one waited was seen too late;
 * one that had given up before may well be on its way here. */
int shm_is_elsewhere(const shm_wait *wait, uint32_t rank, uint32_t *out_channel)
{
    const shm_channel *channel = wait->channel;
    const shm_comm *comm = channel->comm;
    shm_rank_state *area = shm_rank_state_of(&comm->control, rank);
    const uint64_t calls = atomic_load(&area->calls);
    const uint64_t now[2] = { atomic_load(&area->now[0]),
                              atomic_load(&area->now[1]) };
    if (atomic_load(&area->state) == SHM_GAVE_UP &&
        atomic_load(&area->ended) < wait->start)
        return 0;
    if (atomic_load(&area->calls) != calls)
        return 0; /* what was read is of two calls */
    for (uint32_t i = 0; i < 2; i++)
        if (now[i] && (now[i] >> 48) - 1 == channel->number)
            return 0;
    for (uint32_t i = 0; i < 2; i++) {
        *out_channel = (uint32_t)(now[i] >> 48) - 1;
        if (now[i] && is_awaited(comm, now[i]))
            return 1;
    }
    return 0;
}

/* ---- traces ------------------------------------------------------------- */

void shm_trace_call(const shm_channel *channel, uint32_t half)
{
    const shm_comm *comm = channel->comm;
    atomic_store(&shm_rank_state_of(&comm->control, comm->rank)->now[half],
                 shm_call_tag(channel->number, channel->calls + 1));
}

void shm_trace_begin(const shm_channel *channel, const shm_channel *second,
                     const shm_call *call)
{
    const shm_comm *comm = channel->comm;
    shm_rank_state *area = shm_rank_state_of(&comm->control, comm->rank);
    uint64_t calls = atomic_load(&area->calls) + 1;
    uint64_t since = shm_clock();
    atomic_store(&area->now[0], 0); /* of a call that it gave up in */
    atomic_store(&area->now[1], 0);
    atomic_store(&area->calls, calls);
    atomic_store(&area->bytes, call->call_bytes);
    atomic_store(&area->from_bytes, call->from_bytes);
    atomic_store(&area->since, since);
    atomic_store(&area->group, channel->group);
    atomic_store(&area->call, call->call);
    atomic_store(&area->dtype, call->dtype);
    atomic_store(&area->root, call->other);
    atomic_store(&area->from, call->from);
    atomic_store(&area->state, SHM_WAITS);
    if (second)
        shm_trace_call(second, 1);
    shm_trace_call(channel, 0);
    xray_comm_trace *trace = comm->trace;
    if (!trace)
        return;
    xr_trace_put64(&trace->calls, calls);
    xr_trace_put64(&trace->bytes, call->call_bytes + call->from_bytes);
    xr_trace_put64(&trace->group, channel->group);
    xr_trace_put32(&trace->call, call->call);
    xr_trace_put64(&trace->since, since);
    xr_trace_put64(&trace->pid, (uint64_t)getpid());
    xr_trace_put32(&trace->state, SHM_WAITS);
}

void shm_trace_state(const shm_comm *comm, uint32_t state)
{
    atomic_store(&shm_rank_state_of(&comm->control, comm->rank)->state, state);
    if (comm->trace)
        xr_trace_put32(&comm->trace->state, state);
}

void shm_trace_end(const shm_comm *comm, uint32_t state)
{
    shm_rank_state *area = shm_rank_state_of(&comm->control, comm->rank);
    if (state == SHM_GAVE_UP && atomic_load(&area->state) != SHM_GAVE_UP)
        atomic_store(&area->ended, shm_clock());
    atomic_store(&area->state, state);
    for (uint32_t i = 0; state == SHM_OUTSIDE && i < 2; i++)
        atomic_store(&area->now[i], 0);
    if (comm->trace)
        xr_trace_put32(&comm->trace->state, state);
}

/* ---- sentences ---------------------------------------------------------- */

static void say_current_call(xr_sentence *s, shm_rank_state *area)
{
    const xr_collective call = { .call = atomic_load(&area->call),
                                 .dtype = atomic_load(&area->dtype),
                                 .bytes = atomic_load(&area->bytes),
                                 .other = atomic_load(&area->root),
                                 .from = atomic_load(&area->from),
                                 .from_bytes = atomic_load(&area->from_bytes) };
    xr_collective_print(s, &call);
    xr_sentence_printf(s, " in group %u", atomic_load(&area->group));
}

/* The state of a process that cannot report it itself, "dead" or "stopped";
 * otherwise NULL. */
static const char *find_process_fate(const shm_comm *comm, uint32_t rank)
{
    if (comm->peers[rank].pid == (uint32_t)getpid())
        return NULL;
    if (shm_is_dead(comm, rank))
        return "dead";
    char state = xr_process_state(comm->peers[rank].pid);
    return state == 'T' || state == 't' ? "stopped" : NULL;
}

/* Describes the call that a member made in the current round, if the member has
 * left that round since. */
static int say_abandoned_call(xr_sentence *s, const shm_channel *channel,
                              uint32_t index)
{
    const shm_control *control = &channel->comm->control;
    uint32_t rank = channel->ranks[index];
    uint64_t number = channel->calls + 1;
    shm_round *round =
        shm_round_of(control, channel->number, (uint32_t)(number & 1));
    shm_member *member = shm_member_of(round, index);
    shm_rank_state *area = shm_rank_state_of(control, rank);
    uint64_t tag = shm_call_tag(channel->number, number);
    if (atomic_load(&member->arrived) != number ||
        atomic_load(&area->now[0]) == tag || atomic_load(&area->now[1]) == tag)
        return 0;
    const shm_call_desc *d = &member->desc;
    uint32_t root = d->call == XRAY_COMM_BROADCAST
                        ? channel->ranks[d->root]
                        : channel->ranks[channel->count - 1 - index];
    xr_sentence_printf(s, "rank %u gave up in ", rank);
    const xr_collective call = { .call = d->call,
                                 .dtype = d->dtype,
                                 .bytes = d->call_bytes,
                                 .other = root };
    if (d->half)
        xr_sentence_printf(s, "the exchange's ");
    xr_collective_print(s, &call);
    xr_sentence_printf(s, " in group %u", channel->group);
    return 1;
}

static void say_rank(xr_sentence *s, const shm_channel *channel, uint32_t index)
{
    const shm_comm *comm = channel->comm;
    uint32_t rank = channel->ranks[index];
    shm_rank_state *area = shm_rank_state_of(&comm->control, rank);
    uint32_t state = atomic_load(&area->state);
    const char *is = find_process_fate(comm, rank);
    if (atomic_load(&area->left)) {
        xr_sentence_printf(s, "rank %u has ended its part", rank);
    } else if (is) {
        xr_sentence_printf(s, "rank %u (pid %u) is %s", rank,
                           comm->peers[rank].pid, is);
        if (atomic_load(&area->calls)) {
            xr_sentence_printf(s, "%s", state ? ", in " : ", after ");
            say_current_call(s, area);
        }
    } else if (say_abandoned_call(s, channel, index)) {
        return;
    } else if (state == SHM_OUTSIDE) {
        xr_sentence_printf(s, "rank %u is outside any collective", rank);
        if (atomic_load(&area->calls)) {
            xr_sentence_printf(s, ", after ");
            say_current_call(s, area);
        }
    } else {
        xr_sentence_printf(s, "rank %u %s ", rank,
                           state == SHM_WAITS   ? "waits in"
                           : state == SHM_WORKS ? "works in"
                                                : "gave up in");
        say_current_call(s, area);
        if (state != SHM_GAVE_UP)
            xr_sentence_printf(
                s, " for %.1f s",
                1e-9 * (double)(shm_clock() - atomic_load(&area->since)));
    }
}

static void say_cause(xr_sentence *s, const shm_comm *comm, uint32_t broken)
{
    uint32_t rank = broken / 256;
    switch (broken % 256) {
    case SHM_LATE:
        xr_sentence_printf(s, "not all ranks arrived within %.1f s",
                           1e-9 * (double)comm->timeout);
        break;
    case SHM_DEAD:
        xr_sentence_printf(s, "a rank is dead");
        break;
    case SHM_DIFFERENT:
        xr_sentence_printf(s, "the ranks are in different calls");
        break;
    case SHM_ABORTED:
        xr_sentence_printf(s, "rank %u was told to stop", rank);
        break;
    case SHM_CANCELED:
        xr_sentence_printf(s, "the run is stopped");
        break;
    case SHM_LEFT:
        xr_sentence_printf(s, "a rank has ended its part");
        break;
    default:
        xr_sentence_printf(s, "rank %u failed in the call", rank);
        break;
    }
}

xray_status shm_report_ranks(const shm_channel *channel, const shm_call *call,
                             uint32_t broken)
{
    const shm_comm *comm = channel->comm;
    char text[TEXT_CAP];
    char where_text[160];
    xr_sentence s = { text, sizeof(text), 0 };
    xr_sentence where = { where_text, sizeof(where_text), 0 };
    const shm_call *whole = call->whole ? call->whole : call;
    const xr_collective made = { .call = whole->call,
                                 .dtype = whole->dtype,
                                 .bytes = whole->call_bytes,
                                 .other = whole->other,
                                 .from = whole->from,
                                 .from_bytes = whole->from_bytes };
    say_cause(&s, comm, broken);
    for (uint32_t i = 0; i < channel->count && s.used < TEXT_CAP - 160; i++) {
        xr_sentence_printf(&s, "%s", i ? "; " : ": ");
        say_rank(&s, channel, i);
    }
    xr_collective_print(&where, &made);
    xr_sentence_printf(&where, " in group %u", channel->group);
    return xr_host_fail(comm->host,
                        broken % 256 == SHM_CANCELED ? XRAY_E_CANCELED
                                                     : XRAY_E_PEER,
                        where_text, "%s", text);
}
