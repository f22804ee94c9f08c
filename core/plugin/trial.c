/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads a plugin for the first time in a child process that may crash or hang.
 * The child reports through a pipe: 'L' before it loads the file, 'Q' before it
 * calls the query function, then 'K' if the plugin is sound, or 'E' and the
 * sentence of an error.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/plugin/guard.h"
#include "core/plugin/internal.h"

extern char **environ;

/* The child's end of the pipe. */
#define REPORT_FD 3
/* The longest time that a trial may take: loading may read large libraries from
 * disk. */
#define LIMIT_NS 60000000000

static int enabled;        /* set once, before any thread starts */
static int report_fd = -1; /* >= 0: this process is the child */

void xr_trial_enable(void)
{
    enabled = 1;
}

/* ---- the child ---------------------------------------------------------- */

static void write_report(const char *bytes, size_t size)
{
    while (report_fd >= 0 && size) {
        ssize_t n = write(report_fd, bytes, size);
        if (n < 0 && errno != EINTR)
            return;
        if (n > 0) {
            bytes += n;
            size -= (size_t)n;
        }
    }
}

void xr_trial_mark(char phase)
{
    write_report(&phase, 1);
}

int xr_trial_child(const char *path)
{
    xr_err err = { "" };
    const xray_plugin *plugin = NULL;
    enabled = 0;
    report_fd = REPORT_FD;
    (void)fcntl(REPORT_FD, F_SETFD, FD_CLOEXEC);
    xray_status status = xr_plugin_load(path, &err, &plugin);
    xr_trial_mark(status == XRAY_OK ? 'K' : 'E');
    if (status != XRAY_OK)
        write_report(err.text, strlen(err.text));
    /* _exit skips the plugin's destructors, which the trial does not cover. */
    _exit(0);
}

/* ---- the parent --------------------------------------------------------- */

int xr_trial_wanted(const char *path)
{
    char folder[XR_PATH_CAP];
    struct stat theirs;
    struct stat ours;
    if (!enabled || strlen(path) >= sizeof(folder) - 2)
        return 0;
    const char *slash = strrchr(path, '/');
    (void)snprintf(folder, sizeof(folder), "%.*s",
                   slash ? (int)(slash - path + 1) : 1, slash ? path : ".");
    if (stat(folder, &theirs) != 0)
        return 1;
    for (size_t i = 0;
         xr_own_folder(i, folder, sizeof(folder), NULL) != XRAY_END; i++)
        if (stat(folder, &ours) == 0 && ours.st_dev == theirs.st_dev &&
            ours.st_ino == theirs.st_ino)
            return 0;
    return 1;
}

/* Spawns the child with /dev/null as standard output: a line that the plugin
 * prints would appear among the results of the program. */
static int spawn_trial(const char *path, int pipe_fd, pid_t *out_pid)
{
    char self[] = "/proc/self/exe";
    char command[] = XR_TRIAL_COMMAND;
    char file[XR_PATH_CAP];
    char *argv[] = { self, command, file, NULL };
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t blocked;
    (void)snprintf(file, sizeof(file), "%s", path);
    if (posix_spawn_file_actions_init(&actions) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&actions);
        return ENOMEM;
    }
    /* The terminal sends SIGINT to both; only the parent handles it. */
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGINT);
    (void)posix_spawnattr_setsigmask(&attributes, &blocked);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    int failed = posix_spawn_file_actions_adddup2(&actions, pipe_fd, REPORT_FD);
    if (!failed)
        failed = posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO,
                                                  "/dev/null", O_WRONLY, 0);
    if (!failed)
        failed =
            posix_spawn(out_pid, self, &actions, &attributes, argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Reads the child's report until it ends; returns 0 if the deadline passes
 * first. */
static int read_report(int fd, int64_t deadline, char *text, size_t cap)
{
    size_t used = 0;
    for (;;) {
        int64_t left = (deadline - xr_guard_clock()) / 1000000;
        struct pollfd waiting = { .fd = fd, .events = POLLIN };
        text[used] = '\0';
        if (left <= 0)
            return 0;
        int ready = poll(&waiting, 1, left < 1000 ? (int)left : 1000);
        if (ready <= 0)
            continue;
        ssize_t n = read(fd, text + used, cap - used - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return 1;
        used += (size_t)n;
        if (used == cap - 1)
            return 1;
    }
}

static const char *name_signal(int number)
{
    switch (number) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    case SIGABRT:
        return "SIGABRT";
    case SIGKILL:
        return "SIGKILL";
    default:
        return "a signal";
    }
}

/* Turns the report into a status. The last phase in a report without 'K' or 'E'
 * is the one in which the child ended. */
static xray_status judge_report(const char *path, const char *said, int in_time,
                                int status, xr_err *err)
{
    size_t phases = strspn(said, "LQ");
    const char *phase = strchr(said, 'Q') ? "query" : "load";
    if (said[phases] == 'K')
        return XRAY_OK;
    if (said[phases] == 'E')
        return xr_fail(err, XRAY_E_ABI, "%s", said + phases + 1);
    if (!in_time)
        return xr_fail(err, XRAY_E_ABI,
                       "%s: did not return from %s in its trial", path, phase);
    if (WIFSIGNALED(status))
        return xr_fail(err, XRAY_E_ABI, "%s: crashes (%s) in %s", path,
                       name_signal(WTERMSIG(status)), phase);
    return xr_fail(err, XRAY_E_ABI, "%s: ends the process (exit code %d) in %s",
                   path, WEXITSTATUS(status), phase);
}

/* Returns the nanoseconds a trial may take: LIMIT_NS, or the limit of all timed
 * calls if that is less. */
static int64_t get_trial_limit(void)
{
    int64_t limit = xr_guard_limit_now();
    return limit && limit < LIMIT_NS ? limit : LIMIT_NS;
}

xray_status xr_trial_run(const char *path, xr_err *err)
{
    char said[1200];
    int ends[2];
    int status = 0;
    pid_t pid = 0;
    if (pipe(ends) != 0)
        return xr_fail(err, XRAY_E_IO,
                       "%s: cannot create a pipe for its trial: %s", path,
                       strerror(errno));
    for (int i = 0; i < 2; i++)
        (void)fcntl(ends[i], F_SETFD, FD_CLOEXEC);
    /* dup2 onto the same descriptor does nothing, so exec would close the
     * child's end of the pipe. */
    if (ends[1] == REPORT_FD)
        (void)fcntl(ends[1], F_SETFD, 0);
    int failed = spawn_trial(path, ends[1], &pid);
    (void)close(ends[1]);
    if (failed) {
        (void)close(ends[0]);
        return xr_fail(err, XRAY_E_IO, "%s: its trial cannot be started: %s",
                       path, strerror(failed));
    }
    int in_time = read_report(ends[0], xr_guard_clock() + get_trial_limit(),
                              said, sizeof(said));
    (void)close(ends[0]);
    if (!in_time)
        (void)kill(pid, SIGKILL);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return judge_report(path, said, in_time, status, err);
}
