/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections between hosts over TLS: what passes the wire shows nothing, and
 * whoever is without the key or without TLS, or changes or repeats what passes,
 * is refused. The test program is the run, the actor, and the wire between.
 */
#define _GNU_SOURCE /* memmem */
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/actor/tcp_conn.h"
#include "tests/actor/door.h"

#define NONE SIZE_MAX

static const char marker[] = "a text that only the two ends may read";

/* ---- the wire ------------------------------------------------------------ */

/* The bytes that one side has sent. */
typedef struct record {
    size_t size;
    unsigned char bytes[1 << 16];
} record;

static struct wire {
    xr_tls *tls;   /* the actor's; NULL without */
    int actor;     /* the actor's socket */
    int here;      /* its other end */
    int run;       /* a connection to the run */
    size_t change; /* the byte from the actor that is changed, or NONE */
    record up;     /* from the actor */
    record down;
} wire;

static void pass_bytes(int from, int to, record *seen, size_t change)
{
    unsigned char bytes[4096];
    ssize_t n = recv(from, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0)
        (void)shutdown(to, SHUT_WR);
    if (n <= 0)
        return;
    if (change >= seen->size && change - seen->size < (size_t)n)
        bytes[change - seen->size] ^= 0x10;
    assert_true((size_t)n <= sizeof(seen->bytes) - seen->size);
    memcpy(seen->bytes + seen->size, bytes, (size_t)n);
    seen->size += (size_t)n;
    (void)send(to, bytes, (size_t)n, MSG_NOSIGNAL);
}

/* Also serves the run; returns what that reports. */
static xray_status take_turn(void)
{
    pass_bytes(wire.here, wire.run, &wire.up, wire.change);
    pass_bytes(wire.run, wire.here, &wire.down, NONE);
    return door.ops->poll(door.self, 1, &door.event);
}

static void connect_wire(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair),
                     0);
    wire.tls = NULL;
    wire.actor = pair[0];
    wire.here = pair[1];
    wire.run = door_connect();
    wire.change = NONE;
    wire.up.size = 0;
    wire.down.size = 0;
}

/* Leaves the connection to the run. */
static void leave_wire(void)
{
    xr_tls_free(wire.tls);
    (void)close(wire.actor);
    (void)close(wire.here);
}

static void expect_refusal(const char *why)
{
    leave_wire();
    door_expect_refusal(wire.run, why);
}

/* ---- the actor ----------------------------------------------------------- */

/* The actor's handshake as this identity, with the key of the token. */
static int secure_wire(const char *identity)
{
    unsigned char key[XR_TLS_KEY];
    int bad;
    connect_wire();
    xr_tcp_tls_key(door.token, key);
    wire.tls = xr_tls_client(wire.actor, identity, key);
    assert_non_null(wire.tls);
    while ((bad = xr_tls_greet(wire.tls)) == EAGAIN)
        assert_int_equal(take_turn(), XRAY_AGAIN);
    return bad;
}

static void send_up(void *bytes, size_t size)
{
    const struct iovec piece = { bytes, size };
    assert_int_equal(xr_tcp_send(wire.actor, wire.tls, &piece, 1), size);
}

/* Receives exactly so much. */
static void receive_down(void *out, size_t size)
{
    for (size_t at = 0; at < size;) {
        struct iovec piece = { (char *)out + at, size - at };
        ssize_t n = xr_tcp_receive(wire.actor, wire.tls, &piece, 1);
        assert_int_not_equal(n, 0);
        at += n > 0 ? (size_t)n : 0;
        if (n < 0)
            assert_int_equal(take_turn(), XRAY_AGAIN);
    }
}

/* The hello that passes the wire as it is now. */
static void greet_run(xr_tcp_hello *hello, uint32_t purpose, uint32_t index)
{
    unsigned char bytes[XR_TCP_HELLO_MOST];
    door_open_hello(hello, purpose, index);
    send_up(hello->send, hello->send_size);
    receive_down(bytes, hello->want);
    xr_tcp_hello_take(hello, bytes, hello->want);
    if (hello->state == XR_TCP_HELLO_DONE)
        send_up(hello->send, hello->send_size);
}

/* The actor that the run awaits is let in. */
static void let_actor_in(int over_tls)
{
    xr_tcp_frame welcome;
    xr_tcp_hello hello;
    if (over_tls)
        assert_int_equal(secure_wire("workhorse 0"), 0);
    else
        connect_wire();
    greet_run(&hello, XR_TCP_FOR_MESSAGES, 0);
    assert_int_equal(hello.state, XR_TCP_HELLO_DONE);
    receive_down(&welcome, sizeof(welcome));
    assert_int_equal(welcome.kind, XR_TCP_WELCOME);
}

typedef struct message {
    xr_tcp_frame frame;
    xr_tcp_head head;
    char text[sizeof(marker)];
} message;
#define MESSAGE (offsetof(message, text) + sizeof(marker))

static void send_marker_up(void)
{
    message it = { .head = { sizeof(marker), 0 } };
    const size_t size = MESSAGE - sizeof(it.frame);
    memcpy(it.text, marker, sizeof(marker));
    it.frame = xr_tcp_frame_of(XR_TCP_MESSAGE, size);
    it.frame.size = size;
    xr_tcp_seal(&it.frame, &it.head);
    send_up(&it, MESSAGE);
}

/* ---- tests --------------------------------------------------------------- */

static int shows_bytes(const record *seen, const void *bytes, size_t size)
{
    return memmem(seen->bytes, seen->size, bytes, size) != NULL;
}

static int shows_marker(const record *seen)
{
    return shows_bytes(seen, marker, sizeof(marker));
}

/* The first message offers one version and one way to exchange keys: extensions
 * of RFC 8446, 4.2.1 and 4.2.9, with one value each. */
static void nothing_less_is_offered(void **state)
{
    static const unsigned char version[] = { 0, 43, 0, 3, 2, 3, 4 };
    static const unsigned char psk_with_ecdhe[] = { 0, 45, 0, 2, 1, 1 };
    (void)state;
    let_actor_in(1);
    assert_true(shows_bytes(&wire.up, version, sizeof(version)));
    assert_true(shows_bytes(&wire.up, psk_with_ecdhe, sizeof(psk_with_ecdhe)));
    leave_wire();
    door.actor_fd = wire.run;
}

static void frames_cannot_be_read(void **state)
{
    message got;
    (void)state;
    for (uint32_t tls = 0; tls < 2; tls++) {
        door.tls = tls;
        (void)door_await_actor(NULL);
        let_actor_in((int)tls);
        /* Far fewer bytes are read until then than the bound allows. */
        assert_in_range(wire.up.size, 100, XR_TCP_TLS_MOST / 2);
        assert_int_equal(door.ops->send(door.self, door.peer, marker,
                                        sizeof(marker), NULL, 0),
                         XRAY_OK);
        receive_down(&got, MESSAGE);
        assert_string_equal(got.text, marker);
        send_marker_up();
        while (take_turn() == XRAY_AGAIN)
            continue;
        assert_int_equal(door.event.kind, XRAY_RUNTIME_MESSAGE);
        assert_string_equal(door.event.data, marker);
        assert_int_equal(shows_marker(&wire.up), !tls);
        assert_int_equal(shows_marker(&wire.down), !tls);
        leave_wire();
        (void)close(wire.run);
        (void)door_end(NULL);
    }
}

static void changed_bytes_are_noticed(void **state)
{
    size_t at[3] = { 20, 0, 0 }; /* a random number of the first message */
    xr_tcp_hello hello;
    (void)state;
    assert_int_equal(secure_wire("workhorse 0"), 0);
    at[1] = wire.up.size / 2;
    at[2] = wire.up.size + 70; /* the hello */
    assert_int_equal(take_turn(), XRAY_AGAIN);
    (void)shutdown(wire.run, SHUT_WR);
    expect_refusal("it ended before its hello was complete");
    for (int i = 0; i < 2; i++) {
        unsigned char key[XR_TLS_KEY];
        connect_wire();
        wire.change = at[i];
        xr_tcp_tls_key(door.token, key);
        wire.tls = xr_tls_client(wire.actor, "workhorse 0", key);
        while (xr_tls_greet(wire.tls) == EAGAIN)
            assert_int_equal(take_turn(), XRAY_AGAIN);
        expect_refusal("was refused: it");
    }
    assert_int_equal(secure_wire("workhorse 0"), 0);
    wire.change = at[2];
    door_open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    send_up(hello.send, hello.send_size);
    while (door.line_count == door.expected)
        assert_int_equal(take_turn(), XRAY_AGAIN);
    expect_refusal("it sent bytes that arrived damaged");
    let_actor_in(1);
    wire.change = wire.up.size + 60;
    send_marker_up();
    pass_bytes(wire.here, wire.run, &wire.up, wire.change);
    leave_wire();
    door_expect_loss("sent bytes that arrived damaged (killed)");
    (void)close(wire.run);
}

/* Bytes that an actor sent once are worth nothing later. */
static void repeated_bytes_are_refused(void **state)
{
    static record before;
    (void)state;
    let_actor_in(1);
    before = wire.up;
    leave_wire();
    door.actor_fd = wire.run; /* whose end would be reported */
    int fd = door_connect();
    door_send(fd, before.bytes, before.size);
    door_expect_refusal(
        fd, "it does not know the token that Workhorse 0 was given");
}

static void strangers_are_refused(void **state)
{
    xr_tcp_hello hello;
    (void)state;
    door.token[5] ^= 1;
    assert_int_equal(secure_wire("workhorse 0"), EPROTO);
    assert_non_null(
        strstr(xr_tls_why(wire.tls), "the other side refused it ("));
    expect_refusal("it does not know the token that Workhorse 0 was given");
    door.token[5] ^= 1;
    assert_int_equal(secure_wire("workhorse 1"), EPROTO);
    expect_refusal("it says that it is Workhorse 1, which the run does not "
                   "await");
    assert_int_equal(secure_wire("workhorse 99999999999"), EPROTO);
    expect_refusal("its TLS handshake failed: ");
    assert_int_equal(secure_wire("someone"), EPROTO);
    expect_refusal("its TLS handshake failed: ");
    /* The hello still counts: one who has another's key is nobody else. */
    assert_int_equal(secure_wire("workhorse 0"), 0);
    greet_run(&hello, XR_TCP_FOR_MESSAGES, 1);
    assert_int_equal(hello.state, XR_TCP_HELLO_REFUSED);
    expect_refusal("it says that it is Workhorse 1, which the run does not "
                   "await");
    let_actor_in(1);
    leave_wire();
    door.actor_fd = wire.run;
}

static void plain_guests_are_refused(void **state)
{
    static const char get[100] = "GET / HTTP/1.1\r\nHost: node\r\n\r\n";
    xr_tcp_hello hello;
    (void)state;
    connect_wire();
    greet_run(&hello, XR_TCP_FOR_MESSAGES, 0);
    assert_string_equal(hello.why, "the run refused this Workhorse: [runtime] "
                                   "tls is true, and it greets without TLS");
    expect_refusal("it greets without TLS, and [runtime] tls of this run is "
                   "true");
    int fd = door_connect();
    door_send(fd, get, sizeof(get));
    door_expect_refusal(fd, "it sent bytes that are no hello of a Workhorse");
    fd = door_connect();
    (void)shutdown(fd, SHUT_WR);
    door_expect_refusal(fd, "it ended before its hello was complete");
    let_actor_in(1);
    leave_wire();
    door.actor_fd = wire.run;
}

/* A stranger is read no further than a handshake is long. */
static void long_handshakes_are_refused(void **state)
{
    static unsigned char bytes[4096] = { XR_TLS_FIRST_BYTE, 3, 1, 0x3f, 0xff };
    (void)state;
    int fd = door_connect();
    door_send(fd, bytes, XR_TCP_TLS_MOST - 1);
    for (int i = 0; i < 5; i++)
        door_poll();
    assert_int_equal(door.line_count, 0);
    door_send(fd, bytes, 1);
    door_expect_refusal(fd, "its TLS handshake failed: it is longer than any "
                            "between two Workhorses");
    let_actor_in(1);
    leave_wire();
    door.actor_fd = wire.run;
}

static void plain_runs_refuse_tls(void **state)
{
    (void)state;
    assert_int_equal(secure_wire("workhorse 0"), EPIPE);
    expect_refusal("it speaks TLS, and [runtime] tls of this run is false");
    let_actor_in(0);
    leave_wire();
    door.actor_fd = wire.run;
}

static int await_over_tls(void **state)
{
    door.tls = 1;
    return door_await_actor(state);
}

static int await_plain(void **state)
{
    door.tls = 0;
    return door_await_actor(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, await_over_tls, door_end)
        cmocka_unit_test(frames_cannot_be_read),
        CASE(nothing_less_is_offered),
        CASE(changed_bytes_are_noticed),
        CASE(repeated_bytes_are_refused),
        CASE(strangers_are_refused),
        CASE(plain_guests_are_refused),
        CASE(long_handshakes_are_refused),
        cmocka_unit_test_setup_teardown(plain_runs_refuse_tls, await_plain,
                                        door_end),
    };
    if (!xr_tls_is_there()) {
        print_message("skipped: " XR_TLS_MISSING "\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, door_make_folder, door_remove_folder);
}
