/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads what a run left in its folder: metrics.jsonl, the resolved INI of its
 * newest checkpoint, and the samples of its steps.
 */
#ifndef XR_AB_RUN_FOLDER_H
#define XR_AB_RUN_FOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "core/base/err.h"
#include "core/base/map.h"
#include "core/base/str.h"

/* ---- a resolved INI ----------------------------------------------------- */

typedef struct xr_setting {
    const char *key;   /* "actor.optim.lr" */
    const char *value; /* as printed, quotes kept */
} xr_setting;

/* The values of an INI as xr_config_print writes it: one per line. */
typedef struct xr_settings {
    char *text; /* of all keys and values */
    xr_setting *items;
    size_t count;
} xr_settings;
/* A fault is an error that begins with `where` and the number of the line. */
xray_status xr_settings_parse(const char *text, const char *where, xr_err *err,
                              xr_settings *out);
void xr_settings_free(xr_settings *settings);
/* The value of a key, or NULL. */
const char *xr_settings_get(const xr_settings *settings, const char *key);
/* 1 for a key whose value may differ between runs of one variant: seed,
 * folders, threads, log. */
int xr_setting_is_own(const char *key);
/* The name of the first key whose values differ, or NULL; keys of
 * xr_setting_is_own are skipped. A value is NULL where a side has none. */
const char *xr_settings_differ(const xr_settings *a, const xr_settings *b,
                               const char **out_a, const char **out_b);

/* ---- metrics ------------------------------------------------------------ */

typedef struct xr_line {
    uint64_t step;
    size_t first; /* into values and names */
    size_t count;
} xr_line;

typedef struct xr_ab_run {
    char *dir;
    char *label; /* "seed 42" */
    int64_t seed;
    xr_settings settings;
    xr_line *lines; /* in order of steps */
    size_t line_count;
    double *values;
    uint32_t *name_of; /* of each value */
    size_t value_count;
    char **names; /* in order of first use */
    size_t name_count;
    xr_map *index;
} xr_ab_run;

/* Reads a run. A folder without metrics or resolved INI, or a malformed line of
 * metrics, is an error that names the file. A last line without its newline,
 * which a killed run may leave, is skipped. */
xray_status xr_ab_run_read(const char *dir, xr_err *err, xr_ab_run *out);
void xr_ab_run_free(xr_ab_run *run);
/* The value of a metric in a line; NaN if the line lacks it. */
double xr_ab_run_value(const xr_ab_run *run, const xr_line *line,
                       const char *name);
/* The last line that holds the metric, or NULL. */
const xr_line *xr_ab_run_last(const xr_ab_run *run, const char *name);
/* 1 for a metric that measures time, and so differs between equal runs. */
int xr_metric_is_time(const char *name);
/* The path of the resolved INI: that of the newest checkpoint, else the one
 * that `xray ab` wrote, else "". */
xray_status xr_run_settings_path(const char *dir, char *out_path, xr_err *err);

/* ---- samples ------------------------------------------------------------ */

typedef struct xr_sample {
    char *prompt;
    char *response;
    char *truth;
    double score;
} xr_sample;

typedef struct xr_sample_list {
    xr_sample *items;
    size_t count;
} xr_sample_list;

/* The samples of a step: none, and XRAY_OK, if the run kept none. */
xray_status xr_samples_read(const xr_ab_run *run, uint64_t step, xr_err *err,
                            xr_sample_list *out);
void xr_sample_list_free(xr_sample_list *list);

#endif
