/* SPDX-License-Identifier: Apache-2.0
 *
 * xray tokenize against the tokenizer vectors, and what all line tools share.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static const char *stories_folder(void)
{
    static char path[512];
    (void)test_data("models/stories260K/hf/tokenizer.json", path, sizeof path);
    *strrchr(path, '/') = '\0';
    return path;
}

static const char *llama_folder(void)
{
    static char path[512];
    (void)test_data("tokenizers/llama2_spm/tokenizer.json", path, sizeof path);
    *strrchr(path, '/') = '\0';
    return path;
}

/* Lines of vectors.jsonl for this tokenizer and rule, each as an object. */
static size_t read_vectors(int special, cJSON **out, size_t cap)
{
    char path[512];
    char *text;
    size_t size;
    size_t count = 0;
    xr_err err = { "" };
    (void)test_data("tokenizers/vectors.jsonl", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1 << 24, &err, &text, &size), XRAY_OK);
    for (char *line = text; *line;) {
        size_t n = strcspn(line, "\n");
        cJSON *row;
        assert_int_equal(xr_json_parse(line, n, path, &err, &row), XRAY_OK);
        line += n + (line[n] == '\n');
        const char *name = xr_json_get(row, "tokenizer")->valuestring;
        if (strcmp(name, "llama-spm") == 0 &&
            cJSON_IsTrue(xr_json_get(row, "add_special")) == special) {
            assert_true(count < cap);
            out[count++] = row;
        } else {
            cJSON_Delete(row);
        }
    }
    free(text);
    return count;
}

static void expect_same_ids(const cJSON *got, const cJSON *want)
{
    if (got && cJSON_Compare(got, want, 1))
        return;
    char *a = got ? cJSON_PrintUnformatted(got) : NULL;
    char *b = cJSON_PrintUnformatted(want);
    print_message("got %s\nnot %s\n", a ? a : "nothing", b);
    free(a);
    free(b);
    fail();
}

/* Appends a line with one key of a vector. */
static void append_line(xr_str *input, const cJSON *row, const char *key)
{
    cJSON *line = cJSON_CreateObject();
    cJSON_AddItemToObject(line, key, cJSON_Duplicate(xr_json_get(row, key), 1));
    char *text = cJSON_PrintUnformatted(line);
    xr_str_printf(input, "%s\n", text);
    free(text);
    cJSON_Delete(line);
}

static void vectors_agree(void **state)
{
    (void)state;
    for (int special = 0; special < 2; special++) {
        cJSON *rows[128];
        xr_str texts = { 0 };
        xr_str ids = { 0 };
        size_t count = read_vectors(special, rows, 128);
        assert_true(count > 30);
        for (size_t i = 0; i < count; i++) {
            append_line(&texts, rows[i], "text");
            append_line(&ids, rows[i], "ids");
        }
        const program_result *r =
            RUN(xr_str_text(&texts), "tokenize", "--model", llama_folder(),
                special ? "--special=on" : "--special=off");
        expect_code(r, 0);
        assert_int_equal(count_lines(r->out), count);
        for (size_t i = 0; i < count; i++) {
            cJSON *line = output_line(r, i);
            expect_same_ids(xr_json_get(line, "ids"),
                            xr_json_get(rows[i], "ids"));
            cJSON_Delete(line);
        }
        r = RUN(xr_str_text(&ids), "tokenize", "--decode", "--model",
                llama_folder());
        expect_code(r, 0);
        for (size_t i = 0; i < count; i++) {
            const cJSON *want = xr_json_get(rows[i], "decoded_skip_special");
            cJSON *line = output_line(r, i);
            if (want)
                expect_same_ids(xr_json_get(line, "text"), want);
            cJSON_Delete(line);
            cJSON_Delete(rows[i]);
        }
        xr_str_free(&texts);
        xr_str_free(&ids);
    }
}

/* The line with the ids of "Once upon a time", those from `first` to `end`. */
static const char *make_known_line(int first, int end)
{
    static char line[128];
    char path[512];
    xr_err err = { "" };
    cJSON *golden = NULL;
    (void)test_data("models/stories260K/golden.json", path, sizeof path);
    assert_int_equal(xr_json_file(path, &err, &golden), XRAY_OK);
    const cJSON *ids = xr_json_get(
        cJSON_GetArrayItem(xr_json_get(golden, "cases"), 1), "prompt_ids");
    size_t used = (size_t)snprintf(line, sizeof line, "{\"ids\":[");
    assert_int_equal(cJSON_GetArraySize(ids), 5);
    for (int i = first; i < end; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%d",
                                 i > first ? "," : "",
                                 cJSON_GetArrayItem(ids, i)->valueint);
    (void)snprintf(line + used, sizeof line - used, "]}\n");
    cJSON_Delete(golden);
    return line;
}

static void special_tokens_are_optional(void **state)
{
    (void)state;
    const char *input = "{\"text\":\"Once upon a time\"}\n";
    const program_result *r =
        RUN(input, "tokenize", "--model", stories_folder());
    expect_code(r, 0);
    assert_string_equal(r->out, make_known_line(0, 5));
    assert_string_equal(r->err, "");
    r = RUN(input, "tokenize", "--model", stories_folder(), "--special", "off");
    assert_string_equal(r->out, make_known_line(1, 5));
    input = make_known_line(0, 5);
    r = RUN(input, "tokenize", "--model", stories_folder(), "--decode");
    assert_string_equal(r->out, "{\"text\":\"Once upon a time\"}\n");
    r = RUN(input, "tokenize", "--model", stories_folder(), "--decode",
            "--special=on");
    expect_code(r, 0);
    expect_text(r->out, "<s>");
}

/* Every line has one answer, also an invalid one. */
static void bad_lines_are_answered(void **state)
{
    (void)state;
    static const char input[] = "{\"text\":\"a\"}\n"
                                "not json\n"
                                "\n"
                                "[1]\n"
                                "{\"text\":7}\n"
                                "{\"words\":\"a\"}\n"
                                "{\"text\":\"a\"} x\n"
                                "{\"text\":\"a\"}";
    const program_result *r =
        RUN(input, "tokenize", "--model", stories_folder());
    expect_code(r, 1);
    assert_string_equal(r->err, "");
    assert_int_equal(count_lines(r->out), 8);
    for (size_t i = 0; i < 8; i++) {
        cJSON *line = output_line(r, i);
        int good = i == 0 || i == 7;
        assert_true(good == !xr_json_get(line, "error"));
        assert_true(good == (xr_json_get(line, "ids") != NULL));
        if (!good) {
            char place[16];
            (void)snprintf(place, sizeof place, "stdin:%zu", i + 1);
            expect_text(xr_json_get(line, "error")->valuestring, place);
        }
        cJSON_Delete(line);
    }
    r = RUN("{\"ids\":[403,100000]}\n{\"ids\":[-1]}\n{\"ids\":[1.5]}\n",
            "tokenize", "--model", stories_folder(), "--decode");
    expect_code(r, 1);
    assert_int_equal(count_lines(r->out), 3);
    for (size_t i = 0; i < 3; i++) {
        cJSON *line = output_line(r, i);
        assert_non_null(xr_json_get(line, "error"));
        cJSON_Delete(line);
    }
    expect_code(RUN("", "tokenize", "--model", stories_folder()), 0);
}

static void long_files_are_read(void **state)
{
    (void)state;
    xr_str input = { 0 };
    for (int i = 0; i < 20000; i++)
        xr_str_printf(&input, "{\"text\":\"line %d of many\"}\n", i);
    /* A line that is longer than the first buffer of the reader. */
    xr_str_puts(&input, "{\"text\":\"");
    for (int i = 0; i < 100000; i++)
        xr_str_puts(&input, "abcdefg ");
    xr_str_puts(&input, "\"}\n");
    char path[300];
    (void)snprintf(path, sizeof path, "%s",
                   scratch_write("rows.jsonl", xr_str_text(&input)));
    const program_result *r =
        RUN(xr_str_text(&input), "tokenize", "--model", stories_folder());
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 20001);
    char *out = strdup(r->out);
    r = RUN("", "tokenize", "--model", stories_folder(), path);
    expect_code(r, 0);
    assert_string_equal(r->out, out);
    free(out);
    xr_str_free(&input);
    r = RUN("", "tokenize", "--model", stories_folder(), "/no/such/rows.jsonl");
    expect_code(r, 2);
    expect_text(r->err, "/no/such/rows.jsonl");
}

/* A writer that waits for each answer before it sends the next line gets it. */
static void answers_at_once(void **state)
{
    (void)state;
    char command[1200];
    (void)snprintf(
        command, sizeof command,
        "cd %s && mkfifo in out && (\"$XRAY_BIN\" tokenize --model %s <in >out "
        "&) && exec 3>in 4<out && for i in 1 2 3; do echo "
        "'{\"text\":\"Once\"}' >&3; read -r line <&4; echo \"$line\"; done",
        scratch_dir(), stories_folder());
    const program_result *r = program_shell(command);
    expect_code(r, 0);
    const char *line = make_known_line(0, 2);
    size_t size = strlen(line);
    assert_int_equal(strlen(r->out), 3 * size);
    for (size_t i = 0; i < 3; i++)
        assert_memory_equal(r->out + i * size, line, size);
}

/* `head` closes its input early: the program ends without a crash. */
static void closed_output_ends_it(void **state)
{
    (void)state;
    char command[1200];
    (void)snprintf(command, sizeof command,
                   "yes '{\"text\":\"Once\"}' | \"$XRAY_BIN\" tokenize --model "
                   "%s | head -n 2",
                   stories_folder());
    const program_result *r = program_shell(command);
    expect_code(r, 0);
    assert_int_equal(count_lines(r->out), 2);
    assert_string_equal(r->err, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_agree),
        cmocka_unit_test(special_tokens_are_optional),
        cmocka_unit_test(bad_lines_are_answered),
        cmocka_unit_test(long_files_are_read),
        cmocka_unit_test(answers_at_once),
        cmocka_unit_test(closed_output_ends_it),
    };
    return cmocka_run_group_tests_name("cli.tokenize", tests, scratch_make,
                                       program_done);
}
