/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that ranks which divide the tokens of rows train as one that does not:
 * outputs and the loss have the bits of zero3 with as many replicas, gradients
 * and norms are near to its, all ranks have the same weights, memory is what
 * was planned, and collectives are those of docs/megatron.md. In the runs any
 * value of an option meets every number of ranks that divide rows, and most
 * other values.
 */
#include <math.h>

#include "model/train/trainer.h"
#include "plugins/backend-megatron/megatron.h"
#include "tests/train/ranks.h"

#define LAYERS 2u
#define STEPS 3u
#define LOGP (XRAY_OUTPUT_LOGP | XRAY_OUTPUT_ENTROPY)
#define BOTH (LOGP | XRAY_OUTPUT_VALUE)
#define VALUE XRAY_OUTPUT_VALUE
enum { NORMS, ALL, NOTHING };      /* recomputed */
enum { STAYS, ON_HOST, IN_TURNS }; /* memory */

typedef struct cell {
    const char *json;
    uint32_t kv; /* elements of all keys of a token */
    uint32_t context;
    uint32_t tensor;
    uint32_t replicas;
    uint32_t outputs;
    uint32_t recompute;
    uint32_t sequence;
    uint32_t frozen; /* blocks */
    uint32_t dtype;
    uint32_t all_moments;
    uint32_t no_overlap;
    uint32_t memory;
    uint32_t cuts;
} cell;

#define QWEN3 ranks_qwen3, 32
#define QWEN2 ranks_qwen2, 16
#define GPT2 ranks_gpt2, 32
static const cell cells[] = {
    { QWEN3, 2, 1, 1, LOGP, NORMS, 0, 0, XRAY_F32, 0, 0, STAYS, 1 },
    { QWEN2, 2, 2, 1, BOTH, ALL, 1, 0, XRAY_BF16, 0, 0, ON_HOST, 2 },
    { GPT2, 2, 2, 2, VALUE, NOTHING, 0, 1, XRAY_F32, 1, 1, IN_TURNS, 2 },
    { QWEN3, 2, 4, 1, BOTH, NOTHING, 1, 1, XRAY_BF16, 0, 1, STAYS, 2 },
    { QWEN2, 2, 1, 4, LOGP, ALL, 0, 0, XRAY_F32, 1, 0, IN_TURNS, 1 },
    { GPT2, 2, 1, 2, BOTH, NORMS, 0, 0, XRAY_BF16, 0, 1, ON_HOST, 1 },
    { QWEN3, 4, 2, 1, VALUE, ALL, 0, 0, XRAY_F32, 1, 0, ON_HOST, 1 },
    { QWEN2, 4, 1, 2, BOTH, NOTHING, 0, 1, XRAY_BF16, 0, 1, IN_TURNS, 1 },
    { GPT2, 4, 2, 1, LOGP, NORMS, 1, 0, XRAY_F32, 0, 0, STAYS, 2 },
    { QWEN3, 4, 1, 2, LOGP, NORMS, 0, 1, XRAY_BF16, 1, 1, STAYS, 2 },
    { GPT2, 8, 1, 1, BOTH, ALL, 0, 0, XRAY_BF16, 0, 0, IN_TURNS, 2 },
};
#define CELLS (sizeof(cells) / sizeof(*cells))

static char name[128]; /* of the cell that runs */

/* ---- what is expected of a cell ------------------------------------------ */

/* The outputs that a rank gathers of each micro-batch. */
static uint64_t count_outputs(const cell *c)
{
    return c->outputs == VALUE ? 1 : c->outputs == LOGP ? 2 : 3;
}

static void expect_calls(const char *what, thread_comm_calls made,
                         uint64_t calls, uint64_t floats)
{
    if (made.calls != calls || made.floats != floats)
        fail_msg("%s: %s: %llu calls and %llu floats, not %llu and %llu", name,
                 what, (unsigned long long)made.calls,
                 (unsigned long long)made.floats, (unsigned long long)calls,
                 (unsigned long long)floats);
}

/* Each block gathers its keys and values in the forward pass, and again where
 * it is trained, and then sums their gradients. Each output is gathered, of as
 * many items as the rank has that has most. Gradients are summed over the
 * replicas first, so that a context has part of them left. Where there is one
 * replica, the ranks of its context gather the weights. */
static void expect_traffic(const cell *c, const ranks_run *run, uint32_t rank,
                           uint32_t step)
{
    const ranks_work *work = &run->work[rank][step];
    const thread_comm_traffic *made = &run->keys[rank][step];
    uint64_t keys = 2 * c->kv / c->tensor * work->context;
    uint64_t trained = LAYERS - c->frozen;
    uint64_t gathers = LAYERS + trained;
    uint64_t outputs = count_outputs(c);
    uint64_t buckets = LAYERS + 2 - 2 * c->frozen;
    uint64_t floats = run->trained[rank];
    uint64_t sums = c->all_moments ? 0 : buckets;
    uint64_t shares = c->all_moments ? 0 : floats / c->replicas;
    uint64_t weights = c->replicas > 1 ? 0 : shares / c->context;
    expect_calls("all_gather", made->all_gather,
                 work->passes * (gathers + outputs) +
                     (c->replicas > 1 ? 0 : sums),
                 gathers * keys + weights + outputs * work->most);
    shares += trained * keys * c->context;
    expect_calls("reduce_scatter", made->reduce_scatter,
                 work->passes * trained + sums, shares);
    expect_calls("all_reduce", made->all_reduce, buckets - sums,
                 c->all_moments ? floats : 0);
}

/* ---- the runs ------------------------------------------------------------ */

static ranks_run run_of(const cell *c, uint32_t ranks, uint32_t steps)
{
    ranks_run run = ranks_of(c->json, ranks, 1);
    run.spec.outputs = c->outputs;
    run.spec.from_layer = c->frozen;
    run.spec.dtype = c->dtype;
    run.steps = steps;
    run.score = 1;
    run.cuts = c->cuts;
    return run;
}

static ranks_run context_run(const cell *c, uint32_t steps)
{
    ranks_run run = run_of(c, c->context * c->tensor * c->replicas, steps);
    run.spec.context = c->context;
    run.spec.tensor = c->tensor;
    run.spec.checkpointing = c->recompute;
    run.spec.sequence = c->sequence;
    run.spec.all_moments = c->all_moments;
    run.spec.no_overlap = c->no_overlap;
    run.spec.offload_optimizer = c->memory == ON_HOST;
    run.turns = c->memory == IN_TURNS;
    return run;
}

static void check_cell(const cell *c)
{
    ranks_run want = run_of(c, c->replicas, 1);
    ranks_run first = context_run(c, 1);
    ranks_run run = context_run(c, STEPS);
    ranks_go(&want);
    ranks_go(&first);
    ranks_near(&want, &first, name);
    ranks_go(&run);
    ranks_planned(&run, name);
    for (uint32_t r = 0; r < run.ranks; r++)
        for (uint32_t i = 0; i < STEPS; i++)
            expect_traffic(c, &run, r, i);
    ranks_free(&want);
    ranks_free(&first);
    ranks_free(&run);
}

static void ranks_that_divide_rows_train_as_one(void **state)
{
    (void)state;
    for (size_t i = 0; i < CELLS; i++) {
        (void)snprintf(name, sizeof(name), "cell %zu, cp %u, tp %u, dp %u", i,
                       cells[i].context, cells[i].tensor, cells[i].replicas);
        check_cell(&cells[i]);
    }
}

/* Two KV heads of four ranks, of which each context has two. */
static void check_shared_heads(uint32_t sequence)
{
    ranks_run want = ranks_of(ranks_narrow, 1, 1);
    ranks_run run = ranks_of(ranks_narrow, 8, 1);
    run.spec.tensor = 4;
    run.spec.context = 2;
    run.spec.sequence = sequence;
    run.kv_ranks = 2;
    want.score = run.score = 1;
    want.steps = run.steps = 1;
    ranks_go(&want);
    ranks_go(&run);
    assert_int_equal(run.grads.clashes, 0);
    assert_int_equal(run.weights.clashes, 0);
    double far = snapshot_distance(&want.grads, &run.grads);
    if (!(far < 2e-5))
        fail_msg("gradients are %g off", far);
    for (uint32_t t = 0; t < ROWS_TOKENS_MAX; t++)
        if (!(fabsf(want.logp[t] - run.logp[t]) < 2e-5f))
            fail_msg("log-probability %u is %g, not %g", t, (double)run.logp[t],
                     (double)want.logp[t]);
    ranks_free(&want);
    ranks_free(&run);
}

static void a_context_may_share_kv_heads(void **state)
{
    (void)state;
    check_shared_heads(0);
    check_shared_heads(1);
}

static void a_failing_loss_leaves_no_rank_waiting(void **state)
{
    (void)state;
    for (uint32_t tensor = 1; tensor <= 2; tensor++) {
        ranks_run run = ranks_of(ranks_qwen3, 4 * tensor, 1);
        run.spec.tensor = tensor;
        run.spec.context = 2;
        run.steps = 1;
        run.cuts = 3;
        run.fail_loss = 1;
        run.may_fail = 1;
        run.one_call = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r + 1 < run.ranks; r++)
            assert_int_equal(run.status[r], XRAY_OK);
        assert_int_equal(run.status[run.ranks - 1], XRAY_E_NUMERIC);
        assert_non_null(strstr(run.error[run.ranks - 1], "the loss failed"));
        ranks_free(&run);
    }
}

/* Half of the rows' tokens, and all keys and values of one block, with their
 * gradients, in the order of the rows and in that of the ranks. */
static void a_plan_has_part_of_the_tokens(void **state)
{
    (void)state;
    rig_spec spec = { .config_json = ranks_qwen3, .tensor = 1 };
    xray_plan all = { .header = XRAY_HEADER(xray_plan) };
    xray_plan part = { .header = XRAY_HEADER(xray_plan) };
    assert_int_equal(rig_plan(&spec, 2, &all), XRAY_OK);
    spec.context = 2;
    assert_int_equal(rig_plan(&spec, 2, &part), XRAY_OK);
    assert_int_equal(part.bytes[XRAY_TAG_ACTIVATIONS],
                     all.bytes[XRAY_TAG_ACTIVATIONS] / 2 +
                         3 * 256 * 2 * 32 * sizeof(float));
    assert_int_equal(part.axis_count, 2);
    assert_string_equal(part.axes[1].name, XRAY_AXIS_CONTEXT);
    assert_int_equal(part.axes[1].size, 2);
    assert_null(part.numerics);
    /* The second rank of a context publishes nothing that an engine beside it
     * could share. */
    assert_int_equal(all.sharded, 0);
    assert_int_equal(part.sharded, 1);
}

/* The axes of a replica, the fastest first: those of one rank are left out at
 * both ends, but "tp" is always there. */
static void check_axes(const mg_sizes *sizes, uint32_t kv)
{
    const xray_axis all[] = { { "kv", kv, 0 },
                              { XRAY_AXIS_TENSOR, sizes->tensor / kv, 0 },
                              { XRAY_AXIS_CONTEXT, sizes->context, 0 },
                              { XRAY_AXIS_PIPELINE, sizes->stages, 0 } };
    uint32_t first = kv > 1 ? 0 : 1;
    uint32_t end = sizes->stages > 1 ? 4 : sizes->context > 1 ? 3 : 2;
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    mg_plan_axes(sizes, kv, &plan);
    assert_int_equal(plan.axis_count, end - first);
    assert_int_equal(plan.axis_stride, sizeof(xray_axis));
    for (uint32_t i = first; i < end; i++) {
        assert_string_equal(plan.axes[i - first].name, all[i].name);
        assert_int_equal(plan.axes[i - first].size, all[i].size);
    }
}

/* Ranks are counted along the axes, then over the replicas. */
static void check_places(const mg_sizes *sizes)
{
    uint32_t rank = 0;
    for (uint32_t replica = 0; replica < 2; replica++)
        for (uint32_t stage = 0; stage < sizes->stages; stage++)
            for (uint32_t c = 0; c < sizes->context; c++)
                for (uint32_t t = 0; t < sizes->tensor; t++) {
                    mg_place place = mg_place_of(sizes, rank++);
                    assert_int_equal(place.replica, replica);
                    assert_int_equal(place.stage, stage);
                    assert_int_equal(place.context, c);
                    assert_int_equal(place.tensor, t);
                }
    assert_int_equal(mg_width(sizes) * 2, rank);
}

static void any_sizes_have_their_axes_and_places(void **state)
{
    (void)state;
    for (uint32_t tensor = 1; tensor <= 8; tensor *= 2)
        for (uint32_t context = 1; context <= 8; context *= 2)
            for (uint32_t stages = 1; stages <= MG_STAGES_MOST; stages++) {
                const mg_sizes sizes = { tensor, context, stages };
                for (uint32_t kv = 1; kv <= tensor; kv *= 2)
                    check_axes(&sizes, kv);
                check_places(&sizes);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_divide_rows_train_as_one),
        cmocka_unit_test(a_context_may_share_kv_heads),
        cmocka_unit_test(a_failing_loss_leaves_no_rank_waiting),
        cmocka_unit_test(a_plan_has_part_of_the_tokens),
        cmocka_unit_test(any_sizes_have_their_axes_and_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
