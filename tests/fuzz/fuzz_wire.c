/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes what comm-tcp reads from other ranks: the first byte chooses the line
 * of calls, that of notes, or a hello, the rest is what is sent. Whatever it
 * is, the reader comes to its end, takes in no more than was sent, and hands on
 * only frames that are valid.
 */
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "plugins/comm-tcp/tcp.h"
#include "tests/fuzz/fuzz.h"

static void report_frame(const mesh_frame *f)
{
    fuzz_saw_u64("frame", f->kind);
    fuzz_saw_u64("lane", f->lane);
    fuzz_saw_u64("channel", f->channel);
    fuzz_saw_u64("number", f->number);
    fuzz_saw_u64("bytes", f->bytes);
    fuzz_saw_u64("call bytes", f->call_bytes);
    fuzz_saw_u64("call", f->call);
    fuzz_saw_u64("type", f->dtype);
    fuzz_saw_u64("root", f->root);
    fuzz_saw_u64("half", f->half);
    fuzz_saw_u64("extra", f->extra);
}

static void report_activity(const char *name, const mesh_activity *a)
{
    fuzz_saw_u64(name, a->calls);
    fuzz_saw_u64("bytes", a->bytes);
    fuzz_saw_u64("from bytes", a->from_bytes);
    fuzz_saw_u64("group", a->group);
    fuzz_saw_u64("call", a->call);
    fuzz_saw_u64("type", a->dtype);
    fuzz_saw_u64("other", a->other);
    fuzz_saw_u64("from", a->from);
    fuzz_saw_u64("state", a->state);
}

/* Reports the other rank's fate, and the channels. */
static void report_comm(const mesh_comm *comm)
{
    const mesh_peer *peer = &comm->peers[1];
    if (!fuzz_sees())
        return;
    fuzz_saw_u64("fate", atomic_load(&peer->fate));
    fuzz_saw_u64("leaves", peer->leaves);
    fuzz_saw_u64("deaf", peer->deaf);
    fuzz_saw_u64("mute", peer->mute);
    fuzz_saw_u64("asked", peer->asked);
    fuzz_saw_u64("answered", peer->answered);
    fuzz_saw_u64("broke", peer->broke_channel);
    report_activity("told", &peer->told);
    report_activity("at the break", &peer->broke);
    for (uint32_t i = 0; i < comm->broken_count; i++) {
        fuzz_saw_u64("broken", comm->broken[i].channel);
        fuzz_saw_u64("number", comm->broken[i].number);
        fuzz_saw_u64("cause", comm->broken[i].cause);
        fuzz_saw_u64("origin", comm->broken[i].origin);
    }
}

static void read_calls(mesh_comm *comm, mesh_peer *peer)
{
    char payload[MESH_PIECE];
    for (int turns = 0; peer->deaf != 2; turns++) {
        FUZZ_CHECK(turns < 100000);
        if (mesh_next_frame(comm, peer)) {
            const mesh_frame *f = &peer->frame;
            report_frame(f);
            FUZZ_CHECK(mesh_frame_is_valid(f) && f->kind != MESH_LEAVE);
            FUZZ_CHECK(f->kind != MESH_DATA || f->bytes <= sizeof(payload));
            mesh_line_take(peer, f->number % 2 ? payload : NULL, NULL);
        } else if (peer->to_left) {
            (void)mesh_line_receive(peer);
        }
    }
    FUZZ_CHECK(atomic_load(&peer->fate));
}

static void read_hello(const uint8_t *data, size_t size)
{
    tcp_hello hello = { .magic = 0 };
    memcpy(&hello, data, size < sizeof(hello) ? size : sizeof(hello));
    const char *why = tcp_hello_refuse(&hello, 1, 4);
    fuzz_saw_text("hello", why);
    FUZZ_CHECK(why || (hello.from > 1 && hello.from < 4 && hello.to == 1 &&
                       hello.line < TCP_LINES));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static mesh_peer peers[2];
    int ends[2];
    /* No more than the socket takes at once. */
    if (size < 1 || size > 100000)
        return 0;
    if (data[0] % 3 == 2) {
        read_hello(data + 1, size - 1);
        return 0;
    }
    mesh_comm comm = { .via = &tcp_transport,
                       .size = 2,
                       .peers = peers,
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .heard = PTHREAD_COND_INITIALIZER,
                       .wake = eventfd(0, EFD_NONBLOCK) };
    tcp_line line = { .calls = -1 };
    memset(peers, 0, sizeof(peers));
    peers[1].via = &tcp_transport;
    peers[1].line = &line;
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    line.calls = line.notes = ends[0];
    FUZZ_CHECK(send(ends[1], data + 1, size - 1, 0) == (ssize_t)(size - 1));
    (void)close(ends[1]);
    if (data[0] % 3)
        tcp_read_notes(&comm, 1);
    else
        read_calls(&comm, &peers[1]);
    if (data[0] % 3 == 0)
        (void)close(ends[0]);
    FUZZ_CHECK(data[0] % 3 == 0 || line.notes == -1);
    report_comm(&comm);
    (void)close(comm.wake);
    free(comm.broken);
    free(peers[1].out);
    return 0;
}
