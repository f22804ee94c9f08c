/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists, cuts, moves and creates event files.
 */
#include "plugins/tracker-tensorboard/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "plugins/tracker-tensorboard/read.h"

#define BEGINNING "events.out.tfevents."
#define ENDING ".xray"

/* ---- the list ------------------------------------------------------------ */

static int is_event_file(const char *name)
{
    const size_t begin = strlen(BEGINNING);
    const size_t end = strlen(ENDING);
    const size_t size = strlen(name);
    return size > begin + end && strncmp(name, BEGINNING, begin) == 0 &&
           strcmp(name + size - end, ENDING) == 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_name(tb_files *files, const char *name)
{
    char **more =
        realloc(files->names, (files->count + 1) * sizeof(*files->names));
    if (!more)
        return -1;
    files->names = more;
    more[files->count] = xr_strdup(name);
    if (!more[files->count])
        return -1;
    files->count++;
    return 0;
}

xray_status tb_files_list(const char *dir, xr_err *err, tb_files *out)
{
    *out = (tb_files){ .count = 0 };
    DIR *folder = opendir(dir);
    if (!folder && errno == ENOENT)
        return XRAY_OK;
    if (!folder)
        return xr_fail(err, XRAY_E_IO, "%s: %s", dir, XR_SYSTEM_ERROR(errno));
    xray_status status = XRAY_OK;
    for (const char *name;
         status == XRAY_OK && (name = xr_dir_next(folder, dir, err, &status));)
        if (is_event_file(name) && add_name(out, name))
            status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    (void)closedir(folder);
    if (status != XRAY_OK) {
        tb_files_free(out);
        return status;
    }
    if (out->count)
        qsort(out->names, out->count, sizeof(*out->names), compare_names);
    return XRAY_OK;
}

void tb_files_free(tb_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->names[i]);
    free(files->names);
    *files = (tb_files){ .count = 0 };
}

/* ---- a resume ------------------------------------------------------------ */

static xray_status measure_file(const char *path, uint64_t last_step,
                                xr_err *err, tb_kept *out)
{
    xr_map_file map;
    xray_status status = xr_file_map(path, err, &map);
    if (status != XRAY_OK)
        return status;
    status = tb_measure(path, map.data, map.size, last_step, err, out);
    xr_file_unmap(&map);
    return status;
}

static xray_status cut_file(const char *path, const tb_kept *kept, xr_err *err)
{
    struct stat info;
    if (stat(path, &info) == 0 &&
        (kept->summaries ? (size_t)info.st_size == kept->bytes ||
                               truncate(path, (off_t)kept->bytes) == 0
                         : unlink(path) == 0))
        return XRAY_OK;
    return xr_fail(err, XRAY_E_IO, "%s: %s", path, XR_SYSTEM_ERROR(errno));
}

xray_status tb_files_cut(const char *dir, const tb_files *files,
                         uint64_t last_step, int dry, int *out_settings,
                         xr_err *err)
{
    char path[XR_PATH_CAP];
    xray_status status = XRAY_OK;
    tb_kept *kept = xr_calloc(files->count, sizeof(*kept));
    *out_settings = 0;
    if (!kept)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", dir);
    for (size_t i = 0; i < files->count && status == XRAY_OK; i++) {
        status = xr_path_join(dir, files->names[i], path, sizeof(path), err);
        if (status == XRAY_OK)
            status = measure_file(path, last_step, err, &kept[i]);
        *out_settings |= kept[i].settings;
    }
    /* A kill in between leaves files that the next resume cuts. */
    for (size_t i = 0; i < files->count && status == XRAY_OK && !dry; i++) {
        status = xr_path_join(dir, files->names[i], path, sizeof(path), err);
        if (status == XRAY_OK)
            status = cut_file(path, &kept[i], err);
    }
    free(kept);
    return status;
}

/* ---- a new run ----------------------------------------------------------- */

static xray_status make_folder_aside(const char *dir, char out[XR_PATH_CAP],
                                     xr_err *err)
{
    for (int i = 1; i < 10000; i++) {
        if ((size_t)snprintf(out, XR_PATH_CAP, "%s.%d", dir, i) >= XR_PATH_CAP)
            return xr_fail(err, XRAY_E_RANGE, "%s: the path is too long", dir);
        if (mkdir(out, 0777) == 0)
            return XRAY_OK;
        if (errno != EEXIST)
            return xr_fail(err, XRAY_E_IO, "%s: %s", out,
                           XR_SYSTEM_ERROR(errno));
    }
    return xr_fail(err, XRAY_E_IO, "too many old folders beside %s", dir);
}

xray_status tb_files_set_aside(const char *dir, const tb_files *files,
                               xr_err *err)
{
    char aside[XR_PATH_CAP];
    char from[XR_PATH_CAP];
    char to[XR_PATH_CAP];
    if (!files->count)
        return XRAY_OK;
    xray_status status = make_folder_aside(dir, aside, err);
    for (size_t i = 0; i < files->count && status == XRAY_OK; i++) {
        status = xr_path_join(dir, files->names[i], from, sizeof(from), err);
        if (status == XRAY_OK)
            status = xr_path_join(aside, files->names[i], to, sizeof(to), err);
        if (status == XRAY_OK && rename(from, to) != 0)
            status = xr_fail(err, XRAY_E_IO, "cannot move %s to %s: %s", from,
                             to, XR_SYSTEM_ERROR(errno));
    }
    return status;
}

/* ---- the file of this process -------------------------------------------- */

/* Readers take files in the order of their names, so a resume within the same
 * second, or after the clock was set back, counts on from the last name. */
static long long choose_seconds(const tb_files *files)
{
    long long now = (long long)time(NULL);
    if (!files->count)
        return now;
    const char *last = files->names[files->count - 1] + strlen(BEGINNING);
    long long seconds = strtoll(last, NULL, 10);
    return seconds >= now && seconds < 9999999999 ? seconds + 1 : now;
}

/* Writes the name of this host as it may stand in a file's name. */
static void name_host(char out[64])
{
    char host[64] = "";
    (void)gethostname(host, sizeof(host) - 1);
    size_t n = 0;
    for (const char *at = host; *at; at++)
        out[n++] = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') ||
                           (*at >= '0' && *at <= '9') || *at == '-'
                       ? *at
                       : '_';
    out[n] = '\0';
}

xray_status tb_file_create(const char *dir, const tb_files *files, xr_err *err,
                           char **out_path, int *out_fd)
{
    char host[64];
    char name[192];
    char path[XR_PATH_CAP];
    name_host(host);
    (void)snprintf(name, sizeof(name), BEGINNING "%010lld.%s.%ld" ENDING,
                   choose_seconds(files), host, (long)getpid());
    xray_status status = xr_path_join(dir, name, path, sizeof(path), err);
    if (status != XRAY_OK)
        return status;
    *out_path = xr_strdup(path);
    if (!*out_path)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    *out_fd =
        open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    return *out_fd >= 0 ? XRAY_OK
                        : xr_fail(err, XRAY_E_IO, "%s: %s", path,
                                  XR_SYSTEM_ERROR(errno));
}
