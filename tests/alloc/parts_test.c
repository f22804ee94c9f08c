/* SPDX-License-Identifier: Apache-2.0
 *
 * Every reader and writer of core and model survives the failure of each of its
 * allocations.
 */
#include <math.h>

#include "core/config/sections.h"
#include "core/data/data.h"
#include "core/deepspeed/deepspeed.h"
#include "core/monitor/monitor.h"
#include "core/plugin/plugin.h"
#include "core/rl/checkpoint.h"
#include "core/roles/rewards.h"
#include "core/roles/roles.h"
#include "model/hf/safetensors.h"
#include "model/nn/layout.h"
#include "model/serve/blocks.h"
#include "model/serve/sched.h"
#include "tests/alloc/failing.h"
#include "tests/deepspeed/backend.h"
#include "tests/scratch.h"

#define CORPUS "tests/fuzz/corpus/"

/* A seed of the fuzzers, up to its first NUL, as a file of the scratch folder.
 */
static const char *copy_fuzz_seed(const char *from, const char *to)
{
    char path[XR_PATH_CAP];
    char *data;
    size_t size;
    xr_err err = { "" };
    const char *source = getenv("XRAY_SOURCE");
    (void)snprintf(path, sizeof(path), "%s/" CORPUS "%s", source ? source : ".",
                   from);
    if (xr_file_read(path, 1u << 20, &err, &data, &size))
        fail_msg("%s", err.text);
    const char *out = scratch_write(to, data);
    free(data);
    return out;
}

/* ---- configuration ------------------------------------------------------- */

static xray_status try_ini(void *path, xr_err *err)
{
    xr_run_config run = { 0 };
    xr_reward_section reward;
    xr_errors errors = { 0 };
    xr_str out = { 0 };
    xray_status status = XRAY_OK;
    xr_config *config = xr_config_new();
    if (!config)
        return xr_fail(err, XRAY_E_NOMEM, "no configuration");
    xr_config_read(config, path, &errors);
    xr_config_set(config, "run.seed=3", &errors);
    xr_deepspeed_read(config, &ds_backend, 0, 1, &errors);
    xr_config_ignore(config, "train.zero3");
    xr_run_decode(config, &run, &errors);
    xr_run_reward(config, "a", &reward, &errors);
    xr_run_reward(config, "b", &reward, &errors);
    xr_config_finish(config, &errors);
    xr_config_print(config, 1, &out);
    for (size_t i = 0; i < errors.count && status == XRAY_OK; i++)
        if (strstr(errors.items[i], "emory"))
            status = xr_fail(err, XRAY_E_NOMEM, "%s", errors.items[i]);
    if (status == XRAY_OK && errors.count)
        status = xr_fail(err, XRAY_E_BUG, "%s", errors.items[0]);
    if (status == XRAY_OK && out.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "no text");
    xr_str_free(&out);
    xr_errors_free(&errors);
    xr_config_free(config);
    return status;
}

static void ini_survives(void **state)
{
    char path[256];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s",
                   scratch_write("run.ini", "[run]\nreward = a, b\n[model]\n"
                                            "path = \"x y\"\n[data]\n"
                                            "train_files = a.jsonl, b.jsonl\n"
                                            "[reward.a]\nweight = 0.5\n"
                                            "[reward.b]\nplugin = rule\n"));
    failing_sweep("ini", try_ini, path, 0);
}

static void deepspeed_survives(void **state)
{
    char path[256];
    char text[512];
    (void)state;
    (void)snprintf(
        text, sizeof(text),
        "[run]\nreward = a, b\n[reward.a]\n[reward.b]\n"
        "[train.zero3]\ndeepspeed_config = %s\n",
        scratch_write("ds.json",
                      "{\"train_batch_size\": 8, \"bf16\": {\"enabled\": true},"
                      "\"optimizer\": {\"type\": \"Adam\", \"params\": "
                      "{\"lr\": 1e-4, \"betas\": [0.8, 0.95]}},"
                      "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
                      "{\"warmup_max_lr\": 1e-4}},"
                      "\"zero_optimization\": {\"stage\": 2, "
                      "\"overlap_comm\": true}}"));
    (void)snprintf(path, sizeof(path), "%s", scratch_write("run.ini", text));
    failing_sweep("a DeepSpeed JSON", try_ini, path, 0);
}

/* ---- plugins ------------------------------------------------------------- */

enum { PLUGINS = 19 };

/* A list that lacks entries is a fault, whatever the status is. */
static xray_status try_plugins(void *dir, xr_err *err)
{
    xr_plugins *plugins = NULL;
    xray_status status = xr_plugins_open(dir, err, &plugins);
    if (status != XRAY_OK)
        return status;
    size_t count = xr_plugins_count(plugins);
    for (size_t i = 0; i < count; i++)
        if (!strstr(xr_plugins_at(plugins, i)->refused, "is not a 64-bit ELF"))
            fail_msg("%s", xr_plugins_at(plugins, i)->refused);
    xr_plugins_close(plugins);
    if (count != PLUGINS)
        fail_msg("%zu of %d files are listed, and no error", count, PLUGINS);
    return XRAY_OK;
}

static void plugins_survive(void **state)
{
    char dir[256];
    char name[32];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    for (int i = 0; i < PLUGINS; i++) {
        (void)snprintf(name, sizeof(name), "p%d.so", i);
        (void)scratch_write(name, "no plugin");
    }
    failing_folders(1);
    failing_sweep("a folder of plugins", try_plugins, dir, 0);
    failing_folders(0);
}

/* ---- model files --------------------------------------------------------- */

static xray_status try_config(void *dir, xr_err *err)
{
    static xm_config config;
    xm_layout *layout = NULL;
    char *text = NULL;
    xray_status status = xm_config_read(dir, err, &config, &text);
    if (status == XRAY_OK)
        status = xm_layout_create(&config, 1, err, &layout);
    xm_layout_destroy(layout);
    free(text);
    return status;
}

static void model_config_survives(void **state)
{
    char dir[256];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    (void)copy_fuzz_seed("config/llama3", "config.json");
    failing_sweep("config.json, Llama", try_config, dir, 0);
    (void)copy_fuzz_seed("config/gemma3", "config.json");
    failing_sweep("config.json, Gemma 3", try_config, dir, 0);
    (void)copy_fuzz_seed("config/gpt2", "config.json");
    failing_sweep("config.json, GPT-2", try_config, dir, 0);
}

static xray_status give_tensor(void *ctx, size_t i, xr_err *err,
                               const void **out)
{
    static const float data[6] = { 1, 2, 3, 4, 5, 6 };
    (void)ctx;
    (void)i;
    (void)err;
    *out = data;
    return XRAY_OK;
}

static const xm_st_item items[] = {
    { .name = "a", .dtype = XM_ST_F32, .dims = 2, .shape = { 2, 3 } },
    { .name = "b", .dtype = XM_ST_F32, .dims = 1, .shape = { 6 } },
    { .name = "c", .dtype = XM_ST_F32, .dims = 1, .shape = { 6 } },
};

static xray_status try_write(void *dir, xr_err *err)
{
    const xm_st_feed feed = { .data = give_tensor };
    return xm_st_write_model(dir, items, 3, 24, &feed, err);
}

static xray_status try_read(void *dir, xr_err *err)
{
    float values[6];
    xm_st *st = NULL;
    xray_status status = xm_st_open(dir, err, &st);
    for (size_t i = 0; status == XRAY_OK && i < xm_st_count(st); i++)
        status = xm_st_read_f32(xm_st_at(st, i), 0, 6, values, err);
    xm_st_close(st);
    return status;
}

static void safetensors_survive(void **state)
{
    char dir[256];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    failing_sweep("safetensors, writing shards", try_write, dir, 0);
    failing_sweep("safetensors, reading shards", try_read, dir, 0);
}

/* ---- text ---------------------------------------------------------------- */

static xray_status use_tokenizer(const xm_tokenizer *tok, xr_err *err)
{
    static const char text[] =
        "Hello, w\xC3\xB6rld <s> it's 1234\n \xE2\x96\x81x";
    xm_ids ids = { 0 };
    xm_ids plain = { 0 };
    xm_token_spans spans = { 0 };
    xr_str out = { 0 };
    xm_stream *stream = NULL;
    xray_status status = xm_tokenizer_encode_spans(tok, text, sizeof(text) - 1,
                                                   1, &ids, &spans, err);
    if (status == XRAY_OK)
        status =
            xm_tokenizer_encode(tok, text, sizeof(text) - 1, 0, &plain, err);
    if (status == XRAY_OK)
        status = xm_tokenizer_decode(tok, ids.data, ids.count, 0, &out, err);
    if (status == XRAY_OK)
        status = xm_stream_open(tok, 0, err, &stream);
    for (size_t i = 0; status == XRAY_OK && i < ids.count; i++)
        status = xm_stream_push(stream, ids.data[i], &out, err);
    if (status == XRAY_OK)
        status = xm_stream_end(stream, &out, err);
    xm_stream_close(stream);
    xr_str_free(&out);
    xm_token_spans_free(&spans);
    xm_ids_free(&plain);
    xm_ids_free(&ids);
    return status;
}

static xray_status try_tokenizer(void *dir, xr_err *err)
{
    xm_tokenizer *tok = NULL;
    xray_status status = xm_tokenizer_open(dir, err, &tok);
    if (status == XRAY_OK)
        status = use_tokenizer(tok, err);
    xm_tokenizer_close(tok);
    return status;
}

static void tokenizer_survives(void **state)
{
    static const char *const names[] = { "gpt2", "qwen2", "llama2_spm", "chars",
                                         "regex" };
    char dir[256];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char from[64];
        (void)snprintf(from, sizeof(from), "tokenizer/%s", names[i]);
        (void)copy_fuzz_seed(from, "tokenizer.json");
        failing_sweep(names[i], try_tokenizer, dir, 120);
    }
}

/* ---- data ---------------------------------------------------------------- */

typedef struct rows_case {
    const xr_data_section *section;
    xr_data_want want;
} rows_case;

static xray_status try_rows(void *ctx, xr_err *err)
{
    const rows_case *c = ctx;
    xr_dataset *set = NULL;
    xr_sampler sampler = { 0 };
    size_t shares = 0;
    xray_status status = xr_dataset_open(c->section, &c->want, err, &set);
    if (status == XRAY_OK) {
        const xr_share *parts = xr_dataset_shares(set, &shares);
        status = xr_sampler_init(&sampler, parts, shares, 1, 1, err);
    }
    if (status == XRAY_OK)
        (void)xr_sampler_next(&sampler);
    xr_sampler_free(&sampler);
    xr_dataset_close(set);
    return status;
}

static xm_chat *open_chat(const char *text)
{
    xr_err err = { "" };
    xm_chat *chat = NULL;
    if (xm_chat_compile(text, strlen(text), "template", &err, &chat))
        fail_msg("%s", err.text);
    return chat;
}

static void rows_survive(void **state)
{
    xr_err err = { "" };
    xm_tokenizer *tok = NULL;
    xr_run_config run = { 0 };
    xr_errors errors = { 0 };
    xr_config *settings = xr_config_new();
    char files[280];
    (void)state;
    (void)copy_fuzz_seed("tokenizer/chars", "tokenizer.json");
    (void)scratch_write("tokenizer_config.json", "{\"eos_token\":\"<e>\"}");
    if (xm_tokenizer_open(scratch_dir(), &err, &tok))
        fail_msg("%s", err.text);
    (void)snprintf(
        files, sizeof(files), "data.train_files=%s",
        scratch_write("rows.jsonl",
                      "{\"prompt\":\"a b\",\"answer\":\"c\"}\n"
                      "{\"prompt\":[{\"role\":\"user\",\"content\":\"x\"}],"
                      "\"answer\":2.5,\"data_source\":\"s\"}\n"));
    xr_config_set(settings, files, &errors);
    xr_config_set(settings, "data.template={prompt} {answer}", &errors);
    xr_run_decode(settings, &run, &errors);
    rows_case c = {
        &run.data,
        { .part = XR_DATA_TRAIN, .kind = XR_DATA_PROMPTS, .tokenizer = tok }
    };
    failing_sweep("rows of prompts", try_rows, &c, 0);
    c.want.kind = XR_DATA_SFT;
    failing_sweep("rows of pairs", try_rows, &c, 0);
    xm_chat *chat =
        open_chat("{% for m in messages %}{{ m.role }} {{ m.content "
                  "}} {% endfor %}");
    c.want.chat = chat;
    c.want.kind = XR_DATA_PROMPTS;
    run.data.template = "{prompt}";
    failing_sweep("rows through a chat template", try_rows, &c, 0);
    xm_chat_close(chat);
    xm_tokenizer_close(tok);
    xr_errors_free(&errors);
    xr_config_free(settings);
}

/* ---- chat templates ------------------------------------------------------ */

typedef struct chat_case {
    char *source;
    size_t size;
    cJSON *messages;
} chat_case;

static xray_status try_chat(void *ctx, xr_err *err)
{
    const chat_case *c = ctx;
    xm_chat_text out = { 0 };
    xm_chat *chat = NULL;
    xm_chat_call call = { .messages = c->messages, .add_generation_prompt = 1 };
    xray_status status =
        xm_chat_compile(c->source, c->size, "template", err, &chat);
    if (status == XRAY_OK)
        status = xm_chat_render(chat, &call, "row", err, &out);
    xm_chat_text_free(&out);
    xm_chat_close(chat);
    return status;
}

static void chat_survives(void **state)
{
    static const char json[] =
        "[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"user\","
        "\"content\":\"1 < 2?\"},{\"role\":\"assistant\",\"content\":\"a\"}]";
    chat_case c = { 0 };
    xr_err err = { "" };
    (void)state;
    if (xr_file_read(copy_fuzz_seed("chat/chatml", "template"), 1u << 20, &err,
                     &c.source, &c.size) ||
        xr_json_parse(json, sizeof(json) - 1, "messages", &err, &c.messages))
        fail_msg("%s", err.text);
    failing_sweep("a chat template", try_chat, &c, 0);
    free(c.source);
    cJSON_Delete(c.messages);
}

/* ---- metrics and state --------------------------------------------------- */

static xray_status try_metrics(void *path, xr_err *err)
{
    static const char *const watch[] = { "m/0", NULL };
    static const float values[] = { 1, 2, 3 };
    static const double curve[] = { 1, 2, 3, 2, 1 };
    xr_monitor *monitor = NULL;
    xr_str plot = { 0 };
    xray_status status = XRAY_OK;
    xr_metrics *metrics = xr_metrics_new();
    if (!metrics)
        return xr_fail(err, XRAY_E_NOMEM, "no metrics");
    status = xr_monitor_open(path, -1, 0, watch, err, &monitor);
    for (int i = 0; i < 80; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "m/%d", i);
        xr_metrics_put(metrics, name, i);
    }
    xr_metrics_stats(metrics, "s", values, 3);
    if (status == XRAY_OK)
        status = xr_monitor_step(monitor, 1, 2, metrics, err);
    xr_monitor_close(monitor);
    xr_metrics_free(metrics);
    xr_plot(curve, 5, 30, 6, "curve", &plot);
    if (status == XRAY_OK && plot.failed)
        status = xr_fail(err, XRAY_E_NOMEM, "no plot");
    xr_str_free(&plot);
    return status;
}

static void metrics_survive(void **state)
{
    char path[256];
    (void)state;
    (void)snprintf(path, sizeof(path), "%s", scratch_path("metrics.jsonl"));
    failing_sweep("metrics", try_metrics, path, 0);
}

static xray_status try_progress(void *dir, xr_err *err)
{
    xr_progress expect = { .kind = "train", .seed = 11, .rows = 400 };
    xr_progress got;
    char path[XR_PATH_CAP];
    static xr_run run;
    run.ini.trainer.default_local_dir = dir;
    run.ini.trainer.resume_mode = "auto";
    run.ini.trainer.resume_from_path = "";
    xray_status status = xr_checkpoint_find(&run, path, err);
    if (status == XRAY_OK)
        status = xr_checkpoint_read(dir, &expect, &got, err);
    return status;
}

static void progress_survives(void **state)
{
    char dir[256];
    (void)state;
    (void)snprintf(dir, sizeof(dir), "%s", scratch_dir());
    (void)copy_fuzz_seed("checkpoint/state", "state.json");
    (void)scratch_write("latest_checkpointed_iteration.txt", "6\n");
    failing_sweep("state.json", try_progress, dir, 0);
}

/* ---- the scheduler ------------------------------------------------------- */

/* Tokens of a step. Every round computes all rows again, so the longest row
 * must fit. */
#define SCHED_TOKENS 24u

static void run_sched_round(xm_sched *sched)
{
    enum { TOKENS = SCHED_TOKENS, SLOTS = 3 };
    int32_t ids[TOKENS];
    int32_t seq[TOKENS];
    int32_t positions[TOKENS];
    int32_t last[SLOTS];
    int32_t index[SLOTS];
    xray_draw draws[SLOTS];
    int in_order;
    xm_sched_step round = {
        .ids = ids, .seq = seq, .positions = positions, .last = last
    };
    const int32_t token[SLOTS] = { 4, 5, 6 };
    const float logp[SLOTS] = { -1, -1, -1 };
    xm_sched_begin(sched, &round);
    while (xm_sched_draws(sched, SLOTS, draws, index, &in_order))
        xm_sched_results(sched, token, logp, logp);
    xm_sched_end(sched);
}

/* `ctx`: the table of a paged cache, or NULL. */
static xray_status try_sched(void *ctx, xr_err *err)
{
    static const int32_t prompt[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10 };
    static const int32_t stop[] = { 9 };
    xm_sched_limits limits = {
        .slots = 3,
        .step_tokens = SCHED_TOKENS,
        .request = { .vocab = 20, .row_bound = 40 },
        .paging = { .table = ctx, .stride = 10, .blocks = { 11, 4, 1 } }
    };
    xray_sample_out out = { .header = XRAY_HEADER(xray_sample_out) };
    xm_sched *sched = NULL;
    xray_status status = xm_sched_create(&limits, err, &sched);
    for (uint64_t id = 1; status == XRAY_OK && id <= 12; id++) {
        xray_request request = { .header = XRAY_HEADER(xray_request) };
        request.id = id;
        request.ids = prompt;
        request.id_count = (uint32_t)(id % 3 + 1) * 3;
        request.count = (uint32_t)(id % 2 + 1);
        request.max_tokens = (uint32_t)id;
        request.temperature = 1;
        request.top_p = 1;
        request.stop_ids = stop;
        request.stop_count = 1;
        status = xm_sched_submit(sched, &request, err);
    }
    /* Each round has new weights, so that samples get more and more spans. */
    for (uint64_t version = 1; status == XRAY_OK && xm_sched_has_work(sched);
         version++) {
        status = xm_sched_set_version(sched, version, err);
        if (status != XRAY_OK)
            break;
        run_sched_round(sched);
        while ((status = xm_sched_poll(sched, &out)) == XRAY_OK)
            assert_true(out.token_count > 0 && out.span_count > 0);
        status = status < 0 ? xr_fail(err, status, "no memory for a result")
                            : XRAY_OK;
    }
    xm_sched_destroy(sched);
    return status;
}

static void scheduler_survives(void **state)
{
    (void)state;
    int32_t table[3 * 10];
    failing_sweep("scheduler", try_sched, NULL, 0);
    failing_sweep("paged scheduler", try_sched, table, 0);
}

/* Two sequences of five tokens share a block; only creation allocates. */
static xray_status try_blocks(void *ctx, xr_err *err)
{
    static const xm_blocks_limits limits = { 3, 4, 1 };
    static const int32_t tokens[] = { 1, 2, 3, 4, 5 };
    int32_t rows[2][2];
    xm_blocks *pool = NULL;
    (void)ctx;
    xray_status status = xm_blocks_create(&limits, err, &pool);
    if (status != XRAY_OK)
        return status;
    for (int i = 0; i < 2; i++) {
        xm_block_seq seq = { .blocks = rows[i] };
        uint32_t found = xm_blocks_find(pool, tokens, 5, &seq);
        assert_int_equal(found, i ? 4 : 0);
        assert_int_equal(xm_blocks_reserve(pool, &seq, 5, 0), 0);
        xm_blocks_append(pool, &seq, tokens + found, 5 - found);
    }
    xm_blocks_destroy(pool);
    return XRAY_OK;
}

static void blocks_survive(void **state)
{
    (void)state;
    failing_sweep("blocks", try_blocks, NULL, 0);
}

/* ---- scores -------------------------------------------------------------- */

static xray_status try_scores(void *ctx, xr_err *err)
{
    static xr_run run;
    static xr_roles roles = { .run = &run };
    xr_score score;
    (void)ctx;
    return xr_rewards_score(&roles, NULL, 0, &score, NULL, NULL, NULL, err);
}

static void scores_survive(void **state)
{
    (void)state;
    failing_sweep("scores", try_scores, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ini_survives),
        cmocka_unit_test(model_config_survives),
        cmocka_unit_test(safetensors_survive),
        cmocka_unit_test(tokenizer_survives),
        cmocka_unit_test(rows_survive),
        cmocka_unit_test(metrics_survive),
        cmocka_unit_test(progress_survives),
        cmocka_unit_test(scores_survive),
        cmocka_unit_test(scheduler_survives),
        cmocka_unit_test(blocks_survive),
        cmocka_unit_test(chat_survives),
        cmocka_unit_test(deepspeed_survives),
        cmocka_unit_test(plugins_survive),
    };
    failing_init();
    return cmocka_run_group_tests(tests, scratch_make, scratch_drop);
}
