/* SPDX-License-Identifier: Apache-2.0
 *
 * Recognises files that are not what a reader expects by their first bytes: an
 * archive, a Git LFS pointer, or an HTML page instead of text or weights.
 */
#ifndef XR_FILE_FORMAT_H
#define XR_FILE_FORMAT_H

#include <stddef.h>

#include "core/base/err.h"

/* XRAY_E_CONFIG if the bytes begin as a format other than JSON, INI or
 * safetensors; the error names the format and the remedy. `where` names the
 * file, or the file and its first line. */
xray_status xr_format_check(const void *data, size_t size, const char *where,
                            xr_err *err);

/* 3 if the text begins with UTF-8's byte order mark, which readers skip;
 * otherwise 0. */
size_t xr_bom_size(const char *text, size_t size);

#endif
