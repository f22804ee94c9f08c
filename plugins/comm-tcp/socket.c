/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries the lines of a mesh over connections, and over rings of memory
 * among ranks of one host. That a host is silent is noticed by the system,
 * which probes idle lines (connect.c), so a rank that was stopped or runs late
 * is never taken for one that is gone.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"

/* ---- the line of calls --------------------------------------------------- */

static int64_t send_bytes(mesh_peer *peer, const struct iovec *parts,
                          size_t count)
{
    tcp_line *line = peer->line;
    struct msghdr message = { .msg_iovlen = count };
    if (line->ring_out)
        return (int64_t)tcp_ring_write(line, parts, count);
    memcpy(&message.msg_iov, &parts, sizeof(parts)); /* it is only read */
    for (;;) {
        ssize_t sent =
            sendmsg(line->calls, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            return sent;
        if (errno != EINTR)
            return errno == EAGAIN ? 0 : -1;
    }
}

static int64_t receive_bytes(mesh_peer *peer, const struct iovec *parts,
                             size_t count, int *out_reason)
{
    tcp_line *line = peer->line;
    struct msghdr message = { .msg_iovlen = count };
    *out_reason = 0;
    if (line->ring_in) {
        /* A rank's last bytes are there once its end is known. */
        uint32_t hung = line->hung;
        uint64_t read = tcp_ring_read(line, parts, count);
        return !read && hung ? -1 : (int64_t)read;
    }
    memcpy(&message.msg_iov, &parts, sizeof(parts)); /* it is only written to */
    ssize_t got = recvmsg(line->calls, &message, MSG_DONTWAIT);
    if (got > 0)
        return got;
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    *out_reason = got ? errno : 0;
    return -1;
}

/* ---- waiting ------------------------------------------------------------- */

static void wait_for_line(mesh_wait *wait, mesh_peer *peer, int reads,
                          int writes)
{
    const tcp_line *line = peer->line;
    short events = (short)((reads ? POLLIN : 0) | (writes ? POLLOUT : 0));
    if (line->ring_in) {
        if (line->hung || !tcp_ring_may_sleep(line, reads, writes))
            wait->ready = 1;
        events = POLLIN;
    }
    wait->peers[wait->count] = peer;
    wait->fds[wait->count++] =
        (struct pollfd){ line->hung ? -1 : line->calls, events, 0 };
}

static void sleep_on_lines(mesh_wait *wait, int ms)
{
    uint64_t news;
    wait->fds[wait->count++] = (struct pollfd){ wait->comm->wake, POLLIN, 0 };
    (void)poll(wait->fds, wait->count, wait->ready ? 0 : ms);
    if (wait->fds[wait->count - 1].revents)
        (void)!read(wait->comm->wake, &news, sizeof(news));
    for (uint32_t i = 0; i + 1 < wait->count; i++)
        if (tcp_line_of(wait->peers[i])->ring_in && wait->fds[i].revents)
            tcp_ring_wake(wait->peers[i]);
}

/* ---- notes --------------------------------------------------------------- */

static void send_note(mesh_comm *comm, uint32_t rank, const mesh_note *note)
{
    (void)!send(tcp_line_of(&comm->peers[rank])->notes, note, sizeof(*note),
                MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The line has ended: no further note comes. */
static void end_notes(mesh_comm *comm, uint32_t rank, int reason)
{
    tcp_line *line = comm->peers[rank].line;
    mesh_end_notes(comm, rank, reason);
    (void)close(line->notes);
    line->notes = -1;
}

void tcp_read_notes(mesh_comm *comm, uint32_t rank)
{
    tcp_line *line = comm->peers[rank].line;
    mesh_note note;
    (void)pthread_mutex_lock(&comm->lock);
    while (line->notes >= 0) {
        ssize_t got = recv(line->notes, line->note + line->note_used,
                           sizeof(note) - line->note_used, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && errno == EAGAIN)
            break;
        if (got <= 0) {
            end_notes(comm, rank, got ? errno : 0);
            break;
        }
        line->note_used += (uint32_t)got;
        if (line->note_used < sizeof(note))
            continue;
        line->note_used = 0;
        memcpy(&note, line->note, sizeof(note));
        if (!mesh_take_note(comm, rank, &note))
            end_notes(comm, rank, EBADMSG);
    }
    (void)pthread_mutex_unlock(&comm->lock);
}

static void read_all_notes(mesh_comm *comm, const struct pollfd *fds)
{
    for (uint32_t r = 0; r < comm->size; r++)
        if (r != comm->rank && fds[r].revents)
            tcp_read_notes(comm, r);
}

static void watch_notes(mesh_comm *comm)
{
    struct pollfd fds[MESH_MOST_RANKS + 1];
    for (;;) {
        (void)pthread_mutex_lock(&comm->lock);
        for (uint32_t r = 0; r < comm->size; r++)
            fds[r] =
                (struct pollfd){ tcp_lines_of(comm)->of[r].notes, POLLIN, 0 };
        (void)pthread_mutex_unlock(&comm->lock);
        fds[comm->size] = (struct pollfd){ comm->end, POLLIN, 0 };
        if (poll(fds, comm->size + 1, -1) < 0)
            continue;
        if (fds[comm->size].revents)
            return;
        read_all_notes(comm, fds);
    }
}

/* ---- the end --------------------------------------------------------------
 */

/* Closing a line with bytes that were not read would drop what it still has to
 * send. */
static void close_line(int fd)
{
    char scrap[4096];
    if (fd < 0)
        return;
    (void)shutdown(fd, SHUT_WR);
    for (uint32_t i = 0; i < 64; i++)
        if (recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT) <= 0)
            break;
    (void)close(fd);
}

static void close_lines(mesh_comm *comm)
{
    tcp_lines *lines = comm->lines;
    for (uint32_t r = 0; r < comm->size; r++) {
        close_line(lines->of[r].calls);
        close_line(lines->of[r].notes);
    }
    tcp_rings_free(comm);
    free(lines->of);
    free(lines);
}

const mesh_transport tcp_transport = {
    .name = "tcp",
    .send = send_bytes,
    .receive = receive_bytes,
    .wait_for = wait_for_line,
    .sleep = sleep_on_lines,
    .send_note = send_note,
    .watch = watch_notes,
    .close = close_lines,
};
