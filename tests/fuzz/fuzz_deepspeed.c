/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes a DeepSpeed JSON as a layer of a configuration. The input is the text
 * of an INI and, after a NUL, the JSON. If both are accepted, they print to an
 * INI that reads back.
 */
#include "core/config/sections.h"
#include "core/deepspeed/deepspeed.h"
#include "tests/deepspeed/backend.h"
#include "tests/fuzz/fuzz.h"

static const char name_key[] = "train.zero3.deepspeed_config=";

static xr_config *decode_both(const char *path, const char *json,
                              xr_run_config *run, xr_errors *errors)
{
    char assignment[192];
    xr_config *config = xr_config_new();
    FUZZ_CHECK(config);
    xr_config_read(config, path, errors);
    if (json) {
        (void)snprintf(assignment, sizeof(assignment), "%s%s", name_key, json);
        xr_config_set(config, assignment, errors);
        xr_deepspeed_read(config, &ds_backend, 0, 2, errors);
    }
    xr_run_decode(config, run, errors);
    return config;
}

static void check_texts(const xr_config *config, const xr_errors *errors)
{
    for (size_t i = 0; i < errors->count; i++) {
        fuzz_saw_text("refused", errors->items[i]);
        FUZZ_CHECK(errors->items[i][0] && !strchr(errors->items[i], '\n'));
    }
    for (const xr_note *n = xr_config_notes(config); n; n = n->next) {
        fuzz_saw_text(n->level == XRAY_LOG_WARN ? "warning" : "note", n->text);
        FUZZ_CHECK(n->text[0] && !strchr(n->text, '\n'));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_two two = fuzz_split(data, size);
    char json[128];
    xr_run_config run = { 0 };
    xr_errors errors = { 0 };
    xr_str text = { 0 };
    (void)snprintf(json, sizeof(json), "%s",
                   fuzz_write("ds.json", two.second, two.second_size));
    xr_config *config = decode_both(
        fuzz_write("run.ini", two.first, two.first_size), json, &run, &errors);
    check_texts(config, &errors);
    if (!errors.count) {
        xr_config_print(config, 1, &text);
        fuzz_saw("printed", xr_str_text(&text), text.size);
        xr_config *back =
            decode_both(fuzz_write("back.ini", xr_str_text(&text), text.size),
                        NULL, &run, &errors);
        FUZZ_CHECK(!errors.count);
        xr_config_free(back);
    }
    xr_str_free(&text);
    xr_errors_free(&errors);
    xr_config_free(config);
    return 0;
}
