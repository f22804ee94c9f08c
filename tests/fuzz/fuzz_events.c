/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the reader of event files: the first byte is the last step that is
 * kept, the rest is the file. What is kept is a beginning of the file that
 * reads as the same again. Since no fuzzer guesses checksums, a second pass
 * takes the bytes as the content of one record. Events that are written with
 * values of the bytes are read as complete.
 */
#include "core/base/str.h"
#include "plugins/tracker-tensorboard/events.h"
#include "plugins/tracker-tensorboard/read.h"
#include "plugins/tracker-tensorboard/records.h"
#include "tests/fuzz/fuzz.h"

static void measure_file(const unsigned char *data, size_t size, uint64_t last)
{
    xr_err err = { "" };
    tb_kept kept;
    tb_kept again;
    xray_status status = tb_measure("f", data, size, last, &err, &kept);
    FUZZ_CHECK(kept.bytes <= size);
    fuzz_saw_u64("kept", kept.bytes);
    fuzz_saw_u64("summaries", kept.summaries);
    fuzz_saw_u64("settings", (uint64_t)kept.settings);
    if (status != XRAY_OK)
        fuzz_said(&err);
    FUZZ_CHECK(tb_measure("f", data, kept.bytes, last, &err, &again) ==
               XRAY_OK);
    FUZZ_CHECK(again.bytes == kept.bytes);
    FUZZ_CHECK(again.summaries == kept.summaries);
    FUZZ_CHECK(again.settings == kept.settings);
}

/* Writes a step with the bytes as values, counts, and a text. */
static void write_events(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    const double edges[] = { -1, 0, 0.5, 1 + (double)size };
    const double counts[] = { (double)size, (double)(size % 3), 1 };
    const xray_named_value values[] = { { "a/b", size ? data[0] / 3.0 : 0 },
                                        { "c", size > 1 ? -data[1] : 1e300 } };
    const xray_histogram histogram = { "h", edges, counts, 3 };
    const xray_named_text texts[] = { { "t", text, strlen(text) } };
    const xray_track_step step = {
        .header = XRAY_HEADER(xray_track_step),
        .step = size,
        .time = 1.7e9,
        .scalars = values,
        .scalar_count = 2,
        .scalar_stride = sizeof(values[0]),
        .histograms = &histogram,
        .histogram_count = 1,
        .histogram_stride = sizeof(histogram),
        .texts = texts,
        .text_count = 1,
        .text_stride = sizeof(texts[0]),
    };
    const xray_track_setup setup = {
        .header = XRAY_HEADER(xray_track_setup),
        .job = "train",
        .run = "0123456789abcdef",
        .folder = "f",
        .project = "p",
        .experiment = "e",
        .settings = texts,
        .setting_count = 1,
        .setting_stride = sizeof(texts[0]),
    };
    xr_str out = { 0 };
    tb_kept kept;
    xr_err err = { "" };
    tb_event_version(1.5, &out);
    tb_event_restart(1.5, size, &out);
    tb_event_settings(1.5, &setup, &out);
    tb_event_step(&step, &out);
    fuzz_saw("written", xr_str_text(&out), out.size);
    FUZZ_CHECK(tb_measure("f", (const unsigned char *)out.data, out.size,
                          UINT64_MAX, &err, &kept) == XRAY_OK);
    FUZZ_CHECK(kept.bytes == out.size && kept.settings);
    xr_str_free(&out);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_str file = { 0 };
    if (!size)
        return 0;
    measure_file(data + 1, size - 1, data[0]);
    size_t begun = tb_record_begin(&file);
    xr_str_append(&file, data + 1, size - 1);
    tb_record_end(&file, begun);
    FUZZ_CHECK(!file.failed);
    measure_file((const unsigned char *)file.data, file.size, data[0]);
    xr_str_free(&file);
    write_events(data, size);
    return 0;
}
