/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares template strings, where "{key}" is a member of the data row and "{{"
 * and "}}" are literal braces.
 */
#ifndef XR_DATA_TEMPLATE_H
#define XR_DATA_TEMPLATE_H

#include <stddef.h>

#include "core/base/err.h"
#include "core/base/json.h"
#include "core/base/str.h"

typedef struct xr_piece {
    char *text; /* literal text, or a key */
    size_t size;
    int key;
} xr_piece;

typedef struct xr_template {
    xr_piece *pieces;
    size_t count;
} xr_template;

/* `key` is the key of [data] that holds the text, for messages. */
xray_status xr_template_parse(const char *text, const char *key, xr_err *err,
                              xr_template *out);
void xr_template_free(xr_template *template);

/* A name that refers to another member of the row: {prompt} is the text of
 * prompt_key, whatever that key is. */
typedef struct xr_alias {
    const char *name;
    const char *key;
} xr_alias;

/* Appends the filled template. */
xray_status xr_template_fill(const xr_template *template, xr_alias alias,
                             const cJSON *row, const char *where, xr_err *err,
                             xr_str *out);

/* Appends a member as text: a string unchanged, a number without exponent or
 * trailing zeros if it is an integer, true or false, and a list of messages as
 * its contents, one line each. */
xray_status xr_value_text(const cJSON *value, const char *key,
                          const char *where, xr_err *err, xr_str *out);
/* The same for a ground truth, where an object, or a list of anything but
 * messages, is written as JSON: {"target":["a","b"]}. */
xray_status xr_truth_text(const cJSON *value, const char *key,
                          const char *where, xr_err *err, xr_str *out);

#endif
