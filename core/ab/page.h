/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of the HTML page of a comparison: escaped text, tables of samples,
 * charts.
 */
#ifndef XR_AB_PAGE_H
#define XR_AB_PAGE_H

#include "core/ab/compare.h"

#define XR_COLOURS 8u /* classes c0..c7 */

/* Escapes text for HTML and XML; bytes that are no text become U+FFFD. */
void xr_page_text(const char *text, xr_str *out);
/* Writes a number with a few digits, or a dash for NaN. */
void xr_page_number(double value, xr_str *out);

/* Writes a variant's name after a square of its colour. */
void xr_page_name(const xr_runs *runs, size_t variant, xr_str *out);
/* Writes the responses of all variants to the same prompts. */
xray_status xr_page_samples(const xr_comparison *comparison, xr_str *out,
                            xr_err *err);

enum { XR_OVER_STEPS, XR_OVER_TOKENS, XR_OVER_SECONDS };
/* Plots a curve with its band per variant; nothing if no series has a point. */
void xr_page_curves(const xr_series *series, const xr_runs *runs,
                    const char *metric, int over, xr_str *out);
/* Plots the differences: one row per variant, with a ring per pair and a bar
 * for the interval. */
void xr_page_differences(const xr_comparison *comparison, xr_str *out);

#endif
