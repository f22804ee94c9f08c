/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes <checkpoint>/history.json: which run wrote the checkpoint,
 * the length and checksum of metrics.jsonl at that time, and checksums of the
 * files that the run read. These differ between two runs that produce the same
 * bits, so they are kept apart from state.json. Checkpoints of older versions
 * of xray have no history.json.
 */
#ifndef XR_HISTORY_H
#define XR_HISTORY_H

#include "core/monitor/monitor.h"

#define XR_HISTORY_FILE "history.json"

/* A file that a key of the configuration names. */
typedef struct xr_input {
    char *key; /* "data.train_files" */
    char *path;
    uint64_t hash; /* XXH64 of the content */
} xr_input;

typedef struct xr_history {
    char run[17]; /* id of the run, 16 hexadecimal digits; "": unknown */
    int has_lines;
    /* Length and checksum of metrics.jsonl, if the run writes it. */
    xr_metrics_mark lines;
    xr_input *inputs; /* in the order of the configuration */
    size_t input_count;
} xr_history;
void xr_history_free(xr_history *history);

/* Adds a file with the checksum of its present content. Ignores paths that are
 * not regular files. */
xray_status xr_history_input(xr_history *history, const char *key,
                             const char *path, xr_err *err);

/* Gives a new run a random id that no other run has. */
xray_status xr_history_begin(xr_err *err, xr_history *out);
xray_status xr_history_write(const char *dir, const xr_history *history,
                             xr_err *err);
/* Leaves *out empty if the checkpoint has no history.json. */
xray_status xr_history_read(const char *dir, xr_err *err, xr_history *out);
/* Returns 1 if the folder holds a checkpoint of the run with this id. */
int xr_history_of_run(const char *dir, const char *run);
/* Returns 1 if both folders hold checkpoints of the same run, as far as their
 * history.json tells. */
int xr_history_same_run(const char *dir, const char *other);

#endif
