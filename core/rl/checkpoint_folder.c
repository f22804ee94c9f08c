/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds, installs and removes checkpoints in the folder of a run.
 */
#include "core/rl/checkpoint_folder.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"
#include "core/rl/checkpoint.h"
#include "core/run/inventory.h"

#define LATEST "latest_checkpointed_iteration.txt"
#define STEP_PREFIX "global_step_"
/* Names of folders that are about to be removed. They are hidden, so that a
 * kill in between leaves nothing that looks like a checkpoint. */
#define REMOVED ".removed-"
#define REPLACED ".replaced-"

/* ---- names -------------------------------------------------------------- */

/* Returns the step of a folder named global_step_N, or -1. */
static long long parse_step(const char *name)
{
    int64_t step = -1;
    if (strncmp(name, STEP_PREFIX, strlen(STEP_PREFIX)) != 0 ||
        xr_parse_int(name + strlen(STEP_PREFIX), &step) != 0)
        return -1;
    return step;
}

xray_status xr_step_path(const char *root, const char *prefix, uint64_t step,
                         char *out, xr_err *err)
{
    int size = snprintf(out, XR_PATH_CAP, "%s/%s" STEP_PREFIX "%llu", root,
                        prefix, (unsigned long long)step);
    if (size < 0 || size >= (int)XR_PATH_CAP)
        return xr_fail_key(err, XRAY_E_RANGE, "trainer", "default_local_dir",
                           " is too long");
    return XRAY_OK;
}

static xray_status refuse_folder(const char *root, xr_err *err)
{
    return xr_fail(err, XRAY_E_IO, "cannot list %s: %s", root,
                   XR_SYSTEM_ERROR(errno));
}

/* Finds the highest step below `limit` that has a folder; *out is -1 if none
 * has. */
static xray_status find_step_below(const char *root, long long limit,
                                   xr_err *err, long long *out)
{
    DIR *dir = opendir(root);
    *out = -1;
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR ? XRAY_OK
                                                   : refuse_folder(root, err);
    xray_status status = XRAY_OK;
    for (const char *name; (name = xr_dir_next(dir, root, err, &status));) {
        long long step = parse_step(name);
        if (step > *out && step < limit)
            *out = step;
    }
    (void)closedir(dir);
    return status;
}

static xray_status rename_path(const char *from, const char *to, xr_err *err)
{
    if (rename(from, to) == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_IO, "%s: cannot rename to %s: %s", from, to,
                   XR_SYSTEM_ERROR(errno));
}

/* ---- installing a step -------------------------------------------------- */

/* Renames the checkpoint of another run to the first free name of `path`.1,
 * `path`.2 and so on. */
static xray_status set_checkpoint_aside(const char *from, const char *path,
                                        xr_err *err)
{
    char to[XR_PATH_CAP];
    for (int i = 1; i < 10000; i++) {
        int size = snprintf(to, sizeof(to), "%s.%d", path, i);
        if (size < 0 || size >= (int)sizeof(to))
            break;
        if (!xr_path_exists(to))
            return rename_path(from, to, err);
    }
    return xr_fail(err, XRAY_E_IO,
                   "%s: there is no free name for the checkpoint of another "
                   "run that was there",
                   path);
}

/* Disposes of the checkpoint that was replaced: removes one of the same run,
 * keeps one of another run. */
static xray_status dismiss_replaced(const char *hidden, const char *path,
                                    xr_err *err)
{
    if (!xr_path_exists(hidden))
        return XRAY_OK;
    return xr_history_same_run(hidden, path)
               ? xr_dir_remove(hidden, err)
               : set_checkpoint_aside(hidden, path, err);
}

static xray_status write_latest_file(const char *root, uint64_t step,
                                     xr_err *err)
{
    char latest[XR_PATH_CAP];
    char number[32];
    int size =
        snprintf(number, sizeof(number), "%llu\n", (unsigned long long)step);
    xray_status status =
        xr_path_join(root, LATEST, latest, sizeof(latest), err);
    return status == XRAY_OK ? xr_file_write(latest, number, (size_t)size, err)
                             : status;
}

xray_status xr_step_install(const char *root, const char *from, uint64_t step,
                            xr_err *err)
{
    char path[XR_PATH_CAP];
    char hidden[XR_PATH_CAP];
    xray_status status = xr_step_path(root, "", step, path, err);
    if (status == XRAY_OK)
        status = xr_step_path(root, REPLACED, step, hidden, err);
    if (status == XRAY_OK)
        status = dismiss_replaced(hidden, path, err);
    int replaces = status == XRAY_OK && xr_path_exists(path);
    if (replaces)
        status = rename_path(path, hidden, err);
    if (status != XRAY_OK)
        return status;
    status = xr_dir_commit(from, path, err);
    if (status != XRAY_OK && replaces && !xr_path_exists(path))
        (void)rename(hidden, path);
    if (status == XRAY_OK)
        status = write_latest_file(root, step, err);
    return status == XRAY_OK ? dismiss_replaced(hidden, path, err) : status;
}

/* ---- removing old steps ------------------------------------------------- */

static int is_step_of_run(const char *root, long long step, const char *run)
{
    char path[XR_PATH_CAP];
    return xr_step_path(root, "", (uint64_t)step, path, NULL) == XRAY_OK &&
           xr_history_of_run(path, run);
}

/* Counts the run's checkpoints up to `newest`, none if the folder cannot be
 * listed: a later step removes what is too much. The lowest step goes to
 * *out_lowest. */
static size_t count_steps_of_run(const char *root, const char *run,
                                 long long newest, long long *out_lowest)
{
    size_t count = 0;
    long long step = newest + 1;
    while (find_step_below(root, step, NULL, &step) == XRAY_OK && step >= 0) {
        if (!is_step_of_run(root, step, run))
            continue;
        *out_lowest = step;
        count++;
    }
    return count;
}

xray_status xr_steps_prune(const xr_run *run, const char *run_id,
                           uint64_t newest, xr_err *err)
{
    const char *root = run->ini.trainer.default_local_dir;
    int64_t keep = run->ini.trainer.max_actor_ckpt_to_keep;
    long long step = -1;
    while (keep > 0 && count_steps_of_run(root, run_id, (long long)newest,
                                          &step) > (size_t)keep) {
        char path[XR_PATH_CAP];
        char hidden[XR_PATH_CAP];
        xray_status status = xr_step_path(root, "", (uint64_t)step, path, err);
        if (status == XRAY_OK)
            status = xr_step_path(root, REMOVED, (uint64_t)step, hidden, err);
        if (status == XRAY_OK)
            status = rename_path(path, hidden, err);
        if (status == XRAY_OK)
            status = xr_dir_remove(hidden, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

/* ---- after a kill ------------------------------------------------------- */

static int starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

/* global_step_N.tmp, or the temporary name of a file or removed folder. */
static int is_unfinished_name(const char *name)
{
    const char *end = strrchr(name, '.');
    return (starts_with(name, STEP_PREFIX) && end &&
            strcmp(end, ".tmp") == 0) ||
           starts_with(name, LATEST ".tmp-") || starts_with(name, REMOVED);
}

static xray_status tidy_entry(const char *root, const char *name, xr_err *err)
{
    char path[XR_PATH_CAP];
    char target[XR_PATH_CAP];
    int replaced = starts_with(name, REPLACED STEP_PREFIX);
    if (!replaced && !is_unfinished_name(name))
        return XRAY_OK;
    xray_status status = xr_path_join(root, name, path, sizeof(path), err);
    if (status == XRAY_OK && replaced)
        status = xr_path_join(root, name + strlen(REPLACED), target,
                              sizeof(target), err);
    if (status != XRAY_OK)
        return status;
    if (replaced)
        return xr_path_exists(target) ? dismiss_replaced(path, target, err)
                                      : rename_path(path, target, err);
    if (xr_path_is_dir(path))
        return xr_dir_remove(path, err);
    return remove(path) == 0 ? XRAY_OK
                             : xr_fail(err, XRAY_E_IO, "%s: cannot remove: %s",
                                       path, XR_SYSTEM_ERROR(errno));
}

xray_status xr_checkpoint_tidy(const xr_run *run, xr_err *err)
{
    const char *root = run->ini.trainer.default_local_dir;
    DIR *dir = opendir(root);
    if (!dir)
        return errno == ENOENT ? XRAY_OK : refuse_folder(root, err);
    xray_status status = XRAY_OK;
    for (const char *name;
         status == XRAY_OK && (name = xr_dir_next(dir, root, err, &status));)
        status = tidy_entry(root, name, err);
    (void)closedir(dir);
    return status;
}

/* ---- the checkpoint to resume from -------------------------------------- */

xray_status xr_checkpoint_verify(const xr_run *run, const char *path,
                                 xr_err *err)
{
    const char *root = run->ini.trainer.default_local_dir;
    char other[XR_PATH_CAP];
    xr_err why = { "" };
    long long step = INT64_MAX;
    xray_status status = xr_inventory_verify(path, &why);
    if (status == XRAY_OK)
        return XRAY_OK;
    while (find_step_below(root, step, NULL, &step) == XRAY_OK && step >= 0) {
        if (xr_step_path(root, "", (uint64_t)step, other, NULL) != XRAY_OK ||
            strcmp(other, path) == 0 ||
            xr_inventory_verify(other, NULL) != XRAY_OK)
            continue;
        return xr_fail(err, status,
                       "%s; %s is complete, resume from it with --set "
                       "trainer.resume_from_path=%s",
                       why.text, other, other);
    }
    return xr_fail(err, status, "%s; no other checkpoint in %s is complete",
                   why.text, root);
}

/* Finds the newest complete checkpoint where no file names the newest: the run
 * was killed before the first name was written, or the file was deleted or not
 * copied. */
static xray_status find_newest_complete(const char *root, char *out_path,
                                        xr_err *err)
{
    xr_err why = { "" };
    xr_err first = { "" };
    long long step = INT64_MAX;
    xray_status status;
    while ((status = find_step_below(root, step, err, &step)) == XRAY_OK &&
           step >= 0) {
        status = xr_step_path(root, "", (uint64_t)step, out_path, err);
        if (status != XRAY_OK)
            return status;
        if (xr_inventory_verify(out_path, &why) == XRAY_OK)
            return XRAY_OK;
        if (!*first.text)
            first = why;
    }
    out_path[0] = '\0';
    if (status != XRAY_OK || !*first.text)
        return status;
    return xr_fail(err, XRAY_E_IO,
                   "%s/" LATEST
                   " is missing and no checkpoint there is complete (%s); "
                   "start a new run in another [trainer] default_local_dir, or "
                   "here with --set trainer.resume_mode=disable",
                   root, first.text);
}

/* Returns 1 if the run resumes from the newest checkpoint of default_local_dir.
 */
static int resumes_newest(const xr_trainer_section *t)
{
    return !(t->resume_from_path && *t->resume_from_path) &&
           strcmp(t->resume_mode, "disable") != 0;
}

int xr_checkpoint_latest_is_lost(const xr_run *run, char *out_file)
{
    const xr_trainer_section *t = &run->ini.trainer;
    long long step = -1;
    return resumes_newest(t) &&
           xr_path_join(t->default_local_dir, LATEST, out_file, XR_PATH_CAP,
                        NULL) == XRAY_OK &&
           !xr_path_exists(out_file) &&
           find_step_below(t->default_local_dir, INT64_MAX, NULL, &step) ==
               XRAY_OK &&
           step >= 0;
}

xray_status xr_checkpoint_find(const xr_run *run, char *out_path, xr_err *err)
{
    const xr_trainer_section *t = &run->ini.trainer;
    const char *root = t->default_local_dir;
    char latest[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    int64_t step = -1;
    out_path[0] = '\0';
    if (t->resume_from_path && *t->resume_from_path)
        (void)snprintf(out_path, XR_PATH_CAP, "%s", t->resume_from_path);
    if (!resumes_newest(t))
        return XRAY_OK;
    xray_status status =
        xr_path_join(root, LATEST, latest, sizeof(latest), err);
    if (status == XRAY_OK && !xr_path_exists(latest))
        return find_newest_complete(root, out_path, err);
    if (status == XRAY_OK)
        status = xr_file_read(latest, 64, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    text[strcspn(text, "\n")] = '\0';
    if (xr_parse_int(text, &step) != 0 || step < 0)
        status = xr_fail(err, XRAY_E_IO, "%s: \"%s\" is not a step number",
                         latest, text);
    else
        status = xr_step_path(root, "", (uint64_t)step, out_path, err);
    free(text);
    return status;
}
