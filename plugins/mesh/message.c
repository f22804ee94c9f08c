/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages from one rank to another: sends, receives, and exchanges of both at
 * once. Each rank offers its half, the bytes go when both have, and the
 * receiver says when it has them all. So no bytes are on a line of which the
 * receiver has not come to its half, and the halves of an exchange go on
 * independently, in whatever order the peers take theirs.
 */
#include <string.h>

#include "plugins/mesh/mesh.h"

typedef struct half {
    mesh_channel *channel;
    uint64_t back; /* key of the channel of the other way */
    mesh_peer *peer;
    uint32_t rank; /* of the peer */
    uint32_t sends;
    mesh_segment segment;
    mesh_run_of_bytes run;
    uint32_t matched; /* the peer has come to its half */
    uint32_t thanked; /* the receiver has said, or this rank, that all came */
} half;

typedef struct messages {
    const mesh_call *call;
    half halves[2];
    uint32_t count;
    mesh_wait wait;
} messages;

static int is_finished(const half *h)
{
    return h->thanked && (h->sends || mesh_line_is_idle(h->peer));
}

static mesh_frame make_frame(const half *h, uint32_t kind)
{
    const mesh_call call = { .call = h->sends ? XRAY_COMM_SEND : XRAY_COMM_RECV,
                             .root = h->rank,
                             .bytes = h->segment.bytes,
                             .call_bytes = h->segment.bytes,
                             .extra = h->channel->comm->mine.calls };
    return mesh_frame_of(h->channel, &call, kind);
}

/* Puts what the half has to send next. Returns 0 if it is nothing. */
static int put_next(half *h)
{
    if (h->peer->payload_left || !h->matched || h->thanked)
        return 0;
    if (!h->sends) {
        mesh_frame done = make_frame(h, MESH_DONE);
        if (h->run.done < h->run.total)
            return 0;
        h->thanked = 1;
        return mesh_line_put(h->peer, &done);
    }
    uint64_t n = h->run.total - h->run.done;
    mesh_frame data = make_frame(h, MESH_DATA);
    if (!n)
        return 0;
    data.bytes = n < MESH_PIECE ? n : MESH_PIECE;
    if (!mesh_line_put(h->peer, &data))
        return 0;
    h->peer->payload = h->segment.at + h->run.done;
    h->peer->payload_left = data.bytes;
    mesh_run_advance(&h->run, data.bytes);
    return 1;
}

/* Looks for the peer's half among its offers. Returns 1 after progress, or
 * -MESH_DIFFERENT. */
static int match_half(messages *m, half *h)
{
    uint32_t want = h->sends ? XRAY_COMM_RECV : XRAY_COMM_SEND;
    mesh_drop_offers(h->channel->comm, h->peer);
    mesh_offer_seen *o = mesh_find_offer(h->peer, h->channel->key, want);
    if (o) {
        if (o->frame.number != h->channel->calls + 1 ||
            o->frame.bytes != h->segment.bytes)
            return mesh_differs(h->channel->comm, h->peer, &o->frame);
        o->used = 0;
        h->matched = 1;
        return 1;
    }
    /* Only in an exchange with this rank alone does it come to another half,
     * that of the other way, while this one waits. */
    for (uint32_t i = 0; i < MESH_OFFERS; i++) {
        const mesh_frame *f = &h->peer->offers[i].frame;
        int ours = 0;
        if (!h->peer->offers[i].used || (f->half && f->channel == h->back))
            continue;
        for (uint32_t k = 0; k < m->count; k++)
            ours |= f->channel == m->halves[k].channel->key &&
                    (f->call == XRAY_COMM_RECV) == (m->halves[k].sends != 0);
        if (!ours)
            return mesh_differs(h->channel->comm, h->peer, f);
    }
    return 0;
}

/* Takes a frame that is data or thanks. The offers before it may have come with
 * it. */
static int take_frame(messages *m, mesh_peer *peer)
{
    const mesh_frame *f = &peer->frame;
    for (uint32_t k = 0; k < m->count; k++) {
        half *h = &m->halves[k];
        if (h->peer == peer && !h->matched && match_half(m, h) < 0)
            return -(int)MESH_DIFFERENT;
    }
    for (uint32_t k = 0; k < m->count; k++) {
        half *h = &m->halves[k];
        if (h->peer != peer || f->channel != h->channel->key ||
            f->number != h->channel->calls + 1)
            continue;
        if (h->sends && f->kind == MESH_DONE && h->run.done == h->run.total) {
            h->thanked = 1;
            peer->parked = 0;
            return 1;
        }
        if (!h->sends && f->kind == MESH_DATA && h->matched &&
            f->bytes <= h->run.total - h->run.done) {
            mesh_line_take(peer, h->segment.at + h->run.done, &h->run);
            return 1;
        }
    }
    return mesh_differs(m->wait.comm, peer, f);
}

static int is_needed(const half *h)
{
    return h->sends ? !h->thanked : !h->matched || h->run.done < h->run.total;
}

/* Returns 1 after progress, 0, or a cause as a negative number. */
static int receive_half(messages *m, half *h)
{
    mesh_comm *comm = h->channel->comm;
    int went_on = 0;
    while (is_needed(h)) {
        if (h->peer->to_left) {
            if (!mesh_line_receive(h->peer))
                return went_on;
        } else {
            int got = mesh_next_frame(comm, h->peer);
            if (!got && h->matched)
                return went_on;
            got = got ? take_frame(m, h->peer) : match_half(m, h);
            if (got <= 0)
                return got < 0 ? got : went_on;
        }
        went_on = 1;
    }
    return went_on;
}

static int move_half(messages *m, half *h, uint32_t *out_origin)
{
    int went_on = 0;
    if (!h->matched) {
        int got = match_half(m, h);
        if (got < 0)
            return got;
        went_on |= got;
    }
    while (put_next(h)) {
        mesh_line_send(h->peer);
        went_on = 1;
    }
    if (!mesh_line_is_idle(h->peer)) {
        uint64_t left = h->peer->payload_left;
        mesh_line_send(h->peer);
        went_on |= left != h->peer->payload_left;
    }
    int got = receive_half(m, h);
    if (got < 0)
        return got;
    if (got)
        h->peer->stopped_since = 0;
    uint32_t fate = is_needed(h) ? mesh_fate_of(h->peer) : 0;
    if (fate) {
        *out_origin = h->rank;
        return -(int)fate;
    }
    return went_on | got;
}

static int all_are_finished(const messages *m)
{
    for (uint32_t k = 0; k < m->count; k++)
        if (!is_finished(&m->halves[k]))
            return 0;
    return 1;
}

/* An exchange fails as a whole: the peer of the other message is told, too. */
static xray_status fail_messages(messages *m, uint32_t which, uint32_t cause,
                                 uint32_t origin)
{
    mesh_channel *channel = m->halves[which].channel;
    for (uint32_t k = 0; k < m->count; k++)
        if (k != which)
            mesh_break_quietly(m->halves[k].channel, cause, origin);
    return mesh_break(channel, m->call, cause, origin);
}

static xray_status run_messages(messages *m)
{
    mesh_comm *comm = m->wait.comm;
    uint32_t origin = comm->rank;
    while (!all_are_finished(m)) {
        uint32_t at = 0;
        int went_on = -(int)mesh_find_cause(&m->wait, &origin);
        for (uint32_t k = 0; went_on >= 0 && k < m->count; k++) {
            int moved = move_half(m, &m->halves[k], &origin);
            at = moved < 0 ? k : at;
            went_on = moved < 0 ? moved : went_on | moved;
        }
        if (all_are_finished(m))
            break;
        if (went_on < 0)
            return fail_messages(m, at, (uint32_t)-went_on, origin);
        if (went_on) {
            mesh_wait_went_on(&m->wait);
            continue;
        }
        for (uint32_t k = 0; k < m->count; k++)
            mesh_wait_for(&m->wait, m->halves[k].peer,
                          is_needed(&m->halves[k]) &&
                              !m->halves[k].peer->parked);
        mesh_wait_sleep(&m->wait);
    }
    for (uint32_t k = 0; k < m->count; k++)
        m->halves[k].channel->calls++;
    mesh_trace_state(comm, MESH_OUTSIDE);
    return XRAY_OK;
}

/* Refuses a message whose channel is broken. The other half is broken with
 * it. */
static xray_status check_channels(messages *m)
{
    for (uint32_t k = 0; k < m->count; k++) {
        mesh_channel *c = m->halves[k].channel;
        mesh_broken broken = { .cause = c->broken_cause };
        int found = mesh_is_broken(c->comm, c->key, c->calls + 1, &broken);
        if (!c->broken && !found)
            continue;
        for (uint32_t i = 0; i < m->count; i++)
            if (i != k)
                mesh_break_quietly(m->halves[i].channel, broken.cause,
                                   broken.origin);
        return c->broken ? mesh_report_again(c)
                         : mesh_report(c, m->call, broken.cause, broken.origin);
    }
    return XRAY_OK;
}

static xray_status begin_messages(messages *m)
{
    mesh_comm *comm = m->wait.comm;
    uint32_t same = m->count == 2 && m->halves[0].peer == m->halves[1].peer;
    for (uint32_t k = 0; k < m->count; k++) {
        half *h = &m->halves[k];
        mesh_frame frame = make_frame(h, MESH_OFFER);
        frame.half = same;
        h->run = (mesh_run_of_bytes){ .segments = &h->segment,
                                      .count = 1,
                                      .total = h->segment.bytes };
        if (!mesh_line_put(h->peer, &frame))
            return fail_messages(m, k, MESH_FAILED, comm->rank);
    }
    return run_messages(m);
}

static half make_half(xray_comm_group *group, mesh_channel *channel,
                      uint32_t index, uint32_t sends)
{
    uint32_t rank = group->ranks[index];
    mesh_channel *back = channel;
    (void)mesh_message_channel(group, "", index, !sends, &back);
    return (half){ .channel = channel,
                   .back = back->key,
                   .peer = &channel->comm->peers[rank],
                   .rank = rank,
                   .sends = sends };
}

xray_status mesh_messages(xray_comm_group *group, const mesh_call *call,
                          const xray_comm_exchange *x)
{
    messages m = { .call = call, .wait = { .comm = group->all.comm } };
    const char *where = xr_collective_name(call->call);
    mesh_channel *channel = NULL;
    xray_status status = XRAY_OK;
    if (call->call != XRAY_COMM_RECV) {
        status = mesh_message_channel(group, where, x->to, 1, &channel);
        if (status != XRAY_OK)
            return status;
        half *h = &m.halves[m.count++];
        *h = make_half(group, channel, x->to, 1);
        h->segment.bytes = x->in_bytes;
        memcpy(&h->segment.at, &x->in, sizeof(h->segment.at));
    }
    if (call->call != XRAY_COMM_SEND) {
        status = mesh_message_channel(group, where, x->from, 0, &channel);
        if (status != XRAY_OK)
            return status;
        half *h = &m.halves[m.count++];
        *h = make_half(group, channel, x->from, 0);
        h->segment = (mesh_segment){ x->out, x->out_bytes };
    }
    for (uint32_t k = 0; k < m.count; k++) {
        m.wait.channels[k] = m.halves[k].channel;
        m.halves[k].channel->with =
            m.count == 2 ? m.halves[1 - k].channel : NULL;
    }
    status = check_channels(&m);
    if (status != XRAY_OK)
        return status;
    mesh_trace_begin(m.halves[0].channel, call);
    return begin_messages(&m);
}
