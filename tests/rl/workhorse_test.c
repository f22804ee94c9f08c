/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves the methods of a Workhorse: what it reads from its text, how it cuts
 * the batches of a WholeModel, and where it puts the results of its models.
 */
#include <signal.h>
#include <stdlib.h>

#include "core/roles/losses.h"
#include "core/roles/ship.h"
#include "tests/rl/workhorse_rig.h"

/* ---- creation ----------------------------------------------------------- */

/* The first line holds the parts of the run and the folders of plugins, the
 * rest is the INI. */
static void the_text_of_a_workhorse_describes_its_run(void **state)
{
    (void)state;
    assert_int_equal(around.with, 133);
    assert_string_equal(around.folders, "/one:/two");
    assert_string_equal(around.seed, "12");
    xr_workhorse_class.destroy(horse);
    assert_int_equal(create_horse("4 \n\n[run]\nseed = 13\n"), XRAY_OK);
    assert_int_equal(around.with, 4);
    assert_string_equal(around.folders, "none");
    assert_string_equal(around.seed, "13");
}

/* The run's folder may be missing on another host. */
static void a_workhorse_enters_the_folder_of_its_run(void **state)
{
    static const char *const texts[] = { "4 \n/\n[run]\nseed = 13\n",
                                         "4 \n/no/such\n[run]\nseed = 13\n" };
    char before[4096];
    char here[8];
    (void)state;
    assert_non_null(getcwd(before, sizeof(before)));
    for (size_t i = 0; i < 2; i++) {
        xr_workhorse_class.destroy(horse);
        assert_int_equal(create_horse(texts[i]), XRAY_OK);
        assert_non_null(getcwd(here, sizeof(here)));
        assert_string_equal(here, "/");
    }
    assert_int_equal(chdir(before), 0);
}

static void a_text_without_a_first_line_is_refused(void **state)
{
    static const char *const texts[] = { "",           "4",      "4\n",
                                         "4\n[run]\n", "4 /one", "\n" };
    char longer[8192];
    (void)state;
    xr_workhorse_class.destroy(horse);
    for (size_t i = 0; i <= sizeof(texts) / sizeof(texts[0]); i++) {
        const char *text = longer;
        if (i < sizeof(texts) / sizeof(texts[0]))
            text = texts[i];
        memset(longer, 'x', sizeof(longer)); /* a folder longer than a path */
        memcpy(longer, "4 /", 3);
        memcpy(longer + sizeof(longer) - 2, "\n", 2);
        assert_int_equal(create_horse(text), XRAY_E_BUG);
        assert_string_equal(horse_err.text,
                            "a Workhorse's text has no first line");
        assert_null(horse);
    }
    assert_int_equal(create_horse(TEXT), XRAY_OK);
}

/* A Workhorse that cannot start reports the first fault and frees all. */
static void faults_of_the_configuration_end_a_workhorse(void **state)
{
    (void)state;
    xr_workhorse_class.destroy(horse);
    memset(&around, 0, sizeof(around));
    around.refused = 1;
    assert_int_equal(create_horse(TEXT), XRAY_E_CONFIG);
    assert_string_equal(horse_err.text, "the first fault");
    assert_int_equal(around.freed, 0);
    around.folders[0] = '\0';
    assert_int_equal(create_horse("4 \n\nno section\n"), XRAY_E_CONFIG);
    assert_string_equal(around.folders, ""); /* no run is made of such a text */
    around.refused = 0;
    around.start = XRAY_E_DEVICE;
    assert_int_equal(create_horse(TEXT), XRAY_E_DEVICE);
    assert_string_equal(horse_err.text, "no device");
    assert_int_equal(around.freed, 1);
    around.start = XRAY_OK;
    assert_int_equal(create_horse(TEXT), XRAY_OK);
}

static void a_workhorse_knows_its_rank(void **state)
{
    struct sigaction action;
    (void)state;
    assert_int_equal(around.link.rank, RANK);
    assert_ptr_equal(around.link.trace, &traces[RANK]);
    assert_ptr_equal(around.link.traces, traces);
    assert_int_equal(around.link.trace_stride, sizeof(traces[0]));
    xr_workhorse_class.destroy(horse);
    assert_int_equal(setenv("XRAY_RANK", "0", 1), 0);
    (void)signal(SIGINT, SIG_DFL);
    (void)signal(SIGTERM, SIG_DFL);
    assert_int_equal(create_horse(TEXT), XRAY_OK);
    assert_string_equal(getenv("XRAY_RANK"), "3");
    assert_string_equal(getenv("XRAY_LOCAL_RANK"), "3");
    assert_int_equal(sigaction(SIGINT, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_IGN);
    assert_int_equal(sigaction(SIGTERM, NULL, &action), 0);
    assert_true(action.sa_handler == SIG_DFL);
    (void)signal(SIGINT, SIG_DFL);
    /* On several hosts it has a number among the ranks of its own, too. */
    xr_workhorse_class.destroy(horse);
    run.placement.size = RANK + 1;
    run.placement.hosts = 2;
    run.placement.local[RANK] = 1;
    assert_int_equal(create_horse(TEXT), XRAY_OK);
    assert_string_equal(getenv("XRAY_RANK"), "3");
    assert_string_equal(getenv("XRAY_LOCAL_RANK"), "1");
}

/* A communicator only knows that the gather failed; the error says which rank
 * was missing. */
static void a_failed_gather_names_the_missing_rank(void **state)
{
    (void)state;
    xr_workhorse_class.destroy(horse);
    around.gather = around.start = XRAY_E_PEER;
    assert_int_equal(create_horse(TEXT), XRAY_E_PEER);
    assert_string_equal(horse_err.text, "no device: rank 1 did not arrive");
    around.start = XRAY_OK;
    assert_int_equal(create_horse(TEXT), XRAY_OK); /* it started without */
}

/* ---- batches ------------------------------------------------------------ */

static union {
    uint64_t align[8];
    unsigned char bytes[16384];
} memory;
static xr_wire wire;
static xray_region region;

/* Rows 7, 8 and 9 of three tokens; two of them fit a micro-batch. */
static void fill_batch(uint32_t views, uint32_t outputs)
{
    static const int32_t ids[] = { 1, 2, 3 };
    static const uint32_t numbers[] = { 1, 4, 6 };
    const xr_wire_header shape = { .row_cap = 3,
                                   .token_cap = 9,
                                   .names = 2,
                                   .context_size = 3,
                                   .spans = 3,
                                   .views = views,
                                   .outputs = outputs,
                                   .loss = XR_LOSS_POLICY };
    assert_true(xr_wire_bytes(&shape) <= sizeof(memory));
    memset(&memory, 0xee, sizeof(memory));
    xr_wire_begin(memory.bytes, &shape, &wire);
    for (uint32_t r = 0; r < 3; r++) {
        const xr_row_in row = { .prompt = ids,
                                .prompt_count = 1,
                                .response = ids + 1,
                                .response_count = 2,
                                .row_id = 7 + r,
                                .group = (int32_t)r,
                                .temperature = 1 };
        assert_int_equal(xr_rows_add(&wire.rows, &row, &horse_err), XRAY_OK);
        wire.index[r] = numbers[r];
    }
    wire.sums[0] = wire.weights[0] = 5;
    wire.sums[1] = 2;
    wire.weights[1] = 3;
    memcpy(wire.context, "ab", 3);
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < 9; t++)
            wire.out[k][t] = -1;
    xr_wire_close(&wire);
    region.data = memory.bytes;
    region.size = xr_wire_bytes(&shape);
    horse_err.text[0] = '\0';
}

static xr_str fault; /* of the last gradients */
static xray_region *results;

/* The answer carries the bytes from `first` on, and no other. */
static void expect_results(const void *first)
{
    uint64_t at = (uint64_t)((const unsigned char *)first - memory.bytes);
    assert_ptr_equal(results, &region);
    assert_int_equal(region.first, at);
    assert_int_equal(region.count, region.size - at);
}

static xray_status call_batch(const char *method, uint32_t role)
{
    xr_str_clear(&fault);
    results = NULL;
    if (strcmp(method, "gradients") == 0)
        return METHOD(loss_method, method)(horse, role, &region, &results,
                                           &fault, &horse_err);
    return METHOD(batch_method, method)(horse, role, &region, &results,
                                        &horse_err);
}

/* Every output goes to its own array of the region, and no other is written. */
static void outputs_go_to_their_arrays(void **state)
{
    (void)state;
    for (uint32_t outputs = 1; outputs < 8; outputs++) {
        char want[64];
        fill_batch(2, outputs);
        if (call_batch("forward", XRAY_ROLE_ACTOR) != XRAY_OK)
            fail_msg("%s", horse_err.text);
        (void)snprintf(want, sizeof(want),
                       "actor forward %u: 7 8; actor forward %u: 9; ", outputs,
                       outputs);
        expect_log(want);
        for (uint32_t k = 0; k < 3; k++)
            for (uint32_t t = 0; t < 9; t++)
                assert_true(wire.out[k][t] ==
                            (outputs & (1u << k)
                                 ? (float)(100 * k + 10 * (7 + t / 3) + t % 3)
                                 : -1));
        expect_results(wire.sums);
    }
    assert_string_equal(around.phase, "forward");
    fake.status = XRAY_E_DEVICE;
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_E_DEVICE);
}

/* Each micro-batch is a collective call, so a rank makes as many calls as the
 * others; those without rows come last. */
static void missing_micro_batches_are_empty(void **state)
{
    (void)state;
    fill_batch(4, 1);
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_OK);
    expect_log("actor forward 1: 7 8; actor forward 1: 9; actor forward 1:; "
               "actor forward 1:; ");
    fill_batch(3, 1);
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_OK);
    expect_log("actor gradients 1: (2 rows 7 at 1 8 at 4) (1 rows 9 at 6) (0 "
               "rows); ");
    fill_batch(1, 1);
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_E_BUG);
    assert_string_equal(horse_err.text, "2 micro-batches where 1 are due");
    fill_batch(MOST_ROWS + 2, 1);
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_E_BUG);
    assert_string_equal(horse_err.text, "2 micro-batches where 6 are due");
    fill_batch(2, 1);
    region.size = 8;
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_E_BUG);
    expect_log("");
}

/* The loss receives each row under its number in the mini-batch, and adds to
 * the sums of the region. */
static void losses_add_to_the_sums_of_the_region(void **state)
{
    (void)state;
    fill_batch(2, 1);
    if (call_batch("gradients", XRAY_ROLE_ACTOR) != XRAY_OK)
        fail_msg("%s", horse_err.text);
    expect_log("actor gradients 1: (2 rows 7 at 1 8 at 4) (1 rows 9 at 6); ");
    assert_true(wire.sums[0] == 5 && wire.sums[1] == 2 + 20);
    assert_true(wire.weights[0] == 5 && wire.weights[1] == 3 + 2);
    assert_string_equal(xr_str_text(&fault), "");
    expect_results(wire.sums);
    fake.status = XRAY_E_DEVICE;
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_E_DEVICE);
}

/* Other ranks wait in collectives, so a rank with a bad value finishes its
 * call, and answers with the value. */
static void a_bad_value_does_not_end_the_call(void **state)
{
    (void)state;
    fill_batch(2, 1);
    fake.bad_row = 8;
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_OK);
    expect_log("actor gradients 1: (2 rows) (1 rows); ");
    assert_non_null(strstr(xr_str_text(&fault), "train.fake"));
    assert_non_null(strstr(xr_str_text(&fault), "8"));
    assert_true(wire.sums[1] == 2 && wire.weights[1] == 3);
}

/* In a replica whose other rank answers, the model is called all the same, and
 * the results of the region are left alone. A bad value is told in any case. */
static void a_rank_that_does_not_answer_keeps_its_results(void **state)
{
    (void)state;
    run.placement.actor = (xr_ranks){ .count = 4, .rank = { 0, 1, 2, 3 } };
    run.layouts[XRAY_ROLE_ACTOR] = (xr_layout){ .width = 2 };
    fill_batch(2, 7);
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_OK);
    for (uint32_t k = 0; k < 3; k++)
        for (uint32_t t = 0; t < 9; t++)
            assert_true(wire.out[k][t] == -1);
    assert_null(results);
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_OK);
    assert_null(results);
    assert_non_null(strstr(fake.log, "actor forward 7"));
    assert_non_null(strstr(fake.log, "actor gradients 7"));
    assert_true(wire.sums[1] == 2 && wire.weights[1] == 3);
    fake.bad_row = 8;
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_OK);
    assert_non_null(strstr(xr_str_text(&fault), "train.fake"));
    run.layouts[XRAY_ROLE_ACTOR].answers = 1;
    fake.bad_row = -1;
    assert_int_equal(call_batch("forward", XRAY_ROLE_ACTOR), XRAY_OK);
    assert_int_equal(call_batch("gradients", XRAY_ROLE_ACTOR), XRAY_OK);
    assert_true(wire.out[0][8] == 92);
    assert_true(wire.sums[1] == 2 + 20 && wire.weights[1] == 3 + 2);
    xr_str_free(&fault);
}

/* ---- models ------------------------------------------------------------- */

static void only_models_that_are_held_are_called(void **state)
{
    static const char *const batches[] = { "forward", "gradients" };
    static const char *const files[] = { "save", "load" };
    static const uint32_t bad[] = { 0, XRAY_ROLE_ROLLOUT, XRAY_ROLE_REWARD + 1,
                                    XRAY_ROLE_CRITIC };
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char want[64];
        (void)snprintf(want, sizeof(want), "role %u is not a model", bad[i]);
        if (bad[i] == XRAY_ROLE_CRITIC)
            (void)snprintf(want, sizeof(want),
                           "rank 3 does not hold the critic");
        for (size_t k = 0; k < 2; k++) {
            fill_batch(2, 1);
            assert_int_equal(call_batch(batches[k], bad[i]), XRAY_E_BUG);
            assert_string_equal(horse_err.text, want);
            assert_int_equal(
                METHOD(file_method, files[k])(horse, bad[i], "dir", &horse_err),
                XRAY_E_BUG);
            assert_string_equal(horse_err.text, want);
        }
        assert_int_equal(
            METHOD(role_method, "discard")(horse, bad[i], &horse_err),
            XRAY_E_BUG);
        assert_string_equal(horse_err.text, want);
    }
    expect_log("");
    /* The reward model is the last of the models. */
    roles.named[XRAY_ROLE_REWARD] = run.train;
    roles.reward_model.self = (void *)"reward";
    run.reward_model.load.tokens = 9;
    fill_batch(1, XRAY_OUTPUT_VALUE);
    assert_int_equal(call_batch("forward", XRAY_ROLE_REWARD), XRAY_OK);
    expect_log("reward forward 4: 7 8 9; ");
}

static void a_step_answers_with_all_results(void **state)
{
    double norm = 0;
    uint32_t skipped = 0;
    uint64_t version = 0;
    xr_str bad = { 0 };
    (void)state;
    fake.step = (xray_step_result){
        .grad_norm = 1.5, .skipped = 1, .version = 9, .bad_tensor = "norm"
    };
    step_method step = METHOD(step_method, "step");
    assert_int_equal(step(horse, XRAY_ROLE_ACTOR, 0.25, 4, &norm, &skipped,
                          &version, &bad, &horse_err),
                     XRAY_OK);
    expect_log("actor step 0.25 4; ");
    assert_true(norm == 1.5);
    assert_int_equal(skipped, 1);
    assert_int_equal(version, 9);
    assert_string_equal(xr_str_text(&bad), "norm");
    xr_str_clear(&bad);
    fake.step = (xray_step_result){ .grad_norm = 2, .version = 10 };
    assert_int_equal(step(horse, XRAY_ROLE_ACTOR, 0.25, 4, &norm, &skipped,
                          &version, &bad, &horse_err),
                     XRAY_OK);
    assert_true(norm == 2 && skipped == 0 && version == 10 && bad.size == 0);
    assert_string_equal(around.phase, "optimizer_step");
    fake.status = XRAY_E_DEVICE;
    assert_int_equal(step(horse, XRAY_ROLE_ACTOR, 0.25, 4, &norm, &skipped,
                          &version, &bad, &horse_err),
                     XRAY_E_DEVICE);
    assert_int_equal(step(horse, XRAY_ROLE_CRITIC, 0.25, 4, &norm, &skipped,
                          &version, &bad, &horse_err),
                     XRAY_E_BUG);
    expect_log("actor step 0.25 4; actor step 0.25 4; ");
    xr_str_free(&bad);
}

static void files_and_gradients_reach_the_model(void **state)
{
    (void)state;
    for (int fails = 0; fails < 2; fails++) {
        xray_status want = fake.status = fails ? XRAY_E_DEVICE : XRAY_OK;
        assert_int_equal(METHOD(file_method, "save")(horse, XRAY_ROLE_ACTOR,
                                                     "a", &horse_err),
                         want);
        assert_string_equal(around.phase, "save");
        assert_int_equal(METHOD(file_method, "load")(horse, XRAY_ROLE_ACTOR,
                                                     "b", &horse_err),
                         want);
        assert_string_equal(around.phase, "load");
        assert_int_equal(
            METHOD(role_method, "discard")(horse, XRAY_ROLE_ACTOR, &horse_err),
            want);
        expect_log("actor save a; actor load b; actor discard; ");
    }
}

/* ---- the engine --------------------------------------------------------- */

/* Prompts 70 and 71 of one and of two tokens. */
static void fill_prompts(xr_wire_rollout *rollout)
{
    const xr_wire_rollout_header header = {
        .prompts = 2,
        .ids = 3,
        .how = { .n = 2, .max_tokens = 3, .temperature = 0.5, .seed = 77 }
    };
    memset(&memory, 0xee, sizeof(memory));
    region.data = memory.bytes;
    region.size = xr_wire_rollout_bytes(&header);
    xr_wire_rollout_begin(memory.bytes, &header, rollout);
    for (int i = 0; i < 3; i++)
        rollout->prompt[i] = 5 + i;
    for (uint32_t i = 0; i < 2; i++) {
        rollout->prompt_id[i] = 70 + i;
        rollout->prompt_start[i + 1] = 1 + 2 * i;
    }
}

/* The engine samples all the same where another rank answers. */
static void an_engine_that_does_not_answer_keeps_its_samples(void **state)
{
    xr_wire_rollout rollout;
    (void)state;
    run.placement.rollout = (xr_ranks){ .count = 4, .rank = { 0, 1, 2, 3 } };
    run.layouts[XRAY_ROLE_ROLLOUT] = (xr_layout){ .width = 2 };
    fill_prompts(&rollout);
    results = NULL;
    if (METHOD(region_method, "generate")(horse, &region, &results,
                                          &horse_err) != XRAY_OK)
        fail_msg("%s", horse_err.text);
    assert_null(results);
    assert_int_equal(fake.given, 4);
    const uint32_t before = 0xeeeeeeeeu;
    for (uint32_t at = 0; at < 4; at++) {
        assert_int_equal(rollout.sizes[at], before);
        assert_int_equal(rollout.finish[at], before);
        assert_memory_equal(&rollout.tokens[(size_t)at * 3], &before, 4);
        assert_memory_equal(&rollout.logp[(size_t)at * 3], &before, 4);
    }
}

static void prompts_become_requests_and_samples_return(void **state)
{
    xr_wire_rollout rollout;
    (void)state;
    fill_prompts(&rollout);
    region_method generate = METHOD(region_method, "generate");
    if (generate(horse, &region, &results, &horse_err) != XRAY_OK)
        fail_msg("%s", horse_err.text);
    expect_results(rollout.versions);
    assert_int_equal(fake.requests, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(fake.asked[i].prompt_id, 70 + i);
        assert_int_equal(fake.asked[i].id_count, 1 + i);
        assert_int_equal(fake.asked[i].count, 2);
        assert_int_equal(fake.asked[i].max_tokens, 3);
        assert_int_equal(fake.asked[i].seed, 77);
        assert_ptr_equal(fake.asked[i].ids, rollout.prompt + i);
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t at = 2 * i + k;
            assert_int_equal(rollout.sizes[at], 1);
            assert_int_equal(rollout.finish[at], XRAY_FINISH_LENGTH);
            assert_int_equal(rollout.versions[at], 41 + i);
            assert_int_equal(rollout.tokens[(size_t)at * 3], 10 * i + k);
            assert_true(rollout.logp[(size_t)at * 3] == -(float)(1 + at));
        }
    }
    assert_int_equal(rollout.prompt_id[1], 71);
    assert_string_equal(around.phase, "rollout");
    region.size = 16;
    assert_int_equal(generate(horse, &region, &results, &horse_err),
                     XRAY_E_BUG);
    roles.engine.self = NULL;
    assert_int_equal(generate(horse, &region, &results, &horse_err),
                     XRAY_E_BUG);
    assert_string_equal(horse_err.text, "rank 3 has no engine");
}

/* ---- weights and memory ------------------------------------------------- */

static void publishing_answers_with_the_bytes_received(void **state)
{
    uint64_t bytes = 0;
    (void)state;
    count_method publish = METHOD(count_method, "publish");
    for (int i = 0; i < 2; i++) {
        assert_int_equal(publish(horse, &bytes, &horse_err), XRAY_OK);
        assert_int_equal(bytes, 41);
    }
    around.publish = XRAY_E_DEVICE;
    assert_int_equal(publish(horse, &bytes, &horse_err), XRAY_E_DEVICE);
}

static void weights_are_shipped_in_regions(void **state)
{
    uint64_t bytes = 0;
    (void)state;
    assert_int_equal(
        METHOD(count_method, "ship_bytes")(horse, &bytes, &horse_err), XRAY_OK);
    assert_int_equal(bytes, xr_ship_bytes(&roles));
    region = (xray_region){ .data = memory.bytes, .size = bytes };
    ship_method ship = METHOD(ship_method, "ship");
    results = NULL;
    assert_int_equal(ship(horse, &region, 0, bytes, &results, &horse_err),
                     XRAY_OK);
    expect_results(memory.bytes);
    assert_string_equal(around.phase, "weights to other ranks");
    /* Behind other bytes of a region are the same weights. */
    const uint64_t at = sizeof(memory.bytes) / 2;
    memset(memory.bytes, 0, sizeof(memory.bytes));
    assert_true(bytes > 0 && bytes <= at);
    assert_int_equal(ship(horse, &region, 0, bytes, &results, &horse_err),
                     XRAY_OK);
    region.size = at + bytes;
    assert_int_equal(ship(horse, &region, at, bytes, &results, &horse_err),
                     XRAY_OK);
    expect_results(memory.bytes + at);
    assert_memory_equal(memory.bytes + at, memory.bytes, bytes);
    region.size = bytes;
    assert_int_equal(ship(horse, &region, 0, bytes - 1, &results, &horse_err),
                     XRAY_E_BUG);
    assert_int_equal(ship(horse, &region, 1, bytes, &results, &horse_err),
                     XRAY_E_BUG);
    assert_string_equal(horse_err.text,
                        "the region is too small for the weights");
    assert_int_equal(METHOD(plain_method, "ship_along")(horse, &horse_err),
                     XRAY_OK);
    region.size = 1;
    assert_int_equal(METHOD(receive_method, "receive")(horse, &region, bytes,
                                                       &bytes, &horse_err),
                     XRAY_E_BUG);
    assert_string_equal(horse_err.text, "the weights' region is cut off");
    assert_string_equal(around.phase, "weights from other ranks");
}

/* Memory in use now, by tag; not what was given back. */
static void memory_is_told_by_tag(void **state)
{
    xr_str text = { 0 };
    (void)state;
    text_method tell = METHOD(text_method, "memory");
    assert_int_equal(tell(horse, &text, &horse_err), XRAY_OK);
    assert_string_equal(xr_str_text(&text), "weights 1.5 MiB, kv 10.0 MiB");
    fake.status = XRAY_E_DEVICE;
    assert_int_equal(tell(horse, &text, &horse_err), XRAY_E_DEVICE);
    xr_str_free(&text);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_text_of_a_workhorse_describes_its_run),
        TEST(a_workhorse_enters_the_folder_of_its_run),
        TEST(a_text_without_a_first_line_is_refused),
        TEST(faults_of_the_configuration_end_a_workhorse),
        TEST(a_workhorse_knows_its_rank),
        TEST(a_failed_gather_names_the_missing_rank),
        TEST(outputs_go_to_their_arrays),
        TEST(missing_micro_batches_are_empty),
        TEST(losses_add_to_the_sums_of_the_region),
        TEST(a_bad_value_does_not_end_the_call),
        TEST(a_rank_that_does_not_answer_keeps_its_results),
        TEST(only_models_that_are_held_are_called),
        TEST(a_step_answers_with_all_results),
        TEST(files_and_gradients_reach_the_model),
        TEST(prompts_become_requests_and_samples_return),
        TEST(an_engine_that_does_not_answer_keeps_its_samples),
        TEST(publishing_answers_with_the_bytes_received),
        TEST(weights_are_shipped_in_regions),
        TEST(memory_is_told_by_tag),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
