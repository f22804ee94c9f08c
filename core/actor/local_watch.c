/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices when a process of the local runtime is gone or hangs, and how it
 * ended.
 */
#define _GNU_SOURCE /* sigdescr_np */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/actor/clock.h"
#include "core/actor/local.h"

#define MS UINT64_C(1000000)
#define END_MS 10000      /* a killed process may still be busy in a driver */
#define LINE_END_MS 2000  /* from the end of the connection to the exit */
#define GAP_NS (500 * MS) /* longer gaps are due to the parent itself */

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
    const uint64_t end = xr_clock_ns() + ms * MS;
    struct timespec pause = { 0, 50000 };
    while (!reap_process(peer)) {
        if (xr_clock_ns() >= end)
            return 0;
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec *= 2;
    }
    return 1;
}

void xr_local_end(xray_peer *peer, const char *reason)
{
    if (reason && !peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    if (peer->pid && (reason || !reap_process_within(peer, LINE_END_MS))) {
        if (!peer->reason[0])
            (void)snprintf(peer->reason, sizeof(peer->reason),
                           "closed its connection to the parent");
        (void)kill(peer->pid, SIGKILL);
        (void)reap_process_within(peer, END_MS);
    }
    if (!peer->lost)
        peer->lost = 1;
    xr_conn_close(&peer->conn);
}

static void end_unresponsive(const xr_local *local, xray_peer *peer,
                             int started)
{
    char why[160];
    siginfo_t info = { 0 };
    int stopped =
        !waitid(P_PID, (id_t)peer->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) &&
        info.si_pid == peer->pid;
    if (started)
        (void)snprintf(why, sizeof(why),
                       "hangs: no sign of life for %.1f s%s (killed)",
                       (double)peer->quiet_ns * 1e-9,
                       stopped ? ", its process is stopped" : "");
    else
        (void)snprintf(why, sizeof(why), "did not start within %.1f s (killed)",
                       local->start_ms / 1000.0);
    xr_local_end(peer, why);
}

static void check_peer(const xr_local *local, xray_peer *peer, uint64_t now,
                       uint64_t elapsed)
{
    const uint64_t beat = atomic_load_explicit(
        &xr_local_slot_at(local, peer->index)->beat, memory_order_relaxed);
    if (reap_process(peer)) /* the end of the connection may be late */
        return;
    if (beat != peer->beat) {
        peer->beat = beat;
        peer->quiet_ns = 0;
        return;
    }
    peer->quiet_ns += elapsed;
    uint32_t most = beat == XR_BEAT_LEAVING ? local->start_ms : local->hang_ms;
    if (beat && local->hang_ms && peer->quiet_ns >= most * MS)
        end_unresponsive(local, peer, 1);
    if (!beat && now - peer->spawned_ns >= local->start_ms * MS)
        end_unresponsive(local, peer, 0);
}

void xr_local_check(xr_local *local)
{
    const uint64_t now = xr_clock_ns();
    uint64_t elapsed = now - local->checked_ns;
    if (elapsed < 20 * MS)
        return;
    /* Time in which the parent was stopped or at work, and so saw nothing, does
     * not count against an actor. */
    if (elapsed > GAP_NS)
        elapsed = GAP_NS;
    local->checked_ns = now;
    for (uint32_t i = 0; i < local->peer_count; i++) {
        xray_peer *peer = &local->peers[i];
        if (peer->used && peer->pid && !peer->lost)
            check_peer(local, peer, now, elapsed);
    }
}
