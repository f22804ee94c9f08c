/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the search for data files: names may be files, folders or patterns.
 */
#ifndef XR_DATA_FILE_LIST_H
#define XR_DATA_FILE_LIST_H

#include <xray/option.h>

#include "core/base/err.h"

typedef struct xr_file_list {
    char **items;
    uint64_t count;
} xr_file_list;

/* Replaces each folder by the data files in it (core/data/source.h names their
 * endings) and each pattern of * ? [ ] by the files that match, both in the
 * order of the bytes of their names; other names stay as they are, also those
 * of missing files. A pattern or a folder without files is an error that names
 * it. xr_file_list_free releases the list. */
xray_status xr_file_list_find(const xray_list *names, xr_err *err,
                              xr_file_list *out);
void xr_file_list_free(xr_file_list *list);

#endif
