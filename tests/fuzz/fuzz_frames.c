/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a connection of frames. The input is a sequence of headers and
 * payloads as they are on the wire, but for their sums, which are right unless
 * a header says otherwise; so the reader sees frames of any kind in any order.
 */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/actor/tcp_conn.h"
#include "core/actor/tcp_hello.h"
#include "tests/fuzz/fuzz.h"

#define RECORD 64u
#define REGION (UINT64_C(1) << 16) /* the largest that the receiver takes */
#define REGIONS 4u

/* Each region is one allocation of its size, so that a sanitizer sees a byte
 * beyond it. */
static struct region {
    uint64_t id;
    uint64_t size;
    unsigned char *data;
} regions[REGIONS];

static struct region *find_region(uint64_t id)
{
    return &regions[id % REGIONS];
}

static int handle_frame(xr_tcp_conn *conn, const xr_tcp_frame *frame,
                        const void *data)
{
    const unsigned char *bytes = data;
    uint64_t sum = 0;
    FUZZ_CHECK(frame->kind != XR_TCP_MESSAGE && frame->kind != XR_TCP_UNREGION);
    FUZZ_CHECK(frame->size == 0 || frame->size == conn->record_bytes);
    for (uint64_t i = 0; i < frame->size; i++)
        sum += bytes[i];
    fuzz_saw_u64("frame", frame->kind);
    fuzz_saw_u64("value", frame->value);
    fuzz_saw_u64("rest", frame->rest);
    fuzz_saw("payload", bytes, frame->size);
    return sum == UINT64_MAX ? EPROTO : 0;
}

static int expect_region(xr_tcp_conn *conn, const xr_tcp_part *part)
{
    struct region *region = find_region(part->id);
    (void)conn;
    fuzz_saw_u64("region", part->id);
    fuzz_saw_u64("bytes", part->size);
    if (part->size > REGION)
        return ENOMEM;
    if (region->data && region->id == part->id)
        return region->size == part->size ? 0 : EPROTO;
    free(region->data);
    *region =
        (struct region){ part->id, part->size, calloc(1, (size_t)part->size) };
    return region->data ? 0 : ENOMEM;
}

static unsigned char *hold_region(xr_tcp_conn *conn, const xr_tcp_part *part)
{
    const struct region *region = find_region(part->id);
    (void)conn;
    fuzz_saw_u64("part", part->first);
    fuzz_saw_u64("count", part->count);
    return region->id == part->id && region->size == part->size
               ? region->data + part->first
               : NULL;
}

static void release_region(xr_tcp_conn *conn)
{
    (void)conn;
}

static int wait_for_socket(xr_tcp_conn *conn)
{
    (void)conn;
    return EPIPE;
}

static const xr_tcp_owner owner = { .handle = handle_frame,
                                    .expect = expect_region,
                                    .hold = hold_region,
                                    .release = release_region,
                                    .wait = wait_for_socket };

/* Reads what is there and looks at every byte that came of it. */
static void take_items(xr_tcp_conn *conn)
{
    xr_tcp_item *item;
    (void)xr_tcp_read(conn);
    while ((item = xr_tcp_take(conn))) {
        xr_tcp_head head;
        uint64_t carried;
        FUZZ_CHECK(item->unregion ||
                   xr_tcp_opening(item->bytes, item->size, &head, &carried));
        fuzz_saw_u64("unregion", item->unregion);
        if (!item->unregion) {
            fuzz_saw_u64("carried", carried);
            fuzz_saw("message", item->bytes, (size_t)item->size);
        }
        free(item);
    }
}

/* Any bytes are a hello that ends in order. */
static void greet_with(const uint8_t *data, size_t size)
{
    static const unsigned char zeros[XR_TCP_TOKEN];
    xr_tcp_hello run;
    size_t at = 0;
    xr_tcp_hello_await(&run, zeros, zeros);
    while (run.state == XR_TCP_HELLO_MORE && at < size) {
        const uint32_t left = (uint32_t)(size - at);
        const uint32_t more = left < run.want ? left : run.want;
        xr_tcp_hello_take(&run, data + at, more);
        at += more;
        if (run.state == XR_TCP_HELLO_ASKS)
            xr_tcp_hello_answer(&run, run.opening.index ? zeros : NULL);
        fuzz_saw_u64("state", run.state);
        fuzz_saw("sends", run.send, run.send_size);
    }
    fuzz_saw_text("why", run.state == XR_TCP_HELLO_REFUSED ? run.why : NULL);
    fuzz_saw_u64("purpose", run.opening.purpose);
    FUZZ_CHECK(at <= XR_TCP_HELLO_MOST);
    FUZZ_CHECK(run.state != XR_TCP_HELLO_REFUSED || run.why[0]);
}

static void seal_frame(xr_tcp_frame *frame, const void *data)
{
    xr_tcp_seal(frame, data);
    fuzz_saw_u64("sum", frame->sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_tcp_conn conn;
    int pair[2];
    greet_with(data, size);
    FUZZ_CHECK(xr_tcp_conn_open(&conn, &owner, RECORD) == 0);
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
    conn.fd = pair[0];
    while (size >= sizeof(xr_tcp_frame) && !conn.bad) {
        xr_tcp_frame frame;
        memcpy(&frame, data, sizeof(frame));
        data += sizeof(frame);
        size -= sizeof(frame);
        const uint64_t body = frame.size < size ? frame.size : size;
        if (frame.magic == 0) /* so that an input finds it soon */
            frame.magic = xr_tcp_frame_of(0, 0).magic;
        if (body == frame.size && frame.sum != 1)
            seal_frame(&frame, data);
        FUZZ_CHECK(write(pair[1], &frame, sizeof(frame)) == sizeof(frame));
        for (uint64_t at = 0; at < body;) {
            const uint64_t piece = body - at < 4096 ? body - at : 4096;
            FUZZ_CHECK(write(pair[1], data + at, (size_t)piece) ==
                       (ssize_t)piece);
            at += piece;
            if (conn.bad)
                break;
            take_items(&conn);
        }
        take_items(&conn);
        data += body;
        size -= (size_t)body;
    }
    (void)close(pair[1]);
    fuzz_saw_i64("end", xr_tcp_read(&conn));
    fuzz_saw_i64("bad", conn.bad);
    fuzz_saw_u64("total", conn.total);
    (void)close(pair[0]);
    xr_tcp_conn_free(&conn);
    for (uint32_t i = 0; i < REGIONS; i++) {
        if (regions[i].data)
            fuzz_saw("received", regions[i].data, (size_t)regions[i].size);
        free(regions[i].data);
        regions[i] = (struct region){ 0 };
    }
    return 0;
}
