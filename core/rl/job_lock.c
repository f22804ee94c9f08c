/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks the folders that a job writes to, since two runs in one folder would
 * destroy each other's checkpoints, metrics and samples.
 */
#include <stdio.h>
#include <string.h>

#include "core/rl/job.h"

typedef struct locked_folder {
    const char *key;
    const char *path;
} locked_folder;

static xray_status lock_folder(xr_lock *lock, const locked_folder *f,
                               xr_err *err)
{
    xr_err why = { "" };
    xray_status status = xr_lock_take(f->path, &why, lock);
    if (status == XRAY_E_UNSUPPORTED) {
        (void)fprintf(stderr, "xray: warning: %s\n", why.text);
        return XRAY_OK;
    }
    if (status == XRAY_E_STATE)
        return xr_fail(err, status,
                       "%s; wait for it, or give this one another [trainer] %s",
                       why.text, f->key);
    return status == XRAY_OK ? status : xr_fail(err, status, "%s", why.text);
}

xray_status xr_job_lock(xr_job *job, int make, xr_err *err)
{
    const xr_trainer_section *t = &job->run->ini.trainer;
    int eval = strcmp(job->kind, "eval") == 0;
    const locked_folder folders[XR_JOB_LOCKS] = {
        { "default_local_dir", eval ? NULL : t->default_local_dir },
        { "rollout_data_dir",
          strcmp(job->kind, "train") == 0 ? t->rollout_data_dir : NULL },
        { "validation_data_dir", t->validation_data_dir },
    };
    xray_status status = XRAY_OK;
    for (size_t i = 0; i < XR_JOB_LOCKS && status == XRAY_OK; i++) {
        const char *path = folders[i].path;
        int known = !path || !*path || job->lock_settled[i];
        if (!known && make)
            status = xr_dir_make(path, err);
        if (known || status != XRAY_OK || !xr_path_is_dir(path))
            continue;
        job->lock_settled[i] = 1;
        for (size_t k = 0; k < i && !known; k++)
            /* Two keys may name the same folder. */
            known =
                job->lock_settled[k] && xr_path_is_same(path, folders[k].path);
        if (!known)
            status = lock_folder(&job->locks[i], &folders[i], err);
    }
    return status;
}

void xr_job_unlock(xr_job *job)
{
    for (size_t i = 0; i < XR_JOB_LOCKS; i++)
        xr_lock_drop(&job->locks[i]);
}
