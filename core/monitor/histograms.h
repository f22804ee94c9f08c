/* SPDX-License-Identifier: Apache-2.0
 *
 * The histograms of a step, which trackers get.
 */
#ifndef XR_HISTOGRAMS_H
#define XR_HISTOGRAMS_H

#include <stddef.h>

#include <xray/tracker.h>

#define XR_BUCKETS 30u      /* of a histogram that is made here */
#define XR_BUCKETS_MOST 64u /* of any histogram */

/* Memory of an earlier step is used again. */
typedef struct xr_histograms xr_histograms;
xr_histograms *xr_histograms_new(void); /* NULL when out of memory */
void xr_histograms_free(xr_histograms *histograms);
void xr_histograms_clear(xr_histograms *histograms);

/* Counts the finite ones of `count` values in XR_BUCKETS buckets of one width
 * from the least to the largest, or in one bucket if they are equal. Adds
 * nothing if there are none. `name` is copied. */
void xr_histograms_add(xr_histograms *histograms, const char *name,
                       const float *values, size_t count);
/* Adds a histogram that was counted elsewhere, unless nothing was. */
void xr_histograms_add_counts(xr_histograms *histograms, const char *name,
                              const double *edges, const double *counts,
                              size_t buckets);

const xray_histogram *xr_histograms_list(const xr_histograms *histograms,
                                         size_t *out_count);
/* 1 if memory ran out, so that histograms are missing. */
int xr_histograms_failed(const xr_histograms *histograms);

#endif
