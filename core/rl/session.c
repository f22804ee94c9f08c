/* SPDX-License-Identifier: Apache-2.0 */
#include "core/rl/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/config/deepspeed.h"
#include "core/data/data.h"
#include "core/rl/session_parts.h"

static void log_to_stderr(void *ctx, uint32_t level, const char *instance,
                          const char *text)
{
    static const char *const names[] = { "",     "error", "warning",
                                         "info", "debug", "trace" };
    (void)ctx;
    (void)fprintf(stderr, "xray: %s: %s: %s\n", names[level <= 5 ? level : 5],
                  instance, text);
}

static uint32_t log_level(const char *name)
{
    static const char *const names[] = { "error", "warn", "info", "debug",
                                         "trace" };
    for (uint32_t i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return i + 1;
    return XRAY_LOG_WARN;
}

static void add_end_id(xr_session *s, double id)
{
    size_t cap = sizeof(s->end_ids) / sizeof(s->end_ids[0]);
    if (id >= 0 && id < s->model.vocab_size && s->end_count < cap)
        s->end_ids[s->end_count++] = (int32_t)id;
}

static int read_end_ids(xr_session *s, const cJSON *json)
{
    const cJSON *eos = xr_json_get(json, "eos_token_id");
    const cJSON *item = NULL;
    if (cJSON_IsNumber(eos))
        add_end_id(s, eos->valuedouble);
    cJSON_ArrayForEach(item, eos)
    {
        if (cJSON_IsNumber(item))
            add_end_id(s, item->valuedouble);
    }
    return s->end_count > 0;
}

/* What a config calls the longest row; GPT-2's has names of its own. */
static const char *positions_key(const cJSON *json)
{
    static const char *const keys[] = { "max_position_embeddings",
                                        "n_positions", "n_ctx" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (xr_json_get(json, keys[i]))
            return keys[i];
    return keys[0];
}

/* The few numbers every kind of model has; the rest is the backend's. */
static xray_status read_numbers(xr_session *s, const char *where, xr_err *err)
{
    cJSON *json = NULL;
    int64_t vocab = 0;
    int64_t positions = 0;
    xray_status status = xr_json_parse(s->config_json, strlen(s->config_json),
                                       where, err, &json);
    if (status != XRAY_OK)
        return status;
    if (!cJSON_IsObject(json))
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: must be a JSON object", where);
    if (status == XRAY_OK)
        status = xr_json_int(json, "vocab_size", where, err, &vocab);
    const char *key = positions_key(json);
    if (status == XRAY_OK)
        status = xr_json_int_or(json, key, 1 << 20, where, err, &positions);
    if (status == XRAY_OK && (vocab < 1 || vocab > (1 << 30)))
        status = xr_fail(err, XRAY_E_CONFIG,
                         "%s: vocab_size is %lld, expected 1 to 2^30", where,
                         (long long)vocab);
    if (status == XRAY_OK && (positions < 1 || positions > (1 << 30)))
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: %s is %lld, expected 1 to 2^30",
                    where, key, (long long)positions);
    if (status == XRAY_OK) {
        char file[XR_PATH_CAP];
        cJSON *generation = NULL;
        s->model.vocab_size = (uint32_t)vocab;
        s->model.max_positions = (uint32_t)positions;
        /* Of generation_config.json only the end ids count. */
        if (xr_path_join(s->model.path, "generation_config.json", file,
                         sizeof(file), NULL) == XRAY_OK &&
            xr_path_exists(file))
            status = xr_json_file(file, err, &generation);
        if (!generation || !read_end_ids(s, generation))
            (void)read_end_ids(s, json);
        cJSON_Delete(generation);
    }
    cJSON_Delete(json);
    return status;
}

static void read_model(xr_session *s, xr_errors *errors)
{
    char buffer[XR_PATH_CAP];
    char file[XR_PATH_CAP];
    xr_err err = { "" };
    size_t size = 0;
    const char *path = s->run.model.path;
    if (!path || !*path) {
        xr_errors_add(errors,
                      "%s: [model] path is not set; it names the folder of the "
                      "model",
                      xr_config_place(s->config, "model", "path"));
        return;
    }
    s->model_path =
        xr_strdup(xr_session_model_dir(path, "actor", buffer, sizeof(buffer)));
    if (!s->model_path) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    s->model = (xray_model){ .head = XRAY_HEAD(xray_model) };
    s->model.path = s->model_path;
    s->model.dtype = (uint32_t)s->run.model.dtype;
    s->model.seed = (uint64_t)s->run.run.seed;
    if (!xr_path_is_dir(s->model_path)) {
        xr_errors_add(errors, "%s: [model] path: %s is not a folder",
                      xr_config_place(s->config, "model", "path"),
                      s->model_path);
        return;
    }
    if (xr_session_verify_folder(s->model_path, 0, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s: [model] path: %s",
                      xr_config_place(s->config, "model", "path"), err.text);
        return;
    }
    if (xr_path_join(s->model_path, "config.json", file, sizeof(file), &err) !=
            XRAY_OK ||
        xr_file_read(file, 16u << 20, &err, &s->config_json, &size) !=
            XRAY_OK ||
        read_numbers(s, file, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    s->model.config_json = s->config_json;
    s->model.random_init = s->run.model.init == XR_INIT_RANDOM;
    if (!s->model.random_init && !xr_session_has_weights(s->model_path))
        xr_session_no_weights(s, "model", "path", s->model_path, errors);
}

void xr_session_read_tokenizer(xr_session *s, xr_errors *errors)
{
    xr_err err = { "" };
    const char *dir = s->run.model.tokenizer_path;
    if (!s->model_path)
        return;
    if (!dir || !*dir)
        dir = s->model_path;
    if (xm_tokenizer_open(dir, &err, &s->tokenizer) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    uint32_t vocab = xm_tokenizer_vocab(s->tokenizer);
    if (s->model.vocab_size && vocab > s->model.vocab_size)
        xr_errors_add(errors,
                      "%s: the tokenizer has ids up to %u, the model's "
                      "vocab_size is %u",
                      dir, vocab - 1, s->model.vocab_size);
    int32_t eos = xm_tokenizer_eos(s->tokenizer);
    if (!s->end_count && eos >= 0)
        add_end_id(s, eos);
    const char *chat = s->run.data.chat_template;
    if (chat && *chat && !xr_path_exists(chat))
        return; /* xr_session_check_batch says so */
    if (xr_data_chat(&s->run.data, dir, &err, &s->chat) != XRAY_OK) {
        xr_session_place(s, NULL, &err);
        xr_errors_add(errors, "%s", err.text);
    }
}

void xr_session_loads(xr_session *s, uint64_t micro_tokens, uint64_t row_tokens,
                      uint64_t sequences)
{
    if (micro_tokens < row_tokens)
        micro_tokens = row_tokens;
    s->train_load = (xray_workload){
        .head = XRAY_HEAD(xray_workload),
        .tokens = micro_tokens,
        .rows = micro_tokens / 2 + 1, /* a row has at least two tokens */
        .row_tokens = row_tokens,
        .heads = XRAY_HEAD_LOGP | XRAY_HEAD_ENTROPY,
        .trainable = (s->with & XR_TRAINABLE) != 0,
        .threads = (uint32_t)s->run.run.threads,
    };
    if (s->with & XR_WITH_ALGO)
        s->train_load.trainable_from_layer =
            (uint32_t)s->run.actor.trainable_from_layer;
    s->infer_load = s->train_load;
    s->infer_load.rows = sequences;
    s->infer_load.trainable = 0;
    s->infer_load.shared =
        (s->with & XR_WITH_TRAIN) != 0 &&
        s->run.rollout.share_weights == XR_SHARE_AUTO &&
        xr_ranks_equal(&s->placement.actor, &s->placement.rollout);
}

static void default_loads(xr_session *s)
{
    const xr_run_config *run = &s->run;
    uint64_t row =
        (uint64_t)(run->data.max_prompt_length + run->data.max_response_length);
    uint64_t rows =
        (uint64_t)run->data.train_batch_size * (uint64_t)run->rollout.n;
    uint64_t sequences = (uint64_t)run->rollout.max_num_seqs;
    if (!sequences)
        sequences = rows < 512 ? rows : 512;
    sequences = (sequences + s->placement.rollout.count - 1) /
                s->placement.rollout.count;
    int sft = (s->with & XR_TRAINABLE) && !(s->with & XR_WITH_ALGO);
    xr_session_loads(s,
                     (uint64_t)(sft ? run->sft.max_token_len
                                    : run->actor.ppo_max_token_len_per_gpu),
                     row, sequences);
}

int xr_session_is_remote(const xr_session *s)
{
    return s->run.run.ranks > 1 || strcmp(s->run.run.runtime, "auto") != 0;
}

/* Before it is decoded: 1 where it is not set, or wrong. */
static uint32_t ranks_of(const xr_config *config)
{
    const char *text = xr_config_get(config, "run", "ranks");
    int64_t ranks = 1;
    if (!text || xr_parse_int(text, &ranks) != 0 || ranks < 1 ||
        ranks > XR_MAX_RANKS)
        return 1;
    return (uint32_t)ranks;
}

/* Ranks of one host share its cores. */
static void share_threads(xr_session *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t each = cores > 0 ? cores / s->run.run.ranks : 1;
    if (s->run.run.ranks > 1 && s->run.run.threads == 0)
        s->run.run.threads = each > 0 ? each : 1;
}

/* The worlds a plan is asked for: rank 0, without comm. */
static void plan_worlds(xr_session *s)
{
    const struct {
        uint32_t role;
        uint32_t size;
    } roles[] = {
        { XRAY_ROLE_ACTOR, s->placement.actor.count },
        { XRAY_ROLE_REFERENCE, s->placement.reference.count },
        { XRAY_ROLE_CRITIC, s->placement.critic.count },
        { XRAY_ROLE_ROLLOUT, 1 }, /* engines are replicas */
        { XRAY_ROLE_REWARD, s->placement.reward.count },
    };
    for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
        s->worlds[roles[i].role] = (xray_world){ .head = XRAY_HEAD(xray_world),
                                                 .size = roles[i].size };
}

xr_session *xr_session_draft(xr_config *config, const char *plugin_path,
                             uint32_t with, xr_errors *errors)
{
    xr_err err = { "" };
    xr_session *s = calloc(1, sizeof(*s));
    if (!s) {
        xr_errors_add(errors, "out of memory");
        return NULL;
    }
    s->config = config;
    s->with = with;
    s->plugin_path = plugin_path;
    if (xr_config_unread(config)) /* all else would be blamed for its lack */
        return s;
    if (with & XR_TRAINABLE)
        xr_deepspeed_read(config, !(with & XR_WITH_ALGO), ranks_of(config),
                          errors);
    xr_run_decode(config, &s->run, errors);
    if (!s->run.run.device) { /* memory ran out: no key has a value */
        xr_config_finish(config, errors);
        xr_session_free(s);
        return NULL;
    }
    xr_placement_read(config, &s->run, &s->placement, errors);
    share_threads(s);
    plan_worlds(s);
    s->sink.write = log_to_stderr;
    s->sink.level = log_level(s->run.run.log ? s->run.run.log : "warn");
    if (xr_plugins_open(plugin_path, &err, &s->plugins) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
    } else {
        xr_session_find_parts(s, errors);
        xr_config_finish(config, errors);
    }
    if (with & (XR_WITH_TRAIN | XR_WITH_INFER))
        read_model(s, errors);
    if (with & XR_WITH_TOKENIZER)
        xr_session_read_tokenizer(s, errors);
    default_loads(s);
    xr_session_check_batch(s, errors);
    return s;
}

xr_session *xr_session_new(xr_config *config, const char *plugin_path,
                           uint32_t with, xr_errors *errors)
{
    xr_session *s = xr_session_draft(config, plugin_path, with, errors);
    if (!errors->count)
        return s;
    xr_session_free(s);
    return NULL;
}

void xr_session_free(xr_session *s)
{
    if (!s)
        return;
    xr_session_stop_parts(s);
    xm_chat_close(s->chat);
    xm_tokenizer_close(s->tokenizer);
    xr_plugins_close(s->plugins);
    free(s->config_json);
    free(s->model_path);
    free(s->critic_json);
    free(s->critic_path);
    free(s->score_json);
    free(s->score_path);
    free(s);
}
