/* SPDX-License-Identifier: Apache-2.0
 *
 * The run of the tests about who connects.
 */
#define _GNU_SOURCE
#include "tests/actor/door.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>

door_run door = { .ops = &xr_hosts_runtime,
                  .event = { .header = XRAY_HEADER(xray_runtime_event) },
                  .actor_fd = -1 };
/* Where the launcher of the tests writes what it is given. */
static char folder[] = "/tmp/xray-door-XXXXXX";
static struct sockaddr_in at = { .sin_family = AF_INET };

static xray_status note_reason(const xray_host *host, xray_status status,
                               const char *where, const char *text)
{
    (void)host;
    (void)where;
    (void)snprintf(door.said, sizeof(door.said), "%s", text);
    return status;
}

static void note_line(const xray_host *host, uint32_t level, const char *line)
{
    (void)host;
    if (level == XRAY_LOG_INFO) { /* that an actor of this host came over TCP */
        (void)snprintf(door.noted, sizeof(door.noted), "%s", line);
        return;
    }
    assert_int_equal(level, XRAY_LOG_WARN);
    (void)snprintf(door.lines[door.line_count++ % 16], sizeof(door.lines[0]),
                   "%s", line);
}

const xray_host door_host = { .header = XRAY_HEADER(xray_host),
                              .log = note_line,
                              .fail = note_reason };

/* ---- the run ------------------------------------------------------------- */

void door_open(const char *launch, uint32_t start_ms)
{
    const xr_hosts_config config = { "lo", launch, door.tls, 0 };
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &door_host,
                                       .record_size = 64,
                                       .actors = 2,
                                       .hang_ms = 20000,
                                       .start_ms = start_ms };
    assert_int_equal(door.ops->create(&setup, &config, &door.self), XRAY_OK);
}

xray_status door_spawn(const char *name)
{
    static const char *const unused[] = { "/no/such/program", NULL };
    const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                   .name = "it",
                                   .argv = unused,
                                   .host = name };
    return door.ops->spawn(door.self, &spec, &door.peer);
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
        assert_int_equal(door.ops->poll(door.self, 5, &door.event), XRAY_AGAIN);
    }
    out[size] = '\0';
}

/* A run that awaits an actor whose process never connects. */
int door_await_actor(void **state)
{
    char launch[400];
    char text[200];
    (void)state;
    door.line_count = 0;
    door.expected = 0;
    door.noted[0] = '\0';
    (void)snprintf(launch, sizeof(launch),
                   "sh -c 'echo {address} {host} > %s/address; exec cat > "
                   "%s/token'",
                   folder, folder);
    door_open(launch, 60000);
    assert_int_equal(door_spawn("node-1.example"), XRAY_OK);
    read_given("token", text, 65, sizeof(text));
    assert_int_equal(text[64], '\n');
    for (size_t i = 0; i < XR_TCP_TOKEN; i++) {
        const char digits[3] = { text[2 * i], text[2 * i + 1], '\0' };
        door.token[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    read_given("address", text, 20, sizeof(text));
    const char *before = door.tls ? "tls:127.0.0.1:" : "tcp:127.0.0.1:";
    char *end = text + strlen(before);
    assert_int_equal(strncmp(text, before, strlen(before)), 0);
    const unsigned long port = strtoul(end, &end, 10);
    assert_string_equal(end, ":0 node-1.example\n");
    at.sin_port = htons((uint16_t)port);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(xr_tcp_build_id(door.build), 0);
    return 0;
}

/* The run's door is closed, and no process is left. */
int door_end(void **state)
{
    char path[128];
    (void)state;
    door.ops->destroy(door.self);
    door.self = NULL;
    if (door.actor_fd >= 0)
        (void)close(door.actor_fd);
    door.actor_fd = -1;
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

int door_connect(void)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(
        connect(fd, (const struct sockaddr *)(const void *)&at, sizeof(at)), 0);
    return fd;
}

void door_send(int fd, const void *bytes, size_t size)
{
    assert_int_equal(send(fd, bytes, size, MSG_NOSIGNAL), size);
}

void door_poll(void)
{
    assert_int_equal(door.ops->poll(door.self, 20, &door.event), XRAY_AGAIN);
}

/* Serves the run until the other side of `fd` is closed. */
static void expect_end(int fd)
{
    char ignored[256];
    for (;;) {
        ssize_t n = recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            break;
        door_poll();
    }
    (void)close(fd);
}

/* The next line of the log says who was refused, and why. */
void door_expect_refusal(int fd, const char *why)
{
    struct sockaddr_in own = { .sin_port = 0 };
    socklen_t size = sizeof(own);
    char from[64];
    (void)getsockname(fd, (struct sockaddr *)(void *)&own, &size);
    (void)snprintf(from, sizeof(from), "a connection from 127.0.0.1 port %u ",
                   ntohs(own.sin_port));
    expect_end(fd);
    while (door.line_count == door.expected)
        door_poll();
    assert_int_equal(door.line_count, door.expected + 1);
    const char *line = door.lines[door.expected++ % 16];
    if (strncmp(line, from, strlen(from)) != 0)
        fail_msg("expected \"%s\" in: %s", from, line);
    if (!strstr(line, why))
        fail_msg("expected \"%s\" in: %s", why, line);
}

void door_open_hello(xr_tcp_hello *hello, uint32_t purpose, uint32_t index)
{
    unsigned char nonce[XR_TCP_TOKEN];
    assert_int_equal(getrandom(nonce, sizeof(nonce), 0), sizeof(nonce));
    xr_tcp_hello_open(hello, purpose, index, door.token, door.build, nonce);
}

void door_expect_loss(const char *reason)
{
    assert_int_equal(door.ops->poll(door.self, 60000, &door.event), XRAY_OK);
    assert_int_equal(door.event.kind, XRAY_RUNTIME_LOST);
    assert_string_equal(door.event.reason, reason);
    assert_int_equal(door.event.clean, 0);
}

int door_make_folder(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    return mkdtemp(folder) ? 0 : -1;
}

int door_remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}
