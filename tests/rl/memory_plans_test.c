/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a run is estimated to need, with plugins whose plans the test
 * makes up: memory of each part, rank and turn, and bytes of a checkpoint.
 * Every figure is computed by hand.
 */
#include "tests/testing.h"

#include "core/base/str.h"
#include "core/run/placement.h"
#include "core/run/resources.h"
#include "core/run/reward_model.h"
#include "core/run/rows.h"

#define BIT(tag) (1u << (tag))

/* A model of 164 parameters: embedding 32, attention 48, MLP 72, norms 12. */
static char model_json[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\","
    "\"hidden_act\":\"silu\",\"hidden_size\":4,\"intermediate_size\":6,"
    "\"max_position_embeddings\":64,\"num_attention_heads\":2,"
    "\"num_hidden_layers\":1,\"num_key_value_heads\":1,\"rms_norm_eps\":1e-5,"
    "\"tie_word_embeddings\":true,\"vocab_size\":8}";
enum { PARAMETERS = 164 };

/* ---- plugins ------------------------------------------------------------ */

static struct {
    uint64_t unit[XRAY_ROLE_REWARD + 1]; /* tag t takes unit * (t + 1) */
    uint32_t evictable;
    uint32_t sharded;
    const char *refused[XRAY_ROLE_REWARD + 1]; /* the sentence of a refusal */
    xray_device_plan machine;
    uint64_t scratch; /* of a device, for each token of the longest work */
    xray_workload load[XRAY_ROLE_REWARD + 1]; /* workload that was passed */
    const xray_model *model[XRAY_ROLE_REWARD + 1];
    uint32_t size[XRAY_ROLE_REWARD + 1]; /* size of the world that was passed */
    /* Roles that were asked, in order: for layouts, then for memory. */
    char asked[64];
} fake;

static xr_run run;
static char critic_path[] = "a folder of its own";
static char options; /* stands for decoded options */
static xr_reward_model_config score_options;

/* A sentence that begins with a path is about that file. */
static xray_status refuse_plan(const xray_host *host, const char *text)
{
    char file[64];
    const char *rest = strchr(text, ':');
    if (*text != '/' || !rest)
        return (host->fail)(host, XRAY_E_CONFIG, "plan", text);
    (void)snprintf(file, sizeof(file), "%.*s", (int)(rest - text), text);
    const xray_location place = { .header = XRAY_HEADER(xray_location),
                                  .file = file };
    return host->fail_at(host, XRAY_E_CONFIG, "plan", &place, rest);
}

static xray_status answer_plan(const xray_host *host, uint32_t role,
                               const xray_world *world,
                               const xray_workload *load, xray_plan *out)
{
    fake.load[role] = *load;
    size_t asked = strlen(fake.asked);
    assert_int_equal(world->global_ranks[world->rank], world->rank);
    /* Only the first calls are kept. */
    if (world->rank == 0 && asked + 1 < sizeof(fake.asked))
        fake.asked[asked] = (char)('0' + role);
    if (fake.refused[role])
        return refuse_plan(host, fake.refused[role]);
    for (uint64_t t = 0; t < XRAY_TAG_COUNT; t++)
        out->bytes[t] = fake.unit[role] * (t + 1);
    static const uint64_t tokens[] = { 0, 20, 10, 50, 40, 30 };
    const xray_device_work own = { .header = XRAY_HEADER(xray_device_work),
                                   .tokens = tokens[role] + world->rank };
    if (load->device_work)
        xray_fill(load->device_work, &own);
    out->evictable = fake.evictable;
    out->sharded = fake.sharded;
    return XRAY_OK;
}

static xray_status plan_train(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    uint32_t role = model == &run.critic.model         ? XRAY_ROLE_CRITIC
                    : model == &run.reward_model.model ? XRAY_ROLE_REWARD
                    : load->trainable                  ? XRAY_ROLE_ACTOR
                                                       : XRAY_ROLE_REFERENCE;
    assert_ptr_equal(config, &options);
    fake.model[role] = model;
    fake.size[role] = world->size;
    return answer_plan(host, role, world, load, out);
}

static xray_status plan_infer(const xray_host *host, const void *config,
                              const xray_model *model, const xray_world *world,
                              const xray_workload *load, xray_plan *out)
{
    (void)config;
    fake.model[XRAY_ROLE_ROLLOUT] = model;
    assert_int_equal(world->size, run.placement.rollout.count);
    xray_status status = answer_plan(host, XRAY_ROLE_ROLLOUT, world, load, out);
    if (load->shared)
        out->bytes[XRAY_TAG_WEIGHTS] = 0;
    return status;
}

static xray_status plan_device(const xray_host *host, const void *config,
                               xray_device_plan *out)
{
    (void)config;
    if (fake.refused[0])
        return refuse_plan(host, fake.refused[0]);
    out->memory_bytes = fake.machine.memory_bytes;
    out->host_memory = fake.machine.host_memory;
    return XRAY_OK;
}

static uint64_t plan_scratch(const void *config, uint32_t threads,
                             const xray_device_work *works, uint64_t count,
                             uint64_t stride)
{
    uint64_t most = 0;
    assert_ptr_equal(config, &options);
    assert_int_equal(threads, 7);
    assert_int_equal(stride, sizeof(*works));
    for (uint64_t i = 0; i < count; i++)
        most = works[i].tokens > most ? works[i].tokens : most;
    return most * fake.scratch;
}

static xray_status move_tag(void *self, uint32_t tag)
{
    (void)self;
    (void)tag;
    return XRAY_OK;
}

static xray_status accept_groups(void *self, const xray_batch *batch,
                                 uint32_t groups, uint32_t *keep)
{
    (void)self;
    (void)batch;
    (void)groups;
    (void)keep;
    return XRAY_OK;
}

static xray_status evict_nothing(void *self, void *ptr)
{
    (void)self;
    (void)ptr;
    return XRAY_OK;
}

static xray_train_ops train_ops;
static xray_infer_ops infer_ops;
static xray_device_ops device_ops;
static xray_algo_ops algo_ops;

static xr_part make_part(const void *ops, const char *instance)
{
    static const xray_component component = { .name = "fake" };
    return (xr_part){ .component = &component,
                      .ops = ops,
                      .config = &options,
                      .instance = instance,
                      .host = xr_host_new(instance, NULL) };
}

static void set_ranks(uint32_t count)
{
    xr_ranks all = { .count = count };
    for (uint32_t i = 0; i < count; i++)
        all.rank[i] = i;
    run.placement = (xr_placement){ .size = count,
                                    .actor = all,
                                    .reference = all,
                                    .critic = all,
                                    .reward = all,
                                    .rollout = all };
}

static int begin_run(void **state)
{
    (void)state;
    memset(&fake, 0, sizeof(fake));
    for (uint32_t r = 1; r <= XRAY_ROLE_REWARD; r++)
        fake.unit[r] = 1000 * r;
    fake.machine.host_memory = 1;
    train_ops = (xray_train_ops){ .header = XRAY_HEADER(xray_train_ops),
                                  .plan = plan_train,
                                  .offload = move_tag,
                                  .onload = move_tag };
    infer_ops = (xray_infer_ops){ .header = XRAY_HEADER(xray_infer_ops),
                                  .plan = plan_infer,
                                  .sleep = move_tag,
                                  .wake = move_tag };
    device_ops = (xray_device_ops){ .header = XRAY_HEADER(xray_device_ops),
                                    .plan = plan_device,
                                    .plan_scratch = plan_scratch,
                                    .evict = evict_nothing };
    algo_ops = (xray_algo_ops){ .header = XRAY_HEADER(xray_algo_ops) };
    run = (xr_run){ .config = xr_config_new(),
                    .with = XR_WITH_TRAIN | XR_WITH_INFER | XR_WITH_ALGO |
                            XR_TRAINABLE };
    run.actor.json = run.critic.json = run.reward_model.json = model_json;
    run.critic.path = critic_path;
    run.actor.model.config_json = model_json;
    run.critic.model.config_json = model_json;
    run.reward_model.model.config_json = model_json;
    run.train = make_part(&train_ops, "train.fake");
    run.infer = make_part(&infer_ops, "infer.fake");
    run.device = make_part(&device_ops, "device.fake");
    run.algo = make_part(&algo_ops, "algo.fake");
    run.actor.load =
        (xray_workload){ .tokens = 100,
                         .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY |
                                    XRAY_OUTPUT_VALUE,
                         .trainable = 1,
                         .trainable_from_layer = 2 };
    run.critic.load = (xray_workload){ .tokens = 200 };
    run.reward_model.load = (xray_workload){ .tokens = 300 };
    run.rollout.load = (xray_workload){ .rows = 7, .shared = 1 };
    xr_run_config *ini = &run.ini;
    ini->run.threads = 7;
    ini->data.max_prompt_length = 6;
    ini->data.max_response_length = 4;
    ini->data.train_batch_size = 8;
    ini->rollout.n = 3;
    ini->sft.train_batch_size = 9;
    set_ranks(1);
    return 0;
}

static int end_run(void **state)
{
    (void)state;
    xr_host_free(run.train.host);
    xr_host_free(run.infer.host);
    xr_host_free(run.device.host);
    xr_host_free(run.algo.host);
    xr_config_free(run.config);
    return 0;
}

static void make_plan(xr_resources *out)
{
    xr_errors errors = { 0 };
    xr_resources_plan(&run, &errors, out);
    if (errors.count)
        fail_msg("%s", errors.items[0]);
}

/* All tags of a part: 1 + ... + 6 units. */
#define ALL 21

/* ---- plans -------------------------------------------------------------- */

static void expect_part(const xr_resources *r, size_t i, const char *who,
                        uint64_t bytes, uint64_t ranks, uint32_t role)
{
    assert_true(i < r->count);
    assert_string_equal(r->parts[i].who, who);
    assert_true(r->parts[i].bytes == bytes);
    assert_true(r->parts[i].ranks == ranks);
    assert_int_equal(r->parts[i].role, role);
}

/* Every model is planned in its own role; ranks of one host add up. */
static void every_model_is_planned(void **state)
{
    (void)state;
    xr_resources r;
    uint64_t rows = xr_rows_bytes(24, 240, 24);
    for (uint32_t ranks = 1; ranks <= 2; ranks++)
        for (uint32_t host = 0; host < 2; host++) {
            set_ranks(ranks);
            fake.machine.host_memory = host;
            memset(fake.asked, 0, sizeof(fake.asked));
            run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
            run.reward_model_config = &score_options;
            make_plan(&r);
            run.reward_model_config = NULL;
            assert_string_equal(fake.asked, "1234512354");
            assert_int_equal(r.count, host ? 7 : 6);
            expect_part(&r, 0, "train.fake", ALL * 1000, ranks, 1);
            expect_part(&r, 1, "reference", ALL * 2000, ranks, 2);
            expect_part(&r, 2, "critic", ALL * 3000, ranks, 3);
            expect_part(&r, 3, "reward", ALL * 5000, ranks, 5);
            expect_part(&r, 4, "infer.fake", ALL * 4000 - 4000, ranks, 4);
            expect_part(&r, 5, "device.fake", 0, ranks, 0);
            if (host)
                expect_part(&r, 6, "rows", rows, 1, 0);
            uint64_t copies = host ? ranks : 1;
            assert_true(r.bytes ==
                        copies * (ALL * 15000 - 4000) + (host ? rows : 0));
            assert_true(r.tags[XRAY_TAG_WEIGHTS] == copies * 11000);
            assert_true(r.tags[XRAY_TAG_KV] == copies * 15000 * 5);
            assert_true(r.tags[XRAY_TAG_WORKSPACE] ==
                        copies * 15000 * 6 + (host ? rows : 0));
        }
    assert_ptr_equal(fake.model[1], &run.actor.model);
    assert_ptr_equal(fake.model[2], &run.actor.model);
    assert_ptr_equal(fake.model[3], &run.critic.model);
    assert_ptr_equal(fake.model[4], &run.actor.model);
    assert_ptr_equal(fake.model[5], &run.reward_model.model);
    assert_int_equal(fake.size[3], 2);
    assert_int_equal(fake.load[1].trainable, 1);
    assert_int_equal(fake.load[1].trainable_from_layer, 2);
    assert_int_equal(fake.load[2].tokens, 100);
    assert_int_equal(fake.load[2].trainable, 0);
    assert_int_equal(fake.load[2].trainable_from_layer, 0);
    assert_int_equal(fake.load[2].outputs,
                     XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY);
    assert_int_equal(fake.load[3].tokens, 200);
    assert_int_equal(fake.load[5].tokens, 300);
    assert_int_equal(fake.load[4].rows, 7);
    for (uint32_t role = 1; role <= XRAY_ROLE_REWARD; role++) {
        assert_ptr_equal(fake.load[role].device, &device_ops);
        assert_ptr_equal(fake.load[role].device_config, &options);
    }
}

/* The scratch memory of a device is counted once, for the longest work of the
 * models on its rank: that of the critic. */
static void scratch_is_counted_once_for_each_device(void **state)
{
    (void)state;
    xr_resources r;
    uint64_t rows = xr_rows_bytes(24, 240, 24);
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    fake.scratch = 1000;
    make_plan(&r);
    expect_part(&r, 4, "device.fake", 50000, 1, 0);
    assert_true(r.parts[4].tags[0][XRAY_TAG_WORKSPACE] == 50000);
    assert_true(r.bytes == ALL * 10000 - 4000 + 50000 + rows);
    /* Three ranks have actor and reference, the first one critic and engine,
     * too. */
    set_ranks(3);
    run.placement.critic.count = run.placement.rollout.count = 1;
    run.rollout.load.shared = 0;
    make_plan(&r);
    expect_part(&r, 4, "device.fake", 50000, 3, 0);
    assert_int_equal(r.parts[4].fullest, 0);
    assert_true(r.parts[4].least == 21000);
    assert_true(r.parts[4].tags[2][XRAY_TAG_WORKSPACE] == 22000);
    assert_true(r.bytes == ALL * (3 * 3000 + 7000) + 93000 + rows);
    fake.machine.host_memory = 0;
    make_plan(&r);
    assert_true(r.bytes == ALL * 10000 + 50000);
    assert_true(r.tags[XRAY_TAG_WORKSPACE] == 6 * 10000 + 50000);
}

static void missing_models_are_not_planned(void **state)
{
    (void)state;
    static const struct {
        uint32_t with;
        uint32_t needs;
        const char *asked;
    } cases[] = {
        { 0, 0, "1414" },
        { XR_WITH_REFERENCE, 0, "124124" },
        { 0, XRAY_NEED_REFERENCE, "124124" },
        { 0, XRAY_NEED_CRITIC, "134134" },
        { 0, XRAY_NEED_VALUE_HEAD | XRAY_NEED_GROUPS, "1414" },
    };
    xr_resources r;
    uint32_t with = run.with;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        memset(fake.asked, 0, sizeof(fake.asked));
        run.with = with | cases[i].with;
        run.needs = cases[i].needs;
        make_plan(&r);
        assert_string_equal(fake.asked, cases[i].asked);
    }
    /* The engine of a sharded trainer keeps its own weights. */
    fake.sharded = 1;
    make_plan(&r);
    assert_int_equal(fake.load[4].shared, 0);
    run.infer.config = NULL;
    memset(fake.asked, 0, sizeof(fake.asked));
    make_plan(&r);
    assert_string_equal(fake.asked, "11");
    run.actor.json = NULL;
    run.actor.model.config_json = NULL;
    make_plan(&r);
    assert_int_equal(r.count, 0);
    assert_true(r.bytes == 0 && r.parameters == 0 && r.checkpoint_bytes == 0);
}

/* As sampled, as accepted, and as shuffled. */
static void rows_of_a_step_are_counted(void **state)
{
    (void)state;
    xr_resources r;
    uint64_t one = xr_rows_bytes(24, 240, 24);
    run.ini.actor.shuffle = 1;
    make_plan(&r);
    expect_part(&r, 3, "rows", 2 * one, 1, 0);
    run.ini.critic.shuffle = 1;
    make_plan(&r);
    expect_part(&r, 3, "rows", 2 * one, 1, 0);
    run.ini.actor.shuffle = 0;
    algo_ops.accept = accept_groups;
    make_plan(&r);
    expect_part(&r, 3, "rows", 3 * one, 1, 0);
    run.with &= ~XR_WITH_ALGO; /* sft has rows of its own */
    make_plan(&r);
    expect_part(&r, 3, "rows", xr_rows_bytes(9, 90, 9), 1, 0);
    run.with &= ~XR_TRAINABLE;
    make_plan(&r);
    assert_int_equal(r.count, 3);
}

/* Weights as 32-bit floats, and the state of the optimizer. */
static void bytes_of_a_checkpoint_are_counted(void **state)
{
    (void)state;
    xr_resources r;
    make_plan(&r);
    assert_true(r.parameters == PARAMETERS);
    assert_true(r.checkpoint_bytes == 4 * PARAMETERS + 3000);
    run.needs = XRAY_NEED_CRITIC | XRAY_NEED_REFERENCE;
    make_plan(&r);
    assert_true(r.checkpoint_bytes == 4 * PARAMETERS + 3000 + 3000 + 9000);
    set_ranks(2); /* with shards, the plan of one rank is not enough */
    make_plan(&r);
    assert_true(r.checkpoint_bytes == 2 * 12 * PARAMETERS);
    set_ranks(1);
    run.actor.json = (char[]){ "{\"architectures\":[\"Unknown\"]}" };
    make_plan(&r);
    assert_true(r.parameters == 0);
    assert_true(r.checkpoint_bytes == 1000 + 3000 + 3000 + 9000);
    run.with &= ~XR_TRAINABLE;
    make_plan(&r);
    assert_true(r.checkpoint_bytes == 0);
}

/* A plan of absurd size must be too big, not small. */
static void sums_do_not_wrap(void **state)
{
    (void)state;
    xr_resources r;
    fake.unit[1] = UINT64_MAX / 6;
    make_plan(&r);
    assert_true(r.bytes == UINT64_MAX);
    assert_true(r.parts[0].bytes == UINT64_MAX);
    fake.unit[1] = UINT64_MAX / 6 / 5;
    fake.unit[4] = 0;
    set_ranks(8);
    make_plan(&r);
    assert_true(r.tags[XRAY_TAG_WORKSPACE] == UINT64_MAX);
    assert_true(r.tags[XRAY_TAG_WEIGHTS] < UINT64_MAX);
}

/* A plugin's sentence is reported once, with the model's file in front. */
static void refusals_are_reported_once(void **state)
{
    (void)state;
    xr_resources r;
    xr_errors errors = { 0 };
    run.actor.path = (char[]){ "/m/odel" };
    fake.refused[0] = "no such device";
    fake.refused[1] = "/m/odel/config.json: cannot";
    fake.refused[4] = "/m/odel/config.json: cannot";
    xr_resources_plan(&run, &errors, &r);
    assert_int_equal(errors.count, 2);
    assert_string_equal(errors.items[0], "device.fake: plan: no such device");
    assert_string_equal(errors.items[1], "/m/odel/config.json: cannot");
    assert_int_equal(r.count, 0);
    /* Without a trainer there is no reference. */
    assert_string_equal(fake.asked, "1414");
    xr_errors_free(&errors);
    fake.refused[0] = fake.refused[1] = NULL;
    fake.refused[4] = "see /m/odel";
    xr_resources_plan(&run, &errors, &r);
    assert_int_equal(errors.count, 1);
    assert_string_equal(errors.items[0], "infer.fake: plan: see /m/odel");
    xr_errors_free(&errors);
}

/* ---- turns -------------------------------------------------------------- */

/* 1 unit = 1000 per role; activations are tag 3, kv 4, workspace 5. */
static void turns_of_one_device_are_planned(void **state)
{
    (void)state;
    xr_resources r;
    uint64_t rows = xr_rows_bytes(24, 240, 24);
    const uint64_t all = ALL * 1000;
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    run.rollout.load.shared = 0;
    fake.evictable = 0x3f;
    make_plan(&r);
    assert_int_equal(r.turn_count, 0);
    run.ini.actor.optimizer_offload = 1;   /* 3 + 4 of 1000 */
    run.ini.critic.param_offload = 1;      /* 1 + 4 of 3000 */
    run.ini.ref.param_offload = 1;         /* 1 + 4 of 2000 */
    run.ini.rollout.free_cache_engine = 1; /* 1 + 4 + 5 of 4000 */
    make_plan(&r);
    const uint64_t stay[] = { all - 7000, 2 * all - 10000, 3 * all - 15000,
                              4 * all - 40000 };
    const uint64_t rest = stay[0] + stay[1] + stay[2] + stay[3] + rows;
    static const char *const who[] = { "train.fake", "reference", "critic",
                                       "infer.fake", "weights to the engine" };
    const uint64_t back[] = { 7000, 10000, 15000, 40000, 4000 };
    assert_int_equal(r.turn_count, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(r.turns[i].who, who[i]);
        assert_true(r.turns[i].bytes == rest + back[i]);
    }
    assert_true(r.bytes == rest + 40000);
    assert_true(r.tags[XRAY_TAG_OPTIMIZER] == 3 * 10000);
    assert_true(r.tags[XRAY_TAG_KV] == 5 * 10000);
    assert_true(r.tags[XRAY_TAG_WEIGHTS] == 1000 + 4000);
    /* Weights that the engine shares stay on the device while it samples. */
    run.ini.actor.param_offload = 1;
    for (uint32_t shared = 0; shared < 2; shared++) {
        run.rollout.load.shared = shared;
        make_plan(&r);
        assert_int_equal(r.parts[0].movable,
                         BIT(XRAY_TAG_OPTIMIZER) | BIT(XRAY_TAG_ACTIVATIONS) |
                             (shared ? 0 : BIT(XRAY_TAG_WEIGHTS)));
    }
    /* On other ranks nothing is offloaded. */
    set_ranks(2);
    run.placement.critic.count = 1;
    fake.machine.host_memory = 0;
    make_plan(&r);
    assert_string_equal(r.turns[2].who, "critic");
    assert_true(r.turns[2].bytes == 10 * all - 4000 - /* shared */ 0);
}

static void plugins_that_cannot_offload_are_refused(void **state)
{
    (void)state;
#define REFUSED(what) "configuration: " what " cannot give memory back"
    static const char *const wants[] = {
        REFUSED("[actor] grad_offload: train.fake"),
        REFUSED("[critic] optimizer_offload: critic"),
        REFUSED("[ref] param_offload: reference"),
        REFUSED("[rollout] free_cache_engine: infer.fake"),
    };
    xr_errors errors = { 0 };
    xr_resources r;
    run.needs = XRAY_NEED_REFERENCE | XRAY_NEED_CRITIC;
    for (int i = 0; i < 4; i++)
        for (int how = 0; how < 4; how++) {
            run.ini.actor.grad_offload = i == 0;
            run.ini.critic.optimizer_offload = i == 1;
            run.ini.ref.param_offload = i == 2;
            run.ini.rollout.free_cache_engine = i == 3;
            /* Activations, and an engine's memory other than keys and values,
             * need not be offloaded. */
            fake.evictable = BIT(XRAY_TAG_WEIGHTS) | BIT(XRAY_TAG_GRADS) |
                             BIT(XRAY_TAG_OPTIMIZER) | BIT(XRAY_TAG_KV);
            train_ops.offload = how == 0 && i < 3 ? NULL : move_tag;
            infer_ops.sleep = how == 0 && i == 3 ? NULL : move_tag;
            train_ops.onload = how == 1 && i < 3 ? NULL : move_tag;
            infer_ops.wake = how == 1 && i == 3 ? NULL : move_tag;
            if (how == 2)
                fake.evictable = BIT(XRAY_TAG_ACTIVATIONS);
            xr_resources_plan(&run, &errors, &r);
            assert_int_equal(errors.count, how < 3);
            if (how < 3)
                assert_string_equal(errors.items[0], wants[i]);
            assert_int_equal(r.turn_count > 0, how == 3);
            xr_errors_free(&errors);
        }
    device_ops.evict = NULL;
    xr_resources_plan(&run, &errors, &r);
    assert_int_equal(errors.count, 1);
    assert_string_equal(errors.items[0],
                        "configuration: [rollout] free_cache_engine: "
                        "device.fake cannot take memory back");
    xr_errors_free(&errors);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin_run, end_run)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(every_model_is_planned),
        CASE(scratch_is_counted_once_for_each_device),
        CASE(missing_models_are_not_planned),
        CASE(rows_of_a_step_are_counted),
        CASE(bytes_of_a_checkpoint_are_counted),
        CASE(sums_do_not_wrap),
        CASE(refusals_are_reported_once),
        CASE(turns_of_one_device_are_planned),
        CASE(plugins_that_cannot_offload_are_refused),
    };
    return cmocka_run_group_tests_name("rl.memory_plans", tests, NULL, NULL);
}
