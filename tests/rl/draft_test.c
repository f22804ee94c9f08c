/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a run derives from its INI before anything is created: numbers of
 * the model, workloads, worlds, and the plugins found.
 */
#include "core/base/str.h"
#include "core/run/run.h"
#include "core/run/run_setup.h"
#include "tests/growth.h"
#include "tests/scratch.h"

#define ALL (XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO | XR_TRAINABLE)

static xr_run *run;
static xr_config *config;
static xr_errors errors;
static int prompts = 8; /* prompts per step */

/* Makes a run of an INI with a randomly initialized model; `more` is appended
 * to the INI. */
static void make_draft(uint32_t with, const char *more)
{
    char path[300];
    char plugins[600];
    xr_str ini = { 0 };
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    (void)scratch_write("rows.jsonl", "{\"prompt\":\"a\",\"answer\":\"b\"}\n");
    xr_str_printf(&ini,
                  "[model]\npath = m\ninit = random\n"
                  "[data]\ntrain_files = rows.jsonl\nmax_prompt_length = 6\n"
                  "max_response_length = 4\ntrain_batch_size = %d\n"
                  "[rollout]\nn = 3\n[actor]\nppo_max_token_len_per_gpu = 30\n"
                  "[sft]\nmax_token_len = 25\n%s",
                  prompts, more);
    (void)snprintf(path, sizeof(path), "%s",
                   scratch_write("run.ini", xr_str_text(&ini)));
    xr_str_free(&ini);
    const char *build = getenv("XRAY_BUILD");
    assert_non_null(build);
    (void)snprintf(plugins, sizeof(plugins), "%s/plugins", build);
    config = xr_config_new();
    xr_config_read(config, path, &errors);
    run = xr_run_draft(config, plugins, with, &errors);
    assert_non_null(run);
}

static void write_model(const char *json)
{
    (void)scratch_write("m/config.json", json);
    (void)remove(scratch_path("m/generation_config.json"));
}

#define LLAMA(more)                                                       \
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\"," \
    "\"hidden_act\":\"silu\",\"hidden_size\":4,\"intermediate_size\":6,"  \
    "\"num_attention_heads\":2,\"num_hidden_layers\":1,"                  \
    "\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,"                    \
    "\"tie_word_embeddings\":true,\"vocab_size\":16" more "}"

/* Expects one sentence without its folder, or none. */
static void expect_error(const char *want)
{
    xr_str text = { 0 };
    const char *dir = scratch_dir();
    for (size_t i = 0; i < errors.count; i++) {
        const char *at = errors.items[i];
        for (const char *next = NULL; (next = strstr(at, dir)); at = next) {
            xr_str_append(&text, at, (size_t)(next - at));
            next += strlen(dir) + 1;
        }
        xr_str_printf(&text, "%s%s", at, i + 1 < errors.count ? "\n" : "");
    }
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
}

/* ---- the model ---------------------------------------------------------- */

static void numbers_of_a_model_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *json;
        uint32_t vocab;
        uint32_t positions;
        const char *error;
    } cases[] = {
        { LLAMA(",\"max_position_embeddings\":64"), 16, 64, "" },
        { LLAMA(""), 16, 1u << 20, "" },
        { LLAMA(",\"n_positions\":32"), 16, 32, "" },
        { LLAMA(",\"n_ctx\":33,\"n_positions\":32"), 16, 32, "" },
        { LLAMA(",\"n_ctx\":33"), 16, 33, "" },
        { LLAMA(",\"max_position_embeddings\":10"), 16, 10, "" },
        { LLAMA(",\"max_position_embeddings\":1073741824"), 16, 1u << 30, "" },
        { LLAMA(",\"max_position_embeddings\":1073741825"), 0, 0,
          "m/config.json: max_position_embeddings is 1073741825, expected 1 to "
          "2^30" },
        { LLAMA(",\"n_ctx\":0"), 0, 0,
          "m/config.json: n_ctx is 0, expected 1 to 2^30" },
        { "{\"vocab_size\":1}", 1, 1u << 20, "" },
        { "{\"vocab_size\":1073741824}", 1u << 30, 1u << 20, "" },
        { "{\"vocab_size\":0}", 0, 0,
          "m/config.json: vocab_size is 0, expected 1 to 2^30" },
        { "{\"vocab_size\":1073741825}", 0, 0,
          "m/config.json: vocab_size is 1073741825, expected 1 to 2^30" },
        { "[1]", 0, 0, "m/config.json: must be a JSON object" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        write_model(cases[i].json);
        make_draft(ALL, "[run]\nseed = 77\n");
        expect_error(cases[i].error);
        assert_int_equal(run->actor.model.vocab_size, cases[i].vocab);
        assert_int_equal(run->actor.model.max_positions, cases[i].positions);
        assert_int_equal(run->actor.model.config_json != NULL,
                         !*cases[i].error);
        assert_int_equal(run->actor.model.seed, 77);
        assert_int_equal(run->actor.model.random_init, !*cases[i].error);
    }
}

static void expect_ends(const char *want)
{
    xr_str text = { 0 };
    make_draft(ALL, "");
    expect_error("");
    for (uint32_t i = 0; i < run->end_count; i++)
        xr_str_printf(&text, "%s%d", i ? " " : "", run->end_ids[i]);
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
}

/* End ids come from generation_config.json if it has any, otherwise from
 * config.json. */
static void end_ids_of_a_response_are_read(void **state)
{
    (void)state;
    write_model(LLAMA(",\"eos_token_id\":2"));
    expect_ends("2");
    (void)scratch_write("m/generation_config.json", "{\"eos_token_id\":[3,5]}");
    expect_ends("3 5");
    (void)scratch_write("m/generation_config.json", "{\"temperature\":0.1}");
    expect_ends("2");
    (void)scratch_write("m/generation_config.json", "{\"eos_token_id\":15}");
    expect_ends("15");
    (void)scratch_write("m/generation_config.json",
                        "{\"eos_token_id\":[16,-1,\"x\"]}");
    expect_ends("2"); /* none of these is a valid id */
    (void)scratch_write("m/generation_config.json",
                        "{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9]}");
    expect_ends("0 1 2 3 4 5 6 7"); /* as many as a request takes */
    write_model(LLAMA(""));
    expect_ends("");
}

static void folders_without_a_model_are_refused(void **state)
{
    (void)state;
    write_model(LLAMA(""));
    make_draft(ALL, "[data]\nseed = 1\n"); /* a section may occur twice */
    expect_error("");
    make_draft(ALL & ~XR_WITH_ALGO, "");
    expect_error("");
    (void)scratch_write("run2.ini", "");
    xr_run_free(run);
    run = NULL;
    xr_config_free(config);
    config = xr_config_new();
    xr_errors_free(&errors);
    char path[300];
    (void)snprintf(path, sizeof(path), "%s", scratch_path("run2.ini"));
    xr_config_read(config, path, &errors);
    xr_config_set(config, "model.path=/no/such", &errors);
    run = xr_run_draft(config, NULL, XR_WITH_INFER, &errors);
    assert_non_null(run);
    assert_true(errors.count > 0);
    int said = 0;
    for (size_t i = 0; i < errors.count; i++)
        said |= strcmp(errors.items[i],
                       "--set: [model] path: /no/such is not a folder") == 0;
    assert_true(said);
}

/* ---- workloads and worlds ----------------------------------------------- */

static void workloads_follow_the_ini(void **state)
{
    (void)state;
    static const struct {
        uint32_t with;
        const char *more;
        int prompts;
        uint64_t tokens;
        uint64_t sequences;
    } cases[] = {
        { ALL, "", 8, 30, 24 },
        { ALL, "[rollout]\nmax_num_seqs = 5\n", 8, 30, 5 },
        { ALL, "", 171, 30, 512 },
        { ALL, "", 170, 30, 510 },
        { ALL, "[run]\nranks = 2\n[rollout]\nmax_num_seqs = 5\n", 8, 30, 3 },
        { ALL & ~XR_WITH_ALGO, "", 8, 25, 24 },
        { XR_WITH_INFER, "", 8, 30, 24 },
    };
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        prompts = cases[i].prompts;
        make_draft(cases[i].with, cases[i].more);
        expect_error("");
        assert_true(run->actor.load.tokens == cases[i].tokens);
        assert_true(run->actor.load.row_tokens == 10);
        assert_true(run->rollout.load.rows == cases[i].sequences);
    }
    prompts = 8;
}

static void plans_get_the_world_of_their_role(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL,
               "[run]\nranks = 4\n[placement]\nactor = 0-2\nreference = 0\n"
               "critic = 1-2\nreward = 3\nrollout = 0-3\n");
    expect_error("");
    static const uint32_t sizes[] = { 0, 3, 1, 2, 4, 1 };
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        const xray_world world = xr_run_world(run, role);
        assert_int_equal(world.size, sizes[role]);
        assert_int_equal(world.rank, 0);
        assert_ptr_equal(world.global_ranks, xr_run_ranks(run, role)->rank);
        assert_null(world.comm);
    }
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    long each = cores / 4 > 0 ? cores / 4 : 1;
    assert_int_equal(run->ini.run.threads, each);
    make_draft(ALL, "[run]\nranks = 4\nthreads = 9\n");
    assert_int_equal(run->ini.run.threads, 9);
    make_draft(ALL, "[run]\nranks = 1\n");
    assert_int_equal(run->ini.run.threads, 0); /* one per core */
}

static void log_levels_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t level;
    } levels[] = { { "error", XRAY_LOG_ERROR },
                   { "warn", XRAY_LOG_WARN },
                   { "info", XRAY_LOG_INFO },
                   { "debug", XRAY_LOG_DEBUG } };
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    for (size_t i = 0; i < 4; i++) {
        char more[64];
        (void)snprintf(more, sizeof(more), "[run]\nlog = %s\n", levels[i].name);
        make_draft(ALL, more);
        expect_error("");
        assert_int_equal(run->sink.level, levels[i].level);
    }
}

/* ---- parts -------------------------------------------------------------- */

static void parts_of_a_run_are_found(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL, "");
    expect_error("");
    assert_string_equal(run->device.instance, "device.cpu");
    assert_string_equal(run->train.instance, "train.zero3");
    assert_string_equal(run->infer.instance, "infer.dsinf");
    assert_string_equal(run->algo.instance, "algo.grpo");
    assert_null(run->comm.component); /* with one rank */
    assert_null(run->runtime.component);
    assert_int_equal(run->reward_count, 0);
    xr_run_plan_layouts(run, &errors);
    expect_error("");
    assert_string_equal(xr_run_numerics(run, XRAY_ROLE_ACTOR), "xray.fp32/2");
    assert_int_equal(run->exact, 1);
    /* A backend need not name a contract. */
    for (int way = 0; way < LACK_WAYS; way++) {
        make_draft(ALL, "");
        xray_component silent = *run->train.component;
        LACK_MEMBER(xray_component, silent, numerics, way);
        run->train.component = &silent;
        assert_null(xr_run_numerics(run, XRAY_ROLE_ACTOR));
    }
    make_draft(ALL, "[infer.dsinf]\nweights = bfloat16\n");
    xr_run_plan_layouts(run, &errors);
    expect_error("");
    assert_string_equal(xr_run_numerics(run, XRAY_ROLE_ROLLOUT),
                        "xray.fp32-bf16-weights/2");
    assert_int_equal(run->exact, 0);
    make_draft(ALL, "[run]\nranks = 2\n");
    expect_error("");
    assert_string_equal(run->comm.instance, "comm.shm");
    make_draft(ALL | XR_WITH_REWARD,
               "[run]\nreward = a, b\n[reward.a]\ngrader = regex\npattern = x\n"
               "match_only = true\nweight = 0.25\n[reward.b]\nplugin = rule\n"
               "grader = regex\npattern = y\nmatch_only = true\n");
    expect_error("");
    assert_int_equal(run->reward_count, 2);
    assert_string_equal(run->rewards[0].instance, "reward.a");
    assert_true(run->rewards[0].weight == 0.25);
    assert_string_equal(run->rewards[1].instance, "reward.b");
    assert_true(run->rewards[1].weight == 1);
    make_draft(XR_WITH_INFER, "");
    assert_null(run->train.component);
    assert_null(run->algo.component);
    assert_int_equal(run->exact, 0);
}

/* Sixteen rewards are the most. Sections of plugins that are not selected are
 * no error; sections of no plugin are. */
static void listed_rewards_are_found_and_unknown_ones_refused(void **state)
{
    (void)state;
    xr_str more = { 0 };
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    for (int many = 16; many <= 17; many++) {
        xr_str_clear(&more);
        xr_str_puts(&more, "[run]\nreward = ");
        for (int i = 0; i < many; i++)
            xr_str_printf(&more, "%sr%d", i ? ", " : "", i);
        xr_str_puts(&more, "\n");
        for (int i = 0; i < many; i++)
            xr_str_printf(&more, "[reward.r%d]\ngrader = length\n", i);
        make_draft(ALL | XR_WITH_REWARD, xr_str_text(&more));
        expect_error(many == 16 ? ""
                                : "run.ini:16: [run] reward lists 17 "
                                  "instances, at most 16 are allowed");
    }
    xr_str_free(&more);
    make_draft(ALL, "[algo.ppo]\ngamma = 0.5\n[reward.unused]\nanything = 1\n");
    expect_error("");
    make_draft(ALL, "[algo.pp]\ngamma = 0.5\n");
    assert_int_equal(errors.count, 1);
    make_draft(ALL | XR_WITH_REWARD, "[reward.mine]\ngrader = length\n");
    expect_error("run.ini: [run] reward is not set, so nothing would read "
                 "[reward.mine]; expected reward = mine, or a list of others");
    make_draft(
        ALL | XR_WITH_REWARD,
        "[reward.mine]\ngrader = length\n[reward.rule]\ngrader = length\n");
    expect_error("");
    make_draft(ALL | XR_WITH_REWARD, "[run]\nreward = mime\n[reward.mine]\n"
                                     "grader = length\n");
    assert_int_equal(errors.count, 1);
    assert_non_null(strstr(errors.items[0], "there is no section "
                                            "[reward.mime], and "));
    assert_non_null(strstr(errors.items[0], "; did you mean [reward.mine]?"));
    make_draft(ALL | XR_WITH_REWARD, "[run]\nreward = other\n[reward.mine]\n"
                                     "grader = length\n");
    assert_null(strstr(errors.items[0], "did you mean"));
}

/* Blocks of the policy that keep their values are trained in the critic. */
static void frozen_blocks_are_the_policys(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL, "[run]\nalgo = ppo\n[actor]\ntrainable_from_layer = 1\n");
    xr_run_apply_needs(run, XRAY_NEED_CRITIC, &errors);
    expect_error("");
    assert_int_equal(run->actor.load.trainable_from_layer, 1);
    assert_int_equal(run->critic.load.trainable, 1);
    assert_int_equal(run->critic.load.trainable_from_layer, 0);
}

/* A section without the key `plugin` belongs to the plugin of its name, and
 * only otherwise to rule. */
static void the_name_of_a_reward_counts_before_its_grader(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL | XR_WITH_REWARD,
               "[run]\nreward = http, length\n[reward.http]\nurl = "
               "http://localhost:1/x\ngrader = length\n[reward.length]\n"
               "grader = length\n");
    assert_int_equal(run->reward_count, 2);
    assert_string_equal(run->rewards[0].component->name, "http");
    assert_string_equal(run->rewards[1].component->name, "rule");
    expect_error("run.ini:19: [reward.http] grader: no such option; "
                 "[reward.length] has an option of that name");
}

/* Messages within a host are not encrypted, and the key is no error there, so
 * that one file serves runs on one host and on several. */
static void encryption_is_for_other_hosts(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL, "[runtime]\ntls = true\n");
    expect_error("");
    make_draft(ALL, "[run]\nranks = 2\nruntime = local\n[runtime]\n"
                    "tls = true\n");
    expect_error("");
}

/* A response cannot have more tokens before its end than it may have at all. */
static void tokens_before_the_end_fit_the_response(void **state)
{
    (void)state;
    write_model(LLAMA(",\"max_position_embeddings\":64"));
    make_draft(ALL & ~XR_WITH_ALGO, "[rollout]\nmin_tokens = 4\n");
    expect_error("");
    make_draft(ALL & ~XR_WITH_ALGO, "[rollout]\nmin_tokens = 5\n");
    expect_error("run.ini:16: [rollout] min_tokens 5 is more than [data] "
                 "max_response_length 4");
}

static int begin_test(void **state)
{
    if (scratch_make(state) != 0)
        return -1;
    return xr_dir_make(scratch_path("m"), NULL) == XRAY_OK ? 0 : -1;
}

static int end_test(void **state)
{
    xr_run_free(run);
    xr_config_free(config);
    xr_errors_free(&errors);
    return scratch_drop(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_a_model_are_read),
        cmocka_unit_test(end_ids_of_a_response_are_read),
        cmocka_unit_test(folders_without_a_model_are_refused),
        cmocka_unit_test(workloads_follow_the_ini),
        cmocka_unit_test(plans_get_the_world_of_their_role),
        cmocka_unit_test(log_levels_are_decoded),
        cmocka_unit_test(parts_of_a_run_are_found),
        cmocka_unit_test(listed_rewards_are_found_and_unknown_ones_refused),
        cmocka_unit_test(frozen_blocks_are_the_policys),
        cmocka_unit_test(the_name_of_a_reward_counts_before_its_grader),
        cmocka_unit_test(encryption_is_for_other_hosts),
        cmocka_unit_test(tokens_before_the_end_fit_the_response),
    };
    return cmocka_run_group_tests_name("rl.draft", tests, begin_test, end_test);
}
