/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads, maps and copies regular files, and writes files so that a crash leaves
 * the old or the new content.
 */
#define _DEFAULT_SOURCE /* madvise */
#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/str.h"
#include "core/base/system_error.h"

/* Bytes between two looks at the stop. */
#define PIECE ((size_t)16 << 20)

static xray_status fail_with_errno(xr_err *err, const char *path,
                                   const char *what)
{
    return xr_fail(err, errno == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                   "%s: %s: %s", path, what, XR_SYSTEM_ERROR(errno));
}

static xray_status fail_out_of_memory(xr_err *err, const char *path)
{
    return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
}

static xray_status fail_too_large(xr_err *err, const char *path, size_t limit)
{
    return xr_fail(err, XRAY_E_RANGE,
                   "%s: the file is larger than the limit of %zu bytes", path,
                   limit);
}

static const char *name_file_kind(mode_t mode)
{
    return S_ISDIR(mode)                    ? "a folder"
           : S_ISFIFO(mode)                 ? "a pipe"
           : S_ISSOCK(mode)                 ? "a socket"
           : S_ISCHR(mode) || S_ISBLK(mode) ? "a device"
                                            : "of an unknown kind";
}

static xray_status fail_not_regular(xr_err *err, const char *path, mode_t mode)
{
    return xr_fail(err, XRAY_E_IO,
                   "%s: this is %s, but a regular file is expected", path,
                   name_file_kind(mode));
}

xray_status xr_file_open(const char *path, xr_err *err, int *out_fd,
                         uint64_t *out_size)
{
    struct stat st;
    /* Without O_NONBLOCK, opening a pipe would wait for a writer. Regular files
     * ignore the flag. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        int saved = errno;
        if (saved == ENXIO && !stat(path, &st)) /* a socket cannot be opened */
            return fail_not_regular(err, path, st.st_mode);
        errno = saved;
        return fail_with_errno(err, path, "cannot open");
    }
    xray_status status = XRAY_OK;
    if (fstat(fd, &st))
        status = fail_with_errno(err, path, "cannot read");
    else if (!S_ISREG(st.st_mode))
        status = fail_not_regular(err, path, st.st_mode);
    if (status != XRAY_OK) {
        (void)close(fd);
        return status;
    }
    *out_fd = fd;
    *out_size = st.st_size > 0 ? (uint64_t)st.st_size : 0;
    return XRAY_OK;
}

/* Reads until the end of the file; stops as soon as it exceeds `limit`. */
static xray_status read_until_end(int fd, const char *path, size_t limit,
                                  const xray_call_service *calls, xr_err *err,
                                  char **data, size_t *size)
{
    size_t cap = *size;
    *size = 0;
    *data = malloc(cap);
    while (*data) {
        size_t room = cap - *size - 1;
        xray_status status = xr_stop_check(calls, err);
        if (status != XRAY_OK)
            return status;
        ssize_t got = read(fd, *data + *size, room < PIECE ? room : PIECE);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return fail_with_errno(err, path, "cannot read");
        if (got == 0) {
            (*data)[*size] = '\0';
            return XRAY_OK;
        }
        *size += (size_t)got;
        if (*size > limit)
            return fail_too_large(err, path, limit);
        if (cap - *size > 1)
            continue;
        char *more = cap < SIZE_MAX / 2 ? realloc(*data, cap * 2) : NULL;
        if (!more)
            break;
        *data = more;
        cap *= 2;
    }
    return fail_out_of_memory(err, path);
}

xray_status xr_file_read_long(const char *path, size_t limit,
                              const xray_call_service *calls, xr_err *err,
                              char **out_data, size_t *out_size)
{
    int fd = -1;
    uint64_t bytes = 0;
    char *data = NULL;
    xray_status status = xr_file_open(path, err, &fd, &bytes);
    if (status != XRAY_OK)
        return status;
    /* The size is only a guess: it is 0 for files in /proc. Two spare bytes let
     * read() report the end without growing the buffer. */
    size_t size = bytes > 4000 ? (size_t)bytes + 2 : 4096;
    if (bytes > limit)
        status = fail_too_large(err, path, limit);
    else
        status = read_until_end(fd, path, limit, calls, err, &data, &size);
    (void)close(fd);
    if (status) {
        free(data);
        return status;
    }
    *out_data = data;
    *out_size = size;
    return XRAY_OK;
}

xray_status xr_file_read(const char *path, size_t limit, xr_err *err,
                         char **out_data, size_t *out_size)
{
    return xr_file_read_long(path, limit, NULL, err, out_data, out_size);
}

xray_status xr_file_map(const char *path, xr_err *err, xr_map_file *out)
{
    int fd = -1;
    uint64_t size = 0;
    *out = (xr_map_file){ NULL, 0 };
    xray_status status = xr_file_open(path, err, &fd, &size);
    if (status != XRAY_OK)
        return status;
    if (size > 0) {
        void *data = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
        int short_of_memory = data == MAP_FAILED && errno == ENOMEM;
        if (data == MAP_FAILED)
            status = fail_with_errno(err, path, "cannot map");
        else
            *out = (xr_map_file){ data, (size_t)size };
        if (short_of_memory)
            status = XRAY_E_NOMEM;
    }
    (void)close(fd);
    return status;
}

void xr_file_release(const void *part, size_t size)
{
    /* Whole pages are dropped, those at both ends as well: nothing was written
     * to them. */
    size_t before = (uintptr_t)part % (uintptr_t)sysconf(_SC_PAGESIZE);
    /* madvise takes a non-const pointer. */
    union {
        const unsigned char *read;
        void *any;
    } from = { (const unsigned char *)part - before };
    if (size)
        (void)madvise(from.any, size + before, MADV_DONTNEED);
}

void xr_file_unmap(xr_map_file *file)
{
    if (file->size) {
        /* munmap takes a non-const pointer; the pages were never written. */
        union {
            const unsigned char *read;
            void *any;
        } p = { file->data };
        (void)munmap(p.any, file->size);
    }
    *file = (xr_map_file){ NULL, 0 };
}

/* Opens a new file in the folder of `path` and returns its name in *out_temp.
 * Returns -1 and sets errno on failure. */
static int open_temporary(const char *path, char **out_temp)
{
    size_t cap = strlen(path) + 64;
    char *temp = malloc(cap);
    if (!temp)
        return -1;
    for (unsigned attempt = 0; attempt < 1000; attempt++) {
        struct timespec now = { 0, 0 };
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        (void)snprintf(temp, cap, "%s.tmp-%ld-%lx-%x", path, (long)getpid(),
                       (unsigned long)now.tv_nsec, attempt);
        int fd = open(temp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0) {
            *out_temp = temp;
            return fd;
        }
        if (errno != EEXIST)
            break;
    }
    int saved = errno;
    free(temp);
    errno = saved;
    return -1;
}

/* A pipe without a reader is an error instead of a wait. Later writes do
 * wait. */
static int open_special_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    int flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags >= 0)
        (void)fcntl(fd, F_SETFL, flags & ~O_NONBLOCK);
    return fd;
}

xray_status xr_file_begin(const char *path, xr_err *err, xr_file_out *out)
{
    *out = (xr_file_out){ path, NULL, -1 };
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        out->fd = open_special_file(path);
    else
        out->fd = open_temporary(path, &out->temp);
    return out->fd < 0 ? fail_with_errno(err, path, "cannot write") : XRAY_OK;
}

void xr_file_drop(xr_file_out *file)
{
    if (file->fd >= 0)
        (void)close(file->fd);
    if (file->temp)
        (void)unlink(file->temp);
    free(file->temp);
    file->temp = NULL;
    file->fd = -1;
}

xray_status xr_file_append(xr_file_out *file, const void *data, size_t size,
                           xr_err *err)
{
    if (file->fd < 0)
        return xr_fail(err, XRAY_E_STATE, "%s: an earlier write failed",
                       file->path);
    const char *bytes = data;
    while (size) {
        /* Linux transfers at most 2 GiB per call. */
        ssize_t n = write(file->fd, bytes, size < 1u << 30 ? size : 1u << 30);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            xray_status status =
                fail_with_errno(err, file->path, "cannot write");
            xr_file_drop(file);
            return status;
        }
        bytes += n;
        size -= (size_t)n;
    }
    return XRAY_OK;
}

int xr_file_sync(int fd)
{
    while (fsync(fd)) {
        if (errno == EINTR)
            continue;
        return errno == EINVAL || errno == ENOSYS || errno == EROFS ? 0 : -1;
    }
    return 0;
}

int xr_file_allocate(int fd, uint64_t size)
{
    int bad;
    do
        bad = size ? posix_fallocate(fd, 0, (off_t)size) : 0;
    while (bad == EINTR);
    if (bad != EOPNOTSUPP && bad != EINVAL)
        return bad;
    return ftruncate(fd, (off_t)size) ? errno : 0;
}

xray_status xr_dir_sync(const char *path, xr_err *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return fail_with_errno(err, path, "cannot open the folder");
    xray_status status = XRAY_OK;
    if (xr_file_sync(fd))
        status = fail_with_errno(err, path, "cannot sync the folder");
    (void)close(fd);
    return status;
}

char *xr_path_parent(const char *path)
{
    size_t size = strlen(path);
    while (size > 1 && path[size - 1] == '/')
        size--;
    while (size && path[size - 1] != '/')
        size--;
    while (size > 1 && path[size - 1] == '/')
        size--;
    return size ? xr_strndup(path, size) : xr_strdup(".");
}

xray_status xr_dir_sync_parent(const char *path, xr_err *err)
{
    char *parent = xr_path_parent(path);
    if (!parent)
        return fail_out_of_memory(err, path);
    xray_status status = xr_dir_sync(parent, err);
    free(parent);
    return status;
}

xray_status xr_file_finish(xr_file_out *file, xr_err *err)
{
    if (file->fd < 0)
        return xr_fail(err, XRAY_E_STATE, "%s: an earlier write failed",
                       file->path);
    if (!file->temp) {
        xr_file_drop(file);
        return XRAY_OK;
    }
    int fd = file->fd;
    int failed = xr_file_sync(fd);
    file->fd = -1;
    if (close(fd) || failed || rename(file->temp, file->path)) {
        xray_status status = fail_with_errno(err, file->path, "cannot write");
        xr_file_drop(file);
        return status;
    }
    free(file->temp);
    file->temp = NULL;
    return xr_dir_sync_parent(file->path, err);
}

xray_status xr_file_write(const char *path, const void *data, size_t size,
                          xr_err *err)
{
    xr_file_out file;
    xray_status status = xr_file_begin(path, err, &file);
    if (!status)
        status = xr_file_append(&file, data, size, err);
    if (!status)
        return xr_file_finish(&file, err);
    xr_file_drop(&file);
    return status;
}

xray_status xr_file_copy(const char *from, const char *to, xr_err *err)
{
    int fd = -1;
    uint64_t size = 0;
    xray_status status = xr_file_open(from, err, &fd, &size);
    if (status != XRAY_OK)
        return status;
    xr_file_out file;
    status = xr_file_begin(to, err, &file);
    while (!status) {
        char block[65536];
        ssize_t got = read(fd, block, sizeof block);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            status = fail_with_errno(err, from, "cannot read");
        if (got <= 0)
            break;
        status = xr_file_append(&file, block, (size_t)got, err);
    }
    (void)close(fd);
    if (!status)
        return xr_file_finish(&file, err);
    xr_file_drop(&file);
    return status;
}

double xr_now(void)
{
    struct timespec now = { 0, 0 };
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}
