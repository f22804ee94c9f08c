/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tools of JSON lines refuse in a line or an option, and that [data]
 * reaches their conversations; on a model of one layer made here.
 */
#include <sys/stat.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static char model[256];

/* Weights are drawn; the tokenizer knows digits and '-'; the template shows
 * the day, a variable and the system message. */
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

/* The error of line `i`, without what stands before it. */
static void expect_error(const program_result *r, size_t i, const char *want)
{
    cJSON *line = output_line(r, i);
    const cJSON *error = xr_json_get(line, "error");
    if (!cJSON_IsString(error) || strcmp(error->valuestring, want) != 0)
        fail_msg("line %zu: %s", i, r->out);
    cJSON_Delete(line);
}

static void unknown_keys(void **state)
{
    (void)state;
    const program_result *r =
        RUN("{\"ids\":[1],\"max_tokens\":2,\"temperature\":0}\n"
            "{\"ids\":[1],\"temprature\":0}\n"
            "{\"ids\":[1],\"stop\":[\"x\"]}\n",
            "generate", DRAWN);
    expect_code(r, 1);
    expect_text(r->out, "{\"outputs\":[");
    expect_error(r, 1,
                 "stdin:2: there is no key \"temprature\"; did you mean "
                 "\"temperature\"?");
    expect_error(r, 2, "stdin:3: there is no key \"stop\"");
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

/* An option and a line take the same values, and say the same. */
static void ranges(void **state)
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
        { "--n", "n", "0", "a whole number from 1 to 65536" },
        { "--top-k", "top_k", "-1", "a whole number from 0 to 2147483647" },
        { "--max-tokens", "max_tokens", "0",
          "a whole number from 1 to 2147483647" },
        { "--seed", "seed", "-1", "a whole number from 0 to 9007199254740992" },
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
    const char *own = scratch_write("own.jinja", "{{ messages[0].content }}");
    char set[300];
    (void)snprintf(set, sizeof set, "data.chat_template=%s", own);
    expect_ids(RUN(chat, "score", DRAWN, "--set", set), "5");
    const program_result *r =
        RUN(chat, "score", DRAWN, "--set", "data.chat_date=today");
    expect_code(r, 1);
    expect_error(r, 0,
                 "stdin:1: [data] chat_date: 'today' is no date; YYYY-MM-DD is "
                 "expected");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_keys),
        cmocka_unit_test(ranges),
        cmocka_unit_test(data_reaches_conversations),
    };
    return cmocka_run_group_tests_name("cli.lines", tests, make_model,
                                       program_done);
}
