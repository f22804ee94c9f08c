/* SPDX-License-Identifier: Apache-2.0
 *
 * The line between two processes, both of its ends in this one: whatever of a
 * frame goes at a time, frames and the descriptors they carry arrive in order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "core/actor/local.h"
#include "tests/actor/rig.h"

static xr_conn from;
static xr_conn to;

static int open_line(void **state)
{
    int pair[2];
    int small = 4096;
    (void)state;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0 ||
        setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) != 0)
        return -1;
    from = (xr_conn){ .fd = pair[0] };
    to = (xr_conn){ .fd = pair[1] };
    return 0;
}

static int close_line(void **state)
{
    (void)state;
    xr_conn_free(&from);
    xr_conn_free(&to);
    return 0;
}

/* A descriptor of memory that holds the number. */
static int numbered(uint64_t number)
{
    int fd = xr_local_memory("test", sizeof(number));
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
    return fd;
}

static size_t size_of(uint64_t id)
{
    static const size_t sizes[] = { 0, 1, 40, 3000, 9000, 50000 };
    if (id == 1) /* goes in parts, with a descriptor, over an empty line */
        return 50000;
    return sizes[id * 2654435761u / 7 % 6];
}

static int carries_fd(uint64_t id)
{
    return id % 3 == 1;
}

static unsigned char byte_of(uint64_t id, size_t i)
{
    return (unsigned char)(id * 31 + i * 7);
}

static void send_frame(uint64_t id)
{
    static unsigned char data[50000];
    size_t size = size_of(id);
    for (size_t i = 0; i < size; i++)
        data[i] = byte_of(id, i);
    int fd = carries_fd(id) ? numbered(id) : -1;
    const xr_frame frame = { fd >= 0 ? XR_FRAME_REGION : XR_FRAME_MESSAGE,
                             fd >= 0, size, id, id * 3 };
    assert_int_equal(xr_conn_send(&from, &frame, data, fd), 0);
    if (fd >= 0)
        assert_int_equal(close(fd), 0); /* it stays the caller's */
}

/* Takes what is whole; `next` is the number of the frame that comes. */
static void take_frames(uint64_t *next)
{
    xr_frame frame;
    const void *data = NULL;
    int fd = -1;
    int got = 0;
    while ((got = xr_conn_next(&to, &frame, &data, &fd)) == 1) {
        const unsigned char *bytes = data;
        assert_true(frame.id == *next && frame.bytes == *next * 3);
        assert_true(frame.size == size_of(*next));
        for (size_t i = 0; i < frame.size; i++)
            if (bytes[i] != byte_of(*next, i))
                fail_msg("frame %d: byte %zu", (int)*next, i);
        assert_int_equal(fd >= 0, carries_fd(*next));
        if (fd >= 0) {
            uint64_t number = 0;
            assert_int_equal(pread(fd, &number, sizeof(number), 0),
                             sizeof(number));
            assert_true(number == *next);
            assert_int_equal(close(fd), 0);
        }
        (*next)++;
    }
    assert_int_equal(got, 0);
}

/* Reads up to three times before it takes what is whole. */
static void read_some(uint64_t turn, uint64_t *next)
{
    for (uint64_t i = 0; i <= turn % 3; i++) {
        int bad = xr_conn_flush(&from);
        assert_true(bad == 0 || bad == EAGAIN);
        bad = xr_conn_read(&to);
        assert_true(bad == 0 || bad == EAGAIN);
    }
    take_frames(next);
}

/* Many are kept before the other side reads; more come when half of them have
 * gone, so that the rest moves to the front. */
static void frames_arrive_in_order(void **state)
{
    (void)state;
    enum { MANY = 400 };
    const uint32_t fds = rig_fds();
    uint64_t next = 0;
    for (uint64_t id = 0; id < MANY; id++) {
        send_frame(id);
        if (id % 20 == 19)
            for (uint64_t turn = 0; from.out_at <= from.out_size / 2; turn++)
                read_some(turn, &next);
    }
    assert_true(xr_conn_pending(&from));
    for (uint64_t turn = 0; turn < 100000 && next < MANY; turn++)
        read_some(turn, &next);
    assert_int_equal(next, MANY);
    assert_int_equal(xr_conn_flush(&from), 0);
    assert_false(xr_conn_pending(&from));
    assert_int_equal(xr_conn_read(&to), EAGAIN);
    assert_int_equal(rig_fds(), fds); /* none is kept */
    xr_conn_close(&from);
    assert_int_equal(xr_conn_read(&to), EPIPE);
}

/* What is kept when the line ends takes its descriptors along. */
static void ends_leave_no_descriptor(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    for (uint64_t id = 0; id < 40; id++)
        send_frame(id);
    assert_true(xr_conn_pending(&from));
    assert_true(rig_fds() > fds);
    xr_conn_close(&from);
    assert_false(xr_conn_pending(&from));
    xr_conn_free(&to);
    assert_int_equal(rig_fds(), fds - 2);
}

static void expect_bytes(const xr_frame *frame, int got)
{
    xr_frame out;
    const void *data = NULL;
    int fd = -1;
    (void)close_line(NULL);
    assert_int_equal(open_line(NULL), 0);
    assert_int_equal(write(from.fd, frame, sizeof(*frame)), sizeof(*frame));
    assert_int_equal(xr_conn_read(&to), 0);
    assert_int_equal(xr_conn_next(&to, &out, &data, &fd), got);
}

/* A header that is none of ours ends the line; one of a frame that is not whole
 * waits for the rest. */
static void heads_are_looked_at(void **state)
{
    (void)state;
    xr_frame frame = { XR_FRAME_MESSAGE, 0, 0, 0, 0 };
    expect_bytes(&frame, 1);
    frame.size = 1;
    expect_bytes(&frame, 0);
    frame.size = UINT64_C(8) << 30;
    expect_bytes(&frame, 0);
    frame.size++;
    expect_bytes(&frame, -1);
    frame = (xr_frame){ XR_FRAME_KINDS, 0, 0, 0, 0 };
    expect_bytes(&frame, -1);
    frame = (xr_frame){ XR_FRAME_KINDS - 1, 0, 0, 0, 0 };
    expect_bytes(&frame, 1);
    frame = (xr_frame){ XR_FRAME_REGION, 1, 0, 0, 0 }; /* and there is none */
    expect_bytes(&frame, -1);
    frame = (xr_frame){ XR_FRAME_REGION, 2, 0, 0, 0 };
    expect_bytes(&frame, -1);
    xr_frame out;
    const void *data = NULL;
    int fd = numbered(1);
    int got = -1;
    for (uint32_t has = 1; has <= 2; has++) {
        frame.has_fd = has;
        (void)close_line(NULL);
        assert_int_equal(open_line(NULL), 0);
        assert_int_equal(xr_conn_send(&from, &frame, NULL, fd), 0);
        assert_int_equal(xr_conn_read(&to), 0);
        assert_int_equal(xr_conn_next(&to, &out, &data, &got),
                         has == 1 ? 1 : -1);
        if (has == 1)
            assert_int_equal(close(got), 0);
    }
    assert_int_equal(close(fd), 0);
}

/* Memory that is announced has to be as long as it says, and to stay so. */
static void regions_are_looked_at(void **state)
{
    (void)state;
    static xray_peer peer;
    static const struct {
        uint64_t bytes;
        int sealed;
        int bad;
    } cases[] = { { 4096, 1, 0 },
                  { 4097, 1, EINVAL },
                  { 0, 1, EINVAL },
                  { 4096, 0, EINVAL },
                  { 1, 1, 0 } };
    const uint32_t fds = rig_fds();
    for (uint64_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const xr_frame frame = { XR_FRAME_REGION, 1, 0, i + 1, cases[i].bytes };
        int fd = cases[i].sealed ? xr_local_memory("test", 4096)
                                 : memfd_create("xray-open", MFD_CLOEXEC);
        assert_true(fd >= 0);
        if (!cases[i].sealed)
            assert_int_equal(ftruncate(fd, 4096), 0);
        assert_int_equal(xr_local_region_frame(&peer, &frame, fd),
                         cases[i].bad);
    }
    assert_int_equal(rig_fds(), fds); /* they are the frame's */
    assert_int_equal(peer.regions.count, 2);
    const xr_frame again = { XR_FRAME_REGION, 1, 0, 1, 4096 };
    assert_int_equal(
        xr_local_region_frame(&peer, &again, xr_local_memory("test", 4096)),
        EINVAL); /* one of that number is there */
    const xr_frame gone = { XR_FRAME_UNREGION, 0, 0, 1, 0 };
    assert_int_equal(xr_local_region_frame(&peer, &gone, -1), 0);
    assert_int_equal(peer.regions.count, 1);
    assert_int_equal(xr_local_region_frame(&peer, &gone, -1), 0);
    xr_local_regions_free(&peer.regions);
    assert_int_equal(rig_fds(), fds);
}

/* ---- phases ------------------------------------------------------------- */

static void phases_are_cut_and_cleaned(void **state)
{
    (void)state;
    static xr_local_slot slot;
    xr_local local = { .own = &slot };
    char text[100];
    char wide[100];
    memset(wide, 'w', sizeof(wide));
    wide[99] = '\0';
    xr_local_phase_set(&local, "forward of block 3");
    xr_local_phase_get(&slot, text, sizeof(text));
    assert_string_equal(text, "forward of block 3");
    xr_local_phase_set(&local, wide);
    xr_local_phase_get(&slot, text, sizeof(text));
    assert_int_equal(strlen(text), 63);
    assert_int_equal(strspn(text, "w"), 63);
    xr_local_phase_set(&local, "a\nb"); /* nothing of the longer one is left */
    xr_local_phase_get(&slot, text, sizeof(text));
    assert_string_equal(text, "a b");
    xr_local_phase_get(&slot, text, 3);
    assert_string_equal(text, "a ");
    local.own = NULL;
    xr_local_phase_set(&local, "of nobody");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) cmocka_unit_test_setup_teardown(name, open_line, close_line)
        CASE(frames_arrive_in_order),
        CASE(ends_leave_no_descriptor),
        CASE(heads_are_looked_at),
        cmocka_unit_test(regions_are_looked_at),
        cmocka_unit_test(phases_are_cut_and_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
