/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves connections over TLS between two ends of one process: who is let in,
 * that all bytes arrive in their order, what waits where, and how it ends.
 */
#include <errno.h>
#include <sys/socket.h>

#include "core/base/tls.h"
#include "tests/testing.h"

enum { BYTES = 16384 }; /* of a record of TLS */

typedef struct ends {
    int fds[2];
    xr_tls *client;
    xr_tls *server;
    int bad[2]; /* how the handshakes of client and server ended */
} ends;

/* The key of "alice" has the byte 7 everywhere, and nobody else has one. */
static int find_key(void *ctx, const char *identity, unsigned char *out)
{
    int *asked = ctx;
    ++*asked;
    memset(out, 7, XR_TLS_KEY);
    return strcmp(identity, "alice") == 0;
}

static int asked;

/* errno of the next call that sends; 0: it is the system's. */
static int next_reason;

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (!next_reason)
        return __real_sendmsg(fd, message, flags);
    errno = next_reason;
    next_reason = 0;
    return -1;
}

/* Connects both ends and goes on with their handshakes in turn. */
static ends greet_each_other(const char *identity, int byte, uint64_t most)
{
    ends e = { .bad = { EAGAIN, EAGAIN } };
    unsigned char key[XR_TLS_KEY];
    memset(key, byte, sizeof key);
    asked = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, e.fds),
                     0);
    e.client = xr_tls_client(e.fds[0], identity, key);
    e.server = xr_tls_server(e.fds[1], most, find_key, &asked);
    assert_non_null(e.client);
    assert_non_null(e.server);
    for (int i = 0; i < 100; i++) {
        if (e.bad[0] == EAGAIN)
            e.bad[0] = xr_tls_greet(e.client);
        if (e.bad[1] == EAGAIN)
            e.bad[1] = xr_tls_greet(e.server);
    }
    return e;
}

static void leave_ends(ends *e)
{
    xr_tls_free(e->client);
    xr_tls_free(e->server);
    for (int i = 0; i < 2; i++)
        if (e->fds[i] >= 0)
            assert_int_equal(close(e->fds[i]), 0);
}

static void whoever_knows_the_key_is_let_in(void **state)
{
    (void)state;
    ends e = greet_each_other("alice", 7, 4096);
    assert_int_equal(e.bad[0], 0);
    assert_int_equal(e.bad[1], 0);
    assert_true(asked > 0);
    assert_string_equal(xr_tls_why(e.client), "");
    assert_string_equal(xr_tls_why(e.server), "");
    leave_ends(&e);
    xr_tls_free(NULL);
}

/* The other side is told by an alert, whose name is in its reason. */
static void others_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *identity;
        int byte;
    } rows[] = { { "alice", 8 }, { "bob", 7 } };
    for (size_t i = 0; i < 2; i++) {
        ends e = greet_each_other(rows[i].identity, rows[i].byte, 4096);
        const char *why = xr_tls_why(e.client);
        assert_int_equal(e.bad[0], EPROTO);
        assert_int_equal(e.bad[1], EPROTO);
        assert_int_equal(strncmp(why, "the other side refused it (", 27), 0);
        assert_true(strlen(why) > 29 && why[strlen(why) - 1] == ')');
        assert_true(strlen(xr_tls_why(e.server)) > 5);
        assert_null(strstr(xr_tls_why(e.server), "the other side"));
        leave_ends(&e);
    }
}

static void the_other_side_may_leave(void **state)
{
    (void)state;
    int fds[2];
    unsigned char key[XR_TLS_KEY] = { 1 };
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds),
                     0);
    xr_tls *client = xr_tls_client(fds[0], "alice", key);
    assert_int_equal(xr_tls_greet(client), EAGAIN);
    assert_int_equal(close(fds[1]), 0);
    int bad = xr_tls_greet(client);
    assert_int_equal(bad, EPIPE);
    xr_tls_free(client);
    assert_int_equal(close(fds[0]), 0);
}

/* A guest sends no more than an honest one has to, until it is admitted. */
static void a_guest_is_read_up_to_a_bound(void **state)
{
    (void)state;
    char text[64];
    ends e = greet_each_other("alice", 7, 40);
    assert_int_equal(e.bad[1], EPROTO);
    assert_string_equal(xr_tls_why(e.server),
                        "it is longer than any between two Workhorses");
    leave_ends(&e);
    e = greet_each_other("alice", 7, 1024);
    assert_int_equal(e.bad[1], 0);
    char long_text[2048] = "";
    const struct iovec piece = { long_text, sizeof long_text };
    assert_int_equal(xr_tls_send(e.client, &piece, 1), sizeof long_text);
    assert_int_equal(xr_tls_recv(e.server, text, sizeof text), -1);
    assert_int_equal(errno, EPROTO);
    leave_ends(&e);
    e = greet_each_other("alice", 7, 1024);
    xr_tls_admit(e.server);
    assert_int_equal(xr_tls_send(e.client, &piece, 1), sizeof long_text);
    assert_int_equal(xr_tls_recv(e.server, text, sizeof text), sizeof text);
    leave_ends(&e);
}

/* ---- data ---------------------------------------------------------------- */

/* What is received in small parts waits in memory, which the socket does not
 * show. */
static void what_waits_is_told(void **state)
{
    (void)state;
    char words[] = "one two three";
    const struct iovec pieces[] = { { words, 4 },
                                    { words + 4, 0 },
                                    { words + 4, 9 } };
    char got[32] = "";
    ends e = greet_each_other("alice", 7, 4096);
    assert_int_equal(xr_tls_recv(e.server, got, 4), -1);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(xr_tls_holds(e.server), 0);
    assert_int_equal(xr_tls_send(e.client, pieces, 3), 13);
    assert_int_equal(xr_tls_owes(e.client), 0);
    assert_int_equal(xr_tls_flush(e.client), 0);
    assert_int_equal(xr_tls_recv(e.server, got, 4), 4);
    assert_int_equal(xr_tls_holds(e.server), 1);
    assert_int_equal(xr_tls_recv(e.server, got + 4, 20), 9);
    assert_string_equal(got, words);
    assert_int_equal(xr_tls_holds(e.server), 0);
    assert_int_equal(xr_tls_holds(NULL), 0);
    assert_int_equal(xr_tls_owes(NULL), 0);
    /* The other direction. */
    assert_int_equal(xr_tls_send(e.server, &pieces[2], 1), 9);
    assert_int_equal(xr_tls_recv(e.client, got, sizeof got), 9);
    assert_memory_equal(got, "two three", 9);
    leave_ends(&e);
}

/* Receives what there is, and compares it with the pattern from `done` on. */
static size_t receive_all(xr_tls *tls, size_t done)
{
    static unsigned char got[BYTES];
    ssize_t n;
    while ((n = xr_tls_recv(tls, got, sizeof got)) > 0) {
        for (ssize_t i = 0; i < n; i++)
            if (got[i] != (unsigned char)((done + (size_t)i) * 31 >> 3))
                fail_msg("byte %zu differs", done + (size_t)i);
        done += (size_t)n;
    }
    assert_int_equal(n, -1);
    assert_int_equal(errno, EAGAIN);
    return done;
}

/* A socket that is full keeps a record back, which is owed until it is sent;
 * nothing is lost or sent twice. A header goes with what follows it, a long
 * piece from where it lies. */
static void all_bytes_arrive_in_their_order(void **state)
{
    (void)state;
    enum { HEADER = 100, SIZE = 1 << 20 };
    static unsigned char bytes[SIZE];
    size_t sent = 0;
    size_t done = 0;
    int owed = 0;
    for (size_t i = 0; i < SIZE; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3);
    ends e = greet_each_other("alice", 7, 4096);
    xr_tls_admit(e.server);
    while (sent < SIZE) {
        /* In turn as one piece, and as a header and the rest. */
        const size_t left = SIZE - sent;
        const size_t head = left > HEADER && sent % 3 ? HEADER : left;
        const struct iovec pieces[] = { { bytes + sent, head },
                                        { bytes + sent + head, left - head } };
        ssize_t n = xr_tls_send(e.client, pieces, head < left ? 2 : 1);
        if (n > 0) {
            assert_true((size_t)n <= left && n <= BYTES);
            assert_true(n == BYTES || (size_t)n == left);
            sent += (size_t)n;
        }
        if (n > 0 && !xr_tls_owes(e.client))
            continue;
        owed++;
        assert_int_equal(xr_tls_flush(e.client), EAGAIN);
        const struct iovec more = { bytes, 1 };
        assert_int_equal(xr_tls_send(e.client, &more, 1), -1);
        assert_int_equal(errno, EAGAIN);
        done = receive_all(e.server, done);
        assert_true(done < sent);
        assert_int_equal(xr_tls_flush(e.client), 0);
        assert_int_equal(xr_tls_owes(e.client), 0);
        done = receive_all(e.server, done);
        assert_int_equal(done, sent);
    }
    assert_true(owed > 0);
    assert_int_equal(receive_all(e.server, done), SIZE);
    leave_ends(&e);
}

/* A call that did not come to send is made once more, and no byte is lost. */
static void what_was_not_sent_is_owed(void **state)
{
    static const int reasons[] = { EAGAIN, EINTR };
    (void)state;
    ends e = greet_each_other("alice", 7, 4096);
    for (size_t i = 0; i < 2; i++) {
        char words[] = "one two three";
        char got[32] = "";
        const struct iovec piece = { words, sizeof words };
        next_reason = reasons[i];
        assert_int_equal(xr_tls_send(e.client, &piece, 1), sizeof words);
        assert_int_equal(xr_tls_owes(e.client), 1);
        assert_int_equal(xr_tls_recv(e.server, got, sizeof got), -1);
        assert_int_equal(errno, EAGAIN);
        assert_int_equal(xr_tls_flush(e.client), 0);
        assert_int_equal(xr_tls_owes(e.client), 0);
        assert_int_equal(xr_tls_recv(e.server, got, sizeof got), sizeof words);
        assert_string_equal(got, words);
    }
    leave_ends(&e);
}

/* ---- ends ---------------------------------------------------------------- */

static void changed_bytes_are_refused(void **state)
{
    (void)state;
    char word[] = "word";
    char raw[256];
    const struct iovec piece = { word, 4 };
    ends e = greet_each_other("alice", 7, 4096);
    assert_int_equal(xr_tls_send(e.client, &piece, 1), 4);
    ssize_t n = recv(e.fds[1], raw, sizeof raw, MSG_DONTWAIT);
    assert_true(n > 10);
    raw[n - 1] ^= 1;
    assert_int_equal(send(e.fds[0], raw, (size_t)n, 0), n);
    assert_int_equal(xr_tls_recv(e.server, raw, sizeof raw), -1);
    assert_int_equal(errno, EBADMSG);
    leave_ends(&e);
}

/* A socket that is gone is an error of the socket to who sends. */
static void a_lost_socket_is_told(void **state)
{
    (void)state;
    char word[] = "word";
    const struct iovec piece = { word, 4 };
    ends e = greet_each_other("alice", 7, 4096);
    assert_int_equal(close(e.fds[1]), 0);
    e.fds[1] = -1;
    assert_int_equal(xr_tls_send(e.client, &piece, 1), -1);
    assert_int_equal(errno, EPIPE);
    leave_ends(&e);
    /* Any other errno of the socket is passed on. */
    e = greet_each_other("alice", 7, 4096);
    assert_int_equal(close(e.fds[0]), 0);
    e.fds[0] = -1;
    assert_int_equal(xr_tls_send(e.client, &piece, 1), -1);
    assert_int_equal(errno, EBADF);
    assert_int_equal(xr_tls_owes(e.client), 0);
    leave_ends(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whoever_knows_the_key_is_let_in),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(the_other_side_may_leave),
        cmocka_unit_test(a_guest_is_read_up_to_a_bound),
        cmocka_unit_test(what_waits_is_told),
        cmocka_unit_test(all_bytes_arrive_in_their_order),
        cmocka_unit_test(what_was_not_sent_is_owed),
        cmocka_unit_test(changed_bytes_are_refused),
        cmocka_unit_test(a_lost_socket_is_told),
    };
    if (!xr_tls_is_there()) {
        print_message("skipped: " XR_TLS_MISSING "\n");
        return 77;
    }
    return cmocka_run_group_tests_name("base.tls", tests, NULL, NULL);
}
