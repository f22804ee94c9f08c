/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the schedule of a pipeline, and that stages of any number, evenly or
 * unevenly divided, train as one rank does: with fewer and with more
 * micro-batches than stages, whichever layers are frozen, where calls fail, and
 * where a model's embedding is in two stages.
 */
#include "model/train/schedule.h"
#include "tests/train/ranks.h"

/* Four layers, tied, with two segments of norms of heads. */
static const char tied[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],"
    "\"hidden_act\":\"silu\",\"hidden_size\":24,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":8,"
    "\"intermediate_size\":40,\"vocab_size\":37,"
    "\"max_position_embeddings\":64,\"rms_norm_eps\":1e-6,"
    "\"rope_theta\":10000.0,\"initializer_range\":0.08,"
    "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2}";

/* ---- the schedule -------------------------------------------------------- */

/* Writes the turns of a stage as "f0 f1 b0 ...". */
static const char *turns_of(uint32_t stages, uint32_t stage, uint32_t batches)
{
    static char text[256];
    const xm_schedule s = { stages, stage, batches };
    text[0] = '\0';
    for (uint32_t i = 0; i < 2 * batches; i++) {
        xm_turn turn = xm_schedule_turn(&s, i);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "%s%c%u", i ? " " : "", turn.backward ? 'b' : 'f',
                       turn.batch);
    }
    return text;
}

static void a_stage_runs_one_forward_and_one_backward(void **state)
{
    (void)state;
    assert_string_equal(turns_of(1, 0, 3), "f0 b0 f1 b1 f2 b2");
    assert_string_equal(turns_of(3, 0, 5), "f0 f1 f2 b0 f3 b1 f4 b2 b3 b4");
    assert_string_equal(turns_of(3, 1, 5), "f0 f1 b0 f2 b1 f3 b2 f4 b3 b4");
    assert_string_equal(turns_of(3, 2, 5), "f0 b0 f1 b1 f2 b2 f3 b3 f4 b4");
    assert_string_equal(turns_of(4, 0, 2), "f0 f1 b0 b1");
    assert_string_equal(turns_of(4, 3, 2), "f0 b0 f1 b1");
    assert_string_equal(turns_of(4, 1, 0), "");
}

/* Every turn takes one unit of time; a stage begins one when it and those that
 * it needs have ended. Returns when the last one ends. */
static uint32_t run_pipeline(uint32_t stages, uint32_t batches)
{
    uint32_t ends[8][2][16] = { { { 0 } } };
    uint32_t at[8] = { 0 };
    uint32_t free_at[8] = { 0 };
    uint32_t in_flight[8] = { 0 };
    uint32_t last = 0;
    for (uint32_t done = 0; done < 2 * stages * batches;) {
        uint32_t before = done;
        for (uint32_t s = 0; s < stages; s++) {
            const xm_schedule schedule = { stages, s, batches };
            if (at[s] == 2 * batches)
                continue;
            xm_turn turn = xm_schedule_turn(&schedule, at[s]);
            uint32_t n = turn.batch;
            uint32_t ready = 1;
            if (turn.backward)
                ready = s + 1 < stages ? ends[s + 1][1][n] : ends[s][0][n];
            else if (s)
                ready = ends[s - 1][0][n];
            if (!ready)
                continue;
            if (ready == 1 && !turn.backward && s == 0)
                ready = 0;
            free_at[s] = (ready > free_at[s] ? ready : free_at[s]) + 1;
            ends[s][turn.backward][n] = free_at[s];
            in_flight[s] += turn.backward ? -1u : 1u;
            assert_true(in_flight[s] <= xm_schedule_in_flight(stages, s));
            last = free_at[s] > last ? free_at[s] : last;
            at[s]++;
            done++;
        }
        assert_true(done > before); /* else the stages wait for each other */
    }
    return last;
}

static void
the_bubble_is_one_turn_of_each_kind_for_each_other_stage(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= 8; stages++)
        for (uint32_t batches = 1; batches <= 16; batches++)
            assert_int_equal(run_pipeline(stages, batches),
                             2 * (batches + stages - 1));
}

/* 1: all cases; 0: one of three. */
static int thorough;

static int is_left_out(uint32_t at)
{
    return !thorough && at % 3;
}

/* ---- runs ---------------------------------------------------------------- */

typedef struct split {
    const char *json;
    uint32_t stages;
    uint32_t first; /* layers of the first stage; 0: as the others */
    uint32_t last;
} split;

static const split splits[] = {
    { ranks_deep, 2, 0, 0 }, { ranks_deep, 3, 0, 0 }, { ranks_deep, 6, 0, 0 },
    { ranks_deep, 4, 1, 1 }, { ranks_deep, 2, 5, 0 }, { ranks_deep, 3, 0, 4 },
    { tied, 2, 0, 0 },       { tied, 4, 0, 0 },       { tied, 3, 2, 1 }
};
#define SPLITS (sizeof(splits) / sizeof(splits[0]))

static ranks_run run_of(const split *s, uint32_t cuts)
{
    ranks_run run = ranks_of(s->json, s->stages, 1);
    run.spec.tensor = 1;
    run.spec.stages = s->stages;
    run.spec.first_layers = s->first;
    run.spec.last_layers = s->last;
    run.cuts = cuts;
    run.score = 1;
    return run;
}

static ranks_run alone(const char *json)
{
    ranks_run run = ranks_of(json, 1, 1);
    run.score = 1;
    return run;
}

static void expect_run(const ranks_run *want, const ranks_run *run,
                       const char *what)
{
    ranks_same(want, run, what);
    for (uint32_t r = 1; r < run->ranks; r++)
        assert_memory_equal(run->norm[0], run->norm[r], sizeof(run->norm[0]));
    assert_memory_equal(want->nll, run->nll, sizeof(want->nll));
    assert_memory_equal(want->logp, run->logp, sizeof(want->logp));
    assert_memory_equal(want->value, run->value, sizeof(want->value));
}

static void
any_number_of_stages_and_micro_batches_has_the_bits_of_one_rank(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SPLITS; s++) {
        ranks_run want = alone(splits[s].json);
        ranks_go(&want);
        for (uint32_t cuts = 1; cuts <= 8; cuts += cuts < 3 ? 1 : 2) {
            char what[64];
            if (is_left_out(s + cuts))
                continue;
            ranks_run run = run_of(&splits[s], cuts);
            (void)snprintf(what, sizeof(what), "split %u, %u micro-batches", s,
                           cuts);
            ranks_go(&run);
            expect_run(&want, &run, what);
            ranks_planned(&run, what);
            ranks_free(&run);
        }
        ranks_free(&want);
    }
}

/* Stages below the first trained layer run no backward pass. */
static void stages_may_be_frozen_in_part_or_in_full(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SPLITS; s++)
        for (uint32_t from = 1; from <= (splits[s].json == tied ? 4u : 6u);
             from++) {
            char what[64];
            if (is_left_out(s + 2 * from))
                continue;
            ranks_run want = alone(splits[s].json);
            ranks_run run = run_of(&splits[s], 5);
            want.spec.from_layer = run.spec.from_layer = from;
            run.spec.offload_optimizer = from % 2;
            (void)snprintf(what, sizeof(what), "split %u from layer %u", s,
                           from);
            ranks_go(&want);
            ranks_go(&run);
            expect_run(&want, &run, what);
            ranks_planned(&run, what);
            ranks_free(&run);
            ranks_free(&want);
        }
}

/* With replicas, further gradients are added to the shares of a sum. */
static void gradients_may_be_read_between_two_calls(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SPLITS; s++) {
        if (is_left_out(s))
            continue;
        ranks_run want = alone(splits[s].json);
        ranks_run run = run_of(&splits[s], 6);
        want.cuts = 6;
        want.twice = run.twice = 1;
        ranks_go(&want);
        ranks_go(&run);
        expect_run(&want, &run, "read between two calls");
        ranks_free(&run);
        ranks_free(&want);
    }
}

/* The layers of a stage are trained by segments, beside other replicas'. */
static void segments_of_a_mini_batch_are_added_up_on_every_stage(void **state)
{
    (void)state;
    ranks_run want = alone(ranks_deep);
    ranks_run run = run_of(&splits[1], 1);
    want.spec.tensor = 1;
    want.spec.segments = run.spec.segments = 8;
    want.rows = run.rows = 5;
    run.ranks = 6;
    ranks_go(&want);
    ranks_go(&run);
    ranks_same(&want, &run, "segments on three stages and two replicas");
    ranks_free(&run);
    ranks_free(&want);
}

/* Ranks that share KV heads have other bits than one rank, but those of one
 * stage. */
static void ranks_with_the_same_kv_heads_may_have_stages(void **state)
{
    (void)state;
    ranks_run want = ranks_of(ranks_narrow, 4, 1);
    want.spec.tensor = 4;
    want.kv_ranks = 2;
    ranks_run run = want;
    run.ranks = 8;
    run.spec.stages = 2;
    run.cuts = 3;
    ranks_go(&want);
    ranks_go(&run);
    ranks_same(&want, &run, "shared KV heads");
    ranks_free(&run);
    ranks_free(&want);
}

/* A message has the tokens of one rank: half of them, rounded up or down. */
static void expect_half_messages(const ranks_run *run, uint32_t rank)
{
    const ranks_work *work = &run->work[rank][0];
    const uint64_t hidden = 64;
    uint32_t stage = rank / 2 % run->spec.stages;
    uint64_t sends = (uint64_t)(stage > 0) + (stage + 1 < run->spec.stages);
    thread_comm_calls made = run->passed[rank][0].send;
    uint64_t most = sends * work->context * hidden;
    assert_int_equal(made.calls, sends * work->passes);
    if (made.floats > most ||
        made.floats + sends * work->passes * hidden < most)
        fail_msg("rank %u: %llu floats, not %llu", rank,
                 (unsigned long long)made.floats, (unsigned long long)most);
}

/* Slices of more than one rank would publish a copy of each norm. */
static void expect_published_once(const ranks_run *run)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < run->weights.count; i++)
        all += run->weights.tensors[i].count;
    assert_int_equal(run->weights.stored, all);
}

/* Stages add nothing to what the division of rows rounds. */
static void stages_of_divided_rows_have_the_bits_of_one_stage(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SPLITS; s++) {
        char what[64];
        if (splits[s].stages > 4)
            continue;
        ranks_run run = run_of(&splits[s], 3);
        ranks_run want = run;
        run.ranks = 2 * splits[s].stages;
        want.ranks = 2;
        run.spec.context = want.spec.context = 2;
        run.spec.from_layer = want.spec.from_layer = s % 3;
        want.spec.stages = 1;
        want.spec.first_layers = want.spec.last_layers = 0;
        (void)snprintf(what, sizeof(what), "split %u of divided rows", s);
        ranks_go(&want);
        ranks_go(&run);
        expect_run(&want, &run, what);
        ranks_planned(&run, what);
        expect_published_once(&want);
        expect_published_once(&run);
        for (uint32_t r = 0; s == 0 && r < run.ranks; r++)
            expect_half_messages(&run, r);
        ranks_free(&run);
        ranks_free(&want);
    }
}

/* ---- what goes wrong ----------------------------------------------------- */

static void a_loss_that_fails_ends_the_call_on_its_stage_alone(void **state)
{
    (void)state;
    for (uint32_t s = 0; s < SPLITS; s++) {
        ranks_run run = run_of(&splits[s], 5);
        run.fail_loss = 1;
        run.one_call = 1;
        run.steps = 1;
        run.may_fail = 1;
        ranks_go(&run);
        for (uint32_t r = 0; r < run.ranks; r++)
            assert_int_equal(run.status[r],
                             r + 1 < run.ranks ? XRAY_OK : XRAY_E_NUMERIC);
        ranks_free(&run);
    }
}

static void
a_gradient_that_is_not_finite_skips_the_step_on_all_stages(void **state)
{
    (void)state;
    ranks_run run = run_of(&(split){ ranks_deep, 2, 1, 0 }, 2);
    run.poison = 1;
    run.steps = 1;
    ranks_go(&run);
    for (uint32_t r = 0; r < run.ranks; r++) {
        assert_int_equal(run.skipped[r], 1);
        assert_string_equal(run.bad[r], "model.layers.1.mlp.down_proj.weight");
    }
    ranks_free(&run);
}

/* All ranks name the first one that differs from the first of its replica,
 * before any of them begins the call. */
static void ranks_with_other_numbers_of_micro_batches_are_named(void **state)
{
    (void)state;
    const uint32_t cells[][4] = {
        /* slices, context, stages, replicas */
        { 1, 1, 2, 1 }, { 2, 1, 1, 1 }, { 2, 1, 1, 2 }, { 1, 2, 1, 2 },
        { 1, 1, 3, 1 }, { 1, 2, 2, 1 }, { 2, 2, 2, 1 }
    };
    for (size_t i = 0; i < 4 * sizeof(cells) / sizeof(cells[0]); i++) {
        const uint32_t *cell = cells[i / 4];
        uint32_t width = cell[0] * cell[1] * cell[2];
        uint32_t score = i % 4 / 2;
        ranks_run run = run_of(&(split){ ranks_deep, cell[2], 0, 0 }, 3);
        char want[128];
        run.spec.tensor = cell[0];
        run.spec.context = cell[1];
        run.ranks = width * cell[3];
        run.cut_short = i % 2 ? 1 : run.ranks;
        run.score = score;
        run.steps = 1;
        run.may_fail = 1;
        (void)snprintf(want, sizeof(want),
                       "rank %u of %u was given %u micro-batches, but rank %u "
                       "of the same replica %u, expected as many",
                       i % 2 ? 1 : run.ranks - 1, run.ranks,
                       (score ? 0 : 2) + (uint32_t)(i % 2),
                       i % 2 ? 0 : run.ranks - width,
                       (score ? 1 : 3) - (uint32_t)(i % 2));
        ranks_go(&run);
        for (uint32_t r = 0; r < run.ranks; r++)
            if (run.status[r] != XRAY_E_ARG || !strstr(run.error[r], want))
                fail_msg("case %zu, rank %u: %d, %s, not: %s", i, r,
                         run.status[r], run.error[r], want);
        ranks_free(&run);
    }
}

static void layers_that_cannot_be_divided_are_refused(void **state)
{
    (void)state;
    const struct {
        split split;
        const char *says;
    } cases[] = {
        { { ranks_deep, 4, 0, 0 }, "6 layers cannot be divided" },
        { { ranks_deep, 5, 0, 0 }, "the next size that works is 3" },
        { { ranks_deep, 8, 0, 0 }, "the next size that works is 6" },
        { { ranks_deep, 2, 7, 0 }, "decoder_first_pipeline_num_layers (7)" },
        { { ranks_deep, 2, 3, 2 }, "decoder_last_pipeline_num_layers (2)" },
        { { ranks_deep, 3, 3, 3 }, "the next size that works is 2" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ranks_run run = run_of(&cases[i].split, 1);
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&run.spec, 8, &plan), XRAY_E_CONFIG);
        if (!strstr(rig_error(), cases[i].says))
            fail_msg("case %zu: %s", i, rig_error());
    }
}

static void the_plan_names_the_axes_and_who_answers(void **state)
{
    (void)state;
    ranks_run run = run_of(&splits[1], 1);
    xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
    run.spec.tensor = 2;
    assert_int_equal(rig_plan(&run.spec, 12, &plan), XRAY_OK);
    assert_int_equal(plan.answers, 4);
    assert_int_equal(plan.axis_count, 3);
    assert_string_equal(plan.axes[0].name, XRAY_AXIS_TENSOR);
    assert_int_equal(plan.axes[0].size, 2);
    assert_int_equal(plan.axes[1].size, 1);
    assert_string_equal(plan.axes[2].name, XRAY_AXIS_PIPELINE);
    assert_int_equal(plan.axes[2].size, 3);
    run.spec.context = 2;
    assert_int_equal(rig_plan(&run.spec, 12, &plan), XRAY_OK);
    assert_int_equal(plan.answers, 8);
    assert_int_equal(plan.axis_count, 3);
    assert_string_equal(plan.axes[1].name, XRAY_AXIS_CONTEXT);
    assert_int_equal(plan.axes[1].size, 2);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stage_runs_one_forward_and_one_backward),
        cmocka_unit_test(
            the_bubble_is_one_turn_of_each_kind_for_each_other_stage),
        cmocka_unit_test(
            any_number_of_stages_and_micro_batches_has_the_bits_of_one_rank),
        cmocka_unit_test(stages_may_be_frozen_in_part_or_in_full),
        cmocka_unit_test(gradients_may_be_read_between_two_calls),
        cmocka_unit_test(segments_of_a_mini_batch_are_added_up_on_every_stage),
        cmocka_unit_test(ranks_with_the_same_kv_heads_may_have_stages),
        cmocka_unit_test(stages_of_divided_rows_have_the_bits_of_one_stage),
        cmocka_unit_test(a_loss_that_fails_ends_the_call_on_its_stage_alone),
        cmocka_unit_test(
            a_gradient_that_is_not_finite_skips_the_step_on_all_stages),
        cmocka_unit_test(ranks_with_other_numbers_of_micro_batches_are_named),
        cmocka_unit_test(layers_that_cannot_be_divided_are_refused),
        cmocka_unit_test(the_plan_names_the_axes_and_who_answers),
    };
    thorough = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
