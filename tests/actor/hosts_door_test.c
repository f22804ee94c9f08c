/* SPDX-License-Identifier: Apache-2.0
 *
 * Who connects to a run that awaits actors on other hosts: strangers are
 * refused, each in one sentence, and launchers are reported. The test program
 * is the run, the actor, and the strangers.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "tests/actor/door.h"

/* Sends what one side of a greeting has to send, and receives what it wants. */
static void greet_run(int fd, xr_tcp_hello *hello)
{
    unsigned char bytes[XR_TCP_HELLO_MOST];
    door_send(fd, hello->send, hello->send_size);
    while (hello->state == XR_TCP_HELLO_MORE) {
        ssize_t n = recv(fd, bytes, hello->want, MSG_DONTWAIT);
        if (n > 0)
            xr_tcp_hello_take(hello, bytes, (uint32_t)n);
        else
            door_poll();
    }
}

/* The actor of the test connects for real. */
static int connect_actor(void)
{
    xr_tcp_hello hello;
    int fd = door_connect();
    door_open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    assert_int_equal(hello.state, XR_TCP_HELLO_DONE);
    door_send(fd, hello.send, hello.send_size);
    return fd;
}

/* The run is well: the actor that it awaits is let in. */
static void expect_actor(void)
{
    char welcome[40];
    int fd = connect_actor();
    while (recv(fd, welcome, sizeof(welcome), MSG_DONTWAIT) !=
           (ssize_t)sizeof(welcome))
        door_poll();
    door.actor_fd = fd; /* its end would be reported */
    assert_string_equal(door.noted, "actor it is on this host, but shares no "
                                    "memory with the run, so its regions are "
                                    "copied: it came over TCP");
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
    int fd = door_connect();
    door_send(fd, get, sizeof(get));
    door_expect_refusal(fd, "was refused: it sent bytes that are no hello of a "
                            "Workhorse");
    fd = door_connect();
    door_send(fd, zeros, sizeof(zeros));
    door_expect_refusal(fd, "no hello of a Workhorse");
    fd = door_connect();
    door_send(fd, get, 10);
    (void)shutdown(fd, SHUT_WR);
    door_expect_refusal(fd, "it ended before its hello was complete");
    expect_actor();
}

static void wrong_tokens_are_refused(void **state)
{
    xr_tcp_hello hello;
    (void)state;
    int fd = door_connect();
    door.token[5] ^= 1;
    door_open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    assert_int_equal(hello.state, XR_TCP_HELLO_REFUSED);
    door_send(fd, door.token, sizeof(door.token));
    door_expect_refusal(
        fd, "it does not know the token that Workhorse 0 was given");
    door.token[5] ^= 1;
    fd = door_connect();
    door_open_hello(&hello, XR_TCP_FOR_MESSAGES, 1); /* which was not spawned */
    greet_run(fd, &hello);
    assert_string_equal(hello.why, "the run refused this Workhorse: this "
                                   "Workhorse is not awaited");
    door_expect_refusal(
        fd, "it says that it is Workhorse 1, which the run does not "
            "await");
    fd = door_connect();
    door_open_hello(&hello, XR_TCP_FOR_PULSE, 0); /* before its messages */
    greet_run(fd, &hello);
    door_expect_refusal(fd, "which the run does not await");
    expect_actor();
}

/* Bytes that an actor sent once are worth nothing later. */
static void replayed_hello_is_refused(void **state)
{
    xr_tcp_hello first;
    xr_tcp_hello second;
    (void)state;
    int fd = door_connect();
    door_open_hello(&first, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &first);
    assert_int_equal(first.state, XR_TCP_HELLO_DONE);
    (void)shutdown(fd, SHUT_WR);
    door_expect_refusal(fd, "it ended before its hello was complete");
    fd = door_connect();
    door_open_hello(&second, XR_TCP_FOR_MESSAGES, 0);
    memcpy(second.send, &first.opening, sizeof(first.opening));
    greet_run(fd, &second);
    door_send(fd, first.send, first.send_size);
    door_expect_refusal(fd, "it does not know the token");
    expect_actor();
}

static void other_builds_are_refused(void **state)
{
    xr_tcp_hello hello;
    char ours[13];
    char why[200];
    (void)state;
    xr_tcp_build_text(door.build, ours);
    memset(door.build, 0xab, sizeof(door.build));
    int fd = door_connect();
    door_open_hello(&hello, XR_TCP_FOR_MESSAGES, 0);
    greet_run(fd, &hello);
    (void)snprintf(why, sizeof(why),
                   "its program is build abababababab, while this run's is "
                   "build %s",
                   ours);
    assert_non_null(strstr(hello.why, why));
    door_expect_refusal(fd, why);
    assert_int_equal(xr_tcp_build_id(door.build), 0);
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
        fds[i] = door_connect();
        door_poll();
        if (i <= 64)
            assert_int_equal(door.line_count, i / 64);
    }
    assert_in_range(door.line_count, 10, 20);
    expect_actor();
    for (int i = 0; i < MANY; i++)
        (void)close(fds[i]);
    for (int i = 0; i < 5; i++)
        door_poll();
    assert_int_equal(door.line_count, 20);
    assert_non_null(
        strstr(door.lines[19 % 16], "; later ones are not reported"));
}

static void silent_guests_have_ten_seconds(void **state)
{
    const xr_hosts *hosts = door.self;
    (void)state;
    int fd = door_connect();
    door_poll();
    const uint64_t since = hosts->door.guests[0].since_ms;
    xr_hosts_check_guests(door.self, since + 9999);
    assert_int_equal(door.line_count, 0);
    xr_hosts_check_guests(door.self, since + 10000);
    assert_int_equal(door.line_count, 1);
    door_expect_refusal(fd, "it sent no hello within 10 s");
}

/* An actor that takes longer to connect than it may be silent is let in. */
static void the_time_to_start_is_no_silence(void **state)
{
    xr_hosts *hosts = door.self;
    (void)state;
    hosts->hang_ms = 500;
    for (int i = 0; i < 40; i++)
        door_poll();
    expect_actor();
    door_poll();
    door_poll();
}

/* Bytes of somebody who knows the token, but are no frames. */
static void damaged_frames_end_the_actor(void **state)
{
    unsigned char frame[40] = { 0x78, 0x74, 0x70, 0x63, 5 }; /* a beat */
    (void)state;
    int fd = connect_actor();
    door_send(fd, frame, sizeof(frame));
    door_expect_loss("sent bytes that arrived damaged (killed)");
    (void)close(fd);
}

/* Sealed frames that do not fit what was announced. */
static void longer_messages_than_announced_end_the_actor(void **state)
{
    static const unsigned char bytes[20] = { 0 };
    xr_tcp_frame frame = xr_tcp_frame_of(XR_TCP_MESSAGE, 10);
    (void)state;
    int fd = connect_actor();
    for (int i = 0; i < 2; i++) { /* of which the second is too long */
        frame.size = i ? 5 : 6;
        xr_tcp_seal(&frame, bytes);
        door_send(fd, &frame, sizeof(frame));
        door_send(fd, bytes, frame.size);
    }
    door_expect_loss("sent bytes that are no frame of this program (killed)");
    (void)close(fd);
}

/* The run has two places. */
static void a_place_is_taken_once(void **state)
{
    static const uint32_t places[] = { 0, 2, UINT32_MAX };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        char says[100];
        const xray_actor_spec spec = { .header = XRAY_HEADER(xray_actor_spec),
                                       .name = "it",
                                       .host = "node-1",
                                       .index = places[i] };
        (void)snprintf(says, sizeof(says),
                       "actor it: index %u of 2 is taken or too large",
                       places[i]);
        assert_int_equal(door.ops->spawn(door.self, &spec, &door.peer),
                         XRAY_E_ARG);
        assert_string_equal(door.said, says);
    }
    expect_actor();
}

static void failed_launchers_are_reported(void **state)
{
    (void)state;
    door_open("sh -c 'echo one >&2; echo ssh: no route to {host} >&2; exit "
              "255'",
              60000);
    assert_int_equal(door_spawn("node-1"), XRAY_OK);
    assert_int_equal(door.ops->pid(door.self, door.peer),
                     0); /* it is not on this host */
    door_expect_loss(
        "did not start: its launcher exited with status 255: ssh: no "
        "route to node-1");
    door.ops->destroy(door.self);
    door_open("sh -c 'kill -9 $$'", 60000);
    assert_int_equal(door_spawn("node-1"), XRAY_OK);
    door_expect_loss(
        "did not start: its launcher was killed by signal 9 (Killed)");
    door.ops->destroy(door.self);
    /* One that has said something is not waited for. */
    door_open("sh -c 'echo connecting to $0 >&2; exec sleep 60' {host}", 300);
    assert_int_equal(door_spawn("node-1"), XRAY_OK);
    door_expect_loss("did not start within 0.3 s (killed)");
    door.ops->destroy(door.self);
    door_open("/no/such/launcher {host}", 60000);
    assert_int_equal(door_spawn("node-1"), XRAY_E_IO);
    assert_string_equal(door.said,
                        "actor it: starting /no/such/launcher {host}: No "
                        "such file or directory");
    assert_int_equal(door_spawn("-oProxyCommand=x"), XRAY_E_ARG);
    assert_int_equal(door_spawn("-v"), XRAY_E_ARG);
    assert_int_equal(door_spawn(""), XRAY_E_ARG);
    assert_int_equal(door_spawn("a;b"), XRAY_E_ARG);
    assert_string_equal(door.said,
                        "actor it: \"a;b\" is not the name of a host");
}

/* All that a launcher says reaches the standard error of the run. */
static void what_launchers_say_is_passed_on(void **state)
{
    char text[64] = "";
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    const int saved = dup(STDERR_FILENO);
    (void)dup2(ends[1], STDERR_FILENO);
    door_open("sh -c 'echo one >&2; echo two of $0 >&2; exit 1' {host}", 60000);
    assert_int_equal(door_spawn("node-1"), XRAY_OK);
    door_expect_loss(
        "did not start: its launcher exited with status 1: two of node-1");
    (void)dup2(saved, STDERR_FILENO);
    (void)close(saved);
    (void)close(ends[1]);
    size_t size = 0;
    for (ssize_t n = 1; n > 0; size += (size_t)n)
        n = read(ends[0], text + size, sizeof(text) - 1 - size);
    (void)close(ends[0]);
    assert_string_equal(text, "one\ntwo of node-1\n");
}

static void unknown_interfaces_are_refused(void **state)
{
    const xr_hosts_config config = { "nosuch0", NULL };
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &door_host,
                                       .actors = 1 };
    (void)state;
    assert_int_equal(door.ops->create(&setup, &config, &door.self),
                     XRAY_E_CONFIG);
    assert_string_equal(door.said,
                        "this host has no network interface \"nosuch0\"");
}

static void numbers_of_actors_are_checked(void **state)
{
    static const uint32_t actors[] = { 0, 4097 };
    const xr_hosts_config config = { "lo", NULL };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        const xray_runtime_setup setup = { .header =
                                               XRAY_HEADER(xray_runtime_setup),
                                           .host = &door_host,
                                           .actors = actors[i] };
        char says[80];
        void *self = says; /* which stays */
        assert_int_equal(door.ops->create(&setup, &config, &self), XRAY_E_ARG);
        assert_ptr_equal(self, says);
        (void)snprintf(says, sizeof(says),
                       "%u actors: the number must be 1 to 4096", actors[i]);
        assert_string_equal(door.said, says);
    }
}

/* ---- a library that is missing ------------------------------------------- */

static int lacks_tls;

int __real_xr_tls_is_there(void);
int __wrap_xr_tls_is_there(void);

int __wrap_xr_tls_is_there(void)
{
    return !lacks_tls && __real_xr_tls_is_there();
}

/* Only who wants TLS needs it. */
static void tls_needs_its_library(void **state)
{
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &door_host,
                                       .actors = 1 };
    (void)state;
    for (uint32_t tls = 0; tls < 2; tls++) {
        const xr_hosts_config config = { "lo", NULL, tls, 0 };
        lacks_tls = 1;
        xray_status status = door.ops->create(&setup, &config, &door.self);
        lacks_tls = 0;
        assert_int_equal(status, tls ? XRAY_E_UNSUPPORTED : XRAY_OK);
        if (status == XRAY_OK)
            door.ops->destroy(door.self);
    }
    door.self = NULL;
    assert_string_equal(door.said,
                        "[runtime] tls is true, but " XR_TLS_MISSING);
}

/* ---- addresses ------------------------------------------------------------
 */

/* One of the interface lo, unless its name begins with another letter. */
typedef struct address {
    const char *text; /* NULL: none; "-": not of a network */
    const char *name;
} address;

static const address *there; /* NULL: those of the system */

int __real_getifaddrs(struct ifaddrs **out);
int __wrap_getifaddrs(struct ifaddrs **out);
void __real_freeifaddrs(struct ifaddrs *all);
void __wrap_freeifaddrs(struct ifaddrs *all);

int __wrap_getifaddrs(struct ifaddrs **out)
{
    static struct ifaddrs all[8];
    static struct sockaddr_storage at[8];
    size_t n = 0;
    if (!there)
        return __real_getifaddrs(out);
    errno = EACCES;
    if (!there[0].name)
        return -1;
    memset(all, 0, sizeof(all));
    memset(at, 0, sizeof(at));
    for (; there[n].name; n++) {
        struct sockaddr_in *four = (struct sockaddr_in *)(void *)&at[n];
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&at[n];
        const char *text = there[n].text;
        all[n].ifa_name = strdup(there[n].name);
        all[n].ifa_next = there[n + 1].name ? &all[n + 1] : NULL;
        all[n].ifa_addr = text ? (struct sockaddr *)(void *)&at[n] : NULL;
        at[n].ss_family = AF_PACKET;
        if (text && inet_pton(AF_INET, text, &four->sin_addr) == 1)
            at[n].ss_family = AF_INET;
        else if (text && inet_pton(AF_INET6, text, &six->sin6_addr) == 1)
            at[n].ss_family = AF_INET6;
    }
    *out = all;
    return 0;
}

void __wrap_freeifaddrs(struct ifaddrs *all)
{
    if (!there) {
        __real_freeifaddrs(all);
        return;
    }
    for (; all; all = all->ifa_next)
        free(all->ifa_name);
}

static int has_six(void)
{
    const struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                      .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int bad =
        bind(fd, (const struct sockaddr *)(const void *)&six, sizeof(six));
    (void)close(fd);
    return !bad;
}

/* IPv4 before IPv6, the first of each, and none that only one link knows. */
static void addresses_are_chosen_by_rule(void **state)
{
    static const struct {
        const address there[7];
        const char *address; /* or what is said */
        xray_status status;
    } cases[] = {
        { { { "127.0.0.3", "other" },
            { NULL, "lo" },
            { "-", "lo" },
            { "fe80::1", "lo" },
            { "127.0.0.1", "lo" },
            { "127.0.0.2", "lo" } },
          "127.0.0.1",
          XRAY_OK },
        { { { "127.0.0.2", "lo" }, { "::1", "lo" } }, "127.0.0.2", XRAY_OK },
        { { { "::1", "lo" }, { "127.0.0.2", "lo" } }, "127.0.0.2", XRAY_OK },
        { { { "::1", "lo" }, { "2001:db8::1", "lo" } }, "::1", XRAY_OK },
        { { { "fe80::1", "lo" }, { "-", "lo" }, { "127.0.0.1", "lo2" } },
          "the network interface \"lo\" has no address",
          XRAY_E_CONFIG },
        { { { NULL, NULL } },
          "the network interfaces: Permission denied",
          XRAY_E_IO },
    };
    const xr_hosts_config config = { "lo", NULL };
    const xray_runtime_setup setup = { .header =
                                           XRAY_HEADER(xray_runtime_setup),
                                       .host = &door_host,
                                       .actors = 1 };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (strcmp(cases[i].address, "::1") == 0 && !has_six())
            continue;
        there = cases[i].there;
        door.self = NULL;
        assert_int_equal(door.ops->create(&setup, &config, &door.self),
                         cases[i].status);
        const xr_hosts *hosts = door.self;
        assert_string_equal(cases[i].status ? door.said : hosts->door.address,
                            cases[i].address);
        if (!cases[i].status)
            door.ops->destroy(door.self);
        door.self = NULL;
    }
    there = NULL;
}

/* A connection from an address of a host to the same one is within it. */
static void connections_within_a_host_are_known(void **state)
{
    static const char *const from[] = { "127.0.0.1", "127.0.0.2" };
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr_in to = { .sin_family = AF_INET };
        struct sockaddr_in own = { .sin_family = AF_INET };
        socklen_t size = sizeof(to);
        struct sockaddr *name = (struct sockaddr *)(void *)&to;
        int door_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        (void)inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
        (void)inet_pton(AF_INET, from[i], &own.sin_addr);
        assert_int_equal(bind(door_fd, name, size), 0);
        assert_int_equal(listen(door_fd, 1), 0);
        assert_int_equal(getsockname(door_fd, name, &size), 0);
        assert_false(xr_hosts_is_here(fd)); /* it is connected to nobody */
        assert_int_equal(bind(fd, (struct sockaddr *)(void *)&own, size), 0);
        assert_int_equal(connect(fd, name, size), 0);
        assert_int_equal(xr_hosts_is_here(fd), i == 0);
        (void)close(fd);
        (void)close(door_fd);
    }
    assert_false(xr_hosts_is_here(-1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define CASE(name) \
    cmocka_unit_test_setup_teardown(name, door_await_actor, door_end)
        CASE(garbage_is_refused),
        CASE(a_place_is_taken_once),
        CASE(wrong_tokens_are_refused),
        CASE(replayed_hello_is_refused),
        CASE(other_builds_are_refused),
        CASE(silent_guests_make_room),
        CASE(silent_guests_have_ten_seconds),
        CASE(the_time_to_start_is_no_silence),
        CASE(damaged_frames_end_the_actor),
        CASE(longer_messages_than_announced_end_the_actor),
        cmocka_unit_test_teardown(failed_launchers_are_reported, door_end),
        cmocka_unit_test_teardown(what_launchers_say_is_passed_on, door_end),
        cmocka_unit_test(unknown_interfaces_are_refused),
        cmocka_unit_test(numbers_of_actors_are_checked),
        cmocka_unit_test(tls_needs_its_library),
        cmocka_unit_test(addresses_are_chosen_by_rule),
        cmocka_unit_test(connections_within_a_host_are_known),
    };
    return cmocka_run_group_tests(tests, door_make_folder, door_remove_folder);
}
