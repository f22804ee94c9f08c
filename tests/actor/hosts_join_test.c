/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what an actor says that cannot join its run: an address or a token
 * that is none, and a parent that is not there, ends, or speaks otherwise, with
 * TLS and without. The actor is a process of its own, and the test its parent.
 */
#define _GNU_SOURCE /* pipe2 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/base/child.h"
#include "core/base/tls.h"
#include "tests/testing.h"

#define TOKEN "00112233445566778899aabbccddeeff"
#define TWICE(text) text text

enum { IS_ABSENT, ENDS, RESETS, SPEAKS };

static char said[400]; /* by the actor */

static xray_status note_reason(const xray_host *host, xray_status status,
                               const char *where, const char *text)
{
    (void)host;
    (void)where;
    (void)snprintf(said, sizeof(said), "%s", text);
    return status;
}

static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                .fail = note_reason };

/* The actor's process, which says by its exit code that it has not joined, and
 * why on its standard output. */
static int run_actor(const char *address)
{
    void *self = NULL;
    xray_peer *parent = NULL;
    if (xr_hosts_runtime.attach(&host, address, &self, &parent) == XRAY_OK)
        return 1;
    (void)printf("%s", said);
    return 7;
}

/* Starts the actor with this line of its standard input. Returns where it says
 * its reason. */
static int start_actor(const char *address, const char *line)
{
    char program[] = "/proc/self/exe";
    char word[] = "--actor";
    char where[64];
    char *argv[] = { program, word, where, NULL };
    int input[2];
    int out[2];
    pid_t pid = 0;
    (void)snprintf(where, sizeof(where), "%s", address);
    assert_int_equal(pipe2(input, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(write(input[1], line, strlen(line)), strlen(line));
    const int files[XR_CHILD_FILES] = { input[0], out[1], XR_CHILD_SAME,
                                        XR_CHILD_NOTHING };
    assert_int_equal(xr_child_start(argv, files, 0, &pid), 0);
    (void)close(input[0]);
    (void)close(input[1]);
    (void)close(out[1]);
    return out[0];
}

static void hear_actor(int from)
{
    int status = 0;
    ssize_t n = 0;
    size_t size = 0;
    while ((n = read(from, said + size, sizeof(said) - 1 - size)) > 0)
        size += (size_t)n;
    said[size] = '\0';
    (void)close(from);
    assert_true(wait(&status) > 0);
    assert_int_equal(WEXITSTATUS(status), 7);
}

/* A parent on a port of its own: its socket, and its address. */
static int open_parent(const char *scheme, char *out, size_t size)
{
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t bytes = sizeof(at);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)(void *)&at, sizeof(at)), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)(void *)&at, &bytes),
                     0);
    (void)snprintf(out, size, "%s:127.0.0.1:%u:0", scheme, ntohs(at.sin_port));
    return fd;
}

/* Takes the actor's first words, and then behaves so. */
static void answer_actor(int fd, int how)
{
    static const char text[200] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    const struct linger none = { .l_onoff = 1 };
    char bytes[4096];
    const int line = accept(fd, NULL, NULL);
    assert_true(line >= 0);
    assert_true(recv(line, bytes, sizeof(bytes), 0) > 0);
    if (how == RESETS)
        (void)setsockopt(line, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
    if (how == SPEAKS)
        assert_int_equal(send(line, text, sizeof(text), MSG_NOSIGNAL),
                         sizeof(text));
    if (how == SPEAKS) /* until the actor goes */
        while (recv(line, bytes, sizeof(bytes), 0) > 0)
            continue;
    (void)close(line);
}

static void parents_that_fail_are_named(void **state)
{
    static const struct {
        const char *scheme;
        int how;
        const char *says; /* how it begins, after the address */
    } cases[] = {
        { "tcp", IS_ABSENT, "Connection refused" },
        { "tcp", ENDS, "Connection reset by peer" },
        { "tcp", RESETS, "Connection reset by peer" },
        { "tcp", SPEAKS, "there is no run of X-ray at this address" },
        { "tls", IS_ABSENT, "Connection refused" },
        { "tls", ENDS, "the TLS handshake with the run failed: The TLS" },
        { "tls", RESETS, "the TLS handshake with the run failed: " },
        { "tls", SPEAKS, "the TLS handshake with the run failed: " },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char address[64];
        char want[200];
        if (cases[i].scheme[1] == 'l' && !xr_tls_is_there())
            continue;
        int fd = open_parent(cases[i].scheme, address, sizeof(address));
        if (cases[i].how != IS_ABSENT)
            assert_int_equal(listen(fd, 1), 0);
        int from = start_actor(address, TWICE(TOKEN) "\n");
        if (cases[i].how != IS_ABSENT)
            answer_actor(fd, cases[i].how);
        hear_actor(from);
        (void)close(fd);
        (void)snprintf(want, sizeof(want), "%s: %s", address, cases[i].says);
        if (strncmp(said, want, strlen(want)) != 0)
            fail_msg("expected \"%s\" in: %s", want, said);
    }
}

static void addresses_and_tokens_are_checked(void **state)
{
    static const char *const addresses[] = { "none", "tcp:127.0.0.1:9",
                                             "tcp:127.0.0.1:70000:0",
                                             "udp:127.0.0.1:9:0" };
    static const char *const lines[] = { "", TOKEN "\n", TWICE(TOKEN),
                                         TWICE(TOKEN) "0\n",
                                         TOKEN
                                         "00112233445566778899aabbccddeefg\n" };
    char want[200];
    (void)state;
    for (size_t i = 0; i < sizeof(addresses) / sizeof(*addresses); i++) {
        hear_actor(start_actor(addresses[i], TWICE(TOKEN) "\n"));
        (void)snprintf(want, sizeof(want),
                       "\"%s\" is not the address of an actor's parent; only "
                       "xray itself runs this command",
                       addresses[i]);
        assert_string_equal(said, want);
    }
    for (size_t i = 0; i < sizeof(lines) / sizeof(*lines); i++) {
        hear_actor(start_actor("tcp:127.0.0.1:9:0", lines[i]));
        assert_string_equal(said,
                            "the standard input does not begin with the token "
                            "of a run; its launcher must pass it on");
    }
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--actor") == 0)
        return run_actor(argv[2]);

    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parents_that_fail_are_named),
        cmocka_unit_test(addresses_and_tokens_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
