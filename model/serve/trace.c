/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a file of events in Chrome's trace format.
 */
#include "model/serve/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "core/base/system_error.h"

struct xm_trace {
    char *path;
    xr_file_out file;
    xr_str text; /* not yet written */
    double start;
    uint32_t rank;
    uint32_t failed; /* 1: nothing is written any more */
};

static char *name_file(const char *path, uint32_t rank)
{
    xr_str name = { 0 };
    xr_str_puts(&name, path);
    if (rank)
        xr_str_printf(&name, ".%" PRIu32, rank);
    if (!name.failed)
        return name.data;
    xr_str_free(&name);
    return NULL;
}

static void free_trace(xm_trace *trace)
{
    xr_file_drop(&trace->file);
    xr_str_free(&trace->text);
    free(trace->path);
    free(trace);
}

xray_status xm_trace_check(const char *path, xr_err *err)
{
    char *folder = xr_path_parent(path);
    xray_status status = XRAY_OK;
    if (!folder)
        status = xr_fail(err, XRAY_E_NOMEM, "no memory for a path");
    else if (xr_path_is_dir(path))
        status =
            xr_fail_key(err, XRAY_E_CONFIG, NULL, "trace",
                        " = %s, a file was expected: this is a folder", path);
    else if (!xr_path_is_dir(folder))
        status = xr_fail_key(err, XRAY_E_CONFIG, NULL, "trace",
                             " = %s: there is no folder %s", path, folder);
    free(folder);
    return status;
}

xray_status xm_trace_open(const char *path, uint32_t rank, const char *name,
                          xr_err *err, xm_trace **out)
{
    xm_trace *t = xr_calloc(1, sizeof(*t));
    char *own = name_file(path, rank);
    if (!t || !own) {
        free(t);
        free(own);
        return xr_fail(err, XRAY_E_NOMEM, "no memory for a trace");
    }
    *t = (xm_trace){ .path = own, .start = xr_now(), .rank = rank };
    t->file.path = own;
    t->file.fd =
        open(own, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOCTTY, 0666);
    if (t->file.fd < 0) {
        xray_status status =
            xr_fail(err, XRAY_E_IO, "%s: cannot open the trace: %s", own,
                    XR_SYSTEM_ERROR(errno));
        free_trace(t);
        return status;
    }
    xm_trace_add(t, 'M', 0, "process_name",
                 ",\"args\":{\"name\":\"%s, rank %" PRIu32 "\"}", name, rank);
    xray_status status = xm_trace_flush(t, err);
    if (status != XRAY_OK) {
        free_trace(t);
        return status;
    }
    *out = t;
    return XRAY_OK;
}

double xm_trace_now(const xm_trace *trace)
{
    return 1e6 * (xr_now() - trace->start);
}

void xm_trace_add(xm_trace *trace, char phase, double at, const char *name,
                  const char *rest, ...)
{
    char members[512];
    va_list args;
    if (trace->failed)
        return;
    va_start(args, rest);
    (void)vsnprintf(members, sizeof(members), rest, args);
    va_end(args);
    /* The first event opens the array. */
    xr_str_printf(&trace->text,
                  "%s{\"name\":\"%s\",\"ph\":\"%c\",\"pid\":%" PRIu32
                  ",\"tid\":0,\"ts\":%" PRIu64 "%s}",
                  phase == 'M' ? "[\n" : ",\n", name, phase, trace->rank,
                  (uint64_t)at, members);
}

xray_status xm_trace_flush(xm_trace *trace, xr_err *err)
{
    if (trace->failed)
        return XRAY_OK;
    xray_status status = trace->text.failed
                             ? xr_fail(err, XRAY_E_NOMEM,
                                       "%s: no memory for a trace", trace->path)
                             : xr_file_append(&trace->file, trace->text.data,
                                              trace->text.size, err);
    xr_str_clear(&trace->text);
    trace->failed = status != XRAY_OK;
    return status;
}

xray_status xm_trace_close(xm_trace *trace, xr_err *err)
{
    if (!trace)
        return XRAY_OK;
    xr_str_puts(&trace->text, "\n]\n");
    xray_status status = xm_trace_flush(trace, err);
    free_trace(trace);
    return status;
}
