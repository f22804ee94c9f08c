/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a step's metrics to the progress line and to metrics.jsonl, and cuts
 * that file back for a resumed run.
 */
#include "core/monitor/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/hash.h"
#include "core/base/system_error.h"
#include "core/monitor/metrics.h"

/* Seconds between progress lines where they cannot be overwritten. */
static const double PLAIN_INTERVAL = 1.0;

struct xr_monitor {
    int file; /* -1: none */
    char *path;
    off_t size; /* bytes of complete lines */
    xr_metrics_mark lines;
    int console;
    int terminal;
    int shown; /* 1: a progress line is on the terminal */
    const char *const *watch;
    double started;
    double printed; /* time of the last progress line; 0: none yet */
    uint64_t first_step;
    int stepped;
    xr_str line;
    xr_str progress;
};

/* ---- the file ----------------------------------------------------------- */

/* Returns the step of a line; -1 if it is not a line of metrics. */
static int64_t parse_line_step(const char *line, const char *end)
{
    const char *const prefix = "{\"step\":";
    size_t size = strlen(prefix);
    if ((size_t)(end - line) <= size || memcmp(line, prefix, size) != 0)
        return -1;
    char digits[24];
    size_t n = 0;
    for (line += size; line < end && n + 1 < sizeof digits; line++) {
        if (*line < '0' || *line > '9')
            break;
        digits[n++] = *line;
    }
    digits[n] = '\0';
    int64_t step;
    if (line == end || (*line != ',' && *line != '}') ||
        xr_parse_int(digits, &step))
        return -1;
    return step;
}

static void hash_line(xr_metrics_mark *mark, const char *line, size_t size)
{
    mark->hash = xr_hash64(line, size, mark->hash);
    mark->count++;
}

/* Computes the bytes to keep: complete lines up to `keep_step` (negative:
 * all). */
static xray_status measure_kept(const char *path, int64_t keep_step,
                                xr_err *err, off_t *out, xr_metrics_mark *mark)
{
    xr_map_file map;
    xray_status status = xr_file_map(path, err, &map);
    if (status != XRAY_OK)
        return status;
    const char *text = (const char *)map.data;
    size_t kept = 0;
    while (kept < map.size) {
        const char *line = text + kept;
        const char *end = memchr(line, '\n', map.size - kept);
        if (!end)
            break; /* torn by a kill */
        int64_t step = parse_line_step(line, end);
        if (step < 0) {
            status = xr_fail(
                err, XRAY_E_CONFIG,
                "%s:%llu: not a line of metrics; the file is left unchanged",
                path, (unsigned long long)mark->count + 1);
            break;
        }
        if (keep_step >= 0 && step > keep_step)
            break;
        hash_line(mark, line, (size_t)(end + 1 - line));
        kept = (size_t)(end + 1 - text);
    }
    xr_file_unmap(&map);
    *out = (off_t)kept;
    return status;
}

/* Returns the number of the first line, from 1, whose step does not follow the
 * previous line's; 0 if there is none. `out_steps` receives both steps. */
static uint64_t find_out_of_order(const char *text, size_t size, uint64_t lines,
                                  int64_t *out_steps)
{
    out_steps[1] = -1;
    for (uint64_t number = 1; number <= lines; number++) {
        const char *end = memchr(text, '\n', size);
        out_steps[0] = out_steps[1];
        out_steps[1] = end ? parse_line_step(text, end) : -1;
        if (out_steps[1] <= out_steps[0])
            return number;
        size -= (size_t)(end + 1 - text);
        text = end + 1;
    }
    return 0;
}

/* Computes the bytes of the marked lines; an error if the file's lines differ
 * from the mark. */
static xray_status compare_lines(const char *path, const xr_map_file *map,
                                 const xr_metrics_mark *mark, size_t *out_size,
                                 xr_err *err)
{
    const char *text = (const char *)map->data;
    xr_metrics_mark found = { 0 };
    size_t at = 0;
    int64_t steps[2];
    while (found.count < mark->count && at < map->size) {
        const char *end = memchr(text + at, '\n', map->size - at);
        if (!end)
            break;
        size_t size = (size_t)(end + 1 - (text + at));
        hash_line(&found, text + at, size);
        at += size;
    }
    *out_size = at;
    if (found.count < mark->count)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s has %llu complete lines, but the checkpoint was "
                       "written with %llu",
                       path, (unsigned long long)found.count,
                       (unsigned long long)mark->count);
    if (found.hash == mark->hash)
        return XRAY_OK;
    uint64_t wrong = find_out_of_order(text, at, mark->count, steps);
    if (wrong && steps[1] >= 0)
        return xr_fail(err, XRAY_E_CONFIG,
                       "%s:%llu: step %lld follows step %lld; the file was "
                       "changed after the checkpoint was written",
                       path, (unsigned long long)wrong, (long long)steps[1],
                       (long long)steps[0]);
    return xr_fail(err, XRAY_E_CONFIG,
                   "%s: the first %llu lines differ from those that the "
                   "checkpoint was written with",
                   path, (unsigned long long)mark->count);
}

xray_status xr_metrics_cut(const char *path, const xr_metrics_mark *mark,
                           xr_err *err)
{
    xr_map_file map;
    size_t size = 0;
    if (!xr_path_exists(path))
        return mark->count ? xr_fail(err, XRAY_E_CONFIG,
                                     "%s is missing, but the checkpoint was "
                                     "written with %llu lines in it",
                                     path, (unsigned long long)mark->count)
                           : XRAY_OK;
    xray_status status = xr_file_map(path, err, &map);
    if (status != XRAY_OK)
        return status;
    status = compare_lines(path, &map, mark, &size, err);
    int cut = status == XRAY_OK && size < map.size;
    xr_file_unmap(&map);
    if (cut && truncate(path, (off_t)size) != 0)
        status =
            xr_fail(err, XRAY_E_IO, "%s: %s", path, XR_SYSTEM_ERROR(errno));
    return status;
}

static xray_status open_metrics_file(xr_monitor *m, const char *path,
                                     int64_t keep_step, xr_err *err)
{
    m->path = xr_strdup(path);
    if (!m->path)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    m->file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK,
                   0644);
    if (m->file < 0)
        return xr_fail(err, XRAY_E_IO, "%s: %s", path, XR_SYSTEM_ERROR(errno));
    struct stat info;
    if (fstat(m->file, &info) == 0 && info.st_size == 0)
        return XRAY_OK;
    xray_status status =
        measure_kept(path, keep_step, err, &m->size, &m->lines);
    if (status == XRAY_OK && ftruncate(m->file, m->size))
        status =
            xr_fail(err, XRAY_E_IO, "%s: %s", path, XR_SYSTEM_ERROR(errno));
    return status;
}

/* After an error, the file ends with its last complete line and is not written
 * any more. */
static xray_status stop_writing(xr_monitor *m, int code, xr_err *err)
{
    int cut = ftruncate(m->file, m->size);
    (void)close(m->file);
    m->file = -1;
    return xr_fail(err, XRAY_E_IO, "%s: %s%s", m->path, XR_SYSTEM_ERROR(code),
                   cut ? " (an incomplete last line remains)" : "");
}

static xray_status write_metrics_line(xr_monitor *m, xr_err *err)
{
    const char *at = m->line.data;
    size_t left = m->line.size;
    while (left) {
        ssize_t n = write(m->file, at, left);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return stop_writing(m, n < 0 ? errno : ENOSPC, err);
        at += n;
        left -= (size_t)n;
    }
    m->size += (off_t)m->line.size;
    hash_line(&m->lines, m->line.data, m->line.size);
    return XRAY_OK;
}

static xray_status write_step(xr_monitor *m, uint64_t step,
                              const xr_metrics *metrics, xr_err *err)
{
    xr_str *line = &m->line;
    xr_str_clear(line);
    xr_str_printf(line, "{\"step\":%llu", (unsigned long long)step);
    for (size_t i = 0; i < xr_metrics_count(metrics); i++) {
        const char *name = xr_metrics_name(metrics, i);
        xr_str_append(line, ",", 1);
        xr_str_json(line, name, strlen(name));
        xr_str_append(line, ":", 1);
        xr_str_number(line, xr_metrics_value(metrics, i));
    }
    xr_str_puts(line, "}\n");
    if (line->failed || xr_metrics_failed(metrics))
        return xr_fail(err, XRAY_E_NOMEM, "%s: out of memory", m->path);
    return write_metrics_line(m, err);
}

/* ---- the progress line -------------------------------------------------- */

static void append_eta(xr_monitor *m, uint64_t step, uint64_t total,
                       xr_str *out)
{
    if (total <= step || step < m->first_step)
        return;
    double done = (double)(step - m->first_step + 1);
    double seconds =
        (xr_now() - m->started) / done * (double)(total - step) + 0.5;
    if (!(seconds < 1e8))
        return;
    unsigned long total_seconds = (unsigned long)seconds;
    if (total_seconds >= 3600)
        xr_str_printf(out, "  eta %lu:%02lu:%02lu", total_seconds / 3600,
                      total_seconds / 60 % 60, total_seconds % 60);
    else
        xr_str_printf(out, "  eta %lu:%02lu", total_seconds / 60,
                      total_seconds % 60);
}

static void append_step(uint64_t step, uint64_t total, xr_str *out)
{
    xr_str_printf(out, "step %llu", (unsigned long long)step);
    if (total)
        xr_str_printf(out, "/%llu", (unsigned long long)total);
}

static void format_progress(xr_monitor *m, uint64_t step, uint64_t total,
                            const xr_metrics *metrics)
{
    xr_str *out = &m->progress;
    xr_str_clear(out);
    append_step(step, total, out);
    for (const char *const *name = m->watch; name && *name; name++) {
        double value = xr_metrics_get(metrics, *name);
        if (!isnan(value))
            xr_str_printf(out, "  %s %.4g", *name, value);
    }
    append_eta(m, step, total, out);
}

static void show_progress(xr_monitor *m, int last)
{
    double now = xr_now();
    if (m->terminal) {
        (void)fprintf(stderr, "\r\033[K%s", xr_str_text(&m->progress));
        m->shown = 1;
    } else if (last || m->printed == 0 || now - m->printed >= PLAIN_INTERVAL) {
        (void)fprintf(stderr, "%s\n", xr_str_text(&m->progress));
        m->printed = now;
    }
    (void)fflush(stderr);
}

/* ---- calls -------------------------------------------------------------- */

xray_status xr_monitor_open(const char *jsonl, int64_t keep_step, int console,
                            const char *const *watch, xr_err *err,
                            xr_monitor **out)
{
    xr_monitor *m = xr_calloc(1, sizeof *m);
    if (!m)
        return xr_fail(err, XRAY_E_NOMEM, "out of memory");
    m->file = -1;
    m->console = console;
    m->terminal = console && isatty(STDERR_FILENO);
    m->watch = watch;
    m->started = xr_now();
    xray_status status =
        jsonl ? open_metrics_file(m, jsonl, keep_step, err) : XRAY_OK;
    if (status != XRAY_OK) {
        xr_monitor_close(m);
        return status;
    }
    *out = m;
    return XRAY_OK;
}

void xr_monitor_close(xr_monitor *monitor)
{
    if (!monitor)
        return;
    if (monitor->shown)
        (void)fputs("\n", stderr);
    if (monitor->file >= 0)
        (void)close(monitor->file);
    free(monitor->path);
    xr_str_free(&monitor->line);
    xr_str_free(&monitor->progress);
    free(monitor);
}

xray_status xr_monitor_step(xr_monitor *monitor, uint64_t step, uint64_t total,
                            const xr_metrics *metrics, xr_err *err)
{
    if (!monitor->stepped) {
        monitor->stepped = 1;
        monitor->first_step = step;
    }
    if (monitor->console) {
        format_progress(monitor, step, total, metrics);
        show_progress(monitor, total && step >= total);
    }
    if (monitor->file < 0)
        return XRAY_OK;
    return write_step(monitor, step, metrics, err);
}

xray_status xr_monitor_mark(xr_monitor *monitor, xr_metrics_mark *out,
                            xr_err *err)
{
    *out = monitor->lines;
    if (monitor->file < 0 || xr_file_sync(monitor->file) == 0)
        return XRAY_OK;
    return xr_fail(err, XRAY_E_IO, "%s: %s", monitor->path,
                   XR_SYSTEM_ERROR(errno));
}

void xr_monitor_validation(xr_monitor *monitor, uint64_t step, uint64_t total,
                           double score)
{
    xr_str line = { 0 };
    if (!monitor->console || isnan(score))
        return;
    append_step(step, total, &line);
    xr_str_printf(&line, "  validation %.4f", score);
    xr_monitor_say(monitor, xr_str_text(&line));
    xr_str_free(&line);
}

void xr_monitor_say(xr_monitor *monitor, const char *text)
{
    if (monitor->shown)
        (void)fputs("\r\033[K", stderr);
    (void)fprintf(stderr, "%s\n", text);
    if (monitor->shown)
        (void)fputs(xr_str_text(&monitor->progress), stderr);
    (void)fflush(stderr);
}
