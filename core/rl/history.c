/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/history.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/str.h"

#define VERSION 1

xray_status xr_history_begin(xr_err *err, xr_history *out)
{
    uint64_t number = 0;
    *out = (xr_history){ .has_lines = 0 };
    if (getrandom(&number, sizeof(number), 0) != (ssize_t)sizeof(number))
        return xr_fail(err, XRAY_E_IO, "no random number for the run: %s",
                       strerror(errno));
    (void)snprintf(out->run, sizeof(out->run), "%016llx",
                   (unsigned long long)number);
    return XRAY_OK;
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

static xray_status read_lines(const cJSON *json, const char *where, xr_err *err,
                              xr_history *out)
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
        status = read_lines(json, path, err, out);
    if (status == XRAY_OK)
        (void)snprintf(out->run, sizeof(out->run), "%s", run);
    cJSON_Delete(json);
    return status;
}

int xr_history_same_run(const char *dir, const char *other)
{
    xr_history a;
    xr_history b;
    return xr_history_read(dir, NULL, &a) == XRAY_OK &&
           xr_history_read(other, NULL, &b) == XRAY_OK &&
           strcmp(a.run, b.run) == 0;
}
