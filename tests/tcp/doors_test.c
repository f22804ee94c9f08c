/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that the port of a rank lets in nobody who does not know the key of
 * the run, whatever is sent, and that such guests delay no rank; and that bytes
 * which are no frame end a line with the name of their rank.
 */
#define _GNU_SOURCE
#include "plugins/comm-tcp/tcp.h"

#include "tests/comm/ranks.h"
#include "tests/testing.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* ns by which the clock is ahead of the machine's. */
static _Atomic uint64_t jump;

int __real_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out);
int __wrap_clock_gettime(clockid_t id, struct timespec *out)
{
    int bad = __real_clock_gettime(id, out);
    const uint64_t ns = (uint64_t)out->tv_nsec + atomic_load(&jump);
    out->tv_sec += (time_t)(ns / 1000000000u);
    out->tv_nsec = (long)(ns % 1000000000u);
    return bad;
}

/* Bytes that a call receives at most, unless it is told to wait for all. */
static _Atomic size_t most = SIZE_MAX;

ssize_t __real_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *out, size_t size, int flags)
{
    const size_t thin = atomic_load(&most);
    return __real_recv(
        fd, out, size > thin && !(flags & MSG_WAITALL) ? thin : size, flags);
}

/* ---- doors ----------------------------------------------------------------
 */

/* Rank 0 of two ranks, which waits for rank 1. */
typedef struct house {
    xray_host host;
    mesh_comm comm;
    mesh_peer peers[2];
    tcp_line line;
    tcp_doors doors;
    uint8_t key[TCP_KEY];
    struct sockaddr_in at;
    pthread_t thread;
    int admitted;
    char log[8192];
} house;

static void keep_line_of_log(const xray_host *host, uint32_t level,
                             const char *line)
{
    house *h = host->host_data;
    size_t used = strlen(h->log);
    (void)level;
    (void)snprintf(h->log + used, sizeof(h->log) - used, "%s\n", line);
}

static void *wait_at_door(void *arg)
{
    house *h = arg;
    h->admitted = tcp_accept_ranks(&h->doors);
    return NULL;
}

static void open_house(house *h, uint64_t ms)
{
    socklen_t size = sizeof(h->at);
    memset(h, 0, sizeof(*h));
    h->host = (xray_host){ .header = XRAY_HEADER(xray_host),
                           .host_data = h,
                           .log = keep_line_of_log };
    h->comm = (mesh_comm){
        .host = &h->host, .size = 2, .silence = 3000000000u, .peers = h->peers
    };
    h->line.calls = h->line.notes = -1;
    h->peers[1].line = &h->line;
    h->at.sin_family = AF_INET;
    h->at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_true(tcp_random(h->key, sizeof(h->key)));
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&h->at, size), 0);
    assert_int_equal(listen(fd, 256), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&h->at, &size), 0);
    h->doors = (tcp_doors){ .comm = &h->comm,
                            .listener = fd,
                            .key = h->key,
                            .until = mesh_clock() + ms * 1000000u };
    assert_int_equal(pthread_create(&h->thread, NULL, wait_at_door, h), 0);
}

static void close_house(house *h)
{
    (void)pthread_join(h->thread, NULL);
    (void)close(h->doors.listener);
    if (h->line.calls >= 0)
        (void)close(h->line.calls);
    if (h->line.notes >= 0)
        (void)close(h->line.notes);
}

static int knock(const house *h)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)&h->at, sizeof(h->at)), 0);
    return fd;
}

static void send_bytes(int fd, const void *bytes, size_t size)
{
    /* The door may be closed before all has been said. */
    (void)!send(fd, bytes, size, MSG_NOSIGNAL);
}

/* The other end closes the connection without a further byte. */
static void expect_refusal(int fd)
{
    char byte;
    assert_true(recv(fd, &byte, 1, 0) <= 0);
    (void)close(fd);
}

/* Whoever is let in has said this. */
typedef struct talk {
    tcp_hello hello;
    tcp_answer answer;
    uint8_t proof[TCP_MAC];
    int fd;
} talk;

static void say_hello(const uint8_t *key, uint32_t line, talk *t)
{
    assert_true(tcp_hello_make(1, 0, line, &t->hello));
    send_bytes(t->fd, &t->hello, sizeof(t->hello));
    assert_int_equal(recv(t->fd, &t->answer, sizeof(t->answer), MSG_WAITALL),
                     sizeof(t->answer));
    tcp_proof_make(key, &t->hello, &t->answer, t->proof);
    send_bytes(t->fd, t->proof, sizeof(t->proof));
}

static talk enter_house(const house *h, const uint8_t *key, uint32_t line)
{
    talk t = { .fd = knock(h) };
    say_hello(key, line, &t);
    return t;
}

/* Both lines of rank 1, whatever came before. */
static void finish_house(house *h)
{
    talk control = enter_house(h, h->key, TCP_CONTROL);
    talk calls = enter_house(h, h->key, TCP_CALLS);
    assert_true(tcp_answer_is_true(h->key, &calls.hello, &calls.answer));
    close_house(h);
    assert_true(h->admitted);
    (void)close(control.fd);
    (void)close(calls.fd);
}

static void garbage_is_refused(void **state)
{
    static const char request[] =
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: none at all\r\n\r\n";
    char junk[4096];
    house h;
    (void)state;
    open_house(&h, 60000);
    memset(junk, 'G', sizeof(junk));
    int first = knock(&h);
    send_bytes(first, junk, sizeof(junk));
    expect_refusal(first);
    int half = knock(&h);
    send_bytes(half, junk, 20);
    (void)close(half);
    int web = knock(&h);
    send_bytes(web, request, sizeof(request));
    expect_refusal(web);
    finish_house(&h);
    assert_non_null(
        strstr(h.log, "rank 0 refused a connection from 127.0.0.1:"));
    assert_non_null(strstr(h.log, "its first bytes are no hello of a rank"));
    assert_non_null(strstr(h.log, "it hung up before it said who it is"));
}

/* Hellos and proofs may arrive in pieces. */
static void guests_may_speak_slowly(void **state)
{
    static const size_t pieces[] = { 1, 7, 31 };
    (void)state;
    for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
        house h;
        atomic_store(&most, pieces[i]);
        open_house(&h, 60000);
        finish_house(&h);
        assert_string_equal(h.log, "");
    }
    atomic_store(&most, SIZE_MAX);
}

static void hellos_for_other_ranks_are_refused(void **state)
{
    static const uint32_t wrong[5][3] = {
        { 0, 0, 0 }, { 2, 0, 0 }, { 1, 1, 0 }, { 1, 0, 2 }, { 1, 7, 1 }
    };
    house h;
    (void)state;
    open_house(&h, 60000);
    for (size_t i = 0; i < 5; i++) {
        tcp_hello hello;
        int fd = knock(&h);
        assert_true(
            tcp_hello_make(wrong[i][0], wrong[i][1], wrong[i][2], &hello));
        send_bytes(fd, &hello, sizeof(hello));
        expect_refusal(fd);
    }
    tcp_hello hello;
    int fd = knock(&h);
    assert_true(tcp_hello_make(1, 0, 0, &hello));
    hello.version++;
    send_bytes(fd, &hello, sizeof(hello));
    expect_refusal(fd);
    finish_house(&h);
    assert_non_null(strstr(h.log, "its hello is for another rank"));
    assert_non_null(strstr(h.log, "its hello is of another version"));
}

static void a_wrong_key_is_refused(void **state)
{
    uint8_t key[TCP_KEY];
    house h;
    (void)state;
    open_house(&h, 60000);
    memcpy(key, h.key, sizeof(key));
    key[TCP_KEY - 1] ^= 1;
    talk t = enter_house(&h, key, TCP_CALLS);
    /* Nor does the rank itself pass for another one. */
    assert_false(tcp_answer_is_true(key, &t.hello, &t.answer));
    expect_refusal(t.fd);
    finish_house(&h);
    assert_non_null(strstr(h.log, "it does not know the key of this run"));
}

/* Everything that a rank said once is said again. */
static void what_was_heard_opens_no_door(void **state)
{
    tcp_answer answer;
    house h;
    (void)state;
    open_house(&h, 60000);
    talk t = enter_house(&h, h.key, TCP_CALLS);
    int fd = knock(&h);
    send_bytes(fd, &t.hello, sizeof(t.hello)); /* while its line is there */
    if (recv(fd, &answer, sizeof(answer), MSG_WAITALL) ==
        (ssize_t)sizeof(answer)) {
        /* The hello came before the proof of the first one. */
        send_bytes(fd, t.proof, sizeof(t.proof));
    }
    expect_refusal(fd);
    talk again = enter_house(&h, h.key, TCP_CONTROL);
    close_house(&h);
    assert_true(h.admitted);
    (void)close(t.fd);
    (void)close(again.fd);

    open_house(&h, 60000); /* the same rank of another run */
    fd = knock(&h);
    send_bytes(fd, &t.hello, sizeof(t.hello));
    assert_int_equal(recv(fd, &answer, sizeof(answer), MSG_WAITALL),
                     sizeof(answer));
    assert_true(memcmp(&answer, &t.answer, sizeof(answer)) != 0);
    send_bytes(fd, t.proof, sizeof(t.proof));
    expect_refusal(fd);
    finish_house(&h);
}

/* Even a rank of the run makes no line twice, which would leave the first one
 * to nobody. */
static void a_line_is_made_once(void **state)
{
    house h;
    (void)state;
    open_house(&h, 60000);
    talk first = enter_house(&h, h.key, TCP_CALLS);
    talk again = enter_house(&h, h.key, TCP_CALLS);
    expect_refusal(again.fd);
    talk notes = enter_house(&h, h.key, TCP_CONTROL);
    close_house(&h);
    assert_true(h.admitted);
    assert_non_null(
        strstr(h.log, "the line that its hello is for is there already"));
    (void)close(first.fd);
    (void)close(notes.fd);
}

/* A guest has five seconds for what it says, whatever else happens at the
 * door. */
static void guests_have_five_seconds(void **state)
{
    house h;
    (void)state;
    open_house(&h, 60000);
    int slow = knock(&h);
    int silent = knock(&h);
    talk notes = enter_house(&h, h.key, TCP_CONTROL); /* the last to come in */
    atomic_fetch_add(&jump, 1000000000u);
    talk calls = { .fd = slow };
    say_hello(h.key, TCP_CALLS, &calls);
    close_house(&h);
    assert_true(h.admitted);
    assert_null(strstr(h.log, "in time"));
    (void)close(slow);
    (void)close(silent);
    (void)close(notes.fd);

    open_house(&h, 60000);
    silent = knock(&h);
    notes = enter_house(&h, h.key, TCP_CONTROL);
    expect_refusal(enter_house(&h, h.key, TCP_CONTROL).fd); /* it is in */
    atomic_fetch_add(&jump, 5000000001u);
    uint64_t start = ranks_ms();
    expect_refusal(silent);
    assert_true(ranks_ms() - start < 20000); /* the jump is what counts */
    calls = enter_house(&h, h.key, TCP_CALLS);
    close_house(&h);
    assert_true(h.admitted);
    assert_non_null(strstr(h.log, "it did not say in time who it is"));
    (void)close(calls.fd);
    (void)close(notes.fd);
}

/* More guests than there are seats say nothing: the oldest give theirs up. */
static void silent_guests_delay_nobody(void **state)
{
    int fds[100];
    house h;
    (void)state;
    open_house(&h, 60000);
    for (size_t i = 0; i < 100; i++)
        fds[i] = knock(&h);
    uint64_t start = ranks_ms();
    for (size_t i = 0; i < 5; i++)
        expect_refusal(fds[i]);
    char byte;
    assert_true(recv(fds[95], &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
    finish_house(&h);
    assert_true(ranks_ms() - start < 4000); /* less than their time */
    assert_non_null(strstr(h.log, "too many connections say nothing"));
    for (size_t i = 5; i < 100; i++)
        (void)close(fds[i]);
}

static void a_rank_that_does_not_come_is_named(void **state)
{
    house h;
    (void)state;
    open_house(&h, 200);
    talk t = enter_house(&h, h.key, TCP_CALLS);
    close_house(&h);
    assert_false(h.admitted);
    assert_int_equal(h.doors.missing, 1);
    (void)close(t.fd);
}

/* ---- lines ----------------------------------------------------------------
 */

enum way { ON_CALLS, ON_NOTES, ON_RING };

/* Rank 1 sends what is no frame, no note or no bell on one of its ways to rank
 * 0. */
static void send_garbage(ranks_env *e, enum way way)
{
    char junk[256];
    const struct iovec part = { junk, sizeof(junk) };
    CHECK_OK(e, ranks_barrier(e, e->world));
    ranks_meet(e);
    memset(junk, 0x55, sizeof(junk));
    if (e->rank == 1) {
        mesh_comm *comm = e->comm_self;
        tcp_line *line = comm->peers[0].line;
        (void)pthread_mutex_lock(&comm->lock);
        if (way == ON_RING)
            CHECK(e, tcp_ring_write(line, &part, 1) == sizeof(junk));
        else
            send_bytes(way == ON_NOTES ? line->notes : line->calls, junk,
                       sizeof(junk));
        (void)pthread_mutex_unlock(&comm->lock);
    }
    ranks_meet(e);
    uint64_t start = ranks_ms();
    if (e->rank == 0) {
        CHECK(e, ranks_barrier(e, e->world) == XRAY_E_PEER);
        CHECK(e, ranks_said(e, "the line to a rank is garbled"));
        CHECK(e, ranks_said(e, "rank 1 (pid "));
        CHECK(e, ranks_said(e, "sent bytes that are no frame of comm tcp"));
        CHECK(e, ranks_ms() - start < 3000);
    }
    ranks_meet(e);
}

static void garbled_calls(ranks_env *e)
{
    send_garbage(e, ON_CALLS);
}

static void garbled_notes(ranks_env *e)
{
    send_garbage(e, ON_NOTES);
}

static void garbled_ring(ranks_env *e)
{
    send_garbage(e, ON_RING);
}

static int ask_option(int fd, int level, int name)
{
    int value = -1;
    socklen_t size = sizeof(value);
    (void)getsockopt(fd, level, name, &value, &size);
    return value;
}

/* The system notices a silent host on the line of notes, which each rank has to
 * every other, once several probes are not answered, and delays no line. */
static void probed_lines(ranks_env *e)
{
    mesh_comm *comm = e->comm_self;
    const int given_up = (int)(comm->silence / 1000000u) + 2000;
    const int pause = comm->silence < UINT64_C(5000000000) ? 1 : 2;
    CHECK(e, comm->silence > 0);
    (void)pthread_mutex_lock(&comm->lock); /* a rank may already leave */
    for (uint32_t r = 0; r < e->size; r++) {
        const tcp_line *line = comm->peers[r].line;
        if (r == e->rank)
            continue;
        CHECK(e, ask_option(line->notes, SOL_SOCKET, SO_KEEPALIVE) == 1);
        CHECK(e, ask_option(line->notes, IPPROTO_TCP, TCP_USER_TIMEOUT) ==
                     given_up);
        CHECK(e, ask_option(line->notes, IPPROTO_TCP, TCP_KEEPIDLE) == pause);
        CHECK(e, ask_option(line->notes, IPPROTO_TCP, TCP_KEEPINTVL) == pause);
        CHECK(e, ask_option(line->notes, IPPROTO_TCP, TCP_NODELAY) == 1);
        CHECK(e, ask_option(line->calls, IPPROTO_TCP, TCP_NODELAY) == 1);
        CHECK(e, ask_option(line->calls, SOL_SOCKET, SO_KEEPALIVE) == 0);
    }
    (void)pthread_mutex_unlock(&comm->lock);
    ranks_meet(e);
}

const scenario ranks_scenarios[] = {
    { "probed", probed_lines, 60000 },
    { "calls", garbled_calls, 60000 },
    { "notes", garbled_notes, 60000 },
    { "ring", garbled_ring, 60000 },
    { NULL, NULL, 0 },
};

static void garbled_lines_end_with_the_name_of_their_rank(void **state)
{
    (void)state;
    ranks_run("calls", 2, NULL);
    ranks_run("notes", 2, NULL);
    ranks_run("ring", 2, NULL);
}

static void silent_hosts_are_noticed_on_all_lines_of_notes(void **state)
{
    (void)state;
    ranks_run("probed", 3, NULL);
}

int main(int argc, char **argv)
{
    ranks_main(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(garbage_is_refused),
        cmocka_unit_test(guests_may_speak_slowly),
        cmocka_unit_test(hellos_for_other_ranks_are_refused),
        cmocka_unit_test(a_wrong_key_is_refused),
        cmocka_unit_test(what_was_heard_opens_no_door),
        cmocka_unit_test(a_line_is_made_once),
        cmocka_unit_test(guests_have_five_seconds),
        cmocka_unit_test(silent_guests_delay_nobody),
        cmocka_unit_test(a_rank_that_does_not_come_is_named),
        cmocka_unit_test(garbled_lines_end_with_the_name_of_their_rank),
        cmocka_unit_test(silent_hosts_are_noticed_on_all_lines_of_notes),
    };
    return cmocka_run_group_tests_name("tcp.doors", tests, NULL, NULL);
}
