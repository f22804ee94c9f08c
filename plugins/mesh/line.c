/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of calls to another rank: sends and receives frames as far as the
 * system takes and gives without waiting. Payloads go from and to the buffers
 * of the call; only what arrives together with a header is copied once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "plugins/mesh/mesh.h"

/* ---- sending ------------------------------------------------------------ */

static int append_output(mesh_peer *peer, const void *bytes, uint64_t size)
{
    if (peer->out_at == peer->out_used)
        peer->out_at = peer->out_used = 0;
    if (peer->out_used + size > peer->out_cap) {
        uint64_t cap = 2 * (peer->out_used + size);
        uint8_t *more = realloc(peer->out, cap);
        if (!more)
            return 0;
        peer->out = more;
        peer->out_cap = cap;
    }
    if (bytes)
        memcpy(peer->out + peer->out_used, bytes, size);
    else
        memset(peer->out + peer->out_used, 0, size);
    peer->out_used += size;
    return 1;
}

int mesh_line_put(mesh_peer *peer, const mesh_frame *frame)
{
    return append_output(peer, frame, sizeof(*frame));
}

static int has_output(const mesh_peer *peer)
{
    return peer->out_at < peer->out_used || peer->payload_left;
}

int mesh_line_is_idle(const mesh_peer *peer)
{
    return peer->deaf || (!peer->in_transit && !has_output(peer));
}

static void count_sent(mesh_peer *peer, uint64_t sent)
{
    uint64_t headers = peer->out_used - peer->out_at;
    if (sent < headers) {
        peer->out_at += sent;
        return;
    }
    peer->out_at = peer->out_used = 0;
    peer->payload += sent - headers;
    peer->payload_left -= sent - headers;
}

void mesh_line_send(mesh_peer *peer)
{
    int64_t sent = 1;
    while (sent > 0 && !mesh_line_is_idle(peer)) {
        struct iovec parts[2];
        size_t count = 0;
        uint64_t headers = peer->out_used - peer->out_at;
        if (headers)
            parts[count++] =
                (struct iovec){ peer->out + peer->out_at, headers };
        if (peer->payload_left) {
            struct iovec *part = &parts[count++];
            memcpy(&part->iov_base, &peer->payload, sizeof(void *));
            part->iov_len = peer->payload_left;
        }
        sent = peer->via->send(peer, parts, count);
        if (sent > 0)
            count_sent(peer, (uint64_t)sent);
        /* All that came before the end can still be read; the end of the other
         * direction tells the fate. */
        if (sent < 0)
            peer->deaf = 1;
    }
}

/* ---- receiving ---------------------------------------------------------- */

static void set_fate(mesh_peer *peer, uint32_t fate)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&peer->fate, &none, fate);
}

static void end_line(mesh_peer *peer, int reason)
{
    int silent = reason == ETIMEDOUT || reason == EHOSTUNREACH ||
                 reason == ENETUNREACH || reason == EHOSTDOWN;
    int garbled = reason == EBADMSG;
    set_fate(peer, garbled        ? MESH_GARBLED
                   : peer->leaves ? MESH_LEFT
                   : silent       ? MESH_SILENT
                                  : MESH_DEAD);
    peer->deaf = 2;
}

/* Returns the number of bytes that were received to the parts, 0 if there are
 * none yet, or if the line has ended. */
static uint64_t read_line(mesh_peer *peer, struct iovec *parts, size_t count)
{
    int reason = 0;
    if (peer->deaf == 2)
        return 0;
    int64_t got = peer->via->receive(peer, parts, count, &reason);
    if (got < 0)
        end_line(peer, reason);
    return got > 0 ? (uint64_t)got : 0;
}

static uint64_t take_buffered(mesh_peer *peer, void *to, uint64_t size)
{
    uint64_t have = peer->in_used - peer->in_at;
    uint64_t n = have < size ? have : size;
    if (to)
        memcpy(to, peer->in + peer->in_at, n);
    peer->in_at += (uint32_t)n;
    return n;
}

/* Bytes of the current segment of a run, or of its current piece. */
static uint64_t count_current(const mesh_run_of_bytes *run)
{
    uint64_t bytes = run->segments[run->current].bytes;
    uint64_t first = (uint64_t)run->round * MESH_PIECE;
    if (!run->deals)
        return bytes;
    if (bytes <= first)
        return 0;
    return bytes - first < MESH_PIECE ? bytes - first : MESH_PIECE;
}

void mesh_run_advance(mesh_run_of_bytes *run, uint64_t bytes)
{
    run->done += bytes;
    run->in_current += bytes;
    while (run->current < run->count && run->in_current >= count_current(run)) {
        run->in_current -= count_current(run);
        run->current++;
        if (run->deals && run->current == run->count &&
            run->done < run->total) {
            run->current = 0;
            run->round++;
        }
    }
}

mesh_segment mesh_run_next(const mesh_run_of_bytes *run)
{
    uint64_t at = (uint64_t)run->round * MESH_PIECE + run->in_current;
    uint64_t left = count_current(run) - run->in_current;
    char *memory = run->segments[run->current].at;
    return (mesh_segment){ memory ? memory + (run->wraps ? at % run->wraps : at)
                                  : NULL,
                           left < MESH_PIECE ? left : MESH_PIECE };
}

/* Receives payload, and what there is of the next header. Returns 1 if anything
 * came. */
static int receive_payload(mesh_peer *peer)
{
    char scrap[0x1000];
    uint64_t got = take_buffered(peer, peer->to, peer->to_left);
    if (!got) {
        uint64_t left = peer->to_left;
        int whole = peer->to || left <= sizeof(scrap);
        struct iovec parts[2] = { { peer->to ? peer->to : scrap,
                                    whole ? left : sizeof(scrap) },
                                  { peer->in, sizeof(peer->frame) } };
        got = read_line(peer, parts, whole ? 2 : 1);
        peer->in_at = 0;
        peer->in_used = (uint32_t)(got > left ? got - left : 0);
        got = got > left ? left : got;
    }
    peer->to_left -= got;
    if (peer->to)
        peer->to += got;
    if (peer->to_run && got)
        mesh_run_advance(peer->to_run, got);
    if (!peer->to_left)
        peer->to_run = NULL;
    return got > 0;
}

static int receive_header(mesh_peer *peer)
{
    uint64_t have = peer->in_used - peer->in_at;
    if (have < sizeof(peer->frame)) {
        memmove(peer->in, peer->in + peer->in_at, have);
        peer->in_at = 0;
        peer->in_used = (uint32_t)have;
        struct iovec part = { peer->in + have, sizeof(peer->in) - have };
        peer->in_used += (uint32_t)read_line(peer, &part, 1);
    }
    if (peer->in_used - peer->in_at < sizeof(peer->frame))
        return peer->in_used > have;
    (void)take_buffered(peer, &peer->frame, sizeof(peer->frame));
    peer->parked = 1;
    if (!mesh_frame_is_valid(&peer->frame)) {
        set_fate(peer, MESH_GARBLED);
        peer->deaf = 2;
        peer->parked = 0;
    }
    return 1;
}

int mesh_line_receive(mesh_peer *peer)
{
    if (peer->to_left)
        return receive_payload(peer);
    return peer->parked ? 0 : receive_header(peer);
}

void mesh_line_take(mesh_peer *peer, char *to, mesh_run_of_bytes *run)
{
    peer->parked = 0;
    if (peer->frame.kind != MESH_DATA)
        return;
    peer->to = to;
    peer->to_left = peer->frame.bytes;
    peer->to_run = run;
}

void mesh_line_abandon(mesh_peer *peer)
{
    if (peer->payload_left && !append_output(peer, NULL, peer->payload_left))
        peer->deaf = 2; /* the peer will find the line ended */
    peer->payload_left = 0;
    peer->to = NULL;
    peer->to_run = NULL;
}

/* ---- frames that need no call -------------------------------------------- */

mesh_frame mesh_frame_of(const mesh_channel *channel, const mesh_call *call,
                         uint32_t kind)
{
    return (mesh_frame){ .magic = MESH_FRAME_MAGIC,
                         .kind = (uint16_t)kind,
                         .channel = channel->key,
                         .number = channel->calls + 1,
                         .bytes = call->bytes,
                         .call_bytes = call->call_bytes,
                         .call = call->call,
                         .dtype = call->dtype,
                         .root = call->root,
                         .extra = call->extra };
}

mesh_offer_seen *mesh_find_offer(mesh_peer *peer, uint64_t channel,
                                 uint32_t call)
{
    for (uint32_t i = 0; i < MESH_OFFERS; i++) {
        mesh_offer_seen *o = &peer->offers[i];
        if (o->used && (!channel ||
                        (o->frame.channel == channel && o->frame.call == call)))
            return o;
    }
    return NULL;
}

/* Keeps an offer until this rank comes to its half. */
static int keep_offer(mesh_peer *peer)
{
    for (uint32_t i = 0; i < MESH_OFFERS; i++)
        if (!peer->offers[i].used) {
            peer->offers[i].frame = peer->frame;
            peer->offers[i].used = 1;
            peer->parked = 0;
            return 1;
        }
    return 0;
}

void mesh_drop_offers(mesh_comm *comm, mesh_peer *peer)
{
    for (uint32_t i = 0; i < MESH_OFFERS; i++) {
        mesh_offer_seen *o = &peer->offers[i];
        if (o->used &&
            mesh_is_broken(comm, o->frame.channel, o->frame.number, NULL))
            o->used = 0;
    }
}

int mesh_next_frame(mesh_comm *comm, mesh_peer *peer)
{
    const mesh_frame *f = &peer->frame;
    mesh_drop_offers(comm, peer);
    while (!peer->to_left) {
        if (!peer->parked && !mesh_line_receive(peer))
            return 0;
        if (!peer->parked)
            continue;
        if (f->kind == MESH_LEAVE) {
            peer->leaves = 1;
            peer->parked = 0;
        } else if (mesh_is_broken(comm, f->channel, f->number, NULL)) {
            mesh_line_take(peer, NULL, NULL);
        } else {
            if (f->kind == MESH_CALL || f->kind == MESH_OFFER)
                peer->seen = *f; /* for reports */
            if (f->kind != MESH_OFFER || !keep_offer(peer))
                return 1;
        }
    }
    return 0;
}
