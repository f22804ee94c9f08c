/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that a plan refuses what cannot work, and that the planned bytes are
 * those that the device hands out.
 */
#include <signal.h>
#include <sys/resource.h>

#include "model/train/moments.h"
#include "model/train/trainer.h"
#include "tests/growth.h"
#include "tests/train/ranks.h"

static void refuse_plan(const rig_spec *spec, uint32_t world, const char *part)
{
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    assert_int_equal(rig_plan(spec, world, &plan), XRAY_E_CONFIG);
    if (!strstr(rig_error(), part))
        fail_msg("\"%s\" does not say \"%s\"", rig_error(), part);
}

static void plan_refuses(void **state)
{
    (void)state;
    rig_spec spec = { 0 };
    refuse_plan(&spec, 100000, "at most 1024");
    spec.offload_param = 1;
    spec.stage_1 = 2 + 1;
    refuse_plan(&spec, 2, "offload_param = host needs stage = 3");
    spec = (rig_spec){ .from_layer = 3 };
    refuse_plan(&spec, 1, "the model has 2");
    spec = (rig_spec){ 0 };
    spec.row_tokens = 65;
    refuse_plan(&spec, 1, "max_position_embeddings 64");
    spec.row_tokens = 60;
    spec.tokens = 59;
    refuse_plan(&spec, 1, "do not fit micro-batches of 59");
    spec = (rig_spec){ .config_json = "{\"model_type\":\"mamba\"}" };
    refuse_plan(&spec, 1, "mamba");

    /* The largest possible size. */
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    spec = (rig_spec){ .from_layer = 2 };
    assert_int_equal(rig_plan(&spec, 1, &plan), XRAY_OK);
    assert_int_equal(rig_plan(&spec, 1024, &plan), XRAY_OK);
    spec = (rig_spec){ .row_tokens = 64, .tokens = 64 };
    assert_int_equal(rig_plan(&spec, 1, &plan), XRAY_OK);

    rig_device device = rig_device_open(1);
    rig r;
    spec = (rig_spec){ .row_tokens = 65 };
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_E_CONFIG);
    assert_non_null(strstr(rig_error(), "max_position_embeddings 64"));
    spec = (rig_spec){ .path = "/no/such/folder", .config_json = rig_tiny };
    assert_true(rig_open(&device, &spec, &r) < 0);
    assert_non_null(strstr(rig_error(), "/no/such/folder"));
    spec = (rig_spec){ .offload_optimizer = 1, .offload_dir = "/no/such" };
    assert_true(rig_open(&device, &spec, &r) < 0);
    assert_non_null(strstr(rig_error(), "offload_dir"));
    assert_non_null(strstr(rig_error(), "/no/such"));
    char far[8192];
    memset(far, 'd', sizeof(far));
    far[sizeof(far) - 1] = '\0';
    spec.offload_dir = far;
    assert_true(rig_open(&device, &spec, &r) < 0);
    assert_null(strstr(rig_error(), "cannot create a file"));
    rig_device_close(&device);
}

/* Runs the largest batch for which the instance was created. */
static void run_largest_batch(const rig *r, const rig_spec *spec)
{
    static rows batch;
    static float logp[ROWS_TOKENS_MAX];
    rows_loss ctx = { .entropy_weight = 0.01 };
    xray_outputs out = { .header = XRAY_HEADER(xray_outputs), .logp = logp };
    xray_step_result result = { .header = XRAY_HEADER(xray_step_result) };
    uint32_t length = (uint32_t)spec->row_tokens;
    rows_full(&batch, (uint32_t)spec->tokens / length, length, 1000);
    assert_int_equal(
        forward_one(r->ops, r->self, &batch.batch, XRAY_OUTPUT_LOGP, &out),
        XRAY_OK);
    if (spec->frozen)
        return;
    xray_loss loss = rows_loss_of(&ctx, &batch);
    assert_int_equal(
        r->ops->forward_backward(r->self, batch.pointers, 1, &loss), XRAY_OK);
    assert_int_equal(r->ops->optimizer_step(r->self, 1e-3, 1, &result),
                     XRAY_OK);
}

/* Plans for rank 0; *out_work, unless that is NULL: the device's work. */
static xray_plan make_plan_of(const rig_spec *spec, uint32_t ranks,
                              xray_device_work *out_work)
{
    rig_request r = rig_request_of(spec);
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    xray_world world = { .header = XRAY_HEADER(xray_world), .size = ranks };
    const xray_train_ops *ops = rig_component_of(spec)->ops;
    r.load.device_work = out_work;
    if (ops->plan(rig_host(), r.config, &r.model, &world, &r.load, &plan) !=
        XRAY_OK)
        fail_msg("%s", rig_error());
    rig_request_free(&r);
    return plan;
}

/* Plans for any sizes, with the scratch memory of a device of `threads`. */
static xray_plan make_plan(const rig_spec *spec, uint32_t ranks,
                           uint32_t threads)
{
    rig_request r = rig_request_of(spec);
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    xray_device_work work = { .header = XRAY_HEADER(xray_device_work) };
    xray_world world = { .header = XRAY_HEADER(xray_world), .size = ranks };
    const xray_train_ops *ops = rig_component()->ops;
    r.load.device_work = &work;
    if (ops->plan(rig_host(), r.config, &r.model, &world, &r.load, &plan) !=
        XRAY_OK)
        fail_msg("%s", rig_error());
    plan.bytes[XRAY_TAG_WORKSPACE] += r.load.device->plan_scratch(
        r.load.device_config, threads, &work, 1, sizeof(work));
    rig_request_free(&r);
    return plan;
}

/* Compares planned bytes with what the device allocated: at most 4 KiB less
 * (allocations are rounded up), and at most an eighth and 16 KiB more. Weights
 * are exact. For workspace, which includes the device's own scratch memory, at
 * most half and 64 KiB more. */
static void check_plan(const rig_spec *spec)
{
    const xray_plan plan = make_plan(spec, 1, 1);
    xray_memory_stats memory = { .header = XRAY_HEADER(xray_memory_stats) };
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(rig_open(&device, spec, &r), XRAY_OK);
    run_largest_batch(&r, spec);
    assert_int_equal(device.ops->memory(device.self, &memory), XRAY_OK);
    for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++) {
        uint64_t high = memory.high[tag];
        uint64_t more = tag == XRAY_TAG_WEIGHTS     ? 0
                        : tag == XRAY_TAG_WORKSPACE ? high / 2 + 65536
                                                    : high / 8 + 16384;
        if (plan.bytes[tag] + 4096 < high || plan.bytes[tag] > high + more)
            fail_msg("tag %u: planned %llu, used %llu", tag,
                     (unsigned long long)plan.bytes[tag],
                     (unsigned long long)high);
    }
    assert_int_equal(plan.micro_multiple, 1);
    assert_int_equal(plan.token_multiple, 1);
    rig_close(&r);
    assert_int_equal(device.ops->memory(device.self, &memory), XRAY_OK);
    for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++)
        assert_int_equal(memory.live[tag], 0);
    rig_device_close(&device);
}

/* Offloaded values are kept in unlinked files, so none is left however the
 * process ends. */
static void no_file_is_left(void **state)
{
    (void)state;
    char dir[256];
    rig_spec spec = { .offload_optimizer = 1, .offload_param = 1 };
    rig_device device = rig_device_open(1);
    rig r;
    spec.offload_dir = rig_mkdir(dir, sizeof(dir));
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    assert_int_equal(rmdir(dir),
                     0); /* the folder is empty while they are in use */
    rig_close(&r);
    rig_device_close(&device);
}

/* Without a folder of the run's own, its files are in TMPDIR, or in /tmp. */
static void files_are_in_the_folder_for_temporary_ones(void **state)
{
    (void)state;
    const char *own = getenv("TMPDIR");
    char *kept = own ? strdup(own) : NULL;
    rig_spec spec = { .offload_optimizer = 1, .offload_dir = "" };
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(setenv("TMPDIR", "/no/such", 1), 0);
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_E_IO);
    assert_non_null(strstr(rig_error(), "cannot create a file in /no/such: "));
    assert_int_equal(setenv("TMPDIR", "", 1), 0);
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rig_close(&r);
    assert_int_equal(kept ? setenv("TMPDIR", kept, 1) : unsetenv("TMPDIR"), 0);
    free(kept);
    rig_device_close(&device);
}

/* A file that cannot have its size is refused when it is made; a later access
 * would end the process. */
static void offloading_needs_room_for_its_files(void **state)
{
    (void)state;
    char dir[256];
    rig_spec spec = { .offload_optimizer = 1 };
    rig_device device = rig_device_open(1);
    struct rlimit own;
    rig r;
    spec.offload_dir = rig_mkdir(dir, sizeof(dir));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &own), 0);
    const struct rlimit small = { 4096, own.rlim_max };
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    xray_status status = rig_open(&device, &spec, &r);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &own), 0);
    (void)signal(SIGXFSZ, before);
    assert_int_equal(status, XRAY_E_IO);
    assert_non_null(strstr(rig_error(), "offload_dir: no space for"));
    assert_int_equal(rmdir(dir), 0);
    rig_device_close(&device);
}

/* Writes to every gradient that it is given; each has memory of its own. */
static xray_status write_each_gradient(void *ctx, const xray_loss_call *call)
{
    float *const all[] = { call->dlogp, call->dentropy, call->dvalue };
    uint32_t tokens = call->batch->tokens;
    (void)ctx;
    for (int i = 0; i < 3; i++)
        for (uint32_t t = 0; t < tokens; t++) {
            assert_true(all[i][t] == 0);
            all[i][t] = (float)(i + 1);
        }
    for (int i = 0; i < 3; i++)
        for (uint32_t t = 0; t < tokens; t++)
            assert_true(all[i][t] == (float)(i + 1));
    return XRAY_OK;
}

static void gradients_are_apart(void **state)
{
    (void)state;
    static rows batch;
    const rig_spec spec = { .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                       XRAY_OUTPUT_VALUE };
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    rows_full(&batch, 256 / 32, 32, 40); /* as many tokens as fit */
    const xray_loss loss = { .header = XRAY_HEADER(xray_loss),
                             .fn = write_each_gradient,
                             .outputs = spec.outputs };
    for (int call = 0; call < 2; call++)
        if (r.ops->forward_backward(r.self, batch.pointers, 1, &loss) !=
            XRAY_OK)
            fail_msg("%s", rig_error());
    rig_close(&r);
    rig_device_close(&device);
}

#define WIDE                                                   \
    "\"architectures\":[\"Any\"],\"hidden_size\":96,"          \
    "\"num_hidden_layers\":3,\"num_attention_heads\":6,"       \
    "\"num_key_value_heads\":2,"                               \
    "\"intermediate_size\":264,\"vocab_size\":1000,"           \
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-5,"   \
    "\"initializer_range\":0.02,\"tie_word_embeddings\":true," \
    "\"bos_token_id\":1,\"eos_token_id\":2}"

static void planned_bytes_are_allocated(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"model_type\":\"llama\",\"hidden_act\":\"silu\","
        "\"rope_theta\":10000.0," WIDE,
        "{\"model_type\":\"gemma2\",\"head_dim\":32,"
        "\"sliding_window\":50," WIDE,
        "{\"model_type\":\"gemma3_text\",\"head_dim\":32,"
        "\"sliding_window\":50,\"sliding_window_pattern\":3," WIDE,
        "{\"model_type\":\"phi3\",\"pad_token_id\":0,"
        "\"partial_rotary_factor\":0.5," WIDE,
        "{\"model_type\":\"gpt2\",\"n_embd\":96,\"n_layer\":3,"
        "\"n_head\":6,\"n_positions\":512,\"vocab_size\":1000,"
        "\"bos_token_id\":1,\"eos_token_id\":2}",
    };
    for (size_t i = 0; i < sizeof(models) / sizeof(models[0]); i++) {
        rig_spec spec = { .config_json = models[i],
                          .tokens = 256,
                          .rows = 16,
                          .row_tokens = 64 };
        check_plan(&spec);
        spec.checkpointing = 1;
        check_plan(&spec);
        spec.head_logits = 1;
        check_plan(&spec);
        spec.checkpointing = 0;
        spec.head_logits = 2;
        check_plan(&spec);
        spec.from_layer = 2;
        check_plan(&spec);
        spec.from_layer = 0;
        spec.dtype = XRAY_BF16;
        check_plan(&spec);
        spec.dtype = 0;
        spec.outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE;
        spec.frozen = 1;
        check_plan(&spec);
    }
}

/* Returns the bytes of activations added by keeping the logits of `tokens`
 * tokens. */
static uint64_t bytes_of_kept_logits(rig_spec spec, uint64_t tokens,
                                     uint32_t how)
{
    xray_plan plans[2] = { { .header = XRAY_HEADER(xray_plan) },
                           { .header = XRAY_HEADER(xray_plan) } };
    spec.tokens = tokens;
    spec.head_logits = how;
    assert_int_equal(rig_plan(&spec, 1, &plans[0]), XRAY_OK);
    spec.head_logits = 2;
    assert_int_equal(rig_plan(&spec, 1, &plans[1]), XRAY_OK);
    return plans[0].bytes[XRAY_TAG_ACTIVATIONS] -
           plans[1].bytes[XRAY_TAG_ACTIVATIONS];
}

/* With a vocabulary of 40 a row takes 192 bytes; auto stops at 256 MiB. */
static void logits_are_kept_up_to_256_mib(void **state)
{
    (void)state;
    const uint64_t most = ((uint64_t)256 << 20) / 192;
    rig_spec spec = { .rows = 4 };
    assert_int_equal(bytes_of_kept_logits(spec, 1000, 0), 1000 * 192);
    assert_int_equal(bytes_of_kept_logits(spec, most, 0), most * 192);
    assert_int_equal(bytes_of_kept_logits(spec, most + 1, 0), 0);
    assert_int_equal(bytes_of_kept_logits(spec, most + 1, 1), (most + 1) * 192);
    spec.checkpointing = 1;
    assert_int_equal(bytes_of_kept_logits(spec, 1000, 0), 0);
    assert_int_equal(bytes_of_kept_logits(spec, 1000, 1), 1000 * 192);
    spec.checkpointing = 0;
    spec.outputs = XRAY_OUTPUT_VALUE;
    assert_int_equal(bytes_of_kept_logits(spec, 1000, 1), 0);
    spec.outputs = XRAY_OUTPUT_LOGP;
    spec.frozen = 1;
    assert_int_equal(bytes_of_kept_logits(spec, 1000, 1), 0);
}

static uint64_t planned_bytes_of(const rig_spec *spec, uint32_t ranks,
                                 uint32_t tag)
{
    return make_plan(spec, ranks, 1).bytes[tag];
}

#define SIZED                                                               \
    "{\"model_type\":\"llama\",\"hidden_act\":\"silu\",\"hidden_size\":32," \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,"                    \
    "\"num_key_value_heads\":1,\"intermediate_size\":32,"                   \
    "\"max_position_embeddings\":8192,\"rms_norm_eps\":1e-5,"               \
    "\"rope_theta\":10000.0,\"tie_word_embeddings\":true,\"vocab_size\":"

/* Scratch memory of a device: logits of one chunk where they are not kept, and
 * at least 1 MiB per thread. */
static void scratch_follows_chunks_and_threads(void **state)
{
    (void)state;
    const uint64_t mib = 1u << 20;
    const uint64_t cores = (uint64_t)sysconf(_SC_NPROCESSORS_ONLN);
    static const struct {
        const char *json;
        uint64_t row;   /* bytes of a row of logits */
        uint64_t chunk; /* of them */
    } cases[] = { { SIZED "40}", 192, 1024 },
                  { SIZED "4096}", 16384, 1024 },
                  { SIZED "8192}", 32768, 512 },
                  { SIZED "300000}", 1200000, 16 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig_spec spec = { .config_json = cases[i].json, .head_logits = 1 };
        uint64_t part = cases[i].row > mib ? cases[i].row : mib;
        uint64_t one = make_plan(&spec, 1, 1).bytes[XRAY_TAG_WORKSPACE];
        assert_int_equal(make_plan(&spec, 1, 0).bytes[XRAY_TAG_WORKSPACE],
                         one + (cores - 1) * part);
        assert_int_equal(make_plan(&spec, 1, 3).bytes[XRAY_TAG_WORKSPACE],
                         one + 2 * part);
        spec.head_logits = 2;
        uint64_t again = make_plan(&spec, 1, 1).bytes[XRAY_TAG_WORKSPACE];
        assert_int_equal(again,
                         one - part + mib + cases[i].chunk * cases[i].row);
        assert_int_equal(make_plan(&spec, 1, 2).bytes[XRAY_TAG_WORKSPACE],
                         again + mib);
    }
    /* Scores, keys and gradients of a row of 4000 tokens in one head of size
     * 16. */
    rig_spec spec = { .config_json = SIZED "40}",
                      .tokens = 8000,
                      .row_tokens = 3990 };
    assert_int_equal(make_plan(&spec, 1, 2).bytes[XRAY_TAG_WORKSPACE] -
                         make_plan(&spec, 1, 1).bytes[XRAY_TAG_WORKSPACE],
                     4000 * (512 + 20 * 16) + 64 * sizeof(float));
}

/* Each option changes its own bytes and no others. */
static void plan_of_options(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 4; ranks += 3)
        for (uint32_t stage = 0; stage < 4; stage++) {
            rig_spec spec = { .stage_1 = stage + 1 };
            const xray_plan plain = make_plan(&spec, ranks, 1);
            assert_int_equal(plain.sharded, ranks > 1 && stage == 3);
            assert_int_equal(plain.evictable, 1u << XRAY_TAG_WEIGHTS |
                                                  1u << XRAY_TAG_GRADS |
                                                  1u << XRAY_TAG_OPTIMIZER |
                                                  1u << XRAY_TAG_ACTIVATIONS);
            spec.offload_optimizer = 1;
            const xray_plan moved = make_plan(&spec, ranks, 1);
            for (uint32_t tag = 0; tag < XRAY_TAG_COUNT; tag++)
                if (tag != XRAY_TAG_OPTIMIZER)
                    assert_int_equal(moved.bytes[tag], plain.bytes[tag]);
            /* Both moments of each element that a rank updates are removed. */
            uint64_t gone = plain.bytes[XRAY_TAG_OPTIMIZER] -
                            moved.bytes[XRAY_TAG_OPTIMIZER];
            uint64_t all = planned_bytes_of(&(rig_spec){ .stage_1 = 1 }, 1,
                                            XRAY_TAG_GRADS);
            uint64_t share = stage && ranks > 1 ? ranks : 1;
            assert_true(gone >= 2 * all / share &&
                        gone <= 2 * all / share + 4096);
            assert_true(moved.bytes[XRAY_TAG_OPTIMIZER] > 0 &&
                        moved.bytes[XRAY_TAG_OPTIMIZER] < 4096);
        }
    rig_spec spec = { .offload_param = 1 };
    assert_int_equal(make_plan(&spec, 1, 1).sharded, 1);
    assert_null(make_plan(&spec, 1, 1).numerics);
    spec = (rig_spec){ .dtype = XRAY_BF16 };
    const char *numerics = make_plan(&spec, 1, 1).numerics;
    assert_non_null(numerics);
    assert_string_equal(numerics, XRAY_NUMERICS_BF16);
    /* A value head adds a row of 32 and a bias to weights and gradients. */
    spec = (rig_spec){ .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE };
    rig_spec none = { .outputs = XRAY_OUTPUT_LOGP };
    assert_true(planned_bytes_of(&spec, 1, XRAY_TAG_WEIGHTS) >=
                planned_bytes_of(&none, 1, XRAY_TAG_WEIGHTS) + 128);
    assert_true(planned_bytes_of(&spec, 1, XRAY_TAG_GRADS) >=
                planned_bytes_of(&none, 1, XRAY_TAG_GRADS) + 128);
    /* An instance that is not trained has neither; its frozen blocks do not
     * matter. */
    none.frozen = 1;
    none.from_layer = 1;
    assert_int_equal(planned_bytes_of(&none, 1, XRAY_TAG_GRADS), 0);
    assert_int_equal(planned_bytes_of(&none, 1, XRAY_TAG_OPTIMIZER), 0);
}

static uint32_t host_memory; /* what the device of a plan says */

static xray_status plan_memory(const xray_host *host, const void *config,
                               xray_device_plan *out)
{
    (void)host;
    (void)config;
    out->host_memory = host_memory;
    return XRAY_OK;
}

/* Moments that are not in the device's own memory are streamed through slots
 * there, and weights cannot be. A device that is not known has both. */
static void plan_of_a_device_apart(void **state)
{
    (void)state;
    xray_plan plans[3];
    const rig_spec moments = { .offload_optimizer = 1 };
    const rig_spec weights = { .offload_param = 1 };
    const xray_train_ops *ops = rig_component()->ops;
    const xray_world world = { .header = XRAY_HEADER(xray_world), .size = 1 };
    for (int i = 0; i < 3; i++) {
        rig_request m = rig_request_of(&moments);
        rig_request w = rig_request_of(&weights);
        xray_device_ops device = *m.load.device;
        device.plan = plan_memory;
        host_memory = i == 1;
        m.load.device = w.load.device = i < 2 ? &device : NULL;
        plans[i] = (xray_plan){ .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(ops->plan(rig_host(), m.config, &m.model, &world,
                                   &m.load, &plans[i]),
                         XRAY_OK);
        xray_plan none = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(
            ops->plan(rig_host(), w.config, &w.model, &world, &w.load, &none),
            i ? XRAY_OK : XRAY_E_CONFIG);
        rig_request_free(&m);
        rig_request_free(&w);
    }
    assert_int_equal(plans[0].bytes[XRAY_TAG_WORKSPACE],
                     plans[1].bytes[XRAY_TAG_WORKSPACE] + xm_moments_bytes());
    assert_int_equal(plans[2].bytes[XRAY_TAG_WORKSPACE],
                     plans[1].bytes[XRAY_TAG_WORKSPACE]);
    /* Two moments of each of the elements that have gradients. */
    for (int i = 0; i < 3; i++)
        assert_int_equal(plans[i].offloaded,
                         2 * planned_bytes_of(&(rig_spec){ .stage_1 = 1 }, 1,
                                              XRAY_TAG_GRADS));
}

/* A block keeps what docs/megatron.md says: here 24 hidden elements, an MLP of
 * 32, two blocks. */
static void recomputing_takes_less_memory(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < 4; i++) {
        rig_spec spec = { .config_json = ranks_qwen3,
                          .tensor = 1 + i / 2,
                          .head_logits = 2,
                          .dtype = i % 2 ? XRAY_BF16 : XRAY_F32 };
        uint64_t bytes[3];
        for (uint32_t k = 0; k < 3; k++) {
            static const uint32_t kinds[] = { XM_TRAINER_RECOMPUTE_NONE,
                                              XM_TRAINER_RECOMPUTE_SELECTIVE,
                                              XM_TRAINER_RECOMPUTE_FULL };
            spec.checkpointing = kinds[k];
            bytes[k] = make_plan_of(&spec, 2, NULL).bytes[XRAY_TAG_ACTIVATIONS];
        }
        assert_int_equal(bytes[0] - bytes[1], (2 * 256) *
                                                  (2 * 24 + 32 / spec.tensor) *
                                                  (i % 2 ? 2 : 4));
        assert_true(bytes[1] > bytes[2]);
    }
}

#define ROWS (XRAY_PASS_ROWS | XRAY_PASS_PARENTS)
#define TRAINS (ROWS | XRAY_PASS_GRADS)

/* The device takes scratch memory for what an instance asks of it and for
 * nothing else. */
static void a_plan_says_what_the_device_computes(void **state)
{
    (void)state;
    static const struct {
        rig_spec spec;
        uint32_t passes;
    } cases[] = {
        { { 0 }, TRAINS | XRAY_PASS_LOGP | XRAY_PASS_LOGITS },
        { { .head_logits = 2 }, TRAINS | XRAY_PASS_LOGP },
        { { .outputs = XRAY_OUTPUT_VALUE }, TRAINS },
        { { .frozen = 1 }, ROWS | XRAY_PASS_LOGP },
        { { .tensor = 1, .stages = 2 }, TRAINS },
        { { .tensor = 1, .stages = 2, .frozen = 1 }, ROWS },
        { { .tensor = 1, .stages = 2, .from_layer = 1 }, ROWS },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        xray_device_work work = { .header = XRAY_HEADER(xray_device_work) };
        (void)make_plan_of(&cases[i].spec, 2, &work);
        if (work.passes != cases[i].passes)
            fail_msg("case %zu: passes %u, expected %u", i, work.passes,
                     cases[i].passes);
        assert_int_equal(work.tokens, 256);
        assert_int_equal(work.row_tokens, 48);
        assert_int_equal(work.hidden, 32);
        assert_int_equal(work.width, 2 * 56);
        assert_int_equal(work.sides, 32 + 2 * 56);
        assert_int_equal(work.vocab, 40);
        assert_int_equal(work.heads, 4);
        assert_int_equal(work.kv_heads, 2);
        assert_int_equal(work.head_dim, 8);
    }
}

/* A caller that was compiled against an older version. */
static void structs_of_older_callers_are_filled(void **state)
{
    (void)state;
    const rig_spec spec = { 0 };
    xray_plan plan;
    xray_step_result result;
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_OK);
    EXPECT_FILLED_IN_REACH(xray_step_result, result, version,
                           r.ops->optimizer_step(r.self, 1e-3, 1, &result));
    rig_close(&r);
    rig_device_close(&device);
    EXPECT_FILLED_IN_REACH(xray_plan, plan, evictable,
                           rig_plan(&spec, 1, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_file_is_left),
        cmocka_unit_test(files_are_in_the_folder_for_temporary_ones),
        cmocka_unit_test(offloading_needs_room_for_its_files),
        cmocka_unit_test(gradients_are_apart),
        cmocka_unit_test(plan_refuses),
        cmocka_unit_test(planned_bytes_are_allocated),
        cmocka_unit_test(logits_are_kept_up_to_256_mib),
        cmocka_unit_test(scratch_follows_chunks_and_threads),
        cmocka_unit_test(plan_of_options),
        cmocka_unit_test(plan_of_a_device_apart),
        cmocka_unit_test(recomputing_takes_less_memory),
        cmocka_unit_test(a_plan_says_what_the_device_computes),
        cmocka_unit_test(structs_of_older_callers_are_filled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
