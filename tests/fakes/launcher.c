/* SPDX-License-Identifier: Apache-2.0
 *
 * Spawns the processes of a launcher that is not one, and reports their ends.
 */
#define _GNU_SOURCE /* pipe2 */
#include "tests/fakes/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void close_file(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
    *fd = -1;
}

int fake_launcher_open(fake_launcher *self, const xray_host *host)
{
    *self = (fake_launcher){ .host = host };
    for (uint32_t i = 0; i < FAKE_PLACES; i++)
        self->place[i] = (fake_place){ .input = -1, .says = -1, .end = -1 };
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    return self->epoll < 0 ? errno : 0;
}

void fake_launcher_close(fake_launcher *self)
{
    for (uint32_t i = 0; i < FAKE_PLACES; i++)
        fake_stop(self, i);
    close_file(&self->epoll);
}

const char *fake_host_of(void *self, uint32_t index)
{
    fake_launcher *at = self;
    const uint32_t host = at->per_host ? index / at->per_host : 0;
    (void)snprintf(at->name[index], sizeof(at->name[index]), "%s%u",
                   at->prefix ? at->prefix : "fake", host + 1);
    return at->name[index];
}

/* ---- starting ------------------------------------------------------------ */

/* 0 or an errno. */
static int spawn_program(const char *const *argv, int input, int errors,
                         pid_t *out)
{
    const union {
        const char *const *constant;
        char *const *plain;
    } words = { .constant = argv };
    posix_spawn_file_actions_t actions;
    int bad = posix_spawn_file_actions_init(&actions);
    if (bad)
        return bad;
    bad = posix_spawn_file_actions_adddup2(&actions, input, 0);
    if (!bad)
        bad = posix_spawn_file_actions_adddup2(&actions, errors, 2);
    if (!bad)
        bad = posix_spawnp(out, argv[0], &actions, NULL, words.plain, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    return bad;
}

static int watch_file(const fake_launcher *self, int fd, uint32_t index,
                      uint32_t is_end)
{
    struct epoll_event event = { .events = EPOLLIN,
                                 .data.u64 = index | (uint64_t)is_end << 32 };
    return epoll_ctl(self->epoll, EPOLL_CTL_ADD, fd, &event) ? errno : 0;
}

static int start_place(const fake_launcher *self, const xray_launch *launch,
                       fake_place *place)
{
    char line[256];
    int in[2] = { -1, -1 };
    int errors[2] = { -1, -1 };
    int bad = pipe2(in, O_CLOEXEC) || pipe2(errors, O_CLOEXEC) ? errno : 0;
    const int size = snprintf(line, sizeof(line), "%s\n", launch->token);
    place->input = in[1];
    place->says = errors[0];
    if (!bad && write(in[1], line, (size_t)size) != size)
        bad = errno;
    if (!bad)
        bad = spawn_program(launch->argv, in[0], errors[1], &place->pid);
    close_file(&in[0]);
    close_file(&errors[1]);
    if (bad) {
        place->pid = 0;
        return bad;
    }
    place->end = (int)syscall(SYS_pidfd_open, place->pid, 0);
    if (place->end < 0)
        return errno;
    bad = watch_file(self, place->says, launch->index, 0);
    return bad ? bad : watch_file(self, place->end, launch->index, 1);
}

xray_status fake_start(void *self, const xray_launch *launch)
{
    fake_launcher *at = self;
    int bad = at->refuses ? EPERM
                          : start_place(at, launch, &at->place[launch->index]);
    if (!bad)
        return XRAY_OK;
    fake_stop(at, launch->index);
    return at->host->fail(at->host, XRAY_E_IO, "start", strerror(bad));
}

void fake_stop(void *self, uint32_t index)
{
    fake_launcher *at = self;
    fake_place *place = &at->place[index];
    if (place->pid) {
        (void)kill(place->pid, SIGKILL);
        while (waitpid(place->pid, NULL, 0) < 0 && errno == EINTR)
            continue;
    }
    place->pid = 0;
    close_file(&place->input);
    close_file(&place->says);
    close_file(&place->end);
}

/* ---- events -------------------------------------------------------------- */

int32_t fake_events(void *self)
{
    const fake_launcher *at = self;
    return at->mute ? -1 : at->epoll;
}

/* Takes a piece of what the process says; 0 at its end. */
static int take_words(fake_launcher *self, uint32_t index,
                      xray_launch_event *out)
{
    fake_place *place = &self->place[index];
    ssize_t n = place->says < 0
                    ? 0
                    : read(place->says, self->text, sizeof(self->text) - 1);
    if (n <= 0) {
        close_file(&place->says);
        return 0;
    }
    self->text[n] = '\0';
    out->kind = XRAY_LAUNCH_SAYS;
    out->text = self->text;
    out->size = (uint64_t)n;
    return 1;
}

static void take_end(fake_launcher *self, uint32_t index,
                     xray_launch_event *out)
{
    fake_place *place = &self->place[index];
    int status = 0;
    while (waitpid(place->pid, &status, 0) < 0 && errno == EINTR)
        continue;
    place->pid = 0;
    close_file(&place->end);
    if (WIFSIGNALED(status))
        (void)snprintf(self->text, sizeof(self->text),
                       "was killed by signal %d (%s)", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
    else
        (void)snprintf(self->text, sizeof(self->text), "exited with status %d",
                       WEXITSTATUS(status));
    out->kind = XRAY_LAUNCH_ENDED;
    out->clean = status == 0;
    out->text = self->text;
    out->size = strlen(self->text);
}

xray_status fake_next(void *self, xray_launch_event *out)
{
    fake_launcher *at = self;
    struct epoll_event event;
    xray_launch_event found = { .header = XRAY_HEADER(xray_launch_event) };
    while (!at->mute && epoll_wait(at->epoll, &event, 1, 0) == 1) {
        found.index = (uint32_t)event.data.u64;
        /* All that it said comes before its end. */
        if (!take_words(at, found.index, &found)) {
            if (!(event.data.u64 >> 32))
                continue;
            if (at->late) {
                at->late--;
                return XRAY_AGAIN;
            }
            take_end(at, found.index, &found);
        }
        xray_fill(out, &found);
        return XRAY_OK;
    }
    return XRAY_AGAIN;
}
