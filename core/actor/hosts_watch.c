/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices when a process of an actor on another host is gone or hangs, and how
 * it ended.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/actor/hosts.h"
#include "core/base/process.h"

#define END_MS 10000     /* a killed process may still be busy in a driver */
#define LINE_END_MS 2000 /* from the end of the connection to the exit */
#define GAP_MS 500       /* longer gaps are due to the parent itself */
#define LATE_MS 100      /* what a process sent last may arrive after its end */

/* A launcher that ended before its actor greeted the run says why. */
static void describe_exit(xray_peer *peer, int status)
{
    const int launcher = peer->launched && !peer->greeted;
    char how[80];
    const int clean = xr_process_describe(status, how, sizeof(how));
    xr_hosts_read_says(peer);
    const char *line = launcher ? peer->line : "";
    peer->clean = clean && !launcher;
    (void)snprintf(peer->reason, sizeof(peer->reason), "%s%s%s%s",
                   launcher ? "did not start: its launcher " : "", how,
                   *line ? ": " : "", line);
}

/* Returns 1 once the process is reaped, for which it waits up to `ms`. */
static int reap_process(xray_peer *peer, uint64_t ms)
{
    int status = 0;
    if (peer->engine)
        return xr_hosts_engine_await(peer, ms);
    const int found = xr_process_reap(peer->pid, ms, &status);
    if (found == XR_PROCESS_RUNS)
        return 0;
    if (!peer->reason[0] && found == XR_PROCESS_ENDED)
        describe_exit(peer, status);
    else if (!peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "is gone");
    peer->pid = 0;
    return 1;
}

/* Receives what the process sent before its end, its last record among it. */
static void drain_connection(xray_peer *peer)
{
    struct pollfd ready = { .fd = peer->conn.fd, .events = POLLIN };
    int bad = peer->conn.fd < 0 ? EPIPE : 0;
    while (!bad || (bad == EAGAIN && poll(&ready, 1, LATE_MS) > 0))
        bad = xr_tcp_read(&peer->conn);
}

static void close_files(xray_peer *peer)
{
    int *const files[] = { &peer->conn.fd, &peer->leash, &peer->says,
                           &peer->pulse };
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        if (*files[i] >= 0)
            (void)close(*files[i]);
        *files[i] = -1;
    }
}

void xr_hosts_strike(xray_peer *peer)
{
    if (peer->used && peer->engine)
        xr_hosts_engine_stop(peer);
    if (!peer->used || !peer->pid)
        return;
    /* Both, since the group exists a moment after the process. */
    (void)kill(-peer->pid, SIGKILL);
    (void)kill(peer->pid, SIGKILL);
}

void xr_hosts_end(xray_peer *peer, const char *reason)
{
    if (peer->lost)
        return;
    peer->lost = 1;
    if (reason && !peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    const int runs = peer->pid || peer->engine;
    if (runs && (reason || !reap_process(peer, LINE_END_MS))) {
        if (!peer->reason[0])
            (void)snprintf(peer->reason, sizeof(peer->reason),
                           "closed its connection to the parent");
        xr_hosts_strike(peer);
        if (peer->pid)
            (void)reap_process(peer, END_MS);
    }
    drain_connection(peer);
    xr_hosts_read_says(peer);
    close_files(peer);
}

void xr_hosts_kill(void *self, xray_peer *peer)
{
    if (!peer->used)
        return;
    xr_hosts_strike(peer);
    if (peer->pid)
        (void)reap_process(peer, END_MS);
    xr_hosts_read_says(peer);
    close_files(peer);
    while (peer->regions)
        xr_hosts_region_remove(self, &peer->regions, peer->regions->pub.id);
    for (xr_hosts_region *at = peer->self->regions; at; at = at->next)
        at->sent[peer - peer->self->peers] = XR_HOSTS_UNKNOWN;
    xr_tcp_conn_free(&peer->conn);
    free(peer->early);
    *peer = (xray_peer){ .conn = { .fd = -1 } };
}

/* ---- watching ------------------------------------------------------------ */

static void end_unresponsive(xray_peer *peer, int started)
{
    char why[160];
    siginfo_t info = { 0 };
    int stopped =
        peer->pid &&
        !waitid(P_PID, (id_t)peer->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) &&
        info.si_pid == peer->pid;
    if (started)
        (void)snprintf(why, sizeof(why),
                       "hangs: no sign of life for %.1f s%s (killed)",
                       (double)peer->quiet_ms / 1000.0,
                       stopped ? ", its process is stopped"
                       : peer->launched || peer->engine
                           ? ", its host or the network to it may be down"
                           : "");
    else
        (void)snprintf(why, sizeof(why), "did not start within %.1f s (killed)",
                       peer->self->start_ms / 1000.0);
    xr_hosts_end(peer, why);
}

static void check_peer(xray_peer *peer, uint64_t now, uint64_t elapsed)
{
    const xr_hosts *self = peer->self;
    const uint32_t most = peer->leaving ? self->start_ms : self->hang_ms;
    if (reap_process(peer, 0)) { /* the end of the connection may be late */
        xr_hosts_end(peer, NULL);
        return;
    }
    /* The time to start has a limit of its own. */
    peer->quiet_ms = peer->greeted && peer->quiet_at == peer->conn.total
                         ? peer->quiet_ms + elapsed
                         : 0;
    peer->quiet_at = peer->conn.total;
    if (peer->greeted && self->hang_ms && peer->quiet_ms >= most)
        end_unresponsive(peer, 1);
    if (!peer->greeted && now - peer->spawned_ms >= self->start_ms)
        end_unresponsive(peer, 0);
}

void xr_hosts_check(xr_hosts *self)
{
    const uint64_t now = xr_hosts_now_ms();
    uint64_t elapsed = now - self->checked_ms;
    if (elapsed < 20)
        return;
    /* Time in which the parent was stopped or at work, and so saw nothing, does
     * not count against an actor. */
    if (elapsed > GAP_MS)
        elapsed = GAP_MS;
    self->checked_ms = now;
    xr_hosts_check_guests(self, now);
    for (uint32_t i = 0; i < self->peer_count; i++)
        if (self->peers[i].used && !self->peers[i].lost)
            check_peer(&self->peers[i], now, elapsed);
}
