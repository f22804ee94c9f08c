/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads age and state of a process from /proc, and notices that one has ended.
 */
#define _GNU_SOURCE
#include "core/base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"

#define STAT_CAP 1024

/* Reads /proc/PID/stat and returns it from the blank before field 3, or NULL if
 * the process does not exist. Field 2, the name, is in parentheses and may hold
 * any characters. */
static const char *read_proc_stat(uint32_t pid, char *text)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%u/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    ssize_t n = read(fd, text, STAT_CAP - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *end = strrchr(text, ')');
    return end && end[1] == ' ' ? end + 1 : NULL;
}

double xr_process_age(void)
{
    char text[STAT_CAP];
    struct timespec now = { 0, 0 };
    const char *at = read_proc_stat((uint32_t)getpid(), text);
    for (int field = 3; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    long ticks = sysconf(_SC_CLK_TCK);
    if (!at || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0)
        return (double)NAN;
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9 -
           strtod(at, NULL) / (double)ticks;
}

char xr_process_state(uint32_t pid)
{
    char text[STAT_CAP];
    const char *at = read_proc_stat(pid, text);
    return at ? at[1] : '\0';
}

int xr_process_open(uint32_t pid)
{
#ifdef SYS_pidfd_open
    if (pid != (uint32_t)getpid())
        return (int)syscall(SYS_pidfd_open, (pid_t)pid, 0u);
#else
    (void)pid;
#endif
    return -1;
}

int xr_process_is_dead(uint32_t pid, int file)
{
    if (pid == (uint32_t)getpid())
        return 0;
    if (file >= 0) {
        struct pollfd p = { .fd = file, .events = POLLIN };
        return poll(&p, 1, 0) > 0;
    }
    if (kill((pid_t)pid, 0) != 0 && errno == ESRCH)
        return 1;
    char state = xr_process_state(pid);
    return state == 'Z' || state == 'X';
}

/* ---- children ------------------------------------------------------------ */

static int reap_now(pid_t pid, int *out_status)
{
    pid_t got = waitpid(pid, out_status, WNOHANG);
    if (!got || (got < 0 && errno == EINTR))
        return XR_PROCESS_RUNS;
    return got > 0 ? XR_PROCESS_ENDED : XR_PROCESS_GONE;
}

int xr_process_reap(pid_t pid, uint64_t ms, int *out_status)
{
    const double end = xr_now() + 1e-3 * (double)ms;
    struct timespec pause = { 0, 50000 };
    int found = reap_now(pid, out_status);
    while (found == XR_PROCESS_RUNS && ms && xr_now() < end) {
        (void)nanosleep(&pause, NULL);
        if (pause.tv_nsec < 5000000)
            pause.tv_nsec *= 2;
        found = reap_now(pid, out_status);
    }
    return found;
}

int xr_process_describe(int status, char *out, size_t size)
{
    if (WIFSIGNALED(status)) {
        const char *what = sigdescr_np(WTERMSIG(status));
        (void)snprintf(out, size, "was killed by signal %d (%s)",
                       WTERMSIG(status), what ? what : "unknown");
        return 0;
    }
    (void)snprintf(out, size, "exited with status %d", WEXITSTATUS(status));
    return WEXITSTATUS(status) == 0;
}
