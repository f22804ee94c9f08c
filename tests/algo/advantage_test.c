/* SPDX-License-Identifier: Apache-2.0
 *
 * Advantages from rewards: presets, published vectors and edge cases.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"
#include "tests/algo/vectors.h"

#define FLAT "reward/frac_reward_zero_std"
#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

/* The advantages of a 1 and of a 0 in one group of rewards 1 0 0 1 0 0 0 0. */
static void presets_differ_in_their_advantages(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        double one;
        double zero;
    } cases[] = {
        { "none", 1.620182, -0.540061 },
        { "verl", 1.620182, -0.540061 },
        { "trl", 1.619835, -0.539945 },
        { "dr_grpo", 0.75, -0.25 },
        { "rloo", 0.857143, -0.285714 },
        { "trl_grpo", 1.619835, -0.539945 },
        { "openrlhf", 1.620185, -0.540062 },
        { "openrlhf_dr_grpo", 0.75, -0.25 },
        { "open_instruct", 0.75, -0.25 },
        { "open_instruct_standard", 1.732051, -0.577350 },
        { "nemo_rl", 2.267781, -0.585539 },
        { "verl_dr_grpo", 0.75, -0.25 },
        { "dapo", 1.620182, -0.540061 },
        { "gspo", 1.620182, -0.540061 },
        { "cispo", 1.620182, -0.540061 },
        { "cispo_trl", 1.619835, -0.539945 },
        { "gmpo", 1.620182, -0.540061 },
        { "gpg", 3, -1 },
        { "maxrl", 2.999988, -0.999996 },
        { "grpo_passk", 0, 0 },
    };
    static const float scores[] = { 1, 0, 0, 1, 0, 0, 0, 0 };
    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        rig r;
        rig_batch batch;
        rig_open(&r, RIG_KEYS("preset", cases[c].preset));
        rig_batch_init(&batch);
        for (int i = 0; i < 8; i++)
            (void)rig_row(&batch, 2, 1 + i % 3, 0, scores[i]);
        assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
        for (uint32_t i = 0; i < 8; i++) {
            double want = scores[i] > 0 ? cases[c].one : cases[c].zero;
            near((double)rig_advantage(&batch, i), want, 1e-6);
        }
        near(rig_put(&r, FLAT), 0, 0);
        assert_false(rig_was_put(&r, "actor/reward_kl_penalty"));
        rig_close(&r);
    }
}

static void run_vector(const char *name, const char *const *keys)
{
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, name, "inputs");
    const cJSON *want = vector_part(all, name, "expected");
    int count = cJSON_GetArraySize(cJSON_GetObjectItem(in, "scores"));
    rig r;
    rig_batch batch;
    rig_open(&r, keys);
    rig_batch_init(&batch);
    for (int i = 0; i < count; i++)
        (void)rig_row(&batch, 1, 2, (int32_t)vector_at(in, "group", i),
                      (float)vector_at(in, "scores", i));
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    for (int i = 0; i < count; i++)
        near((double)rig_advantage(&batch, (uint32_t)i),
             vector_at(want, "adv", i), 1e-4);
    rig_close(&r);
    cJSON_Delete(all);
}

static void published_vectors_are_met(void **state)
{
    (void)state;
    run_vector("rloo_outcome", RIG_KEYS("preset", "rloo"));
    run_vector("grpo_no_std", RIG_KEYS("preset", "dr_grpo"));
    run_vector("grpo_no_std", RIG_KEYS("norm_adv_by_std_in_grpo", "false"));
}

static float compute_lone_advantage(const char *const *keys, float score)
{
    rig r;
    rig_batch batch;
    rig_open(&r, keys);
    rig_batch_init(&batch);
    (void)rig_row(&batch, 1, 3, 0, score);
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near(rig_put(&r, FLAT), 0, 0);
    rig_close(&r);
    return rig_advantage(&batch, 0);
}

static void a_group_of_one_gets_its_own_rule(void **state)
{
    (void)state;
    near((double)compute_lone_advantage(RIG_KEYS("preset", "verl"), 3),
         3 / (1 + 1e-6), 1e-6);
    near((double)compute_lone_advantage(RIG_KEYS("preset", "dr_grpo"), 3), 3,
         0);
    near((double)compute_lone_advantage(RIG_KEYS("adv_estimator", "rloo"), 3),
         3, 0);
    near((double)compute_lone_advantage(RIG_KEYS("preset", "rloo"), 3), 0, 0);
}

/* pass@k: the best row gets its lead over the second, for any order and sign;
 * the others get nothing. */
static void passk_pays_the_best_in_any_order(void **state)
{
    (void)state;
    static const float scores[][3] = { { 1, -1, -4 },  { -1, 1, -4 },
                                       { -4, -1, 1 },  { -3, -1, -6 },
                                       { -6, -3, -1 }, { 5, 3, 0 },
                                       { 0, 3, 5 },    { 3, 5, 0 } };
    for (size_t c = 0; c < sizeof(scores) / sizeof(scores[0]); c++) {
        rig r;
        rig_batch batch;
        rig_open(&r, RIG_KEYS("preset", "grpo_passk", "norm_adv_by_std_in_grpo",
                              "false"));
        rig_batch_init(&batch);
        for (int i = 0; i < 3; i++)
            (void)rig_row(&batch, 1, 2, 0, scores[c][i]);
        assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
        float most = fmaxf(scores[c][0], fmaxf(scores[c][1], scores[c][2]));
        for (uint32_t i = 0; i < 3; i++)
            near((double)rig_advantage(&batch, i), scores[c][i] == most ? 2 : 0,
                 1e-6);
        rig_close(&r);
    }
}

static void equal_rewards_give_no_advantage(void **state)
{
    (void)state;
    static const char *const presets[] = { "verl", "trl", "dr_grpo", "rloo" };
    for (int p = 0; p < 4; p++) {
        rig r;
        rig_batch batch;
        rig_open(&r, RIG_KEYS("preset", presets[p]));
        rig_batch_init(&batch);
        /* This score has so many bits that the mean of seven of them is
         * rounded. */
        for (int i = 0; i < 7; i++) {
            (void)rig_row(&batch, 1, 2, 0, 0.1f);
            batch.reward[batch.b.tokens - 2] = 3e-10f;
        }
        (void)rig_row(&batch, 1, 2, 1, 0);
        (void)rig_row(&batch, 1, 2, 1, 1);
        assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
        for (uint32_t i = 0; i < 7; i++)
            assert_true(rig_advantage(&batch, i) == 0.0f);
        assert_true(rig_advantage(&batch, 8) > 0);
        near(rig_put(&r, FLAT), 0.5, 0);
        rig_close(&r);
    }
}

/* Masked tokens get no advantage, but their rewards count; a row without a
 * response has score 0; returns equal advantages. */
static void masked_tokens_and_empty_rows_get_nothing(void **state)
{
    (void)state;
    rig r;
    rig_batch batch;
    rig_open(&r, RIG_KEYS("preset", "dr_grpo"));
    rig_batch_init(&batch);
    (void)rig_row(&batch, 2, 3, 0, 2);
    (void)rig_row(&batch, 2, 0, 0, 5);
    (void)rig_row(&batch, 2, 4, 0, 1);
    batch.mask[3] = 0;
    batch.reward[3] = 4; /* a token reward on an observation */
    batch.mask[4] = 0;
    for (int32_t i = batch.row_start[2]; i < batch.row_start[3]; i++)
        batch.mask[i] = 0;
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near((double)batch.advantage[2], 6 - 7.0 / 3, 1e-6);
    for (uint32_t i = 0; i < batch.b.tokens; i++) {
        if (i != 2)
            assert_true(batch.advantage[i] == 0.0f);
        assert_true(batch.advantage[i] == batch.returns[i]);
    }
    rig_batch_init(&batch);
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    rig_close(&r);
}

static void kl_is_subtracted_from_rewards(void **state)
{
    (void)state;
    rig r;
    rig_batch batch;
    rig_open(&r, RIG_KEYS("preset", "dr_grpo", "use_kl_in_reward", "true",
                          "kl_coef", "0.5"));
    rig_batch_init(&batch);
    (void)rig_row(&batch, 1, 2, 0, 1);
    (void)rig_row(&batch, 1, 1, 0, 0);
    batch.old_logp[1] = -1;
    batch.ref_logp[1] = -2;
    batch.old_logp[2] = -1.5f;
    batch.ref_logp[2] = -1;
    batch.old_logp[4] = -1;
    batch.ref_logp[4] = -1.25f;
    batch.ref_logp[0] = 7; /* outside of the mask, so not read */
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near((double)batch.reward[1], -0.5, 1e-7);
    near((double)batch.reward[2], 1.25, 1e-7);
    near((double)batch.reward[4], -0.125, 1e-7);
    near((double)rig_advantage(&batch, 0), 0.4375, 1e-6);
    near(rig_put(&r, "actor/reward_kl_penalty"), (0.25 + 0.25) / 2, 1e-7);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), 0.5, 0);
    batch.b.ref_logp = NULL;
    assert_int_equal(rig_prepare(&r, &batch), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "ref_logp"));
    rig_close(&r);
}

/* k3 of a token eight nats below the reference is exp(8) - 9, at most 10 with
 * safety_bounds. */
static void bounds_limit_the_kl_in_rewards(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        const char *bounds;
        double kl;
    } cases[] = { { "verl", "auto", 10 },
                  { "verl", "false", 2971.957987 },
                  { "none", "auto", 2971.957987 },
                  { "none", "true", 10 } };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        rig r;
        rig_batch batch;
        rig_open(&r, RIG_KEYS("preset", cases[i].preset, "safety_bounds",
                              cases[i].bounds, "use_kl_in_reward", "true",
                              "kl_penalty", "low_var_kl"));
        rig_batch_init(&batch);
        (void)rig_row(&batch, 1, 1, 0, 0);
        batch.old_logp[1] = -9;
        batch.ref_logp[1] = -1;
        assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
        near(rig_put(&r, "actor/reward_kl_penalty"), cases[i].kl, 1e-3);
        rig_close(&r);
    }
}

static void a_number_that_is_not_finite_names_its_row(void **state)
{
    (void)state;
    static const float bad[] = { NAN, INFINITY, -INFINITY };
    rig r;
    rig_open(&r, NULL);
    for (int i = 0; i < 3; i++) {
        rig_batch batch;
        rig_batch_init(&batch);
        (void)rig_row(&batch, 1, 2, 0, 1);
        (void)rig_row(&batch, 1, 2, 0, bad[i]);
        assert_int_equal(rig_prepare(&r, &batch), XRAY_E_NUMERIC);
        assert_non_null(strstr(r.host.reason, "row 1001"));
        assert_non_null(strstr(r.host.reason, "reward"));
    }
    rig_close(&r);
    rig_open(&r, RIG_KEYS("use_kl_in_reward", "true"));
    rig_batch batch;
    rig_batch_init(&batch);
    (void)rig_row(&batch, 1, 2, 0, 1);
    batch.ref_logp[2] = -INFINITY;
    assert_int_equal(rig_prepare(&r, &batch), XRAY_E_NUMERIC);
    assert_non_null(strstr(r.host.reason, "row 1000"));
    rig_close(&r);
    rig_open(&r, RIG_KEYS("preset", "rloo"));
    rig_batch_init(&batch);
    (void)rig_row(&batch, 1, 2, 0, 3e38f);
    (void)rig_row(&batch, 1, 2, 0, -3e38f);
    assert_int_equal(rig_prepare(&r, &batch), XRAY_E_NUMERIC);
    batch.group[1] = 2;
    assert_int_equal(rig_prepare(&r, &batch), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "row 1001: its group"));
    rig_close(&r);
}

static uint32_t query_needs(const char *const *keys)
{
    rig r;
    rig_open(&r, keys);
    uint32_t flags = rig_needs(&r);
    rig_close(&r);
    return flags;
}

static void needs_follow_the_options(void **state)
{
    (void)state;
    assert_int_equal(query_needs(NULL), XRAY_NEED_GROUPS);
    assert_int_equal(query_needs(RIG_KEYS("use_kl_loss", "true")),
                     XRAY_NEED_GROUPS | XRAY_NEED_REFERENCE);
    assert_int_equal(query_needs(RIG_KEYS("use_kl_in_reward", "true")),
                     XRAY_NEED_GROUPS | XRAY_NEED_REFERENCE);
    assert_int_equal(query_needs(RIG_KEYS("entropy_coeff", "0.01")),
                     XRAY_NEED_GROUPS | XRAY_NEED_ENTROPY);
    /* Groups are compared only if their advantages or their fate need it. */
    assert_int_equal(query_needs(RIG_KEYS("preset", "reinforce_plus_plus")), 0);
    assert_int_equal(query_needs(RIG_KEYS("preset", "reinforce_plus_plus",
                                          "filter_groups", "true")),
                     XRAY_NEED_GROUPS);
}

/* Scores are counted if they are not 0, whatever their sign. */
static void gpg_counts_negative_scores(void **state)
{
    static const float scores[] = { -1, 0, 0, 1 };
    rig r;
    rig_batch batch;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "gpg"));
    rig_batch_init(&batch);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&batch, 1, 2, 0, scores[i]);
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near((double)rig_advantage(&batch, 0), -1 * 4 / 2.0, 1e-6);
    near((double)rig_advantage(&batch, 3), 1 * 4 / 2.0, 1e-6);
    memset(batch.reward, 0, sizeof(batch.reward)); /* no score at all */
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near((double)rig_advantage(&batch, 0), 0, 0);
    rig_close(&r);
}

/* A preset that does not divide gets the unbiased deviation if it is asked
 * to. */
static void a_preset_may_be_told_to_divide(void **state)
{
    static const float scores[] = { 1, 0, 0, 0 };
    rig r;
    rig_batch batch;
    (void)state;
    rig_open(&r, RIG_KEYS("preset", "dr_grpo", "norm_adv_by_std_in_grpo",
                          "true", "loss_agg_mode", "token-mean"));
    rig_batch_init(&batch);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&batch, 1, 2, 0, scores[i]);
    assert_int_equal(rig_prepare(&r, &batch), XRAY_OK);
    near((double)rig_advantage(&batch, 0), 1.5, 1e-5);
    near((double)rig_advantage(&batch, 1), -0.5, 1e-5);
    rig_close(&r);
}

static void check_refusal(const char *const *keys, const char *word)
{
    rig r;
    assert_int_equal(rig_try(&r, keys), XRAY_E_CONFIG);
    assert_null(r.self);
    if (!strstr(r.host.reason, word))
        fail_msg("'%s' does not name %s", r.host.reason, word);
}

static void options_that_do_not_work_are_refused(void **state)
{
    (void)state;
    check_refusal(RIG_KEYS("clip_ratio_c", "0.5"), "clip_ratio_c");
    check_refusal(RIG_KEYS("clip_ratio_c", "1"), "clip_ratio_c");
    check_refusal(RIG_KEYS("clip_ratio_low", "-0.5"), "clip_ratio_low");
    check_refusal(RIG_KEYS("clip_ratio_high", "-0.5"), "clip_ratio_high");
    check_refusal(RIG_KEYS("adv_epsilon", "-0.5"), "adv_epsilon");
    check_refusal(RIG_KEYS("preset", "rloo", "norm_adv_by_std_in_grpo", "true"),
                  "norm_adv_by_std_in_grpo");
    check_refusal(RIG_KEYS("loss_scale_factor", "64"), "loss_scale_factor");
    rig r;
    rig_open(&r, NULL);
    r.ops->destroy(NULL);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_differ_in_their_advantages),
        cmocka_unit_test(published_vectors_are_met),
        cmocka_unit_test(a_group_of_one_gets_its_own_rule),
        cmocka_unit_test(passk_pays_the_best_in_any_order),
        cmocka_unit_test(equal_rewards_give_no_advantage),
        cmocka_unit_test(masked_tokens_and_empty_rows_get_nothing),
        cmocka_unit_test(kl_is_subtracted_from_rewards),
        cmocka_unit_test(bounds_limit_the_kl_in_rewards),
        cmocka_unit_test(a_number_that_is_not_finite_names_its_row),
        cmocka_unit_test(gpg_counts_negative_scores),
        cmocka_unit_test(a_preset_may_be_told_to_divide),
        cmocka_unit_test(needs_follow_the_options),
        cmocka_unit_test(options_that_do_not_work_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
