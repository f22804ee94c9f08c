/* SPDX-License-Identifier: Apache-2.0
 *
 * Declares metrics of a step and their outputs: a progress line on stderr, and
 * JSON lines in a file. Names are verl's.
 */
#ifndef XR_MONITOR_H
#define XR_MONITOR_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"
#include "core/monitor/histograms.h"

/* Names and values in the order in which the step first sets them. Names are
 * copied once, so that no memory is allocated after every name has been
 * seen. */
typedef struct xr_metrics xr_metrics;
xr_metrics *xr_metrics_new(void);
void xr_metrics_free(xr_metrics *metrics);
void xr_metrics_clear(xr_metrics *metrics); /* forgets values, keeps names */
void xr_metrics_put(xr_metrics *metrics, const char *name, double value);
/* Sets name/mean, name/max and name/min of `count` values. */
void xr_metrics_stats(xr_metrics *metrics, const char *name,
                      const float *values, size_t count);
size_t xr_metrics_count(const xr_metrics *metrics); /* set in this step */
const char *xr_metrics_name(const xr_metrics *metrics, size_t i);
double xr_metrics_value(const xr_metrics *metrics, size_t i);
/* From now on keeps a histogram of the values of each xr_metrics_stats. Returns
 * -1 if out of memory. */
int xr_metrics_keep_histograms(xr_metrics *metrics);
/* Those of the step; NULL: they are not kept. */
xr_histograms *xr_metrics_histograms(const xr_metrics *metrics);
/* Returns NaN if the name is not set. */
double xr_metrics_get(const xr_metrics *metrics, const char *name);

typedef struct xr_monitor xr_monitor;

/* The lines of a metrics file at the time of a checkpoint: lines after them
 * belong to steps that are repeated. */
typedef struct xr_metrics_mark {
    uint64_t count;
    uint64_t hash; /* XXH64 of each line with its end, seeded by the previous
                    * one */
} xr_metrics_mark;

/* Cuts off the lines after the marked ones. If the file's lines differ from the
 * mark, returns XRAY_E_CONFIG and leaves the file unchanged. */
xray_status xr_metrics_cut(const char *path, const xr_metrics_mark *mark,
                           xr_err *err);

/* `jsonl`: file that receives one line per step, {"step":1,"name":value,...};
 * NULL: none. With `keep_step` >= 0, lines of later steps (from a run that was
 * killed after its checkpoint) are cut off first. `console` 1: progress on
 * stderr, overwritten in place on a terminal. `watch`: names shown in the
 * progress line, ending with NULL, borrowed. */
xray_status xr_monitor_open(const char *jsonl, int64_t keep_step, int console,
                            const char *const *watch, xr_err *err,
                            xr_monitor **out);
void xr_monitor_close(xr_monitor *monitor); /* accepts NULL */

/* Writes a step's metrics; `total` steps determine the ETA (0: unknown). A
 * write error is returned once and leaves the file at its last complete
 * line. */
xray_status xr_monitor_step(xr_monitor *monitor, uint64_t step, uint64_t total,
                            const xr_metrics *metrics, xr_err *err);
/* Returns the lines written so far, once they are on the disk; none without a
 * file. */
xray_status xr_monitor_mark(xr_monitor *monitor, xr_metrics_mark *out,
                            xr_err *err);
/* Shows the score of a validation after `step`, if the console is enabled. */
void xr_monitor_validation(xr_monitor *monitor, uint64_t step, uint64_t total,
                           double score);
/* Writes a line of text to stderr without garbling the progress line. */
void xr_monitor_say(xr_monitor *monitor, const char *text);

/* Appends a text plot of `count` values, `width` x `height` characters, with
 * axis labels. */
void xr_plot(const double *values, size_t count, unsigned width,
             unsigned height, const char *label, xr_str *out);

#endif
