/* SPDX-License-Identifier: Apache-2.0
 *
 * The connection between two processes, with both ends in this one: frames and
 * the descriptors that they carry arrive in order, however few bytes are sent
 * at a time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "core/actor/local.h"
#include "tests/actor/rig.h"

static xr_conn from;
static xr_conn to;

static int open_connection(void **state)
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

static int close_connection(void **state)
{
    (void)state;
    xr_conn_free(&from);
    xr_conn_free(&to);
    return 0;
}

/* A descriptor of memory that holds the number. */
static int make_numbered_memory(uint64_t number)
{
    int fd = xr_memory_make("test", sizeof(number));
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &number, sizeof(number), 0), sizeof(number));
    return fd;
}

static size_t size_of_frame(uint64_t id)
{
    static const size_t sizes[] = { 0, 1, 40, 3000, 9000, 50000 };
    if (id == 1) /* sent in parts, with a descriptor, with nothing queued */
        return 50000;
    return sizes[id * 2654435761u / 7 % 6];
}

static int frame_carries_fd(uint64_t id)
{
    return id % 3 == 1;
}

static unsigned char byte_of_frame(uint64_t id, size_t i)
{
    return (unsigned char)(id * 31 + i * 7);
}

static void send_frame(uint64_t id)
{
    static unsigned char data[50000];
    size_t size = size_of_frame(id);
    for (size_t i = 0; i < size; i++)
        data[i] = byte_of_frame(id, i);
    int fd = frame_carries_fd(id) ? make_numbered_memory(id) : -1;
    const xr_frame frame = { fd >= 0 ? XR_FRAME_REGION : XR_FRAME_MESSAGE,
                             fd >= 0, size, id, id * 3 };
    assert_int_equal(xr_conn_send(&from, &frame, data, fd), 0);
    if (fd >= 0)
        assert_int_equal(close(fd), 0); /* it stays the caller's */
}

/* Checks the complete frames; `next` is the number of the next one. */
static void check_complete_frames(uint64_t *next)
{
    xr_frame frame;
    const void *data = NULL;
    int fd = -1;
    int got = 0;
    while ((got = xr_conn_next(&to, &frame, &data, &fd)) == 1) {
        const unsigned char *bytes = data;
        assert_true(frame.id == *next && frame.bytes == *next * 3);
        assert_true(frame.size == size_of_frame(*next));
        for (size_t i = 0; i < frame.size; i++)
            if (bytes[i] != byte_of_frame(*next, i))
                fail_msg("frame %d: byte %zu", (int)*next, i);
        assert_int_equal(fd >= 0, frame_carries_fd(*next));
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

/* Reads up to three times before it checks the complete frames. */
static void read_some_bytes(uint64_t turn, uint64_t *next)
{
    for (uint64_t i = 0; i <= turn % 3; i++) {
        int bad = xr_conn_flush(&from);
        assert_true(bad == 0 || bad == EAGAIN);
        bad = xr_conn_read(&to);
        assert_true(bad == 0 || bad == EAGAIN);
    }
    check_complete_frames(next);
}

/* Many frames are queued before the other side reads, and more once half of
 * them were sent, so that the rest moves to the front of the queue. */
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
                read_some_bytes(turn, &next);
    }
    assert_true(xr_conn_pending(&from));
    for (uint64_t turn = 0; turn < 100000 && next < MANY; turn++)
        read_some_bytes(turn, &next);
    assert_int_equal(next, MANY);
    assert_int_equal(xr_conn_flush(&from), 0);
    assert_false(xr_conn_pending(&from));
    assert_int_equal(xr_conn_read(&to), EAGAIN);
    assert_int_equal(rig_fds(), fds); /* none is kept */
    xr_conn_close(&from);
    assert_int_equal(xr_conn_read(&to), EPIPE);
}

/* As many descriptors as a connection holds wait until their frames are taken,
 * each with its own. Nothing more is read before. */
static void descriptors_wait_for_their_frames(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    for (uint64_t id = 0; id < XR_MEMORY_FDS; id++) {
        int fd = make_numbered_memory(id);
        const xr_frame frame = { XR_FRAME_REGION, 1, 0, id, 0 };
        assert_int_equal(xr_conn_send(&from, &frame, NULL, fd), 0);
        assert_int_equal(close(fd), 0);
        assert_int_equal(xr_conn_read(&to), 0);
    }
    assert_int_equal(xr_conn_read(&to), EMFILE);
    for (uint64_t id = 0; id < XR_MEMORY_FDS; id++) {
        xr_frame frame;
        const void *data = NULL;
        uint64_t number = 0;
        int fd = -1;
        assert_int_equal(xr_conn_next(&to, &frame, &data, &fd), 1);
        assert_int_equal(pread(fd, &number, sizeof(number), 0), sizeof(number));
        assert_true(frame.id == id && number == id);
        assert_int_equal(close(fd), 0);
    }
    assert_int_equal(rig_fds(), fds);
    assert_int_equal(xr_conn_read(&to), EAGAIN);
}

/* The queued frames of a closed connection close their descriptors. */
static void closing_leaves_no_descriptor(void **state)
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

/* Sets how many descriptors this process may have, and returns the number
 * before. */
static rlim_t limit_descriptors(rlim_t count)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = count;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    return before;
}

/* A frame whose descriptor cannot be kept until it is sent, or cannot be
 * received, would leave its region without memory. */
static void missing_descriptors_are_reported(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    const xr_frame frame = { XR_FRAME_REGION, 1, 0, 1, 0 };
    int fd = make_numbered_memory(1);
    assert_int_equal(xr_conn_send(&from, &frame, NULL, fd), 0);
    rlim_t before = limit_descriptors(1);
    int bad = xr_conn_read(&to);
    (void)limit_descriptors(before);
    assert_int_equal(bad, EMFILE);
    for (uint64_t id = 0; !xr_conn_pending(&from); id += 3)
        send_frame(id);
    before = limit_descriptors(1);
    bad = xr_conn_send(&from, &frame, NULL, fd);
    (void)limit_descriptors(before);
    assert_int_equal(bad, EMFILE);
    assert_int_equal(close(fd), 0);
    assert_int_equal(rig_fds(), fds);
}

/* More descriptors than there is room for are closed, and it is remembered that
 * some were lost. */
static void descriptors_without_room_are_lost(void **state)
{
    (void)state;
    const uint32_t fds = rig_fds();
    xr_memory_fds kept = { .count = 0 };
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    for (uint64_t id = 0; id < XR_MEMORY_FDS + 3; id++) {
        char byte = 'x';
        struct iovec piece = { &byte, 1 };
        struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
        int fd = make_numbered_memory(id);
        assert_int_equal(xr_memory_send(ends[0], &piece, 1, fd), 1);
        assert_int_equal(close(fd), 0);
        assert_int_equal(xr_memory_receive(ends[1], &message, &kept), 1);
        assert_int_equal(kept.count,
                         id < XR_MEMORY_FDS ? id + 1 : XR_MEMORY_FDS);
        assert_int_equal(kept.lost, id >= XR_MEMORY_FDS);
    }
    for (uint64_t id = 0; id < 2; id++) { /* the oldest first */
        uint64_t number = 99;
        int fd = xr_memory_take(&kept);
        assert_int_equal(pread(fd, &number, sizeof(number), 0), sizeof(number));
        assert_int_equal(number, id);
        assert_int_equal(close(fd), 0);
    }
    xr_memory_drop(&kept);
    assert_int_equal(xr_memory_take(&kept), -1);
    assert_int_equal(close(ends[0]) | close(ends[1]), 0);
    assert_int_equal(rig_fds(), fds);
}

static void expect_next_frame(const xr_frame *frame, int got)
{
    xr_frame out;
    const void *data = NULL;
    int fd = -1;
    (void)close_connection(NULL);
    assert_int_equal(open_connection(NULL), 0);
    assert_int_equal(write(from.fd, frame, sizeof(*frame)), sizeof(*frame));
    assert_int_equal(xr_conn_read(&to), 0);
    assert_int_equal(xr_conn_next(&to, &out, &data, &fd), got);
}

/* A malformed header ends the connection; an incomplete frame waits for its
 * rest. */
static void frame_headers_are_checked(void **state)
{
    (void)state;
    xr_frame frame = { XR_FRAME_MESSAGE, 0, 0, 0, 0 };
    expect_next_frame(&frame, 1);
    frame.size = 1;
    expect_next_frame(&frame, 0);
    frame.size = UINT64_C(8) << 30;
    expect_next_frame(&frame, 0);
    frame.size++;
    expect_next_frame(&frame, -1);
    frame = (xr_frame){ XR_FRAME_KINDS, 0, 0, 0, 0 };
    expect_next_frame(&frame, -1);
    frame = (xr_frame){ XR_FRAME_KINDS - 1, 0, 0, 0, 0 };
    expect_next_frame(&frame, 1);
    frame =
        (xr_frame){ XR_FRAME_REGION, 1, 0, 0, 0 }; /* without the descriptor */
    expect_next_frame(&frame, -1);
    frame = (xr_frame){ XR_FRAME_REGION, 2, 0, 0, 0 };
    expect_next_frame(&frame, -1);
    xr_frame out;
    const void *data = NULL;
    int fd = make_numbered_memory(1);
    int got = -1;
    for (uint32_t has = 1; has <= 2; has++) {
        frame.has_fd = has;
        (void)close_connection(NULL);
        assert_int_equal(open_connection(NULL), 0);
        assert_int_equal(xr_conn_send(&from, &frame, NULL, fd), 0);
        assert_int_equal(xr_conn_read(&to), 0);
        assert_int_equal(xr_conn_next(&to, &out, &data, &got),
                         has == 1 ? 1 : -1);
        if (has == 1)
            assert_int_equal(close(got), 0);
    }
    assert_int_equal(close(fd), 0);
}

/* Announced memory must have its size and be sealed against shrinking. */
static char said[200];

static xray_status note_reason(const xray_host *host, xray_status status,
                               const char *where, const char *text)
{
    (void)host;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", text);
    return status;
}

/* Nothing of a message is sent that carries a region of another actor, or one
 * that exists no more. */
static void messages_carry_known_regions(void **state)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .fail = note_reason };
    static xray_peer peers[2];
    xr_local local = { .host = &host, .peers = peers, .peer_count = 2 };
    xray_region of_another = { .id = 1, .peer = &peers[1] };
    xray_region unknown = { .id = 7 };
    xray_region *const cases[] = { &of_another, &unknown };
    (void)state;
    peers[0].conn.fd = from.fd;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(
            xr_local_runtime.send(&local, &peers[0], "A", 1, &cases[i], 1),
            XRAY_E_ARG);
        assert_string_equal(said, "a message carries a region that neither its "
                                  "sender nor its receiver created");
        assert_int_equal(xr_conn_read(&to), EAGAIN);
    }
    assert_int_equal(xr_local_runtime.send(&local, &peers[0], "A", 1, NULL, 0),
                     XRAY_OK);
    assert_int_equal(xr_conn_read(&to), 0);
    free(peers[0].conn.out);
    free(peers[0].conn.marks);
}

/* Whoever maps a region asks for its size; a page may have more bytes. */
static void regions_have_the_bytes_that_were_asked_for(void **state)
{
    static xray_peer peers[2]; /* one that sends, and one that receives */
    xr_local local = { .peers = peers, .peer_count = 1 };
    xray_region *region = NULL;
    xr_frame frame;
    const void *data;
    int fd;
    (void)state;
    peers[0].conn.fd = from.fd;
    assert_int_equal(xr_local_runtime.region_create(&local, 5000, &region),
                     XRAY_OK);
    assert_int_equal(region->size, 5000);
    assert_int_equal(
        xr_local_runtime.send(&local, &peers[0], "A", 1, &region, 1), XRAY_OK);
    assert_int_equal(xr_conn_read(&to), 0);
    assert_int_equal(xr_conn_next(&to, &frame, &data, &fd), 1);
    assert_int_equal(xr_local_region_frame(&peers[1], &frame, fd), 0);
    const xray_region *got =
        xr_local_runtime.region_find(&local, &peers[1], region->id);
    assert_int_equal(got->size, 5000);
    xr_local_regions_free(&peers[1].regions);
    xr_local_runtime.region_destroy(&local, region);
    xr_local_regions_free(&local.regions);
    free(peers[0].conn.out);
    free(peers[0].conn.marks);
}

static void announced_regions_are_checked(void **state)
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
        int fd = cases[i].sealed ? xr_memory_make("test", 4096)
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
        xr_local_region_frame(&peer, &again, xr_memory_make("test", 4096)),
        EINVAL); /* the id is taken */
    const xr_frame gone = { XR_FRAME_UNREGION, 0, 0, 1, 0 };
    assert_int_equal(xr_local_region_frame(&peer, &gone, -1), 0);
    assert_int_equal(peer.regions.count, 1);
    assert_int_equal(xr_local_region_frame(&peer, &gone, -1), 0);
    xr_local_regions_free(&peer.regions);
    assert_int_equal(rig_fds(), fds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, open_connection, close_connection)
        CASE(frames_arrive_in_order),
        CASE(descriptors_wait_for_their_frames),
        CASE(closing_leaves_no_descriptor),
        CASE(missing_descriptors_are_reported),
        cmocka_unit_test(descriptors_without_room_are_lost),
        CASE(frame_headers_are_checked),
        CASE(messages_carry_known_regions),
        CASE(regions_have_the_bytes_that_were_asked_for),
        cmocka_unit_test(announced_regions_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
