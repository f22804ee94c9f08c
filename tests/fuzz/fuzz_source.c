/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the sources of rows: CSV, and JSON arrays against the strict grammar.
 * The first byte chooses the format.
 */
#include "core/base/json.h"
#include "core/data/source.h"
#include "tests/fuzz/fuzz.h"

/* Reads all rows; XRAY_OK if each is a JSON object. */
static xray_status read_rows(xr_source *s, xr_err *err, size_t *out_count)
{
    char *line;
    size_t size;
    xray_status status;
    for (*out_count = 0;; ++*out_count) {
        cJSON *json = NULL;
        status = xr_source_next(s, err, &line, &size);
        if (status != XRAY_OK)
            return status == XRAY_END ? XRAY_OK : status;
        FUZZ_CHECK(size && strlen(line) <= size && line[size] == '\0');
        fuzz_saw(s->where, line, size);
        status = xr_json_line(line, size, s->where, err, &json);
        cJSON_Delete(json);
        if (status != XRAY_OK)
            return status;
        FUZZ_CHECK(!memchr(line, '\n', size));
    }
}

/* An array of objects is read completely, and nothing else is. The caller keeps
 * texts so short that the array's own level never reaches the limit of depth.
 */
static void compare_array(const char *text, size_t size, xray_status status,
                          size_t count)
{
    cJSON *json = NULL;
    const cJSON *entry;
    size_t objects = 0;
    size_t entries = 0;
    int valid = xr_json_parse(text, size, "", NULL, &json) == XRAY_OK &&
                cJSON_IsArray(json);
    cJSON_ArrayForEach(entry, json)
    {
        entries++;
        objects += cJSON_IsObject(entry) ? 1 : 0;
    }
    cJSON_Delete(json);
    FUZZ_CHECK((status == XRAY_OK) == (valid && objects == entries));
    if (status == XRAY_OK)
        FUZZ_CHECK(count == entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = { "rows.csv", "rows.tsv", "rows.json",
                                         "rows.jsonl" };
    unsigned how = size ? data[0] % 4 : 0;
    const char *text = (const char *)data + (size ? 1 : 0);
    size_t length = size ? size - 1 : 0;
    size_t count = 0;
    xr_err err = { "" };
    xr_source source;
    xray_status status = xr_source_open(fuzz_write(names[how], text, length),
                                        NULL, &err, &source);
    if (status == XRAY_OK) {
        size_t from = 0;
        while (from < length && strchr(" \t\r\n", text[from]) && text[from])
            from++;
        status = read_rows(&source, &err, &count);
        if (how >= 2 && from < length && length < 900 && text[from] == '[')
            compare_array(text, length, status, count);
    }
    if (status != XRAY_OK)
        fuzz_said(&err);
    xr_source_close(&source);
    return 0;
}
