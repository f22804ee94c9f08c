/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks a folder against other processes by a lock on a file in it.
 */
#define _GNU_SOURCE /* F_OFD_SETLK */
#include "core/base/lock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"

#define HOLDER_CAP 160

/* Reads the holder's name, "pid 12 on host", from the file. */
static void read_holder(int fd, char *out, size_t cap)
{
    ssize_t n = pread(fd, out, cap - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    xr_one_line(out);
    if (!*out)
        (void)snprintf(out, cap, "its process is unknown");
}

/* The lock itself decides who holds the folder, not the file's content. A write
 * that fails only deprives the next process of the holder's name. */
static void write_holder(int fd)
{
    char host[64] = "";
    char text[HOLDER_CAP];
    if (gethostname(host, sizeof(host) - 1) != 0 || !*host)
        (void)snprintf(host, sizeof(host), "an unnamed host");
    int size =
        snprintf(text, sizeof(text), "pid %ld on %s\n", (long)getpid(), host);
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)size, 0) != size)
        return;
    (void)fsync(fd); /* processes on other hosts read the file */
}

static xray_status fail_locked(int fd, const char *dir, int reason, xr_err *err)
{
    char holder[HOLDER_CAP];
    if (reason != EAGAIN && reason != EACCES)
        return xr_fail(
            err, XRAY_E_UNSUPPORTED,
            "%s: its file system does not support locks (%s), so nothing "
            "would keep two runs from writing there at once",
            dir, XR_SYSTEM_ERROR(reason));
    read_holder(fd, holder, sizeof(holder));
    return xr_fail(err, XRAY_E_STATE,
                   "%s is in use by another xray (%s), which holds its "
                   "file " XR_LOCK_FILE,
                   dir, holder);
}

xray_status xr_lock_take(const char *dir, xr_err *err, xr_lock *out)
{
    /* An open file description lock is not released when another descriptor of
     * this process closes the file, and servers of network file systems enforce
     * it among their clients. */
    struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
    char path[XR_PATH_CAP];
    *out = (xr_lock){ .held = 0 };
    xray_status status =
        xr_path_join(dir, XR_LOCK_FILE, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                  0666);
    if (fd < 0)
        return xr_fail(err, XRAY_E_IO,
                       "%s: cannot create the file that locks the folder: %s",
                       path, XR_SYSTEM_ERROR(errno));
    if (fcntl(fd, F_OFD_SETLK, &lock) != 0) {
        status = fail_locked(fd, dir, errno, err);
        (void)close(fd);
        return status;
    }
    write_holder(fd);
    out->held = fd + 1;
    return XRAY_OK;
}

void xr_lock_drop(xr_lock *lock)
{
    if (lock->held)
        (void)close(lock->held - 1);
    lock->held = 0;
}
