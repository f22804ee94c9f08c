/* SPDX-License-Identifier: Apache-2.0
 *
 * Encodes events: the version of the format, a restart, the settings, a step.
 */
#include "plugins/tracker-tensorboard/events.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/base/elements.h"
#include "plugins/tracker-tensorboard/protobuf.h"
#include "plugins/tracker-tensorboard/records.h"

/* Event */
enum { WALL_TIME = 1, STEP = 2, FILE_VERSION = 3, SUMMARY = 5 };
enum { SESSION_LOG = 7, SOURCE_METADATA = 10 };
/* Summary, Summary.Value, SummaryMetadata, SummaryMetadata.PluginData */
enum { VALUE = 1, TAG = 1, TENSOR = 8, METADATA = 9 };
enum { PLUGIN_DATA = 1, DATA_CLASS = 4, PLUGIN_NAME = 1, CONTENT = 2 };
enum { CLASS_SCALAR = 1, CLASS_TENSOR = 2 };
/* TensorProto, TensorShapeProto */
enum { DTYPE = 1, SHAPE = 2, TENSOR_CONTENT = 4, FLOATS = 5, DOUBLES = 6 };
enum { STRINGS = 8 };
enum { DIM = 2, DIM_SIZE = 1 };
enum { DT_FLOAT = 1, DT_DOUBLE = 2, DT_STRING = 7 };

/* The content of an event between these is its one field besides time and step.
 */
typedef struct begun_event {
    size_t record;
} begun_event;

static begun_event begin_event(double time, uint64_t step, xr_str *out)
{
    begun_event event = { tb_record_begin(out) };
    tb_put_double(out, WALL_TIME, time);
    if (step)
        tb_put_uint(out, STEP, step);
    return event;
}

static void end_event(begun_event event, xr_str *out)
{
    tb_record_end(out, event.record);
}

void tb_event_version(double time, xr_str *out)
{
    enum { WRITER = 1 };
    begun_event event = begin_event(time, 0, out);
    tb_put_text(out, FILE_VERSION, "brain.Event:2");
    size_t source = tb_open(out, SOURCE_METADATA);
    tb_put_text(out, WRITER, "xray.tracker-tensorboard");
    tb_close(out, source);
    end_event(event, out);
}

void tb_event_restart(double time, uint64_t step, xr_str *out)
{
    enum { STATUS = 1, START = 1 };
    begun_event event = begin_event(time, step, out);
    size_t session = tb_open(out, SESSION_LOG);
    tb_put_uint(out, STATUS, START);
    tb_close(out, session);
    end_event(event, out);
}

/* ---- values -------------------------------------------------------------- */

/* Puts what tells TensorBoard which of its pages shows the value. */
static void put_metadata(const char *plugin, uint32_t class, xr_str *out)
{
    size_t metadata = tb_open(out, METADATA);
    size_t data = tb_open(out, PLUGIN_DATA);
    tb_put_text(out, PLUGIN_NAME, plugin);
    tb_close(out, data);
    tb_put_uint(out, DATA_CLASS, class);
    tb_close(out, metadata);
}

/* Returns the nearest float. */
static float round_to_float(double value)
{
    if (isfinite(value) && fabs(value) > (double)FLT_MAX)
        return value > 0 ? INFINITY : -INFINITY;
    return (float)value;
}

/* TensorBoard's fast loader takes no scalar but a float. The figure of
 * metrics.jsonl is beside it, in the field that tensors of doubles have, which
 * readers of a float leave alone. */
static void put_scalar(const char *name, double value, xr_str *out)
{
    const float shown = round_to_float(value);
    size_t at = tb_open(out, VALUE);
    tb_put_text(out, TAG, name);
    put_metadata("scalars", CLASS_SCALAR, out);
    size_t tensor = tb_open(out, TENSOR);
    tb_put_uint(out, DTYPE, DT_FLOAT);
    tb_put_bytes(out, SHAPE, "", 0);
    tb_put_bytes(out, FLOATS, &shown, sizeof(shown));
    tb_put_bytes(out, DOUBLES, &value, sizeof(value));
    tb_close(out, tensor);
    tb_close(out, at);
}

static void put_dimension(uint64_t size, xr_str *out)
{
    size_t dim = tb_open(out, DIM);
    tb_put_uint(out, DIM_SIZE, size);
    tb_close(out, dim);
}

/* A tensor of [buckets, 3]: left edge, right edge, count. */
static void put_histogram(const xray_histogram *histogram, xr_str *out)
{
    size_t at = tb_open(out, VALUE);
    tb_put_text(out, TAG, histogram->name);
    put_metadata("histograms", CLASS_TENSOR, out);
    size_t tensor = tb_open(out, TENSOR);
    tb_put_uint(out, DTYPE, DT_DOUBLE);
    size_t shape = tb_open(out, SHAPE);
    put_dimension(histogram->count, out);
    put_dimension(3, out);
    tb_close(out, shape);
    size_t content = tb_open(out, TENSOR_CONTENT);
    for (uint64_t i = 0; i < histogram->count; i++) {
        const double row[] = { histogram->edges[i], histogram->edges[i + 1],
                               histogram->counts[i] };
        xr_str_append(out, row, sizeof(row));
    }
    tb_close(out, content);
    tb_close(out, tensor);
    tb_close(out, at);
}

static void put_text_value(const xray_named_text *text, xr_str *out)
{
    size_t at = tb_open(out, VALUE);
    tb_put_text(out, TAG, text->name);
    put_metadata("text", CLASS_TENSOR, out);
    size_t tensor = tb_open(out, TENSOR);
    tb_put_uint(out, DTYPE, DT_STRING);
    tb_put_bytes(out, SHAPE, "", 0);
    tb_put_bytes(out, STRINGS, text->text, (size_t)text->size);
    tb_close(out, tensor);
    tb_close(out, at);
}

void tb_event_step(const xray_track_step *step, xr_str *out)
{
    begun_event event = begin_event(step->time, step->step, out);
    size_t summary = tb_open(out, SUMMARY);
    for (uint64_t i = 0; i < step->scalar_count; i++) {
        xray_named_value value;
        xr_element_read(step->scalars, step->scalar_stride, i, sizeof(value),
                        &value);
        put_scalar(value.name, value.value, out);
    }
    for (uint64_t i = 0; i < step->histogram_count; i++) {
        xray_histogram histogram;
        xr_element_read(step->histograms, step->histogram_stride, i,
                        sizeof(histogram), &histogram);
        put_histogram(&histogram, out);
    }
    for (uint64_t i = 0; i < step->text_count; i++) {
        xray_named_text text;
        xr_element_read(step->texts, step->text_stride, i, sizeof(text), &text);
        put_text_value(&text, out);
    }
    tb_close(out, summary);
    end_event(event, out);
}

/* ---- settings ------------------------------------------------------------ */

/* A google.protobuf.Value: HPARAMS sorts and filters numbers as such. */
static void put_setting_value(const char *text, xr_str *out)
{
    enum { NUMBER = 2, STRING = 3, BOOLEAN = 4 };
    double number = 0;
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        tb_put_uint(out, BOOLEAN, *text == 't');
    else if (xr_parse_real(text, &number) == 0 && isfinite(number))
        tb_put_double(out, NUMBER, number);
    else
        tb_put_text(out, STRING, text);
}

static void put_session(double time, const xray_track_setup *setup, xr_str *out)
{
    enum { HPARAMS = 1, START_TIME = 5, KEY = 1, ENTRY_VALUE = 2 };
    for (uint64_t i = 0; i < setup->setting_count; i++) {
        xray_named_text setting;
        xr_element_read(setup->settings, setup->setting_stride, i,
                        sizeof(setting), &setting);
        size_t entry = tb_open(out, HPARAMS);
        tb_put_text(out, KEY, setting.name);
        size_t value = tb_open(out, ENTRY_VALUE);
        put_setting_value(setting.text, out);
        tb_close(out, value);
        tb_close(out, entry);
    }
    tb_put_double(out, START_TIME, time);
}

/* The plugin "hparams" reads the metadata only; the tensor means nothing,
 * but a value has one. */
void tb_event_settings(double time, const xray_track_setup *setup, xr_str *out)
{
    enum { SESSION_START_INFO = 3 };
    static const float zero;
    begun_event event = begin_event(time, 0, out);
    size_t summary = tb_open(out, SUMMARY);
    size_t at = tb_open(out, VALUE);
    tb_put_text(out, TAG, TB_SETTINGS_TAG);
    size_t metadata = tb_open(out, METADATA);
    size_t data = tb_open(out, PLUGIN_DATA);
    tb_put_text(out, PLUGIN_NAME, "hparams");
    size_t content = tb_open(out, CONTENT);
    size_t session = tb_open(out, SESSION_START_INFO);
    put_session(time, setup, out);
    tb_close(out, session);
    tb_close(out, content);
    tb_close(out, data);
    tb_close(out, metadata);
    size_t tensor = tb_open(out, TENSOR);
    tb_put_uint(out, DTYPE, DT_FLOAT);
    tb_put_bytes(out, SHAPE, "", 0);
    tb_put_bytes(out, FLOATS, &zero, sizeof(zero));
    tb_close(out, tensor);
    tb_close(out, at);
    tb_close(out, summary);
    end_event(event, out);
}
