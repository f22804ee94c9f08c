/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading JSON through cJSON, with types and ranges checked and messages that
 * name the place. `where` is what a message starts with: a file, or file:line.
 */
#ifndef XR_JSON_H
#define XR_JSON_H

#include <cjson/cJSON.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"

/* Parses exactly one value out of `size` bytes; cJSON_Delete releases it. Text
 * after the value, NUL bytes and nesting beyond cJSON's limit are errors with
 * line and column; a key that stands twice in an object is one, too. A byte
 * order mark in front is passed over, another format is named. */
xray_status xr_json_parse(const char *text, size_t size, const char *where,
                          xr_err *err, cJSON **out);
/* The same of a line of JSON lines, which must be an object; `where` has its
 * number. */
xray_status xr_json_line(const char *line, size_t size, const char *where,
                         xr_err *err, cJSON **out);
xray_status xr_json_file(const char *path, xr_err *err, cJSON **out);

/* Members of an object. A missing (or null) member is an error in the plain
 * form and gives `preset` in the _or form. Wrong types are errors in both. */
xray_status xr_json_int(const cJSON *object, const char *key, const char *where,
                        xr_err *err, int64_t *out);
xray_status xr_json_int_or(const cJSON *object, const char *key, int64_t preset,
                           const char *where, xr_err *err, int64_t *out);
xray_status xr_json_real_or(const cJSON *object, const char *key, double preset,
                            const char *where, xr_err *err, double *out);
xray_status xr_json_bool_or(const cJSON *object, const char *key, int preset,
                            const char *where, xr_err *err, int *out);
/* Borrowed from the object. */
xray_status xr_json_string(const cJSON *object, const char *key,
                           const char *where, xr_err *err, const char **out);
xray_status xr_json_string_or(const cJSON *object, const char *key,
                              const char *preset, const char *where,
                              xr_err *err, const char **out);
/* The member, or NULL; case counts. null counts as missing. */
const cJSON *xr_json_get(const cJSON *object, const char *key);

/* An array of integers in [0, 2^31) into *out_ids (free() releases). */
xray_status xr_json_ids(const cJSON *array, const char *where, xr_err *err,
                        int32_t **out_ids, size_t *out_count);

#endif
