/* SPDX-License-Identifier: Apache-2.0
 *
 * xray plan, and runs that xray check refuses for lack of memory or disk space.
 */
#include <math.h>

#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

enum { PARAMETERS = 260032 };

static char model_dir[512];

/* A model of PARAMETERS random weights with the tokenizer of the material. */
static void make_model(void)
{
    char path[512];
    char *tokenizer = NULL;
    size_t size = 0;
    (void)test_data("models/stories260K/hf/tokenizer.json", path, sizeof path);
    assert_int_equal(xr_file_read(path, 1u << 20, NULL, &tokenizer, &size),
                     XRAY_OK);
    assert_int_equal(xr_dir_make(scratch_path("model"), NULL), XRAY_OK);
    (void)scratch_write("model/tokenizer.json", tokenizer);
    (void)scratch_write(
        "model/config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
        "\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\","
        "\"hidden_size\":64,\"intermediate_size\":172,"
        "\"max_position_embeddings\":512,\"num_attention_heads\":8,"
        "\"num_hidden_layers\":5,\"num_key_value_heads\":4,"
        "\"rms_norm_eps\":1e-5,\"initializer_range\":0.02,"
        "\"tie_word_embeddings\":true,\"vocab_size\":512}");
    free(tokenizer);
    (void)snprintf(model_dir, sizeof model_dir, "%s", scratch_path("model"));
}

/* Writes a run with a reference, followed by `extra`. */
static const char *write_run(const char *extra)
{
    static char path[300];
    xr_str ini = { 0 };
    make_model();
    (void)scratch_write("rows.jsonl",
                        "{\"prompt\":\"Once\",\"answer\":\"1\"}\n"
                        "{\"prompt\":\"Two\",\"answer\":\"2\"}\n"
                        "{\"prompt\":\"One\",\"answer\":\"2\"}\n"
                        "{\"prompt\":\"Six\",\"answer\":\"2\"}\n");
    xr_str_printf(&ini,
                  "[model]\npath = %s\ninit = random\n"
                  "[data]\ntrain_files = rows.jsonl\nmax_prompt_length = 16\n"
                  "max_response_length = 8\ntrain_batch_size = 4\n"
                  "[rollout]\nn = 3\n"
                  "[actor]\nppo_mini_batch_size = 2\nppo_epochs = 2\n"
                  "ppo_max_token_len_per_gpu = 48\n"
                  "[algo.grpo]\nuse_kl_loss = true\n"
                  "[trainer]\ndefault_local_dir = out\n"
                  "[sft]\ntrain_batch_size = 4\nmax_token_len = 48\n%s",
                  model_dir, extra);
    (void)snprintf(path, sizeof path, "%s",
                   scratch_write("run.ini", xr_str_text(&ini)));
    xr_str_free(&ini);
    return path;
}

static cJSON *parse_output(const program_result *r)
{
    cJSON *json = NULL;
    xr_err err = { "" };
    expect_code(r, 0);
    if (xr_json_parse(r->out, strlen(r->out), "stdout", &err, &json) != XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

static double read_number(const cJSON *json, const char *key)
{
    const cJSON *item = xr_json_get(json, key);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", key);
    return item->valuedouble;
}

static double read_bytes(const cJSON *plan, int instance, const char *tag)
{
    const cJSON *list = xr_json_get(plan, "instances");
    return read_number(xr_json_get(cJSON_GetArrayItem(list, instance), "bytes"),
                       tag);
}

static const char *read_name(const cJSON *plan, int instance)
{
    const cJSON *list = xr_json_get(plan, "instances");
    return xr_json_get(cJSON_GetArrayItem(list, instance), "name")->valuestring;
}

/* Trainer, reference and engine, which shares the weights of the trainer. */
static void memory_is_planned_per_instance(void **state)
{
    (void)state;
    cJSON *plan = parse_output(RUN(NULL, "plan", write_run(""), "--json"));
    assert_string_equal(read_name(plan, 0), "train.zero3");
    assert_string_equal(read_name(plan, 1), "reference");
    assert_string_equal(read_name(plan, 2), "infer.dsinf");
    assert_true(read_bytes(plan, 0, "weights") >= 4 * PARAMETERS);
    assert_true(read_bytes(plan, 1, "weights") >= 4 * PARAMETERS);
    assert_true(read_bytes(plan, 2, "weights") == 0);
    assert_true(read_bytes(plan, 0, "optimizer") >= 8 * PARAMETERS);
    assert_true(read_bytes(plan, 1, "optimizer") == 0);
    assert_true(read_bytes(plan, 1, "gradients") == 0);
    assert_true(read_bytes(plan, 2, "kv") > 0);
    double all = 0;
    assert_string_equal(read_name(plan, 3), "device.cpu");
    assert_true(read_bytes(plan, 3, "all") == read_bytes(plan, 3, "workspace"));
    assert_string_equal(read_name(plan, 4), "rows");
    assert_true(read_bytes(plan, 4, "all") > 12 * 24 * 9 * 4);
    for (int i = 0; i < 5; i++)
        all += read_bytes(plan, i, "all");
    assert_true(read_number(xr_json_get(plan, "bytes"), "all") == all);
    assert_true(read_number(plan, "checkpoint_bytes") ==
                4 * PARAMETERS + read_bytes(plan, 0, "optimizer"));
    assert_true(read_number(xr_json_get(plan, "machine"), "memory_bytes") > 0);
    cJSON_Delete(plan);
}

static void work_of_a_step_is_counted(void **state)
{
    (void)state;
    cJSON *plan = parse_output(RUN(NULL, "plan", write_run(""), "--json"));
    const cJSON *step = xr_json_get(plan, "step");
    const double p = PARAMETERS;
    assert_true(read_number(plan, "parameters") == p);
    assert_true(read_number(step, "rows") == 12);
    assert_true(read_number(step, "tokens") == 12 * 24);
    assert_true(read_number(step, "mini_batches") == 2);
    assert_true(read_number(step, "mini_rows") == 6);
    assert_true(read_number(step, "micro_batches") == 3);
    assert_true(read_number(xr_json_get(step, "sampling"), "flops") ==
                2 * p * (4 * 16 + 12 * 8));
    assert_true(read_number(xr_json_get(step, "reference"), "flops") ==
                2 * p * 12 * 24);
    assert_true(read_number(xr_json_get(step, "update"), "flops") ==
                6 * p * 12 * 24 * 2);
    cJSON_Delete(plan);
    plan = parse_output(
        RUN(NULL, "plan", write_run(""), "--json", "--job", "sft"));
    step = xr_json_get(plan, "step");
    assert_true(read_number(step, "rows") == 4);
    assert_true(read_number(step, "micro_batches") == 2);
    cJSON_Delete(plan);
    plan = parse_output(RUN(NULL, "plan",
                            write_run("[data]\nval_files = rows.jsonl\n"),
                            "--json", "--job", "eval"));
    assert_null(xr_json_get(plan, "step"));
    assert_string_equal(read_name(plan, 0), "infer.dsinf");
    assert_true(read_bytes(plan, 0, "weights") >= 4 * PARAMETERS);
    cJSON_Delete(plan);
}

/* Models that take turns: in the turn of each, the others have released what
 * the INI says; the run needs the largest of these turns. An engine alone has
 * one. */
static void turns_are_planned(void **state)
{
    (void)state;
    const char *run = write_run("");
    cJSON *plan = parse_output(RUN(NULL, "plan", run, "--json"));
    assert_null(xr_json_get(plan, "turns"));
    double rest = read_bytes(plan, 3, "all") + read_bytes(plan, 4, "all");
    double stay = read_number(xr_json_get(plan, "bytes"), "all");
    cJSON_Delete(plan);
    plan = parse_output(RUN(NULL, "plan", run, "--json", "--set",
                            "rollout.free_cache_engine=true", "--set",
                            "actor.optimizer_offload=true", "--set",
                            "ref.param_offload=true"));
    const cJSON *list = xr_json_get(plan, "turns");
    double actor = read_bytes(plan, 0, "all") -
                   read_bytes(plan, 0, "optimizer") -
                   read_bytes(plan, 0, "activations");
    double reference = read_bytes(plan, 1, "workspace");
    double engine = read_bytes(plan, 2, "workspace");
    assert_true(read_bytes(plan, 1, "weights") > 0);
    assert_true(read_number(list, "train.zero3") ==
                read_bytes(plan, 0, "all") + reference + engine + rest);
    assert_true(read_number(list, "reference") ==
                actor + read_bytes(plan, 1, "all") + engine + rest);
    assert_true(read_number(list, "infer.dsinf") ==
                actor + reference + read_bytes(plan, 2, "all") + rest);
    double all = read_number(xr_json_get(plan, "bytes"), "all");
    assert_true(all == read_number(list, "train.zero3") && all < stay);
    cJSON_Delete(plan);
    const program_result *r =
        RUN(NULL, "plan", run, "--set", "rollout.free_cache_engine=true");
    expect_code(r, 0);
    expect_text(r->out, "at once       train.zero3 ");
    run = write_run("[data]\nval_files = rows.jsonl\n");
    plan = parse_output(RUN(NULL, "plan", run, "--json", "--job", "eval",
                            "--set", "rollout.free_cache_engine=true"));
    assert_int_equal(cJSON_GetArraySize(xr_json_get(plan, "turns")), 1);
    cJSON_Delete(plan);
}

static double number_after(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    if (!at)
        fail_msg("'%s' is not in: %s", words, text);
    return strtod(at + strlen(words), NULL);
}

/* Reads "1.7 KiB" or "-" and moves on to what follows it. */
static double read_amount(const char **at, double *out_unit)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB" };
    char *end = NULL;
    *at += strspn(*at, " ");
    *out_unit = 1;
    if (**at == '-') {
        (*at)++;
        return 0;
    }
    double value = strtod(*at, &end);
    if (end == *at || *end != ' ')
        fail_msg("no amount: %s", *at);
    for (size_t i = 0; i < 4; i++) {
        *out_unit *= 1024;
        if (strncmp(end + 1, units[i], 3) == 0) {
            *at = end + 4;
            return value * *out_unit;
        }
    }
    fail_msg("no unit: %s", *at);
    return 0;
}

/* Amounts have one decimal, which is rounded. */
static void expect_amount(const char **at, double want)
{
    const char *from = *at;
    double unit;
    double got = read_amount(at, &unit);
    if (fabs(got - want) > 0.051 * unit)
        fail_msg("expected %.0f bytes: %.60s", want, from);
}

static void expect_amount_after(const char *text, const char *words,
                                double want)
{
    const char *at = strstr(text, words);
    if (!at)
        fail_msg("'%s' is not in: %s", words, text);
    at += strlen(words);
    expect_amount(&at, want);
}

/* Each row has a cell for each instance and one for all, as in the JSON, whose
 * tags without bytes have no row. */
static void expect_table(const char *text, const cJSON *plan)
{
    const cJSON *all = xr_json_get(plan, "bytes");
    int count = cJSON_GetArraySize(xr_json_get(plan, "instances"));
    int rows = 0;
    const char *at = strstr(text, "\nmemory ");
    assert_non_null(at);
    at += strlen("\nmemory ");
    for (int i = 0; i <= count; i++) {
        const char *name = i < count ? read_name(plan, i) : "all";
        at += strspn(at, " ");
        assert_memory_equal(at, name, strlen(name));
        at += strlen(name);
    }
    while (*at == '\n' && at[1] && at[1] != '\n') {
        char tag[32];
        size_t size = strcspn(++at, " ");
        (void)snprintf(tag, sizeof tag, "%.*s", (int)size, at);
        at += size;
        for (int i = 0; i < count; i++)
            expect_amount(&at, read_bytes(plan, i, tag));
        expect_amount(&at, read_number(all, tag));
        rows++;
    }
    for (const cJSON *tag = all->child; tag; tag = tag->next)
        rows -= tag->valuedouble > 0;
    assert_int_equal(rows, 0);
}

/* A person and a program are told the same numbers. */
static void the_text_says_what_the_json_says(void **state)
{
    (void)state;
    static const char *const figures[][2] = {
        { "\na step        ", "prompts" },
        { " prompts x ", "samples" },
        { " samples = ", "rows" },
        { "\ntokens        at most ", "rows" },
        { "\nupdates       ", "epochs" },
        { " epochs x ", "mini_batches" },
        { " mini-batches of ", "mini_rows" },
        { " each at most ", "micro_batches" },
        { " micro-batches of ", "micro_tokens" },
    };
    static const char *const works[] = { "sampling", "reference", "update" };
    for (int turns = 0; turns < 2; turns++) {
        const char *set = turns ? "ref.param_offload=true"
                                : "rollout.free_cache_engine=false";
        char text[4096];
        const program_result *r =
            RUN(NULL, "plan", write_run(""), "--set", set);
        expect_code(r, 0);
        (void)snprintf(text, sizeof text, "%s", r->out);
        cJSON *plan = parse_output(
            RUN(NULL, "plan", write_run(""), "--json", "--set", set));
        const cJSON *step = xr_json_get(plan, "step");
        expect_table(text, plan);
        assert_true(number_after(text, "parameters    ") ==
                    read_number(plan, "parameters"));
        expect_amount_after(text, "\ncheckpoint    ",
                            read_number(plan, "checkpoint_bytes"));
        expect_amount_after(
            text, "\nmachine       device.cpu, ",
            read_number(xr_json_get(plan, "machine"), "memory_bytes"));
        for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
            assert_true(number_after(text, figures[i][0]) ==
                        read_number(step, figures[i][1]));
        for (size_t i = 0; i < sizeof works / sizeof works[0]; i++) {
            double want = read_number(xr_json_get(step, works[i]), "flops");
            char words[32];
            (void)snprintf(words, sizeof words, "\n%-14s", works[i]);
            assert_true(fabs(number_after(text, words) / want - 1) < 0.006);
        }
        const cJSON *list = xr_json_get(plan, "turns");
        assert_int_equal(list != NULL, turns);
        for (const cJSON *one = list ? list->child : NULL; one;
             one = one->next) {
            char words[64];
            (void)snprintf(words, sizeof words, "%s%s ",
                           one == list->child ? "at once       " : ", ",
                           one->string);
            expect_amount_after(text, words, one->valuedouble);
        }
        cJSON_Delete(plan);
    }
}

/* The plan is never less than trainer, reference and engine take on their
 * device, as the log tells it, and counts no part twice. */
static void a_run_takes_what_is_planned(void **state)
{
    (void)state;
    const char *run = write_run("");
    cJSON *plan = parse_output(RUN(NULL, "plan", run, "--json"));
    const cJSON *bytes = xr_json_get(plan, "bytes");
    double rows = read_bytes(plan, 4, "all");
    double all = read_number(bytes, "all") - rows;
    double workspace = read_number(bytes, "workspace") - rows;
    cJSON_Delete(plan);
    const program_result *r = RUN(NULL, "train", run, "--set", "run.log=info",
                                  "--set", "trainer.total_training_steps=1");
    expect_code(r, 0);
    double most = number_after(r->err, " at once ");
    assert_true(all >= most && all <= most * 1.05);
    most = number_after(r->err, " workspace ");
    assert_true(workspace >= most && workspace <= most * 1.05);
    assert_int_equal(xr_dir_remove(scratch_path("out"), NULL), XRAY_OK);
}

/* A plan that just fits is accepted, above 90 % there is a warning, and less
 * memory is refused, by check, plan and train alike. */
static void plans_must_fit_the_memory(void **state)
{
    (void)state;
    char set[64];
    const char *run = write_run("");
    cJSON *plan = parse_output(RUN(NULL, "plan", run, "--json"));
    double all = read_number(xr_json_get(plan, "bytes"), "all");
    cJSON_Delete(plan);
    (void)snprintf(set, sizeof set, "device.cpu.memory=%.0f", all / 0.89);
    const program_result *r = RUN(NULL, "check", run, "--set", set);
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    static const char *const commands[] = { "check", "plan", "train" };
    for (int lack = 1; lack >= 0; lack--)
        for (size_t i = 0; i < 3; i++) {
            (void)snprintf(set, sizeof set, "device.cpu.memory=%.0f",
                           all - lack);
            r = RUN(NULL, commands[i], run, "--set", set, "--set",
                    "trainer.total_training_steps=1");
            expect_code(r, lack ? 2 : 0);
            expect_text(r->err, lack ? "the run needs" : "");
            expect_text(r->err, lack || i == 2 ? "" : "warning: ");
            expect_text(r->err, lack || i == 2 ? "" : "lower [run] threads");
            if (i == 1)
                expect_text(r->out, "activations");
            assert_int_equal(xr_path_exists(scratch_path("out")),
                             i == 2 && !lack);
        }
    assert_int_equal(xr_dir_remove(scratch_path("out"), NULL), XRAY_OK);
}

/* A billion checkpoints do not fit, three do; nothing is created. */
static void checkpoints_must_fit_the_disk(void **state)
{
    (void)state;
    const char *run = write_run("");
    const program_result *r =
        RUN(NULL, "check", run, "--set", "trainer.save_freq=1", "--set",
            "trainer.total_training_steps=1000000000");
    expect_code(r, 2);
    expect_text(r->err, "default_local_dir: 1000000000 checkpoints of 3.0 MiB");
    expect_text(r->err, "max_actor_ckpt_to_keep");
    r = RUN(NULL, "check", run, "--set", "trainer.save_freq=1", "--set",
            "trainer.total_training_steps=1000000000", "--set",
            "trainer.max_actor_ckpt_to_keep=2");
    expect_code(r, 0);
    r = RUN(NULL, "check", run, "--set",
            "trainer.total_training_steps=1000000000");
    expect_code(r, 0);
    assert_false(xr_path_exists(scratch_path("out")));
}

static int is_near(double a, double b)
{
    return a > b * 0.999999 && a < b * 1.000001;
}

/* Returns the predicted seconds of a part of a step, or of all of it. */
static double read_seconds(const program_result *r, const char *part)
{
    cJSON *plan = parse_output(r);
    const cJSON *time = xr_json_get(plan, "time");
    const cJSON *item = NULL;
    double seconds = -1;
    double sum = 0;
    cJSON_ArrayForEach(item, xr_json_get(time, "parts"))
    {
        sum += read_number(item, "seconds");
        if (strcmp(xr_json_get(item, "name")->valuestring, part) == 0)
            seconds = read_number(item, "seconds");
    }
    assert_true(is_near(sum, read_number(time, "seconds")));
    if (strcmp(part, "all") == 0)
        seconds = sum;
    cJSON_Delete(plan);
    return seconds;
}

static void time_is_predicted_for_the_machine_that_is_named(void **state)
{
    (void)state;
    const char *run = write_run("");
    const double all = read_seconds(
        RUN(NULL, "plan", run, "--json", "--machine", "flops32=1e9,memory=1e8"),
        "all");
    const double fast = read_seconds(
        RUN(NULL, "plan", run, "--json", "--machine", "flops32=2e9,memory=2e8"),
        "all");
    assert_true(is_near(2 * fast, all));
    const double update = read_seconds(
        RUN(NULL, "plan", run, "--json", "--machine", "h200"), "update");
    const double more =
        read_seconds(RUN(NULL, "plan", run, "--json", "--machine", "h200",
                         "--set", "actor.ppo_epochs=6"),
                     "update");
    assert_true(is_near(3 * update, more));
    assert_true(read_seconds(RUN(NULL, "plan", run, "--json", "--machine",
                                 "h200", "--job", "sft"),
                             "rollout") < 0);
}

/* Each part has a row: its seconds, their share of the step, and what most of
 * them are; the rows add up to all. */
static void predictions_are_printed_as_in_the_json(void **state)
{
    (void)state;
    static const char on[] = "flops32=1e9,memory=1e8,host=1e6,launch=1e-4";
    char text[8192];
    const program_result *r = RUN(NULL, "plan", write_run(""), "--machine", on);
    expect_code(r, 0);
    (void)snprintf(text, sizeof text, "%s", r->out);
    cJSON *plan = parse_output(
        RUN(NULL, "plan", write_run(""), "--json", "--machine", on));
    const cJSON *time = xr_json_get(plan, "time");
    const double all = read_number(time, "seconds");
    double sum = 0;
    int rows = 0;
    const cJSON *part;
    cJSON_ArrayForEach(part, xr_json_get(time, "parts"))
    {
        char row[40];
        double seconds = read_number(part, "seconds");
        (void)snprintf(row, sizeof row, "\n%-12s ",
                       xr_json_get(part, "name")->valuestring);
        const char *at = strstr(strstr(text, "\nestimate "), row);
        assert_non_null(at);
        char *end = NULL;
        assert_true(fabs(strtod(at + strlen(row), &end) / seconds - 1) < 6e-4);
        assert_true(fabs(strtod(end, &end) - 100 * seconds / all) <= 0.51);
        double most = 0;
        for (const cJSON *term = part->child; term; term = term->next)
            if (cJSON_IsNumber(term) && strcmp(term->string, "seconds") != 0)
                most = fmax(most, term->valuedouble);
        assert_int_equal(*end, '%');
        assert_true(fabs(strtod(end + 1, &end) - 100 * most / seconds) <= 0.51);
        assert_int_equal(*end, '%');
        const char *bound = xr_json_get(part, "bound")->valuestring;
        size_t line = strcspn(end, "\n");
        assert_true(line > strlen(bound));
        assert_memory_equal(end + line - strlen(bound), bound, strlen(bound));
        sum += seconds;
        rows++;
    }
    assert_true(rows > 2);
    assert_true(fabs(sum / all - 1) < 1e-6);
    assert_true(fabs(number_after(strstr(text, "\nestimate "), "\nall ") / all -
                     1) < 6e-4);
    cJSON_Delete(plan);
}

/* Returns the predicted update with options of megatron. */
static double predict_megatron(const char *run, const char *first,
                               const char *second)
{
    return read_seconds(
        RUN(NULL, "plan", run, "--json", "--machine", "flops32=1e9,memory=1e9",
            "--set", "run.train=megatron", "--set", "run.ranks=2", "--set",
            "train.megatron.tensor_model_parallel_size=2", "--set",
            "ref.train.megatron.tensor_model_parallel_size=2", "--set", first,
            "--set", second),
        "update");
}

/* Full recomputation is a third forward pass beside the two of the backward
 * pass; sequence parallelism divides what tensor parallelism does not. */
static void predictions_know_how_the_backend_computes(void **state)
{
    (void)state;
    static const char none[] = "train.megatron.recompute_granularity=none";
    static const char some[] = "train.megatron.recompute_granularity=selective";
    static const char full[] = "train.megatron.recompute_granularity=full";
    static const char whole[] = "train.megatron.sequence_parallel=false";
    static const char parts[] = "train.megatron.sequence_parallel=true";
    const char *run = write_run("");
    const double least = predict_megatron(run, none, whole);
    const double more = predict_megatron(run, some, whole);
    const double most = predict_megatron(run, full, whole);
    assert_true(least < more && more < most);
    assert_true(most > 1.15 * least && most < 1.35 * least);
    assert_true(predict_megatron(run, none, parts) < least);
}

/* An update computes a prompt that rows share once; every other pass computes
 * all rows. */
static void shared_prompts_shorten_the_update_alone(void **state)
{
    (void)state;
    static const struct {
        const char *part;
        int shorter;
    } rows[] = { { "update", 1 }, { "reference", 0 }, { "rollout", 0 } };
    const char *run = write_run("");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double seconds[2];
        for (int share = 0; share < 2; share++)
            seconds[share] =
                read_seconds(RUN(NULL, "plan", run, "--json", "--machine",
                                 "flops32=1e9,memory=1e9", "--set",
                                 "actor.ppo_max_token_len_per_gpu=144", "--set",
                                 share ? "actor.share_prompts=true"
                                       : "actor.share_prompts=false"),
                             rows[i].part);
        assert_true(rows[i].shorter ? seconds[1] < 0.95 * seconds[0]
                                    : is_near(seconds[1], seconds[0]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_planned_per_instance),
        cmocka_unit_test(work_of_a_step_is_counted),
        cmocka_unit_test(time_is_predicted_for_the_machine_that_is_named),
        cmocka_unit_test(predictions_are_printed_as_in_the_json),
        cmocka_unit_test(predictions_know_how_the_backend_computes),
        cmocka_unit_test(shared_prompts_shorten_the_update_alone),
        cmocka_unit_test(turns_are_planned),
        cmocka_unit_test(the_text_says_what_the_json_says),
        cmocka_unit_test(a_run_takes_what_is_planned),
        cmocka_unit_test(plans_must_fit_the_memory),
        cmocka_unit_test(checkpoints_must_fit_the_disk),
    };
    return cmocka_run_group_tests_name("cli.plan", tests, scratch_make,
                                       program_done);
}
