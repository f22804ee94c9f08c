/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a checkpoint's state.json and history.json, and the file that names
 * the newest checkpoint: an input that starts with a digit, '-' or a space is
 * the latter.
 */
#include "core/rl/checkpoint.h"
#include "tests/fuzz/fuzz.h"

static void find_newest(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    char path[XR_PATH_CAP];
    static xr_run run;
    run.ini.trainer.default_local_dir = fuzz_dir();
    run.ini.trainer.resume_mode = "auto";
    run.ini.trainer.resume_from_path = "";
    (void)fuzz_write("latest_checkpointed_iteration.txt", data, size);
    if (xr_checkpoint_find(&run, path, &err))
        fuzz_said(&err);
    else
        fuzz_saw_text("newest", path);
}

static void report_history(const xr_history *history)
{
    fuzz_saw_text("run", history->run);
    fuzz_saw_i64("has lines", history->has_lines);
    for (size_t i = 0; i < history->input_count; i++) {
        fuzz_saw_text("key", history->inputs[i].key);
        fuzz_saw_text("path", history->inputs[i].path);
        fuzz_saw_u64("hash", history->inputs[i].hash);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    xr_progress expect = { .kind = "train", .seed = 11, .rows = 400 };
    xr_progress got = expect;
    if (size && strchr("0123456789- ", data[0]) && data[0]) {
        find_newest(data, size);
        return 0;
    }
    xr_history history;
    (void)fuzz_write(XR_HISTORY_FILE, data, size);
    if (xr_history_read(fuzz_dir(), &err, &history) != XRAY_OK)
        fuzz_said(&err);
    else
        report_history(&history);
    xr_history_free(&history);
    err.text[0] = '\0';
    (void)fuzz_write("state.json", data, size);
    if (xr_checkpoint_read(fuzz_dir(), &expect, &got, &err)) {
        fuzz_said(&err);
        return 0;
    }
    fuzz_saw_u64("step", got.step);
    fuzz_saw_u64("epoch", got.sampler_epoch);
    fuzz_saw_u64("position", got.sampler_position);
    fuzz_saw_real("before", got.score_before);
    fuzz_saw_real("now", got.score_now);
    FUZZ_CHECK(got.seed == 11 && got.rows == 400);
    FUZZ_CHECK(strcmp(got.kind, "train") == 0);
    return 0;
}
