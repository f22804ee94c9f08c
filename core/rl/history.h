/* SPDX-License-Identifier: Apache-2.0
 *
 * <checkpoint>/history.json: what differs between two runs of the same bits, so
 * that it is kept beside state.json: which run wrote the checkpoint, what
 * metrics.jsonl held then, and what the files held that the run read. A
 * checkpoint of an older xray has none.
 */
#ifndef XR_HISTORY_H
#define XR_HISTORY_H

#include "core/monitor/monitor.h"

#define XR_HISTORY_FILE "history.json"

/* A file that a key of the configuration names. */
typedef struct xr_input {
    char *key; /* "data.train_files" */
    char *path;
    uint64_t hash; /* XXH64 */
} xr_input;

typedef struct xr_history {
    char run[17]; /* a number of the run, 16 hex digits; "": not known */
    int has_lines;
    xr_metrics_mark lines; /* of metrics.jsonl, where the run writes it */
    xr_input *inputs;      /* in the order of the configuration */
    size_t input_count;
} xr_history;
void xr_history_free(xr_history *history);

/* Adds a file as it is now; what is no regular file has no place here. */
xray_status xr_history_input(xr_history *history, const char *key,
                             const char *path, xr_err *err);

/* Gives a run that begins a number no other run has. */
xray_status xr_history_begin(xr_err *err, xr_history *out);
xray_status xr_history_write(const char *dir, const xr_history *history,
                             xr_err *err);
/* All is empty where the checkpoint has no such file. */
xray_status xr_history_read(const char *dir, xr_err *err, xr_history *out);
/* 1 if the folder holds a checkpoint of the run. */
int xr_history_of_run(const char *dir, const char *run);
/* 1 if both folders hold checkpoints of one run, as far as they say. */
int xr_history_same_run(const char *dir, const char *other);

#endif
