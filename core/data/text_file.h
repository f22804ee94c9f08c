/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares reading of text files that are plain or compressed with gzip or
 * zstd, as their first bytes tell.
 */
#ifndef XR_DATA_TEXT_FILE_H
#define XR_DATA_TEXT_FILE_H

#include <stddef.h>

#include "core/base/services.h"

/* Reads the text of a file and ends it with a NUL; free() releases it. Asks
 * `calls`, or NULL, after each piece whether it shall end. Consecutive gzip
 * members or zstd frames form one text. A truncated file or a wrong checksum is
 * an error that names the file. */
xray_status xr_text_read(const char *path, const xray_call_service *calls,
                         xr_err *err, char **out_text, size_t *out_size);

/* Writes the first bytes of the text of a file, up to `size`: none of a file
 * that cannot be opened, or whose compressed data is damaged. */
xray_status xr_text_peek(const char *path, xr_err *err, unsigned char *out,
                         size_t size, size_t *out_count);

#endif
