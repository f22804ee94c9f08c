/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the signatures of C functions. What is read is bounded, and written
 * out again it reads back as the same; what is refused is one sentence.
 */
#include "core/base/str.h"
#include "plugins/reward-ffi/worker/signature.h"
#include "tests/fuzz/fuzz.h"

static void write_signature(const fn_signature *in, xr_str *out)
{
    for (uint32_t i = 0; i < in->count; i++)
        xr_str_printf(out, in->args[i].is_array ? "%s%s:[%c]" : "%s%s:%c",
                      i ? "," : "", in->args[i].name, in->args[i].type);
    xr_str_printf(out, "->%c", in->result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_err err = { "" };
    fn_signature read;
    fn_signature again;
    xr_str text = { 0 };
    char *input = fuzz_text(data, size);
    if (fn_signature_parse(input, &err, &read) != XRAY_OK) {
        fuzz_said(&err);
    } else {
        FUZZ_CHECK(read.count <= FN_ARGS && read.result);
        write_signature(&read, &text);
        fuzz_saw("read", xr_str_text(&text), text.size);
        FUZZ_CHECK(fn_signature_parse(xr_str_text(&text), &err, &again) ==
                   XRAY_OK);
        FUZZ_CHECK(fn_signature_equal(&read, &again));
    }
    xr_str_free(&text);
    free(input);
    return 0;
}
