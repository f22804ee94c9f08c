/* SPDX-License-Identifier: Apache-2.0
 *
 * Notices when a process of the local runtime is gone or hangs, and how it
 * ended.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/actor/clock.h"
#include "core/actor/local.h"
#include "core/base/process.h"

#define MS UINT64_C(1000000)
#define END_MS 10000      /* a killed process may still be busy in a driver */
#define LINE_END_MS 2000  /* from the end of the connection to the exit */
#define GAP_NS (500 * MS) /* longer gaps are due to the parent itself */

/* Returns 1 once the process is reaped, for which it waits up to `ms`. */
static int reap_process(xray_peer *peer, uint64_t ms)
{
    int status = 0;
    const int found = xr_process_reap(peer->pid, ms, &status);
    if (found == XR_PROCESS_RUNS)
        return 0;
    if (!peer->reason[0] && found == XR_PROCESS_ENDED)
        peer->clean = (uint32_t)xr_process_describe(status, peer->reason,
                                                    sizeof(peer->reason));
    else if (!peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "is gone");
    peer->pid = 0;
    return 1;
}

void xr_local_end(xray_peer *peer, const char *reason)
{
    if (reason && !peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "%s", reason);
    if (peer->pid && (reason || !reap_process(peer, LINE_END_MS))) {
        if (!peer->reason[0])
            (void)snprintf(peer->reason, sizeof(peer->reason),
                           "closed its connection to the parent");
        (void)kill(peer->pid, SIGKILL);
        (void)reap_process(peer, END_MS);
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
    if (reap_process(peer, 0)) /* the end of the connection may be late */
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
