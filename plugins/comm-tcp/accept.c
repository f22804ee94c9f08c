/* SPDX-License-Identifier: Apache-2.0
 *
 * Accepts the lines of the ranks above this one. Anybody may connect to the
 * port while it is open: who does not prove that it is a rank of this run, or
 * takes long, is refused, and costs a few bytes and no waiting.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/sha256.h"
#include "plugins/comm-tcp/tcp.h"

#define GUESTS 64u           /* connections that have not proved anything yet */
#define PATIENCE 5000000000u /* ns that each may take */
#define LINES_OF_LOG 8u

typedef struct guest {
    int fd;
    uint32_t used; /* bytes of what is expected next */
    uint32_t greeted;
    uint64_t since;
    tcp_hello hello;
    tcp_answer answer;
    uint8_t proof[TCP_MAC];
} guest;

typedef struct hall {
    tcp_doors *doors;
    guest guests[GUESTS];
    uint32_t count;
} hall;

static void say_refused(tcp_doors *doors, int fd, const char *why)
{
    const mesh_comm *comm = doors->comm;
    struct sockaddr_storage at = { 0 };
    socklen_t size = sizeof(at);
    tcp_card from = { .family = AF_INET };
    char text[80];
    char line[256];
    if (doors->refused++ >= LINES_OF_LOG || !mesh_logs(comm, XRAY_LOG_WARN))
        return;
    (void)getpeername(fd, (struct sockaddr *)&at, &size);
    from.family = at.ss_family;
    if (at.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)(void *)&at;
        memcpy(from.address, &in->sin_addr, 4);
        from.port = ntohs(in->sin_port);
    } else if (at.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in =
            (const struct sockaddr_in6 *)(void *)&at;
        memcpy(from.address, &in->sin6_addr, 16);
        from.port = ntohs(in->sin6_port);
    }
    tcp_print_address(&from, text, sizeof(text));
    (void)snprintf(line, sizeof(line),
                   "comm tcp: rank %u refused a connection from %s: %s",
                   comm->rank, text, why);
    comm->host->log(comm->host, XRAY_LOG_WARN, line);
}

static void remove_guest(hall *h, uint32_t at)
{
    h->guests[at] = h->guests[--h->count];
}

static void refuse_guest(hall *h, uint32_t at, const char *why)
{
    say_refused(h->doors, h->guests[at].fd, why);
    (void)close(h->guests[at].fd);
    remove_guest(h, at);
}

static int *find_line(const tcp_doors *doors, const tcp_hello *hello)
{
    tcp_line *of = doors->comm->peers[hello->from].line;
    return hello->line == TCP_CONTROL ? &of->notes : &of->calls;
}

/* The hello is complete: answers it. Returns why not, or NULL. */
static const char *answer_hello(const tcp_doors *doors, guest *g)
{
    const mesh_comm *comm = doors->comm;
    const char *why = tcp_hello_refuse(&g->hello, comm->rank, comm->size);
    if (why)
        return why;
    if (!tcp_random(g->answer.nonce, sizeof(g->answer.nonce)))
        return "the system gives no random bytes";
    tcp_answer_sign(doors->key, &g->hello, &g->answer);
    /* A new connection takes so few bytes at once. */
    if (send(g->fd, &g->answer, sizeof(g->answer),
             MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)sizeof(g->answer))
        return "it does not take the answer";
    g->greeted = 1;
    g->used = 0;
    return NULL;
}

/* The proof is complete. */
static const char *admit_guest(const tcp_doors *doors, const guest *g)
{
    uint8_t proof[TCP_MAC];
    tcp_proof_make(doors->key, &g->hello, &g->answer, proof);
    if (!xr_mac_is_equal(proof, g->proof))
        return "it does not know the key of this run";
    if (*find_line(doors, &g->hello) >= 0)
        return "the line that its hello is for is there already";
    tcp_keep_line(doors->comm, g->hello.from, g->hello.line, g->fd);
    return NULL;
}

static void hear_guest(hall *h, uint32_t at)
{
    guest *g = &h->guests[at];
    char *to = g->greeted ? (char *)g->proof : (char *)&g->hello;
    uint32_t size = g->greeted ? sizeof(g->proof) : sizeof(g->hello);
    ssize_t got = recv(g->fd, to + g->used, size - g->used, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        refuse_guest(h, at, "it hung up before it said who it is");
        return;
    }
    g->used += (uint32_t)got;
    if (g->used < size)
        return;
    int admits = g->greeted != 0;
    const char *why =
        admits ? admit_guest(h->doors, g) : answer_hello(h->doors, g);
    if (why)
        refuse_guest(h, at, why);
    else if (admits)
        remove_guest(h, at);
}

static uint32_t find_oldest(const hall *h)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < h->count; i++)
        if (h->guests[i].since < h->guests[oldest].since)
            oldest = i;
    return oldest;
}

static void greet_guests(hall *h)
{
    for (;;) {
        int fd = accept4(h->doors->listener, NULL, NULL,
                         SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0)
            return;
        if (h->count == GUESTS)
            refuse_guest(h, find_oldest(h), "too many connections say nothing");
        guest *g = &h->guests[h->count++];
        memset(g, 0, sizeof(*g));
        g->fd = fd;
        g->since = mesh_clock();
    }
}

static void drop_silent_guests(hall *h)
{
    uint64_t now = mesh_clock();
    for (uint32_t i = h->count; i-- > 0;)
        if (now - h->guests[i].since > PATIENCE)
            refuse_guest(h, i, "it did not say in time who it is");
}

/* The first rank of which a line is missing, or `size`. */
static uint32_t find_missing(const mesh_comm *comm)
{
    uint32_t r = comm->rank + 1;
    while (r < comm->size && tcp_line_of(&comm->peers[r])->notes >= 0 &&
           tcp_line_of(&comm->peers[r])->calls >= 0)
        r++;
    return r;
}

int tcp_accept_ranks(tcp_doors *doors)
{
    static const int slice_ms = 50;
    mesh_comm *comm = doors->comm;
    hall h = { .doors = doors };
    while (find_missing(comm) < comm->size && mesh_clock() < doors->until &&
           xr_stop_check(comm->stop, NULL) == XRAY_OK) {
        struct pollfd fds[GUESTS + 1];
        uint32_t count = h.count;
        for (uint32_t i = 0; i < count; i++)
            fds[i] = (struct pollfd){ h.guests[i].fd, POLLIN, 0 };
        fds[count] = (struct pollfd){ doors->listener, POLLIN, 0 };
        (void)poll(fds, count + 1, slice_ms);
        for (uint32_t i = count; i-- > 0;)
            if (fds[i].revents)
                hear_guest(&h, i);
        drop_silent_guests(&h);
        if (fds[count].revents)
            greet_guests(&h);
    }
    while (h.count)
        (void)close(h.guests[--h.count].fd);
    doors->missing = find_missing(comm);
    return doors->missing == comm->size;
}
