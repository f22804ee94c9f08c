/* SPDX-License-Identifier: Apache-2.0
 *
 * xray data convert: rows of every form become one file of JSON lines, which is
 * complete or absent.
 */
#include <stdio.h>

#include "core/base/json.h"
#include "core/cli/cli.h"
#include "core/cli/stop.h"
#include "core/data/file_list.h"
#include "core/data/source.h"
#include "core/data/text_out.h"
#include "core/plugin/cancel.h"

typedef struct conversion {
    const char *to;
    xr_file_list files;
    xr_text_out out;
    uint64_t rows;
} conversion;

static xray_status check_target(const char *to, xr_err *err)
{
    if (xr_format_of(to) != XR_FORMAT_LINES)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: the rows become JSON lines; expected a name in "
                       ".jsonl or .ndjson, with .gz or .zst after it or not",
                       to);
    if (xr_path_exists(to))
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: already exists; a conversion overwrites nothing",
                       to);
    return XRAY_OK;
}

/* A row that no run would read is refused, so it does not lie hidden in the new
 * file under another line number. */
static xray_status write_row(conversion *c, const xr_source *source, char *line,
                             size_t size, xr_err *err)
{
    cJSON *json = NULL;
    xray_status status = xr_json_line(line, size, source->where, err, &json);
    cJSON_Delete(json);
    if (status == XRAY_OK)
        status = xr_text_append(&c->out, line, size, err);
    if (status == XRAY_OK)
        status = xr_text_append(&c->out, "\n", 1, err);
    c->rows++;
    return status;
}

static xray_status write_file(conversion *c, const char *path, xr_err *err)
{
    xr_source source;
    xray_status status = xr_source_open(path, &xr_cancel_service, err, &source);
    if (status != XRAY_OK)
        return status;
    for (;;) {
        char *line = NULL;
        size_t size = 0;
        status = xr_cancel_check(err);
        if (status == XRAY_OK)
            status = xr_source_next(&source, err, &line, &size);
        if (status == XRAY_OK)
            status = write_row(c, &source, line, size, err);
        if (status != XRAY_OK)
            break;
    }
    xr_source_close(&source);
    return status == XRAY_END ? XRAY_OK : status;
}

static xray_status write_files(conversion *c, xr_err *err)
{
    xray_status status = xr_text_begin(c->to, err, &c->out);
    if (status != XRAY_OK)
        return status;
    for (uint64_t i = 0; i < c->files.count && status == XRAY_OK; i++)
        status = write_file(c, c->files.items[i], err);
    if (status == XRAY_OK && !c->rows)
        status = xr_fail(err, XRAY_E_CONFIG, "%s: there are no rows",
                         c->files.items[0]);
    if (status == XRAY_OK)
        return xr_text_finish(&c->out, err);
    xr_text_drop(&c->out);
    return status;
}

static int run_data_convert(const cli_args *args)
{
    xr_err err = { "" };
    size_t last = args->words.count - 1;
    const xray_list names = { args->words.items, last };
    conversion c = { .to = args->words.items[last] };
    cli_stop_catch();
    xray_status status = check_target(c.to, &err);
    if (status == XRAY_OK)
        status = xr_file_list_find(&names, &err, &c.files);
    if (status == XRAY_OK)
        status = write_files(&c, &err);
    if (status == XRAY_OK)
        (void)printf("%s: %llu rows of %llu files\n", c.to,
                     (unsigned long long)c.rows,
                     (unsigned long long)c.files.count);
    xr_file_list_free(&c.files);
    if (status != XRAY_E_CANCELED)
        return status == XRAY_OK ? CLI_OK : cli_fail(status, &err);
    cli_say("the conversion was stopped; %s was not made", c.to);
    return cli_stop_code();
}

static const cli_flag flags[] = { { 0 } };

const cli_command cli_data_convert = {
    .name = "data convert",
    .usage = "FILE... OUT",
    .summary = "rows of every form to JSON lines",
    .about =
        "A FILE is anything that [data] train_files takes: Parquet, Arrow, "
        "CSV, a JSON\narray, JSON lines, a folder of them, a pattern. OUT "
        "is a new file in .jsonl, with\n.gz or .zst after it or not, that "
        "holds the rows of all of them in their order.",
    .examples = "  xray data convert train.parquet train.jsonl\n"
                "  xray data convert math gsm8k.csv.gz all.jsonl.zst\n",
    .flags = flags,
    .min_words = 2,
    .max_words = SIZE_MAX,
    .run = run_data_convert,
};
