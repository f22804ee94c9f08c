/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a checkpoint's manifest.json. Its checksum would refuse nearly all
 * inputs, so each input is also parsed with the right checksum appended.
 */
#include "core/base/hash.h"
#include "core/base/str.h"
#include "core/run/inventory.h"
#include "tests/fuzz/fuzz.h"

static void parse_manifest(const char *text, size_t size)
{
    xr_err err = { "" };
    xr_inventory v;
    if (xr_inventory_parse(text, size, "manifest.json", &err, &v)) {
        fuzz_said(&err);
        FUZZ_CHECK(v.count == 0);
        return;
    }
    for (size_t i = 0; i < v.count; i++) {
        FUZZ_CHECK(v.items[i].path[0] != '/' && v.items[i].path[0]);
        fuzz_saw_text("file", v.items[i].path);
        fuzz_saw_u64("size", v.items[i].size);
        fuzz_saw_u64("hash", v.items[i].hash);
    }
    fuzz_saw_u64("files", v.count);
    xr_inventory_free(&v);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    xr_str sealed = { 0 };
    parse_manifest((const char *)data, size);
    xr_str_append(&sealed, data, size);
    xr_str_printf(&sealed, ",\n \"self\": \"%016llx\"}\n",
                  (unsigned long long)xr_hash64(data, size, 0));
    if (!sealed.failed)
        parse_manifest(sealed.data, sealed.size);
    xr_str_free(&sealed);
    return 0;
}
