/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver half of the family: every preset at the edges, and what only some
 * of them have.
 */
#include <math.h>

#include "tests/algo/grpo_rig.h"
#include "tests/algo/vectors.h"

#define near(got, want, tolerance) rig_near(got, want, tolerance, #got)

static const xray_algo_presets *table(void)
{
    const xray_plugin *plugin = xray_plugin_query_algo_grpo(XRAY_ABI);
    const xray_algo_ops *ops = plugin->components[0]->ops;
    assert_null(ops->extension(NULL, "xray.algo.other/0"));
    return ops->extension(NULL, XRAY_ALGO_PRESETS);
}

static const char *name_of(uint32_t row)
{
    return table()->cells[row * table()->columns];
}

/* dro has a number to be given. */
static void open_preset(rig *r, uint32_t row)
{
    const char *name = name_of(row);
    if (strcmp(name, "dro") == 0)
        rig_open(r, RIG_KEYS("preset", name, "dro_beta", "0.05"));
    else
        rig_open(r, RIG_KEYS("preset", name));
}

/* The table, the choices and the presets tell the same list. */
static void table_is_the_options(void **state)
{
    (void)state;
    const xray_plugin *plugin = xray_plugin_query_algo_grpo(XRAY_ABI);
    const xray_option *preset = &plugin->components[0]->options[0];
    assert_string_equal(preset->name, "preset");
    uint32_t rows = 0;
    for (const xray_choice *c = preset->choices; c->name; c++, rows++) {
        assert_true(rows < table()->rows);
        assert_int_equal(c->value, rows);
        assert_string_equal(c->name, name_of(rows));
        rig r;
        open_preset(&r, rows);
        rig_close(&r);
    }
    assert_int_equal(rows, table()->rows);
    for (uint32_t i = 0; i < rows * table()->columns; i++)
        assert_true(table()->cells[i] && *table()->cells[i]);
}

/* Rewards 1 0 0 1 0 0 0 0: the table's own numbers, where it has numbers. */
static void table_holds_its_numbers(void **state)
{
    (void)state;
    static const float scores[] = { 1, 0, 0, 1, 0, 0, 0, 0 };
    uint32_t one = 0;
    while (strcmp(table()->titles[one], "A(1)") != 0)
        one++;
    uint32_t checked = 0;
    for (uint32_t p = 0; p < table()->rows; p++) {
        const char *const *cells = table()->cells + p * table()->columns;
        double want[2];
        if (xr_parse_real(cells[one], &want[1]) ||
            xr_parse_real(cells[one + 1], &want[0]))
            continue;
        rig r;
        rig_batch b;
        open_preset(&r, p);
        rig_batch_init(&b);
        for (int i = 0; i < 8; i++)
            (void)rig_row(&b, 2, 3, 0, scores[i]);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (uint32_t i = 0; i < 8; i++)
            near((double)rig_advantage(&b, i), want[scores[i] > 0], 1e-6);
        rig_close(&r);
        checked++;
    }
    assert_true(checked > 20);
}

static void maxrl_vector(void **state)
{
    (void)state;
    cJSON *all = vectors_open();
    const cJSON *in = vector_part(all, "maxrl", "inputs");
    const cJSON *want = vector_part(all, "maxrl", "expected");
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", "maxrl"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 2, (int32_t)vector_at(in, "group", i),
                      (float)vector_at(in, "scores", i));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    for (int i = 0; i < 4; i++)
        near((double)rig_advantage(&b, (uint32_t)i), vector_at(want, "adv", i),
             1e-6);
    rig_close(&r);
    cJSON_Delete(all);
}

/* ---- edges of every preset ----------------------------------------------- */

/* Equal rewards teach nothing, whatever the estimator; a greedy sample that
 * scores the same is what remax needs for that. */
static void equal_rewards(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < table()->rows; p++) {
        rig r;
        rig_batch b;
        open_preset(&r, p);
        rig_batch_init(&b);
        for (int i = 0; i < 7; i++) {
            (void)rig_row(&b, 1, 2 + i, 0, 1);
            b.baseline[i] = 1;
        }
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        for (uint32_t i = 0; i < b.b.tokens; i++)
            if (b.advantage[i] != 0)
                fail_msg("%s gives %g", name_of(p), (double)b.advantage[i]);
        rig_close(&r);
    }
}

static void check_finite(const rig_batch *b, const char *name)
{
    for (uint32_t i = 0; i < b->b.tokens; i++) {
        if (!isfinite(b->advantage[i]) || !isfinite(b->dlogp[i]))
            fail_msg("%s: token %u is not finite", name, i);
        if (b->mask[i] == 0 && (b->advantage[i] != 0 || b->dlogp[i] != 0))
            fail_msg("%s: masked token %u is touched", name, i);
    }
}

/* Groups of one, rows without response, masked rows, no tokens, no rows. */
static void odd_batches(void **state)
{
    (void)state;
    for (uint32_t p = 0; p < table()->rows; p++) {
        rig r;
        rig_batch b;
        rig_sums sums;
        open_preset(&r, p);
        rig_batch_init(&b);
        (void)rig_row(&b, 2, 3, 0, 2); /* alone */
        (void)rig_row(&b, 2, 0, 1, 5); /* empty */
        (void)rig_row(&b, 2, 4, 1, 1);
        (void)rig_row(&b, 1, 2, 2, 3); /* all masked */
        for (int32_t i = b.row_start[3]; i < b.row_start[4]; i++)
            b.mask[i] = 0;
        b.mask[3] = 0; /* an observation */
        rig_fill(&b, 11 + p);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_int_equal(rig_loss(&r, &b, 1, 1, &sums), XRAY_OK);
        check_finite(&b, name_of(p));
        memset(b.mask, 0, sizeof(b.mask)); /* zero tokens */
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        assert_int_equal(rig_loss(&r, &b, 2, 1, &sums), XRAY_OK);
        check_finite(&b, name_of(p));
        for (int i = 0; i < RIG_METRICS; i++)
            assert_true(sums.sum[i] == 0 && sums.weight[i] == 0);
        rig_batch_init(&b);
        assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
        rig_close(&r);
    }
}

static double lone(const char *preset)
{
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", preset));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 3, 0, 3);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    rig_close(&r);
    return (double)rig_advantage(&b, 0);
}

static void groups_of_one(void **state)
{
    (void)state;
    near(lone("openrlhf"), 3, 1e-6);
    near(lone("open_instruct"), 3, 0);
    near(lone("open_instruct_standard"), 0, 0);
    near(lone("nemo_rl"), 0, 0);
    near(lone("opo"), 3, 0);
    near(lone("gpg"), 3, 0);
    near(lone("grpo_passk"), 0, 0);
    near(lone("maxrl"), 3e6, 1);
    /* Three tokens of one value: whitening leaves nothing. */
    near(lone("reinforce_plus_plus_baseline"), 0, 0);
    near(lone("reinforce_plus_plus"), 0, 0);
}

/* ---- estimators of their own --------------------------------------------- */

static void two_rows(rig *r, rig_batch *b, const char *const *keys)
{
    rig_open(r, keys);
    rig_batch_init(b);
    (void)rig_row(b, 1, 2, 0, 1);
    (void)rig_row(b, 1, 4, 0, 3);
}

static void opo_weighs_by_length(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    two_rows(&r, &b, RIG_KEYS("preset", "opo"));
    b.mask[3 + 2] = 0; /* three tokens of the second are trained on */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double baseline = (2 * 1 + 3 * 3) / 5.0;
    near((double)rig_advantage(&b, 0), 1 - baseline, 1e-6);
    near((double)rig_advantage(&b, 1), 3 - baseline, 1e-6);
    rig_close(&r);
}

/* Returns skip an observation and are whitened by all tokens in the loss. */
static void reinforce_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    two_rows(&r, &b, RIG_KEYS("preset", "reinforce_plus_plus", "gamma", "0.5"));
    b.mask[5] = 0;
    b.reward[5] = 9; /* on an observation: skipped, as verl does */
    static const double want[] = { 0.5, 1, 0.75, 1.5, 3 };
    double mean = 6.75 / 5;
    double squares = 0;
    for (int i = 0; i < 5; i++)
        squares += (want[i] - mean) * (want[i] - mean);
    double scale = 1 / sqrt(squares / 4 + 1e-8);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    static const int at[] = { 1, 2, 4, 6, 7 };
    for (int i = 0; i < 5; i++) {
        near((double)b.returns[at[i]], want[i], 1e-6);
        near((double)b.advantage[at[i]], (want[i] - mean) * scale, 1e-6);
    }
    assert_true(b.advantage[5] == 0 && b.returns[5] == 0);
    assert_int_equal(rig_needs(&r), 0);
    rig_close(&r);
}

static void reinforce_baseline_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    two_rows(&r, &b, RIG_KEYS("preset", "reinforce_plus_plus_baseline"));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double mean = (2 * -1 + 4 * 1) / 6.0;
    double variance =
        (2 * (-1 - mean) * (-1 - mean) + 4 * (1 - mean) * (1 - mean)) / 5;
    near((double)rig_advantage(&b, 0), (-1 - mean) / sqrt(variance + 1e-8),
         1e-6);
    near((double)rig_advantage(&b, 1), (1 - mean) / sqrt(variance + 1e-8),
         1e-6);
    rig_close(&r);
}

static void remax_by_hand(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    two_rows(&r, &b, RIG_KEYS("preset", "remax"));
    b.reward[4] = 0.25f;
    b.baseline[0] = 0.5f;
    b.baseline[1] = 2;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near((double)b.advantage[1], 0.5, 1e-6);
    near((double)b.advantage[4], 1.25, 1e-6);
    near((double)b.advantage[7], 1, 1e-6);
    near((double)b.returns[4], 3.25, 1e-6);
    assert_int_equal(rig_needs(&r), XRAY_NEED_GREEDY);
    b.b.baseline = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "greedy"));
    rig_close(&r);
}

static void passk_pays_the_best(void **state)
{
    (void)state;
    static const float scores[] = { 1, 4, 2, 0 };
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("preset", "grpo_passk"));
    rig_batch_init(&b);
    for (int i = 0; i < 4; i++)
        (void)rig_row(&b, 1, 2, 0, scores[i]);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double deviation =
        sqrt((0.75 * 0.75 + 2.25 * 2.25 + 0.25 * 0.25 + 1.75 * 1.75) / 3);
    for (uint32_t i = 0; i < 4; i++)
        near((double)rig_advantage(&b, i), i == 1 ? 2 / (deviation + 1e-6) : 0,
             1e-6);
    rig_close(&r);
}

/* ---- dynamic sampling, shaping, controllers ------------------------------ */

static void flat_groups_are_dropped(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    uint32_t keep[4] = { 7, 7, 7, 7 };
    rig_open(&r, RIG_KEYS("preset", "dapo", "max_num_gen_batches", "2"));
    rig_batch_init(&b);
    (void)rig_row(&b, 1, 2, 0, 1);
    (void)rig_row(&b, 1, 3, 0, 1);
    (void)rig_row(&b, 1, 2, 1, 0);
    (void)rig_row(&b, 1, 2, 1, 1);
    (void)rig_row(&b, 1, 2, 2, 0);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 0 && keep[1] == 1 && keep[2] == 1 && keep[3] == 7);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 1); /* the second batch is the last */
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 0);
    rig_close(&r);
    rig_open(&r, NULL);
    keep[0] = 0;
    assert_int_equal(r.ops->accept(r.self, &b.b, 3, keep), XRAY_OK);
    assert_true(keep[0] == 1 && keep[1] == 1);
    rig_close(&r);
}

static void overlong_responses_lose(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    two_rows(&r, &b,
             RIG_KEYS("preset", "dapo", "overlong_buffer_len", "2",
                      "overlong_penalty_factor", "0.5", "max_resp_len", "4"));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near((double)b.reward[2], 1, 0);
    near((double)b.reward[7], 2.5, 1e-6);
    near(rig_put(&r, "reward/overlong_penalty"), -0.25, 1e-6);
    rig_close(&r);
}

/* The adaptive coefficient moves, is saved and comes back. */
static void adaptive_kl(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    const char *const *keys =
        RIG_KEYS("use_kl_in_reward", "true", "kl_coef", "0.5", "kl_ctrl",
                 "adaptive", "target_kl", "0.1", "horizon", "10");
    two_rows(&r, &b, keys);
    for (uint32_t i = 0; i < b.b.tokens; i++)
        b.ref_logp[i] = -1;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "actor/reward_kl_penalty"), 1, 1e-6);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), 0.5, 0);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    double next = 0.5 * (1 + 0.2 * 2 / 10);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"), next, 1e-15);
    unsigned char blob[64];
    uint64_t size = 0;
    assert_int_equal(r.ops->save(r.self, NULL, 0, &size), XRAY_E_RANGE);
    assert_true(size > 0 && size <= sizeof(blob));
    assert_int_equal(r.ops->save(r.self, blob, sizeof(blob), &size), XRAY_OK);
    rig_close(&r);
    rig_open(&r, keys);
    assert_int_equal(r.ops->load(r.self, blob, size - 1), XRAY_E_ARG);
    assert_int_equal(r.ops->load(r.self, blob, size), XRAY_OK);
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "actor/reward_kl_penalty_coeff"),
         next * (1 + 0.2 * 2 / 10), 1e-15);
    rig_close(&r);
}

/* ---- rollout correction -------------------------------------------------- */

/* Log-probs that are equal: the metrics say that nothing is corrected. */
static void exact_log_probs(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_open(&r, RIG_KEYS("rollout_is", "token", "rollout_rs", "seq_mean_k1",
                          "rollout_rs_threshold", "0.999_1.001",
                          "rollout_is_batch_normalize", "true"));
    rig_batch_init(&b);
    for (int i = 0; i < 6; i++)
        (void)rig_row(&b, 1, 2 + i, i / 3, (float)(i % 2));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/exact"), 1, 0);
    near(rig_put(&r, "rollout_corr/kl"), 0, 0);
    near(rig_put(&r, "rollout_corr/k3_kl"), 0, 0);
    near(rig_put(&r, "rollout_corr/ppl_ratio"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_mean"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_std"), 0, 0);
    near(rig_put(&r, "rollout_corr/rollout_is_eff_sample_size"), 1, 0);
    near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"), 0, 0);
    b.b.rollout_logp = NULL;
    assert_int_equal(rig_prepare(&r, &b), XRAY_E_ARG);
    assert_non_null(strstr(r.host.reason, "rollout_logp"));
    rig_close(&r);
}

/* One row of two the sampler saw differently: it gets no advantage, and the
 * numbers of the other are those of a batch of one row. */
static void rejected_rows(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    two_rows(&r, &b,
             RIG_KEYS("preset", "dr_grpo", "loss_agg_mode", "token-mean",
                      "rollout_rs", "seq_max_k1", "rollout_rs_threshold",
                      "1.1"));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    b.rollout_logp[5] += 0.2f;
    b.reward[2] = 1;
    b.reward[7] = 3;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/rollout_rs_masked_fraction"), 4.0 / 6, 1e-9);
    near(rig_put(&r, "rollout_corr/exact"), 5.0 / 6, 1e-9);
    near((double)b.advantage[1], -1, 1e-6);
    for (int i = 3; i < 8; i++)
        assert_true(b.advantage[i] == 0);
    memcpy(b.logp, b.old_logp, sizeof(b.logp));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], 0.5, 1e-6); /* two tokens are left */
    for (int i = 3; i < 8; i++)
        assert_true(b.dlogp[i] == 0);
    rig_close(&r);
}

/* One token of six weighs 1.5: divided by their mean, the weights are 1 on
 * average, in the metrics and in the loss. */
static void normalised_weights(void **state)
{
    (void)state;
    rig r;
    rig_batch b;
    rig_sums sums;
    const double scale = 6 / 6.5;
    two_rows(&r, &b,
             RIG_KEYS("preset", "dr_grpo", "loss_agg_mode", "token-mean",
                      "rollout_is", "token", "rollout_is_batch_normalize",
                      "true"));
    rig_fill(&b, 5);
    memcpy(b.rollout_logp, b.old_logp, sizeof(b.old_logp));
    b.rollout_logp[5] -= (float)log(1.5);
    b.reward[2] = 1;
    b.reward[7] = 3;
    assert_int_equal(rig_prepare(&r, &b), XRAY_OK);
    near(rig_put(&r, "rollout_corr/rollout_is_mean"), 1, 1e-6);
    near(rig_put(&r, "rollout_corr/rollout_is_min"), scale, 1e-6);
    near(rig_put(&r, "rollout_corr/rollout_is_max"), 1.5 * scale, 1e-6);
    memcpy(b.logp, b.old_logp, sizeof(b.logp));
    assert_int_equal(rig_loss(&r, &b, 1, 0, &sums), XRAY_OK);
    near((double)b.dlogp[1], scale / 6, 1e-6);
    near((double)b.dlogp[4], -scale / 6, 1e-6);
    near((double)b.dlogp[5], -1.5 * scale / 6, 1e-6);
    rig_close(&r);
}

static void refuse(const char *const *keys, const char *word)
{
    rig r;
    assert_int_equal(rig_try(&r, keys), XRAY_E_CONFIG);
    if (!strstr(r.host.reason, word))
        fail_msg("'%s' does not name %s", r.host.reason, word);
}

static void combinations_that_cannot_work(void **state)
{
    (void)state;
    refuse(RIG_KEYS("preset", "gspo", "loss_agg_mode", "token-mean"),
           "loss_agg_mode");
    refuse(RIG_KEYS("loss_mode", "geo_mean", "loss_agg_mode", "token-sum"),
           "loss_agg_mode");
    refuse(RIG_KEYS("preset", "cispo", "clip_ratio_c", "3"), "clip_ratio_c");
    refuse(RIG_KEYS("preset", "dro"), "dro_beta");
    refuse(RIG_KEYS("dro_beta", "0.1"), "dro_beta");
    refuse(RIG_KEYS("gamma", "0.9"), "gamma");
    refuse(RIG_KEYS("preset", "opo", "adv_deviation", "population"),
           "adv_deviation");
    refuse(RIG_KEYS("kl_ctrl", "adaptive"), "kl_ctrl");
    refuse(RIG_KEYS("overlong_buffer_len", "4"), "max_resp_len");
    refuse(RIG_KEYS("max_resp_len", "4"), "max_resp_len");
    refuse(RIG_KEYS("max_num_gen_batches", "4"), "max_num_gen_batches");
    refuse(RIG_KEYS("rollout_is_threshold", "5_0.5"), "rollout_is_threshold");
    refuse(RIG_KEYS("rollout_is_threshold", "much"), "rollout_is_threshold");
    refuse(RIG_KEYS("rollout_rs_threshold", "2"), "rollout_rs_threshold");
    refuse(RIG_KEYS("rollout_rs", "token_k3", "rollout_rs_threshold", "1_2"),
           "rollout_rs_threshold");
    refuse(RIG_KEYS("rollout_rs", "token_k1"), "rollout_rs_threshold");
    refuse(RIG_KEYS("rollout_rs", "token_k1", "rollout_rs_threshold", "0.5"),
           "rollout_rs_threshold");
    refuse(RIG_KEYS("preset", "clip_cov", "clip_cov_lb", "6"), "clip_cov_lb");
    refuse(RIG_KEYS("kl_loss_coef", "-0.5"), "kl_loss_coef");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_is_the_options),
        cmocka_unit_test(table_holds_its_numbers),
        cmocka_unit_test(maxrl_vector),
        cmocka_unit_test(equal_rewards),
        cmocka_unit_test(odd_batches),
        cmocka_unit_test(groups_of_one),
        cmocka_unit_test(opo_weighs_by_length),
        cmocka_unit_test(reinforce_by_hand),
        cmocka_unit_test(reinforce_baseline_by_hand),
        cmocka_unit_test(remax_by_hand),
        cmocka_unit_test(passk_pays_the_best),
        cmocka_unit_test(flat_groups_are_dropped),
        cmocka_unit_test(overlong_responses_lose),
        cmocka_unit_test(adaptive_kl),
        cmocka_unit_test(exact_log_probs),
        cmocka_unit_test(rejected_rows),
        cmocka_unit_test(normalised_weights),
        cmocka_unit_test(combinations_that_cannot_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
