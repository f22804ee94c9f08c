/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the manifest in the ELF note of a plugin.
 */
#include "core/plugin/internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[256];
    xr_err err = { "" };
    xr_manifest manifest;
    const char *path = fuzz_write("plugin.so", data, size);
    if (xr_note_find(data, size, text, sizeof(text)) == XRAY_OK)
        FUZZ_CHECK(strlen(text) < sizeof(text));
    if (xr_manifest_read(path, &err, &manifest)) {
        fuzz_said(&err);
        return 0;
    }
    FUZZ_CHECK(strlen(manifest.name) < sizeof(manifest.name));
    FUZZ_CHECK(strlen(manifest.provides) < sizeof(manifest.provides));
    return 0;
}
