/* SPDX-License-Identifier: Apache-2.0
 *
 * The processes of the runtime without shared memory: starts them, and notices
 * when one is gone or hangs, and how it ended.
 */
#define _GNU_SOURCE /* posix_spawn_file_actions_addclosefrom_np, sigdescr_np \
                     */
#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/fakes/apart.h"

#define END_MS 10000     /* a killed process may still be busy in a driver */
#define LINE_END_MS 2000 /* from the end of the connection to the exit */
#define GAP_MS 500       /* longer gaps are due to the parent itself */
#define LATE_MS 100      /* what a process sent last may arrive after its end */

uint64_t apart_now_ms(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* ---- starting ------------------------------------------------------------ */

/* Opens a socket on which only this actor is awaited; 0 or an errno. */
static int open_listener(xray_peer *peer, uint16_t *out_port)
{
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct sockaddr *name = (struct sockaddr *)(void *)&at;
    socklen_t size = sizeof(at);
    peer->listener =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (peer->listener < 0 || bind(peer->listener, name, size) ||
        listen(peer->listener, 1) || getsockname(peer->listener, name, &size) ||
        getrandom(&peer->token, sizeof(peer->token), 0) != sizeof(peer->token))
        return errno;
    *out_port = ntohs(at.sin_port);
    return 0;
}

/* Starts the process without this program's open files; 0 or an errno. */
static int start_process(char *const *argv, pid_t *out_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t none;
    sigset_t all;
    int bad = posix_spawn_file_actions_init(&actions);
    if (bad)
        return bad;
    bad = posix_spawnattr_init(&attr);
    if (bad) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return bad;
    }
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    bad = posix_spawn_file_actions_addclosefrom_np(&actions, 3);
    if (!bad)
        bad = posix_spawnattr_setsigmask(&attr, &none);
    if (!bad)
        bad = posix_spawnattr_setsigdefault(&attr, &all);
    if (!bad)
        bad = posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK |
                                                  POSIX_SPAWN_SETSIGDEF);
    if (!bad)
        bad = posix_spawn(out_pid, argv[0], &actions, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    return bad;
}

int apart_start(xray_peer *peer, const char *const *argv)
{
    char address[64];
    uint16_t port = 0;
    size_t count = 0;
    int bad = open_listener(peer, &port);
    if (bad)
        return bad;
    while (argv[count])
        count++;
    char **whole = calloc(count + 2, sizeof(*whole));
    if (!whole)
        return ENOMEM;
    (void)snprintf(address, sizeof(address), "apart:%u:%llx", (unsigned)port,
                   (unsigned long long)peer->token);
    memcpy(whole, argv, count * sizeof(*whole));
    whole[count] = address;
    bad = start_process(whole, &peer->pid);
    if (bad)
        peer->pid = 0;
    free(whole);
    return bad;
}

/* ---- ends ---------------------------------------------------------------- */

static void describe_exit(xray_peer *peer, int status)
{
    if (WIFSIGNALED(status)) {
        const char *what = sigdescr_np(WTERMSIG(status));
        (void)snprintf(peer->reason, sizeof(peer->reason),
                       "was killed by signal %d (%s)", WTERMSIG(status),
                       what ? what : "unknown");
        return;
    }
    peer->clean = WEXITSTATUS(status) == 0;
    (void)snprintf(peer->reason, sizeof(peer->reason), "exited with status %d",
                   WEXITSTATUS(status));
}

/* 1 once the process is reaped, here or by other code of the program. */
static int reap_process(xray_peer *peer)
{
    int status = 0;
    pid_t got = waitpid(peer->pid, &status, WNOHANG);
    if (!got || (got < 0 && errno == EINTR))
        return 0;
    if (!peer->reason[0]) {
        if (got > 0)
            describe_exit(peer, status);
        else
            (void)snprintf(peer->reason, sizeof(peer->reason), "is gone");
    }
    peer->pid = 0;
    return 1;
}

static int reap_process_within(xray_peer *peer, uint64_t ms)
{
    const uint64_t end = apart_now_ms() + ms;
    struct timespec pause = { 0, 50000 };
    while (!reap_process(peer)) {
        if (apart_now_ms() >= end)
            return 0;
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec *= 2;
    }
    return 1;
}

/* Receives what the process sent before its end, its last record among it. */
static void drain_connection(xray_peer *peer)
{
    struct pollfd ready = { .fd = peer->conn.fd, .events = POLLIN };
    int bad = peer->conn.fd < 0 ? EPIPE : 0;
    while (!bad || (bad == EAGAIN && poll(&ready, 1, LATE_MS) > 0))
        bad = apart_read(&peer->conn);
}

static void close_sockets(xray_peer *peer)
{
    if (peer->listener >= 0)
        (void)close(peer->listener);
    if (peer->conn.fd >= 0)
        (void)close(peer->conn.fd);
    peer->listener = -1;
    peer->conn.fd = -1;
}

void apart_end(xray_peer *peer, const char *reason)
{
    if (peer->lost)
        return;
    peer->lost = 1;
    if (reason && !peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    if (peer->pid && (reason || !reap_process_within(peer, LINE_END_MS))) {
        if (!peer->reason[0])
            (void)snprintf(peer->reason, sizeof(peer->reason),
                           "closed its connection to the parent");
        (void)kill(peer->pid, SIGKILL);
        (void)reap_process_within(peer, END_MS);
    }
    drain_connection(peer);
    close_sockets(peer);
}

void apart_kill(void *self, xray_peer *peer)
{
    (void)self;
    if (!peer->used)
        return;
    if (peer->pid) {
        (void)kill(peer->pid, SIGKILL);
        (void)reap_process_within(peer, END_MS);
    }
    close_sockets(peer);
    while (peer->regions)
        apart_region_remove(&peer->regions, peer->regions->pub.id);
    apart_conn_free(&peer->conn);
    free(peer->early);
    *peer = (xray_peer){ .listener = -1, .conn = { .fd = -1 } };
}

/* ---- watching ------------------------------------------------------------ */

static void end_unresponsive(xray_peer *peer, int started)
{
    char why[160];
    siginfo_t info = { 0 };
    int stopped =
        !waitid(P_PID, (id_t)peer->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) &&
        info.si_pid == peer->pid;
    if (started)
        (void)snprintf(why, sizeof(why),
                       "hangs: no sign of life for %.1f s%s (killed)",
                       (double)peer->quiet_ms / 1000.0,
                       stopped ? ", its process is stopped" : "");
    else
        (void)snprintf(why, sizeof(why), "did not start within %.1f s (killed)",
                       peer->self->start_ms / 1000.0);
    apart_end(peer, why);
}

static void check_peer(xray_peer *peer, uint64_t now, uint64_t elapsed)
{
    const apart *self = peer->self;
    const uint32_t most = peer->leaving ? self->start_ms : self->hang_ms;
    if (reap_process(peer)) { /* the end of the connection may be late */
        apart_end(peer, NULL);
        return;
    }
    peer->quiet_ms =
        peer->quiet_at == peer->conn.total ? peer->quiet_ms + elapsed : 0;
    peer->quiet_at = peer->conn.total;
    if (peer->conn.greeted && self->hang_ms && peer->quiet_ms >= most)
        end_unresponsive(peer, 1);
    if (!peer->conn.greeted && now - peer->spawned_ms >= self->start_ms)
        end_unresponsive(peer, 0);
}

void apart_check(apart *self)
{
    const uint64_t now = apart_now_ms();
    uint64_t elapsed = now - self->checked_ms;
    if (elapsed < 20)
        return;
    /* Time in which the parent was stopped or at work, and so saw nothing, does
     * not count against an actor. */
    if (elapsed > GAP_MS)
        elapsed = GAP_MS;
    self->checked_ms = now;
    for (uint32_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].used && !self->peers[i].lost)
            check_peer(&self->peers[i], now, elapsed);
}
