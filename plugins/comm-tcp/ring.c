/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory by which ranks of one host send each other the bytes of calls.
 * Each rank has an unlinked file with a ring for each other rank of its host,
 * which that one writes and this one reads. The line between the two still says
 * that one of them has ended, and wakes the one that sleeps.
 *
 * No wake-up is lost: who is about to sleep says so before it looks at the ring
 * for the last time, and the other one looks whether it sleeps after it has
 * changed the ring. Loads and stores of both are in one order (seq_cst).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugins/comm-tcp/tcp.h"

#define RING 0x80000u /* bytes on their way from one rank to another */
#define CHUNK                                                      \
    0x10000u /* bytes after which the reader sees what was written \
              */
#define PAGE 0x1000u
#define BELL 1 /* the byte that wakes a rank */
#define EACH (PAGE + RING)

struct tcp_ring {
    _Alignas(64) _Atomic uint64_t written; /* bytes so far */
    _Atomic uint32_t writer_sleeps;
    _Alignas(64) _Atomic uint64_t read;
    _Atomic uint32_t reader_sleeps;
};

_Static_assert(sizeof(tcp_ring) <= PAGE, "the bytes begin at a page");

static char *data_of(tcp_ring *ring)
{
    return (char *)ring + PAGE;
}

/* ---- making and finding ---------------------------------------------------
 */

static uint64_t file_bytes(const mesh_comm *comm)
{
    return PAGE + (uint64_t)comm->size * EACH;
}

void tcp_rings_make(mesh_comm *comm, tcp_card *card)
{
    card->rings_fd = -1;
    if (comm->size == 1 ||
        !tcp_random((uint8_t *)&card->rings, sizeof(card->rings)))
        return;
    int fd = memfd_create("xray-comm-tcp", MFD_CLOEXEC);
    if (fd < 0)
        return;
    void *base = MAP_FAILED;
    if (ftruncate(fd, (off_t)file_bytes(comm)) == 0)
        base = mmap(NULL, file_bytes(comm), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        (void)close(fd);
        return;
    }
    memcpy(base, &card->rings, sizeof(card->rings));
    tcp_lines_of(comm)->rings = base;
    tcp_lines_of(comm)->rings_fd = card->rings_fd = fd;
}

static int find_ring(const mesh_comm *comm, const tcp_card *card,
                     tcp_line *line)
{
    char path[64];
    uint64_t mark = 0;
    (void)snprintf(path, sizeof(path), "/proc/%u/fd/%d", card->rank.pid,
                   card->rings_fd);
    if (card->rings_fd < 0)
        return 0;
    int fd = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return 0;
    void *at = MAP_FAILED;
    if (pread(fd, &mark, sizeof(mark), 0) == (ssize_t)sizeof(mark) &&
        mark == card->rings)
        at =
            mmap(NULL, EACH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                 fd, (off_t)(PAGE + (uint64_t)comm->rank * EACH));
    (void)close(fd);
    line->ring_out = at == MAP_FAILED ? NULL : at;
    return at != MAP_FAILED;
}

int tcp_rings_find(mesh_comm *comm, const tcp_card *all)
{
    for (uint32_t r = 0; tcp_lines_of(comm)->rings && r < comm->size; r++)
        if (r != comm->rank && all[r].rank.host == all[comm->rank].rank.host &&
            !find_ring(comm, &all[r], comm->peers[r].line))
            return 0;
    return tcp_lines_of(comm)->rings != NULL;
}

static void drop_ring(tcp_line *line)
{
    if (line->ring_out)
        (void)munmap(line->ring_out, EACH);
    line->ring_out = line->ring_in = NULL;
}

static void log_loopback(const mesh_comm *comm, uint32_t other)
{
    char line[160];
    if (!mesh_logs(comm, XRAY_LOG_WARN))
        return;
    (void)snprintf(line, sizeof(line),
                   "comm tcp: rank %u shares no memory with rank %u of its "
                   "host, and sends over the loopback",
                   comm->rank, other);
    comm->host->log(comm->host, XRAY_LOG_WARN, line);
}

void tcp_rings_keep(mesh_comm *comm, const tcp_card *all)
{
    uint32_t kept = 0;
    for (uint32_t r = 0; r < comm->size; r++) {
        tcp_line *line = comm->peers[r].line;
        if (r == comm->rank || all[r].rank.host != all[comm->rank].rank.host)
            continue;
        if (!line->ring_out || !all[r].maps || !all[comm->rank].maps) {
            log_loopback(comm, r);
            drop_ring(line);
            continue;
        }
        kept++;
        line->ring_in = (tcp_ring *)(void *)(tcp_lines_of(comm)->rings + PAGE +
                                             (uint64_t)r * EACH);
    }
    if (tcp_lines_of(comm)->rings_fd >= 0)
        (void)close(tcp_lines_of(comm)->rings_fd);
    tcp_lines_of(comm)->rings_fd = -1;
    if (!kept)
        tcp_rings_free(comm);
}

void tcp_rings_free(mesh_comm *comm)
{
    for (uint32_t r = 0; r < comm->size; r++)
        drop_ring(&tcp_lines_of(comm)->of[r]);
    if (tcp_lines_of(comm)->rings)
        (void)munmap(tcp_lines_of(comm)->rings, file_bytes(comm));
    tcp_lines_of(comm)->rings = NULL;
    if (tcp_lines_of(comm)->rings_fd >= 0)
        (void)close(tcp_lines_of(comm)->rings_fd);
    tcp_lines_of(comm)->rings_fd = -1;
}

/* ---- bytes ----------------------------------------------------------------
 */

static void wake_peer(const tcp_line *line, _Atomic uint32_t *sleeps)
{
    static const char bell = BELL;
    if (atomic_load(sleeps) && atomic_exchange(sleeps, 0))
        (void)!send(line->calls, &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Copies between a ring, from byte `at` of all that pass it, and memory. */
static void copy_bytes(tcp_ring *ring, uint64_t at, char *memory,
                       uint64_t bytes, int writes)
{
    while (bytes) {
        char *there = data_of(ring) + at % RING;
        uint64_t n = RING - at % RING < bytes ? RING - at % RING : bytes;
        memcpy(writes ? there : memory, writes ? memory : there, n);
        at += n;
        memory += n;
        bytes -= n;
    }
}

static uint64_t count_room(tcp_ring *ring)
{
    return RING - (atomic_load(&ring->written) - atomic_load(&ring->read));
}

static uint64_t count_bytes(tcp_ring *ring)
{
    return atomic_load(&ring->written) - atomic_load(&ring->read);
}

uint64_t tcp_ring_write(tcp_line *line, const struct iovec *parts, size_t count)
{
    tcp_ring *ring = line->ring_out;
    uint64_t at = atomic_load(&ring->written);
    uint64_t begin = at;
    uint64_t room = count_room(ring);
    for (size_t i = 0; i < count; i++)
        for (uint64_t done = 0; room && done < parts[i].iov_len;) {
            uint64_t n = parts[i].iov_len - done;
            n = n < CHUNK ? n : CHUNK;
            n = n < room ? n : room;
            copy_bytes(ring, at, (char *)parts[i].iov_base + done, n, 1);
            at += n;
            done += n;
            room -= n;
            atomic_store(&ring->written, at);
        }
    if (at != begin)
        wake_peer(line, &ring->reader_sleeps);
    return at - begin;
}

uint64_t tcp_ring_read(tcp_line *line, const struct iovec *parts, size_t count)
{
    tcp_ring *ring = line->ring_in;
    uint64_t at = atomic_load(&ring->read);
    uint64_t begin = at;
    uint64_t have = count_bytes(ring);
    for (size_t i = 0; i < count && have; i++) {
        uint64_t n = parts[i].iov_len < have ? parts[i].iov_len : have;
        copy_bytes(ring, at, parts[i].iov_base, n, 0);
        at += n;
        have -= n;
    }
    atomic_store(&ring->read, at);
    /* A writer that waits has filled the ring, and goes on when half of it is
     * free. */
    if (at != begin && count_bytes(ring) <= RING / 2)
        wake_peer(line, &ring->writer_sleeps);
    return at - begin;
}

/* ---- sleeping -------------------------------------------------------------
 */

int tcp_ring_may_sleep(const tcp_line *line, int reads, int writes)
{
    if (reads)
        atomic_store(&line->ring_in->reader_sleeps, 1);
    if (writes)
        atomic_store(&line->ring_out->writer_sleeps, 1);
    return !(reads && count_bytes(line->ring_in)) &&
           !(writes && count_room(line->ring_out) >= RING / 2);
}

void tcp_ring_wake(mesh_peer *peer)
{
    tcp_line *line = peer->line;
    char bells[256];
    uint32_t none = 0;
    ssize_t got = recv(line->calls, bells, sizeof(bells), MSG_DONTWAIT);
    for (ssize_t i = 0; i < got; i++)
        if (bells[i] != BELL) {
            (void)atomic_compare_exchange_strong(&peer->fate, &none,
                                                 MESH_GARBLED);
            peer->deaf = 2;
        }
    if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    line->hung = 1;
    if (!peer->deaf)
        peer->deaf = 1;
}
