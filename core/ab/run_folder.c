/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the folder of a run: metrics.jsonl, the resolved INI and the samples.
 */
#include "core/ab/run_folder.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/json.h"

#define MOST_BYTES ((size_t)1 << 31)

/* ---- metrics ------------------------------------------------------------ */

static int intern_metric_name(xr_ab_run *run, const char *name, uint32_t *out)
{
    uint64_t found = 0;
    if (xr_map_get(run->index, name, strlen(name), &found)) {
        *out = (uint32_t)found;
        return 0;
    }
    char **names = realloc(run->names, (run->name_count + 1) * sizeof(*names));
    if (!names)
        return -1;
    run->names = names;
    names[run->name_count] = xr_strdup(name);
    if (!names[run->name_count])
        return -1;
    *out = (uint32_t)run->name_count++;
    return xr_map_put(run->index, name, strlen(name), *out);
}

/* Makes space for one more value in both arrays, which double their capacity.
 */
static int reserve_value(xr_ab_run *run, size_t *cap)
{
    if (run->value_count < *cap)
        return 0;
    size_t more = *cap ? *cap * 2 : 1024;
    double *values = realloc(run->values, more * sizeof(*values));
    if (!values)
        return -1;
    run->values = values;
    uint32_t *name_of = realloc(run->name_of, more * sizeof(*name_of));
    if (!name_of)
        return -1;
    run->name_of = name_of;
    *cap = more;
    return 0;
}

static xray_status read_line_metrics(xr_ab_run *run, const cJSON *json,
                                     const char *where, size_t *cap,
                                     xr_err *err)
{
    xr_line *line = &run->lines[run->line_count];
    *line = (xr_line){ .first = run->value_count };
    for (const cJSON *item = json->child; item; item = item->next) {
        if (strcmp(item->string, "step") == 0)
            continue;
        if (!cJSON_IsNumber(item) && !cJSON_IsNull(item))
            return xr_fail(err, XRAY_E_IO, "%s: %s is not a number", where,
                           item->string);
        if (reserve_value(run, cap) ||
            intern_metric_name(run, item->string,
                               &run->name_of[run->value_count]))
            return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
        run->values[run->value_count++] =
            cJSON_IsNull(item) ? (double)NAN : item->valuedouble;
        line->count++;
    }
    return XRAY_OK;
}

static xray_status read_metrics_line(xr_ab_run *run, const char *text,
                                     size_t size, const char *where,
                                     size_t *cap, xr_err *err)
{
    cJSON *json = NULL;
    int64_t step = 0;
    xray_status status = xr_json_parse(text, size, where, err, &json);
    if (status == XRAY_OK && !cJSON_IsObject(json))
        status = xr_fail(err, XRAY_E_IO, "%s: not a line of metrics", where);
    if (status == XRAY_OK)
        status = xr_json_int(json, "step", where, err, &step);
    if (status == XRAY_OK &&
        (step < 0 || (run->line_count &&
                      run->lines[run->line_count - 1].step >= (uint64_t)step)))
        status = xr_fail(err, XRAY_E_IO,
                         "%s: step %lld is not above that of the line before",
                         where, (long long)step);
    if (status == XRAY_OK)
        status = read_line_metrics(run, json, where, cap, err);
    if (status == XRAY_OK)
        run->lines[run->line_count++].step = (uint64_t)step;
    cJSON_Delete(json);
    return status;
}

static size_t count_lines(const char *text)
{
    size_t lines = 0;
    for (; *text; text++)
        lines += *text == '\n';
    return lines;
}

static xray_status read_metrics(xr_ab_run *run, xr_err *err)
{
    char path[XR_PATH_CAP];
    char where[XR_PATH_CAP + 24];
    char *text = NULL;
    size_t size = 0;
    size_t cap = 0;
    xray_status status =
        xr_path_join(run->dir, "metrics.jsonl", path, sizeof(path), err);
    if (status == XRAY_OK)
        status = xr_file_read(path, MOST_BYTES, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    run->index = xr_map_new(128);
    run->lines = xr_calloc(count_lines(text) + 1, sizeof(*run->lines));
    if (!run->lines || !run->index)
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    const char *at = text;
    const char *end = strchr(at, '\n');
    for (size_t number = 1; status == XRAY_OK && end; number++) {
        (void)snprintf(where, sizeof(where), "%s:%zu", path, number);
        status =
            read_metrics_line(run, at, (size_t)(end - at), where, &cap, err);
        at = end + 1;
        end = strchr(at, '\n');
    }
    if (status == XRAY_OK && !run->line_count)
        status = xr_fail(err, XRAY_E_IO, "%s: it holds no step", path);
    free(text);
    return status;
}

double xr_ab_run_value(const xr_ab_run *run, const xr_line *line,
                       const char *name)
{
    uint64_t index = 0;
    if (!xr_map_get(run->index, name, strlen(name), &index))
        return (double)NAN;
    for (size_t i = line->first; i < line->first + line->count; i++)
        if (run->name_of[i] == index)
            return run->values[i];
    return (double)NAN;
}

const xr_line *xr_ab_run_last(const xr_ab_run *run, const char *name)
{
    for (size_t i = run->line_count; i > 0; i--)
        if (!isnan(xr_ab_run_value(run, &run->lines[i - 1], name)))
            return &run->lines[i - 1];
    return NULL;
}

int xr_metric_is_time(const char *name)
{
    return strncmp(name, "timing_", 7) == 0 ||
           (strncmp(name, "perf/", 5) == 0 &&
            strcmp(name, "perf/total_num_tokens") != 0);
}

/* ---- the resolved INI --------------------------------------------------- */

static xray_status find_newest_checkpoint(const char *dir, char *out_name,
                                          size_t cap, xr_err *err)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    int64_t step = 0;
    out_name[0] = '\0';
    xray_status status = xr_path_join(dir, "latest_checkpointed_iteration.txt",
                                      path, sizeof(path), err);
    if (status != XRAY_OK || !xr_path_exists(path))
        return status;
    status = xr_file_read(path, 64, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    text[strcspn(text, "\n")] = '\0';
    if (xr_parse_int(text, &step) != 0 || step < 0)
        status = xr_fail(err, XRAY_E_IO, "%s: \"%s\" is not a step number",
                         path, text);
    else
        (void)snprintf(out_name, cap, "global_step_%lld/run.ini",
                       (long long)step);
    free(text);
    return status;
}

xray_status xr_run_settings_path(const char *dir, char *out_path, xr_err *err)
{
    char name[64];
    xray_status status = find_newest_checkpoint(dir, name, sizeof(name), err);
    if (status != XRAY_OK)
        return status;
    if (*name) {
        status = xr_path_join(dir, name, out_path, XR_PATH_CAP, err);
        if (status != XRAY_OK || xr_path_exists(out_path))
            return status;
    }
    status = xr_path_join(dir, "run.ini", out_path, XR_PATH_CAP, err);
    if (status == XRAY_OK && !xr_path_exists(out_path))
        out_path[0] = '\0';
    return status;
}

static xray_status read_settings(xr_ab_run *run, xr_err *err)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    xray_status status = xr_run_settings_path(run->dir, path, err);
    if (status != XRAY_OK)
        return status;
    if (!*path)
        return xr_fail(err, XRAY_E_IO,
                       "%s: it holds no resolved INI (run.ini of a checkpoint)",
                       run->dir);
    status = xr_file_read(path, (size_t)1 << 24, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    status = xr_settings_parse(text, path, err, &run->settings);
    free(text);
    if (status != XRAY_OK)
        return status;
    const char *seed = xr_settings_get(&run->settings, "run.seed");
    if (!seed || xr_parse_int(seed, &run->seed))
        return xr_fail(err, XRAY_E_IO, "%s: [run] seed is %s", path,
                       seed ? "not a number" : "missing");
    return XRAY_OK;
}

/* ---- a run -------------------------------------------------------------- */

xray_status xr_ab_run_read(const char *dir, xr_err *err, xr_ab_run *out)
{
    xr_str label = { 0 };
    *out = (xr_ab_run){ .dir = xr_strdup(dir) };
    xray_status status = out->dir ? XRAY_OK : XRAY_E_NOMEM;
    if (status == XRAY_OK && !xr_path_is_dir(dir))
        status = xr_fail(err, XRAY_E_IO, "%s: no such folder", dir);
    if (status == XRAY_OK)
        status = read_metrics(out, err);
    if (status == XRAY_OK)
        status = read_settings(out, err);
    if (status == XRAY_OK) {
        xr_str_printf(&label, "seed %lld", (long long)out->seed);
        out->label = xr_strdup(xr_str_text(&label));
        xr_str_free(&label);
        if (!out->label)
            status = xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", dir);
    }
    if (status != XRAY_OK)
        xr_ab_run_free(out);
    return status;
}

void xr_ab_run_free(xr_ab_run *run)
{
    for (size_t i = 0; i < run->name_count; i++)
        free(run->names[i]);
    free(run->names);
    xr_map_free(run->index);
    free(run->lines);
    free(run->values);
    free(run->name_of);
    free(run->dir);
    free(run->label);
    xr_settings_free(&run->settings);
    *run = (xr_ab_run){ .seed = 0 };
}

/* ---- samples ------------------------------------------------------------ */

static xray_status read_sample(const cJSON *json, const char *where,
                               xr_sample *out, xr_err *err)
{
    const char *prompt = NULL;
    const char *response = NULL;
    const char *truth = NULL;
    xray_status status = xr_json_string(json, "prompt", where, err, &prompt);
    if (status != XRAY_OK)
        return status;
    status = xr_json_string(json, "response", where, err, &response);
    if (status != XRAY_OK)
        return status;
    status = xr_json_string_or(json, "ground_truth", "", where, err, &truth);
    if (status != XRAY_OK)
        return status;
    status = xr_json_real_or(json, "score", NAN, where, err, &out->score);
    if (status != XRAY_OK)
        return status;
    out->prompt = xr_strdup(prompt);
    out->response = xr_strdup(response);
    out->truth = xr_strdup(truth);
    if (!out->prompt || !out->response || !out->truth)
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", where);
    return XRAY_OK;
}

/* A sample may hold NUL, which cannot be displayed: \u0000 becomes \ufffd. */
static void replace_escaped_nul(char *line, const char *end)
{
    for (char *at = line; at + 1 < end; at++) {
        if (*at != '\\')
            continue;
        if (end - at > 5 && memcmp(at + 1, "u0000", 5) == 0)
            memcpy(at + 2, "fffd", 4);
        at++;
    }
}

static xray_status parse_samples(char *text, const char *path,
                                 xr_sample_list *out, xr_err *err)
{
    char where[XR_PATH_CAP + 24];
    xray_status status = XRAY_OK;
    char *end = strchr(text, '\n');
    for (size_t number = 1; status == XRAY_OK && end; number++) {
        cJSON *json = NULL;
        replace_escaped_nul(text, end);
        (void)snprintf(where, sizeof(where), "%s:%zu", path, number);
        status = xr_json_parse(text, (size_t)(end - text), where, err, &json);
        if (status == XRAY_OK && !cJSON_IsObject(json))
            status = xr_fail(err, XRAY_E_IO, "%s: not a sample", where);
        if (status == XRAY_OK)
            status = read_sample(json, where, &out->items[out->count++], err);
        cJSON_Delete(json);
        text = end + 1;
        end = strchr(text, '\n');
    }
    return status;
}

/* Looks in the folder that `xray ab` uses, then in that of the INI. 1 if the
 * file exists. */
static int find_samples_file(const xr_ab_run *run, uint64_t step,
                             char *out_path)
{
    const char *set =
        xr_settings_get(&run->settings, "trainer.rollout_data_dir");
    for (int i = 0; i < 2; i++) {
        int n = snprintf(out_path, XR_PATH_CAP, "%s/%s/%llu.jsonl",
                         i ? "" : run->dir, i ? (set ? set : "") : "rollout",
                         (unsigned long long)step);
        if (n > 0 && n < (int)XR_PATH_CAP && xr_path_exists(out_path))
            return 1;
    }
    return 0;
}

xray_status xr_samples_read(const xr_ab_run *run, uint64_t step, xr_err *err,
                            xr_sample_list *out)
{
    char path[XR_PATH_CAP];
    char *text = NULL;
    size_t size = 0;
    *out = (xr_sample_list){ .count = 0 };
    if (!find_samples_file(run, step, path))
        return XRAY_OK;
    xray_status status = xr_file_read(path, MOST_BYTES, err, &text, &size);
    if (status != XRAY_OK)
        return status;
    out->items = xr_calloc(count_lines(text) + 1, sizeof(*out->items));
    status = out->items ? parse_samples(text, path, out, err)
                        : xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    free(text);
    if (status != XRAY_OK)
        xr_sample_list_free(out);
    return status;
}

void xr_sample_list_free(xr_sample_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->items[i].prompt);
        free(list->items[i].response);
        free(list->items[i].truth);
    }
    free(list->items);
    *list = (xr_sample_list){ .count = 0 };
}
