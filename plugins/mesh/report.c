/* SPDX-License-Identifier: Apache-2.0
 *
 * Breaks a channel whose call cannot go on, tells its other ranks, and puts
 * what every rank does into the text of the error.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/process.h"
#include "plugins/mesh/mesh.h"

#define TEXT_CAP 900u
#define WHERE_CAP 160u

/* ---- breaking ----------------------------------------------------------- */

void mesh_break_quietly(mesh_channel *channel, uint32_t cause, uint32_t origin)
{
    mesh_comm *comm = channel->comm;
    const mesh_broken broken = { channel->key, channel->calls + 1, cause,
                                 origin };
    mesh_note note = { .magic = MESH_NOTE_MAGIC,
                       .kind = MESH_BREAK,
                       .channel = channel->key,
                       .number = channel->calls + 1,
                       .cause = cause,
                       .origin = origin };
    (void)pthread_mutex_lock(&comm->lock);
    mesh_note_broken(comm, &broken);
    note.activity = comm->mine;
    note.activity.age = mesh_clock() - comm->mine.age;
    for (uint32_t i = 0; i < channel->count; i++)
        mesh_send_note(comm, channel->ranks[i], &note);
    (void)pthread_mutex_unlock(&comm->lock);
    for (uint32_t i = 0; i < channel->count; i++)
        if (channel->ranks[i] != comm->rank)
            mesh_line_abandon(&comm->peers[channel->ranks[i]]);
}

int mesh_differs(mesh_comm *comm, const mesh_peer *peer,
                 const mesh_frame *frame)
{
    const mesh_broken broken = { frame->channel, frame->number, MESH_DIFFERENT,
                                 comm->rank };
    mesh_note note = { .magic = MESH_NOTE_MAGIC,
                       .kind = MESH_BREAK,
                       .channel = frame->channel,
                       .number = frame->number,
                       .cause = MESH_DIFFERENT,
                       .origin = comm->rank };
    (void)pthread_mutex_lock(&comm->lock);
    mesh_note_broken(comm, &broken);
    mesh_send_note(comm, (uint32_t)(peer - comm->peers), &note);
    (void)pthread_mutex_unlock(&comm->lock);
    return -(int)MESH_DIFFERENT;
}

xray_status mesh_break(mesh_channel *channel, const mesh_call *call,
                       uint32_t cause, uint32_t origin)
{
    mesh_break_quietly(channel, cause, origin);
    xray_status status = mesh_report(channel, call, cause, origin);
    mesh_trace_state(channel->comm, MESH_GAVE_UP);
    return status;
}

/* ---- sentences ---------------------------------------------------------- */

void mesh_say_call(xr_sentence *s, const mesh_activity *a)
{
    const xr_collective call = { .call = a->call,
                                 .dtype = a->dtype,
                                 .bytes = a->bytes,
                                 .other = a->other,
                                 .from = a->from,
                                 .from_bytes = a->from_bytes };
    if (a->call == MESH_FORM) {
        xr_sentence_printf(s, "the forming of a group");
        return;
    }
    xr_collective_print(s, &call);
    xr_sentence_printf(s, " in group %u", a->group);
}

/* Returns the last call that the frames of a rank told of, which answers no
 * more. */
static mesh_activity recall_call(const mesh_comm *comm, const mesh_peer *peer)
{
    const mesh_frame *f = &peer->seen;
    const mesh_channel *channel = mesh_find_channel(comm, f->channel);
    mesh_activity a = { .bytes = f->call_bytes,
                        .call = f->call,
                        .dtype = f->dtype,
                        .other = f->root };
    if (!f->kind || f->call == MESH_FORM || f->extra < peer->told.calls)
        return peer->told;
    a.calls = f->extra;
    if (!channel)
        return a;
    a.group = channel->group;
    a.state = f->number > channel->calls ? MESH_WAITS : MESH_OUTSIDE;
    if (f->call == XRAY_COMM_BROADCAST && f->root < channel->count)
        a.other = channel->ranks[f->root];
    return a;
}

static void say_process(xr_sentence *s, const mesh_comm *comm, uint32_t rank)
{
    const mesh_peer *peer = &comm->peers[rank];
    xr_sentence_printf(s, "rank %u (pid %u", rank, peer->pid);
    if (!peer->is_local)
        xr_sentence_printf(s, " on %s", peer->host);
    xr_sentence_printf(s, ")");
}

/* A rank that answers no more: why, and what it did last. */
static void say_lost_rank(xr_sentence *s, const mesh_comm *comm, uint32_t rank,
                          const char *is)
{
    mesh_activity a = recall_call(comm, &comm->peers[rank]);
    say_process(s, comm, rank);
    xr_sentence_printf(s, " %s", is);
    if (a.calls) {
        xr_sentence_printf(s, "%s", a.state ? ", in " : ", after ");
        mesh_say_call(s, &a);
    }
}

static void say_activity(xr_sentence *s, uint32_t rank, const mesh_activity *a)
{
    if (a->state == MESH_OUTSIDE) {
        xr_sentence_printf(s, "rank %u is outside any collective", rank);
        if (a->calls && a->call) {
            xr_sentence_printf(s, ", after ");
            mesh_say_call(s, a);
        }
        return;
    }
    xr_sentence_printf(s, "rank %u %s ", rank,
                       a->state == MESH_WAITS   ? "waits in"
                       : a->state == MESH_WORKS ? "works in"
                                                : "gave up in");
    mesh_say_call(s, a);
    if (a->state != MESH_GAVE_UP)
        xr_sentence_printf(s, " for %.1f s",
                           1e-9 * (double)(mesh_clock() - a->age));
}

static const char *find_silence(const mesh_peer *peer)
{
    char state = peer->is_local ? xr_process_state(peer->pid) : 0;
    return state == 'T' || state == 't' ? "is stopped" : "does not answer";
}

/* A rank that answers; it may have gone on since it gave up in the channel. */
static void say_present_rank(xr_sentence *s, const mesh_channel *channel,
                             uint32_t rank)
{
    const mesh_peer *peer = &channel->comm->peers[rank];
    mesh_activity a = peer->told;
    if (peer->broke_channel == channel->key &&
        peer->broke.calls != peer->told.calls) {
        a = peer->broke;
        a.state = MESH_GAVE_UP;
    }
    say_activity(s, rank, &a);
}

static void say_rank(xr_sentence *s, const mesh_channel *channel, uint32_t rank)
{
    const mesh_comm *comm = channel->comm;
    const mesh_peer *peer = &comm->peers[rank];
    if (rank == comm->rank) {
        say_activity(s, rank, &comm->mine);
        return;
    }
    switch (atomic_load(&peer->fate)) {
    case MESH_LEFT:
        xr_sentence_printf(s, "rank %u has ended its part", rank);
        break;
    case MESH_DEAD:
        say_lost_rank(s, comm, rank, "is dead");
        break;
    case MESH_SILENT:
        say_lost_rank(s, comm, rank, "is silent");
        break;
    case MESH_GARBLED:
        say_process(s, comm, rank);
        xr_sentence_printf(s, " sent bytes that are no frame of comm %s",
                           comm->via->name);
        break;
    case MESH_ABORTED:
        say_present_rank(s, channel, rank);
        break;
    default:
        if (peer->answered < peer->asked)
            say_lost_rank(s, comm, rank, find_silence(peer));
        else
            say_present_rank(s, channel, rank);
        break;
    }
}

static void say_cause(xr_sentence *s, const mesh_comm *comm, uint32_t cause,
                      uint32_t origin)
{
    switch (cause) {
    case MESH_LATE:
        xr_sentence_printf(s, "not all ranks arrived within %.1f s",
                           1e-9 * (double)comm->timeout);
        break;
    case MESH_DEAD:
        xr_sentence_printf(s, "a rank is dead");
        break;
    case MESH_DIFFERENT:
        xr_sentence_printf(s, "the ranks are in different calls");
        break;
    case MESH_ABORTED:
        xr_sentence_printf(s, "rank %u was told to stop", origin);
        break;
    case MESH_CANCELED:
        xr_sentence_printf(s, "the run is stopped");
        break;
    case MESH_LEFT:
        xr_sentence_printf(s, "a rank has ended its part");
        break;
    case MESH_SILENT:
        xr_sentence_printf(s, "the host of a rank has been silent for %.1f s",
                           1e-9 * (double)comm->silence);
        break;
    case MESH_GARBLED:
        xr_sentence_printf(s, "the line to a rank is garbled");
        break;
    default:
        xr_sentence_printf(s, "rank %u failed in the call", origin);
        break;
    }
}

/* ---- reports ------------------------------------------------------------- */

/* Keeps the error for the calls that follow: "where", then the sentence. */
static void keep_report(mesh_channel *channel, const char *where,
                        const char *text, uint32_t cause)
{
    size_t first = strlen(where) + 1;
    size_t second = strlen(text) + 1;
    channel->broken_cause = cause;
    free(channel->broken);
    channel->broken = malloc(first + second);
    if (!channel->broken)
        return;
    memcpy(channel->broken, where, first);
    memcpy(channel->broken + first, text, second);
}

static xray_status status_of_cause(uint32_t cause)
{
    return cause == MESH_CANCELED ? XRAY_E_CANCELED : XRAY_E_PEER;
}

xray_status mesh_report_again(mesh_channel *channel)
{
    const char *where = channel->broken;
    return xr_host_fail(channel->comm->host,
                        status_of_cause(channel->broken_cause), where, "%s",
                        where + strlen(where) + 1);
}

/* The ranks of a channel, and those of an exchange's other half. */
static uint32_t list_ranks(const mesh_channel *channel, uint32_t *out)
{
    uint32_t count = channel->count;
    memcpy(out, channel->ranks, count * sizeof(*out));
    for (uint32_t i = 0; channel->with && i < channel->with->count; i++) {
        uint32_t rank = channel->with->ranks[i];
        if (rank != out[0] && rank != out[1])
            out[count++] = rank;
    }
    return count;
}

xray_status mesh_report(mesh_channel *channel, const mesh_call *call,
                        uint32_t cause, uint32_t origin)
{
    mesh_comm *comm = channel->comm;
    uint32_t ranks[MESH_MOST_RANKS + 2];
    uint32_t count = list_ranks(channel, ranks);
    char text[TEXT_CAP];
    char where_text[WHERE_CAP];
    xr_sentence s = { text, sizeof(text), 0 };
    xr_sentence where = { where_text, sizeof(where_text), 0 };
    const mesh_activity made = { .bytes = call->call_bytes,
                                 .from_bytes = call->from_bytes,
                                 .group = channel->group,
                                 .call = call->call,
                                 .dtype = call->dtype,
                                 .other = call->other,
                                 .from = call->from };
    mesh_ask_ranks(comm, ranks, count);
    say_cause(&s, comm, cause, origin);
    (void)pthread_mutex_lock(&comm->lock);
    for (uint32_t i = 0; i < count && s.used < TEXT_CAP - 160; i++) {
        xr_sentence_printf(&s, "%s", i ? "; " : ": ");
        say_rank(&s, channel, ranks[i]);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    mesh_say_call(&where, &made);
    keep_report(channel, where_text, text, cause);
    return xr_host_fail(comm->host, status_of_cause(cause), where_text, "%s",
                        text);
}
