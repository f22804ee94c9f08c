/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the trackers among the names of [trainer] logger.
 */
#include <stdio.h>
#include <string.h>

#include "core/base/str.h"
#include "core/run/run_setup.h"

#define FED "docs/trackers.md feeds it from the events of tensorboard"

/* Other systems have loggers of these names. */
static const struct {
    const char *name;
    const char *advice;
} strangers[] = {
    { "wandb", FED },
    { "swanlab", FED },
    { "mlflow", FED },
    { "file", "did you mean jsonl?" },
    { "json", "did you mean jsonl?" },
    { "csv", "jsonl writes a file, one line for each step" },
    { "stdout", "did you mean console?" },
    { "tb", "did you mean tensorboard?" },
};

static const char *find_advice(const char *name)
{
    for (size_t i = 0; i < sizeof(strangers) / sizeof(strangers[0]); i++)
        if (strcmp(strangers[i].name, name) == 0)
            return strangers[i].advice;
    if (xr_edit_distance(name, "console", 2) <= 2)
        return "did you mean console?";
    return xr_edit_distance(name, "jsonl", 2) <= 2 ? "did you mean jsonl?" : "";
}

static void report_unknown_logger(const xr_run *run, const char *name,
                                  xr_errors *errors)
{
    const xray_component *none = NULL;
    const char *advice = find_advice(name);
    xr_err err = { "" };
    (void)xr_plugins_find(run->plugins, XRAY_IFACE_TRACKER, name, &err, &none);
    xr_errors_add(errors,
                  "%s: [trainer] logger: '%s' is neither console nor jsonl, "
                  "and %s%s%s",
                  xr_config_location(run->config, "trainer", "logger"), name,
                  err.text, *advice ? "; " : "", advice);
}

static int is_found(const xr_run *run, const char *section)
{
    for (size_t i = 0; i < run->tracker_count; i++)
        if (run->trackers[i].instance &&
            strcmp(run->trackers[i].instance, section) == 0)
            return 1;
    return 0;
}

static void find_tracker(xr_run *run, const char *name, xr_errors *errors)
{
    char section[160];
    (void)snprintf(section, sizeof(section), "tracker.%s", name);
    if (!xr_run_provides(run, section)) {
        report_unknown_logger(run, name, errors);
        xr_config_ignore(run->config, section);
        return;
    }
    if (!(run->with & XR_WITH_TRACKER) || is_found(run, section))
        return;
    if (run->tracker_count == XR_MAX_TRACKERS)
        xr_errors_add(errors,
                      "%s: [trainer] logger: at most %d trackers are allowed",
                      xr_config_location(run->config, "trainer", "logger"),
                      XR_MAX_TRACKERS);
    else
        xr_run_find_part(run, &run->trackers[run->tracker_count++],
                         XRAY_IFACE_TRACKER, name, NULL, errors);
}

void xr_run_find_trackers(xr_run *run, xr_errors *errors)
{
    const xray_list *list = &run->ini.trainer.logger;
    for (uint64_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i], "console") != 0 &&
            strcmp(list->items[i], "jsonl") != 0)
            find_tracker(run, list->items[i], errors);
}
