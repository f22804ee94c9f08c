/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves a DeepSpeed JSON key by key: bounds, conversions, notes and refusals,
 * one row per case.
 */
#include <stdlib.h>

#include <xray/host.h>

#include "core/deepspeed/deepspeed.h"
#include "tests/config/config_testing.h"
#include "tests/deepspeed/backend.h"

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorts the lines, because sections have no other order. */
static char *sort_lines(const char *text)
{
    char *lines[32];
    size_t count = 0;
    size_t size = 0;
    char *copy = strdup(text);
    size_t cap = strlen(text) + 2;
    char *out = calloc(1, cap);
    char *rest = NULL;
    assert_true(copy && out);
    for (char *line = strtok_r(copy, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest)) {
        assert_true(count < 32);
        lines[count++] = line;
    }
    if (count)
        qsort(lines, count, sizeof(*lines), compare_lines);
    for (size_t i = 0; i < count; i++)
        size += (size_t)snprintf(out + size, cap - size, "%s\n", lines[i]);
    free(copy);
    return out;
}

/* Compares the result of a JSON: errors, or the values it set and the notes. */
static void expect_in(const char *ini, int sft, uint32_t ranks,
                      const char *json, const char *want)
{
    xr_errors errors = { 0 };
    xr_str text = { 0 };
    xr_config_value v;
    size_t at[2] = { 0, 0 };
    xr_config *config = xr_config_new();
    assert_non_null(config);
    write_text("run.ini", ini);
    write_text("ds.json", json);
    xr_config_read(config, "run.ini", &errors);
    xr_deepspeed_read(config, &ds_backend, sft, ranks, &errors);
    for (size_t i = 0; i < errors.count; i++)
        xr_str_printf(&text, "%s\n", errors.items[i]);
    while (!errors.count && xr_config_next(config, at, &v))
        if (strncmp(v.origin, "ds.json: ", 9) == 0)
            xr_str_printf(&text, "%s.%s=%s by %s%s\n", v.section, v.key, v.text,
                          v.origin + 9, v.given ? "" : " not given");
    const xr_note *n = errors.count ? NULL : xr_config_notes(config);
    for (; n; n = n->next)
        xr_str_printf(&text, "%s %s\n",
                      n->level == XRAY_LOG_WARN   ? "warn"
                      : n->level == XRAY_LOG_INFO ? "info"
                                                  : "?",
                      n->text + 9);
    char *got = sort_lines(xr_str_text(&text));
    char *wanted = sort_lines(want);
    if (strcmp(got, wanted) != 0)
        fail_msg("%.200s\ngives\n%s\nnot\n%s", json, got, wanted);
    free(got);
    free(wanted);
    xr_str_free(&text);
    xr_errors_free(&errors);
    xr_config_free(config);
    (void)unlink("ds.json");
}

static const char plain[] =
    "[train.zero3]\ndeepspeed_config = ds.json\n[data]\n"
    "train_batch_size = 12\nmax_prompt_length = 60\nmax_response_length = 40\n"
    "[rollout]\nn = 4\n";

typedef struct row {
    const char *json;
    const char *want;
} row;

static void expect_rows(const row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_in(plain, 0, 1, rows[i].json, rows[i].want);
}
#define ROWS(rows) expect_rows(rows, sizeof(rows) / sizeof((rows)[0]))

#define ADAM "{\"optimizer\": {\"type\": \"Adam\", \"params\": "
#define SCHEDULE "{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "

/* ---- single keys -------------------------------------------------------- */

static void values_are_written_as_in_an_ini(void **state)
{
    static const row rows[] = {
        { "{\"gradient_clipping\": 1e20}",
          "actor.grad_clip=1e+20 by gradient_clipping\n" },
        { "{\"gradient_clipping\": 0.1}",
          "actor.grad_clip=0.1 by gradient_clipping\n" },
        { "{\"gradient_clipping\": 3.0}",
          "actor.grad_clip=3 by gradient_clipping\n" },
        { "{\"gradient_clipping\": \"auto\"}", "" },
        { "{\"gradient_clipping\": null}", "" },
        { "{\"zero_optimization\": {\"stage\": 1}}",
          "train.zero3.stage=1 by zero_optimization.stage\n" },
        { "{\"zero_optimization\": \"auto\"}",
          "ds.json: zero_optimization: must be an object\n" },
        { "{\"zero_optimization\": {\"stage\": 1.5}}",
          "ds.json: zero_optimization.stage: must be an integer or "
          "\"auto\"\n" },
        { "{\"zero_optimization\": {\"stage\": 9007199254740992}}",
          "ds.json: zero_optimization.stage: must be an integer or "
          "\"auto\"\n" },
        { "{\"optimizer\": {\"type\": 3}}",
          "ds.json: optimizer.type: must be a string or \"auto\"\n" },
        { ADAM "{\"betas\": 0.9}}}",
          "ds.json: optimizer.params.betas: must be an array\n" },
        { ADAM "{\"betas\": [0.9, \"x\"]}}}",
          "ds.json: optimizer.params.betas: must be an array of two "
          "numbers\n" },
        { ADAM "{\"betas\": [0.9, 0.8, 0.7]}}}",
          "ds.json: optimizer.params.betas: must be an array of two "
          "numbers\n" },
        { ADAM "{\"lr\": \"1\"}}}",
          "ds.json: optimizer.params.lr: must be a number or \"auto\"\n" },
    };
    (void)state;
    ROWS(rows);
}

static void idle_keys_are_noted(void **state)
{
    static const row rows[] = {
        /* Values that agree with this program's behaviour give no note. */
        { "{\"prescale_gradients\": false, \"gradient_predivide_factor\": 1, "
          "\"communication_data_type\": \"fp32\"}",
          "" },
        { "{\"communication_data_type\": \"float32\"}", "" },
        { "{\"communication_data_type\": \"float\"}",
          "info communication_data_type: no effect here: gradients are summed "
          "in float32; the loss divides by the mini-batch's counts\n" },
        { "{\"gradient_predivide_factor\": 2}",
          "info gradient_predivide_factor: no effect here: gradients are "
          "summed in float32; the loss divides by the mini-batch's counts\n" },
        { "{\"zero_optimization\": {\"zero_quantized_weights\": true}}",
          "warn zero_optimization.zero_quantized_weights: no effect here: "
          "values are sent uncompressed\n" },
        /* A part of DeepSpeed without a switch is enabled if it has any
         * member. */
        { "{\"aio\": {}}", "" },
        { "{\"aio\": {\"queue_depth\": 8}}",
          "info aio: no effect here: nothing is written to NVMe; offload uses "
          "host memory\n" },
        { "{\"flops_profiler\": {\"enabled\": false, \"profile_step\": 1}}",
          "" },
        { "{\"amp\": {}}", "" },
        { "{\"amp\": {\"opt_level\": \"O1\"}}",
          "ds.json: amp: is refused: float16 with loss scaling is not "
          "supported; "
          "expected it to be off\n" },
        { "{\"amp\": {\"enabled\": false, \"opt_level\": \"O1\"}}", "" },
        { "{\"fp16\": {\"enabled\": false, \"loss_scal\": 1}}",
          "ds.json: fp16.loss_scal: no such key; did you mean loss_scale?\n" },
        { "{\"fp16\": {\"nothing_like_it\": 1, \"enabled\": false}}",
          "ds.json: fp16.nothing_like_it: no such key\n" },
        { "{\"tensor_parallel\": {\"autotp_size\": 0}}", "" },
        { "{\"tensor_parallel\": {\"autotp_size\": 2}}",
          "ds.json: tensor_parallel.autotp_size: 2 is refused: this backend "
          "has no tensor parallelism; expected 1\n" },
        { "{\"data_types\": {\"grad_accum_dtype\": \"float32\"}}", "" },
    };
    (void)state;
    ROWS(rows);
}

static void similar_names_are_suggested(void **state)
{
    static const row rows[] = {
        { "{\"bf17\": {}}",
          "ds.json: bf17: no such key; did you mean bf16?\n" },
        { "{\"bx17\": {}}", "ds.json: bx17: no such key\n" },
        { "{\"stage\": 1}",
          "ds.json: stage: no such key; there is zero_optimization.stage\n" },
        { "{\"zero_optimization\": {\"stag\": 1}}",
          "ds.json: zero_optimization.stag: no such key; did you mean "
          "stage?\n" },
        { "{\"zero_optimization\": {\"st\": 1}}",
          "ds.json: zero_optimization.st: no such key\n" },
        { "{\"optimizer\": {\"stage\": 1, \"type\": \"Adam\"}}",
          "ds.json: optimizer.stage: no such key; there is "
          "zero_optimization.stage\n" },
        /* Members of what is not read: up to 2 typing errors, up to 1 in a
         * short name, and the first of equally similar ones. */
        { "{\"comms_logger\": {\"enbld\": true}}",
          "ds.json: comms_logger.enbld: no such key; did you mean enabled?\n" },
        { "{\"comms_logger\": {\"enabxyz\": true}}",
          "ds.json: comms_logger.enabxyz: no such key\n" },
        { "{\"comms_logger\": {\"debg\": true}}",
          "ds.json: comms_logger.debg: no such key; did you mean debug?\n" },
        { "{\"comms_logger\": {\"dbg\": true}}",
          "ds.json: comms_logger.dbg: no such key\n" },
        { "{\"comms_logger\": {\"prof_axs\": true}}",
          "ds.json: comms_logger.prof_axs: no such key; did you mean "
          "prof_all?\n" },
    };
    (void)state;
    ROWS(rows);
}

/* ---- the optimizer ------------------------------------------------------ */

static void optimizers_are_checked(void **state)
{
    static const row rows[] = {
        { "{\"optimizer\": {\"type\": \"ADAMW\"}}", "" },
        { "{\"optimizer\": {\"type\": \"auto\"}}", "" },
        { "{\"optimizer\": {\"type\": \"Adams\"}}",
          "ds.json: optimizer.type: 'Adams' is not supported; expected Adam or "
          "AdamW\n" },
        { ADAM "{\"adam_w_mode\": false, \"weight_decay\": 0}}}",
          "train.zero3.weight_decay=0 by optimizer.params.weight_decay\n" },
        { ADAM "{\"adam_w_mode\": false}}}",
          "ds.json: optimizer.params.adam_w_mode: false puts weight_decay into "
          "the gradient, which is not supported; expected true, or "
          "weight_decay "
          "0\n" },
        { ADAM "{\"adam_w_mode\": true, \"weight_decay\": 0.5}}}",
          "train.zero3.weight_decay=0.5 by optimizer.params.weight_decay\n" },
        /* AdamW has no such switch. */
        { "{\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"adam_w_mode\": "
          "false, \"weight_decay\": 0.5}}}",
          "train.zero3.weight_decay=0.5 by optimizer.params.weight_decay\n" },
        { ADAM "{\"betas\": [0.5, 0.25], \"eps\": 1e-8}}}",
          "train.zero3.eps=1e-08 by optimizer.params.eps\n"
          "train.zero3.beta1=0.5 by optimizer.params.betas\n"
          "train.zero3.beta2=0.25 by optimizer.params.betas\n" },
        { ADAM "{\"bias_correction\": false}}}",
          "ds.json: optimizer.params.bias_correction: false is refused: "
          "Adam's moments are always bias-corrected; expected true\n" },
    };
    (void)state;
    ROWS(rows);
}

/* ---- the schedule ------------------------------------------------------- */

static void schedules_are_converted(void **state)
{
    static const row rows[] = {
        { "{\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
          "{\"warmup_num_steps\": 0, \"total_num_steps\": 9}}}",
          "actor.optim.lr_scheduler_type=linear by scheduler.type\n"
          "actor.optim.min_lr_ratio=0 by scheduler.type\n"
          "actor.optim.lr_warmup_steps=0 by scheduler.params.warmup_num_steps\n"
          "trainer.total_training_steps=9 by "
          "scheduler.params.total_num_steps\n" },
        { "{\"scheduler\": {\"type\": \"auto\", \"params\": "
          "{\"warmup_max_lr\": 0.5, \"cos_min_ratio\": 0.25}}}",
          "actor.optim.lr=0.5 by scheduler.params.warmup_max_lr\n"
          "actor.optim.min_lr_ratio=0.25 by scheduler.params.cos_min_ratio\n" },
        { SCHEDULE "{\"warmup_num_steps\": 3}}}",
          "actor.optim.lr_scheduler_type=constant by scheduler.type\n"
          "actor.optim.lr_warmup_steps=3 by scheduler.params.warmup_num_steps\n"
          "warn scheduler.params.warmup_type: no effect here: it is missing, "
          "which is \"log\" in DeepSpeed; the warm-up is linear\n" },
        { SCHEDULE "{\"warmup_num_steps\": 3, \"warmup_type\": \"auto\"}}}",
          "actor.optim.lr_scheduler_type=constant by scheduler.type\n"
          "actor.optim.lr_warmup_steps=3 by "
          "scheduler.params.warmup_num_steps\n" },
        { SCHEDULE "{\"warmup_num_steps\": 3, \"warmup_type\": \"Linear\"}}}",
          "ds.json: scheduler.params.warmup_type: 'Linear' is not supported; "
          "expected linear\n" },
        { SCHEDULE "{\"warmup_num_steps\": -1}}}",
          "ds.json: scheduler.params.warmup_num_steps: -1 is not a number of "
          "steps\n" },
        { SCHEDULE "{\"warmup_num_steps\": 68719476737}}}",
          "ds.json: scheduler.params.warmup_num_steps: 68719476737 is not a "
          "number of steps\n" },
        { SCHEDULE "{\"warmup_min_lr\": 0.5}}}",
          "ds.json: scheduler.params.warmup_min_lr: 0.5 is refused: the "
          "warm-up starts from 0; expected 0\n" },
        { SCHEDULE "{\"warmup_min_lr\": 0, \"last_batch_iteration\": -1}}}",
          "actor.optim.lr_scheduler_type=constant by scheduler.type\n" },
        { SCHEDULE "{\"cos_min_ratio\": 0}}}",
          "ds.json: scheduler.params.cos_min_ratio: WarmupLR has no such "
          "parameter; expected one of warmup_min_lr warmup_max_lr "
          "warmup_num_steps warmup_type last_batch_iteration\n" },
    };
    (void)state;
    ROWS(rows);
}

/* Updates per step of the run: epochs x mini-batches. */
static void steps_are_divided_by_updates(void **state)
{
    (void)state;
    static const char json[] = SCHEDULE "{\"warmup_num_steps\": 12, "
                                        "\"warmup_type\": \"linear\"}}}";
    static const struct {
        const char *actor;
        const char *want;
    } cases[] = {
        { "", "12" },
        { "[actor]\nppo_epochs = 3\n", "4" },
        { "[actor]\nppo_mini_batch_size = 6\n", "6" },
        { "[actor]\nppo_mini_batch_size = 6\nppo_epochs = 2\n", "3" },
        { "[actor]\nppo_mini_batch_size = 24\n", "12" },
        { "[actor]\nppo_mini_batch_size = nonsense\n", "12" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char ini[512];
        char want[256];
        (void)snprintf(ini, sizeof(ini), "%s%s", plain, cases[i].actor);
        (void)snprintf(want, sizeof(want),
                       "actor.optim.lr_scheduler_type=constant by "
                       "scheduler.type\n"
                       "actor.optim.lr_warmup_steps=%s by "
                       "scheduler.params.warmup_num_steps\n",
                       cases[i].want);
        expect_in(ini, 0, 1, json, want);
    }
    /* For xray sft, an update is a step, whatever [actor] sets. */
    char ini[512];
    (void)snprintf(ini, sizeof(ini), "%s[actor]\nppo_mini_batch_size = 6\n",
                   plain);
    expect_in(ini, 1, 1,
              "{\"scheduler\": {\"type\": \"WarmupCosineLR\", \"params\": "
              "{\"warmup_num_steps\": 5, \"total_num_steps\": 7, "
              "\"warmup_type\": \"linear\"}}}",
              "sft.optim.lr_scheduler_type=cosine by scheduler.type\n"
              "sft.optim.lr_warmup_steps=5 by "
              "scheduler.params.warmup_num_steps\n"
              "sft.total_steps=7 by scheduler.params.total_num_steps\n");
}

/* ---- the batch ---------------------------------------------------------- */

#define ALL "\"train_batch_size\": "
#define MICRO "\"train_micro_batch_size_per_gpu\": "
#define STEPS "\"gradient_accumulation_steps\": "
#define CUT                                                                    \
    "info gradient_accumulation_steps: no effect here: micro-batches are cut " \
    "by their tokens, so their number follows\n"

static void batches_are_converted(void **state)
{
    static const row rows[] = {
        { "{" MICRO "4}",
          "actor.ppo_mini_batch_size=1 by train_micro_batch_size_per_gpu\n"
          "actor.ppo_max_token_len_per_gpu=400 by "
          "train_micro_batch_size_per_gpu\n" },
        { "{" MICRO "4, " ALL "\"auto\"}",
          "actor.ppo_max_token_len_per_gpu=400 by "
          "train_micro_batch_size_per_gpu\n" },
        { "{" MICRO "4, " STEPS "3, " ALL "\"auto\"}",
          "actor.ppo_mini_batch_size=3 by train_micro_batch_size_per_gpu\n"
          "actor.ppo_max_token_len_per_gpu=400 by "
          "train_micro_batch_size_per_gpu\n" CUT },
        { "{" STEPS "3}", CUT },
        { "{" STEPS "3, " ALL "24}",
          "actor.ppo_mini_batch_size=6 by train_batch_size\n" CUT },
        { "{" STEPS "5, " ALL "24}",
          "ds.json: train_batch_size: 24 is not a multiple of "
          "gradient_accumulation_steps 5 x 1 ranks\n" },
        { "{" STEPS "0}", "ds.json: gradient_accumulation_steps: 0 is out of "
                          "range; expected 1 or more\n" },
        { "{" MICRO "67108865}", "ds.json: train_micro_batch_size_per_gpu: is "
                                 "out of range; expected at most 67108864\n" },
        { "{" STEPS "67108865}", "ds.json: gradient_accumulation_steps: is out "
                                 "of range; expected at most 67108864\n" },
        { "{" STEPS "67108864}", CUT },
        { "{" ALL "68719476736}", "actor.ppo_mini_batch_size=17179869184 by "
                                  "train_batch_size\n" },
        { "{" ALL "68719476737}", "ds.json: train_batch_size: 68719476737 is "
                                  "out of range; expected 1 or more\n" },
    };
    (void)state;
    ROWS(rows);
    expect_in(plain, 0, 3, "{" MICRO "4}",
              "actor.ppo_mini_batch_size=3 by train_micro_batch_size_per_gpu\n"
              "actor.ppo_max_token_len_per_gpu=400 by "
              "train_micro_batch_size_per_gpu\n");
    expect_in(plain, 1, 2, "{" MICRO "4, " STEPS "5}",
              "sft.train_batch_size=40 by train_micro_batch_size_per_gpu\n"
              "sft.max_token_len=400 by "
              "train_micro_batch_size_per_gpu\n" CUT);
    /* No rank is one. */
    expect_in(plain, 1, 0, "{" ALL "7}",
              "sft.train_batch_size=7 by train_batch_size\n");
}

/* Keys that the INI does not set have their defaults: 512 + 512 tokens, groups
 * of 1. */
static void defaults_replace_missing_settings(void **state)
{
    (void)state;
    expect_in("[train.zero3]\ndeepspeed_config = ds.json\n", 0, 1,
              "{" ALL "8, " MICRO "2}",
              "actor.ppo_mini_batch_size=8 by train_batch_size\n"
              "actor.ppo_max_token_len_per_gpu=2048 by "
              "train_micro_batch_size_per_gpu\n");
    expect_in("[train.zero3]\ndeepspeed_config = ds.json\n"
              "[actor]\nppo_mini_batch_size = 0\n",
              0, 1, "{" ALL "1024}", "");
    expect_in("[train.zero3]\ndeepspeed_config = ds.json\n"
              "[actor]\nppo_max_token_len_per_gpu = 2048\n",
              0, 1, "{" MICRO "2, " ALL "\"auto\"}", "");
}

/* ---- precision and offload ---------------------------------------------- */

static void precision_becomes_dtype(void **state)
{
    (void)state;
    expect_in(plain, 0, 1, "{\"bf16\": {\"enabled\": true}}",
              "model.dtype=bfloat16 by bf16.enabled\n");
    expect_in(plain, 0, 1, "{\"bf16\": {\"enabled\": false}}",
              "model.dtype=float32 by bf16.enabled\n");
    expect_in(plain, 0, 1, "{\"bfloat16\": {\"enabled\": true}}",
              "model.dtype=bfloat16 by bfloat16.enabled\n");
}

#define ZERO "{\"zero_optimization\": "

static void offload_becomes_host_memory(void **state)
{
    static const row rows[] = {
        { ZERO "{\"cpu_offload\": false, \"cpu_offload_params\": true}}",
          "train.zero3.offload_optimizer=none by "
          "zero_optimization.cpu_offload\n"
          "train.zero3.offload_param=host by "
          "zero_optimization.cpu_offload_params\n" },
        { ZERO "{\"offload_optimizer\": {\"device\": \"none\"}, "
               "\"offload_param\": {\"device\": \"cpu\"}}}",
          "train.zero3.offload_optimizer=none by "
          "zero_optimization.offload_optimizer.device\n"
          "train.zero3.offload_param=host by "
          "zero_optimization.offload_param.device\n" },
        { ZERO "{\"offload_optimizer\": {\"device\": \"cpu\"}, "
               "\"cpu_offload\": false}}",
          "ds.json: zero_optimization.offload_optimizer.device: host "
          "contradicts [train.zero3] offload_optimizer = none, set by ds.json: "
          "zero_optimization.cpu_offload; leave one of them out\n" },
        { ZERO "{\"offload_optimizer\": {\"device\": \"gpu\"}}}",
          "ds.json: zero_optimization.offload_optimizer.device: 'gpu' is not "
          "supported; expected cpu or none\n" },
        { ZERO "{\"offload_optimizer\": {\"ratio\": 1}}}", "" },
        { ZERO "{\"offload_optimizer\": {\"ratio\": 0.5}}}",
          "warn zero_optimization.offload_optimizer.ratio: no effect here: "
          "either all of the optimizer's state is offloaded or none of it\n" },
    };
    (void)state;
    ROWS(rows);
}

/* ---- the file ----------------------------------------------------------- */

/* Numbers are equal by value, booleans by meaning. */
static void equal_values_agree(void **state)
{
    (void)state;
    expect_in("[train.zero3]\ndeepspeed_config = ds.json\nstage = 2.0\n"
              "offload_param = host\n[actor]\ngrad_clip = 1e0\n",
              0, 1,
              "{\"gradient_clipping\": 1, \"zero_optimization\": {\"stage\": "
              "2, \"cpu_offload_params\": true}}",
              "");
    expect_in("[train.zero3]\ndeepspeed_config = ds.json\nstage = 3\n", 0, 1,
              ZERO "{\"stage\": 2}}",
              "ds.json: zero_optimization.stage: 2 contradicts [train.zero3] "
              "stage = 3, set by run.ini:3; leave one of them out\n");
}

static void sizes_are_bounded(void **state)
{
    (void)state;
    for (int count = 1000; count <= 1001; count++) {
        xr_str json = { 0 };
        xr_str_puts(&json, "{\"hybrid_engine\": {\"a\": [0, {");
        for (int i = 0; i < count; i++)
            xr_str_printf(&json, "%s\"k%d\": 1", i ? ", " : "", i);
        xr_str_puts(&json, "}]}}");
        expect_in(plain, 0, 1, xr_str_text(&json),
                  count == 1000
                      ? "info hybrid_engine: no effect here: rollouts have an "
                        "engine of their own\n"
                      : "ds.json: hybrid_engine.a[1]: has more than 1000 "
                        "members\n");
        xr_str_clear(&json);
        xr_str_puts(&json, "{\"steps_per_print\": 1");
        for (int i = 1; i <= count; i++)
            xr_str_printf(&json, ", \"k%d\": 1", i);
        xr_str_puts(&json, "}");
        if (count == 1001)
            expect_in(plain, 0, 1, xr_str_text(&json),
                      "ds.json: the file: has more than 1000 members\n");
        xr_str_free(&json);
    }
    xr_str json = { 0 };
    xr_str_printf(&json, "{}%1048575s", "");
    expect_in(plain, 0, 1, xr_str_text(&json),
              "run.ini:2: [train.zero3] deepspeed_config: ds.json: the file "
              "is larger than the limit of 1048576 bytes\n");
    json.data[json.size - 1] = '\0';
    expect_in(plain, 0, 1, xr_str_text(&json), "");
    xr_str_free(&json);
}

/* A size from the command line holds, whatever groups the file implies. */
static void command_line_sizes_are_used(void **state)
{
    (void)state;
    xr_errors errors = { 0 };
    xr_config *config = xr_config_new();
    write_text("run.ini", plain);
    write_text("ds.json", "{" ALL "14}");
    xr_config_read(config, "run.ini", &errors);
    xr_config_set(config, "actor.ppo_mini_batch_size=3", &errors);
    xr_deepspeed_read(config, &ds_backend, 0, 1, &errors);
    expect_errors(&errors, "");
    assert_string_equal(xr_config_get(config, "actor", "ppo_mini_batch_size"),
                        "3");
    xr_config_free(config);
    (void)unlink("ds.json");
}

/* The environment may name the file and overrides it. */
static void environment_variables_are_used(void **state)
{
    static char file[] = "XRAY_TRAIN_ZERO3__DEEPSPEED_CONFIG=ds.json";
    static char clip[] = "XRAY_ACTOR__GRAD_CLIP=5";
    static char *environment[][4] = { { file, NULL }, { file, clip, NULL } };
    static const char *const wants[] = { "0.5", "5" };
    (void)state;
    write_text("ds.json", "{\"gradient_clipping\": 0.5}");
    for (size_t i = 0; i < 2; i++) {
        xr_errors errors = { 0 };
        xr_config *config = xr_config_new();
        xr_config_environment(config, environment[i], &errors);
        xr_deepspeed_read(config, &ds_backend, 0, 1, &errors);
        expect_errors(&errors, "");
        const char *have = xr_config_get(config, "actor", "grad_clip");
        assert_non_null(have);
        assert_string_equal(have, wants[i]);
        xr_config_free(config);
    }
    (void)unlink("ds.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_are_written_as_in_an_ini),
        cmocka_unit_test(idle_keys_are_noted),
        cmocka_unit_test(similar_names_are_suggested),
        cmocka_unit_test(optimizers_are_checked),
        cmocka_unit_test(schedules_are_converted),
        cmocka_unit_test(steps_are_divided_by_updates),
        cmocka_unit_test(batches_are_converted),
        cmocka_unit_test(defaults_replace_missing_settings),
        cmocka_unit_test(precision_becomes_dtype),
        cmocka_unit_test(offload_becomes_host_memory),
        cmocka_unit_test(equal_values_agree),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(command_line_sizes_are_used),
        cmocka_unit_test(environment_variables_are_used),
    };
    return cmocka_run_group_tests(tests, enter_folder, leave_folder);
}
