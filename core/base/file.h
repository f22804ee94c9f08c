/* SPDX-License-Identifier: Apache-2.0
 *
 * Files: read whole, map, write so that nothing half-written stays.
 */
#ifndef XR_FILE_H
#define XR_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Opens a regular file to read: a descriptor for the caller to close, and
 * its size. Whatever else lies there (a folder, a pipe, a device, a
 * socket) is refused at once in a sentence that says what it is; opening a pipe
 * would otherwise wait for a writer. All files below are opened through here.
 */
xray_status xr_file_open(const char *path, xr_err *err, int *out_fd,
                         uint64_t *out_size);

/* The bytes of a file with a NUL behind them; *out_size counts without it.
 * free() releases. Errors name the file. */
xray_status xr_file_read(const char *path, size_t limit, xr_err *err,
                         char **out_data, size_t *out_size);

/* A file mapped read-only. */
typedef struct xr_map_file {
    const unsigned char *data;
    size_t size;
} xr_map_file;
xray_status xr_file_map(const char *path, xr_err *err, xr_map_file *out);
void xr_file_unmap(xr_map_file *file); /* accepts an empty one */

/* Writes the bytes to `path`: first beside it, then synced and renamed, so
 * that path holds the old or the new content, never a part. */
xray_status xr_file_write(const char *path, const void *data, size_t size,
                          xr_err *err);

/* The same, in pieces: xr_file_begin opens the temporary; the first failing
 * append removes it; exactly one of finish and drop ends what begin started
 * (also after a failed append). A path that is there and no regular file
 * (/dev/stdout, a pipe) is written directly. */
typedef struct xr_file_out {
    const char *path; /* borrowed until finish or drop */
    char *temp;       /* NULL: writing to `path` itself */
    int fd;           /* -1: failed */
} xr_file_out;
xray_status xr_file_begin(const char *path, xr_err *err, xr_file_out *out);
xray_status xr_file_append(xr_file_out *file, const void *data, size_t size,
                           xr_err *err);
xray_status xr_file_finish(xr_file_out *file, xr_err *err);
void xr_file_drop(xr_file_out *file);

/* A path in `buffer`: "dir/name". XRAY_E_RANGE when it does not fit. */
xray_status xr_path_join(const char *dir, const char *name, char *buffer,
                         size_t cap, xr_err *err);
#define XR_PATH_CAP 4096u

int xr_path_is_dir(const char *path);
int xr_path_exists(const char *path);
/* 1 if both are there and `path` is an entry of the folder. */
int xr_path_is_in(const char *path, const char *dir);
/* 1 if both are there and the same file or folder. */
int xr_path_is_same(const char *a, const char *b);
/* Makes the folder and its parents. */
xray_status xr_dir_make(const char *path, xr_err *err);
/* Removes a folder and all in it; a missing one is fine. */
xray_status xr_dir_remove(const char *path, xr_err *err);
/* Renames a finished folder into place and syncs the parent; `to` must not
 * exist. */
xray_status xr_dir_commit(const char *from, const char *to, xr_err *err);
/* fsync of a folder, and of the folder that holds `path`: makes a rename in it
 * last. */
xray_status xr_dir_sync(const char *path, xr_err *err);
xray_status xr_dir_sync_parent(const char *path, xr_err *err);
xray_status xr_file_copy(const char *from, const char *to, xr_err *err);

/* Seconds on a clock that never goes back. */
double xr_now(void);

#endif
