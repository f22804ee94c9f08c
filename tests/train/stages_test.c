/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the schedule of a pipeline, and that stages of any number, evenly or
 * unevenly divided, train as one rank does: with fewer and with more
 * micro-batches than stages, whichever layers are frozen, where calls fail, and
 * where a model's embedding is in two stages.
 */
#include "model/train/flow.h"
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

/* Writes the turns of a stage as "f0 f1 b0 ...", and those of a stage with
 * chunks as "f0a f1a f0b ...". */
static const char *turns_of(uint32_t stages, uint32_t stage, uint32_t chunks,
                            uint32_t batches)
{
    static char text[512];
    const xm_schedule s = { stages, stage, chunks, batches, 0 };
    text[0] = '\0';
    for (uint32_t i = 0; i < xm_schedule_turns(&s); i++) {
        xm_turn turn = xm_schedule_turn(&s, i);
        (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                       "%s%c%u", i ? " " : "", turn.backward ? 'b' : 'f',
                       turn.batch);
        if (chunks > 1)
            (void)snprintf(text + strlen(text), sizeof(text) - strlen(text),
                           "%c", (char)('a' + turn.chunk));
    }
    return text;
}

static void a_stage_runs_one_forward_and_one_backward(void **state)
{
    (void)state;
    assert_string_equal(turns_of(1, 0, 1, 3), "f0 b0 f1 b1 f2 b2");
    assert_string_equal(turns_of(3, 0, 1, 5), "f0 f1 f2 b0 f3 b1 f4 b2 b3 b4");
    assert_string_equal(turns_of(3, 1, 1, 5), "f0 f1 b0 f2 b1 f3 b2 f4 b3 b4");
    assert_string_equal(turns_of(3, 2, 1, 5), "f0 b0 f1 b1 f2 b2 f3 b3 f4 b4");
    assert_string_equal(turns_of(4, 0, 1, 2), "f0 f1 b0 b1");
    assert_string_equal(turns_of(4, 3, 1, 2), "f0 b0 f1 b1");
    assert_string_equal(turns_of(4, 1, 1, 0), "");
}

/* As in Megatron-LM's interleaved schedule. */
static void chunks_are_run_in_groups_of_as_many_as_stages(void **state)
{
    (void)state;
    assert_string_equal(turns_of(2, 0, 2, 4),
                        "f0a f1a f0b f1b f2a b0b f3a b1b f2b b0a f3b b1a "
                        "b2b b3b b2a b3a");
    assert_string_equal(turns_of(2, 1, 2, 4),
                        "f0a f1a f0b b0b f1b b1b f2a b0a f3a b1a f2b b2b f3b "
                        "b3b b2a b3a");
    assert_string_equal(turns_of(2, 0, 3, 2),
                        "f0a f1a f0b f1b f0c f1c b0c b1c b0b b1b b0a b1a");
    assert_string_equal(turns_of(4, 3, 2, 4),
                        "f0a f1a f2a f3a f0b b0b f1b b1b f2b b2b f3b b3b b0a "
                        "b1a b2a b3a");
}

/* ---- the order of messages ----------------------------------------------- */

enum { MOST_STAGES = 8, MOST_CHUNKS = 4, MOST_BATCHES = 300 };

/* A part of a micro-batch's way: the chunks of all stages in the model's order
 * are numbered. */
typedef struct play {
    uint32_t stages;
    uint32_t chunks;
    xm_flow flows[MOST_STAGES];
    uint32_t at[MOST_STAGES];
    uint32_t now[MOST_STAGES]; /* when the stage has ended its last turn */
    /* When hidden states and gradients are here; 0: not yet. */
    uint32_t hidden[MOST_STAGES * MOST_CHUNKS][MOST_BATCHES];
    uint32_t grad[MOST_STAGES * MOST_CHUNKS][MOST_BATCHES];
    uint32_t ended[2][MOST_STAGES * MOST_CHUNKS][MOST_BATCHES];
    /* The chunk and micro-batch that a flight has, plus 1; 0: none. */
    uint32_t flights[MOST_STAGES][MOST_STAGES * MOST_CHUNKS + 2 * MOST_STAGES];
} play;

static int is_message(uint32_t what)
{
    return what != XM_FLOW_FORWARD && what != XM_FLOW_BACKWARD;
}

static uint32_t part_of(const play *p, uint32_t stage, uint32_t chunk)
{
    return chunk * p->stages + stage;
}

/* A flight is used for one chunk of one micro-batch until its turns, and what
 * others need of it, are done. */
static void use_flight(play *p, uint32_t stage, const xm_flow_step *step)
{
    uint32_t *flight = &p->flights[stage][step->flight];
    uint32_t own = 1 + step->chunk * MOST_BATCHES + step->batch;
    uint32_t part = part_of(p, stage, step->chunk);
    int begins = step->what == XM_FLOW_RECEIVE ||
                 (step->what == XM_FLOW_FORWARD && part == 0);
    if (begins)
        *flight = own;
    assert_int_equal(*flight, own);
}

/* Runs a turn, which needs what has arrived. */
static void play_turn(play *p, uint32_t stage, const xm_flow_step *step)
{
    uint32_t part = part_of(p, stage, step->chunk);
    uint32_t back = step->what == XM_FLOW_BACKWARD;
    uint32_t last = p->stages * p->chunks - 1;
    uint32_t ready = back ? p->ended[0][part][step->batch] : 0;
    if (back && part < last)
        ready = p->grad[part][step->batch];
    if (!back && part)
        ready = p->hidden[part][step->batch];
    assert_true(ready || (!back && part == 0));
    p->now[stage] = (ready > p->now[stage] ? ready : p->now[stage]) + 1;
    p->ended[back][part][step->batch] = p->now[stage];
}

/* A message is done when both stages are at it. */
static int play_message(play *p, uint32_t stage, const xm_flow_step *step)
{
    int back = step->what == XM_FLOW_SEND_GRAD;
    if (step->what != XM_FLOW_SEND && !back)
        return 0;
    uint32_t part = part_of(p, stage, step->chunk);
    uint32_t to = back ? part - 1 : part + 1;
    uint32_t other = to % p->stages;
    if (p->at[other] == p->flows[other].count)
        return 0;
    const xm_flow_step *theirs = &p->flows[other].steps[p->at[other]];
    if (theirs->what != (back ? XM_FLOW_RECEIVE_GRAD : XM_FLOW_RECEIVE) ||
        theirs->batch != step->batch || part_of(p, other, theirs->chunk) != to)
        return 0;
    use_flight(p, stage, step);
    use_flight(p, other, theirs);
    uint32_t when = p->ended[back][part][step->batch];
    assert_true(when > 0);
    (back ? p->grad : p->hidden)[to][step->batch] = when;
    p->at[stage]++;
    p->at[other]++;
    return 1;
}

static int play_step(play *p, uint32_t stage)
{
    if (p->at[stage] == p->flows[stage].count)
        return 0;
    const xm_flow_step *step = &p->flows[stage].steps[p->at[stage]];
    if (is_message(step->what))
        return play_message(p, stage, step);
    use_flight(p, stage, step);
    play_turn(p, stage, step);
    p->at[stage]++;
    return 1;
}

/* Runs the steps of all stages, whose messages wait for each other, and returns
 * when the last turn ends if each takes one unit of time. */
static uint32_t play_flows(const xm_schedule *of)
{
    static play p;
    uint32_t last = 0;
    int any = 1;
    memset(&p, 0, sizeof(p));
    p.stages = of->stages;
    p.chunks = of->chunks;
    for (uint32_t stage = 0; stage < of->stages; stage++) {
        xm_schedule own = *of;
        xr_err err = { "" };
        own.stage = stage;
        assert_int_equal(xm_flow_make(&own, &err, &p.flows[stage]), XRAY_OK);
        for (uint32_t i = 0; i < p.flows[stage].count; i++)
            assert_true(p.flows[stage].steps[i].flight <
                        xm_schedule_in_flight(&own));
    }
    while (any) {
        any = 0;
        for (uint32_t stage = 0; stage < of->stages; stage++)
            while (play_step(&p, stage))
                any = 1;
    }
    for (uint32_t stage = 0; stage < of->stages; stage++) {
        assert_int_equal(p.at[stage], p.flows[stage].count);
        last = p.now[stage] > last ? p.now[stage] : last;
        xm_flow_free(&p.flows[stage]);
    }
    for (uint32_t part = 0; part < of->stages * of->chunks; part++)
        for (uint32_t b = 0; b < of->batches; b++)
            for (uint32_t back = 0; back < (of->forward ? 1u : 2u); back++)
                assert_true(p.ended[back][part][b] > 0);
    return last;
}

/* The bubble is a turn of each kind for each other stage, of a chunk. */
static void stages_wait_for_no_more_than_the_bubble(void **state)
{
    (void)state;
    for (uint32_t stages = 1; stages <= MOST_STAGES; stages++)
        for (uint32_t chunks = 1; chunks <= (stages > 1 ? MOST_CHUNKS : 1u);
             chunks++)
            for (uint32_t batches = 0; batches <= 3 * stages; batches++) {
                xm_schedule s = { stages, 0, chunks, batches, 0 };
                uint32_t turns = batches * chunks;
                if (chunks > 1 && batches % stages)
                    continue;
                assert_int_equal(play_flows(&s),
                                 turns ? 2 * (turns + stages - 1) : 0);
                s.forward = 1;
                assert_int_equal(play_flows(&s),
                                 turns ? turns + stages - 1 : 0);
            }
    const xm_schedule many = { 2, 0, 1, MOST_BATCHES, 0 };
    assert_int_equal(play_flows(&many), 2 * (MOST_BATCHES + 1));
}

/* 1: all cases; 0: one of three, and fewer where each takes long. */
static int thorough;

static int is_left_out(uint32_t at)
{
    return !thorough && at % (3 * TEST_STEP);
}

/* ---- runs ---------------------------------------------------------------- */

typedef struct split {
    const char *json;
    uint32_t stages;
    uint32_t first; /* layers of the first stage; 0: as the others */
    uint32_t last;
    uint32_t chunks; /* of each stage; 0: one */
} split;

static const split splits[] = {
    { ranks_deep, 2, 0, 0 },    { ranks_deep, 3, 0, 0 },
    { ranks_deep, 6, 0, 0 },    { ranks_deep, 4, 1, 1 },
    { ranks_deep, 2, 5, 0 },    { ranks_deep, 3, 0, 4 },
    { tied, 2, 0, 0 },          { tied, 4, 0, 0 },
    { tied, 3, 2, 1 },          { ranks_deep, 2, 0, 0, 3 },
    { ranks_deep, 3, 0, 0, 2 }, { ranks_deep, 2, 4, 0, 2 },
    { tied, 2, 0, 0, 2 }
};
#define SPLITS (sizeof(splits) / sizeof(splits[0]))

static ranks_run run_of(const split *s, uint32_t cuts)
{
    ranks_run run = ranks_of(s->json, s->stages, 1);
    run.spec.tensor = 1;
    run.spec.stages = s->stages;
    run.spec.first_layers = s->first;
    run.spec.last_layers = s->last;
    run.spec.chunks = s->chunks;
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
    static const uint32_t of[] = { 1, 10, 9 };
    ranks_run want = alone(ranks_deep);
    want.spec.tensor = 1;
    want.spec.segments = 8;
    want.rows = 5;
    ranks_go(&want);
    for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++) {
        ranks_run run = run_of(&splits[of[i]], 1);
        run.spec.segments = 8;
        run.rows = 5;
        run.ranks = 2 * splits[of[i]].stages;
        ranks_go(&run);
        ranks_same(&want, &run, "segments on stages and two replicas");
        ranks_free(&run);
    }
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
        want.spec.stages = want.spec.chunks = 1;
        want.spec.first_layers = want.spec.last_layers = 0;
        (void)snprintf(what, sizeof(what), "split %u of divided rows", s);
        ranks_go(&want);
        ranks_go(&run);
        expect_run(&want, &run, what);
        ranks_planned(&run, what);
        expect_published_once(&want);
        expect_published_once(&run);
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
        { { ranks_deep, 3, 4, 4 }, "the next size that works is 1" },
        { { ranks_deep, 2, 4, 0, 4 },
          "the stages have 4, 2 and 2 layers, which cannot all be divided into "
          "so many chunks; the next number that works is 2" },
        { { ranks_deep, 2, 0, 2, 4 }, "the stages have 4, 4 and 2 layers" },
        { { ranks_deep, 1, 0, 0, 2 },
          "pipeline_model_parallel_size is above 1" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ranks_run run = run_of(&cases[i].split, 1);
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan(&run.spec, 8, &plan), XRAY_E_CONFIG);
        if (!strstr(rig_error(), cases[i].says))
            fail_msg("case %zu: %s", i, rig_error());
    }
}

/* Of three stages the first one holds three micro-batches and the second one
 * two, each beside one scratch: the MLP's width, the gradients of o's inputs
 * and those of q, k and v, in fp32. */
static void micro_batches_of_a_stage_share_their_scratch(void **state)
{
    (void)state;
    ranks_run run = run_of(&splits[1], 1);
    uint64_t bytes[2];
    for (uint32_t stage = 0; stage < 2; stage++) {
        xray_plan plan = { .header = XRAY_HEADER(xray_plan) };
        assert_int_equal(rig_plan_rank(&run.spec, stage, 3, &plan), XRAY_OK);
        bytes[stage] = plan.bytes[XRAY_TAG_ACTIVATIONS];
    }
    assert_int_equal(3 * bytes[1] - 2 * bytes[0],
                     run.spec.tokens * (160 + 64 + 128) * sizeof(float));
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
        cmocka_unit_test(chunks_are_run_in_groups_of_as_many_as_stages),
        cmocka_unit_test(stages_wait_for_no_more_than_the_bubble),
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
        cmocka_unit_test(micro_batches_of_a_stage_share_their_scratch),
        cmocka_unit_test(the_plan_names_the_axes_and_who_answers),
    };
    thorough = argc > 1 && strcmp(argv[1], "all") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
