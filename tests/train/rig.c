/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements the fixtures of tests/train.
 */
#include <xray/box.h>

#include "tests/train/rig.h"

#include "core/base/file.h"
#include "core/base/str.h"

const xray_plugin *xray_plugin_query_backend_zero3(uint32_t host_abi);
const xray_plugin *xray_plugin_query_backend_megatron(uint32_t host_abi);
const xray_plugin *xray_plugin_query_device_cpu(uint32_t host_abi);

const char rig_tiny[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":32,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
    "\"intermediate_size\":56,\"vocab_size\":40,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":false,\"bos_token_id\":1,\"eos_token_id\":2}";
const char rig_tiny_tied[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":24,\"num_hidden_layers\":2,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"intermediate_size\":40,\"vocab_size\":37,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";

/* ---- host --------------------------------------------------------------- */

static char error_text[2048];
static char error_where[64];
static char log_text[1024];

static void host_log(const xray_host *host, uint32_t level, const char *msg)
{
    (void)host;
    (void)level;
    (void)snprintf(log_text, sizeof(log_text), "%s", msg);
}

static xray_status host_fail(const xray_host *host, xray_status code,
                             const char *where, const char *msg)
{
    (void)host;
    (void)snprintf(error_where, sizeof(error_where), "%s", where);
    (void)snprintf(error_text, sizeof(error_text), "%s", msg);
    return code;
}

const xray_call_service *rig_calls;

static const void *host_service(const xray_host *host, const char *id)
{
    (void)host;
    return strcmp(id, XRAY_SERVICE_CALLS) == 0 ? rig_calls : NULL;
}

const xray_host *rig_host(void)
{
    static const xray_host host = { .header = XRAY_HEADER(xray_host),
                                    .version = "test",
                                    .log = host_log,
                                    .fail = host_fail,
                                    .service = host_service };
    return &host;
}

const char *rig_error(void)
{
    return error_text;
}

const char *rig_where(void)
{
    return error_where;
}

const char *rig_log(void)
{
    return log_text;
}

void rig_clear(void)
{
    error_text[0] = '\0';
    error_where[0] = '\0';
    log_text[0] = '\0';
}

/* ---- plugins ------------------------------------------------------------ */

/* Sets every option to its declared default. */
static void *make_config(const xray_component *component)
{
    char *config = calloc(1, component->config_size + 1);
    assert_non_null(config);
    for (uint32_t i = 0; i < component->option_count; i++) {
        const xray_option *option = &component->options[i];
        void *to = config + option->offset;
        const char *text = option->preset;
        int64_t number = 0;
        double real = 0;
        if (option->type == XRAY_OPT_REAL) {
            assert_int_equal(xr_parse_real(text, &real), 0);
            memcpy(to, &real, sizeof(real));
        } else if (option->type == XRAY_OPT_INT) {
            assert_int_equal(xr_parse_int(text, &number), 0);
            memcpy(to, &number, sizeof(number));
        } else if (option->type == XRAY_OPT_BOOL) {
            uint32_t flag = strcmp(text, "true") == 0;
            memcpy(to, &flag, sizeof(flag));
        } else if (option->type == XRAY_OPT_CHOICE) {
            for (const xray_choice *c = option->choices; c->name;
                 c = xray_next_choice(option, c))
                if (strcmp(c->name, text) == 0)
                    memcpy(to, &c->value, sizeof(c->value));
        }
    }
    return config;
}

rig_device rig_device_open(uint32_t threads)
{
    const xray_plugin *plugin = xray_plugin_query_device_cpu(XRAY_ABI);
    const xray_component *component = plugin->components[0];
    rig_device device = { .ops = component->ops };
    assert_string_equal(component->iface, XRAY_IFACE_DEVICE);
    device.config = make_config(component);
    assert_int_equal(
        device.ops->create(rig_host(), device.config, threads, &device.self),
        XRAY_OK);
    return device;
}

void rig_device_close(rig_device *device)
{
    /* Every optimizer that was created on the device has freed its memory. */
    xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
    if (device->ops->memory)
        assert_int_equal(device->ops->memory(device->self, &stats), XRAY_OK);
    assert_int_equal(stats.live[XRAY_TAG_OPTIMIZER], 0);
    device->ops->destroy(device->self);
    free(device->config);
    device->config = NULL;
}

const xray_component *rig_component(void)
{
    return xray_plugin_query_backend_zero3(XRAY_ABI)->components[0];
}

const xray_component *rig_component_of(const rig_spec *spec)
{
    return spec->tensor
               ? xray_plugin_query_backend_megatron(XRAY_ABI)->components[0]
               : rig_component();
}

static void set_option(const xray_component *component, void *config,
                       const char *name, const void *value, size_t size)
{
    for (uint32_t i = 0; i < component->option_count; i++)
        if (strcmp(component->options[i].name, name) == 0) {
            memcpy((char *)config + component->options[i].offset, value, size);
            return;
        }
    fail_msg("no option %s", name);
}

static void set_zero3_options(const rig_spec *spec, void *config)
{
    const xray_component *zero3 = rig_component();
    int64_t stage = spec->stage_1 ? spec->stage_1 - 1 : 3;
    int64_t optimizer = spec->offload_optimizer;
    int64_t param = spec->offload_param;
    set_option(zero3, config, "gradient_checkpointing", &spec->checkpointing,
               sizeof(spec->checkpointing));
    set_option(zero3, config, "stage", &stage, sizeof(stage));
    if (spec->no_prefetch)
        set_option(zero3, config, "prefetch", &(uint32_t){ 0 },
                   sizeof(uint32_t));
    set_option(zero3, config, "offload_optimizer", &optimizer,
               sizeof(optimizer));
    set_option(zero3, config, "offload_param", &param, sizeof(param));
}

static void set_megatron_options(const rig_spec *spec, void *config)
{
    const xray_component *megatron = rig_component_of(spec);
    int64_t tensor = spec->tensor;
    int64_t context = spec->context ? spec->context : 1;
    int64_t stages = spec->stages ? spec->stages : 1;
    int64_t chunks = spec->chunks ? spec->chunks : 1;
    int64_t first = spec->first_layers;
    int64_t last = spec->last_layers;
    int64_t recompute = spec->checkpointing;
    uint32_t distributed = !spec->all_moments;
    uint32_t overlap = !spec->no_overlap;
    set_option(megatron, config, "tensor_model_parallel_size", &tensor,
               sizeof(tensor));
    set_option(megatron, config, "context_parallel_size", &context,
               sizeof(context));
    set_option(megatron, config, "pipeline_model_parallel_size", &stages,
               sizeof(stages));
    set_option(megatron, config, "virtual_pipeline_model_parallel_size",
               &chunks, sizeof(chunks));
    set_option(megatron, config, "decoder_first_pipeline_num_layers", &first,
               sizeof(first));
    set_option(megatron, config, "decoder_last_pipeline_num_layers", &last,
               sizeof(last));
    set_option(megatron, config, "recompute_granularity", &recompute,
               sizeof(recompute));
    set_option(megatron, config, "sequence_parallel", &spec->sequence,
               sizeof(spec->sequence));
    set_option(megatron, config, "use_distributed_optimizer", &distributed,
               sizeof(distributed));
    set_option(megatron, config, "overlap_grad_reduce", &overlap,
               sizeof(overlap));
    set_option(megatron, config, "optimizer_cpu_offload",
               &spec->offload_optimizer, sizeof(spec->offload_optimizer));
}

static void set_adamw_options(const rig_spec *spec,
                              const xray_component *component, void *config)
{
    const double values[] = { spec->beta1, spec->beta2, spec->eps };
    static const char *const names[] = { "beta1", "beta2", "eps" };
    for (int i = 0; i < 3; i++)
        if (values[i] != 0)
            set_option(component, config, names[i], &values[i], sizeof(double));
}

rig_request rig_request_of(const rig_spec *spec)
{
    const xray_component *component = rig_component_of(spec);
    rig_request r = { .config = make_config(component) };
    double decay = spec->weight_decay < 0 ? 0 : spec->weight_decay;
    int64_t logits = spec->head_logits;
    if (spec->tensor)
        set_megatron_options(spec, r.config);
    else
        set_zero3_options(spec, r.config);
    set_option(component, r.config, "head_logits", &logits, sizeof(logits));
    set_option(component, r.config, "offload_dir", &spec->offload_dir,
               sizeof(spec->offload_dir));
    if (spec->weight_decay != 0)
        set_option(component, r.config, "weight_decay", &decay, sizeof(decay));
    set_adamw_options(spec, component, r.config);
    if (spec->path && !spec->config_json) {
        char path[512];
        size_t size = 0;
        xr_err err;
        (void)snprintf(path, sizeof(path), "%s/config.json", spec->path);
        assert_int_equal(xr_file_read(path, 1u << 20, &err, &r.text, &size),
                         XRAY_OK);
    }
    r.model = (xray_model){
        .header = XRAY_HEADER(xray_model),
        .path = spec->path,
        .config_json = r.text              ? r.text
                       : spec->config_json ? spec->config_json
                                           : rig_tiny,
        .dtype = spec->dtype ? spec->dtype : XRAY_F32,
        .random_init = !spec->path,
        .seed = spec->seed,
    };
    r.load = (xray_workload){
        .header = XRAY_HEADER(xray_workload),
        .segments = spec->segments,
        .tokens = spec->tokens ? spec->tokens : 256,
        .rows = spec->rows ? spec->rows : 32,
        .row_tokens = spec->row_tokens ? spec->row_tokens : 48,
        .outputs = spec->outputs ? spec->outputs
                                 : XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY,
        .trainable = !spec->frozen,
        .trainable_from_layer = spec->from_layer,
        .device = xray_plugin_query_device_cpu(XRAY_ABI)->components[0]->ops,
    };
    return r;
}

void rig_request_free(rig_request *r)
{
    free(r->text);
    free(r->config);
}

xray_status rig_open(const rig_device *device, const rig_spec *spec, rig *out)
{
    rig_request r = rig_request_of(spec);
    xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                         .host = rig_host(),
                         .device = device->ops,
                         .device_self = device->self,
                         .model = &r.model,
                         .world = &world,
                         .role = XRAY_ROLE_ACTOR,
                         .trainable = !spec->frozen,
                         .trainable_from_layer = spec->from_layer };
    out->ops = rig_component_of(spec)->ops;
    rig_clear();
    xray_status status =
        out->ops->create(&setup, r.config, &r.load, &out->self);
    rig_request_free(&r);
    return status;
}

xray_status rig_plan(const rig_spec *spec, uint32_t world_size, xray_plan *out)
{
    return rig_plan_rank(spec, 0, world_size, out);
}

xray_status rig_plan_rank(const rig_spec *spec, uint32_t rank,
                          uint32_t world_size, xray_plan *out)
{
    rig_request r = rig_request_of(spec);
    const xray_train_ops *ops = rig_component_of(spec)->ops;
    xray_world world = { .header = XRAY_HEADER(xray_world),
                         .rank = rank,
                         .size = world_size };
    rig_clear();
    xray_status status =
        ops->plan(rig_host(), r.config, &r.model, &world, &r.load, out);
    rig_request_free(&r);
    return status;
}

void rig_close(rig *r)
{
    r->ops->destroy(r->self);
    r->self = NULL;
}

/* ---- weights ------------------------------------------------------------ */

const xray_train_debug *rig_debug(const rig *r)
{
    return r->ops->extension(r->self, XRAY_EXT_TRAIN_DEBUG);
}

const xray_tensor *rig_tensor(const xray_weights *weights, const char *name)
{
    for (uint32_t i = 0; i < weights->tensor_count; i++)
        if (strcmp(weights->tensors[i].name, name) == 0)
            return &weights->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

int rig_weights_differ(const xray_weights *a, const xray_weights *b)
{
    assert_int_equal(a->tensor_count, b->tensor_count);
    for (uint32_t i = 0; i < a->tensor_count; i++) {
        const xray_tensor *x = &a->tensors[i];
        const xray_tensor *y = rig_tensor(b, x->name);
        uint64_t count = xray_box_count(x);
        assert_int_equal(count, xray_box_count(y));
        if (memcmp(x->data, y->data, count * sizeof(float)) != 0) {
            print_message("first difference in %s\n", x->name);
            return 1;
        }
    }
    return 0;
}

void rig_same_weights(const rig *a, const rig *b)
{
    assert_false(
        rig_weights_differ(a->ops->weights(a->self), b->ops->weights(b->self)));
}

/* ---- folders ------------------------------------------------------------ */

const char *rig_mkdir(char *buffer, size_t cap)
{
    const char *root = getenv("TMPDIR");
    (void)snprintf(buffer, cap, "%s/xray-train-XXXXXX", root ? root : "/tmp");
    assert_non_null(mkdtemp(buffer));
    return buffer;
}

void rig_rmdir(const char *path)
{
    xr_err err;
    assert_int_equal(xr_dir_remove(path, &err), XRAY_OK);
}
