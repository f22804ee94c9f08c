/* SPDX-License-Identifier: Apache-2.0
 *
 * The line of calls to another rank: sends and receives frames as far as the
 * system takes and gives without waiting. Payloads go from and to the buffers
 * of the call; only what arrives together with a header is copied once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "plugins/comm-tcp/tcp.h"

/* ---- sending ------------------------------------------------------------ */

static int append_output(tcp_peer *peer, const void *bytes, uint64_t size)
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

int tcp_line_put(tcp_peer *peer, const tcp_frame *frame)
{
    return append_output(peer, frame, sizeof(*frame));
}

int tcp_line_is_idle(const tcp_peer *peer)
{
    return peer->deaf ||
           (peer->out_at == peer->out_used && !peer->payload_left);
}

static void count_sent(tcp_peer *peer, uint64_t sent)
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

static ssize_t write_line(tcp_peer *peer, const struct msghdr *message)
{
    if (!peer->ring_out)
        return sendmsg(peer->calls, message, MSG_NOSIGNAL | MSG_DONTWAIT);
    uint64_t sent = tcp_ring_write(peer, message->msg_iov, message->msg_iovlen);
    errno = EAGAIN;
    return sent ? (ssize_t)sent : -1;
}

void tcp_line_send(tcp_peer *peer)
{
    while (!tcp_line_is_idle(peer)) {
        struct iovec parts[2];
        struct msghdr message = { .msg_iov = parts };
        uint64_t headers = peer->out_used - peer->out_at;
        if (headers)
            parts[message.msg_iovlen++] =
                (struct iovec){ peer->out + peer->out_at, headers };
        if (peer->payload_left) {
            struct iovec *part = &parts[message.msg_iovlen++];
            memcpy(&part->iov_base, &peer->payload, sizeof(void *));
            part->iov_len = peer->payload_left;
        }
        ssize_t sent = write_line(peer, &message);
        if (sent > 0) {
            count_sent(peer, (uint64_t)sent);
        } else if (errno == EAGAIN) {
            return;
        } else if (errno != EINTR) {
            /* All that came before the end can still be read; the end of the
             * other direction tells the fate. */
            peer->deaf = 1;
        }
    }
}

/* ---- receiving ---------------------------------------------------------- */

static void set_fate(tcp_peer *peer, uint32_t fate)
{
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(&peer->fate, &none, fate);
}

static void end_line(tcp_peer *peer, int reason)
{
    int silent = reason == ETIMEDOUT || reason == EHOSTUNREACH ||
                 reason == ENETUNREACH || reason == EHOSTDOWN;
    set_fate(peer, peer->leaves ? TCP_LEFT : silent ? TCP_SILENT : TCP_DEAD);
    peer->deaf = 2;
}

/* Returns the number of bytes that were received to the parts, 0 if there are
 * none yet, or if the line has ended. */
static uint64_t read_line(tcp_peer *peer, struct iovec *parts, size_t count)
{
    struct msghdr message = { .msg_iov = parts, .msg_iovlen = count };
    if (peer->deaf == 2)
        return 0;
    if (peer->ring_in) {
        /* A rank's last bytes are there once its end is known. */
        uint32_t hung = peer->hung;
        uint64_t read = tcp_ring_read(peer, parts, count);
        if (!read && hung)
            end_line(peer, 0);
        return read;
    }
    ssize_t got = recvmsg(peer->calls, &message, MSG_DONTWAIT);
    if (got > 0)
        return (uint64_t)got;
    if (got == 0)
        end_line(peer, 0);
    else if (errno != EAGAIN && errno != EINTR)
        end_line(peer, errno);
    return 0;
}

static uint64_t take_buffered(tcp_peer *peer, void *to, uint64_t size)
{
    uint64_t have = peer->in_used - peer->in_at;
    uint64_t n = have < size ? have : size;
    if (to)
        memcpy(to, peer->in + peer->in_at, n);
    peer->in_at += (uint32_t)n;
    return n;
}

/* Bytes of the current segment of a run, or of its current piece. */
static uint64_t count_current(const tcp_run_of_bytes *run)
{
    uint64_t bytes = run->segments[run->current].bytes;
    uint64_t first = (uint64_t)run->round * TCP_PIECE;
    if (!run->deals)
        return bytes;
    if (bytes <= first)
        return 0;
    return bytes - first < TCP_PIECE ? bytes - first : TCP_PIECE;
}

void tcp_run_advance(tcp_run_of_bytes *run, uint64_t bytes)
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

tcp_segment tcp_run_next(const tcp_run_of_bytes *run)
{
    uint64_t at = (uint64_t)run->round * TCP_PIECE + run->in_current;
    uint64_t left = count_current(run) - run->in_current;
    char *memory = run->segments[run->current].at;
    return (tcp_segment){ memory ? memory + (run->wraps ? at % run->wraps : at)
                                 : NULL,
                          left < TCP_PIECE ? left : TCP_PIECE };
}

/* Receives payload, and what there is of the next header. Returns 1 if anything
 * came. */
static int receive_payload(tcp_peer *peer)
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
        tcp_run_advance(peer->to_run, got);
    if (!peer->to_left)
        peer->to_run = NULL;
    return got > 0;
}

static int receive_header(tcp_peer *peer)
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
    if (!tcp_frame_is_valid(&peer->frame)) {
        set_fate(peer, TCP_GARBLED);
        peer->deaf = 2;
        peer->parked = 0;
    }
    return 1;
}

int tcp_line_receive(tcp_peer *peer)
{
    if (peer->to_left)
        return receive_payload(peer);
    return peer->parked ? 0 : receive_header(peer);
}

void tcp_line_take(tcp_peer *peer, char *to, tcp_run_of_bytes *run)
{
    peer->parked = 0;
    if (peer->frame.kind != TCP_DATA)
        return;
    peer->to = to;
    peer->to_left = peer->frame.bytes;
    peer->to_run = run;
}

void tcp_line_abandon(tcp_peer *peer)
{
    if (peer->payload_left && !append_output(peer, NULL, peer->payload_left))
        peer->deaf = 2; /* the peer will find the line ended */
    peer->payload_left = 0;
    peer->to = NULL;
    peer->to_run = NULL;
}

/* ---- frames that need no call -------------------------------------------- */

tcp_frame tcp_frame_of(const tcp_channel *channel, const tcp_call *call,
                       uint32_t kind)
{
    return (tcp_frame){ .magic = TCP_FRAME_MAGIC,
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

tcp_offer_seen *tcp_find_offer(tcp_peer *peer, uint64_t channel, uint32_t call)
{
    for (uint32_t i = 0; i < TCP_OFFERS; i++) {
        tcp_offer_seen *o = &peer->offers[i];
        if (o->used && (!channel ||
                        (o->frame.channel == channel && o->frame.call == call)))
            return o;
    }
    return NULL;
}

/* Keeps an offer until this rank comes to its half. */
static int keep_offer(tcp_peer *peer)
{
    for (uint32_t i = 0; i < TCP_OFFERS; i++)
        if (!peer->offers[i].used) {
            peer->offers[i].frame = peer->frame;
            peer->offers[i].used = 1;
            peer->parked = 0;
            return 1;
        }
    return 0;
}

int tcp_next_frame(tcp_comm *comm, tcp_peer *peer)
{
    const tcp_frame *f = &peer->frame;
    while (!peer->to_left) {
        if (!peer->parked && !tcp_line_receive(peer))
            return 0;
        if (!peer->parked)
            continue;
        if (f->kind == TCP_LEAVE) {
            peer->leaves = 1;
            peer->parked = 0;
        } else if (tcp_is_broken(comm, f->channel, f->number, NULL)) {
            tcp_line_take(peer, NULL, NULL);
        } else {
            if (f->kind == TCP_CALL || f->kind == TCP_OFFER)
                peer->seen = *f; /* for reports */
            if (f->kind != TCP_OFFER || !keep_offer(peer))
                return 1;
        }
    }
    return 0;
}
