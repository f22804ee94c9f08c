/* SPDX-License-Identifier: Apache-2.0
 *
 * The event files of a run's folder. Each process of the run writes one,
 * events.out.tfevents.SECONDS.HOST.PID.xray; those names tell our files from
 * those of others, which are left alone, and put them in order.
 */
#ifndef TB_FOLDER_H
#define TB_FOLDER_H

#include "core/base/err.h"

typedef struct tb_files {
    char **names; /* [count], in order */
    size_t count;
} tb_files;

/* Lists the event files; none if the folder does not exist. */
xray_status tb_files_list(const char *dir, xr_err *err, tb_files *out);
void tb_files_free(tb_files *files);

/* Cuts the files so that they hold no step after `last_step`; a file without
 * values is removed. Reads all of them first: if one cannot be read, nothing is
 * changed. With `dry`, nothing is changed in any case. *out_settings is 1 if
 * the settings of the run are among what is kept. */
xray_status tb_files_cut(const char *dir, const tb_files *files,
                         uint64_t last_step, int dry, int *out_settings,
                         xr_err *err);

/* Moves the files, which are of an older run, to a new folder DIR.1, DIR.2 and
 * so on. */
xray_status tb_files_set_aside(const char *dir, const tb_files *files,
                               xr_err *err);

/* Creates the file of this process, whose name comes after those of `files`.
 * *out_path is for free. */
xray_status tb_file_create(const char *dir, const tb_files *files, xr_err *err,
                           char **out_path, int *out_fd);

#endif
