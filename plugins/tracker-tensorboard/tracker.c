/* SPDX-License-Identifier: Apache-2.0
 *
 * The tracker tensorboard: appends each step as one record to an event file, so
 * that a kill leaves a step's values in the file or none of them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/err.h"
#include "core/base/file.h"
#include "core/base/lock.h"
#include "core/base/system_error.h"
#include "plugins/tracker-tensorboard/events.h"
#include "plugins/tracker-tensorboard/folder.h"
#include "plugins/tracker-tensorboard/tensorboard.h"

typedef struct tracker {
    const xray_host *host;
    xr_lock lock;
    char *path;
    int fd;       /* -1: none */
    off_t size;   /* bytes of complete records */
    xr_str bytes; /* records that are to be written */
} tracker;

/* Tells the host that the sentence is about the key, if the key named the
 * folder. */
static xray_status tell_failure(const xray_host *host, const tb_config *config,
                                xray_status status, const char *where,
                                const xr_err *err)
{
    xr_err own = { "" };
    if (status != XRAY_E_NOMEM && *config->dir) {
        (void)xr_fail_key(&own, status, NULL, "dir", ": %s", err->text);
        return xr_host_tell(host, status, where, &own);
    }
    return xr_host_tell(host, status, where, err);
}

static xray_status find_folder(const tb_config *config,
                               const xray_track_setup *setup,
                               char out[XR_PATH_CAP], xr_err *err)
{
    xray_status status =
        *config->dir
            ? xr_path_join(config->dir, "", out, XR_PATH_CAP, err)
            : xr_path_join(setup->folder, "tensorboard", out, XR_PATH_CAP, err);
    /* Other folders are named after this one. */
    for (size_t size = strlen(out); size > 1 && out[size - 1] == '/'; size--)
        out[size - 1] = '\0';
    return status;
}

/* ---- records ------------------------------------------------------------- */

/* Appends what is in self->bytes. After an error the file ends with its last
 * complete record. */
static xray_status write_records(tracker *self, xr_err *err)
{
    const char *at = self->bytes.data;
    size_t left = self->bytes.size;
    if (self->bytes.failed)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", self->path);
    while (left) {
        ssize_t n = write(self->fd, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int code = n < 0 ? errno : ENOSPC;
            int cut = ftruncate(self->fd, self->size);
            return xr_fail(err, XRAY_E_IO, "%s: %s%s", self->path,
                           XR_SYSTEM_ERROR(code),
                           cut ? " (an incomplete last record remains)" : "");
        }
        at += n;
        left -= (size_t)n;
    }
    self->size += (off_t)self->bytes.size;
    return XRAY_OK;
}

static void clear_records(tracker *self)
{
    xr_str_clear(&self->bytes);
    self->bytes.failed = 0;
}

/* ---- creation ------------------------------------------------------------ */

static xray_status begin_file(tracker *self, const xray_track_setup *setup,
                              int settings, xr_err *err)
{
    double now = (double)time(NULL);
    tb_event_version(now, &self->bytes);
    if (!settings)
        tb_event_settings(now, setup, &self->bytes);
    if (setup->resumed)
        tb_event_restart(now, setup->step + 1, &self->bytes);
    return write_records(self, err);
}

/* Two runs in one folder would set each other's files aside. */
static xray_status lock_folder(tracker *self, const char *dir, xr_err *err)
{
    xray_status status = xr_lock_take(dir, err, &self->lock);
    if (status != XRAY_E_UNSUPPORTED)
        return status;
    self->host->log(self->host, XRAY_LOG_WARN, err->text);
    err->text[0] = '\0';
    return XRAY_OK;
}

static xray_status open_tracker(tracker *self, const char *dir,
                                const xray_track_setup *setup, xr_err *err)
{
    tb_files files = { .count = 0 };
    int settings = 0;
    xray_status status = xr_dir_make(dir, err);
    if (status == XRAY_OK)
        status = lock_folder(self, dir, err);
    if (status == XRAY_OK)
        status = tb_files_list(dir, err, &files);
    if (status == XRAY_OK)
        status = setup->resumed
                     ? tb_files_cut(dir, &files, setup->step, 0, &settings, err)
                     : tb_files_set_aside(dir, &files, err);
    if (status == XRAY_OK)
        status = tb_file_create(dir, &files, err, &self->path, &self->fd);
    if (status == XRAY_OK)
        status = begin_file(self, setup, settings, err);
    tb_files_free(&files);
    return status;
}

static void destroy_tracker(void *ptr)
{
    tracker *self = ptr;
    if (!self)
        return;
    if (self->fd >= 0)
        (void)close(self->fd);
    xr_lock_drop(&self->lock);
    xr_str_free(&self->bytes);
    free(self->path);
    free(self);
}

static xray_status create_tracker(const xray_host *host, const void *config,
                                  const xray_track_setup *setup,
                                  void **out_self)
{
    char dir[XR_PATH_CAP];
    xr_err err = { "" };
    tracker *self = xr_calloc(1, sizeof(*self));
    if (!self)
        return host->fail(host, XRAY_E_NOMEM, "create", "out of memory");
    self->host = host;
    self->fd = -1;
    xray_status status = find_folder(config, setup, dir, &err);
    if (status == XRAY_OK)
        status = open_tracker(self, dir, setup, &err);
    if (status != XRAY_OK) {
        destroy_tracker(self);
        return tell_failure(host, config, status, "create", &err);
    }
    *out_self = self;
    return XRAY_OK;
}

/* ---- steps --------------------------------------------------------------- */

static xray_status submit_step(void *ptr, const xray_track_step *step)
{
    tracker *self = ptr;
    xr_err err = { "" };
    clear_records(self);
    tb_event_step(step, &self->bytes);
    xray_status status = write_records(self, &err);
    return status == XRAY_OK ? status
                             : xr_host_tell(self->host, status, "submit", &err);
}

static xray_status flush_file(void *ptr)
{
    tracker *self = ptr;
    xr_err err = { "" };
    if (fdatasync(self->fd) == 0)
        return XRAY_OK;
    (void)xr_fail(&err, XRAY_E_IO, "%s: %s", self->path,
                  XR_SYSTEM_ERROR(errno));
    return xr_host_tell(self->host, XRAY_E_IO, "flush", &err);
}

/* ---- xray check ---------------------------------------------------------- */

/* Checks that the folder, or the nearest one above it that exists, can be
 * written to. */
static xray_status check_folder(const char *dir, xr_err *err)
{
    char *at = xr_strdup(dir);
    while (at && !xr_path_exists(at)) {
        char *parent = xr_path_parent(at);
        free(at);
        at = parent;
    }
    if (!at)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    xray_status status = XRAY_OK;
    if (!xr_path_is_dir(at))
        status = xr_fail(err, XRAY_E_IO, "%s is no folder", at);
    else if (access(at, W_OK | X_OK) != 0)
        status = xr_fail(err, XRAY_E_IO, "%s: %s", at, XR_SYSTEM_ERROR(errno));
    free(at);
    return status;
}

static xray_status probe_tracker(const xray_host *host, const void *config,
                                 const xray_track_setup *setup)
{
    char dir[XR_PATH_CAP];
    xr_err err = { "" };
    tb_files files = { .count = 0 };
    int settings = 0;
    xray_status status = find_folder(config, setup, dir, &err);
    if (status == XRAY_OK)
        status = check_folder(dir, &err);
    if (status == XRAY_OK)
        status = tb_files_list(dir, &err, &files);
    if (status == XRAY_OK && setup->resumed)
        status = tb_files_cut(dir, &files, setup->step, 1, &settings, &err);
    tb_files_free(&files);
    return status == XRAY_OK
               ? status
               : tell_failure(host, config, status, "probe", &err);
}

const xray_tracker_ops tb_ops = {
    .header = XRAY_HEADER(xray_tracker_ops),
    .create = create_tracker,
    .destroy = destroy_tracker,
    .submit = submit_step,
    .flush = flush_file,
    .probe = probe_tracker,
};
