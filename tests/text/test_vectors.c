/* SPDX-License-Identifier: Apache-2.0
 *
 * Real tokenizers against the Hugging Face library's ids.
 */
#include "core/base/file.h"
#include "core/base/json.h"
#include "model/text/tokenizer.h"
#include "tests/testing.h"

static xm_tokenizer *open_data(const char *name)
{
    char path[XR_PATH_CAP];
    xm_tokenizer *tok;
    xr_err err = { "" };
    test_data(name, path, sizeof path);
    if (xm_tokenizer_open(path, &err, &tok))
        fail_msg("%s", err.text);
    return tok;
}

static void expect_ids(const xm_tokenizer *tok, const char *text, int special,
                       const cJSON *array)
{
    int32_t *want;
    size_t count;
    xm_ids ids = { 0 };
    xr_err err = { "" };
    assert_int_equal(xr_json_ids(array, "ids", &err, &want, &count), XRAY_OK);
    assert_int_equal(
        xm_tokenizer_encode(tok, text, strlen(text), special, &ids, &err),
        XRAY_OK);
    if (ids.count != count ||
        (count && memcmp(ids.data, want, count * sizeof *want) != 0))
        fail_msg("other ids for \"%s\"", text);
    xm_ids_free(&ids);
    free(want);
}

static void expect_text(const xm_tokenizer *tok, const cJSON *array,
                        int skip_special, const char *want)
{
    int32_t *ids;
    size_t count;
    xr_str text = { 0 };
    assert_int_equal(xr_json_ids(array, "ids", NULL, &ids, &count), XRAY_OK);
    assert_int_equal(
        xm_tokenizer_decode(tok, ids, count, skip_special, &text, NULL),
        XRAY_OK);
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
    free(ids);
}

static int check_vector(const xm_tokenizer *tok, const cJSON *v)
{
    if (strcmp(xr_json_get(v, "tokenizer")->valuestring, "llama-spm") != 0)
        return 0;
    const cJSON *ids = xr_json_get(v, "ids");
    const cJSON *decoded = xr_json_get(v, "decoded");
    const cJSON *skipped = xr_json_get(v, "decoded_skip_special");
    expect_ids(tok, xr_json_get(v, "text")->valuestring,
               cJSON_IsTrue(xr_json_get(v, "add_special")), ids);
    if (decoded)
        expect_text(tok, ids, 0, decoded->valuestring);
    if (skipped)
        expect_text(tok, ids, 1, skipped->valuestring);
    return 1;
}

static void test_llama_spm(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    int seen = 0;
    xm_tokenizer *tok = open_data("tokenizers/llama2_spm");
    assert_int_equal(xm_tokenizer_vocab(tok), 32000);
    assert_int_equal(xm_tokenizer_bos(tok), 1);
    test_data("tokenizers/vectors.jsonl", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 28, NULL, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        cJSON *vector;
        xr_err err = { "" };
        if (xr_json_parse(line, length, "vector", &err, &vector))
            fail_msg("%s", err.text);
        seen += check_vector(tok, vector);
        cJSON_Delete(vector);
        line += length + (end != NULL);
    }
    assert_int_equal(seen, 80);
    free(text);
    xm_tokenizer_close(tok);
}

static void test_stories_prompts(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    cJSON *golden;
    const cJSON *item;
    int seen = 0;
    xm_tokenizer *tok = open_data("models/stories260K/hf");
    assert_int_equal(xm_tokenizer_bos(tok), 1);
    assert_int_equal(xm_tokenizer_eos(tok), 2);
    assert_int_equal(xm_tokenizer_is_special(tok, 2), 1);
    assert_int_equal(xm_tokenizer_is_special(tok, 3), 0);
    test_data("models/stories260K/golden.json", path, sizeof path);
    assert_int_equal(xr_json_file(path, NULL, &golden), XRAY_OK);
    cJSON_ArrayForEach(item, xr_json_get(golden, "cases"))
    {
        const char *prompt = xr_json_get(item, "prompt")->valuestring;
        const cJSON *ids = xr_json_get(item, "prompt_ids");
        expect_ids(tok, prompt, 1, ids);
        expect_text(tok, ids, 1, prompt);
        seen++;
    }
    assert_true(seen > 0);
    cJSON_Delete(golden);
    xm_tokenizer_close(tok);
}

/* Any text comes back from its ids; long ones do not take quadratic time. */
static void test_round_trip(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    xm_tokenizer *tok = open_data("tokenizers/llama2_spm");
    test_data("corpora/tinyshakespeare.txt", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 28, NULL, &text, &size), XRAY_OK);
    size = size < 300000 ? size : 300000;
    text[size] = '\0';
    xm_ids ids = { 0 };
    xr_str back = { 0 };
    assert_int_equal(xm_tokenizer_encode(tok, text, size, 1, &ids, NULL),
                     XRAY_OK);
    assert_int_equal(
        xm_tokenizer_decode(tok, ids.data, ids.count, 1, &back, NULL), XRAY_OK);
    assert_string_equal(back.data, text);
    xr_str_free(&back);
    xm_ids_free(&ids);
    free(text);
    xm_tokenizer_close(tok);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *dir;
        const char *named;
    } cases[] = { { "tokenizers/gpt2", "pre_tokenizer ByteLevel" },
                  { "tokenizers/qwen2", "normalizer NFC" } };
    for (size_t i = 0; i < 2; i++) {
        char path[XR_PATH_CAP];
        xr_err err = { "" };
        xm_tokenizer *tok;
        test_data(cases[i].dir, path, sizeof path);
        assert_int_equal(xm_tokenizer_open(path, &err, &tok),
                         XRAY_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, cases[i].named));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_spm),
        cmocka_unit_test(test_stories_prompts),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
