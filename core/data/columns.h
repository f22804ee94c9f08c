/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares reading of Parquet and Arrow files through programs that can.
 */
#ifndef XR_DATA_COLUMNS_H
#define XR_DATA_COLUMNS_H

#include <stddef.h>

#include "core/base/services.h"

/* Tells whether the file, or what is in it in gzip or zstd, begins as one of
 * Parquet, Arrow IPC (file or stream) or Feather does. A file that cannot be
 * read is none. */
xray_status xr_columns_find(const char *path, xr_err *err, int *out_found);

/* Converts a file to lines of JSON, one for each row, and ends them with a NUL;
 * free() releases the text. Parquet is read by DuckDB, as a library or as a
 * command, or by pyarrow in python3; Arrow by the latter. The lines are kept in
 * $XDG_CACHE_HOME/xray/rows (without it, ~/.cache/xray/rows) under the hash of
 * the file's content, and taken from there the next time. */
xray_status xr_columns_read(const char *path, const xray_call_service *calls,
                            xr_err *err, char **out_text, size_t *out_size);

#endif
