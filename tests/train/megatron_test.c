/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what else a model that is cut among tensor-parallel ranks does, beside
 * the bits, memory and traffic of train.grid: with shared KV heads it is near
 * to one rank, calls that fail leave no rank waiting and nothing behind, and
 * sizes that do not fit are refused.
 */
#include <math.h>

#include "tests/train/ranks.h"
#include "tests/train/scripted.h"

/* Three steps of `replicas` replicas of `tensor` ranks. */
static ranks_run cut_run(const char *json, uint32_t tensor, uint32_t replicas)
{
    ranks_run run = ranks_of(json, tensor * replicas, 1);
    run.spec.tensor = tensor;
    return run;
}

static void expect_ranks_alike(const ranks_run *run)
{
    for (uint32_t r = 1; r < run->ranks; r++)
        assert_memory_equal(run->norm[0], run->norm[r], sizeof(run->norm[0]));
}

/* Log-probabilities and gradients of ranks that share KV heads, against one
 * rank for each replica. */
static void check_shared_heads(const char *json, uint32_t tensor,
                               uint32_t kv_ranks, uint32_t replicas,
                               uint32_t twice)
{
    ranks_run want = ranks_of(json, replicas, 1);
    ranks_run run = cut_run(json, tensor, replicas);
    run.kv_ranks = kv_ranks;
    want.score = run.score = 1;
    want.cuts = run.cuts = 4;
    want.twice = run.twice = twice;
    want.steps = run.steps = 1;
    ranks_go(&want);
    ranks_go(&run);
    expect_ranks_alike(&run);
    assert_int_equal(run.grads.clashes, 0);
    double far = snapshot_distance(&want.grads, &run.grads);
    double norm = fabs(run.norm[0][0] / want.norm[0][0] - 1);
    if (!(far < 2e-5) || !(norm < 1e-5))
        fail_msg("tp %u, dp %u: gradients %g away, norm %g", tensor, replicas,
                 far, norm);
    for (uint32_t t = 0; t < ROWS_TOKENS_MAX; t++)
        if (!(fabsf(want.logp[t] - run.logp[t]) < 2e-5f))
            fail_msg("tp %u, dp %u: log-probability %u is %g, not %g", tensor,
                     replicas, t, (double)run.logp[t], (double)want.logp[t]);
    ranks_free(&want);
    ranks_free(&run);
}

static void ranks_that_share_kv_heads_are_near_to_one(void **state)
{
    (void)state;
    check_shared_heads(ranks_qwen2, 8, 2, 1, 0);
    check_shared_heads(ranks_narrow, 8, 4, 1, 0);
    check_shared_heads(ranks_narrow, 4, 2, 2, 0);
    check_shared_heads(ranks_narrow, 4, 2, 2, 1);
    check_shared_heads(ranks_fused, 8, 4, 1, 0);
    check_shared_heads(ranks_fused, 4, 2, 2, 1);
}

/* Gradients that are read between two calls are accumulated further. With
 * several replicas the sum so far is kept by the rank whose share it is in, and
 * the shares of slices are others. */
static void gradients_that_were_read_are_added_to(void **state)
{
    (void)state;
    ranks_run want = ranks_of(ranks_qwen3, 1, 1);
    ranks_run run = cut_run(ranks_qwen3, 4, 1);
    run.spec.sequence = 1;
    want.cuts = run.cuts = 4;
    want.twice = run.twice = 1;
    ranks_go(&want);
    ranks_go(&run);
    ranks_same(&want, &run, "read in between");
    ranks_free(&want);
    ranks_free(&run);
}

/* ---- memory and traffic -------------------------------------------------- */

/* All but the rank's own share of every bucket arrives while the last of three
 * micro-batches goes back, or nothing does but the records of other ranks with
 * which the call begins. */
static void gradients_are_summed_in_the_last_pass(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 2; k++) {
        ranks_run run = cut_run(ranks_qwen2, 2, 3);
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        run.cuts = 3;
        run.steps = 1;
        run.spec.no_overlap = k;
        ranks_go(&run);
        assert_int_equal(rig_plan_rank(&run.spec, 0, run.ranks, &plan),
                         XRAY_OK);
        assert_int_equal(run.received[0][0],
                         (run.ranks - 1) * sizeof(xm_group_record) +
                             (k ? 0 : plan.bytes[XRAY_TAG_GRADS] * 2 / 3));
        ranks_free(&run);
    }
}

/* ---- failures ----------------------------------------------------------- */

static void a_failing_loss_leaves_no_rank_waiting(void **state)
{
    (void)state;
    for (uint32_t sequence = 0; sequence < 2; sequence++) {
        ranks_run run = cut_run(ranks_qwen3, 2, 2);
        run.spec.sequence = sequence;
        run.steps = 1;
        run.cuts = 3;
        run.fail_loss = 1;
        run.may_fail = 1;
        run.one_call = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r < 3; r++)
            assert_int_equal(run.status[r], XRAY_OK);
        assert_int_equal(run.status[3], XRAY_E_NUMERIC);
        assert_non_null(strstr(run.error[3], "the loss failed"));
        ranks_free(&run);
    }
}

static void a_gradient_that_is_not_finite_is_named(void **state)
{
    (void)state;
    ranks_run run = cut_run(ranks_qwen2, 2, 2);
    run.poison = 1;
    run.steps = 2;
    ranks_go(&run);
    for (uint32_t r = 0; r < run.ranks; r++) {
        assert_int_equal(run.skipped[r], 1);
        assert_string_equal(run.bad[r], "model.layers.1.mlp.down_proj.weight");
    }
    ranks_free(&run);
}

/* A rank that was created in another way would make other sums than its
 * neighbours, or wait for those that they do not make. */
static void ranks_that_are_created_differently_are_refused(void **state)
{
    (void)state;
    ranks_run run = cut_run(ranks_qwen3, 2, 2);
    enum { ODD = 18 };
    rig_spec odd[ODD];
    for (size_t i = 0; i < ODD; i++)
        odd[i] = run.spec;
    odd[0].checkpointing = 1;
    odd[1].all_moments = 1;
    odd[2].no_overlap = 1;
    odd[3].weight_decay = 0.02;
    odd[4].config_json = ranks_narrow;
    odd[5].dtype = XRAY_BF16;
    odd[6].from_layer = 1;
    odd[7].outputs = XRAY_OUTPUT_LOGP;
    odd[8].tokens = 300;
    odd[9].seed = 5;
    odd[10].beta1 = 0.5;
    odd[11].beta2 = 0.5;
    odd[12].eps = 1e-3;
    odd[13].sequence = 1;
    odd[14].rows = 31;
    odd[15].row_tokens = 47;
    odd[16].segments = 8;
    odd[17].frozen = 1;
    run.may_fail = 1;
    for (size_t i = 0; i < ODD; i++) {
        run.odd = &odd[i];
        memset(run.error, 0, sizeof(run.error));
        ranks_go(&run);
        for (uint32_t r = 0; r < run.ranks; r++)
            if (run.status[r] != XRAY_E_CONFIG ||
                !strstr(run.error[r], "rank 3 of 4 has other options or another"
                                      " model than rank 0"))
                fail_msg("case %zu, rank %u: %d, %s", i, r, run.status[r],
                         run.error[r]);
    }
    ranks_free(&run);
}

/* Rank 0 of two, the other of which has what it has. */
static const rig_spec half = { .config_json = ranks_qwen3,
                               .outputs = XRAY_OUTPUT_LOGP | XRAY_OUTPUT_VALUE,
                               .tensor = 2 };

/* Whichever allocation of `create` fails, it says so and leaves nothing. */
static void an_instance_without_memory_leaves_nothing(void **state)
{
    (void)state;
    rig_device device = rig_device_open(1);
    rig_device watched = scripted_watch(&device);
    uint32_t fail = 0;
    rig r;
    xray_status status = XRAY_E_NOMEM;
    while (status != XRAY_OK) {
        xray_memory_stats stats = { .header = XRAY_HEADER(xray_memory_stats) };
        scripted_watched.fail_alloc = ++fail;
        status = scripted_try(&watched, &half, 2, &r);
        if (status == XRAY_OK)
            rig_close(&r);
        else if (status != XRAY_E_NOMEM || !rig_error()[0])
            fail_msg("allocation %u: %d, %s", fail, status, rig_error());
        assert_int_equal(device.ops->memory(device.self, &stats), XRAY_OK);
        /* The device keeps some workspace of its own. */
        for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++)
            assert_int_equal(stats.live[tag], 0);
        assert_int_equal(scripted_watched.events, 0);
        assert_int_equal(scripted_watched.handles, 0);
    }
    assert_in_range(fail, 20, 100);
    rig_device_close(&device);
}

/* Whichever collective fails, its status is that of the call. */
static void a_failed_join_fails_the_call(void **state)
{
    (void)state;
    /* Sums: the embedding, four for each block, two of the head, the first of
     * which come in two halves where the ranks divide tokens; there the norms'
     * gradients are sent and broadcast. A maximum of the head. */
    static const struct {
        uint32_t call;
        uint32_t made[2]; /* where ranks have all tokens, or divide them */
    } kinds_of_calls[] = { { XRAY_COMM_ALL_REDUCE, { 11, 2 } },
                           { XRAY_COMM_ALL_REDUCE_MAX, { 1, 1 } },
                           { XRAY_COMM_ALL_GATHER, { 0, 14 } },
                           { XRAY_COMM_REDUCE_SCATTER, { 0, 9 } },
                           { XRAY_COMM_BROADCAST, { 0, 5 } },
                           { XRAY_COMM_SEND, { 0, 5 } } };
    rig_device device = rig_device_open(1);
    rig_spec spec = half;
    rows_draw(&scripted_rows, 4, 12, 37, 3);
    rows_cut(&scripted_rows, 1);
    for (size_t k = 0; k < 6; k++)
        for (uint32_t divided = 0; divided < 2; divided++) {
            spec.sequence = divided;
            rig r = scripted_open(&device, &spec, 2);
            uint32_t calls = 0;
            for (xray_status status = XRAY_E_PEER; status != XRAY_OK; calls++) {
                scripted_other.fails = kinds_of_calls[k].call;
                scripted_other.left = calls;
                status = scripted_add_gradients(&r);
                if (status != XRAY_OK)
                    assert_int_equal(status, XRAY_E_PEER);
            }
            assert_int_equal(calls - 1, kinds_of_calls[k].made[divided]);
            rig_close(&r);
        }
    rig_device_close(&device);
}

/* ---- worlds -------------------------------------------------------------- */

/* Creates an instance in a world whose comm only makes groups. */
static xray_status create_in(const rig_device *device, const rig_spec *spec,
                             const xray_world *world)
{
    rig_request request = rig_request_of(spec);
    const xray_setup setup = { .header = XRAY_HEADER(xray_setup),
                               .host = rig_host(),
                               .device = device->ops,
                               .device_self = device->self,
                               .model = &request.model,
                               .world = world,
                               .role = XRAY_ROLE_ACTOR,
                               .trainable = 1 };
    void *self = NULL;
    rig_clear();
    const xray_train_ops *ops = rig_component_of(spec)->ops;
    xray_status status =
        ops->create(&setup, request.config, &request.load, &self);
    rig_request_free(&request);
    return status;
}

/* Each axis of a world must be as long as was planned, and its replicas must be
 * all of its ranks. */
static void worlds_of_other_axes_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t replica;
        uint32_t data;
        uint32_t kv;
        uint32_t context;
        uint32_t stages;
        uint32_t ranks;
    } worlds[] = { { 4, 1, 1, 2, 2, 8 }, { 8, 2, 1, 2, 2, 8 },
                   { 8, 1, 2, 2, 2, 8 }, { 8, 1, 1, 1, 2, 8 },
                   { 8, 1, 1, 2, 4, 8 }, { 8, 1, 1, 2, 2, 16 } };
    const rig_spec spec = {
        .config_json = ranks_qwen3, .tensor = 2, .context = 2, .stages = 2
    };
    rig_device device = rig_device_open(1);
    for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
        const xray_subgroup groups[] = {
            { XRAY_AXIS_REPLICA, NULL, 0, worlds[i].replica },
            { XRAY_AXIS_DATA, NULL, 0, worlds[i].data },
            { "kv", NULL, 0, worlds[i].kv },
            { XRAY_AXIS_CONTEXT, NULL, 0, worlds[i].context },
            { XRAY_AXIS_PIPELINE, NULL, 0, worlds[i].stages },
        };
        const xray_world world = { .header = XRAY_HEADER(xray_world),
                                   .size = worlds[i].ranks,
                                   .subgroups = groups,
                                   .subgroup_count = 5,
                                   .subgroup_stride = sizeof(groups[0]) };
        if (create_in(&device, &spec, &world) != XRAY_E_CONFIG ||
            !strstr(rig_error(), "in replicas of 8 were planned"))
            fail_msg("world %zu: %s", i, rig_error());
    }
    rig_device_close(&device);
}

/* The groups that an instance asks for, of which one is refused. */
static struct {
    uint32_t count;
    uint32_t refused; /* counted from 1 */
    uint32_t sizes[4];
    uint32_t ranks[4][8];
} asked;

static xray_status ask_for_group(void *self, const uint32_t *ranks,
                                 uint32_t count, xray_comm_group **out)
{
    assert_true(asked.count < 4 && count <= 8);
    asked.sizes[asked.count] = count;
    memcpy(asked.ranks[asked.count], ranks, count * sizeof(*ranks));
    *out = self;
    return ++asked.count == asked.refused ? XRAY_E_PEER : XRAY_OK;
}

static void expect_asked(uint32_t at, const uint32_t *ranks, uint32_t count,
                         const uint32_t *global)
{
    assert_int_equal(asked.sizes[at], count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(asked.ranks[at][i],
                         global ? global[ranks[i]] : ranks[i]);
}

/* Of 64 ranks, two replicas of two stages of two ranks that divide rows: the
 * eight slices, some of which have the same KV heads, are a group, and so are
 * the four ranks with the same weights. The comm numbers the ranks of all
 * roles. The first group that is refused ends the creation. */
static void groups_have_the_ranks_of_slices_and_of_equal_weights(void **state)
{
    (void)state;
    static const uint32_t places[] = { 0, 13, 29, 58 };
    static const xray_comm_ops comm = { .header = XRAY_HEADER(xray_comm_ops),
                                        .group = ask_for_group };
    const rig_spec spec = {
        .config_json = ranks_narrow, .tensor = 8, .context = 2, .stages = 2
    };
    uint32_t global[64];
    rig_device device = rig_device_open(1);
    for (uint32_t r = 0; r < 64; r++)
        global[r] = 3 * r + 1;
    for (uint32_t i = 0; i < 16; i++) {
        uint32_t rank = places[i / 4];
        uint32_t slices[8];
        uint32_t equal[4];
        const xray_subgroup groups[] = {
            { XRAY_AXIS_REPLICA, NULL, rank % 32, 32 },
            { XRAY_AXIS_DATA, NULL, rank / 32, 2 },
            { "kv", NULL, rank % 4, 4 },
            { XRAY_AXIS_TENSOR, NULL, rank / 4 % 2, 2 },
            { XRAY_AXIS_CONTEXT, NULL, rank / 8 % 2, 2 },
            { XRAY_AXIS_PIPELINE, NULL, rank / 16 % 2, 2 },
        };
        const xray_world world = { .header = XRAY_HEADER(xray_world),
                                   .rank = rank,
                                   .size = 64,
                                   .comm = &comm,
                                   .comm_self = &asked,
                                   .global_ranks = i / 2 % 2 ? global : NULL,
                                   .subgroups = groups,
                                   .subgroup_count = 6,
                                   .subgroup_stride = sizeof(groups[0]) };
        for (uint32_t r = 0; r < 8; r++)
            slices[r] = rank - rank % 8 + r;
        for (uint32_t r = 0; r < 4; r++)
            equal[r] = rank % 8 + rank / 16 % 2 * 16 + r % 2 * 8 + r / 2 * 32;
        memset(&asked, 0, sizeof(asked));
        asked.refused = 1 + i % 2;
        assert_int_equal(create_in(&device, &spec, &world), XRAY_E_PEER);
        assert_non_null(strstr(rig_error(), i % 2
                                                ? "no group of 4 of the 64 "
                                                : "no group of 8 of the 64 "));
        assert_int_equal(asked.count, asked.refused);
        expect_asked(0, slices, 8, world.global_ranks);
        if (i % 2)
            expect_asked(1, equal, 4, world.global_ranks);
    }
    rig_device_close(&device);
}

/* ---- plans -------------------------------------------------------------- */

static void a_plan_names_the_axis(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 8; n *= 2) {
        rig_spec spec = { .config_json = ranks_qwen3, .tensor = n };
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&spec, 8, &plan), XRAY_OK);
        assert_int_equal(plan.axis_count, 1);
        assert_string_equal(plan.axes->name, XRAY_AXIS_TENSOR);
        assert_int_equal(plan.axes->size, n);
        assert_int_equal(plan.sharded, n > 1);
        assert_null(plan.numerics);
    }
    rig_spec spec = { .config_json = ranks_narrow, .tensor = 8 };
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    assert_int_equal(rig_plan(&spec, 8, &plan), XRAY_OK);
    assert_int_equal(plan.axis_count, 2);
    assert_string_equal(plan.axes[0].name, "kv");
    assert_int_equal(plan.axes[0].size, 4);
    assert_string_equal(plan.axes[1].name, XRAY_AXIS_TENSOR);
    assert_int_equal(plan.axes[1].size, 2);
    assert_string_equal(plan.numerics, XRAY_NUMERICS_FP32_SHARED_KV);
    spec.dtype = XRAY_BF16;
    assert_int_equal(rig_plan(&spec, 8, &plan), XRAY_OK);
    assert_string_equal(plan.numerics, XRAY_NUMERICS_BF16_SHARED_KV);
    spec.config_json = ranks_qwen3;
    assert_int_equal(rig_plan(&spec, 8, &plan), XRAY_OK);
    assert_string_equal(plan.numerics, XRAY_NUMERICS_BF16);
    /* Ranks that form no replica are not the backend's to refuse. */
    xray_plan few = { .header = XRAY_HEADER(xray_plan) };
    for (uint32_t ranks = 0; ranks <= 1; ranks++) {
        assert_int_equal(rig_plan(&spec, ranks, &few), XRAY_OK);
        for (uint32_t tag = 0; tag < XRAY_TAG_WORKSPACE; tag++)
            assert_int_equal(few.bytes[tag], plan.bytes[tag]);
    }
}

/* From this the core predicts times, and deals segments to ranks. */
static void a_plan_says_how_an_instance_computes(void **state)
{
    (void)state;
    static const struct {
        rig_spec spec;
        uint32_t recompute;
        uint32_t sequence;
        uint32_t chunks;
        uint32_t segments;
    } cases[] = {
        { { .tensor = 2, .checkpointing = XM_TRAINER_RECOMPUTE_NONE },
          XRAY_RECOMPUTE_NONE,
          0,
          1,
          XRAY_SEGMENTS_IN_RUNS },
        { { .tensor = 2,
            .checkpointing = XM_TRAINER_RECOMPUTE_FULL,
            .sequence = 1 },
          XRAY_RECOMPUTE_FULL,
          1,
          1,
          XRAY_SEGMENTS_IN_RUNS },
        { { .tensor = 1,
            .checkpointing = XM_TRAINER_RECOMPUTE_SELECTIVE,
            .stages = 2,
            .chunks = 3 },
          XRAY_RECOMPUTE_SELECTIVE,
          0,
          3,
          XRAY_SEGMENTS_IN_RUNS },
        { { .stage_1 = 1 + 1 },
          XRAY_RECOMPUTE_SELECTIVE,
          0,
          0,
          XRAY_SEGMENTS_IN_RUNS },
        { { .stage_1 = 2 + 1, .checkpointing = 1 },
          XRAY_RECOMPUTE_FULL,
          0,
          0,
          XRAY_SEGMENTS_IN_TURN },
        { { .stage_1 = 3 + 1 },
          XRAY_RECOMPUTE_SELECTIVE,
          0,
          0,
          XRAY_SEGMENTS_IN_TURN },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        rig_spec spec = cases[i].spec;
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        spec.config_json = spec.tensor == 1 ? ranks_deep : ranks_qwen3;
        assert_int_equal(rig_plan(&spec, 4, &plan), XRAY_OK);
        assert_int_equal(plan.recompute, cases[i].recompute);
        assert_int_equal(plan.sequence, cases[i].sequence);
        assert_int_equal(plan.chunks, cases[i].chunks);
        assert_int_equal(plan.segments, cases[i].segments);
        assert_int_equal(plan.micro_multiple, 1);
        assert_int_equal(plan.token_multiple, 1);
    }
}

/* Four ranks that divide 256 tokens have a quarter of the residual stream: the
 * inputs of both blocks, the stream between their branches, and the last
 * output, with a statistic of each norm; a model that is only scored has one
 * stream. */
static void a_plan_has_part_of_the_stream_where_tokens_are_divided(void **state)
{
    (void)state;
    for (uint32_t frozen = 0; frozen < 2; frozen++) {
        rig_spec spec = { .config_json = ranks_qwen3,
                          .tensor = 4,
                          .frozen = frozen };
        xray_plan all = { .header = XRAY_HEADER(xray_plan) };
        xray_plan part = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&spec, 4, &all), XRAY_OK);
        spec.sequence = 1;
        assert_int_equal(rig_plan(&spec, 4, &part), XRAY_OK);
        uint64_t floats = frozen ? 24 : 5 * 24 + 5;
        assert_int_equal(all.bytes[XRAY_TAG_ACTIVATIONS] -
                             part.bytes[XRAY_TAG_ACTIVATIONS],
                         256 / 4 * 3 * floats * sizeof(float));
    }
}

static void a_size_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *json;
        uint32_t tensor;
        const char *text;
    } cases[] = {
        { ranks_gpt2, 5, "the next size that works is 4" },
        { ranks_qwen3, 6,
          "a model of 8 query heads, 8 KV heads and 32 MLP columns can be "
          "shared by at most 8 tensor-parallel ranks, in a power of two, not "
          "by 6; the next size that works is 4" },
        { rig_tiny, 2, "the next size that works is 1" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig_spec spec = { .config_json = cases[i].json,
                          .tensor = cases[i].tensor };
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&spec, 8, &plan), XRAY_E_CONFIG);
        if (!strstr(rig_error(), cases[i].text))
            fail_msg("%s", rig_error());
    }
    /* A world of other replicas than were planned. */
    rig_spec spec = { .config_json = ranks_qwen3, .tensor = 2 };
    rig_device device = rig_device_open(1);
    rig r;
    assert_int_equal(rig_open(&device, &spec, &r), XRAY_E_CONFIG);
    assert_non_null(strstr(rig_error(), "replicas of 2 were planned"));
    rig_device_close(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_share_kv_heads_are_near_to_one),
        cmocka_unit_test(gradients_that_were_read_are_added_to),
        cmocka_unit_test(gradients_are_summed_in_the_last_pass),
        cmocka_unit_test(ranks_that_are_created_differently_are_refused),
        cmocka_unit_test(a_failing_loss_leaves_no_rank_waiting),
        cmocka_unit_test(an_instance_without_memory_leaves_nothing),
        cmocka_unit_test(a_failed_join_fails_the_call),
        cmocka_unit_test(a_gradient_that_is_not_finite_is_named),
        cmocka_unit_test(worlds_of_other_axes_are_refused),
        cmocka_unit_test(groups_have_the_ranks_of_slices_and_of_equal_weights),
        cmocka_unit_test(a_plan_names_the_axis),
        cmocka_unit_test(a_plan_says_how_an_instance_computes),
        cmocka_unit_test(
            a_plan_has_part_of_the_stream_where_tokens_are_divided),
        cmocka_unit_test(a_size_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
