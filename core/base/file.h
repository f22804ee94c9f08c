/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares reading and mapping of files, writing that never leaves half a file,
 * and operations on paths and folders.
 */
#ifndef XR_FILE_H
#define XR_FILE_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/services.h"

/* Opens a regular file for reading. The caller closes the descriptor. A folder,
 * pipe, device or socket is refused with an error that names its kind, without
 * waiting; opening a pipe would otherwise wait for a writer. All functions
 * below open files through this one. */
xray_status xr_file_open(const char *path, xr_err *err, int *out_fd,
                         uint64_t *out_size);

/* Reads a file and appends a NUL that *out_size does not count. free() releases
 * the data. Errors name the file. */
xray_status xr_file_read(const char *path, size_t limit, xr_err *err,
                         char **out_data, size_t *out_size);
/* The same for a file that may be large: ends with XRAY_E_CANCELED when the
 * host stops the call. */
xray_status xr_file_read_long(const char *path, size_t limit,
                              const xray_call_service *calls, xr_err *err,
                              char **out_data, size_t *out_size);

/* A file mapped read-only. */
typedef struct xr_map_file {
    const unsigned char *data;
    size_t size;
} xr_map_file;
xray_status xr_file_map(const char *path, xr_err *err, xr_map_file *out);
void xr_file_unmap(xr_map_file *file); /* accepts an empty one */
/* Gives the memory of a part of a mapped file back to the system. The part can
 * be read again, which reads the file again. */
void xr_file_release(const void *part, size_t size);

/* Writes a temporary file beside `path`, syncs it and renames it to `path`, so
 * that `path` always holds the old or the new content, never a part. */
xray_status xr_file_write(const char *path, const void *data, size_t size,
                          xr_err *err);

/* The same, in pieces. xr_file_begin opens the temporary file, and the first
 * append that fails removes it. Exactly one call of xr_file_finish or
 * xr_file_drop must follow xr_file_begin, also after a failed append. An
 * existing path that is not a regular file (/dev/stdout, a pipe) is written
 * directly. */
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

/* Writes "dir/name" to `buffer`; XRAY_E_RANGE if it does not fit. */
xray_status xr_path_join(const char *dir, const char *name, char *buffer,
                         size_t cap, xr_err *err);
#define XR_PATH_CAP 4096u

/* Both are 0 only if it is known: what cannot be looked at (no permission, a
 * broken disk) counts as there, and whoever opens it says why it cannot. */
int xr_path_is_dir(const char *path);
int xr_path_exists(const char *path);
/* 0 only if it is known to be a folder. */
int xr_path_may_be_file(const char *path);
/* Returns the folder that holds `path`, which free releases; NULL when out of
 * memory. */
char *xr_path_parent(const char *path);
/* 1 if both exist and `path` is an entry of the folder. */
int xr_path_is_in(const char *path, const char *dir);
/* 1 if both exist and are the same file or folder. */
int xr_path_is_same(const char *a, const char *b);
/* The name of the next entry, without "." and ".."; NULL at the end of the
 * folder, and where *status, which was XRAY_OK, becomes an error. */
const char *xr_dir_next(DIR *dir, const char *path, xr_err *err,
                        xray_status *status);
/* Creates the folder and its parents. */
xray_status xr_dir_make(const char *path, xr_err *err);
/* Removes a folder and everything in it; a missing folder is not an error. */
xray_status xr_dir_remove(const char *path, xr_err *err);
/* Syncs a finished folder, renames it to `to`, and syncs the parent. `to` must
 * not exist. */
xray_status xr_dir_commit(const char *from, const char *to, xr_err *err);
/* Sync a folder, and the folder that holds `path`, so that a rename in it
 * survives a crash. */
xray_status xr_dir_sync(const char *path, xr_err *err);
xray_status xr_dir_sync_parent(const char *path, xr_err *err);
/* fsync(), which succeeds where the file system does not support it. -1 and
 * errno on failure. */
int xr_file_sync(int fd);
/* Gives the file `size` bytes, whose space is taken now, so that a full disk is
 * noticed before they are written. Returns 0 or an errno. */
int xr_file_allocate(int fd, uint64_t size);
xray_status xr_file_copy(const char *from, const char *to, xr_err *err);

/* Seconds on a monotonic clock. */
double xr_now(void);

#endif
