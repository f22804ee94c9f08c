/* SPDX-License-Identifier: Apache-2.0
 *
 * Metrics of a step and where they go: a progress line on stderr, JSON lines in
 * a file. Names are verl's.
 */
#ifndef XR_MONITOR_H
#define XR_MONITOR_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/str.h"

/* Names and values in the order of the step's first use; names are copied once.
 * Reused from step to step without allocation once every name was seen. */
typedef struct xr_metrics xr_metrics;
xr_metrics *xr_metrics_new(void);
void xr_metrics_free(xr_metrics *metrics);
void xr_metrics_clear(xr_metrics *metrics); /* forgets values, keeps names */
void xr_metrics_put(xr_metrics *metrics, const char *name, double value);
/* name/mean, name/max, name/min of `count` values. */
void xr_metrics_stats(xr_metrics *metrics, const char *name,
                      const float *values, size_t count);
size_t xr_metrics_count(const xr_metrics *metrics); /* set in this step */
const char *xr_metrics_name(const xr_metrics *metrics, size_t i);
double xr_metrics_value(const xr_metrics *metrics, size_t i);
/* NaN when the name is not set. */
double xr_metrics_get(const xr_metrics *metrics, const char *name);

typedef struct xr_monitor xr_monitor;

/* The lines of a file of metrics at some moment: what is behind them is of
 * steps that are done again. */
typedef struct xr_metrics_mark {
    uint64_t count;
    uint64_t hash; /* XXH64 of each line with its end, seeded by the one before
                    */
} xr_metrics_mark;

/* Cuts off what is behind the marked lines; XRAY_E_CONFIG says what is wrong
 * where they are not those of the mark, and leaves the file as it is. */
xray_status xr_metrics_cut(const char *path, const xr_metrics_mark *mark,
                           xr_err *err);

/* `jsonl`: file that gets a line a step, {"step":1,"name":value,...}; NULL:
 * none. With `keep_step` >= 0 the lines of later steps (a run that was killed
 * after its checkpoint) are cut off first. `console` 1: progress on stderr, in
 * place when that is a terminal. `watch`: names shown in the progress line,
 * ends with NULL, borrowed. */
xray_status xr_monitor_open(const char *jsonl, int64_t keep_step, int console,
                            const char *const *watch, xr_err *err,
                            xr_monitor **out);
void xr_monitor_close(xr_monitor *monitor); /* accepts NULL */

/* Writes a step's metrics; `total` steps give the ETA (0: not known). A write
 * error comes back once, and the file is left at its last whole line. */
xray_status xr_monitor_step(xr_monitor *monitor, uint64_t step, uint64_t total,
                            const xr_metrics *metrics, xr_err *err);
/* The lines written and kept so far, once they are on the disk; none without a
 * file. */
xray_status xr_monitor_mark(xr_monitor *monitor, xr_metrics_mark *out,
                            xr_err *err);
/* The score of a validation made after `step`, on the console if it is on. */
void xr_monitor_validation(xr_monitor *monitor, uint64_t step, uint64_t total,
                           double score);
/* A line of text on stderr that does not collide with the progress line. */
void xr_monitor_say(xr_monitor *monitor, const char *text);

/* A text plot of `count` values, `width` x `height` characters, with axis
 * labels, appended line by line. */

void xr_plot(const double *values, size_t count, unsigned width,
             unsigned height, const char *label, xr_str *out);

#endif
