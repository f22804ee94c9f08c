/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks the grammar of RFC 8259 strictly, before cJSON parses the text: cJSON
 * itself accepts text after the value, control characters, "01", bytes that are
 * not UTF-8, and \u0000, which would cut a string short.
 */
#ifndef XR_JSONCHECK_H
#define XR_JSONCHECK_H

#include <stddef.h>

#include "core/base/err.h"

/* XRAY_OK if the bytes are one JSON value that cJSON reads as written;
 * otherwise XRAY_E_CONFIG with the position and the fault. */
xray_status xr_json_check(const char *text, size_t size, const char *where,
                          xr_err *err);

#endif
