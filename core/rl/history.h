/* SPDX-License-Identifier: Apache-2.0
 *
 * <checkpoint>/history.json: what differs between two runs of the same bits, so
 * that it is kept beside state.json: which run wrote the checkpoint, and what
 * metrics.jsonl held then. A checkpoint of an older xray has none.
 */
#ifndef XR_HISTORY_H
#define XR_HISTORY_H

#include "core/monitor/monitor.h"

#define XR_HISTORY_FILE "history.json"

typedef struct xr_history {
    char run[17]; /* a number of the run, 16 hex digits; "": not known */
    int has_lines;
    xr_metrics_mark lines; /* of metrics.jsonl, where the run writes it */
} xr_history;

/* That of a run which begins: a number no other run has. */
xray_status xr_history_begin(xr_err *err, xr_history *out);
xray_status xr_history_write(const char *dir, const xr_history *history,
                             xr_err *err);
/* All is empty where the checkpoint has no such file. */
xray_status xr_history_read(const char *dir, xr_err *err, xr_history *out);
/* 1 if both folders hold checkpoints of one run, as far as they say. */
int xr_history_same_run(const char *dir, const char *other);

#endif
