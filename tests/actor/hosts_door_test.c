/* SPDX-License-Identifier: Apache-2.0
 *
 * Who connects to a run that awaits actors on other hosts: strangers are
 * refused, each in one sentence, and launchers are reported. The test program
 * is the run, the actor, and the strangers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "core/actor/actor.h"
#include "core/actor/tcp_hello.h"
#include "tests/testing.h"

static const xray_runtime_ops *const ops = &xr_hosts_runtime;
static char said[400];
static char logged[16][400];
static char noted[400];
static uint32_t log_count;
static uint32_t seen; /* lines that were expected */
static int actor_fd = -1;
static void *self;
static xray_peer *peer;
static xray_runtime_event event = { .header = XRAY_HEADER(xray_runtime_event) };
/* Where the launcher of the tests writes what it is given. */
static char folder[] = "/tmp/xray-door-XXXXXX";
static unsigned char token[XR_TCP_TOKEN];
static unsigned char build[XR_TCP_TOKEN];
static struct sockaddr_in door = { .sin_family = AF_INET };

static xray_status note_reason(const xray_host *host, xray_status status,
                               const char *where, const char *text)
{
    (void)host;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", text);
    return status;
}

static void note_line(const xray_host *host, uint32_t level, const char *line)
{
    (void)host;
    if (level == XRAY_LOG_INFO) { /* that an actor of this host came over TCP */
        (void)snprintf(noted, sizeof(noted), "%s", line);
        return;
    }
    assert_int_equal(level, XRAY_LOG_WARN);
    (void)snprintf(logged[log_count++ % 16], sizeof(logged[0]), "%s", line);
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .log = note_line,
                                .fail = note_reason };

/* ---- the run ------------------------------------------------------------- */

static void create_run(const char *launch, uint32_t start_ms)
{
    const xr_hosts_config config = { "lo", launch };
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &host,
                                       .record_size = 64,
                                       .actors = 2,
                                       .hang_ms = 20000,
                                       .start_ms = start_ms };
    assert_int_equal(ops->create(&setup, &config, &self), XRAY_OK);
}

static xray_status spawn_on(const char *name)
{
    static const char *const unused[] = { "/no/such/program", NULL };
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = unused,
                                   .host = name };
    return ops->spawn(self, &spec, &peer);
}

/* Reads a file of the launcher once it is there with all its bytes. */
static void read_given(const char *name, char *out, size_t least, size_t cap)
{
    char path[128];
    size_t size = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    while (size < least) {
        FILE *file = fopen(path, "rb");
        size = file ? fread(out, 1, cap - 1, file) : 0;
        if (file)
            (void)fclose(file);
        assert_int_equal(ops->poll(self, 5, &event), XRAY_AGAIN);
    }
    out[size] = '\0';
}

/* A run that awaits an actor whose process never connects. */
static int await_an_actor(void **state)
{
    char launch[400];
    char text[200];
    (void)state;
    log_count = 0;
    seen = 0;
    noted[0] = '\0';
    (void)snprintf(launch, sizeof(launch),
                   "sh -c 'echo {address} {host} > %s/address; exec cat > "
                   "%s/token'",
                   folder, folder);
    create_run(launch, 60000);
    assert_int_equal(spawn_on("node-1.example"), XRAY_OK);
    read_given("token", text, 65, sizeof(text));
    assert_int_equal(text[64], '\n');
    for (size_t i = 0; i < XR_TCP_TOKEN; i++) {
        const char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };
        token[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    read_given("address", text, 20, sizeof(text));
    char *end = text + strlen("tcp:127.0.0.1:");
    assert_int_equal(strncmp(text, "tcp:127.0.0.1:", (size_t)(end - text)), 0);
    const unsigned long port = strtoul(end, &end, 10);
    assert_string_equal(end, ":0 node-1.example\n");
    door.sin_port = htons((uint16_t)port);
    door.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(xr_tcp_build_id(build), 0);
    return 0;
}

/* The run's door is closed, and no process is left. */
static int end_run(void **state)
{
    char path[128];
    (void)state;
    ops->destroy(self);
    self = NULL;
    if (actor_fd >= 0)
        (void)close(actor_fd);
    actor_fd = -1;
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    static const char *const names[] = { "address", "token" };
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    return 0;
}

/* ---- strangers ----------------------------------------------------------- */

static int connect_stranger(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)(const void *)&door, sizeof(door)),
        0);
    return fd;
}

static void send_bytes(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

static void poll_run(void)
{
    assert_int_equal(ops->poll(self, 20, &event), XRAY_AGAIN);
}

/* Serves the run until the other side of `fd` is closed. */
static void expect_end(int fd)
{
    char ignored[256];
    for (;;) {
        ssize_t n = recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        poll_run();
    }
    (void)close(fd);
}

/* The next line of the log says why. */
static void expect_refusal(int fd, const char *why)
{
    expect_end(fd);
    while (log_count == seen)
        poll_run();
    assert_int_equal(log_count, seen + 1);
    const char *line = logged[seen++ % 16];
    const char *from = "a connection from 127.0.0.1 port ";
    assert_int_equal(strncmp(line, from, strlen(from)), 0);
    if (!strstr(line, why))
        fail_msg("expected \"%s\" in: %s", why, line);
}

/* Sends what one side of a greeting has to send, and receives what it wants. */
static void greet_run(int fd, xr_tcp_hello *hello)
{
    unsigned char bytes[XR_TCP_HELLO_MOST];
    send_bytes(fd, hello->send, hello->send_size);
    while (hello->state == XR_TCP_HELLO_MORE) {
        ssize_t n = recv(fd, bytes, hello->want, MSG_DONTWAIT);
        if (n > 0)
            xr_tcp_hello_take(hello, bytes, (uint32_t)n);
        else
            poll_run();
    }
}

static void open_hello(xr_tcp_hello *hello, uint32_t purpose, uint32_t index)
{
    unsigned char nonce[XR_TCP_TOKEN];
    assert_int_equal(getrandom(nonce, sizeof(nonce), 0), sizeof(nonce));
    xr_tcp_hello_open(hello, purpose, index, token, build, nonce);
}

/* The actor of the test connects for real. */
static int connect_actor(void)
{
    xr_tcp_hello hello;
    int fd = connect_stranger();
    open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    assert_int_equal(hello.state, XR_TCP_HELLO_DONE);
    send_bytes(fd, hello.send, hello.send_size);
    return fd;
}

/* The run is well: the actor that it awaits is let in. */
static void expect_actor(void)
{
    char welcome[40];
    int fd = connect_actor();
    while (recv(fd, welcome, sizeof(welcome), MSG_DONTWAIT) !=
           (ssize_t)sizeof(welcome))
        poll_run();
    actor_fd = fd; /* its end would be reported */
    assert_string_equal(noted, "actor it is on this host, but shares no memory "
                               "with the run, so its regions are copied: it "
                               "came over TCP");
}

/* ---- tests --------------------------------------------------------------- */

static void garbage_is_refused(void **state)
{
    static const char get[] =
        "GET /metrics HTTP/1.1\r\nHost: node\r\n"
        "User-Agent: a scanner of ports, which sends more "
        "than a hello is long\r\n\r\n";
    char zeros[4096] = { 0 };
    (void)state;
    int fd = connect_stranger();
    send_bytes(fd, get, sizeof(get));
    expect_refusal(fd, "was refused: it sent bytes that are no hello of a "
                       "Workhorse");
    fd = connect_stranger();
    send_bytes(fd, zeros, sizeof(zeros));
    expect_refusal(fd, "no hello of a Workhorse");
    fd = connect_stranger();
    send_bytes(fd, get, 10);
    (void)shutdown(fd, SHUT_WR);
    expect_refusal(fd, "it ended before its hello was complete");
    expect_actor();
}

static void wrong_tokens_are_refused(void **state)
{
    xr_tcp_hello hello;
    (void)state;
    int fd = connect_stranger();
    token[5] ^= 1;
    open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    assert_int_equal(hello.state, XR_TCP_HELLO_REFUSED);
    send_bytes(fd, token, sizeof(token));
    expect_refusal(fd, "it does not know the token that Workhorse 0 was given");
    token[5] ^= 1;
    fd = connect_stranger();
    open_hello(&hello, XR_TCP_FOR_MESSAGES, 1); /* which was not spawned */
    greet_run(fd, &hello);
    assert_string_equal(hello.why, "the run refused this Workhorse: this "
                                   "Workhorse is not awaited");
    expect_refusal(fd, "it says that it is Workhorse 1, which the run does not "
                       "await");
    fd = connect_stranger();
    open_hello(&hello, XR_TCP_FOR_PULSE, 0); /* before its messages */
    greet_run(fd, &hello);
    expect_refusal(fd, "which the run does not await");
    expect_actor();
}

/* Bytes that an actor sent once are worth nothing later. */
static void replayed_hello_is_refused(void **state)
{
    xr_tcp_hello first;
    xr_tcp_hello second;
    (void)state;
    int fd = connect_stranger();
    open_hello(&first, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &first);
    assert_int_equal(first.state, XR_TCP_HELLO_DONE);
    (void)shutdown(fd, SHUT_WR);
    expect_refusal(fd, "it ended before its hello was complete");
    fd = connect_stranger();
    open_hello(&second, XR_TCP_FOR_MESSAGES, 0);
    memcpy(second.send, &first.opening, sizeof(first.opening));
    greet_run(fd, &second);
    send_bytes(fd, first.send, first.send_size);
    expect_refusal(fd, "it does not know the token");
    expect_actor();
}

static void other_builds_are_refused(void **state)
{
    xr_tcp_hello hello;
    char ours[13];
    char why[200];
    (void)state;
    xr_tcp_build_text(build, ours);
    memset(build, 0xab, sizeof(build));
    int fd = connect_stranger();
    open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    (void)snprintf(why, sizeof(why),
                   "its program is build abababababab, while this run's is "
                   "build %s",
                   ours);
    assert_non_null(strstr(hello.why, why));
    expect_refusal(fd, why);
    assert_int_equal(xr_tcp_build_id(build), 0);
    expect_actor();
}

/* Many connections that say nothing do not keep the actor out, nor fill the
 * log. */
static void silent_guests_make_room(void **state)
{
    enum { MANY = 100 };
    int fds[MANY];
    (void)state;
    for (int i = 0; i < MANY; i++) {
        fds[i] = connect_stranger();
        poll_run();
    }
    assert_in_range(log_count, 10, 20);
    expect_actor();
    for (int i = 0; i < MANY; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 5; i++)
        poll_run();
    assert_int_equal(log_count, 20);
    assert_non_null(strstr(logged[19 % 16], "; later ones are not reported"));
}

static void expect_loss(const char *reason)
{
    assert_int_equal(ops->poll(self, 60000, &event), XRAY_OK);
    assert_int_equal(event.kind, XRAY_RUNTIME_LOST);
    assert_string_equal(event.reason, reason);
    assert_int_equal(event.clean, 0);
}

/* Bytes of somebody who knows the token, but are no frames. */
static void damaged_frames_end_the_actor(void **state)
{
    unsigned char frame[40] = { 0x78, 0x74, 0x70, 0x63, 5 }; /* a beat */
    (void)state;
    int fd = connect_actor();
    send_bytes(fd, frame, sizeof(frame));
    expect_loss("sent bytes that arrived damaged (killed)");
    (void)close(fd);
}

static void failed_launchers_are_reported(void **state)
{
    (void)state;
    create_run("sh -c 'echo one >&2; echo ssh: no route to {host} >&2; exit "
               "255'",
               60000);
    assert_int_equal(spawn_on("node-1"), XRAY_OK);
    assert_int_equal(ops->pid(self, peer), 0); /* it is not on this host */
    expect_loss("did not start: its launcher exited with status 255: ssh: no "
                "route to node-1");
    ops->destroy(self);
    create_run("sh -c 'kill -9 $$'", 60000);
    assert_int_equal(spawn_on("node-1"), XRAY_OK);
    expect_loss("did not start: its launcher was killed by signal 9 (Killed)");
    ops->destroy(self);
    create_run("sh -c 'exec sleep 60 {host}'", 300);
    assert_int_equal(spawn_on("node-1"), XRAY_OK);
    ops->destroy(self);
    create_run("/no/such/launcher {host}", 60000);
    assert_int_equal(spawn_on("node-1"), XRAY_E_IO);
    assert_string_equal(said, "actor it: starting /no/such/launcher {host}: No "
                              "such file or directory");
    assert_int_equal(spawn_on("-oProxyCommand=x"), XRAY_E_ARG);
    assert_int_equal(spawn_on("a;b"), XRAY_E_ARG);
    assert_string_equal(said, "actor it: \"a;b\" is not the name of a host");
}

static void unknown_interfaces_are_refused(void **state)
{
    const xr_hosts_config config = { "nosuch0", NULL };
    const xray_runtime_setup setup = {
        .header = XRAY_HEADER(xray_runtime_setup), .host = &host, .actors = 1
    };
    (void)state;
    assert_int_equal(ops->create(&setup, &config, &self), XRAY_E_CONFIG);
    assert_string_equal(said, "this host has no network interface \"nosuch0\"");
}

static int make_folder(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, await_an_actor, end_run)
        CASE(garbage_is_refused),
        CASE(wrong_tokens_are_refused),
        CASE(replayed_hello_is_refused),
        CASE(other_builds_are_refused),
        CASE(silent_guests_make_room),
        CASE(damaged_frames_end_the_actor),
        cmocka_unit_test_teardown(failed_launchers_are_reported, end_run),
        cmocka_unit_test(unknown_interfaces_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
