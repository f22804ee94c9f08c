/* SPDX-License-Identifier: Apache-2.0
 *
 * The prediction of times as text and as JSON.
 */
#include "core/cli/plan_time.h"

#include <string.h>

#include "core/cli/inspect.h"

static const char *const term_names[XR_TIMES] = {
    "products", "attention", "memory",    "recomputation", "tensor", "context",
    "pipeline", "data",      "optimizer", "host",          "weights"
};

static void put_time_row(const xr_part_time *part, double all, xr_str *out)
{
    double most = part->times.of[xr_times_largest(&part->times)];
    xr_str_printf(out, "%-12s %14.4g %13.0f%% %13.0f%%  %s\n", part->name,
                  part->seconds, all > 0 ? 100 * part->seconds / all : 0,
                  part->seconds > 0 ? 100 * most / part->seconds : 0,
                  xr_times_bound(&part->times));
}

#define TEXT_COLUMNS 84

/* Appends a list with commas in lines that begin below its first item. */
static void put_wrapped_list(const char *list, xr_str *out)
{
    size_t column = 14;
    for (const char *item = list; *item;) {
        size_t size = strcspn(item, ",");
        size += item[size] == ',';
        if (item > list && column + size > TEXT_COLUMNS) {
            xr_str_printf(out, "\n%13s", "");
            column = 13;
            item++;
            size--;
            xr_str_puts(out, " ");
        }
        xr_str_append(out, item, size);
        column += size;
        item += size;
    }
    xr_str_puts(out, "\n");
}

void cli_put_time_text(const xr_machine *machine, const xr_prediction *p,
                       xr_str *out)
{
    xr_str figures = { 0 };
    xr_machine_text(machine, &figures);
    xr_str_puts(out, "\nassumed       ");
    put_wrapped_list(xr_str_text(&figures), out);
    xr_str_free(&figures);
    if (!p->count) {
        xr_str_puts(out,
                    "no prediction: the model or the size of a step is not "
                    "known\n");
        return;
    }
    xr_str_printf(out, "%-12s %14s %14s %14s  %s\n", "estimate", "seconds",
                  "of the step", "of the part", "is mostly");
    for (size_t i = 0; i < p->count; i++)
        put_time_row(&p->parts[i], p->seconds, out);
    xr_str_printf(out, "%-12s %14.4g", "all", p->seconds);
    if (p->mfu > 0)
        xr_str_printf(out, "   MFU of the update %.0f %%", 100 * p->mfu);
    xr_str_puts(out, "\n");
}

static void put_part_json(const xr_part_time *part, xr_str *out)
{
    xr_str_puts(out, "\n  {");
    cli_json_member("name", part->name, out);
    xr_str_puts(out, ",\"seconds\":");
    xr_str_number(out, part->seconds);
    xr_str_puts(out, ",");
    cli_json_member("bound", xr_times_bound(&part->times), out);
    for (int i = 0; i < XR_TIMES; i++) {
        if (part->times.of[i] == 0)
            continue;
        xr_str_printf(out, ",\"%s\":", term_names[i]);
        xr_str_number(out, part->times.of[i]);
    }
    xr_str_puts(out, "}");
}

void cli_put_time_json(const xr_machine *machine, const xr_prediction *p,
                       xr_str *out)
{
    xr_str text = { 0 };
    xr_machine_text(machine, &text);
    xr_str_puts(out, ",\n \"time\":{");
    cli_json_member("machine", xr_str_text(&text), out);
    xr_str_puts(out, ",\"seconds\":");
    xr_str_number(out, p->seconds);
    xr_str_puts(out, ",\"mfu\":");
    xr_str_number(out, p->mfu);
    xr_str_puts(out, ",\"parts\":[");
    for (size_t i = 0; i < p->count; i++) {
        xr_str_puts(out, i ? "," : "");
        put_part_json(&p->parts[i], out);
    }
    xr_str_puts(out, "]}");
    xr_str_free(&text);
}
