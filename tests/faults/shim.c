/* SPDX-License-Identifier: Apache-2.0
 *
 * Preloaded into the program under test: file operations on paths that hold
 * one of the words of FAULT_PATHS (between ':') are counted, and
 *   FAULT_AT=n     the n-th one fails with FAULT_ERRNO (a number), or, with
 *                  FAULT_KILL=1, the process dies of SIGKILL in the middle of
 * it; FAULT_BYTES=n  writes beyond so many bytes fail with FAULT_ERRNO, as on a
 *                  disk that is full;
 *   FAULT_LOG=file gets the number of operations at the end.
 * Operations: open for writing, mkdir, write, taking space, fsync, rename.
 * Calls of the kernel are made directly, so that no sanitizer comes in between.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static long calls;
static long bytes;

static long read_number(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static int path_is_meant(const char *path)
{
    const char *words = getenv("FAULT_PATHS");
    while (words && *words) {
        char word[256];
        size_t n = strcspn(words, ":");
        if (n && n < sizeof(word)) {
            memcpy(word, words, n);
            word[n] = '\0';
            if (strstr(path, word))
                return 1;
        }
        words += n;
        words += *words == ':';
    }
    return 0;
}

static int fd_is_meant(int fd)
{
    char link[64];
    char path[4096];
    (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n <= 0)
        return 0;
    path[n] = '\0';
    return path_is_meant(path);
}

static void kill_process(void)
{
    (void)syscall(SYS_kill, (long)getpid(), (long)SIGKILL);
}

/* 1: the current operation fails; errno is set. */
static int operation_fails(void)
{
    long at = read_number("FAULT_AT");
    calls++;
    if (!at || calls != at)
        return 0;
    if (read_number("FAULT_KILL"))
        kill_process();
    errno = (int)read_number("FAULT_ERRNO");
    return 1;
}

static int open_any(int dir, const char *path, int flags, mode_t mode)
{
    if ((flags & (O_WRONLY | O_RDWR | O_CREAT)) && path_is_meant(path) &&
        operation_fails())
        return -1;
    return (int)syscall(SYS_openat, (long)dir, path, (long)flags, (long)mode);
}

int open(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_any(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list list;
    va_start(list, flags);
    mode_t mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_any(AT_FDCWD, path, flags, mode);
}

int mkdir(const char *path, mode_t mode)
{
    /* An existing folder is not created, so nothing can fail. */
    int there = syscall(SYS_faccessat, (long)AT_FDCWD, path, (long)F_OK) == 0;
    if (path_is_meant(path) && !there && operation_fails())
        return -1;
    return (int)syscall(SYS_mkdirat, (long)AT_FDCWD, path, (long)mode);
}

ssize_t write(int fd, const void *data, size_t size)
{
    long room = read_number("FAULT_BYTES");
    if (fd > 2 && fd_is_meant(fd)) {
        /* Half of the bytes are written before the process dies. */
        if (read_number("FAULT_KILL") && calls + 1 == read_number("FAULT_AT"))
            (void)syscall(SYS_write, (long)fd, data, size / 2);
        if (operation_fails())
            return -1;
        if (room && bytes >= room) {
            errno = (int)read_number("FAULT_ERRNO");
            return -1;
        }
        if (room && bytes + (long)size > room)
            size = (size_t)(room - bytes);
        bytes += (long)size;
    }
    return syscall(SYS_write, (long)fd, data, size);
}

/* Space that is taken ahead counts as written. */
int posix_fallocate(int fd, off_t at, off_t size)
{
    long room = read_number("FAULT_BYTES");
    if (fd > 2 && fd_is_meant(fd)) {
        if (operation_fails() || (room && bytes + (long)size > room))
            return (int)read_number("FAULT_ERRNO");
        bytes += (long)size;
    }
    return syscall(SYS_fallocate, (long)fd, 0L, (long)at, (long)size) ? errno
                                                                      : 0;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    if (fd > 2 && fd_is_meant(fd)) {
        if (read_number("FAULT_KILL") && calls + 1 == read_number("FAULT_AT"))
            (void)syscall(SYS_pwrite64, (long)fd, data, size / 2, (long)at);
        if (operation_fails())
            return -1;
    }
    return syscall(SYS_pwrite64, (long)fd, data, size, (long)at);
}

int fsync(int fd)
{
    if (fd_is_meant(fd) && operation_fails())
        return -1;
    return (int)syscall(SYS_fsync, (long)fd);
}

int rename(const char *from, const char *to)
{
    /* The process may die before or after the rename. */
    int kills = read_number("FAULT_KILL") && read_number("FAULT_AT") % 2 == 0;
    if (path_is_meant(to) && !kills && operation_fails())
        return -1;
    int failed = (int)syscall(SYS_renameat2, (long)AT_FDCWD, from,
                              (long)AT_FDCWD, to, 0L);
    if (path_is_meant(to) && kills)
        (void)operation_fails();
    return failed;
}

__attribute__((destructor)) static void write_call_log(void)
{
    const char *path = getenv("FAULT_LOG");
    char text[32];
    if (!path)
        return;
    int fd = (int)syscall(SYS_openat, (long)AT_FDCWD, path,
                          (long)(O_WRONLY | O_CREAT | O_TRUNC), 0600L);
    int n = snprintf(text, sizeof(text), "%ld\n", calls);
    if (fd >= 0) {
        (void)syscall(SYS_write, (long)fd, text, (long)n);
        (void)syscall(SYS_close, (long)fd);
    }
}
