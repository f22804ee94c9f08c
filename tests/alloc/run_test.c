/* SPDX-License-Identifier: Apache-2.0
 *
 * Complete runs survive failing allocations: session, data, backend, engine,
 * algorithm, reward, metrics, checkpoint. The plugins are linked in, so that
 * theirs fail, too.
 */
#include <unistd.h>

#include "core/plugin/plugin.h"
#include "core/rl/run_loop.h"
#include "tests/alloc/failing.h"
#include "tests/scratch.h"

const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);
const xray_plugin *xray_plugin_query_backend_zero3(uint32_t host_abi);
const xray_plugin *xray_plugin_query_infer_dsinf(uint32_t host_abi);
const xray_plugin *xray_plugin_query_infer_paged(uint32_t host_abi);
const xray_plugin *xray_plugin_query_algo_grpo(uint32_t host_abi);
const xray_plugin *xray_plugin_query_algo_ppo(uint32_t host_abi);
const xray_plugin *xray_plugin_query_reward_rule(uint32_t host_abi);

/* The linker sends xr_plugins_find here. */
xray_status __wrap_xr_plugins_find(xr_plugins *plugins, const char *iface,
                                   const char *name, xr_err *err,
                                   const xray_component **out);
xray_status __wrap_xr_plugins_find(xr_plugins *plugins, const char *iface,
                                   const char *name, xr_err *err,
                                   const xray_component **out)
{
    const xray_plugin *const all[] = {
        xray_plugin_query_device_cpu(XRAY_ABI),
        xray_plugin_query_backend_zero3(XRAY_ABI),
        xray_plugin_query_infer_dsinf(XRAY_ABI),
        xray_plugin_query_infer_paged(XRAY_ABI),
        xray_plugin_query_algo_grpo(XRAY_ABI),
        xray_plugin_query_algo_ppo(XRAY_ABI),
        xray_plugin_query_reward_rule(XRAY_ABI),
    };
    (void)plugins;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (uint32_t c = 0; c < all[i]->component_count; c++)
            if (strcmp(all[i]->components[c]->iface, iface) == 0 &&
                strcmp(all[i]->components[c]->name, name) == 0) {
                *out = all[i]->components[c];
                return XRAY_OK;
            }
    return xr_fail(err, XRAY_E_CONFIG, "nothing provides %s:%s", iface, name);
}

/* ---- a small task -------------------------------------------------------- */

static const char config_json[] =
    "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_hidden_layers\":1,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
    "\"intermediate_size\":24,\"vocab_size\":28,\"rms_norm_eps\":1e-6,"
    "\"max_position_embeddings\":32,\"tie_word_embeddings\":false,"
    "\"eos_token_id\":0}";

static void write_tokenizer(void)
{
    xr_str json = { 0 };
    xr_str_puts(&json,
                "{\"added_tokens\":[{\"id\":0,\"content\":\"<e>\",\"special\":"
                "true}],\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{"
                "\"String\":\"\"},\"behavior\":\"Isolated\",\"invert\":false},"
                "\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":"
                "\"WordLevel\",\"unk_token\":\"<e>\",\"vocab\":{\"<e>\":0");
    for (int c = 'a'; c <= 'z'; c++)
        xr_str_printf(&json, ",\"%c\":%d", c, c - 'a' + 1);
    xr_str_puts(&json, ",\" \":27}}}");
    (void)scratch_write("tokenizer.json", xr_str_text(&json));
    (void)scratch_write("tokenizer_config.json", "{\"eos_token\":\"<e>\"}");
    xr_str_free(&json);
}

static int make_task(void **state)
{
    char ini[2048];
    if (scratch_make(state))
        return -1;
    const char *dir = scratch_dir();
    write_tokenizer();
    (void)scratch_write("config.json", config_json);
    (void)scratch_write("rows.jsonl", "{\"prompt\":\"a\",\"answer\":\"b\"}\n"
                                      "{\"prompt\":\"cd\",\"answer\":\"e\"}\n");
    (void)snprintf(ini, sizeof(ini),
                   "[run]\nreward = x\nseed = 3\nthreads = 1\n"
                   "[model]\npath = %s\ninit = random\n"
                   "[data]\ntrain_files = %s/rows.jsonl\n"
                   "val_files = %s/rows.jsonl\n"
                   "max_prompt_length = 4\nmax_response_length = 3\n"
                   "train_batch_size = 2\n"
                   "[rollout]\nn = 2\nmax_num_seqs = 3\n"
                   "[actor]\nppo_mini_batch_size = 2\n"
                   "ppo_max_token_len_per_gpu = 16\nrecompute_old_logp = 1\n"
                   "[trainer]\ntotal_training_steps = 1\n"
                   "val_before_train = true\nlogger = jsonl\n"
                   "default_local_dir = %s/out\n"
                   "[sft]\ntrain_batch_size = 2\ntotal_steps = 1\n"
                   "max_token_len = 32\n"
                   "[reward.x]\nplugin = rule\ngrader = regex\n"
                   "pattern = \"^[a-m]\"\nmatch_only = true\n",
                   dir, dir, dir, dir);
    (void)scratch_write("run.ini", ini);
    return 0;
}

/* ---- runs ---------------------------------------------------------------- */

typedef xray_status (*job)(const xr_run_args *args, xr_err *err,
                           xr_run_result *out);
typedef struct run_case {
    job run;
    const char *const *set; /* section.key=value, ends with NULL */
} run_case;

/* Joins the errors of the configuration into one. */
static xray_status join_errors(const xr_errors *errors, xr_err *err)
{
    for (size_t i = 0; i < errors->count; i++)
        if (strstr(errors->items[i], "emory"))
            return xr_fail(err, XRAY_E_NOMEM, "%s", errors->items[i]);
    return xr_fail(err, XRAY_E_CONFIG, "%s",
                   errors->count ? errors->items[0] : "no reason");
}

static xray_status run_with_config(const run_case *c, xr_config *config,
                                   xr_err *err)
{
    xr_errors errors = { 0 };
    xr_run_result result = { .steps = 0 };
    xr_run_args args = { .config = config, .errors = &errors };
    xr_config_read(config, scratch_path("run.ini"), &errors);
    for (const char *const *s = c->set; s && *s; s++)
        xr_config_set(config, *s, &errors);
    xray_status status =
        errors.count ? XRAY_E_CONFIG : c->run(&args, err, &result);
    if (errors.count)
        status = join_errors(&errors, err);
    if (status == XRAY_OK && result.report.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "no memory for the report");
    xr_str_free(&result.report);
    xr_errors_free(&errors);
    return status;
}

static xray_status try_run(void *ctx, xr_err *err)
{
    const run_case *c = ctx;
    xr_config *config = xr_config_new();
    if (!config)
        return xr_fail(err, XRAY_E_NOMEM, "no configuration");
    xray_status status = run_with_config(c, config, err);
    xr_config_free(config);
    return status;
}

/* Removes the output of the run before; none of these allocations fail. */
static xray_status try_fresh_run(void *ctx, xr_err *err)
{
    char out[256];
    (void)snprintf(out, sizeof(out), "rm -rf '%s'", scratch_path("out"));
    return system(out) == 0 ? try_run(ctx, err) : XRAY_E_IO;
}

static void train_survives(void **state)
{
    static const char *const set[] = { "algo.grpo.use_kl_loss=true", NULL };
    run_case c = { .run = xr_train_run, .set = set };
    (void)state;
    failing_sweep("xray train", try_fresh_run, &c, 150);
}

/* A critic and a reference; baselines of greedy samples. */
static void ppo_survives(void **state)
{
    static const char *const set[] = { "run.algo=ppo", "critic.shuffle=true",
                                       "algo.ppo.use_kl_in_reward=true", NULL };
    run_case c = { .run = xr_train_run, .set = set };
    (void)state;
    failing_sweep("xray train with PPO", try_fresh_run, &c, 150);
}

/* With the other engine. */
static void remax_survives(void **state)
{
    static const char *const set[] = { "algo.grpo.preset=remax",
                                       "run.infer=paged", NULL };
    run_case c = { .run = xr_train_run, .set = set };
    (void)state;
    failing_sweep("xray train with ReMax", try_fresh_run, &c, 150);
}

/* Resumes from the checkpoint of step 1. */
static xray_status try_resume(void *ctx, xr_err *err)
{
    char copy[600];
    char out[256];
    (void)snprintf(out, sizeof(out), "%s", scratch_path("out"));
    (void)snprintf(copy, sizeof(copy), "rm -rf '%s' && cp -r '%s' '%s'", out,
                   scratch_path("first"), out);
    return system(copy) == 0 ? try_run(ctx, err) : XRAY_E_IO;
}

static void resume_survives(void **state)
{
    static const char *const more[] = { "trainer.total_training_steps=2",
                                        NULL };
    run_case first = { .run = xr_train_run };
    run_case c = { .run = xr_train_run, .set = more };
    char from[256];
    xr_err err = { "" };
    (void)state;
    assert_int_equal(try_fresh_run(&first, &err), XRAY_OK);
    (void)snprintf(from, sizeof(from), "%s", scratch_path("out"));
    assert_int_equal(rename(from, scratch_path("first")), 0);
    failing_sweep("xray train, resumed", try_resume, &c, 150);
    assert_int_equal(try_resume(&c, &err), XRAY_OK);
    assert_int_equal(
        access(scratch_path("out/global_step_2/manifest.json"), R_OK), 0);
}

static void sft_survives(void **state)
{
    run_case c = { .run = xr_sft_run };
    (void)state;
    failing_sweep("xray sft", try_fresh_run, &c, 60);
}

static void eval_survives(void **state)
{
    run_case c = { .run = xr_eval_run };
    (void)state;
    failing_sweep("xray eval", try_run, &c, 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train_survives), cmocka_unit_test(ppo_survives),
        cmocka_unit_test(remax_survives), cmocka_unit_test(sft_survives),
        cmocka_unit_test(eval_survives),  cmocka_unit_test(resume_survives),
    };
    failing_init();
    return cmocka_run_group_tests(tests, make_task, scratch_drop);
}
