/* SPDX-License-Identifier: Apache-2.0
 *
 * Starts and ends the process that is rank 0 of MPI, and talks with it. What
 * mpirun gave the driver, the environment and open files, is what a rank finds
 * MPI by, so the child inherits both.
 */
#define _GNU_SOURCE /* dladdr */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/base/child.h"
#include "core/base/file.h"
#include "core/base/process.h"
#include "core/base/system_error.h"
#include "plugins/runtime-mpi/launcher.h"

#define LOOK_MS 50    /* between two looks at whether the call shall end */
#define END_MS 10000u /* a killed process may still be busy in a driver */

static void close_line(mpi_child *child)
{
    if (child->line >= 0)
        (void)close(child->line);
    child->line = -1;
}

/* The folder that this plugin was loaded from, where the child finds it, too;
 * NULL if there is none. The caller frees it. */
static char *find_folder(void)
{
    Dl_info info;
    if (!dladdr(&mpi_ops, &info) || !info.dli_fname)
        return NULL;
    char *file = realpath(info.dli_fname, NULL);
    char *folder = file ? xr_path_parent(file) : NULL;
    free(file);
    return folder;
}

/* 0 or an errno. */
static int spawn_child(char *folder, char *address, int input, pid_t *out)
{
    char program[] = "/proc/self/exe";
    char word[] = "workhorse";
    char name[] = "mpi";
    char *argv[] = { program, word, name, folder, address, NULL };
    const int files[XR_CHILD_FILES] = { input, XR_CHILD_SAME, XR_CHILD_SAME,
                                        XR_CHILD_SAME };
    return xr_child_start(argv, files, 0, out);
}

xray_status mpi_child_start(const xray_host *host, const char *library,
                            mpi_child *out)
{
    int ends[2];
    char none[] = "";
    char address[XR_PATH_CAP];
    *out = (mpi_child){ .line = -1 };
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return xr_host_fail(host, XRAY_E_IO, MPI_WHERE, "a socket: %s",
                            XR_SYSTEM_ERROR(errno));
    char *folder = find_folder();
    (void)snprintf(address, sizeof(address), MPI_ADDRESS "%s", library);
    int bad = spawn_child(folder ? folder : none, address, ends[1], &out->pid);
    free(folder);
    (void)close(ends[1]);
    out->line = ends[0];
    if (!bad)
        return XRAY_OK;
    out->pid = 0;
    close_line(out);
    return xr_host_fail(host, XRAY_E_IO, MPI_WHERE,
                        "starting the process of rank 0: %s",
                        XR_SYSTEM_ERROR(bad));
}

void mpi_child_end(mpi_child *child, uint64_t ms)
{
    int status = 0;
    close_line(child);
    if (!child->pid)
        return;
    if (xr_process_reap(child->pid, ms, &status) == XR_PROCESS_RUNS) {
        (void)kill(-child->pid, SIGKILL);
        (void)kill(child->pid, SIGKILL);
        (void)xr_process_reap(child->pid, END_MS, &status);
    }
    child->pid = 0;
}

/* The library itself may have ended it, with a text on standard error. */
static xray_status tell_end(const xray_host *host, mpi_child *child)
{
    int status = 0;
    char how[80] = "is gone";
    if (xr_process_reap(child->pid, 1000, &status) == XR_PROCESS_ENDED) {
        (void)xr_process_describe(status, how, sizeof(how));
        child->pid = 0;
    }
    return xr_host_fail(host, XRAY_E_PEER, MPI_WHERE,
                        "the process that joins MPI as rank 0 %s", how);
}

xray_status mpi_child_receive(const xray_host *host, mpi_child *child,
                              void *out, size_t size, size_t *at)
{
    struct pollfd ready = { .fd = child->line, .events = POLLIN };
    while (*at < size) {
        if (poll(&ready, 1, LOOK_MS) <= 0)
            return XRAY_AGAIN;
        ssize_t n = recv(child->line, (char *)out + *at, size - *at, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tell_end(host, child);
        *at += (size_t)n;
    }
    return XRAY_OK;
}

/* The child reads all the time. */
xray_status mpi_child_send(const xray_host *host, mpi_child *child,
                           const void *data, size_t size)
{
    const char *at = data;
    while (size) {
        ssize_t n = send(child->line, at, size, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return tell_end(host, child);
        at += n;
        size -= (size_t)n;
    }
    return XRAY_OK;
}
