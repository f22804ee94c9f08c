/* SPDX-License-Identifier: Apache-2.0
 *
 * Published tokenizers give the ids and texts of the Hugging Face library.
 */
#include <pthread.h>

#include <xray/numerics.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/text/tokenizer.h"
#include "tests/testing.h"

static xm_tokenizer *open_data_tokenizer(const char *name)
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

static int check_vector(const xm_tokenizer *tok, const char *name,
                        const cJSON *v)
{
    if (strcmp(xr_json_get(v, "tokenizer")->valuestring, name) != 0)
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

static void check_vectors(const xm_tokenizer *tok, const char *name, int want)
{
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    int seen = 0;
    test_data("tokenizers/vectors.jsonl", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 28, NULL, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        char *end = strchr(line, '\n');
        size_t length = end ? (size_t)(end - line) : strlen(line);
        cJSON *vector;
        xr_err err = { "" };
        if (xr_json_parse(line, length, "vector", &err, &vector))
            fail_msg("%s", err.text);
        seen += check_vector(tok, name, vector);
        cJSON_Delete(vector);
        line += length + (end != NULL);
    }
    assert_int_equal(seen, want);
    free(text);
}

static void llama2_matches_its_vectors(void **state)
{
    (void)state;
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/llama2_spm");
    assert_int_equal(xm_tokenizer_vocab(tok), 32000);
    assert_int_equal(xm_tokenizer_bos(tok), 1);
    check_vectors(tok, "llama-spm", 80);
    xm_tokenizer_close(tok);
}

static void qwen2_matches_its_vectors(void **state)
{
    (void)state;
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/qwen2");
    assert_int_equal(xm_tokenizer_vocab(tok), 151646);
    assert_int_equal(xm_tokenizer_bos(tok), -1);
    assert_int_equal(xm_tokenizer_eos(tok), 151645);
    check_vectors(tok, "qwen2", 73);
    xm_tokenizer_close(tok);
}

static void gpt2_matches_its_vectors(void **state)
{
    (void)state;
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/gpt2");
    assert_int_equal(xm_tokenizer_vocab(tok), 50257);
    check_vectors(tok, "gpt-2", 83);
    xm_tokenizer_close(tok);
}

static void stories_prompts_match_their_ids(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    cJSON *golden;
    const cJSON *item;
    int seen = 0;
    xm_tokenizer *tok = open_data_tokenizer("models/stories260K/hf");
    assert_int_equal(xm_tokenizer_bos(tok), 1);
    assert_int_equal(xm_tokenizer_eos(tok), 2);
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

static void check_round_trip(const xm_tokenizer *tok, const char *text,
                             size_t size)
{
    xm_ids ids = { 0 };
    xr_str back = { 0 };
    assert_int_equal(xm_tokenizer_encode(tok, text, size, 1, &ids, NULL),
                     XRAY_OK);
    assert_int_equal(
        xm_tokenizer_decode(tok, ids.data, ids.count, 1, &back, NULL), XRAY_OK);
    assert_int_equal(back.size, size);
    assert_memory_equal(back.data, text, size);
    xr_str_free(&back);
    xm_ids_free(&ids);
}

/* Text decodes to itself, and a long one does not take quadratic time. */
static void texts_round_trip_in_linear_time(void **state)
{
    (void)state;
    static const char *const dirs[] = { "tokenizers/llama2_spm",
                                        "tokenizers/gpt2", "tokenizers/qwen2" };
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    test_data("corpora/tinyshakespeare.txt", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 28, NULL, &text, &size), XRAY_OK);
    size = size < 300000 ? size : 300000;
    for (size_t i = 0; i < 3; i++) {
        xm_tokenizer *tok = open_data_tokenizer(dirs[i]);
        check_round_trip(tok, text, size);
        xm_tokenizer_close(tok);
    }
    free(text);
}

/* Without a normalizer every sequence of characters decodes to itself, however
 * the pattern splits it. */
static void random_characters_round_trip(void **state)
{
    (void)state;
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/gpt2");
    char text[4 * 64];
    for (uint32_t i = 0; i < 2000; i++) {
        size_t size = 0;
        xray_philox_out r = { { 0 } };
        for (uint32_t k = 0; k < 64; k++) {
            if (k % 4 == 0)
                r = xray_philox(11, i, k, 0, 0);
            uint32_t code = r.w[k % 4] % (i % 2   ? 0x110000u
                                          : i % 4 ? 0x3000u
                                                  : 0x80u);
            if (code < 0xD800 || code > 0xDFFF)
                size += (size_t)xr_utf8_encode(code, text + size);
        }
        check_round_trip(tok, text, size);
    }
    xm_tokenizer_close(tok);
}

/* A run of one kind of character is one word. Splitting and merging it takes
 * nearly linear time and does not overflow a stack. */
static void long_words_round_trip(void **state)
{
    (void)state;
    static const char *const units[] = { " ", "a", "\n", "!", "\xE4\xB8\x80" };
    enum { COUNT = 100000 };
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/qwen2");
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        xr_str text = { 0 };
        for (int k = 0; k < COUNT; k++)
            xr_str_puts(&text, units[i]);
        check_round_trip(tok, text.data, text.size);
        xr_str_free(&text);
    }
    xm_tokenizer_close(tok);
}

typedef struct worker {
    const xm_tokenizer *tok;
    const char *text;
    size_t size;
    xm_ids ids;
    xray_status status;
} worker;

static void *encode_in_thread(void *arg)
{
    worker *w = arg;
    w->status = xm_tokenizer_encode(w->tok, w->text, w->size, 1, &w->ids, NULL);
    return NULL;
}

static void threads_encode_the_same_ids(void **state)
{
    (void)state;
    char path[XR_PATH_CAP];
    char *text;
    size_t size;
    test_data("corpora/tinyshakespeare.txt", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 28, NULL, &text, &size), XRAY_OK);
    xm_tokenizer *tok = open_data_tokenizer("tokenizers/qwen2");
    worker w[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        w[i] = (worker){ .tok = tok, .text = text, .size = 60000 };
        assert_int_equal(
            pthread_create(&threads[i], NULL, encode_in_thread, &w[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(w[i].status, XRAY_OK);
        assert_int_equal(w[i].ids.count, w[0].ids.count);
        assert_memory_equal(w[i].ids.data, w[0].ids.data,
                            w[0].ids.count * sizeof *w[0].ids.data);
    }
    for (size_t i = 0; i < 3; i++)
        xm_ids_free(&w[i].ids);
    free(text);
    xm_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama2_matches_its_vectors),
        cmocka_unit_test(qwen2_matches_its_vectors),
        cmocka_unit_test(gpt2_matches_its_vectors),
        cmocka_unit_test(stories_prompts_match_their_ids),
        cmocka_unit_test(texts_round_trip_in_linear_time),
        cmocka_unit_test(random_characters_round_trip),
        cmocka_unit_test(long_words_round_trip),
        cmocka_unit_test(threads_encode_the_same_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
