/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads JSON through cJSON, checks types and ranges, and names the location in
 * errors. `where` begins each message: a file, or file and line.
 */
#ifndef XR_JSON_H
#define XR_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Parses exactly one value from `size` bytes; cJSON_Delete releases it. Text
 * after the value, NUL bytes, nesting beyond cJSON's limit and repeated keys
 * are errors. A byte order mark at the start is skipped, and a file of a
 * foreign format is named. */
xray_status xr_json_parse(const char *text, size_t size, const char *where,
                          xr_err *err, cJSON **out);
/* The same for one line of a JSON-lines file, which must be an object; `where`
 * includes the line's number. */
xray_status xr_json_line(const char *line, size_t size, const char *where,
                         xr_err *err, cJSON **out);
xray_status xr_json_file(const char *path, xr_err *err, cJSON **out);

/* Read a member of an object. A missing or null member is an error in the plain
 * form and gives `preset` in the _or form. Wrong types are errors in both. */
xray_status xr_json_int(const cJSON *object, const char *key, const char *where,
                        xr_err *err, int64_t *out);
xray_status xr_json_int_or(const cJSON *object, const char *key, int64_t preset,
                           const char *where, xr_err *err, int64_t *out);
xray_status xr_json_real_or(const cJSON *object, const char *key, double preset,
                            const char *where, xr_err *err, double *out);
xray_status xr_json_bool_or(const cJSON *object, const char *key, int preset,
                            const char *where, xr_err *err, int *out);
/* The string is borrowed from the object. */
xray_status xr_json_string(const cJSON *object, const char *key,
                           const char *where, xr_err *err, const char **out);
xray_status xr_json_string_or(const cJSON *object, const char *key,
                              const char *preset, const char *where,
                              xr_err *err, const char **out);
/* Returns the member, or NULL if it is missing or null. Names are
 * case-sensitive. */
const cJSON *xr_json_get(const cJSON *object, const char *key);
/* The same for a path of names: a point leads into an object, as in
 * "extra_info.index". */
const cJSON *xr_json_path(const cJSON *object, const char *path);

/* Reads an array of integers in [0, 2^31) into *out_ids, which free()
 * releases. */
xray_status xr_json_ids(const cJSON *array, const char *where, xr_err *err,
                        int32_t **out_ids, size_t *out_count);

#endif
