/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the data files that folders and patterns stand for.
 */
#include "core/data/file_list.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "core/data/source.h"

/* Takes the path; NULL is out of memory. */
static xray_status add_path(xr_file_list *list, char *path, xr_err *err)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    list->items = items ? items : list->items;
    if (!path || !items) {
        free(path);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    }
    items[list->count++] = path;
    return XRAY_OK;
}

/* The order does not depend on the locale, so that rows keep their numbers. */
static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_from(xr_file_list *list, uint64_t first)
{
    if (list->count > first + 1)
        qsort(list->items + first, list->count - first, sizeof *list->items,
              compare_paths);
}

/* The datasets library writes these beside its .arrow files. */
static int is_description(const char *name)
{
    return strcmp(name, "dataset_info.json") == 0 ||
           strcmp(name, "dataset_infos.json") == 0 ||
           strcmp(name, "dataset_dict.json") == 0 ||
           strcmp(name, "state.json") == 0;
}

static xray_status add_folder(xr_file_list *list, const char *dir, xr_err *err)
{
    uint64_t first = list->count;
    xray_status status = XRAY_OK;
    DIR *folder = opendir(dir);
    if (!folder)
        return xr_fail(err, XRAY_E_IO, "%s: cannot read the folder: %s", dir,
                       XR_SYSTEM_ERROR(errno));
    for (const char *name; status == XRAY_OK &&
                           (name = xr_dir_next(folder, dir, err, &status));) {
        char path[XR_PATH_CAP];
        if (*name == '.' || is_description(name) ||
            xr_format_of(name) == XR_FORMAT_NONE)
            continue;
        status = xr_path_join(dir, name, path, sizeof path, err);
        if (status == XRAY_OK && xr_path_may_be_file(path))
            status = add_path(list, xr_strdup(path), err);
    }
    (void)closedir(folder);
    if (status == XRAY_OK && list->count == first)
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: the folder holds no data files (.jsonl, .json, "
                         ".csv, .tsv, .parquet, .arrow or .feather)",
                         dir);
    sort_from(list, first);
    return status;
}

static xray_status add_pattern(xr_file_list *list, const char *pattern,
                               xr_err *err)
{
    glob_t found = { .gl_pathc = 0 };
    uint64_t first = list->count;
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    xray_status status = XRAY_OK;
    if (code == GLOB_NOSPACE)
        status = xr_fail(err, XRAY_E_NOMEM, "out of memory");
    for (size_t i = 0; !code && i < found.gl_pathc && status == XRAY_OK; i++)
        if (xr_path_may_be_file(found.gl_pathv[i]))
            status = add_path(list, xr_strdup(found.gl_pathv[i]), err);
    globfree(&found);
    if (status == XRAY_OK && list->count == first)
        status = xr_fail(err, XRAY_E_CONFIG, "no file matches %s", pattern);
    sort_from(list, first);
    return status;
}

xray_status xr_file_list_find(const xray_list *names, xr_err *err,
                              xr_file_list *out)
{
    xray_status status = XRAY_OK;
    *out = (xr_file_list){ NULL, 0 };
    for (uint64_t i = 0; i < names->count && status == XRAY_OK; i++) {
        const char *name = names->items[i];
        if (xr_path_is_dir(name))
            status = add_folder(out, name, err);
        else if (strpbrk(name, "*?[") && !xr_path_exists(name))
            status = add_pattern(out, name, err);
        else
            status = add_path(out, xr_strdup(name), err);
    }
    if (status != XRAY_OK)
        xr_file_list_free(out);
    return status;
}

void xr_file_list_free(xr_file_list *list)
{
    for (uint64_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (xr_file_list){ NULL, 0 };
}
