/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a WholeModel sends to its Workhorses, which are scripted, how it
 * combines their answers, sums and faults, and when the ranks are out of step.
 */
#include "core/plugin/cancel.h"
#include "core/roles/nonfinite.h"
#include "core/roles/plugin_metrics.h"
#include "core/roles/role_calls.h"
#include "tests/rl/whole_rig.h"

/* ---- forward ------------------------------------------------------------ */

static void outputs_go_where_rows_came_from(void **state)
{
    (void)state;
    for (uint32_t outputs = 1; outputs < 8; outputs++) {
        float out[3][TOKENS];
        for (int i = 0; i < 3 * TOKENS; i++)
            (&out[0][0])[i] = -1;
        assert_int_equal(call_forward(out, outputs), XRAY_OK);
        expect_calls("forward 0; forward 1; forward 3; ");
        const uint32_t bits[] = { XRAY_OUTPUT_LOGP, XRAY_OUTPUT_ENTROPY,
                                  XRAY_OUTPUT_VALUE };
        for (int k = 0; k < 3; k++)
            for (uint32_t r = 0, at = 0; r < ROWS; r++)
                for (uint32_t t = 0; t < whole_lengths[r]; t++, at++)
                    assert_true(
                        out[k][at] ==
                        (outputs & bits[k] ? whole_output(r, t, k) : -1));
    }
    assert_int_equal(script.rows[0] + script.rows[1] + script.rows[3], ROWS);
    assert_int_equal(script.rows[2], 0);
    /* All have as many micro-batches as the one with the most. */
    assert_true(script.views[0] >= 1);
    assert_int_equal(script.views[0], script.views[1]);
    assert_int_equal(script.views[0], script.views[3]);
    /* 38 tokens on three ranks: two of 16 hold what one has. */
    run.actor.load.tokens = 9;
    float out[3][TOKENS];
    assert_int_equal(call_forward(out, 1), XRAY_OK);
    assert_int_equal(script.views[0], 2);
}

/* All replicas get as many micro-batches as the one with the most, whichever
 * that is. */
static void all_replicas_get_as_many_micro_batches(void **state)
{
    (void)state;
    float out[3][TOKENS];
    uint32_t last_has_fewer = 0;
    for (uint64_t budget = 9; budget < 25; budget++) {
        static const uint32_t ranks[] = { 0, 1, 3 };
        uint32_t most = 0;
        run.actor.load.tokens = budget;
        assert_int_equal(call_forward(out, 1), XRAY_OK);
        for (int i = 0; i < 3; i++)
            if (script.needs[ranks[i]] > most)
                most = script.needs[ranks[i]];
        for (int i = 0; i < 3; i++)
            assert_int_equal(script.views[ranks[i]], most);
        last_has_fewer += script.needs[3] < most;
    }
    assert_true(last_has_fewer > 0);
}

/* The rows of a group that share their prompt go to one replica, and their
 * costs add up: of 9, 81 + 4, 49 + 25 and 16 + 64 the first goes to the third
 * replica. */
static void groups_go_to_one_replica(void **state)
{
    (void)state;
    float out[3][TOKENS];
    /* Rows that were dealt before do not count. */
    static const int32_t groups[2][ROWS] = { { 0, 0, 0, 0, 0, 1, 2 },
                                             { 0, 1, 1, 2, 2, 3, 3 } };
    views.prompts = XR_PROMPTS_PER_GROUP;
    whole.per_token = 0;
    for (int i = 0; i < 2; i++) {
        memcpy(whole_rows.group, groups[i], sizeof(groups[i]));
        assert_int_equal(call_forward(out, 1), XRAY_OK);
    }
    const uint32_t *who = script.who;
    assert_int_equal(who[0], who[3]);
    assert_int_equal(who[3], who[4]);
    assert_int_equal(who[1], who[2]);
    assert_int_equal(who[5], who[6]);
    assert_true(who[1] != who[3] && who[1] != who[5] && who[3] != who[5]);
}

static void more_rows_than_a_step_has(void **state)
{
    (void)state;
    float out[3][TOKENS];
    whole.row_cap = ROWS - 1;
    assert_int_equal(call_forward(out, 1), XRAY_E_BUG);
    assert_string_equal(whole_err.text, "more rows than the 6 of a step");
    expect_calls("");
    whole.row_cap = ROWS;
    assert_int_equal(call_forward(out, 1), XRAY_OK);
}

/* ---- gradients ---------------------------------------------------------- */

/* The first replica continues from the present sums, the others begin at 0, and
 * all of them are added. */
static void sums_of_replicas_are_added(void **state)
{
    (void)state;
    xr_err fault;
    script.added[0] = 10;
    script.added[1] = 200;
    script.added[3] = 3000;
    assert_int_equal(call_gradients(&fault, 1), XRAY_OK);
    assert_string_equal(fault.text, "");
    expect_calls("gradients 0; gradients 1; gradients 3; ");
    assert_true(script.start[0] == 5);
    assert_true(script.start[1] == 0 && script.start[3] == 0);
    assert_true(sums[0] == 5 + 3210 && sums[1] == 7 + 2 * 3210);
    assert_true(weights[0] == 2 + 3 && weights[1] == 2 + 3);
    assert_int_equal(script.spec.kind, 1);
    assert_int_equal(script.spec.outputs, XRAY_OUTPUT_LOGP);
    assert_int_equal(script.spec.names, 2);
    assert_string_equal((const char *)script.context, "contex");
    assert_int_equal(call_gradients(&fault, 0), XRAY_OK);
    assert_true(sums[0] == 5 + 3210 && weights[0] == 2);
}

/* A value that is not finite fails the loss as it would in this process, and
 * all ranks discard their gradients; the fault of the first replica is
 * reported. */
static void faults_discard_gradients(void **state)
{
    (void)state;
    xr_err fault;
    script.fault[1] = "row 1 is not finite";
    script.fault[3] = "row 3 is not finite";
    assert_int_equal(call_gradients(&fault, 1), xr_nonfinite_loss(&roles));
    assert_string_equal(fault.text, "row 1 is not finite");
    assert_string_equal(whole_err.text, "row 1 is not finite");
    expect_calls("gradients 0; gradients 1; gradients 3; "
                 "discard 0; discard 1; discard 3; ");
    script.fault[1] = script.fault[3] = NULL;
    script.log[0] = '\0';
    assert_int_equal(call_gradients(&fault, 1), XRAY_OK);
    assert_string_equal(fault.text, "");
    expect_calls("gradients 0; gradients 1; gradients 3; ");
    script.answer[0] = XRAY_E_IO;
    script.says[0] = "why";
    assert_int_equal(call_gradients(&fault, 1), XRAY_E_IO);
    assert_string_equal(whole_err.text, "why");
    assert_int_equal(script.regions, 0);
}

/* ---- errors ------------------------------------------------------------- */

static void an_error_leaves_the_ranks_out_of_step(void **state)
{
    (void)state;
    float out[3][TOKENS];
    script.answer[1] = XRAY_E_NUMERIC;
    script.says[1] = "why";
    assert_int_equal(call_forward(out, 1), XRAY_E_NUMERIC);
    assert_string_equal(whole_err.text, "why");
    assert_int_equal(script.dropped, 1); /* of rank 0, which had not answered */
    script.log[0] = '\0';
    script.answer[1] = XRAY_OK;
    xr_err fault;
    xray_step_result result;
    assert_int_equal(call_forward(out, 1), XRAY_E_PEER);
    assert_string_equal(whole_err.text, OUT_OF_STEP);
    assert_int_equal(call_gradients(&fault, 1), XRAY_E_PEER);
    assert_int_equal(xr_whole_calls.step(&roles, XRAY_ROLE_ACTOR, 0.5, 2,
                                         &result, &whole_err),
                     XRAY_E_PEER);
    assert_int_equal(
        xr_whole_calls.save(&roles, XRAY_ROLE_ACTOR, "x", &whole_err),
        XRAY_E_PEER);
    assert_int_equal(
        xr_whole_calls.load(&roles, XRAY_ROLE_ACTOR, "x", &whole_err),
        XRAY_E_PEER);
    assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_E_PEER);
    assert_string_equal(whole_err.text, OUT_OF_STEP);
    expect_calls("");
}

/* Its neighbours may answer before that a rank is dead. */
static void a_lost_rank_is_named_rather_than_those_that_lost_it(void **state)
{
    (void)state;
    float out[3][TOKENS];
    script.answer[1] = XRAY_E_PEER;
    script.says[1] = "a rank is dead";
    script.lost = 1;
    whole_traces[1].own = (xray_comm_trace){
        .calls = 1, .call = XRAY_COMM_ALL_REDUCE, .bytes = 12, .state = 3 + 256
    };
    assert_int_equal(call_forward(out, 1), XRAY_E_PEER);
    assert_non_null(strstr(whole_err.text, "an actor is lost (rank 0 "));
    assert_non_null(
        strstr(whole_err.text, "rank 1 gave up in all_reduce of 12 bytes"));
}

/* The loss of a rank is reported with the last collective of every rank. */
static void a_lost_rank_is_reported_with_all_traces(void **state)
{
    (void)state;
    float out[3][TOKENS];
    whole_traces[0].own = (xray_comm_trace){
        .calls = 3, .call = XRAY_COMM_ALL_GATHER, .bytes = 4096, .state = 1
    };
    whole_traces[1].own = (xray_comm_trace){
        .calls = 1, .call = XRAY_COMM_ALL_REDUCE, .bytes = 12, .state = 2
    };
    whole_traces[3].own =
        (xray_comm_trace){ .calls = 2, .call = XRAY_COMM_EXCHANGE, .bytes = 9 };
    script.late[0] = script.late[1] = script.late[3] = NEVER;
    script.lost = 1;
    assert_int_equal(call_forward(out, 1), XRAY_E_PEER);
    assert_string_equal(whole_err.text,
                        "an actor is lost (rank 0 waits in all_gather of 4096 "
                        "bytes, rank 1 waits in all_reduce of 12 bytes, rank 2 "
                        "was in no collective yet, rank 3 left exchange of "
                        "9 bytes)");
    assert_int_equal(script.dropped, 3);
}

/* Begins a call of a canceled run, in which each rank gives this answer. */
static void answer_canceled(xray_status rank_0, xray_status others)
{
    xr_cancel();
    whole.broken = script.dropped = script.looks = 0;
    for (uint32_t r = 0; r < RANKS; r++) {
        script.answer[r] = r ? others : rank_0;
        script.says[r] = "the run is stopped";
    }
}

/* The call was canceled, `dropped` ranks had not answered by then, and no call
 * follows. */
static void expect_canceled(xray_status status, uint32_t dropped)
{
    float out[3][TOKENS];
    assert_int_equal(status, XRAY_E_CANCELED);
    assert_string_equal(whole_err.text, "the run is stopped");
    assert_int_equal(script.dropped, dropped);
    assert_int_equal(call_forward(out, 1), XRAY_E_PEER);
    assert_string_equal(whole_err.text, OUT_OF_STEP);
}

/* A rank that leaves late is waited for: it may still be taking away what it
 * was writing. One that never answers ends the wait after a time. */
static void all_ranks_of_a_canceled_run_are_waited_for(void **state)
{
    (void)state;
    float out[3][TOKENS];
    xr_samples s;
    assert_int_equal(xr_samples_init(&s, 10, 4, &whole_err), XRAY_OK);
    script.late[0] = script.late[1] = PATIENCE - 1;
    script.lost = 1; /* a rank that ends its process early, too */
    answer_canceled(XRAY_E_CANCELED, XRAY_E_CANCELED);
    expect_canceled(call_forward(out, 1), 0);
    answer_canceled(XRAY_OK, XRAY_E_CANCELED); /* it was through already */
    expect_canceled(call_forward(out, 1), 0);
    answer_canceled(XRAY_OK, XRAY_E_CANCELED);
    expect_canceled(call_generate(&s, 5), 0);
    script.late[0] = script.late[1] = NEVER;
    answer_canceled(XRAY_OK, XRAY_E_CANCELED);
    expect_canceled(call_forward(out, 1), 2);
    answer_canceled(XRAY_OK, XRAY_E_CANCELED);
    expect_canceled(call_generate(&s, 5), 1);
    xr_cancel_reset();
    xr_samples_free(&s);
}

static void an_unsent_call_leaves_the_ranks_out_of_step(void **state)
{
    (void)state;
    float out[3][TOKENS];
    script.unsent[1] = XRAY_E_IO;
    assert_int_equal(call_forward(out, 1), XRAY_E_IO);
    assert_string_equal(whole_err.text, "rank 1 is gone");
    expect_calls("forward 0; forward 1; ");
    assert_int_equal(script.dropped, 1);
    assert_int_equal(call_forward(out, 1), XRAY_E_PEER);
}

/* ---- step and weights --------------------------------------------------- */

static xray_status call_step(xray_step_result *out)
{
    return xr_whole_calls.step(&roles, XRAY_ROLE_ACTOR, 0.5, 2, out,
                               &whole_err);
}

static void steps_of_all_ranks_must_agree(void **state)
{
    (void)state;
    xray_step_result result;
    for (uint32_t r = 0; r < RANKS; r++) {
        script.norm[r] = 1.5;
        script.version[r] = 8;
    }
    assert_int_equal(call_step(&result), XRAY_OK);
    expect_calls("step 0; step 1; step 3; ");
    assert_true(result.grad_norm == 1.5 && result.version == 8);
    assert_null(result.bad_tensor);
    script.norm[3] = 1.5000000000000002;
    assert_int_equal(call_step(&result), XRAY_E_PEER);
    assert_string_equal(whole_err.text,
                        "ranks 0 and 3 made different steps: versions 8 and 8, "
                        "gradient norms 1.5 and 1.5000000000000002");
    script.norm[3] = 1.5;
    script.version[1] = 9;
    assert_int_equal(call_step(&result), XRAY_E_PEER);
    assert_string_equal(whole_err.text,
                        "ranks 0 and 1 made different steps: versions 8 and 9, "
                        "gradient norms 1.5 and 1.5");
    script.version[1] = 8;
    script.skipped[1] = 1;
    assert_int_equal(call_step(&result), XRAY_E_PEER);
    for (uint32_t r = 0; r < RANKS; r++)
        script.skipped[r] = 1;
    assert_int_equal(call_step(&result), XRAY_OK);
    assert_int_equal(result.skipped, 1);
    assert_string_equal(result.bad_tensor, "a tensor");
    memset(script.skipped, 0, sizeof(script.skipped));
    assert_int_equal(call_step(&result), XRAY_OK);
    assert_null(result.bad_tensor); /* of this step, not of the last one */
}

static void weights_and_files_reach_their_ranks(void **state)
{
    (void)state;
    script.log[0] = '\0';
    script.ship_bytes[0] = 4096;
    for (int again = 0; again < 2; again++) {
        roles.published.bytes = 100;
        assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_OK);
        assert_int_equal(roles.published.bytes, 100 + 2 + 3); /* ranks 1, 2 */
        expect_calls(again
                         ? "ship 0; ship_along 1; ship_along 3; receive 1; "
                           "receive 2; "
                         : "ship_bytes 0; ship_bytes 1; ship_bytes 3; ship 0; "
                           "ship_along 1; ship_along 3; receive 1; receive "
                           "2; ");
    }
    /* Ranks that hold different boxes write sections of their own. */
    whole.ship_bytes = 0;
    script.ship_bytes[3] = 128;
    assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_OK);
    expect_calls("ship_bytes 0; ship_bytes 1; ship_bytes 3; ship 0; "
                 "ship_along 1; ship 3; receive 1; receive 2; ");
    run.placement.rollout = run.placement.actor;
    roles.published.bytes = 0;
    assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_OK);
    assert_int_equal(roles.published.bytes, 1 + 2 + 4); /* ranks 0, 1, 3 */
    expect_calls("publish 0; publish 1; publish 3; ");
    assert_int_equal(
        xr_whole_calls.save(&roles, XRAY_ROLE_ACTOR, "x", &whole_err), XRAY_OK);
    expect_calls("save 0; save 1; save 3; ");
    assert_int_equal(
        xr_whole_calls.load(&roles, XRAY_ROLE_ACTOR, "x", &whole_err), XRAY_OK);
    expect_calls("load 0; load 1; load 3; ");
}

static xray_status publish_directly(void)
{
    run.placement.rollout = run.placement.actor;
    return xr_whole_calls.publish(&roles, &whole_err);
}

static xray_status publish_by_shipping(void)
{
    return xr_whole_calls.publish(&roles, &whole_err);
}

static xray_status save_files(void)
{
    return xr_whole_calls.save(&roles, XRAY_ROLE_ACTOR, "x", &whole_err);
}

static xray_status load_files(void)
{
    return xr_whole_calls.load(&roles, XRAY_ROLE_ACTOR, "x", &whole_err);
}

/* The rank that fails is named, and those after it are not called. */
static void the_first_error_of_a_rank_ends_the_calls(void **state)
{
    static const struct {
        xray_status (*call)(void);
        uint32_t rank;
        int asked; /* it fails when it is asked, before anything is sent */
        const char *calls;
    } cases[] = {
        { publish_by_shipping, 0, 1, "ship_bytes 0; " },
        { publish_by_shipping, 1, 1, "ship_bytes 0; ship_bytes 1; " },
        { publish_by_shipping, 3, 1,
          "ship_bytes 0; ship_bytes 1; ship_bytes 3; " },
        { publish_by_shipping, 0, 0,
          "ship_bytes 0; ship_bytes 1; ship_bytes 3; ship 0; " },
        { publish_by_shipping, 1, 0,
          "ship_bytes 0; ship_bytes 1; ship_bytes 3; ship 0; ship_along 1; " },
        { publish_by_shipping, 2, 0,
          "ship_bytes 0; ship_bytes 1; ship_bytes 3; ship 0; ship_along 1; "
          "ship_along 3; receive 1; receive 2; " },
        { publish_directly, 0, 0, "publish 0; " },
        { publish_directly, 1, 0, "publish 0; publish 1; " },
        { save_files, 0, 0, "save 0; " },
        { save_files, 1, 0, "save 0; save 1; " },
        { load_files, 0, 0, "load 0; " },
        { load_files, 1, 0, "load 0; load 1; " },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char says[32];
        uint32_t rank = cases[i].rank;
        assert_int_equal(whole_end(state), 0);
        assert_int_equal(whole_begin(state), 0);
        script.log[0] = '\0';
        script.ship_bytes[0] = 4096;
        if (cases[i].asked)
            script.unasked[rank] = XRAY_E_IO;
        else
            script.unsent[rank] = XRAY_E_IO;
        assert_int_equal(cases[i].call(), XRAY_E_IO);
        (void)snprintf(says, sizeof(says), "rank %u is gone", rank);
        assert_non_null(strstr(whole_err.text, says));
        expect_calls(cases[i].calls);
        assert_int_equal(script.regions, 0);
        assert_int_equal(cases[i].call(), XRAY_E_PEER);
        assert_non_null(strstr(whole_err.text, OUT_OF_STEP));
        expect_calls("");
    }
}

/* ---- rollout ------------------------------------------------------------ */

static void samples_go_where_prompts_came_from(void **state)
{
    (void)state;
    xr_samples s;
    assert_int_equal(xr_samples_init(&s, 10, 4, &whole_err), XRAY_OK);
    assert_int_equal(call_generate(&s, 5), XRAY_OK);
    expect_calls("generate 1; generate 2; ");
    assert_int_equal(script.rows[1], 3);
    assert_int_equal(script.rows[2], 2);
    for (uint32_t p = 0; p < 5; p++)
        for (uint32_t k = 0; k < 2; k++) {
            uint32_t at = 2 * p + k;
            uint32_t size = p + k + 1 < 4 ? p + k + 1 : 4; /* as many as fit */
            assert_int_equal(s.sizes[at], size);
            assert_int_equal(s.finish[at], k);
            assert_int_equal(s.versions[at], 7 + p);
            for (uint32_t t = 0; t < size; t++) {
                assert_int_equal(s.tokens[4 * at + t], 100 * p + 10 * k + t);
                assert_true(s.logp[4 * at + t] == (float)p);
            }
        }
    assert_int_equal(call_generate(&s, 1), XRAY_OK); /* one engine has none */
    assert_int_equal(script.rows[1], 1);
    assert_int_equal(script.rows[2], 0);
    xr_samples_free(&s);
}

/* No engine waits for another: after an error the others finish, and the next
 * call works. After the loss of an engine it does not. */
static void engines_finish_by_themselves(void **state)
{
    (void)state;
    xr_samples s;
    assert_int_equal(xr_samples_init(&s, 10, 4, &whole_err), XRAY_OK);
    script.answer[2] = XRAY_E_NUMERIC;
    script.says[2] = "a log-prob is NaN";
    assert_int_equal(call_generate(&s, 5), XRAY_E_NUMERIC);
    assert_string_equal(whole_err.text, "a log-prob is NaN");
    assert_int_equal(roles.nonfinite, 1);
    assert_int_equal(script.dropped, 0);
    roles.nonfinite = 0;
    script.answer[1] = XRAY_E_NUMERIC; /* the later one of two */
    script.says[1] = "another";
    script.answer[2] = XRAY_E_BUG;
    assert_int_equal(call_generate(&s, 5), XRAY_E_BUG);
    assert_string_equal(whole_err.text, "a log-prob is NaN");
    script.answer[1] = XRAY_OK;
    assert_int_equal(roles.nonfinite, 0);
    script.answer[2] = XRAY_OK;
    assert_int_equal(call_generate(&s, 5), XRAY_OK);
    script.answer[2] = XRAY_E_PEER;
    script.says[2] = "lost";
    assert_int_equal(call_generate(&s, 5), XRAY_E_PEER);
    assert_int_equal(script.dropped, 1); /* no rank is waited for any more */
    assert_int_equal(call_generate(&s, 5), XRAY_E_PEER);
    assert_string_equal(whole_err.text, OUT_OF_STEP);
    xr_samples_free(&s);
}

/* A group whose prompt is shared is never divided between micro-batches, even
 * if it has more tokens than one holds: groups of 3 and 12, of 11, and of 12
 * tokens are two, one and one. */
static void groups_are_not_divided_between_micro_batches(void **state)
{
    (void)state;
    float out[3][TOKENS];
    static const int32_t groups[ROWS] = { 0, 1, 1, 2, 2, 3, 3 };
    memcpy(whole_rows.group, groups, sizeof(groups));
    views.prompts = XR_PROMPTS_PER_GROUP;
    whole.per_token = 0;
    run.actor.load.tokens = 10;
    assert_int_equal(call_forward(out, 1), XRAY_OK);
    assert_int_equal(script.needs[script.who[0]], 2);
    assert_int_equal(script.needs[script.who[1]], 1);
    assert_int_equal(script.needs[script.who[5]], 1);
}

/* With free_cache_engine a call of a model puts the engine to sleep, so the
 * weights are published again before the next rollout. */
static void every_call_of_a_model_makes_publishing_due(void **state)
{
    (void)state;
    xray_step_result result;
    roles.calls = &xr_whole_calls;
    for (uint32_t frees = 0; frees < 2; frees++) {
        run.ini.rollout.free_cache_engine = frees;
        roles.published.due = 0;
        assert_int_equal(xr_role_save(&roles, XRAY_ROLE_ACTOR, "x", &whole_err),
                         XRAY_OK);
        assert_int_equal(roles.published.due, frees);
        roles.published.due = 0;
        assert_int_equal(xr_role_load(&roles, XRAY_ROLE_ACTOR, "x", &whole_err),
                         XRAY_OK);
        assert_int_equal(roles.published.due, frees);
        roles.published.due = 0;
        assert_int_equal(
            xr_role_step(&roles, XRAY_ROLE_ACTOR, 0.5, 2, &result, &whole_err),
            XRAY_OK);
        assert_int_equal(roles.published.due, frees);
    }
}

static void print_metric(void *ctx, const char *name, double value)
{
    xr_str_printf(ctx, "%s=%g ", name, value);
}

/* Of several ranks a metric is the mean over those that gave it. */
static void metrics_are_means_over_the_ranks_that_have_them(void **state)
{
    (void)state;
    static const char *const lines[RANKS] = { "a/x 0x1p+1\nb 0x1p+0\n",
                                              "a/x 0x1p+2\n", "",
                                              "c 0x1p+3\na/x 0x1.8p+3\n" };
    static const char *const next[RANKS] = { "a/x 0x1p+3\n", "", "", "" };
    xr_str out = { 0 };
    memcpy(script.metrics, lines, sizeof(lines));
    roles.whole = &whole;
    assert_int_equal(xr_plugin_metrics(&roles, print_metric, &out, &whole_err),
                     XRAY_OK);
    assert_string_equal(xr_str_text(&out), "a/x=6 b=1 c=8 ");
    /* Those of the next step are without those of this one. */
    xr_str_clear(&out);
    memcpy(script.metrics, next, sizeof(next));
    assert_int_equal(xr_plugin_metrics(&roles, print_metric, &out, &whole_err),
                     XRAY_OK);
    roles.whole = NULL;
    assert_string_equal(xr_str_text(&out), "a/x=8 ");
    xr_str_free(&out);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, whole_begin, whole_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(outputs_go_where_rows_came_from),
        TEST(all_replicas_get_as_many_micro_batches),
        TEST(groups_go_to_one_replica),
        TEST(more_rows_than_a_step_has),
        TEST(sums_of_replicas_are_added),
        TEST(faults_discard_gradients),
        TEST(an_error_leaves_the_ranks_out_of_step),
        TEST(a_lost_rank_is_named_rather_than_those_that_lost_it),
        TEST(a_lost_rank_is_reported_with_all_traces),
        TEST(all_ranks_of_a_canceled_run_are_waited_for),
        TEST(an_unsent_call_leaves_the_ranks_out_of_step),
        TEST(steps_of_all_ranks_must_agree),
        TEST(weights_and_files_reach_their_ranks),
        TEST(the_first_error_of_a_rank_ends_the_calls),
        TEST(samples_go_where_prompts_came_from),
        TEST(engines_finish_by_themselves),
        TEST(groups_are_not_divided_between_micro_batches),
        TEST(every_call_of_a_model_makes_publishing_due),
        TEST(metrics_are_means_over_the_ranks_that_have_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
