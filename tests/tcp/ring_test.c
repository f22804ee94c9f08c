/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the rings by which ranks of one host pass bytes to each other: all
 * arrive in order, however they are cut, and who sleeps is woken by what lets
 * it go on. A rank that is not woken looks again after some time, so that only
 * here it is noticed.
 */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <xray/numerics.h>

#include "plugins/comm-tcp/tcp.h"
#include "tests/testing.h"

#define RING 0x80000u       /* bytes that a ring holds */
#define MEMORY (2u * RING)  /* more than a ring with its counters needs */
#define TURNS 4000u         /* of bytes that pass it */
#define MOST (RING / 2 + 9) /* bytes of a turn */

/* A ring, and the ends of the line between its two ranks. */
static struct {
    void *memory;
    tcp_line writer;
    tcp_line reader;
    char *bytes; /* any, as many as a ring holds */
} rig;

static int open_rig(void **state)
{
    int ends[2];
    (void)state;
    rig.memory = aligned_alloc(64, MEMORY);
    rig.bytes = calloc(1, RING);
    if (!rig.memory || !rig.bytes ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return -1;
    memset(rig.memory, 0, MEMORY);
    rig.writer = (tcp_line){ .ring_out = rig.memory, .calls = ends[0] };
    rig.reader = (tcp_line){ .ring_in = rig.memory, .calls = ends[1] };
    return 0;
}

static int close_rig(void **state)
{
    (void)state;
    (void)close(rig.writer.calls);
    (void)close(rig.reader.calls);
    free(rig.memory);
    free(rig.bytes);
    return 0;
}

static uint64_t write_bytes(uint64_t n)
{
    const struct iovec part = { rig.bytes, n };
    return tcp_ring_write(&rig.writer, &part, 1);
}

static uint64_t read_bytes(uint64_t n)
{
    const struct iovec part = { rig.bytes, n };
    return tcp_ring_read(&rig.reader, &part, 1);
}

/* How often a rank was woken since the last question. */
static int count_bells(const tcp_line *line)
{
    char bells[64];
    ssize_t got = recv(line->calls, bells, sizeof(bells), MSG_DONTWAIT);
    return got > 0 ? (int)got : 0;
}

static void a_reader_that_sleeps_is_woken_by_the_first_byte(void **state)
{
    (void)state;
    assert_true(tcp_ring_may_sleep(&rig.reader, 1, 0));
    assert_int_equal(count_bells(&rig.reader), 0);
    assert_int_equal(write_bytes(1), 1);
    assert_int_equal(count_bells(&rig.reader), 1);
    assert_int_equal(write_bytes(1), 1); /* it is awake */
    assert_int_equal(count_bells(&rig.reader), 0);
    assert_false(tcp_ring_may_sleep(&rig.reader, 1, 0));
    assert_int_equal(read_bytes(3), 2);
    assert_true(tcp_ring_may_sleep(&rig.reader, 1, 0));
}

static void a_writer_that_sleeps_is_woken_when_half_is_free(void **state)
{
    (void)state;
    assert_int_equal(write_bytes(RING), RING);
    assert_int_equal(write_bytes(1), 0);
    assert_true(tcp_ring_may_sleep(&rig.writer, 0, 1));
    assert_int_equal(read_bytes(RING / 2 - 1), RING / 2 - 1);
    assert_int_equal(count_bells(&rig.writer), 0);
    assert_true(tcp_ring_may_sleep(&rig.writer, 0, 1));
    assert_int_equal(read_bytes(1), 1);
    assert_int_equal(count_bells(&rig.writer), 1);
    assert_int_equal(read_bytes(1), 1);
    assert_int_equal(count_bells(&rig.writer), 0);
    assert_false(tcp_ring_may_sleep(&rig.writer, 0, 1));
}

/* A bell costs a call of the system on both sides. */
static void who_does_not_sleep_is_not_woken(void **state)
{
    (void)state;
    assert_int_equal(write_bytes(RING), RING);
    assert_int_equal(read_bytes(RING), RING);
    /* Each waits for one thing only. */
    assert_true(tcp_ring_may_sleep(&rig.writer, 0, 0));
    assert_true(tcp_ring_may_sleep(&rig.reader, 0, 0));
    assert_int_equal(write_bytes(RING), RING);
    assert_int_equal(read_bytes(RING), RING);
    assert_int_equal(count_bells(&rig.writer), 0);
    assert_int_equal(count_bells(&rig.reader), 0);
    /* Nothing was read, so there is no more room than before. */
    assert_int_equal(read_bytes(RING), 0);
    assert_false(tcp_ring_may_sleep(&rig.writer, 0, 1));
    assert_int_equal(read_bytes(RING), 0);
    assert_int_equal(count_bells(&rig.writer), 0);
}

static char byte_at(uint64_t at)
{
    return (char)(at * 31 + at / 251);
}

/* Cuts `n` bytes into three parts. */
static void cut_parts(struct iovec parts[3], char *memory, uint64_t n,
                      uint64_t salt)
{
    const uint64_t first = n ? salt % n : 0;
    const uint64_t second = n - first ? (salt >> 20) % (n - first) : 0;
    parts[0] = (struct iovec){ memory, first };
    parts[1] = (struct iovec){ memory + first, second };
    parts[2] = (struct iovec){ memory + first + second, n - first - second };
}

static void bytes_arrive_in_order_however_they_are_cut(void **state)
{
    static char memory[MOST];
    uint64_t written = 0;
    uint64_t read = 0;
    (void)state;
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        const uint64_t salt = xray_mix64(turn, 7);
        const uint64_t n = salt % 5 ? (salt >> 8) % 3000 : (salt >> 8) % MOST;
        struct iovec parts[3];
        cut_parts(parts, memory, n, salt >> 13);
        if (salt & 32) {
            const uint64_t room = RING - (written - read);
            for (uint64_t i = 0; i < n; i++)
                memory[i] = byte_at(written + i);
            assert_int_equal(tcp_ring_write(&rig.writer, parts, 3),
                             n < room ? n : room);
            written += n < room ? n : room;
        } else {
            const uint64_t have = written - read;
            assert_int_equal(tcp_ring_read(&rig.reader, parts, 3),
                             n < have ? n : have);
            for (uint64_t i = 0; i < n && i < have; i++)
                if (memory[i] != byte_at(read + i))
                    fail_msg("byte %llu is another one",
                             (unsigned long long)(read + i));
            read += n < have ? n : have;
        }
    }
    assert_true(read > 8 * RING);
}

/* The bytes that a rank wrote before it ended are read first. */
static void the_end_of_a_line_is_behind_its_last_byte(void **state)
{
    static mesh_peer peer;
    const struct iovec part = { rig.bytes, 3 };
    int reason = 5;
    (void)state;
    peer = (mesh_peer){ .line = &rig.reader };
    assert_int_equal(tcp_transport.receive(&peer, &part, 1, &reason), 0);
    assert_int_equal(reason, 0);
    assert_int_equal(write_bytes(5), 5);
    rig.reader.hung = 1;
    assert_int_equal(tcp_transport.receive(&peer, &part, 1, &reason), 3);
    assert_int_equal(tcp_transport.receive(&peer, &part, 1, &reason), 2);
    assert_int_equal(tcp_transport.receive(&peer, &part, 1, &reason), -1);
    assert_int_equal(reason, 0);
}

/* Of a line with a ring only bells come, and its end. */
static void what_wakes_a_rank_is_told_apart(void **state)
{
    static mesh_peer peer;
    const char bell = 1;
    (void)state;
    peer = (mesh_peer){ .line = &rig.reader };
    tcp_ring_wake(&peer); /* by something else */
    assert_int_equal(send(rig.writer.calls, &bell, 1, MSG_NOSIGNAL), 1);
    tcp_ring_wake(&peer);
    assert_int_equal(count_bells(&rig.reader), 0);
    assert_true(!peer.deaf && !peer.fate && !rig.reader.hung);
    peer.fate = MESH_LEFT; /* known before, and the first cause */
    assert_int_equal(send(rig.writer.calls, "x", 1, MSG_NOSIGNAL), 1);
    tcp_ring_wake(&peer);
    assert_true(peer.deaf == 2 && peer.fate == MESH_LEFT);
    peer = (mesh_peer){ .line = &rig.reader };
    assert_int_equal(send(rig.writer.calls, "x", 1, MSG_NOSIGNAL), 1);
    tcp_ring_wake(&peer);
    assert_true(peer.deaf == 2 && peer.fate == MESH_GARBLED);
    assert_false(rig.reader.hung);
    (void)shutdown(rig.writer.calls, SHUT_RDWR);
    tcp_ring_wake(&peer); /* nothing better is known of it by its end */
    assert_true(rig.reader.hung && peer.deaf == 2);
    assert_int_equal(peer.fate, MESH_GARBLED);
    peer = (mesh_peer){ .line = &rig.reader };
    rig.reader.hung = 0;
    tcp_ring_wake(&peer);
    assert_true(rig.reader.hung && peer.deaf == 1 && !peer.fate);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_rig, close_rig)
    const struct CMUnitTest tests[] = {
        CASE(a_reader_that_sleeps_is_woken_by_the_first_byte),
        CASE(a_writer_that_sleeps_is_woken_when_half_is_free),
        CASE(who_does_not_sleep_is_not_woken),
        CASE(bytes_arrive_in_order_however_they_are_cut),
        CASE(the_end_of_a_line_is_behind_its_last_byte),
        CASE(what_wakes_a_rank_is_told_apart),
    };
    return cmocka_run_group_tests_name("tcp.ring", tests, NULL, NULL);
}
