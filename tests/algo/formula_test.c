/* SPDX-License-Identifier: Apache-2.0
 *
 * The scalar formulas as single functions, against published vectors and
 * calculations by hand.
 */
#include <math.h>

#include "model/rl/aggregate.h"
#include "model/rl/kl.h"
#include "model/rl/policy.h"
#include "tests/algo/vectors.h"

static void check_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, want %.17g", got, want);
}

static void exponential_agrees_with_the_library(void **state)
{
    (void)state;
    assert_true(xm_rl_exp(0.0) == 1.0);
    assert_true(xm_rl_exp(-0.0) == 1.0);
    assert_true(xm_rl_exp(-1e308) == 0.0);
    assert_true(isinf(xm_rl_exp(1e308)));
    assert_true(isnan(xm_rl_exp((double)NAN)));
    assert_true(isinf(xm_rl_exp((double)INFINITY)));
    assert_true(xm_rl_exp(-(double)INFINITY) == 0.0);
    for (double x = -700; x < 700; x += 0.0837)
        check_near(xm_rl_exp(x) / exp(x), 1.0, 4e-16);
    for (double x = -1; x < 1; x += 0.00037)
        check_near(xm_rl_exp(x) / exp(x), 1.0, 4e-16);
}

static void dual_clip_meets_its_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "ppo_dual_clip", "inputs");
    const cJSON *want = vector_part(all, "ppo_dual_clip", "expected");
    xm_rl_clip clip = { .low = vector_number(in, "clip_low"),
                        .high = vector_number(in, "clip_high"),
                        .dual = vector_number(in, "clip_c"),
                        .bound = 20 };
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        xm_rl_policy p =
            xm_rl_vanilla(&clip, vector_at(in, "lp", i),
                          vector_at(in, "old_lp", i), vector_at(in, "adv", i));
        check_near(p.loss.value, vector_at(want, "per_token", i), 1e-3);
        assert_int_equal(p.clipped_lower, i == 2);
        sum += p.loss.value;
    }
    check_near(sum, vector_number(want, "sum"), 1e-3);
    check_near(sum / 3, vector_number(want, "mean"), 1e-3);
    cJSON_Delete(all);
}

static void token_sum_meets_its_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "agg_token_sum", "inputs");
    const cJSON *want = vector_part(all, "agg_token_sum", "expected");
    const cJSON *losses = cJSON_GetObjectItem(in, "loss");
    const cJSON *masks = cJSON_GetObjectItem(in, "mask");
    xm_rl_counts counts = { .rows = 2, .tokens = 4, .scale = 3 };
    double sum = 0;
    for (int r = 0; r < 2; r++)
        for (int t = 0; t < 3; t++) {
            const cJSON *l = cJSON_GetArrayItem(losses, r);
            const cJSON *m = cJSON_GetArrayItem(masks, r);
            sum += cJSON_GetArrayItem(l, t)->valuedouble *
                   cJSON_GetArrayItem(m, t)->valuedouble *
                   xm_rl_token_weight(XM_RL_TOKEN_SUM, &counts, 2);
        }
    /* verl multiplies by the number of data-parallel ranks because its backends
     * average gradients; ours add them. */
    check_near(sum * vector_number(in, "dp_size"), vector_number(want, "loss"),
               1e-9);
    cJSON_Delete(all);
}

/* The rows have 2 and 3 tokens with losses 1 2 and 4 5 6; the scale is 10. */
static void aggregation_agrees_with_hand_calculation(void **state)
{
    (void)state;
    static const double want[] = {
        [XM_RL_TOKEN_MEAN] = 18.0 / 5,
        [XM_RL_TOKEN_SUM] = 18.0,
        [XM_RL_SEQ_MEAN_TOKEN_SUM] = (3.0 + 15.0) / 2,
        [XM_RL_SEQ_MEAN_TOKEN_SUM_NORM] = (3.0 + 15.0) / 2 / 10,
        [XM_RL_SEQ_MEAN_TOKEN_MEAN] = (1.5 + 5.0) / 2,
    };
    xm_rl_counts counts = { .rows = 2, .tokens = 5, .scale = 10 };
    xm_rl_counts none = { 0 };
    for (int mode = 0; mode <= XM_RL_SEQ_MEAN_TOKEN_MEAN; mode++) {
        double got = 3.0 * xm_rl_token_weight(mode, &counts, 2) +
                     15.0 * xm_rl_token_weight(mode, &counts, 3);
        check_near(got, want[mode], 1e-7);
        if (mode != XM_RL_TOKEN_SUM)
            assert_true(xm_rl_token_weight(mode, &none, 0) == 0.0);
    }
}

static void kl_agrees_with_hand_calculation(void **state)
{
    (void)state;
    check_near(xm_rl_kl(XM_RL_KL_K1, 1, -1.0, -1.5).value, 0.5, 1e-15);
    check_near(xm_rl_kl(XM_RL_KL_ABS, 1, -1.5, -1.0).value, 0.5, 1e-15);
    check_near(xm_rl_kl(XM_RL_KL_ABS, 1, -1.5, -1.0).slope, -1, 0);
    check_near(xm_rl_kl(XM_RL_KL_ABS, 1, -1.0, -1.0).slope, 0, 0);
    check_near(xm_rl_kl(XM_RL_KL_K2, 1, -1.0, -1.5).value, 0.125, 1e-15);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -1.0, -1.5).value, exp(-0.5) + 0.5 - 1,
               1e-15);
    /* Tests verl's limits and no limits. */
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -5.0, -1.0).value, 10, 0);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -5.0, -1.0).slope, 0, 0);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -3.7, -1.0).value, 10, 0); /* of 11.2 */
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -3.7, -1.0).slope, 0, 0);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -3.6, -1.0).value, exp(2.6) - 3.6,
               1e-12);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -3.6, -1.0).slope, 1 - exp(2.6), 1e-12);
    check_near(xm_rl_kl(XM_RL_KL_K3, 0, -5.0, -1.0).value, exp(4) - 5, 1e-12);
    check_near(xm_rl_kl(XM_RL_KL_K3, 0, -5.0, -1.0).slope, 1 - exp(4), 1e-12);
    check_near(xm_rl_kl(XM_RL_KL_K3, 1, -1.0, -31.0).slope, 0, 0);
    check_near(xm_rl_kl(XM_RL_KL_K3, 0, -1.0, -31.0).slope, 1, 1e-12);
}

static void bound_stops_the_gradient(void **state)
{
    (void)state;
    xm_rl_clip clip = { .low = 0.2, .high = 0.2, .dual = 0, .bound = 20 };
    xm_rl_policy p = xm_rl_vanilla(&clip, -1, -26, -1);
    check_near(p.loss.value / exp(20), 1, 1e-12);
    check_near(p.loss.slope, 0, 0);
    check_near(p.log_ratio, 20, 0);
    clip.bound = 0;
    p = xm_rl_vanilla(&clip, -1, -26, -1);
    check_near(p.loss.value / exp(25), 1, 1e-12);
    check_near(p.loss.slope / exp(25), 1, 1e-12);
    check_near(p.log_ratio, 25, 0);
}

/* GSPO's mean log-ratio is limited to 10: beyond it, the loss is constant and
 * the gradient is 0. */
static void bound_of_a_sequence(void **state)
{
    (void)state;
    xm_rl_clip clip = { .low = 0.2, .high = 0.2 };
    static const double mean[] = { 9, 10, 10.5, 25 };
    for (int i = 0; i < 4; i++) {
        xm_rl_sequence row = { 0 };
        for (int t = -1; t <= 1; t++)
            xm_rl_sequence_add(&clip, -1 + t, -1 - mean[i], -2, 1, &row);
        xm_rl_policy p = xm_rl_gspo(&clip, &row, -1, -1 - mean[i], -2);
        check_near(p.loss.value / (2 * exp(fmin(mean[i], 10))), 1, 1e-12);
        check_near(p.loss.slope, mean[i] > 10 ? 0 : p.loss.value, 0);
        check_near(p.log_ratio, mean[i], 1e-12);
        assert_false(p.clipped);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exponential_agrees_with_the_library),
        cmocka_unit_test(dual_clip_meets_its_vector),
        cmocka_unit_test(token_sum_meets_its_vector),
        cmocka_unit_test(aggregation_agrees_with_hand_calculation),
        cmocka_unit_test(kl_agrees_with_hand_calculation),
        cmocka_unit_test(bound_stops_the_gradient),
        cmocka_unit_test(bound_of_a_sequence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
