/* SPDX-License-Identifier: Apache-2.0
 *
 * Proves what a WholeModel sends to replicas of several ranks, which are
 * scripted, and whose answers it takes.
 */
#include "core/roles/nonfinite.h"
#include "tests/rl/whole_rig.h"

/* Two replicas of two ranks, of which the second one answers. */
static void hold_by_pairs(void)
{
    const xr_layout pair = {
        .width = 2, .answers = 1, .axis_count = 1, .axes = { { "tp", 2 } }
    };
    run.placement.actor = (xr_ranks){ .count = 4, .rank = { 0, 1, 2, 3 } };
    run.placement.rollout = run.placement.actor;
    run.layouts[XRAY_ROLE_ACTOR] = run.layouts[XRAY_ROLE_ROLLOUT] = pair;
}

static void expect_regions_by_pairs(void)
{
    assert_ptr_equal(script.region[0], script.region[1]);
    assert_ptr_equal(script.region[2], script.region[3]);
    assert_ptr_not_equal(script.region[0], script.region[2]);
    for (int i = 0; i < 4; i += 2)
        assert_int_equal(script.rows[i], script.rows[i + 1]);
}

/* Rows are dealt to replicas, whose ranks all get the same region. */
static void the_ranks_of_a_replica_get_one_region(void **state)
{
    (void)state;
    float out[3][TOKENS];
    hold_by_pairs();
    run.actor.load.tokens = 12;
    assert_int_equal(call_forward(out, 7), XRAY_OK);
    expect_calls("forward 0; forward 1; forward 2; forward 3; ");
    expect_regions_by_pairs();
    assert_int_equal(script.rows[1] + script.rows[3], ROWS);
    assert_true(script.rows[1] > 0 && script.rows[3] > 0);
    for (int i = 1; i < 4; i++)
        assert_int_equal(script.views[i], script.views[0]);
    for (uint32_t r = 0, at = 0; r < ROWS; r++)
        for (uint32_t t = 0; t < whole_lengths[r]; t++, at++)
            for (int k = 0; k < 3; k++)
                assert_true(out[k][at] == whole_output(r, t, k));
}

/* Sums are those of the rank that answers; a value that is not finite counts
 * whichever rank found it, and all discard their gradients. */
static void sums_come_from_the_rank_that_answers(void **state)
{
    (void)state;
    xr_err fault;
    hold_by_pairs();
    script.added[0] = script.added[2] = 9999;
    script.added[1] = 10;
    script.added[3] = 200;
    assert_int_equal(call_gradients(&fault, 1), XRAY_OK);
    expect_calls("gradients 0; gradients 1; gradients 2; gradients 3; ");
    expect_regions_by_pairs();
    assert_true(script.start[1] == 5 && script.start[3] == 0);
    assert_true(sums[0] == 5 + 210 && sums[1] == 7 + 2 * 210);
    assert_true(weights[0] == 2 + 2 && weights[1] == 2 + 2);
    script.fault[2] = "row 1 is not finite";
    assert_int_equal(call_gradients(&fault, 1), xr_nonfinite_loss(&roles));
    assert_string_equal(fault.text, "row 1 is not finite");
    expect_calls("gradients 0; gradients 1; gradients 2; gradients 3; "
                 "discard 0; discard 1; discard 2; discard 3; ");
}

/* Prompts are dealt to engines, not to ranks. */
static void the_ranks_of_an_engine_get_the_same_prompts(void **state)
{
    (void)state;
    xr_samples s;
    hold_by_pairs();
    assert_int_equal(xr_samples_init(&s, 10, 6, &whole_err), XRAY_OK);
    assert_int_equal(call_generate(&s, 5), XRAY_OK);
    expect_calls("generate 0; generate 1; generate 2; generate 3; ");
    expect_regions_by_pairs();
    assert_int_equal(script.rows[0], 3);
    assert_int_equal(script.rows[2], 2);
    for (uint32_t at = 0; at < 10; at++) {
        assert_int_equal(s.sizes[at], at / 2 + at % 2 + 1);
        assert_int_equal(s.tokens[6 * at], 100 * (at / 2) + 10 * (at % 2));
    }
    xr_samples_free(&s);
}

/* The ranks of an engine wait for each other, so that an error of one ends the
 * call, unless it is that of a value: then all of them finish. */
static void an_engine_of_two_ranks_fails_as_one(void **state)
{
    (void)state;
    xr_samples s;
    hold_by_pairs();
    assert_int_equal(xr_samples_init(&s, 10, 6, &whole_err), XRAY_OK);
    script.answer[3] = XRAY_E_NUMERIC;
    script.says[3] = "a log-prob is NaN";
    assert_int_equal(call_generate(&s, 5), XRAY_E_NUMERIC);
    assert_int_equal(script.dropped, 0);
    assert_int_equal(roles.nonfinite, 1);
    script.answer[3] = XRAY_E_DEVICE;
    assert_int_equal(call_generate(&s, 5), XRAY_E_DEVICE);
    assert_int_equal(script.dropped, 3);
    assert_int_equal(call_generate(&s, 5), XRAY_E_PEER);
    assert_string_equal(whole_err.text, OUT_OF_STEP);
    xr_samples_free(&s);
}

/* Each rank has the same part of trainer and engine, or weights are shipped. */
static void weights_are_shipped_between_other_cuts(void **state)
{
    (void)state;
    hold_by_pairs();
    assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_OK);
    expect_calls("publish 0; publish 1; publish 2; publish 3; ");
    run.layouts[XRAY_ROLE_ROLLOUT] = (xr_layout){ .width = 1 };
    script.ship_bytes[0] = 64;
    script.ship_bytes[1] = 4096;
    assert_int_equal(xr_whole_calls.publish(&roles, &whole_err), XRAY_OK);
    expect_calls("ship_bytes 0; ship_bytes 1; ship_bytes 2; ship_bytes 3; "
                 "ship 0; ship 1; ship_along 2; ship_along 3; receive 0; "
                 "receive 1; receive 2; receive 3; ");
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, whole_begin, whole_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_ranks_of_a_replica_get_one_region),
        TEST(sums_come_from_the_rank_that_answers),
        TEST(the_ranks_of_an_engine_get_the_same_prompts),
        TEST(an_engine_of_two_ranks_fails_as_one),
        TEST(weights_are_shipped_between_other_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
