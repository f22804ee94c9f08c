/* SPDX-License-Identifier: Apache-2.0
 *
 * Small tokenizers of every kind give the ids, spans and texts of the Hugging
 * Face library; tests/parity/tokenizers.py --goldens writes the goldens.
 */
#include <dirent.h>
#include <pthread.h>

#include <xray/numerics.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "model/text/tokenizer.h"
#include "tests/scratch.h"

static void check_ids(const xm_ids *ids, const cJSON *want, const char *where)
{
    int32_t *data;
    size_t count;
    assert_int_equal(xr_json_ids(want, where, NULL, &data, &count), XRAY_OK);
    if (ids->count != count ||
        (count && memcmp(ids->data, data, count * sizeof *data) != 0))
        fail_msg("%s: other ids", where);
    free(data);
}

static void check_spans(const xm_token_spans *spans, const cJSON *want,
                        size_t size, const char *where)
{
    const cJSON *pair;
    size_t i = 0;
    cJSON_ArrayForEach(pair, want)
    {
        size_t from = (size_t)pair->child->valuedouble;
        size_t to = (size_t)pair->child->next->valuedouble;
        assert_true(i < spans->count);
        xm_token_span s = spans->data[i++];
        assert_true(s.from <= s.to && s.to <= size);
        /* Tokens of the post-processor stand for no text; the library puts them
         * at 0. */
        if (to ? s.from != from || s.to != to : s.from != s.to)
            fail_msg("%s: span %zu is %zu to %zu, not %zu to %zu", where, i - 1,
                     s.from, s.to, from, to);
    }
    assert_int_equal(i, spans->count);
}

/* Checks the decoded text, all at once and id by id, where every part must be
 * valid UTF-8. */
static void check_text(const xm_tokenizer *tok, const xm_ids *ids, int skip,
                       const char *want, const char *where)
{
    xr_err err = { "" };
    xr_str complete = { 0 };
    xr_str parts = { 0 };
    xm_stream *stream;
    if (xm_tokenizer_decode(tok, ids->data, ids->count, skip, &complete, &err))
        fail_msg("%s: %s", where, err.text);
    assert_string_equal(xr_str_text(&complete), want);
    assert_int_equal(xm_stream_open(tok, skip, &err, &stream), XRAY_OK);
    for (int round = 0; round < 2; round++) {
        xr_str_clear(&parts);
        for (size_t i = 0; i < ids->count; i++) {
            size_t at = parts.size;
            uint32_t code;
            assert_int_equal(xm_stream_push(stream, ids->data[i], &parts, &err),
                             XRAY_OK);
            while (at < parts.size) {
                int n = xr_utf8_decode(parts.data + at, parts.data + parts.size,
                                       &code);
                if (!n)
                    fail_msg("%s: half a character", where);
                at += (size_t)n;
            }
        }
        assert_int_equal(xm_stream_end(stream, &parts, &err), XRAY_OK);
        assert_string_equal(xr_str_text(&parts), want);
    }
    xm_stream_close(stream);
    xr_str_free(&complete);
    xr_str_free(&parts);
}

static void check_line(const xm_tokenizer *tok, const cJSON *row,
                       const char *where)
{
    const char *text = xr_json_get(row, "text")->valuestring;
    size_t size = strlen(text);
    xr_err err = { "" };
    xm_ids ids = { 0 };
    xm_ids plain = { 0 };
    xm_ids again = { 0 };
    xm_token_spans spans = { 0 };
    if (xm_tokenizer_encode(tok, text, size, 1, &ids, &err) ||
        xm_tokenizer_encode(tok, text, size, 0, &plain, &err) ||
        xm_tokenizer_encode_spans(tok, text, size, 1, &again, &spans, &err))
        fail_msg("%s: %s", where, err.text);
    check_ids(&ids, xr_json_get(row, "ids"), where);
    check_ids(&plain, xr_json_get(row, "plain"), where);
    check_ids(&again, xr_json_get(row, "ids"), where);
    check_spans(&spans, xr_json_get(row, "spans"), size, where);
    check_text(tok, &ids, 0, xr_json_get(row, "decoded")->valuestring, where);
    check_text(tok, &ids, 1, xr_json_get(row, "skipped")->valuestring, where);
    xm_ids_free(&ids);
    xm_ids_free(&plain);
    xm_ids_free(&again);
    xm_token_spans_free(&spans);
}

/* Checks ids that no text encodes to. */
static void check_unusual_ids(const xm_tokenizer *tok, const cJSON *row,
                              const char *where)
{
    xm_ids ids = { 0 };
    assert_int_equal(xr_json_ids(xr_json_get(row, "ids"), where, NULL,
                                 &ids.data, &ids.count),
                     XRAY_OK);
    check_text(tok, &ids, 0, xr_json_get(row, "decoded")->valuestring, where);
    check_text(tok, &ids, 1, xr_json_get(row, "skipped")->valuestring, where);
    free(ids.data);
}

/* Checks a file of the folder line by line and returns the number of lines. */
static int check_file(const xm_tokenizer *tok, const char *dir,
                      const char *name,
                      void (*one)(const xm_tokenizer *tok, const cJSON *row,
                                  const char *where))
{
    char path[XR_PATH_CAP];
    char where[XR_PATH_CAP];
    xr_err err = { "" };
    char *lines;
    size_t size;
    int number = 0;
    assert_int_equal(xr_path_join(dir, name, path, sizeof path, &err), XRAY_OK);
    assert_int_equal(xr_file_read(path, 1u << 24, &err, &lines, &size),
                     XRAY_OK);
    for (char *line = lines; *line;) {
        size_t length = strcspn(line, "\n");
        cJSON *row;
        (void)snprintf(where, sizeof where, "%.4000s:%d", path, ++number);
        assert_int_equal(xr_json_parse(line, length, where, &err, &row),
                         XRAY_OK);
        one(tok, row, where);
        cJSON_Delete(row);
        line += length + (line[length] == '\n');
    }
    free(lines);
    return number;
}

static int check_folder(const char *dir)
{
    xr_err err = { "" };
    xm_tokenizer *tok;
    if (xm_tokenizer_open(dir, &err, &tok))
        fail_msg("%s", err.text);
    int lines = check_file(tok, dir, "lines.jsonl", check_line);
    assert_true(check_file(tok, dir, "ids.jsonl", check_unusual_ids) >= 14);
    xm_tokenizer_close(tok);
    return lines;
}

/* Calls `one` for every folder of goldens and returns the sum of its
 * results. */
static int visit_folders(int (*one)(const char *dir), int *out_folders)
{
    char root[XR_PATH_CAP];
    char dir[XR_PATH_CAP];
    const char *source = getenv("XRAY_SOURCE");
    int sum = 0;
    (void)snprintf(root, sizeof root, "%s/tests/text/goldens",
                   source ? source : ".");
    DIR *list = opendir(root);
    assert_non_null(list);
    *out_folders = 0;
    for (struct dirent *e; (e = readdir(list));) {
        assert_int_equal(xr_path_join(root, e->d_name, dir, sizeof dir, NULL),
                         XRAY_OK);
        if (e->d_name[0] == '.' || !xr_path_is_dir(dir))
            continue;
        sum += one(dir);
        ++*out_folders;
    }
    closedir(list);
    return sum;
}

static void every_kind_of_tokenizer_matches_the_library(void **state)
{
    (void)state;
    int folders;
    int lines = visit_folders(check_folder, &folders);
    assert_true(folders >= 19 && lines >= 800);
}

/* Makes all calls with a tokenizer that may be nonsense. Errors must have a
 * message, and encoding with spans must give the same ids. */
static void call_everything(const xm_tokenizer *tok)
{
    static const char text[] = "ab  the <s>x'S \xC3\xA9\xE4\xBD\xA0 e\xCC\x81"
                               "\n\xEF\xAC\x81\xF0\x9F\x98\x80 12";
    xm_ids ids = { 0 };
    xm_ids again = { 0 };
    xm_token_spans spans = { 0 };
    xr_str back = { 0 };
    xr_err err = { "" };
    xray_status status =
        xm_tokenizer_encode(tok, text, sizeof text - 1, 1, &ids, &err);
    assert_int_equal(xm_tokenizer_encode_spans(tok, text, sizeof text - 1, 1,
                                               &again, &spans, NULL),
                     status);
    if (status)
        assert_true(err.text[0] != '\0');
    assert_int_equal(ids.count, again.count);
    assert_int_equal(ids.count, spans.count);
    for (size_t i = 0; i < ids.count; i++) {
        assert_int_equal(ids.data[i], again.data[i]);
        assert_true(spans.data[i].from <= spans.data[i].to &&
                    spans.data[i].to < sizeof text);
    }
    (void)xm_tokenizer_decode(tok, ids.data, ids.count, 0, &back, &err);
    xr_str_free(&back);
    xm_token_spans_free(&spans);
    xm_ids_free(&again);
    xm_ids_free(&ids);
}

/* Opens the golden file with a few bytes changed, which gives an error or a
 * tokenizer. */
static int mutate_folder(const char *dir)
{
    char path[XR_PATH_CAP];
    char *json;
    size_t size;
    int accepted = 0;
    assert_int_equal(
        xr_path_join(dir, "tokenizer.json", path, sizeof path, NULL), XRAY_OK);
    assert_int_equal(xr_file_read(path, 1u << 24, NULL, &json, &size), XRAY_OK);
    for (uint32_t i = 0; i < 60; i++) {
        xray_philox_out r = xray_philox(7, i, (uint32_t)size, 0, 0);
        char *a = &json[r.w[0] % size];
        char *b = &json[r.w[1] % (i % 2 ? size : 900)];
        char old_a = *a;
        char old_b = *b;
        *a = (char)(1 + r.w[2] % 127);
        *b = "0123456789\"{}[],:aS"[r.w[3] % 19];
        (void)scratch_write("tokenizer.json", json);
        xm_tokenizer *tok;
        xr_err err = { "" };
        if (xm_tokenizer_open(scratch_dir(), &err, &tok)) {
            assert_true(err.text[0] != '\0');
        } else {
            call_everything(tok);
            xm_tokenizer_close(tok);
            accepted++;
        }
        *b = old_b;
        *a = old_a;
    }
    free(json);
    return accepted;
}

static void changed_files_open_or_are_errors(void **state)
{
    (void)state;
    int folders;
    int accepted = visit_folders(mutate_folder, &folders);
    assert_true(accepted > folders && accepted < 60 * folders);
}

static xm_tokenizer *open_golden(const char *name)
{
    char dir[XR_PATH_CAP];
    xm_tokenizer *tok;
    xr_err err = { "" };
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(dir, sizeof dir, "%s/tests/text/goldens/%s",
                   source ? source : ".", name);
    if (xm_tokenizer_open(dir, &err, &tok))
        fail_msg("%s", err.text);
    return tok;
}

/* Makes a text of any characters but U+2581, from all of Unicode or a part of
 * it. */
static size_t make_random_text(uint32_t number, char text[4 * 64])
{
    size_t size = 0;
    uint32_t below = number % 2 ? 0x110000u : number % 4 ? 0x3000u : 0x80u;
    for (uint32_t k = 0; k < 64; k++) {
        xray_philox_out r = xray_philox(11, number, k, 0, 0);
        uint32_t code = r.w[0] % below;
        if (code && code != 0x2581 && (code < 0xD800 || code > 0xDFFF))
            size += (size_t)xr_utf8_encode(code, text + size);
    }
    return size;
}

/* Without a normalizer every sequence of characters decodes to itself, however
 * the pattern splits it and whether it is in the vocabulary or falls back to
 * bytes. */
static void random_characters_round_trip(void **state)
{
    (void)state;
    static const char *const names[] = { "o200k", "llama3", "gemma3" };
    for (size_t n = 0; n < 3; n++) {
        xm_tokenizer *tok = open_golden(names[n]);
        for (uint32_t i = 0; i < 1000; i++) {
            char text[4 * 64];
            size_t size = make_random_text(i, text);
            xm_ids ids = { 0 };
            xr_str back = { 0 };
            assert_int_equal(
                xm_tokenizer_encode(tok, text, size, 1, &ids, NULL), XRAY_OK);
            assert_int_equal(
                xm_tokenizer_decode(tok, ids.data, ids.count, 1, &back, NULL),
                XRAY_OK);
            assert_int_equal(back.size, size);
            assert_memory_equal(xr_str_text(&back), text, size);
            xr_str_free(&back);
            xm_ids_free(&ids);
        }
        xm_tokenizer_close(tok);
    }
}

typedef struct worker {
    const xm_tokenizer *tok;
    xr_str text;
    xm_ids ids;
    xray_status status;
} worker;

static void *encode_in_thread(void *arg)
{
    worker *w = arg;
    w->status = xm_tokenizer_encode(w->tok, w->text.data, w->text.size, 1,
                                    &w->ids, NULL);
    return NULL;
}

/* Three threads share one tokenizer and its cache of words. */
static void threads_share_one_tokenizer(void **state)
{
    (void)state;
    xm_tokenizer *tok = open_golden("qwen2");
    worker w[3];
    pthread_t threads[3];
    for (size_t i = 0; i < 3; i++) {
        w[i] = (worker){ .tok = tok };
        for (uint32_t k = 0; k < 400; k++) {
            char text[4 * 64];
            size_t size = make_random_text(k, text);
            xr_str_append(&w[i].text, text, size);
            xr_str_puts(&w[i].text, " the quick brown fox, then don't 12 ");
        }
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
    for (size_t i = 0; i < 3; i++) {
        xm_ids_free(&w[i].ids);
        xr_str_free(&w[i].text);
    }
    xm_tokenizer_close(tok);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_tokenizer_matches_the_library),
        cmocka_unit_test(random_characters_round_trip),
        cmocka_unit_test(threads_share_one_tokenizer),
        cmocka_unit_test(changed_files_open_or_are_errors)
    };
    return cmocka_run_group_tests_name("text.goldens", tests, scratch_make,
                                       scratch_drop);
}
