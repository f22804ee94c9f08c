/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds an xr_run from a configuration: sections, plugins, policy model,
 * tokenizer and workloads.
 */
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
#include "core/run/hosts.h"
#include "core/run/run_setup.h"

static void log_to_stderr(void *ctx, uint32_t level, const char *instance,
                          const char *text)
{
    static const char *const names[] = { "",     "error", "warning",
                                         "info", "debug", "trace" };
    (void)ctx;
    (void)fprintf(stderr, "xray: %s: %s: %s\n", names[level <= 5 ? level : 5],
                  instance, text);
}

static uint32_t parse_log_level(const char *name)
{
    static const char *const names[] = { "error", "warn", "info", "debug",
                                         "trace" };
    for (uint32_t i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0)
            return i + 1;
    return XRAY_LOG_WARN;
}

static void add_end_id(xr_run *run, double id)
{
    size_t cap = sizeof(run->end_ids) / sizeof(run->end_ids[0]);
    if (id >= 0 && id < run->actor.model.vocab_size && run->end_count < cap)
        run->end_ids[run->end_count++] = (int32_t)id;
}

static int read_end_ids(xr_run *run, const cJSON *json)
{
    const cJSON *eos = xr_json_get(json, "eos_token_id");
    const cJSON *item = NULL;
    if (cJSON_IsNumber(eos))
        add_end_id(run, eos->valuedouble);
    cJSON_ArrayForEach(item, eos)
    {
        if (cJSON_IsNumber(item))
            add_end_id(run, item->valuedouble);
    }
    return run->end_count > 0;
}

/* Returns the key by which a config names the longest row; GPT-2 has its own
 * keys. */
static const char *find_positions_key(const cJSON *json)
{
    static const char *const keys[] = { "max_position_embeddings",
                                        "n_positions", "n_ctx" };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (xr_json_get(json, keys[i]))
            return keys[i];
    return keys[0];
}

/* Reads the few numbers that every model has; the rest is left to the backend.
 */
static xray_status read_policy_numbers(xr_run *run, const char *where,
                                       xr_err *err)
{
    cJSON *json = NULL;
    int64_t vocab = 0;
    int64_t positions = 0;
    xray_status status = xr_json_parse(run->actor.json, strlen(run->actor.json),
                                       where, err, &json);
    if (status != XRAY_OK)
        return status;
    if (!cJSON_IsObject(json))
        status =
            xr_fail(err, XRAY_E_CONFIG, "%s: must be a JSON object", where);
    if (status == XRAY_OK)
        status = xr_json_int(json, "vocab_size", where, err, &vocab);
    const char *key = find_positions_key(json);
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
        run->actor.model.vocab_size = (uint32_t)vocab;
        run->actor.model.max_positions = (uint32_t)positions;
        /* Only the end ids are used from generation_config.json. */
        if (xr_path_join(run->actor.model.path, "generation_config.json", file,
                         sizeof(file), NULL) == XRAY_OK &&
            xr_path_exists(file))
            status = xr_json_file(file, err, &generation);
        if (!generation || !read_end_ids(run, generation))
            (void)read_end_ids(run, json);
        cJSON_Delete(generation);
    }
    cJSON_Delete(json);
    return status;
}

static void read_policy_model(xr_run *run, xr_errors *errors)
{
    char buffer[XR_PATH_CAP];
    char file[XR_PATH_CAP];
    xr_err err = { "" };
    size_t size = 0;
    const char *path = run->ini.model.path;
    if (!path || !*path) {
        xr_errors_add(errors,
                      "%s: [model] path is not set; it names the folder of the "
                      "model",
                      xr_config_location(run->config, "model", "path"));
        return;
    }
    run->actor.path =
        xr_strdup(xr_run_model_dir(path, "actor", buffer, sizeof(buffer)));
    if (!run->actor.path) {
        xr_errors_add(errors, "out of memory");
        return;
    }
    run->actor.model = (xray_model){ .header = XRAY_HEADER(xray_model) };
    run->actor.model.path = run->actor.path;
    run->actor.model.dtype = (uint32_t)run->ini.model.dtype;
    run->actor.model.seed = (uint64_t)run->ini.run.seed;
    if (!xr_path_is_dir(run->actor.path)) {
        xr_run_report_no_folder(run, "model", "path", run->actor.path, errors);
        return;
    }
    if (xr_run_verify_folder(run->actor.path, 0, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s: [model] path: %s",
                      xr_config_location(run->config, "model", "path"),
                      err.text);
        return;
    }
    if (xr_path_join(run->actor.path, "config.json", file, sizeof(file),
                     &err) != XRAY_OK ||
        xr_file_read(file, 16u << 20, &err, &run->actor.json, &size) !=
            XRAY_OK ||
        read_policy_numbers(run, file, &err) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    run->actor.model.config_json = run->actor.json;
    run->actor.model.random_init = run->ini.model.init == XR_INIT_RANDOM;
    if (!(run->with & (XR_WITH_TRAIN | XR_WITH_INFER)))
        return; /* a tokenizer needs no weights beside it */
    if (!run->actor.model.random_init && !xr_run_has_weights(run->actor.path))
        xr_run_report_no_weights(run, "model", "path", run->actor.path, errors);
    else if (!run->actor.model.random_init)
        xr_run_check_snapshot(run, "model", "path", run->actor.path, errors);
}

void xr_run_read_tokenizer(xr_run *run, xr_errors *errors)
{
    xr_err err = { "" };
    const char *dir = run->ini.model.tokenizer_path;
    if (!run->actor.path)
        return;
    if (!dir || !*dir)
        dir = run->actor.path;
    else if (!xr_path_is_dir(dir)) {
        xr_run_report_no_folder(run, "model", "tokenizer_path", dir, errors);
        return;
    }
    if (xm_tokenizer_open(dir, &err, &run->tokenizer) != XRAY_OK) {
        xr_errors_add(errors, "%s", err.text);
        return;
    }
    uint32_t vocab = xm_tokenizer_vocab(run->tokenizer);
    if (run->actor.model.vocab_size && vocab > run->actor.model.vocab_size)
        xr_errors_add(errors,
                      "%s: the tokenizer has ids up to %u, the model's "
                      "vocab_size is %u",
                      dir, vocab - 1, run->actor.model.vocab_size);
    int32_t eos = xm_tokenizer_eos(run->tokenizer);
    if (!run->end_count && eos >= 0)
        add_end_id(run, eos);
    const char *chat = run->ini.data.chat_template;
    if (chat && *chat && !xr_path_exists(chat))
        return; /* reported by xr_run_check_batch */
    if (xr_data_chat(&run->ini.data, dir, &err, &run->chat) != XRAY_OK) {
        xr_run_locate(run, &err);
        xr_errors_add(errors, "%s", err.text);
    }
}

/* Returns the most sequences of all engines together. */
static uint64_t count_sequences(const xr_run_config *ini)
{
    uint64_t rows = xr_step_rows(ini);
    if (ini->rollout.max_num_seqs)
        return (uint64_t)ini->rollout.max_num_seqs;
    return rows < 512 ? rows : 512;
}

void xr_run_share_sequences(xr_run *run)
{
    const uint64_t engines = xr_run_layout(run, XRAY_ROLE_ROLLOUT)->replicas;
    if (run->sequences && engines)
        run->rollout.load.rows = (run->sequences + engines - 1) / engines;
}

void xr_run_set_workloads(xr_run *run, uint64_t micro_tokens,
                          uint64_t row_tokens, uint64_t sequences)
{
    if (micro_tokens < row_tokens)
        micro_tokens = row_tokens;
    run->actor.load = (xray_workload){
        .header = XRAY_HEADER(xray_workload),
        .tokens = micro_tokens,
        .rows = micro_tokens / 2 + 1, /* a row has at least two tokens */
        .row_tokens = row_tokens,
        .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
        .trainable = (run->with & XR_TRAINABLE) != 0,
    };
    if (run->with & XR_WITH_ALGO)
        run->actor.load.trainable_from_layer =
            (uint32_t)run->ini.actor.trainable_from_layer;
    run->rollout.load = run->actor.load;
    run->rollout.load.rows = sequences;
    if (!sequences)
        run->rollout.load.prompt_tokens =
            (uint32_t)run->ini.data.max_prompt_length;
    run->sequences = sequences ? 0 : count_sequences(&run->ini);
    xr_run_share_sequences(run);
    run->rollout.load.trainable = 0;
    run->rollout.load.shared =
        (run->with & XR_WITH_TRAIN) != 0 &&
        run->ini.rollout.share_weights == XR_SHARE_AUTO &&
        xr_ranks_equal(&run->placement.actor, &run->placement.rollout);
}

static void set_default_workloads(xr_run *run)
{
    const xr_run_config *ini = &run->ini;
    uint64_t row =
        (uint64_t)(ini->data.max_prompt_length + ini->data.max_response_length);
    int sft = (run->with & XR_TRAINABLE) && !(run->with & XR_WITH_ALGO);
    xr_run_set_workloads(run,
                         (uint64_t)(sft ? ini->sft.max_token_len
                                        : ini->actor.ppo_max_token_len_per_gpu),
                         row, 0);
}

int xr_run_is_remote(const xr_run *run)
{
    return run->ini.run.ranks > 1 || strcmp(run->ini.run.runtime, "auto") != 0;
}

/* A DeepSpeed JSON provides defaults for the INI, so it is read before its
 * sections are decoded. The backend's option table tells whether it takes one.
 * A missing backend is reported by find_parts. */
static void read_deepspeed(const xr_run *run, xr_errors *errors)
{
    xr_run_section selected;
    xr_err err = { "" };
    const xray_component *train = NULL;
    xr_run_decode_first(run->config, &selected);
    if (!run->plugins || !selected.train)
        return;
    xr_guard_limit(selected.plugin_timeout);
    if (xr_plugins_find(run->plugins, XRAY_IFACE_TRAIN, selected.train, &err,
                        &train) == XRAY_OK)
        xr_deepspeed_read(run->config, train, !(run->with & XR_WITH_ALGO),
                          (uint32_t)selected.ranks, errors);
}

/* The ranks of one host share its cores. */
static void share_threads(xr_run *run)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t each = cores > 0 ? cores / run->placement.most_here : 1;
    if (run->ini.run.ranks > 1 && run->ini.run.threads == 0)
        run->ini.run.threads = each > 0 ? each : 1;
}

/* ---- roles -------------------------------------------------------------- */

int xr_run_has_role(const xr_run *run, uint32_t role)
{
    switch (role) {
    case XRAY_ROLE_ACTOR:
        return run->train.component != NULL;
    case XRAY_ROLE_REFERENCE:
        return run->train.component && ((run->with & XR_WITH_REFERENCE) ||
                                        (run->needs & XRAY_NEED_REFERENCE));
    case XRAY_ROLE_CRITIC:
        return run->train.component && (run->needs & XRAY_NEED_CRITIC);
    case XRAY_ROLE_REWARD:
        return run->train.component && run->reward_model_config;
    case XRAY_ROLE_ROLLOUT:
        return run->infer.component != NULL;
    default:
        return 0;
    }
}

const xr_ranks *xr_run_ranks(const xr_run *run, uint32_t role)
{
    const xr_placement *p = &run->placement;
    return role == XRAY_ROLE_ROLLOUT     ? &p->rollout
           : role == XRAY_ROLE_CRITIC    ? &p->critic
           : role == XRAY_ROLE_REFERENCE ? &p->reference
           : role == XRAY_ROLE_REWARD    ? &p->reward
                                         : &p->actor;
}

const xray_model *xr_run_model(const xr_run *run, uint32_t role)
{
    if (role == XRAY_ROLE_REWARD)
        return &run->reward_model.model;
    return role == XRAY_ROLE_CRITIC && run->critic.path ? &run->critic.model
                                                        : &run->actor.model;
}

static xray_workload find_workload(const xr_run *run, uint32_t role)
{
    const xr_model_slot *slot = role == XRAY_ROLE_CRITIC    ? &run->critic
                                : role == XRAY_ROLE_REWARD  ? &run->reward_model
                                : role == XRAY_ROLE_ROLLOUT ? &run->rollout
                                                            : &run->actor;
    xray_workload load = slot->load;
    if (role == XRAY_ROLE_REFERENCE) { /* frozen, and without a value head */
        load.trainable = 0;
        load.trainable_from_layer = 0;
        load.outputs &= ~XRAY_OUTPUT_VALUE;
    }
    load.segments = load.trainable ? (uint32_t)run->ini.run.layout_segments : 0;
    load.tokens = xr_layout_tokens(xr_run_layout(run, role), load.tokens,
                                   load.row_tokens);
    return load;
}

xray_workload xr_run_workload(const xr_run *run, uint32_t role)
{
    xray_workload load = find_workload(run, role);
    if (run->device.component && run->device.config) {
        load.device = (const xray_device_ops *)run->device.ops;
        load.device_config = run->device.config;
    }
    return load;
}

xray_world xr_run_world(const xr_run *run, uint32_t role)
{
    const xr_ranks *ranks = xr_run_ranks(run, role);
    return (xray_world){ .header = XRAY_HEADER(xray_world),
                         .size = ranks->count,
                         .global_ranks = ranks->rank };
}

uint64_t xr_run_max_rows(const xr_run *run)
{
    uint64_t rows = xr_step_rows(&run->ini);
    uint64_t sft = (uint64_t)run->ini.sft.train_batch_size;
    return rows > sft ? rows : sft;
}

/* ---- parts -------------------------------------------------------------- */

static int is_selected(const xr_run *run, const char *section)
{
    const xr_part *const parts[] = { &run->device,   &run->comm,  &run->runtime,
                                     &run->launcher, &run->train, &run->infer,
                                     &run->algo };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (parts[i]->instance && strcmp(parts[i]->instance, section) == 0)
            return 1;
    for (size_t i = 0; i < run->reward_count; i++)
        if (run->rewards[i].instance &&
            strcmp(run->rewards[i].instance, section) == 0)
            return 1;
    for (size_t i = 0; i < run->tracker_count; i++)
        if (run->trackers[i].instance &&
            strcmp(run->trackers[i].instance, section) == 0)
            return 1;
    return 0;
}

/* Returns 1 for "critic.train.NAME" with another backend than the run's, or one
 * that was not found. */
static int is_unselected_role_section(const xr_run *run, const char *section)
{
    const char *base = xr_run_role_section(section);
    return base &&
           (!run->train.component || strcmp(base, run->train.instance) != 0) &&
           (xr_run_provides(run, base) ||
            (run->ini.run.train && strcmp(base + 6, run->ini.run.train) == 0));
}

/* Options of plugins that exist but are not selected are no error. */
static void ignore_unselected_sections(xr_run *run)
{
    static const char *const kinds[] = { "train.",  "infer.",  "algo.",
                                         "device.", "comm.",   "runtime.",
                                         "reward.", "tracker." };
    const char *section = NULL;
    for (size_t i = 0; (section = xr_config_section(run->config, i)); i++) {
        if (is_unselected_role_section(run, section))
            xr_config_ignore(run->config, section);
        if (is_selected(run, section) || xr_run_role_section(section))
            continue;
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (strncmp(section, kinds[k], strlen(kinds[k])) == 0 &&
                (strcmp(kinds[k], "reward.") == 0 ||
                 xr_run_provides(run, section)))
                xr_config_ignore(run->config, section);
    }
}

static void find_comm(xr_run *run, xr_errors *errors)
{
    const char *name = run->ini.run.comm;
    xr_run_find_part(run, &run->comm, XRAY_IFACE_COMM, name, NULL, errors);
    const xray_comm_ops *ops = (const xray_comm_ops *)run->comm.ops;
    if (run->comm.component && !ops->serves(run->device.component->name))
        xr_errors_add(errors, "%s: [run] comm: %s does not serve the device %s",
                      xr_config_location(run->config, "run", "comm"), name,
                      run->device.component->name);
    const int spans = run->comm.component &&
                      XRAY_HAS(xray_comm_ops, ops, spans_hosts) &&
                      ops->spans_hosts();
    if (run->comm.component && !spans &&
        run->placement.engine == XR_ENGINE_CHOOSES)
        xr_errors_add(errors,
                      "%s: [run] comm: %s serves the ranks of one host only, "
                      "and [run] runtime = %s chooses the hosts",
                      xr_config_location(run->config, "run", "comm"), name,
                      run->ini.run.runtime);
    if (run->comm.component && !spans && run->placement.hosts > 1)
        xr_errors_add(errors,
                      "%s: [run] comm: %s serves the ranks of one host only, "
                      "and [placement] hosts names %u",
                      xr_config_location(run->config, "run", "comm"), name,
                      run->placement.hosts);
}

/* A Workhorse needs no launcher, whose options it leaves unread. */
static void find_runtime(xr_run *run, xr_errors *errors)
{
    const char *name = run->ini.run.runtime;
    const uint32_t engine = run->placement.engine;
    if (engine == XR_ENGINE_CHOOSES)
        xr_run_find_part(run, &run->launcher, XRAY_IFACE_LAUNCHER, name, NULL,
                         errors);
    if (engine == XR_ENGINE_NONE && strcmp(name, "auto") != 0 &&
        strcmp(name, "local") != 0 && strcmp(name, XR_HOSTS) != 0)
        xr_run_find_part(run, &run->runtime, XRAY_IFACE_RUNTIME, name, NULL,
                         errors);
}

static void find_parts(xr_run *run, xr_errors *errors)
{
    const xr_run_section *selected = &run->ini.run;
    xr_guard_limit(selected->plugin_timeout);
    if (run->with & (XR_WITH_TRAIN | XR_WITH_INFER))
        xr_run_find_part(run, &run->device, XRAY_IFACE_DEVICE, selected->device,
                         NULL, errors);
    if (selected->ranks > 1 && run->device.component)
        find_comm(run, errors);
    find_runtime(run, errors);
    if (run->with & XR_WITH_TRAIN)
        xr_run_find_part(run, &run->train, XRAY_IFACE_TRAIN, selected->train,
                         NULL, errors);
    xr_run_find_role_parts(run, errors);
    if (run->with & XR_WITH_INFER)
        xr_run_find_part(run, &run->infer, XRAY_IFACE_INFER, selected->infer,
                         NULL, errors);
    if (run->with & XR_WITH_ALGO)
        xr_run_find_part(run, &run->algo, XRAY_IFACE_ALGO, selected->algo, NULL,
                         errors);
    if (run->with & XR_WITH_REWARD)
        xr_run_find_rewards(run, errors);
    else if (run->with & XR_WITH_ALGO)
        xr_run_find_reward_model(run, errors);
    xr_run_find_trackers(run, errors);
    ignore_unselected_sections(run);
}

/* ---- creation ----------------------------------------------------------- */

xr_run *xr_run_draft(xr_config *config, const char *plugin_path, uint32_t with,
                     xr_errors *errors)
{
    xr_err err = { "" };
    xr_run *run = calloc(1, sizeof(*run));
    if (!run) {
        xr_errors_add(errors, "out of memory");
        return NULL;
    }
    run->config = config;
    run->with = with;
    run->plugin_path = plugin_path;
    if (xr_config_unread(config)) /* unread keys would be reported as missing */
        return run;
    (void)xr_plugins_open(plugin_path, &err, &run->plugins);
    if (with & XR_TRAINABLE)
        read_deepspeed(run, errors);
    xr_run_decode(config, &run->ini, errors);
    if (!run->ini.run.device) { /* out of memory: no key has a value */
        xr_config_finish(config, errors);
        xr_run_free(run);
        return NULL;
    }
    xr_placement_read(config, &run->ini, &run->placement, errors);
    if (run->plugins && xr_run_has_launcher(run, run->ini.run.runtime))
        run->placement.engine =
            with & XR_IN_WORKHORSE ? XR_ENGINE_CHOSE : XR_ENGINE_CHOOSES;
    xr_hosts_read(config, &run->ini, &run->placement, errors);
    xr_run_reset_layouts(run);
    share_threads(run);
    run->sink.write = log_to_stderr;
    run->sink.level =
        parse_log_level(run->ini.run.log ? run->ini.run.log : "warn");
    if (!run->plugins) {
        xr_errors_add(errors, "%s", err.text);
    } else {
        find_parts(run, errors);
        xr_config_finish(config, errors);
    }
    if (with & (XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_TOKENIZER))
        read_policy_model(run, errors);
    if (with & XR_WITH_TOKENIZER)
        xr_run_read_tokenizer(run, errors);
    set_default_workloads(run);
    xr_run_check_batch(run, errors);
    return run;
}

xr_run *xr_run_new(xr_config *config, const char *plugin_path, uint32_t with,
                   xr_errors *errors)
{
    xr_run *run = xr_run_draft(config, plugin_path, with, errors);
    if (!errors->count)
        return run;
    xr_run_free(run);
    return NULL;
}

void xr_run_free(xr_run *run)
{
    if (!run)
        return;
    xr_run_drop_parts(run);
    xm_chat_close(run->chat);
    xm_tokenizer_close(run->tokenizer);
    xr_plugins_close(run->plugins);
    xr_model_slot *const slots[] = { &run->actor, &run->critic,
                                     &run->reward_model };
    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        free(slots[i]->json);
        free(slots[i]->path);
    }
    for (size_t i = 0; i < 2; i++)
        xr_file_list_free(&run->data_files[i]);
    free(run);
}
