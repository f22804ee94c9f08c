/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends one message and receives another at the same time. This rank arrives in
 * the channels of both before it waits in either, so that ranks which wait for
 * each other in a ring all find their peers. A peer may take its part of a
 * message in an exchange, a send or a recv.
 *
 * Where calls go through staging memory, each message is cut into pieces as a
 * send or a recv would cut it, and the two go on independently: a peer may want
 * all of one before it comes to the other.
 */
#include "core/base/collective.h"
#include "plugins/comm-shm/shm.h"

#define TURN 100000u /* ns between looks at the other message */

/* States of a message, by the next event that it waits for. */
#define OPEN 0u
#define CLOSED 1u
#define DONE 2u

/* One of the two messages. */
typedef struct half {
    shm_channel *channel;
    xray_stream *stream;
    shm_call call; /* the message */
    shm_call part; /* its current piece */
    uint64_t at;   /* bytes of the pieces before */
    uint32_t index;
    uint32_t state;
    shm_wait wait;
} half;

static void wait_for_word(half *h, uint32_t state)
{
    shm_round *round = shm_next_round(h->channel);
    h->state = state;
    h->wait =
        (shm_wait){ .channel = h->channel,
                    .call = &h->part,
                    .word = state == OPEN ? &round->open : &round->closed };
}

/* Copy the current piece to the staging memory, and back from it. */
static xray_status stage_piece(const half *h)
{
    const shm_comm *comm = h->channel->comm;
    const char *in = h->call.in;
    xray_status status =
        comm->device->copy(comm->device_self, h->stream, comm->stage,
                           in + h->at, h->part.bytes, XRAY_COPY_TO_HOST);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, h->stream)
                             : status;
}

static xray_status unstage_piece(const half *h)
{
    const shm_comm *comm = h->channel->comm;
    char *out = h->call.out;
    xray_status status = comm->device->copy(
        comm->device_self, h->stream, out + h->at, comm->stage + SHM_STAGE,
        h->part.bytes, XRAY_COPY_TO_DEVICE);
    return status == XRAY_OK ? comm->device->sync(comm->device_self, h->stream)
                             : status;
}

/* Cuts the next piece and arrives in the channel with it. */
static xray_status begin_piece(half *h)
{
    const shm_comm *comm = h->channel->comm;
    uint64_t bytes = h->call.bytes - h->at;
    h->part = h->call;
    wait_for_word(h, OPEN);
    if (comm->stage) {
        bytes = bytes < SHM_STAGE ? bytes : SHM_STAGE;
        h->part.in = h->call.in ? comm->stage : NULL;
        h->part.out = h->call.out ? comm->stage + SHM_STAGE : NULL;
    }
    h->part.count = h->part.bytes = bytes;
    shm_trace_call(h->channel, h->index);
    xray_status status = XRAY_OK;
    if (comm->stage && h->call.in && bytes)
        status = stage_piece(h);
    if (status != XRAY_OK) {
        (void)shm_break_channel(h->channel, &h->part, SHM_FAILED);
        return status;
    }
    return shm_begin_round(h->channel, &h->part);
}

static xray_status end_piece(half *h)
{
    xray_status status = XRAY_OK;
    shm_end_round(h->channel);
    if (h->channel->comm->stage && h->call.out && h->part.bytes)
        status = unstage_piece(h);
    h->at += h->part.bytes;
    h->state = DONE;
    return status == XRAY_OK && h->at < h->call.bytes ? begin_piece(h) : status;
}

/* Goes on with a message as far as it can without waiting. */
static xray_status advance_half(half *h)
{
    xray_status status = XRAY_OK;
    while (status == XRAY_OK && h->state != DONE &&
           shm_wait_is_over(&h->wait)) {
        if (h->state == OPEN)
            status = shm_work_round(h->channel, &h->part);
        if (status == XRAY_OK)
            status = end_piece(h);
        else if (status == XRAY_AGAIN)
            wait_for_word(h, CLOSED);
        if (status == XRAY_AGAIN)
            status = XRAY_OK;
    }
    return status;
}

static xray_status run_halves(half *h)
{
    int staged = h->channel->comm->stage != NULL;
    xray_status status = begin_piece(&h[0]);
    if (status == XRAY_OK)
        status = begin_piece(&h[1]);
    while (status == XRAY_OK) {
        status = advance_half(&h[0]);
        if (status == XRAY_OK)
            status = advance_half(&h[1]);
        half *next = h[0].state == DONE ? &h[1] : &h[0];
        if (status != XRAY_OK || next->state == DONE)
            break;
        shm_trace_state(h->channel->comm, SHM_WAITS);
        /* Without pieces the other message needs nothing more of this rank: its
         * peer can do all the work. */
        int alone = !staged || h[1].state == DONE || next == &h[1];
        status = shm_wait_word(&next->wait, alone ? 0 : TURN);
        if (status == XRAY_AGAIN)
            status = XRAY_OK;
    }
    return status;
}

/* An exchange fails as a whole: the peer of the other message is told, too, and
 * by whom it failed first. */
static void break_other_half(const half *h)
{
    const shm_comm *comm = h->channel->comm;
    uint32_t first = shm_broken_here(comm, SHM_FAILED);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t broken = atomic_load(
            shm_channel_broken(&comm->control, h[i].channel->number));
        if (broken)
            first = broken;
    }
    for (uint32_t i = 0; i < 2; i++)
        shm_mark_broken(comm, h[i].channel->number, first);
    shm_trace_end(comm, SHM_GAVE_UP);
}

static xray_status make_exchange(half *h, const shm_call *whole)
{
    const shm_comm *comm = h->channel->comm;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t broken = atomic_load(
            shm_channel_broken(&comm->control, h[i].channel->number));
        if (!broken)
            continue;
        shm_mark_broken(comm, h[1 - i].channel->number, broken);
        return shm_report_broken(h[i].channel, whole);
    }
    shm_trace_begin(h[0].channel, h[1].channel, whole);
    xray_status status = atomic_load(&comm->aborted)
                             ? shm_break_channel(h->channel, whole, SHM_ABORTED)
                             : run_halves(h);
    if (status == XRAY_OK)
        shm_trace_end(comm, SHM_OUTSIDE);
    else
        break_other_half(h);
    return status;
}

static xray_status check_messages(xray_comm_group *group,
                                  const xray_comm_exchange *m, half *out)
{
    const xray_host *host = group->comm->host;
    xray_status status =
        xr_collective_check(host, "exchange", m->in, m->in, m->in_bytes);
    if (status == XRAY_OK)
        status =
            xr_collective_check(host, "exchange", m->out, m->out, m->out_bytes);
    if (status == XRAY_OK)
        status =
            shm_message_channel(group, "exchange", m->to, 1, &out[0].channel);
    if (status == XRAY_OK)
        status =
            shm_message_channel(group, "exchange", m->from, 0, &out[1].channel);
    return status;
}

xray_status shm_exchange(xray_comm_group *group, xray_stream *stream,
                         const xray_comm_exchange *messages)
{
    const xray_comm_exchange *m = messages;
    half halves[2] = { { .stream = stream }, { .stream = stream, .index = 1 } };
    xray_status status = check_messages(group, m, halves);
    if (status != XRAY_OK)
        return status;
    const shm_call whole = { .call = XRAY_COMM_EXCHANGE,
                             .other = group->ranks[m->to],
                             .from = group->ranks[m->from],
                             .call_bytes = m->in_bytes,
                             .from_bytes = m->out_bytes };
    halves[0].call = (shm_call){ .call = XRAY_COMM_SEND,
                                 .whole = &whole,
                                 .bytes = m->in_bytes,
                                 .call_bytes = m->in_bytes,
                                 .in = m->in };
    halves[1].call = (shm_call){ .call = XRAY_COMM_RECV,
                                 .whole = &whole,
                                 .bytes = m->out_bytes,
                                 .call_bytes = m->out_bytes,
                                 .out = m->out };
    return make_exchange(halves, &whole);
}
