/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects an actor's process to its parent and greets it.
 */
#include "core/actor/hosts_join.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "core/base/str.h"
#include "core/base/system_error.h"

#define AGAIN_MS 100 /* until the next attempt to connect */

/* ---- the address --------------------------------------------------------- */

/* Cuts the last ":NUMBER" off; 0 or EINVAL. */
static int cut_number(char *text, int64_t most, int64_t *out)
{
    char *colon = strrchr(text, ':');
    if (!colon || xr_parse_int(colon + 1, out) || *out < 0 || *out > most)
        return EINVAL;
    *colon = '\0';
    return 0;
}

static int read_address(const char *address, xr_hosts_address *out)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)&out->to;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)&out->to;
    char text[128];
    int64_t port = 0;
    int64_t index = 0;
    const int tls = strncmp(address, "tls:", 4) == 0;
    if ((!tls && strncmp(address, "tcp:", 4) != 0) ||
        strlen(address) >= sizeof(text))
        return EINVAL;
    (void)snprintf(text, sizeof(text), "%s", address + 4);
    if (cut_number(text, UINT32_MAX, &index) ||
        cut_number(text, UINT16_MAX, &port) || !port)
        return EINVAL;
    *out = (xr_hosts_address){ .index = (uint32_t)index, .tls = (uint32_t)tls };
    (void)snprintf(out->text, sizeof(out->text), "%s", address);
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        out->size = sizeof(*four);
        return 0;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) != 1)
        return EINVAL;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons((uint16_t)port);
    out->size = sizeof(*six);
    return 0;
}

static int read_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *at = c ? strchr(digits, c) : NULL;
    return at ? (int)(at - digits) : -1;
}

/* Reads the line byte by byte, because what follows is not this function's: 0
 * or EINVAL. */
static int read_token(unsigned char *out)
{
    char line[2 * XR_TCP_TOKEN + 1];
    for (size_t i = 0; i < sizeof(line); i++) {
        ssize_t n;
        do
            n = read(STDIN_FILENO, &line[i], 1);
        while (n < 0 && errno == EINTR);
        if (n != 1)
            return EINVAL;
    }
    for (size_t i = 0; i < XR_TCP_TOKEN; i++) {
        const int high = read_digit(line[2 * i]);
        const int low = read_digit(line[2 * i + 1]);
        if (high < 0 || low < 0)
            return EINVAL;
        out[i] = (unsigned char)(high << 4 | low);
    }
    return line[sizeof(line) - 1] == '\n' ? 0 : EINVAL;
}

xray_status xr_hosts_find_parent(const xray_host *host, const char *address,
                                 xr_hosts_address *out)
{
    if (read_address(address, out))
        return xr_hosts_fail(host, XRAY_E_ARG,
                             "\"%s\" is not the address of an actor's parent; "
                             "only xray itself runs this command",
                             address);
    if (read_token(out->token))
        return xr_hosts_fail(host, XRAY_E_ARG,
                             "the standard input does not begin with the "
                             "token of a run; its launcher must pass it on");
    return XRAY_OK;
}

/* ---- the greeting -------------------------------------------------------- */

static int wait_for(int fd, short events)
{
    struct pollfd ready = { .fd = fd, .events = events };
    return poll(&ready, 1, XR_HOSTS_JOIN_MS) == 0 ? ETIMEDOUT : 0;
}

/* Sends what the greeting has to send; so few bytes the socket has room for. */
static int send_hello(int fd, xr_tls *tls, xr_tcp_hello *hello)
{
    const struct iovec piece = { hello->send, hello->send_size };
    const ssize_t n = xr_tcp_send(fd, tls, &piece, 1);
    if (n < 0)
        return errno;
    return (size_t)n == piece.iov_len && !xr_tls_owes(tls) ? 0 : ENOBUFS;
}

/* 0 or an errno; what a handshake of TLS failed by is in `hello`. */
static int secure_parent(int fd, const xr_hosts_address *parent,
                         xr_tcp_hello *hello, xr_tls **out)
{
    unsigned char key[XR_TLS_KEY];
    char name[32];
    int bad;
    (void)snprintf(name, sizeof(name), XR_TCP_TLS_NAME "%u", parent->index);
    xr_tcp_tls_key(parent->token, key);
    *out = xr_tls_client(fd, name, key);
    if (!*out)
        return ENOMEM;
    while ((bad = xr_tls_greet(*out)) == EAGAIN)
        if ((bad = wait_for(fd, POLLIN)))
            return bad;
    if (bad == EPROTO || bad == EPIPE) {
        (void)snprintf(hello->why, sizeof(hello->why),
                       "the TLS handshake with the run failed: %s",
                       xr_tls_why(*out));
        hello->state = XR_TCP_HELLO_REFUSED;
        bad = 0;
    }
    return bad;
}

/* 0 or an errno; a refusal is in `hello`. */
static int greet_parent(int fd, xr_tls *tls, xr_tcp_hello *hello)
{
    unsigned char bytes[XR_TCP_HELLO_MOST];
    int bad = send_hello(fd, tls, hello);
    while (!bad && hello->state == XR_TCP_HELLO_MORE) {
        struct iovec piece = { bytes, hello->want };
        ssize_t n = xr_tcp_receive(fd, tls, &piece, 1);
        if (n == 0)
            return ECONNRESET;
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return errno;
        if (n > 0)
            xr_tcp_hello_take(hello, bytes, (uint32_t)n);
        else
            bad = wait_for(fd, POLLIN);
    }
    if (!bad && hello->state == XR_TCP_HELLO_DONE)
        bad = send_hello(fd, tls, hello);
    return bad;
}

static int connect_socket(const xr_hosts_address *parent, int *out_fd)
{
    const struct timeval longest = { .tv_sec = XR_HOSTS_HELLO_MS / 1000 };
    const int one = 1;
    *out_fd = socket(parent->to.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*out_fd < 0 ||
        setsockopt(*out_fd, SOL_SOCKET, SO_SNDTIMEO, &longest,
                   sizeof(longest)) ||
        connect(*out_fd, (const struct sockaddr *)(const void *)&parent->to,
                parent->size) ||
        setsockopt(*out_fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
        return errno == EINPROGRESS ? ETIMEDOUT : errno;
    return 0;
}

/* After a cable was pulled and plugged in again a network takes seconds to find
 * a host, so the connection is tried again for as long as there is no way. */
static int reach_parent(const xr_hosts_address *parent, int *out_fd)
{
    const struct timespec pause = { .tv_nsec = AGAIN_MS * 1000000 };
    int bad = connect_socket(parent, out_fd);
    for (uint32_t ms = 0; ms < XR_HOSTS_HELLO_MS; ms += AGAIN_MS) {
        if (bad != EHOSTUNREACH && bad != ENETUNREACH)
            break;
        (void)close(*out_fd);
        (void)nanosleep(&pause, NULL);
        bad = connect_socket(parent, out_fd);
    }
    return bad;
}

static void drop_line(xr_hosts_line *line)
{
    xr_tls_free(line->tls);
    if (line->fd >= 0)
        (void)close(line->fd);
    *line = (xr_hosts_line){ .fd = -1 };
}

/* Greets the parent over this line, which is dropped unless that succeeds: 0 or
 * an errno. Within a host nothing needs TLS. */
static int greet_over(xr_hosts_line *line, const xr_hosts_address *parent,
                      uint32_t purpose, const unsigned char *build,
                      xr_tcp_hello *hello)
{
    unsigned char nonce[XR_TCP_TOKEN];
    int bad = getrandom(nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce)
                  ? 0
                  : errno;
    if (!bad) {
        xr_tcp_hello_open(hello, purpose, parent->index, parent->token, build,
                          nonce);
        if (parent->tls && !line->near)
            bad = secure_parent(line->fd, parent, hello, &line->tls);
    }
    if (!bad && hello->state == XR_TCP_HELLO_MORE)
        bad = greet_parent(line->fd, line->tls, hello);
    if (bad || hello->state != XR_TCP_HELLO_DONE)
        drop_line(line);
    return bad;
}

xray_status xr_hosts_join(const xray_host *host, const xr_hosts_address *parent,
                          uint32_t purpose, const unsigned char *build,
                          xr_hosts_line *out)
{
    xr_tcp_hello hello = { 0 };
    *out = (xr_hosts_line){ .fd = -1, .near = 1 };
    if (purpose == XR_TCP_FOR_MESSAGES)
        out->fd = xr_hosts_reach_near(parent->text);
    /* Whoever else answers there does not keep this process from its parent. */
    if (out->fd >= 0 && !greet_over(out, parent, purpose, build, &hello) &&
        hello.state == XR_TCP_HELLO_DONE)
        return XRAY_OK;
    *out = (xr_hosts_line){ .fd = -1 };
    if (parent->tls && !xr_tls_is_there())
        return xr_hosts_fail(host, XRAY_E_UNSUPPORTED,
                             "[runtime] tls is true, but " XR_TLS_MISSING);
    int bad = reach_parent(parent, &out->fd);
    if (bad)
        drop_line(out);
    else
        bad = greet_over(out, parent, purpose, build, &hello);
    if (!bad && hello.state == XR_TCP_HELLO_DONE)
        return XRAY_OK;
    return xr_hosts_fail(host, XRAY_E_PEER, "%s: %s", parent->text,
                         bad ? XR_SYSTEM_ERROR(bad) : hello.why);
}

void xr_hosts_watch_pulse(int fd, uint32_t hang_ms)
{
    const int one = 1; /* in seconds, the smallest */
    /* The parent, which can say more, is to notice it before this. */
    const int count = (int)(hang_ms / 1000 < 100 ? hang_ms / 1000 + 1 : 100);
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}
