/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the rows in data files of every format.
 */
#include "core/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/base/file_format.h"
#include "core/base/jsoncheck.h"
#include "core/base/str.h"
#include "core/data/columns.h"
#include "core/data/csv.h"
#include "core/data/text_file.h"

enum { FORM_LINES, FORM_ROWS, FORM_ARRAY, FORM_ENDED };

/* ---- names -------------------------------------------------------------- */

static int ends_with(const char *path, size_t size, const char *end)
{
    size_t length = strlen(end);
    return size > length && strncasecmp(path + size - length, end, length) == 0;
}

xr_format xr_format_of(const char *path)
{
    static const struct {
        const char *end;
        xr_format format;
    } ends[] = {
        { ".jsonl", XR_FORMAT_LINES }, { ".ndjson", XR_FORMAT_LINES },
        { ".json", XR_FORMAT_JSON },   { ".csv", XR_FORMAT_CSV },
        { ".tsv", XR_FORMAT_TSV },     { ".parquet", XR_FORMAT_PARQUET },
        { ".arrow", XR_FORMAT_ARROW }, { ".feather", XR_FORMAT_ARROW }
    };
    size_t size = strlen(path);
    if (ends_with(path, size, ".gz"))
        size -= 3;
    else if (ends_with(path, size, ".zst"))
        size -= 4;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (ends_with(path, size, ends[i].end))
            return ends[i].format;
    return XR_FORMAT_NONE;
}

/* ---- JSON arrays -------------------------------------------------------- */

static char *skip_blanks(char *at, const char *end)
{
    while (at < end && *at && strchr(" \t\r\n", *at))
        at++;
    return at;
}

/* Returns the end of a string that begins here; `end` if it is not closed. */
static char *skip_string(char *at, char *end)
{
    for (at++; at < end && *at != '"'; at++)
        at += *at == '\\' && at + 1 < end;
    return at < end ? at + 1 : end;
}

/* Returns the end of the JSON value that begins here, by its brackets and
 * quotes alone, or NULL if the text ends within it. Line breaks between tokens
 * become blanks, so that the value is one line. */
static char *skip_value(char *at, char *end)
{
    size_t depth = 0;
    do {
        if (at >= end)
            return NULL;
        if (*at == '"') {
            at = skip_string(at, end);
            if (at[-1] != '"')
                return NULL;
            continue;
        }
        depth += *at == '{' || *at == '[';
        depth -= depth && (*at == '}' || *at == ']');
        if (*at == '\n' || *at == '\r')
            *at = ' ';
        at++;
    } while (depth || (at < end && !strchr(",]} \t\r\n\"{[", *at)));
    return at;
}

/* Moves past what follows an entry: a comma, or the array's end. */
static xray_status end_entry(xr_source *s, xr_err *err)
{
    char *at = skip_blanks(s->at, s->end);
    if (at < s->end && *at == ',') {
        s->at = at + 1;
        return XRAY_OK;
    }
    if (at >= s->end || *at != ']')
        return xr_fail(err, XRAY_E_CONFIG,
                       at >= s->end
                           ? "%s: the file ends within the array, after row %zu"
                           : "%s: expected ',' or ']' after row %zu",
                       s->path, s->number);
    s->at = at + 1;
    if (s->form == FORM_ARRAY && skip_blanks(s->at, s->end) < s->end)
        return xr_fail(err, XRAY_E_CONFIG, "%s: text after the array's end",
                       s->path);
    s->form = FORM_ENDED;
    return XRAY_OK;
}

static xray_status next_entry(xr_source *s, xr_err *err, char **out_line,
                              size_t *out_size)
{
    char *from = skip_blanks(s->at, s->end);
    s->at = from;
    if (!s->number && from < s->end && *from == ']') {
        xray_status status = end_entry(s, err);
        return status == XRAY_OK ? XRAY_END : status;
    }
    (void)snprintf(s->where, sizeof s->where, "%s: row %zu", s->path,
                   ++s->number);
    if (from < s->end && *from != '{')
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s: each entry of the array must be an object",
                       s->where);
    char *to = skip_value(from, s->end);
    if (!to)
        return xr_fail(err, XRAY_E_CONFIG, "%s: the file ends within the row",
                       s->where);
    s->at = to;
    xray_status status = end_entry(s, err);
    if (status != XRAY_OK)
        return status;
    *to = '\0';
    *out_line = from;
    *out_size = (size_t)(to - from);
    return XRAY_OK;
}

/* Returns the array that is the member "data" of an object, or NULL. The text
 * is valid JSON, or nothing that matters is found. */
static char *find_data_array(char *at, char *end)
{
    at = skip_blanks(at + 1, end);
    while (at < end && *at == '"') {
        char *name = at;
        at = skip_string(at, end);
        int found = at - name == 6 && memcmp(name, "\"data\"", 6) == 0;
        at = skip_blanks(at, end);
        at = at < end && *at == ':' ? skip_blanks(at + 1, end) : end;
        if (found)
            return at < end && *at == '[' ? at : NULL;
        at = skip_value(at, end);
        at = at ? skip_blanks(at, end) : end;
        at = at < end && *at == ',' ? skip_blanks(at + 1, end) : end;
    }
    return NULL;
}

/* Recognises an array of rows. An object is only searched for one if the whole
 * file is that object; otherwise it is the first of several lines. */
static void find_array(xr_source *s)
{
    char *from = skip_blanks(s->at, s->end);
    if (from < s->end && *from == '[') {
        s->form = FORM_ARRAY;
        s->at = from + 1;
        return;
    }
    size_t size = (size_t)(s->end - from);
    if (!size || *from != '{' || xr_format_of(s->path) != XR_FORMAT_JSON ||
        xr_json_check(from, size, s->path, NULL) != XRAY_OK)
        return;
    char *array = find_data_array(from, s->end);
    if (!array)
        return;
    /* What follows the array has been checked with the object. */
    char *after = skip_value(array, s->end);
    s->form = FORM_ARRAY;
    s->at = array + 1;
    s->end = after ? after : s->end;
}

/* ---- lines -------------------------------------------------------------- */

/* Finds the next line that is not blank, without the blanks around it. */
static xray_status next_line(xr_source *s, char **out_line, size_t *out_size)
{
    while (s->at < s->end) {
        char *line = s->at;
        char *stop = memchr(line, '\n', (size_t)(s->end - line));
        stop = stop ? stop : s->end;
        s->at = stop + 1;
        s->number++;
        while (line < stop && *line && strchr(" \t\r", *line))
            line++;
        while (stop > line && stop[-1] && strchr(" \t\r", stop[-1]))
            stop--;
        if (stop == line)
            continue;
        (void)snprintf(s->where, sizeof s->where,
                       s->form == FORM_LINES ? "%s:%zu" : "%s: row %zu",
                       s->path, s->number);
        *stop = '\0';
        *out_line = line;
        *out_size = (size_t)(stop - line);
        return XRAY_OK;
    }
    return XRAY_END;
}

xray_status xr_source_next(xr_source *s, xr_err *err, char **out_line,
                           size_t *out_size)
{
    if (s->form == FORM_ENDED)
        return XRAY_END;
    if (s->form == FORM_ARRAY)
        return next_entry(s, err, out_line, out_size);
    return next_line(s, out_line, out_size);
}

/* ---- open --------------------------------------------------------------- */

/* Replaces the text by lines of JSON. */
static xray_status read_csv(xr_source *s, char delimiter, size_t *size,
                            const xray_call_service *calls, xr_err *err)
{
    xr_str lines = { 0 };
    xray_status status =
        xr_csv_lines(s->path, s->text, *size, delimiter, calls, err, &lines);
    if (status != XRAY_OK) {
        xr_str_free(&lines);
        return status;
    }
    free(s->text);
    s->text = lines.data;
    *size = lines.size;
    s->form = FORM_ROWS;
    return XRAY_OK;
}

xray_status xr_source_open(const char *path, const xray_call_service *calls,
                           xr_err *err, xr_source *out)
{
    size_t size = 0;
    xr_format format = xr_format_of(path);
    *out = (xr_source){ .path = path, .form = FORM_LINES };
    int columns = 0;
    xray_status status = xr_columns_find(path, err, &columns);
    if (status == XRAY_OK)
        status = columns ? xr_columns_read(path, calls, err, &out->text, &size)
                         : xr_text_read(path, calls, err, &out->text, &size);
    if (columns)
        out->form = FORM_ROWS;
    else if (status == XRAY_OK &&
             (format == XR_FORMAT_CSV || format == XR_FORMAT_TSV))
        status = read_csv(out, format == XR_FORMAT_CSV ? ',' : '\t', &size,
                          calls, err);
    if (status != XRAY_OK) {
        xr_source_close(out);
        return status;
    }
    if (out->text) {
        out->at = out->text + xr_bom_size(out->text, size);
        out->end = out->text + size;
    }
    if (out->form == FORM_LINES)
        find_array(out);
    return XRAY_OK;
}

void xr_source_close(xr_source *s)
{
    free(s->text);
    s->text = s->at = s->end = NULL;
}
