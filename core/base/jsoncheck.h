/* SPDX-License-Identifier: Apache-2.0
 *
 * The grammar of RFC 8259, strictly: what cJSON lets through (text after the
 * value, control characters, "01", bytes that are no UTF-8, \u0000, which would
 * cut a string short) is refused before it gets there.
 */
#ifndef XR_JSONCHECK_H
#define XR_JSONCHECK_H

#include <stddef.h>

#include "core/base/err.h"

/* XRAY_OK if the bytes are one JSON value that cJSON reads as written, else
 * XRAY_E_CONFIG with the place and what is wrong there. */
xray_status xr_json_check(const char *text, size_t size, const char *where,
                          xr_err *err);

#endif
