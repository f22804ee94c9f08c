/* SPDX-License-Identifier: Apache-2.0
 *
 * The course of a call of a group: every rank tells every other one which call
 * it makes, and all move their bytes at once, as far as each line goes on
 * without waiting. A call is complete when all ranks are known to be in it and
 * all bytes have come and gone.
 */
#include <string.h>

#include "plugins/mesh/mesh.h"

#define SLICE 10000000u /* ns between looks at what no line tells */
#define SLICE_MS 10
#define OVERTAKES 20000000u /* ns that a note may be earlier than data */
#define AHEAD \
    2u /* pieces for the sums of other hosts before those of one's own */

_Static_assert(AHEAD < MESH_WINDOW, "what is ahead of a sum has room");

/* ---- waiting ------------------------------------------------------------ */

uint32_t mesh_fate_of(mesh_peer *peer)
{
    uint32_t fate = atomic_load(&peer->fate);
    /* All that a rank sent before it ended is still in its line, at whose end
     * the line is marked as well. */
    if (fate == MESH_DEAD || fate == MESH_LEFT)
        return peer->deaf == 2 ? fate : 0;
    /* The note of a rank that was told to stop may overtake what it sent for
     * this call. */
    if (fate != MESH_ABORTED)
        return fate;
    if (!peer->stopped_since)
        peer->stopped_since = mesh_clock();
    return mesh_clock() - peer->stopped_since >= OVERTAKES ? fate : 0;
}

void mesh_wait_went_on(mesh_wait *wait)
{
    wait->since = 0;
    wait->slept = 0;
}

uint32_t mesh_find_cause(mesh_wait *wait, uint32_t *out_origin)
{
    mesh_comm *comm = wait->comm;
    uint64_t now = mesh_clock();
    mesh_broken broken;
    *out_origin = comm->rank;
    for (uint32_t i = 0; i < 2; i++) {
        const mesh_channel *c = wait->channels[i];
        if (c && mesh_is_broken(comm, c->key, c->calls + 1, &broken)) {
            *out_origin = broken.origin;
            return broken.cause;
        }
    }
    if (atomic_load(&comm->aborted))
        return MESH_ABORTED;
    if (!wait->since)
        wait->since = now;
    if (now - wait->looked >= SLICE) {
        wait->looked = now;
        if (xr_stop_check(comm->stop, NULL) != XRAY_OK)
            return MESH_CANCELED;
    }
    return comm->timeout && now - wait->since >= comm->timeout ? MESH_LATE : 0;
}

void mesh_wait_for(mesh_wait *wait, mesh_peer *peer, int reads)
{
    int writes = !mesh_line_is_idle(peer);
    if (peer->deaf != 2 && (reads || writes))
        peer->via->wait_for(wait, peer, reads, writes);
}

void mesh_wait_sleep(mesh_wait *wait)
{
    wait->comm->via->sleep(wait, SLICE_MS);
    wait->slept++;
    wait->count = 0;
    wait->ready = 0;
}

/* ---- a call ------------------------------------------------------------- */

typedef struct running {
    xray_comm_group *group;
    const mesh_call *call;
    mesh_sums sums;
    mesh_wait wait;
    uint32_t all_arrived;
} running;

static int is_complete(const mesh_run_of_bytes *run)
{
    return run->done == run->total;
}

/* Bytes of a lane that this rank has by now. What it passes on along the ring
 * is its own part, or its sum as far as it is added, and then what it
 * receives. */
static uint64_t count_ready(const running *r, uint32_t index, uint32_t lane)
{
    const mesh_flow *flow = &r->group->flows[index];
    const mesh_run_of_bytes *out = &flow->out[lane];
    const mesh_channel *all = &r->group->all;
    if (lane == MESH_DIRECT && out->wraps)
        return mesh_parts_ready(&r->sums, index);
    if (lane != MESH_RING)
        return out->total;
    uint64_t own = r->group->ring[0].bytes;
    uint64_t have = own;
    if (r->call->call == XRAY_COMM_BROADCAST)
        own = have = r->call->root == all->self ? out->total : 0;
    else if (r->sums.active)
        have = r->sums.done;
    const mesh_layout *l = &r->group->layout;
    uint32_t before =
        l->order[(l->place[all->self] + all->count - 1) % all->count];
    if (have == own)
        have += r->group->flows[before].in[MESH_RING].done;
    return have < out->total ? have : out->total;
}

/* Pieces that a rank of this host adds for others go before those that it adds
 * for itself, since the others wait for it; but only some, or they would fill
 * its line while it waits for the pieces behind them. */
static int is_turn(const mesh_flow *flow, uint32_t lane)
{
    const mesh_run_of_bytes *part = &flow->out[MESH_PART];
    const mesh_run_of_bytes *direct = &flow->out[MESH_DIRECT];
    int ahead = part->round >= direct->done / MESH_PIECE + AHEAD;
    if (lane == MESH_PART)
        return is_complete(direct) || !ahead;
    return lane == MESH_RING || is_complete(part) || ahead;
}

/* Puts the next frame of data to a rank. Returns 0 if there is none now. */
static int put_data(running *r, uint32_t index)
{
    const mesh_channel *all = &r->group->all;
    mesh_peer *peer = &all->comm->peers[all->ranks[index]];
    mesh_flow *flow = &r->group->flows[index];
    /* A sum goes on while it is still cached. */
    static const uint32_t lanes[MESH_LANES] = { MESH_RING, MESH_PART,
                                                MESH_DIRECT };
    for (uint32_t k = 0; k < MESH_LANES; k++) {
        uint32_t lane = lanes[k];
        mesh_run_of_bytes *out = &flow->out[lane];
        if (is_complete(out) || !is_turn(flow, lane))
            continue;
        mesh_segment next = mesh_run_next(out);
        if (count_ready(r, index, lane) - out->done < next.bytes)
            continue;
        mesh_frame frame = mesh_frame_of(all, r->call, MESH_DATA);
        frame.bytes = next.bytes;
        frame.lane = (uint16_t)lane;
        if (!mesh_line_put(peer, &frame))
            return 0;
        peer->payload = next.at;
        peer->payload_left = next.bytes;
        mesh_run_advance(out, next.bytes);
        return 1;
    }
    return 0;
}

static int send_flow(running *r, uint32_t index)
{
    const mesh_channel *all = &r->group->all;
    mesh_peer *peer = &all->comm->peers[all->ranks[index]];
    int sent = 0;
    /* The header of a call goes with the first of its data. One piece is sent
     * and one received in turn, so that they are still cached at the other
     * rank. */
    if (!peer->payload_left && put_data(r, index)) {
        mesh_line_send(peer);
        sent = 1;
    }
    if (!mesh_line_is_idle(peer)) {
        uint64_t left = peer->payload_left;
        mesh_line_send(peer);
        sent |= peer->payload_left != left;
    }
    return sent;
}

static int is_same_call(const running *r, const mesh_frame *f)
{
    mesh_frame mine = mesh_frame_of(&r->group->all, r->call, MESH_CALL);
    return f->kind == MESH_CALL && f->channel == mine.channel &&
           f->number == mine.number && f->bytes == mine.bytes &&
           f->call_bytes == mine.call_bytes && f->call == mine.call &&
           f->dtype == mine.dtype && f->root == mine.root;
}

/* Has the payload of a frame received to where it belongs. Returns 0 if it has
 * to wait, and -1 if nothing of the kind is expected. */
static int take_data(running *r, uint32_t index)
{
    const mesh_channel *all = &r->group->all;
    mesh_peer *peer = &all->comm->peers[all->ranks[index]];
    const mesh_frame *f = &peer->frame;
    mesh_run_of_bytes *in = &r->group->flows[index].in[f->lane];
    if (f->kind != MESH_DATA || f->channel != all->key ||
        f->number != all->calls + 1 || f->bytes > in->total - in->done)
        return -1;
    mesh_segment next = mesh_run_next(in);
    if (f->bytes > next.bytes)
        return -1;
    if (f->lane != MESH_RING && r->sums.active)
        next.at = mesh_sums_slot(&r->sums, index, f->lane);
    if (next.at)
        mesh_line_take(peer, next.at, in);
    return next.at != NULL;
}

/* True if more is to come from a rank in this call. */
static int needs_rank(const running *r, uint32_t index)
{
    const mesh_flow *flow = &r->group->flows[index];
    return !flow->arrived || !is_complete(&flow->in[MESH_DIRECT]) ||
           !is_complete(&flow->in[MESH_RING]) ||
           !is_complete(&flow->in[MESH_PART]);
}

static int has_all_gone(const running *r, uint32_t index)
{
    const mesh_channel *all = &r->group->all;
    const mesh_flow *flow = &r->group->flows[index];
    return mesh_line_is_idle(&all->comm->peers[all->ranks[index]]) &&
           is_complete(&flow->out[MESH_DIRECT]) &&
           is_complete(&flow->out[MESH_RING]) &&
           is_complete(&flow->out[MESH_PART]);
}

/* Returns 1 after progress, and otherwise 0, or a cause as a negative
 * number. */
static int receive_flow(running *r, uint32_t index)
{
    const mesh_channel *all = &r->group->all;
    mesh_peer *peer = &all->comm->peers[all->ranks[index]];
    mesh_flow *flow = &r->group->flows[index];
    int went_on = 0;
    while (needs_rank(r, index)) {
        if (peer->to_left) {
            if (!mesh_line_receive(peer))
                return went_on;
        } else if (!mesh_next_frame(all->comm, peer)) {
            const mesh_offer_seen *o = mesh_find_offer(peer, 0, 0);
            return flow->arrived || !o
                       ? went_on
                       : mesh_differs(all->comm, peer, &o->frame);
        } else if (!flow->arrived) {
            if (!is_same_call(r, &peer->frame))
                return mesh_differs(all->comm, peer, &peer->frame);
            flow->arrived = 1;
            peer->parked = 0;
        } else {
            int taken = take_data(r, index);
            if (taken < 0)
                return mesh_differs(all->comm, peer, &peer->frame);
            if (!taken || went_on)
                return went_on;
        }
        went_on = 1;
    }
    return went_on;
}

/* True if nothing is left to be sent or received. */
static int is_done(const running *r)
{
    const mesh_channel *all = &r->group->all;
    for (uint32_t i = 0; i < all->count; i++)
        if (i != all->self && (needs_rank(r, i) || !has_all_gone(r, i)))
            return 0;
    return r->group->own.done == r->group->own.bytes &&
           (!r->sums.active || r->sums.done == r->sums.bytes);
}

/* Whether the bytes that others read of the sum's memory have gone. */
static int has_sent_all(const running *r)
{
    const mesh_channel *all = &r->group->all;
    for (uint32_t i = 0; i < all->count; i++)
        if (i != all->self &&
            (!is_complete(&r->group->flows[i].out[MESH_DIRECT]) ||
             !mesh_line_is_idle(&all->comm->peers[all->ranks[i]])))
            return 0;
    return 1;
}

static void prepare_sleep(running *r)
{
    const mesh_channel *all = &r->group->all;
    for (uint32_t i = 0; i < all->count; i++) {
        mesh_peer *peer = &all->comm->peers[all->ranks[i]];
        if (i != all->self)
            mesh_wait_for(&r->wait, peer, needs_rank(r, i) && !peer->parked);
    }
}

/* Moves what can be moved. Returns as receive_flow does. */
static int move_bytes(running *r, uint32_t *out_origin)
{
    const mesh_channel *all = &r->group->all;
    int went_on = 0;
    for (uint32_t k = 1; k < all->count; k++) {
        uint32_t i = (all->self + k) % all->count;
        mesh_peer *peer = &all->comm->peers[all->ranks[i]];
        went_on |= send_flow(r, i);
        int got = receive_flow(r, i);
        if (got < 0)
            return got;
        if (got)
            peer->stopped_since = 0;
        went_on |= got;
        uint32_t fate = needs_rank(r, i) ? mesh_fate_of(peer) : 0;
        if (fate) {
            *out_origin = all->ranks[i];
            return -(int)fate;
        }
    }
    if (r->sums.active && (!r->sums.holds || has_sent_all(r)))
        went_on |= mesh_sums_add(&r->sums);
    return went_on | mesh_copy_piece(&r->group->own);
}

static void note_arrival(running *r)
{
    const mesh_channel *all = &r->group->all;
    for (uint32_t i = 0; i < all->count; i++)
        if (i != all->self && !r->group->flows[i].arrived)
            return;
    r->all_arrived = 1;
    mesh_trace_state(all->comm, MESH_WORKS);
}

static xray_status run_until_done(running *r)
{
    mesh_channel *all = &r->group->all;
    uint32_t origin = all->comm->rank;
    while (!is_done(r)) {
        uint32_t cause = mesh_find_cause(&r->wait, &origin);
        int went_on = cause ? 0 : move_bytes(r, &origin);
        if (went_on < 0)
            cause = (uint32_t)-went_on;
        if (cause)
            return mesh_break(all, r->call, cause, origin);
        if (went_on) {
            mesh_wait_went_on(&r->wait);
            if (!r->all_arrived)
                note_arrival(r);
        } else if (!is_done(r)) {
            prepare_sleep(r);
            mesh_wait_sleep(&r->wait);
        }
    }
    all->calls++;
    mesh_trace_state(all->comm, MESH_OUTSIDE);
    return XRAY_OK;
}

xray_status mesh_run_call(xray_comm_group *group, const mesh_call *call)
{
    mesh_channel *all = &group->all;
    running r = { .group = group,
                  .call = call,
                  .wait = { .comm = all->comm, .channels = { all, NULL } } };
    if (all->broken)
        return mesh_report_again(all);
    mesh_broken broken;
    if (mesh_is_broken(all->comm, all->key, all->calls + 1, &broken))
        return mesh_report(all, call, broken.cause, broken.origin);
    mesh_trace_begin(all, call);
    mesh_plan_call(group, call);
    mesh_sums_begin(&r.sums, group, call);
    mesh_frame frame = mesh_frame_of(all, call, MESH_CALL);
    if (call->call != MESH_FORM)
        frame.extra = all->comm->mine.calls;
    for (uint32_t i = 0; i < all->count; i++)
        if (i != all->self &&
            !mesh_line_put(&all->comm->peers[all->ranks[i]], &frame))
            return mesh_break(all, call, MESH_FAILED, all->comm->rank);
    return run_until_done(&r);
}
