/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the folders that a run writes to, and the disk space for its
 * checkpoints.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/run/resources.h"

/* Writes the longest existing parent of the path to `out`; "." for a relative
 * name. */
static void find_existing_parent(const char *path, char *out, size_t cap)
{
    (void)snprintf(out, cap, "%s", path);
    while (*out && !xr_path_exists(out)) {
        char *slash = strrchr(out, '/');
        if (!slash) {
            (void)snprintf(out, cap, ".");
            return;
        }
        slash[slash == out] = '\0';
        if (slash == out && !slash[1])
            return; /* "/" always exists */
    }
}

/* Checks that the folder can be created or written. The existing parent goes to
 * `out`. Returns 0 after an error. */
static int check_writable_folder(const xr_run *run, const char *key,
                                 const char *path, char *out, xr_errors *errors)
{
    const char *origin = xr_config_location(run->config, "trainer", key);
    if (strlen(path) >= XR_PATH_CAP - 64) {
        xr_errors_add(errors, "%s: [trainer] %s: the path is too long", origin,
                      key);
        return 0;
    }
    find_existing_parent(path, out, XR_PATH_CAP);
    if (!xr_path_is_dir(out)) {
        xr_errors_add(errors, "%s: [trainer] %s: %s is not a folder", origin,
                      key, out);
        return 0;
    }
    if (access(out, W_OK | X_OK) != 0) {
        xr_errors_add(errors,
                      "%s: [trainer] %s: %s cannot be written, as %s does not "
                      "allow it (%s)",
                      origin, key, path, out, strerror(errno));
        return 0;
    }
    return 1;
}

/* A folder that cannot be listed for another reason than memory was reported
 * before, or does not exist yet. */
static uint64_t count_checkpoints(const char *root, xr_errors *errors)
{
    uint64_t count = 0;
    DIR *dir = opendir(root);
    if (!dir && errno == ENOMEM)
        xr_errors_add(errors, "%s: cannot list it: out of memory", root);
    if (!dir)
        return 0;
    xr_err err = { "" };
    xray_status status = XRAY_OK;
    for (const char *name; (name = xr_dir_next(dir, root, &err, &status));)
        count += strncmp(name, "global_step_", 12) == 0;
    if (status != XRAY_OK)
        xr_errors_add(errors, "%s", err.text);
    (void)closedir(dir);
    return count;
}

/* Returns the most checkpoints that exist at the same time, since a new one is
 * written before the oldest is removed; two if the number of steps is unknown.
 */
static uint64_t checkpoints_at_once(const xr_trainer_section *t, uint64_t steps)
{
    uint64_t count = 1;
    uint64_t keep = (uint64_t)t->max_actor_ckpt_to_keep;
    if (t->save_freq > 0) {
        uint64_t every = (uint64_t)t->save_freq;
        count = steps ? steps / every + (steps % every != 0) : 2;
    }
    if (keep && count > keep + 1)
        count = keep + 1;
    return count ? count : 1;
}

static void check_disk_space(const xr_run *run, const xr_resources *r,
                             uint64_t steps, const char *parent,
                             xr_errors *errors)
{
    const xr_trainer_section *t = &run->ini.trainer;
    char one[XR_BYTES_CAP];
    char all[XR_BYTES_CAP];
    char have[XR_BYTES_CAP];
    struct statvfs fs;
    uint64_t count = checkpoints_at_once(t, steps);
    uint64_t there = count_checkpoints(t->default_local_dir, errors);
    uint64_t more = count > there ? count - there : 1;
    if (statvfs(parent, &fs) != 0)
        return;
    uint64_t space = (uint64_t)fs.f_bavail * (uint64_t)fs.f_frsize;
    uint64_t need = r->checkpoint_bytes > UINT64_MAX / more
                        ? UINT64_MAX
                        : r->checkpoint_bytes * more;
    if (need <= space)
        return;
    xr_errors_add(
        errors,
        "%s: [trainer] default_local_dir: %llu checkpoint%s of %s take%s %s, "
        "the file system of %s has %s left; %s",
        xr_config_location(run->config, "trainer", "default_local_dir"),
        (unsigned long long)more, more == 1 ? "" : "s",
        xr_bytes_text(r->checkpoint_bytes, one), more == 1 ? "s" : "",
        xr_bytes_text(need, all), parent, xr_bytes_text(space, have),
        more > 2 ? "raise [trainer] save_freq or lower max_actor_ckpt_to_keep"
                 : "name a folder with more space");
}

void xr_resources_check_space(const xr_run *run, const xr_resources *r,
                              xr_errors *errors)
{
    const char *root = run->ini.trainer.default_local_dir;
    char parent[XR_PATH_CAP];
    if (!(run->with & XR_TRAINABLE) || !root || !r->checkpoint_bytes ||
        strlen(root) >= sizeof(parent))
        return;
    find_existing_parent(root, parent, sizeof(parent));
    check_disk_space(run, r, 1, parent, errors);
}

void xr_resources_check_disk(const xr_run *run, const xr_resources *r,
                             uint64_t steps, xr_errors *errors)
{
    const xr_trainer_section *t = &run->ini.trainer;
    char parent[XR_PATH_CAP];
    if (t->validation_data_dir && *t->validation_data_dir)
        (void)check_writable_folder(run, "validation_data_dir",
                                    t->validation_data_dir, parent, errors);
    if (!(run->with & XR_TRAINABLE) || !t->default_local_dir)
        return;
    if (check_writable_folder(run, "default_local_dir", t->default_local_dir,
                              parent, errors) &&
        r->checkpoint_bytes)
        check_disk_space(run, r, steps, parent, errors);
    if (t->rollout_data_dir && *t->rollout_data_dir)
        (void)check_writable_folder(run, "rollout_data_dir",
                                    t->rollout_data_dir, parent, errors);
}
