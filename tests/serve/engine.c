/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the fixtures of the engine's suites.
 */
#include "tests/serve/engine.h"

#include "core/base/str.h"

/* ---- host and device ---------------------------------------------------- */

static void host_log(const xray_host *host, uint32_t level, const char *msg)
{
    rig *r = host->host_data;
    (void)level;
    (void)snprintf(r->log, sizeof(r->log), "%s", msg);
}

static xray_status host_fail(const xray_host *host, xray_status code,
                             const char *where, const char *msg)
{
    rig *r = host->host_data;
    (void)where;
    (void)snprintf(r->said, sizeof(r->said), "%s", msg);
    return code;
}

static const void *host_service(const xray_host *host, const char *id)
{
    const rig *r = host->host_data;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0     ? r->calls
           : strcmp(id, XRAY_SERVICE_METRICS) == 0 ? r->metrics
                                                   : NULL;
}

/* Sets every option to its declared default. */
static void *preset_config(const xray_component *component)
{
    char *config = calloc(1, component->config_size + 1);
    assert_non_null(config);
    for (uint32_t i = 0; i < component->option_count; i++) {
        const xray_option *o = &component->options[i];
        void *at = config + o->offset;
        int64_t integer = 0;
        if (!o->preset)
            continue;
        if (o->type == XRAY_OPT_INT) {
            assert_int_equal(xr_parse_int(o->preset, &integer), 0);
            memcpy(at, &integer, sizeof(integer));
        } else if (o->type == XRAY_OPT_BYTES) {
            assert_int_equal(xr_parse_bytes(o->preset, at), 0);
        } else if (o->type == XRAY_OPT_REAL) {
            assert_int_equal(xr_parse_real(o->preset, at), 0);
        } else if (o->type == XRAY_OPT_CHOICE) {
            const xray_choice *c = o->choices;
            while (c->name && strcmp(c->name, o->preset) != 0)
                c = xray_next_choice(o, c);
            memcpy(at, &c->value, sizeof(c->value));
        } else if (o->type == XRAY_OPT_BOOL) {
            uint32_t yes = strcmp(o->preset, "true") == 0 ||
                           strcmp(o->preset, "on") == 0 ||
                           strcmp(o->preset, "yes") == 0;
            memcpy(at, &yes, sizeof(yes));
        } else if (o->type == XRAY_OPT_STRING || o->type == XRAY_OPT_PATH) {
            memcpy(at, &o->preset, sizeof(o->preset));
        }
    }
    return config;
}

static uint32_t advances;

uint32_t rig_advances(void)
{
    return advances;
}

static const xray_device_ops *cpu_ops(void)
{
    return xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops;
}

static xray_status late_info(void *self, xray_device_info *info)
{
    xray_status status = cpu_ops()->info(self, info);
    info->host_memory = 0;
    return status;
}

static xray_status late_query(void *self, xray_event *event)
{
    (void)self;
    return event ? XRAY_AGAIN : XRAY_E_ARG;
}

static xray_status late_advance(void *self, xray_stream *stream,
                                const xray_advance *op)
{
    advances++;
    return cpu_ops()->advance(self, stream, op);
}

void rig_make_late(rig *r)
{
    r->late = *r->device;
    r->late.info = late_info;
    r->late.event_query = late_query;
    r->late.advance = late_advance;
    r->device = &r->late;
}

void rig_use_paged(rig *r, const paged_config *config)
{
    r->paged = *config;
    r->ops = xray_plugin_query_infer_paged(XRAY_ABI)->components[0]->ops;
}

void rig_expect_said(const rig *r, const char *says)
{
    static const char name[] = "dsinf: ";
    size_t begin = sizeof(name) - 1;
    if (!r->paged.block_size || strncmp(says, name, begin) != 0) {
        assert_string_equal(r->said, says);
        return;
    }
    assert_memory_equal(r->said, "paged: ", begin);
    assert_string_equal(r->said + begin, says + begin);
}

rig *rig_open(uint32_t threads)
{
    rig *r = calloc(1, sizeof(*r));
    assert_non_null(r);
    r->host = (xray_host){ .header = XRAY_HEADER(xray_host),
                           .host_data = r,
                           .version = "test",
                           .log = host_log,
                           .fail = host_fail,
                           .service = host_service };
    const xray_component *cpu =
        xray_plugin_query_device_cpu(XRAY_ABI)->components[0];
    const xray_component *engine =
        xray_plugin_query_infer_dsinf(XRAY_ABI)->components[0];
    r->device = cpu->ops;
    r->ops = engine->ops;
    void *config = preset_config(cpu);
    assert_int_equal(
        r->device->create(&r->host, config, threads, &r->device_self), XRAY_OK);
    free(config);
    if (getenv("XRAY_TEST_PAGED"))
        rig_use_paged(
            r, &(paged_config){ .block_size = 16, .enable_prefix_caching = 1 });
    if (getenv("XRAY_TEST_LATE"))
        rig_make_late(r);
    if (getenv("XRAY_TEST_SPECULATE"))
        r->speculate = 4;
    return r;
}

void rig_close(rig *r)
{
    r->device->destroy(r->device_self);
    free(r);
}

static xray_memory_stats current_memory(rig *r)
{
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    assert_int_equal(r->device->memory(r->device_self, &stats), XRAY_OK);
    return stats;
}

uint64_t rig_high(rig *r, uint32_t tag)
{
    return current_memory(r).high[tag];
}

uint64_t rig_live(rig *r)
{
    xray_memory_stats stats = current_memory(r);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < XRAY_TAG_COUNT; i++)
        sum += stats.live[i];
    return sum;
}

uint64_t rig_scratch(rig *r)
{
    return current_memory(r).live[XRAY_TAG_WORKSPACE];
}

/* ---- models ------------------------------------------------------------- */

#define SIZES                                     \
    "\"num_hidden_layers\":3,\"vocab_size\":101," \
    "\"initializer_range\":0.3,\"eos_token_id\":2,"
#define GEMMA                                                   \
    SIZES "\"max_position_embeddings\":96,"                     \
          "\"rms_norm_eps\":1e-6,\"hidden_size\":32,"           \
          "\"intermediate_size\":48,\"num_attention_heads\":4," \
          "\"num_key_value_heads\":2,\"head_dim\":8,"           \
          "\"tie_word_embeddings\":true"
#define COMMON                              \
    SIZES "\"max_position_embeddings\":96," \
          "\"rms_norm_eps\":1e-6,\"hidden_act\":\"silu\","
#define PLAIN COMMON "\"rope_theta\":10000.0,"

/* Rows have up to 80 tokens: attention windows are shorter, learned positions
 * are not. */
static const char *const jsons[MODEL_COUNT] = {
    [MODEL_LLAMA] = "{\"model_type\":\"llama\"," PLAIN
                    "\"hidden_size\":32,\"intermediate_size\":72,"
                    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                    "\"tie_word_embeddings\":true}",
    [MODEL_LLAMA_UNTIED] =
        "{\"model_type\":\"llama\"," PLAIN
        "\"hidden_size\":48,\"intermediate_size\":40,"
        "\"num_attention_heads\":3,\"num_key_value_heads\":3,"
        "\"tie_word_embeddings\":false}",
    [MODEL_QWEN2] = "{\"model_type\":\"qwen2\"," PLAIN
                    "\"hidden_size\":40,\"intermediate_size\":56,"
                    "\"num_attention_heads\":5,\"num_key_value_heads\":1,"
                    "\"tie_word_embeddings\":true}",
    [MODEL_QWEN3] = "{\"model_type\":\"qwen3\"," PLAIN
                    "\"hidden_size\":32,\"intermediate_size\":64,"
                    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                    "\"head_dim\":16,\"tie_word_embeddings\":false}",
    [MODEL_LLAMA3] = "{\"model_type\":\"llama\"," COMMON
                     "\"hidden_size\":32,\"intermediate_size\":48,"
                     "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
                     "\"attention_bias\":true,\"mlp_bias\":true,"
                     "\"rope_theta\":10000.0,\"rope_scaling\":{"
                     "\"rope_type\":\"llama3\",\"factor\":8.0,"
                     "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                     "\"original_max_position_embeddings\":64}}",
    [MODEL_QWEN2_YARN] =
        "{\"model_type\":\"qwen2\"," COMMON
        "\"hidden_size\":32,\"intermediate_size\":48,"
        "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
        "\"use_sliding_window\":true,\"sliding_window\":21,"
        "\"max_window_layers\":1,\"rope_theta\":10000.0,"
        "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
        "\"original_max_position_embeddings\":24}}",
    [MODEL_MISTRAL] = "{\"model_type\":\"mistral\"," PLAIN
                      "\"hidden_size\":32,\"intermediate_size\":48,"
                      "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                      "\"sliding_window\":11}",
    [MODEL_GEMMA] = "{\"model_type\":\"gemma\"," GEMMA "}",
    [MODEL_GEMMA2] = "{\"model_type\":\"gemma2\"," GEMMA
                     ",\"query_pre_attn_scalar\":12,\"sliding_window\":9,"
                     "\"attn_logit_softcapping\":2.0,"
                     "\"final_logit_softcapping\":3.0}",
    [MODEL_GEMMA3] =
        "{\"model_type\":\"gemma3_text\"," GEMMA
        ",\"query_pre_attn_scalar\":12,\"sliding_window\":7,"
        "\"rope_theta\":1000000.0,\"rope_local_base_freq\":10000.0,"
        "\"sliding_window_pattern\":2}",
    [MODEL_GPT2] = "{\"model_type\":\"gpt2\",\"n_layer\":3,\"n_head\":4,"
                   "\"n_embd\":32,\"n_positions\":80,\"vocab_size\":101,"
                   "\"initializer_range\":0.3,\"eos_token_id\":2}",
    [MODEL_PHI3] = "{\"model_type\":\"phi3\"," PLAIN
                   "\"hidden_size\":32,\"intermediate_size\":40,"
                   "\"num_attention_heads\":2,\"num_key_value_heads\":1,"
                   "\"partial_rotary_factor\":0.75,\"sliding_window\":19,"
                   "\"pad_token_id\":0}",
};

model *model_open(rig *r, int which)
{
    return model_open_json(r, jsons[which]);
}

model *model_open_json(rig *r, const char *json)
{
    xr_err err = { "" };
    model *m = calloc(1, sizeof(*m));
    assert_non_null(m);
    m->json = json;
    m->seed = 5;
    if (xm_config_parse(m->json, "test", &err, &m->config) != XRAY_OK ||
        xm_layout_create(&m->config, 0, &err, &m->layout) != XRAY_OK ||
        xm_weights_create(m->layout, r->device, r->device_self, "test", 1, &err,
                          &m->weights) != XRAY_OK ||
        xm_weights_random(m->weights, &m->config, m->seed, &err) != XRAY_OK ||
        xm_weights_changed(m->weights, 0, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    return m;
}

void model_close(model *m)
{
    xm_weights_destroy(m->weights);
    xm_layout_destroy(m->layout);
    free(m);
}

/* ---- the engine --------------------------------------------------------- */

const void *rig_config(const rig *r, const engine_size *size,
                       engine_config *own)
{
    if (!r->paged.block_size) {
        own->dsinf = size->config;
        own->dsinf.speculate = r->speculate;
        return own;
    }
    paged_config *paged = &own->paged;
    *paged = r->paged;
    paged->weights = size->config.weights;
    paged->max_num_seqs = size->config.max_num_seqs;
    paged->max_num_batched_tokens = size->config.max_num_batched_tokens;
    if (!paged->kv_memory)
        paged->kv_memory = size->config.kv_memory;
    paged->speculate = r->speculate;
    return own;
}

xray_status engine_try(rig *r, const model *m, const xray_weights *weights,
                       const engine_size *size, void **out)
{
    xray_model about = { .header = XRAY_HEADER(xray_model),
                         .config_json = m->json,
                         .dtype = m->dtype ? m->dtype : XRAY_F32,
                         .vocab_size = m->config.vocab,
                         .max_positions = m->config.max_positions,
                         .random_init = 1,
                         .seed = m->seed };
    xray_world alone = { .header = XRAY_HEADER(xray_world), .size = 1 };
    xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                         .host = &r->host,
                         .device = r->device,
                         .device_self = r->device_self,
                         .model = &about,
                         .world = r->world ? r->world : &alone,
                         .weights = weights,
                         .role = XRAY_ROLE_ROLLOUT };
    xray_workload load = { .header = XRAY_HEADER(xray_workload),
                           .rows = size->rows,
                           .row_tokens = size->row_tokens,
                           .shared = weights != NULL };
    engine_config own;
    return r->ops->create(&setup, rig_config(r, size, &own), &load, out);
}

void *engine_open(rig *r, const model *m, const engine_size *size)
{
    void *engine = NULL;
    if (engine_try(r, m, &m->weights->table, size, &engine) != XRAY_OK)
        fail_msg("%s", r->said);
    return engine;
}

void engine_submit(rig *r, void *engine, const xray_request *request)
{
    if (r->ops->submit(engine, request) != XRAY_OK)
        fail_msg("%s", r->said);
}

void engine_poll(rig *r, void *engine, results *out)
{
    xray_sample_out s = { .header = XRAY_HEADER(xray_sample_out) };
    while (r->ops->poll(engine, &s) == XRAY_OK) {
        assert_true(out->count < MAX_OUT);
        assert_true(s.token_count <= MAX_OUT_TOKENS);
        result *to = &out->r[out->count++];
        to->id = s.id;
        to->sample = s.sample;
        to->count = s.token_count;
        to->finish = s.finish;
        memcpy(to->tokens, s.tokens, s.token_count * sizeof(*s.tokens));
        memcpy(to->raw, s.raw_logp, s.token_count * sizeof(*s.raw_logp));
        memcpy(to->logp, s.logp, s.token_count * sizeof(*s.logp));
    }
}

void engine_run(rig *r, void *engine, results *out)
{
    for (;;) {
        xray_status status = r->ops->step(engine);
        if (status < 0)
            fail_msg("%s", r->said);
        engine_poll(r, engine, out);
        if (status == XRAY_END)
            return;
    }
}

const result *result_find(const results *all, uint64_t id, uint32_t sample)
{
    for (uint32_t i = 0; i < all->count; i++)
        if (all->r[i].id == id && all->r[i].sample == sample)
            return &all->r[i];
    fail_msg("no result of request %llu, sample %u", (unsigned long long)id,
             sample);
    return NULL;
}

void results_equal(const results *a, const results *b)
{
    assert_int_equal(a->count, b->count);
    for (uint32_t i = 0; i < a->count; i++) {
        const result *x = &a->r[i];
        const result *y = result_find(b, x->id, x->sample);
        assert_int_equal(x->count, y->count);
        assert_int_equal(x->finish, y->finish);
        size_t bytes = x->count * sizeof(float);
        assert_memory_equal(x->tokens, y->tokens, bytes);
        assert_memory_equal(x->raw, y->raw, bytes);
        assert_memory_equal(x->logp, y->logp, bytes);
    }
}

xray_request request_make(uint64_t id, const int32_t *ids, uint32_t count,
                          uint32_t max_tokens)
{
    return (xray_request){ .header = XRAY_HEADER(xray_request),
                           .id = id,
                           .ids = ids,
                           .id_count = count,
                           .count = 1,
                           .max_tokens = max_tokens,
                           .seed = 42,
                           .step = 1,
                           .prompt_id = id,
                           .temperature = 1,
                           .top_p = 1 };
}

/* ---- the trainer
 * ------------------------------------------------------------- */

/* The device has host memory, so plain arrays serve as device arrays. */
void trainer_logp(rig *r, const model *m, const int32_t *row, uint32_t count,
                  uint32_t first, float temperature, float *out)
{
    (void)r;
    enum { CAP = 256 };
    xr_err err = { "" };
    xm_decoder *decoder = NULL;
    xm_space *space = NULL;
    int32_t positions[CAP], index[CAP], target[CAP];
    float temperatures[CAP];
    int32_t row_start[2] = { 0, (int32_t)count };
    uint32_t items = count - first;
    assert_true(count <= CAP);
    for (uint32_t i = 0; i < count; i++)
        positions[i] = (int32_t)i;
    for (uint32_t i = 0; i < items; i++) {
        index[i] = (int32_t)(first + i - 1);
        target[i] = row[first + i];
        temperatures[i] = temperature;
    }
    xm_pack pack = { .rows = 1,
                     .tokens = count,
                     .row_bound = count,
                     .ids = row,
                     .positions = positions,
                     .row_start = row_start };
    xm_items wanted = { .count = items,
                        .index = index,
                        .target = target,
                        .temperature = temperatures };
    xm_token_outputs heads;
    if (xm_decoder_create(&m->config, &m->weights->table,
                          m->config.max_positions, "test", &err,
                          &decoder) != XRAY_OK ||
        xm_space_create(decoder, count, 1, count, 0, "test", &err, &space) !=
            XRAY_OK ||
        xm_forward(decoder, space, &pack, &err) != XRAY_OK ||
        xm_outputs(decoder, space, &wanted, &heads, &err) != XRAY_OK)
        fail_msg("%s", err.text);
    memcpy(out, heads.logp, items * sizeof(*out));
    xm_space_destroy(space);
    xm_decoder_destroy(decoder);
}
