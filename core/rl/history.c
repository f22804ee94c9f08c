/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads and writes history.json, the record of which run wrote a checkpoint.
 */
#include "core/rl/history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/json.h"
#include "core/base/str.h"
#include "core/plugin/cancel.h"

#define VERSION 1

xray_status xr_history_begin(xr_err *err, xr_history *out)
{
    uint64_t number = 0;
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return xr_fail(err, XRAY_E_IO, "no random number for the run: %s",
                       strerror(errno));
    (void)snprintf(out->run, sizeof(out->run), "%016llx",
                   (unsigned long long)number);
    return XRAY_OK;
}

void xr_history_free(xr_history *history)
{
    for (size_t i = 0; i < history->input_count; i++) {
        free(history->inputs[i].key);
        free(history->inputs[i].path);
    }
    free(history->inputs);
    *history = (xr_history){ .has_lines = 0 };
}

static xray_status append_input(xr_history *history, const char *key,
                                const char *path, uint64_t hash, xr_err *err)
{
    xr_input *more =
        realloc(history->inputs, (history->input_count + 1) * sizeof(*more));
    if (!more)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", path);
    history->inputs = more;
    xr_input *input = &more[history->input_count++];
    *input = (xr_input){ xr_strdup(key), xr_strdup(path), hash };
    return input->key && input->path
               ? XRAY_OK
               : xr_fail(err, XRAY_E_NOMEM, "out of memory for %s", path);
}

xray_status xr_history_input(xr_history *history, const char *key,
                             const char *path, xr_err *err)
{
    struct stat info;
    xr_map_file map;
    if (stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return XRAY_OK;
    xray_status status = xr_file_map(path, err, &map);
    if (status != XRAY_OK)
        return status;
    uint64_t hash = 0;
    status = xr_hash64_long(map.data, map.size, &xr_cancel_service, err, &hash);
    if (status == XRAY_OK)
        status = append_input(history, key, path, hash, err);
    xr_file_unmap(&map);
    return status;
}

static void print_inputs(const xr_history *history, xr_str *out)
{
    xr_str_puts(out, ",\n \"inputs\": [");
    for (size_t i = 0; i < history->input_count; i++) {
        const xr_input *input = &history->inputs[i];
        xr_str_puts(out, i ? ",\n  {\"key\": " : "\n  {\"key\": ");
        xr_str_json(out, input->key, strlen(input->key));
        xr_str_puts(out, ", \"path\": ");
        xr_str_json(out, input->path, strlen(input->path));
        xr_str_printf(out, ", \"xxh64\": \"%016llx\"}",
                      (unsigned long long)input->hash);
    }
    xr_str_puts(out, "]");
}

xray_status xr_history_write(const char *dir, const xr_history *history,
                             xr_err *err)
{
    char path[XR_PATH_CAP];
    xr_str out = { 0 };
    xr_str_printf(&out, "{\"version\": %d, \"run\": \"%s\"", VERSION,
                  history->run);
    if (history->has_lines)
        xr_str_printf(&out,
                      ", \"lines\": \"%llu\", \"lines_xxh64\": \"%016llx\"",
                      (unsigned long long)history->lines.count,
                      (unsigned long long)history->lines.hash);
    print_inputs(history, &out);
    xr_str_puts(&out, "}\n");
    xray_status status =
        out.failed
            ? xr_fail(err, XRAY_E_NOMEM, "out of memory for " XR_HISTORY_FILE)
            : xr_path_join(dir, XR_HISTORY_FILE, path, sizeof(path), err);
    if (status == XRAY_OK)
        status = xr_file_write(path, out.data, out.size, err);
    xr_str_free(&out);
    return status;
}

static xray_status read_metrics_mark(const cJSON *json, const char *where,
                                     xr_err *err, xr_history *out)
{
    const char *count = "";
    const char *hash = "";
    int64_t lines = 0;
    xray_status status =
        xr_json_string_or(json, "lines", "", where, err, &count);
    if (status == XRAY_OK)
        status = xr_json_string_or(json, "lines_xxh64", "", where, err, &hash);
    if (status != XRAY_OK || (!*count && !*hash))
        return status;
    if (xr_parse_int(count, &lines) != 0 || lines < 0)
        return xr_fail(err, XRAY_E_IO, "%s: lines is \"%s\", expected a count",
                       where, count);
    if (xr_parse_hex64(hash, &out->lines.hash) != 0)
        return xr_fail(err, XRAY_E_IO,
                       "%s: lines_xxh64 is \"%s\", expected 16 hexadecimal "
                       "digits",
                       where, hash);
    out->lines.count = (uint64_t)lines;
    out->has_lines = 1;
    return XRAY_OK;
}

static xray_status read_inputs(const cJSON *json, const char *where,
                               xr_err *err, xr_history *out)
{
    const cJSON *list = xr_json_get(json, "inputs");
    const cJSON *item = NULL;
    if (!cJSON_IsArray(list))
        return xr_fail(err, XRAY_E_IO, "%s: inputs is no list", where);
    cJSON_ArrayForEach(item, list)
    {
        const char *key = NULL;
        const char *path = NULL;
        const char *hash = NULL;
        uint64_t number = 0;
        xray_status status = xr_json_string(item, "key", where, err, &key);
        if (status == XRAY_OK)
            status = xr_json_string(item, "path", where, err, &path);
        if (status == XRAY_OK)
            status = xr_json_string(item, "xxh64", where, err, &hash);
        if (status == XRAY_OK && xr_parse_hex64(hash, &number) != 0)
            status = xr_fail(err, XRAY_E_IO,
                             "%s: xxh64 of %s is \"%s\", expected 16 "
                             "hexadecimal digits",
                             where, path, hash);
        if (status == XRAY_OK)
            status = append_input(out, key, path, number, err);
        if (status != XRAY_OK)
            return status;
    }
    return XRAY_OK;
}

xray_status xr_history_read(const char *dir, xr_err *err, xr_history *out)
{
    char path[XR_PATH_CAP];
    cJSON *json = NULL;
    int64_t version = 0;
    uint64_t number = 0;
    const char *run = "";
    *out = (xr_history){ .has_lines = 0 };
    xray_status status =
        xr_path_join(dir, XR_HISTORY_FILE, path, sizeof(path), err);
    if (status != XRAY_OK || !xr_path_exists(path))
        return status;
    status = xr_json_file(path, err, &json);
    if (status == XRAY_OK)
        status = xr_json_int(json, "version", path, err, &version);
    if (status == XRAY_OK && version != VERSION)
        status =
            xr_fail(err, XRAY_E_IO, "%s: version is %lld, this xray reads %d",
                    path, (long long)version, VERSION);
    if (status == XRAY_OK)
        status = xr_json_string(json, "run", path, err, &run);
    if (status == XRAY_OK && xr_parse_hex64(run, &number) != 0)
        status = xr_fail(err, XRAY_E_IO,
                         "%s: run is \"%s\", expected 16 hexadecimal digits",
                         path, run);
    if (status == XRAY_OK)
        status = read_metrics_mark(json, path, err, out);
    if (status == XRAY_OK)
        status = read_inputs(json, path, err, out);
    if (status == XRAY_OK)
        (void)snprintf(out->run, sizeof(out->run), "%s", run);
    cJSON_Delete(json);
    if (status != XRAY_OK)
        xr_history_free(out);
    return status;
}

int xr_history_of_run(const char *dir, const char *run)
{
    xr_history history;
    if (xr_history_read(dir, NULL, &history) != XRAY_OK)
        return 0;
    int same = strcmp(history.run, run) == 0;
    xr_history_free(&history);
    return same;
}

int xr_history_same_run(const char *dir, const char *other)
{
    xr_history history;
    if (xr_history_read(other, NULL, &history) != XRAY_OK)
        return 0;
    int same = xr_history_of_run(dir, history.run);
    xr_history_free(&history);
    return same;
}
