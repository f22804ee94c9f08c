/* SPDX-License-Identifier: Apache-2.0
 * event-dump lines|all FOLDER
 *
 * Prints the event files of a folder in the order of their names: `lines` the
 * scalars as lines of metrics.jsonl, `all` every event but for its time.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/file.h"
#include "core/base/str.h"
#include "tests/track/decode.h"

typedef struct dump {
    int lines;
    int open; /* 1: a line has begun */
    int failed;
    xr_str out;
} dump;

static void end_line(dump *d)
{
    if (d->open)
        xr_str_puts(&d->out, "}\n");
    d->open = 0;
}

static void print_event(void *ctx, const decode_event *event)
{
    dump *d = ctx;
    end_line(d);
    if (!d->lines && event->restart)
        xr_str_printf(&d->out, "restart %llu\n",
                      (unsigned long long)event->step);
}

static void print_line(dump *d, const decode_event *event,
                       const decode_value *v)
{
    if (strcmp(v->plugin, "scalars") != 0)
        return;
    if (!d->open)
        xr_str_printf(&d->out, "{\"step\":%llu",
                      (unsigned long long)event->step);
    d->open = 1;
    xr_str_puts(&d->out, ",");
    xr_str_json(&d->out, v->tag, strlen(v->tag));
    xr_str_puts(&d->out, ":");
    xr_str_number(&d->out, v->exact);
    /* The float that is shown is the nearest one. */
    d->failed |= !v->has_number || !v->has_exact || v->dtype != 1 ||
                 v->dim_count || v->class != 1 ||
                 (v->number < (float)v->exact || v->number > (float)v->exact);
}

static void print_value(void *ctx, const decode_event *event,
                        const decode_value *v)
{
    dump *d = ctx;
    if (d->lines) {
        print_line(d, event, v);
        return;
    }
    xr_str_printf(&d->out, "%llu %s %s", (unsigned long long)event->step,
                  v->plugin, v->tag);
    if (v->has_exact)
        xr_str_printf(&d->out, " %.17g", v->exact);
    for (size_t i = 0; i < v->dim_count; i++)
        xr_str_printf(&d->out, " [%llu]", (unsigned long long)v->dims[i]);
    for (size_t i = 0; i < v->table_count; i++) {
        double number;
        memcpy(&number, (const char *)v->table + 8 * i, 8);
        xr_str_printf(&d->out, " %.17g", number);
    }
    if (v->text) {
        xr_str_puts(&d->out, " ");
        xr_str_json(&d->out, (const char *)v->text, v->text_size);
    }
    xr_str_puts(&d->out, "\n");
}

static void print_setting(void *ctx, const char *name, char kind,
                          const char *text)
{
    dump *d = ctx;
    if (!d->lines)
        xr_str_printf(&d->out, "setting %s %c %s\n", name, kind, text);
}

static int dump_file(dump *d, const char *path)
{
    const decode_sink sink = { d, print_event, print_value, print_setting };
    xr_err err = { "" };
    xr_map_file map;
    if (xr_file_map(path, &err, &map) != XRAY_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    const char *fault = decode_file(map.data, map.size, &sink);
    xr_file_unmap(&map);
    end_line(d);
    if (fault)
        (void)fprintf(stderr, "%s: %s\n", path, fault);
    return fault != NULL;
}

static int is_event_file(const struct dirent *entry)
{
    return strstr(entry->d_name, ".tfevents.") != NULL;
}

int main(int argc, char **argv)
{
    struct dirent **names = NULL;
    char path[XR_PATH_CAP];
    dump d = { .lines = argc == 3 && strcmp(argv[1], "lines") == 0 };
    int count =
        argc == 3 ? scandir(argv[2], &names, is_event_file, alphasort) : -1;
    int failed = count < 0;
    for (int i = 0; i < count; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", argv[2], names[i]->d_name);
        failed |= dump_file(&d, path);
        free(names[i]);
    }
    free(names);
    (void)fputs(xr_str_text(&d.out), stdout);
    if (d.failed)
        (void)fprintf(stderr, "a scalar has another form\n");
    failed |= d.failed || d.out.failed;
    xr_str_free(&d.out);
    return failed;
}
