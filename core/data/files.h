/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files as they come: plain, gzip or zstd, told apart by their first
 * bytes.
 */
#ifndef XR_DATA_FILES_H
#define XR_DATA_FILES_H

#include <stddef.h>

#include "core/base/err.h"

/* The text of a file with a NUL behind it; free() releases. Several gzip
 * members or zstd frames in a row are one text. A file that breaks off or whose
 * checksum is wrong is an error that names it. */
xray_status xr_text_read(const char *path, xr_err *err, char **out_text,
                         size_t *out_size);

#endif
