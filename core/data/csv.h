/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares the reader of comma-separated values (RFC 4180).
 */
#ifndef XR_DATA_CSV_H
#define XR_DATA_CSV_H

#include "core/base/services.h"
#include "core/base/str.h"

/* Appends a line of JSON for each record: an object of texts under the names in
 * the first record. A field without characters and without quotes is null.
 * Quoted fields may hold delimiters, doubled quotes and line breaks; a byte
 * order mark and blank lines are skipped. Errors name `path`, row and line. */
xray_status xr_csv_lines(const char *path, const char *text, size_t size,
                         char delimiter, const xray_call_service *calls,
                         xr_err *err, xr_str *out);

#endif
