/* SPDX-License-Identifier: Apache-2.0
 *
 * Rollout correction if the log-probabilities of the sampler and the trainer
 * differ: every metric worked out by hand, and losses at their bounds.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"

#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

/* Rows of two tokens and of one, whose log-ratios old - rollout are 0.1, -0.2
 * and 0.4. */
static void fill_rows(rig_batch *b)
{
    static const float old[] = { 0, -1, -2, 0, -0.5f };
    static const float x[] = { 0, 0.1f, -0.2f, 0, 0.4f };
    rig_batch_init(b);
    (void)rig_row(b, 1, 2, 0, 1);
    (void)rig_row(b, 1, 1, 0, 0);
    for (int i = 0; i < 5; i++) {
        b->old_logp[i] = old[i];
        b->rollout_logp[i] = old[i] - x[i];
    }
}

typedef struct weighing {
    const char *keys[9];
    double weight[3];
    double scale;
    double rejected; /* share of tokens */
} weighing;

static const weighing weighings[] = {
    { { "rollout_is", "token", "rollout_is_threshold", "1.3" },
      { 1.105170918, 0.818730753, 1.3 },
      1,
      0 },
    { { "rollout_is", "token", "rollout_is_threshold", "0.9_1.3" },
      { 1.105170918, 0, 0 },
      1,
      0 },
    { { "rollout_is", "sequence", "rollout_is_threshold", "1.3" },
      { 0.904837418, 0.904837418, 1.3 },
      1,
      0 },
    { { "rollout_is", "token", "rollout_is_batch_normalize", "true" },
      { 1.105170918, 0.818730753, 1.491824698 },
      3 / 3.415726369,
      0 },
    { { "rollout_rs", "token_k1", "rollout_rs_threshold", "0.8_1.2" },
      { 1, 1, 1 },
      1,
      1.0 / 3 },
    { { "rollout_rs", "seq_max_k1", "rollout_rs_threshold", "0.9_1.5" },
      { 1, 1, 1 },
      1,
      2.0 / 3 },
};

static void drift_metrics_are_those_by_hand(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(weighings) / sizeof(weighings[0]); i++) {
        const weighing *w = &weighings[i];
        double sum = 0;
        double squares = 0;
        double least = INFINITY;
        double most = 0;
        rig r;
        rig_batch b;
        rig_open(&r, w->keys);
        fill_rows(&b);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (int t = 0; t < 3; t++) {
            sum += w->weight[t];
            squares += w->weight[t] * w->weight[t];
            least = fmin(least, w->weight[t]);
            most = fmax(most, w->weight[t]);
        }
        double mean = sum / 3;
        near(rig_put(&r, "rollout_corr/exact"), 0, 0);
        near(rig_put(&r, "rollout_corr/kl"), -0.1, 1e-6);
        near(rig_put(&r, "rollout_corr/k3_kl"),
             (exp(0.1) + exp(-0.2) + exp(0.4) - 0.3 - 3) / 3, 1e-6);
        near(rig_put(&r, "rollout_corr/training_ppl"),
             (exp(1.5) + exp(0.5)) / 2, 1e-6);
        near(rig_put(&r, "rollout_corr/rollout_ppl"),
             (exp(1.45) + exp(0.9)) / 2, 1e-6);
        near(rig_put(&r, "rollout_corr/log_ppl_diff"), -0.175, 1e-6);
        near(rig_put(&r, "rollout_corr/ppl_ratio"), exp(-0.175), 1e-6);
        near(rig_put(&r, "rollout_corr/rollout_is_mean"), mean * w->scale,
             1e-6);
        near(rig_put(&r, "rollout_corr/rollout_is_min"), least * w->scale,
             1e-6);
        near(rig_put(&r, "rollout_corr/rollout_is_max"), most * w->scale, 1e-6);
        near(rig_put(&r, "rollout_corr/rollout_is_std"),
             sqrt(fmax(squares / 3 - mean * mean, 0)) * w->scale, 1e-5);
        near(rig_put(&r, "rollout_corr/rollout_is_eff_sample_size"),
             mean * mean * 3 / squares, 1e-6);
        near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"),
             w->rejected, 1e-9);
        rig_close(&r);
    }
}

/* One of two tokens has no advantage: GMPO's geometric mean skips it, and its
 * slope is 0. */
static void geometric_means_skip_tokens_without_advantage(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    (void)state;
    rig_open(&r, RIG_KEYS("loss_mode", "geo_mean", "clip_ratio", "0.4"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 0);
    b.logp[1] = 0.1f;
    b.logp[2] = 0.05f;
    b.advantage[2] = 1;
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], 0, 0);
    near((double)b.dlogp[2], -0.25 * exp(0.05 / 2), 1e-6);
    near(rig_metric(&r, &sums, "actor/pg_loss"), -0.5 * exp(0.05 / 2), 1e-6);
    rig_close(&r);
}

/* Each choice of rollout_rs compares these with its threshold, one for each
 * token. For k1 they are ratios, so the lower bound is far below them. */
static const struct rejection {
    const char *name;
    double value[3];
} rejections[] = {
    { "token_k1", { 1.105170918, 0.818730753, 1.491824698 } },
    { "token_k2", { 0.005, 0.02, 0.08 } },
    { "token_k3", { 0.005170918, 0.018730753, 0.091824698 } },
    { "seq_sum_k1", { 0.904837418, 0.904837418, 1.491824698 } },
    { "seq_sum_k2", { 0.025, 0.025, 0.08 } },
    { "seq_sum_k3", { 0.023901671, 0.023901671, 0.091824698 } },
    { "seq_mean_k1", { 0.951229425, 0.951229425, 1.491824698 } },
    { "seq_mean_k2", { 0.0125, 0.0125, 0.08 } },
    { "seq_mean_k3", { 0.011950836, 0.011950836, 0.091824698 } },
    { "seq_max_k1", { 1.105170918, 1.105170918, 1.491824698 } },
    { "seq_max_k2", { 0.02, 0.02, 0.08 } },
    { "seq_max_k3", { 0.018730753, 0.018730753, 0.091824698 } },
};

/* A threshold a little below a value rejects it, one a little above does not.
 */
static void each_choice_rejects_by_its_own_estimate(void **state)
{
    (void)state;
    for (size_t i = 0; i < 6 * sizeof(rejections) / sizeof(rejections[0]);
         i++) {
        const struct rejection *j = &rejections[i / 6];
        double high = j->value[i % 3] * (i % 6 < 3 ? 0.999 : 1.001);
        double rejected = 0;
        char text[40];
        rig r;
        rig_batch b;
        (void)snprintf(text, sizeof(text), "%s%.9f",
                       strstr(j->name, "_k1") ? "0.01_" : "", high);
        for (int t = 0; t < 3; t++)
            rejected += j->value[t] > high;
        rig_open(&r,
                 RIG_KEYS("rollout_rs", j->name, "rollout_rs_threshold", text));
        fill_rows(&b);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"),
                 rejected / 3, 1e-9, j->name);
        rig_close(&r);
    }
}

/* A weight that is as small or as large as a bound is neither cut nor
 * dropped: without drift, all are 1. */
static void weights_at_a_bound_are_kept(void **state)
{
    static const char *const bounds[] = { "1_2", "0.5_1", "1" };
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        rig r;
        rig_batch b;
        rig_open(&r, RIG_KEYS("rollout_is", "token", "rollout_is_threshold",
                              bounds[i]));
        fill_rows(&b);
        memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        near(rig_put(&r, "rollout_corr/rollout_is_min"), 1, 0);
        near(rig_put(&r, "rollout_corr/rollout_is_max"), 1, 0);
        rig_close(&r);
    }
}

/* If the range leaves no weight at all, there is no mean to divide by, and no
 * loss. */
static void a_step_without_weights_has_no_loss(void **state)
{
    rig r;
    rig_batch b;
    rig_sums sums;
    (void)state;
    rig_open(&r, RIG_KEYS("rollout_is", "token", "rollout_is_threshold", "5_6",
                          "rollout_is_batch_normalize", "true"));
    fill_rows(&b);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/rollout_is_mean"), 0, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_max"), 0, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_eff_sample_size"), 0, 0);
    memcpy(b.logp, b.old_logp, sizeof(b.logp));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    for (uint32_t i = 0; i < b.b.tokens; i++)
        near((double)b.dlogp[i], 0, 0);
    rig_close(&r);
}

/* Prepares four rows of which two tokens are rejected, or, with `masked`, are
 * observations. */
static void prepare_without_two(const char *preset, int masked, rig_batch *b)
{
    static const int without[] = { 2, 9 };
    rig r;
    rig_open(&r, masked ? RIG_KEYS("preset", preset)
                        : RIG_KEYS("preset", preset, "rollout_rs", "token_k1",
                                   "rollout_rs_threshold", "0.8_1.2"));
    rig_batch_init(b);
    (void)rig_row(b, 1, 3, 0, 1);
    (void)rig_row(b, 1, 2, 0, 3);
    (void)rig_row(b, 1, 4, 1, 2);
    (void)rig_row(b, 1, 2, 1, 0);
    b->baseline[0] = b->baseline[2] = 0.5f;
    for (int i = 0; i < 2; i++) {
        b->rollout_logp[without[i]] = 0.5f;
        b->reward[without[i]] = 0.25f;
        if (masked)
            b->mask[without[i]] = 0;
    }
    assert_int_equal(rig_prepare(&r, b), XRAY_OK);
    rig_close(&r);
}

/* Means by length, returns and whitening leave rejected tokens out, as if the
 * policy had not chosen them. */
static void rejected_tokens_are_in_no_statistic(void **state)
{
    static const char *const presets[] = {
        "verl",
        "opo",
        "remax",
        "gdpo",
        "reinforce_plus_plus",
        "reinforce_plus_plus_baseline",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(presets) / sizeof(presets[0]); i++) {
        rig_batch rejected;
        rig_batch masked;
        prepare_without_two(presets[i], 0, &rejected);
        prepare_without_two(presets[i], 1, &masked);
        for (uint32_t t = 0; t < masked.b.tokens; t++) {
            rig_near((double)rejected.advantage[t], (double)masked.advantage[t],
                     0, presets[i]);
            rig_near((double)rejected.returns[t], (double)masked.returns[t], 0,
                     presets[i]);
        }
        assert_true(rejected.advantage[3] != 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drift_metrics_are_those_by_hand),
        cmocka_unit_test(geometric_means_skip_tokens_without_advantage),
        cmocka_unit_test(each_choice_rejects_by_its_own_estimate),
        cmocka_unit_test(weights_at_a_bound_are_kept),
        cmocka_unit_test(a_step_without_weights_has_no_loss),
        cmocka_unit_test(rejected_tokens_are_in_no_statistic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
