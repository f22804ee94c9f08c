/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the source of a data file's rows: whatever the file's format is, a
 * row comes out as one line of JSON and the place where it was.
 */
#ifndef XR_DATA_SOURCE_H
#define XR_DATA_SOURCE_H

#include "core/base/file.h"
#include "core/base/services.h"

/* The formats by the end of a file's name, without .gz or .zst. */
typedef enum xr_format {
    XR_FORMAT_NONE, /* not the name of a data file */
    XR_FORMAT_LINES,
    XR_FORMAT_JSON,
    XR_FORMAT_CSV,
    XR_FORMAT_TSV,
    XR_FORMAT_PARQUET,
    XR_FORMAT_ARROW
} xr_format;
xr_format xr_format_of(const char *path);

typedef struct xr_source {
    const char *path; /* borrowed */
    char *text;       /* of the rows, which lines point into */
    char *at;
    char *end;
    size_t number; /* of the line or the row, from 1 */
    int form;
    char where[XR_PATH_CAP + 32]; /* "file:line" or "file: row 7" */
} xr_source;

/* Reads a file: JSON lines, a JSON array of objects, an object whose "data" is
 * such an array (a name in .json), CSV, Parquet or Arrow, each plain, in gzip
 * or in zstd. */
xray_status xr_source_open(const char *path, const xray_call_service *calls,
                           xr_err *err, xr_source *out);
/* Finds the next row, ends it with a NUL and sets `where`; XRAY_END after the
 * last one. Only its extent is checked, not its JSON. */
xray_status xr_source_next(xr_source *s, xr_err *err, char **out_line,
                           size_t *out_size);
/* Frees the text, and with it all lines. */
void xr_source_close(xr_source *s);

#endif
