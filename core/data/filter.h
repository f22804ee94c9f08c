/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares conditions on data rows, such as "level >= 3" and "extra_info.split
 * != test".
 */
#ifndef XR_DATA_FILTER_H
#define XR_DATA_FILTER_H

#include <stddef.h>

#include <xray/option.h>

#include "core/base/err.h"
#include "core/base/json.h"

typedef struct xr_filter xr_filter;

/* Parses conditions of the form "key op value" with op one of = != < <= > >= ~
 * (contains). A value in double quotes is text; otherwise both sides are
 * compared as numbers if both are numbers. Messages quote a condition's
 * text. */
xray_status xr_filter_parse(const xray_list *conditions, xr_err *err,
                            xr_filter **out);
void xr_filter_free(xr_filter *filter); /* accepts NULL */

/* Sets *out_keep to 1 if a row meets all conditions. A row without the key
 * meets only "!=". An order comparison (<, >) of values that are not numbers is
 * an error at `where`. */
xray_status xr_filter_row(const xr_filter *filter, const cJSON *row,
                          const char *where, xr_err *err, int *out_keep);

#endif
