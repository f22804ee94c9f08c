/* SPDX-License-Identifier: Apache-2.0
 *
 * xray check, config print, plugin list and plugin inspect: results and errors.
 */
#include "core/base/json.h"
#include "core/base/str.h"
#include "tests/cli/program.h"

static char model_dir[512];

/* Writes a complete run to the scratch folder, followed by `extra`. */
static const char *write_run(const char *extra)
{
    static char path[300];
    xr_str ini = { 0 };
    (void)test_data("models/stories260K/hf/config.json", model_dir,
                    sizeof model_dir);
    *strrchr(model_dir, '/') = '\0';
    (void)scratch_write("rows.jsonl",
                        "{\"prompt\":\"Once\",\"answer\":\"1\"}\n"
                        "{\"prompt\":\"Two\",\"answer\":\"2\"}\n");
    xr_str_printf(&ini,
                  "[run]\n"
                  "reward = words ; an instance\n"
                  "[model]\n"
                  "path = %s\n"
                  "[data]\n"
                  "train_files = rows.jsonl\n"
                  "max_prompt_length = 16\n"
                  "max_response_length = 8\n"
                  "train_batch_size = 2\n"
                  "template = \"{prompt}; \\\"go\\\"\\n\"\n"
                  "[rollout]\n"
                  "n = 4\n"
                  "[actor]\n"
                  "ppo_mini_batch_size = 1\n"
                  "ppo_max_token_len_per_gpu = 256\n"
                  "[trainer]\n"
                  "total_training_steps = 3\n"
                  "[sft]\n"
                  "train_batch_size = 2\n"
                  "[reward.words]\n"
                  "grader = regex\n"
                  "pattern = \"[a-z]+\"\n"
                  "match_only = true\n"
                  "%s",
                  model_dir, extra);
    (void)snprintf(path, sizeof path, "%s",
                   scratch_write("run.ini", xr_str_text(&ini)));
    xr_str_free(&ini);
    return path;
}

static void check_accepts_a_run(void **state)
{
    (void)state;
    const program_result *r = RUN(NULL, "check", write_run(""));
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    expect_text(r->out, "2 prompts x 4 samples = 8 rows");
    expect_text(r->out, "memory of train.zero3");
    expect_text(r->out, "memory of infer.dsinf");
    expect_text(r->out, "train_files: 2 rows, 0 left out and 0 cut");
    assert_string_equal(r->out + strlen(r->out) - 4, "\nok\n");
    r = RUN(NULL, "check", write_run(""), "--job", "sft");
    expect_code(r, 0);
}

/* All faults are reported at once, each with its location. */
static void check_reports_every_fault(void **state)
{
    (void)state;
    const program_result *r =
        RUN(NULL, "check",
            write_run("[actor.optim]\nlr = fast\n[rolout]\nn = 2\n"
                      "[algo.grpo]\nclip_ratoi = 0.1\n"),
            "--set", "data.train_files=none.jsonl", "--set",
            "actor.ppo_mini_batch_size=3");
    expect_code(r, 2);
    assert_null(strstr(r->out, "ok"));
    expect_text(r->err, "run.ini:25: ");
    expect_text(r->err, "run.ini:26: ");
    expect_text(r->err, "run.ini:29: ");
    expect_text(r->err, "clip_ratio");
    expect_text(r->err, "none.jsonl");
    expect_text(r->err, "ppo_mini_batch_size 3");
    assert_true(count_lines(r->err) >= 5);
}

static void check_reads_the_data(void **state)
{
    (void)state;
    const char *run = write_run("");
    (void)scratch_write("rows.jsonl", "{\"prompt\":\"Once\",\"answer\":1}\n"
                                      "{\"promt\":\"Two\",\"answer\":\"2\"}\n");
    const program_result *r = RUN(NULL, "check", run);
    expect_code(r, 2);
    expect_text(r->err, "rows.jsonl:2: no key 'prompt'");
}

static void check_refuses_a_missing_model(void **state)
{
    (void)state;
    const program_result *r =
        RUN(NULL, "check", write_run(""), "--set", "model.path=/no/such/model");
    expect_code(r, 2);
    expect_text(r->err, "/no/such/model");
    r = RUN(NULL, "check", write_run(""), "--set", "run.train=zero4");
    expect_code(r, 2);
    expect_text(r->err, "zero4");
    expect_text(r->err, "zero3");
}

static void print_reads_back(void **state)
{
    (void)state;
    const program_result *r =
        RUN(NULL, "config", "print", write_run(""), "--set", "run.seed=7");
    expect_code(r, 0);
    assert_string_equal(r->err, "");
    expect_text(r->out, "seed = 7\n");
    expect_text(r->out, "[algo.grpo]\n");
    expect_text(r->out, "template = \"{prompt}; \\\"go\\\"\\n\"\n");
    char *first = strdup(r->out);
    const char *copy = scratch_write("copy.ini", first);
    r = RUN(NULL, "config", "print", copy);
    expect_code(r, 0);
    assert_string_equal(r->out, first);
    free(first);
}

static void print_names_origins(void **state)
{
    (void)state;
    const program_result *r = RUN(NULL, "config", "print", write_run(""),
                                  "--origins", "--set=rollout.n=8");
    expect_code(r, 0);
    expect_text(r->out, "run.ini:9");
    expect_text(r->out, "n = 8 ; --set");
    expect_text(r->out, "; default");
    r = RUN(NULL, "config", "print", write_run("[run]\nseeed = 1\n"));
    expect_code(r, 2);
    expect_text(r->err, "did you mean");
}

/* ---- plugins ------------------------------------------------------------ */

static const char *const plugins[] = { "algo-grpo",     "backend-megatron",
                                       "backend-zero3", "device-cpu",
                                       "infer-dsinf",   "infer-paged",
                                       "reward-ffi",    "reward-http",
                                       "reward-rule",   "tracker-tensorboard" };
enum { PLUGINS = sizeof plugins / sizeof plugins[0] };

static cJSON *parse_output(const program_result *r)
{
    cJSON *json = NULL;
    xr_err err = { "" };
    if (xr_json_parse(r->out, strlen(r->out), "stdout", &err, &json) != XRAY_OK)
        fail_msg("%s", err.text);
    return json;
}

static void plugins_are_listed(void **state)
{
    (void)state;
    const program_result *r = RUN(NULL, "plugin", "list");
    expect_code(r, 0);
    for (size_t i = 0; i < PLUGINS; i++)
        expect_text(r->out, plugins[i]);
    expect_text(r->out, "xray.algo/0:grpo");
    r = RUN(NULL, "plugin", "list", "--json");
    expect_code(r, 0);
    cJSON *list = parse_output(r);
    assert_true(cJSON_GetArraySize(list) >= PLUGINS);
    const cJSON *entry;
    cJSON_ArrayForEach(entry, list)
    {
        assert_null(xr_json_get(entry, "refused"));
        assert_int_equal(xr_json_get(entry, "path")->valuestring[0], '/');
    }
    cJSON_Delete(list);
}

/* Every row names its source, and the published numbers are listed. */
static void presets_are_listed(void **state)
{
    (void)state;
    const program_result *r = RUN(NULL, "algo", "list");
    expect_code(r, 0);
    expect_text(r->out, "grpo: ");
    expect_text(r->out, "open_instruct_standard");
    expect_text(r->out, "2.267781");
    r = RUN(NULL, "algo", "list", "--json");
    expect_code(r, 0);
    cJSON *list = parse_output(r);
    const cJSON *algo;
    int rows = 0;
    cJSON_ArrayForEach(algo, list)
    {
        const cJSON *row;
        cJSON_ArrayForEach(row, xr_json_get(algo, "presets"))
        {
            rows++;
            assert_non_null(xr_json_get(row, "preset"));
            assert_true(*xr_json_get(row, "source")->valuestring != '\0');
        }
    }
    assert_true(rows > 20);
    cJSON_Delete(list);
}

/* A file that is not a plugin is listed with the reason, and is not run. */
static void refused_files_are_listed(void **state)
{
    (void)state;
    (void)scratch_write("broken.so", "this is no plugin");
    const program_result *r =
        RUN(NULL, "plugin", "list", "--plugin-path", scratch_dir());
    expect_code(r, 0);
    expect_text(r->out, "refused");
    expect_text(r->out, "broken.so");
    expect_text(r->out, "algo-grpo");
    r = RUN(NULL, "plugin", "inspect", scratch_path("broken.so"));
    assert_int_not_equal(r->code, 0);
    assert_string_equal(r->out, "");
    expect_text(r->err, "broken.so");
    (void)unlink(scratch_path("broken.so"));
}

static void inspect_has_three_formats(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLUGINS; i++) {
        const program_result *r = RUN(NULL, "plugin", "inspect", plugins[i]);
        expect_code(r, 0);
        expect_text(r->out, plugins[i]);
        r = RUN(NULL, "plugin", "inspect", plugins[i], "--format=ini");
        expect_code(r, 0);
        expect_text(r->out, "[");
        r = RUN(NULL, "plugin", "inspect", plugins[i], "--format=json");
        expect_code(r, 0);
        cJSON *json = parse_output(r);
        assert_string_equal(xr_json_get(json, "name")->valuestring, plugins[i]);
        assert_true(cJSON_GetArraySize(xr_json_get(json, "components")) > 0);
        cJSON_Delete(json);
    }
    const program_result *r = RUN(NULL, "plugin", "inspect", "grpo");
    expect_code(r, 0);
    expect_text(r->out, "clip_ratio = 0.2");
    expect_text(r->out, "dr_grpo");
    r = RUN(NULL, "plugin", "inspect", "grpo", "--format=yaml");
    expect_code(r, 2);
    /* A launcher and collectives have this name. */
    r = RUN(NULL, "plugin", "inspect", "mpi");
    expect_code(r, 2);
    assert_string_equal(r->out, "");
    expect_text(r->err, "xray: 'mpi' is in /");
    expect_text(r->err, "/comm-mpi.so and in /");
    expect_text(r->err, "/runtime-mpi.so; name the file\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(check_accepts_a_run),
        cmocka_unit_test(check_reports_every_fault),
        cmocka_unit_test(check_reads_the_data),
        cmocka_unit_test(check_refuses_a_missing_model),
        cmocka_unit_test(print_reads_back),
        cmocka_unit_test(print_names_origins),
        cmocka_unit_test(plugins_are_listed),
        cmocka_unit_test(presets_are_listed),
        cmocka_unit_test(refused_files_are_listed),
        cmocka_unit_test(inspect_has_three_formats),
    };
    return cmocka_run_group_tests_name("cli.config", tests, scratch_make,
                                       program_done);
}
