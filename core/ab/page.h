/* SPDX-License-Identifier: Apache-2.0
 *
 * Pieces of the page: escaped text, charts.
 */
#ifndef XR_AB_PAGE_H
#define XR_AB_PAGE_H

#include "core/ab/compare.h"

#define XR_COLOURS 8u /* classes c0..c7 */

/* Text as HTML and XML have it; what is no text comes out as U+FFFD. */
void xr_page_text(const char *text, xr_str *out);
/* A number of a few digits, or a dash. */
void xr_page_number(double value, xr_str *out);

/* A variant's name with its colour. */
void xr_page_name(const xr_runs *runs, size_t variant, xr_str *out);
/* Responses of all variants to the same prompts. */
xray_status xr_page_samples(const xr_comparison *comparison, xr_str *out,
                            xr_err *err);

enum { XR_OVER_STEPS, XR_OVER_TOKENS, XR_OVER_SECONDS };
/* Curves with bands, one a variant; nothing if no series has a point. */
void xr_page_curves(const xr_series *series, const xr_runs *runs,
                    const char *metric, int over, xr_str *out);
/* Differences: a dot a pair, a bar for the interval, one row a variant. */
void xr_page_differences(const xr_comparison *comparison, xr_str *out);

#endif
