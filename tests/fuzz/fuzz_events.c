/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the reader of event files: the first byte is the last step that is
 * kept, the rest is the file. What is kept is a beginning of the file that
 * reads as the same again. Since no fuzzer guesses checksums, a second pass
 * takes the bytes as the content of one record.
 */
#include "core/base/str.h"
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
    return 0;
}
