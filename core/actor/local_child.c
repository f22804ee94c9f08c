/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor's side of the local runtime: it joins the parent, shows that it is
 * alive and ends when the parent does.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/actor/local.h"
#include "core/base/str.h"
#include "core/base/system_error.h"

#define HELLO_MS 10000
#define BEAT_MS 100

/* Runs in a thread beside the methods: it counts up as long as the process
 * runs, and notices the parent's end while the other thread computes. */
static void *beat_until_stopped(void *data)
{
    xr_local *local = data;
    struct pollfd polls[2] = { { .fd = local->peers[0].conn.fd },
                               { .fd = local->beat_stop, .events = POLLIN } };
    uint64_t count = 1;
    for (;;) {
        atomic_store_explicit(&local->own->beat, ++count, memory_order_relaxed);
        (void)poll(polls, 2, BEAT_MS);
        if (polls[1].revents)
            return NULL;
        if (polls[0].revents & (POLLHUP | POLLERR))
            _exit(1);
    }
}

static int start_heartbeat(xr_local *local)
{
    sigset_t all;
    sigset_t old;
    local->beat_stop = eventfd(0, EFD_CLOEXEC);
    if (local->beat_stop < 0)
        return errno;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int bad =
        pthread_create(&local->beat_thread, NULL, beat_until_stopped, local);
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    local->beating = !bad;
    return bad;
}

void xr_local_detach(xr_local *local)
{
    if (local->beating) {
        const uint64_t one = 1;
        ssize_t n = write(local->beat_stop, &one, sizeof(one));
        if (n == (ssize_t)sizeof(one))
            (void)pthread_join(local->beat_thread, NULL);
        local->beating = 0;
    }
    if (local->beat_stop >= 0)
        (void)close(local->beat_stop);
    local->beat_stop = -1;
    if (!local->own)
        return;
    /* The socket stays open until the process ends, because the parent takes
     * the end of the connection for the end of the process. */
    atomic_store_explicit(&local->own->beat, XR_BEAT_LEAVING,
                          memory_order_relaxed);
    local->peers[0].conn.fd = -1;
}

/* Reads the first frame; 0 or an errno. *out_fd, the memory of the slots, is
 * the caller's to close. */
static int read_hello(xr_conn *conn, xr_hello *out, int *out_fd)
{
    struct pollfd ready = { .fd = conn->fd, .events = POLLIN };
    xr_frame frame;
    const void *data;
    int got;
    while (!(got = xr_conn_next(conn, &frame, &data, out_fd))) {
        if (poll(&ready, 1, HELLO_MS) == 0)
            return ETIMEDOUT;
        int bad = xr_conn_read(conn);
        if (bad && bad != EAGAIN)
            return bad;
    }
    if (got < 0 || frame.kind != XR_FRAME_HELLO || frame.size != sizeof(*out) ||
        *out_fd < 0) {
        if (got > 0 && *out_fd >= 0)
            (void)close(*out_fd);
        *out_fd = -1;
        return EPROTO;
    }
    memcpy(out, data, sizeof(*out));
    return 0;
}

static xray_status join_parent(xr_local *local, const char *address)
{
    int64_t fd = -1;
    xr_hello hello = { 0 };
    if (strncmp(address, "local:", 6) != 0 || xr_parse_int(address + 6, &fd) ||
        fd < 0 || fd > INT32_MAX || fcntl((int)fd, F_SETFD, FD_CLOEXEC))
        return xr_local_fail(local, XRAY_E_ARG,
                             "\"%s\" is not the address of an actor's parent; "
                             "only xray itself runs this command",
                             address);
    local->peers[0].conn.fd = (int)fd;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    int bad = read_hello(&local->peers[0].conn, &hello, &local->shared_fd);
    if (bad)
        return xr_local_fail(local, XRAY_E_PEER,
                             "no greeting came from the parent: %s",
                             XR_SYSTEM_ERROR(bad));
    if ((uint64_t)getppid() != hello.parent) /* it died before prctl */
        return xr_local_fail(local, XRAY_E_PEER, "the parent is gone");
    if (hello.index >= hello.actors)
        return xr_local_fail(local, XRAY_E_PEER,
                             "the parent's greeting names actor %u of %u",
                             hello.index, hello.actors);
    xray_status status = xr_local_map_shared(local, local->shared_fd,
                                             hello.actors, hello.record_size);
    if (status)
        return status;
    local->own = xr_local_slot_at(local, hello.index);
    bad = start_heartbeat(local);
    if (bad)
        return xr_local_fail(local, XRAY_E_NOMEM,
                             "starting the heartbeat thread failed: %s",
                             XR_SYSTEM_ERROR(bad));
    return XRAY_OK;
}

xray_status xr_local_attach(const xray_host *host, const char *address,
                            void **out_self, xray_peer **out_parent)
{
    xr_local *local = calloc(1, sizeof(*local));
    xr_local failed = { .host = host };
    if (!local)
        return xr_local_fail(&failed, XRAY_E_NOMEM, "out of memory");
    local->host = host;
    local->shared_fd = -1;
    local->beat_stop = -1;
    local->peer_count = 1;
    local->peers = calloc(1, sizeof(*local->peers));
    local->polls = calloc(1, sizeof(*local->polls));
    xray_status status;
    if (!local->peers || !local->polls) {
        status = xr_local_fail(&failed, XRAY_E_NOMEM, "out of memory");
    } else {
        local->peers[0].conn.fd = -1;
        local->peers[0].used = 1;
        status = join_parent(local, address);
    }
    if (status) {
        xr_local_runtime.destroy(local);
        return status;
    }
    *out_self = local;
    *out_parent = &local->peers[0];
    return XRAY_OK;
}
