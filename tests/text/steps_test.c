/* SPDX-License-Identifier: Apache-2.0
 *
 * Each step of a tokenizer.json alone does what it does in the Hugging Face
 * library (goldens/steps.jsonl), and files that are refused get the right
 * message (goldens/refused.jsonl).
 */
#include "core/base/json.h"
#include "tests/text/small_tokenizer.h"

#define PATH_CAP 512

#define LIST_CAP 40
typedef struct token_list {
    int32_t data[LIST_CAP];
    size_t count;
} token_list;

/* Writes a model with a token for every byte, so that ids decode to the
 * normalized text. */
static void write_byte_model(xr_str *json)
{
    xr_str_puts(json, ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":["
                      "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}]},"
                      "\"model\":{\"type\":\"BPE\",\"merges\":[],"
                      "\"byte_fallback\":true,\"vocab\":{");
    for (unsigned i = 0; i < 256; i++)
        xr_str_printf(json, "%s\"<0x%02X>\":%u", i ? "," : "", i, i);
    xr_str_puts(json, "}}}");
}

/* Writes a model in which every word is unknown; spans tell the words apart. */
static void write_unknown_model(xr_str *json)
{
    xr_str_puts(json, ",\"model\":{\"type\":\"WordLevel\",\"unk_token\":"
                      "\"?\",\"vocab\":{\"?\":0}}}");
}

/* Writes a model whose vocabulary is the tokens of a list, without
 * repetitions. */
static void write_token_model(xr_str *json, const cJSON *tokens,
                              token_list *ids)
{
    const cJSON *item;
    const cJSON *before;
    int32_t count = 0;
    xr_str_puts(json, ",\"model\":{\"type\":\"WordLevel\",\"vocab\":{");
    cJSON_ArrayForEach(item, tokens)
    {
        int32_t id = 0;
        cJSON_ArrayForEach(before, tokens)
        {
            if (strcmp(before->valuestring, item->valuestring) == 0)
                break;
            id++;
        }
        if (before == item) {
            char *text = cJSON_PrintUnformatted(item);
            xr_str_printf(json, "%s%s:%d", count ? "," : "", text, id);
            cJSON_free(text);
        }
        assert_true(count < LIST_CAP);
        ids->data[count++] = id;
    }
    ids->count = (size_t)count;
    xr_str_puts(json, "}}}");
}

static void check_normalizer(const xm_tokenizer *tok, const cJSON *row,
                             const char *where)
{
    const char *text = xr_json_get(row, "t")->valuestring;
    const char *want = xr_json_get(row, "o")->valuestring;
    xm_ids ids = { 0 };
    xr_str back = { 0 };
    xr_err err = { "" };
    if (xm_tokenizer_encode(tok, text, strlen(text), 0, &ids, &err) ||
        xm_tokenizer_decode(tok, ids.data, ids.count, 0, &back, &err))
        fail_msg("%s: %s", where, err.text);
    if (strcmp(xr_str_text(&back), want) != 0)
        fail_msg("%s: [%s], not [%s]", where, xr_str_text(&back), want);
    xr_str_free(&back);
    xm_ids_free(&ids);
}

static void check_words(const xm_tokenizer *tok, const cJSON *row,
                        const char *where)
{
    const char *text = xr_json_get(row, "t")->valuestring;
    const cJSON *want;
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    xr_err err = { "" };
    size_t i = 0;
    if (xm_tokenizer_encode_spans(tok, text, strlen(text), 0, &ids, &spans,
                                  &err))
        fail_msg("%s: %s", where, err.text);
    cJSON_ArrayForEach(want, xr_json_get(row, "o"))
    {
        xm_token_span s = { 0, 0 };
        if (i < spans.count)
            s = spans.data[i];
        if (s.to - s.from != strlen(want->valuestring) ||
            memcmp(text + s.from, want->valuestring, s.to - s.from) != 0)
            fail_msg("%s: word %zu is [%.*s], not [%s]", where, i,
                     (int)(s.to - s.from), text + s.from, want->valuestring);
        i++;
    }
    if (i != spans.count)
        fail_msg("%s: %zu words, not %zu", where, spans.count, i);
    xm_token_spans_free(&spans);
    xm_ids_free(&ids);
}

/* After `count` ids a stream has given their text, or would give the rest of it
 * if it ended there. */
static void check_peek(const xm_tokenizer *tok, const token_list *ids,
                       size_t count, const xm_stream *stream,
                       const xr_str *parts)
{
    xr_err err = { "" };
    xr_str want = { 0 };
    xr_str got = { 0 };
    if (xm_tokenizer_decode(tok, ids->data, count, 0, &want, &err))
        fail_msg("%s", err.text);
    xr_str_puts(&got, xr_str_text(parts));
    assert_int_equal(xm_stream_peek(stream, &got, &err), XRAY_OK);
    assert_string_equal(xr_str_text(&got), xr_str_text(&want));
    xr_str_free(&want);
    xr_str_free(&got);
}

/* Decodes the ids at once, and one by one. */
static void check_decoder(const xm_tokenizer *tok, const token_list *ids,
                          const char *want, const char *where)
{
    xr_err err = { "" };
    xr_str complete = { 0 };
    xr_str parts = { 0 };
    xm_stream *stream;
    if (xm_tokenizer_decode(tok, ids->data, ids->count, 0, &complete, &err))
        fail_msg("%s: %s", where, err.text);
    if (strcmp(xr_str_text(&complete), want) != 0)
        fail_msg("%s: [%s], not [%s]", where, xr_str_text(&complete), want);
    assert_int_equal(xm_stream_open(tok, 0, &err, &stream), XRAY_OK);
    for (int round = 0; round < 2; round++) {
        xr_str_clear(&parts);
        for (size_t i = 0; i < ids->count; i++) {
            assert_int_equal(xm_stream_push(stream, ids->data[i], &parts, &err),
                             XRAY_OK);
            check_peek(tok, ids, i + 1, stream, &parts);
        }
        assert_int_equal(xm_stream_end(stream, &parts, &err), XRAY_OK);
        if (strcmp(xr_str_text(&parts), want) != 0)
            fail_msg("%s: streamed [%s], not [%s]", where, xr_str_text(&parts),
                     want);
    }
    xm_stream_close(stream);
    xr_str_free(&complete);
    xr_str_free(&parts);
}

static void check_complete_file(const xm_tokenizer *tok, const cJSON *row,
                                const char *where)
{
    const char *text = xr_json_get(row, "t")->valuestring;
    int32_t *want;
    size_t count;
    xm_ids ids = { 0 };
    xr_err err = { "" };
    assert_int_equal(
        xr_json_ids(xr_json_get(row, "o"), where, NULL, &want, &count),
        XRAY_OK);
    if (xm_tokenizer_encode(tok, text, strlen(text), 1, &ids, &err))
        fail_msg("%s: %s", where, err.text);
    if (ids.count != count ||
        (count && memcmp(ids.data, want, count * sizeof *want) != 0))
        fail_msg("%s: other ids for \"%s\"", where, text);
    free(want);
    xm_ids_free(&ids);
}

/* Checks the bytes of the text that each token stands for. */
static void check_spans(const xm_tokenizer *tok, const cJSON *row,
                        const char *where)
{
    const char *text = xr_json_get(row, "t")->valuestring;
    const cJSON *want = xr_json_get(row, "o");
    xm_ids ids = { 0 };
    xm_token_spans spans = { 0 };
    xr_err err = { "" };
    if (xm_tokenizer_encode_spans(tok, text, strlen(text), 1, &ids, &spans,
                                  &err))
        fail_msg("%s: %s", where, err.text);
    if (spans.count != (size_t)cJSON_GetArraySize(want))
        fail_msg("%s: %zu spans", where, spans.count);
    for (size_t i = 0; i < spans.count; i++) {
        const cJSON *range = cJSON_GetArrayItem(want, (int)i);
        if (spans.data[i].from != (size_t)range->child->valueint ||
            spans.data[i].to != (size_t)range->child->next->valueint)
            fail_msg("%s: span %zu is %zu to %zu", where, i,
                     (size_t)spans.data[i].from, (size_t)spans.data[i].to);
    }
    xm_token_spans_free(&spans);
    xm_ids_free(&ids);
}

static void check_row(const cJSON *row, const char *where)
{
    const char *kind = xr_json_get(row, "k")->valuestring;
    char *step = cJSON_PrintUnformatted(xr_json_get(row, "s"));
    xr_str json = { 0 };
    token_list ids = { 0 };
    assert_non_null(step);
    if (strcmp(kind, "whole") == 0 || strcmp(kind, "spans") == 0)
        xr_str_puts(&json, step);
    else
        xr_str_printf(&json, "{\"%s\":%s", kind, step);
    if (strcmp(kind, "normalizer") == 0)
        write_byte_model(&json);
    else if (strcmp(kind, "pre_tokenizer") == 0)
        write_unknown_model(&json);
    else if (strcmp(kind, "decoder") == 0)
        write_token_model(&json, xr_json_get(row, "t"), &ids);
    xm_tokenizer *tok = make_tokenizer(xr_str_text(&json));
    if (strcmp(kind, "normalizer") == 0)
        check_normalizer(tok, row, where);
    else if (strcmp(kind, "pre_tokenizer") == 0)
        check_words(tok, row, where);
    else if (strcmp(kind, "decoder") == 0)
        check_decoder(tok, &ids, xr_json_get(row, "o")->valuestring, where);
    else if (strcmp(kind, "spans") == 0)
        check_spans(tok, row, where);
    else
        check_complete_file(tok, row, where);
    xm_tokenizer_close(tok);
    xr_str_free(&json);
    cJSON_free(step);
}

/* Checks a file that must be refused, or that is just acceptable. "e" is the
 * message after the file's name, null if the tokenizer opens; "c" is
 * tokenizer_config.json. */
static void check_refusal(const cJSON *row, const char *where)
{
    char *json = cJSON_PrintUnformatted(xr_json_get(row, "s"));
    char *config = cJSON_PrintUnformatted(xr_json_get(row, "c"));
    const cJSON *want = xr_json_get(row, "e");
    char path[PATH_CAP];
    xm_tokenizer *tok = NULL;
    xr_err err = { "" };
    (void)scratch_write("tokenizer.json", json);
    if (config)
        (void)scratch_write("tokenizer_config.json", config);
    (void)snprintf(path, sizeof path, "%s: ", scratch_path("tokenizer.json"));
    size_t size = strlen(path);
    xray_status status = xm_tokenizer_open(scratch_dir(), &err, &tok);
    if (!want && status)
        fail_msg("%s: %s", where, err.text);
    if (want && !status)
        fail_msg("%s: opened", where);
    if (want && (strncmp(err.text, path, size) != 0 ||
                 strcmp(err.text + size, want->valuestring) != 0))
        fail_msg("%s: [%s], not [%s]", where, err.text, want->valuestring);
    if (!status)
        xm_tokenizer_close(tok);
    (void)unlink(scratch_path("tokenizer_config.json"));
    cJSON_free(config);
    cJSON_free(json);
}

/* Calls `one` for every line of a file of goldens and returns the number of
 * lines. */
static int visit_lines(const char *name,
                       void (*one)(const cJSON *row, const char *where))
{
    char path[PATH_CAP];
    char where[PATH_CAP];
    char *text;
    size_t size;
    int number = 0;
    xr_err err = { "" };
    const char *source = getenv("XRAY_SOURCE");
    (void)unlink(scratch_path("tokenizer_config.json"));
    (void)snprintf(path, sizeof path, "%s/tests/text/goldens/%s",
                   source ? source : ".", name);
    assert_int_equal(xr_file_read(path, 1u << 20, &err, &text, &size), 0);
    for (char *line = text; *line;) {
        size_t length = strcspn(line, "\n");
        cJSON *row;
        (void)snprintf(where, sizeof where, "%s:%d", name, ++number);
        if (xr_json_parse(line, length, where, &err, &row))
            fail_msg("%s", err.text);
        one(row, where);
        cJSON_Delete(row);
        line += length + (line[length] == '\n');
    }
    free(text);
    return number;
}

static void each_step_matches_the_library(void **state)
{
    (void)state;
    assert_true(visit_lines("steps.jsonl", check_row) > 400);
}

/* Sweeps: every class of characters through each step, every behavior of a
 * Split at the ends of a text, random marks, vocabularies and added tokens. */
static void steps_hold_for_all_characters(void **state)
{
    (void)state;
    assert_true(visit_lines("step_rules.jsonl", check_row) > 450);
}

static void refused_files_have_these_sentences(void **state)
{
    (void)state;
    assert_true(visit_lines("refused.jsonl", check_refusal) > 150);
}

/* A pattern of a decoder that backtracks without end is an error, for a list of
 * ids, for an id of a stream, and at its end. */
static void endless_backtracking_of_a_decoder_is_an_error(void **state)
{
    (void)state;
    static const char *const fuse[] = { "", "{\"type\":\"Fuse\"}," };
    for (int fused = 0; fused < 2; fused++) {
        char json[800];
        char word[201] = "";
        const int32_t id = 0;
        xr_str text = { 0 };
        xr_err err = { "" };
        xr_err end = { "" };
        xm_stream *stream;
        memset(word, 'a', sizeof word - 1);
        (void)snprintf(json, sizeof json,
                       "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[%s{"
                       "\"type\":\"Replace\",\"content\":\"\",\"pattern\":{"
                       "\"Regex\":\"(a+|aa)+(a|aa)+[bc]\"}}]},\"model\":{"
                       "\"type\":\"WordLevel\",\"vocab\":{\"%s\":0}}}",
                       fuse[fused], word);
        xm_tokenizer *tok = make_tokenizer(json);
        assert_int_equal(xm_tokenizer_decode(tok, &id, 1, 0, &text, &err),
                         XRAY_E_RANGE);
        assert_non_null(strstr(err.text, "takes too long"));
        assert_int_equal(text.size, 0);
        assert_int_equal(xm_stream_open(tok, 0, &err, &stream), XRAY_OK);
        assert_int_equal(xm_stream_push(stream, id, &text, &err),
                         fused ? XRAY_OK : XRAY_E_RANGE);
        if (fused) {
            assert_int_equal(xm_stream_end(stream, &text, &end), XRAY_E_RANGE);
            assert_non_null(strstr(end.text, "takes too long"));
        }
        xm_stream_close(stream);
        xr_str_free(&text);
        xm_tokenizer_close(tok);
    }
}

/* A file that is not JSON is refused with what is wrong in it. */
static void files_that_are_no_json_are_named(void **state)
{
    (void)state;
    static const char *const names[] = { "tokenizer.json",
                                         "tokenizer_config.json" };
    for (int i = 0; i < 2; i++) {
        xr_err err = { "" };
        xm_tokenizer *tok;
        (void)scratch_write("tokenizer.json",
                            "{\"model\":{\"type\":\"WordLevel\",\"vocab\":{"
                            "\"a\":0}}}");
        (void)scratch_write(names[i], "{\n\"model\": }");
        assert_int_not_equal(xm_tokenizer_open(scratch_dir(), &err, &tok), 0);
        if (strncmp(err.text, scratch_path(names[i]),
                    strlen(scratch_path(names[i]))) != 0 ||
            strstr(err.text, "must be a JSON object"))
            fail_msg("%s", err.text);
    }
    (void)unlink(scratch_path("tokenizer_config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_step_matches_the_library),
        cmocka_unit_test(steps_hold_for_all_characters),
        cmocka_unit_test(refused_files_have_these_sentences),
        cmocka_unit_test(endless_backtracking_of_a_decoder_is_an_error),
        cmocka_unit_test(files_that_are_no_json_are_named),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
