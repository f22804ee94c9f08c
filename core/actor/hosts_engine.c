/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors that the launcher of an engine starts: the engine brings what they
 * write to standard error and how they end, and kills them.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>

#include "core/actor/hosts.h"
#include "core/base/words.h"

#define LOOK_MS 10 /* between two looks at a launcher whose end is awaited */

int xr_hosts_engine_open(xr_hosts *self)
{
    const int fd = self->launcher->events(self->launcher_self);
    return fd < 0 ? 0
                  : xr_hosts_watch(self, fd, XR_HOSTS_ENGINE, 0, EPOLLIN, 0);
}

xray_status xr_hosts_engine_start(xray_peer *peer, const char *const *argv)
{
    const xr_hosts *self = peer->self;
    char address[128];
    char token[XR_HOSTS_LINE];
    xr_hosts_name_door(peer, address, sizeof(address));
    xr_hosts_write_token(peer, token);
    char **words = xr_words_copy(argv, address);
    if (!words)
        return XRAY_E_NOMEM;
    const union {
        char **plain;
        const char *const *constant;
    } line = { .plain = words };
    const xray_launch launch = { .header = XRAY_HEADER(xray_launch),
                                 .argv = line.constant,
                                 .token = token,
                                 .index = peer->index };
    xray_status status = self->launcher->start(self->launcher_self, &launch);
    free(words);
    peer->engine = status == XRAY_OK ? XR_HOSTS_ENGINE_RUNS : XR_HOSTS_OWN;
    return status;
}

/* ---- events -------------------------------------------------------------- */

/* A process that ended before it greeted the run says why. */
static void note_end(xray_peer *peer, const xray_launch_event *event)
{
    const int early = !peer->greeted;
    const char *line = early ? peer->line : "";
    peer->engine = XR_HOSTS_ENGINE_ENDED;
    peer->clean = event->clean && !early;
    if (!peer->reason[0])
        (void)snprintf(peer->reason, sizeof(peer->reason), "%s%s%s%s",
                       early ? "did not start: its process " : "",
                       event->text ? event->text : "is gone", *line ? ": " : "",
                       line);
}

static void take_event(xr_hosts *self, const xray_launch_event *event)
{
    if (event->index >= self->peer_count)
        return;
    xray_peer *peer = &self->peers[event->index];
    /* One that was stopped has no events any more. */
    if (!peer->used || peer->engine != XR_HOSTS_ENGINE_RUNS)
        return;
    if (event->kind == XRAY_LAUNCH_SAYS)
        xr_hosts_say(peer, event->text, (size_t)event->size);
    else if (event->kind == XRAY_LAUNCH_ENDED)
        note_end(peer, event);
}

/* Returns XRAY_AGAIN, or the launcher's failure. */
static xray_status take_events(xr_hosts *self)
{
    xray_launch_event event = { .header = XRAY_HEADER(xray_launch_event) };
    xray_status status;
    while ((status = self->launcher->next(self->launcher_self, &event)) ==
           XRAY_OK)
        take_event(self, &event);
    return status;
}

/* A launcher that fails here has lost its engine, and is not asked any more;
 * the connections still tell who is gone. */
void xr_hosts_engine_serve(xr_hosts *self)
{
    if (take_events(self) == XRAY_AGAIN)
        return;
    const int fd = self->launcher->events(self->launcher_self);
    (void)epoll_ctl(self->epoll, EPOLL_CTL_DEL, fd, NULL);
}

/* ---- ends ---------------------------------------------------------------- */

int xr_hosts_engine_await(xray_peer *peer, uint64_t ms)
{
    xr_hosts *self = peer->self;
    const uint64_t end = xr_hosts_now_ms() + ms;
    struct pollfd ready = { .fd = self->launcher->events(self->launcher_self),
                            .events = POLLIN };
    if (peer->engine == XR_HOSTS_ENGINE_ENDED)
        return 1;
    if (ready.fd < 0 || !ms) /* what it says is taken when epoll tells */
        return 0;
    for (;;) {
        const xray_status status = take_events(self);
        if (peer->engine == XR_HOSTS_ENGINE_ENDED)
            return 1;
        if (status != XRAY_AGAIN || xr_hosts_now_ms() >= end)
            return 0;
        (void)poll(&ready, 1, LOOK_MS);
    }
}

void xr_hosts_engine_stop(xray_peer *peer)
{
    const xr_hosts *self = peer->self;
    if (peer->engine == XR_HOSTS_ENGINE_RUNS)
        (void)take_events(peer->self); /* what it said last */
    self->launcher->stop(self->launcher_self, peer->index);
    peer->engine = XR_HOSTS_OWN;
}
