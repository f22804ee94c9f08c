/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a DeepSpeed JSON as a layer of the configuration: the result of each
 * key, which layer wins, and which keys are refused.
 */
#include <xray/host.h>

#include "core/config/sections.h"
#include "core/deepspeed/deepspeed.h"
#include "tests/config/config_testing.h"
#include "tests/deepspeed/backend.h"
#include "tests/deepspeed/files.h"

static const char base_ini[] =
    "[train.zero3]\ndeepspeed_config = ds.json\n[data]\n"
    "train_batch_size = 4\nmax_prompt_length = 60\nmax_response_length = 40\n"
    "[rollout]\nn = 4\n";

typedef struct read {
    xr_config *config;
    xr_errors errors;
    int sft;
    uint32_t ranks;
} reading;

/* Reads ds.json with an INI of `base_ini` and `more`. */
static void read_both(reading *r, const char *json, const char *more)
{
    char ini[2048];
    r->config = xr_config_new();
    assert_non_null(r->config);
    (void)snprintf(ini, sizeof(ini), "%s%s", base_ini, more);
    write_text("run.ini", ini);
    write_text("ds.json", json);
    xr_config_read(r->config, "run.ini", &r->errors);
    xr_deepspeed_read(r->config, &ds_backend, r->sft, r->ranks ? r->ranks : 1,
                      &r->errors);
}

static void free_reading(reading *r)
{
    xr_errors_free(&r->errors);
    xr_config_free(r->config);
    (void)unlink("ds.json");
}

/* Expects these messages from the JSON and the INI together. */
static void expect_messages(const char *json, const char *more,
                            const char *want)
{
    reading r = { 0 };
    read_both(&r, json, more);
    expect_errors(&r.errors, want);
    free_reading(&r);
}

static void expect_set(const reading *r, const char *section, const char *key,
                       const char *text, const char *path)
{
    char origin[160];
    const char *have = xr_config_get(r->config, section, key);
    (void)snprintf(origin, sizeof(origin), "ds.json: %s", path);
    assert_non_null(have);
    assert_string_equal(have, text);
    assert_string_equal(xr_config_origin(r->config, section, key), origin);
}

/* Notes as lines "w path" or "i path". */
static void expect_notes(const reading *r, const char *want)
{
    xr_str text = { 0 };
    for (const xr_note *n = xr_config_notes(r->config); n; n = n->next) {
        const char *path = n->text + strlen("ds.json: ");
        assert_non_null(strstr(path, ": no effect here: "));
        xr_str_printf(&text, "%s %.*s\n", n->level == XRAY_LOG_WARN ? "w" : "i",
                      (int)strcspn(path, ":"), path);
    }
    assert_string_equal(xr_str_text(&text), want);
    xr_str_free(&text);
}

/* ---- complete files ----------------------------------------------------- */

static void example_of_the_documentation_is_read(void **state)
{
    reading r = { 0 };
    (void)state;
    read_both(&r, ds_documentation, "");
    expect_errors(&r.errors, "");
    expect_set(&r, "actor.optim", "lr", "0.00015", "optimizer.params.lr");
    expect_set(&r, "train.zero3", "beta1", "0.8", "optimizer.params.betas");
    expect_set(&r, "train.zero3", "beta2", "0.95", "optimizer.params.betas");
    expect_set(&r, "train.zero3", "eps", "1e-07", "optimizer.params.eps");
    expect_set(&r, "train.zero3", "weight_decay", "3e-07",
               "optimizer.params.weight_decay");
    expect_set(&r, "train.zero3", "stage", "2", "zero_optimization.stage");
    expect_set(&r, "train.zero3", "offload_optimizer", "host",
               "zero_optimization.offload_optimizer.device");
    expect_set(&r, "actor", "grad_clip", "0.5", "gradient_clipping");
    /* 8 sequences of 4 samples each. */
    expect_set(&r, "actor", "ppo_mini_batch_size", "2", "train_batch_size");
    expect_set(&r, "actor.optim", "lr_scheduler_type", "constant",
               "scheduler.type");
    /* Two updates per step of the run: 10 updates are 5 steps. */
    expect_set(&r, "actor.optim", "lr_warmup_steps", "5",
               "scheduler.params.warmup_num_steps");
    expect_notes(&r, "i optimizer.params.torch_adam\n"
                     "i zero_optimization.offload_optimizer.pin_memory\n"
                     "i zero_optimization.overlap_comm\n"
                     "i zero_optimization.reduce_bucket_size\n"
                     "i zero_optimization.allgather_bucket_size\n"
                     "i steps_per_print\n"
                     "i gradient_accumulation_steps\n");
    free_reading(&r);
}

static void autos_keep_our_values(void **state)
{
    reading r = { 0 };
    (void)state;
    read_both(&r, ds_hugging_face, "[actor.optim]\nlr = 7e-6\n");
    expect_errors(&r.errors, "");
    assert_string_equal(xr_config_get(r.config, "actor.optim", "lr"), "7e-6");
    assert_null(xr_config_get(r.config, "train.zero3", "beta1"));
    assert_null(xr_config_get(r.config, "actor", "ppo_mini_batch_size"));
    assert_null(xr_config_get(r.config, "model", "dtype"));
    expect_set(&r, "train.zero3", "stage", "3", "zero_optimization.stage");
    expect_set(&r, "train.zero3", "offload_param", "none",
               "zero_optimization.offload_param.device");
    expect_notes(&r, "i zero_optimization.offload_optimizer.pin_memory\n"
                     "i zero_optimization.offload_param.pin_memory\n"
                     "i zero_optimization.overlap_comm\n"
                     "i zero_optimization.sub_group_size\n"
                     "i zero_optimization.stage3_max_live_parameters\n"
                     "i zero_optimization.stage3_max_reuse_distance\n"
                     "i steps_per_print\n");
    free_reading(&r);
}

static void file_of_openrlhf_is_read(void **state)
{
    reading r = { .ranks = 4 };
    (void)state;
    read_both(&r, ds_openrlhf, "[actor]\nppo_mini_batch_size = 4\n");
    expect_errors(&r.errors, "");
    /* 2 sequences of at most 60 + 40 tokens. */
    expect_set(&r, "actor", "ppo_max_token_len_per_gpu", "200",
               "train_micro_batch_size_per_gpu");
    expect_set(&r, "train.zero3", "offload_optimizer", "host",
               "zero_optimization.offload_optimizer.device");
    assert_string_equal(
        xr_config_origin(r.config, "actor", "ppo_mini_batch_size"),
        "run.ini:10");
    expect_notes(&r, "i steps_per_print\n"
                     "i zero_optimization.offload_optimizer.pin_memory\n"
                     "i zero_optimization.overlap_comm\n"
                     "i checkpoint\n");
    expect_set(&r, "model", "dtype", "bfloat16", "bf16.enabled");
    free_reading(&r);
}

static void linear_schedule_decays(void **state)
{
    reading r = { .ranks = 2 };
    (void)state;
    read_both(&r, ds_decay, "");
    expect_errors(&r.errors, "");
    /* 4 sequences x 2 x 2 ranks are 4 prompts of 4 samples. */
    expect_set(&r, "actor", "ppo_mini_batch_size", "4",
               "train_micro_batch_size_per_gpu");
    expect_set(&r, "actor.optim", "lr_scheduler_type", "linear",
               "scheduler.type");
    expect_set(&r, "actor.optim", "lr_warmup_steps", "4",
               "scheduler.params.warmup_num_steps");
    expect_set(&r, "trainer", "total_training_steps", "40",
               "scheduler.params.total_num_steps");
    expect_set(&r, "train.zero3", "offload_optimizer", "host",
               "zero_optimization.cpu_offload");
    expect_set(&r, "train.zero3", "offload_param", "host",
               "zero_optimization.cpu_offload_params");
    expect_notes(&r, "i zero_optimization.round_robin_gradients\n"
                     "w zero_optimization.zero_hpz_partition_size\n"
                     "i gradient_accumulation_steps\n");
    free_reading(&r);
}

static void cosine_schedule_and_tools_are_read(void **state)
{
    reading r = { 0 };
    (void)state;
    read_both(&r, ds_cosine, "");
    expect_errors(&r.errors, "");
    expect_set(&r, "actor.optim", "lr", "0.0003", "optimizer.params.lr");
    expect_set(&r, "actor.optim", "lr_scheduler_type", "cosine",
               "scheduler.type");
    expect_set(&r, "actor.optim", "min_lr_ratio", "0.1",
               "scheduler.params.cos_min_ratio");
    expect_notes(&r, "i communication_data_type\n"
                     "i dump_state\n"
                     "i tensorboard\n"
                     "i activation_checkpointing\n"
                     "i aio\n");
    free_reading(&r);
}

static void supervised_tuning_has_its_own_sections(void **state)
{
    reading r = { .sft = 1, .ranks = 4 };
    (void)state;
    read_both(&r, ds_chat, "");
    expect_errors(&r.errors, "");
    expect_set(&r, "sft", "train_batch_size", "32", "train_batch_size");
    expect_set(&r, "sft", "max_token_len", "800",
               "train_micro_batch_size_per_gpu");
    expect_set(&r, "sft", "grad_clip", "1", "gradient_clipping");
    expect_set(&r, "train.zero3", "offload_param", "host",
               "zero_optimization.offload_param.device");
    assert_null(xr_config_get(r.config, "actor", "grad_clip"));
    assert_null(xr_config_get(r.config, "model", "dtype"));
    free_reading(&r);
}

/* ---- layers ------------------------------------------------------------- */

static void values_reach_the_run(void **state)
{
    reading r = { 0 };
    xr_run_config run;
    (void)state;
    read_both(&r, ds_documentation, "");
    xr_run_decode(r.config, &run, &r.errors);
    expect_errors(&r.errors, "");
    assert_true(run.actor_optim.lr == 0.00015);
    assert_true(run.actor.grad_clip == 0.5);
    assert_int_equal(run.actor.ppo_mini_batch_size, 2);
    assert_int_equal(run.actor_optim.lr_warmup_steps, 5);
    free_reading(&r);
}

static void command_line_overrides_the_file(void **state)
{
    static char variable[] = "XRAY_ACTOR__GRAD_CLIP=2";
    static char *environment[] = { variable, NULL };
    reading r = { 0 };
    (void)state;
    r.config = xr_config_new();
    assert_non_null(r.config);
    write_text("run.ini", base_ini);
    write_text("ds.json", ds_documentation);
    xr_config_read(r.config, "run.ini", &r.errors);
    xr_config_environment(r.config, environment, &r.errors);
    xr_config_set(r.config, "actor.optim.lr=1e-6", &r.errors);
    xr_config_set(r.config, "actor.ppo_mini_batch_size=1", &r.errors);
    xr_deepspeed_read(r.config, &ds_backend, 0, 1, &r.errors);
    expect_errors(&r.errors,
                  "ds.json: scheduler.params.warmup_num_steps: 10 optimizer "
                  "steps; a step of the run has 4 of them, so a multiple of "
                  "that is expected");
    assert_string_equal(xr_config_get(r.config, "actor.optim", "lr"), "1e-6");
    assert_string_equal(xr_config_get(r.config, "actor", "grad_clip"), "2");
    free_reading(&r);
}

/* The printed INI holds the JSON's values and no longer needs the JSON, which
 * would contradict values of the command line printed as a file's. */
static void resolved_ini_reads_back(void **state)
{
    reading r = { .ranks = 1 };
    reading again = { 0 };
    xr_run_config run;
    xr_str text = { 0 };
    ds_backend_config own;
    (void)state;
    read_both(&r, ds_documentation, "");
    xr_config_set(r.config, "actor.grad_clip=3", &r.errors);
    xr_run_decode(r.config, &run, &r.errors);
    xr_config_decode(r.config, "train.zero3", XR_TABLE(ds_backend_options),
                     &own, &r.errors);
    xr_config_print(r.config, 1, &text);
    assert_non_null(strstr(xr_str_text(&text),
                           "lr = 0.00015 ; ds.json: optimizer.params.lr\n"));
    assert_null(strstr(xr_str_text(&text), "deepspeed_config"));
    write_text("other.ini", xr_str_text(&text));
    again.config = xr_config_new();
    xr_config_read(again.config, "other.ini", &again.errors);
    xr_deepspeed_read(again.config, &ds_backend, 0, 1, &again.errors);
    expect_errors(&again.errors, "");
    assert_string_equal(own.deepspeed_config, "ds.json");
    assert_string_equal(xr_config_get(again.config, "actor", "grad_clip"), "3");
    assert_string_equal(xr_config_get(again.config, "actor.optim", "lr"),
                        "0.00015");
    xr_str_free(&text);
    xr_config_free(again.config);
    free_reading(&r);
}

static void equal_values_do_not_contradict(void **state)
{
    reading r = { 0 };
    (void)state;
    read_both(&r, ds_documentation,
              "[actor.optim]\nlr = 15e-5\n[actor]\ngrad_clip = .5\n"
              "ppo_mini_batch_size = 2\n");
    expect_errors(&r.errors, "");
    assert_string_equal(xr_config_origin(r.config, "actor.optim", "lr"),
                        "run.ini:10");
    free_reading(&r);
}

/* ---- errors ------------------------------------------------------------- */

static void contradictions_with_the_ini_are_refused(void **state)
{
    (void)state;
    expect_messages(
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 2e-5}}}",
        "[actor.optim]\nlr = 1e-6\n",
        "ds.json: optimizer.params.lr: 2e-05 contradicts [actor.optim] lr = "
        "1e-6, set by run.ini:10; leave one of them out");
    expect_messages(
        "{\"gradient_clipping\": 0.5}", "[actor]\ngrad_clip = 1.0\n",
        "ds.json: gradient_clipping: 0.5 contradicts [actor] grad_clip = "
        "1.0, set by run.ini:10; leave one of them out");
    expect_messages(
        "{\"train_batch_size\": 32}", "[actor]\nppo_mini_batch_size = 2\n",
        "ds.json: train_batch_size: 32 sequences per optimizer step "
        "contradict [actor] ppo_mini_batch_size = 2, set by run.ini:10: 2 "
        "prompts x [rollout] n 4 = 8");
    expect_messages(
        "{\"train_batch_size\": 8}", "[actor]\nppo_mini_batch_size = 0\n",
        "ds.json: train_batch_size: 8 sequences per optimizer step "
        "contradict [actor] ppo_mini_batch_size = 0, set by run.ini:10: 4 "
        "prompts x [rollout] n 4 = 16");
    expect_messages(
        "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 2}",
        "[actor]\nppo_max_token_len_per_gpu = 500\n",
        "ds.json: train_micro_batch_size_per_gpu: 2 sequences of at most 60 "
        "+ 40 tokens are 200 tokens, which contradicts [actor] "
        "ppo_max_token_len_per_gpu = 500, set by run.ini:10");
    expect_messages(
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1e-4}},"
        "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
        "{\"warmup_max_lr\": 1e-3}}}",
        "",
        "ds.json: scheduler.params.warmup_max_lr: 0.001 contradicts "
        "[actor.optim] lr = 0.0001, set by ds.json: optimizer.params.lr; "
        "leave one of them out");
    expect_messages(
        "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
        "{\"total_num_steps\": 100}}}",
        "[trainer]\ntotal_training_steps = 90\n",
        "ds.json: scheduler.params.total_num_steps: 100 contradicts "
        "[trainer] total_training_steps = 90, set by run.ini:10; leave one "
        "of them out");
}

static void inconsistent_batch_sizes_are_refused(void **state)
{
    (void)state;
    expect_messages(
        "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 2,"
        "\"gradient_accumulation_steps\": 4}",
        "",
        "ds.json: train_batch_size: 16 is not "
        "train_micro_batch_size_per_gpu 2 x gradient_accumulation_steps 4 x "
        "1 ranks = 8");
    expect_messages(
        "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": 3}", "",
        "ds.json: train_batch_size: 16 is not a multiple of "
        "train_micro_batch_size_per_gpu 3 x 1 ranks");
    expect_messages(
        "{\"train_batch_size\": 14}", "",
        "ds.json: train_batch_size: 14 sequences per optimizer step are not "
        "a multiple of [rollout] n = 4 samples, set by run.ini:8");
    expect_messages(
        "{\"train_batch_size\": 0}", "",
        "ds.json: train_batch_size: 0 is out of range; expected 1 or more");
    reading r = { .ranks = 3 };
    read_both(&r, "{\"train_batch_size\": 16}", "");
    expect_errors(&r.errors,
                  "ds.json: train_batch_size: 16 is not a multiple of 1 x 3 "
                  "ranks");
    free_reading(&r);
    /* 5 sequences per rank would leave a remainder of one. */
    read_both(&r,
              "{\"train_batch_size\": 16, \"train_micro_batch_size_per_gpu\": "
              "5, \"gradient_accumulation_steps\": 1}",
              "");
    expect_errors(&r.errors, "ds.json: train_batch_size: 16 is not "
                             "train_micro_batch_size_per_gpu 5 x "
                             "gradient_accumulation_steps 1 x 3 ranks = 15");
    free_reading(&r);
}

static void unknown_keys_are_refused(void **state)
{
    (void)state;
    expect_messages("{\"zero_optimisation\": {}}", "",
                    "ds.json: zero_optimisation: no such key; did you mean "
                    "zero_optimization?");
    expect_messages(
        "{\"zero_optimization\": {\"overlap_com\": true}}", "",
        "ds.json: zero_optimization.overlap_com: no such key; did you mean "
        "overlap_comm?");
    expect_messages(
        "{\"stage3_max_live_parameters\": 1}", "",
        "ds.json: stage3_max_live_parameters: no such key; there is "
        "zero_optimization.stage3_max_live_parameters");
    expect_messages(
        "{\"aio\": {\"queue_dept\": 8}}", "",
        "ds.json: aio.queue_dept: no such key; did you mean queue_depth?");
    expect_messages("{\"optimizer.type\": \"Adam\"}", "",
                    "ds.json: optimizer.type: no such key");
    expect_messages(
        "{\"gradient_clipping\": 1, \"bf16\": {\"enabled\": true, "
        "\"enabled\": false}, \"gradient_clipping\": 2}",
        "",
        "run.ini:2: [train.zero3] deepspeed_config: ds.json: \"enabled\" "
        "occurs twice in one object");
}

static void invalid_values_are_refused(void **state)
{
    (void)state;
    expect_messages("{\"zero_optimization\": {\"stage\": \"3\"}}", "",
                    "ds.json: zero_optimization.stage: must be an integer or "
                    "\"auto\"");
    expect_messages("{\"zero_optimization\": true}", "",
                    "ds.json: zero_optimization: must be an object");
    expect_messages("{\"bf16\": {\"enabled\": 1}}", "",
                    "ds.json: bf16.enabled: must be true or false or \"auto\"");
    expect_messages(
        "{\"optimizer\": {\"type\": \"AdamW\", \"params\": "
        "{\"betas\": [0.9]}}}",
        "", "ds.json: optimizer.params.betas: must be an array of two numbers");
    expect_messages(
        "[1]", "",
        "run.ini:2: [train.zero3] deepspeed_config: ds.json: must be a JSON "
        "object");
    expect_messages(
        "{\"a\": }", "",
        "run.ini:2: [train.zero3] deepspeed_config: ds.json: column 7: "
        "expected a JSON value");
    /* Ranges are checked by the options. */
    reading r = { 0 };
    xr_run_config run;
    read_both(&r, "{\"gradient_clipping\": -1}", "");
    xr_run_decode(r.config, &run, &r.errors);
    expect_errors(&r.errors, "ds.json: gradient_clipping: [actor] grad_clip: "
                             "-1 is out of range; expected 0 to 1e+30");
    free_reading(&r);
}

static void unsupported_values_are_refused(void **state)
{
    (void)state;
    expect_messages(
        "{\"fp16\": {\"enabled\": true}}", "",
        "ds.json: fp16: is refused: float16 with loss scaling is not "
        "supported; expected it to be off");
    expect_messages(
        "{\"optimizer\": {\"type\": \"OneBitAdam\"}}", "",
        "ds.json: optimizer.type: 'OneBitAdam' is not supported; expected "
        "Adam or AdamW");
    expect_messages(
        "{\"optimizer\": {\"params\": {\"lr\": 1e-5}}}", "",
        "ds.json: optimizer.type: is missing, expected Adam or AdamW");
    expect_messages(
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
        "{\"adam_w_mode\": false, \"weight_decay\": 0.1}}}",
        "",
        "ds.json: optimizer.params.adam_w_mode: false puts weight_decay "
        "into the gradient, which is not supported; expected true, or "
        "weight_decay 0");
    expect_messages(
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
        "{\"amsgrad\": true}}}",
        "",
        "ds.json: optimizer.params.amsgrad: true is refused: AMSGrad is not "
        "supported; expected false");
    expect_messages(
        "{\"scheduler\": {\"type\": \"OneCycle\", \"params\": "
        "{\"warmup_type\": \"log\", \"warmup_min_lr\": 1, "
        "\"warmup_num_steps\": 2}}}",
        "",
        "ds.json: scheduler.type: 'OneCycle' is not supported; expected "
        "WarmupLR, WarmupDecayLR or WarmupCosineLR");
    expect_messages(
        "{\"scheduler\": {\"type\": \"warmupLR\"}}", "",
        "ds.json: scheduler.type: 'warmupLR' is not supported; expected "
        "WarmupLR, WarmupDecayLR or WarmupCosineLR");
    expect_messages(
        "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
        "{\"warmup_type\": \"log\"}}}",
        "",
        "ds.json: scheduler.params.warmup_type: 'log' is not supported; "
        "expected linear");
    expect_messages(
        "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
        "{\"total_num_steps\": 10}}}",
        "",
        "ds.json: scheduler.params.total_num_steps: WarmupLR has no such "
        "parameter; expected one of warmup_min_lr warmup_max_lr "
        "warmup_num_steps warmup_type last_batch_iteration");
    expect_messages(
        "{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": "
        "{\"warmup_min_ratio\": 0.01}}}",
        "",
        "ds.json: scheduler.params.warmup_min_ratio: 0.01 is refused: the "
        "warm-up starts from 0; expected 0");
    expect_messages(
        "{\"zero_optimization\": {\"offload_param\": "
        "{\"device\": \"nvme\"}}}",
        "",
        "ds.json: zero_optimization.offload_param.device: 'nvme' is not "
        "supported; expected cpu or none");
    expect_messages(
        "{\"curriculum_learning\": {\"enabled\": true}}", "",
        "ds.json: curriculum_learning: is refused: [data] determines the "
        "order of rows; expected it to be off");
    expect_messages(
        "{\"tensor_parallel\": {\"autotp_size\": 4}}", "",
        "ds.json: tensor_parallel.autotp_size: 4 is refused: this backend "
        "has no tensor parallelism; expected 1");
}

static void missing_file_is_named(void **state)
{
    reading r = { 0 };
    (void)state;
    read_both(&r, "{}", "");
    xr_config_free(r.config);
    (void)unlink("ds.json");
    r.config = xr_config_new();
    xr_config_read(r.config, "run.ini", &r.errors);
    xr_deepspeed_read(r.config, &ds_backend, 0, 1, &r.errors);
    expect_errors(&r.errors,
                  "run.ini:2: [train.zero3] deepspeed_config: ds.json: "
                  "cannot open: No such file or directory");
    free_reading(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(example_of_the_documentation_is_read),
        cmocka_unit_test(autos_keep_our_values),
        cmocka_unit_test(file_of_openrlhf_is_read),
        cmocka_unit_test(linear_schedule_decays),
        cmocka_unit_test(cosine_schedule_and_tools_are_read),
        cmocka_unit_test(supervised_tuning_has_its_own_sections),
        cmocka_unit_test(values_reach_the_run),
        cmocka_unit_test(command_line_overrides_the_file),
        cmocka_unit_test(resolved_ini_reads_back),
        cmocka_unit_test(equal_values_do_not_contradict),
        cmocka_unit_test(contradictions_with_the_ini_are_refused),
        cmocka_unit_test(inconsistent_batch_sizes_are_refused),
        cmocka_unit_test(unknown_keys_are_refused),
        cmocka_unit_test(invalid_values_are_refused),
        cmocka_unit_test(unsupported_values_are_refused),
        cmocka_unit_test(missing_file_is_named),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
