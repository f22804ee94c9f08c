/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes what turns a short text into a value: numbers, sizes, durations, words
 * of a command line, ids of models, figures of a machine, JSON; and checksums
 * and codes of the text. After a NUL comes a second text, which is compared
 * with the first one and is a path into the JSON.
 */
#include "core/ab/run_folder.h"
#include "core/base/file_format.h"
#include "core/base/hash.h"
#include "core/base/hub.h"
#include "core/base/json.h"
#include "core/base/sha256.h"
#include "core/base/str.h"
#include "core/base/words.h"
#include "core/run/machine.h"
#include "tests/fuzz/fuzz.h"

static void read_numbers(const char *text)
{
    int64_t whole;
    double real;
    uint64_t bytes;
    xr_str out = { 0 };
    if (xr_parse_int(text, &whole) == 0)
        fuzz_saw_i64("integer", whole);
    if (xr_parse_hex64(text, &bytes) == 0)
        fuzz_saw_u64("hexadecimal", bytes);
    if (xr_parse_bytes(text, &bytes) == 0)
        fuzz_saw_u64("bytes", bytes);
    if (xr_parse_duration(text, NULL, &whole) == 0)
        fuzz_saw_i64("duration", whole);
    if (xr_parse_duration(text, "ms", &whole) == 0)
        fuzz_saw_i64("milliseconds", whole);
    if (xr_parse_real(text, &real) == 0) {
        double again;
        fuzz_saw_real("real", real);
        xr_str_number(&out, real);
        FUZZ_CHECK(
            real - real != 0 ||
            (xr_parse_real(xr_str_text(&out), &again) == 0 && again == real));
        xr_str_puts(&out, " ");
        if (real > -3e38 && real < 3e38)
            xr_str_float(&out, (float)real);
        fuzz_saw_text("written", xr_str_text(&out));
    }
    xr_str_free(&out);
}

static void read_characters(const char *text, size_t size)
{
    const char *end = text + size;
    xr_str json = { 0 };
    xr_str codes = { 0 };
    for (const char *c = text; c < end;) {
        uint32_t code = 0;
        char back[4];
        int length = xr_utf8_decode(c, end, &code);
        FUZZ_CHECK(length >= 0 && length <= end - c && length <= 4);
        if (length)
            FUZZ_CHECK(xr_utf8_encode(code, back) == length &&
                       memcmp(back, c, (size_t)length) == 0);
        xr_str_printf(&codes, "%s%lx", length ? " " : " !",
                      length ? (unsigned long)code : (unsigned char)*c);
        c += length ? length : 1;
    }
    xr_str_json(&json, text, size);
    fuzz_saw_text("characters", xr_str_text(&codes));
    fuzz_saw_text("literal", xr_str_text(&json));
    xr_str_free(&codes);
    xr_str_free(&json);
}

static void read_names(const char *text)
{
    static const xr_word_value values[] = { { "host", "node-1" },
                                            { "rank", "3" } };
    xr_err err = { "" };
    char **words = NULL;
    char path[512];
    if (xr_words_cut(text, values, 2, &err, &words))
        fuzz_said(&err);
    for (char **w = words; w && *w; w++)
        fuzz_saw_text("word", *w);
    free(words);
    if (xr_hub_is_id(text)) {
        fuzz_saw_text("id", text);
        if (xr_hub_find(text, path, sizeof(path), &err))
            fuzz_said(&err);
    }
    if (xr_hub_download(text, path, sizeof(path)))
        fuzz_saw_text("download", path);
    fuzz_saw_i64("time", xr_metric_is_time(text));
    fuzz_saw_i64("own", xr_setting_is_own(text));
}

static void read_machine(const char *text)
{
    xr_err err = { "" };
    xr_machine machine;
    xr_str out = { 0 };
    if (xr_machine_read(text, &err, &machine)) {
        fuzz_said(&err);
        return;
    }
    xr_machine_text(&machine, &out);
    fuzz_saw_text("machine", xr_str_text(&out));
    fuzz_saw_real("node", machine.node);
    fuzz_saw_real("shares", machine.product_share);
    fuzz_saw_real("", machine.attention_share);
    fuzz_saw_real("", machine.memory_share);
    fuzz_saw_real("", machine.link_share);
    xr_str_free(&out);
}

static void read_json(const char *text, size_t size, const char *path)
{
    xr_err err = { "" };
    cJSON *json = NULL;
    int32_t *ids = NULL;
    size_t count = 0;
    if (xr_json_parse(text, size, "json", &err, &json)) {
        fuzz_said(&err);
        return;
    }
    const cJSON *found = xr_json_path(json, path);
    const cJSON *const values[] = { json, found };
    for (size_t i = 0; i < 2; i++) {
        char *printed = cJSON_PrintUnformatted(values[i]);
        fuzz_saw_text(i ? "at the path" : "json", printed);
        cJSON_free(printed);
    }
    if (xr_json_ids(found, "ids", &err, &ids, &count))
        fuzz_said(&err);
    for (size_t i = 0; i < count; i++)
        fuzz_saw_i64("id", ids[i]);
    free(ids);
    cJSON_Delete(json);
}

static void sum_up(const char *text, size_t size, const char *key)
{
    uint8_t code[XR_SHA256_BYTES];
    xr_sha256 sha;
    fuzz_saw_u64("hash", xr_hash64(text, size, 0));
    fuzz_saw_u64("seeded", xr_hash64(text, size, 11));
    xr_sha256_init(&sha);
    xr_sha256_add(&sha, text, size / 3);
    xr_sha256_add(&sha, text + size / 3, size - size / 3);
    xr_sha256_end(&sha, code);
    fuzz_saw("sha256", code, sizeof(code));
    xr_hmac_sha256(key, strlen(key) < 64 ? strlen(key) : 64, text, size, code);
    fuzz_saw("code", code, sizeof(code));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_two two = fuzz_split(data, size);
    char *first = fuzz_text(two.first, two.first_size);
    char *second = fuzz_text(two.second, two.second_size);
    xr_err err = { "" };
    read_numbers(first);
    read_names(first);
    read_machine(first);
    read_json(first, two.first_size, second);
    read_characters(first, two.first_size);
    if (xr_format_check(first, two.first_size, "file", &err))
        fuzz_said(&err);
    fuzz_saw_u64("mark", xr_bom_size(first, two.first_size));
    for (unsigned limit = 0; limit < 4 && two.first_size < 200; limit++)
        fuzz_saw_u64("distance", xr_edit_distance(first, second, limit));
    sum_up(first, two.first_size, second);
    free(first);
    free(second);
    return 0;
}
