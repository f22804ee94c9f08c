/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions on data rows: "level >= 3", "extra_info.split != test".
 */
#ifndef XR_DATA_FILTER_H
#define XR_DATA_FILTER_H

#include <stddef.h>

#include <xray/option.h>

#include "core/base/err.h"
#include "core/base/json.h"

typedef struct xr_filter xr_filter;

/* Each condition is "key op value" with op one of = != < <= > >= ~ (contains).
 * A value in double quotes is text; else a number where both sides are
 * numbers. Messages call a condition by its text. */
xray_status xr_filter_parse(const xray_list *conditions, xr_err *err,
                            xr_filter **out);
void xr_filter_free(xr_filter *filter); /* accepts NULL */

/* 1 if a row meets all of them. A row without the key meets only "!=". An
 * order (<, >) between things that are no numbers is an error at `where`. */
xray_status xr_filter_row(const xr_filter *filter, const cJSON *row,
                          const char *where, xr_err *err, int *out_keep);

#endif
