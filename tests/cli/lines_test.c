/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines and options that the tools for JSON lines refuse, and the effect of
 * [data] on conversations; on a model of one layer that the test makes.
 */
#include <sys/stat.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static char model[256];

/* Makes a model of random weights whose tokenizer knows digits and '-' and
 * whose template shows the day, a variable and the system message. */
static int make_model(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    (void)snprintf(model, sizeof model, "%s", scratch_path("model"));
    if (mkdir(model, 0700) != 0)
        return -1;
    (void)scratch_write(
        "model/config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"hidden_size\":16,\"num_hidden_layers\":1,\"num_attention_heads\":2,"
        "\"num_key_value_heads\":2,\"intermediate_size\":16,"
        "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
        "\"tie_word_embeddings\":false,\"hidden_act\":\"silu\","
        "\"vocab_size\":16}");
    (void)scratch_write(
        "model/tokenizer.json",
        "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"0\":0,\"1\":1,\"2\":2,"
        "\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,\"9\":9,\"-\":10},"
        "\"merges\":[]}}");
    (void)scratch_write(
        "model/tokenizer_config.json",
        "{\"chat_template\":\"{{ strftime_now('%Y-%m-%d') }}{{ depth }}"
        "{% if messages[0].role == 'system' %}{{ messages[0].content }}"
        "{% endif %}\"}");
    return 0;
}

#define DRAWN "--model", model, "--set", "model.init=random"

/* Expects the error of line `i`, without its prefix. */
static void expect_error(const program_result *r, size_t i, const char *want)
{
    cJSON *line = output_line(r, i);
    const cJSON *error = xr_json_get(line, "error");
    if (!cJSON_IsString(error) || strcmp(error->valuestring, want) != 0)
        fail_msg("line %zu: %s", i, r->out);
    cJSON_Delete(line);
}

static void unknown_keys_are_refused(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"ids\":[1],\"max_tokens\":2,\"temperature\":0}\n"
            "{\"ids\":[1],\"temprature\":0}\n"
            "{\"ids\":[1],\"best_of\":1}\n"
            "{\"ids\":[1],\"top_pp\":1}\n",
            "generate", DRAWN);
    expect_code(r, 1);
    expect_text(r->out, "{\"outputs\":[");
    expect_error(r, 1,
                 "stdin:2: there is no key \"temprature\"; did you mean "
                 "\"temperature\"?");
    expect_error(r, 2, "stdin:3: there is no key \"best_of\"");
    /* The nearest, though "top_k" is near as well. */
    expect_error(r, 3,
                 "stdin:4: there is no key \"top_pp\"; did you mean "
                 "\"top_p\"?");
    r = RUN("{\"ids\":[1,2],\"max_tokens\":2}\n", "score", DRAWN);
    expect_code(r, 1);
    expect_error(r, 0, "stdin:1: there is no key \"max_tokens\"");
    r = RUN("{\"text\":\"1\",\"add_generation_promt\":true}\n", "tokenize",
            "--model", model);
    expect_code(r, 1);
    expect_error(r, 0,
                 "stdin:1: there is no key \"add_generation_promt\"; did you "
                 "mean \"add_generation_prompt\"?");
}

/* Options and lines accept the same values, with the same messages. */
static void lines_keep_the_ranges_of_options(void **state)
{
    (void)state;
    static const struct {
        const char *option;
        const char *key;
        const char *value;
        const char *wanted;
    } cases[] = {
        { "--top-p", "top_p", "0", "a number above 0, up to 1" },
        { "--top-p", "top_p", "1e-60", "a number above 0, up to 1" },
        { "--temperature", "temperature", "1e-09",
          "0 (greedy) or a number from 0.00001 to 100" },
        { "--temperature", "temperature", "-1",
          "0 (greedy) or a number from 0.00001 to 100" },
        { "--min-p", "min_p", "2", "a number from 0 to 1" },
        { "--repetition-penalty", "repetition_penalty", "0",
          "a number from 0.01 to 100" },
        { "--frequency-penalty", "frequency_penalty", "2.5",
          "a number from -2 to 2" },
        { "--presence-penalty", "presence_penalty", "-2.5",
          "a number from -2 to 2" },
        { "--min-tokens", "min_tokens", "-1",
          "an integer from 0 to 2147483647" },
        { "--n", "n", "0", "an integer from 1 to 65536" },
        { "--top-k", "top_k", "-1", "an integer from 0 to 2147483647" },
        { "--max-tokens", "max_tokens", "0",
          "an integer from 1 to 2147483647" },
        { "--seed", "seed", "-1", "an integer from 0 to 9007199254740992" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[96];
        char want[160];
        const program_result *r =
            RUN("", "generate", DRAWN, cases[i].option, cases[i].value);
        expect_code(r, 2);
        (void)snprintf(want, sizeof want, "xray: %s takes %s, not '%s'\n",
                       cases[i].option, cases[i].wanted, cases[i].value);
        assert_string_equal(r->err, want);
        (void)snprintf(line, sizeof line, "\n{\"ids\":[1],\"%s\":%s}\n",
                       cases[i].key, cases[i].value);
        r = RUN(line, "generate", DRAWN);
        expect_code(r, 1);
        (void)snprintf(want, sizeof want, "stdin:2: \"%s\" takes %s, not %s",
                       cases[i].key, cases[i].wanted, cases[i].value);
        expect_error(r, 1, want);
    }
    const program_result *r =
        RUN("{\"ids\":[1]}\n", "generate", DRAWN, "--temperature", "0.00001",
            "--top-p", "1e-6", "--max-tokens", "2");
    expect_code(r, 0);
}

static void lines_may_bias_logits(void **state)
{
    static const char bad[] =
        "stdin:1: \"logit_bias\" takes an object with ids as keys and numbers "
        "from -100 to 100";
    static const char *const values[] = { "[1]", "{\"x\":1}", "{\"-1\":1}",
                                          "{\"5\":101}", "{\"5\":\"1\"}" };
    (void)state;
    const program_result *r = RUN(
        "{\"ids\":[1],\"max_tokens\":3,\"logit_bias\":{\"2\":-100,\"5\":100}}\n"
        "{\"ids\":[1],\"max_tokens\":3,\"logit_bias\":{}}\n"
        "{\"ids\":[1],\"max_tokens\":3}\n"
        "{\"ids\":[1],\"logit_bias\":{\"99\":1}}\n",
        "generate", DRAWN, "--temperature", "0");
    expect_code(r, 1);
    expect_text(r->out, "{\"outputs\":[{\"ids\":[5,5,5],");
    expect_error(r, 3,
                 "stdin:4: infer.dsinf: submit: request 3: id 99 of biases is "
                 "outside the vocabulary of 16");
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        char line[96];
        (void)snprintf(line, sizeof line, "{\"ids\":[1],\"logit_bias\":%s}\n",
                       values[i]);
        r = RUN(line, "generate", DRAWN);
        expect_code(r, 1);
        expect_error(r, 0, bad);
    }
}

/* A member of the first sample of line `i`, as text. */
static void expect_sample(const program_result *r, size_t i, const char *key,
                          const char *want)
{
    cJSON *line = output_line(r, i);
    const cJSON *outputs = xr_json_get(line, "outputs");
    const cJSON *sample = outputs ? outputs->child : NULL;
    char *got = cJSON_PrintUnformatted(xr_json_get(sample, key));
    if (!got || strcmp(got, want) != 0)
        fail_msg("line %zu: %s is not %s: %s", i, key, want, r->out);
    cJSON_free(got);
    cJSON_Delete(line);
}

#define FORCED "{\"ids\":[1],\"max_tokens\":4,\"forced_ids\":[5,5,6,5],"

static void lines_may_name_ids(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        const char *ids;
        const char *finish;
    } cases[] = {
        { FORCED "\"seed\":3}\n", "[5,5,6,5]", "\"length\"" },
        { FORCED "\"stop_token_ids\":[9,6]}\n", "[5,5,6]", "\"stop\"" },
        { FORCED "\"stop_token_ids\":[6],\"ignore_eos\":true}\n", "[5,5,6]",
          "\"stop\"" },
        { FORCED "\"stop_id_lists\":[[6],[5,5]]}\n", "[5,5]", "\"stop\"" },
        { FORCED "\"repeat_size\":1,\"repeat_count\":2}\n", "[5,5]",
          "\"repeat\"" },
        { "{\"ids\":[1],\"max_tokens\":3,\"allowed_token_ids\":[7,8],"
          "\"bad_words_ids\":[[7]]}\n",
          "[8,8,8]", "\"length\"" },
    };
    enum { CASES = sizeof cases / sizeof cases[0] };
    char lines[CASES * 100] = "";
    for (size_t i = 0; i < CASES; i++)
        (void)snprintf(lines + strlen(lines), sizeof lines - strlen(lines),
                       "%s", cases[i].line);
    const program_result *r = RUN(lines, "generate", DRAWN);
    expect_code(r, 0);
    for (size_t i = 0; i < CASES; i++) {
        expect_sample(r, i, "ids", cases[i].ids);
        expect_sample(r, i, "finish_reason", cases[i].finish);
    }
}

/* The log-prob of token `at` in the row [1, 2, 5, 6], as xray score gives it.
 */
static double score_of(size_t at)
{
    const program_result *r = RUN("{\"ids\":[1,2,5,6]}\n", "score", DRAWN);
    cJSON *line = output_line(r, 0);
    const cJSON *all = xr_json_get(line, "logprobs");
    double value = cJSON_GetArrayItem(all, (int)at)->valuedouble;
    cJSON_Delete(line);
    return value;
}

static double number_at(const cJSON *array, int i, int k)
{
    return cJSON_GetArrayItem(cJSON_GetArrayItem(array, i), k)->valuedouble;
}

/* Both tokens of a sample whose ids are [5, 6]. */
static void expect_logprobs(const cJSON *sample, const double want[4])
{
    const cJSON *picked = xr_json_get(sample, "token_logprobs");
    const cJSON *top = xr_json_get(sample, "top_logprobs");
    assert_int_equal(cJSON_GetArraySize(picked), 2);
    assert_int_equal(cJSON_GetArraySize(top), 2);
    for (int i = 0; i < 2; i++) {
        const cJSON *of_token = cJSON_GetArrayItem(top, i);
        double before = 0;
        assert_int_equal(cJSON_GetArraySize(cJSON_GetArrayItem(picked, i)), 2);
        assert_true(number_at(picked, i, 1 - i) == want[2 + i]);
        assert_int_equal(cJSON_GetArraySize(of_token), 16);
        for (int j = 0; j < 16; j++) {
            double logp = number_at(of_token, j, 1);
            assert_true(logp <= before);
            before = logp;
            if ((int)number_at(of_token, j, 0) == 5 + i)
                assert_true(logp == want[2 + i]);
        }
    }
}

/* Samples that are watched come in parts, others at once. */
static void lines_may_ask_for_more_logprobs(void **state)
{
    (void)state;
    static const char line[] =
        "{\"ids\":[1,2],\"max_tokens\":2,\"n\":2,\"forced_ids\":[5,6],"
        "\"top_logprobs\":16,\"logprob_token_ids\":[6,5],"
        "\"prompt_logprobs\":true}\n";
    double want[4] = { 0 };
    for (size_t i = 1; i < 4; i++)
        want[i] = score_of(i);
    for (int stops = 0; stops < 2; stops++) {
        const program_result *r =
            stops ? RUN(line, "generate", DRAWN, "--stop", "none")
                  : RUN(line, "generate", DRAWN);
        expect_code(r, 0);
        cJSON *all = output_line(r, 0);
        const cJSON *prompt = xr_json_get(all, "prompt_logprobs");
        assert_int_equal(cJSON_GetArraySize(prompt), 2);
        assert_true(cJSON_IsNull(prompt->child));
        assert_true(prompt->child->next->valuedouble == want[1]);
        const cJSON *samples = xr_json_get(all, "outputs");
        expect_logprobs(cJSON_GetArrayItem(samples, 0), want);
        expect_logprobs(cJSON_GetArrayItem(samples, 1), want);
        cJSON_Delete(all);
    }
}

static void bad_ids_of_lines_are_named(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "\"stop_token_ids\":[]",
          "\"stop_token_ids\": at least one id was expected" },
        { "\"allowed_token_ids\":7",
          "\"allowed_token_ids\": ids must be an array" },
        { "\"bad_words_ids\":[5]", "\"bad_words_ids\": ids must be an array" },
        { "\"bad_words_ids\":{}",
          "\"bad_words_ids\" takes a list of lists of ids" },
        { "\"stop_id_lists\":[[3],[-1]]",
          "\"stop_id_lists\": id 0 of the array must be an integer from 0 to "
          "2147483647" },
        { "\"top_logprobs\":257",
          "\"top_logprobs\" takes a whole number from 0 to 256" },
        { "\"forced_ids\":[99]",
          "infer.dsinf: submit: request 0: id 99 of forced_ids is outside the "
          "vocabulary of 16" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char line[96];
        char want[200];
        (void)snprintf(line, sizeof line, "{\"ids\":[1],%s}\n", cases[i][0]);
        (void)snprintf(want, sizeof want, "stdin:1: %s", cases[i][1]);
        const program_result *r = RUN(line, "generate", DRAWN);
        expect_code(r, 1);
        expect_error(r, 0, want);
    }
}

/* ---- files of another format -------------------------------------------- */

#define POINTER                                    \
    "version https://git-lfs.github.com/spec/v1\n" \
    "oid sha256:0\nsize 9\n"
#define IS_POINTER "this is a Git LFS pointer instead of the file"

static const char *write_bytes(const char *name, const char *data, size_t size)
{
    const char *path = scratch_path(name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
    return path;
}

static void expect_fault(const program_result *r, const char *where,
                         const char *what)
{
    char want[300];
    (void)snprintf(want, sizeof want, "%s%s", where, what);
    assert_int_not_equal(r->code, 0);
    if (!strstr(r->out, want) && !strstr(r->err, want))
        fail_msg("'%s' is not in: %s%s", want, r->out, r->err);
}

static const struct {
    const char *data;
    size_t size;
    const char *what;
} others[] = {
#define OTHER(data, what)            \
    {                                \
        data, sizeof(data) - 1, what \
    }
    OTHER("PAR1\x15\x04\x15\0\n", "this is a Parquet file; [data] train_files"),
    OTHER(POINTER, IS_POINTER "; git lfs pull fetches it"),
    OTHER("\x1f\x8b\x08\0\0\0\0\0\0\x03", "this is a gzip file"),
    OTHER("\x28\xb5\x2f\xfd\x24\0", "this is a zstd file"),
    OTHER("PK\x03\x04\x14\0", "this is a zip archive"),
    OTHER("\xff\xfe{\0}\0\n\0", "this is UTF-16 text; iconv"),
    OTHER("\n <!DOCTYPE html>\n<html></html>\n", "this is an HTML page"),
};
enum { OTHERS = sizeof others / sizeof others[0] };

/* Files of other formats as lines, INI and JSON of a model: errors name the
 * format. */
static void other_formats_are_named(void **state)
{
    (void)state;
    char folder[300];
    (void)snprintf(folder, sizeof folder, "%s", scratch_path("odd"));
    assert_int_equal(mkdir(folder, 0700), 0);
    for (size_t i = 0; i < OTHERS; i++) {
        size_t skip = *others[i].data == '\n'; /* a separate line */
        const char *file = write_bytes("odd/config.json", others[i].data + skip,
                                       others[i].size - skip);
        expect_fault(RUN("", "score", DRAWN, file),
                     "odd/config.json:1: ", others[i].what);
        expect_fault(RUN("", "check", file),
                     "odd/config.json: ", others[i].what);
        expect_fault(RUN("", "score", "--model", folder),
                     "odd/config.json: ", others[i].what);
        (void)write_bytes("odd/tokenizer.json", others[i].data, others[i].size);
        expect_fault(RUN("", "tokenize", "--model", folder),
                     "odd/tokenizer.json: ", others[i].what);
    }
}

static void expect_data_fault(const char *ini, const char *what)
{
    char path[300];
    (void)snprintf(path, sizeof path, "%s", scratch_write("run.ini", ini));
    expect_fault(RUN("", "check", path, "--set", "model.init=random"), "",
                 what);
}

#define RUN_INI                                                 \
    "[model]\npath = model\n[data]\ntrain_files = rows.jsonl\n" \
    "apply_chat_template = never\nmax_prompt_length = 8\n"      \
    "max_response_length = 8\ntrain_batch_size = 1\n"

static void rows_of_other_formats_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < OTHERS; i++) {
        if (strstr(others[i].what, "gzip") || strstr(others[i].what, "zstd") ||
            strstr(others[i].what, "Parquet") ||
            strstr(others[i].what, "Arrow") ||
            *others[i].data == '\n') /* read, and a blank line */
            continue;
        (void)write_bytes("rows.jsonl", others[i].data, others[i].size);
        expect_data_fault(RUN_INI, others[i].what);
    }
    (void)scratch_write("rows.jsonl", "[\n{\"promt\":\"1\"}\n]\n");
    expect_data_fault(RUN_INI, "rows.jsonl: row 1: no key 'prompt'");
    (void)scratch_write("rows.jsonl", "{\n\"prompt\":\"1\"\n}\n");
    expect_data_fault(
        RUN_INI,
        "rows.jsonl:1: the object continues after this line; jq -c . FILE");
    (void)scratch_write("model/chat_template.jinja", POINTER);
    const program_result *r =
        RUN("{\"messages\":[{\"role\":\"user\",\"content\":\"5\"}]}\n",
            "tokenize", "--model", model);
    expect_fault(r, "chat_template.jinja: ", IS_POINTER);
    (void)unlink(scratch_path("model/chat_template.jinja"));
}

static void weights_of_other_formats_are_named(void **state)
{
    (void)state;
    (void)scratch_write("model/model.safetensors", POINTER);
    expect_fault(RUN("{\"ids\":[1,2]}\n", "score", "--model", model),
                 "model.safetensors: ", IS_POINTER);
    static const char shape[] =
        "\x4b\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":"
        "[2,9223372036854775807],\"data_offsets\":[0,8]}} 12345678";
    (void)write_bytes("model/model.safetensors", shape, sizeof shape - 1);
    expect_fault(RUN("{\"ids\":[1,2]}\n", "score", "--model", model),
                 "model.safetensors: ", "tensor \"a\": the shape is too large");
    (void)unlink(scratch_path("model/model.safetensors"));
}

/* A byte order mark is skipped at the start of lines, INI, rows and JSON. */
static void byte_order_marks_are_skipped(void **state)
{
    (void)state;
#define MARK "\xef\xbb\xbf"
    const program_result *r = RUN(MARK "{\"ids\":[1,2]}\n", "score", DRAWN);
    expect_code(r, 0);
    (void)scratch_write("rows.jsonl",
                        MARK "{\"prompt\":\"1\",\"answer\":\"1\"}\n");
    char path[300];
    (void)snprintf(path, sizeof path, "%s",
                   scratch_write("run.ini", MARK RUN_INI));
    r = RUN("", "check", path, "--set", "model.init=random", "--set",
            "actor.ppo_max_token_len_per_gpu=64", "--set", "rollout.n=2");
    expect_code(r, 0);
    expect_text(r->out, "train_files: 1 rows");
}

static void bad_lines_are_answered(void **state)
{
    (void)state;
    const program_result *r = RUN(
        "\n{\"ids\":[1,2]}\n[1]\n3\n{\"text\":\"\\u0000\"}\n", "score", DRAWN);
    expect_code(r, 1);
    expect_error(r, 0,
                 "stdin:1: the line is blank, but a JSON object is expected");
    expect_error(r, 2,
                 "stdin:3: this line begins a JSON array, but each line must "
                 "be an object; jq "
                 "-c '.[]' FILE writes one entry per line");
    expect_error(r, 3, "stdin:4: a line must be a JSON object");
    expect_error(r, 4,
                 "stdin:5: column 16: \\u0000, the NUL character, is not "
                 "allowed in text; remove it");
}

/* ---- [data] ------------------------------------------------------------- */

static void expect_ids(const program_result *r, const char *ids)
{
    char want[128];
    (void)snprintf(want, sizeof want, "{\"ids\":[%s],", ids);
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    assert_int_equal(strncmp(r->out, want, strlen(want)), 0);
}

static void data_reaches_conversations(void **state)
{
    (void)state;
    static const char chat[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"5\"}]}\n";
    expect_ids(RUN(chat, "score", DRAWN), "2,0,2,4,10,0,7,10,2,6");
    expect_ids(RUN(chat, "tokenize", "--model", model),
               "2,0,2,4,10,0,7,10,2,6");
    expect_ids(RUN(chat, "score", DRAWN, "--set", "data.chat_date=1999-12-31"),
               "1,9,9,9,10,1,2,10,3,1");
    expect_ids(RUN(chat, "score", DRAWN, "--set",
                   "data.chat_template_kwargs={\"depth\": 7}", "--set",
                   "data.system_prompt=88"),
               "2,0,2,4,10,0,7,10,2,6,7,8,8");
    /* The variables of a line replace those of [data]. */
    expect_ids(RUN("{\"messages\":[{\"role\":\"user\",\"content\":\"5\"}],"
                   "\"chat_template_kwargs\":{\"depth\":3}}\n",
                   "score", DRAWN, "--set",
                   "data.chat_template_kwargs={\"depth\": 7}"),
               "2,0,2,4,10,0,7,10,2,6,3");
    const char *own = scratch_write("own.jinja", "{{ messages[0].content }}");
    char set[300];
    (void)snprintf(set, sizeof set, "data.chat_template=%s", own);
    expect_ids(RUN(chat, "score", DRAWN, "--set", set), "5");
    const program_result *r =
        RUN(chat, "score", DRAWN, "--set", "data.chat_date=today");
    expect_code(r, 1);
    expect_error(r, 0,
                 "stdin:1: [data] chat_date: 'today' is not a date; expected "
                 "YYYY-MM-DD");
}

/* ---- output ------------------------------------------------------------- */

/* No further lines are read once an answer is lost. */
static void lost_answers_end_the_program(void **state)
{
    (void)state;
    char command[600];
    (void)snprintf(command, sizeof command,
                   "{ yes '{\"ids\":[1,2]}' | head -n 20000 && echo all were "
                   "read >&2; } | "
                   "\"$XRAY_BIN\" score --model %s --set model.init=random "
                   ">/dev/full",
                   model);
    const program_result *r = program_shell(command);
    expect_code(r, 1);
    assert_string_equal(
        r->err, "xray: cannot write the results: No space left on device\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keys_are_refused),
        cmocka_unit_test(lines_keep_the_ranges_of_options),
        cmocka_unit_test(lines_may_bias_logits),
        cmocka_unit_test(lines_may_name_ids),
        cmocka_unit_test(lines_may_ask_for_more_logprobs),
        cmocka_unit_test(bad_ids_of_lines_are_named),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(rows_of_other_formats_are_named),
        cmocka_unit_test(weights_of_other_formats_are_named),
        cmocka_unit_test(byte_order_marks_are_skipped),
        cmocka_unit_test(bad_lines_are_answered),
        cmocka_unit_test(data_reaches_conversations),
        cmocka_unit_test(lost_answers_end_the_program),
    };
    return cmocka_run_group_tests_name("cli.lines", tests, make_model,
                                       program_done);
}
