/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads comma-separated values and writes each record as a line of JSON.
 */
#include "core/data/csv.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/base/file_format.h"

/* The state of reading a text; `names` holds the header as JSON strings, each
 * ended by a NUL. */
typedef struct csv {
    const char *path;
    const char *at;
    const char *end;
    xr_err *err;
    char delimiter;
    size_t line;
    size_t row; /* 0: the header */
    size_t columns;
    xr_str names;
    xr_str field;
    int quoted; /* the field in hand was in quotes */
    int last;   /* the field in hand ended its record */
} csv;

XRAY_PRINTF(2, 3)
static xray_status fail_record(const csv *c, const char *fmt, ...)
{
    xr_err why = { "" };
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(why.text, sizeof why.text, fmt, args);
    va_end(args);
    if (!c->row)
        return xr_fail(c->err, XRAY_E_CONFIG, "%s: header (line %zu): %s",
                       c->path, c->line, why.text);
    return xr_fail(c->err, XRAY_E_CONFIG, "%s: row %zu (line %zu): %s", c->path,
                   c->row, c->line, why.text);
}

/* Moves past a line break, if there is one here. */
static int skip_break(csv *c)
{
    if (c->end - c->at >= 2 && c->at[0] == '\r' && c->at[1] == '\n')
        c->at++;
    if (c->at >= c->end || *c->at != '\n')
        return 0;
    c->at++;
    c->line++;
    return 1;
}

static xray_status read_quoted(csv *c)
{
    size_t opened = c->line;
    for (c->at++; c->at < c->end; c->at++) {
        if (*c->at == '"' && (c->end - c->at < 2 || c->at[1] != '"')) {
            c->at++;
            return XRAY_OK;
        }
        c->at += *c->at == '"';
        c->line += *c->at == '\n';
        xr_str_append(&c->field, c->at, 1);
    }
    return fail_record(c, "the quote that opens in line %zu is never closed",
                       opened);
}

static int is_utf8(const xr_str *text)
{
    const char *at = xr_str_text(text);
    const char *end = at + text->size;
    uint32_t code;
    while (at < end) {
        int size = *at ? xr_utf8_decode(at, end, &code) : 0;
        if (!size)
            return 0;
        at += size;
    }
    return 1;
}

static xray_status read_field(csv *c)
{
    xray_status status = XRAY_OK;
    xr_str_clear(&c->field);
    c->quoted = c->at < c->end && *c->at == '"';
    if (c->quoted) {
        status = read_quoted(c);
    } else {
        const char *from = c->at;
        while (c->at < c->end && *c->at != c->delimiter && *c->at != '\n' &&
               *c->at != '"')
            c->at++;
        const char *to = c->at;
        if (to > from && to < c->end && *to == '\n' && to[-1] == '\r')
            c->at = --to;
        xr_str_append(&c->field, from, (size_t)(to - from));
    }
    if (status != XRAY_OK)
        return status;
    c->last = c->at >= c->end || *c->at != c->delimiter;
    if (!c->last)
        c->at++;
    else if (c->at < c->end && *c->at == '"')
        return fail_record(c, "a quote within a field that has none around it; "
                              "write the field in quotes and its quotes twice");
    else if (c->at < c->end && !skip_break(c))
        return fail_record(c, "text after the closing quote of a field");
    if (!is_utf8(&c->field))
        return fail_record(c, "bytes that are not UTF-8, or a NUL; iconv -t "
                              "UTF-8 converts such a file");
    return XRAY_OK;
}

static xray_status read_header(csv *c)
{
    for (c->last = 0; !c->last;) {
        xray_status status = read_field(c);
        if (status != XRAY_OK)
            return status;
        xr_str_json(&c->names, xr_str_text(&c->field), c->field.size);
        xr_str_append(&c->names, "", 1);
        c->columns++;
    }
    return XRAY_OK;
}

static xray_status read_record(csv *c, xr_str *out)
{
    const char *name = xr_str_text(&c->names);
    size_t count = 0;
    for (c->last = 0; !c->last; count++) {
        xray_status status = read_field(c);
        if (status != XRAY_OK)
            return status;
        if (count == c->columns)
            return fail_record(c, "more fields than the %zu of the header",
                               c->columns);
        xr_str_puts(out, count ? "," : "{");
        xr_str_puts(out, name);
        xr_str_puts(out, ":");
        if (c->field.size || c->quoted)
            xr_str_json(out, xr_str_text(&c->field), c->field.size);
        else
            xr_str_puts(out, "null");
        name += strlen(name) + 1;
    }
    if (count < c->columns)
        return fail_record(c, "%zu of the header's %zu fields", count,
                           c->columns);
    xr_str_puts(out, "}\n");
    return XRAY_OK;
}

xray_status xr_csv_lines(const char *path, const char *text, size_t size,
                         char delimiter, const xray_call_service *calls,
                         xr_err *err, xr_str *out)
{
    csv c = { .path = path,
              .at = text + xr_bom_size(text, size),
              .end = text + size,
              .err = err,
              .delimiter = delimiter,
              .line = 1 };
    xray_status status = xr_format_check(text, size, path, err);
    while (status == XRAY_OK && c.at < c.end) {
        if (skip_break(&c))
            continue;
        status = xr_stop_check(calls, err);
        if (status == XRAY_OK)
            status = c.columns ? read_record(&c, out) : read_header(&c);
        c.row++;
    }
    if (status == XRAY_OK && (out->failed || c.names.failed || c.field.failed))
        status = xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", path);
    xr_str_free(&c.names);
    xr_str_free(&c.field);
    return status;
}
