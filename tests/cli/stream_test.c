/* SPDX-License-Identifier: Apache-2.0
 *
 * xray generate --stop and --stream: a sample ends before a text, whatever is
 * sampled beside it, and printed texts are those of the JSON lines.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static const char *stories(void)
{
    static char path[512];
    (void)test_data("models/stories260K/hf/config.json", path, sizeof path);
    *strrchr(path, '/') = '\0';
    return path;
}

/* A model of random weights whose tokens are letters and single bytes of
 * characters that have several. */
static const char *byte_model(void)
{
    const char *dir = scratch_path("bytes");
    xr_err err = { "" };
    if (xr_dir_make(dir, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    (void)scratch_write(
        "bytes/config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_size\":16,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":2,"
        "\"intermediate_size\":16,\"max_position_embeddings\":128,"
        "\"rms_norm_eps\":1e-5,\"tie_word_embeddings\":false,"
        "\"hidden_act\":\"silu\",\"vocab_size\":8,\"eos_token_id\":7}");
    (void)scratch_write(
        "bytes/tokenizer.json",
        "{\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":"
        "\"WordLevel\",\"unk_token\":\"u\",\"vocab\":{\"a\":0,"
        "\"\\u00c3\":1,\"\\u00a9\":2,\"\\u00e2\":3,\"\\u0124\":4,"
        "\"\\u00ac\":5,\"u\":6}},\"added_tokens\":[{\"id\":7,"
        "\"content\":\"</s>\",\"special\":true}]}");
    return scratch_path("bytes");
}

static const char *text_of(const cJSON *output)
{
    return xr_json_get(output, "text")->valuestring;
}

static const char *finish_of(const cJSON *output)
{
    return xr_json_get(output, "finish_reason")->valuestring;
}

/* ---- stops -------------------------------------------------------------- */

#define LINES                             \
    "{\"prompt\":\"Once upon a time\"}\n" \
    "{\"prompt\":\"One day\",\"n\":7}\n"  \
    "{\"prompt\":\"Lily was\",\"seed\":5}\n"
#define SAMPLING                                                  \
    "generate", "--model", stories(), "--n", "24", "--seed", "3", \
        "--max-tokens", "40", "--temperature", "1.5"

/* Returns where the first of the texts begins, or NULL. */
static const char *find_first(const char *text, const char *const *stops)
{
    const char *first = NULL;
    for (; *stops; stops++) {
        const char *at = strstr(text, *stops);
        first = at && (!first || at < first) ? at : first;
    }
    return first;
}

/* Compares the first `count` entries of two arrays. */
static void expect_same_start(const cJSON *got, const cJSON *plain, int count)
{
    assert_int_equal(cJSON_GetArraySize(got), count);
    assert_true(cJSON_GetArraySize(plain) >= count);
    for (int i = 0; i < count; i++)
        assert_true(cJSON_Compare(cJSON_GetArrayItem(got, i),
                                  cJSON_GetArrayItem(plain, i), 1));
}

typedef struct stop_counts {
    int stopped;
    int early; /* stopped with fewer tokens than without the option */
    int untouched;
} stop_counts;

/* Appends the ids of a stopped sample, and those without the last, as lines to
 * decode. */
static void append_ids(const cJSON *output, xr_str *lines)
{
    cJSON *ids = cJSON_Duplicate(xr_json_get(output, "ids"), 1);
    for (int i = 0; i < 2; i++) {
        char *text = cJSON_PrintUnformatted(ids);
        xr_str_printf(lines, "{\"ids\":%s}\n", text);
        free(text);
        cJSON_DeleteItemFromArray(ids, cJSON_GetArraySize(ids) - 1);
    }
    cJSON_Delete(ids);
}

static void compare_with_plain(const cJSON *got, const cJSON *plain,
                               const char *const *stops, stop_counts *n,
                               xr_str *lines)
{
    const char *text = text_of(plain);
    const char *first = find_first(text, stops);
    if (!first) {
        assert_true(cJSON_Compare(got, plain, 1));
        n->untouched++;
        return;
    }
    const cJSON *ids = xr_json_get(got, "ids");
    int count = cJSON_GetArraySize(ids);
    size_t size = (size_t)(first - text);
    assert_int_equal(strlen(text_of(got)), size);
    assert_memory_equal(text_of(got), text, size);
    assert_string_equal(finish_of(got), "stop");
    expect_same_start(ids, xr_json_get(plain, "ids"), count);
    expect_same_start(xr_json_get(got, "logprobs"),
                      xr_json_get(plain, "logprobs"), count);
    append_ids(got, lines);
    n->stopped++;
    n->early += count < cJSON_GetArraySize(xr_json_get(plain, "ids"));
}

/* The ids of a stopped sample end with the token that completes a stop. */
static void expect_stop_at_the_last_id(const xr_str *lines,
                                       const char *const *stops, int count)
{
    const program_result *r =
        RUN(xr_str_text(lines), "tokenize", "--model", stories(), "--decode");
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 2 * count);
    for (int i = 0; i < 2 * count; i++) {
        cJSON *line = output_line(r, (size_t)i);
        const char *first = find_first(text_of(line), stops);
        assert_int_equal(first != NULL, i % 2 == 0);
        cJSON_Delete(line);
    }
}

static void expect_only_stops(const char *const *stops, stop_counts *n)
{
    cJSON *plain[3];
    xr_str lines = { 0 };
    const program_result *r = RUN(LINES, SAMPLING);
    expect_code(r, 0);
    for (size_t i = 0; i < 3; i++)
        plain[i] = output_line(r, i);
    r = stops[1] ? RUN(LINES, SAMPLING, "--stop", stops[0], "--stop", stops[1])
                 : RUN(LINES, SAMPLING, "--stop", stops[0]);
    expect_code(r, 0);
    *n = (stop_counts){ 0 };
    for (size_t i = 0; i < 3; i++) {
        cJSON *line = output_line(r, i);
        const cJSON *outputs = xr_json_get(line, "outputs");
        const cJSON *before = xr_json_get(plain[i], "outputs");
        int count = cJSON_GetArraySize(before);
        assert_int_equal(cJSON_GetArraySize(outputs), count);
        for (int k = 0; k < count; k++)
            compare_with_plain(cJSON_GetArrayItem(outputs, k),
                               cJSON_GetArrayItem(before, k), stops, n, &lines);
        cJSON_Delete(line);
    }
    expect_stop_at_the_last_id(&lines, stops, n->stopped);
    for (size_t i = 0; i < 3; i++)
        cJSON_Delete(plain[i]);
    xr_str_free(&lines);
}

/* Samples beside one that stops keep their bits. */
static void only_the_sample_with_the_text_stops(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        { "was", NULL },
        { "sad", " a big", NULL },
        { "d a", "zzz", NULL }, /* begins and ends inside words */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stop_counts n;
        expect_only_stops(cases[i], &n);
        if (n.early < 3 || n.untouched < 3)
            fail_msg("case %zu: %d stopped, %d of them early, %d did not", i,
                     n.stopped, n.early, n.untouched);
    }
}

/* An engine may give many tokens at once, and some after an abort. */
static void parts_of_any_length_give_the_same(void **state)
{
    (void)state;
    char sick[512];
    (void)snprintf(sick, sizeof sick, "%s/tests/sick", getenv("XRAY_BUILD"));
    for (int stream = 0; stream < 2; stream++) {
        const char *more = stream ? "--stream" : "--ignore-eos";
        const program_result *r =
            RUN(LINES, SAMPLING, "--stop", " a", "--stop", ".\n", more);
        expect_code(r, 0);
        char *want = strdup(r->out);
        assert_int_equal(setenv("SICK", "infer-pieces", 1), 0);
        r = RUN(LINES, SAMPLING, "--stop", " a", "--stop", ".\n", more,
                "--plugin-path", sick, "--infer", "sick");
        assert_int_equal(unsetenv("SICK"), 0);
        expect_code(r, 0);
        assert_string_equal(r->out, want);
        free(want);
    }
}

/* A line's own texts are used instead of the command's. */
static void lines_have_stops_of_their_own(void **state)
{
    (void)state;
    static const char input[] =
        "{\"prompt\":\"Once upon a time\"}\n"
        "{\"prompt\":\"Once upon a time\",\"stop\":\"named\"}\n"
        "{\"prompt\":\"Once upon a time\",\"stop\":[\"nothing\",\" cat\"]}\n"
        "{\"prompt\":\"Once upon a time\",\"stop\":[]}\n"
        "{\"prompt\":\"Once upon a time\",\"stop\":null}\n";
    static const char *const want[] = { "there was a ", "there was a big cat ",
                                        "there was a big", NULL,
                                        "there was a " };
    const program_result *r =
        RUN(input, "generate", "--model", stories(), "--temperature", "0",
            "--max-tokens", "12", "--stop", "big");
    expect_code(r, 0);
    for (size_t i = 0; i < 5; i++) {
        cJSON *line = output_line(r, i);
        const cJSON *out = cJSON_GetArrayItem(xr_json_get(line, "outputs"), 0);
        if (want[i])
            assert_string_equal(text_of(out), want[i]);
        assert_string_equal(finish_of(out), want[i] ? "stop" : "length");
        cJSON_Delete(line);
    }
}

/* ---- texts as they come ------------------------------------------------- */

/* Joins the texts of all outputs, each with a newline after it. */
static void append_texts(const program_result *r, xr_str *out)
{
    size_t count = count_lines(r->out);
    for (size_t i = 0; i < count; i++) {
        cJSON *line = output_line(r, i);
        const cJSON *output;
        cJSON_ArrayForEach(output, xr_json_get(line, "outputs"))
        {
            xr_str_printf(out, "%s\n", text_of(output));
        }
        cJSON_Delete(line);
    }
}

static void streamed_texts_are_those_of_lines(void **state)
{
    (void)state;
    xr_str want = { 0 };
    append_texts(RUN(LINES, SAMPLING), &want);
    const program_result *r = RUN(LINES, SAMPLING, "--stream");
    expect_code(r, 0);
    assert_string_equal(r->out, xr_str_text(&want));
    assert_string_equal(r->err, "");
    xr_str_clear(&want);
    append_texts(RUN(LINES, SAMPLING, "--stop", "a", "--stop", ". "), &want);
    r = RUN(LINES, SAMPLING, "--stop", "a", "--stop", ". ", "--stream");
    expect_code(r, 0);
    assert_string_equal(r->out, xr_str_text(&want));
    xr_str_free(&want);
}

#define BYTES(more) \
    "{\"ids\":[0,1],\"n\":40" more "}\n{\"ids\":[3],\"n\":20" more "}\n"

/* Random tokens of single bytes make complete characters and broken ones. */
static void characters_of_several_tokens_are_whole(void **state)
{
    (void)state;
    static const char *const inputs[] = {
        BYTES(""),
        BYTES(",\"stop\":\"\xC3\xA9\""),
        BYTES(",\"stop\":[\"a\xE2\x82\xAC\",\"aa\"]"),
    };
    const char *dir = byte_model();
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) {
        xr_str want = { 0 };
        const program_result *r =
            RUN(inputs[i], "generate", "--model", dir, "--set",
                "model.init=random", "--max-tokens", "64");
        expect_code(r, 0);
        append_texts(r, &want);
        r = RUN(inputs[i], "generate", "--model", dir, "--set",
                "model.init=random", "--max-tokens", "64", "--stream");
        expect_code(r, 0);
        assert_string_equal(r->out, xr_str_text(&want));
        if (i == 0) {
            expect_text(r->out, "\xC3\xA9");
            expect_text(r->out, "\xEF\xBF\xBD");
        } else {
            assert_null(strstr(r->out, i == 1 ? "\xC3\xA9" : "aa"));
        }
        xr_str_free(&want);
    }
}

/* Errors of lines are no text. */
static void errors_go_to_standard_error(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"prompt\":\"Once upon a time\"}\n{\"prompt\":\"\"}\n"
            "{\"prompt\":\"Once upon a time\",\"stop\":[\"a\",\"\"]}\n"
            "{\"prompt\":\"Once upon a time\",\"stop\":7}\n"
            "{\"prompt\":\"Once upon a time\",\"stream\":true}\n",
            "generate", "--model", stories(), "--temperature", "0",
            "--max-tokens", "3", "--stream");
    expect_code(r, 1);
    assert_string_equal(r->out, "there was a\nOnce upon a\n");
    assert_string_equal(
        r->err,
        "xray: stdin:3: \"stop\" takes a text or a list of texts, each of at "
        "least one character\n"
        "xray: stdin:4: \"stop\" takes a text or a list of texts, each of at "
        "least one character\n"
        "xray: stdin:5: there is no key \"stream\"\n");
}

/* Before a line is read: the program does not wait for input. Texts as they
 * come need no abort of a sample, which stops do. */
static void what_cannot_be_watched_is_refused(void **state)
{
    (void)state;
    static const char shell[] =
        "export XRAY_PLUGIN_PATH=$XRAY_BUILD/tests/fakes:$XRAY_BUILD/tests/"
        "sick SICK=infer-no-abort\n"
        "mkfifo $XRAY_SCRATCH/never && exec 3<>$XRAY_SCRATCH/never\n"
        "for what in 'grid --stop a' 'grid --stream' 'sick --stop a'; do\n"
        "timeout 60 $XRAY_BIN generate --model $MODEL --infer $what <&3; echo "
        "$?\n"
        "done 2>&1\n"
        "$XRAY_BIN generate --model $MODEL --infer sick --stream </dev/null "
        "2>&1; echo $?\n";
    assert_int_equal(setenv("MODEL", stories(), 1), 0);
    const program_result *r = program_shell(shell);
    assert_string_equal(
        r->out, "xray: --stop: infer.grid does not offer stream, which is "
                "asked for\n2\n"
                "xray: --stream: infer.grid does not offer stream, which is "
                "asked for\n2\n"
                "xray: --stop: infer.sick does not offer the abort of one "
                "sample, which is asked for\n2\n"
                "0\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_sample_with_the_text_stops),
        cmocka_unit_test(parts_of_any_length_give_the_same),
        cmocka_unit_test(lines_have_stops_of_their_own),
        cmocka_unit_test(streamed_texts_are_those_of_lines),
        cmocka_unit_test(characters_of_several_tokens_are_whole),
        cmocka_unit_test(errors_go_to_standard_error),
        cmocka_unit_test(what_cannot_be_watched_is_refused),
    };
    return cmocka_run_group_tests_name("cli.stream", tests, scratch_make,
                                       program_done);
}
