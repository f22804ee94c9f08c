/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts a program with pipes for its output and reads them until it ends.
 */
#define _GNU_SOURCE /* environ, posix_spawn_file_actions_addclosefrom_np */
#include "core/base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/system_error.h"

#define PIECE ((size_t)1 << 16)
#define TAIL ((size_t)400) /* bytes of standard error that a sentence holds */
#define MISSING 127

/* A started program; descriptors are -1 once they are closed. */
typedef struct running {
    pid_t pid;
    int pipes[2]; /* standard output, standard error */
    xr_str *texts[2];
} running;

static void close_all(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (fds[i] >= 0)
            (void)close(fds[i]);
        fds[i] = -1;
    }
}

static int set_attributes(posix_spawnattr_t *attr)
{
    sigset_t none;
    sigset_t all;
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    int bad = posix_spawnattr_setsigmask(attr, &none);
    if (!bad)
        bad = posix_spawnattr_setsigdefault(attr, &all);
    if (!bad)
        bad = posix_spawnattr_setpgroup(attr, 0);
    return bad ? bad
               : posix_spawnattr_setflags(attr, POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETPGROUP);
}

/* A descriptor whose place another one takes would be lost, so it is moved
 * above them; the caller closes those of `moved`. 0 or an errno. */
static int add_file(posix_spawn_file_actions_t *actions, int fd, int place,
                    int *moved)
{
    if (fd == XR_CHILD_NOTHING)
        return posix_spawn_file_actions_addopen(actions, place, "/dev/null",
                                                place ? O_WRONLY : O_RDONLY, 0);
    if (fd == XR_CHILD_SAME)
        return 0;
    if (fd < XR_CHILD_FILES) {
        *moved = fcntl(fd, F_DUPFD_CLOEXEC, XR_CHILD_FILES);
        if (*moved < 0)
            return errno;
        fd = *moved;
    }
    return posix_spawn_file_actions_adddup2(actions, fd, place);
}

int xr_child_start(char *const *argv, const int files[XR_CHILD_FILES], int only,
                   pid_t *out)
{
    int moved[XR_CHILD_FILES] = { -1, -1, -1, -1 };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    int bad = posix_spawn_file_actions_init(&actions);
    if (bad)
        return bad;
    bad = posix_spawnattr_init(&attr);
    if (bad) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return bad;
    }
    bad = set_attributes(&attr);
    for (int i = 0; i < XR_CHILD_FILES && !bad; i++)
        bad = add_file(&actions, files[i], i, &moved[i]);
    if (!bad && only)
        bad = posix_spawn_file_actions_addclosefrom_np(
            &actions, files[3] == XR_CHILD_SAME ? 3 : XR_CHILD_FILES);
    if (!bad)
        bad = posix_spawnp(out, argv[0], &actions, &attr, argv, environ);
    (void)posix_spawnattr_destroy(&attr);
    (void)posix_spawn_file_actions_destroy(&actions);
    close_all(moved, XR_CHILD_FILES);
    return bad;
}

static int open_pipe(int *fds)
{
    if (pipe(fds) != 0)
        return errno;
    for (int i = 0; i < 2; i++)
        (void)fcntl(fds[i], F_SETFD, FD_CLOEXEC);
    return 0;
}

/* 0 or an errno. */
static int start_program(const xr_child *child, running *r)
{
    int out[2] = { -1, -1 };
    int errors[2] = { -1, -1 };
    int bad = open_pipe(out);
    if (!bad)
        bad = open_pipe(errors);
    if (!bad) {
        const int files[XR_CHILD_FILES] = { child->input, out[1], errors[1],
                                            XR_CHILD_SAME };
        const union {
            const char *const *constant;
            char *const *plain; /* as POSIX declares what it does not write */
        } words = { .constant = child->argv };
        bad = xr_child_start(words.plain, files, 0, &r->pid);
    }
    close_all(&out[1], 1);
    close_all(&errors[1], 1);
    r->pipes[0] = out[0];
    r->pipes[1] = errors[0];
    if (bad)
        close_all(r->pipes, 2);
    return bad;
}

/* Takes what there is in a pipe; closes it at its end. */
static void take_piece(running *r, int which)
{
    char piece[PIECE];
    ssize_t n = read(r->pipes[which], piece, sizeof piece);
    if (n > 0)
        xr_str_append(r->texts[which], piece, (size_t)n);
    else if (n == 0 || (errno != EINTR && errno != EAGAIN))
        close_all(&r->pipes[which], 1);
}

static xray_status check_time(const xr_child *child, double until,
                              const xray_call_service *calls, xr_err *err)
{
    if (xr_now() > until)
        return xr_fail(err, XRAY_E_IO, "%s took longer than %.0f s",
                       child->name, child->seconds);
    return xr_stop_check(calls, err);
}

static xray_status read_pipes(const xr_child *child, running *r, double until,
                              const xray_call_service *calls, xr_err *err)
{
    while (r->pipes[0] >= 0 || r->pipes[1] >= 0) {
        struct pollfd polls[2] = { { .fd = r->pipes[0], .events = POLLIN },
                                   { .fd = r->pipes[1], .events = POLLIN } };
        xray_status status = check_time(child, until, calls, err);
        if (status != XRAY_OK)
            return status;
        (void)poll(polls, 2, 50);
        for (int i = 0; i < 2; i++)
            if (polls[i].fd >= 0 && polls[i].revents)
                take_piece(r, i);
        if (r->texts[0]->failed || r->texts[1]->failed)
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", child->name);
    }
    return XRAY_OK;
}

/* Waits for the end of a program that may go on after it closed its output. */
static xray_status wait_for_end(const xr_child *child, pid_t pid, double until,
                                const xray_call_service *calls, xr_err *err,
                                int *out_code)
{
    const struct timespec pause = { 0, 2000000 };
    pid_t got;
    while ((got = waitpid(pid, out_code, WNOHANG)) == 0 ||
           (got < 0 && errno == EINTR)) {
        xray_status status = check_time(child, until, calls, err);
        if (status != XRAY_OK)
            return status;
        (void)nanosleep(&pause, NULL);
    }
    return got == pid ? XRAY_OK
                      : xr_fail(err, XRAY_E_IO, "%s: waiting for its end: %s",
                                child->name, XR_SYSTEM_ERROR(errno));
}

static xray_status judge_end(const xr_child *child, int code,
                             const xr_str *errors, xr_err *err)
{
    const char *text = xr_str_text(errors);
    if (WIFEXITED(code) && WEXITSTATUS(code) == 0)
        return XRAY_OK;
    text += errors->size > TAIL ? errors->size - TAIL : 0;
    if (WIFEXITED(code))
        return xr_fail(
            err, WEXITSTATUS(code) == MISSING ? XRAY_E_UNSUPPORTED : XRAY_E_IO,
            "%s ended with code %d: %s", child->name, WEXITSTATUS(code),
            *text ? text : "it gave no reason");
    return xr_fail(err, XRAY_E_IO, "%s was ended by signal %d", child->name,
                   WTERMSIG(code));
}

xray_status xr_child_run(const xr_child *child, const xray_call_service *calls,
                         xr_err *err, xr_str *out)
{
    xr_str errors = { 0 };
    running r = { .pipes = { -1, -1 }, .texts = { out, &errors } };
    double until = xr_now() + child->seconds;
    int code = 0;
    int bad = start_program(child, &r);
    if (bad)
        return xr_fail(err, bad == ENOENT ? XRAY_E_UNSUPPORTED : XRAY_E_IO,
                       "starting %s: %s", child->name, XR_SYSTEM_ERROR(bad));
    xray_status status = read_pipes(child, &r, until, calls, err);
    if (status == XRAY_OK)
        status = wait_for_end(child, r.pid, until, calls, err, &code);
    if (status == XRAY_OK) {
        status = judge_end(child, code, &errors, err);
    } else {
        (void)kill(-r.pid, SIGKILL);
        while (waitpid(r.pid, &code, 0) < 0 && errno == EINTR)
            continue;
    }
    close_all(r.pipes, 2);
    xr_str_free(&errors);
    return status;
}
