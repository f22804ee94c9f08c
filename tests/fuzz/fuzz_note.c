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
    xr_symbols symbols;
    const char *path = fuzz_write("plugin.so", data, size);
    if (xr_note_find(data, size, text, sizeof(text)) == XRAY_OK)
        FUZZ_CHECK(strlen(text) < sizeof(text));
    else
        text[0] = '\0';
    fuzz_saw_text("note", text);
    xr_symbols_read(data, size, &symbols);
    fuzz_saw_i64("symbols", symbols.known);
    fuzz_saw_i64("query", symbols.query);
    fuzz_saw_u64("others", symbols.extra);
    fuzz_saw_text("first", symbols.extra ? symbols.first : NULL);
    if (xr_manifest_read(path, &err, &manifest)) {
        fuzz_said(&err);
        return 0;
    }
    fuzz_saw_text("name", manifest.name);
    fuzz_saw_text("version", manifest.version);
    fuzz_saw_text("provides", manifest.provides);
    FUZZ_CHECK(strlen(manifest.name) < sizeof(manifest.name));
    FUZZ_CHECK(strlen(manifest.provides) < sizeof(manifest.provides));
    return 0;
}
