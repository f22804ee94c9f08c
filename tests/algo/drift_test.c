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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drift_metrics_are_those_by_hand),
        cmocka_unit_test(geometric_means_skip_tokens_without_advantage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
