/* SPDX-License-Identifier: Apache-2.0
 *
 * Returns, GAE, whitening, controllers and moments as single functions:
 * published vectors, properties and edge cases.
 */
#include <math.h>

#include "model/rl/advantage.h"
#include "model/rl/kl.h"
#include "model/rl/policy.h"
#include "model/rl/ppo.h"
#include "model/rl/rollout_correction.h"
#include "tests/algo/vectors.h"

static void check_near(double got, double want, double tolerance)
{
    if (!(fabs(got - want) <= tolerance))
        fail_msg("got %.17g, want %.17g", got, want);
}

enum { MOST = 16 };

/* Reads row `row` of an array of arrays. */
static int read_row(const cJSON *object, const char *key, int row, float *out)
{
    const cJSON *rows = cJSON_GetObjectItem(object, key);
    const cJSON *list = cJSON_GetArrayItem(rows, row);
    int count = cJSON_GetArraySize(list);
    assert_true(count > 0 && count <= MOST);
    for (int i = 0; i < count; i++)
        out[i] = (float)cJSON_GetArrayItem(list, i)->valuedouble;
    return count;
}

static void check_row(const cJSON *object, const char *key, int row,
                      const float *got)
{
    float want[MOST];
    int count = read_row(object, key, row, want);
    for (int i = 0; i < count; i++)
        check_near((double)got[i], (double)want[i], 1e-4);
}

static void check_gae_vector(const cJSON *all, const char *name)
{
    const cJSON *in = vector_part(all, name, "inputs");
    const cJSON *want = vector_part(all, name, "expected");
    float reward[MOST];
    float value[MOST];
    float mask[MOST];
    float advantage[MOST];
    float returns[MOST];
    int count = read_row(in, "rewards", 0, reward);
    (void)read_row(in, "values", 0, value);
    (void)read_row(in, "mask", 0, mask);
    xm_rl_gae_rule rule = { .gamma = vector_number(in, "gamma"),
                            .lam = vector_number(in, "lam"),
                            .through = 1 };
    xm_rl_gae(&rule, reward, value, mask, (uint64_t)count, advantage, returns);
    check_row(want, "returns", 0, returns);
    if (!cJSON_GetObjectItem(want, "whitened_advantages"))
        return;
    /* SkyRL whitens all entries with the statistics of the masked ones. */
    xm_rl_whiten_rule whiten = { .unbiased = 1, .epsilon = 1e-8 };
    xm_rl_stats stats;
    xm_rl_masked_stats(advantage, mask, (uint64_t)count, &stats);
    xm_rl_whiten(&whiten, &stats, NULL, (uint64_t)count, advantage);
    check_row(want, "whitened_advantages", 0, advantage);
}

static void gae_meets_published_vectors(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    check_gae_vector(all, "gae_return_gamma1_lam1");
    check_gae_vector(all, "gae_masked_whitened_adv");
    check_gae_vector(all, "gae_return_gamma0.5");
    check_gae_vector(all, "gae_return_lam0.5");
    cJSON_Delete(all);
}

/* verl carries credit over the token of a tool; SkyRL does not, and its numbers
 * are a vector above. */
static void gae_carries_credit_over_tool_tokens(void **state)
{
    (void)state;
    static const float reward[] = { 1, 2, 3 };
    static const float value[] = { 0.5f, 1, 1.5f };
    static const float mask[] = { 1, 0, 1 };
    xm_rl_gae_rule rule = { .gamma = 1, .lam = 1 };
    float advantage[3];
    float returns[3];
    xm_rl_gae(&rule, reward, value, mask, 3, advantage, returns);
    check_near((double)advantage[0], 3.5, 1e-6);
    check_near((double)advantage[2], 1.5, 1e-6);
    check_near((double)returns[0], 4, 1e-6);
    check_near((double)returns[2], 3, 1e-6);
    assert_true(advantage[1] == 0 && returns[1] == 0);
}

/* As in verl, values and rewards of masked tokens change nothing. */
static void observations_change_nothing(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in =
        vector_part(all, "multi_turn_gae_obs_invariance", "inputs");
    const cJSON *seen = cJSON_GetObjectItem(in, "values_on_mask");
    float reward[MOST];
    float mask[MOST];
    int count = read_row(in, "rewards", 0, reward);
    (void)read_row(in, "mask", 0, mask);
    for (int step = 0; step <= 100; step++) {
        xm_rl_gae_rule rule = { .gamma = 0.1 * (step % 11),
                                .lam = 0.1 * (step / 10) };
        float advantage[2][MOST];
        float returns[2][MOST];
        for (int k = 0; k < 2; k++) {
            float value[MOST];
            int at = 0;
            for (int i = 0; i < count; i++)
                value[i] =
                    mask[i] != 0
                        ? (float)cJSON_GetArrayItem(seen, at++)->valuedouble
                    : k ? NAN
                        : (float)(17 * i);
            xm_rl_gae(&rule, reward, value, mask, (uint64_t)count, advantage[k],
                      returns[k]);
        }
        assert_memory_equal(advantage[0], advantage[1],
                            (size_t)count * sizeof(float));
        assert_memory_equal(returns[0], returns[1],
                            (size_t)count * sizeof(float));
    }
    cJSON_Delete(all);
}

static void check_returns_vector(const cJSON *all, const char *name)
{
    const cJSON *in = vector_part(all, name, "inputs");
    const cJSON *want = vector_part(all, name, "expected");
    int rows = cJSON_GetArraySize(cJSON_GetObjectItem(in, "rewards"));
    for (int r = 0; r < rows; r++) {
        float reward[MOST];
        float mask[MOST];
        float returns[MOST];
        int count = read_row(in, "rewards", r, reward);
        (void)read_row(in, "mask", r, mask);
        xm_rl_returns(vector_number(in, "gamma"), reward, mask, (uint64_t)count,
                      returns);
        check_row(want, "returns", r, returns);
    }
}

static void returns_meet_published_vectors(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    check_returns_vector(all, "reinforce_pp_returns_gamma0.5");
    check_returns_vector(all, "reinforce_pp_obs_span");
    check_returns_vector(all, "reinforce_pp_batch");
    cJSON_Delete(all);
}

/* Tests a row without tokens and a row whose mask is empty. */
static void empty_rows_give_nothing(void **state)
{
    (void)state;
    static const float none[3] = { 0, 0, 0 };
    static const float junk[3] = { NAN, NAN, NAN };
    xm_rl_gae_rule rule = { .gamma = 1, .lam = 1 };
    float advantage[3] = { 7, 7, 7 };
    float returns[3] = { 7, 7, 7 };
    xm_rl_gae(&rule, junk, junk, none, 3, advantage, returns);
    for (int i = 0; i < 3; i++)
        assert_true(advantage[i] == 0 && returns[i] == 0);
    xm_rl_gae(&rule, NULL, NULL, NULL, 0, NULL, NULL);
    xm_rl_stats stats;
    xm_rl_masked_stats(junk, none, 3, &stats);
    assert_true(stats.count == 0 && stats.mean == 0 && stats.variance == 0);
    xm_rl_whiten_rule whiten = { .unbiased = 1, .epsilon = 1e-8 };
    xm_rl_whiten(&whiten, &stats, none, 3, advantage);
    /* A single entry is centred but not divided. */
    static const float one[3] = { 0, 1, 0 };
    float x[3] = { 9, 5, 9 };
    xm_rl_masked_stats(x, one, 3, &stats);
    xm_rl_whiten(&whiten, &stats, one, 3, x);
    assert_true(x[0] == 9 && x[1] == 0 && x[2] == 9);
}

/* Merged statistics of parts, as ranks compute them, are those of all entries
 * within 1e-12. */
static void statistics_merge(void **state)
{
    (void)state;
    float x[60];
    xm_rl_stats combined;
    for (int i = 0; i < 60; i++)
        x[i] = (float)sin(3.0 * i) + 100;
    xm_rl_masked_stats(x, NULL, 60, &combined);
    for (uint64_t cut = 1; cut < 60; cut += 7) {
        xm_rl_stats sum = { 0, 0, 0 };
        for (uint64_t i = 0; i < 60; i += cut) {
            xm_rl_stats part;
            xm_rl_masked_stats(x + i, NULL, i + cut > 60 ? 60 - i : cut, &part);
            xm_rl_stats_merge(&sum, &part);
        }
        check_near(sum.count, 60, 0);
        check_near(sum.mean, combined.mean, 1e-12 * 100);
        check_near(sum.variance, combined.variance, 1e-12 * 100);
    }
    check_near(xm_rl_explained_variance(x, x, NULL, 60), 1, 1e-12);
}

static void value_loss_agrees_with_hand_calculation(void **state)
{
    (void)state;
    xm_rl_value v = xm_rl_value_loss(0.5, 2, 1, 3);
    check_near(v.loss.value, 0.5 * 1.5 * 1.5, 1e-15); /* held at 1.5 */
    assert_true(v.clipped && v.loss.slope == 0);
    v = xm_rl_value_loss(0, 2, 1, 3);
    check_near(v.loss.value, 0.5, 1e-15);
    check_near(v.loss.slope, -1, 0);
    v = xm_rl_value_loss(0.5, 2, 1, 0);
    check_near(v.loss.value, 2, 1e-15); /* the farther of the two */
    assert_false(v.clipped);
    const double h = 1e-6;
    for (double at = -2; at < 2; at += 0.0731) {
        double up = xm_rl_value_loss(0.4, at + h, 0.1, 0.7).loss.value;
        double down = xm_rl_value_loss(0.4, at - h, 0.1, 0.7).loss.value;
        check_near(xm_rl_value_loss(0.4, at, 0.1, 0.7).loss.slope,
                   (up - down) / (2 * h), 1e-6);
    }
}

static void controllers_move_towards_their_target(void **state)
{
    (void)state;
    xm_rl_kl_control fixed = { 0, 0.1, 10000 };
    xm_rl_kl_control adaptive = { 1, 0.1, 10000 };
    check_near(xm_rl_kl_update(&fixed, 0.3, 9, 256), 0.3, 0);
    check_near(xm_rl_kl_update(&adaptive, 0.3, 9, 256),
               0.3 * (1 + 0.2 * 0.0256), 1e-15);
    check_near(xm_rl_kl_update(&adaptive, 0.3, 0, 256),
               0.3 * (1 - 0.2 * 0.0256), 1e-15);
    check_near(xm_rl_kl_update(&adaptive, 0.3, 0.11, 256),
               0.3 * (1 + 0.1 * 0.0256), 1e-15);
}

/* The moments of merged parts are those of all scores. */
static void moments_merge_exactly(void **state)
{
    (void)state;
    double x[12];
    double last = 0;
    double sum = 0;
    double squares = 0;
    xm_rl_moments m;
    xm_rl_moments_init(&m);
    assert_true(m.deviation == 1);
    for (int i = 0; i < 12; i++) {
        x[i] = (i * 7) % 5 - 1.5;
        sum += x[i];
    }
    for (int i = 0; i < 12; i++)
        squares += (x[i] - sum / 12) * (x[i] - sum / 12);
    xm_rl_moments_add(&m, x, 5, NULL);
    xm_rl_moments_add(&m, NULL, 0, NULL);
    xm_rl_moments_add(&m, x + 5, 7, &last);
    check_near(m.count, 12, 1e-12);
    check_near(m.mean, sum / 12, 1e-12);
    check_near(m.deviation, sqrt(squares / 11), 1e-12);
    assert_true(last > 0);
}

static void logarithm_agrees_with_the_library(void **state)
{
    (void)state;
    assert_true(xm_rl_log(1.0) == 0.0);
    static const double none[] = { -1.0, -0x1p-1074, -(double)INFINITY,
                                   (double)NAN };
    for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
        assert_true(isnan(xm_rl_log(none[i])));
    assert_true(xm_rl_log(0.0) == -(double)INFINITY);
    assert_true(xm_rl_log(-0.0) == -(double)INFINITY);
    assert_true(xm_rl_log((double)INFINITY) == (double)INFINITY);
    static const double ends[] = { 0x1p-1074, 0x1p-1022,
                                   0x1.fffffffffffffp1023 };
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        check_near(xm_rl_log(ends[i]) / log(ends[i]), 1.0, 4e-16);
    for (double x = 1e-12; x < 1e12; x *= 1.0371)
        check_near(xm_rl_log(x), log(x), 4e-16 * (1 + fabs(log(x))));
    for (double x = 0.5; x < 2; x += 0.00091)
        check_near(xm_rl_log(x), log(x), 3e-16);
}

/* DAPO's penalty as in verl is 0 up to longest - buffer and then falls to
 * -factor. */
static void overlong_penalty_follows_verl(void **state)
{
    (void)state;
    check_near(xm_rl_overlong(10, 20, 8, 1), 0, 0);
    check_near(xm_rl_overlong(12, 20, 8, 1), 0, 0);
    check_near(xm_rl_overlong(16, 20, 8, 1), -0.5, 1e-15);
    check_near(xm_rl_overlong(20, 20, 8, 0.5), -0.5, 1e-15);
}

/* If the deviation of the other samples is 0, nothing is divided; rounding must
 * not hide this. */
static void equal_other_samples_are_not_divided(void **state)
{
    (void)state;
    static const double scores[] = { 1.3, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 };
    xm_rl_estimator e = { XM_RL_ADV_GRPO, XM_RL_STD_OTHERS, 1e-6 };
    xm_rl_score_counts counts = { 7, 7 };
    xm_rl_group group = { 0 };
    for (uint64_t i = 0; i < 7; i++)
        xm_rl_group_add(&group, scores[i], 1, i);
    xm_rl_group_close(&group);
    for (int i = 0; i < 7; i++)
        xm_rl_group_deviate(&group, scores[i]);
    check_near(xm_rl_advantage(&e, &group, &counts, 1.3, 0), 1.2, 1e-12);
}

/* verl's bound of 20 holds for a token and for the sum over a row. */
static void drift_is_bounded(void **state)
{
    (void)state;
    xm_rl_correction rule = { .weight = XM_RL_IS_SEQUENCE,
                              .low = -1,
                              .high = 1e300 };
    xm_rl_drift row = { 0 };
    check_near(xm_rl_log_drift(-1, -40), 20, 0);
    check_near(xm_rl_log_drift(-40, -1), -20, 0);
    xm_rl_drift_add(&rule, 15, &row);
    xm_rl_drift_add(&rule, 15, &row);
    xm_rl_drift_close(&rule, &row);
    check_near(xm_rl_drift_weight(&rule, &row, 15) / exp(20), 1, 1e-14);
}

/* Truncation sets a weight to the bound; a band drops weights on either side.
 */
static void weights_outside_of_their_bounds(void **state)
{
    (void)state;
    static const int64_t kinds[] = { XM_RL_IS_TOKEN, XM_RL_IS_SEQUENCE };
    for (int k = 0; k < 2; k++) {
        static const double log_r[] = { -0.8, -0.6, 0, 0.6, 0.8 };
        for (int i = 0; i < 5; i++) {
            xm_rl_correction band = { .weight = kinds[k],
                                      .low = 0.5,
                                      .high = 2 };
            xm_rl_correction cut = { .weight = kinds[k], .low = -1, .high = 2 };
            double w = exp(log_r[i]);
            xm_rl_drift row = { 0 };
            xm_rl_drift_add(&band, log_r[i], &row);
            xm_rl_drift_close(&band, &row);
            check_near(xm_rl_drift_weight(&band, &row, log_r[i]),
                       i == 0 || i == 4 ? 0 : w, 1e-14);
            check_near(xm_rl_drift_weight(&cut, &row, log_r[i]), fmin(w, 2),
                       1e-14);
        }
    }
}

/* k1 keeps a row whose ratio (of its sum, its mean, or each of its tokens) lies
 * between both bounds. */
static void rows_between_two_bounds(void **state)
{
    (void)state;
    static const struct {
        double log_r[3];
        int kept[3]; /* by sum, mean, extremes */
    } cases[] = {
        { { 0.05, -0.05, 0.05 }, { 1, 1, 1 } },
        { { 0, 0.2, 0 }, { 0, 1, 0 } },
        { { -0.2, 0, 0 }, { 0, 1, 0 } },
        { { 0.2, 0, -0.2 }, { 1, 1, 0 } },
        { { 0.2, 0.15, 0.2 }, { 0, 0, 0 } },
        { { -0.2, -0.2, -0.15 }, { 0, 0, 0 } },
    };
    static const int64_t levels[] = { XM_RL_RS_SUM, XM_RL_RS_MEAN,
                                      XM_RL_RS_MAX };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++)
        for (int l = 0; l < 3; l++) {
            xm_rl_correction rule = { .kind = XM_RL_RS_K1,
                                      .level = levels[l],
                                      .rs_low = 0.9,
                                      .rs_high = 1.1 };
            xm_rl_drift row = { 0 };
            for (int i = 0; i < 3; i++)
                xm_rl_drift_add(&rule, cases[c].log_r[i], &row);
            xm_rl_drift_close(&rule, &row);
            if (xm_rl_drift_keeps(&rule, &row, 0) != cases[c].kept[l])
                fail_msg("case %zu, level %d: %s", c, l,
                         cases[c].kept[l] ? "dropped" : "kept");
        }
}

/* NeMo-RL's limits are 20 for the log-ratio and 10 for every estimate. */
static void kl_is_clamped_as_in_nemo_rl(void **state)
{
    static const struct {
        int64_t type;
        double l;
        double value;
        double slope;
    } cases[] = {
        { XM_RL_KL_K1, 3, 3, 1 },   { XM_RL_KL_K1, -9.5, -9.5, 1 },
        { XM_RL_KL_K1, 11, 10, 0 }, { XM_RL_KL_K1, -40, -10, 0 },
        { XM_RL_KL_K2, 4, 8, 4 },   { XM_RL_KL_K2, -5, 10, 0 },
        { XM_RL_KL_K2, 30, 10, 0 }, { XM_RL_KL_K3, 0, 0, 0 },
        { XM_RL_KL_K3, -3, 10, 0 }, { XM_RL_KL_K3, 10.5, 9.5, 1 },
        { XM_RL_KL_K3, 25, 10, 0 }, { XM_RL_KL_ABS, -12, 10, 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        xm_rl_term term =
            xm_rl_kl(cases[i].type + XM_RL_KL_CLAMPED, 0, cases[i].l - 1, -1);
        check_near(term.value, cases[i].value, 1e-4);
        check_near(term.slope, cases[i].slope, 1e-4);
    }
    assert_true(xm_rl_kl(XM_RL_KL_K1, 1, 39, -1).value == 40);
}

/* GMPO divides by the tokens and 1e-8, as verl does: where the ratio is 1
 * and the advantages sum to n, the loss is -n / (n + 1e-8). */
static void gmpo_divides_by_slightly_more(void **state)
{
    (void)state;
    static const xm_rl_clip clip = { .low = 0.4, .high = 0.4 };
    for (int n = 1; n <= 4; n++) {
        const xm_rl_sequence row = { .tokens = n, .advantage = n };
        double got = xm_rl_gmpo(&clip, &row, -1, -1, 1).loss.value;
        check_near(got, -n / (n + 1e-8), 1e-12);
    }
}

static uint64_t get_key(const void *ctx, uint64_t i)
{
    return ((const uint64_t *)ctx)[i];
}

static void picking_takes_the_largest_keys(void **state)
{
    (void)state;
    static const uint64_t keys[] = { 5, 0, 9, 5, 2, 0, 5 };
    static const uint8_t two[] = { 1, 0, 1, 0, 0, 0, 0 };
    static const uint8_t three[] = { 1, 0, 1, 1, 0, 0, 0 };
    static const uint8_t all[] = { 1, 0, 1, 1, 1, 0, 1 };
    uint8_t got[7];
    xm_rl_pick(get_key, keys, 7, 2, got);
    assert_memory_equal(got, two, 7);
    xm_rl_pick(get_key, keys, 7, 3, got);
    assert_memory_equal(got, three, 7);
    xm_rl_pick(get_key, keys, 7, 50, got);
    assert_memory_equal(got, all, 7);
    /* Ties of keys that are even and have the highest bit. */
    const uint64_t high = (uint64_t)1 << 63;
    const uint64_t even[] = { high + 6, 0, high + 8, high + 6, 2, 0, high + 6 };
    xm_rl_pick(get_key, even, 7, 2, got);
    assert_memory_equal(got, two, 7);
    xm_rl_pick(get_key, even, 7, 3, got);
    assert_memory_equal(got, three, 7);
    xm_rl_pick(get_key, keys, 7, 0, got);
    for (int i = 0; i < 7; i++)
        assert_int_equal(got[i], 0);
    static const double order[] = { -1e300, -2, -1e-300, 0, 1e-300, 2, 1e300 };
    for (int i = 1; i < 7; i++)
        assert_true(xm_rl_key(order[i]) > xm_rl_key(order[i - 1]));
    assert_true(xm_rl_key((double)NAN) == 0 && xm_rl_key(order[0]) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gae_meets_published_vectors),
        cmocka_unit_test(gae_carries_credit_over_tool_tokens),
        cmocka_unit_test(observations_change_nothing),
        cmocka_unit_test(returns_meet_published_vectors),
        cmocka_unit_test(empty_rows_give_nothing),
        cmocka_unit_test(statistics_merge),
        cmocka_unit_test(value_loss_agrees_with_hand_calculation),
        cmocka_unit_test(controllers_move_towards_their_target),
        cmocka_unit_test(moments_merge_exactly),
        cmocka_unit_test(logarithm_agrees_with_the_library),
        cmocka_unit_test(overlong_penalty_follows_verl),
        cmocka_unit_test(equal_other_samples_are_not_divided),
        cmocka_unit_test(drift_is_bounded),
        cmocka_unit_test(weights_outside_of_their_bounds),
        cmocka_unit_test(rows_between_two_bounds),
        cmocka_unit_test(kl_is_clamped_as_in_nemo_rl),
        cmocka_unit_test(gmpo_divides_by_slightly_more),
        cmocka_unit_test(picking_takes_the_largest_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
