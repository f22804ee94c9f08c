/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects every two ranks by two lines. Each rank listens, and connects to all
 * ranks below it before it accepts those above, so that no two wait for each
 * other. The addresses and keys go through the gather of the setup.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "core/base/system_error.h"
#include "plugins/comm-tcp/tcp.h"

/* ns for the ranks to connect once all are there: at most, unless there are
 * very many, and at least. */
#define MOST 10000000000u
#define LEAST 5000000000u
#define EACH 20000000u  /* ns more for each rank */
#define AGAIN 100000000 /* ns until the next attempt */

/* ---- sockets ------------------------------------------------------------- */

static socklen_t fill_address(const tcp_card *card,
                              struct sockaddr_storage *out)
{
    memset(out, 0, sizeof(*out));
    if (card->family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)(void *)out;
        in->sin_family = AF_INET;
        in->sin_port = htons((uint16_t)card->port);
        memcpy(&in->sin_addr, card->address, 4);
        return sizeof(*in);
    }
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)out;
    in6->sin6_family = AF_INET6;
    in6->sin6_port = htons((uint16_t)card->port);
    in6->sin6_scope_id = card->scope;
    memcpy(&in6->sin6_addr, card->address, 16);
    return sizeof(*in6);
}

/* 0 on success; otherwise errno is set. */
static int read_port(int fd, uint32_t *out)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof(at);
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0)
        return -1;
    *out = ntohs(at.ss_family == AF_INET
                     ? ((struct sockaddr_in *)(void *)&at)->sin_port
                     : ((struct sockaddr_in6 *)(void *)&at)->sin6_port);
    return 0;
}

/* Opens the listening socket of this rank; -1: the card says why not. */
static int open_listener(tcp_card *card)
{
    struct sockaddr_storage at;
    char text[80];
    socklen_t size = fill_address(card, &at);
    int fd = socket((int)card->family,
                    SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&at, size) == 0 &&
        listen(fd, SOMAXCONN) == 0 && read_port(fd, &card->port) == 0)
        return fd;
    tcp_print_address(card, text, sizeof(text));
    mesh_refuse_card(&card->rank, XRAY_E_IO, "no port at %s: %s", text,
                     XR_SYSTEM_ERROR(errno));
    if (fd >= 0)
        (void)close(fd);
    return -1;
}

/* Sets what a line of the instance needs. The system probes the line of notes
 * when it is idle, and so notices a host that is silent. It counts from the
 * last answer, and probes once a second at most: at the heartbeat itself the
 * loss of one or two answers would look like the loss of a host. */
static void tune_line(const mesh_comm *comm, int fd, uint32_t line)
{
    int on = 1;
    int heartbeat = (int)(comm->silence / 1000000000u);
    int pause = heartbeat < 5 ? 1 : 2;
    int limit = (int)(comm->silence / 1000000u) + 2000;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (line != TCP_CONTROL)
        return;
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &pause, sizeof(pause));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &pause, sizeof(pause));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof(limit));
}

void tcp_keep_line(mesh_comm *comm, uint32_t rank, uint32_t line, int fd)
{
    tcp_line *of = comm->peers[rank].line;
    tune_line(comm, fd, line);
    *(line == TCP_CONTROL ? &of->notes : &of->calls) = fd;
}

/* ---- connecting ---------------------------------------------------------- */

/* Waits until the socket can go on. Returns 0 with errno when it is late. */
static int wait_for_socket(int fd, short events, uint64_t until)
{
    uint64_t now = mesh_clock();
    struct pollfd p = { fd, events, 0 };
    errno = ETIMEDOUT;
    return now < until && poll(&p, 1, (int)((until - now) / 1000000u) + 1) > 0;
}

static int move_all(int fd, void *bytes, size_t size, int sends, uint64_t until)
{
    char *at = bytes;
    while (size) {
        ssize_t n =
            sends ? send(fd, at, size, MSG_NOSIGNAL) : recv(fd, at, size, 0);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        } else if (n == 0) {
            errno = ECONNRESET;
            return 0;
        } else if ((errno != EAGAIN && errno != EINTR) ||
                   !wait_for_socket(fd, sends ? POLLOUT : POLLIN, until)) {
            return 0;
        }
    }
    return 1;
}

static int finish_connect(int fd, uint64_t until)
{
    int error = 0;
    socklen_t size = sizeof(error);
    if (errno != EINPROGRESS || !wait_for_socket(fd, POLLOUT, until) ||
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
        return 0;
    errno = error;
    return error == 0;
}

static int shake_hands(int fd, const tcp_card *to, const tcp_hello *hello,
                       uint64_t until)
{
    tcp_hello first = *hello;
    tcp_answer answer;
    uint8_t proof[TCP_MAC];
    if (!move_all(fd, &first, sizeof(first), 1, until) ||
        !move_all(fd, &answer, sizeof(answer), 0, until))
        return 0;
    if (!tcp_answer_is_true(to->key, hello, &answer)) {
        errno = EPROTO;
        return 0;
    }
    tcp_proof_make(to->key, hello, &answer, proof);
    return move_all(fd, proof, sizeof(proof), 1, until);
}

/* Opens a line to a rank below this one. Returns 0 with errno. */
static int connect_line(mesh_comm *comm, const tcp_card *mine,
                        const tcp_card *to, uint32_t rank, uint32_t line,
                        uint64_t until)
{
    struct sockaddr_storage at;
    tcp_card own = *mine;
    tcp_hello hello;
    socklen_t size;
    own.port = 0;
    int fd =
        socket((int)to->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || !tcp_hello_make(comm->rank, rank, line, &hello))
        goto close;
    size = fill_address(&own, &at);
    if (bind(fd, (struct sockaddr *)&at, size) != 0)
        goto close;
    size = fill_address(to, &at);
    if ((connect(fd, (struct sockaddr *)&at, size) == 0 ||
         finish_connect(fd, until)) &&
        shake_hands(fd, to, &hello, until)) {
        tcp_keep_line(comm, rank, line, fd);
        return 1;
    }
close:
    if (fd >= 0) {
        int reason = errno;
        (void)close(fd);
        errno = reason;
    }
    return 0;
}

/* After a cable was pulled and plugged in again a network takes seconds to find
 * a host, so the line is tried again for as long as it has no way to it. */
static int reach_rank(mesh_comm *comm, const tcp_card *mine, const tcp_card *to,
                      uint32_t rank, uint32_t line, uint64_t until)
{
    const struct timespec pause = { .tv_nsec = AGAIN };
    while (!connect_line(comm, mine, to, rank, line, until)) {
        if ((errno != EHOSTUNREACH && errno != ENETUNREACH) ||
            mesh_clock() + AGAIN >= until)
            return 0;
        (void)nanosleep(&pause, NULL);
    }
    return 1;
}

static void connect_below(mesh_comm *comm, tcp_card *mine, const tcp_card *all,
                          uint64_t until)
{
    for (uint32_t r = 0; r < comm->rank && mine->rank.status == XRAY_OK; r++)
        for (uint32_t line = 0; line < TCP_LINES; line++)
            if (!reach_rank(comm, mine, &all[r], r, line, until)) {
                char text[80];
                int reason = errno;
                tcp_print_address(&all[r], text, sizeof(text));
                mesh_refuse_card(&mine->rank, XRAY_E_PEER,
                                 "rank %u at %s cannot be reached: %s", r, text,
                                 XR_SYSTEM_ERROR(reason));
                break;
            }
}

/* ---- all of it ------------------------------------------------------------
 */

static void describe_rank(const mesh_comm *comm, const tcp_config *config,
                          xray_status ready, tcp_card *card, char *interface,
                          uint32_t cap)
{
    memset(card, 0, sizeof(*card));
    mesh_fill_card(comm, ready, &card->rank);
    const char *why =
        tcp_choose_address(config->interface, card, interface, cap);
    /* Without another address ranks of one host still have the loopback's. */
    if (why && *config->interface)
        mesh_refuse_card(&card->rank, XRAY_E_CONFIG, "interface = %.40s: %s",
                         config->interface, why);
    if (!tcp_random(card->key, sizeof(card->key)))
        mesh_refuse_card(&card->rank, XRAY_E_IO,
                         "the system gives no random bytes: %s",
                         XR_SYSTEM_ERROR(errno));
}

/* 1 if all ranks are of one host. */
static int share_a_host(const mesh_comm *comm, const tcp_card *all)
{
    for (uint32_t r = 1; r < comm->size; r++)
        if (all[r].rank.host != all[0].rank.host)
            return 0;
    return 1;
}

static void log_address(const mesh_comm *comm, const tcp_card *card,
                        const char *interface)
{
    char text[80];
    char line[256];
    if (!mesh_logs(comm, XRAY_LOG_INFO) || comm->size == 1)
        return;
    tcp_print_address(card, text, sizeof(text));
    (void)snprintf(line, sizeof(line),
                   "comm tcp: rank %u listens at %s (interface %s of %s)",
                   comm->rank, text, interface, card->rank.name);
    comm->host->log(comm->host, XRAY_LOG_INFO, line);
}

/* Chooses the address, once it is known where all ranks are, and listens. */
static int begin_to_listen(const mesh_comm *comm, const tcp_config *config,
                           tcp_card *mine, const tcp_card *all,
                           const char *interface)
{
    int alone = !*config->interface && share_a_host(comm, all);
    if (alone)
        tcp_loopback_address(mine);
    if (!mine->family) {
        mesh_refuse_card(&mine->rank, XRAY_E_CONFIG,
                         "no interface but the loopback has an address");
        return -1;
    }
    int listener = comm->size > 1 ? open_listener(mine) : -1;
    log_address(comm, mine, alone ? "lo" : interface);
    return listener;
}

static void connect_all(mesh_comm *comm, int listener, tcp_card *mine,
                        const tcp_card *all)
{
    /* A rank that cannot connect is heard of when all have given up, so they do
     * not wait as long as for a call. */
    uint64_t time = MOST + comm->size * (uint64_t)EACH;
    if (comm->timeout && comm->timeout < time)
        time = comm->timeout > LEAST ? comm->timeout : LEAST;
    tcp_doors doors = { .comm = comm,
                        .listener = listener,
                        .key = mine->key,
                        .until = mesh_clock() + time };
    connect_below(comm, mine, all, doors.until);
    if (mine->rank.status == XRAY_OK && !tcp_accept_ranks(&doors))
        mesh_refuse_card(&mine->rank, XRAY_AGAIN,
                         "rank %u did not connect in time", doors.missing);
}

xray_status tcp_connect(mesh_comm *comm, const xray_comm_setup *setup,
                        const tcp_config *config, xray_status ready)
{
    char interface[24] = "lo";
    tcp_card mine;
    int listener = -1;
    tcp_card *all = calloc(setup->size, sizeof(*all));
    describe_rank(comm, config, ready, &mine, interface, sizeof(interface));
    if (!all)
        return xr_host_fail(setup->host, XRAY_E_NOMEM, "comm tcp",
                            "no memory for the addresses of the ranks");
    tcp_rings_make(comm, &mine);
    xray_status status =
        mesh_gather_cards(comm, setup, &mine, sizeof(mine), all);
    if (status == XRAY_OK) {
        mine.maps = (uint32_t)tcp_rings_find(comm, all);
        listener = begin_to_listen(comm, config, &mine, all, interface);
        status = mesh_gather_cards(comm, setup, &mine, sizeof(mine), all);
    }
    if (status == XRAY_OK) {
        mesh_keep_cards(comm, all, sizeof(*all));
        tcp_rings_keep(comm, all);
        connect_all(comm, listener, &mine, all);
        status = mesh_gather_cards(comm, setup, &mine, sizeof(mine), all);
    }
    if (listener >= 0)
        (void)close(listener);
    free(all);
    return ready != XRAY_OK ? ready : status;
}
