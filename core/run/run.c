/* SPDX-License-Identifier: Apache-2.0 */
#include "core/run/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/file.h"
#include "core/base/json.h"
#include "core/data/data.h"
#include "core/deepspeed/deepspeed.h"
#include "core/plugin/guard.h"
#include "core/run/parts.h"

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

static void add_end_id(xr_run *s, double id)
{
    size_t cap = sizeof(s->end_ids) / sizeof(s->end_ids[0]);
    if (id >= 0 && id < s->actor.model.vocab_size && s->end_count < cap)
        s->end_ids[s->end_count++] = (int32_t)id;
}

static int read_end_ids(xr_run *s, const cJSON *json)
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
static xray_status read_numbers(xr_run *s, const char *where, xr_err *err)
{
    cJSON *json = NULL;
    int64_t vocab = 0;
    int64_t positions = 0;
    xray_status status =
        xr_json_parse(s->actor.json, strlen(s->actor.json), where, err, &json);
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
        s->actor.model.vocab_size = (uint32_t)vocab;
        s->actor.model.max_positions = (uint32_t)positions;
        /* Of generation_config.json only the end ids count. */
        if (xr_path_join(s->actor.model.path, "generation_config.json", file,
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

static void read_model(xr_run *s, xr_errors *errors)
{
    char buffer[XR_PATH_CAP];
    char file[XR_PATH_CAP];
    xr_err err = { "" };
    size_t size = 0;
    const char *path = s->ini.model.path;
    if (!path || !*path) {
        xr_errors_add(errors,
                      "%s: [model] path is not set; it names the folder of the "
                      "model",
                      xr_config_location(s->config, "model", "path"));
        return;
    }
    s->actor.path =
        xr_strdup(xr_run_model_dir(path, "actor", buffer, sizeof(buffer)));
    if (!s->actor.path) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    s->actor.model = (xray_model){ .header = XRAY_HEADER(xray_model) };
    s->actor.model.path = s->actor.path;
    s->actor.model.dtype = (uint32_t)s->ini.model.dtype;
    s->actor.model.seed = (uint64_t)s->ini.run.seed;
    if (!xr_path_is_dir(s->actor.path)) {
        xr_errors_add(errors, "%s: [model] path: %s is not a folder",
                      xr_config_location(s->config, "model", "path"),
                      s->actor.path);
        return;
    }
    if (xr_run_verify_folder(s->actor.path, 0, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s: [model] path: %s",
                      xr_config_location(s->config, "model", "path"), err.text);
        return;
    }
    if (xr_path_join(s->actor.path, "config.json", file, sizeof(file), &err) !=
            XRAY_OK ||
        xr_file_read(file, 16u << 20, &err, &s->actor.json, &size) != XRAY_OK ||
        read_numbers(s, file, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    s->actor.model.config_json = s->actor.json;
    s->actor.model.random_init = s->ini.model.init == XR_INIT_RANDOM;
    if (!s->actor.model.random_init && !xr_run_has_weights(s->actor.path))
        xr_run_no_weights(s, "model", "path", s->actor.path, errors);
}

void xr_run_read_tokenizer(xr_run *s, xr_errors *errors)
{
    xr_err err = { "" };
    const char *dir = s->ini.model.tokenizer_path;
    if (!s->actor.path)
        return;
    if (!dir || !*dir)
        dir = s->actor.path;
    if (xm_tokenizer_open(dir, &err, &s->tokenizer) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    uint32_t vocab = xm_tokenizer_vocab(s->tokenizer);
    if (s->actor.model.vocab_size && vocab > s->actor.model.vocab_size)
        xr_errors_add(errors,
                      "%s: the tokenizer has ids up to %u, the model's "
                      "vocab_size is %u",
                      dir, vocab - 1, s->actor.model.vocab_size);
    int32_t eos = xm_tokenizer_eos(s->tokenizer);
    if (!s->end_count && eos >= 0)
        add_end_id(s, eos);
    const char *chat = s->ini.data.chat_template;
    if (chat && *chat && !xr_path_exists(chat))
        return; /* xr_run_check_batch says so */
    if (xr_data_chat(&s->ini.data, dir, &err, &s->chat) != XRAY_OK) {
        xr_run_locate(s, &err);
        xr_errors_add(errors, "%s", err.text);
    }
}

void xr_run_loads(xr_run *s, uint64_t micro_tokens, uint64_t row_tokens,
                  uint64_t sequences)
{
    if (micro_tokens < row_tokens)
        micro_tokens = row_tokens;
    s->actor.load = (xray_workload){
        .header = XRAY_HEADER(xray_workload),
        .tokens = micro_tokens,
        .rows = micro_tokens / 2 + 1, /* a row has at least two tokens */
        .row_tokens = row_tokens,
        .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
        .trainable = (s->with & XR_TRAINABLE) != 0,
        .threads = (uint32_t)s->ini.run.threads,
    };
    if (s->with & XR_WITH_ALGO)
        s->actor.load.trainable_from_layer =
            (uint32_t)s->ini.actor.trainable_from_layer;
    s->rollout.load = s->actor.load;
    s->rollout.load.rows = sequences;
    s->rollout.load.trainable = 0;
    s->rollout.load.shared =
        (s->with & XR_WITH_TRAIN) != 0 &&
        s->ini.rollout.share_weights == XR_SHARE_AUTO &&
        xr_ranks_equal(&s->placement.actor, &s->placement.rollout);
}

static void default_loads(xr_run *s)
{
    const xr_run_config *run = &s->ini;
    uint64_t row =
        (uint64_t)(run->data.max_prompt_length + run->data.max_response_length);
    uint64_t rows = xr_step_rows(run);
    uint64_t sequences = (uint64_t)run->rollout.max_num_seqs;
    if (!sequences)
        sequences = rows < 512 ? rows : 512;
    sequences = (sequences + s->placement.rollout.count - 1) /
                s->placement.rollout.count;
    int sft = (s->with & XR_TRAINABLE) && !(s->with & XR_WITH_ALGO);
    xr_run_loads(s,
                 (uint64_t)(sft ? run->sft.max_token_len
                                : run->actor.ppo_max_token_len_per_gpu),
                 row, sequences);
}

int xr_run_is_remote(const xr_run *s)
{
    return s->ini.run.ranks > 1 || strcmp(s->ini.run.runtime, "auto") != 0;
}

/* A DeepSpeed JSON lies below the INI, so it is read before what it sets is
 * decoded; which backend takes one, its option table says. A backend that is
 * not there is an error of find_parts. */
static void read_deepspeed(const xr_run *s, xr_errors *errors)
{
    xr_run_section run;
    xr_err err = { "" };
    const xray_component *train = NULL;
    xr_run_decode_first(s->config, &run);
    if (!s->plugins || !run.train)
        return;
    xr_guard_limit(run.plugin_timeout);
    if (xr_plugins_find(s->plugins, XRAY_IFACE_TRAIN, run.train, &err,
                        &train) == XRAY_OK)
        xr_deepspeed_read(s->config, train, !(s->with & XR_WITH_ALGO),
                          (uint32_t)run.ranks, errors);
}

/* Ranks of one host share its cores. */
static void share_threads(xr_run *s)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t each = cores > 0 ? cores / s->ini.run.ranks : 1;
    if (s->ini.run.ranks > 1 && s->ini.run.threads == 0)
        s->ini.run.threads = each > 0 ? each : 1;
}

/* ---- roles -------------------------------------------------------------- */

int xr_run_wants(const xr_run *s, uint32_t role)
{
    switch (role) {
    case XRAY_ROLE_ACTOR:
        return s->train.component != NULL;
    case XRAY_ROLE_REFERENCE:
        return s->train.component && ((s->with & XR_WITH_REFERENCE) ||
                                      (s->needs & XRAY_NEED_REFERENCE));
    case XRAY_ROLE_CRITIC:
        return s->train.component && (s->needs & XRAY_NEED_CRITIC);
    case XRAY_ROLE_REWARD:
        return s->train.component && s->score_config;
    case XRAY_ROLE_ROLLOUT:
        return s->infer.component != NULL;
    default:
        return 0;
    }
}

const xr_ranks *xr_run_ranks(const xr_run *s, uint32_t role)
{
    const xr_placement *p = &s->placement;
    return role == XRAY_ROLE_ROLLOUT     ? &p->rollout
           : role == XRAY_ROLE_CRITIC    ? &p->critic
           : role == XRAY_ROLE_REFERENCE ? &p->reference
           : role == XRAY_ROLE_REWARD    ? &p->reward
                                         : &p->actor;
}

const xray_model *xr_run_model(const xr_run *s, uint32_t role)
{
    if (role == XRAY_ROLE_REWARD)
        return &s->score.model;
    return role == XRAY_ROLE_CRITIC && s->critic.path ? &s->critic.model
                                                      : &s->actor.model;
}

xray_workload xr_run_load(const xr_run *s, uint32_t role)
{
    xray_workload load = s->actor.load;
    switch (role) {
    case XRAY_ROLE_CRITIC:
        return s->critic.load;
    case XRAY_ROLE_REWARD:
        return s->score.load;
    case XRAY_ROLE_ROLLOUT:
        return s->rollout.load;
    case XRAY_ROLE_REFERENCE: /* frozen, and without a value head */
        load.trainable = 0;
        load.trainable_from_layer = 0;
        load.outputs &= ~XRAY_OUTPUT_VALUE;
        return load;
    default:
        return load;
    }
}

xray_world xr_run_world(const xr_run *s, uint32_t role)
{
    /* Engines are replicas. */
    return (xray_world){ .header = XRAY_HEADER(xray_world),
                         .size = role == XRAY_ROLE_ROLLOUT
                                     ? 1
                                     : xr_run_ranks(s, role)->count };
}

uint64_t xr_run_rows(const xr_run *s)
{
    uint64_t rows = xr_step_rows(&s->ini);
    uint64_t sft = (uint64_t)s->ini.sft.train_batch_size;
    return rows > sft ? rows : sft;
}

/* ---- parts -------------------------------------------------------------- */

static int selected(const xr_run *s, const char *section)
{
    const xr_part *const parts[] = { &s->device, &s->comm,  &s->runtime,
                                     &s->train,  &s->infer, &s->algo };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i]->instance && strcmp(parts[i]->instance, section) == 0)
            return 1;
    for (size_t i = 0; i < s->reward_count; i++)
        if (s->rewards[i].instance &&
            strcmp(s->rewards[i].instance, section) == 0)
            return 1;
    return 0;
}

/* Options of plugins that are there but not selected are no error. */
static void ignore_unselected(xr_run *s)
{
    static const char *const kinds[] = { "train.",  "infer.", "algo.",
                                         "device.", "comm.",  "runtime.",
                                         "reward." };
    const char *section = NULL;
    for (size_t i = 0; (section = xr_config_section(s->config, i)); i++) {
        if (selected(s, section))
            continue;
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (strncmp(section, kinds[k], strlen(kinds[k])) == 0 &&
                (strcmp(kinds[k], "reward.") == 0 ||
                 xr_run_provides(s, section)))
                xr_config_ignore(s->config, section);
    }
}

static void find_comm(xr_run *s, xr_errors *errors)
{
    const char *name = s->ini.run.comm;
    xr_run_find_part(s, &s->comm, XRAY_IFACE_COMM, name, NULL, errors);
    const xray_comm_ops *ops = (const xray_comm_ops *)s->comm.ops;
    if (s->comm.component && !ops->serves(s->device.component->name))
        xr_errors_add(errors, "%s: [run] comm: %s does not serve the device %s",
                      xr_config_location(s->config, "run", "comm"), name,
                      s->device.component->name);
}

static void find_parts(xr_run *s, xr_errors *errors)
{
    const xr_run_section *run = &s->ini.run;
    xr_guard_limit(run->plugin_timeout);
    if (s->with & (XR_WITH_TRAIN | XR_WITH_INFER))
        xr_run_find_part(s, &s->device, XRAY_IFACE_DEVICE, run->device, NULL,
                         errors);
    if (run->ranks > 1 && s->device.component)
        find_comm(s, errors);
    if (strcmp(run->runtime, "auto") != 0 && strcmp(run->runtime, "local") != 0)
        xr_run_find_part(s, &s->runtime, XRAY_IFACE_RUNTIME, run->runtime, NULL,
                         errors);
    if (s->with & XR_WITH_TRAIN)
        xr_run_find_part(s, &s->train, XRAY_IFACE_TRAIN, run->train, NULL,
                         errors);
    if (s->with & XR_WITH_INFER)
        xr_run_find_part(s, &s->infer, XRAY_IFACE_INFER, run->infer, NULL,
                         errors);
    if (s->with & XR_WITH_ALGO)
        xr_run_find_part(s, &s->algo, XRAY_IFACE_ALGO, run->algo, NULL, errors);
    if (s->with & XR_WITH_REWARD)
        xr_run_find_rewards(s, errors);
    else if (s->with & XR_WITH_ALGO)
        xr_run_find_score(s, errors);
    ignore_unselected(s);
    const xray_component *train = s->train.component;
    const xray_component *infer = s->infer.component;
    s->exact = train && infer && XRAY_HAS(xray_component, train, numerics) &&
               XRAY_HAS(xray_component, infer, numerics) &&
               strcmp(train->numerics, infer->numerics) == 0;
}

/* ---- made and freed ----------------------------------------------------- */

xr_run *xr_run_draft(xr_config *config, const char *plugin_path, uint32_t with,
                     xr_errors *errors)
{
    xr_err err = { "" };
    xr_run *s = calloc(1, sizeof(*s));
    if (!s) {
        xr_errors_add(errors, "out of memory");
        return NULL;
    }
    s->config = config;
    s->with = with;
    s->plugin_path = plugin_path;
    if (xr_config_unread(config)) /* all else would be blamed for its lack */
        return s;
    (void)xr_plugins_open(plugin_path, &err, &s->plugins);
    if (with & XR_TRAINABLE)
        read_deepspeed(s, errors);
    xr_run_decode(config, &s->ini, errors);
    if (!s->ini.run.device) { /* memory ran out: no key has a value */
        xr_config_finish(config, errors);
        xr_run_free(s);
        return NULL;
    }
    xr_placement_read(config, &s->ini, &s->placement, errors);
    share_threads(s);
    s->sink.write = log_to_stderr;
    s->sink.level = log_level(s->ini.run.log ? s->ini.run.log : "warn");
    if (!s->plugins) {
        xr_errors_add(errors, "%s", err.text);
    } else {
        find_parts(s, errors);
        xr_config_finish(config, errors);
    }
    if (with & (XR_WITH_TRAIN | XR_WITH_INFER))
        read_model(s, errors);
    if (with & XR_WITH_TOKENIZER)
        xr_run_read_tokenizer(s, errors);
    default_loads(s);
    xr_run_check_batch(s, errors);
    return s;
}

xr_run *xr_run_new(xr_config *config, const char *plugin_path, uint32_t with,
                   xr_errors *errors)
{
    xr_run *s = xr_run_draft(config, plugin_path, with, errors);
    if (!errors->count)
        return s;
    xr_run_free(s);
    return NULL;
}

void xr_run_free(xr_run *s)
{
    if (!s)
        return;
    xr_run_drop_parts(s);
    xm_chat_close(s->chat);
    xm_tokenizer_close(s->tokenizer);
    xr_plugins_close(s->plugins);
    xr_model_slot *const slots[] = { &s->actor, &s->critic, &s->score };
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        free(slots[i]->json);
        free(slots[i]->path);
    }
    free(s);
}
