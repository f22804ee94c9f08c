/* SPDX-License-Identifier: Apache-2.0
 *
 * Creates trackers, gives them the steps, and keeps their failures away from
 * the run.
 */
#include "core/rl/trackers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/file.h"
#include "core/run/run_setup.h"

/* Samples of a rollout that become texts. */
#define SHOWN_SAMPLES 4u

/* A submission may take this share of [run] plugin_timeout. */
#define TIMEOUT_SHARE 0.01

static const xray_tracker_ops *tracker_ops(const xr_part *part)
{
    return (const xray_tracker_ops *)part->ops;
}

/* ---- failures ------------------------------------------------------------ */

/* Reports the first failure of a tracker. */
static void tell_failure(xr_trackers *t, xr_tracker *tracker, const char *end,
                         const xr_err *err)
{
    char line[sizeof(err->text) + 128];
    if (tracker->told)
        return;
    tracker->told = 1;
    (void)snprintf(line, sizeof(line), "xray: warning: %s; %s", err->text, end);
    xr_monitor_say(t->monitor, line);
}

static void destroy_tracker(xr_trackers *t, xr_tracker *tracker)
{
    const xray_tracker_ops *ops = tracker_ops(tracker->part);
    if (!tracker->self)
        return;
    (void)XR_CALL_TIMED(tracker->part, "destroy",
                        (ops->destroy(tracker->self), XRAY_OK));
    tracker->self = NULL;
    t->live--;
}

/* The hundreds digit says how much is unusable; of a tracker it is never
 * more than the tracker. */
static int loses_step_only(xray_status status)
{
    return status > 0 || (status <= -100 && status > -200);
}

static void handle_failure(xr_trackers *t, xr_tracker *tracker,
                           xray_status status, const char *call)
{
    xr_err err = { "" };
    if (status > 0) {
        (void)xr_fail(&err, status, "%s: %s: its queue is full",
                      tracker->part->instance, call);
    } else {
        (void)xr_host_error(tracker->part->host, status, call, &err);
        xr_run_locate(t->run, &err);
    }
    if (loses_step_only(status)) {
        tell_failure(t, tracker, "the step is not in it", &err);
        return;
    }
    tracker->told = 0; /* its end is reported, too */
    tell_failure(t, tracker, "the run goes on without it", &err);
    destroy_tracker(t, tracker);
}

/* ---- what trackers are told ---------------------------------------------- */

/* The settings of a run. */
typedef struct setting_list {
    xray_named_text *items;
    char **names; /* of the items */
    size_t count;
} setting_list;

static void free_settings(setting_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    free(list->items);
    *list = (setting_list){ .count = 0 };
}

static int add_setting(setting_list *list, const xr_config_value *v)
{
    xr_str name = { 0 };
    xray_named_text *items =
        realloc(list->items, (list->count + 1) * sizeof(*items));
    if (!items)
        return -1;
    list->items = items;
    char **names = realloc(list->names, (list->count + 1) * sizeof(*names));
    if (!names)
        return -1;
    list->names = names;
    xr_str_printf(&name, "%s.%s", v->section, v->key);
    if (name.failed) {
        xr_str_free(&name);
        return -1;
    }
    names[list->count] = name.data;
    items[list->count++] =
        (xray_named_text){ name.data, v->text, strlen(v->text) };
    return 0;
}

/* Lists the keys that the configuration sets; without them when out of memory.
 */
static setting_list list_settings(const xr_run *run)
{
    setting_list list = { .count = 0 };
    xr_config_value v;
    size_t at[2] = { 0, 0 };
    while (xr_config_next(run->config, at, &v))
        if (v.given && add_setting(&list, &v)) {
            free_settings(&list);
            break;
        }
    return list;
}

static xray_track_setup describe_run(const xr_run *run,
                                     const xr_tracked_run *about,
                                     const setting_list *settings)
{
    const xr_trainer_section *trainer = &run->ini.trainer;
    return (xray_track_setup){
        .header = XRAY_HEADER(xray_track_setup),
        .job = about->kind,
        .run = about->run,
        .folder = trainer->default_local_dir,
        .project = trainer->project_name,
        .experiment = trainer->experiment_name,
        .settings = settings->items,
        .setting_count = settings->count,
        .setting_stride = sizeof(xray_named_text),
        .step = about->step,
        .resumed = about->resumed ? 1 : 0,
    };
}

/* ---- calls --------------------------------------------------------------- */

static void create_tracker(xr_trackers *t, xr_tracker *tracker,
                           const xray_track_setup *setup)
{
    const xr_part *part = tracker->part;
    const xray_tracker_ops *ops = tracker_ops(part);
    void *self = NULL;
    xr_err err = { "" };
    xray_status status = XR_CALL_TIMED(
        part, "create",
        ops->create(xr_host_api(part->host), part->config, setup, &self));
    if (status == XRAY_OK && self) {
        tracker->self = self;
        t->live++;
        return;
    }
    if (status == XRAY_OK)
        (void)xr_fail(&err, XRAY_E_BUG, "%s: create gave no instance",
                      part->instance);
    else
        (void)xr_host_error(part->host, status, "create", &err);
    xr_run_locate(t->run, &err);
    tell_failure(t, tracker, "the run goes on without it", &err);
}

void xr_trackers_open(xr_trackers *t, const xr_run *run,
                      const xr_tracked_run *about, xr_monitor *monitor)
{
    *t = (xr_trackers){ .run = run,
                        .monitor = monitor,
                        .count = run->tracker_count };
    if (!t->count)
        return;
    setting_list settings = list_settings(run);
    const xray_track_setup setup = describe_run(run, about, &settings);
    for (size_t i = 0; i < t->count; i++) {
        t->all[i].part = &run->trackers[i];
        create_tracker(t, &t->all[i], &setup);
    }
    free_settings(&settings);
}

void xr_trackers_close(xr_trackers *t)
{
    char line[256];
    for (size_t i = 0; i < t->count; i++) {
        xr_tracker *tracker = &t->all[i];
        destroy_tracker(t, tracker);
        if (!tracker->losses)
            continue;
        (void)snprintf(
            line, sizeof(line), "xray: warning: %s lacks %llu of %llu steps",
            tracker->part->instance, (unsigned long long)tracker->losses,
            (unsigned long long)t->steps);
        xr_monitor_say(t->monitor, line);
    }
    xr_sample_texts_free(&t->texts);
    free(t->scalars);
    *t = (xr_trackers){ .count = 0 };
}

/* Gives a tracker a step. One that holds the run up is not called again. */
static void submit_step(xr_trackers *t, xr_tracker *tracker,
                        const xray_track_step *step)
{
    const xray_tracker_ops *ops = tracker_ops(tracker->part);
    const double most = TIMEOUT_SHARE * 1e-9 * (double)xr_guard_limit_now();
    const double start = xr_now();
    xr_err err = { "" };
    xray_status status = XR_CALL_TIMED(tracker->part, "submit",
                                       ops->submit(tracker->self, step));
    const double seconds = xr_now() - start;
    if (status != XRAY_OK) {
        tracker->losses++;
        handle_failure(t, tracker, status, "submit");
    }
    if (!tracker->self || !(most > 0) || seconds <= most)
        return;
    (void)xr_fail(&err, XRAY_E_STATE,
                  "%s: submit took %.3g s, and at most %g s are allowed, a "
                  "hundredth of [run] plugin_timeout",
                  tracker->part->instance, seconds, most);
    tracker->told = 0;
    tell_failure(t, tracker, "the run goes on without it", &err);
    destroy_tracker(t, tracker);
}

static int reserve_scalars(xr_trackers *t, size_t count)
{
    if (count <= t->scalar_cap)
        return 0;
    xray_named_value *more =
        realloc(t->scalars, 2 * count * sizeof(*t->scalars));
    if (!more)
        return -1;
    t->scalars = more;
    t->scalar_cap = 2 * count;
    return 0;
}

static double read_clock(void)
{
    struct timespec now = { 0 };
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fills the record of a step; returns -1 if parts of it are missing because
 * memory ran out. */
static int fill_step(xr_trackers *t, const xr_metrics *metrics,
                     xray_track_step *out)
{
    const size_t count = xr_metrics_count(metrics);
    const xr_histograms *histograms = xr_metrics_histograms(metrics);
    size_t histogram_count = 0;
    if (reserve_scalars(t, count) || t->texts.failed ||
        (histograms && xr_histograms_failed(histograms)))
        return -1;
    for (size_t i = 0; i < count; i++)
        t->scalars[i] = (xray_named_value){ xr_metrics_name(metrics, i),
                                            xr_metrics_value(metrics, i) };
    if (histograms)
        out->histograms = xr_histograms_list(histograms, &histogram_count);
    out->time = read_clock();
    out->scalars = t->scalars;
    out->scalar_count = count;
    out->scalar_stride = sizeof(xray_named_value);
    out->histogram_count = histogram_count;
    out->histogram_stride = sizeof(xray_histogram);
    out->texts = t->texts.list;
    out->text_count = t->texts.count;
    out->text_stride = sizeof(xray_named_text);
    return 0;
}

void xr_trackers_submit(xr_trackers *t, uint64_t step,
                        const xr_metrics *metrics)
{
    xray_track_step record = { .header = XRAY_HEADER(xray_track_step),
                               .step = step };
    if (!t->count)
        return;
    t->steps++;
    const int missing = t->live && fill_step(t, metrics, &record);
    for (size_t i = 0; i < t->count; i++) {
        xr_tracker *tracker = &t->all[i];
        xr_err err = { "" };
        if (tracker->self && !missing) {
            submit_step(t, tracker, &record);
            continue;
        }
        tracker->losses++;
        (void)xr_fail(&err, XRAY_E_NOMEM, "%s: out of memory for step %llu",
                      tracker->part->instance, (unsigned long long)step);
        if (tracker->self)
            tell_failure(t, tracker, "the step is not in it", &err);
    }
}

void xr_trackers_flush(xr_trackers *t)
{
    for (size_t i = 0; i < t->count; i++) {
        xr_tracker *tracker = &t->all[i];
        if (!tracker->self)
            continue;
        const xray_tracker_ops *ops = tracker_ops(tracker->part);
        xray_status status =
            XR_CALL_TIMED(tracker->part, "flush", ops->flush(tracker->self));
        if (status != XRAY_OK)
            handle_failure(t, tracker, status, "flush");
    }
}

void xr_trackers_show(xr_trackers *t, const xr_samples *samples,
                      const xr_row *const *rows)
{
    uint32_t shown =
        samples->count < SHOWN_SAMPLES ? samples->count : SHOWN_SAMPLES;
    for (uint32_t k = 0; t->live && k < shown; k++) {
        uint32_t i = (uint32_t)((uint64_t)k * samples->count / shown);
        const xray_sample_in *in = &samples->inputs[i];
        const xr_row *row = rows[i / samples->n];
        const xr_shown_sample sample = {
            .prompt = row->prompt,
            .prompt_size = (size_t)in->prompt_size,
            .answer = in->response,
            .answer_size = (size_t)in->response_size,
            .truth = row->ground_truth,
            .score = samples->scores[i].score,
        };
        xr_sample_texts_add(&t->texts, "train", k, &sample);
    }
}

/* ---- xray check ---------------------------------------------------------- */

void xr_trackers_probe(const xr_run *run, const xr_tracked_run *about,
                       xr_errors *errors)
{
    setting_list settings = list_settings(run);
    const xray_track_setup setup = describe_run(run, about, &settings);
    for (size_t i = 0; i < run->tracker_count; i++) {
        const xr_part *part = &run->trackers[i];
        const xray_tracker_ops *ops = tracker_ops(part);
        xr_err err = { "" };
        if (!part->component || !part->config || !setup.folder ||
            !XRAY_HAS(xray_tracker_ops, ops, probe))
            continue;
        xray_status status = XR_CALL_TIMED(
            part, "probe",
            ops->probe(xr_host_api(part->host), part->config, &setup));
        if (status == XRAY_OK)
            continue;
        (void)xr_host_error(part->host, status, "probe", &err);
        xr_run_locate(run, &err);
        xr_errors_add(errors, "%s", err.text);
    }
    free_settings(&settings);
}
