/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and compares paths; creates, removes, and renames folders.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"

/* Each level holds an open descriptor, so depth is bounded; no folder that this
 * program makes is nested nearly as deep. */
#define DEEPEST 64

static xray_status fail_with_errno(xr_err *err, const char *path,
                                   const char *what)
{
    return xr_fail(err, errno == ENOMEM ? XRAY_E_NOMEM : XRAY_E_IO,
                   "%s: %s: %s", path, what, XR_SYSTEM_ERROR(errno));
}

xray_status xr_path_join(const char *dir, const char *name, char *buffer,
                         size_t cap, xr_err *err)
{
    size_t size = strlen(dir);
    const char *slash = !size || dir[size - 1] == '/' ? "" : "/";
    int n = snprintf(buffer, cap, "%s%s%s", dir, slash, name);
    if (n < 0 || (size_t)n >= cap)
        return xr_fail(err, XRAY_E_RANGE,
                       "the path %.200s/%.200s is longer than %zu bytes", dir,
                       name, cap - 1);
    return XRAY_OK;
}

/* 1 if the errno of stat() says that there is nothing of this name. */
static int is_absent(int error)
{
    return error == ENOENT || error == ENOTDIR || error == ELOOP ||
           error == ENAMETOOLONG;
}

int xr_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) ? !is_absent(errno) : S_ISDIR(st.st_mode);
}

int xr_path_may_be_file(const char *path)
{
    struct stat st;
    return stat(path, &st) || !S_ISDIR(st.st_mode);
}

int xr_path_exists(const char *path)
{
    struct stat st;
    return !lstat(path, &st) || !is_absent(errno);
}

int xr_path_is_same(const char *a, const char *b)
{
    struct stat x;
    struct stat y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

int xr_path_is_in(const char *path, const char *dir)
{
    char above[XR_PATH_CAP];
    return xr_path_join(path, "..", above, sizeof(above), NULL) == XRAY_OK &&
           xr_path_is_same(above, dir);
}

static xray_status make_single_dir(const char *path, xr_err *err)
{
    if (!mkdir(path, 0777))
        return XRAY_OK;
    int saved = errno;
    if (xr_path_is_dir(path))
        return XRAY_OK;
    errno = saved;
    return fail_with_errno(err, path, "cannot make the folder");
}

xray_status xr_dir_make(const char *path, xr_err *err)
{
    char *part = xr_strdup(path);
    if (!part)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xray_status status = XRAY_OK;
    for (char *slash = part; !status && *slash; slash++) {
        if (*slash != '/' || slash == part)
            continue;
        *slash = '\0';
        status = make_single_dir(part, err);
        *slash = '/';
    }
    if (!status)
        status = make_single_dir(path, err);
    free(part);
    return status;
}

const char *xr_dir_next(DIR *dir, const char *path, xr_err *err,
                        xray_status *status)
{
    for (;;) {
        errno = 0; /* NULL with errno 0 is the end of the folder */
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            *status = fail_with_errno(err, path, "cannot read the folder");
        if (!entry)
            return NULL;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            return entry->d_name;
    }
}

static int remove_dir_at(int parent, const char *name, int depth);

static int remove_dir_entries(DIR *dir, int depth)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry)
            return errno ? -1 : 0;
        const char *name = entry->d_name;
        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        /* Another process may remove files of its own meanwhile. */
        if (unlinkat(dirfd(dir), name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM)
            return -1;
        if (remove_dir_at(dirfd(dir), name, depth + 1))
            return -1;
    }
}

/* Removes the folder `name` in the folder `parent`. Links in it are removed,
 * not followed. Returns -1 and sets errno on failure. */
static int remove_dir_at(int parent, const char *name, int depth)
{
    if (depth > DEEPEST) {
        errno = ELOOP;
        return -1;
    }
    int fd =
        openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    DIR *dir = fdopendir(fd);
    if (!dir) {
        (void)close(fd);
        return -1;
    }
    int failed = remove_dir_entries(dir, depth);
    int saved = errno;
    (void)closedir(dir);
    errno = saved;
    return failed ? -1 : unlinkat(parent, name, AT_REMOVEDIR);
}

xray_status xr_dir_remove(const char *path, xr_err *err)
{
    if (!xr_path_exists(path))
        return XRAY_OK;
    if (remove_dir_at(AT_FDCWD, path, 0))
        return fail_with_errno(err, path, "cannot remove the folder");
    return XRAY_OK;
}

xray_status xr_dir_commit(const char *from, const char *to, xr_err *err)
{
    struct stat st;
    if (!lstat(to, &st))
        return xr_fail(err, XRAY_E_IO, "%s: already exists", to);
    if (errno != ENOENT)
        return fail_with_errno(err, to, "cannot be looked at");
    xray_status status = xr_dir_sync(from, err);
    if (status)
        return status;
    if (rename(from, to))
        return xr_fail(err, XRAY_E_IO, "%s: cannot rename to %s: %s", from, to,
                       XR_SYSTEM_ERROR(errno));
    return xr_dir_sync_parent(to, err);
}
