/* SPDX-License-Identifier: Apache-2.0
 *
 * What a file is by how it begins, for those that are not what a reader
 * expects: an archive, a pointer, a page in place of text or weights.
 */
#ifndef XR_FORMAT_H
#define XR_FORMAT_H

#include <stddef.h>

#include "core/base/err.h"

/* XRAY_E_CONFIG with what the bytes are and what to do about it, if they begin
 * as a format that is neither JSON, INI nor safetensors; else XRAY_OK. `where`
 * is the file, or its first line. */
xray_status xr_format_check(const void *data, size_t size, const char *where,
                            xr_err *err);

/* 3 if a text begins with the byte order mark of UTF-8, which readers pass
 * over; else 0. */
size_t xr_bom_size(const char *text, size_t size);

#endif
