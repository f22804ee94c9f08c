/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves that training by segments of a mini-batch has the same bits on any
 * number of replicas, in every layout of both backends, and what is refused.
 */
#include "tests/train/ranks.h"

#define SEGMENTS 8

static ranks_run segmented(const char *json, uint32_t ranks, uint32_t stage)
{
    ranks_run run = ranks_of(json, ranks, stage);
    run.spec.segments = SEGMENTS;
    run.rows = 21;
    return run;
}

/* Runs it and compares it with a run on one rank. */
static void expect_same(const ranks_run *one, ranks_run *run)
{
    char what[128];
    (void)snprintf(what, sizeof(what),
                   "%u ranks, tensor %u, context %u, %u stages, stage %u, "
                   "%u rows, %u cuts",
                   run->ranks, run->spec.tensor, run->spec.context,
                   run->spec.stages, run->spec.stage_1 - 1, run->rows,
                   run->cuts);
    ranks_go(run);
    ranks_same(one, run, what);
    ranks_planned(run, what);
    ranks_free(run);
}

static void all_stages_on_any_ranks_have_the_bits_of_one(void **state)
{
    const char *const models[] = { rig_tiny, rig_tiny_tied };
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        ranks_run one = segmented(models[m], 1, 1);
        one.cuts = 2;
        ranks_go(&one);
        for (uint32_t ranks = 2; ranks <= SEGMENTS; ranks *= 2)
            for (uint32_t stage = ranks == 4 ? 0 : 1; stage < 4; stage += 2) {
                ranks_run run = segmented(models[m], ranks, stage);
                run.turns = ranks == 2;
                expect_same(&one, &run);
            }
        ranks_free(&one);
    }
}

/* Five rows leave three segments without any. */
static void empty_segments_count_as_zeros(void **state)
{
    (void)state;
    ranks_run one = segmented(rig_tiny_tied, 1, 1);
    one.rows = 5;
    ranks_go(&one);
    for (uint32_t stage = 1; stage < 3; stage++) {
        ranks_run run = segmented(rig_tiny_tied, 4, stage);
        run.rows = 5;
        expect_same(&one, &run);
    }
    ranks_free(&one);
}

/* A micro-batch without rows is of no segment, whichever it says. */
static void empty_micro_batches_are_of_no_segment(void **state)
{
    (void)state;
    ranks_run one = segmented(rig_tiny_tied, 1, 1);
    one.steps = 1;
    ranks_go(&one);
    for (uint32_t stage = 1; stage < 4; stage += 2) {
        ranks_run run = segmented(rig_tiny_tied, 2, stage);
        run.hollow = run.steps = 1;
        expect_same(&one, &run);
    }
    ranks_free(&one);
}

static void megatron_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    ranks_run one = segmented(ranks_qwen3, 1, 1);
    ranks_go(&one);
    for (uint32_t tensor = 1; tensor <= 4; tensor *= 2) {
        ranks_run run = segmented(ranks_qwen3, 4, 1);
        run.spec.tensor = tensor;
        run.spec.all_moments = tensor == 2;
        run.spec.sequence = tensor == 4;
        run.cuts = tensor == 4 ? 1 : 2;
        expect_same(&one, &run);
    }
    ranks_free(&one);
}

/* The first of the stages has the look-ups of a tied embedding, and the last
 * has its head. GPT-2's first stage has learned positions beside them. */
static void stages_have_the_bits_of_one_rank(void **state)
{
    const char *const models[] = { ranks_qwen3, ranks_gpt2 };
    (void)state;
    for (size_t m = 0; m < 2; m++) {
        ranks_run one = segmented(models[m], 1, 1);
        ranks_go(&one);
        for (uint32_t ranks = 2; ranks <= 8; ranks *= 2) {
            ranks_run run = segmented(models[m], ranks, 1);
            run.spec.tensor = m == 0 && ranks == 8 ? 2 : 1;
            run.spec.stages = 2;
            run.spec.all_moments = ranks == 4;
            run.cuts = 2;
            run.turns = ranks == 2;
            expect_same(&one, &run);
        }
        ranks_free(&one);
    }
}

/* Ranks that divide rows have the bits of one replica of as many. */
static void contexts_have_the_bits_of_one_replica(void **state)
{
    (void)state;
    ranks_run one = segmented(ranks_qwen3, 2, 1);
    one.spec.tensor = 1;
    one.spec.context = 2;
    ranks_go(&one);
    for (uint32_t ranks = 4; ranks <= 8; ranks *= 2)
        for (uint32_t stages = 1; stages <= 2; stages++) {
            ranks_run run = segmented(ranks_qwen3, ranks, 1);
            run.spec.tensor = 1;
            run.spec.context = 2;
            run.spec.stages = stages;
            run.spec.all_moments = stages == 1 && ranks == 8;
            expect_same(&one, &run);
        }
    ranks_free(&one);
}

/* Without segments another number of ranks rounds otherwise, so that the tests
 * above can fail. */
static void without_segments_ranks_differ(void **state)
{
    (void)state;
    ranks_run one = segmented(rig_tiny, 1, 1);
    ranks_run two = segmented(rig_tiny, 2, 1);
    one.spec.segments = two.spec.segments = 0;
    ranks_go(&one);
    ranks_go(&two);
    assert_true(snapshot_differ(&one.weights, &two.weights));
    ranks_free(&one);
    ranks_free(&two);
}

/* A failing loss leaves no rank behind in a pass. */
static void expect_lone_failure(ranks_run run)
{
    run.fail_loss = run.may_fail = run.one_call = 1;
    run.steps = 1;
    ranks_go(&run);
    for (uint32_t r = 0; r + 1 < run.ranks; r++)
        assert_int_equal(run.status[r], XRAY_OK);
    assert_int_equal(run.status[run.ranks - 1], XRAY_E_NUMERIC);
    ranks_free(&run);
}

static void a_failing_loss_fails_alone(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage < 4; stage += 2)
        expect_lone_failure(segmented(rig_tiny_tied, 2, stage));
    ranks_run stages = segmented(ranks_qwen3, 4, 1);
    stages.spec.tensor = 1;
    stages.spec.stages = 2;
    stages.cuts = 2;
    expect_lone_failure(stages);
}

static void expect_refused(ranks_run run, xray_status status, const char *text)
{
    run.may_fail = 1;
    ranks_go(&run);
    for (uint32_t r = 0; r < run.ranks; r++)
        if (run.status[r] == status && strstr(run.error[r], text)) {
            ranks_free(&run);
            return;
        }
    fail_msg("%u ranks: \"%s\", expected \"%s\"", run.ranks, run.error[0],
             text);
}

static void what_breaks_the_order_is_refused(void **state)
{
    (void)state;
    ranks_run run = segmented(rig_tiny, 3, 1);
    expect_refused(run, XRAY_E_CONFIG,
                   "8 segments for 3 replicas, expected a power of two that "
                   "they divide");
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        char text[96];
        run = segmented(rig_tiny, ranks, 1);
        run.spec.segments = 6;
        (void)snprintf(text, sizeof(text),
                       "6 segments for %u replicas, expected a power of two "
                       "that they divide",
                       ranks);
        expect_refused(run, XRAY_E_CONFIG, text);
    }
    run = segmented(rig_tiny, 2, 2);
    run.cuts = 2;
    expect_refused(run, XRAY_E_RANGE,
                   "has more than the 400 tokens of a micro-batch, expected "
                   "that each fits one");
    run = segmented(rig_tiny, 1, 1);
    run.cuts = 2;
    run.twice = 1;
    expect_refused(run, XRAY_E_STATE,
                   "adds up segments of a mini-batch, whose micro-batches "
                   "come in one call");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_stages_on_any_ranks_have_the_bits_of_one),
        cmocka_unit_test(empty_segments_count_as_zeros),
        cmocka_unit_test(empty_micro_batches_are_of_no_segment),
        cmocka_unit_test(megatron_has_the_bits_of_one_rank),
        cmocka_unit_test(stages_have_the_bits_of_one_rank),
        cmocka_unit_test(contexts_have_the_bits_of_one_replica),
        cmocka_unit_test(without_segments_ranks_differ),
        cmocka_unit_test(a_failing_loss_fails_alone),
        cmocka_unit_test(what_breaks_the_order_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
