/* SPDX-License-Identifier: Apache-2.0
 *
 * Collects finished runs and sorts their folders into variants.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ab/compare.h"
#include "core/base/file.h"
#include "core/base/system_error.h"

static int has_variant(const xr_runs *runs, const char *name)
{
    for (size_t i = 0; i < runs->count; i++)
        if (strcmp(runs->variants[i].name, name) == 0)
            return 1;
    return 0;
}

static char *make_unique_name(const xr_runs *runs, const char *name)
{
    xr_str text = { 0 };
    char *copy = NULL;
    xr_str_puts(&text, name);
    for (unsigned n = 2; !text.failed && has_variant(runs, xr_str_text(&text));
         n++) {
        xr_str_clear(&text);
        xr_str_printf(&text, "%s-%u", name, n);
    }
    if (!text.failed)
        copy = xr_strdup(xr_str_text(&text));
    xr_str_free(&text);
    return copy;
}

xray_status xr_runs_variant(xr_runs *runs, const char *name, xr_err *err)
{
    char *unique = make_unique_name(runs, name);
    xr_variant *items =
        realloc(runs->variants, (runs->count + 1) * sizeof(*items));
    if (items)
        runs->variants = items;
    if (!items || !unique) {
        free(unique);
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", name);
    }
    items[runs->count++] = (xr_variant){ .name = unique };
    return XRAY_OK;
}

xray_status xr_runs_add(xr_runs *runs, const char *dir, xr_err *err)
{
    xr_variant *v = &runs->variants[runs->count - 1];
    xr_ab_run *items = realloc(v->runs, (v->count + 1) * sizeof(*items));
    if (!items)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", dir);
    v->runs = items;
    xray_status status = xr_ab_run_read(dir, err, &items[v->count]);
    if (status == XRAY_OK)
        v->count++;
    return status;
}

void xr_runs_free(xr_runs *runs)
{
    for (size_t i = 0; i < runs->count; i++) {
        for (size_t k = 0; k < runs->variants[i].count; k++)
            xr_ab_run_free(&runs->variants[i].runs[k]);
        free(runs->variants[i].runs);
        free(runs->variants[i].name);
    }
    free(runs->variants);
    xr_errors_free(&runs->failures);
    *runs = (xr_runs){ .count = 0 };
}

/* ---- sorting folders ---------------------------------------------------- */

/* A folder split into parent and last name, without a '/' at the end. */
typedef struct folder_path {
    char dir[XR_PATH_CAP];
    char parent[XR_PATH_CAP];
    char name[XR_PATH_CAP];
} folder_path;

static void split_folder_path(const char *path, folder_path *out)
{
    (void)snprintf(out->dir, sizeof(out->dir), "%s", path);
    size_t n = strlen(out->dir);
    while (n > 1 && out->dir[n - 1] == '/')
        out->dir[--n] = '\0';
    const char *mark = strrchr(out->dir, '/');
    size_t parent = mark ? (size_t)(mark - out->dir) : 0;
    memcpy(out->parent, out->dir, parent);
    out->parent[parent] = '\0';
    (void)snprintf(out->name, sizeof(out->name), "%s",
                   mark ? mark + 1 : out->dir);
}

/* Last name of a path, or "runs" for the current folder. */
static const char *last_path_name(const char *path)
{
    const char *mark = strrchr(path, '/');
    const char *name = mark ? mark + 1 : path;
    return *name && strcmp(name, ".") != 0 ? name : "runs";
}

static int parse_seed_name(const char *name, int64_t *out)
{
    return strncmp(name, "seed-", 5) == 0 && xr_parse_int(name + 5, out) == 0;
}

/* Adds a seed to a sorted array, which free() releases. */
static xray_status add_seed(int64_t seed, int64_t **seeds, size_t *count,
                            xr_err *err)
{
    int64_t *more = realloc(*seeds, (*count + 1) * sizeof(*more));
    if (!more)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    *seeds = more;
    size_t at = (*count)++;
    for (; at > 0 && more[at - 1] > seed; at--)
        more[at] = more[at - 1];
    more[at] = seed;
    return XRAY_OK;
}

/* The seeds of the runs in a folder; what is none, or is not there, has none.
 */
static xray_status list_seeds_in(const char *dir, xr_err *err,
                                 int64_t **out_seeds, size_t *out_count)
{
    xray_status status = XRAY_OK;
    DIR *open = opendir(dir);
    if (!open)
        return errno == ENOENT || errno == ENOTDIR
                   ? XRAY_OK
                   : xr_fail(err, XRAY_E_IO, "%s: cannot read the folder: %s",
                             dir, XR_SYSTEM_ERROR(errno));
    for (const char *name;
         status == XRAY_OK && (name = xr_dir_next(open, dir, err, &status));) {
        int64_t seed = 0;
        if (parse_seed_name(name, &seed))
            status = add_seed(seed, out_seeds, out_count, err);
    }
    (void)closedir(open);
    return status;
}

static void add_seed_folder(xr_runs *runs, const folder_path *at,
                            const int64_t *seeds, size_t count,
                            xr_errors *errors)
{
    char path[XR_PATH_CAP + 32];
    xr_err err = { "" };
    if (xr_runs_variant(runs, last_path_name(at->dir), &err) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/seed-%lld", at->dir,
                       (long long)seeds[i]);
        if (xr_runs_add(runs, path, &err) != XRAY_OK)
            xr_errors_add(errors, "%s", err.text);
    }
}

/* Moves the run of the last variant to variant `to` and removes the last. */
static xray_status merge_last_variant(xr_runs *runs, size_t to, xr_err *err)
{
    xr_variant *last = &runs->variants[runs->count - 1];
    xr_variant *v = &runs->variants[to];
    xr_ab_run *items = realloc(v->runs, (v->count + 1) * sizeof(*items));
    if (!items)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", v->name);
    v->runs = items;
    items[v->count++] = last->runs[0];
    free(last->runs);
    free(last->name);
    runs->count--;
    return XRAY_OK;
}

static int has_same_settings(const xr_ab_run *a, const xr_ab_run *b)
{
    const char *left = NULL;
    const char *right = NULL;
    return !xr_settings_differ(&a->settings, &b->settings, &left, &right);
}

/* 1 if the run at `at` belongs to variant v. `loose` 1: judged by its settings,
 * 0: by the folder it is in. */
static int belongs_to_variant(const xr_variant *v, const folder_path *at,
                              const xr_ab_run *run, int loose)
{
    folder_path other;
    int64_t seed = 0;
    if (!v->count)
        return 0;
    split_folder_path(v->runs[0].dir, &other);
    if (loose)
        return !parse_seed_name(other.name, &seed) &&
               has_same_settings(&v->runs[0], run);
    return parse_seed_name(other.name, &seed) &&
           strcmp(other.parent, at->parent) == 0;
}

static void add_single_run(xr_runs *runs, const folder_path *at,
                           xr_errors *errors)
{
    xr_err err = { "" };
    int64_t seed = 0;
    int loose = !parse_seed_name(at->name, &seed);
    const char *name =
        loose ? last_path_name(at->dir) : last_path_name(at->parent);
    xray_status status = xr_runs_variant(runs, name, &err);
    if (status == XRAY_OK) {
        status = xr_runs_add(runs, at->dir, &err);
        size_t last = runs->count - 1;
        for (size_t i = 0; status == XRAY_OK && i < last; i++)
            if (belongs_to_variant(&runs->variants[i], at,
                                   &runs->variants[last].runs[0], loose)) {
                status = merge_last_variant(runs, i, &err);
                break;
            }
    }
    if (status != XRAY_OK)
        xr_errors_add(errors, "%s", err.text);
}

void xr_runs_sort(xr_runs *runs, const char *const *dirs, size_t count,
                  xr_errors *errors)
{
    for (size_t i = 0; i < count; i++) {
        char path[XR_PATH_CAP];
        size_t seeds = 0;
        int64_t *found = NULL;
        folder_path at;
        xr_err err = { "" };
        xray_status status = XRAY_OK;
        split_folder_path(dirs[i], &at);
        int is_run = xr_path_join(at.dir, "metrics.jsonl", path, sizeof(path),
                                  NULL) == XRAY_OK &&
                     xr_path_exists(path);
        if (!is_run)
            status = list_seeds_in(at.dir, &err, &found, &seeds);
        if (status != XRAY_OK)
            xr_errors_add(errors, "%s", err.text);
        else if (seeds)
            add_seed_folder(runs, &at, found, seeds, errors);
        else
            add_single_run(runs, &at, errors);
        free(found);
    }
}
